//! Plans: the steps that a model wants to execute. Parsed from its answer, checked as a whole, then
//! executed step by step. Pure.
//!
//! A step may refer to the result of an earlier one: `"${1.order.id}"` is the field `id` in the
//! field `order` of the result of step 1. A string that is only a reference takes the type of the
//! value.

mod error;
pub mod written_call;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolscout_index::Tool;
use utoipa::ToSchema;

pub use self::error::{StepError, UnknownChoice};
use self::written_call::{WrittenCall, without_trailing_commas};
use crate::gate::{Caller, Change, CheckedCall, Class, Decision, Gate};
use crate::llm::calls::MAX_ARGUMENT_BYTES;
use crate::tools::arguments::{self, Violation};
use crate::tools::json::{self, Unique};
use crate::tools::{Arguments, ErrorCode, Status, ToolResult};
use toolscout_base::printable::excerpt;

/// Maximum number of steps. A person should be able to read a plan before it runs.
pub const MAX_STEPS: usize = 32;
/// Longest arguments of all steps of a plan together, in bytes, with results in them.
const MAX_PLAN_BYTES: usize = 4 * MAX_ARGUMENT_BYTES;
/// What a reference into JSON within a text of a result counts as, because that is parsed each time.
const PARSED_BYTES: usize = 32 << 10;
/// Number of `{` in a text that are tried as the start of a plan.
const MAX_CANDIDATES: usize = 64;
/// Characters of a text that an error message quotes.
const QUOTED_CHARS: usize = 80;
/// Characters of a step's result in a summary.
const SUMMARY_CHARS: usize = 1_000;

/// A model's answer, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A plan.
    Plan(Plan),
    /// An answer without a plan.
    Answer(String),
    /// An invalid plan, with its problems.
    Broken(Vec<String>),
}

/// A plan as the model wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Its steps, in order; at least one.
    pub steps: Vec<Step>,
    /// The answer to give when all steps succeed.
    pub final_answer: Option<String>,
}

/// What happens to a plan in which some steps cannot be executed as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInvalidStep {
    /// The whole plan is refused, and nothing is done.
    #[default]
    Refuse,
    /// The other steps are executed. The result of an invalid one says what is wrong with it.
    Skip,
}

impl OnInvalidStep {
    /// Its names in settings and arguments.
    pub const NAMES: [&str; 2] = ["refuse", "skip"];

    /// Reads a name.
    ///
    /// # Errors
    /// [`UnknownChoice`], with the names that there are.
    pub fn parse(name: &str) -> Result<Self, UnknownChoice> {
        match name {
            "refuse" => Ok(OnInvalidStep::Refuse),
            "skip" => Ok(OnInvalidStep::Skip),
            _ => Err(UnknownChoice {
                name: name.to_owned(),
            }),
        }
    }
}

/// A step as the model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name: the one that the model gave, else its number from 1.
    pub key: String,
    /// The tool's name.
    pub action: String,
    /// Its arguments, with references.
    pub arguments: Arguments,
    /// Steps that must succeed first although it does not use their results.
    pub after: Vec<String>,
    /// What is wrong with the way in which it is written.
    pub problem: Option<String>,
}

/// A step as it is shown before the plan runs.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlannedStep {
    /// The key by which other steps refer to it.
    pub step: String,
    /// The tool's id, or the unknown name.
    pub tool: String,
    /// The arguments, normalized as far as they are known.
    pub arguments: Value,
    /// How much harm the tool can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The policies' decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Changes made to the arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Steps that must succeed first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// What is wrong with the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The result of checking a plan.
#[derive(Clone, Debug)]
pub struct CheckedPlan {
    /// The steps as they are shown.
    pub shown: Vec<PlannedStep>,
    /// What is wrong with the steps.
    pub problems: Vec<String>,
    /// The execution; `None` for a plan that is refused.
    pub execution: Option<Execution>,
}

/// Parses a model's answer: plain JSON, fenced, within other text, or after other JSON. Text
/// without a plan is an answer.
pub fn read(text: &str) -> Reading {
    for (at, _) in text.match_indices('{').take(MAX_CANDIDATES) {
        if let Some(reading) = read_at_start(&text[at..]) {
            return reading;
        }
    }
    Reading::Answer(text.trim().to_owned())
}

