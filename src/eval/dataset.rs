//! An evaluation set: tools, queries, and the relevant tools of each query.
//!
//! A set is a folder in one of two formats:
//! - our own: `tools.jsonl` (or `tools.json`, `tools.yaml`, …, or a folder `tools/` of files),
//!   every file in any format that `add` reads, and `queries.jsonl` with lines
//!   `{"id","query","relevant":[ids]}`. Other fields are ignored, except `"kind":"none"`, which
//!   marks a query without relevant tools as unanswerable, and `"groups":[[ids]]`, which lists
//!   relevant tools that are alternatives to each other. Without `relevant`, judgements are read
//!   from TREC or BEIR qrels in the same folder.
//! - BEIR: `corpus.jsonl`, `queries.jsonl`, `qrels/*.tsv`.
//!
//! An id in a judgement is `SERVER/NAME`, or the `id` field of the tool in its file.
//!
//! A loaded set is consistent: ids are unique, every query has a relevant tool, every relevant tool
//! exists.

mod files;
mod qrels;
pub mod pasted;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use toolscout_index::{Tool, ToolId};

use super::error::{EvalError, Result};
use super::random::Random;

pub(crate) use qrels::{escape, unescape};

/// A position in [`EvalSet::tools`].
pub type ToolIndex = u32;

/// One judged query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalQuery {
    /// Unique within its set.
    pub id: String,
    /// The text of the query.
    pub text: String,
    /// The relevant tools; at least one, ascending, distinct.
    pub relevant: Vec<ToolIndex>,
    /// Groups of alternatives: one tool of each group is needed. By default every relevant tool is
    /// a group of its own.
    pub groups: Vec<Vec<ToolIndex>>,
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
    ids: ToolIds,
}

impl EvalSet {
    /// Reads a set from its folder.
    ///
    /// # Errors
    /// An [`EvalError`] that names file, line and value, for everything that would make figures
    /// wrong.
    pub fn load(path: &Path) -> Result<Self> {
        EvalSet::new(path, files::read_set(path, None)?)
    }

