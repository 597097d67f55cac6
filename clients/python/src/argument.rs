//! Arguments: one of a wrong type is named in the message. PyO3 names it in a note, which
//! `str(error)` does not have, nor Python 3.10.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// The exception for an argument of a wrong type.
pub fn wrong_type(name: &str, expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    match value.get_type().name() {
        Ok(kind) => PyTypeError::new_err(format!("{name} must be {expected}, not {kind}")),
        Err(failed) => failed,
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
