//! Writes a collection of Qdrant.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Map, Value, json};
use toolscout_index::LexicalSettings;
use toolscout_index::pushdown::STEPS_PER_WEIGHT;
use toolscout_index::text;

use super::query::{dimension, point};
use super::{Qdrant, WORDS};
use crate::client::Body;
use crate::engine::{Change, Engine, NewDocument, Physical, Sent, Writable};
use crate::failure::Failure;
use crate::layout::Own;

/// Points whose hashes are read by one request.
const PAGE: usize = 5000;
/// The length of a tool in weighted words by which a term counts as usual; it is nearly the mean of the tools of large
/// catalogs. A fixed one, so that a point does not depend on the others. Only the choice of candidates does: toolscout
/// scores them by the mean of the catalog.
const USUAL_LENGTH: f32 = 80.0;
/// Terms of a tool at most.
const MAX_TERMS_OF_TOOL: usize = 10_000;
/// Words of a name that its ends are made of, and the shortest end, as the engine looks for them.
const MAX_NAME_WORDS: usize = 24;
const MIN_END_WORDS: usize = 2;

#[async_trait]
impl Writable for Qdrant {
    fn schema(&self, own: &Own, _lexical: &LexicalSettings, identity: &str) -> Value {
        let mut vectors = Map::new();
        for embedder in &own.embedders {
            for field in &embedder.fields {
                // The vectors as they are lie on the disk, and those of bytes in memory.
                let vector =
                    json!({ "size": embedder.dimensions, "distance": "Cosine", "on_disk": true });
                vectors.insert(field.clone(), vector);
            }
        }
        json!({
            "vectors": vectors,
            "sparse_vectors": { WORDS: {} },
            "quantization_config": { "scalar": {
                "type": "int8", "quantile": 0.99, "always_ram": true,
            } },
            "on_disk_payload": true,
            "metadata": own.meta(identity, 0),
        })
    }

    async fn physical(&self, limit: Duration) -> Result<Vec<Physical>, Failure> {
        let answer = self.ask(Method::GET, "aliases", None, limit).await?;
        let aliases = answer["aliases"].as_array();
        let aliases = aliases.ok_or_else(|| Failure::answer("aliases").at(self.shown()))?;
        let is_ours = |alias: &&Value| alias["alias_name"] == *self.collection;
        let name = aliases.iter().find(is_ours);
        let name = name.and_then(|alias| alias["collection_name"].as_str());
        let name = name.unwrap_or(&self.collection);
        let Some(mut described) = self.described(name, limit).await? else {
            return Ok(Vec::new());
        };
        Ok(vec![Physical {
            name: name.to_owned(),
            meta: described["config"]["metadata"].take(),
        }])
    }

    async fn create(&self, name: &str, schema: Value, limit: Duration) -> Result<(), Failure> {
        let path = format!("collections/{name}");
        match self.ask(Method::PUT, &path, Some(schema), limit).await {
            Err(failure) if failure.reason.contains("already exists") => {}
            created => drop(created?),
        }
        let keyword = json!({ "type": "keyword" });
        // Asked for only if a catalog is too large to be counted here.
        let of_terms = json!({ "type": "keyword", "on_disk": true });
        let mut fields = vec![("terms", of_terms)];
        for field in [
            "id",
            "server",
            "tags",
            "kind",
            "name_key",
            "full_key",
            "name_ends",
        ] {
            fields.push((field, keyword.clone()));
        }
        for field in ["read_only", "destructive"] {
            fields.push((field, json!({ "type": "bool" })));
        }
        fields.push(("generation", json!({ "type": "integer" })));
        // Before there are points, so that the graphs are made for these filters.
        for (field, schema) in fields {
            let path = format!("collections/{name}/index?wait=true");
            let body = json!({ "field_name": field, "field_schema": schema });
            self.ask(Method::PUT, &path, Some(body), limit).await?;
        }
        Ok(())
    }

    async fn hashes(
        &self,
        name: &str,
        _own: &Own,
        limit: Duration,
    ) -> Result<HashMap<String, String>, Failure> {
        let path = format!("collections/{name}/points/scroll");
        let mut known = HashMap::new();
        let mut scroll = json!({ "limit": PAGE, "with_payload": ["id", "hash"] });
        loop {
            let asked = self.ask(Method::POST, &path, Some(scroll.clone()), limit);
            let mut page = asked.await?;
            let points = page["points"].as_array();
            let points = points.ok_or_else(|| Failure::answer("points").at(self.shown()))?;
            for point in points {
                let fields = &point["payload"];
                if let (Some(id), Some(hash)) = (fields["id"].as_str(), fields["hash"].as_str()) {
                    known.insert(id.to_owned(), hash.to_owned());
                }
            }
            let next = page["next_page_offset"].take();
            if next.is_null() {
                return Ok(known);
            }
            if next == scroll["offset"] {
                return Err(Failure::answer("next page").at(self.shown()));
            }
            scroll["offset"] = next;
        }
    }

