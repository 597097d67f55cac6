use serde_json::{Value, json};

use super::server::{Server, tool};

#[tokio::test]
async fn figures_count_requests_searches_and_their_times() {
    let server = Server::with_tools(&[
        tool("s", "t", "Does a thing."),
        tool("s", "u", "Is another."),
    ])
    .await;
    for query in ["thing", "another", "xylophone quasar"] {
        server.post("/v1/search", &json!({ "query": query })).await;
    }
    server.get("/v1/catalogs/none").await;
    let stats = server.get("/v1/stats").await.body;
    let searches = &stats["searches"];
    assert_eq!(
        (&searches["total"], &searches["no_match"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(searches["by_mode"], json!({ "lexical": 3 }));
    assert_eq!(searches["degraded"], json!({ "no_embedder": 3 }));
    let stages = searches["stages"].as_array().unwrap();
    let names: Vec<&Value> = stages.iter().map(|stage| &stage["stage"]).collect();
    assert_eq!(names, ["embed", "lexical", "dense", "fuse", "rank"]);
    let latency = &searches["latency"];
    let [p50, p95, p99] =
        ["p50_ms", "p95_ms", "p99_ms"].map(|name| latency[name].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p95 && p95 <= p99, "{latency}");
    let buckets = searches["buckets"].as_array().unwrap();
    let counted: u64 = buckets.iter().map(|b| b["count"].as_u64().unwrap()).sum();
    assert_eq!((counted, &buckets[15]["up_to_ms"]), (3, &Value::Null));

    let requests = &stats["requests"];
    assert!(requests["by_class"]["4xx"].as_u64().unwrap() >= 1);
    let search = requests["routes"].as_array().unwrap().iter();
    let search: Vec<&Value> = search
        .filter(|route| route["route"] == "/v1/search")
        .collect();
    assert_eq!(
        (&search[0]["total"], &search[0]["by_class"]),
        (&json!(3), &json!({ "2xx": 3 }))
    );
    assert_eq!(stats["catalogs"]["tools"], 2);
    assert_eq!(stats["version"], env!("CARGO_PKG_VERSION"));
    assert!(stats["uptime_s"].as_f64().unwrap() >= 0.0);
    let queues = stats["queues"].as_array().unwrap();
    let searches = queues.iter().find(|queue| queue["name"] == "searches");
    let searches = searches.unwrap();
    assert_eq!(
        (&searches["running"], &searches["waiting"]),
        (&json!(0), &json!(0))
    );
    assert!(searches["running_limit"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn tokens_are_counted_for_answers_with_definitions() {
    let tools: Vec<Value> = (0..40)
        .map(|n| tool("s", &format!("t{n}"), "Does a thing of some length."))
        .collect();
    let server = Server::with_tools(&tools).await;
    for format in [json!("openai"), json!("names"), Value::Null] {
        let body = json!({ "query": "thing", "k": 2, "format": format });
        let answer = server.post("/v1/search", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let body = json!({ "query": "thing", "k": 5, "format": "anthropic", "max_tokens": 100 });
    let answer = server.post("/v1/search", &body).await;
    let shown = answer.body["budget"]["tokens"].as_u64().unwrap();
    let stats = server
        .wait_for("/v1/stats", |stats| {
            stats["tokens"]["search"]["answers"] == 2
        })
        .await;
    let tokens = &stats["tokens"]["search"];
    let [catalog, answered] =
        ["catalog_tokens", "answered_tokens"].map(|name| tokens[name].as_u64().unwrap());
    assert!(
        answered > shown && catalog > 10 * (answered - shown),
        "{tokens}"
    );
    assert_eq!(stats["tokens"]["agent"]["answers"], 0);
    assert_eq!(stats["tokens"]["left_out"], 0);
}

/// A figure of each period of the last hour, day or minute, added up.
fn summed(history: &Value, name: &str) -> u64 {
    let mut sum = 0;
    for period in history["periods"].as_array().unwrap() {
        sum += period[name].as_u64().unwrap();
    }
    sum
}

#[tokio::test]
async fn figures_are_kept_by_minute_hour_and_day_over_a_restart() {
    let server = Server::with_tools(&[tool("s", "t", "Does a thing.")]).await;
    for query in ["thing", "xylophone quasar"] {
        server.post("/v1/search", &json!({ "query": query })).await;
    }
    for step in ["minute", "hour", "day"] {
        let history = server
            .get(&format!("/v1/stats/history?step={step}"))
            .await
            .body;
        assert_eq!(history["step"], step);
        let periods = history["periods"].as_array().unwrap();
        let last = periods.last().unwrap();
        assert!(last["memory_bytes"].as_u64() > Some(0), "{last}");
        let (searches, no_match) = (summed(&history, "searches"), summed(&history, "no_match"));
        assert_eq!((searches, no_match), (2, 1), "{history}");
        assert!(summed(&history, "requests") >= 3, "{history}");
    }
    server
        .post("/v1/search", &json!({ "query": "thing" }))
        .await;
    let data = server.stop().await;
    let server = Server::start_with(|settings| settings.data = data.path().to_owned()).await;
    let history = server.get("/v1/stats/history").await.body;
    assert_eq!(history["step"], "hour");
    assert_eq!(
        summed(&history, "searches"),
        3,
        "kept at the shutdown: {history}"
    );
    let stats = server.get("/v1/stats").await.body;
    assert_eq!(stats["searches"]["total"], 0, "since the start alone");

    let unknown = server.get("/v1/stats/history?step=week").await;
    assert_eq!(unknown.status, 422, "{unknown:?}");
    assert!(unknown.message().contains("minute"), "{unknown:?}");
}
