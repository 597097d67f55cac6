//! The learned ranker and the confidence in an answer: small forests over features of candidates.
//!
//! The best 32 tools of the formula are candidates. A forest trained with LightGBM on public sets
//! gives each a score that is added to the formula's with a weight. Another forest estimates, from
//! the answer as a whole, the probability that one of its first five hits is right. There are
//! forests for each combination of legs, since the value of a feature depends on the other legs.
//!
//! The file is a line `toolscout-ranker VERSION CHECKSUM`, the checksum being BLAKE3 of all that
//! follows, and then JSON. `scripts/train_ranker.py` writes it; `assets/RANKER_CARD.md` describes
//! its training data and quality.

mod by_server;
pub mod features;
pub mod late_interaction;
mod problem;
pub mod refit;
mod seen;
pub mod word_places;
pub mod tool_texts;
pub mod trees;
pub mod verbs;
mod wording;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use crate::document::{Field, field_head};
use crate::error::{Error, Result};
use crate::files;
use crate::hit::{Match, Reason};
use crate::language::Language;
use crate::tool::Tool;
pub use features::{Candidates, DenseView, Feature, LegView, RankerInput, Signal};
use problem::RankerProblem;
pub use seen::SeenQueries;
pub use trees::Forest;
pub use word_places::ToolWords;

/// The name of a ranker file within a catalog's folder.
pub const FILE_NAME: &str = "ranker.json";

const MAGIC: &str = "toolscout-ranker";
const VERSION: u32 = 2;
/// Far more than any ranker has; limits how much of a wrong file is read.
const MAX_BYTES: u64 = 4 << 20;
/// Bytes that are read of each of a tool's texts. Two of 33,000 public tools have a longer
/// description; one of 4 MiB took half a second.
const MAX_OWN_TEXT_BYTES: usize = 4 << 10;
/// The same for all texts of its parameters together. No public tool has more.
const MAX_PARAMETERS_BYTES: usize = 8 << 10;
/// Features named in an explanation.
const REASONS: usize = 5;

static BUNDLED: &[u8] = include_bytes!("../assets/ranker.json");

/// A loaded ranker: a model for each combination of legs it was trained for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranker {
    features: Vec<String>,
    signals: Vec<String>,
    models: Vec<Model>,
    /// What it was trained on; empty where the file does not say.
    #[serde(default, skip_serializing_if = "SeenQueries::is_empty")]
    seen: SeenQueries,
}

/// The forests for one combination of legs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Names of the embedders beside the lexical leg, sorted.
    legs: Vec<String>,
    /// The weight of the ranker's score when it is added to the formula's; 0 where it does not
    /// improve it.
    mix: f32,
    trees: Forest,
    /// The logit of confidence.
    confidence: Forest,
    /// What confidence says of an answer, measured on sets left out; absent in a file of an earlier
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bounds: Option<BoundsByLanguage>,
}

/// The bounds for requests in English, and for others, which are translated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoundsByLanguage {
    english: MatchBounds,
    other: MatchBounds,
}

/// Where an answer stops to be possible, and where it starts to be good.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MatchBounds {
    /// A lower confidence means that probably no tool serves the request.
    none_below: f32,
    /// From this confidence on, a right tool is very likely among the first five hits.
    good_from: f32,
}

impl MatchBounds {
    fn are_ordered(&self) -> bool {
        0.0 <= self.none_below && self.none_below <= self.good_from && self.good_from <= 1.0
    }
}

impl Ranker {
    /// The ranker that is part of the crate, read once for the process in a few milliseconds.
    /// `None` if the crate was built with an unreadable file, which a test rules out.
    pub fn bundled() -> Option<Arc<Self>> {
        static RANKER: LazyLock<Option<Arc<Ranker>>> = LazyLock::new(|| {
            Ranker::read(BUNDLED, Path::new("of the program"))
                .ok()
                .map(Arc::new)
        });
        RANKER.clone()
    }

