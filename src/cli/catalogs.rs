//! `toolscout catalogs`: lists, configures and deletes catalogs.

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};
use toolscout_index::{Error, Options, SearchOptions, Settings};

use super::Outcome;
use super::context::{Context, Legs};
use super::exit::UsageError;
use super::output::print_stderr;
use super::search_options::SearchOptionArgs;
use crate::config::masked;
use crate::feedback::FeedbackStore;
use crate::models::Patience;
use crate::usage::UsageDatabase;

/// Lists, configures or deletes catalogs. `toolscout --catalog NAME add …` creates one.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout catalogs list\n  toolscout catalogs delete old --yes"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List catalogs with the number of their tools
    #[command(
        after_help = "Examples:\n  toolscout catalogs list\n  toolscout catalogs list --json"
    )]
    List,
    /// Show the settings of a catalog, or change those that are given
    ///
    /// They are the defaults of its searches in every interface: command line, HTTP, agent and MCP.
    /// With --embedder the catalog gets embedders of its own, once all its tools have their vectors.
    #[command(
        after_help = "Examples:\n  toolscout catalogs settings\n  toolscout catalogs settings -k 8 --min-confidence 0.2\n  toolscout catalogs settings --embedder bge-m3\n  toolscout --catalog team-a catalogs settings --reset embedder,k"
    )]
    Settings {
        #[command(flatten)]
        options: SearchOptionArgs,
        /// What the catalog is for
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Search by a graph from this number of vectors on, instead of a scan of all [default: what was
        /// measured for each embedder]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        graph_min_vectors: Option<u64>,
        /// Set a weight or a threshold of the scores, as `lexical.k1=1.2` (repeatable); `tune --apply`
        /// finds them
        #[arg(long, value_name = "NAME=VALUE")]
        set: Vec<String>,
        /// First clear these settings (repeatable, or with commas); `all` clears all of them
        #[arg(long, value_delimiter = ',', value_name = "NAME")]
        reset: Vec<Reset>,
    },
    /// Delete a catalog with its tools, its usage memory and the feedback on it
    #[command(
        after_help = "Examples:\n  toolscout catalogs delete old --yes\n  toolscout --data old-data catalogs delete default --yes"
    )]
    Delete {
        /// The catalog
        name: String,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
}

/// A setting that can be cleared.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Reset {
    All,
    K,
    Mode,
    Fusion,
    DenseWeight,
    MinScore,
    MinConfidence,
    Companions,
    FoldDuplicates,
    Embedder,
    Description,
    GraphMinVectors,
    /// The weights and thresholds of --set and of `tune --apply`
    Scoring,
}

impl Reset {
    fn clear(self, settings: &mut Settings) {
        let search = &mut settings.search;
        match self {
            Reset::All => *settings = Settings::default(),
            Reset::K => search.k = None,
            Reset::Mode => search.mode = None,
            Reset::Fusion => search.fusion = None,
            Reset::DenseWeight => search.dense_weight = None,
            Reset::MinScore => search.min_score = None,
            Reset::MinConfidence => search.min_confidence = None,
            Reset::Companions => search.companions = None,
            Reset::FoldDuplicates => search.fold_duplicates = None,
            Reset::Embedder => settings.embedder = None,
            Reset::Description => settings.description.clear(),
            Reset::GraphMinVectors => settings.graph_min_vectors = None,
            // The scoring is everything besides these, whatever is added to it.
            Reset::Scoring => {
                *settings = Settings {
                    description: settings.description.clone(),
                    search: settings.search,
                    embedder: settings.embedder.clone(),
                    graph_min_vectors: settings.graph_min_vectors,
                    ..Settings::default()
                }
            }
        }
    }
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        match self.action {
            Action::List => list(context),
            Action::Settings {
                options,
                description,
                graph_min_vectors,
                set,
                reset,
            } => {
                let given = Given {
                    search: options.options(),
                    description,
                    graph_min_vectors: graph_min_vectors.and_then(|n| usize::try_from(n).ok()),
                    set,
                };
                settings(context, given, &reset)
            }
            Action::Delete { yes: false, name } => refuse_to_delete(context, name),
            Action::Delete { yes: true, name } => delete(context, &name),
        }
    }
}

