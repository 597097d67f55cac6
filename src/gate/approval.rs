//! Questions to a person, and their answers. An answer that does not come in time is a no.

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
use crate::session::Reach;

/// Questions that may be open at once; one more is answered with no.
const MAX_OPEN: usize = 1_024;

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ApprovalRequest {
    /// The call's id.
    pub call: String,
    /// The tool's id.
    pub tool: String,
    /// What it says of itself.
    pub description: String,
    /// What it can do.
    pub class: Class,
    /// The arguments exactly as they will be sent.
    pub arguments: Value,
    /// How they differ from what the model wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// The rule that wants a person to be asked.
    pub rule: String,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Yes.
    Approved {
        /// Who said so.
        by: String,
    },
    /// No.
    Refused {
        /// Who said so.
        by: String,
        /// Why, for the model; may be empty.
        reason: String,
    },
    /// Nothing, until the time was up.
    Expired {
        /// How long it was waited for.
        after_ms: u64,
    },
}

/// Who asks a person.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Asks, and waits for the answer.
    async fn ask(&self, request: ApprovalRequest) -> Answer;
}

/// Nobody is there: every answer is no.
pub struct Nobody;

#[async_trait]
impl Approver for Nobody {
    async fn ask(&self, _: ApprovalRequest) -> Answer {
        Answer::Refused {
            by: "nobody".into(),
            reason: "there is nobody to ask here".into(),
        }
    }
}

/// The open questions of a process, by an id that cannot be guessed.
#[derive(Debug, Default)]
pub struct Approvals {
    open: Mutex<BTreeMap<String, Open>>,
}

#[derive(Debug)]
struct Open {
    /// Who asked for the call.
    owner: String,
    answer: oneshot::Sender<Answer>,
}

impl Approvals {
    /// Opens a question about a call of this owner's run. `None` when too many are open.
    pub fn open(&self, owner: &str) -> Option<Pending<'_>> {
        let mut open = self.lock();
        if open.len() >= MAX_OPEN {
            return None;
        }
        let id = Uuid::new_v4().to_string();
        let (sender, answer) = oneshot::channel();
        open.insert(
            id.clone(),
            Open {
                owner: owner.to_owned(),
                answer: sender,
            },
        );
        Some(Pending {
            id,
            answer,
            approvals: self,
        })
    }

    /// Answers a question about a run within reach; false when no such question is open.
    pub fn answer(&self, reach: &Reach, id: &str, answer: Answer) -> bool {
        let mut open = self.lock();
        if !open.get(id).is_some_and(|asked| reach.covers(&asked.owner)) {
            return false;
        }
        open.remove(id)
            .is_some_and(|asked| asked.answer.send(answer).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open question; closed on drop.
#[derive(Debug)]
pub struct Pending<'a> {
    id: String,
    answer: oneshot::Receiver<Answer>,
    approvals: &'a Approvals,
}

impl Pending<'_> {
    /// Names the question in its answer.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The answer, or that none came in time.
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

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.approvals.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_is_answered_once_and_closed_when_dropped() {
        let approvals = Approvals::default();
        let pending = approvals.open("ada").unwrap();
        let (id, yes) = (
            pending.id().to_owned(),
            Answer::Approved { by: "ada".into() },
        );
        assert!(!approvals.answer(&Reach::Own("bob".into()), &id, yes.clone()));
        assert!(approvals.answer(&Reach::Own("ada".into()), &id, yes.clone()));
        assert!(!approvals.answer(&Reach::All, &id, yes.clone()));
        assert_eq!(pending.answer(Duration::from_secs(60)).await, yes);
        let dropped = approvals.open("ada").unwrap();
        let id = dropped.id().to_owned();
        drop(dropped);
        assert!(!approvals.answer(&Reach::All, &id, yes));
    }

    #[tokio::test]
    async fn no_answer_in_time_is_no_answer() {
        let approvals = Approvals::default();
        let pending = approvals.open("ada").unwrap();
        let id = pending.id().to_owned();
        assert!(matches!(
            pending.answer(Duration::from_millis(1)).await,
            Answer::Expired { .. }
        ));
        assert!(!approvals.answer(&Reach::All, &id, Answer::Approved { by: "late".into() }));
    }

    #[test]
    fn open_questions_are_bounded() {
        let approvals = Approvals::default();
        let open: Vec<Pending<'_>> = std::iter::from_fn(|| approvals.open("ada")).collect();
        assert_eq!(open.len(), MAX_OPEN);
    }
}
