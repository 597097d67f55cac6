//! Fits tool definitions into a token budget: the best ones whole, the next ones shortened.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use tiktoken_rs::o200k_base_singleton;
use toolscout_index::formats::{self, Emit};
use toolscout_index::{OwnerTexts, Tool, ToolId};

/// The smallest budget: every format's empty answer fits into it.
pub const MIN_TOKENS: usize = 64;
/// The largest budget; no model's context is much larger.
pub const MAX_TOKENS: usize = 1_000_000;

/// Text is counted in pieces of at most this many bytes, since the tokenizer's pattern may fail on
/// longer ones.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of the longest token of o200k. Text with more bytes per token of the budget cannot fit and
/// is not counted.
const MAX_TOKEN_BYTES: usize = 128;
/// Longest shortened description; it ends after the first sentence if that is shorter.
const TERSE_DESCRIPTION_CHARS: usize = 160;
/// Keywords of a schema that describe but do not constrain.
const EXPLAINING_KEYWORDS: [&str; 6] = [
    "description",
    "title",
    "examples",
    "example",
    "default",
    "$comment",
];

/// Tool definitions that fit into a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The tools in the requested format, best first.
    pub value: Value,
    /// Tokens of `value` as compact JSON, by the o200k encoding; at most the budget.
    pub tokens: usize,
    /// Number of whole tools, which come first.
    pub whole: usize,
    /// Number of tools with a shortened description and schema, which follow the whole ones.
    pub shortened: usize,
    /// Tools that did not fit.
    pub omitted: Vec<ToolId>,
}

/// Fits tools, best first, into `max_tokens` tokens: whole while there is room, then shortened,
/// then omitted.
///
/// At most half of the budget is reserved for lower-ranked tools, so that as many tools as possible
/// are included in some form. After a shortened tool, no later one is longer. Budgets below
/// [`MIN_TOKENS`] are raised to it.
pub fn fit(tools: &[Arc<Tool>], emit: Emit, max_tokens: usize) -> Fitted {
    let budget = max_tokens.max(MIN_TOKENS);
    let mut plan = Plan::choose(tools, emit, budget);
    loop {
        let value = plan.emit(emit);
        let tokens = count(&value.to_string());
        if tokens <= budget || plan.shown.is_empty() {
            return plan.finish(value, tokens);
        }
        // Rare: names grow when they collide within the set, and token counts do not add up
        // exactly.
        plan.drop_last();
    }
}

/// The number of tokens of a text by the o200k encoding. Slightly too high for texts of many
/// kilobytes, which are counted in pieces.
pub fn count(text: &str) -> usize {
    let tokenizer = o200k_base_singleton();
    pieces(text)
        .map(|piece| tokenizer.encode_ordinary(piece).len())
        .sum()
}

/// How much of a tool is included, most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    /// The definition as registered.
    Whole,
    /// The first sentence, and a schema without descriptions.
    Terse,
    /// The first sentence, and the names and types of the arguments only.
    Outline,
}

impl Detail {
    fn shorter(self, emit: Emit) -> Option<Detail> {
        match (self, emit) {
            (_, Emit::Names | Emit::Signature | Emit::AnthropicReference) => None,
            (Detail::Whole, _) => Some(Detail::Terse),
            (Detail::Terse, _) => Some(Detail::Outline),
            (Detail::Outline, _) => None,
        }
    }

    fn of(self, tool: &Tool) -> Cow<'_, Tool> {
        match self {
            Detail::Whole => Cow::Borrowed(tool),
            Detail::Terse => Cow::Owned(shortened(tool, without_explanations(&tool.input_schema))),
            Detail::Outline => Cow::Owned(shortened(tool, outline(&tool.input_schema))),
        }
    }
}

struct Plan<'a> {
    shown: Vec<(Cow<'a, Tool>, Detail)>,
    omitted: Vec<ToolId>,
}

