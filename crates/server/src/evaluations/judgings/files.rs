//! The judgings of a catalog on disk: a file for each in the catalog's folder, of a line with what is known from
//! the start, a line with the queries, and a line for each judgement, of which the last one of a judge and a
//! query counts. Everything here blocks.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::wire::{Head, JudgeProgress, Judging};
use crate::evaluations::kept_files::KeptFiles;
use crate::request::error::{ApiError, ApiResult};
use crate::served::OpenCatalog;
use toolscout_eval::judged_line::JudgedLine;

/// The folder in that of the catalog.
const FOLDER: &str = "judgings";
/// The version of the format of the files.
const FORMAT: u32 = 1;
/// Most judgings of a catalog. Work of people is never deleted to make room.
const MAX_KEPT: usize = 50;
/// Most bytes of one.
const MAX_FILE_BYTES: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
struct FirstLine {
    format: u32,
    judging: Head,
}

/// A query to judge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryToJudge {
    pub id: String,
    pub query: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Tools that its line judges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judged: Vec<String>,
}

/// What a judge said of a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    pub judge: String,
    /// The position of the query.
    pub query: usize,
    pub grades: BTreeMap<String, u8>,
    pub done: bool,
}

/// A judging with all judgements.
pub struct Judged {
    pub head: Head,
    pub queries: Vec<QueryToJudge>,
    /// By judge, then by the position of the query.
    pub judges: BTreeMap<String, BTreeMap<usize, Judgement>>,
}

impl Judged {
    /// One without judgements.
    pub fn new(head: Head, queries: Vec<QueryToJudge>) -> Self {
        Judged {
            head,
            queries,
            judges: BTreeMap::new(),
        }
    }

    /// Puts a judgement in the place of an earlier one, or takes that back.
    pub fn add(&mut self, judgement: Judgement) {
        let of_judge = self.judges.entry(judgement.judge.clone()).or_default();
        if judgement.grades.is_empty() && !judgement.done {
            of_judge.remove(&judgement.query);
        } else {
            of_judge.insert(judgement.query, judgement);
        }
        self.judges.retain(|_, judgements| !judgements.is_empty());
    }

    /// The positions of the queries by their ids.
    pub fn positions(&self) -> HashMap<&str, usize> {
        let ids = self.queries.iter().map(|query| query.id.as_str());
        ids.zip(0..).collect()
    }

    /// What a judge said of a query.
    pub fn judgement(&self, judge: &str, query: usize) -> Option<&Judgement> {
        self.judges.get(judge)?.get(&query)
    }

    /// How far a judge is.
    pub fn progress(&self, judge: &str) -> JudgeProgress {
        let mut progress = JudgeProgress {
            judge: judge.to_owned(),
            judged: 0,
            skipped: 0,
            grades: 0,
            next: None,
        };
        for query in 0..self.queries.len() {
            let Some(judgement) = self.judgement(judge, query) else {
                progress.next.get_or_insert(query + 1);
                continue;
            };
            progress.grades += judgement.grades.len();
            if !judgement.done {
                progress.next.get_or_insert(query + 1);
            } else if judgement.grades.is_empty() {
                // Done without any grade means that the judge skipped it.
                progress.skipped += 1;
            } else {
                progress.judged += 1;
            }
        }
        progress
    }

    /// What is shown of it.
    pub fn body(&self) -> Judging {
        Judging {
            head: self.head.clone(),
            judges: self.judges.keys().map(|one| self.progress(one)).collect(),
        }
    }

    /// What a judge has graded, in the order of the queries.
    pub fn lines(&self, judge: &str) -> Vec<JudgedLine> {
        let mut lines = Vec::new();
        for (place, query) in self.queries.iter().enumerate() {
            let Some(judgement) = self.judgement(judge, place) else {
                continue;
            };
            // A line without grades would mean that no tool serves the query.
            if judgement.grades.is_empty() {
                continue;
            }
            let grades = judgement.grades.iter();
            lines.push(JudgedLine {
                times: None,
                id: query.id.clone(),
                query: query.query.clone(),
                relevant: grades
                    .map(|(tool, grade)| (tool.clone(), f64::from(*grade)))
                    .collect(),
                source: query.source.clone(),
                judge: Some(judge.to_owned()),
            });
        }
        lines
    }
}

/// The judgings of a catalog.
pub struct JudgingFiles {
    files: KeptFiles,
}

impl JudgingFiles {
    /// Those of this catalog.
    pub fn of(catalog: &OpenCatalog) -> Self {
        JudgingFiles::in_folder(catalog.folder())
    }

    fn in_folder(catalog: &Path) -> Self {
        JudgingFiles {
            files: KeptFiles::new(catalog, FOLDER),
        }
    }

