//! What changed in a catalog of the store since a generation, in one consistent view.

use std::path::Path;

use sqlx::{PgConnection, PgPool, Postgres, Row, Transaction};
use toolscout_index::{OwnerWords, Ranker, Settings, Tool, ToolId};

use super::catalogs::source;
use super::enrichments::{Enriched, EnrichmentPage};
use super::error::StoreError;
use super::row::{StoredGeneration, parse_owner_words, parse_settings, tool, tool_id, unsigned};
use super::{BEGIN_READING, PostgresStore, READ_LIMIT, within};

/// Tools in a page.
const PAGE: i64 = 1000;

/// A part of what changed.
pub enum Part {
    /// What the node has is no state of this catalog, or one from too long ago: all of it follows,
    /// and what does not is not there.
    Everything,
    /// Tools as they are now, which were added or changed.
    Tools(Vec<Tool>),
    /// Tools that are no longer there.
    Removed(Vec<ToolId>),
    /// What was written about tools that were told of, or that the node has.
    Enrichments(Vec<Enriched>),
    /// The settings as they are now.
    Settings(Settings),
    /// The owner's words as they are now. Before the tools, whose texts depend on them.
    OwnerWords(OwnerWords),
    /// The catalog's own ranker as it is now.
    Ranker(Option<Ranker>),
}

/// Where a node is.
pub struct Since {
    /// It has everything up to this generation of this mark; `None` for nothing at all.
    pub state: Option<StoredGeneration>,
    /// What it wants at least.
    pub least: u64,
    /// Tells the ranker whether it changed or not: the node's file may be an older one.
    pub with_ranker: bool,
    /// Whose tools it has.
    pub tools: ToolsOf,
}

/// Whether the tools of a catalog are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolsOf {
    /// Always.
    All,
    /// Not of one that is pushed down. What the node has is of one that nodes have copies of.
    Copied,
    /// The same, and it is of one that is pushed down: it has no tools.
    PushedDown,
}

/// What a node has once it has applied everything.
#[derive(Clone, Copy, Debug)]
pub struct Reached {
    pub state: StoredGeneration,
    /// True where tools are looked for in the store, and were not told of.
    pub is_pushed_down: bool,
    /// How many tools the catalog has.
    pub total: u64,
}

/// A server to read from.
enum Server<'a> {
    Primary(&'a PgPool),
    /// It may lack what the node has, and then says nothing of it.
    Standby(&'a PgPool),
}

impl PostgresStore {
    /// Gives everything of a catalog that changed since, part by part, and returns what this leads
    /// to.
    ///
    /// # Errors
    /// [`StoreError::Deleted`], and what `apply` returns.
    pub(super) async fn changes_since(
        &self,
        (id, source): (i64, &str),
        since: Since,
        apply: &mut dyn FnMut(Part) -> Result<(), StoreError>,
    ) -> Result<Reached, StoreError> {
        self.ready(READ_LIMIT).await?;
        if let Some(standby) = self.servers.standby() {
            let begun = self.begin(Server::Standby(standby), (id, source), &since);
            // If the standby fails or is behind, the primary is asked. That is no longer possible once
            // a part was applied.
            if let Ok(Some(begun)) = begun.await {
                return begun.read(&since, apply).await;
            }
        }
        let answer = async {
            let begun = self.begin(Server::Primary(&self.pool), (id, source), &since);
            match begun.await? {
                Some(begun) => begun.read(&since, apply).await,
                None => Err(StoreError::Deleted),
            }
        };
        let answer = answer.await;
        self.note(&answer);
        answer
    }

    /// Begins to read. `None` where the server cannot say what changed: no catalog, or a standby that
    /// is behind.
    async fn begin(
        &self,
        server: Server<'_>,
        (id, source): (i64, &str),
        since: &Since,
    ) -> Result<Option<Begun<'_>>, StoreError> {
        let (Server::Primary(pool) | Server::Standby(pool)) = server;
        let begin = async {
            let mut transaction = pool.begin_with(BEGIN_READING).await?;
            let head = head(&mut transaction, id, since).await?;
            Ok((transaction, head))
        };
        let (transaction, head) = within(READ_LIMIT, begin).await?;
        let Some(head) = head else { return Ok(None) };
        // The address may lead to another database by now.
        if head.source != source {
            return Ok(None);
        }
        let is_unknown = since.state.is_some() && !head.is_known;
        let lacks = is_unknown || head.state.generation < since.least;
        if lacks && matches!(server, Server::Standby(_)) {
            return Ok(None);
        }
        Ok(Some(Begun {
            transaction,
            id,
            head,
        }))
    }
}

