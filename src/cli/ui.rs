//! `toolscout ui`: the console in the person's browser, from a server of its own.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;

use super::Outcome;
use super::browser;
use super::context::Context;
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
        // The page is one of the server's own, so it needs no further host or origin.
        let admission = Admission {
            hosts: Vec::new(),
            origins: Vec::new(),
            exposure: Exposure::Loopback,
        };
        let is_opened = !self.no_open;
        self.server
            .run(address, admission, context, move |address| {
                if is_opened {
                    tokio::spawn(browser::open(format!("http://{address}/")));
                }
            })
    }
}
