//! Requests that no tool served: what is kept of them, and requests of one meaning as a group.
//!
//! A search whose hits are a good match counts too, if it belongs to a session and none of the tools
//! that it showed was called before the session was idle.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use lru::LruCache;
use serde::Serialize;
use toolscout_base::known_secrets;
use toolscout_index::embed::table::StaticTable;
use toolscout_index::{Match, ToolId};
use utoipa::ToSchema;

use super::event::{CallUse, SearchUse};

/// Sessions whose searches wait for a call.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::new(1_024).expect("is not zero");
/// Searches of a session that wait, the newest ones.
const MAX_SEARCHES: usize = 32;
/// After so long without a search or a call, a session's searches count as missed.
const IDLE_MS: i64 = 10 * 60 * 1_000;
/// Bytes of a text that are kept: a longer one is a document, and no request like it comes again.
const MAX_TEXT_BYTES: usize = 500;
/// The least cosine with the first request of a group. On 1,500 queries of metatool, a third were in groups
/// of several, and in these 83 of 100 had the tool that most of their group had. With .6 half were, and 78
/// of 100; with .7 a quarter, and 85.
const LEAST_COSINE: f32 = 0.65;
/// Most groups. With more, each further request would be compared with too many.
const MAX_GROUPS: usize = 1_000;
/// Further texts of a group that are shown.
const MAX_EXAMPLES: usize = 5;

/// What to do where the texts of requests are not stored.
pub const QUERIES_ARE_OFF: &str = "texts of requests are not stored; set `queries = true` in the table [usage] of the settings, and \
     requests that no tool serves are kept from then on";

/// Why a request counts as missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Probably no tool serves it.
    NoMatch,
    /// A tool may serve it, and none was called that we know of.
    Possible,
    /// Its hits were a good match, and none of the tools that were shown was called.
    NotCalled,
}

impl Why {
    /// The word in the database and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::NoMatch => "none",
            Why::Possible => "possible",
            Why::NotCalled => "not_called",
        }
    }

    /// The reason with this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = [Why::NoMatch, Why::Possible, Why::NotCalled].into_iter();
        all.find(|why| why.as_str() == name)
    }
}

/// A request that no tool served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedRequest {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Why it counts.
    pub why: Why,
    /// Its text, without secrets.
    pub text: String,
    /// The nearest tool, if there is any.
    pub nearest: Option<String>,
}

/// Searches of sessions that wait for a call.
pub struct OpenSearches(LruCache<(String, String), Session>);

#[derive(Default)]
struct Session {
    last_ms: i64,
    searches: VecDeque<OpenSearch>,
}

struct OpenSearch {
    shown: Vec<ToolId>,
    requests: Vec<(String, MissedRequest)>,
}

impl Default for OpenSearches {
    fn default() -> Self {
        OpenSearches(LruCache::new(MAX_SESSIONS))
    }
}

impl OpenSearches {
    /// Notes a search of a catalog. Returns what is missed by now.
    pub fn searched(
        &mut self,
        at_ms: i64,
        catalog: &str,
        search: &SearchUse,
    ) -> Vec<(String, MissedRequest)> {
        let requests = requests(at_ms, catalog, search);
        let Some(session) = &search.origin.session else {
            return match search.matched {
                // Whether a tool was called is not known here.
                Match::Good => Vec::new(),
                Match::Possible | Match::None => requests,
            };
        };
        if search.matched == Match::None || requests.is_empty() {
            return requests;
        }
        let key = (search.origin.who.clone(), session.clone());
        let mut missed = Vec::new();
        if !self.0.contains(&key)
            && let Some((_, pushed_out)) = self.0.push(key.clone(), Session::default())
        {
            missed.extend(pushed_out.missed());
        }
        if let Some(session) = self.0.get_mut(&key) {
            session.last_ms = at_ms;
            session.searches.push_back(OpenSearch {
                shown: search.hits.iter().chain(&search.more).cloned().collect(),
                requests,
            });
            if session.searches.len() > MAX_SEARCHES
                && let Some(oldest) = session.searches.pop_front()
            {
                missed.extend(oldest.requests);
            }
        }
        missed
    }

    /// Notes a call: the searches that showed its tool were served.
    pub fn called(&mut self, at_ms: i64, call: &CallUse) {
        let Some(session) = &call.origin.session else {
            return;
        };
        let key = (call.origin.who.clone(), session.clone());
        if let Some(session) = self.0.get_mut(&key) {
            session.last_ms = at_ms;
            let searches = &mut session.searches;
            searches.retain(|search| !search.shown.contains(&call.tool));
        }
    }

    /// Whether no search waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is missed because its session has been idle for long.
    pub fn idle(&mut self, now_ms: i64) -> Vec<(String, MissedRequest)> {
        let mut missed = Vec::new();
        while let Some((_, oldest)) = self.0.peek_lru() {
            // The others have been used since, so they are not idle either.
            if now_ms - oldest.last_ms < IDLE_MS {
                break;
            }
            if let Some((_, oldest)) = self.0.pop_lru() {
                missed.extend(oldest.missed());
            }
        }
        missed
    }

