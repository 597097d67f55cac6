//! Settings of an agent: the limits of a run and the parameters of its model. The table `[agent]` of
//! the settings and a profile have the same keys; a flag wins over the profile, and that over the
//! settings.

use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::word::UnknownWord;

/// What may be said of how often the model answers.
pub const ROUNDS: RangeInclusive<u64> = 1..=100;
/// What may be said of how many calls of one answer are made, and how many at a time.
pub const CALLS: RangeInclusive<u64> = 1..=1_000;
/// What may be said of the tools that a search names after its hits.
pub const MORE_TOOLS: RangeInclusive<u64> = 0..=50;
/// What may be said of the characters of such a tool's description.
pub const MORE_CHARS: RangeInclusive<u64> = 0..=1_000;
/// What may be said of the seconds of a turn: at most a day.
pub const SECONDS: RangeInclusive<u64> = 1..=86_400;
/// What may be said of a number of turns.
pub const COUNT: RangeInclusive<u64> = 1..=1_000_000;
/// What may be said of a number of tokens or bytes.
pub const SIZE: RangeInclusive<u64> = 1..=1 << 30;
/// Most stop sequences. OpenAI takes four.
const MAX_STOP: usize = 16;

/// The settings of an agent that the program's settings and a profile have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// Whether the model is asked once more, for questions that may follow.
    pub recommend: Option<bool>,
    /// The limits of a run.
    pub limits: Limits,
    /// The parameters of the model.
    pub model: ModelParameters,
}

/// The limits of a run. What is absent keeps its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of the model's answers.
    pub max_rounds: Option<u32>,
    /// Maximum number of rounds in a row that only search.
    pub max_searches: Option<u32>,
    /// Maximum number of calls of one answer that are made.
    pub max_calls: Option<usize>,
    /// Maximum number of calls that run in parallel.
    pub parallel_calls: Option<usize>,
    /// Most seconds of a call without progress.
    #[serde(alias = "call_timeout")]
    pub call_timeout_s: Option<u64>,
    /// Most seconds of a call in all.
    #[serde(alias = "call_timeout_total")]
    pub call_timeout_total_s: Option<u64>,
    /// Seconds until a turn ends, whether it has an answer or not.
    pub time_to_live_s: Option<u64>,
    /// Catalogs with fewer tools are shown whole; with 0 every catalog is searched.
    pub search_from_tools: Option<usize>,
    /// Maximum number of tools that one search of the model may load.
    pub max_hits: Option<usize>,
    /// Maximum number of tools after the hits that a search names, in a line each; 0 is none.
    pub more_tools: Option<usize>,
    /// Characters of a description in such a line.
    pub more_chars: Option<usize>,
    /// Maximum number of bytes of a result that the model gets at once.
    pub max_result_bytes: Option<usize>,
    /// How results in JSON are written.
    pub result_format: Option<ResultFormat>,
    /// Rounds after which the context is reduced to question, facts and plan; 0 is never.
    pub refresh_interval: Option<u32>,
    /// Maximum number of tokens of a prompt, the tools included.
    pub context_tokens: Option<usize>,
    /// Token budget of the visible tools.
    pub tool_budget_tokens: Option<usize>,
    /// Which tool is evicted first when the budget is used up.
    pub eviction: Option<Eviction>,
    /// Turns without use after which a tool is evicted.
    pub idle_turns: Option<u64>,
}

/// Which tool is evicted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eviction {
    /// The least recently used.
    #[default]
    Lru,
    /// The least frequently used, the least recently used among equals.
    Lfu,
    /// No tool is evicted; tools that do not fit are refused.
    None,
}

/// How results in JSON are written for a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResultFormat {
    /// As the tool gave them.
    #[default]
    Json,
    /// Lists of objects with the same fields as tables, if that is shorter.
    Compact,
}

impl ResultFormat {
    /// The names of all formats.
    pub const NAMES: [&str; 2] = ["json", "compact"];

    /// The format with this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "json" => Some(ResultFormat::Json),
            "compact" => Some(ResultFormat::Compact),
            _ => None,
        }
    }
}

/// The parameters of a model. What is absent is left to its provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelParameters {
    /// How much chance there is in the choice of the next token.
    pub temperature: Option<f64>,
    /// Most tokens of an answer.
    pub max_tokens: Option<u64>,
    /// How much the model thinks before it answers.
    pub reasoning_effort: Option<ReasoningEffort>,
    /// The context that Ollama reserves for the model, in tokens.
    pub num_ctx: Option<u64>,
    /// Texts at which an answer ends.
    pub stop: Vec<String>,
}

/// How much a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// Not at all.
    None,
    /// As little as it can.
    Minimal,
    /// Little.
    Low,
    /// As much as is usual.
    Medium,
    /// Much.
    High,
    /// More than that.
    Xhigh,
    /// As much as it can.
    Max,
}

impl ReasoningEffort {
    const ALL: [(ReasoningEffort, &'static str); 7] = [
        (ReasoningEffort::None, "none"),
        (ReasoningEffort::Minimal, "minimal"),
        (ReasoningEffort::Low, "low"),
        (ReasoningEffort::Medium, "medium"),
        (ReasoningEffort::High, "high"),
        (ReasoningEffort::Xhigh, "xhigh"),
        (ReasoningEffort::Max, "max"),
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(effort, _)| *effort == self);
        // Every effort is in the list.
        named.map_or("medium", |(_, name)| name)
    }
}

impl FromStr for ReasoningEffort {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        for (effort, name) in Self::ALL {
            if name == word {
                return Ok(effort);
            }
        }
        let words = Self::ALL.map(|(_, name)| name);
        Err(UnknownWord::new(format!("one of {}", words.join(", "))))
    }
}

