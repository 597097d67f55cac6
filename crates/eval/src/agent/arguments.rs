//! The smallest arguments that a schema accepts, for the calls of the oracle.

use serde_json::{Map, Value, json};

use toolscout_gate::tools::Arguments;

/// Most levels of a schema that are followed, against recursion.
const MAX_DEPTH: usize = 12;

/// Arguments with the required fields only. Where a value cannot be generated, such as a match of a
/// pattern, they violate the schema, and the agent refuses the call.
pub fn smallest(schema: &Map<String, Value>) -> Arguments {
    let root = Value::Object(schema.clone());
    object(&root, &root, 0)
}

fn value(schema: &Value, root: &Value, depth: usize) -> Value {
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    if let Some(Value::Array(choices)) = schema.get("enum")
        && let Some(choice) = choices.first()
    {
        return choice.clone();
    }
    if let Some(elsewhere) = elsewhere(schema, root) {
        return value(elsewhere, root, depth + 1);
    }
    match type_of(schema) {
        "object" => Value::Object(object(schema, root, depth)),
        "array" => array(schema, root, depth),
        "integer" => json!(number(schema) as i64),
        "number" => json!(number(schema)),
        "boolean" => json!(true),
        "null" => Value::Null,
        _ => string(schema),
    }
}

fn object(schema: &Value, root: &Value, depth: usize) -> Arguments {
    let required = schema.get("required").and_then(Value::as_array);
    // A required field may have no schema of its own: then any value is valid.
    let anything = json!({});
    let mut fields = Arguments::new();
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        let schema = schema["properties"].get(name).unwrap_or(&anything);
        fields.insert(name.to_owned(), value(schema, root, depth + 1));
    }
    fields
}

fn array(schema: &Value, root: &Value, depth: usize) -> Value {
    let items = schema
        .get("minItems")
        .and_then(Value::as_u64)
        .unwrap_or(0)
        // A schema may require any number; the calls have no effect, so a hundred items are enough.
        .min(100) as usize;
    let item = match schema.get("items") {
        Some(schema) => value(schema, root, depth + 1),
        None => Value::Null,
    };
    Value::Array(vec![item; items])
}

/// Resolves a schema: the target of a reference, or the first alternative that is not null.
fn elsewhere<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Value> {
    if let Some(pointer) = schema.get("$ref").and_then(Value::as_str) {
        return root.pointer(pointer.strip_prefix('#')?);
    }
    let options = ["anyOf", "oneOf", "allOf"]
        .iter()
        .find_map(|key| schema.get(*key)?.as_array())?;
    options
        .iter()
        .find(|option| option["type"] != "null")
        .or(options.first())
}

fn type_of(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null")
            .unwrap_or("null"),
        // Many schemas leave out the type of an object.
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    }
}

fn number(schema: &Value) -> f64 {
    let limit = |name: &str| schema.get(name).and_then(Value::as_f64);
    // One beyond an exclusive limit, so that integers fit too.
    let lowest = limit("minimum").or(limit("exclusiveMinimum").map(|limit| limit + 1.0));
    let highest = limit("maximum").or(limit("exclusiveMaximum").map(|limit| limit - 1.0));
    let step = limit("multipleOf").unwrap_or(1.0);
    match (lowest, highest) {
        (Some(lowest), _) => (lowest / step).ceil() * step,
        (None, Some(highest)) => (highest / step).floor().min(1.0) * step,
        (None, None) => step,
    }
}

fn string(schema: &Value) -> Value {
    let text = match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2025-01-31",
        Some("date-time") => "2025-01-31T12:00:00Z",
        Some("time") => "12:00:00Z",
        Some("email") => "a@example.com",
        Some("uri" | "url") => "https://example.com",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("ipv4") => "192.0.2.1",
        _ => "x",
    };
    let shortest = schema
        .get("minLength")
        .and_then(Value::as_u64)
        .unwrap_or(0)
        // A schema may require any length, as it may require any number of items.
        .min(1_000) as usize;
    Value::String(format!("{text:x<shortest$}"))
}

#[cfg(test)]
mod tests {
    use toolscout_index::Tool;

    use super::*;
    use toolscout_gate::tools::arguments::check;

    fn smallest_of(schema: Value) -> Arguments {
        let mut tool = Tool::new("", "t").unwrap();
        tool.input_schema = schema.as_object().unwrap().clone();
        let arguments = smallest(&tool.input_schema);
        assert_eq!(check(&tool, &arguments), Ok(()), "{arguments:?}");
        arguments
    }

    #[test]
    fn generated_arguments_satisfy_the_schema() {
        let arguments = smallest_of(json!({
            "type": "object",
            "properties": {
                "unit": { "enum": ["C", "F"] },
                "days": { "type": "integer", "minimum": 3 },
                "share": { "type": "number", "maximum": 0.5 },
                "tags": { "type": "array", "items": { "type": "string", "minLength": 4 }, "minItems": 2 },
                "place": { "$ref": "#/$defs/place" },
                "when": { "anyOf": [{ "type": "null" }, { "type": "string", "format": "date" }] },
                "note": { "type": ["null", "string"] },
                "unneeded": { "type": "string" },
            },
            "required": ["unit", "days", "share", "tags", "place", "when", "note"],
            "$defs": { "place": { "properties": { "city": { "const": "Oslo" } }, "required": ["city"] } },
        }));
        assert_eq!(
            (&arguments["unit"], &arguments["days"], &arguments["tags"]),
            (&json!("C"), &json!(3), &json!(["xxxx", "xxxx"]))
        );
        assert_eq!(
            (&arguments["place"], &arguments["when"]),
            (&json!({ "city": "Oslo" }), &json!("2025-01-31"))
        );
        assert!(!arguments.contains_key("unneeded"));
    }

    #[test]
    fn recursive_schemas_terminate() {
        let schema = json!({ "required": ["next"], "properties": { "next": { "$ref": "#" } } });
        assert!(smallest(schema.as_object().unwrap()).contains_key("next"));
        assert!(smallest_of(json!({})).is_empty());
    }
}
