//! The lexical leg: BM25 over one weighted field, in tantivy.
//!
//! All fields of a tool are indexed into one `body`, in which an occurrence counts as often as its
//! field's weight, so that term frequency and length are both weighted (BM25F with one length).
//! `frequencies` says how a weighted frequency is stored.
//! tantivy stores the postings. The scorer is our own (`bm25`), since tantivy's fixes k1 = 1.2 and
//! rounds lengths to a byte.
//!
//! The index is derived data. It is used only if it has exactly the keys of the catalog and the
//! stamp of its settings, and rebuilt otherwise.

mod bm25;
mod directory;
mod frequencies;
mod fuzzy;
mod manifest;
mod statistics;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};
use tantivy::directory::{Directory, RamDirectory};
use tantivy::indexer::IndexWriterOptions;
use tantivy::merge_policy::{LogMergePolicy, MergePolicy, NoMergePolicy};
use tantivy::schema::{
    FAST, Field as TantivyField, INDEXED, IndexRecordOption, Schema, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::{Token, TokenStream, Tokenizer, TokenizerManager, WhitespaceTokenizer};
use tantivy::{Index, IndexSettings, IndexWriter, ReloadPolicy, TantivyDocument};

pub use bm25::{Added, Changed, LexicalSearcher, Origin, QueryTerms, Scored};
pub use frequencies::Frequencies;
pub use statistics::{CatalogStatistics, NearWord};

use self::directory::UnsyncedDirectory;
use crate::document::{Field, Weights, field_text};
use crate::error::{Error, Result};
use crate::text;
use crate::tool::Tool;

/// Weights are indexed in steps of a tenth: term frequencies in postings are whole numbers.
pub const STEPS_PER_WEIGHT: f32 = 10.0;

/// Must change whenever the layout below changes, or the numbers of [`Frequencies`].
const LAYOUT_VERSION: u32 = 2;

/// Memory of the index writer before it writes a segment; 19,000 tools fit.
const WRITER_MEMORY_BYTES: usize = 64 << 20;

/// The same for a writer of few tools: a table of a size that depends on it is filled and read in every
/// commit. The least that tantivy takes.
const SMALL_WRITER_MEMORY_BYTES: usize = 15_000_000;

/// An index up to this size is read into memory: that of some 3,000 tools.
const SMALL_INDEX_BYTES: u64 = 1 << 20;

/// Settings of lexical scoring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LexicalSettings {
    /// The weight of each field; a change rebuilds the lexical index.
    pub weights: Weights,
    /// Saturation of term frequency.
    pub k1: f32,
    /// Share of length normalisation, 0 to 1.
    pub b: f32,
}

impl Default for LexicalSettings {
    /// k1 = 2 and b = .75, found with the weights on nine public sets (73.8 nDCG@10; 72.0 at k1 =
    /// 1.2).
    fn default() -> Self {
        LexicalSettings {
            weights: Weights::default(),
            k1: 2.0,
            b: 0.75,
        }
    }
}

impl LexicalSettings {
    /// The stamp of an index built with these settings.
    pub fn stamp(&self) -> String {
        let weights: Vec<u32> = Field::ALL
            .iter()
            .map(|&field| steps(self.weights.of(field)))
            .collect();
        format!(
            "layout {LAYOUT_VERSION}, analyzer {}, weights {weights:?}",
            text::ANALYZER_VERSION
        )
    }
}

/// A tool as the lexical leg reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Analysis {
    /// Its terms, each with its weighted number of occurrences in steps, above 0.
    pub terms: BTreeMap<String, u32>,
    /// Its weighted length in steps.
    pub length: u64,
    /// The distinct words of its name as written, sorted.
    pub name_words: Vec<String>,
    /// The distinct words of its other fields as written, sorted.
    pub words: Vec<String>,
}

