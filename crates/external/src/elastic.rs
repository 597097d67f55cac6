//! Asks Elasticsearch or OpenSearch by their REST APIs, of which both have the same parts that are used here.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use toolscout_base::config::{ExternalProduct, ExternalSettings};

use crate::client::{Body, Client};
use crate::failure::{Cause, Failure};
use crate::layout::{Layout, Own};
use crate::query;

/// The first version that has all that is used: `int8_hnsw`, and k-NN in the same search several times.
const LEAST_ELASTICSEARCH: (u64, u64) = (8, 12);
/// The first version whose k-NN filters while it searches, with the engine of Lucene.
const LEAST_OPENSEARCH: (u64, u64) = (2, 9);
/// The last major versions that the documentation was read of.
const LAST_ELASTICSEARCH: u64 = 9;
const LAST_OPENSEARCH: u64 = 3;
/// What is said of the version where the key may not ask for it.
const UNKNOWN_VERSION: &str = "of unknown version";

/// An index of Elasticsearch or OpenSearch.
pub struct Elastic {
    /// Asks for any document below the root.
    pub(crate) client: Client,
    product: ExternalProduct,
    index: String,
    timeout: Duration,
    server: OnceCell<Server>,
}

/// What runs at the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// As it names itself; `of unknown version` where the key may not ask for that.
    pub version: String,
}

/// What an index has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexState {
    /// Number of tools.
    pub tools: u64,
    /// The generation of the catalog that was written; 0 for an index that toolscout did not write.
    pub generation: u64,
}

/// An index behind the alias.
#[derive(Clone, Debug, PartialEq)]
pub struct Physical {
    /// Its own name.
    pub name: String,
    /// What is said about its fields.
    pub mappings: Value,
}

impl Elastic {
    /// The index of these settings; nothing is sent yet.
    ///
    /// # Errors
    /// What is wrong with the address or the key.
    pub fn new(settings: &ExternalSettings) -> Result<Self, Failure> {
        let read = settings.store.read();
        let read = read.map_err(|error| Failure::new(Cause::Request, error.to_string()))?;
        Ok(Elastic {
            client: Client::new(settings, &read.servers)?,
            product: read.product,
            index: read.index,
            timeout: settings.timeout(),
            server: OnceCell::new(),
        })
    }

    /// What should run there.
    pub fn product(&self) -> ExternalProduct {
        self.product
    }

    /// The index or alias of the address.
    pub fn index(&self) -> &str {
        &self.index
    }

    /// The address, for messages.
    pub fn shown(&self) -> &str {
        self.client.shown()
    }

    /// What one request of a search may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Which version runs there; asked once.
    ///
    /// # Errors
    /// [`Cause::Version`] for another product, or a version without what is needed.
    pub async fn server(&self, limit: Duration) -> Result<&Server, Failure> {
        let check = || async {
            let root = match self.client.ask(Method::GET, "", &Body::None, limit).await {
                // This needs a privilege of the whole cluster, and a key for the index alone is enough for the rest.
                Err(failure) if failure.lacks_privilege => {
                    return Ok(Server {
                        version: UNKNOWN_VERSION.to_owned(),
                    });
                }
                root => root?,
            };
            self.checked(&root)
                .map_err(|failure| failure.at(self.shown()))
        };
        self.server.get_or_try_init(check).await
    }

    fn checked(&self, root: &Value) -> Result<Server, Failure> {
        let version = &root["version"];
        let Some(number) = version["number"].as_str() else {
            return Err(Failure::answer("version.number"));
        };
        let is_opensearch = version["distribution"] == "opensearch";
        let (name, is_it, least, last) = match self.product {
            ExternalProduct::OpenSearch => (
                "OpenSearch",
                is_opensearch,
                LEAST_OPENSEARCH,
                LAST_OPENSEARCH,
            ),
            ExternalProduct::Elasticsearch => {
                let is_it = version["distribution"].is_null();
                (
                    "Elasticsearch",
                    is_it,
                    LEAST_ELASTICSEARCH,
                    LAST_ELASTICSEARCH,
                )
            }
        };
        if !is_it {
            let other = if is_opensearch {
                "opensearch"
            } else {
                "elasticsearch"
            };
            let reason = format!("it is not {name}; write {other}:// before the address");
            return Err(Failure::new(Cause::Version, reason));
        }
        let mut parts = number
            .split(['.', '-'])
            .map_while(|part| part.parse::<u64>().ok());
        let found = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        if found < least || found.0 > last {
            let reason = format!(
                "it is {name} {number}; toolscout needs {}.{} to {last}",
                least.0, least.1
            );
            return Err(Failure::new(Cause::Version, reason));
        }
        Ok(Server {
            version: number.to_owned(),
        })
    }