    /// Reads a ranker file.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Ranker`] naming what is wrong with it.
    pub fn load(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io("read", path, e))?;
        let size = metadata.len();
        if size > MAX_BYTES {
            let reason = format!("it has {size} bytes, no ranker has more than {MAX_BYTES}");
            return Err(failed(path, reason));
        }
        let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, e))?;
        Ranker::read(&bytes, path)
    }

    /// Reads a ranker from the bytes of its file; `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Ranker`] if it is not a ranker, of another version, damaged, or of other features.
    pub fn read(bytes: &[u8], path: &Path) -> Result<Self> {
        Ranker::of_file(bytes).map_err(|problem| failed(path, problem.to_string()))
    }

    fn of_file(bytes: &[u8]) -> Result<Self, RankerProblem> {
        let body = checked_body(bytes)?;
        let ranker: Ranker = serde_json::from_slice(body)?;
        ranker.check()?;
        Ok(ranker)
    }

    /// Writes the ranker into a file; a crash leaves the old or the new one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: &Path) -> Result<()> {
        files::replace(path, &self.to_bytes(path)?)
    }

    /// The bytes of its file, which [`Ranker::read`] reads; `path` is for messages.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn to_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let body = serde_json::to_vec(self).map_err(|e| Error::io("write", path, e.into()))?;
        let mut bytes =
            format!("{MAGIC} {VERSION} {}\n", blake3::hash(&body).to_hex()).into_bytes();
        bytes.extend(body);
        Ok(bytes)
    }

    /// The queries that it was trained on.
    pub fn seen(&self) -> &SeenQueries {
        &self.seen
    }

    /// Notes that it was trained on these queries.
    pub fn add_seen<'a>(&mut self, queries: impl IntoIterator<Item = &'a str>) {
        self.seen.add(queries);
    }

    /// The model for these embedders beside the lexical leg, named by their ids.
    pub fn model<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Option<&Model> {
        let names = sorted_names(ids);
        self.models.iter().find(|model| model.legs == names)
    }

    /// The model for these embedders, or the one that stands in for it.
    pub fn model_or_stand_in<'a>(
        &self,
        ids: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<&Model> {
        match self.model(ids.clone()) {
            Some(model) => Some(model),
            None => self.stand_in(ids),
        }
    }

    /// The model for two embedders of which one is unknown to the ranker: that for the other one
    /// and one that it knows. Its order is better than the formula's (with multilingual-e5-small
    /// .403 to .433 on livemcpbench); its confidence is not calibrated for other cosines.
    fn stand_in<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Option<&Model> {
        let names = sorted_names(ids);
        let known = match names.as_slice() {
            // With both or none known, nothing says which one to go by.
            [one, other] if self.knows(one) != self.knows(other) => match self.knows(one) {
                true => *one,
                false => *other,
            },
            _ => return None,
        };
        let mut models = self.models.iter();
        models.find(|model| model.legs.len() == 2 && model.has_leg(known))
    }

    /// True if some model was trained with this embedder.
    fn knows(&self, name: &str) -> bool {
        self.models.iter().any(|model| model.has_leg(name))
    }

    /// As [`Ranker::model`], to be changed.
    pub fn model_mut<'a>(&mut self, ids: impl Iterator<Item = &'a str>) -> Option<&mut Model> {
        let names = sorted_names(ids);
        self.models.iter_mut().find(|model| model.legs == names)
    }

    fn check(&self) -> Result<(), RankerProblem> {
        let features = Feature::ALL.iter().copied().map(Feature::name);
        first_of("features", &self.features, features)?;
        let signals = Signal::ALL.iter().copied().map(Signal::name);
        first_of("signals", &self.signals, signals)?;
        for model in &self.models {
            if !(0.0..=1.0).contains(&model.mix) {
                return Err(RankerProblem::Mix(model.mix));
            }
            model.trees.check(self.features.len())?;
            model.confidence.check(self.signals.len())?;
            if let Some(BoundsByLanguage { english, other }) = model.bounds
                && !(english.are_ordered() && other.are_ordered())
            {
                return Err(RankerProblem::Bounds);
            }
        }
        Ok(())
    }
}

impl Model {
    fn has_leg(&self, name: &str) -> bool {
        self.legs.iter().any(|leg| leg == name)
    }

    /// The weight of the ranker's score beside the formula's.
    pub fn mix(&self) -> f32 {
        self.mix
    }

    /// The forest that ranks.
    pub fn trees(&self) -> &Forest {
        &self.trees
    }

    /// The same model with another forest and weight.
    pub fn adapted(&self, trees: Forest, mix: f32) -> Self {
        Model {
            trees,
            mix,
            ..self.clone()
        }
    }

    /// The ranker's score of each candidate.
    pub fn scores(&self, candidates: &Candidates) -> Vec<f64> {
        self.trees.predict(&candidates.rows, Feature::ALL.len())
    }

