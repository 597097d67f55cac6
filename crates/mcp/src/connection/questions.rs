//! What a server asks while it works on a call: a person for a form, or a model for an answer. The client that
//! makes the call gets the question.
//!
//! Over streamable HTTP, a question comes on the stream of its call. Over any other transport it does not say to
//! which call it belongs. So it is passed on only while all calls of the server are of one client; otherwise the
//! wrong person could be asked.
#![expect(
    deprecated,
    reason = "servers of these versions have no other way to ask a model"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::notices::Audience;
use super::roots::ListedRoots;
use async_trait::async_trait;
use parking_lot::Mutex;
use rmcp::model::{
    ClientCapabilities, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ErrorData, FormElicitationCapability, RequestId,
    RootsCapabilities, UrlElicitationCapability,
};
use toolscout_base::printable::excerpt;
use toolscout_gate::gate::redact::names_secret;

/// Most characters of a server's message to the person.
const MESSAGE_CHARS: usize = 4_000;

/// What a server asks the client's model.
pub type ModelQuestion = CreateMessageRequestParams;
/// What the model answers.
pub type ModelAnswer = CreateMessageResult;

/// The method with which a server asks a person.
pub const ELICITATION: &str = "elicitation/create";
/// The extension for apps (MCP Apps).
pub const APPS: &str = "io.modelcontextprotocol/ui";
/// The type of their pages.
const APP_TYPE: &str = "text/html;profile=mcp-app";

/// Questions of one server that may be open at once at clients that wait for their calls.
const MAX_OPEN: usize = 16;
/// The same of clients that make their calls again, which may take long.
const MAX_OPEN_IN_TURNS: usize = 128;

/// What a server may ask. Whether the client of a call supports it is known only when the call is made.
/// `has_roots` says whether there can be a client with folders.
pub fn capabilities(has_roots: bool) -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::builder()
        .enable_elicitation()
        .enable_sampling()
        .build();
    if let Some(elicitation) = &mut capabilities.elicitation {
        elicitation.form = Some(FormElicitationCapability::default());
        elicitation.url = Some(UrlElicitationCapability::default());
    }
    if has_roots {
        let mut roots = RootsCapabilities::default();
        roots.list_changed = Some(true);
        capabilities.roots = Some(roots);
    }
    // Servers show their apps only to those that say so. Which client shows them is not known yet.
    let mut apps = Map::new();
    apps.insert("mimeTypes".into(), json!([APP_TYPE]));
    capabilities.extensions = Some(BTreeMap::from([(APPS.to_owned(), apps)]));
    capabilities
}

/// A client that makes a call, and can be asked during it.
#[async_trait]
pub trait CallingClient: fmt::Debug + Send + Sync {
    /// Tells clients apart.
    fn session(&self) -> &str;

    /// Who the client acts for: several clients may have one key.
    fn key(&self) -> &str;

    /// Whether the client answers by making its call again, and does not wait for it meanwhile.
    fn answers_by_calling_again(&self) -> bool {
        false
    }

    /// Asks the person at the client. `server` is who asks.
    ///
    /// # Errors
    /// If the client does not support it, or refuses.
    async fn elicit(
        &self,
        server: &str,
        question: ElicitRequestParams,
    ) -> Result<ElicitResult, ErrorData>;

    /// Asks the person with a form that this program cannot read, as it came.
    ///
    /// # Errors
    /// If the client refuses.
    async fn elicit_unread(&self, server: &str, question: Value) -> Result<Value, ErrorData>;

    /// Asks the client's model. `server` is who asks.
    ///
    /// # Errors
    /// If the client does not support it, or refuses.
    async fn create_message(
        &self,
        server: &str,
        question: ModelQuestion,
    ) -> Result<ModelAnswer, ErrorData>;

    /// Asks the client for its folders; `None` if it is not asked by its call.
    async fn roots(&self) -> Option<Result<ListedRoots, ErrorData>> {
        None
    }
}

/// The calls that a server works on, and the clients that made them.
#[derive(Debug, Default)]
pub struct CallsAtWork {
    calls: Mutex<BTreeMap<usize, OpenCall>>,
    /// Who made the last call: `None` before the first, and within for a call of no client.
    last_key: Mutex<Option<Option<String>>>,
    next: AtomicUsize,
    /// When a call last ended.
    last_end: Mutex<Option<Instant>>,
    open_questions: AtomicUsize,
    open_in_turns: AtomicUsize,
}

#[derive(Debug)]
struct OpenCall {
    client: Option<Arc<dyn CallingClient>>,
    /// Its id at the server, once it is sent.
    request: Option<RequestId>,
}

