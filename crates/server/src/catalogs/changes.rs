//! What changed in the tools of MCP servers since it was approved, and what a person decides on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;
use toolscout_index::{Searcher, ToolId};
use utoipa::{IntoParams, ToSchema};

use crate::access::{Grant, Reading, Writing};
use crate::default_catalog::DefaultCatalog;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{self, Json, QueryString};
use crate::request::paging;
use crate::request::threads::blocking;
use crate::request::wire::ToolBody;
use crate::served::OpenCatalog;
use toolscout_gate::gate::Gate;
use toolscout_mcp::Pool;
use toolscout_mcp::changes::BLOCKED_BY_PERSON;
use toolscout_mcp::inspect::{Finding, OtherTools};
use toolscout_mcp::review::{self, Review, ReviewError, Reviewed, Verdict};
use toolscout_state::approved::{Approved, BlockedBy, ChangeKind, ToolChange, Undecided};
use toolscout_state::catalog_writer::Change;

/// Most decisions of one request.
const MAX_DECISIONS: usize = 1000;
/// A page ends early when its definitions reach this size. It has at least one change.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// A page of the list of changes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Most changes in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only tools of this server.
    server: Option<String>,
    /// Only the tool with this id.
    tool: Option<String>,
}

/// A page of changes that no person has accepted, and of blocked tools.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangePage {
    /// The changes, sorted by id.
    changes: Vec<ChangeBody>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// Number of changes in the list.
    total: usize,
    /// How many of these tools are blocked.
    blocked: usize,
}

/// A change of a tool since it was approved.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolChange)]
pub struct ChangeBody {
    /// The tool's id.
    id: String,
    /// What became of it.
    kind: ChangeKind,
    /// The parts of its definition that changed.
    parts: Vec<&'static str>,
    /// What keeps it out of the catalog; absent for a change that took effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<BlockedBy>,
    /// When the change was first seen, in Unix milliseconds.
    since_ms: i64,
    /// What is suspicious about the definition that is to be decided on.
    findings: Vec<Finding>,
    /// Names that definition.
    version: String,
    /// The approved definition; absent for a new tool, and where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<ToolBody>,
    /// The definition that the server offers; absent for a removed tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<ToolBody>,
}

/// Decisions about tools. All of them are stored, or none.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReviewRequest {
    /// Decisions about single tools, each tool once.
    #[serde(default, deserialize_with = "extract::objects")]
    #[schema(max_items = 1000)]
    decisions: Vec<DecisionBody>,
    /// Servers of which every change is accepted. Tools that a person has blocked stay so.
    #[serde(default)]
    #[schema(max_items = 1000, value_type = Vec<String>)]
    accept_all: BTreeSet<String>,
}

/// A decision about one tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionBody {
    /// The tool's id.
    #[schema(example = "notes/search_notes")]
    id: String,
    /// What is to become of it.
    decision: Verdict,
    /// The `version` that was looked at. The decision is refused with 409 when the tool has another
    /// by now; without it, it holds for whatever is offered.
    #[serde(default)]
    version: Option<String>,
}

/// What was decided.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReviewAnswer {
    /// The tools that are accepted from now on.
    accepted: Vec<String>,
    /// The tools that are blocked from now on.
    blocked: Vec<String>,
    /// The generation of the catalog that holds the change.
    generation: u64,
}

