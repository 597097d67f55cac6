//! The conversation of an exchange: as the provider sees it, and as the client does.

use bytes::Bytes;

use crate::conversations::conversation::ConversationNames;
use crate::conversations::found::held_key;
use crate::conversations::kept_conversations::{Identity, KeptConversations, Remembered};
use crate::dialect::{Item, Round};

/// A conversation, of which the client does not see everything.
pub struct Conversation {
    /// As the provider sees it.
    pub items: Vec<Bytes>,
    /// The id of a conversation to which the provider adds all that it is sent.
    held_as: Option<String>,
    /// As the client sees it.
    identity: Identity,
    /// What else it is known by.
    names: ConversationNames,
    /// What the client will not see of the answer.
    hidden: Vec<Bytes>,
    /// The text that the client got.
    text: String,
}

impl Conversation {
    /// A conversation up to a request.
    pub fn new(
        items: Vec<Bytes>,
        held_as: Option<String>,
        identity: Identity,
        names: ConversationNames,
    ) -> Self {
        Conversation {
            items,
            held_as,
            identity,
            names,
            hidden: Vec::new(),
            text: String::new(),
        }
    }

    /// Adds to the text of the answer.
    pub fn add_text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Goes on after a round that the client does not see, with the results of its calls.
    pub fn go_on(&mut self, round: Round, results: Vec<Bytes>) {
        if self.held_as.is_some() {
            // The provider has what it was sent, and what it said.
            self.items.clear();
        } else {
            self.items.extend(round.items.iter().cloned());
        }
        self.items.extend(results.iter().cloned());
        self.hidden.extend(round.items);
        self.hidden.extend(results);
    }

    /// Keeps what the client does not see of its answer, of which this is the last round. `client_id` is the
    /// id under which the client knows the answer, where it has one.
    pub fn keep(
        &mut self,
        kept: &KeptConversations,
        owner: &str,
        round: Round,
        client_id: Option<String>,
        mut remembered: Remembered,
    ) {
        if !remembered.shown.is_empty() {
            for key in &self.names.keys {
                // Results answer calls of this one answer, and the names stand for all of them.
                let found = Remembered {
                    results: Vec::new(),
                    ..remembered.clone()
                };
                kept.put(*key, found);
            }
        }
        for (id, item) in &round.referable {
            kept.put_item(owner, id, item.clone());
        }
        let ids = [round.response_id.clone(), client_id];
        for id in ids.iter().flatten().chain(&self.held_as) {
            let is_known =
                round.response_id.as_ref() == Some(id) || self.held_as.as_ref() == Some(id);
            // Under an id that the provider knows too, there is nothing to translate.
            let response_id = if is_known {
                None
            } else {
                round.response_id.clone()
            };
            let named = Remembered {
                response_id,
                ..remembered.clone()
            };
            kept.put(held_key(owner, id), named);
        }
        if !self.hidden.is_empty() || !round.hidden.is_empty() {
            remembered.items = std::mem::take(&mut self.hidden);
            remembered.items.extend(round.items);
        }
        // That nothing was found here is remembered where another conversation of the same name, as one
        // of a sub-agent, has found something.
        let has_namesake = self.names.keys.iter().any(|key| kept.get(key).is_some());
        if remembered.items.is_empty() && remembered.shown.is_empty() && !has_namesake {
            return;
        }
        let mut identity = self.identity.clone();
        identity.add(Item::OfModel {
            text: self.text.clone(),
            calls: round.calls,
        });
        kept.put(identity.key(), remembered);
    }
}
