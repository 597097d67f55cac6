//! The gate: what stands between a model and everything it can call.
//!
//! A call goes through it whole, in this order: the [policies](policy) give it a class and a
//! decision; arguments that name a user are [held to the caller](identity); the rest is
//! [normalised](normalize) by the tool's schema and checked against it; the run's limits are
//! counted; a [person](approval) is asked where the decision says so;
//! [preconditions](precondition) are met; the [audit log](audit) is written; then, and only then, the tool is called.
//! There is no other way from an agent to a tool.

pub mod approval;
pub mod audit;
pub mod class;
pub mod definition;
pub mod identity;
pub mod ledger;
pub mod normalize;
pub mod pattern;
pub mod policy;
pub mod precondition;
pub mod redact;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use lru::LruCache;
use serde_json::{Value, json};
use toolscout_index::{Tool, ToolId};

pub use approval::{Answer, ApprovalRequest, Approvals, Approver};
pub use audit::AuditLog;
pub use class::Class;
pub use definition::Definition;
pub use ledger::Ledger;
pub use normalize::{Change, Why};
pub use pattern::Pattern;
pub use policy::{Decision, Policies, Rule, Ruling};

use crate::gate::audit::{AuditError, CallEntry, Entry, now_ms};
use crate::gate::precondition::{OnFailedCheck, Precondition, SubCall};
use crate::gate::redact::Redaction;
use crate::printable::excerpt;
use crate::tools::arguments::{self, Checker, Violation};
use crate::tools::{Arguments, Callable, ErrorCode, Status, ToolResult, execute};

/// Compiled schemas that are kept; a conversation uses some dozens of tools.
const MAX_CHECKERS: NonZeroUsize = NonZeroUsize::new(512).expect("is not zero");
/// Characters of a result that are told when a precondition does not hold.
const TOLD_CHARS: usize = 200;

/// A call on its way to a tool: what the model wants, unchecked.
#[derive(Clone, Debug)]
pub struct Call {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub tool: Arc<Tool>,
    /// The arguments.
    pub arguments: Arguments,
}

/// On whose behalf a run calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Who asked, for the audit log: a person at a terminal, or a key.
    pub who: String,
    /// The user whose name arguments may bear.
    pub identity: Option<String>,
    /// The conversation, or the session of an MCP client.
    pub conversation: String,
    /// The program that calls, as it names itself; for the audit log.
    pub client: Option<String>,
    /// May call only tools that change nothing.
    pub only_reads: bool,
}

/// Where the gate finds tools, those of preconditions included.
pub trait Directory: Send + Sync {
    /// The tool of this id.
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>>;

    /// What calls it, where it can be called.
    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>>;
}

/// One run at the gate: everything that its calls have in common.
#[derive(Clone, Copy)]
pub struct Passage<'a> {
    /// On whose behalf it calls.
    pub caller: &'a Caller,
    /// What it has used up.
    pub ledger: &'a Ledger,
    /// Where tools are.
    pub directory: &'a dyn Directory,
    /// Who asks a person.
    pub approver: &'a dyn Approver,
    /// Longest time of one call.
    pub call_timeout: Duration,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed {
    /// Its one result.
    pub result: ToolResult,
    /// How it went through.
    pub report: Report,
}

/// How a call went through the gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The class, the decision and its rule.
    pub ruling: Ruling,
    /// What was changed in the arguments.
    pub changes: Vec<Change>,
    /// What the person said who was asked.
    pub answer: Option<Answer>,
}

/// A call judged before anything happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The class, the decision and its rule.
    pub ruling: Ruling,
    /// The arguments as they would be sent.
    pub arguments: Arguments,
    /// How they differ from what was given.
    pub changes: Vec<Change>,
    /// What makes the call impossible whatever the policies say.
    pub refusal: Option<Refusal>,
}

/// Why a call is not made, in words for the model and the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub code: ErrorCode,
    /// What is wrong, and what to do next.
    pub message: String,
}

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Refusal {
            code,
            message: message.into(),
        }
    }
}

