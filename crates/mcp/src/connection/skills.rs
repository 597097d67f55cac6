//! The skills of a server (`io.modelcontextprotocol/skills`): folders with instructions, each file of which is
//! a resource.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use rmcp::model::{
    GetSkillRequestParams, GetSkillResult, ReadResourceRequestParams, ReadResourceResponse,
    ResourceContents, Skill, SkillResource, SkillResources,
};
use toolscout_index::formats::MAX_SKILL_BYTES;

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
}

impl ServerSkill {
    /// Whether this URI is of one of its files.
    pub fn has_file(&self, uri: &str) -> bool {
        let listed = files(&self.entry).iter().any(|file| file.uri == uri);
        listed || uri.starts_with(self.folder())
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

impl Connection {
    /// The skills of the server, with the texts that were read before where they are the same; `None` if
    /// the list cannot be read.
    pub(super) async fn skills(&self, before: &[ServerSkill]) -> Option<Vec<ServerSkill>> {
        let mut entries: Vec<Skill> = self.entries(Kind::Skills).await?;
        if entries.len() > MAX_SKILLS {
            tracing::warn!(
                server = %self.server,
                skills = entries.len(),
                "an MCP server has too many skills; {MAX_SKILLS} of them are used"
            );
            entries.truncate(MAX_SKILLS);
        }
        let reading = stream::iter(entries).map(|entry| self.skill_with_text(entry, before));
        let skills: Vec<Option<ServerSkill>> = reading.buffered(READ_AT_ONCE).collect().await;
        Some(skills.into_iter().flatten().collect())
    }

    async fn skill_with_text(&self, entry: Skill, before: &[ServerSkill]) -> Option<ServerSkill> {
        if let Some(known) = before.iter().find(|known| known.is_of(&entry)) {
            let text = Arc::clone(&known.text);
            return Some(ServerSkill { entry, text });
        }
        match self.skill_text(&entry).await {
            Ok(text) => Some(ServerSkill { entry, text }),
            Err(reason) => {
                let uri = excerpt(&entry.uri, URI_CHARS);
                tracing::warn!(server = %self.server, uri, reason, "a skill is left out");
                None
            }
        }
    }

    /// The `SKILL.md` of an entry, as long as it is what the entry says.
    async fn skill_text(&self, entry: &Skill) -> Result<Arc<str>, String> {
        let uri = entry.uri.as_str();
        let asked = self
            .peer
            .read_resource_once(ReadResourceRequestParams::new(uri));
        let read = self
            .in_time(asked)
            .await
            .map_err(|error| error.to_string())?;
        let ReadResourceResponse::Complete(read) = read else {
            return Err("it needs input before it can be read".into());
        };
        let mut texts = read
            .contents
            .into_iter()
            .filter_map(|contents| match contents {
                ResourceContents::TextResourceContents { text, .. } => Some(text),
                _ => None,
            });
        let text = texts.next().ok_or("it is no text")?;
        if text.len() > MAX_SKILL_BYTES {
            let bytes = text.len();
            return Err(format!(
                "it has {bytes} bytes, {MAX_SKILL_BYTES} are allowed"
            ));
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
