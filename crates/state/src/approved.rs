//! The approved definitions of tools, including tools that their servers no longer offer: a server
//! that drops a tool and lists it again with another definition has changed it. Beside them are the
//! changes that no person has decided on, and the tools that one has blocked. They are stored in a
//! database in the catalog's folder, and deleted with the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolscout_index::formats::BODY;
use toolscout_index::{Kind, Tool, ToolId, database};
use utoipa::ToSchema;

use toolscout_gate::gate::{Class, Definition};

/// The database, beside the catalog's.
const FILE_NAME: &str = "approved.db";

/// What differs where the parts that differ are not known.
pub const DEFINITION: &str = "definition";

/// The migrations of the database.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE IF NOT EXISTS definitions (
        server TEXT NOT NULL, id TEXT NOT NULL, definition BLOB NOT NULL, class INTEGER NOT NULL,
        PRIMARY KEY (server, id)
    ) STRICT, WITHOUT ROWID;",
    "
    CREATE TABLE IF NOT EXISTS changes (
        server TEXT NOT NULL, id TEXT NOT NULL, kind TEXT NOT NULL, approved TEXT, offered TEXT,
        blocked_by TEXT, since_ms INTEGER NOT NULL,
        PRIMARY KEY (server, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS decisions (
        server TEXT PRIMARY KEY, number INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;",
];

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

/// What became of a tool since it was approved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Its server offers it since a later list than the first.
    New,
    /// Its definition is another one.
    Changed,
    /// Its server no longer offers it.
    Removed,
}

/// Who keeps a tool out of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BlockedBy {
    /// The setting `--on-change block`.
    Setting,
    /// A person.
    Person,
}

/// A change of a tool that no person has accepted.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolChange {
    /// What became of the tool.
    pub kind: ChangeKind,
    /// The approved definition; `None` for a new tool, and where it is no longer known.
    pub approved: Option<Arc<Tool>>,
    /// The definition that the server offers; `None` for a removed tool, and for a new one that is
    /// in the catalog.
    pub offered: Option<Arc<Tool>>,
    /// Who keeps it out of the catalog.
    pub blocked_by: Option<BlockedBy>,
    /// When it was first seen, in Unix milliseconds.
    pub since_ms: i64,
}

impl ToolChange {
    /// True when nothing is left to decide on once this tool is offered.
    pub fn is_settled_by(&self, tool: &Tool) -> bool {
        match (self.kind, &self.approved, &self.offered) {
            (ChangeKind::New, ..) => false,
            (_, Some(approved), _) => Definition::of(approved) == Definition::of(tool),
            // What was approved is not known, but it is not what was offered.
            (_, None, Some(offered)) => Definition::of(offered) != Definition::of(tool),
            (_, None, None) => true,
        }
    }

    /// The parts in which the offered definition differs from the approved one; `definition` where
    /// one of them is not known.
    pub fn parts(&self) -> Vec<&'static str> {
        match (self.kind, &self.approved, &self.offered) {
            (ChangeKind::Changed, Some(approved), Some(offered)) => {
                changed_parts(approved, offered)
            }
            (ChangeKind::Changed, ..) => vec![DEFINITION],
            (ChangeKind::New | ChangeKind::Removed, ..) => Vec::new(),
        }
    }

    /// The definition that a person decides on: what is offered, or what is in the catalog.
    pub fn current<'a>(&'a self, in_catalog: Option<&'a Arc<Tool>>) -> Option<&'a Arc<Tool>> {
        match self.kind {
            ChangeKind::Removed => None,
            _ => self.offered.as_ref().or(in_catalog),
        }
    }

    /// Names the definition that a person decides on.
    pub fn version(&self, in_catalog: Option<&Arc<Tool>>) -> String {
        match self.current(in_catalog) {
            Some(tool) => hex::encode(&Definition::of(tool).as_bytes()[..16]),
            None => self.kind.name().to_owned(),
        }
    }
}

/// The undecided changes of a server's tools.
pub type Undecided = BTreeMap<ToolId, ToolChange>;

