//! Damaged catalog folders: interrupted creations and deletions, catalogs replaced under an open
//! one, and every kind of damage to every kind of file. Answers are the same as before, or an error
//! or `degraded` gives the reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::child;
use crate::world::{Chance, answer, copy, embed_all, found, fresh, hashing, plain};
use serde_json::Value;
use toolscout_index::embed::{Hashing, StaticTable};
use toolscout_index::memory::{Source, Switch};
use toolscout_index::{
    Catalog, DataDir, Embedder, EmbedderProfile, Error, Mode, Options, Query, Ranker, Result,
    Settings, Tool, ToolId,
};

/// Puts a folder into a state.
type Leave = fn(&Path);
/// A kind of damage to a file; some kinds also need a sibling.
type Damage = fn(&Path, &Path, &mut Chance);

/// Requests whose answers are compared before and after damage.
const REQUESTS: [&str; 3] = [
    "list the calendars",
    "an atachment of tool 7",
    "forecast and then send it",
];
/// A remembered request; it has no word in common with its tool.
const REMEMBERED: &str = "which umbrella do I need tomorrow";

/// Every file below a folder, by path.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if entry.is_dir() {
            found.extend(files(&entry))
        } else {
            found.push(entry)
        }
    }
    found.sort();
    found
}

fn folder(data: &Path) -> PathBuf {
    data.join("catalogs").join("c")
}

fn some(word: &str, count: usize) -> Vec<Tool> {
    (0..count)
        .map(|n| plain("s", &format!("tool_{n}"), &format!("{word} number {n}")))
        .collect()
}

fn write(catalog: &Catalog, tools: &[Tool]) {
    let mut writer = catalog.writer().unwrap();
    writer.upsert(tools).unwrap();
    writer.commit().unwrap();
}

/// Each state in which a killed process may leave a folder while it creates a catalog in it.
const CUT_SHORT: [(&str, Leave); 5] = [
    ("an empty folder", |_| {}),
    ("a lock and no database", |folder| {
        fs::write(folder.join("writer.lock"), "").unwrap()
    }),
    ("an empty database", |folder| {
        fs::write(folder.join("tools.db"), "").unwrap()
    }),
    ("a database without tables", |folder| {
        let connection = rusqlite::Connection::open(folder.join("tools.db")).unwrap();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .unwrap();
    }),
    ("tables that were not committed", |folder| {
        let whole = folder.with_extension("whole");
        fs::create_dir_all(&whole).unwrap();
        let connection = rusqlite::Connection::open(whole.join("tools.db")).unwrap();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .unwrap();
        connection
            .execute_batch("CREATE TABLE meta (key TEXT)")
            .unwrap();
        let log = fs::read(whole.join("tools.db-wal")).unwrap();
        fs::copy(whole.join("tools.db"), folder.join("tools.db")).unwrap();
        fs::write(folder.join("tools.db-wal"), &log[..log.len() - 100]).unwrap();
        drop(connection);
        fs::remove_dir_all(whole).unwrap();
    }),
];

#[test]
fn an_interrupted_creation_is_not_seen_as_a_catalog() {
    for (state, leave) in CUT_SHORT {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        fresh(&data, "other", &some("alpha", 2));
        fs::create_dir_all(folder(dir.path())).unwrap();
        leave(&folder(dir.path()));
        assert_eq!(data.catalogs().unwrap(), ["other"], "{state}");
        assert!(
            matches!(
                data.open("c", hashing()).err(),
                Some(Error::UnknownCatalog { .. })
            ),
            "{state}"
        );
        assert!(
            matches!(data.delete("c"), Err(Error::UnknownCatalog { .. })),
            "{state}"
        );
        let catalog = data
            .open_or_create("c", hashing())
            .unwrap_or_else(|error| panic!("{state}: {error}"));
        write(&catalog, &some("alpha", 2));
        assert_eq!(data.catalogs().unwrap(), ["c", "other"], "{state}");
        data.delete("c").unwrap();
    }
}

