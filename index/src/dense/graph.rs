//! A navigable graph over the vectors (HNSW), for catalogs that are too large to scan.
//!
//! A node has one byte a dimension, a quarter of what floats take: most of a search is waiting for
//! memory.
//!
//! Nodes are texts, identified by hash, so a graph stays usable when the catalog changes: rows
//! without a node are scanned, and nodes without a row are skipped. The graph is rebuilt when
//! either share becomes too large. It is derived data with a checksum over its files and the
//! embedder's id; a file that is missing, damaged or of other vectors is rebuilt.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use hnsw_rs::prelude::{AnnT, Distance, Hnsw, HnswIo};
use rayon::prelude::*;
use self_cell::self_cell;

use super::{TextHash, Vectors};
use crate::by_processor::by_processor;
use crate::error::{Error, IoResult, Result};

// The most that the library has. Layers grow with the logarithm of the number of nodes.
const MAX_LAYERS: usize = 16;
/// Share of rows without a node, or of nodes without a row, above which the graph is rebuilt.
const MAX_STALE_SHARE: f64 = 0.2;
/// How many times the median of the rows' largest values the largest code stands for. A row with
/// larger values has them cut off.
const CODE_REACH: f32 = 1.5;
/// Part of the checksum: a graph of another layout is rebuilt.
const LAYOUT: &[u8] = b"a byte a dimension";

/// How densely a graph is linked, and how widely it is searched.
#[derive(Clone, Copy, Debug)]
pub struct GraphShape {
    /// Links of a node per layer (HNSW's M).
    pub max_links: usize,
    /// Width of the search for them (efConstruction).
    pub build_width: usize,
    /// Width of a search for a request (ef), which is also the number of nodes that it finds.
    pub search_width: usize,
}

impl Default for GraphShape {
    fn default() -> Self {
        GraphShape {
            // Of the shapes that `benches/nearest.rs` tried: with fewer links recall falls, with more
            // a search takes longer. With this width more of the ten nearest are found than by a
            // scan of the leading dimensions; half of it loses some, twice of it takes twice as long.
            max_links: 16,
            build_width: 100,
            search_width: 128,
        }
    }
}

const BASENAME: &str = "vectors";
const MANIFEST: &str = "manifest";

/// The squared distance of two rows of codes.
#[derive(Clone, Copy, Default)]
struct CodeDistance;

impl Distance<i8> for CodeDistance {
    fn eval(&self, a: &[i8], b: &[i8]) -> f32 {
        squared_distance(a, b) as f32
    }
}

by_processor! {
    /// The sum of the squares of the differences.
    fn squared_distance(a: &[i8], b: &[i8]) -> i32 {
        let mut sum = 0;
        for (&a, &b) in a.iter().zip(b) {
            let difference = i32::from(i16::from(a) - i16::from(b));
            sum += difference * difference;
        }
        sum
    }
}

type CodeGraph<'a> = Hnsw<'a, i8, CodeDistance>;

self_cell!(
    /// A loaded graph and the loader it borrows from.
    struct Loaded {
        owner: HnswIo,
        #[not_covariant]
        dependent: CodeGraph,
    }
);

enum Nodes {
    Built(CodeGraph<'static>),
    Loaded(Loaded),
}

/// A graph whose nodes are mapped to the rows of one [`Vectors`].
pub struct Graph {
    nodes: Nodes,
    /// The value of code 1.
    scale: f32,
    search_width: usize,
    /// The text of each node.
    hashes: Vec<TextHash>,
    /// The rows of each node's text; empty for a text that no tool has any more.
    rows: Vec<Vec<usize>>,
    /// Rows without a node.
    outside: Vec<usize>,
}

impl Graph {
    /// Builds a graph over all rows, with all processors. Takes minutes for some hundred thousand.
    ///
    /// Threads insert nodes side by side, so that two graphs of the same rows differ in some links.
    pub fn build(vectors: &Vectors) -> Self {
        Graph::shaped(vectors, GraphShape::default())
    }

