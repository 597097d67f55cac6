//! What a profile says about the operations of APIs.

use std::sync::Arc;

use anyhow::Result;
use toolscout_index::ToolId;

use crate::agent::profile::Profile;
use crate::finder::ToolSearch;
use crate::tools::builtin::files::Root;
use crate::tools::operation::{FindTool, Operations, ServiceConfig};

/// The services of a profile whose operations can be called.
pub struct Apis {
    services: Vec<ServiceConfig>,
    /// The folder of the files that operations send.
    files: Option<Root>,
}

impl Apis {
    /// Those of this profile. A mistake in a service is an error here already.
    pub fn of(profile: &Profile) -> Result<Self> {
        let apis = Apis {
            services: profile.operations.clone(),
            files: profile.tools.files.as_ref().map(Root::open).transpose()?,
        };
        apis.found_by(Arc::new(|_| None))?;
        Ok(apis)
    }

    /// Their operations among the tools of a catalog.
    pub fn operations(&self, catalog: Arc<dyn ToolSearch>) -> Result<Operations> {
        self.found_by(Arc::new(move |id: &ToolId| catalog.tool(id)))
    }

    fn found_by(&self, find: FindTool) -> Result<Operations> {
        let environment = |name: &str| std::env::var(name).ok();
        let operations = Operations::new(&self.services, environment, find)?;
        Ok(operations.with_files(self.files.clone()))
    }
}
