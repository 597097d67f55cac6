//! `toolscout search`: finds tools.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use toolscout_index::formats::Emit;
use toolscout_index::hit::{LegScore, NameMatch, Reason, Reranked};
use toolscout_index::{
    Degraded, DegradedCause, Explain, Fusion, Hit, Mode, Query, Results, Searcher, Timings, Tool,
    Variant,
};

use super::context::{Context, Legs};
use super::export::print_emitted;
use super::list::Which;
use super::output::summary;
use super::{Outcome, Usage};
use crate::config::EmbedderKind;
use crate::{hints, printable};

/// Shorter stages would be shown as 0.00 ms.
const SHOWN_MS: f64 = 0.005;

/// Finds the tools that fit a request in plain words, or an exact name.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What the tool should do
    #[arg(value_name = "QUERY")]
    words: Vec<String>,
    /// A further request, answered in one list with the others (repeatable)
    #[arg(short, long = "query", value_name = "QUERY")]
    queries: Vec<String>,
    /// Hits, 1 to 50 [default: search.k, 5]
    #[arg(short, value_name = "N")]
    k: Option<usize>,
    /// lexical, dense, hybrid or auto [default: search.mode, auto]
    #[arg(short, long)]
    mode: Option<Mode>,
    /// How the legs' scores become one: convex or rrf [default: search.fusion, convex]
    #[arg(long)]
    fusion: Option<Fusion>,
    /// Share of the dense legs, 0 to 1 [default: search.dense_weight, else the engine's]
    #[arg(long, value_name = "W")]
    dense_weight: Option<f32>,
    /// Leave out hits below this score [default: search.min_score, 0]
    #[arg(long, value_name = "SCORE")]
    min_score: Option<f32>,
    /// Order hits by the formula alone, without the learned ranker
    #[arg(long)]
    no_ranker: bool,
    /// Answer "no match" below this confidence, 0 to 1 [default: 0, never]
    #[arg(long, value_name = "CONFIDENCE")]
    min_confidence: Option<f32>,
    /// Take the request as one need, never split into several
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    which: Which,
    /// Only this tool (repeatable)
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// Do what can be done in about this many milliseconds; the answer says how much that was
    #[arg(long, value_name = "MS")]
    budget_ms: Option<f64>,
    /// Show near-duplicates of a tool on several servers as one hit
    #[arg(long)]
    fold: bool,
    /// Say how each hit came to its place
    #[arg(long)]
    explain: bool,
    /// Write the found tools in this format: openai, openai_responses, anthropic,
    /// anthropic_reference, mcp, names, signature
    #[arg(long, value_name = "FORMAT")]
    format: Option<Emit>,
}

impl Args {
    /// Searches and prints the hits.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let (texts, format) = (self.texts()?, self.format);
        let mode = self.mode_in(context);
        let legs = if mode == Mode::Lexical {
            Legs::Lexical
        } else {
            Legs::All
        };
        let query = self.query(context, &texts).mode(mode);
        query.validate()?;
        let start = Instant::now();
        let searcher = context.open(legs)?.searcher();
        let opened = start.elapsed();
        let mut results = searcher.search(&query)?;
        if let Some(missing) = context.missing_model() {
            results.degraded.get_or_insert_with(|| Degraded {
                cause: DegradedCause::EmbedderNotLoaded(missing.to_string()),
                pending_embeddings: searcher.pending_embeddings(),
            });
        }
        Answer {
            context,
            texts,
            results,
            searcher: &searcher,
            opened,
        }
        .print(format)
    }

    /// The words are one request, each `--query` is another.
    fn texts(&self) -> Result<Vec<String>> {
        let words = (!self.words.is_empty()).then(|| self.words.join(" "));
        let texts: Vec<String> = words
            .into_iter()
            .chain(self.queries.iter().cloned())
            .collect();
        if texts.is_empty() {
            return Err(
                Usage("no query; say in a few words what the tool should do".into()).into(),
            );
        }
        Ok(texts)
    }

    /// Where embedding is switched off, lexical search is what is wanted and not a lack of
    /// something.
    fn mode_in(&self, context: &Context) -> Mode {
        match self.mode.unwrap_or(context.settings.search.mode) {
            Mode::Auto if context.settings.embedder == EmbedderKind::None => Mode::Lexical,
            mode => mode,
        }
    }

    fn query(self, context: &Context, texts: &[String]) -> Query {
        let defaults = context.settings.search;
        let mut filter = self.which.filter();
        filter.ids = self.id.into_iter().collect();
        let mut query = Query::any_of(texts)
            .k(self.k.unwrap_or(defaults.k))
            .fusion(self.fusion.unwrap_or(defaults.fusion))
            .min_score(self.min_score.unwrap_or(defaults.min_score))
            .filter(filter);
        if let Some(weight) = self.dense_weight.or(defaults.dense_weight) {
            query = query.dense_weight(weight);
        }
        if self.no_ranker {
            query = query.without_ranker();
        }
        if let Some(confidence) = self.min_confidence {
            query = query.min_confidence(confidence);
        }
        if let Some(budget_ms) = self.budget_ms {
            query = query.budget_ms(budget_ms);
        }
        if self.fold {
            query = query.fold_duplicates();
        }
        if self.whole {
            query = query.whole();
        }
        if self.explain {
            query = query.explain();
        }
        query
    }
}

