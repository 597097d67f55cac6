//! Our own agent as a model of chat completions.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use axum::http::HeaderMap;
use axum::http::{HeaderValue, header};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use lru::LruCache;
use uuid::Uuid;

use super::{Problem, Sender};
use crate::agent::{Event, Question, RunStream, StartError};
use crate::clock::unix_ms;
use crate::http::App;
use crate::http::agent::{configured_agent, question_tools};
use crate::http::error::ApiError;
use crate::printable;
use crate::proxy::{
    AgentAnswer, AgentQuestion, AnswerBody, ConversationKey, Dialect, Failure, ProxyAnswer,
};
use crate::session::{ConversationId, TurnStatus};

/// Conversations that are known by what their clients see of them.
const MAX_CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("is not zero");

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
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).cloned()
    }

    fn put(&self, key: ConversationKey, id: ConversationId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.put(key, id);
    }
}

/// Answers a question to the agent.
pub async fn answer(
    app: &App,
    sender: &Sender,
    headers: &HeaderMap,
    question: AgentQuestion,
) -> Result<ProxyAnswer, Problem> {
    let tools = question_tools(app, &sender.grant, headers).await?;
    let agent = configured_agent(app)?;
    let mut asked = Question::new(question.text.clone()).asked_by(sender.grant.sender());
    if let Some(tools) = tools {
        asked = asked.limited_to(tools);
    }
    let continued = question.continued.as_ref();
    if let Some(id) = continued.and_then(|key| app.agent_conversations.get(key)) {
        asked = asked.in_conversation(id);
    }
    let permit = app
        .runs
        .admit(sender.grant.key())
        .inspect_err(|_| app.metrics.rejected("runs"))?;
    let run = agent
        .start_with_guard(asked, permit)
        .map_err(|error: StartError| ApiError::from(error))?;
    let answering = Answering {
        known: app.agent_conversations.clone(),
        answer: AgentAnswer {
            id: format!("chatcmpl-{}", Uuid::now_v7().simple()),
            created: (unix_ms(SystemTime::now()) / 1000).unsigned_abs(),
        },
        streams: question.streams,
        question,
        run,
        text: String::new(),
        figures: None,
        problem: None,
        is_begun: false,
        is_ended: false,
    };
    if answering.streams {
        Ok(answering.streamed())
    } else {
        answering.whole().await
    }
}

/// A run of the agent whose answer is being written.
struct Answering {
    known: KnownConversations,
    question: AgentQuestion,
    answer: AgentAnswer,
    streams: bool,
    run: RunStream,
    text: String,
    /// Tokens of prompts and answers.
    figures: Option<(u64, u64)>,
    problem: Option<String>,
    is_begun: bool,
    is_ended: bool,
}

impl Answering {
    async fn whole(mut self) -> Result<ProxyAnswer, Problem> {
        while self.next_text().await.is_some() {}
        if let Some(problem) = self.problem.take() {
            return Err(Failure::new(502, "agent_failed", problem).into());
        }
        let (input, output) = self.figures.unwrap_or_default();
        let body = self.answer.whole(&self.text, input, output);
        Ok(respond("application/json", AnswerBody::Whole(body)))
    }

    fn streamed(self) -> ProxyAnswer {
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
        if let Some(text) = self.next_text().await {
            return Some(self.answer.text(&text));
        }
        self.is_ended = true;
        match self.problem.take() {
            None => Some(self.answer.end()),
            Some(problem) => {
                let failure = Failure::new(502, "agent_failed", problem);
                Some(Dialect::Chat.error_event(&failure))
            }
        }
    }

    /// The next part of the text; `None` at the end of the run.
    async fn next_text(&mut self) -> Option<String> {
        while let Some((_, event)) = self.run.next().await {
            match event {
                Event::Text { content } => {
                    self.text.push_str(&content);
                    return Some(content);
                }
                Event::ApprovalRequired {
                    id,
                    expires_in_ms,
                    request,
                } => {
                    let notice = waits_for_a_person(&id, &request.tool, expires_in_ms);
                    self.text.push_str(&notice);
                    return Some(notice);
                }
                Event::Error { content } => self.problem = Some(content),
                Event::Done {
                    status, figures, ..
                } => {
                    self.figures = Some((figures.tokens_in, figures.tokens_out));
                    if status == TurnStatus::Answered {
                        self.problem = None;
                        let id = self.run.conversation().clone();
                        self.known.put(self.question.after(&self.text), id);
                    } else {
                        let stopped = || "the agent gave no answer; ask again".to_owned();
                        self.problem.get_or_insert_with(stopped);
                    }
                }
                _ => {}
            }
        }
        None
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

fn respond(content_type: &'static str, body: AnswerBody) -> ProxyAnswer {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    ProxyAnswer {
        status: 200,
        headers,
        body,
    }
}
