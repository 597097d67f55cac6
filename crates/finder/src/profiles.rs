//! Profiles of the settings: a part of a catalog that is all a client can see, find and call, with what the
//! owner changes of its tools.

mod edits;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use toolscout_index::suggest::did_you_mean;
use toolscout_index::{Tool, ToolId};

use toolscout_base::config::{ProfileClass, ProfileDetail, ProfileSettings};
use toolscout_base::known_secrets;
use toolscout_base::tool_edit::{ToolEdit, schema};
use toolscout_gate::gate::pattern::Folded;
use toolscout_gate::gate::{Class, Pattern, Policies, redact};
use toolscout_gate::usage::Place;

pub use search::ProfiledSearch;

/// A part of a catalog, with what its owner changes of the tools.
///
/// What lets tools in has to match letter by letter; `exclude` keeps out names that look the same
/// too. Clones share their rules: if another version of the profile comes into use, all of them follow.
#[derive(Clone, Debug)]
pub struct ToolProfile {
    name: String,
    rules: Arc<RwLock<Arc<Rules>>>,
    /// Whether it has no tools but those that only read, whatever its rules say.
    only_reads: bool,
    /// Patterns of ids, one of which a tool has to fit besides.
    within: Option<Vec<Pattern>>,
}

/// What the settings of a profile say.
#[derive(Debug)]
struct Rules {
    settings: ProfileSettings,
    servers: Option<Vec<Pattern>>,
    tags: Option<Vec<Pattern>>,
    tools: Option<Vec<Pattern>>,
    exclude: Vec<Pattern>,
    classes: Option<BTreeSet<Class>>,
    /// By the ids of tools.
    edits: BTreeMap<String, Arc<ToolEdit>>,
    /// Differs from that of all other rules of this process.
    revision: u64,
}

