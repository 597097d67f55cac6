//! A navigable graph over the vectors (HNSW), for catalogs that are too large to scan.
//!
//! Nodes are texts, identified by hash, so a graph stays usable when the catalog changes: rows
//! without a node are scanned, and nodes without a row are skipped. The graph is rebuilt when
//! either share becomes too large. It is derived data with a checksum over its files and the
//! embedder's id; a file that is missing, damaged or of other vectors is rebuilt.

use std::collections::HashMap;
use std::path::Path;

use hnsw_rs::prelude::{AnnT, DistL2, Hnsw, HnswIo};
use self_cell::self_cell;

use super::{TextHash, Vectors};
use crate::error::{Error, Result};

/// Links of a node per layer, and the width of the search for them (HNSW's M and efConstruction).
/// Recall at 10 on 37,834 MiniLM vectors is above .97 with these.
const MAX_LINKS: usize = 24;
const BUILD_WIDTH: usize = 200;
// The most that the library has. Layers grow with the logarithm of the number of nodes.
const MAX_LAYERS: usize = 16;
/// Least width of a search (HNSW's ef).
const SEARCH_WIDTH: usize = 384;
/// Share of rows without a node, or of nodes without a row, above which the graph is rebuilt.
const MAX_STALE_SHARE: f64 = 0.2;

const BASENAME: &str = "vectors";
const MANIFEST: &str = "manifest";

// Vectors have length 1, so the order by distance is the order by cosine.
type L2Graph<'a> = Hnsw<'a, f32, DistL2>;

self_cell!(
    /// A loaded graph and the loader it borrows from.
    struct Loaded {
        owner: HnswIo,
        #[not_covariant]
        dependent: L2Graph,
    }
);

enum Nodes {
    Built(Hnsw<'static, f32, DistL2>),
    Loaded(Loaded),
}

/// A graph whose nodes are mapped to the rows of one [`Vectors`].
pub struct Graph {
    nodes: Nodes,
    /// The text of each node.
    hashes: Vec<TextHash>,
    /// The rows of each node's text; empty for a text that no tool has any more.
    rows: Vec<Vec<usize>>,
    /// Rows without a node.
    outside: Vec<usize>,
}

impl Graph {
    /// Builds a graph over all rows. Takes minutes for 50,000. Nodes are inserted one after the
    /// other, not in parallel, so that equal input gives equal output.
    pub fn build(vectors: &Vectors) -> Self {
        let graph = Hnsw::new(
            MAX_LINKS,
            vectors.len().max(1),
            MAX_LAYERS,
            BUILD_WIDTH,
            DistL2 {},
        );
        let mut hashes: Vec<TextHash> = Vec::new();
        let mut rows: HashMap<TextHash, Vec<usize>> = HashMap::new();
        for (row, hash) in vectors.hashes().iter().enumerate() {
            // Equal texts have equal vectors, so they share a node.
            let known = rows.entry(*hash).or_default();
            if known.is_empty() {
                // A node's id is its place in `hashes`; a search returns these ids.
                graph.insert((&vectors.decoded(row), hashes.len()));
                hashes.push(*hash);
            }
            known.push(row);
        }
        let rows = hashes
            .iter()
            .map(|hash| rows.remove(hash).unwrap_or_default())
            .collect();
        Graph {
            nodes: Nodes::Built(graph),
            hashes,
            rows,
            outside: Vec::new(),
        }
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
        crate::database::create_private_dir(&fresh).map_err(|e| Error::io("create", &fresh, e))?;
        graph
            .file_dump(&fresh, BASENAME)
            .map_err(|e| derived(dir, e))?;
        let mut manifest = checksum(&fresh, embedder, self.hashes.as_flattened())?.to_vec();
        manifest.extend(self.hashes.iter().flatten());
        std::fs::write(fresh.join(MANIFEST), manifest)
            .map_err(|e| Error::io("write", fresh.join(MANIFEST), e))?;
        // A rename cannot replace a folder with files in it. A process that dies between the two
        // steps leaves no graph, and the next one builds it. Nothing is synced: files cut short by
        // a power failure fail the checksum.
        if dir.exists() {
            std::fs::remove_dir_all(dir).map_err(|e| Error::io("delete", dir, e))?;
        }
        std::fs::rename(&fresh, dir).map_err(|e| Error::io("rename", &fresh, e))
    }

    /// Reads a graph and maps it to the rows of these vectors.
    ///
    /// # Errors
    /// [`Error::Derived`] if it is missing, damaged or stale; the caller rebuilds it.
    pub fn load(dir: &Path, embedder: &str, vectors: &Vectors) -> Result<Self> {
        let manifest = std::fs::read(dir.join(MANIFEST)).map_err(|e| derived(dir, e))?;
        let (sum, hashes) = manifest
            .split_at_checked(32)
            .ok_or_else(|| derived(dir, "its manifest is cut short"))?;
        // Before the library reads the files, since it trusts their contents.
        if checksum(dir, embedder, hashes)? != sum {
            return Err(derived(
                dir,
                format!("it is damaged or of another embedder than {embedder}"),
            ));
        }
        let hashes: Vec<TextHash> = hashes.as_chunks().0.to_vec();
        let loaded = Loaded::try_new(HnswIo::new(dir, BASENAME), |io| {
            io.load_hnsw_with_dist(DistL2 {})
        });
        let nodes = Nodes::Loaded(loaded.map_err(|e| derived(dir, e))?);
        let graph = Graph {
            nodes,
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

    /// The rows nearest to a query, in no order: at least `depth` of them, if there are as many.
    pub fn near(&self, query: &[f32], depth: usize) -> Vec<usize> {
        // HNSW's recall falls as the number of results nears the width of the search.
        let width = SEARCH_WIDTH.max(2 * depth);
        let found = match &self.nodes {
            Nodes::Built(graph) => graph.search(query, depth, width),
            Nodes::Loaded(loaded) => {
                loaded.with_dependent(|_, graph| graph.search(query, depth, width))
            }
        };
        let rows = found
            .into_iter()
            .flat_map(|node| self.rows[node.get_origin_id()].iter().copied());
        // Texts newer than the graph have no node. They are compared with every request until the
        // graph is rebuilt.
        rows.chain(self.outside.iter().copied()).collect()
    }

    fn mapped_to(mut self, vectors: &Vectors) -> Self {
        let nodes: HashMap<&TextHash, usize> = self
            .hashes
            .iter()
            .enumerate()
            .map(|(node, hash)| (hash, node))
            .collect();
        let mut rows = vec![Vec::new(); self.hashes.len()];
        let mut outside = Vec::new();
        for (row, hash) in vectors.hashes().iter().enumerate() {
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
        let limit = |of: usize| of as f64 * MAX_STALE_SHARE;
        self.outside.len() as f64 > limit(vectors.len()) || gone as f64 > limit(self.hashes.len())
    }
}

fn checksum(dir: &Path, embedder: &str, hashes: &[u8]) -> Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    // The id is part of the sum: a graph of another model is intact, and wrong.
    hasher.update(embedder.as_bytes()).update(hashes);
    for kind in ["graph", "data"] {
        let path = dir.join(format!("{BASENAME}.hnsw.{kind}"));
        hasher.update(
            &std::fs::read(&path).map_err(|e| derived(dir, format!("{}: {e}", path.display())))?,
        );
    }
    Ok(*hasher.finalize().as_bytes())
}

fn derived(path: &Path, reason: impl ToString) -> Error {
    Error::Derived {
        index: "graph",
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}
