//! Where a set's parts lie in its folder, and how they are read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolscout_index::{Tool, ToolId};

use super::qrels::{self, Judgements};
use super::{RawQuery, RawSet, Unanswerable};
use crate::eval::error::{EvalError, Result, read, read_text};

/// Extensions of a single tools file, in the order they are looked for.
const TOOL_EXTENSIONS: [&str; 5] = ["jsonl", "ndjson", "json", "yaml", "yml"];
/// Names of a judgement file beside `queries.jsonl`.
const QRELS_NAMES: [&str; 5] = [
    "qrels",
    "qrels.txt",
    "qrels.tsv",
    "qrels.trec",
    "qrels.test",
];

pub(super) fn read_set(path: &Path) -> Result<RawSet> {
    std::fs::read_dir(path).map_err(|source| EvalError::io("open the set", path, source))?;
    let corpus = path.join("corpus.jsonl");
    let tools = if corpus.is_file() {
        read_corpus(&corpus)?
    } else {
        read_tools(path)?
    };
    let (queries, unanswerable) = read_queries(path)?;
    Ok(RawSet {
        tools,
        queries,
        unanswerable,
    })
}

fn read_tools(set: &Path) -> Result<Vec<Tool>> {
    let single = TOOL_EXTENSIONS
        .iter()
        .map(|extension| set.join("tools").with_extension(extension));
    if let Some(file) = single.into_iter().find(|file| file.is_file()) {
        return read_tool_file(&file, None);
    }
    let folder = set.join("tools");
    if !folder.is_dir() {
        return Err(not_a_set(set, "it has no tools.jsonl"));
    }
    let mut tools = Vec::new();
    for file in files_in(&folder)? {
        let stem = file
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        tools.extend(read_tool_file(&file, stem)?);
    }
    Ok(tools)
}

fn read_tool_file(path: &Path, default_server: Option<String>) -> Result<Vec<Tool>> {
    let bytes = read(path)?;
    let options = toolscout_index::formats::ReadOptions {
        source_name: path.display().to_string(),
        default_server,
        ..Default::default()
    };
    let parsed = toolscout_index::formats::parse(&bytes, &options)?;
    match parsed.skipped.first() {
        None => Ok(parsed.tools),
        Some(skipped) => Err(EvalError::malformed(
            path,
            skipped.line.unwrap_or(skipped.index),
            skipped.error.to_string(),
        )),
    }
}

/// A BEIR corpus: `_id` is the tool's id, `title` its title, `text` its description.
fn read_corpus(path: &Path) -> Result<Vec<Tool>> {
    each_object(path, |line, value| {
        let id = text_of(&value, &["_id", "id"])
            .ok_or_else(|| EvalError::malformed(path, line, "no `_id`"))?;
        let id = ToolId::parse(&id)?;
        let mut tool = Tool::new(id.server(), id.name())?
            .with_description(text_of(&value, &["text"]).unwrap_or_default());
        tool.title = text_of(&value, &["title"]).filter(|title| !title.is_empty());
        Ok(tool)
    })
}

fn read_queries(set: &Path) -> Result<(Vec<RawQuery>, Vec<Unanswerable>)> {
    let path = set.join("queries.jsonl");
    if !path.is_file() {
        return Err(not_a_set(set, "it has no queries.jsonl"));
    }
    read_query_file(&path, set)
}

/// Reads a file of queries; judgements that are not in it are looked for in `set`.
pub(super) fn read_query_file(
    path: &Path,
    set: &Path,
) -> Result<(Vec<RawQuery>, Vec<Unanswerable>)> {
    let mut seen = HashMap::new();
    let queries = each_object(path, |line, value| {
        let query = read_query(path, line, &value)?;
        match seen.insert(query.id.clone(), line) {
            Some(first) => Err(EvalError::DuplicateQuery {
                path: path.to_owned(),
                id: query.id,
                first,
                second: line,
            }),
            None => Ok((query, judgement_of(path, line, &value)?)),
        }
    })?;
    let judged_here = queries
        .iter()
        .any(|(_, judgement)| *judgement != Judgement::Absent);
    let (unanswerable, others): (Vec<_>, Vec<_>) = queries
        .into_iter()
        .partition(|(_, judgement)| *judgement == Judgement::NoTool);
    let unanswerable = unanswerable.into_iter().map(|(query, _)| Unanswerable {
        id: query.id,
        text: query.text,
    });
    let others = others.into_iter().map(|(query, _)| query).collect();
    let judged = if judged_here {
        others
    } else {
        judged_elsewhere(set, others)?
    };
    Ok((judged, unanswerable.collect()))
}

