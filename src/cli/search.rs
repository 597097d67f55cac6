//! `toolscout search`: finds tools.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use toolscout_index::formats::Emit;
use toolscout_index::hit::{MatchedField, NameMatch, Reranked};
use toolscout_index::{
    CompanionOf, Explain, Filter, Hit, Kind, Match, Mode, NoMatchReason, Query, Results, Searcher,
    Timings, Tool, ToolId, Variant,
};

use super::Outcome;
use super::context::{Context, Legs};
use super::exit::UsageError;
use super::export::print_emitted;
use super::list::{FilterArgs, in_words, labelled_summary};
use super::search_options::SearchOptionArgs;
use crate::config::EmbedderKind;
use crate::models::Patience;
use crate::{hints, printable, samples};

/// Stages below this would be printed as 0.00 ms and are left out.
const MIN_STAGE_MS: f64 = 0.005;
/// What is said of hits that most probably do not fit.
const NEAREST_ONLY: &str = "probably no tool here does this; these are the nearest";
/// Most reasons printed for a move of the ranker.
const MAX_REASONS: usize = 3;

/// Finds the tools that fit a request in plain words, or an exact name.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout search open a ticket about a bug\n  toolscout search -q \"convert currencies\" -q \"translate text\" -k 8 --explain\n  toolscout search --kind skill,prompt write the weekly report"
)]
pub struct Args {
    /// What the tool should do
    #[arg(value_name = "QUERY")]
    words: Vec<String>,
    /// A further request; the hits of all requests are merged into one list (repeatable)
    #[arg(short, long = "query", value_name = "QUERY")]
    queries: Vec<String>,
    #[command(flatten)]
    options: SearchOptionArgs,
    /// Rank by the fused score alone, without the learned ranker
    #[arg(long)]
    no_ranker: bool,
    /// Search the request as a whole, never split into clauses
    #[arg(long)]
    whole: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only this tool (repeatable)
    #[arg(long, value_name = "ID")]
    id: Vec<String>,
    /// Time limit of the search in milliseconds; the output names the stages that were left out
    #[arg(long, value_name = "MS")]
    budget_ms: Option<f64>,
    /// Print why each hit was found and ranked where it is
    #[arg(long)]
    explain: bool,
    /// Print the found tools in this format: openai, openai_responses, anthropic,
    /// anthropic_reference, mcp, names, signature
    #[arg(long, value_name = "FORMAT")]
    format: Option<Emit>,
    /// Do not say below the hits that they are samples: `toolscout demo` has said so.
    #[arg(skip)]
    no_remark_on_samples: bool,
}