#[test]
fn an_interrupted_deletion_does_not_prevent_a_new_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    fresh(&data, "c", &some("alpha", 2));
    // The state of a process that was killed while it deleted file by file.
    data.delete("c").unwrap();
    assert!(!folder(dir.path()).exists());
    let left: Vec<PathBuf> = fs::read_dir(dir.path().join("catalogs"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // The state of one that was killed after it had moved the folder aside and before it was empty.
    fs::create_dir_all(dir.path().join("catalogs/.deleted-c/lexical")).unwrap();
    assert!(data.catalogs().unwrap().is_empty());
    fresh(&data, "c", &some("alpha", 2));
    assert!(
        !dir.path().join("catalogs/.deleted-c").exists(),
        "what was left of a deletion is still there"
    );
}

#[test]
fn an_index_without_its_database_is_an_error_and_not_a_new_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    fresh(&data, "c", &some("alpha", 3));
    let database = folder(dir.path()).join("tools.db");
    for emptied in [false, true] {
        if emptied {
            fs::write(&database, "").unwrap()
        } else {
            fs::remove_file(&database).unwrap()
        };
        for opened in [
            data.open("c", hashing()),
            data.open_or_create("c", hashing()),
        ] {
            let message = opened
                .err()
                .unwrap_or_else(|| panic!("an empty catalog was made of it"))
                .to_string();
            assert!(message.contains(database.to_str().unwrap()), "{message}");
            assert!(
                message.contains("restore it from a backup") && message.contains("delete"),
                "without a next step: {message}"
            );
        }
        assert_eq!(data.catalogs().unwrap(), ["c"], "it is not listed");
    }
    data.delete("c").unwrap();
    assert!(
        data.open_or_create("c", hashing())
            .unwrap()
            .searcher()
            .is_empty()
    );
}

#[test]
fn a_writer_does_not_replace_a_lost_database_by_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = fresh(&DataDir::new(dir.path()), "c", &some("alpha", 3));
    fs::remove_file(folder(dir.path()).join("tools.db")).unwrap();
    assert!(catalog.writer().is_err());
    assert!(!folder(dir.path()).join("tools.db").exists());
}

#[test]
fn a_catalog_that_was_deleted_and_created_again_is_served_in_its_new_state() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let served = fresh(&data, "c", &some("alpha", 3));
    served.memory().set_switch(Switch::On).unwrap();
    served
        .memory()
        .remember(
            REMEMBERED,
            &ToolId::new("s", "tool_1").unwrap(),
            1,
            &Source::command_line(),
        )
        .unwrap();
    data.delete("c").unwrap();
    let anew = fresh(&data, "c", &some("zyzzyva", 3));
    anew.memory().set_switch(Switch::Off).unwrap();
    assert_eq!(
        served.searcher().generation(),
        anew.searcher().generation(),
        "the same number of commits"
    );
    let now = served.refresh().unwrap();
    assert_eq!(found(&now, "zyzzyva", Mode::Lexical).len(), 3);
    assert!(found(&now, "alpha", Mode::Lexical).is_empty());
    assert_eq!(
        (
            served.memory().switch().unwrap(),
            served.memory().len().unwrap()
        ),
        (Switch::Off, 0)
    );
    // And through a writer of the one that was open before.
    data.delete("c").unwrap();
    fresh(&data, "c", &some("third", 3));
    write(&served, &some("fourth", 1));
    let words = ["third", "fourth", "zyzzyva"]
        .map(|word| found(&served.searcher(), word, Mode::Lexical).len());
    assert_eq!(words, [2, 1, 0]);
}

#[test]
fn an_index_of_another_catalog_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    fresh(&data, "c", &some("alpha", 5));
    fresh(&data, "other", &some("beta", 5));
    let other = dir.path().join("catalogs/other/lexical");
    copy(&other, &folder(dir.path()).join("lexical"));
    let catalog = data.open("c", hashing()).unwrap();
    assert_eq!(found(&catalog.searcher(), "alpha", Mode::Lexical).len(), 5);
    assert!(found(&catalog.searcher(), "beta", Mode::Lexical).is_empty());
}

