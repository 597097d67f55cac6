//! The encoder that ships with the program: a transformer for requests and tools in English, trained
//! from all-MiniLM-L6-v2. Needs no download. `assets/ENCODER_CARD.md` lists its sources and quality.

use std::sync::{Arc, OnceLock};

use toolscout_encoder::DIMENSIONS;

use super::{Embedder, EmbedderProfile, Languages, LeastCosines, read_once, unusable_part};
use crate::error::Result;

/// The encoder's name; its id adds the checksum.
pub const NAME: &str = "tool-encoder";

/// Texts of tools that are stored together: about a second's work.
pub(super) const BATCH: usize = 256;
/// Dimensions are principal components, the strongest first: a quarter of them has 76% of the
/// squared length. On aws_ops (18,917 tools) nDCG@10 stayed within .0005, with 64 within .0013.
const LEADING: usize = 96;
/// Weight beside the static table: .65 of the dense score, as for all-MiniLM-L6-v2.
const SHARE: f32 = 0.65;

/// "block Friday afternoon" has .20 with a tool that creates events, and unrelated requests have .06
/// at most in so small a catalog. Among 527 tools, the best cosine of 60 short requests was .22 at
/// least, and of 40 strings that mean nothing .52 at most; a command that no other part of a search
/// knows ("mkdir") has .58.
const LEAST_COSINES: LeastCosines<'static> = LeastCosines {
    pairs: &[],
    otherwise: 0.18,
    nonsense: Some(0.55),
};

static BUNDLED: &[u8] = include_bytes!("../../assets/encoder.bin");

/// The loaded encoder.
pub struct Encoder {
    id: String,
    network: toolscout_encoder::Encoder,
}

impl Encoder {
    /// The encoder the crate carries, read once for the process in some milliseconds.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`] when the program was built with a file that is no encoder.
    pub fn bundled() -> Result<Arc<Self>> {
        static ENCODER: OnceLock<Arc<Encoder>> = OnceLock::new();
        read_once(&ENCODER, || {
            // A test compares the checksum.
            let network = toolscout_encoder::Encoder::trusted(BUNDLED)
                .map_err(|unreadable| unusable_part(NAME, unreadable))?;
            Ok(Encoder::new(network))
        })
    }

    /// An encoder of a file that `scripts/encoder` wrote.
    ///
    /// # Errors
    /// [`crate::Error::Embedder`] when the file is no encoder, or damaged.
    pub fn read(bytes: Vec<u8>) -> Result<Self> {
        let network = toolscout_encoder::Encoder::read(bytes)
            .map_err(|unreadable| unusable_part(NAME, unreadable))?;
        Ok(Encoder::new(network))
    }

    fn new(network: toolscout_encoder::Encoder) -> Self {
        Encoder {
            id: super::id_with_checksum(NAME, network.checksum().as_bytes()),
            network,
        }
    }
}

impl Embedder for Encoder {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            leading_dimensions: LEADING,
            languages: Languages::English,
            share: SHARE,
            least_cosines: LEAST_COSINES,
            ..EmbedderProfile::new(&self.id, DIMENSIONS)
        }
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(self.network.embed(texts))
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(self.network.embed(texts))
    }

    fn batch(&self) -> usize {
        BATCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bytes: Vec<u8>) -> String {
        match toolscout_encoder::Encoder::read(bytes) {
            Err(unreadable) => unreadable.to_string(),
            Ok(_) => "read".to_owned(),
        }
    }

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn the_bundled_file_is_whole_and_others_are_named() {
        assert_eq!(reason(BUNDLED.to_vec()), "read");
        assert!(reason(b"no".to_vec()).contains("these 2 bytes are no encoder"));
        assert!(reason(BUNDLED[..BUNDLED.len() - 1].to_vec()).contains("it has"));
        let changed = |place: usize| {
            let mut bytes = BUNDLED.to_vec();
            bytes[place] ^= 1;
            reason(bytes)
        };
        assert!(changed(8).contains("layout 0"));
        assert!(changed(12).contains("state, layers, heads"));
        assert!(changed(32).contains("tokens take"));
        for place in [36, 40, 71, 100, BUNDLED.len() / 2, BUNDLED.len() - 1] {
            let reason = changed(place);
            assert!(
                reason.contains("damaged") || reason.contains("tokens take"),
                "byte {place}: {reason}"
            );
        }
    }

    #[test]
    fn a_text_has_the_same_vector_alone_and_among_others() {
        let encoder = Encoder::bundled().unwrap();
        let long = "a long description ".repeat(200);
        let texts = ["create an issue", "", "weather in Berlin", &long, "?!"];
        let together = encoder.network.embed(&texts);
        for (text, vector) in texts.iter().zip(&together) {
            assert_eq!(encoder.network.embed(&[text])[0], *vector, "{text}");
            assert!((cosine(vector, vector) - 1.0).abs() < 1e-5);
        }
        assert!(encoder.network.embed(&[]).is_empty());
    }

    #[test]
    fn a_request_is_closest_to_its_tool() {
        let encoder = Encoder::bundled().unwrap();
        let vectors = encoder.network.embed(&[
            "will it rain tomorrow",
            "weather get forecast: Get the weather forecast for a place",
            "money convert: Convert an amount from one currency to another",
        ]);
        let [right, wrong] = [1, 2].map(|tool| cosine(&vectors[0], &vectors[tool]));
        assert!(right > wrong + 0.2, "{right} {wrong}");
    }
}