impl Args {
    /// Searches and prints the hits.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let (texts, format, is_explained) = (self.texts()?, self.format, self.explain);
        let no_remark_on_samples = self.no_remark_on_samples;
        let servers = self.filter.server.clone();
        let mut options = self.options.options().or(context.settings.search);
        let is_mode_open = matches!(options.mode, None | Some(Mode::Auto));
        if context.settings.embedder == EmbedderKind::None && is_mode_open {
            // The user chose words alone, so the answer is not degraded.
            options.mode = Some(Mode::Lexical);
        }
        let legs = match options.mode {
            Some(Mode::Lexical) => Legs::Lexical,
            _ => Legs::All,
        };
        let budget = self.budget();
        let kinds = self.filter.clone().filter().kinds.into_iter().collect();
        let query = self.query(&texts).options(options);
        query.validate()?;
        context.set_patience(Patience::of_search(budget));
        // Below the hits it says what is missing; a warning above them would say it twice.
        let has_notes = format.is_none() && !context.printer.is_json();
        if has_notes && legs == Legs::All && context.has_catalog()? {
            // Loaded here, because `open` would print the warning.
            let _ = context.required_model();
        }
        let start = Instant::now();
        // The process ends soon, and the system frees its memory sooner than piece by piece.
        let searcher = ManuallyDrop::new(context.open(legs)?.searcher());
        let opened = start.elapsed();
        let results = searcher.search(&query)?;
        // An answer without a tool that passes the filter says so itself.
        let reason = results.no_match.as_ref().map(|no_match| &no_match.reason);
        let is_said = has_notes && matches!(reason, Some(NoMatchReason::Filter { .. }));
        if !is_said {
            context.warn_of_unknown_servers(&searcher, &servers);
        }
        Answer {
            context,
            kinds,
            texts,
            results,
            searcher: &searcher,
            opened,
            is_explained,
            no_remark_on_samples,
        }
        .print(format)
    }

    /// The same without the remark that the hits are samples.
    pub fn without_remark_on_samples(self) -> Self {
        Args {
            no_remark_on_samples: true,
            ..self
        }
    }

    /// The time limit, where it is one.
    fn budget(&self) -> Option<Duration> {
        let seconds = self.budget_ms? / 1e3;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// The requests: all positional words together, then each `--query`.
    fn texts(&self) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        if !self.words.is_empty() {
            texts.push(self.words.join(" "));
        }
        texts.extend(self.queries.iter().cloned());
        if texts.is_empty() {
            return Err(UsageError(
                "no query; describe in a few words what the tool should do".into(),
            )
            .into());
        }
        Ok(texts)
    }

    fn query(self, texts: &[String]) -> Query {
        let mut filter = self.filter.filter();
        filter.ids = Arc::new(self.id.into_iter().collect());
        let mut query = Query::any_of(texts).filter(filter);
        if self.no_ranker {
            query = query.without_ranker();
        }
        if let Some(budget_ms) = self.budget_ms {
            query = query.budget_ms(budget_ms);
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

/// An answer, with the context to print it.
struct Answer<'a> {
    context: &'a Context,
    /// Accepts the kinds that were searched.
    kinds: Filter,
    texts: Vec<String>,
    results: Results,
    searcher: &'a Searcher,
    opened: Duration,
    is_explained: bool,
    no_remark_on_samples: bool,
}

impl Answer<'_> {
    fn print(&self, format: Option<Emit>) -> Result<Outcome> {
        let printer = self.context.printer;
        match format {
            Some(format) => {
                let tools: Vec<&Tool> = self.results.hits.iter().map(|hit| &*hit.tool).collect();
                print_emitted(self.context, &tools, format)?;
                if self.results.matched == Match::None && !tools.is_empty() {
                    printer.note(NEAREST_ONLY)?;
                }
            }
            None if printer.is_json() => printer.json(&self.as_json())?,
            None => self.print_hits()?,
        }
        Ok(Outcome::Success)
    }

    fn print_hits(&self) -> Result<()> {
        let printer = self.context.printer;
        let hits = &self.results.hits;
        if hits.iter().any(|hit| hit.explain.is_some()) {
            for line in explanation(hits) {
                printer.text(line)?;
            }
        } else if !hits.is_empty() {
            self.print_rows()?;
        }
        for note in self.notes() {
            printer.note(note)?;
        }
        Ok(())
    }

    /// Prints a row per hit. Raw scores are not among the columns, because they compare hits of one
    /// answer only; the confidence of the answer is in the notes. Plain rows repeat it in the
    /// second column, since programs read rows one by one.
    fn print_rows(&self) -> Result<()> {
        let printer = self.context.printer;
        let several = self.texts.len() > 1;
        let mut header = vec!["#"];
        if !printer.is_table() {
            header.push("confidence");
        }
        header.push("id");
        if several {
            header.push("for");
        }
        header.push("description");
        let mut rows = Vec::new();
        for (index, hit) in self.results.hits.iter().enumerate() {
            let mut row = vec![(index + 1).to_string()];
            if !printer.is_table() {
                row.push(self.confidence().unwrap_or_else(|| "-".to_owned()));
            }
            row.push(hit.id.to_string());
            if several {
                row.push(query_numbers(hit));
            }
            let mut text = labelled_summary(&hit.tool);
            let remarks = [flagged(hit), companion_of(hit), also_on(hit)];
            for remark in remarks.into_iter().flatten() {
                text += &format!(" ({remark})");
            }
            row.push(text);
            rows.push(row);
        }
        printer.rows(&header, rows)
    }

    fn are_samples(&self) -> bool {
        samples::are_in(self.searcher.settings())
    }

    fn confidence(&self) -> Option<String> {
        let confidence = self.results.confidence?;
        Some(format!("{confidence:.2}"))
    }

    /// The lines below the hits: what did not match, a degraded answer, and the figures.
    fn notes(&self) -> Vec<String> {
        let Results {
            hits,
            degraded,
            no_match,
            timings,
            matched,
            unmatched,
            better_hidden,
            ..
        } = &self.results;
        let mut notes = Vec::new();
        if let Some(no_match) = no_match {
            let nearest: Vec<&str> = no_match.nearest.iter().map(ToolId::as_str).collect();
            notes.push(format!("no match: {}", no_match.reason));
            if !nearest.is_empty() {
                notes.push(format!("nearest: {}", nearest.join(", ")));
            }
        }
        if !hits.is_empty() && *matched == Match::None {
            notes.push(NEAREST_ONLY.to_owned());
        }
        if !unmatched.is_empty() {
            notes.push(format!("in no hit: {}", unmatched.join(", ")));
        }
        match better_hidden {
            0 => {}
            1 => notes.push("1 tool that matches better is left out by the filter".to_owned()),
            count => notes.push(format!(
                "{count} tools that match better are left out by the filter"
            )),
        }
        if let Some(degraded) = degraded {
            notes.push(format!("degraded: {}", hints::degraded_reason(degraded)));
        }
        if self.is_explained {
            notes.push(format!(
                "{} · {} · opened in {:.0} ms",
                describe_pipeline(&self.results),
                describe_timings(timings),
                self.opened.as_secs_f64() * 1e3
            ));
        }
        notes.push(self.figures());
        if self.are_samples() && !self.no_remark_on_samples {
            notes.push("these are sample tools; `toolscout add FILE` adds your own".to_owned());
        }
        notes
    }

    /// How many of the items that were searched are hits.
    fn share(&self) -> String {
        let hits = self.results.hits.len();
        let mut counts = self.searcher.count_by_kind();
        counts.retain(|&kind, _| self.kinds.accepts_kind(kind));
        match counts.keys().all(Kind::is_tool) {
            true => {
                let tools = counts.get(&Kind::Tool).copied().unwrap_or_default();
                format!("{hits} of {tools} tools")
            }
            false => format!("{hits} of {}", in_words(&counts)),
        }
    }

    /// The number of hits, the confidence, the time, and the variant where time was short.
    fn figures(&self) -> String {
        let Results {
            timings, variant, ..
        } = &self.results;
        let mut figures = vec![self.share()];
        figures.push(format!("match {}", self.results.matched.as_str()));
        if let Some(confidence) = self.confidence() {
            figures.push(format!("confidence {confidence}"));
        }
        if *variant != Variant::Full {
            figures.push(format!("{variant} variant for time"));
        }
        // A search often takes less than ten milliseconds, of which a tenth still tells something.
        let decimals = usize::from(timings.total_ms < 10.0);
        figures.push(format!("{:.decimals$} ms", timings.total_ms));
        figures.join(" · ")
    }

    fn as_json(&self) -> Value {
        let Results {
            mode,
            variant,
            embedders,
            degraded,
            no_match,
            matched,
            unmatched,
            better_hidden,
            timings,
            generation,
            ..
        } = &self.results;
        let mut hits = Vec::new();
        for (index, hit) in self.results.hits.iter().enumerate() {
            hits.push(hit_json(index + 1, hit));
        }
        json!({
            "queries": self.texts,
            "hits": hits,
            "mode": mode,
            "variant": variant,
            "embedders": embedders,
            "degraded": degraded.as_ref().map(hints::degraded_json),
            "match": matched,
            "advice": self.results.advice(),
            "unmatched": unmatched,
            "better_hidden": better_hidden,
            "no_match": no_match,
            "confidence": printable::short_floats(&self.results.confidence),
            "took_ms": {
                "open": self.opened.as_secs_f64() * 1e3,
                "embed": timings.embed_ms,
                "lexical": timings.lexical_ms,
                "dense": timings.dense_ms,
                "fuse": timings.fuse_ms,
                "rank": timings.rank_ms,
                "total": timings.total_ms,
            },
            "tools": self.searcher.tool_count(),
            "samples": self.are_samples(),
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
        "description": hit.tool.shown_description(),
        "score": printable::short_floats(&hit.score),
        "matched_queries": hit.matched_queries,
    });
    // Fields that few hits have are left out of the others, instead of being null.
    if let Some(need) = &hit.serves {
        json["serves"] = json!(need);
    }
    if !hit.also_on.is_empty() {
        json["also_on"] = json!(hit.also_on);
    }
    if let Some(companion_of) = &hit.companion_of {
        json["companion_of"] = json!(companion_of);
    }
    if !hit.flagged.is_empty() {
        json["flagged"] = json!(hit.flagged);
    }
    if let Some(explain) = &hit.explain {
        json["explain"] = printable::short_floats(explain);
    }
    json
}

/// The queries that found a hit, by 1-based number.
fn query_numbers(hit: &Hit) -> String {
    let queries = hit.matched_queries.iter();
    let numbers: Vec<String> = queries.map(|query| (query + 1).to_string()).collect();
    numbers.join(", ")
}

/// The mode of the search and its embedders.
fn describe_pipeline(results: &Results) -> String {
    // The part of an id after the slash is a hash of the weights, of no use to a reader.
    let names: Vec<&str> = results
        .embedders
        .iter()
        .filter_map(|id| id.split('/').next())
        .collect();
    let mut text = results.mode.to_string();
    if !names.is_empty() {
        text += &format!(" ({})", names.join(", "));
    }
    text
}

fn also_on(hit: &Hit) -> Option<String> {
    if hit.also_on.is_empty() {
        return None;
    }
    let others: Vec<&str> = hit.also_on.iter().map(ToolId::as_str).collect();
    Some(format!("also on: {}", others.join(", ")))
}

/// What is suspicious about it.
fn flagged(hit: &Hit) -> Option<String> {
    if hit.flagged.is_empty() {
        return None;
    }
    Some(format!("flagged: it {}", hit.flagged.join(", ")))
}

/// Which hit it is a companion of, and for which parameter.
fn companion_of(hit: &Hit) -> Option<String> {
    let CompanionOf { id, parameter, .. } = hit.companion_of.as_ref()?;
    Some(format!("for `{parameter}` of {id}"))
}

fn describe_timings(timings: &Timings) -> String {
    let mut stages = Vec::new();
    for (stage, ms) in timings.stages() {
        if ms >= MIN_STAGE_MS {
            stages.push(format!("{stage} {ms:.2}"));
        }
    }
    format!("{:.2} ms ({})", timings.total_ms, stages.join(", "))
}

/// Several lines per hit: raw score and id, summary, and why it was found.
fn explanation(hits: &[Hit]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, hit) in hits.iter().enumerate() {
        lines.push(format!("{}. {}  score {:.3}", index + 1, hit.id, hit.score));
        lines.push(format!(
            "     {}",
            printable::line(&labelled_summary(&hit.tool))
        ));
        if let Some(others) = also_on(hit) {
            lines.push(format!("     {}", printable::line(&others)));
        }
        if let Some(flagged) = flagged(hit) {
            lines.push(format!("     {}", printable::line(&flagged)));
        }
        let mut titled = Vec::new();
        if let Some(CompanionOf { id, reason, .. }) = &hit.companion_of {
            titled.push(("companion", format!("of {id}: {reason}")));
        }
        if let Some(explain) = &hit.explain {
            titled.extend(reasons(explain));
        }
        for (title, reason) in titled {
            lines.push(format!("     {title:<10} {}", printable::line(&reason)));
        }
    }
    lines
}

