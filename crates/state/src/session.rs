//! Stores conversations: their turns, with figures.

mod local;

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolscout_index::database::DatabaseError;
use utoipa::ToSchema;
use uuid::Uuid;

use toolscout_base::principal::OwnerScope;
use toolscout_base::printable::excerpt;

use local::LocalSessions;

/// Longest conversation id, in bytes.
pub const MAX_ID_BYTES: usize = 256;
/// The name of the agent that answers where nobody chose another.
pub const DEFAULT_AGENT: &str = "default";
/// Characters of the first question that are a conversation's title.
const TITLE_CHARS: usize = 80;

/// The id of a conversation. All characters are allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ConversationId(String);

impl ConversationId {
    /// Takes an id.
    ///
    /// # Errors
    /// [`SessionError::InvalidId`] for an empty id or one longer than [`MAX_ID_BYTES`].
    pub fn new(text: impl Into<String>) -> Result<Self, SessionError> {
        let text = text.into();
        match text.len() {
            1..=MAX_ID_BYTES => Ok(ConversationId(text)),
            bytes => Err(SessionError::InvalidId { bytes }),
        }
    }

    /// Generates a new id. Later ids sort after earlier ones.
    pub fn fresh() -> Self {
        ConversationId(Uuid::now_v7().to_string())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a turn is running, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The turn is running.
    Running,
    /// It ended with an answer.
    Answered,
    /// The user stopped it. The text so far is saved.
    Stopped,
    /// It reached its time to live. The text so far is saved.
    Expired,
    /// It ended with an error.
    Failed,
    /// The process ended first.
    Interrupted,
}

impl TurnStatus {
    /// The status as written in JSON and in the database.
    pub fn name(self) -> &'static str {
        match self {
            TurnStatus::Running => "running",
            TurnStatus::Answered => "answered",
            TurnStatus::Stopped => "stopped",
            TurnStatus::Expired => "expired",
            TurnStatus::Failed => "failed",
            TurnStatus::Interrupted => "interrupted",
        }
    }

    /// The status with this name; an unknown one counts as interrupted.
    pub fn from_name(name: &str) -> Self {
        let all = [
            TurnStatus::Running,
            TurnStatus::Answered,
            TurnStatus::Stopped,
            TurnStatus::Expired,
            TurnStatus::Failed,
        ];
        // A later version may write other statuses. Such a turn counts as ended without an answer.
        all.into_iter()
            .find(|status| status.name() == name)
            .unwrap_or(TurnStatus::Interrupted)
    }
}

/// A web page that a tool quoted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reference {
    /// Its URL.
    pub url: String,
    /// Its title; empty if there is none.
    pub title: String,
    /// The beginning of its text.
    pub content: String,
}

/// The figures of a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = TurnFigures)]
pub struct Figures {
    /// Milliseconds to the first text or thinking.
    pub first_token_ms: Option<u64>,
    /// Milliseconds in total.
    pub total_ms: u64,
    /// Number of the model's answers.
    pub rounds: u32,
    /// Number of searches.
    pub searches: u32,
    /// Ids of the called tools, each once, in order.
    pub tools_used: Vec<String>,
    /// Number of injected tools.
    pub tools_injected: usize,
    /// Number of evicted tools.
    pub tools_evicted: usize,
    /// Prompt tokens of all rounds.
    pub tokens_in: u64,
    /// Answer tokens of all rounds.
    pub tokens_out: u64,
    /// True when the provider sent no usage for a round and this program counted the tokens.
    pub tokens_estimated: bool,
    /// Tool tokens saved compared to showing the whole catalog in every round. Negative if that
    /// would have cost less.
    pub tokens_saved: i64,
    /// The web pages that the tools quoted.
    pub references: Vec<Reference>,
    /// The recommended questions.
    pub recommended: Vec<String>,
}

/// The end of a turn, as it is saved.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    /// How it ended.
    pub status: TurnStatus,
    /// The answer, or its text so far.
    pub answer: String,
    /// Why it failed.
    pub error: Option<String>,
    /// Times, tokens and tools of the turn.
    pub figures: Figures,
    /// The state that the agent keeps for the next turn, opaque to this module.
    pub toolbox: Value,
    /// What happened.
    pub events: TurnEvents,
}

