//! Usage memory: it finds the tools of remembered requests, only where it is switched on and only
//! in its own catalog, and it can forget them.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use toolscout_index::embed::{Hashing, StaticTable};
use toolscout_index::memory::{
    Deletion, Entry, FILE_NAME, MAX_ENTRIES, MAX_ENTRIES_OF_A_KEY, Source, SourceState, Switch,
};
use toolscout_index::{Catalog, DataDir, Embedder, Memory, Options, Query, Tool, ToolId};

fn options() -> Options {
    Options::new(vec![StaticTable::bundled().unwrap()])
}

fn filled(data: &DataDir, name: &str) -> Catalog {
    let tool = |name: &str, description: &str| -> Tool {
        serde_json::from_value(json!({"server": "s", "name": name, "description": description}))
            .unwrap()
    };
    let catalog = data.open_or_create(name, options()).unwrap();
    let mut writer = catalog.writer().unwrap();
    let tools = [
        tool("run_report", "Runs a report."),
        tool("list_tickets", "Lists tickets of a queue."),
        tool("q7", "Internal."),
        tool("send_email", "Sends an email."),
    ];
    writer.upsert(&tools).unwrap();
    writer.commit().unwrap();
    drop(writer);
    catalog
}

/// A filled catalog whose memory is switched on.
fn remembering(dir: &Path) -> Catalog {
    let catalog = filled(&DataDir::new(dir), "a");
    catalog.memory().set_switch(Switch::On).unwrap();
    catalog
}

/// Remembers, as the owner, that a tool was called for a request.
fn teach(memory: &Memory, request: &str, tool: &str, at_ms: i64) {
    let owner = Source::command_line();
    memory.remember(request, &id(tool), at_ms, &owner).unwrap();
}

/// What the memory adds to a tool for [`LIKE_IT`].
fn recalled(catalog: &Catalog, tool: &str) -> Option<f32> {
    let query = Query::new(LIKE_IT).explain();
    let hits = catalog.searcher().search(&query).unwrap().hits;
    let hit = hits.into_iter().find(|hit| hit.id == id(tool))?;
    hit.explain?.memory
}

fn id(name: &str) -> ToolId {
    ToolId::new("s", name).unwrap()
}

fn first(catalog: &Catalog, request: &str) -> String {
    let results = catalog.searcher().search(&Query::new(request)).unwrap();
    results
        .hits
        .first()
        .map(|hit| hit.id.name().to_owned())
        .unwrap_or_default()
}

const REQUEST: &str = "show me the open tickets of the support queue";
const LIKE_IT: &str = "show the open tickets of our support queue please";

#[test]
fn a_remembered_tool_is_found_for_the_same_and_for_a_similar_request() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()), "a");
    assert_eq!(first(&catalog, REQUEST), "list_tickets");
    catalog.memory().set_switch(Switch::On).unwrap();
    assert!(
        catalog
            .memory()
            .remember(REQUEST, &id("q7"), 1, &Source::command_line())
            .unwrap()
    );
    assert_eq!(first(&catalog, REQUEST), "q7");
    let like_it = catalog
        .searcher()
        .search(&Query::new(LIKE_IT).explain())
        .unwrap();
    let remembered = like_it
        .hits
        .iter()
        .find(|hit| hit.id == id("q7"))
        .expect("it is found");
    assert!(
        remembered
            .explain
            .as_ref()
            .unwrap()
            .memory
            .is_some_and(|weight| weight > 0.2 && weight < 1.0)
    );
    assert_eq!(
        first(&catalog, "send an email to Ann"),
        "send_email",
        "what is not alike is left alone"
    );
    let results = catalog
        .searcher()
        .search(&Query::new(REQUEST).explain())
        .unwrap();
    assert!(
        results.hits[0]
            .explain
            .as_ref()
            .unwrap()
            .memory
            .is_some_and(|weight| weight > 0.9)
    );
    assert!(
        results
            .hits
            .iter()
            .all(|hit| (0.0..=1.0).contains(&hit.score))
    );
}

#[test]
fn similar_requests_that_led_to_different_tools_have_less_weight_than_those_that_agree() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = remembering(dir.path());
    let weight = |tool: &str| recalled(&catalog, tool).unwrap_or_default();
    teach(catalog.memory(), REQUEST, "q7", 1);
    let alone = weight("q7");
    teach(catalog.memory(), REQUEST, "send_email", 2);
    assert_eq!(weight("q7"), alone, "a request may need several tools");
    teach(
        catalog.memory(),
        "show the open tickets of his support queue",
        "run_report",
        3,
    );
    assert!(weight("q7") < alone / 2.0);
    teach(catalog.memory(), LIKE_IT, "run_report", 4);
    assert!(
        weight("run_report") > 0.9,
        "the same request has its weight whatever others led to"
    );
}