/// Why a hit was found and how it got its rank, as titles and texts.
fn reasons(explain: &Explain) -> Vec<(&'static str, String)> {
    let mut reasons = Vec::new();
    if let Some(name_match) = explain.name_match {
        reasons.push(("name", describe_name_match(name_match).to_owned()));
    }
    if !explain.matched.is_empty() {
        reasons.push(("words", describe_fields(&explain.matched)));
    }
    for edit in &explain.fuzzy {
        reasons.push(("corrected", format!("{} to {}", edit.from, edit.to)));
    }
    for everyday in &explain.everyday {
        let words = everyday.words.join(", ");
        reasons.push(("also", format!("{words} for {:?}", everyday.said)));
    }
    for effect in &explain.owner_words {
        reasons.push(("owner", effect.to_string()));
    }
    if let Some(translation) = &explain.translation {
        reasons.push(("read as", translation.clone()));
    }
    if let Some(leg) = &explain.lexical {
        let text = format!("BM25 {:.2}, rank {}", leg.raw, leg.rank);
        reasons.push(("lexical", text));
    }
    for (embedder, leg) in &explain.dense {
        let embedder = embedder.split('/').next().unwrap_or(embedder);
        let text = format!(
            "embedding similarity {:.2} by {embedder}, rank {}",
            leg.raw, leg.rank
        );
        reasons.push(("meaning", text));
    }
    if !explain.clauses.is_empty() {
        reasons.push(("clauses", describe_clauses(explain)));
    }
    if let Some(memory) = explain.memory {
        let mut text = format!("called before for similar requests, strength {memory:.2}");
        if let Some(moved) = &explain.memory_moved {
            text.push_str(&format!("; rank {} to {}", moved.before, moved.after));
        }
        reasons.push(("memory", text));
    }
    let text = format!(
        "{:.3} from the legs, dense weight {:.2}",
        explain.fused, explain.dense_weight
    );
    reasons.push(("fused", text));
    if let Some(ranker) = &explain.ranker {
        reasons.push(("ranker", describe_move(ranker)));
    }
    reasons
}

