use std::sync::Arc;

use futures_util::future::join_all;
use toolscout_index::{Tool, ToolId};

use super::*;
use toolscout_state::catalog_writer::{Change, WriteError};
use toolscout_state::shared::StoreError;

fn catalogs(dir: &tempfile::TempDir, limits: Limits) -> ServedCatalogs {
    ServedCatalogs::new(
        DataDir::new(dir.path()),
        EmbeddersOf::new(Options::default(), None),
        &limits,
        Arc::new(Metrics::new()),
        None,
        None,
    )
}

async fn with_catalogs(names: &[&str], limits: Limits) -> (tempfile::TempDir, ServedCatalogs) {
    let dir = tempfile::tempdir().unwrap();
    let catalogs = catalogs(&dir, limits);
    for name in names {
        catalogs.create(name).await.unwrap();
    }
    (dir, catalogs)
}

fn room_for(catalogs: usize) -> Limits {
    Limits {
        max_open_catalogs: catalogs,
        ..Limits::default()
    }
}

fn upsert(name: &str) -> Change {
    Change::Upsert(vec![Tool::new("s", name).unwrap()])
}

fn open_names(catalogs: &ServedCatalogs) -> Vec<String> {
    let open = catalogs.all_open();
    open.iter().map(|open| open.name.clone()).collect()
}

#[tokio::test]
async fn the_least_recently_used_catalog_makes_room() {
    let (_dir, catalogs) = with_catalogs(&["a", "b", "c"], room_for(3)).await;
    catalogs.get("a").await.unwrap();
    catalogs.create("d").await.unwrap();
    assert_eq!(open_names(&catalogs), ["a", "c", "d"]);
    catalogs.get("c").await.unwrap();
    catalogs.get("b").await.unwrap();
    assert_eq!(open_names(&catalogs), ["b", "c", "d"]);
    let unknown = catalogs.get("unknown").await.err().unwrap();
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(open_names(&catalogs), ["b", "c", "d"], "it needs no room");
}

#[tokio::test]
async fn a_catalog_in_use_is_never_closed() {
    let (_dir, catalogs) = with_catalogs(&["a", "b", "c", "d", "e"], room_for(2)).await;
    let held = catalogs.get("a").await.unwrap();
    for round in 0..3 {
        for name in ["b", "c", "d", "e"] {
            catalogs.get(name).await.unwrap();
            assert!(catalogs.holds(&held), "round {round}, {name}");
        }
        held.writer
            .write(upsert(&format!("t{round}")))
            .await
            .unwrap();
    }
    assert_eq!(held.searcher().len(), 3);
    let _other = catalogs.get("b").await.unwrap();
    let refused = catalogs.get("c").await.err().unwrap();
    assert_eq!(refused.code, "catalogs_in_use");
    drop(held);
    catalogs.get("c").await.unwrap();
}

#[tokio::test]
async fn a_request_waits_a_moment_for_room() {
    let (_dir, catalogs) = with_catalogs(&["a", "b", "c"], room_for(2)).await;
    let held = [
        catalogs.get("a").await.unwrap(),
        catalogs.get("b").await.unwrap(),
    ];
    let release = async {
        tokio::task::yield_now().await;
        drop(held);
    };
    let (opened, ()) = tokio::join!(catalogs.get("c"), release);
    opened.unwrap();
}

#[tokio::test]
async fn open_catalogs_are_bounded_by_their_bytes() {
    let few = Limits {
        max_open_bytes: 300_000,
        ..Limits::default()
    };
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (_dir, catalogs) = with_catalogs(&names, few).await;
    let empty = catalogs.all_open();
    assert!((1..8).contains(&empty.len()), "{}", empty.len());
    assert!(catalogs.open_bytes() <= 300_000);
    drop(empty);
    let large = catalogs.get("a").await.unwrap();
    let before = catalogs.open_bytes();
    let tools = (0..400).map(|number| {
        let tool = Tool::new("s", &format!("t{number}")).unwrap();
        tool.with_description("word ".repeat(100))
    });
    large
        .writer
        .write(Change::Upsert(tools.collect()))
        .await
        .unwrap();
    // It is counted after the client was answered.
    let counted = async {
        while catalogs.open_bytes() < before + 400 * 500 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), counted).await.unwrap();
    // What is larger than all may be is served alone.
    catalogs.get("b").await.unwrap();
    assert_eq!(open_names(&catalogs), ["a", "b"]);
    drop(large);
    catalogs.get("c").await.unwrap();
    assert!(!open_names(&catalogs).contains(&"a".to_owned()));
    assert!(catalogs.open_bytes() <= 300_000);
}

