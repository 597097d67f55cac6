//! Opens every SQLite file of this program: readable by its owner only, in WAL mode, waiting for
//! other processes, and with a layout that this version knows.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, TransactionBehavior};

/// How long a statement waits for another process. Every write takes milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between attempts where SQLite itself does not wait.
const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// The size of a database without tables: a page.
const BLANK_BYTES: u64 = 4096;
/// The bits of a file's mode that give access to others than its owner.
#[cfg(unix)]
const OTHERS: u32 = 0o077;
/// The sticky bit of a shared folder such as `/tmp`. Such folders are never narrowed.
#[cfg(unix)]
const SHARED: u32 = 0o1000;

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The file cannot be created.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// SQLite failed.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A newer version wrote it.
    #[error("it is of layout {found}, this version knows {known}; use the newer toolscout")]
    Newer {
        /// The layout that the file has.
        found: usize,
        /// The newest layout that is known.
        known: usize,
    },
    /// It holds a value that was never written to it.
    #[error("{0}")]
    Damaged(&'static str),
}

impl DatabaseError {
    /// True where the file or its folder may not be read or written.
    pub(crate) fn is_permission_denied(&self) -> bool {
        match self {
            DatabaseError::Io(error) => is_permission_denied(error),
            DatabaseError::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
            ),
            _ => false,
        }
    }

    /// What to do about a catalog's database that fails with this; empty where nothing helps in
    /// general.
    pub(crate) fn next_step(&self) -> &'static str {
        let code = match self {
            DatabaseError::Io(error) => return next_step(error),
            DatabaseError::Sqlite(error) => error.sqlite_error_code(),
            DatabaseError::Newer { .. } | DatabaseError::Damaged(_) => return "",
        };
        match code {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                "; restore it from a backup, or delete the catalog and add the tools again"
            }
            Some(ErrorCode::DiskFull) => DISK_FULL,
            _ if self.is_permission_denied() => "; make its folder readable and writable",
            _ => "",
        }
    }
}

pub(crate) fn is_permission_denied(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// What was committed before the disk was full stays, such as the vectors made so far.
const DISK_FULL: &str = "; free some space and run it again, what was committed is kept";

/// What to do about an I/O error; empty where nothing helps in general.
pub(crate) fn next_step(source: &io::Error) -> &'static str {
    match source.kind() {
        _ if is_permission_denied(source) => "; make its folder readable and writable",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DISK_FULL,
        _ => "",
    }
}

/// Opens a database, created if it does not exist. `steps` lead from one layout to the next: the
/// first creates the tables, every other one changes the layout before it. The number of steps is
/// the number of the layout.
///
/// # Errors
/// [`DatabaseError`].
pub fn open(path: &Path, steps: &[&str]) -> Result<Connection, DatabaseError> {
    make_private(path)?;
    prepared(Connection::open(path)?, steps)
}

/// As [`open`], for a database whose file had another name in earlier versions: it is renamed first.
/// While another process has it open under the former name, that name is used. A database with both
/// names is refused, because either may be the one with the data.
///
/// # Errors
/// As [`open`].
pub fn open_renamed(
    path: &Path,
    former: &Path,
    steps: &[&str],
) -> Result<Connection, DatabaseError> {
    if !former.exists() {
        return open(path, steps);
    }
    // In this order: another process may rename it between the two.
    if path.exists() && former.exists() {
        return Err(io::Error::other(format!(
            "{} is there too, from an earlier version; move away the one that is not needed",
            former.display()
        ))
        .into());
    }
    match rename_alone(former, path) {
        Err(DatabaseError::Sqlite(error)) if is_busy(&error) => open(former, steps),
        // Another process has renamed it meanwhile.
        Err(_) if !former.exists() => open(path, steps),
        Err(error) => Err(error),
        Ok(()) => open(path, steps),
    }
}

/// Renames a database that no other process has open.
fn rename_alone(from: &Path, to: &Path) -> Result<(), DatabaseError> {
    // Without the flag to create it, a database renamed by another process is not made anew.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(from, flags)?;
    // Leaving WAL mode needs the database for itself alone, and moves all changes from the log
    // into the file. A process that is killed after this has lost nothing.
    connection.pragma_update(None, "journal_mode", "delete")?;
    // The lock is kept until the file has its new name.
    connection.pragma_update(None, "locking_mode", "exclusive")?;
    connection.execute_batch("BEGIN EXCLUSIVE")?;
    fs::rename(from, to)?;
    Ok(())
}

/// Gives a connection the settings and the layout that [`open`] gives.
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
    // Deleted rows are overwritten, so that they cannot be recovered from the file.
    connection.pragma_update(None, "secure_delete", true)?;
    if layout(&connection)? < steps.len() {
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have upgraded the layout before this one got the lock.
        let found = layout(&change)?;
        for step in steps.iter().skip(found) {
            change.execute_batch(step)?;
        }
        change.pragma_update(None, "user_version", steps.len().max(found))?;
        change.commit()?;
    }
    Ok(connection)
}

