//! Candidates from outside the engine: a database, or a search engine that a company already runs.
//!
//! [`ExternalCandidates`] is the interface, and [`searcher_for`] the order in which a search asks it. The
//! engine itself opens no connection: an implementation is a part of the program.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{CatalogStatistics, NearWord, Part, Probe, TextTerms, VectorsByText};
use crate::error::{Error, Result};
use crate::query::{Effort, Query};
use crate::search::Searcher;
use crate::tool::{Tool, ToolId};

/// The share of a search's time budget that each of its two questions may take.
const SHARE_OF_BUDGET: f64 = 0.4;

/// What the tools of a query are found by, as far as it is known before anything is embedded.
#[derive(Clone, Copy, Debug)]
pub struct AskedWords<'a> {
    /// The terms of the query's texts.
    pub texts: &'a [TextTerms],
    /// How long the search can wait for the answer, if its query says so.
    pub patience: Option<Duration>,
}

/// What the tools of a query are found by.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Terms, vectors, names, ids and the filter.
    pub probe: Probe,
    /// The words that were asked for before.
    pub words: AskedWords<'a>,
    /// What the answer to them had of [`CatalogStatistics::near_words`].
    pub near_words: Vec<NearWord>,
}

/// The tools that may be hits, and what scoring them takes.
pub struct Found {
    /// The tools.
    pub part: Part,
    /// The statistics of the whole catalog, with the frequencies of all terms of the query and of the part.
    pub statistics: CatalogStatistics,
    /// The vectors of slow embedders, by their ids.
    pub vectors: HashMap<String, VectorsByText>,
    /// The generation of the catalog that was read.
    pub generation: u64,
    /// Why there may be fewer candidates than there should be.
    pub lacks: Option<String>,
}

/// What holds the tools of a catalog, and finds those that may be hits of a query. The engine scores them.
///
/// Every method has to answer within a time, and with a bounded number of bytes.
#[async_trait]
pub trait ExternalCandidates: Send + Sync {
    /// Why it did not answer.
    type Error: From<Error> + Send;

    /// Which words of a query the catalog has, and what the others may be instead.
    ///
    /// # Errors
    /// As the implementation says.
    async fn words(&self, asked: AskedWords<'_>) -> Result<CatalogStatistics, Self::Error>;

    /// The tools that may be hits. `base` has the catalog's settings and embedders.
    ///
    /// # Errors
    /// As the implementation says.
    async fn find(&self, base: &Arc<Searcher>, asked: Asked<'_>) -> Result<Found, Self::Error>;

    /// The tools with these ids, as far as there are any.
    ///
    /// # Errors
    /// As the implementation says.
    async fn tools(&self, ids: &[ToolId]) -> Result<Vec<Tool>, Self::Error>;

    /// Whether it can be used now.
    ///
    /// # Errors
    /// Why not.
    async fn health(&self) -> Result<(), Self::Error>;

    /// Runs work that computes, off the threads that wait.
    ///
    /// # Errors
    /// If the work was not done.
    async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Self::Error>;
}

/// A searcher of the tools that may be hits of a query. `base` has all of the catalog but the tools.
///
/// # Errors
/// Those of `external`; [`Error::InvalidQuery`].
pub async fn searcher_for<E: ExternalCandidates>(
    external: &E,
    base: &Arc<Searcher>,
    query: &Query,
) -> Result<Searcher, E::Error> {
    query.validate()?;
    let texts = base.query_terms(query);
    let words = AskedWords {
        texts: &texts,
        patience: patience(query),
    };
    let statistics = external.words(words).await?;
    let near_words = statistics.near_words.clone();
    let (asked, searched) = (Arc::clone(base), query.clone());
    // Nothing of the store is held here, since an embedder may take its time.
    let probe = external.on_cpu(move || asked.probe(&searched, &Arc::new(statistics)));
    let asked = Asked {
        probe: probe.await??,
        words,
        near_words,
    };
    let found = external.find(base, asked).await?;
    let base = Arc::clone(base);
    let searcher = external.on_cpu(move || found.searcher(&base));
    Ok(searcher.await??)
}

impl Found {
    fn searcher(self, base: &Searcher) -> Result<Searcher> {
        let searcher = self
            .part
            .searcher(base, self.statistics, &self.vectors, self.generation)?;
        Ok(Searcher {
            missing_candidates: self.lacks,
            ..searcher
        })
    }
}

/// How long one question may take.
fn patience(query: &Query) -> Option<Duration> {
    match query.effort {
        Effort::BudgetMs(budget) => {
            Duration::try_from_secs_f64(budget * SHARE_OF_BUDGET / 1000.0).ok()
        }
        Effort::All | Effort::Variant(_) => None,
    }
}
