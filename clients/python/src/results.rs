//! The answer to a search.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use serde_json::json;
use toolscout::budget;
use toolscout::printable::short_floats;
use toolscout_index::formats::{self, Emit};
use toolscout_index::{ToolId, hit};

use crate::argument;
use crate::convert::{decimal, html_table, quoted, to_python};
use crate::errors::{OrRaise, invalid_query};
use crate::tool::Tool;

/// One found tool.
#[pyclass(module = "toolscout", frozen)]
pub struct Hit {
    hit: hit::Hit,
}

#[pymethods]
impl Hit {
    /// The tool's id, `server/name`.
    #[getter]
    fn id(&self) -> &str {
        self.hit.id.as_str()
    }

    /// The name within its server.
    #[getter]
    fn name(&self) -> &str {
        self.hit.id.name()
    }

    /// The server; empty for a tool without one.
    #[getter]
    fn server(&self) -> &str {
        self.hit.id.server()
    }

    /// The name under which a model calls it.
    #[getter]
    fn model_name(&self) -> String {
        formats::model_name(&self.hit.id)
    }

    /// What the tool does.
    #[getter]
    fn description(&self) -> String {
        self.hit.tool.shown_description()
    }

    /// Comparable within one answer only. A match by content reaches at most 1; exact names score
    /// higher.
    #[getter]
    fn score(&self) -> f64 {
        decimal(self.hit.score)
    }

    /// What it is: `tool`, unless the search asked for other kinds.
    #[getter]
    fn kind(&self) -> &'static str {
        self.hit.kind.as_str()
    }

    /// The positions of the texts of the query that found it.
    #[getter]
    fn matched_queries(&self) -> Vec<usize> {
        self.hit.matched_queries.clone()
    }

    /// The part of the request that it serves, if the request has several needs.
    #[getter]
    fn serves(&self) -> Option<&str> {
        self.hit.serves.as_deref()
    }

    /// The ids of its near-duplicates on other servers, with `fold_duplicates`.
    #[getter]
    fn also_on(&self) -> Vec<&str> {
        self.hit.also_on.iter().map(ToolId::as_str).collect()
    }

    /// For a tool that is here because another hit needs what it finds: `id` and `parameter` of that
    /// hit, and the `reason`.
    #[getter]
    fn companion_of<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.hit.companion_of)
    }

    /// How it got its score, with `explain`.
    #[getter]
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.hit.explain)
    }

    /// The whole definition.
    #[getter]
    fn tool(&self) -> Tool {
        Tool::new(self.hit.tool.shared())
    }

    /// Its fields, as the HTTP API writes them.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.json())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let score = decimal(self.hit.score);
        format!("Hit(id={}, score={score:.4})", quoted(py, self.id()))
    }
}

impl Hit {
    fn json(&self) -> serde_json::Value {
        let mut json = short_floats(&self.hit);
        json["name"] = json!(self.hit.id.name());
        json["server"] = json!(self.hit.id.server());
        json["description"] = json!(self.hit.tool.shown_description());
        json
    }
}

/// The answer to a search: the hits, best first, and how they were found. It does not change.
#[pyclass(module = "toolscout", frozen)]
pub struct Results {
    hits: Vec<Py<Hit>>,
    /// Without its hits, which are above.
    answer: toolscout_index::Results,
    texts: Vec<String>,
}

impl Results {
    /// The texts of the query.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The ids of the hits.
    pub fn hit_ids(&self) -> Vec<String> {
        let hits = self.hits.iter();
        hits.map(|hit| hit.get().hit.id.to_string()).collect()
    }

    /// The answer to these texts, for Python.
    pub fn new(
        py: Python<'_>,
        texts: Vec<String>,
        mut answer: toolscout_index::Results,
    ) -> PyResult<Self> {
        let hits = std::mem::take(&mut answer.hits);
        let hits = hits.into_iter().map(|hit| Py::new(py, Hit { hit }));
        Ok(Results {
            hits: hits.collect::<PyResult<_>>()?,
            answer,
            texts,
        })
    }
}

