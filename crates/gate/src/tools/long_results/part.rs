//! Parts of a result in JSON that a model selects.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value, json};

use super::error::{ReadMoreError, There};
use crate::tools::Arguments;

/// Bytes of a pointer and of all field names.
const MAX_PART_BYTES: usize = 1_000;

/// The part that a model selects.
#[derive(Debug, PartialEq)]
pub struct Part<'a> {
    /// The JSON Pointer, empty for the whole.
    pointer: &'a str,
    /// The fields of the selected objects; empty for all.
    fields: Vec<&'a str>,
}

impl<'a> Part<'a> {
    /// The part of these arguments; `None` if they select none.
    ///
    /// # Errors
    /// [`ReadMoreError`] for arguments that select no part of anything.
    pub fn of(arguments: &'a Arguments) -> Result<Option<Self>, ReadMoreError> {
        let pointer = match arguments.get("select") {
            None | Some(Value::Null) => "",
            Some(Value::String(pointer)) => pointer,
            Some(_) => return Err(ReadMoreError::Select),
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(ReadMoreError::Pointer(pointer.to_owned()));
        }
        let fields: Vec<&str> = match arguments.get("fields") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(field)) => vec![field],
            Some(Value::Array(fields)) => {
                let names: Option<Vec<&str>> = fields.iter().map(Value::as_str).collect();
                names.ok_or(ReadMoreError::Fields)?
            }
            Some(_) => return Err(ReadMoreError::Fields),
        };
        // They are repeated in the note of each page.
        let bytes = pointer.len() + fields.iter().copied().map(str::len).sum::<usize>();
        if bytes > MAX_PART_BYTES {
            return Err(ReadMoreError::LongPart {
                bytes,
                most: MAX_PART_BYTES,
            });
        }
        let selects = !pointer.is_empty() || !fields.is_empty();
        Ok(selects.then_some(Part { pointer, fields }))
    }

    /// The arguments that select this part, each with a comma after it.
    pub fn arguments(&self) -> String {
        let mut arguments = String::new();
        if !self.pointer.is_empty() {
            arguments.push_str(&format!("\"select\": {}, ", json!(self.pointer)));
        }
        if !self.fields.is_empty() {
            arguments.push_str(&format!("\"fields\": {}, ", json!(self.fields)));
        }
        arguments
    }

    /// The part of this value as text: several values as one line of JSON each, a string as it is.
    ///
    /// # Errors
    /// [`ReadMoreError`] that says how far the pointer leads.
    pub fn select(&self, value: &Value) -> Result<String, ReadMoreError> {
        let segments: Vec<Cow<'_, str>> = self.pointer.split('/').skip(1).map(unescaped).collect();
        let selected = match follow(value, &segments) {
            Ok(selected) => selected,
            Err((last, place)) => return Err(self.nothing_there(last, place)),
        };
        self.check_fields(&selected)?;
        let mut lines = Vec::new();
        let has_several = segments.iter().any(|segment| several(segment).is_some());
        for value in selected {
            match value {
                // The elements of a selected array, as those that `*` selects.
                Value::Array(items) if !has_several => {
                    lines.extend(items.iter().map(|item| self.line(item)));
                }
                value => lines.push(self.line(value)),
            }
        }
        Ok(lines.join("\n"))
    }

    /// The error for a pointer of which so many segments lead to `last`, and the next to nothing.
    fn nothing_there(&self, last: &Value, segments: usize) -> ReadMoreError {
        let path: Vec<&str> = self.pointer.split('/').take(segments + 1).collect();
        ReadMoreError::NothingThere {
            pointer: self.pointer.to_owned(),
            path: path.join("/"),
            there: There::of(last),
        }
    }

    /// Fails if no selected object has one of the fields.
    fn check_fields(&self, selected: &[&Value]) -> Result<(), ReadMoreError> {
        if self.fields.is_empty() {
            return Ok(());
        }
        let mut first = None;
        for value in selected.iter().copied().flat_map(elements) {
            let Value::Object(object) = value else {
                continue;
            };
            if self.fields.iter().any(|name| object.contains_key(*name)) {
                return Ok(());
            }
            first.get_or_insert(value);
        }
        // Values that are not objects are shown whole, whatever the fields.
        let Some(first) = first else {
            return Ok(());
        };
        Err(ReadMoreError::NoField {
            fields: self.fields.join(", "),
            first: There::of(first),
        })
    }

    fn line(&self, value: &Value) -> String {
        match value {
            Value::String(text) => text.clone(),
            Value::Object(fields) if !self.fields.is_empty() => {
                let mut wanted = Map::new();
                for name in &self.fields {
                    if let Some(field) = fields.get(*name) {
                        wanted.insert((*name).to_owned(), field.clone());
                    }
                }
                Value::Object(wanted).to_string()
            }
            other => other.to_string(),
        }
    }
}

fn elements(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        value => std::slice::from_ref(value),
    }
}

