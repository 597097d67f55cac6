//! What it costs to check a value by a JSON schema, counted before it is done. A short schema may
//! stand for a very large one, because its parts can refer to each other. Pure.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::tools::percent::decoded;

/// More than anything may cost.
const TOO_MUCH: u64 = u64::MAX;
/// Nested and referred-to schemas within each other; deeper ones cost too much.
const MAX_DEPTH: usize = 200;
/// Pairs of a schema and a value that are looked at while the cost of a check is counted.
const MAX_PAIRS: usize = 200_000;
/// The cost of a pattern that can look around or refer back, for each value: its check ends at a bound.
const BACKTRACKING: u64 = 1_000;
/// States of a class of letters in a pattern, such as `\w`.
const CLASS_SIZE: u64 = 50;

/// Keywords with a schema for the same value.
const SAME_VALUE: [&str; 4] = ["not", "if", "then", "else"];
/// Keywords with a list of schemas for the same value.
const SAME_VALUE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that refer to a schema for the same value.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords with a schema for each item.
const ITEMS: [&str; 4] = ["items", "additionalItems", "contains", "unevaluatedItems"];
/// Keywords with a schema for each field.
const FIELDS: [&str; 2] = ["additionalProperties", "unevaluatedProperties"];
/// Keywords with schemas for the same value, if it has a field of that name.
const DEPENDENT: [&str; 2] = ["dependentSchemas", "dependencies"];

/// The schemas of one document, and where references lead.
pub struct SchemaCosts<'a> {
    root: &'a Value,
    /// Schemas by their anchors and ids. Several of one name may be meant by a dynamic reference.
    named: HashMap<&'a str, Vec<&'a Value>>,
}

impl<'a> SchemaCosts<'a> {
    /// Reads the names of the document's schemas.
    pub fn of(root: &'a Value) -> Self {
        let mut named = HashMap::new();
        collect_names(root, &mut named);
        SchemaCosts { root, named }
    }

    /// The schemas that the document stands for, each counted as often as it is referred to, with the
    /// sizes of its patterns and lists of values.
    pub fn expanded(&self) -> u64 {
        Walk::new(self).cost(self.root, None, 0)
    }

    /// The steps of checking this value.
    pub fn steps(&self, value: &Value) -> u64 {
        Walk::new(self).cost(self.root, Some(value), 0)
    }

    /// The schemas that a reference may lead to.
    fn targets(&self, reference: &str) -> Vec<&'a Value> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = match document {
            "" => Some(self.root),
            id => self.named(id).first().copied(),
        };
        match (base, fragment) {
            (Some(base), "") => vec![base],
            (Some(base), pointer) if pointer.starts_with('/') => {
                base.pointer(&decoded(pointer)).into_iter().collect()
            }
            (_, anchor) => self.named(anchor).to_vec(),
        }
    }

    fn named(&self, name: &str) -> &[&'a Value] {
        self.named.get(name).map_or(&[], Vec::as_slice)
    }
}

fn collect_names<'a>(value: &'a Value, named: &mut HashMap<&'a str, Vec<&'a Value>>) {
    match value {
        Value::Object(fields) => {
            for keyword in ["$id", "id", "$anchor", "$dynamicAnchor"] {
                if let Some(Value::String(name)) = fields.get(keyword) {
                    let name = name.trim_end_matches('#').trim_start_matches('#');
                    named.entry(name).or_default().push(value);
                }
            }
            for field in fields.values() {
                collect_names(field, named);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_names(item, named);
            }
        }
        _ => {}
    }
}

/// Counts schemas, or the steps of checking values by them.
struct Walk<'c, 'a> {
    costs: &'c SchemaCosts<'a>,
    /// By the addresses of schema and value.
    known: HashMap<(usize, usize), u64>,
}

impl<'c, 'a> Walk<'c, 'a> {
    fn new(costs: &'c SchemaCosts<'a>) -> Self {
        Walk {
            costs,
            known: HashMap::new(),
        }
    }

