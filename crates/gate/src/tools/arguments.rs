//! Parses and validates the arguments that a model writes, with error messages that say where they
//! are wrong.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value, json};
use thiserror::Error;
use toolscout_index::Tool;

use crate::tools::schema_cost::SchemaCosts;
use crate::tools::{Arguments, json};
use toolscout_base::long_work;
use toolscout_base::printable::excerpt;

/// Schema violations that are reported at once.
const MAX_VIOLATIONS: usize = 5;

/// Parses the text of a call's arguments. Empty text means no arguments.
///
/// # Errors
/// [`ArgumentsError`] for a text that is no object.
pub fn parse(text: &str) -> Result<Arguments, ArgumentsError> {
    if text.trim().is_empty() {
        return Ok(Arguments::new());
    }
    match json::unique(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(Value::Null) => Ok(Arguments::new()),
        // Some models encode the object twice.
        Ok(Value::String(inner)) if inner.trim_start().starts_with('{') => parse(&inner),
        Ok(other) => Err(ArgumentsError::NotAnObject(excerpt(&other.to_string(), 80))),
        Err(error) => Err(ArgumentsError::NotJson {
            error,
            beginning: excerpt(text, 80),
        }),
    }
}

/// Why a text holds no arguments, in words for the model.
#[derive(Debug, Error)]
pub enum ArgumentsError {
    /// It is this value.
    #[error("the arguments must be a JSON object, not {0}")]
    NotAnObject(String),
    /// It is no JSON, or has a key twice.
    #[error("the arguments are not valid JSON: {error}; they begin with {beginning}")]
    NotJson {
        /// What is wrong, and where.
        error: serde_json::Error,
        /// The beginning of the text.
        beginning: String,
    },
}

/// For places that hand messages of many kinds to the model.
impl From<ArgumentsError> for String {
    fn from(error: ArgumentsError) -> Self {
        error.to_string()
    }
}

/// A violation of a schema by arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to the argument, also if it is missing; empty for the arguments as a whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

/// Most schemas that a tool's schema may stand for; the arguments of a larger one are checked at the
/// top alone.
const MAX_SCHEMA_COST: u64 = 10_000;
/// Most steps of a check; longer arguments are checked at the top alone.
const MAX_STEPS: u64 = 1_000_000;
/// A check of more steps than this leaves its async thread to others.
const LONG_CHECK_STEPS: u64 = 10_000;
/// Bounds of a pattern: steps back in a check, and bytes once it is compiled.
const MAX_PATTERN_STEPS: usize = 100_000;
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Whether the schema of a tool is too large to check arguments by the whole of it.
pub fn is_unchecked(tool: &Tool) -> bool {
    // Most schemas stand for no more than they say, and their cost need not be counted.
    any_grows(&tool.input_schema, &mut (MAX_SCHEMA_COST / 4))
        && is_too_large(&Value::Object(tool.checked_schema()))
}

/// Keywords by which a short schema may stand for a large one.
const GROWING: [&str; 7] = [
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "unevaluatedProperties",
    "unevaluatedItems",
    "pattern",
    "patternProperties",
];

/// Whether there is such a keyword, or more values than are left.
fn grows(value: &Value, left: &mut u64) -> bool {
    let Some(rest) = left.checked_sub(1) else {
        return true;
    };
    *left = rest;
    match value {
        Value::Object(fields) => any_grows(fields, left),
        Value::Array(items) => items.iter().any(|item| grows(item, left)),
        _ => false,
    }
}

fn any_grows(fields: &Map<String, Value>, left: &mut u64) -> bool {
    for (name, value) in fields {
        if GROWING.contains(&name.as_str()) || grows(value, left) {
            return true;
        }
    }
    false
}

fn is_too_large(schema: &Value) -> bool {
    SchemaCosts::of(schema).expanded() > MAX_SCHEMA_COST
}

