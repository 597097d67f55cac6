//! The features of a candidate, which the ranker reads, and the signals of an answer, from which
//! its confidence is computed.

use super::by_server::ByServer;
use super::late_interaction::LateInteraction;
use super::verbs::{RequestVerbs, Verbs};
use super::word_places::{RequestWords, ToolWords, Word};
use super::wording::Wording;
use crate::embed::StaticTable;
use crate::fuse;
use crate::hit::ranked;
use crate::text::{ByTerm, term_hash};
use crate::top_k;

/// The best tools of the formula that are candidates. Forty give .0005 more nDCG@10, the best forty
/// of every leg no more than that, in three times the time.
pub const CANDIDATES: usize = 32;
/// Ranks below this depth are not distinguished.
const DEPTH: usize = 40;
/// Added to a rank before it is inverted, so that the first five ranks differ most.
const RANK_OFFSET: f32 = 5.0;
/// Scores that differ by less are equal apart from rounding.
const MIN_DEVIATION: f64 = 1e-5;
/// The tools after the best one that its lead is measured against.
const RIVALS: usize = 10;

/// Declares the columns of a table: a variant with a name for each, and `matches` if a higher value
/// can only mean a better match.
// A macro, so that the number, the name and the direction of a column cannot disagree.
macro_rules! columns {
    (@is_match matches) => { true };
    (@is_match measures) => { false };
    ($(#[$doc:meta])* $table:ident { $($(#[$column_doc:meta])* $column:ident = $name:literal $kind:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $table { $($(#[$column_doc])* $column,)+ }

        impl $table {
            /// Every column, in order.
            pub const ALL: &'static [$table] = &[$($table::$column,)+];

            /// The column's name in files and explanations.
            pub fn name(self) -> &'static str {
                match self { $($table::$column => $name,)+ }
            }

            /// True for a column in which a higher value is always better. Trees must be monotone
            /// in it.
            pub fn is_match(self) -> bool {
                match self { $($table::$column => columns!(@is_match $kind),)+ }
            }
        }
    };
}

