//! What a node sends of its record to the store that several nodes share.
//!
//! A row that changes is marked in the database, so nothing is lost while the store is away or the program
//! is stopped. Rows are sent whole: the store replaces what it has of this record.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::compared::ShadowFigures;
use super::database::{SHADOW_COLUMNS, UsageDatabase, UsageError, caller_of, missed_of, shadow_of};
use super::figures::{CallerFigures, ToolFigures};
use super::missed::MissedRequest;
use super::tool_days;

/// The record of this node, as the store needs it.
#[derive(Clone, Debug)]
pub struct LocalRecord {
    /// The data directory.
    pub data: PathBuf,
    /// Days that are kept.
    pub keep_days: u32,
    /// Whether texts of requests may be sent.
    pub stores_queries: bool,
}

/// A row that the store lacks, or has otherwise.
#[derive(Clone, Debug)]
pub struct Unsent<K, F> {
    /// The day, counted from 1970.
    pub day: i64,
    /// What the row is about.
    pub key: K,
    /// Its figures.
    pub figures: F,
    /// Its changes since it was sent. If there are more afterwards, it is sent again.
    changes: i64,
}

/// Rows of a catalog that the store lacks.
#[derive(Clone, Debug, Default)]
pub struct UnsentRows {
    /// By the tool's id.
    pub tools: Vec<Unsent<String, ToolFigures>>,
    /// By profile and caller.
    pub callers: Vec<Unsent<(String, String), CallerFigures>>,
    /// By the shadow's id.
    pub shadows: Vec<Unsent<String, ShadowFigures>>,
    /// Requests that no tool served, each with its number in the record.
    pub missed: Vec<(i64, MissedRequest)>,
}

impl UnsentRows {
    /// Whether the store has everything.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.callers.is_empty()
            && self.shadows.is_empty()
            && self.missed.is_empty()
    }
}

/// Which catalog of the store a catalog's rows were sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedAs {
    /// The number of the catalog in the store. One that was deleted and created again has another.
    pub number: i64,
    /// How often the texts of its missed requests were deleted on any node.
    pub forgotten: i64,
}

/// How a record is shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The record's identity, random.
    pub record: String,
    /// How often rows were sent.
    pub sent: i64,
}

