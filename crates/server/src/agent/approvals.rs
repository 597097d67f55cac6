//! Calls that wait for a person: those of the agent's runs, and those of MCP clients that cannot ask
//! their own person.

use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{Grant, ProfileGrant};
use crate::default_catalog::DefaultCatalog;
use crate::request::error::{ApiError, ApiResult, store_unavailable};
use crate::request::extract::{Json, Path};
use toolscout_base::principal::OwnerScope;
use toolscout_gate::gate::{Answer, Approvals, WaitingApproval};
use toolscout_state::keys::Scope;

/// The calls that wait for a person: of MCP clients, and of the runs of agents.
pub struct WaitingCalls {
    /// Those of MCP clients.
    pub of_clients: Arc<Approvals>,
    /// Its agent knows those of runs.
    pub default_catalog: Arc<DefaultCatalog>,
}

impl WaitingCalls {
    /// Those within this scope that wait here, the most urgent first.
    fn within(&self, scope: &OwnerScope) -> Vec<WaitingApproval> {
        let mut waiting = self.of_clients.waiting_within(scope);
        if let Some(agent) = self.default_catalog.agent() {
            waiting.extend(agent.waiting_approvals(scope));
        }
        waiting.sort_by_key(|waiting| waiting.open.expires_in_ms);
        waiting
    }

    /// Decides about one of them. Returns whether it still waited.
    ///
    /// # Errors
    /// 503 if the call may wait on another node and the store cannot be reached.
    async fn decide(&self, scope: &OwnerScope, id: &str, answer: Answer) -> ApiResult<bool> {
        if self.of_clients.answer(scope, id, answer.clone()) {
            return Ok(true);
        }
        match self.default_catalog.agent() {
            Some(agent) => agent
                .answer_approval_anywhere(scope, id, answer)
                .await
                .map_err(store_unavailable),
            None => Ok(false),
        }
    }
}

/// Calls that wait for a person.
#[derive(Debug, Serialize, ToSchema)]
pub struct WaitingApprovals {
    /// The calls, the one whose time ends first leading.
    approvals: Vec<WaitingApproval>,
}

/// A decision about a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecision {
    /// Whether to make the call.
    approve: bool,
    /// The reason of a refusal, for the model.
    #[serde(default)]
    reason: String,
}

/// The decision that was recorded.
#[derive(Debug, Serialize, ToSchema)]
pub struct DecidedApproval {
    approved: bool,
}

/// Lists the calls of the key that wait for a person on this server; with an admin key for all catalogs
/// those of every key.
#[utoipa::path(
    get, path = "/v1/approvals", operation_id = "list_approvals", tag = "agent",
    responses((status = 200, body = WaitingApprovals, description = "The calls that wait"))
)]
pub async fn list(
    ProfileGrant(grant): ProfileGrant,
    State(waiting): State<Arc<WaitingCalls>>,
) -> Json<WaitingApprovals> {
    Json(WaitingApprovals {
        approvals: waiting.within(&grant.owner_scope()),
    })
}

/// Approves or refuses a call that waits. A key with the scope `approve` decides about its own calls, an
/// admin key for all catalogs about every call. Of two decisions the first counts.
#[utoipa::path(
    post, path = "/v1/approvals/{id}", operation_id = "decide_approval", tag = "agent",
    params(("id" = String, Path, description = "The id of the waiting call")),
    request_body = ApprovalDecision,
    responses((status = 200, body = DecidedApproval, description = "The decision was recorded"))
)]
pub async fn decide(
    ProfileGrant(grant): ProfileGrant,
    State(waiting): State<Arc<WaitingCalls>>,
    Path(id): Path<String>,
    Json(decision): Json<ApprovalDecision>,
) -> ApiResult<Json<DecidedApproval>> {
    grant.allows(Scope::Approve)?;
    let ApprovalDecision { approve, reason } = decision;
    let answer = decision_of(&grant, approve, reason);
    if waiting.decide(&grant.owner_scope(), &id, answer).await? {
        return Ok(Json(DecidedApproval { approved: approve }));
    }
    let message = format!(
        "no call waits under {id:?} for this key: it was decided, it expired, or it belongs to another key; \
         GET /v1/approvals lists those that wait"
    );
    Err(ApiError::not_found("unknown_approval", message))
}

/// The decision of the sender of a request.
pub fn decision_of(grant: &Grant, approve: bool, reason: String) -> Answer {
    let by = grant.sender();
    match approve {
        true => Answer::Approved { by },
        false => Answer::Refused { by, reason },
    }
}
