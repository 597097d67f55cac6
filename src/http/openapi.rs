//! The description of the API, made from the handlers' own annotations.

mod links;

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Content, OpenApi as Description, PathItem, Ref, RefOr, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use self::links::Links;
use super::{agent, catalogs, error, feedback, memory, search, servers, service, tasks, tools};
use crate::agent::Event;

/// The OpenAPI description of every route.
pub fn description() -> Description {
    Api::openapi()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "toolscout", description = "Tool search for agents."),
    paths(
        search::search,
        search::search_by_query,
        search::search_default,
        tools::list,
        tools::upsert,
        tools::remove_matching,
        tools::show,
        tools::put,
        tools::remove,
        servers::sync,
        catalogs::list,
        catalogs::create,
        catalogs::show,
        catalogs::ensure,
        catalogs::delete,
        catalogs::settings,
        catalogs::set_settings,
        catalogs::stats,
        feedback::record,
        memory::list,
        memory::switch,
        memory::export,
        memory::forget,
        tasks::show,
        tasks::cancel,
        agent::chat,
        agent::chat_by_query,
        agent::token::show,
        agent::stop,
        agent::approve,
        agent::list,
        agent::read,
        agent::delete,
        service::livez,
        service::readyz,
        service::healthz,
        service::version,
        service::metrics,
        service::openapi,
        service::docs,
    ),
    components(schemas(error::ErrorBody, Event)),
    modifiers(&Errors, &Keys, &Links)
)]
struct Api;

/// Every operation may answer with the one shape of errors.
struct Errors;

impl Modify for Errors {
    fn modify(&self, api: &mut Description) {
        let body = Content::new(Some(RefOr::Ref(Ref::from_schema_name("Error"))));
        let response = ResponseBuilder::new()
            .description("What went wrong")
            .content("application/json", body)
            .build();
        for operation in api.paths.paths.values_mut().flat_map(operations) {
            operation
                .responses
                .responses
                .insert("default".into(), RefOr::T(response.clone()));
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.post,
        &mut item.put,
        &mut item.delete,
    ]
    .into_iter()
    .flatten()
}

/// Keys go in either of two headers, or are not needed.
struct Keys;

impl Modify for Keys {
    fn modify(&self, api: &mut Description) {
        let bearer =
            SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        let header = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-API-Key")));
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("bearer", bearer);
        components.add_security_scheme("api_key", header);
        let none: [&str; 0] = [];
        api.security = Some(vec![
            SecurityRequirement::default(),
            SecurityRequirement::new("bearer", none),
            SecurityRequirement::new("api_key", none),
        ]);
    }
}