    /// The indexes behind the address: one index, or those of an alias; none if there is neither.
    ///
    /// # Errors
    /// Every [`Failure`] but [`Cause::Missing`].
    pub async fn physical(&self, limit: Duration) -> Result<Vec<Physical>, Failure> {
        let path = format!("{}/_mapping", self.index);
        let answer = match self
            .client
            .ask(Method::GET, &path, &Body::None, limit)
            .await
        {
            Err(failure) if failure.cause == Cause::Missing => return Ok(Vec::new()),
            answer => answer?,
        };
        let Value::Object(indexes) = answer else {
            return Err(Failure::answer("indexes"));
        };
        let mut all = Vec::new();
        for (name, mut index) in indexes {
            let mappings = index["mappings"].take();
            all.push(Physical { name, mappings });
        }
        Ok(all)
    }

    /// How the documents are read, with the generation that was written; 0 for an index that toolscout did not write.
    ///
    /// # Errors
    /// [`Cause::Missing`], and what is wrong with the index.
    pub async fn layout(
        &self,
        settings: &ExternalSettings,
        limit: Duration,
    ) -> Result<(Layout, u64), Failure> {
        let all = self.physical(limit).await?;
        let at = |failure: Failure| failure.at(self.shown());
        let [index] = all.as_slice() else {
            let (cause, reason) = match all.len() {
                0 => (
                    Cause::Missing,
                    "there is no such index; fill it with `toolscout external write`, or name another".to_owned(),
                ),
                several => (
                    Cause::Request,
                    format!("the alias stands for {several} indexes; name one that stands for one"),
                ),
            };
            return Err(at(Failure::new(cause, reason)));
        };
        let own = Own::read(&index.mappings["_meta"]).map_err(at)?;
        match (&settings.fields, own) {
            (Some(fields), _) => {
                check_fields(&fields.search, &index.mappings).map_err(at)?;
                let exact = [
                    Some(&fields.name),
                    fields.server.as_ref(),
                    fields.tags.as_ref(),
                ];
                for field in exact.into_iter().flatten() {
                    check_exact(field, &index.mappings).map_err(at)?;
                }
                Ok((Layout::Mapped(Box::new(fields.clone())), 0))
            }
            (None, Some((own, generation))) => Ok((Layout::Own(own), generation)),
            (None, None) => Err(at(Failure::new(
                Cause::Request,
                "toolscout has not written this index; name its fields in the table fields",
            ))),
        }
    }

    /// How many tools an index has, and the generation that was written.
    ///
    /// # Errors
    /// [`Cause::Missing`], and what is wrong with the index.
    pub async fn index_state(
        &self,
        settings: &ExternalSettings,
        limit: Duration,
    ) -> Result<IndexState, Failure> {
        let (layout, generation) = self.layout(settings, limit).await?;
        let counted = self.search_one(query::count_tools(&layout), limit).await?;
        let tools = total(&counted).ok_or_else(|| Failure::answer("hits.total"))?;
        Ok(IndexState { tools, generation })
    }

    /// Several searches by one request; each has an answer or a failure of its own.
    ///
    /// # Errors
    /// A [`Failure`] of all of them.
    pub async fn search(
        &self,
        searches: &[Value],
        limit: Duration,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let mut lines = String::new();
        for search in searches {
            let mut search = search.clone();
            // The engine gives up a little earlier than we do, and says what it has.
            search["timeout"] = format!("{}ms", limit.as_millis() * 9 / 10).into();
            lines.push_str("{}\n");
            lines.push_str(&search.to_string());
            lines.push('\n');
        }
        let path = format!("{}/_msearch", self.index);
        let mut answer = self
            .client
            .ask(Method::POST, &path, &Body::Lines(lines), limit)
            .await?;
        let Value::Array(responses) = answer["responses"].take() else {
            return Err(Failure::answer("responses").at(self.shown()));
        };
        if responses.len() != searches.len() {
            return Err(Failure::answer("response for each search").at(self.shown()));
        }
        let mut all = Vec::with_capacity(responses.len());
        for response in responses {
            all.push(checked_response(response).map_err(|failure| failure.at(self.shown())));
        }
        Ok(all)
    }

    /// One search.
    ///
    /// # Errors
    /// Every [`Failure`].
    pub async fn search_one(&self, search: Value, limit: Duration) -> Result<Value, Failure> {
        let mut answers = self.search(&[search], limit).await?;
        answers
            .pop()
            .unwrap_or_else(|| Err(Failure::answer("responses")))
    }

