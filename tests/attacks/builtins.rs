//! Attacks on the built-in tools: each row is one, with what comes of it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use toolscout::tools::builtin::fetch::{FetchConfig, WebFetch};
use toolscout::tools::builtin::files::FilesConfig;
use toolscout::tools::builtin::shell::{Shell, ShellConfig};
use toolscout::tools::builtin::{BuiltinConfig, BuiltinError};
use toolscout::tools::net::Lookup;
use toolscout::tools::{Callable, Registry, ToolFailure, Toolset};
use toolscout_index::ToolId;

use super::table::Table;

async fn call(tool: &dyn Callable, arguments: Value) -> Result<Value, String> {
    let arguments = arguments.as_object().expect("an object").clone();
    tool.call(arguments)
        .await
        .map_err(|ToolFailure { message }| message)
}

// Files

/// A root with traps in it, and a secret beside it.
struct Files {
    folder: tempfile::TempDir,
    registry: Registry,
}

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("root/sub")).unwrap();
        std::fs::create_dir(at("outside")).unwrap();
        for (path, text) in [
            ("outside/secret.txt", "SECRET"),
            ("root/notes.txt", "notes"),
            ("root/zero.bin", "a\0b"),
        ] {
            std::fs::write(at(path), text).unwrap();
        }
        for (target, link) in [
            (at("outside").to_str().unwrap(), "root/link_folder"),
            (at("outside/secret.txt").to_str().unwrap(), "root/link_file"),
            ("../../outside", "root/sub/link_up"),
            ("/proc/self/root", "root/link_proc"),
            ("/dev/zero", "root/link_device"),
            ("loop_b", "root/loop_a"),
            ("loop_a", "root/loop_b"),
            ("../outside/new.txt", "root/dangling"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        std::fs::hard_link(at("outside/secret.txt"), at("root/hard")).unwrap();
        assert!(
            std::process::Command::new("mkfifo")
                .arg(at("root/pipe"))
                .status()
                .unwrap()
                .success()
        );
        let root = at("root").to_str().unwrap().to_owned();
        let files = FilesConfig {
            root,
            write: true,
            max_write_bytes: 1_000,
        };
        let registry = BuiltinConfig {
            files: Some(files),
            ..BuiltinConfig::default()
        }
        .registry(|_| None)
        .unwrap();
        Files { folder, registry }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        call(
            self.registry
                .find(&ToolId::parse(tool).unwrap())
                .unwrap()
                .as_ref(),
            arguments,
        )
        .await
    }

    async fn read(&self, path: &str) -> Result<Value, String> {
        self.call("file_read", json!({ "path": path })).await
    }

    async fn write(&self, path: &str, mode: &str) -> Result<Value, String> {
        self.call(
            "file_write",
            json!({ "path": path, "content": "attack", "mode": mode }),
        )
        .await
    }

    async fn list(&self, path: &str) -> Result<Value, String> {
        self.call("file_list", json!({ "path": path })).await
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }
}

