//! The rules of the house that the compiler does not know: imports run one way, and the engine
//! stays free of networks and async runtimes.

use std::collections::{BTreeMap, BTreeSet};
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

/// Most re-exports on the way to an item.
const MAX_RE_EXPORTS: usize = 8;

#[test]
fn modules_import_only_what_is_above_them() {
    let mut upward = Vec::new();
    for member in members() {
        let found = upward_imports(&root().join(&member).join("src"));
        upward.extend(
            found
                .into_iter()
                .map(|import| format!("{member}: {import}")),
        );
    }
    assert_eq!(upward, Vec::<String>::new());
}

#[test]
fn no_modules_of_one_parent_import_each_other() {
    let mut circles = Vec::new();
    for member in members() {
        let found = cycles(&Modules::read(&root().join(&member).join("src")));
        circles.extend(
            found
                .into_iter()
                .map(|circle| format!("{member}: {circle}")),
        );
    }
    assert_eq!(circles, Vec::<String>::new());
}

#[test]
fn the_legs_and_the_fusion_do_not_know_each_other() {
    let engine = Modules::read(&root().join("index/src"));
    let walled = ["lexical", "dense", "fuse"].map(str::to_owned);
    for module in &walled {
        // A renamed module must not lose its wall.
        assert!(
            engine.code.contains_key(std::slice::from_ref(module)),
            "there is no module {module}"
        );
        let imported = engine.imported_by(module);
        let others: Vec<_> = walled
            .iter()
            .filter(|other| imported.contains(*other))
            .collect();
        assert!(others.is_empty(), "{module} imports {others:?}");
    }
}

#[test]
fn the_engine_has_no_network_and_no_async_runtime() {
    let crates = dependencies("toolscout-index");
    assert!(
        crates.contains("tantivy"),
        "this is not the engine's tree: {crates:?}"
    );
    // async-trait is a macro that tantivy uses; it brings no runtime.
    let banned = |name: &&String| {
        BANNED.contains(&name.as_str()) || (name.starts_with("async-") && *name != "async-trait")
    };
    let found: Vec<&String> = crates.iter().filter(banned).collect();
    assert!(found.is_empty(), "the engine depends on {found:?}");
}

#[test]
fn the_macros_need_only_what_reads_and_writes_code() {
    let crates = dependencies("toolscout-macros");
    let allowed = [
        "proc-macro2",
        "quote",
        "syn",
        "toolscout-macros",
        "unicode-ident",
    ];
    assert_eq!(Vec::from_iter(crates), allowed);
}

#[test]
fn the_architecture_names_every_crate() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a page");
    for member in members() {
        let row = match member.as_str() {
            "." => "| `.` ".to_owned(),
            folder => format!("| `{folder}/` "),
        };
        assert!(architecture.contains(&row), "no row for {member}");
    }
}

#[test]
fn the_architecture_names_modules_that_exist() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("a page");
    let sources: Vec<PathBuf> = members()
        .iter()
        .map(|member| root().join(member).join("src"))
        .collect();
    let mut unknown = Vec::new();
    for name in architecture.split('`').skip(1).step_by(2) {
        // The name of a module within its crate or within the program, or the path of a file.
        let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/.".contains(c);
        let is_data = name.ends_with(".manifest");
        if !name.contains('/') || !name.chars().all(is_path) || is_data {
            continue;
        }
        let (first, rest) = name.split_once('/').expect("a slash");
        // A folder of a package, which the text names.
        if rest.is_empty() {
            continue;
        }
        let of_crate = match first {
            "http" => "crates/server/src".to_owned(),
            "store" => "crates/postgres/src".to_owned(),
            "cli" => "src/cli".to_owned(),
            other => format!("crates/{other}/src"),
        };
        let mut places: Vec<PathBuf> = sources.iter().map(|source| source.join(name)).collect();
        places.push(root().join(name));
        places.push(root().join(of_crate).join(rest));
        let exists = |place: &PathBuf| place.exists() || place.with_extension("rs").exists();
        if !places.iter().any(exists) {
            unknown.push(name);
        }
    }
    assert!(unknown.is_empty(), "no module or file: {unknown:?}");
}

#[test]
fn what_is_not_run_over_postgres_is_a_test_with_a_reason() {
    let list = fs::read_to_string(root().join("tests/embedded_store.txt")).unwrap();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let parts = line.split_once("  ");
        let (name, _reason) = parts.unwrap_or_else(|| panic!("{line:?} has no reason"));
        let (module, test) = name.rsplit_once("::").expect("a module");
        let file = root().join("tests").join(module.replace("::", "/"));
        let code = fs::read_to_string(file.with_extension("rs"));
        let code = code.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(code.contains(&format!("fn {test}")), "there is no {name}");
    }
}

