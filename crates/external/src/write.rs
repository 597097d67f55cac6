//! Brings an index to the state of a catalog.
//!
//! What the index has is compared with what the catalog has, so there is no list of changes that could be lost:
//! whatever came between, an absence of the engine or of toolscout, the next write catches up. A document carries the
//! generation of the catalog that wrote it, and the engine refuses an older one, so a write may arrive twice or late.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;
use toolscout_index::pushdown::{embed_views, footprints};
use toolscout_index::{Embedder, OwnerTexts, Searcher, Tool};

use crate::client::Body;
use crate::elastic::{Elastic, Physical, checked_response, next_page};
use crate::failure::{Cause, Failure};
use crate::layout::{Layout, Own, document};
use crate::query;

/// Documents and bytes of one request.
const MAX_BATCH: usize = 500;
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Tools that are embedded at a time.
const CHUNK: usize = 256;
/// Documents whose hashes are read by one request.
const PAGE: usize = 5000;
/// What one request may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How often what the engine puts off is sent again, and the pause before, which doubles.
const MAX_TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Refused tools that are named.
const MAX_NAMED: usize = 3;

/// What a write did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Tools that were added or replaced.
    pub written: usize,
    /// Tools that were removed.
    pub removed: usize,
    /// Tools that the index had already.
    pub unchanged: usize,
    /// The generation that the index has now.
    pub generation: u64,
    /// The index behind the alias.
    pub index: String,
    /// True if the index was made anew, since its fields are others.
    pub is_new: bool,
}

/// Writes a snapshot of a catalog into the index of an address. `progress` is told how many of the changes were made.
///
/// # Errors
/// The [`Failure`] that ended it. What was written stays, and the next call goes on from there. Until all is written,
/// a new index does not stand for the old one, and an old index keeps the generation that it had.
pub async fn write(
    elastic: &Elastic,
    searcher: &Arc<Searcher>,
    progress: impl Fn(usize, usize),
) -> Result<Written, Failure> {
    elastic.server(LIMIT).await?;
    let all = elastic.physical(LIMIT).await?;
    let target = Target::of(elastic, searcher);
    refuse_foreign(elastic, &all)?;
    refuse_other_state(elastic, &all, searcher)?;
    let is_new = !all.iter().any(|index| index.name == target.name);
    if is_new {
        create(elastic, &target, searcher).await?;
    }
    // A new one may have documents too: an earlier write began it and did not come to its end.
    let known = target.known(elastic).await?;
    let mut writing = Writing {
        elastic,
        target: &target,
        generation: searcher.generation(),
        batch: Batch::default(),
        refused: Vec::new(),
        newer: 0,
        done: 0,
    };
    let mut written = writing.all(searcher, known, &progress).await?;
    writing.refuse_newer()?;
    writing.refresh().await?;
    target.finish(elastic, &all, searcher, is_new).await?;
    // Said only now, so that searches see all that the engine took.
    writing.say_refused()?;
    written.index.clone_from(&target.name);
    written.is_new = is_new;
    written.generation = searcher.generation();
    Ok(written)
}

/// The index that a catalog is written to.
struct Target {
    name: String,
    own: Own,
}

impl Target {
    fn of(elastic: &Elastic, searcher: &Searcher) -> Self {
        let embedders = searcher.embedders();
        let own = Own::of(embedders.map(|embedder| &**embedder as &dyn Embedder));
        let identity = &searcher.version().identity;
        let lexical = &searcher.settings().lexical;
        let schema = own.index(elastic.product(), lexical, identity);
        let weights = serde_json::to_string(&lexical).unwrap_or_default();
        // Everything that documents depend on, so that the same name is the same fields.
        let hash = blake3::hash(format!("{schema}{weights}").as_bytes());
        Target {
            name: format!("{}-{}", elastic.index(), &hash.to_hex()[..12]),
            own,
        }
    }

