//! Skills: a folder with instructions in `SKILL.md`, whose front matter has the name and the description.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Format, Parsed, ReadOptions, Warning};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::tool::Tool;

/// The name of the file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";
/// Longest `SKILL.md`, in bytes: a model reads it whole.
pub const MAX_SKILL_BYTES: usize = 256 << 10;
/// Most files of a skill's folder that are listed.
pub const MAX_SKILL_FILES: usize = 256;
/// The line before and after the front matter.
const FENCE: &str = "---";
/// The key of a skill's metadata that holds the text after the front matter.
pub const BODY: &str = "body";
/// The key of a skill's metadata that holds the names of the other files in its folder.
pub const FILES: &str = "files";
/// The key of a skill's metadata that holds the path of its folder.
pub const FOLDER: &str = "folder";

/// What lies around a `SKILL.md`.
#[derive(Clone, Debug, Default)]
pub struct SkillFolder {
    /// The path of the folder, if others can use it.
    pub path: Option<String>,
    /// The other files in it and below it, relative to it and with `/` between the parts. `None` if they
    /// are not known.
    pub files: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct FrontMatter {
    name: String,
    description: String,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// Reads a `SKILL.md`.
///
/// A link to a file that the folder does not have is a warning.
///
/// # Errors
/// [`Error::Parse`] with the line, if the text is too long, is not UTF-8, or has no front matter with `name`
/// and `description`.
pub fn parse_skill(bytes: &[u8], folder: &SkillFolder, options: &ReadOptions) -> Result<Parsed> {
    let file = SkillFile {
        source_name: &options.source_name,
    };
    let text = file.text(bytes)?;
    let (front, body, body_line) = file.split(text)?;
    let matter = file.front_matter(front)?;
    let server = options.server.as_deref().unwrap_or_default();
    let name = Kind::Skill.item_name(matter.name.trim());
    let skill = Tool::new(server, &name).and_then(|skill| {
        let mut skill = skill.of_kind(Kind::Skill);
        skill.description = matter.description.trim().to_owned();
        skill.annotations.read_only_hint = Some(true);
        skill.metadata = metadata(matter, body, folder);
        skill.validate()?;
        Ok(skill)
    });
    let skill = skill.map_err(|error| file.error(line_of(front, "name"), error.to_string()))?;
    let warnings = missing_files(&skill, body, body_line, folder);
    Ok(Parsed {
        format: Format::Skill,
        tools: vec![skill],
        skipped: Vec::new(),
        warnings,
        servers_to_connect: None,
        is_part: false,
    })
}

fn metadata(matter: FrontMatter, body: &str, folder: &SkillFolder) -> Map<String, Value> {
    let mut metadata = matter.others;
    metadata.insert(BODY.to_owned(), body.trim().into());
    if let Some(path) = &folder.path {
        metadata.insert(FOLDER.to_owned(), path.as_str().into());
    }
    let files = folder.files.as_deref().unwrap_or_default();
    if !files.is_empty() {
        let listed = &files[..files.len().min(MAX_SKILL_FILES)];
        metadata.insert(FILES.to_owned(), listed.to_vec().into());
    }
    metadata
}

/// Warnings of links in the text to files that the folder does not have.
fn missing_files(skill: &Tool, body: &str, body_line: usize, folder: &SkillFolder) -> Vec<Warning> {
    let mut warnings = Vec::new();
    // Of a folder with more files not all names are known.
    let Some(files) = &folder.files else {
        return warnings;
    };
    if files.len() > MAX_SKILL_FILES {
        return warnings;
    }
    for (number, line) in body.lines().enumerate() {
        for target in relative_links(line) {
            if files.iter().any(|file| file == target) || warnings.len() == super::MAX_WARNINGS {
                continue;
            }
            let line = body_line + number;
            warnings.push(Warning {
                tool: skill.id.clone(),
                reason: format!("line {line} refers to {target:?}, which is not in its folder"),
            });
        }
    }
    warnings
}

/// The targets of a line's Markdown links that are files beside the text.
fn relative_links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1);
    targets.filter_map(|rest| {
        let target = rest.split([')', ' ', '#']).next()?;
        let target = target.strip_prefix("./").unwrap_or(target);
        let is_file = !target.is_empty()
            && !target.contains(':')
            && !target.starts_with(['/', '<'])
            && !target.ends_with('/')
            && !target.split('/').any(|part| part == "..");
        is_file.then_some(target)
    })
}

/// One `SKILL.md`, for its errors.
struct SkillFile<'a> {
    source_name: &'a str,
}

