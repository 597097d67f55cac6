//! What the record of use says: the tools in an order, and those that nobody used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toolscout_base::budget;
use toolscout_base::clock::date;
use toolscout_base::config::UnknownWord;
use toolscout_index::Tool;
use toolscout_index::formats::{self, Emit};
use utoipa::ToSchema;

use super::figures::ToolFigures;

/// The definitions of so many unused tools are counted. Beyond that their tokens are estimated.
const COUNTED_TOOLS: usize = 2_000;
/// Bytes of a definition in JSON for each token, about.
const BYTES_PER_TOKEN: usize = 4;
/// How many days a report is about where nothing else is said.
pub const DEFAULT_DAYS: u32 = 30;

/// What tools are ordered by, most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = UseOrder)]
pub enum Order {
    /// Their calls.
    #[default]
    Calls,
    /// The searches that showed them.
    Searches,
    /// Their calls that failed or were refused.
    Errors,
    /// The tokens of their definitions and results.
    Tokens,
}

impl FromStr for Order {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "calls" => Ok(Order::Calls),
            "searches" => Ok(Order::Searches),
            "errors" => Ok(Order::Errors),
            "tokens" => Ok(Order::Tokens),
            _ => Err(UnknownWord::new("calls, searches, errors or tokens")),
        }
    }
}

impl Order {
    fn of(self, figures: &ToolFigures) -> u64 {
        match self {
            Order::Calls => figures.calls,
            Order::Searches => figures.searches,
            Order::Errors => figures.failures(),
            Order::Tokens => figures.tokens(),
        }
    }
}

/// The use of a tool, or of several together.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ToolUse {
    /// The tool's id; absent in a total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Searches that had it among their hits. A total counts a search once for each of its hits.
    pub searches: u64,
    /// Searches in which it was the first hit.
    pub first: u64,
    /// Its mean place among the hits, from 1; null without a search.
    pub mean_place: Option<f64>,
    /// Searches that named it in a line after the hits.
    pub more: u64,
    /// How often it was loaded for a model: into the list of an agent, an MCP client or a model's request.
    pub injections: u64,
    /// Calls that were made or refused, without dry runs.
    pub calls: u64,
    /// Those of them that succeeded.
    pub successes: u64,
    /// The others by the code of their error, as in the audit log.
    pub errors: BTreeMap<String, u64>,
    /// Half of the calls that reached it took no longer, in milliseconds; estimated within the buckets of
    /// a histogram, and null without a call.
    pub p50_ms: Option<f64>,
    /// 95 of 100 took no longer.
    pub p95_ms: Option<f64>,
    /// Tokens of its definition that were sent to models, about.
    pub definition_tokens: u64,
    /// Tokens of the results of its calls, about.
    pub result_tokens: u64,
    /// The first use in that time, in milliseconds since 1970; null without any.
    pub first_used_ms: Option<i64>,
    /// The last use.
    pub last_used_ms: Option<i64>,
}

impl ToolUse {
    /// The use of a tool.
    pub fn of(tool: Option<String>, figures: &ToolFigures) -> Self {
        let is_used = figures.first_ms > 0;
        let percentile = |share| {
            let seconds = figures.latency.percentile_s(share)?;
            Some((seconds * 1e6).round() / 1e3)
        };
        let mean = figures.places as f64 / figures.searches as f64;
        ToolUse {
            tool,
            searches: figures.searches,
            first: figures.first,
            mean_place: (figures.searches > 0).then(|| (mean * 100.0).round() / 100.0),
            more: figures.more,
            injections: figures.injections,
            calls: figures.calls,
            successes: figures.successes,
            errors: figures.errors.clone(),
            p50_ms: percentile(0.5),
            p95_ms: percentile(0.95),
            definition_tokens: figures.definition_tokens,
            result_tokens: figures.result_tokens,
            first_used_ms: is_used.then_some(figures.first_ms),
            last_used_ms: is_used.then_some(figures.last_ms),
        }
    }
}

/// The time that a report is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsePeriod {
    /// The first day (UTC).
    pub since: String,
    /// The first day since then on which use was recorded; null if it never was.
    pub recorded_since: Option<String>,
    /// The number of days since then on which use was recorded. A server that was off records nothing.
    pub recorded_days: u64,
}

/// The days of a report: today, and those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// The first day, counted from 1970.
    pub since: i64,
}

impl Period {
    /// So many days, of which today is the last.
    pub fn last(days: u32, today: i64) -> Self {
        Period {
            since: today - i64::from(days) + 1,
        }
    }

    /// What of it was recorded, by the days on which use was.
    pub fn recorded(self, days: &BTreeSet<i64>) -> UsePeriod {
        UsePeriod {
            since: date(self.since),
            recorded_since: days.first().copied().map(date),
            recorded_days: days.len() as u64,
        }
    }
}

/// The tools in an order; equal ones by their ids.
pub fn sorted(tools: BTreeMap<String, ToolFigures>, order: Order) -> Vec<(String, ToolFigures)> {
    let mut tools: Vec<(String, ToolFigures)> = tools.into_iter().collect();
    tools.sort_by_key(|(_, figures)| Reverse(order.of(figures)));
    tools
}

/// All of them together.
pub fn total<'a>(tools: impl Iterator<Item = &'a ToolFigures>) -> ToolFigures {
    let mut total = ToolFigures::default();
    for figures in tools {
        total.add(figures);
    }
    total
}

