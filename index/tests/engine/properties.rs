//! Properties that hold for any sequence of changes and any query, on seeded random ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::world::{
    Chance, SERVERS, TAGS, answer, assert_alike, embed_all, for_each_seed, fresh, hashing, plain,
    some_name, some_text, some_tool, some_tools,
};
use toolscout_index::{
    Catalog, Changes, DataDir, Filter, Fusion, Mode, Options, Query, Searcher, Settings, Tool,
    ToolId, Writer,
};

const MODES: [Mode; 3] = [Mode::Lexical, Mode::Dense, Mode::Hybrid];

type State = BTreeMap<ToolId, Tool>;

/// A query with any of its options.
fn some_query(chance: &mut Chance) -> Query {
    let texts: Vec<String> = (0..1 + chance.below(4) / 2)
        .map(|_| some_text(chance))
        .collect();
    let mut query = Query::any_of(texts)
        .mode(*chance.pick(&MODES))
        .k(1 + chance.below(50));
    if chance.one_in(4) {
        query = query.explain();
    }
    if chance.one_in(3) {
        query = query.filter(some_filter(chance));
    }
    if chance.one_in(4) {
        query = query.fusion(Fusion::Rrf);
    }
    if chance.one_in(4) {
        query = query.dense_weight(chance.below(11) as f32 / 10.0);
    }
    if chance.one_in(4) {
        query.whole()
    } else {
        query
    }
}

fn some_filter(chance: &mut Chance) -> Filter {
    let mut filter = Filter::default();
    match chance.below(5) {
        0 => filter.servers = BTreeSet::from([chance.pick(&SERVERS).to_string()]),
        1 => filter.tags = BTreeSet::from([chance.pick(&TAGS).to_string()]),
        2 => filter.read_only = Some(chance.one_in(2)),
        3 => filter.destructive = Some(chance.one_in(2)),
        _ => {
            let ids = (0..6).map(|_| format!("{}/{}", chance.pick(&SERVERS), some_name(chance)));
            filter.ids = Arc::new(ids.collect());
        }
    }
    filter
}

fn some_queries(chance: &mut Chance, number: usize) -> Vec<Query> {
    (0..number).map(|_| some_query(chance)).collect()
}

fn some_settings(chance: &mut Chance) -> Settings {
    let mut settings = Settings::default();
    settings.lexical.weights.name = 1.0 + chance.below(4) as f32;
    settings.lexical.k1 = 1.0 + chance.below(3) as f32;
    settings.dense_weight = chance.below(11) as f32 / 10.0;
    settings
}

/// A catalog, and a plain map of the tools that it must have.
struct Twin {
    catalog: Catalog,
    writer: Option<Writer>,
    settings: Settings,
    committed: State,
    pending: State,
    pending_settings: Settings,
}

impl Twin {
    fn new(data: &DataDir) -> Self {
        let catalog = data.open_or_create("twin", hashing()).unwrap();
        let settings = Settings::default();
        Twin {
            catalog,
            writer: None,
            settings: settings.clone(),
            committed: State::new(),
            pending: State::new(),
            pending_settings: settings,
        }
    }

    fn writer(&mut self) -> &mut Writer {
        if self.writer.is_none() {
            self.writer = Some(self.catalog.writer().unwrap());
        }
        self.writer.as_mut().unwrap()
    }

    fn step(&mut self, chance: &mut Chance, data: &DataDir) {
        let server = *chance.pick(&SERVERS);
        match chance.below(12) {
            0..=3 => self.upsert(some_tools(chance, server, 6)),
            4 | 5 => self.remove(chance),
            6 | 7 => self.sync(server, some_tools(chance, server, 6)),
            8 | 9 => self.commit(),
            10 => self.set_settings(some_settings(chance)),
            _ => self.reopen(data),
        }
    }

    fn upsert(&mut self, tools: Vec<Tool>) {
        let expected = changes(&self.pending, &tools);
        assert_eq!(self.writer().upsert(&tools).unwrap(), expected);
        self.pending
            .extend(tools.into_iter().map(|tool| (tool.id.clone(), tool)));
    }

