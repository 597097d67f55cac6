//! The paths of Azure OpenAI: deployments in place of models, and OpenAI's own paths below
//! `/openai/v1`.

use axum::http::Uri;

use super::DropInEndpoint;
use super::model_routes::AZURE;
use toolscout_dropin::{Dialect, Target, Upstream};

/// Where a request of OpenAI's API goes. With Azure as a provider it goes to the path that it came
/// to, and else to the path of OpenAI.
pub fn target(endpoint: &DropInEndpoint, dialect: Dialect, uri: &Uri) -> Target {
    let target = Target::of(dialect);
    match azure_path(endpoint, uri) {
        Some(path) => Target {
            upstream: Upstream::Azure,
            path,
            ..target
        },
        None => target,
    }
}

/// The path below Azure's base URL, if the request goes there.
pub fn azure_path(endpoint: &DropInEndpoint, uri: &Uri) -> Option<String> {
    let path = uri.path().strip_prefix(AZURE)?;
    let has_azure = endpoint
        .provider
        .as_ref()
        .is_some_and(|dropin| dropin.has(Upstream::Azure));
    (has_azure && path.starts_with('/')).then(|| path.to_owned())
}
