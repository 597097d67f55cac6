//! Reads a table of PostgreSQL that somebody else fills, with vectors of pgvector in one of its columns.

mod sql;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow, PgSslMode};
use sqlx::{ConnectOptions, Postgres, QueryBuilder, Row};
use tokio::time::timeout;
use toolscout_base::breaker::{Breaker, Permit};
use toolscout_base::config::{ExternalIndex, ExternalSettings};

use self::sql::{Column, Columns};
use crate::deadline::Deadline;
use crate::engine::{Ask, Engine, Hits, Listed, Page, What, Which, Writable};
use crate::failure::{Cause, Failure};
use crate::layout::{Label, Layout};

/// Connections, of which each runs one of the searches of a query.
const MAX_CONNECTIONS: u32 = 6;
/// The first version with indexes of HNSW.
const LEAST: (u64, u64) = (0, 5);
/// Neighbours that an index looks at. pgvector gives no more than that, but for its iterative scans from 0.8 on.
const LOOK_AROUND: &str = "400";
/// Words whose frequencies are asked for at a time.
const MAX_COUNTED: usize = 24;

/// A table of PostgreSQL.
pub struct PgVector {
    pool: PgPool,
    breaker: Arc<OneServer>,
    table: String,
    shown: String,
    settings: ExternalSettings,
    columns: Mutex<Option<Arc<Columns>>>,
}

struct OneServer(Breaker);

impl AsRef<Breaker> for OneServer {
    fn as_ref(&self) -> &Breaker {
        &self.0
    }
}

impl PgVector {
    /// The table of these settings. It connects when it is first asked for something.
    ///
    /// # Errors
    /// What is wrong with the address or the password.
    pub fn new(settings: &ExternalSettings, index: &ExternalIndex) -> Result<Self, Failure> {
        let shown = settings.store.to_string();
        let refused = |reason: String| Failure::new(Cause::Request, reason).at(&shown);
        if let (Some(variable), None) = (settings.secret_env(), &settings.secret) {
            let reason = format!("its password is missing: set the variable {variable}");
            return Err(Failure::new(Cause::Key, reason).at(&shown));
        }
        let ([server], Some((database, table))) =
            (index.servers.as_slice(), index.index.split_once('/'))
        else {
            return Err(refused("it names several servers; name one".to_owned()));
        };
        toolscout_base::tls::provide();
        let timeout = settings.timeout().as_millis().to_string();
        let mut options = PgConnectOptions::new()
            .host(server.host_str().unwrap_or_default())
            .port(server.port().unwrap_or(5432))
            .database(database)
            .application_name("toolscout")
            .disable_statement_logging()
            .ssl_mode(match index.has_tls {
                true => PgSslMode::VerifyFull,
                false => PgSslMode::Disable,
            })
            // What an older pgvector does not know, it ignores.
            .options([
                ("statement_timeout", timeout.as_str()),
                ("default_transaction_read_only", "on"),
                // Of requests with common words alone, it would say so in each search.
                ("client_min_messages", "warning"),
                ("hnsw.ef_search", LOOK_AROUND),
                ("hnsw.iterative_scan", "relaxed_order"),
                ("ivfflat.probes", "20"),
                ("ivfflat.iterative_scan", "relaxed_order"),
            ]);
        if let Some(user) = &settings.user {
            options = options.username(user);
        }
        if let Some(secret) = &settings.secret {
            options = options.password(secret.expose());
        }
        let pool = PgPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(settings.timeout())
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(options);
        Ok(PgVector {
            pool,
            breaker: Arc::new(OneServer(Breaker::default())),
            table: table.to_owned(),
            shown,
            settings: settings.clone(),
            columns: Mutex::default(),
        })
    }

    /// The rows of a statement.
    async fn rows(
        &self,
        mut statement: QueryBuilder<Postgres>,
        limit: Duration,
    ) -> Result<Vec<PgRow>, Failure> {
        let permit = Permit::of(Arc::clone(&self.breaker))
            .map_err(|reason| Failure::new(Cause::Away, reason).at(&self.shown))?;
        // Dropped if the client of a search goes away.
        let permit = permit.that_may_be_dropped();
        let asked = statement.build().fetch_all(&self.pool);
        let rows = match timeout(limit, asked).await {
            Ok(rows) => rows.map_err(|error| failure_of(&error)),
            // A caller with little time says nothing about the server. Some of it has passed before a request is sent.
            Err(_) if limit < self.settings.timeout() * 9 / 10 => {
                permit.give_back();
                return Err(Failure::timeout(limit).at(&self.shown));
            }
            Err(_) => Err(Failure::timeout(limit)),
        };
        permit.close(rows.as_ref().err());
        rows.map_err(|failure| {
            let variable = self.settings.secret_env();
            failure.naming(variable).at(&self.shown)
        })
    }

