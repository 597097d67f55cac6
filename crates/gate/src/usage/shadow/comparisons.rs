//! Searches that wait for a second answer, or for a call that follows them.

use std::collections::VecDeque;

use toolscout_index::ToolId;

use super::{ComparedSearch, Follower, Repeat, ShadowFigures, Shown};

/// Searches that wait for a second answer. Each has its query in memory.
pub const MAX_WAITING: usize = 256;
/// Searches that are kept in case a call follows them: those of ten minutes at 7 a second.
const MAX_KEPT: usize = 4_096;
/// A call that comes later belongs to no search.
const CALL_WITHIN_MS: i64 = 10 * 60 * 1_000;

/// The searches that were drawn, the oldest first.
#[derive(Default)]
pub struct Comparisons {
    searches: VecDeque<Compared>,
    waiting: usize,
}

struct Compared {
    at_ms: i64,
    follower: Option<Follower>,
    live: Shown,
    second: Second,
    called: Option<ToolId>,
}

enum Second {
    Waits(Repeat),
    Given(Shown),
    /// It failed, or everything was counted.
    Nothing,
}

impl Compared {
    /// Whether a call may belong to it.
    fn may_lead_to(&self, at_ms: i64, follower: &Follower, tool: &ToolId) -> bool {
        self.follower.as_ref() == Some(follower)
            && self.called.is_none()
            && !matches!(self.second, Second::Nothing)
            && (0..=CALL_WITHIN_MS).contains(&(at_ms - self.at_ms))
            && self.live.place(tool).is_some()
    }

    fn waits(&self) -> bool {
        matches!(self.second, Second::Waits(_))
    }

    /// Whether nothing comes of it any more.
    fn is_over(&self, now_ms: i64) -> bool {
        match &self.second {
            Second::Waits(_) => false,
            Second::Nothing => true,
            Second::Given(_) => self.follower.is_none() || now_ms - self.at_ms > CALL_WITHIN_MS,
        }
    }
}

impl Comparisons {
    /// Takes a search. False if too many wait.
    #[must_use]
    pub fn searched(&mut self, at_ms: i64, search: ComparedSearch) -> bool {
        if self.waiting >= MAX_WAITING {
            return false;
        }
        self.waiting += 1;
        let follower = search.follower();
        self.searches.push_back(Compared {
            at_ms,
            follower,
            live: search.shown,
            second: Second::Waits(search.repeat),
            called: None,
        });
        self.tidy(at_ms);
        true
    }

    /// Takes a call: it belongs to the last search before it, of its session or request, that showed the
    /// tool and that no other call belongs to. Returns what is known by that.
    pub fn called(&mut self, at_ms: i64, follower: &Follower, tool: &ToolId) -> ShadowFigures {
        let mut latest_first = self.searches.iter_mut().rev();
        let Some(search) = latest_first.find(|search| search.may_lead_to(at_ms, follower, tool))
        else {
            return ShadowFigures::default();
        };
        search.called = Some(tool.clone());
        match &search.second {
            Second::Given(second) => {
                let figures = ShadowFigures::of_call(&search.live, second, tool);
                search.second = Second::Nothing;
                figures
            }
            Second::Waits(_) | Second::Nothing => ShadowFigures::default(),
        }
    }

    /// Gives the oldest search that waits its second answer. Returns what is known by that, and `None` if
    /// no search waits.
    pub fn answer_next(
        &mut self,
        answer: impl FnOnce(Repeat) -> Option<Shown>,
    ) -> Option<ShadowFigures> {
        let search = self.searches.iter_mut().find(|search| search.waits())?;
        self.waiting -= 1;
        let Second::Waits(repeat) = std::mem::replace(&mut search.second, Second::Nothing) else {
            return None;
        };
        let Some(second) = answer(repeat) else {
            return Some(ShadowFigures::default());
        };
        let mut figures = ShadowFigures::of_search(&search.live, &second);
        match &search.called {
            Some(tool) => figures.add(&ShadowFigures::of_call(&search.live, &second, tool)),
            None => search.second = Second::Given(second),
        }
        Some(figures)
    }