/// Reads a plan that a model gave as the arguments of a call, with its steps under `steps`.
///
/// # Errors
/// The plan's problems.
pub fn of_arguments(given: &Arguments) -> Result<Plan, Vec<String>> {
    let steps = match given.get("steps") {
        Some(Value::Array(steps)) => steps.clone(),
        // Some models send the array as a string.
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => Vec::new(),
    };
    let object = Map::from_iter([("actions".to_owned(), Value::Array(steps))]);
    match from_object(&object) {
        Reading::Plan(plan) => Ok(plan),
        Reading::Broken(problems) => Err(problems),
        Reading::Answer(_) => Err(vec!["`steps` is not an array with steps".to_owned()]),
    }
}

/// Parses a plan at the start of a text; `None` if there is none.
fn read_at_start(text: &str) -> Option<Reading> {
    let repaired;
    let (text, object) = match parse_prefix::<Map<String, Value>>(text) {
        Ok(object) => (text, object),
        Err(_) => {
            // Each candidate copies its text, so the length is bounded.
            repaired =
                without_trailing_commas(&text[..text.floor_char_boundary(MAX_ARGUMENT_BYTES)]);
            let object = parse_prefix(&repaired).ok()?;
            (repaired.as_str(), object)
        }
    };
    let has_actions = object.get("actions").is_some_and(Value::is_array);
    if !has_actions && final_answer(&object).is_none() {
        return None;
    }
    // It is meant as a plan. Parse it again without duplicate keys, which make it ambiguous.
    match parse_prefix::<Unique>(text) {
        Ok(Unique(Value::Object(object))) => Some(from_object(&object)),
        Ok(_) => None,
        Err(error) => Some(Reading::Broken(vec![error.to_string()])),
    }
}

/// Parses the JSON value at the start of a text, whatever follows it.
fn parse_prefix<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    // A text without any value has no first one; `from_str` gives the error for it.
    match values.next() {
        Some(value) => value,
        None => serde_json::from_str(text),
    }
}

fn final_answer(object: &Map<String, Value>) -> Option<String> {
    match object.get("final_answer") {
        None | Some(Value::Null) => None,
        Some(answer) => Some(text_of(answer)),
    }
}

fn from_object(object: &Map<String, Value>) -> Reading {
    let final_answer = final_answer(object);
    let actions = match object.get("actions") {
        Some(Value::Array(actions)) => actions.as_slice(),
        _ => &[],
    };
    if actions.is_empty() {
        return Reading::Answer(final_answer.unwrap_or_default());
    }
    if actions.len() > MAX_STEPS {
        let message = format!(
            "the plan has {} actions, {MAX_STEPS} are allowed; plan the most important ones",
            actions.len()
        );
        return Reading::Broken(vec![message]);
    }
    let mut steps: Vec<Step> = Vec::with_capacity(actions.len());
    for (at, action) in actions.iter().enumerate() {
        let mut step = step(at + 1, action);
        if has_key(&steps, &step.key) {
            let problem = format!(
                "two steps are called {:?}; give each its own name, or none",
                step.key
            );
            step.problem.get_or_insert(problem);
            // Its result needs a key of its own.
            step.key = (at + 1).to_string();
            while has_key(&steps, &step.key) {
                step.key.push('*');
            }
        }
        steps.push(step);
    }
    Reading::Plan(Plan {
        steps,
        final_answer,
    })
}

fn has_key(steps: &[Step], key: &str) -> bool {
    steps.iter().any(|step| step.key == key)
}

/// Fields of a step that are no arguments of its call.
const STEP_FIELDS: [&str; 4] = ["step", "id", "after", "depends_on"];

fn step(number: usize, action: &Value) -> Step {
    let none = Map::new();
    let fields = action.as_object().unwrap_or(&none);
    let key = fields.get("step").or(fields.get("id"));
    let key = key.map(text_of).filter(|key| !key.is_empty());
    let after = match fields.get("after").or(fields.get("depends_on")) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(steps)) => steps.iter().map(text_of).collect(),
        Some(one) => vec![text_of(one)],
    };
    let (action, arguments, problem) = match written_call(action) {
        Ok((name, arguments)) => (name, arguments, None),
        Err(problem) => (quoted(action), Arguments::new(), Some(problem.to_string())),
    };
    Step {
        key: key.unwrap_or_else(|| number.to_string()),
        action,
        arguments,
        after,
        problem,
    }
}

