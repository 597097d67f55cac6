//! The use of tools: by tool, by caller and day, and the tools that nobody uses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::access::{Grant, Writing};
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, QueryString};
use crate::request::paging;
use crate::request::threads::blocking;
use crate::served::ServedCatalogs;
use toolscout_base::clock::{date, day_of, millis, unix_ms};
use toolscout_gate::usage::missed::{Missed, MissedGroup, QUERIES_ARE_OFF};
use toolscout_gate::usage::report::{
    self, DEFAULT_DAYS, Order, Period, ToolUse, Unused, UnusedOfServer, UnusedTool, UsePeriod,
};
use toolscout_gate::usage::shadow::report::ShadowReport;
use toolscout_gate::usage::shadow::{Shadow, ShadowState};
use toolscout_gate::usage::{
    CallerDay, CallerFigures, CallerKey, Recorder, UsageDatabase, UsageError,
};
use toolscout_index::embed::table::StaticTable;
use toolscout_index::{Searcher, ToolId};
use toolscout_state::shared::SharedStore;
use toolscout_state::usage::{CountedNodes, ForgetError, UsageOfNodes};

/// The longest time of a report.
const MAX_DAYS: u32 = 3_650;
/// Most callers in an overview, those with most searches and calls.
const MAX_CALLERS: usize = 1_000;

/// Which tools to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageParams {
    /// The number of days, of which today (UTC) is the last; 30 by default.
    #[param(minimum = 1, maximum = 3650)]
    since_days: Option<u32>,
    /// Only tools of this server.
    server: Option<String>,
    /// What comes first; calls by default.
    #[serde(default)]
    sort: Order,
    /// Most tools in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Which unused tools to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UnusedParams {
    /// The number of days, of which today (UTC) is the last; 30 by default.
    #[param(minimum = 1, maximum = 3650)]
    since_days: Option<u32>,
    /// Only tools of this server.
    server: Option<String>,
    /// Most tools in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// What figures of second answers are about.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ShadowParams {
    /// The number of days, of which today (UTC) is the last; 30 by default.
    #[param(minimum = 1, maximum = 3650)]
    since_days: Option<u32>,
}

/// What an overview is about.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OverviewParams {
    /// The number of days, of which today (UTC) is the last; 30 by default.
    #[param(minimum = 1, maximum = 3650)]
    since_days: Option<u32>,
}

/// Whether and since when use is recorded.
#[derive(Debug, Serialize, ToSchema)]
pub struct UseRecord {
    /// False where the settings switch recording off, or the database cannot be used.
    enabled: bool,
    /// The time of the report.
    #[serde(flatten)]
    period: UsePeriod,
    /// Whose use is counted.
    #[serde(flatten)]
    counted: CountedNodes,
    /// Uses since the server was started that were not recorded, because they came too fast.
    dropped: u64,
}

