//! The static embedding table that ships with the program: one vector per token; the vector of a
//! text is their mean. Needs no download and no native library, and takes microseconds a text.
//!
//! The file is a header, the vocabulary and the rows, little-endian throughout:
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this layout |
//! | 4 | dimensions |
//! | 4 | tokens |
//! | 4 | bytes of vocabulary |
//! | 32 | BLAKE3 of all the rest of the file |
//! | | the vocabulary: tokens separated by line feeds, `##` before those that continue a word |
//! | 4 a token | the scale of the row: the value of code 1 |
//! | 1 a token and dimension | the codes, signed, row by row |
//!
//! `scripts/train_table.py` writes it; `assets/MODEL_CARD.md` lists its sources and quality.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use toolscout_encoder::{Vocabulary, to_unit_length};

use crate::document::View;
use crate::embed::{Embedder, EmbedderProfile, Languages, LeastCosines, read_once, unusable_part};
use crate::error::{Error, Result};
use crate::quantization::add_dots;

/// The table's name; its id adds the checksum.
pub const NAME: &str = "static-table";

const MAGIC: &[u8; 8] = b"toolscTB";
const VERSION: u32 = 1;
const CHECKSUM: Range<usize> = 24..56;
/// More than any table has. Keeps sizes from a damaged header from overflowing.
const MAX_DIMENSIONS: usize = 4096;

/// Dimensions are principal components, the strongest first: a quarter of them has 54% of the rows'
/// squared length.
const LEADING: usize = 64;

/// Rows that are copied before they are multiplied: 16 KiB of 256 dimensions, which stay in a
/// first-level cache.
const ROWS_PER_COPY: usize = 64;

/// Weight beside MiniLM, about a third of the dense score: 70.3 nDCG@10 on twelve sets, where
/// MiniLM alone gives 69.6.
const SHARE: f32 = 0.35;

/// Just below the least that was measured for short requests with a right tool, and above the most for
/// strings that mean nothing; `assets/MODEL_CARD.md` has the distributions. A request in another
/// language reaches the table as a list of translated words.
const LEAST_COSINES: LeastCosines<'static> = LeastCosines {
    pairs: &[],
    otherwise: 0.2,
    nonsense: Some(0.55),
};

static BUNDLED: &[u8] = include_bytes!("../../assets/table.bin");

/// A loaded table.
pub struct StaticTable {
    id: String,
    dimensions: usize,
    vocabulary: Vocabulary,
    /// The scale of each row, by token.
    scales: Vec<f32>,
    /// The bits of the length of each row of codes, as a vector; 0 until it is asked for, since a
    /// process that searches once needs a hundredth of them.
    lengths: Vec<AtomicU32>,
    // The bundled table is read where it lies in the program and not copied.
    bytes: Cow<'static, [u8]>,
    /// Offset of the codes.
    codes: usize,
}

impl StaticTable {
    /// The table the crate carries, read once for the process in about 10 ms.
    ///
    /// # Errors
    /// [`Error::Embedder`] when the program was built with a damaged table.
    pub fn bundled() -> Result<Arc<Self>> {
        static TABLE: OnceLock<Arc<StaticTable>> = OnceLock::new();
        // A test compares the checksum, which would take longer than reading.
        read_once(&TABLE, || StaticTable::trusted(BUNDLED))
    }

    /// Reads a table file.
    ///
    /// # Errors
    /// [`Error::Embedder`] when the file is not a table, has another version or dimensions out of range,
    /// or is cut short or damaged.
    pub fn read(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        Header::read(&bytes)?;
        Header::check(&bytes)?;
        StaticTable::trusted(bytes)
    }

    /// Reads a file without comparing its checksum.
    fn trusted(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let header = Header::read(&bytes)?;
        let vocabulary_end = CHECKSUM.end + header.vocabulary_bytes;
        let codes = vocabulary_end + 4 * header.tokens;
        let vocabulary = std::str::from_utf8(&bytes[CHECKSUM.end..vocabulary_end])
            .map_err(|e| failed(format!("its vocabulary is not UTF-8: {e}")))?;
        let vocabulary = Vocabulary::new(vocabulary.split('\n'));
        let scales = bytes[vocabulary_end..codes].as_chunks().0.iter();
        let scales = scales.copied().map(f32::from_le_bytes).collect();
        let lengths = std::iter::repeat_with(AtomicU32::default)
            .take(header.tokens)
            .collect();
        Ok(StaticTable {
            id: header.id,
            dimensions: header.dimensions,
            vocabulary,
            scales,
            lengths,
            bytes,
            codes,
        })
    }

