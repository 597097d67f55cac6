//! Pushes catalogs down that have grown too large for nodes, step by step, so that a node that dies in
//! between loses nothing: the next one goes on. Then keeps their vectors complete.
//!
//! 1. The tables are created, and filled by pages in the order of ids, each under the lock of the
//!    catalog's row. Writes meanwhile change what is filled already. Nodes go on with their copies.
//! 2. Tools get the vectors of the node's embedders, and the tables their indexes.
//! 3. The catalog counts as pushed down: nodes give up the tools of their copies.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use toolscout_index::pushdown::{embed_enrichments, embed_views};
use toolscout_index::{Embedder, Enrichment, Settings, Tool};

use super::tables::{KeptEmbedder, Tables, execute, install_extensions, prepare_to_keep};
use super::write::{FIRST_TEXT, PushedWriter, is_same, put_text_vectors, put_vectors};
use crate::error::StoreError;
use crate::row::{enrichment, parse_settings, text, tool_of};
use crate::{PostgresStore, READ_LIMIT, WRITE_LIMIT};

/// How often a node looks for catalogs to push down, and for tools to embed.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it looks at a catalog for which there seems to be nothing to do.
const LOOK: Duration = Duration::from_secs(10);
/// Most tools that come between two looks at a large catalog without being taken for a load.
const FEW_TOOLS: i64 = 200;
/// Tools of one page, under one lock.
const PAGE: i64 = 1000;
/// Embedders of one catalog whose vectors are kept.
const MAX_EMBEDDERS: usize = 8;
/// The first part of the number of the lock that a keeper holds; the second is the catalog's.
const LOCK: i32 = 0x7075_7368;

/// When a catalog was last looked at, and since when it has had about as many tools.
struct Look {
    at: Instant,
    tools: i64,
    since: Instant,
    /// What was written about its tools when all of that was embedded.
    texts: Option<TextsState>,
}

/// The generation of what was written about a catalog's tools, and the number of embedders.
type TextsState = (i64, usize);

/// When this node looked at each catalog.
type Looks = HashMap<i64, Look>;

/// A catalog to be kept.
struct Kept {
    tables: Tables,
    settings: Settings,
    embedders: Vec<Arc<dyn Embedder>>,
}

/// How far a catalog is.
struct Progress {
    tools: i64,
    /// The generation of what was written about its tools.
    enrichments: i64,
    is_pushed_down: bool,
    /// False where it is to have no tables.
    is_wanted: bool,
    /// What its tables were filled with; `None` without tables.
    stamp: Option<String>,
    filled_to: Option<String>,
}

impl PostgresStore {
    /// Pushes catalogs down, and keeps those that are, until [`PostgresStore::close`].
    pub fn keep_pushed_down(self: &Arc<Self>) {
        let store = Arc::clone(self);
        let stop = self.stop_token();
        self.runtime.spawn(async move {
            let keeping = async {
                let mut looks = Looks::new();
                loop {
                    tokio::time::sleep(PAUSE).await;
                    if store.problem().is_none() {
                        let kept = store.keep_all(&mut looks).await;
                        store.report("catalogs that are pushed down", kept);
                    }
                }
            };
            stop.run_until_cancelled(keeping).await;
        });
    }

    async fn keep_all(&self, looks: &mut Looks) -> Result<(), StoreError> {
        let open = self.open_catalogs();
        let ids: Vec<i64> = open.iter().map(|(id, _)| *id).collect();
        let wanted = self.ask(READ_LIMIT, self.to_keep(&ids)).await?;
        looks.retain(|id, _| wanted.iter().any(|(wanted, _)| wanted == id));
        let mut outcome = Ok(());
        for (catalog, is_urgent) in wanted {
            let is_due = match looks.get(&catalog) {
                Some(look) => look.at.elapsed() >= LOOK,
                None => true,
            };
            if !is_urgent && !is_due {
                continue;
            }
            if let Some((_, searcher)) = open.iter().find(|(id, _)| *id == catalog) {
                let embedders = searcher.embedders().cloned().collect();
                // If one catalog fails, the others are still kept.
                outcome = outcome.and(self.keep(catalog, embedders, looks).await);
            }
        }
        outcome
    }

