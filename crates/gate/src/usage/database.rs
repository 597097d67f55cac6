//! The database of use, in the data directory: a row for each tool and day, and one for each caller
//! and day.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};
use toolscout_index::database::{self, DatabaseError};

use super::compared::ShadowFigures;
use super::figures::{CallerFigures, CallerKey, Tally, ToolFigures};
use super::missed::{MissedRequest, Why};
use super::tool_days;

/// The database's file name in the data directory.
pub const FILE_NAME: &str = "usage-by-tool.db";
/// The size of the database beyond which the oldest days are removed. 90 days on which searches show all tools of a catalog of
/// 300,000 take 320 MB.
const MAX_BYTES: i64 = 512 << 20;
/// Most rows of callers on one day. Callers beyond it are counted together, as [`OTHERS`].
const MAX_CALLERS_A_DAY: u64 = 2_000;
/// Most missed requests of a catalog. New ones replace the oldest.
const MAX_MISSED: u64 = 10_000;
/// The name under which callers are counted that have no row of their own.
pub const OTHERS: &str = "others";

/// The migrations of the database.
const LAYOUT: &[&str] = &[
    "
    CREATE TABLE IF NOT EXISTS days (day INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE IF NOT EXISTS tools (
        catalog TEXT NOT NULL,
        day INTEGER NOT NULL,
        tool TEXT NOT NULL,
        searches INTEGER NOT NULL,
        first INTEGER NOT NULL,
        places INTEGER NOT NULL,
        more INTEGER NOT NULL,
        injections INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        successes INTEGER NOT NULL,
        errors TEXT,
        latencies TEXT,
        latency_sum_s REAL NOT NULL,
        definition_tokens INTEGER NOT NULL,
        result_tokens INTEGER NOT NULL,
        first_ms INTEGER NOT NULL,
        last_ms INTEGER NOT NULL,
        PRIMARY KEY (catalog, day, tool)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS callers (
        catalog TEXT NOT NULL,
        day INTEGER NOT NULL,
        profile TEXT NOT NULL,
        who TEXT NOT NULL,
        searches INTEGER NOT NULL,
        good INTEGER NOT NULL,
        possible INTEGER NOT NULL,
        none INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        errors INTEGER NOT NULL,
        PRIMARY KEY (catalog, day, profile, who)
    ) STRICT, WITHOUT ROWID;",
    "
    CREATE TABLE IF NOT EXISTS missed (
        id INTEGER PRIMARY KEY,
        catalog TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        why TEXT NOT NULL,
        request TEXT NOT NULL,
        nearest TEXT
    ) STRICT;
    CREATE INDEX IF NOT EXISTS missed_by_catalog ON missed (catalog, id);",
    "
    CREATE TABLE IF NOT EXISTS shadow (
        catalog TEXT NOT NULL,
        shadow TEXT NOT NULL,
        day INTEGER NOT NULL,
        searches INTEGER NOT NULL,
        overlap REAL NOT NULL,
        overlap_squares REAL NOT NULL,
        same_first INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        absent INTEGER NOT NULL,
        live_first INTEGER NOT NULL,
        second_first INTEGER NOT NULL,
        first_moved INTEGER NOT NULL,
        live_reciprocal REAL NOT NULL,
        second_reciprocal REAL NOT NULL,
        reciprocal_squares REAL NOT NULL,
        PRIMARY KEY (catalog, shadow, day)
    ) STRICT, WITHOUT ROWID;",
    // `unsent` counts the changes of a row since it was sent to the store that several nodes share.
    "
    ALTER TABLE tools ADD COLUMN unsent INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE callers ADD COLUMN unsent INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE shadow ADD COLUMN unsent INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE missed ADD COLUMN unsent INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX unsent_tools ON tools (catalog) WHERE unsent > 0;
    CREATE INDEX unsent_callers ON callers (catalog) WHERE unsent > 0;
    CREATE INDEX unsent_missed ON missed (catalog) WHERE unsent > 0;
    CREATE TABLE sharing (
        is_only INTEGER PRIMARY KEY CHECK (is_only = 1),
        record TEXT NOT NULL,
        store TEXT NOT NULL,
        sent INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE shared_catalogs (
        catalog TEXT PRIMARY KEY,
        number INTEGER NOT NULL,
        forgotten INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;",
    tool_days::LAYOUT,
];

/// The columns of figures of second answers, in the order in which [`shadow_of`] reads them.
pub(super) const SHADOW_COLUMNS: &str = "searches, overlap, overlap_squares, same_first, calls, absent, live_first, second_first, \
     first_moved, live_reciprocal, second_reciprocal, reciprocal_squares";

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; check the file and the space on its disk", path.display())]
pub struct UsageError {
    path: PathBuf,
    source: DatabaseError,
}

/// What a caller did on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerDay {
    /// The day, counted from 1970.
    pub day: i64,
    /// The caller.
    pub key: CallerKey,
    /// What it did.
    pub figures: CallerFigures,
}

/// The use of tools in the database of a data directory. Methods block.
pub struct UsageDatabase {
    path: PathBuf,
    connection: Connection,
    max_bytes: i64,
}

impl UsageDatabase {
    /// Opens the database; creates it if necessary.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn open(data: &Path) -> Result<Self, UsageError> {
        let path = data.join(FILE_NAME);
        match database::open(&path, LAYOUT) {
            Ok(connection) => Ok(UsageDatabase {
                path,
                connection,
                max_bytes: MAX_BYTES,
            }),
            Err(source) => Err(UsageError { path, source }),
        }
    }

    /// Opens the database if there is one.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn open_existing(data: &Path) -> Result<Option<Self>, UsageError> {
        match data.join(FILE_NAME).exists() {
            true => Self::open(data).map(Some),
            false => Ok(None),
        }
    }

    /// Notes that use is recorded on this day. The first process to do so removes what is too old, which
    /// may take a second.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn begin_day(&mut self, day: i64, keep_days: i64) -> Result<(), UsageError> {
        let insert = "INSERT OR IGNORE INTO days (day) VALUES (?1)";
        let inserted = self.change(|change| change.execute(insert, [day]))?;
        match inserted {
            0 => Ok(()),
            _ => {
                self.add_up_weeks(day)?;
                self.prune(day - keep_days + 1)
            }
        }
    }

    /// Adds what was used since the last write. Other processes may write to the same rows.
    ///
    /// # Errors
    /// [`UsageError`]; then nothing was added.
    pub fn write(&mut self, tally: &Tally) -> Result<(), UsageError> {
        self.change(|change| {
            change.execute("INSERT OR IGNORE INTO days (day) VALUES (?1)", [tally.day])?;
            let is_shared = is_shared(change)?;
            for (catalog, tools) in &tally.tools {
                tool_days::add(change, (catalog, tally.day), tools, is_shared)?;
            }
            add_callers(change, tally, is_shared)
        })
    }

    /// Adds requests that no tool served, each with its catalog.
    ///
    /// # Errors
    /// [`UsageError`]; then nothing was added.
    pub fn write_missed(&mut self, missed: &[(String, MissedRequest)]) -> Result<(), UsageError> {
        self.change(|change| {
            let mut insert = change.prepare_cached(
                "INSERT INTO missed (catalog, at_ms, why, request, nearest, unsent) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            let is_shared = is_shared(change)?;
            let mut catalogs = BTreeSet::new();
            for (catalog, request) in missed {
                let MissedRequest {
                    at_ms,
                    why,
                    text,
                    nearest,
                } = request;
                insert.execute(params![
                    catalog,
                    at_ms,
                    why.as_str(),
                    text,
                    nearest,
                    is_shared
                ])?;
                catalogs.insert(catalog);
            }
            // Of each catalog the newest ones stay.
            let mut delete = change.prepare_cached(
                "DELETE FROM missed WHERE catalog = ?1 AND id <= (
                     SELECT id FROM missed WHERE catalog = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
            )?;
            for catalog in catalogs {
                delete.execute(params![catalog, MAX_MISSED])?;
            }
            Ok(())
        })
    }

    /// The requests of a catalog since this day that no tool served, the oldest first.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn missed(&self, catalog: &str, since: i64) -> Result<Vec<MissedRequest>, UsageError> {
        self.read(|connection| {
            let mut select = connection.prepare(
                "SELECT at_ms, why, request, nearest FROM missed WHERE catalog = ?1 AND at_ms >= ?2 ORDER BY id",
            )?;
            let rows = select.query_map(params![catalog, first_ms(since)], missed_of)?;
            rows.collect()
        })
    }

    /// Deletes the requests of a catalog that no tool served, from the write-ahead log too. Returns how
    /// many there were.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn forget_missed(&mut self, catalog: &str) -> Result<usize, UsageError> {
        let delete = "DELETE FROM missed WHERE catalog = ?1";
        let forgotten = self.change(|change| change.execute(delete, [catalog]))?;
        self.truncate_log()?;
        Ok(forgotten)
    }

    /// Adds figures of second answers by this shadow of a catalog.
    ///
    /// # Errors
    /// [`UsageError`]; then nothing was added.
    pub fn write_shadow(
        &mut self,
        catalog: &str,
        shadow: &str,
        day: i64,
        new: &ShadowFigures,
    ) -> Result<(), UsageError> {
        self.change(|change| {
            let select = format!(
                "SELECT {SHADOW_COLUMNS} FROM shadow WHERE catalog = ?1 AND shadow = ?2 AND day = ?3"
            );
            let stored = change.query_row(&select, params![catalog, shadow, day], shadow_of);
            let mut sum = stored.optional()?.unwrap_or_default();
            sum.add(new);
            let insert = format!(
                "INSERT OR REPLACE INTO shadow (catalog, shadow, day, {SHADOW_COLUMNS}, unsent)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16 + coalesce(
                     (SELECT unsent FROM shadow WHERE catalog = ?1 AND shadow = ?2 AND day = ?3), 0))"
            );
            let is_shared = is_shared(change)?;
            change.execute(
                &insert,
                params![
                    catalog,
                    shadow,
                    day,
                    sum.searches,
                    sum.overlap,
                    sum.overlap_squares,
                    sum.same_first,
                    sum.calls,
                    sum.absent,
                    sum.live_first,
                    sum.second_first,
                    sum.first_moved,
                    sum.live_reciprocal,
                    sum.second_reciprocal,
                    sum.reciprocal_squares,
                    is_shared,
                ],
            )?;
            Ok(())
        })
    }

    /// The figures of second answers by this shadow of a catalog since this day, the oldest first.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn shadow(
        &self,
        catalog: &str,
        shadow: &str,
        since: i64,
    ) -> Result<Vec<(i64, ShadowFigures)>, UsageError> {
        self.read(|connection| {
            let select = format!(
                "SELECT {SHADOW_COLUMNS}, day FROM shadow
                 WHERE catalog = ?1 AND shadow = ?2 AND day >= ?3 ORDER BY day"
            );
            let mut select = connection.prepare(&select)?;
            let mut rows = select.query(params![catalog, shadow, since])?;
            let mut days = Vec::new();
            while let Some(row) = rows.next()? {
                // The day comes after the columns of the figures.
                days.push((row.get(12)?, shadow_of(row)?));
            }
            Ok(days)
        })
    }

    /// Adds old days up to weeks, each in a change of its own. A record that is sent to a store keeps its days, because the store
    /// has a row for each.
    fn add_up_weeks(&mut self, today: i64) -> Result<(), UsageError> {
        let days = self.read(|connection| match is_shared(connection)? {
            true => Ok(Vec::new()),
            false => tool_days::days_for_weeks(connection, today),
        })?;
        for day in days {
            self.change(|change| tool_days::add_to_week(change, day))?;
        }
        Ok(())
    }

    /// Removes days before this one, and further ones while the database is too large.
    fn prune(&mut self, before: i64) -> Result<(), UsageError> {
        let max_bytes = self.max_bytes;
        self.change(|change| {
            remove_before(change, before)?;
            // Day by day, since days have different numbers of rows.
            let mut first = before;
            loop {
                let days = "SELECT coalesce(min(day), 0), coalesce(max(day), 0) FROM days";
                let (oldest, newest): (i64, i64) =
                    change.query_row(days, [], |row| row.try_into())?;
                // The newest day stays: without it nothing would be recorded at all.
                if oldest == newest || used_bytes(change)? <= max_bytes {
                    return Ok(());
                }
                first = first.max(oldest) + 1;
                remove_before(change, first)?;
            }
        })
    }

    /// Deletes what is known of a catalog, from the write-ahead log too.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn forget(&mut self, catalog: &str) -> Result<(), UsageError> {
        self.change(|change| {
            tool_days::forget(change, catalog)?;
            for table in ["callers", "missed", "shadow", "shared_catalogs"] {
                let delete = format!("DELETE FROM {table} WHERE catalog = ?1");
                change.execute(&delete, [catalog])?;
            }
            Ok(())
        })?;
        self.truncate_log()
    }

    /// Empties the write-ahead log, which may still have what was deleted. While another process reads,
    /// a later checkpoint does it.
    fn truncate_log(&self) -> Result<(), UsageError> {
        let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.read(|connection| connection.query_row(truncate, [], |_| Ok(())))
    }

    /// The use of the tools of a catalog since this day, by their ids. If the day is in a week that was
    /// added up, since the beginning of that week.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn tools(
        &self,
        catalog: &str,
        since: i64,
    ) -> Result<BTreeMap<String, ToolFigures>, UsageError> {
        self.read(|connection| tool_days::read(connection, catalog, since))
    }

    /// What callers did in all catalogs since this day, by day, catalog, profile and caller.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn callers(&self, since: i64) -> Result<Vec<CallerDay>, UsageError> {
        self.read(|connection| {
            let mut select = connection.prepare(
                "SELECT searches, good, possible, none, calls, errors, day, catalog, profile, who
                 FROM callers WHERE day >= ?1 ORDER BY day, catalog, profile, who",
            )?;
            let rows = select.query_map([since], caller_day_of)?;
            rows.collect()
        })
    }

    /// The days since this one on which use was recorded, in order.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn days(&self, since: i64) -> Result<BTreeSet<i64>, UsageError> {
        self.read(|connection| {
            let mut select = connection.prepare("SELECT day FROM days WHERE day >= ?1")?;
            let rows = select.query_map([since], |row| row.get(0))?;
            rows.collect()
        })
    }

    pub(super) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, UsageError> {
        work(&self.connection).map_err(|error| self.failed(error))
    }

    pub(super) fn change<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, UsageError> {
        let done = in_transaction(&mut self.connection, work);
        done.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: rusqlite::Error) -> UsageError {
        UsageError {
            path: self.path.clone(),
            source: error.into(),
        }
    }
}