/// Lists what changed in the tools of MCP servers since a person approved it, and blocked tools.
///
/// A tool is approved with the first list of its server, and when a person accepts a change.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/changes", operation_id = "list_changes", tag = "servers",
    params(("catalog" = String, Path, description = "The catalog's name"), ListParams),
    responses((status = 200, body = ChangePage, description = "A page of changes"))
)]
pub async fn list(
    Reading(catalog): Reading,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<ChangePage>> {
    let limit = paging::limit(params.limit)?;
    let after: Option<String> = paging::after(params.cursor.as_deref())?;
    let page = move || {
        let mut changes = undecided(&catalog)?;
        if let Some(server) = &params.server {
            changes.retain(|id, _| id.server() == server);
        }
        if let Some(tool) = &params.tool {
            changes.retain(|id, _| id.as_str() == tool);
        }
        Ok(page(&catalog.searcher(), &changes, after.as_deref(), limit))
    };
    blocking(page).await?.map(Json)
}

/// Accepts changes, and blocks tools: a blocked tool is neither found nor called until it is
/// accepted. Each decision is in the audit log.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/changes", operation_id = "review_changes", tag = "servers",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = ReviewRequest,
    responses((status = 200, body = ReviewAnswer, description = "The decisions are in effect"))
)]
pub async fn review(
    Writing(catalog): Writing,
    grant: Grant,
    State(default_catalog): State<Arc<DefaultCatalog>>,
    State(gate): State<Arc<Gate>>,
    State(background): State<TaskTracker>,
    Json(request): Json<ReviewRequest>,
) -> ApiResult<Json<ReviewAnswer>> {
    // Checked before the task starts, so that a mistake is answered at once.
    let review = request.checked()?;
    let who = grant.sender();
    // A task of its own, so that a client that disconnects does not leave the catalog without the
    // decision.
    let deciding = async move {
        let pool = default_catalog.pool_of(&catalog);
        decide(pool, &gate, catalog, review, who).await
    };
    let deciding = background.spawn(deciding);
    match deciding.await {
        Ok(decided) => decided.map(Json),
        Err(error) => Err(ApiError::internal(error)),
    }
}

