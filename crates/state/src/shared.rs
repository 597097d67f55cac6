//! What the nodes of a server share, as the server asks for it: catalogs, keys, feedback, tasks, audit logs and
//! usage memories in one store.
//!
//! [`SharedStore`] is the store and [`SharedCatalog`] one of its catalogs. A server without a store has all of this
//! in its data directory instead.

mod figures;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::runtime::Handle;
use toolscout_gate::gate::audit::page::{Filter, StoredEntry};
use toolscout_gate::usage::missed::MissedRequest;
use toolscout_gate::usage::shadow::ShadowFigures;
use toolscout_gate::usage::sharing::LocalRecord;
use toolscout_gate::usage::{CallerDay, ToolFigures};
use toolscout_index::memory::{Deletion, Source, Switch};
use toolscout_index::{
    Catalog, Embedder, Error, Followed, Kind, Query, Searcher, Settings, Summary, Tool, ToolId,
};

pub use figures::{Lag, StoreFigures};

use crate::approved::ApprovedPlace;
use crate::catalog_writer::{CatalogStore, Waker, WriteError};
use crate::feedback::FeedbackStore;
use crate::keys::{KeyError, KeyStore};

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or used at the moment.
    #[error("the store cannot be used now: {0}")]
    Unreachable(String),
    /// It will not work until somebody changes something; the message says what.
    #[error("{0}")]
    Refused(String),
    /// This server only reads; where the address names several, another one may be the primary.
    #[error("{0}")]
    ReadOnly(String),
    /// The catalog is no longer there, or another one is.
    #[error("the catalog was deleted")]
    Deleted,
    /// The engine refused the change, or the node's own copy cannot be written.
    #[error(transparent)]
    Catalog(#[from] Error),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Deleted => WriteError::Deleted,
            StoreError::Catalog(error) => WriteError::Catalog(error),
            // What a person has to change is in the log; to a client it is the same.
            StoreError::Unreachable(reason)
            | StoreError::ReadOnly(reason)
            | StoreError::Refused(reason) => WriteError::Unavailable(reason),
        }
    }
}

/// A catalog as the store has it.
#[derive(Clone, Debug)]
pub struct StoredCatalog {
    /// Its number.
    pub id: i64,
    /// Its identity, the cluster's included.
    pub source: String,
    /// Its last change.
    pub generation: u64,
    /// Which state that is.
    pub mark: u64,
    /// Its settings.
    pub settings: Settings,
    /// True where its tools are looked for in the store, and nodes have copies without them.
    pub is_pushed_down: bool,
}

impl StoredCatalog {
    /// What a node's copy of it follows.
    pub fn source_of_copy(&self) -> String {
        source_of_copy(&self.source, self.is_pushed_down)
    }

    /// What the catalog of a copy was known to be, while the store cannot be asked.
    pub fn of_copy(followed: &Followed, settings: Settings) -> Self {
        let source = followed.source.trim_end_matches(WITHOUT_TOOLS);
        let id = source.rsplit('/').next();
        StoredCatalog {
            id: id.and_then(|id| id.parse().ok()).unwrap_or_default(),
            generation: followed.generation,
            mark: followed.mark,
            source: source.to_owned(),
            settings,
            is_pushed_down: is_without_tools(followed),
        }
    }
}

/// Ends what a copy without tools follows, so that it is not taken for a whole one.
const WITHOUT_TOOLS: &str = "/without tools";

/// What a copy of the catalog of this identity follows.
pub fn source_of_copy(source: &str, is_pushed_down: bool) -> String {
    match is_pushed_down {
        true => format!("{source}{WITHOUT_TOOLS}"),
        false => source.to_owned(),
    }
}

/// True for a copy of a catalog that is pushed down.
pub fn is_without_tools(followed: &Followed) -> bool {
    followed.source.ends_with(WITHOUT_TOOLS)
}

/// What came of creating a catalog.
#[derive(Clone, Debug)]
pub enum CreatedCatalog {
    /// It was created.
    Now(StoredCatalog),
    /// It was there.
    Before(StoredCatalog),
    /// There are as many catalogs as there may be.
    TooMany,
}

/// A page of tools, by id.
#[derive(Clone, Debug)]
pub struct ListedTools {
    /// The tools.
    pub tools: Vec<Tool>,
    /// Whether there are more after them.
    pub has_more: bool,
    /// Number of tools in the catalog.
    pub total: usize,
    /// The generation of the catalog that the page shows.
    pub generation: u64,
}

