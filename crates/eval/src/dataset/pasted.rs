//! Queries of a text that belongs to no file: pasted ones, or those of a request.
//!
//! Each line is one query, in one of these forms:
//! - an object as in `queries.jsonl`. Its id may be left out, and its judgement too;
//! - plain text, with the ids of its relevant tools after tabs, if there are any: what a
//!   spreadsheet copies.
//!
//! A query without an id has its text as id. Judgements may also come as qrels. Tools with a grade
//! of 0 are left out; a query with no others is one that no tool can serve.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolscout_index::ToolId;

use super::RawQuery;
use super::columns::unescape;
use super::qrels::Qrels;
use super::queries::{Judgement, judgement_of, read_query};
use super::reading::text_of;
use super::resolve::of_same_name;
use crate::error::{EvalError, Result};
use crate::judgements::Worth;

/// The name of the text in messages.
const NAME: &str = "queries";
/// Most relevant tools of a query: more are a mistake, and would take long to be told apart.
const MAX_RELEVANT: usize = 1000;

/// A query and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PastedQuery {
    /// Unique within its text.
    pub id: String,
    /// The text of the query.
    pub text: String,
    /// Where query and judgement came from, if its line says so.
    pub source: Option<String>,
    /// The ids of its relevant tools, in the order of the text; empty if no tool can serve it,
    /// `None` without a judgement.
    pub relevant: Option<Vec<String>>,
    /// What these tools are worth.
    pub worth: Worth,
    /// Tools that are judged with a grade of 0. They count in no figure.
    pub irrelevant: Vec<String>,
    /// The order in which tools are to be called, if it is judged. It counts in no figure.
    pub order: Vec<String>,
}

impl PastedQuery {
    /// The query with all its judgements, of which `relevant` are those of relevant tools.
    pub(super) fn raw(&self, relevant: &[String]) -> RawQuery {
        let mut judged = Vec::with_capacity(relevant.len() + self.irrelevant.len());
        for (position, id) in relevant.iter().enumerate() {
            // An empty list stands for grades that are all 1.
            let grade = self.worth.grades.get(position).copied().unwrap_or(1.0);
            judged.push((id.clone(), grade));
        }
        judged.extend(self.irrelevant.iter().map(|id| (id.clone(), 0.0)));
        let mut groups = Vec::with_capacity(self.worth.groups.len());
        for group in &self.worth.groups {
            groups.push(group.iter().map(|tool| relevant[*tool].clone()).collect());
        }
        RawQuery {
            times: 1,
            id: self.id.clone(),
            text: self.text.clone(),
            source: self.source.clone(),
            judged,
            groups,
            order: self.order.clone(),
            judged_in: NAME.into(),
        }
    }
}

/// Reads queries, with their judgements in the same text or in `qrels`, over a catalog with these
/// tools.
///
/// # Errors
/// An [`EvalError`] that names the line and the value, as for a file.
pub fn read(text: &str, qrels: Option<&str>, tools: &[ToolId]) -> Result<Vec<PastedQuery>> {
    let mut judgements = Qrels::default();
    if let Some(qrels) = qrels {
        judgements.read_text(Path::new("qrels"), qrels)?;
    }
    let known = KnownTools {
        ids: tools.iter().map(ToolId::as_str).collect(),
        tools,
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut queries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let number = index + 1;
        let mut query = read_line(number, line)?;
        if let Some(first) = seen.insert(query.raw.id.clone(), number) {
            return Err(EvalError::DuplicateQuery {
                path: NAME.into(),
                id: query.raw.id,
                first,
                second: number,
            });
        }
        // What its own line says counts more than qrels.
        if query.judgement == Judgement::Absent
            && let Some(judged) = judgements.take(&query.raw.id)
        {
            query.judgement = Judgement::Listed;
            query.raw.judged = judged;
        }
        queries.push(known.resolve(query)?);
    }
    if queries.is_empty() {
        return Err(EvalError::empty(NAME, "lines"));
    }
    Ok(queries)
}

struct Line {
    raw: RawQuery,
    judgement: Judgement,
}

fn read_line(number: usize, line: &str) -> Result<Line> {
    if line.trim_start().starts_with(['{', '[']) {
        read_object(number, line)
    } else {
        read_plain(number, line)
    }
}