#[test]
fn everything_has_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let read = |file: &str| fs::read_to_string(root().join(file)).expect(file);
    let workspace: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let dependencies = workspace["workspace"]["dependencies"].as_table().unwrap();
    for (name, dependency) in dependencies {
        if name.starts_with("toolscout-") {
            assert_eq!(dependency["version"].as_str(), Some(version), "{name}");
        }
    }
    for client in ["native", "python", "typescript"] {
        let manifest: toml::Table = read(&format!("clients/{client}/Cargo.toml"))
            .parse()
            .expect("TOML");
        let found = manifest["package"]["version"].as_str();
        assert_eq!(found, Some(version), "{client}");
    }
    let package = format!("\"version\": \"{version}\"");
    assert!(read("clients/typescript/package.json").contains(&package));
    let changelog = read("CHANGELOG.md");
    let headings = changelog.lines().filter(|line| line.starts_with("## "));
    let newest = headings
        .map(str::to_owned)
        .find(|line| line != "## Unreleased");
    let newest = newest.expect("a section of a version");
    assert!(newest.starts_with(&format!("## {version} - ")), "{newest}");
}

#[test]
fn an_upward_import_would_be_seen() {
    let (folder, write) = crate_folder();
    write("lib.rs", "pub mod low;\npub mod high;\n");
    write("high.rs", "use crate::low::Thing;\n");
    write(
        "low.rs",
        "// crate::high in a comment is no import\npub struct Thing;\n",
    );
    assert_eq!(upward_imports(folder.path()), Vec::<String>::new());
    write("low.rs", "use crate::{\n    high::Other,\n};\n");
    assert_eq!(
        upward_imports(folder.path()),
        ["low imports high, which is below it"]
    );
    write("low.rs", "use super::high::Other;\n");
    assert_eq!(
        upward_imports(folder.path()),
        ["low imports high, which is below it"]
    );
}

#[test]
fn a_cycle_of_siblings_would_be_seen() {
    let (folder, write) = crate_folder();
    write("lib.rs", "pub mod api;\n");
    write("api.rs", "mod one;\nmod two;\nmod three;\n");
    write("api/one.rs", "use super::two::{Two, part::Part};\n");
    write("api/two.rs", "mod part;\n");
    write("api/two/part.rs", "use super::super::three;\n");
    write("api/three.rs", "pub struct Three;\n");
    assert_eq!(cycles(&Modules::read(folder.path())), Vec::<String>::new());
    write("api/three.rs", "use crate::api::one::One;\n");
    assert_eq!(
        cycles(&Modules::read(folder.path())),
        ["in api: one, three, two import each other"]
    );
}

#[test]
fn an_import_of_a_re_export_would_be_seen() {
    let (folder, write) = crate_folder();
    let upward = || upward_imports(folder.path());
    write(
        "lib.rs",
        "pub mod low;\npub mod high;\n\npub use high::{Other, state::App as Whole};\n",
    );
    write("high.rs", "pub mod state;\n");
    write("high/state.rs", "pub struct App;\n");
    for import in [
        "use crate::Whole;",
        "use super::Other;",
        "fn f(_: crate::Whole) {}",
    ] {
        write("low.rs", import);
        assert_eq!(
            upward(),
            ["low imports high, which is below it"],
            "{import}"
        );
    }
    // What a parent imports for itself, its children can take from it.
    write("low.rs", "mod part;\n");
    write("low/part.rs", "use super::super::Whole;\n");
    assert_eq!(upward(), ["low imports high, which is below it"]);
    write("low.rs", "mod other;\nmod part;\nuse self::other::Thing;\n");
    write("low/part.rs", "use super::Thing;\n");
    write("low/other.rs", "use super::part::Part;\n");
    assert_eq!(upward(), Vec::<String>::new());
    assert_eq!(
        cycles(&Modules::read(folder.path())),
        ["in low: other, part import each other"]
    );
}

/// The folders of the workspace's crates.
fn members() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = manifest.parse().expect("TOML");
    let workspace = &manifest["workspace"];
    // Otherwise a command without `--workspace` would leave one out.
    assert_eq!(workspace["default-members"], workspace["members"]);
    let members = workspace["members"].as_array().expect("members");
    let names = members.iter().filter_map(toml::Value::as_str);
    names.map(str::to_owned).collect()
}

