//! all-MiniLM-L6-v2 through fastembed and ONNX Runtime: 384 dimensions, English.

use std::path::Path;

use fastembed::{
    InitOptionsUserDefined, Pooling, TextEmbedding, TokenizerFiles, UserDefinedEmbeddingModel,
};

use super::pool::Pool;
use crate::embed::{Embedder, EmbedderProfile, Languages};
use crate::error::{Error, Result};

/// The model's name.
pub const NAME: &str = "all-MiniLM-L6-v2";
/// Length of its vectors.
pub const DIMENSIONS: usize = 384;
/// The files a model folder holds, the weights first.
pub const FILES: [&str; 5] = [
    "model.onnx",
    "tokenizer.json",
    "config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
];

/// Tokens read of a text. The model was trained on no more, and a tool's first sentences state its
/// purpose.
const MAX_TOKENS: usize = 128;
/// Threads within one inference. Texts are embedded in parallel; one thread each gives the highest
/// throughput.
const INTRA_THREADS: usize = 1;
/// Texts per inference. Batches are padded to their longest text, so that 32 at once have half the
/// throughput of one by one.
const BATCH: usize = 1;
/// Parallel inferences at most, each with a session of about 50 MB.
const MAX_SESSIONS: usize = 8;
/// Weight beside the static table: .65 of the dense score was best on twelve sets.
const SHARE: f32 = 0.65;

/// A loaded all-MiniLM-L6-v2. Runs as many inferences in parallel as there are processors, up to 8.
pub struct MiniLm {
    id: String,
    sessions: Pool<TextEmbedding>,
}

impl MiniLm {
    /// Loads the model's files from a folder and ONNX Runtime 1.24 or newer from a library file.
    /// Takes about 0.3 s.
    ///
    /// # Errors
    /// [`Error::Embedder`] with the file that is missing, too old or not a model.
    pub fn load(model_dir: &Path, runtime: &Path) -> Result<Self> {
        load_runtime(runtime)?;
        let (id, first) = session(model_dir)?;
        let model_dir = model_dir.to_owned();
        let expected = id.clone();
        let another = move || match session(&model_dir)? {
            // Vectors of two models must not get the same id.
            (id, session) if id == expected => Ok(session),
            _ => Err(failed(
                &model_dir,
                "the model was replaced by another one; start again to use it",
            )),
        };
        let limit = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(MAX_SESSIONS);
        Ok(MiniLm {
            id,
            sessions: Pool::new(first, limit, another),
        })
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let lanes = self.sessions.limit().min(texts.len());
        // A single text, as of a request, needs no thread.
        if lanes <= 1 {
            return self.embed_in_turn(texts);
        }
        // Not on rayon's threads: the tokenizer uses them, and they must not wait for a session
        // while they hold one.
        std::thread::scope(|scope| {
            let parts = texts.chunks(texts.len().div_ceil(lanes));
            let lanes: Vec<_> = parts
                .map(|part| scope.spawn(|| self.embed_in_turn(part)))
                .collect();
            let mut vectors = Vec::with_capacity(texts.len());
            for lane in lanes {
                vectors.extend(
                    lane.join()
                        .map_err(|_| failed(Path::new(NAME), "an inference panicked"))??,
                );
            }
            Ok(vectors)
        })
    }

    fn embed_in_turn(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        texts.iter().map(|text| self.embed_one(text)).collect()
    }

    fn embed_one(&self, text: &str) -> Result<Vec<f32>> {
        let embedded = self
            .sessions
            .with(|session| session.embed([text], Some(BATCH)))?;
        let vector = embedded.map_err(|e| failed(Path::new(NAME), e))?.pop();
        vector.ok_or_else(|| failed(Path::new(NAME), "it gave no vector"))
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
        self.embed(texts)
    }

    fn embed_tools(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        self.embed(texts)
    }
}

/// The model's id and a session of it.
fn session(model_dir: &Path) -> Result<(String, TextEmbedding)> {
    let read = |file: &str| {
        let path = model_dir.join(file);
        std::fs::read(&path).map_err(|e| failed(&path, e))
    };
    let [
        weights,
        tokenizer_file,
        config_file,
        special_tokens_map_file,
        tokenizer_config_file,
    ] = FILES;
    let weights = read(weights)?;
    // The id names the exact weights: vectors of an int8 and a float model must not be mixed.
    let id = format!(
        "{NAME}/{}/{MAX_TOKENS}",
        &blake3::hash(&weights).to_hex()[..8]
    );
    let tokenizer_files = TokenizerFiles {
        tokenizer_file: read(tokenizer_file)?,
        config_file: read(config_file)?,
        special_tokens_map_file: read(special_tokens_map_file)?,
        tokenizer_config_file: read(tokenizer_config_file)?,
    };
    let files =
        // The model was trained with the mean of its tokens.
        UserDefinedEmbeddingModel::new(weights, tokenizer_files).with_pooling(Pooling::Mean);
    let options = InitOptionsUserDefined::new()
        .with_max_length(MAX_TOKENS)
        .with_intra_threads(INTRA_THREADS);
    let session = TextEmbedding::try_new_from_user_defined(files, options)
        .map_err(|e| failed(model_dir, e))?;
    Ok((id, session))
}

/// Loads the library once for the process. Without this check fastembed panics.
///
/// # Errors
/// [`Error::Embedder`] when the file is missing, is not ONNX Runtime, or is too old.
pub fn load_runtime(runtime: &Path) -> Result<()> {
    if !runtime.is_file() {
        return Err(failed(
            runtime,
            "no such file; ONNX Runtime 1.24 or newer is expected here",
        ));
    }
    // Only loads the library; the first session creates the environment.
    ort::init_from(runtime)
        .map(drop)
        .map_err(|e| failed(runtime, format!("{e}; use 1.24 or newer")))
}

fn failed(model: &Path, reason: impl ToString) -> Error {
    Error::Embedder {
        model: model.display().to_string(),
        reason: reason.to_string(),
    }
}
