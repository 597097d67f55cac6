//! What clients do not see of their conversations: the rounds that were hidden from them, and the
//! tools that the model was shown.
//!
//! Known by a hash of the conversation as the client sees it. Only in memory and bounded: if it is
//! lost, the tools called in a conversation are shown again.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use toolscout_index::ToolId;

use crate::dialect::{CallResult, Item, ModelCall, Protocol};
use crate::tools::shown::ShownTools;
use crate::wire::json;
use toolscout_finder::finder::SearchTrail;

/// Longest item that is remembered by its id.
const MAX_ITEM_BYTES: usize = 16 << 10;
/// What an entry takes besides its texts: its key, its place in the map and in the order of use.
const ENTRY_BYTES: usize = 200;

/// What identifies a conversation up to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConversationKey([u8; 32]);

/// What is remembered of an answer.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// What the provider saw instead of the client's version of the answer; empty where both are
    /// the same.
    pub items: Vec<Bytes>,
    /// Results of hidden calls that were made together with calls of the client.
    pub results: Vec<CallResult>,
    /// The tools that the model was shown.
    pub shown: ShownTools,
    /// Those of them that are of another catalog, by the names that the model saw.
    pub foreign: Vec<(String, ToolId)>,
    /// What its searches of the other catalog found, where that teaches a usage memory.
    pub trail: SearchTrail,
    /// The id of the provider's last answer, where the client knows another.
    pub response_id: Option<String>,
}

impl Remembered {
    fn bytes(&self) -> usize {
        let items: usize = self.items.iter().map(Bytes::len).sum();
        let results: usize = self.results.iter().map(|result| result.text.len()).sum();
        // The constants are about what the structs around the texts take.
        let names: usize = self.shown.names().map(|name| name.len() + 40).sum();
        let mut foreign = 0;
        for (name, id) in &self.foreign {
            foreign += name.len() + id.as_str().len() + 80;
        }
        items + results + names + foreign + self.trail.bytes()
    }
}

/// What is known by a key.
enum Entry {
    /// An answer.
    Answer(Arc<Remembered>),
    /// An item of an answer, by the id that the provider gave it.
    Item(Arc<Item>),
}

impl Entry {
    /// What it takes in memory, about.
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Entry::Answer(remembered) => remembered.bytes(),
                Entry::Item(item) => item_bytes(item),
            }
    }
}

fn item_bytes(item: &Item) -> usize {
    match item {
        Item::Instructions => 0,
        Item::OfClient(essence) => essence.to_string().len(),
        Item::Reference(id) => id.len(),
        Item::OfModel { text, calls } => {
            let mut bytes = text.len();
            for call in calls {
                bytes += call.id.len() + call.name.len() + call.arguments.len() + 96;
            }
            bytes
        }
    }
}

/// The memory of all conversations.
pub struct KeptConversations {
    state: Mutex<Entries>,
    most_bytes: usize,
}

struct Entries {
    entries: LruCache<ConversationKey, Entry>,
    bytes: usize,
}

