//! The one way to open an SQLite file of this program: its owner's alone, in WAL mode, patient with
//! other processes, and of a layout that this version knows.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

/// How long a statement waits for another process. Every write here takes milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two attempts at what SQLite does not wait for.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// Bits of a file's mode that let others in.
#[cfg(unix)]
const OTHERS: u32 = 0o077;
/// The bit of a folder that many share, as `/tmp` is: it is never narrowed.
#[cfg(unix)]
const SHARED: u32 = 0o1000;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The file cannot be made.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// SQLite said no.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A newer version wrote it.
    #[error("it is of layout {found}, this version knows {known}; use the newer toolscout")]
    Newer {
        /// Its layout.
        found: usize,
        /// The newest layout that is known.
        known: usize,
    },
}

/// Opens a database, made when it is not there. `steps` lead from one layout to the next: the first
/// makes the tables, each other one changes what the version before it has left, and their number
/// is the layout's.
///
/// # Errors
/// [`DatabaseError`].
pub fn open(path: &Path, steps: &[&str]) -> Result<Connection, DatabaseError> {
    make_private(path)?;
    prepared(Connection::open(path)?, steps)
}

/// A connection of whatever kind with the settings and the layout that [`open`] gives.
///
/// # Errors
/// As [`open`].
pub fn prepared(mut connection: Connection, steps: &[&str]) -> Result<Connection, DatabaseError> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    if layout(&connection)? > steps.len() {
        return Err(DatabaseError::Newer {
            found: layout(&connection)?,
            known: steps.len(),
        });
    }
    use_wal(&connection, BUSY_TIMEOUT)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // What was deleted must not be found in the file either.
    connection.pragma_update(None, "secure_delete", true)?;
    if layout(&connection)? < steps.len() {
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have been here since.
        let found = layout(&change)?;
        steps
            .iter()
            .skip(found)
            .try_for_each(|step| change.execute_batch(step))?;
        change.pragma_update(None, "user_version", steps.len().max(found))?;
        change.commit()?;
    }
    Ok(connection)
}

/// Switches to WAL mode. The switch does not wait for another connection's by itself, whatever the
/// busy timeout.
///
/// # Errors
/// What SQLite says, when it is busy for longer than `patience` too.
pub fn use_wal(connection: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let give_up = Instant::now() + patience;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error) if is_busy(&error) && Instant::now() < give_up => {
                std::thread::sleep(BUSY_PAUSE)
            }
            switched => return switched,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// True for a database that was begun and not yet given its tables: its creation was cut short, or
/// is under way.
pub fn is_blank(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match Connection::open_with_flags(path, flags).and_then(count_tables) {
        Ok(tables) => tables == 0,
        // A process that was killed while it switched a new file to WAL mode leaves a journal that
        // only a writer can take back. With a log beside it, the tables may be in that.
        Err(_) if has_log(path) => false,
        Err(_) => open_alone(path)
            .and_then(count_tables)
            .is_ok_and(|tables| tables == 0),
    }
}

/// True when there is a log that may hold changes.
pub fn has_log(path: &Path) -> bool {
    let [_, log, _] = with_logs(path);
    fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

/// Opens the file as it is, without its logs, as nobody else may write to it meanwhile.
pub fn open_alone(path: &Path) -> rusqlite::Result<Connection> {
    let uri = format!(
        "file:{}?immutable=1",
        path.display()
            .to_string()
            .replace('?', "%3f")
            .replace('#', "%23")
    );
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags)
}

fn count_tables(connection: Connection) -> rusqlite::Result<u32> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
}

/// Makes an empty file that its owner alone may use, where there is none; one that is there is
/// narrowed to that, and so are the logs that SQLite keeps beside it.
///
/// # Errors
/// When the file cannot be made.
pub fn make_private(path: &Path) -> io::Result<()> {
    if !path.exists() {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)?;
    }
    for file in with_logs(path) {
        // Whoever may not narrow a file did not make it; to its owner it is told at the program's
        // start.
        let _ = narrow(&file);
    }
    Ok(())
}

/// Makes a folder and those above it that its owner alone may use, where there is none.
///
/// # Errors
/// When it cannot be made.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Takes from a file or folder what others may do with it; true when there was something to take. A
/// folder with the sticky bit is shared on purpose and left alone.
///
/// # Errors
/// When it belongs to somebody else, or its file system is read-only.
#[cfg(unix)]
pub fn narrow(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;

    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() || metadata.is_dir() => metadata,
        Ok(_) => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let mode = metadata.permissions().mode();
    if mode & OTHERS == 0 || mode & SHARED != 0 {
        return Ok(false);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & !OTHERS)).map(|()| true)
}

/// There is nothing to take where files have no mode.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn narrow(_: &Path) -> io::Result<bool> {
    Ok(false)
}

/// A database and the logs that SQLite keeps beside it.
pub fn with_logs(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    })
}

fn layout(connection: &Connection) -> rusqlite::Result<usize> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "CREATE TABLE IF NOT EXISTS a (x)";
    const SECOND: &str = "ALTER TABLE a ADD COLUMN y";

    #[test]
    fn layouts_are_reached_step_by_step_and_newer_ones_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        drop(open(&path, &[FIRST]).unwrap());
        let second = open(&path, &[FIRST, SECOND]).unwrap();
        second
            .execute("INSERT INTO a (x, y) VALUES (1, 2)", [])
            .unwrap();
        assert_eq!(layout(&second).unwrap(), 2);
        let message = open(&path, &[FIRST]).unwrap_err().to_string();
        assert!(
            message.contains("layout 2, this version knows 1"),
            "{message}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_database_and_its_logs_are_the_owners_alone() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        let _open = open(&path, &[FIRST]).unwrap();
        for file in with_logs(&path) {
            assert_eq!(
                fs::metadata(&file).unwrap().permissions().mode() & 0o777,
                0o600,
                "{}",
                file.display()
            );
        }
    }
}
