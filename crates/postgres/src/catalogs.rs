//! The catalogs of the store: find, list, create, delete.

use sqlx::Row;
use sqlx::postgres::PgRow;
use toolscout_index::Summary;

use super::error::StoreError;
use super::push::tables::Tables;
use super::row::parse_settings;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_state::shared::{CreatedCatalog, StoredCatalog};

impl PostgresStore {
    /// The catalog of this name.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn find(&self, name: &str) -> Result<Option<StoredCatalog>, StoreError> {
        if name.contains('\0') {
            // PostgreSQL stores no text with this character, so nothing can be found.
            return Ok(None);
        }
        let find = async {
            let row = sqlx::query(
                "SELECT (SELECT identity FROM cluster) AS cluster, id, identity, generation, mark, settings,
                        is_pushed_down
                 FROM catalogs WHERE name = $1",
            )
            .bind(name)
            .fetch_optional(&self.pool)
            .await?;
            row.as_ref().map(stored).transpose()
        };
        self.ask(READ_LIMIT, find).await
    }

    /// What the catalog of this name has, without its copy here.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn summary(&self, name: &str) -> Result<Option<Summary>, StoreError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let read = async {
            let row =
                sqlx::query("SELECT tools, generation, settings FROM catalogs WHERE name = $1")
                    .bind(name)
                    .fetch_optional(&self.pool)
                    .await?;
            let Some(row) = row else { return Ok(None) };
            let (tools, generation): (i64, i64) =
                (row.try_get("tools")?, row.try_get("generation")?);
            Ok(Some(Summary {
                tools: tools as usize,
                generation: generation as u64,
                settings: parse_settings(row.try_get("settings")?)?,
            }))
        };
        self.ask(READ_LIMIT, read).await
    }

    /// The names of all catalogs, sorted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn names(&self) -> Result<Vec<String>, StoreError> {
        let names = async {
            let names = sqlx::query_scalar("SELECT name FROM catalogs ORDER BY name");
            Ok(names.fetch_all(&self.pool).await?)
        };
        self.ask(READ_LIMIT, names).await
    }

    /// The catalog of this name, created unless there are `max_catalogs` already. The name must be one
    /// that the engine accepts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn create(
        &self,
        name: &str,
        max_catalogs: usize,
    ) -> Result<CreatedCatalog, StoreError> {
        // In most cases the catalog exists, and then no lock is needed.
        if let Some(found) = self.find(name).await? {
            return Ok(CreatedCatalog::Before(found));
        }
        let create = async {
            let mut transaction = self.pool.begin().await?;
            // Only one node creates at a time, so that the limit holds over all nodes.
            sqlx::query("LOCK TABLE deleted_catalogs IN SHARE ROW EXCLUSIVE MODE")
                .execute(&mut *transaction)
                .await?;
            let count: i64 = sqlx::query_scalar("SELECT count(*) FROM catalogs WHERE name <> $1")
                .bind(name)
                .fetch_one(&mut *transaction)
                .await?;
            if count as usize >= max_catalogs {
                return Ok(None);
            }
            // Starts after the generations of a former catalog of this name.
            let created: i64 = sqlx::query_scalar(
                "WITH created AS (
                     INSERT INTO catalogs (name, generation)
                     VALUES ($1, coalesce((SELECT generation + 1 FROM deleted_catalogs WHERE name = $1), 0))
                     ON CONFLICT (name) DO NOTHING RETURNING id, generation, mark
                 ), counted AS (
                     INSERT INTO generations (catalog, generation, mark) SELECT * FROM created
                 )
                 SELECT count(*) FROM created",
            )
            .bind(name)
            .fetch_one(&mut *transaction)
            .await?;
            self.announce(&mut transaction, "catalogs").await?;
            transaction.commit().await?;
            Ok(Some(created == 1))
        };
        let created = self.ask(WRITE_LIMIT, create).await?;
        let Some(is_new) = created else {
            return Ok(CreatedCatalog::TooMany);
        };
        // Another node may have deleted it again.
        let found = self.find(name).await?.ok_or(StoreError::Deleted)?;
        Ok(if is_new {
            CreatedCatalog::Now(found)
        } else {
            CreatedCatalog::Before(found)
        })
    }

    /// Deletes the catalog of this name with its tools. False where there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, name: &str) -> Result<bool, StoreError> {
        if name.contains('\0') {
            return Ok(false);
        }
        let delete = async {
            let mut transaction = self.pool.begin().await?;
            let pushed: Option<i64> = sqlx::query_scalar(
                "SELECT catalog FROM catalogs JOIN pushed_catalogs ON catalog = id WHERE name = $1 FOR UPDATE OF catalogs",
            )
            .bind(name)
            .fetch_optional(&mut *transaction)
            .await?;
            // Deleting the catalog's row deletes its other rows, but it does not drop tables.
            if let Some(catalog) = pushed {
                Tables { catalog }.drop_all(&mut transaction).await?;
            }
            let generation: Option<i64> = sqlx::query_scalar(
                "WITH deleted AS (
                         DELETE FROM catalogs WHERE name = $1 RETURNING id, generation
                     ), gone AS (
                         INSERT INTO usage_gone SELECT id FROM deleted
                     )
                     SELECT generation FROM deleted",
            )
            .bind(name)
            .fetch_optional(&mut *transaction)
            .await?;
            let Some(generation) = generation else {
                return Ok(false);
            };
            // The next catalog of this name continues from here, so that one generation never stands
            // for two states.
            sqlx::query(
                "INSERT INTO deleted_catalogs VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET generation = excluded.generation",
            )
            .bind(name)
            .bind(generation)
            .execute(&mut *transaction)
            .await?;
            self.announce(&mut transaction, "catalogs").await?;
            transaction.commit().await?;
            Ok(true)
        };
        self.ask(WRITE_LIMIT, delete).await
    }

    /// Tells all nodes something once the transaction is committed.
    pub(super) async fn announce(
        &self,
        connection: &mut sqlx::PgConnection,
        what: &str,
    ) -> Result<(), StoreError> {
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(self.channel())
            .bind(what)
            .execute(connection)
            .await?;
        Ok(())
    }
}

fn stored(row: &PgRow) -> Result<StoredCatalog, StoreError> {
    let id = row.try_get("id")?;
    let (generation, mark): (i64, i64) = (row.try_get("generation")?, row.try_get("mark")?);
    let (cluster, identity): (String, String) = (row.try_get("cluster")?, row.try_get("identity")?);
    Ok(StoredCatalog {
        id,
        source: source(&cluster, &identity, id),
        generation: generation as u64,
        mark: mark as u64,
        settings: parse_settings(row.try_get("settings")?)?,
        is_pushed_down: row.try_get("is_pushed_down")?,
    })
}

/// The identity of a catalog: the number alone may be given again after an older state was put back.
pub(super) fn source(cluster: &str, identity: &str, id: i64) -> String {
    format!("{cluster}/{identity}/{id}")
}
