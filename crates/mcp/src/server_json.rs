//! Servers as the public MCP registry describes them (`server.json`), turned into entries of an
//! `mcpServers` file. Does no I/O.
//!
//! What a description says is a stranger's: it may not read the environment, so `${` in it is
//! refused, and a reference to a variable is written only for a value that it leaves open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use toolscout_base::printable::{excerpt, line};

/// Most characters of a description in messages.
const QUOTED_CHARS: usize = 200;
/// Most characters of a server's short name, and of the variable of a value that is left open.
const MAX_NAME_CHARS: usize = 64;

/// Why a description does not become an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerJsonError {
    /// It has another format.
    #[error(
        "this is no server.json of the MCP registry, nor a list of them: {reason}; it has a `name` and `packages` or `remotes`"
    )]
    Malformed {
        /// Where and why.
        reason: String,
    },
    /// A list has several servers.
    #[error("there are {} servers, as {names}; choose one with --server NAME", .count)]
    Several {
        /// How many there are.
        count: usize,
        /// Some of their names.
        names: String,
    },
    /// A list does not have the server.
    #[error("there is no server {wanted:?}; there are {names}")]
    Unknown {
        /// The name that was asked for.
        wanted: String,
        /// Some of the names that there are.
        names: String,
    },
    /// None of the ways to run it is possible here.
    #[error("server {server:?} cannot be run here: {}", reasons.join("; "))]
    NotRunnable {
        /// Its name.
        server: String,
        /// Why, for each of its packages and remotes.
        reasons: Vec<String>,
    },
}

/// A server as the registry describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    packages: Vec<Package>,
    #[serde(default)]
    remotes: Vec<Remote>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Package {
    #[serde(alias = "registry_type", alias = "registry_name")]
    registry_type: String,
    #[serde(alias = "name")]
    identifier: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default, alias = "runtime_hint")]
    runtime_hint: Option<String>,
    #[serde(default)]
    transport: PackageTransport,
    #[serde(default, alias = "runtime_arguments")]
    runtime_arguments: Vec<Argument>,
    #[serde(default, alias = "package_arguments")]
    package_arguments: Vec<Argument>,
    #[serde(default, alias = "environment_variables")]
    environment_variables: Vec<Named>,
    #[serde(default, alias = "file_sha256")]
    file_sha256: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct PackageTransport {
    #[serde(rename = "type")]
    kind: String,
}

impl Default for PackageTransport {
    fn default() -> Self {
        PackageTransport {
            kind: "stdio".into(),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Remote {
    #[serde(rename = "type", alias = "transport_type")]
    kind: String,
    url: String,
    #[serde(default)]
    variables: BTreeMap<String, Input>,
    #[serde(default)]
    headers: Vec<Named>,
}

/// A value that the description gives, or leaves to the person.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Input {
    description: String,
    #[serde(alias = "is_required")]
    is_required: bool,
    #[serde(alias = "is_secret")]
    is_secret: bool,
    format: String,
    value: Option<String>,
    default: Option<Value>,
    choices: Vec<String>,
    variables: BTreeMap<String, Input>,
}

/// A header or an environment variable.
#[derive(Clone, Debug, Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    input: Input,
}

#[derive(Clone, Debug, Deserialize)]
struct Argument {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, rename = "valueHint", alias = "value_hint")]
    value_hint: Option<String>,
    #[serde(flatten)]
    input: Input,
}

impl Argument {
    /// Whether it is a name alone, as `-y`, with no word of a value.
    fn is_bare(&self) -> bool {
        let input = &self.input;
        let has_value = input.value.is_some() || input.default.is_some();
        let wants_value = self.value_hint.is_some()
            || input.is_required
            || !input.description.is_empty()
            || !input.format.is_empty();
        self.kind == "named" && !has_value && !wants_value
    }
}

/// An environment variable that a person has to set, or may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenValue {
    /// The variable.
    pub variable: String,
    /// What it is for.
    pub description: String,
    /// Whether the server cannot do without.
    pub required: bool,
    /// Whether it is a secret.
    pub secret: bool,
}