columns! {
    /// The features of a candidate. Scores of legs that took no part are 0.
    Feature {
        /// BM25, scaled over the catalog.
        Lexical = "lexical" matches,
        /// BM25 as a share of its upper bound.
        LexicalShare = "lexical_share" matches,
        /// BM25 of the clause with the best score, scaled.
        LexicalClause = "lexical_clause" matches,
        /// 1 / (rank + 5) in the lexical leg.
        LexicalRank = "lexical_rank" matches,
        /// Cosine of the static table.
        TableCosine = "table_cosine" matches,
        /// The same, scaled over the catalog.
        Table = "table" matches,
        /// Cosine with the whole text alone.
        TableText = "table_text" matches,
        /// The same, scaled over the candidates.
        TableTextScaled = "table_text_scaled" matches,
        /// Cosine with the name alone.
        TableName = "table_name" matches,
        /// Cosine with the description alone.
        TableDescription = "table_description" matches,
        /// Scaled cosine of the clause with the best score.
        TableClause = "table_clause" matches,
        /// 1 / (rank + 5) in the table's leg.
        TableRank = "table_rank" matches,
        /// Cosine of the transformer.
        ModelCosine = "model_cosine" matches,
        /// The same, scaled over the catalog.
        Model = "model" matches,
        /// Cosine with the whole text alone.
        ModelText = "model_text" matches,
        /// The same, scaled over the candidates.
        ModelTextScaled = "model_text_scaled" matches,
        /// Cosine with the name alone.
        ModelName = "model_name" matches,
        /// 1 / (rank + 5) in the transformer's leg.
        ModelRank = "model_rank" matches,
        /// The score without the ranker.
        Fused = "fused" matches,
        /// 1 / (rank + 5) by that score.
        FusedRank = "fused_rank" matches,
        /// Share of the request's words, by weight, in the name.
        NameCoverage = "name_coverage" matches,
        /// In the name of the server.
        ServerCoverage = "server_coverage" matches,
        /// In title, description and tags.
        DescriptionCoverage = "description_coverage" matches,
        /// In the parameters.
        ParameterCoverage = "parameter_coverage" matches,
        /// Anywhere.
        Coverage = "coverage" matches,
        /// Share of the name's words that the request has.
        NameRecall = "name_recall" matches,
        /// The same by the rarity of words.
        NameRareRecall = "name_rare_recall" matches,
        /// Of the server's words, by rarity.
        ServerRecall = "server_recall" matches,
        /// Of the description's, by rarity.
        DescriptionRecall = "description_recall" matches,
        /// Share of the words, by weight, of the clause that the tool has most of.
        ClauseCoverage = "clause_coverage" matches,
        /// Repeats of the request's words in the description, saturating.
        DescriptionRepeats = "description_repeats" measures,
        /// Share of the request's neighbouring words that neighbour in the tool.
        Pairs = "pairs" matches,
        /// Share of the letter triples of the name that the request has.
        Triples = "triples" matches,
        /// 1 if the actions of request and tool are the same, -1 if not, 0 if one is unknown.
        Action = "action" matches,
        /// Kinds of values in the request that parameters accept.
        Kinds = "kinds" matches,
        /// 1 if the first verb of the tool's name does what the request has a verb for, -1 if it
        /// does something else, 0 if one has no verb.
        Verb = "verb" matches,
        /// The same for the first verb of the request and of each clause.
        FirstVerb = "first_verb" matches,
        /// -1 if the tool deletes and the request has no word for that, otherwise 0.
        Harmless = "harmless" matches,
        /// Share of the request's words that are no verbs, by weight, in the name, with those added
        /// for everyday phrases.
        Object = "object" matches,
        /// Share of the name's words that are no verbs, by rarity, that the request has or that were
        /// added.
        ObjectRecall = "object_recall" matches,
        /// Share of the request's everyday phrases, by rarity, for which the name has another word.
        EverydayName = "everyday_name" matches,
        /// The same for name, server and description.
        Everyday = "everyday" matches,
        /// Similarity of the request's tokens to any of the tool's.
        Near = "near" matches,
        /// The same for the most similar clause.
        NearClause = "near_clause" matches,
        /// Of the request's tokens to the name's.
        NearName = "near_name" matches,
        /// Of the name's tokens to the request's.
        NearNameRecall = "near_name_recall" matches,
        /// Of the request's tokens to the description's.
        NearDescription = "near_description" matches,
        /// Of the description's tokens to the request's.
        NearDescriptionRecall = "near_description_recall" matches,
        /// [`Feature::Near`], scaled over the candidates.
        NearScaled = "near_scaled" matches,
        /// [`Feature::NearClause`], scaled.
        NearClauseScaled = "near_clause_scaled" matches,
        /// [`Feature::NearName`], scaled.
        NearNameScaled = "near_name_scaled" matches,
        /// [`Feature::NearNameRecall`], scaled.
        NearNameRecallScaled = "near_name_recall_scaled" matches,
        /// [`Feature::NearDescription`], scaled.
        NearDescriptionScaled = "near_description_scaled" matches,
        /// [`Feature::NearDescriptionRecall`], scaled.
        NearDescriptionRecallScaled = "near_description_recall_scaled" matches,
        /// ln(1 + distinct words of the description).
        DescriptionWords = "description_words" measures,
        /// Number of parameters.
        Parameters = "parameters" measures,
        /// Distinct words of the name.
        NameWords = "name_words" measures,
        /// Share of the other candidates' best scores that tools of the same server have.
        ServerShare = "server_share" measures,
        /// The gain of the lexical leg's scaled score through clauses.
        ClauseGain = "clause_gain" measures,
        /// Number of the request's distinct words.
        RequestWords = "request_words" measures,
        /// Number of its clauses.
        Clauses = "clauses" measures,
        /// Share of its words, by weight, in the tool that has most of them.
        BestCoverage = "best_coverage" measures,
        /// Share of the legs' ten best tools that they have in common.
        Agreement = "agreement" measures,
        /// Lead of the best tool of the lexical leg.
        LexicalLead = "lexical_lead" measures,
        /// Lead of the best tool of the table's leg.
        TableLead = "table_lead" measures,
        /// Lead of the best tool of the transformer's leg.
        ModelLead = "model_lead" measures,
        /// Lead of the best tool without the ranker.
        FusedLead = "fused_lead" measures,
        /// 1 / place of the server by its best candidate; this and the next four by the score without
        /// the ranker, 0 for a tool without a server.
        ServerRank = "server_rank" measures,
        /// The server's best score less that of all candidates.
        ServerGap = "server_gap" measures,
        /// The mean of the server's three best scores.
        ServerBest = "server_best" measures,
        /// 1 / place of the tool among the candidates of its server.
        RankInServer = "rank_in_server" measures,
        /// Its score less the best of its server.
        GapInServer = "gap_in_server" measures,
        /// Share of the request's words that are in the stop-list.
        FunctionWords = "function_words" measures,
        /// 1 if the request has a digit.
        Digits = "digits" measures,
        /// Number of its commas, and of "and" between words.
        ListItems = "list_items" measures,
        /// ln(1 + words).
        Words = "words" measures,
    }
}

columns! {
    /// The signals of an answer, from which its confidence is computed.
    Signal {
        /// Share of the request's words, by weight, in the tool that has most of them.
        Coverage = "coverage" matches,
        /// Share of them in the first hit.
        TopCoverage = "top_coverage" matches,
        /// Share of them in the first hit's name.
        TopNameCoverage = "top_name_coverage" matches,
        /// Share of the words of the first hit's name that the request has.
        TopNameRecall = "top_name_recall" matches,
        /// BM25 of the first hit as a share of its upper bound.
        TopLexicalShare = "top_lexical_share" matches,
        /// Letter triples of the first hit's name that the request has.
        TopTriples = "top_triples" matches,
        /// Similarity of the request's tokens to the first hit's.
        TopNear = "top_near" matches,
        /// Similarity of the tokens of the first hit's name to the request's.
        TopNearNameRecall = "top_near_name_recall" matches,
        /// Whether the first hit does what the request has a verb for.
        TopVerb = "top_verb" matches,
        /// Whether the first hit deletes what the request does not want deleted.
        TopHarmless = "top_harmless" matches,
        /// Everyday phrases of the request for which the first hit has another word.
        TopEveryday = "top_everyday" matches,
        /// Neighbouring words of the request that neighbour in the first hit.
        TopPairs = "top_pairs" matches,
        /// Best cosine of the static table.
        TableCosine = "table_cosine" matches,
        /// The first hit's.
        TopTableCosine = "top_table_cosine" matches,
        /// Best cosine of the transformer.
        ModelCosine = "model_cosine" matches,
        /// The first hit's.
        TopModelCosine = "top_model_cosine" matches,
        /// Standard deviations of the best BM25 above the catalog's mean.
        LexicalDeviation = "lexical_deviation" matches,
        /// The same for the best cosine of the table.
        TableDeviation = "table_deviation" matches,
        /// The same for the best cosine of the transformer.
        ModelDeviation = "model_deviation" matches,
        /// The lead of the first hit's score over the second's.
        Margin = "margin" measures,
        /// The lead of the first hit's score over the mean of the next five.
        Lead = "lead" measures,
        /// The ranker's score of the first hit.
        Ranker = "ranker" matches,
        /// The lead of that score over those of the next five.
        RankerLead = "ranker_lead" measures,
        /// Share of the legs' ten best tools that they have in common.
        Agreement = "agreement" matches,
        /// Share of the legs whose best tool is the first hit.
        Unanimity = "unanimity" matches,
        /// Share of the request's words that occur in the catalog.
        Known = "known" matches,
        /// Number of the request's distinct words.
        RequestWords = "request_words" measures,
        /// Number of its clauses.
        Clauses = "clauses" measures,
        /// ln(1 + tools).
        Tools = "tools" measures,
    }
}

