//! Policies: rules by tool, server and class, and the limits of a run. Pure.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolscout_index::{Tool, ToolId};
use utoipa::ToSchema;

use crate::gate::class::Class;
use crate::gate::defaults::SafeDefaults;
use crate::gate::pattern::{Folded, Pattern};
use crate::gate::precondition::Precondition;
use crate::gate::text_fields::TextFields;

/// What happens to a call, least strict first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call is made.
    Allow,
    /// The call is made if a person approves it in time.
    Ask,
    /// The call is not made, and its result describes what would have been called.
    DryRun,
    /// The call is refused.
    Deny,
}

impl Decision {
    /// The decision in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Allow => "allow",
            Decision::Ask => "ask",
            Decision::DryRun => "dry_run",
            Decision::Deny => "deny",
        }
    }
}

/// The gate's settings, the table `[gate]` of a profile.
///
/// The first of `rules` that matches a call decides; if none matches, the default of the tool's
/// class does. Patterns that make a call stricter match in any case and across look-alike
/// characters; patterns that make it less strict have to match exactly.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// Decisions by class, for calls that match no rule.
    pub defaults: Defaults,
    /// Rules; the first match decides.
    pub rules: Vec<Rule>,
    /// Classes of tools that declare a wrong one, or none; the most specific pattern counts.
    pub classes: BTreeMap<Pattern, Class>,
    /// Servers whose tools count as at least state-changing, even if they declare themselves
    /// read-only.
    pub untrusted_servers: Vec<Pattern>,
    /// Calls that a run may make.
    pub limits: CallLimits,
    /// Calls that a client may make within a time.
    pub client_limits: Option<CallLimits>,
    /// Arguments that name a user, and their required value: `$identity`, or a fixed text. A name
    /// covers all its spellings: `userId` covers `user_id` and `UserID`.
    pub bind: BTreeMap<String, String>,
    /// Tools that may be called on behalf of any user.
    pub unbound_tools: Vec<Pattern>,
    /// Conditions that must hold before a call.
    pub preconditions: Vec<Precondition>,
    /// Which texts have a usual form, for tools that change something.
    pub normalize: TextFields,
    /// What is filled into steps of a plan that only read.
    pub safe_defaults: SafeDefaults,
    /// Patterns of argument names whose values are kept out of the audit log, in addition to the
    /// built-in ones.
    pub secrets: Vec<Pattern>,
    /// Seconds until an unanswered request for approval is refused.
    pub approval_timeout_s: ApprovalTimeout,
    /// Turns every call that is not denied into a dry run.
    pub dry_run: bool,
}

/// Decisions by class, for calls that match no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// For tools that change nothing.
    pub read_only: Decision,
    /// For tools that change something, or declare nothing.
    pub state_changing: Decision,
    /// For tools that may destroy something.
    pub destructive: Decision,
}

impl Default for Defaults {
    /// Read-only tools are allowed, all others need approval.
    fn default() -> Self {
        Defaults {
            read_only: Decision::Allow,
            state_changing: Decision::Ask,
            destructive: Decision::Ask,
        }
    }
}

/// A rule. It matches a call that matches all of its conditions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name in messages and in the audit log.
    #[serde(default)]
    pub name: Option<String>,
    /// Condition on the tool's id, `server/name`.
    #[serde(default)]
    pub tool: Option<Pattern>,
    /// Condition on the server.
    #[serde(default)]
    pub server: Option<Pattern>,
    /// Condition on the class.
    #[serde(default)]
    pub class: Option<Class>,
    /// What happens to a matching call.
    pub decision: Decision,
    /// Maximum number of calls under this rule in one run.
    #[serde(default)]
    pub max_calls: Option<u32>,
}

impl Rule {
    /// A rule for tools whose ids match a pattern.
    pub fn of_tools(pattern: Pattern, decision: Decision) -> Self {
        Rule {
            name: None,
            tool: Some(pattern),
            server: None,
            class: None,
            decision,
            max_calls: None,
        }
    }

    fn matches(&self, names: &FoldedNames, class: Class) -> bool {
        if let Some(tool) = &self.tool
            && !tool.matches(names.id.as_str())
        {
            return false;
        }
        if let Some(server) = &self.server
            && !server.matches(names.id.server())
        {
            return false;
        }
        self.is_for(class)
    }

    fn is_for(&self, class: Class) -> bool {
        self.class.is_none_or(|wanted| wanted == class)
    }

