use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;

use super::server::{Server, tool};

#[tokio::test]
async fn metrics_count_searches_and_tools_and_name_no_catalog() {
    let server = Server::with_tools(&[
        tool("s", "t", "Does a thing."),
        tool("s", "u", "Is another."),
    ])
    .await;
    server
        .post("/v1/search", &json!({ "query": "thing" }))
        .await;
    server
        .post("/v1/search", &json!({ "query": "xylophone quasar" }))
        .await;
    let answer = server.get("/metrics").await;
    let metrics = answer.body.as_str().unwrap();
    for line in [
        r#"toolscout_search_stage_seconds_count{mode="lexical",stage="total"} 2"#,
        r#"toolscout_search_no_match_total{mode="lexical"} 1"#,
        "toolscout_index_tools 2",
        r#"toolscout_http_requests_total{method="POST",route="/v1/search",status="200"} 2"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("default"), "{metrics}");
}

#[tokio::test]
async fn repeated_queries_are_embedded_once() {
    let server = Server::start_dense().await;
    server.add(&[tool("s", "t", "Does a thing.")]).await;
    server.embedded().await;
    for _ in 0..3 {
        server
            .post("/v1/search", &json!({ "query": "does a thing" }))
            .await;
    }
    let answer = server.get("/metrics").await;
    let metrics = answer.body.as_str().unwrap();
    let count = |name: &str| {
        let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let (hits, misses) = (
        count("toolscout_embed_cache_hits_total"),
        count("toolscout_embed_cache_misses_total"),
    );
    assert!(
        misses > 0 && hits == 2 * misses,
        "{hits} hits, {misses} misses"
    );
}

#[tokio::test]
async fn the_description_has_every_route_and_only_those() {
    let server = Server::start().await;
    let description = server.get("/openapi.json").await.body;
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(
        paths
            .values()
            .map(|item| item.as_object().unwrap().len())
            .sum::<usize>(),
        129
    );
    for (path, item) in paths {
        let known: BTreeSet<_> = item
            .as_object()
            .unwrap()
            .keys()
            .map(|method| method.to_uppercase())
            .collect();
        let url = path
            .replace("{catalog}", "default")
            .replace("{server}", "s")
            .replace("{id}", "x");
        for method in ["GET", "POST", "PUT", "DELETE"] {
            let request = server
                .request(method.parse::<Method>().unwrap(), &url)
                .header("Content-Length", "0");
            if known.contains(method)
                && (method, path.as_str()) != ("DELETE", "/v1/catalogs/{catalog}")
            {
                assert_ne!(
                    request.send().await.unwrap().status(),
                    405,
                    "{method} {path} is described"
                );
            } else if !known.contains(method) {
                assert_eq!(
                    request.send().await.unwrap().status(),
                    405,
                    "{method} {path} is not described"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_agents_streams_are_described_as_such_with_their_events() {
    let server = Server::start().await;
    let description = server.get("/openapi.json").await.body;
    for (path, method) in [("/v1/agent/chat", "post"), ("/agent/chat/stream", "get")] {
        let answer = &description["paths"][path][method]["responses"]["200"];
        assert!(
            answer["content"]["text/event-stream"].is_object(),
            "{path}: {answer}"
        );
        assert!(
            answer["headers"]["x-conversation-id"].is_object(),
            "{path}: {answer}"
        );
    }
    let event = &description["components"]["schemas"]["AgentEvent"]["oneOf"];
    assert!(
        event.as_array().is_some_and(|kinds| kinds.len() >= 11),
        "{event}"
    );
}

#[tokio::test]
async fn the_docs_page_loads_its_own_files_under_a_strict_policy() {
    let server = Server::start().await;
    let page = server.get("/docs").await;
    let html = page.body.as_str().unwrap();
    assert!(
        page.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
    assert!(!html.contains("://"), "{html}");
    let policy = page.policy();
    for directive in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(directive), "{directive} is not in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    // Inline scripts and styles would be blocked by the policy.
    assert!(!html.contains("<style"), "{html}");
    assert!(!html.contains("<script>"), "{html}");
    for file in [
        "swagger-ui-bundle.js",
        "swagger-ui.css",
        "swagger-initializer.js",
    ] {
        assert!(html.contains(file), "{file} is not in {html}");
        assert_eq!(server.get(&format!("/docs/{file}")).await.status, 200);
    }
    let initializer = server.get("/docs/swagger-initializer.js").await;
    let initializer = initializer.body.as_str().unwrap();
    assert!(initializer.contains("/openapi.json"), "{initializer}");
    assert_eq!(server.get("/docs/no-such-file").await.status.as_u16(), 404);
}

#[tokio::test]
async fn health_and_version_are_answered() {
    let server = Server::start().await;
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(server.get(path).await.body["status"], "ok", "{path}");
    }
    assert_eq!(
        server.get("/version").await.body["version"],
        env!("CARGO_PKG_VERSION")
    );
}
