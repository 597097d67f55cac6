//! A process is killed (SIGKILL) at random moments of adding, removing, synchronising and
//! embedding, again and again on one catalog. Everything that it had reported as committed is
//! found and nothing else, searches work, nothing needs repair, and embedding continues.
//!
//! `TOOLSCOUT_KILL_ROUNDS=100` for more rounds, `TOOLSCOUT_SEED` for other moments.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::child;
use crate::world::{Chance, answer, embed_all, filled, fresh, ids, plain};
use toolscout_index::embed::Hashing;
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Mode, Options, Query, Result, Tool, ToolId, Writer,
};

const DEFAULT_ROUNDS: u64 = 10;
const DEFAULT_SEED: u64 = 11;
/// Longest life of a child: it starts, opens, makes a few commits and embeds a few batches.
const MAX_LIFE_MS: usize = 600;
/// A batch takes about as long as a commit, so that kills land in both.
const BATCH_TIME: Duration = Duration::from_millis(8);

type State = BTreeMap<ToolId, Tool>;

/// A slow embedder that counts the texts it embeds.
struct Slow {
    inner: Hashing,
    texts: AtomicUsize,
}

impl Slow {
    fn new() -> Arc<Self> {
        Arc::new(Slow {
            inner: Hashing::new(64),
            texts: AtomicUsize::new(0),
        })
    }
}

impl Embedder for Slow {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        // Simulates the time of an inference; it does not wait for anything.
        std::thread::sleep(BATCH_TIME);
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        self.inner.embed_tools(texts)
    }
}

fn open(folder: &Path, embedder: &Arc<Slow>) -> Catalog {
    let options = Options::new(vec![Arc::clone(embedder) as Arc<dyn Embedder>]);
    DataDir::new(folder).open_or_create("c", options).unwrap()
}

/// The change that makes generation `number` of the catalog; the same in parent and child.
enum Change {
    Upsert(Vec<Tool>),
    Remove(Vec<ToolId>),
    Sync(&'static str, Vec<Tool>),
}

impl Change {
    fn of(seed: u64, number: usize) -> Change {
        let chance = &mut Chance::new(seed ^ (number as u64) << 8);
        let server = *chance.pick(&["git", "mail", "maps"]);
        let names: BTreeSet<usize> = (0..1 + chance.below(40))
            .map(|_| chance.below(60))
            .collect();
        let tool = |name: &usize| {
            let text = format!("version {number} of what {name} does for {server}");
            plain(server, &format!("tool_{name}"), &text)
        };
        let tools: Vec<Tool> = names.iter().map(tool).collect();
        match chance.below(4) {
            0 => Change::Remove(tools.into_iter().map(|tool| tool.id).collect()),
            1 => Change::Sync(server, tools),
            _ => Change::Upsert(tools),
        }
    }

    fn write(&self, writer: &mut Writer) {
        match self {
            Change::Upsert(tools) => writer.upsert(tools),
            Change::Remove(ids) => writer.remove(ids),
            Change::Sync(server, tools) => writer.sync(server, tools),
        }
        .unwrap();
    }

    fn apply(&self, state: &mut State) {
        let tools = match self {
            Change::Upsert(tools) => tools,
            Change::Remove(ids) => return state.retain(|id, _| !ids.contains(id)),
            Change::Sync(server, tools) => {
                state.retain(|id, _| id.server() != *server);
                tools
            }
        };
        state.extend(tools.iter().map(|tool| (tool.id.clone(), tool.clone())));
    }
}

/// Sends a line to the parent at once.
fn report(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Changes and embeds until it is killed; the environment has the seed and the number of the first
/// change.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(folder) = child::folder() else {
        return;
    };
    let number = |variable: &str| std::env::var(variable).unwrap().parse::<u64>().unwrap();
    let (seed, first) = (number("KILL_SEED"), number("KILL_FIRST") as usize);
    let catalog = open(&folder, &Slow::new());
    let mut writer = catalog.writer().unwrap();
    report("ready");
    for change in first.. {
        Change::of(seed, change).write(&mut writer);
        writer.commit().unwrap();
        report(&format!("committed {change}"));
        if change % 2 == 0 {
            embed(&mut writer);
        }
    }
}

