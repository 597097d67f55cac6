//! One request from its first round to its last, in every dialect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use reqwest::Response;
use toolscout_index::formats::model_name;
use toolscout_index::{Match, Searcher, Tool, ToolId};

use crate::answers::figures::{Figures, Report};
use crate::answers::passing;
use crate::conversations::conversation::ConversationNames;
use crate::conversations::found::{Found, Held, held_key};
use crate::conversations::kept_conversations::{self, Identity, Remembered};
use crate::dialect::{
    CallResult, HiddenTools, Item, ModelCall, Protocol, Round, View, WholeAnswer,
};
use crate::extra::ExtraCatalog;
use crate::provider::answer_bounds::HeldAnswer;
use crate::tools::search_tool::{self, Answer};
use crate::tools::shown::ShownTools;
use crate::tools::tool_list::{ToolList, estimated_tokens};
use crate::wire::failure::Failure;
use crate::wire::json::{self, Fields};
use crate::{AnswerBody, DropIn, DropInAnswer, DropInRequest, is_event_stream, provider};
use toolscout_base::long_work;
use toolscout_finder::finder::meta_tools::{self, FindConfig, MoreTools};
use toolscout_finder::finder::model_names;
use toolscout_finder::finder::search::{
    self, SearchRequest, UsedTool, off_async_threads, why_not_searched,
};
use toolscout_finder::finder::snapshot::CurrentSnapshot;
use toolscout_finder::finder::{SearchHistory, SearchTrail, ToolSearch as _, trail};
use toolscout_gate::tools::Arguments;

/// A request whose tools are deferred, between two rounds of the model.
pub struct Exchange {
    pub proxy: DropIn,
    pub request: Arc<DropInRequest>,
    protocol: &'static dyn Protocol,
    fields: Fields,
    list: Arc<ToolList>,
    streams: bool,
    /// The conversation as the provider sees it.
    items: Vec<Bytes>,
    /// The id of a conversation to which the provider adds all that it is sent.
    conversation: Option<String>,
    shown: ShownTools,
    /// The shown tools that are not the client's and are called here, by name.
    foreign: BTreeMap<String, Arc<Tool>>,
    /// Tools that the model was shown as such ones, and that nothing offers now.
    away: Vec<(String, ToolId)>,
    hidden_tools: HiddenTools,
    /// What searches of the other catalog found, where that teaches its usage memory.
    trail: SearchTrail,
    /// What the searches of this request have found since their last call.
    history: SearchHistory,
    /// The conversation as the client sees it.
    identity: Identity,
    /// What else the conversation is known by.
    names: ConversationNames,
    /// What the client will not see of the answer.
    hidden: Vec<Bytes>,
    /// The text that the client got.
    text: String,
    /// The memory that the provider's answer takes.
    pub held: HeldAnswer,
    pub report: Report,
}

/// What follows a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The model is asked again.
    Again,
    /// The client has its answer.
    Done,
}