    /// The tools of a set with the judged queries of another file.
    ///
    /// # Errors
    /// As [`EvalSet::load`].
    pub fn load_with(path: &Path, requests: &Path) -> Result<Self> {
        EvalSet::new(path, files::read_set(path, Some(requests))?)
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
    ) -> Result<Self> {
        let path = file.unwrap_or(Path::new(name));
        let folder = path.parent().unwrap_or(Path::new("."));
        let (mut queries, unanswerable) = match file {
            Some(file) => files::read_query_file(file, folder)?,
            None => Default::default(),
        };
        let known: std::collections::HashSet<&str> =
            tools.iter().map(|tool| tool.id.as_str()).collect();
        for (number, (text, mut relevant)) in called.into_iter().enumerate() {
            relevant.retain(|id| known.contains(id.as_str()));
            if !relevant.is_empty() {
                queries.push(RawQuery {
                    id: format!("called-{}", number + 1),
                    text,
                    relevant,
                    groups: Vec::new(),
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
                unanswerable,
            },
        )?;
        Ok(EvalSet {
            name: name.to_owned(),
            ..set
        })
    }

    fn new(path: &Path, raw: RawSet) -> Result<Self> {
        let empty = |what| EvalError::Empty {
            path: path.to_owned(),
            what,
        };
        if raw.tools.is_empty() {
            return Err(empty("tools"));
        }
        if raw.queries.is_empty() {
            return Err(empty("queries"));
        }
        let mut ids = ToolIds::new(path, &raw.tools, raw.id_fields)?;
        let relevant_ids = ids.choose(&raw.queries);
        let resolver = Resolver {
            ids: &ids,
            tools: &raw.tools,
        };
        let queries = raw
            .queries
            .into_iter()
            .map(|query| resolver.resolve(query))
            .collect::<Result<Vec<_>>>()?;
        let (name, path) = (name_of(path), path.to_owned());
        Ok(EvalSet {
            name,
            path,
            tools: raw.tools,
            queries_in_set: queries.len(),
            queries,
            unanswerable: raw.unanswerable,
            relevant_ids,
            ids,
        })
    }

    /// The same tools with a sample of `count` queries; all queries when there are no more.
    pub fn sampled(mut self, count: usize, seed: u64) -> Self {
        let chosen = Random::new(seed, "queries").sample(self.queries.len(), count);
        self.queries = chosen
            .into_iter()
            .map(|position| self.queries[position].clone())
            .collect();
        let chosen = Random::new(seed, "unanswerable").sample(self.unanswerable.len(), count);
        self.unanswerable = chosen
            .into_iter()
            .map(|position| self.unanswerable[position].clone())
            .collect();
        self
    }

    /// The position of the tool with this id (`SERVER/NAME`) in [`EvalSet::tools`].
    pub fn position(&self, id: &str) -> Option<ToolIndex> {
        self.ids.by_name.get(id).copied()
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

    /// A digest of everything that figures depend on: tools, measured queries, judgements. It does
    /// not depend on the path of the set.
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
        }
        for query in &self.unanswerable {
            digest.0.update(&query.id);
            digest.0.update(&query.text);
        }
        digest.finish()
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
    queries: Vec<RawQuery>,
    unanswerable: Vec<Unanswerable>,
}

struct RawQuery {
    id: String,
    text: String,
    relevant: Vec<String>,
    /// Empty where the set has none.
    groups: Vec<Vec<String>>,
    /// The file of the judgement, for messages.
    judged_in: PathBuf,
}

/// The tools of a set by their ids.
#[derive(Clone, Debug)]
struct ToolIds {
    by_name: HashMap<String, ToolIndex>,
    /// By the `id` fields of the files; `None` for a field that several tools have. Empty where the
    /// judgements do not use these fields.
    by_field: HashMap<String, Option<ToolIndex>>,
}

impl ToolIds {
    fn new(path: &Path, tools: &[Tool], id_fields: Vec<Option<String>>) -> Result<Self> {
        let mut by_name = HashMap::with_capacity(tools.len());
        for (position, tool) in tools.iter().enumerate() {
            let id = tool.id.to_string();
            if by_name.insert(id, position as ToolIndex).is_some() {
                return Err(EvalError::DuplicateTool {
                    path: path.to_owned(),
                    id: tool.id.to_string(),
                });
            }
        }
        // Fields that repeat `SERVER/NAME` add nothing.
        let differ = tools
            .iter()
            .zip(&id_fields)
            .any(|(tool, field)| field.as_ref().is_some_and(|id| id != tool.id.as_str()));
        let mut by_field = HashMap::new();
        for (position, id) in id_fields.into_iter().enumerate() {
            let Some(id) = id.filter(|_| differ) else {
                continue;
            };
            by_field
                .entry(id)
                .and_modify(|position| *position = None)
                .or_insert(Some(position as ToolIndex));
        }
        Ok(ToolIds { by_name, by_field })
    }

    /// Decides which ids the judgements use. `SERVER/NAME` and `id` fields may contradict each
    /// other (the id of one tool is the name of another), so the decision is made for the whole
    /// set: the fields where they explain every judgement, else the names where those do.
    fn choose(&mut self, queries: &[RawQuery]) -> Option<RelevantIds> {
        if self.by_field.is_empty() {
            return None;
        }
        let judged = || {
            queries
                .iter()
                .flat_map(|query| query.relevant.iter().chain(query.groups.iter().flatten()))
        };
        if judged().all(|id| self.by_field.contains_key(id)) {
            return Some(RelevantIds::Field);
        }
        if judged().all(|id| self.find_by_name(id).is_some()) {
            self.by_field.clear();
            return Some(RelevantIds::ServerName);
        }
        Some(RelevantIds::Mixed)
    }

    fn find(&self, id: &str) -> Option<ToolIndex> {
        match self.by_field.get(id) {
            Some(position) => *position,
            None => self.find_by_name(id),
        }
    }

    fn find_by_name(&self, id: &str) -> Option<ToolIndex> {
        self.by_name
            .get(id)
            .or_else(|| self.by_name.get(&unescape(id)))
            .copied()
    }
}

struct Resolver<'a> {
    ids: &'a ToolIds,
    tools: &'a [Tool],
}

impl Resolver<'_> {
    fn resolve(&self, query: RawQuery) -> Result<EvalQuery> {
        if query.relevant.is_empty() {
            return Err(EvalError::EmptyRelevance {
                path: query.judged_in,
                id: query.id,
            });
        }
        let mut relevant = self.all_of(&query, &query.relevant)?;
        relevant.sort_unstable();
        relevant.dedup();
        let groups = if query.groups.is_empty() {
            relevant.iter().map(|&tool| vec![tool]).collect()
        } else {
            query
                .groups
                .iter()
                .map(|group| self.all_of(&query, group))
                .collect::<Result<_>>()?
        };
        Ok(EvalQuery {
            id: query.id,
            text: query.text,
            relevant,
            groups,
        })
    }

    fn all_of(&self, query: &RawQuery, ids: &[String]) -> Result<Vec<ToolIndex>> {
        ids.iter()
            .map(|id| self.ids.find(id).ok_or_else(|| self.unknown(query, id)))
            .collect()
    }

