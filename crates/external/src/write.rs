//! Brings an index to the state of a catalog.
//!
//! What the index has is compared with what the catalog has, so there is no list of changes that could be lost:
//! whatever came between, an absence of the engine or of toolscout, the next write catches up. A document carries the
//! generation of the catalog that wrote it, and the engine refuses an older one, so a write may arrive twice or late.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use toolscout_index::pushdown::{Footprint, embed_views, footprints};
use toolscout_index::{Embedder, OwnerTexts, Searcher, Tool};

use crate::engine::{Change, Engine, NewDocument, Physical, Sent, Writable};
use crate::failure::{Cause, Failure};
use crate::layout::Own;

/// Documents and bytes of one request.
const MAX_BATCH: usize = 500;
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Tools that are embedded at a time.
const CHUNK: usize = 256;
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
/// It may be dropped at any time: the next call goes on from there.
///
/// # Errors
/// The [`Failure`] that ended it. What was written stays, and the next call goes on from there. Until all is written,
/// a new index does not stand for the old one, and an old index keeps the generation that it had.
pub async fn write(
    engine: &dyn Engine,
    searcher: &Arc<Searcher>,
    progress: impl Fn(usize, usize),
) -> Result<Written, Failure> {
    let Some(writable) = engine.writable() else {
        let product = engine.product();
        let reason =
            format!("toolscout only reads {product}; write with the programs that fill it");
        return Err(Failure::new(Cause::Request, reason).at(engine.shown()));
    };
    engine.version(LIMIT).await?;
    let all = writable.physical(LIMIT).await?;
    let target = Target::of(engine, writable, searcher);
    refuse_foreign(engine, &all)?;
    refuse_other_state(engine, &all, searcher)?;
    let is_new = !all.iter().any(|index| index.name == target.name);
    if is_new {
        let identity = &searcher.version().identity;
        let lexical = &searcher.settings().lexical;
        let schema = writable.schema(&target.own, lexical, identity);
        writable.create(&target.name, schema, LIMIT).await?;
    }
    // A new one may have documents too: an earlier write began it and did not come to its end.
    let known = writable.hashes(&target.name, &target.own, LIMIT).await?;
    let generation = searcher.generation();
    let mut writing = Writing {
        engine,
        writable,
        target: &target,
        generation,
        batch: Batch::default(),
        refused: Vec::new(),
        newer: 0,
        done: 0,
    };
    let mut written = writing.all(searcher, known, &progress).await?;
    let newer = writable.complete(&target.name, generation, LIMIT).await?;
    writing.newer += newer as usize;
    writing.refuse_newer()?;
    let meta = target.own.meta(&searcher.version().identity, generation);
    let replaced = is_new.then_some(all.as_slice());
    writable
        .publish(&target.name, meta, replaced, LIMIT)
        .await?;
    // Said only now, so that searches see all that the engine took.
    writing.say_refused()?;
    written.index.clone_from(&target.name);
    written.is_new = is_new;
    written.generation = generation;
    Ok(written)
}

/// The index that a catalog is written to.
struct Target {
    name: String,
    own: Own,
}

impl Target {
    fn of(engine: &dyn Engine, writable: &dyn Writable, searcher: &Searcher) -> Self {
        let embedders = searcher.embedders();
        let own = Own::of(embedders.map(|embedder| &**embedder as &dyn Embedder));
        let identity = &searcher.version().identity;
        let lexical = &searcher.settings().lexical;
        let schema = writable.schema(&own, lexical, identity);
        let weights = serde_json::to_string(&lexical).unwrap_or_default();
        // Everything that documents depend on, so that the same name is the same fields.
        let hash = blake3::hash(format!("{schema}{weights}").as_bytes());
        Target {
            name: format!("{}-{}", engine.index(), &hash.to_hex()[..12]),
            own,
        }
    }
}

/// An index that toolscout has not written is not replaced.
fn refuse_foreign(engine: &dyn Engine, all: &[Physical]) -> Result<(), Failure> {
    for index in all {
        let name = &index.name;
        let problem = if name == engine.index() {
            "is an index, and not an alias that toolscout made"
        } else if index.meta["toolscout"].is_null() {
            "was not written by toolscout"
        } else {
            continue;
        };
        let reason = format!(
            "{name} {problem}; name another index in the address, or use mode = \"read\" with fields"
        );
        return Err(Failure::new(Cause::Request, reason).at(engine.shown()));
    }
    Ok(())
}

/// An index of another catalog, or of a newer state of this one, is not replaced.
fn refuse_other_state(
    engine: &dyn Engine,
    all: &[Physical],
    searcher: &Searcher,
) -> Result<(), Failure> {
    let (own, generation) = (&searcher.version().identity, searcher.generation());
    for index in all {
        let name = &index.name;
        let (identity, written) = Own::written_by(&index.meta);
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
        return Err(Failure::new(Cause::Request, reason).at(engine.shown()));
    }
    Ok(())
}

