//! Tools from files, folders, URLs and stdin.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use toolscout_index::formats::{self, Format, ReadOptions, Skipped};
use toolscout_index::{Tool, ToolId};

use crate::config::Fetch;
use crate::printable;

/// Largest file or stream that is read. The largest public set of tools has 19 thousand in 40 MB.
const MAX_BYTES: u64 = 1 << 30;
/// Endings of files that are taken from a folder.
const ENDINGS: [&str; 5] = ["json", "jsonl", "ndjson", "yaml", "yml"];
/// Redirects followed before a URL is given up.
const MAX_REDIRECTS: usize = 5;

/// Everything that was read, in order.
#[derive(Debug, Default)]
pub struct Batch {
    /// The tools, each id once.
    pub tools: Vec<Tool>,
    /// What each source held.
    pub sources: Vec<Source>,
    /// What was left out.
    pub rejected: Vec<Rejected>,
}

/// What one file, URL or stream held.
#[derive(Debug, Serialize)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The format that was detected.
    pub format: Format,
    /// Number of its tools.
    pub tools: usize,
}

/// Something that was left out, and why.
#[derive(Debug, Serialize)]
pub struct Rejected {
    /// The file, URL or stream.
    pub source: String,
    /// 1-based position among its tools; `None` for all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// 1-based line, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The tool's name, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is wrong.
    pub error: String,
}

/// Which servers tools are said to be of.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// The server of every tool, whatever the input says.
    pub server: Option<String>,
    /// OpenAPI: only operations with one of these tags.
    pub include_tags: Vec<String>,
    /// OpenAPI: no operation with one of these tags.
    pub exclude_tags: Vec<String>,
    /// OpenAPI: only these paths.
    pub include_paths: Vec<String>,
    /// OpenAPI: none of these paths.
    pub exclude_paths: Vec<String>,
}

impl Reading {
    /// Reads every place. What cannot be read is in [`Batch::rejected`]; whether that matters is
    /// the caller's decision.
    ///
    /// # Errors
    /// A folder that cannot be listed or holds nothing to read.
    pub fn read(&self, places: &[String], fetch: &Fetch) -> Result<Batch> {
        let mut batch = Batch::default();
        let mut origins = HashMap::new();
        for place in expand(places)? {
            match place
                .bytes(fetch)
                .and_then(|bytes| self.parse(&place, &bytes))
            {
                Ok(parsed) => batch.take(&place, parsed, &mut origins),
                Err(error) => batch.rejected.push(Rejected::whole(&place, &error)),
            }
        }
        Ok(batch)
    }

    fn parse(&self, place: &Place, bytes: &[u8]) -> Result<formats::Parsed> {
        let options = ReadOptions {
            source_name: place.to_string(),
            server: self.server.clone(),
            default_server: place.default_server(),
            include_tags: self.include_tags.clone(),
            exclude_tags: self.exclude_tags.clone(),
            include_paths: self.include_paths.clone(),
            exclude_paths: self.exclude_paths.clone(),
        };
        let parsed = formats::parse(bytes, &options)?;
        if parsed.tools.is_empty() && parsed.skipped.is_empty() {
            bail!("{place}: {}", nothing_in(&parsed));
        }
        Ok(parsed)
    }
}

impl Batch {
    fn take(
        &mut self,
        place: &Place,
        parsed: formats::Parsed,
        origins: &mut HashMap<ToolId, String>,
    ) {
        let name = place.to_string();
        self.sources.push(Source {
            name: name.clone(),
            format: parsed.format,
            tools: parsed.tools.len(),
        });
        self.rejected.extend(
            parsed
                .skipped
                .into_iter()
                .map(|skipped| Rejected::item(place, skipped)),
        );
        for tool in parsed.tools {
            match origins.get(&tool.id) {
                None => {
                    origins.insert(tool.id.clone(), name.clone());
                    self.tools.push(tool);
                }
                Some(first) => self.rejected.push(Rejected::twice(place, &tool, first)),
            }
        }
    }
}

impl Rejected {
    fn item(place: &Place, skipped: Skipped) -> Self {
        Rejected {
            source: place.to_string(),
            position: Some(skipped.index),
            line: skipped.line,
            name: skipped.name,
            error: skipped.error.to_string(),
        }
    }

    fn twice(place: &Place, tool: &Tool, first: &str) -> Self {
        let error = format!(
            "tool id {} is also in {first}; ids must be unique, rename one or give each file its own --server",
            tool.id
        );
        let name = Some(tool.id.name().to_owned());
        Rejected {
            source: place.to_string(),
            position: None,
            line: None,
            name,
            error,
        }
    }