/// What is stored of a server's tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// The approved definitions.
    pub records: Records,
    /// The changes that no person has accepted.
    pub undecided: Undecided,
    /// The number of the last decision of a person.
    pub decision: i64,
}

/// What one list of a server's tools changes in what is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Update {
    /// Definitions to store.
    pub records: Records,
    /// Definitions to delete.
    pub forgotten: BTreeSet<ToolId>,
    /// Changes to store.
    pub undecided: Undecided,
    /// Changes to delete.
    pub settled: BTreeSet<ToolId>,
}

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
pub enum ApprovedError {
    /// The database in the catalog's folder failed.
    #[error("the approved definitions {} cannot be used: {source}; check the file and the space on its disk", path.display())]
    Database {
        /// The path of `approved.db`.
        path: PathBuf,
        /// The error of the system or the database.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A person has decided while a list of tools was compared.
    #[error("a person has decided on the tools of {server} meanwhile; it is tried again")]
    DecidedMeanwhile {
        /// The server.
        server: String,
    },
    /// The store that several nodes share cannot be asked.
    #[error("the store of the approved definitions cannot be used now: {reason}")]
    Unavailable {
        /// What the store answered, or why it did not.
        reason: String,
    },
}

/// The approved definitions of a catalog of the store that several nodes share. Methods block.
pub trait ApprovedTable: Send + Sync {
    /// As [`Approved::of`].
    ///
    /// # Errors
    /// [`ApprovedError::Unavailable`], as of all methods here.
    fn of(&self, server: &str) -> Result<Remembered, ApprovedError>;

    /// As [`Approved::undecided`].
    ///
    /// # Errors
    /// As [`ApprovedTable::of`].
    fn undecided(&self) -> Result<Undecided, ApprovedError>;

    /// As [`Approved::last_decision`].
    ///
    /// # Errors
    /// As [`ApprovedTable::of`].
    fn last_decision(&self, server: &str) -> Result<i64, ApprovedError>;

    /// Stores what a list changes. False, and nothing is stored, where `decision` is not the last one.
    ///
    /// # Errors
    /// As [`ApprovedTable::of`].
    fn remember(&self, server: &str, update: &Update, decision: i64)
    -> Result<bool, ApprovedError>;

    /// Stores what `judge` makes of what is stored of each server, as a decision of a person; nothing
    /// once it returns none.
    ///
    /// # Errors
    /// As [`ApprovedTable::of`].
    fn review(
        &self,
        servers: &BTreeSet<String>,
        judge: &mut dyn FnMut(&str, Remembered) -> Option<Update>,
    ) -> Result<(), ApprovedError>;
}

/// Where the approved definitions of a catalog's tools are.
#[derive(Clone)]
pub enum ApprovedPlace {
    /// In the catalog's folder.
    Folder(PathBuf),
    /// In the store that several nodes share.
    Table(Arc<dyn ApprovedTable>),
}

impl From<&Path> for ApprovedPlace {
    fn from(folder: &Path) -> Self {
        ApprovedPlace::Folder(folder.to_owned())
    }
}

/// The approved definitions of one catalog's tools.
pub struct Approved(Backing);

enum Backing {
    Local(LocalApproved),
    Table(Arc<dyn ApprovedTable>),
}

struct LocalApproved {
    path: PathBuf,
    connection: Connection,
}

impl Approved {
    /// Opens the database in a catalog's folder, created if necessary, or the table of a store.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn open(place: impl Into<ApprovedPlace>) -> Result<Self, ApprovedError> {
        // The store migrates its tables itself.
        let folder = match place.into() {
            ApprovedPlace::Folder(folder) => folder,
            ApprovedPlace::Table(table) => return Ok(Approved(Backing::Table(table))),
        };
        let path = folder.join(FILE_NAME);
        match database::open(&path, MIGRATIONS) {
            Ok(connection) => Ok(Approved::local(path, connection)),
            Err(source) => Err(ApprovedError::Database {
                path,
                source: source.into(),
            }),
        }
    }