#[tokio::test]
async fn files_cannot_leave_their_root() {
    let files = Files::new();
    let mut table = Table::new("Against files", "files_cannot_leave_their_root");
    let long = "x/".repeat(5_000);
    let absolute = |path: &str| files.at(path).to_str().unwrap().to_owned();
    let above = absolute("root/../outside/secret.txt");
    let beside = absolute("outside/secret.txt");
    let through_link = absolute("root/link_folder/secret.txt");
    for (name, path, expected) in [
        ("read above the root", "../outside/secret.txt", "is outside"),
        ("read an absolute path", "/etc/passwd", "is outside"),
        ("read an absolute path above the root", &above, "is outside"),
        (
            "read an absolute path beside the root",
            &beside,
            "is outside",
        ),
        (
            "read an absolute path through a link to a folder",
            &through_link,
            "leads outside",
        ),
        (
            "read through a folder and up",
            "sub/../../outside/secret.txt",
            "is outside",
        ),
        (
            "read through a link to a folder",
            "link_folder/secret.txt",
            "leads outside",
        ),
        ("read a link to a file", "link_file", "leads outside"),
        (
            "read through a relative link up",
            "sub/link_up/secret.txt",
            "leads outside",
        ),
        (
            "read through /proc",
            "link_proc/etc/passwd",
            "leads outside",
        ),
        ("read a link to a device", "link_device", "leads outside"),
        ("read a pipe without waiting", "pipe", "not a plain file"),
        ("read a folder", "sub", "not a plain file"),
        ("read links in a circle", "loop_a", "cannot be used"),
        ("read an empty path", "", "is not a valid path"),
        (
            "read a path with a NUL",
            "notes.txt\0.png",
            "is not a valid path",
        ),
        ("read an endless path", &long, "cannot be used"),
        ("read bytes as text", "zero.bin", "is not a text file"),
        ("read what is not there", "nothing", "there is no"),
        ("read a Windows path", "C:\\secret.txt", "there is no"),
        (
            "read an encoded path",
            "%2e%2e/outside/secret.txt",
            "there is no",
        ),
    ] {
        table.refused(name, files.read(path).await, expected);
    }
    for (name, path, mode, expected) in [
        (
            "write above the root",
            "../outside/new.txt",
            "create",
            "is outside",
        ),
        (
            "write an absolute path",
            "/tmp/toolscout-attack",
            "create",
            "is outside",
        ),
        (
            "write through a link to a folder",
            "link_folder/new.txt",
            "create",
            "leads outside",
        ),
        (
            "overwrite through a link to a file",
            "link_file",
            "overwrite",
            "leads outside",
        ),
        (
            "append through a link to a file",
            "link_file",
            "append",
            "leads outside",
        ),
        (
            "create through a link to nothing",
            "dangling",
            "create",
            "already exists",
        ),
        (
            "overwrite through a link to nothing",
            "dangling",
            "overwrite",
            "leads outside",
        ),
        ("overwrite a hard link", "hard", "overwrite", "2 names"),
        ("append to a hard link", "hard", "append", "2 names"),
        ("write to a pipe", "pipe", "overwrite", ""),
        (
            "create what is there",
            "notes.txt",
            "create",
            "already exists",
        ),
        ("write into a folder", "sub", "overwrite", "cannot be used"),
    ] {
        table.refused(name, files.write(path, mode).await, expected);
    }
    for (name, path, expected) in [
        ("list above the root", "..", "is outside"),
        ("list the whole disk", "/", "is outside"),
        ("list a link to a folder", "link_folder", "leads outside"),
    ] {
        table.refused(name, files.list(path).await, expected);
    }
    let huge = files
        .call(
            "file_write",
            json!({ "path": "huge", "content": "x".repeat(1_001) }),
        )
        .await;
    table.refused(
        "write more than allowed",
        huge,
        "1001 bytes, 1000 are allowed",
    );
    table.check(37);
    assert_eq!(
        std::fs::read_to_string(files.at("outside/secret.txt")).unwrap(),
        "SECRET"
    );
    assert!(!files.at("outside/new.txt").exists() && !Path::new("/tmp/toolscout-attack").exists());
}

#[tokio::test]
async fn a_link_made_after_the_check_leads_nowhere() {
    let files = Files::new();
    assert_eq!(files.read("notes.txt").await.unwrap()["text"], "notes");
    std::fs::remove_file(files.at("root/notes.txt")).unwrap();
    std::os::unix::fs::symlink(files.at("outside/secret.txt"), files.at("root/notes.txt")).unwrap();
    assert!(
        files
            .read("notes.txt")
            .await
            .unwrap_err()
            .contains("leads outside")
    );
    assert!(
        files
            .write("notes.txt", "overwrite")
            .await
            .unwrap_err()
            .contains("leads outside")
    );
    // A folder that is swapped while it is used: whoever wins, what is outside is not read.
    let swapping = {
        let (root, outside) = (files.at("root"), files.at("outside"));
        std::thread::spawn(move || {
            for _ in 0..200 {
                std::os::unix::fs::symlink(&outside, root.join("flip")).unwrap();
                std::fs::remove_file(root.join("flip")).unwrap();
                std::fs::create_dir(root.join("flip")).unwrap();
                std::fs::write(root.join("flip/secret.txt"), "inside").unwrap();
                std::fs::remove_dir_all(root.join("flip")).unwrap();
            }
        })
    };
    while !swapping.is_finished() {
        if let Ok(read) = files.read("flip/secret.txt").await {
            assert!(
                matches!(read["text"].as_str(), Some("inside" | "")),
                "{read}"
            );
        }
    }
    swapping.join().unwrap();
}