/// Results and what is needed to tell them.
struct Answer<'a> {
    context: &'a Context,
    texts: Vec<String>,
    results: Results,
    searcher: &'a Searcher,
    opened: Duration,
}

impl Answer<'_> {
    fn print(&self, format: Option<Emit>) -> Result<Outcome> {
        let printer = self.context.printer;
        match format {
            Some(format) => {
                let tools: Vec<&Tool> = self.results.hits.iter().map(|hit| &*hit.tool).collect();
                print_emitted(self.context, &tools, format)?;
            }
            None if printer.is_json() => printer.json(&self.as_json())?,
            None => self.print_hits()?,
        }
        Ok(Outcome::Done)
    }

    fn print_hits(&self) -> Result<()> {
        let printer = self.context.printer;
        let hits = &self.results.hits;
        if hits.iter().any(|hit| hit.explain.is_some()) {
            explained(hits)
                .iter()
                .try_for_each(|line| printer.line(line))?;
        } else if !hits.is_empty() {
            self.print_rows()?;
        }
        self.notes().iter().try_for_each(|note| printer.note(note))
    }

    fn print_rows(&self) -> Result<()> {
        let several = self.texts.len() > 1;
        let rows = self.results.hits.iter().enumerate().map(|(index, hit)| {
            let mut row = vec![
                (index + 1).to_string(),
                format!("{:.3}", hit.score),
                hit.id.to_string(),
            ];
            if several {
                row.push(self.found_by(hit));
            }
            row.push(
                summary(&hit.tool)
                    + &also_on(hit)
                        .map(|others| format!(" ({others})"))
                        .unwrap_or_default(),
            );
            row
        });
        let header: &[&str] = if several {
            &["#", "score", "id", "for", "description"]
        } else {
            &["#", "score", "id", "description"]
        };
        self.context.printer.rows(header, rows.collect())
    }

    /// The queries that found a hit, by number.
    fn found_by(&self, hit: &Hit) -> String {
        hit.matched_queries
            .iter()
            .map(|query| (query + 1).to_string())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// What is to be said below the hits: no match, less than asked for, and where the time went.
    fn notes(&self) -> Vec<String> {
        let Results {
            hits,
            degraded,
            no_match,
            timings,
            confidence,
            ..
        } = &self.results;
        let mut notes = Vec::new();
        if let Some(no_match) = no_match {
            let nearest: Vec<&str> = no_match.nearest.iter().map(|id| id.as_str()).collect();
            notes.push(format!("no match: {}", no_match.reason));
            if !nearest.is_empty() {
                notes.push(format!("nearest: {}", nearest.join(", ")));
            }
        }
        notes.extend(
            degraded
                .as_ref()
                .map(|degraded| format!("degraded: {}", hints::degraded_reason(degraded))),
        );
        notes.push(format!(
            "{} · {} of {} tools · {}{} · opened in {:.0} ms",
            tier(&self.results),
            hits.len(),
            self.searcher.len(),
            confidence
                .map(|confidence| format!("confidence {confidence:.2} · "))
                .unwrap_or_default(),
            told(timings),
            self.opened.as_secs_f64() * 1e3
        ));
        notes
    }

    fn as_json(&self) -> Value {
        let Results {
            mode,
            variant,
            embedders,
            degraded,
            no_match,
            timings,
            generation,
            ..
        } = &self.results;
        let hits: Vec<Value> = self
            .results
            .hits
            .iter()
            .enumerate()
            .map(|(index, hit)| hit_json(index + 1, hit))
            .collect();
        json!({
            "queries": self.texts,
            "hits": hits,
            "mode": mode,
            "variant": variant,
            "embedders": embedders,
            "degraded": degraded.as_ref().map(hints::degraded_json),
            "no_match": no_match,
            "confidence": self.results.confidence,
            "took_ms": {
                "open": self.opened.as_secs_f64() * 1e3,
                "embed": timings.embed_ms,
                "lexical": timings.lexical_ms,
                "dense": timings.dense_ms,
                "fuse": timings.fuse_ms,
                "rank": timings.rank_ms,
                "total": timings.total_ms,
            },
            "tools": self.searcher.len(),
            "generation": generation,
        })
    }
}

fn hit_json(rank: usize, hit: &Hit) -> Value {
    let mut json = json!({
        "rank": rank,
        "id": hit.id,
        "name": hit.id.name(),
        "server": hit.id.server(),
        "title": hit.tool.title,
        "description": hit.tool.description,
        "score": hit.score,
        "matched_queries": hit.matched_queries,
    });
    if !hit.also_on.is_empty() {
        json["also_on"] = json!(hit.also_on);
    }
    if let Some(explain) = &hit.explain {
        json["explain"] = json!(explain);
    }
    json
}

