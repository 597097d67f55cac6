//! Our own agent as a model of the providers' APIs: the question in a request, and the answer in the
//! form of the API.

mod chat;
mod messages;
mod responses;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::conversations::kept_conversations::{ConversationKey, Identity};
use crate::dialect::{Dialect, Item, content_text};
use crate::wire::failure::Failure;
use crate::wire::json::{self, Fields};
use toolscout_base::printable::excerpt;

/// The name of the model that is our agent. Another agent of the server is the model
/// `toolscout/agent/NAME`.
pub const AGENT_MODEL: &str = "toolscout/agent";
/// Most characters of a model's name in a message.
const MAX_MODEL_CHARS: usize = 200;
/// A comment, which keeps a stream open while there is nothing to say.
const HEARTBEAT: &[u8] = b": the agent is at work\n\n";

/// A question to the agent.
pub struct AgentQuestion {
    /// The last message of the user.
    pub text: String,
    /// Whether the answer is streamed.
    pub streams: bool,
    /// The agent that is asked, where the model names one.
    pub agent: Option<String>,
    /// The conversation that it continues, by what the client sees of it.
    pub continued: Option<ConversationKey>,
    /// The answer that it continues, where the client names it by its id.
    pub previous_id: Option<String>,
    /// The name of the model, as the client wrote it.
    model: String,
    dialect: Dialect,
    owner: String,
    /// Whether a stream has an event with the tokens.
    wants_usage: bool,
    identity: Identity,
}

impl AgentQuestion {
    /// Reads a request; `None` where it is for another model.
    ///
    /// # Errors
    /// For a request without a question, and for one that wants what the agent does not do.
    pub fn read(dialect: Dialect, owner: &str, body: &Bytes) -> Result<Option<Self>, Failure> {
        // In other dialects the address names the model.
        if !matches!(
            dialect,
            Dialect::Chat | Dialect::Responses | Dialect::Messages
        ) {
            return Ok(None);
        }
        let Some(fields) = Fields::read(body) else {
            return Ok(None);
        };
        let model = fields.text("model").unwrap_or_default();
        let Some(agent) = agent_of(&model) else {
            return Ok(None);
        };
        require_supported(dialect, &fields)?;
        let mut question = AgentQuestion {
            text: String::new(),
            streams: fields.flag("stream") == Some(true),
            agent: agent.map(str::to_owned),
            continued: None,
            previous_id: previous_id(dialect, &fields),
            dialect,
            owner: owner.to_owned(),
            wants_usage: wants_usage(&fields),
            identity: Identity::new(owner, &model),
            model,
        };
        // What came before is not in the request then, and the id stands for it.
        if let Some(id) = &question.previous_id {
            question.identity.add(Item::OfClient(id.clone().into()));
            question.continued = Some(answer_key(owner, id));
        }
        let items = dialect.protocol().conversation(&fields);
        for item in items.unwrap_or_default() {
            question.take(&item);
        }
        if question.text.trim().is_empty() {
            let message = "the last message has no question; send one of the user, with a text";
            return Err(Failure::new(400, "no_question", message));
        }
        Ok(Some(question))
    }

    /// Reads the next item of the conversation. The last one of the user is the question.
    fn take(&mut self, item: &Bytes) {
        let item: Value = serde_json::from_slice(item).unwrap_or_default();
        if item.get("role").is_some_and(|role| role == "user") {
            self.text = content_text(item.get("content"));
        }
        let item = self.dialect.protocol().item(&item);
        let is_answer = matches!(item, Item::OfModel { .. });
        self.identity.add(item);
        // Earlier questions have their answer, so only what follows can be the question.
        if is_answer {
            self.continued = Some(self.identity.key());
            self.text.clear();
        }
    }

    /// The conversation after this answer: by what the client sees of it, and by the answer's id
    /// where later requests may name that.
    pub fn keys_after(&self, answer: &AgentAnswer) -> Vec<ConversationKey> {
        let mut identity = self.identity.clone();
        identity.add(Item::OfModel {
            text: answer.text.clone(),
            calls: Vec::new(),
        });
        let mut keys = vec![identity.key()];
        if self.dialect == Dialect::Responses {
            keys.push(answer_key(&self.owner, &answer.head.id));
        }
        keys
    }
}

/// The agent that a model is, if it is one of ours; within, its name where it has one.
fn agent_of(model: &str) -> Option<Option<&str>> {
    match model.strip_prefix(AGENT_MODEL)? {
        "" => Some(None),
        rest => Some(Some(rest.strip_prefix('/')?)),
    }
}

/// The name of an agent as a model; without a name, that of the agent that needs none.
pub fn model_of(agent: Option<&str>) -> String {
    match agent {
        None => AGENT_MODEL.to_owned(),
        Some(name) => format!("{AGENT_MODEL}/{name}"),
    }
}

