//! `toolscout doctor`: checks the installation, and names the remedy of each problem.

mod language_model;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use reqwest::Url;
use reqwest::blocking::Client;
use serde::Serialize;
use toolscout_index::embed::{MultilingualTable, StaticTable};
use toolscout_index::{Embedder, Searcher};

use super::Outcome;
use super::context::{Context, Legs};
use super::exit::error_message;
use super::llm::LlmArgs;
use super::models::describe_part;
use crate::config::EmbedderKind;
use crate::enrich;
use crate::models::{self, MODEL_DIMENSIONS, Part, Patience};
use crate::printable::counted;
use crate::store::{CatalogPage, StoreStatus};
use crate::tls::{blocking_client, is_loopback};

const PULL: &str = "toolscout models pull";
/// Longest wait for the answer of a server, which has it at hand.
const WAIT: Duration = Duration::from_secs(5);

/// Checks settings, data directory, catalogs, ONNX Runtime, embedding and language model, and
/// prints a remedy for each problem. The exit code is 1 when something present or configured does
/// not work; a part that is only missing does not count.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout doctor\n  toolscout --embedder minilm doctor --json\n  toolscout doctor --llm ollama --model qwen3\n  toolscout doctor --server http://127.0.0.1:7700"
)]
pub struct Args {
    /// Only ask whether the server there takes requests
    #[arg(long, value_name = "URL", value_parser = server::parse_address)]
    server: Option<Url>,
    #[command(flatten)]
    llm: LlmArgs,
}

/// The state of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum PartState {
    Ok,
    Missing,
    Broken,
}

impl PartState {
    fn name(self) -> &'static str {
        match self {
            PartState::Ok => "ok",
            PartState::Missing => "missing",
            PartState::Broken => "broken",
        }
    }
}

/// The result for one part.
#[derive(Clone, Debug, Serialize)]
struct Check {
    name: String,
    state: PartState,
    detail: String,
    /// The remedy.
    #[serde(rename = "mend", skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Check {
            name: name.into(),
            state: PartState::Ok,
            detail: detail.into(),
            remedy: None,
        }
    }

    fn missing(
        name: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Check {
            name: name.into(),
            state: PartState::Missing,
            detail: detail.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn broken(
        name: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Check {
            name: name.into(),
            state: PartState::Broken,
            detail: detail.into(),
            remedy: Some(remedy.into()),
        }
    }
}

impl Args {
    /// Runs every check and prints the results.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let checks = match &self.server {
            Some(url) => vec![server::check(url)],
            None => self.checks(context),
        };
        print(context, &checks)?;
        // What is only missing was never set up, and is not reported as a failure.
        let broken = checks.iter().any(|check| check.state == PartState::Broken);
        Ok(if broken {
            Outcome::Failure
        } else {
            Outcome::Success
        })
    }

    fn checks(&self, context: &Context) -> Vec<Check> {
        context.set_patience(Patience::of_server());
        // The checks say what is missing; a warning above them would say it twice.
        let _ = context.required_model();
        context.warn_of_unknown_catalog();
        let mut checks = vec![
            settings(context),
            data_dir(&context.settings.data),
            Check::ok("embedder", context.settings.embedder.describe()),
        ];
        checks.extend(store(context));
        checks.extend(catalogs(context));
        checks.extend(embedding(context));
        checks.push(language_model::check(&self.llm));
        checks
    }
}

/// A client for a server that is asked. One on this machine is asked directly, even if the environment
/// sets a proxy.
fn client_for(url: &str) -> reqwest::Result<Client> {
    let mut client = blocking_client().timeout(WAIT);
    if Url::parse(url).is_ok_and(|url| is_loopback(&url)) {
        client = client.no_proxy();
    }
    client.build()
}

fn print(context: &Context, checks: &[Check]) -> Result<()> {
    if context.printer.is_json() {
        return context.printer.json(&checks);
    }
    let mut rows = Vec::new();
    for check in checks {
        let detail = match &check.remedy {
            Some(remedy) => format!("{} → {remedy}", check.detail),
            None => check.detail.clone(),
        };
        rows.push(vec![
            check.name.clone(),
            check.state.name().to_owned(),
            detail,
        ]);
    }
    context.printer.rows(&["part", "state", "detail"], rows)
}

fn settings(context: &Context) -> Check {
    match &context.settings.file {
        Some(file) => Check::ok("settings", file.display().to_string()),
        None => Check::ok("settings", "no file, defaults and environment"),
    }
}