/// A page of tools by their use.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsagePage {
    /// Whether and since when use is recorded.
    record: UseRecord,
    /// The tools that were used, in the order of `sort`. A tool may have been removed since.
    tools: Vec<ToolUse>,
    /// Number of all of them.
    total: usize,
    /// All of them together.
    totals: ToolUse,
    /// Whether searches of the catalog get second answers; `usage/shadow` says what these are worth.
    has_shadow: bool,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// A page of tools that nobody used.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnusedPage {
    /// Whether and since when use is recorded: a tool is unused as far as that goes.
    record: UseRecord,
    /// The tools that no search showed and nobody called, by their ids.
    tools: Vec<UnusedTool>,
    /// Number of all of them.
    total: usize,
    /// Number of all tools that were looked at.
    all_tools: usize,
    /// Tokens of the definitions of all unused tools.
    definition_tokens: u64,
    /// True where there are so many that tokens are estimated by length.
    tokens_estimated: bool,
    /// The servers that have unused tools.
    servers: Vec<UnusedOfServer>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Which groups of missed requests to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct MissedParams {
    /// The number of days, of which today (UTC) is the last; 30 by default.
    #[param(minimum = 1, maximum = 3650)]
    since_days: Option<u32>,
    /// Most groups in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A page of the requests that no tool served, in groups of one meaning.
#[derive(Debug, Serialize, ToSchema)]
pub struct MissedPage {
    /// Whether and since when use is recorded.
    record: UseRecord,
    /// Whether the server stores the texts of requests that no tool served. If not, the list ends when it
    /// was switched off.
    stores_queries: bool,
    /// What to do to have a list, where the server stores no texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
    /// The groups, those with most requests first.
    groups: Vec<MissedGroup>,
    /// Number of all groups.
    total: usize,
    /// Number of requests in that time. The newest 10,000 of a catalog are kept, of each node and in the store.
    requests: usize,
    /// Requests that are in no group, because there are 1,000 groups.
    left_out: usize,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The result of a deletion.
#[derive(Debug, Serialize, ToSchema)]
pub struct ForgottenRequests {
    /// Number of deleted requests.
    forgotten: usize,
}

/// What switching to the shadow of a catalog would change.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShadowAnswer {
    /// Whether and since when use is recorded.
    record: UseRecord,
    /// How far the shadow is.
    now: ShadowNow,
    /// What is known.
    #[serde(flatten)]
    report: ShadowReport,
}

/// How far a shadow is.
#[derive(Debug, Serialize, ToSchema)]
pub struct ShadowNow {
    /// `waiting` for the catalog to be opened, `making` or updating it, `ready`, or `failed`.
    #[schema(pattern = "^(waiting|making|ready|failed)$")]
    state: &'static str,
    /// Why it failed; it is tried again after some seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// The generation of the catalog that it has; null until it was made.
    generation: Option<u64>,
    /// Searches that wait for a second answer, at most 1,280.
    waiting: u64,
    /// Searches and calls since the start that were not compared, because they came too fast.
    dropped: u64,
    /// CPU time that it took since the start, in milliseconds.
    cpu_ms: u64,
}

/// The use of all catalogs.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageOverview {
    /// Whether and since when use is recorded.
    record: UseRecord,
    /// All of them together.
    totals: UseCounts,
    /// By day, the newest first. A day without any use is left out.
    days: Vec<UseOfDay>,
    /// By catalog, most searches and calls first.
    catalogs: Vec<UseOfCatalog>,
    /// By catalog, profile and caller, most searches and calls first; the first 1,000.
    callers: Vec<UseOfCaller>,
    /// Number of all callers.
    total_callers: usize,
}

/// Searches and calls.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct UseCounts {
    /// Searches.
    searches: u64,
    /// Searches by how well their hits serve the request: good.
    good: u64,
    /// Possible.
    possible: u64,
    /// None.
    none: u64,
    /// Calls that were made or refused, without dry runs.
    calls: u64,
    /// Those of them that failed or were refused.
    errors: u64,
}

/// The use on a day.
#[derive(Debug, Serialize, ToSchema)]
pub struct UseOfDay {
    /// The day (UTC).
    day: String,
    /// What was used.
    #[serde(flatten)]
    counts: UseCounts,
}

/// The use of a catalog.
#[derive(Debug, Serialize, ToSchema)]
pub struct UseOfCatalog {
    /// The catalog.
    catalog: String,
    /// What was used.
    #[serde(flatten)]
    counts: UseCounts,
}

/// The use by a caller.
#[derive(Debug, Serialize, ToSchema)]
pub struct UseOfCaller {
    /// The catalog.
    catalog: String,
    /// The profile; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
    /// The caller as the audit log names it: `key:ID`, `http` on a server without keys, or a person at
    /// the terminal; `others` for callers beyond 2,000 on a day.
    caller: String,
    /// What was used.
    #[serde(flatten)]
    counts: UseCounts,
}