/// The name of a step's tool, and its arguments.
///
/// # Errors
/// What is wrong with the step.
fn written_call(action: &Value) -> Result<(String, Arguments), StepError> {
    let Value::Object(fields) = action else {
        return Err(StepError::NotAnAction(quoted(action)));
    };
    let call = WrittenCall::of(fields, &STEP_FIELDS).ok_or(StepError::NoAction)?;
    let arguments = match call.arguments {
        Value::Null => Arguments::new(),
        Value::Object(arguments) => arguments,
        Value::String(text) => arguments::parse(&text)?,
        other => return Err(StepError::NotAnObject(quoted(&other))),
    };
    Ok((call.name, arguments))
}

/// Checks a plan as a whole. `find` returns a tool by its name, or why there is none;
/// `check_call` checks a call whose arguments at the given JSON pointers are not known yet.
pub fn check(
    plan: &Plan,
    on_invalid: OnInvalidStep,
    find: impl Fn(&str) -> Result<Arc<Tool>, String>,
    check_call: impl Fn(&Arc<Tool>, Arguments, &[String]) -> CheckedCall,
) -> CheckedPlan {
    let mut checked = CheckedPlan {
        shown: Vec::new(),
        problems: Vec::new(),
        execution: None,
    };
    let mut execution = Execution {
        final_answer: plan.final_answer.clone(),
        ..Execution::default()
    };
    // A step may refer to earlier ones only, so a plan has no cycles and is already sorted.
    let mut earlier: Vec<&str> = Vec::new();
    for (position, step) in plan.steps.iter().enumerate() {
        let (shown, executable) = check_step(step, plan, &earlier, &find, &check_call);
        if let Some(problem) = &shown.problem {
            checked
                .problems
                .push(format!("step {}: {problem}", step.key));
            let is_unknown = executable.tool.is_none() && step.problem.is_none();
            let code = match is_unknown {
                true => ErrorCode::UnknownTool,
                false => ErrorCode::InvalidArguments,
            };
            execution.record(position, ToolResult::error(code, problem.clone()));
        }
        checked.shown.push(shown);
        execution.steps.push(executable);
        earlier.push(&step.key);
    }
    if checked.problems.is_empty() || on_invalid == OnInvalidStep::Skip {
        checked.execution = Some(execution);
    }
    checked
}

/// Checks a plan as a whole, its calls by the gate.
pub fn check_by(
    gate: &Gate,
    caller: &Caller,
    plan: &Plan,
    on_invalid: OnInvalidStep,
    find: impl Fn(&str) -> Result<Arc<Tool>, String>,
) -> CheckedPlan {
    check(plan, on_invalid, find, |tool, arguments, open| {
        gate.check_step(caller, tool, arguments, |violation| {
            !is_open(violation, open)
        })
    })
}

/// True when a violation concerns an argument that is not known yet, or a value that contains one.
fn is_open(violation: &Violation, open: &[String]) -> bool {
    // A missing argument is missing whatever the open ones turn out to be.
    let is_missing = violation.message.starts_with("missing");
    for pointer in open {
        let contains_open = is_within(pointer, &violation.path);
        if (contains_open && !is_missing) || is_within(&violation.path, pointer) {
            return true;
        }
    }
    false
}

