//! The catalog on disk: damage, older states, other models, full and read-only disks, second
//! writers.
//!
//! Damaged derived data (lexical folder, graph) is rebuilt silently; a damaged `tools.db` is an
//! error that names it.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::child;
use crate::world::{
    Chance, SERVERS, answer, assert_alike, copy, embed_all, filled, found, fresh, hashing, plain,
    some_text, some_tools,
};
use serde_json::Value;
use toolscout_index::embed::Hashing;
use toolscout_index::{
    Catalog, DataDir, DegradedCause, Embedder, EmbedderProfile, Error, Mode, Options, Query,
    Result, Searcher, Tool, Writer,
};

fn tools(seed: u64) -> Vec<Tool> {
    let chance = &mut Chance::new(seed);
    SERVERS
        .iter()
        .flat_map(|server| some_tools(chance, server, 30))
        .collect()
}

fn queries() -> Vec<Query> {
    let chance = &mut Chance::new(7);
    let modes = [Mode::Lexical, Mode::Dense, Mode::Hybrid];
    (0..24)
        .map(|number| {
            Query::new(some_text(chance))
                .mode(modes[number % 3])
                .k(20)
                .explain()
        })
        .collect()
}

fn answers(searcher: &Searcher) -> Vec<Value> {
    queries()
        .iter()
        .map(|query| answer(searcher, query))
        .collect()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// A kind of damage to a file.
type Damage = fn(&Path);
/// How a faulty model changes good vectors.
type Fault = fn(Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>>;
/// A change that a writer makes.
type Change<'a> = Box<dyn Fn(&mut Writer) + 'a>;

/// The kinds of damage.
const DAMAGES: [(&str, Damage); 5] = [
    ("deleted", |file| fs::remove_file(file).unwrap()),
    ("emptied", |file| fs::write(file, "").unwrap()),
    ("cut in half", |file| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }),
    ("overwritten", |file| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, vec![0xA5; bytes.len()]).unwrap();
    }),
    ("flipped in the middle", |file| {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        if let Some(byte) = bytes.get_mut(middle) {
            *byte ^= 0xFF;
        }
        fs::write(file, bytes).unwrap();
    }),
];

#[test]
fn every_kind_of_damage_to_a_lexical_folder_leads_to_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(&data, "c", &tools(1)[..20]);
    let answers = |catalog: Catalog| {
        let text = |query: &str| {
            answer(
                &catalog.searcher(),
                &Query::new(query).mode(Mode::Lexical).explain(),
            )
        };
        ["list the calendars", "an atachment"].map(text)
    };
    let lexical = catalog.path().join("lexical");
    let expected = answers(catalog);
    let whole = dir.path().join("whole");
    copy(&lexical, &whole);
    let names: Vec<PathBuf> = files(&whole)
        .iter()
        .map(|file| lexical.join(file.file_name().unwrap()))
        .collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        for (what, damage) in DAMAGES {
            copy(&whole, &lexical);
            damage(&name);
            let reopened = data.open("c", Options::default()).unwrap();
            assert_eq!(answers(reopened), expected, "{} {what}", name.display());
        }
    }
}

#[test]
fn a_damaged_lexical_folder_does_not_stop_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(&data, "c", &tools(1));
    let lexical = catalog.path().join("lexical");
    let broken: [Damage; 3] = [
        |lexical| fs::remove_dir_all(lexical).unwrap(),
        |lexical| fs::write(lexical.join("meta.json"), "{}").unwrap(),
        |lexical| {
            fs::remove_dir_all(lexical).unwrap();
            fs::write(lexical, "a file where a folder belongs").unwrap();
        },
    ];
    for (number, damage) in broken.into_iter().enumerate() {
        damage(&lexical);
        let name = format!("brand_new_{number}");
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&[plain("late", &name, "zyzzyva")]).unwrap();
        writer.commit().unwrap();
        drop(writer);
        let id = format!("late/{name}");
        assert!(
            found(&catalog.searcher(), "zyzzyva", Mode::Lexical).contains(&id),
            "damage {number}"
        );
        let reopened = data.open("c", hashing()).unwrap();
        assert!(
            found(&reopened.searcher(), "zyzzyva", Mode::Lexical).contains(&id),
            "damage {number}, reopened"
        );
    }
}

