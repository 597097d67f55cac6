//! The gauges that are computed when somebody asks for the figures.

use std::sync::Arc;

use crate::default_catalog::DefaultCatalog;
use crate::served::ServedCatalogs;
use toolscout_base::telemetry::{Metrics, StateLabels};
use toolscout_mcp::pool::ConnectionState;
use toolscout_state::shared::SharedStore;

/// The figures of a server, and what some of them are computed from. Cheap to clone.
#[derive(Clone)]
pub struct Gauges {
    /// The figures.
    pub metrics: Arc<Metrics>,
    /// Its open catalogs are counted.
    pub catalogs: Arc<ServedCatalogs>,
    /// Its MCP servers are counted.
    pub default_catalog: Arc<DefaultCatalog>,
    /// Has figures of its own.
    pub store: Option<Arc<dyn SharedStore>>,
}

impl Gauges {
    /// Updates the gauges that are computed from the open catalogs and the store.
    pub fn measure_catalogs(&self) {
        if let Some(store) = &self.store {
            store.measure();
        }
        let open = self.catalogs.all_open();
        let (mut tools, mut pending) = (0, 0);
        for catalog in &open {
            let searcher = catalog.searcher();
            tools += catalog.tool_count() as i64;
            pending += searcher.pending_embeddings() as i64;
        }
        self.metrics.catalogs.set(open.len() as i64);
        self.metrics.tools.set(tools);
        self.metrics.pending_embeddings.set(pending);
    }

    /// Counts the MCP servers by their states.
    pub fn measure_servers(&self) {
        let statuses = self.default_catalog.mcp_pool().statuses();
        if statuses.is_empty() {
            return;
        }
        // All states are set, so that a state without servers becomes 0.
        for state in ConnectionState::ALL {
            let servers = statuses.iter().filter(|status| status.state == state);
            let labels = StateLabels {
                state: state.as_str(),
            };
            let gauge = self.metrics.mcp_servers.of(labels);
            gauge.set(servers.count() as i64);
        }
    }
}
