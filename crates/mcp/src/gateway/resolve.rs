//! Resolving the tool and the arguments of a `call_tool` call.

use std::sync::Arc;

use serde_json::Value;
use toolscout_index::{Tool, ToolId};

use crate::Pool;
use toolscout_base::printable::excerpt;
use toolscout_finder::finder::{ToolSearch, model_names};
use toolscout_gate::tools::{Arguments, arguments};

/// Most names suggested when none or several tools match.
const MAX_OFFERED: usize = 5;
/// Most characters of a name in a message.
const SHOWN_CHARS: usize = 100;

/// The arguments of `call_tool`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCall {
    name: String,
    /// The arguments for the tool.
    pub arguments: Arguments,
}

impl NamedCall {
    /// A call of a tool whose arguments are not known.
    pub fn of(name: &str) -> Self {
        NamedCall {
            name: name.to_owned(),
            arguments: Arguments::new(),
        }
    }

    /// Whether it calls a tool by this name.
    pub fn is_of(&self, name: &str) -> bool {
        self.name == name
    }

    /// Reads the arguments of a `call_tool` call.
    ///
    /// # Errors
    /// A message that tells the model how to call.
    pub fn read(given: &Arguments) -> Result<Self, String> {
        let name = given.get("name").and_then(Value::as_str).map(str::trim);
        let name = name.unwrap_or_default().to_owned();
        if name.is_empty() {
            let usage =
                "give `name`, the tool's name as `tool_search` gave it, and its `arguments`";
            return Err(usage.to_owned());
        }
        let arguments = match given.get("arguments") {
            None | Some(Value::Null) => Arguments::new(),
            Some(Value::Object(arguments)) => arguments.clone(),
            // Some models send the object as a string.
            Some(Value::String(text)) => arguments::parse(text)?,
            Some(_) => return Err("`arguments` must be an object".into()),
        };
        Ok(NamedCall { name, arguments })
    }

    /// The tool whose id this name is, found by its key. Where the tools are kept in a store, also the
    /// only one that is shown under this name.
    pub fn by_key(&self, search: &dyn ToolSearch) -> Option<Arc<Tool>> {
        if search.lists_tools() {
            let id = ToolId::parse(&self.name).ok()?;
            // A name without a server may be another tool's as it is shown.
            if id.server().is_empty() {
                return None;
            }
            return search.tool(&id);
        }
        let mut found = self.ids().filter_map(|id| search.tool(&id));
        let first = found.next()?;
        // Of several that are shown so, this one may not be meant.
        match found.next() {
            None => Some(first),
            Some(_) => None,
        }
    }

    /// The ids that this name may stand for. Models see `server__name`, and both may contain `__`.
    fn ids(&self) -> impl Iterator<Item = ToolId> {
        let splits = self.name.match_indices("__").map(|(at, between)| {
            let (server, name) = (&self.name[..at], &self.name[at + between.len()..]);
            ToolId::new(server, name).ok()
        });
        std::iter::once(ToolId::parse(&self.name).ok())
            .chain(splits)
            .flatten()
    }

    /// The tool that is called so: by the name that models see, or else by a bare name that only one
    /// tool has. Looks at every tool's id.
    ///
    /// # Errors
    /// A message with the names that may have been meant.
    pub fn by_name(&self, search: &dyn ToolSearch) -> Result<Arc<Tool>, String> {
        let name = self.name.as_str();
        let mut named = search.named(name);
        // What is shown under this name goes before what only has it as a bare name.
        if named.iter().any(|tool| is_shown_as(tool, name)) {
            named.retain(|tool| is_shown_as(tool, name));
        }
        match named.as_slice() {
            [only] => Ok(Arc::clone(only)),
            [] => {
                let ids = search.ids();
                let nearest =
                    model_names::nearest(name, ids.iter().map(ToolId::as_str), MAX_OFFERED);
                Err(unknown(name, &nearest))
            }
            several => {
                let ids: Vec<&str> = several
                    .iter()
                    .take(MAX_OFFERED)
                    .map(|tool| tool.id.as_str())
                    .collect();
                Err(format!(
                    "several tools are called {name:?}; say which: {}",
                    ids.join(", ")
                ))
            }
        }
    }