#[pymethods]
impl Results {
    /// The hits, best first.
    #[getter]
    fn hits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.hits)
    }

    /// The ids of the hits, best first.
    #[getter]
    fn ids(&self) -> Vec<&str> {
        self.hits.iter().map(|hit| hit.get().id()).collect()
    }

    /// The texts of the query.
    #[getter]
    fn queries(&self) -> Vec<String> {
        self.texts.clone()
    }

    /// The legs that answered: lexical, dense or hybrid.
    #[getter]
    fn mode(&self) -> &'static str {
        self.answer.mode.name()
    }

    /// How much of the pipeline was run.
    #[getter]
    fn variant(&self) -> String {
        self.answer.variant.to_string()
    }

    /// The ids of the embedders that scored the request.
    #[getter]
    fn embedders(&self) -> Vec<String> {
        self.answer.embedders.clone()
    }

    /// Set when something that was asked for could not take part: code, reason and
    /// pending_embeddings.
    #[getter]
    fn degraded<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.answer.degraded)
    }

    /// Set when nothing matches: code, reason and the nearest ids.
    #[getter]
    fn no_match<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.answer.no_match)
    }

    /// How well the hits serve the request: "good", "possible", or "none" if probably no tool does what
    /// was asked for. With "none" the hits, if there are any, are the nearest tools.
    #[getter(r#match)]
    fn matched(&self) -> &'static str {
        self.answer.matched.as_str()
    }

    /// The same in one sentence, for a model.
    #[getter]
    fn advice(&self) -> &'static str {
        self.answer.advice()
    }

    /// The words of the request that are in no hit and that no hit has a similar word for; for requests in
    /// English whose match is not good.
    #[getter]
    fn unmatched(&self) -> Vec<String> {
        self.answer.unmatched.clone()
    }

    /// The number of tools that match better by every leg than any hit, and that the filter leaves out.
    #[getter]
    fn better_hidden(&self) -> usize {
        self.answer.better_hidden
    }

    /// The probability, 0 to 1, that one of the first five hits is right; `None` for legs that no
    /// model was trained for.
    #[getter]
    fn confidence(&self) -> Option<f64> {
        self.answer.confidence.map(decimal)
    }

    /// How close the best tool is: coverage and cosine.
    #[getter]
    fn signals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.answer.signals)
    }

    /// The time of each stage in milliseconds.
    #[getter]
    fn timings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.answer.timings)
    }

    /// The generation of the catalog that answered.
    #[getter]
    fn generation(&self) -> u64 {
        self.answer.generation
    }

    /// The found tools in a provider's format, for the `tools` of a request to a model: openai,
    /// openai_responses, anthropic, anthropic_reference, names or signature (lists), or mcp (a
    /// dict). `max_tokens` limits their tokens (o200k): whole definitions first, shortened ones
    /// below.
    #[pyo3(signature = (format, *, max_tokens=None))]
    fn tools<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::format)] format: String,
        #[pyo3(from_py_with = argument::max_tokens)] max_tokens: Option<i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let emit = format.parse::<Emit>().or_raise(py)?;
        let tools: Vec<_> = self
            .hits
            .iter()
            .map(|hit| hit.get().hit.tool.shared())
            // A model can call nothing else.
            .filter(|tool| tool.kind.is_tool())
            .collect();
        let Some(max_tokens) = max_tokens else {
            let all: Vec<_> = tools.iter().map(Arc::as_ref).collect();
            return to_python(py, &formats::emit(&all, emit));
        };
        let allowed = budget::MIN_TOKENS as i64..=budget::MAX_TOKENS as i64;
        if !allowed.contains(&max_tokens) {
            let (least, most) = (allowed.start(), allowed.end());
            let message = format!("max_tokens is {max_tokens}, it must be from {least} to {most}");
            return Err(invalid_query(py, message));
        }
        let fitted = py.detach(|| budget::fit(&tools, emit, max_tokens as usize));
        to_python(py, &fitted.value)
    }

    /// The answer as dicts and lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut json = short_floats(&self.answer);
        let hits = self.hits.iter().map(|hit| hit.get().json());
        json["hits"] = hits.collect();
        json["queries"] = json!(self.texts);
        to_python(py, &json)
    }

    fn __len__(&self) -> usize {
        self.hits.len()
    }

    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        index: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A slice, or an index from the end.
        PyList::new(py, &self.hits)?.as_any().get_item(index)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyTuple::new(py, &self.hits)?.try_iter()?.into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let texts: Vec<String> = self.texts.iter().map(|text| quoted(py, text)).collect();
        let hits: Vec<String> = self.hits.iter().map(|hit| hit.get().__repr__(py)).collect();
        let mut repr = format!("Results({}: [{}]", texts.join(", "), hits.join(", "));
        if let Some(no_match) = &self.answer.no_match {
            repr += &format!(", no match: {}", no_match.reason);
        }
        repr + ")"
    }

    fn _repr_html_(&self) -> String {
        let mut rows = Vec::new();
        for (index, hit) in self.hits.iter().enumerate() {
            let hit = hit.get();
            rows.push(vec![
                (index + 1).to_string(),
                format!("{:.3}", hit.hit.score),
                hit.id().to_owned(),
                formats::first_sentence(&hit.hit.tool.shown_description()),
            ]);
        }
        let mut caption = format!("{} · {}", self.texts.join(" · "), self.answer.mode);
        if let Some(confidence) = self.answer.confidence {
            caption += &format!(" · confidence {confidence:.2}");
        }
        if let Some(no_match) = &self.answer.no_match {
            caption += &format!(" · no match: {}", no_match.reason);
        }
        if let Some(degraded) = &self.answer.degraded {
            caption += &format!(" · degraded: {}", degraded.cause);
        }
        html_table(&caption, &["", "score", "tool", "what it does"], &rows)
    }
}