    /// The unit vector of a text; all zeros when no word of it can be spelt with the table's
    /// tokens.
    pub fn embed(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0f32; self.dimensions];
        self.vocabulary.tokens(text, |token| {
            let scale = self.scales[token as usize];
            for (value, &code) in vector.iter_mut().zip(self.row(token as usize)) {
                *value += scale * f32::from(code.cast_signed());
            }
        });
        // The sum serves as the mean: scaling to length 1 removes the difference.
        to_unit_length(&mut vector);
        vector
    }

    /// True if a word is one token.
    pub fn has_word(&self, word: &str) -> bool {
        self.vocabulary.has_word(word)
    }

    /// The most frequent word of the table that is one edit away from a word of ASCII letters.
    pub fn word_one_edit_away(&self, word: &str) -> Option<String> {
        self.vocabulary.word_one_edit_away(word).map(str::to_owned)
    }

    /// Number of its tokens.
    #[allow(clippy::len_without_is_empty, reason = "no table is empty")]
    pub fn len(&self) -> usize {
        self.scales.len()
    }

    /// Calls `emit` with the tokens of a text, in order.
    pub fn tokens(&self, text: &str, emit: impl FnMut(u32)) {
        self.vocabulary.tokens(text, emit);
    }

    /// The weight of a token in a text: the length of its row. Frequent tokens have short rows.
    pub fn weight(&self, token: u32) -> f32 {
        self.scales[token as usize] * self.length(token)
    }

    /// The cosine of each of the others with each of these tokens; negative ones are 0. `emit` gets the
    /// place of the other, that of the token, and the cosine.
    pub fn cosines(&self, tokens: &[u32], others: &[u32], mut emit: impl FnMut(usize, usize, f32)) {
        let codes = |token: u32| {
            self.row(token as usize)
                .iter()
                .map(|code| code.cast_signed())
        };
        let queries: Vec<Vec<i16>> = tokens
            .iter()
            .map(|&token| codes(token).map(i16::from).collect())
            .collect();
        let mut rows = Vec::with_capacity(ROWS_PER_COPY * self.dimensions);
        let mut lengths = Vec::with_capacity(ROWS_PER_COPY);
        for (number, others) in others.chunks(ROWS_PER_COPY).enumerate() {
            // Copied to consecutive memory, so that a token is multiplied with several rows at a time.
            rows.clear();
            lengths.clear();
            for &other in others {
                rows.extend(codes(other));
                lengths.push(self.length(other));
            }
            for (place, (query, &token)) in queries.iter().zip(tokens).enumerate() {
                let mut products = [0; ROWS_PER_COPY];
                let products = &mut products[..others.len()];
                add_dots(&rows, query, products);
                let of_token = self.length(token);
                for (offset, (&product, &length)) in products.iter().zip(&lengths).enumerate() {
                    // A row of whole numbers has length 0 or at least 1, so this only keeps zeros
                    // from dividing.
                    let cosine = (product as f32 / (of_token * length).max(1.0)).max(0.0);
                    emit(number * ROWS_PER_COPY + offset, place, cosine);
                }
            }
        }
    }

    /// The length of a token's row of codes, computed the first time.
    fn length(&self, token: u32) -> f32 {
        let known = &self.lengths[token as usize];
        match known.load(Ordering::Relaxed) {
            0 => {
                let length = length_of(self.row(token as usize));
                known.store(length.to_bits(), Ordering::Relaxed);
                length
            }
            bits => f32::from_bits(bits),
        }
    }

    fn row(&self, token: usize) -> &[u8] {
        let start = self.codes + token * self.dimensions;
        &self.bytes[start..start + self.dimensions]
    }
}

impl Embedder for StaticTable {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            leading_dimensions: LEADING.min(self.dimensions),
            languages: Languages::English,
            views: &[View::Everything, View::Name, View::Description],
            share: SHARE,
            is_instant: true,
            least_cosines: LEAST_COSINES,
            ..EmbedderProfile::new(&self.id, self.dimensions)
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts.iter().map(|text| self.embed(text)).collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_queries(texts)
    }
}