/// True when a JSON pointer is at or below another one.
fn is_within(inner: &str, outer: &str) -> bool {
    match inner.strip_prefix(outer) {
        // `/ab` begins with `/a` and is not within it.
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// Checks one step; `earlier` are the keys of those before it. Returns it as shown to the user and as
/// it is executed.
fn check_step(
    step: &Step,
    plan: &Plan,
    earlier: &[&str],
    find: impl Fn(&str) -> Result<Arc<Tool>, String>,
    check_call: impl Fn(&Arc<Tool>, Arguments, &[String]) -> CheckedCall,
) -> (PlannedStep, ExecutableStep) {
    let references = references(&Value::Object(step.arguments.clone()), "");
    let mut needs = BTreeSet::new();
    let found_needs = collect_needs(step, &references, earlier, plan, &mut needs);
    let problem = step
        .problem
        .clone()
        .or(found_needs.err().map(|error| error.to_string()));
    let open: Vec<String> = references
        .into_iter()
        .map(|reference| reference.pointer)
        .collect();
    let mut shown = PlannedStep {
        step: step.key.clone(),
        tool: step.action.clone(),
        arguments: Value::Object(step.arguments.clone()),
        class: None,
        decision: None,
        changes: Vec::new(),
        needs: needs.iter().cloned().collect(),
        problem,
    };
    let mut executable = ExecutableStep {
        key: step.key.clone(),
        name: step.action.clone(),
        tool: None,
        arguments: step.arguments.clone(),
        needs,
    };
    // The name of a step that cannot be read is only what it looks like.
    if step.problem.is_some() {
        return (shown, executable);
    }
    match find(&step.action) {
        Ok(tool) => {
            shown.add_check(&tool, check_call(&tool, step.arguments.clone(), &open));
            executable.name = tool.id.to_string();
            executable.tool = Some(tool);
        }
        Err(message) => {
            shown.problem.get_or_insert(message);
        }
    }
    (shown, executable)
}

impl PlannedStep {
    fn add_check(&mut self, tool: &Tool, checked: CheckedCall) {
        self.tool = tool.id.to_string();
        self.class = Some(checked.applied_rule.class);
        self.decision = Some(checked.applied_rule.decision);
        self.arguments = Value::Object(checked.arguments);
        self.changes = checked.changes;
        // A denied call fails as a step; only an invalid call makes the plan invalid.
        if let Some(refusal) = checked.refusal
            && refusal.code == ErrorCode::InvalidArguments
        {
            self.problem.get_or_insert(refusal.message);
        }
    }
}

/// Collects the keys of the steps that a step needs.
///
/// # Errors
/// The first reference that is not to an earlier step.
fn collect_needs(
    step: &Step,
    references: &[Reference],
    earlier: &[&str],
    plan: &Plan,
    needs: &mut BTreeSet<String>,
) -> Result<(), StepError> {
    let keys: Vec<&str> = plan.steps.iter().map(|step| step.key.as_str()).collect();
    let referenced = references.iter().map(|reference| reference.step.as_str());
    for name in referenced.chain(step.after.iter().map(String::as_str)) {
        let Some(key) = key_of(name, &keys) else {
            return Err(StepError::UnknownStep(name.to_owned()));
        };
        if key == step.key {
            return Err(StepError::OwnResult);
        }
        if !earlier.contains(&key) {
            return Err(StepError::LaterStep(key.to_owned()));
        }
        needs.insert(key.to_owned());
    }
    Ok(())
}

/// The key of the step that a reference names, with or without the prefix `step`.
fn key_of<'a>(name: &str, keys: &[&'a str]) -> Option<&'a str> {
    // A step may be called `step1` itself, so the exact name wins.
    let exact = keys.iter().copied().find(|key| *key == name);
    if exact.is_some() {
        return exact;
    }
    let bare = name.strip_prefix("step")?.trim_start_matches(['_', ' ']);
    keys.iter().copied().find(|key| *key == bare)
}

/// A plan being executed.
#[derive(Clone, Debug, Default)]
pub struct Execution {
    steps: Vec<ExecutableStep>,
    /// The results so far, by the position of their step.
    results: BTreeMap<usize, ToolResult>,
    /// Results that are JSON in a text, as many MCP servers give them, parsed.
    parsed: BTreeMap<usize, Value>,
    final_answer: Option<String>,
}

#[derive(Clone, Debug)]
struct ExecutableStep {
    key: String,
    /// The tool's id, or the name that no tool has.
    name: String,
    /// `None` if no tool has the name; such a step has its result from the beginning.
    tool: Option<Arc<Tool>>,
    arguments: Arguments,
    needs: BTreeSet<String>,
}

/// A step of a plan that can run now.
#[derive(Clone, Debug)]
pub struct NextStep {
    /// Its position in the plan, from 0.
    pub position: usize,
    /// The key by which other steps refer to it.
    pub key: String,
    /// The tool that the step calls.
    pub tool: Arc<Tool>,
    /// Its arguments with the references filled in, or the result of a step that cannot run.
    pub arguments: Result<Arguments, Box<ToolResult>>,
}

