//! Requests for a person's approval, and their answers. A request that is not answered in time is
//! refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::gate::Caller;
use crate::gate::class::Class;
use crate::gate::normalize::{Change, ChangeReason};
use crate::gate::redact::Redaction;
use crate::tools::Arguments;
use toolscout_base::clock::millis;
use toolscout_base::principal::OwnerScope;

/// Requests that may be open at once; further ones are refused.
const MAX_OPEN: usize = 1_024;

/// A call that waits for a person's approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalRequest {
    /// The call's id.
    pub call: String,
    /// The tool's id.
    pub tool: String,
    /// The tool's own description.
    pub description: String,
    /// How much harm the tool can do.
    pub class: Class,
    /// The arguments exactly as they will be sent.
    pub arguments: Value,
    /// How they differ from the arguments that the model wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The rule that requires approval.
    pub rule: String,
}

impl ApprovalRequest {
    /// The request with what the owner of the tool's server adds to the arguments, or replaces in them. The
    /// owner's secrets are not shown, and long values of the owner are shortened as in the log, unlike the
    /// arguments that the model wrote.
    pub(super) fn with_sent(mut self, sent: &Arguments, redaction: &Redaction) -> Self {
        let Value::Object(arguments) = &mut self.arguments else {
            return self;
        };
        let mut of_owner = Arguments::new();
        for (name, value) in sent {
            if arguments.get(name) != Some(value) {
                of_owner.insert(name.clone(), value.clone());
            }
        }
        let Value::Object(of_owner) = redaction.arguments(&of_owner) else {
            return self;
        };
        for (name, to) in of_owner {
            let from = arguments.insert(name.clone(), to.clone());
            self.changes.push(Change {
                path: format!("/{name}"),
                from: from.unwrap_or_default(),
                to,
                why: ChangeReason::Owner,
            });
        }
        self
    }
}

/// The outcome of a request for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The call may be made.
    Approved {
        /// Who approved it.
        by: String,
    },
    /// The call may not be made.
    Refused {
        /// Who refused it.
        by: String,
        /// Why, for the model; may be empty.
        reason: String,
    },
    /// Nobody answered in time.
    Expired {
        /// Milliseconds waited for an answer.
        after_ms: u64,
    },
}

/// A way to ask a person for approval.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Asks and waits for the answer.
    async fn ask(&self, request: ApprovalRequest) -> Answer;
}

/// Refuses every request, where no person can be asked.
pub struct RefuseAll;

#[async_trait]
impl Approver for RefuseAll {
    async fn ask(&self, _: ApprovalRequest) -> Answer {
        Answer::Refused {
            by: "nobody".into(),
            reason: "there is nobody to ask here".into(),
        }
    }
}

/// Why the open requests of all nodes cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the store of the open approvals cannot be used now: {reason}")]
pub struct BoardError {
    /// What the store answered, or why it did not.
    pub reason: String,
}

/// The open requests of several nodes. Whoever stores an answer first has decided.
#[async_trait]
pub trait ApprovalBoard: Send + Sync {
    /// Makes a request of this process known to all nodes, for at most this long.
    ///
    /// # Errors
    /// [`BoardError`]; it may be known nevertheless.
    async fn publish(
        &self,
        caller: &Caller,
        id: &str,
        request: &ApprovalRequest,
        within: Duration,
    ) -> Result<(), BoardError>;

    /// Returns the answer to a request of this process once there is one.
    async fn answered(&self, id: &str) -> Answer;

    /// Answers a request of any node; false when none is open under this id within `scope`.
    ///
    /// # Errors
    /// [`BoardError`]; it may be answered nevertheless.
    async fn answer(
        &self,
        scope: &OwnerScope,
        id: &str,
        answer: &Answer,
    ) -> Result<bool, BoardError>;

    /// The open requests of this owner's runs in a conversation.
    ///
    /// # Errors
    /// [`BoardError`].
    async fn waiting(
        &self,
        owner: &str,
        conversation: &str,
    ) -> Result<Vec<OpenApproval>, BoardError>;

    /// Closes a request of this process, and returns the answer that came before.
    ///
    /// # Errors
    /// [`BoardError`].
    async fn close(&self, id: &str) -> Result<Option<Answer>, BoardError>;

    /// Closes a request in the background.
    fn forget(&self, id: &str);
}

/// The open requests of a process, each under a random id that cannot be guessed. With a board, those
/// of other nodes are answered and listed too.
#[derive(Default)]
pub struct Approvals {
    open: Mutex<BTreeMap<String, OpenRequest>>,
    board: Option<Arc<dyn ApprovalBoard>>,
}

/// An open request, as its owner sees it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct OpenApproval {
    /// The id under which the request is answered.
    pub id: String,
    /// Milliseconds left to answer.
    pub expires_in_ms: u64,
    /// The call.
    #[serde(flatten)]
    pub request: ApprovalRequest,
}

