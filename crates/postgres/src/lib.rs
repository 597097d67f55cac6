//! The store that several nodes share: catalogs in PostgreSQL, which every node follows.
//!
//! The store is the truth. A node keeps each catalog in its data directory as a catalog of its own, and
//! brings it up to the store's generation by what changed since; searches never ask the store. So a
//! node answers as a single machine would, and losing its folder costs time only.
//!
//! - [`PostgresStore`] is the connection, with time limits on everything; `servers` chooses the server.
//! - `write` commits changes under the lock of the catalog's row; `read` tells what changed since.
//! - [`FollowingStore`] is the [`CatalogStore`](toolscout_state::catalog_writer::CatalogStore) of a node.
//! - `hub` learns of commits: NOTIFY wakes it, and polling makes it sure.
//! - [`SharedEmbedder`] lets a text be embedded once for all nodes.
//! - `keys` has the API keys, which every node follows into a copy.
//! - [`SharedSessions`] has the conversations, and [`SharedApprovals`] the calls that wait for a person.
//! - `memory` has the usage memories, which every node follows too.
//! - `usage` adds up the use of tools on all nodes.
//! - `push` looks for the tools of catalogs that are too large for nodes to hold.
//! - `watch` is what a node follows beside catalogs, and what nodes tell each other.

mod error;
mod migrations;
mod servers;
mod followed_memory;
mod row;
mod enriching;
mod vectors;
mod push;
mod catalogs;
mod hub;
mod write;
mod enrichments;
mod improvements;
mod read;
mod follow;
mod forget;
mod import;
mod export;
mod status;
mod keys;
mod sessions;
mod approvals;
mod feedback;
mod tasks;
mod memory;
mod approved;
mod audit;
mod watch;
mod usage;
mod shared;

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use toolscout_base::config::StoreSettings;
use toolscout_base::regular_file;
use toolscout_state::shared::StoreFigures;

pub use approvals::SharedApprovals;
pub use enrichments::Enriched;
pub use error::StoreError;
pub use export::Exported;
pub use follow::FollowingStore;
pub use hub::FollowedCatalog;
pub use import::{Existing, Imported};
pub use improvements::{OwnContent, StoredImprovement};
pub use migrations::{Migration, Migrations};
pub use sessions::SharedSessions;
pub use status::{CatalogPage, CatalogStatus, NodeStatus, StandbyStatus, StoreStatus};
pub use vectors::SharedEmbedder;

pub use servers::ServerStatus;

use hub::Hub;
use push::PushDown;
use servers::{Server, Servers};
use watch::Watch;

/// Connections of one node; each write and each catalog that catches up takes one for a moment.
const MAX_CONNECTIONS: u32 = StoreFigures::MAX_CONNECTIONS;
/// How long a request waits for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long reading may take before the store counts as away. A large catalog comes in pages.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Begins a transaction that reads one state of the database.
const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
/// How long a write may take in all; the largest body of tools takes some seconds.
const WRITE_LIMIT: Duration = Duration::from_secs(50);

/// The connection to the store.
pub struct PostgresStore {
    /// Connections to the server that takes writes.
    pool: PgPool,
    servers: Servers,
    figures: StoreFigures,
    schema: String,
    memory_days: u32,
    /// As it may be shown.
    address: String,
    /// The cluster's identity, once the schema was found to be as this version knows it.
    cluster: OnceCell<String>,
    node: Node,
    runtime: Handle,
    hub: Hub,
    watch: Watch,
    push: PushDown,
}

/// This process among the nodes.
struct Node {
    /// Random, of this process.
    instance: String,
    /// For people.
    name: String,
}

impl PostgresStore {
    /// Reads the settings. Connects when it is first asked for something.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for an address or a password file that cannot be used.
    pub fn new(settings: &StoreSettings, runtime: Handle) -> Result<Arc<Self>, StoreError> {
        let figures = StoreFigures::default();
        let servers = {
            // Their pools start tasks of their own.
            let _entered = runtime.enter();
            Servers::new(
                servers_of(settings)?,
                settings.store_reads.unwrap_or_default(),
                figures.failovers.clone(),
            )
        };
        // Its text has no password, so it may be logged.
        let address = settings.store.as_ref().map(ToString::to_string);
        Ok(Arc::new(PostgresStore {
            pool: servers.pool().clone(),
            servers,
            figures,
            schema: settings.schema().to_owned(),
            memory_days: settings.memory_days(),
            address: address.unwrap_or_default(),
            cluster: OnceCell::new(),
            node: Node {
                instance: uuid::Uuid::new_v4().to_string(),
                name: settings.node.clone().unwrap_or_else(machine_name),
            },
            runtime,
            hub: Hub::default(),
            watch: Watch::default(),
            push: PushDown::new(settings.above(), settings.candidates()),
        }))
    }

