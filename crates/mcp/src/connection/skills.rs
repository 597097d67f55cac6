//! The skills of a server (`io.modelcontextprotocol/skills`): folders with instructions, each file of which is
//! a resource.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use rmcp::model::{
    GetSkillRequestParams, GetSkillResult, ReadResourceRequestParams, ReadResourceResponse,
    ResourceContents, Skill, SkillResource, SkillResources,
};
use tokio::time::{Instant, timeout_at};
use toolscout_index::formats::{MAX_SKILL_BYTES, MAX_SKILL_FILES};

use super::listing::Kind;
use super::{CallError, Connection};
use toolscout_base::printable::excerpt;

/// Most skills of a server.
const MAX_SKILLS: usize = 256;
/// Texts of skills that are read at the same time.
const READ_AT_ONCE: usize = 4;
/// Longest URI in a message.
const URI_CHARS: usize = 200;

/// A skill of a server.
#[derive(Clone, Debug)]
pub struct ServerSkill {
    /// What the server says about it: its URI, its front matter, and its files.
    pub entry: Skill,
    /// Its `SKILL.md`.
    pub text: Arc<str>,
    /// Whether it is as it was read before, since it could not be read again.
    pub is_stale: bool,
}

/// The URIs of the files of several skills.
pub struct SkillFiles<'a> {
    listed: HashSet<&'a str>,
    folders: BTreeSet<&'a str>,
}

impl<'a> SkillFiles<'a> {
    /// The files of these skills.
    pub fn of(skills: &'a [ServerSkill]) -> Self {
        let listed = skills.iter().flat_map(|skill| files(&skill.entry));
        let listed = listed.map(|file| file.uri.as_str());
        let texts = skills.iter().map(|skill| skill.entry.uri.as_str());
        SkillFiles {
            listed: listed.chain(texts).collect(),
            folders: skills.iter().filter_map(ServerSkill::own_folder).collect(),
        }
    }

    /// Whether this URI is of one of them.
    pub fn contains(&self, uri: &str) -> bool {
        let mut folders = self.folders.iter();
        self.listed.contains(uri) || folders.any(|folder| uri.starts_with(folder))
    }
}

impl ServerSkill {
    /// Whether this URI is of one of its files.
    pub fn has_file(&self, uri: &str) -> bool {
        if uri == self.entry.uri {
            return true;
        }
        match self.own_folder() {
            Some(folder) => uri.starts_with(folder),
            None => files(&self.entry).iter().any(|file| file.uri == uri),
        }
    }

    /// The names of its other files, relative to its folder.
    pub fn other_files(&self) -> Vec<String> {
        let mut names = Vec::new();
        for file in files(&self.entry) {
            match file.uri.strip_prefix(self.folder()) {
                Some(name) if file.uri != self.entry.uri => names.push(name.to_owned()),
                _ => {}
            }
        }
        names
    }

    /// The beginning of the URIs of its files, with the slash.
    fn folder(&self) -> &str {
        let uri = self.entry.uri.as_str();
        &uri[..uri.rfind('/').map_or(uri.len(), |slash| slash + 1)]
    }

    /// The beginning of the URIs of its files alone; `None` if the server lists the files, or if the skill
    /// lies beside everything else of its scheme, as `docs://SKILL.md`.
    fn own_folder(&self) -> Option<&str> {
        if !files(&self.entry).is_empty() {
            return None;
        }
        let folder = self.folder();
        let (_, path) = folder.split_once(':')?;
        let is_own = path.chars().any(|c| c != '/') && folder.ends_with('/');
        is_own.then_some(folder)
    }

    /// Whether it is the one of this entry, as far as the digests tell.
    fn is_of(&self, entry: &Skill) -> bool {
        match (manifest(&self.entry), manifest(entry)) {
            (Some(own), Some(other)) => own == other,
            _ => false,
        }
    }
}