/// A change of one tool, to this description.
fn upserts(description: &'static str) -> Change<'static> {
    Box::new(move |writer| {
        let tool = plain("new", "tool", description);
        writer.upsert(&[tool]).unwrap();
    })
}

/// A lexical folder is of another state after a crash between the store's commit and the lexical
/// one, and after it was restored from a backup.
#[test]
fn a_lexical_folder_of_another_state_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(&data, "c", &tools(1));
    let lexical = catalog.path().join("lexical");
    let first = tools(1);
    let changes: [(&str, Change<'_>); 4] = [
        ("added", upserts("查询天气 calendar")),
        ("changed", upserts("an invoice")),
        (
            "removed",
            Box::new(|writer| drop(writer.remove(&[first[0].id.clone()]).unwrap())),
        ),
        (
            "exchanged",
            Box::new(|writer| drop(writer.sync("git", &tools(3)[..0]).unwrap())),
        ),
    ];
    for (what, change) in changes {
        let before = tempfile::tempdir().unwrap();
        copy(&lexical, before.path());
        let mut writer = catalog.writer().unwrap();
        change(&mut writer);
        writer.commit().unwrap();
        embed_all(&mut writer);
        drop(writer);
        copy(before.path(), &lexical);
        let reopened = data.open("c", hashing()).unwrap();
        assert_alike(&reopened.searcher(), &catalog.searcher(), &queries(), what);
    }
    let foreign = fresh(&data, "foreign", &tools(9));
    copy(&foreign.path().join("lexical"), &lexical);
    let reopened = data.open("c", hashing()).unwrap();
    assert_alike(
        &reopened.searcher(),
        &catalog.searcher(),
        &queries(),
        "of another catalog",
    );
}

/// Each page of the database is overwritten in turn: either it is not needed, or the error names
/// the file.
#[test]
fn a_damaged_database_is_an_error_that_names_the_file_and_never_a_wrong_answer() {
    const PAGE_BYTES: usize = 4096;
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let long = "an attachment of many words ".repeat(600);
    let catalog = fresh(
        &data,
        "c",
        &[tools(1), vec![plain("long", "text", &long)]].concat(),
    );
    let database = catalog.path().join("tools.db");
    let lexical_answers = |searcher: &Searcher| {
        let text = |query: &str| {
            answer(
                searcher,
                &Query::new(query).mode(Mode::Lexical).k(50).explain(),
            )
        };
        ["an attachment", "查询天气", "list issue"].map(text)
    };
    let expected = lexical_answers(&catalog.searcher());
    drop(catalog);
    assert_eq!(
        fs::metadata(database.with_extension("db-wal")).map_or(0, |log| log.len()),
        0,
        "the log was not moved"
    );
    let whole = fs::read(&database).unwrap();
    let mut refused = 0;
    for page in 0..whole.len() / PAGE_BYTES {
        let mut bytes = whole.clone();
        bytes[page * PAGE_BYTES..(page + 1) * PAGE_BYTES].fill(0xA5);
        fs::write(&database, &bytes).unwrap();
        match data.open("c", Options::default()) {
            Ok(opened) => assert_eq!(lexical_answers(&opened.searcher()), expected, "page {page}"),
            Err(error) => {
                refused += 1;
                assert_names(&error, &database);
            }
        }
        assert_eq!(
            fs::read(&database).unwrap(),
            bytes,
            "page {page}: it was written to"
        );
    }
    assert!(refused >= 5, "only {refused} pages were missed");
}

#[test]
fn a_truncated_or_foreign_database_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(&data, "c", &tools(1));
    let database = catalog.path().join("tools.db");
    drop(catalog);
    let whole = fs::read(&database).unwrap();
    let other: Vec<u8> = b"PK\x03\x04 this is an archive".repeat(400);
    for bytes in [
        &whole[..whole.len() / 2],
        &whole[..100],
        &whole[..10],
        &other,
    ] {
        fs::write(&database, bytes).unwrap();
        for opened in [
            data.open("c", hashing()),
            data.open_or_create("c", hashing()),
        ] {
            let error = opened
                .err()
                .unwrap_or_else(|| panic!("{} bytes were taken for a catalog", bytes.len()));
            assert_names(&error, &database);
        }
        assert_eq!(fs::read(&database).unwrap(), bytes, "it was written to");
    }
}