fn embed(writer: &mut Writer) {
    let mut kept = 0;
    let embedded = writer.embed_pending(&mut |progress| {
        report(&format!("embedded {}", progress.done - kept));
        kept = progress.done;
        ControlFlow::Continue(())
    });
    embedded.unwrap();
}

/// What a child reported before it was killed.
#[derive(Default)]
struct Reported {
    ready: bool,
    commits: usize,
    embedded: usize,
}

/// Starts a child on the folder, kills it after some time, and returns what it had reported.
fn run_and_kill(folder: &Path, seed: u64, first: usize, life: Duration) -> Reported {
    let mut child = child::command("kill::child_writes_until_it_is_killed", folder)
        .env("KILL_SEED", seed.to_string())
        .env("KILL_FIRST", first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let killer = std::thread::spawn(move || {
        // The random moment is the point of the test.
        std::thread::sleep(life);
        child.kill().unwrap();
        child.wait().unwrap()
    });
    let mut reported = Reported::default();
    for line in out.lines().map_while(|line| line.ok()) {
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        match word {
            "ready" => reported.ready = true,
            "committed" => reported.commits += 1,
            "embedded" => reported.embedded += number.parse::<usize>().unwrap(),
            _ => {}
        }
    }
    let status = killer.join().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "the child ended by itself: {status}"
    );
    reported
}

fn texts_kept(catalog: &Catalog) -> usize {
    catalog
        .stats()
        .unwrap()
        .vectors
        .iter()
        .map(|(_, vectors)| vectors)
        .sum()
}

#[test]
fn every_commit_survives_a_kill_at_any_moment() {
    let number = |variable: &str, default| {
        std::env::var(variable).map_or(default, |value| value.parse().unwrap())
    };
    let rounds = number("TOOLSCOUT_KILL_ROUNDS", DEFAULT_ROUNDS);
    let seed = number("TOOLSCOUT_SEED", DEFAULT_SEED);
    println!("TOOLSCOUT_SEED={seed}, {rounds} rounds");
    let chance = &mut Chance::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let (mut state, mut next, mut kept) = (State::new(), 0, 0);
    let mut tally = BTreeMap::from([
        ("before ready", 0),
        ("unreported commits", 0),
        ("embedding unfinished", 0),
    ]);
    for round in 0..rounds {
        let life = Duration::from_millis(chance.below(MAX_LIFE_MS) as u64);
        let reported = run_and_kill(dir.path(), seed, next, life);
        for change in next..next + reported.commits {
            Change::of(seed, change).apply(&mut state);
        }
        next += reported.commits;
        *tally.get_mut("before ready").unwrap() += usize::from(!reported.ready);

        let embedder = Slow::new();
        let catalog = open(dir.path(), &embedder);
        if !holds(&catalog, &state) {
            // The commit under way may have been made and not yet reported.
            Change::of(seed, next).apply(&mut state);
            next += 1;
            *tally.get_mut("unreported commits").unwrap() += 1;
        }
        assert!(
            holds(&catalog, &state),
            "round {round}: neither the last commit nor the one under way"
        );
        assert_searchable(&catalog, &state, round);

        let texts = texts_kept(&catalog);
        assert!(
            texts >= kept + reported.embedded,
            "round {round}: {texts} texts, {kept} + {} reported",
            reported.embedded
        );
        *tally.get_mut("embedding unfinished").unwrap() +=
            usize::from(catalog.searcher().pending_embeddings() > 0);
        if chance.one_in(3) {
            go_on_embedding(&catalog, &embedder);
        }
        kept = texts_kept(&catalog);
    }
    let catalog = open(dir.path(), &Slow::new());
    embed_all(&mut catalog.writer().unwrap());
    assert_like_new(&catalog, &state);
    println!("{next} commits, {kept} texts kept, {tally:?}");
    assert!(next > 0, "no child lived long enough to commit");
}

