//! The flags of search options, shared by several verbs.

use toolscout_index::{Fusion, Mode, SearchOptions, search_options_of};

/// Options of a search. Without a flag the configuration file counts, then the settings of the
/// catalog, then the value in brackets.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SearchOptionArgs {
    /// Number of hits, 1 to 50 [default: 5]
    #[arg(short, long, alias = "limit", value_name = "N")]
    k: Option<usize>,
    /// lexical, dense, hybrid or auto [default: auto]
    #[arg(short, long)]
    mode: Option<Mode>,
    /// How the scores of the legs are combined: convex or rrf [default: convex]
    #[arg(long)]
    fusion: Option<Fusion>,
    /// Weight of the dense legs, 0 to 1 [default: by their number]
    #[arg(long, value_name = "W")]
    dense_weight: Option<f32>,
    /// Leave out hits below this raw score, see --explain [default: 0]
    #[arg(long, value_name = "SCORE")]
    min_score: Option<f32>,
    /// Answer "no match" below this confidence, 0 to 1 [default: 0, never]
    #[arg(long, value_name = "CONFIDENCE")]
    min_confidence: Option<f32>,
    /// Put a tool that finds what a hit needs behind that hit: true or false [default: true]
    #[arg(long, value_name = "BOOL")]
    companions: Option<bool>,
    /// Fold near-duplicates of a tool on several servers into one hit: --fold or --fold=false [default: false]
    #[arg(
        long = "fold",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    fold_duplicates: Option<bool>,
}

impl SearchOptionArgs {
    /// The engine's options.
    pub fn options(&self) -> SearchOptions {
        search_options_of!(self)
    }
}
