//! Lets the server's model write what people say when they need a tool: how far a catalog is, the work
//! as a task or by itself, and what the texts are worth.

pub mod account;
mod auto;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use toolscout_index::{Query, Searcher};
use utoipa::ToSchema;

use crate::access::{Grant, Reading, Writing};
use crate::process::shutdown::Shutdown;
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, QueryString};
use crate::served::ServedCatalogs;
use crate::served::held::HeldText;
use crate::tasks::{self, Tasks};
use account::{Account, busy};
use toolscout_base::config::{EnrichMode, EnrichSettings};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::enrich::measure::{FOUND_WITHIN, Measured, measure};
use toolscout_finder::enrich::wanted::Wanted;
use toolscout_finder::enrich::{self, Batch, DEFAULT_BATCH};
use toolscout_gate::llm::ChatModel;
use toolscout_state::keys::Scope;
use toolscout_state::shared::{SharedStore, TextsOf};
use work::Work;

pub use auto::write_by_itself;

/// Most tools of a task.
const MAX_TOOLS: usize = 20_000;
/// After this time no further tool is measured. A request may take twice as long.
const MEASURING_TIME: Duration = Duration::from_secs(30);
/// Most tools that are measured of a catalog that is pushed down. Each is searched for twice, in some 20
/// milliseconds.
const MAX_MEASURED_IN_STORE: usize = 200;

/// The model that writes, and what it may.
pub struct Enriching {
    /// `None` where the server has no model.
    model: Option<Arc<dyn ChatModel>>,
    /// When texts are written, and how many tokens that may take.
    settings: EnrichSettings,
    /// The texts of each tool, where a request says nothing else.
    wanted: Wanted,
    /// What was spent.
    account: Account,
}

impl Enriching {
    /// Writes with this model as the settings say. What was spent is in the data directory, or in the
    /// store.
    ///
    /// # Errors
    /// For languages that there are not.
    pub fn new(
        model: Option<Arc<dyn ChatModel>>,
        settings: EnrichSettings,
        data: &Path,
        store: Option<&Arc<dyn SharedStore>>,
    ) -> anyhow::Result<Self> {
        match Wanted::new(None, &settings.languages) {
            Ok(wanted) => Ok(Enriching {
                model,
                settings,
                wanted,
                account: Account::new(data, store),
            }),
            Err(problem) => Err(anyhow!("enrich.languages: {problem}")),
        }
    }

    /// The tokens that are left of this day; `None` where there is no bound.
    fn left(&self, spent: usize) -> Option<usize> {
        let most = self.settings.tokens_a_day?;
        Some((most as usize).saturating_sub(spent))
    }

    /// The model, where it may write on request.
    fn model(&self) -> ApiResult<&Arc<dyn ChatModel>> {
        if self.settings.mode() == EnrichMode::Off {
            return Err(not_offered(
                "enrich_off",
                "the settings of this server turn writing of texts off (`enrich.mode = \"off\"`); texts can still be \
                 read and stored",
            ));
        }
        match &self.model {
            Some(model) => Ok(model),
            None => Err(not_offered(
                "no_model",
                "this server has no language model; start it with --llm and --model, or let any assistant answer GET \
                 /v1/catalogs/{catalog}/questions",
            )),
        }
    }
}

/// What writing texts takes. Cheap to clone.
#[derive(Clone)]
pub struct TextWriter {
    /// The model, and what it may spend.
    pub enriching: Arc<Enriching>,
    /// The catalogs that texts are written for.
    pub catalogs: Arc<ServedCatalogs>,
    /// Ends what is written.
    pub shutdown: Shutdown,
}

fn not_offered(code: &'static str, message: &str) -> ApiError {
    ApiError::invalid(StatusCode::CONFLICT, code, message)
}

/// How far the texts of a catalog are.
#[derive(Debug, Serialize, ToSchema)]
pub struct EnrichState {
    /// `off`, `ask` or `auto`: when this server's model writes texts.
    #[schema(value_type = String, example = "ask")]
    mode: EnrichMode,
    /// The model that writes; absent where the server has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Tools of the catalog.
    tools: usize,
    /// Tools with texts for their present definitions.
    with_texts: usize,
    /// Texts that dense search does not use yet, and other texts that are not embedded.
    pending_embeddings: usize,
    /// Tokens that this server, or all nodes of its store, may spend in a day; absent where there is no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_a_day: Option<u64>,
    /// Tokens that were spent since midnight, UTC.
    tokens_today: usize,
    /// Texts that the model wrote since the catalog was opened, that speak of other servers' tools, and that nobody has
    /// read. They are not stored.
    held: usize,
    /// The first of them, at most 20.
    held_texts: Vec<HeldText>,
}

