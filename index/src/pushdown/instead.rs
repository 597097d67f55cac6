//! A snapshot with other definitions in place of a catalog's: some of its items, changed for those who
//! search them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rayon::prelude::*;

use super::VectorsByText;
use crate::dense::TextHash;
use crate::document;
use crate::embed::Embedder;
use crate::error::{Error, Result};
use crate::lexical::{
    Analysis, CatalogStatistics, Entry, Frequencies, LexicalIndex, LexicalSearcher,
};
use crate::search::{DenseLeg, Row, Rows, Searcher, ToolLanguages, Words, words};
use crate::snapshot;
use crate::tool::Tool;
use crate::tools_db::{StoredEnrichment, StoredTool, text_hash};

impl Searcher {
    /// A searcher of these items alone, with the settings, embedders, ranker, usage memory, owner's words
    /// and written texts of this one. Items come with what the owner says of them; of several with one id
    /// the first counts.
    ///
    /// - Cost: all items are analysed and embedded by instant embedders, as in a commit of so many tools. Slow
    ///   embedders embed only texts of definitions that this one does not have; all else keeps its vectors.
    /// - Failure: if a slow embedder fails, its leg lacks these texts, and searches say so.
    ///
    /// # Errors
    /// [`Error::InvalidTool`], [`Error::Derived`], and [`Error::Embedder`] of an instant embedder.
    pub fn with_items(&self, mut items: Vec<Arc<Tool>>) -> Result<Searcher> {
        items.sort_by(|one, other| one.id.cmp(&other.id));
        items.dedup_by(|one, other| one.id == other.id);
        let weights = &self.settings.lexical.weights;
        let read = items.par_iter().enumerate();
        let read = read.map(|(place, item)| {
            let row = self.row_of(place, item)?;
            Ok((row, Analysis::of(item, weights)))
        });
        let read: Result<Vec<(Arc<Row>, Analysis)>> = read.collect();
        let (rows, analyses): (Vec<_>, Vec<_>) = read?.into_iter().unzip();

        let frequencies = Frequencies::new(weights);
        let entries = rows.iter().zip(&analyses);
        let entries =
            entries.map(|(row, analysis)| Entry::new(row.stored.key, analysis, &frequencies));
        let ordinals = words::ordinals(rows.len(), rows.iter());
        let settings = &self.settings.lexical;
        let index = LexicalIndex::of_entries(entries)?;
        let lexical = index.searcher_within(&ordinals, settings, None)?;

        let with_texts = rows.iter().filter(|row| row.stored.enrichment.is_some());
        let without_texts = 1.0 - with_texts.count() as f32 / rows.len().max(1) as f32;
        let (mut legs, in_order) = (Vec::new(), Rows::from(rows.clone()));
        for leg in &self.legs {
            let vectors = match leg.embedder.is_instant() {
                true => HashMap::new(),
                false => self.vectors_for(leg, &rows),
            };
            let embedder = &leg.embedder;
            legs.push(snapshot::leg_of_part(
                embedder,
                &in_order,
                &vectors,
                without_texts,
            )?);
        }
        let none = Arc::new(CatalogStatistics::default());
        let placeholder = LexicalSearcher::without_tools(settings, Arc::clone(&none));
        let searcher = self.over(rows, legs, placeholder, &none);
        Ok(Searcher {
            // These are all items, so what is known of them is known of the whole.
            words: Words::new(lexical),
            languages: Arc::new(ToolLanguages::of(&in_order)),
            ..searcher
        })
    }

    fn row_of(&self, place: usize, item: &Arc<Tool>) -> Result<Arc<Row>> {
        let json = serde_json::to_string(&**item)
            .map_err(|e| Error::invalid_tool(item.id.to_string(), e.to_string()))?;
        let key = place as u64 + 1;
        let enrichment = self.enrichment(&item.id).cloned();
        let enrichment = enrichment.map(|one| Box::new(StoredEnrichment::new(key, one)));
        let stored = StoredTool {
            enrichment,
            owner_texts: item.owner_texts.clone(),
            ..StoredTool::new(key, item, json)
        };
        Ok(Arc::new(Row::of_tool(stored, Arc::clone(item))))
    }

