//! A deterministic embedder for tests: hashes words into a few dimensions.

use crate::embed::{Embedder, EmbedderProfile, to_unit_length};
use crate::error::Result;
use crate::text;

/// Embeds a text as the normalised sum of one pseudorandom vector per term. Texts are similar when
/// they share words, so use it in tests only.
#[derive(Clone, Debug)]
pub struct Hashing {
    id: String,
    dimensions: usize,
}

impl Hashing {
    /// An embedder of this many dimensions.
    pub fn new(dimensions: usize) -> Self {
        Hashing {
            id: format!("hashing-{dimensions}"),
            dimensions,
        }
    }

    fn embed(&self, text: &str) -> Vec<f32> {
        let mut vector = vec![0.0f32; self.dimensions];
        for term in text::terms(text) {
            let mut bytes = blake3::Hasher::new()
                .update(term.term.as_bytes())
                .finalize_xof();
            let mut noise = vec![0; self.dimensions];
            bytes.fill(&mut noise);
            for (value, noise) in vector.iter_mut().zip(noise) {
                // Centred on 0, so that vectors of different terms are nearly orthogonal.
                *value += f32::from(noise) - 127.5;
            }
        }
        to_unit_length(&mut vector);
        vector
    }
}

impl Embedder for Hashing {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile::new(&self.id, self.dimensions)
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        Ok(texts.iter().map(|text| self.embed(text)).collect())
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed_queries(texts)
    }
}
