//! Reading a server's list of tools, and comparing it with the approved ones.

use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde_json::{Value, json};
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{Changes, Tool};

use crate::Limits;
use crate::changes::{ApprovedBefore, ComparedTools, Flag, OnChange, compare_with_approved};
use crate::config::ServerConfig;
use crate::connection::{
    ConnectError, Connection, Connector, ListError, ListedTools, Offers, Stale,
};
use crate::items;
use crate::tool_edits;
use toolscout_base::printable::{excerpt, is_hidden};

/// The `_meta` key of this program. A server could use it to claim the identity of another.
const OWN_META: &str = "toolscout";
/// Longest name of a tool, as MCP specifies.
const MAX_NAME_CHARS: usize = 128;

/// The tools that a server offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfferedTools {
    /// The valid tools.
    pub tools: Vec<Tool>,
    /// Its prompts and resources.
    pub others: Vec<Tool>,
    /// Which of these are those of an earlier list.
    pub stale: Stale,
    /// Why the other entries were skipped.
    pub skipped: Vec<String>,
}

/// The result of syncing a server's tools.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Synced {
    /// The server's name in the settings.
    pub server: String,
    /// What changed in the catalog.
    #[serde(flatten)]
    pub changes: Changes,
    /// Tools that changed after they were approved.
    pub flagged: Vec<Flag>,
    /// Why entries were skipped.
    pub skipped: Vec<String>,
    /// What the owner's edits name and the server does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Why the tools of a server are not known.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum FetchError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// There is no list.
    #[error(transparent)]
    List(#[from] ListError),
}

/// Most servers that are listed at the same time.
pub(crate) const CONCURRENT_FETCHES: usize = 8;

/// Lists the tools of every server once. The outcomes are in the order of the servers, and a
/// failure of one does not affect the others.
pub async fn fetch_all(
    servers: &[ServerConfig],
    connector: &Connector,
) -> Vec<Result<OfferedTools, FetchError>> {
    let fetched = stream::iter(servers).map(|server| fetch(server, connector));
    fetched.buffered(CONCURRENT_FETCHES).collect().await
}

/// Lists the tools of a server once.
///
/// # Errors
/// [`FetchError`].
pub async fn fetch(
    server: &ServerConfig,
    connector: &Connector,
) -> Result<OfferedTools, FetchError> {
    let connection = Connection::open(server, connector).await?;
    let listed = connection.list_tools().await;
    let offers = connection.offers().await;
    // Closed before an error is returned, so that no process is left.
    connection.close().await;
    let offered = read_tools(&server.name, listed?, &connector.limits);
    Ok(offered.with_offers(&server.name, &offers, &connector.limits))
}

impl OfferedTools {
    /// The same with the prompts and resources of the server.
    pub fn with_offers(mut self, server: &str, offers: &Offers, limits: &Limits) -> Self {
        let taken = self.tools.iter().map(|tool| &tool.id).collect();
        let (others, skipped) = items::of_offers(server, offers, &taken, limits);
        self.others = others;
        self.stale = offers.stale;
        self.skipped.extend(skipped);
        self.skipped.extend_from_slice(&offers.skipped);
        self
    }
}