fn in_transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    // The lock is taken at the start: figures are read before they are added to, and another process
    // could write in between.
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&change)?;
    change.commit()?;
    Ok(done)
}

/// The first millisecond of a day.
fn first_ms(day: i64) -> i64 {
    day.saturating_mul(24 * 3600 * 1000)
}

fn remove_before(change: &Transaction<'_>, day: i64) -> rusqlite::Result<()> {
    tool_days::remove_before(change, day)?;
    for table in ["days", "callers", "shadow"] {
        change.execute(&format!("DELETE FROM {table} WHERE day < ?1"), [day])?;
    }
    change.execute("DELETE FROM missed WHERE at_ms < ?1", [first_ms(day)])?;
    Ok(())
}

/// The bytes of the pages that have data.
fn used_bytes(connection: &Connection) -> rusqlite::Result<i64> {
    let used = "SELECT (page_count - freelist_count) * page_size
        FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    connection.query_row(used, [], |row| row.get(0))
}

/// Whether rows are sent to a store that several nodes share.
fn is_shared(change: &Connection) -> rusqlite::Result<bool> {
    change.prepare_cached("SELECT 1 FROM sharing")?.exists([])
}

pub(super) fn missed_of(row: &Row<'_>) -> rusqlite::Result<MissedRequest> {
    let why: String = row.get(1)?;
    Ok(MissedRequest {
        at_ms: row.get(0)?,
        // A reason that this version does not know.
        why: Why::named(&why).unwrap_or(Why::NoMatch),
        text: row.get(2)?,
        nearest: row.get(3)?,
    })
}