/// What a step of a plan gave.
#[derive(Clone, Copy, Debug)]
pub struct StepResult<'a> {
    /// The key by which other steps refer to it.
    pub key: &'a str,
    /// The tool's id, or the name that no tool has.
    pub name: &'a str,
    /// The tool; `None` if no tool has the name.
    pub tool: Option<&'a Tool>,
    /// Its result.
    pub result: &'a ToolResult,
}

/// The beginning of a step's result, or that it was not called.
fn beginning_of(result: &ToolResult) -> String {
    if result.data.get("dry_run").and_then(Value::as_bool) == Some(true) {
        return "not called (dry run)".to_owned();
    }
    let text = result.to_model_text();
    if text.trim().is_empty() {
        return "done".to_owned();
    }
    excerpt(text.trim(), SUMMARY_CHARS)
}

impl Execution {
    /// The first step without a result; `None` when all have one.
    pub fn next(&self) -> Option<NextStep> {
        for position in 0..self.steps.len() {
            // One whose tool is unknown has its result from the beginning.
            if !self.results.contains_key(&position)
                && let Some(step) = self.step(position)
            {
                return Some(step);
            }
        }
        None
    }

    /// The steps that were not started and for which every step that they need has a result, in
    /// order.
    pub fn ready(&self, started: &BTreeSet<usize>) -> Vec<NextStep> {
        let mut ready = Vec::new();
        for (position, step) in self.steps.iter().enumerate() {
            if started.contains(&position) || self.results.contains_key(&position) {
                continue;
            }
            // A failed need counts too: the step then gets its own result, that it was skipped.
            if step.needs.iter().all(|key| self.result(key).is_some()) {
                ready.extend(self.step(position));
            }
        }
        ready
    }

    fn step(&self, position: usize) -> Option<NextStep> {
        let step = &self.steps[position];
        Some(NextStep {
            position,
            key: step.key.clone(),
            tool: step.tool.clone()?,
            arguments: self.arguments_of(position, step),
        })
    }

    /// The arguments of a step with its references filled in.
    ///
    /// # Errors
    /// The result of a step that cannot run.
    fn arguments_of(
        &self,
        position: usize,
        step: &ExecutableStep,
    ) -> Result<Arguments, Box<ToolResult>> {
        for need in &step.needs {
            if !matches!(self.result(need), Some(result) if result.status != Status::Error) {
                let message = format!("step {need} did not succeed, and this one needs it");
                return Err(Box::new(ToolResult::error(ErrorCode::Skipped, message)));
            }
        }
        // Before anything is filled in, since one result may be in many places.
        self.check_lengths(position).map_err(invalid)?;
        self.substitute_fields(&step.arguments).map_err(invalid)
    }

    /// Checks how long the arguments of a step become when results are filled in, and those of the plan
    /// up to it: one result may stand in many places.
    ///
    /// # Errors
    /// What is too long, and what to do.
    fn check_lengths(&self, position: usize) -> Result<(), StepError> {
        let mut left = MAX_PLAN_BYTES;
        for step in &self.steps[..position] {
            let mut rest = left.min(MAX_ARGUMENT_BYTES);
            // One that was too long was not made.
            if self.measure_fields(&step.arguments, &mut rest).is_some() {
                left = left.saturating_sub(MAX_ARGUMENT_BYTES.min(left) - rest);
            }
        }
        let most = left.min(MAX_ARGUMENT_BYTES);
        let arguments = &self.steps[position].arguments;
        match self.measure_fields(arguments, &mut { most }) {
            Some(()) => Ok(()),
            None if most == MAX_ARGUMENT_BYTES => Err(StepError::LongArguments),
            None => Err(StepError::LongPlan),
        }
    }

    /// Takes the length that a value has once its references are filled in; `None` where less is left.
    fn measure(&self, value: &Value, left: &mut usize) -> Option<()> {
        match value {
            Value::String(text) => {
                // With its quotation marks and a comma.
                take(text.len() + 3, left)?;
                for expression in expressions(text) {
                    // An expression without a value is an error later, and has no length.
                    let Some(found) = self.found(&expression) else {
                        continue;
                    };
                    if matches!(found, Cow::Owned(_)) {
                        take(PARSED_BYTES, left)?;
                    }
                    length_of(&found, left)?;
                }
                Some(())
            }
            Value::Array(items) => {
                take(2, left)?;
                for item in items {
                    self.measure(item, left)?;
                }
                Some(())
            }
            Value::Object(fields) => self.measure_fields(fields, left),
            other => length_of(other, left),
        }
    }

