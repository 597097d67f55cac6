//! The time of a search, of opening a catalog and of a change, by size of the catalog.
//!
//! - `lexical`, `dense`, `hybrid`: one request through [`Searcher::search`], k = 5. Vectors are
//!   prepared, so that the time of the model is not included: it is 100 times that of the search.
//! - `open`: opening a catalog with its vectors, until it answers.
//! - `commit_one_change`: one tool changed, committed, and visible to searches.
//! - `bm25::*`: our scorer against tantivy's own over the same terms of the same field. Ours scores
//!   every tool, because fusion needs the range of all scores; tantivy's only finds the best
//!   ten. Ours has to be as fast.
//!
//! The corpus is a seeded generator of tools that read like real ones: a few verbs, many nouns,
//! descriptions of some twenty words of a skewed vocabulary, three to six described parameters.
//! With `TOOLSCOUT_SETS=DIR` it is the tools and queries of the real sets there (folders with
//! `tools.jsonl` and `queries.jsonl`), evenly thinned to each size.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use divan::{Bencher, black_box};
use serde_json::{Value, json};
use tantivy::collector::TopDocs;
use tantivy::query::{BooleanQuery, Occur, TermQuery};
use tantivy::schema::{IndexRecordOption, Term};
use tempfile::TempDir;
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::lexical::{LexicalIndex, LexicalSearcher, LexicalSettings};
use toolscout_index::tools_db::ToolsDb;
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Mode, Options, Query, Result, Searcher, Tool, text,
};

const SIZES: [usize; 3] = [1_000, 5_000, 18_917];
const DIMENSIONS: usize = 384;
const REQUESTS: usize = 256;

fn main() {
    divan::main();
}

#[divan::bench(args = SIZES, sample_count = 512, sample_size = 1)]
fn lexical(bencher: Bencher, tools: usize) {
    search(bencher, tools, Mode::Lexical);
}

#[divan::bench(args = SIZES, sample_count = 512, sample_size = 1)]
fn dense(bencher: Bencher, tools: usize) {
    search(bencher, tools, Mode::Dense);
}

#[divan::bench(args = SIZES, sample_count = 512, sample_size = 1)]
fn hybrid(bencher: Bencher, tools: usize) {
    search(bencher, tools, Mode::Hybrid);
}

fn search(bencher: Bencher, tools: usize, mode: Mode) {
    let world = world(tools);
    let searcher: Arc<Searcher> = world.catalog.searcher();
    let mut requests = world.requests.iter().cycle();
    let next = || Query::new(requests.next().expect("a cycle does not end")).mode(mode);
    bencher
        .with_inputs(next)
        .bench_local_values(|query| searcher.search(black_box(&query)));
}

#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn open(bencher: Bencher, tools: usize) {
    let world = world(tools);
    bencher.bench_local(|| {
        world
            .data
            .open(CATALOG, options())
            .map(|catalog| catalog.searcher().len())
    });
}

#[divan::bench(args = SIZES, sample_count = 30, sample_size = 1)]
fn commit_one_change(bencher: Bencher, tools: usize) {
    let world = world(tools);
    let catalog = &world.catalog;
    let mut writer = catalog.writer().expect("nobody else writes");
    let mut changed = (*catalog
        .searcher()
        .tools()
        .next()
        .expect("a catalog of tools"))
    .clone();
    let original = changed.clone();
    let mut version = 0;
    bencher.bench_local(|| {
        version += 1;
        changed.description = format!("{} version {version}", original.description);
        writer
            .upsert(std::slice::from_ref(&changed))
            .expect("the disk is not full");
        writer.commit().expect("the disk is not full");
        assert_eq!(
            catalog.searcher().tool(&changed.id).as_deref(),
            Some(&changed)
        );
    });
    writer
        .upsert(&[original])
        .and_then(|_| writer.commit())
        .expect("the disk is not full");
}

#[divan::bench_group(sample_count = 512, sample_size = 1)]
mod bm25 {
    use super::*;

    #[divan::bench(args = SIZES)]
    fn ours(bencher: Bencher, tools: usize) {
        let scorers = scorers(tools);
        let mut requests = scorers.terms.iter().cycle();
        let next = || requests.next().expect("a cycle does not end");
        bencher.with_inputs(next).bench_local_values(|terms| {
            let mut scored: Vec<(f32, u32)> = scorers
                .ours
                .score(&scorers.ours.resolve(terms))
                .by_tool
                .into_iter()
                .zip(0..)
                .collect();
            scored.select_nth_unstable_by(10, |a, b| b.0.total_cmp(&a.0));
            scored.truncate(10);
            scored
        });
    }

    #[divan::bench(args = SIZES)]
    fn tantivy(bencher: Bencher, tools: usize) {
        let scorers = scorers(tools);
        let mut requests = scorers.terms.iter().cycle();
        let next = || requests.next().expect("a cycle does not end");
        bencher.with_inputs(next).bench_local_values(|terms| {
            let clauses = terms.iter().map(|term| {
                let term = Term::from_field_text(scorers.body, &term.term);
                let query = TermQuery::new(term, IndexRecordOption::WithFreqs);
                (
                    Occur::Should,
                    Box::new(query) as Box<dyn tantivy::query::Query>,
                )
            });
            let query = BooleanQuery::new(clauses.collect());
            scorers
                .tantivy
                .search(&query, &TopDocs::with_limit(10).order_by_score())
        });
    }
}

