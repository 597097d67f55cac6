//! What toolscout asks of any engine: one trait for those that are searched, and one for those that are written too.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use toolscout_index::pushdown::{
    AskedName, CatalogStatistics, Footprint, ProbeTerm, SwitchedOff, TextTerms,
};
use toolscout_index::{Filter, LexicalSettings, Tool, ToolId};

use crate::failure::Failure;
use crate::layout::{KeptEmbedder, Label, Layout, Own, encoded};

/// Terms of a text that are looked for: those that are worth most.
pub const MAX_TERMS: usize = 16;

/// An index of an engine. Every method answers within the time that it is given, and with a bounded number of bytes.
#[async_trait]
pub trait Engine: Send + Sync {
    /// The name of what runs there.
    fn product(&self) -> &'static str;

    /// The index, collection or table of the address.
    fn index(&self) -> &str;

    /// The address, for messages.
    fn shown(&self) -> &str;

    /// What one request of a search may take.
    fn timeout(&self) -> Duration;

    /// The version that runs there.
    ///
    /// # Errors
    /// [`Cause::Version`](crate::Cause::Version) for another product, or a version without what is needed.
    async fn version(&self, limit: Duration) -> Result<String, Failure>;

    /// How the documents are read, with the generation that was written; 0 for an index that toolscout did not write.
    ///
    /// # Errors
    /// [`Cause::Missing`](crate::Cause::Missing), and what is wrong with the index.
    async fn layout(&self, limit: Duration) -> Result<(Layout, u64), Failure>;

    /// Several searches at once; each has an answer or a failure of its own.
    ///
    /// # Errors
    /// A [`Failure`] of all of them.
    async fn find(
        &self,
        layout: &Layout,
        asks: &[Ask<'_>],
        limit: Duration,
    ) -> Result<Vec<Result<Hits, Failure>>, Failure>;

    /// The documents with these numbers of the engine, as far as there are any, with what makes a tool of them.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn documents(
        &self,
        layout: &Layout,
        ids: &[String],
        limit: Duration,
    ) -> Result<Vec<Value>, Failure>;

    /// A page of documents.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn page(
        &self,
        layout: &Layout,
        listed: &Listed<'_>,
        limit: Duration,
    ) -> Result<Page, Failure>;

    /// A page of some of all documents, the same each time. `from` is what the page before says of the next
    /// one.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn sample(
        &self,
        layout: &Layout,
        from: Option<&Value>,
        size: usize,
        limit: Duration,
    ) -> Result<Page, Failure>;

    /// How many documents have each of these terms, of which it may tell the first ones only. Each has the word that it
    /// was.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn frequencies(
        &self,
        layout: &Layout,
        terms: &[(String, String)],
        limit: Duration,
    ) -> Result<HashMap<String, u64>, Failure>;

    /// How many documents there are.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn count(&self, layout: &Layout, which: Which, limit: Duration) -> Result<u64, Failure>;

    /// The most frequent values of a label of tools, each with the number of these.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn values(
        &self,
        layout: &Layout,
        label: Label,
        most: usize,
        limit: Duration,
    ) -> Result<Vec<(String, usize)>, Failure>;

    /// The bytes of the index, if the engine tells them.
    async fn bytes(&self, limit: Duration) -> Option<u64>;

    /// The same index to be written, if toolscout writes indexes of this engine.
    fn writable(&self) -> Option<&dyn Writable>;
}

/// Which documents are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// Tools, without items of other kinds.
    Tools,
}

/// Which documents may be candidates.
#[derive(Clone, Copy)]
pub struct Passing<'a> {
    /// What a query asks for.
    pub filter: &'a Filter,
    /// What the owner has switched off.
    pub off: &'a SwitchedOff,
}

/// One search.
pub struct Ask<'a> {
    /// What is looked for.
    pub what: What<'a>,
    /// Where.
    pub passing: Passing<'a>,
    /// How many documents are wanted.
    pub size: usize,
}

/// What a search looks for.
pub enum What<'a> {
    /// All that pass, counted. If there are more than are wanted, it is enough to say so.
    All,
    /// The best by the terms of a text, in an index that toolscout has written.
    Terms {
        /// The one that is worth most first.
        terms: &'a [ProbeTerm],
        /// How many tools have them.
        statistics: &'a CatalogStatistics,
    },
    /// The best by the words of a text, in an index that somebody else fills.
    Words {
        /// Its words.
        text: &'a TextTerms,
        /// Words that a misspelt one may be.
        further: &'a [String],
    },
    /// The nearest to a vector of an embedder.
    Near {
        /// The id of the embedder.
        embedder: &'a str,
        /// Of length 1.
        vector: Vec<f32>,
    },
    /// Those of this name.
    Named(&'a AskedName),
    /// Those of these ids.
    Ids(&'a [ToolId]),
    /// Some of all, the same each time.
    Sample,
}

/// What a search has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// The engine's own numbers of the documents.
    pub ids: Vec<String>,
    /// How many there are in all, if they were counted; where counting ended early, more than were wanted.
    pub total: Option<u64>,
}

