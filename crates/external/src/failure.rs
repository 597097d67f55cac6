//! Why a request to an external engine failed, and what to do about it.

use std::fmt;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;
use toolscout_base::breaker::Failing;
use toolscout_state::shared::StoreError;

/// Longest reason of the engine that is shown.
const MAX_REASON_CHARS: usize = 300;
/// What is said of the variable of a key, where it is not known which one it is.
const SOME_VARIABLE: &str = "the variable of key_env or password_env";

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No server answers, or not in time.
    Away,
    /// It has too much to do, or could not do this now.
    Busy,
    /// It refuses the key, or the key may not do this.
    Key,
    /// The index takes no writes, for example since the disk is full.
    ReadOnly,
    /// There is no such index.
    Missing,
    /// Another product or version runs there.
    Version,
    /// It refuses the request for its content.
    Request,
    /// Its answer is not what its documentation says.
    Answer,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind it is.
    pub cause: Cause,
    /// In words, with the next step.
    pub reason: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// True where the key is valid and lacks a privilege.
    pub lacks_privilege: bool,
    /// True where less has to be asked for at a time.
    pub is_too_large: bool,
}

impl Failure {
    /// Of this kind.
    pub fn new(cause: Cause, reason: impl Into<String>) -> Self {
        Failure {
            cause,
            reason: reason.into(),
            retry_after: None,
            lacks_privilege: false,
            is_too_large: false,
        }
    }

    /// No answer within this time.
    pub fn timeout(limit: Duration) -> Self {
        let reason = format!("it did not answer within {} ms", limit.as_millis());
        Failure::new(Cause::Away, reason)
    }

    /// Its answer lacks this.
    pub fn answer(lacks: &str) -> Self {
        let reason =
            format!("its answer has no {lacks}; check that the address is that of the engine");
        Failure::new(Cause::Answer, reason)
    }

    /// What a status and the body with it say. `error` is the member `error` of the body, or of one item of it.
    pub fn of_status(status: StatusCode, error: &Value) -> Self {
        let kind = error["type"].as_str().unwrap_or_default();
        let said = said(error);
        let is_block = kind == "cluster_block_exception";
        let renew = format!("set {SOME_VARIABLE} to a key that is valid");
        let (cause, next_step) = match status.as_u16() {
            401 => (Cause::Key, renew.as_str()),
            403 | 429 if is_block => (
                Cause::ReadOnly,
                "free disk space on its machines or remove the block of the index; nothing is lost, and the next \
                 write goes on",
            ),
            403 => (
                Cause::Key,
                "give its key the privileges read and view_index_metadata, and to write also write, create_index and \
                 manage",
            ),
            404 => (
                Cause::Missing,
                "check the index in the address, or fill it with `toolscout external write`",
            ),
            429 => (Cause::Busy, "it is asked again later"),
            400..=499 => (
                Cause::Request,
                "`toolscout external check` compares its fields",
            ),
            _ => (Cause::Away, "look at its own log"),
        };
        let status = status.as_u16();
        let named = match kind {
            "" => String::new(),
            kind => format!(" ({kind})"),
        };
        let reason = format!("status {status}{named}: {said}; {next_step}");
        Failure {
            lacks_privilege: cause == Cause::Key && status == 403,
            ..Failure::new(cause, reason)
        }
    }

    /// The same of Qdrant. `error` is the member `status.error` of the body.
    pub fn of_qdrant(status: StatusCode, error: &Value) -> Self {
        let said = said(error);
        let is_full = said.contains("No space left") || said.contains("disk space");
        let renew = format!("set {SOME_VARIABLE} to a key that is valid");
        let (cause, next_step) = match status.as_u16() {
            401 => (Cause::Key, renew.as_str()),
            403 => (
                Cause::Key,
                "give its key access to the collection: to read, or to write also to manage it",
            ),
            404 => (
                Cause::Missing,
                "check the collection in the address, or fill it with `toolscout external write`",
            ),
            429 => (Cause::Busy, "it is asked again later"),
            _ if is_full => (
                Cause::ReadOnly,
                "free disk space on its machines; nothing is lost, and the next write goes on",
            ),
            400..=499 => (
                Cause::Request,
                "`toolscout external check` compares its fields",
            ),
            // One request failed, and the next one may be answered.
            500 => (Cause::Busy, "look at its own log"),
            _ => (Cause::Away, "look at its own log"),
        };
        let status = status.as_u16();
        let reason = format!("status {status}: {said}; {next_step}");
        Failure {
            lacks_privilege: cause == Cause::Key && status == 403,
            ..Failure::new(cause, reason)
        }
    }

    /// The same with the name of the variable that has the key.
    pub fn naming(self, variable: Option<&str>) -> Self {
        match variable {
            Some(variable) => Failure {
                reason: self
                    .reason
                    .replace(SOME_VARIABLE, &format!("the variable {variable}")),
                ..self
            },
            None => self,
        }
    }

    /// The same with the address of what failed.
    pub fn at(self, shown: &str) -> Self {
        Failure {
            reason: format!("{shown}: {}", self.reason),
            ..self
        }
    }

    /// True if there is no such index.
    pub fn is_missing(&self) -> bool {
        self.cause == Cause::Missing
    }

    /// True if the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        matches!(self.cause, Cause::Away | Cause::Busy)
    }
}

/// What the engine itself says, in one line.
fn said(error: &Value) -> String {
    let reason = error["reason"].as_str().or(error.as_str());
    let cause = &error["caused_by"]["reason"];
    let mut said = reason
        .unwrap_or("it gave no reason")
        .replace(['\n', '\r'], " ");
    if let Some(cause) = cause.as_str() {
        said = format!("{said} ({cause})");
    }
    match said.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", &said[..end]),
        None => said,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Failure {}

impl Failing for Failure {
    fn reason(&self) -> &str {
        &self.reason
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    // A server that refuses a key or a request works, and so does one whose index is full.
    fn is_about_request(&self) -> bool {
        self.cause != Cause::Away
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure.cause {
            Cause::Away | Cause::Busy => StoreError::Unreachable(failure.reason),
            Cause::ReadOnly => StoreError::ReadOnly(failure.reason),
            _ => StoreError::Refused(failure.reason),
        }
    }
}
