//! Second answers to live searches: what is reported of them, and that they change no answer.

use std::collections::BTreeMap;
use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::assembly::Settings;
use toolscout::config::{SettingsChange, ShadowSettings};
use toolscout::dropin::{DropInConfig, ProviderConfig};
use toolscout::keys::Scope;
use toolscout::mcp::OnChange;
use toolscout::shadow::{FOLDER, Plan};
use toolscout_index::Options;

use super::mcp::{ask, begin};
use super::model::{Api, Provider, find};
use super::server::{Server, read, tool};
use super::upstream::Connected;
use super::usage::agent_that_reads;

const SHADOW: &str = "/v1/catalogs/default/usage/shadow";
const SEARCH: &str = "/v1/catalogs/default/search";
const TOOLS: &str = "/v1/catalogs/default/tools";

/// A shadow of the default catalog that compares every search.
fn plan(settings: ShadowSettings) -> Option<Plan> {
    let settings = ShadowSettings {
        share: Some(1.0),
        ..settings
    };
    let load = Box::new(Options::default);
    Some(Plan::new(&settings, "default", &BTreeMap::new(), load).unwrap())
}

/// One with words that put a tool first for a request.
fn pinned(folder: &Path, request: &str, tool: &str) -> Option<Plan> {
    let file = folder.join("shadow-words.json");
    let words = json!({ "pins": { "p": { "query": request, "tool": tool } } });
    std::fs::write(&file, words.to_string()).unwrap();
    plan(ShadowSettings {
        words: Some(file),
        ..ShadowSettings::default()
    })
}

/// One with another number of hits.
fn with_hits(k: usize) -> Option<Plan> {
    let table = json!({ "k": k }).as_object().unwrap().clone();
    plan(ShadowSettings {
        settings: Some(SettingsChange::Table(table)),
        ..ShadowSettings::default()
    })
}

/// Waits until the shadow answers for what the catalog is now.
async fn ready(server: &Server) {
    let catalog = server.get("/v1/catalogs/default").await.body;
    let generation = catalog["generation"].as_u64().unwrap();
    server
        .wait_for(SHADOW, |shadow| {
            assert_eq!(shadow["now"].get("problem"), None, "{shadow}");
            shadow["now"]["state"] == "ready" && shadow["now"]["generation"] == generation
        })
        .await;
}

/// The report, once so many searches are compared and so many calls known.
async fn compared(server: &Server, searches: u64, calls: u64) -> Value {
    server
        .wait_for(SHADOW, |shadow| {
            shadow["searches"] == searches && shadow["calls"] == calls
        })
        .await
}

fn mail_and_shop() -> Vec<Value> {
    vec![
        tool("mail", "send", "Sends an e-mail to a person."),
        tool("mail", "drafts", "Lists drafts of letters that wait."),
        tool("shop", "order", "Orders goods in the shop."),
    ]
}

async fn with_tools(change: impl FnOnce(&mut Settings)) -> Server {
    let server = Server::start_with(change).await;
    let answer = server.post(TOOLS, &json!(mail_and_shop())).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    ready(&server).await;
    server
}

#[tokio::test]
async fn words_that_put_called_tools_first_are_reported_to_gain() {
    let connected = Connected::start_with(OnChange::Warn, |settings| {
        settings.shadow = pinned(&settings.data, "wipe the file", "s/read");
    })
    .await;
    let server = &connected.server;
    ready(server).await;
    for number in 1..=20 {
        let session = begin(server).await;
        let search = json!({ "query": "wipe the file", "limit": 2 });
        let found = json!({ "name": "tool_search", "arguments": search });
        let found = ask(server, &session, "tools/call", found).await.to_string();
        let (wipe, read) = (found.find("s/wipe"), found.find("s/read"));
        assert!(wipe.is_some() && wipe < read, "{found}");
        let call = json!({ "name": "s/read", "arguments": { "count": number } });
        let call = json!({ "name": "call_tool", "arguments": call });
        let called = ask(server, &session, "tools/call", call).await;
        assert!(called.to_string().contains("read was called"), "{called}");
    }
    let report = compared(server, 20, 20).await;
    assert_eq!(
        report["summary"],
        "switching gains 1.00 ± .15 in first place of called tools (20 calls, 20 searches compared)"
    );
    assert_eq!(report["verdict"], "gains");
    let first = json!({
        "live": 0.0, "shadow": 1.0, "gain": { "mean": 1.0, "plus_minus": 0.15 }
    });
    assert_eq!(report["first_place"], first, "{report}");
    assert_eq!(report["reciprocal_place"]["live"], 0.5);
    assert_eq!(report["same_first_hit"], 0.0);
    assert_eq!(report["overlap_at_5"]["mean"], 1.0);
    assert_eq!(report["absent"], 0);
    assert_eq!(report["days"][0]["calls"], 20);
    assert_eq!(report["now"]["dropped"], 0);
}

