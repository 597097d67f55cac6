//! Tools of one write, read part by part by the engine's parser.

use std::collections::HashSet;

use serde_json::Value;
use toolscout::cli::input::Reading;
use toolscout::config::Fetch;
use toolscout_index::formats::{self, Emit, ReadOptions};
use toolscout_index::{Tool, ToolId};

use crate::error::{Error, Result};

/// How the input is called in messages.
pub const NAME: &str = "tools";
/// Most items of one call. Their ids are held until its end, and they are committed together.
const MAX_ITEMS: usize = 1_000_000;

/// An item that is no valid tool, and was left out.
pub struct Skipped {
    /// Its position in the input, from 1.
    pub position: Option<usize>,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Why it is no valid tool.
    pub error: String,
}

/// What to do with items that are no valid tools.
#[derive(Clone, Copy)]
pub enum Invalid {
    /// They are left out.
    Skip,
    /// They are an error, which names the option that leaves them out.
    Refuse(&'static str),
}

/// Which of the tools that were read are taken: by operation or name, by tag, or by path.
#[derive(Default)]
pub struct Selection {
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
}

struct Pattern {
    text: String,
    /// It was true of a tool.
    has_matched: bool,
}

impl Selection {
    /// Takes tools that one of `include` names, or all without any, and none that one of `exclude` names.
    pub fn new(include: Vec<String>, exclude: Vec<String>) -> Self {
        let patterns = |texts: Vec<String>| {
            let patterns = texts.into_iter().map(|text| Pattern {
                text,
                has_matched: false,
            });
            patterns.collect()
        };
        Selection {
            include: patterns(include),
            exclude: patterns(exclude),
        }
    }

    fn takes(&mut self, tool: &Tool) -> bool {
        let is_included = any_names(&mut self.include, tool);
        let is_excluded = any_names(&mut self.exclude, tool);
        (self.include.is_empty() || is_included) && !is_excluded
    }

    /// # Errors
    /// `invalid_selection` for an entry that names no tool.
    fn check(&self) -> Result<()> {
        let named = [("include", &self.include), ("exclude", &self.exclude)];
        for (option, patterns) in named {
            let unused = patterns.iter().find(|pattern| !pattern.has_matched);
            if let Some(Pattern { text, .. }) = unused {
                let message = format!(
                    "{option} has {text:?}, which is no operation, tag or path of the input (nothing was added); \
                     correct it, or leave it out"
                );
                return Err(Error::new("invalid_selection", message));
            }
        }
        Ok(())
    }
}

/// Each pattern is asked, so that one that names nothing is noticed.
fn any_names(patterns: &mut [Pattern], tool: &Tool) -> bool {
    let mut any = false;
    for pattern in patterns {
        let names = pattern.names(tool);
        pattern.has_matched |= names;
        any |= names;
    }
    any
}

impl Pattern {
    fn names(&self, tool: &Tool) -> bool {
        let text = &self.text;
        if text.starts_with('/') {
            let path = tool
                .metadata
                .get("openapi")
                .and_then(|call| call.get("path"));
            let path = path.and_then(Value::as_str);
            return path.is_some_and(|path| formats::path_matches(text, path));
        }
        tool.id.name() == text || tool.id.as_str() == text || tool.tags.contains(text)
    }
}

/// Reads the tools of one write, and holds what was read until it is taken.
pub struct Reader {
    /// The valid tools.
    pub tools: Vec<Tool>,
    /// The items that are none.
    pub skipped: Vec<Skipped>,
    server: Option<String>,
    invalid: Invalid,
    fetch: Fetch,
    selection: Selection,
    ids: HashSet<ToolId>,
    items: usize,
}

impl Reader {
    /// A reader of tools that are of this server, if it names one.
    pub fn new(server: Option<String>, invalid: Invalid, fetch: Fetch) -> Self {
        Reader {
            tools: Vec::new(),
            skipped: Vec::new(),
            server,
            invalid,
            fetch,
            selection: Selection::default(),
            ids: HashSet::new(),
            items: 0,
        }
    }

