//! A snapshot that is made of the one before and of what a commit changed answers as one that is read
//! as a whole, in a catalog whose lexical index is large enough to stay on disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::world::{
    Chance, SERVERS, WORDS, assert_alike, copy, embed_all, for_each_seed, some_text, some_tool,
};
use toolscout_index::embed::{Hashing, MultilingualTable, StaticTable};
use toolscout_index::{
    Catalog, DataDir, Embedder, Enrichment, Filter, Mode, Options, OwnerWords, Query, Tool, ToolId,
    Writer,
};

/// Tools whose index is larger than one that is read into memory.
const TOOLS: usize = 900;
const DESCRIPTION_WORDS: usize = 220;

fn options() -> Options {
    let embedders: [Arc<dyn Embedder>; 3] = [
        StaticTable::bundled().unwrap(),
        MultilingualTable::bundled().unwrap(),
        Arc::new(Hashing::new(32)),
    ];
    Options::new(embedders.to_vec())
}

/// A word of a vocabulary that makes an index large.
fn rare_word(chance: &mut Chance) -> String {
    let number = 1 + chance.below(30_000) as u64;
    let mut letters = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut word = String::from("w");
    // Long, since a dictionary of short words is small.
    while letters > 0 {
        word.push(char::from(b'a' + (letters % 16) as u8));
        letters /= 16;
    }
    word
}

fn large_tool(chance: &mut Chance) -> Tool {
    let server = *chance.pick(&SERVERS);
    let mut tool = some_tool(chance, server);
    tool.id = ToolId::new(server, &format!("{}_{}", tool.id.name(), chance.below(600))).unwrap();
    for _ in 0..DESCRIPTION_WORDS {
        let word = match chance.one_in(3) {
            true => chance.pick(&WORDS).to_string(),
            false => rare_word(chance),
        };
        tool.description.extend([" ", &word]);
    }
    tool
}

fn some_queries(chance: &mut Chance) -> Vec<Query> {
    let mut queries = Vec::new();
    for mode in [Mode::Lexical, Mode::Dense, Mode::Hybrid, Mode::Hybrid] {
        for _ in 0..4 {
            let text = format!("{} {}", some_text(chance), rare_word(chance));
            let mut query = Query::new(&text).mode(mode).k(1 + chance.below(30));
            if chance.one_in(3) {
                query = query.explain();
            }
            if chance.one_in(3) {
                let mut filter = Filter::default();
                filter.servers.insert(chance.pick(&SERVERS).to_string());
                query = query.filter(filter);
            }
            queries.push(query);
        }
    }
    queries.push(Query::new("查询天气 发送邮件"));
    queries.push(Query::new("quel temps fait-il"));
    queries
}

/// Changes a few tools, and now and then something else.
fn change(chance: &mut Chance, writer: &mut Writer, tools: &mut BTreeMap<ToolId, Tool>) {
    let pick = |chance: &mut Chance, tools: &BTreeMap<ToolId, Tool>| {
        let place = chance.below(tools.len());
        tools.keys().nth(place).cloned().unwrap()
    };
    for _ in 0..1 + chance.below(3) {
        match chance.below(5) {
            0 | 1 => {
                let id = pick(chance, tools);
                let tool = tools.get_mut(&id).unwrap();
                tool.description = format!("{} {}", rare_word(chance), tool.description);
                writer.upsert(std::slice::from_ref(tool)).unwrap();
            }
            2 | 3 => {
                let tool = large_tool(chance);
                writer.upsert(std::slice::from_ref(&tool)).unwrap();
                tools.insert(tool.id.clone(), tool);
            }
            _ => {
                let id = pick(chance, tools);
                writer.remove(std::slice::from_ref(&id)).unwrap();
                tools.remove(&id);
            }
        }
    }
    if chance.one_in(8) {
        let mut settings = writer.settings().unwrap();
        settings.dense_weight = chance.below(11) as f32 / 10.0;
        writer.set_settings(&settings).unwrap();
    }
    if chance.one_in(8) {
        let id = pick(chance, tools);
        let texts = vec![format!("when {} is asked for", rare_word(chance))];
        let enrichment = Enrichment::new(texts, "model").unwrap();
        writer.set_enrichment(&tools[&id], &enrichment).unwrap();
    }
    if chance.one_in(8) {
        let id = pick(chance, tools).to_string();
        let mut words = OwnerWords::default();
        words.aliases.insert(id, vec![rare_word(chance)]);
        writer.set_owner_words(&words).unwrap();
    }
}

