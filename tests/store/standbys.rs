//! A primary with a hot standby: the primary dies, the standby is promoted, and one of them may have been
//! behind.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Answer, Node, PATIENCE, ids, tool};
use super::postgres::Postgres;

fn start(servers: &[&Postgres], data: &Path) -> Node {
    let address = Postgres::address_of(servers) + "?target_session_attrs=read-write";
    Node::start_with(data, &["--embedder", "table", "--store", &address])
}

/// Writes one tool, again and again until it is accepted. Returns the generation.
fn write_at_last(node: &Node, name: &str) -> u64 {
    let begun = Instant::now();
    loop {
        let tools = json!([tool("s", name, "Made of a name.")]);
        let answer = node.post("/v1/catalogs/default/tools", &tools);
        if answer.status == 200 {
            return answer.generation();
        }
        assert_eq!((answer.status, answer.code()), (503, "store_unavailable"));
        assert!(answer.retry_after, "{answer:?}");
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The names of all tools.
fn names(node: &Node) -> Vec<String> {
    let listed = node.get("/v1/catalogs/default/tools?limit=1000");
    let tools = listed.body["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("no tools: {listed:?}"));
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn until_names(node: &Node, wished: &[&str]) {
    let begun = Instant::now();
    while names(node) != wished {
        assert!(begun.elapsed() < PATIENCE, "{:?}", names(node));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn found(node: &Node, generation: u64) -> Answer {
    node.search(
        "default",
        &json!({ "query": "name", "k": 50, "min_generation": generation }),
    )
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_standby_takes_over_and_nothing_acknowledged_is_lost() {
    let mut primary = Postgres::start();
    let standby = primary.standby();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    // In any order.
    let one = start(&[&standby, &primary], folders[0].path());
    let two = start(&[&primary, &standby], folders[1].path());
    for number in 0..10 {
        write_at_last(&one, &format!("before_{number}"));
    }

    primary.stop();
    let refused = one.post(
        "/v1/catalogs/default/tools",
        &json!([tool("s", "refused", "Nobody takes it.")]),
    );
    assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
    assert!(refused.retry_after);
    for node in [&one, &two] {
        assert_eq!(ids(&found(node, 10)).len(), 10);
    }

    standby.promote();
    let begun = Instant::now();
    let generation = write_at_last(&one, "after");
    eprintln!("writes {:.1?} after the promotion", begun.elapsed());
    assert_eq!(ids(&found(&two, generation)).len(), 11, "nothing was lost");
    write_at_last(&two, "after_too");
    let stats = one.get("/v1/stats").body["store"].clone();
    assert_eq!(stats["failovers"], 1, "{stats}");
    assert!(
        stats["away"].is_null() && stats["connections"].as_u64() > Some(0),
        "{stats}"
    );
    assert!(stats["latency"]["count"].as_u64() > Some(10), "{stats}");
    let metrics = one.get("/metrics").body.to_string();
    assert!(
        metrics.contains("toolscout_store_failovers_total 1"),
        "{metrics}"
    );

    // The old one comes back as if nothing had been. What is written there would be lost.
    primary.run();
    // Both nodes look at it every few seconds: four times, so that each has.
    let begun = Instant::now();
    while primary.ended_sessions() < 4 {
        assert!(begun.elapsed() < PATIENCE, "nobody looks at the old one");
        std::thread::sleep(Duration::from_millis(50));
    }
    let generation = write_at_last(&one, "later");
    assert_eq!(ids(&found(&two, generation)).len(), 13);
    let on_the_new_one = "SELECT count(*) FROM toolscout.tools";
    assert_eq!(standby.query(on_the_new_one), "13");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn copies_of_a_state_that_was_lost_are_put_right() {
    let mut primary = Postgres::start();
    let mut standby = primary.standby();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let both = [&primary, &standby].map(Postgres::host).join(",");
    let address = format!("postgres://tools@{both}/tools");
    let start = |place: usize| {
        let arguments = ["--embedder", "table", "--store", &address];
        Node::start_with(folders[place].path(), &arguments)
    };
    let (one, two) = (start(0), start(1));
    let kept = write_at_last(&one, "kept");

    // The standby is away, and the primary no longer waits for it.
    standby.stop();
    primary.query("ALTER SYSTEM RESET synchronous_standby_names");
    primary.query("SELECT pg_reload_conf()");
    for name in ["lost_1", "lost_2", "lost_3"] {
        write_at_last(&one, name);
    }
    let lost = kept + 3;
    assert_eq!(ids(&found(&two, lost)).len(), 4);
    two.kill();
    primary.stop();
    standby.run();
    standby.promote();

    // As many other commits, and more: by its number alone the other node would miss what differs.
    for name in ["new_1", "new_2", "new_3", "new_4"] {
        write_at_last(&one, name);
    }
    let wished = ["kept", "new_1", "new_2", "new_3", "new_4"];
    until_names(&one, &wished);
    let two = start(1);
    until_names(&two, &wished);
    for node in [&one, &two] {
        let found = found(node, kept + 4);
        assert_eq!(found.generation(), kept + 4);
        assert_eq!(ids(&found).len(), wished.len());
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_backup_that_is_put_back_is_followed() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, folder.path());
    write_at_last(&node, "kept");
    let settings = |text: &str| json!({ "description": text });
    node.put("/v1/catalogs/default/settings", &settings("before"));
    let dump = postgres.dump();
    node.put("/v1/catalogs/default/settings", &settings("after"));
    node.put("/v1/catalogs/later", &json!({}));
    for name in ["lost_1", "lost_2"] {
        write_at_last(&node, name);
    }
    postgres.restore(&dump);
    until_names(&node, &["kept"]);
    let shown = node.get("/v1/catalogs/default/settings");
    assert_eq!(shown.body["description"], "before");
    let catalogs = node.until("/v1/catalogs", |answer| {
        answer.body["catalogs"].as_array().map(Vec::len) == Some(1)
    });
    assert_eq!(catalogs.body["catalogs"][0]["name"], "default");
    let generation = write_at_last(&node, "new");
    assert_eq!(ids(&found(&node, generation)).len(), 2);
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn what_changed_is_read_from_a_standby_that_has_it() {
    let primary = Postgres::start();
    let standby = primary.standby();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let address = Postgres::address_of(&[&primary, &standby]);
    let arguments = ["--embedder", "table", "--store", &address];
    let from_standby = [("TOOLSCOUT_STORE_READS", "standby")];
    let reads = Node::start_in(folders[0].path(), &arguments, &from_standby);
    let writes = Node::start_with(folders[1].path(), &arguments);
    let generation = write_at_last(&writes, "first");
    assert_eq!(ids(&found(&reads, generation)).len(), 1);
    let connections =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'toolscout'";
    assert_eq!(standby.query(connections), "t");

    // One that is behind is passed over.
    standby.query("SELECT pg_wal_replay_pause()");
    let generation = write_at_last(&writes, "second");
    assert_eq!(ids(&found(&reads, generation)).len(), 2);
    let generation = write_at_last(&reads, "third");
    assert_eq!(ids(&found(&reads, generation)).len(), 3);
    assert_eq!(standby.query("SELECT count(*) FROM toolscout.tools"), "1");
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_copy_from_before_what_is_remembered_is_made_anew() {
    let postgres = Postgres::start();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, two] = [0, 1].map(|place| Node::start(&postgres, folders[place].path()));
    let tools: Vec<Value> = ["a", "b", "c"]
        .map(|name| tool("s", name, "A letter."))
        .into();
    let generation = one.write("default", &tools).generation();
    assert_eq!(found(&two, generation).generation(), generation);
    two.kill();
    let removed = one.delete("/v1/catalogs/default/tools/s/b");
    assert_eq!(removed.status, 204, "{removed:?}");
    write_at_last(&one, "d");

    // A week later.
    postgres.query("UPDATE toolscout.generations SET committed_at = now() - interval '8 days'");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store =
        toolscout::store::PostgresStore::new(&postgres.settings(), runtime.handle().clone());
    let store = store.unwrap();
    runtime.block_on(store.prepare()).unwrap();
    assert_eq!(runtime.block_on(store.forget()).unwrap(), 1);
    assert_eq!(postgres.query("SELECT count(*) FROM toolscout.tools"), "3");
    let two = Node::start(&postgres, folders[1].path());
    until_names(&two, &["a", "c", "d"]);
    // The last generation is always remembered.
    assert_eq!(runtime.block_on(store.forget()).unwrap(), 0);
    let generation = write_at_last(&two, "e");
    assert_eq!(found(&one, generation).generation(), generation);
    until_names(&one, &["a", "c", "d", "e"]);
}