/// The gate. It is shared by all runs of an agent.
pub struct Gate {
    policies: Policies,
    redaction: Redaction,
    audit: Option<Arc<AuditLog>>,
    checkers: Mutex<LruCache<ToolId, Compiled>>,
}

/// A compiled schema with the tool it is of.
struct Compiled {
    tool: Arc<Tool>,
    checker: Arc<Checker>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}

/// What stops a call that is on its way in.
enum Halt {
    Refused(Refusal),
    DryRun,
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Halt::Refused(refusal)
    }
}

/// A call under judgement, and the tools whose preconditions led to it.
struct Case {
    call: Call,
    judgement: Judgement,
    answer: Option<Answer>,
    trail: Vec<ToolId>,
}

impl Gate {
    /// A gate that goes by these policies and writes no log.
    pub fn new(policies: Policies) -> Self {
        let redaction = Redaction::new(policies.secrets.clone());
        Gate {
            policies,
            redaction,
            audit: None,
            checkers: Mutex::new(LruCache::new(MAX_CHECKERS)),
        }
    }

    /// The same gate with an audit log. A call that cannot be written down is not made.
    pub fn with_audit(mut self, audit: Arc<AuditLog>) -> Self {
        self.audit = Some(audit);
        self
    }

    /// What it goes by.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Judges a call without making it.
    pub fn judge(&self, caller: &Caller, tool: &Arc<Tool>, given: Arguments) -> Judgement {
        self.judge_with(caller, tool, given, |_| true)
    }

    /// Judges a call of which some arguments are not known yet: only violations that `counts` says
    /// yes to count.
    pub fn judge_with(
        &self,
        caller: &Caller,
        tool: &Arc<Tool>,
        given: Arguments,
        counts: impl Fn(&Violation) -> bool,
    ) -> Judgement {
        let ruling = self.policies.ruling(tool);
        let (mut arguments, mut changes) = (given, Vec::new());
        if caller.only_reads && ruling.class != Class::ReadOnly {
            let refusal = Some(beyond_scope(caller, tool, ruling.class));
            return Judgement {
                ruling,
                arguments,
                changes,
                refusal,
            };
        }
        let bound = identity::enforce(
            &self.policies,
            tool,
            caller.identity.as_deref(),
            &mut arguments,
            &mut changes,
        );
        if let Err(message) = bound {
            let refusal = Some(Refusal::new(ErrorCode::Denied, message));
            return Judgement {
                ruling,
                arguments,
                changes,
                refusal,
            };
        }
        normalize::normalize(&tool.input_schema, &mut arguments, &mut changes);
        if let Err(message) =
            identity::confirm(&self.policies, tool, caller.identity.as_deref(), &arguments)
        {
            let refusal = Some(Refusal::new(ErrorCode::Denied, message));
            return Judgement {
                ruling,
                arguments,
                changes,
                refusal,
            };
        }
        let instance = Value::Object(arguments);
        let mut violations = self.checker(tool).violations(&instance);
        violations.retain(counts);
        let invalid = || {
            Refusal::new(
                ErrorCode::InvalidArguments,
                arguments::told(tool, &violations),
            )
        };
        let refusal = (!violations.is_empty()).then(invalid);
        let arguments = if let Value::Object(fields) = instance {
            fields
        } else {
            Arguments::new()
        };
        Judgement {
            ruling,
            arguments,
            changes,
            refusal,
        }
    }

    /// Lets a call through, or not; either way there is one result.
    pub async fn pass(&self, run: Passage<'_>, call: Call) -> Passed {
        self.pass_on(run, call, Vec::new()).await
    }

