//! The audit log of tool calls: its entries, newest first, and the verification of its chain. Both
//! need an admin key for all catalogs.
//!
//! They read the log through a connection of their own, so that no call waits for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};

use super::Grant;
use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, QueryString};
use crate::request::paging;
use crate::request::threads::blocking;
use crate::request::wire::ItemError;
use toolscout_base::clock::{millis, unix_ms};
use toolscout_gate::gate::Decision;
use toolscout_gate::gate::audit::page::{Filter, StoredEntry};
use toolscout_gate::gate::audit::{AuditError, AuditLog, FILE_NAME, Verified};
use toolscout_state::shared::{AuditCursor, ChainError, SharedStore, StoreError, VerifiedChain};

/// How long a request waits for a verification to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// Characters of a hash.
const HASH_CHARS: usize = 64;
const CHECK_PATH: &str = "/v1/audit/check";

/// A page of the log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Most entries in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
    /// Only entries of this tool, by its id.
    tool: Option<String>,
    /// Only entries of tools whose ids have this part, in large or small letters.
    name: Option<String>,
    /// Only calls that were decided on so.
    #[param(inline)]
    decision: Option<Decision>,
    /// Only entries of this kind.
    #[param(inline)]
    event: Option<AuditEvent>,
    /// Only entries of this time, in milliseconds since 1970, and newer ones.
    #[param(minimum = 0)]
    since_ms: Option<i64>,
}

/// The kinds of entries.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// A call is about to be made.
    Begun,
    /// A call was not made.
    Refused,
    /// A call was answered by a dry run.
    DryRun,
    /// A call has ended.
    Ended,
}

impl AuditEvent {
    fn name(self) -> &'static str {
        match self {
            AuditEvent::Begun => "begun",
            AuditEvent::Refused => "refused",
            AuditEvent::DryRun => "dry_run",
            AuditEvent::Ended => "ended",
        }
    }
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditPage {
    /// The entries, newest first. A page may have fewer than asked for, where few entries pass the
    /// filters.
    entries: Vec<AuditEntry>,
    /// Number of all entries, without the filters.
    total: i64,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// An entry, as a line of `toolscout audit export`.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditEntry {
    /// The name of the server whose log it is in, where several share a store.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Its number in that log, from 1.
    seq: i64,
    /// Its hash in hexadecimal.
    hash: String,
    /// `event`, `time_ms`, `tool` and what else is known: `who`, `conversation`, `given` and `sent`
    /// (arguments without secrets), `class`, `decision`, `rule`, `answer`; of an `ended` entry
    /// `begun`, the number of the call's first entry, `status` and `took_ms`.
    #[serde(flatten)]
    fields: Map<String, Value>,
}

/// What is verified.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CheckParams {
    /// The `head` of an earlier verification; its entry must still exist.
    #[param(min_length = 64, max_length = 64, pattern = "^[0-9a-fA-F]+$")]
    head: Option<String>,
}

/// The state of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// None since the server was started.
    #[default]
    Never,
    /// It is running.
    Running,
    /// The log is unchanged, as far as hashes and anchor can tell.
    Verified,
    /// The log was changed, or cannot be read; `error` says where.
    Failed,
}

/// The newest verification since the server was started.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct AuditCheckBody {
    /// Its state.
    status: CheckStatus,
    /// When it began, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at_ms: Option<i64>,
    /// How long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
    /// Number of entries that are verified; while it runs, so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<i64>,
    /// The hash of the last entry in hexadecimal. Stored elsewhere, it reveals later whether entries
    /// were cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    /// Number of entries that the anchor covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    anchored: Option<i64>,
    /// The logs of all servers, as the store has them, where several share one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<AuditOfNode>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
}

/// The verified log of a server, as the store has it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AuditOfNode {
    /// The server's name.
    node: String,
    /// Number of entries.
    entries: i64,
    /// The hash of the last one in hexadecimal.
    head: String,
}