    /// The columns of the table, as they were when the layout was last read.
    async fn columns(&self, limit: Duration) -> Result<Arc<Columns>, Failure> {
        let known = self.columns.lock().clone();
        match known {
            Some(columns) => Ok(columns),
            None => self.read_columns(limit).await,
        }
    }

    async fn read_columns(&self, limit: Duration) -> Result<Arc<Columns>, Failure> {
        let at = |failure: Failure| failure.at(&self.shown);
        let rows = self.rows(sql::columns(&self.table), limit).await?;
        if rows.is_empty() {
            let reason = "there is no such table that this user sees; name another in the address, as SCHEMA.TABLE where it \
                          is not in the schema public";
            return Err(at(Failure::new(Cause::Missing, reason)));
        }
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            all.push(Column {
                name: text(&row, 0)?,
                kind: text(&row, 1)?,
                operators: text(&row, 2)?,
            });
        }
        let Some(fields) = &self.settings.fields else {
            let reason = "name its columns in the table fields";
            return Err(at(Failure::new(Cause::Request, reason)));
        };
        let columns = Columns::of(&self.table, fields, all).map_err(at)?;
        let columns = Arc::new(columns);
        *self.columns.lock() = Some(Arc::clone(&columns));
        Ok(columns)
    }

    async fn hits(
        &self,
        columns: &Columns,
        ask: &Ask<'_>,
        limit: Duration,
    ) -> Result<Hits, Failure> {
        let Some(statement) = columns.search(ask) else {
            return Ok(Hits::default());
        };
        let rows = self.rows(statement, limit).await?;
        let mut hits = Hits::default();
        for row in rows.iter().take(ask.size) {
            hits.ids.push(text(row, 0)?);
        }
        if matches!(ask.what, What::All) {
            hits.total = Some(rows.len() as u64);
        }
        Ok(hits)
    }

    async fn one_count(
        &self,
        statement: QueryBuilder<Postgres>,
        limit: Duration,
    ) -> Result<u64, Failure> {
        let rows = self.rows(statement, limit).await?;
        let row = rows.first().ok_or_else(|| Failure::answer("count"))?;
        number(row, 0)
    }
}

#[async_trait]
impl Engine for PgVector {
    fn product(&self) -> &'static str {
        "PostgreSQL with pgvector"
    }

    fn index(&self) -> &str {
        &self.table
    }

    fn shown(&self) -> &str {
        &self.shown
    }

    fn timeout(&self) -> Duration {
        self.settings.timeout()
    }

    async fn version(&self, limit: Duration) -> Result<String, Failure> {
        let rows = self.rows(sql::version(), limit).await?;
        let row = rows.first().ok_or_else(|| Failure::answer("version"))?;
        let (postgres, pgvector) = (text(row, 0)?, text(row, 1)?);
        let mut parts = pgvector.split('.').map_while(|part| part.parse().ok());
        let found: (u64, u64) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        if found < LEAST {
            let has = match pgvector.as_str() {
                "" => "it has no extension vector".to_owned(),
                version => format!("it has pgvector {version}"),
            };
            let reason = format!(
                "{has}; toolscout needs {}.{} or newer, from `CREATE EXTENSION vector` in this database",
                LEAST.0, LEAST.1
            );
            return Err(Failure::new(Cause::Version, reason).at(&self.shown));
        }
        Ok(format!("{pgvector} in {postgres}"))
    }

    async fn layout(&self, limit: Duration) -> Result<(Layout, u64), Failure> {
        let columns = self.read_columns(limit).await?;
        Ok((Layout::Mapped(Box::new(columns.fields().clone())), 0))
    }

    async fn find(
        &self,
        _layout: &Layout,
        asks: &[Ask<'_>],
        limit: Duration,
    ) -> Result<Vec<Result<Hits, Failure>>, Failure> {
        let deadline = Deadline::of(limit);
        let columns = self.columns(limit).await?;
        let limit = deadline.left();
        let all = asks.iter().map(|ask| self.hits(&columns, ask, limit));
        Ok(join_all(all).await)
    }

    async fn documents(
        &self,
        _layout: &Layout,
        ids: &[String],
        limit: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let deadline = Deadline::of(limit);
        let columns = self.columns(limit).await?;
        let rows = self.rows(columns.documents(ids), deadline.left()).await?;
        rows.iter().map(document).collect()
    }

    async fn page(
        &self,
        _layout: &Layout,
        listed: &Listed<'_>,
        limit: Duration,
    ) -> Result<Page, Failure> {
        let deadline = Deadline::of(limit);
        let columns = self.columns(limit).await?;
        let rows = self.rows(columns.page(listed), deadline.left()).await?;
        page(&rows, listed.size)
    }

    async fn sample(
        &self,
        _layout: &Layout,
        from: Option<&Value>,
        size: usize,
        limit: Duration,
    ) -> Result<Page, Failure> {
        let deadline = Deadline::of(limit);
        let columns = self.columns(limit).await?;
        let rows = self
            .rows(columns.sample(from, size), deadline.left())
            .await?;
        page(&rows, size)
    }

    async fn frequencies(
        &self,
        _layout: &Layout,
        terms: &[(String, String)],
        limit: Duration,
    ) -> Result<std::collections::HashMap<String, u64>, Failure> {
        let deadline = Deadline::of(limit);
        let columns = self.columns(limit).await?;
        let terms = &terms[..terms.len().min(MAX_COUNTED)];
        let mut frequencies = std::collections::HashMap::new();
        let Some(statement) = columns.frequencies(terms) else {
            return Ok(frequencies);
        };
        let rows = self.rows(statement, deadline.left()).await?;
        let row = rows.first().ok_or_else(|| Failure::answer("counts"))?;
        for (place, (term, _)) in terms.iter().enumerate() {
            frequencies.insert(term.clone(), number(row, place)?);
        }
        Ok(frequencies)
    }

    async fn count(
        &self,
        _layout: &Layout,
        _which: Which,
        limit: Duration,
    ) -> Result<u64, Failure> {
        // Each row with a name is a tool.
        let deadline = Deadline::of(limit);
        let columns = self.columns(limit).await?;
        self.one_count(columns.count_all(), deadline.left()).await
    }

    async fn values(
        &self,
        _layout: &Layout,
        label: Label,
        most: usize,
        limit: Duration,
    ) -> Result<Vec<(String, usize)>, Failure> {
        let deadline = Deadline::of(limit);
        let columns = self.columns(limit).await?;
        let Some(statement) = columns.values(label, most) else {
            return Ok(Vec::new());
        };
        let rows = self.rows(statement, deadline.left()).await?;
        let mut values = Vec::with_capacity(rows.len());
        for row in &rows {
            values.push((text(row, 0)?, number(row, 1)? as usize));
        }
        Ok(values)
    }

    async fn bytes(&self, limit: Duration) -> Option<u64> {
        let asked = self.one_count(sql::bytes(&self.table), limit);
        asked.await.ok()
    }

    fn writable(&self) -> Option<&dyn Writable> {
        None
    }
}

