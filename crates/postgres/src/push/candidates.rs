//! Finds the tools that may be hits of a query, and makes a searcher of them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query as Statement;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row};
use toolscout_index::language::Language;
use toolscout_index::pushdown::{
    Asked, AskedName, AskedWords, CatalogStatistics, ExternalCandidates, FARTHEST, Found,
    MAX_NAMED, MAX_TEXTS, NearWord, Part, PartTool, Probe, ProbeTerm, ProbeVector, SAMPLE,
    STEPS_PER_WEIGHT, SwitchedOff, TextTerms, VectorsByText, limit_of_text, searcher_for,
};
use toolscout_index::{
    Embedder, Enrichment, Filter, Kind, LexicalSettings, Query, Searcher, Tool, ToolId,
};

use super::lists::{Counted, LEVEL_COUNT, list_key, lists};
use super::tables::{KeptEmbedder, Tables, use_extensions};
use super::write::{is_same, vector_text};
use crate::error::StoreError;
use crate::row::{StoredGeneration, enrichment, texts, tool, unsigned};
use crate::vectors::opened;
use crate::{BEGIN_READING, PostgresStore, READ_LIMIT, within};

/// Tools that are read of one list.
const MAX_OF_LIST: usize = 2000;
/// A tool has several vectors, of which several may be among the nearest: of its views, and of its views
/// and texts.
const VECTORS_OF_TOOL: usize = 2;
const VECTORS_WITH_TEXTS: usize = 5;
/// The order of tools whose scores are equal. Where a limit cuts a list of them, it cuts by this order.
const BY_ID: &str = "t.id";
/// Tools that pass a filter are counted up to this.
const MAX_COUNTED: usize = 20_000;
/// The share of tools that pass, where they are too many to be counted.
const LEAST_SHARE_OF_MANY: f64 = 0.25;
/// Misspelt words that are looked for, and the words that each is compared with.
const MAX_MISSPELT: usize = 16;
const MAX_NEAR_WORDS: i64 = 200;
/// The share of letter triples that similar words have in common at least: two edits of eight letters
/// leave a fifth.
const NEAR_WORD_SHARE: &str = "0.15";
/// Frequencies that are remembered of a catalog, and catalogs.
const MAX_KNOWN_TERMS: usize = 200_000;
const MAX_KNOWN_CATALOGS: usize = 16;

/// Frequencies of terms in one state of a catalog.
#[derive(Default)]
pub struct KnownTerms {
    state: Option<StoredGeneration>,
    frequencies: HashMap<String, u64>,
    /// Tools with an enrichment.
    enriched: Option<u64>,
}

/// The catalog's own rows.
struct Head {
    state: StoredGeneration,
    embedders: Vec<KeptEmbedder>,
    statistics: CatalogStatistics,
    /// Whether some of the items are no tools.
    has_other_kinds: bool,
}

/// The tools of a catalog that is pushed down, as the engine asks for them.
struct PushedCandidates<'a> {
    store: &'a PostgresStore,
    catalog: i64,
}

#[async_trait]
impl ExternalCandidates for PushedCandidates<'_> {
    type Error = StoreError;

    // The store has a limit of its own. Without its answer there is nothing to search, so a search waits for it
    // longer than its budget says.
    async fn words(&self, asked: AskedWords<'_>) -> Result<CatalogStatistics, StoreError> {
        let tables = Tables {
            catalog: self.catalog,
        };
        let read = self.store.read_words(tables, asked.texts);
        self.store.ask(READ_LIMIT, read).await
    }

    async fn find(&self, base: &Arc<Searcher>, asked: Asked<'_>) -> Result<Found, StoreError> {
        let tables = Tables {
            catalog: self.catalog,
        };
        let found = self.store.find_tools(tables, base, asked);
        self.store.ask(READ_LIMIT, found).await
    }

    async fn tools(&self, ids: &[ToolId]) -> Result<Vec<Tool>, StoreError> {
        let mut tools = Vec::with_capacity(ids.len());
        for id in ids {
            tools.extend(self.store.tool_of(self.catalog, id).await?);
        }
        Ok(tools)
    }

    async fn health(&self) -> Result<(), StoreError> {
        match self.store.problem() {
            Some(problem) => Err(StoreError::Unreachable(problem)),
            None => Ok(()),
        }
    }

    async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.store.on_cpu(work).await
    }
}

