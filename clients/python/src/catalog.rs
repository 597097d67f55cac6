//! An open catalog.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Duration;

use pyo3::exceptions::{PyDeprecationWarning, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyType};
use serde_json::{Value, json};
use toolscout_index::query::MAX_K;
use toolscout_index::{
    Changes as EngineChanges, EmbedProgress, Filter, Kind, Query, SearchOptions, Searcher, ToolId,
    Writer,
};
use toolscout_native::input::{self, Invalid, Reader, Selection};
use toolscout_native::opening::{self, Opening};
use toolscout_native::owner;

use crate::argument::{self, wrong_type};
use crate::changes::{Changes, Skipped};
use crate::convert::{quoted, to_python, tool_id};
use crate::errors::{CLOSED, OrRaise, error, invalid_query};
use crate::evaluation::Evaluation;
use crate::input::Input;
use crate::opening::Open;
use crate::process;
use crate::results::Results;
use crate::tool::{Tool, ToolIterator};

/// How often a thread looks whether another one has written.
const TURN: Duration = Duration::from_millis(20);
/// Tools that are stored between two looks for Ctrl-C.
const STORE_BATCH: usize = 200;
/// Nothing is added if a tool is invalid.
const REFUSE: Invalid = Invalid::Refuse("skip_invalid=True");

/// An open catalog: tools on disk, and search in them.
///
/// Any number of threads may use it; Python's lock is released while the engine works. What another
/// process has written is seen by the next search. Writers take turns. `with` closes it at the end.
#[pyclass(module = "toolscout", frozen, weakref)]
pub struct Catalog {
    open: RwLock<Option<Arc<Open>>>,
    /// The thread that writes.
    writer: Mutex<Option<ThreadId>>,
    name: String,
    path: PathBuf,
}

#[pymethods]
impl Catalog {
    /// Opens a catalog as the command line does: `path` is the data directory (`--data`), `name` the
    /// catalog in it, `embedder` its embedders, `config` the configuration file. What is not given
    /// comes from the environment, the file and the defaults of the program.
    #[staticmethod]
    #[pyo3(signature = (path=None, *, name=None, embedder=None, config=None, create=true))]
    fn open(
        py: Python<'_>,
        #[pyo3(from_py_with = argument::path)] path: Option<PathBuf>,
        #[pyo3(from_py_with = argument::name)] name: Option<String>,
        #[pyo3(from_py_with = argument::embedder)] embedder: Option<String>,
        #[pyo3(from_py_with = argument::config)] config: Option<PathBuf>,
        #[pyo3(from_py_with = argument::create)] create: bool,
    ) -> PyResult<Self> {
        let opening = Opening {
            data: path,
            name,
            embedder,
            config,
            create,
            temporary: false,
        };
        Ok(Catalog::of(Open::new(py, opening)?))
    }

    /// Opens an empty catalog in a folder of its own, which is deleted when the catalog is closed.
    #[staticmethod]
    #[pyo3(signature = (*, embedder=None, config=None))]
    fn temporary(
        py: Python<'_>,
        #[pyo3(from_py_with = argument::embedder)] embedder: Option<String>,
        #[pyo3(from_py_with = argument::config)] config: Option<PathBuf>,
    ) -> PyResult<Self> {
        let opening = Opening {
            data: None,
            name: Some("default".to_owned()),
            embedder,
            config,
            create: true,
            temporary: true,
        };
        Ok(Catalog::of(Open::new(py, opening)?))
    }

