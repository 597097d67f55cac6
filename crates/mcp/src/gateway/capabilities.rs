//! What a gateway can do: what its servers can.

use rmcp::model::{ErrorData, SKILLS_EXTENSION_ID, ServerCapabilities, TASKS_EXTENSION_ID};
use serde_json::Map;

use super::{GatewayState, Session};
use toolscout_finder::finder::Style;

/// What servers offer besides tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    Prompts,
    Resources,
    /// Subscriptions to resources.
    Subscriptions,
    Completions,
    Logging,
    Tasks,
    Skills,
}

impl Feature {
    const ALL: [Feature; 7] = [
        Feature::Prompts,
        Feature::Resources,
        Feature::Subscriptions,
        Feature::Completions,
        Feature::Logging,
        Feature::Tasks,
        Feature::Skills,
    ];

    fn is_in(self, capabilities: &ServerCapabilities) -> bool {
        match self {
            Feature::Prompts => capabilities.prompts.is_some(),
            Feature::Resources => capabilities.resources.is_some(),
            Feature::Subscriptions => match &capabilities.resources {
                Some(resources) => resources.subscribe == Some(true),
                None => false,
            },
            Feature::Completions => capabilities.completions.is_some(),
            Feature::Logging => capabilities.logging.is_some(),
            Feature::Tasks => capabilities.supports_tasks(),
            Feature::Skills => capabilities.supports_skills(),
        }
    }

    fn add_to(self, capabilities: &mut ServerCapabilities) {
        match self {
            // Whether or not their servers notify: servers come and go.
            Feature::Prompts => {
                let prompts = capabilities.prompts.get_or_insert_default();
                prompts.list_changed = Some(true);
            }
            Feature::Resources => {
                let resources = capabilities.resources.get_or_insert_default();
                resources.list_changed = Some(true);
            }
            Feature::Subscriptions => {
                let resources = capabilities.resources.get_or_insert_default();
                resources.subscribe = Some(true);
            }
            Feature::Completions => capabilities.completions = Some(Map::new()),
            Feature::Logging => capabilities.logging = Some(Map::new()),
            Feature::Tasks => {
                let extensions = capabilities.extensions.get_or_insert_default();
                extensions.insert(TASKS_EXTENSION_ID.to_owned(), Map::new());
            }
            Feature::Skills => {
                let extensions = capabilities.extensions.get_or_insert_default();
                extensions.insert(SKILLS_EXTENSION_ID.to_owned(), Map::new());
            }
        }
    }
}

impl GatewayState {
    /// What one of the servers can do that clients may know of. A server that was never connected may
    /// be able to do anything.
    pub(super) fn capabilities(&self) -> ServerCapabilities {
        let servers = self.pool.capabilities(|server| self.may_know(server));
        let mut capabilities = ServerCapabilities::builder().enable_tools().build();
        for feature in Feature::ALL {
            let has_it = |server: &Option<ServerCapabilities>| match server {
                Some(capabilities) => feature.is_in(capabilities),
                None => true,
            };
            if servers.iter().any(has_it) {
                feature.add_to(&mut capabilities);
            }
        }
        if self.config.style == Style::Inject
            && let Some(tools) = &mut capabilities.tools
        {
            tools.list_changed = Some(true);
        }
        capabilities
    }
}

impl Session {
    /// Refuses what no server can do, unless the client was told otherwise at the handshake: a server
    /// that was still connecting may have turned out to lack it.
    ///
    /// # Errors
    /// The error of a method that does not exist.
    pub(super) fn check(&self, feature: Feature, method: &str) -> Result<(), ErrorData> {
        let was_declared = match self.declared.get() {
            Some(declared) => feature.is_in(declared),
            None => false,
        };
        if was_declared || feature.is_in(&self.shared.capabilities()) {
            return Ok(());
        }
        let code = rmcp::model::ErrorCode::METHOD_NOT_FOUND;
        let message = format!("no connected server offers {method}");
        Err(ErrorData::new(code, message, None))
    }
}
