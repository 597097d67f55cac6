//! The store of a test's servers, where `TOOLSCOUT_TEST_STORE` names a PostgreSQL server, as
//! `scripts/test_over_postgres.sh` does: a database for each data directory, copied from one that has
//! the tables. Without it servers keep everything in their data directory.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;
use toolscout::config::{StoreAddress, StoreSettings};
use toolscout::store::PostgresStore;

/// The address of a PostgreSQL server, without a database.
const VARIABLE: &str = "TOOLSCOUT_TEST_STORE";
/// The database with the tables, which are copied.
const TEMPLATE: &str = "template_of_tests";

/// How long what a server still asks the store is waited for at its end.
const CLOSING: Duration = Duration::from_secs(5);

/// The store of one server, with a runtime of its own: it has to go on while the test blocks.
pub struct Shared {
    pub store: Arc<PostgresStore>,
    runtime: Option<Runtime>,
}

impl Shared {
    /// The store of the servers of this data directory; `None` where they need none.
    pub fn of(data: &Path) -> Option<Self> {
        let settings = settings(&address(data)?);
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let store = PostgresStore::new(&settings, runtime.handle().clone()).expect("a store");
        Some(Shared {
            store,
            runtime: Some(runtime),
        })
    }

    pub fn handle(&self) -> Handle {
        let runtime = self.runtime.as_ref();
        runtime.expect("it is there until the end").handle().clone()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        // The database has connections for some servers only.
        let store = &self.store;
        let closed = async { timeout(CLOSING, store.close()).await };
        let _ = blocking(|| runtime.block_on(closed));
        // A test may not wait here for what still runs.
        runtime.shutdown_background();
    }
}

/// Where the servers of this data directory start: on the runtime of their store, or of the test.
pub fn handle_of(shared: Option<&Shared>) -> Handle {
    shared.map_or_else(Handle::current, Shared::handle)
}

/// Gives the program the store of this data directory, if servers need one.
pub fn configure(command: &mut Command, data: &Path) {
    if let Some(address) = address(data) {
        command.env("TOOLSCOUT_STORE", address);
    }
}

/// Works with the store of a data directory as a process of its own would; `None` without stores.
pub fn with<T: Send>(data: &Path, work: impl FnOnce(&Arc<PostgresStore>) -> T + Send) -> Option<T> {
    let settings = settings(&address(data)?);
    Some(blocking(move || {
        let runtime = Runtime::new().expect("a runtime");
        let store = PostgresStore::new(&settings, runtime.handle().clone()).expect("a store");
        work(&store)
    }))
}

/// The first text that a query of the store of a data directory returns; `None` without stores.
pub fn text(data: &Path, sql: &'static str) -> Option<String> {
    let address = address(data)?;
    Some(on_runtime(async {
        let mut connection = PgConnection::connect(&address).await?;
        sqlx::query_scalar(sql).fetch_one(&mut connection).await
    }))
}

/// Blocks, also in a test that is asynchronous.
pub fn blocking<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"))
}

fn settings(address: &str) -> StoreSettings {
    StoreSettings {
        store: Some(StoreAddress::new(address)),
        ..StoreSettings::default()
    }
}

/// The database of this data directory, made where it is not there yet.
fn address(data: &Path) -> Option<String> {
    let server = std::env::var(VARIABLE).ok()?;
    let path = std::path::absolute(data).expect("a path");
    let hash = blake3::hash(path.as_os_str().as_encoded_bytes()).to_hex();
    let name = format!("of_{}", &hash[..16]);
    on_runtime(create(&server, &name));
    Some(format!("{server}/{name}"))
}

async fn create(server: &str, name: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(&format!("{server}/postgres")).await?;
    let known: Option<String> =
        sqlx::query_scalar("SELECT datname::text FROM pg_database WHERE datname = $1")
            .bind(name)
            .fetch_optional(&mut connection)
            .await?;
    if known.is_none() {
        // The name is made of digits and letters of ours.
        let create = AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        sqlx::raw_sql(create).execute(&mut connection).await?;
    }
    connection.close().await
}

fn on_runtime<T: Send>(work: impl Future<Output = Result<T, sqlx::Error>> + Send) -> T {
    blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime
            .expect("a runtime")
            .block_on(work)
            .expect("the store of tests answers")
    })
}
