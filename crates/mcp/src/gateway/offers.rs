//! Prompts and resources of the servers, as clients list and read them.
//!
//! A prompt is called `SERVER__NAME`. A resource keeps its URI, so that links to it hold; if two
//! servers have the same one, that of the later server gets another. Reading passes the gate under
//! the id `SERVER/resources_read` or `SERVER/prompts_get`, as a call of a tool that only reads.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use lru::LruCache;
use parking_lot::Mutex;
use reqwest::Url;
use rmcp::model::{
    CallToolResult, ClientCapabilities, CompleteRequestParams, CompleteResult, ContentBlock,
    ErrorData, GetPromptRequestParams, GetPromptResponse, MetaObject, Prompt,
    ReadResourceRequestParams, ReadResourceResponse, Reference, Resource, ResourceContents,
    ResourceTemplate, ResultType, TaskPayload,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use toolscout_gate::gate::{Call, CallOutcome, Directory, NO_TOOL};
use toolscout_gate::tools::{Arguments, Callable, Called, ToolFailure, Toolset as _};
use toolscout_index::{Tool, ToolId};

use super::elicitation::asks_by_result;
use super::{GatewayState, NAME_CHARS, Session};
use crate::connection::{CallContext, CallError, Offers, TaskAnswer, TaskQuestion};
use crate::masking;
use crate::outcome::lenient_result;
use crate::pool::{Pool, Subscription};
use toolscout_base::long_work;
use toolscout_base::printable::excerpt;

/// Between a server and the name of its prompt, as in the names of tools.
const SEPARATOR: &str = "__";
/// Between a server and the id of its task. No name of a server has it.
const TASK_SEPARATOR: &str = "/";
/// The scheme of the URIs that this program makes.
const OWN_SCHEME: &str = "toolscout";
/// Resources in results of calls whose servers are remembered.
const MAX_LINKS: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();

/// Which server the resources in the results of its calls belong to.
pub(super) struct Links(Mutex<LruCache<String, String>>);

impl Default for Links {
    fn default() -> Self {
        Links(Mutex::new(LruCache::new(MAX_LINKS)))
    }
}

impl Links {
    /// Notes the resources in a result of a server.
    pub fn note(&self, server: &str, result: &CallToolResult) {
        let mut links = self.0.lock();
        for uri in result.content.iter().filter_map(uri_of) {
            links.put(uri.clone(), server.to_owned());
        }
    }

    fn server_of(&self, uri: &str) -> Option<String> {
        let mut links = self.0.lock();
        links.get(uri).cloned()
    }
}

fn uri_of(block: &ContentBlock) -> Option<&String> {
    match block {
        ContentBlock::ResourceLink(resource) => Some(&resource.uri),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, .. }
            | ResourceContents::BlobResourceContents { uri, .. } => Some(uri),
            _ => None,
        },
        _ => None,
    }
}

/// What a client asks a server for.
#[derive(Clone, Debug)]
enum Asked {
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
    /// To tell when the resource with this URI changes.
    Changes(String),
    /// About a task, for a client that can do this.
    Task(TaskQuestion, ClientCapabilities),
}

/// What the server answered.
enum Given {
    Prompt(GetPromptResponse),
    Resource(ReadResourceResponse),
    Changes(Subscription),
    Task(TaskAnswer),
}

impl Session {
    /// The prompts of all servers.
    pub(super) async fn prompts(&self) -> Vec<Prompt> {
        let mut prompts = Vec::new();
        for (server, offers) in self.shared.offers().await {
            for prompt in &offers.prompts {
                let mut prompt = prompt.clone();
                prompt.name = format!("{server}{SEPARATOR}{}", prompt.name);
                mark(&mut prompt.meta, &server, offers.stale.prompts);
                prompts.push(prompt);
            }
        }
        prompts
    }

    /// The resources of all servers.
    pub(super) async fn resources(&self) -> Vec<Resource> {
        let (mut resources, mut taken) = (Vec::new(), BTreeSet::new());
        for (server, offers) in self.shared.offers().await {
            for resource in &offers.resources {
                let mut resource = resource.clone();
                if !taken.insert(resource.uri.clone()) {
                    resource.uri = own_uri(&server, &resource.uri);
                }
                mark(&mut resource.meta, &server, offers.stale.resources);
                resources.push(resource);
            }
        }
        resources
    }

