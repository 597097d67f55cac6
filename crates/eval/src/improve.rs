//! Proposes changes of a catalog, and accepts those that make judged queries find better.
//!
//! A change is all entries of one kind: texts, synonyms, aliases, pins, factors, companions, duplicates,
//! tools that are switched off. What is
//! learned from queries is measured on queries that it was not learned from: the queries are split into
//! five parts, equal texts in one, and each part is asked with what the others taught. A change is accepted if the gain
//! is more than chance, and if every query that has one of its tools among its first five hits keeps one.
//! Entries that would cost a query that are left out of the change. Each change is tried on top of those that were accepted.

mod entry;
pub mod journal;
mod lesson;
mod trial;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use toolscout_base::printable::counted;
use toolscout_index::{Enrichment, ToolId, text};

use super::arms::Arm;
use super::bootstrap::{Interval, paired};
use super::dataset::{EvalSet, ToolIndex};
use super::error::{EvalError, Result};
use super::judge::Scores;
use super::metrics::{Measure, Metric, mean};
use super::prepare::TemporaryCatalog;
use super::random::Random;
use super::tune::SIGNIFICANT_BELOW;
use lesson::{Lesson, Teacher};
use trial::{DEPTH, Trial};

pub use entry::{Content, Entry};

/// Parts of the queries.
const FOLDS: usize = 5;
/// Fewest queries: with fewer, hardly any gain is more than chance.
pub const FEWEST_QUERIES: usize = 20;
/// The metric that has to rise.
const TARGET: Metric = Metric::new(Measure::Ndcg, DEPTH);
/// What no query may lose: that one of its tools is among the first hits.
const KEPT: Metric = Metric::new(Measure::Success, FIRST);
/// The first hits, which a model sees with their definitions.
const FIRST: usize = 5;
/// The seed of the parts and of the tests. It cannot be chosen: with enough of them any gain is significant.
const SEED: u64 = 42;
/// How often entries are left out and the rest is measured again.
const ROUNDS: usize = 20;

/// What a change is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Texts that a model wrote.
    Texts,
    /// Requests as texts of the tools that serve them.
    Requests,
    /// Words of requests that stand for words of tools.
    Synonyms,
    /// Other names of tools.
    Aliases,
    /// Tools that come first for a request.
    Pins,
    /// Factors below 1 for tools that stand in the way.
    Boosts,
    /// Companions of hits, switched off or on.
    Companions,
    /// Near-duplicates on several servers, folded into one hit or not.
    Duplicates,
    /// Tools that stand in the way and that no query needs, switched off.
    Off,
}

impl Kind {
    /// Every kind, in the order in which they are tried.
    pub const ALL: [Kind; 9] = [
        Kind::Texts,
        Kind::Requests,
        Kind::Synonyms,
        Kind::Aliases,
        Kind::Pins,
        Kind::Boosts,
        Kind::Companions,
        Kind::Duplicates,
        Kind::Off,
    ];

    /// Whether its entries are learned from queries and change others than these. A pin changes only the
    /// request that it was learned from: that this comes again is what it is for.
    fn is_learned(self) -> bool {
        !matches!(
            self,
            Kind::Texts | Kind::Pins | Kind::Companions | Kind::Duplicates
        )
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Texts => "texts",
            Kind::Requests => "requests",
            Kind::Synonyms => "synonyms",
            Kind::Aliases => "aliases",
            Kind::Pins => "pins",
            Kind::Boosts => "boosts",
            Kind::Companions => "companions",
            Kind::Duplicates => "duplicates",
            Kind::Off => "off",
        }
    }
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It makes the queries find better.
    Accepted,
    /// The queries gave no reason for any entry.
    NothingProposed,
    /// The mean did not rise.
    NoGain,
    /// The mean rose, as it may by chance alone.
    MayBeChance,
    /// Queries would have none of their tools among their first five hits any more, and leaving entries out
    /// did not help.
    LosesHits,
}

impl Decision {
    /// What it says, in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Accepted => "accepted",
            Decision::NothingProposed => "nothing to propose",
            Decision::NoGain => "no gain",
            Decision::MayBeChance => "may be chance",
            Decision::LosesHits => "queries lose hits",
        }
    }
}