    /// The address, without a password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Brings the schema up to this version, once in the life of this value, and returns the identity
    /// of the cluster.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for a database that this version cannot use.
    pub async fn prepare(&self) -> Result<&str, StoreError> {
        let prepare = || async {
            let mut connection = self.connect_alone().await?;
            migrations::run(&mut connection, &self.schema).await?;
            let identity: String = sqlx::query_scalar("SELECT identity FROM cluster")
                .fetch_one(&mut connection)
                .await?;
            // Searches need no writes, so this is no reason not to start.
            if let Some(problem) = status::write_problem(&mut connection).await? {
                tracing::warn!(
                    problem,
                    "searches work, and nothing can be written to the store"
                );
            }
            let _ = connection.close().await;
            Ok::<_, StoreError>(identity)
        };
        let prepared = self
            .cluster
            .get_or_try_init(|| within(WRITE_LIMIT, prepare()));
        Ok(prepared.await?)
    }

    /// The migrations of the schema, without running any.
    ///
    /// # Errors
    /// As [`PostgresStore::prepare`].
    pub async fn migrations(&self) -> Result<Migrations, StoreError> {
        let read = async {
            let mut connection = self.connect_alone().await?;
            migrations::read(&mut connection, &self.schema).await
        };
        within(READ_LIMIT, read).await
    }

    /// Why the store counts as away, once it has not answered for some seconds.
    pub fn problem(&self) -> Option<String> {
        self.hub.problem()
    }

    /// Waits for the store on a thread that may block.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A connection of its own. Unlike the pool it tells at once what is wrong.
    async fn connect_alone(&self) -> Result<PgConnection, StoreError> {
        self.servers.ensure().await?;
        let options = self.servers.options();
        match timeout(CONNECT_LIMIT, PgConnection::connect_with(options)).await {
            Ok(connected) => connected.map_err(|error| StoreError::from(error).at(&self.address)),
            Err(_) => Err(StoreError::no_answer(CONNECT_LIMIT).at(&self.address)),
        }
    }

    /// Work that the store has to answer within a time.
    async fn ask<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let _asking = self.figures.asking();
        self.ready(limit).await?;
        let answer = within(limit, work).await;
        self.note(&answer);
        answer
    }

    /// Returns once the store can be asked: the server for writes is known, and its schema is as this
    /// version needs it.
    async fn ready(&self, limit: Duration) -> Result<(), StoreError> {
        let ready = async {
            self.servers.ensure().await?;
            self.prepare().await.map(drop)
        };
        let ready = within(limit, ready).await;
        if let Err(error) = &ready {
            self.note_failure(error);
        }
        ready
    }

    /// Notes whether the store answers.
    fn note<T>(&self, answer: &Result<T, StoreError>) {
        match answer {
            Ok(_) => self.hub.note_answer(),
            Err(error) => self.note_failure(error),
        }
    }

    fn note_failure(&self, error: &StoreError) {
        // These two errors come from a store that answers.
        if !matches!(error, StoreError::Deleted | StoreError::Catalog(_)) {
            self.figures.failures.inc();
            self.servers.suspect(error);
        }
    }
}

/// A connection that is cut gives no error, so everything has a limit of its own.
async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(limit, work).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::no_answer(limit)),
    }
}

fn servers_of(settings: &StoreSettings) -> Result<Vec<Server>, StoreError> {
    let Some(address) = &settings.store else {
        return Err(StoreError::Refused(
            "no store is named; set --store or TOOLSCOUT_STORE".to_owned(),
        ));
    };
    // The parser's own error is not shown: it may repeat a part of the address, even the password.
    let unusable = format!("the store {address} is not an address of PostgreSQL");
    toolscout_base::tls::provide();
    let Some(named) = address.servers() else {
        return Err(StoreError::Refused(unusable));
    };
    let mut servers = Vec::new();
    for server in named {
        let Ok(options) = PgConnectOptions::from_url(&server.url) else {
            return Err(StoreError::Refused(unusable));
        };
        servers.push(Server {
            name: server.name,
            options: connect_options(options, settings)?,
        });
    }
    Ok(servers)
}

fn connect_options(
    options: PgConnectOptions,
    settings: &StoreSettings,
) -> Result<PgConnectOptions, StoreError> {
    // With these limits PostgreSQL ends what a hanging or dead node has started, and frees its locks.
    let mut options = options
        .application_name("toolscout")
        .disable_statement_logging()
        .options([
            ("search_path", settings.schema()),
            ("default_transaction_isolation", "read committed"),
            ("statement_timeout", "30s"),
            ("lock_timeout", "20s"),
            ("idle_in_transaction_session_timeout", "60s"),
        ]);
    if let Some(path) = &settings.store_password_file {
        let text = match regular_file::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let path = path.display();
                let reason = format!("the password file {path}: {error}");
                return Err(StoreError::Refused(reason));
            }
        };
        // Editors end a file with a line break; spaces may be part of a password.
        options = options.password(text.trim_end_matches(['\r', '\n']));
    }
    Ok(options)
}

fn machine_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

impl PostgresStore {
    /// What was counted so far.
    pub fn figures(&self) -> &StoreFigures {
        &self.figures
    }

    /// Brings the gauges up to this moment.
    pub fn measure(&self) {
        let figures = &self.figures;
        let (connections, idle) = self.servers.connections();
        figures.connections.set(connections.into());
        figures.idle_connections.set(idle as i64);
        figures.away.set(self.problem().is_some().into());
        let lag = self.hub.lag();
        figures.behind.set(lag.behind as i64);
        figures.lag.set(lag.most as i64);
    }
}
