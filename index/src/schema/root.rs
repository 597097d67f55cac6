//! An object at the root of a schema.
//!
//! Anthropic and OpenAI refuse `anyOf`, `oneOf` and `allOf` there, OpenAI also `enum`, `not` and
//! references; clients of MCP refuse every other type than `object`.

use serde_json::{Map, Value, json};

use super::keywords::modern;
use super::{any_of, branches, names};

/// Keywords that a provider refuses at the root, beside a type that is not `object`.
const REFUSED: [&str; 11] = [
    "anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else", "$ref", "type",
];
/// Levels of branches and references that are folded.
const MAX_DEPTH: usize = 16;
/// Branches and targets of references that are folded. References within branches multiply.
const MAX_FOLDED: usize = 2_000;
/// Alternatives and names that a note lists.
const MAX_LISTED: usize = 6;
/// Said of what the object's properties cannot express.
const CHECKED_LATER: &str = "Further conditions are checked when the tool is called.";

/// The keyword at the root of a schema for which another schema is shown to providers.
pub(crate) fn refused(schema: &Map<String, Value>) -> Option<&'static str> {
    // A type is refused only where it is no `object`.
    let mut keywords = REFUSED.into_iter();
    keywords.find(|keyword| *keyword != "type" && schema.contains_key(*keyword))
}

/// The schema of arguments with an object at the root that accepts no less than the schema itself.
pub(crate) fn of_arguments(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = modern(schema);
    let is_object = matches!(schema.get("type"), Some(kind) if kind == "object");
    let refused = refused(&schema).is_some();
    if is_object && !refused {
        return schema;
    }
    let folded = Folding::of(&schema).fold(&schema, 0);
    schema.retain(|keyword, _| !REFUSED.contains(&keyword.as_str()));
    // Of one alternative the properties of another are no further ones.
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) && refused {
        schema.shift_remove("additionalProperties");
    }
    let mut object = Map::new();
    object.insert("type".into(), "object".into());
    object.insert("properties".into(), folded.properties.into());
    if !folded.required.is_empty() {
        object.insert("required".into(), folded.required.into());
    }
    for (keyword, value) in schema {
        // What was folded is already in the object.
        object.entry(keyword).or_insert(value);
    }
    if !folded.notes.is_empty() {
        let own = object.get("description").and_then(Value::as_str);
        let mut texts: Vec<&str> = own.into_iter().collect();
        texts.extend(folded.notes.iter().map(String::as_str));
        let description = texts.join("\n");
        object.insert("description".into(), description.into());
    }
    object
}

/// The schema of a result, which in MCP is an object.
pub(crate) fn of_result(schema: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut schema = modern(schema);
    match schema.get("type") {
        Some(kind) if kind == "object" => return Some(schema),
        Some(kind) if !names(Some(kind)).contains(&"object") => return None,
        _ => {}
    }
    schema.shift_remove("type");
    let mut object = Map::new();
    object.insert("type".into(), "object".into());
    object.extend(schema);
    Some(object)
}

/// What the branches of a schema say together of an object.
#[derive(Default)]
struct Folded {
    properties: Map<String, Value>,
    required: Vec<String>,
    notes: Vec<String>,
}

/// Folds the branches of one root.
struct Folding<'a> {
    root: &'a Map<String, Value>,
    /// Branches that may still be folded.
    left: usize,
}

impl<'a> Folding<'a> {
    fn of(root: &'a Map<String, Value>) -> Self {
        Folding {
            root,
            left: MAX_FOLDED,
        }
    }

