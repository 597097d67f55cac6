//! The name under which a model sees a tool. The APIs take `^[a-zA-Z0-9_-]{1,64}$` only.

use std::collections::{HashMap, HashSet};

use crate::tool::ToolId;

/// Longest name the APIs take.
const MAX_LEN: usize = 64;
/// What is left of a server's name at least when it is shortened.
const MIN_SERVER_LEN: usize = 3;
/// Hexadecimal digits of the hash that makes altered names unique: 48 bits, so that nobody finds a
/// second id for a name by trying.
const HASH_DIGITS: usize = 12;
/// Names of toolscout's own tools, which no other tool may take.
const RESERVED: [&str; 2] = ["tool_search", "call_tool"];

/// The name of a tool for a model: `server__name`, or `name` for a tool without a server.
///
/// It depends on the id alone, so a tool has the same name in every answer. Characters that the APIs
/// refuse become `_`, and a name that is too long loses letters of its server, then of its end. A hash of
/// the id is appended where letters of another script would be lost.
///
/// Two tools may have one name, such as `a__b` and `a/b`: [`model_names`] makes the names of a list
/// different, and [`is_called`] knows all names of a tool.
pub fn model_name(id: &ToolId) -> String {
    let (server, name) = (allowed(id.server()), allowed(id.name()));
    let is_readable = keeps_letters(id.server()) && keeps_letters(id.name());
    let plain = joined(&server, &name);
    if !is_readable || RESERVED.contains(&plain.as_str()) {
        return distinct_model_name(id);
    }
    if plain.len() <= MAX_LEN {
        return plain;
    }
    let room = (MAX_LEN - "__".len()).saturating_sub(name.len());
    if room >= MIN_SERVER_LEN && !server.is_empty() {
        return joined(server[..room].trim_end_matches(['_', '-']), &name);
    }
    name[..name.len().min(MAX_LEN)].to_owned()
}

/// The name of a tool with a hash of its id, which no other tool has. Earlier versions showed every
/// altered name so, and conversations are stored with them.
pub fn distinct_model_name(id: &ToolId) -> String {
    let hash = blake3::hash(id.as_str().as_bytes()).to_hex();
    let plain = joined(&allowed(id.server()), &allowed(id.name()));
    // All characters are ASCII by now, so each is a byte. One byte is for the `_`.
    let readable = &plain[..plain.len().min(MAX_LEN - 1 - HASH_DIGITS)];
    format!("{readable}_{}", &hash[..HASH_DIGITS])
}

/// The names of the tools of one list, all different: tools that share a name have a hash each.
pub fn model_names<'a>(ids: impl IntoIterator<Item = &'a ToolId>) -> Vec<String> {
    let ids: Vec<&ToolId> = ids.into_iter().collect();
    let names: Vec<String> = ids.iter().copied().map(model_name).collect();
    let mut owners: HashMap<&str, &ToolId> = HashMap::new();
    let mut shared: HashSet<&str> = HashSet::new();
    for (name, &id) in names.iter().zip(&ids) {
        // A tool that is in the list twice shares its name with no other.
        if *owners.entry(name).or_insert(id) != id {
            shared.insert(name);
        }
    }
    let mut hashed = HashSet::new();
    for (name, id) in names.iter().zip(&ids) {
        if shared.contains(name.as_str()) {
            hashed.insert(distinct_model_name(id));
        }
    }
    let mut distinct = Vec::with_capacity(names.len());
    for (name, id) in names.iter().zip(&ids) {
        // A tool may have the very name that another gets with its hash.
        let needs_hash = shared.contains(name.as_str()) || hashed.contains(name);
        distinct.push(match needs_hash {
            true => distinct_model_name(id),
            false => name.clone(),
        });
    }
    distinct
}

/// True for every name by which a model may call this tool: its id, its bare name, and the names that
/// it is or was shown under.
pub fn is_called(id: &ToolId, name: &str) -> bool {
    name == id.as_str()
        || name == id.name()
        || name == model_name(id)
        || (looks_hashed(name) && name == distinct_model_name(id))
}

fn joined(server: &str, name: &str) -> String {
    match server {
        "" => name.to_owned(),
        server => format!("{server}__{name}"),
    }
}

fn allowed(text: &str) -> String {
    text.chars()
        .map(|c| if is_allowed(c) { c } else { '_' })
        .collect()
}

