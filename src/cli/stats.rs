//! `toolscout stats`: statistics of a catalog.

use std::cmp::Reverse;

use anyhow::Result;

use super::Outcome;
use super::context::{Context, Legs};
use crate::printable::counted;

/// Of servers these many are listed, those of most tools first.
const LISTED_SERVERS: usize = 20;

/// Shows tools, servers, vectors and size on disk of a catalog.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  toolscout stats\n  toolscout --catalog work stats --json")]
pub struct Args {}

impl Args {
    /// Prints the statistics.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        // With every embedder, since each counts its own vectors and what they lack.
        let stats = context.open(Legs::All)?.stats()?;
        if context.printer.is_json() {
            context.printer.json(&stats)?;
            return Ok(Outcome::Success);
        }
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let mut rows = vec![
            row("catalog", context.settings.catalog.clone()),
            row("data", context.settings.data.display().to_string()),
            row("embedder", context.settings.embedder.describe()),
            row("tools", stats.tools.to_string()),
            row("generation", stats.generation.to_string()),
            row("disk", format!("{:.1} MB", stats.disk_bytes as f64 / 1e6)),
        ];
        for (embedder, count) in &stats.vectors {
            rows.push(row("vectors", format!("{count} by {embedder}")));
        }
        rows.push(row(
            "not embedded yet",
            stats.pending_embeddings.to_string(),
        ));
        let mut servers: Vec<&(String, usize)> = stats.servers.iter().collect();
        servers.sort_by_key(|(_, count)| Reverse(*count));
        let (listed, more) = servers.split_at(servers.len().min(LISTED_SERVERS));
        for (server, count) in listed {
            let count = counted(*count, "tool");
            rows.push(match server.as_str() {
                "" => row("without server", count),
                server => row("server", format!("{server}: {count}")),
            });
        }
        if !more.is_empty() {
            let all = "`toolscout stats --json` has them all";
            rows.push(row("more servers", format!("{}; {all}", more.len())));
        }
        context.printer.rows(&["", ""], rows)?;
        Ok(Outcome::Success)
    }
}
