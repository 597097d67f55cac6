//! The name under which a model sees a tool. The APIs take `^[a-zA-Z0-9_-]{1,64}$` only.

use crate::tool::ToolId;

/// Longest name the APIs take.
const MAX_LEN: usize = 64;
/// Hexadecimal digits of the hash that makes altered names unique: 48 bits, so that nobody finds a
/// second id for a name by trying.
const HASH_DIGITS: usize = 12;
/// Names of toolscout's own tools, which no other tool may take.
const RESERVED: [&str; 2] = ["tool_search", "call_tool"];

/// The name of a tool for a model: `server__name`, or `name` for a tool without a server.
///
/// It depends on the id alone, so a tool has the same name in every answer, whatever else is in it,
/// and different tools have different names. Where the plain form is too long, has characters that
/// the APIs refuse, or could be another tool's, a hash of the id is appended.
pub fn model_name(id: &ToolId) -> String {
    let plain = match id.server() {
        "" => id.name().to_owned(),
        server => format!("{server}__{}", id.name()),
    };
    if is_unambiguous(id, &plain) {
        return plain;
    }
    let hash = blake3::hash(id.as_str().as_bytes()).to_hex();
    let readable: String = plain
        .chars()
        .map(|c| if is_allowed(c) { c } else { '_' })
        // All characters are ASCII by now, so each is a byte. One byte is for the `_`.
        .take(MAX_LEN - 1 - HASH_DIGITS)
        .collect();
    format!("{readable}_{}", &hash[..HASH_DIGITS])
}

fn is_unambiguous(id: &ToolId, plain: &str) -> bool {
    // `a__b` with `c` and `a` with `b__c` would be one name.
    let splits_in_one_way = !id.server().contains("__") && !id.name().contains("__");
    splits_in_one_way
        && plain.len() <= MAX_LEN
        && plain.chars().all(is_allowed)
        && !RESERVED.contains(&plain)
        && !looks_hashed(plain)
}

/// True for a name that could be another tool's with its hash.
fn looks_hashed(plain: &str) -> bool {
    // Whether or not there is such a tool: a name depends on its own id only.
    plain.rsplit_once('_').is_some_and(|(_, end)| {
        end.len() == HASH_DIGITS && end.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(id: &str) -> String {
        model_name(&ToolId::parse(id).unwrap())
    }

    fn hashed(readable: &str, id: &str) -> String {
        format!("{readable}_{}", &blake3::hash(id.as_bytes()).to_hex()[..12])
    }

    #[test]
    fn names_are_qualified_by_their_server() {
        assert_eq!(name("github/create_issue"), "github__create_issue");
        assert_eq!(name("create_issue"), "create_issue");
    }

    #[test]
    fn what_would_be_refused_or_ambiguous_gets_a_hash() {
        let long = "x".repeat(70);
        for (id, readable) in [
            ("math.factorial", "math_factorial"),
            ("时间/查询", "______"),
            ("a/b__c", "a__b__c"),
            ("a__b/c", "a__b__c"),
            ("tool_search", "tool_search"),
            ("a_0123456789ab", "a_0123456789ab"),
            (&long, &long[..51]),
        ] {
            assert_eq!(name(id), hashed(readable, id));
            assert!(name(id).len() <= MAX_LEN);
        }
    }

    #[test]
    fn a_tool_cannot_take_the_hashed_name_of_another() {
        let victim = name("math.factorial");
        assert_ne!(name(&victim), victim);
    }
}
