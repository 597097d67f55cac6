//! The tools `tool_search` and `call_tool`: their definitions, arguments and answers. Pure; the
//! driver runs the search.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use toolscout_index::formats::model_name;
use toolscout_index::query::MAX_TEXTS;
use toolscout_index::{CompanionOf, Filter, Kind, Tool, ToolId};

use crate::finder::items::{self, Audience};
use crate::finder::model_names::{CALL_TOOL, TOOL_SEARCH};
use crate::finder::search::{Found, FoundTool, NoMatch, SearchRequest};
use crate::finder::toolbox::Injection;
use toolscout_base::printable::excerpt;
use toolscout_gate::llm::ToolSpec;
use toolscout_gate::tools::Arguments;

/// Prefix of a query that selects tools by name.
const SELECT: &str = "select:";
/// Characters of a description in an answer; the injected tool has the whole description.
const SUMMARY_CHARS: usize = 160;
/// Similar names in an answer without a match.
const MAX_NEAREST: usize = 5;
/// What the definition of a search says of its answer.
pub const ABOUT_ANSWER: &str = "`match` says how well they fit; with `none`, call none of them. `more` lists what came next; if one of those fits better, load it with `select:NAME` instead of searching again.";

/// Limits of a model's searches.
#[derive(Clone, Debug, PartialEq)]
pub struct FindConfig {
    /// Largest limit that the model may set.
    pub max_limit: usize,
    /// The tools after the hits that an answer names.
    pub more: MoreTools,
    /// Which tools may be found at all.
    pub filter: Filter,
}

impl Default for FindConfig {
    fn default() -> Self {
        FindConfig {
            max_limit: 20,
            more: MoreTools::default(),
            filter: Filter::default(),
        }
    }
}

/// How many tools after the hits an answer names, in a line each, and how long the lines are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoreTools {
    /// Most lines; none with 0.
    pub lines: usize,
    /// Characters of a description in a line.
    pub chars: usize,
}

impl MoreTools {
    /// A line for each tool that came next: the name that `select:` takes, and how its description begins.
    /// None if an earlier search found the same tools.
    pub fn describe(self, found: &Found) -> Vec<String> {
        let lines = match found.repeats {
            0 => self.lines,
            // Without hits, they are the nearest tools.
            _ if found.hits.is_empty() => self.lines,
            _ => 0,
        };
        let mut described = Vec::new();
        for tool in found.more.iter().take(lines) {
            described.push(self.line(&model_name(&tool.id), tool));
        }
        described
    }

    /// The line of a tool with this name.
    pub fn line(self, name: &str, tool: &Tool) -> String {
        let description = tool.shown_description();
        if self.chars == 0 || description.is_empty() {
            return name.to_owned();
        }
        format!("{name}: {}", excerpt(description, self.chars))
    }
}

impl Default for MoreTools {
    /// With five hits and eleven lines the right tools are in 81% of the answers of eight catalogs, with
    /// five hits alone in 66%.
    fn default() -> Self {
        MoreTools {
            lines: 11,
            chars: 100,
        }
    }
}

/// How found tools are made callable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// Found tools are added to the model's list of tools.
    #[default]
    Inject,
    /// The list stays `tool_search` and `call_tool`; the answers contain the schemas.
    Dispatch,
}

/// The definition of `tool_search` for a model.
pub fn search_spec() -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "What the tool should do, in a few words; or `select:name_a,name_b` to load tools by exact name.",
            },
            "queries": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Several needs at once, one query each.",
            },
            "limit": { "type": "integer", "description": "Most tools to load." },
            "server": { "type": "string", "description": "Only tools of this server." },
        },
    });
    let description = format!(
        "Finds tools by what they do and loads them so that you can call them. \
        Use it whenever no visible tool fits; never guess tool names. {ABOUT_ANSWER}"
    );
    ToolSpec::new(TOOL_SEARCH, description, parameters)
}

