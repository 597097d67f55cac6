//! This store as a server asks for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::runtime::Handle;
use toolscout_gate::gate::audit::page::Filter;
use toolscout_gate::usage::missed::MissedRequest;
use toolscout_gate::usage::shadow::ShadowFigures;
use toolscout_gate::usage::sharing::LocalRecord;
use toolscout_gate::usage::{CallerDay, ToolFigures};
use toolscout_index::memory::{Deletion, Source, Switch};
use toolscout_index::{Catalog, Embedder, Query, Searcher, Summary, Tool, ToolId};
use toolscout_state::approved::ApprovedPlace;
use toolscout_state::catalog_writer::Waker;
use toolscout_state::feedback::FeedbackStore;
use toolscout_state::keys::{KeyError, KeyStore};
use toolscout_state::shared::{
    AuditCursor, AuditPage, ChainError, CreatedCatalog, ListedTools, OpenedCatalog, PageOf,
    PushedStats, PushedTools, SharedCatalog, SharedStore, StoreError, StoreFigures, StoredCatalog,
    StoredTask, TextsOf, UseOfNodes, UseOfOthers, VerifiedChain,
};

use crate::hub::FollowedCatalog;
use crate::{FollowingStore, PostgresStore, SharedEmbedder};

type Result<T> = std::result::Result<T, StoreError>;

#[async_trait]
impl SharedStore for PostgresStore {
    fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn problem(&self) -> Option<String> {
        PostgresStore::problem(self)
    }

    fn figures(&self) -> &StoreFigures {
        PostgresStore::figures(self)
    }

    fn measure(&self) {
        PostgresStore::measure(self);
    }

    fn follow(self: Arc<Self>, audit_log: &Path, usage: Option<LocalRecord>) {
        self.copy_audit(audit_log);
        if let Some(usage) = usage {
            self.send_usage(usage);
        }
        PostgresStore::follow(&self);
        self.keep_pushed_down();
    }

    async fn close(&self) {
        PostgresStore::close(self).await;
    }

    fn keys(self: Arc<Self>, copy: Option<&Path>) -> std::result::Result<KeyStore, KeyError> {
        PostgresStore::keys(&self, copy)
    }

    fn feedback(self: Arc<Self>, local: FeedbackStore) -> FeedbackStore {
        PostgresStore::feedback(&self, local)
    }

    fn sharing(self: Arc<Self>, embedder: Arc<dyn Embedder>) -> Arc<dyn Embedder> {
        Arc::new(SharedEmbedder::new(embedder, self))
    }

    async fn find(&self, name: &str) -> Result<Option<StoredCatalog>> {
        Ok(PostgresStore::find(self, name).await?)
    }

    async fn summary(&self, name: &str) -> Result<Option<Summary>> {
        Ok(PostgresStore::summary(self, name).await?)
    }

    async fn names(&self) -> Result<Vec<String>> {
        Ok(PostgresStore::names(self).await?)
    }

    fn known_names(&self) -> Option<Arc<BTreeMap<String, i64>>> {
        PostgresStore::known_names(self)
    }

    async fn create(&self, name: &str, most: usize) -> Result<CreatedCatalog> {
        Ok(PostgresStore::create(self, name, most).await?)
    }

    async fn delete(&self, name: &str) -> Result<bool> {
        Ok(PostgresStore::delete(self, name).await?)
    }

    fn open(self: Arc<Self>, copy: Catalog, stored: &StoredCatalog) -> OpenedCatalog {
        let writer = FollowingStore::new(Arc::clone(&self), copy, stored);
        let followed = Arc::clone(writer.followed());
        OpenedCatalog {
            writer: Box::new(writer),
            catalog: Arc::new(CatalogOfStore {
                store: self,
                followed,
            }),
        }
    }

    fn hurry(&self) {
        PostgresStore::hurry(self);
    }

    async fn save_task(
        &self,
        id: &str,
        catalog: &str,
        body: &Value,
        is_running: bool,
    ) -> Result<bool> {
        Ok(PostgresStore::save_task(self, id, catalog, body, is_running).await?)
    }

    async fn forget_tasks(&self) -> Result<()> {
        Ok(PostgresStore::forget_tasks(self).await?)
    }

    async fn find_task(&self, id: &str) -> Result<Option<StoredTask>> {
        Ok(PostgresStore::find_task(self, id).await?)
    }

    async fn cancel_task(&self, id: &str) -> Result<()> {
        Ok(PostgresStore::cancel_task(self, id).await?)
    }

    async fn report_due(&self, id: &str) {
        PostgresStore::report_due(self, id).await;
    }

    async fn copy_audit_now(&self) -> Result<()> {
        Ok(PostgresStore::copy_audit_now(self).await?)
    }

    async fn audit_page(
        &self,
        filter: &Filter,
        before: Option<AuditCursor>,
        limit: usize,
    ) -> Result<AuditPage> {
        Ok(PostgresStore::audit_page(self, filter, before, limit).await?)
    }