/// The entry of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The name that it has in the registry.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is for.
    pub description: String,
    /// What an `mcpServers` file has of it.
    pub entry: Value,
    /// The variables that it takes from the environment.
    pub open: Vec<OpenValue>,
    /// The SHA-256 of the package's file, if the description has one.
    pub sha256: Option<String>,
    /// Whether each start runs the same version. Always true for a remote server, which chooses itself.
    pub is_pinned: bool,
}

impl Import {
    /// A short name, of letters, digits, `-` and `_`.
    pub fn short_name(&self) -> String {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        let mut short = String::new();
        for c in last.chars().take(MAX_NAME_CHARS) {
            let is_legal = c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            short.push(if is_legal { c } else { '-' });
        }
        short
    }
}

/// Chooses a server of a document: a description, or a list of them as the registry answers it.
///
/// # Errors
/// [`ServerJsonError`].
pub fn read(document: &[u8], wanted: Option<&str>) -> Result<Description, ServerJsonError> {
    let document: Value = serde_json::from_slice(document).map_err(malformed)?;
    let listed = match document.get("servers") {
        Some(Value::Array(servers)) => servers.clone(),
        _ => vec![document],
    };
    let mut chosen = Vec::new();
    for item in &listed {
        let description = item.get("server").unwrap_or(item);
        let name = description.get("name").and_then(Value::as_str);
        let Some(name) = name else {
            let reason = "a server has no `name`".into();
            return Err(ServerJsonError::Malformed { reason });
        };
        if let Some(wanted) = wanted
            && !is_named(name, wanted)
        {
            continue;
        }
        chosen.push((name, description, is_latest(item)));
    }
    let all = listed
        .iter()
        .filter_map(|item| item.get("server").unwrap_or(item).get("name")?.as_str());
    let Some(&(first, ..)) = chosen.first() else {
        return Err(ServerJsonError::Unknown {
            wanted: wanted.unwrap_or_default().to_owned(),
            names: some(all),
        });
    };
    // Several versions of one server are one server.
    if chosen.iter().any(|(name, ..)| *name != first) {
        return Err(ServerJsonError::Several {
            count: chosen.len(),
            names: some(chosen.iter().map(|(name, ..)| *name)),
        });
    }
    let latest = chosen.iter().find(|(.., is_latest)| *is_latest);
    let (_, description, _) = latest.unwrap_or(&chosen[0]);
    Description::deserialize(*description).map_err(malformed)
}

fn malformed(error: serde_json::Error) -> ServerJsonError {
    ServerJsonError::Malformed {
        reason: error.to_string(),
    }
}

fn is_named(name: &str, wanted: &str) -> bool {
    name == wanted || name.rsplit('/').next() == Some(wanted)
}

pub(crate) fn is_latest(item: &Value) -> bool {
    // Each registry writes under a key of its own.
    let meta = item.get("_meta").and_then(Value::as_object);
    meta.into_iter()
        .flat_map(Map::values)
        .any(|of_registry| of_registry.get("isLatest") == Some(&Value::Bool(true)))
}

fn some<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names
        .take(6)
        .map(|name| line(&excerpt(name, 100)))
        .collect();
    match names.as_slice() {
        [] => "none".into(),
        [five @ .., _] if five.len() == 5 => format!("{}, …", five.join(", ")),
        names => names.join(", "),
    }
}

