//! Tools, skills and agents from files, folders, URLs and stdin.

mod skills;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use toolscout_index::formats::{
    self, Format, KnownServers, OtherFiles, ReadOptions, SKILL_FILE, SkillFolder, Skipped, Warning,
};
use toolscout_index::{Error, Tool, ToolId};

use super::calling::Service;
use super::exit::error_message;
use crate::config::Fetch;
use crate::printable;
use crate::regular_file::{self, bounded};

/// Largest file or stream accepted, in bytes. The largest public set has 19,000 tools in 40 MB.
const MAX_BYTES: u64 = 1 << 30;
/// Largest document about one thing, in bytes.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;
/// Extensions of the files that are read from a folder.
const EXTENSIONS: [&str; 5] = ["json", "jsonl", "ndjson", "yaml", "yml"];
/// Most redirects followed for a URL.
const MAX_REDIRECTS: usize = 5;

/// The tools of every input, in order.
#[derive(Debug, Default)]
pub struct Batch {
    /// The tools, each id once.
    pub tools: Vec<Tool>,
    /// The inputs.
    pub sources: Vec<Source>,
    /// The invalid items.
    pub rejected: Vec<Rejected>,
    /// What of the valid tools is left out or will not work.
    pub warnings: Vec<Warning>,
    /// What calls of operations need, by server.
    pub services: Vec<Service>,
    /// The inputs that are one page of several.
    pub parts: Vec<String>,
}

/// One file, URL or stream.
#[derive(Debug, Serialize)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The format that was detected.
    pub format: Format,
    /// Number of its tools.
    pub tools: usize,
}

/// An invalid item, or an input that cannot be read.
#[derive(Debug, Serialize)]
pub struct Rejected {
    /// The file, URL or stream.
    pub source: String,
    /// 1-based position among the input's tools; `None` for the whole input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// 1-based line, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The tool's name, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Why it was rejected.
    pub error: String,
}

/// Options for reading input.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The server of every tool, whatever the input names.
    pub server: Option<String>,
    /// OpenAPI: only operations with one of these tags.
    pub include_tags: Vec<String>,
    /// OpenAPI: no operation with one of these tags.
    pub exclude_tags: Vec<String>,
    /// OpenAPI: only these paths.
    pub include_paths: Vec<String>,
    /// OpenAPI: none of these paths.
    pub exclude_paths: Vec<String>,
    /// OpenAPI: also read the files beside the document that it refers to.
    pub follow_refs: bool,
    /// Which servers the catalog has tools of.
    pub known_servers: KnownServers,
}

impl Reading {
    /// Reads every input. Items and inputs that cannot be read go to [`Batch::rejected`]; the
    /// caller decides whether they are an error.
    ///
    /// # Errors
    /// A folder that cannot be listed or has no files to read.
    pub fn read(&self, inputs: &[String], fetch: &Fetch) -> Result<Batch> {
        let mut batch = Batch::default();
        let mut origins = HashMap::new();
        for location in expand(inputs)? {
            match self.read_one(&location, fetch) {
                Ok(parsed) => {
                    let is_named = self.server.is_some();
                    batch.add(&location, parsed, &mut origins, is_named);
                }
                Err(error) => batch.rejected.push(Rejected::input(&location, &error)),
            }
        }
        Ok(batch)
    }

    fn read_one(&self, location: &Location, fetch: &Fetch) -> Result<formats::Parsed> {
        let bytes = location.bytes(fetch, MAX_BYTES)?;
        self.parse(location, bytes, fetch)
    }

