//! Calls of clients: who makes them, what of their limits is used, and the tools that one call can
//! reach.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use toolscout_index::{Tool, ToolId};

use super::GatewayState;
use toolscout_gate::gate::{Directory, Ledger};
use toolscout_gate::tools::{Callable, Toolset};

/// The window in which the calls of one caller count towards its limits.
pub const WINDOW: Duration = Duration::from_secs(600);
/// Most callers whose calls are counted; there are as many as keys in use.
const MAX_CALLERS: NonZeroUsize = NonZeroUsize::new(4_096).expect("is not zero");

/// The caller of the gateway. The layer that checks the key of an HTTP request puts it into the
/// request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The caller's name in the audit log.
    pub who: String,
    /// Whether it may call tools that do more than read.
    pub may_change: bool,
}

impl Principal {
    /// The user who started this program, on its standard input.
    pub fn local() -> Self {
        Principal {
            who: "stdio".into(),
            may_change: true,
        }
    }

    /// A request whose key was not checked.
    pub fn unknown() -> Self {
        Principal {
            who: "unknown".into(),
            may_change: false,
        }
    }
}

/// What each caller has used of its limits, over all its sessions.
pub struct Ledgers(Mutex<LruCache<String, (Instant, Arc<Ledger>)>>);

impl Default for Ledgers {
    fn default() -> Self {
        Ledgers(Mutex::new(LruCache::new(MAX_CALLERS)))
    }
}

impl Ledgers {
    /// The ledger of this caller.
    pub fn of(&self, who: &str) -> Arc<Ledger> {
        let mut ledgers = self.0.lock();
        if let Some((begun, ledger)) = ledgers.get(who)
            && begun.elapsed() < WINDOW
        {
            return Arc::clone(ledger);
        }
        let ledger = Arc::new(Ledger::of_client());
        ledgers.put(who.to_owned(), (Instant::now(), Arc::clone(&ledger)));
        ledger
    }
}

/// The tools of one call: its own, and those of its preconditions.
pub struct CallDirectory<'a> {
    pub shared: &'a GatewayState,
    /// The id of its own tool.
    pub id: ToolId,
    /// What calls its own tool; `None` where its server is not one of ours.
    pub called: Option<Arc<dyn Callable>>,
}

impl Directory for CallDirectory<'_> {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        if *id == self.id {
            let found = self.shared.search.tool(id);
            found.or_else(|| self.shared.tool_for_apps(id))
        } else {
            self.shared.catalog.tool(id)
        }
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        let is_callable = match self.tool(id) {
            Some(tool) => self.shared.is_connected(&tool.id),
            // It has left the profile. Without one, its server says whether there still is such a tool.
            None => self.shared.profile.is_none(),
        };
        if !is_callable {
            return None;
        }
        let own = match *id == self.id {
            true => self.called.clone(),
            false => None,
        };
        let of_pool = || self.shared.pool.find(id);
        let of_toolset = || self.shared.toolset.as_ref()?.find(id);
        let callable = own.or_else(of_pool).or_else(of_toolset)?;
        match &self.shared.profile {
            // A precondition calls a tool as the catalog has it.
            Some(profile) if *id == self.id => Some(profile.callable(id, callable)),
            _ => Some(callable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Transport;
    use crate::connection::CallContext;
    use crate::pool::Pool;
    use crate::{PoolConfig, ServerConfig};
    use toolscout_gate::gate::{AppliedRule, Class, Decision, Policies, policy::CallLimits};

    #[test]
    fn neither_the_agent_nor_the_gateway_cuts_a_call_of_a_server() {
        let reason = "never connected".to_owned();
        let server = ServerConfig::new("s", Transport::Incomplete { reason });
        let pool = Pool::new(PoolConfig {
            servers: vec![server],
            ..PoolConfig::default()
        });
        let id = ToolId::parse("s/t").unwrap();
        let called = pool.callable(&id, CallContext::default()).unwrap();
        assert!(called.limits_itself());
    }

    #[test]
    fn a_caller_has_one_ledger_over_all_its_sessions() {
        let ledgers = Ledgers::default();
        let policies = Policies {
            client_limits: Some(CallLimits {
                calls: 1,
                ..CallLimits::default()
            }),
            ..Policies::default()
        };
        let (decision, rule) = (Decision::Allow, String::new());
        let ruling = AppliedRule {
            class: Class::ReadOnly,
            decision,
            rule,
            limit: None,
        };
        assert!(ledgers.of("key:a").take(&ruling, &policies).is_ok());
        assert!(ledgers.of("key:a").take(&ruling, &policies).is_err());
        assert!(ledgers.of("key:b").take(&ruling, &policies).is_ok());
    }
}