impl<'a> Plan<'a> {
    fn choose(tools: &'a [Arc<Tool>], emit: Emit, budget: usize) -> Self {
        // What an answer without tools costs: the brackets around them.
        let frame = count(&formats::emit(&[], emit).to_string());
        let shortest: Vec<usize> = tools
            .iter()
            .map(|tool| shortest(tool, emit, frame, budget))
            .collect();
        let mut later: usize = shortest.iter().sum();
        let mut plan = Plan {
            shown: Vec::new(),
            omitted: Vec::new(),
        };
        let mut left = budget.saturating_sub(frame);
        let mut detail = Detail::Whole;
        for (tool, shortest) in tools.iter().zip(shortest) {
            later -= shortest;
            // Reserve room for the shortest forms of the tools below, up to half of the budget.
            let room = left
                .saturating_sub(later.min(budget / 2))
                .max(shortest.min(left));
            match fitting(tool, emit, detail, frame, room) {
                Some((form, chosen, cost)) => {
                    left -= cost;
                    detail = chosen;
                    plan.shown.push((form, chosen));
                }
                None => plan.omitted.push(tool.id.clone()),
            }
        }
        plan
    }

    fn emit(&self, emit: Emit) -> Value {
        let tools: Vec<&Tool> = self.shown.iter().map(|(tool, _)| tool.as_ref()).collect();
        formats::emit(&tools, emit)
    }

    fn drop_last(&mut self) {
        if let Some((tool, _)) = self.shown.pop() {
            self.omitted.insert(0, tool.id.clone());
        }
    }

    fn finish(self, value: Value, tokens: usize) -> Fitted {
        let whole = self
            .shown
            .iter()
            .filter(|(_, detail)| *detail == Detail::Whole)
            .count();
        Fitted {
            value,
            tokens,
            whole,
            shortened: self.shown.len() - whole,
            omitted: self.omitted,
        }
    }
}

/// The longest form of a tool, from `detail` down, that costs at most `left` tokens.
fn fitting(
    tool: &Tool,
    emit: Emit,
    mut detail: Detail,
    frame: usize,
    left: usize,
) -> Option<(Cow<'_, Tool>, Detail, usize)> {
    loop {
        let form = detail.of(tool);
        if let Some(cost) = cost(&form, emit, frame, left) {
            return Some((form, detail, cost));
        }
        detail = detail.shorter(emit)?;
    }
}

/// The tokens of a tool's shortest form; 0 if it cannot fit at all.
fn shortest(tool: &Tool, emit: Emit, frame: usize, budget: usize) -> usize {
    let mut detail = Detail::Whole;
    while let Some(shorter) = detail.shorter(emit) {
        detail = shorter;
    }
    cost(&detail.of(tool), emit, frame, budget).unwrap_or_default()
}

/// The tokens that a tool adds; `None` if they are more than `left`.
fn cost(tool: &Tool, emit: Emit, frame: usize, left: usize) -> Option<usize> {
    let text = formats::emit(&[tool], emit).to_string();
    if text.len() / MAX_TOKEN_BYTES > left + frame {
        return None;
    }
    // The comma after the tool before.
    let separator = 1;
    let cost = (count(&text) + separator).saturating_sub(frame);
    (cost <= left).then_some(cost)
}

fn shortened(tool: &Tool, input_schema: Map<String, Value>) -> Tool {
    Tool {
        description: first_sentence(tool.shown_description()).to_owned(),
        owner_texts: OwnerTexts::default(),
        input_schema,
        // A model needs neither of them to write a call.
        output_schema: None,
        metadata: Map::new(),
        ..tool.clone()
    }
}

fn first_sentence(text: &str) -> &str {
    let text = text.trim();
    let start = match text.char_indices().nth(TERSE_DESCRIPTION_CHARS) {
        Some((end, _)) => &text[..end],
        None => text,
    };
    let line = start.lines().next().unwrap_or_default();
    // The full stop in a number or a file name has no space after it.
    match line.find(". ") {
        Some(end) => &line[..=end],
        None => line,
    }
}

/// A schema that accepts the same values, without descriptions.
fn without_explanations(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    for (keyword, value) in schema {
        if !EXPLAINING_KEYWORDS.contains(&keyword.as_str()) {
            kept.insert(keyword.clone(), strip_keyword(keyword, value));
        }
    }
    kept
}

/// A keyword's value without descriptions. Keys under `properties` and similar keywords are names,
/// not keywords; `enum`, `const` and `required` contain values.
fn strip_keyword(keyword: &str, value: &Value) -> Value {
    match (keyword, value) {
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
            Value::Object(named),
        ) => named
            .iter()
            .map(|(name, schema)| (name.clone(), strip(schema)))
            .collect(),
        ("enum" | "const" | "required" | "dependentRequired", _) => value.clone(),
        _ => strip(value),
    }
}

