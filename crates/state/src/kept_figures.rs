//! What a server did in each minute, hour and day. Kept in the data directory, so that a restart loses nothing, and
//! in bounded space: each length of time has a number of periods, of which the oldest is replaced.

use std::path::Path;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use toolscout_base::clock::unix_ms;
use toolscout_base::telemetry::latencies::Buckets;
use toolscout_index::database;

/// The database, beside the catalogs in the data directory.
const FILE_NAME: &str = "figures.db";

/// The migrations of the database.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE IF NOT EXISTS periods (
        step TEXT NOT NULL,
        start_ms INTEGER NOT NULL,
        figures TEXT NOT NULL,
        PRIMARY KEY (step, start_ms)
    ) STRICT, WITHOUT ROWID;"];

/// The length of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A minute; the last three hours are kept.
    Minute,
    /// An hour; the last 14 days are kept.
    #[default]
    Hour,
    /// A day (UTC); the last 400 are kept.
    Day,
}

/// What a server did in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Searches by how long they took.
    pub searches: Buckets,
    /// Searches without a match.
    pub no_match: u64,
    /// Searches that were answered without something that they asked for.
    pub degraded: u64,
    /// Requests over HTTP.
    pub requests: u64,
    /// Requests that the server answered with an error of its own (5xx).
    pub errors: u64,
    /// Tokens of tool definitions that search saved.
    pub saved_tokens: u64,
    /// The most memory that the process had, in bytes; 0 if that is unknown.
    pub memory_bytes: u64,
}

/// Why figures cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("the database of figures cannot be used: {0}; check the file and the space on its disk")]
pub struct FiguresError(#[from] rusqlite::Error);

/// The figures of one data directory. Methods block.
#[derive(Debug)]
pub struct KeptFigures {
    connection: Mutex<Connection>,
}

impl Step {
    /// All steps.
    pub const ALL: [Step; 3] = [Step::Minute, Step::Hour, Step::Day];

    /// Its name in JSON and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Step::Minute => "minute",
            Step::Hour => "hour",
            Step::Day => "day",
        }
    }

    /// The length of a period.
    pub fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Step::Minute => 60,
            Step::Hour => 3600,
            Step::Day => 24 * 3600,
        })
    }

    /// How many periods are kept, those without figures among them.
    pub fn kept(self) -> u32 {
        match self {
            Step::Minute => 180,
            Step::Hour => 14 * 24,
            Step::Day => 400,
        }
    }

    /// The start of the period of a time, in milliseconds since 1970.
    fn start_ms(self, at_ms: i64) -> i64 {
        at_ms - at_ms.rem_euclid(self.milliseconds())
    }

    fn milliseconds(self) -> i64 {
        self.duration().as_millis() as i64
    }
}

impl Figures {
    /// Adds those of another part of the same period.
    fn add(&mut self, more: &Figures) {
        self.searches.add(&more.searches);
        self.no_match += more.no_match;
        self.degraded += more.degraded;
        self.requests += more.requests;
        self.errors += more.errors;
        self.saved_tokens += more.saved_tokens;
        self.memory_bytes = self.memory_bytes.max(more.memory_bytes);
    }
}

impl KeptFigures {
    /// Opens the figures of a data directory; creates the file if necessary.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub fn open(data_dir: &Path) -> anyhow::Result<Self> {
        let path = data_dir.join(FILE_NAME);
        match database::open(&path, MIGRATIONS) {
            Ok(connection) => Ok(KeptFigures {
                connection: Mutex::new(connection),
            }),
            Err(error) => Err(anyhow::anyhow!("{}: {error}", path.display())),
        }
    }

    /// Adds what was done up to now to the minute, hour and day of this time, and removes the oldest beyond
    /// [`Step::kept`].
    ///
    /// # Errors
    /// [`FiguresError`]; then nothing was added.
    pub fn add(&self, now: SystemTime, figures: &Figures) -> Result<(), FiguresError> {
        let at_ms = unix_ms(now);
        let mut connection = self.connection.lock();
        let change = connection.transaction()?;
        for step in Step::ALL {
            add_to(&change, step, step.start_ms(at_ms), figures)?;
        }
        Ok(change.commit()?)
    }

    /// The last [`Step::kept`] periods up to now, the oldest first, each with its start in milliseconds since 1970.
    /// Periods in which no server ran are left out.
    ///
    /// # Errors
    /// [`FiguresError`].
    pub fn read(&self, step: Step, now: SystemTime) -> Result<Vec<(i64, Figures)>, FiguresError> {
        let last_ms = step.start_ms(unix_ms(now));
        let first_ms = last_ms - i64::from(step.kept() - 1) * step.milliseconds();
        let connection = self.connection.lock();
        let mut select = connection.prepare_cached(
            "SELECT start_ms, figures FROM periods WHERE step = ?1 AND start_ms BETWEEN ?2 AND ?3 ORDER BY start_ms",
        )?;
        let rows = select.query_map(params![step.name(), first_ms, last_ms], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))
        })?;
        let mut periods = Vec::new();
        for row in rows {
            let (start_ms, text) = row?;
            if let Some(figures) = parsed(&text) {
                periods.push((start_ms, figures));
            }
        }
        Ok(periods)
    }
}

