//! What a person who has added an API needs to call it: its address, and where its secret is set.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use toolscout_index::{Searcher, Tool};

use crate::printable::{self, counted};

/// Addresses and ways of authentication that are listed.
const MAX_LISTED: usize = 4;

/// An API whose operations were added.
#[derive(Debug, Serialize)]
pub struct Service {
    /// The server of its tools.
    pub server: String,
    /// Number of its tools.
    pub operations: usize,
    /// The addresses that the document names; none where it names none, or none that is whole.
    pub base_urls: Vec<String>,
    /// Its ways of authentication, and for each the value of `auth` in a profile.
    pub auth: Vec<Authentication>,
    /// Whether the caller named the server, and not the document's title.
    #[serde(skip)]
    is_named: bool,
}

/// A way of authentication.
#[derive(Debug, PartialEq, Serialize)]
pub struct Authentication {
    /// Its name in the document.
    pub scheme: String,
    /// What it is.
    pub kind: String,
    /// The value of `auth` in a profile; `None` where a profile cannot send it.
    pub profile: Option<String>,
}

impl Service {
    /// The APIs of the tools of one document: one for each server.
    pub fn of_tools(tools: &[Tool], is_named: bool) -> Vec<Self> {
        let mut services: BTreeMap<&str, Service> = BTreeMap::new();
        for tool in tools {
            let server = tool.id.server();
            let service = services.entry(server).or_insert_with(|| Service {
                server: server.to_owned(),
                operations: 0,
                base_urls: Vec::new(),
                auth: Vec::new(),
                is_named,
            });
            service.operations += 1;
            if let Some(call) = tool.metadata.get("openapi") {
                service.add(call);
            }
        }
        services.into_values().collect()
    }

    fn add(&mut self, call: &Value) {
        let urls = call.get("servers").and_then(Value::as_array);
        for url in urls.into_iter().flatten().filter_map(Value::as_str) {
            // Others are relative to a page that is not known here, or have variables in them.
            let is_whole = url.starts_with("http") && !url.contains('{');
            let is_known = self.base_urls.iter().any(|known| known == url);
            if is_whole && !is_known && self.base_urls.len() < MAX_LISTED {
                self.base_urls.push(url.to_owned());
            }
        }
        let schemes = call.get("security_schemes").and_then(Value::as_object);
        for (name, scheme) in schemes.into_iter().flatten() {
            let is_known = self.auth.iter().any(|known| known.scheme == *name);
            if self.auth.len() < MAX_LISTED && !is_known {
                let variable = variable(&self.server);
                self.auth.push(Authentication::of(name, scheme, &variable));
            }
        }
    }

    /// A warning if the catalog has tools of this server from a document with other addresses, which
    /// these replace. None if the caller named the server.
    pub fn replaces_another(&self, searcher: &Searcher) -> Option<String> {
        if self.is_named {
            return None;
        }
        // Ids are sorted, so the first after `SERVER/` is of this server if any is.
        let before = format!("{}/", self.server);
        let first = searcher.ids_after(Some(&before)).next()?;
        if first.server() != self.server {
            return None;
        }
        let tool = searcher.tool(first)?;
        let [known] = &Service::of_tools(std::slice::from_ref(&*tool), false)[..] else {
            return None;
        };
        let known_url = known.base_urls.first()?;
        // Without an address there is nothing to compare; with a common one it is the same API.
        let mut known_urls = known.base_urls.iter();
        if self.base_urls.is_empty() || known_urls.any(|url| self.base_urls.contains(url)) {
            return None;
        }
        Some(format!(
            "the catalog has tools of {} from a document for {}, and this one replaces those of the same name; \
             --server NAME keeps them apart",
            printable::name(&self.server),
            printable::line(known_url)
        ))
    }

    /// How to call its tools, in some lines.
    pub fn next_steps(&self) -> String {
        let server = printable::name(&self.server);
        let mut lines = vec![format!(
            "to call the {} of {server}:",
            counted(self.operations, "tool")
        )];
        lines.push(match self.base_urls.as_slice() {
            [] => "  address: none in the document; set `base_url` in the profile".to_owned(),
            urls => format!("  address: {}", printable::line(&urls.join(", "))),
        });
        for auth in &self.auth {
            let how = match &auth.profile {
                Some(profile) => format!("auth = {profile}"),
                None => "a profile cannot send it".to_owned(),
            };
            let line = format!("  authentication {} ({}): {how}", auth.scheme, auth.kind);
            lines.push(printable::line(&line));
        }
        lines.push(format!(
            "  save these lines as {server}.toml, and start `toolscout agent`, `serve` or `mcp` with --profile {server}.toml:"
        ));
        for line in self.profile_lines() {
            lines.push(format!("    {}", printable::line(&line)));
        }
        if !self.is_named && !self.server.is_empty() {
            let name = "the document's title names the server; --server NAME names it otherwise";
            lines.push(format!("  {name}"));
        }
        lines.join("\n")
    }