/// Reads the entries of a `tools/list`. Invalid entries, entries beyond the limits and repeated
/// names are skipped.
pub fn read_tools(server: &str, listed: ListedTools, limits: &Limits) -> OfferedTools {
    let ListedTools {
        mut entries,
        incomplete,
    } = listed;
    let mut skipped = Vec::from_iter(incomplete);
    entries.retain(|entry| match problem(entry, limits) {
        Some(reason) => {
            skipped.push(format!("{}: {reason}", name_of(entry)));
            false
        }
        None => true,
    });
    // Before the entries become tools: the identity of a tool is its server's name in the settings.
    for entry in &mut entries {
        drop_own_meta(entry);
        tool_edits::drop_claims(entry);
    }
    if entries.is_empty() {
        return OfferedTools {
            skipped,
            ..OfferedTools::default()
        };
    }
    // The server's name comes from the settings, whatever an entry claims.
    let options = ReadOptions {
        server: Some(server.to_owned()),
        source_name: server.to_owned(),
        ..ReadOptions::default()
    };
    // The same parser as for files, so that a tool is the same wherever it comes from.
    let document = json!({ "tools": entries }).to_string();
    match formats::parse(document.as_bytes(), &options) {
        Ok(parsed) => {
            for entry in &parsed.skipped {
                skipped.push(entry.error.to_string());
            }
            OfferedTools {
                tools: parsed.tools,
                skipped,
                ..OfferedTools::default()
            }
        }
        Err(error) => {
            skipped.push(error.to_string());
            OfferedTools {
                skipped,
                ..OfferedTools::default()
            }
        }
    }
}

/// Compares an offer with what was approved.
///
/// # Errors
/// For a list without any valid tool: that is more likely a defect than a server that has lost its
/// tools.
pub fn compare(
    offer: OfferedTools,
    on_change: OnChange,
    before: &ApprovedBefore,
) -> Result<(ComparedTools, Vec<String>), String> {
    let OfferedTools {
        mut tools,
        others,
        stale,
        mut skipped,
    } = offer;
    if tools.is_empty() && !skipped.is_empty() {
        return Err(format!(
            "none of its tools is valid, so nothing was changed: {}",
            skipped.join("; ")
        ));
    }
    tools.extend(others);
    items::keep_unlisted(&mut tools, stale, before.catalog.values());
    let mut compared = compare_with_approved(tools, on_change, before);
    (compared.for_apps, compared.tools) = compared.tools.into_iter().partition(is_only_for_apps);
    if compared.no_room > 0 {
        let (most, left_out) = (before.most_records, compared.no_room);
        skipped.push(format!(
            "{left_out} new tools: the server has offered {most} different tools, the most that are stored; `toolscout \
             sync --mcp FILE --on-change accept` deletes the records of those that it no longer offers"
        ));
    }
    Ok((compared, skipped))
}

/// Whether only the app of a server calls a tool (MCP Apps): its visibility does not name models.
fn is_only_for_apps(tool: &Tool) -> bool {
    let meta = tool.metadata.get("_meta");
    match meta.and_then(|meta| meta.pointer("/ui/visibility")) {
        Some(Value::Array(visible)) => !visible.is_empty() && !visible.contains(&json!("model")),
        _ => false,
    }
}

/// Why an entry is skipped.
fn problem(entry: &Value, limits: &Limits) -> Option<String> {
    if !entry.is_object() {
        return Some("it is not an object".to_owned());
    }
    if let Some(reason) = bad_name(entry) {
        return Some(reason);
    }
    if let Some(reason) = bad_schema(entry) {
        return Some(reason);
    }
    too_long(entry, limits)
}

/// Checks that a name can be told from others and from the text around it. Any other is taken: models
/// see a safe name in its place, and people see it quoted.
fn bad_name(entry: &Value) -> Option<String> {
    let name = entry.get("name")?.as_str()?;
    // The parser skips an entry without a name, and says so.
    if name.is_empty() {
        return None;
    }
    let chars = name.chars().count();
    if chars > MAX_NAME_CHARS {
        return Some(format!(
            "its name has {chars} characters, {MAX_NAME_CHARS} are allowed"
        ));
    }
    if let Some(hidden) = name.chars().find(|c| is_hidden(*c)) {
        return Some(format!(
            "its name has the invisible character U+{:04X}",
            u32::from(hidden)
        ));
    }
    if name
        .split(' ')
        .any(|word| word.is_empty() || word.contains(char::is_whitespace))
    {
        return Some(
            "its name has a space at an end, two in a row, or one of another width".into(),
        );
    }
    let mixed = name
        .split(|c: char| !c.is_alphabetic())
        .find(|word| mixes_scripts(word))?;
    Some(format!(
        "its name mixes letters of several alphabets that look alike in {}",
        mixed.escape_default()
    ))
}

