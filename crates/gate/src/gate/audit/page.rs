//! Pages of an audit log, newest first, for people who look at it.

use rusqlite::params;
use serde_json::{Map, Value};

use super::{AuditError, AuditLog};
use crate::gate::policy::Decision;

/// Most entries that are read for one page. Where few entries pass the filter, the page has fewer
/// than it may have, and the next one goes on where it ended.
const MAX_READ: usize = 20_000;
/// Most bytes of the entries of a page; it has one entry at least.
const MAX_BYTES: usize = 1 << 20;

/// Which entries a page has.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Of this tool, by its id.
    pub tool: Option<String>,
    /// Of tools whose ids have this part, in large or small letters.
    pub tool_part: Option<String>,
    /// Of calls that were decided on so. The end of a call has no decision of its own.
    pub decision: Option<Decision>,
    /// `begun`, `refused`, `dry_run` or `ended`.
    pub event: Option<String>,
    /// Not older than this, in Unix milliseconds.
    pub since_ms: Option<u64>,
}

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Newest first.
    pub entries: Vec<StoredEntry>,
    /// Number of entries of the whole log.
    pub total: i64,
    /// The number before which the next page begins; `None` on the last one.
    pub next_before: Option<i64>,
}

/// An entry as it is stored.
#[derive(Clone, Debug)]
pub struct StoredEntry {
    /// Its number.
    pub seq: i64,
    /// Its hash.
    pub hash: Vec<u8>,
    /// Its fields. An entry that is no JSON object, as in a log that was tampered with, has none.
    pub fields: Map<String, Value>,
}

impl AuditLog {
    /// The newest entries that pass the filter: at most `limit`, and only those with smaller numbers
    /// than `before`.
    ///
    /// # Errors
    /// [`AuditError::Database`].
    pub fn page(
        &self,
        filter: &Filter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Page, AuditError> {
        let page = self.read_page(filter, before, limit);
        page.map_err(|source| self.database_error(source))
    }

    fn read_page(
        &self,
        filter: &Filter,
        before: Option<i64>,
        limit: usize,
    ) -> rusqlite::Result<Page> {
        let log = self.log.lock();
        // Numbers have no gaps, and counting would read the whole log.
        let count = "SELECT coalesce(max(seq), 0) FROM entries";
        let mut page = Page {
            total: log.connection.query_row(count, [], |row| row.get(0))?,
            ..Page::default()
        };
        let mut statement = log.connection.prepare_cached(
            "SELECT seq, entry, hash FROM entries WHERE seq < ?1 ORDER BY seq DESC",
        )?;
        let mut rows = statement.query(params![before.unwrap_or(i64::MAX)])?;
        let (mut read, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            let seq: i64 = row.get(0)?;
            if page.entries.len() == limit || read == MAX_READ || bytes >= MAX_BYTES {
                page.next_before = Some(seq + 1);
                break;
            }
            read += 1;
            let text: String = row.get(1)?;
            let fields = fields_of(&text);
            if filter.ends_before(&fields) {
                break;
            }
            if filter.accepts(&fields) {
                bytes += text.len();
                page.entries.push(StoredEntry {
                    seq,
                    hash: row.get(2)?,
                    fields,
                });
            }
        }
        Ok(page)
    }
}

impl Filter {
    /// The name of the decision as entries have it.
    pub fn decision_name(&self) -> Option<String> {
        let name = serde_json::to_value(self.decision?).ok()?;
        name.as_str().map(str::to_owned)
    }

    fn accepts(&self, fields: &Map<String, Value>) -> bool {
        for (name, wanted) in [
            ("tool", &self.tool),
            ("event", &self.event),
            ("decision", &self.decision_name()),
        ] {
            if let Some(wanted) = wanted
                && fields.get(name).and_then(Value::as_str) != Some(wanted.as_str())
            {
                return false;
            }
        }
        match self.lower_tool_part() {
            Some(part) => {
                let tool = fields.get("tool").and_then(Value::as_str);
                tool.is_some_and(|tool| tool.to_lowercase().contains(&part))
            }
            None => true,
        }
    }

