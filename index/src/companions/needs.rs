//! Which parameters of a tool are identifiers of things that another tool has to find.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::words::{is_empty, nouns, singular, words};

/// Parameters that are read of a tool whose schema requires some, and of one without.
const MAX_PARAMETERS: usize = 24;
const MAX_OPTIONAL: usize = 6;
/// Bytes that are read of a parameter's description.
const MAX_DESCRIPTION: usize = 256;

/// Last words of the names of identifiers. Sorted.
const IDENTIFIERS: &[&str] = &[
    "arn",
    "duid",
    "eid",
    "fqn",
    "gid",
    "guid",
    "id",
    "identifier",
    "identifiers",
    "ids",
    "iid",
    "key",
    "keys",
    "oid",
    "pk",
    "sid",
    "sids",
    "slug",
    "uid",
    "urn",
    "uuid",
    "uuids",
];
/// Words before them in parameters that page and authenticate. Sorted.
const NOT_BEFORE: &[&str] = &[
    "after",
    "api",
    "auth",
    "before",
    "correlation",
    "cursor",
    "idempotency",
    "last",
    "next",
    "previous",
    "secret",
    "start",
];
/// The same, where the description says that it is one. Sorted.
const PERHAPS_IDENTIFIERS: &[&str] = &["alias", "handle", "no", "num", "number", "ref", "uri"];
/// Words of parameters that page, authenticate or describe, where only their description speaks of an
/// identifier. Sorted.
const NEVER: &[&str] = &[
    "access",
    "api",
    "auth",
    "bearer",
    "card",
    "client",
    "confirmation",
    "continuation",
    "correlation",
    "country",
    "currency",
    "cursor",
    "etag",
    "idempotency",
    "language",
    "limit",
    "line",
    "max",
    "min",
    "next",
    "page",
    "phone",
    "port",
    "postal",
    "private",
    "public",
    "refresh",
    "request",
    "secret",
    "security",
    "serial",
    "start",
    "sync",
    "verification",
    "zip",
];
/// Last words of parameters that hold texts and numbers, even if their description speaks of an
/// identifier. Sorted.
const TEXTS: &[&str] = &[
    "body",
    "content",
    "date",
    "description",
    "fields",
    "filter",
    "format",
    "limit",
    "message",
    "name",
    "path",
    "query",
    "size",
    "text",
    "time",
    "title",
    "type",
    "url",
];
/// Words before the last that do not say of what. Sorted.
const GENERIC: &[&str] = &[
    "child",
    "collection",
    "data",
    "destination",
    "element",
    "entity",
    "entry",
    "existing",
    "external",
    "from",
    "full",
    "instance",
    "internal",
    "item",
    "new",
    "node",
    "object",
    "old",
    "parent",
    "record",
    "resource",
    "source",
    "target",
    "thing",
    "to",
    "unique",
    "value",
];
/// Words of a description that end the name of a thing. Sorted.
const ENDING: &[&str] = &[
    "and",
    "as",
    "associated",
    "at",
    "being",
    "by",
    "containing",
    "for",
    "from",
    "has",
    "in",
    "is",
    "must",
    "of",
    "on",
    "or",
    "should",
    "that",
    "to",
    "under",
    "was",
    "where",
    "which",
    "who",
    "whose",
    "will",
    "with",
    "you",
];
/// Words of a description that are no part of it. Sorted.
const DESCRIBING: &[&str] = &[
    "add",
    "create",
    "delete",
    "fetch",
    "get",
    "integer",
    "list",
    "modify",
    "new",
    "not",
    "numeric",
    "object",
    "optional",
    "provided",
    "provisioned",
    "read",
    "remove",
    "required",
    "resource",
    "resources",
    "retrieve",
    "string",
    "target",
    "unique",
    "update",
    "valid",
    "want",
];
/// Words that end in `id` and are no identifiers. Sorted.
const NOT_JOINED: &[&str] = &[
    "android", "avoid", "covid", "grid", "hybrid", "liquid", "paid", "rapid", "solid", "valid",
    "void",
];

/// What a parameter identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// By its words, each in the singular.
    Named(Vec<String>),
    /// A resource, by the segments of the path that leads to it.
    Resource(Vec<String>),
}

