//! One request from its first round to its last, in every dialect.

mod conversation;
mod hidden_calls;
mod hits;
mod visible_tools;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use reqwest::Response;

use self::conversation::Conversation;
use self::visible_tools::VisibleTools;
use crate::answers::figures::{Figures, Report};
use crate::answers::passing;
use crate::conversations::conversation::ConversationNames;
use crate::conversations::found::{Found, Held};
use crate::conversations::kept_conversations::{self, Identity, Remembered};
use crate::dialect::{CallResult, Protocol, Round, View, WholeAnswer};
use crate::provider::answer_bounds::HeldAnswer;
use crate::tools::tool_list::ToolList;
use crate::wire::failure::Failure;
use crate::wire::json::{self, Fields};
use crate::{AnswerBody, DropIn, DropInAnswer, DropInRequest, is_event_stream, provider};
use toolscout_base::long_work;
use toolscout_finder::finder::{SearchHistory, SearchTrail};

/// A request whose tools are deferred, between two rounds of the model.
pub struct Exchange {
    pub endpoint: DropIn,
    pub request: Arc<DropInRequest>,
    protocol: &'static dyn Protocol,
    fields: Fields,
    streams: bool,
    tools: VisibleTools,
    conversation: Conversation,
    searches: Searches,
    /// The memory that the provider's answer takes.
    pub held: HeldAnswer,
    pub report: Report,
}

/// What searches have found.
struct Searches {
    /// Those of the conversation in the other catalog, where that teaches its usage memory.
    trail: SearchTrail,
    /// Those of this request since their last call.
    history: SearchHistory,
}

/// What follows a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The model is asked again.
    Again,
    /// The client has its answer.
    Done,
}

impl Exchange {
    /// Prepares the first round; `None` for a conversation of a form that is not known.
    pub fn new(
        endpoint: DropIn,
        request: Arc<DropInRequest>,
        mut fields: Fields,
        list: Arc<ToolList>,
        streams: bool,
    ) -> Option<Self> {
        let (protocol, owner) = (request.dialect.protocol(), &request.owner);
        let items = protocol.conversation(&fields)?;
        let kept = &endpoint.0.conversations;
        let mut identity = Identity::new(owner, request.dialect.name());
        let held = Held::take(kept, &request, &mut fields, &mut identity);
        let restored = kept_conversations::restore(kept, protocol, owner, identity, &items);
        let names = ConversationNames::of(&request, &fields, protocol, &items);
        let Found {
            shown,
            foreign,
            trail,
        } = Found::before(kept, &names, &held, &restored);
        let mut tools = VisibleTools::new(&request, Arc::clone(&list), shown, foreign);
        let chosen = protocol.choice(&fields);
        let required = restored.called.into_iter();
        for name in required.chain(protocol.chosen_tools(&chosen)) {
            tools.require(&name);
        }
        // The provider waits for these results before it takes anything else.
        let mut items = held.pending;
        items.extend(restored.items);
        let identity = restored.identity;
        Some(Exchange {
            protocol,
            fields,
            streams,
            tools,
            conversation: Conversation::new(items, held.conversation, identity, names),
            searches: Searches {
                trail,
                history: SearchHistory::default(),
            },
            held: endpoint.0.answers.begin(),
            report: Report::begin(&request, &endpoint.0.metrics, Figures::begin(list.len())),
            endpoint,
            request,
        })
    }

