//! Conversations in the store. A turn belongs to the node that runs it while that renews its lease; a
//! node that died leaves it with the lease, and any node goes on with the conversation.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use tokio::time::timeout;

use super::error::StoreError;
use super::row::text;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_base::clock::unix_ms;
use toolscout_base::principal::OwnerScope;
use toolscout_state::session::{
    ConversationId, Lease, PastTurn, SessionError, SessionTable, Summary, Turn, TurnEnd,
    TurnEvents, TurnStatus, title_of,
};

/// How long a turn belongs to a node without a word from it, and how often that says a word.
const LEASE_S: f64 = 15.0;
const RENEWAL: Duration = Duration::from_secs(3);
/// How long the end of a turn is tried to be stored while the store is away, and the pauses between.
const SAVE_PATIENCE: Duration = Duration::from_secs(8);
const SAVE_PAUSE: Duration = Duration::from_millis(500);

/// The condition that a conversation is within the scope: `$1` is null or its owner.
const WITHIN: &str = "($1::text IS NULL OR owner = $1)";
/// The condition that a node runs a turn.
const IS_LEASED: &str = "status = 'running' AND leased_until >= clock_timestamp()";

/// The conversations of a store.
pub struct SharedSessions {
    store: Arc<PostgresStore>,
}

impl SharedSessions {
    /// The conversations of this store.
    pub fn new(store: Arc<PostgresStore>) -> Self {
        SharedSessions { store }
    }

    fn ask<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, SessionError> {
        let asked = self.store.runtime.block_on(self.store.ask(limit, work));
        asked.map_err(unavailable)
    }

    /// A statement about one conversation within a scope, whose parameters are `$1` and `$2`.
    fn rows(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
        sql: String,
    ) -> Result<Vec<PgRow>, SessionError> {
        self.ask(READ_LIMIT, async {
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(scope.owner())
                .bind(conversation.as_str().as_bytes());
            Ok(rows.fetch_all(&self.store.pool).await?)
        })
    }