    /// The cost of a schema for this value, or for all values.
    fn cost(&mut self, schema: &'a Value, value: Option<&Value>, depth: usize) -> u64 {
        let Value::Object(fields) = schema else {
            return 1;
        };
        let pair = (address(schema), value.map_or(0, address));
        if let Some(known) = self.known.get(&pair) {
            return *known;
        }
        if depth > MAX_DEPTH || self.known.len() >= MAX_PAIRS {
            return TOO_MUCH;
        }
        // What is known of a pair while it is being counted. A schema may refer to itself, but the
        // check of a value has no end if it leads to itself.
        let meanwhile = if value.is_some() { TOO_MUCH } else { 1 };
        self.known.insert(pair, meanwhile);
        let mut total = own_cost(fields, value);
        for sub in self.same_value(fields, value) {
            total = total.saturating_add(self.cost(sub, value, depth + 1));
        }
        let parts = parts(fields, value);
        if fields.keys().any(|key| key.starts_with("unevaluated")) {
            // What the others have looked at is found out by checking again, for each part.
            total = total.saturating_mul(2 + parts.len() as u64);
        }
        for (sub, part) in parts {
            total = total.saturating_add(self.cost(sub, part, depth + 1));
        }
        self.known.insert(pair, total);
        total
    }

    /// The schemas within this one that are for the same value.
    fn same_value(&self, fields: &'a Map<String, Value>, value: Option<&Value>) -> Vec<&'a Value> {
        let mut schemas: Vec<&Value> = given(fields, &SAME_VALUE).collect();
        for keyword in SAME_VALUE_LISTS {
            schemas.extend(list(fields, keyword));
        }
        for reference in given(fields, &REFERENCES) {
            if let Value::String(reference) = reference {
                schemas.extend(self.costs.targets(reference));
            }
        }
        for keyword in DEPENDENT {
            for (name, sub) in entries(fields, keyword) {
                // Without a value, any field may be there.
                if value.is_none_or(|value| value.get(name).is_some()) {
                    schemas.push(sub);
                }
            }
        }
        schemas
    }
}

/// The schemas for the parts of a value, each with its part; all schemas for parts without a value.
fn parts<'a, 'v>(
    fields: &'a Map<String, Value>,
    value: Option<&'v Value>,
) -> Vec<(&'a Value, Option<&'v Value>)> {
    match value {
        None => {
            let all = all_for_parts(fields);
            all.into_iter().map(|sub| (sub, None)).collect()
        }
        Some(Value::Array(items)) => parts_of_array(fields, items),
        Some(Value::Object(object)) => parts_of_object(fields, object),
        Some(_) => Vec::new(),
    }
}

fn all_for_parts(fields: &Map<String, Value>) -> Vec<&Value> {
    let mut schemas: Vec<&Value> = given(fields, &ITEMS).collect();
    schemas.extend(given(fields, &FIELDS));
    schemas.extend(fields.get("propertyNames"));
    for keyword in ["items", "prefixItems"] {
        schemas.extend(list(fields, keyword));
    }
    for keyword in ["properties", "patternProperties"] {
        schemas.extend(entries(fields, keyword).map(|(_, sub)| sub));
    }
    schemas
}

fn parts_of_array<'a, 'v>(
    fields: &'a Map<String, Value>,
    items: &'v [Value],
) -> Vec<(&'a Value, Option<&'v Value>)> {
    let mut parts = Vec::new();
    for sub in given(fields, &ITEMS) {
        parts.extend(items.iter().map(|item| (sub, Some(item))));
    }
    // A list has a schema for each position; `items` has one only in old drafts.
    for keyword in ["items", "prefixItems"] {
        for (sub, item) in list(fields, keyword).zip(items) {
            parts.push((sub, Some(item)));
        }
    }
    parts
}

fn parts_of_object<'a, 'v>(
    fields: &'a Map<String, Value>,
    object: &'v Map<String, Value>,
) -> Vec<(&'a Value, Option<&'v Value>)> {
    let declared = fields.get("properties").and_then(Value::as_object);
    let mut parts = Vec::new();
    for (name, part) in object {
        let own = declared.and_then(|all| all.get(name));
        parts.extend(own.map(|sub| (sub, Some(part))));
        // Any pattern may match.
        for (_, sub) in entries(fields, "patternProperties") {
            parts.push((sub, Some(part)));
        }
        if own.is_none() {
            parts.extend(given(fields, &FIELDS).map(|sub| (sub, Some(part))));
        }
        // A name is a short text, so its schema is counted as for every value.
        parts.extend(fields.get("propertyNames").map(|sub| (sub, None)));
    }
    parts
}

/// The cost of the keywords of a schema that have no schemas in them.
fn own_cost(fields: &Map<String, Value>, value: Option<&Value>) -> u64 {
    let mut total = 1 + fields.len() as u64;
    for keyword in ["enum", "const"] {
        total = total.saturating_add(fields.get(keyword).map_or(0, size) / 10);
    }
    if let Some(Value::String(pattern)) = fields.get("pattern") {
        // A pattern is checked against texts only: any other value costs what an empty text does.
        let text = value.map(|value| value.as_str().unwrap_or_default().len());
        total = total.saturating_add(pattern_cost(pattern, text));
    }
    for (pattern, _) in entries(fields, "patternProperties") {
        let names = value.map(names_length);
        total = total.saturating_add(pattern_cost(pattern, names));
    }
    if let Some(value) = value
        && (fields.contains_key("uniqueItems") || fields.contains_key("enum"))
    {
        total = total.saturating_add(size(value));
    }
    total
}

/// The cost of a pattern for a text of this many bytes, or of the pattern alone.
fn pattern_cost(pattern: &str, text: Option<usize>) -> u64 {
    let size = pattern_size(pattern);
    let Some(text) = text else {
        return size / 10;
    };
    let own = if backtracks(pattern) { BACKTRACKING } else { 0 };
    own.saturating_add(size.saturating_mul(text as u64) / 100)
}

/// Whether a pattern looks around or refers back.
fn backtracks(pattern: &str) -> bool {
    for sign in ["(?=", "(?!", "(?<", "(?>"] {
        if pattern.contains(sign) {
            return true;
        }
    }
    let mut pairs = pattern.as_bytes().windows(2);
    pairs.any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit())
}

