//! A registered catalog that is searched besides the tools of a request.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use toolscout_index::query::MAX_K;
use toolscout_index::{Tool, ToolId};

use toolscout_finder::finder::search::{Found, FoundTool, SearchRequest};
use toolscout_finder::finder::{ToolSearch, recorded};
use toolscout_gate::usage::{Origin, Recorder};

/// A catalog, and what calls its tools.
#[derive(Clone)]
pub struct ExtraCatalog {
    /// Searches it.
    pub search: Arc<dyn ToolSearch>,
    /// Calls its tools, as far as something is connected that offers them. Of others, only those are
    /// offered that the client has too.
    pub caller: Option<Arc<dyn ToolCaller>>,
    /// Records its use.
    pub usage: Recorder,
    /// Who uses it.
    pub origin: Origin,
}

impl ExtraCatalog {
    /// Whether this tool can be called here.
    pub fn can_call(&self, id: &ToolId) -> bool {
        match &self.caller {
            Some(caller) => caller.can_call(id),
            None => false,
        }
    }

    /// The hits of a search that are of use, as many as the search has hits where there are so many:
    /// others must not take their place.
    pub fn useful_hits(
        &self,
        request: &SearchRequest,
        is_useful: impl Fn(&Tool) -> bool,
    ) -> (Vec<FoundTool>, Vec<Arc<Tool>>) {
        let found = self.useful(request, is_useful);
        // The definitions are recorded when they are loaded.
        let origin = self.origin.clone();
        recorded::searched(&self.usage, origin, request, &found, None);
        (found.hits, found.more)
    }

    fn useful(&self, request: &SearchRequest, is_useful: impl Fn(&Tool) -> bool) -> Found {
        let (number, found) = self.search_useful(request, &is_useful);
        if found.hits.len() == number {
            return found;
        }
        // Once more and as deep as possible, because nobody knows how far down the useful ones are.
        let deeper = SearchRequest {
            limit: Some(MAX_K),
            ..request.clone()
        };
        let (_, mut found) = self.search_useful(&deeper, &is_useful);
        let displaced = found.hits.split_off(number.min(found.hits.len()));
        let displaced = displaced.into_iter().map(|hit| hit.tool);
        found.more.splice(..0, displaced);
        found.more.truncate(request.more);
        // A second answer would have the tools that were left out.
        found.answered = None;
        found
    }

    /// The useful part of what a search finds, and how many hits it had with the others.
    fn search_useful(
        &self,
        request: &SearchRequest,
        is_useful: &impl Fn(&Tool) -> bool,
    ) -> (usize, Found) {
        let mut found = self.search.search(request);
        let number = found.hits.len();
        found.hits.retain(|hit| is_useful(&hit.tool));
        found.more.retain(|tool| is_useful(tool));
        (number, found)
    }
}

impl fmt::Debug for ExtraCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtraCatalog")
            .field("calls", &self.caller.is_some())
            .finish_non_exhaustive()
    }
}

/// Calls tools that are not the client's.
#[async_trait]
pub trait ToolCaller: Send + Sync {
    /// Whether something is connected now that offers this tool.
    fn can_call(&self, id: &ToolId) -> bool;

    /// Makes a call, and returns the text for the model, also where it is refused.
    async fn call(&self, tool: &Arc<Tool>, arguments: &str) -> CalledTool;
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalledTool {
    /// The text for the model.
    pub text: String,
    /// False where it was refused or failed, or was a dry run.
    pub has_succeeded: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolscout_finder::finder::search::doubles::ListedTools;

    #[test]
    fn tools_that_are_of_no_use_do_not_take_the_place_of_others() {
        let tools: Vec<(String, &str)> = (0..30)
            .map(|number| (format!("away/send_{number:02}"), "send mail to a person"))
            .chain([("here/mail".to_owned(), "send mail")])
            .collect();
        let tools: Vec<(&str, &str)> = tools
            .iter()
            .map(|(id, text)| (id.as_str(), *text))
            .collect();
        let catalog = ExtraCatalog {
            search: Arc::new(ListedTools::of(&tools)),
            caller: None,
            usage: Recorder::default(),
            origin: Origin::default(),
        };
        let request = SearchRequest {
            queries: vec!["send mail to a person".into()],
            limit: Some(3),
            ..SearchRequest::default()
        };
        let ids = |is_useful: fn(&Tool) -> bool| -> Vec<String> {
            let (hits, _) = catalog.useful_hits(&request, is_useful);
            hits.iter().map(|hit| hit.tool.id.to_string()).collect()
        };
        assert_eq!(ids(|tool| tool.id.server() == "here"), ["here/mail"]);
        assert_eq!(ids(|_| true).len(), 3);
        assert_eq!(ids(|tool| tool.id.as_str() > "away/send_05").len(), 3);
        assert!(ids(|_| false).is_empty());
    }
}
