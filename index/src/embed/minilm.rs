//! all-MiniLM-L6-v2 through fastembed and ONNX Runtime: 384 dimensions, English.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fastembed::{InitOptionsUserDefined, Pooling, TextEmbedding, TokenizerFiles, UserDefinedEmbeddingModel};

use crate::embed::{Embedder, Scripts};
use crate::error::{Error, Result};

/// The model's name.
pub const NAME: &str = "all-MiniLM-L6-v2";
/// Length of its vectors.
pub const DIMENSIONS: usize = 384;
/// The files a model folder holds, the weights first.
pub const FILES: [&str; 5] =
    ["model.onnx", "tokenizer.json", "config.json", "special_tokens_map.json", "tokenizer_config.json"];

/// Tokens read of a text. The model was trained on no more, and a tool's first sentences say what it is for.
const MAX_TOKENS: usize = 128;
/// Threads within one inference: one is steadiest on small machines; several searches run side by side anyway.
const INTRA_THREADS: usize = 1;
/// Its say beside the static table: on twelve sets .65 of the dense score was best.
const SHARE: f32 = 0.65;
/// Texts per inference.
const BATCH: usize = 32;

/// A loaded all-MiniLM-L6-v2. One inference runs at a time.
pub struct MiniLm {
    id: String,
    model: Mutex<TextEmbedding>,
}

impl MiniLm {
    /// Loads the model's files from a folder and ONNX Runtime 1.24 or newer from a library file. Takes about 0.3 s.
    ///
    /// # Errors
    /// [`Error::Embedder`] naming the file that is missing, too old or no model.
    pub fn load(model_dir: &Path, runtime: &Path) -> Result<Self> {
        load_runtime(runtime)?;
        let read = |file: &str| {
            let path = model_dir.join(file);
            std::fs::read(&path).map_err(|e| failed(&path, format!("{e}; fetch it with `toolscout models pull`")))
        };
        let [weights, tokenizer_file, config_file, special_tokens_map_file, tokenizer_config_file] = FILES;
        let weights = read(weights)?;
        // The id names the exact weights: vectors of an int8 and a float model must not be mixed.
        let id = format!("{NAME}/{}/{MAX_TOKENS}", &blake3::hash(&weights).to_hex()[..8]);
        let tokenizer_files = TokenizerFiles {
            tokenizer_file: read(tokenizer_file)?,
            config_file: read(config_file)?,
            special_tokens_map_file: read(special_tokens_map_file)?,
            tokenizer_config_file: read(tokenizer_config_file)?,
        };
        let files = UserDefinedEmbeddingModel::new(weights, tokenizer_files).with_pooling(Pooling::Mean);
        let options = InitOptionsUserDefined::new().with_max_length(MAX_TOKENS).with_intra_threads(INTRA_THREADS);
        let model = TextEmbedding::try_new_from_user_defined(files, options).map_err(|e| failed(model_dir, e))?;
        Ok(MiniLm { id, model: Mutex::new(model) })
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let embedded = model.embed(texts, Some(BATCH)).map_err(|e| failed(Path::new(NAME), e))?;
        Ok(embedded)
    }
}

impl Embedder for MiniLm {
    fn id(&self) -> &str {
        &self.id
    }

    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    fn scripts(&self) -> Scripts {
        Scripts::Latin
    }

    fn share(&self) -> f32 {
        SHARE
    }

    fn embed_queries(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed(texts)
    }
}

/// Loads the library once for the process; fastembed would panic where this gives an error.
///
/// # Errors
/// [`Error::Embedder`] when it is missing, no ONNX Runtime, or too old.
pub fn load_runtime(runtime: &Path) -> Result<()> {
    if !runtime.is_file() {
        return Err(failed(runtime, "no such file; `toolscout models pull` fetches ONNX Runtime"));
    }
    // Loading is what is wanted here; the environment is made with the first session.
    ort::init_from(runtime).map(drop).map_err(|e| failed(runtime, format!("{e}; use 1.24 or newer")))
}

fn failed(model: &Path, reason: impl ToString) -> Error {
    Error::Embedder { model: model.display().to_string(), reason: reason.to_string() }
}
