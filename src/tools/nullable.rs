//! OpenAPI's `nullable`, which JSON Schema does not know: in the schemas of tools that were stored as
//! their document had them. Pure.

use serde_json::{Map, Value, json};

/// Keywords whose value is data and no schema.
const DATA_KEYWORDS: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keywords whose value maps names to schemas.
const NAME_KEYWORDS: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// Keywords that say in several places what a value may be.
const COMBINING_KEYWORDS: [&str; 6] = ["$ref", "allOf", "anyOf", "const", "not", "oneOf"];

/// The schema in which null is a value like others wherever `nullable` allows it.
pub fn with_null_types(schema: &Map<String, Value>) -> Value {
    let mut fields: Map<String, Value> = schema
        .iter()
        .map(|(keyword, value)| (keyword.clone(), translated_keyword(keyword, value)))
        .collect();
    let words = ["nullable", "x-nullable"].map(|word| fields.remove(word));
    if !words.contains(&Some(Value::Bool(true))) {
        return fields.into();
    }
    if COMBINING_KEYWORDS
        .iter()
        .any(|key| fields.contains_key(*key))
    {
        return json!({ "anyOf": [{ "type": "null" }, fields] });
    }
    if let Some(types) = fields.get_mut("type") {
        let mut all = match types.take() {
            Value::Array(all) => all,
            one => vec![one],
        };
        add(&mut all, "null".into());
        *types = all.into();
    }
    if let Some(Value::Array(allowed)) = fields.get_mut("enum") {
        add(allowed, Value::Null);
    }
    fields.into()
}

fn add(all: &mut Vec<Value>, one: Value) {
    if !all.contains(&one) {
        all.push(one);
    }
}

fn translated(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => with_null_types(fields),
        Value::Array(items) => items.iter().map(translated).collect(),
        scalar => scalar.clone(),
    }
}

fn translated_keyword(keyword: &str, value: &Value) -> Value {
    match value {
        _ if DATA_KEYWORDS.contains(&keyword) => value.clone(),
        Value::Object(named) if NAME_KEYWORDS.contains(&keyword) => named
            .iter()
            .map(|(name, schema)| (name.clone(), translated(schema)))
            .collect(),
        _ => translated(value),
    }
}
