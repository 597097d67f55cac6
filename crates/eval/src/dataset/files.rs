//! Reads the files of a set.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolscout_index::{Tool, ToolId};

use super::queries::read_queries;
use super::reading::{each_object, files_in, not_a_set, text_of};
use super::{Load, RawSet};
use crate::error::{EvalError, Result, read};

/// Extensions of a single tools file, in the order they are looked for.
const TOOL_EXTENSIONS: [&str; 5] = ["jsonl", "ndjson", "json", "yaml", "yml"];

/// Reads a set; the queries from another file if one is given.
pub(super) fn read_set(path: &Path, load: &Load<'_>) -> Result<RawSet> {
    // Checked first: a missing folder would otherwise be said to lack a file.
    if path.is_file() {
        let reason = "it is a file, and a set is a folder with tools and queries; to evaluate a catalog on the queries \
                      of a file, name the catalog too, as `toolscout --catalog default eval FILE`";
        return Err(not_a_set(path, reason));
    }
    std::fs::read_dir(path).map_err(EvalError::failed_to("open the set", path))?;
    let corpus = json_files(path, "corpus")?;
    let (tools, id_fields) = if corpus.is_empty() {
        read_tools(path)?
    } else {
        let tools = all_of(&corpus, read_corpus)?;
        let id_fields = vec![None; tools.len()];
        (tools, id_fields)
    };
    let queries = match load.requests {
        Some(requests) => vec![requests.to_owned()],
        None => json_files(path, "queries")?,
    };
    if queries.is_empty() {
        return Err(not_a_set(path, "it has no queries.jsonl"));
    }
    Ok(RawSet {
        tools,
        id_fields,
        queries: read_queries(&queries, path)?,
    })
}

/// `NAME.jsonl`, or the files of the folder `NAME`, as data sets on the hub have them.
fn json_files(set: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let file = set.join(name).with_extension("jsonl");
    if file.is_file() {
        return Ok(vec![file]);
    }
    let folder = set.join(name);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let files = files_in(&folder)?;
    for file in &files {
        // Data sets on the hub may be Parquet, and without such a file the set would be another.
        let extension = file.extension().and_then(OsStr::to_str);
        if !matches!(extension, Some("jsonl" | "ndjson")) {
            let reason = format!(
                "{} is not JSONL; write it as JSONL, in Python with `pandas.read_parquet(file).to_json(path, orient=\"records\", lines=True)`",
                file.display()
            );
            return Err(not_a_set(set, &reason));
        }
    }
    Ok(files)
}

/// What the files have, one after the other.
fn all_of<T>(files: &[PathBuf], read: impl Fn(&Path) -> Result<Vec<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for file in files {
        all.extend(read(file)?);
    }
    Ok(all)
}

/// Tools, with the `id` field of each in its file.
type ToolsWithIds = (Vec<Tool>, Vec<Option<String>>);

fn read_tools(set: &Path) -> Result<ToolsWithIds> {
    for extension in TOOL_EXTENSIONS {
        let file = set.join("tools").with_extension(extension);
        if file.is_file() {
            return read_tool_file(&file, None);
        }
    }
    let folder = set.join("tools");
    if !folder.is_dir() {
        return Err(not_a_set(set, "it has no tools.jsonl"));
    }
    let (mut tools, mut id_fields) = (Vec::new(), Vec::new());
    for file in files_in(&folder)? {
        // A file in the folder is named after its server.
        let stem = file.file_stem().map(OsStr::to_string_lossy);
        let (of_file, ids) = read_tool_file(&file, stem.map(Cow::into_owned))?;
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
    let text = text.trim_start_matches('\u{feff}');
    let items = match serde_json::from_str(text) {
        Ok(Value::Array(items)) => items,
        // A document with its tools, or a single tool.
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
        let Some(id) = text_of(&value, &["_id", "id"]) else {
            return Err(EvalError::malformed(path, line, "no `_id`"));
        };
        let id = ToolId::parse(&id)?;
        let mut tool = Tool::new(id.server(), id.name())?
            .with_description(text_of(&value, &["text"]).unwrap_or_default());
        tool.title = text_of(&value, &["title"]).filter(|title| !title.is_empty());
        Ok(tool)
    })
}
