//! What a server says about itself at the handshake.

use super::Connection;
use toolscout_base::printable::excerpt;

/// Longest instructions that are kept of a server, in characters.
const MAX_INSTRUCTIONS: usize = 4_000;

/// How a server introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Its own name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the protocol that is spoken.
    pub protocol: String,
    /// How to use its tools.
    pub instructions: Option<String>,
}

impl Connection {
    /// How the server has introduced itself; empty if it has not.
    pub fn about(&self) -> About {
        let Some(info) = self.peer.peer_info() else {
            return About::default();
        };
        let instructions = info.instructions.as_deref().map(str::trim);
        let instructions = instructions.filter(|text| !text.is_empty());
        let (name, version) = match &info.server_info {
            Some(server) => (server.name.clone(), server.version.clone()),
            None => Default::default(),
        };
        About {
            name,
            version,
            protocol: info.protocol_version.to_string(),
            instructions: instructions.map(|text| excerpt(text, MAX_INSTRUCTIONS)),
        }
    }
}
