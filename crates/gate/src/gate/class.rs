//! How much harm a tool can do.

use std::fmt;

use serde::{Deserialize, Serialize};
use toolscout_index::Tool;
use utoipa::ToSchema;

/// How much harm a call may do, least first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Changes nothing.
    ReadOnly,
    /// Changes something. The class of tools that declare nothing.
    StateChanging,
    /// May destroy something.
    Destructive,
}

impl Class {
    /// The class as written in settings and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Class::ReadOnly => "read_only",
            Class::StateChanging => "state_changing",
            Class::Destructive => "destructive",
        }
    }

    /// The class that a tool declares: by its MCP hints, else by its HTTP method. Where hints
    /// contradict each other, the more dangerous class counts.
    pub fn declared(tool: &Tool) -> Self {
        let hints = tool.annotations;
        match (hints.destructive_hint, hints.read_only_hint) {
            (Some(true), _) => Class::Destructive,
            // A DELETE is destructive even if the hint declares it read-only.
            (_, Some(true)) => Class::by_method(tool)
                .unwrap_or(Class::ReadOnly)
                .max(Class::ReadOnly),
            (_, Some(false)) => Class::StateChanging,
            _ => Class::by_method(tool).unwrap_or(Class::StateChanging),
        }
    }

    /// The class of an OpenAPI operation.
    fn by_method(tool: &Tool) -> Option<Self> {
        let method = tool.metadata.get("openapi")?.get("method")?.as_str()?;
        Some(match method.to_ascii_uppercase().as_str() {
            // The safe methods of HTTP (RFC 9110).
            "GET" | "HEAD" | "OPTIONS" => Class::ReadOnly,
            "DELETE" => Class::Destructive,
            _ => Class::StateChanging,
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(read_only: Option<bool>, destructive: Option<bool>, method: Option<&str>) -> Tool {
        let mut tool = Tool::new("s", "t").unwrap();
        tool.annotations.read_only_hint = read_only;
        tool.annotations.destructive_hint = destructive;
        if let Some(method) = method {
            tool.metadata
                .insert("openapi".into(), json!({ "method": method }));
        }
        tool
    }

    #[test]
    fn hints_and_methods_give_the_class_and_the_more_dangerous_one_counts() {
        let (yes, no) = (Some(true), Some(false));
        for (read_only, destructive, method, expected) in [
            (None, None, None, Class::StateChanging),
            (yes, None, None, Class::ReadOnly),
            (yes, no, None, Class::ReadOnly),
            (no, None, None, Class::StateChanging),
            (no, no, None, Class::StateChanging),
            (yes, yes, None, Class::Destructive),
            (None, yes, None, Class::Destructive),
            (None, None, Some("get"), Class::ReadOnly),
            (None, None, Some("POST"), Class::StateChanging),
            (None, None, Some("Delete"), Class::Destructive),
            (yes, None, Some("DELETE"), Class::Destructive),
            (None, None, Some("BREW"), Class::StateChanging),
        ] {
            assert_eq!(
                Class::declared(&tool(read_only, destructive, method)),
                expected,
                "{method:?}"
            );
        }
    }
}
