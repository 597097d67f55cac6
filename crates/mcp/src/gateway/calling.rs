//! Calls of tools by clients, and what of their results a client gets at once.

use std::sync::Arc;

use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, ErrorData,
    InputRequiredResult, MetaObject, RequestMetaObject, ResultType,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use toolscout_index::{Tool, ToolId};

use super::calling_client::{Questions, WaitingClient};
use super::calls::{CallDirectory, WINDOW};
use super::elicitation::{ElicitationApprover, Repeated, Reply, asks_by_result};
use super::notices::{ForwardedLogs, LogReader, session_of};
use super::progress::{finish, start_forwarding_progress};
use super::tool_list::meta_of;
use super::{NAME_CHARS, Session, failed, kept_results, offers, resolve, search_answer};
use crate::connection::{CallContext, CallError, Input, Progress};
use crate::pool::{ServerAnswer, viewed};
use crate::tool_edits::ResultView;
use toolscout_base::config::ResultFormat;
use toolscout_base::printable::excerpt;
use toolscout_finder::finder::trail;
use toolscout_gate::gate::{Call, CallOutcome, Caller, Directory, GateContext};
use toolscout_gate::tools::long_results::READ_MORE;
use toolscout_gate::tools::{Arguments, ErrorCode, Status};

/// The codes of errors that are for the client and not for its model: a person has to visit a page
/// first (URL elicitation), or the client lacks a capability.
const ERRORS_FOR_CLIENTS: [i32; 2] = [-32042, -32021];

impl Session {
    pub(super) async fn call_by_name(
        &self,
        given: &Arguments,
        reply: Repeated,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = match resolve::NamedCall::read(given) {
            Ok(call) => call,
            Err(message) => return Ok(failed(&message).into()),
        };
        // A tool of a server may have this name too.
        if call.is_of(READ_MORE) && self.reads_on(&call, context).await {
            return Ok(self.read_more(call.arguments, context).await.into());
        }
        match self.resolve(&call).await {
            Ok(tool) => {
                let id = tool.id.clone();
                let response = self.call(tool, call.arguments, reply, context).await?;
                Ok(self.shortened(&id, response, context).await)
            }
            Err(message) => Ok(failed(&message).into()),
        }
    }

    /// Calls an injected tool.
    pub(super) async fn call_injected(
        &self,
        tool: Arc<Tool>,
        given: Arguments,
        reply: Repeated,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let id = tool.id.clone();
        // The client checks the result by the schema that the list gave it.
        let is_checked = tool.output_schema.is_some();
        // A tool with an open call is not evicted from the list.
        self.toolbox.lock().open_call(&id);
        let response = self.call(tool, given, reply, context).await;
        self.toolbox.lock().close_call(&id);
        match response {
            Ok(response) if !is_checked => Ok(self.shortened(&id, response, context).await),
            response => response,
        }
    }

    /// Makes a call of a client through the gate. Every call of a client comes through here.
    pub(super) async fn call(
        &self,
        tool: Arc<Tool>,
        given: Arguments,
        reply: Repeated,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(context);
        let (reply, input) = reply.split(&self.shared.questions, &caller.who);
        let has_input = input.state.is_some() || input.responses.is_some();
        let approver = self.approver(context, &caller, reply);
        let call = Call {
            id: excerpt(&context.id.to_string(), NAME_CHARS),
            tool: Arc::clone(&tool),
            arguments: given,
            is_plan_step: false,
        };
        let passing = self.pass_and_forward(call, input, &approver, &caller, context);
        let mut outcome = passing.await;
        let answer = outcome.take_own::<ServerAnswer>();
        if let Some(Err(error)) = &answer
            && let Some(response) = unfinished(error, &tool.id, &approver)
        {
            return Ok(response);
        }
        if let Some(question) = approver.question() {
            return Ok(question.into());
        }
        let result = match answer {
            Some(answer) => self.shown(answer, &tool.id, has_input).await?,
            None => self.describe_refusal(outcome, &tool),
        };
        Ok(with_tool_id(result, &tool.id).into())
    }

    /// Passes a call through the gate, and forwards to the client what the server says meanwhile.
    async fn pass_and_forward(
        &self,
        call: Call,
        input: Input,
        approver: &ElicitationApprover<'_>,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> CallOutcome {
        let shared = &*self.shared;
        let id = call.tool.id.clone();
        let (steps, forwarding) = start_forwarding_progress(context).unzip();
        let (mut calling, questions) = self.call_context(context, caller, steps);
        calling.input = Input {
            is_repeated: asks_by_result(context),
            ..input
        };
        let reader = LogReader {
            key: caller.who.clone(),
            session: session_of(&caller.who, &caller.conversation),
        };
        let logs = self.start_forwarding_logs(context, reader);
        let directory = CallDirectory {
            shared,
            id: id.clone(),
            called: shared.pool.callable(&id, calling),
        };
        let passing = self.pass(caller, &directory, approver, call);
        let outcome = questions.while_running(passing).await;
        self.teach(context, &id, &outcome).await;
        // It holds the sender of the progress, which ends the forwarding task.
        drop(directory);
        finish(forwarding).await;
        finish(logs.map(ForwardedLogs::finish)).await;
        outcome
    }