    fn fold(&mut self, schema: &Map<String, Value>, depth: usize) -> Folded {
        let mut folded = Folded::default();
        let kinds = names(schema.get("type"));
        if !kinds.is_empty() && !kinds.contains(&"object") {
            folded.note(format!(
                "The tool declares arguments of the type {}, and only an object can be given.",
                kinds.join(" or ")
            ));
            return folded;
        }
        if depth > MAX_DEPTH || self.left == 0 {
            folded.note(CHECKED_LATER.into());
            return folded;
        }
        self.left -= 1;
        if let Some(Value::Object(properties)) = schema.get("properties") {
            folded.properties.clone_from(properties);
        }
        let required = names(schema.get("required")).into_iter();
        folded.required = required.map(str::to_owned).collect();
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            match local(self.root, reference) {
                Some(target) => folded.add(self.fold(target, depth + 1)),
                None => folded.note(CHECKED_LATER.into()),
            }
        }
        for branch in branches(schema, "allOf") {
            folded.add(self.fold(branch, depth + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            let mut alternatives = Vec::new();
            for branch in branches(schema, keyword) {
                // The arguments are an object, so no other branch can be meant.
                if is_of_objects(branch) {
                    alternatives.push(self.fold(branch, depth + 1));
                }
            }
            folded.add_alternatives(alternatives);
        }
        self.add_conditions(&mut folded, schema, depth);
        folded
    }

    fn add_conditions(&mut self, folded: &mut Folded, schema: &Map<String, Value>, depth: usize) {
        for keyword in ["then", "else"] {
            if let Some(Value::Object(branch)) = schema.get(keyword) {
                let consequence = self.fold(branch, depth + 1);
                folded.merge_properties(consequence.properties, any_of);
            }
        }
        for keyword in ["if", "not", "enum", "const"] {
            if schema.contains_key(keyword) {
                folded.note(CHECKED_LATER.into());
            }
        }
    }
}

impl Folded {
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn require(&mut self, name: String) {
        if !self.required.contains(&name) {
            self.required.push(name);
        }
    }

    /// Adds what is also true.
    fn add(&mut self, other: Folded) {
        self.merge_properties(other.properties, all_of);
        for name in other.required {
            self.require(name);
        }
        for note in other.notes {
            self.note(note);
        }
    }

    /// Adds alternatives, of which at least one is true.
    fn add_alternatives(&mut self, alternatives: Vec<Folded>) {
        let mut listed: Vec<String> = Vec::new();
        let mut of_all: Option<Vec<String>> = None;
        let mut alternatives_of_one_name = Map::new();
        for alternative in alternatives {
            listed.push(alternative.summary());
            let required = alternative.required;
            // Only what every alternative requires is certainly required.
            of_all = Some(match of_all {
                None => required,
                Some(mut all) => {
                    all.retain(|name| required.contains(name));
                    all
                }
            });
            merge(
                &mut alternatives_of_one_name,
                alternative.properties,
                any_of,
            );
            for note in alternative.notes {
                self.note(note);
            }
        }
        self.merge_properties(alternatives_of_one_name, all_of);
        for name in of_all.into_iter().flatten() {
            self.require(name);
        }
        listed.dedup();
        if listed.len() > 1 {
            let left_out = listed.len().saturating_sub(MAX_LISTED);
            listed.truncate(MAX_LISTED);
            let mut note = format!(
                "Give the arguments of one of these: {}",
                listed.join(" or ")
            );
            if left_out > 0 {
                note.push_str(&format!(" or {left_out} others"));
            }
            note.push('.');
            self.note(note);
        }
    }

    /// Its required arguments, or else all, in parentheses.
    fn summary(&self) -> String {
        let mut names: Vec<&str> = match self.required.as_slice() {
            [] => self.properties.keys().map(String::as_str).collect(),
            required => required.iter().map(String::as_str).collect(),
        };
        if names.is_empty() {
            return "(none)".into();
        }
        let more = names.len() > MAX_LISTED;
        names.truncate(MAX_LISTED);
        let more = if more { ", …" } else { "" };
        format!("({}{more})", names.join(", "))
    }

    fn merge_properties(
        &mut self,
        properties: Map<String, Value>,
        both: impl Fn(Vec<Value>) -> Value,
    ) {
        merge(&mut self.properties, properties, both);
    }
}

/// Adds properties; of two different schemas with one name, `both` makes one.
fn merge(
    into: &mut Map<String, Value>,
    properties: Map<String, Value>,
    both: impl Fn(Vec<Value>) -> Value,
) {
    for (name, schema) in properties {
        match into.get_mut(&name) {
            None => drop(into.insert(name, schema)),
            Some(known) if *known == schema => {}
            Some(known) => *known = both(vec![known.take(), schema]),
        }
    }
}

/// A schema that accepts what all of these do.
fn all_of(schemas: Vec<Value>) -> Value {
    json!({ "allOf": schemas })
}

fn is_of_objects(schema: &Map<String, Value>) -> bool {
    let kinds = names(schema.get("type"));
    kinds.is_empty() || kinds.contains(&"object")
}

fn local<'a>(root: &'a Map<String, Value>, reference: &str) -> Option<&'a Map<String, Value>> {
    let mut steps = reference.strip_prefix("#/")?.split('/');
    let mut target = root.get(&unescaped(steps.next()?))?;
    for step in steps {
        target = match target {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?)?,
            value => value.get(unescaped(step))?,
        };
    }
    target.as_object()
}