const CATALOG: &str = "bench";

/// A catalog on disk with everything embedded, and requests for it.
struct World {
    data: DataDir,
    catalog: Catalog,
    requests: Vec<String>,
    _dir: TempDir,
}

/// The catalog of this size, built once.
fn world(tools: usize) -> &'static World {
    static WORLDS: LazyLock<Mutex<BTreeMap<usize, &'static World>>> = LazyLock::new(Mutex::default);
    let mut worlds = WORLDS.lock().expect("no bench panics");
    worlds
        .entry(tools)
        .or_insert_with(|| Box::leak(Box::new(World::new(tools))))
}

impl World {
    fn new(tools: usize) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let data = DataDir::new(dir.path());
        let catalog = data
            .open_or_create(CATALOG, options())
            .expect("a writable disk");
        let corpus = CORPUS.thinned(tools);
        let mut writer = catalog.writer().expect("nobody else writes");
        writer
            .upsert(&corpus)
            .and_then(|_| writer.commit())
            .expect("valid tools");
        writer
            .embed_pending(&mut |_| ControlFlow::Continue(()))
            .expect("a double cannot fail");
        drop(writer);
        World {
            data,
            catalog,
            requests: CORPUS.requests.clone(),
            _dir: dir,
        }
    }
}

/// Our scorer and tantivy's over one index.
struct Scorers {
    ours: LexicalSearcher,
    tantivy: tantivy::Searcher,
    body: tantivy::schema::Field,
    terms: Vec<Vec<text::Term>>,
}

fn scorers(tools: usize) -> Scorers {
    let world = world(tools);
    let settings = LexicalSettings::default();
    let folder = world.catalog.path().join("lexical");
    let keys = ToolsDb::open_read_only(&world.catalog.path().join("tools.db"))
        .and_then(|store| store.keys());
    let ordinals: HashMap<u64, u32> = keys
        .expect("a whole database")
        .into_iter()
        .zip(0..)
        .collect();
    let searcher = world.catalog.searcher();
    let stamp = format!(
        "{}, catalog {}",
        settings.stamp(),
        searcher.version().identity
    );
    let ours =
        LexicalIndex::open(&folder, &stamp).and_then(|index| index.searcher(&ordinals, &settings));
    let index = tantivy::Index::open_in_dir(&folder).expect("a whole index");
    let body = index
        .schema()
        .get_field("body")
        .expect("the weighted field");
    let searcher = index.reader().expect("a whole index").searcher();
    let distinct = |request: &String| {
        let mut seen = BTreeSet::new();
        text::terms(request)
            .into_iter()
            .filter(|term| seen.insert(term.term.clone()))
            .collect()
    };
    let terms = world.requests.iter().map(distinct).collect();
    Scorers {
        ours: ours.expect("a whole index"),
        tantivy: searcher,
        body,
        terms,
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Small numbers far more often than large ones, like the frequencies of words.
    fn skewed(&mut self, bound: usize) -> usize {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((bound as f64).powf(uniform) - 1.0) as usize
    }

    fn noise(&mut self) -> f32 {
        (0..2)
            .map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5)
            .sum()
    }
}

/// A unit vector for a text, near one of two hundred topics.
fn point(text: &str) -> Vec<f32> {
    let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let seed = text.bytes().fold(0xCBF2_9CE4_8422_2325, fold);
    let (mut topic, mut own) = (Chance(seed % 200), Chance(seed));
    let point: Vec<f32> = (0..DIMENSIONS)
        .map(|_| topic.noise() + 0.8 * own.noise())
        .collect();
    let length = point.iter().map(|value| value * value).sum::<f32>().sqrt();
    point.into_iter().map(|value| value / length).collect()
}

/// Vectors of requests are looked up, so that only the search is measured.
struct Prepared {
    requests: HashMap<String, Vec<f32>>,
}

impl Embedder for Prepared {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile::new("prepared", DIMENSIONS)
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts
            .iter()
            .map(|text| {
                self.requests
                    .get(*text)
                    .cloned()
                    .unwrap_or_else(|| point(text))
            })
            .collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts.iter().map(|text| point(text)).collect())
    }
}

fn options() -> Options {
    static PREPARED: LazyLock<Arc<Prepared>> = LazyLock::new(|| {
        let clauses = |request: &String| toolscout_index::clauses::clauses(request);
        let texts = CORPUS
            .requests
            .iter()
            .flat_map(clauses)
            .chain(CORPUS.requests.iter().cloned());
        Arc::new(Prepared {
            requests: texts.map(|text| (text.clone(), point(&text))).collect(),
        })
    });
    Options::new(vec![Arc::clone(&PREPARED) as Arc<dyn Embedder>])
}

