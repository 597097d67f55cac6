//! Keywords of earlier drafts and dialects as those of JSON Schema 2020-12.

use serde_json::{Map, Number, Value, json};

use super::{names, null};

/// The dialects whose schemas are left under their name. Others have other keywords, which are
/// translated here, or are unknown.
const KEPT_DIALECTS: [&str; 3] = ["draft-07/schema", "2019-09/schema", "2020-12/schema"];
/// The types of JSON Schema.
const TYPES: [&str; 7] = [
    "string", "number", "integer", "boolean", "object", "array", "null",
];

/// What the value of a keyword must be.
#[derive(Clone, Copy)]
enum Kind {
    Schema,
    /// A list of schemas that is not empty.
    Schemas,
    /// Schemas by name.
    NamedSchemas,
    Text,
    Flag,
    Number,
    PositiveNumber,
    /// A whole number that is not negative.
    Count,
    /// Different texts.
    Texts,
    /// Lists of texts by name.
    NamedTexts,
    List,
}

fn kind(keyword: &str) -> Option<Kind> {
    Some(match keyword {
        "additionalProperties"
        | "items"
        | "contains"
        | "propertyNames"
        | "not"
        | "if"
        | "then"
        | "else"
        | "unevaluatedItems"
        | "unevaluatedProperties"
        | "contentSchema" => Kind::Schema,
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => Kind::Schemas,
        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
            Kind::NamedSchemas
        }
        "title" | "description" | "$comment" | "format" | "pattern" | "$ref" | "$dynamicRef"
        | "$id" | "$anchor" | "$dynamicAnchor" | "$recursiveRef" | "$recursiveAnchor"
        | "contentMediaType" | "contentEncoding" => Kind::Text,
        "deprecated" | "readOnly" | "writeOnly" | "uniqueItems" => Kind::Flag,
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => Kind::Number,
        "multipleOf" => Kind::PositiveNumber,
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => Kind::Count,
        "required" => Kind::Texts,
        "dependentRequired" => Kind::NamedTexts,
        "enum" | "examples" => Kind::List,
        _ => return None,
    })
}

/// The same schema in JSON Schema 2020-12: it accepts what was meant, and has no keyword whose value
/// a validator refuses.
///
/// Translated are the keywords of draft 3 to 2019-09 and of OpenAPI: booleans for
/// `exclusiveMinimum` and `required`, lists for `items`, `dependencies`, `nullable`, `type: file`, and
/// names of types that others use.
pub(crate) fn modern(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut modern = Map::new();
    for (keyword, value) in schema {
        match keyword.as_str() {
            "type" => insert_type(&mut modern, value),
            "nullable" | "x-nullable" if value.is_boolean() => {}
            "$vocabulary" => {}
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => {}
            "minimum" if is_true(schema, "exclusiveMinimum") => {
                insert_known(&mut modern, "exclusiveMinimum", Kind::Number, value);
            }
            "maximum" if is_true(schema, "exclusiveMaximum") => {
                insert_known(&mut modern, "exclusiveMaximum", Kind::Number, value);
            }
            "items" if value.is_array() => {
                insert_known(&mut modern, "prefixItems", Kind::Schemas, value);
            }
            "additionalItems" => {
                if schema.get("items").is_some_and(Value::is_array) {
                    insert_known(&mut modern, "items", Kind::Schema, value);
                }
            }
            "dependencies" => insert_dependencies(&mut modern, value),
            "examples" | "enum" if !value.is_array() => {
                modern.insert(keyword.clone(), json!([value]));
            }
            "$schema" => insert_dialect(&mut modern, value),
            _ => match kind(keyword) {
                Some(kind) => insert_known(&mut modern, keyword, kind, value),
                None => drop(modern.insert(keyword.clone(), value.clone())),
            },
        }
    }
    add_required_properties(schema, &mut modern);
    if is_true(schema, "nullable") || is_true(schema, "x-nullable") {
        modern = null::allow(modern);
    }
    modern
}