/// What happened in a turn, as far as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnEvents {
    /// The events of the run in their order, opaque to this module: arguments without secrets, and
    /// the beginnings of texts and results. Events that the turn itself repeats are left out, and so
    /// is the text that is the answer.
    pub events: Vec<Value>,
    /// True when the turn had more events, or longer texts, than are kept.
    pub truncated: bool,
}

/// A stored turn.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Turn {
    /// Its number within the conversation, from 1.
    pub number: i64,
    /// The question.
    pub question: String,
    /// The answer; empty while the turn runs, or if it failed before the first text.
    pub answer: String,
    /// How it ended.
    pub status: TurnStatus,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Times, tokens and tools of the turn.
    pub figures: Figures,
    /// When it began, in Unix milliseconds.
    pub created_ms: i64,
}

/// An ended turn, as later turns of its conversation see it.
#[derive(Clone, Debug, PartialEq)]
pub struct PastTurn {
    /// Its number within the conversation, from 1.
    pub number: i64,
    /// The question.
    pub question: String,
    /// The answer, or its text so far.
    pub answer: String,
    /// How it ended.
    pub status: TurnStatus,
    /// What happened.
    pub events: TurnEvents,
}

impl PastTurn {
    /// The answer, with a note if the turn did not finish.
    pub fn annotated_answer(&self) -> String {
        if self.status == TurnStatus::Answered {
            return self.answer.clone();
        }
        let status = self.status.name();
        // Without the note a model would take half an answer for a finished one.
        let note = format!("{}\n[this turn was not finished: {status}]", self.answer);
        note.trim_start().to_owned()
    }
}

/// A conversation in a list.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = ConversationSummary)]
pub struct Summary {
    /// Its id.
    pub id: String,
    /// The beginning of its first question.
    pub title: String,
    /// The agent that answers in it.
    pub agent: String,
    /// Number of turns.
    pub turns: i64,
    /// When it began, in Unix milliseconds.
    pub created_ms: i64,
    /// When it was last added to, in Unix milliseconds.
    pub updated_ms: i64,
}

/// Errors of stored conversations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// An id that is empty or too long.
    #[error(
        "a conversation id has 1 to {MAX_ID_BYTES} bytes, this one has {bytes}; choose another"
    )]
    InvalidId {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The conversation has another owner, or none.
    #[error("conversation {conversation} is not yours; leave its id out to begin a new one")]
    NotOwned {
        /// The id that was given.
        conversation: String,
    },
    /// Another agent answers in the conversation.
    #[error(
        "conversation {conversation} is with the agent {agent:?}; leave `agent` out to go on with that, or begin a new \
         conversation"
    )]
    OtherAgent {
        /// The id that was given.
        conversation: String,
        /// The agent that answers in it.
        agent: String,
    },
    /// The database cannot be read or written.
    #[error("the conversations in {} cannot be used: {source}; check the file and the space on its disk", path.display())]
    Database {
        /// The database file.
        path: PathBuf,
        /// The database's error.
        source: DatabaseError,
    },
    /// Another process answers a question of the conversation.
    #[error("conversation {conversation} is still answering; wait for its end or stop it")]
    Busy {
        /// The id that was given.
        conversation: String,
    },
    /// Another process has gone on with the conversation, or deleted it.
    #[error(
        "conversation {conversation} went on elsewhere, and this answer is not stored; ask again"
    )]
    Lost {
        /// The id that was given.
        conversation: String,
    },
    /// The store that several nodes share cannot be asked.
    #[error("the store of the conversations cannot be used now: {reason}")]
    Unavailable {
        /// What the store answered, or why it did not.
        reason: String,
    },
}

/// What became of the lease of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// The turn belongs to this process.
    Held,
    /// Somebody asked to stop it.
    Stopped,
    /// It was given up: another process has gone on with the conversation, or deleted it.
    Lost,
}

