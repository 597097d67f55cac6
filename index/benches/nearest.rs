//! The graph beside the scan, by the number of distinct vectors: where one overtakes the other is
//! the setting `graph_min_vectors`.
//!
//! Tools are those of the bundled fixtures, or of the sets in `TOOLSCOUT_SETS` (folders with
//! `tools.jsonl` and `queries.jsonl`), and further ones put together from their names, halves of
//! descriptions and parameters, until there are enough distinct texts. Requests are those of the
//! same sets. Vectors are those of the built-in table or of the built-in encoder, with the views and
//! the leading dimensions that the engine uses.
//!
//! For each request the scan and the graph, in each width, answer one after the other, so that other
//! work on the machine hits them alike. Both give what the engine fuses: a score for each tool, exact
//! for those that may become hits. Printed are medians over the requests, the median of the ratios of
//! graph to scan, and recall at 10 of an exact scan by all dimensions, of both.
//!
//! ```sh
//! cargo bench -p toolscout-index --bench nearest -- table 250000,500000,1000000 16,24 64,128,256,512
//! ```
//!
//! Arguments are the embedder (`table`, `encoder`), the numbers of vectors, of links (M), the widths of
//! a search (ef) and the width while it is built.

#![allow(clippy::print_stdout, reason = "it prints its table")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use toolscout_index::dense::{ALL_VIEWS, Graph, GraphShape, Vectors};
use toolscout_index::embed::{Encoder, StaticTable};
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{Embedder, View, text};

const REQUESTS: usize = 300;
const ROUNDS: usize = 3;
/// Tools that the engine scores exactly after a scan by the leading dimensions: the best of the
/// fused scores and of the leg.
const REFINED: usize = 320;
/// Texts that are embedded at once.
const BATCH: usize = 1024;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let argument = |place: usize, usual: &str| -> String {
        arguments
            .get(place)
            .map_or_else(|| usual.to_owned(), Clone::clone)
    };
    let embedder: Arc<dyn Embedder> = match argument(0, "table").as_str() {
        "encoder" => Encoder::bundled().expect("the encoder of this program"),
        _ => StaticTable::bundled().expect("the table of this program"),
    };
    let corpus = Corpus::read();
    let requests = embedder
        .embed_queries(
            &corpus
                .requests
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        )
        .expect("a table cannot fail");
    println!(
        "{}, {} dimensions of which {} lead, {} requests",
        embedder.id(),
        embedder.dimensions(),
        embedder.leading_dimensions(),
        requests.len()
    );
    println!(
        "| vectors | M | ef | scan, ms | graph, ms | graph / scan | the same, all processors | recall@10 scan | graph | built, s | MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    let mut made = Made::new(&corpus, embedder.as_ref());
    for number in numbers(&argument(1, "250000")) {
        made.grow(number);
        let exact = made.exact(&requests);
        for max_links in numbers(&argument(2, "24")) {
            let shape = GraphShape {
                max_links,
                build_width: numbers(&argument(4, "100"))[0],
                ..GraphShape::default()
            };
            measure(
                &made.vectors,
                &requests,
                &exact,
                shape,
                &numbers(&argument(3, "64,128,256,512")),
            );
        }
    }
}

fn numbers(list: &str) -> Vec<usize> {
    list.split(',')
        .map(|number| number.parse().expect("numbers with commas between them"))
        .collect()
}

/// Builds a graph and prints a row for each width.
fn measure(
    vectors: &Vectors,
    requests: &[Vec<f32>],
    exact: &[Vec<usize>],
    shape: GraphShape,
    widths: &[usize],
) {
    let clock = Instant::now();
    let mut graph = Graph::shaped(vectors, shape);
    let built = clock.elapsed().as_secs_f64();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let saved = folder.path().join("graph");
    graph.save(&saved, "bench").expect("room for a graph");
    let bytes: u64 = fs::read_dir(&saved)
        .expect("a saved graph")
        .flatten()
        .map(|file| file.metadata().map_or(0, |about| about.len()))
        .sum();
    let pools = [1, 0].map(|threads| {
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        builder.build().expect("threads")
    });
    let [one, all] = pools.map(|pool| times(&pool, vectors, &mut graph, requests, widths));
    let scan_recall = recall(exact, &answers(vectors, requests, scan));
    for (place, &width) in widths.iter().enumerate() {
        graph.set_search_width(width);
        let found = answers(vectors, requests, |vectors, request| {
            vectors.scores_by(&graph, request)
        });
        println!(
            "| {} | {} | {width} | {:.2} | {:.2} | {:.2} | {:.2} | {scan_recall:.3} | {:.3} | {built:.0} | {:.0} |",
            vectors.len(),
            shape.max_links,
            one.scan,
            one.graph[place],
            one.ratio[place],
            all.ratio[place],
            recall(exact, &found),
            bytes as f64 / 1e6,
        );
    }
}