fn describe_name_match(name_match: NameMatch) -> &'static str {
    match name_match {
        NameMatch::Suffix => "the words of the query end the name: placed above other tools",
        NameMatch::Alias => "asked for by another name: placed above other tools",
        NameMatch::Exact => {
            "asked for by name, up to case and separators: placed above other tools"
        }
        NameMatch::Verbatim => "asked for by name: placed above other tools",
    }
}

/// The fields of the tool and the words of the query found in each.
fn describe_fields(fields: &[MatchedField]) -> String {
    let mut texts = Vec::new();
    for MatchedField { field, terms, .. } in fields {
        texts.push(format!("{}: {}", field.replace('_', " "), terms.join(" ")));
    }
    texts.join("; ")
}

fn describe_clauses(explain: &Explain) -> String {
    let clauses = explain.clauses.join(" | ");
    if let Some(best) = explain.best_clause
        && let Some(best) = explain.clauses.get(best)
    {
        return format!("{clauses}; best for {best:?}");
    }
    clauses
}

/// The move of a hit from its rank by the fused score, with the strongest reasons for it. Both ranks
/// are by content: without the places that tools asked for by name get above the others.
fn describe_move(ranker: &Reranked) -> String {
    let Reranked { before, after, .. } = ranker;
    if before == after {
        return format!("leaves it at rank {after} by content");
    }
    let is_up = after < before;
    let mut reasons = Vec::new();
    // Several features measure one thing; a reader needs it once. Only those that moved the hit in
    // the direction it went are reasons for the move.
    for reason in &ranker.reasons {
        let text = describe_feature(reason.feature);
        if (reason.moved > 0.0) == is_up && !reasons.contains(&text) {
            reasons.push(text);
        }
    }
    reasons.truncate(MAX_REASONS);
    let quality = if is_up { "high" } else { "low" };
    let mut text = format!("moves it from rank {before} to rank {after} by content");
    if !reasons.is_empty() {
        text += &format!(": {quality} {}", reasons.join(", "));
    }
    text
}

