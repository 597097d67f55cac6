//! Plan mode: the model writes one plan, which is checked as a whole, shown, and executed step by
//! step.

use std::slice;

use serde_json::Value;

use toolscout_index::formats::model_name;

use super::{Action, Outcome, PlannedCall, Protocol, Round, Run, RunState};
use super::{OWN_SOURCE, result_event, source_of};
use crate::event::Event;
use crate::prompt;
use toolscout_base::printable::{self, excerpt};
use toolscout_finder::finder::model_names::TOOL_SEARCH;
use toolscout_finder::finder::search::SearchRequest;
use toolscout_gate::llm::{Message, ToolCall};
use toolscout_gate::plan::{self, Execution, Plan, Reading, StepResult};
use toolscout_gate::tools::{Arguments, ToolResult};

/// Characters of a question that the search uses.
const QUERY_CHARS: usize = 2_000;

impl Run {
    /// In plan mode, the search that finds the plan's tools: the model cannot search while it
    /// plans.
    pub(super) fn first_state(&self) -> RunState {
        let (Protocol::Plan, Some(find)) = (self.config.protocol, &self.config.find) else {
            return RunState::CallModel;
        };
        if self.config.shows_all {
            return RunState::CallModel;
        }
        let query = excerpt(self.context.question(), QUERY_CHARS);
        let arguments = serde_json::json!({ "query": query }).to_string();
        let request = SearchRequest {
            queries: vec![query],
            // As many as there may be, since the plan has these alone.
            limit: Some(find.max_limit),
            filter: find.filter.clone(),
            ..SearchRequest::default()
        };
        let call = ToolCall {
            id: "search".into(),
            name: TOOL_SEARCH.into(),
            arguments,
        };
        RunState::CallTools(vec![PlannedCall {
            call,
            action: Action::Search(request),
        }])
    }

    /// Takes the model's answer in plan mode.
    pub(super) fn plan_answered(&mut self, text: String, round: Round) -> Vec<Event> {
        match plan::read(&text) {
            Reading::Answer(answer) => self.finish_plan(answer, round),
            // No round is left to execute it: only its answer counts.
            Reading::Plan(plan) if round == Round::Last => match plan.final_answer {
                None if !self.plan_problems.is_empty() => {
                    self.refuse_plan(text, &self.plan_problems.clone())
                }
                answer => self.finish_plan(answer.unwrap_or_default(), round),
            },
            Reading::Plan(plan) => self.start_plan(text, &plan),
            Reading::Broken(problems) if round == Round::Last => self.refuse_plan(text, &problems),
            Reading::Broken(problems) => {
                let mut events = vec![Event::Plan {
                    steps: Vec::new(),
                    problems: problems.clone(),
                }];
                events.extend(self.refuse_plan(text, &problems));
                events
            }
        }
    }

    /// Continues with the plan's next step, if a plan is being executed.
    pub(super) fn next_plan_step(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(execution) = &self.execution {
            let Some(step) = execution.next() else {
                events.extend(self.plan_finished());
                break;
            };
            let arguments = match &step.arguments {
                Ok(arguments) => arguments.clone(),
                Err(_) => Arguments::new(),
            };
            let id = self.unused_id(0, Some(&format!("step_{}", step.key)));
            let call = ToolCall {
                id,
                name: model_name(&step.tool.id),
                arguments: Value::Object(arguments).to_string(),
            };
            let action = match step.arguments {
                Ok(arguments) => Action::Call(step.tool, arguments),
                Err(result) => Action::Refused(*result),
            };
            let planned = PlannedCall { call, action };
            self.open_calls(slice::from_ref(&planned));
            events.extend(self.call_events(&planned));
            // A skipped step has its result already; the next one may still be possible.
            if let Action::Refused(result) = &planned.action {
                events.push(result_event(&planned.call, result));
                self.record_step(result.clone());
                continue;
            }
            self.state = RunState::CallTools(vec![planned]);
            break;
        }
        events
    }

