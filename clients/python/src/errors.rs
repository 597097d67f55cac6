//! Errors of the engine as exceptions of the package, with the engine's codes.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use toolscout_native::Error;

/// The exception of a closed catalog.
pub const CLOSED: &str = "catalog_closed";
/// The exception in a process that was forked from one with an open catalog.
pub const FORKED: &str = "forked";

/// An exception with a code and a message.
pub fn error(py: Python<'_>, code: &str, message: impl Into<String>) -> PyErr {
    // A class of Python: one that is made here cannot be an exception under the stable ABI.
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || {
        let module = py.import("toolscout._errors")?;
        PyResult::Ok(module.getattr("Error")?.unbind())
    });
    let exception = class.and_then(|class| class.call1(py, (code, message.into())));
    match exception {
        Ok(exception) => PyErr::from_value(exception.into_bound(py)),
        Err(failed) => failed,
    }
}

/// An exception for a value that no query may have.
pub fn invalid_query(py: Python<'_>, message: impl Into<String>) -> PyErr {
    error(py, "invalid_query", message)
}

/// Turns an error into an exception.
pub trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Into<Error>> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|failure| {
            let Error { code, message } = failure.into();
            error(py, code, message)
        })
    }
}