/// How it is known that a parameter is an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Its name says what it identifies, or its description does.
    Said,
    /// It is an identifier of what the tool itself is about.
    OwnObject,
    /// Its name is that of a thing: `user`.
    BareName,
    /// The name of a resource.
    ResourceName,
}

/// A parameter that identifies something.
#[derive(Clone, Debug)]
pub struct Need {
    /// The parameter.
    pub parameter: String,
    /// What it identifies.
    pub thing: Thing,
    /// True where the schema requires it.
    pub is_required: bool,
    /// How that is known.
    pub sign: Sign,
    /// What the schema says of it.
    pub description: String,
    /// For a part of a path of HTTP, the path before it: `/people` for `/people/{person_id}`.
    pub collection: Option<String>,
}

/// What the tool of some parameters is about.
pub struct Subject<'a> {
    /// The nouns of its name.
    pub nouns: &'a [String],
    /// The last of them, unless it only names the server.
    pub object: Option<&'a String>,
    /// The segments of its name, for a name that is a path: `drive.files.list`.
    pub segments: Option<&'a [String]>,
    /// True where it makes what it is about.
    pub makes: bool,
    /// The path of its request, for an operation of an HTTP API.
    pub path: Option<&'a str>,
}

/// The parameters of a tool that identify something.
pub fn of_schema(
    properties: &Map<String, Value>,
    required: &[String],
    subject: &Subject<'_>,
) -> Vec<Need> {
    let most = match required.is_empty() {
        true => MAX_OPTIONAL,
        false => MAX_PARAMETERS,
    };
    // Optional parameters are read only where none is required: a call does without them.
    let wanted = properties
        .iter()
        .filter(|(name, _)| required.is_empty() || required.contains(name));
    let mut needs = Vec::new();
    for (name, schema) in wanted.take(most) {
        if may_identify(schema) {
            needs.extend(need(name, schema, required.contains(name), subject));
        }
    }
    needs
}

/// False for values that no other tool has to give: flags, objects, and those with a default or a
/// list of choices.
fn may_identify(schema: &Value) -> bool {
    let Some(schema) = schema.as_object() else {
        return false;
    };
    let has_default = match schema.get("default") {
        None | Some(Value::Null) => false,
        Some(value) => value != "",
    };
    let is_chosen = schema.contains_key("enum") || schema.contains_key("const");
    let items = schema.get("items").and_then(Value::as_object);
    !has_default
        && !is_chosen
        && !is_flag_or_object(schema)
        && !items.is_some_and(is_flag_or_object)
}

fn is_flag_or_object(schema: &Map<String, Value>) -> bool {
    has_type(schema, "boolean") || has_type(schema, "object")
}

fn has_type(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    }
}

fn need(name: &str, schema: &Value, is_required: bool, subject: &Subject<'_>) -> Option<Need> {
    let description = schema.get("description").and_then(Value::as_str);
    let description = description.unwrap_or_default();
    let description = &description[..description.floor_char_boundary(MAX_DESCRIPTION)];
    let (thing, sign) = match resource(name, subject) {
        Some(resource) => (Thing::Resource(resource), Sign::ResourceName),
        None => {
            let (noun, sign) = named(name, description, schema, is_required, subject)?;
            (Thing::Named(noun), sign)
        }
    };
    // What a tool makes is not there yet.
    let is_made = match &thing {
        Thing::Named(noun) => noun.last() == subject.nouns.last(),
        Thing::Resource(_) => name != "parent",
    };
    if subject.makes && is_made {
        return None;
    }
    Some(Need {
        parameter: name.to_owned(),
        thing,
        is_required,
        sign,
        description: description.to_owned(),
        collection: subject.path.and_then(|path| collection(path, name)),
    })
}

/// What lies before a parameter in a path.
fn collection(path: &str, parameter: &str) -> Option<String> {
    let (before, _) = path.split_once(&format!("/{{{parameter}}}"))?;
    if before.is_empty() {
        return None;
    }
    Some(before.to_owned())
}

/// The resource that a parameter names, for a tool whose name is the path of its method.
fn resource(name: &str, subject: &Subject<'_>) -> Option<Vec<String>> {
    let (_method, path) = subject.segments?.split_last()?;
    let resource = match name {
        "name" | "path" | "resourceName" | "resource" => path,
        "parent" => path.split_last()?.1,
        _ => return None,
    };
    (!resource.is_empty()).then_some(resource.to_vec())
}

