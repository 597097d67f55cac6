//! The OpenAPI document: what the handlers' annotations cannot express is added here.

pub mod docs;
mod links;

use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    Content, OpenApi as Description, PathItem, Ref, RefOr, Required, ResponseBuilder,
};

use crate::catalogs::companions;
use toolscout_gate::usage::report::Order;

use crate::request::error::ErrorBody;
use toolscout_agent::Event;

#[derive(OpenApi)]
#[openapi(
    info(title = "toolscout", description = "Tool search for agents."),
    // Schemas that no handler names as its body.
    components(schemas(ErrorBody, Event, Order))
)]
struct Base;

/// The document without any route.
pub fn base() -> Description {
    Base::openapi()
}

/// Adds to the document of all routes what they have in common.
pub fn complete(mut description: Description) -> Description {
    name_wildcards(&mut description);
    add_path_parameters(&mut description);
    add_error_responses(&mut description);
    add_keys(&mut description);
    links::add(&mut description);
    description
}

/// OpenAPI has no wildcards: axum's `{*id}`, which may contain slashes, becomes `{id}`, with what its
/// handler reads behind it.
fn name_wildcards(description: &mut Description) {
    let paths = std::mem::take(&mut description.paths.paths);
    for (path, item) in paths {
        description
            .paths
            .paths
            .insert(companions::documented(&path), item);
    }
}

/// Routes of the providers' APIs read their path as a whole. Their parameters are in the path alone.
fn add_path_parameters(description: &mut Description) {
    for (path, item) in &mut description.paths.paths {
        for operation in operations(item) {
            let described = operation.parameters.get_or_insert_default();
            for name in parameters_of(path) {
                if !described.iter().any(|known| is_in_path(known, name)) {
                    described.push(RefOr::T(text_in_path(name)));
                }
            }
            if described.is_empty() {
                operation.parameters = None;
            }
        }
    }
}

/// The names in braces.
fn parameters_of(path: &str) -> impl Iterator<Item = &str> {
    let beginnings = path.split('{').skip(1);
    beginnings.filter_map(|rest| Some(rest.split_once('}')?.0))
}

fn is_in_path(parameter: &RefOr<Parameter>, name: &str) -> bool {
    match parameter {
        RefOr::T(known) => known.name == name && known.parameter_in == ParameterIn::Path,
        RefOr::Ref(_) => false,
    }
}

fn text_in_path(name: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("As the provider's API names it"))
        .schema(Some(Object::with_type(Type::String)))
        .build()
}

/// Every operation may answer with an error, and all errors have one shape, unless an operation says
/// otherwise.
fn add_error_responses(description: &mut Description) {
    let body = Content::new(Some(RefOr::Ref(Ref::from_schema_name("Error"))));
    let response = ResponseBuilder::new()
        .description("The request failed")
        .content("application/json", body)
        .build();
    for operation in description.paths.paths.values_mut().flat_map(operations) {
        operation
            .responses
            .responses
            .entry("default".into())
            // Some operations describe their errors themselves.
            .or_insert_with(|| RefOr::T(response.clone()));
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.post,
        &mut item.put,
        &mut item.patch,
        &mut item.delete,
    ]
    .into_iter()
    .flatten()
}

/// A key goes in either of two headers. A server without keys needs none.
fn add_keys(description: &mut Description) {
    let bearer = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    let header = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
    let components = description.components.get_or_insert_default();
    components.add_security_scheme("bearer", bearer);
    components.add_security_scheme("api_key", header);
    let no_scopes: [&str; 0] = [];
    description.security = Some(vec![
        SecurityRequirement::default(),
        SecurityRequirement::new("bearer", no_scopes),
        SecurityRequirement::new("api_key", no_scopes),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_response_has_a_description_and_every_operation_a_tag() {
        let mut description = crate::router::description();
        for (path, item) in &mut description.paths.paths {
            assert!(!path.contains('*'), "{path}");
            for operation in operations(item) {
                let id = operation.operation_id.clone().unwrap_or_default();
                for name in parameters_of(path) {
                    let mut described = operation.parameters.iter().flatten();
                    let is_described = described.any(|parameter| is_in_path(parameter, name));
                    assert!(is_described, "{path} {id}: {name}");
                }
                assert!(operation.tags.is_some(), "{path} {id}");
                for (status, response) in &operation.responses.responses {
                    let RefOr::T(response) = response else {
                        panic!("{path} {id} {status}: a reference");
                    };
                    assert!(!response.description.is_empty(), "{path} {id} {status}");
                }
            }
        }
    }
}