    /// Records the result of the current step.
    pub(super) fn record_step(&mut self, result: ToolResult) {
        if let Some(execution) = &mut self.execution
            && let Some(step) = execution.next()
        {
            execution.record(step.position, result);
        }
    }

    /// Checks a plan and starts its execution, or refuses it.
    fn start_plan(&mut self, text: String, plan: &Plan) -> Vec<Event> {
        let find = |name: &str| match self.toolbox.find(name) {
            Some(tool) => Ok(tool.clone()),
            None => Err(self.unknown_tool(name)),
        };
        // All steps are checked before the first one runs: unless they are skipped, a plan with one
        // invalid step has no effect.
        let on_invalid = self.config.on_invalid_step;
        let checked = plan::check_by(&self.gate, &self.caller, plan, on_invalid, find);
        let mut events = vec![Event::Plan {
            steps: checked.shown,
            problems: checked.problems.clone(),
        }];
        let Some(execution) = checked.execution else {
            events.extend(self.refuse_plan(text, &checked.problems));
            return events;
        };
        self.context.push(Message::assistant(text));
        self.execution = Some(execution);
        events.extend(self.next_plan_step());
        events
    }

    /// Sends the problems to the model, or ends the run if no round is left.
    fn refuse_plan(&mut self, text: String, problems: &[String]) -> Vec<Event> {
        let problems = problems.join("\n- ");
        // `model_answered` has counted this round already.
        if self.round >= self.config.max_rounds {
            let reason =
                format!("the plan cannot be carried out, and nothing was done:\n- {problems}");
            self.state = RunState::Ended(Outcome::Failed(reason));
            return Vec::new();
        }
        // Reported to the user if the last round brings neither a valid plan nor an answer.
        self.plan_problems = vec![problems.clone()];
        self.context.push(Message::assistant(text));
        self.context
            .push(Message::user(prompt::plan_refused(&problems)));
        Vec::new()
    }

    /// Ends a plan whose steps all have a result: with the plan's own answer if all succeeded,
    /// otherwise the model is asked for one.
    fn plan_finished(&mut self) -> Vec<Event> {
        let Some(execution) = self.execution.take() else {
            return Vec::new();
        };
        let mut events = vec![Event::PlanOutcome {
            steps: execution.outcome(),
        }];
        self.state = RunState::CallModel;
        if let Some(answer) = execution.final_answer() {
            events.extend(self.finish_plan(answer, Round::Last));
        } else if self.round >= self.config.max_rounds {
            events.extend(self.finish_plan(execution.summary(), Round::Last));
        } else {
            self.ask_for_report(&execution);
        }
        events
    }

    /// Sends the results of all steps to the model and asks for a report.
    fn ask_for_report(&mut self, execution: &Execution) {
        // All steps together may be as long as one result.
        let max_bytes = self.config.max_result_bytes / execution.results().count().max(1);
        let mut steps = Vec::new();
        for StepResult {
            key, tool, result, ..
        } in execution.results()
        {
            let text = serde_json::to_string(result).unwrap_or_default();
            let text = ToolResult::ok(text.into())
                .truncated(max_bytes)
                .to_model_text();
            // Each in a fence of its own: the steps' texts come from different tools.
            let source = match tool {
                Some(tool) => source_of(tool, result),
                None => OWN_SOURCE.to_owned(),
            };
            let fenced = self.context.fence().enclose(&source, &text);
            steps.push((printable::name(key), fenced));
        }
        self.context
            .push(Message::user(prompt::plan_outcome(&steps)));
        self.plan_summary = Some(execution.summary());
    }

    fn finish_plan(&mut self, mut answer: String, round: Round) -> Vec<Event> {
        // Without a report from the model, the summary of the results is the answer.
        if answer.trim().is_empty() {
            answer = self.plan_summary.clone().unwrap_or_default();
        }
        let mut events = Vec::new();
        if !answer.trim().is_empty() {
            events.push(Event::Text {
                content: answer.clone(),
            });
        }
        self.finish(answer, round);
        events
    }
}
