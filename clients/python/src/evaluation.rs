//! Judged queries, and how well a catalog answers them.

use pyo3::prelude::*;
use toolscout::eval::answered::AnsweredQuery;
use toolscout_index::Mode;
use toolscout_native::evaluation::{self, evaluate};
use toolscout_native::opening::Open;

use crate::argument;
use crate::convert::{html_table, to_python};
use crate::errors::OrRaise;

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
    evaluation: evaluation::Evaluation,
}

impl Evaluation {
    /// Measures with the queries of a text.
    ///
    /// # Errors
    /// `invalid_queries` that names the line, errors of the engine, and what a signal raises.
    pub fn of(
        py: Python<'_>,
        open: &Open,
        text: &str,
        mode: Option<Mode>,
        ranker: bool,
    ) -> PyResult<Self> {
        let mut raised = None;
        let mut is_ended = || {
            raised = Python::attach(|py| py.check_signals()).err();
            raised.is_some()
        };
        let evaluated = py.detach(|| evaluate(open, text, mode, ranker, &mut is_ended));
        if let Some(error) = raised {
            return Err(error);
        }
        let evaluation = evaluated.or_raise(py)?;
        let mut named = Vec::new();
        for figure in &evaluation.figures {
            let [low, high] = figure.ci95;
            let of_metric = Figure {
                mean: figure.mean,
                low,
                high,
            };
            named.push((figure.metric.clone(), Py::new(py, of_metric)?));
        }
        Ok(Evaluation {
            figures: named,
            evaluation,
        })
    }

    /// Queries that have relevant tools.
    fn judged(&self) -> usize {
        let is_judged =
            |query: &&AnsweredQuery| query.relevant.as_ref().is_some_and(|ids| !ids.is_empty());
        self.evaluation.queries.iter().filter(is_judged).count()
    }

    fn caption(&self) -> String {
        let (queries, judged) = (self.evaluation.queries.len(), self.judged());
        let tools = self.evaluation.tools;
        format!("{queries} queries, {judged} judged, over {tools} tools")
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
    fn __getitem__(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::metric)] metric: String,
    ) -> PyResult<Py<Figure>> {
        let found = self.figures.iter().find(|(name, _)| *name == metric);
        found
            .map(|(_, figure)| figure.clone_ref(py))
            .ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(metric))
    }

    /// Each query with its answer: id, text, relevant, and answers with hits, ranks, no_match and
    /// degraded.
    #[getter]
    fn queries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.evaluation.queries)
    }

    /// Percentiles of the time of a search by stage, in milliseconds.
    #[getter]
    fn latency<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.evaluation.latency)
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