    fn measure_fields(&self, fields: &Map<String, Value>, left: &mut usize) -> Option<()> {
        take(2, left)?;
        for (name, value) in fields {
            take(name.len() + 4, left)?;
            self.measure(value, left)?;
        }
        Some(())
    }

    /// Records the result of a step.
    pub fn record(&mut self, position: usize, result: ToolResult) {
        // Parsed once, since many references may lead into it.
        if let Value::String(text) = &result.data
            && text.trim_start().starts_with(['{', '['])
            && let Ok(parsed) = serde_json::from_str(text)
        {
            self.parsed.insert(position, parsed);
        }
        self.results.insert(position, result);
    }

    /// The results so far, by step key.
    pub fn outcome(&self) -> Map<String, Value> {
        let mut outcome = Map::new();
        for StepResult { key, result, .. } in self.results() {
            let result = serde_json::to_value(result).unwrap_or_default();
            outcome.insert(key.to_owned(), result);
        }
        outcome
    }

    /// The results so far, in the order of the steps.
    pub fn results(&self) -> impl Iterator<Item = StepResult<'_>> {
        self.results.iter().map(|(position, result)| {
            let step = &self.steps[*position];
            StepResult {
                key: &step.key,
                name: &step.name,
                tool: step.tool.as_deref(),
                result,
            }
        })
    }

    /// The keys of the steps whose results other steps use.
    pub fn used(&self) -> BTreeSet<&str> {
        let needs = self.steps.iter().flat_map(|step| &step.needs);
        needs.map(String::as_str).collect()
    }

    /// The plan's own answer. `None` when a step failed, since the model wrote the answer before
    /// it knew that.
    pub fn final_answer(&self) -> Option<String> {
        let answer = self.final_answer.as_ref()?;
        let mut results = self.results.values();
        if answer.trim().is_empty() || results.any(|result| result.status == Status::Error) {
            return None;
        }
        // If it refers to something that no result has, the model is asked for another answer.
        let answer = Value::from(answer.as_str());
        self.measure(&answer, &mut { MAX_ARGUMENT_BYTES })?;
        let answer = self.substitute(&answer).ok()?;
        Some(text_of(&answer))
    }

    /// The outcome, one line per step, with the beginning of its result.
    pub fn summary(&self) -> String {
        let mut lines = Vec::with_capacity(self.results.len());
        for StepResult { key, result, .. } in self.results() {
            lines.push(match &result.error_message {
                None => format!("{key}: {}", beginning_of(result)),
                Some(message) => format!("{key}: not done: {message}"),
            });
        }
        lines.join("\n")
    }

    fn result(&self, key: &str) -> Option<&ToolResult> {
        let position = self.steps.iter().position(|step| step.key == key)?;
        self.results.get(&position)
    }

    /// A value with its references replaced. Replacements are data: references inside them are not
    /// replaced.
    fn substitute(&self, value: &Value) -> Result<Value, StepError> {
        match value {
            Value::String(text) => self.substitute_text(text),
            Value::Array(items) => items.iter().map(|item| self.substitute(item)).collect(),
            Value::Object(fields) => self.substitute_fields(fields).map(Value::Object),
            other => Ok(other.clone()),
        }
    }

    fn substitute_fields(
        &self,
        fields: &Map<String, Value>,
    ) -> Result<Map<String, Value>, StepError> {
        let mut substituted = Map::new();
        for (name, value) in fields {
            substituted.insert(name.clone(), self.substitute(value)?);
        }
        Ok(substituted)
    }

    fn substitute_text(&self, text: &str) -> Result<Value, StepError> {
        let found = expressions(text);
        // A string that is only a reference takes the type of the value.
        if let [only] = found.as_slice()
            && only.range == (0..text.len())
        {
            return self.value_of(only);
        }
        let mut substituted = String::new();
        let mut done = 0;
        for expression in found {
            substituted.push_str(&text[done..expression.range.start]);
            substituted.push_str(&text_of(&self.value_of(&expression)?));
            done = expression.range.end;
        }
        substituted.push_str(&text[done..]);
        Ok(substituted.into())
    }

    fn value_of(&self, expression: &Expression) -> Result<Value, StepError> {
        if let Some(value) = self.found(expression) {
            return Ok(value.into_owned());
        }
        let Expression { step, path, .. } = expression;
        Err(match self.referred(step) {
            Some(_) => StepError::NoValue {
                step: step.clone(),
                path: path.join("."),
            },
            None => StepError::NoResult(step.clone()),
        })
    }

    /// What an expression stands for, if there is a result and it has that.
    fn found(&self, expression: &Expression) -> Option<Cow<'_, Value>> {
        let position = self.referred(&expression.step)?;
        let data = &self.results.get(&position)?.data;
        match self.parsed.get(&position) {
            // The whole result stays the text that it was.
            Some(parsed) if !expression.path.is_empty() => value_at(parsed, &expression.path),
            _ => value_at(data, &expression.path),
        }
    }

    /// The position of the step that a reference names, if it has a result.
    fn referred(&self, step: &str) -> Option<usize> {
        let keys: Vec<&str> = self.results().map(|step| step.key).collect();
        let key = key_of(step, &keys)?;
        self.steps.iter().position(|step| step.key == key)
    }
}