const UNREAD_LOG: &str = "damage::a_log_that_cannot_be_read_is_an_error_and_not_ignored";

#[test]
fn a_log_that_cannot_be_read_is_an_error_and_not_ignored() {
    if let Some(folder) = child::folder() {
        let opened = DataDir::new(&folder).open("c", hashing());
        if !self::folder(&folder).join("tools.db-wal").exists() {
            // Without a log nothing is missing.
            assert_eq!(
                found(&opened.unwrap().searcher(), "zyzzyva", Mode::Lexical),
                ["late/tool"]
            );
            return;
        }
        let message = opened
            .err()
            .expect("it was opened without the last commit")
            .to_string();
        assert!(
            message.contains("tools.db-wal") && message.contains("with write permission"),
            "{message}"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let catalog = fresh(&data, "c", &some("alpha", 3));
    let mut writer = catalog.writer().unwrap();
    writer.upsert(&[plain("late", "tool", "zyzzyva")]).unwrap();
    writer.commit().unwrap();
    // A copy while the log holds the last commit, into a folder that cannot be written.
    let copied = tempfile::tempdir().unwrap();
    copy(dir.path(), copied.path());
    let folder = folder(copied.path());
    assert!(fs::metadata(folder.join("tools.db-wal")).unwrap().len() > 0);
    fs::remove_file(folder.join("tools.db-shm")).unwrap();
    let read_only = r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1""#;
    child::run_mounted(UNREAD_LOG, copied.path(), read_only);
    // Opened once where the folder is writable, the log becomes part of the database.
    let opened = DataDir::new(copied.path()).open("c", hashing()).unwrap();
    drop(opened.writer().unwrap());
    drop(opened);
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(folder.join(format!("tools.db{suffix}")));
    }
    child::run_mounted(UNREAD_LOG, copied.path(), read_only);
}

/// A catalog with a file of every kind but instant vectors: several lexical segments, a graph, a
/// ranker, a memory.
fn whole(data: &DataDir) -> Vec<Value> {
    let catalog = data.open_or_create("c", hashing()).unwrap();
    let chance = &mut Chance::new(3);
    let settings = Settings {
        graph_min_vectors: Some(10),
        ..Settings::default()
    };
    for round in 0..3 {
        let mut writer = catalog.writer().unwrap();
        writer.set_settings(&settings).unwrap();
        let tools: Vec<Tool> = (0..12)
            .map(|_| crate::world::some_tool(chance, "git"))
            .collect();
        let unique = tools
            .into_iter()
            .map(|tool| (tool.id.clone(), tool))
            .collect::<std::collections::BTreeMap<_, _>>();
        writer
            .upsert(&unique.into_values().collect::<Vec<_>>())
            .unwrap();
        writer
            .upsert(&some(
                ["calendar", "attachment", "forecast"][round],
                4 + round,
            ))
            .unwrap();
        writer.commit().unwrap();
    }
    let mut writer = catalog.writer().unwrap();
    embed_all(&mut writer);
    writer
        .set_ranker(Some(&Ranker::bundled().unwrap()))
        .unwrap();
    writer.commit().unwrap();
    drop(writer);
    catalog.memory().set_switch(Switch::On).unwrap();
    for number in 0..8 {
        let tool = ToolId::new("s", &format!("tool_{}", number % 3)).unwrap();
        catalog
            .memory()
            .remember(
                &format!("{REMEMBERED} in place {number}"),
                &tool,
                number,
                &Source::command_line(),
            )
            .unwrap();
    }
    catalog
        .memory()
        .remember(
            REMEMBERED,
            &ToolId::new("s", "tool_2").unwrap(),
            9,
            &Source::command_line(),
        )
        .unwrap();
    drop(catalog);
    answers(&data.open("c", hashing()).unwrap())
}

fn answers(catalog: &Catalog) -> Vec<Value> {
    let texts = REQUESTS.iter().chain([&REMEMBERED]);
    let queries = texts.flat_map(|text| {
        [Mode::Lexical, Mode::Dense, Mode::Hybrid]
            .map(|mode| Query::new(*text).mode(mode).k(20).explain())
    });
    queries
        .map(|query| answer(&catalog.searcher(), &query))
        .collect()
}

/// The kinds of damage. `sibling` is another file of the folder, of the same kind where there
/// is one.
const DAMAGES: [(&str, Damage); 5] = [
    ("cut in half", |file, _, _| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
    }),
    ("zeroed", |file, _, _| {
        let length = fs::read(file).unwrap().len();
        fs::write(file, vec![0; length]).unwrap();
    }),
    ("64 random bytes", |file, _, chance| {
        let mut bytes = fs::read(file).unwrap();
        for _ in 0..64.min(bytes.len()) {
            let place = chance.below(bytes.len());
            bytes[place] = chance.next() as u8;
        }
        fs::write(file, bytes).unwrap();
    }),
    ("swapped with a sibling", |file, sibling, _| {
        let (mine, other) = (fs::read(file).unwrap(), fs::read(sibling).unwrap());
        fs::write(file, other).unwrap();
        fs::write(sibling, mine).unwrap();
    }),
    ("deleted", |file, _, _| fs::remove_file(file).unwrap()),
];

