//! Ends what a key has begun once the key is revoked or its time is over: requests and streams, MCP
//! sessions, runs and tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use std::{io, mem};

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::request::error::ApiError;
use crate::request::threads::blocking;
use toolscout_base::clock::unix_s;
use toolscout_state::keys::KeyStore;

/// How often the keys in use are looked at.
const LOOK: Duration = Duration::from_millis(400);
/// How often the last use of keys is written down.
const NOTE_USES: Duration = Duration::from_secs(60);

/// The keys that something goes on for. Cheap to clone.
#[derive(Clone)]
pub struct KeyWatch {
    /// How much goes on for each key.
    in_use: Arc<Mutex<BTreeMap<String, usize>>>,
    /// When each key was last used, as far as that is not written down.
    uses: Arc<Mutex<BTreeMap<String, u64>>>,
    /// Those of them that are no longer valid.
    ended: watch::Sender<BTreeSet<String>>,
}

impl Default for KeyWatch {
    fn default() -> Self {
        KeyWatch {
            in_use: Arc::default(),
            uses: Arc::default(),
            ended: watch::channel(BTreeSet::new()).0,
        }
    }
}

/// A key that something goes on for, until this is dropped.
pub struct KeyInUse {
    watch: KeyWatch,
    key: String,
}

/// The key of a request, once a handler has looked it up.
#[derive(Clone, Default)]
pub struct RequestKey(Arc<OnceLock<KeyInUse>>);

/// Marks the answer to a request that began something which goes on after it.
#[derive(Clone)]
pub struct Begun {
    /// Cancelled once it is over.
    pub over: CancellationToken,
    /// Cancelled to end it.
    pub stop: CancellationToken,
}

impl KeyWatch {
    /// Notes that something goes on for a key.
    pub fn begin(&self, key: &str) -> KeyInUse {
        *self.in_use.lock().entry(key.to_owned()).or_default() += 1;
        let now_s = unix_s(SystemTime::now());
        self.uses.lock().insert(key.to_owned(), now_s);
        KeyInUse {
            watch: self.clone(),
            key: key.to_owned(),
        }
    }

    /// Does this once the key is no longer valid, unless what it is for is over before.
    pub fn at_end(
        &self,
        key: Option<&str>,
        over: CancellationToken,
        end: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(key) = key else { return };
        let key = self.begin(key);
        // Detached: whatever the key began cancels `over` when it ends, which ends this too.
        tokio::spawn(async move {
            tokio::select! {
                // If both are ready, there is nothing left to end.
                biased;
                () = over.cancelled() => {}
                () = key.ended() => end.await,
            }
        });
    }

    /// Writes down when keys were last used. What cannot be written is lost: the next use of the key is
    /// written again.
    fn note_uses(&self, keys: &KeyStore) {
        let uses = mem::take(&mut *self.uses.lock());
        if uses.is_empty() {
            return;
        }
        let keys = keys.clone();
        // Apart from the look at keys that have ended, which must not wait for a store. Nobody waits for it: a use
        // that is not written at the end of the server is lost, as any that cannot be written.
        tokio::spawn(async move {
            if let Ok(Err(error)) = blocking(move || keys.note_uses(&uses)).await {
                tracing::warn!(%error, "the last use of keys could not be written down");
            }
        });
    }

    /// Looks at the keys in use, again and again.
    pub async fn look(&self, keys: &KeyStore) {
        let mut noted = Instant::now();
        loop {
            tokio::time::sleep(LOOK).await;
            if noted.elapsed() >= NOTE_USES {
                noted = Instant::now();
                self.note_uses(keys);
            }
            let in_use: Vec<String> = self.in_use.lock().keys().cloned().collect();
            if in_use.is_empty() {
                continue;
            }
            let keys = keys.clone();
            let looked = blocking(move || ended_of(&keys, in_use)).await;
            let ended = looked.unwrap_or_default();
            if !ended.is_empty() {
                // Sent again in every round, since something new may have begun with the key.
                self.ended.send_replace(ended);
            }
        }
    }
}

/// Those of the keys that are no longer valid. One about which nothing can be learned now stays.
fn ended_of(store: &KeyStore, keys: Vec<String>) -> BTreeSet<String> {
    let now = SystemTime::now();
    let mut ended = BTreeSet::new();
    for key in keys {
        match store.is_ended(&key, now) {
            Ok(true) => {
                ended.insert(key);
            }
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(key, %error, "whether a key is still valid is not known");
            }
        }
    }
    ended
}

impl KeyInUse {
    /// Waits until the key is no longer valid.
    async fn ended(&self) {
        let mut ended = self.watch.ended.subscribe();
        let ended = ended.wait_for(|ended| ended.contains(&self.key));
        let is_unwatched = ended.await.is_err();
        if is_unwatched {
            // The watch has ended, since the server ends.
            std::future::pending().await
        }
    }
}

impl Drop for KeyInUse {
    fn drop(&mut self) {
        let mut in_use = self.watch.in_use.lock();
        if let Some(count) = in_use.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                in_use.remove(&self.key);
            }
        }
    }
}

impl RequestKey {
    /// Notes the key of the request.
    pub fn set(&self, key: KeyInUse) {
        // A handler that looks it up again finds the same one.
        let _ = self.0.set(key);
    }

    /// Waits until the request has a key and that is no longer valid.
    async fn ended(&self, watch: &KeyWatch) {
        let mut ended = watch.ended.subscribe();
        let is_ended = |ended: &BTreeSet<String>| {
            let key = self.0.get();
            key.is_some_and(|key| ended.contains(&key.key))
        };
        let is_unwatched = ended.wait_for(is_ended).await.is_err();
        if is_unwatched {
            std::future::pending().await
        }
    }
}

/// Ends a request, and its answer in mid-stream, when its key is no longer valid.
pub async fn end_with_key(
    State(key_watch): State<KeyWatch>,
    mut request: Request,
    next: Next,
) -> Response {
    let key = RequestKey::default();
    request.extensions_mut().insert(key.clone());
    let response = tokio::select! {
        // An answer that is ready goes first: its work was done while the key was valid.
        biased;
        response = next.run(request) => response,
        () = key.ended(&key_watch) => return ended_meanwhile().into_response(),
    };
    if let Some(Begun { over, stop }) = response.extensions().get().cloned() {
        let of_request = key.0.get().map(|key| key.key.as_str());
        let end = async move { stop.cancel() };
        key_watch.at_end(of_request, over, end);
    }
    // A body of known length is complete already, so it need not be cut off.
    let is_stream = response.body().size_hint().exact().is_none();
    if key.0.get().is_none() || !is_stream {
        return response;
    }
    response.map(|body| cut_with_key(body, key, key_watch))
}

/// A body that breaks off when the key is no longer valid. It ends with an error, so that no client
/// takes it for whole.
fn cut_with_key(body: Body, key: RequestKey, watch: KeyWatch) -> Body {
    let state = Some((body.into_data_stream(), key, watch));
    Body::from_stream(stream::unfold(state, |state| async {
        let (mut frames, key, watch) = state?;
        let next = tokio::select! {
            // Checked first: a stream that always has a frame ready would never be cut off.
            biased;
            () = key.ended(&watch) => {
                let reason = io::Error::other("the key of the request is no longer valid");
                return Some((Err(axum::Error::new(reason)), None));
            }
            next = frames.next() => next?,
        };
        Some((next, Some((frames, key, watch))))
    }))
}

fn ended_meanwhile() -> ApiError {
    let message =
        "this API key was revoked or has expired while the request was answered; ask for a new one";
    ApiError::auth(StatusCode::UNAUTHORIZED, "revoked_key", message)
}
