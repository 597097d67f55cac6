//! Calls of clients that cannot ask their person. Somebody decides on them in the console or over
//! HTTP, and the client makes the same call again, since few clients wait for as long as a person may
//! take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use toolscout_gate::gate::{Answer, ApprovalRequest, Approvals, Caller};

/// Most calls that wait, or whose decision waits for the call to be made again.
const MAX_WAITING: usize = 1_024;

/// The calls that wait for somebody.
pub struct WaitingCalls {
    approvals: Arc<Approvals>,
    calls: Mutex<BTreeMap<[u8; 32], WaitingCall>>,
}

#[derive(Clone)]
struct WaitingCall {
    expires: Instant,
    state: watch::Receiver<Stage>,
}

/// How far the decision about a call is.
#[derive(Clone)]
enum Stage {
    /// It is not open yet.
    Opening,
    /// Somebody may decide on it under this id.
    Open(String),
    /// It was decided, or nobody did.
    Decided(Answer),
}

impl WaitingCalls {
    /// Calls that are decided on among these requests.
    pub fn new(approvals: Arc<Approvals>) -> Self {
        WaitingCalls {
            approvals,
            calls: Mutex::default(),
        }
    }

    /// Asks about a call, unless somebody was asked about the very same one, and waits for `patience`.
    /// Without an answer until then the call is refused with what to do; the question stays open for
    /// `within`. `about` is the digest of all that an answer covers; it counts once.
    pub async fn ask(
        &self,
        caller: &Caller,
        request: ApprovalRequest,
        about: [u8; 32],
        within: Duration,
        patience: Duration,
    ) -> Answer {
        let Some(mut call) = self.find_or_open(caller, request, about, within) else {
            return refused(format!(
                "{MAX_WAITING} calls wait for a person, the most; try again later"
            ));
        };
        // Clients give up after a minute, and a person may take longer.
        let is_decided = |state: &Stage| matches!(state, Stage::Decided(_));
        let waiting = call.state.wait_for(is_decided);
        let decided = match timeout(patience.min(within), waiting).await {
            Ok(Ok(state)) => Some(state.clone()),
            _ => None,
        };
        if let Some(Stage::Decided(answer)) = decided {
            return self.take(about, answer);
        }
        let Stage::Open(id) = call.state.borrow().clone() else {
            return refused("it cannot be asked about now; try again".to_owned());
        };
        let seconds = call
            .expires
            .saturating_duration_since(Instant::now())
            .as_secs();
        refused(format!(
            "a person has to approve it, and nobody has decided yet. Somebody can within {seconds} s, in the console \
             under Operations, or with POST /v1/approvals/{id}. Tell the user so, and make the very same call again \
             after that"
        ))
    }

    fn find_or_open(
        &self,
        caller: &Caller,
        request: ApprovalRequest,
        about: [u8; 32],
        within: Duration,
    ) -> Option<WaitingCall> {
        let mut calls = self.calls.lock();
        let now = Instant::now();
        calls.retain(|_, call| call.expires > now);
        if let Some(known) = calls.get(&about) {
            return Some(known.clone());
        }
        if calls.len() >= MAX_WAITING {
            return None;
        }
        let (sender, state) = watch::channel(Stage::Opening);
        let call = WaitingCall {
            expires: now + within,
            state,
        };
        calls.insert(about, call.clone());
        let (approvals, caller) = (Arc::clone(&self.approvals), caller.clone());
        // It ends with the answer, or after `within`.
        tokio::spawn(async move {
            let Some(pending) = approvals.open(&caller, request, within) else {
                let full = refused("too many calls wait for a person; try again later".to_owned());
                sender.send_replace(Stage::Decided(full));
                return;
            };
            sender.send_replace(Stage::Open(pending.id().to_owned()));
            let answer = pending.answer(within).await;
            sender.send_replace(Stage::Decided(answer));
        });
        Some(call)
    }

    /// The answer, for the first who takes it.
    fn take(&self, about: [u8; 32], answer: Answer) -> Answer {
        match self.calls.lock().remove(&about) {
            Some(_) => answer,
            None => {
                refused("the answer was used for the same call; call again to ask again".to_owned())
            }
        }
    }
}

fn refused(reason: String) -> Answer {
    Answer::Refused {
        by: "nobody".to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use toolscout_base::principal::OwnerScope;
    use toolscout_gate::gate::Class;

    const WITHIN: Duration = Duration::from_secs(60);
    const AT_ONCE: Duration = Duration::from_millis(20);

    fn request() -> ApprovalRequest {
        ApprovalRequest {
            call: "1".into(),
            tool: "mail/send".into(),
            description: String::new(),
            class: Class::StateChanging,
            arguments: json!({ "to": "ada" }),
            changes: Vec::new(),
            rule: "default state_changing".into(),
        }
    }

    fn caller() -> Caller {
        Caller {
            who: "key:a".into(),
            ..Caller::default()
        }
    }

    async fn ask(calls: &WaitingCalls, about: u8, patience: Duration) -> Answer {
        let caller = caller();
        calls
            .ask(&caller, request(), [about; 32], WITHIN, patience)
            .await
    }

    fn open_ids(approvals: &Approvals) -> Vec<String> {
        let open = approvals.waiting_within(&OwnerScope::All);
        open.into_iter().map(|waiting| waiting.open.id).collect()
    }

    #[tokio::test]
    async fn a_decision_counts_once_and_for_its_own_call() {
        let approvals = Arc::new(Approvals::default());
        let calls = WaitingCalls::new(Arc::clone(&approvals));
        let Answer::Refused { reason, .. } = ask(&calls, 1, AT_ONCE).await else {
            panic!("nobody has decided");
        };
        let [id] = <[String; 1]>::try_from(open_ids(&approvals)).unwrap();
        assert!(reason.contains(&id), "{reason}");
        // The same call asks nobody again, another one does.
        ask(&calls, 1, AT_ONCE).await;
        assert_eq!(open_ids(&approvals).len(), 1);
        ask(&calls, 2, AT_ONCE).await;
        assert_eq!(open_ids(&approvals).len(), 2);

        let yes = Answer::Approved { by: "bob".into() };
        assert!(approvals.answer(&OwnerScope::All, &id, yes.clone()));
        let answers = tokio::join!(ask(&calls, 1, WITHIN), ask(&calls, 1, AT_ONCE));
        let approved = [&answers.0, &answers.1]
            .into_iter()
            .filter(|answer| **answer == yes);
        assert_eq!(approved.count(), 1, "{answers:?}");
        assert!(matches!(
            ask(&calls, 2, AT_ONCE).await,
            Answer::Refused { .. }
        ));
    }

    #[tokio::test]
    async fn an_answer_in_time_needs_no_second_call() {
        let approvals = Arc::new(Approvals::default());
        let calls = WaitingCalls::new(Arc::clone(&approvals));
        let yes = Answer::Approved { by: "bob".into() };
        let deciding = async {
            while open_ids(&approvals).is_empty() {
                tokio::task::yield_now().await;
            }
            let id = open_ids(&approvals).remove(0);
            approvals.answer(&OwnerScope::All, &id, yes.clone())
        };
        let (answer, was_open) = tokio::join!(ask(&calls, 1, WITHIN), deciding);
        assert!(was_open);
        assert_eq!(answer, yes);
    }
}
