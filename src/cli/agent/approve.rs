//! Approval of calls by the user at the terminal.
//!
//! A call is approved with a code that is generated for its question. A line typed earlier, a text
//! that imitates a question, or a habitual yes cannot approve it.

use std::collections::VecDeque;

use serde_json::Value;

use crate::agent::Event;
use crate::gate::{Answer, ApprovalRequest, Change};
use crate::printable::{self, counted};

/// Most bytes of a call's arguments that are printed; the prompt names the number of the others.
const MAX_SHOWN_BYTES: usize = 8 << 10;
/// The word after a code that approves all calls of the tool.
const ALWAYS: &str = "always";
/// Letters and digits of a code. Characters that look alike are left out; their number divides 256,
/// so that every character is equally likely.
const CODE_LETTERS: &[u8; 16] = b"34679acdefhkmnrx";
/// Characters of a code: 65,536 codes, and each question accepts one attempt.
const CODE_LENGTH: usize = 4;

/// A person's answer to a question.
#[derive(Debug)]
pub struct Answered {
    /// The question.
    pub id: String,
    /// The answer.
    pub answer: Answer,
    /// The tool whose further calls are approved too.
    pub always: Option<String>,
}

/// The open questions, first in first out.
#[derive(Debug, Default)]
pub struct Questions {
    open: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    id: String,
    call: String,
    tool: String,
    prompt: String,
    /// `None` where the system provides no random bytes: the call then cannot be approved.
    code: Option<String>,
}

impl Questions {
    /// Updates the questions from an event. Returns true when the first question is a new one and
    /// must be printed with [`Questions::prompt`].
    pub fn update(&mut self, event: &Event) -> bool {
        match event {
            Event::ApprovalRequired { id, request, .. } => {
                let code = code();
                let prompt = prompt(request, code.as_deref());
                self.open.push_back(Open {
                    id: id.clone(),
                    call: request.call.clone(),
                    tool: request.tool.clone(),
                    prompt,
                    code,
                });
                // Those behind the first are printed when it is answered.
                self.open.len() == 1
            }
            // The question expired, or its run was stopped.
            Event::ToolResult { id, .. } | Event::Gate { id, .. } => {
                let first = self.open.front().is_some_and(|open| open.call == *id);
                self.open.retain(|open| open.call != *id);
                first && !self.open.is_empty()
            }
            _ => false,
        }
    }

    /// The text of the first question; empty when there is none.
    pub fn prompt(&self) -> &str {
        self.open.front().map_or("", |open| &open.prompt)
    }

    /// True while a question is open.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Answers the first question with a line from the user. Only its code approves.
    pub fn answer(&mut self, line: &str, by: &str) -> Option<Answered> {
        let Open { id, tool, code, .. } = self.open.pop_front()?;
        let by = by.to_owned();
        let line = line.trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [word] | [word, ALWAYS] = words[..]
            && let Some(code) = code
            && word.eq_ignore_ascii_case(&code)
        {
            return Some(Answered {
                id,
                answer: Answer::Approved { by },
                always: (words.len() == 2).then_some(tool),
            });
        }
        let reason = match line.to_lowercase().as_str() {
            "" | "n" | "no" => String::new(),
            // A habitual yes approves nothing.
            "y" | "yes" => "the user did not type the code that approves the call".to_owned(),
            _ => line.to_owned(),
        };
        Some(Answered {
            id,
            answer: Answer::Refused { by, reason },
            always: None,
        })
    }
}

/// A random code; `None` where the system provides no random bytes.
fn code() -> Option<String> {
    let mut bytes = [0; CODE_LENGTH];
    getrandom::fill(&mut bytes).ok()?;
    let mut code = String::new();
    for byte in bytes {
        let letter = CODE_LETTERS[usize::from(byte) % CODE_LETTERS.len()];
        code.push(char::from(letter));
    }
    Some(code)
}

/// The call with its final arguments, and the question.
fn prompt(request: &ApprovalRequest, code: Option<&str>) -> String {
    let arguments = serde_json::to_string_pretty(&request.arguments).unwrap_or_default();
    let end = arguments.floor_char_boundary(MAX_SHOWN_BYTES);
    let mut lines = vec![
        format!(
            "[approve] a {} call of {}",
            request.class,
            printable::name(&request.tool)
        ),
        format!("  required by {}", printable::name(&request.rule)),
    ];
    for line in arguments[..end].lines() {
        lines.push(format!("  {}", printable::line(line)));
    }
    if end < arguments.len() {
        lines.push(format!(
            "  … {} not shown: refuse unless you know them",
            counted(arguments.len() - end, "more byte")
        ));
    }
    lines.extend(request.changes.iter().map(describe_change));
    lines.push(match code {
        Some(code) => format!(
            "With `{ALWAYS}` after the code, all calls of this tool are approved.\nType {code} to approve this call; anything else refuses it: "
        ),
        None => "The system provides no random bytes for a code, so this call cannot be approved; press Enter: ".to_owned(),
    });
    lines.join("\n")
}