/// Where conversations are stored: in a data directory, or in the store that several nodes share.
/// Methods block, at most for the time of a write there.
#[async_trait]
pub trait SessionTable: Send + Sync {
    /// As [`Sessions::begin_turn`].
    ///
    /// # Errors
    /// Those of [`Sessions::begin_turn`].
    fn begin_turn(
        &self,
        conversation: &ConversationId,
        owner: &str,
        agent: &str,
        question: &str,
    ) -> Result<i64, SessionError>;

    /// As [`Sessions::agent_of`].
    ///
    /// # Errors
    /// Those of [`Sessions::agent_of`].
    fn agent_of(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Option<String>, SessionError>;

    /// As [`Sessions::may_continue`].
    ///
    /// # Errors
    /// Those of [`Sessions::may_continue`].
    fn may_continue(
        &self,
        conversation: &ConversationId,
        owner: &str,
    ) -> Result<bool, SessionError>;

    /// As [`Sessions::adopt`].
    ///
    /// # Errors
    /// Those of [`Sessions::adopt`].
    fn adopt(&self, conversation: &ConversationId, owner: &str) -> Result<(), SessionError>;

    /// As [`Sessions::end_turn`].
    ///
    /// # Errors
    /// Those of [`Sessions::end_turn`].
    fn end_turn(
        &self,
        conversation: &ConversationId,
        number: i64,
        end: &TurnEnd,
    ) -> Result<(), SessionError>;

    /// As [`Sessions::recommend`].
    ///
    /// # Errors
    /// Those of [`Sessions::recommend`].
    fn recommend(
        &self,
        conversation: &ConversationId,
        number: i64,
        questions: &[String],
    ) -> Result<(), SessionError>;

    /// As [`Sessions::toolbox`].
    ///
    /// # Errors
    /// Those of [`Sessions::toolbox`].
    fn toolbox(&self, conversation: &ConversationId) -> Result<Option<Value>, SessionError>;

    /// As [`Sessions::list`].
    ///
    /// # Errors
    /// Those of [`Sessions::list`].
    fn list(
        &self,
        scope: &OwnerScope,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Summary>, SessionError>;

    /// As [`Sessions::turns`].
    ///
    /// # Errors
    /// Those of [`Sessions::turns`].
    fn turns(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Vec<Turn>, SessionError>;

    /// As [`Sessions::events`].
    ///
    /// # Errors
    /// Those of [`Sessions::events`].
    fn events(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
        number: i64,
    ) -> Result<Option<TurnEvents>, SessionError>;

    /// As [`Sessions::delete`].
    ///
    /// # Errors
    /// Those of [`Sessions::delete`].
    fn delete(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError>;

    /// As [`Sessions::contains`].
    ///
    /// # Errors
    /// Those of [`Sessions::contains`].
    fn contains(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError>;

    /// As [`Sessions::past_turns`], newest first.
    ///
    /// # Errors
    /// Those of [`Sessions::past_turns`].
    fn last_turns(
        &self,
        conversation: &ConversationId,
        numbers: Range<i64>,
        max: usize,
    ) -> Result<Vec<PastTurn>, SessionError>;

    /// As [`Sessions::is_leased`].
    fn is_leased(&self) -> bool {
        false
    }

    /// As [`Sessions::renew`].
    ///
    /// # Errors
    /// Those of [`Sessions::renew`].
    fn renew(
        &self,
        _: &ConversationId,
        _: i64,
        _: Option<&TurnEvents>,
    ) -> Result<Lease, SessionError> {
        Ok(Lease::Held)
    }

    /// As [`Sessions::renewal_due`].
    async fn renewal_due(&self, _: &ConversationId) {
        std::future::pending().await
    }

    /// As [`Sessions::runs_elsewhere`].
    ///
    /// # Errors
    /// Those of [`Sessions::runs_elsewhere`].
    fn runs_elsewhere(&self, _: &OwnerScope, _: &ConversationId) -> Result<bool, SessionError> {
        Ok(false)
    }

    /// As [`Sessions::stop_elsewhere`].
    ///
    /// # Errors
    /// Those of [`Sessions::stop_elsewhere`].
    fn stop_elsewhere(&self, _: &OwnerScope, _: &ConversationId) -> Result<bool, SessionError> {
        Ok(false)
    }
}

/// The conversations of a table. Methods block, at most for the time of a write.
pub struct Sessions {
    table: Box<dyn SessionTable>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

impl Sessions {
    /// Opens a database file, creating it if missing.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn open(path: &Path) -> Result<Self, SessionError> {
        LocalSessions::open(path).map(Sessions::over)
    }

    /// A database in memory.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn in_memory() -> Result<Self, SessionError> {
        LocalSessions::in_memory().map(Sessions::over)
    }

    /// The conversations of a table.
    pub fn over(table: impl SessionTable + 'static) -> Self {
        Sessions {
            table: Box::new(table),
        }
    }

    /// Begins a turn by saving its question, and returns its number. The owner of the first turn
    /// owns the conversation, and its agent is the agent of all turns. An earlier turn that is still
    /// running was left by a process that ended, and is marked as interrupted.
    ///
    /// # Errors
    /// [`SessionError::NotOwned`], [`SessionError::OtherAgent`], [`SessionError::Database`].
    pub fn begin_turn(
        &self,
        conversation: &ConversationId,
        owner: &str,
        agent: &str,
        question: &str,
    ) -> Result<i64, SessionError> {
        self.table.begin_turn(conversation, owner, agent, question)
    }

    /// The agent that answers in a conversation; `None` if none with this id is within the scope.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn agent_of(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Option<String>, SessionError> {
        self.table.agent_of(scope, conversation)
    }

    /// True when this owner may continue a conversation: it belongs to the owner or does not exist.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn may_continue(
        &self,
        conversation: &ConversationId,
        owner: &str,
    ) -> Result<bool, SessionError> {
        self.table.may_continue(conversation, owner)
    }

    /// Sets the owner of a conversation without one, as versions without owners wrote them.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn adopt(&self, conversation: &ConversationId, owner: &str) -> Result<(), SessionError> {
        self.table.adopt(conversation, owner)
    }

    /// Ends a turn.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn end_turn(
        &self,
        conversation: &ConversationId,
        number: i64,
        end: &TurnEnd,
    ) -> Result<(), SessionError> {
        self.table.end_turn(conversation, number, end)
    }