impl Analysis {
    /// Analyzes a tool.
    pub fn of(tool: &Tool, weights: &Weights) -> Self {
        let mut length = 0;
        // Hashed first, as most words of a tool occur several times.
        let mut terms: HashMap<String, u32, RandomState> = HashMap::default();
        let mut name_words = DistinctWords::default();
        let mut other_words = DistinctWords::default();
        for field in Field::ALL {
            let steps = steps(weights.of(field));
            // Apart, since a misspelt word is looked for among the words of names first.
            let words = match field {
                Field::Name => &mut name_words,
                _ => &mut other_words,
            };
            text::for_each_term(&field_text(tool, field), |word, term| {
                length += u64::from(steps);
                match terms.get_mut(term) {
                    Some(known) => *known += steps,
                    None => drop(terms.insert(term.to_owned(), steps)),
                }
                words.add(word);
            });
        }
        terms.retain(|_, steps| *steps > 0);
        Analysis {
            terms: terms.into_iter().collect(),
            length,
            name_words: name_words.sorted(),
            words: other_words.sorted(),
        }
    }
}

#[derive(Default)]
struct DistinctWords(HashSet<String, RandomState>);

impl DistinctWords {
    fn add(&mut self, word: &str) {
        if !self.0.contains(word) {
            self.0.insert(word.to_owned());
        }
    }

    fn sorted(self) -> Vec<String> {
        let mut words: Vec<String> = self.0.into_iter().collect();
        words.sort_unstable();
        words
    }
}

/// An analyzed tool. Analysis runs in parallel; one thread writes to the index.
pub struct Entry {
    key: u64,
    /// Pairs of a term and a number of [`Frequencies`], for [`RepeatingTokenizer`].
    body: String,
    length: u64,
    name_words: String,
    words: String,
}

impl Entry {
    /// The entry of a tool; `key` is its row in the store.
    pub fn new(key: u64, analysis: &Analysis, frequencies: &Frequencies) -> Self {
        let mut body = String::new();
        for (term, steps) in &analysis.terms {
            let stored = frequencies.stored(*steps);
            body.extend([term.as_str(), " ", &stored.to_string(), " "]);
        }
        Entry {
            key,
            body,
            length: analysis.length,
            name_words: analysis.name_words.join(" "),
            words: analysis.words.join(" "),
        }
    }

    fn document(&self, fields: Fields) -> TantivyDocument {
        let mut document = TantivyDocument::default();
        document.add_u64(fields.key, self.key);
        document.add_u64(fields.length, self.length);
        document.add_text(fields.body, &self.body);
        document.add_text(fields.name_words, &self.name_words);
        document.add_text(fields.words, &self.words);
        document
    }
}

fn steps(weight: f32) -> u32 {
    (weight * STEPS_PER_WEIGHT).round().max(0.0) as u32
}

#[derive(Clone, Copy)]
struct Fields {
    /// The tool's row in the store.
    key: TantivyField,
    /// Weighted length in steps.
    length: TantivyField,
    /// Terms, as often as [`Frequencies`] says.
    body: TantivyField,
    /// Words of the name as written, for fuzzy matching.
    name_words: TantivyField,
    /// All other words as written, for fuzzy matching.
    words: TantivyField,
}

/// The tantivy index, on disk or in memory.
pub struct LexicalIndex {
    index: Index,
    fields: Fields,
    path: Option<PathBuf>,
    /// Of files that were read into memory.
    bytes: usize,
}

impl LexicalIndex {
    /// An empty index in memory.
    pub fn in_memory() -> Self {
        let (schema, fields) = schema();
        let index = with_tokenizers(Index::create_in_ram(schema));
        LexicalIndex {
            index,
            fields,
            path: None,
            bytes: 0,
        }
    }

    /// An index in memory of these entries, which does not change. Starts no threads.
    ///
    /// # Errors
    /// [`Error::Derived`].
    pub fn of_entries(entries: impl Iterator<Item = Entry>) -> Result<Self> {
        let (schema, fields) = schema();
        let index = single_segment(schema, fields, entries).or_derived(None)?;
        Ok(LexicalIndex {
            index,
            fields,
            path: None,
            bytes: 0,
        })
    }

    /// An empty index in this folder; the folder's content is deleted.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Derived`].
    pub fn create(dir: &Path) -> Result<Self> {
        if dir.exists() {
            std::fs::remove_dir_all(dir).map_err(|e| Error::io("delete", dir, e))?;
        }
        crate::database::create_private_dir(dir).map_err(|e| Error::io("create", dir, e))?;
        let (schema, fields) = schema();
        let index = Index::builder()
            .schema(schema)
            .settings(IndexSettings::default())
            .open_or_create(UnsyncedDirectory::open(dir).or_derived(Some(dir))?)
            .or_derived(Some(dir))?;
        Ok(LexicalIndex {
            index: with_tokenizers(index),
            fields,
            path: Some(dir.to_owned()),
            bytes: 0,
        })
    }