/// A transaction that sees one state of the catalog.
struct Begun<'a> {
    transaction: Transaction<'a, Postgres>,
    id: i64,
    head: Head,
}

impl Begun<'_> {
    async fn read(
        mut self,
        since: &Since,
        apply: &mut dyn FnMut(Part) -> Result<(), StoreError>,
    ) -> Result<Reached, StoreError> {
        let (id, head) = (self.id, self.head);
        let transaction = &mut self.transaction;
        let reached = head.reached(since.tools);
        // The node's state, if it is one of this catalog and of the same kind of copy.
        let was_pushed_down = since.tools == ToolsOf::PushedDown;
        let known = match head.is_known && reached.is_pushed_down == was_pushed_down {
            true => since.state,
            false => None,
        };
        if known.is_none() {
            apply(Part::Everything)?;
        }
        let generation = known.map(|state| state.generation);
        if known != Some(head.state) {
            if is_after(head.settings_generation, generation) {
                apply(Part::Settings(parse_settings(head.settings)?))?;
            }
            if is_after(head.owner_words_generation, generation) {
                let words = within(READ_LIMIT, owner_words(transaction, id)).await?;
                apply(Part::OwnerWords(words))?;
            }
            let mut page = match reached.is_pushed_down {
                true => Page::none(),
                false => Page::after(generation),
            };
            while let Some(rows) = within(READ_LIMIT, page.next(transaction, id)).await? {
                apply(Part::Removed(rows.removed))?;
                apply(Part::Tools(rows.tools))?;
            }
            let has_new_enrichments = is_after(head.enrichments_generation, generation);
            // Texts of a catalog that is pushed down stay in the store, as its tools do.
            if has_new_enrichments && !reached.is_pushed_down {
                let mut page = EnrichmentPage::after(generation);
                while let Some(enriched) = within(READ_LIMIT, page.next(transaction, id)).await? {
                    apply(Part::Enrichments(enriched))?;
                }
            }
        }
        if since.with_ranker || is_after(head.ranker_generation, generation) {
            let ranker = within(READ_LIMIT, ranker(transaction, id)).await?;
            apply(Part::Ranker(ranker))?;
        }
        // The transaction only read, so a failure to end it loses nothing.
        let _ = within(READ_LIMIT, async { Ok(self.transaction.rollback().await?) }).await;
        Ok(reached)
    }
}

/// True for what changed after the generation that a node has, if it has any.
fn is_after(changed: u64, known: Option<u64>) -> bool {
    match known {
        Some(known) => changed > known,
        None => true,
    }
}

/// The catalog's own row.
struct Head {
    source: String,
    state: StoredGeneration,
    /// Whether what the node has is a state of this catalog that is remembered.
    is_known: bool,
    settings: Option<String>,
    settings_generation: u64,
    ranker_generation: u64,
    enrichments_generation: u64,
    owner_words_generation: u64,
    is_pushed_down: bool,
    total: u64,
}

impl Head {
    fn reached(&self, tools: ToolsOf) -> Reached {
        Reached {
            state: self.state,
            is_pushed_down: self.is_pushed_down && tools != ToolsOf::All,
            total: self.total,
        }
    }
}