    /// Sends the first round.
    ///
    /// # Errors
    /// Where the provider gives no answer.
    pub async fn begin(&mut self) -> Result<First, Failure> {
        // While the model thinks, so that its first search does not wait.
        self.endpoint.0.catalogs.prepare(&self.tools.list);
        match self.first_round().await {
            Ok(first) => Ok(first),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    async fn first_round(&mut self) -> Result<First, Failure> {
        let response = self.send().await?;
        Ok(if !response.status().is_success() {
            First::Refused(response)
        } else if is_event_stream(&response) {
            First::Streamed(response)
        } else {
            // Some servers ignore `stream`, and clients of theirs expect it.
            First::Whole(response)
        })
    }

    /// Answers with all rounds in one piece, of which this is the first.
    ///
    /// # Errors
    /// Where the provider gives no whole answer.
    pub async fn answer_whole(&mut self, response: Response) -> Result<DropInAnswer, Failure> {
        let mut answer = self.protocol.whole(self.view());
        let mut response = response;
        loop {
            let round = match self.whole_round(answer.as_mut(), &mut response).await {
                Ok(round) => round,
                Err(failure) => return Err(self.failed(failure)),
            };
            if self.after(round, None).await == Next::Done {
                break;
            }
            response = match self.send().await {
                Ok(next) if next.status().is_success() => next,
                Ok(refused) => return Ok(self.refused(refused)),
                Err(failure) => return Err(self.failed(failure)),
            };
        }
        let mut headers = provider::response_headers(response.headers());
        self.answered();
        self.report.figures.add_to(&mut headers);
        self.report.figures.count(answer.usage());
        Ok(DropInAnswer {
            status: response.status().as_u16(),
            headers,
            body: AnswerBody::Whole(long_work::read(self.held.bytes(), || answer.close()).await),
        })
    }

    /// The round in this response, whose time counts as the model's up to its last byte.
    async fn whole_round(
        &mut self,
        answer: &mut dyn WholeAnswer,
        response: &mut Response,
    ) -> Result<Round, Failure> {
        let begun = Instant::now();
        let provider = &self.endpoint.0.provider;
        let body = provider.held(response, &mut self.held).await;
        self.report.figures.model += begun.elapsed();
        let body = body?;
        let round = long_work::read(body.len(), || answer.take(body)).await?;
        self.counted_calls(round)
    }

    /// The provider's refusal, as it comes.
    pub fn refused(&mut self, response: Response) -> DropInAnswer {
        self.report.outcome = "refused";
        passing::answer(
            &self.endpoint.0.provider,
            self.request.dialect,
            response,
            None,
        )
    }

    /// Notes a failure for the log.
    pub fn failed(&mut self, failure: Failure) -> Failure {
        self.report.outcome = failure.code;
        failure
    }

    /// Notes that the client has its answer.
    pub fn answered(&mut self) {
        // Several rounds may have shown more tokens than one with all tools would have.
        let Figures { tokens_shown, .. } = self.report.figures;
        self.report.figures.tokens_saved = self.tools.list.tokens.saturating_sub(tokens_shown);
        self.report.outcome = "answered";
    }

    /// How answers to this request are read.
    pub fn view(&self) -> View {
        View {
            hidden: self.tools.hidden.clone(),
            tools: self.protocol.tools(&self.fields).unwrap_or_default(),
            is_stored: self.fields.flag("store") != Some(false),
            wants_list: self.request.wants_list(),
        }
    }

    /// How its dialect is read and written.
    pub fn protocol(&self) -> &'static dyn Protocol {
        self.protocol
    }

    /// Sends the next round, and waits for the beginning of its answer.
    ///
    /// # Errors
    /// Where none begins.
    pub async fn send(&mut self) -> Result<Response, Failure> {
        let body = self.body();
        self.report.figures.rounds += 1;
        self.report.figures.tools_shown = self.tools.count();
        // A sum over the rounds, each of which sends the tools again.
        self.report.figures.tokens_shown += self.tools.tokens();
        let begun = Instant::now();
        let provider = &self.endpoint.0.provider;
        let given = self.request.query.as_deref();
        let query = self.request.dialect.query(given, self.streams);
        let sent = provider.send(&self.request, query.as_deref(), body, self.streams);
        let response = sent.await;
        self.report.figures.model += begun.elapsed();
        response
    }

    /// The body of the first round, to count its tokens.
    pub fn counted(&mut self) -> Bytes {
        self.report.outcome = "counted";
        self.body()
    }

    fn body(&self) -> Bytes {
        let mut fields = self.fields.clone();
        self.protocol
            .set_tools(&mut fields, self.tools.definitions());
        let items = json::list(&self.conversation.items);
        fields.set(self.protocol.conversation_field(), items);
        // A model that searches on and on has to answer at last.
        if self.report.figures.rounds >= self.endpoint.0.config.max_hidden_rounds {
            self.protocol.forbid_calls(&mut fields);
        }
        fields.to_json()
    }

    /// A round whose calls were counted.
    ///
    /// # Errors
    /// When the answer has too many.
    pub fn counted_calls(&mut self, round: Round) -> Result<Round, Failure> {
        self.held
            .add_calls(round.hidden.len() + round.calls.len())?;
        Ok(round)
    }

    /// Decides what follows a round, and searches if the model has. `client_id` is the id under
    /// which the client knows the answer, where it has one.
    pub async fn after(&mut self, round: Round, client_id: Option<String>) -> Next {
        self.conversation.add_text(&round.text);
        let results = self.do_hidden(&round.hidden).await;
        // Some models call tools in the round in which they must not.
        let is_last = self.report.figures.rounds > self.endpoint.0.config.max_hidden_rounds;
        // The client has to answer its own calls before the model can go on.
        if round.hidden.is_empty() || !round.calls.is_empty() || !round.is_complete || is_last {
            let bytes = self.held.bytes();
            long_work::read(bytes, || self.remember(round, results, client_id)).await;
            return Next::Done;
        }
        let results = self.protocol.results(&results);
        self.conversation.go_on(round, results);
        Next::Again
    }

    /// Remembers what the client does not see of its answer.
    fn remember(&mut self, round: Round, results: Vec<CallResult>, client_id: Option<String>) {
        // What was called is evicted last.
        for call in &round.calls {
            self.tools.require(&call.tool_name());
        }
        let remembered = Remembered {
            results,
            trail: self.searches.trail.clone(),
            shown: self.tools.shown.clone(),
            foreign: self.tools.foreign_ids(),
            ..Remembered::default()
        };
        let kept = &self.endpoint.0.conversations;
        let owner = &self.request.owner;
        self.conversation
            .keep(kept, owner, round, client_id, remembered);
    }
}

/// How the first round was answered.
pub enum First {
    /// By events.
    Streamed(Response),
    /// In one piece.
    Whole(Response),
    /// By an error.
    Refused(Response),
}