    fn remove(&mut self, chance: &mut Chance) {
        let known: Vec<ToolId> = self
            .pending
            .keys()
            .filter(|_| chance.one_in(3))
            .cloned()
            .collect();
        let mut asked = known.clone();
        asked.push(ToolId::new("no such server", "tool").unwrap());
        let removed = self.writer().remove(&asked).unwrap().removed;
        assert_eq!(removed, known);
        self.pending.retain(|id, _| !known.contains(id));
    }

    fn sync(&mut self, server: &str, tools: Vec<Tool>) {
        let mut expected = changes(&self.pending, &tools);
        let stays = |id: &ToolId| id.server() != server || tools.iter().any(|tool| tool.id == *id);
        expected.removed = self
            .pending
            .keys()
            .filter(|id| !stays(id))
            .cloned()
            .collect();
        assert_eq!(self.writer().sync(server, &tools).unwrap(), expected);
        self.pending.retain(|id, _| stays(id));
        self.pending
            .extend(tools.into_iter().map(|tool| (tool.id.clone(), tool)));
    }

    fn set_settings(&mut self, settings: Settings) {
        self.writer().set_settings(&settings).unwrap();
        self.pending_settings = settings;
    }

    fn commit(&mut self) {
        self.writer().commit().unwrap();
        self.committed = self.pending.clone();
        self.settings = self.pending_settings.clone();
    }

    /// Ends writer and catalog without a commit and opens the catalog again, which undoes what was not
    /// committed.
    fn reopen(&mut self, data: &DataDir) {
        self.writer = None;
        self.catalog = data.open("twin", hashing()).unwrap();
        self.pending = self.committed.clone();
        self.pending_settings = self.settings.clone();
    }

    fn remaining(&self) -> Vec<Tool> {
        self.committed.values().cloned().collect()
    }

    /// A new catalog of the remaining tools.
    fn fresh(&self, data: &DataDir, name: &str) -> Arc<Searcher> {
        let catalog = fresh(data, name, &self.remaining());
        let mut writer = catalog.writer().unwrap();
        writer.set_settings(&self.settings).unwrap();
        writer.commit().unwrap();
        catalog.searcher()
    }
}

fn changes(state: &State, tools: &[Tool]) -> Changes {
    let mut changes = Changes::default();
    for tool in tools {
        match state.get(&tool.id) {
            None => changes.added.push(tool.id.clone()),
            Some(known) if known == tool => changes.unchanged += 1,
            Some(_) => changes.changed.push(tool.id.clone()),
        }
    }
    changes.added.sort();
    changes.changed.sort();
    changes
}

#[test]
fn any_sequence_of_changes_equals_a_fresh_catalog_of_the_remaining_tools() {
    for_each_seed(3, |seed| {
        let chance = &mut Chance::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let mut twin = Twin::new(&data);
        for part in 0..2 {
            for _ in 0..14 {
                twin.step(chance, &data);
            }
            twin.commit();
            embed_all(twin.writer());
            let fresh = twin.fresh(&data, &format!("fresh{part}"));
            let queries = some_queries(chance, 50);
            assert_alike(
                &twin.catalog.searcher(),
                &fresh,
                &queries,
                &format!("part {part}"),
            );
            twin.reopen(&data);
            assert_alike(
                &twin.catalog.searcher(),
                &fresh,
                &queries,
                &format!("part {part}, reopened"),
            );
        }
    });
}

#[test]
fn no_answer_has_a_deleted_or_uncommitted_tool() {
    for_each_seed(2, |seed| {
        let chance = &mut Chance::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let mut twin = Twin::new(&data);
        for _ in 0..40 {
            twin.step(chance, &data);
            if chance.one_in(6) {
                twin.commit();
                embed_all(twin.writer());
            }
            let searcher = twin.catalog.searcher();
            for query in some_queries(chance, 6) {
                for hit in searcher.search(&query).unwrap().hits {
                    assert_eq!(twin.committed.get(&hit.id), Some(&*hit.tool), "{query:?}");
                }
            }
        }
    });
}

