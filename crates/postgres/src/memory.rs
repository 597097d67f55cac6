//! Usage memories in the store: a row for each request, tool and teacher. Every node follows those of
//! the catalogs that it has open into their files, by generations as it follows tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlx::{PgConnection, Row};
use toolscout_index::ToolId;
use toolscout_index::memory::{
    Deletion, Entry, MAX_ENTRIES, MAX_ENTRIES_OF_A_KEY, Source, SourceState, Switch,
};

use super::error::StoreError;
use super::hub::FollowedCatalog;
use super::row::text;
use super::{BEGIN_READING, CONNECT_LIMIT, PostgresStore, READ_LIMIT, WRITE_LIMIT};

/// What is announced after a change.
const ANNOUNCED: &str = "memory";
/// A full memory makes room for this many, since nodes read all of it after entries were deleted.
const ROOM: usize = MAX_ENTRIES / 20;

impl PostgresStore {
    /// As [`toolscout_index::Memory::remember`], for all nodes. This one has followed when it returns.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn remember(
        &self,
        catalog: &FollowedCatalog,
        (query, tool): (&str, &ToolId),
        at_ms: i64,
        source: &Source,
    ) -> Result<bool, StoreError> {
        let entry = Entry {
            query: text(query.trim()),
            tool: tool.clone(),
            times: 1,
            at_ms,
            taught_by: vec![source.clone()],
        };
        let put = self.ask(WRITE_LIMIT, self.put(catalog.id, &entry, source));
        let is_stored = self.runtime.block_on(put)?;
        if is_stored {
            self.follow_memory(catalog)?;
        }
        Ok(is_stored)
    }

    /// As [`toolscout_index::Memory::set_switch`], for all nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn switch_memory(
        &self,
        catalog: &FollowedCatalog,
        switch: Switch,
    ) -> Result<(), StoreError> {
        let set = async {
            let mut transaction = self.pool.begin().await?;
            let generation = begin(&mut transaction, catalog.id).await?.generation + 1;
            sqlx::query("UPDATE memories SET is_on = $2, generation = $3 WHERE catalog = $1")
                .bind(catalog.id)
                .bind(switch == Switch::On)
                .bind(generation)
                .execute(&mut *transaction)
                .await?;
            self.announce(&mut transaction, ANNOUNCED).await?;
            Ok(transaction.commit().await?)
        };
        self.runtime.block_on(self.ask(WRITE_LIMIT, set))?;
        self.follow_memory(catalog)
    }

    /// As [`toolscout_index::Memory::forget`], for all nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn forget_memory(
        &self,
        catalog: &FollowedCatalog,
        what: &Deletion,
    ) -> Result<usize, StoreError> {
        let forget = self.ask(WRITE_LIMIT, self.delete_remembered(catalog.id, what));
        let forgotten = self.runtime.block_on(forget)?;
        self.follow_memory(catalog)?;
        Ok(forgotten)
    }

    /// Begins to bring the memories of open catalogs up to the store.
    pub(super) async fn follow_memories(self: &Arc<Self>) -> Result<(), StoreError> {
        let open = self.hub.open();
        let ids: Vec<i64> = open.iter().map(|catalog| catalog.id).collect();
        let heads = async {
            let heads = "SELECT catalog, generation FROM memories WHERE catalog = ANY($1)";
            let heads: Vec<(i64, i64)> = sqlx::query_as(heads)
                .bind(ids)
                .fetch_all(&self.pool)
                .await?;
            Ok(heads.into_iter().collect::<BTreeMap<_, _>>())
        };
        let heads = self.ask(CONNECT_LIMIT, heads).await?;
        for catalog in open {
            let head = heads.get(&catalog.id).copied().unwrap_or(0);
            let is_followed = catalog.memory.generation.load(Ordering::Acquire) == head;
            if is_followed || catalog.memory.is_busy.swap(true, Ordering::AcqRel) {
                continue;
            }
            let store = Arc::clone(self);
            // Not awaited, since a model may take seconds to embed what is new.
            tokio::task::spawn_blocking(move || {
                if let Err(error) = store.follow_memory(&catalog) {
                    tracing::warn!(%error, "a usage memory cannot be followed; trying again");
                }
                catalog.memory.is_busy.store(false, Ordering::Release);
            });
        }
        Ok(())
    }

    /// Brings the memory of a catalog up to the store. Blocks.
    fn follow_memory(&self, catalog: &FollowedCatalog) -> Result<(), StoreError> {
        let followed = &catalog.memory;
        // One thread at a time, so that an older state is never applied over a newer one.
        let _one = followed.following.lock();
        let memory = followed.catalog.memory();
        let known = memory.followed()?;
        let read = self.ask(READ_LIMIT, self.memory_since(catalog.id, known));
        let state = self.runtime.block_on(read)?;
        if known != Some(state.generation) && (known.is_some() || state.generation > 0) {
            memory.follow(&state)?;
        }
        let generation = state.generation as i64;
        followed.generation.store(generation, Ordering::Release);
        Ok(())
    }

    /// What a memory has, as far as it changed since.
    async fn memory_since(
        &self,
        catalog: i64,
        known: Option<u64>,
    ) -> Result<SourceState, StoreError> {
        let mut transaction = self.pool.begin_with(BEGIN_READING).await?;
        let head: Option<(bool, i64, i64)> =
            sqlx::query_as("SELECT is_on, generation, deleted_at FROM memories WHERE catalog = $1")
                .bind(catalog)
                .fetch_optional(&mut *transaction)
                .await?;
        let (is_on, generation, deleted_at) = head.unwrap_or_default();
        // A deleted row leaves no trace, so after a deletion everything is read again. The same goes
        // for a store that was restored from an older backup.
        let known = known.map(|known| known as i64);
        let known = known.filter(|known| (deleted_at..=generation).contains(known));
        let rows = sqlx::query(
            "SELECT query, tool, source, times, at_ms FROM remembered
             WHERE catalog = $1 AND pair IN (
                 SELECT pair FROM remembered WHERE catalog = $1 AND generation > $2)
             ORDER BY pair, source",
        )
        .bind(catalog)
        .bind(known.unwrap_or(-1))
        .fetch_all(&mut *transaction)
        .await?;
        let mut entries: Vec<Entry> = Vec::new();
        for row in rows {
            let (query, tool): (String, String) = (row.try_get("query")?, row.try_get("tool")?);
            let (times, at_ms): (i64, i64) = (row.try_get("times")?, row.try_get("at_ms")?);
            let source = Source::read(row.try_get("source")?);
            match entries.last_mut() {
                // Rows of the same pair follow each other: there is one for each teacher.
                Some(last) if last.query == query && last.tool.as_str() == tool => {
                    last.times += times as u64;
                    last.at_ms = last.at_ms.max(at_ms);
                    last.taught_by.push(source);
                }
                _ => entries.push(Entry {
                    query,
                    tool: ToolId::parse(&tool)?,
                    times: times as u64,
                    at_ms,
                    taught_by: vec![source],
                }),
            }
        }
        Ok(SourceState {
            generation: generation as u64,
            switch: if is_on { Switch::On } else { Switch::Off },
            entries,
            is_whole: known.is_none(),
        })
    }

    /// Stores that a tool was called for a request; false where the memory is off.
    async fn put(&self, catalog: i64, entry: &Entry, source: &Source) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let head = begin(&mut transaction, catalog).await?;
        if !head.is_on {
            return Ok(false);
        }
        let generation = head.generation + 1;
        // A key that votes counts once, so `times` does not grow for it.
        sqlx::query(
            "INSERT INTO remembered (catalog, pair, source, query, tool, times, at_ms, generation)
             VALUES ($1, $2, $3, $4, $5, 1, $6, $7)
             ON CONFLICT (catalog, pair, source) DO UPDATE
             SET times = remembered.times + $8, at_ms = greatest(remembered.at_ms, $6), generation = $7",
        )
        .bind(catalog)
        .bind(pair(entry))
        .bind(source.to_string())
        .bind(&entry.query)
        .bind(entry.tool.as_str())
        .bind(entry.at_ms)
        .bind(generation)
        .bind(i64::from(!source.is_voter()))
        .execute(&mut *transaction)
        .await?;
        let mut evicted = evict_entries(&mut transaction, catalog).await?;
        if source.is_voter() {
            evicted += evict_votes(&mut transaction, catalog, source).await?;
        }
        end(&mut transaction, catalog, generation, evicted > 0).await?;
        self.announce(&mut transaction, ANNOUNCED).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn delete_remembered(&self, catalog: i64, what: &Deletion) -> Result<usize, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let generation = begin(&mut transaction, catalog).await?.generation + 1;
        // Each condition uses $2, since PostgreSQL refuses a parameter that is not used.
        let (condition, value) = match what {
            Deletion::All => ("$2 = ''", String::new()),
            Deletion::Tool(tool) => ("tool = $2", tool.to_string()),
            Deletion::Query(query) => ("query = $2", text(query.trim())),
        };
        let sql = format!(
            "WITH gone AS (DELETE FROM remembered WHERE catalog = $1 AND {condition} RETURNING pair)
             SELECT count(DISTINCT pair) FROM gone"
        );
        let gone: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .bind(catalog)
            .bind(value)
            .fetch_one(&mut *transaction)
            .await?;
        if gone > 0 {
            end(&mut transaction, catalog, generation, true).await?;
            self.announce(&mut transaction, ANNOUNCED).await?;
            transaction.commit().await?;
        }
        Ok(gone as usize)
    }
}