    /// What is missed at the end of all sessions.
    pub fn end(&mut self) -> Vec<(String, MissedRequest)> {
        self.idle(i64::MAX)
    }

    /// Forgets a catalog.
    pub fn forget(&mut self, catalog: &str) {
        for (_, session) in self.0.iter_mut() {
            for search in &mut session.searches {
                search.requests.retain(|(of, _)| of != catalog);
            }
        }
    }
}

impl Session {
    fn missed(self) -> impl Iterator<Item = (String, MissedRequest)> {
        self.searches.into_iter().flat_map(|search| search.requests)
    }
}

/// The texts of a search as missed requests, each with its catalog.
fn requests(at_ms: i64, catalog: &str, search: &SearchUse) -> Vec<(String, MissedRequest)> {
    let why = match search.matched {
        Match::None => Why::NoMatch,
        Match::Possible => Why::Possible,
        Match::Good => Why::NotCalled,
    };
    let mut missed = Vec::new();
    for text in &search.queries {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        // Masked before it is cut: the rest of a secret that was cut would not be recognised.
        let text = known_secrets::mask(text);
        let end = text.floor_char_boundary(MAX_TEXT_BYTES);
        let request = MissedRequest {
            at_ms,
            why,
            text: text[..end].to_owned(),
            nearest: search.nearest.as_ref().map(ToolId::to_string),
        };
        missed.push((catalog.to_owned(), request));
    }
    missed
}

/// Requests of one meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct MissedGroup {
    /// The text that was requested most often.
    pub request: String,
    /// Number of requests.
    pub times: u64,
    /// Those of them for which there was probably no tool.
    pub none: u64,
    /// Those with a possible match; where calls are known, without a call.
    pub possible: u64,
    /// Those with a good match, where none of the tools that were shown was called.
    pub not_called: u64,
    /// The tool that was nearest most often; absent if there never was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// When the last one was, in milliseconds since 1970.
    pub last_ms: i64,
    /// Number of different texts.
    pub texts: usize,
    /// Some of the other texts, at most 5.
    pub examples: Vec<String>,
}

/// Requests in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// The groups, those with most requests first.
    pub groups: Vec<MissedGroup>,
    /// Number of requests.
    pub requests: usize,
    /// Requests that are in no group, because there are too many groups.
    pub left_out: usize,
}

impl Missed {
    /// Puts requests into groups: each text joins the group with the nearest first text, if it is near
    /// enough, and begins one otherwise. Frequent texts come first. Texts without a word of English are
    /// in a group of their own.
    pub fn of(requests: &[MissedRequest], table: &StaticTable) -> Self {
        let mut texts: BTreeMap<String, Vec<&MissedRequest>> = BTreeMap::new();
        for request in requests {
            let text = request.text.to_lowercase();
            texts.entry(text).or_default().push(request);
        }
        let mut texts: Vec<Vec<&MissedRequest>> = texts.into_values().collect();
        texts.sort_by_key(|same| std::cmp::Reverse(same.len()));
        let mut groups: Vec<(Vec<f32>, Vec<&MissedRequest>)> = Vec::new();
        let mut left_out = 0;
        for same in texts {
            let vector = table.embed(&same[0].text);
            let cosines = groups.iter().map(|(first, _)| cosine(first, &vector));
            let nearest = cosines.enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
            match nearest {
                Some((at, cosine)) if cosine >= LEAST_COSINE => groups[at].1.extend(same),
                _ if groups.len() < MAX_GROUPS => groups.push((vector, same)),
                _ => left_out += same.len(),
            }
        }
        let groups = groups.iter().map(|(_, requests)| group(requests));
        let mut groups: Vec<MissedGroup> = groups.collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.times));
        Missed {
            groups,
            requests: requests.len(),
            left_out,
        }
    }
}