    /// The catalog's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The catalog's folder.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Whether the catalog was closed.
    #[getter]
    fn closed(&self) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.is_none()
    }

    /// The generation: it grows with every change.
    #[getter]
    fn generation(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.searcher(py)?.generation())
    }

    /// Number of tools that are not embedded yet.
    #[getter]
    fn pending_embeddings(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.searcher(py)?.pending_embeddings())
    }

    /// Closes the catalog. Searches under way finish; later calls raise `catalog_closed`.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            let closed = open.take();
            drop(open);
            // It may close files, or delete a folder.
            drop(closed);
        });
    }

    /// Adds tools, or replaces those with the same id: a dict, an iterable of dicts, JSON, NDJSON or
    /// YAML text, the path of a file or a folder, or a URL; in any format that the program accepts.
    /// `server` is the server of all of them. Nothing is added if one is invalid, unless
    /// `skip_invalid`. Then embeds them, unless `embed` is false; `progress` is called with the number
    /// of texts that are embedded and of all. Ctrl-C before the commit adds nothing, and while
    /// embedding keeps what was embedded.
    ///
    /// `include` and `exclude` select by operation or name, tag, or path (`/pets/*`).
    #[pyo3(signature = (
        tools, *, server=None, skip_invalid=false, include=None, exclude=None, embed=true, progress=None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are keyword arguments in Python"
    )]
    fn add<'py>(
        &self,
        py: Python<'py>,
        tools: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = argument::server)] server: Option<String>,
        #[pyo3(from_py_with = argument::skip_invalid)] skip_invalid: bool,
        include: Option<&Bound<'_, PyAny>>,
        exclude: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::embed)] embed: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Changes> {
        let open = self.opened(py)?;
        let mut input = Input::of(tools)?;
        let progress = callable(py, progress)?;
        let mut writing = self.begin(py, &open)?;
        let invalid = match skip_invalid {
            true => Invalid::Skip,
            false => REFUSE,
        };
        let selection = selection(include, exclude)?;
        let mut reader = Reader::new(server, invalid, open.settings.fetch).selecting(selection);
        let mut changes = EngineChanges::default();
        while input.next(py, &mut reader)? {
            for tools in std::mem::take(&mut reader.tools).chunks(STORE_BATCH) {
                py.check_signals()?;
                let writer = &mut writing.writer;
                let now = py.detach(|| writer.upsert(tools)).or_raise(py)?;
                changes.added.extend(now.added);
                changes.changed.extend(now.changed);
                changes.unchanged += now.unchanged;
            }
        }
        reader.finish().or_raise(py)?;
        let skipped = in_python(py, reader.skipped)?;
        let generation = writing.commit(py)?;
        let changes = Changes::new(changes, skipped, generation);
        if !embed {
            return Ok(changes);
        }
        let embedded = writing.embed(py, progress.as_ref())?;
        Ok(changes.embedded(embedded, open.catalog.searcher().generation()))
    }

    /// Replaces all tools of a server by these, in any form that `add` takes.
    #[pyo3(signature = (server, tools, *, include=None, exclude=None, embed=true, progress=None))]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are keyword arguments in Python"
    )]
    fn sync<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::server)] server: String,
        tools: &Bound<'py, PyAny>,
        include: Option<&Bound<'_, PyAny>>,
        exclude: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::embed)] embed: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Changes> {
        let open = self.opened(py)?;
        let mut input = Input::of(tools)?;
        let progress = callable(py, progress)?;
        let selection = selection(include, exclude)?;
        let mut reader =
            Reader::new(Some(server.clone()), REFUSE, open.settings.fetch).selecting(selection);
        while input.next(py, &mut reader)? {}
        reader.finish().or_raise(py)?;
        let mut writing = self.begin(py, &open)?;
        let writer = &mut writing.writer;
        let changes = py
            .detach(|| writer.sync(&server, &reader.tools))
            .or_raise(py)?;
        let changes = Changes::new(changes, Vec::new(), writing.commit(py)?);
        if !embed {
            return Ok(changes);
        }
        let embedded = writing.embed(py, progress.as_ref())?;
        Ok(changes.embedded(embedded, open.catalog.searcher().generation()))
    }

    /// Removes tools by id: one, or several. Ids that the catalog does not have are left out of
    /// `removed`.
    fn remove(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<Changes> {
        let ids = texts("ids", ids)?;
        let ids = ids.iter().map(|id| tool_id(py, id));
        let ids: Vec<ToolId> = ids.collect::<PyResult<_>>()?;
        let open = self.opened(py)?;
        let mut writing = self.begin(py, &open)?;
        let writer = &mut writing.writer;
        let changes = py.detach(|| writer.remove(&ids)).or_raise(py)?;
        Ok(Changes::new(changes, Vec::new(), writing.commit(py)?))
    }

    /// Embeds the tools that have no vectors yet, and returns the number of texts that were
    /// embedded. `progress` is called with the number of those that are done and of all. Ctrl-C, and
    /// whatever `progress` raises, ends it and keeps what was embedded.
    #[pyo3(signature = (progress=None))]
    fn embed(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<usize> {
        let open = self.opened(py)?;
        let progress = callable(py, progress)?;
        self.begin(py, &open)?.embed(py, progress.as_ref())
    }

    /// Finds the tools that fit a request in plain words, or an exact name; several requests at once
    /// are merged into one list. What is not given comes from the settings, then from the catalog.
    #[pyo3(signature = (
        query, *, limit=None, mode=None, kinds=None, servers=None, tags=None, ids=None, read_only=None, destructive=None,
        explain=false, fold_duplicates=false, whole=false, ranker=true, budget_ms=None, min_confidence=None,
        min_score=None, fusion=None, dense_weight=None, companions=None,
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "they are keyword arguments in Python"
    )]
    fn search(
        &self,
        py: Python<'_>,
        query: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument::limit)] limit: Option<i64>,
        #[pyo3(from_py_with = argument::mode)] mode: Option<String>,
        kinds: Option<&Bound<'_, PyAny>>,
        servers: Option<&Bound<'_, PyAny>>,
        tags: Option<&Bound<'_, PyAny>>,
        ids: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = argument::read_only)] read_only: Option<bool>,
        #[pyo3(from_py_with = argument::destructive)] destructive: Option<bool>,
        #[pyo3(from_py_with = argument::explain)] explain: bool,
        #[pyo3(from_py_with = argument::fold_duplicates)] fold_duplicates: bool,
        #[pyo3(from_py_with = argument::whole)] whole: bool,
        #[pyo3(from_py_with = argument::ranker)] ranker: bool,
        #[pyo3(from_py_with = argument::budget_ms)] budget_ms: Option<f64>,
        #[pyo3(from_py_with = argument::min_confidence)] min_confidence: Option<f32>,
        #[pyo3(from_py_with = argument::min_score)] min_score: Option<f32>,
        #[pyo3(from_py_with = argument::fusion)] fusion: Option<String>,
        #[pyo3(from_py_with = argument::dense_weight)] dense_weight: Option<f32>,
        #[pyo3(from_py_with = argument::companions)] companions: Option<bool>,
    ) -> PyResult<Results> {
        let options = SearchOptions {
            k: limit.map(|limit| checked_limit(py, limit)).transpose()?,
            mode: named(py, mode)?,
            fusion: named(py, fusion)?,
            dense_weight,
            min_score,
            min_confidence,
            companions,
            fold_duplicates: fold_duplicates.then_some(true),
        };
        let kinds = set("kinds", kinds)?;
        let kinds: Result<BTreeSet<Kind>, _> = kinds.iter().map(|kind| kind.parse()).collect();
        let filter = Filter {
            kinds: kinds.or_raise(py)?,
            servers: set("servers", servers)?,
            tags: set("tags", tags)?,
            ids: set("ids", ids)?.into(),
            read_only,
            destructive,
        };
        let open = self.opened(py)?;
        let texts = texts("query", query)?;
        let mut query = Query::any_of(&texts)
            .options(options.or(open.search_defaults()))
            .filter(filter);
        if let Some(budget_ms) = budget_ms {
            query = query.budget_ms(budget_ms);
        }
        if explain {
            query = query.explain();
        }
        if whole {
            query = query.whole();
        }
        if !ranker {
            query = query.without_ranker();
        }
        let answer = py.detach(|| open.newest()?.search(&query)).or_raise(py)?;
        Results::new(py, texts, answer)
    }

    /// Measures how well the catalog answers judged queries: dicts with `query` and `relevant` (ids),
    /// lines of `queries.jsonl`, or the path of such a file. Searches as `search` does with this mode
    /// and ranker.
    #[pyo3(signature = (queries, *, mode=None, ranker=true))]
    fn evaluate(
        &self,
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument::mode)] mode: Option<String>,
        #[pyo3(from_py_with = argument::ranker)] ranker: bool,
    ) -> PyResult<Evaluation> {
        let mode = named(py, mode)?;
        let open = self.opened(py)?;
        let module = py.import("toolscout._input")?;
        let text: String = module
            .getattr("query_lines")?
            .call1((queries,))?
            .extract()?;
        Evaluation::of(py, &open, &text, mode, ranker)
    }

    /// The former name of `evaluate`.
    #[pyo3(signature = (queries, *, mode=None, ranker=true))]
    fn eval(
        &self,
        py: Python<'_>,
        queries: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = argument::mode)] mode: Option<String>,
        #[pyo3(from_py_with = argument::ranker)] ranker: bool,
    ) -> PyResult<Evaluation> {
        let category = py.get_type::<PyDeprecationWarning>();
        let message = c"Catalog.eval is now called Catalog.evaluate";
        PyErr::warn(py, &category, message, 1)?;
        self.evaluate(py, queries, mode, ranker)
    }

    /// Remembers that a tool of these results was used, so that similar requests find it: `recorded`, and
    /// `remembered`, which is false while the usage memory is off.
    fn feedback<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::results)] results: Py<Results>,
        #[pyo3(from_py_with = argument::tool)] tool: String,
    ) -> PyResult<Bound<'py, PyAny>> {
        let open = self.opened(py)?;
        let (queries, hits) = (results.get().texts(), results.get().hit_ids());
        let remembered = py.detach(|| owner::remember(&open, queries, &hits, &tool));
        let remembered = remembered.or_raise(py)?;
        to_python(
            py,
            &json!({ "recorded": remembered, "remembered": remembered }),
        )
    }

    /// The entries of the usage memory: requests and the tools that were used for them.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.answer(py, owner::memory)
    }

    /// Switches the usage memory on or off; its entries stay.
    fn set_memory<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::enabled)] enabled: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.answer(py, |open| owner::set_memory(open, enabled))
    }

    /// Deletes entries of the usage memory: those of a tool, those of a request, or all.
    #[pyo3(signature = (*, tool=None, query=None))]
    fn forget<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = argument::tool)] tool: Option<String>,
        #[pyo3(from_py_with = argument::query)] query: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.answer(py, |open| owner::forget(open, tool, query))
    }

    /// The owner's words: aliases, synonyms, pins, boosts and descriptions.
    fn words<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.answer(py, owner::words)
    }

    /// The servers: `name` and the number of `tools`.
    fn servers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.answer(py, owner::servers)
    }

    /// Replaces the owner's words.
    fn set_words<'py>(
        &self,
        py: Python<'py>,
        words: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.write_words(py, words, false)
    }

    /// Changes the owner's words by a JSON merge patch: `None` removes an entry.
    fn patch_words<'py>(
        &self,
        py: Python<'py>,
        patch: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.write_words(py, patch, true)
    }

    /// The settings: the defaults of searches.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.answer(py, owner::settings)
    }

    /// Replaces the settings.
    fn set_settings<'py>(
        &self,
        py: Python<'py>,
        settings: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let document = document("settings", settings)?;
        let open = self.opened(py)?;
        let _turn = Turn::take(py, &self.writer)?;
        let written = py.detach(|| owner::set_settings(&open, &document));
        to_python(py, &written.or_raise(py)?)
    }

    /// The tools, in the order of their ids, as the catalog is now: all, or those of servers and with
    /// tags.
    #[pyo3(signature = (*, servers=None, tags=None))]
    fn tools(
        &self,
        py: Python<'_>,
        servers: Option<&Bound<'_, PyAny>>,
        tags: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ToolIterator> {
        let filter = Filter {
            servers: set("servers", servers)?,
            tags: set("tags", tags)?,
            ..Filter::default()
        };
        Ok(ToolIterator::new(self.searcher(py)?, filter))
    }

    /// The tool with this id; `None` where there is none.
    fn get(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::id)] id: String,
    ) -> PyResult<Option<Tool>> {
        let id = tool_id(py, &id)?;
        Ok(self.searcher(py)?.tool(&id).map(Tool::new))
    }

    /// Sizes: tools, servers, generation, vectors, pending_embeddings and disk_bytes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.opened(py)?;
        let stats = py.detach(|| {
            open.newest()?;
            open.catalog.stats()
        });
        let stats = to_python(py, &stats.or_raise(py)?)?;
        // Pairs of name and count.
        for key in ["servers", "vectors"] {
            let pairs = stats.get_item(key)?;
            let pairs = pairs.cast::<PyList>()?;
            stats.set_item(key, PyDict::from_sequence(pairs.as_any())?)?;
        }
        Ok(stats)
    }

    fn __getitem__(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = argument::id)] id: String,
    ) -> PyResult<Tool> {
        match self.get(py, id.clone())? {
            Some(tool) => Ok(tool),
            None => Err(PyKeyError::new_err(id)),
        }
    }

    fn __contains__(&self, py: Python<'_>, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(id) = id.cast::<PyString>() else {
            return Ok(false);
        };
        match ToolId::parse(&id.to_string()) {
            Ok(id) => Ok(self.searcher(py)?.tool(&id).is_some()),
            Err(_) => Ok(false),
        }
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<ToolIterator> {
        Ok(ToolIterator::new(self.searcher(py)?, Filter::default()))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.searcher(py)?.len())
    }

    /// True: an empty catalog is a catalog.
    fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        this.get().opened(this.py())?;
        Ok(this)
    }

    #[pyo3(signature = (_kind=None, _error=None, _traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Option<Bound<'_, PyType>>,
        _error: Option<Bound<'_, PyAny>>,
        _traceback: Option<Bound<'_, PyAny>>,
    ) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let path = quoted(py, &self.path.display().to_string());
        match self.opened(py) {
            Ok(open) => format!("Catalog({path}, tools={})", open.catalog.searcher().len()),
            Err(_) => format!("Catalog({path}, closed)"),
        }
    }
}

