//! Calling one tool by hand, through the gate that the agent's calls pass.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use toolscout_index::{Tool, ToolId};
use utoipa::ToSchema;
use uuid::Uuid;

use super::tools::find_tool;
use crate::access::{Grant, Reading};
use crate::default_catalog::DefaultCatalog;
use crate::request::error::ApiResult;
use crate::request::extract::Json;
use crate::served::{OpenCatalog, ServedSnapshots};
use toolscout_agent::AgentConfig;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::finder::snapshot::SnapshotSource as _;
use toolscout_gate::gate::{
    Answer, ApprovalRequest, Approver, Call, Caller, Change, CheckedCall, Class, Decision,
    Definition, Directory, Gate, GateContext,
};
use toolscout_gate::tools::{Callable, ErrorCode, Status, ToolResult, Toolset};
use toolscout_gate::usage::Place;
use toolscout_mcp::gateway::Ledgers;
use toolscout_state::keys::Scope;

/// The route, whose answers may take as long as a call does.
pub const PATH: &str = "/v1/catalogs/{catalog}/calls";

/// What calls pass through that no agent makes.
pub struct ToolCalls {
    /// Judges each of them.
    pub gate: Arc<Gate>,
    /// Counts them against the limits of a run.
    pub ledgers: Ledgers,
    /// Its tools alone can be called.
    pub default_catalog: Arc<DefaultCatalog>,
    /// Checks arguments.
    pub cpu_pool: CpuPool,
}

/// The limits of such a call.
#[derive(Clone, Copy, Debug)]
pub struct CallLimits {
    /// How long it may take.
    pub timeout: Duration,
    /// What is kept of its result.
    pub max_result_bytes: usize,
}

impl ToolCalls {
    /// The limits of the agent. Without one, those of an agent by default apply.
    pub fn limits(&self) -> CallLimits {
        let defaults = AgentConfig::default();
        let agent = self.default_catalog.agent();
        let config = agent.map_or(&defaults, |agent| agent.config());
        CallLimits {
            timeout: config.call_timeout,
            max_result_bytes: config.run.max_result_bytes,
        }
    }

    /// The tools of this catalog, and what calls them.
    pub fn directory_of(&self, catalog: Arc<OpenCatalog>) -> TrialDirectory {
        TrialDirectory {
            toolset: self.default_catalog.toolset_of(&catalog),
            snapshots: ServedSnapshots::of(catalog, self.cpu_pool.clone()),
        }
    }
}

/// A call of one tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// The tool's id.
    #[schema(example = "notes/search_notes")]
    tool: String,
    /// Its arguments.
    #[serde(default)]
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    /// Only says what the gate would decide, and what would be sent.
    #[serde(default)]
    dry_run: bool,
    /// The `approval` of an answer with the outcome `needs_approval`: approves the call that it was
    /// about. Needs the scope `approve`.
    #[serde(default)]
    #[schema(max_length = 64)]
    approve: Option<String>,
    /// The user on whose behalf the tool is called. The holder of the key is responsible for it.
    #[serde(default)]
    identity: Option<String>,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It was made; `result` has what the tool answered.
    Called,
    /// It was not made; `result` says why.
    Refused,
    /// It is made once it is sent again with this `approval` as `approve`.
    NeedsApproval,
    /// It was not made, because it was only asked what would happen.
    DryRun,
}

/// The answer to a call.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallAnswer {
    /// What came of it.
    outcome: CallOutcome,
    /// The tool's id.
    tool: String,
    /// How much harm the tool can do.
    class: Class,
    /// What the policies say about the call.
    decision: Decision,
    /// The rule that decided.
    rule: String,
    /// Whether this server can call the tool: whether it is of a connected MCP server, or has an address. A tool
    /// of another catalog than the default one, or from a file, can only be found.
    callable: bool,
    /// The arguments as they are sent.
    #[schema(value_type = Object)]
    arguments: Map<String, Value>,
    /// How they differ from the given ones.
    changes: Vec<Change>,
    /// Checks that failed before the call, which was made nevertheless.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Names the call that waits for approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<String>,
    /// What the tool answered, or why it was not or would not be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<CallResult>,
}