/// A tool's compiled schema.
///
/// A schema that cannot be compiled accepts all arguments: the tool is at fault, not the model.
#[derive(Debug)]
pub struct Checker {
    schema: Value,
    /// `None` for a schema that is too large, or no schema.
    whole: Option<Validator>,
    /// What the schema says at its top.
    top: Option<Validator>,
}

impl Checker {
    /// Compiles the schema of a tool, which takes some tens of microseconds.
    pub fn of(tool: &Tool) -> Self {
        let schema = Value::Object(tool.checked_schema());
        let is_too_large = is_too_large(&schema);
        if is_too_large {
            tracing::warn!(tool = %tool.id, "the schema is too large: arguments are checked at the top alone");
        }
        let whole = if is_too_large {
            None
        } else {
            compiled(&schema)
        };
        // What is no schema is not checked at all.
        let top = if is_too_large || whole.is_some() {
            compiled(&top_of(&schema))
        } else {
            None
        };
        Checker { schema, whole, top }
    }

    /// The first five violations of the schema.
    pub fn violations(&self, arguments: &Value) -> Vec<Violation> {
        let Some(whole) = &self.whole else {
            return violations_of(self.top.as_ref(), arguments);
        };
        let steps = SchemaCosts::of(&self.schema).steps(arguments);
        if steps > MAX_STEPS {
            return violations_of(self.top.as_ref(), arguments);
        }
        if steps > LONG_CHECK_STEPS {
            return long_work::run(|| violations_of(Some(whole), arguments));
        }
        violations_of(Some(whole), arguments)
    }
}

fn violations_of(validator: Option<&Validator>, arguments: &Value) -> Vec<Violation> {
    let Some(validator) = validator else {
        return Vec::new();
    };
    let errors = validator.iter_errors(arguments).take(MAX_VIOLATIONS);
    errors.map(|error| violation(&error)).collect()
}

fn compiled(schema: &Value) -> Option<Validator> {
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(MAX_PATTERN_STEPS)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES);
    let options = jsonschema::options().with_pattern_options(patterns);
    options.build(schema).ok()
}

/// The schema of what is at the top: which fields there are, and their types.
fn top_of(schema: &Value) -> Value {
    let mut top = Map::new();
    let kept = ["type", "required", "minProperties", "maxProperties"];
    for keyword in kept {
        if let Some(value) = schema.get(keyword) {
            top.insert(keyword.to_owned(), value.clone());
        }
    }
    let mut properties = Map::new();
    let declared = schema.get("properties").and_then(Value::as_object);
    for (name, field) in declared.into_iter().flatten() {
        let of_field = match field.get("type") {
            Some(kind) => json!({ "type": kind }),
            None => json!({}),
        };
        properties.insert(name.clone(), of_field);
    }
    // A pattern may let further fields in, and patterns are not checked at the top.
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    if is_closed && schema.get("patternProperties").is_none() {
        top.insert("additionalProperties".into(), false.into());
    }
    top.insert("properties".into(), properties.into());
    top.into()
}

/// Validates arguments by the tool's schema.
///
/// # Errors
/// A message for the model with up to five violations.
pub fn check(tool: &Tool, arguments: &Arguments) -> Result<(), String> {
    let violations = Checker::of(tool).violations(&Value::Object(arguments.clone()));
    if violations.is_empty() {
        Ok(())
    } else {
        Err(describe_violations(tool, &violations))
    }
}

/// Violations as a message for the model.
pub fn describe_violations(tool: &Tool, violations: &[Violation]) -> String {
    let mut descriptions = Vec::with_capacity(violations.len());
    for Violation { path, message } in violations {
        descriptions.push(match path.as_str() {
            "" => format!("at the top: {message}"),
            path => format!("at {path}: {message}"),
        });
    }
    format!(
        "the arguments do not match the schema of {}: {}",
        tool.id,
        descriptions.join("; ")
    )
}