/// A call at work until it is dropped.
pub struct CallAtWork {
    number: usize,
    calls: Arc<CallsAtWork>,
}

impl CallAtWork {
    /// Notes the id that the call has at the server.
    pub fn is_sent_as(&self, request: RequestId) {
        if let Some(call) = self.calls.calls.lock().get_mut(&self.number) {
            call.request = Some(request);
        }
    }
}

impl Drop for CallAtWork {
    fn drop(&mut self) {
        let mut calls = self.calls.calls.lock();
        calls.remove(&self.number);
        *self.calls.last_end.lock() = Some(Instant::now());
    }
}

impl CallsAtWork {
    /// Notes a call.
    pub fn begin(self: &Arc<Self>, client: Option<Arc<dyn CallingClient>>) -> CallAtWork {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let key = client.as_ref().map(|client| client.key().to_owned());
        let request = None;
        let mut calls = self.calls.lock();
        let is_alone = calls
            .values()
            .all(|call| call.client.as_ref().map(|client| client.key()) == key.as_deref());
        // What comes late may be of any of the calls.
        *self.last_key.lock() = Some(key.filter(|_| is_alone));
        calls.insert(number, OpenCall { client, request });
        drop(calls);
        CallAtWork {
            number,
            calls: Arc::clone(self),
        }
    }

    /// Whether somebody is being asked, so that calls wait for a person or a model.
    pub fn is_asking(&self) -> bool {
        let open = [&self.open_questions, &self.open_in_turns];
        open.iter().any(|open| open.load(Ordering::Relaxed) > 0)
    }

    /// How long no call has been at work, those that wait for an answer among them; `None` if there was none.
    pub fn unused_for(&self) -> Option<Duration> {
        let calls = self.calls.lock();
        if !calls.is_empty() {
            return Some(Duration::ZERO);
        }
        let last_end = *self.last_end.lock();
        last_end.map(|ended| ended.elapsed())
    }

    /// Who may read what the server writes to its log now: the client of the open calls, or the key of
    /// the last one, since a message may come after its call. `None` if that is no client, or several.
    pub fn audience(&self) -> Option<Audience> {
        let calls = self.calls.lock();
        let mut clients = calls.values().map(|call| &call.client);
        let Some(first) = clients.next() else {
            return match &*self.last_key.lock() {
                None => Some(Audience::Everyone),
                Some(key) => key.clone().map(Audience::Key),
            };
        };
        let first = first.as_ref()?;
        let mut audience = Audience::Session(first.session().to_owned());
        for other in clients {
            let other = other.as_ref()?;
            if other.key() != first.key() {
                return None;
            }
            if other.session() != first.session() {
                audience = Audience::Key(first.key().to_owned());
            }
        }
        Some(audience)
    }

    /// Asks the person at the client whose calls these are. Nobody answers for a person: without one, the
    /// question is cancelled.
    ///
    /// # Errors
    /// For a form that asks for a secret, and those of the client.
    pub async fn elicit(
        &self,
        server: &str,
        question: ElicitRequestParams,
        call: Option<&RequestId>,
    ) -> Result<ElicitResult, ErrorData> {
        check_form(&question)?;
        match self.asked_client(call) {
            Some((client, _open)) => client.elicit(server, question).await,
            None => {
                tracing::warn!(
                    server,
                    "a question was cancelled: its call is of no client that can be asked, or other calls are open"
                );
                Ok(ElicitResult::new(ElicitationAction::Cancel))
            }
        }
    }

    /// Asks the person with a form of a kind that the SDK cannot read, such as one of a later version.
    ///
    /// # Errors
    /// For a form that asks for a secret, and those of the client.
    pub async fn elicit_unread(
        &self,
        server: &str,
        question: Value,
        call: Option<&RequestId>,
    ) -> Result<Value, ErrorData> {
        let properties = &question["requestedSchema"]["properties"];
        if let Some(properties) = properties.as_object() {
            refuse_secrets(properties.keys())?;
        }
        match self.asked_client(call) {
            Some((client, _open)) => client.elicit_unread(server, question).await,
            None => {
                tracing::warn!(
                    server,
                    "a question was cancelled: its call is of no client that can be asked, or other calls are open"
                );
                Ok(json!({ "action": "cancel" }))
            }
        }
    }

    /// Asks the model of the client whose calls these are.
    ///
    /// # Errors
    /// Without such a client, and those of the client.
    pub async fn create_message(
        &self,
        server: &str,
        question: ModelQuestion,
        call: Option<&RequestId>,
    ) -> Result<ModelAnswer, ErrorData> {
        match self.asked_client(call) {
            Some((client, _open)) => client.create_message(server, question).await,
            None => {
                let message = "no client with a model is known to have made this call";
                Err(ErrorData::invalid_request(message, None))
            }
        }
    }