#[test]
fn memory_is_off_by_default_and_keeps_its_entries_when_switched_off() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()), "a");
    let memory = catalog.memory();
    assert_eq!(memory.switch().unwrap(), Switch::Off);
    assert!(
        !memory
            .remember(REQUEST, &id("q7"), 1, &Source::command_line())
            .unwrap()
    );
    assert!(
        !catalog.path().join(FILE_NAME).exists(),
        "nothing is written before there is something to keep"
    );
    memory.set_switch(Switch::On).unwrap();
    teach(memory, REQUEST, "q7", 1);
    memory.set_switch(Switch::Off).unwrap();
    assert_eq!(
        (first(&catalog, REQUEST), memory.len().unwrap()),
        ("list_tickets".into(), 1)
    );
}

#[test]
fn catalogs_have_separate_memories() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let (a, b) = (filled(&data, "a"), filled(&data, "b"));
    for catalog in [&a, &b] {
        catalog.memory().set_switch(Switch::On).unwrap();
    }
    a.memory()
        .remember(REQUEST, &id("q7"), 1, &Source::command_line())
        .unwrap();
    assert_eq!(
        (first(&a, REQUEST), first(&b, REQUEST)),
        ("q7".into(), "list_tickets".into())
    );
    assert!(b.memory().is_empty().unwrap());
    drop(a);
    data.delete("a").unwrap();
    let again = filled(&data, "a");
    assert_eq!(
        (
            again.memory().switch().unwrap(),
            again.memory().len().unwrap()
        ),
        (Switch::Off, 0)
    );
}

#[test]
fn an_explanation_shows_how_the_memory_moved_a_hit() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()), "a");
    let explain = || {
        let query = Query::new(REQUEST).explain();
        let results = catalog.searcher().search(&query).unwrap();
        let hit = results.hits.into_iter().next().unwrap();
        (hit.id, hit.explain.unwrap())
    };
    let (top, without) = explain();
    assert_eq!((without.memory, without.memory_moved), (None, None));
    catalog.memory().set_switch(Switch::On).unwrap();
    teach(catalog.memory(), REQUEST, "q7", 1);
    let (found, with) = explain();
    assert_ne!(found, top);
    let moved = with.memory_moved.unwrap();
    assert!(moved.before > 1 && moved.after == 1, "{moved:?}");
    if let Some(ranker) = with.ranker {
        assert_eq!(
            ranker.after, moved.before,
            "the ranker's part is apart from the memory's"
        );
    }
}

#[test]
fn an_entry_imported_twice_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let (from, to) = (filled(&data, "a"), filled(&data, "b"));
    from.memory().set_switch(Switch::On).unwrap();
    for at_ms in 1..=3 {
        from.memory()
            .remember(REQUEST, &id("q7"), at_ms, &Source::command_line())
            .unwrap();
    }
    let entries = from.memory().entries(None, 10).unwrap();
    assert_eq!(entries[0].times, 3);
    for _ in 0..2 {
        to.memory().insert(&entries).unwrap();
        assert_eq!(to.memory().entries(None, 10).unwrap(), entries);
    }
}

#[test]
fn a_memory_outlives_the_process_and_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = filled(&data, "a");
    catalog.memory().set_switch(Switch::On).unwrap();
    teach(catalog.memory(), REQUEST, "q7", 1);
    catalog.writer().unwrap().commit().unwrap();
    assert_eq!(first(&catalog, REQUEST), "q7");
    assert_eq!(first(&data.open("a", options()).unwrap(), REQUEST), "q7");
}