/// Tools and requests.
struct Corpus {
    tools: Vec<Tool>,
    requests: Vec<String>,
}

static CORPUS: LazyLock<Corpus> = LazyLock::new(|| match std::env::var_os("TOOLSCOUT_SETS") {
    Some(folder) => Corpus::read(Path::new(&folder)),
    None => Corpus::generate(),
});

impl Corpus {
    /// About this many of the tools, evenly spread.
    fn thinned(&self, number: usize) -> Vec<Tool> {
        let number = number.min(self.tools.len());
        (0..number)
            .map(|n| self.tools[n * self.tools.len() / number].clone())
            .collect()
    }

    fn read(sets: &Path) -> Self {
        let mut folders: Vec<PathBuf> = fs::read_dir(sets)
            .expect("TOOLSCOUT_SETS is a folder")
            .flatten()
            .map(|entry| entry.path())
            .collect();
        folders.retain(|folder| {
            folder.join("tools.jsonl").exists() && folder.join("queries.jsonl").exists()
        });
        folders.sort();
        let (mut tools, mut requests) = (BTreeMap::new(), Vec::new());
        for folder in folders {
            let bytes = fs::read(folder.join("tools.jsonl")).expect("a readable set");
            let parsed = formats::parse(&bytes, &ReadOptions::default()).expect("a set of tools");
            tools.extend(parsed.tools.into_iter().map(|tool| (tool.id.clone(), tool)));
            let lines = fs::read_to_string(folder.join("queries.jsonl")).expect("a readable set");
            let text = |line: &str| {
                serde_json::from_str::<Value>(line).ok()?["query"]
                    .as_str()
                    .map(str::to_owned)
            };
            requests.extend(lines.lines().filter_map(text));
        }
        let step = (requests.len() / REQUESTS).max(1);
        let requests = requests.into_iter().step_by(step).take(REQUESTS).collect();
        Corpus {
            tools: tools.into_values().collect(),
            requests,
        }
    }

    fn generate() -> Self {
        let mut chance = Chance(1);
        let tools: Vec<Tool> = (0..SIZES[SIZES.len() - 1])
            .map(|number| tool(&mut chance, number))
            .collect();
        let requests = (0..REQUESTS)
            .map(|_| request(&mut chance, &tools))
            .collect();
        Corpus { tools, requests }
    }
}

const VERBS: [&str; 24] = [
    "create", "list", "get", "update", "delete", "search", "send", "export", "import", "start",
    "stop", "describe", "enable", "disable", "attach", "detach", "copy", "move", "share",
    "approve", "cancel", "schedule", "tag", "restore",
];
const SYLLABLES: [&str; 20] = [
    "ac", "ber", "con", "dal", "en", "for", "gra", "hol", "in", "jor", "kel", "lan", "mer", "nor",
    "op", "pra", "que", "ran", "sal", "ter",
];
const VOCABULARY: usize = 12_000;
const SERVERS: usize = 300;

/// An invented word; equal numbers give equal words.
fn word(number: usize) -> String {
    let mut chance = Chance(number as u64);
    (0..2 + chance.below(2))
        .map(|_| SYLLABLES[chance.below(SYLLABLES.len())])
        .collect()
}

fn sentence(chance: &mut Chance, words: usize) -> String {
    const SMALL: [&str; 6] = ["the", "of", "a", "for", "to", "in"];
    let word = |chance: &mut Chance| match chance.below(3) {
        0 => SMALL[chance.below(SMALL.len())].to_owned(),
        _ => word(chance.skewed(VOCABULARY)),
    };
    (0..words)
        .map(|_| word(chance))
        .collect::<Vec<_>>()
        .join(" ")
}

fn tool(chance: &mut Chance, number: usize) -> Tool {
    let server = word(VOCABULARY + chance.below(SERVERS));
    let name = format!(
        "{}_{}_{number}",
        VERBS[chance.skewed(VERBS.len())],
        word(chance.skewed(VOCABULARY))
    );
    let parameters = 3 + chance.below(4);
    let properties: serde_json::Map<String, Value> = (0..parameters)
        .map(|_| {
            (
                word(chance.skewed(VOCABULARY)),
                json!({"type": "string", "description": sentence(chance, 8)}),
            )
        })
        .collect();
    let words = 12 + chance.below(20);
    let mut tool = Tool::new(&server, &name)
        .expect("a valid name")
        .with_description(sentence(chance, words));
    tool.input_schema
        .insert("properties".into(), Value::Object(properties));
    tool
}

/// A few words of a tool, as in a request for it.
fn request(chance: &mut Chance, tools: &[Tool]) -> String {
    let tool = &tools[chance.below(tools.len())];
    let words: Vec<&str> = tool.description.split(' ').collect();
    let start = chance.below(words.len() - 8);
    let verb = tool.id.name().split('_').next().unwrap_or_default();
    format!(
        "please {verb} {}",
        words[start..start + 4 + chance.below(5)].join(" ")
    )
}
