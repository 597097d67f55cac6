//! Search in a catalog by `POST` and `GET`, and in the default catalog.

pub mod feedback;
mod wire;

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::State;
use serde_json::{Value, json};
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Hit, Query, Results, Searcher, Tool, ToolId, search_options_of};
use tracing::{Instrument as _, Span};

use self::feedback::{Feedback, identity};
use super::access::{Grant, Reading};
use super::served::OpenCatalog;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, QueryString};
use crate::request::id::RequestId;
use crate::served::tokens::{Source, TokenSavings};
use toolscout_base::budget;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::telemetry::{Metrics, traces};
use toolscout_gate::usage::shadow::{ComparedSearch, Shown};
use toolscout_gate::usage::{Origin, Place, Recorder, SearchUse};
use toolscout_state::feedback::{SearchContext, Signer};
use wire::{
    BudgetReport, DegradedReport, NoMatchReport, SearchAnswer, SearchHit, SearchParams, TookMs,
    ToolName,
};

pub use wire::{SearchFilter, SearchRequest};

/// What a search needs besides its catalog. Cheap to clone.
#[derive(Clone)]
pub struct SearchParts {
    /// Where it runs.
    pub cpu_pool: CpuPool,
    /// Signs its answer, so that feedback can refer to it.
    pub feedback: Arc<Feedback>,
    /// Count it.
    pub metrics: Arc<Metrics>,
    /// Records it.
    pub usage: Recorder,
    /// Counts the tokens that it saves.
    pub token_savings: TokenSavings,
}

/// Searches a catalog.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/search", tag = "search",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = SearchRequest,
    responses((status = 200, body = SearchAnswer, description = "The hits, best first"))
)]
pub async fn search(
    grant: Grant,
    Reading(catalog): Reading,
    State(parts): State<SearchParts>,
    RequestId(request_id): RequestId,
    Json(request): Json<SearchRequest>,
) -> ApiResult<Json<SearchAnswer>> {
    let min_generation = request.min_generation;
    let prepared = PreparedSearch::new(request)?;
    if let Some(generation) = min_generation {
        catalog.reach(generation).await?;
    }
    let searcher = catalog.searcher_for(&prepared.query).await?;
    let recorded = RecordedSearch::begin(&parts, &grant, &catalog, &prepared, &request_id);
    let store_is_away = catalog.store_problem().is_some();
    let signer = parts.feedback.signer();
    let span = recorded.span.clone();
    let run = move || {
        let context = SearchContext {
            catalog: [&catalog.name, identity(&searcher)],
            key: grant.key(),
            request_id: &request_id,
        };
        prepared.run(&searcher, &signer, &context)
    };
    let outcome = parts.cpu_pool.run(run).instrument(span).await;
    let (mut answer, results) =
        outcome.inspect_err(|_| parts.metrics.rejected("search_queue"))??;
    if answer.degraded.is_none() && store_is_away {
        answer.degraded = Some(DegradedReport::store_unreachable(&recorded.served));
    }
    recorded.finish(&parts, &answer, &results);
    Ok(Json(answer))
}

/// What metrics, traces, the record of use and the shadow need of a search.
struct RecordedSearch {
    origin: Origin,
    /// The texts of the queries, if they are recorded.
    queries: Vec<String>,
    /// The query with the id of its request, if a shadow answers it too.
    compared: Option<(Query, String)>,
    format: Option<Emit>,
    is_trial: bool,
    /// The newest snapshot, which has all tools.
    served: Arc<Searcher>,
    span: Span,
}

impl RecordedSearch {
    fn begin(
        parts: &SearchParts,
        grant: &Grant,
        catalog: &OpenCatalog,
        prepared: &PreparedSearch,
        request_id: &str,
    ) -> Self {
        let place = Place {
            catalog: Some(catalog.name.clone()),
            profile: None,
        };
        let mut compared = None;
        if !prepared.is_trial && parts.usage.is_compared(&place) {
            compared = Some((prepared.query.clone(), request_id.to_owned()));
        }
        RecordedSearch {
            origin: grant.origin(place),
            queries: parts.usage.queries(prepared.query.texts()),
            compared,
            format: prepared.output.as_ref().map(|output| output.format),
            is_trial: prepared.is_trial,
            served: catalog.searcher(),
            span: traces::search_span(),
        }
    }

