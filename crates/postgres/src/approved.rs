//! Approved definitions of MCP tools in the store: all nodes that connect to a server compare its tools
//! with the same ones, and a person decides once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use toolscout_index::{Tool, ToolId};

use super::error::StoreError;
use super::hub::FollowedCatalog;
use super::row::text;
use super::{BEGIN_READING, PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_state::approved::{
    ApprovedError, ApprovedPlace, ApprovedTable, BlockedBy, ChangeKind, Record, Remembered,
    ToolChange, Undecided, Update, class_of, id_of, rank,
};

/// The approved definitions of a catalog of the store.
struct SharedApproved {
    store: Arc<PostgresStore>,
    catalog: i64,
}

impl PostgresStore {
    /// The approved definitions of a catalog.
    pub fn approved(self: &Arc<Self>, catalog: &FollowedCatalog) -> ApprovedPlace {
        ApprovedPlace::Table(Arc::new(SharedApproved {
            store: Arc::clone(self),
            catalog: catalog.id,
        }))
    }
}

impl SharedApproved {
    fn ask<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, ApprovedError> {
        let asked = self.store.runtime.block_on(self.store.ask(limit, work));
        asked.map_err(unavailable)
    }

    async fn read(
        &self,
        connection: &mut PgConnection,
        server: &str,
    ) -> Result<Remembered, StoreError> {
        let number: Option<i64> = sqlx::query_scalar(
            "SELECT number FROM approved_decisions WHERE catalog = $1 AND server = $2",
        )
        .bind(self.catalog)
        .bind(text(server))
        .fetch_optional(&mut *connection)
        .await?;
        let rows = sqlx::query(
            "SELECT id, definition, class FROM approved_definitions WHERE catalog = $1 AND server = $2",
        )
        .bind(self.catalog)
        .bind(text(server))
        .fetch_all(&mut *connection)
        .await?;
        let mut remembered = Remembered {
            decision: number.unwrap_or_default(),
            ..Remembered::default()
        };
        for row in &rows {
            let id: String = row.try_get("id")?;
            if let Some(id) = id_of(server, &id) {
                remembered.records.insert(id, record(row)?);
            }
        }
        let rows = sqlx::query("SELECT * FROM approved_changes WHERE catalog = $1 AND server = $2")
            .bind(self.catalog)
            .bind(text(server))
            .fetch_all(connection)
            .await?;
        // Read in the same transaction as the records, so that both show the same moment.
        remembered.undecided = changes(&rows)?;
        Ok(remembered)
    }

    /// Locks the decisions about a server, and returns the number of the last one.
    async fn lock(&self, connection: &mut PgConnection, server: &str) -> Result<i64, StoreError> {
        sqlx::query(
            "INSERT INTO approved_decisions (catalog, server, number)
             SELECT id, $2, 0 FROM catalogs WHERE id = $1 ON CONFLICT DO NOTHING",
        )
        .bind(self.catalog)
        .bind(text(server))
        .execute(&mut *connection)
        .await?;
        let locked = sqlx::query_scalar(
            "SELECT number FROM approved_decisions WHERE catalog = $1 AND server = $2 FOR UPDATE",
        )
        .bind(self.catalog)
        .bind(text(server))
        .fetch_optional(connection)
        .await?;
        locked.ok_or(StoreError::Deleted)
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        server: &str,
        update: &Update,
    ) -> Result<(), StoreError> {
        // Deletes come first, so that they cannot remove what is stored below.
        for (delete, ids) in [
            (
                "DELETE FROM approved_definitions WHERE catalog = $1 AND server = $2 AND id = ANY($3)",
                &update.forgotten,
            ),
            (
                "DELETE FROM approved_changes WHERE catalog = $1 AND server = $2 AND id = ANY($3)",
                &update.settled,
            ),
        ] {
            let ids: Vec<&str> = ids.iter().map(ToolId::as_str).collect();
            sqlx::query(delete)
                .bind(self.catalog)
                .bind(text(server))
                .bind(ids)
                .execute(&mut *connection)
                .await?;
        }
        let (mut ids, mut definitions, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        for (id, record) in &update.records {
            ids.push(id.as_str());
            definitions.push(record.definition.as_bytes().as_slice());
            classes.push(rank(record.class));
        }
        sqlx::query(
            "INSERT INTO approved_definitions (catalog, server, id, definition, class)
             SELECT $1, $2, * FROM unnest($3::text[], $4::bytea[], $5::bigint[])
             ON CONFLICT (catalog, server, id) DO UPDATE
             SET definition = excluded.definition, class = excluded.class",
        )
        .bind(self.catalog)
        .bind(text(server))
        .bind(ids)
        .bind(definitions)
        .bind(classes)
        .execute(&mut *connection)
        .await?;
        self.write_changes(connection, server, &update.undecided)
            .await
    }

    async fn write_changes(
        &self,
        connection: &mut PgConnection,
        server: &str,
        undecided: &Undecided,
    ) -> Result<(), StoreError> {
        for (id, change) in undecided {
            sqlx::query(
                "INSERT INTO approved_changes
                     (catalog, server, id, kind, approved, offered, blocked_by, since_ms)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
                 ON CONFLICT (catalog, server, id) DO UPDATE
                 SET kind = $4, approved = $5, offered = $6, blocked_by = $7, since_ms = $8",
            )
            .bind(self.catalog)
            .bind(text(server))
            .bind(id.as_str())
            .bind(change.kind.name())
            .bind(json(change.approved.as_deref()))
            .bind(json(change.offered.as_deref()))
            .bind(change.blocked_by.map(BlockedBy::name))
            .bind(change.since_ms)
            .execute(&mut *connection)
            .await?;
        }
        Ok(())
    }
}

impl ApprovedTable for SharedApproved {
    fn of(&self, server: &str) -> Result<Remembered, ApprovedError> {
        self.ask(READ_LIMIT, async {
            let mut transaction = self.store.pool.begin_with(BEGIN_READING).await?;
            self.read(&mut transaction, server).await
        })
    }

    fn undecided(&self) -> Result<Undecided, ApprovedError> {
        self.ask(READ_LIMIT, async {
            let rows = sqlx::query("SELECT * FROM approved_changes WHERE catalog = $1")
                .bind(self.catalog)
                .fetch_all(&self.store.pool)
                .await?;
            changes(&rows)
        })
    }

    fn last_decision(&self, server: &str) -> Result<i64, ApprovedError> {
        self.ask(READ_LIMIT, async {
            let number: Option<i64> = sqlx::query_scalar(
                "SELECT number FROM approved_decisions WHERE catalog = $1 AND server = $2",
            )
            .bind(self.catalog)
            .bind(text(server))
            .fetch_optional(&self.store.pool)
            .await?;
            Ok(number.unwrap_or_default())
        })
    }

    fn remember(
        &self,
        server: &str,
        update: &Update,
        decision: i64,
    ) -> Result<bool, ApprovedError> {
        self.ask(WRITE_LIMIT, async {
            let mut transaction = self.store.pool.begin().await?;
            // A person has decided since the list was compared, and writing it would undo that.
            if self.lock(&mut transaction, server).await? != decision {
                return Ok(false);
            }
            self.write(&mut transaction, server, update).await?;
            transaction.commit().await?;
            Ok(true)
        })
    }

    fn review(
        &self,
        servers: &BTreeSet<String>,
        judge: &mut dyn FnMut(&str, Remembered) -> Option<Update>,
    ) -> Result<(), ApprovedError> {
        self.ask(WRITE_LIMIT, async {
            let mut transaction = self.store.pool.begin().await?;
            for server in servers {
                let number = self.lock(&mut transaction, server).await? + 1;
                let remembered = self.read(&mut transaction, server).await?;
                // Dropping the transaction undoes the servers before, so that all of them are reviewed
                // or none.
                let Some(update) = judge(server, remembered) else {
                    return Ok(());
                };
                self.write(&mut transaction, server, &update).await?;
                sqlx::query(
                    "UPDATE approved_decisions SET number = $3 WHERE catalog = $1 AND server = $2",
                )
                .bind(self.catalog)
                .bind(text(server))
                .bind(number)
                .execute(&mut *transaction)
                .await?;
            }
            Ok(transaction.commit().await?)
        })
    }
}

fn unavailable(error: StoreError) -> ApprovedError {
    ApprovedError::Unavailable {
        reason: error.to_string(),
    }
}

fn json(tool: Option<&Tool>) -> Option<String> {
    serde_json::to_string(tool?).ok()
}

fn record(row: &PgRow) -> Result<Record, StoreError> {
    let definition: Vec<u8> = row.try_get("definition")?;
    // A digest of another length matches no tool.
    let definition = <[u8; 32]>::try_from(definition).unwrap_or_default();
    Ok(Record {
        definition: definition.into(),
        class: class_of(row.try_get("class")?),
    })
}

fn changes(rows: &[PgRow]) -> Result<Undecided, StoreError> {
    let mut undecided = Undecided::new();
    for row in rows {
        let (server, id): (String, String) = (row.try_get("server")?, row.try_get("id")?);
        let (kind, blocked_by): (String, Option<String>) =
            (row.try_get("kind")?, row.try_get("blocked_by")?);
        let change = ToolChange {
            kind: ChangeKind::from_name(&kind),
            approved: tool(row, "approved")?,
            offered: tool(row, "offered")?,
            blocked_by: blocked_by.as_deref().map(BlockedBy::from_name),
            since_ms: row.try_get("since_ms")?,
        };
        if let Some(id) = id_of(&server, &id) {
            undecided.insert(id, change);
        }
    }
    Ok(undecided)
}

/// A definition; one of a version that cannot be read any more is one that is not known.
fn tool(row: &PgRow, column: &str) -> Result<Option<Arc<Tool>>, StoreError> {
    let json: Option<String> = row.try_get(column)?;
    Ok(json.and_then(|json| serde_json::from_str(&json).ok().map(Arc::new)))
}