    /// The templates of further resources.
    pub(super) async fn resource_templates(&self) -> Vec<ResourceTemplate> {
        let mut templates = Vec::new();
        for (server, offers) in self.shared.offers().await {
            for template in &offers.templates {
                let mut template = template.clone();
                mark(&mut template.meta, &server, offers.stale.templates);
                templates.push(template);
            }
        }
        templates
    }

    /// A prompt with its arguments.
    ///
    /// # Errors
    /// For an unknown name, if the gate refuses, and those of the server.
    pub(super) async fn prompt(
        &self,
        mut params: GetPromptRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let (server, name) = self.shared.prompt_of(&params.name).await?;
        params.name = name;
        match self.ask(&server, Asked::Prompt(params), context).await? {
            Given::Prompt(GetPromptResponse::Complete(mut prompt)) => {
                prompt.result_type = Some(ResultType::COMPLETE);
                Ok(prompt.into())
            }
            // The client asks again with the input.
            Given::Prompt(asked) => Ok(asked),
            _ => Err(ErrorData::internal_error("not a prompt", None)),
        }
    }

    /// The content of a resource.
    ///
    /// # Errors
    /// For an unknown URI, if the gate refuses, and those of the server.
    pub(super) async fn resource(
        &self,
        mut params: ReadResourceRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let asked = params.uri.clone();
        let (server, uri) = self.shared.resource_of(&asked).await?;
        params.uri.clone_from(&uri);
        let given = self.ask(&server, Asked::Resource(params), context).await?;
        let mut result = match given {
            Given::Resource(ReadResourceResponse::Complete(result)) => result,
            // The client asks again with the input.
            Given::Resource(asked) => return Ok(asked),
            _ => return Err(ErrorData::internal_error("not a resource", None)),
        };
        // The newest protocol requires it; the SDK removes it for older ones.
        result.result_type = Some(ResultType::COMPLETE);
        // The client gets what it asked for.
        for content in &mut result.contents {
            match content {
                ResourceContents::TextResourceContents { uri: of, .. }
                | ResourceContents::BlobResourceContents { uri: of, .. }
                    if *of == uri =>
                {
                    of.clone_from(&asked);
                }
                _ => {}
            }
        }
        Ok(result.into())
    }