impl Catalog {
    /// What a function of the engine answers, for Python.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        ask: impl FnOnce(&opening::Open) -> toolscout_native::Result<Value> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let open = self.opened(py)?;
        let answer = py.detach(|| ask(&open)).or_raise(py)?;
        to_python(py, &answer)
    }

    fn write_words<'py>(
        &self,
        py: Python<'py>,
        words: &Bound<'py, PyAny>,
        is_patch: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let document = document("words", words)?;
        let open = self.opened(py)?;
        let _turn = Turn::take(py, &self.writer)?;
        let written = py.detach(|| owner::set_words(&open, &document, is_patch));
        to_python(py, &written.or_raise(py)?)
    }

    fn of(open: Open) -> Self {
        Catalog {
            name: open.settings.catalog.clone(),
            path: open.catalog.path().to_owned(),
            open: RwLock::new(Some(Arc::new(open))),
            writer: Mutex::new(None),
        }
    }

    /// What is open.
    ///
    /// # Errors
    /// `catalog_closed` and `forked`.
    pub fn opened(&self, py: Python<'_>) -> PyResult<Arc<Open>> {
        process::check(py)?;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| {
            let message = format!(
                "the catalog {} was closed; open it again with Catalog.open",
                self.path.display()
            );
            error(py, CLOSED, message)
        })
    }

    /// The newest snapshot.
    fn searcher(&self, py: Python<'_>) -> PyResult<Arc<Searcher>> {
        let open = self.opened(py)?;
        py.detach(|| open.newest()).or_raise(py)
    }

    /// Begins to write, when other threads have written.
    fn begin<'c>(&'c self, py: Python<'_>, open: &'c Open) -> PyResult<Writing<'c>> {
        let turn = Turn::take(py, &self.writer)?;
        let writer = py.detach(|| open.catalog.writer()).or_raise(py)?;
        Ok(Writing {
            writer,
            _turn: turn,
        })
    }
}