/// Of unit vectors.
fn cosine(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

fn group(requests: &[&MissedRequest]) -> MissedGroup {
    let mut group = MissedGroup {
        request: requests[0].text.clone(),
        ..MissedGroup::default()
    };
    let mut nearest: BTreeMap<&str, u64> = BTreeMap::new();
    let mut texts = vec![requests[0].text.to_lowercase()];
    for request in requests {
        group.times += 1;
        group.last_ms = group.last_ms.max(request.at_ms);
        match request.why {
            Why::NoMatch => group.none += 1,
            Why::Possible => group.possible += 1,
            Why::NotCalled => group.not_called += 1,
        }
        if let Some(tool) = &request.nearest {
            *nearest.entry(tool).or_default() += 1;
        }
        let text = request.text.to_lowercase();
        if !texts.contains(&text) {
            if group.examples.len() < MAX_EXAMPLES {
                group.examples.push(request.text.clone());
            }
            texts.push(text);
        }
    }
    group.texts = texts.len();
    let most = nearest.into_iter().max_by_key(|(_, times)| *times);
    group.nearest = most.map(|(tool, _)| tool.to_owned());
    group
}

#[cfg(test)]
mod tests {
    use super::super::event::Origin;
    use super::*;

    fn id(text: &str) -> ToolId {
        ToolId::parse(text).unwrap()
    }

    fn search(session: Option<&str>, matched: Match, text: &str, hits: &[&str]) -> SearchUse {
        SearchUse {
            origin: Origin {
                who: "key:a".to_owned(),
                session: session.map(str::to_owned),
                ..Origin::default()
            },
            matched,
            hits: hits.iter().map(|text| id(text)).collect(),
            more: Vec::new(),
            sent: None,
            queries: vec![text.to_owned()],
            nearest: hits.first().map(|text| id(text)),
        }
    }

    fn call(session: &str, tool: &str) -> CallUse {
        CallUse {
            origin: Origin {
                who: "key:a".to_owned(),
                session: Some(session.to_owned()),
                ..Origin::default()
            },
            tool: id(tool),
            error: None,
            took: None,
            result: String::new(),
            result_bytes: 0,
        }
    }

    fn texts(missed: Vec<(String, MissedRequest)>) -> Vec<(String, &'static str)> {
        let pairs = missed.into_iter();
        pairs
            .map(|(_, request)| (request.text, request.why.as_str()))
            .collect()
    }

    #[test]
    fn a_search_of_a_session_is_missed_once_it_was_idle_without_a_call() {
        let mut open = OpenSearches::default();
        let mut searched = |at, session, matched, text: &str, hits: &[&str]| {
            texts(open.searched(at, "c", &search(session, matched, text, hits)))
        };
        let none = searched(0, Some("1"), Match::None, "no such", &[]);
        assert_eq!(none, [("no such".to_owned(), "none")]);
        let possible = searched(0, None, Match::Possible, "no session", &["s/a"]);
        assert_eq!(possible, [("no session".to_owned(), "possible")]);
        assert_eq!(searched(0, None, Match::Good, "good", &["s/a"]), []);
        for (at, session, matched, text) in [
            (1, "1", Match::Good, "called"),
            (1, "2", Match::Good, "ignored"),
            (2, "2", Match::Possible, "perhaps"),
        ] {
            assert_eq!(
                searched(at, Some(session), matched, text, &["s/a", "s/b"]),
                []
            );
        }
        open.called(3, &call("1", "s/b"));
        open.called(3, &call("2", "s/other"));
        assert_eq!(texts(open.idle(IDLE_MS)), []);
        let missed = texts(open.idle(3 + IDLE_MS));
        let expected = [
            ("ignored".to_owned(), "not_called"),
            ("perhaps".to_owned(), "possible"),
        ];
        assert_eq!(missed, expected);
        assert_eq!(texts(open.end()), []);
    }

    #[test]
    fn sessions_and_their_searches_are_bounded_and_what_makes_room_is_missed() {
        let mut open = OpenSearches::default();
        let mut missed = 0;
        for number in 0..2 * MAX_SEARCHES {
            let text = format!("t{number}");
            let search = search(Some("1"), Match::Good, &text, &["s/a"]);
            missed += open.searched(1, "c", &search).len();
        }
        assert_eq!(missed, MAX_SEARCHES);
        for number in 0..MAX_SESSIONS.get() {
            let session = format!("other{number}");
            let search = search(Some(&session), Match::Good, "t", &["s/a"]);
            missed += open.searched(1, "c", &search).len();
        }
        assert_eq!(missed, 2 * MAX_SEARCHES);
        open.forget("c");
        assert_eq!(texts(open.end()), []);
    }

    #[test]
    fn secrets_are_masked_and_long_texts_cut() {
        known_secrets::add("hunter2-hunter2");
        let long = format!("key hunter2-hunter2 {}", "ä".repeat(MAX_TEXT_BYTES));
        let missed = requests(1, "c", &search(None, Match::None, &long, &[]));
        let text = &missed[0].1.text;
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.len() <= MAX_TEXT_BYTES && text.len() > MAX_TEXT_BYTES - 3);
    }

    fn request(text: &str, why: Why, nearest: &str) -> MissedRequest {
        MissedRequest {
            at_ms: 7,
            why,
            text: text.to_owned(),
            nearest: Some(nearest.to_owned()),
        }
    }

    #[test]
    fn requests_of_one_meaning_are_a_group_with_the_tool_that_is_nearest_most_often() {
        let requests = [
            request("translate a letter into French", Why::NoMatch, "mail/send"),
            request("Translate a letter into french", Why::Possible, "mail/send"),
            request(
                "translate this document to French",
                Why::NotCalled,
                "mail/read",
            ),
            request("restart the database server", Why::NoMatch, "db/query"),
            request("数据库", Why::NoMatch, "db/query"),
        ];
        let missed = Missed::of(&requests, &StaticTable::bundled().unwrap());
        let first = MissedGroup {
            request: "translate a letter into French".to_owned(),
            times: 3,
            none: 1,
            possible: 1,
            not_called: 1,
            nearest: Some("mail/send".to_owned()),
            last_ms: 7,
            texts: 2,
            examples: vec!["translate this document to French".to_owned()],
        };
        assert_eq!(missed.groups[0], first);
        assert_eq!(missed.groups.len(), 3, "{missed:?}");
        assert_eq!((missed.requests, missed.left_out), (5, 0));
    }
}
