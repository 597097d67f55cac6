//! Late interaction (MaxSim): the similarity of each token of a request to the most similar token
//! of a tool, in the static table. "Buy" matches "purchase" without a shared word, and an important
//! word is not lost in the mean of a long text.
//!
//! The weight of a token is the length of its row: the table gives frequent tokens short rows.

use super::tool_texts::{Analyzed, ToolTexts};
use crate::embed::StaticTable;
use crate::hit::ranked;
use crate::text::{self, ByTerm};

/// Tokens of a request that are compared: those with the largest weights.
// A constant, so that similarities are arrays and their loops can be vectorized.
const REQUEST_TOKENS: usize = 32;
/// Distinct tokens read of a tool's name and server, of its description, and of its parameters'
/// names.
const MAX_TOKENS: [usize; 3] = [24, 64, 32];

/// The distinct tokens of a tool, by part.
// A catalog has one for each tool, so it is kept small: numbers of 16 bits, which the static table's
// tokens have, in one piece of memory.
#[derive(Debug, Default)]
pub struct ToolTokens {
    /// Those of the name, then those of the description, then those of the parameters.
    all: Box<[u16]>,
    name: u8,
    description: u8,
}

impl ToolTokens {
    /// Of the texts of a tool.
    pub fn new(texts: &ToolTexts, table: &StaticTable) -> Self {
        let mut name = Vec::new();
        push_tokens(&texts.server, table, &mut name);
        push_tokens(&texts.name, table, &mut name);
        let [mut description, mut parameters] = [Vec::new(), Vec::new()];
        push_tokens(&texts.description, table, &mut description);
        push_tokens(&texts.parameter_names, table, &mut parameters);
        let name = distinct(name, MAX_TOKENS[0]);
        let description = distinct(description, MAX_TOKENS[1]);
        let parameters = distinct(parameters, MAX_TOKENS[2]);
        let all = name.iter().chain(&description).chain(&parameters);
        ToolTokens {
            all: all.map(|&token| token as u16).collect(),
            name: name.len() as u8,
            description: description.len() as u8,
        }
    }

    /// Name, description and parameters.
    fn parts(&self) -> [&[u16]; 3] {
        let (name, rest) = self.all.split_at(self.name.into());
        let (description, parameters) = rest.split_at(self.description.into());
        [name, description, parameters]
    }
}

/// The similarities of a request and a tool, each from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenSimilarity {
    /// Of the request's tokens to any of the tool's.
    pub anywhere: f32,
    /// The same for the most similar clause.
    pub clause: f32,
    /// Of the request's tokens to the name's.
    pub name: f32,
    /// Of the name's tokens to the request's.
    pub name_recall: f32,
    /// Of the request's tokens to the description's.
    pub description: f32,
    /// Of the description's tokens to the request's.
    pub description_recall: f32,
}

/// Similarities of a tool's token with those of a request, in order, padded with zeros.
type Similarities = [f32; REQUEST_TOKENS];

/// A token of some candidate.
#[derive(Default)]
struct Compared {
    similarities: Similarities,
    /// The highest of them.
    nearest: f32,
    weight: f32,
}

/// The tokens of a request compared with those of all candidates.
pub struct LateInteraction {
    weights: Similarities,
    /// The weights by clause; 0 for tokens outside the clause.
    clauses: Vec<Similarities>,
    /// By token of the table: 1 plus its number among the compared tokens; 0 for one that no
    /// candidate has.
    places: Vec<u32>,
    compared: Vec<Compared>,
}

