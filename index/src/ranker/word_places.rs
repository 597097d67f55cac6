//! Which words occur where in tools and requests, for the ranker.

use std::sync::LazyLock;

use serde_json::Value;

use super::late_interaction::ToolTokens;
use super::tool_texts::ToolTexts;
use super::verbs::ToolVerbs;
use crate::embed::StaticTable;
use crate::text::{self, ByTerm, term_hash as hash};
use crate::tool::Tool;

/// Distinct words stored of a tool.
const MAX_WORDS: usize = 1024;
/// Words whose neighbours are stored.
const MAX_PAIRS: usize = 256;
/// Words of a description that are searched for the tool's action, if its name has none.
const WORDS_TO_ACT: usize = 8;

/// Verbs by action. The number in the list is the bit.
// Stemmed on first use, as the terms that they are compared with are stems.
static ACTIONS: LazyLock<ByTerm<u8>> = LazyLock::new(|| {
    bits_by_stem(&[
        &[
            "create", "add", "new", "insert", "make", "generate", "register", "build", "start",
            "launch", "open", "book",
        ],
        &[
            "delete",
            "remove",
            "clear",
            "cancel",
            "drop",
            "stop",
            "close",
            "terminate",
            "destroy",
            "disable",
            "unsubscribe",
        ],
        &[
            "update",
            "edit",
            "modify",
            "change",
            "set",
            "rename",
            "replace",
            "enable",
            "configure",
            "adjust",
        ],
        &[
            "get", "list", "show", "find", "search", "fetch", "retrieve", "view", "describe",
            "check", "query", "read", "look",
        ],
        &[
            "send", "post", "share", "mail", "message", "notify", "publish", "upload",
        ],
        &[
            "calculate",
            "compute",
            "estimate",
            "convert",
            "predict",
            "analyze",
            "translate",
            "evaluate",
        ],
    ])
});

/// Kinds of values, by words of the parameters that accept them.
static KINDS: LazyLock<ByTerm<u8>> = LazyLock::new(|| {
    bits_by_stem(&[
        &["email", "mail", "recipient"],
        &["url", "link", "uri", "website"],
        &["path", "file", "filename", "folder", "directory"],
        &[
            "number", "amount", "count", "limit", "size", "price", "value", "quantity",
        ],
        &["date", "time", "day", "year", "month", "start", "end"],
        &[
            "city",
            "location",
            "country",
            "address",
            "place",
            "destination",
            "origin",
            "state",
        ],
    ])
});

/// A word of a tool and its number of occurrences in each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// [`text::term_hash`] of the term.
    pub hash: u32,
    /// In the name.
    pub name: u8,
    /// In the server's name.
    pub server: u8,
    /// In title, description and tags.
    pub description: u8,
    /// In names, descriptions and values of parameters.
    pub parameters: u8,
}

impl Word {
    /// True when it occurs in the name.
    pub(super) fn is_in_name(&self) -> bool {
        self.name > 0
    }

    /// True when it occurs outside the parameters.
    pub fn is_said(&self) -> bool {
        self.name > 0 || self.server > 0 || self.description > 0
    }
}

/// Where the words of a tool occur; some 900 bytes for a tool of fifty words.
#[derive(Debug, Default)]
pub struct ToolWords {
    words: Box<[Word]>,
    /// Neighbouring words of name and description.
    pairs: Box<[u32]>,
    /// Letter triples of the name.
    triples: Box<[u32]>,
    actions: u8,
    kinds: u8,
    /// What it does.
    pub verbs: ToolVerbs,
    /// Distinct words of the name.
    pub name_words: u16,
    /// Distinct words of the description.
    pub description_words: u16,
    /// Number of parameters.
    pub parameters: u16,
    /// Its tokens in the static table.
    pub tokens: ToolTokens,
}