    /// Subscribes to the changes of a resource.
    ///
    /// # Errors
    /// For an unknown URI, if the gate refuses, and those of the server.
    pub(super) async fn subscription(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<Subscription, ErrorData> {
        let (server, uri) = self.shared.resource_of(uri).await?;
        match self.ask(&server, Asked::Changes(uri), context).await? {
            Given::Changes(subscription) => Ok(subscription),
            _ => Err(ErrorData::internal_error("not a subscription", None)),
        }
    }

    /// Asks the server of a task.
    ///
    /// # Errors
    /// For a task of no server, if the gate refuses, and those of the server.
    pub(super) async fn task(
        &self,
        mut question: TaskQuestion,
        context: &RequestContext<RoleServer>,
    ) -> Result<TaskAnswer, ErrorData> {
        let id = question.id().to_owned();
        let Some((tool, own)) = self.shared.task_of(&id) else {
            let id = excerpt(&id, NAME_CHARS);
            let message = format!("there is no task {id:?} of a connected server");
            return Err(ErrorData::invalid_params(message, None));
        };
        question.set_id(own);
        let capabilities = context.client_capabilities().unwrap_or_default();
        let asked = Asked::Task(question, capabilities);
        match self.ask(tool.server(), asked, context).await? {
            Given::Task(TaskAnswer::State(mut state)) => {
                state.task.task.task_id = id;
                if let TaskPayload::Completed { result } = &mut state.task.payload {
                    *result = self.finished(&tool, mem::take(result)).await?;
                }
                Ok(TaskAnswer::State(state))
            }
            Given::Task(done) => Ok(done),
            _ => Err(ErrorData::internal_error("not a task", None)),
        }
    }

    /// The result of a task as that of a call: the owner may want a part of it only.
    async fn finished(&self, tool: &ToolId, result: Arguments) -> Result<Arguments, ErrorData> {
        if !self.shared.pool.edits_results_of(tool) {
            return Ok(result);
        }
        let result = lenient_result(Value::Object(result));
        let finished = self.shared.pool.finished(tool, result).await;
        match serde_json::to_value(finished.map_err(|error| failure(&error))?) {
            Ok(Value::Object(result)) => Ok(result),
            _ => Err(ErrorData::internal_error(
                "the result cannot be shown",
                None,
            )),
        }
    }

    /// Completes an argument of a prompt or of a template.
    ///
    /// # Errors
    /// For an unknown name or template, and those of the server.
    pub(super) async fn completion(
        &self,
        mut params: CompleteRequestParams,
    ) -> Result<CompleteResult, ErrorData> {
        let server = match &mut params.r#ref {
            Reference::Prompt(prompt) => {
                let (server, name) = self.shared.prompt_of(&prompt.name).await?;
                prompt.name = name;
                server
            }
            Reference::Resource(template) => {
                let (server, uri) = self.shared.resource_of(&template.uri).await?;
                template.uri = uri;
                server
            }
            _ => {
                return Err(ErrorData::invalid_params(
                    "`ref` is of an unknown type",
                    None,
                ));
            }
        };
        let connection = self.shared.pool.connection(&server).await;
        let connection = connection.map_err(|error| failure(&error))?;
        // Such a server may answer with an error, and there is just nothing to propose.
        if !connection.completes() {
            return Ok(CompleteResult::default());
        }
        let completed = connection.completion(params).await;
        let masking = self.shared.pool.masking(&server);
        let mut completed = completed.map_err(|error| failure(&error.masked(&masking)))?;
        for value in &mut completed.completion.values {
            *value = masking.text(value).into_owned();
        }
        completed.result_type = Some(ResultType::COMPLETE);
        Ok(completed)
    }

    /// Asks a server, through the gate.
    async fn ask(
        &self,
        server: &str,
        asked: Asked,
        context: &RequestContext<RoleServer>,
    ) -> Result<Given, ErrorData> {
        let caller = self.caller(context);
        let tool = Arc::new(asked.as_tool(server)?);
        let arguments = asked.arguments();
        let (mut calling, questions) = self.call_context(context, &caller, None);
        calling.input.is_repeated = asks_by_result(context);
        let question = Question {
            pool: self.shared.pool.clone(),
            server: server.to_owned(),
            asked,
            calling,
        };
        let directory = QuestionDirectory {
            shared: &self.shared,
            tool: Arc::clone(&tool),
            question: Arc::new(question),
        };
        let approver = self.approver(context, &caller, None);
        let call = Call {
            id: excerpt(&context.id.to_string(), NAME_CHARS),
            tool,
            arguments,
            is_plan_step: false,
        };
        let passing = self.pass(&caller, &directory, &approver, call);
        let mut outcome = questions.while_running(passing).await;
        match outcome.take_own::<Result<Given, CallError>>() {
            Some(Ok(given)) => Ok(given),
            Some(Err(error)) => Err(failure(&error)),
            None => Err(ErrorData::invalid_request(refusal(outcome), None)),
        }
    }
}

impl GatewayState {
    /// What each server offers that a client may know of.
    pub(super) async fn offers(&self) -> Vec<(String, Arc<Offers>)> {
        self.pool.settled(self.config.settle).await;
        self.pool.offers(|server| self.may_know(server)).await
    }

    /// Whether clients may know of a server.
    pub(super) fn may_know(&self, server: &str) -> bool {
        match &self.profile {
            Some(profile) => profile.may_have_server(server),
            None => true,
        }
    }

