//! Writes an index of Elasticsearch or OpenSearch.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use toolscout_index::LexicalSettings;

use super::{Elastic, checked_response, mappings, next_page, query};
use crate::client::Body;
use crate::engine::{Change, Engine, NewDocument, Physical, Sent, Writable};
use crate::failure::{Cause, Failure};
use crate::layout::{Layout, Own};

/// Documents whose hashes are read by one request.
const PAGE: usize = 5000;

#[async_trait]
impl Writable for Elastic {
    fn schema(&self, own: &Own, lexical: &LexicalSettings, identity: &str) -> Value {
        mappings::index(own, self.product, lexical, identity)
    }

    async fn physical(&self, limit: Duration) -> Result<Vec<Physical>, Failure> {
        let mut all = Vec::new();
        for (name, mut mappings) in self.indexes(limit).await? {
            let meta = mappings["_meta"].take();
            all.push(Physical { name, meta });
        }
        Ok(all)
    }

    async fn create(&self, name: &str, schema: Value, limit: Duration) -> Result<(), Failure> {
        let body = Body::Json(schema);
        match self.client.ask(Method::PUT, name, &body, limit).await {
            Err(failure) if failure.reason.contains("resource_already_exists_exception") => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    async fn hashes(
        &self,
        name: &str,
        own: &Own,
        limit: Duration,
    ) -> Result<HashMap<String, String>, Failure> {
        self.refresh(name, limit).await?;
        let mut known = HashMap::new();
        let mut after = None;
        let path = format!("{name}/_search");
        let layout = Layout::Own(own.clone());
        let source = json!(["id", "hash"]);
        loop {
            let all = json!({ "match_all": {} });
            let page = query::page(&layout, all, after.as_ref(), PAGE, &source);
            let page = self
                .client
                .ask(Method::POST, &path, &Body::Json(page), limit)
                .await?;
            // What some of its shards do not tell would be written again, and never be removed.
            let page = checked_response(page).map_err(|failure| failure.at(self.shown()))?;
            let hits = page["hits"]["hits"].as_array();
            let hits = hits.ok_or_else(|| Failure::answer("hits"))?;
            for hit in hits {
                let source = &hit["_source"];
                if let (Some(id), Some(hash)) = (source["id"].as_str(), source["hash"].as_str()) {
                    known.insert(id.to_owned(), hash.to_owned());
                }
            }
            let next = next_page(hits)?;
            if hits.len() < PAGE {
                return Ok(known);
            }
            if next == after {
                return Err(Failure::answer("next page"));
            }
            after = next;
        }
    }

    fn document(&self, new: &NewDocument<'_>) -> String {
        mappings::document(new)
    }

    async fn send(
        &self,
        name: &str,
        generation: u64,
        changes: &[Change],
        limit: Duration,
    ) -> Result<Sent, Failure> {
        let mut lines = String::new();
        for change in changes {
            let action = match change.document {
                Some(_) => "index",
                None => "delete",
            };
            // The engine refuses a change of an older generation than it has, and takes one of the same again.
            let header = json!({ action: {
                // Ids of tools may be longer than those of documents.
                "_id": hex::encode(&blake3::hash(change.id.as_bytes()).as_bytes()[..16]),
                "version": generation.max(1), "version_type": "external_gte",
            } });
            lines.push_str(&header.to_string());
            lines.push('\n');
            if let Some(document) = &change.document {
                lines.push_str(document);
                lines.push('\n');
            }
        }
        let path = format!("{name}/_bulk");
        let body = Body::Lines(lines);
        let answer = self.client.ask(Method::POST, &path, &body, limit).await?;
        let items = answer["items"]
            .as_array()
            .filter(|items| items.len() == changes.len());
        let items = items.ok_or_else(|| Failure::answer("item for each change"))?;
        let mut sent = Sent::default();
        for (place, item) in items.iter().enumerate() {
            self.read_item(place, item, &mut sent)?;
        }
        Ok(sent)
    }

    async fn complete(
        &self,
        name: &str,
        _generation: u64,
        limit: Duration,
    ) -> Result<u64, Failure> {
        self.refresh(name, limit).await?;
        // Each item of a bulk says it.
        Ok(0)
    }

    async fn publish(
        &self,
        name: &str,
        meta: Value,
        replaced: Option<&[Physical]>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let path = format!("{name}/_mapping");
        let body = Body::Json(json!({ "_meta": meta }));
        self.client.ask(Method::PUT, &path, &body, limit).await?;
        let Some(replaced) = replaced else {
            return Ok(());
        };
        // One request, so that the alias always stands for one index.
        let mut actions = vec![json!({ "add": { "index": name, "alias": self.index } })];
        for old in replaced {
            actions.push(json!({ "remove_index": { "index": old.name } }));
        }
        let body = Body::Json(json!({ "actions": actions }));
        match self
            .client
            .ask(Method::POST, "_aliases", &body, limit)
            .await
        {
            // Sent twice, since the first answer did not come: the old index is gone, and that is what was wanted.
            Err(failure) if failure.is_missing() && self.is_alone(name, limit).await? => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

impl Elastic {
    fn read_item(&self, place: usize, item: &Value, sent: &mut Sent) -> Result<(), Failure> {
        let outcome = item.as_object().and_then(|item| item.iter().next());
        let action = outcome.map(|(action, _)| action.as_str());
        let outcome = outcome.map_or(&Value::Null, |(_, outcome)| outcome);
        let status = outcome["status"].as_u64().unwrap_or_default() as u16;
        match status {
            200..=299 => return Ok(()),
            // A document that is gone already. Of `index` it would be the whole index.
            404 if action == Some("delete") => return Ok(()),
            409 => {
                sent.newer += 1;
                return Ok(());
            }
            _ => {}
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let failure = Failure::of_status(status, &outcome["error"]);
        match failure.cause {
            Cause::Busy | Cause::Away => {
                sent.put_off.insert(place);
                sent.reason = failure.reason;
            }
            Cause::ReadOnly | Cause::Key | Cause::Missing => return Err(failure.at(self.shown())),
            _ => sent.refused.push(failure.reason),
        }
        Ok(())
    }

    async fn refresh(&self, name: &str, limit: Duration) -> Result<(), Failure> {
        let path = format!("{name}/_refresh");
        let asked = self.client.ask(Method::POST, &path, &Body::None, limit);
        asked.await.map(drop)
    }

    /// Whether the alias stands for this index, and for no other.
    async fn is_alone(&self, name: &str, limit: Duration) -> Result<bool, Failure> {
        let all = self.indexes(limit).await?;
        Ok(matches!(all.as_slice(), [(only, _)] if only == name))
    }
}
