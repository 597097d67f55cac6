//! Readers of foreign bytes, each as a function of bytes that panics where something is wrong.
//!
//! `tests/fuzz.rs` runs them over the kept corpus with every test run; `fuzz/` gives them to
//! libFuzzer.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use toolscout::agent::prompt;
use toolscout::eval::dataset::pasted;
use toolscout::llm::Delta;
use toolscout::llm::stream::ReplyDecoder;
use toolscout::llm::think::ThinkSplitter;
use toolscout::mcp::Limits;
use toolscout::mcp::connection::ListedTools;
use toolscout::mcp::lines::Lines;
use toolscout::mcp::sync::read_tools;
use toolscout::plan;
use toolscout::tools::builtin::html;
use toolscout_index::embed::StaticTable;
use toolscout_index::formats::{self, Emit, ReadOptions};
use toolscout_index::{Catalog, DataDir, Options, OwnerWords, Query, Ranker, Tool, ToolId};

/// A reader, under the name of its folder in `fuzz/corpus`.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Executions of an ordinary test run; fewer for those that open files.
    pub executions: usize,
}

/// Every reader.
pub const TARGETS: &[Target] = &[
    Target {
        name: "formats",
        run: formats,
        executions: 1_000,
    },
    Target {
        name: "openapi",
        run: openapi,
        executions: 500,
    },
    Target {
        name: "mcp_tools",
        run: mcp_tools,
        executions: 1_000,
    },
    Target {
        name: "mcp_lines",
        run: mcp_lines,
        executions: 1_000,
    },
    Target {
        name: "sse",
        run: sse,
        executions: 1_000,
    },
    Target {
        name: "plan_reply",
        run: plan_reply,
        executions: 1_000,
    },
    Target {
        name: "manual_reply",
        run: manual_reply,
        executions: 1_000,
    },
    Target {
        name: "html",
        run: html_page,
        executions: 1_000,
    },
    Target {
        name: "query",
        run: query,
        executions: 60,
    },
    Target {
        name: "pasted_queries",
        run: pasted_queries,
        executions: 1_000,
    },
    Target {
        name: "owner_words",
        run: owner_words,
        executions: 1_000,
    },
    Target {
        name: "ranker_file",
        run: ranker_file,
        executions: 200,
    },
    Target {
        name: "catalog_file",
        run: catalog_file,
        executions: 20,
    },
];

/// Tools in any format: what is read is valid, can be written in every format, and is read back
/// from the one that loses nothing.
pub fn formats(bytes: &[u8]) {
    let Ok(parsed) = formats::parse(bytes, &ReadOptions::default()) else {
        return;
    };
    let tools: Vec<&Tool> = parsed.tools.iter().collect();
    for tool in &tools {
        tool.validate().expect("a tool that was read is valid");
    }
    for format in Emit::ALL {
        formats::emit(&tools, format);
    }
    let written = formats::emit(&tools, Emit::Mcp).to_string();
    let again = formats::parse(written.as_bytes(), &ReadOptions::default());
    if !tools.is_empty() {
        let again = again.expect("what was written is read");
        assert_eq!(again.tools, parsed.tools);
    }
}

/// The owner's words: what is read is valid and comes back as it was written, and as a patch it gives
/// words or an error.
pub fn owner_words(bytes: &[u8]) {
    if let Ok(words) = OwnerWords::read(bytes) {
        words.validate().expect("words that were read are valid");
        let again = OwnerWords::read(words.to_json().as_bytes()).expect("readable");
        assert_eq!(again, words);
    }
    if let Ok(patch) = serde_json::from_slice::<Value>(bytes)
        && let Ok(patched) = OwnerWords::default().patched(&patch)
    {
        patched.validate().expect("patched words are valid");
    }
}

/// Pasted queries, with the bytes as judgements too: what is read names known tools alone, and each
/// query once.
pub fn pasted_queries(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let tools: Vec<ToolId> = ["a/b", "post/send"]
        .iter()
        .filter_map(|id| ToolId::parse(id).ok())
        .collect();
    for qrels in [None, Some(&*text)] {
        let Ok(queries) = pasted::read(&text, qrels, &tools) else {
            continue;
        };
        let ids: HashSet<&str> = queries.iter().map(|query| query.id.as_str()).collect();
        assert_eq!(ids.len(), queries.len());
        for query in &queries {
            assert!(!query.text.trim().is_empty());
            for id in query.relevant.iter().flatten() {
                assert!(tools.iter().any(|tool| tool.as_str() == id));
            }
        }
    }
}