    /// The server of a prompt, and its name there. A name without a server is one that only one server
    /// has.
    async fn prompt_of(&self, name: &str) -> Result<(String, String), ErrorData> {
        let servers = self.pool.names().filter(|server| self.may_know(server));
        // The longest name first: a server may be called as another one with an ending.
        let mut servers: Vec<&str> = servers.collect();
        servers.sort_by_key(|server| std::cmp::Reverse(server.len()));
        for server in servers {
            if let Some(rest) = name.strip_prefix(server)
                && let Some(own) = rest.strip_prefix(SEPARATOR)
            {
                return Ok((server.to_owned(), own.to_owned()));
            }
        }
        let mut only = None;
        for (server, offers) in self.offers().await {
            if offers.prompts.iter().any(|prompt| prompt.name == name)
                && only.replace(server).is_some()
            {
                only = None;
                break;
            }
        }
        if let Some(server) = only {
            return Ok((server, name.to_owned()));
        }
        let name = excerpt(name, NAME_CHARS);
        let message = format!("there is no prompt {name:?}; `prompts/list` names those there are");
        Err(ErrorData::invalid_params(message, None))
    }

    /// The tool of a task, and the task's id at its server.
    fn task_of(&self, id: &str) -> Option<(ToolId, String)> {
        let (tool, own) = of_task_id(id)?;
        let is_known = self.pool.has(tool.server()) && self.may_know(tool.server());
        is_known.then_some((tool, own))
    }

    /// The server of a resource, and its URI there.
    async fn resource_of(&self, uri: &str) -> Result<(String, String), ErrorData> {
        let server = match of_own_uri(uri) {
            Some((server, uri)) if self.may_know(&server) => return Ok((server, uri)),
            Some(_) => None,
            None => self.server_with(uri, &self.offers().await),
        };
        match server {
            // A link may be of a server that this client may not know of.
            Some(server) if self.may_know(&server) => Ok((server, uri.to_owned())),
            _ => {
                let uri = excerpt(uri, NAME_CHARS);
                let message = format!(
                    "no connected server has the resource {uri:?}; `resources/list` names those there are"
                );
                Err(ErrorData::resource_not_found(
                    message,
                    Some(json!({ "uri": uri })),
                ))
            }
        }
    }

    /// The server of a resource: one that lists it, or has linked to it, or has a skill with it, or else
    /// has a template that fits, which says the least.
    fn server_with(&self, uri: &str, offers: &[(String, Arc<Offers>)]) -> Option<String> {
        for (server, offers) in offers {
            if offers.resources.iter().any(|resource| resource.uri == uri) {
                return Some(server.clone());
            }
        }
        if let Some(server) = self.links.server_of(uri) {
            return Some(server);
        }
        for (server, offers) in offers {
            if offers.skills.iter().any(|skill| skill.has_file(uri)) {
                return Some(server.clone());
            }
        }
        for (server, offers) in offers {
            for ResourceTemplate { uri_template, .. } in &offers.templates {
                if uri_template == uri || fits_template(uri, uri_template) {
                    return Some(server.clone());
                }
            }
        }
        None
    }
}

/// The id of a server's task for clients: it has the tool too, whose results the owner may edit.
pub(super) fn task_id(tool: &ToolId, id: &str) -> String {
    let name = tool.name().replace('%', "%25").replace('/', "%2F");
    format!(
        "{}{TASK_SEPARATOR}{name}{TASK_SEPARATOR}{id}",
        tool.server()
    )
}

/// The tool of a task, and the task's id at its server.
fn of_task_id(id: &str) -> Option<(ToolId, String)> {
    let (server, rest) = id.split_once(TASK_SEPARATOR)?;
    let (name, own) = rest.split_once(TASK_SEPARATOR)?;
    let name = name.replace("%2F", "/").replace("%25", "%");
    Some((ToolId::new(server, &name).ok()?, own.to_owned()))
}

/// Says which server something is of, and whether its list is an older one.
fn mark(meta: &mut Option<MetaObject>, server: &str, is_stale: bool) {
    let meta = meta.get_or_insert_with(MetaObject::new);
    let mut says = json!({ "server": server });
    if is_stale {
        says["stale"] = true.into();
    }
    meta.0.insert("toolscout".into(), says);
}

/// A URI for the resource of a server, if another server has the same.
fn own_uri(server: &str, uri: &str) -> String {
    // The base is a URL.
    let Ok(mut own) = Url::parse(&format!("{OWN_SCHEME}://resource")) else {
        return uri.to_owned();
    };
    own.query_pairs_mut()
        .append_pair("server", server)
        .append_pair("uri", uri);
    own.into()
}

