//! Reads queries and joins them with their judgements.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::qrels::Qrels;
use super::reading::{each_object, files_in, not_a_set, text_of, text_of_value};
use super::{LeftOut, RawQueries, RawQuery, Unanswerable};
use crate::error::{EvalError, Result};

/// Names of a judgement file beside `queries.jsonl`.
const QRELS_NAMES: [&str; 7] = [
    "qrels",
    "qrels.txt",
    "qrels.tsv",
    "qrels.csv",
    "qrels.jsonl",
    "qrels.trec",
    "qrels.test",
];

/// The judgement in the line of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// None: another file has it.
    Absent,
    /// Tools with their grades.
    Listed,
    /// The query is unanswerable.
    NoTool,
}

/// Reads files of queries. Judgements that are not in them are read from the folder `set`.
pub(super) fn read_queries(files: &[PathBuf], set: &Path) -> Result<RawQueries> {
    let mut queries: Vec<(RawQuery, Judgement)> = Vec::new();
    for file in files {
        queries.extend(read_file(file)?);
    }
    check_ids(&queries)?;
    let judged_in = qrels_files(set)?;
    let mut lines = queries.iter();
    let none_is_judged = lines.all(|(_, judgement)| *judgement == Judgement::Absent);
    if judged_in.is_empty() && !queries.is_empty() && none_is_judged {
        let reason =
            "its queries have no `relevant` and there are no judgements (qrels/*.tsv or qrels.txt)";
        return Err(not_a_set(set, reason));
    }
    let mut qrels = Qrels::default();
    for file in &judged_in {
        qrels.read(file)?;
    }
    // A file without any query is told apart from one whose queries were all left out.
    let any = !queries.is_empty();
    let joined = join(queries, &mut qrels, judged_in.first());
    if any && joined.queries.is_empty() && joined.unanswerable.is_empty() {
        return Err(EvalError::empty(set, "judged queries"));
    }
    Ok(joined)
}

/// The id of a query that has none, by its file and line.
fn usual_id(path: &Path, line: usize) -> String {
    let file = path.file_stem().unwrap_or_default().to_string_lossy();
    format!("{file}-{line}")
}

fn read_file(path: &Path) -> Result<Vec<(RawQuery, Judgement)>> {
    let queries = each_object(path, |line, value| {
        // Without judgements elsewhere, nothing else names the query.
        let usual_id = value.get("relevant").map(|_| usual_id(path, line));
        let query = read_query(path, line, &value, usual_id.as_deref())?;
        Ok((line, query, judgement_of(path, line, &value)?))
    })?;
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (line, query, _) in &queries {
        if let Some(first) = seen.insert(&query.id, *line) {
            return Err(EvalError::DuplicateQuery {
                path: path.to_owned(),
                id: query.id.clone(),
                first,
                second: *line,
            });
        }
    }
    let queries = queries.into_iter();
    Ok(queries
        .map(|(_, query, judgement)| (query, judgement))
        .collect())
}

/// Fails if two files have the same query.
fn check_ids(queries: &[(RawQuery, Judgement)]) -> Result<()> {
    let mut seen: HashMap<&str, &Path> = HashMap::new();
    for (query, _) in queries {
        if let Some(first) = seen.insert(&query.id, &query.judged_in) {
            let reason = format!(
                "query id {:?} is also in {}; ids must be unique, rename one",
                query.id,
                first.display()
            );
            return Err(EvalError::malformed(&query.judged_in, 1, reason));
        }
    }
    Ok(())
}

/// Queries with their judgements. What their own line says counts more than qrels.
fn join(
    queries: Vec<(RawQuery, Judgement)>,
    qrels: &mut Qrels,
    judged_in: Option<&PathBuf>,
) -> RawQueries {
    let mut joined = RawQueries::default();
    let left_out = &mut joined.left_out;
    for (mut query, judgement) in queries {
        let elsewhere = qrels.take(&query.id);
        if let Some(other) = &elsewhere
            && judgement != Judgement::Absent
            && relevant(&query.judged) != relevant(other)
        {
            left_out.contradicting_queries += 1;
        }
        match (judgement, elsewhere) {
            (Judgement::NoTool, _) => joined.unanswerable.push(Unanswerable {
                id: query.id,
                text: query.text,
            }),
            (Judgement::Listed, _) => joined.queries.push(query),
            (Judgement::Absent, Some(judged)) => {
                query.judged = judged;
                // Errors about the judgement then name the file that has it.
                if let Some(file) = judged_in {
                    query.judged_in.clone_from(file);
                }
                joined.queries.push(query);
            }
            (Judgement::Absent, None) => left_out.unjudged_queries += 1,
        }
    }
    left_out.unknown_queries = qrels.left();
    joined
}

