//! Where imported servers go in a file of servers: beside those that are there, or in their place.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{ImportedServer, Variables};

/// The keys of an entry that clients have too. The others are of the owner of the file of servers, who
/// also decides which servers are switched off there.
const OF_CLIENTS: [&str; 9] = [
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "oauth",
    "call_timeout_s",
];

/// Of these, what the owner may have added to a server of a client. It stays, as the entries of `env` do,
/// while the command and the URL are the same.
const ADDED: [&str; 3] = ["cwd", "oauth", "call_timeout_s"];

/// What becomes of an imported server.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The file gets it.
    Added,
    /// The file has it.
    Same,
    /// The file has another one in its place: this entry.
    Updated(Value),
}

/// Gives imported servers their places in a file of servers.
pub struct Placing<'a> {
    /// The servers of the file, by name.
    pub listed: &'a mut Map<String, Value>,
    /// The variables in the place of secrets.
    pub variables: &'a mut Variables,
    /// Whether a server takes the place of another one of its name.
    pub updates: bool,
    /// The names that this import has given.
    pub given: BTreeSet<String>,
}

impl Placing<'_> {
    /// Replaces the secrets of a server by references, and gives it its place: its name in the file, and
    /// what changes there. If the file has another server of that name, which does not make room, the
    /// suffix is added to the name. Values for which the file has references keep these.
    pub fn place(&mut self, server: &mut ImportedServer, suffix: &str) -> (String, Change) {
        let (name, change) = self.find_place(server, suffix);
        self.given.insert(name.clone());
        (name, change)
    }

    fn find_place(&mut self, server: &mut ImportedServer, suffix: &str) -> (String, Change) {
        let suffixed = format!("{}-{suffix}", server.name);
        let mut names = vec![server.name.clone(), suffixed.clone()];
        let mut number = 2;
        while self.listed.contains_key(&names[names.len() - 1]) {
            names.push(format!("{suffixed}-{number}"));
            number += 1;
        }
        for name in &names {
            let mut used = BTreeMap::new();
            if let Some(present) = self.listed.get(name)
                && is_same_server(present, &server.entry, self.updates, &mut used)
            {
                server.entry = present.clone();
                self.variables.note(used);
                return (name.clone(), Change::Same);
            }
        }
        if self.updates
            && let Some(name) = self.outdated(&names)
        {
            let before = self.update(server, &name);
            return (name, Change::Updated(before));
        }
        self.variables.take(server);
        let is_free = |name: &&String| !self.listed.contains_key(*name);
        let name = names.iter().find(is_free).cloned().unwrap_or(suffixed);
        self.listed.insert(name.clone(), server.entry.clone());
        (name, Change::Added)
    }

    /// The server of the file to which this one has been before. One of the client's own name is it
    /// sooner than one of the plain name, which another client may have too.
    fn outdated(&self, names: &[String]) -> Option<String> {
        let is_outdated =
            |name: &&String| self.listed.contains_key(*name) && !self.given.contains(*name);
        names.iter().rfind(is_outdated).cloned()
    }

    /// Puts a server in the place of another one, and returns what was there.
    fn update(&mut self, server: &mut ImportedServer, name: &str) -> Value {
        let before = self.listed.get(name).cloned().unwrap_or_default();
        let mut used = BTreeMap::new();
        // Before references take the place of parts of the URL.
        let keeps_additions = has_same_target(&before, &server.entry);
        keep_references(&before, &mut server.entry, &mut used);
        self.variables.note(used);
        self.variables.take(server);
        // Afterwards, so that what the owner wrote stays as it is.
        if keeps_additions {
            add_additions(&before, &mut server.entry);
        }
        let mut entry = Map::new();
        for (key, value) in before.as_object().into_iter().flatten() {
            let given = server.entry.get(key);
            match OF_CLIENTS.contains(&key.as_str()) {
                true => entry.extend(given.map(|given| (key.clone(), given.clone()))),
                false => {
                    entry.insert(key.clone(), value.clone());
                }
            }
        }
        for (key, given) in server.entry.as_object().into_iter().flatten() {
            if OF_CLIENTS.contains(&key.as_str()) && !entry.contains_key(key) {
                entry.insert(key.clone(), given.clone());
            }
        }
        server.entry = Value::Object(entry);
        self.listed.insert(name.to_owned(), server.entry.clone());
        before
    }
}

