//! Providers of models that have a word for their address.

use crate::llm::Api;

/// A provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The word.
    pub name: &'static str,
    /// The base URL that it stands for.
    pub base_url: &'static str,
    /// The API that is spoken there.
    pub api: Api,
    /// The environment variable in which people have its key; `None` if it wants no key.
    pub key_variable: Option<&'static str>,
}

/// The port of Ollama, on any machine.
pub const OLLAMA_PORT: u16 = 11_434;
/// Ollama on this machine, which is the default.
pub const OLLAMA: Provider = Provider {
    name: "ollama",
    base_url: "http://127.0.0.1:11434/v1",
    api: Api::OpenAi,
    key_variable: None,
};

/// OpenAI.
pub const OPENAI: Provider = Provider {
    name: "openai",
    base_url: "https://api.openai.com/v1",
    api: Api::OpenAi,
    key_variable: Some("OPENAI_API_KEY"),
};

/// All of them.
pub const PROVIDERS: [Provider; 4] = [
    OLLAMA,
    OPENAI,
    Provider {
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        api: Api::Anthropic,
        key_variable: Some("ANTHROPIC_API_KEY"),
    },
    Provider {
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        api: Api::OpenAi,
        key_variable: Some("OPENROUTER_API_KEY"),
    },
];

/// Their words, for messages.
pub const WORDS: &str = "ollama, openai, anthropic or openrouter";

impl Provider {
    /// The provider of a word, or of its base URL.
    pub fn of(word_or_url: &str) -> Option<Provider> {
        let url = word_or_url.trim_end_matches('/');
        let is_meant = |provider: &Provider| provider.name == url || provider.base_url == url;
        PROVIDERS.into_iter().find(is_meant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_in_messages() {
        assert!(
            PROVIDERS
                .iter()
                .all(|provider| WORDS.contains(provider.name))
        );
    }

    #[test]
    fn a_provider_is_found_by_its_word_and_its_address() {
        assert_eq!(Provider::of("ollama"), Some(OLLAMA));
        assert_eq!(
            Provider::of("https://api.anthropic.com/v1/").map(|provider| provider.api),
            Some(Api::Anthropic)
        );
        assert_eq!(Provider::of("http://127.0.0.1:8080/v1"), None);
    }
}
