//! Implements [`ToolSearch`] for the engine's catalog and its snapshots.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use toolscout_index::Version;
use toolscout_index::{
    Catalog, Filter, Hit, Match, Query, Results, SearchOptions, Searcher, Tool, ToolId,
};

use crate::finder::search::{
    Found, FoundItem, FoundTool, NoMatch, SearchRequest, ToolSearch, UsedTool,
};
use crate::finder::{model_names, needs};
use toolscout_base::clock::unix_ms;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_base::printable::excerpt;
use toolscout_gate::usage::shadow::{SecondSearch, Shown};

/// Similar names suggested for an unknown name.
const MAX_NEAREST: usize = 5;
/// Hits that are named if probably none of them serves the request.
const NEAREST_SHOWN: usize = 3;

/// Gives the newest snapshot of a catalog; [`ToolSearch`] asks for it anew at each call.
pub trait SnapshotSource: Send + Sync {
    /// The newest snapshot.
    fn snapshot(&self) -> Arc<Searcher>;

    /// A snapshot that answers this query: it may lack what the query does not ask for. May block.
    ///
    /// # Errors
    /// Why the catalog cannot be searched now.
    fn snapshot_for(&self, _query: &Query) -> Result<Arc<Searcher>, String> {
        Ok(self.snapshot())
    }

    /// The item with this id, which may be no tool. May block.
    fn find_tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.snapshot().tool(id)
    }

    /// Number of tools.
    fn tool_count(&self) -> usize {
        self.snapshot().tool_count()
    }

    /// The threads that searches run on, if they are bounded.
    fn cpu_pool(&self) -> Option<CpuPool> {
        None
    }

    /// False where snapshots have no tools, since they are kept in a store.
    fn has_tools(&self) -> bool {
        true
    }

    /// Whether its usage memory is on.
    fn has_memory(&self) -> bool {
        false
    }

    /// Tells its usage memory of a call that succeeded. May block.
    ///
    /// # Errors
    /// Why nothing was stored.
    fn remember(&self, _used_tool: &UsedTool) -> Result<(), String> {
        Ok(())
    }
}

impl SnapshotSource for Catalog {
    fn snapshot(&self) -> Arc<Searcher> {
        self.searcher()
    }

    fn has_memory(&self) -> bool {
        self.memory().is_active()
    }

