//! Approval by the person behind a client, requested by elicitation.
//!
//! Up to protocol 2025-11-25 the server sends the question while the call waits. Since 2026-07-28
//! the result of the call is the question, and the client repeats the call with the answer, which
//! is valid for exactly the call that was shown. Of a client that takes no forms, a person elsewhere is
//! asked, where there is one.

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lru::LruCache;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequiredResult, InputResponses, ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer, ServiceError};
use serde_json::{Value, json};
use toolscout_index::ToolId;
use uuid::Uuid;

use super::GatewayState;
use super::waiting_calls::WaitingCalls;
use crate::connection::{Input, takes_forms};
use toolscout_base::clock::millis;
use toolscout_base::printable;
use toolscout_base::printable::excerpt;
use toolscout_gate::gate::definition::digest;
use toolscout_gate::gate::{
    Answer, ApprovalRequest, Approver, Caller, Change, ChangeReason, Definition,
};

/// Most questions that wait for clients to repeat their calls. A new one replaces the oldest.
const MAX_OPEN: NonZeroUsize = NonZeroUsize::new(1_024).expect("is not zero");
/// Most bytes of arguments that a person is asked about. Nobody reads more, so something could hide
/// in them.
const MAX_SHOWN_BYTES: usize = 16 << 10;
/// No person reads a question and declines it faster.
const READING: Duration = Duration::from_millis(500);
/// Characters of a description that are shown.
const DESCRIPTION_CHARS: usize = 500;
/// What the states of this program begin with; any other is of a server.
const OWN_STATE: &str = "toolscout:";
/// Stands before a server's state that begins as one of this program: the server may be such a program
/// too.
const OF_SERVER: &str = "server:";
/// The field of the form, and the name of the question.
const APPROVE: &str = "approve";

/// Requests approval of one call from its client.
pub struct ElicitationApprover<'a> {
    context: &'a RequestContext<RoleServer>,
    caller: &'a Caller,
    shared: &'a GatewayState,
    /// How long an answer is valid.
    within: Duration,
    state: Mutex<QuestionState>,
    /// The call that the answer has allowed.
    approved: Mutex<Option<[u8; 32]>>,
}

/// The state of a call whose result may be a question.
enum QuestionState {
    /// No question has been asked.
    Unasked,
    /// The client repeated the call with an answer.
    Answered(Reply),
    /// This question is the result of the call.
    Asked(InputRequiredResult),
    /// The answer was used.
    Used,
}

/// A client's answer to a question.
pub struct Reply {
    question: String,
    responses: InputResponses,
}

/// What a client gives to a call that it makes again.
#[derive(Default)]
pub struct Repeated {
    responses: Option<InputResponses>,
    state: Option<String>,
}

impl Repeated {
    /// What it gives to this call.
    pub fn of(request: &mut CallToolRequestParams) -> Self {
        Repeated {
            responses: request.input_responses.take(),
            state: request.request_state.take(),
        }
    }

    /// The answer to a question of this program, and the input for the server.
    pub fn split(self, questions: &OpenQuestions, who: &str) -> (Option<Reply>, Input) {
        let mut input = Input::default();
        match self.state {
            Some(question) if question.starts_with(OWN_STATE) => {
                let mut responses = self.responses.unwrap_or_default();
                // The person has approved the call, and then the server has asked.
                if let Some(state) = questions.approved(&question, who) {
                    input.responses = Some(mem::take(&mut responses));
                    input.state = state;
                }
                let reply = Reply {
                    question,
                    responses,
                };
                (Some(reply), input)
            }
            state => {
                (input.responses, input.state) = (self.responses, state.map(as_of_server));
                (None, input)
            }
        }
    }
}

/// A server's state as its client gets it, so that it is not taken for one of this program.
fn as_of_client(state: String) -> String {
    match state.starts_with(OWN_STATE) || state.starts_with(OF_SERVER) {
        true => format!("{OF_SERVER}{state}"),
        false => state,
    }
}

/// The same as its server has given it.
fn as_of_server(state: String) -> String {
    match state.strip_prefix(OF_SERVER) {
        Some(of_server) => of_server.to_owned(),
        None => state,
    }
}

impl<'a> ElicitationApprover<'a> {
    /// An approver that asks the client of this request, or somebody elsewhere where it cannot be
    /// asked.
    pub fn new(
        context: &'a RequestContext<RoleServer>,
        caller: &'a Caller,
        shared: &'a GatewayState,
        reply: Option<Reply>,
    ) -> Self {
        let state = Mutex::new(reply.map_or(QuestionState::Unasked, QuestionState::Answered));
        ElicitationApprover {
            context,
            caller,
            shared,
            within: shared.gate.policies().approval_timeout_s.duration(),
            state,
            approved: Mutex::default(),
        }
    }

