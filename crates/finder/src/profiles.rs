//! Profiles of the settings: a part of a catalog that is all a client can see, find and call.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use toolscout_index::query::{DEFAULT_K, MAX_K};
use toolscout_index::{Kind, Tool, ToolId, Version};

use crate::finder::ToolSearch;
use crate::finder::search::{Found, SearchRequest, UsedTool};
use toolscout_base::config::{ProfileClass, ProfileDetail, ProfileSettings};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_gate::gate::pattern::Folded;
use toolscout_gate::gate::{Class, Gate, Pattern, Policies};
use toolscout_gate::usage::Place;

/// How many times the wanted hits are asked for where tools outside the profile may be among them.
const UNLISTED_FACTOR: usize = 8;

/// A part of a catalog.
///
/// What lets tools in has to match letter by letter; `exclude` keeps out names that look the same
/// too.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolProfile {
    name: String,
    settings: ProfileSettings,
    servers: Option<Vec<Pattern>>,
    tags: Option<Vec<Pattern>>,
    tools: Option<Vec<Pattern>>,
    exclude: Vec<Pattern>,
    classes: Option<BTreeSet<Class>>,
    /// Patterns of ids, one of which a tool has to fit besides.
    within: Option<Vec<Pattern>>,
}

impl ToolProfile {
    /// The profile that these settings describe.
    pub fn new(name: &str, settings: &ProfileSettings) -> Self {
        let classes = settings.classes.as_deref().map(classes_of);
        ToolProfile {
            name: name.to_owned(),
            servers: settings.servers.as_deref().map(patterns),
            tags: settings.tags.as_deref().map(patterns),
            tools: settings.tools.as_deref().map(patterns),
            exclude: patterns(settings.exclude.as_deref().unwrap_or_default()),
            classes,
            within: None,
            settings: settings.clone(),
        }
    }

    /// A profile with all tools, to be narrowed.
    pub fn of_everything() -> Self {
        ToolProfile::new("", &ProfileSettings::default())
    }

    /// The part of it that only reads.
    pub fn reading(mut self) -> Self {
        match &mut self.classes {
            // None may be left, and then no tool is in the profile.
            Some(classes) => classes.retain(|class| *class == Class::ReadOnly),
            None => self.classes = Some(BTreeSet::from([Class::ReadOnly])),
        }
        self
    }