fn assert_names(error: &Error, database: &Path) {
    assert!(
        matches!(error, Error::Store { path, .. } if path == database),
        "{error:?}"
    );
    assert!(
        error.to_string().contains("restore it from a backup"),
        "without a next step: {error}"
    );
}

#[test]
fn a_newer_layout_is_an_error_that_names_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let database = fresh(&data, "c", &tools(1)).path().join("tools.db");
    rusqlite::Connection::open(&database)
        .unwrap()
        .pragma_update(None, "user_version", 999)
        .unwrap();
    let error = data
        .open("c", hashing())
        .err()
        .expect("layout 999 was read");
    assert!(error.to_string().contains("layout 999"), "{error}");
}

/// A process may be killed while it creates a catalog.
#[test]
fn a_partly_created_catalog_is_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let folder = dir.path().join("catalogs").join("c");
    let leftovers: [Damage; 3] = [
        |_| {},
        |folder| fs::write(folder.join("tools.db"), "").unwrap(),
        |folder| {
            let connection = rusqlite::Connection::open(folder.join("tools.db")).unwrap();
            connection
                .pragma_update(None, "journal_mode", "wal")
                .unwrap();
        },
    ];
    for (number, leave) in leftovers.into_iter().enumerate() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        leave(&folder);
        let catalog = data
            .open_or_create("c", hashing())
            .unwrap_or_else(|error| panic!("leftover {number}: {error}"));
        assert!(catalog.searcher().is_empty());
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&tools(2)).unwrap();
        writer.commit().unwrap();
    }
}

#[test]
fn threads_that_create_the_same_catalog_get_the_same_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    for round in 0..4 {
        let name = format!("c{round}");
        let opened: Vec<Result<Catalog>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| scope.spawn(|| data.open_or_create(&name, Options::default())))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for result in opened {
            assert!(result.unwrap().searcher().is_empty());
        }
    }
}

#[test]
fn a_second_writer_is_locked_out_and_readers_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(&data, "c", &tools(1));
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&[plain("late", "tool", "zyzzyva")]).unwrap();
    let other_catalog = data.open("c", hashing()).unwrap();
    std::thread::scope(|scope| {
        let same = scope.spawn(|| catalog.clone().writer().err());
        let other = scope.spawn(|| other_catalog.writer().err());
        for error in [same.join().unwrap(), other.join().unwrap()] {
            assert!(
                matches!(&error, Some(Error::Locked { path }) if path == catalog.path()),
                "{error:?}"
            );
        }
    });
    let output = child::command("durability::child_meets_a_locked_catalog", dir.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(matches!(data.delete("c"), Err(Error::Locked { .. })));
    writer.commit().unwrap();
    drop(writer);
    other_catalog.refresh().unwrap();
    assert_eq!(
        found(&other_catalog.searcher(), "zyzzyva", Mode::Lexical),
        ["late/tool"]
    );
    assert!(
        other_catalog.writer().is_ok(),
        "the lock outlived its writer"
    );
}

#[test]
fn child_meets_a_locked_catalog() {
    let Some(folder) = child::folder() else {
        return;
    };
    let catalog = DataDir::new(folder).open("c", hashing()).unwrap();
    assert!(matches!(catalog.writer().err(), Some(Error::Locked { .. })));
    assert!(!catalog.searcher().is_empty());
    assert!(!found(&catalog.searcher(), "list issue", Mode::Hybrid).is_empty());
    assert!(
        found(&catalog.searcher(), "zyzzyva", Mode::Lexical).is_empty(),
        "what is not committed was seen"
    );
}

/// Counts the texts it embeds.
struct Counting {
    inner: Hashing,
    texts: AtomicUsize,
}

impl Counting {
    fn new(dimensions: usize) -> Arc<Self> {
        Arc::new(Counting {
            inner: Hashing::new(dimensions),
            texts: AtomicUsize::new(0),
        })
    }

    fn options(self: &Arc<Self>) -> Options {
        Options::new(vec![Arc::clone(self) as Arc<dyn Embedder>])
    }
}

impl Embedder for Counting {
    fn profile(&self) -> EmbedderProfile<'_> {
        // The same id for all dimensions, as if a model's files had been exchanged.
        EmbedderProfile {
            id: "counting",
            ..self.inner.profile()
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.texts.fetch_add(texts.len(), Ordering::Relaxed);
        self.inner.embed_tools(texts)
    }
}

