//! The use of tools: what this node recorded, and with a store what all others did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use toolscout_gate::usage::missed::MissedRequest;
use toolscout_gate::usage::report::{Period, UsePeriod};
use toolscout_gate::usage::shadow::ShadowFigures;
use toolscout_gate::usage::{CallerDay, ToolFigures, UsageDatabase, UsageError};
use utoipa::ToSchema;

use crate::shared::{SharedStore, StoreError, UseOfOthers};

/// Whose use is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct CountedNodes {
    /// With a store, the number of nodes that recorded use in that time; they are counted together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Why only the record of the node that answers is counted, where others may have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_this_node: Option<String>,
}

/// The use of tools on all nodes since a day. Methods block.
///
/// While the store cannot be asked, it is that of this node alone, and [`UsageOfNodes::counted`] says so.
pub struct UsageOfNodes {
    own: Option<UsageDatabase>,
    store: Option<Arc<dyn SharedStore>>,
    period: Period,
    of: UseOfOthers,
    /// Days on which use was recorded, counted from 1970.
    days: BTreeSet<i64>,
    counted: CountedNodes,
}

impl UsageOfNodes {
    /// What this database has, and what other nodes sent to the store.
    ///
    /// # Errors
    /// [`UsageError`] for the database of this node.
    pub fn new(
        own: Option<UsageDatabase>,
        store: Option<Arc<dyn SharedStore>>,
        period: Period,
    ) -> Result<Self, UsageError> {
        let (mut record, mut days) = (None, BTreeSet::new());
        if let Some(own) = &own {
            record = own.identity()?;
            days = own.days(period.since)?;
        }
        let of = UseOfOthers {
            record,
            since: period.since,
        };
        let mut usage = UsageOfNodes {
            own,
            store,
            period,
            of,
            days,
            counted: CountedNodes::default(),
        };
        usage.count_nodes();
        Ok(usage)
    }

    fn count_nodes(&mut self) {
        let Some(store) = self.store.clone() else {
            return;
        };
        let is_own = !self.days.is_empty();
        // A store that is known to be away is not waited for.
        let others = match store.problem() {
            Some(reason) => Err(StoreError::Unreachable(reason)),
            None => store.runtime().block_on(store.usage_nodes(&self.of)),
        };
        if let Some(others) = self.noted(others) {
            self.days.extend(others.days);
            self.counted.nodes = Some(others.nodes + usize::from(is_own));
        }
    }

    /// What the store answered. Without an answer it is not asked again.
    fn noted<T>(&mut self, answer: Result<T, StoreError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.store = None;
                self.counted = CountedNodes {
                    nodes: None,
                    only_this_node: Some(error.to_string()),
                };
                None
            }
        }
    }

    /// Whose use is counted.
    pub fn counted(&self) -> &CountedNodes {
        &self.counted
    }

    /// What was recorded of the time.
    pub fn recorded(&self) -> UsePeriod {
        self.period.recorded(&self.days)
    }

    /// The use of the tools of a catalog, by their ids.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn tools(&mut self, catalog: &str) -> Result<BTreeMap<String, ToolFigures>, UsageError> {
        let mut tools = match &self.own {
            Some(own) => own.tools(catalog, self.of.since)?,
            None => BTreeMap::new(),
        };
        if let Some(store) = self.store.clone() {
            let others = store
                .runtime()
                .block_on(store.usage_tools(&self.of, catalog));
            for (tool, figures) in self.noted(others).unwrap_or_default() {
                tools.entry(tool).or_default().add(&figures);
            }
        }
        Ok(tools)
    }

    /// What callers did in all catalogs. A caller who used several nodes on a day has several rows.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn callers(&mut self) -> Result<Vec<CallerDay>, UsageError> {
        let mut callers = match &self.own {
            Some(own) => own.callers(self.of.since)?,
            None => Vec::new(),
        };
        if let Some(store) = self.store.clone() {
            let others = store.runtime().block_on(store.usage_callers(&self.of));
            callers.extend(self.noted(others).unwrap_or_default());
        }
        Ok(callers)
    }

    /// The requests to a catalog that no tool served, the oldest first.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn missed(&mut self, catalog: &str) -> Result<Vec<MissedRequest>, UsageError> {
        let mut missed = match &self.own {
            Some(own) => own.missed(catalog, self.of.since)?,
            None => Vec::new(),
        };
        if let Some(store) = self.store.clone() {
            let others = store
                .runtime()
                .block_on(store.usage_missed(&self.of, catalog));
            missed.extend(self.noted(others).unwrap_or_default());
            missed.sort_by_key(|request| request.at_ms);
        }
        Ok(missed)
    }

    /// Deletes the requests to a catalog that no tool served, of all nodes. Returns how many there were.
    ///
    /// # Errors
    /// [`ForgetError`]; then those of other nodes are still there.
    pub fn forget_missed(&mut self, catalog: &str) -> Result<usize, ForgetError> {
        if let Some(reason) = &self.counted.only_this_node {
            return Err(ForgetError::Store(StoreError::Unreachable(reason.clone())));
        }
        let mut forgotten = 0;
        // First, since a node that has deleted its own could not tell that others still have theirs.
        if let Some(store) = &self.store {
            let record = self.of.record.as_deref();
            let others = store
                .runtime()
                .block_on(store.forget_missed(record, catalog));
            forgotten += others?;
        }
        if let Some(own) = &mut self.own {
            forgotten += own.forget_missed(catalog)?;
        }
        Ok(forgotten)
    }

    /// The figures of a shadow of a catalog by day, the oldest first.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn shadow(
        &mut self,
        catalog: &str,
        shadow: &str,
    ) -> Result<Vec<(i64, ShadowFigures)>, UsageError> {
        let own = match &self.own {
            Some(own) => own.shadow(catalog, shadow, self.of.since)?,
            None => Vec::new(),
        };
        Ok(self.with_others(catalog, shadow, own))
    }

    /// As [`UsageOfNodes::shadow`], with these figures of this node.
    pub fn with_others(
        &mut self,
        catalog: &str,
        shadow: &str,
        own: Vec<(i64, ShadowFigures)>,
    ) -> Vec<(i64, ShadowFigures)> {
        let mut days: BTreeMap<i64, ShadowFigures> = own.into_iter().collect();
        if let Some(store) = self.store.clone() {
            let others = store
                .runtime()
                .block_on(store.usage_shadow(&self.of, catalog, shadow));
            for (day, figures) in self.noted(others).unwrap_or_default() {
                days.entry(day).or_default().add(&figures);
            }
        }
        days.into_iter().collect()
    }

    /// The database of this node.
    pub fn own(&self) -> Option<&UsageDatabase> {
        self.own.as_ref()
    }
}

/// Why texts could not be deleted.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The store cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database of this node cannot be used.
    #[error(transparent)]
    Own(#[from] UsageError),
}