    fn parse(&self, location: &Location, bytes: Vec<u8>, fetch: &Fetch) -> Result<formats::Parsed> {
        let other_files = match self.follow_refs {
            true => location.files_beside(fetch),
            false => OtherFiles::default(),
        };
        let options = ReadOptions {
            source_name: location.to_string(),
            server: self.server.clone(),
            default_server: location.default_server(),
            include_tags: self.include_tags.clone(),
            exclude_tags: self.exclude_tags.clone(),
            include_paths: self.include_paths.clone(),
            exclude_paths: self.exclude_paths.clone(),
            other_files,
            known_servers: self.known_servers.clone(),
        };
        let parsed = match location.skill_folder() {
            Some(folder) => formats::parse_skill(&bytes, &folder, &options)?,
            None => formats::parse_owned(bytes, &options)?,
        };
        // An input whose items are all invalid is not empty: each of them has its own error.
        if parsed.tools.is_empty() && parsed.skipped.is_empty() {
            let reason = parsed.without_tools();
            bail!(
                "{location}: {}",
                reason.as_deref().unwrap_or("there are no tools in it")
            );
        }
        Ok(parsed)
    }
}

impl Batch {
    /// Adds the tools of one input. `origins` maps each id to the place of its source.
    fn add(
        &mut self,
        location: &Location,
        parsed: formats::Parsed,
        origins: &mut HashMap<ToolId, usize>,
        is_named: bool,
    ) {
        let source = self.sources.len();
        self.sources.push(Source {
            name: location.to_string(),
            format: parsed.format,
            tools: parsed.tools.len(),
        });
        if parsed.format == Format::OpenApi {
            self.services
                .extend(Service::of_tools(&parsed.tools, is_named));
        }
        if parsed.is_part {
            self.parts.push(location.to_string());
        }
        self.warnings.extend(parsed.warnings);
        for skipped in parsed.skipped {
            self.rejected.push(Rejected::item(location, skipped));
        }
        let mut tools = parsed.tools;
        // Of two tools with one id the first counts, and the other is reported with where that is.
        tools.retain(|tool| match origins.get(&tool.id) {
            None => {
                origins.insert(tool.id.clone(), source);
                true
            }
            Some(&first) => {
                let first = &self.sources[first].name;
                let rejected = Rejected::duplicate(location, tool, first);
                self.rejected.push(rejected);
                false
            }
        });
        // One large file is the most common input, and its list need not be copied.
        if self.tools.is_empty() {
            self.tools = tools;
        } else {
            self.tools.append(&mut tools);
        }
    }

    /// The inputs that could not be read at all.
    pub fn unread(&self) -> impl Iterator<Item = &Rejected> {
        self.rejected.iter().filter(|item| item.is_input())
    }

    /// Why nothing could be read at all.
    pub fn whole_input_rejected(&self) -> Option<&Rejected> {
        if !self.tools.is_empty() {
            return None;
        }
        self.unread().next()
    }
}

impl Rejected {
    /// True for an input that could not be read at all.
    pub fn is_input(&self) -> bool {
        self.position.is_none() && self.name.is_none()
    }

    fn item(location: &Location, skipped: Skipped) -> Self {
        let error = match skipped.error {
            // A tool without a name is called by its position, which is printed already.
            Error::InvalidTool { tool, reason } if tool.starts_with("item ") => reason,
            error => error.to_string(),
        };
        Rejected {
            source: location.to_string(),
            position: Some(skipped.index),
            line: skipped.line,
            name: skipped.name,
            error,
        }
    }

    fn duplicate(location: &Location, tool: &Tool, first: &str) -> Self {
        let error = format!(
            "tool id {} is also in {first}; ids must be unique, rename one or give each file its own --server",
            tool.id
        );
        let name = Some(tool.id.name().to_owned());
        Rejected {
            source: location.to_string(),
            position: None,
            line: None,
            name,
            error,
        }
    }

    fn input(location: &Location, error: &anyhow::Error) -> Self {
        let error = error_message(error);
        Rejected {
            source: location.to_string(),
            position: None,
            line: None,
            name: None,
            error,
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Errors of the parser begin with the name of the input, line and column already.
        if !self.error.starts_with(&self.source) {
            f.write_str(&self.source)?;
            match (self.line, self.position) {
                (Some(line), _) => write!(f, ":{line}: ")?,
                (None, Some(position)) => write!(f, ", item {position}: ")?,
                (None, None) => f.write_str(": ")?,
            }
        }
        f.write_str(&printable::line(&self.error))
    }
}

/// A file, URL or stream to read.
#[derive(Debug)]
enum Location {
    Stdin,
    Url(String),
    File(PathBuf),
    /// A file found in a folder; its name is the server of its tools, unless it is a skill.
    Member(PathBuf),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Stdin => f.write_str("stdin"),
            Location::Url(url) => f.write_str(url),
            Location::File(path) | Location::Member(path) => path.display().fmt(f),
        }
    }
}

