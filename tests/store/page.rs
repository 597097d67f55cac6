//! The page for several nodes, from its first line to its last, as a person would paste it.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use super::ports::free_port;
use super::postgres::{NOBODY, fixture, programs};

/// The lines of all its commands.
fn commands(page: &str) -> String {
    let blocks = page.split("```sh\n").skip(1);
    let texts = blocks.filter_map(|rest| rest.split_once("```"));
    texts.map(|(text, _)| text).collect()
}

/// A number that three free ports begin with, which are below those that [`free_port`] gives to other
/// tests meanwhile.
fn port_prefix() -> u16 {
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (1000..2000)
        .find(|prefix| (1..=3).all(|node| is_free(prefix * 10 + node)))
        .expect("three free ports")
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn the_page_leads_from_nothing_to_three_nodes() {
    let page = std::fs::read_to_string(fixture("docs/several-nodes.md")).unwrap();
    let script = commands(&page)
        .replace("5432", &free_port().to_string())
        .replace("5433", &free_port().to_string())
        .replace("127.0.0.1:770", &format!("127.0.0.1:{}", port_prefix()));
    let folder = tempfile::tempdir().unwrap();
    let mut shell = match geteuid().is_root() {
        // PostgreSQL does not run as root.
        true => {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            let mut command = Command::new("setpriv");
            let nobody = NOBODY.to_string();
            command.args([
                "--reuid",
                &nobody,
                "--regid",
                &nobody,
                "--clear-groups",
                "bash",
            ]);
            command
        }
        false => Command::new("bash"),
    };
    let program = Path::new(env!("CARGO_BIN_EXE_toolscout")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", program.display(), programs().display());
    // What is left when a command fails must not stay.
    let end = "trap 'kill $(jobs -p); for data in primary standby; do pg_ctl --pgdata $data --mode immediate stop; done' EXIT\n";
    let output = shell
        // With the numbers of jobs that a terminal has.
        .args(["-m", "-eu", "-o", "pipefail", "-c"])
        .arg(format!(
            "cd {}\n{end}{script}trap - EXIT\n",
            folder.path().display()
        ))
        .env("PATH", path)
        .env("HOME", folder.path())
        .env("TOOLSCOUT_EMBEDDER", "table")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{error}");
    // Written, found on another node, without a primary, and on a single machine afterwards.
    let shown = printed.matches("mail/send").count();
    assert_eq!(shown, 4, "{printed}\n{error}");
    assert_eq!(printed.matches("\"generation\":2").count(), 1, "{printed}");
    for shown in ["node3", "standby", "sync"] {
        assert!(printed.contains(shown), "{shown}: {printed}");
    }
}
