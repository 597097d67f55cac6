//! Several calls in one: the steps of a plan, each through the gate, independent ones in parallel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use toolscout_index::Tool;

use super::calls::CallDirectory;
use super::elicitation::asks_by_result;
use super::progress::{finish, start_forwarding_progress};
use super::resolve::NamedCall;
use super::{NAME_CHARS, Session, failed};
use crate::connection::{Progress, takes_forms};
use toolscout_base::printable::excerpt;
use toolscout_gate::gate::{Call, Caller, Decision};
use toolscout_gate::plan::{
    self, Execution, NextStep, OnInvalidStep, Plan, PlannedStep, StepResult,
};
use toolscout_gate::tools::{Arguments, Status, ToolResult};

/// Steps that run at the same time.
const MAX_PARALLEL: usize = 8;

impl Session {
    /// Runs a plan. All its steps are checked before the first one runs, so that a plan with an
    /// invalid step has no effect, unless the client asks to skip it.
    pub(super) async fn run_plan(
        &self,
        given: &Arguments,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let plan = match plan::of_arguments(given) {
            Ok(plan) => plan,
            Err(problems) => return refused(&problems),
        };
        let on_invalid = match on_invalid_step(given) {
            Ok(on_invalid) => on_invalid,
            Err(problem) => return refused(&[problem]),
        };
        let caller = self.caller(context);
        let tools = self.tools_of(&plan).await;
        let checked = plan::check_by(&self.shared.gate, &caller, &plan, on_invalid, |name| {
            match tools.get(name) {
                Some(found) => found.clone(),
                // Every step's tool was looked up.
                None => Err(String::new()),
            }
        });
        // The client would repeat the plan with the answer, and the steps before would run again.
        let capabilities = context.client_capabilities().unwrap_or_default();
        let is_asked_elsewhere = self.shared.waiting.is_some() && !takes_forms(&capabilities);
        let mut for_a_person = Vec::new();
        if asks_by_result(context) || is_asked_elsewhere {
            for_a_person.extend(checked.shown.iter().filter_map(needs_a_person));
        }
        let execution = match checked.execution {
            Some(execution) if for_a_person.is_empty() => execution,
            _ => return refused(&[checked.problems, for_a_person].concat()),
        };
        let execution = self.execute(execution, &caller, context).await;
        let (shared, reader) = (Arc::clone(&self.shared), self.reader(context));
        let answered = spawn_blocking(move || {
            let keep = |tool: &str, text, bytes| shared.results.keep(&reader, tool, text, bytes);
            answer(&execution, shared.config.result_bytes, keep)
        });
        match answered.await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "shortening the results of a plan panicked");
                failed("the plan was run, and its results cannot be shown")
            }
        }
    }

    async fn tools_of(&self, plan: &Plan) -> BTreeMap<String, Result<Arc<Tool>, String>> {
        let mut tools = BTreeMap::new();
        for step in &plan.steps {
            if !tools.contains_key(&step.action) {
                let found = self.resolve(&NamedCall::of(&step.action)).await;
                tools.insert(step.action.clone(), found);
            }
        }
        tools
    }

    async fn execute(
        &self,
        mut execution: Execution,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Execution {
        let (progress, forwarding) = start_forwarding_progress(context).unzip();
        let mut started = BTreeSet::new();
        let mut running = FuturesUnordered::new();
        loop {
            for step in execution.ready(&started) {
                if running.len() == MAX_PARALLEL {
                    break;
                }
                started.insert(step.position);
                running.push(self.run_step(step, caller, context));
            }
            let Some((position, tool, result)) = running.next().await else {
                break;
            };
            execution.record(position, result);
            if let Some(progress) = &progress {
                let step = Progress {
                    done: execution.results().count() as f64,
                    total: None,
                    message: Some(tool),
                };
                // A slow client misses some steps rather than holding up the plan.
                let _ = progress.try_send(step);
            }
        }
        drop(running);
        drop(progress);
        finish(forwarding).await;
        execution
    }

    /// Makes the call of a step. Returns its position, its tool and its result.
    async fn run_step(
        &self,
        step: NextStep,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> (usize, String, ToolResult) {
        let id = step.tool.id.to_string();
        let arguments = match step.arguments {
            Ok(arguments) => arguments,
            Err(result) => return (step.position, id, *result),
        };
        let shared = &*self.shared;
        // The client sees the progress of the plan, not that within a step.
        let (calling, questions) = self.call_context(context, caller, None);
        let directory = CallDirectory {
            shared,
            called: shared.pool.callable(&step.tool.id, calling),
            id: step.tool.id.clone(),
        };
        let approver = self.approver(context, caller, None);
        let call = Call {
            id: excerpt(&format!("{}.{}", context.id, step.key), NAME_CHARS),
            tool: step.tool,
            arguments,
            is_plan_step: true,
        };
        let tool = directory.id.clone();
        let passing = self.pass(caller, &directory, &approver, call);
        let outcome = questions.while_running(passing).await;
        self.teach(context, &tool, &outcome).await;
        (step.position, id, outcome.result)
    }
}

/// What the client wants to happen to invalid steps.
fn on_invalid_step(given: &Arguments) -> Result<OnInvalidStep, String> {
    match given.get("on_invalid_step") {
        None | Some(Value::Null) => Ok(OnInvalidStep::default()),
        Some(Value::String(name)) => {
            OnInvalidStep::parse(name).map_err(|reason| format!("on_invalid_step: {reason}"))
        }
        Some(other) => Err(format!(
            "on_invalid_step: {} is not a text",
            excerpt(&other.to_string(), NAME_CHARS)
        )),
    }
}

fn needs_a_person(step: &PlannedStep) -> Option<String> {
    // An invalid step is not called, so nobody is asked about it.
    if step.decision != Some(Decision::Ask) || step.problem.is_some() {
        return None;
    }
    Some(format!(
        "step {}: a person has to approve {}, which is possible for a call of its own only; make it with `call_tool`",
        step.step, step.tool
    ))
}

fn refused(problems: &[String]) -> CallToolResult {
    failed(&format!("nothing was done:\n- {}", problems.join("\n- ")))
}

/// The results of the steps. A result that another step has used is left out, since its part of
/// interest is in the results of that one. All steps together may be about as long as one result;
/// `keep` gives the beginning of a longer one.
fn answer(
    execution: &Execution,
    result_bytes: usize,
    keep: impl Fn(&str, String, usize) -> String,
) -> CallToolResult {
    let used = execution.used();
    let max_bytes = result_bytes / execution.results().count().max(1);
    let mut steps = Vec::new();
    for StepResult {
        key, name, result, ..
    } in execution.results()
    {
        let mut step = json!({ "id": key, "tool": name, "status": result.status });
        if result.status == Status::Error {
            let result = result.clone().truncated(max_bytes);
            step["error"] = result.error_message.unwrap_or_default().into();
        } else if !used.contains(key) {
            let result = result.clone();
            let result = result.shortened(max_bytes, |text| keep(name, text, max_bytes));
            step["result"] = result.data;
            if let Some(bytes) = result.truncated_from_bytes {
                step["truncated_from_bytes"] = bytes.into();
            }
        }
        steps.push(step);
    }
    let text = json!({ "steps": steps }).to_string();
    let content = vec![ContentBlock::text(text)];
    // A plan whose steps all failed has failed.
    if execution
        .results()
        .all(|step| step.result.status == Status::Error)
    {
        CallToolResult::error(content)
    } else {
        CallToolResult::success(content)
    }
}
