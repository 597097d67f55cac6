//! What the record of use costs a search, and what it takes in memory and on disk.
//!
//! - `searched`: the time that a search spends on handing over its event, with 5 hits and 11 further
//!   tools, next to the search of the bundled catalog's queries that it belongs to.
//! - `load`: 1,000 searches a second over 300,000 tools. Prints what was dropped, the memory that the
//!   process took meanwhile, and the size of the database. Tools are drawn from all of them, which no
//!   real catalog comes near, so each search makes 16 new rows.
//!
//! `USAGE_SECONDS` (10) sets how long the load lasts.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use toolscout::config::UsageSettings;
use toolscout::eval::EvalSet;
use toolscout::telemetry::process::resident_bytes;
use toolscout::usage::{FILE_NAME, Origin, Recorder, SearchUse};
use toolscout_index::embed::table::StaticTable;
use toolscout_index::{DataDir, Match, Options, Query, ToolId};

const TOOLS: u64 = 300_000;
const SEARCHES_A_SECOND: u64 = 1_000;
const HITS: usize = 5;
const MORE: usize = 11;

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    searched(folder.path());
    load(folder.path());
}

/// Pseudo-random numbers (xorshift).
fn numbers() -> impl FnMut() -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

fn ids(next: &mut impl FnMut() -> u64, count: usize) -> Vec<ToolId> {
    let id = |number: u64| {
        ToolId::new(
            &format!("server_{}", number % 300),
            &format!("tool_{number}"),
        )
    };
    (0..count)
        .map(|_| id(next() % TOOLS).expect("an id"))
        .collect()
}

fn search_use(hits: Vec<ToolId>, more: Vec<ToolId>) -> SearchUse {
    SearchUse {
        origin: Origin {
            who: "key:bench".to_owned(),
            ..Origin::default()
        },
        matched: Match::Good,
        nearest: hits.first().cloned(),
        hits,
        more,
        sent: None,
        queries: Vec::new(),
    }
}

fn recorder(data: &Path) -> Recorder {
    Recorder::start(data, "default", &UsageSettings::default())
}

fn searched(folder: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let set = EvalSet::load(&root).expect("the fixtures are whole");
    let table = StaticTable::bundled().expect("the table");
    let catalog = DataDir::new(folder)
        .open_or_create("default", Options::new(vec![table]))
        .expect("a catalog");
    let mut writer = catalog.writer().expect("a writer");
    writer.upsert(&set.tools).expect("stored");
    writer.commit().expect("committed");
    drop(writer);
    let searcher = catalog.searcher();
    let texts: Vec<&str> = set
        .queries
        .iter()
        .map(|query| query.text.as_str())
        .collect();
    let recorder = recorder(folder);
    let (mut searching, mut recording) = (Vec::new(), Vec::new());
    for text in texts.iter().cycle().take(5_000) {
        let begun = Instant::now();
        let query = Query::new(*text).near(MORE);
        let results = searcher.search(&query).expect("results");
        searching.push(begun.elapsed());
        let begun = Instant::now();
        let hits = results.hits.iter().map(|hit| hit.id.clone());
        let more = results.near.iter().map(|near| near.id.clone());
        recorder.searched(black_box(search_use(hits.collect(), more.collect())));
        recording.push(begun.elapsed());
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_nanos() as f64 / 1e3
    };
    let (search, record) = (median(&mut searching), median(&mut recording));
    println!(
        "searched: {} tools, search {search:.1} us, recording {record:.2} us ({:.2} %), dropped {}",
        searcher.len(),
        100.0 * record / search,
        recorder.dropped()
    );
}

fn load(folder: &Path) {
    let seconds = std::env::var("USAGE_SECONDS").ok();
    let seconds: u64 = seconds.and_then(|text| text.parse().ok()).unwrap_or(10);
    let data = folder.join("load");
    fs::create_dir(&data).expect("a folder");
    let recorder = recorder(&data);
    let mut next = numbers();
    let (before, mut most) = (resident_bytes().unwrap_or(0), 0);
    let begun = Instant::now();
    for number in 0..seconds * SEARCHES_A_SECOND {
        let due = begun + Duration::from_micros(number * 1_000_000 / SEARCHES_A_SECOND);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let search = search_use(ids(&mut next, HITS), ids(&mut next, MORE));
        recorder.searched(search);
        if number % 100 == 0 {
            most = most.max(resident_bytes().unwrap_or(0));
        }
    }
    let writing = Instant::now();
    recorder.flush();
    let bytes: u64 = ["", "-wal"]
        .iter()
        .filter_map(|end| fs::metadata(data.join(format!("{FILE_NAME}{end}"))).ok())
        .map(|file| file.len())
        .sum();
    let store = toolscout::usage::UsageDatabase::open(&data).expect("the database");
    let rows = store.tools("default", 0).expect("its rows").len() as u64;
    println!(
        "load: {seconds} s, dropped {}, memory {:.1} MB more at most, the last write {} ms, {rows} rows, {:.1} MB on \
         disk, {} bytes a row",
        recorder.dropped(),
        most.saturating_sub(before) as f64 / 1e6,
        writing.elapsed().as_millis(),
        bytes as f64 / 1e6,
        bytes / rows.max(1)
    );
}
