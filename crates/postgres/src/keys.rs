//! The keys of the store. They are created and revoked under the lock of their head, which gives the
//! generation; each node follows them into a copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::error::StoreError;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_state::keys::{self, Catalogs, Key, KeyCopy, KeyError, KeyTable, Scopes, StoredKey};

/// The name of the head, and what is announced after a change.
const HEAD: &str = "keys";
/// Keys in a page.
const PAGE: i64 = 1000;
const COLUMNS: &str = "id, hash, name, scope, catalogs, profiles, created_at, expires_at, revoked_at, last_used_at, generation";

/// Revokes a key unless it is the last that is accepted and may do everything, as [`Key::operates`]
/// says.
const REVOKE_UNLESS_LAST: &str = "
    WITH operators AS (
        SELECT id FROM keys
        WHERE revoked_at IS NULL AND coalesce(expires_at > $2, true) AND catalogs = '*'
            AND profiles = '' AND 'admin' = ANY (string_to_array(scope, ',')))
    UPDATE keys SET revoked_at = coalesce(revoked_at, $2), generation = $3 WHERE id = $1
        AND (id NOT IN (SELECT id FROM operators) OR EXISTS (SELECT 1 FROM operators WHERE id <> $1))";

const REVOKE: &str =
    "UPDATE keys SET revoked_at = coalesce(revoked_at, $2), generation = $3 WHERE id = $1";

/// The keys of a store, asked each time.
pub struct SharedKeys {
    store: Arc<PostgresStore>,
}

impl SharedKeys {
    /// The keys of this store.
    pub fn new(store: Arc<PostgresStore>) -> Self {
        SharedKeys { store }
    }

    fn ask<T>(
        &self,
        limit: std::time::Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, KeyError> {
        let asked = self.store.runtime.block_on(self.store.ask(limit, work));
        asked.map_err(unavailable)
    }

    fn update(&self, sql: &'static str, id: &str, now_s: u64) -> Result<bool, KeyError> {
        if id.contains('\0') {
            // PostgreSQL stores no text with this character, so nothing can be found.
            return Ok(false);
        }
        self.ask(WRITE_LIMIT, async {
            let mut transaction = self.store.pool.begin().await?;
            let generation = next_generation(&mut transaction).await?;
            let changed = sqlx::query(sql)
                .bind(id)
                .bind(now_s as i64)
                .bind(generation)
                .execute(&mut *transaction)
                .await?
                .rows_affected();
            // If nothing changed, the new generation is not stored either: nodes would read it for
            // nothing.
            if changed > 0 {
                self.store.announce(&mut transaction, HEAD).await?;
                transaction.commit().await?;
            }
            Ok(changed > 0)
        })
    }
}

impl KeyTable for SharedKeys {
    fn insert(&self, stored: &StoredKey) -> Result<(), KeyError> {
        let StoredKey { key, hash } = stored;
        self.ask(WRITE_LIMIT, async {
            let mut transaction = self.store.pool.begin().await?;
            let generation = next_generation(&mut transaction).await?;
            sqlx::query(
                "INSERT INTO keys (id, hash, scope, catalogs, profiles, created_at, expires_at, generation, name)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            )
            .bind(&key.id)
            .bind(hash)
            .bind(key.scopes.to_string())
            .bind(key.catalogs.to_string())
            .bind(keys::profiles_as_text(&key.profiles))
            .bind(key.created_at as i64)
            .bind(key.expires_at.map(|expires_at| expires_at as i64))
            .bind(generation)
            .bind(&key.name)
            .execute(&mut *transaction)
            .await?;
            self.store.announce(&mut transaction, HEAD).await?;
            Ok(transaction.commit().await?)
        })
    }

    fn list(&self) -> Result<Vec<Key>, KeyError> {
        self.ask(READ_LIMIT, async {
            let sql = format!("SELECT {COLUMNS} FROM keys ORDER BY created_at, id");
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
                .fetch_all(&self.store.pool)
                .await?;
            rows.iter().map(|row| Ok(stored_key(row)?.key)).collect()
        })
    }

    fn find(&self, id: &str) -> Result<Option<StoredKey>, KeyError> {
        if id.contains('\0') {
            return Ok(None);
        }
        self.ask(READ_LIMIT, async {
            let sql = format!("SELECT {COLUMNS} FROM keys WHERE id = $1");
            let row = sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(id)
                .fetch_optional(&self.store.pool)
                .await?;
            row.as_ref().map(stored_key).transpose()
        })
    }

    fn revoke(&self, id: &str, now_s: u64) -> Result<bool, KeyError> {
        self.update(REVOKE, id, now_s)
    }

    fn revoke_unless_last(&self, id: &str, now_s: u64) -> Result<bool, KeyError> {
        self.update(REVOKE_UNLESS_LAST, id, now_s)
    }

    fn count_valid(&self, now_s: u64) -> Result<usize, KeyError> {
        self.ask(READ_LIMIT, async {
            let count: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM keys WHERE revoked_at IS NULL AND coalesce(expires_at > $1, true)",
            )
            .bind(now_s as i64)
            .fetch_one(&self.store.pool)
            .await?;
            Ok(count as usize)
        })
    }