    fn document(&self, new: &NewDocument<'_>) -> String {
        let mut fields = new.fields();
        fields["name_ends"] = json!(name_ends(new.tool.id.name()));
        fields["generation"] = new.generation.into();
        let terms = &new.footprint.analysis.terms;
        let terms: Vec<&String> = terms.keys().take(MAX_TERMS_OF_TOOL).collect();
        fields["terms"] = json!(terms);
        let mut vectors = Map::new();
        for (field, vector) in new.searched() {
            vectors.insert(field.to_owned(), json!(vector));
        }
        vectors.insert(WORDS.to_owned(), words(new));
        json!({ "id": point(new.tool.id.as_str()), "vector": vectors, "payload": fields })
            .to_string()
    }

    async fn send(
        &self,
        name: &str,
        generation: u64,
        changes: &[Change],
        limit: Duration,
    ) -> Result<Sent, Failure> {
        let (mut points, mut gone) = (Vec::new(), Vec::new());
        for change in changes {
            match &change.document {
                Some(document) => points.push(document.as_str()),
                None => gone.push(point(&change.id)),
            }
        }
        // What is of a newer generation stays as it is.
        let is_older = json!({ "key": "generation", "range": { "lte": generation } });
        if !points.is_empty() {
            let filter = json!({ "must": [is_older] });
            let points = points.join(",");
            let body = format!("{{\"points\":[{points}],\"update_filter\":{filter}}}");
            let path = format!("collections/{name}/points?wait=true");
            let body = Body::Text(body);
            self.client.ask(Method::PUT, &path, &body, limit).await?;
        }
        if !gone.is_empty() {
            let body = json!({ "filter": { "must": [{ "has_id": gone }, is_older] } });
            let path = format!("collections/{name}/points/delete?wait=true");
            self.ask(Method::POST, &path, Some(body), limit).await?;
        }
        // A request is carried out as a whole.
        Ok(Sent::default())
    }

    async fn complete(&self, name: &str, generation: u64, limit: Duration) -> Result<u64, Failure> {
        let is_newer = json!({ "key": "generation", "range": { "gt": generation } });
        let count = json!({ "filter": { "must": [is_newer] }, "exact": true });
        let path = format!("collections/{name}/points/count");
        let answer = self.ask(Method::POST, &path, Some(count), limit).await?;
        let count = answer["count"].as_u64();
        count.ok_or_else(|| Failure::answer("count").at(self.shown()))
    }

    async fn publish(
        &self,
        name: &str,
        meta: Value,
        replaced: Option<&[Physical]>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let path = format!("collections/{name}");
        let body = json!({ "metadata": meta });
        self.ask(Method::PATCH, &path, Some(body), limit).await?;
        let Some(replaced) = replaced else {
            return Ok(());
        };
        // One request, so that the alias always stands for one collection.
        let mut actions = Vec::new();
        if !replaced.is_empty() {
            actions.push(json!({ "delete_alias": { "alias_name": self.collection } }));
        }
        actions.push(json!({ "create_alias": {
            "collection_name": name, "alias_name": self.collection,
        } }));
        let body = json!({ "actions": actions });
        let path = "collections/aliases";
        self.ask(Method::POST, path, Some(body), limit).await?;
        for old in replaced {
            let path = format!("collections/{}", old.name);
            match self.ask(Method::DELETE, &path, None, limit).await {
                // Deleted before, and the answer did not come.
                Err(failure) if failure.is_missing() => {}
                deleted => drop(deleted?),
            }
        }
        Ok(())
    }
}

/// The sparse vector of a tool: how much each of its terms weighs, as BM25 has it without the rarity of the term.
fn words(new: &NewDocument<'_>) -> Value {
    let (analysis, lexical) = (&new.footprint.analysis, new.lexical);
    let length = analysis.length as f32 / STEPS_PER_WEIGHT / USUAL_LENGTH;
    let rest = lexical.k1 * (1.0 - lexical.b + lexical.b * length);
    let mut weights: BTreeMap<u32, f32> = BTreeMap::new();
    for (term, steps) in analysis.terms.iter().take(MAX_TERMS_OF_TOOL) {
        let often = *steps as f32 / STEPS_PER_WEIGHT;
        // Of two terms with one number the heavier one counts.
        let weight = weights.entry(dimension(term)).or_default();
        *weight = weight.max(often / (often + rest));
    }
    let (indices, values): (Vec<u32>, Vec<f32>) = weights.into_iter().unzip();
    json!({ "indices": indices, "values": values })
}

/// The ends of a name by which the engine finds it too, without separators.
fn name_ends(name: &str) -> Vec<String> {
    let words = text::words(name);
    let mut ends = Vec::new();
    if words.len() <= MIN_END_WORDS {
        return ends;
    }
    let mut end = String::new();
    for (place, word) in words.iter().rev().take(MAX_NAME_WORDS).enumerate() {
        end.insert_str(0, word);
        if place + 1 >= MIN_END_WORDS {
            ends.push(end.clone());
        }
    }
    ends
}
