//! The record of use: what searches and calls of every face leave in it, and who may read it.

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::agent::Agent;
use toolscout::assembly::{AgentPlan, Settings};
use toolscout::dropin::{DropInConfig, ProviderConfig};
use toolscout::finder::Style;
use toolscout::keys::Scope;
use toolscout::llm::ScriptedModel;
use toolscout::llm::script::Reply;
use toolscout::mcp::OnChange;
use toolscout::usage::{FILE_NAME, UsageDatabase};

use super::mcp::{ask, begin};
use super::model::{Api, Provider, find};
use super::server::{Server, read, tool};
use super::upstream::Connected;

const USAGE: &str = "/v1/catalogs/default/usage";
const UNUSED: &str = "/v1/catalogs/default/usage/unused";
const MISSED: &str = "/v1/catalogs/default/usage/missed";
const SEARCH: &str = "/v1/catalogs/default/search";

/// What is recorded of a tool.
async fn used(server: &Server, tool: &str) -> Value {
    let page = server.get(USAGE).await.body;
    let tools = page["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("{page}"));
    let used = tools.iter().find(|used| used["tool"] == tool);
    used.unwrap_or_else(|| panic!("{tool} in {page}")).clone()
}

fn figures<'a>(used: &'a Value, names: &[&str]) -> Vec<&'a Value> {
    names.iter().map(|name| &used[*name]).collect()
}

fn mail_and_shop() -> Vec<Value> {
    vec![
        tool("mail", "send", "Sends an e-mail to a person."),
        tool("mail", "drafts", "Lists drafts of letters that wait."),
        tool("shop", "order", "Orders goods in the shop."),
    ]
}

