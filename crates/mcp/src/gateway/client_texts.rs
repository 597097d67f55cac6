//! Lets the client's own model write texts of tools, by sampling, once the person behind it has agreed.
//!
//! Sampling is part of the protocol up to 2025-11-25. Each request is shown by clients that keep to
//! it, and the person can decline it there too.

#![expect(deprecated, reason = "clients of these versions have no other way")]

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, ElicitRequestParams, ElicitationAction,
    ElicitationSchema, Role, SamplingMessage, SamplingMessageContentBlock,
};
use rmcp::service::{Peer, RoleServer};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use toolscout_index::{Enrichment, Searcher, Tool};

use super::{GatewayState, NAME_CHARS};
use crate::{CatalogSink as _, SingleWriterSink};
use toolscout_base::printable::{self, counted, excerpt};
use toolscout_finder::enrich::exchange::{Refused, ids_of, not_stored};
use toolscout_finder::enrich::run::{Run, Step};
use toolscout_finder::enrich::wanted::Wanted;
use toolscout_finder::enrich::{self, Batch, DEFAULT_BATCH};
use toolscout_gate::llm::{ChatModel, ChatRequest, Delta, DeltaStream, LlmError, Message};

/// Most tokens of one answer.
const MAX_ANSWER_TOKENS: u32 = 2_000;
/// The field of the question.
const WRITE: &str = "write";

/// Texts that the client's model may write.
pub struct ClientTexts {
    /// Most tools in a session.
    pub most: usize,
    /// The texts of each.
    pub wanted: Wanted,
    /// The catalog that they are stored in.
    pub catalog: SingleWriterSink,
}

impl ClientTexts {
    /// Asks the person and then the model, until the tools have texts, or the session ends.
    pub(super) async fn write(
        &self,
        peer: Peer<RoleServer>,
        state: &GatewayState,
        ended: &CancellationToken,
    ) {
        let Some(client) = peer.peer_info() else {
            return;
        };
        if client.capabilities.sampling.is_none() {
            return;
        }
        // Tools of servers that are still connecting would be left out.
        state.pool.settled(state.config.settle).await;
        let searcher = self.catalog.searcher();
        let batches = self.batches(state, &searcher);
        if batches.is_empty() || !agrees(&peer, &client.capabilities, &batches).await {
            return;
        }
        let name = printable::line(&excerpt(&client.client_info.name, NAME_CHARS));
        let model = ClientModel {
            name: format!("model of {name}"),
            peer,
        };
        // One request at a time, since clients show each to the person.
        let mut run = Run::new(Arc::new(model), batches, 1, Some(searcher));
        while let Some(step) = run.next(&|| ended.is_cancelled()).await {
            if let Step::Answered { written, .. } = step {
                self.store(&mut run, written).await;
            }
        }
        for held in &run.held {
            tracing::warn!(tool = held.id.as_str(), "{}", held.reason());
        }
        tracing::info!(
            client = name,
            tools = run.enriched,
            without = run.without_texts().len(),
            held = run.held.len(),
            problem = run.problem,
            "the client's model wrote texts"
        );
    }

    /// The tools without texts that the client may see.
    fn batches(&self, state: &GatewayState, searcher: &Searcher) -> Vec<Batch> {
        let mut tools = enrich::missing(searcher, &[]);
        if let Some(profile) = &state.profile {
            tools.retain(|tool| profile.certainly_has(&tool.id));
        }
        tools.truncate(self.most);
        enrich::batches(&tools, DEFAULT_BATCH, &self.wanted)
    }

    async fn store(&self, run: &mut Run, written: Vec<(Arc<Tool>, Enrichment)>) {
        let ids = ids_of(&written);
        match self.catalog.enrich(written).await {
            Ok(stored) => run.stored(stored.len(), not_stored(&ids, &stored)),
            Err(reason) => {
                let refused = ids
                    .iter()
                    .map(|id| Refused::new(id.as_str(), reason.as_str()));
                run.stored(0, refused.collect());
            }
        }
    }
}

/// Asks the person, if the client has forms. Without them, the client asks about each request.
async fn agrees(
    peer: &Peer<RoleServer>,
    capabilities: &ClientCapabilities,
    batches: &[Batch],
) -> bool {
    if capabilities.elicitation.is_none() {
        return true;
    }
    let tools: usize = batches.iter().map(|batch| batch.tools.len()).sum();
    let tokens = enrich::estimate(batches);
    let field =
        |write: rmcp::model::BooleanSchema| write.title("Let the model write").with_default(false);
    let schema = ElicitationSchema::builder()
        .required_bool_property(WRITE, field)
        .build();
    let Ok(requested_schema) = schema else {
        return false;
    };
    let form = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!(
            "May your model write what people say when they need {}? It reads their definitions in {}, about {} tokens, \
             and writes about {}, once. Search then finds the tools by everyday words.",
            counted(tools, "tool"),
            counted(batches.len(), "request"),
            tokens.input,
            tokens.output,
        ),
        requested_schema,
    };
    let Ok(answer) = peer.create_elicitation(form).await else {
        return false;
    };
    // A form can be accepted without the tick.
    let is_ticked = match &answer.content {
        Some(content) => content.get(WRITE) == Some(&Value::Bool(true)),
        None => false,
    };
    answer.action == ElicitationAction::Accept && is_ticked
}

/// The model of a client.
struct ClientModel {
    name: String,
    peer: Peer<RoleServer>,
}

#[async_trait]
impl ChatModel for ClientModel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError> {
        let (system, user) = texts(&request.messages);
        let message = SamplingMessage::new(Role::User, SamplingMessageContentBlock::text(user));
        let mut params = CreateMessageRequestParams::new(vec![message], MAX_ANSWER_TOKENS);
        params.system_prompt = Some(system);
        let answer = self.peer.create_message(params).await;
        let answer = answer.map_err(|error| LlmError::Reported {
            url: self.name.clone(),
            message: excerpt(&error.to_string(), 200),
        })?;
        let blocks = answer.message.content.into_vec();
        let text: String = blocks
            .iter()
            .filter_map(|block| Some(block.as_text()?.text.as_str()))
            .collect();
        Ok(futures_util::stream::iter([Ok(Delta::Text(text))]).boxed())
    }
}

/// What the system says, and what the user says.
fn texts(messages: &[Message]) -> (String, String) {
    let of = |place: usize| messages.get(place).map_or("", Message::content).to_owned();
    (of(0), of(1))
}