    /// As [`Graph::build`], for another shape.
    pub fn shaped(vectors: &Vectors, shape: GraphShape) -> Self {
        // Equal texts have equal vectors, so they share a node. In the order of hashes, which is
        // random: where alike texts follow each other, as in a catalog, the library links each to
        // its neighbours alone, and most nodes are never reached.
        let mut by_hash: BTreeMap<TextHash, Vec<usize>> = BTreeMap::new();
        for (row, hash) in vectors.hashes().enumerate() {
            by_hash.entry(*hash).or_default().push(row);
        }
        let (hashes, rows): (Vec<TextHash>, Vec<Vec<usize>>) = by_hash.into_iter().unzip();
        let firsts: Vec<usize> = rows.iter().map(|rows| rows[0]).collect();
        let scale = vectors.median_scale() * CODE_REACH;
        Graph {
            nodes: Nodes::Built(linked(vectors, &firsts, scale, shape)),
            scale,
            search_width: shape.search_width,
            hashes,
            rows,
            outside: Vec::new(),
        }
    }

    /// Searches this widely from now on.
    pub fn set_search_width(&mut self, width: usize) {
        self.search_width = width;
    }

    /// Writes the graph to a new folder and then replaces the old one.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Derived`].
    pub fn save(&self, dir: &Path, embedder: &str) -> Result<()> {
        // A loaded graph is on disk already.
        let Nodes::Built(graph) = &self.nodes else {
            return Ok(());
        };
        let fresh = dir.with_extension("new");
        // Left by a process that died while it was writing.
        let _ = std::fs::remove_dir_all(&fresh);
        crate::database::create_private_dir(&fresh).named("create", &fresh)?;
        graph
            .file_dump(&fresh, BASENAME)
            .map_err(|e| derived(dir, e))?;
        let mut nodes = self.scale.to_le_bytes().to_vec();
        nodes.extend(self.hashes.iter().flatten());
        let mut manifest = checksum(&fresh, embedder, &nodes)?.to_vec();
        manifest.extend(nodes);
        std::fs::write(fresh.join(MANIFEST), manifest).named("write", fresh.join(MANIFEST))?;
        // A rename cannot replace a folder with files in it. A process that dies between the two
        // steps leaves no graph, and the next one builds it. Nothing is synced: files cut short by
        // a power failure fail the checksum.
        if dir.exists() {
            std::fs::remove_dir_all(dir).named("delete", dir)?;
        }
        std::fs::rename(&fresh, dir).named("rename", &fresh)
    }

    /// Reads a graph and maps it to the rows of these vectors.
    ///
    /// # Errors
    /// [`Error::Derived`] if it is missing, damaged or stale; the caller rebuilds it.
    pub fn load(dir: &Path, embedder: &str, vectors: &Vectors) -> Result<Self> {
        let manifest = std::fs::read(dir.join(MANIFEST)).map_err(|e| derived(dir, e))?;
        let Some((sum, nodes)) = manifest.split_at_checked(32) else {
            return Err(cut_short(dir));
        };
        // Before the library reads the files, since it trusts their contents.
        if checksum(dir, embedder, nodes)? != sum {
            return Err(derived(
                dir,
                format!("it is damaged or of another embedder than {embedder}"),
            ));
        }
        let Some((scale, hashes)) = nodes.split_first_chunk() else {
            return Err(cut_short(dir));
        };
        let hashes: Vec<TextHash> = hashes.as_chunks().0.to_vec();
        let loaded = Loaded::try_new(HnswIo::new(dir, BASENAME), |io| {
            io.load_hnsw_with_dist(CodeDistance)
        });
        let nodes = Nodes::Loaded(loaded.map_err(|e| derived(dir, e))?);
        let graph = Graph {
            nodes,
            scale: f32::from_le_bytes(*scale),
            search_width: GraphShape::default().search_width,
            hashes,
            rows: Vec::new(),
            outside: Vec::new(),
        }
        .mapped_to(vectors);
        if graph.is_stale(vectors) {
            return Err(derived(dir, "too much has changed since it was built"));
        }
        Ok(graph)
    }