    /// The hashes of the tools that the index has, by id.
    async fn known(&self, elastic: &Elastic) -> Result<HashMap<String, String>, Failure> {
        let path = format!("{}/_refresh", self.name);
        elastic
            .client
            .ask(Method::POST, &path, &Body::None, LIMIT)
            .await?;
        let mut known = HashMap::new();
        let mut after = None;
        let path = format!("{}/_search", self.name);
        loop {
            let layout = Layout::Own(self.own.clone());
            let all = json!({ "match_all": {} });
            let source = json!(["id", "hash"]);
            let page = query::page(&layout, all, after.as_ref(), PAGE, &source);
            let page = elastic
                .client
                .ask(Method::POST, &path, &Body::Json(page), LIMIT)
                .await?;
            // What some of its shards do not tell would be written again, and never be removed.
            let page = checked_response(page).map_err(|failure| failure.at(elastic.shown()))?;
            let hits = page["hits"]["hits"].as_array();
            let hits = hits.ok_or_else(|| Failure::answer("hits"))?;
            for hit in hits {
                let source = &hit["_source"];
                if let (Some(id), Some(hash)) = (source["id"].as_str(), source["hash"].as_str()) {
                    known.insert(id.to_owned(), hash.to_owned());
                }
            }
            let next = next_page(hits)?;
            if hits.len() < PAGE {
                return Ok(known);
            }
            if next == after {
                return Err(Failure::answer("next page"));
            }
            after = next;
        }
    }

