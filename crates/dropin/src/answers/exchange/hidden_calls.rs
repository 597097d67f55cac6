//! The calls that the client does not see: searches, and tools of the other catalog.

use std::collections::BTreeSet;
use std::sync::Arc;

use toolscout_index::{Tool, ToolId};

use super::Exchange;
use super::hits::{FoundTool, MoreTool, Searched, search_both, without_visible};
use crate::dialect::{CallResult, ModelCall};
use crate::tools::search_tool::{self, Answer};
use toolscout_finder::finder::meta_tools::{self, FindConfig, MoreTools};
use toolscout_finder::finder::search::{
    SearchRequest, UsedTool, off_async_threads, why_not_searched,
};
use toolscout_finder::finder::trail;
use toolscout_gate::tools::Arguments;

impl Exchange {
    /// The results of the calls that the client does not see.
    pub(super) async fn do_hidden(&mut self, calls: &[ModelCall]) -> Vec<CallResult> {
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            let text = match self.tools.foreign(&call.name).cloned() {
                Some(tool) => self.called(&tool, call).await,
                None if call.name == self.tools.list.search_name => self.search(call).await,
                None => search_tool::problem(
                    "nothing that is connected offers this tool now; search for another one",
                ),
            };
            results.push(CallResult {
                id: call.id.clone(),
                name: call.name.clone(),
                text,
            });
        }
        results
    }

    /// The result of a tool that is not the client's.
    async fn called(&mut self, tool: &Arc<Tool>, call: &ModelCall) -> String {
        self.tools.require_foreign(&call.name, tool);
        if let Some(extra) = &self.request.extra
            && let Some(caller) = &extra.caller
        {
            self.searches.history.called();
            let called = caller.call(tool, &call.arguments).await;
            if called.has_succeeded {
                self.teach(&tool.id).await;
            }
            return called.text;
        }
        search_tool::problem("this tool cannot be called here")
    }

    /// Tells the other catalog of a call that succeeded, if a search of the conversation had found its
    /// tool there.
    async fn teach(&mut self, tool: &ToolId) {
        let Some(extra) = self.request.extra.clone() else {
            return;
        };
        let Some(query) = self.searches.trail.called(tool) else {
            return;
        };
        let used_tool = UsedTool {
            query,
            tool: tool.clone(),
            who: self.request.owner.clone(),
        };
        trail::teach(Arc::clone(&extra.search), vec![used_tool]).await;
    }

    /// The result of a search. What it found is shown from now on.
    async fn search(&mut self, call: &ModelCall) -> String {
        self.report.figures.searches += 1;
        match self.found(&call.arguments).await {
            Ok(answer) => answer.to_text(),
            Err(reason) => search_tool::problem(&reason),
        }
    }

    async fn found(&mut self, arguments: &str) -> Result<Answer, String> {
        let mut request = search_request(arguments, self.endpoint.0.config.more)?;
        let mut answer = Answer::default();
        let list = &self.tools.list;
        // The model may spell the name of a tool in a namespace in another way.
        for name in &mut request.select {
            *name = list.resolved(name).to_owned();
        }
        request.select.retain(|name| {
            let is_visible = list.is_visible(name);
            if is_visible {
                answer.already.push(name.clone());
            }
            !is_visible
        });
        if request.queries.is_empty() && request.select.is_empty() {
            return Ok(answer);
        }
        let Searched {
            mut own,
            extra,
            extra_more,
            queries,
        } = self.searched(request.clone()).await?;
        if let Some(queries) = queries {
            let foreign = extra.iter().filter(|hit| hit.is_foreign);
            let hits = foreign.map(|hit| (&hit.tool.id, hit.query));
            self.searches.trail.searched(&queries, hits);
        }
        self.searches.history.note(&request.queries, &mut own);
        let mut hits = without_visible(&mut own, &self.tools.list, &mut answer.already);
        // What one catalog lacks, the other may have: a verdict on the request's own tools alone would
        // say too little.
        if extra.is_empty() {
            answer.verdict = own.verdict();
        }
        hits.extend(extra);
        let budget = self.endpoint.0.config.tool_budget_tokens;
        let loaded = self.tools.load(&hits, budget);
        self.record_loaded(&loaded.added, &hits);
        for name in loaded.added {
            let Some(hit) = hits.iter().find(|hit| hit.name == name) else {
                continue;
            };
            let described = meta_tools::describe_loaded(&name, &hit.tool);
            answer.loaded.push(described);
        }
        // An earlier search of the same tools has named what comes next.
        if own.repeats == 0 || own.hits.is_empty() {
            answer.more = self.more_lines(&own.more, extra_more, &hits);
        }
        answer.already.extend(loaded.already);
        answer.refused = loaded.refused;
        answer.evicted = loaded.evicted;
        if hits.is_empty()
            && own.hits.is_empty()
            && let Some(no_match) = own.no_match
        {
            answer.missing(no_match, str::to_owned);
        }
        Ok(answer)
    }

    /// Records which tools of the other catalog the model gets to see.
    fn record_loaded(&self, added: &[String], hits: &[FoundTool]) {
        let Some(extra) = &self.request.extra else {
            return;
        };
        let mut loaded = Vec::new();
        for hit in hits {
            if hit.is_foreign && added.contains(&hit.name) {
                let tokens = self.tools.tokens_of(&hit.tool);
                loaded.push((hit.tool.id.clone(), tokens));
            }
        }
        extra.usage.loaded(&extra.origin, loaded);
    }

    /// A line for each tool after the hits, those of the request first.
    fn more_lines(
        &self,
        own: &[Arc<Tool>],
        extra: Vec<MoreTool>,
        hits: &[FoundTool],
    ) -> Vec<String> {
        let config = self.endpoint.0.config.more;
        let mut named: BTreeSet<String> = hits.iter().map(|hit| hit.name.clone()).collect();
        let mut lines = Vec::new();
        for more in own.iter().map(MoreTool::of_request).chain(extra) {
            if lines.len() == config.lines {
                break;
            }
            // A tool that both catalogs have gets one line.
            if named.insert(more.name.clone()) {
                lines.push(config.line(&more.name, &more.tool));
            }
        }
        lines
    }

    /// What the request's tools have, and what of the other catalog can be shown.
    async fn searched(&self, request: SearchRequest) -> Result<Searched, String> {
        let searcher = match self.endpoint.0.catalogs.searcher(&self.tools.list).await {
            Ok(searcher) => searcher,
            Err(problem) => {
                tracing::error!(problem, "tools of a request cannot be searched");
                let advice = "the search failed; answer without further tools, or try once more";
                return Err(advice.to_owned());
            }
        };
        let (extra, list) = (self.request.extra.clone(), Arc::clone(&self.tools.list));
        let other_search = extra.as_ref().map(|extra| Arc::clone(&extra.search));
        let search = move || search_both(searcher, extra.as_ref(), &list, request);
        let searched = match other_search {
            // The other catalog may have to wait for a store.
            Some(other) => off_async_threads(&other, move |_| search()).await,
            None => self.endpoint.0.cpu_pool.run(search).await,
        };
        searched.map_err(|error| why_not_searched(&error).to_owned())
    }
}

/// Reads the arguments of a search.
fn search_request(arguments: &str, more: MoreTools) -> Result<SearchRequest, String> {
    let mut arguments: Arguments = match serde_json::from_str(arguments) {
        Ok(arguments) => arguments,
        Err(problem) => {
            return Err(format!(
                "the arguments are no JSON object ({problem}); give `query` with a few words about what the tool should do"
            ));
        }
    };
    // The tools of a request belong to no servers.
    arguments.shift_remove("server");
    let config = FindConfig {
        more,
        ..FindConfig::default()
    };
    meta_tools::parse(&arguments, &config)
}