    /// The probability that one of the first five hits is right, from the signals of the answer.
    pub fn confidence(&self, signals: &[f32]) -> f32 {
        let predicted = self.confidence.predict(signals, Signal::ALL.len());
        let logit: f64 = predicted.iter().sum();
        (1.0 / (1.0 + (-logit).exp())) as f32
    }

    /// What this confidence says about an answer.
    pub fn matched(&self, confidence: f32, language: Language) -> Match {
        let Some(BoundsByLanguage { english, other }) = self.bounds else {
            return Match::Possible;
        };
        let bounds = match language {
            Language::English => english,
            _ => other,
        };
        if confidence >= bounds.good_from {
            Match::Good
        } else if confidence < bounds.none_below {
            Match::None
        } else {
            Match::Possible
        }
    }

    /// The features that moved the score of a row most, the strongest first.
    pub fn reasons(&self, row: &[f32]) -> Vec<Reason> {
        let moved = self.trees.moved(row);
        let mut reasons = Vec::with_capacity(Feature::ALL.len());
        for &feature in Feature::ALL {
            reasons.push(Reason {
                feature: feature.name(),
                value: row[feature as usize],
                moved: moved[feature as usize] as f32,
            });
        }
        // A stable sort: what moved the score equally stays in the order of features.
        reasons.sort_by(|a, b| b.moved.abs().total_cmp(&a.moved.abs()));
        reasons.truncate(REASONS);
        reasons.retain(|reason| reason.moved != 0.0);
        reasons
    }
}

/// The names of these embedders, in the order in which a model lists its own.
fn sorted_names<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names: Vec<&str> = ids.map(leg_name).collect();
    names.sort_unstable();
    names
}

/// An embedder's name: the part of its id before the hash of its weights.
pub(crate) fn leg_name(id: &str) -> &str {
    // Models are trained for a kind of embedder; the hash in an id changes with every build of it.
    id.split('/').next().unwrap_or(id)
}

/// The part of a field that the ranker reads.
fn head(tool: &Tool, field: Field) -> String {
    let max_bytes = match field {
        Field::ParameterNames
        | Field::ParameterDescriptions
        | Field::EnumValues
        | Field::ResultNames
        | Field::Examples => MAX_PARAMETERS_BYTES,
        Field::Name | Field::Server | Field::Title | Field::Description | Field::Tags => {
            MAX_OWN_TEXT_BYTES
        }
    };
    field_head(tool, field, max_bytes)
}

/// The JSON after the first line, if the line's version and checksum are right.
fn checked_body(bytes: &[u8]) -> Result<&[u8], RankerProblem> {
    // A first line is short, and a wrong file need not be searched to its end.
    let mut head = bytes.iter().take(256);
    let end = head.position(|&byte| byte == b'\n').unwrap_or(0);
    let (line, body) = bytes.split_at(end);
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    if words.next() != Some(MAGIC) {
        return Err(RankerProblem::NoRanker { bytes: bytes.len() });
    }
    let version = words.next().unwrap_or_default();
    if version != VERSION.to_string() {
        return Err(RankerProblem::Version(version.to_owned()));
    }
    // A file without a line feed has no magic and has failed above, so there is one to skip.
    let (body, expected) = (&body[1..], words.next().unwrap_or_default());
    let found = blake3::hash(body).to_hex();
    if found.as_str() != expected {
        // It comes from the file, so it may be short or hold any character.
        let expected = &expected[..expected.floor_char_boundary(8)];
        return Err(RankerProblem::Checksum {
            found: found[..8].to_owned(),
            expected: expected.to_owned(),
        });
    }
    Ok(body)
}

/// Checks that a ranker's columns are the first of this program's, as those of an earlier version
/// are. The order counts: a forest refers to its columns by number.
fn first_of<'a>(
    what: &'static str,
    found: &[String],
    expected: impl Iterator<Item = &'a str>,
) -> Result<(), RankerProblem> {
    let expected: Vec<&str> = expected.collect();
    if let Some(first) = expected.get(..found.len())
        && found == first
    {
        return Ok(());
    }
    let stranger = found.iter().find(|name| !expected.contains(&name.as_str()));
    let (found, known) = (found.len(), expected.len());
    Err(match stranger {
        Some(name) => RankerProblem::UnknownColumn {
            what,
            found,
            name: name.clone(),
            known,
        },
        None => RankerProblem::OtherOrder { what, found, known },
    })
}

fn failed(path: &Path, reason: String) -> Error {
    Error::Ranker {
        path: path.to_owned(),
        reason,
    }
}
