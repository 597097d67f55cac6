//! Asks Qdrant by its REST API.
//!
//! A collection that toolscout has written has a named vector for each view of each embedder, and the sparse vector
//! [`WORDS`]. Its numbers are our terms, hashed, and its values say how much a term weighs in the tool. A query has the
//! worth of each term, so the product of both is our own score by words. Qdrant's modifier `idf` is not used: the worth
//! has the frequencies of the whole catalog already, also of words that stand for others.

mod query;
mod writing;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use toolscout_base::config::{ExternalIndex, ExternalSettings, FieldMapping};
use toolscout_index::ToolId;

use crate::client::{Body, Client};
use crate::deadline::Deadline;
use crate::engine::{After, Ask, Engine, Hits, Listed, Page, What, Which, Writable};
use crate::failure::{Cause, Failure};
use crate::layout::{Label, Layout, Own, at};

/// The first version with all that is used: metadata of collections, and conditions for upserts.
const LEAST: (u64, u64) = (1, 16);
/// The last major version that the documentation was read of.
const LAST: u64 = 1;
/// The name of the sparse vector.
const WORDS: &str = "words";
/// The name of the only vector of a collection, where it has none of its own.
const UNNAMED: &str = "default";
/// Words whose frequencies are asked for at a time: each takes a request of its own.
const MAX_COUNTED: usize = 24;

/// Points whose names are read at a time to look for a part of a name.
const SCANNED: usize = 5000;

/// A collection of Qdrant.
pub struct Qdrant {
    client: Client,
    collection: String,
    settings: ExternalSettings,
    version: OnceCell<String>,
}

impl Qdrant {
    /// The collection of these settings; nothing is sent yet.
    ///
    /// # Errors
    /// What is wrong with the key.
    pub fn new(settings: &ExternalSettings, index: &ExternalIndex) -> Result<Self, Failure> {
        Ok(Qdrant {
            client: Client::new(settings, index)?,
            collection: index.index.clone(),
            settings: settings.clone(),
            version: OnceCell::new(),
        })
    }

    /// The member `result` of an answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        limit: Duration,
    ) -> Result<Value, Failure> {
        let body = body.map_or(Body::None, Body::Json);
        let mut answer = self.client.ask(method, path, &body, limit).await?;
        match answer.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(Failure::answer("result").at(self.shown())),
        }
    }

    /// Asks about the points of the collection.
    async fn ask_points(&self, what: &str, body: Value, limit: Duration) -> Result<Value, Failure> {
        // Qdrant takes whole seconds, and gives up by itself then.
        let seconds = limit.as_secs_f64().ceil().max(1.0) as u64;
        let path = format!("collections/{}/{what}?timeout={seconds}", self.collection);
        self.ask(Method::POST, &path, Some(body), limit).await
    }

    /// What is said about a collection, by its name or that of an alias; `None` if there is none.
    async fn described(&self, name: &str, limit: Duration) -> Result<Option<Value>, Failure> {
        let path = format!("collections/{name}");
        match self.ask(Method::GET, &path, None, limit).await {
            Err(failure) if failure.is_missing() => Ok(None),
            described => described.map(Some),
        }
    }

    async fn checked_version(&self, limit: Duration) -> Result<String, Failure> {
        let root = match self.client.ask(Method::GET, "", &Body::None, limit).await {
            // A key for one collection may not ask for it.
            Err(failure) if failure.cause == Cause::Key && failure.lacks_privilege => {
                return Ok("of unknown version".to_owned());
            }
            root => root?,
        };
        let at = |failure: Failure| failure.at(self.shown());
        let title = root["title"].as_str().unwrap_or_default();
        let Some(number) = root["version"]
            .as_str()
            .filter(|_| title.contains("qdrant"))
        else {
            let reason = "it is not Qdrant; check the address, and write its REST port";
            return Err(at(Failure::new(Cause::Version, reason)));
        };
        let mut parts = number
            .split(['.', '-'])
            .map_while(|part| part.parse::<u64>().ok());
        let found = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        if found < LEAST || found.0 > LAST {
            let reason = format!(
                "it is Qdrant {number}; toolscout needs {}.{} to {LAST}",
                LEAST.0, LEAST.1
            );
            return Err(at(Failure::new(Cause::Version, reason)));
        }
        Ok(number.to_owned())
    }

    /// The number of the point behind which a page begins.
    async fn point_of(
        &self,
        layout: &Layout,
        id: &str,
        limit: Duration,
    ) -> Result<Option<Value>, Failure> {
        let Layout::Mapped(_) = layout else {
            return Ok(Some(query::point(id).into()));
        };
        let Ok(id) = ToolId::parse(id) else {
            return Ok(None);
        };
        let filter = query::of_ids(layout, std::slice::from_ref(&id));
        let scroll = json!({ "filter": filter, "limit": 1, "with_payload": false });
        let mut found = self.ask_points("points/scroll", scroll, limit).await?;
        Ok(Some(found["points"][0]["id"].take()).filter(|id| !id.is_null()))
    }

    /// Asks for several searches by one request, which fails as a whole.
    async fn batch(&self, searches: Vec<Value>, limit: Duration) -> Result<Vec<Hits>, Failure> {
        if searches.is_empty() {
            return Ok(Vec::new());
        }
        let count = searches.len();
        let batch = json!({ "searches": searches });
        let answer = self.ask_points("points/query/batch", batch, limit).await?;
        let all = answer.as_array().filter(|all| all.len() == count);
        let all = all.ok_or_else(|| Failure::answer("result for each search"))?;
        let mut hits = Vec::with_capacity(count);
        for found in all {
            hits.push(Hits {
                ids: numbers(&found["points"]),
                total: None,
            });
        }
        Ok(hits)
    }

    async fn counted(&self, filter: Value, limit: Duration) -> Result<u64, Failure> {
        let count = json!({ "filter": filter, "exact": true });
        let answer = self.ask_points("points/count", count, limit).await?;
        answer["count"]
            .as_u64()
            .ok_or_else(|| Failure::answer("count").at(self.shown()))
    }

    async fn scroll(
        &self,
        layout: &Layout,
        mut scroll: Value,
        limit: Duration,
    ) -> Result<Page, Failure> {
        scroll["with_payload"] = query::with_payload(layout);
        scroll["with_vector"] = query::with_vector(layout);
        let mut answer = self.ask_points("points/scroll", scroll, limit).await?;
        let Value::Array(points) = answer["points"].take() else {
            return Err(Failure::answer("points").at(self.shown()));
        };
        let next = answer["next_page_offset"].take();
        Ok(Page {
            documents: points
                .into_iter()
                .map(|point| document(layout, point))
                .collect(),
            next: (!next.is_null()).then_some(next),
        })
    }
}