    /// Lets the client make the call again with what the server asks for. If the client's person has
    /// approved the call, nobody is asked a second time.
    pub fn keep_approval(&self, asked: &mut InputRequiredResult) {
        let approved = *self.approved.lock();
        let state = asked.request_state.take();
        asked.request_state = match approved {
            Some(about) => Some(self.shared.questions.keep(&self.caller.who, about, state)),
            None => state.map(as_of_client),
        };
    }

    /// The question that is the result of the call, if there is one.
    pub fn question(self) -> Option<InputRequiredResult> {
        match self.state.into_inner() {
            QuestionState::Asked(question) => Some(question),
            _ => None,
        }
    }

    async fn ask_during_call(
        &self,
        request: &ApprovalRequest,
        params: ElicitRequestParams,
    ) -> Answer {
        let asked = Instant::now();
        let asking = self
            .context
            .peer
            .create_elicitation_with_timeout(params, Some(self.within));
        let answered = tokio::select! {
            () = self.context.ct.cancelled() => return self.refused("the client cancelled the call"),
            answered = asking => answered,
        };
        match answered {
            Ok(result) => self.read(request, &result, asked.elapsed()),
            Err(ServiceError::Timeout { .. }) => self.expired(),
            Err(error) => self.refused(format!(
                "the client did not ask: {}",
                excerpt(&error.to_string(), 200)
            )),
        }
    }

    async fn ask_elsewhere(&self, waiting: &WaitingCalls, request: ApprovalRequest) -> Answer {
        if form(&request).is_none() {
            return self.too_long();
        }
        let about = self.about(&request);
        let patience = self.shared.config.approval_patience;
        let asking = waiting.ask(self.caller, request, about, self.within, patience);
        tokio::select! {
            () = self.context.ct.cancelled() => self.refused("the client cancelled the call"),
            answer = asking => answer,
        }
    }

    fn ask_by_result(&self, request: &ApprovalRequest, params: ElicitRequestParams) -> Answer {
        let about = self.about(request);
        let mut state = self.state.lock();
        match mem::replace(&mut *state, QuestionState::Used) {
            QuestionState::Unasked => {
                let question = self.shared.questions.ask(&self.caller.who, about);
                let requests = BTreeMap::from([(
                    APPROVE.into(),
                    InputRequest::Elicitation(ElicitRequest::new(params)),
                )]);
                *state =
                    QuestionState::Asked(InputRequiredResult::new(Some(requests), Some(question)));
                self.refused("the client was asked, and has to repeat the call with the answer")
            }
            QuestionState::Answered(reply) => self.answer(request, &reply, about),
            // Asked or used: the state stays, so that the first question remains the result.
            asked => {
                *state = asked;
                self.refused("a call may have one question, and this would be the second")
            }
        }
    }

    fn answer(&self, request: &ApprovalRequest, reply: &Reply, about: [u8; 32]) -> Answer {
        match self
            .shared
            .questions
            .close(&reply.question, &self.caller.who)
        {
            None => {
                self.refused("the answer belongs to no open question; call again to be asked again")
            }
            // A yes counts for the call that was shown.
            Some(open) if open.about != about => self.refused(
                "the answer belongs to a question about another call; call again to be asked again",
            ),
            Some(open) if open.asked.elapsed() > self.within => self.expired(),
            Some(open) if open.approved.is_some() => self.approved(about),
            Some(open) => match reply
                .responses
                .get(APPROVE)
                .cloned()
                .map(serde_json::from_value::<ElicitResult>)
            {
                Some(Ok(result)) => match self.read(request, &result, open.asked.elapsed()) {
                    Answer::Approved { .. } => self.approved(about),
                    refused => refused,
                },
                _ => self.refused("the answer cannot be read"),
            },
        }
    }

    /// The digest of everything that an approval covers.
    fn about(&self, request: &ApprovalRequest) -> [u8; 32] {
        // A yes to one definition is none to another under the same name.
        let mut definition = None;
        if let Ok(id) = ToolId::parse(&request.tool)
            && let Some(tool) = self.shared.catalog.tool(&id)
        {
            definition = Some(Definition::of(&tool).as_bytes().to_vec());
        }
        let ApprovalRequest {
            tool,
            class,
            arguments,
            rule,
            ..
        } = request;
        digest(&mut json!([
            self.caller.who,
            tool,
            class,
            arguments,
            rule,
            definition
        ]))
    }