    /// The index in this folder, if it is intact and has this stamp. Reads every file once.
    ///
    /// # Errors
    /// [`Error::Derived`] with the mismatch; the caller rebuilds the index.
    pub fn open(dir: &Path, stamp: &str) -> Result<Self> {
        if let Some(small) = LexicalIndex::read_small(dir, stamp)? {
            return Ok(small);
        }
        let opened = LexicalIndex::reopen(dir, stamp)?;
        manifest::check(dir, stamp, &opened.index).or_derived(Some(dir))?;
        Ok(opened)
    }

    /// A small index read into memory, to be searched and not written to; `None` for a large one. A
    /// system allows a process some 65,000 mapped files, and each segment takes several.
    ///
    /// # Errors
    /// As [`LexicalIndex::open`].
    pub fn read_small(dir: &Path, stamp: &str) -> Result<Option<Self>> {
        let files = manifest::read_files(dir, stamp, SMALL_INDEX_BYTES);
        let Some(files) = files.or_derived(Some(dir))? else {
            return Ok(None);
        };
        let bytes = files.values().map(Vec::len).sum();
        let memory = RamDirectory::create();
        for (name, content) in files {
            let written = memory.atomic_write(Path::new(&name), &content);
            written.or_derived(Some(dir))?;
        }
        let index = Index::open(memory).or_derived(Some(dir))?;
        let checked = LexicalIndex::checked(index, dir, stamp)?;
        Ok(Some(LexicalIndex { bytes, ..checked }))
    }

    /// As [`LexicalIndex::open`], for an index that this process has verified before, and which is
    /// to be written to.
    ///
    /// # Errors
    /// As [`LexicalIndex::open`].
    pub fn reopen(dir: &Path, stamp: &str) -> Result<Self> {
        let folder = UnsyncedDirectory::open(dir).or_derived(Some(dir))?;
        let index = Index::open(folder).or_derived(Some(dir))?;
        LexicalIndex::checked(index, dir, stamp)
    }

    fn checked(index: Index, dir: &Path, stamp: &str) -> Result<Self> {
        let (schema, fields) = schema();
        let metas = index.load_metas().or_derived(Some(dir))?;
        // tantivy stores the stamp with the commit, so stamp and content cannot disagree.
        let found = metas.payload.unwrap_or_default();
        if index.schema() != schema || found != stamp {
            let reason = format!("it was built with {found:?} and not {stamp:?}");
            return Err(derived(dir, reason));
        }
        Ok(LexicalIndex {
            index: with_tokenizers(index),
            fields,
            path: Some(dir.to_owned()),
            bytes: 0,
        })
    }

    /// The one writer of this index.
    ///
    /// # Errors
    /// [`Error::Derived`].
    pub fn writer(&self) -> Result<LexicalWriter> {
        self.writer_with(WRITER_MEMORY_BYTES)
    }

    /// As [`LexicalIndex::writer`], for commits of few tools.
    ///
    /// # Errors
    /// [`Error::Derived`].
    pub fn small_writer(&self) -> Result<LexicalWriter> {
        self.writer_with(SMALL_WRITER_MEMORY_BYTES)
    }

    fn writer_with(&self, memory: usize) -> Result<LexicalWriter> {
        let options = IndexWriterOptions::builder()
            // Analysis, the expensive part, is done in parallel before; several threads would write
            // a segment each in every commit.
            .num_worker_threads(1)
            // One merge is made at a time.
            .num_merge_threads(1)
            .memory_budget_per_thread(memory)
            .build();
        let writer = self.index.writer_with_options(options);
        let writer: IndexWriter = writer.or_derived(self.path.as_deref())?;
        // Segments are merged within a commit and not in the background, so that the files on disk
        // are those of the manifest.
        writer.set_merge_policy(Box::new(NoMergePolicy));
        Ok(LexicalWriter {
            writer,
            fields: self.fields,
            path: self.path.clone(),
        })
    }

    /// A snapshot of the last commit, numbered by `ordinals` (store key to position).
    ///
    /// # Errors
    /// [`Error::Derived`] unless the index holds exactly these keys.
    pub fn searcher(
        &self,
        ordinals: &HashMap<u64, u32>,
        settings: &LexicalSettings,
    ) -> Result<LexicalSearcher> {
        self.searcher_within(ordinals, settings, None)
    }