/// One thread's turn to write.
struct Turn<'c>(&'c Mutex<Option<ThreadId>>);

impl<'c> Turn<'c> {
    fn take(py: Python<'_>, writer: &'c Mutex<Option<ThreadId>>) -> PyResult<Self> {
        let this = std::thread::current().id();
        loop {
            let mut holder = writer.lock().unwrap_or_else(PoisonError::into_inner);
            match *holder {
                None => {
                    *holder = Some(this);
                    return Ok(Turn(writer));
                }
                // Its iterable, or its progress, writes too: it would wait for itself.
                Some(other) if other == this => {
                    let message =
                        "this thread is writing to the catalog already; end that call first";
                    return Err(error(py, "catalog_locked", message));
                }
                Some(_) => {}
            }
            drop(holder);
            py.check_signals()?;
            py.detach(|| std::thread::sleep(TURN));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A write under way. What is not committed is undone when it is dropped.
struct Writing<'c> {
    writer: Writer,
    _turn: Turn<'c>,
}

impl Writing<'_> {
    fn commit(&mut self, py: Python<'_>) -> PyResult<u64> {
        py.check_signals()?;
        py.detach(|| self.writer.commit()).or_raise(py)
    }

    fn embed(&mut self, py: Python<'_>, progress: Option<&Py<PyAny>>) -> PyResult<usize> {
        let mut raised = None;
        let mut report = |now: EmbedProgress| {
            Python::attach(|py| {
                let outcome = py.check_signals().and_then(|()| match progress {
                    Some(progress) => progress.call1(py, (now.done, now.total)).map(drop),
                    None => Ok(()),
                });
                match outcome {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        raised = Some(error);
                        ControlFlow::Break(())
                    }
                }
            })
        };
        let embedded = py.detach(|| self.writer.embed_pending(&mut report));
        match raised {
            Some(error) => Err(error),
            None => embedded.or_raise(py),
        }
    }
}

