//! The tools that the model sees in an exchange, and those of them whose calls the client does not see.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use toolscout_index::{Tool, ToolId};

use super::hits::FoundTool;
use crate::DropInRequest;
use crate::dialect::{HiddenTools, Protocol};
use crate::tools::shown::{Loaded, ShownTools};
use crate::tools::tool_list::{ToolList, estimated_tokens};
use toolscout_finder::finder::model_names;

/// The tools that the model sees: some of the request's own, and found ones after them.
pub struct VisibleTools {
    /// The tools of the request.
    pub list: Arc<ToolList>,
    /// The found ones.
    pub shown: ShownTools,
    /// The tools whose calls the client does not see: the search tool, and those of the other catalog.
    pub hidden: HiddenTools,
    foreign: Foreign,
    protocol: &'static dyn Protocol,
}

impl VisibleTools {
    /// The tools of a request, with those that were shown before it. `foreign` are those of them that are
    /// of the other catalog.
    pub fn new(
        request: &DropInRequest,
        list: Arc<ToolList>,
        mut shown: ShownTools,
        foreign: Vec<(String, ToolId)>,
    ) -> Self {
        let protocol = request.dialect.protocol();
        let foreign = Foreign::of(request, foreign);
        // Definitions change between requests, so each tool gets the tokens that it has now.
        shown.retain(|name| match list.deferred_tokens(name) {
            Some(tokens) => Some(tokens),
            None => Some(tokens_of(protocol, foreign.present.get(name)?)),
        });
        VisibleTools {
            hidden: foreign.hidden_with(&list),
            list,
            shown,
            foreign,
            protocol,
        }
    }

    /// Shows a tool of the request whatever the budget: it was called or chosen, so it is evicted last. The
    /// client's own tools that are always shown need no place among the found ones.
    pub fn require(&mut self, name: &str) {
        let name = self.list.resolved(name);
        if let Some(tokens) = self.list.deferred_tokens(name) {
            self.shown.require(name, tokens);
        }
    }

    /// The same with a tool of the other catalog, which the model has called by this name.
    pub fn require_foreign(&mut self, name: &str, tool: &Tool) {
        self.shown.require(name, self.tokens_of(tool));
    }

    /// The tool of the other catalog that the model sees under this name.
    pub fn foreign(&self, name: &str) -> Option<&Arc<Tool>> {
        self.foreign.present.get(name)
    }

    /// Their definitions.
    pub fn definitions(&self) -> Bytes {
        let foreign = |name: &str| {
            let tool = self.foreign(name)?;
            Some(self.protocol.search_tool(&model_names::spec(tool)))
        };
        let shown = self.shown.names();
        self.list.shown(self.protocol, shown, foreign)
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.list.visible_count() + self.shown.len()
    }

    /// Tokens of their definitions.
    pub fn tokens(&self) -> usize {
        self.list.visible_tokens() + self.shown.tokens()
    }

    /// Tokens of a tool that is not of the request.
    pub fn tokens_of(&self, tool: &Tool) -> usize {
        tokens_of(self.protocol, tool)
    }

    /// Shows found tools as far as the budget allows.
    pub fn load(&mut self, hits: &[FoundTool], budget_tokens: usize) -> Loaded {
        let mut wanted = Vec::with_capacity(hits.len());
        for hit in hits {
            let tokens = match hit.is_foreign {
                true => Some(self.tokens_of(&hit.tool)),
                false => self.list.deferred_tokens(&hit.name),
            };
            wanted.extend(tokens.map(|tokens| (hit.name.clone(), tokens)));
        }
        let loaded = self.shown.load(&wanted, budget_tokens);
        for name in &loaded.added {
            let hit = hits.iter().find(|hit| hit.name == *name);
            if let Some(hit) = hit.filter(|hit| hit.is_foreign) {
                self.hidden.add(name);
                let tool = Arc::clone(&hit.tool);
                self.foreign.present.insert(name.clone(), tool);
            }
        }
        loaded
    }

    /// The tools of the other catalog that the model was shown, with those that are away: these may come
    /// back.
    pub fn foreign_ids(&self) -> Vec<(String, ToolId)> {
        let Foreign { present, away } = &self.foreign;
        let mut ids = Vec::with_capacity(present.len() + away.len());
        for (name, tool) in present {
            ids.push((name.clone(), tool.id.clone()));
        }
        ids.extend_from_slice(away);
        ids
    }
}

/// The tools of the other catalog that the model was shown.
#[derive(Default)]
struct Foreign {
    /// Those that can be called now, by name.
    present: BTreeMap<String, Arc<Tool>>,
    /// Those that cannot.
    away: Vec<(String, ToolId)>,
}

impl Foreign {
    fn of(request: &DropInRequest, shown: Vec<(String, ToolId)>) -> Self {
        let mut foreign = Foreign::default();
        for (name, id) in shown {
            let tool = match &request.extra {
                Some(extra) if extra.can_call(&id) => extra.search.tool(&id),
                _ => None,
            };
            match tool {
                Some(tool) => drop(foreign.present.insert(name, tool)),
                None => foreign.away.push((name, id)),
            }
        }
        foreign
    }

    /// The tools whose calls the client does not see: these, and the search tool.
    fn hidden_with(&self, list: &ToolList) -> HiddenTools {
        let hidden_tools = HiddenTools::default();
        for name in self.present.keys().chain([&list.search_name]) {
            hidden_tools.add(name);
        }
        // The model may still call them, and the client does not know them. A name that one of the
        // client's tools could be mistaken for stays the client's.
        for (name, _) in &self.away {
            if list.leaves_free(name) {
                hidden_tools.add(name);
            }
        }
        hidden_tools
    }
}

fn tokens_of(protocol: &dyn Protocol, tool: &Tool) -> usize {
    estimated_tokens(&protocol.search_tool(&model_names::spec(tool)))
}
