//! An evaluation set: tools, queries, and which tools are right for which query.
//!
//! A set is a folder in one of two shapes:
//! - its own: `tools.jsonl` (or `tools.json`, `tools.yaml`, …, or a folder `tools/` of files),
//!   every file in any format that can be registered, and `queries.jsonl` with lines
//!   `{"id","query","relevant":[ids]}`; other fields are ignored, except `"kind":"none"`, which
//!   says of a query without relevant tools that no tool can serve it, and `"groups":[[ids]]`,
//!   which says of which relevant tools one is enough. Where lines have no `relevant`, judgements
//!   are read from TREC or BEIR qrels beside it.
//! - BEIR: `corpus.jsonl`, `queries.jsonl`, `qrels/*.tsv`.
//!
//! A loaded set is whole and consistent: ids are unique, every query has a relevant tool, every
//! relevant tool exists.

mod files;
mod qrels;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};
use toolscout_index::Tool;

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
    /// What is asked.
    pub text: String,
    /// The right tools; at least one, ascending, distinct.
    pub relevant: Vec<ToolIndex>,
    /// What it takes to serve the query: of each group one tool. Every relevant tool is a group of
    /// its own unless the set says otherwise.
    pub groups: Vec<Vec<ToolIndex>>,
}

/// A request that no tool can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswerable {
    /// Unique within its set, among the judged queries too.
    pub id: String,
    /// What is asked.
    pub text: String,
}

/// Tools and judged queries.
#[derive(Clone, Debug)]
pub struct EvalSet {
    /// The folder's name.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
    /// Every tool of the catalog, in the files' order.
    pub tools: Vec<Tool>,
    /// The queries to measure, in the file's order.
    pub queries: Vec<EvalQuery>,
    /// Requests that no tool can serve, as the set says itself; they play a part only where
    /// abstaining is measured.
    pub unanswerable: Vec<Unanswerable>,
    positions: HashMap<String, ToolIndex>,
}

impl EvalSet {
    /// Reads a set from its folder.
    ///
    /// # Errors
    /// An [`EvalError`] naming the file, the line and the value for everything that would make
    /// figures wrong.
    pub fn load(path: &Path) -> Result<Self> {
        let raw = files::read_set(path)?;
        EvalSet::new(path, raw)
    }

    /// A catalog's tools with judged queries: those of a file, and requests with the ids of tools
    /// that were called for them, of which tools that are gone are left out.
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
        let positions = positions(path, &raw.tools)?;
        let resolver = Resolver {
            positions: &positions,
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
            queries,
            unanswerable: raw.unanswerable,
            positions,
        })
    }

    /// The same tools with `count` of the queries, chosen by the seed; all of them when there are
    /// no more.
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

    /// Where the tool of this id stands in [`EvalSet::tools`].
    pub fn position(&self, id: &str) -> Option<ToolIndex> {
        self.positions.get(id).copied()
    }

    /// The tool at a position.
    pub fn tool(&self, position: ToolIndex) -> &Tool {
        &self.tools[position as usize]
    }

    /// A digest of all that figures depend on: tools, measured queries, judgements. Equal for equal
    /// sets wherever they lie.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        let mut feed = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        for tool in &self.tools {
            feed(tool.id.as_str());
            feed(&tool.description);
            feed(&Value::Object(tool.input_schema.clone()).to_string());
        }
        for query in &self.queries {
            feed(&query.id);
            feed(&query.text);
            query
                .relevant
                .iter()
                .for_each(|&tool| feed(self.tool(tool).id.as_str()));
        }
        for query in &self.unanswerable {
            digest.update(&query.id);
            digest.update(&query.text);
        }
        hex(&digest.finalize()[..8])
    }
}

/// What the files say, before ids are looked up.
struct RawSet {
    tools: Vec<Tool>,
    queries: Vec<RawQuery>,
    unanswerable: Vec<Unanswerable>,
}

struct RawQuery {
    id: String,
    text: String,
    relevant: Vec<String>,
    /// Empty where the set does not say.
    groups: Vec<Vec<String>>,
    /// The file the judgement stands in, for messages.
    judged_in: PathBuf,
}

struct Resolver<'a> {
    positions: &'a HashMap<String, ToolIndex>,
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
        let groups = match query.groups.is_empty() {
            true => relevant.iter().map(|&tool| vec![tool]).collect(),
            false => query
                .groups
                .iter()
                .map(|group| self.all_of(&query, group))
                .collect::<Result<_>>()?,
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
            .map(|id| self.position(id).ok_or_else(|| self.unknown(query, id)))
            .collect()
    }

    fn position(&self, id: &str) -> Option<ToolIndex> {
        self.positions
            .get(id)
            .or_else(|| self.positions.get(&unescape(id)))
            .copied()
    }

    fn unknown(&self, query: &RawQuery, id: &str) -> EvalError {
        let name = id.rsplit('/').next().unwrap_or(id);
        let nearest = self
            .tools
            .iter()
            .find(|tool| tool.id.name().eq_ignore_ascii_case(name));
        EvalError::UnknownRelevant {
            path: query.judged_in.clone(),
            query: query.id.clone(),
            tool: id.to_owned(),
            tools: self.tools.len(),
            nearest: nearest.map(|tool| tool.id.to_string()),
        }
    }
}

fn positions(path: &Path, tools: &[Tool]) -> Result<HashMap<String, ToolIndex>> {
    let mut positions = HashMap::with_capacity(tools.len());
    for (position, tool) in tools.iter().enumerate() {
        if positions
            .insert(tool.id.to_string(), position as ToolIndex)
            .is_some()
        {
            return Err(EvalError::DuplicateTool {
                path: path.to_owned(),
                id: tool.id.to_string(),
            });
        }
    }
    Ok(positions)
}

fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole
        .file_name()
        .map_or_else(|| "set".into(), |name| name.to_string_lossy().into_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
pub(crate) mod testing {
    //! Sets made in tests without files.
    use super::*;

    /// A set of tools `(id, description)` and queries `(id, text, relevant ids)`.
    pub(crate) fn set(tools: &[(&str, &str)], queries: &[(&str, &str, &[&str])]) -> EvalSet {
        let tool = |(id, description): &(&str, &str)| {
            let id = toolscout_index::ToolId::parse(id).unwrap();
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
        let (tools, queries) = (
            tools.iter().map(tool).collect(),
            queries.iter().map(query).collect(),
        );
        let raw = RawSet {
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
    fn a_set_of_two_files_is_read_and_other_fields_are_ignored() {
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
    fn a_folder_of_files_gives_each_file_its_stem_as_server() {
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
    fn trec_judgements_beside_the_queries_are_read_with_escaped_ids() {
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
    fn a_tool_whose_server_has_a_slash_is_judged_by_its_whole_id() {
        let tools = r#"{"name":"lookup","description":"x","inputSchema":{"type":"object"},"server":"BIN/IIN"}"#;
        let queries = r#"{"id":"q","query":"x","relevant":["BIN/IIN/lookup"]}"#;
        let set = load(&[("tools.jsonl", tools), ("queries.jsonl", queries)]).unwrap();
        assert_eq!(ids(&set, 0), ["BIN/IIN/lookup"]);
    }

    #[test]
    fn an_unknown_relevant_id_is_named_with_its_query_and_the_likely_one() {
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
    fn what_would_falsify_figures_is_an_error_that_names_it() {
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
    fn groups_say_of_which_tools_one_is_enough() {
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
    fn a_request_that_no_tool_can_serve_is_kept_apart() {
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
    fn a_sample_keeps_the_order_and_its_fingerprint_tells_it_apart() {
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
