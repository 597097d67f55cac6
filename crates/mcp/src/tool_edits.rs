//! What the owner of a file of servers changes of a server's tools: names, texts, arguments and results.
//!
//! A list of tools is compared with the approved definitions as the server sends it. Only then
//! [`ToolEdits::apply`] makes the tools of the catalog of it. Such a tool holds what it replaces, so
//! that [`as_offered`] gives the server's form back. A call takes the way back:
//! [`ToolEdits::call`] finds the server's name and fills in arguments, and [`ServerCall::view`] leaves
//! out what the owner does not want of the result.

mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rmcp::model::CallToolResult;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolscout_index::suggest::did_you_mean;
use toolscout_index::{Searcher, Tool, ToolId};

use toolscout_base::printable::{excerpt, is_hidden};
use toolscout_base::tool_edit::{ToolEdit, schema};
use toolscout_gate::tools::Arguments;

/// The key of a tool's metadata that holds the owner's edit, and what it replaces.
const OWNER: &str = "toolscout_owner";
/// The key of a tool's `_meta` with which a server asks clients to load the tool at once.
const ALWAYS_LOAD: &str = "anthropic/alwaysLoad";
/// Most tools of one server that are always loaded because the server asks for it.
const MAX_ASKED: usize = 16;
/// Most bytes of the definitions of these tools together, some 8,000 tokens.
const MAX_ASKED_BYTES: usize = 32 << 10;
/// Longest name of a tool, as MCP specifies.
const MAX_NAME_CHARS: usize = 128;
/// Longest name in a message.
const SHOWN_CHARS: usize = 100;

/// What the owner changes of the tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolEdits {
    /// By the server's names of the tools.
    by_tool: BTreeMap<String, ToolEdit>,
    /// The only tools that are not hidden.
    only: Option<BTreeSet<String>>,
    /// Whether tools are always loaded that have no setting of their own.
    always_load: Option<bool>,
}

/// The tools of a server with the owner's edits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EditedTools {
    /// For the catalog.
    pub tools: Vec<Tool>,
    /// Those that are always in the tool lists of models.
    pub always_loaded: Vec<ToolId>,
    /// What the edits name and the tools do not have.
    pub warnings: Vec<String>,
}

/// Who wrote a field of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The server.
    Server,
    /// The owner of the file of servers.
    Owner,
}

/// Where the fields of an edited tool come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Origins {
    /// The tool's name at its server.
    pub server_name: String,
    /// The server's description, where the owner has written another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_description: Option<String>,
    /// Who wrote each field of the definition.
    pub fields: BTreeMap<&'static str, Source>,
    /// Arguments that the owner has fixed.
    pub fixed_arguments: Vec<String>,
    /// Arguments for which the owner has a default.
    pub default_arguments: Vec<String>,
    /// The fields of results that are kept; all if there are none.
    pub result_fields: Vec<String>,
}

/// Why a call reaches no tool of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCalled {
    /// The owner hides it.
    #[error("the tool is hidden in the file of servers")]
    Hidden,
    /// The owner has given it another name.
    #[error("the file of servers calls it {0:?}")]
    Renamed(String),
}

/// A call as the server gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerCall<'a> {
    /// The server's name of the tool.
    pub name: &'a str,
    /// The arguments, with those of the owner.
    pub arguments: Arguments,
    edit: Option<&'a ToolEdit>,
}

impl ToolEdits {
    /// Reads the key `tools` of an entry: a table of edits by tool, or a list of the only tools to
    /// offer. `expand` fills in variables.
    ///
    /// # Errors
    /// What is wrong, with the place.
    pub fn read(
        tools: Option<Value>,
        always_load: Option<bool>,
        expand: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let mut edits = ToolEdits {
            always_load,
            ..ToolEdits::default()
        };
        match tools {
            None | Some(Value::Null) => {}
            Some(Value::Array(names)) => edits.only = only(&names)?,
            Some(Value::Object(table)) => {
                for (name, edit) in table {
                    let mut edit = read_edit(&name, edit)?;
                    for (argument, value) in &mut edit.arguments {
                        expand_all(value, expand).map_err(|reason| {
                            format!("`tools.{name}.arguments.{argument}`: {reason}")
                        })?;
                    }
                    edits.by_tool.insert(name, edit);
                }
            }
            Some(_) => {
                return Err("`tools` must be a table of edits, or a list of names of tools".into());
            }
        }
        edits.check_names()?;
        Ok(edits)
    }