/// Whether an entry of a file of servers is this one of a client, but for what the owner has added. Without
/// updates, a server with some of the variables is another one.
fn is_same_server(
    listed: &Value,
    given: &Value,
    updates: bool,
    used: &mut BTreeMap<String, String>,
) -> bool {
    let mut given = of_client(given);
    let may_lack_variables = updates || given.get("env").is_none();
    if may_lack_variables && has_same_target(listed, &given) {
        add_additions(listed, &mut given);
    }
    is_same(&of_client(listed), &given, used)
}

/// Whether two entries start the same command, or reach the same URL.
fn has_same_target(listed: &Value, given: &Value) -> bool {
    let is_same = |key| is_same(&listed[key], &given[key], &mut BTreeMap::new());
    is_same("command") && is_same("url")
}

/// Adds what the owner has added to an entry and a client does not have.
fn add_additions(listed: &Value, given: &mut Value) {
    let (Some(listed), Some(given)) = (listed.as_object(), given.as_object_mut()) else {
        return;
    };
    for key in ADDED {
        if let Some(value) = listed.get(key)
            && !given.contains_key(key)
        {
            given.insert(key.to_owned(), value.clone());
        }
    }
    let variables = listed.get("env").and_then(Value::as_object);
    for (name, value) in variables.into_iter().flatten() {
        let own = given.entry("env").or_insert_with(|| Map::new().into());
        if let Some(own) = own.as_object_mut()
            && !own.contains_key(name)
        {
            own.insert(name.clone(), value.clone());
        }
    }
}

/// The part of an entry that clients have too.
fn of_client(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.retain(|key, _| OF_CLIENTS.contains(&key.as_str()));
    }
    entry
}

/// Puts the references of an entry of a file of servers in the place of the values that they stand for.
fn keep_references(listed: &Value, given: &mut Value, used: &mut BTreeMap<String, String>) {
    match (listed, given) {
        (Value::Object(listed), Value::Object(given)) => {
            for (name, given) in given {
                if let Some(listed) = listed.get(name) {
                    keep_references(listed, given, used);
                }
            }
        }
        (Value::String(listed), Value::String(given)) => {
            let mut of_text = BTreeMap::new();
            if listed.contains("${") && is_same_text(listed, given, &mut of_text) {
                given.clone_from(listed);
                used.extend(of_text);
            }
        }
        // Of a list it is not known which element has become which.
        _ => {}
    }
}

/// Whether an entry of a file of servers is this one, but for references in the place of values, which
/// are added to `used`.
fn is_same(listed: &Value, given: &Value, used: &mut BTreeMap<String, String>) -> bool {
    match (listed, given) {
        (Value::Object(listed), Value::Object(given)) if listed.len() == given.len() => {
            for (name, listed) in listed {
                match given.get(name) {
                    Some(given) if is_same(listed, given, used) => {}
                    _ => return false,
                }
            }
            true
        }
        (Value::Array(listed), Value::Array(given)) if listed.len() == given.len() => {
            for (listed, given) in listed.iter().zip(given) {
                if !is_same(listed, given, used) {
                    return false;
                }
            }
            true
        }
        (Value::String(listed), Value::String(given)) => is_same_text(listed, given, used),
        (listed, given) => listed == given,
    }
}