#[test]
fn forgotten_requests_are_removed_from_searches_and_from_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = remembering(dir.path());
    let memory = catalog.memory();
    teach(memory, REQUEST, "q7", 1);
    teach(memory, "run the monthly numbers", "q7", 2);
    teach(memory, "run the monthly numbers", "run_report", 3);
    assert_eq!(
        memory
            .forget(&Deletion::Query("run the monthly numbers".into()))
            .unwrap(),
        2
    );
    assert_eq!(memory.forget(&Deletion::Tool(id("run_report"))).unwrap(), 0);
    assert_eq!(memory.forget(&Deletion::Tool(id("q7"))).unwrap(), 1);
    assert_eq!(
        (first(&catalog, REQUEST), memory.len().unwrap()),
        ("list_tickets".into(), 0)
    );
    let bytes = std::fs::read(catalog.path().join(FILE_NAME)).unwrap();
    assert!(
        !String::from_utf8_lossy(&bytes).contains("support queue"),
        "the words are still in the file"
    );
    teach(memory, REQUEST, "q7", 1);
    assert_eq!(
        (
            memory.forget(&Deletion::All).unwrap(),
            memory.len().unwrap()
        ),
        (1, 0)
    );
}

#[test]
fn entries_are_listed_in_pages_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = remembering(dir.path());
    let memory = catalog.memory();
    for (request, at_ms) in [("b", 1), ("a", 2), ("b", 5)] {
        teach(memory, request, "q7", at_ms);
    }
    let entry = |query: &str, times, at_ms| {
        let taught_by = vec![Source::command_line()];
        Entry {
            query: query.into(),
            tool: id("q7"),
            times,
            at_ms,
            taught_by,
        }
    };
    assert_eq!(memory.entries(None, 1).unwrap(), [entry("a", 1, 2)]);
    assert_eq!(
        memory.entries(Some(("a", "s/q7")), 10).unwrap(),
        [entry("b", 2, 5)]
    );
    let error = memory
        .remember(" ", &id("q7"), 1, &Source::command_line())
        .unwrap_err()
        .to_string();
    assert!(error.contains("empty"), "{error}");
}

#[test]
fn the_least_recently_used_entries_are_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()), "a");
    let entry = |number: usize| Entry {
        query: format!("request {number}"),
        tool: id("q7"),
        times: 1,
        at_ms: number as i64,
        taught_by: vec![Source::command_line()],
    };
    let entries: Vec<Entry> = (0..MAX_ENTRIES + 2).map(entry).collect();
    catalog.memory().insert(&entries).unwrap();
    assert_eq!(catalog.memory().len().unwrap(), MAX_ENTRIES);
    assert_eq!(
        catalog
            .memory()
            .forget(&Deletion::Query("request 1".into()))
            .unwrap(),
        0
    );
    assert_eq!(
        catalog
            .memory()
            .forget(&Deletion::Query("request 2".into()))
            .unwrap(),
        1
    );
}

#[test]
fn a_damaged_memory_is_reported_and_searches_work_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    drop(filled(&data, "a"));
    std::fs::write(
        dir.path().join("catalogs/a").join(FILE_NAME),
        "this is no database, it only looks like a file",
    )
    .unwrap();
    let catalog = data.open("a", options()).unwrap();
    assert_eq!(first(&catalog, REQUEST), "list_tickets");
    let error = catalog.memory().len().unwrap_err().to_string();
    assert!(
        error.contains(FILE_NAME) && error.contains("deleting the file"),
        "{error}"
    );
}

#[test]
fn one_key_cannot_flush_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = remembering(dir.path());
    let memory = catalog.memory();
    teach(memory, REQUEST, "q7", 1);
    memory
        .remember("a request of two keys", &id("q7"), 1, &Source::key("other"))
        .unwrap();
    let entry = |number: usize| Entry {
        query: if number == 0 {
            "a request of two keys".into()
        } else {
            format!("request {number}")
        },
        tool: id("run_report"),
        times: 1,
        at_ms: 10 + number as i64,
        taught_by: vec![Source::key("flood")],
    };
    let flood: Vec<Entry> = (0..MAX_ENTRIES_OF_A_KEY + 5).map(entry).collect();
    memory.insert(&flood).unwrap();
    assert_eq!(memory.len().unwrap(), MAX_ENTRIES_OF_A_KEY + 2);
    assert_eq!(
        memory.forget(&Deletion::Query("request 3".into())).unwrap(),
        0
    );
    assert_eq!(
        memory.forget(&Deletion::Query("request 5".into())).unwrap(),
        1
    );
    assert_eq!(first(&catalog, REQUEST), "q7");
}

#[test]
fn one_key_cannot_reduce_the_weight_of_entries_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = remembering(dir.path());
    let memory = catalog.memory();
    teach(memory, REQUEST, "q7", 1);
    let before = recalled(&catalog, "q7");
    assert!(before.is_some());
    for (number, whose) in [
        "his", "her", "my", "your", "their", "its", "one", "this", "that", "each",
    ]
    .iter()
    .enumerate()
    {
        let request = format!("show the open tickets of {whose} support queue");
        memory
            .remember(
                &request,
                &id("run_report"),
                number as i64,
                &Source::key("one"),
            )
            .unwrap();
    }
    assert_eq!(recalled(&catalog, "q7"), before);
}

