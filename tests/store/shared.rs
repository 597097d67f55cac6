//! Feedback, usage memories and tasks: the same functions run over the data directory and over the
//! store, and nodes share what one of them was told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use toolscout::approved::{
    Approved, ApprovedError, BlockedBy, ChangeKind, Record, Records, Remembered, ToolChange,
    Undecided, Update,
};
use toolscout::catalog_writer::CatalogStore as _;
use toolscout::feedback::{FeedbackRecord, FeedbackStore, Outcome};
use toolscout::store::{FollowedCatalog, FollowingStore, PostgresStore};
use toolscout_index::embed::StaticTable;
use toolscout_index::memory::{Deletion, Entry, MAX_ENTRIES, Source, Switch};
use toolscout_index::{Catalog, DataDir, Options, Tool, ToolId};

use super::node::{Node, ids, tool};
use super::nodes::Cluster;
use super::postgres::Postgres;

fn shared(postgres: &Postgres, runtime: &Runtime) -> Arc<PostgresStore> {
    PostgresStore::new(&postgres.settings(), runtime.handle().clone()).unwrap()
}

/// What feedback does, wherever it is.
fn feedback_conforms(store: &FeedbackStore) {
    let record = |tool: &str, outcome, query: Option<&str>| FeedbackRecord {
        request_id: "r".to_owned(),
        tool: tool.to_owned(),
        outcome,
        query: query.map(str::to_owned),
    };
    for (catalog, feedback) in [
        ("a", record("s/t", Outcome::Used, Some("mail it "))),
        ("a", record("s/t", Outcome::Used, Some("mail it"))),
        ("a", record("s/u", Outcome::Helpful, Some("mail it"))),
        ("a", record("s/v", Outcome::NotHelpful, Some("mail it"))),
        ("a", record("s/t", Outcome::Used, None)),
        (
            "a",
            record("s/t", Outcome::Used, Some("'); DROP TABLE feedback; --")),
        ),
        ("b", record("s/w", Outcome::Used, Some("Ä other"))),
    ] {
        store.insert(catalog, &feedback, SystemTime::now()).unwrap();
    }
    let of = |query: &str, tools: &[&str]| {
        let tools: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
        (query.to_owned(), tools)
    };
    let expected = [
        of("'); DROP TABLE feedback; --", &["s/t"]),
        of("mail it", &["s/t", "s/u"]),
    ];
    assert_eq!(store.called("a").unwrap(), expected);
    assert!(store.called("none").unwrap().is_empty());
    store.forget("a").unwrap();
    assert!(store.called("a").unwrap().is_empty());
    assert_eq!(store.called("b").unwrap(), [of("Ä other", &["s/w"])]);
}

#[test]
fn feedback_of_a_data_directory_conforms() {
    let folder = tempfile::tempdir().unwrap();
    feedback_conforms(&FeedbackStore::open(folder.path()).unwrap());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn feedback_of_the_store_conforms() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let local = FeedbackStore::open(folder.path()).unwrap();
    feedback_conforms(&shared(&postgres, &runtime).feedback(local));
}

/// A usage memory, of a data directory or of a store.
struct World {
    catalog: Catalog,
    followed: Option<(Arc<PostgresStore>, Arc<FollowedCatalog>)>,
    _folder: TempDir,
}

