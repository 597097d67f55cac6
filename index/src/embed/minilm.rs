//! all-MiniLM-L6-v2 from the files that its makers published: 384 dimensions, English.

use std::fs::File;
use std::path::Path;

use memmap2::Mmap;
use toolscout_encoder::{Encoder, MAX_TOKENS};

use crate::embed::{Embedder, EmbedderProfile, Languages};
use crate::error::{Error, Result};

pub use toolscout_encoder::DIMENSIONS;

/// The model's name.
pub const NAME: &str = "all-MiniLM-L6-v2";
/// The files a model folder holds, the weights first.
pub const FILES: [&str; 2] = ["model.safetensors", "tokenizer.json"];

/// Weight beside the static table: .65 of the dense score was best on twelve sets.
const SHARE: f32 = 0.65;

/// A loaded all-MiniLM-L6-v2.
pub struct MiniLm {
    id: String,
    network: Encoder,
}

impl MiniLm {
    /// Loads the model's files from a folder. Takes about 0.1 s and 24 MB.
    ///
    /// # Errors
    /// [`Error::Embedder`] with the file that is missing, or what is wrong with the model.
    pub fn load(model_dir: &Path) -> Result<Self> {
        let [weights, tokenizer] = FILES.map(|file| mapped(&model_dir.join(file)));
        let network = Encoder::published(&weights?, &tokenizer?)
            .map_err(|unreadable| failed(model_dir, format!("{unreadable}; fetch it again")))?;
        // The id names the exact weights: vectors of two models must not be mixed.
        let id = format!("{NAME}/{}/{MAX_TOKENS}", &network.checksum().to_hex()[..8]);
        Ok(MiniLm { id, network })
    }
}

impl Embedder for MiniLm {
    fn profile(&self) -> EmbedderProfile<'_> {
        EmbedderProfile {
            languages: Languages::English,
            share: SHARE,
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
        super::encoder::BATCH
    }
}

/// A file in memory as far as it is read: 90 MB of floats are needed once.
fn mapped(path: &Path) -> Result<Mmap> {
    let file = File::open(path).map_err(|error| failed(path, error))?;
    // SAFETY: models are replaced by renaming, so that nothing changes under a mapping.
    unsafe { Mmap::map(&file) }.map_err(|error| failed(path, error))
}

fn failed(model: &Path, reason: impl ToString) -> Error {
    Error::Embedder {
        model: model.display().to_string(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_missing_or_no_model_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let reason = || match MiniLm::load(dir.path()) {
            Err(error) => error.to_string(),
            Ok(_) => "loaded".to_owned(),
        };
        let [weights, tokenizer] = FILES.map(|file| dir.path().join(file));
        assert!(reason().contains("model.safetensors: "), "{}", reason());
        std::fs::write(weights, "half").unwrap();
        assert!(reason().contains("tokenizer.json: "), "{}", reason());
        std::fs::write(&tokenizer, "{}").unwrap();
        assert!(reason().contains("its tokenizer cannot be read"));
        let vocabulary = r#"{"model": {"vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}}}"#;
        std::fs::write(tokenizer, vocabulary).unwrap();
        assert!(reason().contains("its weights are cut short or damaged"));
    }
}