/// Medians over the requests.
struct Times {
    scan: f64,
    /// By width.
    graph: Vec<f64>,
    ratio: Vec<f64>,
}

/// Every request by scan and graph in turn, in this pool.
fn times(
    pool: &rayon::ThreadPool,
    vectors: &Vectors,
    graph: &mut Graph,
    requests: &[Vec<f32>],
    widths: &[usize],
) -> Times {
    let mut scans = Vec::new();
    let mut graphs = vec![Vec::new(); widths.len()];
    let mut ratios = vec![Vec::new(); widths.len()];
    for request in requests.iter().cycle().take(ROUNDS * requests.len()) {
        let request = std::slice::from_ref(request);
        let scan = pool.install(|| milliseconds(|| scan(vectors, request)));
        scans.push(scan);
        for (place, &width) in widths.iter().enumerate() {
            graph.set_search_width(width);
            let graph = &*graph;
            let took = pool.install(|| milliseconds(|| vectors.scores_by(graph, request)));
            graphs[place].push(took);
            ratios[place].push(took / scan);
        }
    }
    Times {
        scan: median(scans),
        graph: graphs.into_iter().map(median).collect(),
        ratio: ratios.into_iter().map(median).collect(),
    }
}

fn milliseconds<T>(stage: impl FnOnce() -> T) -> f64 {
    let clock = Instant::now();
    std::hint::black_box(stage());
    clock.elapsed().as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Scores by the leading dimensions, the best of them exactly: as the engine scans.
fn scan(vectors: &Vectors, request: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut scores = vectors.rough_scores(request, ALL_VIEWS);
    let likely = best(&scores[0], REFINED);
    vectors.refine(request, ALL_VIEWS, &likely, &mut scores);
    // Only those have exact scores.
    scores
}

fn best(scores: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<(f32, usize)> = scores.iter().copied().zip(0..).collect();
    let count = count.min(order.len());
    if count < order.len() {
        order.select_nth_unstable_by(count, |a, b| b.0.total_cmp(&a.0));
    }
    order.truncate(count);
    order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, tool)| tool).collect()
}

fn answers(
    vectors: &Vectors,
    requests: &[Vec<f32>],
    search: impl Fn(&Vectors, &[Vec<f32>]) -> Vec<Vec<f32>>,
) -> Vec<Vec<usize>> {
    requests
        .iter()
        .map(|request| best(&search(vectors, std::slice::from_ref(request))[0], 10))
        .collect()
}

fn recall(exact: &[Vec<usize>], found: &[Vec<usize>]) -> f64 {
    let common = |(exact, found): (&Vec<usize>, &Vec<usize>)| {
        exact.iter().filter(|tool| found.contains(tool)).count()
    };
    let hits: usize = exact.iter().zip(found).map(common).sum();
    hits as f64 / (10 * exact.len()) as f64
}

/// What tools are put together from.
struct Part {
    server: String,
    name: Vec<String>,
    description: Vec<String>,
    parameters: String,
}

struct Corpus {
    parts: Vec<Part>,
    requests: Vec<String>,
}

impl Corpus {
    fn read() -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
        let (files, queries) = match std::env::var_os("TOOLSCOUT_SETS") {
            Some(sets) => {
                let folders = sorted(Path::new(&sets));
                let of = |name: &str| -> Vec<PathBuf> {
                    let files = folders.iter().map(|folder| folder.join(name));
                    files.filter(|file| file.is_file()).collect()
                };
                (of("tools.jsonl"), of("queries.jsonl"))
            }
            None => (
                sorted(&fixtures.join("tools")),
                vec![fixtures.join("queries.jsonl")],
            ),
        };
        let mut requests: Vec<String> = Vec::new();
        for file in queries {
            for line in fs::read_to_string(file).expect("a readable file").lines() {
                let query: Value = serde_json::from_str(line).expect("a query a line");
                let text = query["query"].as_str().unwrap_or_default();
                // The embedders measured here know English only.
                if text.is_ascii() {
                    requests.push(text.to_owned());
                }
            }
        }
        let step = (requests.len() / REQUESTS).max(1);
        Corpus {
            parts: files.iter().flat_map(|file| parts(file)).collect(),
            requests: requests.into_iter().step_by(step).take(REQUESTS).collect(),
        }
    }
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