    /// Those of these catalogs that are pushed down, or are to be, and whether there is something to do
    /// for each.
    async fn to_keep(&self, ids: &[i64]) -> Result<Vec<(i64, bool)>, StoreError> {
        let wanted = sqlx::query_as(
            "SELECT id, NOT is_pushed_down OR NOT coalesce(push_down, true) OR EXISTS (
                        SELECT FROM pushed_embedders AS kept
                        WHERE kept.catalog = id AND kept.tools < pushed_catalogs.tools
                    )
             FROM catalogs LEFT JOIN pushed_catalogs ON catalog = id
             WHERE id = ANY($1) AND (catalog IS NOT NULL OR coalesce(push_down, catalogs.tools > $2))",
        )
        .bind(ids)
        .bind(self.above())
        .fetch_all(&self.pool)
        .await?;
        Ok(wanted)
    }

    /// The most tools of a catalog that nodes have copies of.
    fn above(&self) -> i64 {
        i64::try_from(self.push.above).unwrap_or(i64::MAX)
    }

    /// Does what there is to do for a catalog, unless another node does.
    async fn keep(
        &self,
        catalog: i64,
        embedders: Vec<Arc<dyn Embedder>>,
        looks: &mut Looks,
    ) -> Result<(), StoreError> {
        let mut connection = self.connect_alone().await?;
        // The lock ends with the connection, so a node that dies leaves none behind.
        let is_mine: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1, $2)")
            .bind(LOCK)
            .bind(catalog as i32)
            .fetch_one(&mut connection)
            .await?;
        let mut outcome = Ok(());
        if is_mine {
            let kept = self.keep_mine(&mut connection, catalog, embedders, looks);
            outcome = kept.await;
        }
        // The work is committed by now. Closing only frees the lock a little earlier.
        let _ = connection.close().await;
        outcome
    }

    async fn keep_mine(
        &self,
        connection: &mut PgConnection,
        catalog: i64,
        embedders: Vec<Arc<dyn Embedder>>,
        looks: &mut Looks,
    ) -> Result<(), StoreError> {
        let tables = Tables { catalog };
        let Some((settings, mut progress)) = self.progress(connection, tables).await? else {
            // The catalog was deleted meanwhile.
            return Ok(());
        };
        let stamp = settings.lexical.stamp();
        // The numbers in the tables depend on these settings. The next round fills new tables.
        if let Some(filled) = &progress.stamp
            && *filled != stamp
        {
            return self.give_up(connection, tables).await;
        }
        if !progress.is_wanted {
            return self.give_up(connection, tables).await;
        }
        if progress.stamp.is_none() {
            install_extensions(connection).await?;
            begin(connection, tables, &stamp).await?;
            progress.filled_to = Some(String::new());
        }
        prepare_to_keep(connection).await?;
        let kept = Kept {
            tables,
            settings,
            embedders,
        };
        while progress.filled_to.is_some() {
            progress.filled_to = kept.fill_page(connection).await?;
        }
        let kept_embedders = kept.register(connection).await?;
        let mut complete = self.embed_missing(connection, &kept, &kept_embedders).await;
        let texts = (progress.enrichments, kept_embedders.len());
        // This looks through all texts, so it is done only if some may be new.
        if complete.is_ok() && embedded_texts(looks, catalog) != Some(texts) {
            complete = self.embed_texts(connection, &kept, &kept_embedders).await;
        }
        // Vectors are indexed when a load is over: growing an index takes far longer than building it.
        let is_at_rest = is_at_rest(looks, catalog, progress.tools);
        if is_at_rest || !progress.is_pushed_down {
            // Filling took a while. If tools were added meanwhile, a load is still running.
            let is_loaded =
                is_at_rest || !has_grown(progress.tools, tables.count(connection).await?);
            let with_vectors = if is_loaded { &kept_embedders[..] } else { &[] };
            kept.create_indexes(connection, with_vectors).await?;
        }
        // Until the catalog counts as pushed down, nodes use their complete copies.
        complete?;
        if let Some(look) = looks.get_mut(&catalog) {
            look.texts = Some(texts);
        }
        if !progress.is_pushed_down {
            self.set_pushed_down(connection, tables).await?;
        }
        Ok(())
    }

    async fn progress(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
    ) -> Result<Option<(Settings, Progress)>, StoreError> {
        let row = sqlx::query(
            "SELECT catalogs.tools, enrichments_generation, settings, is_pushed_down, stamp, filled_to,
                    coalesce(push_down, stamp IS NOT NULL OR catalogs.tools > $2) AS is_wanted
             FROM catalogs LEFT JOIN pushed_catalogs ON catalog = id WHERE id = $1",
        )
        .bind(tables.catalog)
        .bind(self.above())
        .fetch_optional(connection)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let progress = Progress {
            tools: row.try_get("tools")?,
            enrichments: row.try_get("enrichments_generation")?,
            is_pushed_down: row.try_get("is_pushed_down")?,
            is_wanted: row.try_get("is_wanted")?,
            stamp: row.try_get("stamp")?,
            filled_to: row.try_get("filled_to")?,
        };
        Ok(Some((parse_settings(row.try_get("settings")?)?, progress)))
    }

    /// Drops the tables of a catalog. Nodes make copies of it.
    async fn give_up(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
    ) -> Result<(), StoreError> {
        let mut transaction = connection.begin().await?;
        lock(&mut transaction, tables).await?;
        tables.drop_all(&mut transaction).await?;
        sqlx::query("DELETE FROM pushed_catalogs WHERE catalog = $1")
            .bind(tables.catalog)
            .execute(&mut *transaction)
            .await?;
        self.mark(&mut transaction, tables, false).await?;
        Ok(transaction.commit().await?)
    }

    /// Tells nodes where the tools of a catalog are looked for from now on.
    async fn mark(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
        is_pushed_down: bool,
    ) -> Result<(), StoreError> {
        sqlx::query("UPDATE catalogs SET is_pushed_down = $2 WHERE id = $1")
            .bind(tables.catalog)
            .bind(is_pushed_down)
            .execute(&mut *connection)
            .await?;
        self.announce(connection, "catalogs").await
    }

    async fn set_pushed_down(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
    ) -> Result<(), StoreError> {
        // In a transaction, so that nodes are notified only once the change is committed.
        let mut transaction = connection.begin().await?;
        self.mark(&mut transaction, tables, true).await?;
        transaction.commit().await?;
        tracing::info!(
            catalog = tables.catalog,
            "tools are looked for in the store from now on"
        );
        Ok(())
    }

    /// Embeds the tools that have no vectors, page by page. An embedder that fails is tried again the
    /// next time.
    async fn embed_missing(
        &self,
        connection: &mut PgConnection,
        kept: &Kept,
        kept_embedders: &[KeptEmbedder],
    ) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        for (of_store, embedder) in kept.pairs(kept_embedders) {
            // If one embedder fails, the others still go on.
            let embedded = self.embed_all(connection, kept.tables, of_store, embedder);
            outcome = outcome.and(embedded.await);
        }
        outcome
    }

    /// Embeds what was written about tools, as far as it has no vectors.
    async fn embed_texts(
        &self,
        connection: &mut PgConnection,
        kept: &Kept,
        kept_embedders: &[KeptEmbedder],
    ) -> Result<(), StoreError> {
        for (of_store, embedder) in kept.pairs(kept_embedders) {
            let mut after = 0;
            loop {
                let page = texts_to_embed(connection, kept.tables, of_store, after).await?;
                let Some((missing, last)) = page else {
                    break;
                };
                // The next page always starts behind this one: a page may consist of damaged texts
                // only.
                after = last;
                let (embedding, texts) = (Arc::clone(embedder), Arc::new(missing));
                let embedded = Arc::clone(&texts);
                let vectors = self.on_cpu(move || {
                    let texts: Vec<&Enrichment> =
                        embedded.iter().map(|text| &text.enrichment).collect();
                    embed_enrichments(embedding.as_ref(), &texts)
                });
                let vectors = vectors.await??;
                store_text_vectors(connection, kept.tables, of_store, &texts, vectors).await?;
            }
        }
        Ok(())
    }

    async fn embed_all(
        &self,
        connection: &mut PgConnection,
        tables: Tables,
        of_store: &KeptEmbedder,
        embedder: &Arc<dyn Embedder>,
    ) -> Result<(), StoreError> {
        if !is_incomplete(connection, tables, of_store).await? {
            return Ok(());
        }
        let mut after = 0;
        loop {
            let missing = missing(connection, tables, of_store, after).await?;
            let Some(last) = missing.last() else {
                return Ok(());
            };
            after = last.key;
            let (embedding, tools) = (Arc::clone(embedder), Arc::new(missing));
            let embedded = Arc::clone(&tools);
            let vectors = self
                .on_cpu(move || {
                    let tools: Vec<&Tool> = embedded.iter().map(|missing| &missing.tool).collect();
                    embed_views(embedding.as_ref(), &tools)
                })
                .await??;
            store_vectors(connection, tables, of_store, &tools, vectors).await?;
        }
    }
}

