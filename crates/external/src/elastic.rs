//! Asks Elasticsearch or OpenSearch by their REST APIs, of which both have the same parts that are used here.

mod mappings;
mod query;
mod writing;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use toolscout_base::config::{ExternalIndex, ExternalProduct, ExternalSettings};

use crate::client::{Body, Client};
use crate::deadline::Deadline;
use crate::engine::{After, Ask, Engine, Hits, Listed, Page, Which, Writable};
use crate::failure::{Cause, Failure};
use crate::layout::{Label, Layout, Own};

/// The first version that has all that is used: `int8_hnsw`, and k-NN in the same search several times.
const LEAST_ELASTICSEARCH: (u64, u64) = (8, 12);
/// The first version whose k-NN filters while it searches, with the engine of Lucene.
const LEAST_OPENSEARCH: (u64, u64) = (2, 9);
/// The last major versions that the documentation was read of.
const LAST_ELASTICSEARCH: u64 = 9;
const LAST_OPENSEARCH: u64 = 3;
/// The first version of Elasticsearch that leaves vectors out of the documents that it answers with.
const HIDES_VECTORS: (u64, u64) = (9, 2);
/// What is said of the version where the key may not ask for it.
pub const UNKNOWN_VERSION: &str = "of unknown version";

/// An index of Elasticsearch or OpenSearch.
pub struct Elastic {
    /// Asks for any document below the root.
    pub(crate) client: Client,
    product: ExternalProduct,
    index: String,
    settings: ExternalSettings,
    server: OnceCell<Server>,
}

/// What runs at the address.
#[derive(Clone, Debug)]
struct Server {
    /// As it names itself; [`UNKNOWN_VERSION`] where the key may not ask for that.
    version: String,
    /// Its first two numbers, 0 where they are not known.
    numbers: (u64, u64),
}

impl Elastic {
    /// The index of these settings; nothing is sent yet.
    ///
    /// # Errors
    /// What is wrong with the address or the key.
    pub fn new(settings: &ExternalSettings, index: &ExternalIndex) -> Result<Self, Failure> {
        Ok(Elastic {
            client: Client::new(settings, index)?,
            product: index.product,
            index: index.index.clone(),
            settings: settings.clone(),
            server: OnceCell::new(),
        })
    }

