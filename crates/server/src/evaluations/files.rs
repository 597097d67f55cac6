//! The evaluations of a catalog on disk: a file for each in the catalog's folder, of a line with the
//! figures and a line for each query, or for the report that was sent. Everything here blocks.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::served::OpenCatalog;
use super::unknown_evaluation;
use super::wire::{Evaluation, EvaluationSource};
use crate::evaluations::kept_files::KeptFiles;
use crate::request::error::{ApiError, ApiResult};
use toolscout_eval::Report;
use toolscout_eval::answered::AnsweredQuery;
use toolscout_eval::reported::answered;

/// The folder in that of the catalog.
const FOLDER: &str = "evaluations";
/// The version of the format of the files.
const FORMAT: u32 = 1;
/// Most evaluations of a catalog; the oldest make room.
const MAX_KEPT: usize = 50;
/// Most bytes of all of them.
const MAX_BYTES: u64 = 64 << 20;
/// Most bytes of one.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// An evaluation with its queries.
pub struct Evaluated {
    /// Its figures.
    pub evaluation: Evaluation,
    /// In the order of the request.
    pub queries: Vec<AnsweredQuery>,
    /// The report that was sent, which the queries are made of.
    pub report: Option<Report>,
}

/// The first line of a file.
#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    evaluation: Evaluation,
}

/// The evaluations of a catalog.
pub struct EvaluationFiles {
    files: KeptFiles,
}

impl EvaluationFiles {
    /// Those of this catalog.
    pub fn of(catalog: &OpenCatalog) -> Self {
        EvaluationFiles::in_folder(catalog.folder())
    }

    fn in_folder(catalog: &Path) -> Self {
        EvaluationFiles {
            files: KeptFiles::new(catalog, FOLDER),
        }
    }

    /// All of them, newest first, without their queries. A file that cannot be read is logged and
    /// left out.
    ///
    /// # Errors
    /// 500 when the folder cannot be read.
    pub fn list(&self) -> ApiResult<Vec<Evaluation>> {
        self.files.read_all(read_head)
    }

    /// The id of the last one before this over the same queries, with an arm to compare.
    ///
    /// # Errors
    /// As [`EvaluationFiles::list`].
    pub fn before(&self, evaluation: &Evaluation) -> ApiResult<Option<String>> {
        for other in self.list()? {
            // Ids begin with the time, so a smaller id is an earlier evaluation.
            if other.id < evaluation.id
                && has_same_queries(&other, evaluation)
                && evaluation.counterparts(&other).iter().any(Option::is_some)
            {
                return Ok(Some(other.id));
            }
        }
        Ok(None)
    }

