//! The gate between an agent and the tools it can call.
//!
//! Every call passes these steps, in this order: the [policies](policy) give it a class and a
//! decision; arguments that name a user are [bound to the caller](identity); the other arguments
//! are [normalized](normalize) and validated by the tool's schema; the run's limits are checked; a
//! [person](approval) is asked for approval where the decision requires it;
//! [preconditions](precondition) are met; the [audit log](audit) is written; the tool is called.
//! An agent has no other way to a tool.

pub mod approval;
pub mod audit;
pub mod class;
mod declared;
pub mod defaults;
pub mod definition;
pub mod identity;
pub mod ledger;
pub mod normalize;
pub mod pattern;
pub mod policy;
pub mod precondition;
pub mod redact;
pub mod text_fields;

use std::collections::BTreeSet;
use std::fmt;
use std::mem;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use lru::LruCache;
use parking_lot::Mutex;
use serde_json::{Value, json};
use toolscout_index::{Tool, ToolId};

pub use approval::{
    Answer, ApprovalBoard, ApprovalRequest, Approvals, Approver, BoardError, OpenApproval,
    WaitingApproval,
};
pub use audit::AuditLog;
pub use class::Class;
pub use definition::Definition;
pub use ledger::Ledger;
pub use normalize::{Change, ChangeReason};
pub use pattern::Pattern;
pub use policy::{AppliedRule, Decision, Policies, Rule};

use crate::gate::audit::{AuditError, CallEntry, Entry, now_ms};
use crate::gate::precondition::{OnError, Precondition, SubCall};
use crate::gate::redact::Redaction;
use crate::tools::arguments::{self, Checker, Violation};
use crate::tools::{
    Arguments, Callable, ErrorCode, OwnResult, Status, ToolResult, execute, operation,
};
use crate::usage::{CallUse, Origin, Place, Recorder};
use toolscout_base::clock::millis;
use toolscout_base::printable::excerpt;

/// The field of the metadata of what passes as a tool and is none: its calls are no use of a tool.
pub const NO_TOOL: &str = "toolscout_no_tool";
/// Compiled schemas in the cache; a conversation uses some dozens of tools.
const MAX_CHECKERS: NonZeroUsize = NonZeroUsize::new(512).expect("is not zero");
/// Characters of a check's result that a refusal quotes.
const RESULT_EXCERPT_CHARS: usize = 200;

/// A call as the model wrote it, unchecked.
#[derive(Clone, Debug)]
pub struct Call {
    /// The call's id.
    pub id: String,
    /// The tool as the catalog has it.
    pub tool: Arc<Tool>,
    /// The arguments as the model gave them.
    pub arguments: Arguments,
    /// True for a step of a plan. Where it only reads, safe defaults are filled in.
    pub is_plan_step: bool,
}

/// On whose behalf a run calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The person at the terminal or the key, for the audit log.
    pub who: String,
    /// The user whom arguments may name.
    pub identity: Option<String>,
    /// The conversation, or the session of an MCP client.
    pub conversation: String,
    /// The calling program, as it names itself; for the audit log.
    pub client: Option<String>,
    /// Through which catalog and profile it calls; for the record of use.
    pub place: Place,
    /// Restricts the caller to read-only tools.
    pub only_reads: bool,
    /// Restricts the caller to tools of these classes.
    pub classes: Option<BTreeSet<Class>>,
}

impl Caller {
    /// Who uses tools, for the record of use.
    pub fn origin(&self) -> Origin {
        Origin {
            place: self.place.clone(),
            who: self.who.clone(),
            session: Some(self.conversation.clone()),
        }
    }
}

/// Looks up tools, those of preconditions included.
pub trait Directory: Send + Sync {
    /// The tool with this id.
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>>;

    /// The implementation of a tool; `None` when nothing here can call it.
    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>>;
}