impl ReviewRequest {
    fn checked(self) -> ApiResult<Review> {
        let ReviewRequest {
            decisions,
            accept_all,
        } = self;
        let count = decisions.len() + accept_all.len();
        if !(1..=MAX_DECISIONS).contains(&count) {
            let message = format!(
                "decisions and accept_all have {count} entries together, it must be from 1 to {MAX_DECISIONS}"
            );
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        let mut review = Review {
            accept_all,
            ..Review::default()
        };
        for decision in decisions {
            let id = ToolId::parse(&decision.id)?;
            let verdict = (decision.decision, decision.version);
            // The server does not guess which of the two counts.
            if review.verdicts.insert(id, verdict).is_some() {
                let message = format!(
                    "decisions has {:?} twice; decide once about each tool",
                    decision.id
                );
                return Err(ApiError::unprocessable("invalid_value", message));
            }
        }
        Ok(review)
    }
}

async fn decide(
    pool: Option<&Pool>,
    gate: &Gate,
    catalog: Arc<OpenCatalog>,
    review: Review,
    who: String,
) -> ApiResult<ReviewAnswer> {
    let mut servers: BTreeSet<String> = review.accept_all.clone();
    for id in review.verdicts.keys() {
        servers.insert(id.server().to_owned());
    }
    let mut held = Vec::new();
    // All requests lock servers in the order of their names, so that they cannot deadlock.
    for server in servers {
        if let Some(pool) = pool {
            held.extend(pool.hold(&server).await);
        }
    }
    let reviewed = {
        let catalog = Arc::clone(&catalog);
        blocking(move || review::decide(catalog.approved(), &catalog.searcher(), &review)).await??
    };
    if let Some(pool) = pool {
        // From here on calls follow the decision, even if writing the catalog fails below.
        for tool in &reviewed.tools {
            let reason = (tool.verdict == Verdict::Block).then_some(BLOCKED_BY_PERSON);
            pool.decided(&tool.id, reason);
        }
    }
    // Recorded before the catalog is written: the decision stands even if that fails.
    record(gate, &catalog.name, &reviewed, &who);
    let generation = write(&catalog, &reviewed).await?;
    Ok(ReviewAnswer {
        accepted: ids_of(&reviewed, Verdict::Accept),
        blocked: ids_of(&reviewed, Verdict::Block),
        generation,
    })
}

fn ids_of(reviewed: &Reviewed, verdict: Verdict) -> Vec<String> {
    let mut ids = Vec::new();
    for tool in &reviewed.tools {
        if tool.verdict == verdict {
            ids.push(tool.id.to_string());
        }
    }
    ids
}

/// Brings the catalog up to what was decided.
async fn write(catalog: &OpenCatalog, reviewed: &Reviewed) -> ApiResult<u64> {
    let mut generation = catalog.searcher().generation();
    if !reviewed.remove.is_empty() {
        let removal = Change::Remove(reviewed.remove.clone());
        generation = catalog.writer.write(removal).await?.generation;
    }
    if !reviewed.upsert.is_empty() {
        let upsert = Change::Upsert(reviewed.upsert.clone());
        generation = catalog.writer.write(upsert).await?.generation;
    }
    Ok(generation)
}

/// Writes the decisions to the audit log. They are stored already, so a log that fails does not undo
/// them.
fn record(gate: &Gate, catalog: &str, reviewed: &Reviewed, who: &str) {
    for tool in &reviewed.tools {
        if let Err(error) = gate.record(&tool.audited(catalog, who)) {
            tracing::error!(%error, "a decision about a tool was not written to the audit log");
        }
    }
}

/// The undecided changes of a catalog. Reads the disk.
pub(crate) fn undecided(catalog: &OpenCatalog) -> ApiResult<Undecided> {
    let approved = Approved::open_existing(catalog.approved())?;
    match approved {
        Some(approved) => Ok(approved.undecided()?),
        None => Ok(Undecided::new()),
    }
}

fn page(searcher: &Searcher, changes: &Undecided, after: Option<&str>, limit: usize) -> ChangePage {
    // Built once for the page, since it reads all names.
    let names = OtherTools::of(searcher.ids_after(None));
    let (mut listed, mut bytes) = (Vec::new(), 0);
    let (mut last, mut next_cursor) = (None, None);
    for (id, change) in changes {
        if after.is_some_and(|after| id.as_str() <= after) {
            continue;
        }
        // One more passes, so this is not the last page.
        if listed.len() == limit || bytes >= MAX_PAGE_BYTES {
            next_cursor = last.map(paging::cursor_after);
            break;
        }
        let body = ChangeBody::of(searcher, &names, id, change);
        // Definitions may be large, so a page also ends at a number of bytes.
        bytes += serde_json::to_string(&body).map_or(0, |json| json.len());
        listed.push(body);
        last = Some(id.as_str());
    }
    ChangePage {
        changes: listed,
        next_cursor,
        total: changes.len(),
        blocked: changes
            .values()
            .filter(|change| change.blocked_by.is_some())
            .count(),
    }
}

impl ChangeBody {
    fn of(searcher: &Searcher, names: &OtherTools, id: &ToolId, change: &ToolChange) -> Self {
        // If the change took effect, the new definition is the one in the catalog.
        let in_catalog = review::definition_in_catalog(searcher, id, change);
        ChangeBody {
            id: id.to_string(),
            kind: change.kind,
            parts: change.parts(),
            blocked_by: change.blocked_by,
            since_ms: change.since_ms,
            findings: review::findings_of(change, in_catalog.as_ref(), names),
            version: change.version(in_catalog.as_ref()),
            before: change.approved.as_deref().map(ToolBody::from),
            after: change
                .current(in_catalog.as_ref())
                .map(|tool| ToolBody::from(&**tool)),
        }
    }
}

impl From<ReviewError> for ApiError {
    fn from(error: ReviewError) -> Self {
        let message = error.to_string();
        match error {
            ReviewError::NoChange { .. } => ApiError::not_found("unknown_change", message),
            ReviewError::NotOfServer { .. } => ApiError::not_found("unknown_tool", message),
            ReviewError::ChangedAgain { .. } => {
                ApiError::invalid(axum::http::StatusCode::CONFLICT, "changed_again", message)
            }
            ReviewError::Store(error) => ApiError::internal(error),
        }
    }
}
