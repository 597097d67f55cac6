//! The flags of `toolscout serve` for requests that pass to a model's provider.

use std::num::NonZeroUsize;

use anyhow::Result;

use super::agent::AgentArgs;
use super::context::Context;
use super::size;
use crate::dropin::{DropInConfig, OtherProvider, ProviderConfig, Upstream};
use crate::http::Limits;

/// How requests pass to the provider of `--llm`.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Drop-in endpoint for other agents")]
pub struct DropInArgs {
    /// Base URL of the provider of /v1/messages, where it is not that of --llm
    #[arg(long, value_name = "URL", env = "TOOLSCOUT_LLM_MESSAGES")]
    llm_messages: Option<String>,
    /// The key of --llm-messages
    #[arg(
        long,
        value_name = "KEY",
        env = "TOOLSCOUT_LLM_MESSAGES_KEY",
        hide_env_values = true,
        requires = "llm_messages"
    )]
    llm_messages_key: Option<String>,
    /// Base URL of the provider of Gemini's API, as
    /// `https://generativelanguage.googleapis.com/v1beta`
    #[arg(long, value_name = "URL", env = "TOOLSCOUT_LLM_GEMINI")]
    llm_gemini: Option<String>,
    /// The key of --llm-gemini
    #[arg(
        long,
        value_name = "KEY",
        env = "TOOLSCOUT_LLM_GEMINI_KEY",
        hide_env_values = true,
        requires = "llm_gemini"
    )]
    llm_gemini_key: Option<String>,
    /// Base URL of Azure OpenAI, as `https://NAME.openai.azure.com/openai`, for requests to its paths
    #[arg(long, value_name = "URL", env = "TOOLSCOUT_LLM_AZURE")]
    llm_azure: Option<String>,
    /// The key of --llm-azure
    #[arg(
        long,
        value_name = "KEY",
        env = "TOOLSCOUT_LLM_AZURE_KEY",
        hide_env_values = true,
        requires = "llm_azure"
    )]
    llm_azure_key: Option<String>,
    /// Base URL of Amazon Bedrock, as `https://bedrock-runtime.eu-north-1.amazonaws.com`
    #[arg(long, value_name = "URL", env = "TOOLSCOUT_LLM_BEDROCK")]
    llm_bedrock: Option<String>,
    /// The key of --llm-bedrock
    #[arg(
        long,
        value_name = "KEY",
        env = "AWS_BEARER_TOKEN_BEDROCK",
        hide_env_values = true
    )]
    llm_bedrock_key: Option<String>,
    /// Send the provider's key that a client brings; a key of this server goes in the other of the
    /// headers Authorization and X-API-Key
    #[arg(long)]
    llm_key_from_client: bool,
    /// Show the model the tools that a client's own search has found as any other tools, for providers of
    /// /v1/messages that know neither defer_loading nor tool_reference
    #[arg(long)]
    translate_references: bool,
    /// Call the tools that a model finds in the catalog of X-Toolscout-Catalog, through the gate;
    /// without it only tools are offered that the client has too
    #[arg(long)]
    call_tools: bool,
    /// Tokens from which on the tools of a request to the model are searched instead of shown
    #[arg(long, value_name = "TOKENS", default_value_t = 8_000)]
    defer_above: usize,
    /// Most tokens of a client's own tools, as Bash and Read of a coding agent, that stay in view where
    /// the tools of its MCP servers are searched
    #[arg(long, value_name = "TOKENS", default_value_t = 16_000)]
    own_tools_budget: usize,
    /// Most tools of a request that are searched; a request with more is refused
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    max_request_tools: usize,
    /// Most memory for what clients do not see of their conversations, such as 64M or 1G [default:
    /// 64M]
    #[arg(long, alias = "proxy-memory", value_parser = size::bytes, value_name = "BYTES")]
    dropin_memory: Option<u64>,
    /// Most rounds of the model for searches in one answer
    #[arg(long, alias = "proxy-rounds", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    dropin_rounds: u32,
    /// Longest answer of the provider whose tools are searched, over all rounds, such as 16M [default:
    /// 16M]
    #[arg(long, value_parser = size::bytes, value_name = "BYTES")]
    max_answer: Option<u64>,
    /// Most calls of the model in such an answer
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_answer_calls: u32,
}

impl DropInArgs {
    /// The settings; `None` where the model is a script.
    pub fn config(
        &self,
        context: &Context,
        agent: &AgentArgs,
        limits: &Limits,
    ) -> Result<Option<DropInConfig>> {
        let llm = agent.llm();
        let Some(base_url) = llm.base_url() else {
            return Ok(None);
        };
        let mut provider = ProviderConfig::new(base_url);
        provider.key = llm.key();
        provider.messages_url.clone_from(&self.llm_messages);
        provider.messages_key.clone_from(&self.llm_messages_key);
        for (upstream, url, key) in [
            (Upstream::Gemini, &self.llm_gemini, &self.llm_gemini_key),
            (Upstream::Azure, &self.llm_azure, &self.llm_azure_key),
            (Upstream::Bedrock, &self.llm_bedrock, &self.llm_bedrock_key),
        ] {
            if let Some(base_url) = url {
                let other = OtherProvider {
                    base_url: base_url.clone(),
                    key: key.clone(),
                };
                provider.others.insert(upstream, other);
            }
        }
        // One flag for all: whoever raises it knows how long the provider is silent.
        if let Some(wait) = llm.wait() {
            provider.first_token_timeout = wait;
            provider.idle_timeout = wait;
            provider.whole_timeout = wait;
        }
        let mut config = DropInConfig::new(provider);
        let (pins, tool_budget) = agent.toolbox();
        config.pins = pins.to_vec();
        config.tool_budget_tokens = tool_budget.unwrap_or(config.tool_budget_tokens);
        config.more = agent.more_tools(context)?;
        config.defer_above_tokens = self.defer_above;
        config.own_tools_tokens = self.own_tools_budget;
        config.max_request_tools = self.max_request_tools;
        if let Some(bytes) = self.dropin_memory {
            config.remembered_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        config.max_hidden_rounds = self.dropin_rounds;
        if let Some(bytes) = self.max_answer {
            config.answers.bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        }
        config.answers.calls = self.max_answer_calls as usize;
        config.calls_tools = self.call_tools;
        config.translates_references = self.translate_references;
        config.key_from_client = self.llm_key_from_client;
        // Open catalogs hold files; the server's own come first.
        let open = NonZeroUsize::new(limits.max_open_catalogs / 4);
        config.catalogs.open =
            open.map_or(NonZeroUsize::MIN, |open| open.min(config.catalogs.open));
        Ok(Some(config))
    }
}
