//! The tables of one catalog that is pushed down.

use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::error::StoreError;

/// From this many vectors on they are indexed; fewer are compared one by one, in milliseconds.
const MIN_INDEXED_VECTORS: i64 = 10_000;
/// Most dimensions of vectors that pgvector indexes as `halfvec`.
const MAX_DIMENSIONS: usize = 4000;

/// The names of a catalog's tables. All are made of its number.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub catalog: i64,
}

/// An embedder whose vectors of a catalog are kept.
#[derive(Clone, Debug)]
pub struct KeptEmbedder {
    pub number: i32,
    pub id: String,
    pub dimensions: usize,
    /// Tools with all of their vectors.
    pub tools: i64,
}

impl Tables {
    pub fn tools(self) -> String {
        format!("pushed_tools_{}", self.catalog)
    }

    pub fn terms(self) -> String {
        format!("pushed_terms_{}", self.catalog)
    }

    pub fn words(self) -> String {
        format!("pushed_words_{}", self.catalog)
    }

    pub fn vectors(self, embedder: &KeptEmbedder) -> String {
        format!("pushed_vectors_{}_{}", self.catalog, embedder.number)
    }

    /// The names of all of them.
    pub fn all(self, embedders: &[KeptEmbedder]) -> Vec<String> {
        let mut names = vec![self.tools(), self.terms(), self.words()];
        names.extend(embedders.iter().map(|embedder| self.vectors(embedder)));
        names
    }

    /// Creates what is missing, without vectors and indexes.
    pub async fn create(self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let (tools, terms, words) = (self.tools(), self.terms(), self.words());
        execute(
            connection,
            format!(
                "CREATE TABLE {tools} (
                     key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                     id text COLLATE \"C\" NOT NULL UNIQUE,
                     server text COLLATE \"C\" NOT NULL,
                     tags text[] NOT NULL,
                     kind text NOT NULL DEFAULT 'tool',
                     read_only boolean NOT NULL,
                     destructive boolean NOT NULL,
                     name_key text COLLATE \"C\" NOT NULL,
                     full_key text COLLATE \"C\" NOT NULL,
                     length bigint NOT NULL,
                     terms bigint[] NOT NULL,
                     counts bigint[] NOT NULL
                 );
                 CREATE TABLE {terms} (
                     term text COLLATE \"C\" NOT NULL,
                     level smallint NOT NULL,
                     tools bigint NOT NULL,
                     PRIMARY KEY (term, level)
                 );
                 CREATE TABLE {words} (
                     word text COLLATE \"C\" PRIMARY KEY,
                     names bigint NOT NULL,
                     others bigint NOT NULL
                 )"
            ),
        )
        .await
    }

    /// Creates the table of an embedder's vectors.
    pub async fn create_vectors(
        self,
        connection: &mut PgConnection,
        embedder: &KeptEmbedder,
    ) -> Result<(), StoreError> {
        let (vectors, tools) = (self.vectors(embedder), self.tools());
        let dimensions = embedder.dimensions;
        if dimensions > MAX_DIMENSIONS {
            let id = &embedder.id;
            return Err(StoreError::Refused(format!(
                "the embedder {id:?} has {dimensions} dimensions, and the store indexes {MAX_DIMENSIONS} at most; choose \
                 another one for the catalog"
            )));
        }
        execute(
            connection,
            format!(
                "CREATE TABLE {vectors} (
                     key bigint NOT NULL REFERENCES {tools} (key) ON DELETE CASCADE,
                     view smallint NOT NULL,
                     vector halfvec({dimensions}) NOT NULL,
                     PRIMARY KEY (key, view)
                 )"
            ),
        )
        .await
    }

    /// Drops all of them.
    pub async fn drop_all(self, connection: &mut PgConnection) -> Result<(), StoreError> {
        // The tables of vectors go first, since they refer to the tools.
        for embedder in self.embedders(connection).await? {
            execute(
                connection,
                format!("DROP TABLE {}", self.vectors(&embedder)),
            )
            .await?;
        }
        for table in [self.words(), self.terms(), self.tools()] {
            execute(connection, format!("DROP TABLE IF EXISTS {table}")).await?;
        }
        Ok(())
    }

    /// Lets PostgreSQL look at what is in them, so that it chooses the right indexes at once.
    pub async fn analyze(
        self,
        connection: &mut PgConnection,
        embedders: &[KeptEmbedder],
    ) -> Result<(), StoreError> {
        let tables = self.all(embedders);
        execute(connection, format!("ANALYZE {}", tables.join(", "))).await
    }

    /// The embedders whose vectors are kept.
    pub async fn embedders(
        self,
        connection: &mut PgConnection,
    ) -> Result<Vec<KeptEmbedder>, StoreError> {
        let rows = sqlx::query(
            "SELECT number, embedder, dimensions, tools FROM pushed_embedders
             WHERE catalog = $1 ORDER BY number",
        )
        .bind(self.catalog)
        .fetch_all(connection)
        .await?;
        let mut embedders = Vec::with_capacity(rows.len());
        for row in rows {
            let dimensions: i32 = row.try_get("dimensions")?;
            embedders.push(KeptEmbedder {
                number: row.try_get("number")?,
                id: row.try_get("embedder")?,
                dimensions: dimensions as usize,
                tools: row.try_get("tools")?,
            });
        }
        Ok(embedders)
    }

    /// Tools of the catalog, whether its tables have them already or not.
    pub async fn count(self, connection: &mut PgConnection) -> Result<i64, StoreError> {
        let count = sqlx::query_scalar("SELECT tools FROM catalogs WHERE id = $1")
            .bind(self.catalog)
            .fetch_optional(connection)
            .await?;
        count.ok_or(StoreError::Deleted)
    }

    /// How many of them something was written about.
    pub async fn count_enriched(self, connection: &mut PgConnection) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM enrichments WHERE catalog = $1 AND texts IS NOT NULL",
        )
        .bind(self.catalog)
        .fetch_one(connection)
        .await?;
        Ok(count as u64)
    }

    /// The indexes that searches need, each by name with what creates it. They take long for many
    /// tools, so each is created while the tables are written to.
    pub fn indexes(self, embedders: &[KeptEmbedder], vectors: &[i64]) -> Vec<(String, String)> {
        let (tools, words) = (self.tools(), self.words());
        let on_tools = [
            // Without `fastupdate`, new rows go into the index itself and not into a list that searches
            // read through.
            ("terms", "gin (terms) WITH (fastupdate = off)"),
            ("tags", "gin (tags) WITH (fastupdate = off)"),
            ("server", "btree (server)"),
            ("name_key", "btree (name_key)"),
            ("full_key", "btree (full_key)"),
            (
                "name_end",
                "gin (name_key gin_trgm_ops) WITH (fastupdate = off)",
            ),
        ];
        let mut all = Vec::new();
        for (name, how) in on_tools {
            all.push(index(&tools, name, how));
        }
        let near = "gin (word gin_trgm_ops) WITH (fastupdate = off)";
        all.push(index(&words, "near", near));
        for (embedder, vectors) in embedders.iter().zip(vectors) {
            if *vectors >= MIN_INDEXED_VECTORS {
                let table = self.vectors(embedder);
                all.push(index(&table, "nearest", "hnsw (vector halfvec_ip_ops)"));
            }
        }
        all
    }
}