impl World {
    fn local() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(vec![StaticTable::bundled().unwrap()]);
        let data = DataDir::new(folder.path());
        World {
            catalog: data.open_or_create("c", options).unwrap(),
            followed: None,
            _folder: folder,
        }
    }

    /// A node of the store, which is told of changes.
    fn node(postgres: &Postgres, runtime: &Runtime) -> Self {
        let local = World::local();
        let store = shared(postgres, runtime);
        runtime.block_on(store.create("c", 1)).unwrap();
        let stored = runtime.block_on(store.find("c")).unwrap().unwrap();
        let mut following = FollowingStore::new(Arc::clone(&store), local.catalog.clone(), &stored);
        following.refresh().unwrap();
        store.follow();
        World {
            followed: Some((store, Arc::clone(following.followed()))),
            ..local
        }
    }

    fn switch(&self, switch: Switch) {
        match &self.followed {
            Some((store, catalog)) => store.switch_memory(catalog, switch).unwrap(),
            None => self.catalog.memory().set_switch(switch).unwrap(),
        }
    }

    fn remember(&self, query: &str, tool: &str, at_ms: i64, source: &Source) -> bool {
        let tool = ToolId::parse(tool).unwrap();
        match &self.followed {
            Some((store, catalog)) => store
                .remember(catalog, (query, &tool), at_ms, source)
                .unwrap(),
            None => self
                .catalog
                .memory()
                .remember(query, &tool, at_ms, source)
                .unwrap(),
        }
    }

    fn forget(&self, what: &Deletion) -> usize {
        match &self.followed {
            Some((store, catalog)) => store.forget_memory(catalog, what).unwrap(),
            None => self.catalog.memory().forget(what).unwrap(),
        }
    }

    fn entries(&self) -> Vec<Entry> {
        self.catalog.memory().entries(None, MAX_ENTRIES).unwrap()
    }

    /// Waits until this node has what another one has.
    fn reaches(&self, other: &World) {
        let begun = Instant::now();
        loop {
            let seen = |world: &World| (world.entries(), world.catalog.memory().switch().unwrap());
            let (own, expected) = (seen(self), seen(other));
            if own == expected {
                return;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{own:?} {expected:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The same changes, one after another. Returns what there is after each.
fn play(world: &World) -> Vec<(usize, Vec<Entry>)> {
    let [a, b] = ["a", "b"].map(Source::key);
    let admin = Source::admin("c");
    let mut seen = Vec::new();
    let stored = world.remember("too early", "s/t", 1, &admin);
    seen.push((usize::from(stored), world.entries()));
    world.switch(Switch::On);
    for (query, tool, at_ms, source) in [
        ("mail it", "mail/send", 10, &a),
        ("mail it", "mail/send", 11, &a),
        (" mail it ", "mail/send", 9, &b),
        ("mail it", "mail/send", 12, &admin),
        ("mail it", "mail/send", 13, &admin),
        ("mail it", "post/letter", 14, &admin),
        ("'); DROP TABLE remembered; --", "mail/send", 15, &a),
        (
            "Wetter in 北京?",
            "weather/forecast",
            16,
            &Source::keyless(),
        ),
    ] {
        let stored = world.remember(query, tool, at_ms, source);
        seen.push((usize::from(stored), world.entries()));
    }
    world.switch(Switch::Off);
    let stored = world.remember("mail it", "mail/send", 20, &admin);
    seen.push((usize::from(stored), world.entries()));
    for what in [
        Deletion::Query("none".to_owned()),
        Deletion::Query("mail it".to_owned()),
        Deletion::Tool(ToolId::parse("mail/send").unwrap()),
        Deletion::All,
        Deletion::All,
    ] {
        let gone = world.forget(&what);
        seen.push((gone, world.entries()));
    }
    world.switch(Switch::On);
    world.remember("again", "s/t", 30, &b);
    seen.push((0, world.entries()));
    seen
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_usage_memory_of_the_store_is_that_of_a_data_directory_and_every_node_follows_it() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let [one, two] = [(); 2].map(|()| World::node(&postgres, &runtime));
    assert_eq!(play(&one), play(&World::local()));
    two.reaches(&one);
    assert_eq!(two.entries().len(), 1);
    let mut took = Vec::new();
    for number in 0..50 {
        let [tells, hears] = if number % 2 == 0 {
            [&one, &two]
        } else {
            [&two, &one]
        };
        let begun = Instant::now();
        tells.remember(
            &format!("request {number}"),
            "s/t",
            40 + number,
            &Source::key("a"),
        );
        hears.reaches(tells);
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    eprintln!(
        "remembered until on the other node: p50 {:.1?}, most {:.1?}",
        took[25], took[49]
    );
    two.forget(&Deletion::Tool(ToolId::parse("s/t").unwrap()));
    assert!(two.entries().is_empty());
    one.reaches(&two);
    // A node that starts later has it too.
    one.remember("late", "s/t", 100, &Source::command_line());
    World::node(&postgres, &runtime).reaches(&one);
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_full_memory_of_the_store_evicts_votes_and_old_entries() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let world = World::node(&postgres, &runtime);
    world.switch(Switch::On);
    // As if many had taught it before.
    postgres.query(
        "INSERT INTO toolscout.remembered SELECT catalog, decode(lpad(to_hex(number), 32, '0'), 'hex'),
             CASE WHEN number < 1000 THEN 'key:a' ELSE 'admin:x' END, 'request ' || number, 's/t', 1, number, 2
         FROM toolscout.memories, generate_series(0, 9999) AS number;
         UPDATE toolscout.memories SET generation = 2",
    );
    let count = |condition: &str| -> usize {
        let sql = format!("SELECT count(*) FROM toolscout.remembered WHERE {condition}");
        postgres.query(&sql).parse().unwrap()
    };
    assert!(world.remember("one more", "s/t", 20_000, &Source::key("a")));
    assert_eq!((count("true"), count("source = 'admin:x'")), (9500, 9000));
    assert_eq!(count("query = 'one more'"), 1);
    assert_eq!(world.entries().len(), 9500);
    assert!(world.remember("by another key", "s/t", 20_001, &Source::key("b")));
    postgres.query(
        "INSERT INTO toolscout.remembered SELECT catalog, decode('eeee' || lpad(to_hex(number), 28, '0'), 'hex'),
             'key:a', 'vote ' || number, 's/t', 1, 20000 + number, generation
         FROM toolscout.memories, generate_series(0, 499) AS number;
         INSERT INTO toolscout.remembered SELECT catalog, pair, 'key:a', query, tool, 1, 1, generation
         FROM toolscout.remembered WHERE source = 'admin:x' AND at_ms >= 9000",
    );
    assert_eq!(count("source = 'key:a'"), 2000);
    assert!(world.remember("one vote more", "s/t", 30_000, &Source::key("a")));
    // The newest are kept, and what others taught too.
    assert_eq!(count("source = 'key:a'"), 1000);
    assert_eq!(count("source = 'admin:x'"), 9000);
    assert!(count("query LIKE 'vote %'") >= 498);
    assert!(world.entries().len() <= MAX_ENTRIES);
}

fn remember(node: &Node, answered: &Value, tool: &str) -> Value {
    let feedback = json!({
        "feedback_token": answered["feedback_token"],
        "tool": tool,
        "query": "tell anna that i am late",
    });
    let answer = node.post("/v1/catalogs/default/feedback", &feedback);
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn feedback_on_the_answer_of_one_node_is_given_to_another_and_all_learn() {
    let cluster = Cluster::new();
    let [one, two] = cluster.nodes();
    let tools: Vec<Value> = (0..40)
        .map(|number| tool("s", &format!("tell_{number}"), "Tells somebody something."))
        .collect();
    let generation = one.write("default", &tools).generation();
    let switched = one.put("/v1/catalogs/default/memory", &json!({ "enabled": true }));
    assert_eq!(switched.status, 200, "{switched:?}");
    let memory = "/v1/catalogs/default/memory";
    two.until(memory, |answer| answer.body["enabled"] == true);

    let request =
        json!({ "query": "tell anna that i am late", "k": 50, "min_generation": generation });
    let before = one.search("default", &request);
    let last = ids(&before).pop().unwrap();
    // The other node signs with the same secret once it has asked for it.
    let told = remember(&two, &before.body, &last);
    assert_eq!(told, json!({ "recorded": true, "remembered": true }));
    let begun = Instant::now();
    one.until(memory, |answer| answer.body["total"] == 1);
    eprintln!("learned on the other node after {:.1?}", begun.elapsed());
    let [first, second] = [&one, &two].map(|node| node.search("default", &request));
    assert_eq!(ids(&first)[0], last);
    assert_eq!(super::node::scores(&first), super::node::scores(&second));
    assert_eq!(
        cluster
            .postgres
            .query("SELECT count(*) FROM toolscout.feedback"),
        "1"
    );

    assert_eq!(one.delete(memory).body["forgotten"], 1);
    two.until(memory, |answer| answer.body["total"] == 0);
    assert_eq!(ids(&two.search("default", &request)), ids(&before));
    one.delete("/v1/catalogs/default");
    assert_eq!(
        cluster
            .postgres
            .query("SELECT count(*) FROM toolscout.feedback"),
        "0"
    );
    assert_eq!(
        cluster
            .postgres
            .query("SELECT count(*) FROM toolscout.memories"),
        "0"
    );
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_task_is_asked_after_and_cancelled_on_any_node_and_fails_with_its_own() {
    let cluster = Cluster::new();
    let [one, two] = cluster.nodes();
    let tools = |from: usize, count: usize| -> Value {
        (from..from + count)
            .map(|number| tool("s", &format!("t{number}"), "Does something."))
            .collect()
    };
    let path = "/v1/catalogs/default/tools";
    let start = |tools: &Value| {
        let task = one.post(path, tools);
        assert_eq!(task.status, 202, "{task:?}");
        format!("/v1/tasks/{}", task.body["id"].as_str().unwrap())
    };
    let task = start(&tools(0, 1200));
    assert_eq!(two.get(&task).status, 200);
    let ended = two.until(&task, |answer| answer.body["status"] != "running");
    assert_eq!(ended.body, one.get(&task).body);
    assert_eq!(
        (&ended.body["status"], &ended.body["result"]["added"]),
        (&json!("succeeded"), &json!(1200))
    );
    assert_eq!(two.get("/v1/tasks/none").code(), "unknown_task");
    assert_eq!(two.get("/v1/tasks/a%00b").code(), "unknown_task");

    let task = start(&tools(0, 20_000));
    assert_eq!(two.delete(&task).status, 202);
    let ended = one.until(&task, |answer| answer.body["status"] != "running");
    assert_eq!(ended.body["status"], "cancelled", "{ended:?}");
    two.until(&task, |answer| answer.body["status"] == "cancelled");

    let task = start(&tools(20_000, 20_000));
    one.kill();
    let seen = two.get(&task);
    assert_eq!(seen.body["status"], "running", "{seen:?}");
    let begun = Instant::now();
    let ended = two.until(&task, |answer| answer.body["status"] != "running");
    eprintln!("failed after {:.1?}", begun.elapsed());
    assert_eq!(
        (&ended.body["status"], &ended.body["error"]["code"]),
        (&json!("failed"), &json!("node_lost"))
    );
}

/// What approved definitions do, wherever they are.
fn approved_conforms(mut approved: Approved) -> (Remembered, Undecided) {
    let tools: Vec<Arc<Tool>> = ["a", "b", "c"]
        .map(|name| {
            let tool = Tool::new("s/x", name).unwrap();
            Arc::new(tool.with_description("'); DROP TABLE approved_changes; --"))
        })
        .into();
    let records = |tools: &[Arc<Tool>]| -> Records {
        let records = tools.iter().map(|tool| (tool.id.clone(), Record::of(tool)));
        records.collect()
    };
    assert_eq!(approved.of("s/x").unwrap(), Remembered::default());
    let update = Update {
        records: records(&tools),
        ..Update::default()
    };
    approved.remember("s/x", &update, 0).unwrap();
    approved.remember("s/x", &update, 0).unwrap();
    assert_eq!(approved.of("s/x").unwrap().records, update.records);
    assert!(approved.of("s").unwrap().records.is_empty());
    let changed = |kind, blocked_by| ToolChange {
        kind,
        approved: Some(tools[0].clone()),
        offered: None,
        blocked_by,
        since_ms: 7,
    };
    let update = Update {
        forgotten: [tools[1].id.clone()].into(),
        undecided: [
            (
                tools[0].id.clone(),
                changed(ChangeKind::Changed, Some(BlockedBy::Setting)),
            ),
            (tools[2].id.clone(), changed(ChangeKind::Removed, None)),
        ]
        .into(),
        ..Update::default()
    };
    approved.remember("s/x", &update, 0).unwrap();
    assert_eq!(approved.undecided().unwrap(), update.undecided);

    // A person decides about one of them; a list that was compared before is not stored.
    let servers: BTreeSet<String> = ["s/x".to_owned(), "other".to_owned()].into();
    let judge = |server: &str, remembered: Remembered| {
        let settled = remembered.undecided.into_keys().take(1).collect();
        assert!(server == "s/x" || BTreeSet::is_empty(&settled));
        Ok::<_, ApprovedError>(Update {
            settled,
            ..Update::default()
        })
    };
    approved.review(&servers, judge).unwrap();
    assert_eq!(
        ["s/x", "other", "s"].map(|server| approved.last_decision(server).unwrap()),
        [1, 1, 0]
    );
    let late = approved.remember(
        "s/x",
        &Update {
            forgotten: [tools[0].id.clone()].into(),
            ..Update::default()
        },
        0,
    );
    assert!(
        matches!(late, Err(ApprovedError::DecidedMeanwhile { .. })),
        "{late:?}"
    );
    // All of a review, or nothing.
    let refused = approved.review(&servers, |server, _| match server {
        "other" => Ok(Update {
            records: records(&tools),
            ..Update::default()
        }),
        server => Err(ApprovedError::DecidedMeanwhile {
            server: server.to_owned(),
        }),
    });
    assert!(refused.is_err());
    assert_eq!(approved.last_decision("other").unwrap(), 1);
    assert!(approved.of("other").unwrap().records.is_empty());
    (approved.of("s/x").unwrap(), approved.undecided().unwrap())
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn approved_definitions_of_the_store_are_those_of_a_folder_and_every_node_sees_them() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let nodes = [(); 2].map(|()| World::node(&postgres, &runtime));
    let [one, two] = nodes.each_ref().map(|world| {
        let (store, catalog) = world.followed.as_ref().unwrap();
        store.approved(catalog)
    });
    let folder = tempfile::tempdir().unwrap();
    let local = approved_conforms(Approved::open(folder.path()).unwrap());
    assert_eq!(approved_conforms(Approved::open(one).unwrap()), local);
    let seen = Approved::open_existing(two).unwrap().unwrap();
    assert_eq!((seen.of("s/x").unwrap(), seen.undecided().unwrap()), local);
    runtime
        .block_on(nodes[0].followed.as_ref().unwrap().0.delete("c"))
        .unwrap();
    assert_eq!(seen.of("s/x").unwrap(), Remembered::default());
}