/// What all calls of one run share.
#[derive(Clone, Copy)]
pub struct GateContext<'a> {
    /// On whose behalf the run calls.
    pub caller: &'a Caller,
    /// The calls made so far, counted against the limits.
    pub ledger: &'a Ledger,
    /// Looks up tools.
    pub directory: &'a dyn Directory,
    /// Asks a person for approval.
    pub approver: &'a dyn Approver,
    /// Longest time of one call.
    pub call_timeout: Duration,
}

/// The result of a call and how the gate decided on it.
pub struct CallOutcome {
    /// The one result of the call.
    pub result: ToolResult,
    /// The answer in the tool's own form, with its secrets. `None` if the call was not made, or if its
    /// tool has no form of its own.
    pub own: Option<OwnResult>,
    /// The gate's decision and changes.
    pub report: Report,
}

impl CallOutcome {
    /// Takes the answer in the tool's own form, if it is of this type.
    pub fn take_own<T: 'static>(&mut self) -> Option<T> {
        let own = self.own.take()?.downcast::<T>().ok()?;
        Some(*own)
    }

    /// True for a call that was made and succeeded.
    pub fn has_succeeded(&self) -> bool {
        self.report.is_of_call(&self.result)
    }
}

/// How the gate handled a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The class, the decision and its rule.
    pub applied_rule: AppliedRule,
    /// Changes made to the arguments.
    pub changes: Vec<Change>,
    /// The person's answer, if one was asked.
    pub answer: Option<Answer>,
    /// What could not be checked although the call was made.
    pub warnings: Vec<String>,
}

impl Report {
    /// True where this is the result of a call that was made and succeeded, and not that of a dry run.
    pub fn is_of_call(&self, result: &ToolResult) -> bool {
        result.status == Status::Ok && self.applied_rule.decision != Decision::DryRun
    }
}

/// A call checked against policies and schema, not yet made.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedCall {
    /// The class, the decision and its rule.
    pub applied_rule: AppliedRule,
    /// The arguments as they would be sent.
    pub arguments: Arguments,
    /// How they differ from the given ones.
    pub changes: Vec<Change>,
    /// Why the call is impossible even if the policies allow it.
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

    fn denied(reason: impl ToString) -> Self {
        Refusal::new(ErrorCode::Denied, reason.to_string())
    }
}

/// Decides on calls and makes the allowed ones. All runs of an agent share one.
///
/// - Guarantee: a call is made only after its rule, schema, limits and approval allow it and the
///   audit log, if there is one, holds it. The arguments sent are those that were approved.
/// - Cost: a schema is compiled once and cached; a call waits for a person at most the policies'
///   `approval_timeout_s`.
/// - Failure: each call gets one result. What is not made is a [`Refusal`], in words for the model.
pub struct Gate {
    policies: Policies,
    redaction: Redaction,
    audit: Option<Arc<AuditLog>>,
    usage: Recorder,
    checkers: Mutex<LruCache<ToolId, CachedChecker>>,
}

/// A compiled schema and the tool it belongs to.
struct CachedChecker {
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

/// Why a call is not made.
enum NotMade {
    Refused(Refusal),
    DryRun,
}

impl From<Refusal> for NotMade {
    fn from(refusal: Refusal) -> Self {
        NotMade::Refused(refusal)
    }
}

/// A call that is being decided on.
struct PendingCall {
    call: Call,
    checked: CheckedCall,
    answer: Option<Answer>,
    /// Checks that failed and that the policies do without.
    warnings: Vec<String>,
    /// The tools whose preconditions led to this call, outermost first.
    required_by: Vec<ToolId>,
}

impl Gate {
    /// A gate with these policies and without an audit log.
    pub fn new(policies: Policies) -> Self {
        let redaction = Redaction::new(policies.secrets.clone());
        Gate {
            policies,
            redaction,
            audit: None,
            usage: Recorder::default(),
            checkers: Mutex::new(LruCache::new(MAX_CHECKERS)),
        }
    }

    /// Adds an audit log. A call that cannot be logged is not made.
    pub fn with_audit(mut self, audit: Arc<AuditLog>) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Records calls. Who finds tools for calls through this gate records searches there too.
    pub fn with_usage(mut self, usage: Recorder) -> Self {
        self.usage = usage;
        self
    }

