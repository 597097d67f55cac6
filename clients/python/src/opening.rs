//! An open catalog, in the process that opened it.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;
use toolscout_native::opening::{self, Opening};

use crate::errors::OrRaise;
use crate::process;

/// An open catalog.
pub struct Open(ManuallyDrop<opening::Open>);

impl Open {
    /// Opens the catalog.
    ///
    /// # Errors
    /// `forked`, `invalid_settings`, `unknown_catalog`, `io_failed`, and others of the engine.
    pub fn new(py: Python<'_>, opening: Opening) -> PyResult<Self> {
        process::claim(py)?;
        let resolved = opening.resolve().or_raise(py)?;
        let open = py.detach(|| resolved.open()).or_raise(py)?;
        Ok(Open(ManuallyDrop::new(open)))
    }
}

impl std::ops::Deref for Open {
    type Target = opening::Open;

    fn deref(&self) -> &opening::Open {
        &self.0
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // In a forked process the threads that it would wait for are not there, and the folder is the
        // parent's.
        if process::is_owner() {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}
