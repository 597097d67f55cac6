//! The flags that name a language model, shared by the verbs that ask one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use toolscout_index::Searcher;

use crate::config::ModelParameters;
use crate::enrich::Batch;
use crate::enrich::run::Run;
use crate::llm::parameters;
use crate::llm::provider::{OLLAMA, Provider};
use crate::llm::script::Script;
use crate::llm::{Api, ChatModel, Endpoint, EndpointConfig, ScriptedModel};
use crate::tools::ScriptedTools;

/// The model, and where it is reached.
#[derive(clap::Args, Clone, Debug)]
pub struct LlmArgs {
    /// The model's provider: `ollama`, `openai`, `anthropic`, `openrouter`, the base URL of an
    /// API like theirs, or `script:FILE` [default: ollama]
    #[arg(long, value_name = "PROVIDER|URL", env = "TOOLSCOUT_LLM")]
    llm: Option<String>,
    /// The API at a base URL: openai, anthropic, or ollama for Ollama's own [default: that of the
    /// provider, else openai]
    #[arg(long, value_name = "API", env = "TOOLSCOUT_LLM_API")]
    llm_api: Option<Api>,
    /// The model's name at that provider
    #[arg(long, value_name = "NAME", env = "TOOLSCOUT_MODEL")]
    model: Option<String>,
    /// The provider's key [default: OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY for a
    /// provider named by its word]
    #[arg(
        long,
        value_name = "KEY",
        env = "TOOLSCOUT_LLM_KEY",
        hide_env_values = true
    )]
    llm_key: Option<String>,
    /// Longest silence of the provider, before an answer and within it [default: 120 s before the
    /// first token, 60 s after it; of the drop-in endpoint, 600 s for an answer that comes whole]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    llm_wait: Option<u64>,
}

/// The model's name where none is given. Servers of one model accept any name.
const DEFAULT_MODEL: &str = "default";

impl LlmArgs {
    /// Whether somebody chose the model, by a flag or the environment.
    pub fn is_chosen(&self) -> bool {
        self.llm.is_some() || self.model.is_some()
    }

    /// The provider as it was named.
    pub fn named(&self) -> &str {
        self.llm.as_deref().unwrap_or(OLLAMA.name)
    }

    /// The model's name, if one was chosen.
    pub fn chosen_model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The file of a scripted model.
    pub fn script(&self) -> Option<&Path> {
        self.named().strip_prefix("script:").map(Path::new)
    }

    /// The provider, where it has a word.
    pub fn provider(&self) -> Option<Provider> {
        Provider::of(self.named())
    }

    /// The base URL; `None` for a script.
    pub fn base_url(&self) -> Option<&str> {
        if self.script().is_some() {
            return None;
        }
        let known = self.provider().map(|provider| provider.base_url);
        Some(known.unwrap_or(self.named()))
    }

    /// The API that is spoken there.
    pub fn api(&self) -> Api {
        match (self.llm_api, self.provider()) {
            (Some(api), _) => api,
            (None, Some(provider)) => provider.api,
            (None, None) => Api::default(),
        }
    }

    /// The key: the one given, or the one that people have for the provider in the environment.
    pub fn key(&self) -> Option<String> {
        if self.llm_key.is_some() {
            return self.llm_key.clone();
        }
        let key = std::env::var(self.key_variable()?).ok()?;
        (!key.is_empty()).then_some(key)
    }