    /// The part of it with ids that fit one of these patterns.
    pub fn within(mut self, texts: &[String]) -> Self {
        self.within = Some(patterns(texts));
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its catalog, if it names one.
    pub fn catalog(&self) -> Option<&str> {
        self.settings.catalog.as_deref()
    }

    /// Through what its tools are used, for the record of use.
    pub fn place(&self) -> Place {
        Place {
            catalog: self.settings.catalog.clone(),
            // One without a name is not of the settings.
            profile: (!self.name.is_empty()).then(|| self.name.clone()),
        }
    }

    /// Tools that are always in the list of a client, by id.
    pub fn pins(&self) -> &[String] {
        &self.settings.pins
    }

    /// How much of each found tool is shown, if it says so.
    pub fn detail(&self) -> Option<ProfileDetail> {
        self.settings.detail
    }

    /// The classes of tools that may be called; `None` for all.
    pub fn classes(&self) -> Option<&BTreeSet<Class>> {
        self.classes.as_ref()
    }

    /// Whether a tool of this class is in it.
    pub fn has(&self, tool: &Tool, class: Class) -> bool {
        if let Some(classes) = &self.classes
            && !classes.contains(&class)
        {
            return false;
        }
        if let Some(tags) = &self.tags
            && !tool.tags.iter().any(|tag| any_matches(tags, tag))
        {
            return false;
        }
        self.has_id(&tool.id)
    }

    /// Whether it names a tool by its id, so that tools of no catalog are in it too.
    pub fn names(&self, tool: &Tool, class: Class) -> bool {
        self.tools.is_some() && self.has(tool, class)
    }

    /// Whether a tool of which nothing but the id is known is certainly in it.
    pub fn certainly_has(&self, id: &ToolId) -> bool {
        self.tags.is_none() && self.classes.is_none() && self.has_id(id)
    }

    /// Whether its clients may know of this server, whose tools are not known.
    pub fn may_have_server(&self, server: &str) -> bool {
        match &self.servers {
            Some(patterns) => any_matches(patterns, server),
            None => self.tools.is_none() && self.within.is_none(),
        }
    }

    fn has_id(&self, id: &ToolId) -> bool {
        fits(&self.servers, id.server())
            && fits(&self.tools, id.as_str())
            && fits(&self.within, id.as_str())
            && !self.excludes(id)
    }

    fn excludes(&self, id: &ToolId) -> bool {
        if self.exclude.is_empty() {
            return false;
        }
        // Folded once for all patterns, since this costs more than a comparison.
        let folded = Folded::of(id.as_str());
        let mut patterns = self.exclude.iter();
        patterns.any(|pattern| pattern.resembles(&folded))
    }

    /// What it names that these tools do not have, or not in the profile, each with the place and the
    /// next step.
    pub fn mistakes(&self, tools: &[Arc<Tool>], policies: &Policies) -> Vec<String> {
        let mut open = self.named();
        for tool in tools {
            open.retain(|named| !named.fits(tool));
            if open.is_empty() {
                break;
            }
        }
        let mut mistakes: Vec<String> = open.iter().map(|named| self.unmatched(named)).collect();
        for tool in tools {
            let id = tool.id.as_str();
            // Pins are few, so this is tested before the class, which takes policies to find out.
            if self.pins().iter().any(|pin| pin == id) && !self.has(tool, policies.class(tool)) {
                mistakes.push(format!(
                    "profiles.{}.pins has {id:?}, which the rest of the profile leaves out, so it is not shown; \
                     correct either of them in the settings",
                    self.name
                ));
            }
        }
        mistakes
    }

    fn unmatched(&self, Named { key, pattern }: &Named) -> String {
        let pattern = pattern.to_string();
        if *key == "only" {
            return format!(
                "--only {pattern:?} fits no tool of the catalog; correct it, or add the tools"
            );
        }
        format!(
            "profiles.{}.{key} has {pattern:?}, which fits no tool of the catalog; correct it in the settings, or add \
             the tools",
            self.name
        )
    }

    fn named(&self) -> Vec<Named> {
        let lists = [
            ("servers", self.servers.clone().unwrap_or_default()),
            ("tags", self.tags.clone().unwrap_or_default()),
            ("tools", self.tools.clone().unwrap_or_default()),
            ("exclude", self.exclude.clone()),
            ("pins", patterns(self.pins())),
            ("only", self.within.clone().unwrap_or_default()),
        ];
        let mut named = Vec::new();
        for (key, patterns) in lists {
            for pattern in patterns {
                named.push(Named { key, pattern });
            }
        }
        named
    }
}

/// A pattern of a profile, and the list that has it.
struct Named {
    key: &'static str,
    pattern: Pattern,
}

impl Named {
    fn fits(&self, tool: &Tool) -> bool {
        match self.key {
            "servers" => self.pattern.matches(tool.id.server()),
            "tags" => tool.tags.iter().any(|tag| self.pattern.matches(tag)),
            // As the profile itself applies it: names that look the same are kept out too.
            "exclude" => self.pattern.resembles(&Folded::of(tool.id.as_str())),
            _ => self.pattern.matches(tool.id.as_str()),
        }
    }
}

fn patterns(texts: &[String]) -> Vec<Pattern> {
    texts.iter().map(String::as_str).map(Pattern::new).collect()
}

/// Whether a text is let in. Without a list, every text is; an empty list lets nothing in.
fn fits(patterns: &Option<Vec<Pattern>>, text: &str) -> bool {
    match patterns {
        Some(patterns) => any_matches(patterns, text),
        None => true,
    }
}

fn any_matches(patterns: &[Pattern], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(text))
}

