//! The command line, in place of the interpreter.

use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

/// Runs the program with this command line, which begins with its name, and ends the process with its
/// exit code. `program` is the file that starts it again.
#[pyfunction]
#[allow(
    clippy::disallowed_methods,
    reason = "the interpreter must not go on after the program"
)]
pub fn run_program(py: Python<'_>, arguments: Vec<OsString>, program: Option<PathBuf>) {
    let code = py.detach(|| toolscout::cli::main(arguments, program));
    // As the program itself ends: what it has written is flushed, and threads that wait for something
    // hold nothing up.
    std::process::exit(code.into());
}