/// The file that a file is swapped with: the next of its kind in its folder, else the next of any
/// kind.
fn sibling<'a>(file: &Path, all: &'a [PathBuf]) -> &'a PathBuf {
    let place = all.iter().position(|other| other == file).unwrap();
    let others = || {
        all[place + 1..]
            .iter()
            .chain(&all[..place])
            .filter(|other| other.parent() == file.parent())
    };
    others()
        .find(|other| other.extension() == file.extension())
        .or_else(|| others().next())
        .unwrap_or(&all[0])
}

/// Compares the answers of a damaged catalog; an error describes the first wrong one.
fn outcome(data: &DataDir, expected: &[Value]) -> std::result::Result<(), String> {
    let catalog = match data.open("c", hashing()) {
        Ok(catalog) => catalog,
        Err(Error::Store { .. } | Error::Io { .. }) => return Ok(()),
        Err(Error::UnknownCatalog { .. }) => return Err("it is not recognised as a catalog".into()),
        Err(error) => return Err(format!("an error of another kind: {error}")),
    };
    let mut forgot = false;
    for (number, (now, before)) in answers(&catalog).iter().zip(expected).enumerate() {
        let reason = now["degraded"]["reason"].as_str().unwrap_or_default();
        forgot |= now["degraded"]["code"] == "memory";
        if now != before
            && !["damaged", "cannot be used", "not embedded"]
                .iter()
                .any(|sign| reason.contains(sign))
        {
            return Err(format!(
                "answer {number} has changed, with reason {reason:?}: {now}\nbefore: {before}"
            ));
        }
    }
    // Missing vectors are computed again. Then only what `degraded` names may still differ.
    embed_all(&mut catalog.writer().map_err(|error| error.to_string())?);
    let healed = data
        .open("c", hashing())
        .map_err(|error| error.to_string())?;
    for (now, before) in answers(&healed).iter().zip(expected) {
        let lacks =
            ["memory", "ranker"].contains(&now["degraded"]["code"].as_str().unwrap_or_default());
        if now != before && !lacks && !forgot {
            return Err(format!("after embedding: {now}\nbefore: {before}"));
        }
    }
    Ok(())
}

