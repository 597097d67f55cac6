//! The requests of a client, and what answers each.

use std::sync::Arc;

use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, ErrorData, GetPromptRequestParams, GetPromptResponse, GetSkillRequestParams,
    GetSkillResult, GetTaskParams, GetTaskResult, InitializeRequestParams, InitializeResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
    UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};

use super::capabilities::Feature;
use super::elicitation::Repeated;
use super::notices::{LevelRequest, MAX_SUBSCRIPTIONS};
use super::own_tools::{DESCRIBE_TOOL, LIST_TOOLS, RUN_PLAN};
use super::{NAME_CHARS, Session};
use crate::connection::{TaskAnswer, TaskQuestion};
use crate::implementation;
use toolscout_base::printable::excerpt;
use toolscout_finder::finder::Style;
use toolscout_finder::finder::model_names::{CALL_TOOL, TOOL_SEARCH};
use toolscout_gate::tools::long_results::READ_MORE;

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(self.shared.capabilities())
            .with_server_info(implementation())
            .with_instructions(instructions(
                self.shared.search.count(),
                self.shared.config.style,
            ))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let result = self.negotiate_initialize(&request)?;
        let _ = self.declared.set(result.capabilities.clone());
        Ok(result)
    }

    async fn set_level(
        &self,
        request: LevelRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.check(Feature::Logging, "logging/setLevel")?;
        self.read_logs_from(&request).await;
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.check(Feature::Subscriptions, "resources/subscribe")?;
        self.add_subscription(request.uri, &context).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.check(Feature::Subscriptions, "resources/unsubscribe")?;
        self.remove_subscription(&request.uri);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let origin = self.origin(&context);
        let mut tools = self.tools(&origin).await;
        tools.extend(self.listed_for_apps(&context, &tools));
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let reply = Repeated::of(&mut request);
        let given = request.arguments.unwrap_or_default();
        match request.name.as_ref() {
            TOOL_SEARCH => Ok(self.search(&given, &context).await.into()),
            DESCRIBE_TOOL => Ok(self.describe(&given).await.into()),
            LIST_TOOLS => Ok(self.list(&given).await.into()),
            RUN_PLAN => Ok(self.run_plan(&given, &context).await.into()),
            CALL_TOOL => self.call_by_name(&given, reply, &context).await,
            name => match self.visible(name).await {
                Some(tool) => self.call_injected(tool, given, reply, &context).await,
                None if name == READ_MORE => Ok(self.read_more(given, &context).await.into()),
                None => match self.called_by_app(name, &context).await {
                    Some(tool) => self.call(tool, given, reply, &context).await,
                    None => Err(unknown_tool(name)),
                },
            },
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.check(Feature::Prompts, "prompts/list")?;
        Ok(ListPromptsResult::with_all_items(self.prompts().await))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.check(Feature::Prompts, "prompts/get")?;
        self.prompt(request, &context).await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.check(Feature::Resources, "resources/list")?;
        Ok(ListResourcesResult::with_all_items(self.resources().await))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.check(Feature::Resources, "resources/templates/list")?;
        let templates = self.resource_templates().await;
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.check(Feature::Resources, "resources/read")?;
        self.resource(request, &context).await
    }

    async fn list_skills(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        self.check(Feature::Skills, "skills/list")?;
        Ok(ListSkillsResult::with_all_items(self.skills().await))
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.check(Feature::Skills, "skills/get")?;
        self.skill(&request.uri).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.check(Feature::Completions, "completion/complete")?;
        self.completion(request).await
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        match self.task(TaskQuestion::State(request), &context).await? {
            TaskAnswer::State(state) => Ok(*state),
            TaskAnswer::Done => Err(ErrorData::internal_error("no state of a task", None)),
        }
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let asked = TaskQuestion::Answers(request);
        self.task(asked, &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let asked = TaskQuestion::End(request);
        self.task(asked, &context).await.map(drop)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let shared = Arc::clone(&self.shared);
        self.start_telling(context.peer.clone(), &context.extensions);
        let has_roots = match context.peer.peer_info() {
            Some(info) => info.capabilities.roots.is_some(),
            None => false,
        };
        if has_roots {
            shared
                .pool
                .set_client_with_roots(context.peer.clone())
                .await;
        }
        if let Some(texts) = shared.texts.clone() {
            let ended = self.ended.clone();
            tokio::spawn(async move { texts.write(context.peer, &shared, &ended).await });
        }
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        self.shared.pool.roots_changed().await;
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut everything = SubscriptionFilter::builder()
            .tools_list_changed()
            .prompts_list_changed()
            .resources_list_changed()
            .build();
        let mut resources = requested.resource_subscriptions.clone();
        if let Some(resources) = &mut resources {
            resources.truncate(MAX_SUBSCRIPTIONS);
        }
        everything.resource_subscriptions = resources;
        Some(requested.intersection(&everything))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut list_version = self.list_version.subscribe();
        let mut offers_version = self.shared.pool.offers_changed();
        let sink = context.sink();
        let mut telling = std::pin::pin!(self.tell_subscriber(&context));
        loop {
            let is_told = tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = &mut telling => return Ok(()),
                changed = list_version.changed() => {
                    changed.is_ok() && sink.notify_tool_list_changed().await.is_ok()
                }
                changed = offers_version.changed() => {
                    // A client that asked for one kind alone gets no other.
                    let _ = sink.notify_prompt_list_changed().await;
                    let _ = sink.notify_resource_list_changed().await;
                    changed.is_ok()
                }
            };
            if !is_told {
                return Ok(());
            }
        }
    }
}

fn unknown_tool(name: &str) -> ErrorData {
    let name = excerpt(name, NAME_CHARS);
    ErrorData::invalid_params(
        format!(
            "no tool is called {name:?} here; find tools with {TOOL_SEARCH} and call them with {CALL_TOOL}"
        ),
        None,
    )
}

/// The instructions for a client, with the number of tools that can be found.
fn instructions(tools: usize, style: Style) -> String {
    let available = match tools {
        // A client connects before the servers of an empty catalog are connected.
        0 => "The tools of several servers are".to_owned(),
        1 => "1 tool is".to_owned(),
        tools => format!("{tools} tools of several servers are"),
    };
    let calling = match style {
        Style::Inject => {
            "the tools it finds are added to your list, and can be called through `call_tool` too"
        }
        Style::Dispatch => "call the tools it finds with `call_tool`",
    };
    format!(
        "{available} available through this one. Describe what you need to `tool_search`; {calling}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_never_claim_that_there_are_no_tools() {
        let text = |tools| instructions(tools, Style::Dispatch);
        assert!(text(0).starts_with("The tools of several servers are available"));
        assert!(text(1).starts_with("1 tool is available"));
        assert!(text(7).starts_with("7 tools of several servers are available"));
    }
}
