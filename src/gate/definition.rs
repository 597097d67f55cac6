//! What a tool says of itself, as a hash: two tools of one definition are called, and approved,
//! alike.

use std::fmt;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolscout_index::Tool;

/// SHA-256 over everything of a tool that steers a model, a person or the gate: title, description,
/// schemas, hints and the HTTP operation. The order of keys in a schema is not part of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Definition([u8; 32]);

impl Definition {
    /// The definition of a tool.
    pub fn of(tool: &Tool) -> Self {
        let mut said = json!([
            tool.title,
            tool.description,
            tool.input_schema,
            tool.output_schema,
            tool.annotations,
            tool.metadata.get("openapi"),
        ]);
        Definition(digest(&mut said))
    }

    /// As it is stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Definition {
    fn from(bytes: [u8; 32]) -> Self {
        Definition(bytes)
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .take(8)
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// SHA-256 over a value, whatever the order of its keys.
pub fn digest(value: &mut Value) -> [u8; 32] {
    value.sort_all_objects();
    Sha256::digest(value.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_model_is_in_it_and_the_order_of_keys_is_not() {
        let tool = |schema: Value, description: &str| {
            let mut tool = Tool::new("s", "t").unwrap().with_description(description);
            tool.input_schema = schema.as_object().unwrap().clone();
            tool
        };
        let one = tool(
            json!({ "type": "object", "properties": { "a": {}, "b": {} } }),
            "reads",
        );
        let turned = tool(
            json!({ "properties": { "b": {}, "a": {} }, "type": "object" }),
            "reads",
        );
        assert_eq!(Definition::of(&one), Definition::of(&turned));
        let mut hinted = one.clone();
        hinted.annotations.read_only_hint = Some(true);
        let described = tool(Value::Object(one.input_schema.clone()), "reads and sends");
        for other in [hinted, described] {
            assert_ne!(Definition::of(&one), Definition::of(&other));
        }
    }
}