/// The files that an entry lists.
fn files(entry: &Skill) -> &[SkillResource] {
    match &entry.resources {
        SkillResources::Files(files) => files,
        _ => &[],
    }
}

/// What an entry says about its `SKILL.md`.
fn manifest(entry: &Skill) -> Option<&SkillResource> {
    files(entry).iter().find(|file| file.uri == entry.uri)
}

/// Leaves as many files of an entry as a skill may have, and that of its `SKILL.md`, whose digest counts.
fn cut_files(entry: &mut Skill) {
    let SkillResources::Files(files) = &mut entry.resources else {
        return;
    };
    let own = files.iter().position(|file| file.uri == entry.uri);
    if let Some(own) = own.filter(|own| *own >= MAX_SKILL_FILES) {
        files.swap(own, MAX_SKILL_FILES - 1);
    }
    files.truncate(MAX_SKILL_FILES);
}

/// Why a skill has no text.
struct Unusable {
    reason: String,
    /// The server did not answer, so that nothing speaks against the text of before.
    may_be_unchanged: bool,
}

impl From<String> for Unusable {
    fn from(reason: String) -> Self {
        Unusable {
            reason,
            may_be_unchanged: false,
        }
    }
}

fn too_late() -> Unusable {
    Unusable {
        reason: "the texts of the server's skills took too long".into(),
        may_be_unchanged: true,
    }
}

impl Connection {
    /// The skills of the server, with the texts that were read before where they are the same, and why others
    /// are left out; `None` if the list cannot be read.
    pub(super) async fn skills(
        &self,
        before: &[ServerSkill],
    ) -> Option<(Vec<ServerSkill>, Vec<String>)> {
        let mut entries: Vec<Skill> = self.entries(Kind::Skills).await?;
        let mut skipped = Vec::new();
        if entries.len() > MAX_SKILLS {
            skipped.push(format!(
                "the server has {} skills, {MAX_SKILLS} of them are used",
                entries.len()
            ));
            entries.truncate(MAX_SKILLS);
        }
        for entry in &mut entries {
            cut_files(entry);
        }
        // Of all texts together, or a slow server would keep the lists of the others waiting.
        let deadline = Instant::now() + self.limits.list;
        let reading =
            stream::iter(entries).map(|entry| self.skill_with_text(entry, before, deadline));
        let read: Vec<Result<ServerSkill, String>> = reading.buffered(READ_AT_ONCE).collect().await;
        let mut skills = Vec::with_capacity(read.len());
        for skill in read {
            match skill {
                Ok(skill) => skills.push(skill),
                Err(reason) => skipped.push(reason),
            }
        }
        Some((skills, skipped))
    }

    /// A skill, or why it is left out.
    async fn skill_with_text(
        &self,
        entry: Skill,
        before: &[ServerSkill],
        deadline: Instant,
    ) -> Result<ServerSkill, String> {
        if let Some(known) = before.iter().find(|known| known.is_of(&entry)) {
            let text = Arc::clone(&known.text);
            return Ok(ServerSkill {
                entry,
                text,
                is_stale: false,
            });
        }
        let unusable = match self.skill_text(&entry, deadline).await {
            Ok(text) => {
                return Ok(ServerSkill {
                    entry,
                    text,
                    is_stale: false,
                });
            }
            Err(unusable) => unusable,
        };
        let uri = excerpt(&entry.uri, URI_CHARS);
        let (server, reason) = (&self.server, unusable.reason);
        // What the server says of it now is not taken with a text of before.
        let known = before.iter().find(|known| known.entry.uri == entry.uri);
        if let Some(known) = known.filter(|_| unusable.may_be_unchanged) {
            tracing::warn!(%server, uri, reason, "a skill cannot be read; the one before stays");
            return Ok(ServerSkill {
                is_stale: true,
                ..known.clone()
            });
        }
        Err(format!("skill {uri}: {reason}"))
    }

