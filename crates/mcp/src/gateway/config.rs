//! How a gateway shows the catalog.

use std::time::Duration;

use super::search_answer::Detail;
use toolscout_base::config::{ProfileDetail, ResultFormat};
use toolscout_finder::finder::Style;
use toolscout_finder::finder::meta_tools::FindConfig;
use toolscout_finder::finder::toolbox::ToolboxConfig;
use toolscout_finder::profiles::ToolProfile;
use toolscout_gate::tools::CallTimes;

/// Bytes of a result that a client gets at once, some 8,000 tokens.
const DEFAULT_RESULT_BYTES: usize = 32 << 10;

/// How a gateway shows the catalog.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// How found tools are offered to the client.
    pub style: Style,
    /// The limits of a search.
    pub find: FindConfig,
    /// How much of each found tool is shown if a search does not say.
    pub detail: Detail,
    /// Most tokens of the tools in one answer to a search; tools that do not fit are shortened.
    pub answer_tokens: usize,
    /// Bytes of the texts of a result that a client gets at once; it reads on with [`READ_MORE`](toolscout_gate::tools::long_results::READ_MORE).
    pub result_bytes: usize,
    /// How results in JSON are written.
    pub result_format: ResultFormat,
    /// Most tokens of what the description of `tool_search` says about the servers.
    pub overview_tokens: usize,
    /// Tools that are always in the list: ids, or names as shown to models.
    pub pins: Vec<String>,
    /// How many tools a session holds in [`Style::Inject`].
    pub toolbox: ToolboxConfig,
    /// How long a search waits for servers that have not been connected yet.
    pub settle: Duration,
    /// Most time of a call whose tool has no limit of its own. Those of MCP servers are in
    /// [`Limits`](crate::Limits).
    pub call_timeout: Duration,
    /// The user that the policies allow in identity arguments.
    pub identity: Option<String>,
    /// How long a call waits for a person elsewhere before its client is told to make it again.
    /// Clients give up after a minute.
    pub approval_patience: Duration,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        GatewayConfig {
            style: Style::Dispatch,
            find: FindConfig::default(),
            detail: Detail::default(),
            answer_tokens: 4_000,
            result_bytes: DEFAULT_RESULT_BYTES,
            result_format: ResultFormat::default(),
            overview_tokens: 400,
            pins: Vec::new(),
            toolbox: ToolboxConfig::default(),
            settle: Duration::from_secs(10),
            call_timeout: CallTimes::default().idle,
            identity: None,
            approval_patience: Duration::from_secs(30),
        }
    }
}

impl GatewayConfig {
    /// How much of each found tool a client of this profile is shown. A profile may change while it is served.
    pub(super) fn detail_for(&self, profile: Option<&ToolProfile>) -> Detail {
        match profile.and_then(ToolProfile::detail) {
            Some(ProfileDetail::Signature) => Detail::Signature,
            Some(ProfileDetail::Schema) => Detail::Schema,
            None => self.detail,
        }
    }
}