    /// Says which generation the index has, and lets the alias stand for it.
    async fn finish(
        &self,
        elastic: &Elastic,
        before: &[Physical],
        searcher: &Searcher,
        is_new: bool,
    ) -> Result<(), Failure> {
        let identity = &searcher.version().identity;
        let meta = self.own.meta(identity, searcher.generation());
        let path = format!("{}/_mapping", self.name);
        let body = Body::Json(json!({ "_meta": meta }));
        elastic.client.ask(Method::PUT, &path, &body, LIMIT).await?;
        if !is_new {
            return Ok(());
        }
        // One request, so that the alias always stands for one index.
        let mut actions = vec![json!({ "add": { "index": self.name, "alias": elastic.index() } })];
        for old in before {
            actions.push(json!({ "remove_index": { "index": old.name } }));
        }
        let body = Body::Json(json!({ "actions": actions }));
        match elastic
            .client
            .ask(Method::POST, "_aliases", &body, LIMIT)
            .await
        {
            // Sent twice, since the first answer did not come: the old index is gone, and that is what was wanted.
            Err(failure) if failure.is_missing() && self.is_alone(elastic).await? => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// Whether the alias stands for this index, and for no other.
    async fn is_alone(&self, elastic: &Elastic) -> Result<bool, Failure> {
        let all = elastic.physical(LIMIT).await?;
        Ok(matches!(all.as_slice(), [only] if only.name == self.name))
    }
}

/// An index that toolscout has not written is not replaced.
fn refuse_foreign(elastic: &Elastic, all: &[Physical]) -> Result<(), Failure> {
    for index in all {
        let name = &index.name;
        let problem = if name == elastic.index() {
            "is an index, and not an alias that toolscout made"
        } else if index.mappings["_meta"]["toolscout"].is_null() {
            "was not written by toolscout"
        } else {
            continue;
        };
        let reason = format!(
            "{name} {problem}; name another index in the address, or use mode = \"read\" with fields"
        );
        return Err(Failure::new(Cause::Request, reason).at(elastic.shown()));
    }
    Ok(())
}

/// An index of another catalog, or of a newer state of this one, is not replaced.
fn refuse_other_state(
    elastic: &Elastic,
    all: &[Physical],
    searcher: &Searcher,
) -> Result<(), Failure> {
    let (own, generation) = (&searcher.version().identity, searcher.generation());
    for index in all {
        let name = &index.name;
        let (identity, written) = Own::written_by(&index.mappings["_meta"]);
        let reason = if identity != own.as_str() {
            format!(
                "{name} was written from another catalog; name another index in the address, or delete {name} so that \
                 this catalog can take its place"
            )
        } else if written > generation {
            format!(
                "{name} has the generation {written} of this catalog, and the catalog here has the older generation \
                 {generation}; if the data directory was restored from a copy, delete {name} and write again, else \
                 write where the newer catalog is"
            )
        } else {
            continue;
        };
        return Err(Failure::new(Cause::Request, reason).at(elastic.shown()));
    }
    Ok(())
}

async fn create(elastic: &Elastic, target: &Target, searcher: &Searcher) -> Result<(), Failure> {
    let identity = &searcher.version().identity;
    let lexical = &searcher.settings().lexical;
    let body = Body::Json(target.own.index(elastic.product(), lexical, identity));
    match elastic
        .client
        .ask(Method::PUT, &target.name, &body, LIMIT)
        .await
    {
        Err(failure) if failure.reason.contains("resource_already_exists_exception") => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// A write under way.
struct Writing<'a> {
    elastic: &'a Elastic,
    target: &'a Target,
    generation: u64,
    batch: Batch,
    /// Why the engine refused tools for their content.
    refused: Vec<String>,
    /// Changes that the engine has not made, since it has a newer one of the same tool.
    newer: usize,
    done: usize,
}

/// Changes that are not sent yet: each an action, and its document.
#[derive(Default)]
struct Batch {
    changes: Vec<(String, Option<String>)>,
    bytes: usize,
}

impl Writing<'_> {
    async fn all(
        &mut self,
        searcher: &Arc<Searcher>,
        mut known: HashMap<String, String>,
        progress: &impl Fn(usize, usize),
    ) -> Result<Written, Failure> {
        let mut written = Written::default();
        let mut changed = Vec::new();
        for tool in searcher.items() {
            let json = serde_json::to_string(&*tool).unwrap_or_default();
            let hash = hex::encode(&blake3::hash(json.as_bytes()).as_bytes()[..16]);
            match known.remove(tool.id.as_str()) {
                Some(before) if before == hash => written.unchanged += 1,
                _ => changed.push((tool, hash)),
            }
        }
        let all = changed.len() + known.len();
        for chunk in changed.chunks(CHUNK) {
            let (documents, searcher) = (chunk.to_vec(), Arc::clone(searcher));
            let own = self.target.own.clone();
            // Embedding computes.
            let made =
                tokio::task::spawn_blocking(move || documents_of(&documents, &searcher, &own));
            let made = made
                .await
                .map_err(|error| Failure::new(Cause::Request, error.to_string()))??;
            for (id, document) in made {
                self.add("index", &id, Some(document)).await?;
                progress(self.done, all);
            }
            written.written += chunk.len();
        }
        // Those that are left are no longer in the catalog.
        written.removed = known.len();
        for id in known.into_keys() {
            self.add("delete", &id, None).await?;
            progress(self.done, all);
        }
        self.flush().await?;
        progress(self.done, all);
        Ok(written)
    }

    /// The index keeps the generation that it has if somebody wrote a newer one meanwhile.
    fn refuse_newer(&self) -> Result<(), Failure> {
        if self.newer == 0 {
            return Ok(());
        }
        let (newer, name) = (self.newer, &self.target.name);
        let reason = format!(
            "{newer} of its tools are of a newer generation than the catalog here; if another toolscout writes this \
             catalog, stop one of them, and if the data directory was restored from a copy, delete the index {name} and \
             write again"
        );
        Err(Failure::new(Cause::Request, reason).at(self.elastic.shown()))
    }

    /// Names the first of the tools that the engine refuses.
    fn say_refused(&self) -> Result<(), Failure> {
        let count = self.refused.len();
        if count == 0 {
            return Ok(());
        }
        let first = self.refused[..count.min(MAX_NAMED)].join("; ");
        let reason = format!("it refuses {count} of the changes, and has the others: {first}");
        Err(Failure::new(Cause::Request, reason).at(self.elastic.shown()))
    }

    async fn add(
        &mut self,
        action: &str,
        id: &str,
        document: Option<String>,
    ) -> Result<(), Failure> {
        // The engine refuses a change of an older generation than it has, and takes one of the same again.
        let header = json!({ action: {
            // Ids of tools may be longer than those of documents.
            "_id": hex::encode(&blake3::hash(id.as_bytes()).as_bytes()[..16]),
            "version": self.generation.max(1), "version_type": "external_gte",
        } });
        let header = header.to_string();
        self.batch.bytes += header.len() + document.as_ref().map_or(0, String::len) + 2;
        self.batch.changes.push((header, document));
        if self.batch.changes.len() >= MAX_BATCH || self.batch.bytes >= MAX_BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what there is, and what the engine puts off again.
    async fn flush(&mut self) -> Result<(), Failure> {
        let mut changes = std::mem::take(&mut self.batch).changes;
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        while !changes.is_empty() {
            tries += 1;
            let last = match self.send(&changes).await {
                Ok(Sent { put_off, reason }) => {
                    self.done += changes.len() - put_off.len();
                    // What the engine took is not sent again.
                    let mut left = Vec::with_capacity(put_off.len());
                    for (place, change) in changes.into_iter().enumerate() {
                        if put_off.contains(&place) {
                            left.push(change);
                        }
                    }
                    changes = left;
                    Failure::new(Cause::Busy, reason).at(self.elastic.shown())
                }
                Err(failure) if failure.may_pass() => failure,
                Err(failure) => return Err(failure),
            };
            if changes.is_empty() {
                break;
            }
            if tries >= MAX_TRIES {
                return Err(last);
            }
            sleep(
                last.retry_after
                    .unwrap_or_default()
                    .max(pause)
                    .min(MAX_PAUSE),
            )
            .await;
            pause = (2 * pause).min(MAX_PAUSE);
        }
        Ok(())
    }

    async fn send(&mut self, changes: &[(String, Option<String>)]) -> Result<Sent, Failure> {
        let mut lines = String::new();
        for (action, document) in changes {
            lines.push_str(action);
            lines.push('\n');
            if let Some(document) = document {
                lines.push_str(document);
                lines.push('\n');
            }
        }
        let path = format!("{}/_bulk", self.target.name);
        let answer = self
            .elastic
            .client
            .ask(Method::POST, &path, &Body::Lines(lines), LIMIT)
            .await?;
        let items = answer["items"]
            .as_array()
            .filter(|items| items.len() == changes.len());
        let items = items.ok_or_else(|| Failure::answer("item for each change"))?;
        let mut sent = Sent::default();
        for (place, item) in items.iter().enumerate() {
            let outcome = item.as_object().and_then(|item| item.iter().next());
            let action = outcome.map(|(action, _)| action.as_str());
            let outcome = outcome.map_or(&Value::Null, |(_, outcome)| outcome);
            let status = outcome["status"].as_u64().unwrap_or_default() as u16;
            match status {
                200..=299 => continue,
                // A document that is gone already. Of `index` it would be the whole index.
                404 if action == Some("delete") => continue,
                409 => {
                    self.newer += 1;
                    continue;
                }
                _ => {}
            }
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let failure = Failure::of_status(status, &outcome["error"]);
            match failure.cause {
                Cause::Busy | Cause::Away => {
                    sent.put_off.insert(place);
                    sent.reason = failure.reason;
                }
                Cause::ReadOnly | Cause::Key | Cause::Missing => {
                    return Err(failure.at(self.elastic.shown()));
                }
                _ => self.refused.push(failure.reason),
            }
        }
        Ok(sent)
    }

    async fn refresh(&self) -> Result<(), Failure> {
        let path = format!("{}/_refresh", self.target.name);
        self.elastic
            .client
            .ask(Method::POST, &path, &Body::None, LIMIT)
            .await?;
        Ok(())
    }
}

/// What the engine did with a batch.
#[derive(Default)]
struct Sent {
    /// The places of changes to send again.
    put_off: std::collections::HashSet<usize>,
    reason: String,
}

/// The documents of these tools, each with the id of its tool.
fn documents_of(
    tools: &[(Arc<Tool>, String)],
    searcher: &Searcher,
    own: &Own,
) -> Result<Vec<(String, String)>, Failure> {
    let mut plain = Vec::with_capacity(tools.len());
    for (tool, _) in tools {
        // What the owner says of a tool is no part of it, and stays in the catalog.
        plain.push(Tool {
            owner_texts: OwnerTexts::default(),
            ..Tool::clone(tool)
        });
    }
    let plain: Vec<&Tool> = plain.iter().collect();
    let footprints = footprints(&plain, &searcher.settings().lexical.weights);
    let mut by_embedder = Vec::with_capacity(own.embedders.len());
    for (embedder, kept) in searcher.embedders().zip(&own.embedders) {
        let vectors = embed_views(embedder.as_ref(), &plain);
        let vectors = vectors.map_err(|error| Failure::new(Cause::Request, error.to_string()))?;
        by_embedder.push((kept, vectors));
    }
    let mut documents = Vec::with_capacity(tools.len());
    for (place, (tool, hash)) in tools.iter().enumerate() {
        let mut vectors = Vec::with_capacity(by_embedder.len());
        for (kept, of_all) in &by_embedder {
            vectors.push((*kept, of_all[place].as_slice()));
        }
        let json = serde_json::to_string(&**tool).unwrap_or_default();
        let document = document(tool, &json, hash, &footprints[place], &vectors);
        documents.push((tool.id.to_string(), document.to_string()));
    }
    Ok(documents)
}
