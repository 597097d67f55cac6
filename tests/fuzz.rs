//! Every reader of foreign bytes over the kept corpus and over mutations of it, the same in every
//! run.
//!
//! `scripts/fuzz` lets the same run longer: `TOOLSCOUT_FUZZ_SECONDS` is the time of each target,
//! `TOOLSCOUT_FUZZ_SEED` where to begin, `TOOLSCOUT_FUZZ_FINDINGS` the folder for inputs that
//! panic.

mod fuzz {
    pub mod mutate;
    pub mod targets;
}

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fuzz::mutate::Mutator;
use fuzz::targets::{TARGETS, Target};

/// How long a target is run.
#[derive(Clone, Copy)]
enum Bound {
    Executions(usize),
    Time(Duration),
}

macro_rules! targets {
    ($($name:ident),+ $(,)?) => {
        $(#[test] fn $name() { run(stringify!($name)); })+

        #[test]
        fn every_target_is_run_and_has_a_corpus() {
            let run = [$(stringify!($name)),+];
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), run);
            for target in TARGETS {
                assert!(corpus(target.name).len() >= 2, "fuzz/corpus/{} has less than two seeds", target.name);
            }
        }
    };
}

targets!(
    formats,
    openapi,
    mcp_tools,
    mcp_lines,
    sse,
    plan_reply,
    manual_reply,
    html,
    query,
    pasted_queries,
    owner_words,
    ranker_file,
    catalog_file,
);

fn run(name: &str) {
    let target = TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("a target of this name");
    let seconds = std::env::var("TOOLSCOUT_FUZZ_SECONDS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let bound = seconds.map_or(Bound::Executions(target.executions), |s| {
        Bound::Time(Duration::from_secs(s))
    });
    let seed = std::env::var("TOOLSCOUT_FUZZ_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let started = Instant::now();
    let corpus = corpus(name);
    let mut mutator = Mutator::new(seed, &corpus);
    let mut executions = 0;
    let mut inputs = corpus.iter().cloned();
    while executions < corpus.len()
        || match bound {
            Bound::Executions(most) => executions < most,
            Bound::Time(time) => started.elapsed() < time,
        }
    {
        let input = inputs.next().unwrap_or_else(|| mutator.next_input());
        execute(target, &input);
        executions += 1;
    }
    eprintln!(
        "{name}: {executions} executions in {:.1} s, seed {seed}, no finding",
        started.elapsed().as_secs_f64()
    );
}

/// Runs one input; one that panics is kept, and the panic goes on.
fn execute(target: &Target, input: &[u8]) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) else {
        return;
    };
    let folder =
        std::env::var_os("TOOLSCOUT_FUZZ_FINDINGS").map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(format!(
        "{}-{}",
        target.name,
        blake3::hash(input).to_hex().split_at(16).0
    ));
    fs::write(&file, input).expect("the finding is written");
    eprintln!(
        "{}: a finding, kept as {}: {:?}",
        target.name,
        file.display(),
        String::from_utf8_lossy(input)
    );
    std::panic::resume_unwind(panic);
}

/// The kept seeds and findings of a target, in the order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| fs::read(file).expect("a seed"))
        .collect()
}