/// The result of a call.
#[derive(Debug, Serialize, ToSchema)]
pub struct CallResult {
    /// Whether it succeeded.
    status: Status,
    /// The text that a model would read.
    content: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<ErrorCode>,
    /// Milliseconds from call to result.
    took_ms: u64,
    /// Length of the whole result in bytes, if `content` is its beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_from_bytes: Option<usize>,
}

/// Calls one tool of the default catalog through the gate, exactly as the agent would.
///
/// A call that a rule lets a person decide on is answered with `needs_approval` and its normalized
/// arguments; it is made when it is sent again with the `approval` of that answer. A call that is
/// not made is no error of the request: `outcome` and `result` say why.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/calls", operation_id = "call_tool", tag = "tools",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = CallRequest,
    responses((status = 200, body = CallAnswer, description = "What came of the call"))
)]
pub async fn call(
    Reading(catalog): Reading,
    grant: Grant,
    State(calls): State<Arc<ToolCalls>>,
    Json(request): Json<CallRequest>,
) -> ApiResult<Json<CallAnswer>> {
    grant.allows(Scope::Call)?;
    // Looked up before the gate is asked, so that a wrong id gives a 404 and not a refused call.
    let tool = find_tool(&calls.cpu_pool, &catalog, &request.tool).await?;
    let place = Place {
        catalog: Some(catalog.name.clone()),
        profile: None,
    };
    let trial = Trial {
        directory: calls.directory_of(catalog),
        caller: Caller {
            place,
            who: grant.sender(),
            identity: request.identity,
            // Each call by hand counts as a conversation of its own.
            conversation: Uuid::now_v7().to_string(),
            ..Caller::default()
        },
        tool,
        arguments: request.arguments,
    };
    let (trial, checked) = trial.check(&calls).await?;
    if request.dry_run {
        return Ok(Json(trial.dry_run(checked)));
    }
    // The approval is a hash of the call, so the server need not remember it and it fits no other call.
    let approval = trial.approval(&checked);
    if trial.needs_approval(&checked) {
        if request.approve.as_deref() != Some(approval.as_str()) {
            return Ok(Json(trial.needing_approval(checked, approval)));
        }
        grant.allows(Scope::Approve)?;
    }
    Ok(Json(trial.call(&calls, checked, approval).await))
}

/// A call that is tried out.
struct Trial {
    directory: TrialDirectory,
    caller: Caller,
    tool: Arc<Tool>,
    arguments: Map<String, Value>,
}

impl Trial {
    /// Checks the call off the async threads: schemas of strangers may be large.
    async fn check(self, calls: &ToolCalls) -> ApiResult<(Self, CheckedCall)> {
        let gate = Arc::clone(&calls.gate);
        let checking = calls.cpu_pool.run(move || {
            let checked = gate.check(&self.caller, &self.tool, self.arguments.clone());
            (self, checked)
        });
        Ok(checking.await?)
    }

    fn needs_approval(&self, checked: &CheckedCall) -> bool {
        checked.applied_rule.decision == Decision::Ask
            && checked.refusal.is_none()
            && self.is_callable()
    }

    fn is_callable(&self) -> bool {
        self.directory.callable(&self.tool.id).is_some()
    }

    fn approval(&self, checked: &CheckedCall) -> String {
        approval(&self.caller, &self.tool, &checked.arguments)
    }

    fn answer(
        &self,
        outcome: CallOutcome,
        checked: CheckedCall,
        result: Option<ToolResult>,
    ) -> CallAnswer {
        CallAnswer {
            outcome,
            tool: self.tool.id.to_string(),
            class: checked.applied_rule.class,
            decision: checked.applied_rule.decision,
            rule: checked.applied_rule.rule,
            callable: self.is_callable(),
            arguments: checked.arguments,
            changes: checked.changes,
            warnings: Vec::new(),
            approval: None,
            result: result.map(CallResult::from),
        }
    }

    fn dry_run(&self, mut checked: CheckedCall) -> CallAnswer {
        let refusal = checked.refusal.take();
        let result = refusal.map(|refusal| ToolResult::error(refusal.code, refusal.message));
        self.answer(CallOutcome::DryRun, checked, result)
    }

