//! An OpenAI-compatible endpoint as an embedder: Ollama, llama.cpp, vLLM, a provider's API.
//!
//! Requests run on a thread of their own, so that a search can stop waiting at any moment, on any
//! thread. Tools are embedded with retries; a request of a search is sent once, and not at all while
//! the endpoint is known to fail ([`Breaker`]).

mod answer;
mod client;

#[cfg(any(test, feature = "testing"))]
pub mod double;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use toolscout_index::{Embedder, EmbedderProfile, Error, Result};

use client::{Client, Failure};
use toolscout_base::breaker::{Breaker, Permit};
use toolscout_base::config::{EndpointSettings, masked};

/// Wait before the second attempt; it doubles each time.
const BACKOFF: Duration = Duration::from_millis(500);
/// Longest wait before an attempt, whatever the endpoint asks for.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How often a pause looks whether the program is ending.
const TICK: Duration = Duration::from_millis(100);
/// Requests of searches in flight at most; a further one waits for its turn.
const MAX_QUERIES: usize = 16;

/// Set once the program is ending.
static IS_STOPPING: AtomicBool = AtomicBool::new(false);

/// Ends the pauses between attempts, in this process and for good: the program is ending.
pub fn stop_waiting() {
    // The flag alone is read; no other memory depends on it.
    IS_STOPPING.store(true, Ordering::Relaxed);
}

fn is_stopping() -> bool {
    IS_STOPPING.load(Ordering::Relaxed)
}

/// What an endpoint was asked for so far.
#[derive(Debug, Default)]
pub struct Usage {
    /// For tools.
    pub tools: Asked,
    /// For requests of searches.
    pub queries: Asked,
    /// Price of a million tokens, where the settings have it.
    pub price_per_million_tokens: Option<f64>,
}

/// What an endpoint was asked for one purpose.
#[derive(Debug, Default)]
pub struct Asked {
    /// Embedded texts.
    pub texts: AtomicU64,
    /// Tokens that the endpoint has counted; 0 where it counts none.
    pub tokens: AtomicU64,
}

/// What is known of an endpoint's model: from the settings, or asked for once.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The model's name.
    pub model: String,
    /// Length of its vectors.
    pub dimensions: usize,
}

/// Called when vectors of another length come than an earlier run has seen.
type OnOtherLength = Box<dyn Fn() + Send + Sync>;

/// An embedder behind an OpenAI-compatible API.
///
/// Its id, under which vectors are stored, names the model, the length of vectors and all that is
/// sent with a text, but neither the address nor the key: the same model may move.
pub struct Endpoint {
    id: String,
    settings: EndpointSettings,
    identity: Identity,
    shared: Arc<Shared>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    is_patient: bool,
    on_other_length: Option<OnOtherLength>,
}

/// What tasks on the runtime share with the embedder.
struct Shared {
    client: Client,
    breaker: Breaker,
    queries: Semaphore,
    usage: Arc<Usage>,
    backoff: Duration,
    /// Until when the endpoint has asked to be left alone.
    asked_to_wait: Mutex<Option<Instant>>,
}

impl Endpoint {
    /// Asks an endpoint for what its settings leave open, within a time limit for all of it.
    ///
    /// # Errors
    /// An address that is none, an endpoint that does not answer, or one with several models.
    pub fn discover(settings: &EndpointSettings, limit: Duration) -> Result<Identity> {
        let start = Instant::now();
        let left = || limit.saturating_sub(start.elapsed());
        let runtime = runtime(settings)?;
        let model = match &settings.model {
            Some(model) => model.clone(),
            None => {
                let client = client(settings, "")?;
                answered(&runtime, &client, client.only_model(left()))?
            }
        };
        let dimensions = match settings.dimensions {
            Some(dimensions) => dimensions,
            None => {
                let client = client(settings, &model)?;
                // Any text will do: only the length of its vector is wanted.
                let texts = vec![format!("{}dimensions", settings.passage_prefix)];
                let limit = settings.timeout().min(left());
                let answer = client.embed(&texts, &settings.passage_parameters, None, limit);
                let vectors = answered(&runtime, &client, answer)?.vectors;
                vectors.first().map_or(0, Vec::len)
            }
        };
        // In the background, since waiting is not allowed on an async thread.
        runtime.shutdown_background();
        Ok(Identity { model, dimensions })
    }