impl PostgresStore {
    /// A searcher of the tools that may be hits of a query, of a catalog that is pushed down. `base` is
    /// this node's copy of it, which has all but the tools.
    ///
    /// # Errors
    /// [`StoreError`]: without the store there is nothing to search.
    pub async fn searcher_for(
        &self,
        catalog: i64,
        base: &Arc<Searcher>,
        query: &Query,
    ) -> Result<Searcher, StoreError> {
        query.validate()?;
        // Waiting for a permit has the same limit as waiting for the store.
        let permit = async {
            match self.push.searches.acquire().await {
                Ok(permit) => Ok(permit),
                Err(_) => Err(StoreError::Unreachable("it was closed".to_owned())),
            }
        };
        let _permit = within(READ_LIMIT, permit).await?;
        let candidates = PushedCandidates {
            store: self,
            catalog,
        };
        searcher_for(&candidates, base, query).await
    }

    /// Runs work off the async threads.
    pub(super) async fn on_cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let done = self.runtime.spawn_blocking(work).await;
        done.map_err(|error| StoreError::Refused(format!("searching panicked: {error}")))
    }

    /// Reads which words of a query the catalog has, and what the others may be instead.
    async fn read_words(
        &self,
        tables: Tables,
        texts: &[TextTerms],
    ) -> Result<CatalogStatistics, StoreError> {
        let mut transaction = self.begin_search().await?;
        let Head {
            state,
            mut statistics,
            ..
        } = head(&mut transaction, tables).await?;
        let wanted = terms_of(texts);
        let known = self.frequencies(&mut transaction, tables, state, wanted);
        statistics.frequencies = known.await?;
        let misspelt: BTreeSet<String> = texts
            .iter()
            .flat_map(|text| statistics.misspelt(&text.own))
            .map(str::to_owned)
            .take(MAX_MISSPELT)
            .collect();
        let mut near_words: Vec<NearWord> = Vec::new();
        for word in misspelt {
            near_words.extend(words_near(&mut transaction, tables, &word).await?);
        }
        let stems = near_words.iter().map(NearWord::term).collect();
        let known = self.frequencies(&mut transaction, tables, state, stems);
        statistics.frequencies.extend(known.await?);
        statistics.near_words = near_words;
        end(transaction).await;
        Ok(statistics)
    }

    /// Finds the tools of a query, with all that scoring them takes, in one state of the catalog.
    async fn find_tools(
        &self,
        tables: Tables,
        base: &Arc<Searcher>,
        asked: Asked<'_>,
    ) -> Result<Found, StoreError> {
        let Asked {
            probe,
            words,
            near_words,
        } = asked;
        let mut transaction = self.begin_search().await?;
        let mut head = head(&mut transaction, tables).await?;
        head.statistics.enriched = self.enriched(&mut transaction, tables, head.state).await?;
        let lexical = base.settings().lexical;
        let found = self
            .find_keys(&mut transaction, tables, &head, &probe, lexical)
            .await?;
        let mut sample = match (found.len() as u64) < head.statistics.tools {
            true => sample(&mut transaction, tables).await?,
            // All tools were found, so no sample is needed.
            false => Vec::new(),
        };
        // The keys that were found are sorted.
        sample.retain(|key| found.binary_search(key).is_err());
        let mut rows = read_rows(&mut transaction, tables, &found).await?;
        let sampled = read_rows(&mut transaction, tables, &sample).await?;
        rows.extend(sampled.into_iter().map(ToolRow::of_sample));
        let weights = lexical.weights;
        let part = self.on_cpu(move || Ok::<_, StoreError>(Part::new(part_tools(rows)?, &weights)));
        let part = part.await??;
        let mut wanted = terms_of(words.texts);
        wanted.extend(near_words.iter().map(NearWord::term));
        wanted.extend(part.terms().into_iter().map(str::to_owned));
        let frequencies = self
            .frequencies(&mut transaction, tables, head.state, wanted)
            .await?;
        let mut vectors = HashMap::new();
        for embedder in base.embedders() {
            // Vectors of instant embedders are not read: the engine computes them.
            if embedder.is_instant() {
                continue;
            }
            let stored = read_vectors(&mut transaction, embedder.as_ref(), &part).await?;
            vectors.insert(embedder.id().to_owned(), stored);
        }
        end(transaction).await;
        let pending = pending(base, &head);
        Ok(Found {
            part,
            vectors,
            generation: head.state.generation,
            lacks: None,
            statistics: CatalogStatistics {
                frequencies,
                near_words,
                pending,
                ..head.statistics
            },
        })
    }

    async fn begin_search(&self) -> Result<sqlx::Transaction<'_, Postgres>, StoreError> {
        let mut transaction = self.pool.begin_with(BEGIN_READING).await?;
        use_extensions(&mut transaction).await?;
        // With `iterative_scan` a filtered search goes on until it has enough. Without `jit`, since
        // compiling these short statements takes longer than running them.
        sqlx::query(
            "SELECT set_config('hnsw.iterative_scan', 'strict_order', true),
                    set_config('hnsw.ef_search', $1, true),
                    set_config('pg_trgm.similarity_threshold', $2, true),
                    set_config('jit', 'off', true)",
        )
        .bind(self.ef_search().to_string())
        .bind(NEAR_WORD_SHARE)
        .execute(&mut *transaction)
        .await?;
        Ok(transaction)
    }

    /// How far a search of vectors looks around: at least as many as it is asked for, of which pgvector
    /// allows a thousand.
    fn ef_search(&self) -> usize {
        (self.push.candidates * VECTORS_OF_TOOL / 2).clamp(100, 1000)
    }

    /// The keys of the tools that may be hits.
    async fn find_keys(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
        head: &Head,
        probe: &Probe,
        lexical: LexicalSettings,
    ) -> Result<Vec<i64>, StoreError> {
        let most = self.push.candidates;
        let passing = match head.has_other_kinds {
            true => Passing::new(tables, &probe.filter),
            false => Passing::of_tools(tables, &probe.filter),
        };
        let passing = passing.without(&probe.switched_off);
        let all = head.statistics.tools;
        let (passed, share) = match passing.accepts_all {
            true => (all as usize, 1.0),
            false => {
                let passed = passing.count(connection).await?;
                (passed, share_of(passed, all))
            }
        };
        let mut keys = BTreeSet::new();
        let are_all = passed <= most;
        if are_all {
            // Few tools pass the filter, so all of them are candidates.
            keys.extend(passing.keys(connection, most).await?);
        } else {
            let scoring = Scoring::new(lexical, &head.statistics);
            let texts = &probe.texts[..probe.texts.len().min(MAX_TEXTS)];
            for (place, terms) in texts.iter().enumerate() {
                let counted = counted(connection, tables, terms).await?;
                let lists = lists(&counted, all, share);
                let limit = limit_of_text(place, texts.len(), most / 2);
                let best = passing.by_words(connection, &lists, terms, &scoring, limit);
                keys.extend(best.await?);
            }
        }
        let of_tool = match head.statistics.enriched {
            0 => VECTORS_OF_TOOL,
            _ => VECTORS_WITH_TEXTS,
        };
        for embedder in &head.embedders {
            let vectors = vectors_of(embedder, probe);
            for (place, vector) in vectors.iter().enumerate() {
                // All tools may be candidates already. The farthest are still needed, to scale the scores.
                let nearest =
                    (!are_all).then(|| of_tool * limit_of_text(place, vectors.len(), most / 2));
                let found = passing.by_vector(connection, embedder, vector, nearest);
                keys.extend(found.await?);
            }
        }
        for name in &probe.names {
            keys.extend(named(connection, tables, name).await?);
        }
        let by_id: Vec<&str> = probe.by_id.iter().map(ToolId::as_str).collect();
        if !by_id.is_empty() {
            let sql = format!("SELECT key FROM {} WHERE id = ANY($1)", tables.tools());
            let found = sqlx::query_scalar(AssertSqlSafe(sql)).bind(by_id);
            keys.extend::<Vec<i64>>(found.fetch_all(connection).await?);
        }
        Ok(keys.into_iter().collect())
    }

    /// The numbers of tools that have these terms, from what is remembered where it is of this state.
    async fn frequencies(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
        state: StoredGeneration,
        wanted: HashSet<String>,
    ) -> Result<HashMap<String, u64>, StoreError> {
        let mut found = HashMap::with_capacity(wanted.len());
        let mut unknown = Vec::new();
        // The lock must not be held while the store is asked.
        {
            let mut known = self.push.known_terms.lock();
            let known = known.entry(tables.catalog).or_default();
            known.be_of(state);
            for term in wanted {
                if let Some(tools) = known.frequencies.get(&term) {
                    found.insert(term, *tools);
                } else {
                    unknown.push(term);
                }
            }
        }
        if unknown.is_empty() {
            return Ok(found);
        }
        let sql = format!(
            "SELECT term, tools FROM {} WHERE term = ANY($1) AND level = 0",
            tables.terms()
        );
        let rows: Vec<(String, i64)> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(&unknown)
            .fetch_all(connection)
            .await?;
        // A term that no tool has is worth remembering, too.
        let mut read: HashMap<String, u64> = unknown.into_iter().map(|term| (term, 0)).collect();
        for (term, tools) in rows {
            read.insert(term, tools as u64);
        }
        self.remember_terms(tables.catalog, state, &read);
        found.extend(read);
        Ok(found)
    }

    /// How many tools have an enrichment, from what is remembered where it is of this state.
    async fn enriched(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
        state: StoredGeneration,
    ) -> Result<u64, StoreError> {
        if let Some(enriched) = self.known_enriched(tables, state) {
            return Ok(enriched);
        }
        let enriched = tables.count_enriched(connection).await?;
        let mut known = self.push.known_terms.lock();
        let known = known.entry(tables.catalog).or_default();
        known.be_of(state);
        known.enriched = Some(enriched);
        Ok(enriched)
    }

    fn known_enriched(&self, tables: Tables, state: StoredGeneration) -> Option<u64> {
        let known = self.push.known_terms.lock();
        let known = known.get(&tables.catalog)?;
        if known.state != Some(state) {
            return None;
        }
        known.enriched
    }

    fn remember_terms(&self, catalog: i64, state: StoredGeneration, read: &HashMap<String, u64>) {
        let mut known = self.push.known_terms.lock();
        // A forgotten catalog is only read again, so there is no need to track which was used last.
        if known.len() > MAX_KNOWN_CATALOGS {
            known.retain(|other, _| *other == catalog);
        }
        let known = known.entry(catalog).or_default();
        // Another search may have stored a newer state meanwhile.
        if known.state != Some(state) {
            return;
        }
        if known.frequencies.len() + read.len() > MAX_KNOWN_TERMS {
            known.frequencies.clear();
        }
        for (term, tools) in read.iter().take(MAX_KNOWN_TERMS) {
            known.frequencies.insert(term.clone(), *tools);
        }
    }
}