fn data_dir(path: &Path) -> Check {
    let remedy = "make it writable, or choose another with --data or TOOLSCOUT_DATA";
    if path.exists() && !path.is_dir() {
        let problem = format!("{} is not a directory", path.display());
        return Check::broken("data", problem, remedy);
    }
    // A missing directory will be created, so its nearest existing ancestor must be writable. The
    // last ancestor of a relative path is the empty path, which stands for the current directory.
    let mut ancestors = path.ancestors();
    let existing = ancestors.find(|ancestor| ancestor.is_dir());
    let existing = existing.unwrap_or(Path::new("."));
    // Written, because permissions alone do not tell a full or a read-only disk.
    let probe = existing.join(format!(".toolscout-probe-{}", std::process::id()));
    let written = std::fs::write(&probe, b"probe");
    // An empty file left behind does no harm, so a failure to delete it is ignored.
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) if path.exists() => Check::ok("data", path.display().to_string()),
        Ok(()) => Check::ok(
            "data",
            format!(
                "{}, does not exist yet: the first `toolscout add` creates it",
                path.display()
            ),
        ),
        Err(error) => Check::broken(
            "data",
            format!("{} cannot be written: {error}", path.display()),
            remedy,
        ),
    }
}

/// The store that several nodes share, where the settings name one.
fn store(context: &Context) -> Option<Check> {
    let settings = &context.settings.store;
    settings.store.as_ref()?;
    let page = CatalogPage {
        after: None,
        limit: 1,
    };
    let status = super::store::on_runtime(settings, async |store| Ok(store.status(&page).await?));
    Some(match status {
        Ok(StoreStatus {
            write_problem: Some(problem),
            ..
        }) => Check::broken(
            "store",
            format!("nothing can be written: {problem}"),
            "`toolscout store status` shows its servers and standbys",
        ),
        Ok(status) => Check::ok(
            "store",
            format!(
                "{}, PostgreSQL {}, {}, {:.1} MB",
                status.store,
                status.server,
                counted(status.catalogs_total as usize, "catalog"),
                status.bytes as f64 / 1e6
            ),
        ),
        Err(error) => Check::broken(
            "store",
            error_message(&error),
            "start the database, or correct TOOLSCOUT_STORE",
        ),
    })
}

fn catalogs(context: &Context) -> Vec<Check> {
    let dir = context.data_dir();
    match dir.catalogs() {
        Ok(names) if names.is_empty() => {
            vec![Check::missing(
                "catalogs",
                "there are none",
                "toolscout add FILE",
            )]
        }
        Ok(names) => names.iter().map(|name| catalog(context, name)).collect(),
        Err(error) => vec![Check::broken(
            "catalogs",
            error_message(&error.into()),
            "check the data directory",
        )],
    }
}

fn catalog(context: &Context, name: &str) -> Check {
    let title = format!("catalog {name}");
    // With every embedder, as `stats` does: vectors of the table are counted by its leg.
    let opened = context.open_named(name, Legs::All);
    let is_readable = opened.is_ok();
    let stats = opened.and_then(|catalog| {
        catalog.verify()?;
        Ok((catalog.stats()?, enriched(&catalog.searcher())))
    });
    match stats {
        Ok((stats, enriched)) => {
            let vectors: usize = stats.vectors.iter().map(|(_, count)| count).sum();
            let megabytes = stats.disk_bytes as f64 / 1e6;
            Check::ok(
                title,
                format!(
                    "{}, {}, {enriched} with texts of `enrich`, generation {}, {megabytes:.1} MB",
                    counted(stats.tools, "tool"),
                    counted(vectors, "vector"),
                    stats.generation
                ),
            )
        }
        Err(error) => {
            // One that opens and fails its check may still give most of its tools.
            let keep = if is_readable {
                format!("keep what `toolscout export --catalog {name}` still gives; ")
            } else {
                String::new()
            };
            let remedy = format!(
                "{keep}restore its folder from a backup, or run `toolscout catalogs delete {name} --yes` and add the tools again"
            );
            Check::broken(title, error_message(&error), remedy)
        }
    }
}

/// The share of tools with texts, as `40 of 425`.
fn enriched(searcher: &Searcher) -> String {
    let enriched = enrich::ids_with_texts(searcher, &[]).count();
    format!("{enriched} of {}", searcher.tool_count())
}

fn embedding(context: &Context) -> Vec<Check> {
    match &context.settings.embedder {
        EmbedderKind::Auto => [tables(), chosen(context)].concat(),
        EmbedderKind::Minilm => [tables(), minilm(context)].concat(),
        EmbedderKind::Table => tables(),
        EmbedderKind::None | EmbedderKind::Hashing => Vec::new(),
        // The runtime before the models that need it.
        EmbedderKind::Models(_) => [tables(), runtime(context), chosen(context)].concat(),
    }
}