    /// Takes only what this selection takes.
    #[must_use]
    pub fn selecting(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Ends reading.
    ///
    /// # Errors
    /// `invalid_selection` for an entry of the selection that names no tool of the input.
    pub fn finish(&self) -> Result<()> {
        self.selection.check()
    }

    /// What was read, as a list of MCP tools without loss.
    pub fn definitions(&self) -> Value {
        let tools = self.tools.iter();
        tools
            .map(|tool| formats::emit_tool(tool, tool.id.name(), Emit::Mcp))
            .collect()
    }

    /// Counts the next items of a list, and returns how many were before them.
    ///
    /// # Errors
    /// `too_many_tools`.
    pub fn count(&mut self, items: usize) -> Result<usize> {
        let before = self.items;
        self.items += items;
        if self.items > MAX_ITEMS {
            let message = format!(
                "more than {MAX_ITEMS} tools, and nothing was added; add them in several calls"
            );
            return Err(Error::new("too_many_tools", message));
        }
        Ok(before)
    }

    /// Reads JSON, NDJSON or YAML: all of the input, or the part of it after so many items.
    ///
    /// # Errors
    /// `unreadable_tools` and `invalid_tool`, which name the place.
    pub fn parse(&mut self, text: &[u8], before: usize) -> Result<()> {
        let options = ReadOptions {
            source_name: NAME.to_owned(),
            server: self.server.clone(),
            ..ReadOptions::default()
        };
        let parsed = formats::parse(text, &options)?;
        if let Some(reason) = parsed.without_tools() {
            return Err(Error::new("unreadable_tools", format!("{NAME}: {reason}")));
        }
        let skipped = parsed.skipped.into_iter().map(|item| {
            let position = before + item.index;
            let reason = match item.error {
                // A tool without a name is called by its position, which is that in the part.
                toolscout_index::Error::InvalidTool { tool, reason }
                    if tool.starts_with("item ") =>
                {
                    reason
                }
                failure => failure.to_string(),
            };
            Skipped {
                position: Some(position),
                name: item.name,
                error: format!("{NAME}, item {position}: {reason}"),
            }
        });
        self.take(parsed.tools, skipped.collect())
    }

    /// Reads a file, a folder or a URL.
    ///
    /// # Errors
    /// `unreadable_tools` and `invalid_tool`.
    pub fn open(&mut self, location: String) -> Result<()> {
        let reading = Reading {
            server: self.server.clone(),
            ..Reading::default()
        };
        let unreadable = |message: String| Error::new("unreadable_tools", message);
        let batch = reading
            .read(&[location], &self.fetch)
            .map_err(|failure| unreadable(format!("{failure:#}")))?;
        if let Some(rejected) = batch.whole_input_rejected() {
            return Err(unreadable(rejected.to_string()));
        }
        let skipped = batch.rejected.into_iter().map(|item| Skipped {
            position: item.position,
            error: item.to_string(),
            name: item.name,
        });
        self.take(batch.tools, skipped.collect())
    }

    fn take(&mut self, mut tools: Vec<Tool>, skipped: Vec<Skipped>) -> Result<()> {
        tools.retain(|tool| self.selection.takes(tool));
        if let (Invalid::Refuse(option), Some(first)) = (self.invalid, skipped.first()) {
            let others = match skipped.len() - 1 {
                0 => String::new(),
                others => format!(", and {others} more are invalid"),
            };
            let message = format!(
                "{}{others} (nothing was added; {option} adds the others)",
                first.error
            );
            return Err(Error::new("invalid_tool", message));
        }
        // The parser has compared the tools of this part with each other.
        for tool in &tools {
            if !self.ids.insert(tool.id.clone()) {
                let message = format!(
                    "tool id {} occurs twice in the input (nothing was added); ids must be unique, rename one or give \
                     it another server",
                    tool.id
                );
                return Err(Error::new("invalid_tool", message));
            }
        }
        self.tools.extend(tools);
        self.skipped.extend(skipped);
        Ok(())
    }
}