    /// An embedder; nothing is sent yet.
    ///
    /// # Errors
    /// An address that is none.
    pub fn new(settings: EndpointSettings, identity: Identity) -> Result<Self> {
        Endpoint::with_backoff(settings, identity, BACKOFF)
    }

    fn with_backoff(
        settings: EndpointSettings,
        identity: Identity,
        backoff: Duration,
    ) -> Result<Self> {
        let client = client(&settings, &identity.model)?;
        let runtime = runtime(&settings)?;
        Ok(Endpoint {
            id: id(&settings, &identity),
            shared: Arc::new(Shared {
                client,
                breaker: Breaker::default(),
                queries: Semaphore::new(MAX_QUERIES),
                usage: Arc::new(Usage {
                    price_per_million_tokens: settings.price_per_million_tokens,
                    ..Usage::default()
                }),
                backoff,
                asked_to_wait: Mutex::default(),
            }),
            runtime: Some(runtime),
            settings,
            identity,
            is_patient: false,
            on_other_length: None,
        })
    }

    /// Embeds requests like tools, with retries and without the time limit of a search: for
    /// measuring, where every request has to be answered.
    pub fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    /// Calls this when vectors of another length come.
    pub fn on_other_length(mut self, call: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_other_length = Some(Box::new(call));
        self
    }

    /// What it was asked for so far.
    pub fn usage(&self) -> Arc<Usage> {
        Arc::clone(&self.shared.usage)
    }

    /// The texts as they are sent.
    fn prepared(&self, texts: &[&str], prefix: &str) -> Vec<String> {
        let mut prepared = Vec::with_capacity(texts.len());
        for text in texts {
            // What a model would not read need not be sent.
            let read = match text.char_indices().nth(self.settings.max_chars) {
                Some((end, _)) => &text[..end],
                None => text,
            };
            prepared.push(format!("{prefix}{read}"));
        }
        prepared
    }

    /// Embeds with retries, some batches at a time.
    fn embed_patiently(
        &self,
        texts: Vec<String>,
        parameters: &Map<String, Value>,
        asked: fn(&Usage) -> &Asked,
    ) -> Result<Vec<Vec<f32>>> {
        let batches: Vec<Vec<String>> = texts
            .chunks(self.settings.batch)
            .map(<[String]>::to_vec)
            .collect();
        let (shared, settings) = (Arc::clone(&self.shared), self.settings.clone());
        let (parameters, dimensions) = (parameters.clone(), self.identity.dimensions);
        let (send, receive) = sync_channel(1);
        self.spawn(async move {
            let embed = |batch: Vec<String>| {
                let (shared, settings, parameters) = (&shared, &settings, &parameters);
                async move {
                    let answer = shared
                        .embed_batch(&batch, parameters, dimensions, settings)
                        .await?;
                    Ok(asked(&shared.usage).counted(answer))
                }
            };
            let vectors: std::result::Result<Vec<Vec<Vec<f32>>>, Failure> = stream::iter(batches)
                .map(embed)
                // In the order of the batches, whichever is answered first.
                .buffered(settings.concurrency)
                .try_collect()
                .await;
            // The receiver waits for it.
            let _ = send.send(vectors);
        });
        match receive.recv() {
            Ok(Ok(batches)) => Ok(batches.into_iter().flatten().collect()),
            Ok(Err(failure)) => Err(self.failed(failure)),
            Err(_) => Err(failed(&self.shared.client, "the request panicked".into())),
        }
    }