    /// This rule as it applies to calls of a class; `at` is its index.
    fn applied(&self, at: usize, class: Class) -> AppliedRule {
        AppliedRule {
            class,
            decision: self.decision,
            rule: match &self.name {
                Some(name) => name.clone(),
                None => format!("rule {}", at + 1),
            },
            limit: self.max_calls.map(|calls| (at, calls)),
        }
    }

    /// True when the names look like those of this rule. Never for a rule that allows, which has to
    /// match exactly.
    fn resembles(&self, names: &FoldedNames, class: Class) -> bool {
        // The cheap conditions first: only the patterns need the folded names.
        if self.decision == Decision::Allow || !self.is_for(class) {
            return false;
        }
        if let Some(tool) = &self.tool
            && !tool.resembles(names.whole())
        {
            return false;
        }
        match &self.server {
            Some(server) => server.resembles(names.server()),
            None => true,
        }
    }
}

/// A tool's id and server name, folded on first use.
struct FoldedNames<'a> {
    id: &'a ToolId,
    whole: OnceCell<Folded>,
    server: OnceCell<Folded>,
}

impl<'a> FoldedNames<'a> {
    fn of(id: &'a ToolId) -> Self {
        FoldedNames {
            id,
            whole: OnceCell::new(),
            server: OnceCell::new(),
        }
    }

    fn whole(&self) -> &Folded {
        self.whole.get_or_init(|| Folded::of(self.id.as_str()))
    }

    fn server(&self) -> &Folded {
        self.server.get_or_init(|| Folded::of(self.id.server()))
    }
}

/// Maximum numbers of calls of one run, calls that wait for approval included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallLimits {
    /// Calls of all tools.
    pub calls: u32,
    /// Calls of state-changing tools.
    pub state_changing: u32,
    /// Calls of destructive tools.
    pub destructive: u32,
}

impl Default for CallLimits {
    /// More calls than a person would follow, fewer than a loop makes.
    fn default() -> Self {
        CallLimits {
            calls: 256,
            state_changing: 64,
            destructive: 16,
        }
    }
}

impl CallLimits {
    /// The limit of a class.
    pub fn of(&self, class: Class) -> u32 {
        match class {
            Class::ReadOnly => self.calls,
            Class::StateChanging => self.state_changing,
            Class::Destructive => self.destructive,
        }
    }
}

/// Seconds until an unanswered request for approval is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ApprovalTimeout(pub u64);

impl Default for ApprovalTimeout {
    /// Five minutes: a person who is present has answered by then, and a run lives for ten.
    fn default() -> Self {
        ApprovalTimeout(300)
    }
}

impl ApprovalTimeout {
    /// The timeout as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// The rule that applies to a call, or the default of the call's class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedRule {
    /// How much harm the tool can do.
    pub class: Class,
    /// What happens to the call.
    pub decision: Decision,
    /// The rule's name.
    pub rule: String,
    /// The rule's index and the calls that it allows in a run, if it limits them.
    pub limit: Option<(usize, u32)>,
}

