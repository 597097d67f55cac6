//! Our own agent as a model of the providers' APIs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::timeout;
use uuid::Uuid;

use super::{DropInEndpoint, Problem, Sender};
use crate::agent::StartedRun;
use toolscout_agent::{Event, Question};
use toolscout_base::clock::unix_ms;
use toolscout_base::printable;
use toolscout_dropin::{
    AgentAnswer, AgentQuestion, AnswerBody, ConversationKey, DropInAnswer, Failure,
};
use toolscout_state::session::{ConversationId, TurnStatus};

/// Conversations that are known by what their clients see of them.
const MAX_CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("is not zero");

/// Most characters of an id in a message.
const MAX_ID_CHARS: usize = 100;

/// The conversations of clients that send all of it with every question. Cheap to clone.
#[derive(Clone)]
pub struct KnownConversations(Arc<Mutex<LruCache<ConversationKey, ConversationId>>>);

impl Default for KnownConversations {
    fn default() -> Self {
        KnownConversations(Arc::new(Mutex::new(LruCache::new(MAX_CONVERSATIONS))))
    }
}

impl KnownConversations {
    fn get(&self, key: &ConversationKey) -> Option<ConversationId> {
        let mut known = self.0.lock();
        known.get(key).cloned()
    }

    fn put(&self, key: ConversationKey, id: ConversationId) {
        let mut known = self.0.lock();
        known.put(key, id);
    }
}

/// Answers a question to the agent.
pub async fn answer(
    endpoint: &DropInEndpoint,
    sender: &Sender,
    headers: &HeaderMap,
    question: AgentQuestion,
) -> Result<DropInAnswer, Problem> {
    let tools = endpoint.agents.question_tools(&sender.grant, headers);
    let tools = tools.await?;
    let continued = question.continued.as_ref();
    let conversation = continued.and_then(|key| endpoint.conversations.get(key));
    // The request has only the last question, so without the conversation the rest would be missing.
    if conversation.is_none()
        && let Some(id) = &question.previous_id
    {
        return Err(unknown_answer(id).into());
    }
    let asked = Question::new(question.text.clone())
        .asked_by(sender.grant.sender())
        .limited_to(tools);
    let agent = question.agent.clone();
    let run = endpoint
        .agents
        .start(&sender.grant, asked, agent, conversation);
    let run = run.await?;
    let created_s = (unix_ms(SystemTime::now()) / 1000).unsigned_abs();
    let answering = Answering {
        known: endpoint.conversations.clone(),
        answer: AgentAnswer::to(&question, Uuid::now_v7().simple().to_string(), created_s),
        heartbeat: endpoint.agents.heartbeat,
        question,
        run,
        problem: None,
        is_begun: false,
        is_ended: false,
    };
    if answering.question.streams {
        Ok(answering.streamed())
    } else {
        answering.whole().await
    }
}

fn unknown_answer(id: &str) -> Failure {
    let message = format!(
        "no answer of the agent has the id {:?}, or it is too long ago; send all of `input` without \
         `previous_response_id`",
        printable::excerpt(id, MAX_ID_CHARS)
    );
    Failure::new(400, "previous_response_not_found", message)
}

/// A run of the agent whose answer is being written.
struct Answering {
    known: KnownConversations,
    question: AgentQuestion,
    answer: AgentAnswer,
    heartbeat: Duration,
    run: StartedRun,
    problem: Option<String>,
    is_begun: bool,
    is_ended: bool,
}

impl Answering {
    async fn whole(mut self) -> Result<DropInAnswer, Problem> {
        // `answer` collects the parts.
        while self.next_part_of_text().await.is_some() {}
        if let Some(problem) = self.problem.take() {
            return Err(Failure::new(502, "agent_failed", problem).into());
        }
        let body = self.answer.whole();
        Ok(respond("application/json", AnswerBody::Whole(body)))
    }

    fn streamed(self) -> DropInAnswer {
        let parts = stream::unfold(self, |mut answering| async {
            let part = answering.next_part().await?;
            Some((Ok(part), answering))
        });
        respond("text/event-stream", AnswerBody::Stream(parts.boxed()))
    }

    async fn next_part(&mut self) -> Option<Bytes> {
        if self.is_ended {
            return None;
        }
        if !self.is_begun {
            self.is_begun = true;
            return Some(self.answer.begin());
        }
        let heartbeat = self.heartbeat;
        match timeout(heartbeat, self.next_part_of_text()).await {
            // Proxies close streams that are silent, and an agent may call tools for minutes.
            Err(_) => return Some(AgentAnswer::heartbeat()),
            Ok(Some(part)) => return Some(part),
            Ok(None) => self.is_ended = true,
        }
        Some(match self.problem.take() {
            None => self.answer.end(),
            Some(problem) => {
                let failure = Failure::new(502, "agent_failed", problem);
                self.answer.fail(&failure)
            }
        })
    }

    /// The next part of the text, as a part of the stream; `None` at the end of the run. Nothing is
    /// lost if this is not awaited to its end.
    async fn next_part_of_text(&mut self) -> Option<Bytes> {
        while let Some(event) = self.run.next().await {
            match event {
                Event::Text { content } => return Some(self.answer.add(&content)),
                Event::ApprovalRequired {
                    id,
                    expires_in_ms,
                    request,
                } => {
                    let notice = waits_for_a_person(&id, &request.tool, expires_in_ms);
                    return Some(self.answer.add(&notice));
                }
                Event::Error { content } => self.problem = Some(content),
                Event::Done {
                    status, figures, ..
                } => {
                    self.answer.count(figures.tokens_in, figures.tokens_out);
                    self.finish(status);
                }
                _ => {}
            }
        }
        None
    }

    fn finish(&mut self, status: TurnStatus) {
        if status != TurnStatus::Answered {
            if self.problem.is_none() {
                self.problem = Some("the agent gave no answer; ask again".to_owned());
            }
            return;
        }
        // The run recovered from an earlier error.
        self.problem = None;
        for key in self.question.keys_after(&self.answer) {
            self.known.put(key, self.run.conversation().clone());
        }
    }
}

/// A chat page shows no questions of ours, so the text says that somebody is waited for.
fn waits_for_a_person(id: &str, tool: &str, expires_in_ms: u64) -> String {
    let tool = printable::name(tool);
    let seconds = expires_in_ms.div_ceil(1000);
    tracing::warn!(%tool, id, seconds, "a call waits for approval");
    format!(
        "[A call of {tool} waits for approval, in the console or at POST /v1/agent/approve with the id {id}, for {seconds} s.]\n\n"
    )
}

fn respond(content_type: &'static str, body: AnswerBody) -> DropInAnswer {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    DropInAnswer {
        status: 200,
        headers,
        body,
    }
}
