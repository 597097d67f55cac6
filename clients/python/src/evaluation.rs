//! Judged queries, and how well a catalog answers them.

use std::sync::Arc;

use pyo3::prelude::*;
use toolscout::eval::answered::{Answer, AnsweredQuery, DEPTH, figures};
use toolscout::eval::dataset::pasted;
use toolscout::eval::latency::Latency;
use toolscout::eval::metrics::{Metric, default_depths};
use toolscout_index::{Query, Searcher, ToolId};

use crate::convert::{html_table, to_python};
use crate::errors::OrRaise;

/// Queries between two looks for Ctrl-C.
const STEP: usize = 20;

/// A metric over all judged queries.
#[pyclass(module = "toolscout", frozen, get_all)]
pub struct Figure {
    /// Its mean, 0 to 1.
    mean: f64,
    /// The lower end of the 95% bootstrap interval of the mean.
    low: f64,
    /// Its upper end.
    high: f64,
}

#[pymethods]
impl Figure {
    fn __float__(&self) -> f64 {
        self.mean
    }

    fn __repr__(&self) -> String {
        format!(
            "Figure({:.4}, 95% {:.4} to {:.4})",
            self.mean, self.low, self.high
        )
    }
}

/// How well a catalog answers judged queries.
#[pyclass(module = "toolscout", frozen)]
pub struct Evaluation {
    figures: Vec<(String, Py<Figure>)>,
    queries: Vec<AnsweredQuery>,
    latency: Latency,
    tools: usize,
}

impl Evaluation {
    /// Searches for each query of a text, as `toolscout eval` does in the mode of the query.
    ///
    /// # Errors
    /// `invalid_queries` that names the line, errors of the engine, and what `signals` raises.
    pub fn of(
        py: Python<'_>,
        searcher: &Arc<Searcher>,
        text: &str,
        query: &dyn Fn(&str) -> Query,
    ) -> PyResult<Self> {
        let ids: Vec<ToolId> = searcher.ids_after(None).cloned().collect();
        let pasted = py.detach(|| pasted::read(text, None, &ids)).or_raise(py)?;
        let (mut queries, mut timings) = (Vec::new(), Vec::new());
        for (number, asked) in pasted.into_iter().enumerate() {
            if number % STEP == 0 {
                py.check_signals()?;
            }
            let query = query(&asked.text).k(DEPTH);
            let results = py.detach(|| searcher.search(&query)).or_raise(py)?;
            timings.push(results.timings);
            let answer = Answer::of_results(&results, asked.relevant.as_deref());
            queries.push(AnsweredQuery::new(asked, vec![answer]));
        }
        let (depths, _) = default_depths(ids.len());
        let mut named = Vec::new();
        for figure in py.detach(|| figures(&queries, 0, &Metric::all(&depths))) {
            let of_metric = Figure {
                mean: figure.mean,
                low: figure.ci95[0],
                high: figure.ci95[1],
            };
            named.push((figure.metric, Py::new(py, of_metric)?));
        }
        Ok(Evaluation {
            figures: named,
            queries,
            latency: Latency::over(&timings),
            tools: ids.len(),
        })
    }

    /// Queries that have relevant tools.
    fn judged(&self) -> usize {
        let is_judged =
            |query: &&AnsweredQuery| query.relevant.as_ref().is_some_and(|ids| !ids.is_empty());
        self.queries.iter().filter(is_judged).count()
    }

    fn caption(&self) -> String {
        let (queries, judged) = (self.queries.len(), self.judged());
        format!(
            "{queries} queries, {judged} judged, over {} tools",
            self.tools
        )
    }
}

#[pymethods]
impl Evaluation {
    /// The figures by metric, such as `ndcg@10`; empty without a judged query.
    #[getter]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
        let metrics = pyo3::types::PyDict::new(py);
        for (metric, figure) in &self.figures {
            metrics.set_item(metric, figure)?;
        }
        Ok(metrics)
    }

    /// The figure of one metric.
    fn __getitem__(&self, py: Python<'_>, metric: &str) -> PyResult<Py<Figure>> {
        let found = self.figures.iter().find(|(name, _)| name == metric);
        found
            .map(|(_, figure)| figure.clone_ref(py))
            .ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(metric.to_owned()))
    }

    /// Each query with its answer: id, text, relevant, and answers with hits, ranks, no_match and
    /// degraded.
    #[getter]
    fn queries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.queries)
    }

    /// Percentiles of the time of a search by stage, in milliseconds.
    #[getter]
    fn latency<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.latency)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let figures = self.figures.iter();
        let figures =
            figures.map(|(metric, figure)| format!("{metric} {:.4}", figure.borrow(py).mean));
        let figures: Vec<String> = figures.collect();
        format!("Evaluation({}: {})", self.caption(), figures.join(", "))
    }

    fn _repr_html_(&self, py: Python<'_>) -> String {
        let mut rows = Vec::new();
        for (metric, figure) in &self.figures {
            let figure = figure.borrow(py);
            let interval = format!("{:.4} to {:.4}", figure.low, figure.high);
            rows.push(vec![
                metric.clone(),
                format!("{:.4}", figure.mean),
                interval,
            ]);
        }
        html_table(&self.caption(), &["metric", "mean", "95% interval"], &rows)
    }
}
