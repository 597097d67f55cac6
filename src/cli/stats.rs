//! `toolscout stats`: a catalog in numbers.

use anyhow::Result;

use super::Outcome;
use super::context::{Context, Legs};

/// Shows tools, servers, vectors and size on disk of a catalog.
#[derive(clap::Args, Debug)]
pub struct Args {}

impl Args {
    /// Prints the numbers.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let stats = context.open(Legs::All)?.stats()?;
        if context.printer.is_json() {
            context.printer.json(&stats)?;
            return Ok(Outcome::Done);
        }
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let mut rows = vec![
            row("catalog", context.settings.catalog.clone()),
            row("data", context.settings.data.display().to_string()),
            row("tools", stats.tools.to_string()),
            row("generation", stats.generation.to_string()),
            row("disk", format!("{:.1} MB", stats.disk_bytes as f64 / 1e6)),
        ];
        rows.extend(
            stats
                .vectors
                .iter()
                .map(|(model, count)| row("vectors", format!("{count} by {model}"))),
        );
        rows.push(row(
            "not embedded yet",
            stats.pending_embeddings.to_string(),
        ));
        let server = |(name, count): &(String, usize)| match name.as_str() {
            "" => row("without server", format!("{count} tools")),
            _ => row("server", format!("{name}: {count} tools")),
        };
        rows.extend(stats.servers.iter().map(server));
        context.printer.rows(&["", ""], rows)?;
        Ok(Outcome::Done)
    }
}