    /// Adds recommended questions to an ended turn.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn recommend(
        &self,
        conversation: &ConversationId,
        number: i64,
        questions: &[String],
    ) -> Result<(), SessionError> {
        self.table.recommend(conversation, number, questions)
    }

    /// The last `max` turns with these numbers, oldest first.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn past_turns(
        &self,
        conversation: &ConversationId,
        numbers: Range<i64>,
        max: usize,
    ) -> Result<Vec<PastTurn>, SessionError> {
        let mut turns = self.table.last_turns(conversation, numbers, max)?;
        // The table returns the newest first.
        turns.reverse();
        Ok(turns)
    }

    /// The state of the toolbox after the last ended turn.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn toolbox(&self, conversation: &ConversationId) -> Result<Option<Value>, SessionError> {
        self.table.toolbox(conversation)
    }

    /// The conversations within the scope, latest first: at most `limit`, after the first `offset`.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn list(
        &self,
        scope: &OwnerScope,
        limit: usize,
        offset: usize,
    ) -> Result<Vec<Summary>, SessionError> {
        self.table.list(scope, limit, offset)
    }

    /// The turns of a conversation, oldest first; empty if none with this id is within the scope.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn turns(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<Vec<Turn>, SessionError> {
        self.table.turns(scope, conversation)
    }

    /// The events of a turn; `None` if the scope has no such turn. A turn that runs, or that was
    /// interrupted, has none yet, nor have turns that earlier versions wrote.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn events(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
        number: i64,
    ) -> Result<Option<TurnEvents>, SessionError> {
        self.table.events(scope, conversation, number)
    }

    /// Deletes a conversation; false if none with this id is within the scope.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn delete(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        self.table.delete(scope, conversation)
    }

    /// True when a conversation with this id is within the scope.
    ///
    /// # Errors
    /// [`SessionError::Database`].
    pub fn contains(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        self.table.contains(scope, conversation)
    }

    /// Whether a turn belongs to the process that runs it only while that renews its lease. Where
    /// only one process runs turns, none needs one.
    pub fn is_leased(&self) -> bool {
        self.table.is_leased()
    }

    /// Says that this process still runs a turn, with what has happened since it last did.
    ///
    /// # Errors
    /// [`SessionError::Unavailable`].
    pub fn renew(
        &self,
        conversation: &ConversationId,
        number: i64,
        events: Option<&TurnEvents>,
    ) -> Result<Lease, SessionError> {
        self.table.renew(conversation, number, events)
    }

    /// Returns when the lease of a turn should be renewed; at once when another process was asked to
    /// stop it.
    pub async fn renewal_due(&self, conversation: &ConversationId) {
        self.table.renewal_due(conversation).await
    }

    /// True while another process runs a turn of a conversation within the scope.
    ///
    /// # Errors
    /// [`SessionError::Unavailable`].
    pub fn runs_elsewhere(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        self.table.runs_elsewhere(scope, conversation)
    }

    /// Asks the process that runs a turn of a conversation to stop it; false when none within the
    /// scope is running elsewhere.
    ///
    /// # Errors
    /// [`SessionError::Unavailable`].
    pub fn stop_elsewhere(
        &self,
        scope: &OwnerScope,
        conversation: &ConversationId,
    ) -> Result<bool, SessionError> {
        self.table.stop_elsewhere(scope, conversation)
    }
}