    fn finish(self, parts: &SearchParts, answer: &SearchAnswer, results: &Results) {
        parts.metrics.search(results);
        if self.is_trial {
            return;
        }
        if let Some(query) = self.compared {
            parts
                .usage
                .compare(compared(self.origin.clone(), query, results));
        }
        let format = self.format;
        parts
            .usage
            .searched(search_use(self.origin, self.queries, results, format));
        if let Some(format) = format {
            let tools = results.hits.iter().filter(|hit| hit.kind.is_tool());
            let tools = tools.map(|hit| hit.tool.shared());
            let shown = answer.budget.as_ref().map(|budget| budget.tokens);
            parts
                .token_savings
                .count(Source::Search, self.served, tools.collect(), format, shown);
        }
        traces::record_search(&self.span, results);
    }
}

/// Searches a catalog, for links and shells.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/search", tag = "search",
    params(("catalog" = String, Path, description = "The catalog's name"), SearchParams),
    responses((status = 200, body = SearchAnswer, description = "The hits, best first"))
)]
pub async fn search_by_query(
    grant: Grant,
    catalog: Reading,
    state: State<SearchParts>,
    id: RequestId,
    QueryString(params): QueryString<SearchParams>,
) -> ApiResult<Json<SearchAnswer>> {
    search(grant, catalog, state, id, Json(params.into())).await
}

/// Searches the default catalog.
#[utoipa::path(
    post, path = "/v1/search", operation_id = "search_default_catalog", tag = "search",
    request_body = SearchRequest,
    responses((status = 200, body = SearchAnswer, description = "The hits, best first"))
)]
pub async fn search_default(
    grant: Grant,
    catalog: Reading,
    state: State<SearchParts>,
    id: RequestId,
    request: Json<SearchRequest>,
) -> ApiResult<Json<SearchAnswer>> {
    search(grant, catalog, state, id, request).await
}

/// What is recorded of a search.
fn search_use(
    origin: Origin,
    queries: Vec<String>,
    results: &Results,
    format: Option<Emit>,
) -> SearchUse {
    // Prompts, resources, skills and agents are not used as tools are.
    let found = || results.hits.iter().filter(|hit| hit.kind.is_tool());
    let first = found().next().map(|hit| &hit.id);
    let suggested = results.no_match.as_ref().map(|none| &none.nearest);
    let nearest = first.or_else(|| suggested?.first());
    let tools = || found().map(|hit| hit.tool.shared()).collect();
    let none = results.no_match.as_ref();
    let says_nothing = none.is_some_and(|none| none.reason.is_of_request());
    let queries = match says_nothing {
        true => Vec::new(),
        false => queries,
    };
    SearchUse {
        origin,
        matched: results.matched,
        nearest: nearest.cloned(),
        hits: found().map(|hit| hit.id.clone()).collect(),
        more: Vec::new(),
        sent: format.map(|format| (format, tools())),
        queries,
    }
}

/// What is handed over for a second answer, of a query with the id of its request.
fn compared(
    origin: Origin,
    (query, request): (Query, String),
    results: &Results,
) -> ComparedSearch {
    let shown = |results: &Results| Shown {
        hits: results.hits.iter().map(|hit| hit.id.clone()).collect(),
        more: Vec::new(),
    };
    ComparedSearch {
        origin,
        request: Some(request),
        shown: shown(results),
        repeat: Box::new(move |second| Some(shown(&second.answer(query)?))),
    }
}

/// A validated search.
struct PreparedSearch {
    query: Query,
    output: Option<Output>,
    is_trial: bool,
}

/// The format of the found tools.
struct Output {
    format: Emit,
    max_tokens: Option<usize>,
    call_id: Option<String>,
}

impl PreparedSearch {
    fn new(request: SearchRequest) -> ApiResult<Self> {
        let output = Output::new(&request)?;
        let is_trial = request.trial;
        let query = query_of(request)?;
        Ok(PreparedSearch {
            query,
            output,
            is_trial,
        })
    }

