//! The rows of tools in the database of use: one for each tool and day, and a second one if the tool was
//! loaded or called.
//!
//! In a large catalog searches show most tools, and few are called. So the row that nearly every tool gets
//! has numbers alone: tools and catalogs by their ids, and times as distances from the beginning of the day.
//! It takes about 35 bytes. Days that are old are added up to weeks, under the first day of the week.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, Transaction, params};
use toolscout_base::telemetry::latencies::Buckets;

use super::figures::{ToolFigures, ToolTallies, ToolTally};

/// Days that stay apart; older ones are added up to weeks.
const DAYS_APART: i64 = 14;
/// The milliseconds of a day.
const MS_A_DAY: i64 = 24 * 3600 * 1000;

/// The migration to these rows, from one table with all figures and the names of tools in each row.
pub(super) const LAYOUT: &str = "
    CREATE TABLE catalogs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE tool_names (
        id INTEGER PRIMARY KEY,
        catalog INTEGER NOT NULL,
        tool TEXT NOT NULL,
        UNIQUE (catalog, tool)
    ) STRICT;
    CREATE TABLE tool_days (
        catalog INTEGER NOT NULL,
        day INTEGER NOT NULL,
        tool INTEGER NOT NULL,
        searches INTEGER NOT NULL,
        first INTEGER NOT NULL,
        places INTEGER NOT NULL,
        more INTEGER NOT NULL,
        begun_ms INTEGER,
        lasted_ms INTEGER,
        unsent INTEGER NOT NULL,
        PRIMARY KEY (catalog, day, tool)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE tool_calls (
        catalog INTEGER NOT NULL,
        day INTEGER NOT NULL,
        tool INTEGER NOT NULL,
        injections INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        successes INTEGER NOT NULL,
        errors TEXT,
        latencies TEXT,
        latency_sum_s REAL NOT NULL,
        definition_tokens INTEGER NOT NULL,
        result_tokens INTEGER NOT NULL,
        PRIMARY KEY (catalog, day, tool)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE weeks (is_only INTEGER PRIMARY KEY CHECK (is_only = 1), until INTEGER NOT NULL) STRICT;
    INSERT INTO weeks (is_only, until) VALUES (1, 0);
    INSERT INTO catalogs (name) SELECT DISTINCT catalog FROM tools;
    INSERT INTO tool_names (catalog, tool)
        SELECT DISTINCT c.id, t.tool FROM tools t JOIN catalogs c ON c.name = t.catalog ORDER BY c.id, t.tool;
    INSERT INTO tool_days
        SELECT c.id, t.day, n.id, t.searches, t.first, t.places, t.more,
            iif(t.first_ms = 0, NULL, t.first_ms - t.day * 86400000), iif(t.first_ms = 0, NULL, t.last_ms - t.first_ms), t.unsent
        FROM tools t JOIN catalogs c ON c.name = t.catalog JOIN tool_names n ON n.catalog = c.id AND n.tool = t.tool
        ORDER BY c.id, t.day, n.id;
    INSERT INTO tool_calls
        SELECT c.id, t.day, n.id, t.injections, t.calls, t.successes, t.errors, t.latencies, t.latency_sum_s,
            t.definition_tokens, t.result_tokens
        FROM tools t JOIN catalogs c ON c.name = t.catalog JOIN tool_names n ON n.catalog = c.id AND n.tool = t.tool
        WHERE t.injections + t.calls + t.definition_tokens + t.result_tokens > 0;
    DROP TABLE tools;
    CREATE INDEX unsent_tool_days ON tool_days (catalog) WHERE unsent > 0;";

/// What happens to a row of `tool_days` that is there already. No time at all is NULL.
const ON_CONFLICT: &str = "
    ON CONFLICT (catalog, day, tool) DO UPDATE SET
        searches = searches + excluded.searches,
        first = first + excluded.first,
        places = places + excluded.places,
        more = more + excluded.more,
        begun_ms = coalesce(min(begun_ms, excluded.begun_ms), begun_ms, excluded.begun_ms),
        lasted_ms = coalesce(
            max(begun_ms + lasted_ms, excluded.begun_ms + excluded.lasted_ms) - min(begun_ms, excluded.begun_ms),
            lasted_ms, excluded.lasted_ms),
        unsent = unsent + excluded.unsent";

/// The figures of a row of `tool_days` (`d`) with that of `tool_calls` (`c`), in the order in which [`tool_of`] reads them.
const TOOL_COLUMNS: &str = "d.searches, d.first, d.places, d.more, coalesce(d.day * 86400000 + d.begun_ms, 0), \
     coalesce(d.day * 86400000 + d.begun_ms + d.lasted_ms, 0), coalesce(c.injections, 0), coalesce(c.calls, 0), \
     coalesce(c.successes, 0), c.errors, c.latencies, coalesce(c.latency_sum_s, 0.0), coalesce(c.definition_tokens, 0), \
     coalesce(c.result_tokens, 0)";
const WITH_CALLS: &str = "tool_days d LEFT JOIN tool_calls c ON c.catalog = d.catalog AND c.day = d.day AND c.tool = d.tool";

/// A row of a tool and day.
#[derive(Clone, Copy)]
struct RowKey {
    catalog: i64,
    day: i64,
    tool: i64,
}

/// Adds the use of a catalog's tools on one day.
pub(super) fn add(
    change: &Transaction<'_>,
    (catalog, day): (&str, i64),
    tools: &ToolTallies,
    is_shared: bool,
) -> rusqlite::Result<()> {
    let catalog = catalog_id(change, catalog)?;
    // In the order of names, and then in that of rows: at random, each would read and write a page of its own.
    let mut named: Vec<_> = tools.iter().collect();
    named.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
    let mut rows: Vec<(i64, &ToolTally)> = Vec::with_capacity(named.len());
    let mut names = Names::new(change, catalog)?;
    for (tool, tally) in named {
        rows.push((names.id(tool.as_str())?, tally));
    }
    rows.sort_unstable_by_key(|(id, _)| *id);
    let mut add = change.prepare_cached(&format!(
        "INSERT INTO tool_days (catalog, day, tool, searches, first, places, more, begun_ms, lasted_ms, unsent)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) {ON_CONFLICT}"
    ))?;
    for (tool, tally) in rows {
        let times = tally.times();
        add.execute(params![
            catalog,
            day,
            tool,
            tally.searches,
            tally.first,
            tally.places,
            tally.more,
            times.map(|(first_ms, _)| first_ms - day * MS_A_DAY),
            times.map(|(first_ms, last_ms)| last_ms - first_ms),
            is_shared,
        ])?;
        if let Some(calls) = tally.called() {
            add_calls(change, RowKey { catalog, day, tool }, calls)?;
        }
    }
    Ok(())
}

/// The ids of a catalog's tools.
struct Names<'a> {
    catalog: i64,
    select: CachedStatement<'a>,
    insert: CachedStatement<'a>,
}

impl<'a> Names<'a> {
    fn new(change: &'a Transaction<'_>, catalog: i64) -> rusqlite::Result<Self> {
        Ok(Names {
            catalog,
            select: change
                .prepare_cached("SELECT id FROM tool_names WHERE catalog = ?1 AND tool = ?2")?,
            insert: change.prepare_cached(
                "INSERT INTO tool_names (catalog, tool) VALUES (?1, ?2) RETURNING id",
            )?,
        })
    }

    fn id(&mut self, tool: &str) -> rusqlite::Result<i64> {
        let key = params![self.catalog, tool];
        let known = self.select.query_row(key, |row| row.get(0)).optional()?;
        match known {
            Some(id) => Ok(id),
            None => self.insert.query_row(key, |row| row.get(0)),
        }
    }
}

fn catalog_id(change: &Transaction<'_>, name: &str) -> rusqlite::Result<i64> {
    change.execute("INSERT OR IGNORE INTO catalogs (name) VALUES (?1)", [name])?;
    let select = "SELECT id FROM catalogs WHERE name = ?1";
    change.query_row(select, [name], |row| row.get(0))
}

fn known_catalog(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let select = "SELECT id FROM catalogs WHERE name = ?1";
    connection
        .query_row(select, [name], |row| row.get(0))
        .optional()
}

/// Adds figures of loads and calls. Their errors and latencies are added up here, the others by SQLite.
fn add_calls(change: &Transaction<'_>, key: RowKey, new: &ToolFigures) -> rusqlite::Result<()> {
    let RowKey { catalog, day, tool } = key;
    let (errors, latencies) = match new.errors.is_empty() && new.latency.is_empty() {
        true => (None, None),
        false => with_stored(change, key, new)?,
    };
    let mut add = change.prepare_cached(
        "INSERT INTO tool_calls (catalog, day, tool, injections, calls, successes, errors, latencies, latency_sum_s,
             definition_tokens, result_tokens)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (catalog, day, tool) DO UPDATE SET
             injections = injections + excluded.injections,
             calls = calls + excluded.calls,
             successes = successes + excluded.successes,
             errors = coalesce(excluded.errors, errors),
             latencies = coalesce(excluded.latencies, latencies),
             latency_sum_s = latency_sum_s + excluded.latency_sum_s,
             definition_tokens = definition_tokens + excluded.definition_tokens,
             result_tokens = result_tokens + excluded.result_tokens",
    )?;
    add.execute(params![
        catalog,
        day,
        tool,
        new.injections,
        new.calls,
        new.successes,
        errors,
        latencies,
        new.latency.sum_s,
        new.definition_tokens,
        new.result_tokens,
    ])?;
    Ok(())
}

