//! Skills: instructions in Markdown files, found by the same search as tools. Calling a skill
//! returns its text.
//!
//! A file begins with YAML front matter, the format of other agents too:
//! ```text
//! ---
//! name: weekly-report
//! description: How to write the weekly report, with its sources and tone
//! ---
//! # Weekly report
//! ...
//! ```
//! A folder of skills contains such files, `*.md`, or one folder per skill with a `SKILL.md`.
//! Fields other than `name` and `description` are ignored.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;
use toolscout_index::{Catalog, Tool, ToolId};

use toolscout_base::printable::counted;
use toolscout_base::regular_file;
use toolscout_gate::tools::{Arguments, Callable, ToolFailure, Toolset};

/// The server name of skills in a catalog.
pub const SERVER: &str = "skills";
/// The file name of a skill with its own folder.
const FOLDER_FILE: &str = "SKILL.md";
/// Longest skill in bytes, far more than a model should read at once.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of skills in a folder.
const MAX_SKILLS: usize = 10_000;
/// The line before and after the front matter.
const FENCE: &str = "---";

/// The skills of a folder.
#[derive(Clone, Debug, Default)]
pub struct Skills {
    by_id: BTreeMap<ToolId, Skill>,
}

#[derive(Clone, Debug)]
struct Skill {
    tool: Tool,
    body: Arc<str>,
    path: PathBuf,
}

/// Why a folder of skills cannot be used. Every message names the file, and the line if there is
/// one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillError {
    /// The folder or a file cannot be read.
    #[error("skills: {}: {source}; give a folder of Markdown files", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not a valid skill.
    #[error("{}:{line}: {reason}", path.display())]
    Malformed {
        /// The skill's file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What is wrong, and how to correct it.
        reason: String,
    },
    /// A file is too long.
    #[error("{}: a skill has at most {MAX_BYTES} bytes, this one has {bytes}; move long material to files that tools read", path.display())]
    TooLong {
        /// The skill's file.
        path: PathBuf,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Two files have the same name.
    #[error("{} and {} are both named {name:?}; rename one", first.display(), second.display())]
    Duplicate {
        /// The name that both files give.
        name: String,
        /// The first file.
        first: PathBuf,
        /// The second file.
        second: PathBuf,
    },
    /// A folder has no skills, or too many.
    #[error("{} holds {}, 1 to {MAX_SKILLS} are possible; a skill is a file NAME.md or NAME/{FOLDER_FILE}", path.display(), counted(*count, "skill"))]
    Count {
        /// The folder of skills, from the settings.
        path: PathBuf,
        /// Number of skills.
        count: usize,
    },
}

impl Skills {
    /// Loads all skills of a folder.
    ///
    /// # Errors
    /// [`SkillError`] for the first invalid file, in the order of names.
    pub fn load(folder: &Path) -> Result<Self, SkillError> {
        let files = files_of(folder)?;
        if !(1..=MAX_SKILLS).contains(&files.len()) {
            return Err(SkillError::Count {
                path: folder.to_owned(),
                count: files.len(),
            });
        }
        let mut skills = Skills::default();
        for path in files {
            skills.add(Skill::read(path)?)?;
        }
        Ok(skills)
    }

    /// The skills as tools, by id.
    pub fn tools(&self) -> Vec<Tool> {
        self.by_id
            .values()
            .map(|skill| skill.tool.clone())
            .collect()
    }

    /// Replaces the catalog's tools of the server [`SERVER`] with these skills. If they are up to
    /// date, nothing is written and no lock is taken.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn publish(&self, catalog: &Catalog) -> toolscout_index::Result<()> {
        let searcher = catalog.searcher();
        let mut published = BTreeMap::new();
        // By id first, so that only its own tools are read.
        for id in searcher.ids_after(None) {
            if id.server() == SERVER
                && let Some(tool) = searcher.tool(id)
            {
                published.insert(id.clone(), tool);
            }
        }
        let is_published = |(id, skill): (&ToolId, &Skill)| {
            published.get(id).is_some_and(|tool| **tool == skill.tool)
        };
        if published.len() == self.by_id.len() && self.by_id.iter().all(is_published) {
            return Ok(());
        }
        let mut writer = catalog.writer()?;
        writer.sync(SERVER, &self.tools())?;
        // The skills are found by their words from here on, and by meaning once they are embedded.
        writer.commit()?;
        writer.embed_pending(&mut |_| ControlFlow::Continue(()))?;
        Ok(())
    }

    fn add(&mut self, skill: Skill) -> Result<(), SkillError> {
        let id = skill.tool.id.clone();
        match self.by_id.get(&id) {
            Some(first) => Err(SkillError::Duplicate {
                name: id.name().to_owned(),
                first: first.path.clone(),
                second: skill.path,
            }),
            None => {
                self.by_id.insert(id, skill);
                Ok(())
            }
        }
    }
}

