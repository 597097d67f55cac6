//! The table for languages other than English: one vector per piece of a word; the vector of a text
//! is the sum of its pieces' vectors, scaled to length 1. Texts that mean the same in different
//! languages have similar vectors.
//!
//! The file is little-endian throughout:
//!
//! | bytes | |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this layout |
//! | 32 | BLAKE3 of all the rest of the file |
//! | 4 | pieces |
//! | 4 | dimensions |
//! | 4 | dimensions in a group |
//! | 1 a piece | the length of each piece in bytes |
//! | | the pieces in UTF-8, one after another, in the order of their bytes |
//! | 2 a piece | the cost of each: the negative logarithm of its probability, times 2,048 |
//! | 2 a group | the value of code 1 as bfloat16, piece by piece |
//! | ½ a dimension | the codes plus 8, four bits each, the lower half of a byte first |
//!
//! `scripts/languages` builds it; `assets/LANGUAGES_CARD.md` lists its sources and quality.

mod pieces;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use toolscout_encoder::two_codes;

use self::pieces::Pieces;
use crate::document::View;
use crate::embed::{
    Embedder, EmbedderProfile, Languages, LeastCosines, read_once, to_unit_length, unusable_part,
};
use crate::error::{Error, Result};
use crate::language::Language;

/// The table's name; its id adds the checksum.
pub const NAME: &str = "languages-table";

const VERSION: u32 = 1;
const CHECKSUM: Range<usize> = 12..44;
const HEADER: usize = 56;
/// More than any table has. Keeps sizes from a damaged header from overflowing.
const MAX_DIMENSIONS: usize = 4096;

/// Just below the least that was measured for short requests in each language with a right tool, and
/// above the most for strings that mean nothing; `assets/LANGUAGES_CARD.md` has the distributions.
const LEAST_COSINES: LeastCosines<'static> = LeastCosines {
    pairs: &[
        (Language::OtherLatin, Language::English, 0.11),
        (Language::Cyrillic, Language::English, 0.16),
        (Language::Chinese, Language::English, 0.19),
        (Language::Japanese, Language::English, 0.16),
        (Language::Korean, Language::English, 0.18),
    ],
    otherwise: 0.2,
    nonsense: Some(0.45),
};

/// Phrases with which Chinese requests begin. The longer of two comes first.
const CHINESE_PHRASES_OF_ASKING: &[&str] = &[
    "请问",
    "请",
    "麻烦你",
    "麻烦",
    "帮我",
    "帮忙",
    "给我",
    "我想要",
    "我想",
    "我要",
    "我需要",
    "想要",
    "能不能",
    "可不可以",
    "可以",
    "能否",
    "看一下",
    "看下",
    "看看",
    "了解一下",
    "了解下",
];
/// Characters that 下 ("next", "below") makes a word with.
const AFTER_NEXT: &str = "周个午月次面班星礼学半季场载单";
/// Chinese characters that say nothing of a subject if they stand alone: particles, pronouns and
/// suffixes, such as 下 in 看下 ("have a look"), which has the vector of "down". In words of two
/// characters they are translated with them.
const CHINESE_FUNCTION_CHARACTERS: &str = "下了吗呢吧的地得着过把被我你您他她它们请啊呀哦嗯么个一";

static BUNDLED: &[u8] = include_bytes!("../../assets/languages.bin");

/// A loaded table.
pub struct MultilingualTable {
    id: String,
    dimensions: usize,
    group: usize,
    pieces: Pieces,
    // The bundled table is read where it lies in the program and not copied.
    bytes: Cow<'static, [u8]>,
    /// Offset of the values of code 1.
    scales: usize,
    /// Offset of the codes.
    codes: usize,
}

impl MultilingualTable {
    /// The first bytes of a table's file.
    pub const MAGIC: &[u8; 8] = b"toolscML";

