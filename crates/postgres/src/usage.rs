//! The use of tools on all nodes. A node sends the rows of its record that have changed every few seconds,
//! and replaces what the store has of them; answers add up the rows of all nodes.

mod put;
mod read;
mod tidy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolscout_gate::usage::sharing::{LocalRecord, SharedAs, Sharing, UnsentRows};
use toolscout_gate::usage::{UsageDatabase, UsageError};

use super::error::StoreError;
use super::row::{text, texts};
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};

/// How often changed rows are sent.
const SEND_EVERY: Duration = Duration::from_secs(5);
/// Rows of a kind in a transaction.
const PAGE: usize = 1000;
/// Most transactions at a time; the rest follows with the next look.
const MAX_PAGES: usize = 100;
/// How often what is too old is looked for.
const TIDY_EVERY: Duration = Duration::from_secs(3600);

/// The record of this node. Clones share it.
#[derive(Clone)]
pub(super) struct OwnRecord(Arc<Mutex<OpenRecord>>);

struct OpenRecord {
    local: LocalRecord,
    database: Option<UsageDatabase>,
    tidied: Option<Instant>,
}

/// What a look at the record finds.
struct Look {
    sharing: Sharing,
    days: BTreeSet<i64>,
    /// Catalogs with rows that were not sent.
    unsent: Vec<String>,
    shared: BTreeMap<String, SharedAs>,
}

impl OwnRecord {
    pub(super) fn new(local: LocalRecord) -> Self {
        OwnRecord(Arc::new(Mutex::new(OpenRecord {
            local,
            database: None,
            tidied: None,
        })))
    }

    fn local(&self) -> LocalRecord {
        self.0.lock().local.clone()
    }

    /// Works with the database on a thread that may block.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut UsageDatabase) -> Result<T, UsageError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let record = Arc::clone(&self.0);
        let working = tokio::task::spawn_blocking(move || {
            let mut record = record.lock();
            let mut database = match record.database.take() {
                Some(database) => database,
                None => UsageDatabase::open(&record.local.data)?,
            };
            let done = work(&mut database);
            record.database = Some(database);
            done
        });
        match working.await {
            Ok(done) => done.map_err(|error: UsageError| StoreError::Refused(error.to_string())),
            Err(error) => Err(StoreError::Refused(error.to_string())),
        }
    }

    /// Whether it is time to look for what is too old.
    fn is_untidy(&self) -> bool {
        let tidied = self.0.lock().tidied;
        tidied.is_none_or(|tidied| tidied.elapsed() >= TIDY_EVERY)
    }

    fn set_tidied(&self) {
        self.0.lock().tidied = Some(Instant::now());
    }
}

impl PostgresStore {
    /// Sends the record of this node, from time to time until [`PostgresStore::close`].
    pub(super) fn send_usage(self: &Arc<Self>, local: LocalRecord) {
        let (store, stop) = (Arc::clone(self), self.stop_token());
        let record = OwnRecord::new(local);
        self.runtime.spawn(async move {
            let sending = async {
                loop {
                    tokio::time::sleep(SEND_EVERY).await;
                    let sent = store.send_usage_now(&record).await;
                    store.report("use of tools", sent);
                }
            };
            stop.run_until_cancelled(sending).await
        });
    }

    /// Sends the rows that have changed, and removes what is too old.
    async fn send_usage_now(&self, record: &OwnRecord) -> Result<(), StoreError> {
        self.ready(READ_LIMIT).await?;
        let store = self.prepare().await?.to_owned();
        let with_missed = record.local().stores_queries;
        let look = record.with(move |database| {
            Ok(Look {
                sharing: database.share_with(&store)?,
                days: database.days(0)?,
                unsent: database.unsent_catalogs(with_missed)?,
                shared: database.shared_catalogs()?,
            })
        });
        let look = look.await?;
        let node = self.usage_node(record, &look).await?;
        self.send_catalogs(record, node, look).await?;
        self.remove_gone_usage().await?;
        if record.is_untidy() {
            self.remove_old_usage(record, node).await?;
            record.set_tidied();
        }
        Ok(())
    }

    /// The number of this node's record in the store.
    async fn usage_node(&self, record: &OwnRecord, look: &Look) -> Result<i32, StoreError> {
        let days: Vec<i32> = look.days.iter().map(|day| *day as i32).collect();
        let read = async {
            let select = "SELECT node, sent, days = $2 FROM usage_nodes WHERE record = $1";
            let known: Option<(i32, i64, bool)> = sqlx::query_as(select)
                .bind(&look.sharing.record)
                .bind(&days)
                .fetch_optional(&self.pool)
                .await?;
            // Most of the time nothing has to be written.
            if let Some((node, sent, true)) = known {
                return Ok((node, sent));
            }
            let insert = "INSERT INTO usage_nodes (record, name, days) VALUES ($1, $2, $3)
                 ON CONFLICT (record) DO UPDATE SET name = $2, days = $3 RETURNING node, sent";
            let written = sqlx::query_as(insert)
                .bind(&look.sharing.record)
                .bind(text(&self.node.name))
                .bind(&days)
                .fetch_one(&self.pool)
                .await?;
            Ok(written)
        };
        let (node, sent) = self.ask(WRITE_LIMIT, read).await?;
        // An older state of the store was put back, or a standby was promoted that lacks rows.
        if sent < look.sharing.sent {
            record.with(|database| database.send_again()).await?;
        }
        Ok(node)
    }