/// The checked header of a file of the right length.
struct Header {
    id: String,
    dimensions: usize,
    tokens: usize,
    vocabulary_bytes: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < CHECKSUM.end || !bytes.starts_with(MAGIC) {
            return Err(failed(format!(
                "these {} bytes are no static table",
                bytes.len()
            )));
        }
        let fields = bytes[MAGIC.len()..CHECKSUM.start].as_chunks().0;
        let [version, dimensions, tokens, vocabulary_bytes] =
            std::array::from_fn(|i| u32::from_le_bytes(fields[i]));
        if version != VERSION {
            return Err(failed(format!(
                "it has layout {version} and this program reads layout {VERSION}"
            )));
        }
        let [dimensions, tokens, vocabulary_bytes] =
            [dimensions, tokens, vocabulary_bytes].map(|n| n as usize);
        // Before the products below, which it keeps from overflowing.
        if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(failed(format!(
                "it has {dimensions} dimensions, from 1 to {MAX_DIMENSIONS} are possible"
            )));
        }
        let expected =
            (CHECKSUM.end + vocabulary_bytes) as u64 + tokens as u64 * (4 + dimensions as u64);
        // Before the checksum, so that a file cut short is named as such.
        if bytes.len() as u64 != expected {
            return Err(failed(format!(
                "{tokens} tokens of {dimensions} dimensions take {expected} bytes, it has {}",
                bytes.len()
            )));
        }
        Ok(Header {
            id: super::id_with_checksum(NAME, &bytes[CHECKSUM]),
            dimensions,
            tokens,
            vocabulary_bytes,
        })
    }

    /// Compares the checksum of a file with a valid header.
    fn check(bytes: &[u8]) -> Result<()> {
        let found = blake3::Hasher::new()
            .update(&bytes[..CHECKSUM.start])
            .update(&bytes[CHECKSUM.end..])
            .finalize();
        if found.as_slice() != &bytes[CHECKSUM] {
            return Err(failed("it is damaged: its checksum does not match"));
        }
        Ok(())
    }
}

/// The length of codes, as a vector.
fn length_of(row: &[u8]) -> f32 {
    let squares = row
        .iter()
        .map(|code| i32::from(code.cast_signed()).pow(2))
        .sum::<i32>();
    (squares as f32).sqrt()
}

fn failed(reason: impl fmt::Display) -> Error {
    unusable_part(NAME, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u32, dimensions: u32, words: &str, rows: &[&[i8]]) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        for field in [version, dimensions, rows.len() as u32, words.len() as u32] {
            head.extend(field.to_le_bytes());
        }
        let mut body = words.as_bytes().to_vec();
        body.extend(rows.iter().flat_map(|_| 0.5f32.to_le_bytes()));
        body.extend(
            rows.iter()
                .flat_map(|row| row.iter().map(|code| code.cast_unsigned())),
        );
        let sum = blake3::Hasher::new().update(&head).update(&body).finalize();
        [head, sum.as_bytes().to_vec(), body].concat()
    }

    fn reason(bytes: Vec<u8>) -> String {
        match StaticTable::read(bytes) {
            Err(Error::Embedder { reason, .. }) => reason,
            Err(other) => other.to_string(),
            Ok(_) => "read".to_owned(),
        }
    }

    #[test]
    fn a_text_is_the_direction_of_its_tokens_mean() {
        let table =
            StaticTable::read(file(1, 2, "send\nmail\n##s", &[&[3, 0], &[0, 4], &[0, 0]])).unwrap();
        assert_eq!(table.embed("Send mails!"), [0.6, 0.8]);
        assert_eq!(table.embed("send"), [1.0, 0.0]);
        assert_eq!(table.embed("?"), [0.0, 0.0]);
        assert_eq!(
            table.embed_tools(&["send", "mail"]).unwrap(),
            [[1.0, 0.0], [0.0, 1.0]]
        );
    }

    #[test]
    fn another_version_damage_and_other_sizes_are_named() {
        let good = file(1, 2, "a", &[&[1, 2]]);
        assert_eq!(reason(good.clone()), "read");
        assert!(reason(b"no".to_vec()).contains("no static table"));
        assert!(reason(file(2, 2, "a", &[&[1, 2]])).contains("layout 2"));
        assert!(reason(file(1, 0, "a", &[&[]])).contains("0 dimensions"));
        assert!(reason(file(1, 3, "a", &[&[1, 2]])).contains("take 64 bytes, it has 63"));
        assert!(reason(good[..good.len() - 1].to_vec()).contains("it has 62"));
        for place in CHECKSUM.start..good.len() {
            let mut damaged = good.clone();
            damaged[place] ^= 1;
            assert!(reason(damaged).contains("damaged"), "byte {place}");
        }
    }

    #[test]
    fn the_bundled_table_finds_similar_texts_similar() {
        assert!(StaticTable::read(BUNDLED).is_ok());
        let table = StaticTable::bundled().unwrap();
        let cosine = |a: &str, b: &str| -> f32 {
            table
                .embed(a)
                .iter()
                .zip(table.embed(b))
                .map(|(a, b)| a * b)
                .sum()
        };
        let request = "will it rain tomorrow";
        assert!(
            cosine(request, "weather forecast") > cosine(request, "currency exchange rates") + 0.1
        );
        assert!(table.id().starts_with("static-table/"));
    }

    #[test]
    fn unusual_texts_have_vectors_of_finite_numbers() {
        let table = StaticTable::bundled().unwrap();
        for text in [
            "",
            " ",
            "?!…",
            "🙂🙃",
            "\u{0}\u{fffd}",
            "查询天气",
            &"x".repeat(100_000),
            &"a ".repeat(50_000),
        ] {
            assert!(table.embed(text).iter().all(|value| value.is_finite()));
        }
    }
}
