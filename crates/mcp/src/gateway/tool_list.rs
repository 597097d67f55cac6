//! The tools in the list of a session, as its client sees them.

use std::sync::Arc;

use rmcp::model::Tool as McpTool;
use serde_json::{Map, json};
use tokio::task::spawn_blocking;
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Tool, ToolId, text};

use super::{Session, own_tools};
use toolscout_gate::tools::Arguments;
use toolscout_gate::usage::Origin;

/// Fields of a definition beside those of [`Tool`] that clients get as the server wrote them.
const FIELDS_FOR_CLIENTS: [&str; 3] = ["annotations", "icons", "_meta"];

impl Session {
    /// The injected or pinned tool with this name, if there is one.
    pub(super) async fn visible(&self, name: &str) -> Option<Arc<Tool>> {
        let visible = self.toolbox.lock().find(name).cloned();
        if visible.is_some() || !self.shared.may_have_pins() {
            return visible;
        }
        // A session of one request has not listed its tools.
        self.take_pins().await;
        self.toolbox.lock().find(name).cloned()
    }

    /// The list of the session, for its client.
    pub(super) async fn tools(&self, origin: &Origin) -> Vec<McpTool> {
        let overview = self.take_pins().await;
        let mut tools = own_tools::definitions(&overview);
        let new = std::mem::take(&mut *self.pins_not_given.lock());
        let toolbox = self.toolbox.lock();
        let loaded = toolbox.tokens_by_tool(&new);
        self.shared.gate.usage().loaded(origin, loaded);
        for spec in toolbox.specs() {
            if let Some(tool) = toolbox.find(&spec.name) {
                tools.extend(mcp_tool(tool, &spec.name));
            }
        }
        tools
    }

    /// Puts the pinned tools in the toolbox, and returns what a client is told about all servers.
    pub(super) async fn take_pins(&self) -> Arc<str> {
        let shared = Arc::clone(&self.shared);
        // Many clients ask for the list once, so pinned tools must be in it.
        if shared.pool.awaits_pins() {
            shared.pool.settled(shared.config.settle).await;
        }
        let looked = spawn_blocking(move || (shared.overview(), shared.pinned())).await;
        let (overview, pinned) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                tracing::error!(%error, "looking at the servers panicked");
                return Arc::from("");
            }
        };
        let mut toolbox = self.toolbox.lock();
        // Only what the session did not have yet counts as loaded, once its client gets it.
        let mut new = Vec::new();
        for tool in &pinned {
            if !toolbox.holds(&tool.id) {
                new.push(tool.id.clone());
            }
        }
        // The rules of a profile may have changed since the last list.
        toolbox.unpin_all_but(&pinned);
        for tool in pinned {
            toolbox.pin(tool);
        }
        drop(toolbox);
        self.pins_not_given.lock().append(&mut new);
        overview
    }
}

pub(super) fn mcp_tool(tool: &Tool, name: &str) -> Option<McpTool> {
    // What the server says to clients. Fields of other formats and ours are not for them, and
    // `execution` promises tasks, which do not pass.
    let mut metadata = Map::new();
    for (field, value) in &tool.metadata {
        if FIELDS_FOR_CLIENTS.contains(&field.as_str()) {
            metadata.insert(field.clone(), value.clone());
        }
    }
    let title = match &tool.title {
        Some(title) => title.clone(),
        // Some clients leave out tools without a title.
        None => readable(tool.id.name()),
    };
    let plain = Tool {
        metadata,
        tags: Vec::new(),
        title: Some(title),
        ..tool.clone()
    };
    let mut value = formats::emit_tool(&plain, name, Emit::Mcp);
    for (key, of_id) in meta_of(&tool.id) {
        value["_meta"][key] = of_id;
    }
    serde_json::from_value(value).ok()
}

/// A name as people read it: `find_person` is "Find person".
fn readable(name: &str) -> String {
    let spaced = text::spaced(name);
    let mut letters = spaced.trim().chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => name.to_owned(),
    }
}

pub(super) fn meta_of(id: &ToolId) -> Arguments {
    let id = json!({ "server": id.server(), "name": id.name() });
    Arguments::from_iter([("toolscout".to_owned(), id)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_for_clients_has_all_that_its_server_says_to_them() {
        let mut tool = Tool::new("docs", "open").unwrap();
        tool.annotations.read_only_hint = Some(true);
        let said = json!({
            "annotations": { "title": "Opens a page" },
            "icons": [{ "src": "https://docs.example/icon.png", "mimeType": "image/png" }],
            "_meta": { "ui": { "resourceUri": "ui://docs/page" } },
            "execution": { "taskSupport": "required" },
            "toolscout_flags": ["odd"],
        });
        tool.metadata = said.as_object().cloned().unwrap();
        let shown = serde_json::to_value(mcp_tool(&tool, "docs__open").unwrap()).unwrap();
        let annotations = json!({ "readOnlyHint": true, "title": "Opens a page" });
        assert_eq!(shown["annotations"], annotations);
        assert_eq!(shown["icons"], said["icons"]);
        assert_eq!(shown["_meta"]["ui"], said["_meta"]["ui"]);
        assert_eq!(shown["_meta"]["toolscout"]["server"], "docs");
        assert!(shown.get("execution").is_none() && shown.get("toolscout_flags").is_none());
    }
}