impl ToolWords {
    /// Reads a tool.
    pub fn new(tool: &Tool) -> Self {
        let texts = ToolTexts::new(tool);
        let [name, description] = [&texts.name.terms, &texts.description.terms];
        let mut words = Words::with_room_for(&texts);
        // The most telling parts first, so that a long schema cannot use up the room for words.
        words.count(name, |word| &mut word.name);
        words.count(&texts.server.terms, |word| &mut word.server);
        words.count(description, |word| &mut word.description);
        for parameters in [&texts.parameter_names, &texts.parameter_texts] {
            words.count(&parameters.terms, |word| &mut word.parameters);
        }
        let mut pairs = pairs(name);
        pairs.extend(pairs_of_head(description));
        // A description often mentions other actions than the tool's own; a name does not.
        let named = actions(name);
        let beginning = &description[..description.len().min(WORDS_TO_ACT)];
        ToolWords {
            name_words: words.with(|word| word.name),
            description_words: words.with(|word| word.description),
            parameters: parameters(tool),
            actions: if named == 0 {
                actions(beginning)
            } else {
                named
            },
            kinds: kinds_taken(&texts.parameter_names.terms),
            verbs: ToolVerbs::new(tool, name, description),
            pairs: distinct(pairs),
            triples: distinct(triples(&text::spaced(tool.bare_name()))),
            tokens: match StaticTable::bundled() {
                Ok(table) => ToolTokens::new(&texts, &table),
                Err(_) => ToolTokens::default(),
            },
            words: words.sorted(),
        }
    }

    /// Every word.
    pub fn words(&self) -> &[Word] {
        &self.words
    }

    /// The tool's word with this hash.
    pub fn word(&self, hash: u32) -> Option<&Word> {
        let place = self.words.binary_search_by_key(&hash, |word| word.hash);
        Some(&self.words[place.ok()?])
    }
}

/// Where the words of a request occur.
#[derive(Debug, Default)]
pub struct RequestWords {
    pairs: Hashes,
    triples: Hashes,
    actions: u8,
    kinds: u8,
}

impl RequestWords {
    /// Reads a request.
    pub fn new(request: &str) -> Self {
        let terms = text::term_hashes(request);
        RequestWords {
            pairs: Hashes::new(pairs(&terms)),
            triples: Hashes::new(triples(request)),
            actions: actions(&terms),
            kinds: kinds_given(request),
        }
    }

    /// The share of the request's neighbouring words that neighbour in the tool, 0 to 1.
    pub fn shared_pairs(&self, tool: &ToolWords) -> f32 {
        self.pairs.common(&tool.pairs) as f32 / self.pairs.hashes.len().max(1) as f32
    }

    /// The share of the letter triples of the tool's name that the request has, 0 to 1.
    pub fn shared_triples(&self, tool: &ToolWords) -> f32 {
        // The 2 reduces the share of short names, whose few triples match by chance.
        self.triples.common(&tool.triples) as f32 / (tool.triples.len() + 2) as f32
    }

    /// 1 if request and tool have an action in common, -1 if they have different ones, 0 if one has
    /// none.
    pub fn same_action(&self, tool: &ToolWords) -> f32 {
        match (self.actions & tool.actions, self.actions, tool.actions) {
            (_, 0, _) | (_, _, 0) => 0.0,
            (0, ..) => -1.0,
            _ => 1.0,
        }
    }

    /// The number of kinds of values in the request that the tool accepts.
    pub fn taken_kinds(&self, tool: &ToolWords) -> f32 {
        (self.kinds & tool.kinds).count_ones() as f32
    }
}

struct Words(ByTerm<Word>);

impl Words {
    fn with_room_for(texts: &ToolTexts) -> Self {
        let terms: usize = texts.parts().iter().map(|part| part.terms.len()).sum();
        // Repeats count once, so there are no more words than this.
        let words = terms.min(MAX_WORDS);
        Words(ByTerm::with_capacity_and_hasher(words, Default::default()))
    }

    fn count(&mut self, terms: &[u32], part: impl Fn(&mut Word) -> &mut u8) {
        for &hash in terms {
            if self.0.len() < MAX_WORDS || self.0.contains_key(&hash) {
                let empty = Word {
                    hash,
                    name: 0,
                    server: 0,
                    description: 0,
                    parameters: 0,
                };
                let count = part(self.0.entry(hash).or_insert(empty));
                // Features saturate long before 255 repeats.
                *count = count.saturating_add(1);
            }
        }
    }

    fn with(&self, part: impl Fn(&Word) -> u8) -> u16 {
        self.0.values().filter(|word| part(word) > 0).count() as u16
    }

