//! The flags that every verb accepts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use super::output::Output;
use crate::config::{EmbedderKind, EmbedderLayer, Layer};

/// Flags that every verb accepts.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub struct Globals {
    /// Directory of the catalogs [env: TOOLSCOUT_DATA; default: the platform's data directory]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Directory of models and the ONNX Runtime [env: TOOLSCOUT_CACHE; default: the platform's
    /// cache directory]
    #[arg(long, global = true, hide_short_help = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Catalog to use [env: TOOLSCOUT_CATALOG; default: default]
    #[arg(long, global = true, value_name = "NAME")]
    catalog: Option<String>,
    /// Embedding: auto (the built-in tables and encoder), table (the tables alone), encoder (as auto), minilm (the
    /// tables and all-MiniLM-L6-v2, after `models pull`), none, a model of `models list --all`, the
    /// URL of an OpenAI-compatible endpoint (URL#MODEL), or a name of `[embedders]` in the
    /// configuration file; several with `+`. The built-in tables are part of every one but none:
    /// `table+minilm` is `minilm`. For `eval` also several with commas, which are compared
    /// [env: TOOLSCOUT_EMBEDDER; default: auto]
    #[arg(long, global = true, hide_short_help = true, value_name = "MODEL")]
    embedder: Option<Embedders>,
    /// Configuration file [env: TOOLSCOUT_CONFIG; default: config.toml in the platform's
    /// configuration directory]
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Output format [default: a table on a terminal, tab-separated columns elsewhere]
    #[arg(long, global = true, hide_short_help = true, value_name = "KIND")]
    output: Option<Output>,
    /// Print JSON; the same as --output json
    // A text instead of a switch: `eval --json FILE` redefines the flag, and clap copies the values
    // of global flags between a command and its subcommands, which must have one type.
    #[arg(
        long,
        global = true,
        conflicts_with = "output",
        num_args = 0,
        default_missing_value = "-"
    )]
    json: Option<String>,
}

/// The value of `--embedder`: one, or for `eval` several with commas.
#[derive(Clone, Debug)]
struct Embedders(Vec<EmbedderKind>);

impl FromStr for Embedders {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let kinds = text.split(',').map(str::parse);
        Ok(Embedders(kinds.collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for Embedders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(EmbedderKind::to_string).collect();
        f.write_str(&names.join(","))
    }
}

impl Globals {
    /// The settings that the flags give.
    pub fn layer(&self) -> Layer {
        Layer {
            data: self.data.clone(),
            cache: self.cache.clone(),
            catalog: self.catalog.clone(),
            embedder: self.embedder().cloned().map(EmbedderLayer::Named),
            ..Layer::default()
        }
    }

    /// The catalog of `--catalog`.
    pub fn catalog(&self) -> Option<&str> {
        self.catalog.as_deref()
    }

    /// The embedders of `--embedder`.
    pub fn embedder(&self) -> Option<&EmbedderKind> {
        self.embedders().first()
    }

    /// All of them, where `eval` compares several.
    pub fn embedders(&self) -> &[EmbedderKind] {
        self.embedder.as_ref().map_or(&[], |embedders| &embedders.0)
    }

    /// The configuration file of `--config`.
    pub fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// The output format of `--output` or `--json`.
    pub fn output(&self) -> Option<Output> {
        if self.json.is_some() {
            Some(Output::Json)
        } else {
            self.output
        }
    }

    /// The flags that choose data and settings, as arguments for another run of this program in any
    /// directory: paths are absolute.
    pub fn to_args(&self) -> Vec<String> {
        let flags = [
            ("--data", self.data.as_deref().map(absolute)),
            ("--cache", self.cache.as_deref().map(absolute)),
            ("--catalog", self.catalog.clone()),
            (
                "--embedder",
                self.embedder.as_ref().map(Embedders::to_string),
            ),
            ("--config", self.config.as_deref().map(absolute)),
        ];
        let mut args = Vec::new();
        for (flag, value) in flags {
            if let Some(value) = value {
                args.extend([flag.to_owned(), value]);
            }
        }
        args
    }
}

/// The path from the root, whether or not something exists there.
pub fn absolute(path: &Path) -> String {
    // It fails only for an empty path, or without a current directory.
    match std::path::absolute(path) {
        Ok(path) => path.display().to_string(),
        Err(_) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_repeated_with_absolute_paths() {
        let globals = Globals {
            data: Some("d".into()),
            catalog: Some("work".into()),
            embedder: Some(Embedders(vec![EmbedderKind::Table])),
            json: Some("-".into()),
            ..Globals::default()
        };
        let data = absolute(Path::new("d"));
        assert!(Path::new(&data).is_absolute());
        assert_eq!(
            globals.to_args(),
            ["--data", &data, "--catalog", "work", "--embedder", "table"]
        );
    }
}
