//! A double of Qdrant for tests. It behaves as the documentation says of the parts that are used here: filters come
//! before the ranking, an upsert leaves points alone that its condition excludes, an alias changes in one step, one bad
//! search fails its batch. It is no measure of Qdrant itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What the double does next in place of an answer.
#[derive(Clone, Debug)]
pub enum QdrantFault {
    /// This status with this error.
    Status(u16, &'static str),
    /// This status with this error, for the next batch of searches by dense vectors.
    Vectors(u16, &'static str),
    /// An answer as always, after this time.
    Slow(Duration),
    /// No answer at all.
    Silence,
    /// An answer as always, before what comes next.
    Nothing,
}

/// A server that runs until it is dropped.
pub struct QdrantDouble {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    version: Mutex<String>,
    key: Mutex<Option<String>>,
    state: Mutex<Collections>,
    faults: Mutex<VecDeque<(String, QdrantFault)>>,
    requests: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Collections {
    by_name: BTreeMap<String, Collection>,
    aliases: BTreeMap<String, String>,
}

struct Collection {
    /// The body that created it.
    config: Value,
    indexes: BTreeSet<String>,
    points: BTreeMap<PointId, Point>,
}

/// Integers come before UUIDs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PointId {
    Number(u64),
    Uuid(String),
}

struct Point {
    vectors: Value,
    payload: Value,
}

type Answer = Result<Value, (u16, String)>;

impl QdrantDouble {
    /// Starts one.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            version: Mutex::new("1.16.0".to_owned()),
            key: Mutex::default(),
            state: Mutex::default(),
            faults: Mutex::default(),
            requests: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new()
            .fallback(respond)
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        QdrantDouble {
            address,
            shared,
            server,
        }
    }

    /// The address of a collection, as the settings have it.
    pub fn store(&self, collection: &str) -> String {
        format!("qdrant+http://{}/{collection}", self.address)
    }

    /// Host and port.
    pub fn host(&self) -> SocketAddr {
        self.address
    }

    /// Answers as if this version ran.
    pub fn set_version(&self, version: &str) {
        version.clone_into(&mut self.shared.version.lock());
    }

    /// Refuses requests without this key.
    pub fn require(&self, key: &str) {
        *self.shared.key.lock() = Some(key.to_owned());
    }

    /// Does this for the next request whose path ends with `path`. Several for one path follow each other.
    pub fn fail(&self, path: &str, fault: QdrantFault) {
        let mut faults = self.shared.faults.lock();
        faults.push_back((path.to_owned(), fault));
    }

    /// The requests so far, each as method and path.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().clone()
    }

    /// The names of the collections.
    pub fn collections(&self) -> Vec<String> {
        self.shared.state.lock().by_name.keys().cloned().collect()
    }
}

impl Drop for QdrantDouble {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().trim_start_matches('/');
    shared.requests.lock().push(format!("{method} /{path}"));
    let sent = headers.get("api-key").and_then(|key| key.to_str().ok());
    let wanted = shared.key.lock().clone();
    if wanted.is_some() && sent != wanted.as_deref() {
        return written(Err((401, "Invalid API key or JWT".to_owned())));
    }
    match shared.take_fault(path, &body) {
        Some(QdrantFault::Slow(time)) => sleep(time).await,
        Some(QdrantFault::Silence) => std::future::pending().await,
        Some(QdrantFault::Status(status, error) | QdrantFault::Vectors(status, error)) => {
            return written(Err((status, error.to_owned())));
        }
        Some(QdrantFault::Nothing) | None => {}
    }
    if path.is_empty() {
        let version = shared.version.lock().clone();
        let root = json!({ "title": "qdrant - vector search engine", "version": version });
        return axum::Json(root).into_response();
    }
    let body = serde_json::from_slice(&body).unwrap_or_default();
    written(shared.state.lock().handle(&method, path, body))
}

fn written(answer: Answer) -> Response {
    let (status, body) = match answer {
        Ok(result) => (
            200,
            json!({ "result": result, "status": "ok", "time": 0.0 }),
        ),
        Err((status, error)) => (status, json!({ "status": { "error": error }, "time": 0.0 })),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(body)).into_response()
}

impl Shared {
    fn take_fault(&self, path: &str, body: &[u8]) -> Option<QdrantFault> {
        let mut faults = self.faults.lock();
        let has_vectors = || String::from_utf8_lossy(body).contains("\"rescore\"");
        let place = faults.iter().position(|(of, fault)| {
            let is_of_vectors = matches!(fault, QdrantFault::Vectors(..));
            path.ends_with(of.as_str()) && (!is_of_vectors || has_vectors())
        })?;
        faults.remove(place).map(|(_, fault)| fault)
    }
}

