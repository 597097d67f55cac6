//! JSON without duplicate keys.
//!
//! Of `{"quantity": 1, "quantity": 1000}` most parsers keep the last value, some the first. A
//! server could act on another value than the one that a person approved. Duplicate keys are
//! therefore rejected in all JSON that leads to a call.

use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Parses a text.
///
/// # Errors
/// For invalid JSON, and for a duplicate key, with its name and position.
pub fn unique(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str::<Unique>(text).map(|unique| unique.0)
}

/// A key as a step of a JSON pointer, with `~` and `/` escaped (RFC 6901).
pub fn pointer_step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// A value without duplicate keys.
#[derive(Debug)]
pub struct Unique(pub Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unique(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            // The parser has decoded escapes already, so a key that is only written differently
            // counts too.
            if fields.contains_key(&key) {
                return Err(A::Error::custom(format!(
                    "the key {key:?} comes twice; give it once"
                )));
            }
            let Unique(value) = entries.next_value()?;
            fields.insert(key, value);
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_value_is_parsed() {
        let text = r#"{"a":[null,true,-1,18446744073709551615,0.5,"x"],"b":{"a":1}}"#;
        assert_eq!(
            unique(text).unwrap(),
            json!({ "a": [null, true, -1, u64::MAX, 0.5, "x"], "b": { "a": 1 } })
        );
    }

    #[test]
    fn a_duplicate_key_is_reported_at_any_depth() {
        for text in [
            r#"{"a":1,"b":2,"a":3}"#,
            r#"[{"x":{"a":1,"a":1}}]"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            let message = unique(text).unwrap_err().to_string();
            assert!(
                message.contains("\"a\" comes twice") && message.contains("line 1 column"),
                "{message}"
            );
        }
    }
}
