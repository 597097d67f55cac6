//! Asks a model about batches of tools: several requests at once, within the limits of its provider.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{sleep, sleep_until, timeout};
use toolscout_index::{Enrichment, Searcher, Tool};

use super::exchange::Refused;
use super::held::{Held, Review};
use super::pace::Pace;
use super::{Batch, Tokens, estimate};
use toolscout_base::budget;
use toolscout_base::clock::millis;
use toolscout_gate::llm::reply::{Reply, complete};
use toolscout_gate::llm::{ChatModel, ChatRequest, LlmError};

/// Requests at one time, unless another number is asked for.
pub const PARALLEL: usize = 4;
/// Longest wait for one answer. The model's client also bounds the silence before and between
/// tokens.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// How often a wait looks whether the run is to stop.
const STOP_POLL: Duration = Duration::from_millis(100);
/// Requests in a row without a usable answer that end the run: more would cost money for nothing.
const MAX_FAILURES_IN_A_ROW: usize = 5;
/// How long answers are waited for after a stop.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

type Answer = Result<Reply, LlmError>;

/// What comes next in a run.
pub enum Step {
    /// An answer about so many tools, with the texts to be stored. [`Run::stored`] has to follow.
    Answered {
        /// The tools that were asked about.
        tools: usize,
        /// What it took.
        tokens: Tokens,
        /// What can be used of the answer.
        written: Vec<(Arc<Tool>, Enrichment)>,
    },
    /// The provider limits requests, and all of them wait.
    Waiting,
}

impl Step {
    /// No answer about so many tools.
    fn nothing(tools: usize) -> Self {
        Step::Answered {
            tools,
            tokens: Tokens::default(),
            written: Vec::new(),
        }
    }
}

/// The requests of a run and what came of them.
pub struct Run {
    model: Arc<dyn ChatModel>,
    batches: Vec<Batch>,
    /// The tools that texts are compared with; `None` where they become no texts of tools.
    searcher: Option<Arc<Searcher>>,
    /// Places of batches.
    waiting: VecDeque<usize>,
    running: JoinSet<(usize, Answer)>,
    pace: Pace,
    /// Tokens after which no further request is sent.
    max_tokens: Option<usize>,
    failures_in_a_row: usize,
    /// Why the last tool without a text has none.
    last_reason: String,
    stopped: Option<Instant>,
    /// Why the run ended before every batch was asked about.
    pub problem: Option<String>,
    /// Tools whose texts are stored.
    pub enriched: usize,
    /// Tools without a usable text in an answer.
    pub skipped: Vec<Refused>,
    /// Tools of requests that were not answered.
    pub unanswered: Vec<Refused>,
    /// Refused texts of tools that have others.
    pub refused: Vec<Refused>,
    /// Texts that are not stored before a person has read them.
    pub held: Vec<Held>,
    /// As the provider counted them, or estimated where it did not.
    pub tokens: Tokens,
}

impl Run {
    /// A run with so many requests at once. Within a runtime of tokio alone.
    pub fn new(
        model: Arc<dyn ChatModel>,
        batches: Vec<Batch>,
        parallel: usize,
        searcher: Option<Arc<Searcher>>,
    ) -> Self {
        Run {
            model,
            waiting: (0..batches.len()).collect(),
            batches,
            searcher,
            running: JoinSet::new(),
            pace: Pace::new(parallel, Instant::now()),
            max_tokens: None,
            failures_in_a_row: 0,
            last_reason: String::new(),
            stopped: None,
            problem: None,
            enriched: 0,
            skipped: Vec::new(),
            unanswered: Vec::new(),
            refused: Vec::new(),
            held: Vec::new(),
            tokens: Tokens::default(),
        }
    }