    /// The strings among the arguments of the owner whose names say that they are secret, or that of an
    /// object in which they are the only string.
    pub fn secrets(&self, is_secret: impl Fn(&str) -> bool) -> Vec<&str> {
        let mut secrets = Vec::new();
        for edit in self.by_tool.values() {
            secrets.extend(edit.secrets(&is_secret));
        }
        secrets
    }

    /// Whether the owner wants tools to be always loaded.
    pub fn has_pins(&self) -> bool {
        let mut settings = self.by_tool.values().map(|edit| edit.pin);
        self.always_load == Some(true) || settings.any(|pin| pin == Some(true))
    }

    /// True where the owner changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == ToolEdits::default()
    }

    /// Two tools must not get one name.
    fn check_names(&self) -> Result<(), String> {
        let mut names = BTreeMap::new();
        for (tool, edit) in &self.by_tool {
            let Some(name) = &edit.name else { continue };
            check_name(name).map_err(|reason| format!("`tools.{tool}.name`: {reason}"))?;
            if let Some(other) = names.insert(name, tool) {
                return Err(format!(
                    "`tools.{tool}.name`: {name:?} is also the name for {other:?}; give each its own"
                ));
            }
        }
        Ok(())
    }

    /// What the edits say about tools that the server does not offer.
    pub fn unknown_tools(&self, offered: &[Tool]) -> Vec<String> {
        let names: BTreeSet<&str> = offered.iter().map(|tool| tool.id.name()).collect();
        let of_list = self.only.iter().flatten();
        let mut warnings = Vec::new();
        for name in self.by_tool.keys().chain(of_list) {
            if names.contains(name.as_str()) {
                continue;
            }
            let shown = excerpt(name, SHOWN_CHARS);
            let hint = match did_you_mean(name, names.iter().copied()) {
                Some(similar) => format!("; {similar}"),
                None => String::new(),
            };
            warnings.push(format!(
                "`tools` of the file of servers names {shown:?}, which the server does not offer{hint}"
            ));
        }
        warnings
    }

    /// The tools of the catalog, from those that the server sends.
    pub fn apply(&self, tools: Vec<Tool>) -> EditedTools {
        let mut edited = EditedTools::default();
        let (mut asked, mut asked_bytes) = (0, 0);
        let renamed = self.new_names(&tools);
        for tool in tools {
            // The edits are of tools alone.
            if !tool.kind.is_tool() {
                edited.tools.push(tool);
                continue;
            }
            let name = tool.id.name();
            if self.hides(name) {
                continue;
            }
            let edit = self.by_tool.get(name);
            if edit.and_then(|edit| edit.name.as_deref()).is_none() && renamed.contains(name) {
                edited.warnings.push(format!(
                    "{} is left out, because the file of servers gives its name to another tool; rename it too",
                    tool.id
                ));
                continue;
            }
            let wishes = asks_to_be_loaded(&tool) && tool.flags().is_empty();
            let setting = edit.and_then(|edit| edit.pin).or(self.always_load);
            let is_loaded = match setting {
                Some(setting) => setting,
                None if wishes => {
                    asked += 1;
                    asked_bytes += json!(tool).to_string().len();
                    asked <= MAX_ASKED && asked_bytes <= MAX_ASKED_BYTES
                }
                None => false,
            };
            let tool = match edit {
                Some(edit) => {
                    edited.warnings.extend(unknown_arguments(edit, &tool));
                    applied(edit, tool)
                }
                None => tool,
            };
            if is_loaded {
                edited.always_loaded.push(tool.id.clone());
            }
            edited.tools.push(tool);
        }
        edited
    }

    /// The names that the owner gives to tools that are there.
    fn new_names(&self, tools: &[Tool]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for tool in tools {
            if let Some(edit) = self.by_tool.get(tool.id.name())
                && let Some(name) = &edit.name
                && !edit.hide
            {
                names.insert(name.clone());
            }
        }
        names
    }

    /// What the server is to get for a call of a tool of the catalog.
    ///
    /// # Errors
    /// [`NotCalled`] for a tool that the catalog does not have under this name.
    pub fn call<'a>(
        &'a self,
        name: &'a str,
        mut arguments: Arguments,
    ) -> Result<ServerCall<'a>, NotCalled> {
        let name = self.name_at_server(name)?;
        if self.hides(name) {
            return Err(NotCalled::Hidden);
        }
        let edit = self.by_tool.get(name);
        if let Some(edit) = edit {
            edit.fill(&mut arguments);
        }
        Ok(ServerCall {
            name,
            arguments,
            edit,
        })
    }

    /// The id at the server of a tool that the catalog has under this id.
    pub fn id_at_server(&self, id: &ToolId) -> ToolId {
        match self.name_at_server(id.name()) {
            Ok(name) if name != id.name() => {
                ToolId::new(id.server(), name).unwrap_or_else(|_| id.clone())
            }
            _ => id.clone(),
        }
    }

    /// The part of the results of a tool of the catalog that the owner wants; `None` for all of it.
    pub fn view_of(&self, name: &str) -> Option<ResultView> {
        let name = self.name_at_server(name).ok()?;
        ResultView::of_edit(self.by_tool.get(name)?)
    }

    fn name_at_server<'a>(&'a self, name: &'a str) -> Result<&'a str, NotCalled> {
        for (tool, edit) in &self.by_tool {
            if edit.name.as_deref() == Some(name) && !edit.hide {
                return Ok(tool);
            }
        }
        match self.by_tool.get(name).and_then(|edit| edit.name.clone()) {
            Some(new) => Err(NotCalled::Renamed(new)),
            None => Ok(name),
        }
    }

    fn hides(&self, name: &str) -> bool {
        let is_listed = match &self.only {
            Some(only) => only.contains(name),
            None => true,
        };
        !is_listed || self.by_tool.get(name).is_some_and(|edit| edit.hide)
    }
}