/// Refuses what the agent does not do, and what a client would wait for in vain.
fn require_supported(dialect: Dialect, fields: &Fields) -> Result<(), Failure> {
    let refused = |message: String| Err(Failure::new(400, "unsupported_parameter", message));
    if !dialect.protocol().can_hide_rounds(fields) {
        let field = match dialect {
            Dialect::Chat => "`n` above 1",
            _ => "`background`",
        };
        return refused(format!(
            "{AGENT_MODEL} gives one answer at once; ask without {field}"
        ));
    }
    let conversation = fields.value("conversation").unwrap_or_default();
    if dialect == Dialect::Responses && !conversation.is_null() {
        return refused(format!(
            "{AGENT_MODEL} knows no conversation by an id of the provider; send `previous_response_id`, or all of \
             `input`"
        ));
    }
    Ok(())
}

fn previous_id(dialect: Dialect, fields: &Fields) -> Option<String> {
    match dialect {
        Dialect::Responses => fields.text("previous_response_id"),
        _ => None,
    }
}

fn wants_usage(fields: &Fields) -> bool {
    let options = fields.value("stream_options").unwrap_or_default();
    options.get("include_usage") == Some(&Value::Bool(true))
}

/// What an answer is known by where its client names its id.
fn answer_key(owner: &str, id: &str) -> ConversationKey {
    Identity::new(owner, &format!("answer of {AGENT_MODEL}: {id}")).key()
}

/// An answer of the agent, as far as it is written.
pub struct AgentAnswer {
    head: Head,
    text: String,
    tokens: Tokens,
    form: Box<dyn Form>,
}

/// What all parts of an answer say of it.
struct Head {
    /// The answer's id.
    id: String,
    /// The name of the model, as the client wrote it.
    model: String,
    /// What the ids of the answer and of its parts have in common.
    unique: String,
    /// Seconds since 1970.
    created_s: u64,
    /// The answer that it continues, where the client named it by its id.
    previous_id: Option<String>,
}

/// Tokens of all prompts and all answers of the agent's model.
#[derive(Clone, Copy, Default)]
struct Tokens {
    input: u64,
    output: u64,
}

/// How an API writes an answer that is one text.
trait Form: Send {
    /// The whole answer.
    fn whole(&self, head: &Head, text: &str, tokens: Tokens) -> Value;

    /// The beginning of a stream.
    fn begin(&mut self, head: &Head) -> Bytes;

    /// A part of the text.
    fn text(&mut self, head: &Head, part: &str) -> Bytes;

    /// The end of a stream.
    fn end(&mut self, head: &Head, text: &str, tokens: Tokens) -> Bytes;

    /// An error as the last event of a stream.
    fn error(&mut self, failure: &Failure) -> Bytes;
}

impl AgentAnswer {
    /// The answer to a question, with nothing written. `unique` is part of its id.
    pub fn to(question: &AgentQuestion, unique: String, created_s: u64) -> Self {
        let (form, beginning): (Box<dyn Form>, _) = match question.dialect {
            Dialect::Chat => (
                Box::new(chat::Form {
                    has_usage: question.wants_usage,
                }),
                "chatcmpl-",
            ),
            Dialect::Responses => (Box::new(responses::Form::default()), "resp_"),
            _ => (Box::new(messages::Form), "msg_"),
        };
        AgentAnswer {
            head: Head {
                id: format!("{beginning}{unique}"),
                model: question.model.clone(),
                unique,
                created_s,
                previous_id: question.previous_id.clone(),
            },
            text: String::new(),
            tokens: Tokens::default(),
            form,
        }
    }

    /// Adds a part of the text, and returns it as a part of a stream.
    pub fn add(&mut self, part: &str) -> Bytes {
        self.text.push_str(part);
        self.form.text(&self.head, part)
    }

    /// Takes the tokens of all prompts and answers.
    pub fn count(&mut self, input: u64, output: u64) {
        self.tokens = Tokens { input, output };
    }

    /// The whole answer.
    pub fn whole(&self) -> Bytes {
        json::bytes(&self.form.whole(&self.head, &self.text, self.tokens))
    }

    /// The beginning of a stream.
    pub fn begin(&mut self) -> Bytes {
        self.form.begin(&self.head)
    }

    /// A part of a stream that says nothing.
    pub fn heartbeat() -> Bytes {
        Bytes::from_static(HEARTBEAT)
    }

    /// The end of a stream.
    pub fn end(&mut self) -> Bytes {
        self.form.end(&self.head, &self.text, self.tokens)
    }

    /// An error as the end of a stream.
    pub fn fail(&mut self, failure: &Failure) -> Bytes {
        self.form.error(failure)
    }
}

