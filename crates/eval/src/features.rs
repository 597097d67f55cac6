//! Writes the ranker features of every candidate for training, one line of JSON per query.
//!
//! The first line names the columns; `scripts/train_ranker.py` reads the file. Every query runs
//! twice: on the whole catalog, and on one without a fifth of the tools (see [`nomatch`]), from
//! which confidence learns the answers to unanswerable queries. Queries that the set marks as
//! unanswerable run on the whole catalog.
//!
//! [`nomatch`]: super::nomatch

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use toolscout_index::RankerSample;
use toolscout_index::ranker::{Feature, Signal};
use toolscout_index::{Searcher, ToolId};

use super::arms::Arm;
use super::dataset::{EvalQuery, EvalSet, ToolIndex, Unanswerable};
use super::error::{EvalError, Result};
use super::nomatch::HeldOut;
use super::prepare::Workspace;
use super::run::{THREADS, each_text};

/// A features file being written.
pub struct FeaturesFile {
    file: BufWriter<File>,
    path: PathBuf,
    legs: Option<Vec<String>>,
}

/// The first line.
#[derive(Serialize)]
struct Head<'a> {
    legs: &'a [String],
    features: Vec<Column>,
    signals: Vec<Column>,
}

#[derive(Serialize)]
struct Column {
    name: &'static str,
    is_match: bool,
}

/// The line of one query.
#[derive(Serialize)]
struct FeatureLine<'a> {
    set: Cow<'a, str>,
    query: &'a str,
    held_out: bool,
    /// False where all its relevant tools were removed.
    answerable: bool,
    /// True where the set marks it as unanswerable.
    none: bool,
    /// Number of relevant tools in the catalog.
    relevant: usize,
    tools: &'a [ToolId],
    labels: Vec<u8>,
    rows: &'a [f32],
    signals: &'a [f32],
}

/// A query with its relevant tools, none for a query that no tool can answer.
struct Asked<'a> {
    id: &'a str,
    text: &'a str,
    relevant: &'a [ToolIndex],
}

/// The lines of a set over one catalog.
#[derive(Clone, Copy)]
struct Part<'a> {
    /// The removed tools; empty for the whole catalog.
    held_out: Option<&'a HeldOut>,
}