    /// Boxed, since preconditions are calls that have preconditions.
    fn pass_on<'a>(
        &'a self,
        run: Passage<'a>,
        call: Call,
        trail: Vec<ToolId>,
    ) -> BoxFuture<'a, Passed> {
        Box::pin(async move {
            // The caller may have found the tool a while ago, and the tool may have changed since.
            let call = Call {
                tool: run.directory.tool(&call.tool.id).unwrap_or(call.tool),
                ..call
            };
            let judgement = self.judge(run.caller, &call.tool, call.arguments.clone());
            let mut case = Case {
                call,
                judgement,
                answer: None,
                trail,
            };
            let result = match self.admit(run, &mut case).await {
                Ok(callable) => self.carry_out(run, &case, callable).await,
                Err(Halt::Refused(refusal)) => self.turn_away(run, &case, refusal),
                Err(Halt::DryRun) => self.rehearse(run, &case),
            };
            let Case {
                judgement: Judgement {
                    ruling, changes, ..
                },
                answer,
                ..
            } = case;
            Passed {
                result,
                report: Report {
                    ruling,
                    changes,
                    answer,
                },
            }
        })
    }

    /// Everything that can keep a call from being made, in order; what is left is to make it.
    async fn admit(&self, run: Passage<'_>, case: &mut Case) -> Result<Arc<dyn Callable>, Halt> {
        let Ruling {
            decision,
            rule,
            class,
            ..
        } = &case.judgement.ruling;
        let (decision, id) = (*decision, case.call.tool.id.clone());
        if decision == Decision::Deny {
            let message = format!("{id} ({class}) is denied by {rule}; do without it, and say so");
            return Err(Refusal::new(ErrorCode::Denied, message).into());
        }
        if let Some(refusal) = case.judgement.refusal.take() {
            return Err(refusal.into());
        }
        if decision == Decision::DryRun {
            return Err(Halt::DryRun);
        }
        let callable = run
            .directory
            .callable(&id)
            .ok_or_else(|| not_callable(&id))?;
        run.ledger
            .take(&case.judgement.ruling, &self.policies.limits)
            .map_err(|message| Refusal::new(ErrorCode::Limit, message))?;
        if decision == Decision::Ask {
            self.ask(run, case).await?;
            unchanged(run.directory, &case.call.tool)?;
        }
        for precondition in self.policies.preconditions_of(&id) {
            self.meet(run, case, precondition).await?;
        }
        Ok(callable)
    }

    async fn ask(&self, run: Passage<'_>, case: &mut Case) -> Result<(), Refusal> {
        let Case {
            call, judgement, ..
        } = &*case;
        let answer = run
            .approver
            .ask(ApprovalRequest {
                call: call.id.clone(),
                tool: call.tool.id.to_string(),
                description: call.tool.description.clone(),
                class: judgement.ruling.class,
                arguments: Value::Object(judgement.arguments.clone()),
                changes: judgement.changes.clone(),
                rule: judgement.ruling.rule.clone(),
            })
            .await;
        let id = &call.tool.id;
        let refused = match &answer {
            Answer::Approved { .. } => None,
            Answer::Refused { reason, .. } if reason.is_empty() => {
                Some(format!("{id} was refused by the user"))
            }
            Answer::Refused { reason, .. } => Some(format!("{id} was refused: {reason}")),
            Answer::Expired { after_ms } => Some(format!(
                "nobody allowed {id} within {after_ms} ms, so it is refused"
            )),
        };
        case.answer = Some(answer);
        refused.map_or(Ok(()), |message| {
            Err(Refusal::new(
                ErrorCode::Denied,
                format!("{message}; do not try it again in another way"),
            ))
        })
    }

    /// Sees to it that a precondition holds. What held once in a run is not asked again.
    async fn meet(
        &self,
        run: Passage<'_>,
        case: &Case,
        precondition: &Precondition,
    ) -> Result<(), Refusal> {
        let question = precondition.check.arguments_for(&case.judgement.arguments);
        let key = format!("{} {}", precondition.check.tool, Value::Object(question));
        if run.ledger.has_held(&key) {
            return Ok(());
        }
        let (id, asked) = (&case.call.tool.id, &precondition.check.tool);
        let result = self.sub_call(run, case, &precondition.check).await?;
        let unanswered =
            result.status == Status::Error && precondition.on_failed_check == OnFailedCheck::Refuse;
        if !precondition.holds(&result) {
            let told = excerpt(&result.to_model_text(), TOLD_CHARS);
            let remedy = precondition
                .otherwise
                .as_ref()
                .filter(|_| !unanswered)
                .ok_or_else(|| {
                    unmet(format!(
                        "{id} needs {asked} to agree first, and it says {told}"
                    ))
                })?;
            let made = self.sub_call(run, case, remedy).await?;
            if made.status == Status::Error {
                let told = excerpt(&made.to_model_text(), TOLD_CHARS);
                return Err(unmet(format!(
                    "{id} needs {} first, and that failed: {told}",
                    remedy.tool
                )));
            }
        }
        run.ledger.note_held(key);
        Ok(())
    }

    /// A call of the gate's own: through the gate like any other.
    async fn sub_call(
        &self,
        run: Passage<'_>,
        case: &Case,
        sub: &SubCall,
    ) -> Result<ToolResult, Refusal> {
        let id = &case.call.tool.id;
        let named = ToolId::parse(&sub.tool)
            .ok()
            .and_then(|sub_id| run.directory.tool(&sub_id));
        let tool = named.ok_or_else(|| {
            unmet(format!(
                "{id} needs {} first, and no tool has this id",
                sub.tool
            ))
        })?;
        let mut trail = case.trail.clone();
        trail.push(id.clone());
        if trail.contains(&tool.id) {
            let circle: Vec<&str> = trail.iter().chain([&tool.id]).map(ToolId::as_str).collect();
            return Err(unmet(format!(
                "the preconditions of {id} go in a circle: {}",
                circle.join(" -> ")
            )));
        }
        let arguments = sub.arguments_for(&case.judgement.arguments);
        let call = Call {
            id: format!("{}/{}", case.call.id, tool.id.name()),
            tool,
            arguments,
        };
        let passed = self.pass_on(run, call, trail).await;
        match passed.report.ruling.decision {
            Decision::DryRun => Err(unmet(format!(
                "{id} needs {} first, and that is a dry run",
                sub.tool
            ))),
            _ => Ok(passed.result),
        }
    }

    async fn carry_out(
        &self,
        run: Passage<'_>,
        case: &Case,
        callable: Arc<dyn Callable>,
    ) -> ToolResult {
        let entry = Entry::Begun {
            time_ms: now_ms(),
            call: Box::new(self.entry(run.caller, case, None)),
        };
        let open = match self.write(&entry) {
            Ok(begun) => OpenCall {
                gate: self,
                begun,
                tool: &case.call.tool.id,
                started: Instant::now(),
                closed: false,
            },
            Err(error) => return unwritten(&error),
        };
        let result = execute(callable, case.judgement.arguments.clone(), run.call_timeout).await;
        open.close(&result);
        result
    }

    fn turn_away(&self, run: Passage<'_>, case: &Case, refusal: Refusal) -> ToolResult {
        let call = Box::new(self.entry(run.caller, case, Some(refusal.message.clone())));
        let entry = Entry::Refused {
            time_ms: now_ms(),
            call,
            error_code: refusal.code,
        };
        match self.write(&entry) {
            Ok(_) => ToolResult::error(refusal.code, refusal.message),
            Err(error) => unwritten(&error),
        }
    }

    fn rehearse(&self, run: Passage<'_>, case: &Case) -> ToolResult {
        let entry = Entry::DryRun {
            time_ms: now_ms(),
            call: Box::new(self.entry(run.caller, case, None)),
        };
        let id = &case.call.tool.id;
        let before: Vec<&str> = self
            .policies
            .preconditions_of(id)
            .map(|about| about.check.tool.as_str())
            .collect();
        match self.write(&entry) {
            Ok(_) => ToolResult::ok(json!({
                "dry_run": true,
                "note": "nothing was called",
                "would_call": id,
                "class": case.judgement.ruling.class,
                "arguments": case.judgement.arguments,
                "changes": case.judgement.changes,
                "after_checking": before,
            })),
            Err(error) => unwritten(&error),
        }
    }

    fn entry(&self, caller: &Caller, case: &Case, reason: Option<String>) -> CallEntry {
        let Case {
            call,
            judgement,
            answer,
            trail,
        } = case;
        let changed = !judgement.changes.is_empty();
        CallEntry {
            who: caller.who.clone(),
            identity: caller.identity.clone(),
            conversation: caller.conversation.clone(),
            client: caller.client.clone(),
            call: call.id.clone(),
            tool: call.tool.id.to_string(),
            given: self.redaction.arguments(&call.arguments),
            sent: changed.then(|| self.redaction.arguments(&judgement.arguments)),
            changes: self.redaction.changes(&judgement.changes),
            class: judgement.ruling.class,
            decision: judgement.ruling.decision,
            rule: judgement.ruling.rule.clone(),
            answer: answer.clone(),
            on_behalf_of: trail.last().map(ToolId::to_string),
            reason,
        }
    }

    /// Writes to the log; without one, there is nothing to write and entries have no number.
    fn write(&self, entry: &Entry) -> Result<Option<i64>, AuditError> {
        self.audit
            .as_ref()
            .map(|audit| audit.append(entry))
            .transpose()
    }

    fn checker(&self, tool: &Arc<Tool>) -> Arc<Checker> {
        let mut checkers = self.checkers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = checkers.get(&tool.id)
            && (Arc::ptr_eq(&known.tool, tool) || known.tool.input_schema == tool.input_schema)
        {
            return known.checker.clone();
        }
        let checker = Arc::new(Checker::of(tool));
        checkers.put(
            tool.id.clone(),
            Compiled {
                tool: tool.clone(),
                checker: checker.clone(),
            },
        );
        checker
    }
}