fn read_object(number: usize, line: &str) -> Result<Line> {
    let path = Path::new(NAME);
    let value: Value = match serde_json::from_str(line) {
        Ok(value) => value,
        Err(error) => return Err(EvalError::malformed(path, number, error.to_string())),
    };
    if !value.is_object() {
        let reason = "write one query a line, as an object or as plain text";
        return Err(EvalError::malformed(path, number, reason));
    }
    let text = text_of(&value, &["query", "text"]);
    let raw = read_query(path, number, &value, text.as_deref())?;
    let judgement = match judgement_of(path, number, &value)? {
        // Between unjudged queries a kind says enough.
        Judgement::Absent if value["kind"] == "none" => Judgement::NoTool,
        judgement => judgement,
    };
    let raw = RawQuery {
        times: 1,
        judged_in: place(number),
        ..raw
    };
    Ok(Line { raw, judgement })
}

fn read_plain(number: usize, line: &str) -> Result<Line> {
    let mut fields = line.split('\t').map(str::trim);
    let text = fields.next().unwrap_or_default();
    if text.is_empty() {
        let reason = "the text of the query is empty; write it before the first tab";
        return Err(EvalError::malformed(NAME, number, reason));
    }
    let mut judged = Vec::new();
    for id in fields {
        // Cells of a spreadsheet may be empty.
        if !id.is_empty() {
            judged.push((id.to_owned(), 1.0));
        }
    }
    let judgement = if judged.is_empty() {
        Judgement::Absent
    } else {
        Judgement::Listed
    };
    let raw = RawQuery {
        times: 1,
        id: text.to_owned(),
        text: text.to_owned(),
        source: None,
        judged,
        groups: Vec::new(),
        order: Vec::new(),
        judged_in: place(number),
    };
    Ok(Line { raw, judgement })
}

/// Where a query is, in place of the path of a file.
fn place(number: usize) -> PathBuf {
    format!("line {number} of the {NAME}").into()
}

struct KnownTools<'a> {
    ids: HashSet<&'a str>,
    tools: &'a [ToolId],
}