    fn remember(&self, used_tool: &UsedTool) -> Result<(), String> {
        let UsedTool { query, tool, .. } = used_tool;
        let at_ms = unix_ms(SystemTime::now());
        let source = used_tool.source();
        match self.memory().remember(query, tool, at_ms, &source) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A function as a [`SnapshotSource`].
pub struct CurrentSnapshot<F>(pub F);

impl<F: Fn() -> Arc<Searcher> + Send + Sync> SnapshotSource for CurrentSnapshot<F> {
    fn snapshot(&self) -> Arc<Searcher> {
        (self.0)()
    }
}

impl<S: SnapshotSource> ToolSearch for S {
    fn search(&self, request: &SearchRequest) -> Found {
        search(self, request)
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.find_tool(id).filter(|tool| tool.kind.is_tool())
    }

    fn item(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.find_tool(id)
    }

    fn items(&self) -> Vec<Arc<Tool>> {
        self.snapshot().items().collect()
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        self.snapshot().tools().collect()
    }

    fn ids(&self) -> Vec<ToolId> {
        let searcher = self.snapshot();
        searcher.ids_passing(&Filter::default()).cloned().collect()
    }

    fn named(&self, name: &str) -> Vec<Arc<Tool>> {
        named(&self.snapshot(), name)
    }

    fn lists_tools(&self) -> bool {
        self.has_tools()
    }

    fn indexed(&self) -> Option<Arc<Searcher>> {
        self.has_tools().then(|| self.snapshot())
    }

    fn cpu_pool(&self) -> Option<CpuPool> {
        SnapshotSource::cpu_pool(self)
    }

    fn count(&self) -> usize {
        self.tool_count()
    }

    fn version(&self) -> Version {
        self.snapshot().version().clone()
    }

    fn learns(&self) -> bool {
        self.has_memory()
    }

    fn used(&self, used_tool: &UsedTool) {
        if let Err(error) = self.remember(used_tool) {
            // Without the query, which belongs to a user.
            tracing::warn!(tool = %used_tool.tool, error, "a call was not remembered");
        }
    }
}

fn search(source: &impl SnapshotSource, request: &SearchRequest) -> Found {
    let mut found = Found::default();
    let mut reasons = Vec::new();
    for name in &request.select {
        let searcher = match source.snapshot_for(&Query::new(name.as_str())) {
            Ok(searcher) => searcher,
            Err(problem) => {
                reasons.push(not_searched(problem));
                continue;
            }
        };
        match find_by_name(&searcher, name, request) {
            Some(item) if !item.kind.is_tool() => {
                found.items.push(FoundItem { item, rank: None });
            }
            Some(tool) => found.hits.push(FoundTool {
                tool,
                score: 1.0,
                query: None,
                is_of_several: false,
                companion_of: None,
            }),
            None => reasons.push(unknown_name(&searcher, name)),
        }
    }
    if !request.queries.is_empty() {
        let options = SearchOptions {
            k: request.limit,
            ..SearchOptions::default()
        };
        let query = Query::any_of(&request.queries)
            .options(options)
            .near(request.more)
            .filter(request.filter.clone());
        match results_of(source, &query) {
            Ok(results) => add_results(results, request, &mut found, &mut reasons),
            Err(problem) => reasons.push(not_searched(problem)),
        }
        found.answered = Some(query);
    }
    found.no_match = joined(reasons);
    found
}

fn results_of(source: &impl SnapshotSource, query: &Query) -> Result<Results, String> {
    let searcher = source.snapshot_for(query)?;
    searcher.search(query).map_err(|error| error.to_string())
}

fn add_results(
    results: Results,
    request: &SearchRequest,
    found: &mut Found,
    reasons: &mut Vec<NoMatch>,
) {
    let hits = tools_of(results.hits, found);
    found.matched = Some(results.matched);
    found.unmatched = results.unmatched;
    found.better_hidden = results.better_hidden;
    if let Some(no_match) = results.no_match {
        found.is_of_request = no_match.reason.is_of_request();
        reasons.push(NoMatch::from(no_match));
    }
    if results.matched == Match::None {
        // They are named as the nearest only if they are tools.
        found.items.retain(|item| item.rank.is_none());
        reasons.extend(nearest_of(hits, request.more, &mut found.more));
        return;
    }
    // After the tools that were selected by name.
    found.hits.extend(hits);
    found.needs = needs::of_hits(&found.hits, &request.queries, results.matched);
    let near = results.near.iter().map(|near| near.tool.shared());
    found.more = near.filter(|tool| tool.kind.is_tool()).collect();
}

/// The hits that are tools; the others become items of what was found.
fn tools_of(hits: Vec<Hit>, found: &mut Found) -> Vec<FoundTool> {
    let mut tools = Vec::with_capacity(hits.len());
    for (place, hit) in hits.into_iter().enumerate() {
        if hit.kind.is_tool() {
            tools.push(found_tool(hit));
            continue;
        }
        found.items.push(FoundItem {
            item: hit.tool.shared(),
            rank: Some(place + 1),
        });
    }
    tools
}

fn found_tool(hit: Hit) -> FoundTool {
    FoundTool {
        tool: hit.tool.shared(),
        score: hit.score,
        // That a companion is called says nothing about the request.
        query: match hit.companion_of {
            Some(_) => None,
            None => hit.matched_queries.first().copied(),
        },
        is_of_several: hit.companion_of.is_none() && hit.matched_queries.len() > 1,
        companion_of: hit.companion_of,
    }
}

/// What a model would be shown of a query that was answered before. `lines` is as in
/// [`SearchRequest::more`].
pub fn repeated(query: Query, lines: usize, second: &SecondSearch<'_>) -> Option<Shown> {
    let results = second.answer(query)?;
    // As what was shown: without items of other kinds.
    let tools = results.hits.iter().filter(|hit| hit.kind.is_tool());
    let hits: Vec<ToolId> = tools.map(|hit| hit.id.clone()).collect();
    if results.matched == Match::None {
        let nearest = hits.into_iter().take(NEAREST_SHOWN.min(lines));
        return Some(Shown {
            hits: Vec::new(),
            more: nearest.collect(),
        });
    }
    let more = results.near.iter().map(|near| near.id.clone());
    Some(Shown {
        hits,
        more: more.collect(),
    })
}

/// Hits that most probably do not serve the request are not loaded. The first of them are named, with a
/// line each if `lines` are wanted, else by their ids.
fn nearest_of(hits: Vec<FoundTool>, lines: usize, more: &mut Vec<Arc<Tool>>) -> Option<NoMatch> {
    if hits.is_empty() {
        return None;
    }
    let nearest = hits.into_iter().take(NEAREST_SHOWN).map(|hit| hit.tool);
    let mut no_match = NoMatch {
        reason: "no tool is near enough to the request".to_owned(),
        nearest: Vec::new(),
    };
    if lines > 0 {
        more.extend(nearest.take(lines));
    } else {
        no_match.nearest = nearest.map(|tool| tool.id.clone()).collect();
    }
    Some(no_match)
}

fn not_searched(reason: String) -> NoMatch {
    NoMatch {
        reason,
        nearest: Vec::new(),
    }
}

/// The tool with this id, else the first tool in the order of ids that the name denotes.
fn find_by_name(searcher: &Searcher, name: &str, request: &SearchRequest) -> Option<Arc<Tool>> {
    let filter = &request.filter;
    // An id is found by its key; only other names need a scan of all tools.
    if let Ok(id) = ToolId::parse(name)
        && let Some(tool) = searcher.tool(&id)
    {
        // The id of an item says what it is, so nobody has to ask for the kind too.
        let of_its_kind = Filter {
            kinds: BTreeSet::from([tool.kind]),
            ..filter.clone()
        };
        if of_its_kind.accepts(&tool) {
            return Some(tool);
        }
    }
    let mut tools = named(searcher, name).into_iter();
    if let Some(tool) = tools.find(|tool| filter.accepts(tool)) {
        return Some(tool);
    }
    // Names of tools come before aliases, which the catalog's owner gives.
    let aliased = searcher.aliased(name);
    let mut tools = aliased.iter().filter_map(|id| searcher.tool(id));
    tools.find(|tool| filter.accepts(tool))
}

/// The tools that this name may call. Reads no other tool than these.
fn named(searcher: &Searcher, name: &str) -> Vec<Arc<Tool>> {
    let mut tools = Vec::new();
    for id in searcher.ids_passing(&Filter::default()) {
        if model_names::denotes(name, id) {
            tools.extend(searcher.tool(id));
        }
    }
    tools
}

fn unknown_name(searcher: &Searcher, name: &str) -> NoMatch {
    let tools = Filter::default();
    let ids = searcher.ids_passing(&tools).map(ToolId::as_str);
    let nearest = model_names::nearest(name, ids, MAX_NEAREST).into_iter();
    NoMatch {
        reason: format!("no tool is called {:?}", excerpt(name, 100)),
        nearest: nearest.flat_map(ToolId::parse).collect(),
    }
}

fn joined(reasons: Vec<NoMatch>) -> Option<NoMatch> {
    let mut reasons = reasons.into_iter();
    let mut all = reasons.next()?;
    for next in reasons {
        all.reason = format!("{}; {}", all.reason, next.reason);
        all.nearest.extend(next.nearest);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use toolscout_index::{DataDir, Options};

    use super::*;

    fn catalog(directory: &std::path::Path) -> Catalog {
        let catalog = DataDir::new(directory)
            .open_or_create("c", Options::default())
            .unwrap();
        let tools = [
            ("weather", "forecast", "Weather forecast for a city"),
            ("mail", "send", "Send mail to a person"),
            ("chat", "send", "Send a chat message"),
        ];
        let tools: Vec<Tool> = tools
            .iter()
            .map(|(server, name, text)| Tool::new(server, name).unwrap().with_description(*text))
            .collect();
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&tools).unwrap();
        writer.commit().unwrap();
        catalog
    }

    fn ids(found: &Found) -> Vec<&str> {
        found.hits.iter().map(|hit| hit.tool.id.as_str()).collect()
    }

    #[test]
    fn the_engine_searches_by_query_and_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = catalog(directory.path());
        let by_words = SearchRequest {
            queries: vec!["weather forecast".into()],
            limit: Some(1),
            ..SearchRequest::default()
        };
        assert_eq!(
            ids(&ToolSearch::search(&catalog, &by_words)),
            ["weather/forecast"]
        );
        for name in ["mail/send", "mail__send"] {
            let by_name = SearchRequest {
                select: vec![name.into()],
                limit: Some(5),
                ..SearchRequest::default()
            };
            assert_eq!(
                ids(&ToolSearch::search(&catalog, &by_name)),
                ["mail/send"],
                "{name}"
            );
        }
        assert_eq!(
            (
                catalog.count(),
                CurrentSnapshot(|| catalog.searcher()).tools().len()
            ),
            (3, 3)
        );
    }

    #[test]
    fn hits_that_most_probably_do_not_fit_are_named_and_not_loaded() {
        let hits = |count: usize| -> Vec<FoundTool> {
            let names = (0..count).map(|number| format!("m/{number}"));
            let ids: Vec<String> = names.collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            crate::finder::search::doubles::found(&ids).hits
        };
        let mut more = Vec::new();
        let no_match = nearest_of(hits(5), 11, &mut more).unwrap();
        let named: Vec<&str> = more.iter().map(|tool| tool.id.as_str()).collect();
        assert_eq!(named, ["m/0", "m/1", "m/2"]);
        assert!(no_match.nearest.is_empty(), "they have lines: {no_match:?}");
        // Without lines, their names.
        let mut more = Vec::new();
        let no_match = nearest_of(hits(5), 0, &mut more).unwrap();
        assert_eq!((no_match.nearest.len(), more.len()), (3, 0));
        assert!(nearest_of(Vec::new(), 11, &mut more).is_none());
    }

    #[test]
    fn a_search_says_what_its_tools_need() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = catalog(directory.path());
        let mut send = Tool::new("mail", "send").unwrap();
        send.description = "Send mail to a person".into();
        let schema = serde_json::json!({
            "type": "object",
            "properties": { "to": { "type": "string", "format": "email" } },
            "required": ["to"],
        });
        send.input_schema = schema.as_object().unwrap().clone();
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&[send]).unwrap();
        writer.commit().unwrap();
        let needs = |query: &str| {
            let request = SearchRequest {
                queries: vec![query.into()],
                ..SearchRequest::default()
            };
            let mut verdict = ToolSearch::search(&catalog, &request).verdict();
            verdict.shift_remove("needs").map(|lines| lines.to_string())
        };
        let line = r#"["send: an email address (to)"]"#;
        assert_eq!(needs("send mail to Ann").as_deref(), Some(line));
        assert_eq!(needs("send mail to ann@example.com"), None);
    }

    #[test]
    fn a_search_says_how_well_its_hits_fit() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = catalog(directory.path());
        let verdict = |queries: &[&str], select: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let request = SearchRequest {
                queries: texts(queries),
                select: texts(select),
                ..SearchRequest::default()
            };
            ToolSearch::search(&catalog, &request).verdict()
        };
        assert_eq!(
            verdict(&["will the city be warm"], &[])["match"],
            "possible"
        );
        assert_eq!(verdict(&["mail/send"], &[])["match"], "good");
        let none = verdict(&["zygote"], &[]);
        assert_eq!(none["match"], "none");
        assert!(
            none["advice"]
                .as_str()
                .unwrap()
                .contains("say that no tool does it")
        );
        assert!(
            verdict(&[], &["mail/send"]).is_empty(),
            "nothing was searched for"
        );
    }

    #[test]
    fn an_unknown_name_and_an_invalid_query_are_reported_as_no_match() {
        let directory = tempfile::tempdir().unwrap();
        let catalog = catalog(directory.path());
        let request = SearchRequest {
            select: vec!["mail/sned".into()],
            queries: vec!["mail".into()],
            limit: Some(900),
            ..SearchRequest::default()
        };
        let no_match = ToolSearch::search(&catalog, &request).no_match.unwrap();
        assert!(
            no_match
                .reason
                .contains("no tool is called \"mail/sned\"; invalid query: k is 900"),
            "{no_match:?}"
        );
        assert_eq!(no_match.nearest[0].as_str(), "mail/send");
    }

    #[test]
    fn a_filter_applies_to_selected_names() {
        let directory = tempfile::tempdir().unwrap();
        let mut request = SearchRequest {
            select: vec!["mail/send".into()],
            limit: Some(5),
            ..SearchRequest::default()
        };
        request.filter.servers.insert("chat".into());
        assert!(
            ToolSearch::search(&catalog(directory.path()), &request)
                .hits
                .is_empty()
        );
    }
}
