//! The engine and the program for Python: the module `toolscout._toolscout`.
//!
//! The package beside this crate (`toolscout/`) gives it its names and types. Python's lock is
//! released while the engine works.

mod errors;
mod argument;
mod process;
mod convert;
mod tool;
mod results;
mod evaluation;
mod changes;
mod input;
mod opening;
mod catalog;
mod toolbox;
mod program;

/// The native part of the package `toolscout`.
#[pyo3::pymodule(gil_used = false)]
mod _toolscout {
    #[pymodule_export]
    use crate::catalog::Catalog;
    #[pymodule_export]
    use crate::changes::{Changes, Skipped};
    #[pymodule_export]
    use crate::evaluation::{Evaluation, Figure};
    #[pymodule_export]
    use crate::input::read_tools;
    #[pymodule_export]
    use crate::program::run_program;
    #[pymodule_export]
    use crate::results::{Hit, Results};
    #[pymodule_export]
    use crate::tool::{Tool, ToolIterator};
    #[pymodule_export]
    use crate::toolbox::{Toolbox, tool_search_definition};

    /// The version of the program and of the engine.
    #[pymodule_export]
    const __VERSION__: &str = env!("CARGO_PKG_VERSION");
}
