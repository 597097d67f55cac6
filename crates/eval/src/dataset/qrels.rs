//! Reads relevance judgements: TREC (`query 0 tool grade`), BEIR (`query tool grade` with a
//! header), CSV, and one JSON object a line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use serde_json::Value;

use super::columns::{Separator, unescape};
use super::reading::text_of_value;
use crate::error::{EvalError, Result, read_text};

/// Names of the column of queries, of tools and of grades, without case and punctuation.
const QUERY: [&str; 5] = ["queryid", "query", "qid", "topic", "q"];
const TOOL: [&str; 10] = [
    "corpusid",
    "toolid",
    "tool",
    "docid",
    "docno",
    "doc",
    "documentid",
    "document",
    "passageid",
    "pid",
];
const GRADE: [&str; 8] = [
    "score",
    "grade",
    "relevance",
    "rel",
    "label",
    "judgement",
    "judgment",
    "relevant",
];

/// The judgements of files, by query.
#[derive(Debug, Default)]
pub(super) struct Qrels {
    /// In the order of the file, with the grade of each tool.
    by_query: HashMap<String, Vec<(String, f64)>>,
}

impl Qrels {
    /// Adds the judgements of a file.
    pub(super) fn read(&mut self, path: &Path) -> Result<()> {
        self.read_text(path, &read_text(path)?)
    }

    /// Adds the judgements of a text. `path` is its name in messages.
    pub(super) fn read_text(&mut self, path: &Path, text: &str) -> Result<()> {
        let text = text.trim_start_matches('\u{feff}');
        let mut seen = Seen::new();
        if text.trim_start().starts_with('{') {
            for (index, line) in text.lines().enumerate() {
                if !line.trim().is_empty() {
                    let judged = read_object(path, index + 1, line)?;
                    self.add((path, index + 1), judged, &mut seen)?;
                }
            }
            return Ok(());
        }
        let separator = Separator::of(text);
        let mut columns = None;
        for (index, line) in text.lines().enumerate() {
            let cells = separator.split(line);
            if cells.is_empty() {
                continue;
            }
            if columns.is_none() {
                let (found, is_header) = Columns::of(&cells);
                columns = Some(found);
                if is_header {
                    continue;
                }
            }
            let columns = columns.as_ref().expect("set by the first line");
            let judged = columns.read(path, index + 1, &cells, separator)?;
            self.add((path, index + 1), judged, &mut seen)?;
        }
        Ok(())
    }

    /// Adds one judgement. The same one twice in a text is no error.
    fn add(
        &mut self,
        (path, line): (&Path, usize),
        (query, tool, grade): (String, String, f64),
        seen: &mut Seen,
    ) -> Result<()> {
        match seen.entry((query.clone(), tool.clone())) {
            Entry::Occupied(first) if *first.get() != grade => {
                let reason = format!(
                    "tool {tool:?} was judged for query {query:?} before, with grade {}; keep one line",
                    first.get()
                );
                return Err(EvalError::malformed(path, line, reason));
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(vacant) => {
                vacant.insert(grade);
                self.by_query.entry(query).or_default().push((tool, grade));
            }
        }
        Ok(())
    }

    /// The judgements of a query, which are taken out.
    pub(super) fn take(&mut self, query: &str) -> Option<Vec<(String, f64)>> {
        if let Some(judged) = self.by_query.remove(query) {
            return Some(judged);
        }
        // The id may be written with escapes, which were decoded when the judgements were read.
        self.by_query.remove(&unescape(query))
    }

    /// The number of queries that were not taken.
    pub(super) fn left(&self) -> usize {
        self.by_query.len()
    }
}

/// The grades of a text by query and tool.
type Seen = HashMap<(String, String), f64>;

/// Which column has what; `None` for the usual order.
#[derive(Debug, Default)]
struct Columns(Option<[usize; 3]>);

impl Columns {
    /// The columns by the first line, and whether this is a header.
    fn of(cells: &[String]) -> (Self, bool) {
        let columns = (
            column(cells, &QUERY),
            column(cells, &TOOL),
            column(cells, &GRADE),
        );
        if let (Some(query), Some(tool), Some(grade)) = columns {
            return (Columns(Some([query, tool, grade])), true);
        }
        // A header with other names has three columns too, but no number in the last one.
        let has_grade = matches!(cells.last(), Some(cell) if grade_of(cell).is_some());
        (Columns(None), cells.len() == 3 && !has_grade)
    }

