//! Which texts are held until a person has read them: those that clearly speak of another server's tool. A
//! definition may have made the model write them, so that its tool is found instead of that one.

use std::sync::Arc;

use serde::Serialize;
use toolscout_index::embed::{Encoder, MultilingualTable, StaticTable};
use toolscout_index::language::Language;
use toolscout_index::{
    CountedTexts, Embedder, Languages, Parts, Query, Result, Searcher, Tool, ToolId, views,
};

/// Hits that a text is compared with.
const HITS: usize = 20;
/// Tools of other servers that the encoder compares.
const SUSPECTS: usize = 3;
/// From this cosine on, by the table of English words, a text is near enough to its own tool.
const OWN_COSINE: f32 = 0.45;
// By these margins, BENCHMARKS.md says how many honest texts are held, and how many written for other tools.
/// By how much another server's tool has to be nearer than the own one, by the table of English words.
const TABLE_MARGIN: f32 = 0.12;
/// By the encoder too.
const ENCODER_MARGIN: f32 = 0.2;
/// By the table of languages, for all that is not English.
const LANGUAGES_MARGIN: f32 = 0.26;
/// Whether texts that speak of another server's tool are held.
#[derive(Clone, Copy)]
pub enum Review<'a> {
    /// Yes. The tools are those of this snapshot.
    Pending(&'a Searcher),
    /// A person has read the texts.
    Done,
    /// The texts become no texts of tools.
    Unneeded,
}

/// A text that is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The tool that it was written for.
    pub id: ToolId,
    /// The text.
    pub text: String,
    /// The other server's tool.
    pub speaks_of: ToolId,
    /// The name of the model that wrote it.
    pub model: String,
}

impl Held {
    /// Why it is not stored.
    pub fn reason(&self) -> String {
        format!("{:?} is held: speaks of {}", self.text, self.speaks_of)
    }
}

impl<'a> Review<'a> {
    /// Pending, unless a person has read the texts.
    pub fn of(is_done: bool, searcher: &'a Searcher) -> Self {
        match is_done {
            true => Review::Done,
            false => Review::Pending(searcher),
        }
    }

    /// The other server's tool that a text clearly speaks of; `None` once a person has read it, and for a text that the
    /// tool has already.
    ///
    /// # Errors
    /// Errors of the search and of the embedders that the program carries.
    pub fn speaks_of(self, tool: &Tool, text: &str) -> Result<Option<ToolId>> {
        let Review::Pending(searcher) = self else {
            return Ok(None);
        };
        if let Some(stored) = searcher.enrichment(&tool.id)
            && stored.texts().iter().any(|one| one == text)
        {
            return Ok(None);
        }
        let [whole, ..] = views(tool);
        if Languages::English.include(Language::of(text), Language::of(&whole)) {
            english(searcher, tool, text)
        } else {
            let table: Arc<dyn Embedder> = MultilingualTable::bundled()?;
            let nearness = Nearness::of(table, text)?;
            let own = nearness.to(tool)?;
            let suspects = nearness.suspects(searcher, tool, own + LANGUAGES_MARGIN)?;
            Ok(suspects.into_iter().next().map(|tool| tool.id.clone()))
        }
    }
}

/// The table finds who is suspect, in microseconds. The encoder, which takes milliseconds, decides.
fn english(searcher: &Searcher, tool: &Tool, text: &str) -> Result<Option<ToolId>> {
    let nearness = Nearness::of(StaticTable::bundled()?, text)?;
    let own = nearness.to(tool)?;
    if own >= OWN_COSINE {
        return Ok(None);
    }
    let suspects = nearness.suspects(searcher, tool, own + TABLE_MARGIN)?;
    if suspects.is_empty() {
        return Ok(None);
    }
    let nearness = Nearness::of(Encoder::bundled()?, text)?;
    let mut nearest = (nearness.to(tool)? + ENCODER_MARGIN, None);
    for suspect in suspects {
        let cosine = nearness.to(&suspect)?;
        if cosine > nearest.0 {
            nearest = (cosine, Some(suspect.id.clone()));
        }
    }
    Ok(nearest.1)
}

/// How near a text is to tools, by one embedder.
struct Nearness<'a> {
    embedder: Arc<dyn Embedder>,
    text: &'a str,
    vector: Vec<f32>,
}

impl<'a> Nearness<'a> {
    fn of(embedder: Arc<dyn Embedder>, text: &'a str) -> Result<Self> {
        let vector = embedder.embed_queries(&[text])?.concat();
        Ok(Nearness {
            embedder,
            text,
            vector,
        })
    }

    /// The cosine of a tool's nearest view.
    fn to(&self, tool: &Tool) -> Result<f32> {
        let texts = views(tool);
        let views = self.embedder.views().iter();
        let texts: Vec<&str> = views.map(|&view| texts[view as usize].as_str()).collect();
        let vectors = self.embedder.embed_tools(&texts)?;
        let mut nearest: f32 = -1.0;
        for vector in &vectors {
            // The vectors have length 1, so this is the cosine.
            let products = vector.iter().zip(&self.vector).map(|(a, b)| a * b);
            nearest = nearest.max(products.sum());
        }
        Ok(nearest)
    }

    /// The nearest tools of other servers that a search finds and that are nearer than this.
    fn suspects(&self, searcher: &Searcher, own: &Tool, cosine: f32) -> Result<Vec<Arc<Tool>>> {
        let parts = Parts {
            slow_embedders: false,
            clauses: false,
            ranker: false,
            texts: CountedTexts::None,
            ..Parts::ALL
        };
        let query = Query::new(self.text).k(HITS).parts(parts);
        // A weak hit may still be nearer than the own tool.
        let query = query.min_score(0.0).min_confidence(0.0);
        let mut suspects = Vec::new();
        for hit in searcher.search(&query)?.hits {
            if hit.id.server() != own.id.server() {
                let tool = hit.tool.shared();
                suspects.push((self.to(&tool)?, tool));
            }
        }
        suspects.retain(|(near, _)| *near > cosine);
        suspects.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        suspects.truncate(SUSPECTS);
        Ok(suspects.into_iter().map(|(_, tool)| tool).collect())
    }
}