impl Description {
    /// What it can be taken from, as `only` of [`import`](Self::import) names it.
    fn kinds(&self) -> Vec<&str> {
        let mut kinds = Vec::new();
        for package in &self.packages {
            let kind = package.registry_type.as_str();
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if !self.remotes.is_empty() {
            kinds.push("remote");
        }
        kinds
    }

    /// The entry of this server: its first package that can be run here, or else its first remote.
    /// `only` names the kind to take: `remote`, or the type of a package's registry.
    ///
    /// # Errors
    /// [`ServerJsonError::NotRunnable`].
    pub fn import(
        &self,
        only: Option<&str>,
        is_installed: &dyn Fn(&str) -> bool,
    ) -> Result<Import, ServerJsonError> {
        let mut reasons = Vec::new();
        let is_wanted = |kind: &str| only.is_none() || only == Some(kind);
        for package in &self.packages {
            if !is_wanted(&package.registry_type) {
                continue;
            }
            match package.entry(is_installed) {
                Ok(written) => {
                    return Ok(Import {
                        sha256: package.sha256(),
                        is_pinned: package.is_pinned(),
                        ..self.imported(written)
                    });
                }
                Err(reason) => reasons.push(reason),
            }
        }
        for remote in &self.remotes {
            if !is_wanted("remote") {
                continue;
            }
            match remote.entry() {
                Ok(written) => return Ok(self.imported(written)),
                Err(reason) => reasons.push(reason),
            }
        }
        // No package and no remote was tried.
        if reasons.is_empty() {
            reasons.push(match only {
                Some(only) => format!(
                    "it offers no {only:?}, but {}",
                    some(self.kinds().into_iter())
                ),
                None => "it names no packages and no remotes".into(),
            });
        }
        Err(ServerJsonError::NotRunnable {
            server: line(&excerpt(&self.name, QUOTED_CHARS)),
            reasons,
        })
    }

    fn imported(&self, (entry, open): (Value, Vec<OpenValue>)) -> Import {
        Import {
            name: self.name.clone(),
            version: line(&excerpt(&self.version, QUOTED_CHARS)),
            description: line(&excerpt(&self.description, QUOTED_CHARS)),
            entry,
            open,
            sha256: None,
            is_pinned: true,
        }
    }
}

type Entry = Result<(Value, Vec<OpenValue>), String>;

/// Programs that run a package, the preferred one first, and what brings them.
type Runners = (&'static [&'static str], &'static str);

impl Package {
    /// The hash of its file, if it is one.
    fn sha256(&self) -> Option<String> {
        let hash = self.file_sha256.as_deref()?;
        let is_hash = hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit());
        is_hash.then(|| hash.to_ascii_lowercase())
    }

    fn is_pinned(&self) -> bool {
        let last = self.identifier.rsplit('/').next().unwrap_or_default();
        let version = self.version.as_deref().unwrap_or_default();
        // As `image` writes it: a digest or a tag of the name comes before the version.
        let version = match last.split_once('@').or(last.split_once(':')) {
            Some((_, of_name)) if self.registry_type == "oci" => of_name,
            _ => version,
        };
        !matches!(version, "" | "latest")
    }

    fn runners(&self) -> Result<Runners, String> {
        let hint = self.runtime_hint.as_deref();
        Ok(match self.registry_type.as_str() {
            "npm" if hint == Some("bunx") => (&["bunx", "npx"], "Bun, or Node.js for npx"),
            "npm" => (&["npx", "bunx"], "Node.js, which brings npx"),
            "pypi" => (&["uvx"], "uv, which brings uvx"),
            "oci" if hint == Some("podman") => (&["podman", "docker"], "Podman or Docker"),
            "oci" => (&["docker", "podman"], "Docker or Podman"),
            other => {
                return Err(format!(
                    "packages of type {other:?} are not run; install it by hand, and name its command with --mcp-server"
                ));
            }
        })
    }

