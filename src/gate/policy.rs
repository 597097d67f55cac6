//! What may be called: rules by tool, server and class, and the limits of a run. Pure.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toolscout_index::{Tool, ToolId};
use utoipa::ToSchema;

use crate::gate::class::Class;
use crate::gate::pattern::{Folded, Pattern};
use crate::gate::precondition::Precondition;

/// What becomes of a call, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is made.
    Allow,
    /// It is made if a person says yes in time.
    Ask,
    /// It is answered with what would be called.
    DryRun,
    /// It is refused.
    Deny,
}

/// Everything the gate goes by, as it stands in a profile under `[gate]`.
///
/// Of `rules` the first that fits a call decides; where none fits, the default of the tool's class
/// does. Patterns that forbid, ask or make a class stricter fit in any case and across characters
/// that look alike; what makes a call easier has to be named exactly.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// What happens where no rule fits.
    pub defaults: Defaults,
    /// Rules, the first that fits counts.
    pub rules: Vec<Rule>,
    /// Classes of tools that say the wrong thing of themselves, or nothing; the pattern that says
    /// most counts.
    pub classes: BTreeMap<Pattern, Class>,
    /// Servers whose tools may call themselves more dangerous than state-changing, but not
    /// harmless.
    pub untrusted_servers: Vec<Pattern>,
    /// Calls a run may make.
    pub limits: CallLimits,
    /// Arguments that name a user, and what they have to be: `$identity`, or a fixed text. A name
    /// stands for all its spellings, `userId` for `user_id` and `UserID` too.
    pub bind: BTreeMap<String, String>,
    /// Tools that may be called for others than the caller.
    pub unbound_tools: Vec<Pattern>,
    /// What has to hold before a call.
    pub preconditions: Vec<Precondition>,
    /// Patterns of argument names whose values are kept out of the audit log, beside the usual
    /// ones.
    pub secrets: Vec<Pattern>,
    /// Seconds until an unanswered question counts as no.
    pub approval_timeout_s: ApprovalTimeout,
    /// Answers everything that is not denied with what would be called.
    pub dry_run: bool,
}

/// What happens where no rule fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// To tools that change nothing.
    pub read_only: Decision,
    /// To tools that change something, or do not say.
    pub state_changing: Decision,
    /// To tools that may destroy something.
    pub destructive: Decision,
}

impl Default for Defaults {
    /// Reading is free, everything else is asked for.
    fn default() -> Self {
        Defaults {
            read_only: Decision::Allow,
            state_changing: Decision::Ask,
            destructive: Decision::Ask,
        }
    }
}

/// A rule. It fits a call that fits everything it names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it is called in messages and in the audit log.
    #[serde(default)]
    pub name: Option<String>,
    /// Tool ids, `server/name`.
    #[serde(default)]
    pub tool: Option<Pattern>,
    /// Servers.
    #[serde(default)]
    pub server: Option<Pattern>,
    /// A class.
    #[serde(default)]
    pub class: Option<Class>,
    /// What becomes of the call.
    pub decision: Decision,
    /// Calls under this rule in one run at most.
    #[serde(default)]
    pub max_calls: Option<u32>,
}

impl Rule {
    /// A rule about tools whose ids fit a pattern.
    pub fn of_tools(pattern: Pattern, decision: Decision) -> Self {
        let name = None;
        Rule {
            name,
            tool: Some(pattern),
            server: None,
            class: None,
            decision,
            max_calls: None,
        }
    }

    fn fits(&self, names: &Names, class: Class) -> bool {
        self.tool
            .as_ref()
            .is_none_or(|pattern| pattern.matches(names.id.as_str()))
            && self
                .server
                .as_ref()
                .is_none_or(|pattern| pattern.matches(names.id.server()))
            && self.class.is_none_or(|wanted| wanted == class)
    }

    /// True for a rule against something that the names look like. What is allowed has to be named
    /// exactly.
    fn resembles(&self, names: &Names, class: Class) -> bool {
        self.decision != Decision::Allow
            && self.class.is_none_or(|wanted| wanted == class)
            && self
                .tool
                .as_ref()
                .is_none_or(|pattern| pattern.resembles(names.whole()))
            && self
                .server
                .as_ref()
                .is_none_or(|pattern| pattern.resembles(names.server()))
    }
}

/// A tool's id, folded where a pattern asks for that.
struct Names<'a> {
    id: &'a ToolId,
    whole: OnceCell<Folded>,
    server: OnceCell<Folded>,
}