fn catalog_of(
    chance: &mut Chance,
    data: &DataDir,
    count: usize,
) -> (Catalog, BTreeMap<ToolId, Tool>) {
    let mut tools = BTreeMap::new();
    while tools.len() < count {
        let tool = large_tool(chance);
        tools.insert(tool.id.clone(), tool);
    }
    let catalog = data.open_or_create("large", options()).unwrap();
    let mut writer = catalog.writer().unwrap();
    let all: Vec<Tool> = tools.values().cloned().collect();
    writer.upsert(&all).unwrap();
    writer.commit().unwrap();
    embed_all(&mut writer);
    drop(writer);
    (catalog, tools)
}

#[test]
fn a_snapshot_made_of_changes_answers_as_one_read_as_a_whole() {
    for_each_seed(1, |seed| {
        let chance = &mut Chance::new(seed);
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::new(dir.path());
        let (catalog, mut tools) = catalog_of(chance, &data, TOOLS);
        let bytes = folder_bytes(&catalog.path().join("lexical"));
        assert!(bytes > 1 << 20, "{bytes} bytes are read into memory");
        for round in 0..2 {
            let mut writer = catalog.writer().unwrap();
            for _ in 0..1 + chance.below(6) {
                change(chance, &mut writer, &mut tools);
                writer.commit().unwrap();
                if chance.one_in(3) {
                    // What it makes on first use is kept, too, or made again.
                    catalog.searcher().search(&Query::new("weather")).unwrap();
                }
            }
            if chance.one_in(2) {
                embed_all(&mut writer);
            }
            match chance.one_in(2) {
                true => writer.rest(),
                false => drop(writer),
            }
            let whole = data.open("large", options()).unwrap();
            assert_eq!(catalog.searcher().len(), tools.len());
            let queries = some_queries(chance);
            let place = format!("seed {seed}, round {round}");
            assert_alike(&catalog.searcher(), &whole.searcher(), &queries, &place);
            for tool in tools.values() {
                assert_eq!(
                    catalog.searcher().tool(&tool.id).unwrap().description,
                    tool.description
                );
            }
            let (one, other) = (catalog.stats().unwrap(), whole.stats().unwrap());
            assert_eq!(one.vectors, other.vectors, "{place}");
            assert_eq!(one.pending_embeddings, other.pending_embeddings, "{place}");
            assert_eq!(one.servers, other.servers, "{place}");
        }
    });
}

fn folder_bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

fn files_below(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path, files),
            false => files.push(path),
        }
    }
}

/// What is left of a file.
type Tear = fn(&[u8]) -> Vec<u8>;

/// Nothing that is derived is synced, so after a power failure any of it may be cut short, empty,
/// of zeros, or of an earlier commit.
#[test]
fn derived_files_that_a_power_failure_has_torn_are_made_again() {
    let chance = &mut Chance::new(7);
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::new(dir.path());
    let (catalog, mut tools) = catalog_of(chance, &data, 40);
    let before = dir.path().join("before");
    copy(catalog.path(), &before);
    let mut writer = catalog.writer().unwrap();
    for _ in 0..3 {
        change(chance, &mut writer, &mut tools);
        writer.commit().unwrap();
    }
    drop(writer);
    let after = dir.path().join("after");
    copy(catalog.path(), &after);
    let queries = some_queries(chance);
    let expected = catalog.searcher();
    let mut files = Vec::new();
    files_below(&after, &mut files);
    let is_derived = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        !name.starts_with("tools.db") && !name.ends_with(".lock")
    };
    files.retain(is_derived);
    assert!(files.len() > 10, "{files:?}");
    let tears: [Tear; 3] = [
        |bytes| bytes[..bytes.len() / 2].to_vec(),
        |bytes| vec![0; bytes.len()],
        |_| Vec::new(),
    ];
    let path = catalog.path().to_owned();
    let check = |place: &str| {
        let opened = data.open("large", options()).unwrap();
        assert_alike(&opened.searcher(), &expected, &queries[..6], place);
    };
    // Each kind of file once, and all of them at once.
    let mut kinds = BTreeMap::new();
    for file in &files {
        let kind = file.extension().unwrap_or_default().to_owned();
        kinds.insert(kind, file.strip_prefix(&after).unwrap());
    }
    for (number, tear) in tears.iter().enumerate() {
        for (kind, file) in &kinds {
            copy(&after, &path);
            let torn = tear(&fs::read(path.join(file)).unwrap());
            fs::write(path.join(file), torn).unwrap();
            check(&format!("tear {number} of {kind:?}"));
        }
        copy(&after, &path);
        for file in &files {
            let file = path.join(file.strip_prefix(&after).unwrap());
            fs::write(&file, tear(&fs::read(&file).unwrap())).unwrap();
        }
        check(&format!("tear {number} of all"));
    }
    // All of it as it was before the commits, with the database of after.
    copy(&before, &path);
    for name in ["tools.db", "tools.db-wal"] {
        if after.join(name).exists() {
            fs::copy(after.join(name), path.join(name)).unwrap();
        }
    }
    check("derived files of before");
}
