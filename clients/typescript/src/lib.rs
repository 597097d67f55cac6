//! The engine and the program for Node: the native module of the package `toolscout`.
//!
//! The package beside this crate (`toolscout/`) gives it its names and types. What takes time is done on Node's threads for
//! work, and answers with a promise.

mod errors;
mod work;
mod tool;
mod results;
mod evaluation;
mod input;
mod opening;
mod environment;
mod toolbox;
mod catalog;
mod program;
