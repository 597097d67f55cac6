//! The graph against the exact scan, in catalogs that differ only in the setting that switches the
//! graph on.
//!
//! With `TOOLSCOUT_SETS=DIR` (folders with a `tools.jsonl` and a `queries.jsonl`) and
//! `TOOLSCOUT_CACHE=DIR` also on real embeddings of the set named by `TOOLSCOUT_GRAPH_SET` (default
//! `livemcpbench`).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::world::{Chance, embed_all, ids, plain};
use toolscout_index::embed::MiniLm;
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Filter, Mode, Options, Query, Result, Searcher,
    Settings, Tool,
};

const LEAST_RECALL: f64 = 0.97;

/// Gives every text a vector near one of a few centres, like topics: the hard case for a graph.
struct Clustered;

impl Clustered {
    const DIMENSIONS: usize = 24;
    const CENTRES: u64 = 40;

    fn point(text: &str) -> Vec<f32> {
        let seed = text.bytes().fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        let (mut centre, mut own) = (Chance::new(seed % Self::CENTRES), Chance::new(seed));
        let point: Vec<f32> = (0..Self::DIMENSIONS)
            .map(|_| centre.noise() + 0.4 * own.noise())
            .collect();
        let length = point.iter().map(|value| value * value).sum::<f32>().sqrt();
        point.into_iter().map(|value| value / length).collect()
    }
}

impl Embedder for Clustered {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile::new("clustered", Self::DIMENSIONS)
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts.iter().map(|text| Self::point(text)).collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_queries(texts)
    }
}

fn clustered() -> Options {
    Options::new(vec![Arc::new(Clustered)])
}

fn some_tools(number: usize) -> Vec<Tool> {
    (0..number)
        .map(|n| plain("s", &format!("tool_{n}"), &format!("does {n}")))
        .collect()
}

fn some_texts(number: usize) -> Vec<String> {
    (0..number).map(|n| format!("request number {n}")).collect()
}

/// A catalog of these tools, with a graph from this many vectors on.
fn catalog(
    data: &DataDir,
    name: &str,
    options: Options,
    tools: &[Tool],
    graph_min_vectors: usize,
) -> Catalog {
    let catalog = data.open_or_create(name, options).unwrap();
    let mut writer = catalog.writer().unwrap();
    writer
        .set_settings(&Settings {
            graph_min_vectors: Some(graph_min_vectors),
            ..Settings::default()
        })
        .unwrap();
    writer.upsert(tools).unwrap();
    writer.commit().unwrap();
    embed_all(&mut writer);
    catalog.clone()
}

fn nearest(searcher: &Searcher, text: &str) -> Vec<String> {
    let results = searcher
        .search(&Query::new(text).mode(Mode::Dense).k(10).whole())
        .unwrap();
    results.hits.iter().map(|hit| hit.id.to_string()).collect()
}

fn all_nearest(catalog: &Catalog, texts: &[String]) -> Vec<Vec<String>> {
    texts
        .iter()
        .map(|text| nearest(&catalog.searcher(), text))
        .collect()
}

/// The share of the exact scan's ten best that the graph finds among its ten.
fn recall(exact: &[Vec<String>], found: &[Vec<String>]) -> f64 {
    let common = |(exact, found): (&Vec<String>, &Vec<String>)| {
        let found: BTreeSet<&String> = found.iter().collect();
        exact.iter().filter(|id| found.contains(id)).count()
    };
    let hits: usize = exact.iter().zip(found).map(common).sum();
    hits as f64 / exact.iter().map(Vec::len).sum::<usize>() as f64
}

fn graphs(catalog: &Catalog) -> Vec<PathBuf> {
    let entries = fs::read_dir(catalog.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("graph-")
        })
        .collect()
}

#[test]
fn graph_and_scan_agree_on_clustered_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let (tools, texts) = (some_tools(500), some_texts(100));
    let scan = catalog(&data, "scan", clustered(), &tools, usize::MAX);
    let graph = catalog(&data, "graph", clustered(), &tools, 1);
    assert_eq!((graphs(&scan).len(), graphs(&graph).len()), (0, 1));
    let exact = all_nearest(&scan, &texts);
    let found = all_nearest(&graph, &texts);
    let recall = recall(&exact, &found);
    println!("recall at 10: {recall:.4}");
    assert!(recall >= LEAST_RECALL, "recall at 10: {recall:.4}");
    assert_eq!(
        all_nearest(&data.open("graph", clustered()).unwrap(), &texts),
        found,
        "loaded"
    );
}