/// The tools of a catalog that nobody used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unused {
    /// These tools, by their ids.
    pub tools: Vec<UnusedTool>,
    /// The servers that have any, by their names.
    pub servers: Vec<UnusedOfServer>,
    /// Number of all tools of the catalog.
    pub all_tools: usize,
    /// Tokens of the definitions of the unused ones.
    pub definition_tokens: u64,
    /// Whether tokens are estimated by length.
    pub are_tokens_estimated: bool,
}

/// A tool that no search showed and nobody called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UnusedTool {
    /// The tool's id.
    pub tool: String,
    /// Tokens of its definition.
    pub definition_tokens: usize,
}

/// The unused tools of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct UnusedOfServer {
    /// The server; empty for tools without one.
    pub server: String,
    /// Number of its tools.
    pub tools: usize,
    /// Number of those that nobody used. If it is `tools`, nothing of the server was used.
    pub unused: usize,
    /// Tokens of their definitions.
    pub definition_tokens: u64,
}

impl Unused {
    /// Those of these tools that are not used.
    pub fn of(
        tools: impl Iterator<Item = Arc<Tool>>,
        used: &BTreeMap<String, ToolFigures>,
    ) -> Self {
        let mut unused = Unused::default();
        let mut servers: BTreeMap<String, UnusedOfServer> = BTreeMap::new();
        let mut left = Vec::new();
        for tool in tools {
            unused.all_tools += 1;
            let server = servers.entry(tool.id.server().to_owned()).or_default();
            server.tools += 1;
            let figures = used.get(tool.id.as_str());
            if !figures.is_some_and(ToolFigures::is_used) {
                server.unused += 1;
                left.push(tool);
            }
        }
        // Counting the tokens of a definition takes much longer than measuring its text.
        unused.are_tokens_estimated = left.len() > COUNTED_TOOLS;
        for tool in left {
            let tokens = definition_tokens(&tool, unused.are_tokens_estimated);
            unused.definition_tokens += tokens as u64;
            let server = servers.entry(tool.id.server().to_owned()).or_default();
            server.definition_tokens += tokens as u64;
            unused.tools.push(UnusedTool {
                tool: tool.id.to_string(),
                definition_tokens: tokens,
            });
        }
        for (server, figures) in servers {
            if figures.unused > 0 {
                unused.servers.push(UnusedOfServer { server, ..figures });
            }
        }
        unused
    }
}

/// The tokens of a definition, in the most compact format with a schema.
fn definition_tokens(tool: &Tool, is_estimated: bool) -> usize {
    let definition = formats::emit(&[tool], Emit::Anthropic).to_string();
    match is_estimated {
        true => definition.len().div_ceil(BYTES_PER_TOKEN),
        false => budget::count(&definition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(searches: u64, calls: u64, successes: u64) -> ToolFigures {
        ToolFigures {
            searches,
            calls,
            successes,
            places: 3 * searches,
            ..ToolFigures::default()
        }
    }

    #[test]
    fn tools_are_ordered_and_added_up() {
        let tools = BTreeMap::from([
            ("a".to_owned(), figures(9, 1, 1)),
            ("b".to_owned(), figures(1, 5, 5)),
            ("c".to_owned(), figures(2, 5, 1)),
        ]);
        for (order, expected) in [("calls", "bca"), ("searches", "acb"), ("errors", "cab")] {
            let sorted = sorted(tools.clone(), order.parse().unwrap());
            let ids: String = sorted.into_iter().map(|(id, _)| id).collect();
            assert_eq!(ids, expected, "{order}");
        }
        let total = ToolUse::of(None, &total(tools.values()));
        assert_eq!((total.searches, total.calls, total.successes), (12, 11, 7));
        assert_eq!((total.mean_place, total.first_used_ms), (Some(3.0), None));
        assert!("most".parse::<Order>().is_err());
    }

    #[test]
    fn unused_tools_are_those_that_no_search_showed_and_nobody_called() {
        let tool = |server: &str, name: &str| Arc::new(Tool::new(server, name).unwrap());
        let tools = [
            tool("mail", "send"),
            tool("mail", "drafts"),
            tool("shop", "order"),
            tool("", "now"),
        ];
        let loaded = ToolFigures {
            injections: 4,
            ..ToolFigures::default()
        };
        let used = BTreeMap::from([
            ("mail/send".to_owned(), figures(1, 0, 0)),
            ("shop/order".to_owned(), loaded),
            ("now".to_owned(), figures(0, 1, 0)),
            ("gone/tool".to_owned(), figures(1, 1, 1)),
        ]);
        let unused = Unused::of(tools.into_iter(), &used);
        let ids: Vec<&str> = unused.tools.iter().map(|tool| tool.tool.as_str()).collect();
        assert_eq!(ids, ["mail/drafts", "shop/order"]);
        let servers: Vec<(&str, usize, usize)> = unused
            .servers
            .iter()
            .map(|server| (server.server.as_str(), server.unused, server.tools))
            .collect();
        assert_eq!(servers, [("mail", 1, 2), ("shop", 1, 1)]);
        let tokens: usize = unused.tools.iter().map(|tool| tool.definition_tokens).sum();
        assert!(tokens > 10 && unused.definition_tokens == tokens as u64);
        assert_eq!((unused.all_tools, unused.are_tokens_estimated), (4, false));
    }
}