/// A text of a row; an empty one for NULL.
fn text(row: &PgRow, place: usize) -> Result<String, Failure> {
    let text: Option<String> = row.try_get(place).map_err(|error| failure_of(&error))?;
    Ok(text.unwrap_or_default())
}

fn number(row: &PgRow, place: usize) -> Result<u64, Failure> {
    let number: i64 = row.try_get(place).map_err(|error| failure_of(&error))?;
    Ok(number.max(0) as u64)
}

fn document(row: &PgRow) -> Result<Value, Failure> {
    let document = text(row, 0)?;
    serde_json::from_str(&document).map_err(|_| Failure::answer("row as JSON"))
}

/// Rows that each have a document, and where a page behind it begins.
fn page(rows: &[PgRow], size: usize) -> Result<Page, Failure> {
    let mut page = Page::default();
    for row in rows {
        page.documents.push(document(row)?);
    }
    if let Some(last) = rows.last().filter(|_| rows.len() >= size) {
        page.next = Some(text(last, 1)?.into());
    }
    Ok(page)
}

fn failure_of(error: &sqlx::Error) -> Failure {
    let Some(told) = error.as_database_error() else {
        let cause = match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnNotFound(_) => Cause::Answer,
            _ => Cause::Away,
        };
        return Failure::new(cause, error.to_string());
    };
    let code = told.code().unwrap_or_default();
    let (cause, next_step) = match code.as_ref() {
        "28P01" | "28000" => (
            Cause::Key,
            "check user, and set the variable of key_env or password_env to a key that is valid",
        ),
        "42501" => (
            Cause::Key,
            "give the user the privilege SELECT on the table",
        ),
        "3D000" => (Cause::Missing, "name another database in the address"),
        "42P01" => (Cause::Missing, "name another table in the address"),
        // The server works, and another statement may be quick.
        "57014" => (
            Cause::Busy,
            "it took longer than timeout_ms; make an index for its columns",
        ),
        "53300" | "53200" | "53000" => (Cause::Busy, "it is asked again later"),
        code if code.starts_with("57P") || code.starts_with("08") => {
            (Cause::Away, "look at its own log")
        }
        _ => (
            Cause::Request,
            "`toolscout external check` compares its columns",
        ),
    };
    let reason = format!("{} ({code}); {next_step}", told.message());
    Failure::new(cause, reason)
}