impl ServerCall<'_> {
    /// The part of the result that the owner wants; `None` for all of it.
    pub fn view(&self) -> Option<ResultView> {
        ResultView::of_edit(self.edit?)
    }
}

/// The part of the results of a tool that the owner wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultView(Vec<String>);

impl ResultView {
    /// The part with these fields, as paths with dots.
    pub fn of_fields(fields: Vec<String>) -> Self {
        ResultView(fields)
    }

    fn of_edit(edit: &ToolEdit) -> Option<Self> {
        (!edit.fields.is_empty()).then(|| ResultView(edit.fields.clone()))
    }

    /// This part of a result. Reads JSON of any length, so off the async threads.
    pub fn of(&self, result: CallToolResult) -> CallToolResult {
        view::of(result, &self.0)
    }
}

/// The tool of the catalog, which holds what it replaces.
fn applied(edit: &ToolEdit, offered: Tool) -> Tool {
    let mut replaced = Map::new();
    let mut tool = offered.clone();
    if let Some(name) = &edit.name
        && let Ok(id) = ToolId::new(offered.id.server(), name)
        && id != offered.id
    {
        replaced.insert("name".into(), offered.id.name().into());
        tool.id = id;
    }
    if let Some(title) = &edit.title {
        replaced.insert("title".into(), json!(offered.title));
        tool.title = Some(title.clone());
    }
    if let Some(description) = &edit.description {
        replaced.insert("description".into(), offered.description.into());
        tool.description.clone_from(description);
    }
    let changed = schema::edited(&offered.input_schema, &edit.arguments, &edit.defaults);
    if let Some(changed) = changed {
        replaced.insert("input_schema".into(), offered.input_schema.into());
        tool.input_schema = changed;
    }
    // Clients check results by it, and a view may leave out what it requires.
    if !edit.fields.is_empty() && offered.output_schema.is_some() {
        replaced.insert("output_schema".into(), json!(offered.output_schema));
        tool.output_schema = None;
    }
    // The values may be secrets, and the catalog does not need them.
    let mut edit = edit.clone();
    for value in edit.arguments.values_mut() {
        *value = Value::Null;
    }
    tool.metadata
        .insert(OWNER.into(), json!({ "edit": edit, "replaced": replaced }));
    tool
}

