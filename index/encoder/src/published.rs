//! An encoder from the files that a model is published as: `model.safetensors`, which holds floats
//! by name, and `tokenizer.json`, which holds the vocabulary.

use std::borrow::Cow;
use std::collections::HashMap;

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::embeddings::Embeddings;
use crate::layers::{HIDDEN, INTERMEDIATE, LAYERS, Layer, Norm};
use crate::matrix::{Matrix, Precision};
use crate::quantise::{self, Float};
use crate::tokens::Tokens;
use crate::{Encoder, MAX_TOKENS, Unreadable, failed};

/// Positions of the published table, of which the first are used.
const POSITIONS: usize = 512;
/// Rows of the table that tells the first text of a pair from the second.
const PARTS: usize = 2;

impl Encoder {
    /// Reads the files of a BERT of this shape. Matrices and embeddings of tokens become bytes, with
    /// a scale for each output and each token; vectors are not turned.
    ///
    /// # Errors
    /// [`Unreadable`], with the tensor that is missing or has another shape or type.
    pub fn published(weights: &[u8], tokenizer: &[u8]) -> Result<Self, Unreadable> {
        let vocabulary = vocabulary(tokenizer)?;
        let tokens = Tokens::new(vocabulary.iter().map(String::as_str))?;
        // Side by side, since both read every byte.
        let (checksum, parts) = rayon::join(
            || blake3::hash(weights),
            || Parts::read(weights, vocabulary.len()),
        );
        let parts = parts?;
        Ok(Encoder {
            checksum,
            tokens,
            bytes: Cow::Owned(parts.codes),
            embeddings: parts.embeddings,
            positions: parts.positions,
            norm: parts.norm,
            layers: parts.layers,
            rotation: None,
            // Its makers trained it with floats.
            precision: Precision::TwoBytes,
        })
    }
}

/// What the weights of an encoder are read into.
struct Parts {
    embeddings: Embeddings,
    positions: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    codes: Vec<u8>,
}

impl Parts {
    fn read(file: &[u8], tokens: usize) -> Result<Self, Unreadable> {
        let tensors = match SafeTensors::deserialize(file) {
            Ok(tensors) => tensors,
            Err(error) => {
                let reason = format!("its weights are cut short or damaged: {error}");
                return Err(failed(reason));
            }
        };
        let mut weights = Weights {
            tensors,
            // A byte for each float.
            codes: Vec::with_capacity(file.len() / size_of::<Float>()),
        };
        let embeddings = weights.embeddings(tokens)?;
        let positions = weights.positions()?;
        let norm = weights.norm("embeddings.LayerNorm")?;
        let mut layers = Vec::with_capacity(LAYERS);
        for number in 0..LAYERS {
            layers.push(weights.layer(number)?);
        }
        Ok(Parts {
            embeddings,
            positions,
            norm,
            layers,
            codes: weights.codes,
        })
    }
}

/// Tensors by name, and the codes made of those read so far.
struct Weights<'a> {
    tensors: SafeTensors<'a>,
    codes: Vec<u8>,
}

impl<'a> Weights<'a> {
    fn embeddings(&mut self, tokens: usize) -> Result<Embeddings, Unreadable> {
        let name = "embeddings.word_embeddings.weight";
        let rows = self.tensor(name, &[tokens, HIDDEN])?;
        let (start, codes) = self.room(rows.len());
        let scales = finite(name, quantise::rows(rows, HIDDEN, codes))?;
        Ok(Embeddings::EightBit {
            scales,
            codes: start,
        })
    }

    fn positions(&self) -> Result<Vec<f32>, Unreadable> {
        let positions = self.floats(
            "embeddings.position_embeddings.weight",
            &[POSITIONS, HIDDEN],
        )?;
        let parts = self.floats("embeddings.token_type_embeddings.weight", &[PARTS, HIDDEN])?;
        // Every text is the first of its pair.
        let first = parts[..HIDDEN].iter().cycle();
        let used = positions[..MAX_TOKENS * HIDDEN].iter();
        Ok(used.zip(first).map(|(value, part)| value + part).collect())
    }