impl UsageDatabase {
    /// The identity of the record; `None` if it was never shared.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn identity(&self) -> Result<Option<String>, UsageError> {
        self.read(|connection| {
            let select = "SELECT record FROM sharing";
            connection
                .query_row(select, [], |row| row.get(0))
                .optional()
        })
    }

    /// Marks changed rows from now on, to send them to the store with this identity. All rows are sent to
    /// a store that is not the one of before.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn share_with(&mut self, store: &str) -> Result<Sharing, UsageError> {
        let shared = self.change(|change| {
            let record = uuid::Uuid::new_v4().to_string();
            let insert = "INSERT OR IGNORE INTO sharing (is_only, record, store, sent) VALUES (1, ?1, '', 0)";
            change.execute(insert, [record])?;
            let update = "UPDATE sharing SET store = ?1, sent = 0 WHERE store <> ?1";
            if change.execute(update, [store])? > 0 {
                change.execute("DELETE FROM shared_catalogs", [])?;
                mark_all(change)?;
            }
            change.query_row("SELECT record, sent FROM sharing", [], |row| {
                Ok(Sharing {
                    record: row.get(0)?,
                    sent: row.get(1)?,
                })
            })
        })?;
        Ok(shared)
    }

    /// Marks all rows, because the store has lost some of them.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn send_again(&mut self) -> Result<(), UsageError> {
        self.change(|change| mark_all(change))
    }

    /// The catalogs with rows that were not sent. Texts count only `with_missed`.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn unsent_catalogs(&self, with_missed: bool) -> Result<Vec<String>, UsageError> {
        self.read(|connection| {
            let mut select = connection.prepare(
                "SELECT name FROM catalogs WHERE id IN (SELECT catalog FROM tool_days WHERE unsent > 0)
                 UNION SELECT catalog FROM callers WHERE unsent > 0
                 UNION SELECT catalog FROM shadow WHERE unsent > 0
                 UNION SELECT catalog FROM missed WHERE unsent > 0 AND ?1",
            )?;
            let rows = select.query_map([with_missed], |row| row.get(0))?;
            rows.collect()
        })
    }

    /// Which catalogs of the store the rows of each catalog were sent to.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn shared_catalogs(&self) -> Result<BTreeMap<String, SharedAs>, UsageError> {
        self.read(|connection| {
            let mut select =
                connection.prepare("SELECT catalog, number, forgotten FROM shared_catalogs")?;
            let rows = select.query_map([], |row| {
                let shared = SharedAs {
                    number: row.get(1)?,
                    forgotten: row.get(2)?,
                };
                Ok((row.get(0)?, shared))
            })?;
            rows.collect()
        })
    }

    /// Notes which catalog of the store the rows of a catalog are sent to.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn share_catalog(&mut self, catalog: &str, shared: SharedAs) -> Result<(), UsageError> {
        self.change(|change| {
            change.execute(
                "INSERT OR REPLACE INTO shared_catalogs (catalog, number, forgotten) VALUES (?1, ?2, ?3)",
                params![catalog, shared.number, shared.forgotten],
            )
        })?;
        Ok(())
    }

    /// Rows of a catalog that were not sent, at most `limit` of each kind.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn unsent(
        &self,
        catalog: &str,
        with_missed: bool,
        limit: usize,
    ) -> Result<UnsentRows, UsageError> {
        self.read(|connection| {
            Ok(UnsentRows {
                tools: unsent_tools(connection, catalog, limit)?,
                callers: unsent_callers(connection, catalog, limit)?,
                shadows: unsent_shadows(connection, catalog, limit)?,
                missed: match with_missed {
                    true => unsent_missed(connection, catalog, limit)?,
                    false => Vec::new(),
                },
            })
        })
    }

    /// Notes that the store has these rows. One that was changed meanwhile stays marked.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn set_sent(
        &mut self,
        catalog: &str,
        rows: &UnsentRows,
        sent: i64,
    ) -> Result<(), UsageError> {
        self.change(|change| {
            let tools = rows.tools.iter();
            let tools = tools.map(|row| (row.key.as_str(), row.day, row.changes));
            tool_days::set_sent(change, catalog, tools)?;
            let mut callers = change.prepare_cached(
                "UPDATE callers SET unsent = 0
                 WHERE catalog = ?1 AND day = ?2 AND profile = ?3 AND who = ?4 AND unsent = ?5",
            )?;
            for row in &rows.callers {
                let (profile, who) = &row.key;
                callers.execute(params![catalog, row.day, profile, who, row.changes])?;
            }
            let mut shadows = change.prepare_cached(
                "UPDATE shadow SET unsent = 0 WHERE catalog = ?1 AND day = ?2 AND shadow = ?3 AND unsent = ?4",
            )?;
            for row in &rows.shadows {
                shadows.execute(params![catalog, row.day, row.key, row.changes])?;
            }
            let mut missed = change.prepare_cached("UPDATE missed SET unsent = 0 WHERE id = ?1")?;
            for (id, _) in &rows.missed {
                missed.execute([id])?;
            }
            change.execute("UPDATE sharing SET sent = ?1", [sent])
        })?;
        Ok(())
    }
}

fn mark_all(connection: &Connection) -> rusqlite::Result<()> {
    for table in ["tool_days", "callers", "shadow", "missed"] {
        connection.execute(&format!("UPDATE {table} SET unsent = unsent + 1"), [])?;
    }
    Ok(())
}

