//! A transformer that turns texts into vectors: BERT with six layers and 384 dimensions, and
//! WordPiece. Its weights are bytes and it needs no native library. It takes about a millisecond for
//! a sentence on a processor with AVX-512.
//!
//! A crate of its own, so that it is optimised in development builds too, where it would take a
//! second for a text.
//!
//! The file is little-endian throughout:
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this layout |
//! | 4 each | length of a state, layers, heads, length of an intermediate state, positions |
//! | 4 | tokens |
//! | 4 | bytes of vocabulary |
//! | 32 | BLAKE3 of all the rest of the file |
//! | | the vocabulary: tokens separated by line feeds, `##` before those that continue a word |
//! | 2 a group | the value of code 1 of 32 dimensions of a token's embedding, as binary16, token by token |
//! | ½ a dimension | the codes plus 8, four bits each, the lower half of a byte first |
//! | | the embedding of each position, and a normalisation |
//! | | the layers |
//! | | for each dimension of a mean state its part in every dimension of the vector, as floats |
//!
//! A layer is a matrix for queries, keys and values, one for the output of attention, a
//! normalisation, two matrices of the feed-forward, and a normalisation. A matrix is a byte for
//! each weight, in the blocks that `matrix` describes, then the value of code 1 and the bias of
//! each output. A normalisation is a weight and a bias for each dimension. All of these are floats.
//!
//! `scripts/encoder` builds it. A model of the same shape can also be made from the floats that its
//! makers published ([`Encoder::published`]).

mod matrix;
mod layers;
mod embeddings;
mod quantise;
mod wordpiece;
mod tokens;
mod published;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use blake3::Hash;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use self::embeddings::{Embeddings, GROUP};
use self::layers::{Batch, HEADS, HIDDEN, INTERMEDIATE, LAYERS, Layer, Norm};
use self::matrix::{Matrix, Precision};
use self::tokens::Tokens;

pub use embeddings::two_codes;
pub use wordpiece::Vocabulary;

/// Length of a vector.
pub const DIMENSIONS: usize = HIDDEN;
/// Tokens read of a text. A tool's first sentences state its purpose.
pub const MAX_TOKENS: usize = 128;

const VERSION: u32 = 1;
const CHECKSUM: Range<usize> = 40..72;
/// Tokens that pass through the layers together. The weights are read once for all of them, and
/// their states stay in the processor's cache.
const BATCH_TOKENS: usize = 192;

/// A file that is not an encoder, has another version or shape, or is cut short or damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// A loaded encoder.
pub struct Encoder {
    checksum: Hash,
    tokens: Tokens,
    // The bundled weights are read where they lie in the program and not copied.
    bytes: Cow<'static, [u8]>,
    embeddings: Embeddings,
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    /// Turns vectors so that the first dimensions carry most of the information.
    rotation: Option<Vec<f32>>,
    precision: Precision,
}

impl Encoder {
    /// The first bytes of an encoder's file.
    pub const MAGIC: &[u8; 8] = b"toolscEN";

