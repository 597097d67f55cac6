//! The queries that the settings or the ranker of a catalog were tuned to. Figures on them are
//! in-sample, and marked.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::dataset::Fingerprint;
use toolscout_base::regular_file;

/// The file in the folder of the catalog.
const FILE: &str = "tuned-on.json";
/// Most queries that are remembered; more are not told apart from none.
const MAX_QUERIES: usize = 100_000;
/// From this share of tuned queries on, figures are in-sample.
const LEAST_SHARE: f64 = 0.1;

/// Hashes of queries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TunedOn {
    queries: BTreeSet<String>,
}

impl TunedOn {
    /// Those of the catalog in this folder; none without a file that can be read.
    pub fn of(folder: &Path) -> Self {
        let text = regular_file::read_to_string(&folder.join(FILE));
        let read = text.ok().and_then(|text| serde_json::from_str(&text).ok());
        read.unwrap_or_default()
    }

    /// Adds queries to those of the catalog in this folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn add<'a>(folder: &Path, queries: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let mut all = TunedOn::of(folder);
        let room = MAX_QUERIES.saturating_sub(all.queries.len());
        all.queries.extend(queries.map(hash).take(room));
        std::fs::write(folder.join(FILE), serde_json::to_vec(&all)?)
    }

    /// True if at least a tenth of these queries are among them.
    pub fn include<'a>(&self, queries: impl Iterator<Item = &'a str>) -> bool {
        if self.queries.is_empty() {
            return false;
        }
        let (mut count, mut tuned) = (0_usize, 0_usize);
        for query in queries {
            count += 1;
            tuned += usize::from(self.queries.contains(&hash(query)));
        }
        tuned > 0 && tuned as f64 >= LEAST_SHARE * count as f64
    }
}

/// The hash of a query without regard to capitals and white space.
fn hash(query: &str) -> String {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    let mut digest = Fingerprint::default();
    digest.feed(&words.join(" "));
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_known_again_in_any_spelling_and_in_part() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!TunedOn::of(folder.path()).include(["a"].into_iter()));
        TunedOn::add(folder.path(), ["Send  a mail", "b"].into_iter()).unwrap();
        TunedOn::add(folder.path(), ["c"].into_iter()).unwrap();
        let tuned = TunedOn::of(folder.path());
        for (queries, expected) in [
            (vec!["send a MAIL"], true),
            (vec!["c", "x", "y"], true),
            (vec!["send mail", "x"], false),
            (vec![], false),
        ] {
            assert_eq!(
                tuned.include(queries.iter().copied()),
                expected,
                "{queries:?}"
            );
        }
        std::fs::write(folder.path().join(FILE), "broken").unwrap();
        assert_eq!(TunedOn::of(folder.path()), TunedOn::default());
    }
}
