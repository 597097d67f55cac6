//! A catalog in an external engine, written by one program and served by another. The engine is a double that behaves as
//! the documentation says.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use toolscout::config::{ExternalProduct, ExternalSettings};
use toolscout::external::double::{Double, Fault, QdrantDouble, error};
use toolscout_index::Options;
use toolscout_index::embed::StaticTable;

use super::server::{Answer, Server};

fn tools() -> Value {
    let mut tools = Vec::new();
    for (number, (name, description)) in [
        ("send_message", "Sends a message to a person."),
        ("create_invoice", "Makes an invoice for a customer."),
        (
            "get_forecast",
            "Forecast of the weather for the coming days.",
        ),
        ("delete_file", "Deletes a file for good."),
    ]
    .into_iter()
    .enumerate()
    {
        tools.push(json!({
            "name": name, "server": format!("s{}", number % 2), "description": description,
            "inputSchema": { "type": "object" }, "tags": ["office"],
        }));
    }
    json!(tools)
}

/// Runs the program, and returns what it printed, or what it said when it failed.
fn run(folder: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_toolscout"))
        .args(["--config", "config.toml", "--data", "data"])
        .args(args)
        .env("TOOLSCOUT_EMBEDDER", "table")
        .current_dir(folder)
        .output()
        .expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

async fn run_elsewhere(folder: &Path, args: &'static [&'static str]) -> Result<String, String> {
    let folder = folder.to_owned();
    let ran = tokio::task::spawn_blocking(move || run(&folder, args));
    ran.await.expect("no panic")
}

fn first(answer: &Answer) -> &Value {
    &answer.body["hits"][0]["id"]
}

#[tokio::test(flavor = "multi_thread")]
async fn one_program_writes_an_index_and_another_searches_it() {
    for product in [ExternalProduct::Elasticsearch, ExternalProduct::OpenSearch] {
        let double = Double::start(product).await;
        let store = double.store("office");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("tools.json"), tools().to_string()).unwrap();
        let config = format!("[catalogs.default]\nstore = '{store}'\nmode = 'write'\n");
        std::fs::write(path.join("config.toml"), &config).unwrap();
        run_elsewhere(path, &["add", "tools.json"]).await.unwrap();
        let checked = run_elsewhere(path, &["external", "check"]).await.unwrap();
        assert!(checked.contains("no index yet"), "{checked}");
        let written = run_elsewhere(path, &["external", "write", "--json"])
            .await
            .unwrap();
        let written: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written["written"], 4, "{written}");
        let checked = run_elsewhere(path, &["external", "check"]).await.unwrap();
        assert!(checked.contains("4 tools in generation"), "{checked}");
        std::fs::write(path.join("config.toml"), config.replace("write", "read")).unwrap();
        let refused = run_elsewhere(path, &["external", "write"])
            .await
            .unwrap_err();
        assert!(refused.contains("set it to \"write\""), "{refused}");

        let server = Server::start_with(|settings| {
            settings
                .external
                .insert("default".to_owned(), ExternalSettings::new(&store));
            settings.catalog_options = Options::new(vec![StaticTable::bundled().unwrap()]);
        })
        .await;
        serves(&server, &double).await;
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_program_writes_a_collection_and_another_searches_it() {
    let double = QdrantDouble::start().await;
    let store = double.store("Office_tools");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("tools.json"), tools().to_string()).unwrap();
    let config = format!("[catalogs.default]\nstore = '{store}'\nmode = 'write'\n");
    std::fs::write(path.join("config.toml"), config).unwrap();
    run_elsewhere(path, &["add", "tools.json"]).await.unwrap();
    let written = run_elsewhere(path, &["external", "write"]).await.unwrap();
    assert!(written.contains("4 tools written"), "{written}");
    let checked = run_elsewhere(path, &["external", "check", "--json"]).await;
    let checked: Value = serde_json::from_str(&checked.unwrap()).unwrap();
    assert_eq!(checked["product"], "Qdrant", "{checked}");
    assert_eq!(checked["tools"], 4, "{checked}");
    let server = Server::start_with(|settings| {
        settings
            .external
            .insert("default".to_owned(), ExternalSettings::new(&store));
        settings.catalog_options = Options::new(vec![StaticTable::bundled().unwrap()]);
    })
    .await;
    let query = json!({ "query": "what will the weather be tomorrow" });
    let answer = server.post("/v1/catalogs/default/search", &query).await;
    assert_eq!(first(&answer), "s0/get_forecast", "{answer:?}");
    assert!(answer.body["degraded"].is_null(), "{answer:?}");
    let listed = server.get("/v1/catalogs/default/tools?name=INVOICE").await;
    assert_eq!(
        listed.body["tools"][0]["id"], "s1/create_invoice",
        "{listed:?}"
    );
    let tags = server.get("/v1/catalogs/default/tags").await;
    assert_eq!(tags.body["tags"][0]["count"], 4, "{tags:?}");
    server.stop().await;
}

