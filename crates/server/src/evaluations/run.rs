//! Makes an evaluation: one search after the other on the pool of all searches, so that those of
//! other clients come in between.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use toolscout_index::{Results, Searcher, Timings, Tool};
use uuid::Uuid;

use super::Evaluations;
use super::files::Evaluated;
use super::wire::{ArmFigures, ArmSettings, Evaluation, EvaluationSource, QueryCounts, stages};
use crate::request::error::{ApiError, ApiResult, unknown_catalog};
use crate::request::threads::blocking;
use crate::served::OpenCatalog;
use crate::tasks::Task;
use toolscout_base::clock::unix_ms;
use toolscout_eval::EvalSet;
use toolscout_eval::answered::{Answer, AnsweredQuery, figures, fingerprint};
use toolscout_eval::dataset::pasted::PastedQuery;
use toolscout_eval::latency::Latency;
use toolscout_eval::measure::ranker_has_seen;
use toolscout_eval::metrics::{Metric, headline};

const ARM_NAMES: [&str; 2] = ["a", "b"];
/// The wait before a search that a busy server has refused is tried again.
const BUSY_WAIT: Duration = Duration::from_millis(500);
/// How often one search is tried on a busy server: five minutes.
const MAX_TRIES: usize = 600;

/// An evaluation to make.
pub struct Plan {
    id: Uuid,
    name: String,
    created_at_ms: i64,
    /// One snapshot for all searches, whatever is written meanwhile.
    searcher: Arc<Searcher>,
    queries: Vec<PastedQuery>,
    arms: Vec<ArmSettings>,
    depths: Vec<usize>,
}

impl Plan {
    /// An evaluation of these queries, which begins now.
    pub fn new(
        name: Option<String>,
        searcher: Arc<Searcher>,
        queries: Vec<PastedQuery>,
        arms: Vec<ArmSettings>,
        depths: Vec<usize>,
    ) -> Self {
        Plan {
            id: Uuid::now_v7(),
            name: name.unwrap_or_default(),
            created_at_ms: unix_ms(SystemTime::now()),
            searcher,
            queries,
            arms,
            depths,
        }
    }

    /// The id that it will have.
    pub fn id(&self) -> String {
        self.id.to_string()
    }

    /// How many searches it takes.
    pub fn searches(&self) -> usize {
        self.queries.len() * self.arms.len()
    }
}

impl Evaluations {
    /// Searches for every query, and stores the figures. A cancelled evaluation leaves nothing.
    ///
    /// # Errors
    /// Errors of the engine, and 500 when the result cannot be stored.
    pub async fn run(
        self: Arc<Self>,
        catalog: Arc<OpenCatalog>,
        plan: Plan,
        task: &Task,
    ) -> ApiResult<()> {
        let mut queries = Vec::with_capacity(plan.queries.len());
        let mut timings = vec![Vec::with_capacity(plan.queries.len()); plan.arms.len()];
        for (number, query) in plan.queries.iter().enumerate() {
            let mut answers = vec![Answer::default(); plan.arms.len()];
            for arm in order(number, plan.arms.len()) {
                if self.shutdown.is_triggered() {
                    return Err(ApiError::shutting_down());
                }
                if task.is_cancelled() {
                    return Ok(());
                }
                // Checked before every search, since an evaluation may take minutes.
                self.require_catalog(&catalog)?;
                let results = self.search(&plan, arm, query).await?;
                answers[arm] =
                    Answer::of_results(&results, query.relevant.as_deref()).judged_by(&query.worth);
                timings[arm].push(results.timings);
                // Counted after the search, so that a cancelled task shows what was done.
                task.update(|body| body.done += 1);
            }
            queries.push(AnsweredQuery::new(query.clone(), answers));
        }
        self.require_catalog(&catalog)?;
        let keep = move || {
            let evaluated = evaluated(&plan, queries, &timings, &catalog);
            self.keep(&catalog, &evaluated)
        };
        blocking(keep).await?
    }

    /// Fails once the catalog is deleted: its name may be that of another one by then, whose folder is
    /// the same.
    fn require_catalog(&self, catalog: &Arc<OpenCatalog>) -> ApiResult<()> {
        if self.catalogs.holds(catalog) {
            return Ok(());
        }
        Err(unknown_catalog(&catalog.name))
    }

