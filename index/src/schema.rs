//! JSON schemas in the form that models' providers and MCP clients take: JSON Schema 2020-12 with an
//! object at the root.
//!
//! [`modern`] translates keywords of earlier drafts and of OpenAPI and leaves out what no validator
//! takes; what a schema accepts stays the same. [`of_arguments`] and [`of_result`] also give it an
//! object at its root.

use serde_json::{Map, Value, json};

mod keywords;
mod mistakes;
mod null;
mod root;

pub(crate) use keywords::{modern, modern_value};
pub(crate) use mistakes::mistake;
pub(crate) use root::{of_arguments, of_result, refused};

/// The objects that a schema lists under this keyword.
fn branches<'a>(
    schema: &'a Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = &'a Map<String, Value>> {
    let listed = schema.get(keyword).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_object)
}

/// The names of a keyword such as `type` that is a name or a list of them.
fn names(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// A schema that accepts what one of these does.
fn any_of(schemas: Vec<Value>) -> Value {
    json!({ "anyOf": schemas })
}