impl Qdrant {
    /// A page of the points with this part in their name. Qdrant looks for whole words only, so names are read, and
    /// there may be fewer of them on a page than it could have.
    async fn scan(
        &self,
        layout: &Layout,
        mut scroll: Value,
        part: &str,
        limit: Duration,
    ) -> Result<Page, Failure> {
        let deadline = Deadline::of(limit);
        let size = scroll["limit"].as_u64().unwrap_or_default() as usize;
        let part = part.to_lowercase();
        scroll["limit"] = SCANNED.into();
        scroll["with_payload"] = json!([layout.order()]);
        let mut answer = self.ask_points("points/scroll", scroll, limit).await?;
        let points = answer["points"].as_array();
        let points = points.ok_or_else(|| Failure::answer("points").at(self.shown()))?;
        let (mut found, mut next) = (Vec::new(), None);
        for point in points {
            let name = at(&point["payload"], layout.order()).as_str();
            if !name.is_some_and(|name| name.to_lowercase().contains(&part)) {
                continue;
            }
            if found.len() == size {
                next = Some(point["id"].clone());
                break;
            }
            found.extend(number(point));
        }
        if next.is_none() {
            let offset = answer["next_page_offset"].take();
            next = (!offset.is_null()).then_some(offset);
        }
        let documents = match found.is_empty() {
            true => Vec::new(),
            false => self.documents(layout, &found, deadline.left()).await?,
        };
        Ok(Page { documents, next })
    }
}