    fn needing_approval(&self, checked: CheckedCall, approval: String) -> CallAnswer {
        CallAnswer {
            approval: Some(approval),
            ..self.answer(CallOutcome::NeedsApproval, checked, None)
        }
    }

    /// Makes the call if the gate lets it pass.
    async fn call(self, calls: &ToolCalls, checked: CheckedCall, approval: String) -> CallAnswer {
        let limits = calls.limits();
        let approver = GivenApproval {
            trial: &self,
            call: Uuid::now_v7().to_string(),
            approval,
        };
        let context = GateContext {
            caller: &self.caller,
            ledger: &calls.ledgers.of(&self.caller.who),
            directory: &self.directory,
            approver: &approver,
            call_timeout: limits.timeout,
        };
        // The gate checks the call again, since rules and the definition may have changed since the
        // first check.
        let call = Call {
            id: approver.call.clone(),
            tool: Arc::clone(&self.tool),
            arguments: self.arguments.clone(),
            is_plan_step: false,
        };
        let passed = calls.gate.pass(context, call).await;
        // Cut to the length that the agent's model would read.
        let result = passed.result.truncated(limits.max_result_bytes);
        let outcome = match result.error_code {
            // A rule may have turned the call into a dry run.
            _ if passed.report.applied_rule.decision == Decision::DryRun => CallOutcome::DryRun,
            Some(code) if !was_made(code) => CallOutcome::Refused,
            _ => CallOutcome::Called,
        };
        let decided = CheckedCall {
            applied_rule: passed.report.applied_rule,
            changes: passed.report.changes,
            ..checked
        };
        CallAnswer {
            warnings: passed.report.warnings,
            ..self.answer(outcome, decided, Some(result))
        }
    }
}

/// Whether a call that ended with this error reached the tool.
fn was_made(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Failed | ErrorCode::Timeout | ErrorCode::Panicked | ErrorCode::Cancelled
    )
}

/// Names a call: who makes it, the tool's definition and the arguments as they are sent.
fn approval(caller: &Caller, tool: &Tool, arguments: &Map<String, Value>) -> String {
    // A list in JSON, so that two different calls never give the same text.
    let named = json!([caller.who, caller.identity, tool.id.as_str(), arguments]);
    let digest = Sha256::new()
        .chain_update(Definition::of(tool).as_bytes())
        .chain_update(named.to_string())
        .finalize();
    hex::encode(&digest[..16])
}

/// Approves the one call that a person has looked at.
struct GivenApproval<'a> {
    trial: &'a Trial,
    call: String,
    approval: String,
}

#[async_trait]
impl Approver for GivenApproval<'_> {
    async fn ask(&self, request: ApprovalRequest) -> Answer {
        let Trial {
            directory,
            caller,
            tool,
            ..
        } = self.trial;
        let by = caller.who.clone();
        // The tool makes another call, which the person has not seen.
        if request.call != self.call {
            let reason = format!("{} needs approval itself; call it first", request.tool);
            return Answer::Refused { by, reason };
        }
        if let Some(tool) = directory.tool(&tool.id)
            && let Value::Object(arguments) = &request.arguments
            && approval(caller, &tool, arguments) == self.approval
        {
            return Answer::Approved { by };
        }
        let reason = "it is no longer the call that was looked at; look at it again".to_owned();
        Answer::Refused { by, reason }
    }
}

/// The tools of a catalog, and what calls those of the default one.
pub struct TrialDirectory {
    snapshots: ServedSnapshots,
    toolset: Option<Arc<dyn Toolset>>,
}

impl Directory for TrialDirectory {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.snapshots.find_tool(id)
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.toolset.as_ref()?.find(id)
    }
}

impl From<ToolResult> for CallResult {
    fn from(result: ToolResult) -> Self {
        let content = match &result.error_message {
            Some(message) => message.clone(),
            None => result.to_model_text(),
        };
        CallResult {
            status: result.status,
            content,
            error_code: result.error_code,
            took_ms: result.took_ms,
            truncated_from_bytes: result.truncated_from_bytes,
        }
    }
}