    /// Asks the client whose calls these are for its folders; `None` if it is not asked by its call.
    pub async fn roots(&self, call: Option<&RequestId>) -> Option<Result<ListedRoots, ErrorData>> {
        let (client, _open) = self.asked_client(call)?;
        client.roots().await
    }

    /// The client that made this call, or else all calls at work, and a guard of the question to it.
    fn asked_client(
        &self,
        call: Option<&RequestId>,
    ) -> Option<(Arc<dyn CallingClient>, OpenQuestion<'_>)> {
        let client = {
            let calls = self.calls.lock();
            match call {
                Some(id) => {
                    let mut calls = calls.values();
                    let asking = calls.find(|call| call.request.as_ref() == Some(id))?;
                    asking.client.clone()?
                }
                None => {
                    let mut clients = calls.values().map(|call| &call.client);
                    let first = clients.next()?.clone()?;
                    for other in clients {
                        // A call without a client counts too: the question may belong to it.
                        if other.as_ref()?.session() != first.session() {
                            return None;
                        }
                    }
                    first
                }
            }
        };
        // One that nobody answers must leave room for the questions to those who wait.
        let (open, most) = match client.answers_by_calling_again() {
            true => (&self.open_in_turns, MAX_OPEN_IN_TURNS),
            false => (&self.open_questions, MAX_OPEN),
        };
        // Counted first and taken back, so that two threads cannot both take the last place.
        if open.fetch_add(1, Ordering::Relaxed) >= most {
            open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some((client, OpenQuestion(open)))
    }
}

struct OpenQuestion<'a>(&'a AtomicUsize);

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Refuses a form that asks for a secret.
///
/// # Errors
/// If it does.
pub fn check_form(question: &ElicitRequestParams) -> Result<(), ErrorData> {
    match question {
        ElicitRequestParams::FormElicitationParams {
            requested_schema, ..
        } => refuse_secrets(requested_schema.properties.keys()),
        _ => Ok(()),
    }
}

/// Refuses a form with these fields if one of them asks for a secret.
fn refuse_secrets<'a>(fields: impl IntoIterator<Item = &'a String>) -> Result<(), ErrorData> {
    for field in fields {
        if names_secret(field) {
            let message = format!(
                "the form asks for the secret {field:?}, which MCP forbids; ask for it with a URL"
            );
            return Err(ErrorData::invalid_params(message, None));
        }
    }
    Ok(())
}

/// Whether the client supports forms. One that declares elicitation without a kind does.
pub fn takes_forms(capabilities: &ClientCapabilities) -> bool {
    match &capabilities.elicitation {
        Some(elicitation) => elicitation.form.is_some() || elicitation.url.is_none(),
        None => false,
    }
}

/// A server's question to the person of a client that takes forms or pages; `None` if it does not take its
/// kind. Nobody is asked then, so nobody has declined.
pub fn question_from(
    server: &str,
    mut question: ElicitRequestParams,
    takes_forms: bool,
    takes_pages: bool,
) -> Option<ElicitRequestParams> {
    let (message, is_taken) = match &mut question {
        ElicitRequestParams::FormElicitationParams { message, .. } => (message, takes_forms),
        ElicitRequestParams::UrlElicitationParams { message, .. } => (message, takes_pages),
        _ => return None,
    };
    if !is_taken {
        tracing::warn!(
            server,
            "a question was cancelled: the client takes none of its kind"
        );
        return None;
    }
    *message = from_server(server, message);
    Some(question)
}

