//! Parses and validates the arguments that a model writes, with error messages that say where they
//! are wrong.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use toolscout_index::Tool;

use crate::printable::excerpt;
use crate::tools::{Arguments, json};

/// Longest accepted arguments, in bytes. A model that writes more is looping or pasting a file.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// Schema violations that are reported at once.
const MAX_VIOLATIONS: usize = 5;

/// Parses the text of a call's arguments. Empty text means no arguments.
///
/// # Errors
/// A message for the model: what is wrong and where.
pub fn parse(text: &str) -> Result<Arguments, String> {
    if text.trim().is_empty() {
        return Ok(Arguments::new());
    }
    match json::unique(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(Value::Null) => Ok(Arguments::new()),
        // Some models encode the object twice.
        Ok(Value::String(inner)) if inner.trim_start().starts_with('{') => parse(&inner),
        Ok(other) => Err(format!(
            "the arguments must be a JSON object, not {}",
            excerpt(&other.to_string(), 80)
        )),
        Err(error) => Err(format!(
            "the arguments are not valid JSON: {error}; they begin with {}",
            excerpt(text, 80)
        )),
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

/// A tool's compiled schema.
///
/// A schema that cannot be compiled accepts all arguments: the tool is at fault, not the model.
#[derive(Debug)]
pub struct Checker(Option<Validator>);

impl Checker {
    /// Compiles the schema of a tool, which takes some tens of microseconds.
    pub fn of(tool: &Tool) -> Self {
        Checker(jsonschema::validator_for(&Value::Object(tool.checked_schema())).ok())
    }

    /// The first five violations of the schema.
    pub fn violations(&self, arguments: &Value) -> Vec<Violation> {
        let Some(validator) = &self.0 else {
            return Vec::new();
        };
        validator
            .iter_errors(arguments)
            .take(MAX_VIOLATIONS)
            .map(|error| violation(&error))
            .collect()
    }
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
    let descriptions: Vec<String> = violations
        .iter()
        .map(|Violation { path, message }| match path.as_str() {
            "" => format!("at the top: {message}"),
            path => format!("at {path}: {message}"),
        })
        .collect();
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
            assert_eq!(parse(text), Ok(Arguments::new()), "{text:?}");
        }
        assert_eq!(parse(r#""{\"a\":1}""#).unwrap()["a"], 1);
        assert!(
            parse("[1]")
                .unwrap_err()
                .contains("must be a JSON object, not [1]")
        );
        assert!(parse(r#"{"a": tru"#).unwrap_err().contains("line 1 column"));
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
    fn a_keyword_that_no_validator_takes_is_left_out_of_the_check() {
        let mut tool = weather();
        tool.input_schema.insert("type".into(), json!(42));
        let check = |arguments: Value| check(&tool, arguments.as_object().unwrap());
        assert_eq!(check(json!({ "city": "Oslo" })), Ok(()));
        assert!(check(json!({})).unwrap_err().contains("at /city: missing"));
    }

    #[test]
    fn a_schema_that_cannot_be_compiled_accepts_everything() {
        let mut tool = weather();
        let unclosed = json!({ "city": { "pattern": "(" } });
        tool.input_schema.insert("properties".into(), unclosed);
        assert_eq!(check(&tool, &Arguments::new()), Ok(()));
    }
}