#[test]
fn hits_keep_order_bounds_filters_and_attribution() {
    for_each_seed(2, |seed| {
        let chance = &mut Chance::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let tools: State = SERVERS
            .iter()
            .flat_map(|server| some_tools(chance, server, 40))
            .map(|tool| (tool.id.clone(), tool))
            .collect();
        let tools: Vec<Tool> = tools.into_values().collect();
        let searcher = fresh(&DataDir::new(dir.path()), "hits", &tools).searcher();
        for _ in 0..120 {
            let texts: Vec<String> = (0..1 + chance.below(3))
                .map(|_| some_text(chance))
                .collect();
            let (k, filter) = (1 + chance.below(50), some_filter(chance));
            let query = Query::any_of(&texts)
                .k(k)
                .mode(*chance.pick(&MODES))
                .filter(filter.clone());
            let results = searcher.search(&query).unwrap();
            let hits = &results.hits;
            assert!(hits.len() <= k, "{query:?}");
            assert_eq!(hits.is_empty(), results.no_match.is_some(), "{query:?}");
            let distinct: BTreeSet<&ToolId> = hits.iter().map(|hit| &hit.id).collect();
            assert_eq!(distinct.len(), hits.len(), "a tool twice: {query:?}");
            let ordered =
                |a: f32, b: f32, ids: (&ToolId, &ToolId)| a > b || (a == b && ids.0 < ids.1);
            assert!(
                hits.is_sorted_by(|a, b| ordered(a.score, b.score, (&a.id, &b.id))),
                "{query:?}"
            );
            for hit in hits {
                assert!(filter.accepts(&hit.tool), "{} passed {filter:?}", hit.id);
                assert!(
                    hit.score.is_finite() && hit.score >= 0.0,
                    "{query:?}: {}",
                    hit.score
                );
                let texts_in_order = hit.matched_queries.is_sorted_by(|a, b| a < b);
                assert!(
                    !hit.matched_queries.is_empty() && texts_in_order,
                    "{:?}",
                    hit.matched_queries
                );
                assert!(
                    hit.matched_queries.iter().all(|&text| text < texts.len()),
                    "{:?}",
                    hit.matched_queries
                );
            }
            if let Some(no_match) = results.no_match {
                let nearest: BTreeSet<&ToolId> = no_match.nearest.iter().collect();
                assert_eq!(
                    nearest.len(),
                    no_match.nearest.len(),
                    "a name offered twice: {query:?}"
                );
            }
            assert_eq!(answer(&searcher, &query), answer(&searcher, &query));
        }
    });
}

#[test]
fn merging_texts_keeps_their_matches_and_scores() {
    for_each_seed(2, |seed| {
        let chance = &mut Chance::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let tools: Vec<Tool> = SERVERS
            .iter()
            .flat_map(|server| some_tools(chance, server, 40))
            .collect();
        let searcher = fresh(&DataDir::new(dir.path()), "merged", &tools).searcher();
        for _ in 0..60 {
            let texts = [some_text(chance), some_text(chance)];
            let mode = *chance.pick(&MODES);
            let merged = searcher
                .search(&Query::any_of(&texts).mode(mode).k(50))
                .unwrap()
                .hits;
            for (number, text) in texts.iter().enumerate() {
                for alone in searcher
                    .search(&Query::new(text).mode(mode).k(10))
                    .unwrap()
                    .hits
                {
                    let Some(hit) = merged.iter().find(|hit| hit.id == alone.id) else {
                        continue;
                    };
                    assert!(
                        hit.matched_queries.contains(&number),
                        "{texts:?}: {} is also of {number}",
                        hit.id
                    );
                    assert!(
                        hit.score >= alone.score,
                        "{texts:?}: {} lost by merging",
                        hit.id
                    );
                }
            }
        }
    });
}