    /// What runs there; asked once.
    async fn server(&self, limit: Duration) -> Result<&Server, Failure> {
        let check = || async {
            let root = match self.client.ask(Method::GET, "", &Body::None, limit).await {
                // This needs a privilege of the whole cluster, and a key for the index alone is enough for the rest.
                Err(failure) if failure.lacks_privilege => {
                    return Ok(Server {
                        version: UNKNOWN_VERSION.to_owned(),
                        numbers: (0, 0),
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
        let name = self.product.name();
        let (is_it, least, last) = match self.product {
            ExternalProduct::OpenSearch => (is_opensearch, LEAST_OPENSEARCH, LAST_OPENSEARCH),
            _ => {
                let is_it = version["distribution"].is_null();
                (is_it, LEAST_ELASTICSEARCH, LAST_ELASTICSEARCH)
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
            numbers: found,
        })
    }

    /// The indexes behind the address, each with what is said about its fields.
    async fn indexes(&self, limit: Duration) -> Result<Vec<(String, Value)>, Failure> {
        let path = format!("{}/_mapping", self.index);
        let asked = self.client.ask(Method::GET, &path, &Body::None, limit);
        let answer = match asked.await {
            Err(failure) if failure.is_missing() => return Ok(Vec::new()),
            answer => answer?,
        };
        let Value::Object(indexes) = answer else {
            return Err(Failure::answer("indexes"));
        };
        let mut all = Vec::new();
        for (name, mut index) in indexes {
            all.push((name, index["mappings"].take()));
        }
        Ok(all)
    }

    /// Several searches by one request; each has an answer or a failure of its own.
    async fn search(
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
    async fn search_one(&self, search: Value, limit: Duration) -> Result<Value, Failure> {
        let mut answers = self.search(&[search], limit).await?;
        answers
            .pop()
            .unwrap_or_else(|| Err(Failure::answer("responses")))
    }

    /// Whether vectors have to be asked for, so that a document that somebody else wrote has them.
    async fn hides_vectors(&self, layout: &Layout, limit: Duration) -> bool {
        let Layout::Mapped(fields) = layout else {
            return false;
        };
        if fields.vector.is_none() || self.product != ExternalProduct::Elasticsearch {
            return false;
        }
        let server = self.server(limit).await;
        server.is_ok_and(|server| server.numbers >= HIDES_VECTORS)
    }
}

#[async_trait]
impl Engine for Elastic {
    fn product(&self) -> &'static str {
        self.product.name()
    }

    fn index(&self) -> &str {
        &self.index
    }

    fn shown(&self) -> &str {
        self.client.shown()
    }

    fn timeout(&self) -> Duration {
        self.settings.timeout()
    }

    async fn version(&self, limit: Duration) -> Result<String, Failure> {
        Ok(self.server(limit).await?.version.clone())
    }

    async fn layout(&self, limit: Duration) -> Result<(Layout, u64), Failure> {
        let all = self.indexes(limit).await?;
        let at = |failure: Failure| failure.at(self.shown());
        let [(_, mappings)] = all.as_slice() else {
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
        let own = Own::read(&mappings["_meta"]).map_err(at)?;
        match (&self.settings.fields, own) {
            (Some(fields), _) => {
                let fields = mappings::resolved(fields, mappings).map_err(at)?;
                Ok((Layout::Mapped(Box::new(fields)), 0))
            }
            (None, Some((own, generation))) => Ok((Layout::Own(own), generation)),
            (None, None) => Err(at(Failure::new(
                Cause::Request,
                "toolscout has not written this index; name its fields in the table fields",
            ))),
        }
    }

    async fn find(
        &self,
        layout: &Layout,
        asks: &[Ask<'_>],
        limit: Duration,
    ) -> Result<Vec<Result<Hits, Failure>>, Failure> {
        let mut searches = Vec::with_capacity(asks.len());
        let mut is_asked = Vec::with_capacity(asks.len());
        for ask in asks {
            let search = query::of_ask(self.product, layout, ask);
            is_asked.push(search.is_some());
            searches.extend(search);
        }
        let answers = match searches.is_empty() {
            true => Vec::new(),
            false => self.search(&searches, limit).await?,
        };
        let mut answers = answers.into_iter();
        let mut all = Vec::with_capacity(asks.len());
        for is_asked in is_asked {
            // What cannot be looked for in this index finds nothing.
            let answer = match is_asked {
                true => answers.next(),
                false => None,
            };
            let Some(answer) = answer else {
                all.push(Ok(Hits::default()));
                continue;
            };
            all.push(answer.map(|answer| Hits {
                ids: ids(&answer),
                total: total(&answer),
            }));
        }
        Ok(all)
    }

    async fn documents(
        &self,
        layout: &Layout,
        ids: &[String],
        limit: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let deadline = Deadline::of(limit);
        let source = layout.source();
        let mut asked = Vec::with_capacity(ids.len());
        for id in ids {
            asked.push(json!({ "_id": id, "_source": source }));
        }
        let vectors = match self.hides_vectors(layout, limit).await {
            true => "?_source_exclude_vectors=false",
            false => "",
        };
        let path = format!("{}/_mget{vectors}", self.index);
        let body = Body::Json(json!({ "docs": asked }));
        let left = deadline.left();
        let mut answer = self.client.ask(Method::POST, &path, &body, left).await?;
        let Value::Array(found) = answer["docs"].take() else {
            return Err(Failure::answer("docs").at(self.shown()));
        };
        let mut documents = Vec::with_capacity(found.len());
        for mut document in found {
            if !document["error"].is_null() {
                let status = reqwest::StatusCode::SERVICE_UNAVAILABLE;
                let failure = Failure::of_status(status, &document["error"]);
                return Err(failure.at(self.shown()));
            }
            if document["found"] == true {
                documents.push(document["_source"].take());
            }
        }
        Ok(documents)
    }

    async fn page(
        &self,
        layout: &Layout,
        listed: &Listed<'_>,
        limit: Duration,
    ) -> Result<Page, Failure> {
        let after = match listed.after {
            After::Nothing => None,
            After::Tool(id) => Some(json!([key_of(layout, id)])),
            After::Page(next) => Some(next.clone()),
        };
        let search = query::listed(layout, listed, after.as_ref());
        let answer = self.search_one(search, limit).await?;
        let hits = hits_of(answer)?;
        let next = next_page(&hits)?.filter(|_| hits.len() >= listed.size);
        Ok(Page {
            documents: sources(hits),
            next,
        })
    }

    async fn sample(
        &self,
        layout: &Layout,
        from: Option<&Value>,
        size: usize,
        limit: Duration,
    ) -> Result<Page, Failure> {
        let from = from.and_then(Value::as_u64).unwrap_or_default() as usize;
        let search = query::sample(layout, from, size, &json!(layout.source()));
        let hits = hits_of(self.search_one(search, limit).await?)?;
        let next = (hits.len() >= size).then(|| json!(from + size));
        Ok(Page {
            documents: sources(hits),
            next,
        })
    }

    async fn frequencies(
        &self,
        layout: &Layout,
        terms: &[(String, String)],
        limit: Duration,
    ) -> Result<HashMap<String, u64>, Failure> {
        let counts = query::frequencies(layout, terms);
        let answer = self.search_one(counts, limit).await?;
        let buckets = &answer["aggregations"]["words"]["buckets"];
        let mut frequencies = HashMap::with_capacity(terms.len());
        for (term, _) in terms {
            let count = buckets[term]["doc_count"].as_u64();
            let count = count.ok_or_else(|| Failure::answer("count of a word"))?;
            frequencies.insert(term.clone(), count);
        }
        Ok(frequencies)
    }

    async fn count(&self, layout: &Layout, which: Which, limit: Duration) -> Result<u64, Failure> {
        let counted = self.search_one(query::count(layout, which), limit).await?;
        total(&counted).ok_or_else(|| Failure::answer("hits.total"))
    }

    async fn values(
        &self,
        layout: &Layout,
        label: Label,
        most: usize,
        limit: Duration,
    ) -> Result<Vec<(String, usize)>, Failure> {
        let Some(search) = query::values(layout, label, most) else {
            return Ok(Vec::new());
        };
        let answer = self.search_one(search, limit).await?;
        let buckets = answer["aggregations"]["values"]["buckets"].as_array();
        let mut counts = Vec::new();
        for bucket in buckets.into_iter().flatten() {
            if let (Some(key), Some(count)) = (bucket["key"].as_str(), bucket["doc_count"].as_u64())
            {
                counts.push((key.to_owned(), count as usize));
            }
        }
        Ok(counts)
    }

    async fn bytes(&self, limit: Duration) -> Option<u64> {
        let path = format!("{}/_stats/store", self.index);
        let asked = self.client.ask(Method::GET, &path, &Body::None, limit);
        // A key that may only read the index may not see its size.
        let sizes = asked.await.ok()?;
        sizes["_all"]["primaries"]["store"]["size_in_bytes"].as_u64()
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

/// What a tool is listed by.
fn key_of<'a>(layout: &Layout, id: &'a str) -> &'a str {
    match layout {
        Layout::Own(_) => id,
        Layout::Mapped(_) => id.split_once('/').map_or(id, |(_, name)| name),
    }
}

fn hits_of(mut answer: Value) -> Result<Vec<Value>, Failure> {
    match answer["hits"]["hits"].take() {
        Value::Array(hits) => Ok(hits),
        _ => Err(Failure::answer("hits")),
    }
}

fn sources(hits: Vec<Value>) -> Vec<Value> {
    let hits = hits.into_iter();
    hits.map(|mut hit| hit["_source"].take()).collect()
}

/// One response of several searches: it may have failed, or some of its shards.
fn checked_response(response: Value) -> Result<Value, Failure> {
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
fn ids(response: &Value) -> Vec<String> {
    let hits = response["hits"]["hits"].as_array().into_iter().flatten();
    hits.filter_map(|hit| hit["_id"].as_str().map(str::to_owned))
        .collect()
}

/// What the next page of a sorted search begins after: the sort values of the last hit. `None` without hits.
fn next_page(hits: &[Value]) -> Result<Option<Value>, Failure> {
    match hits.last().map(|hit| &hit["sort"]) {
        None => Ok(None),
        Some(sort @ Value::Array(_)) => Ok(Some(sort.clone())),
        Some(_) => Err(Failure::answer("sort values of a hit")),
    }
}

/// How many documents a search has found in all.
fn total(response: &Value) -> Option<u64> {
    response["hits"]["total"]["value"].as_u64()
}