    fn whole(place: &Place, error: &anyhow::Error) -> Self {
        let error = super::one_line(error);
        Rejected {
            source: place.to_string(),
            position: None,
            line: None,
            name: None,
            error,
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Errors about a whole input begin with its name already, and with the line and column.
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

fn nothing_in(parsed: &formats::Parsed) -> String {
    match parsed.servers_to_connect.as_slice() {
        [] => "there are no tools in it".into(),
        servers => format!(
            "it names {} MCP servers ({}) and holds no tools itself; `toolscout sync --mcp FILE` takes in theirs",
            servers.len(),
            servers.join(", ")
        ),
    }
}

/// Somewhere to read from.
#[derive(Debug)]
enum Place {
    Stdin,
    Url(String),
    File(PathBuf),
    /// A file that stands for a server because it was found in a folder.
    Member(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Stdin => f.write_str("stdin"),
            Place::Url(url) => f.write_str(url),
            Place::File(path) | Place::Member(path) => path.display().fmt(f),
        }
    }
}

impl Place {
    fn of(argument: &str) -> Place {
        match argument {
            "-" => Place::Stdin,
            _ if argument.starts_with("http://") || argument.starts_with("https://") => {
                Place::Url(argument.into())
            }
            _ => Place::File(argument.into()),
        }
    }

    fn default_server(&self) -> Option<String> {
        match self {
            Place::Member(path) => path
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned()),
            _ => None,
        }
    }

    fn bytes(&self, fetch: &Fetch) -> Result<Vec<u8>> {
        match self {
            Place::Stdin => bounded(io::stdin().lock(), MAX_BYTES).context("read stdin"),
            Place::Url(url) => download(url, fetch).with_context(|| format!("fetch {url}")),
            Place::File(path) | Place::Member(path) => File::open(path)
                .and_then(|file| bounded(file, MAX_BYTES))
                .with_context(|| format!("read {}", path.display())),
        }
    }
}

/// Folders become the files in them, by name.
fn expand(arguments: &[String]) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for place in arguments.iter().map(|argument| Place::of(argument)) {
        match place {
            Place::File(folder) if folder.is_dir() => places.extend(members(&folder)?),
            place => places.push(place),
        }
    }
    Ok(places)
}

fn members(folder: &Path) -> Result<Vec<Place>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let accepted = |path: &PathBuf| {
        path.is_file()
            && path.extension().is_some_and(|ext| {
                ENDINGS
                    .iter()
                    .any(|ending| ext.eq_ignore_ascii_case(ending))
            })
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(accepted)
        .collect();
    files.sort();
    if files.is_empty() {
        bail!(
            "no file in {} ends in {}",
            folder.display(),
            ENDINGS.map(|ending| format!(".{ending}")).join(", ")
        );
    }
    Ok(files.into_iter().map(Place::Member).collect())
}

fn bounded(from: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("more than {} MiB", max_bytes >> 20),
        ));
    }
    Ok(bytes)
}

fn download(url: &str, fetch: &Fetch) -> Result<Vec<u8>> {
    let client = reqwest::blocking::Client::builder()
        .timeout(fetch.timeout())
        .redirect(reqwest::redirect::Policy::limited(MAX_REDIRECTS))
        .user_agent(concat!("toolscout/", env!("CARGO_PKG_VERSION")))
        .build()?;
    let response = client
        .get(url)
        .send()
        .map_err(|error| anyhow::Error::new(error.without_url()))?;
    if !response.status().is_success() {
        bail!("the server answered {}", response.status());
    }
    bounded(response, fetch.max_bytes())
        .context("read the answer; fetch.max_mb and fetch.timeout_s bound it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_files_in_order_and_they_for_servers() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.JSON", "notes.md"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let places = expand(&[
            folder.path().display().to_string(),
            "-".into(),
            "one.json".into(),
        ])
        .unwrap();
        let servers: Vec<_> = places.iter().map(Place::default_server).collect();
        assert_eq!(servers, [Some("a".into()), Some("b".into()), None, None]);
    }

    #[test]
    fn a_folder_without_tools_is_an_error_that_says_what_would_be_taken() {
        let folder = tempfile::tempdir().unwrap();
        let message = expand(&[folder.path().display().to_string()])
            .unwrap_err()
            .to_string();
        assert!(message.contains(".jsonl"), "{message}");
    }

    #[test]
    fn a_stream_longer_than_its_bound_is_refused() {
        assert_eq!(bounded(&b"abc"[..], 3).unwrap(), b"abc");
        assert!(bounded(&b"abcd"[..], 3).is_err());
    }
}