    /// Searches for a query. A busy server answers its clients first.
    async fn search(&self, plan: &Plan, arm: usize, query: &PastedQuery) -> ApiResult<Results> {
        let prepared = plan.arms[arm].query(&query.text)?;
        // The last try comes after the loop, and any error of it ends the evaluation.
        for _ in 1..MAX_TRIES {
            match self.try_search(plan, prepared.clone()).await {
                Err(busy) if busy.code == "overloaded" && !self.shutdown.is_triggered() => {
                    sleep(BUSY_WAIT).await;
                }
                outcome => return outcome,
            }
        }
        self.try_search(plan, prepared).await
    }

    async fn try_search(&self, plan: &Plan, query: toolscout_index::Query) -> ApiResult<Results> {
        let searcher = Arc::clone(&plan.searcher);
        let results = self.cpu_pool.run(move || searcher.search(&query)).await?;
        Ok(results?)
    }
}

/// The arms of a query, the first of which changes with each: it finds colder caches.
fn order(number: usize, arms: usize) -> impl Iterator<Item = usize> {
    (0..arms).map(move |arm| (arm + number) % arms)
}

fn evaluated(
    plan: &Plan,
    queries: Vec<AnsweredQuery>,
    timings: &[Vec<Timings>],
    catalog: &OpenCatalog,
) -> Evaluated {
    let metrics = Metric::all(&plan.depths);
    let tools = plan.searcher.tools();
    let tools = tools.map(|tool| Tool::clone(&tool)).collect();
    let mut arms = Vec::with_capacity(plan.arms.len());
    for (arm, (settings, timings)) in plan.arms.iter().zip(timings).enumerate() {
        arms.push(arm_figures(arm, settings, &queries, timings, &metrics));
    }
    let set = EvalSet::of_pasted(&catalog.name, tools, &plan.queries);
    let evaluation = Evaluation {
        id: plan.id(),
        name: plan.name.clone(),
        source: EvaluationSource::Server,
        sent: None,
        created_at_ms: plan.created_at_ms,
        generation: plan.searcher.generation(),
        changed_meanwhile: catalog.searcher().generation() != plan.searcher.generation(),
        tools: plan.searcher.tool_count(),
        pending_embeddings: plan.searcher.pending_embeddings(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        fingerprint: fingerprint(&queries),
        // None without judged queries.
        set_fingerprint: set.map(|set| set.fingerprint()).unwrap_or_default(),
        embedder: plan.searcher.embedder_ids(),
        trained_on: is_trained_on(plan),
        tuned_on: plan
            .searcher
            .settings()
            .tuned_on
            .include(judged_texts(plan)),
        depths: plan.depths.clone(),
        main_metric: headline(&metrics).to_string(),
        queries: counts(&queries),
        arms,
    };
    Evaluated {
        evaluation,
        queries,
        report: None,
    }
}

/// Whether a ranker that was trained on these queries may have taken part.
fn is_trained_on(plan: &Plan) -> bool {
    let is_ranked = plan.arms.iter().any(|arm| arm.ranker != Some(false));
    is_ranked && ranker_has_seen(&plan.searcher, judged_texts(plan))
}

fn judged_texts(plan: &Plan) -> impl Iterator<Item = &str> {
    let judged = plan.queries.iter().filter(|query| is_judged(query));
    judged.map(|query| query.text.as_str())
}

fn is_judged(query: &PastedQuery) -> bool {
    matches!(query.relevant.as_deref(), Some([_, ..]))
}

fn arm_figures(
    arm: usize,
    settings: &ArmSettings,
    queries: &[AnsweredQuery],
    timings: &[Timings],
    metrics: &[Metric],
) -> ArmFigures {
    let (mut abstained, mut no_tool_abstained, mut degraded) = (0, 0, 0);
    for query in queries {
        let answer = &query.answers[arm];
        if answer.degraded {
            degraded += 1;
        }
        // For a query without a judgement nobody knows whether no match was right.
        match query.relevant.as_deref() {
            Some([]) if answer.no_match => no_tool_abstained += 1,
            Some(_) if answer.no_match => abstained += 1,
            _ => {}
        }
    }
    ArmFigures {
        name: ARM_NAMES[arm].to_owned(),
        search: Some(settings.clone()),
        figures: figures(queries, arm, metrics),
        abstained,
        no_tool_abstained,
        degraded,
        latency: stages(&Latency::over(timings)),
    }
}

pub(super) fn counts(queries: &[AnsweredQuery]) -> QueryCounts {
    let (mut judged, mut no_tool, mut unjudged) = (0, 0, 0);
    for query in queries {
        match query.relevant.as_deref() {
            Some([]) => no_tool += 1,
            Some(_) => judged += 1,
            None => unjudged += 1,
        }
    }
    QueryCounts {
        total: queries.len(),
        judged,
        no_tool,
        unjudged,
    }
}