#[test]
fn vectors_of_other_dimensions_are_computed_and_the_old_ones_kept() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let (wide, narrow) = (Counting::new(64), Counting::new(16));
    let catalog = filled(&data, "c", wide.options(), &tools(1));
    let texts = embed_all(&mut catalog.writer().unwrap());
    let expected = answers(&catalog.searcher());

    let other = data.open("c", narrow.options()).unwrap();
    let searcher = other.searcher();
    assert_eq!(searcher.pending_embeddings(), searcher.len());
    let results = searcher.search(&Query::new("send an invoice")).unwrap();
    let degraded = results
        .degraded
        .expect("tools without vectors are reported");
    assert!(
        matches!(degraded.cause, DegradedCause::NotEmbedded { .. }),
        "{}",
        degraded.cause
    );
    assert!(!results.hits.is_empty());
    assert_eq!(embed_all(&mut other.writer().unwrap()), texts);
    assert_eq!(narrow.texts.load(Ordering::Relaxed), texts);
    assert_eq!(other.searcher().pending_embeddings(), 0);

    let back = data.open("c", wide.options()).unwrap();
    assert_eq!(embed_all(&mut back.writer().unwrap()), 0);
    assert_eq!(answers(&back.searcher()), expected);
}

#[test]
fn texts_of_an_older_template_are_embedded_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let embedder = Counting::new(64);
    let catalog = filled(&data, "c", embedder.options(), &tools(1));
    let texts = embed_all(&mut catalog.writer().unwrap());
    let expected = answers(&catalog.searcher());
    let database = catalog.path().join("tools.db");
    drop(catalog);
    // A program with another template has written other hashes, for tools and vectors alike.
    let connection = rusqlite::Connection::open(database).unwrap();
    connection
        .execute_batch(
            "UPDATE meta SET value = '0' WHERE key = 'template_version';
             UPDATE tools SET texts = randomblob(32);
             UPDATE vectors SET text = randomblob(16);",
        )
        .unwrap();
    drop(connection);
    let catalog = data.open("c", embedder.options()).unwrap();
    let mut writer = catalog.writer().unwrap();
    assert_eq!(embed_all(&mut writer), texts);
    drop(writer);
    assert_eq!(answers(&catalog.searcher()), expected);
    assert_eq!(
        answers(&data.open("c", embedder.options()).unwrap().searcher()),
        expected
    );
}

/// Fails in its third batch, or gives vectors of another length.
struct Faulty {
    inner: Hashing,
    batches: AtomicUsize,
    fault: Fault,
}

impl Embedder for Faulty {
    fn profile(&self) -> EmbedderProfile<'_> {
        self.inner.profile()
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.inner.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let vectors = self.inner.embed_tools(texts)?;
        if self.batches.fetch_add(1, Ordering::Relaxed) < 2 {
            Ok(vectors)
        } else {
            (self.fault)(vectors)
        }
    }
}

#[test]
fn batches_before_a_failure_of_the_model_are_kept() {
    let faults: [(&str, Fault); 2] = [
        ("broken", |_| {
            Err(Error::Embedder {
                model: "double".into(),
                reason: "it is broken".into(),
            })
        }),
        ("32 dimensions where 64", |vectors| {
            Ok(vectors
                .into_iter()
                .map(|vector| vector[..32].to_vec())
                .collect())
        }),
    ];
    for (expected, fault) in faults {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let faulty = Faulty {
            inner: Hashing::new(64),
            batches: AtomicUsize::new(0),
            fault,
        };
        let catalog = data
            .open_or_create("c", Options::new(vec![Arc::new(faulty)]))
            .unwrap();
        let mut writer = catalog.writer().unwrap();
        let many: Vec<Tool> = (0..60)
            .map(|n| plain("s", &format!("tool_{n}"), &format!("number {n}")))
            .collect();
        writer.upsert(&many).unwrap();
        writer.commit().unwrap();
        let mut total = 0;
        let error = writer.embed_pending(&mut |progress| {
            total = progress.total;
            ControlFlow::Continue(())
        });
        let message = error.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        drop(writer);
        let kept = catalog.stats().unwrap().vectors[0].1;
        assert!(kept > 0 && kept < total, "{kept} of {total}");
        assert!(
            catalog
                .searcher()
                .search(&Query::new("number"))
                .unwrap()
                .degraded
                .is_some()
        );
        let whole = data.open("c", hashing()).unwrap();
        assert_eq!(embed_all(&mut whole.writer().unwrap()), total - kept);
    }
}

