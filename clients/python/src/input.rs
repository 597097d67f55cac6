//! Tools in any form that Python has them in, as batches of JSON for the engine's parser.

use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString};
use toolscout::cli::input::Reading;
use toolscout::config::Fetch;
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{Error, Tool};

use crate::changes::Skipped;
use crate::errors::{OrRaise, error};

/// Items of a list that are read at a time: between two of them other threads get Python's lock, and
/// Ctrl-C is looked for.
const BATCH: usize = 1000;
/// Most items of one call. Their ids are held until its end, and they are committed together.
const MAX_ITEMS: usize = 1_000_000;
/// How the input is called in messages.
const NAME: &str = "tools";

/// A part of the input, read.
#[derive(Default)]
pub struct Batch {
    /// The valid tools.
    pub tools: Vec<Tool>,
    /// The items that are none.
    pub skipped: Vec<Skipped>,
}

/// Where tools are read from.
pub enum Input<'py> {
    /// JSON, NDJSON or YAML.
    Text(Vec<u8>),
    /// A file, a folder or a URL.
    Location(String),
    /// One tool after the other, each in any format.
    Items {
        /// What is left of them.
        items: Bound<'py, PyIterator>,
        /// How many were taken.
        taken: usize,
    },
    /// All was read.
    End,
}

impl<'py> Input<'py> {
    /// Tells the forms apart. A `str` is text where it begins like JSON or has several lines, and else
    /// a location.
    ///
    /// # Errors
    /// `TypeError` for what cannot hold tools.
    pub fn of(tools: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = tools.cast::<PyString>() {
            let text = text.to_string();
            let begins_like_json = text.trim_start().starts_with(['{', '[']);
            let is_text = begins_like_json || text.trim().contains('\n') || text.trim().is_empty();
            return Ok(match is_text {
                true => Input::Text(text.into_bytes()),
                false => Input::Location(text),
            });
        }
        if let Ok(bytes) = tools.cast::<PyBytes>() {
            return Ok(Input::Text(bytes.as_bytes().to_vec()));
        }
        if tools.hasattr("__fspath__")? {
            let path: PathBuf = tools.extract()?;
            return Ok(Input::Location(path.display().to_string()));
        }
        let is_one = tools.is_instance_of::<PyDict>() || tools.hasattr("model_dump")?;
        if is_one {
            let list = PyList::new(tools.py(), [tools])?;
            return Input::of(list.as_any());
        }
        let Ok(items) = tools.try_iter() else {
            let kind = tools.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "tools must be a dict, an iterable of dicts, JSON text, or the path of a file, not {kind}"
            )));
        };
        Ok(Input::Items { items, taken: 0 })
    }

    /// Reads the next part; `None` at the end.
    ///
    /// # Errors
    /// `unreadable_tools`, and what the iterable raises.
    pub fn next(
        &mut self,
        py: Python<'py>,
        server: Option<&str>,
        fetch: &Fetch,
    ) -> PyResult<Option<Batch>> {
        match std::mem::replace(self, Input::End) {
            Input::End => Ok(None),
            Input::Text(text) => parse(py, text, server, 0).map(Some),
            Input::Location(location) => read(py, location, server, fetch).map(Some),
            Input::Items { items, taken } => {
                let batch = PyList::empty(py);
                for item in items.clone().take(BATCH) {
                    batch.append(item?)?;
                }
                let now = taken + batch.len();
                if now > MAX_ITEMS {
                    let message = format!(
                        "more than {MAX_ITEMS} tools, and nothing was added; add them in several calls"
                    );
                    return Err(error(py, "too_many_tools", message));
                }
                if batch.is_empty() {
                    return Ok(None);
                }
                *self = Input::Items { items, taken: now };
                let text = json(py, &batch, taken)?;
                parse(py, text.into_bytes(), server, taken).map(Some)
            }
        }
    }
}

/// A list as JSON, by Python's own writer.
fn json(py: Python<'_>, batch: &Bound<'_, PyList>, before: usize) -> PyResult<String> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dumps = DUMPS.get_or_try_init(py, || {
        let module = py.import("toolscout._input")?;
        PyResult::Ok(module.getattr("to_json")?.unbind())
    })?;
    let written = dumps.bind(py).call1((batch,));
    let text = written.map_err(|failure| {
        // A cycle, or a number that JSON does not have.
        if !failure.is_instance_of::<PyValueError>(py) {
            return failure;
        }
        let (first, last) = (before + 1, before + batch.len());
        let message = format!("{NAME}, items {first} to {last}: {}", failure.value(py));
        error(py, "unreadable_tools", message)
    })?;
    text.extract()
}

fn parse(py: Python<'_>, text: Vec<u8>, server: Option<&str>, before: usize) -> PyResult<Batch> {
    let options = ReadOptions {
        source_name: NAME.to_owned(),
        server: server.map(str::to_owned),
        ..ReadOptions::default()
    };
    let parsed = py.detach(|| formats::parse(&text, &options)).or_raise(py)?;
    let is_empty = parsed.tools.is_empty() && parsed.skipped.is_empty();
    if is_empty && !parsed.servers_to_connect.is_empty() {
        let message = format!(
            "{NAME}: it names the MCP servers {} and has no tools itself; `toolscout sync --mcp FILE` imports them",
            parsed.servers_to_connect.join(", ")
        );
        return Err(error(py, "unreadable_tools", message));
    }
    let skipped = parsed.skipped.into_iter().map(|skipped| {
        let position = before + skipped.index;
        let reason = match skipped.error {
            // A tool without a name is called by its position, which is that in the batch.
            Error::InvalidTool { tool, reason } if tool.starts_with("item ") => reason,
            failure => failure.to_string(),
        };
        Skipped::new(
            Some(position),
            skipped.name,
            format!("{NAME}, item {position}: {reason}"),
        )
    });
    Ok(Batch {
        skipped: skipped.collect(),
        tools: parsed.tools,
    })
}

fn read(py: Python<'_>, location: String, server: Option<&str>, fetch: &Fetch) -> PyResult<Batch> {
    let reading = Reading {
        server: server.map(str::to_owned),
        ..Reading::default()
    };
    let batch = py
        .detach(|| reading.read(&[location], fetch))
        .map_err(|failure| error(py, "unreadable_tools", format!("{failure:#}")))?;
    if let Some(unreadable) = batch.whole_input_rejected() {
        return Err(error(py, "unreadable_tools", unreadable.to_string()));
    }
    let skipped = batch.rejected.into_iter();
    Ok(Batch {
        tools: batch.tools,
        skipped: skipped
            .map(|item| Skipped::new(item.position, item.name.clone(), item.to_string()))
            .collect(),
    })
}