impl Collections {
    fn handle(&mut self, method: &Method, path: &str, body: Value) -> Answer {
        if path == "aliases" {
            let mut aliases = Vec::new();
            for (alias, name) in &self.aliases {
                aliases.push(json!({ "alias_name": alias, "collection_name": name }));
            }
            return Ok(json!({ "aliases": aliases }));
        }
        if path == "collections/aliases" {
            return self.change_aliases(&body);
        }
        let path = path.strip_prefix("collections/").unwrap_or_default();
        let (asked, action) = path.split_once('/').unwrap_or((path, ""));
        if action.is_empty() && method == Method::PUT {
            return self.create(asked, body);
        }
        let name = self.aliases.get(asked).map_or(asked, String::as_str);
        let name = name.to_owned();
        if action.is_empty() && method == Method::DELETE {
            self.aliases.retain(|_, of| *of != name);
            return Ok(self.by_name.remove(&name).is_some().into());
        }
        let Some(collection) = self.by_name.get_mut(&name) else {
            return Err((
                404,
                format!("Not found: Collection `{asked}` doesn't exist!"),
            ));
        };
        collection.handle(method, action, &body)
    }

    fn create(&mut self, name: &str, config: Value) -> Answer {
        if self.by_name.contains_key(name) {
            let error = format!("Wrong input: Collection `{name}` already exists!");
            return Err((409, error));
        }
        let collection = Collection {
            config,
            indexes: BTreeSet::new(),
            points: BTreeMap::new(),
        };
        self.by_name.insert(name.to_owned(), collection);
        Ok(true.into())
    }

    fn change_aliases(&mut self, body: &Value) -> Answer {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for action in body["actions"].as_array().into_iter().flatten() {
            if let Some(gone) = action.get("delete_alias") {
                self.aliases.remove(&text(&gone["alias_name"]));
            } else if let Some(new) = action.get("create_alias") {
                let name = text(&new["collection_name"]);
                if !self.by_name.contains_key(&name) {
                    return Err((
                        404,
                        format!("Not found: Collection `{name}` doesn't exist!"),
                    ));
                }
                self.aliases.insert(text(&new["alias_name"]), name);
            }
        }
        Ok(true.into())
    }
}

impl Collection {
    fn handle(&mut self, method: &Method, action: &str, body: &Value) -> Answer {
        match (method.as_str(), action) {
            ("GET", "") => Ok(json!({
                "status": "green", "points_count": self.points.len(),
                "config": { "metadata": self.config["metadata"], "params": {
                    "vectors": self.config["vectors"], "sparse_vectors": self.config["sparse_vectors"],
                } },
            })),
            ("PATCH", "") => {
                self.config["metadata"] = body["metadata"].clone();
                Ok(true.into())
            }
            ("PUT", "index") => {
                let field = body["field_name"].as_str().unwrap_or_default();
                self.indexes.insert(field.to_owned());
                Ok(json!({ "status": "completed" }))
            }
            ("PUT", "points") => self.upsert(body),
            ("POST", "points/delete") => {
                let filter = &body["filter"];
                self.points.retain(|id, point| !passes(filter, id, point));
                Ok(json!({ "status": "completed" }))
            }
            ("POST", "points/count") => {
                let all = self.points.iter();
                let passing = all.filter(|(id, point)| passes(&body["filter"], id, point));
                Ok(json!({ "count": passing.count() }))
            }
            ("POST", "points/scroll") => self.scroll(body),
            ("POST", "points") => self.retrieve(body),
            ("POST", "points/query/batch") => {
                let mut all = Vec::new();
                for search in body["searches"].as_array().into_iter().flatten() {
                    all.push(json!({ "points": self.query(search)? }));
                }
                Ok(all.into())
            }
            ("POST", "facet") => self.facet(body),
            _ => Err((404, format!("the double does not know {method} {action}"))),
        }
    }

    fn upsert(&mut self, body: &Value) -> Answer {
        let filter = &body["update_filter"];
        let points = body["points"].as_array().into_iter().flatten();
        let mut new = Vec::new();
        for point in points {
            let Some(id) = point_id(&point["id"]) else {
                return Err((400, format!("{} is not a valid point ID", point["id"])));
            };
            self.check_vectors(&point["vector"])?;
            let point = Point {
                vectors: point["vector"].clone(),
                payload: point["payload"].clone(),
            };
            new.push((id, point));
        }
        for (id, point) in new {
            let before = self.points.get(&id);
            if filter.is_null() || before.is_none_or(|before| passes(filter, &id, before)) {
                self.points.insert(id, point);
            }
        }
        Ok(json!({ "status": "completed" }))
    }