    fn profile_lines(&self) -> Vec<String> {
        let mut lines = vec![
            "[[operations]]".to_owned(),
            format!("server = {:?}", self.server),
        ];
        let is_address_missing = self.base_urls.is_empty();
        if is_address_missing {
            lines.push("base_url = \"https://HOST/PATH\"".to_owned());
        }
        if let Some(auth) = self.auth.iter().find_map(|auth| auth.profile.as_ref()) {
            lines.push(format!("auth = {auth}"));
            // A secret is sent to the addresses of a document only if they are listed.
            if !is_address_missing {
                lines.push(format!("auth_for = {:?}", self.base_urls));
            }
        }
        lines
    }
}

impl Authentication {
    fn of(name: &str, scheme: &Value, variable: &str) -> Self {
        let text = |field: &str| {
            scheme
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let bearer = Some(format!("{{ bearer_env = {variable:?} }}"));
        let basic = Some(format!("{{ basic_env = {variable:?} }}"));
        let named = |place: &str| {
            let key = text("name");
            Some(format!(
                "{{ {place} = {{ name = {key:?}, env = {variable:?} }} }}"
            ))
        };
        let (kind, profile) = match (
            text("type"),
            text("scheme").to_lowercase().as_str(),
            text("in"),
        ) {
            // `basic` as a type is that of Swagger 2.
            ("http", "basic", _) | ("basic", _, _) => ("user:password".to_owned(), basic),
            ("http", "bearer", _) => ("a bearer token".to_owned(), bearer),
            ("oauth2" | "openIdConnect", _, _) => (
                "OAuth: an access token that you have got".to_owned(),
                bearer,
            ),
            ("apiKey", _, "header") => (
                format!("a key in the header {}", text("name")),
                named("header"),
            ),
            ("apiKey", _, "query") => (
                format!("a key in the query, {}", text("name")),
                named("query"),
            ),
            ("apiKey", _, place) => (format!("a key in a {place}"), None),
            ("http", scheme, _) => (format!("HTTP {scheme}"), None),
            (kind, _, _) => (kind.to_owned(), None),
        };
        Authentication {
            scheme: name.to_owned(),
            kind,
            profile,
        }
    }
}

/// A name for the variable of a server's secret.
fn variable(server: &str) -> String {
    let letters = server.to_ascii_uppercase();
    let letters = letters.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    match letters.trim_matches('_') {
        "" => "API_TOKEN".to_owned(),
        // Shells accept no variable that begins with a digit.
        letters if letters.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("API_{letters}_TOKEN")
        }
        letters => format!("{letters}_TOKEN"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_way_of_authentication_says_how_a_profile_sends_it() {
        for (scheme, profile) in [
            (
                json!({"type": "http", "scheme": "Bearer"}),
                Some("{ bearer_env = \"T\" }"),
            ),
            (json!({"type": "oauth2"}), Some("{ bearer_env = \"T\" }")),
            (json!({"type": "basic"}), Some("{ basic_env = \"T\" }")),
            (
                json!({"type": "apiKey", "in": "header", "name": "X-Key"}),
                Some("{ header = { name = \"X-Key\", env = \"T\" } }"),
            ),
            (
                json!({"type": "apiKey", "in": "query", "name": "key"}),
                Some("{ query = { name = \"key\", env = \"T\" } }"),
            ),
            (
                json!({"type": "apiKey", "in": "cookie", "name": "sid"}),
                None,
            ),
            (json!({"type": "mutualTLS"}), None),
        ] {
            let auth = Authentication::of("a", &scheme, "T");
            assert_eq!(auth.profile.as_deref(), profile, "{scheme}");
        }
        assert_eq!(variable("github-s-official"), "GITHUB_S_OFFICIAL_TOKEN");
        assert_eq!(variable("气象"), "API_TOKEN");
    }
}