impl Exchange {
    /// Prepares the first round; `None` for a conversation of a form that is not known.
    pub fn new(
        proxy: DropIn,
        request: Arc<DropInRequest>,
        mut fields: Fields,
        list: Arc<ToolList>,
        streams: bool,
    ) -> Option<Self> {
        let protocol = request.dialect.protocol();
        let items = protocol.conversation(&fields)?;
        let mut identity = Identity::new(&request.owner, request.dialect.name());
        let held = Held::take(&proxy, &request, &mut fields, &mut identity);
        let restored = kept_conversations::restore(
            &proxy.0.memory,
            protocol,
            &request.owner,
            identity,
            &items,
        );
        let names = ConversationNames::of(&request, &fields, protocol, &items);
        let Found {
            mut shown,
            foreign,
            trail,
        } = Found::before(&proxy, &names, &held, &restored);
        let foreign = Foreign::of(&request, foreign);
        let hidden_tools = foreign.hidden_with(&list);
        let Foreign {
            present: foreign,
            away,
        } = foreign;
        // Definitions change between requests, so each tool gets the tokens that it has now.
        shown.retain(|name| match list.deferred_tokens(name) {
            Some(tokens) => Some(tokens),
            None => Some(foreign_tokens(protocol, foreign.get(name)?)),
        });
        let chosen = protocol.choice(&fields);
        let required = restored.called.into_iter();
        for name in required.chain(protocol.chosen_tools(&chosen)) {
            let name = list.resolved(&name);
            // The client's own tools that are always shown need no place among the found ones.
            if let Some(tokens) = list.deferred_tokens(name) {
                shown.require(name, tokens);
            }
        }
        // The provider waits for these results before it takes anything else.
        let mut items = held.pending;
        items.extend(restored.items);
        Some(Exchange {
            protocol,
            conversation: held.conversation,
            fields,
            streams,
            items,
            shown,
            foreign,
            away,
            hidden_tools,
            trail,
            history: SearchHistory::default(),
            identity: restored.identity,
            names,
            hidden: Vec::new(),
            text: String::new(),
            held: proxy.0.answers.begin(),
            report: Report::begin(&request, &proxy.0.metrics, Figures::begin(list.len())),
            proxy,
            request,
            list,
        })
    }