    fn check_vectors(&self, vectors: &Value) -> Result<(), (u16, String)> {
        for (name, vector) in vectors.as_object().into_iter().flatten() {
            if !self.config["sparse_vectors"][name].is_null() {
                continue;
            }
            let wanted = &self.config["vectors"][name]["size"];
            let Some(wanted) = wanted.as_u64() else {
                let error = format!("Wrong input: Not existing vector name error: {name}");
                return Err((400, error));
            };
            let length = vector.as_array().map_or(0, Vec::len) as u64;
            if wanted != length {
                let error = format!(
                    "Wrong input: Vector dimension error: expected dim: {wanted}, got {length}"
                );
                return Err((400, error));
            }
        }
        Ok(())
    }

    fn shown(&self, id: &PointId, point: &Point, body: &Value) -> Value {
        let mut shown = json!({ "id": json_id(id) });
        match &body["with_payload"] {
            Value::Array(fields) => {
                let mut payload = Map::new();
                for field in fields.iter().filter_map(Value::as_str) {
                    if let Some(value) = point.payload.get(field) {
                        payload.insert(field.to_owned(), value.clone());
                    }
                }
                shown["payload"] = payload.into();
            }
            Value::Bool(true) => shown["payload"] = point.payload.clone(),
            _ => {}
        }
        match &body["with_vector"] {
            Value::Bool(true) => shown["vector"] = point.vectors.clone(),
            Value::Array(names) => {
                let mut vectors = Map::new();
                for name in names.iter().filter_map(Value::as_str) {
                    vectors.insert(name.to_owned(), point.vectors[name].clone());
                }
                shown["vector"] = vectors.into();
            }
            _ => {}
        }
        shown
    }

    fn scroll(&self, body: &Value) -> Answer {
        let limit = body["limit"].as_u64().unwrap_or(10) as usize;
        let offset = point_id(&body["offset"]);
        let (mut points, mut next) = (Vec::new(), Value::Null);
        for (id, point) in &self.points {
            if offset.as_ref().is_some_and(|offset| id < offset)
                || !passes(&body["filter"], id, point)
            {
                continue;
            }
            if points.len() == limit {
                next = json_id(id);
                break;
            }
            points.push(self.shown(id, point, body));
        }
        Ok(json!({ "points": points, "next_page_offset": next }))
    }

    fn retrieve(&self, body: &Value) -> Answer {
        let mut points = Vec::new();
        // In another order than they were asked for, as Qdrant may.
        for id in body["ids"].as_array().into_iter().flatten().rev() {
            let Some(id) = point_id(id) else {
                return Err((400, format!("{id} is not a valid point ID")));
            };
            if let Some(point) = self.points.get(&id) {
                points.push(self.shown(&id, point, body));
            }
        }
        Ok(points.into())
    }

    fn query(&self, search: &Value) -> Answer {
        let limit = search["limit"].as_u64().unwrap_or(10) as usize;
        let mut scored = Vec::new();
        for (id, point) in &self.points {
            if !passes(&search["filter"], id, point) {
                continue;
            }
            let score = match &search["query"] {
                Value::Null => Some(0.0),
                query => self.score(point, query, search["using"].as_str())?,
            };
            scored.extend(score.map(|score| (score, id, point)));
        }
        scored.sort_by(|(a, one, _), (b, other, _)| b.total_cmp(a).then_with(|| one.cmp(other)));
        scored.truncate(limit);
        let mut points = Vec::with_capacity(scored.len());
        for (score, id, point) in scored {
            let mut shown = self.shown(id, point, search);
            shown["score"] = score.into();
            points.push(shown);
        }
        Ok(points.into())
    }

    /// `None` for a point without this vector, or without one of the numbers of a sparse one.
    fn score(
        &self,
        point: &Point,
        query: &Value,
        using: Option<&str>,
    ) -> Result<Option<f64>, (u16, String)> {
        let of_point = using.map_or(&point.vectors, |name| &point.vectors[name]);
        if query.is_object() {
            let name = using.unwrap_or_default();
            if self.config["sparse_vectors"][name].is_null() {
                let error = format!("Wrong input: Not existing vector name error: {name}");
                return Err((400, error));
            }
            return Ok(sparse_product(query, of_point));
        }
        self.check_vectors(&json!({ using.unwrap_or_default(): query }))
            .or_else(|error| match using {
                Some(_) => Err(error),
                None => Ok(()),
            })?;
        let (query, of_point) = (floats(query), floats(of_point));
        if of_point.len() != query.len() {
            return Ok(None);
        }
        let product =
            |one: &[f64], other: &[f64]| -> f64 { one.iter().zip(other).map(|(a, b)| a * b).sum() };
        let lengths = product(&query, &query).sqrt() * product(&of_point, &of_point).sqrt();
        Ok(Some(product(&query, &of_point) / lengths.max(1e-12)))
    }