    /// Why the tool with this name is kept out of the catalog; `None` where it is not, or may not be
    /// told of.
    pub fn blocked(&self, pool: &Pool, may_tell: impl Fn(&ToolId) -> bool) -> Option<String> {
        for id in self.ids() {
            if may_tell(&id)
                && let Some(reason) = pool.blocked(&id)
            {
                return Some(format!(
                    "{id} is blocked: {reason}; do without it until a person has accepted it"
                ));
            }
        }
        None
    }
}

/// Whether a tool that is called so is shown under the name itself, with its server in it if it has
/// one.
fn is_shown_as(tool: &Tool, name: &str) -> bool {
    tool.id.name() != name || tool.id.server().is_empty()
}

fn unknown(name: &str, nearest: &[&str]) -> String {
    let name = excerpt(name, SHOWN_CHARS);
    match nearest {
        [] => format!("no tool is called {name:?}; find tools with `tool_search`"),
        nearest => format!(
            "no tool is called {name:?}; names like it: {}",
            nearest.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use toolscout_finder::finder::search::doubles::ListedTools;
    use toolscout_index::formats::{distinct_model_name, model_name};

    fn resolve(name: &str) -> Result<String, String> {
        let listed_tools = ListedTools::of(&[
            ("mail/send", ""),
            ("chat/send", ""),
            ("mail/read", ""),
            ("a__b/c", ""),
            ("only__own", ""),
            ("x/y__z", ""),
            ("x__y/z", ""),
            ("x__y__z", ""),
        ]);
        let call = NamedCall {
            name: name.into(),
            arguments: Arguments::new(),
        };
        let found = call.by_key(&listed_tools).ok_or(());
        let found = found.or_else(|()| call.by_name(&listed_tools));
        found.map(|tool| tool.id.to_string())
    }

    #[test]
    fn a_name_is_an_id_a_shown_name_or_a_unique_bare_name() {
        assert!(
            resolve("x__y__z")
                .unwrap_err()
                .contains("say which: x/y__z, x__y/z, x__y__z")
        );
        for (name, id) in [
            ("only__own", "only__own"),
            ("x__y/z", "x__y/z"),
            ("mail/send", "mail/send"),
            ("mail__send", "mail/send"),
            ("read", "mail/read"),
        ] {
            assert_eq!(resolve(name).unwrap(), id);
        }
        // Also under the name that earlier versions showed.
        let id = ToolId::parse("a__b/c").unwrap();
        for shown in [model_name(&id), distinct_model_name(&id)] {
            assert_eq!(resolve(&shown).unwrap(), "a__b/c");
        }
        assert!(
            resolve("send")
                .unwrap_err()
                .contains("say which: mail/send, chat/send")
        );
        assert!(
            resolve("mail/sned")
                .unwrap_err()
                .contains("names like it: mail/send")
        );
        assert!(
            resolve("qqq")
                .unwrap_err()
                .contains("find tools with `tool_search`")
        );
    }

    #[test]
    fn arguments_are_an_object_or_a_string_with_one() {
        let read = |given: Value| NamedCall::read(given.as_object().unwrap());
        assert_eq!(
            read(json!({ "name": " a " })).unwrap().arguments,
            Arguments::new()
        );
        let encoded = read(json!({ "name": "a", "arguments": "{\"n\": 1}" })).unwrap();
        assert_eq!(encoded.arguments["n"], 1);
        assert!(
            read(json!({ "arguments": {} }))
                .unwrap_err()
                .contains("give `name`")
        );
        assert!(
            read(json!({ "name": "a", "arguments": [1] }))
                .unwrap_err()
                .contains("must be an object")
        );
    }
}