fn add_to(
    change: &Transaction<'_>,
    step: Step,
    start_ms: i64,
    figures: &Figures,
) -> rusqlite::Result<()> {
    let mut select =
        change.prepare_cached("SELECT figures FROM periods WHERE step = ?1 AND start_ms = ?2")?;
    let stored: Option<String> = select
        .query_row(params![step.name(), start_ms], |row| row.get(0))
        .optional()?;
    let mut sum = stored.as_deref().and_then(parsed).unwrap_or_default();
    sum.add(figures);
    let text = serde_json::to_string(&sum)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    change
        .prepare_cached("INSERT OR REPLACE INTO periods VALUES (?1, ?2, ?3)")?
        .execute(params![step.name(), start_ms, text])?;
    // By number and not by time: a clock that is wrong for a moment must not delete what was kept. Each of the two
    // sides of now is bounded by itself, since a clock that was ahead must not take the place of the present.
    for (later, order) in [("<=", "DESC"), (">", "ASC")] {
        let delete = format!(
            "DELETE FROM periods WHERE step = ?1 AND start_ms {later} ?2 AND start_ms NOT IN (
                 SELECT start_ms FROM periods WHERE step = ?1 AND start_ms {later} ?2
                 ORDER BY start_ms {order} LIMIT ?3)"
        );
        change
            .prepare_cached(&delete)?
            .execute(params![step.name(), start_ms, step.kept()])?;
    }
    Ok(())
}

/// Reads the figures of a period. Those that another version wrote in another way are left out.
fn parsed(text: &str) -> Option<Figures> {
    match serde_json::from_str(text) {
        Ok(figures) => Some(figures),
        Err(error) => {
            tracing::debug!(%error, "kept figures of a period cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn requests(requests: u64) -> Figures {
        Figures {
            requests,
            memory_bytes: requests,
            ..Figures::default()
        }
    }

    #[test]
    fn figures_add_up_by_minute_hour_and_day_and_outlive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let day = 20_000 * 24 * 3600;
        let kept = KeptFigures::open(dir.path()).unwrap();
        kept.add(at(day + 10), &requests(1)).unwrap();
        kept.add(at(day + 50), &requests(2)).unwrap();
        drop(kept);
        let kept = KeptFigures::open(dir.path()).unwrap();
        kept.add(at(day + 61), &requests(4)).unwrap();
        kept.add(at(day + 3600), &requests(8)).unwrap();
        let read = |step| {
            let mut read = Vec::new();
            for (start_ms, figures) in kept.read(step, at(day + 3600)).unwrap() {
                read.push((start_ms / 1000 - day as i64, figures.requests));
            }
            read
        };
        assert_eq!(read(Step::Minute), [(0, 3), (60, 4), (3600, 8)]);
        assert_eq!(read(Step::Hour), [(0, 7), (3600, 8)]);
        assert_eq!(read(Step::Day), [(0, 15)]);
        let (_, whole) = &kept.read(Step::Day, at(day)).unwrap()[0];
        assert_eq!(whole.memory_bytes, 8, "the most of all parts");
    }

    #[test]
    fn the_oldest_periods_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptFigures::open(dir.path()).unwrap();
        for minute in 0..500 {
            kept.add(at(minute * 60), &requests(minute)).unwrap();
        }
        let now = at(499 * 60);
        let minutes = kept.read(Step::Minute, now).unwrap();
        assert_eq!(minutes.len(), Step::Minute.kept() as usize);
        assert_eq!(minutes.last().unwrap().1.requests, 499);
        assert_eq!(kept.read(Step::Hour, now).unwrap().len(), 9);
        // After a night without a server.
        assert_eq!(kept.read(Step::Minute, at(60_000)).unwrap(), []);
    }

    #[test]
    fn a_clock_that_is_wrong_for_a_moment_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptFigures::open(dir.path()).unwrap();
        let now = at(9_000_000);
        kept.add(now, &requests(1)).unwrap();
        kept.add(at(60), &requests(2)).unwrap();
        kept.add(at(9_000_000_000), &requests(4)).unwrap();
        for step in Step::ALL {
            let read = kept.read(step, now).unwrap();
            assert_eq!(read.last().unwrap().1.requests, 1, "{step:?}");
        }
    }

    #[test]
    fn a_clock_that_was_ahead_for_hours_does_not_hold_up_the_present() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptFigures::open(dir.path()).unwrap();
        for minute in 0..400 {
            kept.add(at((100_000 + minute) * 60), &requests(1)).unwrap();
        }
        for minute in 0..400 {
            kept.add(at((1000 + minute) * 60), &requests(2)).unwrap();
        }
        let read = kept.read(Step::Minute, at(1399 * 60)).unwrap();
        assert_eq!(read.len(), Step::Minute.kept() as usize);
        assert!(read.iter().all(|(_, figures)| figures.requests == 2));
        let all = "SELECT count(*) FROM periods WHERE step = 'minute'";
        let all: u32 = kept
            .connection
            .lock()
            .query_row(all, [], |row| row.get(0))
            .unwrap();
        assert_eq!(all, 2 * Step::Minute.kept());
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptFigures::open(dir.path()).unwrap();
        kept.add(at(60), &requests(1)).unwrap();
        let spoil = "UPDATE periods SET figures = '7' WHERE step = 'minute'";
        kept.connection.lock().execute(spoil, []).unwrap();
        assert_eq!(kept.read(Step::Minute, at(60)).unwrap(), []);
        kept.add(at(60), &requests(2)).unwrap();
        assert_eq!(kept.read(Step::Minute, at(60)).unwrap()[0].1.requests, 2);
    }
}