#[tokio::test]
async fn files_inside_the_root_are_read_written_and_listed() {
    let files = Files::new();
    assert_eq!(
        files.write("sub/new.md", "create").await.unwrap()["written_bytes"],
        6
    );
    files.write("sub/new.md", "append").await.unwrap();
    let read = files
        .call(
            "file_read",
            json!({ "path": "sub/new.md", "offset": 3, "max_bytes": 4 }),
        )
        .await
        .unwrap();
    assert_eq!(
        read,
        json!({ "path": "sub/new.md", "size_bytes": 12, "text": "acka", "next_offset": 7 })
    );
    files.write("sub/new.md", "overwrite").await.unwrap();
    assert_eq!(files.read("sub/new.md").await.unwrap()["text"], "attack");
    let listed = files.list(".").await.unwrap();
    let kind = |name: &str| {
        let entries = listed["entries"].as_array().unwrap();
        entries.iter().find(|entry| entry["name"] == name).unwrap()["kind"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let kinds = [
        kind("notes.txt"),
        kind("sub"),
        kind("link_file"),
        kind("pipe"),
    ];
    assert_eq!(kinds, ["file", "folder", "link", "device or pipe"]);
}

#[test]
fn a_root_that_is_not_there_is_said_and_writing_is_off_until_it_is_switched_on() {
    let files = FilesConfig {
        root: "/nowhere".into(),
        write: false,
        max_write_bytes: 1,
    };
    let config = BuiltinConfig {
        files: Some(files),
        ..BuiltinConfig::default()
    };
    assert!(matches!(
        config.registry(|_| None),
        Err(BuiltinError::Root { .. })
    ));
    let none = BuiltinConfig::default().registry(|_| None).unwrap();
    assert_eq!(none.definitions().count(), 0);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap().to_owned();
    let files = Some(FilesConfig {
        root,
        write: false,
        max_write_bytes: 1,
    });
    let reading = BuiltinConfig {
        files,
        ..BuiltinConfig::default()
    }
    .registry(|_| None)
    .unwrap();
    let names: Vec<&str> = reading.definitions().map(|tool| tool.id.as_str()).collect();
    assert_eq!(names, ["file_list", "file_read"]);
}

// Fetching

/// Answers every name; a name with several answers gives them one after the other.
#[derive(Default)]
struct Names(Mutex<Vec<(String, VecDeque<Vec<IpAddr>>)>>);

impl Names {
    fn of(answers: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let parse = |addresses: &&[&str]| {
            addresses
                .iter()
                .map(|address| address.parse().unwrap())
                .collect()
        };
        let all = answers
            .iter()
            .map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect()));
        Arc::new(Names(Mutex::new(all.collect())))
    }
}

#[async_trait]
impl Lookup for Names {
    async fn lookup(&self, host: &str) -> std::io::Result<Vec<IpAddr>> {
        let mut names = self.0.lock().unwrap();
        let known = names
            .iter_mut()
            .find(|(name, _)| name == host.trim_end_matches('.'));
        let (_, answers) = known.ok_or_else(|| std::io::Error::other("no such name"))?;
        if answers.len() > 1 {
            return Ok(answers.pop_front().unwrap_or_default());
        }
        Ok(answers.front().cloned().unwrap_or_default())
    }
}

