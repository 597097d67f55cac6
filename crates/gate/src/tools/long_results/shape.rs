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

/// The shape of a value, as `{items: [1240 of {id: number, title: string}], total: number}`.
pub fn of(value: &Value) -> String {
    let mut shape = String::new();
    describe(value, MAX_DEPTH, &mut shape);
    shape
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

/// The elements by the first one of each kind.
fn describe_array(items: &[Value], depth: usize, shape: &mut String) {
    if items.is_empty() {
        shape.push_str("[]");
        return;
    }
    shape.push_str(&format!("[{} of ", items.len()));
    let mut kinds = Vec::new();
    for item in items {
        let kind = std::mem::discriminant(item);
        if kinds.contains(&kind) {
            continue;
        }
        if !kinds.is_empty() {
            shape.push_str(" or ");
        }
        kinds.push(kind);
        match depth {
            0 => shape.push('…'),
            _ => describe(item, depth - 1, shape),
        }
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
            of(&value),
            "{items: [2 of {id: number, tags: [2 of string], user: {name: string, at: null}}], none: [], done: boolean}"
        );
        assert_eq!(of(&json!([1, "a", 3])), "[3 of number or string]");
    }

    #[test]
    fn the_shape_of_any_result_is_short() {
        let mut deep = json!(1);
        for _ in 0..50 {
            deep = json!({ "a": [deep] });
        }
        assert_eq!(of(&deep), "{a: [1 of {a: [1 of {…}]}]}");
        let wide: serde_json::Map<String, Value> = (0..500)
            .map(|n| (format!("{}{n}", "k".repeat(300)), deep.clone()))
            .collect();
        let shape = of(&Value::Object(wide));
        assert!(shape.len() < 2 * MAX_BYTES, "{}", shape.len());
        assert!(shape.ends_with(" more}"), "{shape}");
    }
}