fn classes_of(listed: &[ProfileClass]) -> BTreeSet<Class> {
    listed.iter().copied().map(class).collect()
}

fn class(class: ProfileClass) -> Class {
    match class {
        ProfileClass::ReadOnly => Class::ReadOnly,
        ProfileClass::StateChanging => Class::StateChanging,
        ProfileClass::Destructive => Class::Destructive,
    }
}

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
    known: Mutex<Option<(Version, Known)>>,
}

impl ProfiledSearch {
    /// The tools of a catalog that are in this profile, by the classes of this gate.
    pub fn new(catalog: Arc<dyn ToolSearch>, profile: Arc<ToolProfile>, gate: Arc<Gate>) -> Self {
        ProfiledSearch {
            catalog,
            profile,
            gate,
            known: Mutex::default(),
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
        // Read before the tools: if they change in between, the next call sees another version and
        // reads them again.
        let version = self.catalog.version();
        let mut cached = self.known.lock();
        if let Some((of, known)) = &*cached
            && *of == version
        {
            return known.clone();
        }
        let items = self.items();
        let known = Known {
            tools: items.iter().filter(|item| item.kind.is_tool()).count(),
            ids: Arc::new(items.iter().map(|item| item.id.to_string()).collect()),
        };
        *cached = Some((version, known.clone()));
        known
    }

    /// Searches a catalog of which not all tools are known here: more hits are asked for than are
    /// wanted, and those outside the profile are left out.
    fn search_unlisted(&self, request: &SearchRequest) -> Found {
        let mut request = request.clone();
        let wanted = request
            .limit
            .or(self.profile.settings.limit)
            .unwrap_or(DEFAULT_K);
        request.limit = Some((wanted * UNLISTED_FACTOR).clamp(1, MAX_K));
        let settings = &self.profile.settings;
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
        request.limit = request.limit.or(self.profile.settings.limit);
        let mut found = self.catalog.search(&request);
        // The catalog may have changed since the ids were read.
        found.hits.retain(|hit| self.has(&hit.tool));
        found.items.retain(|found| self.has(&found.item));
        found.more.retain(|tool| self.has(tool));
        if let Some(no_match) = &mut found.no_match {
            no_match.nearest.retain(|id| ids.contains(id.as_str()));
        }
        found
    }

    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.catalog.tool(id).filter(|tool| self.has(tool))
    }

    fn item(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.catalog.item(id).filter(|item| self.has(item))
    }

    fn items(&self) -> Vec<Arc<Tool>> {
        let mut items = self.catalog.items();
        items.retain(|item| self.has(item));
        items
    }

    fn tools(&self) -> Vec<Arc<Tool>> {
        let mut tools = self.catalog.tools();
        tools.retain(|tool| self.has(tool));
        tools
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
        self.catalog.version()
    }

    fn learns(&self) -> bool {
        self.catalog.learns()
    }

