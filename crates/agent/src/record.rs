//! What is kept of a turn's events, so that they can be looked at later: bounded in bytes, without
//! secrets, and without the whole results of tools.

use serde_json::{Map, Value};

use super::event::Event;
use toolscout_base::printable::excerpt;
use toolscout_gate::gate::Answer;
use toolscout_gate::gate::redact::Redaction;
use toolscout_gate::plan::PlannedStep;
use toolscout_state::session::TurnEvents;

/// Most bytes of JSON that a turn keeps of its steps.
const MAX_STEP_BYTES: usize = 48 << 10;
/// Most bytes that a turn keeps of its texts and thinking.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Most bytes of one value in JSON; of a longer one, only the beginning of its JSON is kept.
const MAX_VALUE_BYTES: usize = 6 << 10;
/// Characters kept of a result.
const RESULT_CHARS: usize = 500;
/// Characters kept of any other text.
const TEXT_CHARS: usize = 1_000;
/// Tools, queries or steps of one event that are kept.
const MAX_ITEMS: usize = 100;

/// The events of a turn, as far as they are kept.
#[derive(Debug, Default)]
pub struct Record {
    events: Vec<Value>,
    step_bytes: usize,
    text_bytes: usize,
    truncated: bool,
}

impl Record {
    /// Adds an event. Those of which the turn keeps a form of its own, such as references, and
    /// questions to a person, which the decision repeats, are left out.
    pub fn push(&mut self, event: &Event, redaction: &Redaction) {
        match event {
            Event::Text { content } | Event::Thinking { content } => {
                self.push_text(event.name(), content);
            }
            other => {
                if let Some(kept) = kept(other, redaction) {
                    self.push_step(&kept);
                }
            }
        }
    }

    /// The events so far.
    pub fn so_far(&self) -> TurnEvents {
        TurnEvents {
            events: self.events.clone(),
            truncated: self.truncated,
        }
    }

    /// Takes out the text at the end that is the answer, which the turn keeps anyway.
    pub fn drop_answer(&mut self, answer: &str) {
        if let Some(last) = self.events.last_mut()
            && last["type"] == "text"
            && let Some(text) = last["content"].as_str()
            && let Some(before) = text.strip_suffix(answer)
        {
            let before = before.to_owned();
            if before.is_empty() {
                self.events.pop();
            } else {
                last["content"] = before.into();
            }
        }
    }

    /// Adds a part of a text; parts that follow each other become one.
    fn push_text(&mut self, kind: &str, content: &str) {
        let room = MAX_TEXT_BYTES - self.text_bytes;
        let end = content.floor_char_boundary(room.min(content.len()));
        self.truncated |= end < content.len();
        if end == 0 {
            return;
        }
        self.text_bytes += end;
        if let Some(Value::Object(last)) = self.events.last_mut()
            && last.get("type").is_some_and(|known| known == kind)
            && let Some(Value::String(text)) = last.get_mut("content")
        {
            text.push_str(&content[..end]);
            return;
        }
        self.events
            .push(serde_json::json!({ "type": kind, "content": &content[..end] }));
    }

    fn push_step(&mut self, event: &Event) {
        let value = serde_json::to_value(event).unwrap_or_default();
        let bytes = value.to_string().len();
        // Left out whole; a shorter step may still fit after it.
        if self.step_bytes + bytes > MAX_STEP_BYTES {
            self.truncated = true;
            return;
        }
        self.step_bytes += bytes;
        self.events.push(value);
    }
}

/// The form of an event that is kept; `None` for one that is not kept.
fn kept(event: &Event, redaction: &Redaction) -> Option<Event> {
    let mut kept = event.clone();
    match &mut kept {
        Event::ToolSearch {
            queries,
            select,
            hits,
            no_match,
            ..
        } => {
            hits.truncate(MAX_ITEMS);
            for text in queries.iter_mut().chain(select).chain(no_match) {
                shorten(text);
            }
        }
        Event::ToolsInjected {
            tools,
            tokens_by_tool,
            ..
        } => {
            tools.truncate(MAX_ITEMS);
            tokens_by_tool.truncate(MAX_ITEMS);
        }
        Event::ToolsEvicted { tools, .. } => tools.truncate(MAX_ITEMS),
        Event::ToolCall {
            name, arguments, ..
        } => {
            shorten(name);
            *arguments = redacted(arguments, redaction);
        }
        Event::Gate {
            changes,
            answer,
            warnings,
            ..
        } => {
            warnings.truncate(MAX_ITEMS);
            warnings.iter_mut().for_each(shorten);
            if let Some(Answer::Refused { reason, .. }) = answer {
                shorten(reason);
            }
            changes.truncate(MAX_ITEMS);
            *changes = redaction.changes(changes);
            for change in changes {
                change.from = bounded(std::mem::take(&mut change.from));
                change.to = bounded(std::mem::take(&mut change.to));
            }
        }
        Event::ToolResult { name, content, .. } => {
            shorten(name);
            *content = redaction.excerpt(content, RESULT_CHARS);
        }
        Event::Plan { steps, problems } => {
            problems.truncate(MAX_ITEMS);
            problems.iter_mut().for_each(shorten);
            for step in steps {
                shorten_step(step, redaction);
            }
        }
        Event::PlanOutcome { steps } => {
            for result in steps.values_mut() {
                *result = outcome_of(result);
            }
        }
        // Numbers only.
        Event::ContextCompacted { .. } => {}
        // Kept by the caller, or by the turn in a form of its own.
        Event::Text { .. }
        | Event::Thinking { .. }
        | Event::ApprovalRequired { .. }
        | Event::Reference { .. }
        | Event::Recommend { .. }
        | Event::Error { .. }
        | Event::Done { .. } => return None,
    }
    Some(kept)
}