    /// As [`LexicalIndex::searcher`], from a snapshot of this index before a change. Reads only the
    /// segments that are new since.
    ///
    /// # Errors
    /// As [`LexicalIndex::searcher`].
    pub fn searcher_after(
        &self,
        former: &LexicalSearcher,
        settings: &LexicalSettings,
        changed: &Changed<'_>,
    ) -> Result<LexicalSearcher> {
        let folder = self.path.as_deref();
        let segments = self.index.searchable_segments().or_derived(folder)?;
        let found = former.changed(&segments, settings, changed);
        match found.or_derived(folder)? {
            Some(found) => Ok(found),
            None => Err(failed(folder, "it does not hold the catalog's tools")),
        }
    }

    /// As [`LexicalIndex::searcher`], for some tools of a larger catalog, which are scored by the
    /// statistics of that one.
    ///
    /// # Errors
    /// As [`LexicalIndex::searcher`].
    pub fn searcher_within(
        &self,
        ordinals: &HashMap<u64, u32>,
        settings: &LexicalSettings,
        whole: Option<Arc<CatalogStatistics>>,
    ) -> Result<LexicalSearcher> {
        let folder = self.path.as_deref();
        let reader = self
            .index
            .reader_builder()
            // A snapshot must not change under a search.
            .reload_policy(ReloadPolicy::Manual)
            .try_into()
            .or_derived(folder)?;
        let searcher = reader.searcher();
        let indexed = searcher.num_docs();
        let found = LexicalSearcher::new(&searcher, self.fields, ordinals, settings, whole);
        match found.or_derived(folder)? {
            // Every document is one of the catalog's tools, so equal numbers mean that none is
            // missing.
            Some(found) if indexed == ordinals.len() as u64 => Ok(found.with_bytes(self.bytes)),
            _ => {
                let tools = ordinals.len();
                let reason = format!("it holds {indexed} tools that are not the catalog's {tools}");
                Err(failed(folder, reason))
            }
        }
    }
}

/// Adds and removes entries; nothing is visible or durable before [`LexicalWriter::commit`].
pub struct LexicalWriter {
    writer: IndexWriter,
    fields: Fields,
    path: Option<PathBuf>,
}

impl LexicalWriter {
    /// Adds an entry.
    ///
    /// # Errors
    /// [`Error::Derived`].
    pub fn add(&mut self, entry: &Entry) -> Result<()> {
        let added = self.writer.add_document(entry.document(self.fields));
        added.or_derived(self.path.as_deref())?;
        Ok(())
    }

    /// Removes the entry of this key.
    pub fn remove(&mut self, key: u64) {
        self.writer
            .delete_term(tantivy::Term::from_field_u64(self.fields.key, key));
    }

    /// Makes the changes visible, marked with the settings' stamp. They are not synced: an index that is
    /// torn by a power failure is built again.
    ///
    /// # Errors
    /// [`Error::Derived`].
    pub fn commit(&mut self, stamp: &str) -> Result<()> {
        let committed = self.commit_segments(stamp);
        committed.or_derived(self.path.as_deref())?;
        // The manifest comes last: an index with another one is rebuilt.
        if let Some(folder) = &self.path {
            let written = manifest::write(folder, stamp, self.writer.index());
            written.or_derived(Some(folder))?;
        }
        Ok(())
    }

    fn commit_segments(&mut self, stamp: &str) -> tantivy::Result<()> {
        let mut prepared = self.writer.prepare_commit()?;
        prepared.set_payload(stamp);
        prepared.commit()?;
        self.merge()
    }

    /// Merges small segments, so that many small commits do not leave many of them.
    fn merge(&mut self) -> tantivy::Result<()> {
        let segments = self.writer.index().searchable_segment_metas()?;
        let mut policy = LogMergePolicy::default();
        policy.set_min_layer_size(SMALL_SEGMENT);
        for candidate in policy.compute_merge_candidates(&segments) {
            self.writer.merge(&candidate.0).wait()?;
        }
        Ok(())
    }

    /// Ends the writer and its threads.
    pub fn finish(self) {
        // Everything is committed already, so a failing merge thread loses nothing.
        let _ = self.writer.wait_merging_threads();
    }
}