    /// By hash, since [`ToolWords::word`] searches in that order.
    fn sorted(self) -> Box<[Word]> {
        let mut words: Vec<Word> = self.0.into_values().collect();
        words.sort_unstable_by_key(|word| word.hash);
        words.into()
    }
}

fn parameters(tool: &Tool) -> u16 {
    match tool.input_schema.get("properties") {
        Some(Value::Object(properties)) => properties.len().min(usize::from(u16::MAX)) as u16,
        _ => 0,
    }
}

fn pairs(terms: &[u32]) -> Vec<u32> {
    terms
        .windows(2)
        // Rotated, so that a pair and its reverse differ.
        .map(|pair| pair[0].rotate_left(7) ^ pair[1])
        .collect()
}

fn pairs_of_head(terms: &[u32]) -> Vec<u32> {
    pairs(&terms[..terms.len().min(MAX_PAIRS)])
}

fn triples(text: &str) -> Vec<u32> {
    let (mut triples, mut padded, mut bytes) = (Vec::new(), Vec::new(), String::new());
    for word in text::words(text) {
        if text::is_stop_word(&word) {
            continue;
        }
        padded.clear();
        padded.push('_');
        padded.extend(word.chars());
        padded.push('_');
        for triple in padded.windows(3) {
            bytes.clear();
            bytes.extend(triple);
            triples.push(hash(&bytes));
        }
    }
    triples
}

fn actions(terms: &[u32]) -> u8 {
    bits_of(&ACTIONS, terms)
}

fn kinds_taken(parameters: &[u32]) -> u8 {
    bits_of(&KINDS, parameters)
}

/// The bits of the classes that any of the terms belongs to.
fn bits_of(classes: &ByTerm<u8>, terms: &[u32]) -> u8 {
    let mut all = 0;
    for term in terms {
        all |= classes.get(term).copied().unwrap_or_default();
    }
    all
}

/// The kinds of values that a request seems to contain.
fn kinds_given(request: &str) -> u8 {
    // In the order of [`KINDS`].
    let [mut email, mut url, mut path, mut date, mut place] = [false; 5];
    let mut previous = "";
    for token in request.split_whitespace() {
        email |= is_email(token);
        url |= token.contains("://") || token.starts_with("www.");
        path |= token.len() > 1 && (token.starts_with('/') || token.starts_with("~/"));
        date |= is_date(token);
        place |= is_place(previous, token);
        previous = token;
    }
    let number = request.as_bytes().iter().any(u8::is_ascii_digit);
    bits([email, url, path, number, date, place])
}

fn is_email(token: &str) -> bool {
    match token.find('@') {
        Some(at) => at > 0 && at + 1 < token.len(),
        None => false,
    }
}

fn is_date(token: &str) -> bool {
    let is_year = token.len() >= 4 && (token.starts_with("19") || token.starts_with("20"));
    let soon = ["today", "tomorrow", "yesterday"];
    is_year || soon.contains(&token.to_ascii_lowercase().as_str())
}

/// A capital after a preposition, as in "in Oslo".
fn is_place(preposition: &str, token: &str) -> bool {
    // Lists of places would be large and never complete.
    matches!(preposition, "in" | "at" | "near" | "from" | "to")
        && token.starts_with(|c: char| c.is_ascii_uppercase())
}

/// A bit for each class that occurs; the first is the lowest.
fn bits(found: [bool; 6]) -> u8 {
    let mut bits = 0;
    for (class, found) in found.into_iter().enumerate() {
        bits |= u8::from(found) << class;
    }
    bits
}

/// The bit of each class that a stem belongs to; the first class has the lowest.
fn bits_by_stem(classes: &[&[&str]]) -> ByTerm<u8> {
    let mut by_stem: ByTerm<u8> = ByTerm::default();
    for (class, words) in classes.iter().enumerate() {
        for word in *words {
            *by_stem.entry(hash(&text::stem(word))).or_default() |= 1 << class;
        }
    }
    by_stem
}

fn distinct(mut hashes: Vec<u32>) -> Box<[u32]> {
    hashes.sort_unstable();
    hashes.dedup();
    hashes.into()
}