    /// Records the use of tools.
    pub fn usage(&self) -> &Recorder {
        &self.usage
    }

    /// The policies it applies.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    /// Decides which values are secrets.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// Adds an entry to the audit log, if there is one.
    ///
    /// # Errors
    /// [`AuditError::Database`].
    pub fn record(&self, entry: &Entry) -> Result<(), AuditError> {
        self.append(entry).map(drop)
    }

    /// Checks a call without making it.
    pub fn check(&self, caller: &Caller, tool: &Arc<Tool>, given: Arguments) -> CheckedCall {
        self.check_call(caller, tool, false, given, |_| true)
    }

    /// Checks a step of a plan some of whose arguments are not known yet. Violations for which
    /// `counts` returns false are ignored.
    pub fn check_step(
        &self,
        caller: &Caller,
        tool: &Arc<Tool>,
        given: Arguments,
        counts: impl Fn(&Violation) -> bool,
    ) -> CheckedCall {
        self.check_call(caller, tool, true, given, counts)
    }

    fn check_call(
        &self,
        caller: &Caller,
        tool: &Arc<Tool>,
        is_plan_step: bool,
        given: Arguments,
        counts: impl Fn(&Violation) -> bool,
    ) -> CheckedCall {
        let mut checked = CheckedCall {
            applied_rule: self.policies.applied_rule(tool),
            arguments: given,
            changes: Vec::new(),
            refusal: None,
        };
        // What a precondition will set may be missing until then.
        let mut set_later = BTreeSet::new();
        for precondition in self.policies.preconditions_of(&tool.id) {
            for name in precondition.set.keys() {
                set_later.insert(format!("/{name}"));
            }
        }
        let counts =
            |violation: &Violation| !set_later.contains(&violation.path) && counts(violation);
        let arguments = self.check_arguments(caller, tool, is_plan_step, &mut checked, counts);
        checked.refusal = arguments.err();
        checked
    }

