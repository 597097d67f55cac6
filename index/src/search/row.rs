//! A tool of a snapshot.

use std::sync::{Arc, OnceLock};

use crate::companions;
use crate::hit::Definition;
use crate::kind::Kind;
use crate::language::Language;
use crate::ranker::ToolWords;
use crate::tool::{FLAGS, Labels, Tool, ToolId};
use crate::tools_db::StoredTool;

/// Bytes of a text that are asked at once whether they are ASCII.
const ASCII_PART: usize = 64;

/// A tool as it was stored. Parsed where it is asked for, and not kept: parsed it takes five times the
/// memory, and parsing takes some microseconds.
pub(crate) struct Row {
    pub(crate) stored: StoredTool,
    /// What it is. Every search asks every row for it, so it is read at once.
    pub(crate) kind: Kind,
    /// Set where the tool was parsed before.
    parsed: Option<Arc<Tool>>,
    words: OnceLock<Box<ToolWords>>,
    interface: OnceLock<Box<companions::Interface>>,
    language: OnceLock<Language>,
    labels: OnceLock<Box<Labels>>,
    is_flagged: OnceLock<bool>,
}

impl Row {
    pub(crate) fn new(stored: StoredTool) -> Self {
        Row {
            kind: Kind::of_json(&stored.json),
            stored,
            parsed: None,
            words: OnceLock::new(),
            interface: OnceLock::new(),
            language: OnceLock::new(),
            labels: OnceLock::new(),
            is_flagged: OnceLock::new(),
        }
    }

    /// The same of a tool that is parsed already.
    pub(crate) fn of_tool(stored: StoredTool, tool: Arc<Tool>) -> Self {
        Row {
            parsed: Some(tool),
            ..Row::new(stored)
        }
    }

    /// The tool. `None` if the stored JSON is not a tool, which the store's writer rules out.
    pub(crate) fn tool(&self) -> Option<Arc<Tool>> {
        match &self.parsed {
            Some(tool) => Some(Arc::clone(tool)),
            None => self.stored.parse().ok().map(Arc::new),
        }
    }

    /// The ranker's view of the tool; computed on first use, in some 20 microseconds.
    pub(super) fn words(&self) -> &ToolWords {
        // Boxed, so that a row that is never a candidate stays small.
        self.words.get_or_init(|| {
            let tool = self.tool();
            let words = tool.as_deref().map(ToolWords::new);
            Box::new(words.unwrap_or_default())
        })
    }

    /// What the tool needs and gives; computed on first use, in some 20 microseconds.
    pub(super) fn interface(&self) -> &companions::Interface {
        self.interface
            .get_or_init(|| Box::new(companions::Interface::new(&self.read())))
    }

    /// The language of the tool's description, or of its name where that is empty; English where the
    /// definition has no letter beyond ASCII.
    pub(super) fn language(&self) -> Language {
        *self.language.get_or_init(|| {
            // Most tools are in English, and parsing each would slow opening down.
            let own = self.stored.owner_texts.description();
            if !has_letters_beyond_ascii(own.unwrap_or(&self.stored.json)) {
                return Language::English;
            }
            match self.stored.parse() {
                Ok(tool) => language(&tool),
                Err(_) => Language::English,
            }
        })
    }

    /// What filters read of the tool; read on first use, and kept without the rest of the tool.
    pub(super) fn labels(&self) -> &Labels {
        self.labels.get_or_init(|| {
            Box::new(match &self.parsed {
                Some(tool) => Labels::of(tool),
                None => self.stored.labels(),
            })
        })
    }

    /// Whether the tool has flags; computed on first use. Few tools have any, so the others are not parsed.
    pub(super) fn is_flagged(&self) -> bool {
        *self.is_flagged.get_or_init(|| {
            let may_be = self.parsed.is_some() || self.stored.json.contains(FLAGS);
            may_be && !self.read().flags().is_empty()
        })
    }

    /// The language of a tool that is in no row.
    pub(crate) fn language_of(tool: &Tool) -> Language {
        let json = serde_json::to_string(tool).unwrap_or_default();
        match has_letters_beyond_ascii(&json) {
            true => language(tool),
            false => Language::English,
        }
    }

    pub(super) fn id(&self) -> ToolId {
        self.stored.id.clone()
    }
}

impl Definition for Row {
    fn read(&self) -> Arc<Tool> {
        match self.tool() {
            Some(tool) => tool,
            // The store's writer rules out that stored JSON is not a tool.
            None => Arc::new(Tool::of_id(self.id())),
        }
    }

    fn shown_description(&self) -> String {
        match &self.parsed {
            Some(tool) => tool.shown_description().to_owned(),
            None => self.stored.shown_description(),
        }
    }
}

fn language(tool: &Tool) -> Language {
    match tool.shown_description() {
        "" => Language::of(tool.bare_name()),
        description => Language::of(description),
    }
}

/// True for a text with letters such as "é" and "查", and not only with dashes and quotation marks.
fn has_letters_beyond_ascii(text: &str) -> bool {
    // ASCII is recognised many bytes at a time, and every tool is asked when a catalog is opened.
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.ceil_char_boundary(ASCII_PART));
        if !part.is_ascii() && part.contains(|c: char| !c.is_ascii() && c.is_alphabetic()) {
            return true;
        }
        rest = after;
    }
    false
}
