//! Tools of APIs and libraries that have other names for the fields of MCP: Cohere, LangChain, Gemini and
//! Bedrock.

use serde_json::{Map, Value, json};

use super::Outline;

/// Other names of `inputSchema` whose value is a schema.
const SCHEMAS: [&str; 2] = ["args_schema", "parametersJsonSchema"];
/// Fields whose value has the schemas of the parameters by name: of Cohere and of LangChain.
const DEFINITIONS: [&str; 2] = ["parameter_definitions", "args"];

/// True for an object that has its schema under one of these names.
pub(super) fn has_schema(fields: &Outline<'_>) -> bool {
    let names = SCHEMAS.iter().chain(&DEFINITIONS);
    names.into_iter().any(|name| fields.begins(name, '{'))
}

/// The fields under the names of MCP.
pub(super) fn as_mcp(mut fields: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(spec)) = fields.get("toolSpec") {
        fields = spec.clone();
        // Bedrock has the schema within one more object.
        if let Some(outer) = fields.get("inputSchema")
            && let Some(schema) = outer.get("json").cloned()
        {
            fields.insert("inputSchema".into(), schema);
        }
    }
    if fields.contains_key("inputSchema") {
        return fields;
    }
    for name in SCHEMAS {
        if fields.get(name).is_some_and(Value::is_object)
            && let Some(schema) = fields.shift_remove(name)
        {
            fields.insert("inputSchema".into(), schema);
            return fields;
        }
    }
    for name in DEFINITIONS {
        if let Some(Value::Object(parameters)) = fields.get(name) {
            let schema = of_parameters(parameters);
            fields.shift_remove(name);
            fields.insert("inputSchema".into(), schema);
            return fields;
        }
    }
    fields
}

/// A schema of parameters of which each says whether it is required.
fn of_parameters(parameters: &Map<String, Value>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, declared) in parameters {
        let mut schema = declared.clone();
        if let Value::Object(fields) = &mut schema
            && fields.shift_remove("required") == Some(Value::Bool(true))
        {
            required.push(name.as_str());
        }
        let schema = crate::schema::modern_value(&schema);
        properties.insert(name.clone(), schema);
    }
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::super::{ReadOptions, parse};
    use super::*;

    #[test]
    fn the_parameters_of_other_definitions_are_kept() {
        let a = json!({"type": "string", "description": "d"});
        let schema = json!({"type": "object", "properties": {"a": a}, "required": ["a"]});
        for (input, name) in [
            (
                json!([{"name": "t", "description": "x",
                    "parameter_definitions": {"a": {"type": "str", "description": "d", "required": true}}}]),
                "Cohere",
            ),
            (
                json!({"name": "t", "description": "x", "args_schema": schema}),
                "LangChain's args_schema",
            ),
            (
                json!([{"name": "t", "description": "x",
                    "args": {"a": {"type": "string", "description": "d", "required": true}}}]),
                "LangChain's args",
            ),
            (
                json!({"functionDeclarations": [{"name": "t", "description": "x", "parametersJsonSchema": schema}]}),
                "Gemini",
            ),
            (
                json!({"tools": [{"function_declarations": [{"name": "t", "description": "x", "parameters": schema}]}]}),
                "Gemini's request",
            ),
            (
                json!({"toolConfig": {"tools": [{"toolSpec":
                    {"name": "t", "description": "x", "inputSchema": {"json": schema}}}]}}),
                "Bedrock",
            ),
        ] {
            let parsed = parse(input.to_string().as_bytes(), &ReadOptions::default()).unwrap();
            let tools: Vec<_> = parsed
                .tools
                .iter()
                .map(|tool| {
                    (
                        tool.id.as_str(),
                        tool.description.as_str(),
                        json!(tool.input_schema),
                    )
                })
                .collect();
            assert_eq!(tools, [("t", "x", schema.clone())], "{name}");
        }
    }
}