    fn used(&self, used_tool: &UsedTool) {
        self.catalog.used(used_tool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finder::search::doubles::ListedTools;
    use toolscout_gate::gate::Policies;

    fn profile(text: &str) -> ToolProfile {
        ToolProfile::new("team", &toml::from_str(text).unwrap())
    }

    fn tool(id: &str, tags: &[&str], read_only: bool) -> Tool {
        let id = ToolId::parse(id).unwrap();
        let mut tool = Tool::new(id.server(), id.name()).unwrap();
        tool.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        tool.annotations.read_only_hint = Some(read_only);
        tool
    }

    fn searched(text: &str) -> ProfiledSearch {
        let tools = [
            tool("mail/send", &["office"], false),
            tool("mail/read", &["office"], true),
            tool("mail/delete_all", &["office"], false),
            tool("shop/order", &["trade"], false),
        ];
        let catalog = ListedTools(tools.into_iter().map(Arc::new).collect());
        let gate = Gate::new(Policies::default());
        ProfiledSearch::new(Arc::new(catalog), Arc::new(profile(text)), Arc::new(gate))
    }

    fn ids(tools: &[Arc<Tool>]) -> Vec<&str> {
        tools.iter().map(|tool| tool.id.as_str()).collect()
    }

    /// A catalog whose tools are in a store.
    struct Stored(ListedTools);

    impl ToolSearch for Stored {
        fn search(&self, request: &SearchRequest) -> Found {
            self.0.search(request)
        }

        fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
            self.0.tool(id)
        }

        fn tools(&self) -> Vec<Arc<Tool>> {
            Vec::new()
        }

        fn lists_tools(&self) -> bool {
            false
        }

        fn count(&self) -> usize {
            self.0.count()
        }

        fn version(&self) -> Version {
            self.0.version()
        }
    }

    #[test]
    fn a_profile_of_a_catalog_in_a_store_finds_its_own_tools_only() {
        let tools = (0..20).map(|n| tool(&format!("mail/read_{n:02}"), &[], n % 2 == 0));
        let catalog = Stored(ListedTools(tools.map(Arc::new).collect()));
        let settings = profile("servers = ['mail']\nclasses = ['read_only']");
        let gate = Gate::new(Policies::default());
        let search = ProfiledSearch::new(Arc::new(catalog), Arc::new(settings), Arc::new(gate));
        let found = search.search(&SearchRequest {
            queries: vec!["read".into()],
            limit: Some(3),
            more: 2,
            ..SearchRequest::default()
        });
        let hits: Vec<&str> = found.hits.iter().map(|hit| hit.tool.id.as_str()).collect();
        assert_eq!(hits, ["mail/read_00", "mail/read_02", "mail/read_04"]);
        assert_eq!(ids(&found.more), ["mail/read_06", "mail/read_08"]);
        assert!(
            search
                .tool(&ToolId::parse("mail/read_01").unwrap())
                .is_none()
        );
    }

    #[test]
    fn a_profile_has_what_all_its_lists_let_in() {
        for (text, expected) in [
            (
                "servers = ['mail']\nexclude = ['*Delete*']",
                &["mail/send", "mail/read"][..],
            ),
            ("servers = ['ma*']\nclasses = ['read_only']", &["mail/read"]),
            ("tags = ['tr*']", &["shop/order"]),
            ("tools = ['*/send', 'shop/*']", &["mail/send", "shop/order"]),
            ("tools = ['Mail/send']", &[]),
            ("servers = ['mail']\ntags = ['trade']", &[]),
            ("exclude = ['mail/*']", &["shop/order"]),
        ] {
            assert_eq!(ids(&searched(text).tools()), expected, "{text}");
        }
    }

    #[test]
    fn a_narrowed_profile_has_no_more_than_before() {
        let tools = searched("tools = ['*']").tools();
        let gate = Policies::default();
        let of = |profile: &ToolProfile| -> Vec<String> {
            let has = |tool: &&Arc<Tool>| profile.has(tool, gate.class(tool));
            tools
                .iter()
                .filter(has)
                .map(|tool| tool.id.to_string())
                .collect()
        };
        let all = ToolProfile::of_everything();
        assert_eq!(of(&all).len(), 4);
        assert_eq!(of(&all.clone().reading()), ["mail/read"]);
        let only = ["*/send".to_owned(), "shop/*".to_owned()];
        assert_eq!(of(&all.within(&only)), ["mail/send", "shop/order"]);
        let mail = profile("servers = ['mail']\nclasses = ['state_changing']");
        assert_eq!(of(&mail.clone().within(&only)), ["mail/send"]);
        assert!(of(&mail.reading()).is_empty());
    }

    #[test]
    fn a_tool_outside_is_as_if_it_did_not_exist() {
        let search = searched("servers = ['shop']");
        let send = ToolId::parse("mail/send").unwrap();
        assert!(search.tool(&send).is_none());
        assert_eq!(search.count(), 1);
        for select in ["mail/send", "mail/sned"] {
            let request = SearchRequest {
                select: vec![select.into()],
                queries: vec!["send a mail".into()],
                ..SearchRequest::default()
            };
            let found = search.search(&request);
            assert!(found.hits.is_empty(), "{found:?}");
            let nearest = found.no_match.unwrap().nearest;
            assert!(
                nearest.iter().all(|id| id.server() == "shop"),
                "{nearest:?}"
            );
        }
    }

    #[test]
    fn a_filter_that_leaves_nothing_finds_nothing() {
        let search = searched("servers = ['shop']");
        let mut request = SearchRequest {
            queries: vec!["mail".into()],
            ..SearchRequest::default()
        };
        Arc::make_mut(&mut request.filter.ids).insert("mail/send".into());
        assert!(search.search(&request).hits.is_empty());
        let empty = searched("servers = ['none']");
        request.filter.ids = Arc::default();
        assert!(empty.search(&request).hits.is_empty());
    }

    #[test]
    fn what_the_owner_pins_and_describes_stays_within_the_profile() {
        let folder = tempfile::tempdir().unwrap();
        let data = toolscout_index::DataDir::new(folder.path());
        let catalog = data.open_or_create("c", Default::default()).unwrap();
        let mut writer = catalog.writer().unwrap();
        let tools = [
            tool("mail/send", &["office"], false),
            tool("shop/order", &[], true),
        ];
        writer.upsert(&tools).unwrap();
        let words = serde_json::json!({
            "pins": { "p": { "query": "mail", "match": "contains", "tool": "shop/order" } },
            "aliases": { "shop/order": ["mail order"] },
            "descriptions": { "mail/send": "Only reads mail." },
        });
        let words = toolscout_index::OwnerWords::read(words.to_string().as_bytes()).unwrap();
        writer.set_owner_words(&words).unwrap();
        writer.commit().unwrap();
        let (catalog, gate) = (
            Arc::new(catalog.clone()),
            Arc::new(Gate::new(Policies::default())),
        );
        let found = |text: &str| {
            let (catalog, gate) = (Arc::clone(&catalog), Arc::clone(&gate));
            let search = ProfiledSearch::new(catalog, Arc::new(profile(text)), gate);
            let request = |query: &str| SearchRequest {
                queries: vec![query.to_owned()],
                select: vec!["mail order".to_owned()],
                ..SearchRequest::default()
            };
            let found = ["mail", "mail order"].map(|query| search.search(&request(query)).hits);
            let tools: Vec<Arc<Tool>> = found.into_iter().flatten().map(|hit| hit.tool).collect();
            tools
        };
        let everything = found("");
        assert!(ids(&everything).contains(&"shop/order"));
        let office = found("servers = ['mail']");
        assert!(!office.is_empty());
        assert!(office.iter().all(|tool| tool.id.server() == "mail"));
        let sends = &office[0];
        assert_eq!(sends.shown_description(), "Only reads mail.");
        // Policies go by the server's definition.
        let definition = toolscout_gate::gate::Definition::of(&tools[0]);
        assert_eq!(toolscout_gate::gate::Definition::of(sends), definition);
        let class = |tool: &Tool| gate.policies().class(tool);
        assert_eq!(class(sends), class(&tools[0]));
        assert!(
            found("classes = ['read_only']")
                .iter()
                .all(|tool| tool.id.server() == "shop")
        );
    }

    #[test]
    fn what_fits_no_tool_is_named_with_its_place() {
        let profile = profile(
            "servers = ['mail', 'mial']\ntools = ['*']\nexclude = ['*wipe*']\npins = ['mail/send', 'shop/order']",
        );
        let tools = searched("tools = ['*']").tools();
        let problems = profile.mistakes(&tools, &Policies::default());
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems[0].starts_with("profiles.team.servers has \"mial\""),
            "{problems:?}"
        );
        assert!(
            problems[1].starts_with("profiles.team.exclude has \"*wipe*\""),
            "{problems:?}"
        );
        assert!(
            problems[2].starts_with(
                "profiles.team.pins has \"shop/order\", which the rest of the profile leaves out"
            ),
            "{problems:?}"
        );
    }
}
