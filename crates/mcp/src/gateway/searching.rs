//! The tools of the gateway that find tools and describe them.

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::Value;
use tokio::task::spawn_blocking;
use toolscout_index::ToolId;

use super::requests::has_session;
use super::search_answer::Detail;
use super::{Session, failed, own_tools, resolve, search_answer, servers};
use toolscout_finder::finder::items::{self, Audience};
use toolscout_finder::finder::meta_tools;
use toolscout_finder::finder::search::{Found, off_async_threads, why_not_searched};
use toolscout_finder::finder::toolbox::Injection;
use toolscout_finder::finder::{Style, recorded};
use toolscout_gate::tools::Arguments;
use toolscout_gate::tools::long_results::{self, READ_MORE};

impl Session {
    pub(super) async fn search(
        &self,
        given: &Arguments,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let config = &self.shared.config;
        let request = match meta_tools::parse(given, &config.find) {
            Ok(request) => request,
            Err(message) => return failed(&message),
        };
        let usual = config.detail_for(self.shared.profile.as_deref());
        let detail = match usual.or_given(given) {
            Ok(detail) => detail,
            Err(message) => return failed(&message),
        };
        // Right after the start, the tools of servers that are still connecting would be missing.
        self.shared.pool.settled(config.settle).await;
        let absent = self.shared.absent_servers();
        let (usage, origin) = (self.shared.gate.usage().clone(), self.origin(context));
        let found = off_async_threads(&self.shared.search, move |search| {
            let mut found = search.search(&request);
            found.note_absent(&request.filter, absent);
            let sent = Some(detail.format());
            recorded::searched(&usage, origin, &request, &found, sent);
            (found, search.learns(), request.queries)
        });
        let (mut found, learns, queries) = match found.await {
            Ok(searched) => searched,
            Err(error) => return failed(why_not_searched(&error)),
        };
        let (who, conversation) = self.conversation(context);
        let conversation = (who.as_str(), conversation.as_str());
        if learns {
            self.shared.trails.found(conversation, &queries, &found);
        }
        // Without sessions, the clients of a key are one conversation: each has seen its own answers only.
        if has_session(context) {
            self.shared
                .histories
                .note(conversation, &queries, &mut found);
        }
        // An earlier search of the conversation has described these tools.
        let is_short = found.repeats > 0 && !given.contains_key("detail");
        let visible = self.names_in_list(&found).await;
        let injection = match self.style(context) {
            Style::Inject => self.inject(&found, context).await,
            Style::Dispatch => None,
        };
        let mut answer = search_answer::describe(
            &found,
            injection.as_ref(),
            if is_short { Detail::Names } else { detail },
            config.answer_tokens,
            config.find.more,
            &|id| self.shared.unavailable(id),
        );
        if !visible.is_empty() {
            answer["already_visible"] = visible.into();
        }
        // Without sessions they would be in every answer.
        if has_session(context) {
            let found = found.hits.iter().map(|hit| &hit.tool.id).collect();
            self.tell_instructions(found, &mut answer);
        }
        CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
    }

    /// The names of the found tools that the client has in its list: pinned ones, and those of earlier searches.
    async fn names_in_list(&self, found: &Found) -> Vec<String> {
        if self.shared.may_have_pins() && self.toolbox.lock().is_empty() {
            // A session of one request has not listed its tools.
            self.take_pins().await;
        }
        let toolbox = self.toolbox.lock();
        let hits = found.hits.iter();
        let names = hits.filter_map(|hit| toolbox.name_of(&hit.tool.id));
        names.map(str::to_owned).collect()
    }

    /// Adds what servers say about the use of their tools, when the session first gets one of them.
    pub(super) fn tell_instructions(&self, tools: Vec<&ToolId>, answer: &mut Value) {
        let instructions = self.told.of(&tools, &self.shared.pool);
        if !instructions.is_empty() {
            answer["instructions"] = instructions.into();
        }
    }

