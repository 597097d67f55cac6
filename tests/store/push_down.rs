//! Catalogs that nodes do not hold: their tools are looked for in the database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use toolscout::catalog_writer::{CatalogStore, Change};
use toolscout::shared::CreatedCatalog;
use toolscout::store::{FollowingStore, PostgresStore, SharedEmbedder};
use toolscout_index::embed::{Hashing, StaticTable};
use toolscout_index::pushdown::Footprint;
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Enrichment, Options, Query, Result, Tool, ToolId,
    Weights,
};

use super::node::{Node, PATIENCE, ids, run, scores, tool};
use super::nodes::Cluster;
use super::postgres::Postgres;

const TABLES: &str = "toolscout.pushed";

/// Waits until this is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what} takes too long");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Numbers that look random, the same each time.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    pub fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const ACTIONS: [(&str, &str); 12] = [
    ("send", "Sends"),
    ("delete", "Deletes"),
    ("list", "Lists"),
    ("update", "Changes"),
    ("archive", "Moves to the archive"),
    ("create", "Creates"),
    ("search", "Looks for"),
    ("export", "Writes to a file"),
    ("share", "Gives others access to"),
    ("restore", "Brings back"),
    ("tag", "Puts a label on"),
    ("merge", "Joins"),
];
const THINGS: [&str; 24] = [
    "message",
    "report",
    "invoice",
    "event",
    "instance",
    "forecast",
    "ticket",
    "branch",
    "payment",
    "contact",
    "folder",
    "image",
    "playlist",
    "recipe",
    "sensor",
    "shipment",
    "contract",
    "survey",
    "backup",
    "certificate",
    "dashboard",
    "subscription",
    "timesheet",
    "vehicle",
];
const MANNERS: [&str; 16] = [
    "draft",
    "shared",
    "expired",
    "daily",
    "encrypted",
    "regional",
    "pending",
    "public",
    "nested",
    "signed",
    "duplicate",
    "remote",
    "scheduled",
    "temporary",
    "verified",
    "weekly",
];
const REASONS: [&str; 10] = [
    "before the end of the month",
    "for the whole team",
    "without asking the owner",
    "in the language of the customer",
    "as soon as the queue is empty",
    "with its history and comments",
    "so that auditors can read it",
    "when the quota is used up",
    "from a mobile device",
    "over a slow connection",
];

/// So many different tools.
pub fn generated(count: usize) -> Vec<Value> {
    let mut numbers = Numbers(0x5EED_5EED);
    let mut tools = BTreeMap::new();
    while tools.len() < count {
        let (action, does) = ACTIONS[numbers.below(ACTIONS.len())];
        let (thing, manner) = (numbers.one_of(&THINGS), numbers.one_of(&MANNERS));
        let (other, reason) = (numbers.one_of(&THINGS), numbers.one_of(&REASONS));
        let server = format!("{}{}", numbers.one_of(&THINGS), numbers.below(40));
        let name = format!("{action}_{manner}_{thing}");
        let tags = [numbers.one_of(&MANNERS)];
        let description = format!("{does} a {manner} {thing} of the {other} {reason}.");
        tools.insert(
            format!("{server}/{name}"),
            json!({
                "server": server, "name": name, "description": description, "tags": tags,
                "annotations": { "readOnlyHint": numbers.below(3) == 0 },
                "inputSchema": { "type": "object", "properties": {
                    format!("{other}_id"): { "type": "string", "description": format!("The {other} it belongs to.") },
                } },
            }),
        );
    }
    tools.into_values().collect()
}

/// Requests for such tools: by name, in words, misspelt, and by what they are not called.
pub fn requests() -> Vec<String> {
    let mut numbers = Numbers(0xA5);
    let mut requests = Vec::new();
    for round in 0..8 {
        let (action, does) = ACTIONS[numbers.below(ACTIONS.len())];
        let (thing, manner) = (numbers.one_of(&THINGS), numbers.one_of(&MANNERS));
        let (other, reason) = (numbers.one_of(&THINGS), numbers.one_of(&REASONS));
        requests.push(format!("{action}_{manner}_{thing}"));
        requests.push(format!("{} the {thing} {reason}", does.to_lowercase()));
        requests.push(format!(
            "I want every {manner} {thing} of my {other}, then {action} one"
        ));
        requests.push(thing.to_owned());
        let mut misspelt = thing.to_owned();
        misspelt.remove(2 + round % 3);
        requests.push(format!("{action} the {misspelt}"));
    }
    requests
}

