//! What servers tell clients unasked: log messages, and that a resource has changed.
#![expect(
    deprecated,
    reason = "servers and clients of these versions have no other way to log"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::masking::Masking;
use toolscout_base::known_secrets;
use toolscout_base::printable::excerpt;

/// How severe a log message is.
pub type Level = LoggingLevel;

/// A log message as a server sends it.
pub type LogText = LoggingMessageNotificationParam;

/// Notices that wait for a client that is slow; then the oldest are dropped.
const QUEUE: usize = 256;
/// Most bytes of the data of a log message; more would fill the memory with waiting messages.
const MAX_DATA_BYTES: usize = 64 << 10;
/// Longest name of a logger.
const MAX_LOGGER_CHARS: usize = 200;
/// Longest URI of a resource that has changed. No client subscribes to a longer one.
const MAX_URI_BYTES: usize = 8 << 10;

/// A resource has changed.
#[derive(Clone, Debug)]
pub struct Updated {
    /// Whose resource it is.
    pub server: Arc<str>,
    /// Its URI at the server.
    pub uri: Arc<str>,
}

/// A log message, and who may read it.
#[derive(Clone, Debug)]
pub struct LogMessage {
    /// Who wrote it.
    pub server: Arc<str>,
    /// Who may read it.
    pub audience: Audience,
    /// The message as clients get it: its logger begins with the name of the server.
    pub message: LoggingMessageNotificationParam,
}

/// Who may read a log message. It may contain data of the call that the server works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// No client has made a call yet.
    Everyone,
    /// All sessions of one key.
    Key(String),
    /// One session.
    Session(String),
}

impl Audience {
    /// Whether a client is one of them.
    pub fn has(&self, key: &str, session: &str) -> bool {
        match self {
            Audience::Everyone => true,
            Audience::Key(of) => of == key,
            Audience::Session(of) => of == session,
        }
    }
}

/// Sends notices of all servers to all sessions. Log messages have a queue of their own: many of them
/// push no other notice out.
#[derive(Clone, Debug)]
pub struct Notices {
    logs: broadcast::Sender<Arc<LogMessage>>,
    updates: broadcast::Sender<Updated>,
}

impl Default for Notices {
    fn default() -> Self {
        Notices {
            logs: broadcast::channel(QUEUE).0,
            updates: broadcast::channel(QUEUE).0,
        }
    }
}

impl Notices {
    /// Receives the log messages from now on.
    pub fn logs(&self) -> broadcast::Receiver<Arc<LogMessage>> {
        self.logs.subscribe()
    }

    /// Receives the changes of resources from now on.
    pub fn updates(&self) -> broadcast::Receiver<Updated> {
        self.updates.subscribe()
    }

    /// Passes on a log message.
    pub fn log(
        &self,
        server: &Arc<str>,
        audience: Audience,
        mut message: LoggingMessageNotificationParam,
    ) {
        let logger = match message.logger {
            Some(logger) => format!("{server}/{}", excerpt(&logger, MAX_LOGGER_CHARS)),
            None => server.to_string(),
        };
        message.logger = Some(logger);
        mask(&mut message.data);
        let data = message.data.to_string();
        if data.len() > MAX_DATA_BYTES {
            message.data = Value::String(excerpt(&data, MAX_DATA_BYTES));
        }
        let server = Arc::clone(server);
        // Without a session nobody listens.
        let _ = self.logs.send(Arc::new(LogMessage {
            server,
            audience,
            message,
        }));
    }

    /// Passes on that a resource has changed.
    pub fn updated(&self, server: &Arc<str>, uri: &str) {
        if uri.len() > MAX_URI_BYTES {
            return;
        }
        let server = Arc::clone(server);
        let _ = self.updates.send(Updated {
            server,
            uri: uri.into(),
        });
    }
}

/// Masks the secrets that the program knows.
fn mask(data: &mut Value) {
    if !known_secrets::is_empty() {
        Masking::default().value(data);
    }
}

/// The levels that sessions have asked for. Servers are shared, so they write what the most curious
/// session reads.
#[derive(Debug, Default)]
pub struct LogLevels(Mutex<BTreeMap<String, Level>>);

impl LogLevels {
    /// Notes what a session reads.
    pub fn set(&self, session: &str, level: Level) {
        self.0.lock().insert(session.to_owned(), level);
    }

    /// The session has ended.
    pub fn forget(&self, session: &str) {
        self.0.lock().remove(session);
    }

    /// The lowest level that a session reads, if one has asked for any.
    pub fn lowest(&self) -> Option<Level> {
        let levels = self.0.lock();
        levels
            .values()
            .copied()
            .min_by_key(|level| severity(*level))
    }
}

/// The place of a level in the order of levels.
pub fn severity(level: Level) -> u8 {
    level as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_curious_session_decides_the_level() {
        let levels = LogLevels::default();
        assert_eq!(levels.lowest(), None);
        levels.set("a", Level::Error);
        levels.set("b", Level::Debug);
        assert_eq!(levels.lowest(), Some(Level::Debug));
        levels.forget("b");
        assert_eq!(levels.lowest(), Some(Level::Error));
    }

    #[test]
    fn a_message_names_its_server_and_is_bounded() {
        let notices = Notices::default();
        let mut heard = notices.logs();
        let data = Value::String("x".repeat(1 << 20));
        let message = LoggingMessageNotificationParam::new(Level::Info, data);
        notices.log(&"files".into(), Audience::Everyone, message);
        let Ok(log) = heard.try_recv() else {
            panic!("there is no message")
        };
        assert_eq!(log.message.logger.as_deref(), Some("files"));
        assert!(log.message.data.to_string().len() < MAX_DATA_BYTES + 100);
    }

    #[test]
    fn a_burst_of_log_messages_pushes_no_change_of_a_resource_out() {
        let notices = Notices::default();
        let (mut logs, mut updates) = (notices.logs(), notices.updates());
        notices.updated(&"files".into(), "memo:all");
        for _ in 0..2 * QUEUE {
            let message = LoggingMessageNotificationParam::new(Level::Info, Value::Null);
            notices.log(&"files".into(), Audience::Everyone, message);
        }
        assert!(logs.try_recv().is_err(), "some are lost");
        assert_eq!(&*updates.try_recv().unwrap().uri, "memo:all");
    }
}
