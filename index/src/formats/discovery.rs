//! Google's discovery documents as OpenAPI documents.

use serde_json::{Map, Value, json};

use super::foreign::{MAX_LEVELS as MAX_NESTING, insert_operation, text};

/// Resources within resources that are read.
const MAX_LEVELS: usize = 16;
/// Fields of a parameter that are not part of its schema.
const PARAMETER_FIELDS: [&str; 6] = [
    "location",
    "required",
    "repeated",
    "description",
    "enumDescriptions",
    "id",
];

/// The OpenAPI document of the same methods. A method of a path that another has too is an operation
/// of a path with a fragment, which is not sent.
pub(super) fn to_openapi(document: &Value) -> Value {
    let mut paths = Map::new();
    let mut methods = Vec::new();
    collect(document, &[], &mut methods, 0);
    for (tags, method) in methods {
        let (path, operation) = operation(method, &tags);
        let verb = text(method, "httpMethod").to_ascii_lowercase();
        insert_operation(&mut paths, path, &verb, operation);
    }
    let title = match text(document, "name") {
        "" => text(document, "title"),
        name => name,
    };
    let scopes = document.pointer("/auth/oauth2/scopes");
    json!({
        "openapi": "3.0.3",
        "info": { "title": title, "version": text(document, "version") },
        "servers": [{ "url": base_url(document) }],
        "paths": paths,
        "components": {
            "schemas": schemas(document),
            "securitySchemes": { "oauth2": { "type": "oauth2", "x-scopes": scopes } },
        },
    })
}

fn base_url(document: &Value) -> String {
    match text(document, "baseUrl") {
        "" => format!(
            "{}{}",
            text(document, "rootUrl"),
            text(document, "servicePath")
        ),
        url => url.to_owned(),
    }
    .trim_end_matches('/')
    .to_owned()
}

/// The methods of a resource and of the resources in it, with the names of these.
fn collect<'a>(
    resource: &'a Value,
    tags: &[&'a str],
    methods: &mut Vec<(Vec<&'a str>, &'a Value)>,
    level: usize,
) {
    let own = resource.get("methods").and_then(Value::as_object);
    for method in own.into_iter().flat_map(Map::values) {
        methods.push((tags.to_vec(), method));
    }
    if level == MAX_LEVELS {
        return;
    }
    let inner = resource.get("resources").and_then(Value::as_object);
    for (name, inner) in inner.into_iter().flatten() {
        let mut within = tags.to_vec();
        within.push(name);
        collect(inner, &within, methods, level + 1);
    }
}

fn operation(method: &Value, tags: &[&str]) -> (String, Value) {
    let mut parameters = Vec::new();
    // A tool needs none of the parameters that all methods have: they choose the answer's form.
    let declared = method.get("parameters").and_then(Value::as_object);
    for (name, declared) in declared.into_iter().flatten() {
        parameters.push(parameter(name, declared));
    }
    let mut operation = json!({
        "operationId": text(method, "id"),
        "description": text(method, "description"),
        "tags": tags,
        "parameters": parameters,
        "security": [{ "oauth2": method.get("scopes").unwrap_or(&Value::Null) }],
    });
    if let Some(request) = reference(method.get("request")) {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": request } } });
    }
    if let Some(response) = reference(method.get("response")) {
        operation["responses"] =
            json!({ "200": { "content": { "application/json": { "schema": response } } } });
    }
    (path(method), operation)
}

fn reference(named: Option<&Value>) -> Option<Value> {
    let name = named?.get("$ref")?.as_str()?;
    Some(json!({ "$ref": format!("#/components/schemas/{name}") }))
}

/// The path with plain parameters: `{+name}` stands for several segments there.
fn path(method: &Value) -> String {
    let path = match text(method, "path") {
        "" => text(method, "flatPath"),
        path => path,
    };
    format!(
        "/{}",
        path.trim_start_matches('/')
            .replace("{+", "{")
            .replace("{/", "/{")
    )
}

fn parameter(name: &str, declared: &Value) -> Value {
    let mut schema = declared.as_object().cloned().unwrap_or_default();
    schema.retain(|field, _| !PARAMETER_FIELDS.contains(&field.as_str()));
    let mut schema = Value::Object(numeric(schema));
    if declared.get("repeated") == Some(&Value::Bool(true)) {
        schema = json!({ "type": "array", "items": schema });
    }
    let mut parameter = json!({
        "name": name,
        "in": text(declared, "location"),
        "required": declared.get("required") == Some(&Value::Bool(true)),
        "schema": schema,
    });
    if let Some(description) = declared.get("description") {
        parameter["description"] = description.clone();
    }
    parameter
}

/// Limits are written as texts there.
fn numeric(mut schema: Map<String, Value>) -> Map<String, Value> {
    for limit in ["minimum", "maximum"] {
        if let Some(Value::String(text)) = schema.get(limit)
            && let Ok(number) = serde_json::from_str::<serde_json::Number>(text)
        {
            schema.insert(limit.into(), number.into());
        }
    }
    // The default is what the API assumes, as text for every type.
    if let Some(kind) = schema.get("type")
        && kind != "string"
    {
        schema.shift_remove("default");
    }
    schema
}

fn schemas(document: &Value) -> Map<String, Value> {
    let declared = document.get("schemas").and_then(Value::as_object);
    let mut schemas = declared.cloned().unwrap_or_default();
    for schema in schemas.values_mut() {
        // Its own name, which is no keyword.
        if let Value::Object(fields) = schema {
            fields.shift_remove("id");
        }
        point(schema, 0);
    }
    schemas
}

/// Points references, which name a schema there, to it.
fn point(value: &mut Value, level: usize) {
    if level > MAX_NESTING {
        return;
    }
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(name)) = fields.get_mut("$ref")
                && !name.starts_with('#')
            {
                *name = format!("#/components/schemas/{name}");
            }
            let limits = numeric(std::mem::take(fields));
            *fields = limits;
            for value in fields.values_mut() {
                point(value, level + 1);
            }
        }
        Value::Array(items) => {
            for item in items {
                point(item, level + 1);
            }
        }
        _ => {}
    }
}
