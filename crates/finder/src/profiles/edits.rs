//! What a profile changes of its tools, in what models read and in calls.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolscout_index::{OwnerTexts, Tool, ToolId};

use super::ToolProfile;
use toolscout_base::tool_edit::{ToolEdit, schema};
use toolscout_gate::tools::Callable;
use toolscout_gate::tools::edited::EditedTool;

impl ToolProfile {
    /// What it changes of this tool, if anything.
    pub fn edit(&self, id: &ToolId) -> Option<Arc<ToolEdit>> {
        let rules = self.rules.read();
        rules.edits.get(id.as_str()).cloned()
    }

    /// Whether it changes what models read of some tool.
    pub fn changes_definitions(&self) -> bool {
        let rules = self.rules.read();
        rules.edits.values().any(|edit| edit.changes_definition())
    }

    /// A tool of the catalog as the clients of the profile get it. Its id and hints stay, by which policies
    /// go.
    pub fn edited(&self, tool: &Arc<Tool>) -> Arc<Tool> {
        // The edits are of tools alone.
        match self.edit(&tool.id) {
            Some(edit) if tool.kind.is_tool() => Arc::new(edited(tool, &edit)),
            _ => Arc::clone(tool),
        }
    }

    /// What calls a tool of the profile, made of what calls that of the catalog.
    pub fn callable(&self, id: &ToolId, inner: Arc<dyn Callable>) -> Arc<dyn Callable> {
        match self.edit(id) {
            Some(edit) => Arc::new(EditedTool::new(inner, edit)),
            None => inner,
        }
    }

    /// The fields of results that it leaves of a tool; `None` for all of them.
    pub fn result_fields(&self, id: &ToolId) -> Option<Vec<String>> {
        let fields = self.edit(id)?.fields.clone();
        (!fields.is_empty()).then_some(fields)
    }

    /// The parts of this tool that come from the profile.
    pub fn edited_fields(&self, tool: &Tool) -> Vec<&'static str> {
        let Some(edit) = self.edit(&tool.id) else {
            return Vec::new();
        };
        let changes = [
            ("description", edit.description.is_some()),
            ("input_schema", new_schema(tool, &edit).is_some()),
            (
                "output_schema",
                !edit.fields.is_empty() && tool.output_schema.is_some(),
            ),
            ("pin", edit.pin.is_some()),
            ("title", edit.title.is_some()),
        ];
        let changed = changes.into_iter().filter(|(_, is_changed)| *is_changed);
        changed.map(|(field, _)| field).collect()
    }
}

fn new_schema(tool: &Tool, edit: &ToolEdit) -> Option<Map<String, Value>> {
    schema::edited(&tool.input_schema, &edit.arguments, &edit.defaults)
}

fn edited(tool: &Tool, edit: &ToolEdit) -> Tool {
    let mut edited = tool.clone();
    if let Some(title) = &edit.title {
        edited.title = Some(title.clone());
    }
    if let Some(description) = &edit.description {
        // As an owner's description, so that the definition stays the one that policies and approvals know.
        let aliases = tool.owner_texts.aliases().to_vec();
        edited.owner_texts = OwnerTexts::new(Some(description.clone()), aliases);
    }
    if let Some(schema) = new_schema(tool, edit) {
        edited.input_schema = schema;
    }
    // Clients check results by it, and the fields that are kept may lack what it requires.
    if !edit.fields.is_empty() {
        edited.output_schema = None;
    }
    edited
}
