//! The toolbox of a conversation: what `toolscout.Toolbox` is made of.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use toolscout_index::ToolId;
use toolscout_native::toolbox::{self, Options, named, search_definition};

use crate::catalog::Catalog;
use crate::convert::to_python;
use crate::errors::OrRaise;
use crate::tool::Tool;

/// The visible tools of a conversation, over a catalog.
#[pyclass(module = "toolscout._toolscout", frozen, name = "ToolboxCore")]
pub struct Toolbox {
    catalog: Py<Catalog>,
    toolbox: Mutex<toolbox::Toolbox>,
    missing: Vec<String>,
}

impl Toolbox {
    fn locked(&self) -> MutexGuard<'_, toolbox::Toolbox> {
        self.toolbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Toolbox {
    /// An empty toolbox with options in JSON.
    #[new]
    fn new(py: Python<'_>, catalog: Py<Catalog>, options: &str) -> PyResult<Self> {
        let options: Options = serde_json::from_str(options).or_raise(py)?;
        let toolbox = toolbox::Toolbox::new(options).or_raise(py)?;
        Ok(Toolbox {
            catalog,
            toolbox: Mutex::new(toolbox),
            missing: Vec::new(),
        })
    }

    /// The toolbox of a state in JSON.
    #[staticmethod]
    fn restored(py: Python<'_>, catalog: Py<Catalog>, state: &str) -> PyResult<Self> {
        let open = catalog.get().opened(py)?;
        let restored = py.detach(|| toolbox::Toolbox::restored(&open, state));
        let (toolbox, missing) = restored.or_raise(py)?;
        Ok(Toolbox {
            catalog,
            toolbox: Mutex::new(toolbox),
            missing,
        })
    }

    /// The tools of the state that the catalog no longer has.
    #[getter]
    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    /// The catalog.
    #[getter]
    fn catalog(&self, py: Python<'_>) -> Py<Catalog> {
        self.catalog.clone_ref(py)
    }

    /// The options.
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.locked().options())
    }

    /// Searches with the arguments of a model's call, in JSON, and shows what was found.
    fn search<'py>(&self, py: Python<'py>, arguments: &str) -> PyResult<Bound<'py, PyAny>> {
        let open = self.catalog.get().opened(py)?;
        let searched = py.detach(|| {
            let arguments = serde_json::from_str(arguments)?;
            // Not locked while it searches.
            let request = self.locked().request(&open, &arguments);
            match request {
                Ok(request) => {
                    let found = request.run(&open)?;
                    Ok(Ok(self.locked().take(&found)))
                }
                Err(refused) => Ok(Err(refused)),
            }
        });
        let searched: toolscout_native::Result<_> = searched;
        match searched.or_raise(py)? {
            Ok(searched) => to_python(py, &searched),
            Err(refused) => to_python(py, &serde_json::json!({ "refused_search": refused })),
        }
    }

    /// Shows tools by id or name.
    fn inject<'py>(&self, py: Python<'py>, names: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.catalog.get().opened(py)?;
        let tools = py.detach(|| named(&open, &names)).or_raise(py)?;
        let injected = py.detach(|| self.locked().inject(&tools));
        to_python(py, &injected)
    }

    /// Shows tools for good.
    fn pin(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        let open = self.catalog.get().opened(py)?;
        let tools = py.detach(|| named(&open, &names)).or_raise(py)?;
        py.detach(|| self.locked().pin(tools));
        Ok(())
    }

    /// Hides tools by id or name.
    fn evict(&self, names: Vec<String>) -> Vec<String> {
        self.locked().evict(&names)
    }

    /// The visible tool with this name.
    fn find(&self, name: &str) -> Option<Tool> {
        self.locked().find(name).map(Tool::new)
    }

    /// The id of the evicted tool with this name.
    fn unloaded(&self, name: &str) -> Option<String> {
        self.locked().unloaded(name)
    }

    /// Marks a call as begun.
    fn open_call(&self, name: &str) -> Option<Tool> {
        self.locked().open_call(name).map(Tool::new)
    }

    /// What is wrong with arguments in JSON for the visible tool with this name.
    fn arguments_problem(
        &self,
        py: Python<'_>,
        name: &str,
        arguments: &str,
    ) -> PyResult<Option<String>> {
        let problem = py.detach(|| self.locked().arguments_problem(name, arguments));
        problem.or_raise(py)
    }

    /// Marks a call as ended.
    fn close_call(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        let id = ToolId::parse(id).or_raise(py)?;
        self.locked().close_call(&id);
        Ok(())
    }

    /// Begins a turn.
    fn begin_turn(&self) {
        self.locked().begin_turn();
    }

    /// Ends a turn, and returns what was evicted.
    fn end_turn(&self) -> Vec<String> {
        self.locked().end_turn()
    }

    /// The definitions for a request.
    fn tools<'py>(
        &self,
        py: Python<'py>,
        format: &str,
        with_search: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tools = self.locked().tools(format, with_search).or_raise(py)?;
        to_python(py, &tools)
    }

    /// Id, name and tokens of each visible tool.
    fn visible(&self) -> Vec<(String, String, usize)> {
        self.locked().visible()
    }

    /// Tokens of all visible tools.
    #[getter]
    fn tokens(&self) -> usize {
        self.locked().tokens()
    }

    /// The state.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.locked().state().or_raise(py)?;
        to_python(py, &state)
    }
}

/// The definition of `tool_search` in a format.
#[pyfunction]
pub fn tool_search_definition<'py>(py: Python<'py>, format: &str) -> PyResult<Bound<'py, PyAny>> {
    to_python(py, &search_definition(format).or_raise(py)?)
}
