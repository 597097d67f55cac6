//! What an item of a catalog is: a tool, or something else that a search can find.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the JSON of an item begins that is no tool: `kind` is the first field, and tools do not have it.
const JSON_START: &str = "{\"kind\":\"";

/// What an item of a catalog is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = ItemKind))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something that is called.
    #[default]
    Tool,
    /// A prompt of an MCP server.
    Prompt,
    /// A resource of an MCP server, or a template of resources.
    Resource,
    /// A folder with instructions in `SKILL.md`.
    Skill,
    /// Another agent, by its A2A card.
    Agent,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [
        Kind::Tool,
        Kind::Prompt,
        Kind::Resource,
        Kind::Skill,
        Kind::Agent,
    ];

    /// Its name in JSON and for [`FromStr`].
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Tool => "tool",
            Kind::Prompt => "prompt",
            Kind::Resource => "resource",
            Kind::Skill => "skill",
            Kind::Agent => "agent",
        }
    }

    /// True for a tool.
    pub fn is_tool(&self) -> bool {
        *self == Kind::Tool
    }

    /// The name that an item of this kind has within its server: for a tool this one, for all others with
    /// the kind and a colon before it, so that a prompt `review` is another item than a tool `review`.
    pub fn item_name(self, name: &str) -> String {
        match self {
            Kind::Tool => name.to_owned(),
            _ => format!("{self}:{name}"),
        }
    }

    /// The part of an item's name that its source gave it: without what [`Kind::item_name`] puts before it.
    pub fn bare_name(self, item_name: &str) -> &str {
        if self.is_tool() {
            return item_name;
        }
        let rest = item_name.strip_prefix(self.as_str());
        rest.and_then(|rest| rest.strip_prefix(':'))
            .unwrap_or(item_name)
    }

    /// The kind of an item, read from the beginning of its stored JSON.
    pub(crate) fn of_json(json: &str) -> Self {
        let Some(rest) = json.strip_prefix(JSON_START) else {
            return Kind::Tool;
        };
        let name = rest.split('"').next().unwrap_or_default();
        name.parse().unwrap_or_default()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Kind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = Kind::ALL.into_iter().find(|kind| kind.as_str() == text);
        named.ok_or_else(|| Error::UnknownName {
            kind: "kind",
            name: text.to_owned(),
            known: "tool, prompt, resource, skill or agent".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    #[test]
    fn the_kind_is_read_from_the_beginning_of_the_json() {
        for kind in Kind::ALL {
            let item = Tool::new("a", &kind.item_name("b")).unwrap().of_kind(kind);
            let json = serde_json::to_string(&item).unwrap();
            assert_eq!(Kind::of_json(&json), kind, "{json}");
            assert_eq!(json.contains("kind"), !kind.is_tool(), "{json}");
            let read: Tool = serde_json::from_str(&json).unwrap();
            assert_eq!(read, item);
            assert_eq!(kind.to_string().parse::<Kind>().unwrap(), kind);
        }
        let error = "skills".parse::<Kind>().unwrap_err().to_string();
        assert!(
            error.contains("skills") && error.contains("skill or agent"),
            "{error}"
        );
    }

    #[test]
    fn a_name_has_its_kind_before_it_unless_it_is_a_tool() {
        assert_eq!(Kind::Tool.item_name("prompt:a"), "prompt:a");
        assert_eq!(Kind::Tool.bare_name("prompt:a"), "prompt:a");
        assert_eq!(Kind::Prompt.item_name("a"), "prompt:a");
        assert_eq!(Kind::Prompt.bare_name("prompt:a"), "a");
        assert_eq!(Kind::Prompt.bare_name("a"), "a");
    }
}