const READ_ONLY: &str = "durability::a_read_only_data_directory_is_searched_and_not_written";

#[test]
fn a_read_only_data_directory_is_searched_and_not_written() {
    let Some(folder) = child::folder() else {
        let dir = tempfile::tempdir().unwrap();
        let catalog = fresh(&DataDir::new(dir.path()), "c", &tools(1));
        let read_only = r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1""#;
        // With the log of an open connection beside the database, without it, and without the
        // lexical folder.
        child::run_mounted(READ_ONLY, dir.path(), read_only);
        let lexical = catalog.path().join("lexical");
        drop(catalog);
        child::run_mounted(READ_ONLY, dir.path(), read_only);
        fs::remove_dir_all(lexical).unwrap();
        child::run_mounted(READ_ONLY, dir.path(), read_only);
        return;
    };
    let data = DataDir::new(&folder);
    let catalog = data.open("c", hashing()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let same = fresh(&DataDir::new(elsewhere.path()), "c", &tools(1));
    assert_alike(
        &catalog.searcher(),
        &same.searcher(),
        &queries(),
        "read-only",
    );
    catalog.refresh().unwrap();
    for error in [
        catalog.writer().err(),
        data.open_or_create("other", hashing()).err(),
        data.delete("c").err(),
    ] {
        let message = error.expect("a read-only folder was written").to_string();
        assert!(message.contains(folder.to_str().unwrap()), "{message}");
        assert!(
            message.contains("make its folder readable and writable"),
            "without a next step: {message}"
        );
    }
}

const FULL_DISK: &str = "durability::a_full_disk_undoes_only_the_change_that_failed";

#[test]
fn a_full_disk_undoes_only_the_change_that_failed() {
    let Some(folder) = child::folder() else {
        let dir = tempfile::tempdir().unwrap();
        child::run_mounted(
            FULL_DISK,
            dir.path(),
            r#"mount -t tmpfs -o size=4m tmpfs "$1""#,
        );
        return;
    };
    let data = DataDir::new(folder.join("data"));
    let ballast = folder.join("ballast");
    let mut survivors = tools(1);
    let catalog = fresh(&data, "c", &survivors);
    let mut writer = catalog.writer().unwrap();
    let mut refused = 0;
    for room_kib in [0, 16, 64, 96, 128, 192, 320] {
        fill(&ballast, room_kib);
        let text = |n: usize| {
            format!(
                "attempt {room_kib} of tool {n} {}",
                "attachment of an invoice ".repeat(40)
            )
        };
        let batch: Vec<Tool> = (0..60)
            .map(|n| plain("late", &format!("tool_{room_kib}_{n}"), &text(n)))
            .collect();
        match writer.upsert(&batch).and_then(|_| writer.commit()) {
            Ok(_) => survivors.extend(batch),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("full"), "{error}");
            }
        }
        fs::remove_file(&ballast).unwrap();
        let mut expected: Vec<String> = survivors.iter().map(|tool| tool.id.to_string()).collect();
        expected.sort();
        assert_eq!(
            crate::world::ids(&catalog.searcher()),
            expected,
            "with {room_kib} KiB left"
        );
        let reopened = data.open("c", hashing()).unwrap();
        let place = format!("{room_kib} KiB left, reopened");
        assert_alike(
            &reopened.searcher(),
            &catalog.searcher(),
            &queries()[..6],
            &place,
        );
    }
    assert!(refused > 0, "the disk was never full");
    // The same writer works again once there is room.
    writer
        .upsert(&[plain("late", "after_all", "zyzzyva")])
        .unwrap();
    writer.commit().unwrap();
    assert_eq!(
        found(
            &data.open("c", hashing()).unwrap().searcher(),
            "zyzzyva",
            Mode::Lexical
        ),
        ["late/after_all"]
    );
}

/// Writes a file until the disk is full, then frees this much room.
fn fill(ballast: &Path, room_kib: u64) {
    use std::io::Write;
    let mut file = fs::File::create(ballast).unwrap();
    while file.write_all(&[0; 1024]).is_ok() {}
    let full = file.metadata().unwrap().len();
    file.set_len(full.saturating_sub(room_kib * 1024)).unwrap();
}