impl Toolset for Skills {
    fn find(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        let skill = self.by_id.get(id)?;
        Some(Arc::new(Text(skill.body.clone())))
    }
}

/// Returns a skill's text.
struct Text(Arc<str>);

#[async_trait]
impl Callable for Text {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(Value::String(self.0.to_string()))
    }
}

/// The fields of the front matter.
#[derive(Deserialize)]
struct FrontMatter {
    name: String,
    description: String,
}

impl Skill {
    fn read(path: PathBuf) -> Result<Self, SkillError> {
        let text = read_text(&path)?;
        let malformed = |line: usize, reason: String| SkillError::Malformed {
            path: path.clone(),
            line,
            reason,
        };
        let (front, body) =
            split(&text).map_err(|(line, reason)| malformed(line, reason.into()))?;
        let matter: FrontMatter = serde_yaml_ng::from_str(front).map_err(|error| {
            // The front matter begins in the second line.
            let line = error.location().map_or(1, |location| location.line() + 1);
            malformed(
                line,
                format!("{error}; the front matter is YAML with `name` and `description`"),
            )
        })?;
        for (field, value) in [("name", &matter.name), ("description", &matter.description)] {
            if value.trim().is_empty() {
                return Err(malformed(
                    line_of(front, field),
                    format!("`{field}` is empty; a skill is found by it"),
                ));
            }
        }
        let tool = tool_of(&matter)
            .map_err(|error| malformed(line_of(front, "name"), error.to_string()))?;
        let body = body.trim().into();
        Ok(Skill { tool, body, path })
    }
}

fn tool_of(matter: &FrontMatter) -> toolscout_index::Result<Tool> {
    let mut tool =
        Tool::new(SERVER, matter.name.trim())?.with_description(matter.description.trim());
    tool.annotations.read_only_hint = Some(true);
    tool.validate()?;
    Ok(tool)
}

fn read_text(path: &Path) -> Result<String, SkillError> {
    let io = |source| SkillError::Io {
        path: path.to_owned(),
        source,
    };
    // Asked before the file is read, since it may have any length.
    let bytes = std::fs::metadata(path).map_err(io)?.len();
    if bytes > MAX_BYTES {
        return Err(SkillError::TooLong {
            path: path.to_owned(),
            bytes,
        });
    }
    regular_file::read_to_string(path).map_err(io)
}

/// Splits the front matter from the text after it.
///
/// # Errors
/// The line of the missing fence, and what is expected there.
fn split(text: &str) -> Result<(&str, &str), (usize, &'static str)> {
    // Editors of Windows begin files with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let first = text.lines().next().unwrap_or_default();
    if first.trim_end() != FENCE {
        return Err((
            1,
            "a skill begins with a line `---` and its front matter: name and description",
        ));
    }
    let front = text[first.len()..]
        .trim_start_matches('\r')
        .strip_prefix('\n')
        .unwrap_or_default();
    let mut at = 0;
    for line in front.split_inclusive('\n') {
        if line.trim_end() == FENCE {
            return Ok((&front[..at], &front[at + line.len()..]));
        }
        at += line.len();
    }
    Err((
        text.lines().count(),
        "the front matter does not end; close it with a line `---`",
    ))
}

/// The 1-based line of the file with a field of the front matter.
fn line_of(front: &str, field: &str) -> usize {
    for (at, line) in front.lines().enumerate() {
        if let Some(rest) = line.strip_prefix(field)
            && rest.trim_start().starts_with(':')
        {
            // The front matter begins in line 2.
            return at + 2;
        }
    }
    1
}

/// The files of a folder's skills, in the order of names.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, SkillError> {
    let io = |source| SkillError::Io {
        path: folder.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let own_folder = path.join(FOLDER_FILE);
        if is_skill_file(&path) {
            files.push(path);
        } else if own_folder.is_file() {
            files.push(own_folder);
        }
    }
    // A folder has no order of its own, and the first invalid file is reported.
    files.sort();
    Ok(files)
}