/// One leg's scores for a request, by tool.
#[derive(Clone, Copy)]
pub struct LegView<'a> {
    /// Unscaled, for the whole request.
    pub raw: &'a [f32],
    /// Scaled, by text, the whole request first.
    pub by_text: &'a [Vec<f32>],
}

/// One dense leg's scores for a request.
pub struct DenseView<'a> {
    /// Its scores, by tool.
    pub leg: LegView<'a>,
    /// The cosine of a tool's whole text alone.
    pub text_cosine: &'a dyn Fn(usize) -> f32,
    /// The cosine of a tool's name alone; 0 where the leg has no such view.
    pub name_cosine: &'a dyn Fn(usize) -> f32,
    /// The same of its description.
    pub description_cosine: &'a dyn Fn(usize) -> f32,
}

/// The data that features are computed from: the legs' scores for one request, and its tools.
pub struct RankerInput<'a> {
    /// The request as given, not yet analysed.
    pub text: &'a str,
    /// Its clauses; empty if it was taken whole.
    pub clause_texts: &'a [String],
    /// The terms of each clause.
    pub clauses: &'a [Vec<&'a str>],
    /// Its terms as resolved in the catalog, each with the upper bound of its BM25 score.
    pub terms: &'a [(String, f32)],
    /// The terms that are searched for beside each of its everyday phrases.
    pub added: &'a [Vec<&'a str>],
    /// Number of its words that do not occur in the catalog.
    pub unknown: usize,
    /// The upper bound of the BM25 score.
    pub limit: f32,
    /// Number of tools in the catalog.
    pub tools: usize,
    /// Where only some of them are here, those that stand for the others.
    pub sample: Option<&'a Sample>,
    /// The inverse document frequency of each term of the catalog, by hash.
    pub rarities: &'a ByTerm<f32>,
    /// The lexical leg.
    pub lexical: LegView<'a>,
    /// The static table, if it scored the request.
    pub table: Option<DenseView<'a>>,
    /// The transformer, if it scored the request.
    pub model: Option<DenseView<'a>>,
    /// The score without the ranker.
    pub fused: &'a [f32],
    /// True for tools that pass the filter.
    pub allowed: &'a dyn Fn(usize) -> bool,
    /// Where the words of a tool occur.
    pub tool_words: &'a dyn Fn(usize) -> &'a ToolWords,
    /// A number that identifies a tool's server; `None` for a tool without one.
    pub server: &'a dyn Fn(usize) -> Option<u32>,
}

/// Tools that were chosen at random, among others that were looked for.
#[derive(Clone, Debug)]
pub struct Sample {
    /// True by position for those that are here by chance alone.
    pub is_chosen: Vec<bool>,
    /// For how many tools each of them stands.
    pub weight: f64,
}

/// A request's candidates with their features.
pub struct Candidates {
    /// Their positions, ascending.
    pub tools: Vec<u32>,
    /// Their features, a row of [`Feature::ALL`] each, end to end.
    pub rows: Vec<f32>,
    legs: Legs,
    known: f32,
}

impl Candidates {
    /// Selects the candidates of a request and computes their features.
    pub fn measure(request: &RankerInput<'_>) -> Self {
        let legs = Legs::rank(request);
        let tools = legs.candidates();
        let measure = Measure::new(request, &legs, &tools);
        let mut rows = vec![0.0; tools.len() * Feature::ALL.len()];
        let mut of_request = [0.0; Feature::ALL.len()];
        measure.fill_request(&mut Row(&mut of_request));
        for (place, row) in rows.chunks_exact_mut(Feature::ALL.len()).enumerate() {
            row.copy_from_slice(&of_request);
            measure.fill(place, tools[place] as usize, &mut Row(row));
        }
        // It borrows the rankings, which the result keeps.
        drop(measure);
        for (from, to) in SCALED {
            scale(&mut rows, from, to);
        }
        // Corrected words count as unknown: the catalog does not have them as they were written.
        let words = request.terms.len() + request.unknown;
        let known = 1.0 - request.unknown as f32 / words.max(1) as f32;
        Candidates {
            tools,
            rows,
            legs,
            known,
        }
    }

    /// The row of each candidate.
    pub fn by_tool(&self) -> impl Iterator<Item = (u32, &[f32])> {
        self.tools
            .iter()
            .copied()
            .zip(self.rows.chunks_exact(Feature::ALL.len()))
    }

    /// One feature of a candidate, by its number.
    pub fn feature(&self, place: usize, feature: Feature) -> f32 {
        self.rows[place * Feature::ALL.len() + feature as usize]
    }

