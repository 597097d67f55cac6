//! Tools declared by `#[toolscout::tool]`: what the attribute's expansion uses.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toolscout_index::{Annotations, Tool};

use crate::tools::{Callable, ToolFailure, UserTool, typed};

#[doc(hidden)]
pub use {inventory, schemars, serde};

/// The parameter of a function that takes all arguments of a tool as one type, for
/// `#[toolscout::tool]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<T>(
    /// The arguments.
    pub T,
);

/// A tool's definition and what calls it.
#[doc(hidden)]
pub type MadeTool = toolscout_index::Result<(Tool, Arc<dyn Callable>)>;

/// A tool that the attribute declares, made when the program collects its tools.
#[doc(hidden)]
pub struct DeclaredTool {
    place: &'static str,
    make: fn() -> MadeTool,
}

inventory::collect!(DeclaredTool);

impl DeclaredTool {
    /// A tool that is declared at a place of the source.
    pub const fn new(place: &'static str, make: fn() -> MadeTool) -> Self {
        DeclaredTool { place, make }
    }

    /// File and line of its function.
    pub(super) fn place(&self) -> &'static str {
        self.place
    }

    /// Its definition and what calls it.
    pub(super) fn make(&self) -> MadeTool {
        (self.make)()
    }

    /// All of the program, in the order of their places.
    pub(super) fn all() -> Vec<&'static DeclaredTool> {
        let mut all: Vec<&DeclaredTool> = inventory::iter::<DeclaredTool>().collect();
        all.sort_by_key(|tool| tool.place);
        all
    }
}

/// Makes the tool of one declaration. `hints` are the read-only and the destructive one.
#[doc(hidden)]
pub fn declared<A, R, F, Fut>(
    server: &str,
    name: &str,
    description: &str,
    [read_only_hint, destructive_hint]: [Option<bool>; 2],
    function: F,
) -> MadeTool
where
    A: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    R: Serialize + Send + 'static,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, ToolFailure>> + Send + 'static,
{
    let id = toolscout_index::ToolId::new(server, name)?;
    let tool = typed(id.as_str(), description, function)?.annotations(Annotations {
        read_only_hint,
        destructive_hint,
        ..Annotations::default()
    });
    Ok((tool.definition(), Arc::new(tool)))
}

/// Runs a function that is not async where it keeps no other task waiting. Its panic is passed on.
#[doc(hidden)]
pub async fn blocking<R: Send + 'static>(function: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::task::spawn_blocking(function).await {
        Ok(returned) => returned,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// What a declared function returned.
///
/// A `Result` may fail, everything else is data. The types cannot say so by one trait, since a
/// `Result` can be serialised too; but of two methods of one name the inherent one is called. So an
/// error that cannot be shown is refused, and does not become data:
///
/// ```compile_fail,E0277
/// # extern crate toolscout_gate as toolscout;
/// #[derive(serde::Serialize)]
/// struct Silent;
///
/// /// Fails without a word.
/// #[toolscout_macros::tool]
/// async fn quiet() -> Result<String, Silent> {
///     Err(Silent)
/// }
/// ```
#[doc(hidden)]
pub struct Returned<T>(pub T);

impl<T, E> Returned<Result<T, E>> {
    /// The `Result`.
    pub fn outcome(self) -> Fallible<T, E> {
        Fallible(self.0)
    }
}

/// Returns what is no `Result`.
#[doc(hidden)]
pub trait AnyOutcome<T> {
    /// The value.
    fn outcome(self) -> Infallible<T>;
}

impl<T> AnyOutcome<T> for Returned<T> {
    fn outcome(self) -> Infallible<T> {
        Infallible(self.0)
    }
}

/// A returned `Result`.
#[doc(hidden)]
pub struct Fallible<T, E>(Result<T, E>);

impl<T, E> Fallible<T, E> {
    /// The data, or a failure with the error as text, with its causes if it prints them.
    pub fn into_result(self) -> Result<T, ToolFailure>
    where
        T: Serialize,
        E: Display,
    {
        let result = self.0;
        result.map_err(|error| ToolFailure::new(format!("{error:#}")))
    }
}

/// A returned value.
#[doc(hidden)]
pub struct Infallible<T>(T);

impl<T> Infallible<T> {
    /// The data.
    pub fn into_result(self) -> Result<T, ToolFailure>
    where
        T: Serialize,
    {
        Ok(self.0)
    }
}
