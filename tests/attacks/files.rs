//! Who may read what is kept, whether a record was cut, and what is left of a catalog that was
//! deleted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use toolscout::feedback::FeedbackStore;
use toolscout::gate::AuditLog;
use toolscout::gate::audit::Entry;
use toolscout::tools::Status;

use super::run::{Serving, World};
use super::table::{Attack, Section};

pub const SECTION: Section = Section {
    title: "Files",
    attacks: &[
        Attack {
            tried: "Reading databases, their logs and folders as another user, made under the umask 000",
            happens: "Folders are 0700 and databases 0600, `-wal` and `-shm` too, whatever the umask",
            test: "what_is_made_is_the_owners_alone",
        },
        Attack {
            tried: "Reading a data folder of an earlier version that others may read",
            happens: "Folders and databases are narrowed at the next start, with a warning",
            test: "wider_permissions_are_narrowed_with_a_warning",
        },
        Attack {
            tried: "Reading the lock of a server, with its process and address",
            happens: "The folder and the lock are the owner's alone, whatever the umask; a wider lock of an earlier version is narrowed",
            test: "folder_and_lock_are_their_owners_alone",
        },
        Attack {
            tried: "Cutting the newest entries off the audit log",
            happens: "`audit verify` says how many are missing, without `--head`",
            test: "a_cut_tail_of_the_audit_log_shows_without_a_head",
        },
        Attack {
            tried: "Cutting the audit log and its anchor, or writing the log anew with a chain that fits",
            happens: "The anchor's code (HMAC) or hash does not fit, or the anchor is missing; `audit verify` says which",
            test: "an_anchor_cannot_be_forged_taken_away_or_outgrown",
        },
        Attack {
            tried: "Looking for users' queries after their catalog was deleted at the command line",
            happens: "Its memory and its feedback are gone from every file",
            test: "a_deleted_catalog_leaves_no_query_behind",
        },
        Attack {
            tried: "The same after it was deleted over HTTP, while the server runs on",
            happens: "They are gone from every file, the database's log included",
            test: "a_catalog_deleted_over_http_leaves_no_query_behind",
        },
        Attack {
            tried: "Giving a named pipe, a link to one or a device to `add`, `sync`, `eval`, `memory import`, `words set`, `sync --mcp`, `--profile`, `--config` or `--llm`, or a folder with one in it",
            happens: "Only regular files and standard input are read; a pipe that nobody writes to and `/dev/zero` end at once with an error that names the path",
            test: "commands_read_regular_files_alone",
        },
    ],
};

/// The program as one would start it who has set no umask at all.
fn open_to_all(world: &World, args: &[&str]) -> Command {
    let plain = world.command();
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 000; exec \"$0\" \"$@\""])
        .arg(plain.get_program())
        .args(args);
    command.env_clear().current_dir(world.dir.path());
    let variables = plain
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    command.envs(variables).stdin(Stdio::null());
    command
}