/// The errors and latencies of a row with new ones added, as its columns have them.
fn with_stored(
    change: &Transaction<'_>,
    RowKey { catalog, day, tool }: RowKey,
    new: &ToolFigures,
) -> rusqlite::Result<(Option<String>, Option<String>)> {
    let mut select = change.prepare_cached(
        "SELECT errors, latencies FROM tool_calls WHERE catalog = ?1 AND day = ?2 AND tool = ?3",
    )?;
    let stored = select
        .query_row(params![catalog, day, tool], |row| row.try_into())
        .optional()?;
    let (errors, latencies) = stored.unwrap_or_default();
    let mut sum = ToolFigures {
        errors: parsed(errors),
        latency: Buckets {
            counts: parsed(latencies),
            sum_s: 0.0,
        },
        ..ToolFigures::default()
    };
    sum.add(new);
    let errors = (!sum.errors.is_empty()).then(|| text_of(&sum.errors));
    let latencies = (!sum.latency.is_empty()).then(|| text_of(&sum.latency.counts));
    Ok((errors, latencies))
}

/// Maps and arrays of numbers always serialise.
fn text_of(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn parsed<T: serde::de::DeserializeOwned + Default>(text: Option<String>) -> T {
    match text {
        Some(text) => serde_json::from_str(&text).unwrap_or_default(),
        None => T::default(),
    }
}

/// The use of a catalog's tools since this day, by their ids. If the day is in a week that was added up,
/// since the beginning of that week.
pub(super) fn read(
    connection: &Connection,
    catalog: &str,
    since: i64,
) -> rusqlite::Result<BTreeMap<String, ToolFigures>> {
    let Some(catalog) = known_catalog(connection, catalog)? else {
        return Ok(BTreeMap::new());
    };
    let first = first_row_of(connection, since)?;
    let mut select = connection.prepare(&format!(
        "SELECT {TOOL_COLUMNS}, d.tool FROM {WITH_CALLS} WHERE d.catalog = ?1 AND d.day >= ?2"
    ))?;
    let mut rows = select.query([catalog, first])?;
    let mut figures: HashMap<i64, ToolFigures> = HashMap::new();
    while let Some(row) = rows.next()? {
        figures.entry(row.get(14)?).or_default().add(&tool_of(row)?);
    }
    let mut select = connection.prepare("SELECT id, tool FROM tool_names WHERE catalog = ?1")?;
    let mut names = select.query([catalog])?;
    let mut tools = BTreeMap::new();
    while let Some(row) = names.next()? {
        if let Some(figures) = figures.remove(&row.get(0)?) {
            tools.insert(row.get(1)?, figures);
        }
    }
    Ok(tools)
}

/// The figures in the columns of [`TOOL_COLUMNS`]. What is not readable counts as nothing.
fn tool_of(row: &Row<'_>) -> rusqlite::Result<ToolFigures> {
    Ok(ToolFigures {
        searches: row.get(0)?,
        first: row.get(1)?,
        places: row.get(2)?,
        more: row.get(3)?,
        first_ms: row.get(4)?,
        last_ms: row.get(5)?,
        injections: row.get(6)?,
        calls: row.get(7)?,
        successes: row.get(8)?,
        errors: parsed(row.get(9)?),
        latency: Buckets {
            counts: parsed(row.get(10)?),
            sum_s: row.get(11)?,
        },
        definition_tokens: row.get(12)?,
        result_tokens: row.get(13)?,
    })
}

/// A row that was not sent to the store.
pub(super) struct UnsentTool {
    pub(super) tool: String,
    pub(super) day: i64,
    pub(super) figures: ToolFigures,
    pub(super) changes: i64,
}

/// Rows of a catalog that were not sent, at most this many.
pub(super) fn unsent(
    connection: &Connection,
    catalog: &str,
    limit: usize,
) -> rusqlite::Result<Vec<UnsentTool>> {
    let Some(catalog) = known_catalog(connection, catalog)? else {
        return Ok(Vec::new());
    };
    let mut select = connection.prepare_cached(&format!(
        "SELECT {TOOL_COLUMNS}, n.tool, d.day, d.unsent FROM {WITH_CALLS} JOIN tool_names n ON n.id = d.tool
         WHERE d.catalog = ?1 AND d.unsent > 0 LIMIT ?2"
    ))?;
    let rows = select.query_map(params![catalog, limit as i64], |row| {
        Ok(UnsentTool {
            figures: tool_of(row)?,
            tool: row.get(14)?,
            day: row.get(15)?,
            changes: row.get(16)?,
        })
    })?;
    rows.collect()
}

/// Notes that the store has these rows: a tool, the day, and the changes that it had then.
pub(super) fn set_sent<'a>(
    change: &Transaction<'_>,
    catalog: &str,
    rows: impl Iterator<Item = (&'a str, i64, i64)>,
) -> rusqlite::Result<()> {
    let Some(catalog) = known_catalog(change, catalog)? else {
        return Ok(());
    };
    let mut update = change.prepare_cached(
        "UPDATE tool_days SET unsent = 0 WHERE catalog = ?1 AND day = ?2 AND unsent = ?4
             AND tool = (SELECT id FROM tool_names WHERE catalog = ?1 AND tool = ?3)",
    )?;
    for (tool, day, changes) in rows {
        update.execute(params![catalog, day, tool, changes])?;
    }
    Ok(())
}

/// Deletes the rows of a catalog.
pub(super) fn forget(change: &Transaction<'_>, catalog: &str) -> rusqlite::Result<()> {
    let Some(catalog) = known_catalog(change, catalog)? else {
        return Ok(());
    };
    for table in ["tool_days", "tool_calls", "tool_names"] {
        change.execute(
            &format!("DELETE FROM {table} WHERE catalog = ?1"),
            [catalog],
        )?;
    }
    change.execute("DELETE FROM catalogs WHERE id = ?1", [catalog])?;
    Ok(())
}

/// Deletes the rows before this day, and the names of tools that have none any more. A week stays until
/// its last day is too old.
pub(super) fn remove_before(change: &Transaction<'_>, day: i64) -> rusqlite::Result<()> {
    let first = first_row_of(change, day)?;
    let mut removed = 0;
    for catalog in catalogs(change)? {
        for table in ["tool_days", "tool_calls"] {
            let delete = format!("DELETE FROM {table} WHERE catalog = ?1 AND day < ?2");
            removed += change.prepare_cached(&delete)?.execute([catalog, first])?;
        }
    }
    if removed > 0 {
        let unused = "DELETE FROM tool_names WHERE id NOT IN (SELECT tool FROM tool_days)";
        change.execute(unused, [])?;
    }
    Ok(())
}

/// The days that are to be added to their weeks today, in order.
pub(super) fn days_for_weeks(connection: &Connection, today: i64) -> rusqlite::Result<Vec<i64>> {
    let mut select =
        connection.prepare("SELECT day FROM days WHERE day >= ?1 AND day < ?2 ORDER BY day")?;
    let rows = select.query_map([weeks_until(connection)?, today - DAYS_APART], |row| {
        row.get(0)
    })?;
    rows.collect()
}

/// Adds a day to its week.
pub(super) fn add_to_week(change: &Transaction<'_>, day: i64) -> rusqlite::Result<()> {
    let week = week_of(day);
    if week < day {
        for catalog in catalogs(change)? {
            move_day(change, catalog, (day, week))?;
        }
    }
    change.execute("UPDATE weeks SET until = max(until, ?1)", [day + 1])?;
    Ok(())
}

fn move_day(
    change: &Transaction<'_>,
    catalog: i64,
    (day, week): (i64, i64),
) -> rusqlite::Result<()> {
    let later_ms = (day - week) * MS_A_DAY;
    // `WHERE` tells the end of the select from the beginning of `ON CONFLICT`.
    let mut add = change.prepare_cached(&format!(
        "INSERT INTO tool_days (catalog, day, tool, searches, first, places, more, begun_ms, lasted_ms, unsent)
         SELECT catalog, ?3, tool, searches, first, places, more, begun_ms + ?4, lasted_ms, unsent
         FROM tool_days WHERE catalog = ?1 AND day = ?2 {ON_CONFLICT}"
    ))?;
    add.execute([catalog, day, week, later_ms])?;
    let mut select = change.prepare_cached(&format!(
        "SELECT {TOOL_COLUMNS}, d.tool FROM tool_calls c
         JOIN tool_days d ON d.catalog = c.catalog AND d.day = c.day AND d.tool = c.tool
         WHERE c.catalog = ?1 AND c.day = ?2"
    ))?;
    let mut called = select.query([catalog, day])?;
    while let Some(row) = called.next()? {
        let tool = row.get(14)?;
        let key = RowKey {
            catalog,
            day: week,
            tool,
        };
        add_calls(change, key, &tool_of(row)?)?;
    }
    for table in ["tool_days", "tool_calls"] {
        let delete = format!("DELETE FROM {table} WHERE catalog = ?1 AND day = ?2");
        change.prepare_cached(&delete)?.execute([catalog, day])?;
    }
    Ok(())
}

fn catalogs(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut select = connection.prepare("SELECT id FROM catalogs")?;
    let rows = select.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// The day of the first row that has a use since this day.
fn first_row_of(connection: &Connection, since: i64) -> rusqlite::Result<i64> {
    match since < weeks_until(connection)? {
        true => Ok(week_of(since)),
        false => Ok(since),
    }
}

/// The first day that was not added to its week.
fn weeks_until(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT until FROM weeks", [], |row| row.get(0))
}

/// The Monday of the week of a day. Day 0 was a Thursday.
fn week_of(day: i64) -> i64 {
    day.saturating_sub(day.saturating_add(3).rem_euclid(7))
}
