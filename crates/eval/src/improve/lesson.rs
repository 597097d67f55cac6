//! What queries teach: entries that would have helped them, and may help others like them.

use std::collections::{BTreeMap, HashMap, HashSet};

use toolscout_index::owner_words::MAX_NAME_CHARS;
use toolscout_index::{MAX_ENRICHMENT_CHARS, Tool, text};

use super::entry::Entry;
use crate::dataset::{EvalQuery, EvalSet, ToolIndex};

/// The model that texts name which are requests of people.
const REQUESTS: &str = "requests";
/// A query with more relevant tools says little about each of them.
const MOST_RELEVANT: usize = 2;
/// Shortest word that becomes a synonym or an alias, in characters.
const LEAST_WORD_CHARS: usize = 3;
/// Queries that have to agree on a synonym, and tools that they are about.
const LEAST_QUERIES_OF_SYNONYM: usize = 3;
const LEAST_TOOLS_OF_SYNONYM: usize = 2;
/// The least log-likelihood ratio of a word and what it is to stand for (Dunning, "Accurate methods for the
/// statistics of surprise and coincidence", 1993). Hundreds of pairs are compared, so that one of them reaches
/// 11 by chance alone; three uses of which all agree reach 18 if one tool in twenty has the other word.
const LEAST_ASSOCIATION: f64 = 18.0;
/// Queries of a tool that have to have an alias in common.
const LEAST_QUERIES_OF_ALIAS: usize = 2;
/// The least share of the queries with the word that are for the tool.
const LEAST_SHARE_OF_ALIAS: f64 = 0.8;
/// Most aliases of a tool from one run.
const MOST_ALIASES: usize = 2;
/// How often a request has to come to be worth a pin.
const LEAST_REPEATS: u64 = 2;
/// Queries in which a tool that nobody needs stands before one that is needed.
const LEAST_QUERIES_OF_BOOST: usize = 3;
/// The factor for such a tool.
const LOWER: f32 = 0.8;
/// Queries in which such a tool stands in the way before it is switched off: nobody finds it then.
const LEAST_QUERIES_OF_OFF: usize = 5;
/// Hits that are looked at for it.
const FIRST: usize = 5;

/// A request with its hits before any change.
#[derive(Clone, Copy)]
pub struct Lesson<'a> {
    /// The first query with its text.
    pub query: &'a EvalQuery,
    /// The hits of the request.
    pub ranking: &'a [ToolIndex],
    /// How often it was asked.
    pub times: u64,
    /// Whether all queries with its text have the same relevant tools.
    pub is_agreed: bool,
}

impl Lesson<'_> {
    fn is_relevant(&self, tool: ToolIndex) -> bool {
        self.query.is_relevant(tool)
    }

    /// Whether the first hit is relevant.
    fn is_served(&self) -> bool {
        matches!(self.ranking.first(), Some(tool) if self.is_relevant(*tool))
    }
}

/// Makes entries of queries.
pub struct Teacher<'a> {
    set: &'a EvalSet,
    /// The terms of each tool's definition, and those of its name.
    terms: HashMap<ToolIndex, ToolTerms>,
}

struct ToolTerms {
    all: HashSet<String>,
    /// Each with its word.
    of_name: BTreeMap<String, String>,
}

impl ToolTerms {
    fn of(tool: &Tool) -> Self {
        let of_name = distinct_terms(&text::spaced(tool.id.name()));
        let mut all = HashSet::new();
        for words in toolscout_index::views(tool) {
            text::for_each_term(&words, |_, term| {
                all.insert(term.to_owned());
            });
        }
        ToolTerms { all, of_name }
    }
}

impl<'a> Teacher<'a> {
    /// For the queries of a set.
    pub fn new(set: &'a EvalSet) -> Self {
        let mut terms = HashMap::new();
        for query in &set.queries {
            for &tool in &query.relevant {
                terms
                    .entry(tool)
                    .or_insert_with(|| ToolTerms::of(set.tool(tool)));
            }
        }
        Teacher { set, terms }
    }

    /// Requests as texts of the tools that they did not find first.
    pub fn requests(&self, lessons: &[Lesson<'_>]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for lesson in lessons {
            if lesson.is_served() {
                continue;
            }
            // A catalog takes no longer texts, and none with control characters.
            let text = lesson.query.text.trim();
            if text.chars().count() > MAX_ENRICHMENT_CHARS || text.chars().any(char::is_control) {
                continue;
            }
            for &tool in tools_of(lesson) {
                entries.push(Entry::Text {
                    tool: self.id(tool),
                    text: text.to_owned(),
                    model: REQUESTS.to_owned(),
                });
            }
        }
        entries
    }

