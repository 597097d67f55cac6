//! The figures of a tool and of a caller, as they are added up in memory and in the database.

use std::collections::{BTreeMap, HashMap};

use toolscout_base::telemetry::latencies::{BOUNDS_S, Buckets};
use toolscout_index::{Match, ToolId};

/// The use of a tool, on one day or on several.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolFigures {
    /// Searches that had it among their hits.
    pub searches: u64,
    /// Those of them in which it was the first hit.
    pub first: u64,
    /// The sum of its places among the hits, from 1.
    pub places: u64,
    /// Searches that named it in a line after the hits.
    pub more: u64,
    /// How often it was loaded for a model.
    pub injections: u64,
    /// Calls that were made or refused.
    pub calls: u64,
    /// Those of them that succeeded.
    pub successes: u64,
    /// The others, by the code of their error.
    pub errors: BTreeMap<String, u64>,
    /// How long the calls took that reached the tool.
    pub latency: Buckets,
    /// Tokens of its definition that were sent.
    pub definition_tokens: u64,
    /// Tokens of the results of its calls.
    pub result_tokens: u64,
    /// The first use in milliseconds since 1970; 0 without any.
    pub first_ms: i64,
    /// The last one.
    pub last_ms: i64,
}

impl ToolFigures {
    /// Adds the figures of another time.
    pub fn add(&mut self, other: &ToolFigures) {
        for (sum, more) in [
            (&mut self.searches, other.searches),
            (&mut self.first, other.first),
            (&mut self.places, other.places),
            (&mut self.more, other.more),
            (&mut self.injections, other.injections),
            (&mut self.calls, other.calls),
            (&mut self.successes, other.successes),
            (&mut self.definition_tokens, other.definition_tokens),
            (&mut self.result_tokens, other.result_tokens),
        ] {
            *sum = sum.saturating_add(more);
        }
        for (code, count) in &other.errors {
            *self.errors.entry(code.clone()).or_default() += count;
        }
        self.latency.add(&other.latency);
        // 0 stands for no use, and is no time.
        if other.first_ms > 0 {
            self.used_at(other.first_ms);
            self.used_at(other.last_ms);
        }
    }

    /// Notes the time of a use.
    pub fn used_at(&mut self, at_ms: i64) {
        if self.first_ms == 0 || at_ms < self.first_ms {
            self.first_ms = at_ms;
        }
        self.last_ms = self.last_ms.max(at_ms);
    }

    /// Calls that failed or were refused.
    pub fn failures(&self) -> u64 {
        self.calls.saturating_sub(self.successes)
    }

    /// Tokens of its definition and of its results.
    pub fn tokens(&self) -> u64 {
        self.definition_tokens.saturating_add(self.result_tokens)
    }

    /// Whether a search found it, or it was called. A line after the hits is no use: in a small catalog
    /// every search names nearly every tool.
    pub fn is_used(&self) -> bool {
        self.searches + self.calls > 0
    }

    /// Counts a call that reached the tool.
    pub fn took(&mut self, seconds: f64) {
        // The first bucket that it fits in; the last one has no bound.
        let bucket = BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.latency.counts[bucket] += 1;
        self.latency.sum_s += seconds;
    }
}

/// What a caller did in a catalog, on one day or on several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallerFigures {
    /// Searches.
    pub searches: u64,
    /// Searches whose hits were a good match.
    pub good: u64,
    /// Those whose hits were a possible match.
    pub possible: u64,
    /// Those without a match.
    pub none: u64,
    /// Calls that were made or refused.
    pub calls: u64,
    /// Those of them that failed or were refused.
    pub errors: u64,
}

impl CallerFigures {
    /// Counts a search.
    pub fn searched(&mut self, matched: Match) {
        self.searches += 1;
        match matched {
            Match::Good => self.good += 1,
            Match::Possible => self.possible += 1,
            Match::None => self.none += 1,
        }
    }

    /// Adds the figures of another time.
    pub fn add(&mut self, other: &CallerFigures) {
        self.searches += other.searches;
        self.good += other.good;
        self.possible += other.possible;
        self.none += other.none;
        self.calls += other.calls;
        self.errors += other.errors;
    }
}

/// Who used a catalog, and through which profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallerKey {
    /// The catalog.
    pub catalog: String,
    /// The profile; empty without one.
    pub profile: String,
    /// The person or the key.
    pub who: String,
}

/// The use of a tool in a [`Tally`]. A search shows many tools and few of them are called, so that
/// figures of loads and calls have a place of their own.
#[derive(Clone, Debug, Default)]
pub struct ToolTally {
    /// As [`ToolFigures::searches`].
    pub searches: u64,
    /// As [`ToolFigures::first`].
    pub first: u64,
    /// As [`ToolFigures::places`].
    pub places: u64,
    /// As [`ToolFigures::more`].
    pub more: u64,
    first_ms: i64,
    last_ms: i64,
    calls: Option<Box<ToolFigures>>,
}

impl ToolTally {
    /// Notes the time of a use.
    pub fn used_at(&mut self, at_ms: i64) {
        if self.first_ms == 0 || at_ms < self.first_ms {
            self.first_ms = at_ms;
        }
        self.last_ms = self.last_ms.max(at_ms);
    }

    /// The times of the first and the last use; `None` without any.
    pub fn times(&self) -> Option<(i64, i64)> {
        (self.first_ms > 0).then_some((self.first_ms, self.last_ms))
    }

    /// The figures of loads and calls, to add to.
    pub fn calls(&mut self) -> &mut ToolFigures {
        self.calls.get_or_insert_default()
    }

    /// The figures of loads and calls, if there are any.
    pub fn called(&self) -> Option<&ToolFigures> {
        self.calls.as_deref()
    }
}

/// Tools of a catalog in a [`Tally`].
pub type ToolTallies = HashMap<ToolId, ToolTally>;

/// What was used on one day and is not in the database yet.
#[derive(Debug, Default)]
pub struct Tally {
    /// The day, counted from 1970.
    pub day: i64,
    /// The tools of each catalog.
    pub tools: HashMap<String, ToolTallies>,
    /// The callers.
    pub callers: HashMap<CallerKey, CallerFigures>,
    /// The number of tools and callers.
    rows: usize,
}

/// A catalog of a [`Tally`].
pub struct CatalogTally<'a> {
    tools: &'a mut ToolTallies,
    rows: &'a mut usize,
}

impl CatalogTally<'_> {
    /// The figures of a tool.
    pub fn tool(&mut self, tool: ToolId) -> &mut ToolTally {
        self.tools.entry(tool).or_insert_with(|| {
            *self.rows += 1;
            ToolTally::default()
        })
    }
}

impl Tally {
    /// Nothing yet of this day.
    pub fn of(day: i64) -> Self {
        Tally {
            day,
            ..Tally::default()
        }
    }

    /// The number of rows that it becomes.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tools of a catalog.
    pub fn catalog(&mut self, catalog: String) -> CatalogTally<'_> {
        CatalogTally {
            tools: self.tools.entry(catalog).or_default(),
            rows: &mut self.rows,
        }
    }

    /// The figures of a caller.
    pub fn caller(&mut self, key: CallerKey) -> &mut CallerFigures {
        self.rows += usize::from(!self.callers.contains_key(&key));
        self.callers.entry(key).or_default()
    }

    /// Forgets a catalog.
    pub fn forget(&mut self, catalog: &str) {
        self.tools.remove(catalog);
        self.callers.retain(|key, _| key.catalog != catalog);
        let tools: usize = self.tools.values().map(HashMap::len).sum();
        self.rows = tools + self.callers.len();
    }
}