    /// What a client gets of a server's answer.
    async fn shown(
        &self,
        answer: ServerAnswer,
        tool: &ToolId,
        has_input: bool,
    ) -> Result<CallToolResult, ErrorData> {
        match answer {
            Ok(result) => match self.part_for_profile(tool, result).await {
                Ok(result) => {
                    self.shared.links.note(tool.server(), &result);
                    Ok(result)
                }
                Err(error) => Ok(failed(&error.to_string())),
            },
            // Also what is wrong with an answer to a question, which the model has not given.
            Err(ref error @ CallError::Refused { code, .. })
                if has_input || ERRORS_FOR_CLIENTS.contains(&code) =>
            {
                Err(offers::failure(error))
            }
            // As a result, so that the model reads it.
            Err(error) => Ok(failed(&error.to_string())),
        }
    }

    /// The part of a result that the profile wants.
    async fn part_for_profile(&self, id: &ToolId, result: CallToolResult) -> ServerAnswer {
        let profile = self.shared.profile.as_ref();
        match profile.and_then(|profile| profile.result_fields(id)) {
            Some(fields) => viewed(ResultView::of_fields(fields), result).await,
            None => Ok(result),
        }
    }

    /// How a server reaches the client of this request during a call.
    pub(super) fn call_context(
        &self,
        context: &RequestContext<RoleServer>,
        caller: &Caller,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> (CallContext, Questions) {
        let session = session_of(&caller.who, &caller.conversation);
        let within = self.shared.gate.policies().approval_timeout_s.duration();
        let (client, questions) = WaitingClient::of(
            context,
            (caller.who.clone(), session),
            within,
            &self.shared.pool,
        );
        let calling = CallContext {
            progress,
            cancelled: context.ct.clone(),
            client: Some(Arc::new(client)),
            meta: forwarded_meta(&context.meta),
            log_level: self.log_level(context),
            capabilities: context.client_capabilities(),
            answer_within: Some(within),
            input: Input::default(),
        };
        (calling, questions)
    }

    /// What asks the client of this request about a call.
    pub(super) fn approver<'a>(
        &'a self,
        context: &'a RequestContext<RoleServer>,
        caller: &'a Caller,
        reply: Option<Reply>,
    ) -> ElicitationApprover<'a> {
        ElicitationApprover::new(context, caller, &self.shared, reply)
    }

    /// Passes a call through the gate.
    pub(super) async fn pass(
        &self,
        caller: &Caller,
        directory: &dyn Directory,
        approver: &ElicitationApprover<'_>,
        call: Call,
    ) -> CallOutcome {
        let context = GateContext {
            caller,
            ledger: &self.shared.ledgers.of(&caller.who),
            directory,
            approver,
            call_timeout: self.shared.config.call_timeout,
        };
        self.shared.gate.pass(context, call).await
    }

    /// Tells the catalog of a call that succeeded, if a search of the conversation had found its tool.
    pub(super) async fn teach(
        &self,
        context: &RequestContext<RoleServer>,
        tool: &ToolId,
        outcome: &CallOutcome,
    ) {
        let (who, conversation) = self.conversation(context);
        let conversation = (who.as_str(), conversation.as_str());
        // Also after a failure: what was found before a call is described in full once more.
        self.shared.histories.called(conversation);
        if !outcome.has_succeeded() {
            return;
        }
        let Some(used_tool) = self.shared.trails.called(conversation, tool) else {
            return;
        };
        trail::teach(Arc::clone(&self.shared.search), vec![used_tool]).await;
    }

    /// The result of a call that did not reach its server. One with wrong arguments shows which
    /// there are.
    fn describe_refusal(&self, outcome: CallOutcome, tool: &Arc<Tool>) -> CallToolResult {
        let has_wrong_arguments = outcome.result.error_code == Some(ErrorCode::InvalidArguments);
        let mut result = describe_refusal(outcome);
        if has_wrong_arguments {
            let max_tokens = self.shared.config.answer_tokens;
            let unavailable = |id: &ToolId| self.shared.unavailable(id);
            let definition =
                search_answer::definitions(std::slice::from_ref(tool), max_tokens, &unavailable);
            let text = Value::Object(definition).to_string();
            result.content.push(ContentBlock::text(text));
        }
        result
    }

    /// The requested tool. If there is none, it may belong to a server that is still connecting, so
    /// this waits for the servers and looks again.
    pub(super) async fn resolve(&self, call: &resolve::NamedCall) -> Result<Arc<Tool>, String> {
        let found = self.look_up(call.clone()).await;
        if found.is_ok() {
            return found;
        }
        self.shared.pool.settled(self.shared.config.settle).await;
        match self.look_up(call.clone()).await {
            Ok(tool) => Ok(tool),
            // A tool that is blocked is not in the catalog, and has no name like it either.
            Err(message) => Err(self.shared.blocked(call).unwrap_or(message)),
        }
    }

    async fn look_up(&self, call: resolve::NamedCall) -> Result<Arc<Tool>, String> {
        // Without the way to another thread and back, which takes longer than this.
        if let Some(tool) = call.by_key(self.shared.search.as_ref()) {
            return Ok(tool);
        }
        let search = Arc::clone(&self.shared.search);
        let looking = spawn_blocking(move || call.by_name(search.as_ref()));
        match looking.await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "looking up a tool panicked");
                Err("the tool cannot be looked up".into())
            }
        }
    }

    /// Whether a call of [`READ_MORE`] is for this gateway, and not for a tool of a server.
    async fn reads_on(
        &self,
        call: &resolve::NamedCall,
        context: &RequestContext<RoleServer>,
    ) -> bool {
        self.shared.results.has_any(&self.reader(context))
            || self.look_up(call.clone()).await.is_err()
    }

    /// A part of a result that was too long to be given whole.
    pub(super) async fn read_more(
        &self,
        given: Arguments,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let (shared, reader) = (Arc::clone(&self.shared), self.reader(context));
        let read = spawn_blocking(move || {
            let bytes = shared.config.result_bytes;
            shared.results.read(&reader, &given, bytes)
        });
        match read.await {
            Ok(Ok(page)) => CallToolResult::success(vec![ContentBlock::text(page)]),
            Ok(Err(message)) => failed(&message),
            Err(error) => {
                tracing::error!(%error, "reading on in a result panicked");
                failed("the result cannot be read")
            }
        }
    }

    /// The response with the beginning of its result, if that is long.
    async fn shortened(
        &self,
        tool: &ToolId,
        response: CallToolResponse,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResponse {
        let bytes = self.shared.config.result_bytes;
        let mut result = match response {
            CallToolResponse::Complete(result) => result,
            other => return other,
        };
        let is_compacted = self.shared.config.result_format == ResultFormat::Compact;
        if !kept_results::is_long(&result, bytes) {
            if is_compacted {
                kept_results::compact(&mut result, bytes);
            }
            return result.into();
        }
        let (shared, reader) = (Arc::clone(&self.shared), self.reader(context));
        let tool = tool.clone();
        // Off the async threads, because a long result takes a while.
        let shortened = spawn_blocking(move || {
            if is_compacted {
                kept_results::compact(&mut result, bytes);
            }
            shared
                .results
                .shorten(&reader, tool.as_str(), &mut result, bytes);
            result
        });
        match shortened.await {
            Ok(result) => result.into(),
            Err(error) => {
                tracing::error!(%error, "shortening a result panicked");
                failed("the tool was called, and its result cannot be shown").into()
            }
        }
    }
}

