//! An evaluation set: tools, queries, and the relevant tools of each query.
//!
//! A set is a folder in one of two formats:
//! - our own: `tools.jsonl` (or `tools.json`, `tools.yaml`, …, or a folder `tools/` of files),
//!   every file in any format that `add` reads, and `queries.jsonl` with lines
//!   `{"id","query","relevant":[ids]}`, or `"relevant":{id: grade}`. Other fields are ignored,
//!   except `"kind":"none"`, which marks a query without relevant tools as unanswerable,
//!   `"groups":[[ids]]`, which lists relevant tools that are alternatives to each other, and
//!   `"order":[ids]`, the order in which tools are to be called. Without `relevant`, judgements are
//!   read from qrels in the same folder.
//! - BEIR and MTEB: `corpus.jsonl`, `queries.jsonl`, `qrels/*`, or folders `corpus/`, `queries/`.
//!
//! An id in a judgement is `SERVER/NAME`, or the `id` field of the tool in its file.
//!
//! A loaded set is consistent: ids are unique, every query has a tool with a grade above 0, every
//! judged tool exists. What was left out for that is counted ([`LeftOut`]).

mod columns;
mod left_out;
mod reading;
mod qrels;
mod files;
mod queries;
mod resolve;
mod texts;
pub mod pasted;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use toolscout_index::{Enrichment, Tool};

use super::error::{EvalError, Result};
use super::judgements::{JudgedHits, Judgements};
use super::random::Random;

pub(crate) use columns::{Separator, escape, unescape};
pub use left_out::LeftOut;
pub use texts::TextsPlan;

use pasted::PastedQuery;
use resolve::{Resolved, Resolver, ToolIds};

/// A position in [`EvalSet::tools`].
pub type ToolIndex = u32;

/// One judged query.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalQuery {
    /// Unique within its set.
    pub id: String,
    /// The text of the query.
    pub text: String,
    /// How often it was asked: the field `times` of its line, or 1.
    pub times: u64,
    /// Where query and judgement came from, if the set says so.
    pub source: Option<String>,
    /// The relevant tools, ascending, distinct. None if all judged tools have lower grades than
    /// relevance starts from.
    pub relevant: Vec<ToolIndex>,
    /// Groups of alternatives: one tool of each group is needed. By default every relevant tool is
    /// a group of its own.
    pub groups: Vec<Vec<ToolIndex>>,
    /// The judged tools, ascending, distinct: those of the positions in `judgements`.
    pub judged: Vec<ToolIndex>,
    /// What is judged of them.
    pub judgements: Judgements,
}

impl EvalQuery {
    /// The position of a tool in the judgements.
    pub fn position(&self, tool: ToolIndex) -> Option<usize> {
        self.judged.binary_search(&tool).ok()
    }

    /// Whether a tool is relevant.
    pub(crate) fn is_relevant(&self, tool: ToolIndex) -> bool {
        self.relevant.binary_search(&tool).is_ok()
    }

    /// A ranking as the judgements see it.
    pub fn judged_hits(&self, ranking: &[ToolIndex]) -> JudgedHits {
        ranking.iter().map(|&tool| self.position(tool)).collect()
    }
}

/// A query that no tool can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswerable {
    /// Unique within its set, judged queries included.
    pub id: String,
    /// The text of the query.
    pub text: String,
}

/// Which ids of tools the judgements of a set use, where the tools have two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelevantIds {
    /// The `id` fields of the tools in their files.
    Field,
    /// `SERVER/NAME`.
    ServerName,
    /// Some the one, some the other. An id that could be both is an `id` field.
    Mixed,
}

impl fmt::Display for RelevantIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RelevantIds::Field => "the `id` fields of the tools",
            RelevantIds::ServerName => "SERVER/NAME, not the `id` fields of the tools",
            RelevantIds::Mixed => "`id` fields of the tools or SERVER/NAME",
        })
    }
}

