//! The calls of the model's answer: how each is read, and what is done with it.

use serde_json::Value;

use super::{Action, PlannedCall, Run};
use crate::config::Protocol;
use crate::event::Event;
use crate::prompt;
use toolscout_base::printable::{counted, excerpt};
use toolscout_finder::finder::meta_tools::{self, FindConfig};
use toolscout_finder::finder::model_names::{self, CALL_TOOL, TOOL_SEARCH};
use toolscout_gate::llm::ToolCall;
use toolscout_gate::llm::calls::MAX_ARGUMENT_BYTES;
use toolscout_gate::llm::calls::RawCall;
use toolscout_gate::llm::reply::Reply;
use toolscout_gate::tools::arguments;
use toolscout_gate::tools::long_results::READ_MORE;
use toolscout_gate::tools::{Arguments, ErrorCode, ToolResult};

/// Similar names suggested for an unknown name.
const MAX_NEAREST: usize = 5;

/// Why a call is not made, with a message for the model.
type CallError = (ErrorCode, String);

impl Run {
    /// The text and calls of a reply, and the events with what the user sees, by the protocol.
    pub(super) fn parse_reply(&self, reply: Reply) -> (String, Vec<RawCall>, Vec<Event>) {
        if self.config.protocol == Protocol::Native {
            return (reply.text, reply.calls, Vec::new());
        }
        let manual = prompt::read_manual(&reply.text);
        let mut events = Vec::new();
        if !manual.thought.is_empty() {
            events.push(Event::Thinking {
                content: manual.thought,
            });
        }
        // An answer beside calls is premature: the results are not known yet.
        let has_calls = !manual.actions.is_empty() && !self.is_last_round();
        let answer = match manual.final_answer {
            Some(answer) if !has_calls => answer,
            _ => String::new(),
        };
        if !answer.is_empty() {
            events.push(Event::Text {
                content: answer.clone(),
            });
        }
        let mut calls = Vec::with_capacity(manual.actions.len());
        for prompt::Action { name, arguments } in manual.actions {
            calls.push(RawCall {
                id: None,
                name,
                argument_bytes: arguments.len(),
                arguments,
            });
        }
        (if has_calls { reply.text } else { answer }, calls, events)
    }

    pub(super) fn plan_call(&mut self, index: usize, raw: &RawCall) -> PlannedCall {
        let action = match self.action_of(index, raw) {
            Ok(action) => action,
            Err((code, message)) => Action::Refused(ToolResult::error(code, message)),
        };
        PlannedCall {
            call: ToolCall {
                id: self.unused_id(index, raw.id.as_deref()),
                name: raw.name.clone(),
                arguments: raw.arguments.clone(),
            },
            action,
        }
    }

    /// The model's id if it gave a new one, else a generated id.
    pub(super) fn unused_id(&mut self, index: usize, given: Option<&str>) -> String {
        // Providers match a result to its call by id, and some models repeat ids.
        let generated = format!("call_{}_{index}", self.round);
        let mut id = match given {
            Some(id) if !id.is_empty() && !self.used_ids.contains(id) => id.to_owned(),
            _ => generated.clone(),
        };
        // A model may have used an id that looks like a generated one.
        let mut number = 2;
        while !self.used_ids.insert(id.clone()) {
            id = format!("{generated}_{number}");
            number += 1;
        }
        id
    }

    /// How a call is handled.
    ///
    /// # Errors
    /// Why the call is refused.
    fn action_of(&self, index: usize, raw: &RawCall) -> Result<Action, CallError> {
        // Refused and not left out: providers reject a call without a result.
        if index >= self.config.max_calls {
            let calls = counted(self.config.max_calls, "call");
            let message = format!("the limit is {calls} in one answer; make this one again");
            return Err((ErrorCode::Limit, message));
        }
        // The reply builder stops keeping arguments at the limit, and goes on counting them.
        if raw.argument_bytes > raw.arguments.len() {
            let bytes = raw.argument_bytes;
            let message = format!(
                "the arguments have {bytes} bytes, {MAX_ARGUMENT_BYTES} are allowed; send less"
            );
            return Err(invalid(message));
        }
        let arguments = arguments::parse(&raw.arguments).map_err(invalid)?;
        match (raw.name.as_str(), &self.config.find) {
            (TOOL_SEARCH, Some(find)) => self.search(&arguments, find),
            (READ_MORE, _) if self.can_read_more() => {
                let page = self
                    .long_results
                    .read(&arguments, self.config.max_result_bytes);
                page.map(Action::Read).map_err(invalid)
            }
            // Also where the model was not shown it, unless a tool of the user has that name.
            (CALL_TOOL, Some(_)) if self.toolbox.find(CALL_TOOL).is_none() => {
                let (name, arguments) = dispatched(arguments).map_err(invalid)?;
                self.call(&name, arguments)
            }
            (name, _) => self.call(name, arguments),
        }
    }

    fn search(&self, arguments: &Arguments, config: &FindConfig) -> Result<Action, CallError> {
        let most = self.config.max_searches;
        if self.searches_in_a_row >= most {
            let message = format!(
                "{most} searches in a row are allowed; call one of the visible tools or answer with what you have"
            );
            return Err((ErrorCode::Limit, message));
        }
        meta_tools::parse(arguments, config)
            .map(Action::Search)
            .map_err(invalid)
    }

    fn call(&self, name: &str, arguments: Arguments) -> Result<Action, CallError> {
        match self.toolbox.find(name) {
            Some(tool) => Ok(Action::Call(tool.clone(), arguments)),
            None => Err((ErrorCode::UnknownTool, self.unknown_tool(name))),
        }
    }

    /// The message for a name that no visible tool has, with similar names.
    pub(super) fn unknown_tool(&self, name: &str) -> String {
        let searches = self.offers_search();
        let mut message = format!("no visible tool is called {:?}", excerpt(name, 100));
        if searches && self.toolbox.unloaded(name).is_some() {
            message.push_str(&format!(
                "; it was unloaded; `{TOOL_SEARCH}` with `select:{name}` brings it back"
            ));
            return message;
        }
        let nearest = model_names::nearest(
            name,
            self.toolbox.specs().map(|spec| spec.name.as_str()),
            MAX_NEAREST,
        );
        if !nearest.is_empty() {
            message.push_str(&format!("; similar names are {}", nearest.join(", ")));
        }
        if searches {
            message.push_str(&format!("; `{TOOL_SEARCH}` finds others"));
        }
        message
    }
}

fn invalid(message: impl Into<String>) -> CallError {
    (ErrorCode::InvalidArguments, message.into())
}

/// The name and arguments inside a `call_tool` call.
fn dispatched(mut outer: Arguments) -> Result<(String, Arguments), String> {
    let Some(Value::String(name)) = outer.remove("name") else {
        return Err("`name` is missing; give the name of a tool that `tool_search` found".into());
    };
    let arguments = match outer.remove("arguments") {
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => arguments::parse(&text)?,
        None | Some(Value::Null) => Arguments::new(),
        Some(other) => {
            return Err(format!(
                "`arguments` must be an object, not {}",
                excerpt(&other.to_string(), 80)
            ));
        }
    };
    Ok((name, arguments))
}