/// The definition as its server sent it.
pub fn as_offered(tool: &Arc<Tool>) -> Arc<Tool> {
    let Some(owner) = tool.metadata.get(OWNER) else {
        return Arc::clone(tool);
    };
    let mut offered = Tool::clone(tool);
    offered.metadata.shift_remove(OWNER);
    let replaced = |field: &str| owner.get("replaced").and_then(|fields| fields.get(field));
    if let Some(name) = replaced("name").and_then(Value::as_str)
        && let Ok(id) = ToolId::new(tool.id.server(), name)
    {
        offered.id = id;
    }
    if let Some(title) = replaced("title") {
        offered.title = title.as_str().map(str::to_owned);
    }
    if let Some(description) = replaced("description").and_then(Value::as_str) {
        description.clone_into(&mut offered.description);
    }
    if let Some(Value::Object(schema)) = replaced("input_schema") {
        offered.input_schema.clone_from(schema);
    }
    if let Some(schema) = replaced("output_schema") {
        offered.output_schema = schema.as_object().cloned();
    }
    Arc::new(offered)
}

/// The tool of a catalog that its server offers under this id.
pub fn in_catalog(searcher: &Searcher, offered: &ToolId) -> Option<Arc<Tool>> {
    if let Some(tool) = searcher.tool(offered)
        && as_offered(&tool).id == *offered
    {
        return Some(tool);
    }
    // Only a renamed tool has another id in the catalog.
    let prefix = format!("{}/", offered.server());
    let ids = searcher.ids_after(Some(&prefix));
    let mut tools = ids
        .take_while(|id| id.as_str().starts_with(&prefix))
        .filter_map(|id| searcher.tool(id));
    tools.find(|tool| as_offered(tool).id == *offered)
}

/// A newer definition of a server's tool, with the edits of the one in the catalog.
pub fn edited_like(offered: &Tool, in_catalog: Option<&Arc<Tool>>) -> Tool {
    let edit = in_catalog.and_then(|tool| tool.metadata.get(OWNER)?.get("edit"));
    match edit.and_then(|edit| ToolEdit::deserialize(edit).ok()) {
        Some(edit) => applied(&edit, offered.clone()),
        None => offered.clone(),
    }
}

/// Removes what only this program may write: a server could claim another definition as approved, or
/// pass off an entry of its list of tools as a skill, whose text nobody inspects.
pub fn drop_claims(entry: &mut Value) {
    let Some(fields) = entry.as_object_mut() else {
        return;
    };
    fields.shift_remove(OWNER);
    fields.shift_remove("kind");
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
        metadata.shift_remove(OWNER);
    }
}

