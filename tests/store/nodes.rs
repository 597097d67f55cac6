//! Several nodes serve the same catalogs.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toolscout::catalog_writer::Change;
use toolscout::store::PostgresStore;
use toolscout_index::Tool;
use toolscout_index::formats::{self, ReadOptions};

use super::node::{Node, ids, run, scores, tool};
use super::postgres::{Postgres, fixture};

pub struct Cluster {
    pub postgres: Postgres,
    folders: [TempDir; 2],
}

impl Cluster {
    pub fn new() -> Self {
        Cluster {
            postgres: Postgres::start(),
            folders: [(); 2].map(|()| tempfile::tempdir().unwrap()),
        }
    }

    /// What `store status` prints, in the data folder of the first node.
    pub fn status(&self) -> Value {
        let address = self.postgres.address();
        let arguments = ["store", "status", "--json", "--store", &address];
        let status = run(self.data(0), &arguments);
        serde_json::from_slice(&status.stdout).unwrap()
    }

    pub fn data(&self, number: usize) -> &Path {
        self.folders[number].path()
    }

    pub fn nodes(&self) -> [Node; 2] {
        [0, 1].map(|number| Node::start(&self.postgres, self.data(number)))
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_write_on_one_node_is_found_on_the_other() {
    let cluster = Cluster::new();
    let [one, two] = cluster.nodes();
    let (mut took, mut wrote) = (Vec::new(), Vec::new());
    for number in 0..200 {
        let [writes, reads] = match number % 2 {
            0 => [&one, &two],
            _ => [&two, &one],
        };
        let name = format!("report_{number}");
        let begun = Instant::now();
        let generation = writes
            .write("default", &[tool("s", &name, "Writes a report.")])
            .generation();
        wrote.push(begun.elapsed());
        let found = reads.search(
            "default",
            &json!({ "query": name, "k": 1, "min_generation": generation }),
        );
        took.push(begun.elapsed());
        assert_eq!(found.generation(), generation, "{found:?}");
        assert_eq!(ids(&found), [format!("s/{name}")]);
    }
    for (what, times) in [
        ("answered", &mut wrote),
        ("found on the other node", &mut took),
    ] {
        times.sort_unstable();
        let (half, most) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        eprintln!("200 writes until {what}: p50 {half:.1?}, p99 {most:.1?}");
    }
    let late = one.search(
        "default",
        &json!({ "query": "report", "min_generation": 100_000 }),
    );
    assert_eq!((late.status, late.code()), (503, "generation_not_reached"));
    assert!(late.retry_after);
    for node in [&one, &two] {
        let catalog = node.get("/v1/catalogs/default");
        assert_eq!(catalog.body["tools"], 200, "{catalog:?}");
    }

    let status = cluster.status();
    assert_eq!(status["catalogs"][0]["tools"], 200, "{status}");
    assert_eq!(status["nodes"].as_array().unwrap().len(), 2, "{status}");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_status_comes_in_pages_and_soon_with_many_catalogs() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let address = postgres.address();
    let program = |arguments: &[&str]| {
        let all = [&["store"], arguments, &["--store", &address]].concat();
        let output = run(folder.path(), &all);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    };
    program(&["migrate"]);
    postgres.query(
        "INSERT INTO toolscout.catalogs (name, generation, tools)
         SELECT 'tenant-' || lpad(number::text, 5, '0'), number, 30 FROM generate_series(1, 10000) AS number",
    );
    postgres.query(
        "INSERT INTO toolscout.tools (catalog, id, server, hash, json, generation)
         SELECT catalogs.id, 's/t' || number, 's', '', repeat('x', 100), 1
         FROM toolscout.catalogs, generate_series(1, 30) AS number",
    );
    let page = |arguments: &[&str]| -> Value {
        let arguments = [&["status", "--json"], arguments].concat();
        serde_json::from_str(&program(&arguments)).unwrap()
    };
    let begun = Instant::now();
    let first = page(&[]);
    let took = begun.elapsed();
    eprintln!("status of 10,000 catalogs with 300,000 tools: {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(first["catalogs"].as_array().unwrap().len(), 100);
    assert_eq!(
        (&first["catalogs_total"], &first["tools_total"]),
        (&json!(10_000), &json!(300_000))
    );
    assert_eq!(first["catalogs"][0]["bytes"], 3_000);
    assert_eq!(first["next_after"], "tenant-00100");
    let last = page(&["--after", "tenant-09998", "--limit", "1000"]);
    let names: Vec<&Value> = last["catalogs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|catalog| &catalog["name"])
        .collect();
    assert_eq!(names, ["tenant-09999", "tenant-10000"]);
    assert_eq!(last["next_after"], Value::Null);
    let beyond = page(&["--after", "tenant-99999"]);
    assert_eq!(
        (&beyond["catalogs"], &beyond["catalogs_total"]),
        (&json!([]), &json!(10_000))
    );
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn settings_and_deletions_reach_every_node() {
    let cluster = Cluster::new();
    let [one, two] = cluster.nodes();
    assert_eq!(one.put("/v1/catalogs/team", &json!({})).status, 201);
    assert_eq!(two.put("/v1/catalogs/team", &json!({})).status, 200);
    let first = one
        .write("team", &[tool("s", "first", "The first.")])
        .generation();
    let settings = json!({ "description": "'); DROP TABLE tools; --", "k": 3 });
    assert_eq!(one.put("/v1/catalogs/team/settings", &settings).status, 200);
    two.until("/v1/catalogs/team/settings", |answer| answer.body["k"] == 3);

    assert_eq!(one.delete("/v1/catalogs/team").status, 204);
    assert_eq!(one.delete("/v1/catalogs/team").status, 404);
    two.until("/v1/catalogs/team", |answer| answer.status == 404);
    let copy = cluster.data(1).join("followed/catalogs/team");
    let begun = Instant::now();
    while copy.exists() {
        assert!(begun.elapsed() < super::node::PATIENCE, "the copy stays");
        std::thread::sleep(Duration::from_millis(50));
    }

    // Created again, it is another catalog, and its generations go on.
    assert_eq!(two.put("/v1/catalogs/team", &json!({})).status, 201);
    let second = two
        .write("team", &[tool("s", "second", "The second.")])
        .generation();
    assert!(second > first, "{second} {first}");
    let found = one.search(
        "team",
        &json!({ "query": "first second", "min_generation": second }),
    );
    assert_eq!(ids(&found), ["s/second"]);
    let settings = one.get("/v1/catalogs/team/settings");
    assert_eq!(settings.body["description"], "");

    // Deleted and created again before the other node asks for it.
    for round in 0..5 {
        one.delete("/v1/catalogs/team");
        assert_eq!(one.put("/v1/catalogs/team", &json!({})).status, 201);
        let name = format!("round_{round}");
        let generation = one
            .write("team", &[tool("s", &name, "A round.")])
            .generation();
        let found = two.search(
            "team",
            &json!({ "query": "round", "min_generation": generation }),
        );
        // A node that has not noticed yet answers from the catalog before, and says so.
        match found.status {
            200 => assert_eq!(ids(&found), [format!("s/{name}")], "{found:?}"),
            404 => {}
            _ => panic!("{found:?}"),
        }
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn names_made_of_sql_are_names() {
    let cluster = Cluster::new();
    let node = Node::start(&cluster.postgres, cluster.data(0));
    for name in [
        "a'; DROP TABLE tools; --",
        "a\" OR 1=1",
        "$1",
        "a%00b",
        "..",
        "%27",
    ] {
        let path = format!(
            "/v1/catalogs/{}",
            name.replace(' ', "%20").replace('"', "%22")
        );
        let refused = node.put(&path, &json!({}));
        assert!((400..500).contains(&refused.status), "{name}: {refused:?}");
        let missing = node.get(&path);
        assert!((400..500).contains(&missing.status), "{name}: {missing:?}");
    }
    let names = [
        "'; DROP TABLE tools; --",
        "\\'); DELETE FROM catalogs; --",
        "{\"a\":1}",
        "$1::text",
        "%_",
    ];
    let tools: Vec<Value> = names
        .map(|name| tool("s'--", name, "'; TRUNCATE tools; \u{0}"))
        .into();
    node.write("default", &tools);
    let removed = node.delete("/v1/catalogs/default/tools?server=s%27--%25");
    assert!((200..500).contains(&removed.status), "{removed:?}");
    let listed = node.get("/v1/catalogs/default/tools");
    assert_eq!(listed.body["total"], names.len(), "{listed:?}");
    assert_eq!(
        cluster
            .postgres
            .query("SELECT count(*) FROM toolscout.tools"),
        "5"
    );
}

fn fixture_tools() -> Vec<Tool> {
    let mut tools = Vec::new();
    for entry in std::fs::read_dir(fixture("fixtures/tools")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let options = ReadOptions {
            default_server: Some(name),
            ..ReadOptions::default()
        };
        if let Ok(parsed) = formats::parse(&std::fs::read(&path).unwrap(), &options) {
            tools.extend(parsed.tools);
        }
    }
    tools.sort_by(|a, b| a.id.cmp(&b.id));
    tools.dedup_by(|a, b| a.id == b.id);
    assert!(tools.len() > 50, "{}", tools.len());
    tools
}

fn requests() -> Vec<String> {
    let text = std::fs::read_to_string(fixture("fixtures/queries.jsonl")).unwrap();
    let requests = text.lines().filter_map(|line| {
        let query: Value = serde_json::from_str(line).ok()?;
        Some(query["query"].as_str()?.to_owned())
    });
    requests.collect()
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn nodes_answer_as_a_single_machine_does() {
    let cluster = Cluster::new();
    let alone = tempfile::tempdir().unwrap();
    // With the encoder, whose vectors one node computes.
    let shared = ["--store", &cluster.postgres.address()];
    let single = Node::start_with(alone.path(), &[]);
    let one = Node::start_with(cluster.data(0), &shared);
    let two = Node::start_with(cluster.data(1), &shared);
    let tools = json!(fixture_tools());
    for node in [&single, &one] {
        let path = "/v1/catalogs/default/tools";
        let answer = node.post(path, &tools);
        assert!(answer.status == 200 || answer.status == 202, "{answer:?}");
        let count = tools.as_array().unwrap().len();
        node.until("/v1/catalogs/default", |answer| {
            answer.body["tools"] == count
        });
    }
    for node in [&single, &one, &two] {
        node.until("/v1/catalogs/default", |answer| {
            answer.body["tools"] == tools.as_array().unwrap().len()
                && answer.body["pending_embeddings"] == 0
        });
    }
    let requests = requests();
    assert!(requests.len() > 20, "{}", requests.len());
    for request in &requests {
        let body = json!({ "query": request, "k": 20 });
        let [expected, first, second] = [&single, &one, &two].map(|node| {
            let answer = node.search("default", &body);
            assert!(answer.body["degraded"].is_null(), "{answer:?}");
            scores(&answer)
        });
        assert_eq!(expected, first, "{request}");
        assert_eq!(expected, second, "{request}");
    }
    eprintln!("{} requests: the same hits and scores", requests.len());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_node_that_is_killed_while_it_catches_up_goes_on() {
    let cluster = Cluster::new();
    let [one, two] = cluster.nodes();
    two.kill();
    let runtime = Runtime::new().unwrap();
    let store = PostgresStore::new(&cluster.postgres.settings(), runtime.handle().clone()).unwrap();
    let id = runtime.block_on(store.find("default")).unwrap().unwrap().id;
    let rounds = std::env::var("TOOLSCOUT_TEST_ROUNDS").ok();
    let rounds = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(12);
    for round in 0..rounds {
        // Every tool changes, some go, and a node is killed a little later each time.
        let tools = (0..1500).map(|number| {
            let tool = Tool::new("s", &format!("t{number}")).unwrap();
            tool.with_description(format!("Round {round}, number {number}."))
        });
        let server = "s".to_owned();
        let tools = tools.skip(round as usize % 200).collect();
        let change = Change::Sync { server, tools };
        let node = Node::start(&cluster.postgres, cluster.data(1));
        let committed = runtime.block_on(store.commit(id, &[&change], &[])).unwrap();
        // It decides only where the node is killed.
        std::thread::sleep(Duration::from_millis(round % 12 * 60));
        node.kill();
        let node = Node::start(&cluster.postgres, cluster.data(1));
        let request = json!({ "query": "round number", "k": 50, "min_generation": committed.1 });
        let [expected, found] = [&one, &node].map(|node| node.search("default", &request));
        assert_eq!(found.generation(), committed.1, "{found:?}");
        assert_eq!(scores(&expected), scores(&found), "round {round}");
        let path = "/v1/catalogs/default/tools?limit=1000";
        assert_eq!(one.get(path).body, node.get(path).body, "round {round}");
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn twenty_thousand_tools_are_one_write() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let store = PostgresStore::new(&postgres.settings(), runtime.handle().clone()).unwrap();
    runtime.block_on(store.create("big", 1)).unwrap();
    let id = runtime.block_on(store.find("big")).unwrap().unwrap().id;
    let tools = (0..20_000).map(|number| {
        let tool = Tool::new("s", &format!("t{number}")).unwrap();
        tool.with_description("Does something. ".repeat(20))
    });
    let change = Change::Upsert(tools.collect());
    for expected in ["added", "unchanged"] {
        let begun = Instant::now();
        runtime.block_on(store.commit(id, &[&change], &[])).unwrap();
        eprintln!("20,000 tools, {expected}: {:.1?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(40));
    }
    let refused = runtime.block_on(store.create("another", 1)).unwrap();
    assert!(
        matches!(refused, toolscout::shared::CreatedCatalog::TooMany),
        "the bound holds over the store: {refused:?}"
    );
}
