//! What `toolscout store status` shows.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sqlx::{PgConnection, Row};

use super::error::StoreError;
use super::hub::OPEN;
use super::servers::ServerStatus;
use super::{PostgresStore, READ_LIMIT};

/// Tools of a catalog whose bytes are counted.
const MEASURED_TOOLS: i64 = 1000;
/// Most nodes that are shown.
const MOST_NODES: i64 = 1000;

/// The store and its nodes.
#[derive(Debug, Serialize)]
pub struct StoreStatus {
    /// The address, without a password.
    pub store: String,
    /// The version of PostgreSQL.
    pub server: String,
    /// Why nothing can be written now, as far as the server tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_problem: Option<String>,
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
    /// How many catalogs there are.
    pub catalogs_total: i64,
    /// The tools of all of them.
    pub tools_total: i64,
    /// A page of the catalogs, by name.
    pub catalogs: Vec<CatalogStatus>,
    /// The last name of the page, where there are more.
    pub next_after: Option<String>,
    /// The nodes that were seen in the last minutes.
    pub nodes: Vec<NodeStatus>,
}

/// Which catalogs are shown.
#[derive(Clone, Debug)]
pub struct CatalogPage {
    /// Those after this name.
    pub after: Option<String>,
    /// As many at most.
    pub limit: u16,
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
    /// Its name.
    pub name: String,
    /// Its last change.
    pub generation: i64,
    /// Its tools.
    pub tools: i64,
    /// Bytes of its tools' definitions; of more than a thousand tools about, by a thousand of them.
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

impl PostgresStore {
    /// A page of the catalogs, and how far every node is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn status(&self, page: &CatalogPage) -> Result<StoreStatus, StoreError> {
        let migrations = self.migrations().await?;
        if !migrations.open.is_empty() {
            let schema = &self.schema;
            return Err(StoreError::Refused(format!(
                "the schema {schema:?} of the store is not as this version needs it; run `toolscout store migrate`, or start a \
                 server"
            )));
        }
        self.ask(READ_LIMIT, self.read_status(page)).await
    }

    async fn read_status(&self, page: &CatalogPage) -> Result<StoreStatus, StoreError> {
        let about = sqlx::query(
            "SELECT current_setting('server_version') AS server,
                    coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes,
                    pg_database_size(current_database()) AS database_bytes
             FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace($1)",
        )
        .bind(&self.schema)
        .fetch_one(&self.pool)
        .await?;
        let listed = self.read_catalogs(page).await?;
        Ok(StoreStatus {
            store: self.address.clone(),
            server: about.try_get("server")?,
            write_problem: write_problem(&mut *self.pool.acquire().await?).await?,
            servers: self.servers.status().await,
            standbys: self.read_standbys().await?,
            database_bytes: about.try_get("database_bytes")?,
            schema: self.schema.clone(),
            bytes: about.try_get("bytes")?,
            nodes: self.read_nodes().await?,
            catalogs_total: listed.total,
            tools_total: listed.tools,
            next_after: listed.next_after,
            catalogs: listed.catalogs,
        })
    }

    async fn read_catalogs(&self, page: &CatalogPage) -> Result<ListedCatalogs, StoreError> {
        let rows = sqlx::query(
            "SELECT counted.total, counted.tools AS all_tools, page.*
             FROM (SELECT count(*) AS total, coalesce(sum(tools), 0)::bigint AS tools FROM catalogs) AS counted
             LEFT JOIN (
                 SELECT name, generation, catalogs.tools, is_pushed_down, pushed_catalogs.tools AS prepared_tools, (
                     SELECT coalesce(avg(octet_length(json)) * catalogs.tools, 0)::bigint
                     FROM (SELECT json FROM tools WHERE catalog = catalogs.id AND json IS NOT NULL LIMIT $3) AS measured
                 ) AS bytes
                 FROM catalogs LEFT JOIN pushed_catalogs ON catalog = id WHERE $1::text IS NULL OR name > $1 ORDER BY name LIMIT $2
             ) AS page ON true
             ORDER BY page.name",
        )
        .bind(&page.after)
        // One more than the page has, to know whether there are more.
        .bind(i64::from(page.limit) + 1)
        .bind(MEASURED_TOOLS)
        .fetch_all(&self.pool)
        .await?;
        let mut listed = ListedCatalogs::default();
        for row in &rows {
            (listed.total, listed.tools) = (row.try_get("total")?, row.try_get("all_tools")?);
            // NULL if the page is empty.
            if let Some(name) = row.try_get("name")? {
                listed.catalogs.push(CatalogStatus {
                    name,
                    generation: row.try_get("generation")?,
                    tools: row.try_get("tools")?,
                    bytes: row.try_get("bytes")?,
                    is_pushed_down: row.try_get("is_pushed_down")?,
                    prepared_tools: row.try_get("prepared_tools")?,
                });
            }
        }
        if listed.catalogs.len() > usize::from(page.limit) {
            listed.catalogs.truncate(page.limit.into());
            listed.next_after = listed.catalogs.last().map(|last| last.name.clone());
        }
        Ok(listed)
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
        let mut standbys = Vec::with_capacity(rows.len());
        for row in rows {
            let name: Option<String> = row.try_get("application_name")?;
            standbys.push(StandbyStatus {
                name: name.unwrap_or_default(),
                address: row.try_get("address")?,
                state: row.try_get("state")?,
                sync: row.try_get("sync_state")?,
                lag_bytes: row.try_get("lag_bytes")?,
            });
        }
        Ok(standbys)
    }