/// Lists the tools of a catalog by their use. Needs an admin key for the catalog.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/usage", operation_id = "list_usage", tag = "usage",
    params(("catalog" = String, Path, description = "The catalog's name"), UsageParams),
    responses((status = 200, body = UsagePage, description = "A page of tools"))
)]
pub async fn list(
    Writing(catalog): Writing,
    State(reports): State<UsageReports>,
    QueryString(params): QueryString<UsageParams>,
) -> ApiResult<Json<UsagePage>> {
    let limit = paging::limit(params.limit)?;
    let after: Option<String> = paging::after(params.cursor.as_deref())?;
    let reader = reports.reader(params.since_days)?;
    let (server, sort) = (params.server, params.sort);
    let page = blocking(move || reader.page(&catalog.name, server.as_deref(), sort, after, limit));
    Ok(Json(page.await??))
}

/// Lists the tools of a catalog that no search showed and nobody called. Needs an admin key for the
/// catalog.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/usage/unused", operation_id = "list_unused", tag = "usage",
    params(("catalog" = String, Path, description = "The catalog's name"), UnusedParams),
    responses((status = 200, body = UnusedPage, description = "A page of tools"))
)]
pub async fn unused(
    Writing(catalog): Writing,
    State(reports): State<UsageReports>,
    QueryString(params): QueryString<UnusedParams>,
) -> ApiResult<Json<UnusedPage>> {
    let limit = paging::limit(params.limit)?;
    let after: Option<String> = paging::after(params.cursor.as_deref())?;
    let used = format!(
        "list those that are used: /v1/catalogs/{}/usage",
        catalog.name
    );
    let searcher = catalog.with_all_tools("listing those that nobody uses", &used)?;
    let reader = reports.reader(params.since_days)?;
    let unused = move || {
        let server = params.server.as_deref();
        reader.unused(&catalog.name, &searcher, server, after, limit)
    };
    Ok(Json(blocking(unused).await?.map_err(ApiError::internal)?))
}

/// Lists the requests to a catalog that no tool served, in groups of one meaning. Needs an admin key for
/// the catalog, and a server with the setting `usage.queries`.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/usage/missed", operation_id = "list_missed", tag = "usage",
    params(("catalog" = String, Path, description = "The catalog's name"), MissedParams),
    responses((status = 200, body = MissedPage, description = "A page of groups"))
)]
pub async fn missed(
    Writing(catalog): Writing,
    State(reports): State<UsageReports>,
    QueryString(params): QueryString<MissedParams>,
) -> ApiResult<Json<MissedPage>> {
    let limit = paging::limit(params.limit)?;
    let after: Option<String> = paging::after(params.cursor.as_deref())?;
    let reader = reports.reader(params.since_days)?;
    let page = blocking(move || reader.missed(&catalog.name, after, limit));
    Ok(Json(page.await??))
}

/// Deletes the requests to a catalog that no tool served. Needs an admin key for the catalog.
#[utoipa::path(
    delete, path = "/v1/catalogs/{catalog}/usage/missed", operation_id = "forget_missed", tag = "usage",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = ForgottenRequests, description = "The number of deleted requests"))
)]
pub async fn forget_missed(
    Writing(catalog): Writing,
    State(reports): State<UsageReports>,
) -> ApiResult<Json<ForgottenRequests>> {
    let reader = reports.reader(None)?;
    // Of any day: the period is for reports alone.
    let forgotten = blocking(move || reader.usage()?.forget_missed(&catalog.name)).await?;
    match forgotten {
        Ok(forgotten) => Ok(Json(ForgottenRequests { forgotten })),
        Err(ForgetError::Store(error)) => Err(error.into()),
        Err(ForgetError::Own(error)) => Err(ApiError::internal(error)),
    }
}

/// Shows what switching to the shadow of a catalog would change, by second answers to live searches. Needs
/// an admin key for the catalog, and a server with the table `shadow` in its settings.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/usage/shadow", operation_id = "show_shadow", tag = "usage",
    params(("catalog" = String, Path, description = "The catalog's name"), ShadowParams),
    responses((status = 200, body = ShadowAnswer, description = "The figures"))
)]
pub async fn shadow(
    Writing(catalog): Writing,
    State(reports): State<UsageReports>,
    QueryString(params): QueryString<ShadowParams>,
) -> ApiResult<Json<ShadowAnswer>> {
    let reader = reports.reader(params.since_days)?;
    let shadow = match reader.shadow_of(&catalog.name) {
        Some(shadow) => shadow.clone(),
        None => {
            let message = format!(
                "no shadow of the catalog {:?}; the table [shadow] of the server's settings describes one",
                catalog.name
            );
            return Err(ApiError::not_found("no_shadow", message));
        }
    };
    let answer = blocking(move || reader.shadow(&shadow)).await?;
    Ok(Json(answer.map_err(ApiError::internal)?))
}