    /// One with its queries.
    ///
    /// # Errors
    /// 404 when there is none, 500 for one that cannot be read.
    pub fn load(&self, id: &str) -> ApiResult<Evaluated> {
        match read_whole(&self.files.path(parse_id(id)?)) {
            Ok(evaluated) => Ok(evaluated),
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

    fn error(&self, id: &str, action: &str, error: &io::Error) -> ApiError {
        match error.kind() {
            io::ErrorKind::NotFound => unknown_evaluation(id),
            _ => self.files.failed(action, error),
        }
    }

    /// Stores one atomically, in place of the oldest where there are too many. One at a time.
    ///
    /// # Errors
    /// 422 for one that is too large, 500 when it cannot be written.
    pub fn keep(&self, evaluated: &Evaluated) -> ApiResult<()> {
        let bytes = serialized(evaluated).map_err(|error| self.files.failed("write", &error))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let message = format!(
                "the answers take {} bytes, an evaluation may take {MAX_FILE_BYTES}; evaluate fewer queries",
                bytes.len()
            );
            return Err(ApiError::unprocessable("evaluation_too_large", message));
        }
        let id: Uuid = evaluated
            .evaluation
            .id
            .parse()
            .map_err(ApiError::internal)?;
        self.make_room(bytes.len() as u64)
            .and_then(|()| self.files.write(id, &bytes))
            .map_err(|error| self.files.failed("write", &error))
    }

    /// Creates the folder, and deletes drafts left behind and the oldest evaluations.
    fn make_room(&self, bytes: u64) -> io::Result<()> {
        self.files.prepare()?;
        let ids = self.files.ids()?;
        let mut sizes = Vec::with_capacity(ids.len());
        for id in &ids {
            sizes.push(fs::metadata(self.files.path(*id))?.len());
        }
        let mut total: u64 = sizes.iter().sum();
        // The oldest go first: the ids are sorted and begin with the time.
        for (position, (id, size)) in ids.iter().zip(sizes).enumerate() {
            let others = ids.len() - position;
            if others < MAX_KEPT && total + bytes <= MAX_BYTES {
                break;
            }
            fs::remove_file(self.files.path(*id))?;
            total -= size;
        }
        Ok(())
    }
}

/// An id names a file, so nothing but an id may become a part of its path.
fn parse_id(id: &str) -> ApiResult<Uuid> {
    match id.parse() {
        Ok(id) => Ok(id),
        Err(_) => Err(unknown_evaluation(id)),
    }
}

fn serialized(evaluated: &Evaluated) -> io::Result<Vec<u8>> {
    let head = Head {
        format: FORMAT,
        evaluation: evaluated.evaluation.clone(),
    };
    let mut bytes = serde_json::to_vec(&head)?;
    if let Some(report) = &evaluated.report {
        bytes.push(b'\n');
        serde_json::to_writer(&mut bytes, report)?;
    } else {
        for query in &evaluated.queries {
            bytes.push(b'\n');
            serde_json::to_writer(&mut bytes, query)?;
        }
    }
    bytes.push(b'\n');
    Ok(bytes)
}

/// Whether both are over the same judged queries. A report has no others, so that its digest of the queries
/// may differ from the server's.
fn has_same_queries(one: &Evaluation, other: &Evaluation) -> bool {
    let is_sent = [one, other].map(|evaluation| evaluation.source == EvaluationSource::Sent);
    let has_same_set =
        !one.set_fingerprint.is_empty() && one.set_fingerprint == other.set_fingerprint;
    one.fingerprint == other.fingerprint || is_sent.contains(&true) && has_same_set
}

fn read_head(path: &Path) -> io::Result<Evaluation> {
    let mut line = String::new();
    BufReader::new(File::open(path)?.take(MAX_FILE_BYTES)).read_line(&mut line)?;
    head_of(&line)
}

fn head_of(line: &str) -> io::Result<Evaluation> {
    let head: Head = parsed(line)?;
    if head.format != FORMAT {
        let message = format!("format {}, this version reads {FORMAT}", head.format);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(head.evaluation)
}

fn read_whole(path: &Path) -> io::Result<Evaluated> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_string(&mut text)?;
    let mut lines = text.lines();
    let evaluation = head_of(lines.next().unwrap_or_default())?;
    let (queries, report) = match evaluation.source {
        EvaluationSource::Sent => {
            let report: Report = parsed(lines.next().unwrap_or_default())?;
            (answered(&report), Some(report))
        }
        EvaluationSource::Server => {
            let queries = lines.map(parsed);
            (queries.collect::<io::Result<Vec<AnsweredQuery>>>()?, None)
        }
    };
    // A file that was cut off between two lines still parses, so the number is checked.
    if queries.len() != evaluation.queries.total {
        let message = format!(
            "it has {} of its {} queries",
            queries.len(),
            evaluation.queries.total
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(Evaluated {
        evaluation,
        queries,
        report,
    })
}

fn parsed<T: DeserializeOwned>(line: &str) -> io::Result<T> {
    serde_json::from_str(line).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::super::wire::{ArmFigures, ArmSettings, QueryCounts};
    use super::*;

    fn evaluated(fingerprint: &str) -> Evaluated {
        Evaluated {
            evaluation: Evaluation {
                id: Uuid::now_v7().to_string(),
                name: String::new(),
                source: EvaluationSource::Server,
                sent: None,
                created_at_ms: 0,
                generation: 1,
                changed_meanwhile: false,
                tools: 1,
                pending_embeddings: 0,
                version: "1".into(),
                fingerprint: fingerprint.into(),
                set_fingerprint: String::new(),
                embedder: String::new(),
                trained_on: false,
                tuned_on: false,
                depths: vec![1],
                main_metric: "ndcg@1".into(),
                queries: QueryCounts {
                    total: 1,
                    judged: 0,
                    no_tool: 0,
                    unjudged: 1,
                },
                arms: vec![ArmFigures {
                    name: "a".into(),
                    search: Some(ArmSettings::default()),
                    figures: Vec::new(),
                    abstained: 0,
                    no_tool_abstained: 0,
                    degraded: 0,
                    latency: Vec::new(),
                }],
            },
            queries: vec![AnsweredQuery {
                id: "q".into(),
                text: "a\nb".into(),
                source: None,
                relevant: None,
                answers: Vec::new(),
            }],
            report: None,
        }
    }

    #[test]
    fn the_oldest_make_room_and_the_last_of_the_same_queries_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let files = EvaluationFiles::in_folder(folder.path());
        assert!(files.list().unwrap().is_empty());
        let all: Vec<Evaluated> = (0..=MAX_KEPT)
            .map(|number| evaluated(if number % 2 == 0 { "even" } else { "odd" }))
            .collect();
        for evaluated in &all {
            files.keep(evaluated).unwrap();
        }
        let listed: Vec<String> = files
            .list()
            .unwrap()
            .into_iter()
            .map(|one| one.id)
            .collect();
        let newest: Vec<String> = all[1..]
            .iter()
            .rev()
            .map(|one| one.evaluation.id.clone())
            .collect();
        assert_eq!(listed, newest);
        assert_eq!(
            files.before(&all[5].evaluation).unwrap().as_ref(),
            Some(&all[3].evaluation.id)
        );
        assert_eq!(files.before(&all[1].evaluation).unwrap(), None);
        assert_eq!(
            files.load(&all[7].evaluation.id).unwrap().queries,
            all[7].queries
        );
        assert_eq!(files.load(&all[0].evaluation.id).err().unwrap().status, 404);
    }

    #[test]
    fn damaged_files_drafts_and_paths_are_no_evaluations() {
        let folder = tempfile::tempdir().unwrap();
        let files = EvaluationFiles::in_folder(folder.path());
        let good = evaluated("a");
        files.keep(&good).unwrap();
        let inner = folder.path().join(FOLDER);
        let damaged = Uuid::now_v7();
        fs::write(inner.join(format!("{damaged}.jsonl")), "{").unwrap();
        fs::write(inner.join("notes.jsonl"), "{}").unwrap();
        fs::write(inner.join(format!("{}.new", Uuid::now_v7())), "half").unwrap();
        assert_eq!(files.list().unwrap().len(), 1);
        assert_eq!(files.load(&damaged.to_string()).err().unwrap().status, 500);
        for id in ["../notes", "", "notes", "%2e%2e"] {
            assert_eq!(
                files.load(id).err().unwrap().code,
                "unknown_evaluation",
                "{id}"
            );
            assert_eq!(files.delete(id).err().unwrap().status, 404, "{id}");
        }
        files.keep(&evaluated("b")).unwrap();
        let drafts = fs::read_dir(&inner).unwrap().filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|end| end == "new")
        });
        assert_eq!(drafts.count(), 0);
        let cut =
            fs::read_to_string(files.files.path(good.evaluation.id.parse().unwrap())).unwrap();
        let head = cut.lines().next().unwrap();
        fs::write(files.files.path(good.evaluation.id.parse().unwrap()), head).unwrap();
        assert_eq!(files.load(&good.evaluation.id).err().unwrap().status, 500);
    }

    #[test]
    fn a_deleted_catalog_stays_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let files = EvaluationFiles::in_folder(&folder.path().join("gone"));
        assert_eq!(files.keep(&evaluated("a")).err().unwrap().status, 500);
        assert!(!folder.path().join("gone").exists());
    }
}