impl AgentSettings {
    /// These settings; absent ones from the other.
    pub fn or(self, other: AgentSettings) -> Self {
        AgentSettings {
            recommend: self.recommend.or(other.recommend),
            limits: self.limits.or(other.limits),
            model: self.model.or(other.model),
        }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`AgentSettingsError`] with the key, its value and its range.
    pub fn check(&self) -> Result<(), AgentSettingsError> {
        self.limits.check()?;
        self.model.check()
    }
}

impl Limits {
    fn or(self, other: Limits) -> Self {
        Limits {
            max_rounds: self.max_rounds.or(other.max_rounds),
            max_searches: self.max_searches.or(other.max_searches),
            max_calls: self.max_calls.or(other.max_calls),
            parallel_calls: self.parallel_calls.or(other.parallel_calls),
            call_timeout_s: self.call_timeout_s.or(other.call_timeout_s),
            call_timeout_total_s: self.call_timeout_total_s.or(other.call_timeout_total_s),
            time_to_live_s: self.time_to_live_s.or(other.time_to_live_s),
            search_from_tools: self.search_from_tools.or(other.search_from_tools),
            max_hits: self.max_hits.or(other.max_hits),
            more_tools: self.more_tools.or(other.more_tools),
            more_chars: self.more_chars.or(other.more_chars),
            max_result_bytes: self.max_result_bytes.or(other.max_result_bytes),
            result_format: self.result_format.or(other.result_format),
            refresh_interval: self.refresh_interval.or(other.refresh_interval),
            context_tokens: self.context_tokens.or(other.context_tokens),
            tool_budget_tokens: self.tool_budget_tokens.or(other.tool_budget_tokens),
            eviction: self.eviction.or(other.eviction),
            idle_turns: self.idle_turns.or(other.idle_turns),
        }
    }

    fn check(&self) -> Result<(), AgentSettingsError> {
        let number = |value: Option<usize>| value.map(|value| value as u64);
        // Those that are not here may have any value.
        for (key, value, range) in [
            ("max_rounds", self.max_rounds.map(u64::from), ROUNDS),
            ("max_searches", self.max_searches.map(u64::from), ROUNDS),
            ("max_calls", number(self.max_calls), CALLS),
            ("parallel_calls", number(self.parallel_calls), CALLS),
            ("call_timeout_s", self.call_timeout_s, SECONDS),
            ("call_timeout_total_s", self.call_timeout_total_s, SECONDS),
            ("time_to_live_s", self.time_to_live_s, SECONDS),
            ("max_hits", number(self.max_hits), CALLS),
            ("more_tools", number(self.more_tools), MORE_TOOLS),
            ("more_chars", number(self.more_chars), MORE_CHARS),
            ("max_result_bytes", number(self.max_result_bytes), SIZE),
            ("context_tokens", number(self.context_tokens), SIZE),
            ("idle_turns", self.idle_turns, COUNT),
        ] {
            check_range("limits", key, value, range)?;
        }
        Ok(())
    }
}

impl ModelParameters {
    fn or(self, other: ModelParameters) -> Self {
        ModelParameters {
            temperature: self.temperature.or(other.temperature),
            max_tokens: self.max_tokens.or(other.max_tokens),
            reasoning_effort: self.reasoning_effort.or(other.reasoning_effort),
            num_ctx: self.num_ctx.or(other.num_ctx),
            // A list that is not given is empty.
            stop: if self.stop.is_empty() {
                other.stop
            } else {
                self.stop
            },
        }
    }

    fn check(&self) -> Result<(), AgentSettingsError> {
        if let Some(temperature) = self.temperature
            && !(0.0..=2.0).contains(&temperature)
        {
            return Err(AgentSettingsError::Temperature(temperature));
        }
        check_range("model", "max_tokens", self.max_tokens, SIZE)?;
        check_range("model", "num_ctx", self.num_ctx, SIZE)?;
        if self.stop.len() > MAX_STOP {
            return Err(AgentSettingsError::Stops {
                given: self.stop.len(),
            });
        }
        if self.stop.iter().any(String::is_empty) {
            return Err(AgentSettingsError::EmptyStop);
        }
        Ok(())
    }
}

/// Why settings of an agent cannot be used.
#[derive(Debug, PartialEq, Error)]
pub enum AgentSettingsError {
    /// A number is out of its range.
    #[error(
        "{table}.{key} is {value}, it must be from {} to {}",
        range.start(),
        range.end()
    )]
    OutOfRange {
        /// The table of the number.
        table: &'static str,
        /// Its key.
        key: &'static str,
        /// The number.
        value: u64,
        /// The numbers that are allowed.
        range: RangeInclusive<u64>,
    },
    /// The temperature is out of its range.
    #[error("model.temperature is {0}, it must be from 0 to 2")]
    Temperature(f64),
    /// Too many texts that an answer ends at.
    #[error("model.stop has {given} texts, at most {MAX_STOP} are allowed")]
    Stops {
        /// How many.
        given: usize,
    },
    /// An empty text that an answer ends at.
    #[error("model.stop has an empty text, which no answer can end at; remove it")]
    EmptyStop,
}

fn check_range(
    table: &'static str,
    key: &'static str,
    value: Option<u64>,
    range: RangeInclusive<u64>,
) -> Result<(), AgentSettingsError> {
    match value {
        Some(value) if !range.contains(&value) => Err(AgentSettingsError::OutOfRange {
            table,
            key,
            value,
            range,
        }),
        _ => Ok(()),
    }
}
