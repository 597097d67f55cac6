//! Calls the tools that a model found in a registered catalog, through the gate.

use std::sync::Arc;

use async_trait::async_trait;
use toolscout_index::{Tool, ToolId};
use uuid::Uuid;

use crate::access::Grant;
use crate::access::profiles::OpenProfile;
use crate::catalogs::calls::{ToolCalls, TrialDirectory};
use crate::request::error::ApiResult;
use crate::served::OpenCatalog;
use toolscout_dropin::{CalledTool, DropIn, ToolCaller};
use toolscout_gate::gate::{
    Answer, ApprovalRequest, Approver, Call, Caller, Directory, GateContext,
};
use toolscout_gate::tools::{Arguments, Callable, ErrorCode, ToolResult};
use toolscout_gate::usage::Place;
use toolscout_mcp::Pool;
use toolscout_state::keys::Scope;

/// What calls the tools of this catalog for the sender of a request, or those of a profile of it;
/// `None` where the server calls none.
///
/// # Errors
/// 503 while the server starts.
pub fn caller(
    calls: &Arc<ToolCalls>,
    dropin: &DropIn,
    grant: &Grant,
    catalog: Arc<OpenCatalog>,
    profile: Option<&OpenProfile>,
) -> ApiResult<Option<Arc<dyn ToolCaller>>> {
    if !dropin.config().calls_tools {
        return Ok(None);
    }
    let place = match profile {
        Some(open) => open.profile.place(),
        None => Place {
            catalog: Some(catalog.name.clone()),
            profile: None,
        },
    };
    let caller = Caller {
        place,
        classes: profile.and_then(|open| open.profile.classes()),
        who: grant.sender(),
        conversation: Uuid::now_v7().to_string(),
        // The same rule as for clients of the MCP gateway.
        only_reads: grant.allows(Scope::Call).is_err(),
        ..Caller::default()
    };
    Ok(Some(Arc::new(GatedCaller {
        pool: calls.default_catalog.pool_of(&catalog).cloned(),
        directory: ProfileDirectory {
            whole: calls.directory_of(catalog),
            profile: profile.cloned(),
        },
        calls: Arc::clone(calls),
        caller,
    })))
}

struct GatedCaller {
    calls: Arc<ToolCalls>,
    /// The MCP servers of the catalog.
    pool: Option<Pool>,
    directory: ProfileDirectory,
    caller: Caller,
}

/// The tools of a catalog, those of the profile as it changes them.
struct ProfileDirectory {
    whole: TrialDirectory,
    profile: Option<OpenProfile>,
}

impl Directory for ProfileDirectory {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let of_profile = self.profile.as_ref().and_then(|open| open.search.tool(id));
        // A precondition may call what a profile leaves out.
        of_profile.or_else(|| self.whole.tool(id))
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        let callable = self.whole.callable(id)?;
        match &self.profile {
            Some(open) if open.search.tool(id).is_some() => {
                Some(open.profile.callable(id, callable))
            }
            _ => Some(callable),
        }
    }
}

#[async_trait]
impl ToolCaller for GatedCaller {
    fn can_call(&self, id: &ToolId) -> bool {
        // A tool of an MCP server still has a callable while the server is away.
        if let Some(pool) = &self.pool
            && pool.has(id.server())
            && pool.unavailable_tool(id).is_some()
        {
            return false;
        }
        self.directory.callable(id).is_some()
    }

    async fn call(&self, tool: &Arc<Tool>, arguments: &str) -> CalledTool {
        let limits = self.calls.limits();
        let (result, has_succeeded) = match serde_json::from_str::<Arguments>(arguments) {
            Ok(arguments) => {
                let context = GateContext {
                    caller: &self.caller,
                    ledger: &self.calls.ledgers.of(&self.caller.who),
                    directory: &self.directory,
                    approver: &Nobody,
                    call_timeout: limits.timeout,
                };
                let call = Call {
                    id: Uuid::now_v7().to_string(),
                    tool: Arc::clone(tool),
                    arguments,
                    is_plan_step: false,
                };
                let outcome = self.calls.gate.pass(context, call).await;
                let has_succeeded = outcome.has_succeeded();
                (outcome.result, has_succeeded)
            }
            Err(error) => {
                let message = format!("the arguments are no JSON object: {error}");
                (
                    ToolResult::error(ErrorCode::InvalidArguments, message),
                    false,
                )
            }
        };
        let result = result.truncated(limits.max_result_bytes);
        CalledTool {
            text: result.to_model_text(),
            has_succeeded,
        }
    }
}

/// Nobody can be asked: the client speaks with a model, and not with us.
struct Nobody;

#[async_trait]
impl Approver for Nobody {
    async fn ask(&self, request: ApprovalRequest) -> Answer {
        Answer::Refused {
            by: "server".to_owned(),
            reason: format!(
                "{} needs approval, and nobody can be asked in this conversation; a rule of the server may allow it",
                request.tool
            ),
        }
    }
}