    /// The table the crate carries, read once for the process in some milliseconds.
    ///
    /// # Errors
    /// [`Error::Embedder`] when the program was built with a damaged table.
    pub fn bundled() -> Result<Arc<Self>> {
        static TABLE: OnceLock<Arc<MultilingualTable>> = OnceLock::new();
        // A test compares the checksum, which would take longer than reading.
        read_once(&TABLE, || MultilingualTable::trusted(BUNDLED))
    }

    /// Reads a table file.
    ///
    /// # Errors
    /// [`Error::Embedder`] when the file is not a table, has another version or dimensions out of
    /// range, or is cut short or damaged.
    pub fn read(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        Header::read(&bytes)?;
        Header::check(&bytes)?;
        MultilingualTable::trusted(bytes)
    }

    /// Reads a file without comparing its checksum.
    fn trusted(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self> {
        let bytes = bytes.into();
        let header = Header::read(&bytes)?;
        let texts = HEADER + header.pieces;
        let costs = header.costs;
        let scales = costs + 2 * header.pieces;
        let codes = scales + 2 * header.pieces * header.dimensions / header.group;
        let pieces = Pieces::new(
            &bytes[HEADER..texts],
            &bytes[texts..costs],
            &bytes[costs..scales],
        )
        .map_err(failed)?;
        Ok(MultilingualTable {
            id: header.id,
            dimensions: header.dimensions,
            group: header.group,
            pieces,
            bytes,
            scales,
            codes,
        })
    }

    /// The unit vector of a text; all zeros when none of its pieces is in the table.
    pub fn embed(&self, text: &str) -> Vec<f32> {
        let zeros = vec![0.0; self.dimensions / 2];
        let mut sums = [zeros.clone(), zeros];
        for piece in self.pieces.of(text) {
            self.add_row(piece as usize, &mut sums);
        }
        let [even, odd] = sums;
        let mut vector = Vec::with_capacity(self.dimensions);
        for (even, odd) in even.into_iter().zip(odd) {
            vector.extend([even, odd]);
        }
        to_unit_length(&mut vector);
        vector
    }

    /// The words of a text; where words are written without spaces, its pieces.
    pub fn words(&self, text: &str) -> Vec<String> {
        self.pieces.words(text)
    }

    /// A Chinese request without the phrases of asking at its beginning. In a request of a few characters
    /// they weigh as much as its subject: 我想看下时间 ("I would like to have a look at the time").
    pub(crate) fn subject_of(request: &str) -> &str {
        let mut subject = request.trim_start();
        while let Some(rest) = without_phrase_of_asking(subject) {
            subject = rest.trim_start();
        }
        if subject.is_empty() {
            return request;
        }
        subject
    }

    /// The words of a request's subject, without Chinese function characters that stand alone.
    pub(crate) fn words_of_subject(&self, request: &str) -> Vec<String> {
        let mut words = self.words(Self::subject_of(request));
        words.retain(|word| !is_chinese_function_character(word));
        words
    }

    /// How unlikely the likeliest word of a text is in any of the languages: the negative logarithm
    /// of its probability, a letter. Infinite without a letter.
    pub fn least_letter_cost(&self, text: &str) -> f32 {
        self.pieces.least_letter_cost(text)
    }

    /// Number of its pieces.
    #[allow(clippy::len_without_is_empty, reason = "no table is empty")]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Adds a row to the sums of the even and the odd dimensions, which are apart so that the
    /// processor can add several at once.
    fn add_row(&self, piece: usize, [even, odd]: &mut [Vec<f32>; 2]) {
        let groups = self.dimensions / self.group;
        let scales = &self.bytes[self.scales + 2 * piece * groups..][..2 * groups];
        let codes = &self.bytes[self.codes + piece * self.dimensions / 2..][..self.dimensions / 2];
        let half = self.group / 2;
        let in_groups = even
            .chunks_exact_mut(half)
            .zip(odd.chunks_exact_mut(half))
            .zip(codes.chunks_exact(half));
        for (((even, odd), codes), scale) in in_groups.zip(scales.as_chunks::<2>().0) {
            // A bfloat16 is the upper half of a float.
            let scale = f32::from_bits(u32::from(u16::from_le_bytes(*scale)) << 16);
            for ((even, odd), &code) in even.iter_mut().zip(odd).zip(codes) {
                let [low, high] = two_codes(code);
                *even += scale * low;
                *odd += scale * high;
            }
        }
    }
}

impl Embedder for MultilingualTable {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            languages: Languages::OtherThanEnglish,
            // The name as a view of its own raises the mean success at 5 in nine languages by .02.
            views: &[View::Everything, View::Name],
            is_instant: true,
            least_cosines: LEAST_COSINES,
            ..EmbedderProfile::new(&self.id, self.dimensions)
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts
            .iter()
            .map(|text| self.embed(Self::subject_of(text)))
            .collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts.iter().map(|text| self.embed(text)).collect())
    }
}