    /// The variable in which people have the key of a provider that is named by its word.
    fn key_variable(&self) -> Option<&'static str> {
        let provider = self.provider()?;
        // A provider that is named by its URL gets only the key that was given.
        if provider.name != self.named() {
            return None;
        }
        provider.key_variable
    }

    /// The API in which the model gets these parameters.
    fn api_for(&self, parameters: &ModelParameters) -> Api {
        // The default API of Ollama is the one like OpenAI's, which has no such parameter.
        let is_ollama = self.llm_api.is_none() && self.provider() == Some(OLLAMA);
        if is_ollama && parameters.num_ctx.is_some() {
            return Api::Ollama;
        }
        self.api()
    }

    /// The model with these parameters, and the tools of a scripted one, which ignores them.
    ///
    /// # Errors
    /// For a script that cannot be read, an address that is none, and a parameter that the model's
    /// API does not have.
    pub fn model(
        &self,
        parameters: &ModelParameters,
    ) -> Result<(Arc<dyn ChatModel>, ScriptedTools)> {
        if let Some(script) = self.script() {
            let Script { turns, tools } = Script::load(script)?;
            let name = script.to_string_lossy();
            return Ok((
                Arc::new(ScriptedModel::new(name, turns)),
                ScriptedTools::new(tools),
            ));
        }
        let config = self.endpoint(parameters)?;
        Ok((Arc::new(Endpoint::new(config)?), ScriptedTools::default()))
    }

    /// A run of requests about batches of tools, so many at once. A script gives its answers in order, so it is
    /// asked one after the other. Texts are compared with the tools of `searcher`, if they become texts of tools.
    ///
    /// # Errors
    /// As [`LlmArgs::model`].
    pub fn run(
        &self,
        batches: Vec<Batch>,
        parallel: usize,
        searcher: Option<Arc<Searcher>>,
    ) -> Result<Run> {
        let parallel = match self.script() {
            Some(_) => 1,
            None => parallel,
        };
        Ok(Run::new(
            self.unwaiting_model()?,
            batches,
            parallel,
            searcher,
        ))
    }

    /// The model for one who sends many requests at once, and waits for its limits with all of them.
    fn unwaiting_model(&self) -> Result<Arc<dyn ChatModel>> {
        let parameters = &ModelParameters::default();
        if self.script().is_some() {
            return Ok(self.model(parameters)?.0);
        }
        let mut config = self.endpoint(parameters)?;
        // The run itself paces all of them together.
        config.waits_for_limits = false;
        Ok(Arc::new(Endpoint::new(config)?))
    }

    /// The model that writes texts of tools; `None` where nobody chose one.
    ///
    /// # Errors
    /// As [`LlmArgs::model`].
    pub fn enricher(&self) -> Result<Option<Arc<dyn ChatModel>>> {
        if !self.is_chosen() {
            return Ok(None);
        }
        self.unwaiting_model().map(Some)
    }

    fn endpoint(&self, parameters: &ModelParameters) -> Result<EndpointConfig> {
        let mut config = EndpointConfig::new(
            self.base_url().unwrap_or_default(),
            self.model.as_deref().unwrap_or(DEFAULT_MODEL),
        );
        config.api = self.api_for(parameters);
        config.parameters = parameters::fields(parameters, config.api, &config.base_url)?;
        config.api_key = self.key();
        if let Some(wait) = self.wait() {
            config.first_token_timeout = wait;
            config.idle_timeout = wait;
        }
        Ok(config)
    }

    /// The longest silence that was set.
    pub fn wait(&self) -> Option<Duration> {
        self.llm_wait.map(Duration::from_secs)
    }

    /// Refuses a provider of many models where none of them is named, and one without its key.
    pub fn check(&self) -> Result<()> {
        // Those that want a key offer many models.
        if let Some(provider) = self.provider()
            && provider.key_variable.is_some()
            && self.model.is_none()
        {
            let name = provider.name;
            bail!(
                "{name} has many models: name one with --model or TOOLSCOUT_MODEL; `toolscout doctor --llm {name}` lists them"
            );
        }
        if let (Some(variable), None) = (self.key_variable(), self.key()) {
            let name = self.named();
            bail!("{name} wants a key: set {variable}, TOOLSCOUT_LLM_KEY or --llm-key");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        llm: LlmArgs,
    }

    fn parsed(flags: &[&str]) -> LlmArgs {
        Command::parse_from(["toolscout"].iter().chain(flags)).llm
    }

    #[test]
    fn a_word_stands_for_an_address_and_its_api() {
        let none = parsed(&[]);
        assert_eq!(none.base_url(), Some("http://127.0.0.1:11434/v1"));
        assert!(!none.is_chosen() && parsed(&["--llm", "ollama"]).is_chosen());

        let anthropic = parsed(&["--llm", "anthropic", "--model", "m", "--llm-key", "k"]);
        assert_eq!(anthropic.base_url(), Some("https://api.anthropic.com/v1"));
        assert_eq!(anthropic.api(), Api::Anthropic);
        assert_eq!(anthropic.key().as_deref(), Some("k"));

        let other = parsed(&[
            "--llm",
            "http://127.0.0.1:8080/v1",
            "--llm-api",
            "anthropic",
        ]);
        assert_eq!(other.base_url(), Some("http://127.0.0.1:8080/v1"));
        assert_eq!(other.api(), Api::Anthropic);
    }

    #[test]
    fn a_provider_of_many_models_wants_a_name() {
        let checked = |flags: &[&str]| parsed(flags).check();
        let error = checked(&["--llm", "openai"]).unwrap_err();
        assert!(
            error.to_string().contains("name one with --model"),
            "{error}"
        );
        let with_key = ["--llm", "openai", "--model", "m", "--llm-key", "k"];
        assert!(checked(&with_key).is_ok());
        assert!(checked(&["--llm", "http://127.0.0.1:8080/v1"]).is_ok());
    }
}