    /// Words of requests that stand for words of tools' names.
    pub fn synonyms(&self, lessons: &[Lesson<'_>]) -> Vec<Entry> {
        let mut by_term: BTreeMap<String, Vec<(String, ToolIndex)>> = BTreeMap::new();
        let mut tools_with: HashMap<&str, usize> = HashMap::new();
        let mut taught: usize = 0;
        for lesson in lessons {
            for &tool in tools_of(lesson) {
                taught += 1;
                let of_tool = &self.terms[&tool];
                for name in of_tool.of_name.keys() {
                    *tools_with.entry(name).or_default() += 1;
                }
                for (term, word) in distinct_terms(&lesson.query.text) {
                    // A word that the definition has finds the tool by itself.
                    if !of_tool.all.contains(&term) {
                        by_term.entry(term).or_default().push((word, tool));
                    }
                }
            }
        }
        let mut entries = Vec::new();
        for (term, uses) in &by_term {
            let mut names: BTreeMap<&String, &String> = BTreeMap::new();
            for (_, tool) in uses {
                names.extend(&self.terms[tool].of_name);
            }
            let (mut strongest, mut best) = (LEAST_ASSOCIATION, None);
            for (name, word) in names {
                let with = self.uses_with(uses, name);
                let association = association(with, uses.len(), tools_with[name.as_str()], taught);
                if name != term && with >= LEAST_QUERIES_OF_SYNONYM && association >= strongest {
                    (strongest, best) = (association, Some(word));
                }
            }
            if let (Some(word), Some((from, _))) = (best, uses.first()) {
                entries.push(Entry::Synonym {
                    from: from.clone(),
                    word: word.clone(),
                });
            }
        }
        entries
    }

    /// How many of these uses of a word are about tools with `name` in their names; 0 if those are too few
    /// tools.
    fn uses_with(&self, uses: &[(String, ToolIndex)], name: &str) -> usize {
        let mut with = 0;
        let mut tools: HashSet<ToolIndex> = HashSet::new();
        for (_, tool) in uses {
            if self.terms[tool].of_name.contains_key(name) {
                with += 1;
                tools.insert(*tool);
            }
        }
        // A word that is said of one tool only is an alias of it.
        if tools.len() < LEAST_TOOLS_OF_SYNONYM {
            return 0;
        }
        with
    }

    /// Words that several requests for one tool have in common, and its definition has not.
    pub fn aliases(&self, lessons: &[Lesson<'_>]) -> Vec<Entry> {
        let mut by_tool: BTreeMap<ToolIndex, BTreeMap<String, (String, usize)>> = BTreeMap::new();
        let mut everywhere: HashMap<String, usize> = HashMap::new();
        let mut queries_of: HashMap<ToolIndex, usize> = HashMap::new();
        for lesson in lessons {
            let terms = distinct_terms(&lesson.query.text);
            for term in terms.keys() {
                *everywhere.entry(term.clone()).or_default() += 1;
            }
            for &tool in tools_of(lesson) {
                *queries_of.entry(tool).or_default() += 1;
                let of_tool = by_tool.entry(tool).or_default();
                for (term, word) in &terms {
                    if !self.terms[&tool].all.contains(term) {
                        let (_, count) = of_tool.entry(term.clone()).or_insert((word.clone(), 0));
                        *count += 1;
                    }
                }
            }
        }
        let mut entries = Vec::new();
        for (tool, terms) in by_tool {
            let mut common: Vec<(usize, String)> = Vec::new();
            for (term, (word, count)) in terms {
                let of_tool = queries_of[&tool];
                let association = association(count, everywhere[&term], of_tool, lessons.len());
                let is_of_tool = count as f64 >= LEAST_SHARE_OF_ALIAS * everywhere[&term] as f64;
                if count >= LEAST_QUERIES_OF_ALIAS && is_of_tool && association >= LEAST_ASSOCIATION
                {
                    common.push((count, word));
                }
            }
            // A stable sort: words that are equally common stay in the order of their terms.
            common.sort_by(|(a, _), (b, _)| b.cmp(a));
            for (_, name) in common.into_iter().take(MOST_ALIASES) {
                entries.push(Entry::Alias {
                    tool: self.id(tool),
                    name,
                });
            }
        }
        entries
    }

    /// Requests that came several times, always for the same tools, and do not find one first.
    pub fn pins(&self, lessons: &[Lesson<'_>]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for lesson in lessons {
            let query = text::words(&lesson.query.text).join(" ");
            let fits = !query.is_empty() && query.chars().count() <= MAX_NAME_CHARS;
            let [tool] = lesson.query.relevant.as_slice() else {
                continue;
            };
            let is_repeated = lesson.times >= LEAST_REPEATS && lesson.is_agreed;
            if fits && is_repeated && !lesson.is_served() {
                entries.push(Entry::Pin {
                    query,
                    tool: self.id(*tool),
                });
            }
        }
        entries
    }

    /// Lower factors for tools that no query needs and that stand before those that are needed.
    pub fn boosts(&self, lessons: &[Lesson<'_>]) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (tool, times) in self.in_the_way(lessons) {
            if times >= LEAST_QUERIES_OF_BOOST {
                entries.push(Entry::Boost {
                    tool: self.id(tool),
                    factor: LOWER,
                });
            }
        }
        entries
    }

    /// Tools to switch off, because no query needs them and many find them before those that are needed. A
    /// tool's present factor comes from `factor`.
    pub fn off(&self, lessons: &[Lesson<'_>], factor: impl Fn(&str) -> Option<f32>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for (tool, times) in self.in_the_way(lessons) {
            if times >= LEAST_QUERIES_OF_OFF {
                let tool = self.id(tool);
                let before = factor(&tool);
                entries.push(Entry::Off { tool, before });
            }
        }
        entries
    }

    /// The tools that no query needs, with the number of queries that have them before one that is needed.
    fn in_the_way(&self, lessons: &[Lesson<'_>]) -> BTreeMap<ToolIndex, usize> {
        let mut needed: HashSet<ToolIndex> = HashSet::new();
        for lesson in lessons {
            needed.extend(&lesson.query.relevant);
        }
        let mut in_the_way: BTreeMap<ToolIndex, usize> = BTreeMap::new();
        for lesson in lessons {
            for &tool in lesson.ranking.iter().take(FIRST) {
                // What comes after a relevant hit is in nobody's way.
                if lesson.is_relevant(tool) {
                    break;
                }
                if !needed.contains(&tool) {
                    *in_the_way.entry(tool).or_default() += 1;
                }
            }
        }
        in_the_way
    }

    fn id(&self, tool: ToolIndex) -> String {
        self.set.tool(tool).id.to_string()
    }
}

/// The log-likelihood ratio of two things that come together in `both` of `all` cases, and each in so many.
/// 0 if they come together less often than by chance.
fn association(both: usize, first: usize, second: usize, all: usize) -> f64 {
    let [both, first, second, all] = [both, first, second, all].map(|count| count as f64);
    if both * all <= first * second {
        return 0.0;
    }
    let cells = [
        (both, first * second),
        (first - both, first * (all - second)),
        (second - both, (all - first) * second),
        (all - first - second + both, (all - first) * (all - second)),
    ];
    let mut sum = 0.0;
    for (count, expected) in cells {
        // x ln x goes to 0 with x, where the logarithm itself has no value.
        if count > 0.0 {
            sum += count * (count * all / expected).ln();
        }
    }
    2.0 * sum
}

/// The tools that a query teaches something about.
fn tools_of<'a>(lesson: &Lesson<'a>) -> &'a [ToolIndex] {
    match lesson.query.relevant.len() {
        0..=MOST_RELEVANT => &lesson.query.relevant,
        _ => &[],
    }
}

/// The terms of a request that may become words of the owner, each with the word as written.
fn distinct_terms(query: &str) -> BTreeMap<String, String> {
    let mut terms = BTreeMap::new();
    for term in text::terms(query) {
        let has_digit = term.word.chars().any(|c| c.is_ascii_digit());
        if !has_digit && term.word.chars().count() >= LEAST_WORD_CHARS {
            terms.insert(term.term, term.word);
        }
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;

    fn taught<'s>(
        set: &'s EvalSet,
        rankings: &[&'s [ToolIndex]],
        kind: fn(&Teacher<'s>, &[Lesson<'s>]) -> Vec<Entry>,
    ) -> Vec<String> {
        let lessons: Vec<Lesson<'_>> = set
            .queries
            .iter()
            .zip(rankings)
            .map(|(query, ranking)| Lesson {
                query,
                ranking,
                times: query.times,
                is_agreed: true,
            })
            .collect();
        let entries = kind(&Teacher::new(set), &lessons);
        entries.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_request_becomes_a_text_of_what_it_did_not_find_first() {
        let set = set(
            &[("send", "Sends a message"), ("read", "Reads messages")],
            &[
                ("1", "ping Ana", &["send"]),
                ("2", "what did Ana write", &["read"]),
            ],
        );
        let lines = taught(&set, &[&[1, 0], &[1, 0]], Teacher::requests);
        assert_eq!(lines, ["+ text of send: ping Ana"]);
        let lines = taught(&set, &[&[1, 0], &[]], Teacher::requests);
        assert_eq!(lines.len(), 2, "{lines:?}");
    }

    #[test]
    fn a_word_that_people_say_for_that_of_several_tools_becomes_a_synonym() {
        let tools = [
            ("image_resize", "x"),
            ("image_crop", "x"),
            ("mail_send", "x"),
            ("sheet_add", "x"),
        ];
        let said: [(&[&str], &str); 4] = [
            (
                &[
                    "make the pic smaller",
                    "that pic is too large",
                    "halve this pic",
                ],
                "image_resize",
            ),
            (&["cut the pic", "only the left of the pic"], "image_crop"),
            (
                &[
                    "one more row",
                    "row with sums",
                    "another row",
                    "row three twice",
                ],
                "sheet_add",
            ),
            (&["tell Ana"; 20], "mail_send"),
        ];
        let ids: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let mut queries: Vec<(&str, &str, &[&str])> = Vec::new();
        for (texts, tool) in &said {
            for text in *texts {
                queries.push((&ids[queries.len()], text, std::slice::from_ref(tool)));
            }
        }
        let set = set(&tools, &queries);
        let rankings = vec![&[][..]; queries.len()];
        let lines = taught(&set, &rankings, Teacher::synonyms);
        // `row` is said of one tool only: that is an alias.
        assert_eq!(lines, ["+ synonym pic -> image"]);
        let lines = taught(&set, &rankings, Teacher::aliases);
        assert!(
            lines.contains(&"+ alias of sheet_add: row".to_owned()),
            "{lines:?}"
        );
        assert!(
            !lines.iter().any(|line| line.contains("another")),
            "{lines:?}"
        );
    }

    #[test]
    fn association_is_that_of_dunning() {
        // His table has "the swiss": 110, 2442, 111, 29114 of 31777 pairs, and 270.72.
        let value = association(110, 110 + 2_442, 110 + 111, 31_777);
        assert!((value - 270.72).abs() < 0.01, "{value}");
        assert_eq!(association(1, 10, 10, 100), 0.0, "as by chance");
        assert_eq!(association(0, 10, 10, 100), 0.0);
    }

    #[test]
    fn a_request_that_comes_again_is_pinned_if_all_mean_the_same() {
        let mut set = set(
            &[("page", "x"), ("post", "x")],
            &[
                ("1", "Wake them!", &["page"]),
                ("2", "tell them", &["post"]),
            ],
        );
        assert!(
            taught(&set, &[&[1], &[0]], Teacher::pins).is_empty(),
            "once"
        );
        set.queries[0].times = 2;
        assert_eq!(
            taught(&set, &[&[1], &[0]], Teacher::pins),
            ["+ pin page for: wake them"]
        );
        assert!(
            taught(&set, &[&[0], &[0]], Teacher::pins).is_empty(),
            "found first"
        );
        let other = Lesson {
            query: &set.queries[0],
            ranking: &[1],
            times: 2,
            is_agreed: false,
        };
        assert!(Teacher::new(&set).pins(&[other]).is_empty());
    }

    #[test]
    fn what_nobody_needs_and_often_comes_first_is_lowered() {
        let set = set(
            &[("a", "x"), ("b", "x"), ("old", "x")],
            &[
                ("1", "one", &["a"]),
                ("2", "two", &["a"]),
                ("3", "three", &["b"]),
            ],
        );
        let lines = taught(&set, &[&[2, 0], &[2, 0], &[2, 0, 1]], Teacher::boosts);
        assert_eq!(lines, ["+ boost 0.8 of old"]);
        let lines = taught(&set, &[&[2, 0], &[0, 2], &[2, 1]], Teacher::boosts);
        assert!(lines.is_empty(), "{lines:?}");
    }
}