fn without_phrase_of_asking(request: &str) -> Option<&str> {
    for phrase in CHINESE_PHRASES_OF_ASKING {
        let Some(rest) = request.strip_prefix(phrase) else {
            continue;
        };
        // In 看下周 ("see next week") the second character belongs to the third.
        let is_next = phrase.ends_with('下') && rest.starts_with(|c| AFTER_NEXT.contains(c));
        return (!is_next).then_some(rest);
    }
    None
}

fn is_chinese_function_character(word: &str) -> bool {
    let mut characters = word.chars();
    match (characters.next(), characters.next()) {
        (Some(only), None) => CHINESE_FUNCTION_CHARACTERS.contains(only),
        _ => false,
    }
}

/// The checked header of a file of the right length.
struct Header {
    id: String,
    pieces: usize,
    dimensions: usize,
    group: usize,
    /// Offset of the costs.
    costs: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < HEADER || !bytes.starts_with(MultilingualTable::MAGIC) {
            return Err(failed(format!(
                "these {} bytes are no table of languages",
                bytes.len()
            )));
        }
        let version = number_at(bytes, MultilingualTable::MAGIC.len());
        if version != VERSION as usize {
            return Err(failed(format!(
                "it has layout {version} and this program reads layout {VERSION}"
            )));
        }
        let pieces = number_at(bytes, CHECKSUM.end);
        let dimensions = number_at(bytes, CHECKSUM.end + 4);
        let group = number_at(bytes, CHECKSUM.end + 8);
        // Before the products below, which it keeps from overflowing.
        if !(2..=MAX_DIMENSIONS).contains(&dimensions)
            || group < 2
            || !group.is_multiple_of(2)
            || !dimensions.is_multiple_of(group)
        {
            return Err(failed(format!(
                "it has {dimensions} dimensions in groups of {group}; from 2 to {MAX_DIMENSIONS} in groups of an \
                 even number that divides them are possible"
            )));
        }
        // Empty if the file ends before them, which the comparison below refuses.
        let lengths = bytes.get(HEADER..HEADER + pieces).unwrap_or_default();
        let text_bytes: usize = lengths.iter().map(|&length| usize::from(length)).sum();
        let costs = HEADER + pieces + text_bytes;
        let expected = costs + pieces * (2 + 2 * dimensions / group + dimensions / 2);
        // Before the checksum, so that a file cut short is named as such.
        if lengths.len() != pieces || bytes.len() != expected {
            return Err(failed(format!(
                "{pieces} pieces of {dimensions} dimensions take {expected} bytes, it has {}",
                bytes.len()
            )));
        }
        Ok(Header {
            id: super::id_with_checksum(NAME, &bytes[CHECKSUM]),
            pieces,
            dimensions,
            group,
            costs,
        })
    }

    /// Compares the checksum of a file with a valid header.
    fn check(bytes: &[u8]) -> Result<()> {
        if blake3::hash(&bytes[CHECKSUM.end..]).as_slice() != &bytes[CHECKSUM] {
            return Err(failed("it is damaged: its checksum does not match"));
        }
        Ok(())
    }
}