    /// The `SKILL.md` of an entry, as long as it is what the entry says.
    async fn skill_text(&self, entry: &Skill, deadline: Instant) -> Result<Arc<str>, Unusable> {
        let uri = entry.uri.as_str();
        // A request that is made after the time would only be cancelled.
        if Instant::now() >= deadline {
            return Err(too_late());
        }
        let asked = self
            .peer
            .read_resource_once(ReadResourceRequestParams::new(uri));
        let read = timeout_at(deadline, self.in_time(asked)).await;
        let read = read.map_err(|_| too_late())?.map_err(|error| Unusable {
            may_be_unchanged: !matches!(error, CallError::Refused { .. }),
            reason: error.to_string(),
        })?;
        let ReadResourceResponse::Complete(read) = read else {
            return Err("it needs input before it can be read".to_owned().into());
        };
        let mut texts = read
            .contents
            .into_iter()
            .filter_map(|contents| match contents {
                ResourceContents::TextResourceContents { text, .. } => Some(text),
                _ => None,
            });
        let text = texts.next().ok_or_else(|| "it is no text".to_owned())?;
        if text.len() > MAX_SKILL_BYTES {
            let bytes = text.len();
            return Err(format!("it has {bytes} bytes, {MAX_SKILL_BYTES} are allowed").into());
        }
        if let Some(manifest) = manifest(entry) {
            let verified = manifest.verify(text.as_bytes());
            verified.map_err(|error| error.to_string())?;
        }
        Ok(text.into())
    }

    /// What the server says about one skill, which its list need not have.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn skill(&self, uri: &str) -> Result<GetSkillResult, CallError> {
        let asked = self.peer.get_skill(GetSkillRequestParams::new(uri));
        self.in_time(asked).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn skill(uri: &str, resources: Value) -> ServerSkill {
        let entry = json!({
            "uri": uri, "frontmatter": { "name": "a", "description": "b" }, "resources": resources,
        });
        ServerSkill {
            entry: serde_json::from_value(entry).unwrap(),
            text: "".into(),
            is_stale: false,
        }
    }

    fn file(uri: &str) -> Value {
        let digest = format!("sha256:{}", "0".repeat(64));
        json!({ "uri": uri, "digest": digest, "size": 1, "mimeType": "text/plain" })
    }

    #[test]
    fn a_skill_has_its_listed_files_or_else_its_folder() {
        let dynamic = || json!("dynamic");
        for (uri, resources, file, expected) in [
            ("skill://a/SKILL.md", dynamic(), "skill://a/b/c.md", true),
            ("skill://a/SKILL.md", dynamic(), "skill://b/c.md", false),
            ("docs://SKILL.md", dynamic(), "docs://c.md", false),
            ("docs://SKILL.md", dynamic(), "docs://SKILL.md", true),
            ("file:///SKILL.md", dynamic(), "file:///etc/c.md", false),
            ("skill:SKILL.md", dynamic(), "skill:SKILL.md.bak", false),
            (
                "skill://a/SKILL.md",
                json!([file("skill://a/c.md")]),
                "skill://a/c.md",
                true,
            ),
            (
                "skill://a/SKILL.md",
                json!([file("skill://a/c.md")]),
                "skill://a/d.md",
                false,
            ),
        ] {
            let skills = [skill(uri, resources)];
            assert_eq!(skills[0].has_file(file), expected, "{uri} {file}");
            let all = SkillFiles::of(&skills);
            assert_eq!(all.contains(file), expected, "{uri} {file}");
        }
    }

    #[test]
    fn of_many_files_that_of_the_text_stays() {
        let mut files: Vec<Value> = (0..1_000)
            .map(|number| file(&format!("skill://a/{number}")))
            .collect();
        files.push(file("skill://a/SKILL.md"));
        let mut entry = skill("skill://a/SKILL.md", files.into()).entry;
        cut_files(&mut entry);
        assert!(manifest(&entry).is_some());
        assert_eq!(super::files(&entry).len(), MAX_SKILL_FILES);
    }
}