/// What a line says about the tools that serve its query.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Judgement {
    /// Nothing: another file may.
    Absent,
    /// It lists them.
    Listed,
    /// That there are none.
    NoTool,
}

fn judgement_of(path: &Path, line: usize, value: &Value) -> Result<Judgement> {
    match value.get("relevant").and_then(Value::as_array) {
        None => Ok(Judgement::Absent),
        Some(_) if value["kind"] != "none" => Ok(Judgement::Listed),
        Some(ids) if ids.is_empty() => Ok(Judgement::NoTool),
        Some(_) => Err(EvalError::malformed(
            path,
            line,
            "the query is of kind \"none\" and names relevant tools; it cannot be both",
        )),
    }
}

fn read_query(path: &Path, line: usize, value: &Value) -> Result<RawQuery> {
    let malformed = |reason: &str| EvalError::malformed(path, line, reason);
    let id = text_of(value, &["id", "_id"]).ok_or_else(|| malformed("the query has no `id`"))?;
    let text =
        text_of(value, &["query", "text"]).ok_or_else(|| malformed("the query has no `query`"))?;
    if text.trim().is_empty() {
        return Err(malformed(&format!("the text of query {id:?} is empty")));
    }
    let relevant = match value.get("relevant") {
        None => Vec::new(),
        Some(ids) => serde_json::from_value(ids.clone())
            .map_err(|_| malformed("`relevant` must be a list of tool ids"))?,
    };
    Ok(RawQuery {
        id,
        text,
        relevant,
        groups: groups_of(value),
        judged_in: path.to_owned(),
    })
}

/// The lists of ids under `groups`. A field of another shape is somebody's own and ignored like
/// other fields.
fn groups_of(value: &Value) -> Vec<Vec<String>> {
    let groups = value
        .get("groups")
        .and_then(|groups| serde_json::from_value::<Vec<Vec<String>>>(groups.clone()).ok());
    groups
        .unwrap_or_default()
        .into_iter()
        .filter(|group| !group.is_empty())
        .collect()
}

/// Joins queries with judgement files; queries of other splits, which these do not judge, fall
/// away.
fn judged_elsewhere(set: &Path, queries: Vec<RawQuery>) -> Result<Vec<RawQuery>> {
    if queries.is_empty() {
        return Ok(queries);
    }
    let files = qrels_files(set)?;
    let Some(judged_in) = files.first().cloned() else {
        return Err(not_a_set(
            set,
            "its queries have no `relevant` and there are no judgements (qrels/*.tsv or qrels.txt)",
        ));
    };
    let mut judgements = Judgements::new();
    for file in &files {
        qrels::read_into(&mut judgements, file)?;
    }
    let judged: Vec<RawQuery> = queries
        .into_iter()
        .filter_map(|query| {
            let relevant = judgements.remove(&query.id)?;
            Some(RawQuery {
                relevant,
                judged_in: judged_in.clone(),
                ..query
            })
        })
        .collect();
    match judged.is_empty() {
        true => Err(EvalError::Empty {
            path: set.to_owned(),
            what: "judged queries",
        }),
        false => Ok(judged),
    }
}

/// `qrels/test.tsv` alone where it exists, as BEIR reports, else every file there is.
fn qrels_files(set: &Path) -> Result<Vec<PathBuf>> {
    let folder = set.join("qrels");
    if folder.is_dir() {
        let test = folder.join("test.tsv");
        return if test.is_file() {
            Ok(vec![test])
        } else {
            files_in(&folder)
        };
    }
    Ok(QRELS_NAMES
        .iter()
        .map(|name| set.join(name))
        .filter(|file| file.is_file())
        .collect())
}

/// Reads a file of one JSON object a line, blank lines aside.
fn each_object<T>(path: &Path, mut read: impl FnMut(usize, Value) -> Result<T>) -> Result<Vec<T>> {
    let text = read_text(path)?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let value = serde_json::from_str(line)
                .map_err(|error| EvalError::malformed(path, index + 1, error.to_string()))?;
            read(index + 1, value)
        })
        .collect()
}

fn text_of(value: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| match value.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = |source| EvalError::io("read", folder, source);
    let entries = std::fs::read_dir(folder)
        .map_err(read)?
        .collect::<std::io::Result<Vec<_>>>()
        .map_err(read)?;
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.retain(|path| {
        !path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    });
    files.sort();
    Ok(files)
}

fn not_a_set(path: &Path, reason: &str) -> EvalError {
    EvalError::NotASet {
        path: path.to_owned(),
        reason: reason.into(),
    }
}