    /// Opens the database without creating it; `None` if there is none.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn open_existing(place: impl Into<ApprovedPlace>) -> Result<Option<Self>, ApprovedError> {
        let folder = match place.into() {
            ApprovedPlace::Folder(folder) => folder,
            ApprovedPlace::Table(table) => return Ok(Some(Approved(Backing::Table(table)))),
        };
        let path = folder.join(FILE_NAME);
        // A catalog without MCP servers has no such file.
        if !path.exists() {
            return Ok(None);
        }
        match Connection::open_with_flags(
            &path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        ) {
            Ok(connection) => Ok(Some(Approved::local(path, connection))),
            Err(source) => Err(ApprovedError::Database {
                path,
                source: source.into(),
            }),
        }
    }

    fn local(path: PathBuf, connection: Connection) -> Self {
        Approved(Backing::Local(LocalApproved { path, connection }))
    }

    /// Reads what is stored of a server's tools without creating the database, since a dry run must
    /// not write; empty if there is none.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn peek(folder: &Path, server: &str) -> Result<Remembered, ApprovedError> {
        match Approved::open_existing(folder)? {
            Some(approved) => approved.of(server),
            None => Ok(Remembered::default()),
        }
    }

    /// What is stored of a server's tools.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn of(&self, server: &str) -> Result<Remembered, ApprovedError> {
        match &self.0 {
            Backing::Local(local) => local.of(server),
            Backing::Table(table) => table.of(server),
        }
    }

    /// The undecided changes of every server.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn undecided(&self) -> Result<Undecided, ApprovedError> {
        match &self.0 {
            Backing::Local(local) => local.undecided(),
            Backing::Table(table) => table.undecided(),
        }
    }

    /// The number of the last decision of a person about a server's tools.
    ///
    /// # Errors
    /// [`ApprovedError`].
    pub fn last_decision(&self, server: &str) -> Result<i64, ApprovedError> {
        match &self.0 {
            Backing::Local(local) => local.last_decision(server),
            Backing::Table(table) => table.last_decision(server),
        }
    }

    /// Stores what a list of a server's tools changes. `decision` is the number of the last decision
    /// that it was compared with.
    ///
    /// # Errors
    /// [`ApprovedError`], also when a person has decided meanwhile; nothing is changed then.
    pub fn remember(
        &mut self,
        server: &str,
        update: &Update,
        decision: i64,
    ) -> Result<(), ApprovedError> {
        let is_current = match &mut self.0 {
            Backing::Local(local) => local.remember(server, update, decision)?,
            Backing::Table(table) => table.remember(server, update, decision)?,
        };
        if is_current {
            return Ok(());
        }
        Err(ApprovedError::DecidedMeanwhile {
            server: server.to_owned(),
        })
    }

    /// Stores what a person has decided about the tools of these servers: what `judge` makes of what
    /// is stored of each.
    ///
    /// # Errors
    /// The first error of `judge`, and [`ApprovedError`]; nothing is changed then.
    pub fn review<E: From<ApprovedError>>(
        &mut self,
        servers: &BTreeSet<String>,
        mut judge: impl FnMut(&str, Remembered) -> Result<Update, E>,
    ) -> Result<(), E> {
        // The tables' closure returns no error, so the error of `judge` is kept here.
        let mut refused = None;
        let mut judge = |server: &str, remembered: Remembered| match judge(server, remembered) {
            Ok(update) => Some(update),
            Err(error) => {
                refused = Some(error);
                None
            }
        };
        let stored = match &mut self.0 {
            Backing::Local(local) => local.review(servers, &mut judge),
            Backing::Table(table) => table.review(servers, &mut judge),
        };
        match refused {
            Some(error) => Err(error),
            None => Ok(stored?),
        }
    }
}

impl LocalApproved {
    fn of(&self, server: &str) -> Result<Remembered, ApprovedError> {
        // One transaction, so that records, changes and number belong together.
        let transaction = self.connection.unchecked_transaction();
        self.checked(transaction.and_then(|transaction| read(&transaction, server)))
    }

    fn undecided(&self) -> Result<Undecided, ApprovedError> {
        self.checked(read_undecided(&self.connection, None))
    }

