//! What a client's model is told about the servers: which there are, and which tools one has.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use toolscout_index::formats::first_sentence;
use toolscout_index::{Filter, Tool, Version, text};

use crate::budget;
use crate::finder::ToolSearch;
use crate::printable::{excerpt, name};

use super::own_tools::LIST_TOOLS;

/// Words that say what the tools of a server are about.
const TOPICS: usize = 5;
/// Servers named in an error message.
const MAX_NAMED: usize = 20;

/// The servers of a catalog, computed anew when the catalog has changed.
#[derive(Default)]
pub struct Overview(Mutex<Option<(Version, Arc<str>)>>);

impl Overview {
    /// A line for each server, within a token budget.
    pub fn of(&self, search: &dyn ToolSearch, filter: &Filter, max_tokens: usize) -> Arc<str> {
        let version = search.version();
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    for tool in tools.iter().filter(|tool| filter.accepts(tool)) {
        by_name.entry(tool.id.server()).or_default().push(tool);
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
        topics.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
        topics
            .into_iter()
            .take(TOPICS)
            .map(|(word, _)| word)
            .collect()
    }

    fn shown_name(&self) -> String {
        match self.name {
            "" => "(no server)".to_owned(),
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
        let counts = servers.iter().map(|server| {
            let topics = server.topics().join(", ");
            let line =
                json!({ "server": server.name, "tools": server.tools.len(), "about": topics });
            (server.name, line)
        });
        return Ok(page("servers", counts, after, max_tokens));
    };
    let Some(server) = servers.iter().find(|server| server.name == wanted) else {
        return Err(unknown_server(wanted, &servers));
    };
    let lines = server.tools.iter().map(|tool| {
        let summary = first_sentence(&tool.description);
        (
            tool.id.name(),
            format!("{} — {summary}", tool.id.name()).into(),
        )
    });
    let mut answer = page("tools", lines, after, max_tokens);
    answer["server"] = wanted.into();
    answer["total"] = server.tools.len().into();
    Ok(answer)
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
    for (name, item) in items.skip_while(|(name, _)| after.is_some_and(|after| *name <= after)) {
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
