//! Arguments as a model writes them: text to a checked object, or words that say where they are wrong.

use serde_json::Value;
use toolscout_index::Tool;

use crate::llm::excerpt;
use crate::tools::Arguments;

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
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(Value::Null) => Ok(Arguments::new()),
        // Some models encode the object twice.
        Ok(Value::String(inner)) if inner.trim_start().starts_with('{') => parse(&inner),
        Ok(other) => Err(format!("the arguments must be a JSON object, not {}", excerpt(&other.to_string(), 80))),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}; they begin with {}", excerpt(text, 80))),
    }
}

/// Checks arguments against the tool's own schema. A schema that is none itself checks nothing: that is the tool's
/// fault and not the model's.
///
/// # Errors
/// Every violation with its path, up to five, for the model.
pub fn check(tool: &Tool, arguments: &Arguments) -> Result<(), String> {
    let schema = Value::Object(tool.input_schema.clone());
    let Ok(validator) = jsonschema::validator_for(&schema) else { return Ok(()) };
    let instance = Value::Object(arguments.clone());
    let violations: Vec<String> = validator
        .iter_errors(&instance)
        .take(MAX_VIOLATIONS)
        .map(|error| format!("at {}: {}", place(&error.instance_path().to_string()), excerpt(&error.to_string(), 200)))
        .collect();
    match violations.is_empty() {
        true => Ok(()),
        false => Err(format!("the arguments break the schema of {}: {}", tool.id, violations.join("; "))),
    }
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() { "the top" } else { pointer }
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
        assert!(parse("[1]").unwrap_err().contains("must be a JSON object, not [1]"));
        assert!(parse(r#"{"a": tru"#).unwrap_err().contains("line 1 column"));
    }

    #[test]
    fn violations_are_named_with_their_place() {
        let check = |arguments: Value| check(&weather(), arguments.as_object().unwrap());
        assert_eq!(check(json!({ "city": "Oslo", "days": 3 })), Ok(()));
        let message = check(json!({ "days": 9 })).unwrap_err();
        assert!(message.contains("\"city\" is a required property"), "{message}");
        assert!(message.contains("at /days: 9 is greater than"), "{message}");
    }

    #[test]
    fn a_broken_schema_checks_nothing() {
        let mut tool = weather();
        tool.input_schema.insert("type".into(), json!(42));
        assert_eq!(check(&tool, &Arguments::new()), Ok(()));
    }
}