    fn note_uses(&self, uses: &BTreeMap<String, u64>) -> Result<(), KeyError> {
        let ids: Vec<&str> = uses.keys().map(String::as_str).collect();
        let times: Vec<i64> = uses.values().map(|used_at| *used_at as i64).collect();
        self.ask(WRITE_LIMIT, async {
            // The generation stays: nodes do not need it, so they have nothing to follow.
            sqlx::query(
                "UPDATE keys SET last_used_at = used_at
                 FROM unnest($1::text[], $2::bigint[]) AS used (used_id, used_at)
                 WHERE id = used_id AND coalesce(last_used_at, 0) < used_at",
            )
            .bind(ids)
            .bind(times)
            .execute(&self.store.pool)
            .await?;
            Ok(())
        })
    }

    fn is_in_use(&self) -> Result<bool, KeyError> {
        self.ask(READ_LIMIT, async {
            let exists = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM keys)");
            Ok(exists.fetch_one(&self.store.pool).await?)
        })
    }
}

impl PostgresStore {
    /// Brings a copy of the keys up to the store.
    pub(super) async fn follow_keys(&self, copy: &KeyCopy) -> Result<(), StoreError> {
        let source = self.prepare().await?.to_owned();
        let head: i64 = sqlx::query_scalar("SELECT generation FROM heads WHERE name = $1")
            .bind(HEAD)
            .fetch_one(&self.pool)
            .await?;
        let known = copy.generation(&source).map_err(unusable)?;
        if known == Some(head) {
            // Keys of a copy are accepted for a limited time after it was last compared with the store.
            return copy.confirm().map_err(unusable);
        }
        // If the store is behind, it was restored from a backup, and all keys are read.
        let known = known.filter(|known| *known < head);
        let changed = self.keys_since(known.unwrap_or(0), head).await?;
        copy.apply(&source, head, &changed, known.is_none())
            .map_err(unusable)
    }

    async fn keys_since(&self, known: i64, head: i64) -> Result<Vec<StoredKey>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM keys WHERE generation <= $1 AND (generation, id) > ($2, $3)
             ORDER BY generation, id LIMIT $4"
        );
        let mut changed = Vec::new();
        // Starts behind every id of the known generation. Keys newer than the head are read the next
        // time.
        let mut after = (known + 1, String::new());
        loop {
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
                .bind(head)
                .bind(after.0)
                .bind(&after.1)
                .bind(PAGE)
                .fetch_all(&self.pool)
                .await?;
            for row in &rows {
                changed.push(stored_key(row)?);
            }
            match rows.last() {
                Some(last) if rows.len() as i64 == PAGE => {
                    after = (last.try_get("generation")?, last.try_get("id")?);
                }
                _ => return Ok(changed),
            }
        }
    }
}

/// Raises the head of the keys, whose row is locked from here on.
async fn next_generation(connection: &mut PgConnection) -> Result<i64, StoreError> {
    let raise = "UPDATE heads SET generation = generation + 1 WHERE name = $1 RETURNING generation";
    let generation = sqlx::query_scalar(raise).bind(HEAD);
    Ok(generation.fetch_one(connection).await?)
}

fn stored_key(row: &PgRow) -> Result<StoredKey, StoreError> {
    let scope: String = row.try_get("scope")?;
    let catalogs: String = row.try_get("catalogs")?;
    let profiles: String = row.try_get("profiles")?;
    let created_at: i64 = row.try_get("created_at")?;
    let [expires_at, revoked_at, last_used_at] = ["expires_at", "revoked_at", "last_used_at"]
        .map(|column| row.try_get::<Option<i64>, _>(column));
    Ok(StoredKey {
        key: Key {
            id: row.try_get("id")?,
            name: row.try_get("name")?,
            scopes: Scopes::read(&scope),
            catalogs: Catalogs::read(&catalogs),
            profiles: keys::profiles_of_text(&profiles),
            created_at: created_at as u64,
            expires_at: expires_at?.map(|seconds| seconds as u64),
            revoked_at: revoked_at?.map(|seconds| seconds as u64),
            last_used_at: last_used_at?.map(|seconds| seconds as u64),
        },
        hash: row.try_get("hash")?,
    })
}

fn unavailable(error: StoreError) -> KeyError {
    KeyError::Unavailable {
        reason: error.to_string(),
    }
}

/// The node's own copy cannot be used.
fn unusable(error: KeyError) -> StoreError {
    StoreError::Refused(error.to_string())
}