impl FeaturesFile {
    /// Creates the file.
    ///
    /// # Errors
    /// [`EvalError::Io`].
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(EvalError::failed_to("create", path))?;
        Ok(FeaturesFile {
            file: BufWriter::new(file),
            path: path.to_owned(),
            legs: None,
        })
    }

    /// Adds the queries of a set, run by an arm over the catalog that [`Workspace::prepare`] wrote.
    /// Calls `on_query` after each query.
    ///
    /// # Errors
    /// Errors of the engine; [`EvalError::Option`] where the arm has no candidates, or earlier sets
    /// used other legs.
    pub fn add(
        &mut self,
        set: &EvalSet,
        workspace: &Workspace,
        arm: &Arm,
        seed: u64,
        on_query: &(dyn Fn() + Sync),
    ) -> Result<()> {
        let whole = workspace.open_set(set)?.searcher();
        self.add_part(set, &whole, arm, Part { held_out: None }, on_query)?;
        let held_out = HeldOut::draw(set, seed);
        if !held_out.has_both_kinds() {
            return Ok(());
        }
        let rest = workspace.without(set, &held_out.ids(set))?;
        let part = Part {
            held_out: Some(&held_out),
        };
        self.add_part(set, &rest.catalog.searcher(), arm, part, on_query)
    }

    /// Flushes and closes the file.
    ///
    /// # Errors
    /// [`EvalError::Io`].
    pub fn finish(mut self) -> Result<()> {
        // A writer that is only dropped would swallow the error.
        let flushed = self.file.flush();
        flushed.map_err(EvalError::failed_to("write", &self.path))
    }

    fn add_part(
        &mut self,
        set: &EvalSet,
        searcher: &Searcher,
        arm: &Arm,
        part: Part<'_>,
        on_query: &(dyn Fn() + Sync),
    ) -> Result<()> {
        let mut asked: Vec<Asked> = set.queries.iter().map(Asked::judged).collect();
        // One run of these is enough: they have no relevant tools that could be removed.
        if part.held_out.is_none() {
            asked.extend(set.unanswerable.iter().map(Asked::unanswerable));
        }
        let texts: Vec<&str> = asked.iter().map(|query| query.text).collect();
        let measured = each_text(&texts, THREADS, |text| {
            let measured = searcher.ranker_sample(&arm.query(text))?;
            on_query();
            Ok(measured)
        })?;
        for (query, measured) in asked.iter().zip(measured) {
            let Some(measured) = measured else {
                let reason = "its answers are not fused by the convex formula, so there is nothing to rank anew";
                return Err(EvalError::option("--features", &arm.name, reason));
            };
            // A query in a script that an embedder does not support uses fewer legs. Its features
            // differ, so it is no example for this ranker.
            if self.begin(&measured)? {
                self.write(&FeatureLine::new(set, query, &measured, part))?;
            }
        }
        Ok(())
    }

    /// Writes the first line before the first query. Returns false for a query that used other
    /// legs.
    fn begin(&mut self, measured: &RankerSample) -> Result<bool> {
        if let Some(legs) = &self.legs {
            return Ok(*legs == measured.legs);
        }
        let features = Feature::ALL.iter().map(|feature| Column {
            name: feature.name(),
            is_match: feature.is_match(),
        });
        let signals = Signal::ALL.iter().map(|signal| Column {
            name: signal.name(),
            is_match: signal.is_match(),
        });
        self.write(&Head {
            legs: &measured.legs,
            features: features.collect(),
            signals: signals.collect(),
        })?;
        self.legs = Some(measured.legs.clone());
        Ok(true)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let failed = EvalError::failed_to("write", &self.path);
        match serde_json::to_writer(&mut self.file, line) {
            Ok(()) => self.file.write_all(b"\n").map_err(failed),
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl<'a> Asked<'a> {
    fn judged(query: &'a EvalQuery) -> Self {
        Asked {
            id: &query.id,
            text: &query.text,
            relevant: &query.relevant,
        }
    }

    fn unanswerable(query: &'a Unanswerable) -> Self {
        Asked {
            id: &query.id,
            text: &query.text,
            relevant: &[],
        }
    }
}

/// The name of a set; with the number of tools that have texts, where it is measured with some.
fn measured_name(set: &EvalSet) -> Cow<'_, str> {
    match set.texts.len() {
        0 => Cow::Borrowed(&set.name),
        count => Cow::Owned(format!("{}+{count}", set.name)),
    }
}

impl<'a> FeatureLine<'a> {
    fn new(
        set: &'a EvalSet,
        asked: &Asked<'a>,
        measured: &'a RankerSample,
        part: Part<'_>,
    ) -> Self {
        let mut labels = Vec::with_capacity(measured.tools.len());
        for id in &measured.tools {
            let tool = set.position(id.as_str());
            let is_right =
                matches!(tool, Some(tool) if asked.relevant.binary_search(&tool).is_ok());
            labels.push(u8::from(is_right));
        }
        let mut relevant = asked.relevant.len();
        if let Some(out) = part.held_out {
            let asked = asked.relevant.iter();
            // The removed tools are ascending.
            relevant -= asked
                .filter(|tool| out.tools.binary_search(tool).is_ok())
                .count();
        }
        FeatureLine {
            set: measured_name(set),
            query: asked.id,
            held_out: part.held_out.is_some(),
            answerable: relevant > 0,
            // By the set itself, before any tool was removed.
            none: asked.relevant.is_empty(),
            relevant,
            tools: &measured.tools,
            labels,
            rows: &measured.rows,
            signals: &measured.signals,
        }
    }
}