    fn last_decision(&self, server: &str) -> Result<i64, ApprovedError> {
        self.checked(last_decision(&self.connection, server))
    }

    fn remember(
        &mut self,
        server: &str,
        update: &Update,
        decision: i64,
    ) -> Result<bool, ApprovedError> {
        self.within(|transaction| {
            // A person has decided since the list was compared, and writing it would undo that.
            let is_current = last_decision(transaction, server)? == decision;
            if is_current {
                write_update(transaction, server, update)?;
            }
            Ok(is_current)
        })
    }

    fn review(
        &mut self,
        servers: &BTreeSet<String>,
        judge: &mut dyn FnMut(&str, Remembered) -> Option<Update>,
    ) -> Result<(), ApprovedError> {
        self.within(|transaction| {
            for server in servers {
                let remembered = read(transaction, server)?;
                let number = remembered.decision + 1;
                let Some(update) = judge(server, remembered) else {
                    // Any error will do: it only rolls back. `refused` has the reason.
                    return Err(rusqlite::Error::QueryReturnedNoRows);
                };
                write_update(transaction, server, &update)?;
                transaction.execute(
                    "INSERT OR REPLACE INTO decisions VALUES (?1, ?2)",
                    params![server, number],
                )?;
            }
            Ok(())
        })
    }

    /// Does this within one transaction: a record that is missing would make a changed tool look like
    /// a new one. It locks at once, so that what it has read holds to its end.
    fn within<T>(
        &mut self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ApprovedError> {
        let written = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let done = write(&transaction)?;
                transaction.commit()?;
                Ok(done)
            });
        self.checked(written)
    }

    fn checked<T>(&self, outcome: rusqlite::Result<T>) -> Result<T, ApprovedError> {
        match outcome {
            Ok(value) => Ok(value),
            Err(source) => Err(ApprovedError::Database {
                path: self.path.clone(),
                source: source.into(),
            }),
        }
    }
}

/// What is stored of a server's tools.
fn read(connection: &Connection, server: &str) -> rusqlite::Result<Remembered> {
    Ok(Remembered {
        records: read_records(connection, server)?,
        undecided: read_undecided(connection, Some(server))?,
        decision: last_decision(connection, server)?,
    })
}

fn read_records(connection: &Connection, server: &str) -> rusqlite::Result<Records> {
    let mut select =
        connection.prepare("SELECT id, definition, class FROM definitions WHERE server = ?1")?;
    let rows = select.query_map([server], |row| Ok((row.get::<_, String>(0)?, record(row)?)))?;
    let mut records = Records::new();
    for row in rows {
        let (id, record) = row?;
        if let Some(id) = id_of(server, &id) {
            records.insert(id, record);
        }
    }
    Ok(records)
}

/// The changes of a server, or of all servers.
fn read_undecided(connection: &Connection, server: Option<&str>) -> rusqlite::Result<Undecided> {
    // `peek` opens databases of earlier versions without migrating them.
    if !has_changes(connection)? {
        return Ok(Undecided::new());
    }
    let mut select = connection.prepare(
        "SELECT server, id, kind, approved, offered, blocked_by, since_ms FROM changes
         WHERE ?1 IS NULL OR server = ?1",
    )?;
    let rows = select.query_map([server], |row| {
        let (server, id): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((id_of(&server, &id), change(row)?))
    })?;
    let mut undecided = Undecided::new();
    for row in rows {
        let (id, change) = row?;
        if let Some(id) = id {
            undecided.insert(id, change);
        }
    }
    Ok(undecided)
}

fn last_decision(connection: &Connection, server: &str) -> rusqlite::Result<i64> {
    if !has_changes(connection)? {
        return Ok(0);
    }
    let number = connection
        .query_row(
            "SELECT number FROM decisions WHERE server = ?1",
            [server],
            |row| row.get(0),
        )
        .optional()?;
    Ok(number.unwrap_or_default())
}

/// Whether the database has the tables of changes: one of an earlier version that is only read does
/// not.
fn has_changes(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) = 2 FROM sqlite_schema WHERE name IN ('changes', 'decisions')",
        [],
        |row| row.get(0),
    )
}

