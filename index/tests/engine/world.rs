//! Shared by the engine's tests: seeded random numbers, generated tools and requests, and answers
//! that can be compared.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use toolscout_index::embed::Hashing;
use toolscout_index::{
    Catalog, DataDir, Embedder, Mode, Options, Query, Searcher, Tool, ToolId, Writer,
};

/// SplitMix64: small, fast, and the same on every machine.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A number around 0, about normal.
    pub fn noise(&mut self) -> f32 {
        (0..4)
            .map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5)
            .sum()
    }
}

/// Runs a property for several seeds and names the one that fails. `TOOLSCOUT_SEED` picks one,
/// `TOOLSCOUT_CASES` is their number.
pub fn for_each_seed(cases: u64, property: impl Fn(u64)) {
    let number = |variable: &str| {
        std::env::var(variable)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let seeds = match number("TOOLSCOUT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("TOOLSCOUT_CASES").unwrap_or(cases),
    };
    for seed in seeds {
        println!("TOOLSCOUT_SEED={seed}");
        property(seed);
    }
}

pub const SERVERS: [&str; 4] = ["git", "mail", "io.example/maps", ""];
const VERBS: [&str; 8] = [
    "create", "list", "delete", "search", "update", "send", "findAll", "export",
];
const NOUNS: [&str; 8] = [
    "issue", "message", "route", "calendar", "invoice", "Symbol", "天气", "report_2",
];
pub const WORDS: [&str; 24] = [
    "repository",
    "attachment",
    "calendar",
    "calender",
    "weather",
    "forecast",
    "recipient",
    "the",
    "of",
    "destination",
    "traffic",
    "invoices",
    "invoicing",
    "assignee",
    "label",
    "查询天气",
    "发送邮件",
    "カレンダー",
    "café",
    "HTTP2",
    "payments",
    "translate",
    "translation",
    "summarise",
];
pub const TAGS: [&str; 3] = ["work", "home", "beta"];

pub fn some_name(chance: &mut Chance) -> String {
    format!("{}_{}", chance.pick(&VERBS), chance.pick(&NOUNS))
}

/// A tool made of few words, so that tools resemble each other, ids repeat, and scores tie.
pub fn some_tool(chance: &mut Chance, server: &str) -> Tool {
    let text = |chance: &mut Chance, most: usize| {
        let words: Vec<&str> = (0..chance.below(most + 1))
            .map(|_| *chance.pick(&WORDS))
            .collect();
        words.join(" ")
    };
    let mut tool = Tool::new(server, &some_name(chance))
        .unwrap()
        .with_description(text(chance, 8));
    if chance.one_in(2) {
        let schema = json!({"type": "object", "properties": {
            chance.pick(&WORDS).to_string(): {"type": "string", "description": text(chance, 4)},
            "mode": {"enum": [chance.pick(&WORDS), chance.pick(&WORDS)]},
        }});
        tool.input_schema = object(schema);
    }
    tool.annotations.read_only_hint = [None, Some(true), Some(false)][chance.below(3)];
    tool.annotations.destructive_hint = [None, Some(true), Some(false)][chance.below(3)];
    tool.tags = TAGS
        .iter()
        .filter(|_| chance.one_in(3))
        .map(|tag| tag.to_string())
        .collect();
    tool
}

/// Tools of one server, each id once.
pub fn some_tools(chance: &mut Chance, server: &str, most: usize) -> Vec<Tool> {
    let tools = (0..chance.below(most + 1)).map(|_| some_tool(chance, server));
    let by_id: BTreeMap<ToolId, Tool> = tools.map(|tool| (tool.id.clone(), tool)).collect();
    by_id.into_values().collect()
}

/// A request: words that tools have, misspelt ones, names, several needs.
pub fn some_text(chance: &mut Chance) -> String {
    let word = |chance: &mut Chance| match chance.below(4) {
        0 => chance.pick(&VERBS).to_string(),
        1 => chance.pick(&NOUNS).to_string(),
        2 => misspelt(chance.pick::<&str>(&WORDS), chance),
        _ => chance.pick(&WORDS).to_string(),
    };
    match chance.below(6) {
        0 => some_name(chance),
        1 => format!("{}/{}", chance.pick(&SERVERS), some_name(chance)),
        2 => format!(
            "{} the {}, and then {} {}",
            word(chance),
            word(chance),
            word(chance),
            word(chance)
        ),
        _ => (0..1 + chance.below(4))
            .map(|_| word(chance))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn misspelt(word: &str, chance: &mut Chance) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    let place = chance.below(letters.len());
    match chance.below(3) {
        0 => letters[place] = 'x',
        1 => letters.insert(place, 'q'),
        _ => {
            letters.remove(place);
        }
    }
    letters.into_iter().collect::<String>() + "e"
}

pub fn object(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other} is no object"),
    }
}

/// A tool with nothing but a name and a description.
pub fn plain(server: &str, name: &str, description: &str) -> Tool {
    Tool::new(server, name)
        .unwrap()
        .with_description(description)
}

/// The options of a catalog with the deterministic embedder.
pub fn hashing() -> Options {
    Options::new(vec![Arc::new(Hashing::new(64)) as Arc<dyn Embedder>])
}

/// A catalog of these tools, committed at once.
pub fn filled(data: &DataDir, name: &str, options: Options, tools: &[Tool]) -> Catalog {
    let catalog = data.open_or_create(name, options).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer.upsert(tools).unwrap();
    writer.commit().unwrap();
    drop(writer);
    catalog
}

/// A catalog of these tools, committed at once and embedded.
pub fn fresh(data: &DataDir, name: &str, tools: &[Tool]) -> Catalog {
    let catalog = filled(data, name, hashing(), tools);
    embed_all(&mut catalog.writer().unwrap());
    catalog
}

pub fn embed_all(writer: &mut Writer) -> usize {
    writer
        .embed_pending(&mut |_| ControlFlow::Continue(()))
        .unwrap()
}

/// Replaces a folder by a copy of another.
pub fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub fn ids(searcher: &Searcher) -> Vec<String> {
    searcher.ids_after(None).map(ToString::to_string).collect()
}

/// Everything of an answer that must be the same on equal states: hits with scores and
/// explanations, in order, and the fields beside them.
pub fn answer(searcher: &Searcher, query: &Query) -> Value {
    let results = searcher.search(query).unwrap();
    json!({
        "hits": results.hits, "mode": results.mode, "no_match": results.no_match, "degraded": results.degraded,
        "tools": results.hits.iter().map(|hit| serde_json::to_value(&*hit.tool).unwrap()).collect::<Vec<_>>(),
    })
}

pub fn found(searcher: &Searcher, text: &str, mode: Mode) -> Vec<String> {
    let results = searcher.search(&Query::new(text).mode(mode)).unwrap();
    results.hits.iter().map(|hit| hit.id.to_string()).collect()
}

/// Fails where two snapshots answer one of these queries differently.
pub fn assert_alike(left: &Searcher, right: &Searcher, queries: &[Query], place: &str) {
    assert_eq!(ids(left), ids(right), "{place}");
    for query in queries {
        let (a, b) = (answer(left, query), answer(right, query));
        assert_eq!(a, b, "{place}: {query:?}");
    }
}
