//! `nullable` of OpenAPI 3.0 as a type, a branch or an enum member.

use serde_json::{Map, Value, json};

use super::any_of;

/// Keywords that say something about a schema and refuse no value. They stay outside when a schema
/// becomes a branch.
const ANNOTATIONS: [&str; 14] = [
    "$schema",
    "$id",
    "$anchor",
    "$defs",
    "definitions",
    "$comment",
    "title",
    "description",
    "default",
    "example",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];
/// Keywords that may refuse null and cannot be extended.
const OPAQUE: [&str; 6] = ["allOf", "not", "if", "const", "$ref", "$dynamicRef"];

/// The schema that also accepts null.
pub(super) fn allow(mut schema: Map<String, Value>) -> Map<String, Value> {
    if accepts(&schema) {
        return schema;
    }
    if OPAQUE.iter().any(|keyword| schema.contains_key(*keyword)) {
        return as_branch(schema);
    }
    match schema.get_mut("type") {
        Some(Value::Array(types)) if !types.contains(&json!("null")) => types.push("null".into()),
        Some(Value::String(name)) if name != "null" => {
            let types = json!([name, "null"]);
            schema.insert("type".into(), types);
        }
        _ => {}
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    for keyword in ["anyOf", "oneOf"] {
        // A second branch that accepts null would make `oneOf` refuse it.
        if let Some(Value::Array(branches)) = schema.get_mut(keyword)
            && !branches.iter().any(accepts_value)
        {
            branches.push(json!({ "type": "null" }));
        }
    }
    schema
}

fn as_branch(schema: Map<String, Value>) -> Map<String, Value> {
    let (mut outside, mut inside) = (Map::new(), Map::new());
    for (keyword, value) in schema {
        let is_annotation = ANNOTATIONS.contains(&keyword.as_str()) || keyword.starts_with("x-");
        let side = match is_annotation {
            true => &mut outside,
            false => &mut inside,
        };
        side.insert(keyword, value);
    }
    let Value::Object(either) = any_of(vec![inside.into(), json!({ "type": "null" })]) else {
        return outside;
    };
    outside.extend(either);
    outside
}

/// Whether a schema certainly accepts null.
fn accepts(schema: &Map<String, Value>) -> bool {
    for (keyword, value) in schema {
        let accepts = match (keyword.as_str(), value) {
            ("type", Value::Array(types)) => types.contains(&json!("null")),
            ("type", name) => name == "null",
            ("const", value) => value.is_null(),
            ("enum", Value::Array(values)) => values.contains(&Value::Null),
            ("allOf", Value::Array(branches)) => branches.iter().all(accepts_value),
            ("anyOf" | "oneOf", Value::Array(branches)) => branches.iter().any(accepts_value),
            // What these accept is not looked at.
            ("not" | "if" | "$ref" | "$dynamicRef", _) => false,
            _ => true,
        };
        if !accepts {
            return false;
        }
    }
    true
}

fn accepts_value(schema: &Value) -> bool {
    match schema {
        Value::Object(schema) => accepts(schema),
        other => *other == Value::Bool(true),
    }
}

#[cfg(test)]
mod tests {
    use super::super::modern;
    use super::*;

    #[test]
    fn nullable_becomes_a_type_a_branch_or_an_enum_member() {
        let string = || json!({"type": "string"});
        let no_value = || json!({"type": "null"});
        for (schema, expected) in [
            (
                json!({"type": "string", "nullable": true}),
                json!({"type": ["string", "null"]}),
            ),
            (
                json!({"type": "string", "x-nullable": true, "enum": ["a"]}),
                json!({"type": ["string", "null"], "enum": ["a", null]}),
            ),
            (
                json!({"nullable": true, "enum": ["a", null], "type": "string"}),
                json!({"enum": ["a", null], "type": ["string", "null"]}),
            ),
            (
                json!({"nullable": true, "oneOf": [string(), {"type": "integer"}]}),
                json!({"oneOf": [string(), {"type": "integer"}, no_value()]}),
            ),
            (
                json!({"oneOf": [{"type": "string", "nullable": true}], "nullable": true}),
                json!({"oneOf": [{"type": ["string", "null"]}]}),
            ),
            (
                json!({"nullable": true, "allOf": [{"type": "object"}], "description": "d", "x-a": 1}),
                json!({"description": "d", "x-a": 1, "anyOf": [{"allOf": [{"type": "object"}]}, no_value()]}),
            ),
            (
                json!({"$ref": "#/$defs/a", "nullable": true}),
                json!({"anyOf": [{"$ref": "#/$defs/a"}, no_value()]}),
            ),
            (
                json!({"const": "a", "nullable": true}),
                json!({"anyOf": [{"const": "a"}, no_value()]}),
            ),
            (
                json!({"type": "object", "anyOf": [{"required": ["a"], "type": "object"}], "nullable": true}),
                json!({"type": ["object", "null"], "anyOf": [{"required": ["a"], "type": "object"}, no_value()]}),
            ),
            (json!({"nullable": true}), json!({})),
            (json!({"type": "string", "nullable": false}), string()),
            (
                json!({"type": "array", "items": {"type": "string", "nullable": true}}),
                json!({"type": "array", "items": {"type": ["string", "null"]}}),
            ),
        ] {
            let read = Value::Object(modern(schema.as_object().unwrap()));
            assert_eq!(read, expected, "{schema}");
        }
    }
}
