//! Open approvals in the store: a call that waits on one node is answered on any. The first answer that
//! is stored counts, and the node that waits learns of it by a message, or within seconds by asking.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use tokio::time::timeout;

use super::error::StoreError;
use super::row::text;
use super::{PostgresStore, READ_LIMIT, WRITE_LIMIT};
use toolscout_base::principal::OwnerScope;
use toolscout_gate::gate::{
    Answer, ApprovalBoard, ApprovalRequest, BoardError, Caller, OpenApproval,
};

/// How often a node that waits asks, besides being told.
const LOOK: Duration = Duration::from_secs(2);

/// The condition that a request can be answered: in time, and by a node that is alive.
const IS_OPEN: &str = "answer IS NULL AND expires_at > clock_timestamp() AND EXISTS (
    SELECT 1 FROM turns
    WHERE turns.conversation = approvals.conversation AND turns.node = approvals.node
      AND status = 'running' AND leased_until >= clock_timestamp())";

/// The open approvals of a store.
pub struct SharedApprovals {
    store: Arc<PostgresStore>,
}

impl SharedApprovals {
    /// The open approvals of this store.
    pub fn new(store: &Arc<PostgresStore>) -> Self {
        SharedApprovals {
            store: Arc::clone(store),
        }
    }

    async fn stored_answer(&self, id: &str) -> Result<Option<Answer>, StoreError> {
        let read = async {
            let answer: Option<Option<String>> =
                sqlx::query_scalar("SELECT answer FROM approvals WHERE id = $1")
                    .bind(id)
                    .fetch_optional(&self.store.pool)
                    .await?;
            Ok(answer.flatten())
        };
        parsed(self.store.ask(READ_LIMIT, read).await?)
    }

    async fn set_answer(
        &self,
        scope: &OwnerScope,
        id: &str,
        answer: &Answer,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.store.pool.begin().await?;
        let sql = format!(
            "UPDATE approvals SET answer = $3
             WHERE id = $1 AND ($2::text IS NULL OR owner = $2) AND {IS_OPEN}"
        );
        let answered = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(id)
            .bind(scope.owner())
            .bind(serde_json::to_string(answer).unwrap_or_default())
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        // In one transaction, so that a node that is told of the answer also finds it.
        if answered > 0 {
            self.store.tell(&mut transaction, &message(id)).await?;
            transaction.commit().await?;
        }
        Ok(answered > 0)
    }

    async fn read_waiting(
        &self,
        owner: &str,
        conversation: &str,
    ) -> Result<Vec<OpenApproval>, StoreError> {
        let sql = format!(
            "SELECT id, request, floor(1000 * extract(epoch FROM expires_at - clock_timestamp()))::bigint AS left_ms
             FROM approvals WHERE owner = $1 AND conversation = $2 AND {IS_OPEN}"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(text(owner))
            .bind(conversation.as_bytes())
            .fetch_all(&self.store.pool)
            .await?;
        let mut waiting = Vec::with_capacity(rows.len());
        for row in rows {
            let request: String = row.try_get("request")?;
            let left_ms: i64 = row.try_get("left_ms")?;
            waiting.push(OpenApproval {
                id: row.try_get("id")?,
                expires_in_ms: left_ms.max(0) as u64,
                request: serde_json::from_str(&request).map_err(unreadable)?,
            });
        }
        Ok(waiting)
    }
}

#[async_trait]
impl ApprovalBoard for SharedApprovals {
    async fn publish(
        &self,
        caller: &Caller,
        id: &str,
        request: &ApprovalRequest,
        within: Duration,
    ) -> Result<(), BoardError> {
        let publish = async {
            sqlx::query(
                "INSERT INTO approvals (id, owner, conversation, request, node, expires_at)
                 VALUES ($1, $2, $3, $4, $5, clock_timestamp() + make_interval(secs => $6))",
            )
            .bind(id)
            .bind(text(&caller.who))
            .bind(caller.conversation.as_bytes())
            .bind(serde_json::to_string(request).unwrap_or_default())
            .bind(&self.store.node.instance)
            .bind(within.as_secs_f64())
            .execute(&self.store.pool)
            .await?;
            Ok(())
        };
        let published = self.store.ask(READ_LIMIT, publish).await;
        published.map_err(failed)
    }

    async fn answered(&self, id: &str) -> Answer {
        let (mut told, wanted) = (self.store.listen_in(), message(id));
        loop {
            // If the store cannot be asked now, it is asked again in a moment.
            if let Ok(Some(answer)) = self.stored_answer(id).await {
                return answer;
            }
            let heard = async {
                // A receiver that lagged behind returns an error, and then looks too.
                while told.recv().await.is_ok_and(|message| message != wanted) {}
            };
            let _ = timeout(LOOK, heard).await;
        }
    }

    async fn answer(
        &self,
        scope: &OwnerScope,
        id: &str,
        answer: &Answer,
    ) -> Result<bool, BoardError> {
        if id.contains('\0') {
            // PostgreSQL stores no text with this character, so nothing can be found.
            return Ok(false);
        }
        let set = self.set_answer(scope, id, answer);
        self.store.ask(WRITE_LIMIT, set).await.map_err(failed)
    }

    async fn waiting(
        &self,
        owner: &str,
        conversation: &str,
    ) -> Result<Vec<OpenApproval>, BoardError> {
        let read = self.read_waiting(owner, conversation);
        self.store.ask(READ_LIMIT, read).await.map_err(failed)
    }

    async fn close(&self, id: &str) -> Result<Option<Answer>, BoardError> {
        let close = async {
            let answer: Option<Option<String>> =
                sqlx::query_scalar("DELETE FROM approvals WHERE id = $1 RETURNING answer")
                    .bind(id)
                    .fetch_optional(&self.store.pool)
                    .await?;
            parsed(answer.flatten())
        };
        self.store.ask(READ_LIMIT, close).await.map_err(failed)
    }

    fn forget(&self, id: &str) {
        let (board, id) = (SharedApprovals::new(&self.store), id.to_owned());
        // If this fails, the approval expires, and the next question of the conversation deletes it.
        self.store
            .runtime
            .spawn(async move { board.close(&id).await.map(drop) });
    }
}

/// What nodes are told of an answer.
fn message(id: &str) -> String {
    format!("approval {id}")
}

fn parsed(answer: Option<String>) -> Result<Option<Answer>, StoreError> {
    match answer {
        Some(text) => serde_json::from_str(&text).map_err(unreadable),
        None => Ok(None),
    }
}

fn unreadable(error: serde_json::Error) -> StoreError {
    StoreError::Refused(format!(
        "the store has an approval that this version cannot read: {error}"
    ))
}

fn failed(error: StoreError) -> BoardError {
    BoardError {
        reason: error.to_string(),
    }
}
