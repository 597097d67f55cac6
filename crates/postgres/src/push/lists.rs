//! Which lists of tools are read for the words of a query.
//!
//! The tools of a term are listed by how much the term weighs in them: level 0 has all, and each
//! further level those in which it weighs more. So the tools that a frequent term says most about are
//! found without reading all that have it.

use std::collections::BTreeSet;

/// The share of a term's worth that a tool has to get from it, by level.
const LEVELS: [f64; 10] = [0.0, 0.35, 0.45, 0.55, 0.62, 0.68, 0.74, 0.8, 0.85, 0.9];
/// BM25's parameters and the average length for that share. They only say which tools are looked at
/// first, so they stay the same where those of the catalog change.
const K1: f64 = 2.0;
const B: f64 = 0.75;
const USUAL_STEPS: f64 = 500.0;
const STEPS: f64 = 10.0;
/// Most tools that a list is expected to have.
const MOST_EXPECTED: f64 = 1000.0;
/// Terms of a query that are looked for: those that are worth most.
pub const MAX_TERMS: usize = 16;
/// Terms with long lists whose common tools are looked for.
const MAX_FREQUENT: usize = 6;

/// Number of levels.
pub const LEVEL_COUNT: usize = LEVELS.len();

/// The last level that a tool reaches by a term of this many steps, being this long.
pub fn level(steps: u32, length: u64) -> usize {
    let (steps, length) = (f64::from(steps) / STEPS, length as f64 / USUAL_STEPS);
    let share = steps / (steps + K1 * (1.0 - B + B * length));
    LEVELS
        .iter()
        .rposition(|least| share >= *least)
        .unwrap_or(0)
}

/// The number under which the tools of a term of a level are listed.
pub fn list_key(term: &str, level: usize) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[level as u8]);
    hasher.update(term.as_bytes());
    let mut key = [0; 8];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    i64::from_le_bytes(key)
}

/// A term of a query, and how many tools have it, by level.
#[derive(Clone, Debug)]
pub struct Counted {
    pub term: String,
    pub tools: [u64; LEVEL_COUNT],
}

impl Counted {
    /// The last level that some tool reaches.
    fn last_level(&self) -> usize {
        self.tools.iter().rposition(|tools| *tools > 0).unwrap_or(0)
    }

    /// The first level whose tools are few enough, or the last with any.
    fn level(&self, share: f64) -> usize {
        let last = self.last_level();
        for level in 0..last {
            if self.tools[level] as f64 * share <= MOST_EXPECTED {
                return level;
            }
        }
        last
    }

    /// How many tools have it at this level, or at the last that some reach.
    fn at_most(&self, level: usize) -> u64 {
        self.tools[level.min(self.last_level())]
    }
}

/// The lists to read, each of the tools that have all of its keys. `terms` begin with the one that is
/// worth most; `tools` is the number of all, and `share` that of those that may be hits among them.
pub fn lists(terms: &[Counted], tools: u64, share: f64) -> Vec<Vec<i64>> {
    let known: Vec<&Counted> = terms
        .iter()
        .filter(|term| term.tools[0] > 0)
        .take(MAX_TERMS)
        .collect();
    let mut lists = BTreeSet::new();
    let mut frequent = Vec::new();
    for term in &known {
        let level = term.level(share);
        lists.insert(vec![list_key(&term.term, level)]);
        if level > 0 {
            frequent.push(*term);
        }
    }
    // Only frequent terms are combined: the list of a rare term is read as a whole, so it has the tools
    // with further terms too.
    frequent.truncate(MAX_FREQUENT);
    for (place, one) in frequent.iter().enumerate() {
        for other in &frequent[place + 1..] {
            lists.insert(together(&[one, other], tools, share));
        }
        let mut others = frequent.clone();
        others.remove(place);
        // Pairs were added above.
        if others.len() > 2 {
            lists.insert(together(&others, tools, share));
        }
    }
    if frequent.len() > 2 {
        lists.insert(together(&frequent, tools, share));
    }
    lists.into_iter().collect()
}

/// The keys of the first level at which these terms are expected to have few enough tools in common,
/// as if they occurred independently of each other.
fn together(terms: &[&Counted], tools: u64, share: f64) -> Vec<i64> {
    let all = tools.max(1) as f64;
    let mut level = 0;
    while level < LEVEL_COUNT - 1 {
        let shares = terms.iter().map(|term| term.at_most(level) as f64 / all);
        if shares.product::<f64>() * all * share <= MOST_EXPECTED {
            break;
        }
        level += 1;
    }
    let mut keys = Vec::with_capacity(terms.len());
    for term in terms {
        keys.push(list_key(&term.term, level.min(term.last_level())));
    }
    // Sorted, so that the same terms in another order give the same list.
    keys.sort_unstable();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many tools of each of the first levels, and none of the others.
    fn counted(term: &str, first: &[u64]) -> Counted {
        let mut tools = [0; LEVEL_COUNT];
        tools[..first.len()].copy_from_slice(first);
        Counted {
            term: term.to_owned(),
            tools,
        }
    }

    #[test]
    fn a_term_weighs_more_in_a_name_and_in_a_short_tool() {
        let (once, in_name) = (10, 35);
        assert_eq!(level(once, 5000), 0);
        assert!(level(in_name, 500) > level(once, 500));
        assert!(level(once, 50) > level(once, 500));
        assert_eq!(level(1000, 20), LEVEL_COUNT - 1);
    }

    #[test]
    fn a_rare_term_is_read_whole_and_a_frequent_one_where_it_weighs_most() {
        let rare = counted("rare", &[900, 400, 100]);
        let frequent = counted("frequent", &[90_000, 40_000, 9_000, 800, 10]);
        assert_eq!(
            lists(&[rare.clone(), frequent.clone()], 100_000, 1.0).len(),
            2
        );
        let read = lists(&[rare, frequent.clone()], 100_000, 1.0);
        assert!(read.contains(&vec![list_key("rare", 0)]));
        assert!(read.contains(&vec![list_key("frequent", 3)]));
        // Of those that may be hits there are few.
        let read = lists(&[frequent], 100_000, 0.01);
        assert_eq!(read, [vec![list_key("frequent", 0)]]);
    }

    #[test]
    fn what_frequent_terms_have_in_common_is_read_too() {
        let terms = ["one", "two", "three"].map(|term| counted(term, &[9_000; LEVEL_COUNT]));
        let read = lists(&terms, 100_000, 1.0);
        assert_eq!(read.iter().filter(|keys| keys.len() == 1).count(), 3);
        assert_eq!(read.iter().filter(|keys| keys.len() == 2).count(), 3);
        assert_eq!(read.iter().filter(|keys| keys.len() == 3).count(), 1);
        let unknown = counted("unknown", &[]);
        assert!(lists(&[unknown], 100_000, 1.0).is_empty());
        let many: Vec<Counted> = (0..40)
            .map(|number| counted(&format!("t{number}"), &[50_000; LEVEL_COUNT]))
            .collect();
        assert!(lists(&many, 100_000, 1.0).len() <= 40);
    }
}
