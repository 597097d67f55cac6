//! Plans: what a model wants done, step by step. Read from whatever it says, checked whole, then
//! worked through. Pure.
//!
//! A step may use what an earlier one gave: `"${1.order.id}"` is the field `id` in the field
//! `order` of the result of step 1, with its type where the text is nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toolscout_index::Tool;
use utoipa::ToSchema;

use crate::agent::prompt::without_trailing_commas;
use crate::gate::{Change, Class, Decision, Judgement};
use crate::printable::excerpt;
use crate::tools::json::Unique;
use crate::tools::{Arguments, ErrorCode, Status, ToolResult, arguments};

/// Steps of a plan at most. A person should be able to read it before it runs.
pub const MAX_STEPS: usize = 32;
/// `{`s of a text that are tried as the beginning of a plan.
const MAX_CANDIDATES: usize = 64;
/// Characters of a text that problems quote.
const QUOTED_CHARS: usize = 80;

/// What a model has said.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// A plan.
    Plan(Plan),
    /// An answer, with nothing to do.
    Answer(String),
    /// Something that is meant as a plan and is none, with what is wrong.
    Broken(Vec<String>),
}

/// A plan as the model wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Its steps, in order; at least one.
    pub steps: Vec<Step>,
    /// What is to be said when all of them have succeeded.
    pub final_answer: Option<String>,
}

/// A step as the model wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name: what the model calls it, else its place from 1.
    pub key: String,
    /// The tool's name.
    pub action: String,
    /// Its arguments, with references.
    pub arguments: Arguments,
    /// Steps it has to wait for although it uses nothing of them.
    pub after: Vec<String>,
}

/// A step as it is shown before the plan runs.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PlannedStep {
    /// Its key.
    pub step: String,
    /// The tool's id, or the name that no tool has.
    pub tool: String,
    /// The arguments, normalised as far as they are known.
    pub arguments: Value,
    /// What the tool can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// What the policies say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// What was changed in the arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Steps whose success it needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A plan that was checked.
#[derive(Clone, Debug)]
pub struct CheckedPlan {
    /// As it is shown.
    pub shown: Vec<PlannedStep>,
    /// What is wrong with it, step by step; a plan with problems is not carried out.
    pub problems: Vec<String>,
    /// As it is worked through; empty when there are problems.
    pub execution: Execution,
}

/// Reads a model's words: pure JSON, fenced, in noise, or after other JSON. Words without a plan in
/// them are an answer and never become one.
pub fn read(text: &str) -> Reading {
    let starts = text
        .match_indices('{')
        .map(|(at, _)| at)
        .take(MAX_CANDIDATES);
    let found = starts.filter_map(|at| candidate(&text[at..])).next();
    found.unwrap_or_else(|| Reading::Answer(text.trim().to_owned()))
}

/// The plan at the beginning of a text; `None` when there is something else.
fn candidate(text: &str) -> Option<Reading> {
    let repaired;
    let (text, object) = match prefix::<Map<String, Value>>(text) {
        Ok(object) => (text, object),
        Err(_) => {
            repaired = without_trailing_commas(
                &text[..text.floor_char_boundary(arguments::MAX_ARGUMENT_BYTES)],
            );
            let object = prefix(&repaired).ok()?;
            (repaired.as_str(), object)
        }
    };
    let said = object
        .get("final_answer")
        .filter(|answer| !answer.is_null());
    let acts = object.get("actions").is_some_and(Value::is_array);
    if !acts && said.is_none() {
        return None;
    }
    Some(match prefix::<Unique>(text) {
        Ok(Unique(Value::Object(object))) => of_object(&object),
        Ok(_) => return None,
        Err(error) => Reading::Broken(vec![error.to_string()]),
    })
}

fn prefix<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    values.next().unwrap_or_else(|| serde_json::from_str(text))
}