async fn head(
    connection: &mut PgConnection,
    id: i64,
    since: &Since,
) -> Result<Option<Head>, StoreError> {
    let row = sqlx::query(
        "SELECT (SELECT identity FROM cluster) AS cluster, identity, generation, mark, is_pushed_down,
                tools - coalesce((SELECT others FROM pushed_catalogs WHERE catalog = $1), 0) AS tools,
                settings, settings_generation, ranker_generation, enrichments_generation, owner_words_generation,
                (SELECT mark FROM generations WHERE catalog = $1 AND generation = $2) AS known
         FROM catalogs WHERE id = $1",
    )
    .bind(id)
    .bind(since.state.map(|state| state.generation as i64))
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let (cluster, identity): (String, String) = (row.try_get("cluster")?, row.try_get("identity")?);
    let state = StoredGeneration {
        generation: unsigned(&row, "generation")?,
        mark: unsigned(&row, "mark")?,
    };
    // The mark of the node's generation in the store. A store that was restored from a backup counts on
    // from an older generation, but with other marks.
    let known: Option<i64> = row.try_get("known")?;
    let is_known = match (since.state, known) {
        (Some(since), Some(mark)) => {
            mark as u64 == since.mark && since.generation <= state.generation
        }
        _ => false,
    };
    Ok(Some(Head {
        source: source(&cluster, &identity, id),
        state,
        is_known,
        settings: row.try_get("settings")?,
        settings_generation: unsigned(&row, "settings_generation")?,
        ranker_generation: unsigned(&row, "ranker_generation")?,
        enrichments_generation: unsigned(&row, "enrichments_generation")?,
        owner_words_generation: unsigned(&row, "owner_words_generation")?,
        is_pushed_down: row.try_get("is_pushed_down")?,
        total: unsigned(&row, "tools")?,
    }))
}

async fn owner_words(connection: &mut PgConnection, id: i64) -> Result<OwnerWords, StoreError> {
    let json = sqlx::query_scalar("SELECT owner_words FROM catalogs WHERE id = $1")
        .bind(id)
        .fetch_one(connection)
        .await?;
    parse_owner_words(json)
}

async fn ranker(connection: &mut PgConnection, id: i64) -> Result<Option<Ranker>, StoreError> {
    let bytes: Option<Vec<u8>> = sqlx::query_scalar("SELECT ranker FROM catalogs WHERE id = $1")
        .bind(id)
        .fetch_one(connection)
        .await?;
    match bytes {
        Some(bytes) => Ok(Some(Ranker::read(&bytes, Path::new("of the store"))?)),
        None => Ok(None),
    }
}

/// Goes through changed tools in the order of generation and id.
struct Page {
    after: (i64, String),
    /// A node that has nothing needs not know what was removed.
    with_removed: bool,
    is_last: bool,
}

struct Rows {
    tools: Vec<Tool>,
    removed: Vec<ToolId>,
}

impl Page {
    fn after(generation: Option<u64>) -> Self {
        // Starts behind every id of that generation.
        let generation = generation.map_or(0, |generation| generation as i64 + 1);
        Page {
            after: (generation, String::new()),
            with_removed: generation > 0,
            is_last: false,
        }
    }

    /// No tools at all.
    fn none() -> Self {
        Page {
            is_last: true,
            ..Page::after(None)
        }
    }

    /// The next rows; `None` at the end.
    async fn next(
        &mut self,
        connection: &mut PgConnection,
        catalog: i64,
    ) -> Result<Option<Rows>, StoreError> {
        if self.is_last {
            return Ok(None);
        }
        let rows = sqlx::query(
            "SELECT id, server, generation, hash, json FROM tools
             WHERE catalog = $1 AND (generation, id) > ($2, $3) AND (json IS NOT NULL OR $4)
             ORDER BY generation, id LIMIT $5",
        )
        .bind(catalog)
        .bind(self.after.0)
        .bind(&self.after.1)
        .bind(self.with_removed)
        .bind(PAGE)
        .fetch_all(connection)
        .await?;
        self.is_last = (rows.len() as i64) < PAGE;
        let mut found = Rows {
            tools: Vec::new(),
            removed: Vec::new(),
        };
        for row in &rows {
            let (id, server): (String, String) = (row.try_get("id")?, row.try_get("server")?);
            match row.try_get::<Option<String>, _>("json")? {
                None => found.removed.push(tool_id(&id, &server)?),
                Some(json) => found.tools.push(tool(&id, &json, row.try_get("hash")?)?),
            }
            self.after = (row.try_get("generation")?, id);
        }
        Ok(Some(found))
    }
}