    /// Normalizes the arguments in place and validates them.
    fn check_arguments(
        &self,
        caller: &Caller,
        tool: &Arc<Tool>,
        is_plan_step: bool,
        checked: &mut CheckedCall,
        counts: impl Fn(&Violation) -> bool,
    ) -> Result<(), Refusal> {
        // The class by the policies, which can make the tools of an untrusted server count as
        // changing.
        let class = checked.applied_rule.class;
        if caller.only_reads && class != Class::ReadOnly {
            return Err(outside_scope(caller, tool, class));
        }
        if let Some(classes) = &caller.classes
            && !classes.contains(&class)
        {
            return Err(outside_classes(classes, tool, class));
        }
        let identity = caller.identity.as_deref();
        let (arguments, changes) = (&mut checked.arguments, &mut checked.changes);
        // Before the defaults: a user that was left out becomes the caller, whatever the default.
        identity::enforce(&self.policies, tool, identity, arguments, changes)
            .map_err(Refusal::denied)?;
        // Never for a call that changes something: a default that is sent overwrites what is there.
        if is_plan_step && class == Class::ReadOnly {
            self.policies
                .safe_defaults
                .fill_in(tool, arguments, changes);
        }
        // A search for "btc" must stay one; only what changes something gets the usual form.
        let fields = match class {
            Class::ReadOnly => None,
            _ => Some(self.policies.normalize.of(&tool.id)),
        };
        for name in operation::unwritable_nulls(tool, arguments) {
            normalize::remove_null(&name, arguments, changes);
        }
        normalize::normalize(&tool.input_schema, fields, arguments, changes);
        // Filled in defaults and unpacked JSON may name another user.
        identity::confirm(&self.policies, tool, identity, arguments).map_err(Refusal::denied)?;
        // The validator takes a `Value`: moving the arguments in and out again saves a clone.
        let instance = Value::Object(mem::take(&mut checked.arguments));
        let mut violations = self.checker(tool).violations(&instance);
        if let Value::Object(arguments) = instance {
            checked.arguments = arguments;
        }
        violations.retain(counts);
        if violations.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::InvalidArguments,
            arguments::describe_violations(tool, &violations),
        ))
    }

    /// Decides on a call and makes it if allowed. There is exactly one result either way.
    pub async fn pass(&self, context: GateContext<'_>, call: Call) -> CallOutcome {
        self.pass_boxed(context, call, Vec::new()).await
    }

    /// Boxed because it recurses: preconditions are calls that have preconditions.
    fn pass_boxed<'a>(
        &'a self,
        context: GateContext<'a>,
        call: Call,
        required_by: Vec<ToolId>,
    ) -> BoxFuture<'a, CallOutcome> {
        Box::pin(async move {
            // The caller may have looked the tool up a while ago, and it may have changed since.
            let call = Call {
                tool: context.directory.tool(&call.tool.id).unwrap_or(call.tool),
                ..call
            };
            // The audit log shows the arguments as they were given, too.
            let (caller, given) = (context.caller, call.arguments.clone());
            let checked = self.check_call(caller, &call.tool, call.is_plan_step, given, |_| true);
            let mut pending = PendingCall {
                call,
                checked,
                answer: None,
                warnings: Vec::new(),
                required_by,
            };
            self.usage
                .decided(pending.checked.applied_rule.decision.as_str());
            let (result, own) = match self.admit(context, &mut pending).await {
                Ok(callable) => self.execute_logged(context, &pending, callable).await,
                Err(NotMade::Refused(refusal)) => (self.refuse(context, &pending, refusal), None),
                Err(NotMade::DryRun) => (self.dry_run(context, &pending), None),
            };
            CallOutcome {
                result,
                own,
                report: Report {
                    applied_rule: pending.checked.applied_rule,
                    changes: pending.checked.changes,
                    answer: pending.answer,
                    warnings: pending.warnings,
                },
            }
        })
    }

    /// Applies everything that can prevent a call, in order. Returns what to call.
    async fn admit(
        &self,
        context: GateContext<'_>,
        pending: &mut PendingCall,
    ) -> Result<Arc<dyn Callable>, NotMade> {
        let AppliedRule {
            decision,
            rule,
            class,
            ..
        } = &pending.checked.applied_rule;
        let (decision, id) = (*decision, pending.call.tool.id.clone());
        // Before the arguments' own problems: a model that reads how to correct a call would try a
        // denied one again.
        if decision == Decision::Deny {
            let message = format!("{id} ({class}) is denied by {rule}; do without it, and say so");
            return Err(Refusal::new(ErrorCode::Denied, message).into());
        }
        if let Some(refusal) = pending.checked.refusal.take() {
            return Err(refusal.into());
        }
        // Before the lookup, so that a tool without a connected server can be tried out.
        if decision == Decision::DryRun {
            return Err(NotMade::DryRun);
        }
        let Some(callable) = context.directory.callable(&id) else {
            return Err(not_callable(&pending.call.tool).into());
        };
        // Counted before a person is asked: a loop of requests for approval is limited too.
        let rule = &pending.checked.applied_rule;
        if let Err(message) = context.ledger.take(rule, &self.policies) {
            return Err(Refusal::new(ErrorCode::Limit, message).into());
        }
        if decision == Decision::Ask {
            self.request_approval(context, pending).await?;
            // The person may have taken minutes, in which a server can replace the tool.
            ensure_unchanged(context.directory, &pending.call.tool)?;
        }
        // Last, so that what a precondition says is as recent as possible when the call is made.
        let mut is_changed = false;
        for precondition in self.policies.preconditions_of(&id) {
            let values = self
                .ensure_precondition(context, pending, precondition)
                .await?;
            is_changed |= set_arguments(&mut pending.checked, values);
        }
        // What a failed check was to set may still be missing.
        if is_changed || !pending.warnings.is_empty() {
            self.check_again(context.caller, pending)?;
        }
        if is_changed && decision == Decision::Ask {
            // The person has seen other arguments.
            self.request_approval(context, pending).await?;
            ensure_unchanged(context.directory, &pending.call.tool)?;
        }
        Ok(callable)
    }

    /// Checks the arguments that preconditions have changed.
    fn check_again(&self, caller: &Caller, pending: &mut PendingCall) -> Result<(), Refusal> {
        let PendingCall { call, checked, .. } = pending;
        self.check_arguments(caller, &call.tool, call.is_plan_step, checked, |_| true)
    }

    async fn request_approval(
        &self,
        context: GateContext<'_>,
        pending: &mut PendingCall,
    ) -> Result<(), Refusal> {
        let PendingCall { call, checked, .. } = &*pending;
        let request = ApprovalRequest {
            call: call.id.clone(),
            tool: call.tool.id.to_string(),
            description: call.tool.description.clone(),
            class: checked.applied_rule.class,
            arguments: Value::Object(checked.arguments.clone()),
            changes: checked.changes.clone(),
            rule: checked.applied_rule.rule.clone(),
        };
        let callable = context.directory.callable(&call.tool.id);
        let request = match callable.and_then(|tool| tool.sent(&checked.arguments)) {
            Some(sent) => request.with_sent(&sent, &self.redaction),
            None => request,
        };
        // No lock is held here: the wait lasts until a person answers or the timeout.
        let answer = context.approver.ask(request).await;
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
        pending.answer = Some(answer);
        let Some(reason) = refused else { return Ok(()) };
        Err(Refusal::new(
            ErrorCode::Denied,
            format!("{reason}; do not try it again in another way"),
        ))
    }

    /// Checks a precondition, and makes the call that establishes it where the check fails. Returns
    /// the arguments that it sets. A precondition that held once in a run is not checked again.
    async fn ensure_precondition(
        &self,
        context: GateContext<'_>,
        pending: &mut PendingCall,
        precondition: &Precondition,
    ) -> Result<Arguments, Refusal> {
        let check = &precondition.check;
        // The check's arguments are part of the key: another order needs its own check.
        let arguments = check.arguments_for(&pending.checked.arguments);
        let key = format!("{} {}", check.tool, Value::Object(arguments));
        if let Some(values) = context.ledger.satisfied(&key) {
            return Ok(values);
        }
        let result = if precondition.lacks_its_subject(&pending.checked.arguments) {
            ToolResult::ok(Value::Null)
        } else {
            self.call_required(context, pending, check).await?
        };
        if precondition.on_error == OnError::Continue && has_failed(&result) {
            // Not marked as satisfied: the next call checks again.
            pending.warnings.push(unchecked(check, &result));
            return Ok(Arguments::new());
        }
        let values = if precondition.holds(&result) {
            precondition.values_of(&result)
        } else {
            self.establish(context, pending, precondition, &result)
                .await?
        };
        // Only now: a precondition that could not be established is checked again by the next call.
        context.ledger.mark_satisfied(key, values.clone());
        Ok(values)
    }

    /// Makes the call that establishes a precondition whose check gave `result`. Returns the
    /// arguments that it sets.
    async fn establish(
        &self,
        context: GateContext<'_>,
        pending: &mut PendingCall,
        precondition: &Precondition,
        result: &ToolResult,
    ) -> Result<Arguments, Refusal> {
        let id = pending.call.tool.id.clone();
        // A check that failed is no answer, unless the settings count its error as a no.
        let means_no = precondition.on_error == OnError::No
            && result.error_code != Some(ErrorCode::UnknownTool);
        let has_answer = result.status == Status::Ok || means_no;
        let (Some(remedy), true) = (&precondition.otherwise, has_answer) else {
            return Err(precondition_failed(format!(
                "{id} needs {} to agree first, and it says {}",
                precondition.check.tool,
                excerpt(&result.to_model_text(), RESULT_EXCERPT_CHARS)
            )));
        };
        let result = self.call_required(context, pending, remedy).await?;
        if result.status == Status::Error {
            return Err(precondition_failed(format!(
                "{id} needs {} first, and that failed: {}",
                remedy.tool,
                excerpt(&result.to_model_text(), RESULT_EXCERPT_CHARS)
            )));
        }
        let values = precondition.values_of(&result);
        for (name, pointer) in &precondition.set {
            if !values.contains_key(name) {
                return Err(precondition_failed(format!(
                    "{id} needs `{name}` from {}, whose result has nothing at {pointer}: {}",
                    remedy.tool,
                    excerpt(&result.to_model_text(), RESULT_EXCERPT_CHARS)
                )));
            }
        }
        Ok(values)
    }

    /// Makes a call that a precondition requires. It goes through the gate like any other.
    async fn call_required(
        &self,
        context: GateContext<'_>,
        pending: &mut PendingCall,
        sub: &SubCall,
    ) -> Result<ToolResult, Refusal> {
        let id = &pending.call.tool.id;
        let Some(tool) = find(context.directory, &sub.tool) else {
            let message = format!("{id} needs {} first, and no tool has this id", sub.tool);
            return Ok(ToolResult::error(ErrorCode::UnknownTool, message));
        };
        let mut required_by = pending.required_by.clone();
        required_by.push(id.clone());
        // A tool may occur once on the way, so the recursion ends after as many levels as there are
        // tools.
        if required_by.contains(&tool.id) {
            let circle = required_by.iter().chain([&tool.id]);
            let circle: Vec<&str> = circle.map(ToolId::as_str).collect();
            return Err(precondition_failed(format!(
                "the preconditions of {id} go in a circle: {}",
                circle.join(" -> ")
            )));
        }
        let call = Call {
            id: format!("{}/{}", pending.call.id, tool.id.name()),
            arguments: sub.arguments_for(&pending.checked.arguments),
            tool,
            is_plan_step: false,
        };
        let outcome = self.pass_boxed(context, call, required_by).await;
        if outcome.report.applied_rule.decision == Decision::DryRun {
            return Err(precondition_failed(format!(
                "{id} needs {} first, and that is a dry run",
                sub.tool
            )));
        }
        pending.warnings.extend(outcome.report.warnings);
        Ok(outcome.result)
    }

    /// Makes an admitted call, with audit entries before and after it.
    async fn execute_logged(
        &self,
        context: GateContext<'_>,
        pending: &PendingCall,
        callable: Arc<dyn Callable>,
    ) -> (ToolResult, Option<OwnResult>) {
        let entry = Entry::Begun {
            time_ms: now_ms(),
            call: Box::new(self.call_entry(context.caller, pending, None)),
        };
        // Written before the call, so that a call whose process dies is in the log. `OpenCall`
        // writes the end also when this future is dropped.
        let open = match self.append(&entry) {
            Ok(begun) => OpenCall {
                gate: self,
                begun,
                caller: context.caller,
                tool: &pending.call.tool,
                started: Instant::now(),
                closed: false,
            },
            Err(error) => return (not_logged(&error), None),
        };
        let arguments = pending.checked.arguments.clone();
        let (result, own) = execute(callable, arguments, context.call_timeout).await;
        let result = result.without_secrets();
        open.close(&result);
        (result, own)
    }

    fn refuse(
        &self,
        context: GateContext<'_>,
        pending: &PendingCall,
        refusal: Refusal,
    ) -> ToolResult {
        let reason = Some(refusal.message.clone());
        let entry = Entry::Refused {
            time_ms: now_ms(),
            call: Box::new(self.call_entry(context.caller, pending, reason)),
            error_code: refusal.code,
        };
        let result = match self.append(&entry) {
            Ok(_) => ToolResult::error(refusal.code, refusal.message),
            Err(error) => not_logged(&error),
        };
        self.record_call(context.caller, &pending.call.tool, &result, None);
        result
    }

    /// Records a call that has ended or was refused. Dry runs are no calls.
    fn record_call(
        &self,
        caller: &Caller,
        tool: &Tool,
        result: &ToolResult,
        took: Option<Duration>,
    ) {
        if tool.metadata.contains_key(NO_TOOL) {
            return;
        }
        let text = match self.usage.is_on() {
            true => result.to_model_text(),
            false => String::new(),
        };
        self.usage.called(CallUse {
            origin: caller.origin(),
            tool: tool.id.clone(),
            error: result.error_code,
            took,
            result_bytes: text.len(),
            result: text,
        });
    }

    fn dry_run(&self, context: GateContext<'_>, pending: &PendingCall) -> ToolResult {
        let entry = Entry::DryRun {
            time_ms: now_ms(),
            call: Box::new(self.call_entry(context.caller, pending, None)),
        };
        if let Err(error) = self.append(&entry) {
            return not_logged(&error);
        }
        let id = &pending.call.tool.id;
        let preconditions = self.policies.preconditions_of(id);
        let checks: Vec<&str> = preconditions.map(|one| one.check.tool.as_str()).collect();
        ToolResult::ok(json!({
            "dry_run": true,
            "note": "nothing was called",
            "would_call": id,
            "class": pending.checked.applied_rule.class,
            "arguments": pending.checked.arguments,
            "changes": pending.checked.changes,
            "after_checking": checks,
        }))
    }

    fn call_entry(
        &self,
        caller: &Caller,
        pending: &PendingCall,
        reason: Option<String>,
    ) -> CallEntry {
        let PendingCall {
            call,
            checked,
            answer,
            warnings,
            required_by,
        } = pending;
        let sent = match checked.changes.is_empty() {
            true => None,
            false => Some(self.redaction.arguments(&checked.arguments)),
        };
        CallEntry {
            who: caller.who.clone(),
            identity: caller.identity.clone(),
            conversation: caller.conversation.clone(),
            client: caller.client.clone(),
            call: call.id.clone(),
            tool: call.tool.id.to_string(),
            // What the model wrote and what was sent, so that a changed argument can be traced.
            given: self.redaction.arguments(&call.arguments),
            sent,
            changes: self.redaction.changes(&checked.changes),
            class: checked.applied_rule.class,
            decision: checked.applied_rule.decision,
            rule: checked.applied_rule.rule.clone(),
            answer: answer.clone(),
            warnings: warnings.clone(),
            on_behalf_of: required_by.last().map(ToolId::to_string),
            reason,
        }
    }

    /// Appends to the audit log and returns the entry's number; `None` without a log.
    fn append(&self, entry: &Entry) -> Result<Option<i64>, AuditError> {
        match &self.audit {
            Some(audit) => Ok(Some(audit.append(entry)?)),
            None => Ok(None),
        }
    }

    fn checker(&self, tool: &Arc<Tool>) -> Arc<Checker> {
        let mut checkers = self.checkers.lock();
        // A tool of the same id may have a new schema; comparing pointers first is the fast path.
        if let Some(known) = checkers.get(&tool.id)
            && (Arc::ptr_eq(&known.tool, tool) || known.tool.input_schema == tool.input_schema)
        {
            return known.checker.clone();
        }
        let checker = Arc::new(Checker::of(tool));
        checkers.put(
            tool.id.clone(),
            CachedChecker {
                tool: tool.clone(),
                checker: checker.clone(),
            },
        );
        checker
    }
}