fn strip(schema: &Value) -> Value {
    match schema {
        Value::Object(schema) => Value::Object(without_explanations(schema)),
        Value::Array(schemas) => schemas.iter().map(strip).collect(),
        other => other.clone(),
    }
}

/// The arguments' names and types, one level deep.
fn outline(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut outline = Map::new();
    outline.insert("type".into(), "object".into());
    if let Some(Value::Object(properties)) = schema.get("properties") {
        let mut typed = Map::new();
        for (name, property) in properties {
            typed.insert(name.clone(), only_type(property));
        }
        outline.insert("properties".into(), Value::Object(typed));
    }
    if let Some(required) = schema.get("required") {
        outline.insert("required".into(), required.clone());
    }
    outline
}

fn only_type(property: &Value) -> Value {
    let mut kept = Map::new();
    // The values of an `enum` are the type of an argument that takes nothing else.
    for keyword in ["type", "enum"] {
        if let Some(value) = property.get(keyword) {
            kept.insert(keyword.to_owned(), value.clone());
        }
    }
    Value::Object(kept)
}

fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = text.floor_char_boundary(PIECE_BYTES);
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TOOL_FORMATS: [Emit; 4] = [
        Emit::Openai,
        Emit::OpenaiResponses,
        Emit::Anthropic,
        Emit::Mcp,
    ];

    fn tool(name: &str, words: usize) -> Arc<Tool> {
        let mut tool = Tool::new("forge", name).unwrap().with_description(format!(
            "Does {name} in one step. {}",
            "It says much about itself. ".repeat(words)
        ));
        tool.input_schema = json!({
            "type": "object",
            "properties": {
                "description": { "type": "string", "description": "A long explanation. ".repeat(words) },
                "state": { "type": "string", "enum": ["open", "closed"], "default": "open" },
            },
            "required": ["description"],
        })
        .as_object()
        .unwrap()
        .clone();
        Arc::new(tool)
    }

    fn tools() -> Vec<Arc<Tool>> {
        (0..12)
            .map(|n| tool(&format!("tool_{n}"), 5 + 7 * n))
            .collect()
    }

    #[test]
    fn no_budget_is_exceeded_and_a_large_one_includes_all_tools() {
        for emit in
            TOOL_FORMATS
                .into_iter()
                .chain([Emit::Names, Emit::Signature, Emit::AnthropicReference])
        {
            let mut shown = 0;
            for budget in [64, 100, 200, 400, 800, 1600, 3200, 100_000] {
                let fitted = fit(&tools(), emit, budget);
                assert!(
                    fitted.tokens <= budget,
                    "{emit:?} {budget}: {}",
                    fitted.tokens
                );
                assert_eq!(fitted.tokens, count(&fitted.value.to_string()));
                shown = fitted.whole + fitted.shortened;
                assert_eq!(shown + fitted.omitted.len(), 12);
            }
            assert_eq!(shown, 12, "{emit:?}");
        }
    }

    #[test]
    fn the_first_tools_are_whole_and_the_rest_shortened() {
        let fitted = fit(&tools(), Emit::Mcp, 1500);
        assert!(fitted.whole >= 1 && fitted.shortened >= 1, "{fitted:?}");
        let written = fitted.value.to_string();
        assert!(written.contains("A long explanation."));
        assert!(written.contains("Does tool_11 in one step."));
    }

    #[test]
    fn a_shortened_schema_keeps_arguments_named_like_keywords_and_their_values() {
        let terse = Detail::Terse.of(&tool("x", 3)).into_owned();
        assert_eq!(terse.description, "Does x in one step.");
        let state = &terse.input_schema["properties"]["state"];
        assert_eq!(
            state,
            &json!({ "type": "string", "enum": ["open", "closed"] })
        );
        assert_eq!(
            terse.input_schema["properties"]["description"],
            json!({ "type": "string" })
        );
    }

    #[test]
    fn long_runs_without_spaces_are_counted() {
        let long = "ä".repeat(100_000);
        assert!(count(&long) > 10_000);
        assert_eq!(pieces(&long).map(str::len).sum::<usize>(), long.len());
    }
}