    /// The vectors of the texts of these rows: those of this searcher, and new ones of definitions that it
    /// does not have.
    fn vectors_for(&self, leg: &DenseLeg, rows: &[Arc<Row>]) -> VectorsByText {
        let views = leg.embedder.views();
        let mut wanted: HashSet<TextHash> = HashSet::new();
        for row in rows {
            wanted.extend(row.stored.embedded_texts(views));
        }
        let mut vectors = VectorsByText::new();
        let present = leg.vectors.get();
        for (at, hash) in present.hashes().enumerate() {
            if wanted.contains(hash) && !vectors.contains_key(hash) {
                vectors.insert(*hash, present.decoded(at));
            }
        }
        let missing = self.new_texts(leg.embedder.as_ref(), rows, &vectors);
        for batch in missing.chunks(leg.embedder.batch().max(1)) {
            let texts: Vec<&str> = batch.iter().map(String::as_str).collect();
            // What is missing then counts as pending, as it does in a catalog.
            let Ok(embedded) = leg.embedder.embed_tools(&texts) else {
                break;
            };
            for (text, vector) in batch.iter().zip(embedded) {
                vectors.insert(text_hash(text), vector);
            }
        }
        vectors
    }

    /// The texts without a vector, of definitions that this searcher does not have. Other texts that lack
    /// one wait for their catalog to embed them.
    fn new_texts(
        &self,
        embedder: &dyn Embedder,
        rows: &[Arc<Row>],
        known: &VectorsByText,
    ) -> Vec<String> {
        let mut texts = Vec::new();
        for row in rows {
            let own = self.rows.position(&row.stored.id).map(|at| &self.rows[at]);
            if own.is_some_and(|own| own.stored.texts == row.stored.texts) {
                continue;
            }
            let Some(item) = row.tool() else { continue };
            let of_views = document::views(&item);
            for &view in embedder.views() {
                let text = &of_views[view as usize];
                if !known.contains_key(&text_hash(text)) && !texts.contains(text) {
                    texts.push(text.clone());
                }
            }
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::DataDir;
    use crate::embed::Hashing;
    use crate::owner_words::OwnerWords;
    use crate::query::Query;
    use crate::settings::Options;
    use crate::tool::OwnerTexts;

    #[test]
    fn items_are_found_by_their_other_texts_and_no_others_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(vec![Arc::new(Hashing::new(64))]);
        let catalog = DataDir::new(folder.path()).open_or_create("c", options);
        let catalog = catalog.unwrap();
        let tool = |server: &str, name: &str, text: &str| {
            Tool::new(server, name).unwrap().with_description(text)
        };
        let tools = [
            tool("crm", "create", "Creates an issue"),
            tool("crm", "list", "Lists issues"),
            tool("mail", "send", "Sends a mail about a refund"),
        ];
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&tools).unwrap();
        let words = serde_json::json!({ "aliases": { "crm/list": ["backlog"] } });
        let words = OwnerWords::read(words.to_string().as_bytes()).unwrap();
        writer.set_owner_words(&words).unwrap();
        writer.commit().unwrap();
        writer
            .embed_pending(&mut |_| std::ops::ControlFlow::Continue(()))
            .unwrap();
        let base = catalog.searcher();

        let mut items: Vec<Arc<Tool>> = base.tools().filter(|t| t.id.server() == "crm").collect();
        let edited = Arc::make_mut(&mut items[0]);
        let text = "Refunds what a customer has paid".to_owned();
        edited.owner_texts = OwnerTexts::new(Some(text.clone()), Vec::new());
        let searcher = base.with_items(items).unwrap();
        assert_eq!(searcher.len(), 2);
        assert_eq!(searcher.pending_embeddings(), 0);
        let first = |query: &str| {
            let results = searcher.search(&Query::new(query)).unwrap();
            results.hits.first().map(|hit| hit.id.to_string())
        };
        assert_eq!(first("refund a customer").as_deref(), Some("crm/create"));
        assert_eq!(first("backlog").as_deref(), Some("crm/list"));
        let found = searcher.tool(&tools[0].id).unwrap();
        assert_eq!(found.shown_description(), text);
        assert!(searcher.tool(&tools[2].id).is_none());
        // The catalog itself stays as it is.
        let of_base = base.search(&Query::new("refund")).unwrap();
        assert_eq!(of_base.hits[0].id.as_str(), "mail/send");
    }
}
