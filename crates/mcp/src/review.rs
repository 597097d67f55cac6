//! What a person decides about the tools of MCP servers: to accept a change, or to block a tool.
//!
//! A blocked tool leaves the catalog, and its server cannot bring it back. An accepted one is in the
//! catalog with the definition that was looked at, and later changes are compared with that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use toolscout_index::{Searcher, Tool, ToolId};
use utoipa::ToSchema;

use crate::inspect::{Finding, OtherTools, inspect};
use crate::tool_edits::{as_offered, edited_like, in_catalog};
use toolscout_base::clock::unix_ms;
use toolscout_gate::gate::audit::{self, Entry};
use toolscout_state::approved::{
    Approved, ApprovedError, ApprovedPlace, BlockedBy, ChangeKind, Record, Remembered, ToolChange,
    Update,
};

/// A decision about a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The tool is found and called as it is now.
    Accept,
    /// The tool is neither found nor called until it is accepted.
    Block,
}

/// What a person has decided.
#[derive(Clone, Debug, Default)]
pub struct Review {
    /// The tools and the decisions about them. The text is the version that was looked at, if the
    /// decision holds for that alone.
    pub verdicts: BTreeMap<ToolId, (Verdict, Option<String>)>,
    /// Servers of which every undecided change is accepted. Tools that are blocked by a person stay
    /// so.
    pub accept_all: BTreeSet<String>,
}

/// What came of a decision about one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ReviewedTool {
    /// The tool.
    pub id: ToolId,
    /// The decision.
    pub verdict: Verdict,
    /// What had become of it.
    pub kind: ChangeKind,
    /// The parts that had changed.
    pub parts: Vec<&'static str>,
}

impl ReviewedTool {
    /// The entry of the audit log.
    pub fn audited(&self, catalog: &str, who: &str) -> Entry {
        Entry::Reviewed {
            time_ms: audit::now_ms(),
            who: who.to_owned(),
            catalog: catalog.to_owned(),
            tool: self.id.to_string(),
            verdict: self.verdict.name().to_owned(),
            change: self.kind.name().to_owned(),
            parts: self.parts.iter().map(|part| (*part).to_owned()).collect(),
        }
    }
}

impl Verdict {
    /// The name in JSON and in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Accept => "accept",
            Verdict::Block => "block",
        }
    }
}

/// What a review changes in the catalog. It is stored already; the catalog follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reviewed {
    /// The tools that were decided on.
    pub tools: Vec<ReviewedTool>,
    /// Definitions to write to the catalog.
    pub upsert: Vec<Tool>,
    /// Tools to take out of the catalog.
    pub remove: Vec<ToolId>,
}

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// There is nothing to accept.
    #[error("{id} has no change to accept; the list of changes names those that have")]
    NoChange {
        /// The tool.
        id: ToolId,
    },
    /// The tool is not one that an MCP server offers.
    #[error(
        "{id} is no tool that an MCP server brought into this catalog, so it cannot be blocked; remove it instead"
    )]
    NotOfServer {
        /// The tool.
        id: ToolId,
    },
    /// The tool changed after it was looked at.
    #[error("{id} changed again after you looked at it; look at it again, and decide then")]
    ChangedAgain {
        /// The tool.
        id: ToolId,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] ApprovedError),
}

/// The definition of a change in the catalog, as its server sent it; `None` if the change itself has
/// the definition that a person decides on.
pub fn definition_in_catalog(
    searcher: &Searcher,
    id: &ToolId,
    change: &ToolChange,
) -> Option<Arc<Tool>> {
    // Looking for a renamed tool reads all tools of its server.
    if change.offered.is_some() || change.kind == ChangeKind::Removed {
        return None;
    }
    Some(as_offered(&in_catalog(searcher, id)?))
}

/// What is suspicious about the definition of a change that a person decides on.
pub fn findings_of(
    change: &ToolChange,
    in_catalog: Option<&Arc<Tool>>,
    names: &OtherTools,
) -> Vec<Finding> {
    match change.current(in_catalog) {
        Some(tool) => inspect(tool, names),
        None => Vec::new(),
    }
}