    async fn verify_audit(
        &self,
        head: Option<&str>,
        go_on: &(dyn Fn() -> bool + Sync),
    ) -> std::result::Result<Vec<VerifiedChain>, ChainError> {
        PostgresStore::verify_audit(self, head, go_on).await
    }

    async fn usage_nodes(&self, of: &UseOfOthers) -> Result<UseOfNodes> {
        Ok(PostgresStore::usage_nodes(self, of).await?)
    }

    async fn usage_tools(
        &self,
        of: &UseOfOthers,
        catalog: &str,
    ) -> Result<BTreeMap<String, ToolFigures>> {
        Ok(PostgresStore::usage_tools(self, of, catalog).await?)
    }

    async fn usage_callers(&self, of: &UseOfOthers) -> Result<Vec<CallerDay>> {
        Ok(PostgresStore::usage_callers(self, of).await?)
    }

    async fn usage_missed(&self, of: &UseOfOthers, catalog: &str) -> Result<Vec<MissedRequest>> {
        Ok(PostgresStore::usage_missed(self, of, catalog).await?)
    }

    async fn usage_shadow(
        &self,
        of: &UseOfOthers,
        catalog: &str,
        shadow: &str,
    ) -> Result<Vec<(i64, ShadowFigures)>> {
        Ok(PostgresStore::usage_shadow(self, of, catalog, shadow).await?)
    }

    async fn forget_missed(&self, record: Option<&str>, catalog: &str) -> Result<usize> {
        Ok(PostgresStore::forget_missed(self, record, catalog).await?)
    }

    async fn begin_enriching(&self) -> Result<Option<usize>> {
        Ok(PostgresStore::begin_enriching(self).await?)
    }

    async fn count_enriching(&self, tokens: usize) -> Result<bool> {
        Ok(PostgresStore::count_enriching(self, tokens).await?)
    }

    async fn end_enriching(&self) -> Result<()> {
        Ok(PostgresStore::end_enriching(self).await?)
    }

    async fn enriching_tokens(&self) -> Result<usize> {
        Ok(PostgresStore::enriching_tokens(self).await?)
    }
}

/// A catalog of this store, with what this node knows of it.
struct CatalogOfStore {
    store: Arc<PostgresStore>,
    followed: Arc<FollowedCatalog>,
}

#[async_trait]
impl SharedCatalog for CatalogOfStore {
    fn set_waker(&self, waker: Waker) {
        self.followed.set_waker(waker);
    }

    fn is_deleted(&self) -> bool {
        self.followed.is_deleted()
    }

    fn is_pushed_down(&self) -> bool {
        self.followed.is_pushed_down()
    }

    fn approved(&self) -> ApprovedPlace {
        self.store.approved(&self.followed)
    }

    fn remember(&self, used: (&str, &ToolId), at_ms: i64, source: &Source) -> Result<bool> {
        Ok(self.store.remember(&self.followed, used, at_ms, source)?)
    }

    fn switch_memory(&self, switch: Switch) -> Result<()> {
        Ok(self.store.switch_memory(&self.followed, switch)?)
    }

    fn forget_memory(&self, what: &Deletion) -> Result<usize> {
        Ok(self.store.forget_memory(&self.followed, what)?)
    }
}

#[async_trait]
impl PushedTools for CatalogOfStore {
    fn problem(&self) -> Option<String> {
        self.store.problem()
    }

    fn total(&self) -> usize {
        self.followed.total()
    }

    async fn searcher_for(&self, base: &Arc<Searcher>, query: &Query) -> Result<Arc<Searcher>> {
        let found = self.store.searcher_for(self.followed.id, base, query);
        Ok(Arc::new(found.await?))
    }

    async fn tool(&self, id: &ToolId) -> Result<Option<Tool>> {
        Ok(self.store.tool_of(self.followed.id, id).await?)
    }

    async fn page(&self, page: &PageOf) -> Result<ListedTools> {
        Ok(self.store.page_of(self.followed.id, page).await?)
    }

    async fn tools_with_texts(&self, base: &Arc<Searcher>, of: &TextsOf) -> Result<Searcher> {
        Ok(self
            .store
            .tools_with_texts(self.followed.id, base, of)
            .await?)
    }

    async fn count_texts(&self) -> Result<usize> {
        Ok(self.store.count_texts(self.followed.id).await?)
    }

    async fn ids_passing(&self, filter: &toolscout_index::Filter) -> Result<Vec<ToolId>> {
        Ok(self.store.ids_passing(self.followed.id, filter).await?)
    }

    async fn tags(&self, limit: usize) -> Result<(Vec<(String, usize)>, usize)> {
        Ok(self.store.tags_of(self.followed.id, limit).await?)
    }

    async fn stats(&self) -> Result<PushedStats> {
        Ok(self.store.pushed_stats(self.followed.id).await?)
    }
}