/// The name of the model that a request is for, cut where it is long; `None` where it has none.
pub fn requested_model(body: &Bytes) -> Option<String> {
    let model = Fields::read(body)?.text("model")?;
    Some(excerpt(&model, MAX_MODEL_CHARS))
}

/// Adds agents to a provider's list of models, each by its name if it has one.
pub fn add_agents<'a>(list: &Bytes, agents: impl Iterator<Item = Option<&'a str>>) -> Bytes {
    let Ok(mut list) = serde_json::from_slice::<Value>(list) else {
        return list.clone();
    };
    let Some(models) = list.get_mut("data").and_then(Value::as_array_mut) else {
        return json::bytes(&list);
    };
    models.extend(agents.map(agent_entry));
    json::bytes(&list)
}

/// An agent as a model, if this is the name of one of them.
pub fn agent_alone<'a>(
    model: &str,
    mut agents: impl Iterator<Item = Option<&'a str>>,
) -> Option<Bytes> {
    let agent = agents.find(|agent| model_of(*agent) == model)?;
    Some(json::bytes(&agent_entry(agent)))
}

/// A list of models that has the agents alone.
pub fn agents_alone<'a>(agents: impl Iterator<Item = Option<&'a str>>) -> Bytes {
    let entries: Vec<Value> = agents.map(agent_entry).collect();
    json::bytes(&json!({ "object": "list", "data": entries }))
}

fn agent_entry(agent: Option<&str>) -> Value {
    let display_name = match agent {
        None => "toolscout agent".to_owned(),
        Some(name) => format!("toolscout agent: {name}"),
    };
    json!({
        "id": model_of(agent),
        "object": "model",
        "type": "model",
        "display_name": display_name,
        "created": 0,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "toolscout",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dialect: Dialect, body: Value) -> Result<Option<AgentQuestion>, Failure> {
        AgentQuestion::read(dialect, "o", &body.to_string().into())
    }

    #[test]
    fn the_question_is_the_last_message_in_every_form() {
        let messages = json!([{ "role": "user", "content": [{ "type": "text", "text": "Hi" }] }]);
        for (dialect, body) in [
            (Dialect::Chat, json!({ "messages": messages })),
            (Dialect::Messages, json!({ "messages": messages })),
            (Dialect::Responses, json!({ "input": "Hi" })),
            (
                Dialect::Responses,
                json!({ "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] }] }),
            ),
        ] {
            let mut body = body;
            body["model"] = AGENT_MODEL.into();
            let question = read(dialect, body.clone()).unwrap().unwrap();
            assert_eq!(question.text, "Hi", "{body}");
            assert!(question.continued.is_none());
            body["model"] = "gpt-5.4-mini".into();
            assert!(read(dialect, body).unwrap().is_none());
        }
    }

    #[test]
    fn an_answer_is_continued_by_its_text_and_by_its_id() {
        let asked = |input: Value, previous: Value| {
            let body =
                json!({ "model": AGENT_MODEL, "input": input, "previous_response_id": previous });
            read(Dialect::Responses, body).unwrap().unwrap()
        };
        let first = asked("Hi".into(), Value::Null);
        let mut answer = AgentAnswer::to(&first, "1".into(), 0);
        answer.add("Hello, ");
        answer.add("you!");
        let keys = first.keys_after(&answer);
        let item = json!({ "type": "message", "role": "assistant", "content": "Hello, you!" });
        let whole = json!([{ "role": "user", "content": "Hi" }, item, { "role": "user", "content": "And?" }]);
        assert_eq!(asked(whole, Value::Null).continued, Some(keys[0]));
        let by_id = asked("And?".into(), "resp_1".into());
        assert_eq!(by_id.continued, Some(keys[1]));
        let other = AgentQuestion::read(
            Dialect::Responses,
            "somebody else",
            &json!({ "model": AGENT_MODEL, "input": "And?", "previous_response_id": "resp_1" })
                .to_string()
                .into(),
        );
        assert_ne!(other.unwrap().unwrap().continued, Some(keys[1]));
    }

    #[test]
    fn what_the_agent_does_not_do_is_refused() {
        let message = json!([{ "role": "user", "content": "Hi" }]);
        for (dialect, more) in [
            (Dialect::Chat, json!({ "messages": message, "n": 2 })),
            (
                Dialect::Responses,
                json!({ "input": "Hi", "background": true }),
            ),
            (
                Dialect::Responses,
                json!({ "input": "Hi", "conversation": "conv_1" }),
            ),
            (Dialect::Messages, json!({ "messages": [] })),
        ] {
            let mut body = more;
            body["model"] = AGENT_MODEL.into();
            let refused = read(dialect, body.clone()).err().unwrap();
            assert_eq!(refused.status, 400, "{body}");
        }
    }
}
