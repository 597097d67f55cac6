//! The schema of the arguments that are left to models.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Parts of a schema that are schemas of the same object.
const PARTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Deepest nesting of such parts that is looked at.
const MAX_DEPTH: usize = 8;

type Schema = Map<String, Value>;

/// The schema without the fixed arguments and with the defaults; `None` if that changes nothing.
pub fn edited(schema: &Schema, fixed: &Schema, defaults: &Schema) -> Option<Schema> {
    if fixed.is_empty() && defaults.is_empty() {
        return None;
    }
    let mut edited = schema.clone();
    edit(&mut edited, fixed, defaults, 0);
    (edited != *schema).then_some(edited)
}

fn edit(schema: &mut Schema, fixed: &Schema, defaults: &Schema, depth: usize) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| !fixed.contains_key(name));
        for (name, default) in defaults {
            if let Some(Value::Object(property)) = properties.get_mut(name) {
                property.insert("default".into(), default.clone());
            }
        }
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| {
            let name = name.as_str().unwrap_or_default();
            !fixed.contains_key(name) && !defaults.contains_key(name)
        });
    }
    if depth == MAX_DEPTH {
        return;
    }
    for part in PARTS {
        let Some(Value::Array(schemas)) = schema.get_mut(part) else {
            continue;
        };
        for schema in schemas {
            if let Value::Object(schema) = schema {
                edit(schema, fixed, defaults, depth + 1);
            }
        }
    }
}

/// The names of the arguments.
pub fn properties(schema: &Schema) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    collect(schema, &mut names, 0);
    names
}

fn collect<'a>(schema: &'a Schema, names: &mut BTreeSet<&'a str>, depth: usize) {
    if let Some(Value::Object(properties)) = schema.get("properties") {
        names.extend(properties.keys().map(String::as_str));
    }
    if depth == MAX_DEPTH {
        return;
    }
    for part in PARTS {
        let Some(Value::Array(schemas)) = schema.get(part) else {
            continue;
        };
        for schema in schemas {
            if let Value::Object(schema) = schema {
                collect(schema, names, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Schema {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn fixed_arguments_leave_every_part_of_the_schema() {
        let schema = object(json!({
            "properties": { "a": {}, "b": { "type": "string" } }, "required": ["a", "b"],
            "anyOf": [{ "required": ["a"] }, { "properties": { "c": {} }, "required": ["c"] }],
        }));
        let fixed = object(json!({ "a": 1, "c": 2 }));
        let defaults = object(json!({ "b": "x" }));
        let expected = json!({
            "properties": { "b": { "type": "string", "default": "x" } }, "required": [],
            "anyOf": [{ "required": [] }, { "properties": {}, "required": [] }],
        });
        let edited = edited(&schema, &fixed, &defaults).map(Value::Object);
        assert_eq!(edited, Some(expected));
        assert_eq!(properties(&schema), BTreeSet::from(["a", "b", "c"]));
    }

    #[test]
    fn without_such_arguments_the_schema_stays() {
        let schema = object(json!({ "properties": { "a": {} } }));
        assert_eq!(edited(&schema, &Map::new(), &Map::new()), None);
        let other = object(json!({ "b": 1 }));
        assert_eq!(edited(&schema, &other, &Map::new()), None);
    }
}