fn list(context: &Context) -> Result<Outcome> {
    let dir = context.data_dir();
    let mut counted = Vec::new();
    for name in dir.catalogs()? {
        // A damaged catalog is listed too, so that it can be deleted.
        let opened = dir.open(&name, Options::default());
        counted.push((name, opened.map(|catalog| catalog.searcher().len())));
    }
    if context.printer.is_json() {
        let mut json = Vec::new();
        for (name, tools) in &counted {
            json.push(as_json(name, tools));
        }
        context.printer.json(&json)?;
        return Ok(Outcome::Success);
    }
    if counted.is_empty() {
        print_stderr(format_args!(
            "no catalogs in {}; `toolscout add FILE` creates one",
            dir.path().display()
        ));
        return Ok(Outcome::Success);
    }
    let mut rows = Vec::new();
    for (name, tools) in counted {
        let tools = match tools {
            Ok(tools) => tools.to_string(),
            Err(error) => {
                context.warn(format_args!("{name}: {error}"));
                "damaged".to_owned()
            }
        };
        rows.push(vec![name, tools]);
    }
    context.printer.rows(&["catalog", "tools"], rows)?;
    context
        .printer
        .note(format_args!("in {}", dir.path().display()))?;
    Ok(Outcome::Success)
}

fn as_json(name: &str, tools: &toolscout_index::Result<usize>) -> Value {
    match tools {
        Ok(tools) => json!({ "name": name, "tools": tools }),
        Err(error) => json!({ "name": name, "damaged": error.to_string() }),
    }
}

/// The settings that flags give.
struct Given {
    search: SearchOptions,
    description: Option<String>,
    graph_min_vectors: Option<usize>,
    set: Vec<String>,
}

fn settings(context: &Context, given: Given, reset: &[Reset]) -> Result<Outcome> {
    let catalog = context.open(Legs::Lexical)?;
    let before = catalog.searcher().settings().clone();
    let mut settings = before.clone();
    for name in reset {
        name.clear(&mut settings);
    }
    // Before anything is written: the catalog must not lose vectors that its searches use.
    if let Some(embedder) = context.globals.embedder() {
        check_complete(context)?;
        settings.embedder = Some(embedder.stored()?);
    }
    settings.search = given.search.or(settings.search);
    settings.description = given.description.unwrap_or(settings.description);
    settings.graph_min_vectors = given.graph_min_vectors.or(settings.graph_min_vectors);
    for setting in &given.set {
        settings = with(&settings, setting)?;
    }
    if settings != before {
        let mut writer = catalog.writer()?;
        writer.set_settings(&settings)?;
        writer.commit()?;
    }
    print_settings(context, &settings)?;
    Ok(Outcome::Success)
}

/// These settings with a number, given as `NAME=VALUE` with the name that it has in them.
fn with(settings: &Settings, given: &str) -> Result<Settings> {
    let refused = |reason: String| UsageError(format!("--set {given}: {reason}"));
    let Some((name, value)) = given.split_once('=') else {
        return Err(refused("write NAME=VALUE".to_owned()).into());
    };
    let Ok(number) = value.trim().parse::<f64>() else {
        return Err(refused(format!("{value:?} is not a number")).into());
    };
    // By way of JSON, which names all weights and thresholds alike.
    let mut fields = json!(settings);
    let known = scoring(&fields);
    if !known.iter().any(|(known, _)| known == name.trim()) {
        let names: Vec<String> = known.into_iter().map(|(name, _)| name).collect();
        return Err(refused(format!(
            "there is no such setting; use one of {}",
            names.join(", ")
        ))
        .into());
    }
    let pointer = format!("/{}", name.trim().replace('.', "/"));
    if let Some(field) = fields.pointer_mut(&pointer) {
        *field = json!(number);
    }
    Ok(serde_json::from_value(fields).map_err(|error| refused(error.to_string()))?)
}

/// The weights and thresholds of settings, by the names of `--set`.
fn scoring(settings: &Value) -> Vec<(String, Value)> {
    let mut numbers = Vec::new();
    collect_numbers("", settings, &mut numbers);
    // These have flags of their own.
    numbers.retain(|(name, _)| name != "graph_min_vectors" && !name.starts_with("search."));
    numbers
}

fn collect_numbers(path: &str, value: &Value, numbers: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                collect_numbers(&path, value, numbers);
            }
        }
        Value::Number(_) => numbers.push((path.to_owned(), value.clone())),
        _ => {}
    }
}

/// Fails where tools have no vectors by the embedders of the settings: searches would lose what the
/// present ones find.
pub fn check_complete(context: &Context) -> Result<()> {
    let embedder = context.settings.embedder.shown();
    context.set_patience(Patience::of_server());
    if let Err(problem) = context.required_model()
        && problem.is_problem()
    {
        bail!("{problem}; the embedders of the catalog stay as they are");
    }
    let pending = context.open(Legs::All)?.searcher().pending_embeddings();
    if pending > 0 {
        bail!(
            "{} by {embedder} yet, so the embedders of the catalog stay as they are; `toolscout embed --embedder \
             {embedder} --switch` makes the vectors and then switches",
            if pending == 1 {
                "1 tool has no vectors".to_owned()
            } else {
                format!("{pending} tools have no vectors")
            }
        );
    }
    Ok(())
}