#[test]
fn a_single_tool_is_found_in_a_catalog_of_one_and_through_a_filter() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let mail = plain("mail", "send_message", "Sends a letter to a recipient.");
    let one = fresh(&data, "one", std::slice::from_ref(&mail)).searcher();
    let many = fresh(
        &data,
        "many",
        &[
            mail,
            plain("git", "open_issue", "Opens an issue."),
            plain("git", "merge", ""),
        ],
    );
    let only_mail = Filter {
        servers: BTreeSet::from(["mail".to_owned()]),
        ..Filter::default()
    };
    for mode in MODES {
        let query = Query::new("a letter for some recipient").mode(mode);
        let found = one.search(&query).unwrap().hits;
        assert_eq!(found.len(), 1, "{mode} in a catalog of one");
        let found = many
            .searcher()
            .search(&query.filter(only_mail.clone()))
            .unwrap()
            .hits;
        assert_eq!(found.len(), 1, "{mode} behind a filter");
    }
}

/// Every commit replaces all tools by those of the next version. Readers see one version at a time,
/// and a snapshot that they hold never changes.
#[test]
fn readers_see_one_state_while_a_writer_commits() {
    const TOOLS: usize = 20;
    const VERSIONS: usize = 12;
    let version = |version: usize| -> Vec<Tool> {
        let text = |tool| format!("version {version} of tool number {tool}");
        (0..TOOLS)
            .map(|tool| plain("s", &format!("tool_{tool}"), &text(tool)))
            .collect()
    };
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(&data, "snapshots", &version(0));
    let held = catalog.searcher();
    let query = Query::new("version of tool number")
        .k(50)
        .mode(Mode::Lexical);
    let first_answer = answer(&held, &query);
    let other_process = data.open("snapshots", Options::default()).unwrap();
    let done = AtomicBool::new(false);
    let read = |snapshot: &dyn Fn() -> Arc<Searcher>| {
        let mut last = 0;
        let mut reads = 0;
        while !done.load(Ordering::Acquire) || reads == 0 {
            let searcher = snapshot();
            let hits = searcher.search(&query).unwrap().hits;
            let seen: BTreeSet<&str> = hits
                .iter()
                .map(|hit| hit.tool.description.split(' ').nth(1).unwrap())
                .collect();
            assert_eq!(
                (hits.len(), seen.len()),
                (TOOLS, 1),
                "versions {seen:?} at once"
            );
            assert!(searcher.generation() >= last, "went back in time");
            (last, reads) = (searcher.generation(), reads + 1);
        }
    };
    /// Ends the readers, also when the writer panics.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    std::thread::scope(|scope| {
        let end = Ends(&done);
        let same_process = scope.spawn(|| read(&|| catalog.searcher()));
        let other = scope.spawn(|| read(&|| other_process.refresh().unwrap()));
        let mut writer = catalog.writer().unwrap();
        for number in 1..VERSIONS {
            writer.upsert(&version(number)).unwrap();
            writer.commit().unwrap();
        }
        drop(end);
        same_process.join().unwrap();
        other.join().unwrap();
    });
    assert_eq!(answer(&held, &query), first_answer);
}

#[test]
fn catalogs_side_by_side_do_not_mix() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let chance = &mut Chance::new(5);
    let left = some_tool(chance, "left");
    let right = some_tool(chance, "right");
    let (a, b) = (fresh(&data, "a", &[left]), fresh(&data, "b", &[right]));
    assert_eq!(data.catalogs().unwrap(), ["a", "b"]);
    assert_eq!(
        (
            crate::world::ids(&a.searcher()).len(),
            crate::world::ids(&b.searcher()).len()
        ),
        (1, 1)
    );
    data.delete("a").unwrap();
    assert_eq!(data.catalogs().unwrap(), ["b"]);
    assert_eq!(data.open("b", hashing()).unwrap().searcher().len(), 1);
}
