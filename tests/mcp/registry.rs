//! `toolscout mcp registry` with a registry at an address, which answers as the documents say, and with a
//! file.

use std::sync::{Arc, Mutex};

use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::program::World;

type Asked = Arc<Mutex<Vec<Vec<(String, String)>>>>;

fn item(name: &str, version: &str, is_latest: bool) -> Value {
    let package = json!({
        "registryType": "npm", "identifier": "@ada/umbrellas", "version": version,
        "fileSha256": "ab".repeat(32), "transport": { "type": "stdio" },
        "environmentVariables": [{ "name": "UMBRELLA_KEY", "isRequired": true, "isSecret": true }],
    });
    json!({
        "server": { "name": name, "version": version, "description": "Lends umbrellas.", "packages": [package] },
        "_meta": { "io.modelcontextprotocol.registry/official": { "isLatest": is_latest, "status": "active" } },
    })
}

async fn servers(
    State(asked): State<Asked>,
    Query(query): Query<Vec<(String, String)>>,
) -> Json<Value> {
    let cursor = query.iter().any(|(key, _)| key == "cursor");
    asked.lock().unwrap().push(query);
    Json(match cursor {
        false => json!({
            "servers": [item("io.example/umbrellas", "1.0.0", false), item("io.example/coats", "3.0.0", true)],
            "metadata": { "nextCursor": "io.example/umbrellas:1.0.0", "count": 2 },
        }),
        true => json!({
            "servers": [item("io.example/umbrellas", "1.2.0", true)], "metadata": { "count": 1 },
        }),
    })
}

/// A registry, its address, and what it was asked.
async fn registry() -> (String, Asked) {
    let asked = Asked::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/v0/servers", get(servers))
        .with_state(Arc::clone(&asked));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, asked)
}

/// A world in which `npx` is installed.
fn world() -> World {
    let world = World::new();
    let npx = world.path("npx");
    std::fs::write(&npx, "").unwrap();
    world
}

impl World {
    async fn with_npx(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = self.command(args);
        command.env("PATH", self.dir.path());
        let output = tokio::task::spawn_blocking(move || {
            command.stdin(std::process::Stdio::null()).output().unwrap()
        });
        let output = output.await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap();
        (code, text(output.stdout), text(output.stderr))
    }
}

#[tokio::test]
async fn a_registry_at_an_address_is_searched_page_by_page() {
    let (address, asked) = registry().await;
    let world = world();
    let found = world
        .ok(&[
            "mcp",
            "registry",
            "search",
            "umb",
            "rella",
            "--registry",
            &address,
        ])
        .await;
    assert_eq!(
        found,
        "io.example/umbrellas\t1.2.0\tnpm\tLends umbrellas.\nio.example/coats\t3.0.0\tnpm\tLends umbrellas.\n"
    );
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let first = vec![pair("limit", "100"), pair("search", "umb rella")];
    let mut second = first.clone();
    second.push(pair("cursor", "io.example/umbrellas:1.0.0"));
    assert_eq!(*asked.lock().unwrap(), [first, second]);
}

#[tokio::test]
async fn a_server_of_a_registry_is_added_with_its_version_and_hash() {
    let (address, _) = registry().await;
    let world = world();
    let add = [
        "mcp",
        "registry",
        "add",
        "umbrellas",
        "--registry",
        &address,
    ];
    let (code, _, stderr) = world.with_npx(&add).await;
    assert_eq!(code, 2, "{stderr}");
    for said in [
        "io.example/umbrellas 1.2.0: Lends umbrellas.",
        "it runs: npx -y @ada/umbrellas@1.2.0",
        "environment: UMBRELLA_KEY=${UMBRELLA_KEY}",
        "SHA-256 of the package: abab",
        "nobody can be asked here; give --yes",
    ] {
        assert!(stderr.contains(said), "{said:?} is not in {stderr}");
    }
    assert!(!world.path("servers.json").exists());
    let (code, _, stderr) = world.with_npx(&[&add[..], &["--yes"]].concat()).await;
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("UMBRELLA_KEY (secret)"), "{stderr}");
    let written = std::fs::read_to_string(world.path("servers.json")).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(
        written["mcpServers"]["umbrellas"],
        json!({
            "command": "npx", "args": ["-y", "@ada/umbrellas@1.2.0"], "env": { "UMBRELLA_KEY": "${UMBRELLA_KEY}" },
            "registry": { "name": "io.example/umbrellas", "version": "1.2.0", "sha256": "ab".repeat(32) },
        })
    );
    let older = [
        &add[..],
        &["--version", "1.0.0", "--as", "old", "--yes", "--json"],
    ]
    .concat();
    let (code, stdout, stderr) = world.with_npx(&older).await;
    assert_eq!(code, 0, "{stderr}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report["entry"]["args"][1], "@ada/umbrellas@1.0.0");
    let (code, _, stderr) = world
        .with_npx(&[&add[..], &["--version", "9"]].concat())
        .await;
    assert_eq!(code, 1);
    assert!(
        stderr.contains("no version \"9\", only 1.0.0, 1.2.0"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_registry_may_be_a_file_and_has_no_default() {
    let world = world();
    let list = json!({ "servers": [item("io.example/umbrellas", "1.0.0", true), item("io.example/coats", "2", true)] });
    std::fs::write(world.path("registry.json"), list.to_string()).unwrap();
    let nameless = world.run(&["mcp", "registry", "search", "coats"]).await;
    assert_eq!(nameless.code, 2);
    assert!(
        nameless.stderr.contains("name a registry: --registry"),
        "{}",
        nameless.stderr
    );
    let search = [
        "mcp",
        "registry",
        "search",
        "COATS",
        "--registry",
        "registry.json",
    ];
    let found = world.ok(&search).await;
    assert_eq!(found, "io.example/coats\t2\tnpm\tLends umbrellas.\n");
    let add = [
        "mcp",
        "registry",
        "add",
        "coat",
        "--registry",
        "registry.json",
        "--dry-run",
    ];
    let unknown = world.run(&add).await;
    assert!(
        unknown
            .stderr
            .contains("the registry has no server \"coat\""),
        "{}",
        unknown.stderr
    );
}