/// A call that has begun; the log is told of its end even when its run is stopped first.
struct OpenCall<'a> {
    gate: &'a Gate,
    begun: Option<i64>,
    tool: &'a ToolId,
    started: Instant,
    closed: bool,
}

impl OpenCall<'_> {
    fn close(mut self, result: &ToolResult) {
        self.closed = true;
        self.write(result.status, result.error_code);
    }

    fn write(&self, status: Status, error_code: Option<ErrorCode>) {
        let Some(begun) = self.begun else { return };
        let took_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let tool = self.tool.to_string();
        let entry = Entry::Ended {
            time_ms: now_ms(),
            begun,
            tool,
            status,
            error_code,
            took_ms,
        };
        // The call is made; that its end is missing in the log shows there.
        if let Err(error) = self.gate.write(&entry) {
            tracing::error!(%error, begun, "the end of a call was not written to the audit log");
        }
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.closed {
            self.write(Status::Error, Some(ErrorCode::Cancelled));
        }
    }
}

/// Refuses a tool that is not any more what a person has said yes to.
fn unchanged(directory: &dyn Directory, shown: &Arc<Tool>) -> Result<(), Refusal> {
    let id = &shown.id;
    let what = match directory.tool(id) {
        Some(current) if Arc::ptr_eq(&current, shown) => return Ok(()),
        Some(current) if Definition::of(&current) == Definition::of(shown) => return Ok(()),
        Some(_) => "changed",
        None => "was taken away",
    };
    let message = format!(
        "{id} {what} while a person decided on it, so the answer does not count; look at it again"
    );
    Err(Refusal::new(ErrorCode::Denied, message))
}

fn beyond_scope(caller: &Caller, tool: &Tool, class: Class) -> Refusal {
    let (id, who) = (&tool.id, &caller.who);
    let message = format!(
        "{id} is {class}, and {who} may call only tools that read; this needs a key with the scope call"
    );
    Refusal::new(ErrorCode::Denied, message)
}

fn not_callable(id: &ToolId) -> Refusal {
    let message = format!(
        "{id} can be found but not called: no connected server offers it; use another tool"
    );
    Refusal::new(ErrorCode::NotCallable, message)
}

fn unmet(message: String) -> Refusal {
    Refusal::new(ErrorCode::Precondition, message)
}

fn unwritten(error: &AuditError) -> ToolResult {
    tracing::error!(%error, "a call was refused because the audit log cannot be written");
    ToolResult::error(
        ErrorCode::Denied,
        "the audit log cannot be written, and nothing is called without it",
    )
}

#[cfg(test)]
mod tests;