/// Which documents are listed.
pub struct Listed<'a> {
    /// Those that pass this.
    pub passing: Passing<'a>,
    /// Those with this part in their name; all without one.
    pub part: &'a str,
    /// Only these.
    pub ids: Option<&'a [ToolId]>,
    /// Where the page begins.
    pub after: After<'a>,
    /// How many documents it has at most.
    pub size: usize,
}

/// Where a page begins.
#[derive(Clone, Copy)]
pub enum After<'a> {
    /// At the first document.
    Nothing,
    /// Behind the tool of this id.
    Tool(&'a str),
    /// Where the page before says.
    Page(&'a Value),
}

/// Some documents.
#[derive(Debug, Default)]
pub struct Page {
    /// What makes a tool of each.
    pub documents: Vec<Value>,
    /// Where the next page begins; `None` if there is none.
    pub next: Option<Value>,
}

/// An index that toolscout writes. What is written stands behind an alias, under a name of its own.
#[async_trait]
pub trait Writable: Send + Sync {
    /// What creates an index.
    fn schema(&self, own: &Own, lexical: &LexicalSettings, identity: &str) -> Value;

    /// The indexes behind the address: one index, or those of an alias; none if there is neither.
    ///
    /// # Errors
    /// Every [`Failure`] but [`Cause::Missing`](crate::Cause::Missing).
    async fn physical(&self, limit: Duration) -> Result<Vec<Physical>, Failure>;

    /// Creates an index, if it is not there yet.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn create(&self, name: &str, schema: Value, limit: Duration) -> Result<(), Failure>;

    /// The hashes of the tools that an index has, by id.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn hashes(
        &self,
        name: &str,
        own: &Own,
        limit: Duration,
    ) -> Result<HashMap<String, String>, Failure>;

    /// The document of a tool.
    fn document(&self, new: &NewDocument<'_>) -> String;

    /// Makes changes of this generation. What it has of a newer one stays.
    ///
    /// # Errors
    /// A [`Failure`] of all of them. They may have been made nevertheless.
    async fn send(
        &self,
        name: &str,
        generation: u64,
        changes: &[Change],
        limit: Duration,
    ) -> Result<Sent, Failure>;

    /// Lets searches see all changes, and says how many documents are of a newer generation.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn complete(&self, name: &str, generation: u64, limit: Duration) -> Result<u64, Failure>;

    /// Says what an index has, and lets the alias stand for it and nothing else if it is new. The indexes before it
    /// are deleted then.
    ///
    /// # Errors
    /// Every [`Failure`].
    async fn publish(
        &self,
        name: &str,
        meta: Value,
        replaced: Option<&[Physical]>,
        limit: Duration,
    ) -> Result<(), Failure>;
}

/// An index behind the alias.
#[derive(Clone, Debug, PartialEq)]
pub struct Physical {
    /// Its own name.
    pub name: String,
    /// What it says of itself; see [`Own::meta`].
    pub meta: Value,
}

/// What a document is made of.
pub struct NewDocument<'a> {
    /// The tool.
    pub tool: &'a Tool,
    /// As it is read again.
    pub json: &'a str,
    /// The hash of that.
    pub hash: &'a str,
    /// Its words.
    pub footprint: &'a Footprint,
    /// The vectors of its views.
    pub vectors: &'a [(&'a KeptEmbedder, &'a [Vec<f32>])],
    /// The settings that its words are weighed by.
    pub lexical: &'a LexicalSettings,
    /// The generation of the catalog that it is written from.
    pub generation: u64,
}

impl NewDocument<'_> {
    /// All but its words and the vectors that can be searched.
    pub fn fields(&self) -> Value {
        let [name_key, full_key] = &self.footprint.name_keys;
        let mut document = json!({
            "id": self.tool.id.as_str(),
            "server": self.tool.id.server(),
            "tags": self.tool.tags,
            "kind": self.tool.kind.as_str(),
            "read_only": self.footprint.read_only,
            "destructive": self.footprint.destructive,
            "name_key": name_key,
            "full_key": full_key,
            "hash": self.hash,
            "tool": self.json,
        });
        for (embedder, views) in self.vectors {
            if let Some(kept) = &embedder.kept {
                let encoded: Vec<String> = views.iter().map(|vector| encoded(vector)).collect();
                document[kept] = json!(encoded);
            }
        }
        document
    }

    /// The vectors that can be searched, each with its field.
    pub fn searched(&self) -> impl Iterator<Item = (&str, &[f32])> {
        let all = self.vectors.iter();
        let fields = all.flat_map(|(embedder, views)| embedder.fields.iter().zip(*views));
        let vectors = fields.map(|(field, vector)| (field.as_str(), vector.as_slice()));
        // A text without a known word has no direction, which a cosine needs.
        vectors.filter(|(_, vector)| vector.iter().any(|number| *number != 0.0))
    }
}

/// A change of one document.
#[derive(Clone, Debug)]
pub struct Change {
    /// The id of the tool.
    pub id: String,
    /// `None` removes it.
    pub document: Option<String>,
}

/// What an engine did with changes.
#[derive(Debug, Default)]
pub struct Sent {
    /// The places of those to send again.
    pub put_off: BTreeSet<usize>,
    /// Why.
    pub reason: String,
    /// Why it refuses others for their content.
    pub refused: Vec<String>,
    /// How many it has not made, since it has a newer one of the same tool.
    pub newer: usize,
}