#[async_trait]
impl Engine for Qdrant {
    fn product(&self) -> &'static str {
        "Qdrant"
    }

    fn index(&self) -> &str {
        &self.collection
    }

    fn shown(&self) -> &str {
        self.client.shown()
    }

    fn timeout(&self) -> Duration {
        self.settings.timeout()
    }

    async fn version(&self, limit: Duration) -> Result<String, Failure> {
        let check = || self.checked_version(limit);
        Ok(self.version.get_or_try_init(check).await?.clone())
    }

    async fn layout(&self, limit: Duration) -> Result<(Layout, u64), Failure> {
        let at = |failure: Failure| failure.at(self.shown());
        let Some(described) = self.described(&self.collection, limit).await? else {
            let reason = "there is no such collection; fill it with `toolscout external write`, or name another";
            return Err(at(Failure::new(Cause::Missing, reason)));
        };
        let own = Own::read(&described["config"]["metadata"]).map_err(at)?;
        match (&self.settings.fields, own) {
            (Some(fields), _) => {
                check_fields(fields, &described).map_err(at)?;
                let mut fields = fields.clone();
                fields.vector = fields.vector.map(|name| vector_name(&described, name));
                Ok((Layout::Mapped(Box::new(fields)), 0))
            }
            (None, Some((own, generation))) => Ok((Layout::Own(own), generation)),
            (None, None) => Err(at(Failure::new(
                Cause::Request,
                "toolscout has not written this collection; name its fields in the table fields",
            ))),
        }
    }

    async fn find(
        &self,
        layout: &Layout,
        asks: &[Ask<'_>],
        limit: Duration,
    ) -> Result<Vec<Result<Hits, Failure>>, Failure> {
        // One search that fails takes those of its request with it, so vectors are asked for apart.
        let (mut near, mut others) = (Vec::new(), Vec::new());
        let (mut of_near, mut of_others) = (Vec::new(), Vec::new());
        let mut counted = None;
        for (place, ask) in asks.iter().enumerate() {
            let is_near = matches!(ask.what, What::Near { .. });
            let (searches, places) = match is_near {
                true => (&mut near, &mut of_near),
                false => (&mut others, &mut of_others),
            };
            if matches!(ask.what, What::All) {
                counted = Some((place, query::filter(layout, &ask.passing)));
            }
            for search in query::searches(layout, ask) {
                searches.push(search);
                places.push(place);
            }
        }
        let count = async {
            match counted.clone() {
                Some((_, filter)) => self.counted(filter, limit).await.map(Some),
                None => Ok(None),
            }
        };
        let (near, others, count) =
            tokio::join!(self.batch(near, limit), self.batch(others, limit), count);
        let mut all: Vec<Result<Hits, Failure>> = Vec::with_capacity(asks.len());
        all.resize_with(asks.len(), || Ok(Hits::default()));
        if let (Err(failure), Err(_)) = (&near, &others) {
            return Err(failure.clone());
        }
        put(near, &of_near, &mut all);
        put(others, &of_others, &mut all);
        if let Some((place, _)) = counted {
            match (count, &mut all[place]) {
                (Ok(total), Ok(hits)) => hits.total = total,
                (Err(failure), hits) => *hits = Err(failure),
                (Ok(_), Err(_)) => {}
            }
        }
        Ok(all)
    }

    async fn documents(
        &self,
        layout: &Layout,
        ids: &[String],
        limit: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let mut points = Vec::with_capacity(ids.len());
        for id in ids {
            points.push(number_of(id));
        }
        let asked = json!({
            "ids": points, "with_payload": query::with_payload(layout), "with_vector": query::with_vector(layout),
        });
        let answer = self.ask_points("points", asked, limit).await?;
        let Value::Array(points) = answer else {
            return Err(Failure::answer("points").at(self.shown()));
        };
        let mut found = HashMap::with_capacity(points.len());
        for point in points {
            if let Some(id) = number(&point) {
                found.insert(id, document(layout, point));
            }
        }
        // They come in any order.
        Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
    }

    async fn page(
        &self,
        layout: &Layout,
        listed: &Listed<'_>,
        limit: Duration,
    ) -> Result<Page, Failure> {
        let deadline = Deadline::of(limit);
        let mut filter = query::filter(layout, &listed.passing);
        query::restrict(&mut filter, layout, listed);
        let mut scroll = json!({ "limit": listed.size });
        match listed.after {
            After::Nothing => {}
            After::Page(next) => scroll["offset"] = next.clone(),
            After::Tool(id) => match self.point_of(layout, id, limit).await? {
                Some(point) => {
                    // A page begins at this point, which was on the one before.
                    query::without(&mut filter, &point);
                    scroll["offset"] = point;
                }
                None => {
                    let reason =
                        format!("it has no tool {id:?} any more; begin with the first page");
                    return Err(Failure::new(Cause::Request, reason).at(self.shown()));
                }
            },
        }
        scroll["filter"] = filter;
        let limit = deadline.left();
        match listed.part {
            "" => self.scroll(layout, scroll, limit).await,
            part => self.scan(layout, scroll, part, limit).await,
        }
    }

    async fn sample(
        &self,
        layout: &Layout,
        from: Option<&Value>,
        size: usize,
        limit: Duration,
    ) -> Result<Page, Failure> {
        // The numbers of our points are hashes, so their order is as good as any.
        let mut scroll = json!({ "limit": size });
        if let Some(from) = from {
            scroll["offset"] = from.clone();
        }
        self.scroll(layout, scroll, limit).await
    }

    async fn frequencies(
        &self,
        layout: &Layout,
        terms: &[(String, String)],
        limit: Duration,
    ) -> Result<HashMap<String, u64>, Failure> {
        let mut asked = Vec::new();
        for (term, word) in terms.iter().take(MAX_COUNTED) {
            let filter = query::with_word(layout, term, word);
            asked.push(async move { (term, self.counted(filter, limit).await) });
        }
        let mut frequencies = HashMap::with_capacity(asked.len());
        for (term, count) in join_all(asked).await {
            frequencies.insert(term.clone(), count?);
        }
        Ok(frequencies)
    }

    async fn count(&self, layout: &Layout, which: Which, limit: Duration) -> Result<u64, Failure> {
        let filter = match which {
            Which::All => json!({}),
            Which::Tools => query::only_tools(layout),
        };
        self.counted(filter, limit).await
    }

    async fn values(
        &self,
        layout: &Layout,
        label: Label,
        most: usize,
        limit: Duration,
    ) -> Result<Vec<(String, usize)>, Failure> {
        let Some(field) = layout.label(label) else {
            return Ok(Vec::new());
        };
        let facet = json!({
            "key": field, "limit": most.max(1), "exact": true, "filter": query::only_tools(layout),
        });
        let answer = self.ask_points("facet", facet, limit).await?;
        let hits = answer["hits"].as_array();
        let mut counts = Vec::new();
        for hit in hits.into_iter().flatten() {
            if let (Some(value), Some(count)) = (hit["value"].as_str(), hit["count"].as_u64()) {
                counts.push((value.to_owned(), count as usize));
            }
        }
        Ok(counts)
    }

    async fn bytes(&self, _limit: Duration) -> Option<u64> {
        // Its API tells the bytes of no collection.
        None
    }

    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }
}

