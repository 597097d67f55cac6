//! The toolbox of a conversation. Answers are JSON.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use napi::Result;
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;
use serde_json::json;
use toolscout_index::ToolId;
use toolscout_native::opening::Open;
use toolscout_native::toolbox::{self, named, search_definition};

use crate::environment::{Slot, opened};
use crate::errors::OrReject;
use crate::tool::Tool;
use crate::work::{Work, promise};

/// The visible tools of a conversation, over a catalog.
#[napi]
pub struct ToolboxCore {
    slot: Arc<Slot>,
    path: String,
    toolbox: Arc<Mutex<toolbox::Toolbox>>,
    missing: Vec<String>,
}

impl ToolboxCore {
    /// A toolbox over the catalog in a slot.
    pub fn new(
        slot: Arc<Slot>,
        path: String,
        toolbox: toolbox::Toolbox,
        missing: Vec<String>,
    ) -> Self {
        ToolboxCore {
            slot,
            path,
            toolbox: Arc::new(Mutex::new(toolbox)),
            missing,
        }
    }

    fn locked(&self) -> MutexGuard<'_, toolbox::Toolbox> {
        locked(&self.toolbox)
    }

    fn opened(&self) -> Result<Arc<Open>> {
        opened(&self.slot, &self.path)
    }
}

fn locked(toolbox: &Mutex<toolbox::Toolbox>) -> MutexGuard<'_, toolbox::Toolbox> {
    toolbox.lock().unwrap_or_else(PoisonError::into_inner)
}

#[napi]
impl ToolboxCore {
    /// The tools of the state that the catalog no longer has.
    #[napi(getter)]
    pub fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    /// The options.
    #[napi]
    pub fn options(&self) -> Result<String> {
        serde_json::to_string(self.locked().options()).or_reject()
    }

    /// Searches with the arguments of a model's call, in JSON, and shows what was found.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn search(&self, arguments: String) -> Result<AsyncTask<Work<String>>> {
        let (open, toolbox) = (self.opened()?, Arc::clone(&self.toolbox));
        Ok(promise(move || {
            let arguments = serde_json::from_str(&arguments).or_reject()?;
            // Not locked while it searches.
            let request = locked(&toolbox).request(&open, &arguments);
            let search = match request {
                Ok(search) => search,
                Err(refused) => return Ok(json!({ "refused_search": refused }).to_string()),
            };
            let found = search.run(&open).or_reject()?;
            let searched = locked(&toolbox).take(&found);
            serde_json::to_string(&searched).or_reject()
        }))
    }

    /// Shows tools by id or name.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn inject(&self, names: Vec<String>) -> Result<AsyncTask<Work<String>>> {
        let (open, toolbox) = (self.opened()?, Arc::clone(&self.toolbox));
        Ok(promise(move || {
            let tools = named(&open, &names).or_reject()?;
            let injected = locked(&toolbox).inject(&tools);
            serde_json::to_string(&injected).or_reject()
        }))
    }

    /// Shows tools for good.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn pin(&self, names: Vec<String>) -> Result<AsyncTask<Work<()>>> {
        let (open, toolbox) = (self.opened()?, Arc::clone(&self.toolbox));
        Ok(promise(move || {
            let tools = named(&open, &names).or_reject()?;
            locked(&toolbox).pin(tools);
            Ok(())
        }))
    }

    /// Hides tools by id or name.
    #[napi]
    pub fn evict(&self, names: Vec<String>) -> Vec<String> {
        self.locked().evict(&names)
    }

    /// The visible tool with this name.
    #[napi]
    pub fn find(&self, name: String) -> Option<Tool> {
        self.locked().find(&name).map(Tool::new)
    }

    /// The id of the evicted tool with this name.
    #[napi]
    pub fn unloaded(&self, name: String) -> Option<String> {
        self.locked().unloaded(&name)
    }

    /// Marks a call as begun.
    #[napi]
    pub fn open_call(&self, name: String) -> Option<Tool> {
        self.locked().open_call(&name).map(Tool::new)
    }

    /// What is wrong with arguments in JSON for the visible tool with this name.
    #[napi]
    pub fn arguments_problem(&self, name: String, arguments: String) -> Result<Option<String>> {
        let problem = self.locked().arguments_problem(&name, &arguments);
        problem.or_reject()
    }

    /// Marks a call as ended.
    #[napi]
    pub fn close_call(&self, id: String) -> Result<()> {
        let id = ToolId::parse(&id).or_reject()?;
        self.locked().close_call(&id);
        Ok(())
    }

    /// Begins a turn.
    #[napi]
    pub fn begin_turn(&self) {
        self.locked().begin_turn();
    }

    /// Ends a turn, and returns what was evicted.
    #[napi]
    pub fn end_turn(&self) -> Vec<String> {
        self.locked().end_turn()
    }

    /// The definitions for a request.
    #[napi]
    pub fn tools(&self, format: String, with_search: bool) -> Result<String> {
        let tools = self.locked().tools(&format, with_search).or_reject()?;
        Ok(tools.to_string())
    }

    /// Id, name and tokens of each visible tool.
    #[napi]
    pub fn visible(&self) -> Result<String> {
        serde_json::to_string(&self.locked().visible()).or_reject()
    }

    /// Tokens of all visible tools.
    #[napi(getter)]
    pub fn tokens(&self) -> u32 {
        u32::try_from(self.locked().tokens()).unwrap_or(u32::MAX)
    }

    /// The state.
    #[napi]
    pub fn state(&self) -> Result<String> {
        let state = self.locked().state().or_reject()?;
        Ok(state.to_string())
    }
}

/// The definition of `tool_search` in a format.
#[napi]
pub fn tool_search_definition(format: String) -> Result<String> {
    Ok(search_definition(&format).or_reject()?.to_string())
}