/// The words of what a parameter identifies.
fn named(
    name: &str,
    description: &str,
    schema: &Value,
    is_required: bool,
    subject: &Subject<'_>,
) -> Option<(Vec<String>, Sign)> {
    let all = with_joined_identifier(words(name));
    let (last, before) = all.split_last()?;
    let speaks_of_identifier = IDENTIFIER.is_match(description);
    let is_identifier = is_in(IDENTIFIERS, last);
    if is_identifier && before.iter().any(|word| is_in(NOT_BEFORE, word)) {
        return None;
    }
    let may_be = speaks_of_identifier && !all.iter().any(|word| is_in(NEVER, word));
    if is_identifier || (may_be && is_in(PERHAPS_IDENTIFIERS, last)) {
        return match said(before, description) {
            Some(noun) => Some((noun, Sign::Said)),
            None => Some((vec![subject.object?.clone()], Sign::OwnObject)),
        };
    }
    if may_be && all.len() <= 3 && !is_in(TEXTS, last) {
        return Some((said(&all, description)?, Sign::Said));
    }
    let schema = schema.as_object()?;
    let is_value =
        !schema.contains_key("type") || has_type(schema, "string") || has_type(schema, "integer");
    if !is_required || !is_value || all.len() > 2 {
        return None;
    }
    let noun = nouns(&all);
    if noun.is_empty() {
        return None;
    }
    Some((noun, Sign::BareName))
}

/// What these words of a name say that is identified, or else what the description says.
fn said(words: &[String], description: &str) -> Option<Vec<String>> {
    let noun = specific(words);
    if noun.is_empty() {
        return described(description);
    }
    Some(noun)
}

/// True for a word of a sorted list.
fn is_in(list: &[&str], word: &str) -> bool {
    list.binary_search(&word).is_ok()
}

/// `userid` as `user`, `id`.
fn with_joined_identifier(mut words: Vec<String>) -> Vec<String> {
    if let [only] = words.as_slice()
        && !is_in(NOT_JOINED, only)
        && let Some(noun) = ["uuid", "ids", "id"]
            .iter()
            .find_map(|ending| only.strip_suffix(ending))
        && noun.len() > 1
    {
        words = vec![noun.to_owned(), "id".to_owned()];
    }
    words
}

/// The nouns that say of what something is the identifier: `folder` of `parent_folder`, and both of
/// `news_item`.
fn specific(words: &[String]) -> Vec<String> {
    let mut specific = nouns(words);
    while let Some(first) = specific.first()
        && is_in(GENERIC, first)
    {
        specific.remove(0);
    }
    specific
}

static IDENTIFIER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(ids?|identifiers?|identifies|uuids?|guid|urns?|sids?|gid|slug)\b")
});

/// Where a description says of what a value is the identifier, and how many of the words there are
/// read: the first ones, or the last ones before `id`.
static PHRASES: LazyLock<[(Regex, Side); 3]> = LazyLock::new(|| {
    [
        (
            pattern(
                r"(?i)\b(?:ids?|identifiers?|uuid|guid|sid|urn|slug|name|number|handle|key)\s*(?:\(s\))?\s*(?:of|for)\s+((?:[a-z][\w-]*\s*){1,5})",
            ),
            Side::After,
        ),
        (
            pattern(r"(?i)\bidentifies\s+((?:[a-z][\w-]*\s*){1,4})"),
            Side::After,
        ),
        (
            pattern(
                r"(?i)\b((?:[a-z][\w-]*\s+){1,3})(?:ids?|identifiers?|uuids?|guid|sids?|urns?|slug)\b",
            ),
            Side::Before,
        ),
    ]
});

#[derive(Clone, Copy)]
enum Side {
    Before,
    After,
}

/// The patterns of this file are constants; the tests use each of them.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// The words for a thing in the description of its identifier.
fn described(description: &str) -> Option<Vec<String>> {
    for (pattern, side) in PHRASES.iter() {
        let Some(phrase) = pattern.captures(description).and_then(|all| all.get(1)) else {
            continue;
        };
        let mut noun = phrase_nouns(phrase.as_str());
        // The words nearest to that for the identifier name the thing.
        match side {
            Side::After => noun.truncate(3),
            Side::Before => drop(noun.drain(..noun.len().saturating_sub(2))),
        }
        if !noun.is_empty() {
            return Some(noun);
        }
    }
    None
}