impl Entries {
    /// Adds an entry, unless it alone is too large. Those that were not asked for longest make room.
    fn put(&mut self, key: ConversationKey, entry: Entry, most_bytes: usize) {
        if let Some(former) = self.entries.pop(&key) {
            self.bytes = self.bytes.saturating_sub(former.bytes());
        }
        let bytes = entry.bytes();
        // It would push out everything else, and then itself.
        if bytes > most_bytes {
            return;
        }
        self.bytes += bytes;
        if let Some((_, oldest)) = self.entries.push(key, entry) {
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
        while self.bytes > most_bytes {
            let Some((_, oldest)) = self.entries.pop_lru() else {
                return;
            };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
    }
}

impl KeptConversations {
    /// A memory of this many answers and items, and of this size.
    pub fn new(entries: NonZeroUsize, most_bytes: usize) -> Self {
        let state = Entries {
            entries: LruCache::new(entries),
            bytes: 0,
        };
        KeptConversations {
            state: Mutex::new(state),
            most_bytes,
        }
    }

    /// What is remembered of an answer.
    pub fn get(&self, key: &ConversationKey) -> Option<Arc<Remembered>> {
        match self.state.lock().entries.get(key)? {
            Entry::Answer(remembered) => Some(Arc::clone(remembered)),
            Entry::Item(_) => None,
        }
    }

    /// An item that a conversation refers to.
    pub fn item(&self, owner: &str, id: &str) -> Option<Item> {
        match self.state.lock().entries.get(&item_key(owner, id))? {
            Entry::Item(item) => Some(Item::clone(item)),
            Entry::Answer(_) => None,
        }
    }

    /// Remembers an item that a conversation may refer to, if it is not very long.
    pub fn put_item(&self, owner: &str, id: &str, item: Item) {
        if item_bytes(&item) > MAX_ITEM_BYTES {
            return;
        }
        let entry = Entry::Item(Arc::new(item));
        self.state
            .lock()
            .put(item_key(owner, id), entry, self.most_bytes);
    }

    /// Remembers an answer.
    pub fn put(&self, key: ConversationKey, remembered: Remembered) {
        let entry = Entry::Answer(Arc::new(remembered));
        self.state.lock().put(key, entry, self.most_bytes);
    }
}

fn item_key(owner: &str, id: &str) -> ConversationKey {
    Identity::new(owner, &format!("item: {id}")).key()
}

/// The identity of a conversation, read item by item. Spellings of one conversation have one.
#[derive(Clone)]
pub struct Identity {
    hasher: blake3::Hasher,
    /// What the model said since the client's last item: clients may split or join it.
    answer: AnswerEssence,
}

#[derive(Clone, Default)]
struct AnswerEssence {
    text: String,
    calls: Vec<ModelCall>,
    is_open: bool,
}

impl Identity {
    /// The beginning of a conversation of this owner.
    pub fn new(owner: &str, dialect: &str) -> Self {
        let mut identity = Identity {
            hasher: blake3::Hasher::new(),
            answer: AnswerEssence::default(),
        };
        identity.update(&json!([owner, dialect]));
        identity
    }

    /// Reads an item.
    pub fn add(&mut self, item: Item) {
        match item {
            Item::Instructions | Item::Reference(_) => {}
            Item::OfClient(essence) => {
                self.end_answer();
                self.update(&essence);
            }
            Item::OfModel { text, calls } => {
                self.answer.is_open = true;
                // Clients trim texts and join them in their own ways.
                self.answer.text.extend(text.split_whitespace());
                self.answer.calls.extend(calls);
            }
        }
    }

    /// The key up to here.
    pub fn key(&self) -> ConversationKey {
        // A copy, because the model's answer may go on in the next item.
        let mut ended = self.clone();
        ended.end_answer();
        ConversationKey(*ended.hasher.finalize().as_bytes())
    }

    fn end_answer(&mut self) {
        let answer = std::mem::take(&mut self.answer);
        if !answer.is_open {
            return;
        }
        let calls: Vec<Value> = answer
            .calls
            .iter()
            .map(|call| json!([call.id, call.name, canonical_arguments(&call.arguments)]))
            .collect();
        self.update(&json!(["model", answer.text, calls]));
    }

    fn update(&mut self, essence: &Value) {
        let text = essence.to_string();
        // With its length, so that no two lists of items have the same bytes.
        self.hasher.update(&(text.len() as u64).to_le_bytes());
        self.hasher.update(text.as_bytes());
    }
}

/// Arguments as JSON in one form, since clients parse them and write them again.
fn canonical_arguments(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(value) => json::canonical(&value),
        // Of a call without arguments some clients write an empty object.
        Err(_) if arguments.trim().is_empty() => json!({}),
        Err(_) => arguments.into(),
    }
}

/// A conversation with what the client does not see.
pub struct Restored {
    /// The items for the provider.
    pub items: Vec<Bytes>,
    /// The tools that the model was shown after the last answer that is remembered.
    pub shown: ShownTools,
    /// Those of them that are of another catalog.
    pub foreign: Vec<(String, ToolId)>,
    /// What searches of the other catalog found.
    pub trail: SearchTrail,
    /// The names of tools that were called since, or at all where nothing is remembered.
    pub called: Vec<String>,
    /// Whether the model has said something.
    pub has_answers: bool,
    /// Whether its last answer is remembered.
    pub is_remembered: bool,
    /// The identity of the whole conversation, to remember the next answer by.
    pub identity: Identity,
}

impl Restored {
    /// Takes what is remembered of the answer whose items begin here.
    fn take(&mut self, remembered: &Remembered, from: usize) {
        self.shown = remembered.shown.clone();
        self.foreign.clone_from(&remembered.foreign);
        self.trail.clone_from(&remembered.trail);
        // What was called up to here is among the tools that are remembered.
        self.called.clear();
        if !remembered.items.is_empty() {
            self.items.truncate(from);
            self.items.extend(remembered.items.iter().cloned());
        }
    }
}

/// Puts back what the client does not see of its conversation.
pub fn restore(
    memory: &KeptConversations,
    protocol: &dyn Protocol,
    owner: &str,
    mut identity: Identity,
    items: &[Bytes],
) -> Restored {
    let read = |item: &Bytes| {
        let item: Value = serde_json::from_slice(item).unwrap_or_default();
        match protocol.item(&item) {
            Item::Reference(id) => memory.item(owner, &id).unwrap_or_else(unknown_item),
            item => item,
        }
    };
    let mut restored = Restored {
        items: Vec::with_capacity(items.len() + 8),
        shown: ShownTools::default(),
        foreign: Vec::new(),
        trail: SearchTrail::default(),
        called: Vec::new(),
        has_answers: false,
        is_remembered: false,
        identity: identity.clone(),
    };
    // Where the answer begins that is being read.
    let mut answer_from = None;
    let mut items = items.iter().peekable();
    while let Some(json) = items.next() {
        let item = read(json);
        let is_of_model = matches!(item, Item::OfModel { .. });
        if let Item::OfModel { calls, .. } = &item {
            answer_from.get_or_insert(restored.items.len());
            restored
                .called
                .extend(calls.iter().map(ModelCall::tool_name));
        }
        identity.add(item);
        restored.items.push(json.clone());
        if !is_of_model {
            continue;
        }
        // An answer may be several items, and is remembered as a whole.
        if let Some(next) = items.peek()
            && matches!(read(next), Item::OfModel { .. })
        {
            continue;
        }
        let from = answer_from.take().unwrap_or_default();
        restored.has_answers = true;
        let remembered = memory.get(&identity.key());
        restored.is_remembered = remembered.is_some();
        let Some(remembered) = remembered else {
            continue;
        };
        restored.take(&remembered, from);
        if remembered.results.is_empty() {
            continue;
        }
        let next = items.peek().copied();
        let (results, takes_next) = protocol.results_before(&remembered.results, next);
        restored.items.extend(results);
        if takes_next && let Some(next) = items.next() {
            identity.add(read(next));
        }
    }
    restored.identity = identity;
    restored
}

/// An item that the provider knows and we do not.
fn unknown_item() -> Item {
    Item::OfModel {
        text: String::new(),
        calls: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(entries: usize, most_bytes: usize) -> KeptConversations {
        KeptConversations::new(NonZeroUsize::new(entries).unwrap(), most_bytes)
    }

    fn key(text: &str) -> ConversationKey {
        Identity::new("o", text).key()
    }

    fn answer(bytes: usize) -> Remembered {
        Remembered {
            items: vec![vec![b'x'; bytes].into()],
            ..Remembered::default()
        }
    }

    fn said(text: &str, arguments: &str) -> Item {
        let call = ModelCall {
            arguments: arguments.to_owned(),
            ..ModelCall::default()
        };
        Item::OfModel {
            text: text.to_owned(),
            calls: vec![call],
        }
    }

    #[test]
    fn answers_and_items_together_keep_within_the_bytes() {
        const MOST: usize = 100_000;
        let memory = memory(1_000, MOST);
        for number in 0..200 {
            memory.put(key(&format!("answer {number}")), answer(3_000));
            let item = said(&"y".repeat(2_000), &"z".repeat(2_000));
            memory.put_item("o", &format!("item {number}"), item);
            let state = memory.state.lock();
            let counted: usize = state.entries.iter().map(|(_, entry)| entry.bytes()).sum();
            assert_eq!(state.bytes, counted);
            assert!(counted <= MOST, "{counted} bytes after {number}");
        }
        assert!(memory.get(&key("answer 199")).is_some());
        assert!(memory.item("o", "item 199").is_some());
        assert!(memory.get(&key("answer 0")).is_none());
        assert!(memory.item("o", "item 0").is_none());
    }

    #[test]
    fn what_alone_is_too_large_is_not_kept() {
        let memory = memory(10, 10_000);
        memory.put(key("small"), answer(10));
        memory.put(key("huge"), answer(10));
        memory.put(key("huge"), answer(20_000));
        assert!(memory.get(&key("huge")).is_none());
        assert!(memory.get(&key("small")).is_some());
        memory.put_item("o", "long", said("", &"z".repeat(MAX_ITEM_BYTES)));
        assert!(memory.item("o", "long").is_none());
        assert!(memory.state.lock().bytes <= 10_000);
    }

    #[test]
    fn the_number_of_entries_is_bounded_and_the_last_used_stay() {
        let memory = memory(2, usize::MAX);
        memory.put(key("a"), answer(1));
        memory.put(key("b"), answer(1));
        assert!(memory.get(&key("a")).is_some());
        memory.put(key("c"), answer(1));
        assert!(memory.get(&key("b")).is_none());
        assert!(memory.get(&key("a")).is_some());
    }
}