#[tokio::test]
async fn many_requests_for_one_closed_catalog_open_it_once() {
    let (_dir, catalogs) = with_catalogs(&["a", "b", "c"], room_for(2)).await;
    let opened = join_all((0..20).map(|_| catalogs.get("a"))).await;
    let first = opened[0].as_ref().unwrap();
    assert!(
        opened
            .iter()
            .all(|open| Arc::ptr_eq(open.as_ref().unwrap(), first))
    );
}

/// Polls writes once, so that they are queued.
async fn queued<'a>(
    catalog: &'a OpenCatalog,
    count: usize,
) -> Vec<
    std::pin::Pin<
        Box<dyn Future<Output = Result<toolscout_state::catalog_writer::Written, WriteError>> + 'a>,
    >,
> {
    let mut pending: Vec<std::pin::Pin<Box<dyn Future<Output = _> + 'a>>> = Vec::new();
    for number in 0..count {
        let mut write: std::pin::Pin<Box<dyn Future<Output = _> + 'a>> =
            Box::pin(async move { catalog.writer.write(upsert(&format!("t{number}"))).await });
        assert!(futures_util::poll!(&mut write).is_pending());
        pending.push(write);
        tokio::task::yield_now().await;
    }
    pending
}

#[tokio::test]
async fn a_catalog_is_closed_after_what_was_queued() {
    let (_dir, catalogs) = with_catalogs(&["a", "b", "c"], room_for(2)).await;
    let open = catalogs.get("a").await.unwrap();
    // Clients that left: nobody waits for these, and nobody holds the catalog.
    drop(queued(&open, 40).await);
    drop(open);
    for name in ["b", "c"] {
        catalogs.get(name).await.unwrap();
    }
    assert_eq!(open_names(&catalogs), ["b", "c"]);
    assert_eq!(catalogs.get("a").await.unwrap().searcher().len(), 40);
}

#[tokio::test]
async fn a_catalog_is_deleted_after_what_was_queued() {
    let (dir, catalogs) = with_catalogs(&["a", "b"], room_for(2)).await;
    let open = catalogs.get("a").await.unwrap();
    let writes = queued(&open, 40).await;
    catalogs.delete("a").await.unwrap();
    for outcome in join_all(writes).await {
        outcome.unwrap();
    }
    let late = open.writer.write(upsert("late")).await;
    assert!(matches!(late, Err(WriteError::Closed)), "{late:?}");
    assert!(!dir.path().join("catalogs/a").exists());
    let (again, created) = catalogs.create("a").await.unwrap();
    assert_eq!((created, again.searcher().len()), (Created::Now, 0));
    let gone = ToolId::parse("s/t0").unwrap();
    assert!(again.searcher().tool(&gone).is_none());
}

#[tokio::test]
async fn catalogs_whose_tools_are_elsewhere_are_listed_before_they_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = Elsewhere {
        names: ["wiki".to_owned()].into(),
        open: Box::new(|_, _| Err(StoreError::Refused("it is not opened here".to_owned()))),
        runtime: tokio::runtime::Handle::current(),
    };
    let catalogs = ServedCatalogs::new(
        DataDir::new(dir.path()),
        EmbeddersOf::new(Options::default(), None),
        &Limits::default(),
        Arc::new(Metrics::new()),
        None,
        Some(elsewhere),
    );
    catalogs.create("own").await.unwrap();
    let names = catalogs.names().await.unwrap();
    assert_eq!(names.iter().collect::<Vec<_>>(), ["own", "wiki"]);
    assert_eq!(catalogs.summary("wiki").await.unwrap().tools, 0);
}

#[tokio::test]
async fn names_follow_what_other_processes_create_and_delete() {
    let (dir, catalogs) = with_catalogs(&["a", "b"], room_for(2)).await;
    let names = async || {
        let names = catalogs.names().await.unwrap();
        names.iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["a", "b"]);
    let elsewhere = DataDir::new(dir.path());
    drop(elsewhere.open_or_create("c", Options::default()).unwrap());
    assert_eq!(names().await, ["a", "b", "c"]);
    elsewhere.delete("a").unwrap();
    // A creation that is under way.
    std::fs::create_dir(dir.path().join("catalogs/d")).unwrap();
    assert_eq!(names().await, ["b", "c"]);
    drop(elsewhere.open_or_create("d", Options::default()).unwrap());
    assert_eq!(names().await, ["b", "c", "d"]);
    assert_eq!(
        catalogs.get("a").await.err().unwrap().status,
        StatusCode::NOT_FOUND
    );
    catalogs.delete("b").await.unwrap();
    assert_eq!(names().await, ["c", "d"]);
}