fn number_at(bytes: &[u8], place: usize) -> usize {
    let field = &bytes[place..place + 4];
    u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize
}

fn failed(reason: impl fmt::Display) -> Error {
    unusable_part(NAME, reason)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_request_is_its_subject() {
        for (request, subject) in [
            ("我想看下时间", "时间"),
            ("麻烦帮我看一下 明天的天气", "明天的天气"),
            ("看下周的日程", "看下周的日程"),
            ("weather in Beijing", "weather in Beijing"),
            ("看看", "看看"),
        ] {
            assert_eq!(MultilingualTable::subject_of(request), subject);
        }
    }

    use super::*;

    /// Text, pieces, the first and the last value of its vector, and the sum of all values by their
    /// number from 1, as the program that built the table computed them.
    #[rustfmt::skip]
    const COMPUTED: &[(&str, &str, [f32; 3])] = &[
        ("Create an issue", "▁create ▁an ▁issue", [0.00791, 0.02599, -69.003]),
        ("What will the weather be like tomorrow in Berlin?", "▁what ▁will ▁the ▁weather ▁be ▁like ▁tomorrow ▁in ▁berlin", [0.06528, 0.01356, -10.611]),
        ("删除这个文件", "▁ 删除 这个 文件", [0.00990, -0.01177, -91.519]),
        ("帮我订一张明天去上海的机票", "▁ 帮 我 订 一张 明天 去 上海 的 机 票", [0.10450, -0.04677, -15.428]),
        ("把灯打开", "▁ 把 灯 打开", [-0.01493, -0.09213, 0.909]),
        ("ファイルを削除する", "▁ ファイル を 削除 する", [0.06501, -0.02361, -12.686]),
        ("会議の予定をキャンセルして", "▁ 会議 の 予定 を キャンセル して", [-0.02178, 0.06472, -46.900]),
        ("파일을 삭제해 줘", "▁파일 을 ▁삭제 해 ▁ 줘", [-0.01417, -0.03040, -63.202]),
        ("내일 날씨 알려 줘", "▁내 일 ▁날씨 ▁알려 ▁ 줘", [-0.00217, 0.05556, -119.599]),
        ("Envía un mensaje a Ana", "▁en ví a ▁un ▁mensaje ▁a ▁ana", [-0.09753, 0.02292, -121.808]),
        ("¿Cuánto cuesta el envío?", "▁cuánto ▁cu esta ▁el ▁envío", [0.04378, -0.03667, 72.394]),
        ("Envie um e-mail para o João", "▁envie ▁um ▁e ▁mail ▁para ▁o ▁jo ão", [-0.12523, -0.01814, -239.266]),
        ("Traduza este texto para inglês", "▁traduz a ▁este ▁texto ▁para ▁inglês", [-0.05268, 0.02644, 35.659]),
        ("Où est la gare la plus proche ?", "▁où ▁est ▁la ▁gare ▁la ▁plus ▁proche", [0.05869, 0.03839, 394.443]),
    ];

    #[test]
    fn texts_have_the_vectors_that_the_table_was_built_with() {
        let table = MultilingualTable::bundled().unwrap();
        for (text, pieces, expected) in COMPUTED {
            assert_eq!(table.pieces.texts(text).join(" "), *pieces, "{text}");
            let vector = table.embed(text);
            let by_number = vector.iter().zip(1u16..);
            let sum: f32 = by_number
                .map(|(value, number)| value * f32::from(number))
                .sum();
            let found = [vector[0], vector[255], sum];
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 2e-3,
                    "{text}: {found} is not {expected}"
                );
            }
        }
    }

    #[test]
    fn the_bundled_file_is_whole() {
        assert!(MultilingualTable::read(BUNDLED).is_ok());
    }

    #[test]
    fn a_text_without_pieces_has_no_direction() {
        let table = MultilingualTable::bundled().unwrap();
        assert!(table.embed("🙂 !?").iter().all(|value| *value == 0.0));
    }
}
