//! What only the default catalog has: the connections to MCP servers, and the agents that search it.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use toolscout_index::{Changes, Searcher, Tool};

use crate::served::{DefaultSearch, OpenCatalog};
use toolscout_agent::{Agent, Agents};
use toolscout_gate::tools::Toolset;
use toolscout_mcp::{CatalogSink, Pool};
use toolscout_state::approved::ApprovedPlace;

/// The catalog of routes that name none, with those who use its tools.
pub struct DefaultCatalog {
    name: String,
    search: DefaultSearch,
    agents: Option<Agents>,
    mcp_pool: Pool,
}

impl DefaultCatalog {
    /// The catalog of this name, which is not open yet.
    pub fn new(
        name: String,
        search: DefaultSearch,
        agents: Option<Agents>,
        mcp_pool: Pool,
    ) -> Self {
        DefaultCatalog {
            name,
            search,
            agents,
            mcp_pool,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Searches this catalog from now on, and begins to connect to the MCP servers. Connecting goes on in the
    /// background, so that a slow server does not delay the start.
    pub fn open(&self, catalog: Arc<OpenCatalog>) {
        self.search.open(Arc::clone(&catalog));
        self.mcp_pool.start(catalog as Arc<dyn CatalogSink>);
    }

    /// False until the catalog is open, and for good if it is damaged.
    pub fn is_open(&self) -> bool {
        self.search.is_open()
    }

    /// The agents, once the catalog is open.
    pub fn agents(&self) -> Option<&Agents> {
        match self.is_open() {
            true => self.agents.as_ref(),
            false => None,
        }
    }

    /// The agent of questions that choose none. It knows the runs and approvals of all agents.
    pub fn agent(&self) -> Option<&Agent> {
        self.agents().map(Agents::default_agent)
    }

    /// The connections to the MCP servers.
    pub fn mcp_pool(&self) -> &Pool {
        &self.mcp_pool
    }

    /// The connections to the servers of this catalog: only the default one has any.
    pub fn pool_of(&self, catalog: &OpenCatalog) -> Option<&Pool> {
        (catalog.name == self.name).then_some(&self.mcp_pool)
    }

    /// What calls the tools of this catalog.
    pub fn toolset_of(&self, catalog: &OpenCatalog) -> Option<Arc<dyn Toolset>> {
        let pool = self.pool_of(catalog)?;
        Some(match self.agent() {
            Some(agent) => Arc::new(agent.clone()),
            None => Arc::new(pool.clone()),
        })
    }
}

#[async_trait]
impl CatalogSink for OpenCatalog {
    fn searcher(&self) -> Arc<Searcher> {
        OpenCatalog::searcher(self)
    }

    fn folder(&self) -> PathBuf {
        OpenCatalog::folder(self).to_owned()
    }

    fn approved(&self) -> ApprovedPlace {
        OpenCatalog::approved(self)
    }

    async fn sync(&self, server: &str, tools: Vec<Tool>) -> Result<Changes, String> {
        let synced = self.writer.sync(server, tools).await;
        synced.map_err(|error| error.to_string())
    }
}
