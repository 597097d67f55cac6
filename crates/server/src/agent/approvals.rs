//! Calls that wait for a person: those of the agent's runs, and those of MCP clients that cannot ask
//! their own person.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::App;
use crate::access::{Grant, ProfileGrant};
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, Path};
use toolscout_gate::gate::{Answer, WaitingApproval};
use toolscout_state::keys::Scope;

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
    State(app): State<App>,
) -> Json<WaitingApprovals> {
    Json(WaitingApprovals {
        approvals: app.waiting_approvals(&grant.owner_scope()),
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
    State(app): State<App>,
    Path(id): Path<String>,
    Json(decision): Json<ApprovalDecision>,
) -> ApiResult<Json<DecidedApproval>> {
    grant.allows(Scope::Approve)?;
    let ApprovalDecision { approve, reason } = decision;
    let answer = decision_of(&grant, approve, reason);
    if app
        .decide_approval(&grant.owner_scope(), &id, answer)
        .await?
    {
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