/// False for a text of which letters or digits would be lost, or that has none.
fn keeps_letters(text: &str) -> bool {
    text.is_empty() || (!text.contains(is_lost) && text.contains(char::is_alphanumeric))
}

/// True for a letter or digit that becomes a `_`.
fn is_lost(c: char) -> bool {
    !c.is_ascii() && c.is_alphanumeric()
}

fn looks_hashed(name: &str) -> bool {
    let Some((_, end)) = name.rsplit_once('_') else {
        return false;
    };
    end.len() == HASH_DIGITS && end.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ToolId {
        ToolId::parse(text).unwrap()
    }

    fn hashed(readable: &str, id: &str) -> String {
        format!("{readable}_{}", &blake3::hash(id.as_bytes()).to_hex()[..12])
    }

    #[test]
    fn a_name_that_the_apis_take_is_shown_as_it_is() {
        for (text, name) in [
            ("github/create_issue", "github__create_issue"),
            ("create_issue", "create_issue"),
            ("mcp__slack__send_message", "mcp__slack__send_message"),
            ("a__b", "a__b"),
            ("a__b/c", "a__b__c"),
            ("a/b__c", "a__b__c"),
            ("commit_0123456789ab", "commit_0123456789ab"),
            ("github/repos/update", "github__repos_update"),
            ("math.factorial", "math_factorial"),
            ("My Server/get page", "My_Server__get_page"),
        ] {
            assert_eq!(model_name(&id(text)), name);
        }
    }

    #[test]
    fn a_long_server_is_shortened_before_the_name() {
        for (server, name, shown) in [
            (
                "github-s-official-openapi-spec-octokit-extension",
                "repos/update-information-about",
                "github-s-official-openapi-spec-o__repos_update-information-about",
            ),
            (
                "a-very-long-server",
                &"n".repeat(58),
                &format!("a-ve__{}", "n".repeat(58)),
            ),
            (
                "ab-cdefgh",
                &"n".repeat(59),
                &format!("ab__{}", "n".repeat(59)),
            ),
            ("ab-cdefgh", &"n".repeat(64), &"n".repeat(64)),
        ] {
            let id = ToolId::new(server, name).unwrap();
            assert_eq!(model_name(&id), shown);
            assert!(shown.len() <= MAX_LEN);
        }
    }

    #[test]
    fn of_an_endless_name_the_beginning_stays() {
        let long = ToolId::new("server", &"n".repeat(65)).unwrap();
        assert_eq!(model_name(&long), "n".repeat(64));
        let other = ToolId::new("server", &"n".repeat(66)).unwrap();
        let names = model_names([&long, &other]);
        assert_eq!(
            names[0],
            hashed(&long.as_str().replace('/', "__")[..51], long.as_str())
        );
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn what_would_be_lost_gets_a_hash() {
        for (text, readable) in [
            ("时间/查询", "______"),
            ("wetter/für_heute", "wetter__f_r_heute"),
            ("tool_search", "tool_search"),
            ("...", "___"),
        ] {
            assert_eq!(model_name(&id(text)), hashed(readable, text));
            assert!(model_name(&id(text)).len() <= MAX_LEN);
        }
    }

    #[test]
    fn tools_of_one_list_that_share_a_name_have_a_hash_each() {
        let ids = ["a__b", "a/b", "a/c", "a/c.d", "a/c_d", "a/c"].map(id);
        assert_eq!(
            model_names(&ids),
            [
                hashed("a__b", "a__b"),
                hashed("a__b", "a/b"),
                "a__c".to_owned(),
                hashed("a__c_d", "a/c.d"),
                hashed("a__c_d", "a/c_d"),
                "a__c".to_owned(),
            ]
        );
        // Nor can a tool take the name that another has with its hash.
        let victim = distinct_model_name(&id("a/b"));
        let taken = [id("a__b"), id("a/b"), id(&victim)];
        let names = model_names(&taken);
        assert!(names[1] != names[2] && names[0] != names[1], "{names:?}");
    }

    #[test]
    fn names_that_earlier_versions_showed_still_call_the_tool() {
        for text in [
            "math.factorial",
            "a/b__c",
            "github/repos/update",
            "时间/查询",
        ] {
            let readable = joined(&allowed(id(text).server()), &allowed(id(text).name()));
            assert!(is_called(&id(text), &hashed(&readable, text)));
            assert!(is_called(&id(text), &model_name(&id(text))));
            assert!(!is_called(&id(text), &hashed(&readable, "other")));
        }
    }
}