    /// Reads an encoder's file.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn read(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, Unreadable> {
        let bytes = bytes.into();
        if Header::read(&bytes)?.checksum != checksum(&bytes) {
            return Err(failed("it is damaged: its checksum does not match"));
        }
        Encoder::trusted(bytes)
    }

    /// Reads a file without comparing its checksum, which takes longer than all the rest.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn trusted(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, Unreadable> {
        let bytes = bytes.into();
        let header = Header::read(&bytes)?;
        let mut reader = Reader {
            bytes: &bytes,
            at: CHECKSUM.end,
        };
        let Ok(tokens) = std::str::from_utf8(reader.take(header.vocabulary_bytes)) else {
            return Err(failed("its tokens are no UTF-8"));
        };
        if tokens.split('\n').count() != header.tokens {
            return Err(failed(format!("it does not have {} tokens", header.tokens)));
        }
        let tokens = Tokens::new(tokens.split('\n'))?;
        let embeddings = Embeddings::FourBit {
            scales: reader.skip(header.tokens * HIDDEN / GROUP * 2),
            codes: reader.skip(header.tokens * HIDDEN / 2),
        };
        let positions = reader.floats(MAX_TOKENS * HIDDEN);
        let norm = reader.norm();
        let mut layers = Vec::with_capacity(LAYERS);
        for _ in 0..LAYERS {
            layers.push(reader.layer());
        }
        let rotation = Some(reader.floats(HIDDEN * HIDDEN));
        Ok(Encoder {
            checksum: header.checksum,
            tokens,
            embeddings,
            positions,
            norm,
            layers,
            rotation,
            precision: Precision::Byte,
            bytes,
        })
    }

    /// The checksum that the file states; that of all weights, where they are published ones.
    pub fn checksum(&self) -> Hash {
        self.checksum
    }

    /// The unit vectors of texts. Those of several texts are computed by all processors.
    pub fn embed(&self, texts: &[&str]) -> Vec<Vec<f32>> {
        let mut tokens = Vec::with_capacity(texts.len());
        for text in texts {
            tokens.push(self.tokens.of(text));
        }
        let batches = batches(&tokens);
        // A single text, as of a request, needs no other thread.
        if let [only] = batches.as_slice() {
            return self.embed_batch(only);
        }
        match threads() {
            Some(threads) => threads.install(|| self.embed_batches(&batches)),
            None => self.embed_batches(&batches),
        }
    }

    fn embed_batches(&self, batches: &[&[Vec<u32>]]) -> Vec<Vec<f32>> {
        let batches = batches.par_iter();
        batches
            .flat_map_iter(|batch| self.embed_batch(batch))
            .collect()
    }

    fn embed_batch(&self, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let mut batch = Batch {
            states: vec![0.0; lengths.iter().sum::<usize>() * HIDDEN],
            lengths,
        };
        let mut states = batch.states.as_chunks_mut().0.iter_mut();
        for tokens in texts {
            let positions = self.positions.as_chunks().0;
            for ((token, position), state) in tokens.iter().zip(positions).zip(&mut states) {
                self.start(*token as usize, position, state);
            }
        }
        layers::run(&self.bytes, &self.layers, self.precision, &mut batch);
        let mut states = batch.states.as_chunks::<HIDDEN>().0;
        let mut vectors = Vec::with_capacity(texts.len());
        for length in batch.lengths {
            let (of_text, rest) = states.split_at(length);
            states = rest;
            // The sum serves as the mean: scaling to length 1 removes the difference.
            let mut sum = [0.0; HIDDEN];
            for state in of_text {
                for (total, value) in sum.iter_mut().zip(state) {
                    *total += value;
                }
            }
            let mut vector = match &self.rotation {
                Some(rotation) => turned(&sum, rotation),
                None => sum.to_vec(),
            };
            to_unit_length(&mut vector);
            vectors.push(vector);
        }
        vectors
    }

    /// The state of a token at a position before the first layer.
    fn start(&self, token: usize, position: &[f32; HIDDEN], state: &mut [f32; HIDDEN]) {
        self.embeddings.read(&self.bytes, token, state);
        for (value, position) in state.iter_mut().zip(position) {
            *value += position;
        }
        self.norm.normalise(state);
    }
}

/// The threads that embed several texts; `None` where the system gives none.
// Not those that all else shares: opening a catalog and searching a large one have many short tasks,
// each of which would wait for a batch that takes a tenth of a second.
fn threads() -> Option<&'static ThreadPool> {
    static THREADS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
        let threads = ThreadPoolBuilder::new().thread_name(|number| format!("encoder {number}"));
        threads.build().ok()
    });
    THREADS.as_ref()
}

/// Texts in batches of about [`BATCH_TOKENS`] tokens.
fn batches(texts: &[Vec<u32>]) -> Vec<&[Vec<u32>]> {
    let mut batches = Vec::new();
    let (mut first, mut tokens) = (0, 0);
    for (place, text) in texts.iter().enumerate() {
        if tokens + text.len() > BATCH_TOKENS && place > first {
            batches.push(&texts[first..place]);
            (first, tokens) = (place, 0);
        }
        tokens += text.len();
    }
    if first < texts.len() {
        batches.push(&texts[first..]);
    }
    batches
}

/// A sum of states in the dimensions of a vector.
fn turned(sum: &[f32; HIDDEN], rotation: &[f32]) -> Vec<f32> {
    let mut vector = vec![0.0; HIDDEN];
    for (value, parts) in sum.iter().zip(rotation.as_chunks::<HIDDEN>().0) {
        for (total, part) in vector.iter_mut().zip(parts) {
            *total += value * part;
        }
    }
    vector
}