impl Policies {
    /// A line for each rule for ids that none of these has: a mistyped `--deny` would protect nothing.
    pub fn unfitting_rules<'a>(&self, ids: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut open: Vec<(&Rule, &Pattern)> = Vec::new();
        for rule in &self.rules {
            open.extend(rule.tool.as_ref().map(|pattern| (rule, pattern)));
        }
        for id in ids {
            if open.is_empty() {
                break;
            }
            let folded = Folded::of(id);
            open.retain(|(rule, pattern)| match rule.decision {
                Decision::Allow => !pattern.matches(id),
                _ => !pattern.resembles(&folded),
            });
        }
        let mut lines = Vec::with_capacity(open.len());
        for (rule, pattern) in open {
            let rule = match &rule.name {
                Some(name) => name.clone(),
                None => format!("a rule of [gate] for {:?}", pattern.to_string()),
            };
            lines.push(format!(
                "{rule} fits no tool of the catalog; correct it, or add the tools"
            ));
        }
        lines
    }

    /// Policies that allow everything, for tools that cannot do harm, such as those of tests and
    /// benchmarks.
    pub fn permissive() -> Self {
        let allow = Decision::Allow;
        let calls = u32::MAX;
        Policies {
            defaults: Defaults {
                read_only: allow,
                state_changing: allow,
                destructive: allow,
            },
            limits: CallLimits {
                calls,
                state_changing: calls,
                destructive: calls,
            },
            ..Policies::default()
        }
    }

    /// The limits of a client: its own, else those of a run if they were set, else such as let a day of
    /// work through.
    pub fn limits_of_clients(&self) -> CallLimits {
        if let Some(limits) = self.client_limits {
            return limits;
        }
        if self.limits != CallLimits::default() {
            return self.limits;
        }
        CallLimits {
            calls: 5_000,
            state_changing: 1_000,
            destructive: 100,
        }
    }

    /// The class of a tool: by the settings, else as the tool declares it.
    pub fn class(&self, tool: &Tool) -> Class {
        self.class_of(tool, &FoldedNames::of(&tool.id))
    }

    fn class_of(&self, tool: &Tool, names: &FoldedNames) -> Class {
        let configured = self
            .classes
            .iter()
            .filter(|(pattern, _)| pattern.matches(tool.id.as_str()))
            // The most literal characters win; of two equally specific patterns the stricter class.
            .max_by_key(|(pattern, class)| (pattern.literal_chars(), **class));
        let mut class = match configured {
            Some((_, class)) => *class,
            None => self.declared_class(tool, names),
        };
        // A pattern that only resembles the name makes the class stricter, never less strict.
        for (pattern, alike) in &self.classes {
            if *alike > class
                && !pattern.matches(tool.id.as_str())
                && pattern.resembles(names.whole())
            {
                class = *alike;
            }
        }
        class
    }

    /// The class that the tool declares, as far as its server is trusted.
    fn declared_class(&self, tool: &Tool, names: &FoldedNames) -> Class {
        let declared = Class::declared(tool);
        for untrusted in &self.untrusted_servers {
            // A tool that declares more harm than that keeps its class.
            if untrusted.resembles(names.server()) {
                return declared.max(Class::StateChanging);
            }
        }
        declared
    }

    /// The preconditions of calls of this tool.
    pub fn preconditions_of<'a>(
        &'a self,
        id: &'a ToolId,
    ) -> impl Iterator<Item = &'a Precondition> {
        let names = FoldedNames::of(id);
        self.preconditions
            .iter()
            .filter(move |precondition| precondition.before.resembles(names.whole()))
    }

    /// The rule that applies to a call of this tool.
    pub fn applied_rule(&self, tool: &Tool) -> AppliedRule {
        let names = FoldedNames::of(&tool.id);
        let class = self.class_of(tool, &names);
        let mut rules = self.rules.iter();
        let matching = rules.position(|rule| rule.matches(&names, class));
        let (earlier, decision) = match matching {
            Some(at) => (&self.rules[..at], self.rules[at].decision),
            None => (self.rules.as_slice(), self.defaults.of(class)),
        };
        // An earlier rule that only resembles the name applies if it is at least as strict.
        let mut earlier = earlier.iter();
        let resembling =
            earlier.position(|rule| rule.decision >= decision && rule.resembles(&names, class));
        let mut applied = match resembling.or(matching) {
            Some(at) => self.rules[at].applied(at, class),
            None => AppliedRule {
                class,
                decision,
                rule: format!("default {class}"),
                limit: None,
            },
        };
        // What is denied stays denied.
        if self.dry_run && applied.decision < Decision::DryRun {
            applied.decision = Decision::DryRun;
        }
        applied
    }
}