/// The audit log of this server, and those of all servers where they share a store.
pub struct AuditLogs {
    path: PathBuf,
    store: Option<Arc<dyn SharedStore>>,
    shutdown: Shutdown,
    /// The newest verification: at most one runs.
    newest: watch::Sender<AuditCheckBody>,
    /// The hash that the newest verification looks for.
    head: Mutex<Option<String>>,
    /// The entry that the running one has come to.
    done: Arc<AtomicI64>,
}

/// Lists the entries of the audit log, newest first. Needs an admin key for all catalogs.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_audit", tag = "audit",
    params(ListParams),
    responses((status = 200, body = AuditPage, description = "A page of entries"))
)]
pub async fn list(
    grant: Grant,
    State(logs): State<Arc<AuditLogs>>,
    QueryString(params): QueryString<ListParams>,
) -> ApiResult<Json<AuditPage>> {
    grant.operates()?;
    let limit = paging::limit(params.limit)?;
    let Ok(since_ms) = params.since_ms.map(u64::try_from).transpose() else {
        let message = "since_ms is below 0, it must be milliseconds since 1970";
        return Err(ApiError::unprocessable("invalid_value", message));
    };
    let filter = Filter {
        tool: params.tool,
        tool_part: params.name,
        decision: params.decision,
        event: params.event.map(|event| event.name().to_owned()),
        since_ms,
    };
    let page = logs.page(filter, params.cursor.as_deref(), limit).await?;
    Ok(Json(page))
}

/// Shows the newest verification of the audit log since the server was started. Needs an admin key
/// for all catalogs.
#[utoipa::path(
    get, path = "/v1/audit/check", operation_id = "show_audit_check", tag = "audit",
    responses((status = 200, body = AuditCheckBody, description = "The verification"))
)]
pub async fn checked(
    grant: Grant,
    State(logs): State<Arc<AuditLogs>>,
) -> ApiResult<Json<AuditCheckBody>> {
    grant.operates()?;
    Ok(Json(logs.read()))
}

/// Verifies the audit log: that no entry was changed or removed. Needs an admin key for all
/// catalogs.
///
/// Waits up to five seconds. The verification of a long log goes on after that, and
/// `GET /v1/audit/check` shows it. One runs at a time; a request while it runs joins it, unless it
/// names another head.
#[utoipa::path(
    post, path = "/v1/audit/check", operation_id = "check_audit", tag = "audit",
    params(CheckParams),
    responses(
        (status = 200, body = AuditCheckBody, description = "The verification has ended, in success or not"),
        (status = 202, body = AuditCheckBody, description = "It is still running")
    )
)]
pub async fn check(
    grant: Grant,
    State(logs): State<Arc<AuditLogs>>,
    QueryString(params): QueryString<CheckParams>,
) -> ApiResult<Response> {
    grant.operates()?;
    if let Some(head) = &params.head
        && !(head.len() == HASH_CHARS && head.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        let message = format!(
            "head is {head:?}, it must be the {HASH_CHARS} hexadecimal digits that an earlier verification answered"
        );
        return Err(ApiError::unprocessable("invalid_value", message));
    }
    logs.start(params.head)?;
    let mut newest = logs.newest.subscribe();
    let ended = newest.wait_for(|check| check.status != CheckStatus::Running);
    // A short log is verified within the limit. For a long one the client asks again.
    let has_ended = tokio::time::timeout(PATIENCE, ended).await.is_ok();
    let body = Json(logs.read());
    if has_ended {
        return Ok(body.into_response());
    }
    let location = [(header::LOCATION, HeaderValue::from_static(CHECK_PATH))];
    Ok((StatusCode::ACCEPTED, location, body).into_response())
}

/// What was verified.
struct Outcome {
    /// The log of this server, if it has one.
    own: Option<Verified>,
    nodes: Vec<VerifiedChain>,
}

fn of_store(error: &ChainError) -> ItemError {
    let code = match error {
        ChainError::Broken { .. } => "audit_log_changed",
        ChainError::CutOff { .. } | ChainError::HeadMissing { .. } => "audit_log_cut_off",
        ChainError::Stopped => "shutting_down",
        ChainError::Store(StoreError::Unreachable(_)) => "store_unavailable",
        ChainError::Store(_) => "audit_log_unreadable",
    };
    ItemError {
        code: code.to_owned(),
        message: error.to_string(),
    }
}

