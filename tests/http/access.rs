use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{HOST, ORIGIN};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use toolscout::assembly::{self, Settings};
use toolscout::http::Exposure;
use toolscout::keys::Scope;

use super::server::{Answer, Server, key_in, read, tool};
use super::shared_store::Shared;

/// Every route that names a catalog, with what it needs.
const ROUTES: [(&str, &str, &str); 30] = [
    ("POST", "/v1/catalogs/{c}/search", r#"{"query":"secret"}"#),
    ("GET", "/v1/catalogs/{c}/search?q=secret", ""),
    ("GET", "/v1/catalogs/{c}", ""),
    ("GET", "/v1/catalogs/{c}/stats", ""),
    ("GET", "/v1/catalogs/{c}/settings", ""),
    ("GET", "/v1/catalogs/{c}/tools", ""),
    ("GET", "/v1/catalogs/{c}/tools/s/secret", ""),
    ("GET", "/v1/catalogs/{c}/servers", ""),
    ("GET", "/v1/catalogs/{c}/changes", ""),
    ("GET", "/v1/catalogs/{c}/tags", ""),
    (
        "POST",
        "/v1/catalogs/{c}/feedback",
        r#"{"feedback_token":"r","tool":"s/secret"}"#,
    ),
    ("GET", "/v1/catalogs/{c}/evaluations", ""),
    ("GET", "/v1/catalogs/{c}/judgings", ""),
    (
        "POST",
        "/v1/catalogs/{c}/evaluations",
        r#"{"queries":"secret"}"#,
    ),
    ("DELETE", "/v1/catalogs/{c}/evaluations/none", ""),
    (
        "POST",
        "/v1/catalogs/{c}/evaluations/reports",
        r#"{"sets":[]}"#,
    ),
    (
        "POST",
        "/v1/catalogs/{c}/judgings",
        r#"{"queries":"secret"}"#,
    ),
    (
        "POST",
        "/v1/catalogs/{c}/judgings/none/judgements",
        r#"{"judge":"a","judgements":[]}"#,
    ),
    ("DELETE", "/v1/catalogs/{c}/judgings/none", ""),
    ("GET", "/v1/catalogs/{c}/usage/shadow", ""),
    ("PUT", "/v1/catalogs/{c}/settings", "{}"),
    (
        "POST",
        "/v1/catalogs/{c}/tools",
        r#"[{"name":"x","inputSchema":{}}]"#,
    ),
    (
        "PUT",
        "/v1/catalogs/{c}/tools/s/x",
        r#"{"name":"x","inputSchema":{}}"#,
    ),
    ("PUT", "/v1/catalogs/{c}/servers/s/tools", "[]"),
    (
        "POST",
        "/v1/catalogs/{c}/changes",
        r#"{"decisions":[{"id":"s/secret","decision":"block"}]}"#,
    ),
    ("POST", "/v1/catalogs/{c}/calls", r#"{"tool":"s/secret"}"#),
    ("DELETE", "/v1/catalogs/{c}/tools/s/secret", ""),
    ("DELETE", "/v1/catalogs/{c}/tools?server=s", ""),
    ("PUT", "/v1/catalogs/{c}", ""),
    ("DELETE", "/v1/catalogs/{c}", ""),
];
/// The first of them only read.
const READING: usize = 13;

async fn ask(server: &Server, key: &str, route: (&str, &str, &str), catalog: &str) -> Answer {
    let (method, path, body) = route;
    let request = server
        .request(method.parse().unwrap(), &path.replace("{c}", catalog))
        .bearer_auth(key);
    let request = if body.is_empty() {
        request
    } else {
        request
            .header("Content-Type", "application/json")
            .body(body.to_owned())
    };
    read(request).await
}

async fn two_tenants() -> Server {
    let server = Server::start().await;
    for catalog in ["red", "blue"] {
        assert_eq!(
            server
                .put(&format!("/v1/catalogs/{catalog}"), &json!({}))
                .await
                .status,
            201
        );
        let tools = json!([tool("s", "secret", &format!("The secret of {catalog}."))]);
        server
            .post(&format!("/v1/catalogs/{catalog}/tools"), &tools)
            .await;
    }
    server
}

#[tokio::test]
async fn no_route_crosses_the_catalogs_of_a_key() {
    let server = two_tenants().await;
    let key = server.key(Scope::Admin, "red");
    for route in ROUTES {
        for catalog in ["blue", "nowhere"] {
            let answer = ask(&server, &key, route, catalog).await;
            assert_eq!(
                (answer.status.as_u16(), answer.error_code()),
                (403, "catalog_not_allowed"),
                "{route:?}"
            );
            assert!(
                !answer.body.to_string().contains("The secret"),
                "{answer:?}"
            );
        }
    }
    let default = read(
        server
            .request(Method::POST, "/v1/search")
            .bearer_auth(&key)
            .json(&json!({ "query": "x" })),
    );
    assert_eq!(default.await.error_code(), "catalog_not_allowed");
    let listed = read(
        server
            .request(Method::GET, "/v1/catalogs")
            .bearer_auth(&key),
    )
    .await;
    assert_eq!(
        listed.body["catalogs"].as_array().unwrap().len(),
        1,
        "{listed:?}"
    );
    let made = server
        .request(Method::POST, "/v1/catalogs")
        .bearer_auth(&key)
        .json(&json!({ "name": "green" }));
    assert_eq!(read(made).await.error_code(), "catalog_not_allowed");
    let metrics = read(server.request(Method::GET, "/metrics").bearer_auth(&key)).await;
    assert_eq!(metrics.error_code(), "wrong_scope");
    let blue = server.key(Scope::Admin, "blue");
    assert_eq!(
        ask(&server, &blue, ROUTES[6], "blue").await.body["description"],
        "The secret of blue."
    );
}

#[tokio::test]
async fn creating_a_catalog_is_refused_with_the_catalogs_of_the_key() {
    let server = two_tenants().await;
    let limited = server.key(Scope::Admin, "red,blue");
    let put = server
        .request(Method::PUT, "/v1/catalogs/new")
        .bearer_auth(&limited);
    let refused = read(put).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (403, "catalog_not_allowed")
    );
    for expected in ["limited to the catalogs blue,red", "create \"new\""] {
        assert!(refused.message().contains(expected), "{refused:?}");
    }
    let search = server.key(Scope::Search, "red");
    let put = server
        .request(Method::PUT, "/v1/catalogs/new")
        .bearer_auth(&search);
    assert_eq!(read(put).await.error_code(), "wrong_scope");
}

#[tokio::test]
async fn a_task_of_another_tenant_is_as_unknown_as_none() {
    let server = two_tenants().await;
    let (red, blue) = (
        server.key(Scope::Admin, "red"),
        server.key(Scope::Admin, "blue"),
    );
    let load = server
        .request(Method::POST, "/v1/catalogs/blue/tools")
        .bearer_auth(&blue);
    let load = read(
        load.header("Prefer", "respond-async")
            .json(&json!([tool("s", "x", "")])),
    )
    .await;
    assert_eq!(load.status, 202, "{load:?}");
    let path = format!("/v1/tasks/{}", load.body["id"].as_str().unwrap());
    for method in [Method::GET, Method::DELETE] {
        let theirs = read(server.request(method.clone(), &path).bearer_auth(&red)).await;
        let nobodys = read(server.request(method, "/v1/tasks/none").bearer_auth(&red)).await;
        assert_eq!(
            (theirs.status, theirs.error_code()),
            (nobodys.status, nobodys.error_code())
        );
        assert_eq!(theirs.error_code(), "unknown_task");
    }
    assert_eq!(
        read(server.request(Method::GET, &path).bearer_auth(&blue))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn what_one_tenant_has_does_not_change_what_another_finds() {
    let server = two_tenants().await;
    let search = json!({ "query": "secret of", "explain": true });
    let before = server.post("/v1/catalogs/red/search", &search).await;
    let many: Vec<Value> = (0..200)
        .map(|n| tool("t", &format!("secret_{n}"), "The secret of all secrets."))
        .collect();
    server.post("/v1/catalogs/blue/tools", &json!(many)).await;
    let after = server.post("/v1/catalogs/red/search", &search).await;
    assert_eq!(before.body["hits"], after.body["hits"]);
    let nearest = server
        .post(
            "/v1/catalogs/red/search",
            &json!({ "query": "all secret_7" }),
        )
        .await;
    assert!(
        !nearest.body.to_string().contains("secret_7\""),
        "{nearest:?}"
    );
}

#[tokio::test]
async fn a_search_key_reads_and_does_not_write() {
    let server = two_tenants().await;
    let key = server.key(Scope::Search, "red");
    for (number, route) in ROUTES.into_iter().enumerate() {
        let answer = ask(&server, &key, route, "red").await;
        let expected = match number {
            // It gets as far as the token, which is none.
            _ if route.1.ends_with("/feedback") => "invalid_feedback_token",
            number if number < READING => "no error",
            _ => "wrong_scope",
        };
        assert_eq!(answer.error_code(), expected, "{route:?}: {answer:?}");
    }
}

#[tokio::test]
async fn keys_are_asked_for_once_there_is_one_and_refused_by_reason() {
    let server = Server::start().await;
    let path = "/v1/catalogs/default/tools";
    assert_eq!(server.get(path).await.status, 200);
    let data = server.dir.path();
    let good = server.key(Scope::Search, "*");
    let expired = key_in(data, Scope::Search, "*", Some(Duration::ZERO));
    let revoked = server.key(Scope::Search, "*");
    server.revoke(&revoked);

    let missing = server.get(path).await;
    assert_eq!(
        (missing.status.as_u16(), missing.error_code()),
        (401, "missing_key")
    );
    assert_eq!(missing.headers["www-authenticate"], "Bearer");
    for (key, code) in [
        (&expired, "expired_key"),
        (&revoked, "revoked_key"),
        (&format!("{good}x"), "invalid_key"),
    ] {
        let answer = read(server.request(Method::GET, path).bearer_auth(key)).await;
        assert_eq!((answer.status.as_u16(), answer.error_code()), (401, code));
    }
    assert_eq!(
        read(server.request(Method::GET, path).bearer_auth(&good))
            .await
            .status,
        200
    );
    assert_eq!(
        read(server.request(Method::GET, path).header("X-API-Key", &good))
            .await
            .status,
        200
    );
    for open in [
        "/livez",
        "/readyz",
        "/healthz",
        "/version",
        "/openapi.json",
        "/docs",
    ] {
        assert_eq!(server.get(open).await.status, 200, "{open}");
    }
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let server = Server::start_with(|settings| {
        settings.allowed_origins = vec!["https://app.example".into()]
    })
    .await;
    let with = async |name, value: &str| {
        read(server.request(Method::GET, "/livez").header(name, value)).await
    };
    assert_eq!(
        with(HOST, "rebound.example").await.error_code(),
        "host_not_allowed"
    );
    assert_eq!(
        with(ORIGIN, "https://evil.example").await.error_code(),
        "origin_not_allowed"
    );
    let allowed = with(ORIGIN, "https://app.example").await;
    assert_eq!(
        allowed.headers["access-control-allow-origin"],
        "https://app.example"
    );
    let exposed = allowed.headers["access-control-expose-headers"]
        .to_str()
        .unwrap();
    for header in ["x-request-id", "x-conversation-id", "mcp-session-id"] {
        assert!(exposed.contains(header), "{header} is not in {exposed}");
    }
    let preflight = server
        .request(Method::OPTIONS, "/v1/search")
        .header(ORIGIN, "https://app.example");
    let preflight = read(preflight.header("Access-Control-Request-Method", "POST")).await;
    assert!(preflight.status.is_success(), "{preflight:?}");
}

#[tokio::test]
async fn cors_is_off_unless_set() {
    let server = Server::start().await;
    let own = read(
        server
            .request(Method::GET, "/livez")
            .header(ORIGIN, &server.url),
    )
    .await;
    assert_eq!(
        (
            own.status.as_u16(),
            own.headers.get("access-control-allow-origin")
        ),
        (200, None)
    );
}

#[tokio::test]
async fn beyond_loopback_needs_keys_or_insecure_no_keys() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Shared::of(dir.path());
    let settings = |exposure| Settings {
        store: shared.as_ref().map(|shared| Arc::clone(&shared.store)),
        exposure,
        ..Settings::new(dir.path())
    };
    let bind = async |exposure| {
        assembly::bind("0.0.0.0:0".parse().unwrap(), &settings(exposure))
            .await
            .map(|_: TcpListener| ())
    };
    let refused = bind(Exposure::Loopback).await.unwrap_err().to_string();
    assert!(
        refused.contains("toolscout keys create") && refused.contains("--insecure-no-keys"),
        "{refused}"
    );
    assert!(bind(Exposure::AnyoneWithoutKeys).await.is_ok());
    key_in(dir.path(), Scope::Search, "*", None);
    assert!(bind(Exposure::Loopback).await.is_ok());
}