/// Tools and judged queries.
#[derive(Clone, Debug)]
pub struct EvalSet {
    /// The folder's name.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
    /// Every tool of the catalog, in the order of the files.
    pub tools: Vec<Tool>,
    /// The queries to measure, in the order of the file.
    pub queries: Vec<EvalQuery>,
    /// Their number before a sample was taken.
    pub queries_in_set: usize,
    /// Queries that the set marks as unanswerable; only the measurement of abstention uses them.
    pub unanswerable: Vec<Unanswerable>,
    /// Which ids the judgements use; `None` where the files give the tools no ids of their own.
    pub relevant_ids: Option<RelevantIds>,
    /// What the files have and this set leaves out.
    pub left_out: LeftOut,
    /// The least grade of a relevant tool; 0 for every grade above 0.
    pub relevant_from: f64,
    /// What was written about tools, with which the set is measured.
    pub texts: BTreeMap<ToolIndex, Enrichment>,
    ids: ToolIds,
}

/// How a set is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load<'a> {
    /// A file of judged queries in place of the set's own.
    pub requests: Option<&'a Path>,
    /// The least grade of a relevant tool; by default every grade above 0.
    pub relevant_from: f64,
    /// Whether judgements about tools that the set does not have are left out. They are an error
    /// otherwise.
    pub skip_unknown: bool,
}

impl EvalSet {
    /// Reads a set from its folder.
    ///
    /// # Errors
    /// An [`EvalError`] that names file, line and value, for everything that would make figures
    /// wrong.
    pub fn load(path: &Path) -> Result<Self> {
        EvalSet::load_with(path, &Load::default())
    }

    /// Reads a set from its folder in this way.
    ///
    /// # Errors
    /// As [`EvalSet::load`].
    pub fn load_with(path: &Path, load: &Load<'_>) -> Result<Self> {
        EvalSet::new(path, files::read_set(path, load)?, load)
    }

    /// The tools of a catalog with judged queries: those of a file, and requests with the ids of
    /// the tools called for them. Called tools that no longer exist are left out.
    ///
    /// # Errors
    /// As [`EvalSet::load`].
    pub fn over_catalog(
        name: &str,
        tools: Vec<Tool>,
        file: Option<&Path>,
        called: Vec<(String, Vec<String>)>,
        load: &Load<'_>,
    ) -> Result<Self> {
        let path = file.unwrap_or(Path::new(name));
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut queries = match file {
            Some(file) => queries::read_queries(&[file.to_owned()], folder)?,
            None => RawQueries::default(),
        };
        let known: std::collections::HashSet<&str> =
            tools.iter().map(|tool| tool.id.as_str()).collect();
        // Numbered before any is left out: a removed tool does not change the ids of other queries.
        for (number, (text, mut relevant)) in called.into_iter().enumerate() {
            relevant.retain(|id| known.contains(id.as_str()));
            if !relevant.is_empty() {
                queries.queries.push(RawQuery {
                    id: format!("called-{}", number + 1),
                    text,
                    times: 1,
                    source: None,
                    judged: relevant.into_iter().map(|id| (id, 1.0)).collect(),
                    groups: Vec::new(),
                    order: Vec::new(),
                    judged_in: path.to_owned(),
                });
            }
        }
        let set = EvalSet::new(
            path,
            RawSet {
                id_fields: vec![None; tools.len()],
                tools,
                queries,
            },
            load,
        )?;
        Ok(EvalSet {
            name: name.to_owned(),
            ..set
        })
    }

    /// The tools of a catalog with the judged ones of these queries. The same queries in a file make
    /// the same set.
    ///
    /// # Errors
    /// [`EvalError::Empty`] if none of them is judged with a relevant tool.
    pub fn of_pasted(name: &str, tools: Vec<Tool>, pasted: &[PastedQuery]) -> Result<Self> {
        let mut queries = RawQueries::default();
        for query in pasted {
            match query.relevant.as_deref() {
                None => queries.left_out.unjudged_queries += 1,
                Some([]) => queries.unanswerable.push(Unanswerable {
                    id: query.id.clone(),
                    text: query.text.clone(),
                }),
                Some(relevant) => queries.queries.push(query.raw(relevant)),
            }
        }
        let raw = RawSet {
            // Only files give tools an `id` beside their name.
            id_fields: vec![None; tools.len()],
            tools,
            queries,
        };
        let set = EvalSet::new(Path::new(name), raw, &Load::default())?;
        Ok(EvalSet {
            name: name.to_owned(),
            ..set
        })
    }