    /// The documents with these numbers of the engine, as far as there are any, with some of their fields.
    ///
    /// # Errors
    /// Every [`Failure`].
    pub async fn documents(
        &self,
        ids: &[String],
        source: &[String],
        limit: Duration,
    ) -> Result<Vec<(String, Value)>, Failure> {
        let mut documents = Vec::with_capacity(ids.len());
        let path = format!("{}/_mget", self.index);
        let mut asked = Vec::with_capacity(ids.len());
        for id in ids {
            asked.push(json!({ "_id": id, "_source": source }));
        }
        let body = Body::Json(json!({ "docs": asked }));
        let mut answer = self.client.ask(Method::POST, &path, &body, limit).await?;
        let Value::Array(found) = answer["docs"].take() else {
            return Err(Failure::answer("docs").at(self.shown()));
        };
        for mut document in found {
            if !document["error"].is_null() {
                let failure = Failure::of_status(
                    reqwest::StatusCode::SERVICE_UNAVAILABLE,
                    &document["error"],
                );
                return Err(failure.at(self.shown()));
            }
            if document["found"] == true
                && let Some(id) = document["_id"].as_str().map(str::to_owned)
            {
                documents.push((id, document["_source"].take()));
            }
        }
        Ok(documents)
    }
}

/// One response of several searches: it may have failed, or some of its shards.
pub fn checked_response(response: Value) -> Result<Value, Failure> {
    if !response["error"].is_null() {
        let status = response["status"].as_u64().unwrap_or(500) as u16;
        let status = reqwest::StatusCode::from_u16(status).unwrap_or_default();
        return Err(Failure::of_status(status, &response["error"]));
    }
    if response["timed_out"] == true {
        return Err(Failure::new(
            Cause::Away,
            "it had no time to search all of the index",
        ));
    }
    let failed = response["_shards"]["failed"].as_u64().unwrap_or_default();
    if failed > 0 {
        let reason = format!("{failed} shards of the index failed; look at its own log");
        return Err(Failure::new(Cause::Away, reason));
    }
    Ok(response)
}

/// The numbers of the documents that a search has found, in their order.
pub fn ids(response: &Value) -> Vec<String> {
    let hits = response["hits"]["hits"].as_array().into_iter().flatten();
    hits.filter_map(|hit| hit["_id"].as_str().map(str::to_owned))
        .collect()
}

/// What the next page of a sorted search begins after: the sort values of the last hit. `None` without hits.
///
/// # Errors
/// For a hit without them.
pub fn next_page(hits: &[Value]) -> Result<Option<Value>, Failure> {
    match hits.last().map(|hit| &hit["sort"]) {
        None => Ok(None),
        Some(sort @ Value::Array(_)) => Ok(Some(sort.clone())),
        Some(_) => Err(Failure::answer("sort values of a hit")),
    }
}

/// How many documents a search has found in all.
pub fn total(response: &Value) -> Option<u64> {
    response["hits"]["total"]["value"].as_u64()
}

/// What the mappings say of a field, or `null`.
fn mapping<'a>(mappings: &'a Value, field: &str) -> &'a Value {
    let mut found = mappings;
    for part in field.split('.') {
        let within = &found["properties"][part];
        found = match within.is_null() {
            true => &found["fields"][part],
            false => within,
        };
    }
    found
}

fn check_fields(searched: &[String], mappings: &Value) -> Result<(), Failure> {
    for field in searched {
        let name = field.split('^').next().unwrap_or_default();
        if mapping(mappings, name).is_null() {
            let reason = format!(
                "it has no field {name:?}, which fields.search names; name one that it has"
            );
            return Err(Failure::new(Cause::Request, reason));
        }
    }
    Ok(())
}

/// Fields that are compared as a whole.
fn check_exact(field: &str, mappings: &Value) -> Result<(), Failure> {
    let kind = mapping(mappings, field)["type"].as_str();
    match kind {
        Some("keyword" | "constant_keyword" | "wildcard") => Ok(()),
        Some(kind) => {
            let reason = format!(
                "its field {field:?} has the type {kind}, and has to be a keyword; it may have a sub-field \
                 {field}.keyword that is one"
            );
            Err(Failure::new(Cause::Request, reason))
        }
        None => {
            let reason = format!(
                "it has no field {field:?}, which the table fields names; name one that it has"
            );
            Err(Failure::new(Cause::Request, reason))
        }
    }
}