/// A server on loopback under the name `start.test`, which alone may be private.
async fn web(routes: Router) -> (SocketAddr, WebFetch) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let names = Names::of(&[
        ("start.test", &[&["127.0.0.1"]]),
        ("localhost", &[&["127.0.0.1", "::1"]]),
        ("private.test", &[&["192.168.1.1"]]),
        ("mixed.test", &[&["1.1.1.1", "10.0.0.1"]]),
        ("six.test", &[&["::ffff:127.0.0.1"]]),
        ("empty.test", &[&[]]),
    ]);
    let config = FetchConfig {
        private_hosts: vec![format!("start.test:{}", address.port())],
        timeout_s: 5,
        max_bytes: 10_000,
        ..FetchConfig::default()
    };
    (address, WebFetch::with_lookup(&config, names).unwrap())
}

fn redirect(to: String) -> Response {
    (
        StatusCode::FOUND,
        [(LOCATION, HeaderValue::from_str(&to).unwrap())],
    )
        .into_response()
}

fn hostile() -> Router {
    let bomb = || async {
        // Ten bytes that say they are a gigabyte.
        (
            [(CONTENT_ENCODING, "gzip"), (CONTENT_TYPE, "text/html")],
            vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3],
        )
            .into_response()
    };
    let endless = || async {
        let chunks =
            futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>("x".repeat(1_000)));
        ([(CONTENT_TYPE, "text/plain")], Body::from_stream(chunks)).into_response()
    };
    let hanging = || async {
        std::future::pending::<()>().await;
    };
    Router::new()
        .route(
            "/page",
            get(|| async {
                (
                    [(CONTENT_TYPE, "text/html")],
                    "<title>T</title><p>hello <b>you</b>",
                )
            }),
        )
        .route("/secret", get(|| async { "SECRET" }))
        .route(
            "/to",
            get(
                |axum::extract::RawQuery(to): axum::extract::RawQuery| async move {
                    redirect(to.unwrap_or_default())
                },
            ),
        )
        .route("/round", get(|| async { redirect("/round".into()) }))
        .route("/ok", get(|| async { redirect("page".into()) }))
        .route("/nowhere", get(|| async { StatusCode::FOUND }))
        .route("/bomb", get(bomb))
        .route("/endless", get(endless))
        .route("/hanging", get(hanging))
        .route(
            "/image",
            get(|| async { ([(CONTENT_TYPE, "image/png")], "PNG") }),
        )
        .route("/gone", get(|| async { (StatusCode::GONE, "it is gone") }))
}