#[tokio::test]
async fn feedback_says_which_tool_was_used_for_a_search_of_the_api() {
    let server = with_tools(|settings| {
        settings.shadow = pinned(&settings.data, "send an e-mail", "shop/order");
    })
    .await;
    for outcome in ["used", "not_helpful"] {
        let body = json!({ "query": "send an e-mail", "k": 3 });
        let found = server.post(SEARCH, &body).await.body;
        let token = &found["feedback_token"];
        let feedback = json!({ "feedback_token": token, "tool": "mail/send", "outcome": outcome });
        let path = "/v1/catalogs/default/feedback";
        let answer = server.post(path, &feedback).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
    let report = compared(&server, 2, 1).await;
    assert_eq!(report["first_place"]["live"], 1.0, "{report}");
    assert_eq!(report["first_place"]["shadow"], 0.0);
    assert_eq!(report["verdict"], "too_little");
}

/// What an answer says, without times and what names the request.
fn said(mut answer: Value) -> Value {
    let fields = answer.as_object_mut().unwrap();
    for name in ["took_ms", "request_id", "feedback_token"] {
        fields.remove(name);
    }
    answer
}

#[tokio::test]
async fn no_answer_differs_with_a_shadow() {
    let plain = Server::with_tools(&mail_and_shop()).await;
    let shadowed = with_tools(|settings| {
        settings.shadow = pinned(&settings.data, "send an e-mail", "shop/order");
    })
    .await;
    let bodies = [
        json!({ "query": "send an e-mail", "explain": true }),
        json!({ "query": "order goods", "k": 1, "format": "openai" }),
        json!({ "queries": ["letters", "goods"], "filter": { "servers": ["mail"] } }),
        json!({ "query": "zanzibar" }),
        json!({ "query": "send an e-mail" }),
    ];
    for body in &bodies {
        let [one, other] = [&plain, &shadowed].map(|server| server.post(SEARCH, body));
        let (one, other) = (one.await, other.await);
        let texts = [one, other].map(|answer| said(answer.body).to_string());
        assert_eq!(texts[0], texts[1], "{body}");
    }
    let report = compared(&shadowed, bodies.len() as u64, 0).await;
    assert_eq!(report["same_first_hit"], 0.6, "two were pinned: {report}");
}

#[tokio::test]
async fn a_shadow_follows_its_catalog_and_outlives_a_restart() {
    let server = with_tools(|settings| settings.shadow = with_hits(2)).await;
    let search = async |server: &Server, query: &str| {
        let found = server.post(SEARCH, &json!({ "query": query })).await.body;
        found["hits"][0]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(search(&server, "send an e-mail").await, "mail/send");
    compared(&server, 1, 0).await;
    let changed = tool("shop", "order", "Sends an e-mail quickly.");
    let removed = server.delete(&format!("{TOOLS}/mail%2Fsend")).await;
    assert_eq!(removed.status, 204, "{removed:?}");
    server.post(TOOLS, &json!([changed])).await;
    ready(&server).await;
    assert_eq!(search(&server, "send an e-mail").await, "shop/order");
    let report = compared(&server, 2, 0).await;
    assert_eq!(report["same_first_hit"], 1.0, "{report}");
    let hash = report["shadow"].clone();

    let folder = server.stop().await;
    let names = || {
        let shadows = std::fs::read_dir(folder.path().join(FOLDER).join("catalogs")).unwrap();
        let names = shadows.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap())
    };
    assert_eq!(names().collect::<Vec<_>>(), [hash.as_str().unwrap()]);
    let again = Server::start_with(|settings| {
        settings.data = folder.path().to_owned();
        settings.shadow = with_hits(2);
    })
    .await;
    ready(&again).await;
    search(&again, "send an e-mail").await;
    let report = compared(&again, 3, 0).await;
    assert_eq!(
        (&report["shadow"], &report["same_first_hit"]),
        (&hash, &json!(1.0))
    );
    let catalogs = again.get("/v1/catalogs").await.body;
    assert_eq!(catalogs["catalogs"].as_array().unwrap().len(), 1);
    again.stop().await;

    // Another one begins anew, and the former one goes.
    let other = Server::start_with(|settings| {
        settings.data = folder.path().to_owned();
        settings.shadow = with_hits(1);
    })
    .await;
    ready(&other).await;
    let report = compared(&other, 0, 0).await;
    assert_ne!(report["shadow"], hash);
    assert_eq!(names().count(), 1);
    other.stop().await;
    let none = Server::start_with(|settings| settings.data = folder.path().to_owned()).await;
    assert_eq!(names().count(), 0);
    assert_eq!(none.get(SHADOW).await.error_code(), "no_shadow");
}

#[tokio::test]
async fn searches_of_the_agent_and_of_a_models_request_are_compared() {
    let agent = agent_that_reads();
    let provider = Provider::start().await;
    let mut config = DropInConfig::new(ProviderConfig::new(&provider.url));
    (config.defer_above_tokens, config.calls_tools) = (0, true);
    let connected = Connected::start_with(OnChange::Warn, |settings| {
        settings.agents = Some(agent.into());
        settings.dropin = Some(config);
        settings.shadow = with_hits(2);
    })
    .await;
    let server = &connected.server;
    ready(server).await;
    let asked = json!({ "query": "read it" });
    let answer = server.post("/v1/agent/chat", &asked).await;
    assert!(answer.body.to_string().contains("Done."), "{answer:?}");
    let report = compared(server, 1, 1).await;
    assert_eq!(report["first_place"]["shadow"], 1.0, "{report}");

    let api = Api::Chat;
    let read_call = ("c1", "s__read", json!({ "count": 1 }));
    provider.reply(api.reply(1, "", &[("s1", "tool_search", find("reads a file"))], false));
    provider.reply(api.reply(2, "", &[read_call], false));
    provider.reply(api.reply(3, "Done.", &[], false));
    let request = api.request(&json!([Api::question("q")]), false);
    let sending = server.request(Method::POST, api.path());
    let sending = sending.header("x-toolscout-catalog", "default");
    let answer = read(sending.json(&request)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    server
        .wait_for(SHADOW, |shadow| shadow["searches"] == 2)
        .await;
}

#[tokio::test]
async fn a_deleted_catalog_takes_its_shadow_and_its_figures_with_it() {
    let server = with_tools(|settings| settings.shadow = with_hits(2)).await;
    server.post(SEARCH, &json!({ "query": "goods" })).await;
    compared(&server, 1, 0).await;
    assert_eq!(server.delete("/v1/catalogs/default").await.status, 204);
    server.put("/v1/catalogs/default", &json!({})).await;
    server.post(TOOLS, &json!(mail_and_shop())).await;
    ready(&server).await;
    compared(&server, 0, 0).await;
    server.post(SEARCH, &json!({ "query": "goods" })).await;
    let report = compared(&server, 1, 0).await;
    assert_eq!(report["same_first_hit"], 1.0, "{report}");
}

#[tokio::test]
async fn only_admins_read_the_figures_and_only_of_the_catalog_that_has_a_shadow() {
    let server = with_tools(|settings| settings.shadow = with_hits(2)).await;
    server.put("/v1/catalogs/other", &json!({})).await;
    let (admin, searcher) = (
        server.key(Scope::Admin, "*"),
        server.key(Scope::Search, "*"),
    );
    let ask = async |key: &str, path: &str| {
        let request = server.request(Method::GET, path).bearer_auth(key);
        read(request).await
    };
    assert_eq!(ask(&searcher, SHADOW).await.status, 403);
    assert_eq!(ask(&admin, SHADOW).await.status, 200);
    let bad = ask(&admin, &format!("{SHADOW}?since_days=0")).await;
    assert_eq!(bad.error_code(), "invalid_value");
    let other = ask(&admin, "/v1/catalogs/other/usage/shadow").await;
    assert_eq!(
        (other.status.as_u16(), other.error_code()),
        (404, "no_shadow")
    );
    assert!(other.message().contains("[shadow]"), "{other:?}");
}
