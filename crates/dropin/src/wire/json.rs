//! JSON as a list of parts that keep their bytes: what is not changed is sent as it came.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Most fields of an object that is split: no request has more.
const MAX_FIELDS: usize = 10_000;
/// Most items of a list that is split. Their places take 32 bytes each, however short they are.
const MAX_ITEMS: usize = 1 << 20;

/// The fields of an object in their order, each value as the bytes it was sent in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<(String, Bytes)>);

impl Fields {
    /// Splits an object; `None` for anything else. The values share memory with `object`.
    pub fn read(object: &Bytes) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_slice(object);
        let fields = reader.deserialize_map(FieldReader(object)).ok()?;
        reader.end().ok()?;
        Some(Fields(fields))
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a field. Of two fields with one name the last counts, as for most readers.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        let found = self.0.iter().rfind(|(field, _)| field == name);
        found.map(|(_, value)| value)
    }

    /// The value of a field that is a text.
    pub fn text(&self, name: &str) -> Option<String> {
        serde_json::from_slice(self.get(name)?).ok()
    }

    /// The value of a field that is true or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        serde_json::from_slice(self.get(name)?).ok()
    }

    /// The parsed value of a field.
    pub fn value(&self, name: &str) -> Option<Value> {
        serde_json::from_slice(self.get(name)?).ok()
    }

    /// Replaces a field in its place, or adds it at the end.
    pub fn set(&mut self, name: &str, value: Bytes) {
        match self.0.iter_mut().rfind(|(field, _)| field == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(field, _)| field != name);
    }

    /// The object as JSON.
    pub fn to_json(&self) -> Bytes {
        // About 24 bytes for a name and the signs around it, so that the buffer rarely grows.
        let length: usize = self.0.iter().map(|(_, value)| value.len() + 24).sum();
        let mut json = Vec::with_capacity(length + 2);
        json.push(b'{');
        for (place, (name, value)) in self.0.iter().enumerate() {
            if place > 0 {
                json.push(b',');
            }
            json.extend_from_slice(text(name).as_bytes());
            json.push(b':');
            json.extend_from_slice(value);
        }
        json.push(b'}');
        json.into()
    }
}

struct FieldReader<'b>(&'b Bytes);

impl<'de> Visitor<'de> for FieldReader<'de> {
    type Value = Vec<(String, Bytes)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if fields.len() == MAX_FIELDS {
                return Err(A::Error::custom("it has too many fields"));
            }
            fields.push((name, self.0.slice_ref(value.get().as_bytes())));
        }
        Ok(fields)
    }
}

/// Splits a list; `None` for anything else. The items share memory with `list`.
pub fn items(list: &Bytes) -> Option<Vec<Bytes>> {
    let mut reader = serde_json::Deserializer::from_slice(list);
    let items = reader.deserialize_seq(ItemReader(list)).ok()?;
    reader.end().ok()?;
    Some(items)
}

struct ItemReader<'b>(&'b Bytes);

impl<'de> Visitor<'de> for ItemReader<'de> {
    type Value = Vec<Bytes>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Bytes>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<&RawValue>()? {
            if items.len() == MAX_ITEMS {
                return Err(A::Error::custom("it has too many items"));
            }
            items.push(self.0.slice_ref(item.get().as_bytes()));
        }
        Ok(items)
    }
}

/// The number of items of a list, counted without splitting it; `None` for anything else.
pub fn count(list: &[u8]) -> Option<usize> {
    let mut reader = serde_json::Deserializer::from_slice(list);
    let count = reader.deserialize_seq(ItemCounter).ok()?;
    reader.end().ok()?;
    Some(count)
}

struct ItemCounter;

impl<'de> Visitor<'de> for ItemCounter {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

/// A list of these items as JSON.
pub fn list<'i>(items: impl IntoIterator<Item = &'i Bytes>) -> Bytes {
    let mut json = vec![b'['];
    for item in items {
        if json.len() > 1 {
            json.push(b',');
        }
        json.extend_from_slice(item);
    }
    json.push(b']');
    json.into()
}

/// A text as JSON.
pub fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// A value as JSON.
pub fn bytes(value: &Value) -> Bytes {
    value.to_string().into()
}