/// A change, and how it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What it is made of.
    pub kind: Kind,
    /// What became of it.
    pub decision: Decision,
    /// Entries that were proposed.
    pub proposed: usize,
    /// Its entries. An accepted change has fewer than were proposed if some cost a query a hit.
    pub entries: Vec<Entry>,
    /// Mean nDCG@10 before.
    pub before: f64,
    /// The mean with what other queries taught; for an accepted change before entries were left out.
    pub after: f64,
    /// 95% interval of the gain.
    pub gain_ci95: Interval,
    /// p-value of the gain, times the number of kinds that were tried (Bonferroni).
    pub p: f64,
    /// Queries that had none of their tools among their first five hits any more, before entries were left out.
    pub lost: usize,
}

/// What was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Improved {
    /// The name of the catalog.
    pub catalog: String,
    /// Number of different queries.
    pub queries: usize,
    /// The metric.
    pub metric: String,
    /// Its mean before.
    pub before: f64,
    /// Its mean with all accepted changes. On the queries that taught them: on others it is lower.
    pub after: f64,
    /// Every kind that was tried, in this order.
    pub changes: Vec<Change>,
}

impl Improved {
    /// The accepted changes.
    pub fn accepted(&self) -> impl Iterator<Item = &Change> {
        let changes = self.changes.iter();
        changes.filter(|change| change.decision == Decision::Accepted)
    }
}

/// What changes are measured with.
pub struct Trials<'a> {
    /// A copy of the catalog.
    pub copy: &'a TemporaryCatalog,
    /// Its tools with judged queries.
    pub set: &'a EvalSet,
    /// How queries search.
    pub arm: Arm,
    /// Texts that a model wrote.
    pub texts: Vec<(ToolId, Enrichment)>,
}

/// Proposes changes and measures them. Calls `on_kind` before each kind.
///
/// # Errors
/// [`EvalError::Option`] for too few queries; errors of the engine.
pub fn improve(trials: &Trials<'_>, on_kind: &dyn Fn(Kind)) -> Result<Improved> {
    let queries = distinct(&numbered_requests(trials.set));
    if queries < FEWEST_QUERIES {
        let has = counted(queries, "judged request");
        let reason = format!(
            "it has {has}; at least {FEWEST_QUERIES} are needed to tell a gain from chance"
        );
        let path = trials.set.path.display().to_string();
        return Err(EvalError::option("--queries", path, reason));
    }
    let mut search = Search::new(trials)?;
    let before = search.mean_of_all(&search.before);
    let mut changes = Vec::new();
    for kind in Kind::ALL {
        // Texts are given and not learned, so without any there is nothing to try.
        if kind == Kind::Texts && trials.texts.is_empty() {
            continue;
        }
        on_kind(kind);
        changes.push(search.measure(kind)?);
    }
    Ok(Improved {
        catalog: trials.set.name.clone(),
        queries,
        metric: TARGET.to_string(),
        before,
        after: search.mean_of_all(&search.before),
        changes,
    })
}

