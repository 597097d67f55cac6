//! `toolscout ui`: the console in the person's browser, from a server of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;

use anyhow::Result;
use tokio::process::Command;

use super::Outcome;
use super::context::Context;
use super::output::print_stderr;
use super::serve::{Admission, ServerArgs};
use crate::http::Exposure;

/// Serves on this machine alone, as `serve` does, and opens the console in a browser. Ends with
/// SIGTERM or SIGINT.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  toolscout ui\n  toolscout ui --no-open --port 7800")]
pub struct Args {
    /// Port on 127.0.0.1; 0 chooses a free one
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,
    /// Only print the address, and open no browser
    #[arg(long)]
    no_open: bool,
    #[command(flatten)]
    server: ServerArgs,
}

impl Args {
    /// Serves, and opens the console once the server listens.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let admission = Admission {
            hosts: Vec::new(),
            origins: Vec::new(),
            exposure: Exposure::Loopback,
        };
        let is_opened = !self.no_open;
        self.server
            .run(address, admission, context, move |address| {
                if is_opened {
                    tokio::spawn(open(format!("http://{address}/")));
                }
            })
    }
}

/// Opens an address in the person's browser. Without one the server goes on.
async fn open(url: String) {
    let mut command = opener(&url);
    let opened = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    let problem = match opened {
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let program = command
        .as_std()
        .get_program()
        .to_string_lossy()
        .into_owned();
    print_stderr(format_args!(
        "no browser was opened ({program}: {problem}); open {url} yourself"
    ));
}

/// The command that opens an address on this system.
fn opener(url: &str) -> Command {
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        // The first argument of `start` in quotes is a title.
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(url);
    command
}
