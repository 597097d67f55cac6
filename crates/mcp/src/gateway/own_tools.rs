//! The gateway's own tools, as its clients see them.

use rmcp::model::{Tool as McpTool, ToolAnnotations};
use serde_json::{Value, json};

use super::search_answer::Detail;
use toolscout_finder::finder::meta_tools;
use toolscout_gate::llm::ToolSpec;
use toolscout_gate::plan::{MAX_STEPS, OnInvalidStep};
use toolscout_gate::tools::Arguments;

/// The name of the tool that gives whole definitions.
pub const DESCRIBE_TOOL: &str = "describe_tool";
/// The name of the tool that lists servers, and all tools of one.
pub const LIST_TOOLS: &str = "list_tools";
/// The name of the tool that makes several calls.
pub const RUN_PLAN: &str = "run_plan";
/// Most tools in one call of [`DESCRIBE_TOOL`].
const MAX_DESCRIBED: usize = 16;

/// Their definitions. `servers` says which tools can be found.
pub fn definitions(servers: &str) -> Vec<McpTool> {
    let reading = [
        ("Search tools", search(servers)),
        ("Describe tools", describe()),
        ("List servers and their tools", list()),
    ];
    let calling = [
        ("Call a tool", meta_tools::dispatch_spec()),
        ("Make several calls", plan()),
    ];
    let reading = reading.map(|(title, spec)| {
        // They ask nothing beyond this catalog, and asking twice changes nothing.
        let hints = ToolAnnotations::new().read_only(true);
        own_tool(title, spec, hints.idempotent(true).open_world(false))
    });
    let calling =
        calling.map(|(title, spec)| own_tool(title, spec, ToolAnnotations::new().read_only(false)));
    reading.into_iter().chain(calling).collect()
}

/// How much [`DESCRIBE_TOOL`] tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Description {
    /// The first sentence and the arguments, on a line.
    Brief,
    /// All of it.
    #[default]
    Full,
}

impl Description {
    /// The level in the arguments of [`DESCRIBE_TOOL`].
    ///
    /// # Errors
    /// A message that names the levels.
    pub fn of(given: &Arguments) -> Result<Self, String> {
        match given.get("detail").map(|detail| detail.as_str()) {
            None | Some(Some("full")) => Ok(Description::Full),
            Some(Some("brief")) => Ok(Description::Brief),
            Some(_) => Err("`detail` must be brief or full".into()),
        }
    }
}

/// The names in the arguments of [`DESCRIBE_TOOL`].
///
/// # Errors
/// A message that tells the model how to call it.
pub fn names(given: &Arguments) -> Result<Vec<String>, String> {
    let names: Vec<String> = match (given.get("names"), given.get("name")) {
        (Some(Value::Array(names)), _) => {
            let texts = names.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        // Some models give one name.
        (Some(Value::String(name)), _) | (None, Some(Value::String(name))) => vec![name.clone()],
        _ => Vec::new(),
    };
    match names.len() {
        0 => {
            Err("give `names`, an array with the names of tools as `tool_search` gave them".into())
        }
        1..=MAX_DESCRIBED => Ok(names),
        more => Err(format!(
            "{more} names are too many, {MAX_DESCRIBED} are allowed at once"
        )),
    }
}

fn own_tool(title: &str, spec: ToolSpec, hints: ToolAnnotations) -> McpTool {
    McpTool::new(spec.name, spec.description, spec.parameters)
        .with_title(title)
        .annotate(hints)
}

fn search(servers: &str) -> ToolSpec {
    let mut spec = meta_tools::search_spec_with_kinds();
    if !servers.is_empty() {
        spec.description = format!("{}\n{servers}", spec.description);
    }
    let detail = json!({
        "enum": Detail::ALL.map(Detail::as_str),
        "description": "How much of each tool is shown: a signature, or its whole schema.",
    });
    if let Some(Value::Object(properties)) = spec.parameters.get_mut("properties") {
        properties.insert("detail".into(), detail);
    }
    spec
}

fn describe() -> ToolSpec {
    ToolSpec::new(
        DESCRIBE_TOOL,
        "Gives the whole description and schema of tools whose signature does not suffice.",
        json!({
            "type": "object",
            "properties": {
                "names": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Their names as `tool_search` gave them.",
                },
                "detail": {
                    "enum": ["brief", "full"],
                    "description": "brief: a line for each tool. full (default): everything.",
                },
            },
            "required": ["names"],
        }),
    )
}

fn list() -> ToolSpec {
    ToolSpec::new(
        LIST_TOOLS,
        "Lists the servers; or all tools of one server, in the order of their names.",
        json!({
            "type": "object",
            "properties": {
                "server": { "type": "string", "description": "The server whose tools are listed." },
                "after": { "type": "string", "description": "Where to go on: `next` of the last answer." },
            },
        }),
    )
}

fn plan() -> ToolSpec {
    let description = format!(
        "Makes up to {MAX_STEPS} calls at once. A step may use results of earlier steps: \"${{1.order.id}}\" is the field \
         `id` of the field `order` in the result of step 1. Steps that need none of each other's results run in parallel. \
         If a step fails, those that need it are skipped."
    );
    ToolSpec::new(
        RUN_PLAN,
        &description,
        json!({
            "type": "object",
            "properties": {
                "steps": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "tool": { "type": "string", "description": "The tool's name as `tool_search` gave it." },
                            "arguments": { "type": "object" },
                            "id": { "type": "string", "description": "A name to refer to it by; else its number from 1." },
                            "after": {
                                "type": "array",
                                "items": { "type": "string" },
                                "description": "Steps that must succeed first although it does not use their results.",
                            },
                        },
                        "required": ["tool"],
                    },
                },
                "on_invalid_step": {
                    "type": "string",
                    "enum": OnInvalidStep::NAMES,
                    "description": "If a step has an unknown tool or wrong arguments: refuse all steps (the default), \
                                    or skip that one.",
                },
            },
            "required": ["steps"],
        }),
    )
}

#[cfg(test)]
mod tests {
    use toolscout_finder::finder::model_names::CALL_TOOL;

    use super::*;

    #[test]
    fn every_tool_has_a_title_and_says_whether_it_only_reads() {
        let tools = definitions("");
        let reads = |tool: &McpTool| tool.annotations.as_ref().unwrap().read_only_hint;
        for tool in &tools {
            assert!(tool.title.as_ref().is_some_and(|title| !title.is_empty()));
            assert_eq!(
                reads(tool),
                Some(![CALL_TOOL, RUN_PLAN].contains(&tool.name.as_ref())),
                "{}",
                tool.name
            );
        }
    }
}
