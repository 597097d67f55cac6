//! Arguments: one of a wrong type is named in the message. PyO3 names it in a note, which
//! `str(error)` does not have, nor Python 3.10.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};

/// Longest value in a message, in characters.
const MAX_SHOWN: usize = 60;

/// The exception for an argument of a wrong type.
pub fn wrong_type(name: &str, expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    match value.get_type().name() {
        Ok(kind) => {
            let shown = shown(value);
            PyTypeError::new_err(format!("{name} must be {expected}, not {kind}{shown}"))
        }
        Err(failed) => failed,
    }
}

/// A text or a number; other objects may show their address, or very much.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let is_plain = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>();
    let Some(text) = value.repr().ok().filter(|_| is_plain) else {
        return String::new();
    };
    let text = text.to_string();
    let short: String = text.chars().take(MAX_SHOWN).collect();
    match short.len() < text.len() {
        true => format!(": {short}…"),
        false => format!(": {short}"),
    }
}

/// Makes functions that read the arguments of their names: PyO3 does not tell them the name.
macro_rules! arguments {
    ($($expected:literal: $($name:ident)*;)*) => {$($(
        #[doc = concat!("Reads `", stringify!($name), "`.")]
        pub fn $name<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>) -> PyResult<T> {
            read(stringify!($name), $expected, value)
        }
    )*)*};
}

arguments! {
    "a str": embedder format fusion id metric mode name query server tool;
    "a str or os.PathLike": config path;
    "a bool": companions create destructive embed enabled explain fold_duplicates ranker read_only skip_invalid whole;
    "the results of a search": results;
    "an int": limit max_tokens;
    "a float": budget_ms dense_weight min_confidence min_score;
}

fn read<'py, T: FromPyObjectOwned<'py>>(
    name: &str,
    expected: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<T> {
    value.extract().map_err(|failed: T::Error| {
        let failed = failed.into();
        match failed.is_instance_of::<PyTypeError>(value.py()) {
            true => wrong_type(name, expected, value),
            false => failed,
        }
    })
}
