//! The search of a profile: its tools alone, as it changes them.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use toolscout_index::query::{DEFAULT_K, MAX_K};
use toolscout_index::{Kind, Searcher, Tool, ToolId, Version};

use super::ToolProfile;
use crate::finder::ToolSearch;
use crate::finder::search::{Found, SearchRequest, UsedTool};
use crate::finder::snapshot::CurrentSnapshot;
use toolscout_base::cpu_pool::CpuPool;
use toolscout_gate::gate::Gate;

/// How many times the wanted hits are asked for where tools outside the profile may be among them.
const UNLISTED_FACTOR: usize = 8;
/// Most items of a profile that are indexed with its texts. It takes a second, at the first search after
/// the catalog has changed.
const MAX_INDEXED: usize = 10_000;

/// A state of a profile: of its catalog, and of its rules.
type State = (Version, u64);

/// What a catalog has of a profile.
#[derive(Clone)]
struct Known {
    /// The ids of items of all kinds.
    ids: Arc<BTreeSet<String>>,
    /// Number of tools.
    tools: usize,
}

/// A search of the tools of a profile alone. A tool outside is as if it did not exist: neither hits
/// nor suggested names nor counts tell of it.
pub struct ProfiledSearch {
    catalog: Arc<dyn ToolSearch>,
    profile: Arc<ToolProfile>,
    /// Knows the classes of tools.
    gate: Arc<Gate>,
    known: Mutex<Option<(State, Known)>>,
    /// The items with the texts of the profile; `None` if it has the texts of the catalog, or too many.
    indexed: Mutex<Option<(State, Option<Arc<Searcher>>)>>,
}

impl ProfiledSearch {
    /// The tools of a catalog that are in this profile, by the classes of this gate.
    pub fn new(catalog: Arc<dyn ToolSearch>, profile: Arc<ToolProfile>, gate: Arc<Gate>) -> Self {
        ProfiledSearch {
            catalog,
            profile,
            gate,
            known: Mutex::default(),
            indexed: Mutex::default(),
        }
    }

    fn state(&self) -> State {
        (self.catalog.version(), self.profile.revision())
    }

    /// The items of the profile with its texts, if it changes what models read. Built at the first use in
    /// each state, while other searches of the profile wait. Blocks.
    fn edited(&self) -> Option<Arc<Searcher>> {
        if !self.profile.changes_definitions() {
            return None;
        }
        let state = self.state();
        let mut cached = self.indexed.lock();
        if let Some((of, searcher)) = &*cached
            && *of == state
        {
            return searcher.clone();
        }
        let searcher = self.index();
        *cached = Some((state, searcher.clone()));
        searcher
    }

    fn index(&self) -> Option<Arc<Searcher>> {
        let base = self.catalog.indexed()?;
        let items = self.items();
        let name = self.profile.name();
        if items.len() > MAX_INDEXED {
            tracing::warn!(
                "the profile {name:?} has {} tools; with more than {MAX_INDEXED}, searches use the texts of the catalog",
                items.len()
            );
            return None;
        }
        match base.with_items(items) {
            Ok(searcher) => Some(Arc::new(searcher)),
            Err(error) => {
                tracing::warn!(%error, "the texts of the profile {name:?} are not searched");
                None
            }
        }
    }

    /// The search as the profile has it, for who measures it. Blocks.
    pub fn searcher(&self) -> Option<Arc<Searcher>> {
        self.edited()
    }

    /// The ids of the items of the profile. Blocks.
    pub fn item_ids(&self) -> Arc<BTreeSet<String>> {
        self.known().ids
    }

    fn shown(&self, found: &mut Found) {
        for hit in &mut found.hits {
            hit.tool = self.profile.edited(&hit.tool);
        }
        for tool in &mut found.more {
            *tool = self.profile.edited(tool);
        }
    }

    fn has(&self, tool: &Tool) -> bool {
        let may_be_read = match tool.kind {
            // Its clients read those of whole servers only, so nothing else is found.
            Kind::Prompt | Kind::Resource => self.profile.may_have_server(tool.id.server()),
            Kind::Tool | Kind::Skill | Kind::Agent => true,
        };
        may_be_read && self.profile.has(tool, self.gate.policies().class(tool))
    }

    /// What it has, computed anew when the catalog has changed.
    fn known(&self) -> Known {
        // Read before the tools: if they change in between, the next call sees another state and reads
        // them again.
        let state = self.state();
        let mut cached = self.known.lock();
        if let Some((of, known)) = &*cached
            && *of == state
        {
            return known.clone();
        }
        let items = self.items();
        let known = Known {
            tools: items.iter().filter(|item| item.kind.is_tool()).count(),
            ids: Arc::new(items.iter().map(|item| item.id.to_string()).collect()),
        };
        *cached = Some((state, known.clone()));
        known
    }

