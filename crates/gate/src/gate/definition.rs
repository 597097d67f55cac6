//! A hash of a tool's definition. An approval of a tool holds as long as its hash is the same.

use std::fmt;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use toolscout_index::formats::BODY;
use toolscout_index::{Kind, Tool};

/// SHA-256 over everything in a tool that influences a model, a person or the gate: title,
/// description, schemas, hints and the HTTP operation, and the text of a skill. The order of keys in a schema does not
/// matter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Definition([u8; 32]);

impl Definition {
    /// Hashes a tool's definition.
    pub fn of(tool: &Tool) -> Self {
        // Records of approved tools hold these hashes: another field, or another order, would make
        // every tool look changed.
        let mut fields = json!([
            tool.title,
            tool.description,
            tool.input_schema,
            tool.output_schema,
            tool.annotations,
            tool.metadata.get("openapi"),
        ]);
        // What a model is told by a skill.
        if let (Kind::Skill, Value::Array(fields)) = (tool.kind, &mut fields) {
            fields.push(json!(tool.metadata.get(BODY)));
        }
        Definition(digest(&mut fields))
    }

    /// The hash's bytes, as stored.
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
        f.write_str(&hex::encode(&self.0[..8]))
    }
}

/// SHA-256 over a value. Sorts its keys first, so that their order does not matter.
pub fn digest(value: &mut Value) -> [u8; 32] {
    value.sort_all_objects();
    Sha256::digest(value.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_covers_description_and_hints_and_ignores_the_order_of_keys() {
        let tool = |schema: Value, description: &str| {
            let mut tool = Tool::new("s", "t").unwrap().with_description(description);
            tool.input_schema = schema.as_object().unwrap().clone();
            tool
        };
        let one = tool(
            json!({ "type": "object", "properties": { "a": {}, "b": {} } }),
            "reads",
        );
        let reordered = tool(
            json!({ "properties": { "b": {}, "a": {} }, "type": "object" }),
            "reads",
        );
        assert_eq!(Definition::of(&one), Definition::of(&reordered));
        let mut hinted = one.clone();
        hinted.annotations.read_only_hint = Some(true);
        let described = tool(Value::Object(one.input_schema.clone()), "reads and sends");
        for other in [hinted, described] {
            assert_ne!(Definition::of(&one), Definition::of(&other));
        }
    }
}