/// What a feature of the ranker measures, in words.
fn describe_feature(feature: &str) -> &'static str {
    // By prefix: features of one subject share it. Longer prefixes come first.
    const DESCRIPTIONS: [(&str, &str); 30] = [
        ("near_name", "word similarity to the name"),
        ("near_description", "word similarity to the description"),
        ("near", "word similarity"),
        ("table", "embedding similarity"),
        ("model", "embedding similarity"),
        ("lexical", "BM25 score"),
        ("fused", "fused score"),
        ("name", "overlap with the words of the name"),
        ("triples", "overlap with the letters of the name"),
        ("description", "overlap with the words of the description"),
        ("parameter_coverage", "overlap with the parameters"),
        ("parameters", "number of parameters"),
        ("server_share", "scores of tools on the same server"),
        ("server_rank", "scores of tools on the same server"),
        ("server_gap", "scores of tools on the same server"),
        ("server_best", "scores of tools on the same server"),
        ("rank_in_server", "place among the tools of its server"),
        ("gap_in_server", "place among the tools of its server"),
        ("server", "overlap with the name of the server"),
        ("clause", "fit to a clause of the request"),
        ("coverage", "share of the request's words"),
        ("best_coverage", "share of the request's words"),
        ("pairs", "overlap of neighbouring words"),
        ("action", "agreement on the action"),
        ("verb", "agreement of the verbs"),
        ("first_verb", "agreement of the verbs"),
        ("harmless", "agreement on deleting"),
        ("object", "overlap of what it acts on"),
        ("everyday", "words for everyday phrases"),
        ("kinds", "fit of the values to the parameters"),
    ];
    for (prefix, description) in DESCRIPTIONS {
        if feature.starts_with(prefix) {
            return description;
        }
    }
    // The rest are figures of the request, such as its number of words.
    "fit to requests of this form"
}

