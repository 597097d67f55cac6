//! Two answers to a search, and the figures that are kept of them.

use toolscout_index::ToolId;

/// So many first hits are compared.
const COMPARED_HITS: usize = 5;

/// What was shown of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The hits, best first.
    pub hits: Vec<ToolId>,
    /// The tools that were named in a line each after the hits.
    pub more: Vec<ToolId>,
}

impl Shown {
    /// The place of a tool, from 1.
    pub fn place(&self, tool: &ToolId) -> Option<usize> {
        let all = self.hits.iter().chain(&self.more);
        let (place, _) = (1..).zip(all).find(|(_, shown)| *shown == tool)?;
        Some(place)
    }
}

/// Sums over compared searches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShadowFigures {
    /// Searches that got a second answer.
    pub searches: u64,
    /// The sum of the shares of the first five hits that both answers have.
    pub overlap: f64,
    /// The sum of the squares of these shares.
    pub overlap_squares: f64,
    /// Searches with the same first hit in both answers.
    pub same_first: u64,
    /// Those of the searches after which a tool was called that they had shown.
    pub calls: u64,
    /// Those of them whose tool the second answer does not have.
    pub absent: u64,
    /// Those whose tool the live answer had first.
    pub live_first: u64,
    /// Those whose tool the second answer has first.
    pub second_first: u64,
    /// Those whose tool only one of both answers has first.
    pub first_moved: u64,
    /// The sum of the reciprocals of the tools' places in the live answers.
    pub live_reciprocal: f64,
    /// The same in the second answers; 0 for a tool that is absent.
    pub second_reciprocal: f64,
    /// The sum of the squares of the differences of both.
    pub reciprocal_squares: f64,
}

impl ShadowFigures {
    /// Both answers to a search.
    pub fn of_search(live: &Shown, second: &Shown) -> Self {
        let overlap = overlap(&live.hits, &second.hits);
        ShadowFigures {
            searches: 1,
            overlap,
            overlap_squares: overlap * overlap,
            same_first: u64::from(live.hits.first() == second.hits.first()),
            ..ShadowFigures::default()
        }
    }

    /// The places of a tool that was called in both answers.
    pub fn of_call(live: &Shown, second: &Shown, tool: &ToolId) -> Self {
        let (live, second) = (live.place(tool), second.place(tool));
        let (live_first, second_first) = (live == Some(1), second == Some(1));
        let (live_reciprocal, second_reciprocal) = (reciprocal(live), reciprocal(second));
        ShadowFigures {
            calls: 1,
            absent: u64::from(second.is_none()),
            live_first: u64::from(live_first),
            second_first: u64::from(second_first),
            first_moved: u64::from(live_first != second_first),
            live_reciprocal,
            second_reciprocal,
            reciprocal_squares: (second_reciprocal - live_reciprocal).powi(2),
            ..ShadowFigures::default()
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: &ShadowFigures) {
        self.searches += other.searches;
        self.overlap += other.overlap;
        self.overlap_squares += other.overlap_squares;
        self.same_first += other.same_first;
        self.calls += other.calls;
        self.absent += other.absent;
        self.live_first += other.live_first;
        self.second_first += other.second_first;
        self.first_moved += other.first_moved;
        self.live_reciprocal += other.live_reciprocal;
        self.second_reciprocal += other.second_reciprocal;
        self.reciprocal_squares += other.reciprocal_squares;
    }
}

fn reciprocal(place: Option<usize>) -> f64 {
    match place {
        Some(place) => 1.0 / place as f64,
        None => 0.0,
    }
}

/// The share of the first hits that both have; 1 if neither has any.
fn overlap(live: &[ToolId], second: &[ToolId]) -> f64 {
    let live = &live[..live.len().min(COMPARED_HITS)];
    let second = &second[..second.len().min(COMPARED_HITS)];
    // Of the longer one, so that an answer with fewer hits does not count as the same.
    let most = live.len().max(second.len());
    let common = live.iter().filter(|hit| second.contains(hit)).count();
    match most {
        0 => 1.0,
        most => common as f64 / most as f64,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What shows tools of one letter each.
    pub fn shown(hits: &str, more: &str) -> Shown {
        let id = |name| ToolId::parse(&format!("s/{name}")).unwrap();
        Shown {
            hits: hits.chars().map(id).collect(),
            more: more.chars().map(id).collect(),
        }
    }

    #[test]
    fn answers_are_compared_by_their_first_five_hits() {
        for (live, second, overlap, same_first) in [
            ("abcde", "abcde", 1.0, 1),
            ("abcdef", "bafcde", 0.8, 0),
            ("ab", "ac", 0.5, 1),
            ("ab", "a", 0.5, 1),
            ("a", "", 0.0, 0),
            ("", "", 1.0, 1),
        ] {
            let figures = ShadowFigures::of_search(&shown(live, ""), &shown(second, ""));
            assert_eq!(
                (figures.overlap, figures.same_first),
                (overlap, same_first),
                "{live} {second}"
            );
        }
    }

    #[test]
    fn the_place_of_a_called_tool_is_compared() {
        let tool = ToolId::parse("s/c").unwrap();
        let figures =
            |live, second| ShadowFigures::of_call(&shown("ab", live), &shown(second, ""), &tool);
        let gained = figures("c", "c");
        assert_eq!((gained.live_first, gained.second_first), (0, 1));
        assert_eq!((gained.first_moved, gained.absent), (1, 0));
        assert!((gained.live_reciprocal - 1.0 / 3.0).abs() < 1e-9);
        let lost = figures("xc", "a");
        assert_eq!((lost.second_reciprocal, lost.absent), (0.0, 1));
        assert!((lost.reciprocal_squares - 1.0 / 16.0).abs() < 1e-9);
    }
}