/// Whether a word has Latin letters beside Greek or Cyrillic ones, many of which look like them.
fn mixes_scripts(word: &str) -> bool {
    let is_latin = |c: char| c.is_ascii_alphabetic() || ('\u{c0}'..='\u{24f}').contains(&c);
    let looks_latin = |c: char| ('\u{370}'..='\u{52f}').contains(&c);
    word.chars().any(is_latin) && word.chars().any(looks_latin)
}

fn bad_schema(entry: &Value) -> Option<String> {
    match entry.get("inputSchema") {
        None => Some("it has no inputSchema".into()),
        Some(Value::Object(_)) => None,
        Some(other) => Some(format!(
            "its inputSchema is {}, it must be an object",
            excerpt(&other.to_string(), 40)
        )),
    }
}

/// Checks the size of a tool. A too long description is not truncated, since that would change its
/// meaning.
fn too_long(entry: &Value, limits: &Limits) -> Option<String> {
    for field in ["title", "description"] {
        let bytes = entry.get(field).and_then(Value::as_str).map_or(0, str::len);
        if bytes > limits.description_bytes {
            return Some(format!(
                "its {field} has {bytes} bytes, {} are allowed",
                limits.description_bytes
            ));
        }
    }
    let bytes = entry.to_string().len();
    if bytes <= limits.tool_bytes {
        return None;
    }
    Some(format!(
        "it has {bytes} bytes, {} are allowed",
        limits.tool_bytes
    ))
}

fn name_of(entry: &Value) -> String {
    match entry.get("name").and_then(Value::as_str) {
        // Escaped, since an invalid name may contain any text.
        Some(name) => format!("tool \"{}\"", excerpt(name, 80).escape_default()),
        None => "a tool without a name".into(),
    }
}