    fn read(
        &self,
        path: &Path,
        line: usize,
        cells: &[String],
        separator: Separator,
    ) -> Result<(String, String, f64)> {
        let [query, tool, grade] = match (self.0, cells.len()) {
            (Some(columns), len) if columns.iter().all(|column| *column < len) => columns,
            (None, 3) => [0, 1, 2],
            // TREC has a second column that is always 0.
            (None, 4) => [0, 2, 3],
            (_, len) => {
                let reason = format!(
                    "{len} columns; a judgement has `query 0 tool grade` or `query tool grade`, or the columns of the header"
                );
                return Err(EvalError::malformed(path, line, reason));
            }
        };
        let Some(number) = grade_of(&cells[grade]) else {
            return Err(bad_grade(path, line, &cells[grade]));
        };
        let (query, tool) = (&cells[query], &cells[tool]);
        Ok(match separator {
            // Ids are escaped only where white space separates columns.
            Separator::Comma => (query.clone(), tool.clone(), number),
            Separator::Tab | Separator::Space => (unescape(query), unescape(tool), number),
        })
    }
}

/// The column with one of these names.
fn column(cells: &[String], names: &[&str]) -> Option<usize> {
    cells
        .iter()
        .position(|cell| names.contains(&plain(cell).as_str()))
}

fn read_object(path: &Path, line: usize, text: &str) -> Result<(String, String, f64)> {
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Err(EvalError::malformed(path, line, error.to_string())),
    };
    let mut found = [const { None }; 3];
    for (key, value) in value.as_object().into_iter().flatten() {
        let key = plain(key);
        for (names, found) in [&QUERY[..], &TOOL, &GRADE].into_iter().zip(&mut found) {
            if names.contains(&key.as_str()) {
                *found = text_of_value(value);
            }
        }
    }
    let [Some(query), Some(tool), Some(grade)] = found else {
        let reason = "a judgement has `query-id`, `corpus-id` and `score`";
        return Err(EvalError::malformed(path, line, reason));
    };
    match grade_of(&grade) {
        Some(number) => Ok((query, tool, number)),
        None => Err(bad_grade(path, line, &grade)),
    }
}

/// A name without case and punctuation: `query-id` and `queryId` are the same.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

fn grade_of(text: &str) -> Option<f64> {
    text.parse().ok().filter(|grade: &f64| grade.is_finite())
}

fn bad_grade(path: &Path, line: usize, grade: &str) -> EvalError {
    EvalError::malformed(path, line, format!("the grade {grade:?} is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Qrels> {
        let mut qrels = Qrels::default();
        qrels.read_text(Path::new("qrels"), text)?;
        Ok(qrels)
    }

    #[test]
    fn every_format_gives_the_same_judgements() {
        for text in [
            "q 1\t0\ttwo words\t2\nq 1\t0\tb\t0\n",
            "q%201 0 two%20words 2\nq%201 0 b 0\n",
            "query-id\tcorpus-id\tscore\nq 1\ttwo words\t2\nq 1\tb\t0",
            "\u{feff}query-id\tcorpus-id\tscore\r\nq 1\ttwo words\t2\r\nq 1\tb\t0\r\n",
            "tool,grade,query\n\"two words\",2,q 1\nb,0,q 1",
            "score,qid,docid\n2.0,q 1,two words\n0,q 1,b",
            "{\"query-id\":\"q 1\",\"corpus-id\":\"two words\",\"score\":2}\n\n{\"query-id\":\"q 1\",\"corpus-id\":\"b\",\"score\":0}",
            "{\"query_id\":\"q 1\",\"doc_id\":\"two words\",\"relevance\":\"2\"}\n{\"qid\":\"q 1\",\"docid\":\"b\",\"label\":0}",
            "q%201 0 two%20words 2\nq%201 0 two%20words 2\nq%201 0 b 0\n",
        ] {
            let mut qrels = read(text).unwrap();
            let judged = qrels.take("q 1").unwrap();
            assert_eq!(
                judged,
                [("two words".into(), 2.0), ("b".into(), 0.0)],
                "{text}"
            );
            assert_eq!(qrels.left(), 0);
        }
    }

    #[test]
    fn an_id_with_percents_of_another_program_is_found_as_written() {
        let mut qrels = read("a%20b 0 d 1\nc%2520d 0 d 1").unwrap();
        assert!(qrels.take("a%20b").is_some() && qrels.take("c%20d").is_some());
    }

    #[test]
    fn an_invalid_judgement_is_a_named_error() {
        for (text, expected) in [
            ("q 0 d 1\nq d", "qrels:2: 2 columns"),
            ("q 0 d high", "qrels:1: the grade \"high\""),
            (
                "q 0 d 1\nq 0 d 0",
                "qrels:2: tool \"d\" was judged for query \"q\" before, with grade 1",
            ),
            ("{\"query-id\":\"q\"}", "`corpus-id`"),
            ("query,tool,grade\nq,d", "qrels:2: 2 columns"),
            ("q 0 d NaN", "\"NaN\" is not a number"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