/// The header of a file of the right length.
struct Header {
    checksum: Hash,
    tokens: usize,
    vocabulary_bytes: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        if bytes.len() < CHECKSUM.end || !bytes.starts_with(Encoder::MAGIC) {
            return Err(failed(format!(
                "these {} bytes are no encoder",
                bytes.len()
            )));
        }
        let fields = bytes[Encoder::MAGIC.len()..CHECKSUM.start].as_chunks().0;
        let [version, shape @ .., tokens, vocabulary_bytes]: [u32; 8] =
            std::array::from_fn(|i| u32::from_le_bytes(fields[i]));
        if version != VERSION {
            return Err(failed(format!(
                "it has layout {version} and this program reads layout {VERSION}"
            )));
        }
        let expected_shape = [HIDDEN, LAYERS, HEADS, INTERMEDIATE, MAX_TOKENS];
        if shape.map(|size| size as usize) != expected_shape {
            return Err(failed(format!(
                "its state, layers, heads, intermediate state and positions are {shape:?}; this program reads \
                 {expected_shape:?}"
            )));
        }
        let expected = CHECKSUM.end as u64
            + u64::from(vocabulary_bytes)
            + u64::from(tokens) * (HIDDEN / GROUP * 2 + HIDDEN / 2) as u64
            + weights() as u64;
        // Before the checksum, so that a file cut short is named as such.
        if bytes.len() as u64 != expected {
            return Err(failed(format!(
                "{tokens} tokens take {expected} bytes, it has {}",
                bytes.len()
            )));
        }
        Ok(Header {
            checksum: Hash::from_bytes(*bytes[CHECKSUM].as_array().expect("32 bytes")),
            tokens: tokens as usize,
            vocabulary_bytes: vocabulary_bytes as usize,
        })
    }
}

/// The checksum of a file's content.
fn checksum(bytes: &[u8]) -> Hash {
    blake3::Hasher::new()
        .update(&bytes[..CHECKSUM.start])
        .update(&bytes[CHECKSUM.end..])
        .finalize()
}

/// Bytes of positions, normalisations, layers and rotation.
const fn weights() -> usize {
    const NORM: usize = 2 * 4 * HIDDEN;
    const fn matrix(outputs: usize, inputs: usize) -> usize {
        outputs * (inputs + 2 * 4)
    }
    4 * MAX_TOKENS * HIDDEN
        + NORM
        + LAYERS
            * (matrix(3 * HIDDEN, HIDDEN)
                + matrix(HIDDEN, HIDDEN)
                + matrix(INTERMEDIATE, HIDDEN)
                + matrix(HIDDEN, INTERMEDIATE)
                + 2 * NORM)
        + 4 * HIDDEN * HIDDEN
}

/// Reads a file whose length was checked.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let start = self.skip(count);
        &self.bytes[start..self.at]
    }

    /// Skips a part; returns its offset.
    fn skip(&mut self, count: usize) -> usize {
        let start = self.at;
        self.at += count;
        start
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        let floats = self.take(4 * count).as_chunks().0;
        floats.iter().copied().map(f32::from_le_bytes).collect()
    }

    fn norm(&mut self) -> Norm {
        Norm {
            weight: self.floats(HIDDEN),
            bias: self.floats(HIDDEN),
        }
    }

    fn matrix(&mut self, outputs: usize, inputs: usize) -> Matrix {
        let blocks = self.skip(outputs * inputs);
        let scales = self.floats(outputs);
        let bias = self.floats(outputs);
        Matrix::new(self.bytes, blocks, inputs, scales, bias)
    }

    fn layer(&mut self) -> Layer {
        Layer {
            attention: self.matrix(3 * HIDDEN, HIDDEN),
            attention_output: self.matrix(HIDDEN, HIDDEN),
            attention_norm: self.norm(),
            intermediate: self.matrix(INTERMEDIATE, HIDDEN),
            output: self.matrix(HIDDEN, INTERMEDIATE),
            output_norm: self.norm(),
        }
    }
}

fn failed(reason: impl Into<String>) -> Unreadable {
    Unreadable(reason.into())
}

/// Scales a vector to length 1; zeros stay zeros.
pub fn to_unit_length(vector: &mut [f32]) {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if length > 0.0 {
        for value in vector {
            *value /= length;
        }
    }
}
