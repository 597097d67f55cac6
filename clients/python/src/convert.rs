//! Values of Rust as objects of Python, and text for notebooks.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use serde::Serialize;
use toolscout_index::ToolId;

use crate::errors::OrRaise;

/// The dicts, lists and values that this is in JSON.
pub fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let loads = LOADS.get_or_try_init(py, || {
        PyResult::Ok(py.import("json")?.getattr("loads")?.unbind())
    })?;
    let text = serde_json::to_string(value).or_raise(py)?;
    loads.bind(py).call1((text,))
}

/// A single float as Python and JSON write it: 0.1 and not 0.10000000149011612.
pub fn decimal(value: f32) -> f64 {
    // The shortest text that stands for this float, which answers over HTTP have too.
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// A text as Python writes it, with quotes.
pub fn quoted(py: Python<'_>, text: &str) -> String {
    match PyString::new(py, text).repr() {
        Ok(quoted) => quoted.to_string(),
        Err(_) => format!("{text:?}"),
    }
}

/// The id that a text stands for.
///
/// # Errors
/// `invalid_tool`.
pub fn tool_id(py: Python<'_>, text: &str) -> PyResult<ToolId> {
    ToolId::parse(text).or_raise(py)
}

/// A table for notebooks. The cells are text, not HTML.
pub fn html_table(caption: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = format!("<table><caption>{}</caption><tr>", escaped(caption));
    for cell in header {
        html += &format!("<th>{}</th>", escaped(cell));
    }
    html += "</tr>";
    for row in rows {
        html += "<tr>";
        for cell in row {
            html += &format!("<td style=\"text-align:left\">{}</td>", escaped(cell));
        }
        html += "</tr>";
    }
    html + "</table>"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