/// All values that the segments lead to, or the last value on the way and how many segments led there.
/// What `*` passes may lack what comes after it.
fn follow<'v>(
    value: &'v Value,
    segments: &[Cow<'_, str>],
) -> Result<Vec<&'v Value>, (&'v Value, usize)> {
    let mut reached = vec![value];
    for (place, segment) in segments.iter().enumerate() {
        let mut next = Vec::new();
        for value in &reached {
            next.extend(step(value, segment));
        }
        if next.is_empty() {
            return Err((reached[0], place));
        }
        reached = next;
    }
    Ok(reached)
}

/// What one segment of a pointer leads to. No value is reached twice, so there are never more than the
/// result has.
fn step<'v>(value: &'v Value, segment: &str) -> Vec<&'v Value> {
    match value {
        Value::Object(fields) => match fields.get(segment) {
            Some(field) => vec![field],
            None if segment == "*" => fields.values().collect(),
            None => Vec::new(),
        },
        Value::Array(items) => match (segment.parse::<usize>(), several(segment)) {
            (Ok(place), _) => items.get(place).into_iter().collect(),
            (_, Some(range)) => {
                let end = range.end.min(items.len());
                let start = range.start.min(end);
                items[start..end].iter().collect()
            }
            (_, None) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// The elements that a segment stands for, if it stands for several: `*`, `20:40`, `20:` or `:40`.
fn several(segment: &str) -> Option<Range<usize>> {
    if segment == "*" {
        return Some(0..usize::MAX);
    }
    let (from, to) = segment.split_once(':')?;
    Some(bound(from, 0)?..bound(to, usize::MAX)?)
}

fn bound(text: &str, default: usize) -> Option<usize> {
    match text {
        "" => Some(default),
        text => text.parse().ok(),
    }
}

fn unescaped(segment: &str) -> Cow<'_, str> {
    match segment.contains('~') {
        // In this order: `~01` stands for `~1`, not for `/`.
        true => segment.replace("~1", "/").replace("~0", "~").into(),
        false => segment.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(pointer: &str, fields: Value) -> Result<String, String> {
        let value = json!({
            "items": [
                { "id": 1, "title": "first", "user": { "name": "A" } },
                { "id": 2, "title": "second" },
                { "id": 3, "title": "third", "user": { "name": "C" } },
            ],
            "a/b": { "~": 7 },
            "0:1": "a field",
        });
        let arguments = json!({ "select": pointer, "fields": fields });
        let arguments = arguments.as_object().unwrap();
        Ok(Part::of(arguments)?.unwrap().select(&value)?)
    }

    #[test]
    fn a_pointer_selects_a_value_or_one_of_every_element() {
        let of = |pointer| select(pointer, Value::Null).unwrap();
        assert_eq!(of("/items/1/title"), "second");
        assert_eq!(of("/items/*/id"), "1\n2\n3");
        assert_eq!(of("/items/1:/title"), "second\nthird");
        assert_eq!(of("/items/:1/id"), "1");
        assert_eq!(
            of("/items/*/user/name"),
            "A\nC",
            "what an element lacks is left out"
        );
        assert_eq!(of("/a~1b/~0"), "7");
        assert_eq!(of("/0:1"), "a field");
    }

    #[test]
    fn fields_select_of_each_object() {
        let of = |pointer| select(pointer, json!(["title", "id", "other"])).unwrap();
        assert_eq!(of("/items/0"), r#"{"title":"first","id":1}"#);
        let both = "{\"title\":\"second\",\"id\":2}\n{\"title\":\"third\",\"id\":3}";
        assert_eq!(of("/items/1:3"), both);
        assert_eq!(of("/items").lines().count(), 3);
        assert_eq!(select("", json!("a/b")).unwrap(), r#"{"a/b":{"~":7}}"#);
    }

    #[test]
    fn a_pointer_that_leads_nowhere_says_what_is_on_its_way() {
        let error = |pointer| select(pointer, Value::Null).unwrap_err();
        let fields = "has the fields items, a/b, 0:1";
        assert_eq!(
            error("/results/0"),
            format!("nothing is at \"/results/0\": \"\" {fields}")
        );
        assert!(error("/items/5:9").ends_with("\"/items\" has 3 elements, numbered from 0"));
        assert!(error("/items/9").ends_with("\"/items\" has 3 elements, numbered from 0"));
        assert!(error("/items/*/name").ends_with("\"/items/*\" has the fields id, title, user"));
        assert!(error("/items/0/id/x").ends_with("\"/items/0/id\" is a number"));
        assert!(
            error("items").contains("must begin with \"/\", as a JSON Pointer does: \"/items\"")
        );
        let none = select("/items", json!(["name"])).unwrap_err();
        assert_eq!(
            none,
            "no object has a field name; the first one has the fields id, title, user"
        );
        assert!(
            select("/items", json!([1]))
                .unwrap_err()
                .contains("array of names")
        );
    }
}
