//! Servers in a sandbox.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use toolscout::mcp::ServerConfig;
use toolscout::mcp::config::Transport;
use toolscout::sandbox::{FileProtection, Parts, SandboxFiles, SandboxSettings};

use super::world::{Lifeline, Upstream, double_with, root};

/// Python itself, which may lie in the home folder, with what it needs.
fn python() -> (String, Vec<PathBuf>) {
    let script = "import os, sys; print(os.path.realpath(sys.executable), sys.base_prefix)";
    let output = Command::new("python3")
        .args(["-c", script])
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let (program, folder) = output.trim().split_once(' ').unwrap();
    (program.to_owned(), vec![folder.into()])
}

/// A double in a sandbox that has these files.
fn fenced(name: &str, env: &[(&str, &str)], files: &[&Path], network: bool) -> ServerConfig {
    let mut server = double_with(name, &[], env);
    let (python, mut read) = python();
    read.extend(files.iter().map(|path| path.to_path_buf()));
    let Transport::Stdio {
        command, sandbox, ..
    } = &mut server.transport
    else {
        panic!("a double is a process");
    };
    *command = python;
    *sandbox = Some(SandboxSettings {
        files: SandboxFiles {
            read,
            write: Vec::new(),
        },
        network,
    });
    server
}

#[tokio::test]
async fn a_server_in_a_sandbox_has_what_its_entry_allows() {
    let parts = Parts::of_this_system();
    if parts.files != FileProtection::Full || !parts.system_calls {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let state = outside.path().join("state.json");
    std::fs::write(
        &state,
        json!([{ "name": "seen", "inputSchema": {} }]).to_string(),
    )
    .unwrap();
    let doubles = root().join("tests/mcp/doubles");
    let lifeline = Lifeline::new().await;
    let port = lifeline.port();
    let state = [("STATE", state.to_str().unwrap())];
    let connects = [("LIFELINE", port.as_str())];
    let servers = vec![
        fenced("works", &[], &[&doubles], false),
        fenced("connects", &connects, &[&doubles], true),
        fenced("reads", &state, &[&doubles, outside.path()], false),
        fenced("without_its_code", &[], &[], false),
        fenced("without_network", &connects, &[&doubles], false),
        fenced(
            "without_a_file",
            &[],
            &[Path::new("/nowhere/at/all")],
            false,
        ),
    ];
    let upstream = Upstream::start_with(servers, |config| {
        config.limits.connect = Duration::from_secs(20);
        config.limits.call_patience = Duration::ZERO;
    })
    .await;
    assert_eq!(upstream.echo("works").await, "hello");
    assert_eq!(upstream.echo("connects").await, "hello");
    assert!(upstream.ids().contains(&"reads/seen".to_owned()));
    for (server, expected) in [
        ("without_its_code", "Permission denied"),
        ("without_network", "Operation not permitted"),
        ("without_a_file", "/nowhere/at/all"),
    ] {
        let reason = upstream.reason(server);
        assert!(reason.contains(expected), "{server}: {reason}");
    }
    upstream.pool.close().await;
}