#[test]
fn a_filter_applies_before_the_graph() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let tools = some_tools(600);
    let scan = catalog(&data, "scan", clustered(), &tools, usize::MAX);
    let graph = catalog(&data, "graph", clustered(), &tools, 1);
    // Five tools, most of which are not among the nearest that the graph returns.
    let narrow: Filter = tools
        .iter()
        .step_by(120)
        .map(|tool| tool.id.clone())
        .collect();
    let mut found = 0;
    for text in some_texts(20) {
        let query = Query::new(text)
            .mode(Mode::Dense)
            .whole()
            .filter(narrow.clone());
        let hits = |catalog: &Catalog| {
            let results = catalog.searcher().search(&query).unwrap();
            let hits = results.hits.into_iter();
            hits.map(|hit| (hit.id, hit.score)).collect::<Vec<_>>()
        };
        let expected = hits(&scan);
        assert_eq!(hits(&graph), expected);
        found += expected.len();
    }
    assert!(found >= 20, "{found} hits in all");
}

#[test]
fn a_graph_finds_changed_tools_and_no_deleted_ones() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let tools = some_tools(160);
    let graph = catalog(&data, "graph", clustered(), &tools, 1);
    let texts = some_texts(40);
    let chance = &mut Chance::new(3);
    let mut kept = tools;
    for round in 0..4 {
        // A few changes are scanned beside the graph, many lead to a rebuild; both occur here.
        let gone: Vec<_> = (0..10 + 30 * (round % 2))
            .map(|_| kept.swap_remove(chance.below(kept.len())).id)
            .collect();
        let new: Vec<Tool> = (0..10)
            .map(|n| plain("s", &format!("new_{round}_{n}"), &format!("{n}")))
            .collect();
        let mut writer = graph.writer().unwrap();
        writer.remove(&gone).unwrap();
        writer.upsert(&new).unwrap();
        writer.commit().unwrap();
        kept.extend(new);
        assert_eq!(graph.searcher().len(), kept.len());
        let living: BTreeSet<String> = ids(&graph.searcher()).into_iter().collect();
        let found = all_nearest(&graph, &texts);
        assert!(
            found.iter().flatten().all(|id| living.contains(id)),
            "round {round}"
        );
        embed_all(&mut writer);
        let scan = catalog(
            &data,
            &format!("scan{round}"),
            clustered(),
            &kept,
            usize::MAX,
        );
        let recall = recall(&all_nearest(&scan, &texts), &all_nearest(&graph, &texts));
        assert!(
            recall >= LEAST_RECALL,
            "round {round}: recall at 10: {recall:.4}"
        );
    }
}

#[test]
fn a_missing_damaged_or_foreign_graph_file_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let texts = some_texts(20);
    let tools = some_tools(40);
    let graph = catalog(&data, "graph", clustered(), &tools, 1);
    let scan = catalog(&data, "scan", clustered(), &tools, usize::MAX);
    let foreign = catalog(&data, "foreign", clustered(), &some_tools(80)[40..], 1);
    let exact = all_nearest(&scan, &texts);
    let expected = all_nearest(&graph, &texts);
    let (folder, foreign) = (graphs(&graph).remove(0), graphs(&foreign).remove(0));
    let whole = contents(&folder);
    let mut damaged: Vec<(String, HashMap<PathBuf, Vec<u8>>)> = vec![
        ("missing".into(), HashMap::new()),
        ("foreign".into(), contents(&foreign)),
    ];
    for (file, bytes) in &whole {
        let name = file.display();
        let with = |bytes: Option<Vec<u8>>| {
            let mut files = whole.clone();
            files.remove(file);
            files.extend(bytes.map(|bytes| (file.clone(), bytes)));
            files
        };
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 0xFF;
        damaged.push((format!("{name} deleted"), with(None)));
        damaged.push((format!("{name} emptied"), with(Some(Vec::new()))));
        damaged.push((
            format!("{name} cut"),
            with(Some(bytes[..bytes.len() / 2].to_vec())),
        ));
        damaged.push((
            format!("{name} overwritten"),
            with(Some(vec![0xA5; bytes.len()])),
        ));
        damaged.push((format!("{name} flipped"), with(Some(flipped))));
    }
    for (what, files) in damaged {
        put(&folder, &files);
        let opened = data.open("graph", clustered()).unwrap();
        let recall = recall(&exact, &all_nearest(&opened, &texts));
        assert!(recall >= LEAST_RECALL, "{what}: recall at 10: {recall:.4}");
        assert_eq!(
            embed_all(&mut opened.writer().unwrap()),
            0,
            "{what}: texts were embedded again"
        );
        assert_eq!(all_nearest(&opened, &texts), expected, "{what}, rebuilt");
        assert!(!opened.needs_writer(), "{what}: it is not used");
        assert_eq!(
            contents(&folder).len(),
            whole.len(),
            "{what}: it was not rebuilt"
        );
        assert_eq!(
            all_nearest(&data.open("graph", clustered()).unwrap(), &texts),
            expected,
            "{what}, reopened"
        );
    }
}