/// What the database has of a catalog.
#[derive(Clone, Debug)]
pub struct PushedStats {
    /// Number of tools.
    pub tools: usize,
    /// Number of items of all kinds.
    pub items: usize,
    /// The last commit.
    pub generation: u64,
    /// Servers with the number of their tools, by name, a thousand at most.
    pub servers: Vec<(String, usize)>,
    /// Embedders with the number of items that have all of their vectors.
    pub vectors: Vec<(String, usize)>,
    /// Bytes of the tables and indexes that searches need, on the disk of the database.
    pub bytes: u64,
}

/// Which tools a page has.
#[derive(Clone, Debug, Default)]
pub struct PageOf {
    /// Of these kinds; empty for tools alone.
    pub kinds: BTreeSet<Kind>,
    /// After this id.
    pub after: Option<String>,
    /// Of this server.
    pub server: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// Whose ids have this part, in small letters.
    pub part: String,
    /// At most so many.
    pub limit: usize,
}

/// Which tools are read with what was written about them: by id, or some from all over the catalog.
#[derive(Clone, Debug, Default)]
pub struct TextsOf {
    /// Those with these ids; all where it is `None`.
    pub tools: Option<Vec<String>>,
    /// True adds tools of other servers with the same names.
    pub with_namesakes: bool,
    /// Of these servers; of all where there is none.
    pub servers: Vec<String>,
    /// Those with texts, or those without; both where it is `None`.
    pub have_texts: Option<bool>,
    /// After this id.
    pub after: Option<String>,
    /// True takes them from all over the catalog.
    pub is_sample: bool,
    /// At most so many.
    pub limit: usize,
}

/// A task of any node.
#[derive(Clone, Debug)]
pub struct StoredTask {
    /// The catalog that it writes to, or evaluates.
    pub catalog: String,
    /// What its node last said of it, as the API shows it.
    pub body: Value,
    /// Its node has said nothing for so long that it must be gone.
    pub is_lost: bool,
}

/// Where the next page of entries begins: behind this one, by time, chain and number.
pub type AuditCursor = (i64, String, i64);

/// A page of the logs of all nodes.
#[derive(Debug)]
pub struct AuditPage {
    /// Newest first, each with the name of its node.
    pub entries: Vec<(String, StoredEntry)>,
    /// Number of entries of all nodes.
    pub total: i64,
    /// Where the next page begins; `None` on the last one.
    pub next: Option<AuditCursor>,
}

/// Whose use of tools is added up: that of all nodes but the one that asks, whose own record is newer.
#[derive(Clone, Debug)]
pub struct UseOfOthers {
    /// The identity of the record of the one that asks, if it has one.
    pub record: Option<String>,
    /// The first day, counted from 1970.
    pub since: i64,
}

/// The nodes that recorded use.
#[derive(Clone, Debug, Default)]
pub struct UseOfNodes {
    /// How many there are.
    pub nodes: usize,
    /// Days on which one of them did, counted from 1970.
    pub days: BTreeSet<i64>,
}

/// A chain that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedChain {
    /// The name of its node.
    pub node: String,
    /// The hash of its first entry.
    pub chain: String,
    /// Number of entries.
    pub entries: i64,
    /// The hash of the last one.
    pub head: String,
}

/// Why the chains of the store are not what the nodes have written.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// An entry breaks its chain.
    #[error(
        "entry {seq} of the audit log of {node} in the store {what}; the log was changed at this entry or before"
    )]
    Broken {
        /// The name of the node.
        node: String,
        /// The first entry that breaks the chain.
        seq: i64,
        /// How it breaks the chain.
        what: &'static str,
    },
    /// Entries that were copied are gone.
    #[error(
        "the audit log of {node} in the store has {found} entries and had {expected}: the newest were cut off"
    )]
    CutOff {
        /// The name of the node.
        node: String,
        /// Number of entries.
        found: i64,
        /// Number of entries that were copied.
        expected: i64,
    },
    /// No chain has this hash.
    #[error(
        "no entry of the audit logs in the store has the hash {head}; entries were cut off, or a log was rewritten"
    )]
    HeadMissing {
        /// The hash that was asked for, in hex.
        head: String,
    },
    /// The verification was stopped.
    #[error("the check of the audit logs was stopped before it ended")]
    Stopped,
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A catalog of the store that this node has opened a copy of.
pub struct OpenedCatalog {
    /// Writes to the store, and keeps the copy in step.
    pub writer: Box<dyn CatalogStore>,
    /// What the store has of the catalog.
    pub catalog: Arc<dyn SharedCatalog>,
}