    /// All of them, newest first. A file that cannot be read is logged and left out.
    ///
    /// # Errors
    /// 500 when the folder cannot be read.
    pub fn list(&self) -> ApiResult<Vec<Judging>> {
        self.files
            .read_all(|path| read(path).map(|judged| judged.body()))
    }

    /// One with its judgements.
    ///
    /// # Errors
    /// 404 when there is none, 500 for one that cannot be read.
    pub fn load(&self, id: &str) -> ApiResult<Judged> {
        match read(&self.files.path(parse_id(id)?)) {
            Ok(judged) => Ok(judged),
            Err(error) => Err(self.error(id, "read", &error)),
        }
    }

    /// Deletes one.
    ///
    /// # Errors
    /// 404 when there is none.
    pub fn delete(&self, id: &str) -> ApiResult<()> {
        match fs::remove_file(self.files.path(parse_id(id)?)) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.error(id, "delete from", &error)),
        }
    }

    /// Stores a new one. One at a time.
    ///
    /// # Errors
    /// 422 for one too many, 500 when it cannot be written.
    pub fn begin(&self, judged: &Judged) -> ApiResult<()> {
        let prepared = self.files.prepare();
        let kept = match prepared.and_then(|()| self.files.ids()) {
            Ok(ids) => ids.len(),
            Err(error) => return Err(self.files.failed("write", &error)),
        };
        if kept >= MAX_KEPT {
            let message = format!(
                "the catalog has {kept} judgings, the maximum; export one and delete it first"
            );
            return Err(ApiError::unprocessable("too_many_judgings", message));
        }
        self.write(judged)
    }

    /// Adds judgements. One at a time.
    ///
    /// # Errors
    /// 422 for more than a judging may have, 500 when they cannot be written.
    pub fn add(&self, judged: &mut Judged, judgements: Vec<Judgement>) -> ApiResult<()> {
        let id = judged.head.id.clone();
        let known: Uuid = id.parse().map_err(ApiError::internal)?;
        let mut lines = Vec::new();
        for judgement in &judgements {
            serde_json::to_writer(&mut lines, judgement).map_err(ApiError::internal)?;
            lines.push(b'\n');
        }
        let path = self.files.path(known);
        // Checked before anything is changed, since the file may have been deleted meanwhile.
        let bytes = fs::metadata(&path).map_err(|error| self.error(&id, "read", &error))?;
        for judgement in judgements {
            judged.add(judgement);
        }
        if bytes.len() + lines.len() as u64 > MAX_FILE_BYTES {
            // Writing the whole file drops judgements that later ones have replaced.
            return self.write(judged);
        }
        append(&path, &lines).map_err(|error| self.error(&id, "write", &error))
    }

    /// Writes one whole.
    fn write(&self, judged: &Judged) -> ApiResult<()> {
        let bytes = serialized(judged).map_err(|error| self.files.failed("write", &error))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let message = format!(
                "the judging takes {} bytes with this, it may take {MAX_FILE_BYTES}; begin another one for the other queries",
                bytes.len()
            );
            return Err(ApiError::unprocessable("judging_too_large", message));
        }
        let id: Uuid = judged.head.id.parse().map_err(ApiError::internal)?;
        let written = self.files.write(id, &bytes);
        written.map_err(|error| self.files.failed("write", &error))
    }

    fn error(&self, id: &str, action: &str, error: &io::Error) -> ApiError {
        match error.kind() {
            io::ErrorKind::NotFound => unknown_judging(id),
            _ => self.files.failed(action, error),
        }
    }
}

/// An id names a file, so nothing but an id may become a part of its path.
fn parse_id(id: &str) -> ApiResult<Uuid> {
    match id.parse() {
        Ok(id) => Ok(id),
        Err(_) => Err(unknown_judging(id)),
    }
}

fn unknown_judging(id: &str) -> ApiError {
    let message =
        format!("no judging {id:?} of this catalog; GET …/judgings lists those that are kept");
    ApiError::not_found("unknown_judging", message)
}