fn is_true(schema: &Map<String, Value>, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

/// A value where a schema stands.
pub(crate) fn modern_value(value: &Value) -> Value {
    match value {
        Value::Object(schema) => modern(schema).into(),
        Value::Bool(_) => value.clone(),
        // Some write `"name": "string"` for a type.
        Value::String(_) => {
            let mut schema = Map::new();
            insert_type(&mut schema, value);
            schema.into()
        }
        _ => json!({}),
    }
}

/// Inserts a keyword if its value is of this kind, or leaves it out: a validator would refuse the
/// whole schema.
fn insert_known(into: &mut Map<String, Value>, keyword: &str, kind: Kind, value: &Value) {
    let translated = match (kind, value) {
        (Kind::Schema, Value::Null) => None,
        (Kind::Schema, value) => Some(modern_value(value)),
        (Kind::Schemas, Value::Array(schemas)) if !schemas.is_empty() => {
            Some(schemas.iter().map(modern_value).collect())
        }
        (Kind::NamedSchemas, Value::Object(schemas)) => {
            let mut translated = Map::new();
            for (name, schema) in schemas {
                translated.insert(name.clone(), modern_value(schema));
            }
            Some(translated.into())
        }
        (Kind::Text, Value::String(_)) if is_valid_text(keyword, value) => Some(value.clone()),
        (Kind::Flag, Value::Bool(_)) | (Kind::Number, Value::Number(_)) => Some(value.clone()),
        (Kind::PositiveNumber, Value::Number(number)) if number.as_f64() > Some(0.0) => {
            Some(value.clone())
        }
        (Kind::Count, Value::Number(number)) if is_count(number) => Some(value.clone()),
        (Kind::Texts, Value::Array(_)) => Some(distinct(names(Some(value)))),
        (Kind::NamedTexts, Value::Object(lists)) => {
            let mut distinct_lists = Map::new();
            for (name, list) in lists {
                distinct_lists.insert(name.clone(), distinct(names(Some(list))));
            }
            Some(distinct_lists.into())
        }
        (Kind::List, Value::Array(_)) => Some(value.clone()),
        _ => None,
    };
    if let Some(value) = translated {
        into.insert(keyword.to_owned(), value);
    }
}

/// True for a whole number that is not negative; `2.0` is one too.
fn is_count(number: &Number) -> bool {
    match number.as_f64() {
        Some(number) => number >= 0.0 && number.fract() == 0.0,
        None => false,
    }
}

/// An identifier that a validator refuses would make it refuse the whole schema.
fn is_valid_text(keyword: &str, value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    match keyword {
        // An empty fragment at the end is allowed.
        "$id" => !text.trim_end_matches('#').contains('#'),
        "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" => {
            text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        }
        _ => true,
    }
}

fn distinct(texts: Vec<&str>) -> Value {
    let mut kept: Vec<&str> = Vec::new();
    for text in texts {
        if !kept.contains(&text) {
            kept.push(text);
        }
    }
    kept.into()
}

/// Inserts `type`, unless it names no type that JSON has: then any value is accepted.
fn insert_type(into: &mut Map<String, Value>, value: &Value) {
    let mut types: Vec<&str> = Vec::new();
    let listed = match value {
        Value::Array(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    for item in listed {
        let named = match item {
            Value::String(text) => text.split([',', '|']).map(str::trim).collect(),
            // `[string, null]` in YAML means the type.
            Value::Null if value.is_array() => vec!["null"],
            _ => vec!["any"],
        };
        for name in named {
            if name.eq_ignore_ascii_case("file") {
                into.entry("format").or_insert("binary".into());
            }
            // An unknown type may mean any value, so none is named then.
            let Some(known) = type_named(name) else {
                return;
            };
            if !types.contains(&known) {
                types.push(known);
            }
        }
    }
    let value = match (types.as_slice(), value) {
        ([], _) => return,
        ([only], Value::String(_)) => (*only).into(),
        _ => types.into(),
    };
    into.insert("type".into(), value);
}

/// The type that a name means, also one that other languages and dialects have.
fn type_named(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    if name.ends_with("[]") {
        return Some("array");
    }
    // `array<string>` is an array, whatever is in it.
    let name = name.split(['[', '<']).next().unwrap_or_default();
    for known in TYPES {
        if known == name {
            return Some(known);
        }
    }
    Some(match name {
        "str" | "text" | "char" | "date" | "datetime" | "date-time" | "time" | "uuid" | "uri"
        | "url" | "email" | "file" | "binary" | "bytes" | "byte" | "password" => "string",
        "int" | "int32" | "int64" | "long" | "short" | "uint" | "bigint" => "integer",
        "float" | "float32" | "float64" | "double" | "decimal" | "num" => "number",
        "bool" => "boolean",
        "dict" | "map" | "hash" | "struct" | "json" | "mapping" | "record" => "object",
        "list" | "tuple" | "set" | "sequence" => "array",
        "none" | "nil" | "nonetype" => "null",
        _ => return None,
    })
}

/// `dependencies` of draft 7 and before, which later drafts ignore.
fn insert_dependencies(into: &mut Map<String, Value>, value: &Value) {
    for (name, needed) in value.as_object().into_iter().flatten() {
        let (keyword, needed) = match needed {
            Value::String(_) | Value::Array(_) => {
                ("dependentRequired", distinct(names(Some(needed))))
            }
            schema => ("dependentSchemas", modern_value(schema)),
        };
        let named = into.entry(keyword).or_insert(json!({}));
        if let Value::Object(named) = named {
            named.insert(name.clone(), needed);
        }
    }
}

fn insert_dialect(into: &mut Map<String, Value>, value: &Value) {
    let dialect = value.as_str().unwrap_or_default().trim_end_matches('#');
    if KEPT_DIALECTS.iter().any(|kept| dialect.ends_with(kept)) {
        into.insert("$schema".into(), value.clone());
    }
}

/// Draft 3 says of each property whether it is required.
fn add_required_properties(schema: &Map<String, Value>, modern: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    let mut required: Vec<&str> = Vec::new();
    for (name, property) in properties {
        if property.get("required") == Some(&Value::Bool(true)) {
            required.push(name);
        }
    }
    if required.is_empty() {
        return;
    }
    let mut all = names(modern.get("required"));
    all.extend(required);
    let all = distinct(all);
    modern.insert("required".into(), all);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(schema: Value) -> Value {
        modern_value(&schema)
    }

    #[test]
    fn keywords_of_other_dialects_become_those_of_2020_12() {
        for (schema, expected) in [
            (
                json!({"type": "integer", "minimum": 0, "exclusiveMinimum": true}),
                json!({"type": "integer", "exclusiveMinimum": 0}),
            ),
            (
                json!({"maximum": 9, "exclusiveMaximum": false}),
                json!({"maximum": 9}),
            ),
            (
                json!({"type": "file"}),
                json!({"format": "binary", "type": "string"}),
            ),
            (
                json!({"type": "STRING", "enum": "a"}),
                json!({"type": "string", "enum": ["a"]}),
            ),
            (
                json!({"type": ["int", null, "int"]}),
                json!({"type": ["integer", "null"]}),
            ),
            (json!({"type": "any", "title": null}), json!({})),
            (
                json!({"type": "string|null"}),
                json!({"type": ["string", "null"]}),
            ),
            (
                json!({"items": [{"type": "str"}], "additionalItems": false}),
                json!({"prefixItems": [{"type": "string"}], "items": false}),
            ),
            (
                json!({"dependencies": {"a": ["b"], "c": {"type": "float"}}}),
                json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"c": {"type": "number"}}}),
            ),
            (
                json!({"properties": {"a": {"required": true}, "b": "string", "c": null}}),
                json!({"properties": {"a": {}, "b": {"type": "string"}, "c": {}}, "required": ["a"]}),
            ),
            (
                json!({"required": ["a", "a", 1], "minLength": -1, "multipleOf": 0, "anyOf": [], "$recursiveAnchor": true}),
                json!({"required": ["a"]}),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-04/schema#", "examples": {"a": 1}}),
                json!({"examples": [{"a": 1}]}),
            ),
        ] {
            let read = translated(schema.clone());
            assert_eq!(read, expected, "{schema}");
            assert_eq!(translated(read.clone()), read, "a second time");
        }
    }

    #[test]
    fn a_valid_schema_and_data_in_it_stay_as_they_are() {
        for schema in [
            json!({"type": "object", "properties": {"type": {"type": "string"}, "nullable": {"type": "boolean"}},
                "required": ["type"], "additionalProperties": false}),
            json!({"enum": [{"type": "file", "nullable": true}], "default": {"exclusiveMinimum": true}}),
            json!({"x-note": {"type": "file"}, "const": {"required": true}, "examples": [{"type": 1}]}),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": ["string", "null"]}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": true}, "prefixItems": [{}], "items": false}),
        ] {
            assert_eq!(translated(schema.clone()), schema);
        }
    }
}