/// Stores a review, all of it or nothing. The caller brings the catalog up to it.
///
/// # Errors
/// [`ReviewError`].
pub fn decide(
    place: impl Into<ApprovedPlace>,
    searcher: &Searcher,
    review: &Review,
) -> Result<Reviewed, ReviewError> {
    let place = place.into();
    if Approved::open_existing(place.clone())?.is_some() {
        return store(place, searcher, review);
    }
    // Without a database no MCP server has brought anything.
    match review.verdicts.first_key_value() {
        None => Ok(Reviewed::default()),
        Some((id, (Verdict::Accept, _))) => Err(ReviewError::NoChange { id: id.clone() }),
        Some((id, (Verdict::Block, _))) => Err(ReviewError::NotOfServer { id: id.clone() }),
    }
}

fn store(
    place: ApprovedPlace,
    searcher: &Searcher,
    review: &Review,
) -> Result<Reviewed, ReviewError> {
    let mut verdicts = BTreeMap::new();
    for (id, verdict) in &review.verdicts {
        verdicts.insert(id_at_server(searcher, id), verdict.clone());
    }
    let of_verdicts = verdicts.keys().map(|id| id.server().to_owned());
    let servers: BTreeSet<String> = of_verdicts.chain(review.accept_all.clone()).collect();
    let mut reviewed = Reviewed::default();
    Approved::open(place)?.review(&servers, |server, remembered| {
        let mut judging = Judging {
            searcher,
            remembered,
            update: Update::default(),
            reviewed: &mut reviewed,
        };
        for (id, (verdict, version)) in &verdicts {
            if id.server() == server {
                judging.judge(id, *verdict, version.as_deref())?;
            }
        }
        if review.accept_all.contains(server) {
            judging.accept_the_rest(&verdicts)?;
        }
        Ok::<Update, ReviewError>(judging.update)
    })?;
    Ok(reviewed)
}

/// The id under which its server offers a tool that the owner has renamed.
fn id_at_server(searcher: &Searcher, id: &ToolId) -> ToolId {
    match searcher.tool(id) {
        Some(tool) => as_offered(&tool).id.clone(),
        None => id.clone(),
    }
}

/// The decisions about the tools of one server.
struct Judging<'a> {
    searcher: &'a Searcher,
    remembered: Remembered,
    update: Update,
    reviewed: &'a mut Reviewed,
}