    fn entry(&self, is_installed: &dyn Fn(&str) -> bool) -> Entry {
        let kind = self.registry_type.as_str();
        let identifier = literal(&self.identifier)?;
        if identifier.starts_with('-') || identifier.trim().is_empty() {
            return Err(format!("{identifier:?} is no name of a package"));
        }
        if self.transport.kind != "stdio" {
            return Err(format!(
                "its {kind} package speaks {:?} and not stdio; start it yourself, and name its URL with --mcp-server",
                self.transport.kind
            ));
        }
        let version = match self.version.as_deref().map(literal).transpose()? {
            // Without a version the runner takes the latest one.
            Some("" | "latest") => None,
            version => version,
        };
        let (runners, install) = self.runners()?;
        let Some(runner) = runners.iter().find(|runner| is_installed(runner)) else {
            return Err(format!(
                "its {kind} package needs {}, which is not installed; install {install}",
                runners[0]
            ));
        };
        let mut open = OpenValues::default();
        let mut env = Map::new();
        for variable in &self.environment_variables {
            let name = literal(&variable.name)?;
            if let Some(value) = open.value(&variable.input, name)? {
                env.insert(name.to_owned(), value.into());
            }
        }
        let mut args = Vec::new();
        let of_runtime = open.arguments(&self.runtime_arguments)?;
        match kind {
            "npm" => {
                // Otherwise npx asks before it installs, and nobody is there to answer.
                if *runner == "npx" {
                    args.push("-y".to_owned());
                }
                args.extend(of_runtime.into_iter().filter(|arg| arg != "-y"));
                args.push(versioned(identifier, "@", version));
            }
            "pypi" => {
                args.extend(of_runtime);
                args.push(versioned(identifier, "==", version));
            }
            _ => {
                let fixed = ["run", "-i", "--rm"];
                args.extend(fixed.map(str::to_owned));
                // By name alone: a container gets no variables of its own accord.
                for name in env.keys() {
                    args.extend(["-e".to_owned(), name.clone()]);
                }
                for arg in of_runtime {
                    if !fixed.contains(&arg.as_str()) {
                        args.push(arg);
                    }
                }
                args.push(image(identifier, version));
            }
        }
        args.extend(open.arguments(&self.package_arguments)?);
        let mut entry = json!({ "command": runner, "args": args });
        if !env.is_empty() {
            entry["env"] = env.into();
        }
        Ok((entry, open.0))
    }
}

fn versioned(identifier: &str, separator: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("{identifier}{separator}{version}"),
        None => identifier.to_owned(),
    }
}

/// An image with its version, unless it has one already.
fn image(identifier: &str, version: Option<&str>) -> String {
    let last = identifier.rsplit('/').next().unwrap_or_default();
    match version {
        Some(version) if !last.contains([':', '@']) => format!("{identifier}:{version}"),
        _ => identifier.to_owned(),
    }
}

impl Remote {
    fn entry(&self) -> Entry {
        let kind = match self.kind.as_str() {
            "streamable-http" | "streamable" | "http" => "http",
            "sse" => "sse",
            other => return Err(format!("its remote has the unknown type {other:?}")),
        };
        let mut open = OpenValues::default();
        let url = open.filled(&self.url, &self.variables)?;
        if !super::config::is_url(&url) {
            return Err(format!(
                "the URL {url:?} of its remote is neither http nor https"
            ));
        }
        let mut headers = Map::new();
        for header in &self.headers {
            let name = literal(&header.name)?;
            if let Some(value) = open.value(&header.input, name)? {
                headers.insert(name.to_owned(), value.into());
            }
        }
        let mut entry = json!({ "type": kind, "url": url });
        if !headers.is_empty() {
            entry["headers"] = headers.into();
        }
        Ok((entry, open.0))
    }
}

/// The text of a description, if it is no reference to the environment.
fn literal(text: &str) -> Result<&str, String> {
    if text.contains("${") || text.chars().any(char::is_control) {
        let text = excerpt(text, QUOTED_CHARS);
        return Err(format!(
            "{text:?} in its description would be read as a reference to your environment"
        ));
    }
    Ok(text)
}

/// The values that are left to the person, as they are met.
#[derive(Default)]
struct OpenValues(Vec<OpenValue>);

impl OpenValues {
    fn arguments(&mut self, arguments: &[Argument]) -> Result<Vec<String>, String> {
        let mut words = Vec::new();
        for argument in arguments {
            let name = argument.name.as_deref().map(literal).transpose()?;
            if let Some(name) = name
                && argument.is_bare()
            {
                words.push(name.to_owned());
                continue;
            }
            let hint = argument.value_hint.as_deref();
            let value = self.value(&argument.input, hint.or(name).unwrap_or("argument"))?;
            if argument.kind != "named" {
                words.extend(value);
                continue;
            }
            let name = name.ok_or("one of its named arguments has no name")?;
            // A switch that is on has no value, and one that is off is left out.
            let is_switch = argument.input.format == "boolean";
            match value.as_deref() {
                Some("false") if is_switch => {}
                Some(_) if is_switch => words.push(name.to_owned()),
                Some(value) => words.extend([name.to_owned(), value.to_owned()]),
                None => {}
            }
        }
        Ok(words)
    }