impl LateInteraction {
    /// Compares a request, and the clauses it was split into, with every token of the candidates.
    pub fn new<'a>(
        table: &StaticTable,
        request: &str,
        clauses: &[String],
        candidates: impl Iterator<Item = &'a ToolTokens>,
    ) -> Self {
        let asked = heaviest(&distinct(tokens(request, table), usize::MAX), table);
        let mut of_clauses = Vec::with_capacity(clauses.len());
        for clause in clauses {
            let weights = weights(&asked, &tokens(clause, table), table);
            // A clause without compared tokens would be equally far from every tool.
            if weights.iter().any(|weight| *weight > 0.0) {
                of_clauses.push(weights);
            }
        }
        // An array over the whole table, 110 KB, in place of a hash map: it is read for every token
        // of every candidate.
        let (mut places, mut tokens) = (vec![0; table.len()], Vec::new());
        for tool in candidates {
            for &token in &tool.all {
                let place = &mut places[usize::from(token)];
                if *place == 0 {
                    tokens.push(u32::from(token));
                    *place = tokens.len() as u32;
                }
            }
        }
        let mut compared = Vec::with_capacity(tokens.len());
        for &token in &tokens {
            compared.push(Compared {
                weight: table.weight(token),
                ..Compared::default()
            });
        }
        table.cosines(&asked, &tokens, |place, number, cosine| {
            let compared = &mut compared[place];
            compared.similarities[number] = cosine;
            compared.nearest = compared.nearest.max(cosine);
        });
        LateInteraction {
            weights: weights(&asked, &asked, table),
            clauses: of_clauses,
            places,
            compared,
        }
    }

    /// Compares the request with one of the candidates.
    pub fn of(&self, tool: &ToolTokens) -> TokenSimilarity {
        let [name, description, parameters] = tool.parts().map(|part| self.best_and_recall(part));
        // The best of each part is the best of the whole, so nothing is compared twice.
        let mut anywhere = name.0;
        raise(&mut anywhere, &description.0);
        raise(&mut anywhere, &parameters.0);
        let whole = mean(&anywhere, &self.weights);
        let clauses = self.clauses.iter();
        let clause = clauses
            .map(|weights| mean(&anywhere, weights))
            .reduce(f32::max);
        TokenSimilarity {
            anywhere: whole,
            clause: clause.unwrap_or(whole),
            name: mean(&name.0, &self.weights),
            name_recall: name.1,
            description: mean(&description.0, &self.weights),
            description_recall: description.1,
        }
    }

    fn compared(&self, token: u16) -> Option<&Compared> {
        let place = self.places.get(usize::from(token))?.checked_sub(1)?;
        self.compared.get(place as usize)
    }

    /// For each token of the request the highest similarity to the part's tokens, and the
    /// similarity of the part's tokens to the request's.
    fn best_and_recall(&self, part: &[u16]) -> (Similarities, f32) {
        let mut best = [0.0; REQUEST_TOKENS];
        let (mut near, mut all) = (0.0, 0.0);
        for token in part {
            let Some(compared) = self.compared(*token) else {
                continue;
            };
            raise(&mut best, &compared.similarities);
            near += compared.weight * compared.nearest;
            all += compared.weight;
        }
        (best, if all > 0.0 { near / all } else { 0.0 })
    }
}

/// For each of these tokens the highest similarity to a token of any of the tools.
pub fn nearest<'a>(
    table: &StaticTable,
    asked: &[u32],
    tools: impl Iterator<Item = &'a ToolTokens>,
) -> Vec<f32> {
    let mut of_tools: Vec<u32> = Vec::new();
    for tool in tools {
        of_tools.extend(tool.all.iter().copied().map(u32::from));
    }
    let of_tools = distinct(of_tools, usize::MAX);
    let mut nearest = vec![0.0; asked.len()];
    table.cosines(asked, &of_tools, |_, number, cosine| {
        nearest[number] = f32::max(nearest[number], cosine);
    });
    nearest
}

/// The tokens of a text's words outside the stop-list.
pub fn tokens(text: &str, table: &StaticTable) -> Vec<u32> {
    let mut tokens = Vec::new();
    for word in text::words(text) {
        if !text::is_stop_word(&word) {
            table.tokens(&word, |token| tokens.push(token));
        }
    }
    tokens
}

/// Adds the tokens of a part of a tool.
fn push_tokens(part: &Analyzed, table: &StaticTable, tokens: &mut Vec<u32>) {
    // The terms of ASCII words are those words, while Chinese, Japanese and Korean become others.
    if part.is_ascii() {
        for word in part.words() {
            table.tokens(word, |token| tokens.push(token));
        }
        return;
    }
    for text in &part.texts {
        tokens.extend(self::tokens(text, table));
    }
}

/// The first `count` of the tokens, each once, in their order.
fn distinct(tokens: Vec<u32>, count: usize) -> Vec<u32> {
    let mut seen = ByTerm::default();
    let tokens = tokens.into_iter();
    tokens
        .filter(|token| seen.insert(*token, ()).is_none())
        .take(count)
        .collect()
}

