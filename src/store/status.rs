//! What `toolscout store status` shows.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::Row;

use super::error::StoreError;
use super::hub::OPEN;
use super::servers::ServerStatus;
use super::{READ_LIMIT, SharedStore};

/// The store and its nodes.
#[derive(Debug, Serialize)]
pub struct StoreStatus {
    /// The address, without a password.
    pub store: String,
    /// The version of PostgreSQL.
    pub server: String,
    /// The servers of the address.
    pub servers: Vec<ServerStatus>,
    /// The standbys that the primary knows, as far as its user may see them.
    pub standbys: Vec<StandbyStatus>,
    /// The schema of the tables.
    pub schema: String,
    /// Bytes of all its tables and indexes.
    pub bytes: i64,
    /// Bytes of the whole database.
    pub database_bytes: i64,
    /// The catalogs, by name.
    pub catalogs: Vec<CatalogStatus>,
    /// The nodes that were seen in the last minutes.
    pub nodes: Vec<NodeStatus>,
}

/// A standby.
#[derive(Debug, Serialize)]
pub struct StandbyStatus {
    /// The name that it gives itself.
    pub name: String,
    /// Its address, where the user of the store may see it.
    pub address: Option<String>,
    /// `streaming` where it follows.
    pub state: Option<String>,
    /// `sync` where a commit waits for it.
    pub sync: Option<String>,
    /// Bytes of the log that it has not replayed.
    pub lag_bytes: Option<i64>,
}

/// A catalog of the store.
#[derive(Debug, Serialize)]
pub struct CatalogStatus {
    #[serde(skip)]
    id: i64,
    /// Its name.
    pub name: String,
    /// Its last change.
    pub generation: i64,
    /// Its tools.
    pub tools: i64,
    /// Bytes of its tools' definitions.
    pub bytes: i64,
    /// True where its tools are looked for in the store, and not on nodes.
    pub is_pushed_down: bool,
    /// How many of its tools the store can look for; absent where nodes have copies of it for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_tools: Option<i64>,
}

/// A node.
#[derive(Debug, Serialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The version of the program.
    pub version: String,
    /// Seconds since it was last seen.
    pub seen_s: f64,
    /// How many catalogs it had open when it was seen.
    pub open: i64,
    /// By how many generations its open catalogs were behind then, by name. Where more than a hundred
    /// were open, those that were behind.
    pub lag: BTreeMap<String, i64>,
}

impl SharedStore {
    /// The catalogs, and how far every node is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn status(&self) -> Result<StoreStatus, StoreError> {
        let migrations = self.migrations().await?;
        if !migrations.open.is_empty() {
            let schema = &self.schema;
            return Err(StoreError::Refused(format!(
                "the schema {schema:?} of the store is not as this version needs it; run `toolscout store migrate`, or start a \
                 server"
            )));
        }
        self.ask(READ_LIMIT, self.read_status()).await
    }

    async fn read_status(&self) -> Result<StoreStatus, StoreError> {
        let about = sqlx::query(
            "SELECT current_setting('server_version') AS server,
                    coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes,
                    pg_database_size(current_database()) AS database_bytes
             FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace($1)",
        )
        .bind(&self.schema)
        .fetch_one(&self.pool)
        .await?;
        let catalogs = self.read_catalogs().await?;
        Ok(StoreStatus {
            store: self.address.clone(),
            server: about.try_get("server")?,
            servers: self.servers.status().await,
            standbys: self.read_standbys().await?,
            database_bytes: about.try_get("database_bytes")?,
            schema: self.schema.clone(),
            bytes: about.try_get("bytes")?,
            nodes: self.read_nodes(&catalogs).await?,
            catalogs,
        })
    }

    async fn read_catalogs(&self) -> Result<Vec<CatalogStatus>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, name, generation, catalogs.tools, is_pushed_down, pushed_catalogs.tools AS prepared_tools,
                    (SELECT coalesce(sum(length(json)), 0)::bigint FROM tools WHERE catalog = catalogs.id) AS bytes
             FROM catalogs LEFT JOIN pushed_catalogs ON catalog = id ORDER BY name",
        )
        .fetch_all(&self.pool)
        .await?;
        let read = |row: &sqlx::postgres::PgRow| {
            Ok(CatalogStatus {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                generation: row.try_get("generation")?,
                tools: row.try_get("tools")?,
                bytes: row.try_get("bytes")?,
                is_pushed_down: row.try_get("is_pushed_down")?,
                prepared_tools: row.try_get("prepared_tools")?,
            })
        };
        rows.iter().map(read).collect()
    }

    async fn read_standbys(&self) -> Result<Vec<StandbyStatus>, StoreError> {
        let rows = sqlx::query(
            "SELECT application_name, host(client_addr) AS address, state, sync_state,
                    pg_wal_lsn_diff(
                        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END,
                        replay_lsn
                    )::bigint AS lag_bytes
             FROM pg_stat_replication ORDER BY application_name, address",
        )
        .fetch_all(&self.pool)
        .await?;
        let read = |row: &sqlx::postgres::PgRow| {
            let name: Option<String> = row.try_get("application_name")?;
            Ok(StandbyStatus {
                name: name.unwrap_or_default(),
                address: row.try_get("address")?,
                state: row.try_get("state")?,
                sync: row.try_get("sync_state")?,
                lag_bytes: row.try_get("lag_bytes")?,
            })
        };
        rows.iter().map(read).collect()
    }

    async fn read_nodes(&self, catalogs: &[CatalogStatus]) -> Result<Vec<NodeStatus>, StoreError> {
        let rows = sqlx::query(
            "SELECT name, version, followed,
                    extract(epoch FROM now() - seen_at)::double precision AS seen_s
             FROM nodes ORDER BY name, started_at",
        )
        .fetch_all(&self.pool)
        .await?;
        let mut nodes = Vec::with_capacity(rows.len());
        for row in rows {
            let followed: String = row.try_get("followed")?;
            let followed: BTreeMap<String, i64> =
                serde_json::from_str(&followed).unwrap_or_default();
            let lag = catalogs.iter().filter_map(|catalog| {
                let generation = followed.get(&catalog.id.to_string())?;
                Some((
                    catalog.name.clone(),
                    (catalog.generation - generation).max(0),
                ))
            });
            nodes.push(NodeStatus {
                name: row.try_get("name")?,
                version: row.try_get("version")?,
                seen_s: row.try_get("seen_s")?,
                open: followed.get(OPEN).copied().unwrap_or_default(),
                lag: lag.collect(),
            });
        }
        Ok(nodes)
    }
}