    /// The whole definitions of tools.
    pub(super) async fn describe(&self, given: &Arguments) -> CallToolResult {
        let detail = match own_tools::Description::of(given) {
            Ok(detail) => detail,
            Err(message) => return failed(&message),
        };
        let names = match own_tools::names(given) {
            Ok(names) => names,
            Err(message) => return failed(&message),
        };
        let (mut tools, mut others, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            if let Some(item) = self.shared.other_item(&name).await {
                others.push(items::whole(&item, Audience::Client));
                continue;
            }
            match self.resolve(&resolve::NamedCall::of(&name)).await {
                Ok(tool) => tools.push(tool),
                // It is in no catalog; the notes at the ends of long results name it.
                Err(_) if name == READ_MORE => tools.push(Arc::new(long_results::read_more_tool())),
                Err(problem) => problems.push(problem),
            }
        }
        // One wrong name among several is no failure.
        if tools.is_empty() && others.is_empty() {
            return failed(&problems.join("\n"));
        }
        let max_tokens = self.shared.config.answer_tokens;
        let unavailable = |id: &ToolId| self.shared.unavailable(id);
        let described = match detail {
            own_tools::Description::Brief => {
                search_answer::signatures(&tools, max_tokens, &unavailable)
            }
            own_tools::Description::Full => {
                search_answer::whole_definitions(&tools, max_tokens, &unavailable)
            }
        };
        let mut answer = Value::Object(described);
        if !others.is_empty() {
            answer["others"] = others.into();
        }
        let ids = tools.iter().map(|tool| &tool.id).collect();
        self.tell_instructions(ids, &mut answer);
        if !problems.is_empty() {
            answer["problems"] = problems.into();
        }
        CallToolResult::success(vec![ContentBlock::text(answer.to_string())])
    }

    /// The servers, or the tools of one.
    pub(super) async fn list(&self, given: &Arguments) -> CallToolResult {
        let (server, after) = (text_of(given, "server"), text_of(given, "after"));
        let wanted = server.clone();
        self.shared.pool.settled(self.shared.config.settle).await;
        let shared = Arc::clone(&self.shared);
        let listed = spawn_blocking(move || {
            let (tools, config) = (shared.search.tools(), &shared.config);
            let (server, after) = (server.as_deref(), after.as_deref());
            servers::list(
                &tools,
                &config.find.filter,
                server,
                after,
                config.answer_tokens,
            )
        });
        match listed.await {
            Ok(Ok(answer)) => CallToolResult::success(vec![ContentBlock::text(answer.to_string())]),
            Ok(Err(message)) => {
                // The catalog has no tools of a server that was never connected.
                let absent = self.shared.absent_servers();
                let known = absent
                    .iter()
                    .find(|absent| Some(&absent.server) == wanted.as_ref());
                match known {
                    Some(absent) => failed(&format!("its tools are not known: {absent}")),
                    None => failed(&message),
                }
            }
            Err(error) => {
                tracing::error!(%error, "listing tools panicked");
                failed("the tools cannot be listed")
            }
        }
    }

    /// Adds the found tools to the session's list.
    async fn inject(
        &self,
        found: &Found,
        context: &RequestContext<RoleServer>,
    ) -> Option<Injection> {
        let tools = meta_tools::merged(std::slice::from_ref(found));
        // The lock is released before the client is told.
        let (injection, loaded) = {
            let mut toolbox = self.toolbox.lock();
            toolbox.begin_turn();
            let injection = toolbox.inject(&tools);
            let loaded = toolbox.tokens_by_tool(&injection.added);
            (injection, loaded)
        };
        let origin = self.origin(context);
        self.shared.gate.usage().loaded(&origin, loaded);
        if !injection.added.is_empty() || !injection.evicted.is_empty() {
            self.list_version.send_modify(|version| *version += 1);
            let _ = context.peer.notify_tool_list_changed().await;
        }
        Some(injection)
    }
}

pub(super) fn text_of(given: &Arguments, name: &str) -> Option<String> {
    Some(given.get(name)?.as_str()?.to_owned())
}