    fn facet(&self, body: &Value) -> Answer {
        let key = body["key"].as_str().unwrap_or_default();
        if !self.indexes.contains(key) {
            let error = format!("Bad request: No appropriate index for faceting: `{key}`");
            return Err((400, error));
        }
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (id, point) in &self.points {
            if passes(&body["filter"], id, point) {
                for value in values_of(&point.payload, key) {
                    *counts
                        .entry(value.as_str().unwrap_or_default().to_owned())
                        .or_default() += 1;
                }
            }
        }
        let mut hits: Vec<(String, u64)> = counts.into_iter().collect();
        hits.sort_by(|(one, a), (other, b)| b.cmp(a).then_with(|| one.cmp(other)));
        hits.truncate(body["limit"].as_u64().unwrap_or(10) as usize);
        let hits = hits
            .into_iter()
            .map(|(value, count)| json!({ "value": value, "count": count }));
        Ok(json!({ "hits": hits.collect::<Vec<Value>>() }))
    }
}

fn point_id(id: &Value) -> Option<PointId> {
    match id {
        Value::Number(number) => number.as_u64().map(PointId::Number),
        Value::String(text) => uuid::Uuid::parse_str(text)
            .ok()
            .map(|uuid| PointId::Uuid(uuid.to_string())),
        _ => None,
    }
}

fn json_id(id: &PointId) -> Value {
    match id {
        PointId::Number(number) => (*number).into(),
        PointId::Uuid(text) => text.as_str().into(),
    }
}

fn floats(vector: &Value) -> Vec<f64> {
    let numbers = vector.as_array().into_iter().flatten();
    numbers.filter_map(Value::as_f64).collect()
}

fn sparse_product(query: &Value, of_point: &Value) -> Option<f64> {
    let pairs = |sparse: &Value| -> BTreeMap<u64, f64> {
        let indices = sparse["indices"].as_array().cloned().unwrap_or_default();
        let indices = indices.into_iter().filter_map(|index| index.as_u64());
        indices.zip(floats(&sparse["values"])).collect()
    };
    let of_point = pairs(of_point);
    let mut product = None;
    for (index, value) in pairs(query) {
        if let Some(other) = of_point.get(&index) {
            *product.get_or_insert(0.0) += value * other;
        }
    }
    product
}

/// The values of a field, whose name may be a path.
fn values_of<'a>(payload: &'a Value, key: &str) -> Vec<&'a Value> {
    match crate::layout::at(payload, key) {
        Value::Null => Vec::new(),
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    }
}

/// Whether a point passes a filter.
fn passes(filter: &Value, id: &PointId, point: &Point) -> bool {
    let all = |clause: &str| filter[clause].as_array().cloned().unwrap_or_default();
    let meets = |condition: &Value| meets(condition, id, point);
    let should = all("should");
    let min_should = &filter["min_should"];
    let of_several = min_should["conditions"].as_array().into_iter().flatten();
    let met = of_several.filter(|condition| meets(condition)).count() as u64;
    all("must").iter().all(meets)
        && !all("must_not").iter().any(meets)
        && (should.is_empty() || should.iter().any(meets))
        && met >= min_should["min_count"].as_u64().unwrap_or_default()
}

fn meets(condition: &Value, id: &PointId, point: &Point) -> bool {
    if let Some(ids) = condition["has_id"].as_array() {
        return ids.iter().any(|one| point_id(one).as_ref() == Some(id));
    }
    if let Some(key) = condition["is_empty"]["key"].as_str() {
        return values_of(&point.payload, key).is_empty();
    }
    let Some(key) = condition["key"].as_str() else {
        return passes(condition, id, point);
    };
    let values = values_of(&point.payload, key);
    let range = &condition["range"];
    if range.is_object() {
        let within = |value: &f64| {
            range["lte"].as_f64().is_none_or(|most| *value <= most)
                && range["gt"].as_f64().is_none_or(|least| *value > least)
        };
        let mut numbers = values.into_iter().filter_map(Value::as_f64);
        return numbers.any(|value| within(&value));
    }
    let wanted = &condition["match"];
    if let Some(any) = wanted["any"].as_array() {
        return values.iter().any(|value| any.contains(value));
    }
    if let Some(text) = wanted["text"].as_str() {
        return values.iter().any(|value| has_words(value, text));
    }
    values.contains(&&wanted["value"])
}

/// Whether a text has each word of another.
fn has_words(value: &Value, text: &str) -> bool {
    let words = |text: &str| -> BTreeSet<String> {
        let parts = text.split(|c: char| !c.is_alphanumeric());
        let parts = parts.filter(|part| !part.is_empty());
        parts.map(str::to_lowercase).collect()
    };
    words(text).is_subset(&words(value.as_str().unwrap_or_default()))
}