/// The same for texts: one reference may stand for any part of the given one.
fn is_same_text(listed: &str, given: &str, used: &mut BTreeMap<String, String>) -> bool {
    if listed == given {
        return true;
    }
    let Some((before, rest)) = listed.split_once("${") else {
        return false;
    };
    let Some((variable, after)) = rest.split_once('}') else {
        return false;
    };
    let Some(given) = given.strip_prefix(before) else {
        return false;
    };
    if after.contains("${") {
        // Of several references it is not clear where one ends, but at what stands between them.
        let between = after.split("${").next().unwrap_or_default();
        if between.is_empty() {
            return false;
        }
        let Some(at) = given.find(between) else {
            return false;
        };
        used.insert(variable.to_owned(), given[..at].to_owned());
        return is_same_text(after, &given[at..], used);
    }
    let Some(value) = given.strip_suffix(after) else {
        return false;
    };
    used.insert(variable.to_owned(), value.to_owned());
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(entry: Value) -> ImportedServer {
        ImportedServer {
            name: "a".into(),
            entry,
            unknown_keys: Vec::new(),
        }
    }

    /// Places servers of a client, one after the other.
    fn placed(listed: &mut Map<String, Value>, entries: &[Value]) -> Vec<(String, Change)> {
        let mut variables = Variables::beside(listed.values(), false);
        let mut placing = Placing {
            listed,
            variables: &mut variables,
            updates: true,
            given: BTreeSet::new(),
        };
        let mut placed = Vec::new();
        for entry in entries {
            placed.push(placing.place(&mut server(entry.clone()), "cursor"));
        }
        placed
    }

    #[test]
    fn an_update_keeps_what_the_owner_has_and_the_references() {
        let before = json!({
            "command": "old", "cwd": "/old", "env": { "A_KEY": "${A_KEY}", "MODE": "ro" },
            "disabled": true, "tools": { "x": { "hide": true } },
        });
        let mut listed = Map::from_iter([("a".to_owned(), before.clone())]);
        let entry = json!({ "command": "new", "args": ["-v"], "env": { "A_KEY": "k-1", "B_TOKEN": "k-2" } });
        let changes = placed(&mut listed, std::slice::from_ref(&entry));
        assert_eq!(changes, [("a".to_owned(), Change::Updated(before))]);
        let after = json!({
            "command": "new", "env": { "A_KEY": "${A_KEY}", "B_TOKEN": "${B_TOKEN}" },
            "disabled": true, "tools": { "x": { "hide": true } }, "args": ["-v"],
        });
        assert_eq!(listed["a"], after);
        // Once more there is nothing to do.
        let changes = placed(&mut listed, &[entry]);
        assert_eq!(changes, [("a".to_owned(), Change::Same)]);
    }

    #[test]
    fn an_update_keeps_what_the_owner_has_added_to_the_same_command() {
        let before = json!({
            "command": "run", "args": ["-a"], "cwd": "/own", "call_timeout_s": 9,
            "env": { "A_KEY": "plain", "MODE": "ro" },
        });
        let mut listed = Map::from_iter([("a".to_owned(), before.clone())]);
        let same = json!({ "command": "run", "args": ["-a"], "env": { "MODE": "ro" } });
        let changes = placed(&mut listed, &[same]);
        assert_eq!(changes, [("a".to_owned(), Change::Same)]);
        let other = json!({ "command": "run", "args": ["-b"], "env": { "MODE": "rw" } });
        placed(&mut listed, &[other]);
        let after = json!({
            "command": "run", "args": ["-b"], "cwd": "/own", "call_timeout_s": 9,
            "env": { "A_KEY": "plain", "MODE": "rw" },
        });
        assert_eq!(listed["a"], after);
        // Of another command it is not known whether it needs them.
        placed(&mut listed, &[json!({ "command": "other" })]);
        assert_eq!(listed["a"], json!({ "command": "other" }));
    }

    #[test]
    fn two_clients_do_not_take_the_place_of_each_other() {
        let entry = |command: &str| json!({ "command": command });
        let mut listed = Map::new();
        let first = placed(&mut listed, &[entry("one"), entry("two")]);
        let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "a-cursor"]);
        let changes = placed(&mut listed, &[entry("one"), entry("three")]);
        assert_eq!(changes[0], ("a".to_owned(), Change::Same));
        let updated = Change::Updated(entry("two"));
        assert_eq!(changes[1], ("a-cursor".to_owned(), updated));
    }
}