fn callable(py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Option<Py<PyAny>>> {
    match progress {
        Some(progress) if !progress.bind(py).is_callable() => {
            let expected = "callable with (done, total)";
            Err(wrong_type("progress", expected, progress.bind(py)))
        }
        progress => Ok(progress),
    }
}

fn in_python(py: Python<'_>, skipped: Vec<input::Skipped>) -> PyResult<Vec<Py<Skipped>>> {
    let skipped = skipped.into_iter().map(Skipped::from);
    skipped.map(|skipped| Py::new(py, skipped)).collect()
}

/// One text, or several.
fn texts(what: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(vec![text.to_str()?.to_owned()]);
    }
    let wrong = |value: &Bound<'_, PyAny>| wrong_type(what, "a str or a list of str", value);
    if value.is_instance_of::<PyDict>() {
        return Err(wrong(value));
    }
    let mut texts = Vec::new();
    for item in value.try_iter().map_err(|_| wrong(value))? {
        let item = item?;
        let text = item.cast::<PyString>().map_err(|_| wrong(&item))?;
        texts.push(text.to_str()?.to_owned());
    }
    Ok(texts)
}

/// A dict as JSON.
fn document(what: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if !value.is_instance_of::<PyDict>() {
        return Err(wrong_type(what, "a dict", value));
    }
    let json = value.py().import("json")?;
    json.getattr("dumps")?.call1((value,))?.extract()
}