impl Rules {
    fn of(settings: &ProfileSettings) -> Self {
        static REVISIONS: AtomicU64 = AtomicU64::new(0);
        let mut edits = BTreeMap::new();
        let tools = settings.tools.as_ref();
        for (id, edit) in tools.map(|tools| &tools.edits).into_iter().flatten() {
            for secret in edit.secrets(&redact::names_secret) {
                // A server may repeat it in an answer.
                known_secrets::add(secret);
            }
            edits.insert(id.clone(), Arc::new(edit.clone()));
        }
        Rules {
            servers: settings.servers.as_deref().map(patterns),
            tags: settings.tags.as_deref().map(patterns),
            tools: tools.map(|tools| patterns(&tools.patterns)),
            exclude: patterns(settings.exclude.as_deref().unwrap_or_default()),
            classes: settings.classes.as_deref().map(classes_of),
            edits,
            settings: settings.clone(),
            revision: REVISIONS.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl ToolProfile {
    /// The profile that these settings describe.
    pub fn new(name: &str, settings: &ProfileSettings) -> Self {
        ToolProfile {
            name: name.to_owned(),
            rules: Arc::new(RwLock::new(Arc::new(Rules::of(settings)))),
            only_reads: false,
            within: None,
        }
    }

    /// A profile with all tools, to be narrowed.
    pub fn of_everything() -> Self {
        ToolProfile::new("", &ProfileSettings::default())
    }

    /// Takes these settings into use, for all clones. Its catalog stays the one it began with.
    pub fn replace(&self, settings: &ProfileSettings) {
        *self.rules.write() = Arc::new(Rules::of(settings));
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// Changes whenever other settings come into use.
    pub fn revision(&self) -> u64 {
        self.rules.read().revision
    }

    /// The settings in use.
    pub fn settings(&self) -> ProfileSettings {
        self.rules().settings.clone()
    }

    /// The part of it that only reads.
    pub fn reading(mut self) -> Self {
        self.only_reads = true;
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
    pub fn catalog(&self) -> Option<String> {
        self.rules().settings.catalog.clone()
    }

    /// Through what its tools are used, for the record of use.
    pub fn place(&self) -> Place {
        Place {
            catalog: self.catalog(),
            // One without a name is not of the settings.
            profile: (!self.name.is_empty()).then(|| self.name.clone()),
        }
    }

    /// The ids of the tools that are always in the list of a client: those of the profile, and of these
    /// others the ones that it does not take out.
    pub fn pins(&self, others: impl IntoIterator<Item = String>) -> Vec<String> {
        let rules = self.rules();
        let setting = |id: &str| rules.edits.get(id).and_then(|edit| edit.pin);
        let mut pins = rules.settings.pins.clone();
        for id in rules.edits.keys() {
            if setting(id) == Some(true) {
                pins.push(id.clone());
            }
        }
        pins.extend(others.into_iter().filter(|id| setting(id) != Some(false)));
        pins
    }

    /// How much of each found tool is shown, if it says so.
    pub fn detail(&self) -> Option<ProfileDetail> {
        self.rules.read().settings.detail
    }

    /// Most hits of a search that names no limit, if it says so.
    pub fn limit(&self) -> Option<usize> {
        self.rules.read().settings.limit
    }

    /// The classes of tools that may be called; `None` for all.
    pub fn classes(&self) -> Option<BTreeSet<Class>> {
        let mut classes = self.rules().classes.clone();
        if self.only_reads {
            // None may be left, and then no tool is in the profile.
            match &mut classes {
                Some(classes) => classes.retain(|class| *class == Class::ReadOnly),
                None => classes = Some(BTreeSet::from([Class::ReadOnly])),
            }
        }
        classes
    }

    /// Whether a tool of this class is in it.
    pub fn has(&self, tool: &Tool, class: Class) -> bool {
        let rules = self.rules();
        if self.only_reads && class != Class::ReadOnly {
            return false;
        }
        if let Some(classes) = &rules.classes
            && !classes.contains(&class)
        {
            return false;
        }
        if let Some(tags) = &rules.tags
            && !tool.tags.iter().any(|tag| any_matches(tags, tag))
        {
            return false;
        }
        self.has_id(&rules, &tool.id)
    }

    /// Whether it names a tool by its id, so that tools of no catalog are in it too.
    pub fn names(&self, tool: &Tool, class: Class) -> bool {
        self.rules().tools.is_some() && self.has(tool, class)
    }

    /// Whether a tool of which nothing but the id is known is certainly in it.
    pub fn certainly_has(&self, id: &ToolId) -> bool {
        let rules = self.rules();
        let needs_more = rules.tags.is_some() || rules.classes.is_some() || self.only_reads;
        !needs_more && self.has_id(&rules, id)
    }

    /// Whether its clients may know of this server, whose tools are not known.
    pub fn may_have_server(&self, server: &str) -> bool {
        let rules = self.rules();
        match &rules.servers {
            Some(patterns) => any_matches(patterns, server),
            None => rules.tools.is_none() && self.within.is_none(),
        }
    }

    fn has_id(&self, rules: &Rules, id: &ToolId) -> bool {
        fits(&rules.servers, id.server())
            && fits(&rules.tools, id.as_str())
            && fits(&self.within, id.as_str())
            && !rules.excludes(id)
    }

    /// What it names that these tools do not have, or not in the profile, each with the place and the
    /// next step.
    pub fn mistakes(&self, tools: &[Arc<Tool>], policies: &Policies) -> Vec<String> {
        let rules = self.rules();
        let mut open = self.named(&rules);
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
            if rules.settings.pins.iter().any(|pin| pin == id)
                && !self.has(tool, policies.class(tool))
            {
                mistakes.push(format!(
                    "profiles.{}.pins has {id:?}, which the rest of the profile leaves out, so it is not shown; \
                     correct either of them in the settings",
                    self.name
                ));
            }
            if let Some(edit) = rules.edits.get(id) {
                mistakes.extend(self.unknown_arguments(edit, tool));
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

    fn unknown_arguments(&self, edit: &ToolEdit, tool: &Tool) -> Vec<String> {
        let known = schema::properties(&tool.input_schema);
        let mut mistakes = Vec::new();
        for argument in edit.arguments.keys().chain(edit.defaults.keys()) {
            if known.contains(argument.as_str()) {
                continue;
            }
            let hint = match did_you_mean(argument, known.iter().copied()) {
                Some(similar) => format!("; {similar}"),
                None => String::new(),
            };
            mistakes.push(format!(
                "profiles.{}.tools.{:?} sets the argument {argument:?}, which the tool does not have{hint}",
                self.name,
                tool.id.as_str()
            ));
        }
        mistakes
    }

    fn named(&self, rules: &Rules) -> Vec<Named> {
        let lists = [
            ("servers", rules.servers.clone().unwrap_or_default()),
            ("tags", rules.tags.clone().unwrap_or_default()),
            ("tools", rules.tools.clone().unwrap_or_default()),
            ("exclude", rules.exclude.clone()),
            ("pins", patterns(&rules.settings.pins)),
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

impl Rules {
    fn excludes(&self, id: &ToolId) -> bool {
        if self.edits.get(id.as_str()).is_some_and(|edit| edit.hide) {
            return true;
        }
        if self.exclude.is_empty() {
            return false;
        }
        // Folded once for all patterns, since this costs more than a comparison.
        let folded = Folded::of(id.as_str());
        let mut patterns = self.exclude.iter();
        patterns.any(|pattern| pattern.resembles(&folded))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finder::ToolSearch;
    use crate::finder::search::doubles::ListedTools;
    use crate::finder::search::{Found, SearchRequest};
    use toolscout_gate::gate::{Gate, Policies};
    use toolscout_index::Version;

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