/// The definition of `tool_search` with an argument for other kinds of items.
pub fn search_spec_with_kinds() -> ToolSpec {
    let mut spec = search_spec();
    let kinds = json!({
        "type": "array",
        "items": { "enum": Kind::ALL.map(Kind::as_str) },
        "description": "What to look for; tools alone by default. `others` has what is no tool.",
    });
    if let Some(Value::Object(properties)) = spec.parameters.get_mut("properties") {
        properties.insert("kinds".into(), kinds);
    }
    spec
}

/// The definition of `call_tool` for a model.
pub fn dispatch_spec() -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "The tool's name as `tool_search` gave it." },
            "arguments": { "type": "object", "description": "Its arguments, by the schema that `tool_search` gave." },
        },
        "required": ["name"],
    });
    ToolSpec::new(
        CALL_TOOL,
        "Calls a tool that `tool_search` has found.",
        parameters,
    )
}

/// Parses the arguments of a `tool_search` call.
///
/// # Errors
/// A message that tells the model how to search.
pub fn parse(arguments: &Arguments, config: &FindConfig) -> Result<SearchRequest, String> {
    let mut texts = strings(arguments.get("query"));
    texts.extend(strings(arguments.get("queries")));
    let mut request = SearchRequest {
        limit: limit(arguments, config)?,
        more: config.more.lines,
        ..SearchRequest::default()
    };
    request.filter = filter(arguments, config)?;
    for text in texts.iter().map(|text| text.trim()) {
        match text.strip_prefix(SELECT) {
            Some(names) => {
                let names = names.split(',').map(str::trim).map(str::to_owned);
                request.select.extend(names);
            }
            None => request.queries.push(text.to_owned()),
        }
    }
    request.select.retain(|name| !name.is_empty());
    request.queries.retain(|query| !query.is_empty());
    drop_repeats(&mut request.select);
    drop_repeats(&mut request.queries);
    if request.queries.is_empty() && request.select.is_empty() {
        return Err(
            "the search is empty; give `query` with a few words about what the tool should do, \
            `queries` for several needs, or `select:name` for a tool you know"
                .into(),
        );
    }
    if request.queries.len().max(request.select.len()) > MAX_TEXTS {
        return Err(format!(
            "too many queries or names; {MAX_TEXTS} are allowed in one search"
        ));
    }
    Ok(request)
}

/// The tools that several searches found, each once, in order.
pub fn merged(search_results: &[Found]) -> Vec<Arc<Tool>> {
    let mut seen = BTreeSet::new();
    let mut tools = Vec::new();
    for hit in search_results.iter().flat_map(|found| &found.hits) {
        if seen.insert(&hit.tool.id) {
            tools.push(hit.tool.clone());
        }
    }
    tools
}

/// The answer to one search.
pub fn answer(found: &Found, injection: &Injection, style: Style, more: MoreTools) -> Value {
    let mut answer = hits_by_state(found, injection, style);
    let others = items::describe(&found.items, Audience::Agent);
    if !others.is_empty() {
        answer.insert("others".into(), others.into());
    }
    let lines = more.describe(found);
    if !lines.is_empty() {
        answer.insert("more".into(), lines.into());
    }
    if !injection.evicted.is_empty() {
        let names: Vec<String> = injection.evicted.iter().map(model_name).collect();
        answer.insert("unloaded".into(), names.into());
        answer.insert(
            "note".into(),
            "Unloaded tools come back with a search for `select:NAME`.".into(),
        );
    }
    if let Some(no_match) = &found.no_match {
        answer.insert("no_match".into(), describe_no_match(no_match));
    }
    if answer.is_empty() {
        answer.insert(
            "no_match".into(),
            json!({ "reason": "nothing was found; try other words" }),
        );
    }
    // The verdict comes first, so that a model reads it before the tools.
    let mut whole = found.verdict();
    whole.extend(answer);
    Value::Object(whole)
}