#[tokio::test]
async fn pages_come_from_public_addresses_only() {
    let (address, fetch) = web(hostile()).await;
    let port = address.port();
    let mut table = Table::new("Against web pages", "pages_come_from_public_addresses_only");
    for (name, url, expected) in [
        (
            "a file",
            "file:///etc/passwd".to_owned(),
            "file: is not allowed",
        ),
        ("ftp", "ftp://a.test/".into(), "ftp: is not allowed"),
        (
            "gopher",
            "gopher://a.test:6379/_FLUSHALL".into(),
            "gopher: is not allowed",
        ),
        (
            "a data URL",
            "data:text/plain,x".into(),
            "data: is not allowed",
        ),
        (
            "javascript",
            "javascript:alert(1)".into(),
            "javascript: is not allowed",
        ),
        (
            "no URL",
            "169.254.169.254/latest".into(),
            "is not a valid URL",
        ),
        (
            "a password",
            "http://user:pw@a.test/".into(),
            "leave them out",
        ),
        (
            "loopback",
            format!("http://127.0.0.1:{port}/secret"),
            "not a public address",
        ),
        (
            "loopback, another one",
            format!("http://127.9.9.9:{port}/"),
            "not a public address",
        ),
        (
            "loopback in decimal",
            format!("http://2130706433:{port}/secret"),
            "not a public address",
        ),
        (
            "loopback in hexadecimal",
            format!("http://0x7f000001:{port}/"),
            "not a public address",
        ),
        (
            "loopback in octal",
            format!("http://017700000001:{port}/"),
            "not a public address",
        ),
        (
            "loopback in short",
            format!("http://127.1:{port}/"),
            "not a public address",
        ),
        (
            "loopback in wide digits",
            format!("http://１２７.0.0.1:{port}/"),
            "not a public address",
        ),
        (
            "loopback in circled digits",
            format!("http://①②⑦.⓪.⓪.①:{port}/"),
            "not a public address",
        ),
        (
            "loopback in IPv6",
            format!("http://[::1]:{port}/"),
            "not a public address",
        ),
        (
            "loopback mapped",
            format!("http://[::ffff:127.0.0.1]:{port}/"),
            "not a public address",
        ),
        (
            "loopback mapped in hexadecimal",
            format!("http://[::ffff:7f00:1]:{port}/"),
            "not a public address",
        ),
        (
            "loopback by NAT64",
            "http://[64:ff9b::7f00:1]/".into(),
            "not a public address",
        ),
        (
            "loopback by 6to4",
            "http://[2002:7f00:1::]/".into(),
            "not a public address",
        ),
        (
            "nowhere in particular",
            format!("http://0.0.0.0:{port}/"),
            "not a public address",
        ),
        (
            "the cloud's metadata",
            "http://169.254.169.254/latest/meta-data/".into(),
            "not a public address",
        ),
        (
            "a private network",
            "http://10.0.0.1/".into(),
            "not a public address",
        ),
        (
            "a link-local address",
            "http://[fe80::1]/".into(),
            "not a public address",
        ),
        (
            "localhost",
            format!("http://localhost:{port}/secret"),
            "not a public address",
        ),
        (
            "localhost with a dot",
            format!("http://localhost.:{port}/"),
            "not a public address",
        ),
        (
            "a name with a private address",
            "http://private.test/".into(),
            "192.168.1.1, which is not a public address",
        ),
        (
            "a name with one private address of two",
            "http://mixed.test/".into(),
            "10.0.0.1, which is not",
        ),
        (
            "a name with a mapped address",
            "http://six.test/".into(),
            "not a public address",
        ),
        (
            "a name without an address",
            "http://empty.test/".into(),
            "cannot be reached",
        ),
        (
            "a name that is none",
            "http://none.test/".into(),
            "no such name",
        ),
        (
            "another port of an allowed host",
            "http://start.test:22/".into(),
            "only port",
        ),
        (
            "a redirect to loopback",
            format!("http://start.test:{port}/to?http://127.0.0.1:{port}/secret"),
            "not a public address",
        ),
        (
            "a redirect without a scheme",
            format!("http://start.test:{port}/to?//127.0.0.1:{port}/secret"),
            "not a public address",
        ),
        (
            "a redirect to a file",
            format!("http://start.test:{port}/to?file:///etc/passwd"),
            "file: is not allowed",
        ),
        (
            "a redirect to metadata",
            format!("http://start.test:{port}/to?http://169.254.169.254/"),
            "not a public address",
        ),
        (
            "a redirect to another port",
            format!("http://start.test:{port}/to?http://start.test:1/"),
            "only port",
        ),
        (
            "a redirect to a private name",
            format!("http://start.test:{port}/to?http://private.test/"),
            "not a public address",
        ),
        (
            "redirects without end",
            format!("http://start.test:{port}/round"),
            "more than 5 redirects",
        ),
        (
            "a redirect to nowhere",
            format!("http://start.test:{port}/nowhere"),
            "redirects to nowhere",
        ),
        (
            "a zip bomb",
            format!("http://start.test:{port}/bomb"),
            "is compressed (gzip)",
        ),
        (
            "a page without end",
            format!("http://start.test:{port}/endless"),
            "more than 10000 bytes",
        ),
        (
            "an image",
            format!("http://start.test:{port}/image"),
            "only text can be read",
        ),
        (
            "an error",
            format!("http://start.test:{port}/gone"),
            "410 Gone: it is gone",
        ),
    ] {
        table.refused(name, call(&fetch, json!({ "url": url })).await, expected);
    }
    table.check(44);
    let page = call(
        &fetch,
        json!({ "url": format!("http://start.test:{port}/ok") }),
    )
    .await
    .unwrap();
    assert_eq!(
        (
            &page["title"],
            page["url"].as_str().unwrap().ends_with("/page")
        ),
        (&json!("T"), true)
    );
    assert!(page["text"].as_str().unwrap().contains("hello"));
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_checked_when_it_is_connected_to() {
    let (address, _) = web(hostile()).await;
    // Public when somebody looks first, loopback when the connection is made.
    let names = Names::of(&[("rebind.test", &[&["1.1.1.1"], &["127.0.0.1"]])]);
    assert_eq!(
        names.lookup("rebind.test").await.unwrap(),
        ["1.1.1.1".parse::<IpAddr>().unwrap()]
    );
    let fetch = WebFetch::with_lookup(&FetchConfig::default(), names).unwrap();
    let url = format!("http://rebind.test:{}/secret", address.port());
    assert!(
        call(&fetch, json!({ "url": url }))
            .await
            .unwrap_err()
            .contains("127.0.0.1, which is not a public address")
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let (address, _) = web(hostile()).await;
    let config = FetchConfig {
        private_hosts: vec!["start.test".into()],
        timeout_s: 1,
        ..FetchConfig::default()
    };
    let fetch =
        WebFetch::with_lookup(&config, Names::of(&[("start.test", &[&["127.0.0.1"]])])).unwrap();
    let url = format!("http://start.test:{}/hanging", address.port());
    let message = call(&fetch, json!({ "url": url })).await.unwrap_err();
    assert!(
        message.contains("within 1 s") || message.contains("no answer in time"),
        "{message}"
    );
    let only = FetchConfig {
        only_hosts: vec!["docs.test".into()],
        ..FetchConfig::default()
    };
    let fetch = WebFetch::with_lookup(&only, Names::of(&[])).unwrap();
    let message = call(&fetch, json!({ "url": "https://a.test/" }))
        .await
        .unwrap_err();
    assert!(message.contains("only docs.test may"), "{message}");
}

// Shell

fn shell(allow: &[&str], dir: &Path) -> Shell {
    let config = json!({ "allow": allow, "dir": dir, "timeout_s": 1, "max_output_bytes": 1_000 });
    Shell::new(&serde_json::from_value::<ShellConfig>(config).unwrap()).unwrap()
}

#[tokio::test]
async fn the_shell_runs_what_is_allowed_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.sh");
    std::fs::write(&script, "sleep 60; true").unwrap();
    let (script, entry) = (script.to_str().unwrap(), format!("sh {}", script.display()));
    let entries = [
        "echo *",
        "env",
        "cat",
        "yes",
        "sleep *",
        "git status",
        &entry,
    ];
    let tool = shell(&entries, folder.path());
    let mut table = Table::new(
        "Against programs",
        "the_shell_runs_what_is_allowed_as_it_is_written",
    );
    let many: Vec<String> = vec!["x".into(); 300];
    for (name, argv, expected) in [
        (
            "a program that is not allowed",
            json!(["rm", "-rf", "/"]),
            "not allowed; allowed are echo *, env",
        ),
        (
            "an allowed program by its path",
            json!(["/bin/echo"]),
            "not allowed",
        ),
        (
            "a program of the working folder",
            json!(["./echo"]),
            "not allowed",
        ),
        (
            "a command in the program's name",
            json!(["echo hi; rm -rf /"]),
            "not allowed",
        ),
        ("a program in another case", json!(["ECHO"]), "not allowed"),
        (
            "an allowed program with other arguments",
            json!(["git", "push"]),
            "not allowed",
        ),
        (
            "an allowed prefix without its rest",
            json!(["git"]),
            "not allowed",
        ),
        (
            "an option before the allowed argument",
            json!(["git", "-c", "core.pager=rm", "status"]),
            "not allowed",
        ),
        ("an empty program", json!([""]), "not allowed"),
        ("nothing", json!([]), "the program first"),
        (
            "a text instead of a list",
            json!("echo hi"),
            "the program first",
        ),
        (
            "a number among the arguments",
            json!(["echo", 1]),
            "the program first",
        ),
        ("a NUL character", json!(["echo", "a\0b"]), "NUL character"),
        (
            "too many arguments",
            json!([["echo".to_owned()].as_slice(), &many].concat()),
            "too many",
        ),
        (
            "too long an argument",
            json!(["echo", "x".repeat(200_000)]),
            "too many",
        ),
        (
            "a program that does not end",
            json!(["sleep", "60"]),
            "took longer than 1 s",
        ),
        (
            "a program that does not end in its child",
            json!(["sh", script]),
            "took longer than 1 s",
        ),
    ] {
        table.refused(name, call(&tool, json!({ "argv": argv })).await, expected);
    }
    for (name, argv, expected) in [
        (
            "substitution",
            json!(["echo", "$(id)", "`id`"]),
            "$(id) `id`\n",
        ),
        (
            "a second command",
            json!(["echo", "a;", "id", "&&", "id", "|", "id"]),
            "a; id && id | id\n",
        ),
        ("a variable", json!(["echo", "$HOME", "~"]), "$HOME ~\n"),
        (
            "a redirection",
            json!(["echo", ">", "/tmp/toolscout-attack"]),
            "> /tmp/toolscout-attack\n",
        ),
        ("a wildcard", json!(["echo", "*"]), "*\n"),
        ("waiting for input", json!(["cat"]), ""),
    ] {
        table.is(
            name,
            call(&tool, json!({ "argv": argv }))
                .await
                .map(|answer| answer["stdout"].clone()),
            expected,
        );
    }
    table.check(23);
    assert!(!Path::new("/tmp/toolscout-attack").exists());
    let answer = call(&tool, json!({ "argv": ["env"] })).await.unwrap();
    let environment = answer["stdout"].as_str().unwrap();
    let home = format!("HOME={}", std::env::home_dir().unwrap().display());
    assert!(
        environment.lines().all(|line| line != home) && !environment.contains("CARGO"),
        "{environment}"
    );
    let endless = call(&tool, json!({ "argv": ["yes"] })).await.unwrap();
    assert_eq!(endless["stdout"].as_str().unwrap().len(), 1_000);
    assert!(endless["note"].as_str().unwrap().contains("was ended"));
}

#[tokio::test]
async fn what_a_program_leaves_behind_is_ended_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = folder.path().join("script.sh");
    std::fs::write(
        &script,
        format!("sleep 60 & echo $! > {}; echo hi", pid.display()),
    )
    .unwrap();
    let entry = format!("sh {}", script.display());
    let tool = shell(&[&entry], folder.path());
    let answer = tokio::time::timeout(
        Duration::from_secs(30),
        call(&tool, json!({ "argv": ["sh", script] })),
    )
    .await
    .expect("it does not wait for the process that was left behind")
    .unwrap();
    assert_eq!(answer["stdout"], "hi\n");
    let started = Instant::now();
    let left = format!(
        "/proc/{}/stat",
        std::fs::read_to_string(pid).unwrap().trim()
    );
    // Gone, or dead and not yet buried by whoever inherited it.
    let gone = || std::fs::read_to_string(&left).map_or(true, |stat| stat.contains(") Z "));
    while !gone() {
        assert!(
            started.elapsed() < Duration::from_secs(30),
            "the child is still there"
        );
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_program_that_is_nowhere_is_said() {
    let config: ShellConfig = toml::from_str("allow = [\"no-such-program-here\"]").unwrap();
    assert!(
        Shell::new(&config)
            .unwrap_err()
            .to_string()
            .contains("no-such-program-here")
    );
}
