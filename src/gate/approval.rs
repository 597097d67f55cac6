//! Requests for a person's approval, and their answers. A request that is not answered in time is
//! refused.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::gate::class::Class;
use crate::gate::normalize::Change;
use crate::session::OwnerScope;

/// Requests that may be open at once; further ones are refused.
const MAX_OPEN: usize = 1_024;

/// A call that waits for a person's approval.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The rule that requires approval.
    pub rule: String,
}

/// The outcome of a request for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
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

/// The open requests of a process, each under a random id that cannot be guessed.
#[derive(Debug, Default)]
pub struct Approvals {
    open: Mutex<BTreeMap<String, OpenRequest>>,
}

#[derive(Debug)]
struct OpenRequest {
    /// The owner of the run that makes the call.
    owner: String,
    answer: oneshot::Sender<Answer>,
}

impl Approvals {
    /// Opens a request for a call of this owner's run. `None` when too many are open.
    pub fn open(&self, owner: &str) -> Option<PendingApproval<'_>> {
        // Unanswered requests would otherwise grow without limit until their timeouts.
        let mut open = self.lock();
        if open.len() >= MAX_OPEN {
            return None;
        }
        // Random, because whoever knows the id and reaches the run can approve the call.
        let id = Uuid::new_v4().to_string();
        let (sender, answer) = oneshot::channel();
        open.insert(
            id.clone(),
            OpenRequest {
                owner: owner.to_owned(),
                answer: sender,
            },
        );
        Some(PendingApproval {
            id,
            answer,
            approvals: self,
        })
    }

    /// Answers a request; false when none is open under this id within `scope`.
    pub fn answer(&self, scope: &OwnerScope, id: &str, answer: Answer) -> bool {
        let mut open = self.lock();
        // A request out of scope is treated as missing, so that ids cannot be probed.
        if !open
            .get(id)
            .is_some_and(|request| scope.covers(&request.owner))
        {
            return false;
        }
        // Sending fails when the wait for the answer has just timed out.
        open.remove(id)
            .is_some_and(|request| request.answer.send(answer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OpenRequest>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open request; closed on drop.
#[derive(Debug)]
pub struct PendingApproval<'a> {
    id: String,
    answer: oneshot::Receiver<Answer>,
    approvals: &'a Approvals,
}

impl PendingApproval<'_> {
    /// The id under which the request is answered.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits for the answer, at most this long.
    pub async fn answer(mut self, within: Duration) -> Answer {
        let started = Instant::now();
        match timeout(within, &mut self.answer).await {
            Ok(Ok(answer)) => answer,
            _ => Answer::Expired {
                after_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            },
        }
    }
}

impl Drop for PendingApproval<'_> {
    fn drop(&mut self) {
        self.approvals.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_is_answered_once_and_closed_when_dropped() {
        let approvals = Approvals::default();
        let pending = approvals.open("ada").unwrap();
        let (id, yes) = (
            pending.id().to_owned(),
            Answer::Approved { by: "ada".into() },
        );
        assert!(!approvals.answer(&OwnerScope::Own("bob".into()), &id, yes.clone()));
        assert!(approvals.answer(&OwnerScope::Own("ada".into()), &id, yes.clone()));
        assert!(!approvals.answer(&OwnerScope::All, &id, yes.clone()));
        assert_eq!(pending.answer(Duration::from_secs(60)).await, yes);
        let dropped = approvals.open("ada").unwrap();
        let id = dropped.id().to_owned();
        drop(dropped);
        assert!(!approvals.answer(&OwnerScope::All, &id, yes));
    }

    #[tokio::test]
    async fn an_answer_after_the_timeout_is_rejected() {
        let approvals = Approvals::default();
        let pending = approvals.open("ada").unwrap();
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
        let open: Vec<PendingApproval<'_>> = std::iter::from_fn(|| approvals.open("ada")).collect();
        assert_eq!(open.len(), MAX_OPEN);
    }
}