/// What answered: the mode, what was heard beside words, and what was left out for time.
fn tier(results: &Results) -> String {
    let names: Vec<&str> = results
        .embedders
        .iter()
        .filter_map(|id| id.split('/').next())
        .collect();
    let heard = if names.is_empty() {
        String::new()
    } else {
        format!(" ({})", names.join(", "))
    };
    let variant = results.variant;
    let cut = if variant == Variant::Full {
        String::new()
    } else {
        format!(" · {variant} variant for time")
    };
    format!("{}{heard}{cut}", results.mode)
}

fn also_on(hit: &Hit) -> Option<String> {
    let others: Vec<&str> = hit.also_on.iter().map(|id| id.as_str()).collect();
    (!others.is_empty()).then(|| format!("also on: {}", others.join(", ")))
}

fn told(timings: &Timings) -> String {
    let stages = timings.stages().into_iter();
    let stages: Vec<String> = stages
        .filter(|(_, ms)| *ms >= SHOWN_MS)
        .map(|(stage, ms)| format!("{stage} {ms:.2}"))
        .collect();
    format!("{:.2} ms ({})", timings.total_ms, stages.join(", "))
}

fn explained(hits: &[Hit]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, hit) in hits.iter().enumerate() {
        lines.push(format!("{}. {:.3}  {}", index + 1, hit.score, hit.id));
        lines.push(format!("     {}", printable::line(&summary(&hit.tool))));
        lines.extend(also_on(hit).map(|others| format!("     {}", printable::line(&others))));
        if let Some(explain) = &hit.explain {
            lines.extend(
                reasons(explain)
                    .into_iter()
                    .map(|(title, reason)| format!("     {title:<8} {reason}")),
            );
        }
    }
    lines
}

fn reasons(explain: &Explain) -> Vec<(&'static str, String)> {
    let mut reasons = Vec::new();
    reasons.extend(
        explain
            .name_match
            .map(|how| ("name", name_told(how).to_owned())),
    );
    reasons.extend(
        explain
            .lexical
            .as_ref()
            .map(|leg| ("lexical", leg_told(leg, "bm25"))),
    );
    for (model, leg) in &explain.dense {
        reasons.push(("dense", format!("{}, {model}", leg_told(leg, "cosine"))));
    }
    if !explain.matched.is_empty() {
        let fields = explain
            .matched
            .iter()
            .map(|field| format!("{}: {}", field.field, field.terms.join(" ")));
        reasons.push(("matched", fields.collect::<Vec<_>>().join("; ")));
    }
    for edit in &explain.fuzzy {
        reasons.push((
            "fuzzy",
            format!("{} → {}, edits: {}", edit.from, edit.to, edit.edits),
        ));
    }
    if !explain.clauses.is_empty() {
        reasons.push(("clauses", clauses_told(explain)));
    }
    reasons.push((
        "fused",
        format!(
            "{:.3} with dense weight {:.2}",
            explain.fused, explain.dense_weight
        ),
    ));
    reasons.extend(
        explain
            .ranker
            .as_ref()
            .map(|ranker| ("ranker", ranker_told(ranker))),
    );
    reasons
}

fn ranker_told(ranker: &Reranked) -> String {
    let moved = |reason: &Reason| format!("{} {:+.2}", reason.feature, reason.moved);
    let reasons: Vec<String> = ranker.reasons.iter().map(moved).collect();
    format!(
        "place {} to {}, by {}",
        ranker.before,
        ranker.after,
        reasons.join(", ")
    )
}

fn name_told(how: NameMatch) -> &'static str {
    match how {
        NameMatch::Suffix => "the query's words end the name",
        NameMatch::Exact => "the query is the name up to case and separators",
        NameMatch::Verbatim => "the query is the name",
    }
}

fn clauses_told(explain: &Explain) -> String {
    let best = explain
        .best_clause
        .and_then(|best| explain.clauses.get(best));
    let best = best
        .map(|clause| format!("; best for {clause:?}"))
        .unwrap_or_default();
    format!("{}{best}", explain.clauses.join(" | "))
}

fn leg_told(leg: &LegScore, unit: &str) -> String {
    format!(
        "rank {}, {unit} {:.3}, normalised {:.3}",
        leg.rank, leg.raw, leg.normalised
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stages_that_took_time_are_told() {
        let timings = Timings {
            lexical_ms: 0.25,
            total_ms: 0.3,
            ..Timings::default()
        };
        assert_eq!(told(&timings), "0.30 ms (lexical 0.25)");
    }

    #[test]
    fn an_explanation_names_legs_fields_and_edits() {
        let explain = Explain {
            name_match: Some(NameMatch::Suffix),
            lexical: Some(LegScore {
                rank: 2,
                raw: 7.5,
                normalised: 0.5,
            }),
            fuzzy: vec![toolscout_index::hit::FuzzyEdit {
                from: "isue".into(),
                to: "issu".into(),
                edits: 1,
            }],
            fused: 0.5,
            ..Explain::default()
        };
        let titles: Vec<&str> = reasons(&explain).iter().map(|(title, _)| *title).collect();
        assert_eq!(titles, ["name", "lexical", "fuzzy", "fused"]);
        assert_eq!(
            reasons(&explain)[1].1,
            "rank 2, bm25 7.500, normalised 0.500"
        );
    }
}