#[cfg(test)]
mod tests {
    use toolscout_index::hit::{FuzzyEdit, LegScore, Reason};

    use super::*;

    #[test]
    fn stages_without_time_are_left_out() {
        let timings = Timings {
            lexical_ms: 0.25,
            total_ms: 0.3,
            ..Timings::default()
        };
        assert_eq!(describe_timings(&timings), "0.30 ms (lexical 0.25)");
    }

    fn reason(feature: &'static str, moved: f32) -> Reason {
        Reason {
            feature,
            value: 0.0,
            moved,
        }
    }

    #[test]
    fn an_explanation_names_words_corrections_similarity_and_the_move() {
        let leg = LegScore {
            rank: 2,
            raw: 7.5,
            normalised: 0.5,
        };
        let explain = Explain {
            name_match: Some(NameMatch::Suffix),
            lexical: Some(leg.clone()),
            dense: vec![("static-table/ab12".into(), LegScore { raw: 0.5, ..leg })],
            matched: vec![MatchedField {
                field: "description",
                terms: vec!["issu".into()],
            }],
            fuzzy: vec![FuzzyEdit {
                from: "isue".into(),
                to: "issu".into(),
                edits: 1,
            }],
            memory: Some(0.25),
            fused: 0.5,
            ranker: Some(Reranked {
                before: 5,
                after: 1,
                score: 0.0,
                reasons: vec![
                    reason("near_name_scaled", 0.9),
                    reason("pairs", -0.5),
                    reason("near_name", 0.4),
                    reason("table_text", 0.3),
                ],
            }),
            ..Explain::default()
        };
        assert_eq!(
            reasons(&explain),
            [
                (
                    "name",
                    "the words of the query end the name: placed above other tools"
                ),
                ("words", "description: issu"),
                ("corrected", "isue to issu"),
                ("lexical", "BM25 7.50, rank 2"),
                (
                    "meaning",
                    "embedding similarity 0.50 by static-table, rank 2"
                ),
                (
                    "memory",
                    "called before for similar requests, strength 0.25"
                ),
                ("fused", "0.500 from the legs, dense weight 0.00"),
                (
                    "ranker",
                    "moves it from rank 5 to rank 1 by content: high word similarity to the name, embedding similarity"
                ),
            ]
            .map(|(title, text)| (title, text.to_owned()))
        );
    }

    #[test]
    fn every_feature_of_the_ranker_is_described_in_words() {
        for feature in toolscout_index::ranker::Feature::ALL {
            let description = describe_feature(feature.name());
            assert!(!description.contains('_'), "{description}");
        }
    }
}
