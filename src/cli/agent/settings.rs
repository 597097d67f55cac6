//! The flags of an agent's settings, which a profile and the settings have as keys too.

use crate::config::{
    AgentSettings, CALLS, COUNT, Limits, ModelParameters, ReasoningEffort, SECONDS, SIZE,
};

/// Limits of an agent's runs, and parameters of its model.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SettingArgs {
    /// Search the catalog from this number of tools on, and show a smaller one whole; 0 is always
    /// [default: 30]
    #[arg(long, value_name = "N")]
    search_from_tools: Option<usize>,
    /// Most seconds of a turn, after which its answer so far is kept [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(SECONDS))]
    time_to_live: Option<u64>,
    /// Most tokens of a prompt; a longer one is shortened [default: 96000, or three quarters of
    /// --num-ctx]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(SIZE))]
    context_tokens: Option<u64>,
    /// Most calls of one answer of the model that are made [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(CALLS))]
    max_calls: Option<u64>,
    /// Most calls that run at the same time [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(CALLS))]
    parallel_calls: Option<u64>,
    /// Unload a tool that was not used for this number of turns [default: 3]
    #[arg(long, value_name = "TURNS", value_parser = clap::value_parser!(u64).range(COUNT))]
    idle_turns: Option<u64>,
    /// Recommend three further questions after each answer, for which the model is asked once more
    /// [default: false; true in the presets]
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    recommend: Option<bool>,
    /// How much chance there is in the choice of the next token, 0 to 2 [default: the provider's]
    #[arg(help_heading = "Parameters of the model", long, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Most tokens of an answer [default: the provider's; 8192 at Anthropic]
    #[arg(help_heading = "Parameters of the model", long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(SIZE))]
    max_tokens: Option<u64>,
    /// How much the model thinks: none, minimal, low, medium, high, xhigh or max, as far as the model
    /// knows it [default: the provider's]
    #[arg(help_heading = "Parameters of the model", long, value_name = "EFFORT")]
    reasoning_effort: Option<ReasoningEffort>,
    /// The context that Ollama reserves for the model, in tokens [default: Ollama's]
    #[arg(help_heading = "Parameters of the model", long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(SIZE))]
    num_ctx: Option<u64>,
    /// A text at which an answer ends (repeatable)
    #[arg(help_heading = "Parameters of the model", long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    stop: Vec<String>,
}

impl SettingArgs {
    /// The settings that flags say.
    pub fn settings(&self) -> AgentSettings {
        // The ranges of the flags fit into any `usize`.
        let number = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok());
        AgentSettings {
            recommend: self.recommend,
            limits: Limits {
                search_from_tools: self.search_from_tools,
                time_to_live_s: self.time_to_live,
                context_tokens: number(self.context_tokens),
                max_calls: number(self.max_calls),
                parallel_calls: number(self.parallel_calls),
                idle_turns: self.idle_turns,
                ..Limits::default()
            },
            model: ModelParameters {
                temperature: self.temperature,
                max_tokens: self.max_tokens,
                reasoning_effort: self.reasoning_effort,
                num_ctx: self.num_ctx,
                stop: self.stop.clone(),
            },
        }
    }
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=2.0).contains(&value) => Ok(value),
        _ => Err("it must be a number from 0 to 2".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::ResultFormat;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        agent: super::super::AgentArgs,
    }

    const EVERY_FLAG: &str = "toolscout --search-from-tools 0 --context-tokens 9 --time-to-live 9 --max-calls 9 --parallel-calls 9 \
        --idle-turns 9 --recommend --temperature 0.5 --max-tokens 9 --reasoning-effort low --num-ctx 9 --stop END \
        --max-rounds 9 --tool-budget 9 --call-timeout 9 --call-timeout-total 9 \
        --max-result-bytes 9 --result-format compact";

    #[test]
    fn the_settings_have_flags() {
        let command = Command::try_parse_from(EVERY_FLAG.split_whitespace()).unwrap();
        let profile = crate::agent::profile::AgentProfile::default();
        // A new setting does not compile until it has a flag, or a reason to have none.
        let AgentSettings {
            recommend,
            limits,
            model,
        } = command
            .agent
            .settings_over(&profile, &AgentSettings::default());
        let Limits {
            max_rounds,
            max_calls,
            parallel_calls,
            call_timeout_s,
            call_timeout_total_s,
            time_to_live_s,
            search_from_tools,
            context_tokens,
            tool_budget_tokens,
            idle_turns,
            max_result_bytes,
            result_format,
            // Keys of a profile and of the settings alone.
            max_searches: _,
            max_hits: _,
            // Flags of their own, for all that searches.
            more_tools: _,
            more_chars: _,
            refresh_interval: _,
            eviction: _,
        } = limits;
        assert_eq!(recommend, Some(true));
        assert_eq!((max_rounds, max_calls), (Some(9), Some(9)));
        assert_eq!((parallel_calls, time_to_live_s), (Some(9), Some(9)));
        assert_eq!((call_timeout_s, call_timeout_total_s), (Some(9), Some(9)));
        assert_eq!(
            (max_result_bytes, result_format),
            (Some(9), Some(ResultFormat::Compact))
        );
        assert_eq!((search_from_tools, idle_turns), (Some(0), Some(9)));
        assert_eq!((context_tokens, tool_budget_tokens), (Some(9), Some(9)));
        let ModelParameters {
            temperature,
            max_tokens,
            reasoning_effort,
            num_ctx,
            stop,
        } = model;
        assert_eq!(
            (temperature, max_tokens, num_ctx),
            (Some(0.5), Some(9), Some(9))
        );
        assert_eq!(reasoning_effort, Some(ReasoningEffort::Low));
        assert_eq!(stop, ["END"]);
        for wrong in [
            "--recommend=maybe",
            "--temperature=3",
            "--temperature=-1",
            "--time-to-live=0",
        ] {
            assert!(
                Command::try_parse_from(["toolscout", wrong]).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_flag_wins_over_the_profile_and_that_over_the_settings() {
        let command = Command::try_parse_from(["toolscout", "--recommend=false", "--stop", "A"]);
        let text = "recommend = true\n[model]\nstop = ['B']\n[limits]\nidle_turns = 5";
        let profile = crate::agent::profile::AgentProfile::parse("p", text).unwrap();
        let file = AgentSettings {
            limits: Limits {
                idle_turns: Some(7),
                max_calls: Some(7),
                ..Limits::default()
            },
            ..AgentSettings::default()
        };
        let settings = command.unwrap().agent.settings_over(&profile, &file);
        assert_eq!(settings.recommend, Some(false));
        assert_eq!(settings.model.stop, ["A"]);
        let limits = settings.limits;
        assert_eq!((limits.idle_turns, limits.max_calls), (Some(5), Some(7)));
    }

    #[test]
    fn every_setting_of_an_agent_is_documented() {
        let page = include_str!("../../../docs/settings.md");
        let everything = include_str!("../../../crates/agent/src/profile/everything.toml");
        let keys = everything.lines().filter_map(|line| line.split_once(" = "));
        for (key, _) in keys.filter(|(key, _)| *key != "servers" && *key != "dry_run") {
            assert!(
                page.contains(&format!("`{key}`")),
                "{key} is not in docs/settings.md"
            );
        }
    }
}