impl AuditLogs {
    /// The log of this data directory.
    pub fn new(data: &Path, store: Option<Arc<dyn SharedStore>>, shutdown: Shutdown) -> Self {
        AuditLogs {
            path: data.join(FILE_NAME),
            store,
            shutdown,
            newest: watch::Sender::default(),
            head: Mutex::default(),
            done: Arc::default(),
        }
    }

    /// A page of the logs of all servers, or of the log of this one.
    async fn page(
        &self,
        filter: Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> ApiResult<AuditPage> {
        match &self.store {
            Some(store) => page_of_all(&**store, &filter, paging::after(cursor)?, limit).await,
            None => self.own_page(filter, paging::after(cursor)?, limit).await,
        }
    }

    async fn own_page(
        &self,
        filter: Filter,
        before: Option<i64>,
        limit: usize,
    ) -> ApiResult<AuditPage> {
        let path = self.path.clone();
        let page = blocking(move || match AuditLog::open_existing(&path) {
            // Nothing has been logged yet.
            Err(AuditError::Missing { .. }) => Ok(Default::default()),
            log => log?.page(&filter, before, limit),
        });
        let page = page.await?.map_err(ApiError::internal)?;
        Ok(AuditPage {
            entries: page.entries.into_iter().map(AuditEntry::from).collect(),
            total: page.total,
            next_cursor: page.next_before.map(|seq| paging::cursor_after(&seq)),
        })
    }

    /// Starts a verification, or joins the one that runs.
    ///
    /// # Errors
    /// 409 if the one that runs does not look for this hash.
    fn start(self: &Arc<Self>, head: Option<String>) -> ApiResult<()> {
        // Held until the verification runs with its hash, so that no other request comes between.
        let mut looked_for = self.head.lock();
        let has_started = self.newest.send_if_modified(|newest| {
            // Only one runs at a time: a second would only read the same entries again.
            if newest.status == CheckStatus::Running {
                return false;
            }
            self.done.store(0, Ordering::Relaxed);
            *newest = AuditCheckBody {
                status: CheckStatus::Running,
                started_at_ms: Some(unix_ms(SystemTime::now())),
                ..AuditCheckBody::default()
            };
            true
        });
        if !has_started {
            if head.is_some() && *looked_for != head {
                let message = "a verification runs that does not look for this head; ask again when it has ended";
                return Err(ApiError::busy(
                    StatusCode::CONFLICT,
                    "audit_check_running",
                    message,
                ));
            }
            return Ok(());
        }
        looked_for.clone_from(&head);
        let logs = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            let outcome = logs.verify(head.as_deref());
            let took_ms = millis(started.elapsed());
            logs.end(outcome, took_ms);
        });
        Ok(())
    }

    /// Verifies the log, and those of all servers where several share a store, until this one shuts down.
    fn verify(&self, head: Option<&str>) -> Result<Outcome, ItemError> {
        let verify = || {
            let log = AuditLog::open_existing(&self.path)?;
            // With a store, the entry with this hash may be of another server.
            let head = head.filter(|_| self.store.is_none());
            log.verify_while(head, |seq| {
                self.done.store(seq, Ordering::Relaxed);
                !self.shutdown.is_triggered()
            })
        };
        let own = match verify() {
            Ok(own) => Some(own),
            // This server has made no call yet; others may have.
            Err(AuditError::Missing { .. }) if self.store.is_some() => None,
            Err(error) => return Err(described(&error, &self.path)),
        };
        let Some(store) = &self.store else {
            let nodes = Vec::new();
            return Ok(Outcome { own, nodes });
        };
        match self.verify_nodes(&**store, head) {
            Ok(nodes) => Ok(Outcome { own, nodes }),
            Err(error) => Err(of_store(&error)),
        }
    }

    fn verify_nodes(
        &self,
        store: &dyn SharedStore,
        head: Option<&str>,
    ) -> Result<Vec<VerifiedChain>, ChainError> {
        store.block_on(async {
            // Copied first, so that the newest entries of this server are verified too.
            store.copy_audit_now().await?;
            store
                .verify_audit(head, &|| !self.shutdown.is_triggered())
                .await
        })
    }

    /// The file of this server's log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self) -> AuditCheckBody {
        let mut newest = self.newest.borrow().clone();
        if newest.status == CheckStatus::Running {
            newest.entries = Some(self.done.load(Ordering::Relaxed));
        }
        newest
    }

    fn end(&self, outcome: Result<Outcome, ItemError>, took_ms: u64) {
        self.newest.send_modify(|newest| {
            newest.took_ms = Some(took_ms);
            match outcome {
                Ok(Outcome { own, nodes }) => {
                    newest.status = CheckStatus::Verified;
                    newest.entries = own.as_ref().map(|own| own.entries);
                    newest.anchored = own.as_ref().map(|own| own.anchored);
                    newest.head = own.map(|own| own.head);
                    newest.nodes = nodes.into_iter().map(AuditOfNode::from).collect();
                }
                Err(error) => {
                    newest.status = CheckStatus::Failed;
                    newest.error = Some(error);
                }
            }
        });
    }
}

