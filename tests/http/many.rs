//! Many catalogs with room for few: opened when they are asked for, closed when others are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use serde_json::json;
use toolscout::catalog_writer::Change;
use toolscout::shared::CreatedCatalog;
use toolscout_index::{DataDir, Options, Tool};

use super::server::{Server, tool};
use super::shared_store;

const CATALOGS: u64 = 2000;
const ROOM: usize = 20;
const CLIENTS: u64 = 5;
const REQUESTS: usize = 50;
const SEED: u64 = 0x5eed;
/// Copies the only catalog of a store 1,999 times.
const COPY_FIRST: &str = "
    WITH made AS (
        INSERT INTO toolscout.catalogs (name, generation, tools)
        SELECT 'tenant-' || lpad(number::text, 4, '0'), generation, tools
        FROM toolscout.catalogs, generate_series(1, 1999) AS number
        RETURNING id, generation, mark
    ), counted AS (
        INSERT INTO toolscout.generations (catalog, generation, mark) SELECT * FROM made
    ), copied AS (
        INSERT INTO toolscout.tools (catalog, id, server, hash, json, generation)
        SELECT made.id, tools.id, server, hash, json, tools.generation
        FROM made, toolscout.tools
    )
    SELECT count(*)::text FROM made";

/// A sequence of numbers that look random.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn name_of(number: u64) -> String {
    format!("tenant-{number:04}")
}

