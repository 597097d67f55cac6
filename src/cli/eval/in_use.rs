//! `toolscout eval --catalog NAME` and `--profile NAME`: measures a catalog as it is in use, or a profile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use toolscout_index::{Catalog, Mode, Searcher, Tool};

use super::super::Outcome;
use super::super::context::{Context, Legs};
use super::super::exit::UsageError;
use super::super::output::print_stderr;
use super::super::profiles;
use super::{Args, Bar, Measured};
use crate::config::EmbedderKind;
use crate::eval::baseline::Baseline;
use crate::eval::dataset::Load;
use crate::eval::{Arm, EvalSet, arms, evaluate_in_use};
use crate::finder::ToolSearch as _;
use crate::printable::counted;

/// Most tools outside of a profile that are named.
const MAX_NAMED: usize = 20;

/// What is measured: a catalog, or the part of it in a profile.
struct Measurable {
    name: String,
    searcher: Arc<Searcher>,
    tools: Vec<Tool>,
    /// The ids that a search has to be limited to; none if the searcher has no others.
    only: Arc<BTreeSet<String>>,
}

/// Uses the catalog of a profile.
pub(super) fn use_catalog_of(name: &str, context: &mut Context) -> Result<()> {
    let Some(catalog) = profiles::named(context, name)?.catalog() else {
        return Ok(());
    };
    if let Some(other) = context.globals.catalog()
        && other != catalog
    {
        let message =
            format!("profile {name:?} is of the catalog {catalog:?}; leave out --catalog {other}");
        return Err(UsageError(message).into());
    }
    context.use_catalog(&catalog);
    Ok(())
}

impl Args {
    /// Measures the catalog of --catalog with judged queries.
    pub(super) fn measure_in_use(&self, context: &Context) -> Result<Outcome> {
        self.refuse_what_builds_catalogs()?;
        let file = self.query_file()?;
        let baseline = self.baseline.as_deref().map(Baseline::read).transpose()?;
        let arms = self.arms_in_use(context)?;
        // Words alone need no model.
        let mut modes = arms.iter().map(Arm::effective_mode);
        let legs = if modes.all(|mode| mode == Mode::Lexical) {
            Legs::Lexical
        } else {
            Legs::All
        };
        let catalog = context.open(legs)?;
        context.warn_of_unknown_servers(&catalog.searcher(), &self.filter.server);
        let (measurable, set) = self.measurable(context, &catalog, &file)?;
        let Measurable { name, searcher, .. } = &measurable;
        let arms: Vec<Arm> = arms.into_iter().map(|arm| only(arm, &measurable)).collect();
        for line in set.left_out.lines() {
            print_stderr(format_args!("{name}: {line}"));
        }
        self.note_depths(&set);
        let set = match self.queries {
            Some(count) => set.sampled(count, self.seed),
            None => set,
        };
        let embedder = searcher.embedder_ids();
        let plan = self.plan_for(&self.plan_with(arms)?, &set);
        if let Some(baseline) = &baseline {
            self.check_baseline(baseline, std::slice::from_ref(&set), &plan, &embedder)?;
        }
        let progress = Bar::new();
        progress.begin(name);
        let mut evaluation = evaluate_in_use(set, &plan, searcher, embedder, &progress)
            .with_context(|| self.measured_name(name))?;
        let queries = evaluation.set.queries.iter();
        let queries = queries.map(|query| query.text.as_str());
        // Figures on queries that the catalog was tuned to are in-sample, and the report says so.
        evaluation.report.tuned_on = searcher.settings().tuned_on.include(queries);
        progress.bar.finish_and_clear();
        let failure = evaluation.report.unfinished.clone();
        let measured = Measured {
            evaluations: vec![evaluation],
            failure: failure
                .map(|reason| anyhow::anyhow!("{}: {reason}", self.measured_name(name))),
        };
        self.finish(context, measured, baseline.as_ref(), None)
    }

    fn measured_name(&self, name: &str) -> String {
        match self.profile {
            Some(_) => format!("profile {name}"),
            None => format!("catalog {name}"),
        }
    }