fn violation(error: &ValidationError<'_>) -> Violation {
    let path = error.instance_path().to_string();
    if let ValidationErrorKind::Required {
        property: Value::String(property),
    } = error.kind()
    {
        // The validator reports the object; a path to the missing property says more.
        return Violation {
            path: format!("{path}/{}", json::pointer_step(property)),
            message: "missing, and required".into(),
        };
    }
    Violation {
        path,
        message: excerpt(&error.to_string(), 200),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    fn weather() -> Tool {
        let mut tool = Tool::new("weather", "forecast").unwrap();
        let schema = json!({
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "type": "integer", "maximum": 7 } },
            "required": ["city"],
        });
        tool.input_schema = schema.as_object().unwrap().clone();
        tool
    }

    #[test]
    fn arguments_are_parsed_as_models_write_them() {
        for text in ["", "  ", "{}", "null"] {
            assert_eq!(parse(text).unwrap(), Arguments::new(), "{text:?}");
        }
        assert_eq!(parse(r#""{\"a\":1}""#).unwrap()["a"], 1);
        assert!(
            parse("[1]")
                .unwrap_err()
                .to_string()
                .contains("must be a JSON object, not [1]")
        );
        let message = parse(r#"{"a": tru"#).unwrap_err().to_string();
        assert!(message.contains("line 1 column"));
    }

    /// A tool whose argument `x` has this schema.
    fn with_argument(x: Value) -> Tool {
        let mut tool = weather();
        tool.input_schema["properties"]["x"] = x;
        tool
    }

    #[test]
    fn schemas_that_grow_are_checked_at_the_top_alone_and_at_once() {
        let next = |level: usize| json!({ "$ref": format!("#/$defs/d{level}") });
        for keyword in ["allOf", "anyOf", "oneOf", "not", "unevaluatedProperties"] {
            let mut tool = with_argument(next(0));
            let mut definitions = Map::new();
            for level in 1..=24 {
                let twice = match keyword {
                    "not" => json!({ "not": next(level), "if": next(level) }),
                    "unevaluatedProperties" => {
                        json!({ keyword: next(level), "allOf": [next(level)] })
                    }
                    list => json!({ list: [next(level), next(level)] }),
                };
                definitions.insert(format!("d{}", level - 1), twice);
            }
            definitions.insert("d24".into(), json!({ "type": "string" }));
            tool.input_schema.insert("$defs".into(), definitions.into());
            assert!(is_unchecked(&tool), "{keyword}");
            let begun = Instant::now();
            let checker = Checker::of(&tool);
            let good = json!({ "city": "Oslo", "x": { "a": 1 } });
            assert_eq!(checker.violations(&good), [], "{keyword}");
            let bad = json!({ "city": 1, "x": "a" });
            assert_eq!(checker.violations(&bad).len(), 1, "{keyword}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{keyword}");
        }
        assert!(!is_unchecked(&weather()));
    }

    #[test]
    fn checks_that_grow_with_the_arguments_end() {
        let mut deep = json!("a");
        for _ in 0..100 {
            deep = json!({ "a": deep });
        }
        let again = json!({ "$ref": "#/properties/x" });
        let numbers = Value::from((0..100_000).collect::<Vec<_>>());
        let text = Value::from("a".repeat(500_000));
        for (schema, value) in [
            (
                json!({ "properties": { "a": { "allOf": [again, again] } } }),
                deep.clone(),
            ),
            (
                json!({ "patternProperties": { "a": again, ".": again } }),
                deep.clone(),
            ),
            (
                json!({ "additionalProperties": { "anyOf": [again, { "not": again }] } }),
                deep.clone(),
            ),
            (
                json!({ "unevaluatedProperties": again, "allOf": [{ "properties": { "a": again } }] }),
                deep,
            ),
            (
                json!({ "contains": { "const": -1 }, "minContains": 90_000, "uniqueItems": true }),
                numbers,
            ),
            (json!({ "pattern": "(a*)*(a*)*(a*)*b" }), text.clone()),
            (json!({ "pattern": "^(?=(a+)+$)(a|a)*\\1b" }), text),
            (
                json!({ "multipleOf": 1e-300, "maximum": 1e308 }),
                json!(1e308),
            ),
        ] {
            let tool = with_argument(schema.clone());
            let begun = Instant::now();
            let checker = Checker::of(&tool);
            let given = json!({ "city": 1, "x": value });
            assert!(!checker.violations(&given).is_empty(), "{schema}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{schema}");
        }
    }

    #[test]
    fn violations_are_reported_with_their_path() {
        let check = |arguments: Value| check(&weather(), arguments.as_object().unwrap());
        assert_eq!(check(json!({ "city": "Oslo", "days": 3 })), Ok(()));
        let message = check(json!({ "days": 9 })).unwrap_err();
        assert!(message.contains("at /city: missing"), "{message}");
        assert!(message.contains("at /days: 9 is greater than"), "{message}");
    }

    #[test]
    fn keywords_of_earlier_drafts_are_checked() {
        for (schema, good, bad) in [
            (
                json!({"type": "integer", "minimum": 0, "exclusiveMinimum": true}),
                json!(1),
                json!(0),
            ),
            (json!({"type": "file"}), json!("a"), json!(1)),
            (
                json!({"type": "array", "items": [{"type": "int"}], "additionalItems": false}),
                json!([1]),
                json!([1, 2]),
            ),
            (
                json!({"properties": {"a": {"required": true}}}),
                json!({"a": 1}),
                json!({}),
            ),
        ] {
            let mut tool = Tool::new("s", "t").unwrap();
            let of_root = json!({"type": "object", "properties": {"a": schema}, "dependencies": {"b": ["a"]}});
            tool.input_schema = of_root.as_object().unwrap().clone();
            let checker = Checker::of(&tool);
            assert!(
                checker.violations(&json!({ "a": good })).is_empty(),
                "{schema}"
            );
            assert!(
                !checker.violations(&json!({ "a": bad })).is_empty(),
                "{schema}"
            );
            assert!(!checker.violations(&json!({ "b": 1 })).is_empty());
        }
    }

    #[test]
    fn a_null_that_openapi_allows_is_no_violation() {
        let text = json!({ "type": "string", "nullable": true });
        for nullable in [
            text.clone(),
            json!({ "type": ["string", "integer"], "x-nullable": true }),
            json!({ "nullable": true, "type": "string", "enum": ["a"] }),
            json!({ "nullable": true, "enum": ["a", null] }),
            json!({ "nullable": true, "allOf": [{ "type": "object" }] }),
            json!({ "nullable": true, "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "nullable": true, "$ref": "#/$defs/text" }),
            json!({ "oneOf": [text.clone(), { "type": "integer" }] }),
        ] {
            let mut tool = weather();
            let schema = json!({
                "properties": { "x": nullable.clone(), "list": { "items": nullable }, "nullable": true },
                "$defs": { "text": { "type": "string" } },
            });
            tool.input_schema = schema.as_object().unwrap().clone();
            let check = |value: Value| {
                let given = json!({ "x": value, "list": [value], "nullable": 1 });
                check(&tool, given.as_object().unwrap())
            };
            assert_eq!(check(json!(null)), Ok(()), "{schema}");
            assert!(check(json!([1.5])).is_err(), "{schema}");
        }
        let mut tool = weather();
        tool.input_schema["properties"]["city"]["nullable"] = json!(false);
        let given = json!({ "city": null });
        assert!(check(&tool, given.as_object().unwrap()).is_err());
    }

    #[test]
    fn a_keyword_that_is_none_is_left_out_and_a_schema_that_cannot_be_compiled_accepts_everything()
    {
        let mut tool = weather();
        tool.input_schema.insert("type".into(), json!(42));
        assert!(check(&tool, &Arguments::new()).is_err());
        let unclosed = json!({ "city": { "pattern": "(" } });
        tool.input_schema.insert("properties".into(), unclosed);
        assert_eq!(check(&tool, &Arguments::new()), Ok(()));
    }
}