    /// Embeds the texts of a search, within a time limit and unless the endpoint is known to fail.
    fn embed_soon(&self, texts: Vec<String>, limit: Option<Duration>) -> Result<Vec<Vec<f32>>> {
        let permit = Arc::clone(&self.shared)
            .admit()
            .map_err(|reason| failed(&self.shared.client, reason))?;
        let query_timeout = self.settings.query_timeout();
        let wait = limit.unwrap_or(query_timeout).min(query_timeout);
        let parameters = self.settings.query_parameters.clone();
        let dimensions = self.identity.dimensions;
        let (send, receive) = sync_channel(1);
        // It goes on when the search no longer waits for it: a search with less time than others
        // says nothing about the endpoint.
        self.spawn(async move {
            let shared = Arc::clone(permit.shared());
            let Ok(_turn) = timeout(wait, shared.queries.acquire()).await else {
                // Nobody waits for it any more, and the endpoint was not asked.
                return permit.give_back();
            };
            let embedded =
                shared
                    .client
                    .embed_query(&texts, &parameters, dimensions, query_timeout);
            let outcome = match timeout(query_timeout, embedded).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Failure::timeout(query_timeout)),
            };
            let outcome = outcome.map(|answer| shared.usage.queries.counted(answer));
            if let Err(failure) = &outcome {
                tracing::warn!(
                    endpoint = shared.client.shown(),
                    problem = failure.reason,
                    "a search goes on without this model"
                );
            }
            permit.close(outcome.as_ref().err());
            // The search may have stopped waiting.
            let _ = send.send(outcome);
        });
        match receive.recv_timeout(wait) {
            Ok(outcome) => outcome.map_err(|failure| self.failed(failure)),
            Err(RecvTimeoutError::Timeout) => Err(self.failed(Failure::timeout(wait))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(failed(&self.shared.client, "the request panicked".into()))
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    fn failed(&self, failure: Failure) -> Error {
        if failure.is_other_length
            && let Some(call) = &self.on_other_length
        {
            call();
        }
        failed(&self.shared.client, failure.reason)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // In the background, since waiting is not allowed on an async thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Embedder for Endpoint {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            share: self.settings.weight,
            ..EmbedderProfile::new(&self.id, self.identity.dimensions)
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_queries_within(texts, None)
    }

    fn embed_queries_within(
        &self,
        texts: &[&str],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<f32>>> {
        let texts = self.prepared(texts, &self.settings.query_prefix);
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        if self.is_patient {
            return self.embed_patiently(texts, &self.settings.query_parameters, |usage| {
                &usage.queries
            });
        }
        self.embed_soon(texts, limit)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let texts = self.prepared(texts, &self.settings.passage_prefix);
        self.embed_patiently(texts, &self.settings.passage_parameters, |usage| {
            &usage.tools
        })
    }

    fn batch(&self) -> usize {
        self.settings.batch * self.settings.concurrency
    }
}

impl Shared {
    /// Sends a batch until it succeeds, patience ends, or another attempt cannot help.
    async fn embed_batch(
        &self,
        texts: &[String],
        parameters: &Map<String, Value>,
        dimensions: usize,
        settings: &EndpointSettings,
    ) -> std::result::Result<answer::Answer, Failure> {
        let (start, mut attempt) = (Instant::now(), 1);
        self.refuse_while_asked_to_wait(settings)?;
        loop {
            let sent = self
                .client
                .embed(texts, parameters, Some(dimensions), settings.timeout());
            let answer = tokio::select! {
                answer = sent => answer,
                () = stopping() => Err(Failure::unusable("the program is ending".to_owned())),
            };
            let mut failure = match answer {
                Ok(answer) => {
                    self.breaker.reset();
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            // Our own pauses stop growing at a quarter of what an endpoint may ask for.
            let backoff = self.backoff * 2_u32.saturating_pow(attempt - 1);
            let asked = failure.retry_after.unwrap_or_default();
            let pause = backoff.min(MAX_PAUSE / 4).max(asked).min(MAX_PAUSE);
            *self.asked_to_wait.lock() = failure
                .retry_after
                .map(|asked| Instant::now() + asked.min(MAX_PAUSE));
            let is_over = start.elapsed() + pause > settings.patience();
            if !failure.may_retry || is_over || is_stopping() {
                if attempt > 1 {
                    failure.reason = format!("{} ({attempt} attempts)", failure.reason);
                }
                return Err(failure);
            }
            tracing::warn!(
                endpoint = self.client.shown(),
                problem = failure.reason,
                pause_s = pause.as_secs_f64(),
                "embedding waits"
            );
            // An end meanwhile is noticed by the next attempt.
            let _ = timeout(pause, stopping()).await;
            attempt += 1;
        }
    }

    /// Fails where the endpoint has asked for a longer pause than there is patience for.
    fn refuse_while_asked_to_wait(
        &self,
        settings: &EndpointSettings,
    ) -> std::result::Result<(), Failure> {
        let Some(until) = *self.asked_to_wait.lock() else {
            return Ok(());
        };
        let left = until.saturating_duration_since(Instant::now());
        if left <= settings.patience() {
            return Ok(());
        }
        let left = left.as_secs_f64().ceil();
        Err(Failure::passing(format!(
            "it asks to wait for {left} s more"
        )))
    }

    /// Admits a request of a search.
    fn admit(self: Arc<Self>) -> std::result::Result<Permit<Shared>, String> {
        Permit::of(self)
    }
}

impl AsRef<Breaker> for Shared {
    fn as_ref(&self) -> &Breaker {
        &self.breaker
    }
}

impl Asked {
    /// Texts and tokens so far.
    pub fn so_far(&self) -> (u64, u64) {
        (
            self.texts.load(Ordering::Relaxed),
            self.tokens.load(Ordering::Relaxed),
        )
    }

    /// Counts an answer, and gives its vectors.
    fn counted(&self, answer: answer::Answer) -> Vec<Vec<f32>> {
        let texts = answer.vectors.len() as u64;
        self.texts.fetch_add(texts, Ordering::Relaxed);
        self.tokens.fetch_add(answer.tokens, Ordering::Relaxed);
        answer.vectors
    }
}

/// Ends once the program is ending.
async fn stopping() {
    while !is_stopping() {
        tokio::time::sleep(TICK).await;
    }
}

/// A message of this module without the endpoint's address.
pub fn without_address(message: &str) -> String {
    let Some((before, rest)) = message.split_once(" at http") else {
        return message.to_owned();
    };
    match rest.split_once(": ") {
        Some((_, after)) => format!("{before}: {after}"),
        None => before.to_owned(),
    }
}

/// The id under which vectors are stored.
fn id(settings: &EndpointSettings, identity: &Identity) -> String {
    let sent = serde_json::json!([
        identity.model,
        identity.dimensions,
        settings.request_dimensions,
        settings.query_prefix,
        settings.passage_prefix,
        settings.query_parameters,
        settings.passage_parameters,
        settings.max_chars,
    ]);
    let digest = blake3::hash(sent.to_string().as_bytes()).to_hex();
    // The organisation would be taken for the name, which ends at the first slash of an id.
    let name = identity.model.rsplit('/').next().unwrap_or_default();
    // The id is printed, so it must stay on one line.
    let name = name.replace(|c: char| c.is_control() || c.is_whitespace(), "-");
    let name: String = name.chars().take(64).collect();
    format!("{name}/{}/{}", identity.dimensions, &digest[..8])
}

/// A runtime with one thread, which does no more than wait for sockets.
fn runtime(settings: &EndpointSettings) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("embedding endpoint")
        .enable_all()
        .build()
        .map_err(|error| Error::Embedder {
            model: masked(&settings.url),
            reason: format!("no thread can be started: {error}"),
        })
}

fn client(settings: &EndpointSettings, model: &str) -> Result<Client> {
    Client::new(settings, model).map_err(|reason| Error::Embedder {
        model: masked(&settings.url),
        reason,
    })
}

/// Waits for an answer of the client.
fn answered<T>(
    runtime: &Runtime,
    client: &Client,
    answer: impl Future<Output = std::result::Result<T, Failure>>,
) -> Result<T> {
    match runtime.block_on(answer) {
        Ok(answer) => Ok(answer),
        Err(failure) => Err(failed(client, failure.reason)),
    }
}

fn failed(client: &Client, reason: String) -> Error {
    Error::Embedder {
        model: client.shown().to_owned(),
        reason,
    }
}
