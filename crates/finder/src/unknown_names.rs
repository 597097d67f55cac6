//! What rules for calls and pins name and a catalog does not have.

use toolscout_gate::gate::Policies;
use toolscout_gate::tools::builtin;

use crate::finder::ToolSearch;
use crate::finder::search::SearchRequest;

/// Similar names that are given of one pin.
const MAX_SIMILAR: usize = 3;

/// A line for each rule and pin that fits no tool, with the next step. A mistyped `--deny` would protect
/// nothing. Blocks.
pub fn unknown_names(search: &dyn ToolSearch, policies: &Policies, pins: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    // A catalog that is kept in a store cannot be gone through for this.
    if search.lists_tools() {
        let tools = search.tools();
        let ids = tools.iter().map(|tool| tool.id.as_str());
        lines = policies.unfitting_rules(ids.chain(builtin::NAMES));
    }
    for pin in pins {
        lines.extend(unknown_pin(search, pin));
    }
    lines
}

fn unknown_pin(search: &dyn ToolSearch, pin: &str) -> Option<String> {
    let request = SearchRequest {
        select: vec![pin.to_owned()],
        ..SearchRequest::default()
    };
    let no_match = search.search(&request).no_match?;
    let similar = no_match.nearest.iter().take(MAX_SIMILAR);
    let similar: Vec<String> = similar.map(ToString::to_string).collect();
    let similar = match similar.is_empty() {
        true => String::new(),
        false => format!(", such as {}", similar.join(", ")),
    };
    let reason = no_match.reason;
    Some(format!(
        "pin {pin:?}: {reason}; pin another one{similar}, or add the tool"
    ))
}

#[cfg(test)]
mod tests {
    use toolscout_gate::gate::{Decision, Pattern, Rule};

    use super::*;
    use crate::finder::search::doubles::ListedTools;

    #[test]
    fn rules_and_pins_that_fit_no_tool_are_named() {
        let rule = |pattern: &str, decision| Rule::of_tools(Pattern::new(pattern), decision);
        let policies = Policies {
            rules: vec![
                rule("mail/sned", Decision::Deny),
                rule("*SEND", Decision::Ask),
                rule("shell", Decision::Deny),
                rule("Mail/*", Decision::Allow),
            ],
            ..Policies::default()
        };
        let search = ListedTools::of(&[("mail/send", "Sends mail")]);
        let lines = unknown_names(&search, &policies, &["mail/send".into()]);
        assert_eq!(
            lines,
            [
                "a rule of [gate] for \"mail/sned\" fits no tool of the catalog; correct it, or add the tools",
                "a rule of [gate] for \"Mail/*\" fits no tool of the catalog; correct it, or add the tools",
            ]
        );
    }
}