/// The states of a pattern, about: what is repeated a number of times counts as often.
fn pattern_size(pattern: &str) -> u64 {
    // Of each group around the one that is open: its size so far without the last part.
    let mut around: Vec<u64> = Vec::new();
    // Of the open group: its size so far without the last part, and that of the last part.
    let (mut before, mut last) = (0_u64, 0_u64);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '(' => {
                around.push(before.saturating_add(last));
                (before, last) = (0, 0);
            }
            ')' => {
                last = before.saturating_add(last);
                before = around.pop().unwrap_or_default();
            }
            '{' => {
                let inside = letters.by_ref().take_while(|letter| *letter != '}');
                let inside: String = inside.collect();
                // The upper bound, or the lower one where no upper one is written.
                let mut numbers = inside.rsplit(',').map(str::trim);
                let most = numbers.find_map(|number| number.parse::<u64>().ok());
                last = last.saturating_mul(most.unwrap_or(1).max(1));
            }
            other => {
                before = before.saturating_add(last);
                let is_class = match other {
                    '.' => true,
                    '\\' => letters.next().is_some_and(char::is_alphabetic),
                    _ => false,
                };
                last = if is_class { CLASS_SIZE } else { 1 };
            }
        }
    }
    let all = around.into_iter().chain([before, last]);
    all.fold(0, u64::saturating_add)
}

fn names_length(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.keys().map(String::len).sum(),
        _ => 0,
    }
}

/// The values within this one, itself included, and the bytes of its texts in hundreds.
fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 100,
        _ => 1,
    }
}

/// The values of those of these keywords that a schema has.
fn given<'a>(
    fields: &'a Map<String, Value>,
    keywords: &'a [&str],
) -> impl Iterator<Item = &'a Value> {
    keywords.iter().filter_map(|keyword| fields.get(*keyword))
}