/// The numbers of points.
fn numbers(points: &Value) -> Vec<String> {
    let points = points.as_array().into_iter().flatten();
    points.filter_map(number).collect()
}

/// The number of a point, which is an integer or a UUID.
fn number(point: &Value) -> Option<String> {
    match &point["id"] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The same as Qdrant has it.
fn number_of(id: &str) -> Value {
    match id.parse::<u64>() {
        Ok(number) => number.into(),
        Err(_) => id.into(),
    }
}

/// What makes a tool of a point: its payload, with its vector among the fields.
fn document(layout: &Layout, mut point: Value) -> Value {
    let mut document = point["payload"].take();
    if let Layout::Mapped(fields) = layout
        && let Some(name) = &fields.vector
    {
        let mut vectors = point["vector"].take();
        let vector = match vectors.is_array() {
            true => vectors,
            false => vectors[name].take(),
        };
        if document.is_object() {
            document[name] = vector;
        }
    }
    document
}

/// Puts what a request has found to the searches that it had. Several may be of one.
fn put(answer: Result<Vec<Hits>, Failure>, places: &[usize], all: &mut [Result<Hits, Failure>]) {
    match answer {
        Ok(found) => {
            for (place, hits) in places.iter().zip(found) {
                if let Ok(before) = &mut all[*place] {
                    before.ids.extend(hits.ids);
                }
            }
        }
        Err(failure) => {
            for place in places {
                all[*place] = Err(failure.clone());
            }
        }
    }
}

/// The vectors of a collection, by name; one without a name has [`UNNAMED`].
fn vector_config<'a>(described: &'a Value, name: &str) -> &'a Value {
    let vectors = &described["config"]["params"]["vectors"];
    match vectors["size"].is_number() {
        true if name == UNNAMED => vectors,
        true => &Value::Null,
        false => &vectors[name],
    }
}

/// The name of a vector in requests: none for one without a name.
fn vector_name(described: &Value, name: String) -> String {
    let is_unnamed = described["config"]["params"]["vectors"]["size"].is_number();
    match is_unnamed {
        true => String::new(),
        false => name,
    }
}

/// Whether a collection that somebody else fills has what the owner names.
fn check_fields(fields: &FieldMapping, described: &Value) -> Result<(), Failure> {
    let refused = |reason: String| Err(Failure::new(Cause::Request, reason));
    let Some(name) = &fields.vector else {
        return Ok(());
    };
    let vector = vector_config(described, name);
    if vector.is_null() {
        return refused(format!(
            "it has no vector {name:?}, which fields.vector names; name one that it has, or {UNNAMED:?} for its only one"
        ));
    }
    match vector["distance"].as_str() {
        Some("Cosine" | "Dot") => {}
        other => {
            let distance = other.unwrap_or("unknown");
            return refused(format!(
                "its vector {name:?} has the distance {distance}, and has to have Cosine or Dot; name another in \
                 fields.vector"
            ));
        }
    }
    if !vector["multivector_config"].is_null() {
        return refused(format!(
            "its vector {name:?} has several vectors for each point; name another in fields.vector"
        ));
    }
    Ok(())
}
