//! OpenAPI links: for each operation, which others use something of its response.

use utoipa::openapi::link::Link as OpenApiLink;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi as Description, RefOr, Response};

use super::operations;

/// A link from a response of one operation to a request of another.
struct Link {
    from: &'static str,
    status: &'static str,
    to: &'static str,
    /// Parameters of the target, as runtime expressions over request and response.
    parameters: &'static [(&'static str, &'static str)],
}

const fn link(
    from: &'static str,
    status: &'static str,
    to: &'static str,
    parameters: &'static [(&'static str, &'static str)],
) -> Link {
    Link {
        from,
        status,
        to,
        parameters,
    }
}

/// The catalog that the response names.
const CATALOG_OF_RESPONSE: &[(&str, &str)] = &[("catalog", "$response.body#/name")];
/// The catalog of the request's path.
const SAME_CATALOG: &[(&str, &str)] = &[("catalog", "$request.path.catalog")];
/// The tool that was written.
const WRITTEN_TOOL: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$response.body#/id"),
];
const CREATED_KEY: &[(&str, &str)] = &[("id", "$response.body#/id")];
/// The first of the tools that were written.
const FIRST_ITEM: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$response.body#/items/0/id"),
];
const FIRST_LISTED: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$response.body#/tools/0/id"),
];
const FIRST_HIT: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$response.body#/hits/0/id"),
];
const NEXT_PAGE: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("cursor", "$response.body#/next_cursor"),
];
const NEWEST_EVALUATION: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$response.body#/evaluations/0/id"),
];
const SAME_EVALUATION: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$request.path.id"),
];
const ID_OF_RESPONSE: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$response.body#/id"),
];
const TASK: &[(&str, &str)] = &[("id", "$response.body#/id")];
const FIRST_TURN: &[(&str, &str)] = &[
    ("id", "$response.body#/id"),
    ("number", "$response.body#/turns/0/number"),
];
const CONVERSATION: &[(&str, &str)] = &[("id", "$response.header.x-conversation-id")];

const LINKS: &[Link] = &[
    link("create_catalog", "201", "show_catalog", CATALOG_OF_RESPONSE),
    link("create_catalog", "201", "upsert_tools", CATALOG_OF_RESPONSE),
    link(
        "create_catalog",
        "201",
        "delete_catalog",
        CATALOG_OF_RESPONSE,
    ),
    link(
        "ensure_catalog",
        "201",
        "set_catalog_settings",
        SAME_CATALOG,
    ),
    link("ensure_catalog", "201", "upsert_tools", SAME_CATALOG),
    link("ensure_catalog", "200", "search", SAME_CATALOG),
    link(
        "set_catalog_settings",
        "200",
        "catalog_settings",
        SAME_CATALOG,
    ),
    link("upsert_tools", "200", "show_tool", FIRST_ITEM),
    link("upsert_tools", "200", "search", SAME_CATALOG),
    link("upsert_tools", "200", "delete_tool", FIRST_ITEM),
    link("upsert_tools", "202", "show_task", TASK),
    link("upsert_tools", "202", "cancel_task", TASK),
    link("sync_server_tools", "202", "show_task", TASK),
    link("put_tool", "201", "show_tool", WRITTEN_TOOL),
    link("put_tool", "201", "delete_tool", WRITTEN_TOOL),
    link("put_tool", "200", "show_tool", WRITTEN_TOOL),
    link("list_tools", "200", "list_tools", NEXT_PAGE),
    link("list_tools", "200", "show_tool", FIRST_LISTED),
    link("search", "200", "show_tool", FIRST_HIT),
    link("search", "200", "record_feedback", SAME_CATALOG),
    link("switch_memory", "200", "list_memory", SAME_CATALOG),
    link("record_feedback", "201", "list_memory", SAME_CATALOG),
    link("list_memory", "200", "forget_memory", SAME_CATALOG),
    link("start_evaluation", "202", "show_task", TASK),
    link("start_evaluation", "202", "cancel_task", TASK),
    link("start_evaluation", "202", "list_evaluations", SAME_CATALOG),
    link(
        "list_evaluations",
        "200",
        "show_evaluation",
        NEWEST_EVALUATION,
    ),
    link(
        "show_evaluation",
        "200",
        "list_evaluation_queries",
        SAME_EVALUATION,
    ),
    link(
        "show_evaluation",
        "200",
        "delete_evaluation",
        SAME_EVALUATION,
    ),
    link("send_report", "201", "show_evaluation", ID_OF_RESPONSE),
    link("begin_judging", "201", "show_judging", ID_OF_RESPONSE),
    link("begin_judging", "201", "judge", ID_OF_RESPONSE),
    link("begin_judging", "201", "export_judgements", ID_OF_RESPONSE),
    link("begin_judging", "201", "delete_judging", ID_OF_RESPONSE),
    link("chat", "200", "show_conversation", CONVERSATION),
    link("chat", "200", "delete_conversation", CONVERSATION),
    link("show_conversation", "200", "show_turn_events", FIRST_TURN),
    link("create_key", "201", "show_key", CREATED_KEY),
    link("create_key", "201", "revoke_key", CREATED_KEY),
];

/// Adds the links to the responses that they start from.
pub fn add(description: &mut Description) {
    // A test makes sure that every link has a source.
    for link in LINKS {
        if let Some(response) = source(description, link) {
            response
                .links
                .insert(link.to.to_owned(), RefOr::T(link.to_openapi()));
        }
    }
}

/// The response that a link starts from.
fn source<'a>(description: &'a mut Description, link: &Link) -> Option<&'a mut Response> {
    let operation = description
        .paths
        .paths
        .values_mut()
        .flat_map(operations)
        .find(|operation| has_id(operation, link.from))?;
    match operation.responses.responses.get_mut(link.status)? {
        RefOr::T(response) => Some(response),
        RefOr::Ref(_) => None,
    }
}

impl Link {
    fn to_openapi(&self) -> OpenApiLink {
        let mut link = OpenApiLink::builder().operation_id(self.to);
        for (name, value) in self.parameters {
            link = link.parameter(*name, *value);
        }
        link.build()
    }
}

fn has_id(operation: &Operation, id: &str) -> bool {
    operation.operation_id.as_deref() == Some(id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operation_ids_are_unique_and_every_link_joins_two_operations() {
        let mut description = crate::router::description();
        let ids: Vec<String> = description
            .paths
            .paths
            .values_mut()
            .flat_map(operations)
            .filter_map(|operation| operation.operation_id.clone())
            .collect();
        let distinct: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        for link in LINKS {
            assert!(
                source(&mut description, link).is_some(),
                "no response {} of {}",
                link.status,
                link.from
            );
            assert!(
                distinct.contains(link.to),
                "{} links to {}, which does not exist",
                link.from,
                link.to
            );
        }
    }
}
