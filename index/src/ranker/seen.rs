//! The queries that a ranker was trained on or a catalog was tuned to, recognised without keeping them.
//!
//! Of a quarter of them, chosen by their hashes, 32 bits of the hash of each are kept: a set is
//! recognised in any order, and so is a part of it, while no text can be read from the file.

use serde::{Deserialize, Serialize};

/// One in so many queries is kept.
const SAMPLING: u32 = 4;
/// From this share of known queries on, figures of a set are those of a ranker that has seen it.
const LEAST_SHARE: f64 = 0.1;
/// Most hashes that are kept: those of 400,000 queries.
const MAX_HASHES: usize = 100_000;

/// Hashes of queries, ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SeenQueries(Vec<u32>);

impl SeenQueries {
    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds queries. Of too many, those with the least hashes stay, which are in all sets alike.
    pub fn add<'a>(&mut self, queries: impl IntoIterator<Item = &'a str>) {
        self.0.extend(queries.into_iter().filter_map(kept_hash));
        self.0.sort_unstable();
        self.0.dedup();
        self.0.truncate(MAX_HASHES);
    }

    /// True if at least a tenth of these queries were seen.
    pub fn include<'a>(&self, queries: impl IntoIterator<Item = &'a str>) -> bool {
        let (mut kept, mut seen) = (0, 0);
        for hash in queries.into_iter().filter_map(kept_hash) {
            kept += 1;
            seen += usize::from(self.0.binary_search(&hash).is_ok());
        }
        seen > 0 && seen as f64 >= LEAST_SHARE * f64::from(kept)
    }
}

/// The hash of a query without regard to capitals and white space; `None` for those that are not
/// kept. `scripts/train_ranker.py` computes the same.
fn kept_hash(query: &str) -> Option<u32> {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let hash = blake3::hash(words.join(" ").as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    let hash = u32::from_le_bytes([a, b, c, d]);
    hash.is_multiple_of(SAMPLING).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_hashes_are_kept_than_the_bound() {
        let mut seen = SeenQueries((0..MAX_HASHES as u32).collect());
        let queries: Vec<String> = (0..40).map(|number| format!("query {number}")).collect();
        seen.add(queries.iter().map(String::as_str));
        assert_eq!(seen.0.len(), MAX_HASHES);
    }

    #[test]
    fn a_set_is_known_in_part_and_in_another_order_and_another_one_is_not() {
        let queries =
            |of: &str| -> Vec<String> { (0..200).map(|n| format!("Query  {n} of {of}")).collect() };
        let known = queries("this set");
        let mut seen = SeenQueries::default();
        seen.add(known.iter().map(String::as_str));
        assert!((20..80).contains(&seen.0.len()), "{}", seen.0.len());
        let part = known.iter().rev().take(60);
        let lower: Vec<String> = part.map(|query| query.to_lowercase()).collect();
        assert!(seen.include(lower.iter().map(String::as_str)));
        assert!(!seen.include(queries("another").iter().map(String::as_str)));
        assert!(!seen.include([]));
        let read: SeenQueries =
            serde_json::from_str(&serde_json::to_string(&seen).unwrap()).unwrap();
        assert_eq!(read, seen);
    }
}
