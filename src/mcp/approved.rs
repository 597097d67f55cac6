//! The approved definitions of tools, including tools that their servers no longer offer: a server
//! that drops a tool and lists it again with another definition has changed it. They are stored in
//! a database in the catalog's folder, and deleted with the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, Row, params};
use toolscout_index::{Tool, ToolId, database};

use crate::gate::{Class, Definition};

/// The database, beside the catalog's.
const FILE_NAME: &str = "approved.db";

/// The migrations of the database.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE IF NOT EXISTS definitions (
        server TEXT NOT NULL, id TEXT NOT NULL, definition BLOB NOT NULL, class INTEGER NOT NULL,
        PRIMARY KEY (server, id)
    ) STRICT, WITHOUT ROWID;"];

/// The approved definition of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The digest of the last definition that was added to the catalog.
    pub definition: Definition,
    /// The lowest class of the tool until a person accepts a change.
    pub class: Class,
}

/// The approved definitions of a server's tools.
pub type Records = BTreeMap<ToolId, Record>;

impl Record {
    /// The record of this definition.
    pub fn of(tool: &Tool) -> Self {
        Record {
            definition: Definition::of(tool),
            class: Class::declared(tool),
        }
    }
}

/// Why approved definitions cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the approved definitions {} cannot be used: {source}; check the file and the space on its disk", path.display())]
pub struct ApprovedError {
    /// The path of `approved.db`.
    path: PathBuf,
    /// The error of the system or the database.
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// The approved definitions of one catalog's tools.
pub struct Approved {
    path: PathBuf,
    connection: Connection,
}

impl Approved {
    /// Opens the database in a catalog's folder; creates it if necessary.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn open(folder: &Path) -> Result<Self, ApprovedError> {
        let path = folder.join(FILE_NAME);
        match database::open(&path, MIGRATIONS) {
            Ok(connection) => Ok(Approved { path, connection }),
            Err(source) => Err(ApprovedError {
                path,
                source: source.into(),
            }),
        }
    }

    /// Reads the records of a server's tools without creating the database; empty if there is none.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn peek(folder: &Path, server: &str) -> Result<Records, ApprovedError> {
        let path = folder.join(FILE_NAME);
        // Opening would create it, and a dry run must not write.
        if !path.exists() {
            return Ok(Records::new());
        }
        match Connection::open_with_flags(
            &path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        ) {
            Ok(connection) => Approved { path, connection }.of(server),
            Err(source) => Err(ApprovedError {
                path,
                source: source.into(),
            }),
        }
    }

    /// The records of a server's tools.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn of(&self, server: &str) -> Result<Records, ApprovedError> {
        self.read(server).map_err(|source| self.failed(source))
    }

    /// Stores records of a server's tools, and deletes others.
    ///
    /// # Errors
    /// [`ApprovedError`]; nothing is changed then.
    pub fn remember(
        &mut self,
        server: &str,
        records: &Records,
        forgotten: &BTreeSet<ToolId>,
    ) -> Result<(), ApprovedError> {
        let written = write(&mut self.connection, server, records, forgotten);
        written.map_err(|source| self.failed(source))
    }

    fn read(&self, server: &str) -> rusqlite::Result<Records> {
        let mut select = self
            .connection
            .prepare("SELECT id, definition, class FROM definitions WHERE server = ?1")?;
        let rows =
            select.query_map([server], |row| Ok((row.get::<_, String>(0)?, record(row)?)))?;
        let mut records = Records::new();
        for row in rows {
            let (id, record) = row?;
            if let Some(id) = id_of(server, &id) {
                records.insert(id, record);
            }
        }
        Ok(records)
    }

    fn failed(&self, source: rusqlite::Error) -> ApprovedError {
        ApprovedError {
            path: self.path.clone(),
            source: source.into(),
        }
    }
}

fn write(
    connection: &mut Connection,
    server: &str,
    records: &Records,
    forgotten: &BTreeSet<ToolId>,
) -> rusqlite::Result<()> {
    // One transaction: a record that is missing would make a changed tool look like a new one.
    let transaction = connection.transaction()?;
    {
        let mut forget =
            transaction.prepare("DELETE FROM definitions WHERE server = ?1 AND id = ?2")?;
        for id in forgotten {
            forget.execute(params![server, id.as_str()])?;
        }
        let mut put =
            transaction.prepare("INSERT OR REPLACE INTO definitions VALUES (?1, ?2, ?3, ?4)")?;
        for (id, Record { definition, class }) in records {
            put.execute(params![
                server,
                id.as_str(),
                definition.as_bytes(),
                rank(*class)
            ])?;
        }
    }
    transaction.commit()
}

fn record(row: &Row) -> rusqlite::Result<Record> {
    let class = match row.get(2)? {
        // An unknown number, as a later version may write it, becomes the strictest class.
        0 => Class::ReadOnly,
        1 => Class::StateChanging,
        _ => Class::Destructive,
    };
    Ok(Record {
        definition: row.get::<_, [u8; 32]>(1)?.into(),
        class,
    })
}

/// A class as it is stored.
fn rank(class: Class) -> i64 {
    match class {
        Class::ReadOnly => 0,
        Class::StateChanging => 1,
        Class::Destructive => 2,
    }
}

/// A server's name may contain a `/`, so the id is split after the name.
fn id_of(server: &str, id: &str) -> Option<ToolId> {
    ToolId::new(server, id.strip_prefix(server)?.strip_prefix('/')?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_stored_by_server() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Approved::peek(folder.path(), "s").unwrap(), Records::new());
        let mut wipe = Tool::new("s", "wipe").unwrap();
        wipe.annotations.destructive_hint = Some(true);
        let records = Records::from([(wipe.id.clone(), Record::of(&wipe))]);
        Approved::open(folder.path())
            .unwrap()
            .remember("s", &records, &BTreeSet::new())
            .unwrap();
        assert_eq!(Approved::peek(folder.path(), "s").unwrap(), records);
        assert_eq!(
            Approved::open(folder.path()).unwrap().of("s").unwrap()[&wipe.id].class,
            Class::Destructive
        );
        assert_eq!(Approved::peek(folder.path(), "t").unwrap(), Records::new());
        let forgotten = BTreeSet::from([wipe.id]);
        Approved::open(folder.path())
            .unwrap()
            .remember("s", &Records::new(), &forgotten)
            .unwrap();
        assert_eq!(Approved::peek(folder.path(), "s").unwrap(), Records::new());
    }
}