/// The state between two kinds.
struct Search<'a> {
    trials: &'a Trials<'a>,
    trial: Trial<'a>,
    teacher: Teacher<'a>,
    /// What the catalog has with the accepted changes.
    content: Content,
    /// The hits of all queries with it.
    before: Vec<Vec<ToolIndex>>,
    /// The number of each query's text: equal texts are one request.
    requests: Vec<usize>,
    /// The part of each request.
    folds: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(trials: &'a Trials<'a>) -> Result<Self> {
        let mut trial = Trial::new(trials.copy, trials.set, &trials.arm);
        let content = trial.content().clone();
        let count = trials.set.queries.len();
        let all: Vec<usize> = (0..count).collect();
        let before = trial.rankings(&content, &all)?;
        let requests = numbered_requests(trials.set);
        // By request: a query must not be asked with what an equal text taught.
        let mut order: Vec<usize> = (0..distinct(&requests)).collect();
        Random::new(SEED, "folds").shuffle(&mut order);
        let mut folds = vec![0; order.len()];
        for (place, request) in order.into_iter().enumerate() {
            folds[request] = place % FOLDS;
        }
        Ok(Search {
            trials,
            trial,
            teacher: Teacher::new(trials.set),
            content,
            before,
            requests,
            folds,
        })
    }

    /// The mean of each request over the queries with its text, so that a repeated one counts once.
    fn by_request(&self, values: &[f64]) -> Vec<f64> {
        let mut sums = vec![(0.0, 0.0); self.folds.len()];
        for (value, &request) in values.iter().zip(&self.requests) {
            sums[request].0 += value;
            sums[request].1 += 1.0;
        }
        sums.into_iter().map(|(sum, count)| sum / count).collect()
    }

    fn mean_of_all(&self, rankings: &[Vec<ToolIndex>]) -> f64 {
        mean(&self.by_request(&self.values(&self.all(), rankings)))
    }

    fn all(&self) -> Vec<usize> {
        (0..self.before.len()).collect()
    }

    /// Measures what one kind gains, and takes it over if it is accepted.
    fn measure(&mut self, kind: Kind) -> Result<Change> {
        let all = self.all();
        let entries = self.proposals(kind, &all)?;
        let before = self.values(&all, &self.before);
        let mean_before = mean(&self.by_request(&before));
        let mut change = Change {
            kind,
            decision: Decision::NothingProposed,
            proposed: entries.len(),
            entries: entries.clone(),
            before: mean_before,
            after: mean_before,
            gain_ci95: [0.0, 0.0],
            p: 1.0,
            lost: 0,
        };
        if entries.is_empty() {
            return Ok(change);
        }
        let after = self.untaught_values(kind, &entries)?;
        let (after, before) = (self.by_request(&after), self.by_request(&before));
        let gain = paired(&after, &before, SEED);
        change.after = mean(&after);
        change.gain_ci95 = gain.interval;
        // Bonferroni's correction: of nine kinds, one may well gain by chance.
        change.p = (gain.p * Kind::ALL.len() as f64).min(1.0);
        change.decision = match change.after > change.before {
            false => Decision::NoGain,
            true if change.p >= SIGNIFICANT_BELOW => Decision::MayBeChance,
            true => self.keep(&mut change, entries)?,
        };
        Ok(change)
    }

    /// Leaves out entries that cost a query a hit, until none does, and takes the others over.
    fn keep(&mut self, change: &mut Change, mut entries: Vec<Entry>) -> Result<Decision> {
        let all = self.all();
        let before = self.mean_of_all(&self.before);
        for round in 0..ROUNDS {
            let content = self.content.with(&entries);
            let after = self.trial.rankings(&content, &all)?;
            let losers = self.losers(&after);
            if round == 0 {
                change.lost = losers.len();
            }
            if losers.is_empty() {
                // The entries that brought the gain may be those that were left out.
                if entries.is_empty() || self.mean_of_all(&after) <= before {
                    return Ok(Decision::NoGain);
                }
                change.entries = entries;
                // The next kinds are tried on top of it.
                self.content = content;
                self.before = after;
                return Ok(Decision::Accepted);
            }
            let count = entries.len();
            entries.retain(|entry| !self.costs(entry, &losers, &after, Self::is_at_fault));
            // A tool can also fall because its own entries, or those of tools before it, changed its score.
            if entries.len() == count {
                entries.retain(|entry| !self.costs(entry, &losers, &after, Self::is_near));
            }
            // No entry explains the loss, so another round would measure the same again.
            if entries.len() == count {
                break;
            }
        }
        Ok(Decision::LosesHits)
    }

    /// Whether an entry is why any of these queries lost a hit, by one of the two rules.
    fn costs(
        &self,
        entry: &Entry,
        losers: &[usize],
        after: &[Vec<ToolIndex>],
        is_why: fn(&Self, &Entry, usize, &[ToolIndex]) -> bool,
    ) -> bool {
        for &query in losers {
            if is_why(self, entry, query, &after[query]) {
                return true;
            }
        }
        false
    }

    /// The queries that have none of their tools among the first five hits any more.
    fn losers(&self, after: &[Vec<ToolIndex>]) -> Vec<usize> {
        let all = self.all();
        let had = self.column(KEPT, &all, &self.before);
        let has = self.column(KEPT, &all, after);
        let mut losers = Vec::new();
        for (query, (had, has)) in had.iter().zip(&has).enumerate() {
            if has < had {
                losers.push(query);
            }
        }
        losers
    }

    /// Whether an entry is about a tool of the first hits of a query, before or after.
    fn is_near(&self, entry: &Entry, query: usize, after: &[ToolIndex]) -> bool {
        let Some(tool) = entry.tool().and_then(|tool| self.trials.set.position(tool)) else {
            return false;
        };
        first(&self.before[query]).contains(&tool) || first(after).contains(&tool)
    }

    /// Whether an entry can be why a query lost a hit: it brought a tool among the first ones, or took it
    /// from there.
    fn is_at_fault(&self, entry: &Entry, query: usize, after: &[ToolIndex]) -> bool {
        let (had, has) = (first(&self.before[query]), first(after));
        match entry {
            Entry::Text { tool, .. } | Entry::Alias { tool, .. } | Entry::Pin { tool, .. } => {
                self.is_in_only(tool, has, had)
            }
            // Factors are below 1, so they take a tool away.
            Entry::Boost { tool, .. } | Entry::Off { tool, .. } => self.is_in_only(tool, had, has),
            Entry::Synonym { from, .. } => !self.queries_with(from, &[query]).is_empty(),
            Entry::Companions { .. } | Entry::Duplicates { .. } => true,
        }
    }

    /// Whether these hits have a tool that the others lack.
    fn is_in_only(&self, tool: &str, these: &[ToolIndex], others: &[ToolIndex]) -> bool {
        let Some(tool) = self.trials.set.position(tool) else {
            return false;
        };
        these.contains(&tool) && !others.contains(&tool)
    }

    /// The values of all queries, each with what the others taught.
    fn untaught_values(&mut self, kind: Kind, entries: &[Entry]) -> Result<Vec<f64>> {
        let all = self.all();
        // Nothing to hold back: these entries are not learned from other queries.
        if !kind.is_learned() {
            let after = self.trial.rankings(&self.content.with(entries), &all)?;
            return Ok(self.values(&all, &after));
        }
        let mut values = vec![0.0; all.len()];
        for fold in 0..FOLDS {
            let (asked, taught): (Vec<usize>, Vec<usize>) = all
                .iter()
                .partition(|&&query| self.folds[self.requests[query]] == fold);
            let entries = self.proposals(kind, &taught)?;
            let content = self.content.with(&entries);
            let rankings = self.trial.rankings(&content, &asked)?;
            for (query, value) in asked.iter().zip(self.values(&asked, &rankings)) {
                values[*query] = value;
            }
        }
        Ok(values)
    }

    /// What these queries give reason for: entries that the catalog does not have, has room for, and that
    /// help these queries where each of them is tried alone.
    fn proposals(&mut self, kind: Kind, queries: &[usize]) -> Result<Vec<Entry>> {
        let mut content = self.content.clone();
        let mut entries = self.taught(kind, queries);
        entries.retain(|entry| entry.add_to(&mut content));
        let mut helpful = Vec::new();
        for entry in entries {
            if self.helps(&entry, queries)? {
                helpful.push(entry);
            }
        }
        Ok(helpful)
    }

    /// Whether the queries that a single entry can change find better with it. True for those that can
    /// change any query: they are measured together.
    fn helps(&mut self, entry: &Entry, queries: &[usize]) -> Result<bool> {
        let asked = match entry {
            Entry::Synonym { from, .. } => self.queries_with(from, queries),
            Entry::Alias { name, .. } => self.queries_with(name, queries),
            Entry::Boost { tool, .. } | Entry::Off { tool, .. } => {
                self.queries_that_find(tool, queries)
            }
            Entry::Text { .. }
            | Entry::Pin { .. }
            | Entry::Companions { .. }
            | Entry::Duplicates { .. } => return Ok(true),
        };
        let after = self.trial.rankings(&self.content.with([entry]), &asked)?;
        let mut before = Vec::with_capacity(asked.len());
        for &query in &asked {
            before.push(self.before[query].clone());
        }
        let had = mean(&self.values(&asked, &before));
        Ok(mean(&self.values(&asked, &after)) > had)
    }

    /// The queries with a word.
    fn queries_with(&self, word: &str, queries: &[usize]) -> Vec<usize> {
        let term = text::stem(word);
        let mut having = Vec::new();
        for &query in queries {
            let terms = text::terms(&self.trials.set.queries[query].text);
            if terms.iter().any(|other| other.term == term) {
                having.push(query);
            }
        }
        having
    }

    /// The queries that have a tool among their hits.
    fn queries_that_find(&self, tool: &str, queries: &[usize]) -> Vec<usize> {
        let Some(tool) = self.trials.set.position(tool) else {
            return Vec::new();
        };
        let queries = queries.iter().copied();
        queries
            .filter(|&query| self.before[query].contains(&tool))
            .collect()
    }

    /// These queries, each text once.
    fn lessons(&self, queries: &[usize]) -> Vec<Lesson<'_>> {
        let mut by_request: BTreeMap<usize, Lesson<'_>> = BTreeMap::new();
        for &query in queries {
            let ranking = &self.before[query];
            let query_of = &self.trials.set.queries[query];
            let lesson = Lesson {
                query: query_of,
                ranking,
                times: 0,
                is_agreed: true,
            };
            let lesson = by_request.entry(self.requests[query]).or_insert(lesson);
            lesson.times += query_of.times;
            lesson.is_agreed &= lesson.query.relevant == query_of.relevant;
        }
        by_request.into_values().collect()
    }

    /// What these queries teach of one kind.
    fn taught(&self, kind: Kind, queries: &[usize]) -> Vec<Entry> {
        let lessons = self.lessons(queries);
        let is_dense = !self
            .trials
            .copy
            .catalog
            .searcher()
            .embedder_ids()
            .is_empty();
        match kind {
            // Only dense search reads texts.
            Kind::Texts | Kind::Requests if !is_dense => Vec::new(),
            Kind::Texts => self.written(),
            Kind::Requests => self.teacher.requests(&lessons),
            Kind::Synonyms => self.teacher.synonyms(&lessons),
            Kind::Aliases => self.teacher.aliases(&lessons),
            Kind::Pins => self.teacher.pins(&lessons),
            Kind::Boosts => self.teacher.boosts(&lessons),
            Kind::Companions => {
                let before = self.content.companions();
                let after = !before.unwrap_or(true);
                vec![Entry::Companions { before, after }]
            }
            Kind::Duplicates => {
                let before = self.content.duplicates();
                let after = !before.unwrap_or(false);
                vec![Entry::Duplicates { before, after }]
            }
            Kind::Off => self.teacher.off(&lessons, |tool| self.content.factor(tool)),
        }
    }

    fn written(&self) -> Vec<Entry> {
        let queries = self.trials.set.queries.iter();
        let requests: HashSet<String> = queries.map(|query| words_of(&query.text)).collect();
        let mut entries = Vec::new();
        for (tool, enrichment) in &self.trials.texts {
            for text in enrichment.texts() {
                // A text that is a judged query says nothing about others.
                if requests.contains(&words_of(text)) {
                    continue;
                }
                entries.push(Entry::Text {
                    tool: tool.to_string(),
                    text: text.clone(),
                    model: enrichment.model().to_owned(),
                });
            }
        }
        entries
    }

    /// The target metric of these queries with these hits.
    fn values(&self, queries: &[usize], rankings: &[Vec<ToolIndex>]) -> Vec<f64> {
        self.column(TARGET, queries, rankings)
    }

    fn column(&self, metric: Metric, queries: &[usize], rankings: &[Vec<ToolIndex>]) -> Vec<f64> {
        let (mut hits, mut judgements) = (Vec::new(), Vec::new());
        for (&query, ranking) in queries.iter().zip(rankings) {
            let query = &self.trials.set.queries[query];
            hits.push(query.judged_hits(ranking));
            judgements.push(&query.judgements);
        }
        let scores = Scores::of_hits(&[metric], hits.iter().map(Vec::as_slice).zip(judgements));
        scores.column(metric).to_vec()
    }
}

/// A text without regard to capitals and punctuation.
fn words_of(text: &str) -> String {
    text::words(text).join(" ")
}

/// A number for each query, from 0; equal texts have the same.
fn numbered_requests(set: &EvalSet) -> Vec<usize> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut requests = Vec::with_capacity(set.queries.len());
    for query in &set.queries {
        let next = numbers.len();
        requests.push(*numbers.entry(words_of(&query.text)).or_insert(next));
    }
    requests
}

/// How many requests these are.
fn distinct(requests: &[usize]) -> usize {
    requests.iter().max().map_or(0, |last| last + 1)
}

/// The hits whose definitions a model sees.
fn first(hits: &[ToolIndex]) -> &[ToolIndex] {
    &hits[..hits.len().min(FIRST)]
}