/// A change of the arguments, in one line.
pub fn describe_change(change: &Change) -> String {
    let Change {
        path,
        from,
        to,
        why,
    } = change;
    let change = match (from, to) {
        (Value::Null, Value::Null) => format!("left out {path}, which was null"),
        (Value::Null, to) => format!("set {path} to {to}"),
        (from, Value::Null) => format!("removed {path}: {from}"),
        (from, to) => format!("changed {path}: {from} to {to}"),
    };
    let why = serde_json::to_value(why).unwrap_or_default();
    printable::line(&format!(
        "  {change} ({})",
        why.as_str().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gate::{ChangeReason, Class};

    fn question(id: &str, call: &str) -> Event {
        asked(id, call, "shop/order")
    }

    fn asked(id: &str, call: &str, tool: &str) -> Event {
        let request = ApprovalRequest {
            call: call.into(),
            tool: tool.into(),
            description: String::new(),
            class: Class::Destructive,
            arguments: json!({ "quantity": 7000, "note": "a\u{202e}b\x1b[2J\u{3164}" }),
            changes: vec![Change {
                path: "/quantity".into(),
                from: "7,000".into(),
                to: 7000.into(),
                why: ChangeReason::Number,
            }],
            rule: "default destructive".into(),
        };
        Event::ApprovalRequired {
            id: id.into(),
            expires_in_ms: 1,
            request: Box::new(request),
        }
    }

    #[test]
    fn the_whole_call_is_printed_without_hidden_characters() {
        let mut questions = Questions::default();
        assert!(questions.update(&question("q", "c")));
        let prompt = questions.prompt();
        assert!(
            prompt.contains("[approve] a destructive call of shop/order\n"),
            "{prompt}"
        );
        assert!(
            prompt.contains("\"quantity\": 7000")
                && prompt.contains("changed /quantity: \"7,000\" to 7000 (number)")
        );
        assert!(
            !prompt.contains(['\x1b', '\u{202e}', '\u{3164}']) && prompt.contains("\\u{202e}"),
            "{prompt}"
        );
    }

    #[test]
    fn a_default_is_set_and_an_unknown_argument_removed() {
        let change = |from: Value, to: Value, why| {
            let path = "/units".into();
            describe_change(&Change {
                path,
                from,
                to,
                why,
            })
        };
        assert_eq!(
            change(Value::Null, json!("metric"), ChangeReason::Default),
            "  set /units to \"metric\" (default)"
        );
        assert_eq!(
            change(json!(1), Value::Null, ChangeReason::Default),
            "  removed /units: 1 (default)"
        );
        assert_eq!(
            change(Value::Null, Value::Null, ChangeReason::Null),
            "  left out /units, which was null (null)"
        );
    }

    #[test]
    fn a_tool_name_cannot_imitate_class_or_arguments() {
        let forged = "read_only call of shop/look\n  required by \"default\"\n  {}\nType aaaa to approve this call: ";
        for name in [
            format!("look\" ({forged}"),
            format!("look{}{forged}", "\u{3164}".repeat(40)),
            format!("look{}{forged}", " \u{2800}\u{a0}\u{115f}".repeat(120)),
            format!("look\r{forged}\x1b[1A"),
            "[approve] a read_only call of look".repeat(16),
        ] {
            let mut questions = Questions::default();
            questions.update(&asked("q", "c", &name));
            let prompt = questions.prompt();
            let first = prompt.lines().next().unwrap();
            assert!(
                first.starts_with("[approve] a destructive call of \"") && first.ends_with('"'),
                "{prompt}"
            );
            assert!(first.chars().count() < 1_000, "{prompt}");
            assert_eq!(
                first.replace("\\\"", "").matches('"').count(),
                2,
                "{prompt}"
            );
            assert_eq!(
                prompt
                    .lines()
                    .filter(|line| line.starts_with("Type "))
                    .count(),
                1,
                "{prompt}"
            );
            assert!(
                !prompt.contains(|c| c != '\n' && printable::is_hidden(c)),
                "{prompt:?}"
            );
        }
    }

    #[test]
    fn only_the_code_of_a_question_approves_its_call() {
        let answered = |line: &dyn Fn(&str) -> String| {
            let mut questions = Questions::default();
            questions.update(&question("q", "c"));
            let code = questions.open[0].code.clone().unwrap();
            assert!(questions.prompt().ends_with(&format!(
                "Type {code} to approve this call; anything else refuses it: "
            )));
            let answered = questions.answer(&line(&code), "ada").unwrap();
            let is_approved = matches!(answered.answer, Answer::Approved { .. });
            assert!(is_approved || answered.always.is_none());
            (is_approved, answered.always)
        };
        let approved = (true, None);
        assert_eq!(
            answered(&|code| format!(" {} ", code.to_uppercase())),
            approved
        );
        let always = (true, Some("shop/order".to_owned()));
        assert_eq!(answered(&|code| format!("{code} always")), always);
        for line in ["", "y", "yes", "n", "always"] {
            assert!(!answered(&|_| line.to_owned()).0, "{line:?}");
        }
        for wrong in ["{}x", "yes {}", "{} always always", "always {}"] {
            assert!(!answered(&|code| wrong.replace("{}", code)).0, "{wrong}");
        }
        let codes: std::collections::BTreeSet<String> = (0..20).filter_map(|_| code()).collect();
        assert!(codes.len() > 15, "{codes:?}");
    }

    #[test]
    fn questions_are_asked_in_order_and_dropped_when_their_call_ends() {
        let mut questions = Questions::default();
        assert!(
            questions.update(&question("q1", "c1")) && !questions.update(&question("q2", "c2"))
        );
        let ended = Event::Gate {
            id: "c1".into(),
            tool: toolscout_index::ToolId::parse("shop/order").unwrap(),
            class: Class::Destructive,
            decision: crate::gate::Decision::Ask,
            rule: String::new(),
            changes: Vec::new(),
            answer: Some(Answer::Expired { after_ms: 1 }),
            warnings: Vec::new(),
        };
        assert!(questions.update(&ended));
        let code = questions.open[0].code.clone().unwrap();
        assert_eq!(questions.answer(&code, "ada").unwrap().id, "q2");
        assert!(!questions.is_waiting());
    }
}