/// The row of a memory.
struct Head {
    is_on: bool,
    generation: i64,
}

/// Locks the row of a memory, which is there from then on.
async fn begin(connection: &mut PgConnection, catalog: i64) -> Result<Head, StoreError> {
    sqlx::query(
        "INSERT INTO memories (catalog, generation)
         SELECT id, 0 FROM catalogs WHERE id = $1 ON CONFLICT DO NOTHING",
    )
    .bind(catalog)
    .execute(&mut *connection)
    .await?;
    let row = sqlx::query("SELECT is_on, generation FROM memories WHERE catalog = $1 FOR UPDATE")
        .bind(catalog)
        .fetch_optional(connection)
        .await?
        .ok_or(StoreError::Deleted)?;
    Ok(Head {
        is_on: row.try_get("is_on")?,
        generation: row.try_get("generation")?,
    })
}

async fn end(
    connection: &mut PgConnection,
    catalog: i64,
    generation: i64,
    has_deleted: bool,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE memories SET generation = $2, deleted_at = CASE WHEN $3 THEN $2 ELSE deleted_at END
         WHERE catalog = $1",
    )
    .bind(catalog)
    .bind(generation)
    .bind(has_deleted)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes entries of a memory that has too many: the least recently used, those without full weight
/// first.
async fn evict_entries(connection: &mut PgConnection, catalog: i64) -> Result<u64, StoreError> {
    let pairs: i64 =
        sqlx::query_scalar("SELECT count(DISTINCT pair) FROM remembered WHERE catalog = $1")
            .bind(catalog)
            .fetch_one(&mut *connection)
            .await?;
    if pairs as usize <= MAX_ENTRIES {
        return Ok(0);
    }
    let evicted = sqlx::query(
        "DELETE FROM remembered WHERE catalog = $1 AND pair IN (
             SELECT pair FROM remembered WHERE catalog = $1 GROUP BY pair
             ORDER BY bool_or(source NOT LIKE 'key:%') DESC, max(at_ms) DESC, pair OFFSET $2)",
    )
    .bind(catalog)
    .bind((MAX_ENTRIES - ROOM) as i64)
    .execute(connection)
    .await?;
    Ok(evicted.rows_affected())
}

/// Deletes the oldest votes of a key that has too many.
async fn evict_votes(
    connection: &mut PgConnection,
    catalog: i64,
    source: &Source,
) -> Result<u64, StoreError> {
    let evicted = sqlx::query(
        "DELETE FROM remembered WHERE catalog = $1 AND source = $2 AND pair IN (
             SELECT pair FROM remembered WHERE catalog = $1 AND source = $2
             ORDER BY at_ms DESC, pair OFFSET $3)",
    )
    .bind(catalog)
    .bind(source.to_string())
    .bind(MAX_ENTRIES_OF_A_KEY as i64)
    .execute(connection)
    .await?;
    Ok(evicted.rows_affected())
}

fn pair(entry: &Entry) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    // No text has this byte, so no two pairs give the same hash.
    hasher.update(entry.query.as_bytes()).update(&[0]);
    hasher.update(entry.tool.as_str().as_bytes());
    hasher.finalize().as_bytes()[..16].to_vec()
}
