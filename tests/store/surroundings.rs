//! What goes wrong around a node: the database's disk is full, a clock is wrong, another cluster is next door.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::node::{Node, PATIENCE, ids, run, tool};
use super::postgres::Postgres;

/// A file system in memory, unmounted with its owner.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where this user may not mount one.
    fn mount(folder: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=160m,mode=1777", "toolscout-test"])
            .arg(folder)
            .stderr(Stdio::null())
            .status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        is_mounted.then(|| SmallDisk(folder.to_owned()))
    }

    /// Takes all the room that is left, and returns the file that has it.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = File::create(&path).expect("a file");
        let block = vec![1; 64 << 10];
        while file.write_all(&block).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_node_writes_again_once_the_database_does() {
    let postgres = Postgres::start();
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, data.path());
    node.write("default", &[tool("s", "before", "Was there before.")]);
    let only_reads = "ALTER DATABASE tools SET default_transaction_read_only = on";
    let writes =
        "SET transaction_read_only = off; ALTER DATABASE tools RESET default_transaction_read_only";
    let ends_sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE application_name = 'toolscout'";
    let list = json!([tool("s", "after", "Came after it.")]);
    postgres.query(only_reads);
    postgres.query(ends_sessions);
    let refused = node.post("/v1/catalogs/default/tools", &list);
    assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
    let status = run(
        data.path(),
        &["store", "status", "--store", &postgres.address()],
    );
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert!(said.contains("the database only reads"), "{said}");
    postgres.query(writes);
    let begun = Instant::now();
    while node.post("/v1/catalogs/default/tools", &list).status != 200 {
        assert!(begun.elapsed() < PATIENCE, "the node goes on reading only");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn two_nodes_have_two_data_directories() {
    let postgres = Postgres::start();
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, data.path());
    let store = ["--store", &postgres.address()];
    let second = run(
        data.path(),
        &[&["serve", "--listen", "127.0.0.1:0"], &store[..]].concat(),
    );
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success(), "{said}");
    assert!(
        said.contains("the data directory of another server"),
        "{said}"
    );
    node.kill();
    // The lock ends with the process.
    Node::start(&postgres, data.path());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_full_disk_of_the_database_refuses_writes_and_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path()) else {
        eprintln!("skipped: this user may not mount a small disk");
        return;
    };
    let mut postgres = Postgres::start_in(folder.path());
    let data = tempfile::tempdir().unwrap();
    let node = Node::start(&postgres, data.path());
    node.write("default", &[tool("s", "before", "Was there before.")]);
    let ballast = disk.fill();
    let mut acknowledged = vec!["before".to_owned()];
    let begun = Instant::now();
    let refused = loop {
        let name = format!("t{}", acknowledged.len());
        let tools = json!([tool("s", &name, &"Takes room. ".repeat(20_000))]);
        let answer = node.post("/v1/catalogs/default/tools", &tools);
        if answer.status != 200 {
            break answer;
        }
        acknowledged.push(name);
        assert!(begun.elapsed() < PATIENCE, "the disk is never full");
    };
    eprintln!("full after {} writes: {refused:?}", acknowledged.len());
    assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
    assert!(refused.retry_after);
    let found = node.search("default", &json!({ "query": "was there before", "k": 1 }));
    assert_eq!(ids(&found), ["s/before"]);

    std::fs::remove_file(ballast).unwrap();
    if !postgres.answers() {
        // It ends itself where it cannot write its log.
        postgres.stop();
        postgres.run();
    }
    let begun = Instant::now();
    let last = json!([tool("s", "last", "Came last.")]);
    while node.post("/v1/catalogs/default/tools", &last).status != 200 {
        assert!(begun.elapsed() < PATIENCE, "writes do not go on");
        std::thread::sleep(Duration::from_millis(100));
    }
    acknowledged.push("last".to_owned());
    let listed = node.get("/v1/catalogs/default/tools?limit=1000");
    let names: Vec<&str> = listed.body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    for name in &acknowledged {
        assert!(names.contains(&name.as_str()), "{name} was lost");
    }
}

/// A library that puts the clock of a program back by an hour; `None` without a C compiler.
fn clock_of_an_hour_ago(folder: &Path) -> Option<PathBuf> {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        int clock_gettime(clockid_t clock, struct timespec *now) {
            int failed = syscall(SYS_clock_gettime, clock, now);
            if (!failed && clock == CLOCK_REALTIME) now->tv_sec -= 3600;
            return failed;
        }
    "#;
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, SOURCE).expect("a file");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    compiled
        .is_ok_and(|status| status.success())
        .then_some(library)
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_node_whose_clock_is_an_hour_behind_is_a_node_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let Some(clock) = clock_of_an_hour_ago(folder.path()) else {
        eprintln!("skipped: there is no C compiler");
        return;
    };
    let postgres = Postgres::start();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let address = postgres.address();
    let arguments = ["--store", &address];
    let preload = [("LD_PRELOAD", clock.to_str().unwrap())];
    let late = Node::start_in(folders[0].path(), &arguments, &preload);
    let other = Node::start_with(folders[1].path(), &arguments);
    let started = |node: &Node| {
        node.get("/v1/stats").body["started_at_ms"]
            .as_i64()
            .unwrap()
    };
    let behind = started(&other) - started(&late);
    assert!(behind > 3_000_000, "the clock is not behind: {behind} ms");
    for (number, [writes, reads]) in [[&late, &other], [&other, &late]].into_iter().enumerate() {
        let name = format!("report_{number}");
        let tools = [tool("s", &name, "Writes a report.")];
        let generation = writes.write("default", &tools).generation();
        let query = json!({ "query": name, "k": 1, "min_generation": generation });
        assert_eq!(ids(&reads.search("default", &query)), [format!("s/{name}")]);
    }
    // Claims of texts that are embedded do not depend on it.
    for node in [&late, &other] {
        node.until("/v1/catalogs/default", |answer| {
            answer.body["pending_embeddings"] == 0
        });
    }
    let status = run(
        folders[0].path(),
        &["store", "status", "--json", "--store", &address],
    );
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    for node in status["nodes"].as_array().unwrap() {
        let seen_s = node["seen_s"].as_f64().unwrap();
        assert!((0.0..60.0).contains(&seen_s), "{status}");
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn two_clusters_in_one_database_do_not_see_each_other() {
    let postgres = Postgres::start();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let address = postgres.address();
    let arguments = ["--embedder", "table", "--store", &address];
    let schema = [("TOOLSCOUT_STORE_SCHEMA", "other")];
    let one = Node::start_with(folders[0].path(), &arguments);
    let two = Node::start_in(folders[1].path(), &arguments, &schema);
    for round in 0..5 {
        let name = format!("t{round}");
        one.write("default", &[tool("one", &name, "A tool.")]);
        two.write("default", &[tool("two", &name, "A tool.")]);
    }
    for (node, server) in [(&one, "one"), (&two, "two")] {
        let found = node.search("default", &json!({ "query": "a tool", "k": 20 }));
        let of_others = ids(&found);
        let of_others = of_others.iter().filter(|id| !id.starts_with(server));
        assert_eq!(of_others.count(), 0, "{found:?}");
        assert_eq!(found.generation(), 5);
    }
    one.put("/v1/catalogs/team", &json!({}));
    one.delete("/v1/catalogs/default");
    assert_eq!(two.get("/v1/catalogs/team").status, 404);
    assert_eq!(two.get("/v1/catalogs/default").body["tools"], 5);
}
