//! Results in JSON with fewer tokens: lists of objects as tables, and no spaces.

use std::mem;

use serde_json::{Map, Value};

/// Least objects of a list that becomes a table.
const MIN_ROWS: usize = 3;

/// The text in its compact form, if it is JSON and that is shorter. A list of objects with the same
/// fields, as `[{"id": 1, "name": "a"}, …]`, becomes `{"columns":["id","name"],"rows":[[1,"a"],…]}`.
pub fn compact_text(text: &str) -> Option<String> {
    // Most texts are no JSON, and are not read whole to find out.
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let mut value: Value = serde_json::from_str(text).ok()?;
    compact(&mut value);
    let compacted = value.to_string();
    (compacted.len() < text.len()).then_some(compacted)
}

/// Puts every list of objects with the same fields into the form of a table.
pub fn compact(value: &mut Value) {
    match value {
        Value::Array(items) => {
            // The inner ones first: the rows of a table have compact values too.
            items.iter_mut().for_each(compact);
            if let Some(columns) = columns(items) {
                *value = table(columns, mem::take(items));
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(compact),
        _ => {}
    }
}

/// The fields of these objects, if all have the same.
fn columns(items: &[Value]) -> Option<Vec<String>> {
    let (first, others) = items.split_first()?;
    let first = first.as_object()?;
    if first.is_empty() || items.len() < MIN_ROWS {
        return None;
    }
    for item in others {
        let fields = item.as_object()?;
        // As many, and each of the first: the same ones, in any order.
        if fields.len() != first.len() || !first.keys().all(|name| fields.contains_key(name)) {
            return None;
        }
    }
    Some(first.keys().cloned().collect())
}

fn table(columns: Vec<String>, items: Vec<Value>) -> Value {
    let mut rows = Vec::with_capacity(items.len());
    for mut item in items {
        // By name, since the fields of each object may be in another order.
        let mut row = Vec::with_capacity(columns.len());
        for column in &columns {
            row.push(item.get_mut(column).map_or(Value::Null, Value::take));
        }
        rows.push(Value::Array(row));
    }
    let columns = columns.into_iter().map(Value::String).collect();
    let fields = [
        ("columns".to_owned(), Value::Array(columns)),
        ("rows".to_owned(), Value::Array(rows)),
    ];
    Value::Object(Map::from_iter(fields))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_of_like_objects_become_tables_at_every_depth() {
        let line = |n: i32| json!({ "id": n, "tags": [{ "t": 1 }, { "t": 2 }, { "t": null }] });
        let mut value = json!({ "items": [line(1), line(2), line(3)], "total": 3 });
        compact(&mut value);
        let tags = json!({ "columns": ["t"], "rows": [[1], [2], [null]] });
        let rows = json!([[1, tags], [2, tags], [3, tags]]);
        let items = json!({ "columns": ["id", "tags"], "rows": rows });
        assert_eq!(value, json!({ "items": items, "total": 3 }));
    }

    #[test]
    fn other_lists_stay_as_they_are() {
        for same in [
            json!([{ "a": 1 }, { "a": 2 }]),
            json!([{ "a": 1 }, { "a": 2 }, { "b": 3 }]),
            json!([{ "a": 1 }, { "a": 2 }, { "a": 3, "b": 3 }]),
            json!([{ "a": 1 }, { "a": 2 }, 3]),
            json!([{}, {}, {}]),
            json!([]),
        ] {
            let mut value = same.clone();
            compact(&mut value);
            assert_eq!(value, same);
        }
    }

    #[test]
    fn a_text_is_compacted_only_if_it_becomes_shorter() {
        let items = json!([{ "name": "a" }, { "name": "b" }, { "name": "c" }]);
        let pretty = serde_json::to_string_pretty(&items).unwrap();
        let table = r#"{"columns":["name"],"rows":[["a"],["b"],["c"]]}"#;
        assert_eq!(compact_text(&pretty).as_deref(), Some(table));
        assert_eq!(compact_text(r#"{"a":1}"#), None);
        assert_eq!(compact_text("[not JSON]"), None);
        assert_eq!(compact_text("words"), None);
    }
}
