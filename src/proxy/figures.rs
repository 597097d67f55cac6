//! What a request took: told to the client, the log and the metrics.

use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tracing::Span;

use crate::proxy::dialect::Dialect;

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
            tools_shown: 0,
            tokens_shown: 0,
            tokens_saved: 0,
            model: Duration::ZERO,
            counted_tokens: None,
        }
    }

    /// Time since the request began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Takes the tokens of a dialect's `usage`.
    pub fn count(&mut self, usage: Option<&Value>) {
        let count = |names: [&str; 2]| {
            let usage = usage?;
            names.iter().find_map(|name| usage.get(name)?.as_u64())
        };
        let input = count(["prompt_tokens", "input_tokens"]);
        let output = count(["completion_tokens", "output_tokens"]);
        self.counted_tokens = input.zip(output);
    }

    /// The headers that tell the client.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        let figures = [
            ("x-toolscout-rounds", self.rounds as usize),
            ("x-toolscout-searches", self.searches as usize),
            ("x-toolscout-tools-offered", self.tools_offered),
            ("x-toolscout-tools-shown", self.tools_shown),
            ("x-toolscout-tokens-saved", self.tokens_saved),
        ];
        for (name, figure) in figures {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(figure));
        }
    }

    /// Writes the figures to the log and to the span of the request.
    pub fn tell(&self, span: &Span, request_id: &str, dialect: Dialect, outcome: &str) {
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