/// A call whose begin is in the audit log. Its end is logged even when the run is stopped first.
struct OpenCall<'a> {
    gate: &'a Gate,
    begun: Option<i64>,
    caller: &'a Caller,
    tool: &'a Tool,
    started: Instant,
    closed: bool,
}

impl OpenCall<'_> {
    fn close(mut self, result: &ToolResult) {
        self.closed = true;
        self.end(result);
    }

    fn end(&self, result: &ToolResult) {
        let took = self.started.elapsed();
        self.gate
            .record_call(self.caller, self.tool, result, Some(took));
        let Some(begun) = self.begun else { return };
        let entry = Entry::Ended {
            time_ms: now_ms(),
            begun,
            tool: self.tool.id.to_string(),
            status: result.status,
            error_code: result.error_code,
            took_ms: millis(took),
        };
        // The call is made already; the log shows that its end is missing.
        if let Err(error) = self.gate.append(&entry) {
            tracing::error!(%error, begun, "the end of a call was not written to the audit log");
        }
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.closed {
            self.end(&ToolResult::error(ErrorCode::Cancelled, ""));
        }
    }
}

fn find(directory: &dyn Directory, id: &str) -> Option<Arc<Tool>> {
    directory.tool(&ToolId::parse(id).ok()?)
}

/// Refuses a tool that is no longer the one that a person approved.
fn ensure_unchanged(directory: &dyn Directory, approved: &Arc<Tool>) -> Result<(), Refusal> {
    let id = &approved.id;
    let what = match directory.tool(id) {
        Some(current) if Arc::ptr_eq(&current, approved) => return Ok(()),
        Some(current) if Definition::of(&current) == Definition::of(approved) => return Ok(()),
        Some(_) => "changed",
        None => "was removed",
    };
    let message = format!(
        "{id} {what} while a person decided on it, so the answer does not count; look at it again"
    );
    Err(Refusal::denied(message))
}