    /// The signals of the answer in which the candidates have these scores, of which the ranker
    /// gave these.
    pub fn signals(&self, request: &RankerInput<'_>, scores: &[f32], ranker: &[f64]) -> Vec<f32> {
        let mut signals = vec![0.0; Signal::ALL.len()];
        let mut order: Vec<usize> = (0..self.tools.len()).collect();
        // Candidates are in the order of positions, so their number breaks ties as an id would.
        order.sort_unstable_by(|&a, &b| ranked((scores[a], a), (scores[b], b)));
        let Some((&top, following)) = order.split_first() else {
            return signals;
        };
        let following = &following[..following.len().min(FOLLOWING)];
        for (signal, feature) in TOP_CANDIDATE_SIGNALS {
            signals[signal as usize] = self.feature(top, feature);
        }
        let second = match following.first() {
            Some(&place) => scores[place],
            None => 0.0,
        };
        let ranker: Vec<f32> = ranker.iter().map(|&score| score as f32).collect();
        let others = [
            (Signal::Margin, scores[top] - second),
            (Signal::Lead, scores[top] - mean_at(following, scores)),
            (Signal::Ranker, ranker[top]),
            (
                Signal::RankerLead,
                ranker[top] - mean_at(following, &ranker),
            ),
            (Signal::Unanimity, self.legs.unanimity(self.tools[top])),
            (Signal::Known, self.known),
            (Signal::Tools, (request.tools as f32).ln_1p()),
        ];
        for (signal, value) in self.leg_signals(request).into_iter().chain(others) {
            signals[signal as usize] = value;
        }
        signals
    }

    /// The best score of each leg, and its deviation from the mean.
    fn leg_signals(&self, request: &RankerInput<'_>) -> [(Signal, f32); 5] {
        let sample = request.sample;
        let lexical = self.legs.lexical.best_score();
        let (table, table_deviation) = dense_signals(&self.legs.table, &request.table, sample);
        let (model, model_deviation) = dense_signals(&self.legs.model, &request.model, sample);
        let lexical_deviation = deviation(lexical, request.lexical.raw, sample);
        [
            (Signal::TableCosine, table),
            (Signal::ModelCosine, model),
            (Signal::LexicalDeviation, lexical_deviation),
            (Signal::TableDeviation, table_deviation),
            (Signal::ModelDeviation, model_deviation),
        ]
    }
}

/// The best score of a dense leg and its deviation from the mean; zeros for one that took no part.
fn dense_signals(
    ranking: &Option<Ranking>,
    view: &Option<DenseView<'_>>,
    sample: Option<&Sample>,
) -> (f32, f32) {
    let (Some(ranking), Some(view)) = (ranking, view) else {
        return (0.0, 0.0);
    };
    let best = ranking.best_score();
    (best, deviation(best, view.leg.raw, sample))
}

/// The mean of the values at these places; 0 without any.
fn mean_at(places: &[usize], values: &[f32]) -> f32 {
    let sum: f32 = places.iter().map(|&place| values[place]).sum();
    sum / places.len().max(1) as f32
}

/// The hits after the first that its lead is measured against: those shown by default, and one
/// more.
const FOLLOWING: usize = 5;

/// Signals that are features of the first hit.
const TOP_CANDIDATE_SIGNALS: [(Signal, Feature); 17] = [
    (Signal::Coverage, Feature::BestCoverage),
    (Signal::TopCoverage, Feature::Coverage),
    (Signal::TopNameCoverage, Feature::NameCoverage),
    (Signal::TopNameRecall, Feature::NameRecall),
    (Signal::TopLexicalShare, Feature::LexicalShare),
    (Signal::TopTriples, Feature::Triples),
    (Signal::TopNear, Feature::Near),
    (Signal::TopNearNameRecall, Feature::NearNameRecall),
    (Signal::TopVerb, Feature::Verb),
    (Signal::TopHarmless, Feature::Harmless),
    (Signal::TopEveryday, Feature::Everyday),
    (Signal::TopPairs, Feature::Pairs),
    (Signal::TopTableCosine, Feature::TableCosine),
    (Signal::TopModelCosine, Feature::ModelCosine),
    (Signal::Agreement, Feature::Agreement),
    (Signal::RequestWords, Feature::RequestWords),
    (Signal::Clauses, Feature::Clauses),
];

/// Features with a second column, scaled over the candidates.
const SCALED: [(Feature, Feature); 8] = [
    (Feature::TableText, Feature::TableTextScaled),
    (Feature::ModelText, Feature::ModelTextScaled),
    (Feature::Near, Feature::NearScaled),
    (Feature::NearClause, Feature::NearClauseScaled),
    (Feature::NearName, Feature::NearNameScaled),
    (Feature::NearNameRecall, Feature::NearNameRecallScaled),
    (Feature::NearDescription, Feature::NearDescriptionScaled),
    (
        Feature::NearDescriptionRecall,
        Feature::NearDescriptionRecallScaled,
    ),
];

/// Fills one column with another's values, scaled so that the lowest candidate has 0 and the
/// highest 1.
fn scale(rows: &mut [f32], from: Feature, to: Feature) {
    let (width, from, to) = (Feature::ALL.len(), from as usize, to as usize);
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for row in rows.chunks_exact(width) {
        low = low.min(row[from]);
        high = high.max(row[from]);
    }
    for row in rows.chunks_exact_mut(width) {
        // If all values are equal, no candidate is preferred.
        row[to] = if high > low {
            (row[from] - low) / (high - low)
        } else {
            0.0
        };
    }
}

/// A leg's best tools, best first.
struct Ranking {
    best: Vec<(u32, f32)>,
}

impl Ranking {
    /// The [`DEPTH`] best of the tools above `floor` that pass the filter.
    fn new(scores: &[f32], floor: f32, allowed: &dyn Fn(usize) -> bool) -> Self {
        let mut best = Vec::with_capacity(DEPTH);
        for (tool, score) in top_k::above(floor, scores, DEPTH, allowed) {
            best.push((tool as u32, score));
        }
        Ranking { best }
    }