/// Creates one catalog after another, each with a tool, until it is killed.
#[test]
fn child_creates_until_it_is_killed() {
    let Some(folder) = child::folder() else {
        return;
    };
    let first: usize = std::env::var("KILL_FIRST").unwrap().parse().unwrap();
    let data = DataDir::new(folder);
    report("ready");
    for number in first.. {
        let tool = plain("s", "t", "zyzzyva");
        filled(&data, &format!("c{number}"), Options::default(), &[tool]);
        report(&format!("created {number}"));
    }
}

#[test]
fn a_creation_killed_at_any_moment_leaves_a_sound_catalog_or_none() {
    let chance = &mut Chance::new(DEFAULT_SEED);
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let mut created = 0;
    for round in 0..DEFAULT_ROUNDS {
        let mut child = child::command("kill::child_creates_until_it_is_killed", dir.path())
            .env("KILL_FIRST", created.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        // The random moment is the point of the test: after some catalogs, somewhere within the
        // next.
        let enough = created + chance.below(3);
        let reported = out
            .by_ref()
            .map_while(|line| line.ok())
            .filter(|line| line.starts_with("created ") || line == "ready");
        for _ in reported.take(1 + enough - created) {}
        std::thread::sleep(Duration::from_micros(chance.below(30_000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        for name in data.catalogs().unwrap() {
            let catalog = data.open(&name, Options::default());
            catalog.unwrap_or_else(|error| {
                panic!("round {round}: {name} is neither good nor absent: {error}")
            });
        }
        while data
            .open(&format!("c{created}"), Options::default())
            .is_ok_and(|catalog| catalog.searcher().len() == 1)
        {
            created += 1;
        }
        let next = data.open_or_create(&format!("c{created}"), Options::default());
        next.unwrap_or_else(|error| panic!("round {round}: c{created} cannot be created: {error}"));
    }
    assert!(
        created > 0,
        "no child lived long enough to create a catalog"
    );
}

fn holds(catalog: &Catalog, state: &State) -> bool {
    catalog
        .searcher()
        .tools()
        .map(|tool| (*tool).clone())
        .eq(state.values().cloned())
}

fn assert_searchable(catalog: &Catalog, state: &State, round: u64) {
    let searcher = catalog.searcher();
    for mode in [Mode::Lexical, Mode::Hybrid] {
        let results = searcher
            .search(&Query::new("what does tool 7 do for mail").mode(mode).k(50))
            .unwrap();
        assert_eq!(
            results.hits.is_empty(),
            state.is_empty(),
            "round {round}, {mode}"
        );
        assert!(
            results
                .hits
                .iter()
                .all(|hit| state.get(&hit.id) == Some(&*hit.tool)),
            "round {round}, {mode}"
        );
    }
    if let Some(id) = state.keys().next() {
        assert_eq!(
            &searcher.search(&Query::new(id.as_str())).unwrap().hits[0].id,
            id,
            "round {round}"
        );
    }
}

/// Embeds what is missing and nothing else.
fn go_on_embedding(catalog: &Catalog, embedder: &Slow) {
    let before = texts_kept(catalog);
    let mut writer = catalog.writer().unwrap();
    let embedded = embed_all(&mut writer);
    assert_eq!(embedded, embedder.texts.load(Ordering::Relaxed));
    assert_eq!(
        texts_kept(catalog),
        before + embedded,
        "texts were embedded that had a vector"
    );
    assert_eq!(embed_all(&mut writer), 0);
    assert_eq!(catalog.searcher().pending_embeddings(), 0);
}

/// In the end the catalog answers like one that was filled at once.
fn assert_like_new(catalog: &Catalog, state: &State) {
    let dir = tempfile::tempdir().unwrap();
    let tools: Vec<Tool> = state.values().cloned().collect();
    let new = fresh(&DataDir::new(dir.path()), "new", &tools);
    assert_eq!(ids(&catalog.searcher()), ids(&new.searcher()));
    for text in ["what tool 12 does", "version of mail", "tool_40", "mapz"] {
        for mode in [Mode::Lexical, Mode::Dense, Mode::Hybrid] {
            let query = Query::new(text).mode(mode).k(50).explain();
            assert_eq!(
                answer(&catalog.searcher(), &query),
                answer(&new.searcher(), &query),
                "{query:?}"
            );
        }
    }
}
