//! What a tool's schema declares about one value. Pure.

use serde_json::{Map, Value};

/// Longest chain of references; a longer one counts as circular.
const MAX_REFERENCES: usize = 16;
/// Schemas that are read to find out whether a value may be null. Branches may refer to each other,
/// so a short schema could stand for very many.
const MAX_BRANCHES: usize = 500;

/// The schema of a tool, in which its references are looked up.
#[derive(Clone, Copy)]
pub struct Schemas<'a> {
    root: &'a Map<String, Value>,
}

impl<'a> Schemas<'a> {
    /// The schemas within this one.
    pub fn of(root: &'a Map<String, Value>) -> Self {
        Schemas { root }
    }

    /// The schema itself, the target of its `$ref`, or its only alternative besides null. `None`
    /// for broken and circular references.
    pub fn resolve(self, schema: Option<&'a Map<String, Value>>) -> Option<&'a Map<String, Value>> {
        let mut schema = schema?;
        for _ in 0..MAX_REFERENCES {
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                schema = self.target(reference)?;
            } else if let Some(only) = only_alternative(schema) {
                schema = only;
            } else {
                return Some(schema);
            }
        }
        None
    }

    /// True unless the schema refuses null, in OpenAPI's words too.
    pub fn allows_null(self, schema: &'a Map<String, Value>) -> bool {
        let mut left = MAX_BRANCHES;
        self.permits(schema, &mut left)
    }

    fn permits(self, schema: &'a Map<String, Value>, left: &mut usize) -> bool {
        // What cannot be read to its end refuses nothing; the check of the arguments decides.
        let Some(rest) = left.checked_sub(1) else {
            return true;
        };
        *left = rest;
        if is_nullable(schema) {
            return true;
        }
        if names_other_values(schema) {
            return false;
        }
        if let Some(Value::String(reference)) = schema.get("$ref")
            && let Some(target) = self.target(reference)
            && !self.permits(target, left)
        {
            return false;
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(branches)) = schema.get(keyword)
                && !branches.iter().any(|one| self.branch_permits(one, left))
            {
                return false;
            }
        }
        if let Some(Value::Array(branches)) = schema.get("allOf")
            && !branches.iter().all(|one| self.branch_permits(one, left))
        {
            return false;
        }
        match schema.get("not") {
            Some(not) => !self.branch_permits(not, left),
            None => true,
        }
    }

    /// As [`Schemas::permits`], for a branch, which may be `true` or `false`.
    fn branch_permits(self, branch: &'a Value, left: &mut usize) -> bool {
        match branch {
            Value::Object(schema) => self.permits(schema, left),
            other => other != &Value::Bool(false),
        }
    }

    fn target(self, reference: &str) -> Option<&'a Map<String, Value>> {
        let pointer = reference.strip_prefix('#')?;
        if pointer.is_empty() {
            return Some(self.root);
        }
        let (first, rest) = match pointer.strip_prefix('/')?.split_once('/') {
            Some((first, rest)) => (first, format!("/{rest}")),
            None => (pointer.strip_prefix('/')?, String::new()),
        };
        // The escapes of JSON pointers, in this order: `~01` stands for `~1`, not for `/`.
        self.root
            .get(&first.replace("~1", "/").replace("~0", "~"))?
            .pointer(&rest)?
            .as_object()
    }
}

/// True where OpenAPI's keyword allows null. Documents write it beside an `enum` without null, a
/// `$ref` or `allOf` too, and mean the same.
fn is_nullable(schema: &Map<String, Value>) -> bool {
    // Version 2 has no such keyword; its documents use the extension.
    let keywords = ["nullable", "x-nullable"];
    keywords
        .iter()
        .any(|key| schema.get(*key) == Some(&Value::Bool(true)))
}

/// True where `type`, `enum` or `const` leaves null out.
fn names_other_values(schema: &Map<String, Value>) -> bool {
    let by_type = match schema.get("type") {
        Some(Value::Array(types)) => !types.iter().any(is_null_type),
        Some(one) => one != "null",
        None => false,
    };
    let by_enum = match schema.get("enum") {
        Some(Value::Array(values)) => !values.contains(&Value::Null),
        _ => false,
    };
    let by_const = schema.get("const").is_some_and(|value| !value.is_null());
    by_type || by_enum || by_const
}