    /// Sends what was not sent, catalog by catalog.
    async fn send_catalogs(
        &self,
        record: &OwnRecord,
        node: i32,
        look: Look,
    ) -> Result<(), StoreError> {
        let mut names: BTreeSet<String> = look.unsent.iter().cloned().collect();
        names.extend(look.shared.keys().cloned());
        let present = self.usage_catalogs(&names).await?;
        let mut pages = 0;
        for name in names {
            let known = look.shared.get(&name).copied();
            let Some(&now) = present.get(&name) else {
                // One that was never there may still come, and its rows wait for it.
                if known.is_some() {
                    self.forget_own_usage(record, &name).await?;
                }
                continue;
            };
            match known {
                Some(known) if known.number != now.number => {
                    // The rows are about a catalog of the same name that was deleted.
                    self.forget_own_usage(record, &name).await?;
                    continue;
                }
                Some(known) if known.forgotten != now.forgotten => {
                    self.forget_own_missed(record, node, &name, now).await?;
                }
                Some(_) => {}
                None => {
                    let catalog = name.clone();
                    let share =
                        move |database: &mut UsageDatabase| database.share_catalog(&catalog, now);
                    record.with(share).await?;
                }
            }
            while pages < MAX_PAGES && self.send_page(record, node, &name, now).await? {
                pages += 1;
            }
        }
        Ok(())
    }

    /// The catalogs of the store with these names.
    async fn usage_catalogs(
        &self,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, SharedAs>, StoreError> {
        let read = async {
            let rows: Vec<(String, i64, i64)> = sqlx::query_as(
                "SELECT name, id, coalesce(times, 0) FROM catalogs
                 LEFT JOIN usage_forgotten ON catalog = id WHERE name = ANY($1)",
            )
            .bind(texts(names))
            .fetch_all(&self.pool)
            .await?;
            let mut catalogs = BTreeMap::new();
            for (name, number, forgotten) in rows {
                catalogs.insert(name, SharedAs { number, forgotten });
            }
            Ok(catalogs)
        };
        self.ask(READ_LIMIT, read).await
    }

    /// Sends a page of a catalog's rows. False if there was none.
    async fn send_page(
        &self,
        record: &OwnRecord,
        node: i32,
        name: &str,
        catalog: SharedAs,
    ) -> Result<bool, StoreError> {
        let with_missed = record.local().stores_queries;
        let of = name.to_owned();
        let rows = record.with(move |database| database.unsent(&of, with_missed, PAGE));
        let rows = rows.await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let put = self.put_usage(node, catalog.number, &rows);
        let sent = self.ask(WRITE_LIMIT, put).await?;
        let of = name.to_owned();
        let note = move |database: &mut UsageDatabase| database.set_sent(&of, &rows, sent);
        record.with(note).await?;
        Ok(true)
    }

    /// Writes rows in one transaction. Returns how often this node has sent rows.
    async fn put_usage(
        &self,
        node: i32,
        catalog: i64,
        rows: &UnsentRows,
    ) -> Result<i64, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // A standby need not have them: a node sends them again if they are lost.
        sqlx::query("SET LOCAL synchronous_commit TO local")
            .execute(&mut *transaction)
            .await?;
        put::tools(&mut transaction, (node, catalog), &rows.tools).await?;
        put::callers(&mut transaction, (node, catalog), &rows.callers).await?;
        put::shadows(&mut transaction, (node, catalog), &rows.shadows).await?;
        put::missed(&mut transaction, (node, catalog), &rows.missed).await?;
        let update = "UPDATE usage_nodes SET sent = sent + 1 WHERE node = $1 RETURNING sent";
        let sent = sqlx::query_scalar(update)
            .bind(node)
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(sent)
    }

    /// Forgets what this node has of a catalog that was deleted. The store's rows go with the catalog.
    async fn forget_own_usage(&self, record: &OwnRecord, name: &str) -> Result<(), StoreError> {
        let name = name.to_owned();
        record.with(move |database| database.forget(&name)).await
    }

    /// Deletes the texts of this node, because somebody deleted those of all nodes.
    async fn forget_own_missed(
        &self,
        record: &OwnRecord,
        node: i32,
        name: &str,
        now: SharedAs,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        let forget = move |database: &mut UsageDatabase| {
            database.forget_missed(&name)?;
            database.share_catalog(&name, now)
        };
        record.with(forget).await?;
        // It may have sent some between the deletion and now.
        let delete = async {
            sqlx::query("DELETE FROM usage_missed WHERE catalog = $1 AND node = $2")
                .bind(now.number)
                .bind(node)
                .execute(&self.pool)
                .await?;
            Ok(())
        };
        self.ask(WRITE_LIMIT, delete).await
    }
}
