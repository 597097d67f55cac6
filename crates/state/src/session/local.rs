//! Conversations in SQLite: those of a data directory, or in memory.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolscout_index::database::{self, DatabaseError};

use super::{
    ConversationId, OwnerScope, PastTurn, SessionError, SessionTable, Summary, Turn, TurnEnd,
    TurnEvents, TurnStatus, title_of,
};
use toolscout_base::clock::unix_ms;

/// The migrations of the database's schema. A change of the schema adds one.
pub(super) const LAYOUT: &[&str] = &[
    "
    CREATE TABLE IF NOT EXISTS conversations (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
        toolbox TEXT
    ) STRICT;
    CREATE INDEX IF NOT EXISTS conversations_by_update ON conversations (updated_ms DESC, id);
    CREATE TABLE IF NOT EXISTS turns (
        conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        number INTEGER NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL DEFAULT '',
        status TEXT NOT NULL, error TEXT, figures TEXT, created_ms INTEGER NOT NULL,
        PRIMARY KEY (conversation, number)
    ) STRICT, WITHOUT ROWID;",
    "ALTER TABLE conversations ADD COLUMN owner TEXT;",
    "ALTER TABLE turns ADD COLUMN events TEXT;",
    // Earlier versions had one agent.
    "ALTER TABLE conversations ADD COLUMN agent TEXT NOT NULL DEFAULT 'default';",
];

/// The condition that a conversation is within the scope: `:owner` is null or its owner.
const WITHIN: &str = "(:owner IS NULL OR owner = :owner)";

/// The conversations of one database.
pub(super) struct LocalSessions {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl LocalSessions {
    pub(super) fn open(path: &Path) -> Result<Self, SessionError> {
        LocalSessions::with_connection(path, database::open(path, LAYOUT))
    }

    pub(super) fn in_memory() -> Result<Self, SessionError> {
        let connection = Connection::open_in_memory().map_err(DatabaseError::from);
        let prepared = connection.and_then(|connection| database::prepared(connection, LAYOUT));
        LocalSessions::with_connection(Path::new("memory"), prepared)
    }

    fn with_connection(
        path: &Path,
        connection: Result<Connection, DatabaseError>,
    ) -> Result<Self, SessionError> {
        let path = path.to_owned();
        match connection {
            Ok(connection) => Ok(LocalSessions {
                path,
                connection: Mutex::new(connection),
            }),
            Err(source) => Err(SessionError::Database { path, source }),
        }
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, SessionError> {
        let mut connection: MutexGuard<'_, Connection> = self.connection.lock();
        work(&mut connection).map_err(|source| SessionError::Database {
            path: self.path.clone(),
            source: source.into(),
        })
    }

    fn transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, SessionError> {
        self.with(|connection| {
            // An error drops the transaction, which rolls it back.
            let transaction = connection.transaction()?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })
    }

    fn query<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, SessionError> {
        self.with(|connection| {
            connection
                .prepare_cached(sql)?
                .query_map(parameters, read)?
                .collect()
        })
    }
}

impl SessionTable for LocalSessions {
    fn begin_turn(
        &self,
        conversation: &ConversationId,
        owner: &str,
        agent: &str,
        question: &str,
    ) -> Result<i64, SessionError> {
        let now = now_ms();
        let begun = self.transaction(|connection| {
            let owned: Option<String> = connection
                .query_row(
                    "INSERT INTO conversations (id, title, created_ms, updated_ms, owner, agent)
                     VALUES (?1, ?2, ?3, ?3, ?4, ?5)
                     ON CONFLICT (id) DO UPDATE SET updated_ms = iif(agent = ?5, ?3, updated_ms) WHERE owner = ?4
                     RETURNING agent",
                    params![conversation.as_str(), title_of(question), now, owner, agent],
                    |row| row.get(0),
                )
                .optional()?;
            match owned {
                // The upsert returns nothing if the conversation has another owner.
                None => return Ok(Begun::NotOwned),
                Some(other) if other != agent => return Ok(Begun::OtherAgent(other)),
                Some(_) => {}
            }
            // Such a turn was left by a process that ended: this one runs one turn at a time.
            connection.execute(
                "UPDATE turns SET status = 'interrupted' WHERE conversation = ?1 AND status = 'running'",
                [conversation.as_str()],
            )?;
            let number = connection.query_row(
                "INSERT INTO turns (conversation, number, question, status, created_ms)
                 SELECT ?1, coalesce(max(number), 0) + 1, ?2, 'running', ?3 FROM turns WHERE conversation = ?1
                 RETURNING number",
                params![conversation.as_str(), question, now],
                |row| row.get(0),
            )?;
            Ok(Begun::Turn(number))
        })?;
        let conversation = conversation.to_string();
        match begun {
            Begun::Turn(number) => Ok(number),
            Begun::NotOwned => Err(SessionError::NotOwned { conversation }),
            Begun::OtherAgent(agent) => Err(SessionError::OtherAgent {
                conversation,
                agent,
            }),
        }
    }

