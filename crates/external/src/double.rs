//! A double of Elasticsearch and OpenSearch for tests. It behaves as their documentation says of the parts that are
//! used here: a document is found only after a refresh, `_bulk` answers for each item, a version that is too old is a
//! conflict, unknown fields of a strict mapping are refused. It is no measure of the engines themselves.

mod qdrant;
mod search;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use toolscout_base::config::ExternalProduct;

pub use self::qdrant::{QdrantDouble, QdrantFault};

/// Results that one search may page through, as the engines have it by default.
const MAX_WINDOW: u64 = 10_000;

/// What the double does next in place of an answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// This status with this error, for a whole request.
    Status(u16, Value),
    /// This status with this error, for each item of the next `_bulk` whose place this divides.
    Items(usize, u16, Value),
    /// This status with this error, for the searches of the next `_msearch` that have this key.
    Searches(&'static str, u16, Value),
    /// No answer at all.
    Silence,
    /// An answer as always, before what comes next.
    Nothing,
}

/// An error as the engines write it.
pub fn error(kind: &str, reason: &str) -> Value {
    json!({ "type": kind, "reason": reason })
}

/// A server that runs until it is dropped.
pub struct Double {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    product: ExternalProduct,
    version: Mutex<String>,
    authorization: Mutex<Option<String>>,
    state: Mutex<Indexes>,
    faults: Mutex<VecDeque<(String, Fault)>>,
    requests: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Indexes {
    by_name: BTreeMap<String, Index>,
    aliases: BTreeMap<String, Vec<String>>,
}

#[derive(Default)]
struct Index {
    settings: Value,
    mappings: Value,
    documents: BTreeMap<String, Document>,
    /// What searches see.
    refreshed: BTreeMap<String, Document>,
    /// What was read of that so far.
    read: search::Read,
}

#[derive(Clone)]
struct Document {
    /// `None` for one that was deleted, whose version is remembered.
    source: Option<Value>,
    version: u64,
}

impl Double {
    /// Starts one.
    pub async fn start(product: ExternalProduct) -> Self {
        let version = match product {
            ExternalProduct::OpenSearch => "3.1.0",
            _ => "9.0.1",
        };
        let shared = Arc::new(Shared {
            product,
            version: Mutex::new(version.to_owned()),
            authorization: Mutex::default(),
            state: Mutex::default(),
            faults: Mutex::default(),
            requests: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Double {
            address,
            shared,
            server,
        }
    }

    /// The address of an index, as the settings have it.
    pub fn store(&self, index: &str) -> String {
        let scheme = match self.shared.product {
            ExternalProduct::OpenSearch => "opensearch",
            _ => "elasticsearch",
        };
        format!("{scheme}+http://{}/{index}", self.address)
    }

    /// Host and port.
    pub fn host(&self) -> SocketAddr {
        self.address
    }

    /// Answers as if this version ran.
    pub fn set_version(&self, version: &str) {
        version.clone_into(&mut self.shared.version.lock());
    }

    /// Refuses requests without this header `Authorization`.
    pub fn require(&self, authorization: &str) {
        *self.shared.authorization.lock() = Some(authorization.to_owned());
    }

    /// Does this for the next request whose path ends with `path`. Several for one path follow each other.
    pub fn fail(&self, path: &str, fault: Fault) {
        self.shared
            .faults
            .lock()
            .push_back((path.to_owned(), fault));
    }

    /// The requests so far, each as method and path.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().clone()
    }

    /// The names of the indexes.
    pub fn indexes(&self) -> Vec<String> {
        self.shared.state.lock().by_name.keys().cloned().collect()
    }

    /// Makes an index with these documents, as somebody else would.
    pub fn fill(&self, name: &str, mappings: Value, documents: &[Value]) {
        let mut index = Index {
            mappings,
            ..Index::default()
        };
        for (number, source) in documents.iter().enumerate() {
            index.put(&format!("d{number}"), source.clone(), 1);
        }
        index.refresh();
        self.shared
            .state
            .lock()
            .by_name
            .insert(name.to_owned(), index);
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Index {
    fn put(&mut self, id: &str, source: Value, version: u64) {
        let document = Document {
            source: Some(source),
            version,
        };
        self.documents.insert(id.to_owned(), document);
    }

    fn refresh(&mut self) {
        self.read = search::Read::default();
        self.refreshed = self.documents.clone();
        self.refreshed
            .retain(|_, document| document.source.is_some());
    }

    /// What a strict mapping refuses of a document.
    fn refused(&self, source: &Value) -> Option<Value> {
        let properties = &self.mappings["properties"];
        for (field, value) in source.as_object().into_iter().flatten() {
            let mapping = &properties[field];
            if mapping.is_null() && self.mappings["dynamic"] == "strict" {
                let reason = format!(
                    "mapping set to strict, dynamic introduction of [{field}] is not allowed"
                );
                return Some(error("strict_dynamic_mapping_exception", &reason));
            }
            let length = mapping["dims"].as_u64().or(mapping["dimension"].as_u64());
            if let (Some(length), Some(vector)) = (length, value.as_array())
                && vector.len() as u64 != length
            {
                let reason = format!("the vector of [{field}] has {} dimensions", vector.len());
                return Some(error("document_parsing_exception", &reason));
            }
            let is_zero = |number: &Value| number.as_f64() == Some(0.0);
            if length.is_some()
                && value
                    .as_array()
                    .is_some_and(|vector| vector.iter().all(is_zero))
            {
                let reason =
                    "The [cosine] similarity does not support vectors with zero magnitude.";
                return Some(error("document_parsing_exception", reason));
            }
        }
        None
    }
}

type Answer = Result<Value, (u16, Value)>;

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    respond(&shared, &method, uri.path(), &headers, &body).await
}

async fn respond(
    shared: &Shared,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let path = path.trim_start_matches('/');
    shared.requests.lock().push(format!("{method} /{path}"));
    if let Some(wanted) = shared.authorization.lock().as_deref()
        && headers
            .get("authorization")
            .and_then(|value| value.to_str().ok())
            != Some(wanted)
    {
        let error = error(
            "security_exception",
            "unable to authenticate with provided credentials",
        );
        return written(Err((401, error)));
    }
    let fault = shared.take_fault(path);
    match &fault {
        Some(Fault::Silence) => std::future::pending().await,
        Some(Fault::Status(status, error)) => return written(Err((*status, error.clone()))),
        _ => {}
    }
    written(shared.handle(method, path, body, fault))
}

fn written(answer: Answer) -> Response {
    let (status, body) = match answer {
        Ok(body) => (200, body),
        Err((status, error)) => (status, json!({ "error": error, "status": status })),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, axum::Json(body)).into_response();
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert("retry-after", 0.into());
    }
    response
}

impl Shared {
    fn take_fault(&self, path: &str) -> Option<Fault> {
        let mut faults = self.faults.lock();
        let place = faults
            .iter()
            .position(|(of, _)| path.ends_with(of.as_str()))?;
        faults.remove(place).map(|(_, fault)| fault)
    }