    fn layer(&mut self, number: usize) -> Result<Layer, Unreadable> {
        let layer = format!("encoder.layer.{number}");
        let projections = ["query", "key", "value"];
        let attention = projections.map(|part| format!("{layer}.attention.self.{part}"));
        let attention_output = format!("{layer}.attention.output.dense");
        let intermediate = format!("{layer}.intermediate.dense");
        let output = format!("{layer}.output.dense");
        Ok(Layer {
            attention: self.matrix(&attention, HIDDEN, HIDDEN)?,
            attention_output: self.matrix(&[attention_output], HIDDEN, HIDDEN)?,
            attention_norm: self.norm(&format!("{layer}.attention.output.LayerNorm"))?,
            intermediate: self.matrix(&[intermediate], INTERMEDIATE, HIDDEN)?,
            output: self.matrix(&[output], HIDDEN, INTERMEDIATE)?,
            output_norm: self.norm(&format!("{layer}.output.LayerNorm"))?,
        })
    }

    /// One matrix of several that lie one below the other.
    fn matrix(
        &mut self,
        names: &[String],
        outputs: usize,
        inputs: usize,
    ) -> Result<Matrix, Unreadable> {
        let blocks = self.codes.len();
        let (mut scales, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            let weight = format!("{name}.weight");
            let rows = self.tensor(&weight, &[outputs, inputs])?;
            let (_, codes) = self.room(rows.len());
            scales.extend(finite(&weight, quantise::blocks(rows, inputs, codes))?);
            bias.extend(self.floats(&format!("{name}.bias"), &[outputs])?);
        }
        Ok(Matrix::new(&self.codes, blocks, inputs, scales, bias))
    }

    fn norm(&self, name: &str) -> Result<Norm, Unreadable> {
        Ok(Norm {
            weight: self.floats(&format!("{name}.weight"), &[HIDDEN])?,
            bias: self.floats(&format!("{name}.bias"), &[HIDDEN])?,
        })
    }

    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Unreadable> {
        let floats = self.tensor(name, shape)?.iter().copied();
        finite(name, floats.map(f32::from_le_bytes).collect())
    }

    fn tensor(&self, name: &str, shape: &[usize]) -> Result<&'a [Float], Unreadable> {
        let Ok(tensor) = self.tensors.tensor(name) else {
            return Err(failed(format!("its weights have no tensor {name}")));
        };
        if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
            return Err(failed(format!(
                "its tensor {name} is {} of shape {:?}; this program reads F32 of shape {shape:?}",
                tensor.dtype(),
                tensor.shape()
            )));
        }
        Ok(tensor.data().as_chunks().0)
    }

    /// Room for more codes, and its offset.
    fn room(&mut self, count: usize) -> (usize, &mut [u8]) {
        let start = self.codes.len();
        self.codes.resize(start + count, 0);
        (start, &mut self.codes[start..])
    }
}

fn finite(name: &str, floats: Vec<f32>) -> Result<Vec<f32>, Unreadable> {
    // One number that is not finite would spoil every vector.
    if floats.iter().copied().all(f32::is_finite) {
        return Ok(floats);
    }
    Err(failed(format!(
        "its tensor {name} holds a number that is not finite"
    )))
}

/// What is read of `tokenizer.json`.
#[derive(Deserialize)]
struct Tokenizer {
    model: WordPiece,
}

#[derive(Deserialize)]
struct WordPiece {
    vocab: HashMap<String, usize>,
}