    fn unknown(&self, query: &RawQuery, id: &str) -> EvalError {
        if self.ids.by_field.get(id) == Some(&None) {
            return EvalError::DuplicateTool {
                path: query.judged_in.clone(),
                id: id.to_owned(),
            };
        }
        EvalError::UnknownRelevant {
            path: query.judged_in.clone(),
            query: query.id.clone(),
            tool: id.to_owned(),
            tools: self.tools.len(),
            nearest: of_same_name(id, self.tools.iter().map(|tool| &tool.id)),
        }
    }
}

/// The tool of another server with the name that an unknown id has.
fn of_same_name<'a>(id: &str, mut ids: impl Iterator<Item = &'a ToolId>) -> Option<String> {
    let name = id.rsplit('/').next().unwrap_or(id);
    ids.find(|other| other.name().eq_ignore_ascii_case(name))
        .map(ToString::to_string)
}

fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole
        .file_name()
        .map_or_else(|| "set".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(crate) mod testing {
    //! Sets made in tests without files.
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
            relevant: relevant.iter().map(|id| (*id).into()).collect(),
            groups: Vec::new(),
            judged_in: "queries.jsonl".into(),
        };
        let tools: Vec<Tool> = tools.iter().map(tool).collect();
        let queries = queries.iter().map(query).collect();
        let raw = RawSet {
            id_fields: vec![None; tools.len()],
            tools,
            queries,
            unanswerable: Vec::new(),
        };
        EvalSet::new(Path::new("made/up"), raw).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const TOOLS: &str = r#"{"name":"send_mail","description":"Sends mail","inputSchema":{"type":"object"},"server":"post","id":"post/send_mail"}
{"name":"read_mail","description":"Reads mail","inputSchema":{"type":"object"},"server":"post"}
{"name":"weather","description":"Tells the weather","inputSchema":{"type":"object"},"server":null}
"#;

    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn load(files: &[(&str, &str)]) -> Result<EvalSet> {
        EvalSet::load(folder(files).path())
    }

    fn message(files: &[(&str, &str)]) -> String {
        load(files).unwrap_err().to_string()
    }

    fn ids(set: &EvalSet, query: usize) -> Vec<&str> {
        set.queries[query]
            .relevant
            .iter()
            .map(|&tool| set.tool(tool).id.as_str())
            .collect()
    }

    #[test]
    fn a_set_of_two_files_is_read_and_unknown_fields_are_ignored() {
        let queries = r#"
{"id":"q1","query":"mail it","relevant":["post/send_mail"],"lang":"en"}
{"id":7,"query":"mails, and the weather","relevant":["weather","post/read_mail","weather"]}
"#;
        let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]).unwrap();
        assert_eq!((set.tools.len(), set.queries.len()), (3, 2));
        assert_eq!(
            (set.queries[0].id.as_str(), set.queries[1].id.as_str()),
            ("q1", "7")
        );
        assert_eq!(ids(&set, 1), ["post/read_mail", "weather"]);
    }

    #[test]
    fn files_of_a_folder_name_the_server_of_their_tools() {
        let post =
            r#"{"tools":[{"name":"send","description":"Sends","inputSchema":{"type":"object"}}]}"#;
        let sky = r#"[{"name":"weather","description":"Tells","input_schema":{"type":"object"}}]"#;
        let queries = r#"{"id":"a","query":"send","relevant":["post/send"]}
{"id":"b","query":"rain","relevant":["sky/weather"]}"#;
        let set = load(&[
            ("tools/post.json", post),
            ("tools/sky.json", sky),
            ("queries.jsonl", queries),
        ])
        .unwrap();
        assert_eq!(
            set.tools
                .iter()
                .map(|tool| tool.id.as_str())
                .collect::<Vec<_>>(),
            ["post/send", "sky/weather"]
        );
    }

    #[test]
    fn a_beir_folder_is_read_with_its_test_judgements() {
        let set = load(&[
            (
                "corpus.jsonl",
                "{\"_id\":\"d1\",\"title\":\"Mail\",\"text\":\"Sends mail\"}\n{\"_id\":\"d2\",\"text\":\"Weather\"}",
            ),
            ("queries.jsonl", "{\"_id\":\"q1\",\"text\":\"mail\"}\n{\"_id\":\"q2\",\"text\":\"only for training\"}"),
            ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n"),
            ("qrels/train.tsv", "query-id\tcorpus-id\tscore\nq2\td2\t1\n"),
        ])
        .unwrap();
        assert_eq!((set.queries.len(), ids(&set, 0)), (1, vec!["d1"]));
        assert_eq!(
            (
                set.tools[0].title.as_deref(),
                set.tools[0].description.as_str()
            ),
            (Some("Mail"), "Sends mail")
        );
    }

    #[test]
    fn trec_judgements_are_read_with_escaped_ids() {
        let tools = r#"{"name":"two words","description":"x","inputSchema":{"type":"object"},"server":"Trends Hub"}"#;
        let set = load(&[
            ("tools.jsonl", tools),
            ("queries.jsonl", r#"{"id":"q 1","query":"x"}"#),
            ("qrels.txt", "q%201 0 Trends%20Hub/two%20words 1\n"),
        ])
        .unwrap();
        assert_eq!(ids(&set, 0), ["Trends Hub/two words"]);
    }

    #[test]
    fn a_server_name_may_contain_a_slash() {
        let tools = r#"{"name":"lookup","description":"x","inputSchema":{"type":"object"},"server":"BIN/IIN"}"#;
        let queries = r#"{"id":"q","query":"x","relevant":["BIN/IIN/lookup"]}"#;
        let set = load(&[("tools.jsonl", tools), ("queries.jsonl", queries)]).unwrap();
        assert_eq!(ids(&set, 0), ["BIN/IIN/lookup"]);
    }

    #[test]
    fn an_unknown_relevant_id_is_named_with_its_query_and_a_suggestion() {
        let queries = r#"{"id":"q9","query":"x","relevant":["mailer/send_mail"]}"#;
        let message = message(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]);
        for expected in [
            "\"q9\"",
            "\"mailer/send_mail\"",
            "queries.jsonl",
            "did you mean \"post/send_mail\"?",
        ] {
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn judgements_may_use_the_ids_of_the_file() {
        // The `id` of each tool is the name of the other.
        let tools = r#"{"id":"b","name":"a","description":"x","inputSchema":{"type":"object"}}
{"id":"a","name":"b","description":"y","inputSchema":{"type":"object"}}
{"id":7,"name":"c","description":"z","inputSchema":{"type":"object"},"server":"s"}
"#;
        let judged = |relevant: &str| {
            let queries = format!(r#"{{"id":"q","query":"x","relevant":{relevant}}}"#);
            load(&[("tools.jsonl", tools), ("queries.jsonl", &queries)])
        };
        for (relevant, expected, ids_used) in [
            (r#"["a"]"#, vec!["b"], RelevantIds::Field),
            ("[7]", vec!["s/c"], RelevantIds::Field),
            (r#"["a","s/c"]"#, vec!["a", "s/c"], RelevantIds::ServerName),
            (r#"[7,"s/c"]"#, vec!["s/c"], RelevantIds::Mixed),
        ] {
            let set = judged(relevant).unwrap();
            assert_eq!(ids(&set, 0), expected, "{relevant}");
            assert_eq!(set.relevant_ids, Some(ids_used), "{relevant}");
        }
        assert!(judged(r#"["d"]"#).is_err());
        let array = r#"[{"id":"x1","name":"a","inputSchema":{"type":"object"}}]"#;
        let queries = r#"{"id":"q","query":"x","relevant":["x1"]}"#;
        let set = load(&[("tools.json", array), ("queries.jsonl", queries)]).unwrap();
        assert_eq!(ids(&set, 0), ["a"]);
        let set = load(&[
            ("tools.jsonl", TOOLS),
            ("queries.jsonl", &queries.replace("x1", "weather")),
        ]);
        assert_eq!(set.unwrap().relevant_ids, None);
    }

    #[test]
    fn an_id_of_two_tools_is_an_error_where_it_is_judged() {
        let tools = r#"[{"id":"x","name":"a","inputSchema":{"type":"object"}},{"id":"x","name":"b","inputSchema":{"type":"object"}}]"#;
        let judged = |id: &str| {
            let queries = format!(r#"{{"id":"q","query":"x","relevant":["{id}"]}}"#);
            load(&[("tools.json", tools), ("queries.jsonl", &queries)])
        };
        assert_eq!(ids(&judged("a").unwrap(), 0), ["a"]);
        assert!(
            judged("x")
                .unwrap_err()
                .to_string()
                .contains("occurs twice")
        );
    }

    #[test]
    fn anything_that_would_make_figures_wrong_is_a_named_error() {
        let judged = r#"{"id":"q1","query":"mail","relevant":["weather"]}"#;
        let twice = format!("{judged}\n\n{judged}");
        for (queries, expected) in [
            (
                r#"{"id":"q1","query":"mail","relevant":[]}"#,
                "query \"q1\"",
            ),
            (
                twice.as_str(),
                "queries.jsonl:3: query id \"q1\" was already used in line 1",
            ),
            ("", "has no queries"),
            ("{\"id\":\"q1\",\"query\":\"mail\"", "queries.jsonl:1: "),
            (r#"{"query":"mail","relevant":["weather"]}"#, "no `id`"),
            (r#"{"id":"q1","relevant":["weather"]}"#, "no `query`"),
            (
                r#"{"id":"q1","query":"  ","relevant":["weather"]}"#,
                "is empty",
            ),
            (
                r#"{"id":"q1","query":"mail","relevant":"weather"}"#,
                "`relevant` must be a list of tool ids",
            ),
            (r#"{"id":"q1","query":"mail"}"#, "no judgements"),
        ] {
            let message = message(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]);
            assert!(message.contains(expected), "{queries}: {message}");
        }
    }

    #[test]
    fn missing_files_empty_catalogs_and_repeated_tools_are_named() {
        let judged = r#"{"id":"q1","query":"mail","relevant":["weather"]}"#;
        assert!(message(&[("queries.jsonl", judged)]).contains("no tools.jsonl"));
        assert!(message(&[("tools.jsonl", TOOLS)]).contains("no queries.jsonl"));
        let twice = format!("{TOOLS}{TOOLS}");
        let repeated = message(&[("tools.jsonl", &twice), ("queries.jsonl", judged)]);
        assert!(repeated.contains("post/send_mail"), "{repeated}");
        assert!(
            EvalSet::load(Path::new("/nowhere/at/all"))
                .unwrap_err()
                .to_string()
                .contains("/nowhere/at/all")
        );
    }

    #[test]
    fn groups_list_alternatives() {
        let queries = r#"{"id":"q1","query":"mail","relevant":["weather","post/send_mail","post/read_mail"],"groups":[["post/read_mail","post/send_mail"],["weather"]]}
{"id":"q2","query":"mail","relevant":["weather","post/send_mail"]}"#;
        let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]).unwrap();
        assert_eq!(
            (set.queries[0].relevant.len(), &set.queries[0].groups),
            (3, &vec![vec![1, 0], vec![2]])
        );
        assert_eq!(set.queries[1].groups, [vec![0], vec![2]]);
        let grouped = |groups: &str| {
            let queries =
                format!(r#"{{"id":"q","query":"x","relevant":["weather"],"groups":{groups}}}"#);
            load(&[("tools.jsonl", TOOLS), ("queries.jsonl", &queries)])
        };
        assert!(
            grouped(r#"[["nothing"]]"#)
                .unwrap_err()
                .to_string()
                .contains("\"nothing\"")
        );
        for own in [r#""a, b""#, r#"["weather"]"#, "[[]]"] {
            assert_eq!(grouped(own).unwrap().queries[0].groups, [vec![2]], "{own}");
        }
    }

    #[test]
    fn unanswerable_queries_are_kept_apart() {
        let queries = r#"{"id":"q1","query":"mail","relevant":["weather"]}
{"id":"q2","query":"tune my guitar","relevant":[],"kind":"none"}"#;
        let set = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", queries)]).unwrap();
        assert_eq!(
            (set.queries.len(), set.unanswerable[0].id.as_str()),
            (1, "q2")
        );
        let contradiction = r#"{"id":"q2","query":"x","relevant":["weather"],"kind":"none"}"#;
        let message = message(&[("tools.jsonl", TOOLS), ("queries.jsonl", contradiction)]);
        assert!(
            message.contains("\"none\" and names relevant tools"),
            "{message}"
        );
    }

    #[test]
    fn a_sample_keeps_the_order_and_has_its_own_fingerprint() {
        let queries: String = (0..40)
            .map(|n| {
                format!(
                    "{{\"id\":\"q{n:02}\",\"query\":\"mail {n}\",\"relevant\":[\"weather\"]}}\n"
                )
            })
            .collect();
        let whole = load(&[("tools.jsonl", TOOLS), ("queries.jsonl", &queries)]).unwrap();
        let sample = whole.clone().sampled(10, 3);
        assert_eq!(sample.queries.len(), 10);
        assert!(sample.queries.is_sorted_by(|a, b| a.id < b.id));
        assert_eq!(
            sample.fingerprint(),
            whole.clone().sampled(10, 3).fingerprint()
        );
        assert_ne!(
            sample.fingerprint(),
            whole.clone().sampled(10, 4).fingerprint()
        );
        assert_eq!(
            whole.clone().sampled(99, 3).fingerprint(),
            whole.fingerprint()
        );
    }
}