    fn new(path: &Path, raw: RawSet, load: &Load<'_>) -> Result<Self> {
        if raw.tools.is_empty() {
            return Err(EvalError::empty(path, "tools"));
        }
        let mut ids = ToolIds::new(path, &raw.tools, raw.id_fields)?;
        let relevant_ids = ids.choose(&raw.queries.queries);
        let mut resolver = Resolver::new(&ids, &raw.tools, load);
        let mut queries = Vec::new();
        let mut unanswerable = raw.queries.unanswerable;
        for query in raw.queries.queries {
            // A query whose grades are all 0 turns out to be unanswerable here.
            match resolver.resolve(query)? {
                Resolved::Judged(query) => queries.push(query),
                Resolved::Unanswerable(query) => unanswerable.push(query),
                Resolved::LeftOut => {}
            }
        }
        // Counted while the files were read, and while the tools were looked up.
        let left_out = raw.queries.left_out.and(&resolver.left_out);
        if queries.is_empty() {
            return Err(EvalError::empty(path, "queries"));
        }
        let (name, path) = (name_of(path), path.to_owned());
        Ok(EvalSet {
            name,
            path,
            tools: raw.tools,
            queries_in_set: queries.len(),
            queries,
            unanswerable,
            relevant_ids,
            left_out,
            relevant_from: load.relevant_from,
            texts: BTreeMap::new(),
            ids,
        })
    }

    /// The same tools with a sample of `count` queries; all queries when there are no more.
    pub fn sampled(mut self, count: usize, seed: u64) -> Self {
        self.queries = Random::new(seed, "queries").sample_of(&self.queries, count);
        // A stream of its own: marking queries as unanswerable does not change the sample above.
        self.unanswerable = Random::new(seed, "unanswerable").sample_of(&self.unanswerable, count);
        self
    }

    /// Whether tools have other grades than 1 and 0.
    pub fn is_graded(&self) -> bool {
        let mut grades = self.grades();
        grades.any(|grade| grade > 0.0 && grade != 1.0)
    }

    /// Whether some tools are judged as not relevant. If none is, a hit without a judgement says
    /// nothing about the judgements.
    pub fn has_irrelevant(&self) -> bool {
        self.grades().any(|grade| grade <= 0.0)
    }

    fn grades(&self) -> impl Iterator<Item = f64> {
        let queries = self.queries.iter();
        queries.flat_map(|query| query.judgements.grades.iter().copied())
    }

    /// Whether the order of tools is judged for some queries.
    pub fn has_order(&self) -> bool {
        // A single tool has no order.
        let mut queries = self.queries.iter();
        queries.any(|query| query.judgements.order.len() > 1)
    }

    /// The texts of the queries, in their order.
    pub(crate) fn query_texts(&self) -> impl Iterator<Item = &str> {
        self.queries.iter().map(|query| query.text.as_str())
    }

    /// The position of the tool with this id (`SERVER/NAME`) in [`EvalSet::tools`].
    pub fn position(&self, id: &str) -> Option<ToolIndex> {
        self.ids.by_name(id)
    }

    /// The position of the tool that a judgement or a run file names, by the ids that the
    /// judgements of this set use.
    pub fn judged_position(&self, id: &str) -> Option<ToolIndex> {
        self.ids.find(id)
    }

    /// The tool at a position.
    pub fn tool(&self, position: ToolIndex) -> &Tool {
        &self.tools[position as usize]
    }

    /// The id of the tool at a position, as text.
    pub(crate) fn id_of(&self, position: ToolIndex) -> String {
        self.tool(position).id.to_string()
    }