impl KnownTerms {
    /// Forgets what is of another state.
    fn be_of(&mut self, state: StoredGeneration) {
        if self.state != Some(state) {
            *self = KnownTerms {
                state: Some(state),
                ..KnownTerms::default()
            };
        }
    }
}

/// It only read, so a failure to end it loses nothing.
pub(super) async fn end(transaction: sqlx::Transaction<'_, Postgres>) {
    let _ = transaction.rollback().await;
}

fn share_of(passed: usize, all: u64) -> f64 {
    let share = passed as f64 / all.max(1) as f64;
    match passed < MAX_COUNTED {
        true => share,
        // Counting stopped at the limit, so more may pass.
        false => share.max(LEAST_SHARE_OF_MANY),
    }
}

/// The vectors of a query that this embedder made.
fn vectors_of<'a>(embedder: &KeptEmbedder, probe: &'a Probe) -> Vec<&'a ProbeVector> {
    let mut vectors = Vec::new();
    for vector in &probe.vectors {
        if vector.embedder == embedder.id && vector.vector.len() == embedder.dimensions {
            vectors.push(vector);
        }
    }
    vectors.truncate(MAX_TEXTS);
    vectors
}

/// The distinct terms whose frequencies a query needs.
fn terms_of(texts: &[TextTerms]) -> HashSet<String> {
    let mut terms = HashSet::new();
    for text in texts {
        for term in text.own.iter().chain(&text.added) {
            terms.insert(term.term.clone());
        }
    }
    terms
}

