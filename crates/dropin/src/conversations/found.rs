//! What was found in a conversation before a request, as it is remembered.

use bytes::Bytes;
use serde_json::Value;
use toolscout_index::ToolId;

use crate::DropInRequest;
use crate::conversations::conversation::ConversationNames;
use crate::conversations::kept_conversations::{
    ConversationKey, Identity, KeptConversations, Remembered, Restored,
};
use crate::dialect::{Dialect, Item};
use crate::tools::shown::ShownTools;
use crate::wire::json::{self, Fields};
use toolscout_finder::finder::SearchTrail;

/// What was found in a conversation.
#[derive(Clone, Default)]
pub struct Found {
    pub shown: ShownTools,
    pub foreign: Vec<(String, ToolId)>,
    pub trail: SearchTrail,
}

impl Found {
    /// As it is remembered.
    pub fn of(remembered: &Remembered) -> Self {
        Found {
            shown: remembered.shown.clone(),
            foreign: remembered.foreign.clone(),
            trail: remembered.trail.clone(),
        }
    }

    /// What was found before this request. Where the last answer is not known as the client has it,
    /// what is remembered under the names of the conversation counts.
    pub fn before(
        kept: &KeptConversations,
        names: &ConversationNames,
        held: &Held,
        restored: &Restored,
    ) -> Self {
        let mut found = Found {
            shown: restored.shown.clone(),
            foreign: restored.foreign.clone(),
            trail: restored.trail.clone(),
        };
        if found.shown.is_empty() {
            found = held.found.clone().unwrap_or(found);
        }
        let is_known = held.found.is_some() || restored.is_remembered;
        // A new one may begin with the words of another, and must not get what that has found.
        let is_new = !restored.has_answers && !held.continues && !names.is_named;
        if is_known || is_new {
            return found;
        }
        let Some(remembered) = names.keys.iter().find_map(|key| kept.get(key)) else {
            return found;
        };
        let mut of_conversation = Found::of(&remembered);
        of_conversation.shown.append(&found.shown);
        let foreign = &mut of_conversation.foreign;
        for (name, id) in found.foreign {
            if !foreign.iter().any(|(known, _)| *known == name) {
                foreign.push((name, id));
            }
        }
        of_conversation
    }
}

/// What the provider holds of a conversation, which is not sent again.
#[derive(Default)]
pub struct Held {
    /// Whether the request continues what the provider holds.
    pub continues: bool,
    /// What was found in it, where that is remembered.
    pub found: Option<Found>,
    /// Results of hidden calls that the provider waits for.
    pub pending: Vec<Bytes>,
    /// The id of a conversation to which the provider adds all that it is sent.
    pub conversation: Option<String>,
}

impl Held {
    /// Reads the ids in a request, and puts in those of the provider where the client has others.
    pub fn take(
        kept: &KeptConversations,
        request: &DropInRequest,
        fields: &mut Fields,
        identity: &mut Identity,
    ) -> Self {
        let mut held = Held::default();
        if request.dialect != Dialect::Responses {
            return held;
        }
        held.conversation = held_id(fields, "conversation");
        for field in ["previous_response_id", "conversation"] {
            let Some(id) = held_id(fields, field) else {
                continue;
            };
            held.continues = true;
            // What came before is not in the request, and its id stands for it.
            identity.add(Item::OfClient(id.clone().into()));
            let Some(remembered) = kept.get(&held_key(&request.owner, &id)) else {
                continue;
            };
            held.found = Some(Found::of(&remembered));
            held.pending = request.dialect.protocol().results(&remembered.results);
            if let Some(last) = &remembered.response_id {
                fields.set(field, json::text(last).into());
            }
        }
        held
    }
}

/// The id under which the provider holds what came before.
fn held_id(fields: &Fields, field: &str) -> Option<String> {
    match fields.value(field)? {
        Value::String(id) if !id.is_empty() => Some(id),
        Value::Object(object) => Some(object.get("id")?.as_str()?.to_owned()),
        _ => None,
    }
}

/// The key of what the provider holds under an id.
pub fn held_key(owner: &str, id: &str) -> ConversationKey {
    Identity::new(owner, &format!("held by the provider: {id}")).key()
}
