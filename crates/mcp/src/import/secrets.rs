//! Secrets in the settings of clients: they become references to environment variables.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::ImportedServer;
use crate::config::is_url;
use toolscout_gate::gate::redact::{REDACTED, names_secret};

/// Last words of names whose values are secrets, besides the names that the gate knows.
const SECRET_WORDS: [&str; 6] = ["key", "pat", "pass", "pwd", "credentials", "cookie"];
/// How values begin that are secrets whatever their name is: keys of well-known services.
const SECRET_BEGINNINGS: [&str; 16] = [
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "sk-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "AIza",
    "hf_",
    "npm_",
    "ntn_",
    "pypi-",
    "eyJ",
    "https://hooks.slack.com/services/",
];
/// Bytes from which such a value is one.
const MIN_SECRET_BYTES: usize = 16;
/// Flags whose value is a header.
const HEADER_FLAGS: [&str; 2] = ["--header", "-H"];
/// Flags whose value is `NAME=VALUE` of a variable.
const VARIABLE_FLAGS: [&str; 2] = ["-e", "--env"];

/// The variables that entries refer to in place of secrets, and their values.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    values: BTreeMap<String, String>,
    /// Names that other entries refer to, so that no secret of another server gets them.
    taken: BTreeSet<String>,
    of_server: String,
    keeps_secrets: bool,
    /// Whether secrets are masked, and not replaced by references.
    masks: bool,
}

/// The entry for people, with a mark in place of secrets.
pub fn without_secrets(entry: &Value) -> Value {
    let mut entry = entry.clone();
    let mut variables = Variables {
        masks: true,
        ..Variables::default()
    };
    if let Some(fields) = entry.as_object_mut() {
        variables.take_of_entry(fields);
    }
    entry
}