/// Tools that the vectors of an embedder of this node cannot find yet.
fn pending(base: &Searcher, head: &Head) -> HashMap<String, usize> {
    let all = head.statistics.tools as i64;
    let mut pending = HashMap::new();
    for embedder in base.embedders() {
        let mut kept = head.embedders.iter();
        let embedded = match kept.find(|kept| is_same(embedder.as_ref(), kept)) {
            Some(kept) => kept.tools,
            None => 0,
        };
        let missing = (all - embedded).max(0) as usize;
        pending.insert(embedder.id().to_owned(), missing);
    }
    pending
}

async fn head(connection: &mut PgConnection, tables: Tables) -> Result<Head, StoreError> {
    let row = sqlx::query(
        "SELECT generation, mark, is_pushed_down, coalesce(pushed_catalogs.tools, 0) AS tools,
                coalesce(length, 0) AS length, coalesce(languages, '{}') AS languages,
                coalesce(others, 0) > 0 AS has_other_kinds
         FROM catalogs LEFT JOIN pushed_catalogs ON catalog = id WHERE id = $1",
    )
    .bind(tables.catalog)
    .fetch_optional(&mut *connection)
    .await?
    .ok_or(StoreError::Deleted)?;
    if !row.try_get::<bool, _>("is_pushed_down")? {
        return Err(StoreError::Unreachable(
            "the catalog is being copied to the nodes".to_owned(),
        ));
    }
    let languages: String = row.try_get("languages")?;
    let languages: HashMap<String, i64> = serde_json::from_str(&languages).unwrap_or_default();
    let present = languages.iter().filter(|(_, tools)| **tools > 0);
    Ok(Head {
        state: StoredGeneration {
            generation: unsigned(&row, "generation")?,
            mark: unsigned(&row, "mark")?,
        },
        embedders: tables.embedders(connection).await?,
        has_other_kinds: row.try_get("has_other_kinds")?,
        statistics: CatalogStatistics {
            tools: unsigned(&row, "tools")?,
            length: unsigned(&row, "length")?,
            languages: present
                .filter_map(|(name, _)| Language::named(name))
                .collect(),
            ..CatalogStatistics::default()
        },
    })
}