fn unsent_tools(
    connection: &Connection,
    catalog: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Unsent<String, ToolFigures>>> {
    let rows = tool_days::unsent(connection, catalog, limit)?.into_iter();
    let rows = rows.map(|row| Unsent {
        day: row.day,
        key: row.tool,
        figures: row.figures,
        changes: row.changes,
    });
    Ok(rows.collect())
}

fn unsent_callers(
    connection: &Connection,
    catalog: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Unsent<(String, String), CallerFigures>>> {
    let mut select = connection.prepare_cached(
        "SELECT searches, good, possible, none, calls, errors, day, unsent, profile, who
         FROM callers WHERE catalog = ?1 AND unsent > 0 LIMIT ?2",
    )?;
    let rows = select.query_map(params![catalog, limit as i64], |row| {
        unsent(row, 6, (row.get(8)?, row.get(9)?), caller_of(row)?)
    })?;
    rows.collect()
}

fn unsent_shadows(
    connection: &Connection,
    catalog: &str,
    limit: usize,
) -> rusqlite::Result<Vec<Unsent<String, ShadowFigures>>> {
    let select = format!(
        "SELECT {SHADOW_COLUMNS}, day, unsent, shadow FROM shadow WHERE catalog = ?1 AND unsent > 0 LIMIT ?2"
    );
    let mut select = connection.prepare_cached(&select)?;
    let rows = select.query_map(params![catalog, limit as i64], |row| {
        unsent(row, 12, row.get(14)?, shadow_of(row)?)
    })?;
    rows.collect()
}

fn unsent_missed(
    connection: &Connection,
    catalog: &str,
    limit: usize,
) -> rusqlite::Result<Vec<(i64, MissedRequest)>> {
    let mut select = connection.prepare_cached(
        "SELECT at_ms, why, request, nearest, id FROM missed WHERE catalog = ?1 AND unsent > 0 LIMIT ?2",
    )?;
    let rows = select.query_map(params![catalog, limit as i64], |row| {
        Ok((row.get(4)?, missed_of(row)?))
    })?;
    rows.collect()
}

/// A row with its day in this column, and its changes in the next.
fn unsent<K, F>(row: &Row<'_>, day: usize, key: K, figures: F) -> rusqlite::Result<Unsent<K, F>> {
    Ok(Unsent {
        day: row.get(day)?,
        key,
        figures,
        changes: row.get(day + 1)?,
    })
}

#[cfg(test)]
mod tests {
    use toolscout_index::{Match, ToolId};

    use super::super::figures::{CallerKey, Tally};
    use super::super::missed::Why;
    use super::*;

    fn used(database: &mut UsageDatabase, tools: &[&str]) {
        let mut tally = Tally::of(7);
        for tool in tools {
            let mut catalog = tally.catalog("c".to_owned());
            catalog.tool(ToolId::parse(tool).unwrap()).calls().calls = 1;
        }
        let key = CallerKey {
            catalog: "c".to_owned(),
            profile: String::new(),
            who: "key:a".to_owned(),
        };
        tally.caller(key).searched(Match::Good);
        database.write(&tally).unwrap();
    }

    /// Sends what is marked, and returns the calls of each tool that was.
    fn send(database: &mut UsageDatabase) -> Vec<(String, u64)> {
        let rows = database.unsent("c", true, 10).unwrap();
        database.set_sent("c", &rows, 1).unwrap();
        let tools = rows.tools.into_iter();
        tools.map(|row| (row.key, row.figures.calls)).collect()
    }

    #[test]
    fn changed_rows_are_marked_once_the_record_is_shared_until_they_are_sent() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = UsageDatabase::open(folder.path()).unwrap();
        used(&mut database, &["a"]);
        assert_eq!(database.identity().unwrap(), None);
        assert!(database.unsent_catalogs(true).unwrap().is_empty());
        let shared = database.share_with("one").unwrap();
        assert_eq!(database.share_with("one").unwrap(), shared);
        assert_eq!(database.unsent_catalogs(true).unwrap(), ["c"]);
        assert_eq!(send(&mut database), [("a".to_owned(), 1)]);
        assert!(database.unsent("c", true, 10).unwrap().is_empty());
        used(&mut database, &["a", "b"]);
        assert_eq!(
            send(&mut database),
            [("a".to_owned(), 2), ("b".to_owned(), 1)]
        );
        database.send_again().unwrap();
        assert_eq!(send(&mut database).len(), 2);
        let other = database.share_with("other").unwrap();
        assert_eq!((other.record, other.sent), (shared.record, 0));
        assert_eq!(send(&mut database).len(), 2);
    }

    #[test]
    fn a_row_that_changes_while_it_is_sent_stays_marked() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = UsageDatabase::open(folder.path()).unwrap();
        database.share_with("one").unwrap();
        used(&mut database, &["a"]);
        let rows = database.unsent("c", true, 10).unwrap();
        used(&mut database, &["a"]);
        database.set_sent("c", &rows, 1).unwrap();
        assert_eq!(send(&mut database), [("a".to_owned(), 2)]);
    }

    #[test]
    fn texts_are_sent_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let mut database = UsageDatabase::open(folder.path()).unwrap();
        database.share_with("one").unwrap();
        let request = MissedRequest {
            at_ms: 1,
            why: Why::Possible,
            text: "a request".to_owned(),
            nearest: None,
        };
        let missed = [("c".to_owned(), request)];
        database.write_missed(&missed).unwrap();
        assert!(database.unsent_catalogs(false).unwrap().is_empty());
        assert!(database.unsent("c", false, 10).unwrap().is_empty());
        assert_eq!(database.unsent_catalogs(true).unwrap(), ["c"]);
        let rows = database.unsent("c", true, 10).unwrap();
        assert_eq!(rows.missed[0].1, missed[0].1);
        database.set_sent("c", &rows, 1).unwrap();
        assert!(database.unsent("c", true, 10).unwrap().is_empty());
    }
}