/// OpenAPI: the bytes as a document, and as the operation, the schema and the path item of one.
pub fn openapi(bytes: &[u8]) {
    formats(bytes);
    let Ok(part) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let parameter =
        json!({"name": "p", "in": "query", "schema": {"$ref": "#/components/schemas/part"}});
    let document = json!({
        "openapi": "3.1.0",
        "components": {"schemas": {"part": part}, "parameters": {"p": parameter}},
        "paths": {
            "/operation": {"post": part},
            "/schema": {"get": {"parameters": [parameter, {"$ref": "#/components/parameters/p"}, part]}},
            "/item": part,
            "/body": {"put": {"requestBody": part, "responses": {"200": part}}},
        },
    });
    formats(document.to_string().as_bytes());
}

/// The list of tools of an MCP server.
pub fn mcp_tools(bytes: &[u8]) {
    let Ok(Value::Array(entries)) = serde_json::from_slice(bytes) else {
        return;
    };
    let count = entries.len();
    let limits = Limits::default();
    let listed = ListedTools {
        entries,
        incomplete: None,
    };
    let offer = read_tools("server", listed, &limits);
    assert!(offer.tools.len() <= count);
    for tool in offer.tools {
        assert_eq!(tool.id.server(), "server");
        assert!(tool.description.len() <= limits.description_bytes);
    }
}

/// What an MCP server writes: no line gets longer than its bound.
pub fn mcp_lines(bytes: &[u8]) {
    const MAX_BYTES: usize = 600;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let read = runtime.block_on(async {
        let mut read = Vec::new();
        let mut lines = Lines::new(bytes, "server".into(), MAX_BYTES);
        lines
            .read_to_end(&mut read)
            .await
            .expect("memory does not fail");
        read
    });
    for line in read.split(|&byte| byte == b'\n') {
        // What takes the place of a line that is too long names its id, which may be as long as
        // what is kept of a line.
        assert!(line.len() <= 2 * MAX_BYTES, "{} bytes", line.len());
    }
}

/// A model's stream: the same deltas however the bytes are cut.
pub fn sse(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else {
        return;
    };
    let whole = decoded(std::iter::once(stream));
    let parts = decoded(stream.chunks(usize::from(cut).max(1)));
    assert_eq!(format!("{:?}", parts.1), format!("{:?}", whole.1));
    if whole.1.is_ok() {
        assert_eq!(format!("{:?}", parts.0), format!("{:?}", whole.0));
    }
}

fn decoded<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Vec<Delta>, Result<(), String>) {
    let mut decoder = ReplyDecoder::default();
    let mut deltas = Vec::new();
    for part in parts {
        match decoder.push(part) {
            Ok(more) => deltas.extend(more),
            Err(error) => return (deltas, Err(error.to_string())),
        }
    }
    match decoder.finish() {
        Ok(more) => deltas.extend(more),
        Err(error) => return (deltas, Err(error.to_string())),
    }
    (deltas, Ok(()))
}

/// A model's reply where a plan was asked for.
pub fn plan_reply(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let plan::Reading::Plan(plan) = plan::read(&text) {
        assert!(plan.steps.len() <= plan::MAX_STEPS);
    }
}

/// A model's reply in the protocol for models without tool calls.
pub fn manual_reply(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    prompt::read_manual(&text);
    let mut splitter = ThinkSplitter::default();
    splitter.push(&text);
    splitter.finish();
}

/// A page: nothing of it is said more than once.
pub fn html_page(bytes: &[u8]) {
    let page = String::from_utf8_lossy(bytes);
    let read = html::read(&page);
    // A reference of three letters and no `;` may stand for six bytes, a heading of four bytes for
    // seven.
    assert!(
        read.text.len() <= 4 * page.len() + 16,
        "{} bytes of {}",
        read.text.len(),
        page.len()
    );
}

struct World {
    folder: TempDir,
    catalog: Catalog,
    answers: Vec<Vec<String>>,
}