/// Shows the use of all catalogs by day, catalog, profile and key. Needs an admin key for all catalogs.
#[utoipa::path(
    get, path = "/v1/usage", operation_id = "usage_overview", tag = "usage",
    params(OverviewParams),
    responses((status = 200, body = UsageOverview, description = "The use"))
)]
pub async fn overview(
    grant: Grant,
    State(reports): State<UsageReports>,
    QueryString(params): QueryString<OverviewParams>,
) -> ApiResult<Json<UsageOverview>> {
    grant.operates()?;
    let reader = reports.reader(params.since_days)?;
    let overview = blocking(move || reader.overview()).await?;
    Ok(Json(overview.map_err(ApiError::internal)?))
}

/// Reads what is recorded, through a connection of its own. Its methods block.
struct Reader {
    recorder: Recorder,
    data: PathBuf,
    store: Option<Arc<dyn SharedStore>>,
    period: Period,
}

/// Reads what is recorded of the use of tools. Cheap to clone.
#[derive(Clone)]
pub struct UsageReports {
    /// Records it on this node.
    pub recorder: Recorder,
    /// Their data directory has the record.
    pub catalogs: Arc<ServedCatalogs>,
    /// Has the records of the other nodes.
    pub store: Option<Arc<dyn SharedStore>>,
}

impl UsageReports {
    /// A reader of so many days.
    fn reader(self, since_days: Option<u32>) -> ApiResult<Reader> {
        let days = since_days.unwrap_or(DEFAULT_DAYS);
        if !(1..=MAX_DAYS).contains(&days) {
            let message = format!("since_days is {days}, it must be from 1 to {MAX_DAYS}");
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        Ok(Reader {
            recorder: self.recorder,
            data: self.catalogs.data().to_owned(),
            store: self.store,
            // Use is recorded by whole days.
            period: Period::last(days, day_of(unix_ms(SystemTime::now()))),
        })
    }
}

impl Reader {
    fn shadow_of(&self, catalog: &str) -> Option<&Shadow> {
        let shadow = self.recorder.shadow()?;
        (shadow.identity().catalog == catalog).then_some(shadow)
    }

    /// What was recorded until now, on all nodes.
    fn usage(&self) -> Result<UsageOfNodes, UsageError> {
        // The recorder writes in batches, so the last uses may still be in memory.
        self.recorder.flush();
        let own = UsageDatabase::open_existing(&self.data)?;
        UsageOfNodes::new(own, self.store.clone(), self.period)
    }

    /// After the figures were read: until then the store may turn out to be away.
    fn record(&self, usage: &UsageOfNodes) -> UseRecord {
        UseRecord {
            enabled: self.recorder.is_on(),
            period: usage.recorded(),
            counted: usage.counted().clone(),
            dropped: self.recorder.dropped(),
        }
    }

    fn shadow(&self, shadow: &Shadow) -> Result<ShadowAnswer, UsageError> {
        let mut usage = self.usage()?;
        // Read before the figures, so that searches that stop waiting are in the figures.
        let now = ShadowNow::of(shadow);
        let today = day_of(unix_ms(SystemTime::now()));
        let own = shadow.figures(usage.own(), self.period.since, today)?;
        let identity = shadow.identity();
        let days = usage.with_others(&identity.catalog, &identity.id, own);
        Ok(ShadowAnswer {
            record: self.record(&usage),
            report: ShadowReport::of(identity, &days),
            now,
        })
    }