    /// Sends no request that would take more tokens in all, as far as that is known beforehand.
    pub fn within(mut self, tokens: usize) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        self.model.name()
    }

    /// Tools of all batches.
    pub fn tools(&self) -> usize {
        self.batches.iter().map(|batch| batch.tools.len()).sum()
    }

    /// Tools that got no text.
    pub fn without_texts(&self) -> Vec<&Refused> {
        self.skipped.iter().chain(&self.unanswered).collect()
    }

    /// The next step; `None` at the end. Where the run ends early, no request is sent any more and answers
    /// under way are still taken, since they are paid for; after a stop they have a moment for that.
    pub async fn next(&mut self, is_stopped: &(dyn Fn() -> bool + Sync)) -> Option<Step> {
        loop {
            if self.stopped.is_none() && is_stopped() {
                self.stopped = Some(Instant::now());
            }
            if self.stopped.is_some() || self.problem.is_some() {
                self.waiting.clear();
            }
            self.start_requests();
            if self.running.is_empty() && self.waiting.is_empty() {
                return None;
            }
            let last = self.stopped.map(|stopped| stopped + LAST_ANSWERS);
            let is_paused = !self.waiting.is_empty() && self.pace.has_room(self.running.len());
            tokio::select! {
                // In this order: an answer that has come is taken before the run stops.
                biased;
                Some(answer) = self.running.join_next() => return Some(self.answered(answer).await),
                () = sleep_until(last.unwrap_or_else(Instant::now).into()), if last.is_some() => {
                    self.running.abort_all();
                    return None;
                }
                () = stop(is_stopped), if last.is_none() => {}
                () = sleep_until(self.pace.resume().into()), if is_paused => {}
            }
        }
    }

    /// Takes note of how many tools the texts of the last answer were stored for, and why not for others.
    pub fn stored(&mut self, stored: usize, others: Vec<Refused>) {
        self.enriched += stored;
        self.skipped.extend(others);
        if stored > 0 {
            self.failures_in_a_row = 0;
        } else {
            self.failed();
        }
    }

    fn start_requests(&mut self) {
        while self.pace.allows(self.running.len(), Instant::now()) {
            let Some(place) = self.waiting.pop_front() else {
                return;
            };
            if !self.can_pay(place) {
                let used = self.tokens.sum();
                self.problem = Some(format!(
                    "the budget has no room for a further request; {used} tokens are used"
                ));
                self.waiting.clear();
                return;
            }
            let (model, request) = (Arc::clone(&self.model), self.batches[place].request());
            let ask = async move { (place, ask(&*model, request).await) };
            self.running.spawn(ask);
        }
    }

    /// Whether the budget has room for this request beside those that run.
    fn can_pay(&self, place: usize) -> bool {
        let Some(max) = self.max_tokens else {
            return true;
        };
        // Those that run are taken to cost as much as this one.
        let next = estimate(&self.batches[place..=place]).sum();
        let running = self.running.len() * next;
        self.tokens.sum() + running + next <= max
    }

    async fn answered(&mut self, answer: Result<(usize, Answer), JoinError>) -> Step {
        let (place, answer) = match answer {
            Ok(answer) => answer,
            Err(error) => return self.broken(&error),
        };
        match answer {
            Ok(reply) => self.read(place, reply).await,
            Err(error) => match limit(&error) {
                Some(retry_after) => {
                    // First in line again, so that batches are asked about in their order.
                    self.waiting.push_front(place);
                    if !self.pace.refused(retry_after, Instant::now()) {
                        self.problem = Some(format!("{error}; run it again later"));
                    }
                    Step::Waiting
                }
                None => self.skip(place, &error),
            },
        }
    }

    fn broken(&mut self, error: &JoinError) -> Step {
        self.problem = Some(format!("a request failed inside the program: {error}"));
        Step::nothing(0)
    }

    async fn read(&mut self, place: usize, reply: Reply) -> Step {
        self.pace.answered();
        let batch = self.batches[place].clone();
        let tools = batch.tools.len();
        let spent = spent(&batch, &reply);
        self.tokens.input += spent.input;
        self.tokens.output += spent.output;
        let (model, searcher) = (Arc::clone(&self.model), self.searcher.clone());
        let read = move || {
            let review = match &searcher {
                Some(searcher) => Review::Pending(searcher),
                None => Review::Unneeded,
            };
            batch.read(&reply.text, model.name(), review)
        };
        // Each text is searched for.
        let read = match spawn_blocking(read).await {
            Ok(read) => read,
            Err(error) => return self.broken(&error),
        };
        let mut written = Vec::new();
        for (tool, read) in read {
            let id = tool.id.as_str();
            self.held.extend(read.held);
            for reason in read.refused {
                self.refused.push(Refused::new(id, reason));
            }
            match read.enrichment {
                Ok(enrichment) => written.push((tool, enrichment)),
                Err(reason) => {
                    self.last_reason.clone_from(&reason);
                    self.skipped.push(Refused::new(id, reason));
                }
            }
        }
        Step::Answered {
            tools,
            tokens: spent,
            written,
        }
    }

    fn skip(&mut self, place: usize, error: &LlmError) -> Step {
        self.pace.answered();
        let reason = error.to_string();
        let tools = &self.batches[place].tools;
        for tool in tools {
            let refused = Refused::new(tool.id.as_str(), reason.as_str());
            self.unanswered.push(refused);
        }
        self.last_reason = reason;
        Step::nothing(tools.len())
    }

    fn failed(&mut self) {
        self.failures_in_a_row += 1;
        if self.failures_in_a_row == MAX_FAILURES_IN_A_ROW {
            self.problem = Some(format!(
                "{MAX_FAILURES_IN_A_ROW} requests in a row gave nothing that can be used, the last: {}",
                self.last_reason
            ));
        }
    }
}

/// The model's whole answer.
///
/// # Errors
/// As [`ChatModel::stream`], and for an answer that takes too long.
pub async fn ask(model: &dyn ChatModel, request: ChatRequest) -> Answer {
    match timeout(ANSWER_TIMEOUT, complete(model, request)).await {
        Ok(reply) => reply,
        Err(_) => Err(LlmError::Timeout {
            stage: "until the end of the answer",
            waited_ms: millis(ANSWER_TIMEOUT),
        }),
    }
}

/// The tokens of an answer, counted here where the provider does not.
fn spent(batch: &Batch, reply: &Reply) -> Tokens {
    match reply.usage {
        Some(usage) => Tokens {
            input: usage.input as usize,
            output: usage.output as usize,
        },
        None => Tokens {
            input: estimate(std::slice::from_ref(batch)).input,
            output: budget::count(&reply.text),
        },
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

/// Ends once the run is to stop.
async fn stop(is_stopped: &(dyn Fn() -> bool + Sync)) {
    while !is_stopped() {
        sleep(STOP_POLL).await;
    }
}