    /// A digest of tools, measured queries and judgements. Reports with and without texts of the tools
    /// are of one set. It does not depend on the path of the set.
    pub fn fingerprint(&self) -> String {
        let mut digest = Fingerprint::default();
        for tool in &self.tools {
            digest.feed(tool.id.as_str());
            digest.feed(&tool.description);
            digest.feed(&Value::Object(tool.input_schema.clone()).to_string());
        }
        for query in &self.queries {
            digest.feed(&query.id);
            digest.feed(&query.text);
            for &tool in &query.relevant {
                digest.feed(self.tool(tool).id.as_str());
            }
            self.feed_grades(&mut digest, query);
        }
        for query in &self.unanswerable {
            digest.0.update(&query.id);
            digest.0.update(&query.text);
        }
        digest.finish()
    }

    /// Adds what is judged beyond which tools are relevant. Nothing is added for most sets, so that
    /// their digests are those of earlier versions.
    fn feed_grades(&self, digest: &mut Fingerprint, query: &EvalQuery) {
        let judgements = &query.judgements;
        for (&tool, grade) in query.judged.iter().zip(&judgements.grades) {
            if *grade != 1.0 {
                digest.feed(&format!("{} has grade {grade}", self.tool(tool).id));
            }
        }
        for (what, lists) in [
            ("groups", &judgements.groups),
            ("order", &vec![judgements.order.clone()]),
        ] {
            if lists.iter().any(|list| !list.is_empty()) {
                digest.feed(&format!("{what} {lists:?}"));
            }
        }
    }
}

/// A digest of texts.
#[derive(Default)]
pub(super) struct Fingerprint(Sha256);

impl Fingerprint {
    /// Adds a text.
    pub(super) fn feed(&mut self, text: &str) {
        // The length first: text that moves from one field to the next changes the digest too.
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
    }

    /// The digest, in hexadecimal.
    pub(super) fn finish(self) -> String {
        hex::encode(&self.0.finalize()[..8])
    }
}

/// The content of the files, before ids are resolved.
struct RawSet {
    tools: Vec<Tool>,
    /// The `id` field of each tool in its file.
    id_fields: Vec<Option<String>>,
    queries: RawQueries,
}

struct RawQuery {
    id: String,
    text: String,
    times: u64,
    /// Where it came from, if its file says so.
    source: Option<String>,
    /// Tools with their grades.
    judged: Vec<(String, f64)>,
    /// Empty where the set has none.
    groups: Vec<Vec<String>>,
    /// Empty where the order is not judged.
    order: Vec<String>,
    /// The file of the judgement, for messages.
    judged_in: PathBuf,
}

/// The queries of files, joined with their judgements.
#[derive(Default)]
struct RawQueries {
    queries: Vec<RawQuery>,
    unanswerable: Vec<Unanswerable>,
    left_out: LeftOut,
}

fn name_of(path: &Path) -> String {
    // `.` and `..` have no name of their own.
    let whole = path.canonicalize().unwrap_or(path.to_owned());
    match whole.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        // The root of a file system, or a path that ends in `..` and does not exist.
        None => "set".to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Sets made in tests without files.
    use toolscout_index::ToolId;

    use super::*;

    /// A set of tools `(id, description)` and queries `(id, text, relevant ids)`.
    pub(crate) fn set(tools: &[(&str, &str)], queries: &[(&str, &str, &[&str])]) -> EvalSet {
        let tool = |(id, description): &(&str, &str)| {
            let id = ToolId::parse(id).unwrap();
            Tool::new(id.server(), id.name())
                .unwrap()
                .with_description(*description)
        };
        let query = |(id, text, relevant): &(&str, &str, &[&str])| RawQuery {
            id: (*id).into(),
            text: (*text).into(),
            times: 1,
            source: None,
            judged: relevant.iter().map(|id| ((*id).into(), 1.0)).collect(),
            groups: Vec::new(),
            order: Vec::new(),
            judged_in: "queries.jsonl".into(),
        };
        let tools: Vec<Tool> = tools.iter().map(tool).collect();
        let queries = queries.iter().map(query).collect();
        let raw = RawSet {
            id_fields: vec![None; tools.len()],
            tools,
            queries: RawQueries {
                queries,
                ..RawQueries::default()
            },
        };
        EvalSet::new(Path::new("made/up"), raw, &Load::default()).unwrap()
    }
}

#[cfg(test)]
mod tests;
