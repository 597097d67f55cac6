//! The events of a run: the closed list that is the stream's contract.

use serde::Serialize;
use serde_json::{Map, Value};
use toolscout_index::{Match, ToolId};
use utoipa::ToSchema;

use toolscout_gate::gate::{Answer, ApprovalRequest, Change, Class, Decision};
use toolscout_gate::plan::PlannedStep;
use toolscout_gate::tools::{ErrorCode, Status};
use toolscout_state::session::{Figures, Reference, TurnStatus};

/// One event of a run. A run ends with exactly one [`Event::Done`], after an [`Event::Error`] when
/// it failed.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = AgentEvent)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// Part of the answer's text.
    Text {
        /// The next part.
        content: String,
    },
    /// Part of the model's thinking.
    Thinking {
        /// The next part.
        content: String,
    },
    /// A search in the catalog.
    ToolSearch {
        /// The call's id.
        id: String,
        /// The queries.
        queries: Vec<String>,
        /// Tools selected by name.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        select: Vec<String>,
        /// The tools found, best first.
        #[schema(value_type = Vec<String>)]
        hits: Vec<ToolId>,
        /// Why a requested tool was not found.
        #[serde(skip_serializing_if = "Option::is_none")]
        no_match: Option<String>,
        /// How well the hits serve the queries: good, possible or none; absent if tools were selected by
        /// name only.
        #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        matched: Option<Match>,
    },
    /// Tools that the model can call from now on.
    ToolsInjected {
        /// In the order of their injection.
        #[schema(value_type = Vec<String>)]
        tools: Vec<ToolId>,
        /// Tokens they add.
        tokens: usize,
        /// Tokens of each of them, in the same order.
        tokens_by_tool: Vec<InjectedTool>,
        /// The token budget with them.
        budget: ToolBudget,
    },
    /// Tools that the model can no longer call.
    ToolsEvicted {
        /// In the order of their eviction.
        #[schema(value_type = Vec<String>)]
        tools: Vec<ToolId>,
        /// Why they were evicted.
        reason: EvictionReason,
        /// The token budget without them.
        budget: ToolBudget,
    },
    /// The prompt was made shorter: old results were cut first, then older turns were left out, then
    /// messages of this turn became facts.
    ContextCompacted {
        /// Why.
        reason: CompactionReason,
        /// Tokens of the prompt before, the tools included.
        tokens_before: usize,
        /// Tokens of the prompt now.
        tokens: usize,
        /// Most tokens that a prompt may have.
        limit: usize,
    },
    /// A call begins.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
        /// The arguments, or their text if they are not valid JSON.
        arguments: Value,
    },
    /// A plan, before it is executed. A plan with problems is not executed, unless its invalid steps
    /// are skipped.
    Plan {
        /// Its steps, in order.
        steps: Vec<PlannedStep>,
        /// What is wrong with the plan.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        problems: Vec<String>,
    },
    /// The outcome of a plan: the [`ToolResult`](toolscout_gate::tools::ToolResult) of every step, by its
    /// key.
    PlanOutcome {
        /// By step.
        steps: Map<String, Value>,
    },
    /// A call waits for a person's approval. It is refused if nobody answers in time.
    ApprovalRequired {
        /// The id under which the request is answered.
        id: String,
        /// Milliseconds left to answer.
        expires_in_ms: u64,
        /// The call.
        #[serde(flatten)]
        request: Box<ApprovalRequest>,
    },
    /// The gate's decision on a call. A call that never reaches the gate, such as one of an unknown
    /// tool, has none.
    Gate {
        /// The call's id.
        id: String,
        /// The tool's id.
        #[schema(value_type = String)]
        tool: ToolId,
        /// How much harm the tool can do.
        class: Class,
        /// What happens to the call.
        decision: Decision,
        /// The rule that made the decision.
        rule: String,
        /// Changes made to the arguments.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        changes: Vec<Change>,
        /// The person's answer, if one was asked.
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<Answer>,
        /// Checks that failed before the call, which was made nevertheless.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// The one result of a call.
    ToolResult {
        /// The call's id.
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
        /// Whether the call succeeded.
        status: Status,
        /// Why it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_code: Option<ErrorCode>,
        /// The beginning of the text that the model gets.
        content: String,
        /// Duration in milliseconds.
        took_ms: u64,
        /// Length of the whole result in bytes, if the model gets only its beginning.
        #[serde(skip_serializing_if = "Option::is_none")]
        truncated_from_bytes: Option<usize>,
    },
    /// The web pages that the tools quoted.
    Reference {
        /// The references, each once.
        content: Vec<Reference>,
        /// Their number.
        count: usize,
    },
    /// Recommended further questions.
    Recommend {
        /// The questions.
        content: Vec<String>,
        /// Their number.
        count: usize,
    },
    /// Why there is no answer.
    Error {
        /// A message for the user, with the next step.
        content: String,
    },
    /// The end of the run. Always the last event.
    Done {
        /// The conversation's id, for the next question.
        conversation: String,
        /// The turn's number within it, from 1.
        turn: i64,
        /// How the turn ended.
        status: TurnStatus,
        /// The turn's figures.
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
            Event::ContextCompacted { .. } => "context_compacted",
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

/// An injected tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct InjectedTool {
    /// Its id.
    #[schema(value_type = String)]
    pub tool: ToolId,
    /// The tokens of its definition.
    pub tokens: usize,
}

/// The token budget of the visible tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolBudget {
    /// Tokens of all visible tools, the pinned ones included.
    pub used: usize,
    /// Most tokens of them. `null` where found tools are not part of the list of tools.
    pub limit: Option<usize>,
}

/// Why tools were evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvictionReason {
    /// The budget was needed for other tools.
    Budget,
    /// They were not used for some turns.
    Idle,
}

/// Why a prompt was made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompactionReason {
    /// It had more tokens than the settings allow.
    Limit,
    /// The model's provider refused it as too long; it is sent once more.
    Refused,
}
