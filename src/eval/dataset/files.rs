//! Reads the files of a set.

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

/// Reads a set; the queries from `requests` if it is given.
pub(super) fn read_set(path: &Path, requests: Option<&Path>) -> Result<RawSet> {
    std::fs::read_dir(path).map_err(|source| EvalError::io("open the set", path, source))?;
    let corpus = path.join("corpus.jsonl");
    let (tools, id_fields) = if corpus.is_file() {
        let tools = read_corpus(&corpus)?;
        let id_fields = vec![None; tools.len()];
        (tools, id_fields)
    } else {
        read_tools(path)?
    };
    let (queries, unanswerable) = match requests {
        Some(requests) => read_query_file(requests, path)?,
        None => read_queries(path)?,
    };
    Ok(RawSet {
        tools,
        id_fields,
        queries,
        unanswerable,
    })
}

/// Tools, with the `id` field of each in its file.
type ToolsWithIds = (Vec<Tool>, Vec<Option<String>>);

fn read_tools(set: &Path) -> Result<ToolsWithIds> {
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
    let (mut tools, mut id_fields) = (Vec::new(), Vec::new());
    for file in files_in(&folder)? {
        let stem = file
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        let (of_file, ids) = read_tool_file(&file, stem)?;
        tools.extend(of_file);
        id_fields.extend(ids);
    }
    Ok((tools, id_fields))
}

fn read_tool_file(path: &Path, default_server: Option<String>) -> Result<ToolsWithIds> {
    let bytes = read(path)?;
    let options = toolscout_index::formats::ReadOptions {
        source_name: path.display().to_string(),
        default_server,
        ..Default::default()
    };
    let parsed = toolscout_index::formats::parse(&bytes, &options)?;
    // A set with a tool missing would give figures of another set.
    if let Some(skipped) = parsed.skipped.first() {
        let line = skipped.line.unwrap_or(skipped.index);
        return Err(EvalError::malformed(path, line, skipped.error.to_string()));
    }
    let id_fields = id_fields(&bytes, parsed.tools.len());
    Ok((parsed.tools, id_fields))
}

/// The `id` field of each tool in a file of JSON, or NDJSON. All are `None` in other formats, and
/// where the file has groups of tools: its items are then not the tools.
fn id_fields(bytes: &[u8], tools: usize) -> Vec<Option<String>> {
    let text = String::from_utf8_lossy(bytes);
    let items = match serde_json::from_str(&text) {
        Ok(Value::Array(items)) => items,
        Ok(Value::Object(mut object)) => match object.remove("tools") {
            Some(Value::Array(items)) => items,
            _ => vec![Value::Object(object)],
        },
        _ => text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect(),
    };
    if items.len() != tools {
        return vec![None; tools];
    }
    items.iter().map(|item| text_of(item, &["id"])).collect()
}

/// Reads a BEIR corpus: `_id` is the id of the tool, `title` its title, `text` its description.
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

/// Reads a file of queries. Judgements that are not in it are read from the folder `set`.
pub(super) fn read_query_file(
    path: &Path,
    set: &Path,
) -> Result<(Vec<RawQuery>, Vec<Unanswerable>)> {
    let mut seen = HashMap::new();
    let queries = each_object(path, |line, value| {
        let query = read_query(path, line, &value, None)?;
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
    // Judgements are either all in this file or all in others.
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
        with_qrels(set, others)?
    };
    Ok((judged, unanswerable.collect()))
}

/// The judgement in the line of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    /// None: another file has it.
    Absent,
    /// A list of relevant tools.
    Listed,
    /// The query is unanswerable.
    NoTool,
}

pub(super) fn judgement_of(path: &Path, line: usize, value: &Value) -> Result<Judgement> {
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

/// Reads the query of a line. One without an id gets `usual_id`, if there is one.
pub(super) fn read_query(
    path: &Path,
    line: usize,
    value: &Value,
    usual_id: Option<&str>,
) -> Result<RawQuery> {
    let malformed = |reason: &str| EvalError::malformed(path, line, reason);
    let text =
        text_of(value, &["query", "text"]).ok_or_else(|| malformed("the query has no `query`"))?;
    let id = text_of(value, &["id", "_id"])
        .or_else(|| usual_id.map(str::to_owned))
        .ok_or_else(|| malformed("the query has no `id`"))?;
    if text.trim().is_empty() {
        return Err(malformed(&format!("the text of query {id:?} is empty")));
    }
    let relevant = match value.get("relevant") {
        None => Vec::new(),
        Some(ids) => {
            ids_of(ids).ok_or_else(|| malformed("`relevant` must be a list of tool ids"))?
        }
    };
    Ok(RawQuery {
        id,
        text,
        relevant,
        groups: groups_of(value),
        judged_in: path.to_owned(),
    })
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

/// Joins queries with judgement files. Queries without a judgement belong to another split and are
/// left out.
fn with_qrels(set: &Path, queries: Vec<RawQuery>) -> Result<Vec<RawQuery>> {
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
    if judged.is_empty() {
        return Err(EvalError::Empty {
            path: set.to_owned(),
            what: "judged queries",
        });
    }
    Ok(judged)
}

/// `qrels/test.tsv` alone where it exists, as in BEIR's own figures, else every judgement file.
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

/// Reads a file with one JSON object per line. Blank lines are ignored.
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

pub(super) fn text_of(value: &Value, names: &[&str]) -> Option<String> {
    names
        .iter()
        .find_map(|name| text_of_value(value.get(name)?))
}

fn text_of_value(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
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