fn serialized(judged: &Judged) -> io::Result<Vec<u8>> {
    let first = FirstLine {
        format: FORMAT,
        judging: judged.head.clone(),
    };
    let mut bytes = serde_json::to_vec(&first)?;
    bytes.push(b'\n');
    serde_json::to_writer(&mut bytes, &judged.queries)?;
    bytes.push(b'\n');
    for judgement in judged.judges.values().flat_map(BTreeMap::values) {
        serde_json::to_writer(&mut bytes, judgement)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Adds whole lines, in place of half a line that a crash has left.
fn append(path: &Path, lines: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        None => 0,
    };
    file.set_len(whole as u64)?;
    file.seek(SeekFrom::End(0))?;
    file.write_all(lines)?;
    file.sync_data()
}

fn read(path: &Path) -> io::Result<Judged> {
    let mut text = String::new();
    // Twice the limit, since the last write may have passed it.
    File::open(path)?
        .take(2 * MAX_FILE_BYTES)
        .read_to_string(&mut text)?;
    let mut lines = text.split_inclusive('\n');
    let first: FirstLine = parsed(lines.next().unwrap_or_default())?;
    if first.format != FORMAT {
        let message = format!("format {}, this version reads {FORMAT}", first.format);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let queries: Vec<QueryToJudge> = parsed(lines.next().unwrap_or_default())?;
    let mut judged = Judged::new(first.judging, queries);
    // A crash may leave half a line at the end.
    for line in lines.filter(|line| line.ends_with('\n')) {
        let judgement: Judgement = parsed(line)?;
        if judgement.query < judged.queries.len() {
            judged.add(judgement);
        }
    }
    Ok(judged)
}

fn parsed<T: DeserializeOwned>(line: &str) -> io::Result<T> {
    serde_json::from_str(line).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged() -> Judged {
        let query = |id: &str| QueryToJudge {
            id: id.into(),
            query: id.into(),
            source: None,
            judged: Vec::new(),
        };
        let head = Head {
            id: Uuid::now_v7().to_string(),
            name: String::new(),
            created_at_ms: 0,
            by: "http".into(),
            queries: 2,
            depth: 5,
        };
        Judged::new(head, vec![query("a"), query("b")])
    }

    fn judgement(judge: &str, query: usize, grades: &[(&str, u8)], done: bool) -> Judgement {
        let grades = grades.iter();
        Judgement {
            judge: judge.into(),
            query,
            grades: grades
                .map(|(tool, grade)| ((*tool).to_owned(), *grade))
                .collect(),
            done,
        }
    }

    #[test]
    fn the_last_judgement_counts_and_can_be_taken_back() {
        let folder = tempfile::tempdir().unwrap();
        let files = JudgingFiles::in_folder(folder.path());
        let mut new = judged();
        files.begin(&new).unwrap();
        let id = new.head.id.clone();
        let all = [
            judgement("ann", 0, &[("x", 1)], false),
            judgement("ann", 0, &[("x", 1), ("y", 3)], true),
            judgement("ann", 1, &[], true),
            judgement("bob", 1, &[("x", 2)], true),
        ];
        for one in all {
            files.add(&mut new, vec![one]).unwrap();
        }
        let read = files.load(&id).unwrap();
        let ann = read.progress("ann");
        assert_eq!(
            (ann.judged, ann.skipped, ann.grades, ann.next),
            (1, 1, 2, None)
        );
        assert_eq!(read.progress("bob").next, Some(1));
        assert_eq!(read.progress("new").next, Some(1));
        assert_eq!(read.lines("ann").len(), 1);
        files
            .add(&mut new, vec![judgement("bob", 1, &[], false)])
            .unwrap();
        let judges = files.load(&id).unwrap().body().judges;
        assert_eq!(judges.len(), 1, "{judges:?}");
        assert_eq!(files.list().unwrap().len(), 1);
        files.delete(&id).unwrap();
        assert_eq!(files.load(&id).err().unwrap().code, "unknown_judging");
    }

    #[test]
    fn half_a_line_is_left_out_and_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let files = JudgingFiles::in_folder(folder.path());
        let mut new = judged();
        files.begin(&new).unwrap();
        files
            .add(&mut new, vec![judgement("ann", 0, &[("x", 1)], true)])
            .unwrap();
        let path = files.files.path(new.head.id.parse().unwrap());
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"judge\":\"ann\",\"que");
        fs::write(&path, text).unwrap();
        let mut read = files.load(&new.head.id).unwrap();
        assert_eq!(read.progress("ann").judged, 1);
        files
            .add(&mut read, vec![judgement("ann", 1, &[("y", 0)], true)])
            .unwrap();
        assert_eq!(files.load(&new.head.id).unwrap().progress("ann").judged, 2);
    }

    #[test]
    fn there_are_few_judgings_and_paths_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let files = JudgingFiles::in_folder(folder.path());
        for _ in 0..MAX_KEPT {
            files.begin(&judged()).unwrap();
        }
        assert_eq!(
            files.begin(&judged()).unwrap_err().code,
            "too_many_judgings"
        );
        for id in ["../tools", "", "notes"] {
            assert_eq!(files.load(id).err().unwrap().status, 404, "{id}");
            assert_eq!(files.delete(id).unwrap_err().status, 404, "{id}");
        }
    }
}
