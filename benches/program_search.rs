//! How long one search takes by each mode, over the fixtures and over catalogs grown from them.
//!
//! Queries are the fixtures' own, in turn. The dense leg has vectors of 384 dimensions, as MiniLM
//! has, from an embedder that needs no model: what is timed is the search around the model, which
//! `toolscout eval` times with it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use divan::Bencher;
use tempfile::TempDir;
use toolscout::config::ProfileSettings;
use toolscout::eval::EvalSet;
use toolscout::eval::scale::resized;
use toolscout::finder::ToolSearch as _;
use toolscout::finder::search::SearchRequest;
use toolscout::gate::{Gate, Policies};
use toolscout::profiles::{ProfiledSearch, ToolProfile};
use toolscout_index::embed::Hashing;
use toolscout_index::{Catalog, DataDir, Mode, Options, Query};

const SIZES: [usize; 3] = [425, 2_000, 10_000];
const SEED: u64 = 42;

fn main() {
    divan::main();
}

#[divan::bench(args = SIZES)]
fn lexical(bencher: Bencher, tools: usize) {
    search(bencher, tools, Mode::Lexical);
}

#[divan::bench(args = SIZES)]
fn dense(bencher: Bencher, tools: usize) {
    search(bencher, tools, Mode::Dense);
}

#[divan::bench(args = SIZES)]
fn hybrid(bencher: Bencher, tools: usize) {
    search(bencher, tools, Mode::Hybrid);
}

/// A search of a profile that lets every second server in.
#[divan::bench(args = SIZES)]
fn hybrid_in_a_profile(bencher: Bencher, tools: usize) {
    let set = EvalSet::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"))
        .expect("the fixtures are whole");
    let (_folder, catalog) = catalog_of(&set, tools);
    let servers: BTreeSet<String> = catalog
        .searcher()
        .tools()
        .map(|tool| tool.id.server().to_owned())
        .collect();
    let settings = ProfileSettings {
        servers: Some(servers.into_iter().step_by(2).collect()),
        ..ProfileSettings::default()
    };
    let profile = Arc::new(ToolProfile::new("half", &settings));
    let gate = Arc::new(Gate::new(Policies::default()));
    let search = ProfiledSearch::new(Arc::new(catalog), profile, gate);
    let requests: Vec<SearchRequest> = set
        .queries
        .iter()
        .map(|query| SearchRequest {
            queries: vec![query.text.clone()],
            ..SearchRequest::default()
        })
        .collect();
    let next = Cell::new(0);
    let in_turn = || {
        next.set((next.get() + 1) % requests.len());
        &requests[next.get()]
    };
    bencher
        .with_inputs(in_turn)
        .bench_local_values(|request| search.search(request));
}

fn search(bencher: Bencher, tools: usize, mode: Mode) {
    let set = EvalSet::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"))
        .expect("the fixtures are whole");
    let (_folder, catalog) = catalog_of(&set, tools);
    let searcher = catalog.searcher();
    let queries: Vec<Query> = set
        .queries
        .iter()
        .map(|query| Query::new(query.text.as_str()).mode(mode))
        .collect();
    let next = Cell::new(0);
    let in_turn = || {
        next.set((next.get() + 1) % queries.len());
        &queries[next.get()]
    };
    bencher
        .with_inputs(in_turn)
        .bench_local_values(|query| searcher.search(query).expect("a valid query"));
}

fn catalog_of(set: &EvalSet, size: usize) -> (TempDir, Catalog) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = Options::new(vec![Arc::new(Hashing::new(384))]);
    let catalog = DataDir::new(folder.path())
        .open_or_create("bench", options)
        .expect("a catalog");
    let (tools, _) = resized(set, size, SEED).expect("valid ids");
    let mut writer = catalog.writer().expect("the only writer");
    writer.upsert(&tools).expect("valid tools");
    writer.commit().expect("committed");
    writer
        .embed_pending(&mut |_| std::ops::ControlFlow::Continue(()))
        .expect("embedded");
    drop(writer);
    (folder, catalog)
}
