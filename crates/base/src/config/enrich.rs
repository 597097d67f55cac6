//! Whether a server lets its model write texts of tools, and how much that may cost.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::word::UnknownWord;

/// What may be said of tokens a day: at most a billion.
pub const TOKENS: std::ops::RangeInclusive<u64> = 1..=1_000_000_000;

/// When a server's model writes texts of tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EnrichMode {
    /// Never.
    Off,
    /// When somebody asks for it.
    #[default]
    Ask,
    /// By itself, for new and changed tools of every catalog that is open.
    Auto,
}

impl EnrichMode {
    /// The word of the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            EnrichMode::Off => "off",
            EnrichMode::Ask => "ask",
            EnrichMode::Auto => "auto",
        }
    }
}

impl fmt::Display for EnrichMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EnrichMode {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "off" => Ok(EnrichMode::Off),
            "ask" => Ok(EnrichMode::Ask),
            "auto" => Ok(EnrichMode::Auto),
            _ => Err(UnknownWord::new("off, ask or auto")),
        }
    }
}

/// The table `[enrich]` of the settings. What is absent keeps its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnrichSettings {
    /// When texts are written; `ask` where it is absent.
    pub mode: Option<EnrichMode>,
    /// Most tokens a day, sent and received; without it there is no bound, and `auto` does nothing.
    pub tokens_a_day: Option<u64>,
    /// The languages of the texts, as codes or names; English where there is none.
    pub languages: Vec<String>,
}

impl EnrichSettings {
    /// These values; absent ones from the others.
    pub fn or(self, other: EnrichSettings) -> Self {
        EnrichSettings {
            mode: self.mode.or(other.mode),
            tokens_a_day: self.tokens_a_day.or(other.tokens_a_day),
            // A list that is not given is empty.
            languages: match self.languages.is_empty() {
                true => other.languages,
                false => self.languages,
            },
        }
    }

    /// When texts are written.
    pub fn mode(&self) -> EnrichMode {
        self.mode.unwrap_or_default()
    }

    /// Fails for values that cannot be.
    ///
    /// # Errors
    /// For a number out of range, and for `auto` without a bound.
    pub fn check(&self) -> Result<()> {
        match self.tokens_a_day {
            Some(tokens) if !TOKENS.contains(&tokens) => bail!(
                "enrich.tokens_a_day is {tokens}, it must be from {} to {}",
                TOKENS.start(),
                TOKENS.end()
            ),
            // Nobody is there to stop it.
            None if self.mode() == EnrichMode::Auto => bail!(
                "enrich.mode is auto, which needs enrich.tokens_a_day: the most tokens that may be spent in a day"
            ),
            _ => Ok(()),
        }
    }
}