    /// How many searches wait for a second answer.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Lets go of what nothing comes of any more, and of the oldest if there are too many.
    fn tidy(&mut self, now_ms: i64) {
        // The oldest are most often over; only a long list is searched for others.
        while let Some(oldest) = self.searches.front()
            && oldest.is_over(now_ms)
        {
            self.searches.pop_front();
        }
        if self.searches.len() > MAX_KEPT {
            self.searches.retain(|search| !search.is_over(now_ms));
        }
        while self.searches.len() > MAX_KEPT {
            let oldest = self.searches.pop_front();
            let waited = oldest.is_some_and(|oldest| oldest.waits());
            self.waiting -= usize::from(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::compared::tests::shown;
    use super::super::Origin;
    use super::*;

    fn id(name: char) -> ToolId {
        ToolId::parse(&format!("s/{name}")).unwrap()
    }

    fn session(name: &str) -> Follower {
        Follower::Session("key:a".to_owned(), name.to_owned())
    }

    fn search(session: Option<&str>, hits: &str) -> ComparedSearch {
        ComparedSearch {
            origin: Origin {
                who: "key:a".to_owned(),
                session: session.map(str::to_owned),
                ..Origin::default()
            },
            request: None,
            shown: shown(hits, ""),
            repeat: Box::new(|_| None),
        }
    }

    /// A second answer.
    fn second(hits: &'static str) -> impl FnOnce(Repeat) -> Option<Shown> {
        move |_| Some(shown(hits, ""))
    }

    #[test]
    fn a_call_belongs_to_the_last_search_of_its_session_that_showed_the_tool() {
        let mut open = Comparisons::default();
        for (at, of, hits) in [(1, "1", "ab"), (2, "1", "ba"), (3, "2", "ab")] {
            assert!(open.searched(at, search(Some(of), hits)));
        }
        // Before the second answer is known, and after it.
        let early = open.called(4, &session("1"), &id('a'));
        assert_eq!(early, ShadowFigures::default());
        let firsts = ["ba", "ab", "b"].map(|hits| open.answer_next(second(hits)).unwrap());
        assert_eq!(firsts.map(|figures| figures.calls), [0, 1, 0]);
        assert_eq!((firsts[1].live_first, firsts[1].second_first), (0, 1));
        let again = open.called(5, &session("1"), &id('a'));
        assert_eq!((again.live_first, again.second_first), (1, 0), "the first");
        let other = open.called(6, &session("2"), &id('a'));
        assert_eq!((other.calls, other.absent), (1, 1));
        for (at, of, tool) in [(7, "1", 'a'), (7, "2", 'b'), (7, "3", 'a')] {
            let none = open.called(at, &session(of), &id(tool));
            assert_eq!(none.calls, 0, "{of} {tool}: each search counts once");
        }
        assert!(open.answer_next(second("a")).is_none());
    }

    #[test]
    fn a_call_after_ten_minutes_or_of_another_tool_belongs_to_no_search() {
        let mut open = Comparisons::default();
        assert!(open.searched(0, search(Some("1"), "a")));
        assert_eq!(open.answer_next(second("a")).unwrap().searches, 1);
        assert_eq!(open.called(1, &session("1"), &id('b')).calls, 0);
        let late = open.called(CALL_WITHIN_MS + 1, &session("1"), &id('a'));
        assert_eq!(late.calls, 0);
        assert_eq!(
            open.called(CALL_WITHIN_MS, &session("1"), &id('a')).calls,
            1
        );
    }

    #[test]
    fn feedback_names_the_request() {
        let mut open = Comparisons::default();
        let mut of_request = search(None, "ab");
        of_request.request = Some("r".to_owned());
        assert!(open.searched(0, of_request));
        open.answer_next(second("ba"));
        let request = |name: &str| Follower::Request(name.to_owned());
        assert_eq!(open.called(1, &request("q"), &id('b')).calls, 0);
        assert_eq!(open.called(1, &request("r"), &id('b')).second_first, 1);
    }

    #[test]
    fn a_search_that_cannot_be_repeated_counts_as_nothing() {
        let mut open = Comparisons::default();
        assert!(open.searched(0, search(Some("1"), "a")));
        let failed = open.answer_next(|_| None);
        assert_eq!(failed, Some(ShadowFigures::default()));
        assert_eq!(open.called(1, &session("1"), &id('a')).calls, 0);
    }

    #[test]
    fn searches_that_wait_and_those_that_are_kept_are_bounded() {
        let mut open = Comparisons::default();
        for _ in 0..MAX_WAITING {
            assert!(open.searched(0, search(Some("1"), "a")));
        }
        assert!(!open.searched(0, search(Some("1"), "a")));
        assert_eq!(open.waiting(), MAX_WAITING);
        while open.answer_next(second("a")).is_some() {}
        for _ in 0..2 * MAX_KEPT {
            assert!(open.searched(1, search(Some("1"), "a")));
            open.answer_next(second("a"));
        }
        assert!(open.searches.len() <= MAX_KEPT);
        assert!(open.searched(2 + CALL_WITHIN_MS, search(None, "a")));
        assert_eq!((open.searches.len(), open.waiting()), (1, 1));
    }
}
