//! Documents that are no lists of tools: those that can be read become OpenAPI documents, the others
//! are refused by name with the next step.

use serde_json::{Map, Value, json};

use super::Outline;

/// Levels of a document that are converted; the parser refuses deeper ones.
pub(super) const MAX_LEVELS: usize = 130;

/// A document of another kind, that is read as an OpenAPI document.
#[derive(Clone, Copy)]
pub(super) enum Convertible {
    Postman,
    Discovery,
}

/// How a kind of document that has no tools is recognised, its name, and what to do with it.
struct Unusable {
    is: fn(&Outline<'_>) -> bool,
    name: &'static str,
    next_step: &'static str,
}

const UNUSABLE: [Unusable; 9] = [
    Unusable {
        is: |fields| fields.begins("log", '{') && fields.is_nested("log", "entries"),
        name: "a HAR recording of HTTP requests",
        next_step: "it has requests and no definitions; give the OpenAPI document of the API, or a Postman collection",
    },
    Unusable {
        is: |fields| fields.has("asyncapi"),
        name: "an AsyncAPI document",
        next_step: "its operations are messages and not requests; give the OpenAPI document of the API, if it has one",
    },
    Unusable {
        is: |fields| fields.has("arazzo"),
        name: "an Arazzo document",
        next_step: "it describes steps; give the OpenAPI documents that its `sourceDescriptions` name",
    },
    Unusable {
        is: |fields| fields.has("overlay") && fields.has("actions"),
        name: "an OpenAPI overlay",
        next_step: "apply it to its OpenAPI document, and give that",
    },
    Unusable {
        is: |fields| fields.text("_type").is_some_and(|kind| kind == "export"),
        name: "an Insomnia export",
        next_step: "export the collection as OpenAPI, or import it in Postman and export a collection v2.1",
    },
    Unusable {
        is: |fields| fields.has("__schema") || fields.is_nested("data", "__schema"),
        name: "a GraphQL schema",
        next_step: "its fields are no tools; connect an MCP server for GraphQL, or give an OpenAPI document",
    },
    Unusable {
        is: |fields| fields.begins("requests", '[') && fields.has("order"),
        name: "a Postman collection v1",
        next_step: "export it from Postman as a collection v2.1",
    },
    Unusable {
        is: |fields| {
            fields.has("values") && fields.text("_postman_variable_scope").is_some()
        },
        name: "a Postman environment",
        next_step: "give the collection; its variables can be written into the collection itself",
    },
    Unusable {
        is: |fields| fields.text("$schema").is_some() && fields.begins("properties", '{') && !fields.has("name"),
        name: "a JSON schema",
        next_step: "a tool needs a `name` and has the schema as its `inputSchema`",
    },
];

/// What an object is that is no tool and no list of tools, and what to do with it.
pub(super) fn unusable(fields: &Outline<'_>) -> Option<String> {
    let found = UNUSABLE.iter().find(|kind| (kind.is)(fields))?;
    let Unusable {
        name, next_step, ..
    } = found;
    Some(format!("it is {name} and has no tools: {next_step}"))
}

/// The kind of a document that can be read as an OpenAPI document.
pub(super) fn convertible(fields: &Outline<'_>) -> Option<Convertible> {
    let is_discovery = fields
        .text("kind")
        .is_some_and(|kind| kind.starts_with("discovery#rest"));
    let is_collection = fields.begins("item", '[') && fields.begins("info", '{');
    match () {
        () if is_discovery && (fields.has("resources") || fields.has("methods")) => {
            Some(Convertible::Discovery)
        }
        () if is_collection => Some(Convertible::Postman),
        () => None,
    }
}


/// Adds an operation to the paths of an OpenAPI document. One of a path and method that another has too
/// gets a path with a fragment, which is not sent.
pub(super) fn insert_operation(
    paths: &mut Map<String, Value>,
    path: String,
    method: &str,
    operation: Value,
) {
    let is_taken = |paths: &Map<String, Value>, path: &str| {
        paths.get(path).is_some_and(|item| item.get(method).is_some())
    };
    let mut free = path.clone();
    // By the number of paths, so that a thousand operations of one path are no million tries.
    for number in paths.len().. {
        if !is_taken(paths, &free) {
            break;
        }
        free = format!("{path}#{number}");
    }
    let item = paths.entry(free).or_insert_with(|| json!({}));
    item[method] = operation;
}

/// A field that is a text, or an empty one.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}