/// The tools of a catalog that are elsewhere: in the store, if the catalog is pushed down, or in a search engine
/// that somebody else runs. They are asked for, and not read as a whole.
#[async_trait]
pub trait PushedTools: Send + Sync {
    /// Why searches may find nothing, if it does not answer.
    fn problem(&self) -> Option<String>;

    /// How many tools there are, as of what is known now.
    fn total(&self) -> usize;

    /// A searcher of the tools that may be hits of a query. `base` is this node's
    /// copy, which has all but the tools. If it has tools nevertheless, it may answer in their place.
    ///
    /// # Errors
    /// [`StoreError`]: without the store there is nothing to search.
    async fn searcher_for(
        &self,
        base: &Arc<Searcher>,
        query: &Query,
    ) -> Result<Arc<Searcher>, StoreError>;

    /// The tool with this id.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn tool(&self, id: &ToolId) -> Result<Option<Tool>, StoreError>;

    /// A page of its tools.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn page(&self, page: &PageOf) -> Result<ListedTools, StoreError>;

    /// Some of its tools with what was written about them, in place of those of
    /// `base`. They are there to be read: no search finds them.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn tools_with_texts(
        &self,
        base: &Arc<Searcher>,
        of: &TextsOf,
    ) -> Result<Searcher, StoreError>;

    /// How many tools something was written about.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn count_texts(&self) -> Result<usize, StoreError>;

    /// The ids of the tools that pass a filter.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn ids_passing(
        &self,
        filter: &toolscout_index::Filter,
    ) -> Result<Vec<ToolId>, StoreError>;

    /// Its most frequent tags, with the number of tools, and how many different
    /// ones there are.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn tags(&self, limit: usize) -> Result<(Vec<(String, usize)>, usize), StoreError>;

    /// Its sizes.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn stats(&self) -> Result<PushedStats, StoreError>;
}

/// A catalog of the store. Its copy on this node follows it. What it has of [`PushedTools`] counts only while the
/// catalog is pushed down.
#[async_trait]
pub trait SharedCatalog: PushedTools {
    /// What to wake when the store has a newer generation.
    fn set_waker(&self, waker: Waker);

    /// True once the store no longer has this catalog; it may have another one of the name.
    fn is_deleted(&self) -> bool;

    /// True where tools are looked for in the store, and this node's copy has none.
    fn is_pushed_down(&self) -> bool;

    /// The approved definitions of its tools.
    fn approved(&self) -> ApprovedPlace;

    /// As [`toolscout_index::Memory::remember`], for all nodes. This one has followed when it returns.
    ///
    /// # Errors
    /// [`StoreError`].
    fn remember(
        &self,
        used: (&str, &ToolId),
        at_ms: i64,
        source: &Source,
    ) -> Result<bool, StoreError>;

    /// As [`toolscout_index::Memory::set_switch`], for all nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    fn switch_memory(&self, switch: Switch) -> Result<(), StoreError>;

    /// As [`toolscout_index::Memory::forget`], for all nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    fn forget_memory(&self, what: &Deletion) -> Result<usize, StoreError>;
}

/// The store that several nodes share.
#[async_trait]
pub trait SharedStore: Send + Sync {
    /// The runtime of its connections.
    fn runtime(&self) -> &Handle;

    /// Why the store counts as away, once it has not answered for some seconds.
    fn problem(&self) -> Option<String>;

    /// What was counted so far.
    fn figures(&self) -> &StoreFigures;

    /// Brings the gauges up to this moment.
    fn measure(&self);

    /// Begins to follow the store and to say that this node is alive, to copy the audit log at this path, to send
    /// the use of tools that this node records, and to keep catalogs that are pushed down, until
    /// [`SharedStore::close`].
    fn follow(self: Arc<Self>, audit_log: &Path, usage: Option<LocalRecord>);

    /// Ends what [`SharedStore::follow`] began, and takes this node off the list.
    async fn close(&self);

    /// The keys of the store, with a copy of them in this folder if one is named.
    ///
    /// # Errors
    /// [`KeyError`] for a copy that cannot be used.
    fn keys(self: Arc<Self>, copy: Option<&Path>) -> Result<KeyStore, KeyError>;

    /// Stores feedback in the store.
    fn feedback(self: Arc<Self>, local: FeedbackStore) -> FeedbackStore;

    /// A slow embedder whose vectors of tools' texts are those of the store.
    fn sharing(self: Arc<Self>, embedder: Arc<dyn Embedder>) -> Arc<dyn Embedder>;