fn list<'a>(
    fields: &'a Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = &'a Value> + use<'a> {
    let listed = fields.get(keyword).and_then(Value::as_array);
    listed.into_iter().flatten()
}

fn entries<'a>(
    fields: &'a Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    let named = fields.get(keyword).and_then(Value::as_object);
    named.into_iter().flatten()
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Definitions of which each refers to the next one twice.
    fn doubling(levels: usize, twice: impl Fn(&str) -> Value) -> Value {
        let next = |level: usize| format!("#/$defs/d{level}");
        let mut schema = json!({ "$ref": next(0), "$defs": {} });
        for level in 0..levels {
            schema["$defs"][format!("d{level}")] = twice(&next(level + 1));
        }
        schema["$defs"][format!("d{levels}")] = json!({ "type": "string" });
        schema
    }

    #[test]
    fn what_doubles_is_counted_without_doing_it() {
        let twice = |keyword: &'static str| move |next: &str| json!({ keyword: [{ "$ref": next }, { "$ref": next }] });
        for schema in [
            doubling(24, twice("allOf")),
            doubling(24, twice("anyOf")),
            doubling(24, twice("oneOf")),
            doubling(
                24,
                |next| json!({ "not": { "$ref": next }, "if": { "$ref": next } }),
            ),
            doubling(
                24,
                |next| json!({ "unevaluatedProperties": false, "allOf": [{ "$ref": next }] }),
            ),
            doubling(
                24,
                |next| json!({ "properties": { "a": { "$ref": next }, "b": { "$ref": next } } }),
            ),
            doubling(
                24,
                |next| json!({ "patternProperties": { "a": { "$ref": next }, ".": { "$ref": next } } }),
            ),
            doubling(
                24,
                |next| json!({ "contains": { "$ref": next }, "items": { "$ref": next }, "minContains": 2 }),
            ),
            doubling(
                24,
                |next| json!({ "dependentSchemas": { "a": { "$ref": next }, "b": { "$ref": next } } }),
            ),
            doubling(300, |next| json!({ "$ref": next })),
            json!({ "pattern": "((((a{100}){100}){100}){100})" }),
            json!({ "patternProperties": { "(\\w{100}){100}": {} } }),
        ] {
            assert!(SchemaCosts::of(&schema).expanded() > 10_000, "{schema}");
        }
        let plain = json!({ "type": "object", "properties": { "day": { "pattern": r"^\d{4}-\d{2}-\d{2}$" } } });
        assert!(SchemaCosts::of(&plain).expanded() < 100);
    }

    #[test]
    fn a_check_that_leads_to_itself_or_grows_with_the_value_is_counted() {
        let mut deep = json!(1);
        for _ in 0..40 {
            deep = json!({ "a": deep, "b": [] });
        }
        for schema in [
            json!({ "$ref": "#" }),
            json!({ "$dynamicAnchor": "x", "anyOf": [{ "$dynamicRef": "#x" }] }),
            json!({ "$id": "https://a.example/s", "not": { "$ref": "https://a.example/s#" } }),
            json!({ "$defs": { "%": { "$ref": "#/$defs/%25" } }, "$ref": "#/$defs/%25" }),
            json!({ "properties": { "a": { "allOf": [{ "$ref": "#" }, { "properties": {}, "$ref": "#" }] } } }),
            json!({ "additionalProperties": { "$ref": "#" }, "patternProperties": { "a": { "$ref": "#" } } }),
        ] {
            assert!(
                SchemaCosts::of(&schema).steps(&deep) > 1_000_000,
                "{schema}"
            );
        }
        let list = json!({ "items": { "type": "integer" }, "uniqueItems": true });
        let numbers = Value::from((0..10_000).collect::<Vec<_>>());
        let steps = SchemaCosts::of(&list).steps(&numbers);
        assert!((10_000..100_000).contains(&steps), "{steps}");
    }
}