    fn page(
        &self,
        catalog: &str,
        server: Option<&str>,
        sort: Order,
        after: Option<String>,
        limit: usize,
    ) -> ApiResult<UsagePage> {
        let mut usage = self.usage().map_err(ApiError::internal)?;
        let mut tools = usage.tools(catalog).map_err(ApiError::internal)?;
        // Filtered before the sum, so that the totals are those of this server.
        tools.retain(|tool, _| is_of_server(tool, server));
        let totals = report::total(tools.values());
        let tools = report::sorted(tools, sort);
        let start = start_after(tools.iter().map(|(tool, _)| tool), after.as_ref())?;
        let mut shown = Vec::new();
        for (tool, figures) in tools.iter().skip(start).take(limit) {
            shown.push(ToolUse::of(Some(tool.clone()), figures));
        }
        let has_more = start + shown.len() < tools.len();
        Ok(UsagePage {
            record: self.record(&usage),
            next_cursor: match shown.last() {
                Some(last) if has_more => last.tool.as_ref().map(paging::cursor_after),
                _ => None,
            },
            tools: shown,
            total: tools.len(),
            totals: ToolUse::of(None, &totals),
            has_shadow: self.shadow_of(catalog).is_some(),
        })
    }

    fn unused(
        &self,
        catalog: &str,
        searcher: &Searcher,
        server: Option<&str>,
        after: Option<String>,
        limit: usize,
    ) -> Result<UnusedPage, UsageError> {
        let mut usage = self.usage()?;
        let used = usage.tools(catalog)?;
        let tools = searcher.tools();
        let tools = tools.filter(|tool| server.is_none_or(|server| tool.id.server() == server));
        let unused = Unused::of(tools, &used);
        // The tools are sorted by id, so the page is found even if the tool before it is gone.
        let start = match after {
            Some(after) => unused.tools.partition_point(|tool| tool.tool <= after),
            None => 0,
        };
        let shown = unused.tools.iter().skip(start).take(limit);
        let shown: Vec<UnusedTool> = shown.cloned().collect();
        let has_more = start + shown.len() < unused.tools.len();
        Ok(UnusedPage {
            record: self.record(&usage),
            next_cursor: match shown.last() {
                Some(last) if has_more => Some(paging::cursor_after(&last.tool)),
                _ => None,
            },
            tools: shown,
            total: unused.tools.len(),
            all_tools: unused.all_tools,
            definition_tokens: unused.definition_tokens,
            tokens_estimated: unused.are_tokens_estimated,
            servers: unused.servers,
        })
    }

    fn missed(&self, catalog: &str, after: Option<String>, limit: usize) -> ApiResult<MissedPage> {
        let mut usage = self.usage().map_err(ApiError::internal)?;
        let requests = usage.missed(catalog).map_err(ApiError::internal)?;
        let missed = Missed::of(&requests, &*StaticTable::bundled()?);
        let texts = missed.groups.iter().map(|group| &group.request);
        let start = start_after(texts, after.as_ref())?;
        let groups = missed.groups.iter().skip(start).take(limit);
        let groups: Vec<MissedGroup> = groups.cloned().collect();
        let has_more = start + groups.len() < missed.groups.len();
        let stores_queries = self.recorder.stores_queries();
        Ok(MissedPage {
            record: self.record(&usage),
            stores_queries,
            advice: (!stores_queries).then_some(QUERIES_ARE_OFF),
            next_cursor: match groups.last() {
                Some(last) if has_more => Some(paging::cursor_after(&last.request)),
                _ => None,
            },
            groups,
            total: missed.groups.len(),
            requests: missed.requests,
            left_out: missed.left_out,
        })
    }