    /// Searches a catalog of which not all tools are known here: more hits are asked for than are
    /// wanted, and those outside the profile are left out.
    fn search_unlisted(&self, request: &SearchRequest) -> Found {
        let mut request = request.clone();
        let wanted = request.limit.or(self.profile.limit()).unwrap_or(DEFAULT_K);
        request.limit = Some((wanted * UNLISTED_FACTOR).clamp(1, MAX_K));
        let settings = self.profile.settings();
        // What the filter can say, the catalog leaves out itself, so that fewer hits are lost here.
        // A filter has names only, no patterns.
        for (filter, names) in [
            (&mut request.filter.servers, &settings.servers),
            (&mut request.filter.tags, &settings.tags),
        ] {
            if filter.is_empty() && are_exact(names) {
                filter.extend(names.iter().flatten().cloned());
            }
        }
        let mut found = self.catalog.search(&request);
        found.hits.retain(|hit| self.has(&hit.tool));
        found.items.retain(|found| self.has(&found.item));
        found.items.truncate(wanted);
        // Hits beyond the wanted ones come before the further tools, since they are better.
        let after = found.hits.split_off(wanted.min(found.hits.len()));
        let after = after.into_iter().map(|hit| hit.tool);
        found.more.retain(|tool| self.has(tool));
        found.more.splice(..0, after);
        found.more.truncate(request.more);
        if let Some(no_match) = &mut found.no_match {
            no_match.nearest.retain(|id| self.tool(id).is_some());
        }
        self.shown(&mut found);
        found
    }
}

/// Whether names are names, and no patterns.
fn are_exact(names: &Option<Vec<String>>) -> bool {
    names.iter().flatten().all(|name| !name.contains('*'))
}

impl ToolSearch for ProfiledSearch {
    fn search(&self, request: &SearchRequest) -> Found {
        if !self.catalog.lists_tools() {
            return self.search_unlisted(request);
        }
        if let Some(edited) = self.edited() {
            let mut request = request.clone();
            request.limit = request.limit.or(self.profile.limit());
            let mut found = CurrentSnapshot(|| Arc::clone(&edited)).search(&request);
            // A second search for comparison would be of the texts of the catalog.
            found.answered = None;
            return found;
        }
        let ids = self.known().ids;
        let mut request = request.clone();
        if request.filter.ids.is_empty() {
            request.filter.ids = Arc::clone(&ids);
        } else {
            Arc::make_mut(&mut request.filter.ids).retain(|id| ids.contains(id));
        }
        // An empty filter would let every tool in.
        if request.filter.ids.is_empty() {
            return Found::nothing("there are no tools here");
        }
        request.limit = request.limit.or(self.profile.limit());
        let mut found = self.catalog.search(&request);
        // The catalog may have changed since the ids were read.
        found.hits.retain(|hit| self.has(&hit.tool));
        found.items.retain(|found| self.has(&found.item));
        found.more.retain(|tool| self.has(tool));
        if let Some(no_match) = &mut found.no_match {
            no_match.nearest.retain(|id| ids.contains(id.as_str()));
        }
        self.shown(&mut found);
        found
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let tool = self.catalog.tool(id).filter(|tool| self.has(tool))?;
        Some(self.profile.edited(&tool))
    }

    fn item(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let item = self.catalog.item(id).filter(|item| self.has(item))?;
        Some(self.profile.edited(&item))
    }

    fn items(&self) -> Vec<Arc<Tool>> {
        let mut items = self.catalog.items();
        items.retain(|item| self.has(item));
        items.iter().map(|item| self.profile.edited(item)).collect()
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        let mut tools = self.catalog.tools();
        tools.retain(|tool| self.has(tool));
        tools.iter().map(|tool| self.profile.edited(tool)).collect()
    }

    fn ids(&self) -> Vec<ToolId> {
        let known = self.known();
        let mut ids = self.catalog.ids();
        ids.retain(|id| known.ids.contains(id.as_str()));
        ids
    }

    fn lists_tools(&self) -> bool {
        self.catalog.lists_tools()
    }

    fn cpu_pool(&self) -> Option<CpuPool> {
        self.catalog.cpu_pool()
    }

    fn count(&self) -> usize {
        match self.lists_tools() {
            true => self.known().tools,
            // Those of the profile are among them.
            false => self.catalog.count(),
        }
    }

    fn version(&self) -> Version {
        let (mut version, revision) = self.state();
        // Other rules make other tools of the same catalog.
        version.identity = format!("{}/{revision}", version.identity);
        version
    }

    fn learns(&self) -> bool {
        self.catalog.learns()
    }

    fn used(&self, used_tool: &UsedTool) {
        self.catalog.used(used_tool);
    }
}