/// A page of the logs of all servers.
async fn page_of_all(
    store: &dyn SharedStore,
    filter: &Filter,
    before: Option<AuditCursor>,
    limit: usize,
) -> ApiResult<AuditPage> {
    // What this server has just done is in the page.
    store.copy_audit_now().await?;
    let page = store.audit_page(filter, before, limit).await?;
    let mut entries = Vec::with_capacity(page.entries.len());
    for (node, entry) in page.entries {
        entries.push(AuditEntry {
            node: Some(node),
            ..AuditEntry::from(entry)
        });
    }
    Ok(AuditPage {
        entries,
        total: page.total,
        next_cursor: page.next.map(|last| paging::cursor_after(&last)),
    })
}

/// The error for a client, who need not know where the server's files are.
fn described(error: &AuditError, log: &Path) -> ItemError {
    let code = match error {
        AuditError::Broken { .. } | AuditError::Rewritten { .. } => "audit_log_changed",
        AuditError::CutOff { .. } | AuditError::HeadMissing { .. } => "audit_log_cut_off",
        AuditError::AnchorMissing { .. } | AuditError::AnchorForged { .. } => {
            "audit_anchor_invalid"
        }
        AuditError::Missing { .. } => "no_audit_log",
        AuditError::Stopped { .. } => "shutting_down",
        _ => "audit_log_unreadable",
    };
    let mut message = error.to_string();
    if let Some(folder) = log.parent() {
        // Joining an empty path adds the separator at the end.
        let folder = folder.join("").display().to_string();
        message = message.replace(&folder, "");
    }
    ItemError {
        code: code.to_owned(),
        message,
    }
}

impl From<VerifiedChain> for AuditOfNode {
    fn from(chain: VerifiedChain) -> Self {
        AuditOfNode {
            node: chain.node,
            entries: chain.entries,
            head: chain.head,
        }
    }
}

impl From<StoredEntry> for AuditEntry {
    fn from(entry: StoredEntry) -> Self {
        AuditEntry {
            node: None,
            seq: entry.seq,
            hash: hex::encode(entry.hash),
            fields: entry.fields,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verification_that_looks_for_another_head_is_not_joined() {
        let folder = tempfile::tempdir().unwrap();
        let logs = AuditLogs::new(folder.path(), None, Shutdown::new());
        let logs = Arc::new(logs);
        let running = AuditCheckBody {
            status: CheckStatus::Running,
            ..AuditCheckBody::default()
        };
        logs.newest.send_replace(running);
        *logs.head.lock() = Some("a".to_owned());
        assert!(logs.start(None).is_ok());
        assert!(logs.start(Some("a".to_owned())).is_ok());
        let refused = logs.start(Some("b".to_owned())).unwrap_err();
        assert_eq!(refused.code, "audit_check_running");
    }
}