/// The response where the server asks the client first, or gives its result later.
fn unfinished(
    error: &CallError,
    tool: &ToolId,
    approver: &ElicitationApprover<'_>,
) -> Option<CallToolResponse> {
    match error {
        CallError::NeedsInput { result } => {
            let mut asked = InputRequiredResult::deserialize(result).ok()?;
            approver.keep_approval(&mut asked);
            Some(asked.into())
        }
        CallError::AnswersLater { result } => {
            let mut task = CreateTaskResult::deserialize(result).ok()?;
            task.task.task_id = offers::task_id(tool, &task.task.task_id);
            Some(task.into())
        }
        _ => None,
    }
}

/// What a client tells the server of a call: all but what is between the client and this program.
fn forwarded_meta(meta: &RequestMetaObject) -> Arguments {
    let mut forwarded = Arguments::new();
    for (key, value) in &meta.0.0 {
        let is_ours = key == "progressToken" || key.starts_with("io.modelcontextprotocol/");
        if !is_ours {
            forwarded.insert(key.clone(), value.clone());
        }
    }
    forwarded
}

/// Adds to a result the id of its tool, since several servers may have a tool of that name. It is
/// also marked as complete, as the newest protocol requires; the SDK removes the mark for older
/// ones.
fn with_tool_id(mut result: CallToolResult, id: &ToolId) -> CallToolResult {
    result.result_type = Some(ResultType::COMPLETE);
    let meta = result.meta.get_or_insert_with(MetaObject::new);
    meta.0.extend(meta_of(id));
    result
}

/// The result of a call that did not reach its server.
fn describe_refusal(outcome: CallOutcome) -> CallToolResult {
    let result = outcome.result;
    if result.status == Status::Ok {
        // The result of a dry run is the call that would have been made.
        return CallToolResult::success(vec![ContentBlock::text(result.data.to_string())]);
    }
    let message = result.error_message.unwrap_or_default();
    match result.error_code {
        Some(ErrorCode::Limit) => {
            let minutes = WINDOW.as_secs() / 60;
            failed(&format!(
                "{message}; the limit counts the calls of {minutes} minutes, and [gate.client_limits] in a profile sets it"
            ))
        }
        _ => failed(&message),
    }
}