impl PostgresStore {
    /// Says whether the tools of a catalog are looked for in the store; `None` where its size decides.
    /// Servers that have it open see to it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where there is no such catalog.
    pub async fn set_push_down(&self, name: &str, wanted: Option<bool>) -> Result<(), StoreError> {
        let set = async {
            let changed = sqlx::query("UPDATE catalogs SET push_down = $2 WHERE name = $1")
                .bind(text(name))
                .bind(wanted)
                .execute(&self.pool)
                .await?;
            match changed.rows_affected() {
                0 => Err(StoreError::Refused(format!(
                    "the store has no catalog {name:?}; `toolscout store status` lists them"
                ))),
                _ => Ok(()),
            }
        };
        self.ask(WRITE_LIMIT, set).await
    }
}

/// Notes that a catalog was looked at. True if it has had about as many tools for a while.
fn is_at_rest(looks: &mut Looks, catalog: i64, tools: i64) -> bool {
    let now = Instant::now();
    let (tools, since) = match looks.get(&catalog) {
        // Compare with the number from the start of the rest, so that a slow load is noticed too.
        Some(look) if !has_grown(look.tools, tools) => (look.tools, look.since),
        _ => (tools, now),
    };
    let look = Look {
        at: now,
        tools,
        since,
        texts: embedded_texts(looks, catalog),
    };
    looks.insert(catalog, look);
    now - since >= LOOK
}