fn invalid(error: StepError) -> Box<ToolResult> {
    Box::new(ToolResult::error(
        ErrorCode::InvalidArguments,
        error.to_string(),
    ))
}

/// The value at a path. The path may lead into JSON inside a string.
fn value_at<'d>(data: &'d Value, path: &[String]) -> Option<Cow<'d, Value>> {
    let Some((first, rest)) = path.split_first() else {
        return Some(Cow::Borrowed(data));
    };
    match data {
        Value::Object(fields) => value_at(fields.get(first)?, rest),
        Value::Array(items) => value_at(items.get(first.parse::<usize>().ok()?)?, rest),
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            let inner: Value = serde_json::from_str(text).ok()?;
            Some(Cow::Owned(value_at(&inner, path)?.into_owned()))
        }
        _ => None,
    }
}

/// Takes the length of a value as JSON; `None` where less is left.
fn length_of(value: &Value, left: &mut usize) -> Option<()> {
    match value {
        Value::String(text) => take(text.len() + 3, left),
        Value::Array(items) => {
            take(2, left)?;
            for item in items {
                length_of(item, left)?;
            }
            Some(())
        }
        Value::Object(fields) => {
            take(2, left)?;
            for (name, value) in fields {
                take(name.len() + 4, left)?;
                length_of(value, left)?;
            }
            Some(())
        }
        // Numbers, booleans and null, about.
        _ => take(8, left),
    }
}

fn take(length: usize, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(length)?;
    Some(())
}

/// A reference to a step's result in an argument.
struct Reference {
    /// JSON pointer to the argument.
    pointer: String,
    step: String,
}

fn references(value: &Value, pointer: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    match value {
        Value::String(text) => {
            for Expression { step, .. } in expressions(text) {
                let pointer = pointer.to_owned();
                found.push(Reference { pointer, step });
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                found.extend(references(item, &format!("{pointer}/{index}")));
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let step = json::pointer_step(name);
                found.extend(references(value, &format!("{pointer}/{step}")));
            }
        }
        _ => {}
    }
    found
}

/// An expression `${step.path}` in a text.
struct Expression {
    range: std::ops::Range<usize>,
    step: String,
    path: Vec<String>,
}

fn expressions(text: &str) -> Vec<Expression> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(before) = text[from..].find("${") {
        let start = from + before;
        let Some(length) = text[start..].find('}') else {
            break;
        };
        let end = start + length;
        // `${1.items[0]}` means the same as `${1.items.0}`.
        let inner = text[start + 2..end].replace('[', ".").replace(']', "");
        let mut parts = inner.split('.').map(str::trim).map(str::to_owned);
        let step = parts.next().unwrap_or_default();
        found.push(Expression {
            range: start..end + 1,
            step,
            path: parts.filter(|part| !part.is_empty()).collect(),
        });
        from = end + 1;
    }
    found
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    }
}

fn quoted(value: &Value) -> String {
    excerpt(&value.to_string(), QUOTED_CHARS)
}

#[cfg(test)]
mod tests;