    /// Sends the first round.
    ///
    /// # Errors
    /// Where the provider gives no answer.
    pub async fn begin(&mut self) -> Result<First, Failure> {
        // While the model thinks, so that its first search does not wait.
        self.proxy.0.catalogs.prepare(&self.list);
        match self.first_round().await {
            Ok(first) => Ok(first),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    async fn first_round(&mut self) -> Result<First, Failure> {
        let response = self.send().await?;
        Ok(if !response.status().is_success() {
            First::Refused(response)
        } else if is_event_stream(&response) {
            First::Streamed(response)
        } else {
            // Some servers ignore `stream`, and clients of theirs expect it.
            First::Whole(response)
        })
    }

    /// Answers with all rounds in one piece, of which this is the first.
    ///
    /// # Errors
    /// Where the provider gives no whole answer.
    pub async fn answer_whole(&mut self, response: Response) -> Result<DropInAnswer, Failure> {
        let mut answer = self.protocol.whole(self.view());
        let mut response = response;
        loop {
            let round = match self.whole_round(answer.as_mut(), &mut response).await {
                Ok(round) => round,
                Err(failure) => return Err(self.failed(failure)),
            };
            if self.after(round, None).await == Next::Done {
                break;
            }
            response = match self.send().await {
                Ok(next) if next.status().is_success() => next,
                Ok(refused) => return Ok(self.refused(refused)),
                Err(failure) => return Err(self.failed(failure)),
            };
        }
        let mut headers = provider::response_headers(response.headers());
        self.answered();
        self.report.figures.add_to(&mut headers);
        self.report.figures.count(answer.usage());
        Ok(DropInAnswer {
            status: response.status().as_u16(),
            headers,
            body: AnswerBody::Whole(long_work::read(self.held.bytes(), || answer.close()).await),
        })
    }

    /// The round in this response, whose time counts as the model's up to its last byte.
    async fn whole_round(
        &mut self,
        answer: &mut dyn WholeAnswer,
        response: &mut Response,
    ) -> Result<Round, Failure> {
        let begun = Instant::now();
        let provider = &self.proxy.0.provider;
        let body = provider.held(response, &mut self.held).await;
        self.report.figures.model += begun.elapsed();
        let body = body?;
        let round = long_work::read(body.len(), || answer.take(body)).await?;
        self.counted_calls(round)
    }

    /// The provider's refusal, as it comes.
    pub fn refused(&mut self, response: Response) -> DropInAnswer {
        self.report.outcome = "refused";
        passing::answer(&self.proxy.0.provider, self.request.dialect, response, None)
    }

    /// Notes a failure for the log.
    pub fn failed(&mut self, failure: Failure) -> Failure {
        self.report.outcome = failure.code;
        failure
    }

    /// Notes that the client has its answer.
    pub fn answered(&mut self) {
        // Several rounds may have shown more tokens than one with all tools would have.
        let Figures { tokens_shown, .. } = self.report.figures;
        self.report.figures.tokens_saved = self.list.tokens.saturating_sub(tokens_shown);
        self.report.outcome = "answered";
    }

    /// How answers to this request are read.
    pub fn view(&self) -> View {
        View {
            hidden: self.hidden_tools.clone(),
            tools: self.protocol.tools(&self.fields).unwrap_or_default(),
            is_stored: self.fields.flag("store") != Some(false),
            wants_list: self.request.wants_list(),
        }
    }

    /// How its dialect is read and written.
    pub fn protocol(&self) -> &'static dyn Protocol {
        self.protocol
    }

    /// Sends the next round, and waits for the beginning of its answer.
    ///
    /// # Errors
    /// Where none begins.
    pub async fn send(&mut self) -> Result<Response, Failure> {
        let body = self.body();
        let found_tokens = self.shown.tokens();
        let shown_tokens = self.list.visible_tokens() + found_tokens;
        self.report.figures.rounds += 1;
        self.report.figures.tools_shown = self.list.visible_count() + self.shown.len();
        // A sum over the rounds, each of which sends the tools again.
        self.report.figures.tokens_shown += shown_tokens;
        let begun = Instant::now();
        let provider = &self.proxy.0.provider;
        let given = self.request.query.as_deref();
        let query = self.request.dialect.query(given, self.streams);
        let sent = provider.send(&self.request, query.as_deref(), body, self.streams);
        let response = sent.await;
        self.report.figures.model += begun.elapsed();
        response
    }

    /// The body of the first round, to count its tokens.
    pub fn counted(&mut self) -> Bytes {
        self.report.outcome = "counted";
        self.body()
    }

    fn body(&self) -> Bytes {
        let mut fields = self.fields.clone();
        let foreign = |name: &str| {
            let tool = self.foreign.get(name)?;
            Some(self.protocol.search_tool(&model_names::spec(tool)))
        };
        let shown = self.shown.names();
        let tools = self.list.shown(self.protocol, shown, foreign);
        self.protocol.set_tools(&mut fields, tools);
        fields.set(self.protocol.conversation_field(), json::list(&self.items));
        // A model that searches on and on has to answer at last.
        if self.report.figures.rounds >= self.proxy.0.config.max_hidden_rounds {
            self.protocol.forbid_calls(&mut fields);
        }
        fields.to_json()
    }

    /// A round whose calls were counted.
    ///
    /// # Errors
    /// When the answer has too many.
    pub fn counted_calls(&mut self, round: Round) -> Result<Round, Failure> {
        self.held
            .add_calls(round.hidden.len() + round.calls.len())?;
        Ok(round)
    }

    /// Decides what follows a round, and searches if the model has. `client_id` is the id under
    /// which the client knows the answer, where it has one.
    pub async fn after(&mut self, round: Round, client_id: Option<String>) -> Next {
        self.text.push_str(&round.text);
        let results = self.do_hidden(&round.hidden).await;
        // Some models call tools in the round in which they must not.
        let is_last = self.report.figures.rounds > self.proxy.0.config.max_hidden_rounds;
        // The client has to answer its own calls before the model can go on.
        if round.hidden.is_empty() || !round.calls.is_empty() || !round.is_complete || is_last {
            let bytes = self.held.bytes();
            long_work::read(bytes, || self.remember(round, results, client_id)).await;
            return Next::Done;
        }
        let results = self.protocol.results(&results);
        if self.conversation.is_some() {
            // The provider has what it was sent, and what it said.
            self.items.clear();
        } else {
            self.items.extend(round.items.iter().cloned());
        }
        self.items.extend(results.iter().cloned());
        self.hidden.extend(round.items);
        self.hidden.extend(results);
        Next::Again
    }

    /// Remembers what the client does not see of its answer.
    fn remember(&mut self, round: Round, results: Vec<CallResult>, client_id: Option<String>) {
        // What was called is evicted last.
        for call in &round.calls {
            let name = call.tool_name();
            let name = self.list.resolved(&name);
            if let Some(tokens) = self.list.deferred_tokens(name) {
                self.shown.require(name, tokens);
            }
        }
        let mut remembered = Remembered {
            results,
            trail: self.trail.clone(),
            shown: self.shown.clone(),
            foreign: self.foreign_ids(),
            ..Remembered::default()
        };
        let memory = &self.proxy.0.memory;
        let owner = &self.request.owner;
        if !remembered.shown.is_empty() {
            for key in &self.names.keys {
                // Results answer calls of this one answer, and the names stand for all of them.
                let found = Remembered {
                    results: Vec::new(),
                    ..remembered.clone()
                };
                memory.put(*key, found);
            }
        }
        for (id, item) in &round.referable {
            memory.put_item(owner, id, item.clone());
        }
        let ids = [round.response_id.clone(), client_id];
        for id in ids.iter().flatten().chain(&self.conversation) {
            let is_known =
                round.response_id.as_ref() == Some(id) || self.conversation.as_ref() == Some(id);
            // Under an id that the provider knows too, there is nothing to translate.
            let response_id = if is_known {
                None
            } else {
                round.response_id.clone()
            };
            let named = Remembered {
                response_id,
                ..remembered.clone()
            };
            memory.put(held_key(owner, id), named);
        }
        if !self.hidden.is_empty() || !round.hidden.is_empty() {
            remembered.items = std::mem::take(&mut self.hidden);
            remembered.items.extend(round.items);
        }
        // That nothing was found here is remembered where another conversation of the same name, as one
        // of a sub-agent, has found something.
        let has_namesake = self.names.keys.iter().any(|key| memory.get(key).is_some());
        if remembered.items.is_empty() && remembered.shown.is_empty() && !has_namesake {
            return;
        }
        let mut identity = self.identity.clone();
        identity.add(Item::OfModel {
            text: self.text.clone(),
            calls: round.calls,
        });
        memory.put(identity.key(), remembered);
    }

    /// The tools that are not the client's and that the model was shown, with those that are away:
    /// these may come back.
    fn foreign_ids(&self) -> Vec<(String, ToolId)> {
        let mut ids = Vec::with_capacity(self.foreign.len() + self.away.len());
        for (name, tool) in &self.foreign {
            ids.push((name.clone(), tool.id.clone()));
        }
        ids.extend_from_slice(&self.away);
        ids
    }

    /// The results of the calls that the client does not see.
    async fn do_hidden(&mut self, calls: &[ModelCall]) -> Vec<CallResult> {
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            let text = match self.foreign.get(&call.name) {
                Some(tool) => self.called(&Arc::clone(tool), call).await,
                None if call.name == self.list.search_name => self.search(call).await,
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
        let tokens = foreign_tokens(self.protocol, tool);
        self.shown.require(&call.name, tokens);
        if let Some(extra) = &self.request.extra
            && let Some(caller) = &extra.caller
        {
            self.history.called();
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
        let Some(query) = self.trail.called(tool) else {
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
        let mut request = search_request(arguments, self.proxy.0.config.more)?;
        let mut answer = Answer::default();
        let list = &self.list;
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
            self.trail.searched(&queries, hits);
        }
        self.history.note(&request.queries, &mut own);
        let mut hits = without_visible(&mut own, &self.list, &mut answer.already);
        // What one catalog lacks, the other may have: a verdict on the request's own tools alone would
        // say too little.
        if extra.is_empty() {
            answer.verdict = own.verdict();
        }
        hits.extend(extra);
        let mut wanted = Vec::with_capacity(hits.len());
        for hit in &hits {
            if let Some(tokens) = self.tokens_of(hit) {
                wanted.push((hit.name.clone(), tokens));
            }
        }
        let budget = self.proxy.0.config.tool_budget_tokens;
        let loaded = self.shown.load(&wanted, budget);
        self.record_loaded(&loaded.added, &hits);
        for name in loaded.added {
            let Some(hit) = hits.iter().find(|hit| hit.name == name) else {
                continue;
            };
            if hit.is_foreign {
                self.hidden_tools.add(&name);
                self.foreign.insert(name.clone(), Arc::clone(&hit.tool));
            }
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
                let tokens = foreign_tokens(self.protocol, &hit.tool);
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
        let config = self.proxy.0.config.more;
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

    fn tokens_of(&self, hit: &FoundTool) -> Option<usize> {
        match hit.is_foreign {
            true => Some(foreign_tokens(self.protocol, &hit.tool)),
            false => self.list.deferred_tokens(&hit.name),
        }
    }

    /// What the request's tools have, and what of the other catalog can be shown.
    async fn searched(&self, request: SearchRequest) -> Result<Searched, String> {
        let searcher = match self.proxy.0.catalogs.searcher(&self.list).await {
            Ok(searcher) => searcher,
            Err(problem) => {
                tracing::error!(problem, "tools of a request cannot be searched");
                let advice = "the search failed; answer without further tools, or try once more";
                return Err(advice.to_owned());
            }
        };
        let (extra, list) = (self.request.extra.clone(), Arc::clone(&self.list));
        let other_search = extra.as_ref().map(|extra| Arc::clone(&extra.search));
        let search = move || search_both(searcher, extra.as_ref(), &list, request);
        let searched = match other_search {
            // The other catalog may have to wait for a store.
            Some(other) => off_async_threads(&other, move |_| search()).await,
            None => self.proxy.0.cpu_pool.run(search).await,
        };
        searched.map_err(|error| why_not_searched(&error).to_owned())
    }
}

/// The hits that can be loaded, with the names of those that the model sees already put here.
///
/// Tools that come next take their places. After a good match, a query whose first hit the model sees needs nothing else: what
/// it found besides gets a line. A hit of several queries does not tell whether it is what each of them looks for.
fn without_visible(
    own: &mut search::Found,
    list: &ToolList,
    visible: &mut Vec<String>,
) -> Vec<FoundTool> {
    own.more.retain(|tool| !list.is_visible(tool.id.name()));
    let (mut hits, mut served, mut found_visible) = (Vec::new(), BTreeSet::new(), 0);
    let mut lines = Vec::new();
    for hit in &own.hits {
        // The query that alone found it.
        let query = hit.query.filter(|_| !hit.is_of_several);
        let is_first = !hits
            .iter()
            .any(|other: &FoundTool| other.is_of_several || other.query == hit.query);
        if list.is_visible(hit.tool.id.name()) {
            found_visible += 1;
            visible.push(hit.tool.id.name().to_owned());
            if is_first && own.matched == Some(Match::Good) {
                served.extend(query);
            }
        } else if query.is_some_and(|query| served.contains(&query)) {
            lines.push(Arc::clone(&hit.tool));
        } else {
            hits.push(FoundTool::of_request(hit));
        }
    }
    // Nothing tells which query the tools that come next belong to.
    if served.is_empty() {
        let next = own.more.drain(..found_visible.min(own.more.len()));
        hits.extend(next.map(FoundTool::of_next));
    }
    own.more.splice(..0, lines);
    hits
}

/// Searches among the request's tools, and in the other catalog if there is one.
fn search_both(
    searcher: Arc<Searcher>,
    extra: Option<&ExtraCatalog>,
    list: &ToolList,
    request: SearchRequest,
) -> Searched {
    let (mut hits, mut more, mut learns) = (Vec::new(), Vec::new(), false);
    if let Some(extra) = extra {
        learns = extra.search.learns();
        (hits, more) = extra_hits(extra, list, &request);
    }
    let own = CurrentSnapshot(move || Arc::clone(&searcher));
    Searched {
        own: own.search(&request),
        extra: hits,
        extra_more: more,
        queries: learns.then_some(request.queries),
    }
}

/// Tools of the other catalog that can be shown: those that the client has too, and those that can be
/// called here.
fn extra_hits(
    extra: &ExtraCatalog,
    list: &ToolList,
    request: &SearchRequest,
) -> (Vec<FoundTool>, Vec<MoreTool>) {
    let (hits, more) = extra.useful_hits(request, |tool| shown_name(extra, list, tool).is_some());
    let mut found = Vec::with_capacity(hits.len());
    for hit in &hits {
        found.extend(FoundTool::of_catalog(extra, list, hit));
    }
    let mut next = Vec::with_capacity(more.len());
    for tool in more {
        if let Some((name, _)) = shown_name(extra, list, &tool) {
            next.push(MoreTool { name, tool });
        }
    }
    (found, next)
}

/// What a search found.
struct Searched {
    /// Among the request's tools.
    own: search::Found,
    /// In the other catalog.
    extra: Vec<FoundTool>,
    /// In the other catalog after these.
    extra_more: Vec<MoreTool>,
    /// Its queries, where the other catalog learns from calls.
    queries: Option<Vec<String>>,
}

/// A tool after the hits, with the name that the model sees.
struct MoreTool {
    name: String,
    tool: Arc<Tool>,
}

impl MoreTool {
    fn of_request(tool: &Arc<Tool>) -> Self {
        MoreTool {
            name: tool.id.name().to_owned(),
            tool: Arc::clone(tool),
        }
    }
}

/// A tool that was found.
struct FoundTool {
    /// The name that the model sees.
    name: String,
    tool: Arc<Tool>,
    /// Whether it is not the client's.
    is_foreign: bool,
    /// The position of the query that found it.
    query: Option<usize>,
    /// Whether other queries found it too.
    is_of_several: bool,
}

impl FoundTool {
    fn of_request(hit: &search::FoundTool) -> Self {
        FoundTool {
            name: hit.tool.id.name().to_owned(),
            tool: Arc::clone(&hit.tool),
            is_foreign: false,
            query: hit.query,
            is_of_several: hit.is_of_several,
        }
    }

    /// A tool of the request that comes after the hits.
    fn of_next(tool: Arc<Tool>) -> Self {
        FoundTool {
            name: tool.id.name().to_owned(),
            tool,
            is_foreign: false,
            query: None,
            is_of_several: false,
        }
    }

    /// A tool of the other catalog, if it can be shown.
    fn of_catalog(extra: &ExtraCatalog, list: &ToolList, hit: &search::FoundTool) -> Option<Self> {
        let (name, is_foreign) = shown_name(extra, list, &hit.tool)?;
        Some(FoundTool {
            name,
            tool: Arc::clone(&hit.tool),
            is_foreign,
            query: hit.query,
            is_of_several: hit.is_of_several,
        })
    }
}

/// The name under which a tool of the other catalog can be shown, and whether it is not the client's.
fn shown_name(extra: &ExtraCatalog, list: &ToolList, tool: &Tool) -> Option<(String, bool)> {
    let name = model_name(&tool.id);
    // A client that has the tool too calls it itself.
    for own in [name.as_str(), tool.id.name()] {
        if list.deferred_tokens(own).is_some() {
            return Some((own.to_owned(), false));
        }
    }
    (extra.can_call(&tool.id) && list.leaves_free(&name)).then_some((name, true))
}

/// The tools of the other catalog that the model was shown.
#[derive(Default)]
struct Foreign {
    /// Those that can be called now, by name.
    present: BTreeMap<String, Arc<Tool>>,
    /// Those that cannot.
    away: Vec<(String, ToolId)>,
}

impl Foreign {
    fn of(request: &DropInRequest, shown: Vec<(String, ToolId)>) -> Self {
        let mut foreign = Foreign::default();
        for (name, id) in shown {
            let tool = match &request.extra {
                Some(extra) if extra.can_call(&id) => extra.search.tool(&id),
                _ => None,
            };
            match tool {
                Some(tool) => drop(foreign.present.insert(name, tool)),
                None => foreign.away.push((name, id)),
            }
        }
        foreign
    }

    /// The tools whose calls the client does not see: these, and the search tool.
    fn hidden_with(&self, list: &ToolList) -> HiddenTools {
        let hidden_tools = HiddenTools::default();
        for name in self.present.keys().chain([&list.search_name]) {
            hidden_tools.add(name);
        }
        // The model may still call them, and the client does not know them. A name that one of the
        // client's tools could be mistaken for stays the client's.
        for (name, _) in &self.away {
            if list.leaves_free(name) {
                hidden_tools.add(name);
            }
        }
        hidden_tools
    }
}

fn foreign_tokens(protocol: &dyn Protocol, tool: &Tool) -> usize {
    estimated_tokens(&protocol.search_tool(&model_names::spec(tool)))
}

/// How the first round was answered.
pub enum First {
    /// By events.
    Streamed(Response),
    /// In one piece.
    Whole(Response),
    /// By an error.
    Refused(Response),
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

#[cfg(test)]
mod tests {
    use toolscout_finder::finder::search::doubles;

    use super::*;
    use crate::dialect::Dialect;
    use crate::tools::tool_list::{Deferral, ListId};

    #[test]
    fn a_visible_tool_serves_only_the_query_that_alone_found_it() {
        let deferral = Deferral {
            above_tokens: 0,
            own_tokens: 0,
            beside_other_search: false,
            pins: vec!["seen".into()],
            max_tools: 9,
        };
        let tools: Vec<String> = ["seen", "first", "second", "next"]
            .iter()
            .map(|name| format!(r#"{{"type":"function","function":{{"name":"{name}"}}}}"#))
            .collect();
        let tools = Bytes::from(format!("[{}]", tools.join(",")));
        let id = ListId::of("o", Dialect::Chat, &deferral, &tools);
        let list = ToolList::read(id, "o", Dialect::Chat.protocol(), &deferral, &tools).unwrap();
        // Which tools are loaded; a query of `None` stands for several.
        let loaded = |hits: &[(&str, Option<usize>)]| {
            let ids: Vec<String> = hits.iter().map(|(name, _)| format!("s/{name}")).collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let mut found = doubles::found(&ids);
            found.matched = Some(Match::Good);
            found.more = vec![doubles::tool("s/next", "comes next")];
            for (hit, (_, query)) in found.hits.iter_mut().zip(hits) {
                hit.query = query.or(Some(0));
                hit.is_of_several = query.is_none();
            }
            let (mut visible, mut names) = (Vec::new(), Vec::new());
            for hit in without_visible(&mut found, &list, &mut visible) {
                names.push(hit.name);
            }
            assert_eq!(visible, ["seen"]);
            names
        };
        assert_eq!(
            loaded(&[("seen", Some(0)), ("first", Some(0)), ("second", Some(1))]),
            ["second"]
        );
        for query in [None, Some(0)] {
            let found = [("seen", None), ("first", query), ("second", Some(1))];
            assert_eq!(loaded(&found), ["first", "second", "next"], "{query:?}");
        }
        let found = [("seen", Some(0)), ("first", None), ("second", Some(0))];
        assert_eq!(loaded(&found), ["first"]);
        let found = [("first", None), ("seen", Some(1)), ("second", Some(1))];
        assert_eq!(loaded(&found), ["first", "second", "next"]);
    }
}
