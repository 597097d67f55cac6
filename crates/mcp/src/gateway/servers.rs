//! What a client's model is told about the servers: which there are, and which tools one has.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use toolscout_index::formats::first_sentence;
use toolscout_index::{Filter, Tool, Version, text};

use toolscout_base::budget;
use toolscout_base::printable::{excerpt, name};
use toolscout_finder::finder::ToolSearch;

use super::own_tools::LIST_TOOLS;

/// Words that say what the tools of a server are about.
const TOPICS: usize = 5;
/// Stands for the server of tools that have none.
const NO_SERVER: &str = "(no server)";
/// Servers named in an error message.
const MAX_NAMED: usize = 20;

/// The servers of a catalog, computed anew when the catalog has changed.
#[derive(Default)]
pub struct Overview(Mutex<Option<(Version, Arc<str>)>>);

impl Overview {
    /// A line for each server, within a token budget.
    pub fn of(&self, search: &dyn ToolSearch, filter: &Filter, max_tokens: usize) -> Arc<str> {
        let version = search.version();
        let mut cached = self.0.lock();
        if let Some((of, text)) = &*cached
            && *of == version
        {
            return Arc::clone(text);
        }
        let text = Arc::from(overview(&servers(&search.tools(), filter), max_tokens));
        *cached = Some((version, Arc::clone(&text)));
        text
    }
}

/// A server and its tools, in the order of their names.
struct Server<'a> {
    name: &'a str,
    tools: Vec<&'a Tool>,
}

fn servers<'a>(tools: &'a [Arc<Tool>], filter: &Filter) -> Vec<Server<'a>> {
    let mut by_name: BTreeMap<&str, Vec<&Tool>> = BTreeMap::new();
    for tool in tools {
        if filter.accepts(tool) {
            by_name.entry(tool.id.server()).or_default().push(tool);
        }
    }
    by_name
        .into_iter()
        .map(|(name, tools)| Server { name, tools })
        .collect()
}

impl Server<'_> {
    /// The most frequent words of the tools' names, without the first word of each, which is
    /// mostly a verb.
    fn topics(&self) -> Vec<String> {
        let own = text::words(&text::spaced(self.name));
        let mut counts: HashMap<String, usize> = HashMap::new();
        for tool in &self.tools {
            let words = text::words(&text::spaced(tool.id.name()));
            let nouns = if words.len() > 1 { &words[1..] } else { &words };
            for word in nouns {
                if !text::is_stop_word(word) && !own.contains(word) {
                    *counts.entry(word.clone()).or_default() += 1;
                }
            }
        }
        let mut topics: Vec<(String, usize)> = counts.into_iter().collect();
        // By the word too, since a hash map has no order.
        topics.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
        topics
            .into_iter()
            .take(TOPICS)
            .map(|(word, _)| word)
            .collect()
    }

    /// Its name as a client gives it back.
    fn given_name(&self) -> &str {
        match self.name {
            "" => NO_SERVER,
            own => own,
        }
    }

    /// Its name within a text.
    fn shown_name(&self) -> String {
        match self.name {
            "" => NO_SERVER.to_owned(),
            own => name(own),
        }
    }

    fn line(&self) -> String {
        let topics = self.topics().join(", ");
        let head = format!("- {} ({})", self.shown_name(), self.tools.len());
        if topics.is_empty() {
            head
        } else {
            format!("{head}: {topics}")
        }
    }
}