#[test]
fn embedders_that_the_memory_cannot_be_read_for_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = filled(&DataDir::new(dir.path()), "a");
    let path = catalog.path().join(FILE_NAME);
    std::fs::write(&path, "this is no database, it only looks like a file").unwrap();
    let others = || -> Vec<Arc<dyn Embedder>> { vec![Arc::new(Hashing::new(8))] };
    assert!(catalog.set_options(Options::new(others())).is_err());
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&[Tool::new("s", "later").unwrap()]).unwrap();
    writer.commit().unwrap();
    drop(writer);
    let used = || {
        let results = catalog.searcher().search(&Query::new(REQUEST));
        results.unwrap().embedders
    };
    assert!(used()[0].starts_with("static-table"), "{:?}", used());
    std::fs::remove_file(&path).unwrap();
    catalog.set_options(Options::new(others())).unwrap();
    assert_eq!(catalog.searcher().pending_embeddings(), 5);
}

/// A file of layout 1, as earlier versions wrote it.
#[test]
fn entries_of_an_earlier_version_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = filled(&data, "a");
    catalog.memory().set_switch(Switch::On).unwrap();
    teach(catalog.memory(), REQUEST, "q7", 1);
    let path = catalog.path().join(FILE_NAME);
    drop(catalog);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DROP TABLE teachers; DROP INDEX entries_by_worth;
             ALTER TABLE entries DROP COLUMN in_full; ALTER TABLE entries DROP COLUMN sum;
             UPDATE vectors SET vector = substr(vector, 1, length(vector) - 8);
             PRAGMA user_version = 1",
        )
        .unwrap();
    drop(connection);
    let catalog = data.open("a", options()).unwrap();
    assert_eq!(catalog.memory().problem(), None);
    assert_eq!(first(&catalog, REQUEST), "q7");
    let entries = catalog.memory().entries(None, 10).unwrap();
    assert_eq!(
        serde_json::to_value(&entries[0].taught_by).unwrap(),
        json!(["unknown"])
    );
}

#[test]
fn a_memory_that_follows_another_has_what_that_has() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let [taught, follows] = ["taught", "follows"].map(|name| filled(&data, name));
    let (source, copy) = (taught.memory(), follows.memory());
    source.set_switch(Switch::On).unwrap();
    assert_eq!(copy.followed().unwrap(), None);
    let state = |generation, is_whole| SourceState {
        generation,
        switch: source.switch().unwrap(),
        entries: source.entries(None, MAX_ENTRIES).unwrap(),
        is_whole,
    };
    let entries = |memory: &Memory| memory.entries(None, MAX_ENTRIES).unwrap();
    teach(source, REQUEST, "list_tickets", 1);
    let voter = Source::key("a");
    source.remember(REQUEST, &id("q7"), 2, &voter).unwrap();
    copy.follow(&state(2, true)).unwrap();
    assert_eq!(
        (entries(copy), copy.followed().unwrap()),
        (entries(source), Some(2))
    );
    assert_eq!(
        recalled(&follows, "list_tickets"),
        recalled(&taught, "list_tickets")
    );
    assert!(recalled(&follows, "list_tickets").is_some());

    // An entry that changed, a new one, and one that is not told of.
    teach(source, REQUEST, "list_tickets", 3);
    teach(source, "mail it", "send_email", 4);
    let mut changed = state(4, false);
    changed.entries.retain(|entry| entry.at_ms >= 3);
    copy.follow(&changed).unwrap();
    assert_eq!(entries(copy), entries(source));

    // What is gone is found no more.
    source.forget(&Deletion::Query(REQUEST.to_owned())).unwrap();
    copy.follow(&state(5, true)).unwrap();
    assert_eq!((entries(copy), entries(copy).len()), (entries(source), 1));
    assert_eq!(recalled(&follows, "list_tickets"), None);
    source.set_switch(Switch::Off).unwrap();
    copy.follow(&state(6, false)).unwrap();
    assert_eq!(copy.switch().unwrap(), Switch::Off);
    let reopened = data.open("follows", options()).unwrap();
    assert_eq!(reopened.memory().followed().unwrap(), Some(6));
}