    /// The value, or a reference to a variable of a similar name where it is left open. `None` for
    /// one that may be left out.
    fn value(&mut self, input: &Input, name: &str) -> Result<Option<String>, String> {
        if let Some(value) = &input.value {
            return self.filled(value, &input.variables).map(Some);
        }
        match &input.default {
            Some(Value::String(text)) => return Ok(Some(literal(text)?.to_owned())),
            Some(other @ (Value::Number(_) | Value::Bool(_))) => {
                return Ok(Some(other.to_string()));
            }
            _ => {}
        }
        let reference = self.leave_open(input, name);
        Ok(input.is_required.then_some(reference))
    }

    /// A text in which `{name}` stands for one of these variables.
    fn filled(
        &mut self,
        text: &str,
        variables: &BTreeMap<String, Input>,
    ) -> Result<String, String> {
        let (mut filled, mut rest) = (String::new(), literal(text)?);
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            if let Some((name, end)) = after.split_once('}')
                && let Some(input) = variables.get(name)
            {
                // What stands within a text cannot be left out.
                let input = Input {
                    is_required: true,
                    ..input.clone()
                };
                filled.extend(self.value(&input, name)?);
                rest = end;
            } else {
                // A brace of the text itself, as JSON in an argument has it.
                filled.push('{');
                rest = after;
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn leave_open(&mut self, input: &Input, name: &str) -> String {
        let variable = variable(name);
        let mut description = excerpt(&line(&input.description), QUOTED_CHARS);
        if !input.choices.is_empty() {
            let choices = excerpt(&line(&input.choices.join(", ")), QUOTED_CHARS);
            description = format!("{description} (one of {choices})");
        }
        let reference = format!("${{{variable}}}");
        // Several places may take the same variable, which is named once.
        if !self.0.iter().any(|open| open.variable == variable) {
            self.0.push(OpenValue {
                variable,
                description: description.trim().to_owned(),
                required: input.is_required,
                secret: input.is_secret,
            });
        }
        reference
    }
}

/// The name of an environment variable: `X-Api-Key` becomes `X_API_KEY`.
fn variable(name: &str) -> String {
    let mut variable = String::new();
    for c in name.trim_start_matches('-').chars().take(MAX_NAME_CHARS) {
        variable.push(match c.is_ascii_alphanumeric() {
            true => c.to_ascii_uppercase(),
            false => '_',
        });
    }
    // A variable cannot begin with a digit.
    if !variable.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        variable.insert(0, '_');
    }
    variable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import(document: &Value, installed: &[&str]) -> Result<Import, String> {
        let described = read(document.to_string().as_bytes(), None);
        described
            .and_then(|found| found.import(None, &|program| installed.contains(&program)))
            .map_err(|error| error.to_string())
    }

    fn package(kind: &str, more: Value) -> Value {
        let mut package = json!({ "registryType": kind, "identifier": "@ada/umbrellas", "version": "1.2.0",
            "transport": { "type": "stdio" } });
        for (name, value) in more.as_object().unwrap() {
            package[name] = value.clone();
        }
        json!({ "name": "io.example.ada/umbrellas", "description": "Lends umbrellas.", "version": "1.2.0",
            "packages": [package] })
    }

    #[test]
    fn packages_become_commands_with_their_arguments_and_variables() {
        let document = package(
            "npm",
            json!({
                "runtimeHint": "npx",
                "runtimeArguments": [{ "type": "named", "name": "-y" }],
                "packageArguments": [
                    { "type": "positional", "value": "lend" },
                    { "type": "positional", "valueHint": "shop-folder", "isRequired": true, "description": "Where" },
                    { "type": "positional", "valueHint": "left_out" },
                    { "type": "named", "name": "--size", "default": 3 },
                    { "type": "named", "name": "--wet", "format": "boolean", "value": "true" },
                    { "type": "named", "name": "--dry", "format": "boolean", "default": "false" },
                    { "type": "named", "name": "--at", "value": "{town}/{\"a\"}",
                      "variables": { "town": { "description": "The town", "choices": ["Rye", "Ely"] } } },
                ],
                "environmentVariables": [
                    { "name": "UMBRELLA_KEY", "isRequired": true, "isSecret": true, "description": "The key" },
                    { "name": "COLOUR", "default": "black" },
                    { "name": "NICK" },
                ],
            }),
        );
        let import = import(&document, &["npx"]).unwrap();
        assert_eq!(
            import.entry,
            json!({
                "command": "npx",
                "args": ["-y", "@ada/umbrellas@1.2.0", "lend", "${SHOP_FOLDER}", "--size", "3", "--wet", "--at",
                    "${TOWN}/{\"a\"}"],
                "env": { "UMBRELLA_KEY": "${UMBRELLA_KEY}", "COLOUR": "black" },
            })
        );
        let open: Vec<(&str, bool, bool)> = import
            .open
            .iter()
            .map(|open| (open.variable.as_str(), open.required, open.secret))
            .collect();
        assert_eq!(
            open,
            [
                ("UMBRELLA_KEY", true, true),
                ("NICK", false, false),
                ("SHOP_FOLDER", true, false),
                ("LEFT_OUT", false, false),
                ("TOWN", true, false),
            ]
        );
        assert!(import.open[4].description.contains("one of Rye, Ely"));
        assert_eq!(import.short_name(), "umbrellas");
    }

    #[test]
    fn each_registry_has_its_runner() {
        let pypi = package("pypi", json!({ "identifier": "umbrellas" }));
        assert_eq!(
            import(&pypi, &["uvx"]).unwrap().entry,
            json!({ "command": "uvx", "args": ["umbrellas==1.2.0"] })
        );
        let oci = package(
            "oci",
            json!({
                "identifier": "images.example/ada/umbrellas",
                "environmentVariables": [{ "name": "KEY", "isRequired": true }],
                "runtimeArguments": [{ "type": "named", "name": "--network", "value": "none" }],
            }),
        );
        assert_eq!(
            import(&oci, &["podman"]).unwrap().entry,
            json!({
                "command": "podman",
                "args": ["run", "-i", "--rm", "-e", "KEY", "--network", "none", "images.example/ada/umbrellas:1.2.0"],
                "env": { "KEY": "${KEY}" },
            })
        );
        for (document, expected) in [
            (
                oci,
                "needs docker, which is not installed; install Docker or Podman",
            ),
            (pypi, "install uv"),
            (
                package("mcpb", json!({})),
                "packages of type \"mcpb\" are not run",
            ),
            (
                package("npm", json!({ "transport": { "type": "sse" } })),
                "not stdio; start it yourself",
            ),
            (json!({ "name": "a/b" }), "no packages and no remotes"),
        ] {
            let refused = import(&document, &[]).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn remotes_become_urls_with_headers() {
        let document = json!({
            "name": "com.example/weather", "packages": [{ "registryType": "oci", "identifier": "w" }],
            "remotes": [{
                "type": "sse", "url": "https://{tenant}.example.com/sse",
                "variables": { "tenant": { "default": "eu" } },
                "headers": [
                    { "name": "Authorization", "value": "Bearer {api_key}", "isRequired": true,
                      "variables": { "api_key": { "isSecret": true } } },
                    { "name": "X-Units", "isRequired": true },
                    { "name": "X-Trace" },
                ],
            }],
        });
        let remote = import(&document, &[]).unwrap();
        assert_eq!(
            remote.entry,
            json!({
                "type": "sse", "url": "https://eu.example.com/sse",
                "headers": { "Authorization": "Bearer ${API_KEY}", "X-Units": "${X_UNITS}" },
            })
        );
        // What can be run here comes first.
        assert_eq!(
            import(&document, &["docker"]).unwrap().entry["command"],
            "docker"
        );
    }

    #[test]
    fn a_description_cannot_read_the_environment_or_pass_options() {
        let remote = |remote: Value| json!({ "name": "a/b", "remotes": [remote] });
        for document in [
            remote(json!({ "type": "sse", "url": "https://a.example/?k=${HOME}" })),
            remote(json!({ "type": "sse", "url": "https://a.example/",
                "headers": [{ "name": "X", "value": "${AWS_SECRET_ACCESS_KEY}" }] })),
            remote(json!({ "type": "sse", "url": "https://a.example/",
                "headers": [{ "name": "X", "default": "${HOME}" }] })),
            package(
                "npm",
                json!({ "packageArguments": [{ "type": "positional", "value": "${HOME}" }] }),
            ),
            package("npm", json!({ "version": "1${HOME}" })),
        ] {
            let refused = import(&document, &["npx"]).unwrap_err();
            assert!(
                refused.contains("reference to your environment"),
                "{refused}"
            );
        }
        let option = package("npm", json!({ "identifier": "--registry=x" }));
        assert!(
            import(&option, &["npx"])
                .unwrap_err()
                .contains("no name of a package")
        );
        let file = remote(json!({ "type": "sse", "url": "file:///etc/passwd" }));
        assert!(
            import(&file, &[])
                .unwrap_err()
                .contains("neither http nor https")
        );
    }

    #[test]
    fn an_image_is_pinned_by_its_tag_or_digest_or_version_but_not_by_latest() {
        for (kind, identifier, version, expected) in [
            ("oci", "ghcr.io:443/a/b", None, false),
            ("oci", "ghcr.io/a/b:latest", None, false),
            ("oci", "ghcr.io/a/b:latest", Some("1.2"), false),
            ("oci", "ghcr.io/a/b:1.2", None, true),
            ("oci", "ghcr.io/a/b@sha256:ab", None, true),
            ("oci", "ghcr.io/a/b:latest@sha256:ab", None, true),
            ("oci", "ghcr.io/a/b", Some("1.2"), true),
            ("npm", "@a/b", Some("latest"), false),
            ("npm", "@a/b", Some("1.2"), true),
        ] {
            let package =
                json!({ "registryType": kind, "identifier": identifier, "version": version });
            let package: Package = serde_json::from_value(package).unwrap();
            assert_eq!(package.is_pinned(), expected, "{identifier} {version:?}");
        }
    }

    #[test]
    fn one_of_a_list_is_chosen_in_its_latest_version() {
        let item = |name: &str, version: &str, latest: bool| {
            json!({ "server": { "name": name, "version": version,
                "remotes": [{ "type": "streamable-http", "url": "https://a.example/mcp" }] },
                "_meta": { "io.modelcontextprotocol.registry/official": { "isLatest": latest } } })
        };
        let list = json!({ "servers": [
            item("a.example/one", "1", false), item("a.example/one", "2", true), item("a.example/two", "1", true),
        ] })
        .to_string();
        let found = |wanted| {
            read(list.as_bytes(), wanted)
                .map(|found| found.version)
                .map_err(|error| error.to_string())
        };
        assert_eq!(found(Some("one")).unwrap(), "2");
        assert_eq!(found(Some("a.example/two")).unwrap(), "1");
        assert!(found(None).unwrap_err().contains("--server NAME"));
        let unknown = found(Some("three")).unwrap_err();
        assert!(
            unknown.contains("no server \"three\"; there are a.example/one"),
            "{unknown}"
        );
        for bad in ["[]", "{", "{\"servers\": [7]}", "{\"name\": 3}"] {
            let refused = read(bad.as_bytes(), None).err().unwrap().to_string();
            assert!(refused.contains("no server.json"), "{bad}: {refused}");
        }
    }

    #[test]
    fn older_spellings_are_read() {
        let document = json!({ "name": "a/b", "packages": [{
            "registry_type": "npm", "identifier": "b", "version": "1",
            "environment_variables": [{ "name": "KEY", "is_required": true }],
        }] });
        let imported = import(&document, &["npx"]).unwrap();
        assert_eq!(imported.entry["env"], json!({ "KEY": "${KEY}" }));
    }
}