    fn handle(&self, method: &Method, path: &str, body: &[u8], fault: Option<Fault>) -> Answer {
        if path.is_empty() {
            return Ok(self.root());
        }
        let json = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        if path == "_aliases" {
            return self.state.lock().change_aliases(&json());
        }
        let (name, action) = path.split_once('/').unwrap_or((path, ""));
        let mut state = self.state.lock();
        if action.is_empty() && method == Method::PUT {
            return state.create(name, &json());
        }
        let names = state.resolve(name)?;
        match (action, method.as_str()) {
            ("_mapping", "GET") => {
                let mut all = Map::new();
                for name in names {
                    all.insert(
                        name.clone(),
                        json!({ "mappings": state.by_name[&name].mappings }),
                    );
                }
                Ok(all.into())
            }
            ("_mapping", "PUT") => {
                let change = json();
                for name in names {
                    let index = state.by_name.get_mut(&name).expect("it was resolved");
                    index.mappings["_meta"] = change["_meta"].clone();
                }
                Ok(json!({ "acknowledged": true }))
            }
            ("_refresh", _) => {
                for name in names {
                    state
                        .by_name
                        .get_mut(&name)
                        .expect("it was resolved")
                        .refresh();
                }
                Ok(json!({ "_shards": { "total": 1, "successful": 1, "failed": 0 } }))
            }
            ("_bulk", "POST") => {
                let index = state.by_name.get_mut(&names[0]).expect("it was resolved");
                Ok(bulk(index, body, fault))
            }
            ("_mget", "POST") => Ok(get_documents(&state.by_name[&names[0]], &json())),
            ("_search", _) => search::search(&state.by_name[&names[0]], self.product, &json()),
            ("_msearch", "POST") => {
                let index = &state.by_name[&names[0]];
                Ok(self.several(index, body, fault.as_ref()))
            }
            ("_stats/store", "GET") => Ok(json!({
                "_all": { "primaries": { "store": { "size_in_bytes": 1000 } } },
            })),
            _ => Err((
                405,
                error("method_not_allowed", "the double does not know this"),
            )),
        }
    }

    fn root(&self) -> Value {
        let number = self.version.lock().clone();
        match self.product {
            ExternalProduct::OpenSearch => json!({
                "name": "double", "version": { "distribution": "opensearch", "number": number },
                "tagline": "The OpenSearch Project: https://opensearch.org/",
            }),
            _ => json!({
                "name": "double", "version": { "number": number, "build_flavor": "default" },
                "tagline": "You Know, for Search",
            }),
        }
    }