    fn agent_of(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Option<String>, SessionError> {
        let sql = format!("SELECT agent FROM conversations WHERE id = :id AND {WITHIN}");
        let parameters = named_params! { ":id": conversation.as_str(), ":owner": scope.owner() };
        self.with(|connection| {
            connection
                .query_row(&sql, parameters, |row| row.get(0))
                .optional()
        })
    }

    fn may_continue(
        &self,
        conversation: &ConversationId,
        owner: &str,
    ) -> Result<bool, SessionError> {
        self.with(|connection| {
            let sql =
                "SELECT NOT EXISTS (SELECT 1 FROM conversations WHERE id = ?1 AND owner IS NOT ?2)";
            connection.query_row(sql, [conversation.as_str(), owner], |row| row.get(0))
        })
    }

    fn adopt(&self, conversation: &ConversationId, owner: &str) -> Result<(), SessionError> {
        // Only a conversation without an owner.
        let sql = "UPDATE conversations SET owner = ?2 WHERE id = ?1 AND owner IS NULL";
        self.with(|connection| connection.execute(sql, [conversation.as_str(), owner]))
            .map(drop)
    }

    fn end_turn(
        &self,
        conversation: &ConversationId,
        number: i64,
        end: &TurnEnd,
    ) -> Result<(), SessionError> {
        let figures = serde_json::to_string(&end.figures).unwrap_or_default();
        let events = serde_json::to_string(&end.events).unwrap_or_default();
        self.transaction(|connection| {
            connection.execute(
                "UPDATE turns SET status = ?3, answer = ?4, error = ?5, figures = ?6, events = ?7
                 WHERE conversation = ?1 AND number = ?2",
                params![
                    conversation.as_str(),
                    number,
                    end.status.name(),
                    end.answer,
                    end.error,
                    figures,
                    events
                ],
            )?;
            connection.execute(
                "UPDATE conversations SET toolbox = ?2, updated_ms = ?3 WHERE id = ?1",
                // Stored in the same transaction as the answer: a toolbox of another turn would show
                // tools that the model never loaded.
                params![conversation.as_str(), end.toolbox.to_string(), now_ms()],
            )
        })
        .map(drop)
    }

    fn recommend(
        &self,
        conversation: &ConversationId,
        number: i64,
        questions: &[String],
    ) -> Result<(), SessionError> {
        let questions = Value::from(questions.to_vec()).to_string();
        self.transaction(|connection| {
            connection.execute(
                "UPDATE turns SET figures = json_set(figures, '$.recommended', json(?3))
                 WHERE conversation = ?1 AND number = ?2",
                params![conversation.as_str(), number, questions],
            )
        })
        .map(drop)
    }

    fn last_turns(
        &self,
        conversation: &ConversationId,
        numbers: Range<i64>,
        max: usize,
    ) -> Result<Vec<PastTurn>, SessionError> {
        self.query(
            "SELECT number, question, answer, status, events FROM turns
             WHERE conversation = ?1 AND number >= ?2 AND number < ?3
             ORDER BY number DESC LIMIT ?4",
            params![
                conversation.as_str(),
                numbers.start,
                numbers.end,
                max as i64
            ],
            |row| {
                Ok(PastTurn {
                    number: row.get(0)?,
                    question: row.get(1)?,
                    answer: row.get(2)?,
                    status: TurnStatus::from_name(&row.get::<_, String>(3)?),
                    events: as_json(row.get(4)?).unwrap_or_default(),
                })
            },
        )
    }

    fn toolbox(&self, conversation: &ConversationId) -> Result<Option<Value>, SessionError> {
        // `None` without a conversation, and while its first turn has not ended.
        let text: Option<Option<String>> = self.with(|connection| {
            let sql = "SELECT toolbox FROM conversations WHERE id = ?1";
            connection
                .query_row(sql, [conversation.as_str()], |row| row.get(0))
                .optional()
        })?;
        Ok(as_json(text.flatten()))
    }

    fn list(
        &self,
        scope: &OwnerScope,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Summary>, SessionError> {
        let sql = format!(
            "SELECT id, title, agent, created_ms, updated_ms, (SELECT count(*) FROM turns WHERE conversation = id)
             FROM conversations WHERE {WITHIN} ORDER BY updated_ms DESC, id LIMIT :limit OFFSET :offset"
        );
        let parameters = named_params! { ":owner": scope.owner(), ":limit": limit as i64, ":offset": offset as i64 };
        self.query(&sql, parameters, |row| {
            Ok(Summary {
                id: row.get(0)?,
                title: row.get(1)?,
                agent: row.get(2)?,
                created_ms: row.get(3)?,
                updated_ms: row.get(4)?,
                turns: row.get(5)?,
            })
        })
    }

    fn turns(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Vec<Turn>, SessionError> {
        let sql = format!(
            "SELECT number, question, answer, status, error, figures, turns.created_ms FROM turns
             JOIN conversations ON conversations.id = conversation
             WHERE conversation = :id AND {WITHIN} ORDER BY number"
        );
        self.query(
            &sql,
            named_params! { ":id": conversation.as_str(), ":owner": scope.owner() },
            read_turn,
        )
    }

    fn events(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
        number: i64,
    ) -> Result<Option<TurnEvents>, SessionError> {
        let sql = format!(
            "SELECT events FROM turns JOIN conversations ON conversations.id = conversation
             WHERE conversation = :id AND number = :number AND {WITHIN}"
        );
        let parameters = named_params! {
            ":id": conversation.as_str(), ":number": number, ":owner": scope.owner()
        };
        let text: Option<Option<String>> = self.with(|connection| {
            connection
                .query_row(&sql, parameters, |row| row.get(0))
                .optional()
        })?;
        // A turn without events still exists, so the answer is not `None`.
        Ok(text.map(|text| as_json(text).unwrap_or_default()))
    }

    fn delete(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        let sql = format!("DELETE FROM conversations WHERE id = :id AND {WITHIN}");
        let parameters = named_params! { ":id": conversation.as_str(), ":owner": scope.owner() };
        self.with(|connection| connection.execute(&sql, parameters))
            .map(|deleted| deleted > 0)
    }

    fn contains(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        let sql =
            format!("SELECT EXISTS (SELECT 1 FROM conversations WHERE id = :id AND {WITHIN})");
        let parameters = named_params! { ":id": conversation.as_str(), ":owner": scope.owner() };
        self.with(|connection| connection.query_row(&sql, parameters, |row| row.get(0)))
    }
}

/// What came of beginning a turn.
enum Begun {
    Turn(i64),
    NotOwned,
    OtherAgent(String),
}

fn read_turn(row: &Row<'_>) -> rusqlite::Result<Turn> {
    Ok(Turn {
        number: row.get(0)?,
        question: row.get(1)?,
        answer: row.get(2)?,
        status: TurnStatus::from_name(&row.get::<_, String>(3)?),
        error: row.get(4)?,
        figures: as_json(row.get(5)?).unwrap_or_default(),
        created_ms: row.get(6)?,
    })
}

/// What a column has; nothing of what another version wrote in another shape.
fn as_json<T: DeserializeOwned>(text: Option<String>) -> Option<T> {
    serde_json::from_str(&text?).ok()
}

fn now_ms() -> i64 {
    unix_ms(SystemTime::now())
}