/// The tokens in the order of their numbers.
fn vocabulary(file: &[u8]) -> Result<Vec<String>, Unreadable> {
    let tokenizer: Tokenizer = match serde_json::from_slice(file) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return Err(failed(format!("its tokenizer cannot be read: {error}"))),
    };
    let vocabulary = tokenizer.model.vocab;
    let mut numbered: Vec<(String, usize)> = vocabulary.into_iter().collect();
    numbered.sort_unstable_by_key(|(_, number)| *number);
    let mut tokens = Vec::with_capacity(numbered.len());
    for (expected, (token, number)) in numbered.into_iter().enumerate() {
        // Embeddings lie in the order of numbers, without gaps.
        if number != expected {
            return Err(failed(format!(
                "its tokenizer gives {token:?} the number {number} where {expected} is the next"
            )));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use safetensors::tensor::{TensorView, serialize};

    use super::*;

    const TOKENIZER: &str = r###"{"model": {"type": "WordPiece", "vocab": {
        "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "rain": 4, "##s": 5, "tomorrow": 6}}}"###;
    const TOKENS: usize = 7;

    struct Tensor {
        name: String,
        shape: Vec<usize>,
        dtype: Dtype,
        values: Vec<u8>,
    }

    fn tensor(name: String, shape: &[usize], value: impl Fn(usize) -> f32) -> Tensor {
        Tensor {
            name,
            shape: shape.to_vec(),
            dtype: Dtype::F32,
            values: (0..shape.iter().product())
                .flat_map(|i| value(i).to_le_bytes())
                .collect(),
        }
    }

    /// Numbers between -.1 and .1 in no order.
    fn small(i: usize) -> f32 {
        (i as u32).wrapping_mul(2_654_435_769) as i32 as f32 / i32::MAX as f32 * 0.1
    }

    /// The tensors of a model with seven tokens.
    fn tensors() -> Vec<Tensor> {
        let mut tensors = Vec::new();
        let table = |name: &str, rows| {
            let name = format!("embeddings.{name}_embeddings.weight");
            tensor(name, &[rows, HIDDEN], small)
        };
        tensors.extend([table("word", TOKENS), table("position", POSITIONS)]);
        tensors.push(table("token_type", PARTS));
        let mut norm = |name: String| {
            tensors.push(tensor(format!("{name}.weight"), &[HIDDEN], |_| 1.0));
            tensors.push(tensor(format!("{name}.bias"), &[HIDDEN], small));
        };
        norm("embeddings.LayerNorm".to_owned());
        for layer in 0..LAYERS {
            norm(format!("encoder.layer.{layer}.attention.output.LayerNorm"));
            norm(format!("encoder.layer.{layer}.output.LayerNorm"));
        }
        for layer in 0..LAYERS {
            for (part, outputs, inputs) in [
                ("attention.self.query", HIDDEN, HIDDEN),
                ("attention.self.key", HIDDEN, HIDDEN),
                ("attention.self.value", HIDDEN, HIDDEN),
                ("attention.output.dense", HIDDEN, HIDDEN),
                ("intermediate.dense", INTERMEDIATE, HIDDEN),
                ("output.dense", HIDDEN, INTERMEDIATE),
            ] {
                let name = format!("encoder.layer.{layer}.{part}");
                let weight = format!("{name}.weight");
                tensors.push(tensor(weight, &[outputs, inputs], |i| small(i + layer)));
                tensors.push(tensor(format!("{name}.bias"), &[outputs], small));
            }
        }
        tensors
    }

    fn file(tensors: &[Tensor]) -> Vec<u8> {
        let views = tensors.iter().map(|tensor| {
            let shape = tensor.shape.clone();
            let view = TensorView::new(tensor.dtype, shape, &tensor.values).unwrap();
            (&tensor.name, view)
        });
        serialize(views, None).unwrap()
    }

    static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| file(&tensors()));

    fn reason(weights: &[u8], tokenizer: &str) -> String {
        match Encoder::published(weights, tokenizer.as_bytes()) {
            Err(unreadable) => unreadable.to_string(),
            Ok(_) => "read".to_owned(),
        }
    }

    #[test]
    fn a_text_has_a_vector_of_length_1_and_the_checksum_is_that_of_the_weights() {
        let encoder = Encoder::published(&FILE, TOKENIZER.as_bytes()).unwrap();
        assert_eq!(encoder.checksum(), blake3::hash(&FILE));
        let long = "rains ".repeat(200);
        let vectors = encoder.embed(&["rain tomorrow", "tomorrow", "", &long]);
        for vector in &vectors {
            let length: f32 = vector.iter().map(|value| value * value).sum();
            assert!((length - 1.0).abs() < 1e-5, "{length}");
        }
        assert_ne!(vectors[0], vectors[1]);
        assert_eq!(encoder.embed(&["tomorrow"])[0], vectors[1]);
    }

    #[test]
    fn queries_keys_and_values_are_one_matrix_in_this_order() {
        let tensors = tensors();
        let mut weights = Weights {
            tensors: SafeTensors::deserialize(&FILE).unwrap(),
            codes: vec![0; 5],
        };
        let matrix = weights.layer(0).unwrap().attention;
        assert_eq!((matrix.blocks, matrix.outputs()), (5, 3 * HIDDEN));
        for (part, name) in ["query", "key", "value"].iter().enumerate() {
            let name = format!("encoder.layer.0.attention.self.{name}.weight");
            let found = tensors.iter().find(|tensor| tensor.name == name).unwrap();
            let rows = found.values.as_chunks().0;
            let mut codes = vec![0; rows.len()];
            let scales = quantise::blocks(rows, HIDDEN, &mut codes);
            assert_eq!(matrix.scales[part * HIDDEN..][..HIDDEN], scales);
            let place = matrix.blocks + part * HIDDEN * HIDDEN;
            assert_eq!(weights.codes[place..][..codes.len()], codes);
        }
    }

    #[test]
    fn a_tensor_that_cannot_be_used_is_named() {
        let changed = |name: &str, change: fn(&mut Tensor)| {
            let mut tensors = tensors();
            let found = tensors.iter_mut().find(|tensor| tensor.name == name);
            change(found.unwrap());
            reason(&file(&tensors), TOKENIZER)
        };
        let query = "encoder.layer.5.attention.self.query.weight";
        let norm = "embeddings.LayerNorm.bias";
        let words = "embeddings.word_embeddings.weight";
        let rename: fn(&mut Tensor) = |tensor| tensor.name.push('s');
        let turn: fn(&mut Tensor) = |tensor| tensor.shape = vec![tensor.values.len() / 4, 1];
        let whole: fn(&mut Tensor) = |tensor| tensor.dtype = Dtype::I32;
        let nan: fn(&mut Tensor) = |tensor| tensor.values[..4].fill(0xff);
        for (name, change, expected) in [
            (query, rename, format!("have no tensor {query}")),
            (norm, rename, format!("have no tensor {norm}")),
            (query, turn, format!("{query} is F32 of shape [147456, 1]")),
            (norm, turn, "reads F32 of shape [384]".to_owned()),
            (words, whole, format!("{words} is I32 of shape [7, 384]")),
            (query, nan, format!("{query} holds a number that is not")),
            (norm, nan, format!("{norm} holds a number that is not")),
        ] {
            let reason = changed(name, change);
            assert!(reason.contains(&expected), "{reason}");
        }
    }

    #[test]
    fn files_that_are_cut_short_or_something_else_are_refused() {
        for weights in [&FILE[..FILE.len() - 1], &FILE[..100], b"", b"{}"] {
            let reason = reason(weights, TOKENIZER);
            assert!(reason.contains("cut short or damaged"), "{reason}");
        }
        for (tokenizer, expected) in [
            ("{", "cannot be read: EOF"),
            (r#"{"model": {}}"#, "missing field `vocab`"),
            (
                r#"{"model": {"vocab": {"a": 0, "b": 2}}}"#,
                "gives \"b\" the number 2 where 1",
            ),
            (
                r#"{"model": {"vocab": {"a": 0, "b": 0}}}"#,
                "the number 0 where 1",
            ),
            (r#"{"model": {"vocab": {"a": 0}}}"#, "lack [CLS]"),
            (
                &TOKENIZER.replace(r#", "tomorrow": 6"#, ""),
                "word_embeddings.weight is F32 of shape [7, 384]; this program reads F32 of shape [6, 384]",
            ),
        ] {
            let reason = reason(&FILE, tokenizer);
            assert!(reason.contains(expected), "{reason}");
        }
    }
}