    async fn read_nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        let rows = sqlx::query(
            "SELECT name, version, followed,
                    extract(epoch FROM now() - seen_at)::double precision AS seen_s
             FROM nodes WHERE seen_at > now() - interval '10 minutes' ORDER BY name, started_at LIMIT $1",
        )
        .bind(MOST_NODES)
        .fetch_all(&self.pool)
        .await?;
        let mut nodes = Vec::with_capacity(rows.len());
        for row in rows {
            let followed: String = row.try_get("followed")?;
            let followed: Followed = serde_json::from_str(&followed).unwrap_or_default();
            let node = NodeStatus {
                name: row.try_get("name")?,
                version: row.try_get("version")?,
                seen_s: row.try_get("seen_s")?,
                open: followed.get(OPEN).copied().unwrap_or_default(),
                lag: BTreeMap::new(),
            };
            nodes.push((node, followed));
        }
        let told = nodes.iter().flat_map(|(_, followed)| followed.keys());
        let heads = self.read_heads(told).await?;
        let mut with_lag = Vec::with_capacity(nodes.len());
        for (node, followed) in nodes {
            let lag = lag(&followed, &heads);
            with_lag.push(NodeStatus { lag, ..node });
        }
        Ok(with_lag)
    }

    /// The name and the generation of these catalogs, by their numbers.
    async fn read_heads(&self, told: impl Iterator<Item = &String>) -> Result<Heads, StoreError> {
        let ids: BTreeSet<i64> = told.filter_map(|id| id.parse().ok()).collect();
        let heads: Vec<(i64, String, i64)> =
            sqlx::query_as("SELECT id, name, generation FROM catalogs WHERE id = ANY($1)")
                .bind(Vec::from_iter(ids))
                .fetch_all(&self.pool)
                .await?;
        let mut by_id = Heads::new();
        for (id, name, generation) in heads {
            by_id.insert(id, (name, generation));
        }
        Ok(by_id)
    }
}

/// Why nothing can be written on this connection, as far as the server tells.
///
/// # Errors
/// [`StoreError`].
pub(super) async fn write_problem(
    connection: &mut PgConnection,
) -> Result<Option<String>, StoreError> {
    let row = sqlx::query(
        "SELECT pg_is_in_recovery() AS is_standby,
                current_setting('transaction_read_only')::boolean AS is_read_only,
                NOT has_table_privilege('catalogs', 'UPDATE') AS has_no_right,
                current_user::text AS who,
                current_setting('synchronous_standby_names') <> ''
                    AND current_setting('synchronous_commit') NOT IN ('off', 'local')
                    AND NOT EXISTS (SELECT FROM pg_stat_replication) AS waits",
    )
    .fetch_one(connection)
    .await?;
    // The order matters: a standby is read-only too.
    let problem = if row.try_get("is_standby")? {
        "this server is a standby, which only reads; name the primary in the address".to_owned()
    } else if row.try_get("is_read_only")? {
        "the database only reads (default_transaction_read_only); look at its disk and its settings"
            .to_owned()
    } else if row.try_get("has_no_right")? {
        let who: String = row.try_get("who")?;
        format!(
            "the user {who} may not write to the tables; give it the rights, or name another user"
        )
    } else if row.try_get("waits")? {
        "commits wait for a synchronous standby, and none is connected; start one, or take it out of \
         synchronous_standby_names"
            .to_owned()
    } else {
        return Ok(None);
    };
    Ok(Some(problem))
}

/// By the number of a catalog as text, the generation that a node has of it.
type Followed = BTreeMap<String, i64>;

/// By the number of a catalog, its name and its generation.
type Heads = BTreeMap<i64, (String, i64)>;

/// A page of the catalogs, and what all of them have.
#[derive(Default)]
struct ListedCatalogs {
    total: i64,
    tools: i64,
    catalogs: Vec<CatalogStatus>,
    next_after: Option<String>,
}

/// By how many generations a node is behind, by the name of each catalog that it told of.
fn lag(followed: &Followed, heads: &Heads) -> BTreeMap<String, i64> {
    let mut lags = BTreeMap::new();
    for (id, has) in followed {
        // `OPEN` is among the keys and is not a number.
        let Ok(id) = id.parse() else { continue };
        // A catalog that is missing here was deleted meanwhile.
        if let Some((name, generation)) = heads.get(&id) {
            // The difference is negative if the store was restored from an older backup.
            lags.insert(name.clone(), (generation - has).max(0));
        }
    }
    lags
}