    async fn begin(
        &self,
        conversation: &ConversationId,
        owner: &str,
        agent: &str,
        question: &str,
    ) -> Result<Result<i64, SessionError>, StoreError> {
        let (id, now) = (conversation.as_str().as_bytes(), now_ms());
        let mut transaction = self.store.pool.begin().await?;
        // The upsert locks the row until the end, so that only one turn of a conversation begins at a
        // time.
        let owned: Option<String> = sqlx::query_scalar(
            "INSERT INTO conversations (id, title, owner, agent, created_ms, updated_ms)
             VALUES ($1, $2, $3, $5, $4, $4)
             ON CONFLICT (id) DO UPDATE SET updated_ms = $4 WHERE conversations.owner = $3
             RETURNING agent",
        )
        .bind(id)
        .bind(text(&title_of(question)))
        .bind(owner)
        .bind(now)
        .bind(text(agent))
        .fetch_optional(&mut *transaction)
        .await?;
        // Returning early drops the transaction, which undoes the upsert above.
        let conversation = conversation.to_string();
        let Some(of_conversation) = owned else {
            return Ok(Err(SessionError::NotOwned { conversation }));
        };
        if of_conversation != agent {
            return Ok(Err(SessionError::OtherAgent {
                conversation,
                agent: of_conversation,
            }));
        }
        if is_running(&mut transaction, id).await? {
            return Ok(Err(SessionError::Busy { conversation }));
        }
        // A turn that is still marked as running was left by a node that died, and so were its
        // approvals.
        for left in [
            "UPDATE turns SET status = 'interrupted' WHERE conversation = $1 AND status = 'running'",
            "DELETE FROM approvals WHERE conversation = $1",
        ] {
            sqlx::query(left)
                .bind(id)
                .execute(&mut *transaction)
                .await?;
        }
        let number = sqlx::query_scalar(
            "INSERT INTO turns (conversation, number, question, status, created_ms, node, leased_until)
             SELECT $1, coalesce(max(number), 0) + 1, $2, 'running', $3, $4,
                    clock_timestamp() + make_interval(secs => $5)
             FROM turns WHERE conversation = $1 RETURNING number",
        )
        .bind(id)
        .bind(text(question))
        .bind(now)
        .bind(&self.store.node.instance)
        .bind(LEASE_S)
        .fetch_one(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(Ok(number))
    }

    /// Stores the end of a turn; false where it belongs to this process no longer.
    async fn end(
        &self,
        conversation: &ConversationId,
        number: i64,
        end: &TurnEnd,
    ) -> Result<bool, StoreError> {
        let id = conversation.as_str().as_bytes();
        let mut transaction = self.store.pool.begin().await?;
        // The rows are locked in the same order as at the beginning of a turn, so that the two cannot
        // deadlock. The toolbox is stored together with the answer: one of another turn would show
        // tools that the model never loaded.
        let update = "UPDATE conversations SET toolbox = $2, updated_ms = $3
             WHERE id = $1 AND EXISTS (
                 SELECT 1 FROM turns
                 WHERE conversation = $1 AND number = $4 AND status = 'running' AND node = $5)";
        let is_own = sqlx::query(update)
            .bind(id)
            .bind(end.toolbox.to_string())
            .bind(now_ms())
            .bind(number)
            .bind(&self.store.node.instance)
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        let ended = sqlx::query(
            "UPDATE turns SET status = $3, answer = $4, error = $5, figures = $6, events = $7,
                 leased_until = NULL
             WHERE conversation = $1 AND number = $2 AND status = 'running' AND node = $8",
        )
        .bind(id)
        .bind(number)
        .bind(end.status.name())
        .bind(text(&end.answer))
        .bind(end.error.as_deref().map(text))
        .bind(json(&end.figures))
        .bind(json(&end.events))
        .bind(&self.store.node.instance)
        .execute(&mut *transaction)
        .await?
        .rows_affected();
        if is_own == 0 || ended == 0 {
            // The turn may have been stored already by a commit whose answer was lost.
            let stored: Option<String> = sqlx::query_scalar(
                "SELECT status FROM turns WHERE conversation = $1 AND number = $2 AND node = $3",
            )
            .bind(id)
            .bind(number)
            .bind(&self.store.node.instance)
            .fetch_optional(&mut *transaction)
            .await?;
            return Ok(stored.is_some_and(|status| status == end.status.name()));
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn set_recommended(
        &self,
        conversation: &ConversationId,
        number: i64,
        questions: &[String],
    ) -> Result<(), StoreError> {
        let id = conversation.as_str().as_bytes();
        let mut transaction = self.store.pool.begin().await?;
        let figures: Option<Option<String>> = sqlx::query_scalar(
            "SELECT figures FROM turns WHERE conversation = $1 AND number = $2 FOR UPDATE",
        )
        .bind(id)
        .bind(number)
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(mut figures) = as_json::<Value>(figures.flatten()) else {
            return Ok(());
        };
        figures["recommended"] = Value::from(questions.to_vec());
        sqlx::query("UPDATE turns SET figures = $3 WHERE conversation = $1 AND number = $2")
            .bind(id)
            .bind(number)
            .bind(figures.to_string())
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }

    async fn renew_lease(
        &self,
        conversation: &ConversationId,
        number: i64,
        events: Option<&TurnEvents>,
    ) -> Result<Lease, StoreError> {
        let is_stopped: Option<bool> = sqlx::query_scalar(
            "UPDATE turns SET leased_until = clock_timestamp() + make_interval(secs => $4),
                 events = coalesce($5, events)
             WHERE conversation = $1 AND number = $2 AND status = 'running' AND node = $3
             RETURNING is_stopped",
        )
        .bind(conversation.as_str().as_bytes())
        .bind(number)
        .bind(&self.store.node.instance)
        .bind(LEASE_S)
        .bind(events.map(json))
        .fetch_optional(&self.store.pool)
        .await?;
        Ok(match is_stopped {
            Some(false) => Lease::Held,
            Some(true) => Lease::Stopped,
            None => Lease::Lost,
        })
    }

    async fn request_stop(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.store.pool.begin().await?;
        let sql = format!(
            "UPDATE turns SET is_stopped = true WHERE conversation = $2 AND {IS_LEASED}
             AND EXISTS (SELECT 1 FROM conversations WHERE id = $2 AND {WITHIN})"
        );
        let stopped = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(scope.owner())
            .bind(conversation.as_str().as_bytes())
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        if stopped > 0 {
            let message = stop_message(conversation);
            self.store.tell(&mut transaction, &message).await?;
            transaction.commit().await?;
        }
        Ok(stopped > 0)
    }

    async fn delete_within(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.store.pool.begin().await?;
        let sql = format!("DELETE FROM conversations WHERE id = $2 AND {WITHIN}");
        let deleted = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(scope.owner())
            .bind(conversation.as_str().as_bytes())
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        // A node that runs a turn of it is told as if the turn was stopped.
        let message = stop_message(conversation);
        self.store.tell(&mut transaction, &message).await?;
        transaction.commit().await?;
        Ok(deleted > 0)
    }
}

#[async_trait]
impl SessionTable for SharedSessions {
    fn begin_turn(
        &self,
        conversation: &ConversationId,
        owner: &str,
        agent: &str,
        question: &str,
    ) -> Result<i64, SessionError> {
        let begun = self.begin(conversation, owner, agent, question);
        self.ask(WRITE_LIMIT, begun)?
    }

    fn agent_of(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Option<String>, SessionError> {
        let sql = format!("SELECT agent FROM conversations WHERE id = $2 AND {WITHIN}");
        let rows = self.rows(scope, conversation, sql)?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let agent = row.try_get("agent").map_err(StoreError::from);
        agent.map(Some).map_err(unavailable)
    }

    fn may_continue(
        &self,
        conversation: &ConversationId,
        owner: &str,
    ) -> Result<bool, SessionError> {
        self.ask(READ_LIMIT, async {
            let is_other = sqlx::query_scalar::<_, bool>(
                "SELECT EXISTS (SELECT 1 FROM conversations WHERE id = $1 AND owner IS DISTINCT FROM $2)",
            )
            .bind(conversation.as_str().as_bytes())
            .bind(owner);
            Ok(!is_other.fetch_one(&self.store.pool).await?)
        })
    }

    fn adopt(&self, conversation: &ConversationId, owner: &str) -> Result<(), SessionError> {
        self.ask(WRITE_LIMIT, async {
            sqlx::query("UPDATE conversations SET owner = $2 WHERE id = $1 AND owner IS NULL")
                .bind(conversation.as_str().as_bytes())
                .bind(owner)
                .execute(&self.store.pool)
                .await?;
            Ok(())
        })
    }

    fn end_turn(
        &self,
        conversation: &ConversationId,
        number: i64,
        end: &TurnEnd,
    ) -> Result<(), SessionError> {
        let begun = Instant::now();
        // Tried again for a while, so that a failover does not lose an answer that took minutes.
        loop {
            match self.ask(WRITE_LIMIT, self.end(conversation, number, end)) {
                Err(SessionError::Unavailable { .. }) if begun.elapsed() < SAVE_PATIENCE => {
                    std::thread::sleep(SAVE_PAUSE);
                }
                Ok(false) => {
                    return Err(SessionError::Lost {
                        conversation: conversation.to_string(),
                    });
                }
                ended => return ended.map(drop),
            }
        }
    }

    fn recommend(
        &self,
        conversation: &ConversationId,
        number: i64,
        questions: &[String],
    ) -> Result<(), SessionError> {
        let recommended = self.set_recommended(conversation, number, questions);
        self.ask(WRITE_LIMIT, recommended)
    }

    fn last_turns(
        &self,
        conversation: &ConversationId,
        numbers: Range<i64>,
        max: usize,
    ) -> Result<Vec<PastTurn>, SessionError> {
        self.ask(READ_LIMIT, async {
            let rows: Vec<(i64, String, String, String, Option<String>)> = sqlx::query_as(
                "SELECT number, question, answer, status, events FROM turns
                 WHERE conversation = $1 AND number >= $2 AND number < $3
                 ORDER BY number DESC LIMIT $4",
            )
            .bind(conversation.as_str().as_bytes())
            .bind(numbers.start)
            .bind(numbers.end)
            .bind(i64::try_from(max).unwrap_or(i64::MAX))
            .fetch_all(&self.store.pool)
            .await?;
            let mut turns = Vec::with_capacity(rows.len());
            for (number, question, answer, status, events) in rows {
                turns.push(PastTurn {
                    number,
                    question,
                    answer,
                    status: TurnStatus::from_name(&status),
                    events: as_json(events).unwrap_or_default(),
                });
            }
            Ok(turns)
        })
    }

    fn toolbox(&self, conversation: &ConversationId) -> Result<Option<Value>, SessionError> {
        self.ask(READ_LIMIT, async {
            let text: Option<Option<String>> =
                sqlx::query_scalar("SELECT toolbox FROM conversations WHERE id = $1")
                    .bind(conversation.as_str().as_bytes())
                    .fetch_optional(&self.store.pool)
                    .await?;
            Ok(as_json(text.flatten()))
        })
    }

    fn list(
        &self,
        scope: &OwnerScope,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Summary>, SessionError> {
        self.ask(READ_LIMIT, async {
            let sql = format!(
                "SELECT id, title, agent, created_ms, updated_ms,
                        (SELECT count(*) FROM turns WHERE conversation = conversations.id) AS turns
                 FROM conversations WHERE {WITHIN} ORDER BY updated_ms DESC, id LIMIT $2 OFFSET $3"
            );
            let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(scope.owner())
                .bind(limit as i64)
                .bind(i64::try_from(offset).unwrap_or(i64::MAX))
                .fetch_all(&self.store.pool)
                .await?;
            rows.iter().map(summary).collect()
        })
    }

    fn turns(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Vec<Turn>, SessionError> {
        let sql = format!(
            "SELECT number, question, answer, error, figures, turns.created_ms,
                    CASE WHEN status <> 'running' OR {IS_LEASED} THEN status ELSE 'interrupted' END AS status
             FROM turns JOIN conversations ON conversations.id = conversation
             WHERE conversation = $2 AND {WITHIN} ORDER BY number"
        );
        let rows = self.rows(scope, conversation, sql)?;
        let turns: Result<Vec<Turn>, StoreError> = rows.iter().map(turn).collect();
        turns.map_err(unavailable)
    }

    fn events(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
        number: i64,
    ) -> Result<Option<TurnEvents>, SessionError> {
        self.ask(READ_LIMIT, async {
            let sql = format!(
                "SELECT events FROM turns JOIN conversations ON conversations.id = conversation
                 WHERE conversation = $2 AND number = $3 AND {WITHIN}"
            );
            let events: Option<Option<String>> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .bind(scope.owner())
                .bind(conversation.as_str().as_bytes())
                .bind(number)
                .fetch_optional(&self.store.pool)
                .await?;
            // A turn without events still exists, so the answer is not `None`.
            Ok(events.map(|text| as_json(text).unwrap_or_default()))
        })
    }

    fn delete(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        self.ask(WRITE_LIMIT, self.delete_within(scope, conversation))
    }

    fn contains(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        let sql = format!("SELECT 1 FROM conversations WHERE id = $2 AND {WITHIN}");
        let rows = self.rows(scope, conversation, sql)?;
        Ok(!rows.is_empty())
    }

    fn is_leased(&self) -> bool {
        true
    }

    fn renew(
        &self,
        conversation: &ConversationId,
        number: i64,
        events: Option<&TurnEvents>,
    ) -> Result<Lease, SessionError> {
        self.ask(READ_LIMIT, self.renew_lease(conversation, number, events))
    }

    async fn renewal_due(&self, conversation: &ConversationId) {
        let (mut told, wanted) = (self.store.listen_in(), stop_message(conversation));
        let heard = async {
            // A receiver that lagged behind returns an error, and then looks too.
            while told.recv().await.is_ok_and(|message| message != wanted) {}
        };
        // Messages that came before `listen_in` are not lost: the store has what they were about.
        let _ = timeout(RENEWAL, heard).await;
    }

    fn runs_elsewhere(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        let sql = format!(
            "SELECT 1 FROM turns JOIN conversations ON conversations.id = conversation
             WHERE conversation = $2 AND {IS_LEASED} AND {WITHIN}"
        );
        let rows = self.rows(scope, conversation, sql)?;
        Ok(!rows.is_empty())
    }

    fn stop_elsewhere(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        self.ask(WRITE_LIMIT, self.request_stop(scope, conversation))
    }
}

/// What nodes are told of a turn that should be stopped.
fn stop_message(conversation: &ConversationId) -> String {
    // Hashed, since a message has a bounded length and cannot have every character.
    let hash = blake3::hash(conversation.as_str().as_bytes());
    format!("stop {}", hash.to_hex())
}

async fn is_running(connection: &mut PgConnection, id: &[u8]) -> Result<bool, StoreError> {
    let sql =
        format!("SELECT EXISTS (SELECT 1 FROM turns WHERE conversation = $1 AND {IS_LEASED})");
    let running = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(id);
    Ok(running.fetch_one(connection).await?)
}

fn summary(row: &PgRow) -> Result<Summary, StoreError> {
    let id: Vec<u8> = row.try_get("id")?;
    Ok(Summary {
        id: String::from_utf8_lossy(&id).into_owned(),
        title: row.try_get("title")?,
        agent: row.try_get("agent")?,
        turns: row.try_get("turns")?,
        created_ms: row.try_get("created_ms")?,
        updated_ms: row.try_get("updated_ms")?,
    })
}

fn turn(row: &PgRow) -> Result<Turn, StoreError> {
    let status: String = row.try_get("status")?;
    let figures: Option<String> = row.try_get("figures")?;
    Ok(Turn {
        number: row.try_get("number")?,
        question: row.try_get("question")?,
        answer: row.try_get("answer")?,
        status: TurnStatus::from_name(&status),
        error: row.try_get("error")?,
        figures: as_json(figures).unwrap_or_default(),
        created_ms: row.try_get("created_ms")?,
    })
}

fn unavailable(error: StoreError) -> SessionError {
    SessionError::Unavailable {
        reason: error.to_string(),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    // Structs of texts and numbers always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

/// What a column has; nothing of what another version wrote in another shape.
fn as_json<T: serde::de::DeserializeOwned>(text: Option<String>) -> Option<T> {
    serde_json::from_str(&text?).ok()
}

fn now_ms() -> i64 {
    unix_ms(SystemTime::now())
}