fn of_object(object: &Map<String, Value>) -> Reading {
    let final_answer = object
        .get("final_answer")
        .filter(|answer| !answer.is_null())
        .map(text_of);
    let actions = object
        .get("actions")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
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
    let mut steps = Vec::new();
    let mut problems = Vec::new();
    for (at, action) in actions.iter().enumerate() {
        match step(at + 1, action) {
            Ok(step) if steps.iter().any(|other: &Step| other.key == step.key) => {
                problems.push(format!(
                    "two steps are called {:?}; give each its own name, or none",
                    step.key
                ));
            }
            Ok(step) => steps.push(step),
            Err(problem) => problems.push(format!("step {}: {problem}", at + 1)),
        }
    }
    if problems.is_empty() {
        Reading::Plan(Plan {
            steps,
            final_answer,
        })
    } else {
        Reading::Broken(problems)
    }
}

fn step(number: usize, action: &Value) -> Result<Step, String> {
    let fields = action
        .as_object()
        .ok_or_else(|| format!("{} is no action", quoted(action)))?;
    let name = ["action", "tool", "name"]
        .iter()
        .find_map(|key| fields.get(*key)?.as_str());
    let name = name
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .ok_or("it has no `action`; name a tool")?;
    let given = ["arguments", "args", "parameters"]
        .iter()
        .find_map(|key| fields.get(*key));
    let arguments = match given {
        None | Some(Value::Null) => Arguments::new(),
        Some(Value::Object(arguments)) => arguments.clone(),
        Some(Value::String(text)) => arguments::parse(text)?,
        Some(other) => {
            return Err(format!(
                "`arguments` must be an object, not {}",
                quoted(other)
            ));
        }
    };
    let key = ["step", "id"]
        .iter()
        .find_map(|key| fields.get(*key))
        .map(text_of)
        .filter(|key| !key.is_empty());
    let after = match ["after", "depends_on"]
        .iter()
        .find_map(|key| fields.get(*key))
    {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(steps)) => steps.iter().map(text_of).collect(),
        Some(one) => vec![text_of(one)],
    };
    Ok(Step {
        key: key.unwrap_or_else(|| number.to_string()),
        action: name.to_owned(),
        arguments,
        after,
    })
}

/// Checks a plan as a whole. `find` gives a tool by its name, or words about why there is none;
/// `judge` judges a call of which the arguments at these pointers are not known yet.
pub fn check(
    plan: &Plan,
    find: impl Fn(&str) -> Result<Arc<Tool>, String>,
    judge: impl Fn(&Arc<Tool>, Arguments, &[String]) -> Judgement,
) -> CheckedPlan {
    let mut checked = CheckedPlan {
        shown: Vec::new(),
        problems: Vec::new(),
        execution: Execution::default(),
    };
    let mut earlier: Vec<&str> = Vec::new();
    for step in &plan.steps {
        let references = references(&Value::Object(step.arguments.clone()), "");
        let (needs, problem) = needs(step, &references, &earlier, plan);
        let open: Vec<String> = references
            .into_iter()
            .map(|reference| reference.at)
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
        match find(&step.action) {
            Ok(tool) => {
                let judgement = judge(&tool, step.arguments.clone(), &open);
                shown.judged(&tool, &judgement);
                let arguments = step.arguments.clone();
                checked.execution.steps.push(Ready {
                    key: step.key.clone(),
                    tool,
                    arguments,
                    needs,
                });
            }
            Err(message) => shown.problem = shown.problem.or(Some(message)),
        }
        checked.problems.extend(
            shown
                .problem
                .iter()
                .map(|problem| format!("step {}: {problem}", step.key)),
        );
        checked.shown.push(shown);
        earlier.push(&step.key);
    }
    if !checked.problems.is_empty() {
        checked.execution = Execution::default();
    }
    checked.execution.final_answer = plan.final_answer.clone();
    checked
}

impl PlannedStep {
    fn judged(&mut self, tool: &Tool, judgement: &Judgement) {
        self.tool = tool.id.to_string();
        self.class = Some(judgement.ruling.class);
        self.decision = Some(judgement.ruling.decision);
        self.arguments = Value::Object(judgement.arguments.clone());
        self.changes = judgement.changes.clone();
        // What is denied fails as a step; what is wrong makes the plan wrong.
        let wrong = judgement
            .refusal
            .as_ref()
            .filter(|refusal| refusal.code == ErrorCode::InvalidArguments);
        self.problem = self
            .problem
            .take()
            .or(wrong.map(|refusal| refusal.message.clone()));
    }
}