impl Variables {
    /// No variables yet, beside those that these entries refer to. With `keeps_secrets`, only what a
    /// client asks for at its start becomes a reference.
    pub fn beside<'e>(entries: impl Iterator<Item = &'e Value>, keeps_secrets: bool) -> Self {
        let mut taken = BTreeSet::new();
        for entry in entries {
            references(&entry.to_string(), &mut taken);
        }
        Variables {
            taken,
            keeps_secrets,
            ..Variables::default()
        }
    }

    /// Notes the values of variables that entries refer to already.
    pub(super) fn note(&mut self, values: BTreeMap<String, String>) {
        self.values.extend(values);
    }

    /// The variables that have a value, by name. The value of what the client asks for at its start is
    /// its own reference to that (`${input:key}`).
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Replaces the secrets of a server by references.
    pub(super) fn take(&mut self, server: &mut ImportedServer) {
        self.of_server = server.name.clone();
        if let Some(entry) = server.entry.as_object_mut() {
            self.take_of_entry(entry);
        }
    }

    fn take_of_entry(&mut self, entry: &mut Map<String, Value>) {
        // Variables first, since their names are the ones that people know.
        for key in ["env", "headers", "oauth", "args", "url"] {
            match (key, entry.get_mut(key)) {
                ("args", Some(Value::Array(args))) => self.take_of_args(args),
                ("url", Some(Value::String(url))) => self.take_of_url(url),
                (_, Some(Value::Object(fields))) => {
                    for (name, value) in fields {
                        let is_header = key == "headers" && is_secret_header(name);
                        self.take_value(name, value, is_header || is_secret_name(name));
                    }
                }
                _ => {}
            }
        }
    }

    /// The value of a flag that names a secret (`--api-key=VALUE`, `--api-key VALUE`), of a variable
    /// (`-e API_KEY=VALUE`) and of a header (`--header "Authorization: VALUE"`).
    fn take_of_args(&mut self, args: &mut [Value]) {
        let mut flag_before = String::new();
        for arg in args {
            let Some(text) = arg.as_str().map(str::to_owned) else {
                flag_before.clear();
                continue;
            };
            *arg = self.without_secret_of_arg(&text, &flag_before).into();
            flag_before = match text.starts_with('-') && !text.contains('=') {
                true => text,
                false => String::new(),
            };
        }
    }

    fn without_secret_of_arg(&mut self, text: &str, flag_before: &str) -> String {
        if is_url(text) {
            let mut url = text.to_owned();
            self.take_of_url(&mut url);
            return url;
        }
        let is_header = HEADER_FLAGS.contains(&flag_before);
        let is_variable = VARIABLE_FLAGS.contains(&flag_before);
        let between = if is_header { ":" } else { "=" };
        if let Some((name, value)) = text.split_once(between)
            && is_plain_name(name)
            // The command of a shell, which has several words, is no value.
            && (is_header || is_variable || !value.contains(char::is_whitespace))
        {
            let rest = value.trim_start();
            let space = &value[..value.len() - rest.len()];
            let is_secret = is_secret_name(name) || is_header && is_secret_header(name);
            let taken = self.taken_text(name, rest, is_secret);
            return format!("{name}{between}{space}{taken}");
        }
        let is_value = !text.starts_with('-') && !flag_before.is_empty();
        self.taken_text(flag_before, text, is_value && is_secret_name(flag_before))
    }

    /// The parameters of a URL that name secrets, and the password in its address.
    fn take_of_url(&mut self, url: &mut String) {
        // Whoever knows a webhook's address may use it, so all of it is secret.
        let whole = self.taken_text("url", url, has_known_beginning(url));
        if whole != *url {
            *url = whole;
            return;
        }
        let (address, query) = match url.split_once('?') {
            Some((address, query)) => (address.to_owned(), Some(query.to_owned())),
            None => (url.clone(), None),
        };
        let address = match password(&address) {
            Some(secret) => {
                let taken = self.taken_text("password", secret, true);
                address.replacen(&format!(":{secret}@"), &format!(":{taken}@"), 1)
            }
            None => address,
        };
        let Some(query) = query else {
            *url = address;
            return;
        };
        let mut parameters = Vec::new();
        for parameter in query.split('&') {
            parameters.push(match parameter.split_once('=') {
                Some((name, value)) => {
                    let taken = self.taken_text(name, value, is_secret_name(name));
                    format!("{name}={taken}")
                }
                None => parameter.to_owned(),
            });
        }
        *url = format!("{address}?{}", parameters.join("&"));
    }

    fn take_value(&mut self, name: &str, value: &mut Value, is_secret: bool) {
        if let Some(text) = value.as_str() {
            *value = self.taken_text(name, text, is_secret).into();
        }
    }

    /// The value of this name, or a reference in its place if it is a secret and no reference yet.
    fn taken_text(&mut self, name: &str, text: &str, is_secret: bool) -> String {
        if text.contains("${input:") && !self.masks {
            return self.without_inputs(text);
        }
        let is_secret = is_secret && !is_harmless(text)
            || has_known_beginning(text)
            || has_password(text)
            || has_secret_in_json(text);
        if !is_secret || self.keeps_secrets || text.is_empty() || text.contains("${") {
            return text.to_owned();
        }
        // The scheme before a token is not secret: `Bearer`.
        let (scheme, secret) = match text.split_once(' ') {
            Some((scheme, secret)) if is_secret_header(name) => {
                (format!("{scheme} "), secret.trim())
            }
            _ => (String::new(), text),
        };
        if self.masks {
            return format!("{scheme}{REDACTED}");
        }
        let variable = self.variable_for(name, secret);
        let reference = format!("{scheme}${{{variable}}}");
        self.values.insert(variable, secret.to_owned());
        reference
    }

    /// The text with references to variables for what VS Code asks for at its start.
    fn without_inputs(&mut self, text: &str) -> String {
        let mut rest = text;
        let mut replaced = String::new();
        while let Some((before, after)) = rest.split_once("${input:") {
            let Some((input, after)) = after.split_once('}') else {
                break;
            };
            let asked = format!("${{input:{input}}}");
            let variable = self.variable_for(input, &asked);
            replaced.push_str(&format!("{before}${{{variable}}}"));
            self.values.insert(variable, asked);
            rest = after;
        }
        replaced + rest
    }

    /// A variable with this value, named after what the secret is for.
    fn variable_for(&self, name: &str, secret: &str) -> String {
        let own = variable_name(name);
        let server = variable_name(&self.of_server);
        // `Authorization` alone says nothing, and a variable of another server may have that name.
        let is_common = is_secret_header(name) || name.starts_with('-') || own.len() < 6;
        let of_server = match own.starts_with(&format!("{server}_")) {
            true => own.clone(),
            false => format!("{server}_{own}"),
        };
        if !is_common && self.is_free(&own, secret) {
            return own;
        }
        let mut variable = of_server.clone();
        let mut number = 1;
        while !self.is_free(&variable, secret) {
            number += 1;
            variable = format!("{of_server}_{number}");
        }
        variable
    }

    /// Whether a variable may have this value: one that has it already, or one that nobody refers to.
    fn is_free(&self, variable: &str, secret: &str) -> bool {
        match self.values.get(variable) {
            Some(value) => value == secret,
            None => !self.taken.contains(variable),
        }
    }
}