/// Distinct hashes of a request, in which those of every candidate are looked for.
#[derive(Debug, Default)]
struct Hashes {
    /// Ascending.
    hashes: Box<[u32]>,
    /// A bit for each remainder that occurs. Most hashes of a tool are told by it to be others.
    remainders: [u64; 16],
}

impl Hashes {
    fn new(hashes: Vec<u32>) -> Self {
        let hashes = distinct(hashes);
        let mut remainders = [0; 16];
        for hash in &hashes {
            remainders[(hash / 64 % 16) as usize] |= 1 << (hash % 64);
        }
        Hashes { hashes, remainders }
    }

    /// How many of these distinct hashes are among them.
    fn common(&self, others: &[u32]) -> usize {
        let mut common = 0;
        for hash in others {
            let may_have = self.remainders[(hash / 64 % 16) as usize] >> (hash % 64) & 1 == 1;
            // Only the few that may be there are looked for.
            common += usize::from(may_have && self.hashes.binary_search(hash).is_ok());
        }
        common
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Field;
    use crate::ranker::head;
    use crate::ranker::{MAX_OWN_TEXT_BYTES, MAX_PARAMETERS_BYTES};

    fn tool_words(name: &str, description: &str) -> ToolWords {
        ToolWords::new(
            &Tool::new("post", name)
                .unwrap()
                .with_description(description),
        )
    }

    #[test]
    fn words_are_counted_by_part() {
        let tool_words = tool_words("send_mail", "Sends mail to a mail box.");
        let word = tool_words.word(hash("mail")).unwrap();
        assert_eq!(
            (word.name, word.server, word.description, word.parameters),
            (1, 0, 2, 0)
        );
        assert_eq!(
            (tool_words.name_words, tool_words.description_words),
            (2, 3)
        );
        assert!(tool_words.word(hash("rain")).is_none());
    }

    #[test]
    fn a_request_shares_pairs_and_triples_in_their_order() {
        let tool = tool_words("weather_forecast", "Tells the weather forecast.");
        assert_eq!(
            RequestWords::new("weather forecast").shared_pairs(&tool),
            1.0
        );
        assert_eq!(
            RequestWords::new("forecast weather").shared_pairs(&tool),
            0.0
        );
        assert!(RequestWords::new("wether forecasts").shared_triples(&tool) > 0.5);
    }

    #[test]
    fn actions_are_equal_different_or_unknown() {
        let delete = tool_words("delete_file", "");
        assert_eq!(
            RequestWords::new("remove the file").same_action(&delete),
            1.0
        );
        assert_eq!(
            RequestWords::new("create a file").same_action(&delete),
            -1.0
        );
        assert_eq!(RequestWords::new("file").same_action(&delete), 0.0);
    }

    #[test]
    fn only_the_beginning_of_long_texts_is_read() {
        let beginning = "sends mail ".repeat(MAX_OWN_TEXT_BYTES / 11);
        let long = format!("{beginning}{}", "and tells of the rain ".repeat(200_000));
        let (short, long) = (tool_words("send", &beginning), tool_words("send", &long));
        assert!(long.word(hash("rain")).is_none());
        let words = |tool_words: &ToolWords| {
            (
                tool_words.words().len(),
                tool_words.description_words,
                tool_words.word(hash("mail")).copied(),
            )
        };
        assert_eq!(words(&long), words(&short));

        let mut tool = Tool::new("", "send").unwrap();
        let properties = (0..100_000)
            .map(|number| (format!("rain{number}"), serde_json::json!({"enum": ["a"]})));
        tool.input_schema.insert(
            "properties".into(),
            properties.collect::<serde_json::Map<_, _>>().into(),
        );
        assert!(ToolWords::new(&tool).words().len() <= MAX_WORDS);
        assert!(head(&tool, Field::ParameterNames).len() <= MAX_PARAMETERS_BYTES);
    }

    #[test]
    fn unusual_requests_have_words_too() {
        for request in [
            "",
            "?!",
            "🙂",
            "a",
            "@",
            "查询天气",
            "/",
            &"x ".repeat(9000),
        ] {
            let shared = RequestWords::new(request).shared_triples(&tool_words("a", ""));
            assert!((0.0..=1.0).contains(&shared), "{request}");
        }
    }
}