/// The title of a conversation that begins with this question.
pub fn title_of(question: &str) -> String {
    excerpt(question.trim(), TITLE_CHARS)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn id(text: &str) -> ConversationId {
        ConversationId::new(text).unwrap()
    }

    fn answered(answer: &str) -> TurnEnd {
        TurnEnd {
            status: TurnStatus::Answered,
            answer: answer.into(),
            error: None,
            figures: Figures {
                rounds: 2,
                ..Figures::default()
            },
            toolbox: serde_json::json!({ "held": [] }),
            events: TurnEvents {
                events: vec![serde_json::json!({ "type": "text", "content": answer })],
                truncated: true,
            },
        }
    }

    #[test]
    fn a_turn_is_saved_from_its_question_on_and_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.db");
        let conversation = id("c1");
        let sessions = Sessions::open(&path).unwrap();
        assert_eq!(
            sessions
                .begin_turn(&conversation, "ada", DEFAULT_AGENT, "first?")
                .unwrap(),
            1
        );
        assert_eq!(
            sessions.turns(&OwnerScope::All, &conversation).unwrap()[0].status,
            TurnStatus::Running
        );
        sessions
            .end_turn(&conversation, 1, &answered("yes"))
            .unwrap();
        sessions
            .recommend(&conversation, 1, &["next?".into()])
            .unwrap();
        sessions
            .begin_turn(&conversation, "ada", DEFAULT_AGENT, "second?")
            .unwrap();
        drop(sessions);

        let sessions = Sessions::open(&path).unwrap();
        assert_eq!(
            sessions
                .begin_turn(&conversation, "ada", DEFAULT_AGENT, "third?")
                .unwrap(),
            3
        );
        let turns = sessions.turns(&OwnerScope::All, &conversation).unwrap();
        assert_eq!(
            (turns[0].answer.as_str(), turns[0].figures.rounds),
            ("yes", 2)
        );
        assert_eq!(turns[0].figures.recommended, ["next?"]);
        assert_eq!(turns[1].status, TurnStatus::Interrupted);
        assert_eq!(
            sessions.toolbox(&conversation).unwrap(),
            Some(serde_json::json!({ "held": [] }))
        );
        let turns = sessions.past_turns(&conversation, 0..3, 30).unwrap();
        let turns: Vec<(&str, String)> = turns
            .iter()
            .map(|turn| (turn.question.as_str(), turn.annotated_answer()))
            .collect();
        assert_eq!(
            turns,
            [
                ("first?", "yes".to_owned()),
                (
                    "second?",
                    "[this turn was not finished: interrupted]".to_owned()
                )
            ]
        );
    }

    #[test]
    fn past_turns_are_the_last_ones_within_their_numbers_with_their_events() {
        let sessions = Sessions::in_memory().unwrap();
        for number in 1..=5 {
            sessions
                .begin_turn(&id("c"), "ada", DEFAULT_AGENT, &format!("q{number}"))
                .unwrap();
            let mut end = answered(&format!("a{number}"));
            end.events.events = vec![serde_json::json!({ "type": "text", "content": number })];
            sessions.end_turn(&id("c"), number, &end).unwrap();
        }
        let past = |numbers, max| sessions.past_turns(&id("c"), numbers, max).unwrap();
        let numbers_of = |numbers, max| -> Vec<i64> {
            past(numbers, max).iter().map(|turn| turn.number).collect()
        };
        assert_eq!(numbers_of(0..6, 2), [4, 5]);
        assert_eq!(numbers_of(2..5, 30), [2, 3, 4]);
        assert!(numbers_of(0..6, 0).is_empty());
        assert_eq!(past(0..6, 1)[0].events.events[0]["content"], 5);
    }

    #[test]
    fn an_id_may_contain_any_characters() {
        let sessions = Sessions::in_memory().unwrap();
        for name in [
            "'; DROP TABLE turns; --",
            "会话 1",
            "../../etc",
            "a\0b",
            "%",
        ] {
            sessions
                .begin_turn(&id(name), "ada", DEFAULT_AGENT, "q")
                .unwrap();
            assert_eq!(
                sessions.turns(&OwnerScope::All, &id(name)).unwrap().len(),
                1,
                "{name:?}"
            );
        }
        assert_eq!(sessions.list(&OwnerScope::All, 10, 0).unwrap().len(), 5);
        assert!(ConversationId::new("").is_err());
        let message = ConversationId::new("x".repeat(257))
            .unwrap_err()
            .to_string();
        assert!(message.contains("this one has 257"), "{message}");
    }

    #[test]
    fn the_events_of_a_turn_are_kept_for_its_owner() {
        let sessions = Sessions::in_memory().unwrap();
        let (ada, bob) = (OwnerScope::Own("ada".into()), OwnerScope::Own("bob".into()));
        sessions
            .begin_turn(&id("c"), "ada", DEFAULT_AGENT, "q")
            .unwrap();
        let events = |scope: &OwnerScope, number| sessions.events(scope, &id("c"), number).unwrap();
        assert_eq!(events(&ada, 1), Some(TurnEvents::default()));
        sessions.end_turn(&id("c"), 1, &answered("a")).unwrap();
        assert_eq!(events(&ada, 1), Some(answered("a").events));
        assert_eq!(events(&OwnerScope::All, 1), Some(answered("a").events));
        assert_eq!((events(&bob, 1), events(&ada, 2)), (None, None));
        sessions.delete(&ada, &id("c")).unwrap();
        assert_eq!(events(&OwnerScope::All, 1), None);
    }

    #[test]
    fn deleting_a_conversation_deletes_its_turns() {
        let sessions = Sessions::in_memory().unwrap();
        sessions
            .begin_turn(&id("c"), "ada", DEFAULT_AGENT, "a long question")
            .unwrap();
        assert_eq!(
            sessions.list(&OwnerScope::All, 1, 0).unwrap()[0].title,
            "a long question"
        );
        assert!(sessions.delete(&OwnerScope::All, &id("c")).unwrap());
        assert!(!sessions.delete(&OwnerScope::All, &id("c")).unwrap());
        assert!(
            sessions
                .turns(&OwnerScope::All, &id("c"))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn a_conversation_is_accessible_to_its_owner_only() {
        let sessions = Sessions::in_memory().unwrap();
        let (ada, bob) = (OwnerScope::Own("ada".into()), OwnerScope::Own("bob".into()));
        sessions
            .begin_turn(&id("c"), "ada", DEFAULT_AGENT, "a question")
            .unwrap();
        assert!(matches!(
            sessions.begin_turn(&id("c"), "bob", DEFAULT_AGENT, "mine?"),
            Err(SessionError::NotOwned { .. })
        ));
        assert_eq!(
            [&ada, &bob, &OwnerScope::All].map(|scope| sessions.list(scope, 10, 0).unwrap().len()),
            [1, 0, 1]
        );
        assert_eq!(
            [&ada, &bob].map(|scope| sessions.turns(scope, &id("c")).unwrap().len()),
            [1, 0]
        );
        assert_eq!(
            ["ada", "bob"].map(|owner| sessions.may_continue(&id("c"), owner).unwrap()),
            [true, false]
        );
        assert!(sessions.may_continue(&id("another"), "bob").unwrap());
        assert!(!sessions.delete(&bob, &id("c")).unwrap());
        sessions.adopt(&id("c"), "bob").unwrap();
        assert!(sessions.delete(&ada, &id("c")).unwrap());
    }

    #[test]
    fn conversations_of_versions_without_owners_belong_to_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.db");
        let old = Connection::open(&path).unwrap();
        // The tables of layout 1.
        old.execute_batch(local::LAYOUT[0]).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        old.execute_batch(
            "INSERT INTO conversations VALUES ('c', 'title', 1, 1, NULL);
             INSERT INTO turns VALUES ('c', 1, 'question', 'answer', 'answered', NULL, NULL, 1);",
        )
        .unwrap();
        drop(old);
        let sessions = Sessions::open(&path).unwrap();
        let nobody = OwnerScope::Own(String::new());
        assert!(sessions.list(&nobody, 10, 0).unwrap().is_empty());
        assert!(sessions.turns(&nobody, &id("c")).unwrap().is_empty());
        assert!(!sessions.may_continue(&id("c"), "").unwrap());
        assert!(matches!(
            sessions.begin_turn(&id("c"), "", DEFAULT_AGENT, "q"),
            Err(SessionError::NotOwned { .. })
        ));
        assert_eq!(
            sessions.turns(&OwnerScope::All, &id("c")).unwrap()[0].answer,
            "answer"
        );
        assert_eq!(
            sessions.events(&OwnerScope::All, &id("c"), 1).unwrap(),
            Some(TurnEvents::default())
        );
        sessions.adopt(&id("c"), "terminal:ada").unwrap();
        assert_eq!(
            sessions
                .begin_turn(&id("c"), "terminal:ada", DEFAULT_AGENT, "q")
                .unwrap(),
            2
        );
        drop(sessions);
        assert!(
            Sessions::open(&path)
                .unwrap()
                .delete(&OwnerScope::All, &id("c"))
                .unwrap()
        );
    }

    #[test]
    fn errors_name_a_newer_database_and_an_invalid_one() {
        let directory = tempfile::tempdir().unwrap();
        let newer = directory.path().join("newer.db");
        Connection::open(&newer)
            .unwrap()
            .pragma_update(None, "user_version", 9)
            .unwrap();
        assert!(
            Sessions::open(&newer)
                .unwrap_err()
                .to_string()
                .contains("layout 9, this version knows 4")
        );
        let none = directory.path().join("none.db");
        std::fs::write(&none, "this is no database, whatever its name says").unwrap();
        assert!(
            Sessions::open(&none)
                .unwrap_err()
                .to_string()
                .contains("none.db")
        );
    }

    #[test]
    fn an_agent_stays_with_its_conversation() {
        let sessions = Sessions::in_memory().unwrap();
        sessions.begin_turn(&id("c"), "ada", "files", "q").unwrap();
        let refused = sessions.begin_turn(&id("c"), "ada", "slides", "and?");
        assert!(
            matches!(&refused, Err(SessionError::OtherAgent { agent, .. }) if agent == "files"),
            "{refused:?}"
        );
        // Before another owner learns of the agent.
        let other = sessions.begin_turn(&id("c"), "bob", "slides", "mine?");
        assert!(
            matches!(other, Err(SessionError::NotOwned { .. })),
            "{other:?}"
        );
        assert_eq!(
            sessions
                .begin_turn(&id("c"), "ada", "files", "and?")
                .unwrap(),
            2
        );
        let own = |owner: &str| OwnerScope::Own(owner.to_owned());
        let agent_of = |scope| sessions.agent_of(&scope, &id("c")).unwrap();
        assert_eq!(agent_of(own("ada")).as_deref(), Some("files"));
        assert_eq!(agent_of(own("bob")), None);
        let listed = sessions.list(&OwnerScope::All, 9, 0).unwrap();
        assert_eq!(listed[0].agent, "files");
    }
}
