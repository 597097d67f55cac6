//! The process that a catalog was opened in. The threads of the engine do not survive a fork, and a
//! search in the child would wait for them without end.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use crate::errors::{FORKED, error};

/// The process that the engine works in; 0 before the first catalog is opened.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Makes this process the one that the engine works in.
///
/// # Errors
/// `forked` where the engine worked in the parent already.
pub fn claim(py: Python<'_>) -> PyResult<()> {
    let process = std::process::id();
    match OWNER.compare_exchange(0, process, Ordering::Relaxed, Ordering::Relaxed) {
        Err(owner) if owner != process => Err(forked(py, owner)),
        _ => Ok(()),
    }
}

/// Whether this is the process that the engine works in.
pub fn is_owner() -> bool {
    OWNER.load(Ordering::Relaxed) == std::process::id()
}

/// Fails in a process that was forked after a catalog was opened.
///
/// # Errors
/// `forked`.
pub fn check(py: Python<'_>) -> PyResult<()> {
    if is_owner() {
        return Ok(());
    }
    Err(forked(py, OWNER.load(Ordering::Relaxed)))
}

fn forked(py: Python<'_>, owner: u32) -> PyErr {
    let message = format!(
        "process {} was forked from process {owner} after that had opened a catalog, and the engine's threads are not in \
         it; open catalogs in the worker alone, or start workers with multiprocessing.get_context(\"spawn\")",
        std::process::id()
    );
    error(py, FORKED, message)
}