/// The names of the variables that a text refers to: `${NAME}`, `${env:NAME}` and `${NAME:-default}`.
pub fn references(text: &str, names: &mut BTreeSet<String>) {
    for part in text.split("${").skip(1) {
        let name = part.split('}').next().unwrap_or_default();
        let name = name.strip_prefix("env:").unwrap_or(name);
        names.extend(name.split(":-").next().map(str::to_owned));
    }
}

/// Whether what has this name is a secret: a variable, a header, a flag or a parameter.
fn is_secret_name(name: &str) -> bool {
    if names_secret(name) {
        return true;
    }
    // The last word says what it is: `KEY_FILE` is a file.
    let mut words = name.rsplit(|c: char| !c.is_ascii_alphanumeric());
    let last = words.next().unwrap_or_default();
    SECRET_WORDS
        .iter()
        .any(|word| last.eq_ignore_ascii_case(word))
}

/// Whether a header says who asks.
fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("auth") || name == "cookie"
}

/// A number or a switch, as `MAX_TOKENS` and `USE_KEY` have.
fn is_harmless(text: &str) -> bool {
    let is_number = text.len() < 8 && text.parse::<f64>().is_ok();
    is_number || ["true", "false"].contains(&text)
}

fn has_known_beginning(text: &str) -> bool {
    text.len() >= MIN_SECRET_BYTES
        && SECRET_BEGINNINGS
            .iter()
            .any(|beginning| text.starts_with(beginning))
}

/// Whether this is JSON with a field that names a secret, as some servers take their settings.
fn has_secret_in_json(text: &str) -> bool {
    if !text.starts_with('{') {
        return false;
    }
    match serde_json::from_str(text) {
        Ok(value) => has_secret(&value),
        Err(_) => false,
    }
}

fn has_secret(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_secret = is_secret_name(name) || is_secret_header(name);
                if is_secret && matches!(value, Value::String(text) if !text.is_empty()) {
                    return true;
                }
                if has_secret(value) {
                    return true;
                }
            }
            false
        }
        Value::Array(items) => items.iter().any(has_secret),
        _ => false,
    }
}

/// Whether this is the name of a flag, a header or a variable.
fn is_plain_name(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// Whether this is an address with a password, as `postgres://user:password@host/` is.
fn has_password(text: &str) -> bool {
    !is_url(text) && password(text).is_some()
}

fn password(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    let is_given = !password.is_empty() && !password.contains("${");
    is_given.then_some(password)
}

/// The name of an environment variable: `api-key` is `API_KEY`.
fn variable_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.trim_start_matches('-').chars() {
        match c.is_ascii_alphanumeric() {
            true => name.push(c.to_ascii_uppercase()),
            false if name.ends_with('_') || name.is_empty() => {}
            false => name.push('_'),
        }
    }
    let name = name.trim_end_matches('_');
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("KEY_{name}"),
        false => name.to_owned(),
    }
}
