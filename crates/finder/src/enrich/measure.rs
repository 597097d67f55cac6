//! What texts are worth on a catalog. One text of each tool is kept aside, as if nobody had written it,
//! and searched for: with all other texts, and without any.

use std::sync::Arc;

use toolscout_index::language::Language;
use toolscout_index::{CountedTexts, Enrichment, Parts, Query, Searcher, Tool, ToolId};

use super::ids_with_texts;

/// Most tools that are measured; of more, evenly chosen ones.
const MAX_TOOLS: usize = 1_000;
/// Hits that count as found.
pub const FOUND_WITHIN: usize = 5;
/// Hits that are looked at to say how far away a tool is.
pub const DEPTH: usize = 50;
/// Tools that are named because their texts do not find them.
const MAX_WORST: usize = 10;

/// What a measurement found.
#[derive(Debug, Default)]
pub struct Measured {
    /// Tools with texts that were measured.
    pub tools: usize,
    /// Of these, those that are found with texts.
    pub with_texts: usize,
    /// Those that are found without.
    pub without_texts: usize,
    /// Those that are the first hit, with texts.
    pub first_with_texts: usize,
    /// Without.
    pub first_without_texts: usize,
    /// Those that are farthest from what people would say, with the farthest first.
    pub worst: Vec<Far>,
}

/// A tool that was not found.
#[derive(Debug)]
pub struct Far {
    /// The tool.
    pub id: ToolId,
    /// What was searched for.
    pub text: String,
    /// Its place among the hits, from 1; `None` beyond those that are looked at.
    pub place: Option<usize>,
    /// The first hit.
    pub first: Option<ToolId>,
}

/// Measures tools with texts, of these servers, or of all where none is named. `read` has the tools, and
/// `searcher_for` gives what answers a query. `step` is called after each tool with their number, and ends
/// the measurement early if it is false.
///
/// # Errors
/// Errors of the search.
pub fn measure<E: From<toolscout_index::Error>>(
    read: &Searcher,
    servers: &[String],
    searcher_for: impl Fn(&Query) -> Result<Arc<Searcher>, E>,
    mut step: impl FnMut(usize) -> bool,
) -> Result<Measured, E> {
    let mut measured = Measured::default();
    let tools = sample(read, servers);
    for (number, tool) in tools.iter().enumerate() {
        let Some(enrichment) = read.enrichment(&tool.id) else {
            continue;
        };
        let Some(text) = kept_aside(enrichment, number) else {
            continue;
        };
        let with = ask(&searcher_for, &tool.id, text, CountedTexts::without(text))?;
        let without = ask(&searcher_for, &tool.id, text, CountedTexts::None)?;
        measured.tools += 1;
        measured.with_texts += usize::from(with.is_found());
        measured.without_texts += usize::from(without.is_found());
        measured.first_with_texts += usize::from(with.place == Some(1));
        measured.first_without_texts += usize::from(without.place == Some(1));
        if !with.is_found() {
            measured.worst.push(with);
        }
        if !step(tools.len()) {
            break;
        }
    }
    let worst = &mut measured.worst;
    worst.sort_by_key(|far| std::cmp::Reverse(far.place.unwrap_or(usize::MAX)));
    worst.truncate(MAX_WORST);
    Ok(measured)
}

/// The text of a tool that is kept aside. Another one has to be in its language, since a request in one
/// language says little about texts in another one.
fn kept_aside(enrichment: &Enrichment, number: usize) -> Option<&str> {
    let texts = enrichment.texts();
    let languages: Vec<Language> = texts.iter().map(|text| Language::of(text)).collect();
    // From another place for each tool, so that not only first texts are measured.
    for step in 0..texts.len() {
        let place = (number + step) % texts.len();
        let same = languages.iter().filter(|&&one| one == languages[place]);
        if same.count() > 1 {
            return Some(&texts[place]);
        }
    }
    None
}

/// Tools with texts; of too many, evenly chosen ones.
fn sample(searcher: &Searcher, servers: &[String]) -> Vec<Arc<Tool>> {
    let ids: Vec<&ToolId> = ids_with_texts(searcher, servers).collect();
    let count = ids.len().min(MAX_TOOLS);
    let mut tools = Vec::with_capacity(count);
    for number in 0..count {
        tools.extend(searcher.tool(ids[number * ids.len() / count]));
    }
    tools
}

fn ask<E: From<toolscout_index::Error>>(
    searcher_for: impl Fn(&Query) -> Result<Arc<Searcher>, E>,
    id: &ToolId,
    text: &str,
    texts: CountedTexts,
) -> Result<Far, E> {
    let parts = Parts {
        texts,
        ..Parts::ALL
    };
    let query = Query::new(text).k(DEPTH).parts(parts);
    let hits = searcher_for(&query)?.search(&query)?.hits;
    let position = hits.iter().position(|hit| hit.id == *id);
    Ok(Far {
        id: id.clone(),
        text: text.to_owned(),
        place: position.map(|position| position + 1),
        first: hits.first().map(|hit| hit.id.clone()),
    })
}

impl Far {
    fn is_found(&self) -> bool {
        matches!(self.place, Some(place) if place <= FOUND_WITHIN)
    }
}