async fn search(server: &Server, body: Value) {
    let answer = server.post(SEARCH, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn searches_are_recorded_by_tool_place_and_match_and_outlive_a_restart() {
    let server = Server::with_tools(&mail_and_shop()).await;
    // A person who tries the search out is not a user of the tools.
    search(&server, json!({ "query": "send an e-mail", "trial": true })).await;
    search(&server, json!({ "query": "send an e-mail", "k": 2 })).await;
    let again = json!({ "query": "send an e-mail", "k": 1, "format": "openai" });
    search(&server, again).await;
    let send = used(&server, "mail/send").await;
    let names = ["searches", "first", "mean_place", "calls", "injections"];
    let expected = [json!(2), json!(2), json!(1.0), json!(0), json!(0)];
    assert_eq!(figures(&send, &names), expected.iter().collect::<Vec<_>>());
    let tokens = send["definition_tokens"].as_u64().unwrap();
    assert!((20..200).contains(&tokens), "of one answer: {send}");
    assert!(send["first_used_ms"].as_i64() > Some(0));
    let overview = server.get("/v1/usage").await.body;
    assert_eq!(overview["totals"]["searches"], 2, "{overview}");
    let caller = &overview["callers"][0];
    assert_eq!(
        (&caller["catalog"], &caller["caller"], caller.get("profile")),
        (&json!("default"), &json!("http"), None)
    );
    let matches = ["good", "possible", "none"].map(|name| caller[name].as_u64().unwrap());
    assert_eq!(matches.iter().sum::<u64>(), 2, "{caller}");
    assert_eq!(overview["days"][0]["searches"], 2);
    let metrics = server.get("/metrics").await.body;
    let metrics = metrics.as_str().unwrap();
    assert!(
        metrics.contains("toolscout_search_matches_total{match=\"possible\"} 2"),
        "{metrics}"
    );
    // The end writes what was not written yet.
    search(&server, json!({ "query": "send an e-mail", "k": 1 })).await;
    let folder = server.stop().await;
    let store = UsageDatabase::open_existing(folder.path())
        .unwrap()
        .unwrap();
    let tools = store.tools("default", 0).unwrap();
    assert_eq!(tools["mail/send"].searches, 3);
}

#[tokio::test]
async fn calls_are_recorded_with_their_outcome_latency_and_tokens() {
    let connected = Connected::start_with(OnChange::Warn, |_| {}).await;
    let server = &connected.server;
    for arguments in [json!({ "count": 1 }), json!({ "count": 2 }), json!({})] {
        connected.call("s/read", arguments).await;
    }
    let dry = json!({ "tool": "s/read", "arguments": { "count": 1 }, "dry_run": true });
    server.post("/v1/catalogs/default/calls", &dry).await;
    let read = used(server, "s/read").await;
    let names = ["calls", "successes", "errors", "searches"];
    let errors = json!({ "invalid_arguments": 1 });
    assert_eq!(
        figures(&read, &names),
        [&json!(3), &json!(2), &errors, &json!(0)]
    );
    assert!(read["p50_ms"].as_f64() > Some(0.0), "{read}");
    assert!(read["p95_ms"].as_f64() >= read["p50_ms"].as_f64());
    assert!(read["result_tokens"].as_u64() > Some(5), "{read}");
    let metrics = server.get("/metrics").await.body;
    for line in [
        "toolscout_tool_calls_total{outcome=\"ok\"} 2",
        "toolscout_tool_calls_total{outcome=\"invalid_arguments\"} 1",
        "toolscout_gate_decisions_total{decision=\"allow\"} 3",
        "toolscout_mcp_servers{state=\"connected\"} 1",
        "toolscout_mcp_servers{state=\"reconnecting\"} 0",
    ] {
        assert!(
            metrics.as_str().unwrap().contains(line),
            "{line}: {metrics}"
        );
    }
    let totals = server.get("/v1/usage").await.body["totals"].clone();
    assert_eq!(
        (&totals["calls"], &totals["errors"]),
        (&json!(3), &json!(1))
    );
}

#[tokio::test]
async fn an_mcp_client_leaves_searches_loads_and_calls() {
    let connected = Connected::start_with(OnChange::Warn, |settings| {
        settings.gateway.style = Style::Inject;
        settings.gateway.pins = vec!["s/wipe".to_owned()];
    })
    .await;
    let server = &connected.server;
    let session = begin(server).await;
    ask(server, &session, "tools/list", json!({})).await;
    ask(server, &session, "tools/list", json!({})).await;
    let call =
        json!({ "name": "tool_search", "arguments": { "query": "reads a file", "limit": 1 } });
    ask(server, &session, "tools/call", call).await;
    let call = json!({ "name": "s__read", "arguments": { "count": 1 } });
    let called = ask(server, &session, "tools/call", call).await;
    assert!(called.to_string().contains("read was called"), "{called}");
    let read = used(server, "s/read").await;
    let names = ["searches", "injections", "calls", "successes"];
    assert_eq!(figures(&read, &names), [&json!(1); 4], "{read}");
    assert!(read["definition_tokens"].as_u64() > Some(10));
    // The texts of the result, and not `null`, which is one token.
    assert_eq!(read["result_tokens"], 3, "{read}");
    let wipe = used(server, "s/wipe").await;
    assert_eq!(wipe["injections"], 1, "pinned once in the session: {wipe}");
}

/// An agent that searches for `s/read`, calls it and is done.
pub fn agent_that_reads() -> AgentPlan {
    let search = json!({ "query": "reads a file", "limit": 1 });
    let replies = [
        Reply::text("").call("tool_search", search),
        Reply::text("").call("s__read", json!({ "count": 1 })),
        Reply::text("Done."),
    ];
    let mut agent = AgentPlan {
        builder: Agent::builder().llm(ScriptedModel::new("scripted", replies)),
        ..AgentPlan::default()
    };
    agent.config.search_from_tools = 0;
    agent
}

#[tokio::test]
async fn an_agent_leaves_searches_loads_and_calls() {
    let agent = agent_that_reads();
    let with_agent = |settings: &mut Settings| settings.agents = Some(agent.into());
    let connected = Connected::start_with(OnChange::Warn, with_agent).await;
    let server = &connected.server;
    let asked = json!({ "query": "read it" });
    let answer = server.post("/v1/agent/chat", &asked).await;
    assert!(answer.body.to_string().contains("Done."), "{answer:?}");
    let read = used(server, "s/read").await;
    let names = ["searches", "first", "injections", "calls", "successes"];
    assert_eq!(figures(&read, &names), [&json!(1); 5], "{read}");
}

#[tokio::test]
async fn a_models_request_leaves_searches_loads_and_calls() {
    let provider = Provider::start().await;
    let mut config = DropInConfig::new(ProviderConfig::new(&provider.url));
    (config.defer_above_tokens, config.calls_tools) = (0, true);
    let connected = Connected::start_with(OnChange::Warn, |settings| {
        settings.dropin = Some(config);
    })
    .await;
    let api = Api::Chat;
    let read_call = ("c1", "s__read", json!({ "count": 1 }));
    provider.reply(api.reply(1, "", &[("s1", "tool_search", find("reads a file"))], false));
    provider.reply(api.reply(2, "", &[read_call], false));
    provider.reply(api.reply(3, "Done.", &[], false));
    let request = api.request(&json!([Api::question("q")]), false);
    let server = &connected.server;
    let sending = server.request(Method::POST, api.path());
    let sending = sending.header("x-toolscout-catalog", "default");
    let answer = read(sending.json(&request)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let read = used(server, "s/read").await;
    let names = ["searches", "injections", "calls", "successes"];
    assert_eq!(figures(&read, &names), [&json!(1); 4], "{read}");
}

#[tokio::test]
async fn tools_are_listed_in_an_order_page_by_page() {
    let server = Server::with_tools(&mail_and_shop()).await;
    search(&server, json!({ "query": "send an e-mail", "k": 3 })).await;
    for _ in 0..2 {
        let order = json!({ "query": "order goods in the shop", "k": 1 });
        search(&server, order).await;
    }
    let first = server
        .get(&format!("{USAGE}?sort=searches&limit=1"))
        .await
        .body;
    assert_eq!(first["tools"][0]["tool"], "shop/order", "{first}");
    assert_eq!(first["totals"]["first"], 3);
    let mut ids = vec![first["tools"][0]["tool"].clone()];
    let mut cursor = first["next_cursor"].clone();
    while let Some(next) = cursor.as_str() {
        let path = format!("{USAGE}?sort=searches&limit=1&cursor={next}");
        let page = server.get(&path).await.body;
        ids.push(page["tools"][0]["tool"].clone());
        cursor = page["next_cursor"].clone();
    }
    assert_eq!(ids.len() as u64, first["total"].as_u64().unwrap());
    let of_mail = server.get(&format!("{USAGE}?server=mail")).await.body;
    let tools = of_mail["tools"].as_array().unwrap();
    assert!(
        tools
            .iter()
            .all(|tool| tool["tool"].as_str().unwrap().starts_with("mail/"))
    );
    for (query, code) in [
        ("since_days=0", "invalid_value"),
        ("limit=0", "invalid_value"),
        ("cursor=!", "invalid_cursor"),
    ] {
        let bad = server.get(&format!("{USAGE}?{query}")).await;
        assert_eq!(bad.error_code(), code, "{query}");
    }
    assert_eq!(server.get(&format!("{USAGE}?sort=name")).await.status, 422);
}

#[tokio::test]
async fn unused_tools_are_listed_with_their_tokens_and_servers() {
    let server = Server::with_tools(&mail_and_shop()).await;
    let fresh = server.get(UNUSED).await.body;
    assert_eq!(
        (&fresh["total"], &fresh["all_tools"]),
        (&json!(3), &json!(3))
    );
    search(&server, json!({ "query": "send an e-mail", "k": 1 })).await;
    let unused = server.get(&format!("{UNUSED}?limit=1")).await.body;
    assert_eq!(unused["tools"][0]["tool"], "mail/drafts", "{unused}");
    assert_eq!(unused["total"], 2);
    let cursor = unused["next_cursor"].as_str().unwrap();
    let rest = server.get(&format!("{UNUSED}?cursor={cursor}")).await.body;
    assert_eq!(rest["tools"][0]["tool"], "shop/order");
    assert_eq!(rest.get("next_cursor"), None);
    let servers = unused["servers"].as_array().unwrap();
    let shop = servers
        .iter()
        .find(|server| server["server"] == "shop")
        .unwrap();
    assert_eq!((&shop["tools"], &shop["unused"]), (&json!(1), &json!(1)));
    let sum: u64 = servers
        .iter()
        .map(|server| server["definition_tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(unused["definition_tokens"], sum);
    let record = &unused["record"];
    assert_eq!(
        (&record["enabled"], &record["recorded_days"]),
        (&json!(true), &json!(1))
    );
    assert!(record["recorded_since"].as_str() >= record["since"].as_str());
}

#[tokio::test]
async fn a_deleted_catalog_takes_its_record_with_it() {
    let server = Server::start().await;
    server.put("/v1/catalogs/gone", &json!({})).await;
    let path = "/v1/catalogs/gone/tools";
    server.post(path, &json!(mail_and_shop())).await;
    let body = json!({ "query": "send an e-mail" });
    server.post("/v1/catalogs/gone/search", &body).await;
    let overview = server.get("/v1/usage").await.body;
    assert_eq!(overview["catalogs"][0]["catalog"], "gone", "{overview}");
    assert_eq!(server.delete("/v1/catalogs/gone").await.status, 204);
    let overview = server.get("/v1/usage").await.body;
    assert_eq!(overview["catalogs"], json!([]), "{overview}");
    let store = UsageDatabase::open_existing(server.dir.path())
        .unwrap()
        .unwrap();
    assert!(store.tools("gone", 0).unwrap().is_empty());
}

#[tokio::test]
async fn only_admins_read_the_record() {
    let server = Server::with_tools(&mail_and_shop()).await;
    let (admin, limited) = (
        server.key(Scope::Admin, "*"),
        server.key(Scope::Admin, "default"),
    );
    let searcher = server.key(Scope::Search, "*");
    let status = async |key: &str, path: &str| {
        let request = server.request(Method::GET, path).bearer_auth(key);
        read(request).await.status.as_u16()
    };
    for path in [USAGE, UNUSED, MISSED] {
        assert_eq!(status(&searcher, path).await, 403, "{path}");
        assert_eq!(status(&limited, path).await, 200, "{path}");
    }
    assert_eq!(status(&limited, "/v1/usage").await, 403);
    assert_eq!(status(&admin, "/v1/usage").await, 200);
    let search = server.request(Method::POST, SEARCH).bearer_auth(&searcher);
    read(search.json(&json!({ "query": "send an e-mail" }))).await;
    let overview = server.request(Method::GET, "/v1/usage").bearer_auth(&admin);
    let overview = read(overview).await.body;
    let id = searcher.split('_').nth(1).unwrap();
    assert_eq!(overview["callers"][0]["caller"], format!("key:{id}"));
}

#[tokio::test]
async fn no_text_of_a_request_is_stored() {
    let server = Server::with_tools(&mail_and_shop()).await;
    for query in ["send an e-mail to zanzibar", "zanzibar zanzibar"] {
        search(&server, json!({ "query": query })).await;
    }
    assert!(used(&server, "mail/send").await["searches"].as_u64() > Some(0));
    let folder = server.stop().await;
    for end in ["", "-wal"] {
        let file = folder.path().join(format!("{FILE_NAME}{end}"));
        let bytes = std::fs::read(file).unwrap_or_default();
        assert!(!bytes.windows(8).any(|part| part == b"zanzibar"), "{end}");
    }
}

#[tokio::test]
async fn missed_requests_are_kept_on_request_in_groups_and_can_be_deleted() {
    let off = Server::with_tools(&mail_and_shop()).await;
    search(&off, json!({ "query": "send an e-mail" })).await;
    let none = off.get(MISSED).await.body;
    assert_eq!(
        (&none["stores_queries"], &none["requests"]),
        (&json!(false), &json!(0))
    );
    assert!(none["advice"].as_str().unwrap().contains("queries = true"));

    let server = Server::start_with(|settings| settings.usage.queries = Some(true)).await;
    let tools = json!(mail_and_shop());
    server.post("/v1/catalogs/default/tools", &tools).await;
    for query in [
        "translate a letter into French",
        "translate this letter into French",
        "zygote",
    ] {
        search(&server, json!({ "query": query })).await;
    }
    let page = server.get(&format!("{MISSED}?limit=1")).await.body;
    assert_eq!(
        (&page["requests"], &page["total"]),
        (&json!(3), &json!(2)),
        "{page}"
    );
    let group = &page["groups"][0];
    assert_eq!(
        (&group["times"], &group["texts"]),
        (&json!(2), &json!(2)),
        "{page}"
    );
    let request = group["request"].as_str().unwrap();
    assert!(request.starts_with("translate"), "{page}");
    assert_eq!(
        (&page["stores_queries"], page.get("advice")),
        (&json!(true), None)
    );
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = server.get(&format!("{MISSED}?cursor={cursor}")).await.body;
    assert_eq!(rest["groups"][0]["request"], "zygote");
    assert_eq!(rest["groups"][0]["none"], 1, "{rest}");
    let forgotten = server.delete(MISSED).await.body;
    assert_eq!(forgotten["forgotten"], 3);
    let page = server.get(MISSED).await.body;
    assert_eq!(
        (&page["requests"], &page["groups"]),
        (&json!(0), &json!([]))
    );
    let folder = server.stop().await;
    for end in ["", "-wal"] {
        let file = folder.path().join(format!("{FILE_NAME}{end}"));
        let bytes = std::fs::read(file).unwrap_or_default();
        assert!(!bytes.windows(6).any(|part| part == b"zygote"), "{end}");
    }
}

#[tokio::test]
async fn nothing_is_recorded_where_that_is_switched_off() {
    let server = Server::start_with(|settings| settings.usage.enabled = Some(false)).await;
    let tools = json!(mail_and_shop());
    server.post("/v1/catalogs/default/tools", &tools).await;
    search(&server, json!({ "query": "send an e-mail" })).await;
    let page = server.get(USAGE).await.body;
    assert_eq!(
        (
            &page["record"]["enabled"],
            &page["total"],
            &page["record"]["recorded_since"]
        ),
        (&json!(false), &json!(0), &Value::Null)
    );
    assert!(!server.dir.path().join(FILE_NAME).exists());
}