    /// What is measured, and the judged queries of this file.
    fn measurable(
        &self,
        context: &Context,
        catalog: &Catalog,
        file: &Path,
    ) -> Result<(Measurable, EvalSet)> {
        let searcher = catalog.searcher();
        let name = &context.settings.catalog;
        let tools: Vec<Tool> = searcher.tools().map(|tool| Tool::clone(&tool)).collect();
        let of_catalog = |load: &Load<'_>| {
            let tools = tools.clone();
            EvalSet::over_catalog(name, tools, Some(file), Vec::new(), load)
                .with_context(|| format!("catalog {name}"))
        };
        let whole = of_catalog(&self.load())?;
        let Some(profile) = &self.profile else {
            let measurable = Measurable {
                name: name.clone(),
                searcher,
                tools,
                only: Arc::default(),
            };
            return Ok((measurable, whole));
        };
        let search = profiles::search_of(catalog, &profiles::named(context, profile)?);
        let tools = search.tools();
        let tools: Vec<Tool> = tools.iter().map(|tool| Tool::clone(tool)).collect();
        // With texts of its own, a profile is an index of its own.
        let measurable = match search.searcher() {
            Some(edited) => Measurable {
                name: profile.clone(),
                searcher: edited,
                tools,
                only: Arc::default(),
            },
            None => Measurable {
                name: profile.clone(),
                searcher,
                tools,
                only: search.item_ids(),
            },
        };
        print_outside(profile, &whole, &measurable.tools);
        // What the catalog does not have at all was an error above.
        let load = Load {
            skip_unknown: true,
            ..self.load()
        };
        let tools = measurable.tools.clone();
        let set = EvalSet::over_catalog(profile, tools, Some(file), Vec::new(), &load)
            .with_context(|| format!("profile {profile}"))?;
        Ok((measurable, set))
    }

    /// The file of the judged queries: the one named, or that of a set's folder.
    fn query_file(&self) -> Result<PathBuf> {
        let named: Vec<&PathBuf> = self.requests.iter().chain(&self.sets).collect();
        let [path] = named.as_slice() else {
            let message = "eval --catalog and eval --profile measure with one file of judged queries; name it, or the folder of a set";
            return Err(UsageError(message.to_owned()).into());
        };
        Ok(if path.is_dir() {
            path.join("queries.jsonl")
        } else {
            (*path).clone()
        })
    }

    /// The arm that searches as the catalog is set, or those of the flags with all else as set.
    fn arms_in_use(&self, context: &Context) -> Result<Vec<Arm>> {
        let mut options = context.settings.search;
        options.min_confidence = self.min_confidence.or(options.min_confidence);
        if context.settings.embedder == EmbedderKind::None {
            // The user chose words alone, so the answers are not degraded.
            options.mode = Some(Mode::Lexical);
        }
        let arms = if self.arms.is_empty() && self.mode.is_none() {
            vec![Arm::as_set(arms::IN_USE)]
        } else {
            self.named_arms(context.settings.embedder != EmbedderKind::None)?
        };
        let limits = self.limits(options);
        Ok(arms.into_iter().map(|arm| arm.within(&limits)).collect())
    }

    /// Flags that ask for another catalog than the one in use.
    fn refuse_what_builds_catalogs(&self) -> Result<()> {
        let named = [
            ("--ablate", self.ablate),
            ("--ranker", self.ranker.is_some()),
            ("--table", self.table.is_some()),
            ("--features", self.features.is_some()),
            ("--texts", self.texts.is_some()),
            ("--scale", !self.scale.is_empty()),
            ("--compare", !self.compare.is_empty()),
            ("--agent", self.agent.agent),
        ];
        for (flag, is_given) in named {
            if is_given {
                let message = format!(
                    "{flag} needs a catalog of its own, and --catalog and --profile measure one as it is; leave one of them out"
                );
                return Err(UsageError(message).into());
            }
        }
        Ok(())
    }
}

/// The arm within what is measured.
fn only(mut arm: Arm, measurable: &Measurable) -> Arm {
    arm.limits.filter.ids = Arc::clone(&measurable.only);
    arm
}

/// Says which judged tools are outside of a profile, whose clients cannot find them.
fn print_outside(profile: &str, judged: &EvalSet, tools: &[Tool]) {
    let inside: BTreeSet<&str> = tools.iter().map(|tool| tool.id.as_str()).collect();
    let mut outside = BTreeMap::<&str, usize>::new();
    for query in &judged.queries {
        for &tool in &query.judged {
            let id = judged.tools[tool as usize].id.as_str();
            if !inside.contains(id) {
                *outside.entry(id).or_default() += 1;
            }
        }
    }
    if outside.is_empty() {
        return;
    }
    let judgements: usize = outside.values().sum();
    let mut named: Vec<&str> = outside.keys().copied().take(MAX_NAMED).collect();
    let more = format!("{} more", outside.len() - named.len());
    if outside.len() > named.len() {
        named.push(&more);
    }
    print_stderr(format_args!(
        "{profile}: {} about {} outside of the profile: {}",
        counted(judgements, "judgement"),
        counted(outside.len(), "tool"),
        named.join(", ")
    ));
}