/// Segments of fewer tools are merged with each other, and not with a larger one: a commit waits for
/// the merge.
const SMALL_SEGMENT: u32 = 1000;

/// Runs code that reads or writes an index. tantivy does not validate all data in its files and
/// panics on some damage; this becomes an error, and the index is rebuilt.
///
/// # Errors
/// Those of `work`, and [`Error::Derived`] if it panics.
pub fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves half changed is dropped with the index.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(_) => Err(derived(path, "reading it panicked, it is damaged")),
    }
}

/// Makes errors of an index [`Error::Derived`], at which the caller rebuilds it.
trait OrDerived<T> {
    /// `folder` is where the index lies; `None` for one in memory.
    fn or_derived(self, folder: Option<&Path>) -> Result<T>;
}

impl<T, E: ToString> OrDerived<T> for std::result::Result<T, E> {
    fn or_derived(self, folder: Option<&Path>) -> Result<T> {
        self.map_err(|reason| failed(folder, reason))
    }
}

/// The error of an index in this folder, or in memory.
fn failed(folder: Option<&Path>, reason: impl ToString) -> Error {
    derived(folder.unwrap_or(Path::new("memory")), reason)
}

fn derived(path: &Path, reason: impl ToString) -> Error {
    Error::Derived {
        index: "lexical",
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// An index in memory of these entries.
fn single_segment(
    schema: Schema,
    fields: Fields,
    entries: impl Iterator<Item = Entry>,
) -> tantivy::Result<Index> {
    let mut writer = Index::builder()
        .schema(schema)
        .tokenizers(tokenizers())
        .single_segment_index_writer(RamDirectory::create(), WRITER_MEMORY_BYTES)?;
    for entry in entries {
        writer.add_document(entry.document(fields))?;
    }
    writer.finalize()
}

fn schema() -> (Schema, Fields) {
    let terms = text_options(REPEATING, IndexRecordOption::WithFreqs);
    // Words are only looked up, so nothing is stored of how often they occur.
    let words = text_options(WORDS, IndexRecordOption::Basic);
    let mut schema = Schema::builder();
    let fields = Fields {
        key: schema.add_u64_field("key", INDEXED | FAST),
        // A column of its own, since tantivy rounds a field's length to a byte.
        length: schema.add_u64_field("length", FAST),
        body: schema.add_text_field("body", terms),
        name_words: schema.add_text_field("name_words", words.clone()),
        words: schema.add_text_field("words", words),
    };
    (schema.build(), fields)
}

fn text_options(tokenizer: &str, option: IndexRecordOption) -> TextOptions {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(tokenizer)
        .set_index_option(option)
        .set_fieldnorms(option == IndexRecordOption::WithFreqs);
    TextOptions::default().set_indexing_options(indexing)
}

const REPEATING: &str = "repeating";
const WORDS: &str = "words";

fn with_tokenizers(mut index: Index) -> Index {
    index.set_tokenizers(tokenizers());
    index
}

fn tokenizers() -> TokenizerManager {
    // The default ones too: tantivy looks them up for fields without text.
    let tokenizers = TokenizerManager::default();
    tokenizers.register(REPEATING, RepeatingTokenizer);
    tokenizers.register(WORDS, WhitespaceTokenizer::default());
    tokenizers
}

/// Reads pairs of a term and a number, and emits each term so many times.
#[derive(Clone)]
struct RepeatingTokenizer;

struct RepeatedTokens<'a> {
    pairs: std::str::SplitWhitespace<'a>,
    token: Token,
    left: u32,
}

impl Tokenizer for RepeatingTokenizer {
    type TokenStream<'a> = RepeatedTokens<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> RepeatedTokens<'a> {
        RepeatedTokens {
            pairs: text.split_whitespace(),
            token: Token::default(),
            left: 0,
        }
    }
}

impl TokenStream for RepeatedTokens<'_> {
    fn advance(&mut self) -> bool {
        // The same token again, which tantivy counts as a further occurrence.
        if self.left > 1 {
            self.left -= 1;
            return true;
        }
        let (Some(term), Some(count)) = (self.pairs.next(), self.pairs.next()) else {
            return false;
        };
        self.token.text.clear();
        self.token.text.push_str(term);
        // A new token has the largest number, so that the first one gets 0.
        self.token.position = self.token.position.wrapping_add(1);
        self.left = count.parse().unwrap_or(1);
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}
