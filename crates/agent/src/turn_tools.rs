//! What one turn can see and call: the agent's tools, or a part of a catalog.

use std::fmt;
use std::sync::Arc;

use toolscout_index::{Tool, ToolId};

use super::AgentState;
use toolscout_finder::finder::ToolSearch;
use toolscout_finder::finder::search::SearchRequest;
use toolscout_finder::profiles::ToolProfile;
use toolscout_gate::gate::{Definition, Directory};
use toolscout_gate::tools::Callable;

/// The tools of a profile, for one question.
#[derive(Clone)]
pub struct QuestionTools {
    /// The profile.
    pub profile: Arc<ToolProfile>,
    /// Its tools.
    pub search: Arc<dyn ToolSearch>,
    /// The whole catalog, where it is not that of the agent. Of its tools those can be called that
    /// have the same definition in the agent's catalog.
    pub other_catalog: Option<Arc<dyn ToolSearch>>,
}

impl fmt::Debug for QuestionTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuestionTools")
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// The tools of a turn.
#[derive(Clone)]
pub(super) struct TurnTools {
    shared: Arc<AgentState>,
    limited: Option<QuestionTools>,
}

impl TurnTools {
    pub(super) fn new(shared: Arc<AgentState>, limited: Option<QuestionTools>) -> Self {
        TurnTools { shared, limited }
    }

    /// The tools that can be found.
    pub(super) fn search(&self) -> &Arc<dyn ToolSearch> {
        match &self.limited {
            Some(limited) => &limited.search,
            None => &self.shared.search,
        }
    }

    /// The tools that are always visible: the user's own, then those pinned in the settings. Blocks.
    pub(super) fn pinned(&self) -> Vec<Arc<Tool>> {
        let own = self.shared.own_tools.iter().filter(|tool| self.has(tool));
        let mut tools: Vec<Arc<Tool>> = own.cloned().collect();
        let mut pins = self.shared.config.pins.clone();
        pins.extend(self.shared.always_loaded());
        // The search below finds tools of the profile alone, also by the pins of the agent.
        if let Some(limited) = &self.limited {
            pins = limited.profile.pins(pins);
        }
        if !pins.is_empty() {
            let request = SearchRequest {
                select: pins,
                limit: Some(1),
                ..SearchRequest::default()
            };
            let found = self.search().search(&request);
            tools.extend(found.hits.into_iter().map(|hit| hit.tool));
        }
        tools
    }

    /// Tokens of all tools that can be found. Blocks.
    pub(super) fn tokens(&self) -> usize {
        match &self.limited {
            None => self.shared.catalog_tokens(),
            Some(limited) => self.shared.tokens_of(&limited.search.tools()),
        }
    }

    /// Whether a tool of the user's own can be used. It is in no catalog, so a profile has to name it.
    fn has(&self, own: &Tool) -> bool {
        let Some(limited) = &self.limited else {
            return true;
        };
        let class = self.shared.gate.policies().class(own);
        limited.profile.names(own, class)
    }

    /// Whether what this agent calls under an id is this tool: anyone who may write another catalog
    /// could describe one of its tools as harmless.
    fn is_connected(&self, id: &ToolId) -> bool {
        let Some(QuestionTools {
            other_catalog: Some(other),
            ..
        }) = &self.limited
        else {
            return true;
        };
        // As the catalogs have them, without what the profile changes.
        match (other.tool(id), self.shared.search.tool(id)) {
            (Some(tool), Some(own)) => Definition::of(&tool) == Definition::of(&own),
            _ => false,
        }
    }
}

impl Directory for TurnTools {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        if let Some(own) = self.shared.own_tool(id) {
            return Some(own);
        }
        // A precondition may call what a profile leaves out.
        let whole = match &self.limited {
            Some(limited) => limited.other_catalog.as_ref(),
            None => None,
        };
        match self.search().tool(id) {
            Some(tool) => Some(tool),
            None => whole.unwrap_or(&self.shared.search).tool(id),
        }
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        let is_callable = match self.shared.own_tool(id) {
            Some(own) => self.has(&own),
            None => self.is_connected(id),
        };
        let callable = is_callable.then(|| self.shared.callable(id))??;
        match &self.limited {
            // A precondition calls a tool that the profile leaves out as it is.
            Some(limited) if self.search().tool(id).is_some() => {
                Some(limited.profile.callable(id, callable))
            }
            _ => Some(callable),
        }
    }
}