pub fn write_all(node: &Node, catalog: &str, tools: &[Value]) -> u64 {
    let mut generation = 0;
    for chunk in tools.chunks(1000) {
        generation = node.write(catalog, chunk).generation();
    }
    generation
}

/// A node that pushes every catalog down, and looks for so many tools.
fn pushing(cluster: &Cluster, number: usize, candidates: usize) -> Node {
    pushing_above(cluster, number, candidates, 0)
}

pub fn pushing_above(cluster: &Cluster, number: usize, candidates: usize, above: usize) -> Node {
    Node::start_in(
        cluster.data(number),
        &[
            "--embedder",
            "table",
            "--store",
            &cluster.postgres.address(),
            "--push-down-above",
            &above.to_string(),
        ],
        &[("TOOLSCOUT_PUSH_DOWN_CANDIDATES", &candidates.to_string())],
    )
}

/// A machine of its own with the same tools.
pub fn single(tools: &[Value]) -> (Node, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start_with(folder.path(), &["--embedder", "table"]);
    write_all(&node, "default", tools);
    (node, folder)
}

/// Waits until a node looks for the tools of a catalog in the store.
pub fn until_pushed(node: &Node, catalog: &str) {
    node.until(&format!("/v1/catalogs/{catalog}"), |answer| {
        answer.body["pending_embeddings"].is_null()
    });
}