fn shorten(text: &mut String) {
    *text = excerpt(text, TEXT_CHARS);
}

fn shorten_step(step: &mut PlannedStep, redaction: &Redaction) {
    step.arguments = redacted(&step.arguments, redaction);
    // The gate's events have the changes again, once the step is called.
    step.changes.clear();
    step.problem.iter_mut().for_each(shorten);
}

/// How a step of a plan ended. Its result is in its own event.
fn outcome_of(result: &Value) -> Value {
    let mut outcome = Map::new();
    for name in ["status", "error_code", "took_ms"] {
        if let Some(value) = result.get(name) {
            outcome.insert(name.to_owned(), value.clone());
        }
    }
    Value::Object(outcome)
}

/// Arguments without secrets, and bounded.
fn redacted(arguments: &Value, redaction: &Redaction) -> Value {
    match arguments {
        Value::Object(fields) => bounded(redaction.arguments(fields)),
        Value::String(text) => redaction.excerpt(text, TEXT_CHARS).into(),
        other => bounded(other.clone()),
    }
}

/// The value, or the beginning of its JSON.
fn bounded(value: Value) -> Value {
    let text = value.to_string();
    if text.len() <= MAX_VALUE_BYTES {
        return value;
    }
    excerpt(&text, TEXT_CHARS).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolscout_index::ToolId;

    use super::*;
    use toolscout_gate::gate::{Change, ChangeReason, Class, Decision};
    use toolscout_gate::tools::Status;

    fn text(content: &str) -> Event {
        Event::Text {
            content: content.into(),
        }
    }

    fn call(arguments: Value) -> Event {
        Event::ToolCall {
            id: "c".into(),
            name: "mail__send".into(),
            arguments,
        }
    }

    fn result(content: &str) -> Event {
        Event::ToolResult {
            id: "c".into(),
            name: "mail__send".into(),
            status: Status::Ok,
            error_code: None,
            content: content.into(),
            took_ms: 1,
            truncated_from_bytes: None,
        }
    }

    fn record(events: &[Event]) -> Record {
        let mut record = Record::default();
        for event in events {
            record.push(event, &Redaction::default());
        }
        record
    }

    #[test]
    fn texts_are_joined_and_the_answer_is_not_kept_twice() {
        let mut record = record(&[
            text("I "),
            text("look."),
            call(json!({})),
            text("So."),
            text(" It rains."),
        ]);
        record.drop_answer(" It rains.");
        let kept = record.so_far();
        assert_eq!(
            kept.events[0],
            json!({ "type": "text", "content": "I look." })
        );
        assert_eq!(kept.events[2], json!({ "type": "text", "content": "So." }));
        record.drop_answer("So.");
        assert_eq!(record.so_far().events.len(), 2);
        assert!(!kept.truncated);
    }

    #[test]
    fn no_secret_and_no_whole_result_is_kept() {
        let gate = Event::Gate {
            id: "c".into(),
            tool: ToolId::parse("mail/send").unwrap(),
            class: Class::StateChanging,
            decision: Decision::Allow,
            rule: "r".into(),
            changes: vec![Change {
                path: "/api_key".into(),
                from: "hidden".into(),
                to: "hidden".into(),
                why: ChangeReason::Trimmed,
            }],
            answer: None,
            warnings: Vec::new(),
        };
        let long = json!({ "token": "hidden", "rows": "x".repeat(9_000) }).to_string();
        let record = record(&[
            call(json!({ "to": "ada", "password": "hidden" })),
            call("{\"password\": \"hidden\", not JSON".into()),
            gate,
            result(&long),
            result(&long[..2_000]),
            result("Authorization: hidden\nrest"),
        ]);
        let kept = Value::from(record.so_far().events).to_string();
        assert!(!kept.contains("hidden"), "{kept}");
        assert!(kept.contains("ada") && kept.contains("rest"), "{kept}");
        assert!(kept.len() < 4_000, "{}", kept.len());
    }

    #[test]
    fn a_turn_keeps_a_bounded_number_of_bytes_and_says_so() {
        let mut record = Record::default();
        for number in 0..2_000 {
            let events = [
                text(&"é".repeat(100)),
                call(json!({ "n": number, "deep": vec!["y".repeat(300); 200] })),
                result(&"z".repeat(5_000)),
            ];
            for event in &events {
                record.push(event, &Redaction::default());
            }
        }
        let kept = record.so_far();
        assert!(kept.truncated);
        let bytes = Value::from(kept.events).to_string().len();
        assert!(bytes < 80 << 10, "{bytes}");
    }
}
