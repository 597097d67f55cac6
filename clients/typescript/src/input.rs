//! Tools in any form that JavaScript has them in, read by the engine's parser.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::Result;
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;
use toolscout::cli::input::Reading;
use toolscout::config::Fetch;
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{Error, ToolId};

use crate::errors::{OrReject, error};
use crate::work::{Work, promise};

/// Most items of one call. They are held until its end, and committed together.
const MAX_ITEMS: usize = 1_000_000;
/// How the input is called in messages.
const NAME: &str = "tools";

/// An item that is no valid tool, and was left out.
#[napi(object)]
#[derive(Clone)]
pub struct Skipped {
    /// Its position in the input, from 1.
    pub position: Option<u32>,
    /// Its name, where it has one.
    pub name: Option<String>,
    /// Why it is no valid tool.
    pub error: String,
}

/// What was read so far.
#[derive(Default)]
pub struct Read {
    /// The valid tools.
    pub tools: Vec<toolscout_index::Tool>,
    /// The items that are none.
    pub skipped: Vec<Skipped>,
    ids: HashSet<ToolId>,
    items: usize,
}

/// The input of a write, which is read part by part before the write begins.
#[napi]
pub struct Input {
    state: Arc<Mutex<Read>>,
    options: Arc<InputOptions>,
}

struct InputOptions {
    server: Option<String>,
    skip_invalid: bool,
    fetch: Fetch,
}

impl Input {
    /// An input whose tools are of this server, if it names one.
    pub fn new(server: Option<String>, skip_invalid: bool, fetch: Fetch) -> Self {
        let options = InputOptions {
            server,
            skip_invalid,
            fetch,
        };
        Input {
            state: Arc::default(),
            options: Arc::new(options),
        }
    }

    /// What was read, shared with whoever writes it.
    pub fn state(&self) -> Arc<Mutex<Read>> {
        Arc::clone(&self.state)
    }

    fn then(
        &self,
        read: impl FnOnce(&InputOptions, &mut Read) -> Result<()> + Send + 'static,
    ) -> AsyncTask<Work<()>> {
        let (state, options) = (self.state(), Arc::clone(&self.options));
        promise(move || read(&options, &mut locked(&state)))
    }
}

/// What was read.
pub fn locked(state: &Mutex<Read>) -> MutexGuard<'_, Read> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[napi]
impl Input {
    /// Reads the next items of a list, which are a list of JSON.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn items(&self, json: String, count: u32) -> AsyncTask<Work<()>> {
        self.then(move |options, read| {
            let before = read.items;
            read.items += count as usize;
            if read.items > MAX_ITEMS {
                let message = format!(
                    "more than {MAX_ITEMS} tools, and nothing was added; add them in several calls"
                );
                return Err(error("too_many_tools", message));
            }
            read.parse(&json, before, options)
        })
    }

    /// Reads JSON, NDJSON or YAML.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn text(&self, text: String) -> AsyncTask<Work<()>> {
        self.then(move |options, read| read.parse(&text, 0, options))
    }

    /// Reads a file, a folder or a URL.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn location(&self, location: String) -> AsyncTask<Work<()>> {
        self.then(move |options, read| read.open(location, options))
    }
}

impl Read {
    fn parse(&mut self, text: &str, before: usize, options: &InputOptions) -> Result<()> {
        let read = ReadOptions {
            source_name: NAME.to_owned(),
            server: options.server.clone(),
            ..ReadOptions::default()
        };
        let parsed = formats::parse(text.as_bytes(), &read).or_reject()?;
        let is_empty = parsed.tools.is_empty() && parsed.skipped.is_empty();
        if is_empty && !parsed.servers_to_connect.is_empty() {
            let message = format!(
                "{NAME}: it names the MCP servers {} and has no tools itself; `toolscout sync --mcp FILE` imports them",
                parsed.servers_to_connect.join(", ")
            );
            return Err(error("unreadable_tools", message));
        }
        let mut skipped = Vec::new();
        for item in parsed.skipped {
            let position = before + item.index;
            let reason = match item.error {
                // A tool without a name is called by its position, which is that in the part.
                Error::InvalidTool { tool, reason } if tool.starts_with("item ") => reason,
                failure => failure.to_string(),
            };
            skipped.push(Skipped {
                position: u32::try_from(position).ok(),
                name: item.name,
                error: format!("{NAME}, item {position}: {reason}"),
            });
        }
        self.take(parsed.tools, skipped, options)
    }

    fn open(&mut self, location: String, options: &InputOptions) -> Result<()> {
        let reading = Reading {
            server: options.server.clone(),
            ..Reading::default()
        };
        let batch = reading
            .read(&[location], &options.fetch)
            .map_err(|failure| error("unreadable_tools", format!("{failure:#}")))?;
        if let Some(unreadable) = batch.whole_input_rejected() {
            return Err(error("unreadable_tools", unreadable.to_string()));
        }
        let mut skipped = Vec::new();
        for item in batch.rejected {
            skipped.push(Skipped {
                position: item
                    .position
                    .and_then(|position| u32::try_from(position).ok()),
                name: item.name.clone(),
                error: item.to_string(),
            });
        }
        self.take(batch.tools, skipped, options)
    }

    fn take(
        &mut self,
        tools: Vec<toolscout_index::Tool>,
        skipped: Vec<Skipped>,
        options: &InputOptions,
    ) -> Result<()> {
        if !options.skip_invalid {
            check_skipped(&skipped)?;
        }
        // The parser has compared the tools of this part with each other.
        for tool in &tools {
            if !self.ids.insert(tool.id.clone()) {
                let message = format!(
                    "tool id {} occurs twice in the input (nothing was added); ids must be unique, rename one or give \
                     it another server",
                    tool.id
                );
                return Err(error("invalid_tool", message));
            }
        }
        self.tools.extend(tools);
        self.skipped.extend(skipped);
        Ok(())
    }
}

fn check_skipped(skipped: &[Skipped]) -> Result<()> {
    let Some(first) = skipped.first() else {
        return Ok(());
    };
    let others = match skipped.len() - 1 {
        0 => String::new(),
        others => format!(", and {others} more are invalid"),
    };
    let message = format!(
        "{}{others} (nothing was added; skipInvalid adds the others)",
        first.error
    );
    Err(error("invalid_tool", message))
}