/// A value in one form for all its spellings: fields in order of their names and without those
/// that are null.
pub fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut by_name: Vec<(&String, &Value)> = fields.iter().collect();
            by_name.sort_unstable_by_key(|(name, _)| *name);
            let mut sorted = Map::new();
            for (name, value) in by_name {
                if !value.is_null() {
                    sorted.insert(name.clone(), canonical(value));
                }
            }
            Value::Object(sorted)
        }
        Value::Array(items) => items.iter().map(canonical).collect(),
        other => other.clone(),
    }
}

/// Adds the numbers of `more` to those of `total`, field by field.
pub fn add_numbers(total: &mut Value, more: &Value) {
    match (total, more) {
        (Value::Object(total), Value::Object(more)) => {
            for (name, value) in more {
                match total.get_mut(name) {
                    Some(known) => add_numbers(known, value),
                    None => drop(total.insert(name.clone(), value.clone())),
                }
            }
        }
        (total @ Value::Number(_), Value::Number(more)) => {
            *total = sum(total, more);
        }
        (total @ Value::Null, more) => *total = more.clone(),
        // Texts, such as a service tier, stay those of the first round.
        _ => {}
    }
}

fn sum(total: &Value, more: &serde_json::Number) -> Value {
    match (total.as_u64(), more.as_u64()) {
        (Some(total), Some(more)) => total.saturating_add(more).into(),
        _ => (total.as_f64().unwrap_or_default() + more.as_f64().unwrap_or_default()).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_keeps_its_bytes_and_its_order() {
        let sent = Bytes::from_static(b"{\"b\":1.50,\"a\" : [1, {\"x\":\"\\u00e9\"}]}");
        let mut fields = Fields::read(&sent).unwrap();
        assert_eq!(fields.get("b").unwrap().as_ref(), b"1.50");
        assert_eq!(
            fields.to_json().as_ref(),
            b"{\"b\":1.50,\"a\":[1, {\"x\":\"\\u00e9\"}]}"
        );
        let inside = items(fields.get("a").unwrap()).unwrap();
        assert_eq!(inside[1].as_ref(), b"{\"x\":\"\\u00e9\"}");
        fields.set("b", list(&inside));
        fields.remove("a");
        assert_eq!(
            fields.to_json().as_ref(),
            b"{\"b\":[1,{\"x\":\"\\u00e9\"}]}"
        );
        for other in ["[]", "{\"a\":1} x", "{\"a\":}", "\"a\"", ""] {
            assert!(Fields::read(&Bytes::from(other)).is_none(), "{other}");
        }
    }

    #[test]
    fn parts_are_counted_and_too_many_are_not_split() {
        assert_eq!(count(b"[1, {\"a\": [2, 3]}, \"x\"]"), Some(3));
        assert_eq!(count(b"[]"), Some(0));
        for other in ["{}", "null", "[1", "[1] 2"] {
            assert_eq!(count(other.as_bytes()), None, "{other}");
        }
        let list = |items: usize| Bytes::from(format!("[{}]", vec!["0"; items].join(",")));
        assert_eq!(items(&list(MAX_ITEMS)).unwrap().len(), MAX_ITEMS);
        assert!(items(&list(MAX_ITEMS + 1)).is_none());
        let object = |fields: usize| {
            let fields: Vec<String> = (0..fields).map(|n| format!("\"{n}\":0")).collect();
            Bytes::from(format!("{{{}}}", fields.join(",")))
        };
        assert!(Fields::read(&object(MAX_FIELDS)).is_some());
        assert!(Fields::read(&object(MAX_FIELDS + 1)).is_none());
    }

    #[test]
    fn usage_is_added_field_by_field() {
        let mut total = json!({ "a": 1, "details": { "x": 2 }, "tier": "t", "none": null });
        add_numbers(
            &mut total,
            &json!({ "a": 4, "details": { "x": 3, "y": 1 }, "tier": "t", "none": 2 }),
        );
        assert_eq!(
            total,
            json!({ "a": 5, "details": { "x": 5, "y": 1 }, "tier": "t", "none": 2 })
        );
    }

    #[test]
    fn spellings_of_one_value_have_one_form() {
        assert_eq!(
            canonical(&json!({ "b": null, "c": [{ "z": 1, "y": 2 }], "a": 1 })).to_string(),
            r#"{"a":1,"c":[{"y":2,"z":1}]}"#
        );
    }
}