/// The catalog's words that may be what this one should have been.
async fn words_near(
    connection: &mut PgConnection,
    tables: Tables,
    word: &str,
) -> Result<Vec<NearWord>, StoreError> {
    // The engine allows two edits, so words that differ more in length need not be read.
    let sql = format!(
        "SELECT word, names > 0 AS is_in_name, others > 0 AS is_elsewhere FROM {}
         WHERE word % $1 AND abs(length(word) - $2) <= 2
         ORDER BY similarity(word, $1) DESC, word LIMIT $3",
        tables.words()
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(word)
        .bind(word.chars().count() as i32)
        .bind(MAX_NEAR_WORDS)
        .fetch_all(connection)
        .await?;
    let mut near = Vec::with_capacity(rows.len());
    for row in rows {
        near.push(NearWord {
            word: row.try_get("word")?,
            is_in_name: row.try_get("is_in_name")?,
            is_elsewhere: row.try_get("is_elsewhere")?,
        });
    }
    Ok(near)
}

/// How many tools have each term, by level.
async fn counted(
    connection: &mut PgConnection,
    tables: Tables,
    terms: &[ProbeTerm],
) -> Result<Vec<Counted>, StoreError> {
    let terms = terms.iter().take(super::lists::MAX_TERMS);
    let wanted: Vec<&str> = terms.map(|term| term.term.as_str()).collect();
    let sql = format!(
        "SELECT term, level, tools FROM {} WHERE term = ANY($1)",
        tables.terms()
    );
    let rows: Vec<(String, i16, i64)> = sqlx::query_as(AssertSqlSafe(sql))
        .bind(&wanted)
        .fetch_all(connection)
        .await?;
    let mut by_term: HashMap<String, [u64; LEVEL_COUNT]> = HashMap::new();
    for (term, level, tools) in rows {
        if let Some(of_level) = by_term.entry(term).or_default().get_mut(level as usize) {
            *of_level = tools as u64;
        }
    }
    let mut counted = Vec::with_capacity(wanted.len());
    for term in wanted {
        counted.push(Counted {
            tools: by_term.get(term).copied().unwrap_or_default(),
            term: term.to_owned(),
        });
    }
    Ok(counted)
}

/// The tools that a text may name, as the engine recognises names.
async fn named(
    connection: &mut PgConnection,
    tables: Tables,
    name: &AskedName,
) -> Result<Vec<i64>, StoreError> {
    let tools = tables.tools();
    let sql = format!(
        "SELECT key FROM {tools} AS t WHERE name_key = $1 OR full_key = $1 ORDER BY {BY_ID} LIMIT $2"
    );
    let exact: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(&name.key)
        .bind(MAX_NAMED as i64)
        .fetch_all(&mut *connection)
        .await?;
    if !exact.is_empty() || !name.may_be_suffix {
        return Ok(exact);
    }
    // A key has letters and digits only, so there is nothing to escape.
    let sql =
        format!("SELECT key FROM {tools} AS t WHERE name_key LIKE $1 ORDER BY {BY_ID} LIMIT $2");
    Ok(sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(format!("%{}", name.key))
        .bind(MAX_NAMED as i64)
        .fetch_all(connection)
        .await?)
}

/// BM25 as PostgreSQL computes it, to choose among the tools of the lists. What counts is what the
/// engine computes of those.
struct Scoring {
    /// In steps: what is added to the frequency of each term, and what of it for each step of length.
    least: f64,
    by_length: f64,
}

impl Scoring {
    fn new(settings: LexicalSettings, statistics: &CatalogStatistics) -> Self {
        let average = statistics.length as f64 / statistics.tools.max(1) as f64;
        let (k1, b) = (f64::from(settings.k1), f64::from(settings.b));
        let steps = f64::from(STEPS_PER_WEIGHT);
        Scoring {
            least: steps * k1 * (1.0 - b),
            by_length: steps * k1 * b / average.max(1.0),
        }
    }

    /// The score of a row `t` by these terms.
    fn sql(&self, terms: &[ProbeTerm]) -> String {
        let Scoring { least, by_length } = self;
        let mut sums = Vec::new();
        for term in terms.iter().take(super::lists::MAX_TERMS) {
            let (key, gain) = (list_key(&term.term, 0), f64::from(term.gain));
            // A tool without the term has no position for it, and the quotient is NULL.
            sums.push(format!(
                "coalesce({gain:e}::float8 / (1 + ({least:e}::float8 + {by_length:e}::float8 * t.length)
                     / t.counts[array_position(t.terms, {key}::bigint)]), 0)"
            ));
        }
        sums.join(" + ")
    }
}