/// The folder of a small crate, and a function that writes its files.
fn crate_folder() -> (tempfile::TempDir, impl Fn(&str, &str)) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let write = move |name: &str, text: &str| {
        let file = path.join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("created");
        fs::write(file, text).expect("written");
    };
    (folder, write)
}

/// The crates that a package of the workspace is built with, itself included.
fn dependencies(package: &str) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "-p", package])
        .args(["-e", "normal", "--prefix", "none", "-f", "{p}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let tree = String::from_utf8(tree.stdout).expect("UTF-8");
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Imports against the order of `lib.rs`, in words.
fn upward_imports(source: &Path) -> Vec<String> {
    let (order, modules) = (modules_in_order(source), Modules::read(source));
    let mut upward = Vec::new();
    for (place, module) in order.iter().enumerate() {
        let imported = modules.imported_by(module);
        let below = order[place + 1..]
            .iter()
            .filter(|below| imported.contains(*below));
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

/// The names from the root of the crate to a module.
type ModulePath = Vec<String>;

/// A name, and the path that it stands for.
struct Named {
    name: String,
    path: ModulePath,
}

/// The modules of a crate that have a file of their own, without those for tests.
struct Modules {
    code: BTreeMap<ModulePath, String>,
    /// What modules and `lib.rs` import, by the path under which others can name it there.
    imports: BTreeMap<ModulePath, ModulePath>,
}

impl Modules {
    fn read(source: &Path) -> Self {
        let (mut code, mut folders) = (BTreeMap::new(), vec![source.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let file = entry.expect("an entry").path();
                if file.is_dir() {
                    folders.push(file);
                    continue;
                }
                let inside = file
                    .strip_prefix(source)
                    .expect("inside")
                    .with_extension("");
                let path: ModulePath = inside
                    .iter()
                    .map(|name| name.to_string_lossy().into_owned())
                    .collect();
                if !["lib", "main", "tests"].contains(&path[path.len() - 1].as_str()) {
                    code.insert(path, code_of(&file));
                }
            }
        }
        let mut modules = Modules {
            code,
            imports: BTreeMap::new(),
        };
        let lib = source.join("lib.rs");
        if lib.exists() {
            modules.add_imports(&[], &code_of(&lib));
        }
        for (module, code) in modules.code.clone() {
            modules.add_imports(&module, &code);
        }
        modules
    }

    /// Adds what the `use` items of a module import.
    fn add_imports(&mut self, module: &[String], code: &str) {
        for item in use_items(code) {
            let mut imported = Vec::new();
            append_paths(&[], item, &mut imported);
            for Named { name, path } in imported {
                if let Some(path) = self.absolute(module, &path) {
                    let named = [module, &[name]].concat();
                    self.imports.insert(named, path);
                }
            }
        }
    }

    /// The path from the root of the crate that a `use` item of a module names; `None` for one of another crate.
    fn absolute(&self, module: &[String], path: &[String]) -> Option<ModulePath> {
        let (mut start, mut rest) = (module, path);
        match path.first()?.as_str() {
            "crate" => (start, rest) = (&[], &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    start = start.split_last().map_or(start, |(_, parent)| parent);
                    rest = &rest[1..];
                }
            }
            // A module inside this one. Every other path begins with the name of a crate.
            inside => {
                let child = [module, &[inside.to_owned()]].concat();
                self.code.get(&child)?;
            }
        }
        Some([start, rest].concat())
    }

    /// The other modules at the top of the crate that one of them and what is inside it import.
    fn imported_by(&self, module: &str) -> BTreeSet<String> {
        let imports = self.sibling_imports();
        let at_top = imports.get(&ModulePath::new()).into_iter().flatten();
        at_top
            .filter(|(importer, _)| importer == module)
            .map(|(_, imported)| imported.clone())
            .collect()
    }

    /// By parent: which of its modules import, at any depth, which others of its modules.
    fn sibling_imports(&self) -> BTreeMap<ModulePath, BTreeSet<(String, String)>> {
        let mut imports: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (importer, code) in &self.code {
            for imported in imported_paths(importer, code) {
                let imported = self.resolved(imported);
                let Some(imported) = self.module_of(&imported) else {
                    continue;
                };
                let mut both = importer.iter().zip(imported);
                let common = both.clone().take_while(|(a, b)| a == b).count();
                // Neither is inside the other.
                if let Some((a, b)) = both.nth(common) {
                    let parent = importer[..common].to_vec();
                    imports
                        .entry(parent)
                        .or_default()
                        .insert((a.clone(), b.clone()));
                }
            }
        }
        imports
    }

    /// The path to where an item is defined, beyond all re-exports on the way.
    fn resolved(&self, mut path: ModulePath) -> ModulePath {
        // Two modules may import each other's imports, so the steps are bounded.
        for _ in 0..MAX_RE_EXPORTS {
            let named = (1..=path.len()).find_map(|length| {
                let imported = self.imports.get(&path[..length])?;
                // A module may have the name of a function that its parent imports from it.
                let is_module = self.code.contains_key(&path[..length]);
                (!is_module).then_some((length, imported))
            });
            let Some((length, imported)) = named else {
                break;
            };
            path = [imported, &path[length..]].concat();
        }
        path
    }

    /// The module that an imported path leads into.
    fn module_of<'a>(&self, path: &'a [String]) -> Option<&'a [String]> {
        (1..=path.len())
            .rev()
            .map(|length| &path[..length])
            .find(|start| self.code.contains_key(*start))
    }
}

/// Siblings that import each other, directly or in a circle, in words.
fn cycles(modules: &Modules) -> Vec<String> {
    let mut found = Vec::new();
    for (parent, mut imports) in modules.sibling_imports() {
        // Without a circle, taking away those that import nothing leaves nothing.
        loop {
            let importers: BTreeSet<String> = imports
                .iter()
                .map(|(importer, _)| importer.clone())
                .collect();
            let before = imports.len();
            imports.retain(|(_, imported)| importers.contains(imported));
            if imports.is_empty() {
                break;
            }
            if imports.len() == before {
                let (names, parent) = (Vec::from_iter(importers).join(", "), parent.join("::"));
                found.push(format!("in {parent}: {names} import each other"));
                break;
            }
        }
    }
    found
}

/// What the `use` items of a file import, from the word `use` to the semicolon.
fn use_items(code: &str) -> Vec<&str> {
    let mut items = Vec::new();
    for (at, line) in lines_with_places(code) {
        let visible = line.trim_start();
        let rest = match visible.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => {
                rest.split_once(')').map_or(rest, |(_, rest)| rest)
            }
            Some(rest) => rest,
            None => visible,
        };
        if let Some(first) = rest.trim_start().strip_prefix("use ") {
            let start = at + line.len() - first.len();
            items.extend(code[start..].split(';').next());
        }
    }
    items
}