fn caller_day_of(row: &Row<'_>) -> rusqlite::Result<CallerDay> {
    Ok(CallerDay {
        figures: caller_of(row)?,
        day: row.get(6)?,
        key: CallerKey {
            catalog: row.get(7)?,
            profile: row.get(8)?,
            who: row.get(9)?,
        },
    })
}

pub(super) fn caller_of(row: &Row<'_>) -> rusqlite::Result<CallerFigures> {
    Ok(CallerFigures {
        searches: row.get(0)?,
        good: row.get(1)?,
        possible: row.get(2)?,
        none: row.get(3)?,
        calls: row.get(4)?,
        errors: row.get(5)?,
    })
}

pub(super) fn shadow_of(row: &Row<'_>) -> rusqlite::Result<ShadowFigures> {
    Ok(ShadowFigures {
        searches: row.get(0)?,
        overlap: row.get(1)?,
        overlap_squares: row.get(2)?,
        same_first: row.get(3)?,
        calls: row.get(4)?,
        absent: row.get(5)?,
        live_first: row.get(6)?,
        second_first: row.get(7)?,
        first_moved: row.get(8)?,
        live_reciprocal: row.get(9)?,
        second_reciprocal: row.get(10)?,
        reciprocal_squares: row.get(11)?,
    })
}