impl SkillFile<'_> {
    fn text<'t>(&self, bytes: &'t [u8]) -> Result<&'t str> {
        if bytes.len() > MAX_SKILL_BYTES {
            let reason = format!(
                "a skill has at most {MAX_SKILL_BYTES} bytes, this one has {}; move long material to other files of its \
                 folder",
                bytes.len()
            );
            return Err(self.error(1, reason));
        }
        match str::from_utf8(bytes) {
            // Editors of Windows begin files with a byte order mark.
            Ok(text) => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
            Err(error) => {
                let before = &bytes[..error.valid_up_to()];
                let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
                Err(self.error(line, "it is not UTF-8; save it as UTF-8".to_owned()))
            }
        }
    }

    /// The front matter, the text after it, and the line where that begins.
    fn split<'t>(&self, text: &'t str) -> Result<(&'t str, &'t str, usize)> {
        let mut lines = text.split_inclusive('\n');
        let first = lines.next().unwrap_or_default();
        if first.trim_end() != FENCE {
            let reason =
                "a skill begins with a line `---` and its front matter: `name` and `description`";
            return Err(self.error(1, reason.to_owned()));
        }
        let front = &text[first.len()..];
        let mut at = 0;
        for (number, line) in lines.enumerate() {
            if line.trim_end() == FENCE {
                // The front matter begins in line 2.
                return Ok((&front[..at], &front[at + line.len()..], number + 3));
            }
            at += line.len();
        }
        let reason = "the front matter does not end; close it with a line `---`";
        Err(self.error(text.lines().count(), reason.to_owned()))
    }

    fn front_matter(&self, front: &str) -> Result<FrontMatter> {
        let matter: FrontMatter = serde_yaml_ng::from_str(front).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line() + 1);
            let reason = format!("{error}; the front matter is YAML with `name` and `description`");
            self.error(line, reason)
        })?;
        for (field, value) in [("name", &matter.name), ("description", &matter.description)] {
            if value.trim().is_empty() {
                let reason = format!("`{field}` is empty; a skill is found by it");
                return Err(self.error(line_of(front, field), reason));
            }
        }
        Ok(matter)
    }

    fn error(&self, line: usize, reason: String) -> Error {
        Error::Parse {
            source_name: self.source_name.to_owned(),
            line: Some(line),
            column: None,
            reason,
        }
    }
}

/// The 1-based line of the file with a field of the front matter.
fn line_of(front: &str, field: &str) -> usize {
    for (at, line) in front.lines().enumerate() {
        let rest = line.strip_prefix(field);
        if rest.is_some_and(|rest| rest.trim_start().starts_with(':')) {
            return at + 2;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, files: &[&str]) -> Result<Parsed> {
        let folder = SkillFolder {
            path: Some("/skills/report".into()),
            files: Some(files.iter().map(|&file| file.to_owned()).collect()),
        };
        let options = ReadOptions {
            source_name: "report/SKILL.md".into(),
            ..ReadOptions::default()
        };
        parse_skill(text.as_bytes(), &folder, &options)
    }

    #[test]
    fn a_skill_has_its_name_description_text_and_files() {
        let text = "\u{feff}---\r\nname: report\r\ndescription: Writes the report\r\nlicense: MIT\r\n---\r\n# Report\r\n\
                    See [the form](./form.md#top), [all](other/) and [more](https://example.com/a.md).\r\n\
                    [gone](refs/gone.md)\r\n";
        let parsed = read(text, &["form.md"]).unwrap();
        let [skill] = parsed.tools.as_slice() else {
            panic!("{parsed:?}")
        };
        assert_eq!(skill.id.as_str(), "skill:report");
        assert_eq!(skill.bare_name(), "report");
        assert_eq!((skill.kind, parsed.format), (Kind::Skill, Format::Skill));
        assert_eq!(skill.description, "Writes the report");
        assert_eq!(skill.metadata["license"], "MIT");
        assert_eq!(skill.metadata[FILES], serde_json::json!(["form.md"]));
        assert!(
            skill.metadata[BODY]
                .as_str()
                .unwrap()
                .starts_with("# Report")
        );
        let [warning] = parsed.warnings.as_slice() else {
            panic!("{:?}", parsed.warnings)
        };
        assert_eq!(
            warning.to_string(),
            "skill:report: line 8 refers to \"refs/gone.md\", which is not in its folder"
        );
    }

    #[test]
    fn broken_front_matter_is_named_with_file_and_line() {
        let long = format!(
            "---\nname: a\ndescription: b\n---\n{}",
            "x".repeat(MAX_SKILL_BYTES)
        );
        for (text, line, reason) in [
            ("# Report\n", 1, "begins with a line `---`"),
            ("---\nname: a\n", 2, "does not end"),
            ("---\nname: a\n---\n", 1, "description"),
            ("---\nname: a\ndescription: [\n---\n", 3, "YAML"),
            (
                "---\nname: a\ndescription: ''\n---\n",
                3,
                "`description` is empty",
            ),
            (
                "---\ndescription: b\nname: ' '\n---\n",
                3,
                "`name` is empty",
            ),
            (&long, 1, "at most"),
        ] {
            let error = read(text, &[]).unwrap_err();
            let Error::Parse { line: of, .. } = &error else {
                panic!("{error}")
            };
            let message = error.to_string();
            assert!(message.starts_with("report/SKILL.md"), "{message}");
            assert!(message.contains(reason), "{message}");
            assert!(of.is_some_and(|of| of.abs_diff(line) <= 1), "{message}");
        }
    }
}