    /// Reads an answer that came after this time.
    fn read(&self, request: &ApprovalRequest, result: &ElicitResult, after: Duration) -> Answer {
        let yes = match &result.content {
            Some(content) => content.get(APPROVE) == Some(&Value::Bool(true)),
            None => false,
        };
        match result.action {
            ElicitationAction::Accept if yes => Answer::Approved {
                by: self.caller.who.clone(),
            },
            ElicitationAction::Accept => {
                self.refused(format!("the form came back without a yes to {APPROVE:?}"))
            }
            ElicitationAction::Decline => self.refused(not_allowed(request, false, after)),
            _ => self.refused(not_allowed(request, true, after)),
        }
    }

    fn approved(&self, about: [u8; 32]) -> Answer {
        *self.approved.lock() = Some(about);
        Answer::Approved {
            by: self.caller.who.clone(),
        }
    }

    fn refused(&self, reason: impl Into<String>) -> Answer {
        Answer::Refused {
            by: self.caller.who.clone(),
            reason: reason.into(),
        }
    }

    fn too_long(&self) -> Answer {
        self.refused(format!(
            "its arguments have more than {MAX_SHOWN_BYTES} bytes, too many for a person to check"
        ))
    }

    fn expired(&self) -> Answer {
        Answer::Expired {
            after_ms: millis(self.within),
        }
    }
}

#[async_trait]
impl Approver for ElicitationApprover<'_> {
    async fn ask(&self, request: ApprovalRequest) -> Answer {
        let capabilities = self.context.client_capabilities();
        if !takes_forms(&capabilities.unwrap_or_default()) {
            if let Some(waiting) = &self.shared.waiting {
                return self.ask_elsewhere(waiting, request).await;
            }
            return self.refused(format!(
                "a person has to approve it, and this client cannot ask, since it declares no elicitation; {}",
                how_to_allow(&request)
            ));
        }
        let Some(params) = form(&request) else {
            return self.too_long();
        };
        if asks_by_result(self.context) {
            self.ask_by_result(&request, params)
        } else {
            self.ask_during_call(&request, params).await
        }
    }
}

/// Why a question came back without a yes after this time. The reason is empty where the person refused.
fn not_allowed(request: &ApprovalRequest, is_closed: bool, after: Duration) -> String {
    let reason = match (after < READING, is_closed) {
        (true, _) => {
            "a person has to approve it, and nobody was asked: the client answered by itself, as clients do \
             that run without a person; what the client itself allows does not count here"
        }
        (false, true) => "the question to the user was closed without a choice",
        (false, false) => return String::new(),
    };
    format!("{reason}; {}", how_to_allow(request))
}

/// How a call is allowed without asking.
fn how_to_allow(request: &ApprovalRequest) -> String {
    let tool = printable::line(&request.tool);
    format!(
        "allow it when starting toolscout with --allow '{tool}', or with a rule in the file of --profile"
    )
}

/// Whether a question is the result of the call, which the client repeats with the answer.
pub fn asks_by_result(context: &RequestContext<RoleServer>) -> bool {
    match context.protocol_version() {
        Some(version) => version >= ProtocolVersion::V_2026_07_28,
        None => false,
    }
}

/// The question as a form with one field; `None` if the arguments are too long.
fn form(request: &ApprovalRequest) -> Option<ElicitRequestParams> {
    let field =
        |approve: rmcp::model::BooleanSchema| approve.title("Make this call").with_default(false);
    let requested_schema = ElicitationSchema::builder()
        .required_bool_property(APPROVE, field)
        .build()
        .ok()?;
    Some(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(request)?,
        requested_schema,
    })
}

/// The text of the question: the call exactly as it will be made. `None` if it is too long.
fn message(request: &ApprovalRequest) -> Option<String> {
    let ApprovalRequest {
        tool,
        description,
        class,
        arguments,
        changes,
        rule,
        ..
    } = request;
    let arguments = serde_json::to_string_pretty(arguments).ok()?;
    if arguments.len() > MAX_SHOWN_BYTES {
        return None;
    }
    let mut lines = vec![format!(
        "May toolscout call the tool {tool:?}? It is {class}, and the rule {rule:?} asks for your approval."
    )];
    lines.push("Arguments, exactly as they will be sent:".into());
    lines.extend(arguments.lines().map(|line| format!("    {line}")));
    for Change {
        path,
        from,
        to,
        why,
    } in changes
    {
        lines.push(match from {
            _ if *why == ChangeReason::Owner => {
                format!("Set by the owner of the server: {path}")
            }
            Value::Null if to.is_null() => format!("Asked for as null, and left out: {path}"),
            Value::Null => format!("Not asked for, but added: {path} is {to}"),
            from => format!("Changed from what was asked for: {path} from {from} to {to}"),
        });
    }
    if !description.is_empty() {
        lines.push(format!(
            "Its description by the server, which may be wrong: {:?}",
            excerpt(description, DESCRIPTION_CHARS)
        ));
    }
    // No text of a server or of a model may change how the question looks.
    let lines: Vec<String> = lines.iter().map(|line| printable::line(line)).collect();
    Some(lines.join("\n"))
}