    /// The rows nearest to a query, in no order.
    pub fn near(&self, query: &[f32]) -> Vec<usize> {
        let codes = codes(query, self.scale);
        let width = self.search_width;
        let found = match &self.nodes {
            Nodes::Built(graph) => graph.search(&codes, width, width),
            Nodes::Loaded(loaded) => {
                loaded.with_dependent(|_, graph| graph.search(&codes, width, width))
            }
        };
        let mut rows = Vec::new();
        for node in found {
            rows.extend(&self.rows[node.get_origin_id()]);
        }
        // Texts newer than the graph have no node. They are compared with every request until the
        // graph is rebuilt.
        rows.extend(&self.outside);
        rows
    }

    fn mapped_to(mut self, vectors: &Vectors) -> Self {
        let mut nodes = HashMap::with_capacity(self.hashes.len());
        for (node, hash) in self.hashes.iter().enumerate() {
            nodes.insert(hash, node);
        }
        let mut rows = vec![Vec::new(); self.hashes.len()];
        let mut outside = Vec::new();
        for (row, hash) in vectors.hashes().enumerate() {
            match nodes.get(hash) {
                Some(&node) => rows[node].push(row),
                None => outside.push(row),
            }
        }
        self.rows = rows;
        self.outside = outside;
        self
    }

    fn is_stale(&self, vectors: &Vectors) -> bool {
        // Rows without a node cost a scan, nodes without a row use up places in the result.
        let gone = self.rows.iter().filter(|rows| rows.is_empty()).count();
        self.outside.len() as f64 > vectors.len() as f64 * MAX_STALE_SHARE
            || gone as f64 > self.hashes.len() as f64 * MAX_STALE_SHARE
    }
}

/// A graph with a node for each of these rows, whose ids are the places of the rows in this list.
fn linked(vectors: &Vectors, rows: &[usize], scale: f32, shape: GraphShape) -> CodeGraph<'static> {
    let graph = Hnsw::new(
        shape.max_links,
        rows.len().max(1),
        MAX_LAYERS,
        shape.build_width,
        CodeDistance,
    );
    let insert = |(node, &row): (usize, &usize)| {
        graph.insert((&codes(&vectors.decoded(row), scale), node));
    };
    // In a pool of its own: searches would wait for the threads of the common one.
    match rayon::ThreadPoolBuilder::new().build() {
        Ok(pool) => pool.install(|| rows.par_iter().enumerate().for_each(insert)),
        // Without threads it takes longer.
        Err(_) => rows.iter().enumerate().for_each(insert),
    }
    graph
}

/// The codes of a vector; values beyond the largest code have that one.
fn codes(vector: &[f32], scale: f32) -> Vec<i8> {
    // The cast saturates, and makes a NaN 0. -128 is as good as any code: no sum of squares of
    // differences of 4,096 dimensions overflows 32 bits.
    vector
        .iter()
        .map(|value| (value / scale).round() as i8)
        .collect()
}

fn checksum(dir: &Path, embedder: &str, nodes: &[u8]) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    // The id is part of the sum: a graph of another model is intact, and wrong.
    hasher
        .update(LAYOUT)
        .update(embedder.as_bytes())
        .update(nodes);
    for kind in ["graph", "data"] {
        let path = dir.join(format!("{BASENAME}.hnsw.{kind}"));
        hasher.update(
            &std::fs::read(&path).map_err(|e| derived(dir, format!("{}: {e}", path.display())))?,
        );
    }
    Ok(*hasher.finalize().as_bytes())
}

fn cut_short(dir: &Path) -> Error {
    derived(dir, "its manifest is cut short")
}

fn derived(path: &Path, reason: impl ToString) -> Error {
    Error::Derived {
        index: "graph",
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
