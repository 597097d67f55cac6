//! An agent behind the API whose model and tool say when they are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;
use toolscout::agent::{Agent, AgentConfig};
use toolscout::assembly::{AgentPlan, Settings};
use toolscout::llm::{CallFragment, ChatModel, ChatRequest, Delta, DeltaStream, LlmError};
use toolscout::tools::{Arguments, Callable, ToolFailure, UserTool};
use toolscout_index::Tool;

use crate::attacks::server::{PATIENCE, Server};

/// What the model does with every question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Answers `good day`.
    Answers,
    /// Calls the tool `harmful`, then answers.
    CallsHarmful,
    /// Never says a word.
    Hangs,
}

/// The model, and what was seen of it.
#[derive(Clone)]
pub struct Model {
    manner: Manner,
    asked: Arc<AtomicUsize>,
    heard: Arc<Notify>,
}

impl Model {
    pub fn new(manner: Manner) -> Self {
        Model {
            manner,
            asked: Arc::default(),
            heard: Arc::default(),
        }
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until it was asked once more.
    pub async fn is_asked(&self) {
        timeout(PATIENCE, self.heard.notified())
            .await
            .expect("the model is asked");
    }

    /// A server with this model's agent.
    pub async fn serve(&self, change: impl FnOnce(&mut Settings)) -> Server {
        Server::start_with(|settings| {
            settings.agents = Some(self.agent(Duration::from_secs(600)).into());
            change(settings);
        })
        .await
    }

    /// An agent whose runs live so long.
    pub fn agent(&self, time_to_live: Duration) -> AgentPlan {
        let config = AgentConfig {
            recommend_within: None,
            count_tokens: str::len,
            time_to_live,
            ..Default::default()
        };
        AgentPlan {
            builder: Agent::builder().llm(self.clone()).tool(Harmful),
            config,
            ..AgentPlan::default()
        }
    }
}

#[async_trait]
impl ChatModel for Model {
    fn name(&self) -> &str {
        "attacked"
    }

    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.heard.notify_one();
        let has_called = request
            .messages
            .iter()
            .any(|message| message.content().contains("harm was done"));
        let delta = match self.manner {
            Manner::Hangs => return Ok(stream::pending().boxed()),
            Manner::CallsHarmful if !has_called => Delta::Call(CallFragment {
                index: Some(0),
                id: Some("c1".into()),
                name: Some("harmful".into()),
                arguments: Some("{}".into()),
            }),
            Manner::CallsHarmful | Manner::Answers => Delta::Text("good day".into()),
        };
        Ok(stream::iter([Ok(delta)]).boxed())
    }
}

/// A tool that says nothing of itself, so that a person is asked about it.
#[derive(Clone)]
struct Harmful;

#[async_trait]
impl Callable for Harmful {
    async fn call(&self, _: Arguments) -> Result<Value, ToolFailure> {
        Ok(json!("harm was done"))
    }
}

impl UserTool for Harmful {
    fn definition(&self) -> Tool {
        Tool::new("", "harmful").expect("a tool")
    }
}

/// Asks the agent with a key and gives the stream of events.
pub async fn chat(server: &Server, key: &str, body: Value) -> Response {
    server
        .request(Method::POST, "/v1/agent/chat")
        .bearer_auth(key)
        .json(&body)
        .send()
        .await
        .expect("an answer")
}

/// Reads a stream to the first event of this type.
pub async fn event(response: &mut Response, wanted: &str) -> Value {
    let reading = async {
        let mut text = String::new();
        loop {
            let events = text.lines().filter_map(|line| {
                serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok()
            });
            if let Some(event) = events.into_iter().find(|event| event["type"] == wanted) {
                return event;
            }
            let chunk = response
                .chunk()
                .await
                .expect("no error")
                .unwrap_or_else(|| panic!("no {wanted} in {text}"));
            text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    };
    timeout(PATIENCE, reading).await.expect("in time")
}