fn print_settings(context: &Context, settings: &Settings) -> Result<()> {
    let mut fields = written(&settings.search)?;
    // Where they are not set, stored settings do not have them.
    fields["companions"] = json!(settings.search.companions);
    fields["fold_duplicates"] = json!(settings.search.fold_duplicates);
    fields["embedder"] = json!(settings.embedder.as_deref().map(masked));
    fields["description"] = json!(settings.description);
    fields["graph_min_vectors"] = json!(settings.graph_min_vectors);
    let usual = scoring(&written(&Settings::default())?);
    // Both have the same names in the same order. What was not changed would only fill the list.
    for ((name, value), (_, usual)) in scoring(&written(settings)?).into_iter().zip(usual) {
        if value != usual {
            fields[name] = value;
        }
    }
    if context.printer.is_json() {
        return context.printer.json(&fields);
    }
    let mut rows = Vec::new();
    for (name, value) in fields.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => "not set".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        rows.push(vec![name.clone(), value]);
    }
    context.printer.rows(&["setting", "value"], rows)
}

/// A value as its JSON text has it: 0.2 stays 0.2, which as a wider number would be 0.20000000298023224.
fn written(value: &impl Serialize) -> Result<Value> {
    Ok(serde_json::from_str(&serde_json::to_string(value)?)?)
}

/// Asks for `--yes`, once the catalog is known to exist.
fn refuse_to_delete(context: &Context, name: String) -> Result<Outcome> {
    let dir = context.data_dir();
    if !dir.catalogs()?.contains(&name) {
        let data_dir = dir.path().to_owned();
        return Err(Error::UnknownCatalog { name, data_dir }.into());
    }
    Err(UsageError(format!(
        "this deletes every tool in {name:?} permanently; add --yes to confirm"
    ))
    .into())
}

/// Deletes a catalog with everything that belongs to it.
pub fn delete(context: &Context, name: &str) -> Result<Outcome> {
    let deleted = context.data_dir().delete(name);
    let data = &context.settings.data;
    // Feedback on a missing catalog is deleted too: an earlier delete may have been interrupted
    // after the catalog.
    let is_gone = matches!(deleted, Ok(()) | Err(Error::UnknownCatalog { .. }));
    if is_gone && FeedbackStore::exists(data) {
        FeedbackStore::open(data)?
            .forget(name)
            .context("delete the catalog's feedback")?;
    }
    if is_gone && let Some(mut usage) = UsageDatabase::open_existing(data)? {
        usage.forget(name)?;
    }
    // Last, so that what belongs to a catalog that is gone already is deleted all the same.
    deleted?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "deleted": name }))?;
    } else {
        context.printer.text(format_args!("deleted {name}"))?;
    }
    Ok(Outcome::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_a_catalog_can_be_set() {
        let before = Settings::default();
        let numbers = scoring(&json!(before));
        let mut after = before.clone();
        for (name, value) in numbers {
            let other = value.as_f64().unwrap() / 2.0;
            after = with(&after, &format!("{name}={other}")).unwrap();
        }
        after.validate().unwrap();
        // A new setting does not compile until it is compared here.
        let Settings {
            description: _,       // --description
            search: _,            // the options of a search
            embedder: _,          // --embedder
            graph_min_vectors: _, // --graph-min-vectors
            lexical,
            dense_weight,
            joint_dense_weight,
            no_match_coverage,
            no_match_cosine: _, // of earlier versions
            tuned_on: _,        // tune
        } = after.clone();
        assert_ne!(lexical.k1, before.lexical.k1);
        assert_ne!(lexical.b, before.lexical.b);
        assert_ne!(lexical.weights, before.lexical.weights);
        assert_ne!(dense_weight, before.dense_weight);
        assert_ne!(joint_dense_weight, before.joint_dense_weight);
        assert_ne!(no_match_coverage, before.no_match_coverage);
        let mut all = after.clone();
        Reset::Scoring.clear(&mut after);
        assert_eq!(after, before);
        all.description = "mail".into();
        all.search.k = Some(7);
        Reset::All.clear(&mut all);
        assert_eq!(all, before);
    }

    #[test]
    fn a_setting_that_is_not_one_is_named() {
        let before = Settings::default();
        for (given, expected) in [
            ("lexical.k2=1", "there is no such setting; use one of"),
            ("lexical.k1", "write NAME=VALUE"),
            ("lexical.k1=much", "\"much\" is not a number"),
        ] {
            let message = with(&before, given).unwrap_err().to_string();
            assert!(
                message.contains(given) && message.contains(expected),
                "{message}"
            );
        }
    }
}