/// The server and the URI in a URI of [`own_uri`].
fn of_own_uri(uri: &str) -> Option<(String, String)> {
    let own = Url::parse(uri).ok()?;
    if own.scheme() != OWN_SCHEME {
        return None;
    }
    let mut parts: BTreeMap<String, String> = own.query_pairs().into_owned().collect();
    Some((parts.remove("server")?, parts.remove("uri")?))
}

/// Whether a URI may be one of a template of RFC 6570: it has the fixed parts in their order.
fn fits_template(uri: &str, template: &str) -> bool {
    let mut rest = uri;
    let mut parts = template.split('{');
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else {
        return false;
    };
    rest = after;
    let mut ends_fixed = true;
    for part in parts {
        // After the expression.
        let (_, fixed) = part.split_once('}').unwrap_or_default();
        ends_fixed = !fixed.is_empty();
        let Some(at) = rest.find(fixed) else {
            return false;
        };
        rest = &rest[at + fixed.len()..];
    }
    rest.is_empty() || !ends_fixed
}

/// The error for a client: a server's own as the server sent it.
pub(super) fn failure(error: &CallError) -> ErrorData {
    match error {
        CallError::Refused {
            code,
            message,
            data,
        } => ErrorData::new(rmcp::model::ErrorCode(*code), message.clone(), data.clone()),
        other => ErrorData::internal_error(other.to_string(), None),
    }
}

fn refusal(outcome: CallOutcome) -> String {
    match outcome.result.error_message {
        Some(message) => message,
        // A dry run has no error.
        None => "it was not asked for, since calls are tried out only".into(),
    }
}

impl Asked {
    /// The gate's view of it: a tool that only reads.
    fn as_tool(&self, server: &str) -> Result<Tool, ErrorData> {
        let (name, description, property) = match self {
            Asked::Prompt(_) => ("prompts_get", "Reads a prompt", "name"),
            Asked::Resource(_) => ("resources_read", "Reads a resource", "uri"),
            Asked::Task(TaskQuestion::State(_), _) => ("tasks_get", "Reads a task", "task"),
            Asked::Task(TaskQuestion::Answers(_), _) => ("tasks_update", "Answers a task", "task"),
            Asked::Task(TaskQuestion::End(_), _) => ("tasks_cancel", "Ends a task", "task"),
            Asked::Changes(_) => (
                "resources_subscribe",
                "Waits for changes of a resource",
                "uri",
            ),
        };
        let tool = Tool::new(server, name);
        let tool = tool.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let mut tool = tool.with_description(description);
        tool.annotations.read_only_hint = Some(true);
        tool.metadata.insert(NO_TOOL.into(), true.into());
        let schema = json!({ "type": "object", "required": [property] });
        if let Value::Object(schema) = schema {
            tool.input_schema = schema;
        }
        Ok(tool)
    }

    fn arguments(&self) -> Arguments {
        let arguments = match self {
            Asked::Prompt(params) => json!({ "name": params.name, "arguments": params.arguments }),
            Asked::Resource(params) => json!({ "uri": params.uri }),
            Asked::Changes(uri) => json!({ "uri": uri }),
            Asked::Task(question, _) => json!({ "task": question.id() }),
        };
        match arguments {
            Value::Object(arguments) => arguments,
            _ => Arguments::new(),
        }
    }
}

/// What a client asks, between the gate and the server.
struct Question {
    pool: Pool,
    server: String,
    asked: Asked,
    /// How the server reaches the client meanwhile.
    calling: CallContext,
}

impl Question {
    /// What the server answers, without secrets.
    async fn answer(&self) -> Result<Given, CallError> {
        let masking = self.pool.masking(&self.server);
        let given = self.unmasked_answer().await;
        let mut given = given.map_err(|error| error.masked(&masking))?;
        if masking.is_empty() {
            return Ok(given);
        }
        match &mut given {
            Given::Prompt(GetPromptResponse::Complete(prompt)) => {
                let bytes = masking::prompt_length(prompt);
                long_work::read(bytes, || masking.prompt(prompt)).await;
            }
            Given::Resource(ReadResourceResponse::Complete(read)) => {
                let bytes = read.contents.iter().map(masking::contents_length).sum();
                let mask = || {
                    let contents = read.contents.iter_mut();
                    contents.for_each(|contents| masking.contents(contents));
                };
                long_work::read(bytes, mask).await;
            }
            Given::Task(TaskAnswer::State(state)) => masking.task(&mut state.task),
            _ => {}
        }
        Ok(given)
    }

