//! Finds what makes a schema none: providers refuse a request with such a tool, and no client can fill its arguments.

use serde_json::{Map, Value};

/// The types of JSON Schema.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];
/// Keywords with a list of schemas, with one schema, and with a schema for each name.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SINGLE: [&str; 3] = ["additionalProperties", "items", "not"];
const NAMED: [&str; 3] = ["$defs", "definitions", "properties"];
/// Schemas within each other that are looked at.
const MAX_DEPTH: usize = 32;

/// The first mistake of a schema, with its place.
pub(crate) fn mistake(schema: &Map<String, Value>) -> Option<String> {
    within(schema, "", 0)
}

fn within(schema: &Map<String, Value>, place: &str, depth: usize) -> Option<String> {
    if depth == MAX_DEPTH {
        return None;
    }
    if let Some(what) = own(schema) {
        let place = match place {
            "" => "at its root".to_owned(),
            place => format!("at {place}"),
        };
        return Some(format!("its schema has {what} {place}"));
    }
    for (keyword, value) in schema {
        let keyword = keyword.as_str();
        let found = match value {
            Value::Object(one) if SINGLE.contains(&keyword) => {
                within(one, &format!("{place}/{keyword}"), depth + 1)
            }
            Value::Object(named) if NAMED.contains(&keyword) => {
                let mut schemas = named.iter();
                schemas.find_map(|(name, schema)| {
                    within(
                        schema.as_object()?,
                        &format!("{place}/{keyword}/{name}"),
                        depth + 1,
                    )
                })
            }
            Value::Array(list) if LISTS.contains(&keyword) => {
                let mut schemas = list.iter().enumerate();
                schemas.find_map(|(number, schema)| {
                    within(
                        schema.as_object()?,
                        &format!("{place}/{keyword}/{number}"),
                        depth + 1,
                    )
                })
            }
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// A mistake of the schema itself, without those within it.
fn own(schema: &Map<String, Value>) -> Option<String> {
    if let Some(kind) = schema.get("type")
        && !is_type(kind)
    {
        return Some(format!(
            "the type {kind} (the types are {})",
            TYPES.join(", ")
        ));
    }
    if let Some(properties) = schema.get("properties")
        && !properties.is_object()
    {
        return Some("`properties` that are no object of names and schemas".to_owned());
    }
    if let Some(required) = schema.get("required")
        && !is_list_of_names(required)
    {
        return Some("`required` that is no list of names".to_owned());
    }
    None
}

fn is_type(kind: &Value) -> bool {
    let is_known = |kind: &Value| kind.as_str().is_some_and(|kind| TYPES.contains(&kind));
    match kind {
        Value::Array(kinds) => kinds.iter().all(is_known),
        kind => is_known(kind),
    }
}

fn is_list_of_names(required: &Value) -> bool {
    required
        .as_array()
        .is_some_and(|names| names.iter().all(Value::is_string))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_mistake_is_named_with_its_place() {
        for (schema, expected) in [
            (json!({"type": "objekt"}), "the type \"objekt\""),
            (json!({"type": "objekt"}), "at its root"),
            (json!({"properties": ["a"]}), "`properties`"),
            (json!({"required": true}), "`required`"),
            (
                json!({"type": "object", "properties": {"a": {"type": "int"}}}),
                "the type \"int\" (the types are array, boolean, integer, null, number, object, string) at /properties/a",
            ),
            (
                json!({"properties": {"a": {"items": {"anyOf": [{}, {"type": ["string", "float"]}]}}}}),
                "at /properties/a/items/anyOf/1",
            ),
        ] {
            let found = mistake(schema.as_object().unwrap()).unwrap();
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn schemas_are_no_mistakes() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {"type": {"type": "string"}, "required": {"type": "boolean"}}, "required": ["type"]}),
            json!({"type": ["object", "null"], "additionalProperties": false, "items": true}),
            json!({"properties": {"a": true, "b": {"enum": [1], "default": {"type": "objekt"}}}}),
        ] {
            assert_eq!(mistake(schema.as_object().unwrap()), None, "{schema}");
        }
    }
}
