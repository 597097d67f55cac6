//! The rules of the house that the compiler does not know: imports run one way, and the engine
//! stays free of networks and async runtimes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that would bring a network or an async runtime into the engine.
const BANNED: [&str; 11] = [
    "tokio",
    "smol",
    "futures-executor",
    "reqwest",
    "hyper",
    "ureq",
    "axum",
    "tower",
    "curl",
    "isahc",
    "tungstenite",
];

#[test]
fn modules_of_the_engine_import_only_what_is_above_them() {
    assert_eq!(
        upward_imports(&root().join("index/src")),
        Vec::<String>::new()
    );
}

#[test]
fn modules_of_the_program_import_only_what_is_above_them() {
    assert_eq!(upward_imports(&root().join("src")), Vec::<String>::new());
}

#[test]
fn the_legs_and_the_fusion_do_not_know_each_other() {
    let walled = ["lexical", "dense", "fuse"];
    let source = root().join("index/src");
    for module in walled
        .iter()
        .filter(|module| source.join(format!("{module}.rs")).exists())
    {
        let others: BTreeSet<String> = walled
            .iter()
            .filter(|other| *other != module)
            .map(|name| name.to_string())
            .collect();
        let seen = imports_of(&source, module);
        assert!(
            seen.is_disjoint(&others),
            "{module} names {:?}",
            seen.intersection(&others).collect::<Vec<_>>()
        );
    }
}

#[test]
fn the_engine_has_no_network_and_no_async_runtime() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "-p",
            "toolscout-index",
            "-e",
            "normal",
            "--prefix",
            "none",
            "-f",
            "{p}",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let tree = String::from_utf8(tree.stdout).expect("UTF-8");
    let crates: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(
        crates.contains("tantivy"),
        "this is not the engine's tree: {crates:?}"
    );
    // async-trait is a macro that tantivy uses; it brings no runtime.
    let banned = |name: &&&str| {
        BANNED.contains(*name) || (name.starts_with("async-") && **name != "async-trait")
    };
    let found: Vec<&&str> = crates.iter().filter(banned).collect();
    assert!(found.is_empty(), "the engine depends on {found:?}");
}

#[test]
fn an_upward_import_would_be_seen() {
    let source = tempfile::tempdir().expect("a folder");
    let write =
        |name: &str, text: &str| fs::write(source.path().join(name), text).expect("written");
    write("lib.rs", "pub mod low;\npub mod high;\n");
    write("high.rs", "use crate::low::Thing;\n");
    write(
        "low.rs",
        "// crate::high in a comment is no import\npub struct Thing;\n",
    );
    assert_eq!(upward_imports(source.path()), Vec::<String>::new());
    write("low.rs", "use crate::{\n    high::Other,\n};\n");
    assert_eq!(
        upward_imports(source.path()),
        ["low imports high, which is below it"]
    );
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Imports against the order of `lib.rs`, in words.
fn upward_imports(source: &Path) -> Vec<String> {
    let order = modules_in_order(source);
    let mut upward = Vec::new();
    for (place, module) in order.iter().enumerate() {
        let seen = imports_of(source, module);
        let below = order[place + 1..]
            .iter()
            .filter(|below| seen.contains(*below));
        upward.extend(below.map(|below| format!("{module} imports {below}, which is below it")));
    }
    upward
}

/// The modules as `lib.rs` lists them.
fn modules_in_order(source: &Path) -> Vec<String> {
    let lib = fs::read_to_string(source.join("lib.rs")).expect("lib.rs");
    let named = |line: &str| {
        let line = line
            .strip_prefix("pub(crate) ")
            .or(line.strip_prefix("pub "))
            .unwrap_or(line);
        line.strip_prefix("mod ")?
            .strip_suffix(';')
            .map(str::to_owned)
    };
    lib.lines().filter_map(named).collect()
}

/// The modules of its own crate that a module and what is inside it name.
fn imports_of(source: &Path, module: &str) -> BTreeSet<String> {
    let text = files_of(source, module)
        .iter()
        .map(|path| code_of(path))
        .collect::<Vec<_>>()
        .join("\n");
    let mut seen = BTreeSet::new();
    for after in text.split("crate::").skip(1) {
        match after.strip_prefix('{') {
            Some(group) => seen.extend(first_names(group)),
            None => seen.extend(name_at_start(after)),
        }
    }
    seen.remove(module);
    seen
}

fn files_of(source: &Path, module: &str) -> Vec<PathBuf> {
    let mut files = vec![source.join(format!("{module}.rs"))];
    let mut folders = vec![source.join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path())
            } else {
                files.push(entry.path())
            }
        }
    }
    files
}

/// The code of a file without comments and without its tests, which may use whatever they like.
fn code_of(path: &Path) -> String {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let tested = text
        .split("\n#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default();
    tested
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn name_at_start(text: &str) -> Option<String> {
    let name: String = text
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

/// The first segments of the paths in `{a::b, c::{d, e}, f}`.
fn first_names(group: &str) -> Vec<String> {
    let (mut names, mut depth, mut item) = (Vec::new(), 0, String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(name_at_start(std::mem::take(&mut item).trim())),
            _ if depth == 0 => item.push(c),
            _ => {}
        }
    }
    names.extend(name_at_start(item.trim()));
    names
}