impl Location {
    fn parse(argument: &str) -> Location {
        match argument {
            "-" => Location::Stdin,
            _ if argument.starts_with("http://") || argument.starts_with("https://") => {
                Location::Url(argument.into())
            }
            _ => Location::File(argument.into()),
        }
    }

    /// Reads files beside this one and below its folder, or URLs below the folder of this one.
    fn files_beside(&self, fetch: &Fetch) -> OtherFiles {
        match self {
            Location::Stdin => OtherFiles::default(),
            Location::File(path) | Location::Member(path) => {
                let folder = path.parent().unwrap_or(Path::new("")).to_owned();
                OtherFiles::by(move |name| {
                    file_below(&folder, name).map_err(|error| error_message(&error))
                })
            }
            Location::Url(url) => {
                let (url, fetch) = (url.clone(), *fetch);
                OtherFiles::by(move |name| {
                    url_below(&url, name, &fetch).map_err(|error| error_message(&error))
                })
            }
        }
    }

    /// The folder of the skill that this is; `None` where it is no `SKILL.md`.
    fn skill_folder(&self) -> Option<SkillFolder> {
        match self {
            Location::Stdin => None,
            Location::File(path) | Location::Member(path) => skills::folder_of(path),
            Location::Url(url) => {
                let path = reqwest::Url::parse(url).ok()?.path().to_owned();
                path.ends_with(&format!("/{SKILL_FILE}"))
                    .then(SkillFolder::default)
            }
        }
    }

    fn default_server(&self) -> Option<String> {
        let Location::Member(path) = self else {
            return None;
        };
        Some(path.file_stem()?.to_string_lossy().into_owned())
    }

    /// The content. Errors do not name the location, because [`Rejected`] does.
    fn bytes(&self, fetch: &Fetch, max_bytes: u64) -> Result<Vec<u8>> {
        match self {
            Location::Stdin => bounded(io::stdin().lock(), max_bytes).context("it cannot be read"),
            Location::Url(url) => download(url, fetch, max_bytes).context("it cannot be fetched"),
            Location::File(path) if !path.exists() => bail!("no such file or folder"),
            Location::File(path) | Location::Member(path) => regular_file::open(path)
                .and_then(|file| bounded(file, max_bytes))
                .context("it cannot be read"),
        }
    }
}

/// The bytes of a document at a path, at a URL or, for `-`, on standard input.
pub fn document(argument: &str, fetch: &Fetch) -> Result<Vec<u8>> {
    let location = Location::parse(argument);
    location
        .bytes(fetch, MAX_DOCUMENT_BYTES)
        .with_context(|| location.to_string())
}

/// Replaces folders with the files in them, sorted by name.
fn expand(arguments: &[String]) -> Result<Vec<Location>> {
    let mut locations = Vec::new();
    for argument in arguments {
        match Location::parse(argument) {
            Location::File(folder) if folder.is_dir() => locations.extend(members(&folder)?),
            location => locations.push(location),
        }
    }
    Ok(locations)
}

fn members(folder: &Path) -> Result<Vec<Location>> {
    // The other files of a skill belong to it, whatever their names.
    let own_skill = folder.join(SKILL_FILE);
    if own_skill.is_file() {
        return Ok(vec![Location::Member(own_skill)]);
    }
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let skill = path.join(SKILL_FILE);
        if path.is_file() && has_known_extension(&path) {
            files.push(path);
        } else if skill.is_file() {
            files.push(skill);
        }
    }
    // The system lists files in any order, and of two tools with one id the first is kept.
    files.sort();
    if files.is_empty() {
        bail!(
            "no file in {} ends in {}, and no folder in it has a {SKILL_FILE}",
            folder.display(),
            EXTENSIONS
                .map(|extension| format!(".{extension}"))
                .join(", ")
        );
    }
    Ok(files.into_iter().map(Location::Member).collect())
}