fn index(table: &str, name: &str, how: &str) -> (String, String) {
    let full = format!("{table}_{name}");
    // CONCURRENTLY, so that commits do not wait until the index is built.
    let create = format!("CREATE INDEX CONCURRENTLY {full} ON {table} USING {how}");
    (full, create)
}

/// Runs statements that are made of numbers and the words of this module.
pub async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(connection)
        .await?;
    Ok(())
}

/// Installs what push-down needs of PostgreSQL, where it is missing.
///
/// # Errors
/// [`StoreError::Refused`] where it cannot be had, with what to do.
pub async fn install_extensions(connection: &mut PgConnection) -> Result<(), StoreError> {
    for extension in ["vector", "pg_trgm"] {
        // Not in the schema of the store: there is one for the whole database.
        let sql = format!("CREATE EXTENSION IF NOT EXISTS {extension} SCHEMA public");
        if let Err(error) = execute(connection, sql).await {
            return Err(match error {
                StoreError::Refused(reason) => StoreError::Refused(format!(
                    "push-down needs the extension {extension} of PostgreSQL: {reason}; install pgvector 0.8 or newer on \
                     the server, and create the extension as a user who may"
                )),
                error => error,
            });
        }
    }
    Ok(())
}

/// Where the types and operators of the extensions are found, wherever they are: in this transaction
/// alone where the parameter is true.
const USE_EXTENSIONS: &str = "SELECT set_config('search_path', current_schema() || coalesce((
     SELECT string_agg(DISTINCT ',' || quote_ident(nspname), '')
     FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace
     WHERE extname IN ('vector', 'pg_trgm')
 ), ''), $1)";

/// Lets this transaction use the extensions.
pub async fn use_extensions(connection: &mut PgConnection) -> Result<(), StoreError> {
    let used = sqlx::query(USE_EXTENSIONS).bind(true);
    used.execute(connection).await?;
    Ok(())
}

/// Lets this connection use the extensions until it ends, and lets statements take their time.
pub async fn prepare_to_keep(connection: &mut PgConnection) -> Result<(), StoreError> {
    let used = sqlx::query(USE_EXTENSIONS).bind(false);
    used.execute(&mut *connection).await?;
    execute(
        connection,
        "SET statement_timeout = 0; SET lock_timeout = '60s'".to_owned(),
    )
    .await?;
    // An index of vectors that does not fit takes many times as long to make. A server may have more.
    execute(
        connection,
        "SELECT set_config('maintenance_work_mem', '512MB', false)
         FROM pg_settings WHERE name = 'maintenance_work_mem' AND setting::bigint < 512 * 1024"
            .to_owned(),
    )
    .await
}
