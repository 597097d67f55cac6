//! The flags that name a language model, shared by the verbs that ask one.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use crate::llm::openai::{DEFAULT_BASE_URL, OpenAiConfig};
use crate::llm::script::Script;
use crate::llm::{ChatModel, OpenAi, ScriptedModel};
use crate::tools::ScriptedTools;

/// The model, and where it is reached.
#[derive(clap::Args, Clone, Debug)]
pub struct LlmArgs {
    /// The model: the base URL of an OpenAI-compatible API, or `script:FILE`
    #[arg(long, value_name = "URL", env = "TOOLSCOUT_LLM", default_value = DEFAULT_BASE_URL)]
    pub llm: String,
    /// The model's name at that API
    #[arg(
        long,
        value_name = "NAME",
        env = "TOOLSCOUT_MODEL",
        default_value = DEFAULT_MODEL
    )]
    model: String,
    /// The API's key
    #[arg(
        long,
        value_name = "KEY",
        env = "TOOLSCOUT_LLM_KEY",
        hide_env_values = true
    )]
    pub llm_key: Option<String>,
}

/// The model's name, where none is given.
const DEFAULT_MODEL: &str = "default";

impl LlmArgs {
    /// Whether somebody chose the model, by a flag or the environment.
    pub fn is_chosen(&self) -> bool {
        self.llm != DEFAULT_BASE_URL || self.model != DEFAULT_MODEL
    }

    /// The base URL; `None` for a script.
    pub fn base_url(&self) -> Option<&str> {
        (!self.llm.starts_with("script:")).then_some(self.llm.as_str())
    }

    /// The model, and the tools of a scripted one.
    pub fn model(&self) -> Result<(Arc<dyn ChatModel>, ScriptedTools)> {
        if let Some(script) = self.llm.strip_prefix("script:") {
            let Script { turns, tools } = Script::load(Path::new(script))?;
            return Ok((
                Arc::new(ScriptedModel::new(script, turns)),
                ScriptedTools::new(tools),
            ));
        }
        let mut config = OpenAiConfig::new(&self.llm, &self.model);
        config.api_key = self.llm_key.clone();
        Ok((Arc::new(OpenAi::new(config)?), ScriptedTools::default()))
    }
}