    /// The same for a dense leg; `None` for one that took no part.
    fn of_dense(view: &Option<DenseView<'_>>, allowed: &dyn Fn(usize) -> bool) -> Option<Self> {
        let raw = view.as_ref()?.leg.raw;
        // A cosine may be negative and still be the best; only unknown scores are left out.
        Some(Ranking::new(raw, f32::NEG_INFINITY, allowed))
    }

    /// The best score; 0 without any.
    fn best_score(&self) -> f32 {
        match self.best.first() {
            Some((_, score)) => *score,
            None => 0.0,
        }
    }

    fn reciprocal(&self, tool: usize) -> f32 {
        let mut tools = self.best.iter();
        match tools.position(|(other, _)| *other as usize == tool) {
            Some(place) => 1.0 / (place as f32 + RANK_OFFSET),
            None => 0.0,
        }
    }

    /// The lead of the best over the mean of the next ten, as a share of its own score.
    fn lead(&self) -> f32 {
        let Some(((_, best), rivals)) = self.best.split_first() else {
            return 0.0;
        };
        let rivals = &rivals[..rivals.len().min(RIVALS)];
        let mean = rivals.iter().map(|(_, score)| score).sum::<f32>() / rivals.len().max(1) as f32;
        // A share of a score that is not positive has no meaning.
        if *best > 0.0 {
            (best - mean) / best
        } else {
            0.0
        }
    }

    fn first(&self, count: usize) -> impl Iterator<Item = u32> {
        self.best.iter().take(count).map(|(tool, _)| *tool)
    }
}

/// The rankings of all legs and of the formula.
struct Legs {
    lexical: Ranking,
    table: Option<Ranking>,
    model: Option<Ranking>,
    fused: Ranking,
}

impl Legs {
    fn rank(request: &RankerInput<'_>) -> Self {
        let allowed = request.allowed;
        Legs {
            // A score of 0 means no word in common.
            lexical: Ranking::new(request.lexical.raw, 0.0, allowed),
            table: Ranking::of_dense(&request.table, allowed),
            model: Ranking::of_dense(&request.model, allowed),
            fused: Ranking::new(request.fused, 0.0, allowed),
        }
    }

    /// The legs, without the formula.
    fn retrieving(&self) -> impl Iterator<Item = &Ranking> {
        std::iter::once(&self.lexical)
            .chain(&self.table)
            .chain(&self.model)
    }

    fn candidates(&self) -> Vec<u32> {
        let mut tools: Vec<u32> = self.fused.first(CANDIDATES).collect();
        // By position, for binary search and for ties.
        tools.sort_unstable();
        tools
    }

    /// The share of the lexical leg's ten best tools that are among the ten best of the strongest
    /// dense leg.
    fn agreement(&self) -> f32 {
        let Some(dense) = self.model.as_ref().or(self.table.as_ref()) else {
            return 0.0;
        };
        let dense: Vec<u32> = dense.first(RIVALS).collect();
        let lexical = self.lexical.first(RIVALS);
        let common = lexical.filter(|tool| dense.contains(tool)).count();
        common as f32 / RIVALS as f32
    }

    fn unanimity(&self, tool: u32) -> f32 {
        let (mut legs, mut agree) = (0, 0);
        for ranking in self.retrieving() {
            legs += 1;
            agree += usize::from(ranking.first(1).eq([tool]));
        }
        // The lexical leg always takes part, so this is no division by 0.
        agree as f32 / legs as f32
    }
}

struct Row<'a>(&'a mut [f32]);

impl Row<'_> {
    fn set(&mut self, feature: Feature, value: f32) {
        // A tool without a vector has no score; 0 is the worst one.
        self.0[feature as usize] = if value.is_finite() { value } else { 0.0 };
    }
}

/// The data that all candidates of a request share, computed once.
struct Measure<'m, 'a> {
    request: &'m RankerInput<'a>,
    legs: &'m Legs,
    request_words: RequestWords,
    verbs: RequestVerbs,
    /// The words that are no verbs, each beside those that were added for it.
    objects: Vec<Choice>,
    /// The words added for each everyday phrase.
    everyday: Vec<Choice>,
    /// The hash and the weight of each term.
    terms: Vec<(u32, f32)>,
    /// The hash and the inverse document frequency of each term, by clause.
    clauses: Vec<Vec<(u32, f32)>>,
    /// The places of its words, by candidate.
    found: Vec<Found>,
    /// The best scores by server.
    servers: Vec<(Option<u32>, f32)>,
    by_server: ByServer,
    /// The best score of the formula.
    best: f32,
    nearness: Option<LateInteraction>,
}