/// How many of the first hits both have, as a share of those of the first.
fn recall(of: &[String], found: &[String]) -> f64 {
    if of.is_empty() {
        return 1.0;
    }
    let common = of.iter().filter(|id| found.contains(id)).count();
    common as f64 / of.len() as f64
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_catalog_that_fits_into_the_candidates_answers_as_a_single_machine() {
    let cluster = Cluster::new();
    let tools = generated(300);
    let (alone, _folder) = single(&tools);
    let node = pushing(&cluster, 0, 400);
    write_all(&node, "default", &tools);
    until_pushed(&node, "default");
    for query in requests() {
        for mode in ["hybrid", "lexical", "dense"] {
            let body = json!({ "query": query, "mode": mode, "k": 10, "explain": true });
            let (here, there) = (
                node.search("default", &body),
                alone.search("default", &body),
            );
            assert_eq!(scores(&here), scores(&there), "{query} {mode}");
            assert_eq!(
                here.body["confidence"], there.body["confidence"],
                "{query} {mode}"
            );
            assert_eq!(
                here.body["hits"][0]["explain"], there.body["hits"][0]["explain"],
                "{query} {mode}"
            );
        }
    }
    let several = json!({ "queries": requests()[..4], "k": 20, "fold_duplicates": true });
    let (here, there) = (
        node.search("default", &several),
        alone.search("default", &several),
    );
    assert_eq!(scores(&here), scores(&there));
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_best_tools_of_thousands_are_among_the_candidates() {
    let cluster = Cluster::new();
    let tools = generated(4000);
    let (alone, _folder) = single(&tools);
    let node = pushing_above(&cluster, 0, 300, 3999);
    write_all(&node, "default", &tools);
    until_pushed(&node, "default");
    let copies = "SELECT count(*) FROM pg_index JOIN pg_class ON oid = indexrelid
                  WHERE relname LIKE 'pushed_vectors_%_nearest' AND indisvalid";
    until("the index of vectors", || {
        cluster.postgres.query(copies) == "1"
    });
    for (mode, least) in [("lexical", 0.97), ("dense", 0.95), ("hybrid", 0.95)] {
        let mut recalls = Vec::new();
        for query in requests() {
            let body = json!({ "query": query, "mode": mode, "k": 10 });
            let (here, there) = (
                node.search("default", &body),
                alone.search("default", &body),
            );
            recalls.push(recall(&ids(&there), &ids(&here)));
        }
        let mean = recalls.iter().sum::<f64>() / recalls.len() as f64;
        eprintln!(
            "{mode}: {mean:.3} of the top ten of {} requests",
            recalls.len()
        );
        assert!(mean >= least, "{mode}: {mean}");
    }
    filters(&node, &alone, &tools);
    pages(&node, &alone);
}

/// Hits pass the filter, and the best are found, whether few or many tools pass.
fn filters(node: &Node, alone: &Node, tools: &[Value]) {
    let server = &tools[7]["server"];
    for filter in [
        json!({ "servers": [server] }),
        json!({ "tags": ["draft", "weekly"] }),
        json!({ "read_only": true }),
        json!({ "destructive": true, "tags": ["signed"] }),
        json!({ "ids": ["no/such"] }),
        json!({ "servers": ["'; DROP TABLE toolscout.tools; --"] }),
    ] {
        let body = json!({ "query": "archive the signed contract", "k": 10, "filter": filter });
        let (here, there) = (
            node.search("default", &body),
            alone.search("default", &body),
        );
        assert_eq!(here.status, 200, "{here:?}");
        let (found, wanted) = (ids(&here), ids(&there));
        assert_eq!(found.len(), wanted.len(), "{filter}");
        assert!(
            recall(&wanted, &found) >= 0.9,
            "{filter}: {found:?} {wanted:?}"
        );
    }
}

/// Lists are those of a single machine.
fn pages(node: &Node, alone: &Node) {
    for query in [
        "limit=7",
        "limit=1000&name=SIGNED",
        "tag=draft&limit=20",
        "server=none",
    ] {
        let path = format!("/v1/catalogs/default/tools?{query}");
        let (here, there) = (node.get(&path), alone.get(&path));
        assert_eq!(here.body["tools"], there.body["tools"], "{query}");
        assert_eq!(here.body["total"], there.body["total"], "{query}");
        let next = |answer: &Value| answer["next_cursor"].as_str().map(str::to_owned);
        assert_eq!(next(&here.body), next(&there.body), "{query}");
        if let Some(cursor) = next(&here.body) {
            let path = format!("{path}&cursor={cursor}");
            assert_eq!(
                node.get(&path).body["tools"],
                alone.get(&path).body["tools"]
            );
        }
    }
    let tags = "/v1/catalogs/default/tags?limit=5";
    assert_eq!(node.get(tags).body, alone.get(tags).body);
    let stats = "/v1/catalogs/default/stats";
    let (here, there) = (node.get(stats), alone.get(stats));
    for part in ["tools", "servers", "pending_embeddings"] {
        assert_eq!(here.body[part], there.body[part], "{part}");
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn changes_are_seen_at_once_on_every_node_and_names_made_of_sql_are_names() {
    let mut cluster = Cluster::new();
    let one = pushing(&cluster, 0, 50);
    let two = pushing(&cluster, 1, 50);
    assert_eq!(one.put("/v1/catalogs/team", &json!({})).status, 201);
    write_all(&one, "team", &generated(200));
    until_pushed(&one, "team");
    until_pushed(&two, "team");
    for number in 0..20 {
        let name = format!("assemble_quartz_{number}");
        let written = one.write("team", &[tool("s'--", &name, "Builds a clock.")]);
        let body = json!({ "query": name, "k": 1, "min_generation": written.generation() });
        let found = two.search("team", &body);
        assert_eq!(ids(&found), [format!("s'--/{name}")], "{found:?}");
        assert_eq!(found.generation(), written.generation());
    }
    let changed = two.write(
        "team",
        &[tool("s'--", "assemble_quartz_3", "Now it paints walls.")],
    );
    let body =
        json!({ "query": "paint the walls", "k": 1, "min_generation": changed.generation() });
    assert_eq!(ids(&one.search("team", &body)), ["s'--/assemble_quartz_3"]);
    let path = "/v1/catalogs/team/tools/s'--/assemble_quartz_3";
    assert_eq!(two.get(path).body["description"], "Now it paints walls.");
    assert_eq!(one.delete(path).status, 204);
    assert_eq!(one.delete(path).status, 404);
    assert_eq!(two.get(path).status, 404);

    let names = [
        "'; DROP TABLE toolscout.pushed_tools_2; --",
        "\\'); DELETE FROM toolscout.catalogs; --",
        "$1::text",
        "%_",
        "{\"a\":1}",
    ];
    let tools: Vec<Value> = names
        .map(|name| {
            let mut made = tool("s'--", name, "'; TRUNCATE toolscout.tools; \u{0}");
            made["tags"] = json!([name, "\\", "\""]);
            made
        })
        .into();
    one.write("team", &tools);
    for name in names {
        let found = one.search("team", &json!({ "query": name, "k": 1 }));
        assert_eq!(found.status, 200, "{found:?}");
        let filter = json!({ "tags": [name] });
        let body = json!({ "query": "truncate", "filter": filter });
        assert_eq!(ids(&one.search("team", &body)), [format!("s'--/{name}")]);
    }
    let removed = one.delete("/v1/catalogs/team/tools?server=s%27--");
    assert_eq!(removed.body["removed"].as_array().map(Vec::len), Some(24));
    assert_eq!(one.get("/v1/catalogs/team").body["tools"], 200);

    // Without the store there is nothing to search, and it is said so.
    cluster.postgres.stop();
    let refused = one.search("team", &json!({ "query": "archive" }));
    assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
    assert!(refused.retry_after);
    cluster.postgres.run();
    let begun = Instant::now();
    while one.search("team", &json!({ "query": "archive" })).status != 200 {
        assert!(begun.elapsed() < PATIENCE, "the search does not come back");
    }
    assert_eq!(one.delete("/v1/catalogs/team").status, 204);
    let left = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'pushed\\_%\\_2%'";
    assert_eq!(cluster.postgres.query(left), "0");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_node_that_is_killed_while_it_pushes_down_loses_nothing_and_there_is_a_way_back() {
    let cluster = Cluster::new();
    let tools = generated(6000);
    let node = Node::start(&cluster.postgres, cluster.data(0));
    write_all(&node, "default", &tools);
    let body = json!({ "query": "archive the signed contract", "k": 10 });
    let before = scores(&node.search("default", &body));
    node.kill();
    let filled =
        format!("SELECT coalesce((SELECT coalesce(filled_to, 'all') FROM {TABLES}_catalogs), '')");
    let mut seen = String::new();
    for _ in 0..3 {
        if seen == "all" {
            break;
        }
        let node = pushing(&cluster, 0, 300);
        until("a page", || {
            let now = cluster.postgres.query(&filled);
            let is_next = now != seen && !now.is_empty();
            seen = now;
            is_next
        });
        // Searches go on meanwhile, and writes.
        if seen != "all" {
            assert_eq!(scores(&node.search("default", &body)), before);
        }
        node.write("default", &[tool("z", "last", "Is written meanwhile.")]);
        node.write("default", &[tool("a", "first", "Is written meanwhile.")]);
        node.delete("/v1/catalogs/default/tools/z/last");
        node.delete("/v1/catalogs/default/tools/a/first");
        node.kill();
    }
    let node = pushing(&cluster, 0, 300);
    until_pushed(&node, "default");
    let counted = format!("SELECT tools FROM {TABLES}_catalogs");
    assert_eq!(cluster.postgres.query(&counted), "6000");
    assert_eq!(
        cluster
            .postgres
            .query("SELECT count(*) FROM toolscout.pushed_tools_1"),
        "6000"
    );
    let found = ids(&node.search("default", &body));
    let wanted: Vec<String> = before.iter().map(|(id, _)| id.clone()).collect();
    assert!(recall(&wanted, &found) >= 0.9, "{found:?} {wanted:?}");
    let status = cluster.status();
    assert_eq!(status["catalogs"][0]["is_pushed_down"], true, "{status}");
    assert_eq!(status["catalogs"][0]["prepared_tools"], 6000, "{status}");

    let back = run(
        cluster.data(0),
        &[
            "store",
            "push-down",
            "default",
            "never",
            "--store",
            &cluster.postgres.address(),
        ],
    );
    assert!(back.status.success(), "{back:?}");
    node.until("/v1/catalogs/default", |answer| {
        answer.body["pending_embeddings"] == 0
    });
    assert_eq!(scores(&node.search("default", &body)), before);
    let left = format!("SELECT count(*) FROM {TABLES}_catalogs");
    assert_eq!(cluster.postgres.query(&left), "0");
    let unknown = run(
        cluster.data(0),
        &[
            "store",
            "push-down",
            "nobody",
            "always",
            "--store",
            &cluster.postgres.address(),
        ],
    );
    assert!(!unknown.status.success());
}

/// A slow embedder, that computes on its own time.
struct Slow(Hashing);

impl Embedder for Slow {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile::new("slow", 32)
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.0.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.0.embed_tools(texts)
    }
}

/// A catalog that is pushed down, within this process.
pub struct Pushed {
    pub postgres: Postgres,
    store: Arc<PostgresStore>,
    following: FollowingStore,
    catalog: Catalog,
    runtime: Runtime,
    _folder: tempfile::TempDir,
}

impl Pushed {
    pub fn new() -> Self {
        let postgres = Postgres::start();
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let mut settings = postgres.settings();
        settings.push_down_above = Some(0);
        let store = PostgresStore::new(&settings, runtime.handle().clone()).unwrap();
        let slow = SharedEmbedder::new(Arc::new(Slow(Hashing::new(32))), Arc::clone(&store));
        let options = Options::new(vec![StaticTable::bundled().unwrap(), Arc::new(slow)]);
        let catalog = DataDir::new(folder.path())
            .open_or_create("c", options)
            .unwrap();
        let created = runtime.block_on(store.create("c", 1)).unwrap();
        let CreatedCatalog::Now(stored) = created else {
            panic!("{created:?}");
        };
        let mut following = FollowingStore::new(Arc::clone(&store), catalog.clone(), &stored);
        following.refresh().unwrap();
        store.follow();
        store.keep_pushed_down();
        Pushed {
            postgres,
            store,
            following,
            catalog,
            runtime,
            _folder: folder,
        }
    }

    pub fn commit(&mut self, change: Change) {
        self.following.commit(&[&change]).unwrap();
    }

    pub fn until_pushed(&mut self) {
        until("pushing down", || {
            self.following.refresh().unwrap();
            self.following.followed().is_pushed_down()
        });
    }

    pub fn until_embedded(&self) {
        let missing = format!(
            "SELECT count(*) FROM {TABLES}_embedders AS kept JOIN {TABLES}_catalogs AS pushed USING (catalog)
             WHERE kept.tools <> pushed.tools"
        );
        until("embedding", || self.postgres.query(&missing) == "0");
    }

    /// What is found is what one machine finds, with both embedders, that has these tools and texts.
    pub fn assert_found_as_alone<'a>(
        &self,
        tools: impl Iterator<Item = (&'a Tool, Option<&'a Enrichment>)>,
        queries: impl Iterator<Item = Query>,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let slow: Arc<dyn Embedder> = Arc::new(Slow(Hashing::new(32)));
        let options = Options::new(vec![StaticTable::bundled().unwrap(), slow]);
        let alone = DataDir::new(folder.path())
            .open_or_create("c", options)
            .unwrap();
        let mut writer = alone.writer().unwrap();
        for (tool, texts) in tools {
            writer.upsert(std::slice::from_ref(tool)).unwrap();
            if let Some(texts) = texts {
                assert!(writer.set_enrichment(tool, texts).unwrap());
            }
        }
        writer.commit().unwrap();
        writer
            .embed_pending(&mut |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
        for query in queries {
            let base = self.catalog.searcher();
            let found = self.store.searcher_for(1, &base, &query);
            let found = self.runtime.block_on(found).unwrap();
            let hits = |results: toolscout_index::Results| -> Vec<(String, f32)> {
                let hits = results.hits.iter();
                hits.map(|hit| (hit.id.to_string(), hit.score)).collect()
            };
            let (here, there) = (found.search(&query), alone.searcher().search(&query));
            assert_eq!(hits(here.unwrap()), hits(there.unwrap()), "{query:?}");
        }
    }

    pub fn close(self) {
        self.runtime.block_on(self.store.close());
    }

    /// The rows of a query, sorted.
    fn rows(&self, sql: &str) -> BTreeSet<String> {
        self.postgres
            .query(sql)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

/// What the tables have to count, from nothing.
#[derive(Default)]
struct Counted {
    terms: BTreeMap<String, i64>,
    words: BTreeMap<String, (i64, i64)>,
    length: u64,
}

impl Counted {
    fn of(tools: &BTreeMap<String, Tool>) -> Self {
        let mut counted = Counted::default();
        for tool in tools.values() {
            let footprint = Footprint::of(tool, &Weights::default());
            counted.length += footprint.analysis.length;
            for term in footprint.analysis.terms.keys() {
                *counted.terms.entry(term.clone()).or_default() += 1;
            }
            for word in footprint.analysis.name_words {
                counted.words.entry(word).or_default().0 += 1;
            }
            for word in footprint.analysis.words {
                counted.words.entry(word).or_default().1 += 1;
            }
        }
        counted
    }
}

pub fn random_tool(numbers: &mut Numbers, number: usize) -> Tool {
    let (action, does) = ACTIONS[numbers.below(ACTIONS.len())];
    let (thing, manner) = (numbers.one_of(&THINGS), numbers.one_of(&MANNERS));
    let about = match numbers.below(4) {
        0 => String::new(),
        1 => format!("Löscht die {thing} für alle, 查看 {manner}."),
        _ => format!("{does} a {manner} {thing}."),
    };
    Tool::new(thing, &format!("{action}_{number}"))
        .unwrap()
        .with_description(about)
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn after_any_changes_the_counts_are_those_from_nothing() {
    let seed = 0xC0FF_EE11;
    let mut numbers = Numbers(seed);
    let mut pushed = Pushed::new();
    let mut tools: BTreeMap<String, Tool> = BTreeMap::new();
    for round in 0..40 {
        let known: Vec<ToolId> = tools.values().map(|tool| tool.id.clone()).collect();
        let gone: Vec<ToolId> = known
            .into_iter()
            .filter(|_| numbers.below(4) == 0)
            .collect();
        for id in &gone {
            tools.remove(id.as_str());
        }
        let new: BTreeMap<String, Tool> = (0..numbers.below(30) + 1)
            .map(|_| {
                let number = numbers.below(25);
                let tool = random_tool(&mut numbers, number);
                (tool.id.to_string(), tool)
            })
            .collect();
        tools.extend(new.clone());
        pushed.commit(Change::Remove(gone));
        pushed.commit(Change::Upsert(new.into_values().collect()));
        if round == 3 {
            pushed.until_pushed();
        }
    }
    pushed.until_embedded();
    let counted = Counted::of(&tools);
    let terms = pushed.rows("SELECT term, tools FROM toolscout.pushed_terms_1 WHERE level = 0");
    let wanted = counted
        .terms
        .iter()
        .map(|(term, tools)| format!("{term}|{tools}"));
    assert_eq!(terms, wanted.collect(), "seed {seed:#x}");
    let words = pushed.rows("SELECT word, names, others FROM toolscout.pushed_words_1");
    let wanted = counted.words.iter();
    let wanted = wanted.map(|(word, (names, others))| format!("{word}|{names}|{others}"));
    assert_eq!(words, wanted.collect(), "seed {seed:#x}");
    let totals = format!("SELECT tools, length FROM {TABLES}_catalogs");
    let wanted = format!("{}|{}", tools.len(), counted.length);
    assert_eq!(pushed.postgres.query(&totals), wanted, "seed {seed:#x}");
    let listed = pushed.rows("SELECT id FROM toolscout.pushed_tools_1");
    assert_eq!(listed, tools.keys().cloned().collect());
    let levels = "SELECT count(*) FROM toolscout.pushed_terms_1 WHERE tools <= 0";
    assert_eq!(pushed.postgres.query(levels), "0");
    let vectors = "SELECT count(*) FROM toolscout.pushed_tools_1 AS t
                   WHERE (SELECT count(*) FROM toolscout.pushed_vectors_1_1 AS v WHERE v.key = t.key) <> 3
                      OR (SELECT count(*) FROM toolscout.pushed_vectors_1_2 AS v WHERE v.key = t.key) <> 2";
    assert_eq!(pushed.postgres.query(vectors), "0");

    let queries = requests()
        .into_iter()
        .map(|request| Query::new(request).k(10));
    pushed.assert_found_as_alone(tools.values().map(|tool| (tool, None)), queries);
    pushed.close();
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn tools_that_are_switched_off_take_no_place_among_the_candidates() {
    let cluster = Cluster::new();
    let tools = generated(1500);
    let (alone, _folder) = single(&tools);
    let node = pushing(&cluster, 0, 60);
    write_all(&node, "default", &tools);
    until_pushed(&node, "default");
    let body = json!({ "query": "archive the signed contract", "k": 10 });
    // All that is found first, so that nothing but what is switched off would fill the candidates.
    let mut off = serde_json::Map::new();
    for id in ids(&alone.search(
        "default",
        &json!({ "query": "archive the signed contract", "k": 50 }),
    )) {
        off.insert(id, 0.into());
    }
    let words = json!({ "boosts": { "tools": off } });
    for node in [&node, &alone] {
        let put = node.put("/v1/catalogs/default/words", &words);
        assert_eq!(put.status, 200, "{put:?}");
    }
    let generation = node.get("/v1/catalogs/default").body["generation"].clone();
    node.until("/v1/catalogs/default", |answer| {
        answer.body["generation"] == generation
    });
    let (here, there) = (
        ids(&node.search("default", &body)),
        ids(&alone.search("default", &body)),
    );
    assert!(
        here.iter()
            .all(|id| !words["boosts"]["tools"].get(id).is_some_and(|off| off == 0))
    );
    assert!(recall(&there, &here) >= 0.7, "{here:?} {there:?}");
}