/// The tools that pass a filter.
pub struct Passing<'a> {
    tables: Tables,
    filter: &'a Filter,
    /// True where no condition is needed.
    accepts_all: bool,
    kinds: Vec<&'static str>,
    servers: Vec<String>,
    tags: Vec<String>,
    ids: Vec<String>,
    /// What the owner has switched off.
    off: SwitchedOff,
}

/// The kinds that a filter accepts, as the column `kind` has them.
pub(super) fn kind_names(filter: &Filter) -> Vec<&'static str> {
    let kinds = Kind::ALL.into_iter();
    let accepted = kinds.filter(|&kind| filter.accepts_kind(kind));
    accepted.map(Kind::as_str).collect()
}

type Arguments<'q> = Statement<'q, Postgres, PgArguments>;

impl<'a> Passing<'a> {
    pub fn new(tables: Tables, filter: &'a Filter) -> Self {
        Passing {
            tables,
            filter,
            accepts_all: false,
            kinds: kind_names(filter),
            servers: texts(&filter.servers),
            tags: texts(&filter.tags),
            ids: texts(&*filter.ids),
            off: SwitchedOff::default(),
        }
    }

    /// As [`Passing::new`], of a catalog that has only tools.
    pub fn of_tools(tables: Tables, filter: &'a Filter) -> Self {
        Passing {
            accepts_all: filter.is_empty(),
            ..Passing::new(tables, filter)
        }
    }

    /// The same without what the owner has switched off.
    fn without(self, off: &SwitchedOff) -> Self {
        Passing {
            accepts_all: self.accepts_all && off.is_empty(),
            off: SwitchedOff {
                tools: texts(&off.tools),
                servers: texts(&off.servers),
                tags: texts(&off.tags),
            },
            ..self
        }
    }