    /// The catalog of this name.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn find(&self, name: &str) -> Result<Option<StoredCatalog>, StoreError>;

    /// What a list of catalogs shows of the catalog of this name.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn summary(&self, name: &str) -> Result<Option<Summary>, StoreError>;

    /// The names of the catalogs, in order.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn names(&self) -> Result<Vec<String>, StoreError>;

    /// The names of the catalogs as they were last told; `None` before the store was reached.
    fn known_names(&self) -> Option<Arc<BTreeMap<String, i64>>>;

    /// Creates a catalog, unless it exists or there are `most` catalogs.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn create(&self, name: &str, most: usize) -> Result<CreatedCatalog, StoreError>;

    /// Deletes a catalog. Returns whether it was there.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn delete(&self, name: &str) -> Result<bool, StoreError>;

    /// Follows a catalog with this copy, which must be new or have followed it before.
    fn open(self: Arc<Self>, copy: Catalog, stored: &StoredCatalog) -> OpenedCatalog;

    /// Asks the store now for news, and not only at the next second.
    fn hurry(&self);

    /// Says how a task of this node is. Returns whether it should be cancelled.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn save_task(
        &self,
        id: &str,
        catalog: &str,
        body: &Value,
        is_running: bool,
    ) -> Result<bool, StoreError>;

    /// Deletes tasks that ended long ago, and the oldest beyond a bound.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn forget_tasks(&self) -> Result<(), StoreError>;

    /// The task with this id, of any node.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn find_task(&self, id: &str) -> Result<Option<StoredTask>, StoreError>;

    /// Asks the node of a task to cancel it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn cancel_task(&self, id: &str) -> Result<(), StoreError>;

    /// Returns when a task of this node should be reported again; sooner when it is to be cancelled.
    async fn report_due(&self, id: &str);

    /// Copies what the audit log of this node has and the store has not; of a long log a part.
    ///
    /// # Errors
    /// [`StoreError`]; what was copied before stays.
    async fn copy_audit_now(&self) -> Result<(), StoreError>;

    /// The newest entries of all nodes that pass the filter.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn audit_page(
        &self,
        filter: &Filter,
        before: Option<AuditCursor>,
        limit: usize,
    ) -> Result<AuditPage, StoreError>;

    /// Verifies the chain of each node; with `head`, also that one of them has an entry with this hash. `go_on` is
    /// asked before each page; false stops there.
    ///
    /// # Errors
    /// [`ChainError`].
    async fn verify_audit(
        &self,
        head: Option<&str>,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<VerifiedChain>, ChainError>;

    /// The days on which other nodes recorded use.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn usage_nodes(&self, of: &UseOfOthers) -> Result<UseOfNodes, StoreError>;

    /// The use of the tools of a catalog on other nodes, by their ids.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn usage_tools(
        &self,
        of: &UseOfOthers,
        catalog: &str,
    ) -> Result<BTreeMap<String, ToolFigures>, StoreError>;

    /// What callers did in all catalogs on other nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn usage_callers(&self, of: &UseOfOthers) -> Result<Vec<CallerDay>, StoreError>;

    /// The requests to a catalog that no tool served, of other nodes, in the order of time.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn usage_missed(
        &self,
        of: &UseOfOthers,
        catalog: &str,
    ) -> Result<Vec<MissedRequest>, StoreError>;

    /// The figures of a shadow of a catalog on other nodes, by day.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn usage_shadow(
        &self,
        of: &UseOfOthers,
        catalog: &str,
        shadow: &str,
    ) -> Result<Vec<(i64, ShadowFigures)>, StoreError>;

    /// Deletes the requests to a catalog that no tool served, of all nodes. Returns how many nodes other than the
    /// one with this record had.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn forget_missed(&self, record: Option<&str>, catalog: &str)
    -> Result<usize, StoreError>;

    /// Takes the right to let a model write texts. Returns the tokens of the day; `None` while another node has it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn begin_enriching(&self) -> Result<Option<usize>, StoreError>;

    /// Counts tokens, and keeps the right. False once another node has it.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn count_enriching(&self, tokens: usize) -> Result<bool, StoreError>;

    /// Gives the right back.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn end_enriching(&self) -> Result<(), StoreError>;

    /// The tokens of the day, of all nodes.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn enriching_tokens(&self) -> Result<usize, StoreError>;
}

impl dyn SharedStore + '_ {
    /// Waits for the store on a thread that may block.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }
}