/// A server's message to the person, who must know that it is not this program that asks.
pub fn from_server(server: &str, message: &str) -> String {
    format!("{server:?} asks: {}", excerpt(message, MESSAGE_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::ElicitationSchema;

    #[derive(Debug)]
    struct Person(&'static str);

    #[async_trait]
    impl CallingClient for Person {
        fn session(&self) -> &str {
            self.0
        }

        fn key(&self) -> &str {
            self.0.trim_end_matches(char::is_numeric)
        }

        fn answers_by_calling_again(&self) -> bool {
            self.0 == "later"
        }

        async fn elicit(&self, _: &str, _: ElicitRequestParams) -> Result<ElicitResult, ErrorData> {
            Ok(ElicitResult::new(ElicitationAction::Accept))
        }

        async fn elicit_unread(&self, _: &str, _: Value) -> Result<Value, ErrorData> {
            Ok(json!({ "action": "accept" }))
        }

        async fn create_message(
            &self,
            _: &str,
            _: ModelQuestion,
        ) -> Result<ModelAnswer, ErrorData> {
            Err(ErrorData::internal_error("it has no model", None))
        }
    }

    fn form(field: &str) -> ElicitRequestParams {
        let schema = ElicitationSchema::builder().required_bool(field).build();
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "Really?".into(),
            requested_schema: schema.unwrap(),
        }
    }

    async fn asked(calls: &CallsAtWork) -> ElicitationAction {
        let asked = calls.elicit("s", form("sure"), None).await;
        asked.unwrap().action
    }

    #[tokio::test]
    async fn only_the_one_client_of_all_calls_is_asked() {
        let calls = Arc::new(CallsAtWork::default());
        assert_eq!(asked(&calls).await, ElicitationAction::Cancel);
        let of_a = calls.begin(Some(Arc::new(Person("a"))));
        assert_eq!(asked(&calls).await, ElicitationAction::Accept);
        let again = calls.begin(Some(Arc::new(Person("a"))));
        assert_eq!(asked(&calls).await, ElicitationAction::Accept);
        let of_b = calls.begin(Some(Arc::new(Person("b"))));
        assert_eq!(asked(&calls).await, ElicitationAction::Cancel);
        drop((of_a, again));
        assert_eq!(asked(&calls).await, ElicitationAction::Accept);
        let of_agent = calls.begin(None);
        assert_eq!(asked(&calls).await, ElicitationAction::Cancel);
        drop((of_b, of_agent));
        assert!(!calls.is_asking());
    }

    #[tokio::test]
    async fn a_question_on_the_stream_of_a_call_is_for_its_client() {
        let calls = Arc::new(CallsAtWork::default());
        let of_a = calls.begin(Some(Arc::new(Person("a"))));
        of_a.is_sent_as(RequestId::Number(1));
        let of_agent = calls.begin(None);
        of_agent.is_sent_as(RequestId::Number(2));
        for (id, expected) in [
            (1, ElicitationAction::Accept),
            (2, ElicitationAction::Cancel),
            (3, ElicitationAction::Cancel),
        ] {
            let call = RequestId::Number(id);
            let asked = calls.elicit("s", form("sure"), Some(&call)).await;
            assert_eq!(asked.unwrap().action, expected, "{id}");
        }
    }

    #[test]
    fn questions_that_wait_for_another_call_are_bounded_and_leave_room_for_others() {
        let calls = Arc::new(CallsAtWork::default());
        let later = calls.begin(Some(Arc::new(Person("later"))));
        let mut open = Vec::new();
        while let Some((_, question)) = calls.asked_client(None) {
            open.push(question);
        }
        assert_eq!(open.len(), MAX_OPEN_IN_TURNS);
        assert_eq!(calls.unused_for(), Some(Duration::ZERO));
        drop(later);
        let _waits = calls.begin(Some(Arc::new(Person("a"))));
        assert!(calls.asked_client(None).is_some());
        assert!(calls.is_asking());
    }

    #[test]
    fn a_log_message_is_for_the_client_of_the_open_calls() {
        let calls = Arc::new(CallsAtWork::default());
        let person = |name| Some(Arc::new(Person(name)) as Arc<dyn CallingClient>);
        assert_eq!(calls.audience(), Some(Audience::Everyone));
        let first = calls.begin(person("a1"));
        assert_eq!(calls.audience(), Some(Audience::Session("a1".into())));
        let second = calls.begin(person("a2"));
        assert_eq!(calls.audience(), Some(Audience::Key("a".into())));
        let other = calls.begin(person("b"));
        assert_eq!(calls.audience(), None);
        drop((first, second, other));
        assert_eq!(calls.audience(), None, "it may be of any of the calls");
        drop(calls.begin(person("a1")));
        assert_eq!(calls.audience(), Some(Audience::Key("a".into())));
        let first = calls.begin(person("a1"));
        drop(calls.begin(person("b")));
        drop(first);
        assert_eq!(
            calls.audience(),
            None,
            "the call that ended last began first"
        );
        drop(calls.begin(None));
        assert_eq!(calls.audience(), None, "an agent's call");
    }

    #[tokio::test]
    async fn no_form_asks_for_a_secret() {
        let calls = Arc::new(CallsAtWork::default());
        let _call = calls.begin(Some(Arc::new(Person("a"))));
        for field in ["password", "apiKey", "access_token"] {
            let refused = calls.elicit("s", form(field), None).await.unwrap_err();
            assert!(refused.message.contains(field), "{refused}");
            let form = json!({ "requestedSchema": { "properties": { field: {} } } });
            let refused = calls.elicit_unread("s", form, None).await.unwrap_err();
            assert!(refused.message.contains(field), "{refused}");
        }
    }
}