impl<'m, 'a> Measure<'m, 'a> {
    fn new(request: &'m RankerInput<'a>, legs: &'m Legs, candidates: &[u32]) -> Self {
        let mut terms = Vec::with_capacity(request.terms.len());
        for (term, worth) in request.terms {
            terms.push((term_hash(term), *worth));
        }
        let mut clauses = Vec::with_capacity(request.clauses.len());
        for clause in request.clauses {
            clauses.push(with_rarities(clause, request));
        }
        let mut servers = Vec::with_capacity(legs.fused.best.len());
        for &(tool, score) in &legs.fused.best {
            servers.push(((request.server)(tool as usize), score));
        }
        let mut scores_by_server = Vec::with_capacity(candidates.len());
        for &tool in candidates {
            let tool = tool as usize;
            scores_by_server.push(((request.server)(tool), request.fused[tool]));
        }
        let request_words = RequestWords::new(request.text);
        // The resolved terms too, for the corrections among them.
        let resolved = request.terms.iter().map(|(term, _)| term.as_str());
        let others = resolved.chain(request.added.iter().flatten().copied());
        let verbs = RequestVerbs::new(request.text, request.clause_texts, others);
        let everyday = Choice::of_phrases(request, |_| true);
        let mut objects = Choice::of_phrases(request, is_object);
        objects.extend(Choice::of_terms(request, is_object));
        let mut measure = Measure {
            request,
            legs,
            request_words,
            verbs,
            objects,
            everyday,
            terms,
            clauses,
            found: Vec::new(),
            servers,
            by_server: ByServer::new(scores_by_server.into_iter()),
            best: legs.fused.best_score(),
            nearness: nearness(request, candidates),
        };
        // Needs all the rest of `measure`, so it is filled in last.
        let mut found = Vec::with_capacity(candidates.len());
        for &tool in candidates {
            found.push(measure.words_of(tool as usize));
        }
        measure.found = found;
        measure
    }

    /// Fills the columns of a candidate, given by its number.
    fn fill(&self, place: usize, tool: usize, row: &mut Row<'_>) {
        self.fill_scores(tool, row);
        self.fill_words(tool, &self.found[place], row);
        self.fill_nearness(tool, row);
    }

    /// Fills the columns that are the same for all candidates.
    fn fill_request(&self, row: &mut Row<'_>) {
        row.set(
            Feature::RequestWords,
            (self.request.terms.len() + self.request.unknown) as f32,
        );
        row.set(Feature::Clauses, self.request.clauses.len().max(1) as f32);
        let mut best_coverage: f32 = 0.0;
        for words in &self.found {
            best_coverage = best_coverage.max(words.anywhere);
        }
        row.set(Feature::BestCoverage, best_coverage);
        row.set(Feature::Agreement, self.legs.agreement());
        row.set(Feature::LexicalLead, self.legs.lexical.lead());
        row.set(Feature::TableLead, lead_of(&self.legs.table));
        row.set(Feature::ModelLead, lead_of(&self.legs.model));
        row.set(Feature::FusedLead, self.legs.fused.lead());
        let wording = Wording::of(self.request.text);
        row.set(Feature::FunctionWords, wording.function_words);
        row.set(Feature::Digits, wording.digits);
        row.set(Feature::ListItems, wording.list_items);
        row.set(Feature::Words, wording.words);
    }

    fn fill_scores(&self, tool: usize, row: &mut Row<'_>) {
        let RankerInput {
            lexical,
            limit,
            fused,
            ..
        } = *self.request;
        row.set(Feature::Lexical, lexical.by_text[0][tool]);
        let share = if limit > 0.0 {
            // Words beside everyday phrases are no part of the limit.
            (lexical.raw[tool] / limit).min(1.0)
        } else {
            0.0
        };
        row.set(Feature::LexicalShare, share);
        row.set(Feature::LexicalClause, best_clause(lexical, tool));
        row.set(Feature::LexicalRank, self.legs.lexical.reciprocal(tool));
        row.set(
            Feature::ClauseGain,
            best_clause(lexical, tool) - lexical.by_text[0][tool],
        );
        row.set(Feature::Fused, fused[tool]);
        row.set(Feature::FusedRank, self.legs.fused.reciprocal(tool));
        if let (Some(view), Some(ranking)) = (&self.request.table, &self.legs.table) {
            row.set(Feature::TableCosine, view.leg.raw[tool]);
            row.set(Feature::Table, view.leg.by_text[0][tool]);
            row.set(Feature::TableText, (view.text_cosine)(tool));
            row.set(Feature::TableName, (view.name_cosine)(tool));
            row.set(Feature::TableDescription, (view.description_cosine)(tool));
            row.set(Feature::TableClause, best_clause(view.leg, tool));
            row.set(Feature::TableRank, ranking.reciprocal(tool));
        }
        if let (Some(view), Some(ranking)) = (&self.request.model, &self.legs.model) {
            row.set(Feature::ModelCosine, view.leg.raw[tool]);
            row.set(Feature::Model, view.leg.by_text[0][tool]);
            row.set(Feature::ModelText, (view.text_cosine)(tool));
            row.set(Feature::ModelName, (view.name_cosine)(tool));
            row.set(Feature::ModelRank, ranking.reciprocal(tool));
        }
    }

    fn fill_words(&self, tool: usize, words: &Found, row: &mut Row<'_>) {
        let tool_words = (self.request.tool_words)(tool);
        let rare = self.rare_recall(tool_words, &words.rare);
        row.set(Feature::NameCoverage, words.name);
        row.set(Feature::ServerCoverage, words.server);
        row.set(Feature::DescriptionCoverage, words.description);
        row.set(Feature::ParameterCoverage, words.parameters);
        row.set(Feature::Coverage, words.anywhere);
        row.set(
            Feature::NameRecall,
            f32::from(words.in_name) / f32::from(tool_words.name_words.max(1)),
        );
        row.set(Feature::NameRareRecall, rare.name);
        row.set(Feature::ServerRecall, rare.server);
        row.set(Feature::DescriptionRecall, rare.description);
        row.set(
            Feature::ClauseCoverage,
            self.clause_coverage(tool_words).unwrap_or(words.anywhere),
        );
        row.set(Feature::DescriptionRepeats, words.repeats);
        row.set(Feature::Pairs, self.request_words.shared_pairs(tool_words));
        row.set(
            Feature::Triples,
            self.request_words.shared_triples(tool_words),
        );
        row.set(Feature::Action, self.request_words.same_action(tool_words));
        self.fill_everyday(tool_words, row);
        row.set(Feature::Kinds, self.request_words.taken_kinds(tool_words));
        row.set(
            Feature::DescriptionWords,
            // 5 words or 50 make a difference, 505 or 550 do not.
            f32::from(tool_words.description_words).ln_1p(),
        );
        row.set(Feature::Parameters, f32::from(tool_words.parameters));
        row.set(Feature::NameWords, f32::from(tool_words.name_words));
        self.fill_server(tool, row);
    }

