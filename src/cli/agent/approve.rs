//! Asking the person at the terminal whether a call may be made.

use std::collections::VecDeque;

use crate::agent::Event;
use crate::gate::approval::shown;
use crate::gate::{Answer, ApprovalRequest, Change};

/// Bytes of a call's arguments that are shown; of longer ones it is said that there is more.
const MAX_SHOWN_BYTES: usize = 8 << 10;

/// The questions that wait for the person, first come first.
#[derive(Debug, Default)]
pub struct Questions {
    open: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    id: String,
    call: String,
    prompt: String,
}

impl Questions {
    /// Takes note of an event; true when there is a new first question, to be shown with [`Questions::prompt`].
    pub fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::ApprovalRequired { id, request, .. } => {
                let open = Open { id: id.clone(), call: request.call.clone(), prompt: prompt(request) };
                self.open.push_back(open);
                self.open.len() == 1
            }
            // Its time was up, or its run was stopped.
            Event::ToolResult { id, .. } | Event::Gate { id, .. } => {
                let first = self.open.front().is_some_and(|open| open.call == *id);
                self.open.retain(|open| open.call != *id);
                first && !self.open.is_empty()
            }
            _ => false,
        }
    }

    /// The first question in full; empty when there is none.
    pub fn prompt(&self) -> &str {
        self.open.front().map_or("", |open| &open.prompt)
    }

    /// True while a question waits.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes the person's line as the answer to the first question: its id, and yes only for `y` or `yes`.
    pub fn answer(&mut self, line: &str, by: &str) -> Option<(String, Answer)> {
        let Open { id, .. } = self.open.pop_front()?;
        let by = by.to_owned();
        let answer = match line.trim().to_lowercase().as_str() {
            "y" | "yes" => Answer::Approved { by },
            "" | "n" | "no" => Answer::Refused { by, reason: String::new() },
            _ => Answer::Refused { by, reason: line.trim().to_owned() },
        };
        Some((id, answer))
    }
}

/// The call as it will be made, and the question.
fn prompt(request: &ApprovalRequest) -> String {
    let arguments = serde_json::to_string_pretty(&request.arguments).unwrap_or_default();
    let end = arguments.floor_char_boundary(MAX_SHOWN_BYTES);
    let mut lines = vec![format!("[approve] {} ({}, by {})", request.tool, request.class, request.rule)];
    lines.extend(arguments[..end].lines().map(|line| format!("  {line}")));
    if end < arguments.len() {
        lines.push(format!("  … {} more bytes are not shown: say no unless you know them", arguments.len() - end));
    }
    lines.extend(request.changes.iter().map(changed));
    let lines: Vec<String> = lines.iter().map(|line| shown(line)).collect();
    format!("{}\nMake this call? y to allow it, anything else refuses it: ", lines.join("\n"))
}

/// A change in one line.
pub fn changed(change: &Change) -> String {
    let Change { path, from, to, why } = change;
    let why = serde_json::to_value(why).unwrap_or_default();
    format!("  changed {path}: {from} to {to} ({})", why.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::{Class, Why};

    fn question(id: &str, call: &str) -> Event {
        let request = ApprovalRequest {
            call: call.into(),
            tool: "shop/order".into(),
            description: String::new(),
            class: Class::Destructive,
            arguments: json!({ "quantity": 7000, "note": "a\u{202e}b\x1b[2J" }),
            changes: vec![Change { path: "/quantity".into(), from: "7,000".into(), to: 7000.into(), why: Why::Number }],
            rule: "default destructive".into(),
        };
        Event::ApprovalRequired { id: id.into(), expires_in_ms: 1, request: Box::new(request) }
    }

    #[test]
    fn the_whole_call_is_shown_and_nothing_in_it_can_hide() {
        let mut questions = Questions::default();
        assert!(questions.note(&question("q", "c")));
        let prompt = questions.prompt();
        assert!(prompt.contains("shop/order (destructive, by default destructive)"), "{prompt}");
        assert!(prompt.contains("\"quantity\": 7000") && prompt.contains("/quantity: \"7,000\" to 7000 (number)"));
        assert!(!prompt.contains(['\x1b', '\u{202e}']) && prompt.contains("\\u{202e}"), "{prompt}");
    }

    #[test]
    fn only_a_plain_yes_is_one() {
        for (line, yes) in
            [("y", true), (" YES ", true), ("", false), ("yep", false), ("n", false), ("yes, but not now", false)]
        {
            let mut questions = Questions::default();
            questions.note(&question("q", "c"));
            let (id, answer) = questions.answer(line, "ada").unwrap();
            assert_eq!((id.as_str(), matches!(answer, Answer::Approved { .. })), ("q", yes), "{line:?}");
        }
    }

    #[test]
    fn questions_are_asked_one_by_one_and_forgotten_when_their_call_has_ended() {
        let mut questions = Questions::default();
        assert!(questions.note(&question("q1", "c1")) && !questions.note(&question("q2", "c2")));
        let ended = Event::Gate {
            id: "c1".into(),
            tool: toolscout_index::ToolId::parse("shop/order").unwrap(),
            class: Class::Destructive,
            decision: crate::gate::Decision::Ask,
            rule: String::new(),
            changes: Vec::new(),
            answer: Some(Answer::Expired { after_ms: 1 }),
        };
        assert!(questions.note(&ended));
        assert_eq!(questions.answer("y", "ada").unwrap().0, "q2");
        assert!(!questions.is_waiting());
    }
}