/// Which tools texts are written for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnrichRequest {
    /// Only tools of these servers; all where it is empty.
    servers: Vec<String>,
    /// Most tools; 20,000 at most.
    #[schema(minimum = 1, maximum = 20000)]
    limit: Option<usize>,
    /// Texts of each tool, in each language; 3, or as many as fit.
    #[schema(minimum = 1, maximum = 8)]
    texts: Option<usize>,
    /// The languages of the texts, as codes or names; those of the settings where it is empty, else English.
    #[schema(example = json!(["en", "de"]))]
    languages: Vec<String>,
    /// True answers with what it would take, and sends nothing.
    dry_run: bool,
}

impl EnrichRequest {
    /// The texts that are asked for.
    fn wanted(&self, usual: &Wanted) -> ApiResult<Wanted> {
        // 0 must be a mistake: the task would succeed and do nothing.
        if let Some(limit) = self.limit
            && !(1..=MAX_TOOLS).contains(&limit)
        {
            let message = format!("limit is {limit}, it must be from 1 to {MAX_TOOLS}");
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        if self.texts.is_none() && self.languages.is_empty() {
            return Ok(usual.clone());
        }
        match Wanted::new(self.texts, &self.languages) {
            Ok(wanted) => Ok(wanted),
            Err(error) => Err(ApiError::unprocessable("invalid_value", error.to_string())),
        }
    }

    fn most(&self) -> usize {
        self.limit.unwrap_or(MAX_TOOLS)
    }

    /// The tools that may be asked about.
    fn tools(&self) -> TextsOf {
        TextsOf {
            servers: self.servers.clone(),
            have_texts: Some(false),
            limit: self.most(),
            ..TextsOf::default()
        }
    }

    /// The requests about the tools without texts.
    fn batches(&self, searcher: &Searcher, wanted: &Wanted) -> Vec<Batch> {
        let mut tools = enrich::missing(searcher, &self.servers);
        tools.truncate(self.most());
        enrich::batches(&tools, DEFAULT_BATCH, wanted)
    }
}

/// What writing texts would take.
#[derive(Debug, Serialize, ToSchema)]
pub struct EnrichEstimate {
    /// Tools without texts.
    tools: usize,
    /// Requests to the model.
    requests: usize,
    /// Tokens sent, by the o200k encoding.
    tokens_in: usize,
    /// Tokens of the answers, estimated; models that think take more.
    tokens_out: usize,
}

/// Which tools are measured.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct MeasureParams {
    /// Only tools of this server.
    server: Option<String>,
}

/// What texts are worth: one text of each tool with texts is kept aside and searched for.
#[derive(Debug, Serialize, ToSchema)]
pub struct EnrichMeasure {
    /// Tools that were measured: at most 1,000, and as many as 30 seconds allow.
    tools: usize,
    /// Hits that count as found.
    found_within: usize,
    /// Tools that were found, with all other texts.
    with_texts: usize,
    /// Tools that were found without any text.
    without_texts: usize,
    /// Tools that were the first hit, with all other texts.
    first_with_texts: usize,
    /// Tools that were the first hit, without any text.
    first_without_texts: usize,
    /// The tools that are farthest from what people would say, the farthest first.
    worst: Vec<FarTool>,
}

/// A tool that its text does not find.
#[derive(Debug, Serialize, ToSchema)]
pub struct FarTool {
    /// The tool's id.
    id: String,
    /// What was searched for.
    text: String,
    /// Its place among the hits, from 1; absent beyond the first 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<usize>,
    /// The id of the first hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
}

impl From<Measured> for EnrichMeasure {
    fn from(measured: Measured) -> Self {
        let mut worst = Vec::with_capacity(measured.worst.len());
        for far in measured.worst {
            worst.push(FarTool {
                id: far.id.to_string(),
                text: far.text,
                place: far.place,
                first: far.first.map(|id| id.to_string()),
            });
        }
        EnrichMeasure {
            tools: measured.tools,
            found_within: FOUND_WITHIN,
            with_texts: measured.with_texts,
            without_texts: measured.without_texts,
            first_with_texts: measured.first_with_texts,
            first_without_texts: measured.first_without_texts,
            worst,
        }
    }
}