impl Judging<'_> {
    fn judge(
        &mut self,
        id: &ToolId,
        verdict: Verdict,
        version: Option<&str>,
    ) -> Result<(), ReviewError> {
        let edited = in_catalog(self.searcher, id);
        let in_catalog = edited.as_ref().map(as_offered);
        let change = self.remembered.undecided.get(id).cloned();
        let change = match (change, verdict) {
            (Some(change), _) => change,
            (None, Verdict::Accept) => return Err(ReviewError::NoChange { id: id.clone() }),
            // A person may block any tool of a server, also one that never changed.
            (None, Verdict::Block) => self.unchanged(id, in_catalog.as_ref())?,
        };
        if let Some(version) = version
            && version != change.version(in_catalog.as_ref())
        {
            return Err(ReviewError::ChangedAgain { id: id.clone() });
        }
        self.reviewed.tools.push(ReviewedTool {
            id: id.clone(),
            verdict,
            kind: change.kind,
            parts: change.parts(),
        });
        match verdict {
            Verdict::Accept => self.accept(id, &change, edited.as_ref()),
            Verdict::Block => self.block(id, change, edited.as_ref()),
        }
        Ok(())
    }

    /// A tool that is as it was approved, as the change that blocking it begins with.
    fn unchanged(
        &self,
        id: &ToolId,
        in_catalog: Option<&Arc<Tool>>,
    ) -> Result<ToolChange, ReviewError> {
        let tool = match in_catalog {
            Some(tool) if self.remembered.records.contains_key(id) => tool,
            _ => return Err(ReviewError::NotOfServer { id: id.clone() }),
        };
        Ok(ToolChange {
            kind: ChangeKind::Changed,
            approved: Some(Arc::clone(tool)),
            offered: Some(Arc::clone(tool)),
            blocked_by: None,
            since_ms: unix_ms(SystemTime::now()),
        })
    }

    fn accept(&mut self, id: &ToolId, change: &ToolChange, in_catalog: Option<&Arc<Tool>>) {
        self.update.settled.insert(id.clone());
        let Some(offered) = &change.offered else {
            // The catalog has the definition already, and loses what was said against it.
            if let Some(tool) = in_catalog
                && !tool.flags().is_empty()
            {
                let accepted = Tool::clone(tool).with_flags([]);
                self.reviewed.upsert.push(accepted);
            }
            return;
        };
        // With the class that it declares: raising it was only for the time until now.
        let record = Record::of(offered);
        self.update.records.insert(id.clone(), record);
        let accepted = Tool::clone(offered).with_flags([]);
        self.reviewed
            .upsert
            .push(edited_like(&accepted, in_catalog));
    }

    fn block(&mut self, id: &ToolId, change: ToolChange, in_catalog: Option<&Arc<Tool>>) {
        let offered = match change.kind {
            ChangeKind::Removed => None,
            _ => change.offered.clone().or(in_catalog.map(as_offered)),
        };
        let id_in_catalog = in_catalog.map_or(id, |tool| &tool.id).clone();
        let blocked = ToolChange {
            offered,
            blocked_by: Some(BlockedBy::Person),
            ..change
        };
        self.update.undecided.insert(id.clone(), blocked);
        self.reviewed.remove.push(id_in_catalog);
    }

    fn accept_the_rest(
        &mut self,
        decided: &BTreeMap<ToolId, (Verdict, Option<String>)>,
    ) -> Result<(), ReviewError> {
        let mut rest = Vec::new();
        for (id, change) in &self.remembered.undecided {
            if change.blocked_by != Some(BlockedBy::Person) && !decided.contains_key(id) {
                rest.push(id.clone());
            }
        }
        for id in rest {
            self.judge(&id, Verdict::Accept, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolscout_index::{DataDir, Options};
    use toolscout_state::approved::Undecided;

    struct World {
        folder: tempfile::TempDir,
        searcher: Arc<Searcher>,
    }

    fn tool(name: &str, description: &str) -> Tool {
        Tool::new("s", name).unwrap().with_description(description)
    }

    fn id(name: &str) -> ToolId {
        ToolId::new("s", name).unwrap()
    }

    impl World {
        /// A catalog with `read`, whose description has changed, and `stays`, which has not.
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let catalog = DataDir::new(folder.path())
                .open_or_create("c", Options::default())
                .unwrap();
            let mut writer = catalog.writer().unwrap();
            let (read, stays) = (tool("read", "reads and sends"), tool("stays", ""));
            writer.upsert(&[read.clone(), stays.clone()]).unwrap();
            writer.commit().unwrap();
            let change = ToolChange {
                kind: ChangeKind::Changed,
                approved: Some(Arc::new(tool("read", "reads"))),
                offered: Some(Arc::new(read.clone())),
                blocked_by: None,
                since_ms: 1,
            };
            let update = Update {
                records: [&read, &stays]
                    .map(|tool| (tool.id.clone(), Record::of(tool)))
                    .into(),
                undecided: Undecided::from([(read.id, change)]),
                ..Update::default()
            };
            let mut approved = Approved::open(folder.path()).unwrap();
            approved.remember("s", &update, 0).unwrap();
            World {
                searcher: catalog.searcher(),
                folder,
            }
        }

        /// With `odd`, which is new in the catalog and has a flag.
        fn with_a_flagged_tool() -> Self {
            let mut world = World::new();
            let catalog = DataDir::new(world.folder.path())
                .open_or_create("c", Options::default())
                .unwrap();
            let mut writer = catalog.writer().unwrap();
            let odd = tool("odd", "").with_flags(["instructs the model".to_owned()]);
            writer.upsert(std::slice::from_ref(&odd)).unwrap();
            writer.commit().unwrap();
            let change = ToolChange {
                kind: ChangeKind::New,
                approved: None,
                offered: None,
                blocked_by: None,
                since_ms: 1,
            };
            let update = Update {
                records: [(odd.id.clone(), Record::of(&odd))].into(),
                undecided: Undecided::from([(odd.id, change)]),
                ..Update::default()
            };
            let mut approved = Approved::open(world.folder.path()).unwrap();
            approved.remember("s", &update, 0).unwrap();
            world.searcher = catalog.searcher();
            world
        }

        fn decide(&self, name: &str, verdict: Verdict) -> Result<Reviewed, ReviewError> {
            self.decide_on(name, verdict, None)
        }

        fn decide_on(
            &self,
            name: &str,
            verdict: Verdict,
            version: Option<&str>,
        ) -> Result<Reviewed, ReviewError> {
            let review = Review {
                verdicts: [(id(name), (verdict, version.map(str::to_owned)))].into(),
                ..Review::default()
            };
            decide(self.folder.path(), &self.searcher, &review)
        }

        fn undecided(&self) -> Undecided {
            Approved::peek(self.folder.path(), "s").unwrap().undecided
        }
    }

    #[test]
    fn an_accepted_change_is_the_approved_definition_from_then_on() {
        let world = World::new();
        let reviewed = world.decide("read", Verdict::Accept).unwrap();
        assert_eq!(reviewed.upsert, [tool("read", "reads and sends")]);
        assert_eq!(reviewed.tools[0].parts, ["description"]);
        assert_eq!(world.undecided(), Undecided::new());
        let again = world.decide("read", Verdict::Accept).unwrap_err();
        assert!(again.to_string().contains("no change to accept"), "{again}");
    }

    #[test]
    fn an_accepted_tool_loses_its_flags() {
        let world = World::with_a_flagged_tool();
        assert_eq!(world.searcher.tool(&id("odd")).unwrap().flags().len(), 1);
        let reviewed = world.decide("odd", Verdict::Accept).unwrap();
        assert_eq!(reviewed.upsert, [tool("odd", "")]);
        assert!(!world.undecided().contains_key(&id("odd")));
    }

    #[test]
    fn a_blocked_tool_leaves_the_catalog_and_comes_back_when_it_is_accepted() {
        let world = World::new();
        for name in ["read", "stays"] {
            assert_eq!(
                world.decide(name, Verdict::Block).unwrap().remove,
                [id(name)]
            );
            let blocked = &world.undecided()[&id(name)];
            assert_eq!(blocked.blocked_by, Some(BlockedBy::Person));
        }
        let all = Review {
            accept_all: ["s".to_owned()].into(),
            ..Review::default()
        };
        let nothing = decide(world.folder.path(), &world.searcher, &all).unwrap();
        assert_eq!(nothing, Reviewed::default());
        let back = world.decide("stays", Verdict::Accept).unwrap();
        assert_eq!(back.upsert, [tool("stays", "")]);
    }

    #[test]
    fn a_decision_about_what_is_no_longer_offered_is_refused_and_nothing_is_stored() {
        let world = World::new();
        let before = world.undecided();
        let version = before[&id("read")].version(None);
        let refused = world.decide_on("read", Verdict::Accept, Some("another"));
        assert!(matches!(refused, Err(ReviewError::ChangedAgain { .. })));
        assert_eq!(world.undecided(), before);
        assert!(
            world
                .decide_on("read", Verdict::Accept, Some(&version))
                .is_ok()
        );
    }

    #[test]
    fn a_tool_of_no_server_cannot_be_blocked() {
        let world = World::new();
        for folder in [world.folder.path(), tempfile::tempdir().unwrap().path()] {
            let review = Review {
                verdicts: [(id("other"), (Verdict::Block, None))].into(),
                ..Review::default()
            };
            let refused = decide(folder, &world.searcher, &review).unwrap_err();
            assert!(matches!(refused, ReviewError::NotOfServer { .. }));
        }
    }
}