async fn serves(server: &Server, double: &Double) {
    let search = "/v1/catalogs/default/search";
    let query = json!({ "query": "what will the weather be tomorrow" });
    let answer = server.post(search, &query).await;
    assert_eq!(first(&answer), "s0/get_forecast", "{answer:?}");
    assert!(answer.body["degraded"].is_null(), "{answer:?}");
    let listed = server.get("/v1/catalogs/default/tools?limit=2").await;
    assert_eq!(listed.body["total"], 4, "{listed:?}");
    assert_eq!(
        listed.body["tools"][0]["id"], "s0/get_forecast",
        "{listed:?}"
    );
    let shown = server
        .get("/v1/catalogs/default/tools/s1/create_invoice")
        .await;
    assert_eq!(
        shown.body["description"], "Makes an invoice for a customer.",
        "{shown:?}"
    );
    let tags = server.get("/v1/catalogs/default/tags").await;
    assert_eq!(tags.body["tags"][0]["count"], 4, "{tags:?}");
    let refused = server.post("/v1/catalogs/default/tools", &tools()).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert_eq!(
        refused.body["error"]["code"], "tools_elsewhere",
        "{refused:?}"
    );
    let kept = server.delete("/v1/catalogs/default").await;
    assert_eq!(kept.body["error"]["code"], "tools_elsewhere", "{kept:?}");
    // The owner's words are kept here.
    let words = json!({ "boosts": { "tools": { "s0/get_forecast": 0.0 } } });
    let put = server.put("/v1/catalogs/default/words", &words).await;
    assert_eq!(put.status, 200, "{put:?}");
    let answer = server.post(search, &query).await;
    assert_ne!(first(&answer), "s0/get_forecast", "{answer:?}");
    let estimate = json!({ "dry_run": true });
    let refused = server.post("/v1/catalogs/default/enrich", &estimate).await;
    assert_eq!(
        refused.body["error"]["code"], "tools_elsewhere",
        "{refused:?}"
    );
    let expired = error("security_exception", "the key has expired");
    double.fail("_msearch", Fault::Status(401, expired));
    let answer = server.post(search, &query).await;
    let message = answer.body["error"]["message"].to_string();
    assert!(message.contains("the key has expired"), "{answer:?}");
    let away = error("unavailable_shards_exception", "no shard is active");
    double.fail("_msearch", Fault::Status(503, away));
    let answer = server.post(search, &query).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(
        answer.body["error"]["code"], "store_unavailable",
        "{answer:?}"
    );
    let message = answer.body["error"]["message"].to_string();
    assert!(message.contains("no shard is active"), "{answer:?}");
    assert!(!message.contains("the store"), "{answer:?}");
    let unused = server.get("/v1/catalogs/default/usage/unused").await;
    assert_eq!(unused.body["error"]["code"], "pushed_down", "{unused:?}");
    let message = unused.body["error"]["message"].to_string();
    assert!(
        message.contains("looked for in a search engine"),
        "{unused:?}"
    );
}