/// Switches to WAL mode. SQLite does not apply the busy timeout to this switch, so the wait is
/// done here.
///
/// # Errors
/// SQLite's error, also when it is busy for longer than `patience`.
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

/// True for a database without tables: its creation was interrupted or is under way.
pub fn is_blank(path: &Path) -> bool {
    // Faster than opening it, and never done by hand: closing a file that SQLite has open in this
    // process would release its locks.
    if let Ok(file) = fs::metadata(path)
        && file.len() > BLANK_BYTES
    {
        return false;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match Connection::open_with_flags(path, flags).and_then(count_tables) {
        Ok(tables) => tables == 0,
        // A process that was killed while it switched a new file to WAL mode leaves a journal that
        // only a writer can roll back. The tables may be in a log beside the file.
        Err(_) if has_log(path) => false,
        Err(_) => matches!(open_alone(path).and_then(count_tables), Ok(0)),
    }
}

/// True when there is a log that may hold changes.
pub fn has_log(path: &Path) -> bool {
    let [_, log, _] = with_logs(path);
    matches!(fs::metadata(log), Ok(log) if log.len() > 0)
}

/// Opens the file alone, without its logs. No other process may write to it meanwhile.
pub fn open_alone(path: &Path) -> rusqlite::Result<Connection> {
    // In a URI a percent sign begins an escape, and the other characters end the path.
    let path = path.display().to_string().replace('%', "%25");
    let path = path.replace('?', "%3f").replace('#', "%23");
    let uri = format!("file:{path}?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags)
}

fn count_tables(connection: Connection) -> rusqlite::Result<u32> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], first_column)
}

/// The value of a row of one column.
pub(crate) fn first_column<T: FromSql>(row: &Row<'_>) -> rusqlite::Result<T> {
    row.get(0)
}

/// Creates an empty file that only its owner may read and write. An existing file and its SQLite
/// logs are narrowed to that.
///
/// # Errors
/// When the file cannot be created.
pub fn make_private(path: &Path) -> io::Result<()> {
    if !path.exists() {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(path)?;
    }
    for file in with_logs(path) {
        // A file that cannot be narrowed belongs to another user, who is warned when the program
        // starts for them.
        let _ = narrow(&file);
    }
    Ok(())
}

/// Creates a folder and its parents that only their owner may use.
///
/// # Errors
/// When it cannot be created.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Removes all permissions of others than the owner from a file or folder; true if there were any.
/// A folder with the sticky bit is shared on purpose and stays as it is.
///
/// # Errors
/// When it belongs to another user, or its file system is read-only.
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
    fs::set_permissions(path, fs::Permissions::from_mode(mode & !OTHERS))?;
    Ok(true)
}

/// Does nothing where files have no mode.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn narrow(_: &Path) -> io::Result<bool> {
    Ok(false)
}

/// The paths of a database, its log and its shared memory.
pub fn with_logs(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    })
}

fn layout(connection: &Connection) -> rusqlite::Result<usize> {
    connection.pragma_query_value(None, "user_version", first_column)
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

    #[test]
    fn a_database_is_opened_alone_whatever_its_folder_is_called() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["plain", "a%20b", "100%", "what?", "#1"] {
            let path = folder.path().join(name).join("a.db");
            fs::create_dir(path.parent().unwrap()).unwrap();
            let written = open(&path, &[FIRST]).unwrap();
            written.execute("INSERT INTO a VALUES (1)", []).unwrap();
            written
                .pragma_update(None, "journal_mode", "DELETE")
                .unwrap();
            drop(written);
            let alone = open_alone(&path).unwrap();
            let sql = "SELECT count(*) FROM a";
            let count: u32 = alone.query_row(sql, [], first_column).unwrap();
            assert_eq!(count, 1, "{name}");
        }
    }

    #[test]
    fn a_database_with_a_former_name_is_renamed_once_nobody_uses_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, former) = (folder.path().join("a.db"), folder.path().join("a.sqlite"));
        let count = |connection: &Connection| -> u32 {
            let sql = "SELECT count(*) FROM a";
            connection.query_row(sql, [], |row| row.get(0)).unwrap()
        };
        let other = open(&former, &[FIRST]).unwrap();
        other.execute("INSERT INTO a VALUES (1)", []).unwrap();
        let open_now = || open_renamed(&path, &former, &[FIRST]).unwrap();
        assert_eq!(count(&open_now()), 1, "the former file is used meanwhile");
        assert!(!path.exists());
        drop(other);
        assert_eq!(count(&open_now()), 1);
        assert!(path.exists() && !former.exists());
        assert_eq!(count(&open_now()), 1, "and again");
        fs::write(&former, "").unwrap();
        let refused = open_renamed(&path, &former, &[FIRST]).unwrap_err();
        assert!(
            refused.to_string().contains("a.sqlite is there too"),
            "{refused}"
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
