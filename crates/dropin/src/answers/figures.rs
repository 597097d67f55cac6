//! What a request took: told to the client, the log and the metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tracing::Span;

use crate::DropInRequest;
use crate::dialect::Dialect;
use crate::tools::not_deferred::{NotDeferred, Reason};
use toolscout_base::telemetry::{Metrics, traces};

/// The headers of an answer that have figures.
const HEADERS: [HeaderName; 5] = [
    HeaderName::from_static("x-toolscout-rounds"),
    HeaderName::from_static("x-toolscout-searches"),
    HeaderName::from_static("x-toolscout-tools-offered"),
    HeaderName::from_static("x-toolscout-tools-shown"),
    HeaderName::from_static("x-toolscout-tokens-saved"),
];

/// The figures of one request.
#[derive(Clone, Debug)]
pub struct Figures {
    begun: Instant,
    /// Rounds of the model.
    pub rounds: u32,
    /// Searches that it made.
    pub searches: u32,
    /// Tools of the request.
    pub tools_offered: usize,
    /// Why all of them are shown; `None` where some are deferred.
    pub not_deferred: Option<Reason>,
    /// Tools that the model saw in the last round.
    pub tools_shown: usize,
    /// Tokens of the tools that the model saw, in all rounds; estimated.
    pub tokens_shown: usize,
    /// Tokens of all tools, which one round would have shown, less those; 0 without an answer.
    pub tokens_saved: usize,
    /// Time that the provider took.
    pub model: Duration,
    /// Tokens of prompts and of answers in all rounds, as the provider counted them.
    pub counted_tokens: Option<(u64, u64)>,
}

impl Figures {
    /// Begins with this number of tools.
    pub fn begin(tools_offered: usize) -> Self {
        Figures {
            begun: Instant::now(),
            rounds: 0,
            searches: 0,
            tools_offered,
            not_deferred: None,
            tools_shown: 0,
            tokens_shown: 0,
            tokens_saved: 0,
            model: Duration::ZERO,
            counted_tokens: None,
        }
    }

    /// Begins a request that passes as it came, in one round.
    pub fn begin_passing(passing: NotDeferred) -> Self {
        Figures {
            rounds: 1,
            tools_shown: passing.tools,
            not_deferred: Some(passing.reason),
            ..Figures::begin(passing.tools)
        }
    }

    /// Time since the request began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes the tokens of a dialect's `usage`.
    pub fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else {
            self.counted_tokens = None;
            return;
        };
        // The first names are those of chat completions, the second those of the other dialects.
        let input = count_of(
            usage,
            [
                "prompt_tokens",
                "input_tokens",
                "promptTokenCount",
                "inputTokens",
            ],
        );
        let output = count_of(
            usage,
            [
                "completion_tokens",
                "output_tokens",
                "candidatesTokenCount",
                "outputTokens",
            ],
        );
        self.counted_tokens = input.zip(output);
    }

    /// The headers that tell the client.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        let figures = [
            self.rounds as usize,
            self.searches as usize,
            self.tools_offered,
            self.tools_shown,
            self.tokens_saved,
        ];
        for (name, figure) in HEADERS.into_iter().zip(figures) {
            headers.insert(name, HeaderValue::from(figure));
        }
    }

    /// Writes the figures to the log and to the span of the request.
    fn tell(&self, span: &Span, request_id: &str, dialect: Dialect, outcome: &str) {
        let (elapsed, model) = (self.elapsed(), self.model);
        span.record("toolscout.outcome", outcome);
        span.record("toolscout.rounds", self.rounds);
        span.record("toolscout.searches", self.searches);
        span.record("toolscout.tools_offered", self.tools_offered);
        span.record("toolscout.tools_shown", self.tools_shown);
        span.record("toolscout.tokens_saved", self.tokens_saved);
        span.record("toolscout.model_ms", model.as_secs_f64() * 1000.0);
        tracing::info!(
            request_id,
            dialect = dialect.name(),
            outcome,
            not_deferred = self.not_deferred.map(Reason::name),
            rounds = self.rounds,
            searches = self.searches,
            tools_offered = self.tools_offered,
            tools_shown = self.tools_shown,
            tokens_saved = self.tokens_saved,
            input_tokens = self.counted_tokens.map(|(input, _)| input),
            output_tokens = self.counted_tokens.map(|(_, output)| output),
            model_ms = model.as_secs_f64() * 1000.0,
            own_ms = elapsed.saturating_sub(model).as_secs_f64() * 1000.0,
            "model request"
        );
    }
}

fn count_of(usage: &Value, names: [&str; 4]) -> Option<u64> {
    names.iter().find_map(|name| usage.get(name)?.as_u64())
}

/// The headers of an answer that have figures, for pages that may read them.
pub fn header_names() -> impl Iterator<Item = HeaderName> {
    HEADERS.into_iter()
}

/// What is said of one request once it has ended: dropping it writes the request's line in the log.
pub struct Report {
    pub figures: Figures,
    /// How the request ended.
    pub outcome: &'static str,
    request_id: String,
    dialect: Dialect,
    metrics: Arc<Metrics>,
    span: Span,
}

impl Report {
    /// The report of a request that is not answered yet.
    pub fn begin(request: &DropInRequest, metrics: &Arc<Metrics>, figures: Figures) -> Self {
        Report {
            figures,
            // Whoever ends the request says how. If nobody does, the client did not wait for it.
            outcome: "client_gone",
            request_id: request.id.clone(),
            dialect: request.dialect,
            metrics: Arc::clone(metrics),
            span: traces::model_span(request.dialect.name()),
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        let Report {
            figures, metrics, ..
        } = self;
        figures.tell(&self.span, &self.request_id, self.dialect, self.outcome);
        let rounds = match figures.not_deferred {
            // Rounds are counted where tools were deferred.
            Some(_) => 0,
            None => figures.rounds,
        };
        metrics.model_request(self.dialect.name(), self.outcome, rounds);
        metrics.searched_tools.inc_by(figures.searches.into());
        metrics.saved_tokens.inc_by(figures.tokens_saved as u64);
    }
}