/// An open request, as somebody sees it who may decide about those of others.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct WaitingApproval {
    /// Who makes the call: a key, or `http` on a server without keys.
    pub owner: String,
    /// The conversation, or the session of an MCP client.
    pub conversation: String,
    /// The MCP client, as it names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The request.
    #[serde(flatten)]
    pub open: OpenApproval,
}

#[derive(Debug)]
struct OpenRequest {
    /// The owner of the run that makes the call.
    owner: String,
    conversation: String,
    client: Option<String>,
    request: ApprovalRequest,
    expires: Instant,
    answer: oneshot::Sender<Answer>,
    /// The board decides on it.
    is_published: bool,
}

impl Approvals {
    /// Requests that other nodes may answer too, where there is a board.
    pub fn over(board: Option<Arc<dyn ApprovalBoard>>) -> Self {
        Approvals {
            board,
            ..Approvals::default()
        }
    }

    /// Opens a request for a call of this caller's run, for at most this long. `None` when too many
    /// are open.
    pub fn open(
        &self,
        caller: &Caller,
        request: ApprovalRequest,
        within: Duration,
    ) -> Option<PendingApproval<'_>> {
        // Unanswered requests would otherwise grow without limit until their timeouts.
        let mut open = self.open.lock();
        if open.len() >= MAX_OPEN {
            return None;
        }
        // Random, because whoever knows the id and reaches the run can approve the call.
        let id = Uuid::new_v4().to_string();
        let (sender, answer) = oneshot::channel();
        open.insert(
            id.clone(),
            OpenRequest {
                owner: caller.who.clone(),
                conversation: caller.conversation.clone(),
                client: caller.client.clone(),
                request,
                expires: Instant::now() + within,
                answer: sender,
                is_published: false,
            },
        );
        Some(PendingApproval {
            id,
            answer,
            approvals: self,
            board: None,
        })
    }

    /// As [`Approvals::open`], for any node to answer. While the board cannot be used, only this
    /// process can.
    pub async fn open_anywhere(
        &self,
        caller: &Caller,
        request: ApprovalRequest,
        within: Duration,
    ) -> Option<PendingApproval<'_>> {
        let mut pending = self.open(caller, request.clone(), within)?;
        let Some(board) = &self.board else {
            return Some(pending);
        };
        // Before the answer is awaited: a request that is dropped meanwhile is closed.
        pending.board = Some(Arc::clone(board));
        match board.publish(caller, &pending.id, &request, within).await {
            Ok(()) => {
                if let Some(open) = self.open.lock().get_mut(&pending.id) {
                    open.is_published = true;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "a call can be approved on this node alone");
                board.forget(&pending.id);
                pending.board = None;
            }
        }
        Some(pending)
    }

    /// As [`Approvals::answer`], for requests of any node.
    ///
    /// # Errors
    /// [`BoardError`]; the request may be answered nevertheless.
    pub async fn answer_anywhere(
        &self,
        scope: &OwnerScope,
        id: &str,
        answer: Answer,
    ) -> Result<bool, BoardError> {
        match &self.board {
            Some(board) if !self.is_unpublished(id) => board.answer(scope, id, &answer).await,
            _ => Ok(self.answer(scope, id, answer)),
        }
    }

    /// Whether the request is of this process and other nodes do not know of it.
    fn is_unpublished(&self, id: &str) -> bool {
        matches!(self.open.lock().get(id), Some(open) if !open.is_published)
    }

    /// As [`Approvals::waiting`], for runs of any node. While the board cannot be used, those of this
    /// process.
    pub async fn waiting_anywhere(&self, owner: &str, conversation: &str) -> Vec<OpenApproval> {
        let mut waiting = self.waiting(owner, conversation);
        if let Some(board) = &self.board
            && let Ok(known) = board.waiting(owner, conversation).await
        {
            // The board knows which of the published ones were answered, so those are taken from there.
            let open = self.open.lock();
            waiting.retain(|own| !matches!(open.get(&own.id), Some(open) if open.is_published));
            drop(open);
            waiting.extend(known);
            waiting.sort_by_key(|open| open.expires_in_ms);
        }
        waiting
    }

    /// The open requests of this owner's runs in a conversation, the one that expires first leading.
    pub fn waiting(&self, owner: &str, conversation: &str) -> Vec<OpenApproval> {
        let mut waiting = Vec::new();
        for (id, open) in self.open.lock().iter() {
            if open.owner == owner && open.conversation == conversation {
                waiting.push(open.as_seen(id));
            }
        }
        waiting.sort_by_key(|open| open.expires_in_ms);
        waiting
    }

    /// The open requests of this process within `scope`.
    pub fn waiting_within(&self, scope: &OwnerScope) -> Vec<WaitingApproval> {
        let mut waiting = Vec::new();
        for (id, open) in self.open.lock().iter() {
            if scope.covers(&open.owner) {
                waiting.push(WaitingApproval {
                    owner: open.owner.clone(),
                    conversation: open.conversation.clone(),
                    client: open.client.clone(),
                    open: open.as_seen(id),
                });
            }
        }
        waiting
    }

    /// Answers a request of this process; false when none is open under this id within `scope`.
    pub fn answer(&self, scope: &OwnerScope, id: &str, answer: Answer) -> bool {
        let mut open = self.open.lock();
        // A request out of scope is treated as missing, so that ids cannot be probed.
        if !matches!(open.get(id), Some(request) if scope.covers(&request.owner)) {
            return false;
        }
        match open.remove(id) {
            // Sending fails when the wait for the answer has just timed out.
            Some(request) => request.answer.send(answer).is_ok(),
            None => false,
        }
    }
}