fn write_update(connection: &Connection, server: &str, update: &Update) -> rusqlite::Result<()> {
    let mut forget = connection.prepare("DELETE FROM definitions WHERE server = ?1 AND id = ?2")?;
    for id in &update.forgotten {
        forget.execute(params![server, id.as_str()])?;
    }
    let mut put =
        connection.prepare("INSERT OR REPLACE INTO definitions VALUES (?1, ?2, ?3, ?4)")?;
    for (id, Record { definition, class }) in &update.records {
        put.execute(params![
            server,
            id.as_str(),
            definition.as_bytes(),
            rank(*class)
        ])?;
    }
    let mut settle = connection.prepare("DELETE FROM changes WHERE server = ?1 AND id = ?2")?;
    for id in &update.settled {
        settle.execute(params![server, id.as_str()])?;
    }
    let mut note =
        connection.prepare("INSERT OR REPLACE INTO changes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
    for (id, change) in &update.undecided {
        note.execute(params![
            server,
            id.as_str(),
            change.kind.name(),
            change.approved.as_deref().map(json),
            change.offered.as_deref().map(json),
            change.blocked_by.map(BlockedBy::name),
            change.since_ms,
        ])?;
    }
    Ok(())
}

fn change(row: &Row) -> rusqlite::Result<ToolChange> {
    let (kind, blocked_by): (String, Option<String>) = (row.get(2)?, row.get(5)?);
    Ok(ToolChange {
        kind: ChangeKind::from_name(&kind),
        approved: row.get::<_, Option<String>>(3)?.and_then(tool),
        offered: row.get::<_, Option<String>>(4)?.and_then(tool),
        blocked_by: blocked_by.as_deref().map(BlockedBy::from_name),
        since_ms: row.get(6)?,
    })
}

/// A definition as it is stored; one of a version that cannot be read any more is not known.
fn tool(json: String) -> Option<Arc<Tool>> {
    serde_json::from_str(&json).ok().map(Arc::new)
}

fn json(tool: &Tool) -> String {
    // A tool always serializes.
    serde_json::to_string(tool).unwrap_or_default()
}

impl ChangeKind {
    /// The name in JSON and in the database.
    pub fn name(self) -> &'static str {
        match self {
            ChangeKind::New => "new",
            ChangeKind::Changed => "changed",
            ChangeKind::Removed => "removed",
        }
    }

    /// Reads the format of `name`.
    pub fn from_name(name: &str) -> Self {
        match name {
            "new" => ChangeKind::New,
            "removed" => ChangeKind::Removed,
            _ => ChangeKind::Changed,
        }
    }
}

impl BlockedBy {
    /// The name in JSON and in the database.
    pub fn name(self) -> &'static str {
        match self {
            BlockedBy::Setting => "setting",
            BlockedBy::Person => "person",
        }
    }

    /// Reads the format of `name`.
    pub fn from_name(name: &str) -> Self {
        match name {
            "setting" => BlockedBy::Setting,
            // What a later version may write counts as blocked by a person, the safer of the two.
            _ => BlockedBy::Person,
        }
    }
}

fn record(row: &Row) -> rusqlite::Result<Record> {
    Ok(Record {
        definition: row.get::<_, [u8; 32]>(1)?.into(),
        class: class_of(row.get(2)?),
    })
}

/// The class of a number as it is stored.
pub fn class_of(rank: i64) -> Class {
    match rank {
        // An unknown number, as a later version may write it, becomes the strictest class.
        0 => Class::ReadOnly,
        1 => Class::StateChanging,
        _ => Class::Destructive,
    }
}

/// A class as it is stored.
pub fn rank(class: Class) -> i64 {
    match class {
        Class::ReadOnly => 0,
        Class::StateChanging => 1,
        Class::Destructive => 2,
    }
}

/// The id of a server's tool. A server's name may contain a `/`, so the id is split after the name.
pub fn id_of(server: &str, id: &str) -> Option<ToolId> {
    ToolId::new(server, id.strip_prefix(server)?.strip_prefix('/')?).ok()
}