fn parts(file: &Path) -> Vec<Part> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let bytes = fs::read(file).expect("a readable file");
    let options = ReadOptions::default();
    let tools = formats::parse(&bytes, &options)
        .expect("a file of tools")
        .tools;
    let part = |tool: toolscout_index::Tool| Part {
        server: text::spaced(tool.id.server()),
        name: words(&text::spaced(tool.id.name())),
        description: words(&tool.description),
        parameters: tool
            .input_schema
            .get("properties")
            .and_then(Value::as_object)
            .map(|properties| {
                let names: Vec<String> = properties.keys().map(|name| text::spaced(name)).collect();
                names.join(" ")
            })
            .unwrap_or_default(),
    };
    // As for requests.
    let english = tools.into_iter().filter(|tool| tool.description.is_ascii());
    english.map(part).collect()
}

/// Vectors of tools that were put together so far.
struct Made<'a> {
    corpus: &'a Corpus,
    embedder: &'a dyn Embedder,
    vectors: Vectors,
    known: HashSet<[u8; 16]>,
    next: usize,
    chance: Chance,
}

impl<'a> Made<'a> {
    fn new(corpus: &'a Corpus, embedder: &'a dyn Embedder) -> Self {
        Made {
            corpus,
            embedder,
            vectors: Vectors::with_leading(embedder.dimensions(), embedder.leading_dimensions()),
            known: HashSet::new(),
            next: 0,
            chance: Chance(1),
        }
    }

    /// Adds tools until there are so many vectors.
    fn grow(&mut self, number: usize) {
        let views = self.embedder.views().len();
        while self.vectors.len() < number {
            let left = (number - self.vectors.len()).div_ceil(views);
            let mut texts = Vec::new();
            while texts.len() < left.min(BATCH) * views {
                texts.extend(self.new_tool());
            }
            let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
            let embedded = self
                .embedder
                .embed_tools(&borrowed)
                .expect("a table cannot fail");
            for (number, (text, vector)) in texts.iter().zip(embedded).enumerate() {
                let hash = hash(text);
                let pushed = self.vectors.push("bench", hash, &vector);
                pushed.expect("vectors of one embedder are of one length");
                if (number + 1).is_multiple_of(views) {
                    self.vectors.end_tool();
                }
            }
        }
    }

    /// The views of a tool, none of whose texts was there before.
    fn new_tool(&mut self) -> Vec<String> {
        loop {
            let [all, name, description] = self.tool();
            let of = |view: &View| match view {
                View::Everything => all.clone(),
                View::Name => name.clone(),
                View::Description => description.clone(),
            };
            let texts: Vec<String> = self.embedder.views().iter().map(of).collect();
            let hashes: Vec<[u8; 16]> = texts.iter().map(|text| hash(text)).collect();
            if !hashes.iter().any(|hash| self.known.contains(hash)) {
                self.known.extend(hashes);
                return texts;
            }
        }
    }

    /// First the tools of the corpus, then one of the parts of three.
    fn tool(&mut self) -> [String; 3] {
        let parts = &self.corpus.parts;
        let first = self.next < parts.len();
        let mut any = |usual: usize| match first {
            true => &parts[usual],
            false => &parts[self.chance.below(parts.len())],
        };
        let [a, b, c] = [any(self.next), any(self.next), any(self.next)];
        self.next += 1;
        let half = |words: &[String], last: bool| match last {
            false => words[..words.len().div_ceil(2)].join(" "),
            true => words[words.len().div_ceil(2)..].join(" "),
        };
        let spliced = |a: &[String], b: &[String]| {
            format!("{} {}", half(a, false), half(b, true))
                .trim()
                .to_owned()
        };
        let name = format!("{} {}", c.server, spliced(&a.name, &b.name));
        let description = match spliced(&a.description, &b.description) {
            empty if empty.is_empty() => name.clone(),
            description => description,
        };
        let all = format!("{name}: {description} {}", c.parameters);
        [all.trim().to_owned(), name, description]
    }

    /// The best ten of each request by all dimensions.
    fn exact(&self, requests: &[Vec<f32>]) -> Vec<Vec<usize>> {
        answers(&self.vectors, requests, Vectors::scores)
    }
}

fn hash(text: &str) -> [u8; 16] {
    let mut hash = [0; 16];
    hash.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    hash
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