    fn run(
        self,
        searcher: &Searcher,
        signer: &Signer,
        context: &SearchContext<'_>,
    ) -> ApiResult<(SearchAnswer, Results)> {
        let results = searcher.search(&self.query)?;
        // Folded duplicates count as hits: feedback may name the one that was called.
        let ids = results
            .hits
            .iter()
            .flat_map(|hit| [&hit.id].into_iter().chain(&hit.also_on))
            .map(ToolId::as_str);
        let feedback_token = signer.token(context, self.query.texts(), ids, SystemTime::now());
        let written = self.output.map(|output| output.write(&results.hits));
        let (tools, tool_names, budget) = match written {
            Some((tools, names, budget)) => (Some(tools), names, budget),
            None => (None, Vec::new(), None),
        };
        let answer = SearchAnswer {
            hits: results.hits.iter().map(SearchHit::from).collect(),
            tools,
            tool_names,
            budget,
            took_ms: TookMs::from(&results.timings),
            mode: results.mode,
            variant: results.variant,
            embedders: results.embedders.clone(),
            degraded: results.degraded.as_ref().map(DegradedReport::from),
            matched: results.matched,
            advice: results.advice().to_owned(),
            unmatched: results.unmatched.clone(),
            better_hidden: results.better_hidden,
            no_match: results.no_match.as_ref().map(NoMatchReport::from),
            confidence: results.confidence,
            generation: results.generation,
            request_id: context.request_id.to_owned(),
            feedback_token,
        };
        Ok((answer, results))
    }
}

/// The query of a request.
///
/// # Errors
/// 422 for a value out of its range.
pub fn query_of(request: SearchRequest) -> ApiResult<Query> {
    let options = search_options_of!(request);
    // `matched_queries` of the hits are positions in this order.
    let texts = request.query.into_iter().chain(request.queries);
    let mut query = Query::any_of(texts)
        .options(options)
        .filter(request.filter.into());
    if request.whole {
        query = query.whole();
    }
    if request.ranker == Some(false) {
        query = query.without_ranker();
    }
    if let Some(budget_ms) = request.budget_ms {
        query = query.budget_ms(budget_ms);
    }
    if request.explain {
        query = query.explain();
    }
    query.validate()?;
    Ok(query)
}

impl Output {
    fn new(request: &SearchRequest) -> ApiResult<Option<Self>> {
        let (call_id, max_tokens) = (request.call_id.clone(), request.max_tokens);
        let allowed = budget::MIN_TOKENS..=budget::MAX_TOKENS;
        match (request.format, max_tokens) {
            (None, Some(_)) => Err(ApiError::unprocessable(
                "missing_format",
                "max_tokens limits `tools`, which needs a format; set `format` too",
            )),
            (_, Some(tokens)) if !allowed.contains(&tokens) => {
                let (least, most) = (allowed.start(), allowed.end());
                let message = format!("max_tokens is {tokens}, it must be from {least} to {most}");
                Err(ApiError::unprocessable("invalid_value", message))
            }
            (format, _) => Ok(format.map(|format| Output {
                format,
                max_tokens,
                call_id,
            })),
        }
    }

    fn write(self, hits: &[Hit]) -> (Value, Vec<ToolName>, Option<BudgetReport>) {
        // A model can call nothing else.
        let tools = hits.iter().filter(|hit| hit.kind.is_tool());
        let tools: Vec<Arc<Tool>> = tools.map(|hit| hit.tool.shared()).collect();
        let emit = self.format;
        let Some(max_tokens) = self.max_tokens else {
            let all: Vec<&Tool> = tools.iter().map(Arc::as_ref).collect();
            let names = ToolName::of_all(tools.iter().map(|tool| &tool.id));
            return (self.wrap(formats::emit(&all, emit)), names, None);
        };
        let fitted = budget::fit(&tools, emit, max_tokens);
        let ids = tools.iter().map(|tool| &tool.id);
        let names = ToolName::of_all(ids.filter(|id| !fitted.omitted.contains(id)));
        let report = BudgetReport::from(&fitted);
        (self.wrap(fitted.value), names, Some(report))
    }

    /// For the OpenAI Responses API, the output item of a client-side tool search.
    fn wrap(self, tools: Value) -> Value {
        match (self.format, self.call_id) {
            (Emit::OpenaiResponses, Some(call_id)) => json!({
                "type": "tool_search_output",
                "execution": "client",
                "call_id": call_id,
                "status": "completed",
                "tools": tools,
            }),
            _ => tools,
        }
    }
}
