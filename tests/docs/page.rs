//! Pages and what is in them.

use std::fs;
use std::path::PathBuf;

/// The repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every page that people read, by path from the root. `docs/ATTACKS.md` is written by a test.
pub fn all() -> Vec<Page> {
    let top = [
        "README.md",
        "ARCHITECTURE.md",
        "BENCHMARKS.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
    ];
    let mut names: Vec<String> = top.map(String::from).to_vec();
    for folder in ["docs", "docs/benchmarks"] {
        let entries = fs::read_dir(root().join(folder)).expect("a folder of pages");
        names.extend(entries.filter_map(|entry| {
            let name = entry.expect("an entry").file_name().into_string().ok()?;
            name.ends_with(".md").then(|| format!("{folder}/{name}"))
        }));
    }
    names.sort();
    names.iter().map(|name| Page::read(name)).collect()
}

/// A page.
pub struct Page {
    /// Its path from the root.
    pub name: String,
    pub text: String,
}

/// A fenced block.
pub struct Block {
    pub language: String,
    /// The line of its fence, from 1.
    pub line: usize,
    pub text: String,
}

impl Page {
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(root().join(name)).expect(name);
        Page {
            name: name.to_owned(),
            text,
        }
    }

    /// The fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for (number, line) in self.text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    open = Some(Block {
                        language: language.trim().to_owned(),
                        line: number + 1,
                        text: String::new(),
                    });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block does not end", self.name);
        blocks
    }

    pub fn blocks_of(&self, language: &str) -> Vec<Block> {
        let mut blocks = self.blocks();
        blocks.retain(|block| block.language == language);
        blocks
    }

    /// The lines outside of fenced blocks, with their numbers from 1.
    pub fn prose(&self) -> Vec<(usize, &str)> {
        let mut fenced = false;
        let mut lines = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            if line.starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                lines.push((number + 1, line));
            }
        }
        lines
    }

    /// What stands between single backticks outside of fenced blocks.
    pub fn code_spans(&self) -> Vec<(usize, &str)> {
        let spans = self.prose().into_iter().flat_map(|(number, line)| {
            let odd = line.split('`').skip(1).step_by(2);
            odd.map(move |span| (number, span))
        });
        spans.collect()
    }
}