/// Null, or the name of its type.
fn is_null_type(kind: &Value) -> bool {
    kind.is_null() || kind == "null"
}

/// The one branch of `anyOf`, `oneOf` or `allOf` that is not null.
fn only_alternative(schema: &Map<String, Value>) -> Option<&Map<String, Value>> {
    if schema.contains_key("type") || schema.contains_key("properties") {
        return None;
    }
    let keywords = ["anyOf", "oneOf", "allOf"];
    let mut lists = keywords.iter().filter_map(|key| schema.get(*key));
    let branches = lists.find_map(Value::as_array)?;
    let mut only = None;
    for branch in branches.iter().filter_map(Value::as_object) {
        if is_null_only(branch) {
            continue;
        }
        if only.is_some() {
            return None;
        }
        only = Some(branch);
    }
    only
}

fn is_null_only(schema: &Map<String, Value>) -> bool {
    let types = schema.get("type");
    types.is_some_and(|kind| kind == "null")
        || types.is_some_and(lists_only_null)
        || schema.get("const") == Some(&Value::Null)
        || schema.get("enum").is_some_and(lists_only_null)
}

fn lists_only_null(listed: &Value) -> bool {
    match listed {
        // An empty list allows nothing, not even null.
        Value::Array(all) => !all.is_empty() && all.iter().all(is_null_type),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allows(root: &Value, schema: &Value) -> bool {
        Schemas::of(root.as_object().unwrap()).allows_null(schema.as_object().unwrap())
    }

    #[test]
    fn null_is_allowed_where_a_branch_allows_it() {
        let root = json!({ "$defs": {
            "text": { "type": "string" },
            "maybe": { "type": ["string", "null"] },
        } });
        for schema in [
            json!({}),
            json!({ "description": "anything" }),
            json!({ "type": "null" }),
            json!({ "type": ["string", "null"] }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] }),
            json!({ "oneOf": [{ "type": "null" }, { "$ref": "#/$defs/text" }] }),
            json!({ "anyOf": [{ "anyOf": [{ "type": "integer" }, { "type": "null" }] }, { "type": "string" }] }),
            json!({ "oneOf": [{ "type": "string" }, { "const": null }] }),
            json!({ "oneOf": [{ "type": "string" }, { "enum": [null] }] }),
            json!({ "anyOf": [{ "type": "string" }, true] }),
            json!({ "$ref": "#/$defs/maybe" }),
            json!({ "$ref": "#/$defs/gone" }),
            json!({ "allOf": [{ "$ref": "#/$defs/maybe" }] }),
            json!({ "enum": ["a", null] }),
            json!({ "type": "string", "nullable": true }),
            json!({ "nullable": true, "enum": ["a"] }),
            json!({ "nullable": true, "allOf": [{ "type": "object" }] }),
            json!({ "nullable": true, "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "nullable": true, "$ref": "#/$defs/text" }),
            json!({ "oneOf": [{ "type": "string", "nullable": true }, { "type": "integer" }] }),
            json!({ "type": "string", "x-nullable": true }),
            json!({ "not": { "type": "string" } }),
        ] {
            assert!(allows(&root, &schema), "{schema}");
        }
    }

    #[test]
    fn null_is_refused_where_no_branch_allows_it() {
        let root = json!({ "$defs": { "text": { "type": "string" } } });
        for schema in [
            json!({ "type": "string" }),
            json!({ "type": ["string", "integer"] }),
            json!({ "type": "string", "nullable": false }),
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "oneOf": [{ "$ref": "#/$defs/text" }, false] }),
            json!({ "allOf": [{ "type": ["string", "null"] }, { "type": "string" }] }),
            json!({ "$ref": "#/$defs/text" }),
            json!({ "$ref": "#/$defs/text", "description": "beside a reference" }),
            json!({ "enum": ["a", "b"] }),
            json!({ "const": "a" }),
            json!({ "not": { "type": "null" } }),
        ] {
            assert!(!allows(&root, &schema), "{schema}");
        }
    }

    #[test]
    fn circular_branches_end() {
        let circle = json!({ "anyOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] });
        let root = json!({ "$defs": { "a": circle } });
        assert!(allows(&root, &json!({ "$ref": "#/$defs/a" })));
    }
}
