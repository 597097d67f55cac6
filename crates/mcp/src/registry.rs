//! Lists of servers as a registry of MCP servers answers them (`GET /v0/servers`), or as a file has
//! them. Does no I/O.

use reqwest::Url;
use serde_json::{Value, json};

use crate::server_json::ServerJsonError;
use toolscout_base::printable::{excerpt, line};

/// The path of the list below the address of a registry.
const LIST: &str = "v0/servers";
/// Servers of one page, the most that the registry gives.
const PAGE: &str = "100";
/// Most characters of a description.
const DESCRIPTION_CHARS: usize = 200;

/// A server of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its name in the registry.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it is for.
    pub description: String,
    /// How it can be run or reached: types of packages, and `remote`.
    pub kinds: Vec<String>,
    /// Whether this is its latest version.
    pub is_latest: bool,
    /// As the registry has it.
    pub item: Value,
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The servers.
    pub servers: Vec<Listed>,
    /// What asks for the next part.
    pub next: Option<String>,
}

/// The address of a part of the list of servers with these words.
///
/// # Errors
/// What is wrong with the address of the registry.
pub fn page_url(registry: &str, words: &str, cursor: Option<&str>) -> Result<Url, String> {
    let invalid = |reason: &dyn std::fmt::Display| {
        format!("the address of the registry {registry:?} is invalid: {reason}")
    };
    let mut url = Url::parse(registry).map_err(|error| invalid(&error))?;
    let path = url.path().trim_end_matches('/').to_owned();
    if !path.ends_with("/servers") {
        url.set_path(&format!("{path}/{LIST}"));
    }
    let mut query = url.query_pairs_mut();
    query.append_pair("limit", PAGE);
    if !words.is_empty() {
        query.append_pair("search", words);
    }
    if let Some(cursor) = cursor {
        query.append_pair("cursor", cursor);
    }
    drop(query);
    Ok(url)
}

/// Reads a part of a list, or a file with one or several descriptions.
///
/// # Errors
/// [`ServerJsonError::Malformed`].
pub fn read_page(document: &[u8]) -> Result<Page, ServerJsonError> {
    let malformed = |reason: String| ServerJsonError::Malformed { reason };
    let document: Value =
        serde_json::from_slice(document).map_err(|error| malformed(error.to_string()))?;
    let next = document.pointer("/metadata/nextCursor");
    let next = next.or_else(|| document.pointer("/metadata/next_cursor"));
    let next = next.and_then(Value::as_str).filter(|next| !next.is_empty());
    let items = match &document {
        Value::Array(items) => items.clone(),
        Value::Object(fields) => match fields.get("servers") {
            Some(Value::Array(items)) => items.clone(),
            _ => vec![document.clone()],
        },
        _ => return Err(malformed("it is no object and no list".into())),
    };
    let mut servers = Vec::with_capacity(items.len());
    for item in items {
        servers.push(listed(item).map_err(malformed)?);
    }
    Ok(Page {
        servers,
        next: next.map(str::to_owned),
    })
}

impl Listed {
    /// Whether its name and description have all of these words.
    pub fn has_words(&self, words: &[String]) -> bool {
        let text = format!("{} {}", self.name, self.description).to_lowercase();
        words.iter().all(|word| text.contains(&word.to_lowercase()))
    }

    /// The description of this server alone, as [`crate::server_json::read`] takes it.
    pub fn document(&self) -> Vec<u8> {
        json!({ "servers": [self.item] }).to_string().into_bytes()
    }
}

/// One entry for each server, in its latest version, in the order of the list.
pub fn latest(servers: Vec<Listed>) -> Vec<Listed> {
    let mut latest: Vec<Listed> = Vec::new();
    for server in servers {
        match latest.iter_mut().find(|known| known.name == server.name) {
            Some(known) if server.is_latest && !known.is_latest => *known = server,
            Some(_) => {}
            None => latest.push(server),
        }
    }
    latest
}

fn listed(item: Value) -> Result<Listed, String> {
    let description = item.get("server").unwrap_or(&item);
    let text = |field: &str| description.get(field).and_then(Value::as_str);
    let name = text("name").ok_or("a server has no `name`")?.to_owned();
    let mut kinds = Vec::new();
    let packages = description.get("packages").and_then(Value::as_array);
    for package in packages.into_iter().flatten() {
        let kind = package.get("registryType").or(package.get("registry_type"));
        if let Some(kind) = kind.and_then(Value::as_str)
            && !kinds.iter().any(|known| known == kind)
        {
            kinds.push(line(&excerpt(kind, 20)));
        }
    }
    let remotes = description.get("remotes").and_then(Value::as_array);
    if remotes.is_some_and(|remotes| !remotes.is_empty()) {
        kinds.push("remote".into());
    }
    Ok(Listed {
        version: text("version").unwrap_or_default().to_owned(),
        description: line(&excerpt(
            text("description").unwrap_or_default(),
            DESCRIPTION_CHARS,
        )),
        kinds,
        is_latest: crate::server_json::is_latest(&item),
        name,
        item,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, version: &str, is_latest: bool) -> Value {
        json!({
            "server": {
                "name": name, "version": version, "description": "Lends umbrellas.",
                "packages": [{ "registryType": "npm", "identifier": "x" }], "remotes": [{ "type": "sse", "url": "https://a.test" }],
            },
            "_meta": { "io.modelcontextprotocol.registry/official": { "isLatest": is_latest } },
        })
    }

    #[test]
    fn a_page_is_read_with_its_next_one() {
        let page = json!({
            "servers": [item("a/b", "1.0.0", false), item("a/b", "1.1.0", true), item("c/d", "2", true)],
            "metadata": { "nextCursor": "c/d:2", "count": 3 },
        });
        let page = read_page(page.to_string().as_bytes()).unwrap();
        assert_eq!(page.next.as_deref(), Some("c/d:2"));
        let servers = latest(page.servers);
        let found: Vec<_> = servers
            .iter()
            .map(|server| (server.name.as_str(), server.version.as_str()))
            .collect();
        assert_eq!(found, [("a/b", "1.1.0"), ("c/d", "2")]);
        assert_eq!(servers[0].kinds, ["npm", "remote"]);
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(servers[0].has_words(&words("UMBRELLAS a/b")));
        assert!(!servers[0].has_words(&words("umbrellas rain")));
        let single = read_page(item("a/b", "1", true)["server"].to_string().as_bytes());
        assert_eq!(single.unwrap().servers.len(), 1);
        for wrong in ["{", "7", "{\"servers\": [{}]}"] {
            assert!(read_page(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_address_of_a_page_has_words_and_cursor() {
        for (registry, words, cursor, expected) in [
            (
                "https://r.test",
                "",
                None,
                "https://r.test/v0/servers?limit=100",
            ),
            (
                "https://r.test/api/",
                "a b",
                Some("x/y:1"),
                "https://r.test/api/v0/servers?limit=100&search=a+b&cursor=x%2Fy%3A1",
            ),
            (
                "https://r.test/v0.1/servers",
                "a",
                None,
                "https://r.test/v0.1/servers?limit=100&search=a",
            ),
        ] {
            let url = page_url(registry, words, cursor).unwrap();
            assert_eq!(url.as_str(), expected);
        }
        assert!(
            page_url("https://", "", None)
                .unwrap_err()
                .contains("is invalid")
        );
    }
}