fn has_known_extension(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    EXTENSIONS
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

/// The content of a file in this folder or below it, links in it followed.
fn file_below(folder: &Path, name: &str) -> Result<Vec<u8>> {
    // The parent of a bare file name is empty, which is no path to the system.
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let path = folder.join(name);
    let real = path.canonicalize()?;
    if !real.starts_with(folder.canonicalize()?) {
        bail!("it is a link to a file outside the folder of the document");
    }
    Ok(bounded(regular_file::open(&real)?, MAX_DOCUMENT_BYTES)?)
}

/// The content below the folder of a document's URL.
fn url_below(document: &str, name: &str, fetch: &Fetch) -> Result<Vec<u8>> {
    let document = reqwest::Url::parse(document)?;
    let url = document.join(name)?;
    let folder = document.join(".")?;
    // A name in a document may be absolute or begin with `..`.
    if url.origin() != folder.origin() || !url.path().starts_with(folder.path()) {
        bail!("its URL is not below that of the document");
    }
    download(url.as_str(), fetch, MAX_DOCUMENT_BYTES)
}

fn download(url: &str, fetch: &Fetch, max_bytes: u64) -> Result<Vec<u8>> {
    let client = crate::tls::blocking_client()
        .timeout(fetch.timeout())
        .redirect(reqwest::redirect::Policy::limited(MAX_REDIRECTS))
        .user_agent(concat!("toolscout/", env!("CARGO_PKG_VERSION")))
        .build()?;
    // The URL may have a key in it, and the caller names it already.
    let response = client
        .get(url)
        .send()
        .map_err(reqwest::Error::without_url)?;
    if !response.status().is_success() {
        bail!("the server responded with {}", response.status());
    }
    bounded(response, fetch.max_bytes().min(max_bytes))
        .context("read the response; fetch.max_mb and fetch.timeout_s limit it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FETCH: Fetch = Fetch {
        timeout_s: 1,
        max_mb: 1,
    };

    #[test]
    fn files_of_a_folder_are_sorted_and_name_servers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.JSON", "notes.md"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let locations = expand(&[
            folder.path().display().to_string(),
            "-".into(),
            "one.json".into(),
        ])
        .unwrap();
        let servers: Vec<_> = locations.iter().map(Location::default_server).collect();
        assert_eq!(servers, [Some("a".into()), Some("b".into()), None, None]);
    }

    #[test]
    fn a_folder_without_tools_is_an_error_that_lists_the_extensions() {
        let folder = tempfile::tempdir().unwrap();
        let message = expand(&[folder.path().display().to_string()])
            .unwrap_err()
            .to_string();
        assert!(message.contains(".jsonl"), "{message}");
    }

    #[test]
    fn the_position_of_an_unnamed_item_is_printed_once() {
        let input = br#"[{"name":"a"},{"description":"x"}]"#.to_vec();
        let reading = Reading::default();
        let location = Location::File("mix.json".into());
        let fetch = FETCH;
        let parsed = reading.parse(&location, input, &fetch).unwrap();
        let mut batch = Batch::default();
        batch.add(&location, parsed, &mut HashMap::new(), false);
        let message = batch.rejected[0].to_string();
        assert!(
            message.starts_with("mix.json, item 2: it has no name"),
            "{message}"
        );
    }

    #[test]
    fn a_configuration_without_servers_is_named_as_one() {
        let config = br#"{"mcpServers":{}}"#.to_vec();
        let error = Reading::default()
            .parse(&Location::File("mcp.json".into()), config, &FETCH)
            .unwrap_err();
        assert!(error.to_string().contains("names no servers"), "{error}");
    }

    #[test]
    fn a_stream_over_its_limit_is_an_error() {
        assert_eq!(bounded(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(bounded(&b"abcd"[..], 3).is_err());
    }
}