fn embedded_texts(looks: &Looks, catalog: i64) -> Option<TextsState> {
    looks.get(&catalog)?.texts
}

/// Whether many tools were added to so many. Of a large catalog a hundredth is still a load: a vector
/// that is added to an index takes some milliseconds.
fn has_grown(before: i64, now: i64) -> bool {
    now - before > (before / 100).min(FEW_TOOLS)
}

/// What was written about a tool, without vectors.
struct MissingTexts {
    key: i64,
    id: String,
    enrichment: Enrichment,
    checksum: Vec<u8>,
}

/// A tool without vectors.
struct Missing {
    key: i64,
    tool: Tool,
    hash: Vec<u8>,
}

/// Waits until nobody else writes to a catalog.
async fn lock(connection: &mut PgConnection, tables: Tables) -> Result<(), StoreError> {
    let locked: Option<i32> = sqlx::query_scalar("SELECT 1 FROM catalogs WHERE id = $1 FOR UPDATE")
        .bind(tables.catalog)
        .fetch_optional(connection)
        .await?;
    match locked {
        Some(_) => Ok(()),
        None => Err(StoreError::Deleted),
    }
}

async fn begin(
    connection: &mut PgConnection,
    tables: Tables,
    stamp: &str,
) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    lock(&mut transaction, tables).await?;
    tables.create(&mut transaction).await?;
    // The empty text sorts before every id.
    sqlx::query("INSERT INTO pushed_catalogs (catalog, stamp, filled_to) VALUES ($1, $2, '')")
        .bind(tables.catalog)
        .bind(stamp)
        .execute(&mut *transaction)
        .await?;
    Ok(transaction.commit().await?)
}