/// The tokens with the largest weights, in their order.
fn heaviest(tokens: &[u32], table: &StaticTable) -> Vec<u32> {
    let mut by_weight: Vec<(f32, usize)> = Vec::with_capacity(tokens.len());
    for (place, &token) in tokens.iter().enumerate() {
        by_weight.push((table.weight(token), place));
    }
    by_weight.sort_unstable_by(|one, other| ranked(*one, *other));
    by_weight.truncate(REQUEST_TOKENS);
    by_weight.sort_unstable_by_key(|(_, place)| *place);
    let places = by_weight.into_iter();
    places.map(|(_, place)| tokens[place]).collect()
}

/// The weights of a request's tokens; 0 for those that are not among `counted`.
fn weights(asked: &[u32], counted: &[u32], table: &StaticTable) -> Similarities {
    let mut weights = [0.0; REQUEST_TOKENS];
    for (weight, token) in weights.iter_mut().zip(asked) {
        if counted.contains(token) {
            *weight = table.weight(*token);
        }
    }
    weights
}

fn raise(best: &mut Similarities, similarities: &Similarities) {
    for (best, similarity) in best.iter_mut().zip(similarities) {
        // Not `max`, which checks for NaN and takes twice as long.
        *best = if *similarity > *best {
            *similarity
        } else {
            *best
        };
    }
}

fn mean(best: &Similarities, weights: &Similarities) -> f32 {
    let all: f32 = weights.iter().sum();
    let near: f32 = best
        .iter()
        .zip(weights)
        .map(|(best, weight)| best * weight)
        .sum();
    if all > 0.0 { near / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    fn near(request: &str, clauses: &[&str], tool: &Tool) -> TokenSimilarity {
        let table = StaticTable::bundled().unwrap();
        let tokens = ToolTokens::new(&ToolTexts::new(tool), &table);
        let clauses: Vec<String> = clauses.iter().map(|clause| (*clause).to_owned()).collect();
        LateInteraction::new(&table, request, &clauses, std::iter::once(&tokens)).of(&tokens)
    }

    fn tool(name: &str, description: &str) -> Tool {
        Tool::new("", name).unwrap().with_description(description)
    }

    #[test]
    fn every_token_of_the_table_has_a_number_of_16_bits() {
        assert!(StaticTable::bundled().unwrap().len() <= 1 << 16);
        assert!(
            MAX_TOKENS
                .iter()
                .all(|&count| count <= usize::from(u8::MAX))
        );
    }

    #[test]
    fn equal_words_have_similarity_1() {
        let near = near(
            "weather forecast",
            &[],
            &tool("forecast_weather", "Weather"),
        );
        assert!((near.anywhere - 1.0).abs() < 1e-3, "{near:?}");
        assert!(
            (near.name_recall - 1.0).abs() < 1e-3 && (near.description_recall - 1.0).abs() < 1e-3,
            "{near:?}"
        );
        assert!(near.description < 0.99, "{near:?}");
    }

    #[test]
    fn synonyms_are_similar() {
        let purchase = tool("purchase_item", "");
        assert!(near("buy", &[], &purchase).name > near("rain", &[], &purchase).name + 0.1);
    }

    #[test]
    fn a_clause_is_more_similar_than_the_whole_request() {
        let request = "book a flight to Rome and tell me a joke";
        let near = near(
            request,
            &["book a flight to Rome", "tell me a joke"],
            &tool("tell_joke", "Tells a joke."),
        );
        assert!(near.clause > near.anywhere + 0.1, "{near:?}");
    }

    #[test]
    fn unusual_requests_and_tools_have_similarities_from_0_to_1() {
        let long = "word ".repeat(20_000);
        for text in [
            "",
            "?!",
            "🙂",
            "a",
            "查询天气",
            "the of and",
            &"x".repeat(100_000),
            &long,
        ] {
            let near = near(text, &[text], &tool("a", text));
            let numbers = [
                near.anywhere,
                near.clause,
                near.name,
                near.name_recall,
                near.description,
            ];
            assert!(
                numbers.iter().all(|number| (0.0..=1.001).contains(number)),
                "{text:.20}: {near:?}"
            );
        }
    }
}