/// The relevant tools of a judgement with their grades, in one order for every file.
fn relevant(judged: &[(String, f64)]) -> Vec<(&str, f64)> {
    let mut relevant = Vec::new();
    for (id, grade) in judged {
        if *grade > 0.0 {
            relevant.push((id.as_str(), *grade));
        }
    }
    // A stable sort: of a tool that is listed twice the first grade stays.
    relevant.sort_by_key(|(id, _)| *id);
    relevant.dedup_by_key(|(id, _)| *id);
    relevant
}

pub(super) fn judgement_of(path: &Path, line: usize, value: &Value) -> Result<Judgement> {
    let judged = match value.get("relevant") {
        None | Some(Value::Null) => return Ok(Judgement::Absent),
        // `read_query` has refused what is neither a list nor an object.
        Some(value) => judged_of(value).unwrap_or_default(),
    };
    let is_none = value["kind"] == "none";
    let serves = judged.iter().any(|(_, grade)| *grade > 0.0);
    match (is_none, serves) {
        (false, _) => Ok(Judgement::Listed),
        (true, false) => Ok(Judgement::NoTool),
        (true, true) => Err(EvalError::malformed(
            path,
            line,
            "the query is of kind \"none\" and names relevant tools; it cannot be both",
        )),
    }
}

/// Reads the query of a line. One without an id gets `usual_id`, if there is one.
pub(super) fn read_query(
    path: &Path,
    line: usize,
    value: &Value,
    usual_id: Option<&str>,
) -> Result<RawQuery> {
    let malformed = |reason: &str| EvalError::malformed(path, line, reason);
    let Some(text) = text_of(value, &["query", "text"]) else {
        return Err(malformed("the query has no `query`"));
    };
    let id = text_of(value, &["id", "_id", "query-id", "query_id"]);
    let Some(id) = id.or(usual_id.map(str::to_owned)) else {
        return Err(malformed("the query has no `id`"));
    };
    if text.trim().is_empty() {
        return Err(malformed(&format!("the text of query {id:?} is empty")));
    }
    let judged = match value.get("relevant") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(judged) => judged_of(judged),
    };
    let Some(judged) = judged else {
        let reason = "`relevant` must be a list of tool ids, or an object of tool ids with grades";
        return Err(malformed(reason));
    };
    Ok(RawQuery {
        order: order_of(value, &judged),
        source: text_of(value, &["source"]),
        times: value.get("times").and_then(Value::as_u64).unwrap_or(1),
        id,
        text,
        judged,
        groups: groups_of(value),
        judged_in: path.to_owned(),
    })
}

/// Tools with their grades: a list of ids, or an object with a grade for each id.
fn judged_of(value: &Value) -> Option<Vec<(String, f64)>> {
    match value {
        Value::Object(grades) => grades
            .iter()
            .map(|(id, grade)| Some((id.clone(), grade.as_f64()?)))
            .collect(),
        value => Some(ids_of(value)?.into_iter().map(|id| (id, 1.0)).collect()),
    }
}

/// The ids of a list; numbers count as text. `None` for anything else.
fn ids_of(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(text_of_value).collect()
}

/// The lists of ids under `groups`. A field of another type is not ours and ignored, as other
/// unknown fields are.
fn groups_of(value: &Value) -> Vec<Vec<String>> {
    let lists = value.get("groups").and_then(Value::as_array);
    let groups: Option<Vec<Vec<String>>> = lists.into_iter().flatten().map(ids_of).collect();
    let mut groups = groups.unwrap_or_default();
    groups.retain(|group| !group.is_empty());
    groups
}

/// The ids under `order`; with `"order": true` those of `relevant`.
fn order_of(value: &Value, judged: &[(String, f64)]) -> Vec<String> {
    match value.get("order") {
        Some(Value::Bool(true)) if value["relevant"].is_array() => {
            judged.iter().map(|(id, _)| id.clone()).collect()
        }
        Some(list) => ids_of(list).unwrap_or_default(),
        None => Vec::new(),
    }
}

/// The judgements of the test split alone where there are some, as in BEIR's own figures, else
/// every judgement file.
fn qrels_files(set: &Path) -> Result<Vec<PathBuf>> {
    let folder = set.join("qrels");
    if folder.is_dir() {
        let files = files_in(&folder)?;
        let mut test = files.clone();
        test.retain(|file| is_of_test(file));
        return Ok(if test.is_empty() { files } else { test });
    }
    let mut files = Vec::new();
    for name in QRELS_NAMES {
        let file = set.join(name);
        if file.is_file() {
            files.push(file);
        }
    }
    Ok(files)
}

/// Whether a file is of the test split: `test.tsv`, or a part of it such as `test-00000-of-00001`.
fn is_of_test(file: &Path) -> bool {
    let Some(name) = file.file_stem().map(OsStr::to_string_lossy) else {
        return false;
    };
    name == "test" || name.starts_with("test-")
}

impl LeftOut {
    /// Both together.
    pub(super) fn and(mut self, other: &LeftOut) -> Self {
        self.unknown_tools += other.unknown_tools;
        self.queries_without_known_tool += other.queries_without_known_tool;
        self.judged_irrelevant += other.judged_irrelevant;
        self
    }
}
