//! A tool, and the tools of a catalog page by page.

use std::sync::{Arc, Mutex, PoisonError};

use napi::Result;
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;
use serde_json::json;
use toolscout_index::formats::{self, Emit};
use toolscout_index::{Filter, Searcher, ToolId};

use crate::errors::OrReject;
use crate::work::{Work, promise};

/// The definition of a tool.
#[napi]
pub struct Tool {
    tool: Arc<toolscout_index::Tool>,
}

impl Tool {
    /// This tool for JavaScript.
    pub fn new(tool: Arc<toolscout_index::Tool>) -> Self {
        Tool { tool }
    }
}

#[napi]
impl Tool {
    /// Its fields as JSON.
    #[napi]
    pub fn json(&self) -> String {
        let tool = &*self.tool;
        let fields = json!({
            "id": tool.id.as_str(),
            "name": tool.id.name(),
            "server": tool.id.server(),
            "modelName": formats::model_name(&tool.id),
            "title": tool.title,
            "description": tool.description,
            "inputSchema": tool.input_schema,
            "outputSchema": tool.output_schema,
            "annotations": tool.annotations,
            "tags": tool.tags,
            "metadata": tool.metadata,
        });
        fields.to_string()
    }

    /// The definition in a provider's format, as JSON.
    #[napi]
    pub fn to(&self, format: String) -> Result<String> {
        let emit = format.parse::<Emit>().or_reject()?;
        let name = formats::model_name(&self.tool.id);
        Ok(formats::emit_tool(&self.tool, &name, emit).to_string())
    }
}

/// The tools of a catalog as it was when the iteration began, in the order of their ids.
#[napi]
pub struct ToolPages {
    state: Arc<Mutex<PageState>>,
}

struct PageState {
    searcher: Arc<Searcher>,
    filter: Filter,
    last: Option<ToolId>,
}

impl ToolPages {
    /// The tools of this snapshot that pass the filter.
    pub fn new(searcher: Arc<Searcher>, filter: Filter) -> Self {
        let state = PageState {
            searcher,
            filter,
            last: None,
        };
        ToolPages {
            state: Arc::new(Mutex::new(state)),
        }
    }
}

#[napi]
impl ToolPages {
    /// The next ones, at most so many; none at the end.
    #[napi(ts_return_type = "Promise<Array<Tool>>")]
    pub fn next(&self, most: u32) -> AsyncTask<Work<Vec<Tool>>> {
        let state = Arc::clone(&self.state);
        promise(move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(state.page(most as usize))
        })
    }
}

impl PageState {
    fn page(&mut self, most: usize) -> Vec<Tool> {
        let mut page = Vec::new();
        let after = self.last.clone();
        for id in self.searcher.ids_after(after.as_ref().map(ToolId::as_str)) {
            if page.len() == most {
                break;
            }
            self.last = Some(id.clone());
            let tool = self.searcher.tool(id);
            page.extend(tool.filter(|tool| self.filter.accepts(tool)).map(Tool::new));
        }
        page
    }
}