impl Kept {
    /// Those of the store that this node has too, each with its own.
    fn pairs<'a>(
        &'a self,
        of_store: &'a [KeptEmbedder],
    ) -> Vec<(&'a KeptEmbedder, &'a Arc<dyn Embedder>)> {
        let mut pairs = Vec::new();
        for of_store in of_store {
            let mut own = self.embedders.iter();
            if let Some(same) = own.find(|embedder| is_same(embedder.as_ref(), of_store)) {
                pairs.push((of_store, same));
            }
        }
        pairs
    }

    /// Fills the tables with the next page. Returns up to which id they are filled then; `None` once
    /// they have all.
    async fn fill_page(&self, connection: &mut PgConnection) -> Result<Option<String>, StoreError> {
        let Tables { catalog } = self.tables;
        let mut transaction = connection.begin().await?;
        lock(&mut transaction, self.tables).await?;
        let filled_to: Option<String> =
            sqlx::query_scalar("SELECT filled_to FROM pushed_catalogs WHERE catalog = $1")
                .bind(catalog)
                .fetch_one(&mut *transaction)
                .await?;
        let Some(filled_to) = filled_to else {
            return Ok(None);
        };
        let rows = sqlx::query(
            "SELECT id, hash, json FROM tools
             WHERE catalog = $1 AND json IS NOT NULL AND id > $2 ORDER BY id LIMIT $3",
        )
        .bind(catalog)
        .bind(&filled_to)
        .bind(PAGE)
        .fetch_all(&mut *transaction)
        .await?;
        let mut tools = Vec::with_capacity(rows.len());
        for row in rows {
            tools.push(tool_of(&row)?);
        }
        // An empty page means that the tables now have all tools.
        let last = tools.last().map(|tool| tool.id.to_string());
        let writer =
            PushedWriter::begin(&mut transaction, catalog, &self.settings, &self.embedders).await?;
        if let Some(mut writer) = writer {
            // This must come first: the writer ignores tools behind `filled_to`.
            writer.set_filled_to(last.clone());
            let tools: Vec<&Tool> = tools.iter().collect();
            writer.replace(&mut transaction, &[], &tools).await?;
        }
        sqlx::query("UPDATE pushed_catalogs SET filled_to = $2 WHERE catalog = $1")
            .bind(catalog)
            .bind(&last)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(last)
    }

    /// Creates the tables of the embedders' vectors that are missing. Returns all that there are.
    async fn register(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<KeptEmbedder>, StoreError> {
        let known = self.tables.embedders(connection).await?;
        let mut new: Vec<&Arc<dyn Embedder>> = Vec::new();
        for embedder in &self.embedders {
            if !known.iter().any(|known| is_same(embedder.as_ref(), known)) {
                new.push(embedder);
            }
        }
        new.truncate(MAX_EMBEDDERS.saturating_sub(known.len()));
        if new.is_empty() {
            return Ok(known);
        }
        // `known` is sorted by number.
        let first = known.last().map_or(1, |last| last.number + 1);
        let mut transaction = connection.begin().await?;
        lock(&mut transaction, self.tables).await?;
        for (number, embedder) in (first..).zip(new) {
            let kept = KeptEmbedder {
                number,
                id: embedder.id().to_owned(),
                dimensions: embedder.dimensions(),
                tools: 0,
            };
            self.tables.create_vectors(&mut transaction, &kept).await?;
            sqlx::query(
                "INSERT INTO pushed_embedders (catalog, number, embedder, dimensions) VALUES ($1, $2, $3, $4)",
            )
            .bind(self.tables.catalog)
            .bind(number)
            .bind(&kept.id)
            .bind(kept.dimensions as i32)
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        self.tables.embedders(connection).await
    }

    /// Creates the indexes that are missing, and those whose creation was interrupted anew; of vectors
    /// those of these embedders.
    async fn create_indexes(
        &self,
        connection: &mut PgConnection,
        embedders: &[KeptEmbedder],
    ) -> Result<(), StoreError> {
        let mut vectors = Vec::with_capacity(embedders.len());
        for embedder in embedders {
            // The count stops early, since only the number that makes an index worthwhile matters.
            let sql = format!(
                "SELECT count(*) FROM (SELECT FROM {} LIMIT 100000) AS counted",
                self.tables.vectors(embedder)
            );
            let counted: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                .fetch_one(&mut *connection)
                .await?;
            vectors.push(counted);
        }
        let mut has_created = false;
        for (name, create) in self.tables.indexes(embedders, &vectors) {
            let is_valid: Option<bool> = sqlx::query_scalar(
                "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)",
            )
            .bind(&name)
            .fetch_optional(&mut *connection)
            .await?;
            if is_valid == Some(true) {
                continue;
            }
            // An interrupted creation leaves an index that no query uses and that every write still
            // updates.
            if is_valid == Some(false) {
                execute(connection, format!("DROP INDEX {name}")).await?;
            }
            execute(connection, create).await?;
            has_created = true;
        }
        if has_created {
            self.tables.analyze(connection, embedders).await?;
        }
        Ok(())
    }
}

async fn is_incomplete(
    connection: &mut PgConnection,
    tables: Tables,
    embedder: &KeptEmbedder,
) -> Result<bool, StoreError> {
    let is_incomplete = sqlx::query_scalar(
        "SELECT pushed_embedders.tools < pushed_catalogs.tools
         FROM pushed_embedders JOIN pushed_catalogs USING (catalog) WHERE catalog = $1 AND number = $2",
    )
    .bind(tables.catalog)
    .bind(embedder.number)
    .fetch_one(connection)
    .await?;
    Ok(is_incomplete)
}

/// The next tools without vectors of an embedder.
async fn missing(
    connection: &mut PgConnection,
    tables: Tables,
    embedder: &KeptEmbedder,
    after: i64,
) -> Result<Vec<Missing>, StoreError> {
    let sql = format!(
        "SELECT key, tools.id, hash, json FROM {} AS t JOIN tools ON catalog = $1 AND tools.id = t.id
         WHERE key > $2 AND json IS NOT NULL AND NOT EXISTS (SELECT FROM {} AS v WHERE v.key = t.key AND v.view = 0)
         ORDER BY key LIMIT $3",
        tables.tools(),
        tables.vectors(embedder)
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(tables.catalog)
        .bind(after)
        .bind(PAGE)
        .fetch_all(connection)
        .await?;
    let mut missing = Vec::with_capacity(rows.len());
    for row in rows {
        missing.push(Missing {
            key: row.try_get("key")?,
            tool: tool_of(&row)?,
            hash: row.try_get("hash")?,
        });
    }
    Ok(missing)
}

/// Stores vectors of tools, unless they were changed or got vectors since they were read.
async fn store_vectors(
    connection: &mut PgConnection,
    tables: Tables,
    embedder: &KeptEmbedder,
    tools: &[Missing],
    vectors: Vec<Vec<Vec<f32>>>,
) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    lock(&mut transaction, tables).await?;
    // Embedding ran without the lock, so the hash tells whether a tool was changed meanwhile.
    let sql = format!(
        "SELECT key FROM unnest($2::bigint[], $3::bytea[]) AS read (key, hash)
         JOIN {} AS t USING (key) JOIN tools ON catalog = $1 AND tools.id = t.id AND tools.hash = read.hash
         WHERE NOT EXISTS (SELECT FROM {} AS v WHERE v.key = t.key AND v.view = 0)",
        tables.tools(),
        tables.vectors(embedder)
    );
    let keys: Vec<i64> = tools.iter().map(|tool| tool.key).collect();
    let hashes: Vec<&[u8]> = tools.iter().map(|tool| tool.hash.as_slice()).collect();
    let present: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(tables.catalog)
        .bind(&keys)
        .bind(hashes)
        .fetch_all(&mut *transaction)
        .await?;
    let wanted = only(present, keys.into_iter().zip(vectors));
    put_vectors(&mut transaction, tables, embedder, &wanted).await?;
    Ok(transaction.commit().await?)
}

/// The vectors of these keys.
fn only(
    keys: Vec<i64>,
    vectors: impl Iterator<Item = (i64, Vec<Vec<f32>>)>,
) -> Vec<(i64, Vec<Vec<f32>>)> {
    let keys: HashSet<i64> = keys.into_iter().collect();
    vectors.filter(|(key, _)| keys.contains(key)).collect()
}

/// The next texts without vectors of an embedder, of tools whose views have some, and the key of the last
/// tool that was looked at.
async fn texts_to_embed(
    connection: &mut PgConnection,
    tables: Tables,
    embedder: &KeptEmbedder,
    after: i64,
) -> Result<Option<(Vec<MissingTexts>, i64)>, StoreError> {
    let vectors = tables.vectors(embedder);
    let sql = format!(
        "SELECT key, t.id, model, texts, checksum
         FROM enrichments JOIN {} AS t ON catalog = $1 AND tool = t.id
         WHERE key > $2 AND texts IS NOT NULL
               AND EXISTS (SELECT FROM {vectors} AS v WHERE v.key = t.key AND v.view = 0)
               AND NOT EXISTS (SELECT FROM {vectors} AS v WHERE v.key = t.key AND v.view = {FIRST_TEXT})
         ORDER BY key LIMIT $3",
        tables.tools()
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(tables.catalog)
        .bind(after)
        .bind(PAGE)
        .fetch_all(connection)
        .await?;
    let Some(last) = rows.last() else {
        return Ok(None);
    };
    let last = last.try_get("key")?;
    let mut missing = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: String = row.try_get("id")?;
        // Damaged texts are skipped: they can be written again.
        if let Some(enrichment) = enrichment(&id, row)? {
            missing.push(MissingTexts {
                key: row.try_get("key")?,
                checksum: row.try_get("checksum")?,
                enrichment,
                id,
            });
        }
    }
    Ok(Some((missing, last)))
}

/// Stores vectors of what was written about tools, unless something else was written since.
async fn store_text_vectors(
    connection: &mut PgConnection,
    tables: Tables,
    embedder: &KeptEmbedder,
    texts: &[MissingTexts],
    vectors: Vec<Vec<Vec<f32>>>,
) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    lock(&mut transaction, tables).await?;
    let sql = format!(
        "SELECT key FROM unnest($2::text[], $3::bytea[]) AS read (id, checksum)
         JOIN {} AS t USING (id)
         JOIN enrichments ON catalog = $1 AND tool = id AND enrichments.checksum = read.checksum
         WHERE NOT EXISTS (SELECT FROM {} AS v WHERE v.key = t.key AND v.view = {FIRST_TEXT})",
        tables.tools(),
        tables.vectors(embedder)
    );
    let ids: Vec<&str> = texts.iter().map(|one| one.id.as_str()).collect();
    let checksums: Vec<&[u8]> = texts.iter().map(|one| one.checksum.as_slice()).collect();
    let present: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(sql))
        .bind(tables.catalog)
        .bind(ids)
        .bind(checksums)
        .fetch_all(&mut *transaction)
        .await?;
    let wanted = only(present, texts.iter().map(|one| one.key).zip(vectors));
    put_text_vectors(&mut transaction, tables, embedder, &wanted).await?;
    Ok(transaction.commit().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_load_of_a_large_catalog_is_a_load() {
        let grows = [(0, 1), (1_000, 1_011), (20_000, 20_201), (800_000, 803_000)];
        assert!(grows.iter().all(|(before, now)| has_grown(*before, *now)));
        let small = [(0, 0), (1_000, 1_010), (800_000, 800_200), (1_000, 900)];
        assert!(!small.iter().any(|(before, now)| has_grown(*before, *now)));
    }
}
