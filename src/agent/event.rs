//! What a run tells the outside: the closed list of events that is the stream's contract.

use serde::Serialize;
use serde_json::{Map, Value};
use toolscout_index::ToolId;
use utoipa::ToSchema;

use crate::agent::plan::PlannedStep;
use crate::gate::{Answer, ApprovalRequest, Change, Class, Decision};
use crate::session::{Figures, Reference, TurnStatus};
use crate::tools::{ErrorCode, Status};

/// One event of a run. A run ends with exactly one [`Event::Done`], after an [`Event::Error`] when
/// it failed.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AgentEvent)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Words for the user.
    Text {
        /// The next words.
        content: String,
    },
    /// The model's thinking.
    Thinking {
        /// The next words.
        content: String,
    },
    /// A search in the catalog.
    ToolSearch {
        /// The call's id.
        id: String,
        /// What was looked for.
        queries: Vec<String>,
        /// Tools asked for by name.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        select: Vec<String>,
        /// What was found, best first.
        #[schema(value_type = Vec<String>)]
        hits: Vec<ToolId>,
        /// Why something was not found.
        #[serde(skip_serializing_if = "Option::is_none")]
        no_match: Option<String>,
    },
    /// Tools that the model can call from now on.
    ToolsInjected {
        /// In the order of their injection.
        #[schema(value_type = Vec<String>)]
        tools: Vec<ToolId>,
        /// Tokens they add.
        tokens: usize,
    },
    /// Tools that the model cannot call any more.
    ToolsEvicted {
        /// In the order of their eviction.
        #[schema(value_type = Vec<String>)]
        tools: Vec<ToolId>,
        /// Why.
        reason: EvictionReason,
    },
    /// A call begins.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
        /// The arguments, or their text where they are no JSON.
        arguments: Value,
    },
    /// A plan, before it is carried out. One with problems is not.
    Plan {
        /// Its steps, in order.
        steps: Vec<PlannedStep>,
        /// What is wrong with it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        problems: Vec<String>,
    },
    /// What a plan has come to: the [`ToolResult`](crate::tools::ToolResult) of every step, by its
    /// key.
    PlanOutcome {
        /// By step.
        steps: Map<String, Value>,
    },
    /// A call waits for a person. Unanswered, it counts as refused when its time is up.
    ApprovalRequired {
        /// Names the question in its answer.
        id: String,
        /// Milliseconds to answer in.
        expires_in_ms: u64,
        /// The call.
        #[serde(flatten)]
        request: Box<ApprovalRequest>,
    },
    /// How a call went through the gate, where that is more than a plain yes.
    Gate {
        /// The call's id.
        id: String,
        /// The tool's id.
        #[schema(value_type = String)]
        tool: ToolId,
        /// What it can do.
        class: Class,
        /// What became of the call.
        decision: Decision,
        /// The rule that says so.
        rule: String,
        /// What was changed in the arguments.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        changes: Vec<Change>,
        /// What the person said who was asked.
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<Answer>,
    },
    /// The one result of a call.
    ToolResult {
        /// The call's id.
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
        /// How the call ended.
        status: Status,
        /// Why it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<ErrorCode>,
        /// The beginning of what the model was given.
        content: String,
        /// Milliseconds.
        took_ms: u64,
        /// Bytes of the whole result when the model was given its beginning only.
        #[serde(skip_serializing_if = "Option::is_none")]
        truncated_from_bytes: Option<usize>,
    },
    /// What the tools quoted.
    Reference {
        /// The references, each once.
        content: Vec<Reference>,
        /// Their number.
        count: usize,
    },
    /// Questions that may come next.
    Recommend {
        /// The questions.
        content: Vec<String>,
        /// Their number.
        count: usize,
    },
    /// Why there is no answer.
    Error {
        /// For people, with the next step.
        content: String,
    },
    /// The end, always.
    Done {
        /// The conversation, to be named in the next question.
        conversation: String,
        /// The turn's number within it, from 1.
        turn: i64,
        /// How the turn ended.
        status: TurnStatus,
        /// The turn in numbers.
        figures: Box<Figures>,
    },
}

impl Event {
    /// The event's `type` on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Text { .. } => "text",
            Event::Thinking { .. } => "thinking",
            Event::ToolSearch { .. } => "tool_search",
            Event::ToolsInjected { .. } => "tools_injected",
            Event::ToolsEvicted { .. } => "tools_evicted",
            Event::ToolCall { .. } => "tool_call",
            Event::Plan { .. } => "plan",
            Event::PlanOutcome { .. } => "plan_outcome",
            Event::ApprovalRequired { .. } => "approval_required",
            Event::Gate { .. } => "gate",
            Event::ToolResult { .. } => "tool_result",
            Event::Reference { .. } => "reference",
            Event::Recommend { .. } => "recommend",
            Event::Error { .. } => "error",
            Event::Done { .. } => "done",
        }
    }
}

/// Why tools were evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvictionReason {
    /// Others needed their room.
    Budget,
    /// They were not used for some turns.
    Idle,
}