/// With what the tools of each server are about; with the names alone where that is too long; cut
/// where that is too long as well.
fn overview(servers: &[Server<'_>], max_tokens: usize) -> String {
    if servers.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = servers.iter().map(Server::line).collect();
    let whole = format!("Servers and their number of tools:\n{}", lines.join("\n"));
    if budget::count(&whole) <= max_tokens {
        return whole;
    }
    let names: Vec<String> = servers.iter().map(Server::shown_name).collect();
    let mut shown = names.len();
    // Halved, because each try counts the tokens of a whole text.
    loop {
        let more = match names.len() - shown {
            0 => String::new(),
            more => format!(" and {more} more, which {LIST_TOOLS} names"),
        };
        let text = format!("Servers: {}{more}", names[..shown].join(", "));
        if shown == 0 || budget::count(&text) <= max_tokens {
            return text;
        }
        shown /= 2;
    }
}

/// The answer to a call of [`LIST_TOOLS`]: the servers, or all tools of one, from after `after`.
///
/// # Errors
/// A message with the servers there are.
pub fn list(
    tools: &[Arc<Tool>],
    filter: &Filter,
    server: Option<&str>,
    after: Option<&str>,
    max_tokens: usize,
) -> Result<Value, String> {
    let servers = servers(tools, filter);
    let Some(wanted) = server else {
        let after = match after {
            // The client gives back what it was shown.
            Some(NO_SERVER) => Some(""),
            after => after,
        };
        let mut answer = page("servers", counts(&servers), after, max_tokens);
        if answer["next"] == "" {
            answer["next"] = NO_SERVER.into();
        }
        return Ok(answer);
    };
    let mut known = servers.iter();
    let found = known.find(|server| [server.name, server.given_name()].contains(&wanted));
    let Some(server) = found else {
        return Err(unknown_server(wanted, &servers));
    };
    let lines = server.tools.iter().map(|tool| {
        let summary = first_sentence(tool.shown_description());
        (
            tool.id.name(),
            format!("{} — {summary}", tool.id.name()).into(),
        )
    });
    let mut answer = page("tools", lines, after, max_tokens);
    answer["server"] = server.given_name().into();
    answer["total"] = server.tools.len().into();
    Ok(answer)
}

/// A line for each server, by its name.
fn counts<'a>(servers: &'a [Server<'_>]) -> impl Iterator<Item = (&'a str, Value)> {
    servers.iter().map(|server| {
        let (tools, topics) = (server.tools.len(), server.topics().join(", "));
        let line = json!({ "server": server.given_name(), "tools": tools, "about": topics });
        (server.name, line)
    })
}

/// The items that fit into the budget, and behind which one to go on. One item always fits, so
/// that every page leads further.
fn page<'a>(
    key: &str,
    items: impl Iterator<Item = (&'a str, Value)>,
    after: Option<&str>,
    max_tokens: usize,
) -> Value {
    let mut left = max_tokens;
    let mut shown: Vec<Value> = Vec::new();
    let mut last = None;
    let mut answer = Map::new();
    let is_before = |name: &str| matches!(after, Some(after) if name <= after);
    for (name, item) in items.skip_while(|(name, _)| is_before(name)) {
        let tokens = budget::count(&item.to_string()) + 1;
        if tokens > left && !shown.is_empty() {
            answer.insert("next".into(), last.into());
            break;
        }
        left = left.saturating_sub(tokens);
        shown.push(item);
        last = Some(name);
    }
    answer.insert(key.to_owned(), shown.into());
    Value::Object(answer)
}

fn unknown_server(wanted: &str, servers: &[Server<'_>]) -> String {
    let names: Vec<String> = servers
        .iter()
        .take(MAX_NAMED)
        .map(Server::shown_name)
        .collect();
    let wanted = excerpt(wanted, 100);
    format!(
        "no server is called {wanted:?}; there {}: {}",
        if servers.len() == 1 { "is" } else { "are" },
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(ids: &[(&str, &str)]) -> Vec<Arc<Tool>> {
        let tool = |(server, name): &(&str, &str)| Arc::new(Tool::new(server, name).unwrap());
        ids.iter().map(tool).collect()
    }

    #[test]
    fn tools_without_a_server_have_one_word_everywhere() {
        let tools = tools(&[("", "alone"), ("mail", "send")]);
        let filter = Filter::default();
        let text = overview(&servers(&tools, &filter), 1000);
        assert!(text.contains("- (no server) (1)"), "{text}");

        let listed = |server, after, tokens| list(&tools, &filter, server, after, tokens).unwrap();
        let all = listed(None, None, 1000);
        assert_eq!(all["servers"][0]["server"], "(no server)");
        let first = listed(None, None, 1);
        assert_eq!(first["next"], "(no server)");
        let second = listed(None, first["next"].as_str(), 1);
        assert_eq!(second["servers"][0]["server"], "mail");
        for word in ["(no server)", ""] {
            let of_none = listed(Some(word), None, 1000);
            assert_eq!(of_none["server"], "(no server)");
            assert!(of_none["tools"].to_string().contains("alone"));
        }
        let unknown = list(&tools, &filter, Some("chat"), None, 1000).unwrap_err();
        assert!(unknown.contains("(no server), mail"), "{unknown}");
    }
}