/// The hits by what the injection did with them. It is that of all searches of a turn; the lists
/// have only the hits of this one.
fn hits_by_state(found: &Found, injection: &Injection, style: Style) -> Arguments {
    let (mut loaded, mut visible, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for hit in &found.hits {
        let id = &hit.tool.id;
        // A tool may be selected by its name and found by a query too.
        if !seen.insert(id) {
            continue;
        }
        if injection.added.contains(id) {
            loaded.push(describe_hit(hit, injection, style));
        } else if injection.already.contains(id) {
            visible.push(match style {
                // The schemas of earlier turns are no longer in the context, those of this turn are.
                Style::Dispatch if found.repeats == 0 => describe_hit(hit, injection, style),
                Style::Inject | Style::Dispatch => injection.name_of(id).into(),
            });
        } else if let Some((_, tokens)) = injection.refused.iter().find(|(other, _)| other == id) {
            refused.push(describe_refused(id, *tokens));
        }
    }
    let mut by_state = Arguments::new();
    for (state, hits) in [
        ("loaded", loaded),
        ("already_visible", visible),
        ("no_room_for", refused),
    ] {
        if !hits.is_empty() {
            by_state.insert(state.to_owned(), hits.into());
        }
    }
    by_state
}

/// The notice at the beginning of a turn about tools that the model called before and that were
/// unloaded since.
pub fn missed_notice(ids: &[&ToolId]) -> String {
    let names = ids.iter().map(|id| format!("\"{}\"", model_name(id)));
    let names: Vec<String> = names.collect();
    format!(
        "Tools you called before were unloaded: {}. A search for `select:NAME` brings one back.",
        names.join(", ")
    )
}

/// A tool whose whole definition the model sees from now on. It is marked if it has flags.
pub fn describe_loaded(name: &str, tool: &Tool) -> Value {
    let description = excerpt(tool.shown_description(), SUMMARY_CHARS);
    marked(json!({ "name": name, "description": description }), tool)
}

/// The description of a tool with the tool's flags, if it has any.
fn marked(mut described: Value, tool: &Tool) -> Value {
    let flags = tool.flags();
    if !flags.is_empty() {
        described["flagged"] = flags.into();
    }
    described
}

fn describe_hit(hit: &FoundTool, injection: &Injection, style: Style) -> Value {
    let (tool, name) = (&hit.tool, injection.name_of(&hit.tool.id));
    let mut described = match style {
        Style::Inject => describe_loaded(&name, tool),
        Style::Dispatch => {
            let description = tool.shown_description();
            let parameters = tool.shown_input_schema();
            let whole =
                json!({ "name": name, "description": description, "parameters": parameters });
            marked(whole, tool)
        }
    };
    if let Some(CompanionOf {
        id,
        parameter,
        reason,
    }) = &hit.companion_of
    {
        let needing = injection.name_of(id);
        described["companion_of"] =
            json!({ "name": needing, "parameter": parameter, "reason": reason });
    }
    described
}

fn describe_no_match(no_match: &NoMatch) -> Value {
    let nearest = no_match.nearest.iter().take(MAX_NEAREST);
    let nearest: Vec<String> = nearest.map(model_name).collect();
    json!({ "reason": no_match.reason, "nearest_names": nearest })
}

fn describe_refused(id: &ToolId, tokens: usize) -> Value {
    json!({ "name": model_name(id), "tokens": tokens, "reason": "the budget for tools is used up by tools in use" })
}

/// A string, an array of strings, or nothing.
fn strings(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

/// The limit that the model sets; without one, the catalog's default applies.
fn limit(arguments: &Arguments, config: &FindConfig) -> Result<Option<usize>, String> {
    let wanted = match arguments.get("limit") {
        None | Some(Value::Null) => return Ok(None),
        // Some models write numbers as strings.
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_u64(),
    };
    match wanted.and_then(|limit| usize::try_from(limit).ok()) {
        Some(limit) if limit > 0 => Ok(Some(limit.min(config.max_limit))),
        _ => Err(format!(
            "`limit` is {}, it must be a whole number from 1 to {}",
            arguments["limit"], config.max_limit
        )),
    }
}

fn filter(arguments: &Arguments, config: &FindConfig) -> Result<Filter, String> {
    let mut filter = config.filter.clone();
    for name in strings(arguments.get("kinds")) {
        let kind = name.trim().parse();
        filter
            .kinds
            .insert(kind.map_err(|error: toolscout_index::Error| error.to_string())?);
    }
    let server = arguments.get("server").and_then(Value::as_str);
    let server = server.unwrap_or_default();
    if server.is_empty() {
        return Ok(filter);
    }
    if !filter.servers.is_empty() && !filter.servers.contains(server) {
        let allowed: Vec<&str> = filter.servers.iter().map(String::as_str).collect();
        return Err(format!(
            "server {server:?} is not available here; available are {}",
            allowed.join(", ")
        ));
    }
    filter.servers = BTreeSet::from([server.to_owned()]);
    Ok(filter)
}

fn drop_repeats(texts: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    texts.retain(|text| seen.insert(text.clone()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finder::search::NoMatch;
    use crate::finder::search::doubles::found;
    use toolscout_index::Match;

    fn read(arguments: Value) -> Result<SearchRequest, String> {
        parse(arguments.as_object().unwrap(), &FindConfig::default())
    }

    fn ids(texts: &[&str]) -> Vec<ToolId> {
        texts
            .iter()
            .map(|text| ToolId::parse(text).unwrap())
            .collect()
    }

    #[test]
    fn every_form_of_a_search_is_accepted() {
        let request = read(
            json!({ "query": "send mail", "queries": ["send mail", " weather "], "limit": "3" }),
        )
        .unwrap();
        assert_eq!(
            (request.queries, request.limit),
            (vec!["send mail".into(), "weather".into()], Some(3))
        );
        let request = read(json!({ "query": "select: a/b , c,,a/b", "limit": 900 })).unwrap();
        assert_eq!(
            (request.select, request.limit),
            (vec!["a/b".into(), "c".into()], Some(20))
        );
        let request = read(json!({ "query": "x", "server": "mail" })).unwrap();
        assert_eq!(
            (request.filter.servers, request.limit),
            (BTreeSet::from(["mail".to_owned()]), None)
        );
    }

    #[test]
    fn an_empty_search_is_refused_with_instructions() {
        for arguments in [
            json!({}),
            json!({ "query": "  " }),
            json!({ "queries": [] }),
            json!({ "query": "select:," }),
        ] {
            assert!(
                read(arguments)
                    .unwrap_err()
                    .contains("the search is empty; give `query`")
            );
        }
        assert!(
            read(json!({ "query": "x", "limit": 0 }))
                .unwrap_err()
                .contains("`limit` is 0")
        );
        let many: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        assert!(
            read(json!({ "queries": many }))
                .unwrap_err()
                .contains("too many")
        );
    }

    #[test]
    fn a_server_outside_the_profile_is_refused() {
        let filter = Filter {
            servers: BTreeSet::from(["web".to_owned()]),
            ..Filter::default()
        };
        let config = FindConfig {
            filter,
            ..FindConfig::default()
        };
        let arguments = json!({ "query": "x", "server": "shell" });
        let message = parse(arguments.as_object().unwrap(), &config).unwrap_err();
        assert!(
            message.contains("\"shell\" is not available here; available are web"),
            "{message}"
        );
    }

    #[test]
    fn searches_of_one_turn_are_merged_without_repeats() {
        let merged = merged(&[found(&["a", "b"]), found(&["b", "c"])]);
        assert_eq!(
            merged
                .iter()
                .map(|tool| tool.id.as_str())
                .collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
    }

    #[test]
    fn the_answer_lists_each_hit_by_its_outcome() {
        let injection = Injection {
            added: ids(&["m/new", "m/other"]),
            already: ids(&["m/old"]),
            refused: vec![(ToolId::parse("m/big").unwrap(), 900)],
            evicted: ids(&["w/gone"]),
            ..Injection::default()
        };
        let answer = answer(
            &found(&["m/new", "m/old", "m/big"]),
            &injection,
            Style::Inject,
            MoreTools::default(),
        );
        assert_eq!(
            answer["loaded"],
            json!([{ "name": "m__new", "description": "does it" }])
        );
        assert_eq!(answer["already_visible"], json!(["m__old"]));
        assert_eq!(answer["no_room_for"][0]["tokens"], 900);
        assert_eq!(answer["unloaded"], json!(["w__gone"]));
        assert!(answer["note"].as_str().unwrap().contains("select:NAME"));
    }

    #[test]
    fn a_companion_says_for_which_tool_it_is_there() {
        let mut searched = found(&["m/update", "m/search"]);
        searched.hits[1].companion_of = Some(CompanionOf {
            id: ToolId::parse("m/update").unwrap(),
            parameter: "person_id".into(),
            reason: "it lists people".into(),
        });
        let injection = Injection {
            added: ids(&["m/update", "m/search"]),
            ..Injection::default()
        };
        let expected =
            json!({ "name": "m__update", "parameter": "person_id", "reason": "it lists people" });
        for style in [Style::Inject, Style::Dispatch] {
            let loaded =
                answer(&searched, &injection, style, MoreTools::default())["loaded"].clone();
            assert_eq!(loaded[1]["companion_of"], expected);
            assert!(loaded[0].get("companion_of").is_none());
        }
    }

    #[test]
    fn a_flagged_tool_is_marked() {
        let mut searched = found(&["m/good", "m/odd"]);
        let odd = Tool::clone(&searched.hits[1].tool);
        searched.hits[1].tool = Arc::new(odd.with_flags(["asks for secrets".to_owned()]));
        let injection = Injection {
            added: ids(&["m/good", "m/odd"]),
            ..Injection::default()
        };
        for style in [Style::Inject, Style::Dispatch] {
            let loaded =
                answer(&searched, &injection, style, MoreTools::default())["loaded"].clone();
            assert_eq!(loaded[1]["flagged"], json!(["asks for secrets"]));
            assert!(loaded[0].get("flagged").is_none());
        }
    }

    #[test]
    fn dispatch_answers_carry_the_schema() {
        let injection = Injection {
            added: ids(&["a"]),
            ..Injection::default()
        };
        assert!(
            answer(
                &found(&["a"]),
                &injection,
                Style::Dispatch,
                MoreTools::default()
            )["loaded"][0]["parameters"]
                .is_object()
        );
    }

    #[test]
    fn the_tools_after_the_hits_are_named_with_how_to_load_them() {
        let mut searched = found(&["m/new"]);
        searched.more = found(&["m/next"])
            .hits
            .into_iter()
            .map(|hit| hit.tool)
            .collect();
        let answer = answer(
            &searched,
            &Injection::default(),
            Style::Inject,
            MoreTools::default(),
        );
        assert_eq!(answer["more"], json!(["m__next: does it"]));
        assert!(search_spec().description.contains("select:NAME"));
    }

    #[test]
    fn no_match_gives_reason_and_nearest_names() {
        let no_match = NoMatch {
            reason: "nothing like it".into(),
            nearest: ids(&["s/x", "s/y"]),
        };
        let found = Found {
            no_match: Some(no_match),
            ..Found::default()
        };
        assert_eq!(
            answer(
                &found,
                &Injection::default(),
                Style::Inject,
                MoreTools::default()
            )["no_match"],
            json!({ "reason": "nothing like it", "nearest_names": ["s__x", "s__y"] })
        );
        let without_hits = Found {
            matched: Some(Match::Possible),
            ..Found::default()
        };
        for nothing in [Found::default(), without_hits] {
            assert!(
                answer(
                    &nothing,
                    &Injection::default(),
                    Style::Inject,
                    MoreTools::default()
                )["no_match"]["reason"]
                    .is_string()
            );
        }
    }
}