    /// The part that the id of a tool in small letters must have.
    pub fn lower_tool_part(&self) -> Option<String> {
        self.tool_part.as_ref().map(|part| part.to_lowercase())
    }

    /// Whether no older entry can pass. Entries are in the order of time, as far as the clock of the
    /// machine went forward.
    fn ends_before(&self, fields: &Map<String, Value>) -> bool {
        let time = fields.get("time_ms").and_then(Value::as_u64);
        match (time, self.since_ms) {
            (Some(time), Some(since)) => time < since,
            _ => false,
        }
    }
}

/// The fields of an entry's text.
pub fn fields_of(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CallEntry, Entry, FILE_NAME};
    use super::*;
    use crate::gate::class::Class;
    use crate::tools::{ErrorCode, Status};

    fn call(tool: &str, decision: Decision) -> Box<CallEntry> {
        Box::new(CallEntry {
            who: "key:a".into(),
            identity: None,
            conversation: "c".into(),
            client: None,
            call: "1".into(),
            tool: tool.into(),
            given: Value::Null,
            sent: None,
            changes: Vec::new(),
            class: Class::ReadOnly,
            decision,
            rule: "default".into(),
            answer: None,
            warnings: Vec::new(),
            on_behalf_of: None,
            reason: None,
        })
    }

    /// Ten calls, one a millisecond: those with even numbers are made, the others refused.
    fn log() -> (tempfile::TempDir, AuditLog) {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditLog::open(&folder.path().join(FILE_NAME)).unwrap();
        for number in 0..10 {
            let (time_ms, tool) = (number, format!("s/t{}", number % 2));
            let entry = if number % 2 == 0 {
                let call = call(&tool, Decision::Allow);
                Entry::Begun { time_ms, call }
            } else {
                Entry::Refused {
                    time_ms,
                    call: call(&tool, Decision::Deny),
                    error_code: ErrorCode::Denied,
                }
            };
            log.append(&entry).unwrap();
        }
        let ended = Entry::Ended {
            time_ms: 10,
            begun: 9,
            tool: "s/t0".into(),
            status: Status::Ok,
            error_code: None,
            took_ms: 1,
        };
        log.append(&ended).unwrap();
        (folder, log)
    }

    fn numbers(page: &Page) -> Vec<i64> {
        page.entries.iter().map(|entry| entry.seq).collect()
    }

    #[test]
    fn pages_follow_each_other_from_the_newest_entry() {
        let (_folder, log) = log();
        let first = log.page(&Filter::default(), None, 6).unwrap();
        assert_eq!(numbers(&first), [11, 10, 9, 8, 7, 6]);
        assert_eq!((first.total, first.next_before), (11, Some(6)));
        let second = log.page(&Filter::default(), first.next_before, 6).unwrap();
        assert_eq!(numbers(&second), [5, 4, 3, 2, 1]);
        assert_eq!(second.next_before, None);
        assert_eq!(first.entries[0].fields["event"], "ended");
        assert_eq!(first.entries[0].hash.len(), 32);
    }

    #[test]
    fn entries_are_filtered_by_tool_decision_event_and_time() {
        let (_folder, log) = log();
        let of = |filter: Filter| numbers(&log.page(&filter, None, 100).unwrap());
        let tool = Some("s/t0".to_owned());
        let filter = Filter {
            tool: tool.clone(),
            ..Filter::default()
        };
        assert_eq!(of(filter), [11, 9, 7, 5, 3, 1]);
        let filter = Filter {
            decision: Some(Decision::Deny),
            since_ms: Some(5),
            ..Filter::default()
        };
        assert_eq!(of(filter), [10, 8, 6]);
        let filter = Filter {
            event: Some("ended".into()),
            tool,
            ..Filter::default()
        };
        assert_eq!(of(filter), [11]);
        let filter = Filter {
            tool: Some("s/none".into()),
            ..Filter::default()
        };
        assert!(of(filter).is_empty());
        let of_part = |part: &str| {
            of(Filter {
                tool_part: Some(part.into()),
                ..Filter::default()
            })
        };
        assert_eq!(of_part("/T0"), [11, 9, 7, 5, 3, 1]);
        assert_eq!(of_part("t").len(), 11);
        assert!(of_part("%").is_empty());
    }
}
