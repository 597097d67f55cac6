//! Defaults of arguments. A schema's default says what the server assumes for an argument that is left
//! out, so a call does not send it. Steps of a plan that only read may be filled with the defaults of
//! the table `[gate.safe_defaults]`. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use toolscout_index::Tool;

use crate::gate::declared::Schemas;
use crate::gate::normalize::{Change, ChangeReason};
use crate::gate::pattern::Pattern;
use crate::tools::{Arguments, json};

/// The table `[gate.safe_defaults]`: what is filled into a step of a plan that only reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SafeDefaults {
    /// Whether the defaults of the tool's schema are filled in too.
    pub schema: bool,
    /// Values by tool and argument. The most specific pattern that has the argument counts, before
    /// the schema.
    pub tools: BTreeMap<Pattern, Arguments>,
}

impl SafeDefaults {
    /// Fills in the arguments that are left out, and appends each to `changes`.
    pub fn fill_in(&self, tool: &Tool, arguments: &mut Arguments, changes: &mut Vec<Change>) {
        let mut matching: Vec<(&Pattern, &Arguments)> = self.tools.iter().collect();
        matching.retain(|(pattern, _)| pattern.matches(tool.id.as_str()));
        // The most specific first: what it has filled in, the others leave as it is.
        matching.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.literal_chars()));
        let declared = tool.input_schema.get("properties");
        let declared = declared.unwrap_or(&Value::Null);
        for (name, value) in matching.into_iter().flat_map(|(_, values)| values) {
            // A pattern covers tools that lack the argument.
            if declared.get(name).is_some() && !arguments.contains_key(name) {
                arguments.insert(name.clone(), value.clone());
                let path = format!("/{}", json::pointer_step(name));
                changes.push(filled(path, value));
            }
        }
        if self.schema {
            fill_from_schema(&tool.input_schema, arguments, changes);
        }
    }
}

/// The arguments as the server would understand them: with the schema's defaults for what is left out,
/// at any depth.
pub fn assumed(schema: &Map<String, Value>, arguments: &Arguments) -> Arguments {
    let mut arguments = arguments.clone();
    fill_from_schema(schema, &mut arguments, &mut Vec::new());
    arguments
}

fn fill_from_schema(
    schema: &Map<String, Value>,
    arguments: &mut Arguments,
    changes: &mut Vec<Change>,
) {
    let mut filling = Filling {
        schemas: Schemas::of(schema),
        changes,
    };
    filling.object(schema, arguments, "");
}

/// Walks schema and arguments together.
struct Filling<'a> {
    schemas: Schemas<'a>,
    changes: &'a mut Vec<Change>,
}

impl<'a> Filling<'a> {
    fn object(&mut self, schema: &'a Map<String, Value>, fields: &mut Arguments, path: &str) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, declared) in properties.into_iter().flatten() {
            let Some(resolved) = self.schemas.resolve(declared.as_object()) else {
                continue;
            };
            let path = format!("{path}/{}", json::pointer_step(name));
            if let Some(given) = fields.get_mut(name) {
                self.value(resolved, given, &path);
                continue;
            }
            // A default beside `$ref` or `anyOf` counts before the one inside.
            let default = declared.get("default").or(resolved.get("default"));
            if let Some(default) = default
                && !default.is_null()
            {
                fields.insert(name.clone(), default.clone());
                self.changes.push(filled(path, default));
            }
        }
    }

    fn value(&mut self, schema: &'a Map<String, Value>, value: &mut Value, path: &str) {
        match value {
            Value::Object(fields) => self.object(schema, fields, path),
            Value::Array(items) => {
                let declared = schema.get("items").and_then(Value::as_object);
                let Some(declared) = self.schemas.resolve(declared) else {
                    return;
                };
                for (at, item) in items.iter_mut().enumerate() {
                    self.value(declared, item, &format!("{path}/{at}"));
                }
            }
            _ => {}
        }
    }
}

fn filled(path: String, value: &Value) -> Change {
    Change {
        path,
        from: Value::Null,
        to: value.clone(),
        why: ChangeReason::Default,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool() -> Tool {
        let mut tool = Tool::new("shop", "search").unwrap();
        let schema = json!({ "type": "object", "properties": {
            "limit": { "type": "integer", "default": 10 },
            "sort": { "type": "string" },
            "page": { "anyOf": [{ "type": "integer" }, { "type": "null" }], "default": 1 },
            "filter": { "type": "object", "properties": { "open": { "type": "boolean", "default": true } } },
            "rows": { "type": "array", "items": { "type": "object", "properties": { "n": { "default": 0 } } } },
            "cursor": { "type": "string", "default": null },
        } });
        tool.input_schema = schema.as_object().unwrap().clone();
        tool
    }

    fn filled_in(settings: &str, given: Value) -> (Value, Vec<String>) {
        let defaults: SafeDefaults = toml::from_str(settings).unwrap();
        let (mut arguments, mut changes) = (given.as_object().unwrap().clone(), Vec::new());
        defaults.fill_in(&tool(), &mut arguments, &mut changes);
        assert!(changes.iter().all(|one| one.why == ChangeReason::Default));
        let paths = changes.into_iter().map(|change| change.path).collect();
        (arguments.into(), paths)
    }

    #[test]
    fn nothing_is_filled_in_unless_the_owner_says_so() {
        for given in [
            json!({}),
            json!({ "filter": {} }),
            json!({ "rows": [{}, {}] }),
        ] {
            assert_eq!(filled_in("", given.clone()), (given, Vec::new()));
        }
    }

    #[test]
    fn the_owners_values_come_before_the_schemas() {
        let listed = "[tools.\"shop/*\"]\nlimit = 5\nunknown = 1\nsort = \"new\"\n\
                      [tools.\"shop/search\"]\nlimit = 7\n[tools.\"other/*\"]\npage = 2";
        assert_eq!(
            filled_in(listed, json!({ "sort": "old" })),
            (
                json!({ "limit": 7, "sort": "old" }),
                vec!["/limit".to_owned()]
            )
        );
        let (arguments, paths) = filled_in(
            &format!("schema = true\n{listed}"),
            json!({ "filter": {}, "rows": [{}, { "n": 3 }] }),
        );
        assert_eq!(
            arguments,
            json!({ "filter": { "open": true }, "rows": [{ "n": 0 }, { "n": 3 }],
                    "limit": 7, "sort": "new", "page": 1 })
        );
        let mut sorted = paths;
        sorted.sort_unstable();
        assert_eq!(
            sorted,
            ["/filter/open", "/limit", "/page", "/rows/0/n", "/sort"]
        );
    }

    #[test]
    fn mistakes_in_the_table_are_named() {
        let message = toml::from_str::<SafeDefaults>("shema = true").unwrap_err();
        assert!(
            message.to_string().contains("unknown field `shema`"),
            "{message}"
        );
    }
}