/// The parts in which two versions of a tool differ, of those that a model or the gate uses;
/// `definition` where none of them differs and the hashes do.
pub fn changed_parts(before: &Tool, after: &Tool) -> Vec<&'static str> {
    let compared = [
        ("title", before.title != after.title),
        ("description", before.description != after.description),
        ("inputSchema", before.input_schema != after.input_schema),
        ("outputSchema", before.output_schema != after.output_schema),
        ("annotations", before.annotations != after.annotations),
        // What a model is told by a skill.
        ("instructions", instructions(before) != instructions(after)),
    ];
    let mut changed = Vec::new();
    for (part, differs) in compared {
        if differs {
            changed.push(part);
        }
    }
    // The hash covers more than these parts, and no change may count as none.
    if changed.is_empty() && Definition::of(before) != Definition::of(after) {
        changed.push(DEFINITION);
    }
    changed
}

/// The text of a skill. Other tools have none that their definitions are compared by.
fn instructions(tool: &Tool) -> Option<&Value> {
    match tool.kind {
        Kind::Skill => tool.metadata.get(BODY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decision that changes nothing.
    fn decide(approved: &mut Approved, server: &str) {
        let judge = |_: &str, _| Ok::<Update, ApprovedError>(Update::default());
        approved.review(&[server.to_owned()].into(), judge).unwrap();
    }

    #[test]
    fn records_are_stored_by_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        assert_eq!(Approved::peek(path, "s").unwrap(), Remembered::default());
        let mut wipe = Tool::new("s", "wipe").unwrap();
        wipe.annotations.destructive_hint = Some(true);
        let records = Records::from([(wipe.id.clone(), Record::of(&wipe))]);
        let update = Update {
            records: records.clone(),
            ..Update::default()
        };
        let mut approved = Approved::open(path).unwrap();
        approved.remember("s", &update, 0).unwrap();
        assert_eq!(Approved::peek(path, "s").unwrap().records, records);
        assert_eq!(
            approved.of("s").unwrap().records[&wipe.id].class,
            Class::Destructive
        );
        assert_eq!(Approved::peek(path, "t").unwrap(), Remembered::default());
        let update = Update {
            forgotten: BTreeSet::from([wipe.id]),
            ..Update::default()
        };
        approved.remember("s", &update, 0).unwrap();
        assert_eq!(Approved::peek(path, "s").unwrap(), Remembered::default());
    }

    #[test]
    fn changes_are_stored_and_a_list_from_before_a_decision_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut approved = Approved::open(folder.path()).unwrap();
        let tool = Arc::new(Tool::new("s/t", "read").unwrap().with_description("Reads."));
        let change = ToolChange {
            kind: ChangeKind::Changed,
            approved: Some(Arc::clone(&tool)),
            offered: None,
            blocked_by: Some(BlockedBy::Person),
            since_ms: 7,
        };
        let update = Update {
            undecided: Undecided::from([(tool.id.clone(), change)]),
            ..Update::default()
        };
        approved.remember("s/t", &update, 0).unwrap();
        assert_eq!(approved.undecided().unwrap(), update.undecided);
        decide(&mut approved, "s/t");
        let refused = approved.remember("s/t", &update, 0).unwrap_err();
        assert!(refused.to_string().contains("decided"), "{refused}");
        let settled = Update {
            settled: BTreeSet::from([tool.id.clone()]),
            ..Update::default()
        };
        approved.remember("s/t", &settled, 1).unwrap();
        let left = approved.of("s/t").unwrap();
        assert_eq!((left.undecided.len(), left.decision), (0, 1));
    }

    #[test]
    fn a_database_of_an_earlier_version_is_read_and_brought_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        drop(database::open(&folder.path().join(FILE_NAME), &MIGRATIONS[..1]).unwrap());
        let peeked = Approved::peek(folder.path(), "s").unwrap();
        assert_eq!(peeked, Remembered::default());
        let mut approved = Approved::open(folder.path()).unwrap();
        decide(&mut approved, "s");
        assert_eq!(approved.last_decision("s").unwrap(), 1);
    }
}
