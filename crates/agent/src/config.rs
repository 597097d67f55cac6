//! The settings of an agent and of its runs.

use std::time::Duration;

use crate::context::DEFAULT_CONTEXT_TOKENS;
use crate::prompt::{self, Fence};
use toolscout_base::config::ResultFormat;
use toolscout_finder::finder::ToolboxConfig;
use toolscout_finder::finder::meta_tools::{FindConfig, Style};
use toolscout_finder::finder::toolbox::{self, TokenCounter};
use toolscout_gate::gate::Policies;
use toolscout_gate::plan::OnInvalidStep;
use toolscout_gate::tools::CallTimes;
use toolscout_state::session::DEFAULT_AGENT;

/// An agent's settings.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The name by which a question chooses it, stored with its conversations.
    pub name: String,
    /// The settings of a run.
    pub run: RunConfig,
    /// The token budget of the visible tools, and their eviction.
    pub toolbox: ToolboxConfig,
    /// The gate's policies. By default read-only tools are allowed and all others need approval.
    pub policies: Policies,
    /// Tools of the catalog that are always visible, by id or name.
    pub pins: Vec<String>,
    /// Catalogs with fewer tools than this are shown whole, without search.
    pub search_from_tools: usize,
    /// Maximum number of calls that run in parallel.
    pub parallel_calls: usize,
    /// Time limit of a call whose tool has no limit of its own. MCP tools have one, in the
    /// limits of their pool, which progress extends.
    pub call_timeout: Duration,
    /// Time limit of one turn.
    pub time_to_live: Duration,
    /// Time limit for recommended questions, which cost a further request; `None` recommends none.
    pub recommend_within: Option<Duration>,
    /// The tokenizer for the tool budget.
    pub count_tokens: TokenCounter,
    /// Whether somebody chose the model. False where it is only assumed that one answers at the
    /// usual address.
    pub model_is_chosen: bool,
}

impl Default for AgentConfig {
    fn default() -> Self {
        AgentConfig {
            name: DEFAULT_AGENT.to_owned(),
            run: RunConfig::default(),
            toolbox: ToolboxConfig::default(),
            policies: Policies::default(),
            pins: Vec::new(),
            search_from_tools: 30,
            parallel_calls: 4,
            call_timeout: CallTimes::default().idle,
            time_to_live: Duration::from_secs(600),
            recommend_within: None,
            count_tokens: toolbox::o200k,
            model_is_chosen: true,
        }
    }
}

/// How the model calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// By function calling.
    #[default]
    Native,
    /// By a JSON answer, for models without function calling.
    Manual,
    /// By one plan of all calls, checked and shown before it is executed.
    Plan,
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// How the model calls tools.
    pub protocol: Protocol,
    /// How found tools are made callable.
    pub style: Style,
    /// The role in the system prompt.
    pub role: String,
    /// The environment in the system prompt, such as the date.
    pub environment: String,
    /// Maximum number of the model's answers; the last one is made without tools.
    pub max_rounds: u32,
    /// Maximum number of rounds in a row that only search.
    pub max_searches: u32,
    /// Maximum number of calls of one answer that are executed.
    pub max_calls: usize,
    /// Maximum number of bytes of a result that the model gets at once.
    pub max_result_bytes: usize,
    /// How results in JSON are written.
    pub result_format: ResultFormat,
    /// Rounds after which the context is reduced to question, facts and plan.
    pub refresh_interval: Option<u32>,
    /// Maximum number of tokens of a prompt, the tools included. A longer one is compacted.
    pub context_tokens: usize,
    /// What happens to a plan with invalid steps.
    pub on_invalid_step: OnInvalidStep,
    /// Settings of `tool_search`; `None` removes it.
    pub find: Option<FindConfig>,
    /// Every tool that can be found is visible. Then the list has no `tool_search`, which is answered
    /// all the same: a model may have been told to search.
    pub shows_all: bool,
    /// Tools whose calls are announced as searches, in the language of the question.
    pub announced: Vec<String>,
    /// The fence around untrusted text. `None` makes a new one for each conversation, which is
    /// required whenever tools are not trusted.
    pub fence: Option<Fence>,
}

impl Default for RunConfig {
    fn default() -> Self {
        RunConfig {
            protocol: Protocol::Native,
            style: Style::Inject,
            role: prompt::DEFAULT_ROLE.into(),
            environment: String::new(),
            // The last round has no tools, so four can search and call.
            max_rounds: 5,
            max_searches: 3,
            max_calls: 16,
            // About 16,000 tokens at four bytes each.
            max_result_bytes: 64 << 10,
            result_format: ResultFormat::default(),
            refresh_interval: None,
            context_tokens: DEFAULT_CONTEXT_TOKENS,
            on_invalid_step: OnInvalidStep::default(),
            find: Some(FindConfig::default()),
            shows_all: false,
            announced: Vec::new(),
            fence: None,
        }
    }
}