#[test]
fn every_kind_of_damage_to_every_file_is_reported_or_changes_no_answer() {
    let seed = std::env::var("TOOLSCOUT_SEED").map_or(5, |seed| seed.parse().unwrap());
    println!("TOOLSCOUT_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let expected = whole(&data);
    let (folder, good) = (folder(dir.path()), dir.path().join("good"));
    copy(&folder, &good);
    let names: Vec<PathBuf> = files(&folder);
    let chance = &mut Chance::new(seed);
    let mut failed = Vec::new();
    for file in &names {
        for (what, damage) in DAMAGES {
            let name = file.strip_prefix(&folder).unwrap().display().to_string();
            // Users may delete these files, so that is no damage.
            if what == "deleted"
                && ["ranker.json", "usage.db", "writer.lock"].contains(&name.as_str())
            {
                continue;
            }
            copy(&good, &folder);
            damage(file, sibling(file, &names), chance);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                outcome(&data, &expected)
            }));
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => failed.push(format!("{name} {what}: {reason:.400}")),
                Err(_) => failed.push(format!("{name} {what}: it panicked")),
            }
        }
    }
    assert!(names.len() > 15, "{names:?}");
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        names.len() * 5,
        failed.join("\n")
    );
}

#[test]
fn random_bytes_in_stored_vectors_are_reported_or_change_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let expected = whole(&data);
    for (file, sql) in [
        (
            "tools.db",
            "UPDATE vectors SET vector = CAST(substr(vector, 1, 8) || randomblob(64) || substr(vector, 73) AS BLOB)",
        ),
        (
            "tools.db",
            "UPDATE vectors SET vector = (SELECT vector FROM vectors ORDER BY rowid LIMIT 1)",
        ),
        (
            "tools.db",
            "UPDATE vectors SET vector = zeroblob(length(vector))",
        ),
        (
            "tools.db",
            "UPDATE tools SET texts = randomblob(length(texts))",
        ),
        (
            "tools.db",
            "DELETE FROM tools WHERE key IN (SELECT max(key) FROM tools)",
        ),
        (
            "usage.db",
            "UPDATE vectors SET vector = CAST(substr(vector, 1, 8) || randomblob(64) || substr(vector, 73) AS BLOB)",
        ),
        ("usage.db", "UPDATE entries SET tool = 's/tool_0'"),
        ("usage.db", "UPDATE flags SET value = 7"),
    ] {
        let good = dir.path().join("good");
        copy(&folder(dir.path()), &good);
        let connection = rusqlite::Connection::open(folder(dir.path()).join(file)).unwrap();
        connection
            .execute_batch(sql)
            .or_else(|_| connection.execute_batch(&sql.replace("'s/tool_0'", "'s/' || id")))
            .unwrap();
        drop(connection);
        if let Err(reason) = outcome(&data, &expected) {
            panic!("{file}, {sql}: {reason}");
        }
        copy(&good, &folder(dir.path()));
    }
}

/// An instant embedder without a table.
struct Instant(Hashing);

impl Embedder for Instant {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            id: "instant/1",
            is_instant: true,
            ..self.0.profile()
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.0.embed_queries(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.0.embed_tools(texts)
    }
}

#[test]
fn a_damaged_file_of_vectors_changes_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let options = || {
        Options::new(vec![
            Arc::new(Instant(Hashing::new(16))) as Arc<dyn Embedder>
        ])
    };
    let catalog = data.open_or_create("c", options()).unwrap();
    write(&catalog, &some("calendar", 1100));
    let expected = answers(&catalog);
    drop(catalog);
    let file = folder(dir.path()).join("instant.vectors");
    let good = fs::read(&file).unwrap();
    let ranker = folder(dir.path()).join("tools.db");
    let database = fs::read(&ranker).unwrap();
    for (what, damage) in DAMAGES
        .iter()
        .filter(|(what, _)| *what != "swapped with a sibling")
    {
        damage(&file, &ranker, &mut Chance::new(5));
        assert_eq!(
            answers(&data.open("c", options()).unwrap()),
            expected,
            "{what}"
        );
        fs::write(&file, &good).unwrap();
    }
    assert_eq!(fs::read(&ranker).unwrap(), database);
    assert!(StaticTable::bundled().is_ok());
}