/// The lines of a text, each with where it begins.
fn lines_with_places(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let begins = *at;
        *at += line.len();
        Some((begins, line))
    })
}

/// The paths of the own crate that a module's code names, from the root of the crate.
fn imported_paths(module: &[String], code: &str) -> Vec<ModulePath> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        append_paths(&[], &code[at + "crate::".len()..], &mut paths);
    }
    for (at, _) in code.match_indices("super::") {
        // The first of `super::super::` stands for both.
        if code[..at].ends_with("super::") {
            continue;
        }
        let (mut parent, mut rest) = (module, &code[at..]);
        while let Some(after) = rest.strip_prefix("super::") {
            parent = parent.split_last().map_or(parent, |(_, parent)| parent);
            rest = after;
        }
        append_paths(parent, rest, &mut paths);
    }
    paths.into_iter().map(|named| named.path).collect()
}

/// Appends the paths of `a::b as x`, or of `{a::b, c::{d, e}}`, to `paths`, each after `start`.
fn append_paths(start: &[String], text: &str, paths: &mut Vec<Named>) {
    if let Some(group) = text.strip_prefix('{') {
        for item in items_of(group) {
            append_paths(start, item.trim(), paths);
        }
        return;
    }
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    let mut path = start.to_vec();
    path.extend((end > 0).then(|| text[..end].to_owned()));
    match text[end..].strip_prefix("::") {
        Some(rest) if end > 0 => append_paths(&path, rest, paths),
        _ => paths.extend(named(path, &text[end..])),
    }
}

/// The path with its name, which is its last part unless the rest of the text is `as` and another one.
fn named(mut path: ModulePath, rest: &str) -> Option<Named> {
    // `a::{self, b}` imports `a` too.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let renamed = rest.trim_start().strip_prefix("as ");
    let name = match renamed {
        Some(renamed) => renamed.trim().to_owned(),
        None => path.last()?.clone(),
    };
    Some(Named { name, path })
}

/// The items of `a, {b, c}, d}`, the rest of a group after its brace.
fn items_of(group: &str) -> Vec<&str> {
    let (mut items, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items
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