fn add_callers(change: &Transaction<'_>, tally: &Tally, is_shared: bool) -> rusqlite::Result<()> {
    let count = "SELECT count(*) FROM callers WHERE day = ?1";
    let mut rows: u64 = change.query_row(count, [tally.day], |row| row.get(0))?;
    for (key, figures) in &tally.callers {
        let known =
            "SELECT 1 FROM callers WHERE catalog = ?1 AND day = ?2 AND profile = ?3 AND who = ?4";
        let known = change.prepare_cached(known)?.exists(params![
            key.catalog,
            tally.day,
            key.profile,
            key.who
        ])?;
        // A caller that has a row today keeps it when the bound is reached.
        let who = match known || rows < MAX_CALLERS_A_DAY {
            true => key.who.as_str(),
            false => OTHERS,
        };
        rows += u64::from(!known);
        add_caller(change, tally.day, (key, who), figures, is_shared)?;
    }
    Ok(())
}

fn add_caller(
    change: &Transaction<'_>,
    day: i64,
    (key, who): (&CallerKey, &str),
    new: &CallerFigures,
    is_shared: bool,
) -> rusqlite::Result<()> {
    let add = "
        INSERT INTO callers (catalog, day, profile, who, searches, good, possible, none, calls, errors, unsent)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
        ON CONFLICT DO UPDATE SET searches = searches + ?5, good = good + ?6, possible = possible + ?7,
            none = none + ?8, calls = calls + ?9, errors = errors + ?10, unsent = unsent + ?11";
    let CallerFigures {
        searches,
        good,
        possible,
        none,
        calls,
        errors,
    } = new;
    change.prepare_cached(add)?.execute(params![
        key.catalog,
        day,
        key.profile,
        who,
        searches,
        good,
        possible,
        none,
        calls,
        errors,
        is_shared
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use toolscout_index::{Match, ToolId};

    use super::super::figures::ToolTally;
    use super::*;

    fn shown(day: i64, tools: &[&str]) -> Tally {
        let mut tally = Tally::of(day);
        for tool in tools {
            let mut catalog = tally.catalog("c".to_owned());
            let figures = catalog.tool(ToolId::parse(tool).unwrap());
            figures.searches = 1;
            figures.used_at(first_ms(day) + 5);
        }
        tally
    }

    fn ids(store: &UsageDatabase, since: i64) -> Vec<String> {
        store.tools("c", since).unwrap().into_keys().collect()
    }

    #[test]
    fn figures_of_several_writes_and_processes_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let mut one = UsageDatabase::open(folder.path()).unwrap();
        let mut other = UsageDatabase::open(folder.path()).unwrap();
        let of_tool = |change: fn(&mut ToolTally)| {
            let mut tally = Tally::of(7);
            let mut catalog = tally.catalog("c".to_owned());
            change(catalog.tool(ToolId::parse("s/t").unwrap()));
            tally
        };
        let called = of_tool(|tool| {
            tool.used_at(9);
            tool.used_at(5);
            let calls = tool.calls();
            (calls.calls, calls.successes) = (3, 1);
            calls.errors.insert("timeout".to_owned(), 2);
            calls.took(0.003);
        });
        // Searches alone leave the errors and latencies of calls as they are.
        let searched = of_tool(|tool| {
            (tool.searches, tool.first, tool.places) = (2, 1, 3);
            tool.used_at(7);
            tool.used_at(4);
        });
        // Tokens of a definition have no time of their own.
        let tokens = of_tool(|tool| tool.calls().definition_tokens = 30);
        for tally in [&tokens, &called, &searched, &called, &tokens] {
            one.write(tally).unwrap();
            std::mem::swap(&mut one, &mut other);
        }
        let mut sum = ToolFigures {
            searches: 2,
            first: 1,
            places: 3,
            calls: 6,
            successes: 2,
            errors: BTreeMap::from([("timeout".to_owned(), 4)]),
            definition_tokens: 60,
            first_ms: 4,
            last_ms: 9,
            ..ToolFigures::default()
        };
        sum.took(0.003);
        sum.took(0.003);
        assert_eq!(
            one.tools("c", 7).unwrap(),
            BTreeMap::from([("s/t".to_owned(), sum)])
        );
        assert!(one.tools("c", 8).unwrap().is_empty());
        assert!(one.tools("other", 0).unwrap().is_empty());
    }

    #[test]
    fn old_days_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        for (day, tools) in [(1, ["a", "b"]), (2, ["c", "d"]), (3, ["e", "f"])] {
            store.write(&shown(day, &tools)).unwrap();
        }
        store.begin_day(3, 2).unwrap();
        assert_eq!(ids(&store, 0).len(), 6, "the day has begun before");
        store.begin_day(4, 3).unwrap();
        assert_eq!(ids(&store, 0), ["c", "d", "e", "f"]);
        assert_eq!(store.days(0).unwrap(), BTreeSet::from([2, 3, 4]));
        let names = "SELECT count(*) FROM tool_names";
        let names: u64 = store
            .connection
            .query_row(names, [], |row| row.get(0))
            .unwrap();
        assert_eq!(names, 4, "names without a row are gone");
    }

    #[test]
    fn the_oldest_days_of_a_database_that_is_too_large_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        let names: Vec<String> = (0..3_000).map(|number| format!("tool {number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for day in 1..=3 {
            store.write(&shown(day, &names)).unwrap();
        }
        store.max_bytes = used_bytes(&store.connection).unwrap() - 4096;
        store.prune(0).unwrap();
        assert_eq!(store.days(0).unwrap(), BTreeSet::from([2, 3]));
        store.max_bytes = 1;
        store.prune(0).unwrap();
        assert_eq!(store.days(0).unwrap(), BTreeSet::from([3]));
        assert_eq!(ids(&store, 0).len(), 3_000, "the newest day stays");
    }

    /// Monday of a week.
    const MONDAY: i64 = 20_703;

    #[test]
    fn old_days_are_added_up_to_weeks() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        for day in MONDAY..MONDAY + 9 {
            let mut tally = shown(day, &["s/a"]);
            let mut catalog = tally.catalog("c".to_owned());
            let calls = catalog.tool(ToolId::parse("s/a").unwrap()).calls();
            calls.calls = 1;
            calls.errors.insert("timeout".to_owned(), 1);
            calls.took(0.003);
            store.write(&tally).unwrap();
        }
        let all = store.tools("c", 0).unwrap();
        // The first week is over for longer than fourteen days, and of the second one only Monday.
        store.begin_day(MONDAY + 22, 90).unwrap();
        let rows = |store: &UsageDatabase| -> Vec<i64> {
            let mut select = store
                .connection
                .prepare("SELECT day FROM tool_days ORDER BY day")
                .unwrap();
            let days = select.query_map([], |row| row.get(0)).unwrap();
            days.map(Result::unwrap).collect()
        };
        assert_eq!(rows(&store), [MONDAY, MONDAY + 7, MONDAY + 8]);
        assert_eq!(store.tools("c", 0).unwrap(), all);
        // A day within a week counts the whole week; later days stay apart.
        assert_eq!(store.tools("c", MONDAY + 6).unwrap(), all);
        assert_eq!(store.tools("c", MONDAY + 8).unwrap()["s/a"].calls, 1);
        // The week stays until its last day is too old.
        store.begin_day(MONDAY + 23, 18).unwrap();
        assert_eq!(rows(&store), [MONDAY, MONDAY + 7]);
        assert_eq!(store.tools("c", 0).unwrap(), all);
        store.begin_day(MONDAY + 24, 18).unwrap();
        assert_eq!(rows(&store), [MONDAY + 7]);
    }

    #[test]
    fn a_record_that_is_shared_keeps_its_days() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        store.share_with("store").unwrap();
        store.write(&shown(MONDAY, &["a"])).unwrap();
        store.write(&shown(MONDAY + 1, &["a"])).unwrap();
        store.begin_day(MONDAY + 22, 90).unwrap();
        assert_eq!(store.unsent("c", false, 10).unwrap().tools.len(), 2);
    }

    #[test]
    fn a_database_of_an_earlier_version_keeps_its_figures() {
        let folder = tempfile::tempdir().unwrap();
        let old = database::open(&folder.path().join(FILE_NAME), &LAYOUT[..4]).unwrap();
        let day = first_ms(MONDAY);
        old.execute_batch(&format!(
            "INSERT INTO tools VALUES ('c', {MONDAY}, 's/a', 3, 1, 6, 2, 1, 2, 1, '{{\"timeout\":1}}',
                 '[0,0,0,0,1,0,0,0,0,0,0,0,0,0,0,0]', 0.002, 40, 60, {day}, {day} + 9, 1);
             INSERT INTO tools VALUES ('c', {MONDAY} + 1, 's/a', 1, 0, 5, 0, 0, 0, 0, NULL, NULL, 0.0, 0, 0, {day} + 90000000,
                 {day} + 90000000, 0);
             INSERT INTO tools VALUES ('d', {MONDAY}, 's/a', 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0.0, 7, 0, 0, 0, 0);
             INSERT INTO sharing VALUES (1, 'record', 'store', 5);"
        ))
        .unwrap();
        drop(old);
        let store = UsageDatabase::open(folder.path()).unwrap();
        let mut expected = ToolFigures {
            searches: 4,
            first: 1,
            places: 11,
            more: 2,
            injections: 1,
            calls: 2,
            successes: 1,
            errors: BTreeMap::from([("timeout".to_owned(), 1)]),
            definition_tokens: 40,
            result_tokens: 60,
            first_ms: day,
            last_ms: day + 90_000_000,
            ..ToolFigures::default()
        };
        expected.took(0.002);
        let tools = store.tools("c", 0).unwrap();
        assert_eq!(tools, BTreeMap::from([("s/a".to_owned(), expected)]));
        let tokens = &store.tools("d", 0).unwrap()["s/a"];
        assert_eq!((tokens.definition_tokens, tokens.first_ms), (7, 0));
        let unsent = store.unsent("c", false, 10).unwrap().tools;
        assert_eq!(unsent.len(), 1);
        assert_eq!((unsent[0].day, unsent[0].key.as_str()), (MONDAY, "s/a"));
    }

    #[test]
    fn a_forgotten_catalog_leaves_nothing_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        let mut tally = shown(1, &["secret_name"]);
        let mut other = tally.catalog("other".to_owned());
        other.tool(ToolId::parse("t").unwrap()).calls().calls = 1;
        for catalog in ["c", "other"] {
            let key = CallerKey {
                catalog: catalog.to_owned(),
                profile: String::new(),
                who: "key:a".to_owned(),
            };
            tally.caller(key).searched(Match::None);
        }
        store.write(&tally).unwrap();
        store.forget("c").unwrap();
        assert!(ids(&store, 0).is_empty());
        assert_eq!(store.tools("other", 0).unwrap().len(), 1);
        let catalogs = store.callers(0).unwrap();
        let catalogs: Vec<&str> = catalogs
            .iter()
            .map(|day| day.key.catalog.as_str())
            .collect();
        assert_eq!(catalogs, ["other"]);
        for file in database::with_logs(&folder.path().join(FILE_NAME)) {
            let bytes = std::fs::read(file).unwrap_or_default();
            let found = bytes.windows(11).any(|part| part == b"secret_name");
            assert!(!found, "the name is overwritten");
        }
    }

    #[test]
    fn missed_requests_are_bounded_by_number_and_age_and_can_be_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        let request = |number: u64| {
            let request = MissedRequest {
                at_ms: first_ms(number as i64 / 6_000),
                why: Why::Possible,
                text: format!("request {number}"),
                nearest: None,
            };
            ("c".to_owned(), request)
        };
        let requests: Vec<_> = (0..MAX_MISSED + 500).map(request).collect();
        store.write_missed(&requests).unwrap();
        let missed = store.missed("c", 0).unwrap();
        assert_eq!(missed.len() as u64, MAX_MISSED);
        assert_eq!(missed[0], request(500).1);
        assert_eq!(store.missed("c", 1).unwrap().len(), 4_500);
        store.prune(1).unwrap();
        assert_eq!(store.missed("c", 0).unwrap().len(), 4_500);
        assert_eq!(store.forget_missed("c").unwrap(), 4_500);
        assert!(store.missed("c", 0).unwrap().is_empty());
    }

    #[test]
    fn callers_beyond_the_bound_of_a_day_are_counted_together() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = UsageDatabase::open(folder.path()).unwrap();
        let mut tally = Tally::of(1);
        let callers = MAX_CALLERS_A_DAY + 5;
        for number in 0..callers {
            let key = CallerKey {
                catalog: "c".to_owned(),
                profile: String::new(),
                who: format!("key:{number}"),
            };
            tally.caller(key).searched(Match::Good);
        }
        store.write(&tally).unwrap();
        store.write(&tally).unwrap();
        let rows = store.callers(0).unwrap();
        assert_eq!(rows.len() as u64, MAX_CALLERS_A_DAY + 1);
        let others = rows.iter().find(|row| row.key.who == OTHERS).unwrap();
        assert_eq!(others.figures.good, 10);
        let all: u64 = rows.iter().map(|row| row.figures.searches).sum();
        assert_eq!(all, 2 * callers);
    }
}