impl KnownTools<'_> {
    fn resolve(&self, query: Line) -> Result<PastedQuery> {
        // These count in no figure, so tools that the catalog does not have are no error.
        let mut irrelevant = Vec::new();
        for (id, grade) in &query.raw.judged {
            if *grade <= 0.0 {
                irrelevant.extend(self.find(id));
            }
        }
        let order = query.raw.order.iter();
        let order = order.filter_map(|id| self.find(id)).collect();
        let (relevant, worth) = match query.judgement {
            Judgement::Absent => (None, Worth::default()),
            Judgement::NoTool => (Some(Vec::new()), Worth::default()),
            Judgement::Listed if query.raw.judged.is_empty() && query.raw.groups.is_empty() => {
                return Err(EvalError::EmptyRelevance {
                    path: query.raw.judged_in,
                    id: query.raw.id,
                });
            }
            Judgement::Listed => {
                let (ids, worth) = self.judged(&query.raw)?;
                (Some(ids), worth)
            }
        };
        Ok(PastedQuery {
            id: query.raw.id,
            text: query.raw.text,
            source: query.raw.source,
            relevant,
            worth,
            irrelevant,
            order,
        })
    }

    /// The ids of the tools with a grade above 0, each once, and what they are worth.
    fn judged(&self, query: &RawQuery) -> Result<(Vec<String>, Worth)> {
        let grouped = query.groups.iter().flatten().chain(&query.order);
        let count = query.judged.len() + grouped.clone().count();
        if count > MAX_RELEVANT {
            let reason = format!("{count} relevant tools; a query may have {MAX_RELEVANT}");
            return Err(EvalError::malformed(&query.judged_in, 1, reason));
        }
        let mut found: Vec<String> = Vec::new();
        let mut grades = Vec::new();
        let listed = query.judged.iter().map(|(id, grade)| (id, *grade));
        for (id, grade) in listed.chain(grouped.map(|id| (id, 1.0))) {
            if grade <= 0.0 {
                continue;
            }
            let Some(known) = self.find(id) else {
                return Err(self.unknown(query, id));
            };
            // The first grade counts, so that a group does not overwrite one that is listed.
            if !found.contains(&known) {
                found.push(known);
                grades.push(grade);
            }
        }
        let mut groups = Vec::with_capacity(query.groups.len());
        for group in &query.groups {
            let known = group.iter().filter_map(|id| self.find(id));
            let positions = known.filter_map(|id| found.iter().position(|other| *other == id));
            groups.push(positions.collect());
        }
        if grades.iter().all(|grade| *grade == 1.0) {
            grades.clear();
        }
        Ok((found, Worth { grades, groups }))
    }

    fn find(&self, id: &str) -> Option<String> {
        if self.ids.contains(id) {
            return Some(id.to_owned());
        }
        // Ids that were copied from a file of judgements may have escapes.
        let decoded = unescape(id);
        if !self.ids.contains(decoded.as_str()) {
            return None;
        }
        Some(decoded)
    }

    fn unknown(&self, query: &RawQuery, id: &str) -> EvalError {
        EvalError::UnknownRelevant {
            path: query.judged_in.clone(),
            query: query.id.clone(),
            tool: id.to_owned(),
            tools: self.tools.len(),
            nearest: of_same_name(id, self.tools.iter()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Vec<ToolId> {
        ["post/send", "sky/weather", "two words/x"]
            .map(|id| ToolId::parse(id).unwrap())
            .into()
    }

    fn read_all(text: &str) -> Result<Vec<PastedQuery>> {
        read(text, None, &tools())
    }

    #[test]
    fn every_form_of_a_line_is_read() {
        let text = "{\"id\":\"q1\",\"query\":\"mail it\",\"relevant\":[\"post/send\"]}\n\
            \n{\"query\":\"knit\",\"relevant\":[],\"kind\":\"none\"}\n{\"query\":\"sew\",\"kind\":\"none\"}\r\n\
            rain tomorrow\tsky/weather\tpost/send\tsky/weather\n  only a text \n{\"_id\":7,\"text\":\"a BEIR one\"}\n";
        let queries = read_all(text).unwrap();
        let read: Vec<(&str, &str, Option<usize>)> = queries
            .iter()
            .map(|query| {
                let relevant = query.relevant.as_ref().map(Vec::len);
                (query.id.as_str(), query.text.as_str(), relevant)
            })
            .collect();
        assert_eq!(
            read,
            [
                ("q1", "mail it", Some(1)),
                ("knit", "knit", Some(0)),
                ("sew", "sew", Some(0)),
                ("rain tomorrow", "rain tomorrow", Some(2)),
                ("only a text", "only a text", None),
                ("7", "a BEIR one", None),
            ]
        );
    }

    #[test]
    fn qrels_judge_the_queries_that_have_no_judgement() {
        let text = "{\"id\":\"a\",\"query\":\"x\"}\n{\"id\":\"b\",\"query\":\"y\"}";
        let queries = read(
            text,
            Some("a 0 two%20words/x 1\na 0 post/send 0\n"),
            &tools(),
        )
        .unwrap();
        assert_eq!(
            queries[0].relevant.as_deref(),
            Some(&["two words/x".to_owned()][..])
        );
        assert_eq!(queries[1].relevant, None);
    }

    #[test]
    fn grades_and_groups_are_kept_and_zeros_left_out() {
        let text = "{\"query\":\"a\",\"relevant\":{\"post/send\":2,\"sky/weather\":1,\"two words/x\":0}}\n\
            {\"query\":\"b\",\"relevant\":[\"post/send\"],\"groups\":[[\"post/send\",\"sky/weather\"]]}\n\
            {\"query\":\"c\",\"relevant\":{\"post/send\":0}}\n{\"query\":\"d\",\"relevant\":[\"post/send\"]}";
        let queries = read_all(text).unwrap();
        let worth: Vec<&Worth> = queries.iter().map(|query| &query.worth).collect();
        let relevant: Vec<usize> = queries
            .iter()
            .map(|query| query.relevant.as_ref().unwrap().len())
            .collect();
        assert_eq!(relevant, [2, 2, 0, 1]);
        // An object has its ids in the order of the text, or sorted.
        assert_eq!(worth[0].grades, [2.0, 1.0]);
        assert_eq!(worth[1].groups, [vec![0, 1]]);
        assert!(worth[2].is_equal() && worth[3].is_equal());
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_value() {
        for (text, expected) in [
            (
                "rain\n\nmail\tpost/sent",
                "query \"mail\" in line 3 of the queries names the relevant tool \"post/sent\"",
            ),
            ("mail\tmailer/send", "did you mean \"post/send\"?"),
            (
                "mail\nmail",
                "queries:2: query id \"mail\" was already used in line 1",
            ),
            ("{\"query\":", "queries:1: "),
            ("[{\"query\":\"x\"}]", "one query a line"),
            ("\tpost/send", "queries:1: the text of the query is empty"),
            ("{\"query\":\" \"}", "is empty"),
            ("{\"id\":\"q\"}", "no `query`"),
            (
                "{\"query\":\"x\",\"relevant\":[]}",
                "line 1 of the queries has no relevant tools",
            ),
            (" \n ", "has no lines"),
        ] {
            let message = read_all(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
