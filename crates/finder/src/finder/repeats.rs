//! Searches of a conversation that find the same tools again, so that a model that searches in circles is
//! told.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use toolscout_index::ToolId;

use super::search::Found;
use super::trail::key;

/// Answers of a conversation that are remembered, the newest ones.
const MAX_ANSWERS: usize = 16;
/// Tools of an answer that are compared.
const MAX_TOOLS: usize = 16;
/// Words of queries that are compared, and the fewest characters of one.
const MAX_WORDS: usize = 64;
const MIN_WORD_CHARS: usize = 4;
/// Answers are the same if they share this part of the shorter one.
const SHARED_PART: f64 = 0.8;
/// Conversations that are remembered, those used last.
const MAX_CONVERSATIONS: NonZeroUsize = NonZeroUsize::new(1_024).unwrap();

/// The answers to the searches of one conversation since its last call of a tool.
#[derive(Clone, Debug, Default)]
pub struct SearchHistory {
    /// The newest last.
    answers: VecDeque<Answer>,
}

/// What a search found.
#[derive(Clone, Debug)]
struct Answer {
    /// The hits, best first; without hits, the tools that are named as nearest.
    tools: Vec<ToolId>,
    has_hits: bool,
    /// The longer words of the queries.
    words: BTreeSet<String>,
}

impl SearchHistory {
    /// Notes what a search found, and sets its [`Found::repeats`].
    pub fn note(&mut self, queries: &[String], found: &mut Found) {
        // Tools were selected by name, or nothing was asked that a tool could answer.
        if found.matched.is_none() || found.is_of_request {
            return;
        }
        let answer = Answer::of(queries, found);
        let same = self.answers.iter().filter(|other| other.is_same(&answer));
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

impl Answer {
    fn of(queries: &[String], found: &Found) -> Self {
        let mut tools: Vec<&ToolId> = found.hits.iter().map(|hit| &hit.tool.id).collect();
        let has_hits = !tools.is_empty();
        if !has_hits {
            tools.extend(found.more.iter().map(|tool| &tool.id));
            if let Some(no_match) = &found.no_match {
                tools.extend(&no_match.nearest);
            }
        }
        // Short words, such as articles, are shared by queries for different things.
        let words = queries.iter().flat_map(|query| query.split_whitespace());
        let words = words.filter(|word| word.chars().count() >= MIN_WORD_CHARS);
        Answer {
            tools: tools.into_iter().take(MAX_TOOLS).cloned().collect(),
            has_hits,
            words: words.map(str::to_lowercase).take(MAX_WORDS).collect(),
        }
    }

    /// Whether two answers have the same first tool, and either the same second or mostly the same others.
    /// Without hits, several needs may have the same nearest tools: then the queries share a word besides.
    fn is_same(&self, other: &Answer) -> bool {
        let (one, two) = (&self.tools, &other.tools);
        if self.has_hits != other.has_hits || one.first() != two.first() {
            return false;
        }
        if !self.has_hits {
            return !self.words.is_disjoint(&other.words);
        }
        let shared = one.iter().filter(|id| two.contains(id)).count();
        let shorter = one.len().min(two.len());
        let has_same_second = shorter > 1 && one[1] == two[1];
        has_same_second || shared as f64 >= SHARED_PART * shorter as f64
    }
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
    pub fn note(&self, (who, conversation): (&str, &str), queries: &[String], found: &mut Found) {
        let mut histories = self.0.lock();
        let history = histories.get_or_insert_mut(key(who, conversation), SearchHistory::default);
        history.note(queries, found);
    }

    /// A tool was called in a conversation of this caller.
    pub fn called(&self, (who, conversation): (&str, &str)) {
        let mut histories = self.0.lock();
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
        history.note(&["some words".to_owned()], &mut answer);
        answer.repeats
    }

    #[test]
    fn the_same_tools_again_are_counted_until_one_is_called() {
        let mut history = SearchHistory::default();
        let (send, post) = ("mail/send", "chat/post");
        assert_eq!(searched(&mut history, &[send, post, "a/b", "a/c"]), 0);
        assert_eq!(searched(&mut history, &[post, send, "a/b", "a/c"]), 0);
        assert_eq!(searched(&mut history, &[send, "files/read", "x/y"]), 0);
        // The first two are those of the first search.
        assert_eq!(searched(&mut history, &[send, post, "x/z", "x/w"]), 1);
        assert_eq!(searched(&mut history, &[send]), 3);
        history.called();
        assert_eq!(searched(&mut history, &[send]), 0);
    }

    #[test]
    fn answers_without_hits_are_the_same_for_like_queries_alone() {
        let mut history = SearchHistory::default();
        let mut nothing = |query: &str, named: &str| {
            let mut found = Found::nothing("no tool is near enough");
            found.more = vec![tool(named, "")];
            history.note(&[query.to_owned()], &mut found);
            found.repeats
        };
        assert_eq!(nothing("book a flight", "a/x"), 0);
        assert_eq!(nothing("weather tomorrow", "a/x"), 0);
        assert_eq!(nothing("a flight to Rome", "a/x"), 1);
        assert_eq!(nothing("a flight to Oslo", "a/y"), 0);

        let mut selected = found(&["a/x"]);
        history.note(&["flight".to_owned()], &mut selected);
        let mut mistyped = Found::nothing("no tool passes the filter");
        mistyped.is_of_request = true;
        for _ in 0..3 {
            history.note(&["flight".to_owned()], &mut mistyped);
        }
        assert_eq!((selected.repeats, mistyped.repeats), (0, 0));
    }

    #[test]
    fn what_was_named_as_nearest_was_not_found() {
        let mut history = SearchHistory::default();
        let mut nothing = Found::nothing("no tool is near enough");
        nothing.more = vec![tool("mail/send", "")];
        history.note(&["some words".to_owned()], &mut nothing);
        assert_eq!(searched(&mut history, &["mail/send"]), 0);
    }

    #[test]
    fn conversations_are_apart_and_bounded() {
        let histories = SearchHistories::default();
        let repeats = |who: &str, conversation: &str| {
            let mut answer = found(&["mail/send"]);
            answer.matched = Some(Match::Good);
            histories.note((who, conversation), &[], &mut answer);
            answer.repeats
        };
        assert_eq!([repeats("a", "1"), repeats("a", "1")], [0, 1]);
        assert_eq!([repeats("b", "1"), repeats("a", "2")], [0, 0]);
        histories.called(("a", "1"));
        assert_eq!(repeats("a", "1"), 0);
        for number in 0..2 * MAX_CONVERSATIONS.get() {
            repeats("a", &number.to_string());
        }
        assert_eq!(histories.0.lock().len(), MAX_CONVERSATIONS.get());
    }
}
