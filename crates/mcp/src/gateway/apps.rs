//! Tools for the apps of servers (MCP Apps): a page of a server that the client shows calls tools of its
//! server through the client.
//!
//! Clients that show apps get the tools that only apps call in their list, marked as their server marks
//! them, and keep them from models. An app knows the tools of its server by their plain names.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::Tool as McpTool;
use rmcp::service::{RequestContext, RoleServer};
use toolscout_index::formats::model_name;
use toolscout_index::{Tool, ToolId};

use super::resolve::NamedCall;
use super::tool_list::mcp_tool;
use super::{GatewayState, Session};
use crate::connection::APPS;

impl GatewayState {
    /// The tools that only apps call, by the names that apps use: the plain one, unless several servers
    /// have it.
    fn tools_for_apps(&self) -> Vec<(String, Arc<Tool>)> {
        let policies = self.gate.policies();
        let tools = self.pool.tools_for_apps(|tool| match &self.profile {
            Some(profile) => profile.has(tool, policies.class(tool)),
            None => true,
        });
        let mut called = BTreeMap::<&str, usize>::new();
        for tool in &tools {
            *called.entry(tool.id.name()).or_default() += 1;
        }
        let is_shared = |tool: &Tool| called.get(tool.id.name()).is_some_and(|number| *number > 1);
        let mut named = Vec::with_capacity(tools.len());
        for tool in &tools {
            let name = match is_shared(tool) {
                true => model_name(&tool.id),
                false => tool.id.name().to_owned(),
            };
            named.push((name, Arc::clone(tool)));
        }
        named
    }

    /// A tool that only apps call.
    pub(super) fn tool_for_apps(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let mut tools = self.tools_for_apps().into_iter().map(|(_, tool)| tool);
        tools.find(|tool| tool.id == *id)
    }
}

impl Session {
    /// The tools that only apps call, for a client that shows apps.
    pub(super) fn listed_for_apps(
        &self,
        context: &RequestContext<RoleServer>,
        listed: &[McpTool],
    ) -> Vec<McpTool> {
        if !shows_apps(context) {
            return Vec::new();
        }
        let mut tools = Vec::new();
        for (name, tool) in self.shared.tools_for_apps() {
            let is_taken = listed.iter().any(|other| other.name == name);
            let name = if is_taken { model_name(&tool.id) } else { name };
            tools.extend(mcp_tool(&tool, &name));
        }
        tools
    }

    /// The tool that an app means by this name: one that only apps call, or any other that no second
    /// server has.
    pub(super) async fn called_by_app(
        &self,
        name: &str,
        context: &RequestContext<RoleServer>,
    ) -> Option<Arc<Tool>> {
        if !shows_apps(context) {
            return None;
        }
        for (known, tool) in self.shared.tools_for_apps() {
            if known == name || model_name(&tool.id) == name {
                return Some(tool);
            }
        }
        self.resolve(&NamedCall::of(name)).await.ok()
    }
}

/// Whether a client shows apps.
fn shows_apps(context: &RequestContext<RoleServer>) -> bool {
    let capabilities = context.client_capabilities().unwrap_or_default();
    match capabilities.extensions {
        Some(extensions) => extensions.contains_key(APPS),
        None => false,
    }
}