/// The steps that a step needs, and what is wrong with that.
fn needs(
    step: &Step,
    references: &[Reference],
    earlier: &[&str],
    plan: &Plan,
) -> (BTreeSet<String>, Option<String>) {
    let keys: Vec<&str> = plan.steps.iter().map(|step| step.key.as_str()).collect();
    let mut needs = BTreeSet::new();
    for name in references
        .iter()
        .map(|reference| reference.step.as_str())
        .chain(step.after.iter().map(String::as_str))
    {
        let Some(key) = key_of(name, &keys) else {
            return (
                needs,
                Some(format!(
                    "it refers to step {:?}, which the plan does not have",
                    excerpt(name, QUOTED_CHARS)
                )),
            );
        };
        if key == step.key {
            return (needs, Some("it refers to its own result".to_owned()));
        }
        if !earlier.contains(&key) {
            return (
                needs,
                Some(format!(
                    "it refers to step {key}, which comes after it; steps run in order"
                )),
            );
        }
        needs.insert(key.to_owned());
    }
    (needs, None)
}

/// The step that a reference means: by its key, with or without `step` before it.
fn key_of<'a>(name: &str, keys: &[&'a str]) -> Option<&'a str> {
    let exact = keys.iter().find(|key| **key == name);
    let bare = name
        .strip_prefix("step")
        .map(|rest| rest.trim_start_matches(['_', ' ']));
    exact
        .or_else(|| keys.iter().find(|key| Some(**key) == bare))
        .copied()
}

/// A plan on its way, one step at a time.
#[derive(Clone, Debug, Default)]
pub struct Execution {
    steps: Vec<Ready>,
    outcome: Vec<(String, ToolResult)>,
    final_answer: Option<String>,
}

#[derive(Clone, Debug)]
struct Ready {
    key: String,
    tool: Arc<Tool>,
    arguments: Arguments,
    needs: BTreeSet<String>,
}

/// The next step of a plan.
#[derive(Clone, Debug)]
pub struct NextStep {
    /// Its key.
    pub key: String,
    /// The tool.
    pub tool: Arc<Tool>,
    /// Its arguments, references filled in; or why it cannot be made.
    pub arguments: Result<Arguments, ToolResult>,
}