fn is_skill_file(path: &Path) -> bool {
    let (Some(name), Some(extension)) = (path.file_name(), path.extension()) else {
        return false;
    };
    let is_hidden = name.to_string_lossy().starts_with('.');
    path.is_file() && !is_hidden && extension.eq_ignore_ascii_case("md")
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;
    use toolscout_index::{DataDir, Options, Query};

    use super::*;

    const REPORT: &str = "---\nname: weekly-report\ndescription: How to write the weekly report\nlicence: MIT\n---\n\n# Weekly report\n\nFirst the figures.\n";
    const RELEASE: &str = "\u{feff}---\r\nname: release\r\ndescription: >\r\n  Steps of a release,\r\n  in order\r\n---\r\nTag it.\r\n";

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn message(files: &[(&str, &str)]) -> String {
        Skills::load(folder(files).path()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_skill_is_a_tool_that_returns_its_text() {
        let folder = folder(&[
            ("report.md", REPORT),
            ("release/SKILL.md", RELEASE),
            ("notes.txt", "no skill"),
            ("empty/x", ""),
        ]);
        let skills = Skills::load(folder.path()).unwrap();
        let tools = skills.tools();
        let shown: Vec<(&str, &str)> = tools
            .iter()
            .map(|tool| (tool.id.as_str(), tool.description.as_str()))
            .collect();
        let expected = [
            ("skills/release", "Steps of a release, in order"),
            ("skills/weekly-report", "How to write the weekly report"),
        ];
        assert_eq!(shown, expected);
        assert!(
            tools
                .iter()
                .all(|tool| tool.annotations.read_only_hint == Some(true))
        );
        let texts = [
            (
                "skills/weekly-report",
                "# Weekly report\n\nFirst the figures.",
            ),
            ("skills/release", "Tag it."),
        ];
        for (id, text) in texts {
            let skill = skills.find(&ToolId::parse(id).unwrap()).unwrap();
            assert_eq!(skill.call(Arguments::new()).await, Ok(text.into()));
        }
        assert!(
            skills
                .find(&ToolId::parse("skills/other").unwrap())
                .is_none()
        );
    }

    #[test]
    fn invalid_front_matter_is_reported_with_file_and_line() {
        for (text, expected) in [
            (
                "# Just Markdown\n",
                "a.md:1: a skill begins with a line `---`",
            ),
            ("", "a.md:1: a skill begins"),
            (
                "---\nname: x\ndescription: y\n",
                "a.md:3: the front matter does not end",
            ),
            ("---\nname: x\n---\nbody", "missing field `description`"),
            ("---\nname: x\ndescription: [a, b]\n---\n", "a.md:3: "),
            ("---\nname: x\ndescription: y\n  z: : 1\n---\n", "a.md:4: "),
            (
                "---\nname: x\ndescription: \"  \"\n---\n",
                "a.md:3: `description` is empty",
            ),
            ("---\ndescription: y\nname: \"a\\tb\"\n---\n", "a.md:3: "),
        ] {
            let message = message(&[("a.md", text)]);
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }

    #[test]
    fn empty_folders_duplicates_and_long_files_are_reported() {
        assert!(message(&[("a.txt", "x")]).contains("holds 0 skills"));
        let twice = message(&[("a.md", REPORT), ("b/SKILL.md", REPORT)]);
        assert!(
            twice.contains("a.md and ") && twice.contains("are both named \"weekly-report\""),
            "{twice}"
        );
        let long = format!("{REPORT}{}", "x".repeat(MAX_BYTES as usize));
        assert!(message(&[("a.md", &long)]).contains("at most 1048576 bytes"));
        let missing = Skills::load(Path::new("no/such/folder"))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("no/such/folder"), "{missing}");
    }

    #[test]
    fn published_skills_are_found_with_tools_and_follow_their_folder() {
        let data = tempfile::tempdir().unwrap();
        let catalog = DataDir::new(data.path())
            .open_or_create("c", Options::default())
            .unwrap();
        let mut writer = catalog.writer().unwrap();
        writer
            .upsert(&[Tool::new("mail", "send")
                .unwrap()
                .with_description("Sends a mail")])
            .unwrap();
        writer.commit().unwrap();
        drop(writer);
        let folder = folder(&[("report.md", REPORT), ("release.md", RELEASE)]);
        Skills::load(folder.path())
            .unwrap()
            .publish(&catalog)
            .unwrap();
        let first = |query: &str| {
            catalog.searcher().search(&Query::new(query)).unwrap().hits[0]
                .tool
                .id
                .to_string()
        };
        assert_eq!(
            (first("write the weekly report"), first("send a mail")),
            ("skills/weekly-report".into(), "mail/send".into())
        );

        let generation = catalog.searcher().generation();
        Skills::load(folder.path())
            .unwrap()
            .publish(&catalog)
            .unwrap();
        assert_eq!(
            catalog.searcher().generation(),
            generation,
            "nothing changed, so nothing is written"
        );
        std::fs::remove_file(folder.path().join("report.md")).unwrap();
        Skills::load(folder.path())
            .unwrap()
            .publish(&catalog)
            .unwrap();
        let left: Vec<String> = catalog
            .searcher()
            .tools()
            .map(|tool| tool.id.to_string())
            .collect();
        assert_eq!(left, ["mail/send", "skills/release"]);
    }
}
