//! What servers say about the use of their tools, for clients that meet them.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use toolscout_index::ToolId;

use crate::pool::Pool;
use toolscout_base::printable::excerpt;

/// Longest instructions of a server in an answer, in characters.
const MAX_CHARS: usize = 1_000;
/// Most servers whose instructions are in one answer.
const MAX_SERVERS: usize = 3;

/// The servers whose instructions a session has.
#[derive(Default)]
pub struct ToldInstructions(Mutex<BTreeSet<String>>);

impl ToldInstructions {
    /// The instructions of the servers of these tools that the session does not have yet, by server.
    pub fn of(&self, tools: &[&ToolId], pool: &Pool) -> Map<String, Value> {
        let mut told = self.0.lock();
        let mut instructions = Map::new();
        for id in tools {
            let server = id.server();
            if told.contains(server) || instructions.len() == MAX_SERVERS {
                continue;
            }
            if let Some(text) = pool.instructions(server) {
                told.insert(server.to_owned());
                let text = excerpt(&text, MAX_CHARS);
                instructions.insert(server.to_owned(), text.into());
            }
        }
        instructions
    }
}