impl<'a> Names<'a> {
    fn of(id: &'a ToolId) -> Self {
        Names {
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

/// Calls of one run at most, executed or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CallLimits {
    /// All of them.
    pub calls: u32,
    /// Those of state-changing tools.
    pub state_changing: u32,
    /// Those of destructive tools.
    pub destructive: u32,
}

impl Default for CallLimits {
    /// More than a person would follow, less than a loop does.
    fn default() -> Self {
        CallLimits {
            calls: 256,
            state_changing: 64,
            destructive: 16,
        }
    }
}

impl CallLimits {
    /// The limit of a class of its own.
    pub fn of(&self, class: Class) -> u32 {
        match class {
            Class::ReadOnly => self.calls,
            Class::StateChanging => self.state_changing,
            Class::Destructive => self.destructive,
        }
    }
}

/// Seconds until an unanswered question counts as no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ApprovalTimeout(pub u64);

impl Default for ApprovalTimeout {
    /// Five minutes: a person who is there has answered by then, and a run lives for ten.
    fn default() -> Self {
        ApprovalTimeout(300)
    }
}

impl ApprovalTimeout {
    /// The time as such.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// What the policies say to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    /// What the tool can do.
    pub class: Class,
    /// What becomes of the call.
    pub decision: Decision,
    /// The rule that says so, by name.
    pub rule: String,
    /// Its limit: the rule's place and the calls it allows a run.
    pub limit: Option<(usize, u32)>,
}

impl Policies {
    /// Policies that allow everything: for tools that cannot do harm, such as doubles in tests and
    /// measurements.
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

    /// The class of a tool: by the settings, else by what it says of itself where that can be
    /// believed.
    pub fn class(&self, tool: &Tool) -> Class {
        self.class_of(tool, &Names::of(&tool.id))
    }

    fn class_of(&self, tool: &Tool, names: &Names) -> Class {
        let named = self
            .classes
            .iter()
            .filter(|(pattern, _)| pattern.matches(tool.id.as_str()));
        let named = named.max_by_key(|(pattern, class)| (pattern.literal_chars(), **class));
        let mut class = named.map_or_else(|| self.believed(tool, names), |(_, class)| *class);
        // A setting for a name that this one only looks like makes the class stricter, never
        // milder.
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

    fn believed(&self, tool: &Tool, names: &Names) -> Class {
        let declared = Class::declared(tool);
        let untrusted = self
            .untrusted_servers
            .iter()
            .any(|pattern| pattern.resembles(names.server()));
        if untrusted {
            declared.max(Class::StateChanging)
        } else {
            declared
        }
    }

    /// What has to hold before a call of this tool.
    pub fn preconditions_of<'a>(
        &'a self,
        id: &'a ToolId,
    ) -> impl Iterator<Item = &'a Precondition> {
        let names = Names::of(id);
        self.preconditions
            .iter()
            .filter(move |precondition| precondition.before.resembles(names.whole()))
    }

    /// What is to become of a call of this tool.
    pub fn ruling(&self, tool: &Tool) -> Ruling {
        let names = Names::of(&tool.id);
        let class = self.class_of(tool, &names);
        let fitting = self.rules.iter().position(|rule| rule.fits(&names, class));
        let decision = fitting.map_or(self.defaults.of(class), |at| self.rules[at].decision);
        // A rule for a name that this one only looks like counts where it is at least as strict.
        let earlier = &self.rules[..fitting.unwrap_or(self.rules.len())];
        let alike = earlier
            .iter()
            .position(|rule| rule.decision >= decision && rule.resembles(&names, class));
        let ruling = match alike.or(fitting) {
            Some(at) => {
                let rule = &self.rules[at];
                Ruling {
                    class,
                    decision: rule.decision,
                    rule: rule
                        .name
                        .clone()
                        .unwrap_or_else(|| format!("rule {}", at + 1)),
                    limit: rule.max_calls.map(|calls| (at, calls)),
                }
            }
            None => Ruling {
                class,
                decision,
                rule: format!("default {class}"),
                limit: None,
            },
        };
        match ruling.decision {
            Decision::Allow | Decision::Ask if self.dry_run => Ruling {
                decision: Decision::DryRun,
                ..ruling
            },
            _ => ruling,
        }
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
        let ruling = policies.ruling(&tool(id));
        (ruling.decision, ruling.rule)
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_the_class_where_none_does() {
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
        assert_eq!(policies.ruling(&reading).decision, Decision::Allow);
    }

    #[test]
    fn a_rule_for_a_look_alike_makes_a_call_stricter_and_never_easier() {
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
            policies.ruling(&purging).decision,
            Decision::Deny,
            "asking is milder than the default"
        );
    }

    #[test]
    fn a_class_for_a_look_alike_makes_a_tool_stricter_and_never_milder() {
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
    fn settings_overrule_hints_and_hints_of_untrusted_servers_only_warn() {
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
    fn a_dry_run_calls_nothing_and_frees_nothing() {
        let policies = policies(
            "dry_run = true\nbind = { userId = \"$identity\" }\n[[rules]]\ntool = \"a\"\ndecision = \"deny\"",
        );
        assert_eq!(decided(&policies, "a").0, Decision::Deny);
        assert_eq!(decided(&policies, "b").0, Decision::DryRun);
    }

    #[test]
    fn unknown_words_are_named() {
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
