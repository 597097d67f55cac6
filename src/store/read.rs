//! What changed in a catalog of the store since a generation, in one consistent view.

use std::path::Path;

use sqlx::{PgConnection, Row};
use toolscout_index::{Ranker, Settings, Tool, ToolId};

use super::error::StoreError;
use super::row::{parse_settings, tool_id};
use super::{READ_LIMIT, SharedStore, within};

/// Tools in a page.
const PAGE: i64 = 1000;

/// A part of what changed.
pub enum Part {
    /// Tools as they are now, which were added or changed.
    Tools(Vec<Tool>),
    /// Tools that are no longer there.
    Removed(Vec<ToolId>),
    /// The settings as they are now.
    Settings(Settings),
    /// The catalog's own ranker as it is now.
    Ranker(Option<Ranker>),
}

/// Where a node is.
pub struct Since {
    /// It has everything up to here; `None` for nothing at all.
    pub generation: Option<u64>,
    /// Tells the ranker whether it changed or not: the node's file may be an older one.
    pub with_ranker: bool,
}

impl SharedStore {
    /// Gives everything of a catalog that changed since, part by part, and returns the generation that
    /// this leads to.
    ///
    /// # Errors
    /// [`StoreError::Deleted`], and what `apply` returns.
    pub(super) async fn changes_since(
        &self,
        (id, source): (i64, &str),
        since: Since,
        apply: &mut dyn FnMut(Part) -> Result<(), StoreError>,
    ) -> Result<u64, StoreError> {
        self.prepare().await?;
        if self.source(id).as_deref() != Some(source) {
            // Another database answers under the address.
            return Err(StoreError::Deleted);
        }
        let begin = async {
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
            Ok(self.pool.begin_with(begin).await?)
        };
        let mut transaction = within(READ_LIMIT, begin).await?;
        let head = within(READ_LIMIT, head(&mut transaction, id)).await?;
        let known = since.generation.unwrap_or(0);
        if head.generation > known || since.generation.is_none() {
            if head.settings_generation > known {
                apply(Part::Settings(parse_settings(head.settings)?))?;
            }
            let mut page = Page::after(since.generation);
            while let Some(rows) = within(READ_LIMIT, page.next(&mut transaction, id)).await? {
                apply(Part::Removed(rows.removed))?;
                apply(Part::Tools(rows.tools))?;
            }
        }
        if since.with_ranker || head.ranker_generation > known {
            apply(Part::Ranker(
                within(READ_LIMIT, ranker(&mut transaction, id)).await?,
            ))?;
        }
        // It only read, so a failure to end it loses nothing.
        let _ = within(READ_LIMIT, async { Ok(transaction.rollback().await?) }).await;
        self.hub.note_answer();
        Ok(head.generation)
    }
}

/// The catalog's own row.
struct Head {
    generation: u64,
    settings: Option<String>,
    settings_generation: u64,
    ranker_generation: u64,
}

async fn head(connection: &mut PgConnection, id: i64) -> Result<Head, StoreError> {
    let row = sqlx::query(
        "SELECT generation, settings, settings_generation, ranker_generation FROM catalogs WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(connection)
    .await?
    .ok_or(StoreError::Deleted)?;
    let number = |column: &str| row.try_get::<i64, _>(column).map(|number| number as u64);
    Ok(Head {
        generation: number("generation")?,
        settings: row.try_get("settings")?,
        settings_generation: number("settings_generation")?,
        ranker_generation: number("ranker_generation")?,
    })
}

async fn ranker(connection: &mut PgConnection, id: i64) -> Result<Option<Ranker>, StoreError> {
    let bytes: Option<Vec<u8>> = sqlx::query_scalar("SELECT ranker FROM catalogs WHERE id = $1")
        .bind(id)
        .fetch_one(connection)
        .await?;
    let read = |bytes: Vec<u8>| Ranker::read(&bytes, Path::new("of the store"));
    Ok(bytes.map(read).transpose()?)
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
        // Behind every id of that generation.
        let generation = generation.map_or(0, |generation| generation as i64 + 1);
        Page {
            after: (generation, String::new()),
            with_removed: generation > 0,
            is_last: false,
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

/// A tool whose row is as it was written.
fn tool(id: &str, json: &str, hash: Vec<u8>) -> Result<Tool, StoreError> {
    let damaged = |reason: String| {
        StoreError::Refused(format!(
            "the store has a tool {id:?} that cannot be used: {reason}"
        ))
    };
    if blake3::hash(json.as_bytes()).as_bytes() != hash.as_slice() {
        return Err(damaged("it is not what was written".to_owned()));
    }
    let tool: Tool = serde_json::from_str(json).map_err(|error| damaged(error.to_string()))?;
    if tool.id.as_str() != id {
        return Err(damaged(format!("it is {:?}", tool.id.as_str())));
    }
    Ok(tool)
}