fn contents(folder: &Path) -> HashMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    files
        .map(|file| (file.file_name().into(), fs::read(file.path()).unwrap()))
        .collect()
}

fn put(folder: &Path, files: &HashMap<PathBuf, Vec<u8>>) {
    let _ = fs::remove_dir_all(folder);
    if !files.is_empty() {
        fs::create_dir_all(folder).unwrap();
    }
    for (name, bytes) in files {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

/// A model whose vectors are computed once for both catalogs.
struct Remembering {
    inner: MiniLm,
    known: Mutex<HashMap<String, Vec<f32>>>,
}

impl Embedder for Remembering {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_tools(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let mut known = self.known.lock().unwrap();
        let new: Vec<&str> = texts
            .iter()
            .filter(|text| !known.contains_key(**text))
            .copied()
            .collect();
        if !new.is_empty() {
            known.extend(
                new.iter()
                    .map(ToString::to_string)
                    .zip(self.inner.embed_tools(&new)?),
            );
        }
        Ok(texts.iter().map(|text| known[*text].clone()).collect())
    }
}

/// The model in a hub-style cache, as the program finds it.
fn real_model() -> Option<MiniLm> {
    let cache = PathBuf::from(std::env::var_os("TOOLSCOUT_CACHE")?)
        .join("models--sentence-transformers--all-MiniLM-L6-v2");
    let revision = fs::read_to_string(cache.join("refs/main")).unwrap();
    Some(MiniLm::load(&cache.join("snapshots").join(revision.trim())).unwrap())
}

#[test]
fn graph_and_scan_agree_on_real_embeddings() {
    let (Some(model), Some(sets)) = (real_model(), std::env::var_os("TOOLSCOUT_SETS")) else {
        println!("skipped: TOOLSCOUT_SETS or TOOLSCOUT_CACHE is not set");
        return;
    };
    let set = std::env::var("TOOLSCOUT_GRAPH_SET").unwrap_or_else(|_| "livemcpbench".to_owned());
    let set = PathBuf::from(sets).join(set);
    let bytes = fs::read(set.join("tools.jsonl")).unwrap();
    let tools = formats::parse(&bytes, &ReadOptions::default())
        .unwrap()
        .tools;
    let queries = fs::read_to_string(set.join("queries.jsonl")).unwrap();
    let text = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["query"]
            .as_str()
            .map(str::to_owned)
    };
    let texts: Vec<String> = queries.lines().filter_map(text).take(200).collect();
    let embedder: Arc<dyn Embedder> = Arc::new(Remembering {
        inner: model,
        known: Mutex::default(),
    });
    let options = || Options::new(vec![Arc::clone(&embedder)]);
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let scan = catalog(&data, "scan", options(), &tools, usize::MAX);
    let graph = catalog(&data, "graph", options(), &tools, 1);
    let recall = recall(&all_nearest(&scan, &texts), &all_nearest(&graph, &texts));
    println!(
        "{} tools, {} requests, recall at 10: {recall:.4}",
        tools.len(),
        texts.len()
    );
    assert!(recall >= LEAST_RECALL, "recall at 10: {recall:.4}");
}
