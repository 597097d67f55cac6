//! Asks a model.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use indicatif::ProgressBar;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use super::Prices;
use super::keep::{note_unembedded, store, warn_of_each};
use super::pace::Pace;
use crate::agent::reply::{Reply, complete};
use crate::cli::context::Context;
use crate::cli::embed::Embedded;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::{ITEMS, bar};
use crate::cli::store::Place;
use crate::clock::millis;
use crate::enrich::Batch;
use crate::enrich::exchange::Refused;
use crate::llm::{ChatModel, ChatRequest, LlmError, Usage};
use crate::printable::counted;

/// Longest wait for one answer. The model's client also bounds the silence before and between
/// tokens.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// How often a wait looks whether Ctrl-C was pressed.
const INTERRUPT_POLL: Duration = Duration::from_millis(100);
/// Requests in a row without a usable answer that end the run: more would cost money for nothing.
const MAX_FAILURES_IN_A_ROW: usize = 5;
/// How long answers are waited for after Ctrl-C.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

type Answer = Result<Reply, LlmError>;

/// The requests of a run, by the places of their batches.
struct Requests {
    waiting: VecDeque<usize>,
    running: JoinSet<(usize, Answer)>,
    pace: Pace,
    /// Why no further request is sent.
    ending: Option<anyhow::Error>,
}

impl Requests {
    fn may_start(&self) -> bool {
        self.pace.allows(self.running.len(), Instant::now())
    }

    /// True where only the provider's limits keep a request from being sent.
    fn is_paused(&self) -> bool {
        !self.waiting.is_empty() && self.pace.has_room(self.running.len())
    }
}

/// Asks a model, several requests at once, and stores what can be used of each answer as it comes.
pub struct Run<'a> {
    place: &'a Place,
    model: Arc<dyn ChatModel>,
    interrupt: Interrupt,
    runtime: Runtime,
    /// Tools whose texts are stored.
    pub enriched: usize,
    /// Tools without a usable text.
    pub skipped: Vec<Refused>,
    /// Refused texts of tools that have others.
    refused: Vec<Refused>,
    /// As the model's server counted them.
    usage: Usage,
}

impl<'a> Run<'a> {
    pub fn new(place: &'a Place, model: Arc<dyn ChatModel>, interrupt: Interrupt) -> Result<Self> {
        Ok(Run {
            place,
            model,
            interrupt,
            runtime: Builder::new_multi_thread()
                // One keeps the order of requests; their work is waiting.
                .worker_threads(1)
                .enable_all()
                .build()
                .context("start the runtime")?,
            enriched: 0,
            skipped: Vec::new(),
            refused: Vec::new(),
            usage: Usage::default(),
        })
    }

    /// Asks until every batch was asked about, Ctrl-C is pressed, or too many requests in a row gave
    /// nothing.
    pub fn all(&mut self, batches: &[Batch], parallel: usize, prices: &Prices) -> Result<()> {
        let bar = bar("enriching", ITEMS);
        bar.set_length(batches.iter().map(|batch| batch.tools.len() as u64).sum());
        let mut requests = Requests {
            waiting: (0..batches.len()).collect(),
            running: JoinSet::new(),
            pace: Pace::new(parallel, Instant::now()),
            ending: None,
        };
        let ended = self.each(batches, &mut requests, &bar, prices);
        bar.finish_and_clear();
        ended?;
        requests.ending.map_or(Ok(()), Err)
    }

    fn each(
        &mut self,
        batches: &[Batch],
        requests: &mut Requests,
        bar: &ProgressBar,
        prices: &Prices,
    ) -> Result<()> {
        let mut failures = 0;
        while let Some((place, answer)) = self.next(batches, requests)? {
            let batch = &batches[place];
            let written = match answer {
                Ok(reply) => self.store(batch, &reply)?,
                Err(error) => {
                    if let Some(retry_after) = limit(&error) {
                        requests.waiting.push_front(place);
                        if requests.pace.refused(retry_after, Instant::now()) {
                            bar.set_message("waiting, the provider limits requests");
                        } else {
                            requests.ending = Some(anyhow!(
                                "{error}; later `toolscout enrich` goes on with the rest"
                            ));
                        }
                        continue;
                    }
                    self.skip(batch, &error);
                    0
                }
            };
            requests.pace.answered();
            bar.inc(batch.tools.len() as u64);
            let Usage { input, output } = self.usage;
            bar.set_message(match prices.of(input as f64, output as f64) {
                Some(price) => format!("enriching, price so far {price:.4}"),
                None => "enriching".to_owned(),
            });
            failures = if written > 0 { 0 } else { failures + 1 };
            if failures == MAX_FAILURES_IN_A_ROW {
                let last = self.skipped.last().map_or("", |skipped| &skipped.reason);
                requests.ending = Some(anyhow!(
                    "{failures} requests in a row gave nothing that can be used, the last: {last}"
                ));
            }
        }
        Ok(())
    }