/// Catalogs with one tool each: one is made, and the others are copies of its folder or its rows.
fn make_catalogs(data: &Path) {
    let first_tool = || {
        let tool = Tool::new("all", "first").unwrap();
        tool.with_description("Says hello.")
    };
    let made = shared_store::with(data, |store| {
        let created = store.block_on(store.create(&name_of(0), 1)).unwrap();
        let CreatedCatalog::Now(first) = created else {
            panic!("{created:?}");
        };
        let change = Change::Upsert(vec![first_tool()]);
        store
            .block_on(store.commit(first.id, &[&change], &[]))
            .unwrap();
    });
    if made.is_some() {
        let copied = shared_store::text(data, COPY_FIRST);
        assert_eq!(copied, Some((CATALOGS - 1).to_string()));
        return;
    }
    let first = DataDir::new(data)
        .open_or_create(&name_of(0), Options::default())
        .unwrap();
    let mut writer = first.writer().unwrap();
    writer.upsert(&[first_tool()]).unwrap();
    writer.commit().unwrap();
    drop((writer, first));
    let catalogs = data.join("catalogs");
    for number in 1..CATALOGS {
        copy(&catalogs.join(name_of(0)), &catalogs.join(name_of(number)));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// What was acknowledged, by catalog.
#[derive(Default)]
struct Written(Mutex<BTreeMap<u64, BTreeSet<String>>>);

impl Written {
    fn add(&self, catalog: u64, id: String) {
        let mut all = self.0.lock().unwrap();
        all.entry(catalog).or_default().insert(id);
    }

    fn of(&self, catalog: u64) -> BTreeSet<String> {
        let all = self.0.lock().unwrap();
        all.get(&catalog).cloned().unwrap_or_default()
    }
}

/// Writes to and reads catalogs at random; some are chosen more often than others.
async fn client(server: &Server, number: u64, written: &Written) {
    let mut chance = Chance(SEED + number);
    for request in 0..REQUESTS {
        let catalog = match chance.below(2) {
            0 => chance.below(30),
            _ => chance.below(CATALOGS),
        };
        if chance.below(3) == 0 {
            let (of, name) = (name_of(catalog), format!("c{number}-{request}"));
            let path = format!("/v1/catalogs/{of}/tools");
            let answer = server.post(&path, &json!([tool(&of, &name, "")])).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            written.add(catalog, format!("{of}/{name}"));
        } else {
            check(server, catalog, written).await;
        }
    }
}

/// A catalog has what was acknowledged before, and nothing of another.
async fn check(server: &Server, catalog: u64, written: &Written) {
    let (name, expected) = (name_of(catalog), written.of(catalog));
    let answer = server
        .get(&format!("/v1/catalogs/{name}/tools?limit=1000"))
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let tools = answer.body["tools"].as_array().unwrap();
    let found: BTreeSet<String> = tools
        .iter()
        .map(|tool| tool["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(found.contains("all/first"), "{name}: {found:?}");
    let lost: Vec<_> = expected.difference(&found).collect();
    assert!(lost.is_empty(), "{name} has lost {lost:?}");
    let of_others: Vec<_> = found
        .iter()
        .filter(|id| *id != "all/first" && !id.starts_with(&format!("{name}/")))
        .collect();
    assert!(of_others.is_empty(), "{name} has {of_others:?}");
}

/// Looks at how many are open until the clients are done; returns the most.
async fn most_open(server: &Server, is_done: &AtomicBool) -> u64 {
    let mut most = 0;
    while !is_done.load(Ordering::Acquire) {
        let stats = server.get("/v1/stats").await.body;
        most = most.max(stats["catalogs"]["open"].as_u64().unwrap());
        assert!(stats["catalogs"]["open_bytes"].as_u64().unwrap() > 0);
    }
    most
}

#[tokio::test]
async fn two_thousand_catalogs_are_served_with_room_for_twenty() {
    eprintln!("seed {SEED:#x}");
    let data = tempfile::tempdir().unwrap();
    make_catalogs(data.path());
    let start = || {
        Server::start_with(|settings| {
            settings.data = data.path().to_owned();
            settings.limits.max_open_catalogs = ROOM;
        })
    };
    let server = start().await;
    let (written, is_done) = (Written::default(), AtomicBool::new(false));
    let clients = async {
        join_all((0..CLIENTS).map(|number| client(&server, number, &written))).await;
        is_done.store(true, Ordering::Release);
    };
    let ((), most) = tokio::join!(clients, most_open(&server, &is_done));
    assert!((10..=ROOM as u64).contains(&most), "{most} were open");
    drop(server.stop().await);
    let server = start().await;
    let catalogs: Vec<u64> = written.0.lock().unwrap().keys().copied().collect();
    assert!(
        catalogs.len() > 2 * ROOM,
        "{} were written to",
        catalogs.len()
    );
    for catalog in catalogs {
        check(&server, catalog, &written).await;
    }
}

#[tokio::test]
async fn a_list_opens_nothing_and_comes_in_pages() {
    let data = tempfile::tempdir().unwrap();
    let dir = DataDir::new(data.path());
    let mut generation = 0;
    for name in ["a", "b", "c", "d", "e"] {
        let catalog = dir.open_or_create(name, Options::default()).unwrap();
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&[Tool::new("s", name).unwrap()]).unwrap();
        generation = writer.commit().unwrap();
    }
    fs::write(data.path().join("catalogs/c/tools.db"), "no database").unwrap();
    let server = Server::start_with(|settings| {
        settings.data = data.path().to_owned();
        settings.limits.max_open_catalogs = 2;
    })
    .await;
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/catalogs?limit=2{cursor}")).await;
        let listed = page.body["catalogs"].as_array().unwrap();
        assert!((1..=2).contains(&listed.len()), "{page:?}");
        for catalog in listed {
            let name = catalog["name"].as_str().unwrap();
            match name {
                "c" => assert!(catalog["damaged"].is_string(), "{catalog}"),
                "default" => assert_eq!(catalog["tools"], 0),
                _ => assert_eq!(
                    (&catalog["tools"], &catalog["generation"]),
                    (&json!(1), &json!(generation))
                ),
            }
            names.push(name.to_owned());
        }
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "default", "e"]);
    let open = server.get("/v1/stats").await.body["catalogs"]["open"].clone();
    assert!(open.as_u64().unwrap() <= 2, "{open}");
    assert_eq!(server.put("/v1/catalogs/f", &json!({})).await.status, 201);
    assert_eq!(server.delete("/v1/catalogs/a").await.status, 204);
    let listed = server.get("/v1/catalogs").await.body;
    let names: Vec<_> = listed["catalogs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|catalog| catalog["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["b", "c", "d", "default", "e", "f"]);
    for bad in ["limit=0", "limit=1001", "cursor=x", "page=2"] {
        let answer = server.get(&format!("/v1/catalogs?{bad}")).await;
        assert!(answer.status.is_client_error(), "{bad}: {answer:?}");
    }
}