/// A write under way.
struct Writing<'a> {
    engine: &'a dyn Engine,
    writable: &'a dyn Writable,
    target: &'a Target,
    generation: u64,
    batch: Batch,
    /// Why the engine refused tools for their content.
    refused: Vec<String>,
    /// Changes that the engine has not made, since it has a newer one of the same tool.
    newer: usize,
    done: usize,
}

/// Changes that are not sent yet.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
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
            let (documents, of) = (chunk.to_vec(), Arc::clone(searcher));
            let own = self.target.own.clone();
            // Embedding computes.
            let made = tokio::task::spawn_blocking(move || Made::of(documents, &of, &own));
            let made = made
                .await
                .map_err(|error| Failure::new(Cause::Request, error.to_string()))??;
            for (place, (tool, _)) in chunk.iter().enumerate() {
                let (own, generation) = (&self.target.own, self.generation);
                let document = made.document(place, own, searcher, generation, self.writable);
                self.add(tool.id.to_string(), Some(document)).await?;
                progress(self.done, all);
            }
            written.written += chunk.len();
        }
        // Those that are left are no longer in the catalog.
        written.removed = known.len();
        for id in known.into_keys() {
            self.add(id, None).await?;
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
        Err(Failure::new(Cause::Request, reason).at(self.engine.shown()))
    }

    /// Names the first of the tools that the engine refuses.
    fn say_refused(&self) -> Result<(), Failure> {
        let count = self.refused.len();
        if count == 0 {
            return Ok(());
        }
        let first = self.refused[..count.min(MAX_NAMED)].join("; ");
        let reason = format!("it refuses {count} of the changes, and has the others: {first}");
        Err(Failure::new(Cause::Request, reason).at(self.engine.shown()))
    }

    async fn add(&mut self, id: String, document: Option<String>) -> Result<(), Failure> {
        self.batch.bytes += id.len() + document.as_ref().map_or(0, String::len);
        self.batch.changes.push(Change { id, document });
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
            let (name, generation) = (&self.target.name, self.generation);
            let sent = self.writable.send(name, generation, &changes, LIMIT).await;
            let last = match sent {
                Ok(sent) => {
                    self.refused.extend(sent.refused);
                    self.newer += sent.newer;
                    let Sent {
                        put_off, reason, ..
                    } = sent;
                    self.done += changes.len() - put_off.len();
                    // What the engine took is not sent again.
                    let mut left = Vec::with_capacity(put_off.len());
                    for (place, change) in changes.into_iter().enumerate() {
                        if put_off.contains(&place) {
                            left.push(change);
                        }
                    }
                    changes = left;
                    Failure::new(Cause::Busy, reason).at(self.engine.shown())
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
}

/// What the documents of some tools are made of, in the order of the tools.
struct Made {
    /// Each tool with its hash.
    tools: Vec<(Arc<Tool>, String)>,
    json: Vec<String>,
    footprints: Vec<Footprint>,
    /// The vectors of all tools by each embedder.
    vectors: Vec<Vec<Vec<Vec<f32>>>>,
}

impl Made {
    fn of(
        tools: Vec<(Arc<Tool>, String)>,
        searcher: &Searcher,
        own: &Own,
    ) -> Result<Self, Failure> {
        let mut plain = Vec::with_capacity(tools.len());
        let mut json = Vec::with_capacity(tools.len());
        for (tool, _) in &tools {
            json.push(serde_json::to_string(&**tool).unwrap_or_default());
            // What the owner says of a tool is no part of it, and stays in the catalog.
            plain.push(Tool {
                owner_texts: OwnerTexts::default(),
                ..Tool::clone(tool)
            });
        }
        let plain: Vec<&Tool> = plain.iter().collect();
        let footprints = footprints(&plain, &searcher.settings().lexical.weights);
        let mut vectors = Vec::with_capacity(own.embedders.len());
        for (embedder, _) in searcher.embedders().zip(&own.embedders) {
            let of_all = embed_views(embedder.as_ref(), &plain);
            vectors.push(of_all.map_err(|error| Failure::new(Cause::Request, error.to_string()))?);
        }
        Ok(Made {
            tools,
            json,
            footprints,
            vectors,
        })
    }

    /// The document of one of the tools, in the form of an engine.
    fn document(
        &self,
        place: usize,
        own: &Own,
        searcher: &Searcher,
        generation: u64,
        writable: &dyn Writable,
    ) -> String {
        let (tool, hash) = &self.tools[place];
        let mut vectors = Vec::with_capacity(own.embedders.len());
        for (kept, of_all) in own.embedders.iter().zip(&self.vectors) {
            vectors.push((kept, of_all[place].as_slice()));
        }
        writable.document(&NewDocument {
            tool,
            json: &self.json[place],
            hash,
            footprint: &self.footprints[place],
            vectors: &vectors,
            lexical: &searcher.settings().lexical,
            generation,
        })
    }
}