    fn several(&self, index: &Index, body: &[u8], fault: Option<&Fault>) -> Value {
        let text = String::from_utf8_lossy(body);
        let mut responses = Vec::new();
        for search in text.lines().skip(1).step_by(2) {
            let search: Value = serde_json::from_str(search).unwrap_or_default();
            let mut answer = search::search(index, self.product, &search);
            if let Some(Fault::Searches(key, status, error)) = fault
                && search.to_string().contains(&format!("\"{key}\""))
            {
                answer = Err((*status, error.clone()));
            }
            responses.push(match answer {
                Ok(answer) => answer,
                Err((status, error)) => json!({ "error": error, "status": status }),
            });
        }
        json!({ "took": 1, "responses": responses })
    }
}

impl Indexes {
    fn resolve(&self, name: &str) -> Result<Vec<String>, (u16, Value)> {
        if self.by_name.contains_key(name) {
            return Ok(vec![name.to_owned()]);
        }
        match self.aliases.get(name) {
            Some(names) if !names.is_empty() => Ok(names.clone()),
            _ => Err((
                404,
                error(
                    "index_not_found_exception",
                    &format!("no such index [{name}]"),
                ),
            )),
        }
    }

    fn create(&mut self, name: &str, body: &Value) -> Answer {
        if self.by_name.contains_key(name) {
            let reason = format!("index [{name}] already exists");
            return Err((400, error("resource_already_exists_exception", &reason)));
        }
        let index = Index {
            settings: body["settings"].clone(),
            mappings: body["mappings"].clone(),
            ..Index::default()
        };
        self.by_name.insert(name.to_owned(), index);
        Ok(json!({ "acknowledged": true, "index": name }))
    }

    /// All actions, or none of them.
    fn change_aliases(&mut self, body: &Value) -> Answer {
        let actions = body["actions"].as_array().cloned().unwrap_or_default();
        for action in &actions {
            for of in action.as_object().into_iter().flatten().map(|(_, of)| of) {
                self.resolve(of["index"].as_str().unwrap_or_default())?;
            }
        }
        for action in actions {
            let name = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
            if let Some(add) = action.get("add") {
                let names = self.aliases.entry(name(add, "alias")).or_default();
                names.push(name(add, "index"));
            } else if let Some(remove) = action.get("remove_index") {
                let gone = name(remove, "index");
                self.by_name.remove(&gone);
                for names in self.aliases.values_mut() {
                    names.retain(|name| *name != gone);
                }
            }
        }
        Ok(json!({ "acknowledged": true }))
    }
}

fn bulk(index: &mut Index, body: &[u8], fault: Option<Fault>) -> Value {
    let text = String::from_utf8_lossy(body);
    let mut lines = text.lines();
    let (mut items, mut has_errors) = (Vec::new(), false);
    while let Some(line) = lines.next() {
        let action: Value = serde_json::from_str(line).unwrap_or_default();
        let Some((kind, of)) = action.as_object().and_then(|action| action.iter().next()) else {
            continue;
        };
        let source = match kind.as_str() {
            "delete" => None,
            _ => lines
                .next()
                .and_then(|line| serde_json::from_str(line).ok()),
        };
        let outcome = match &fault {
            Some(Fault::Items(divisor, status, error)) if items.len() % divisor == 0 => {
                Err((*status, error.clone()))
            }
            _ => change(index, of, source),
        };
        let id = &of["_id"];
        let item = match outcome {
            Ok(status) => json!({ "_id": id, "status": status }),
            Err((status, error)) => {
                has_errors = true;
                json!({ "_id": id, "status": status, "error": error })
            }
        };
        items.push(json!({ kind: item }));
    }
    json!({ "took": 1, "errors": has_errors, "items": items })
}

fn change(index: &mut Index, of: &Value, source: Option<Value>) -> Result<u16, (u16, Value)> {
    let id = of["_id"].as_str().unwrap_or_default().to_owned();
    let version = of["version"].as_u64().unwrap_or(1);
    let before = index.documents.get(&id);
    if let Some(before) = before
        && before.version > version
    {
        let reason = format!(
            "[{id}]: version conflict, current version [{}] is higher",
            before.version
        );
        return Err((409, error("version_conflict_engine_exception", &reason)));
    }
    let existed = before.is_some_and(|before| before.source.is_some());
    match source {
        Some(source) => {
            if let Some(refused) = index.refused(&source) {
                return Err((400, refused));
            }
            index.put(&id, source, version);
            Ok(if existed { 200 } else { 201 })
        }
        None => {
            let gone = Document {
                source: None,
                version,
            };
            index.documents.insert(id, gone);
            Ok(if existed { 200 } else { 404 })
        }
    }
}

fn get_documents(index: &Index, body: &Value) -> Value {
    let mut documents = Vec::new();
    for asked in body["docs"].as_array().into_iter().flatten() {
        let id = asked["_id"].as_str().unwrap_or_default();
        let source = index
            .documents
            .get(id)
            .and_then(|document| document.source.as_ref());
        documents.push(match source {
            Some(source) => json!({
                "_id": id, "found": true, "_source": search::chosen(source, &asked["_source"]),
            }),
            None => json!({ "_id": id, "found": false }),
        });
    }
    json!({ "docs": documents })
}