fn outside_scope(caller: &Caller, tool: &Tool, class: Class) -> Refusal {
    let (id, who) = (&tool.id, &caller.who);
    let message = format!(
        "{id} is {class}, and {who} may call only tools that read; this needs a key with the scope call"
    );
    Refusal::new(ErrorCode::Denied, message)
}

fn outside_classes(classes: &BTreeSet<Class>, tool: &Tool, class: Class) -> Refusal {
    let allowed: Vec<&str> = classes.iter().copied().map(Class::name).collect();
    let message = format!(
        "{} is {class}, and only tools of the classes {} may be called here; use another tool",
        tool.id,
        allowed.join(", ")
    );
    Refusal::new(ErrorCode::Denied, message)
}

fn not_callable(tool: &Tool) -> Refusal {
    let server = tool.id.server();
    let why = if tool.metadata.contains_key("openapi") {
        format!(
            "it is an operation of an API, and no `[[operations]]` of a profile (--profile FILE) has server = {server:?}"
        )
    } else {
        "no connected server offers it (--mcp FILE connects MCP servers)".to_owned()
    };
    let message = format!(
        "{} can be found but not called: {why}; use another tool",
        tool.id
    );
    Refusal::new(ErrorCode::NotCallable, message)
}

/// Sets arguments to what a precondition gave, and notes the changes. False if all had these values.
fn set_arguments(checked: &mut CheckedCall, values: Arguments) -> bool {
    let before = checked.changes.len();
    for (name, to) in values {
        let from = checked.arguments.insert(name.clone(), to.clone());
        if from.as_ref() != Some(&to) {
            checked.changes.push(Change {
                path: format!("/{name}"),
                from: from.unwrap_or_default(),
                to,
                why: ChangeReason::Precondition,
            });
        }
    }
    checked.changes.len() > before
}

/// True for a check that gave no answer. A denied one is no failure: somebody decided against it.
fn has_failed(check: &ToolResult) -> bool {
    !matches!(check.error_code, None | Some(ErrorCode::Denied))
}

/// The warning about a check that failed, and that the call does without.
fn unchecked(check: &SubCall, result: &ToolResult) -> String {
    let reason = result.error_message.as_deref().unwrap_or_default();
    format!(
        "{} failed, so it is not known whether the condition for this call holds: {}",
        check.tool,
        excerpt(reason, RESULT_EXCERPT_CHARS)
    )
}

fn precondition_failed(message: String) -> Refusal {
    Refusal::new(ErrorCode::Precondition, message)
}

fn not_logged(error: &AuditError) -> ToolResult {
    tracing::error!(%error, "a call was refused because the audit log cannot be written");
    ToolResult::error(
        ErrorCode::Denied,
        "the audit log cannot be written, and nothing is called without it",
    )
}

#[cfg(test)]
mod tests;