fn drop_own_meta(entry: &mut Value) {
    if let Some(meta) = entry.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.remove(OWN_META);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(entries: Vec<Value>) -> ListedTools {
        ListedTools {
            entries,
            incomplete: None,
        }
    }

    fn ids(offer: &OfferedTools) -> Vec<&str> {
        offer.tools.iter().map(|tool| tool.id.as_str()).collect()
    }

    fn check_skipped(offer: &OfferedTools, expected: &[&str]) {
        let skipped = offer.skipped.join("\n");
        for part in expected {
            assert!(skipped.contains(part), "{part:?} is not in {skipped}");
        }
    }

    #[test]
    fn bad_entries_are_skipped_and_named_and_the_others_read() {
        let schema = json!({ "type": "object" });
        let entries = vec![
            json!({ "name": "good", "inputSchema": schema, "annotations": { "destructiveHint": true } }),
            json!({ "name": "bad", "inputSchema": "none" }),
            json!({ "name": "bare" }),
            json!({ "name": "good", "description": "again", "inputSchema": schema }),
            json!({ "inputSchema": schema }),
            json!(7),
        ];
        let offer = read_tools("s", whole(entries), &Limits::default());
        assert_eq!(ids(&offer), ["s/good"]);
        assert_eq!(offer.tools[0].annotations.destructive_hint, Some(true));
        let expected = [
            "\"bad\": its inputSchema is \"none\"",
            "\"bare\": it has no inputSchema",
            "not an object",
            "good",
            "name",
        ];
        check_skipped(&offer, &expected);
        assert_eq!(offer.skipped.len(), 5);
    }

    #[test]
    fn tools_of_servers_that_say_too_much_are_left_out() {
        let limits = Limits::default();
        let long = "word ".repeat(limits.description_bytes / 5 + 1);
        let wide = "x".repeat(limits.tool_bytes);
        let offer = read_tools(
            "s",
            whole(vec![
                json!({ "name": "long", "description": long, "inputSchema": {} }),
                json!({ "name": "titled", "title": long, "inputSchema": {} }),
                json!({ "name": "wide", "inputSchema": { "x": wide } }),
                json!({ "name": "full", "description": long[..limits.description_bytes], "inputSchema": {} }),
            ]),
            &limits,
        );
        assert_eq!(ids(&offer), ["s/full"]);
        let expected = [
            "\"long\": its description has 16385 bytes, 16384 are allowed",
            "its title",
            "\"wide\": it has",
        ];
        check_skipped(&offer, &expected);
    }

    fn named(names: &[&str]) -> OfferedTools {
        let entry = |name: &&str| json!({ "name": name, "inputSchema": { "type": "object" } });
        read_tools(
            "s",
            whole(names.iter().map(entry).collect()),
            &Limits::default(),
        )
    }

    #[test]
    fn names_that_may_look_like_others_are_refused_and_quoted() {
        let long = "x".repeat(129);
        let offer = named(&[
            "a.b/c-D_9",
            "d\u{435}lete",
            "x (read_only)\n[approve]",
            "\u{3164}",
            "\u{202e}tupni",
            "pay\u{200b}",
            "pay ",
            "pay  bill",
            "pay\u{a0}bill",
            long.as_str(),
        ]);
        assert_eq!(offer.tools.len(), 1);
        assert_eq!(offer.tools[0].id.as_str(), "s/a.b/c-D_9");
        let skipped = offer.skipped.join("\n");
        assert!(
            skipped.is_ascii() && skipped.lines().count() == 9,
            "{skipped}"
        );
        for expected in [
            "tool \"d\\u{435}lete\": its name mixes letters",
            "x (read_only)\\n[approve]\": its name has the invisible character U+000A",
            "U+3164",
            "U+202E",
            "U+200B",
            "tool \"pay \": its name has a space at an end",
            "tool \"pay  bill\"",
            "tool \"pay\\u{a0}bill\"",
            "has 129 characters",
        ] {
            assert!(
                skipped.contains(expected),
                "{expected:?} is not in {skipped}"
            );
        }
    }

    #[test]
    fn names_with_spaces_and_of_other_scripts_are_taken_and_models_see_safe_ones() {
        let names = [
            "Get Weather",
            "查询天气",
            "отправить_email",
            "日本 の天気",
            "search (v2)",
            "notes:add",
            "café",
        ];
        let offer = named(&names);
        assert_eq!(offer.skipped, Vec::<String>::new());
        let mut shown = std::collections::BTreeSet::new();
        for name in names {
            let tool = offer.tools.iter().find(|tool| tool.id.name() == name);
            let model_name = formats::model_name(&tool.unwrap().id);
            let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(
                model_name.len() <= 64 && model_name.chars().all(is_safe),
                "{model_name}"
            );
            assert!(shown.insert(model_name));
        }
    }

    #[test]
    fn a_list_that_broke_off_says_so() {
        let listed = ListedTools {
            incomplete: Some("its list of tools comes back".into()),
            ..whole(vec![json!({ "name": "a", "inputSchema": {} })])
        };
        let offer = read_tools("s", listed, &Limits::default());
        assert_eq!(offer.tools.len(), 1);
        assert_eq!(offer.skipped, ["its list of tools comes back"]);
    }

    #[test]
    fn a_server_cannot_claim_the_identity_of_another() {
        let entry = json!({
            "name": "a", "inputSchema": {}, "_meta": { "toolscout": { "server": "bank", "name": "pay" }, "kept": 1 }
        });
        let offer = read_tools("s", whole(vec![entry]), &Limits::default());
        assert_eq!(offer.tools[0].id.as_str(), "s/a");
        assert_eq!(offer.tools[0].metadata["_meta"], json!({ "kept": 1 }));
    }
}