/// Embeds a text by each embedder that the settings name.
fn chosen(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    for embedder in context.embedders() {
        // The tables have a check of their own.
        if embedder.is_instant() {
            continue;
        }
        let start = Instant::now();
        checks.push(match embedder.embed_queries(&["create an issue"]) {
            Ok(_) => {
                let ms = start.elapsed().as_secs_f64() * 1e3;
                let (id, dimensions) = (embedder.id(), embedder.dimensions());
                let detail = format!("{id}: {dimensions} dimensions, one query in {ms:.1} ms");
                Check::ok("embedding", detail)
            }
            Err(error) => Check::broken(
                "embedding",
                error_message(&error.into()),
                "start the endpoint or correct the settings",
            ),
        });
    }
    if let Some(problem) = context.without_model() {
        let remedy = "correct the settings or start the endpoint";
        checks.push(Check::broken("embedding", problem.to_string(), remedy));
    }
    checks
}

fn tables() -> Vec<Check> {
    let english = StaticTable::bundled().map(|table| table as Arc<dyn Embedder>);
    let other = MultilingualTable::bundled().map(|table| table as Arc<dyn Embedder>);
    vec![table("table", english), table("table of languages", other)]
}

fn table(name: &'static str, table: toolscout_index::Result<Arc<dyn Embedder>>) -> Check {
    match table {
        Ok(table) => {
            let dimensions = table.dimensions();
            Check::ok(
                name,
                format!(
                    "{}: {dimensions} dimensions, part of the program",
                    table.id()
                ),
            )
        }
        Err(error) => Check::broken(name, error_message(&error.into()), "reinstall the program"),
    }
}

fn minilm(context: &Context) -> Vec<Check> {
    let files = models::verify(&context.settings);
    // Without its files the next question is whether they can be downloaded.
    let works = match files.ready() {
        Some(_) => probe(context),
        None => pip(),
    };
    vec![part("model", &files, PULL), works]
}

/// The ONNX Runtime, where the settings name a model that needs it.
fn runtime(context: &Context) -> Vec<Check> {
    let settings = &context.settings;
    let Some(name) = models::by_name(&settings.embedder, settings).next() else {
        return Vec::new();
    };
    let mut checks = Vec::new();
    if let Some(problem) = models::named_runtime_problem(settings) {
        let remedy = "unset ORT_DYLIB_PATH or name a library of version 1.24 or newer";
        checks.push(Check::broken("ORT_DYLIB_PATH", problem, remedy));
    }
    let library = models::verify_runtime(settings);
    checks.push(part("onnxruntime", &library, &format!("{PULL} {name}")));
    checks
}

fn part(name: &str, part: &Part, pull: &str) -> Check {
    let (_, detail) = describe_part(part);
    match part {
        Part::Ready { .. } => Check::ok(name, detail),
        // Searches go on with words and tables, so this is no failure.
        Part::Missing { .. } => {
            Check::missing(name, format!("searches work without it; {detail}"), pull)
        }
        Part::Broken { .. } => Check::broken(name, detail, pull),
    }
}

/// Embeds a text, which is the only proof that the model works.
fn probe(context: &Context) -> Check {
    let start = Instant::now();
    let embedder = match models::minilm(&context.settings) {
        Ok(embedder) => embedder,
        Err(error) => {
            return Check::broken("embedding", error.to_string(), format!("{PULL} --force"));
        }
    };
    let loaded = start.elapsed();
    let vectors = embedder.embed_queries(&["create an issue"]);
    let took = start.elapsed() - loaded;
    match vectors.as_deref() {
        Ok([vector]) if vector.len() == MODEL_DIMENSIONS => Check::ok(
            "embedding",
            format!(
                "{}: {MODEL_DIMENSIONS} dimensions, loaded in {:.0} ms, one query in {:.1} ms",
                embedder.id(),
                loaded.as_secs_f64() * 1e3,
                took.as_secs_f64() * 1e3
            ),
        ),
        Ok(_) => Check::broken(
            "embedding",
            "the model returned vectors of another length",
            format!("{PULL} --force"),
        ),
        Err(error) => Check::broken("embedding", error.to_string(), format!("{PULL} --force")),
    }
}

/// Whether pip can fetch what is missing.
fn pip() -> Check {
    match models::pip_version() {
        Ok(version) => Check::ok("pip", format!("{version}, for `{PULL}`")),
        Err(error) => Check::missing("pip", error_message(&error), "install Python 3 with pip"),
    }
}
