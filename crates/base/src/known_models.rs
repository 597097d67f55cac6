//! The embedding models that can be used by name: those of fastembed, with what each wants.

use std::sync::OnceLock;

use anyhow::{Result, bail};
use fastembed::{EmbeddingModel, TextEmbedding};
use toolscout_index::embed::Languages;

/// The instruction that BGE, mxbai and Arctic models want before an English request.
const BGE_QUERY: &str = "Represent this sentence for searching relevant passages: ";
/// The same for Chinese BGE models.
const BGE_QUERY_ZH: &str = "为这个句子生成表示以用于检索相关文章：";

/// Longest revision.
const MAX_REVISION_CHARS: usize = 100;

/// A model that can be used by name.
#[derive(Clone, Debug)]
pub struct KnownModel {
    /// Its short name, in lower case, as `multilingual-e5-small`; `-q` at the end for 8-bit weights.
    pub name: String,
    /// Its name on the hub, as `intfloat/multilingual-e5-small`.
    pub hub_id: String,
    /// The file with the weights, in the model's folder.
    pub weights: String,
    /// Files with further weights.
    pub more_weights: Vec<String>,
    /// Length of its vectors.
    pub dimensions: usize,
    /// What fastembed calls it.
    pub model: EmbeddingModel,
}

/// The files besides the weights that every model needs.
pub const TOKENIZER_FILES: [&str; 4] = [
    "tokenizer.json",
    "config.json",
    "special_tokens_map.json",
    "tokenizer_config.json",
];

impl KnownModel {
    /// Every known model, by name.
    pub fn all() -> &'static [KnownModel] {
        static ALL: OnceLock<Vec<KnownModel>> = OnceLock::new();
        ALL.get_or_init(of_fastembed)
    }

    /// The model of a name: short (`bge-m3`) or with the organisation (`BAAI/bge-m3`), and with or
    /// without a revision after `@`.
    pub fn find(name: &str) -> Option<&'static KnownModel> {
        let (name, _) = split_revision(name);
        let wanted = name.to_ascii_lowercase();
        let Some((_, short)) = wanted.rsplit_once('/') else {
            return Self::with_short_name(&wanted);
        };
        // Files of one name on the hub hold several models; the first is the one of full precision.
        let mut all = Self::all().iter();
        match all.find(|model| model.hub_id.eq_ignore_ascii_case(name)) {
            Some(model) => Some(model),
            // Fastembed takes some models from copies by others, so the organisation may be another.
            None => Self::with_short_name(short),
        }
    }

    fn with_short_name(name: &str) -> Option<&'static KnownModel> {
        Self::all().iter().find(|model| model.name == name)
    }

    /// All files, the weights first.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.weights.as_str())
            .chain(self.more_weights.iter().map(String::as_str))
            .chain(TOKENIZER_FILES)
    }

    /// What is written before a request and before a text of a tool.
    pub fn prefixes(&self) -> (&'static str, &'static str) {
        let name = self.name.as_str();
        let starts_with_any = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
        // As the cards of the models say; special cases of a family come before it.
        if name.contains("e5") {
            ("query: ", "passage: ")
        } else if starts_with_any(&["nomic", "modernbert"]) {
            ("search_query: ", "search_document: ")
        } else if name.starts_with("bge") && name.contains("-zh") {
            (BGE_QUERY_ZH, "")
        } else if name.starts_with("bge-m3") {
            ("", "")
        } else if starts_with_any(&["bge", "mxbai", "snowflake"]) {
            (BGE_QUERY, "")
        } else if name.starts_with("embeddinggemma") {
            ("task: search result | query: ", "title: none | text: ")
        } else {
            ("", "")
        }
    }

    /// The languages that it was trained on.
    pub fn languages(&self) -> Languages {
        let any = ["multilingual", "bge-m3", "-zh", "embeddinggemma"];
        if any.iter().any(|part| self.name.contains(part)) {
            Languages::All
        } else {
            Languages::English
        }
    }
}

/// Checks the revision of a name: a commit, a branch, a tag, or a reference as `refs/pr/1`. It becomes
/// a part of paths and addresses.
///
/// # Errors
/// What is wrong with it.
pub fn check_revision(name: &str) -> Result<()> {
    let Some(revision) = split_revision(name).1 else {
        return Ok(());
    };
    let problem = if revision.is_empty() {
        "it is empty"
    } else if revision.len() > MAX_REVISION_CHARS {
        "it is longer than 100 characters"
    } else if revision.contains('/') && !revision.starts_with("refs/") {
        "only that of a reference, as refs/pr/1, has slashes"
    } else if !revision
        .split('/')
        .all(|part| part.starts_with(|c: char| c.is_ascii_alphanumeric()))
    {
        "each part must start with a letter or a digit"
    } else if revision.contains("..") {
        "it must not have two dots in a row"
    } else if !revision.chars().all(is_legal) {
        "it may have letters, digits, `-`, `_` and `.`"
    } else {
        return Ok(());
    };
    // It may be of any length, and so may be what is wrong with it.
    let shown: String = revision.chars().take(MAX_REVISION_CHARS).collect();
    bail!(
        "the revision {shown:?} cannot be used: {problem}; write NAME@REVISION with a commit, a branch or a tag"
    )
}

fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')
}

/// A name and the revision after `@`.
pub fn split_revision(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((name, revision)) => (name, Some(revision)),
        None => (name, None),
    }
}

/// The models of fastembed, by name.
fn of_fastembed() -> Vec<KnownModel> {
    let mut all = Vec::new();
    for info in TextEmbedding::list_supported_models() {
        // Trained to match pictures, not to search.
        if info.model == EmbeddingModel::ClipVitB32 {
            continue;
        }
        all.push(KnownModel {
            name: short_name(&info.model_code, &info.model),
            hub_id: info.model_code,
            weights: info.model_file,
            more_weights: info.additional_files,
            dimensions: info.dim,
            model: info.model,
        });
    }
    all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    all
}

fn short_name(hub_id: &str, model: &EmbeddingModel) -> String {
    let name = hub_id
        .rsplit('/')
        .next()
        .unwrap_or(hub_id)
        .to_ascii_lowercase();
    let name = name.strip_suffix("-q").unwrap_or(&name);
    let name = name.strip_suffix("-onnx").unwrap_or(name);
    // Only the variant tells 8-bit weights from those of full precision in one repository.
    let variant = format!("{model:?}");
    let suffix = if variant.ends_with("Q4") {
        "-q4"
    } else if variant.ends_with('Q') {
        "-q"
    } else {
        ""
    };
    format!("{name}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_a_name_of_its_own() {
        let all = KnownModel::all();
        assert!(all.len() > 40, "{}", all.len());
        for pair in all.windows(2) {
            assert!(pair[0].name < pair[1].name, "{}", pair[0].name);
        }
        for model in all {
            assert_eq!(
                KnownModel::find(&model.name).map(|found| &found.name),
                Some(&model.name)
            );
            assert!(!model.name.contains(['+', '@', ',']), "{}", model.name);
        }
    }

    #[test]
    fn a_model_is_found_by_any_of_its_names() {
        for (name, expected) in [
            ("multilingual-e5-small", "multilingual-e5-small"),
            ("intfloat/multilingual-e5-small", "multilingual-e5-small"),
            ("BAAI/bge-m3@0123abc", "bge-m3"),
            ("BAAI/bge-small-en-v1.5", "bge-small-en-v1.5"),
            ("bge-small-en-v1.5-q", "bge-small-en-v1.5-q"),
            ("Sentence-Transformers/all-MiniLM-L6-v2", "all-minilm-l6-v2"),
            ("nomic-embed-text-v1.5", "nomic-embed-text-v1.5"),
        ] {
            let found = KnownModel::find(name).map(|model| model.name.as_str());
            assert_eq!(found, Some(expected), "{name}");
        }
        assert!(KnownModel::find("gpt").is_none());
    }

    #[test]
    fn a_revision_is_a_commit_or_a_name() {
        let long = "a".repeat(101);
        for revision in ["0123abc", "main", "v1.0", "refs/pr/1", &long[..100]] {
            check_revision(&format!("bge-m3@{revision}")).unwrap();
        }
        check_revision("bge-m3").unwrap();
        for (revision, expected) in [
            ("", "empty"),
            (&*long, "longer than 100"),
            ("..", "start with a letter"),
            ("refs/../x", "start with a letter"),
            ("refs//x", "start with a letter"),
            ("a..b", "two dots"),
            ("feature/x", "as refs/pr/1"),
            ("/etc", "as refs/pr/1"),
            ("a\\b", "it may have"),
            ("a?b", "it may have"),
        ] {
            let error = check_revision(&format!("bge-m3@{revision}")).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn prefixes_are_those_of_the_family() {
        let prefixes = |name| KnownModel::find(name).unwrap().prefixes();
        assert_eq!(prefixes("multilingual-e5-large"), ("query: ", "passage: "));
        assert_eq!(prefixes("bge-m3"), ("", ""));
        assert_eq!(prefixes("bge-large-zh-v1.5"), (BGE_QUERY_ZH, ""));
        assert_eq!(prefixes("snowflake-arctic-embed-s-q"), (BGE_QUERY, ""));
        assert_eq!(prefixes("all-mpnet-base-v2"), ("", ""));
    }
}