fn everything(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path))
        } else {
            found.push(path)
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn is_database(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    [".db", ".sqlite", "-wal", "-shm", ".key", ".anchor"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Folders and databases that somebody else may use.
fn open_ones(data: &Path) -> Vec<String> {
    let mut open = Vec::new();
    for path in everything(data) {
        let bad = if path.is_dir() {
            mode(&path) != 0o700
        } else {
            is_database(&path) && mode(&path) != 0o600
        };
        if bad {
            open.push(format!(
                "{} {:o}",
                path.strip_prefix(data).unwrap().display(),
                mode(&path)
            ));
        }
    }
    open
}

#[test]
fn what_is_made_is_the_owners_alone() {
    let world = World::new();
    let tools = world.file(
        "tools.json",
        r#"[{"server":"s","name":"t","description":"Does it.","inputSchema":{}}]"#,
    );
    let script = world.file("s.jsonl", "{\"reply\":{\"text\":\"done\"}}\n");
    let script = format!("script:{}", script.display());
    for args in [
        vec!["add", tools.to_str().unwrap()],
        vec!["memory", "on"],
        vec!["memory", "add", "s/t", "do it"],
        vec!["agent", "--llm", &script, "go"],
        vec![
            "keys",
            "create",
            "--scope",
            "search",
            "--catalogs",
            "default",
        ],
    ] {
        assert!(
            open_to_all(&world, &args)
                .output()
                .unwrap()
                .status
                .success(),
            "{args:?}"
        );
    }
    // While it serves, its databases have their logs beside them.
    let _serving = Serving::start(open_to_all(
        &world,
        &["serve", "--listen", "127.0.0.1:0", "--llm", &script],
    ));
    let data = world.path("data");
    let databases = everything(&data)
        .into_iter()
        .filter(|path| is_database(path))
        .count();
    assert!(databases > 5, "{:?}", everything(&data));
    assert_eq!(open_ones(&data), Vec::<String>::new());
}

#[test]
fn wider_permissions_are_narrowed_with_a_warning() {
    let world = World::with_tools(&[super::run::tool("s", "t", "Does it.")]);
    let data = world.path("data");
    for path in everything(&data) {
        fs::set_permissions(
            &path,
            Permissions::from_mode(if path.is_dir() { 0o755 } else { 0o644 }),
        )
        .unwrap();
    }
    let ended = world.run(&["list"]);
    assert!(
        ended.stderr.contains("warning: ") && ended.stderr.contains("could be read by others"),
        "{}",
        ended.stderr
    );
    assert_eq!(open_ones(&data), Vec::<String>::new());
    assert_eq!(
        world.run(&["list"]).stderr.matches("could be read").count(),
        0,
        "it is said once"
    );
}

fn log_of(entries: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.db");
    let log = AuditLog::open(&path).unwrap();
    for took_ms in 0..entries {
        let tool = "a/b".to_owned();
        log.append(&Entry::Ended {
            time_ms: 1,
            begun: 1,
            tool,
            status: Status::Ok,
            error_code: None,
            took_ms,
        })
        .unwrap();
    }
    (folder, path)
}

/// Edits a log as somebody with the file in hands would.
fn tamper(path: &Path, sql: &str) {
    let log = rusqlite::Connection::open(path).unwrap();
    log.execute_batch("DROP TRIGGER entries_are_not_changed; DROP TRIGGER entries_are_not_deleted")
        .unwrap();
    log.execute_batch(sql).unwrap();
}

fn verified(path: &Path) -> Result<i64, String> {
    let log = AuditLog::open_existing(path).map_err(|error| error.to_string())?;
    log.verify(None)
        .map(|verified| verified.entries)
        .map_err(|error| error.to_string())
}

#[test]
fn a_cut_tail_of_the_audit_log_shows_without_a_head() {
    let (_folder, path) = log_of(5);
    assert_eq!(verified(&path), Ok(5));
    tamper(&path, "DELETE FROM entries WHERE seq > 3");
    let message = verified(&path).expect_err("two entries are missing");
    assert!(
        message.contains('5') && message.contains('3') && message.contains("cut off"),
        "{message}"
    );
}

#[test]
fn an_anchor_cannot_be_forged_taken_away_or_outgrown() {
    let anchor = |path: &Path| path.with_file_name("audit.anchor");
    let (_folder, path) = log_of(5);
    fs::remove_file(anchor(&path)).unwrap();
    assert!(verified(&path).unwrap_err().contains("audit.anchor"));

    let (_folder, path) = log_of(5);
    let (_other, shorter) = log_of(3);
    fs::copy(anchor(&shorter), anchor(&path)).unwrap();
    assert!(
        verified(&path)
            .unwrap_err()
            .contains("was not written by this installation")
    );

    // A log cut short is not made good by the entries that come after.
    let (_folder, path) = log_of(5);
    tamper(&path, "DELETE FROM entries WHERE seq > 2");
    let log = AuditLog::open(&path).unwrap();
    for took_ms in 0..9 {
        let tool = "a/b".to_owned();
        let entry = Entry::Ended {
            time_ms: 2,
            begun: 1,
            tool,
            status: Status::Ok,
            error_code: None,
            took_ms,
        };
        assert!(log.append(&entry).is_ok(), "calls go on");
    }
    drop(log);
    let message = verified(&path).unwrap_err();
    assert!(
        message.contains("5") && message.contains("rewritten"),
        "{message}"
    );
}

const QUERY: &str = "zebra invoices of march";

/// A world in which the users of two catalogs have asked something; `default` has a memory too.
fn asked() -> World {
    let world = World::with_tools(&[super::run::tool("s", "t", "Does it.")]);
    world.ok(&["memory", "on"]);
    world.ok(&["memory", "add", "s/t", &format!("default {QUERY}")]);
    let data = world.path("data");
    drop(FeedbackStore::open(&data).unwrap());
    let feedback = rusqlite::Connection::open(data.join("feedback.db")).unwrap();
    for catalog in ["default", "other"] {
        let row = "INSERT INTO feedback (catalog, at_ms, request_id, tool, outcome, query)
                   VALUES (?1, 1, 'r', 's/t', 'used', ?2)";
        feedback
            .execute(row, [catalog, &format!("{catalog} {QUERY}")])
            .unwrap();
    }
    drop(feedback);
    assert_eq!(holding(&data, &format!("default {QUERY}")).len(), 2);
    world
}

/// The files that hold a text anywhere in their bytes.
fn holding(data: &Path, wanted: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .windows(wanted.len())
            .any(|window| window == wanted.as_bytes())
    };
    everything(data)
        .into_iter()
        .filter(|path| path.is_file())
        .filter(holds)
        .collect()
}

fn only_the_other_is_left(data: &Path) {
    assert_eq!(
        holding(data, &format!("default {QUERY}")),
        Vec::<PathBuf>::new()
    );
    assert_eq!(
        holding(data, &format!("other {QUERY}")).len(),
        1,
        "other catalogs keep theirs"
    );
    assert!(!data.join("catalogs/default").exists());
}

#[test]
fn a_deleted_catalog_leaves_no_query_behind() {
    let world = asked();
    world.ok(&["catalogs", "delete", "default", "--yes"]);
    only_the_other_is_left(&world.path("data"));
}

#[test]
fn a_catalog_deleted_over_http_leaves_no_query_behind() {
    let world = asked();
    let mut command = world.command();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let serving = Serving::start(command);
    let deleted = serving
        .client()
        .delete(format!("{}/v1/catalogs/default", serving.address))
        .send()
        .unwrap();
    assert_eq!(deleted.status(), 204, "{}", deleted.text().unwrap());
    only_the_other_is_left(&world.path("data"));
}

#[test]
fn commands_read_regular_files_alone() {
    let world = World::new();
    world.file("set/tools.jsonl", r#"{"name":"a","description":"A tool"}"#);
    world.ok(&["add", "set/tools.jsonl"]);
    world.file(
        "folder/tools.json",
        r#"[{"name":"b","description":"Another tool"}]"#,
    );
    for pipe in ["pipe", "set/queries.jsonl", "folder/pipe.json"] {
        let made = Command::new("mkfifo").arg(world.path(pipe)).status();
        assert!(made.unwrap().success());
    }
    std::os::unix::fs::symlink(world.path("pipe"), world.path("link.json")).unwrap();
    for path in ["pipe", "link.json", "/dev/zero"] {
        for command in [
            ["add"].as_slice(),
            &["sync", "--server", "s"],
            &["sync", "--mcp"],
            &["memory", "import"],
            &["words", "set"],
            &["agent", "a question", "--profile"],
            &["agent", "a question", "--llm"],
            &["list", "--config"],
        ] {
            let ended = world.run(&[command, &[path]].concat());
            assert_ne!(ended.code, 0, "{command:?} {path}");
            assert!(ended.stderr.contains(path), "{command:?}: {}", ended.stderr);
        }
    }
    world.fails(3, &["eval", "set"], &["queries.jsonl"]);
    // Beside others in a folder it is passed over.
    world.ok(&["add", "folder"]);
}
