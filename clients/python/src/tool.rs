//! A tool, and the tools of a catalog one by one.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pyo3::prelude::*;
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Filter, Searcher, ToolId};

use crate::argument;
use crate::convert::{quoted, to_python};
use crate::errors::OrRaise;

/// The definition of a tool. It does not change.
#[pyclass(module = "toolscout", frozen)]
pub struct Tool {
    tool: Arc<toolscout_index::Tool>,
}

impl Tool {
    /// This tool for Python.
    pub fn new(tool: Arc<toolscout_index::Tool>) -> Self {
        Tool { tool }
    }
}

#[pymethods]
impl Tool {
    /// `server/name`, or the name alone for a tool without a server.
    #[getter]
    fn id(&self) -> &str {
        self.tool.id.as_str()
    }

    /// The name within its server.
    #[getter]
    fn name(&self) -> &str {
        self.tool.id.name()
    }

    /// The server; empty for a tool without one.
    #[getter]
    fn server(&self) -> &str {
        self.tool.id.server()
    }

    /// The name under which a model calls it: letters, digits, `_` and `-`, at most 64.
    #[getter]
    fn model_name(&self) -> String {
        formats::model_name(&self.tool.id)
    }

    /// A name to show to people.
    #[getter]
    fn title(&self) -> Option<&str> {
        self.tool.title.as_deref()
    }

    /// What the tool does.
    #[getter]
    fn description(&self) -> &str {
        &self.tool.description
    }

    /// The JSON Schema of its arguments.
    #[getter]
    fn input_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.tool.input_schema)
    }

    /// The JSON Schema of its structured result, where declared.
    #[getter]
    fn output_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.tool.output_schema)
    }

    /// MCP's hints that it declares, such as `readOnlyHint`.
    #[getter]
    fn annotations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.tool.annotations)
    }

    /// Its tags.
    #[getter]
    fn tags(&self) -> Vec<String> {
        self.tool.tags.clone()
    }

    /// All other fields of its definition.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.tool.metadata)
    }

    /// The definition in a provider's format: openai, openai_responses, anthropic,
    /// anthropic_reference, mcp, names or signature.
    fn to<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::format)] format: String,
    ) -> PyResult<Bound<'py, PyAny>> {
        let emit = format.parse::<Emit>().or_raise(py)?;
        let name = formats::model_name(&self.tool.id);
        to_python(py, &formats::emit_tool(&self.tool, &name, emit))
    }

    fn __eq__(&self, other: &Tool) -> bool {
        self.tool == other.tool
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.tool.id.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let description = formats::first_sentence(&self.tool.description);
        format!(
            "Tool(id={}, description={})",
            quoted(py, self.tool.id.as_str()),
            quoted(py, &description)
        )
    }
}

/// The tools of a catalog as it was when the iteration began, in the order of their ids.
#[pyclass(module = "toolscout")]
pub struct ToolIterator {
    searcher: Arc<Searcher>,
    filter: Filter,
    last: Option<ToolId>,
}

impl ToolIterator {
    /// The tools of this snapshot that pass the filter.
    pub fn new(searcher: Arc<Searcher>, filter: Filter) -> Self {
        ToolIterator {
            searcher,
            filter,
            last: None,
        }
    }
}

#[pymethods]
impl ToolIterator {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self) -> Option<Tool> {
        let searcher = Arc::clone(&self.searcher);
        let after = self.last.take();
        for id in searcher.ids_after(after.as_ref().map(ToolId::as_str)) {
            let Some(tool) = searcher.tool(id) else {
                continue;
            };
            if self.filter.accepts(&tool) {
                self.last = Some(id.clone());
                return Some(Tool::new(tool));
            }
        }
        // It stays at its end.
        self.filter.ids = Arc::new([String::new()].into());
        None
    }
}