    fn fill_server(&self, tool: usize, row: &mut Row<'_>) {
        let server = (self.request.server)(tool);
        let score = self.request.fused[tool];
        let standing = self.by_server.standing(server, score, self.best);
        row.set(Feature::ServerShare, self.server_share(server));
        row.set(Feature::ServerRank, standing.server_rank);
        row.set(Feature::ServerGap, standing.server_gap);
        row.set(Feature::ServerBest, standing.server_best);
        row.set(Feature::RankInServer, standing.rank_in_server);
        row.set(Feature::GapInServer, standing.gap_in_server);
    }

    fn fill_everyday(&self, tool_words: &ToolWords, row: &mut Row<'_>) {
        row.set(Feature::Verb, self.verbs.agreement(tool_words.verbs));
        row.set(
            Feature::FirstVerb,
            self.verbs.first_agreement(tool_words.verbs),
        );
        row.set(Feature::Harmless, self.verbs.harmlessness(tool_words.verbs));
        let object = Choice::share(&self.objects, tool_words, Word::is_in_name);
        row.set(Feature::Object, object);
        row.set(Feature::ObjectRecall, self.object_recall(tool_words));
        let in_name = Choice::share(&self.everyday, tool_words, Word::is_in_name);
        row.set(Feature::EverydayName, in_name);
        let said = Choice::share(&self.everyday, tool_words, Word::is_said);
        row.set(Feature::Everyday, said);
    }

    /// The share of the name's words that are no verbs, by rarity, that the request has or that were
    /// added.
    fn object_recall(&self, tool_words: &ToolWords) -> f32 {
        let (mut had, mut all) = (0.0, 0.0);
        for word in tool_words.words() {
            // What the tool does is compared by its verbs.
            if !word.is_in_name() || !Verbs::of_term(word.hash).is_none() {
                continue;
            }
            let rarity = self.rarity(word.hash);
            all += rarity;
            let is_asked = self.objects.iter().any(|choice| choice.has(word.hash));
            had += if is_asked { rarity } else { 0.0 };
        }
        if all > 0.0 { had / all } else { 0.0 }
    }

    fn fill_nearness(&self, tool: usize, row: &mut Row<'_>) {
        let Some(nearness) = &self.nearness else {
            return;
        };
        let near = nearness.of(&(self.request.tool_words)(tool).tokens);
        row.set(Feature::Near, near.anywhere);
        row.set(Feature::NearClause, near.clause);
        row.set(Feature::NearName, near.name);
        row.set(Feature::NearNameRecall, near.name_recall);
        row.set(Feature::NearDescription, near.description);
        row.set(Feature::NearDescriptionRecall, near.description_recall);
    }

    fn words_of(&self, tool: usize) -> Found {
        let tool_words = (self.request.tool_words)(tool);
        let mut found = Found::default();
        for &(hash, worth) in &self.terms {
            let Some(word) = tool_words.word(hash) else {
                continue;
            };
            let share = if self.request.limit > 0.0 {
                worth / self.request.limit
            } else {
                0.0
            };
            found.rare.add(word, self.rarity(hash));
            found.anywhere += share;
            found.name += if word.name > 0 { share } else { 0.0 };
            found.server += if word.server > 0 { share } else { 0.0 };
            found.description += if word.description > 0 { share } else { 0.0 };
            found.parameters += if word.parameters > 0 { share } else { 0.0 };
            found.in_name += u16::from(word.name > 0);
            // Saturates as term frequency does in BM25: the tenth repeat adds next to nothing.
            let times = f32::from(word.description);
            found.repeats += share * times / (times + 1.0);
        }
        found
    }

    /// Shares of the tool's words, by rarity, that the request has: of these, those it has.
    fn rare_recall(&self, tool_words: &ToolWords, had: &Rare) -> Rare {
        let mut all = Rare::default();
        for word in tool_words.words() {
            // Schemas have many words that no request has to repeat.
            if word.is_said() {
                all.add(word, self.rarity(word.hash));
            }
        }
        Rare {
            name: share(had.name, all.name),
            server: share(had.server, all.server),
            description: share(had.description, all.description),
        }
    }

    /// The inverse document frequency of a term; 0 where no tool has it.
    fn rarity(&self, hash: u32) -> f32 {
        let rarity = self.request.rarities.get(&hash);
        rarity.copied().unwrap_or_default()
    }

    /// The highest share of a clause's words that the tool has; `None` for a request without
    /// clauses.
    fn clause_coverage(&self, tool_words: &ToolWords) -> Option<f32> {
        let clauses = self.clauses.iter();
        clauses
            .map(|clause| coverage(clause, tool_words))
            .reduce(f32::max)
    }

    fn server_share(&self, server: Option<u32>) -> f32 {
        let all: f32 = self.servers.iter().map(|(_, score)| score).sum();
        let same: f32 = self
            .servers
            .iter()
            // Tools without a server have nothing in common.
            .filter(|(other, _)| server.is_some() && *other == server)
            .map(|(_, score)| score)
            .sum();
        share(same, all)
    }
}

