//! What is noted of a search and of a call.

use std::sync::Arc;
use std::time::Duration;

use toolscout_index::formats::Emit;
use toolscout_index::{Match, Tool, ToolId};

use crate::tools::ErrorCode;

/// Through which catalog and which profile tools are used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The catalog; `None` for the default one.
    pub catalog: Option<String>,
    /// The profile, if there is one.
    pub profile: Option<String>,
}

/// Who uses tools, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The catalog and the profile.
    pub place: Place,
    /// The person or the key, as the audit log names callers.
    pub who: String,
    /// The conversation, if the calls that follow a search belong to one.
    pub session: Option<String>,
}

/// A search that was answered.
#[derive(Clone, Debug)]
pub struct SearchUse {
    /// Who searched.
    pub origin: Origin,
    /// How well the hits serve the request.
    pub matched: Match,
    /// The hits, best first.
    pub hits: Vec<ToolId>,
    /// The tools that were named in a line each after the hits.
    pub more: Vec<ToolId>,
    /// The hits whose definitions were sent, and in which format.
    pub sent: Option<(Emit, Vec<Arc<Tool>>)>,
    /// The texts of the request, if they are [stored](super::Recorder::queries).
    pub queries: Vec<String>,
    /// The tool nearest to the request, if no hit serves it.
    pub nearest: Option<ToolId>,
}

/// A call that has ended, or was refused.
#[derive(Clone, Debug)]
pub struct CallUse {
    /// Who called.
    pub origin: Origin,
    /// The tool.
    pub tool: ToolId,
    /// Why it failed; `None` for a success.
    pub error: Option<ErrorCode>,
    /// How long the tool took; `None` for a call that did not reach it.
    pub took: Option<Duration>,
    /// The beginning of the result as a model reads it.
    pub result: String,
    /// The length of the whole result in bytes.
    pub result_bytes: usize,
}