/// Where the fields of a tool come from; `None` for one that the owner has not edited.
pub fn origins(tool: &Tool) -> Option<Origins> {
    let owner = tool.metadata.get(OWNER)?;
    let edit = ToolEdit::deserialize(owner.get("edit")?).ok()?;
    let replaced = owner.get("replaced")?.as_object()?;
    let mut fields = BTreeMap::new();
    for field in [
        "name",
        "title",
        "description",
        "input_schema",
        "output_schema",
    ] {
        let source = match replaced.contains_key(field) {
            true => Source::Owner,
            false => Source::Server,
        };
        fields.insert(field, source);
    }
    if edit.pin.is_some() {
        fields.insert("pin", Source::Owner);
    }
    let text = |field: &str| Some(replaced.get(field)?.as_str()?.to_owned());
    Some(Origins {
        server_name: text("name").unwrap_or_else(|| tool.id.name().to_owned()),
        server_description: text("description"),
        fields,
        fixed_arguments: edit.arguments.keys().cloned().collect(),
        default_arguments: edit.defaults.keys().cloned().collect(),
        result_fields: edit.fields,
    })
}

/// The tools of a list; `None` if it names all by `*`.
fn only(names: &[Value]) -> Result<Option<BTreeSet<String>>, String> {
    let mut only = BTreeSet::new();
    for name in names {
        match name.as_str() {
            Some("*") => return Ok(None),
            Some(name) => only.insert(name.to_owned()),
            None => return Err(format!("`tools`: {name} is no name of a tool")),
        };
    }
    Ok(Some(only))
}

fn read_edit(name: &str, edit: Value) -> Result<ToolEdit, String> {
    let edit: ToolEdit = match serde_path_to_error::deserialize(edit) {
        Ok(edit) => edit,
        Err(error) => {
            let path = match error.path().to_string().as_str() {
                "." => String::new(),
                field => format!(".{field}"),
            };
            return Err(format!("`tools.{name}{path}`: {}", error.inner()));
        }
    };
    edit.check(&format!("tools.{name}"))?;
    Ok(edit)
}

fn check_name(name: &str) -> Result<(), String> {
    let is_bad = |c: char| is_hidden(c) || c.is_whitespace();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.contains(is_bad) {
        return Err(format!(
            "{:?} is no name of a tool; write 1 to {MAX_NAME_CHARS} visible characters without spaces",
            excerpt(name, SHOWN_CHARS)
        ));
    }
    Ok(())
}