impl Defaults {
    fn of(&self, class: Class) -> Decision {
        match class {
            Class::ReadOnly => self.read_only,
            Class::StateChanging => self.state_changing,
            Class::Destructive => self.destructive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(id: &str) -> Tool {
        let id = ToolId::parse(id).unwrap();
        Tool::new(id.server(), id.name()).unwrap()
    }

    fn policies(text: &str) -> Policies {
        toml::from_str(text).unwrap()
    }

    fn decided(policies: &Policies, id: &str) -> (Decision, String) {
        let applied = policies.applied_rule(&tool(id));
        (applied.decision, applied.rule)
    }

    #[test]
    fn the_first_matching_rule_decides_and_the_class_if_none_matches() {
        let policies = policies(
            r#"
            [[rules]]
            name = "backups"
            tool = "db/drop_backup"
            decision = "allow"
            max_calls = 1
            [[rules]]
            tool = "*drop*"
            decision = "deny"
            [[rules]]
            server = "mail*"
            class = "state_changing"
            decision = "dry_run"
            "#,
        );
        assert_eq!(
            decided(&policies, "db/drop_backup"),
            (Decision::Allow, "backups".into())
        );
        assert_eq!(
            decided(&policies, "db/drop_backups"),
            (Decision::Deny, "rule 2".into())
        );
        assert_eq!(
            decided(&policies, "drop"),
            (Decision::Deny, "rule 2".into())
        );
        assert_eq!(
            decided(&policies, "mail2/send"),
            (Decision::DryRun, "rule 3".into())
        );
        assert_eq!(
            decided(&policies, "x/mail"),
            (Decision::Ask, "default state_changing".into())
        );
        let mut reading = tool("mail/read");
        reading.annotations.read_only_hint = Some(true);
        assert_eq!(policies.applied_rule(&reading).decision, Decision::Allow);
    }

    #[test]
    fn a_rule_for_a_look_alike_makes_a_call_stricter_and_never_less_strict() {
        let policies = policies(
            r#"
            [defaults]
            destructive = "deny"
            [[rules]]
            tool = "github/get_*"
            decision = "allow"
            [[rules]]
            tool = "*delete*"
            decision = "deny"
            [[rules]]
            tool = "mail/send"
            decision = "ask"
            max_calls = 2
            [[rules]]
            server = "Mail"
            class = "state_changing"
            decision = "allow"
            "#,
        );
        assert_eq!(
            decided(&policies, "github/Delete_Repo"),
            (Decision::Deny, "rule 2".into())
        );
        assert_eq!(
            decided(&policies, "github/d\u{435}lete"),
            (Decision::Deny, "rule 2".into())
        );
        assert_eq!(decided(&policies, "github/get_deleted").0, Decision::Allow);
        assert_eq!(
            decided(&policies, "GitHub/get_it"),
            (Decision::Ask, "default state_changing".into())
        );
        assert_eq!(
            decided(&policies, "Mail/Send"),
            (Decision::Ask, "rule 3".into())
        );
        assert_eq!(
            decided(&policies, "Mail/other"),
            (Decision::Allow, "rule 4".into())
        );
        let mut purging = tool("mail/SEND");
        purging.annotations.destructive_hint = Some(true);
        assert_eq!(
            policies.applied_rule(&purging).decision,
            Decision::Deny,
            "asking is less strict than the default"
        );
    }

    #[test]
    fn a_class_for_a_look_alike_makes_a_tool_stricter_and_never_less_strict() {
        let policies = policies(
            r#"
            untrusted_servers = ["evil"]
            [classes]
            "*wipe*" = "destructive"
            "shop/list" = "read_only"
            "#,
        );
        assert_eq!(policies.class(&tool("disk/Wipe_all")), Class::Destructive);
        assert_eq!(policies.class(&tool("Shop/list")), Class::StateChanging);
        let mut harmless = tool("Evil/read");
        harmless.annotations.read_only_hint = Some(true);
        assert_eq!(policies.class(&harmless), Class::StateChanging);
    }

    #[test]
    fn settings_override_hints_and_untrusted_servers_can_only_raise_the_class() {
        let policies = policies(
            r#"
            untrusted_servers = ["evil"]
            [classes]
            "shop/*" = "destructive"
            "shop/list*" = "read_only"
            "#,
        );
        assert_eq!(policies.class(&tool("shop/buy")), Class::Destructive);
        assert_eq!(policies.class(&tool("shop/list_all")), Class::ReadOnly);
        let mut harmless = tool("evil/wipe");
        harmless.annotations.read_only_hint = Some(true);
        assert_eq!(policies.class(&harmless), Class::StateChanging);
        harmless.annotations.destructive_hint = Some(true);
        assert_eq!(policies.class(&harmless), Class::Destructive);
    }

    #[test]
    fn dry_run_replaces_every_decision_but_deny() {
        let policies = policies(
            "dry_run = true\nbind = { userId = \"$identity\" }\n[[rules]]\ntool = \"a\"\ndecision = \"deny\"",
        );
        assert_eq!(decided(&policies, "a").0, Decision::Deny);
        assert_eq!(decided(&policies, "b").0, Decision::DryRun);
    }

    #[test]
    fn errors_name_unknown_keys_and_values() {
        for (text, expected) in [
            ("[[rules]]\ntool = \"a\"\ndecision = \"maybe\"", "maybe"),
            ("[[rules]]\ntols = \"a\"\ndecision = \"deny\"", "tols"),
            ("[limits]\ncals = 1", "cals"),
        ] {
            let message = toml::from_str::<Policies>(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