    async fn unmasked_answer(&self) -> Result<Given, CallError> {
        let connection = self.pool.connection(&self.server).await?;
        match self.asked.clone() {
            Asked::Prompt(params) => {
                let given = connection.prompt(params, &self.calling).await;
                given.map(Given::Prompt)
            }
            Asked::Resource(params) => {
                let given = connection.resource(params, &self.calling).await;
                given.map(Given::Resource)
            }
            Asked::Task(question, client) => {
                let answered = connection.task(question, client).await;
                answered.map(Given::Task)
            }
            Asked::Changes(uri) => {
                let subscribed = self.pool.subscribe(&self.server, uri).await;
                subscribed.map(Given::Changes)
            }
        }
    }
}

#[async_trait]
impl Callable for Question {
    // The arguments are those of the request: the gate changes none of a tool that has no types.
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        self.call_in_own_form(arguments).await.outcome
    }

    async fn call_in_own_form(&self, _: Arguments) -> Called {
        let answer = self.answer().await;
        let outcome = match &answer {
            Ok(_) => Ok(Value::Null),
            Err(error) => Err(ToolFailure::new(error.to_string())),
        };
        Called {
            outcome,
            own: Some(Box::new(answer)),
        }
    }

    /// The server may ask a person meanwhile, who needs longer than a tool may take. Each request to the
    /// server and each question to the person has its own limit, and there are not many of them.
    fn limits_itself(&self) -> bool {
        matches!(self.asked, Asked::Prompt(_) | Asked::Resource(_))
    }
}

/// The question as a tool, and the tools of preconditions.
struct QuestionDirectory<'a> {
    shared: &'a GatewayState,
    tool: Arc<Tool>,
    question: Arc<Question>,
}

impl Directory for QuestionDirectory<'_> {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        match *id == self.tool.id {
            true => Some(Arc::clone(&self.tool)),
            false => self.shared.catalog.tool(id),
        }
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        match *id == self.tool.id {
            true => Some(Arc::clone(&self.question) as _),
            false => self.shared.pool.find(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_two_servers_are_told_apart_and_come_back() {
        let own = own_uri("my files", "file:///a b?c=d&e");
        assert_eq!(
            of_own_uri(&own),
            Some(("my files".to_owned(), "file:///a b?c=d&e".to_owned()))
        );
        assert_eq!(of_own_uri("file:///a?server=x&uri=y"), None);
        assert_eq!(of_own_uri("no uri"), None);
    }

    #[test]
    fn the_id_of_a_task_has_its_tool() {
        for (tool, id) in [("s/make", "7"), ("s/a/b", "x/y"), ("s/50%2F", "")] {
            let tool = ToolId::parse(tool).unwrap();
            let shown = task_id(&tool, id);
            assert_eq!(of_task_id(&shown), Some((tool, id.to_owned())), "{shown}");
        }
        assert_eq!(of_task_id("s/7"), None);
    }

    #[test]
    fn templates_are_recognized_by_their_fixed_parts() {
        for (uri, template, fits) in [
            ("db://users/7", "db://users/{id}", true),
            ("db://users/7/posts/9", "db://users/{id}/posts/{post}", true),
            ("db://users/7/posts", "db://users/{id}/posts", true),
            ("db://users/7/posts/9", "db://users/{id}/posts", false),
            ("db://orders/7", "db://users/{id}", false),
            ("db://users/7", "db://users/{id}/posts/{post}", false),
            ("file:///a/b", "{+uri}", true),
            ("a", "a", true),
            ("ab", "a", false),
        ] {
            assert_eq!(fits_template(uri, template), fits, "{uri} {template}");
        }
    }
}
