//! Items of the catalog that are no tools: what a client may read of them.

use std::sync::Arc;

use toolscout_index::{Tool, ToolId};

use super::GatewayState;
use toolscout_finder::finder::search::off_async_threads;

impl GatewayState {
    /// The item with this id; `None` for a tool, and where nothing has the id.
    pub(super) async fn other_item(&self, id: &str) -> Option<Arc<Tool>> {
        let id = ToolId::parse(id).ok()?;
        // Only names of other items have one, and nothing is looked up for those of tools.
        if !id.name().contains(':') {
            return None;
        }
        let found = off_async_threads(&self.search, move |search| search.item(&id));
        let item = found.await.ok().flatten()?;
        (!item.kind.is_tool()).then_some(item)
    }
}