/// The nouns of a phrase up to the word that ends the name of the thing.
fn phrase_nouns(phrase: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in words(phrase) {
        if is_in(ENDING, &word) {
            if found.is_empty() {
                continue;
            }
            break;
        }
        let others = [DESCRIBING, GENERIC, IDENTIFIERS];
        if !is_empty(&word) && !others.iter().any(|list| is_in(list, &word)) {
            found.push(singular(&word));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn needs(name_nouns: &[&str], schema: &Value) -> Vec<(String, Vec<String>)> {
        let nouns: Vec<String> = name_nouns.iter().map(|noun| (*noun).to_owned()).collect();
        let subject = Subject {
            nouns: &nouns,
            object: nouns.last(),
            segments: None,
            makes: false,
            path: None,
        };
        let required: Vec<String> =
            serde_json::from_value(schema["required"].clone()).unwrap_or_default();
        let properties = schema["properties"].as_object().unwrap();
        let needs = of_schema(properties, &required, &subject);
        let named = needs.into_iter().map(|need| match need.thing {
            Thing::Named(noun) => (need.parameter, noun),
            Thing::Resource(path) => (need.parameter, path),
        });
        named.collect()
    }

    #[test]
    fn lists_are_sorted() {
        for list in [
            IDENTIFIERS,
            NOT_BEFORE,
            PERHAPS_IDENTIFIERS,
            NEVER,
            TEXTS,
            GENERIC,
            ENDING,
            DESCRIBING,
            NOT_JOINED,
        ] {
            assert!(list.is_sorted(), "{list:?}");
        }
    }

    #[test]
    fn identifiers_say_what_they_identify() {
        for (name, description, noun) in [
            ("person_id", "", "person"),
            ("calendarId", "", "calendar"),
            ("databaseClusterUuids", "", "database cluster"),
            ("userid", "", "user"),
            ("id", "The ID of the goal to remove.", "goal"),
            (
                "Sid",
                "The string that identifies the Recording resource.",
                "recording",
            ),
            ("resourceId", "The customer ID.", "customer"),
            (
                "issue_number",
                "The number that identifies the issue.",
                "issue",
            ),
            ("channel", "An encoded ID of the channel.", "channel"),
            ("id", "", "invoice"),
            ("tasklist", "", "tasklist"),
        ] {
            let schema = json!({
                "properties": { name: { "type": "string", "description": description } },
                "required": [name],
            });
            let noun = noun.split(' ').map(str::to_owned).collect();
            assert_eq!(
                needs(&["invoice"], &schema),
                [(name.to_owned(), noun)],
                "{name}: {description}"
            );
        }
    }

    #[test]
    fn other_parameters_identify_nothing() {
        for (name, schema) in [
            ("page_id", json!({ "type": "boolean" })),
            ("next_page_id", json!({ "type": "string" })),
            ("api_key", json!({ "type": "string" })),
            ("user_id", json!({ "type": "string", "default": "me" })),
            ("plan_id", json!({ "enum": ["small", "large"] })),
            (
                "user_id",
                json!({ "type": "array", "items": { "type": "object" } }),
            ),
            (
                "text",
                json!({ "type": "array", "description": "without the ID" }),
            ),
        ] {
            let schema = json!({ "properties": { name: schema }, "required": [name] });
            assert!(needs(&["invoice"], &schema).is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_made_is_no_need() {
        let properties =
            json!({ "sender_id": { "type": "string" }, "service_id": { "type": "string" } });
        let required = ["sender_id".to_owned(), "service_id".to_owned()];
        let nouns = ["sender".to_owned()];
        let subject = Subject {
            nouns: &nouns,
            object: nouns.last(),
            segments: None,
            makes: true,
            path: None,
        };
        let needs = of_schema(properties.as_object().unwrap(), &required, &subject);
        let parameters: Vec<&str> = needs.iter().map(|need| need.parameter.as_str()).collect();
        assert_eq!(parameters, ["service_id"]);
    }
}
