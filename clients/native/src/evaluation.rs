//! Judged queries, and how well a catalog answers them.

use toolscout::eval::answered::{Answer, AnsweredQuery, DEPTH, Figure, figures};
use toolscout::eval::dataset::pasted;
use toolscout::eval::latency::Latency;
use toolscout::eval::metrics::{Metric, default_depths};
use toolscout_index::{Mode, Query, SearchOptions, ToolId};

use crate::error::{Error, Result};
use crate::opening::Open;

/// How well a catalog answers judged queries.
pub struct Evaluation {
    /// The figures; none without a judged query.
    pub figures: Vec<Figure>,
    /// Each query with its answer.
    pub queries: Vec<AnsweredQuery>,
    /// The time of a search by stage.
    pub latency: Latency,
    /// Number of tools of the catalog.
    pub tools: usize,
}

/// Searches for each query of a text, as `toolscout eval` does in this mode, until `is_ended` says
/// so.
///
/// # Errors
/// `invalid_queries` that names the line, `cancelled`, and errors of the engine.
pub fn evaluate(
    open: &Open,
    text: &str,
    mode: Option<Mode>,
    ranker: bool,
    is_ended: &mut dyn FnMut() -> bool,
) -> Result<Evaluation> {
    let options = SearchOptions {
        mode,
        k: Some(DEPTH),
        ..SearchOptions::default()
    };
    let options = options.or(open.search_defaults());
    let searcher = open.newest()?;
    let ids: Vec<ToolId> = searcher.ids_after(None).cloned().collect();
    let (mut queries, mut timings) = (Vec::new(), Vec::new());
    for asked in pasted::read(text, None, &ids)? {
        if is_ended() {
            return Err(Error::new("cancelled", "the call was cancelled"));
        }
        let mut query = Query::new(&asked.text).options(options);
        if !ranker {
            query = query.without_ranker();
        }
        let results = searcher.search(&query)?;
        timings.push(results.timings);
        let answer =
            Answer::of_results(&results, asked.relevant.as_deref()).judged_by(&asked.worth);
        queries.push(AnsweredQuery::new(asked, vec![answer]));
    }
    let (depths, _) = default_depths(ids.len());
    Ok(Evaluation {
        figures: figures(&queries, 0, &Metric::all(&depths)),
        queries,
        latency: Latency::over(&timings),
        tools: ids.len(),
    })
}