/// A small catalog, the same in every run.
static WORLD: LazyLock<World> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let catalog = DataDir::new(folder.path())
        .open_or_create("small", options())
        .expect("a catalog");
    let mut writer = catalog.writer().expect("a writer");
    writer.upsert(&some_tools()).expect("tools");
    writer.commit().expect("a commit");
    drop(writer);
    let answers = answers(&catalog);
    World {
        folder,
        catalog,
        answers,
    }
});

const REQUESTS: [&str; 3] = [
    "send an email to Bob",
    "weather tomorrow",
    "delete a file and list the folder",
];

fn options() -> Options {
    Options::new(vec![
        StaticTable::bundled().expect("the table that is built in"),
    ])
}

fn some_tools() -> Vec<Tool> {
    let tool = |(name, description): (&str, &str)| {
        Tool::new("s", name)
            .expect("a name")
            .with_description(description)
    };
    [
        ("send_email", "Sends a message to an address."),
        ("get_weather", "Tells the weather of the next days."),
        ("delete_file", "Removes a file for good."),
        ("list_folder", "Lists what is in a folder."),
        ("查询天气", "查询城市的天气预报"),
        ("add_numbers", "Adds two numbers."),
    ]
    .map(tool)
    .into()
}

fn answers(catalog: &Catalog) -> Vec<Vec<String>> {
    let searcher = catalog.searcher();
    let ids = |text: &str| {
        let results = searcher.search(&Query::new(text)).expect("an answer");
        results.hits.iter().map(|hit| hit.id.to_string()).collect()
    };
    REQUESTS.map(ids).into()
}

/// A request: an answer within its bounds, or an error that says what is wrong with the request.
pub fn query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let searcher = WORLD.catalog.searcher();
    let Ok(results) = searcher.search(&Query::new(text.as_ref()).k(3).explain()) else {
        return;
    };
    assert!(results.hits.len() <= 3);
    assert!(results.hits.iter().all(|hit| hit.score.is_finite()));
    assert!(
        results
            .hits
            .windows(2)
            .all(|pair| pair[0].score >= pair[1].score)
    );
}

/// A ranker's file, as it is and under a first line that is right about it.
pub fn ranker_file(bytes: &[u8]) {
    let path = Path::new("ranker.json");
    let _ = Ranker::read(bytes, path);
    let mut whole = format!("toolscout-ranker 1 {}\n", blake3::hash(bytes).to_hex()).into_bytes();
    whole.extend(bytes);
    if let Ok(ranker) = Ranker::read(&whole, path)
        && let Some(model) = ranker.model(["static-table/x"].into_iter())
    {
        let width = toolscout_index::ranker::Feature::ALL.len();
        model.trees().predict(&vec![0.5; width], width);
    }
}

/// A file of a catalog's derived data is damaged: the first byte says which, the second how, the
/// rest is written there. The catalog opens and answers as before.
pub fn catalog_file(bytes: &[u8]) {
    let [which, how, content @ ..] = bytes else {
        return;
    };
    let world = &*WORLD;
    let folder = tempfile::tempdir().expect("a folder");
    copy(world.folder.path(), folder.path());
    let files = derived_files(folder.path());
    let file = &files[usize::from(*which) % files.len()];
    let mut written = fs::read(file).expect("a file");
    let at = usize::from(*how >> 2) * written.len() / 64;
    match how % 4 {
        0 => written = content.to_vec(),
        1 => written.truncate(at),
        2 => written
            .splice(at..at, content.iter().copied())
            .for_each(drop),
        _ => written[at..]
            .iter_mut()
            .zip(content)
            .for_each(|(byte, new)| *byte ^= new),
    }
    fs::write(file, written).expect("a file");
    let catalog = DataDir::new(folder.path()).open("small", options());
    let catalog = catalog.unwrap_or_else(|error| panic!("{} is damaged: {error}", file.display()));
    assert_eq!(
        answers(&catalog),
        world.answers,
        "{} is damaged",
        file.display()
    );
}

/// The files that can be made anew from `tools.db`, in order.
fn derived_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if !name.ends_with(".lock") && !name.contains(".db") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let copied = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            fs::create_dir(&copied).expect("a folder");
            copy(&path, &copied);
        } else {
            fs::copy(&path, &copied).expect("a copy");
        }
    }
}
