//! The flags for the tools that a search names after its hits.

use crate::config::{AgentSettings, Limits, MORE_CHARS, MORE_TOOLS};
use crate::finder::meta_tools::MoreTools;

/// How many tools after the hits a search names, and how.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Search")]
pub struct MoreToolArgs {
    /// Most tools after the hits that a search of a model names, in a line each; 0 is none [default:
    /// 11]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(MORE_TOOLS))]
    more_tools: Option<u64>,
    /// Characters of the description in such a line; 0 leaves it out [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(MORE_CHARS))]
    more_chars: Option<u64>,
}

impl MoreToolArgs {
    /// The limits that the flags set.
    pub fn settings(self) -> AgentSettings {
        let number = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok());
        let limits = Limits {
            more_tools: number(self.more_tools),
            more_chars: number(self.more_chars),
            ..Limits::default()
        };
        AgentSettings {
            limits,
            ..AgentSettings::default()
        }
    }
}

/// What these limits say, and the defaults of what they do not.
pub fn of_limits(limits: &Limits) -> MoreTools {
    let default = MoreTools::default();
    MoreTools {
        lines: limits.more_tools.unwrap_or(default.lines),
        chars: limits.more_chars.unwrap_or(default.chars),
    }
}
