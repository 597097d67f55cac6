//! Texts that were written about the tools of a set, as `enrich` writes them for a catalog.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolscout_index::Enrichment;

use super::reading::{each_object, text_of};
use super::{EvalSet, ToolIndex};
use crate::error::{EvalError, Result};
use crate::random::Random;

/// The model's name where a file does not tell it.
const UNKNOWN_MODEL: &str = "unknown";

/// Which texts a set is measured with.
#[derive(Clone, Debug)]
pub struct TextsPlan {
    /// Lines `{"id", "texts": [..]}`; looked for in the folder of the set first.
    pub file: PathBuf,
    /// The share of these tools that get their texts.
    pub share: f64,
    /// Most texts of a tool.
    pub most: usize,
    /// Chooses the tools.
    pub seed: u64,
    /// Whether texts of tools that the set does not have are left out. They are an error otherwise.
    pub skip_unknown: bool,
}

impl EvalSet {
    /// The same set, to be measured with these texts of its tools.
    ///
    /// # Errors
    /// An [`EvalError`] that names file, line and value.
    pub fn with_texts(mut self, plan: &TextsPlan) -> Result<Self> {
        let in_set = self.path.join(&plan.file);
        let file = if in_set.is_file() {
            &in_set
        } else {
            &plan.file
        };
        let mut texts = BTreeMap::new();
        let lines = each_object(file, |line, value| {
            Ok((line, self.texts_of_line(file, line, &value, plan)?))
        })?;
        for (line, read) in lines {
            let Some((tool, enrichment)) = read else {
                continue;
            };
            if texts.insert(tool, enrichment).is_some() {
                let id = &self.tool(tool).id;
                let reason = format!("a second line with texts of {id}; join them");
                return Err(EvalError::malformed(file, line, reason));
            }
        }
        let wanted = (plan.share * texts.len() as f64).round() as usize;
        let chosen = Random::new(plan.seed, "texts").sample(texts.len(), wanted);
        let tools: Vec<ToolIndex> = texts.keys().copied().collect();
        self.texts.clear();
        for place in chosen {
            self.texts.extend(texts.remove_entry(&tools[place]));
        }
        Ok(self)
    }

    /// The texts of a line; `None` for those of a tool that is left out.
    fn texts_of_line(
        &self,
        file: &Path,
        line: usize,
        value: &Value,
        plan: &TextsPlan,
    ) -> Result<Option<(ToolIndex, Enrichment)>> {
        let malformed = |reason: String| EvalError::malformed(file, line, reason);
        let Some(id) = text_of(value, &["id"]) else {
            return Err(malformed("no `id` of a tool".to_owned()));
        };
        // By the ids that the judgements use, and else by the name of the tool.
        let Some(tool) = self.judged_position(&id).or(self.position(&id)) else {
            if plan.skip_unknown {
                return Ok(None);
            }
            let reason =
                format!("the set has no tool {id:?}; leave such lines out with --skip-unknown");
            return Err(malformed(reason));
        };
        let list = value.get("texts").and_then(Value::as_array);
        let texts = list.and_then(|list| list.iter().map(Value::as_str).collect());
        let Some(texts): Option<Vec<&str>> = texts else {
            return Err(malformed(format!("no list `texts` for {id:?}")));
        };
        let model = text_of(value, &["model"]).unwrap_or(UNKNOWN_MODEL.to_owned());
        let enrichment = Enrichment::new(texts.into_iter().take(plan.most), model);
        let enrichment = enrichment.map_err(|error| malformed(format!("{id}: {error}")))?;
        Ok(Some((tool, enrichment)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;

    fn plan(file: &Path, share: f64, most: usize) -> TextsPlan {
        TextsPlan {
            file: file.to_owned(),
            share,
            most,
            seed: 1,
            skip_unknown: false,
        }
    }

    fn file(lines: &[&str]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        file
    }

    fn small() -> EvalSet {
        set(
            &[("a", "x"), ("b", "y"), ("c", "z"), ("d", "z")],
            &[("q", "x", &["a"])],
        )
    }

    #[test]
    fn a_share_of_the_tools_gets_its_texts() {
        let lines = ["a", "b", "c", "d"].map(|name| {
            let id = small()
                .tools
                .iter()
                .find(|tool| tool.id.name() == name)
                .unwrap()
                .id
                .to_string();
            serde_json::json!({"id": id, "texts": ["one", "two", "three"]}).to_string()
        });
        let file = file(&lines.each_ref().map(String::as_str));
        let whole = small().with_texts(&plan(file.path(), 1.0, 2)).unwrap();
        assert_eq!(whole.texts.len(), 4);
        assert!(
            whole
                .texts
                .values()
                .all(|texts| texts.texts() == ["one", "two"])
        );
        let half = small().with_texts(&plan(file.path(), 0.5, 8)).unwrap();
        assert_eq!(half.texts.len(), 2);
        assert_eq!(half.fingerprint(), small().fingerprint());
    }

    #[test]
    fn wrong_lines_are_named() {
        for (line, told) in [
            (r#"{"id": "nobody", "texts": ["x"]}"#, "nobody"),
            (r#"{"texts": ["x"]}"#, "`id`"),
            (r#"{"id": "a", "texts": "x"}"#, "`texts`"),
            (r#"{"id": "a", "texts": [1]}"#, "`texts`"),
            (r#"{"id": "a", "texts": []}"#, "1 to 8"),
        ] {
            let file = file(&["", line]);
            let error = small()
                .with_texts(&plan(file.path(), 1.0, 8))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(told) && error.contains(":2:"),
                "{line}: {error}"
            );
        }
        let file = file(&[r#"{"id": "nobody", "texts": ["x"]}"#]);
        let skipping = TextsPlan {
            skip_unknown: true,
            ..plan(file.path(), 1.0, 8)
        };
        assert!(small().with_texts(&skipping).unwrap().texts.is_empty());
    }
}