impl OpenRequest {
    fn as_seen(&self, id: &str) -> OpenApproval {
        let left = self.expires.saturating_duration_since(Instant::now());
        OpenApproval {
            id: id.to_owned(),
            expires_in_ms: millis(left),
            request: self.request.clone(),
        }
    }
}

/// An open request; closed on drop.
pub struct PendingApproval<'a> {
    id: String,
    answer: oneshot::Receiver<Answer>,
    approvals: &'a Approvals,
    /// Where other nodes see it.
    board: Option<Arc<dyn ApprovalBoard>>,
}

impl PendingApproval<'_> {
    /// The id under which the request is answered.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits for the answer, at most this long.
    pub async fn answer(mut self, within: Duration) -> Answer {
        let started = Instant::now();
        let answer = match self.board.clone() {
            Some(board) => self.answer_on(&*board, within).await,
            None => match timeout(within, &mut self.answer).await {
                Ok(Ok(answer)) => Some(answer),
                _ => None,
            },
        };
        match answer {
            Some(answer) => answer,
            None => Answer::Expired {
                after_ms: millis(started.elapsed()),
            },
        }
    }

    /// Waits for the answer on the board.
    async fn answer_on(&mut self, board: &dyn ApprovalBoard, within: Duration) -> Option<Answer> {
        let answered = timeout(within, board.answered(&self.id)).await.ok();
        // What was answered at the last moment counts: a person was told so.
        match board.close(&self.id).await {
            Ok(closed) => {
                // So that the drop does not close it again.
                self.board = None;
                answered.or(closed)
            }
            Err(_) => answered,
        }
    }
}

impl Drop for PendingApproval<'_> {
    fn drop(&mut self) {
        self.approvals.open.lock().remove(&self.id);
        if let Some(board) = &self.board {
            board.forget(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(approvals: &Approvals) -> Option<PendingApproval<'_>> {
        let caller = Caller {
            who: "ada".into(),
            conversation: "c".into(),
            ..Caller::default()
        };
        let request = ApprovalRequest {
            call: "call".into(),
            tool: "mail/send".into(),
            description: String::new(),
            class: Class::StateChanging,
            arguments: Value::Null,
            changes: Vec::new(),
            rule: "rule".into(),
        };
        approvals.open(&caller, request, Duration::from_secs(60))
    }

    #[test]
    fn open_requests_are_listed_for_their_owner_and_conversation() {
        let approvals = Approvals::default();
        let (first, second) = (ask(&approvals).unwrap(), ask(&approvals).unwrap());
        let waiting = approvals.waiting("ada", "c");
        assert_eq!(waiting.len(), 2);
        assert!((1..=60_000).contains(&waiting[0].expires_in_ms));
        assert!(approvals.waiting("bob", "c").is_empty());
        assert!(approvals.waiting("ada", "d").is_empty());
        drop(first);
        assert_eq!(approvals.waiting("ada", "c")[0].id, second.id());
    }

    #[tokio::test]
    async fn a_request_is_answered_once_and_closed_when_dropped() {
        let approvals = Approvals::default();
        let pending = ask(&approvals).unwrap();
        let (id, yes) = (
            pending.id().to_owned(),
            Answer::Approved { by: "ada".into() },
        );
        assert!(!approvals.answer(&OwnerScope::Own("bob".into()), &id, yes.clone()));
        assert!(approvals.answer(&OwnerScope::Own("ada".into()), &id, yes.clone()));
        assert!(!approvals.answer(&OwnerScope::All, &id, yes.clone()));
        assert_eq!(pending.answer(Duration::from_secs(60)).await, yes);
        let dropped = ask(&approvals).unwrap();
        let id = dropped.id().to_owned();
        drop(dropped);
        assert!(!approvals.answer(&OwnerScope::All, &id, yes));
    }

    #[tokio::test]
    async fn an_answer_after_the_timeout_is_rejected() {
        let approvals = Approvals::default();
        let pending = ask(&approvals).unwrap();
        let id = pending.id().to_owned();
        assert!(matches!(
            pending.answer(Duration::from_millis(1)).await,
            Answer::Expired { .. }
        ));
        assert!(!approvals.answer(
            &OwnerScope::All,
            &id,
            Answer::Approved { by: "late".into() }
        ));
    }

    #[test]
    fn open_requests_are_bounded() {
        let approvals = Approvals::default();
        let open: Vec<PendingApproval<'_>> = std::iter::from_fn(|| ask(&approvals)).collect();
        assert_eq!(open.len(), MAX_OPEN);
    }
}
