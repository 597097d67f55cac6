//! Arguments as a model writes them: text to a checked object, or words that say where they are
//! wrong.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use toolscout_index::Tool;

use crate::printable::excerpt;
use crate::tools::{Arguments, json};

/// Longest accepted arguments, in bytes. A model that writes more is looping or pasting a file.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;
/// Schema violations that are named at once.
const MAX_VIOLATIONS: usize = 5;

/// Reads the text of a call's arguments. Nothing at all counts as no arguments.
///
/// # Errors
/// What is wrong and where, for the model.
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

/// A place where arguments break a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to the argument, a missing one included; empty for all of them.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// A tool's schema, compiled once.
///
/// A schema that is none itself checks nothing: that is the tool's fault and not the model's.
#[derive(Debug)]
pub struct Checker(Option<Validator>);

impl Checker {
    /// Compiles the schema of a tool, which takes some tens of microseconds.
    pub fn of(tool: &Tool) -> Self {
        Checker(jsonschema::validator_for(&Value::Object(tool.input_schema.clone())).ok())
    }

    /// Where arguments break the schema: the first five places.
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

/// Checks arguments against the tool's own schema.
///
/// # Errors
/// Every violation with its path, up to five, for the model.
pub fn check(tool: &Tool, arguments: &Arguments) -> Result<(), String> {
    let violations = Checker::of(tool).violations(&Value::Object(arguments.clone()));
    if violations.is_empty() {
        Ok(())
    } else {
        Err(told(tool, &violations))
    }
}

/// Violations in words for the model.
pub fn told(tool: &Tool, violations: &[Violation]) -> String {
    let places = violations
        .iter()
        .map(|Violation { path, message }| match path.as_str() {
            "" => format!("at the top: {message}"),
            path => format!("at {path}: {message}"),
        });
    format!(
        "the arguments break the schema of {}: {}",
        tool.id,
        places.collect::<Vec<_>>().join("; ")
    )
}

fn violation(error: &ValidationError<'_>) -> Violation {
    let path = error.instance_path().to_string();
    if let ValidationErrorKind::Required {
        property: Value::String(property),
    } = error.kind()
    {
        let step = property.replace('~', "~0").replace('/', "~1");
        return Violation {
            path: format!("{path}/{step}"),
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
    fn arguments_are_read_as_models_write_them() {
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
    fn violations_are_named_with_their_place() {
        let check = |arguments: Value| check(&weather(), arguments.as_object().unwrap());
        assert_eq!(check(json!({ "city": "Oslo", "days": 3 })), Ok(()));
        let message = check(json!({ "days": 9 })).unwrap_err();
        assert!(message.contains("at /city: missing"), "{message}");
        assert!(message.contains("at /days: 9 is greater than"), "{message}");
    }

    #[test]
    fn a_broken_schema_checks_nothing() {
        let mut tool = weather();
        tool.input_schema.insert("type".into(), json!(42));
        assert_eq!(check(&tool, &Arguments::new()), Ok(()));
    }
}
