//! Plan mode: the model is asked for a plan, which is checked whole, shown, and worked through step
//! by step.

use std::slice;

use serde_json::Value;

use super::{Outcome, PlannedCall, Protocol, Run, State, What, announced, result_event, source_of};
use toolscout_index::formats::model_name;

use crate::agent::event::Event;
use crate::agent::plan::{self, Execution, Plan, Reading};
use crate::agent::prompt;
use crate::finder::model_names::TOOL_SEARCH;
use crate::finder::search::SearchRequest;
use crate::gate::Judgement;
use crate::llm::{Message, ToolCall};
use crate::printable;
use crate::printable::excerpt;
use crate::tools::arguments::Violation;
use crate::tools::{Arguments, ToolResult};

/// Characters of a question that are searched for.
const QUERY_CHARS: usize = 2_000;

impl Run {
    /// The search that finds a plan's tools, before the model is asked: it cannot search while it
    /// plans.
    pub(super) fn first_state(&self) -> State {
        let (Protocol::Plan, Some(find)) = (self.config.protocol, &self.config.find) else {
            return State::AskModel;
        };
        let query = excerpt(self.context.question(), QUERY_CHARS);
        let arguments = serde_json::json!({ "query": query }).to_string();
        let request = SearchRequest {
            queries: vec![query],
            limit: find.max_limit,
            filter: find.filter.clone(),
            ..SearchRequest::default()
        };
        let call = ToolCall {
            id: "search".into(),
            name: TOOL_SEARCH.into(),
            arguments,
        };
        State::Carry(vec![PlannedCall {
            call,
            what: What::Search(request),
        }])
    }

    /// Takes an answer in plan mode.
    pub(super) fn plan_answered(&mut self, text: String, last_round: bool) -> Vec<Event> {
        match plan::read(&text) {
            Reading::Answer(answer) => self.answer_plan(answer, last_round),
            Reading::Plan(plan) if last_round => match plan.final_answer {
                None if !self.refused_for.is_empty() => {
                    self.refuse_plan(text, &self.refused_for.clone())
                }
                answer => self.answer_plan(answer.unwrap_or_default(), last_round),
            },
            Reading::Plan(plan) => self.take_plan(text, &plan),
            Reading::Broken(problems) if last_round => self.refuse_plan(text, &problems),
            Reading::Broken(problems) => {
                let shown = Event::Plan {
                    steps: Vec::new(),
                    problems: problems.clone(),
                };
                let mut events = vec![shown];
                events.extend(self.refuse_plan(text, &problems));
                events
            }
        }
    }

    /// Goes on with the plan, if there is one.
    pub(super) fn next_plan_step(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(execution) = &self.execution {
            let Some(step) = execution.next() else {
                events.extend(self.plan_finished());
                break;
            };
            let arguments = step
                .arguments
                .as_ref()
                .map_or_else(|_| Arguments::new(), Clone::clone);
            let id = self.unused_id(0, Some(&format!("step_{}", step.key)));
            let call = ToolCall {
                id,
                name: model_name(&step.tool.id),
                arguments: Value::Object(arguments).to_string(),
            };
            let what = match step.arguments {
                Ok(arguments) => What::Call(step.tool, arguments),
                Err(result) => What::Settled(result),
            };
            let slot = PlannedCall { call, what };
            self.begin(slice::from_ref(&slot));
            events.extend(announced(&slot));
            if let What::Settled(result) = &slot.what {
                events.push(result_event(&slot.call, result));
                self.record_step(result.clone());
                continue;
            }
            self.state = State::Carry(vec![slot]);
            break;
        }
        events
    }

    /// Takes the result of the plan's step under way.
    pub(super) fn record_step(&mut self, result: ToolResult) {
        if let Some(execution) = &mut self.execution {
            execution.record(result);
        }
    }

    fn take_plan(&mut self, text: String, plan: &Plan) -> Vec<Event> {
        let find = |name: &str| {
            self.toolbox
                .find(name)
                .cloned()
                .ok_or_else(|| self.unknown(name))
        };
        let judge = |tool: &_, arguments, open: &[String]| -> Judgement {
            self.gate
                .judge_with(&self.caller, tool, arguments, |violation| {
                    !is_open(violation, open)
                })
        };
        let checked = plan::check(plan, find, judge);
        let mut events = vec![Event::Plan {
            steps: checked.shown,
            problems: checked.problems.clone(),
        }];
        if !checked.problems.is_empty() {
            events.extend(self.refuse_plan(text, &checked.problems));
            return events;
        }
        self.context.push(Message::assistant(text));
        self.execution = Some(checked.execution);
        events.extend(self.next_plan_step());
        events
    }

    /// Tells the model what is wrong, as long as it may plan again.
    fn refuse_plan(&mut self, text: String, problems: &[String]) -> Vec<Event> {
        let problems = problems.join("\n- ");
        if self.round >= self.config.max_rounds {
            let reason =
                format!("the plan cannot be carried out, and nothing was done:\n- {problems}");
            self.state = State::Over(Outcome::Failed(reason));
            return Vec::new();
        }
        self.refused_for = vec![problems.clone()];
        self.context.push(Message::assistant(text));
        self.context
            .push(Message::user(prompt::plan_refused(&problems)));
        Vec::new()
    }

    /// All steps have their result: the plan's own answer where all went well, else the model is
    /// asked for one.
    fn plan_finished(&mut self) -> Vec<Event> {
        let Some(execution) = self.execution.take() else {
            return Vec::new();
        };
        let mut events = vec![Event::PlanOutcome {
            steps: execution.outcome(),
        }];
        self.state = State::AskModel;
        if let Some(answer) = execution.final_answer() {
            events.extend(self.answer_plan(answer, true));
        } else if self.round >= self.config.max_rounds {
            events.extend(self.answer_plan(execution.summary(), true));
        } else {
            self.tell_outcome(&execution);
        }
        events
    }

    fn tell_outcome(&mut self, execution: &Execution) {
        // The steps share what one result may have.
        let most = self.config.max_result_bytes / execution.results().count().max(1);
        let mut steps = Vec::new();
        for (key, tool, result) in execution.results() {
            let text = serde_json::to_string(result).unwrap_or_default();
            let text = ToolResult::ok(text.into()).truncated(most).to_model_text();
            steps.push((
                printable::name(key),
                self.context.fence().around(&source_of(tool, result), &text),
            ));
        }
        self.context
            .push(Message::user(prompt::plan_outcome(&steps)));
        self.is_outcome_told = true;
        self.told_summary = execution.summary();
    }

    fn answer_plan(&mut self, answer: String, last_round: bool) -> Vec<Event> {
        // A model that has nothing to say about an outcome leaves it to the outcome to speak.
        let answer = if answer.trim().is_empty() {
            std::mem::take(&mut self.told_summary)
        } else {
            answer
        };
        let said = Event::Text {
            content: answer.clone(),
        };
        let is_empty = answer.trim().is_empty();
        self.conclude(answer, last_round);
        if is_empty { Vec::new() } else { vec![said] }
    }
}

/// True when a violation is about an argument that is not known yet, or about something that holds
/// one.
fn is_open(violation: &Violation, open: &[String]) -> bool {
    let within = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    open.iter().any(|at| {
        within(at, &violation.path) && !is_missing(violation) || within(&violation.path, at)
    })
}

/// An argument that is missing is missing whatever the others turn out to be.
fn is_missing(violation: &Violation) -> bool {
    violation.message.starts_with("missing")
}