/// A step of a JSON pointer without its escapes. In this order, as `~01` stands for `~1`.
fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(schema: &Value) -> Value {
        of_arguments(schema.as_object().unwrap()).into()
    }

    #[test]
    fn a_root_that_is_no_plain_object_becomes_one() {
        let string = || json!({"type": "string"});
        let one_of = "Give the arguments of one of these: (content) or (url).";
        for (schema, expected) in [
            (json!({}), json!({"type": "object", "properties": {}})),
            (
                json!({"type": ["object", "null"], "properties": {"a": string()}}),
                json!({"type": "object", "properties": {"a": string()}}),
            ),
            (
                json!({"properties": {"a": string()}, "required": ["a"], "title": "t"}),
                json!({"type": "object", "properties": {"a": string()}, "required": ["a"], "title": "t"}),
            ),
            (
                json!({"type": "object", "nullable": true}),
                json!({"type": "object", "properties": {}}),
            ),
            (
                json!({"oneOf": [
                    {"type": "object", "properties": {"content": string()}, "required": ["content"]},
                    {"type": "object", "properties": {"url": string()}, "required": ["url"], "additionalProperties": false}],
                    "description": "d"}),
                json!({"type": "object", "properties": {"content": string(), "url": string()},
                    "description": format!("d\n{one_of}")}),
            ),
            (
                json!({"type": "object", "properties": {"id": string(), "content": string(), "url": string()},
                    "required": ["id"], "anyOf": [{"required": ["content"]}, {"required": ["url"]}]}),
                json!({"type": "object", "properties": {"id": string(), "content": string(), "url": string()},
                    "required": ["id"], "description": one_of}),
            ),
            (
                json!({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {}}, "required": ["b"]}],
                    "$defs": {"a": {"type": "object", "properties": {"a": string()}, "required": ["a"]}}}),
                json!({"type": "object", "properties": {"a": string(), "b": {}}, "required": ["a", "b"],
                    "$defs": {"a": {"type": "object", "properties": {"a": string()}, "required": ["a"]}}}),
            ),
            (
                json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"properties": {"a": string()}}}}),
                json!({"type": "object", "properties": {"a": string()},
                    "$defs": {"a/b": {"properties": {"a": string()}}}}),
            ),
            (
                json!({"type": "object", "properties": {"a": string()}, "if": {"required": ["a"]},
                    "then": {"properties": {"b": string()}}}),
                json!({"type": "object", "properties": {"a": string(), "b": string()}, "description": CHECKED_LATER}),
            ),
        ] {
            assert_eq!(shown(&schema), expected, "{schema}");
            assert_eq!(shown(&expected), expected, "a second time");
        }
    }

    #[test]
    fn a_plain_object_stays_as_it_is() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"oneOf": [{}, true]}}, "additionalProperties": false}),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"}),
        ] {
            assert_eq!(shown(&schema), schema);
        }
    }

    #[test]
    fn references_in_a_circle_end() {
        let itself = vec![json!({"$ref": "#/$defs/a"}); 1_000];
        let schema = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": itself}}});
        let shown = shown(&schema);
        assert_eq!(shown["type"], "object");
        assert_eq!(shown["description"], CHECKED_LATER);
    }

    #[test]
    fn a_result_is_an_object_or_none() {
        let result = |schema: Value| of_result(schema.as_object().unwrap()).map(Value::Object);
        for (schema, expected) in [
            (json!({}), Some(json!({"type": "object"}))),
            (
                json!({"properties": {"a": {"nullable": true, "type": "string"}}}),
                Some(json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}})),
            ),
            (
                json!({"type": ["object", "null"], "anyOf": [{}]}),
                Some(json!({"type": "object", "anyOf": [{}]})),
            ),
            (json!({"type": "array", "items": {}}), None),
            (json!({"type": "string"}), None),
        ] {
            assert_eq!(result(schema), expected);
        }
    }
}