/// Shows how many tools of a catalog have texts, and what may be spent on further ones.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/enrich", operation_id = "enrich_state", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name")),
    responses((status = 200, body = EnrichState, description = "The state"))
)]
pub async fn state(
    Reading(catalog): Reading,
    State(TextWriter { enriching, .. }): State<TextWriter>,
    State(cpu_pool): State<CpuPool>,
) -> ApiResult<Json<EnrichState>> {
    // The bound is for all catalogs together, so the tokens of all of them count.
    let tokens_today = enriching.account.spent().await?;
    let (held, held_texts) = catalog.held.all();
    Ok(Json(EnrichState {
        mode: enriching.settings.mode(),
        model: enriching
            .model
            .as_ref()
            .map(|model| model.name().to_owned()),
        tools: catalog.tool_count(),
        with_texts: catalog.count_texts(&cpu_pool).await?,
        pending_embeddings: catalog.searcher().pending_embeddings(),
        tokens_a_day: enriching.settings.tokens_a_day,
        tokens_today,
        held,
        held_texts,
    }))
}

/// Lets the server's model write texts for the tools that have none, as a task.
///
/// The task's `done` counts tools that the model was asked about, and `result.changed` those whose texts are
/// stored; its `failures` say why others have none. Besides `admin`, the key needs the scope `llm`, since the tokens
/// are paid for by whoever runs the server; an admin key for all catalogs has it. `dry_run` needs no `llm`.
#[utoipa::path(
    post, path = "/v1/catalogs/{catalog}/enrich", operation_id = "enrich_catalog", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name")),
    request_body = EnrichRequest,
    responses(
        (status = 200, body = EnrichEstimate, description = "With `dry_run`: what it would take"),
        (status = 202, body = tasks::TaskBody, description = "The task that writes texts")
    )
)]
pub async fn start(
    grant: Grant,
    Writing(catalog): Writing,
    State(writer): State<TextWriter>,
    State(cpu_pool): State<CpuPool>,
    State(tasks): State<Arc<Tasks>>,
    Json(request): Json<EnrichRequest>,
) -> ApiResult<Response> {
    let wanted = request.wanted(&writer.enriching.wanted)?;
    // Before anything is paid for that cannot be stored.
    catalog.keeps_texts()?;
    if request.dry_run {
        let searcher = catalog.with_texts(request.tools()).await?;
        // Counting the tokens of all definitions takes a while.
        let estimate = cpu_pool.run(move || estimate(&request.batches(&searcher, &wanted)));
        return Ok(Json(estimate.await?).into_response());
    }
    // A dry run sends nothing, so only from here on the key needs `llm`.
    let model = Arc::clone(writer.enriching.model()?);
    grant.allows(Scope::Llm)?;
    // Reserved before the tools are read, so that two requests do not ask about the same tools.
    let reserved = writer.enriching.account.reserve().ok_or_else(busy)?;
    let searcher = catalog.with_texts(request.tools()).await?;
    let batches = cpu_pool.run(move || request.batches(&searcher, &wanted));
    let batches = batches.await?;
    // Progress is counted in tools, of which a batch has several.
    let total = batches.iter().map(|batch| batch.tools.len()).sum();
    let work = Work {
        writer,
        catalog: Arc::clone(&catalog),
        model,
        batches,
        reserved,
    };
    let task = tasks.start(&catalog.name, total, |task| work.run_as_task(task))?;
    Ok(tasks.accepted(&task).await)
}

/// Measures what the texts of a catalog are worth, and names the tools whose descriptions help least.
#[utoipa::path(
    get, path = "/v1/catalogs/{catalog}/enrich/measure", operation_id = "measure_texts", tag = "texts",
    params(("catalog" = String, Path, description = "The catalog's name"), MeasureParams),
    responses((status = 200, body = EnrichMeasure, description = "The figures"))
)]
pub async fn measured(
    Writing(catalog): Writing,
    State(cpu_pool): State<CpuPool>,
    State(shutdown): State<Shutdown>,
    QueryString(params): QueryString<MeasureParams>,
) -> ApiResult<Json<EnrichMeasure>> {
    let servers: Vec<String> = params.server.into_iter().collect();
    let read = catalog.with_texts(TextsOf {
        servers: servers.clone(),
        have_texts: Some(true),
        is_sample: true,
        limit: MAX_MEASURED_IN_STORE,
        ..TextsOf::default()
    });
    let read = read.await?;
    let measured = cpu_pool.run(move || {
        let searcher_for = |query: &Query| catalog.wait_for_searcher(query);
        // The time starts here, since the request may have waited for a thread.
        let end = Instant::now() + MEASURING_TIME;
        measure(&read, &servers, searcher_for, |_| {
            !shutdown.is_triggered() && Instant::now() < end
        })
    });
    Ok(Json(measured.await??.into()))
}

fn estimate(batches: &[Batch]) -> EnrichEstimate {
    let tokens = enrich::estimate(batches);
    EnrichEstimate {
        tools: batches.iter().map(|batch| batch.tools.len()).sum(),
        requests: batches.len(),
        tokens_in: tokens.input,
        tokens_out: tokens.output,
    }
}