fn expand_all(
    value: &mut Value,
    expand: &dyn Fn(&str) -> Result<String, String>,
) -> Result<(), String> {
    match value {
        Value::String(text) => *text = expand(text)?,
        Value::Array(items) => {
            for item in items {
                expand_all(item, expand)?;
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                expand_all(field, expand)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether the server asks clients to load this tool at once.
fn asks_to_be_loaded(tool: &Tool) -> bool {
    let meta = tool.metadata.get("_meta");
    meta.and_then(|meta| meta.get(ALWAYS_LOAD)) == Some(&Value::Bool(true))
}

fn unknown_arguments(edit: &ToolEdit, tool: &Tool) -> Vec<String> {
    let known = schema::properties(&tool.input_schema);
    let mut warnings = Vec::new();
    for argument in edit.arguments.keys().chain(edit.defaults.keys()) {
        if known.contains(argument.as_str()) {
            continue;
        }
        let hint = match did_you_mean(argument, known.iter().copied()) {
            Some(similar) => format!("; {similar}"),
            None => String::new(),
        };
        warnings.push(format!(
            "the file of servers sets the argument {:?} of {}, which its schema does not have{hint}",
            excerpt(argument, SHOWN_CHARS),
            tool.id
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tools: Value) -> Result<ToolEdits, String> {
        ToolEdits::read(Some(tools), None, &|text| {
            Ok(text.replace("${KEY}", "s3cret"))
        })
    }

    fn issue() -> Tool {
        let mut tool = Tool::new("github", "create_issue")
            .unwrap()
            .with_description("Creates an issue.");
        let schema = json!({
            "type": "object", "required": ["owner", "title"],
            "properties": { "owner": { "type": "string" }, "title": { "type": "string" } },
        });
        tool.input_schema = schema.as_object().unwrap().clone();
        tool.output_schema = json!({ "type": "object", "required": ["id"] })
            .as_object()
            .cloned();
        tool
    }

    fn all_of_it() -> ToolEdits {
        read(json!({ "create_issue": {
            "name": "report_bug", "title": "Report", "description": "Reports a bug.", "pin": true,
            "arguments": { "owner": "acme-${KEY}" }, "defaults": { "title": "Bug" }, "fields": ["number", "user.login"],
        } }))
        .unwrap()
    }

    #[test]
    fn an_edited_tool_has_the_owners_fields_and_keeps_the_servers() {
        let edited = all_of_it().apply(vec![issue()]);
        let tool = &edited.tools[0];
        assert_eq!(tool.id.as_str(), "github/report_bug");
        assert_eq!(tool.description, "Reports a bug.");
        assert_eq!(
            Value::Object(tool.input_schema.clone()),
            json!({
                "type": "object", "required": [],
                "properties": { "title": { "type": "string", "default": "Bug" } },
            })
        );
        assert_eq!(tool.output_schema, None);
        assert_eq!(edited.always_loaded, std::slice::from_ref(&tool.id));
        assert_eq!(edited.warnings, Vec::<String>::new());
        assert!(!format!("{tool:?}").contains("s3cret"));
        let tool = Arc::new(tool.clone());
        assert_eq!(*as_offered(&tool), issue());
        let from = origins(&tool).unwrap();
        assert_eq!(from.server_name, "create_issue");
        assert_eq!(from.fields["description"], Source::Owner);
        let newer = issue().with_description("Creates issues.");
        let again = edited_like(&newer, Some(&tool));
        assert_eq!(again.description, "Reports a bug.");
        assert_eq!(again.input_schema, tool.input_schema);
        assert_eq!(*as_offered(&Arc::new(again)), newer);
    }

    #[test]
    fn a_call_gets_the_servers_name_and_the_owners_arguments() {
        let edits = all_of_it();
        let given = json!({ "owner": "evil", "body": "x" });
        let call = edits
            .call("report_bug", given.as_object().unwrap().clone())
            .unwrap();
        assert_eq!(call.name, "create_issue");
        assert_eq!(
            Value::Object(call.arguments.clone()),
            json!({ "owner": "acme-s3cret", "body": "x", "title": "Bug" })
        );
        assert!(call.view().is_some());
        let old = edits.call("create_issue", Arguments::new()).unwrap_err();
        assert_eq!(old, NotCalled::Renamed("report_bug".into()));
        let other = edits.call("get_issue", Arguments::new()).unwrap();
        assert_eq!((other.name, other.view()), ("get_issue", None));
    }

    #[test]
    fn secrets_of_the_owner_are_found_at_any_depth() {
        let edits = read(json!({ "create_issue": {
            "arguments": { "auth": { "api_key": "one", "user": "ada" }, "credentials": ["two", { "id": "three" }] },
            "defaults": {
                "token": { "type": "account", "project": "acme", "scopes": ["read"], "api_key": "four" },
                "state": "open",
            },
        } }))
        .unwrap();
        let names = ["api_key", "credentials", "token"];
        let mut secrets = edits.secrets(|name| names.contains(&name));
        secrets.sort_unstable();
        assert_eq!(secrets, ["four", "one", "three", "two"]);
    }

    #[test]
    fn hidden_tools_and_those_that_a_list_leaves_out_are_neither_found_nor_called() {
        for (tools, kept) in [
            (json!({ "create_issue": { "hide": true } }), 0),
            (json!(["get_issue"]), 0),
            (json!(["create_issue"]), 1),
            (json!(["*"]), 1),
            (json!({}), 1),
        ] {
            let edits = read(tools.clone()).unwrap();
            assert_eq!(edits.apply(vec![issue()]).tools.len(), kept, "{tools}");
            let called = edits.call("create_issue", Arguments::new());
            assert_eq!(called.is_ok(), kept == 1, "{tools}");
        }
    }

    #[test]
    fn a_new_name_wins_over_the_tool_that_has_it() {
        let edits = read(json!({ "create_issue": { "name": "report" } })).unwrap();
        let other = Tool::new("github", "report").unwrap();
        let edited = edits.apply(vec![other, issue()]);
        assert_eq!(edited.tools.len(), 1);
        assert_eq!(edited.tools[0].description, "Creates an issue.");
        assert!(edited.warnings[0].contains("github/report is left out"));
    }

    #[test]
    fn the_owner_decides_what_is_always_loaded_and_a_server_may_ask() {
        let mut asks = issue();
        asks.metadata
            .insert("_meta".into(), json!({ ALWAYS_LOAD: true }));
        let loaded = |tools: Value, all: Option<bool>, tool: &Tool| {
            let edits = ToolEdits::read(Some(tools), all, &|text| Ok(text.to_owned())).unwrap();
            edits.apply(vec![tool.clone()]).always_loaded.len() == 1
        };
        assert!(loaded(json!({}), None, &asks));
        assert!(!loaded(json!({}), None, &issue()));
        assert!(!loaded(json!({}), Some(false), &asks));
        assert!(loaded(json!({}), Some(true), &issue()));
        let off = json!({ "create_issue": { "alwaysLoad": false } });
        assert!(!loaded(off, Some(true), &asks));
        let flagged = asks.clone().with_flags(["odd".to_owned()]);
        assert!(!loaded(json!({}), None, &flagged));
        let many: Vec<Tool> = (0..40)
            .map(|number| Tool {
                id: ToolId::new("s", &format!("t{number}")).unwrap(),
                ..asks.clone()
            })
            .collect();
        let edited = ToolEdits::default().apply(many);
        assert_eq!(edited.always_loaded.len(), MAX_ASKED);
        let long = asks.with_description("x".repeat(MAX_ASKED_BYTES));
        assert!(!loaded(json!({}), None, &long));
    }

    #[test]
    fn what_the_tools_do_not_have_is_named_with_what_is_like_it() {
        let edits =
            read(json!({ "create_isue": {}, "create_issue": { "arguments": { "ownr": 1 } } }))
                .unwrap();
        let unknown = edits.unknown_tools(&[issue()]);
        assert_eq!(unknown.len(), 1);
        assert!(
            unknown[0].contains("\"create_isue\"")
                && unknown[0].contains("did you mean \"create_issue\""),
            "{unknown:?}"
        );
        let warnings = edits.apply(vec![issue()]).warnings;
        assert!(
            warnings[0].contains("\"ownr\" of github/create_issue"),
            "{warnings:?}"
        );
    }

    #[test]
    fn wrong_edits_are_named_with_their_place() {
        for (tools, expected) in [
            (json!(7), "`tools` must be a table"),
            (json!([7]), "7 is no name"),
            (
                json!({ "a": { "nam": "b" } }),
                "`tools.a.nam`: unknown field `nam`",
            ),
            (
                json!({ "a": { "hide": "yes" } }),
                "`tools.a.hide`: invalid type",
            ),
            (
                json!({ "a": { "name": "b c" } }),
                "`tools.a.name`: \"b c\" is no name",
            ),
            (
                json!({ "a": { "name": "c" }, "b": { "name": "c" } }),
                "also the name for \"a\"",
            ),
            (
                json!({ "a": { "arguments": { "x": 1 }, "defaults": { "x": 2 } } }),
                "\"x\" is in `arguments` and in `defaults`",
            ),
            (
                json!({ "a": { "fields": ["b..c"] } }),
                "\"b..c\" is no path",
            ),
        ] {
            let message = read(tools).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_server_cannot_claim_an_edit_or_another_kind() {
        let mut entry = json!({ "name": "a", "kind": "skill", OWNER: { "replaced": {} }, "metadata": { OWNER: 1, "kept": 2 } });
        drop_claims(&mut entry);
        assert_eq!(entry, json!({ "name": "a", "metadata": { "kept": 2 } }));
    }
}