/// The part of a whole; 0 of none.
fn share(part: f32, whole: f32) -> f32 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The share of a clause's terms, by weight, that a tool has.
fn coverage(clause: &[(u32, f32)], tool_words: &ToolWords) -> f32 {
    let all: f32 = clause.iter().map(|(_, worth)| worth).sum();
    let had = clause
        .iter()
        .filter(|(hash, _)| tool_words.word(*hash).is_some());
    share(had.map(|(_, worth)| worth).sum(), all)
}

/// The hash of each term with its inverse document frequency; 0 for one that no tool has.
fn with_rarities(terms: &[&str], request: &RankerInput<'_>) -> Vec<(u32, f32)> {
    let mut all = Vec::with_capacity(terms.len());
    for term in terms {
        let hash = term_hash(term);
        let rarity = request.rarities.get(&hash).copied();
        all.push((hash, rarity.unwrap_or_default()));
    }
    all
}

/// Compares the request's tokens with those of its candidates.
fn nearness(request: &RankerInput<'_>, candidates: &[u32]) -> Option<LateInteraction> {
    // The bundled table whatever embedders a catalog has, so these features are there in every
    // combination of legs.
    let table = StaticTable::bundled().ok()?;
    let tools = candidates.iter();
    let tokens = tools.map(|&tool| &(request.tool_words)(tool as usize).tokens);
    Some(LateInteraction::new(
        &table,
        request.text,
        request.clause_texts,
        tokens,
    ))
}

/// The lead of a leg's best tool; 0 for a leg that took no part.
fn lead_of(ranking: &Option<Ranking>) -> f32 {
    match ranking {
        Some(ranking) => ranking.lead(),
        None => 0.0,
    }
}

/// Words of which any will do, each with its worth.
struct Choice(Vec<(u32, f32)>);

impl Choice {
    /// The words that were added for each everyday phrase, by rarity.
    fn of_phrases(request: &RankerInput<'_>, counts: fn(&str) -> bool) -> Vec<Self> {
        let mut choices = Vec::new();
        for added in request.added {
            let terms: Vec<&str> = added.iter().copied().filter(|term| counts(term)).collect();
            if !terms.is_empty() {
                choices.push(Choice(with_rarities(&terms, request)));
            }
        }
        choices
    }

    /// Each of the request's own words, by the upper bound of its score.
    fn of_terms(request: &RankerInput<'_>, counts: fn(&str) -> bool) -> Vec<Self> {
        let mut choices = Vec::new();
        for (term, worth) in request.terms {
            if counts(term) {
                choices.push(Choice(vec![(term_hash(term), *worth)]));
            }
        }
        choices
    }

    fn has(&self, hash: u32) -> bool {
        self.0.iter().any(|(other, _)| *other == hash)
    }

    /// The share of these choices, by their best words, of which a tool has a word that counts; 0
    /// without any.
    fn share(choices: &[Self], tool: &ToolWords, counts: fn(&Word) -> bool) -> f32 {
        let (mut had, mut all) = (0.0, 0.0);
        for Choice(words) in choices {
            let (mut best_had, mut best) = (0.0f32, 0.0f32);
            for &(hash, worth) in words {
                best = best.max(worth);
                if let Some(word) = tool.word(hash)
                    && counts(word)
                {
                    best_had = best_had.max(worth);
                }
            }
            had += best_had;
            all += best;
        }
        share(had, all)
    }
}

fn is_object(term: &str) -> bool {
    Verbs::of_term(term_hash(term)).is_none()
}

/// The places where a tool has a request's words: shares by weight, and numbers of words.
#[derive(Default)]
struct Found {
    name: f32,
    server: f32,
    description: f32,
    parameters: f32,
    anywhere: f32,
    repeats: f32,
    in_name: u16,
    /// By rarity.
    rare: Rare,
}

/// Sums of rarities by part of a tool.
#[derive(Default)]
struct Rare {
    name: f32,
    server: f32,
    description: f32,
}

impl Rare {
    fn add(&mut self, word: &Word, rarity: f32) {
        self.name += if word.name > 0 { rarity } else { 0.0 };
        self.server += if word.server > 0 { rarity } else { 0.0 };
        self.description += if word.description > 0 { rarity } else { 0.0 };
    }
}

/// The scaled score of the clause with the best score; of the whole request if it has no clauses.
fn best_clause(leg: LegView<'_>, tool: usize) -> f32 {
    let clauses = leg.by_text[1..].iter().map(|scores| scores[tool]);
    clauses.reduce(f32::max).unwrap_or(leg.by_text[0][tool])
}

/// Standard deviations of the best score above the mean; 0 if all are equal.
fn deviation(best: f32, scores: &[f32], sample: Option<&Sample>) -> f32 {
    let (mean, deviation) = match sample {
        Some(sample) => weighted_spread(scores, sample),
        None => fuse::spread(scores),
    };
    if deviation > MIN_DEVIATION {
        ((f64::from(best) - mean) / deviation) as f32
    } else {
        0.0
    }
}

/// As [`fuse::spread`], of all tools that the sample stands for.
fn weighted_spread(scores: &[f32], sample: &Sample) -> (f64, f64) {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (&score, is_chosen) in scores.iter().zip(&sample.is_chosen) {
        if !score.is_finite() {
            continue;
        }
        let weight = if *is_chosen { sample.weight } else { 1.0 };
        let score = f64::from(score);
        count += weight;
        sum += weight * score;
        squares += weight * score * score;
    }
    let count = count.max(1.0);
    let mean = sum / count;
    (mean, (squares / count - mean * mean).max(0.0).sqrt())
}