    fn skip(&mut self, batch: &Batch, error: &LlmError) {
        let reason = error.to_string();
        let ids = batch.tools.iter().map(|tool| tool.id.as_str());
        self.skipped
            .extend(ids.map(|id| Refused::new(id, reason.as_str())));
    }

    /// The next answer, with the place of its batch; `None` once all are there. Where the run ends
    /// early, no request is sent any more and answers under way are still taken, since they are paid
    /// for; after Ctrl-C they have a moment for that.
    fn next(&self, batches: &[Batch], requests: &mut Requests) -> Result<Option<(usize, Answer)>> {
        self.runtime.block_on(async {
            loop {
                if self.interrupt.is_raised() || requests.ending.is_some() {
                    requests.waiting.clear();
                }
                while requests.may_start() {
                    let Some(place) = requests.waiting.pop_front() else {
                        break;
                    };
                    let (model, request) = (Arc::clone(&self.model), batches[place].request());
                    let ask = async move { (place, ask(&*model, request).await) };
                    requests.running.spawn(ask);
                }
                if requests.running.is_empty() && requests.waiting.is_empty() {
                    return Ok(None);
                }
                let is_raised = self.interrupt.is_raised();
                tokio::select! {
                    biased;
                    Some(answer) = requests.running.join_next() => {
                        return Ok(Some(answer.context("ask the model")?));
                    }
                    () = pressed(&self.interrupt), if !is_raised => {}
                    () = sleep(LAST_ANSWERS), if is_raised => return Ok(None),
                    () = sleep_until(requests.pace.resume().into()), if requests.is_paused() => {}
                }
            }
        })
    }

    /// Stores what an answer says about its tools. Returns about how many of them.
    fn store(&mut self, batch: &Batch, reply: &Reply) -> Result<usize> {
        let usage = reply.usage.unwrap_or_default();
        self.usage.input += usage.input;
        self.usage.output += usage.output;
        let mut usable = Vec::new();
        for (tool, read) in batch.read(&reply.text, self.model.name()) {
            let id = tool.id.as_str();
            let refused = read.refused.into_iter();
            self.refused
                .extend(refused.map(|reason| Refused::new(id, reason)));
            match read.enrichment {
                Ok(enrichment) => usable.push((Arc::clone(tool), enrichment)),
                Err(reason) => self.skipped.push(Refused::new(id, reason)),
            }
        }
        let stored = store(self.place, &self.interrupt, usable, &mut self.skipped)?;
        self.enriched += stored;
        Ok(stored)
    }

    pub fn report(
        &self,
        context: &Context,
        left: usize,
        took: Duration,
        embedded: Option<&Embedded>,
    ) -> Result<()> {
        if context.printer.is_json() {
            return context.printer.json(&json!({
                "catalog": context.settings.catalog,
                "model": self.model.name(),
                "enriched": self.enriched,
                "skipped": self.skipped,
                "refused": self.refused,
                "left": left,
                "embedded": embedded.map_or(0, |embedded| embedded.texts),
                "tokens_in": self.usage.input,
                "tokens_out": self.usage.output,
                "took_ms": took.as_secs_f64() * 1e3,
            }));
        }
        warn_of_each(context, "nothing was written for", &self.skipped);
        warn_of_each(context, "a text was refused for", &self.refused);
        let rest = match left {
            0 => String::new(),
            left => format!(", {left} left; `toolscout enrich` goes on with them"),
        };
        context.printer.text(format_args!(
            "{}: {} enriched in {:.1} s{rest}",
            context.settings.catalog,
            counted(self.enriched, "tool"),
            took.as_secs_f64(),
        ))?;
        note_unembedded(context, self.place, self.enriched, embedded)
    }
}

/// The model's whole answer.
async fn ask(model: &dyn ChatModel, request: ChatRequest) -> Answer {
    match timeout(ANSWER_TIMEOUT, complete(model, request)).await {
        Ok(reply) => reply,
        Err(_) => Err(LlmError::Timeout {
            stage: "until the end of the answer",
            waited_ms: millis(ANSWER_TIMEOUT),
        }),
    }
}

/// How long to wait, where a request was refused because of the provider's limits.
fn limit(error: &LlmError) -> Option<Option<Duration>> {
    match error {
        LlmError::Status {
            status: 429,
            retry_after,
            ..
        } => Some(*retry_after),
        _ => None,
    }
}

/// Ends once Ctrl-C was pressed.
async fn pressed(interrupt: &Interrupt) {
    while !interrupt.is_raised() {
        sleep(INTERRUPT_POLL).await;
    }
}