    fn overview(&self) -> Result<UsageOverview, UsageError> {
        let mut usage = self.usage()?;
        let rows = usage.callers()?;
        let mut totals = CallerFigures::default();
        for row in &rows {
            totals.add(&row.figures);
        }
        let mut days = summed(&rows, |row| row.day);
        // Newest first. The sums below are sorted by key, and that order stays for equal use.
        days.sort_by_key(|(day, _)| std::cmp::Reverse(*day));
        let catalogs = busiest(summed(&rows, |row| row.key.catalog.clone()));
        let mut callers = busiest(summed(&rows, |row| row.key.clone()));
        let total_callers = callers.len();
        // Callers that are left out here still count in the days and catalogs.
        callers.truncate(MAX_CALLERS);
        Ok(UsageOverview {
            record: self.record(&usage),
            totals: totals.into(),
            days: days.into_iter().map(use_of_day).collect(),
            catalogs: catalogs.into_iter().map(use_of_catalog).collect(),
            callers: callers.into_iter().map(use_of_caller).collect(),
            total_callers,
        })
    }
}

fn use_of_day((day, figures): (i64, CallerFigures)) -> UseOfDay {
    UseOfDay {
        day: date(day),
        counts: figures.into(),
    }
}

fn use_of_catalog((catalog, figures): (String, CallerFigures)) -> UseOfCatalog {
    UseOfCatalog {
        catalog,
        counts: figures.into(),
    }
}

fn use_of_caller((key, figures): (CallerKey, CallerFigures)) -> UseOfCaller {
    UseOfCaller {
        catalog: key.catalog,
        profile: match key.profile.is_empty() {
            true => None,
            false => Some(key.profile),
        },
        caller: key.who,
        counts: figures.into(),
    }
}

/// Where the page after this item begins.
///
/// # Errors
/// 400 if the item is gone: the order of the list does not tell where it was.
fn start_after<'a>(
    mut all: impl Iterator<Item = &'a String>,
    after: Option<&String>,
) -> ApiResult<usize> {
    let Some(after) = after else { return Ok(0) };
    match all.position(|item| item == after) {
        Some(place) => Ok(place + 1),
        None => Err(ApiError::invalid(
            StatusCode::BAD_REQUEST,
            "invalid_cursor",
            "the last item of the page before is no longer in this list; begin again without a cursor",
        )),
    }
}

fn is_of_server(tool: &str, server: Option<&str>) -> bool {
    match server {
        Some(server) => ToolId::parse(tool).is_ok_and(|id| id.server() == server),
        None => true,
    }
}

impl ShadowNow {
    fn of(shadow: &Shadow) -> Self {
        let state = shadow.state();
        ShadowNow {
            state: state.as_str(),
            generation: shadow.generation(),
            waiting: shadow.waiting(),
            dropped: shadow.dropped(),
            cpu_ms: millis(shadow.cpu()),
            problem: match state {
                ShadowState::Failed(reason) => Some(reason),
                ShadowState::Waiting | ShadowState::Making | ShadowState::Ready => None,
            },
        }
    }
}

/// The figures of all rows with the same key.
fn summed<K: Ord>(rows: &[CallerDay], key: impl Fn(&CallerDay) -> K) -> Vec<(K, CallerFigures)> {
    let mut sums = std::collections::BTreeMap::<K, CallerFigures>::new();
    for row in rows {
        sums.entry(key(row)).or_default().add(&row.figures);
    }
    sums.into_iter().collect()
}

fn busiest<K>(mut sums: Vec<(K, CallerFigures)>) -> Vec<(K, CallerFigures)> {
    sums.sort_by_key(|(_, figures)| std::cmp::Reverse(figures.searches + figures.calls));
    sums
}

impl From<CallerFigures> for UseCounts {
    fn from(figures: CallerFigures) -> Self {
        UseCounts {
            searches: figures.searches,
            good: figures.good,
            possible: figures.possible,
            none: figures.none,
            calls: figures.calls,
            errors: figures.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_after_an_item_that_is_gone_is_an_error() {
        let all = ["a".to_owned(), "b".to_owned()];
        let start = |after: Option<&str>| {
            let after = after.map(str::to_owned);
            start_after(all.iter(), after.as_ref()).map_err(|error| error.code)
        };
        assert_eq!(start(None), Ok(0));
        assert_eq!(start(Some("a")), Ok(1));
        assert_eq!(start(Some("b")), Ok(2));
        assert_eq!(start(Some("c")), Err("invalid_cursor"));
    }
}