    /// The condition on a row `t`, with the first parameters.
    fn sql(&self) -> &'static str {
        if self.accepts_all {
            return "TRUE";
        }
        "(cardinality($1::text[]) = 0 OR t.server = ANY($1))
             AND (cardinality($2::text[]) = 0 OR t.tags && $2)
             AND (cardinality($3::text[]) = 0 OR t.id = ANY($3))
             AND ($4::boolean IS NULL OR t.read_only = $4)
             AND ($5::boolean IS NULL OR t.destructive = $5)
             AND t.kind = ANY($6)
             AND (cardinality($7::text[]) = 0 OR t.id <> ALL($7))
             AND (cardinality($8::text[]) = 0 OR t.server <> ALL($8))
             AND (cardinality($9::text[]) = 0 OR NOT t.tags && $9)"
    }

    /// The statement with the parameters of the condition. It is planned for their values, so it is
    /// not kept.
    fn bind<'q>(&'q self, sql: String) -> Arguments<'q> {
        sqlx::query(AssertSqlSafe(sql))
            .persistent(false)
            .bind(&self.servers)
            .bind(&self.tags)
            .bind(&self.ids)
            .bind(self.filter.read_only)
            .bind(self.filter.destructive)
            .bind(&self.kinds)
            .bind(&self.off.tools)
            .bind(&self.off.servers)
            .bind(&self.off.tags)
    }

    async fn count(&self, connection: &mut PgConnection) -> Result<usize, StoreError> {
        let (tools, passes) = (self.tables.tools(), self.sql());
        let sql = format!(
            "SELECT count(*) AS passed FROM (SELECT FROM {tools} AS t WHERE {passes} LIMIT {MAX_COUNTED}) AS passing"
        );
        let row = self.bind(sql).fetch_one(connection).await?;
        Ok(row.try_get::<i64, _>("passed")? as usize)
    }

    /// The ids of all of them, each with its server.
    pub async fn ids(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<(String, String)>, StoreError> {
        let (tools, passes) = (self.tables.tools(), self.sql());
        let sql = format!("SELECT id, server FROM {tools} AS t WHERE {passes} ORDER BY {BY_ID}");
        let rows = self.bind(sql).fetch_all(connection).await?;
        let mut ids = Vec::with_capacity(rows.len());
        for row in rows {
            ids.push((row.try_get("id")?, row.try_get("server")?));
        }
        Ok(ids)
    }

    async fn keys(
        &self,
        connection: &mut PgConnection,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let (tools, passes) = (self.tables.tools(), self.sql());
        let sql =
            format!("SELECT key FROM {tools} AS t WHERE {passes} ORDER BY {BY_ID} LIMIT {limit}");
        keys(self.bind(sql), connection).await
    }

    /// The best by words, of those in these lists.
    async fn by_words(
        &self,
        connection: &mut PgConnection,
        lists: &[Vec<i64>],
        terms: &[ProbeTerm],
        scoring: &Scoring,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        if lists.is_empty() {
            return Ok(Vec::new());
        }
        let (tools, passes) = (self.tables.tools(), self.sql());
        let mut selects = Vec::with_capacity(lists.len());
        for keys in lists {
            let keys: Vec<String> = keys.iter().map(i64::to_string).collect();
            let keys = keys.join(",");
            selects.push(format!(
                "(SELECT key FROM {tools} AS t WHERE t.terms @> '{{{keys}}}'::bigint[] AND {passes} LIMIT {MAX_OF_LIST})"
            ));
        }
        let (lists, score) = (selects.join(" UNION "), scoring.sql(terms));
        // MATERIALIZED, so that the lists are read by their indexes first and only their tools are
        // scored.
        let sql = format!(
            "WITH listed AS MATERIALIZED ({lists})
             SELECT t.key FROM listed JOIN {tools} AS t USING (key)
             ORDER BY {score} DESC, {BY_ID} LIMIT {limit}"
        );
        keys(self.bind(sql), connection).await
    }

    /// So many of the nearest by one vector, if they are wanted, and the farthest of all, which pass or not.
    async fn by_vector(
        &self,
        connection: &mut PgConnection,
        embedder: &KeptEmbedder,
        vector: &ProbeVector,
        nearest: Option<usize>,
    ) -> Result<Vec<i64>, StoreError> {
        let (tools, passes) = (self.tables.tools(), self.sql());
        let vectors = self.tables.vectors(embedder);
        let from = match self.accepts_all {
            true => format!("{vectors} AS v"),
            false => format!("{vectors} AS v JOIN {tools} AS t USING (key) WHERE {passes}"),
        };
        let mut sql = format!(
            "SELECT key FROM (SELECT key FROM {vectors} ORDER BY vector <#> $11::text::halfvec LIMIT {FARTHEST}) AS far"
        );
        if let Some(nearest) = nearest {
            sql.push_str(&format!(
                " UNION
                 SELECT key FROM (SELECT key FROM {from} ORDER BY v.vector <#> $10::text::halfvec LIMIT {nearest}) AS near"
            ));
        }
        // The farthest from a vector are the nearest to its opposite, so the same index finds them.
        let opposite: Vec<f32> = vector.vector.iter().map(|number| -number).collect();
        let statement = self
            .bind(sql)
            .bind(vector_text(&vector.vector))
            .bind(vector_text(&opposite));
        keys(statement, connection).await
    }
}

async fn keys(
    statement: Arguments<'_>,
    connection: &mut PgConnection,
) -> Result<Vec<i64>, StoreError> {
    let rows = statement.fetch_all(connection).await?;
    let keys = rows.iter().map(|row| row.try_get("key"));
    Ok(keys.collect::<Result<_, _>>()?)
}

/// Some tools of the catalog, evenly over their keys.
async fn sample(connection: &mut PgConnection, tables: Tables) -> Result<Vec<i64>, StoreError> {
    let tools = tables.tools();
    // Each key is looked up by the index: ordering by random() would read the whole table.
    let sql = format!(
        "SELECT DISTINCT next.key
         FROM (SELECT min(key) AS first, max(key) AS last FROM {tools}) AS ends,
              generate_series(first, last, greatest(1, (last - first) / {SAMPLE})) AS place,
              LATERAL (SELECT key FROM {tools} WHERE key >= place ORDER BY key LIMIT 1) AS next
         LIMIT {SAMPLE}"
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_all(connection)
        .await?)
}

/// A tool as it is stored.
pub(super) struct ToolRow {
    id: String,
    hash: Vec<u8>,
    json: String,
    enrichment: Option<Enrichment>,
    is_sample: bool,
}

impl ToolRow {
    pub(super) fn read(row: &PgRow) -> Result<Self, StoreError> {
        let id: String = row.try_get("id")?;
        Ok(ToolRow {
            enrichment: enrichment(&id, row)?,
            hash: row.try_get("hash")?,
            json: row.try_get("json")?,
            is_sample: false,
            id,
        })
    }

    fn of_sample(self) -> Self {
        ToolRow {
            is_sample: true,
            ..self
        }
    }
}

pub(super) fn part_tools(rows: Vec<ToolRow>) -> Result<Vec<PartTool>, StoreError> {
    let mut tools = Vec::with_capacity(rows.len());
    for row in rows {
        tools.push(PartTool {
            tool: tool(&row.id, &row.json, row.hash)?,
            json: row.json,
            enrichment: row.enrichment,
            is_sample: row.is_sample,
        });
    }
    Ok(tools)
}

/// The tools of these keys.
async fn read_rows(
    connection: &mut PgConnection,
    tables: Tables,
    keys: &[i64],
) -> Result<Vec<ToolRow>, StoreError> {
    let sql = format!(
        "SELECT tools.id, hash, json, model, texts, checksum
         FROM {} AS t JOIN tools ON tools.catalog = $1 AND tools.id = t.id
              LEFT JOIN enrichments ON enrichments.catalog = $1 AND enrichments.tool = t.id
         WHERE t.key = ANY($2) AND json IS NOT NULL",
        tables.tools()
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(tables.catalog)
        .bind(keys)
        .fetch_all(connection)
        .await?;
    rows.iter().map(ToolRow::read).collect()
}

/// The vectors of a slow embedder for these tools, as far as there are any.
async fn read_vectors(
    connection: &mut PgConnection,
    embedder: &dyn Embedder,
    part: &Part,
) -> Result<VectorsByText, StoreError> {
    let texts = part.texts(embedder);
    let texts: Vec<&[u8]> = texts.iter().map(<[u8; 16]>::as_slice).collect();
    let rows = sqlx::query(
        "SELECT text, vector FROM vectors WHERE embedder = $1 AND dimensions = $2 AND text = ANY($3)",
    )
    .bind(embedder.id())
    .bind(embedder.dimensions() as i32)
    .bind(texts)
    .fetch_all(connection)
    .await?;
    let mut vectors = VectorsByText::with_capacity(rows.len());
    for row in rows {
        let (hash, sealed): (Vec<u8>, Vec<u8>) = (row.try_get("text")?, row.try_get("vector")?);
        // A damaged vector is skipped: whoever embeds computes it again.
        if let Ok(hash) = hash.try_into()
            && let Some(vector) = opened(embedder.id(), embedder.dimensions(), &hash, &sealed)
        {
            vectors.insert(hash, vector);
        }
    }
    Ok(vectors)
}
