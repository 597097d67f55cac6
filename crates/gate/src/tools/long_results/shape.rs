//! What is in a long result in JSON, in one line: keys, types and numbers of elements.

use serde_json::Value;
use toolscout_base::printable::excerpt;

/// Levels of objects and arrays that are described.
const MAX_DEPTH: usize = 4;
/// Fields of an object that are named.
const MAX_FIELDS: usize = 20;
/// Characters of a field's name.
const NAME_CHARS: usize = 40;
/// Bytes of a description; what comes after them is left out.
const MAX_BYTES: usize = 1_000;

/// The shape of a text in JSON, as `{items: [1240 of {id: number, title: string}], total: number}`.
/// `None` for other texts, and for a value without parts.
pub fn of_json(text: &str) -> Option<String> {
    // Most texts are none, and are not read whole to find out.
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let value: Value = serde_json::from_str(text).ok()?;
    let mut shape = String::new();
    describe(&value, MAX_DEPTH, &mut shape);
    Some(shape)
}

fn describe(value: &Value, depth: usize, shape: &mut String) {
    match value {
        Value::Null => shape.push_str("null"),
        Value::Bool(_) => shape.push_str("boolean"),
        Value::Number(_) => shape.push_str("number"),
        Value::String(_) => shape.push_str("string"),
        Value::Array(items) => describe_array(items, depth, shape),
        Value::Object(_) if depth == 0 => shape.push_str("{…}"),
        Value::Object(fields) => {
            shape.push('{');
            for (place, (name, field)) in fields.iter().enumerate() {
                if place > 0 {
                    shape.push_str(", ");
                }
                if place == MAX_FIELDS || shape.len() > MAX_BYTES {
                    shape.push_str(&format!("{} more", fields.len() - place));
                    break;
                }
                shape.push_str(&format!("{}: ", excerpt(name, NAME_CHARS)));
                describe(field, depth - 1, shape);
            }
            shape.push('}');
        }
    }
}

fn describe_array(items: &[Value], depth: usize, shape: &mut String) {
    let Some(first) = items.first() else {
        shape.push_str("[]");
        return;
    };
    shape.push_str(&format!("[{} of ", items.len()));
    match depth {
        0 => shape.push('…'),
        _ => describe(first, depth - 1, shape),
    }
    shape.push(']');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_shape_names_keys_types_and_numbers_of_elements() {
        let value = json!({
            "items": [{ "id": 1, "tags": ["a", "b"], "user": { "name": "A", "at": null } }, { "id": 2 }],
            "none": [],
            "done": true,
        });
        assert_eq!(
            of_json(&value.to_string()).unwrap(),
            "{items: [2 of {id: number, tags: [2 of string], user: {name: string, at: null}}], none: [], done: boolean}"
        );
        assert_eq!(of_json("[1, 2, 3]").unwrap(), "[3 of number]");
        assert_eq!(of_json("{ not JSON"), None);
        assert_eq!(of_json("plain text"), None);
    }

    #[test]
    fn the_shape_of_any_result_is_short() {
        let mut deep = json!(1);
        for _ in 0..50 {
            deep = json!({ "a": [deep] });
        }
        assert_eq!(
            of_json(&deep.to_string()).unwrap(),
            "{a: [1 of {a: [1 of {…}]}]}"
        );
        let wide: serde_json::Map<String, Value> = (0..500)
            .map(|n| (format!("{}{n}", "k".repeat(300)), deep.clone()))
            .collect();
        let shape = of_json(&Value::Object(wide).to_string()).unwrap();
        assert!(shape.len() < 2 * MAX_BYTES, "{}", shape.len());
        assert!(shape.ends_with(" more}"), "{shape}");
    }
}