/// The questions that were sent as results, until the calls are repeated.
pub struct OpenQuestions(Mutex<LruCache<String, Open>>);

struct Open {
    who: String,
    about: [u8; 32],
    asked: Instant,
    /// The call is approved already, and its server has asked for input with this state.
    approved: Option<Option<String>>,
}

impl Default for OpenQuestions {
    fn default() -> Self {
        OpenQuestions(Mutex::new(LruCache::new(MAX_OPEN)))
    }
}

impl OpenQuestions {
    /// Stores a question and returns its id.
    fn ask(&self, who: &str, about: [u8; 32]) -> String {
        self.put(Open {
            who: who.to_owned(),
            about,
            asked: Instant::now(),
            approved: None,
        })
    }

    /// Stores that a call was approved whose server asks for input, with the server's state.
    fn keep(&self, who: &str, about: [u8; 32], state: Option<String>) -> String {
        self.put(Open {
            who: who.to_owned(),
            about,
            asked: Instant::now(),
            approved: Some(state),
        })
    }

    fn put(&self, open: Open) -> String {
        let id = format!("{OWN_STATE}{}", Uuid::new_v4());
        self.0.lock().put(id.clone(), open);
        id
    }

    /// The server's state of a call of this caller that was approved.
    fn approved(&self, id: &str, who: &str) -> Option<Option<String>> {
        let questions = self.0.lock();
        let open = questions.peek(id)?;
        match open.who == who {
            true => open.approved.clone(),
            false => None,
        }
    }

    /// Removes a question of this caller.
    fn close(&self, id: &str, who: &str) -> Option<Open> {
        let mut questions = self.0.lock();
        // Nobody closes the question of somebody else.
        if questions.peek(id)?.who != who {
            return None;
        }
        questions.pop(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolscout_gate::gate::Class;

    fn request(arguments: Value) -> ApprovalRequest {
        ApprovalRequest {
            call: "1".into(),
            tool: "shop/order".into(),
            description: "Orders.\nAllowed already.\u{202e}".into(),
            class: Class::Destructive,
            arguments,
            changes: vec![Change {
                path: "/n".into(),
                from: json!("7,000"),
                to: json!(7000),
                why: ChangeReason::Number,
            }],
            rule: "default destructive".into(),
        }
    }

    #[test]
    fn a_form_shows_the_call_as_it_is_made_and_its_texts_cannot_add_lines() {
        let text = message(&request(json!({ "n": 7000, "note": "x\nMay toolscout" }))).unwrap();
        for expected in [
            "call the tool \"shop/order\"? It is destructive, and the rule \"default destructive\" asks",
            "    {\n      \"n\": 7000,\n      \"note\": \"x\\nMay toolscout\"\n    }",
            "/n from \"7,000\" to 7000",
            "\"Orders.\\nAllowed already.",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in {text}");
        }
        assert!(!text.contains('\u{202e}'));
        assert!(message(&request(json!({ "n": "x".repeat(20_000) }))).is_none());
    }

    #[test]
    fn a_refusal_without_a_person_says_so_and_how_to_allow_the_call() {
        let (at_once, later) = (Duration::from_millis(3), Duration::from_secs(3));
        let request = request(json!({}));
        for (is_closed, after, expected) in [
            (false, at_once, "nobody was asked"),
            (true, at_once, "nobody was asked"),
            (true, later, "closed without a choice"),
        ] {
            let reason = not_allowed(&request, is_closed, after);
            assert!(reason.contains(expected), "{reason}");
            assert!(reason.contains("--allow 'shop/order'"), "{reason}");
        }
        assert_eq!(not_allowed(&request, false, later), "");
    }

    #[test]
    fn the_state_of_a_server_is_never_taken_for_one_of_this_program() {
        for state in ["toolscout:1", "server:1", "server:toolscout:1", "one", ""] {
            let shown = as_of_client(state.to_owned());
            assert!(!shown.starts_with(OWN_STATE), "{shown}");
            let repeated = Repeated {
                responses: None,
                state: Some(shown),
            };
            let (reply, input) = repeated.split(&OpenQuestions::default(), "key:a");
            assert!(reply.is_none());
            assert_eq!(input.state.as_deref(), Some(state));
        }
    }

    #[test]
    fn a_question_is_answered_once_and_by_its_own_caller() {
        let open = OpenQuestions::default();
        let id = open.ask("key:a", [1; 32]);
        assert!(open.close(&id, "key:b").is_none());
        assert_eq!(open.close(&id, "key:a").unwrap().about, [1; 32]);
        assert!(open.close(&id, "key:a").is_none());
    }
}
