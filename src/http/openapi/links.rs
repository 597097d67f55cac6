//! What to do with an answer: for each operation, which others take something out of it.

use utoipa::Modify;
use utoipa::openapi::link::Link;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi as Description, RefOr, Response};

use super::operations;

/// From an answer of one operation to a request of another.
struct Step {
    from: &'static str,
    status: &'static str,
    to: &'static str,
    /// The other's parameters, as runtime expressions over request and answer.
    parameters: &'static [(&'static str, &'static str)],
}

const fn step(
    from: &'static str,
    status: &'static str,
    to: &'static str,
    parameters: &'static [(&'static str, &'static str)],
) -> Step {
    Step {
        from,
        status,
        to,
        parameters,
    }
}

/// A catalog named in the answer.
const CATALOG_OF_ANSWER: &[(&str, &str)] = &[("catalog", "$response.body#/name")];
/// The catalog of the request's path.
const SAME_CATALOG: &[(&str, &str)] = &[("catalog", "$request.path.catalog")];
/// One tool, as its change answers.
const CHANGED_TOOL: &[(&str, &str)] = &[
    ("catalog", "$request.path.catalog"),
    ("id", "$response.body#/id"),
];
/// The first tool of several, as their change answers.
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
const TASK: &[(&str, &str)] = &[("id", "$response.body#/id")];
const CONVERSATION: &[(&str, &str)] = &[("id", "$response.header.x-conversation-id")];

const STEPS: &[Step] = &[
    step("create_catalog", "201", "show_catalog", CATALOG_OF_ANSWER),
    step("create_catalog", "201", "upsert_tools", CATALOG_OF_ANSWER),
    step("create_catalog", "201", "delete_catalog", CATALOG_OF_ANSWER),
    step(
        "ensure_catalog",
        "201",
        "set_catalog_settings",
        SAME_CATALOG,
    ),
    step("ensure_catalog", "201", "upsert_tools", SAME_CATALOG),
    step("ensure_catalog", "200", "search", SAME_CATALOG),
    step(
        "set_catalog_settings",
        "200",
        "catalog_settings",
        SAME_CATALOG,
    ),
    step("upsert_tools", "200", "show_tool", FIRST_ITEM),
    step("upsert_tools", "200", "search", SAME_CATALOG),
    step("upsert_tools", "200", "delete_tool", FIRST_ITEM),
    step("upsert_tools", "202", "show_task", TASK),
    step("upsert_tools", "202", "cancel_task", TASK),
    step("sync_server_tools", "202", "show_task", TASK),
    step("put_tool", "201", "show_tool", CHANGED_TOOL),
    step("put_tool", "201", "delete_tool", CHANGED_TOOL),
    step("put_tool", "200", "show_tool", CHANGED_TOOL),
    step("list_tools", "200", "list_tools", NEXT_PAGE),
    step("list_tools", "200", "show_tool", FIRST_LISTED),
    step("search", "200", "show_tool", FIRST_HIT),
    step("search", "200", "record_feedback", SAME_CATALOG),
    step("switch_memory", "200", "list_memory", SAME_CATALOG),
    step("record_feedback", "201", "list_memory", SAME_CATALOG),
    step("list_memory", "200", "forget_memory", SAME_CATALOG),
    step("chat", "200", "show_conversation", CONVERSATION),
    step("chat", "200", "delete_conversation", CONVERSATION),
];

/// Adds the steps to the answers they begin at.
pub struct Links;

impl Modify for Links {
    fn modify(&self, api: &mut Description) {
        for step in STEPS {
            if let Some(response) = answer(api, step) {
                response
                    .links
                    .insert(step.to.to_owned(), RefOr::T(link(step)));
            }
        }
    }
}

/// The answer that a step begins at.
fn answer<'a>(api: &'a mut Description, step: &Step) -> Option<&'a mut Response> {
    let operation = api
        .paths
        .paths
        .values_mut()
        .flat_map(operations)
        .find(|operation| named(operation, step.from))?;
    match operation.responses.responses.get_mut(step.status)? {
        RefOr::T(response) => Some(response),
        RefOr::Ref(_) => None,
    }
}

fn link(step: &Step) -> Link {
    let parameters = step.parameters.iter().fold(
        Link::builder().operation_id(step.to),
        |link, (name, value)| link.parameter(*name, *value),
    );
    parameters.build()
}

fn named(operation: &Operation, id: &str) -> bool {
    operation.operation_id.as_deref() == Some(id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::openapi::description;

    #[test]
    fn operations_have_names_of_their_own_and_every_step_leads_from_one_to_another() {
        let mut api = description();
        let names: Vec<String> = api
            .paths
            .paths
            .values_mut()
            .flat_map(operations)
            .filter_map(|operation| operation.operation_id.clone())
            .collect();
        let distinct: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(distinct.len(), names.len(), "{names:?}");
        for step in STEPS {
            assert!(
                answer(&mut api, step).is_some(),
                "no answer {} of {}",
                step.status,
                step.from
            );
            assert!(
                distinct.contains(step.to),
                "{} leads to {}, which is not there",
                step.from,
                step.to
            );
        }
    }
}
