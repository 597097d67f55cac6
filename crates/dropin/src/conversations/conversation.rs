//! What a conversation is known by besides what was said in it: clients may write calls as text,
//! rename them or shorten their history, and what was found must stay.

use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::DropInRequest;
use crate::conversations::kept_conversations::{ConversationKey, Identity};
use crate::dialect::{Item, Protocol, text_field};
use crate::wire::json::Fields;

/// The header by which a client names its conversation.
pub const HEADER: &str = "x-toolscout-conversation";
/// Headers by which clients name their sessions.
const SESSION_HEADERS: [&str; 12] = [
    "session_id",
    "session-id",
    "x-session-id",
    "x-claude-code-session-id",
    "x-opencode-session",
    "x-session-affinity",
    "conversation_id",
    "conversation-id",
    "x-conversation-id",
    "thread_id",
    "thread-id",
    "x-thread-id",
];
/// Fields by which they do, in a request or in its `metadata`.
const SESSION_FIELDS: [&str; 6] = [
    "session_id",
    "sessionId",
    "conversation_id",
    "conversationId",
    "thread_id",
    "threadId",
];
/// Fields with what a client says of itself.
const METADATA: [&str; 2] = ["metadata", "client_metadata"];

/// What a conversation is known by, the surest first.
pub struct ConversationNames {
    /// Whether its client names it in a header of ours, also in its first request.
    pub is_named: bool,
    /// The keys of what is remembered of it.
    pub keys: Vec<ConversationKey>,
}

impl ConversationNames {
    /// The names in a request with these items.
    pub fn of(
        request: &DropInRequest,
        fields: &Fields,
        protocol: &dyn Protocol,
        items: &[Bytes],
    ) -> Self {
        let named = header(&request.headers, HEADER);
        let mut keys = Vec::new();
        if let Some(name) = &named {
            keys.push(key_of(request, "named", name));
        }
        if let Some(name) = session(&request.headers, fields) {
            keys.push(key_of(request, "session", &name));
        }
        keys.extend(opening(request, protocol, items));
        // Last, because clients may give many conversations one key of the prompt cache.
        if let Some(name) = text(fields, "prompt_cache_key") {
            keys.push(key_of(request, "cache", &name));
        }
        ConversationNames {
            is_named: named.is_some(),
            keys,
        }
    }
}

fn key_of(request: &DropInRequest, kind: &str, name: &str) -> ConversationKey {
    let mut identity = Identity::new(&request.owner, request.dialect.name());
    identity.add(Item::OfClient(format!("{kind}: {name}").into()));
    identity.key()
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn text(fields: &Fields, name: &str) -> Option<String> {
    fields.text(name).filter(|text| !text.is_empty())
}

/// The session that a client names.
fn session(headers: &HeaderMap, fields: &Fields) -> Option<String> {
    for name in SESSION_HEADERS {
        if let Some(session) = header(headers, name) {
            return Some(session);
        }
    }
    for name in SESSION_FIELDS {
        if let Some(session) = text(fields, name) {
            return Some(session);
        }
    }
    for name in METADATA {
        if let Some(metadata) = fields.value(name)
            && let Some(session) = session_of_metadata(&metadata)
        {
            return Some(session);
        }
    }
    None
}

fn session_of_metadata(metadata: &Value) -> Option<String> {
    for name in SESSION_FIELDS {
        let session = text_field(metadata, name);
        if !session.is_empty() {
            return Some(session);
        }
    }
    // Claude Code writes its session into the id of the user.
    let user = text_field(metadata, "user_id");
    user.contains("session").then_some(user)
}

/// What the client said before the model said anything.
fn opening(
    request: &DropInRequest,
    protocol: &dyn Protocol,
    items: &[Bytes],
) -> Option<ConversationKey> {
    let dialect = request.dialect.name();
    let mut identity = Identity::new(&request.owner, &format!("opening of {dialect}"));
    let mut is_empty = true;
    for item in items {
        let item = serde_json::from_slice(item).unwrap_or_default();
        match protocol.item(&item) {
            Item::OfModel { .. } | Item::Reference(_) => break,
            // Clients write the time into them.
            Item::Instructions => {}
            item @ Item::OfClient(_) => {
                identity.add(item);
                is_empty = false;
            }
        }
    }
    (!is_empty).then(|| identity.key())
}