impl Execution {
    /// The step whose result is not there yet; `None` when all are.
    pub fn next(&self) -> Option<NextStep> {
        let Ready {
            key,
            tool,
            arguments,
            needs,
        } = self.steps.get(self.outcome.len())?;
        let (key, tool) = (key.clone(), tool.clone());
        let failed = needs.iter().find(|need| {
            self.result(need)
                .is_none_or(|result| result.status == Status::Error)
        });
        if let Some(failed) = failed {
            let message = format!("step {failed} did not succeed, and this one needs it");
            return Some(NextStep {
                key,
                tool,
                arguments: Err(ToolResult::error(ErrorCode::Skipped, message)),
            });
        }
        let filled = match self.filled(&Value::Object(arguments.clone())) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Ok(Arguments::new()),
            Err(message) => Err(ToolResult::error(ErrorCode::InvalidArguments, message)),
        };
        Some(NextStep {
            key,
            tool,
            arguments: filled,
        })
    }

    /// Takes the result of the next step.
    pub fn record(&mut self, result: ToolResult) {
        if let Some(step) = self.steps.get(self.outcome.len()) {
            self.outcome.push((step.key.clone(), result));
        }
    }

    /// The outcome so far: one result for each step, by key.
    pub fn outcome(&self) -> Map<String, Value> {
        let value = |result: &ToolResult| serde_json::to_value(result).unwrap_or_default();
        self.outcome
            .iter()
            .map(|(key, result)| (key.clone(), value(result)))
            .collect()
    }

    /// The results so far, each with its step's key and tool.
    pub fn results(&self) -> impl Iterator<Item = (&str, &Tool, &ToolResult)> {
        self.steps
            .iter()
            .zip(&self.outcome)
            .map(|(step, (key, result))| (key.as_str(), &*step.tool, result))
    }

    /// What the plan says at its end: nothing where a step failed, since it was written before
    /// that.
    pub fn final_answer(&self) -> Option<String> {
        let all_good = self
            .outcome
            .iter()
            .all(|(_, result)| result.status == Status::Ok);
        let answer = self
            .final_answer
            .as_ref()
            .filter(|answer| all_good && !answer.trim().is_empty())?;
        self.filled(&Value::String(answer.clone()))
            .ok()
            .map(|answer| text_of(&answer))
    }

    /// The outcome in a line for each step.
    pub fn summary(&self) -> String {
        let line = |(key, result): &(String, ToolResult)| match &result.error_message {
            None => format!("{key}: done"),
            Some(message) => format!("{key}: not done: {message}"),
        };
        self.outcome.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn result(&self, key: &str) -> Option<&ToolResult> {
        self.outcome
            .iter()
            .find(|(step, _)| step == key)
            .map(|(_, result)| result)
    }

    /// A value with its references filled in. What is filled in is data: it is not looked into
    /// again.
    fn filled(&self, value: &Value) -> Result<Value, String> {
        match value {
            Value::String(text) => self.filled_text(text),
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(fields) => {
                let filled: Result<Map<String, Value>, String> = fields
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), self.filled(value)?)))
                    .collect();
                filled.map(Value::Object)
            }
            other => Ok(other.clone()),
        }
    }

    fn filled_text(&self, text: &str) -> Result<Value, String> {
        let found = expressions(text);
        if let [only] = found.as_slice()
            && only.range == (0..text.len())
        {
            return self.meant(only);
        }
        let mut filled = String::new();
        let mut done = 0;
        for expression in found {
            filled.push_str(&text[done..expression.range.start]);
            filled.push_str(&text_of(&self.meant(&expression)?));
            done = expression.range.end;
        }
        filled.push_str(&text[done..]);
        Ok(filled.into())
    }

    fn meant(&self, expression: &Expression) -> Result<Value, String> {
        let keys: Vec<&str> = self.outcome.iter().map(|(key, _)| key.as_str()).collect();
        let result = key_of(&expression.step, &keys).and_then(|key| self.result(key));
        let data = result
            .map(|result| &result.data)
            .ok_or_else(|| format!("step {} has no result", expression.step))?;
        let missing = || {
            format!(
                "the result of step {} has no {}",
                expression.step,
                expression.path.join(".")
            )
        };
        inside(data, &expression.path).ok_or_else(missing)
    }
}

/// What is at a path; of text that holds JSON, inside that.
fn inside(data: &Value, path: &[String]) -> Option<Value> {
    let Some((first, rest)) = path.split_first() else {
        return Some(data.clone());
    };
    match data {
        Value::Object(fields) => inside(fields.get(first)?, rest),
        Value::Array(items) => inside(items.get(first.parse::<usize>().ok()?)?, rest),
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            inside(&serde_json::from_str(text).ok()?, path)
        }
        _ => None,
    }
}

/// A reference and where it is.
struct Reference {
    at: String,
    step: String,
}

fn references(value: &Value, at: &str) -> Vec<Reference> {
    match value {
        Value::String(text) => {
            let here = |expression: Expression| Reference {
                at: at.to_owned(),
                step: expression.step,
            };
            expressions(text).into_iter().map(here).collect()
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, item)| references(item, &format!("{at}/{index}")))
            .collect(),
        Value::Object(fields) => {
            let pointer =
                |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            fields
                .iter()
                .flat_map(|(name, value)| references(value, &pointer(name)))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// `${step.path}` in a text.
struct Expression {
    range: std::ops::Range<usize>,
    step: String,
    path: Vec<String>,
}

fn expressions(text: &str) -> Vec<Expression> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(start) = text[from..].find("${").map(|at| from + at) {
        let Some(end) = text[start..].find('}').map(|at| start + at) else {
            break;
        };
        let inner = text[start + 2..end].replace('[', ".").replace(']', "");
        let mut parts = inner.split('.').map(|part| part.trim().to_owned());
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
