//! `toolscout doctor`: is everything where it should be, and if not, what mends it.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use toolscout_index::embed::StaticTable;
use toolscout_index::{Embedder, Options};

use super::context::Context;
use super::models::described;
use super::{Outcome, one_line};
use crate::config::EmbedderKind;
use crate::models::{self, MODEL_DIMENSIONS, Part};

const PULL: &str = "toolscout models pull";

/// Checks settings, data directory, catalogs, ONNX Runtime and model, and says what mends each. The
/// exit code is 1 when something that is there or configured does not work; what is merely missing
/// does not count.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// How one thing is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Missing,
    Broken,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Missing => "missing",
            State::Broken => "broken",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
struct Check {
    name: String,
    state: State,
    detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, detail: impl Into<String>) -> Self {
        Check {
            name: name.into(),
            state: State::Ok,
            detail: detail.into(),
            mend: None,
        }
    }

    fn missing(
        name: impl Into<String>,
        detail: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Check {
            name: name.into(),
            state: State::Missing,
            detail: detail.into(),
            mend: Some(mend.into()),
        }
    }

    fn broken(name: impl Into<String>, detail: impl Into<String>, mend: impl Into<String>) -> Self {
        Check {
            name: name.into(),
            state: State::Broken,
            detail: detail.into(),
            mend: Some(mend.into()),
        }
    }
}

impl Args {
    /// Looks at everything and prints what it found.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let mut checks = vec![settings(context), data_dir(&context.settings.data)];
        checks.extend(catalogs(context));
        checks.extend(embedding(context));
        print(context, &checks)?;
        let broken = checks.iter().any(|check| check.state == State::Broken);
        Ok(if broken {
            Outcome::Amiss
        } else {
            Outcome::Done
        })
    }
}

fn print(context: &Context, checks: &[Check]) -> Result<()> {
    if context.printer.is_json() {
        return context.printer.json(&checks);
    }
    let row = |check: &Check| {
        let mend = check
            .mend
            .as_ref()
            .map(|mend| format!(" → {mend}"))
            .unwrap_or_default();
        vec![
            check.name.clone(),
            check.state.name().to_owned(),
            format!("{}{mend}", check.detail),
        ]
    };
    context.printer.rows(
        &["what", "state", "detail"],
        checks.iter().map(row).collect(),
    )
}

fn settings(context: &Context) -> Check {
    match &context.settings.file {
        Some(file) => Check::ok("settings", file.display().to_string()),
        None => Check::ok("settings", "no file, defaults and environment"),
    }
}

fn data_dir(path: &Path) -> Check {
    let mend = "make it writable, or choose another with --data or TOOLSCOUT_DATA";
    if path.exists() && !path.is_dir() {
        return Check::broken("data", format!("{} is no directory", path.display()), mend);
    }
    // What is not there yet will be made, in the nearest directory that is.
    let existing = path
        .ancestors()
        .find(|ancestor| ancestor.is_dir())
        .unwrap_or(path);
    let probe = existing.join(format!(".toolscout-probe-{}", std::process::id()));
    let written = std::fs::write(&probe, b"probe");
    // The probe is one small file; failing to delete what could be written is no news worth a
    // failure.
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) if path.exists() => Check::ok("data", path.display().to_string()),
        Ok(()) => Check::ok(
            "data",
            format!(
                "{}, not there yet: the first `toolscout add` makes it",
                path.display()
            ),
        ),
        Err(error) => Check::broken(
            "data",
            format!("{} cannot be written: {error}", path.display()),
            mend,
        ),
    }
}

fn catalogs(context: &Context) -> Vec<Check> {
    let dir = context.data_dir();
    match dir.catalogs() {
        Ok(names) if names.is_empty() => {
            vec![Check::missing(
                "catalogs",
                "there are none yet",
                "toolscout add FILE",
            )]
        }
        Ok(names) => names.iter().map(|name| catalog(context, name)).collect(),
        Err(error) => vec![Check::broken(
            "catalogs",
            one_line(&error.into()),
            "check the data directory",
        )],
    }
}

fn catalog(context: &Context, name: &str) -> Check {
    let title = format!("catalog {name}");
    let stats = context
        .data_dir()
        .open(name, Options::default())
        .and_then(|catalog| catalog.stats());
    match stats {
        Ok(stats) => {
            let vectors: usize = stats.vectors.iter().map(|(_, count)| count).sum();
            let megabytes = stats.disk_bytes as f64 / 1e6;
            Check::ok(
                title,
                format!(
                    "{} tools, {vectors} vectors, generation {}, {megabytes:.1} MB",
                    stats.tools, stats.generation
                ),
            )
        }
        Err(error) => {
            let mend = format!(
                "restore its folder from a copy, or `toolscout catalogs delete {name} --yes` and add anew"
            );
            Check::broken(title, one_line(&error.into()), mend)
        }
    }
}

fn embedding(context: &Context) -> Vec<Check> {
    match context.settings.embedder {
        EmbedderKind::Auto | EmbedderKind::Minilm => [vec![table()], minilm(context)].concat(),
        EmbedderKind::Table => vec![table()],
        EmbedderKind::None => vec![Check::ok(
            "embedding",
            "switched off (embedder = \"none\"), searches are lexical",
        )],
        EmbedderKind::Hashing => vec![Check::ok(
            "embedding",
            "hashed words, which know no meaning: for tests only",
        )],
    }
}

fn table() -> Check {
    match StaticTable::bundled() {
        Ok(table) => {
            let dimensions = table.dimensions();
            Check::ok(
                "table",
                format!(
                    "{}: {dimensions} dimensions, part of the program",
                    table.id()
                ),
            )
        }
        Err(error) => Check::broken("table", one_line(&error.into()), "install the program anew"),
    }
}

fn minilm(context: &Context) -> Vec<Check> {
    let status = models::verify(&context.settings);
    let mut checks = Vec::new();
    if let Some(problem) = models::named_runtime_problem(&context.settings) {
        let mend = "unset ORT_DYLIB_PATH or name a library of version 1.24 or newer";
        checks.push(Check::broken("ORT_DYLIB_PATH", problem, mend));
    }
    checks.push(part("onnxruntime", &status.runtime));
    checks.push(part("model", &status.model));
    checks.push(match status.is_ready() {
        true => probe(context),
        false => pip(),
    });
    checks
}

fn part(name: &str, part: &Part) -> Check {
    let (_, detail) = described(part);
    match part {
        Part::Ready { .. } => Check::ok(name, detail),
        Part::Missing { .. } => {
            Check::missing(name, format!("searches do without; {detail}"), PULL)
        }
        Part::Broken { .. } => Check::broken(name, detail, PULL),
    }
}

/// The only proof that model and runtime go together: embedding something.
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
            "the model gave vectors of another shape",
            format!("{PULL} --force"),
        ),
        Err(error) => Check::broken("embedding", error.to_string(), format!("{PULL} --force")),
    }
}

/// Only of interest while something is to be fetched.
fn pip() -> Check {
    match models::pip_version() {
        Ok(version) => Check::ok("pip", format!("{version}, for `{PULL}`")),
        Err(error) => Check::missing("pip", one_line(&error), "install Python 3 with pip"),
    }
}
