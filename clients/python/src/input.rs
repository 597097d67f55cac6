//! Tools in any form that Python has them in, as batches of JSON for the reader.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyString};
use toolscout_native::input::{Invalid, NAME, Reader, Selection};
use toolscout_native::opening::fetch_limits;

use crate::errors::{OrRaise, error};

/// Items of a list that are read at a time: between two of them other threads get Python's lock, and
/// Ctrl-C is looked for.
const BATCH: usize = 1000;

/// Where tools are read from.
pub enum Input<'py> {
    /// JSON, NDJSON or YAML.
    Text(Vec<u8>),
    /// A file, a folder or a URL.
    Location(String),
    /// What is left of tools one after the other, each in any format.
    Items(Bound<'py, PyIterator>),
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
        let items = helper(tools.py(), "items_of")?.call1((tools,))?;
        let items = items.try_iter()?;
        Ok(Input::Items(items))
    }

    /// Lets the reader read the next part, and says whether there was one.
    ///
    /// # Errors
    /// Those of the reader, and what the iterable raises.
    pub fn next(&mut self, py: Python<'py>, reader: &mut Reader) -> PyResult<bool> {
        let read = match std::mem::replace(self, Input::End) {
            Input::End => return Ok(false),
            Input::Text(text) => py.detach(|| reader.parse(&text, 0)),
            Input::Location(location) => py.detach(|| reader.open(location)),
            Input::Items(items) => {
                let batch = PyList::empty(py);
                for item in items.clone().take(BATCH) {
                    batch.append(item?)?;
                }
                let before = reader.count(batch.len()).or_raise(py)?;
                if batch.is_empty() {
                    return Ok(false);
                }
                *self = Input::Items(items);
                let text = json(py, &batch, before)?;
                py.detach(|| reader.parse(text.as_bytes(), before))
            }
        };
        read.or_raise(py)?;
        Ok(true)
    }
}

/// A list as JSON, by Python's own writer.
fn json(py: Python<'_>, batch: &Bound<'_, PyList>, before: usize) -> PyResult<String> {
    let written = helper(py, "to_json")?.call1((batch, before));
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

/// A function of the module that knows the objects of Python.
fn helper<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("toolscout._input")?.getattr(name)
}

/// Reads tools in any form that `Catalog.add` takes, and writes them as a list of MCP tools, without loss:
/// what a client sends to a server.
#[pyfunction]
pub fn read_tools(
    py: Python<'_>,
    tools: &Bound<'_, PyAny>,
    server: Option<String>,
    include: Vec<String>,
    exclude: Vec<String>,
) -> PyResult<String> {
    let fetch = fetch_limits().or_raise(py)?;
    let selection = Selection::new(include, exclude);
    let refuse = Invalid::Refuse("the text of the file in place of its path");
    let mut reader = Reader::new(server, refuse, fetch).selecting(selection);
    let mut input = Input::of(tools)?;
    while input.next(py, &mut reader)? {}
    reader.finish().or_raise(py)?;
    Ok(reader.definitions().to_string())
}
