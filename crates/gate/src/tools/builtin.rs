//! Built-in tools. Each is off by default.

pub mod fetch;
pub mod files;
#[doc(hidden)]
pub mod html;
pub mod search;
pub mod shell;

use serde::Deserialize;
use serde_json::{Map, Value};
use toolscout_index::Tool;

use crate::tools::{Arguments, Registry, ToolFailure};
use fetch::{FetchConfig, WebFetch};
use files::{FileList, FileRead, FileWrite, FilesConfig, Root};
use search::{SearchConfig, WebSearch};
use shell::{Shell, ShellConfig};
use toolscout_base::sandbox::SandboxError;

/// The built-in tools that are on, the table `[tools]` of a profile.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BuiltinConfig {
    /// `web_search`.
    pub web_search: Option<SearchConfig>,
    /// `web_fetch`.
    pub web_fetch: Option<FetchConfig>,
    /// `file_read`, `file_list`, and `file_write` if writing is allowed.
    pub files: Option<FilesConfig>,
    /// `shell`.
    pub shell: Option<ShellConfig>,
}

/// The names of all built-in tools, which no catalog has.
pub const NAMES: [&str; 6] = [
    "web_search",
    "web_fetch",
    "file_read",
    "file_list",
    "file_write",
    "shell",
];

/// Why a built-in tool cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuiltinError {
    /// The root of the file tools cannot be opened.
    #[error("the root of the file tools, {root}, cannot be opened: {source}")]
    Root {
        /// The folder.
        root: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A program of the shell's allow-list does not exist.
    #[error("the shell's program {program:?} is not in PATH; give its path, or leave it out")]
    NoProgram {
        /// Its name.
        program: String,
    },
    /// An entry of the shell's allow-list that allows any program.
    #[error(
        "the shell's entry {entry:?} lets a model run anything, since the program runs its arguments or has commands; make the script or the command part of the entry, as in `sh report.sh *` or `git log *`"
    )]
    OpenInterpreter {
        /// The entry.
        entry: String,
    },
    /// The sandbox of the shell cannot be set up.
    #[error("the shell's programs cannot run: {0}")]
    Sandbox(#[from] SandboxError),
    /// The settings of `web_search` are incomplete.
    #[error("web_search cannot be set up: {0}")]
    Search(String),
    /// TLS cannot be set up.
    #[error("tools of the web cannot be set up: {0}")]
    Client(#[from] reqwest::Error),
}

impl BuiltinConfig {
    /// A registry with the tools that are on; keys and addresses may be in the environment.
    ///
    /// # Errors
    /// [`BuiltinError`].
    pub fn registry(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Registry, BuiltinError> {
        let mut registry = Registry::new();
        if let Some(config) = &self.web_search
            && let Some(tool) = WebSearch::new(config, environment)?
        {
            registry = registry.with(tool);
        }
        if let Some(config) = &self.web_fetch {
            registry = registry.with(WebFetch::new(config)?);
        }
        if let Some(config) = &self.files {
            let root = Root::open(config)?;
            registry = registry
                .with(FileRead(root.clone()))
                .with(FileList(root.clone()));
            if config.write {
                registry = registry.with(FileWrite(root));
            }
        }
        if let Some(config) = &self.shell {
            registry = registry.with(Shell::new(config)?);
        }
        Ok(registry)
    }
}

/// A definition with these arguments and no others.
fn definition(name: &'static str, description: &str, properties: Value, required: &[&str]) -> Tool {
    let mut tool = Tool::new("", name)
        .expect("the names of built-in tools are valid")
        .with_description(description);
    tool.input_schema = Map::from_iter([
        ("type".to_owned(), "object".into()),
        ("properties".to_owned(), properties),
        ("required".to_owned(), required.to_vec().into()),
        ("additionalProperties".to_owned(), false.into()),
    ]);
    tool
}

/// A required string argument.
fn text<'a>(arguments: &'a Arguments, name: &str) -> Result<&'a str, ToolFailure> {
    let given = arguments.get(name).and_then(Value::as_str);
    given.ok_or_else(|| ToolFailure::new(format!("`{name}` is missing; give it as text")))
}

/// An optional integer argument.
fn number(arguments: &Arguments, name: &str) -> Option<u64> {
    arguments.get(name).and_then(Value::as_u64)
}