/// The texts of a part of a filter, which may be left out.
fn set(what: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<BTreeSet<String>> {
    let value = value.map(|value| texts(what, value)).transpose()?;
    Ok(value.unwrap_or_default().into_iter().collect())
}

fn selection(
    include: Option<&Bound<'_, PyAny>>,
    exclude: Option<&Bound<'_, PyAny>>,
) -> PyResult<Selection> {
    let list = |what: &str, value: Option<&Bound<'_, PyAny>>| {
        let value = value.map(|value| texts(what, value)).transpose()?;
        PyResult::Ok(value.unwrap_or_default())
    };
    Ok(Selection::new(
        list("include", include)?,
        list("exclude", exclude)?,
    ))
}

fn checked_limit(py: Python<'_>, limit: i64) -> PyResult<usize> {
    match usize::try_from(limit) {
        Ok(k) if (1..=MAX_K).contains(&k) => Ok(k),
        _ => {
            let message = format!("invalid query: limit is {limit}, it must be from 1 to {MAX_K}");
            Err(invalid_query(py, message))
        }
    }
}

fn named<T: FromStr<Err = toolscout_index::Error>>(
    py: Python<'_>,
    name: Option<String>,
) -> PyResult<Option<T>> {
    name.map(|name| name.parse()).transpose().or_raise(py)
}
