//! Searches of a conversation that find the same tools again, so that a model that searches in circles is
//! told.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use toolscout_index::ToolId;

use super::search::Found;
use super::trail::key;

/// Answers of a conversation that are remembered, the newest ones.
const MAX_ANSWERS: usize = 16;
/// Tools of an answer that are compared.
const MAX_TOOLS: usize = 16;
/// Answers are the same if they share this part of the shorter one.
const SHARED_PART: f64 = 0.8;
/// Conversations that are remembered, those used last.
const MAX_CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// The answers to the searches of one conversation since its last call of a tool.
#[derive(Clone, Debug, Default)]
pub struct SearchHistory {
    /// The tools of each, best first. The newest last.
    answers: VecDeque<Vec<ToolId>>,
}

impl SearchHistory {
    /// Notes what a search found, and sets its [`Found::repeats`].
    pub fn note(&mut self, found: &mut Found) {
        if found.matched.is_none() {
            // Tools were selected by name.
            return;
        }
        let answer = tools_of(found);
        let same = self.answers.iter().filter(|other| is_same(other, &answer));
        found.repeats = same.count();
        self.answers.push_back(answer);
        if self.answers.len() > MAX_ANSWERS {
            self.answers.pop_front();
        }
    }

    /// A tool was called: what comes now is another step.
    pub fn called(&mut self) {
        self.answers.clear();
    }
}

/// The tools of an answer; if it has none, those that it names.
fn tools_of(found: &Found) -> Vec<ToolId> {
    let mut ids: Vec<&ToolId> = found.hits.iter().map(|hit| &hit.tool.id).collect();
    if ids.is_empty() {
        let nearest = found.no_match.iter().flat_map(|reason| &reason.nearest);
        ids.extend(found.more.iter().map(|tool| &tool.id).chain(nearest));
    }
    ids.into_iter().take(MAX_TOOLS).cloned().collect()
}

/// Whether two answers have the same first tool and mostly the same others.
fn is_same(one: &[ToolId], other: &[ToolId]) -> bool {
    if one.first() != other.first() {
        return false;
    }
    let shared = one.iter().filter(|id| other.contains(id)).count();
    let shorter = one.len().min(other.len());
    shared as f64 >= SHARED_PART * shorter as f64
}

/// The histories of many conversations.
pub struct SearchHistories(Mutex<LruCache<String, SearchHistory>>);

impl Default for SearchHistories {
    fn default() -> Self {
        SearchHistories(Mutex::new(LruCache::new(MAX_CONVERSATIONS)))
    }
}

impl SearchHistories {
    /// Notes what a search in a conversation of this caller found.
    pub fn note(&self, (who, conversation): (&str, &str), found: &mut Found) {
        let mut histories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let history = histories.get_or_insert_mut(key(who, conversation), SearchHistory::default);
        history.note(found);
    }

    /// A tool was called in a conversation of this caller.
    pub fn called(&self, (who, conversation): (&str, &str)) {
        let mut histories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        histories.pop(&key(who, conversation));
    }
}

#[cfg(test)]
mod tests {
    use toolscout_index::Match;

    use super::super::search::doubles::{found, tool};
    use super::*;

    fn searched(history: &mut SearchHistory, hits: &[&str]) -> usize {
        let mut answer = found(hits);
        answer.matched = Some(Match::Possible);
        history.note(&mut answer);
        answer.repeats
    }

    #[test]
    fn the_same_tools_again_are_counted_until_one_is_called() {
        let mut history = SearchHistory::default();
        assert_eq!(searched(&mut history, &["mail/send", "chat/post"]), 0);
        assert_eq!(searched(&mut history, &["chat/post", "mail/send"]), 0);
        assert_eq!(searched(&mut history, &["mail/send", "files/read"]), 0);
        assert_eq!(searched(&mut history, &["mail/send", "chat/post"]), 1);
        assert_eq!(searched(&mut history, &["mail/send"]), 3);
        history.called();
        assert_eq!(searched(&mut history, &["mail/send"]), 0);
    }

    #[test]
    fn answers_without_hits_are_compared_by_what_they_name() {
        let mut history = SearchHistory::default();
        let mut nothing = |named: &str| {
            let mut found = Found::nothing("no tool is near enough");
            found.more = vec![tool(named, "")];
            history.note(&mut found);
            found.repeats
        };
        assert_eq!(
            [nothing("a/x"), nothing("a/x"), nothing("a/y")],
            [0, 1, 0],
            "the named tools tell answers apart"
        );
        let mut selected = found(&["a/x"]);
        selected.matched = None;
        history.note(&mut selected);
        assert_eq!(selected.repeats, 0);
    }

    #[test]
    fn conversations_are_apart_and_bounded() {
        let histories = SearchHistories::default();
        let repeats = |who: &str, conversation: &str| {
            let mut answer = found(&["mail/send"]);
            answer.matched = Some(Match::Good);
            histories.note((who, conversation), &mut answer);
            answer.repeats
        };
        assert_eq!([repeats("a", "1"), repeats("a", "1")], [0, 1]);
        assert_eq!([repeats("b", "1"), repeats("a", "2")], [0, 0]);
        histories.called(("a", "1"));
        assert_eq!(repeats("a", "1"), 0);
        for number in 0..2 * MAX_CONVERSATIONS.get() {
            repeats("a", &number.to_string());
        }
        assert_eq!(histories.0.lock().unwrap().len(), MAX_CONVERSATIONS.get());
    }
}
