use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server::{Answer, Server, read, tool};

fn assert_shape(answer: &Answer) {
    let error = answer.body["error"]
        .as_object()
        .unwrap_or_else(|| panic!("no error object: {answer:?}"));
    let fields: Vec<_> = error.keys().map(String::as_str).collect();
    assert_eq!(
        fields,
        ["code", "message", "type", "request_id"],
        "{answer:?}"
    );
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(
        answer.headers["x-request-id"],
        error["request_id"].as_str().unwrap()
    );
    assert!(
        ["invalid_request", "auth", "internal", "system"]
            .contains(&error["type"].as_str().unwrap())
    );
}

#[tokio::test]
async fn every_bad_search_has_the_one_shape_and_names_what_is_wrong() {
    let server = Server::with_tools(&[tool("s", "t", "Does a thing.")]).await;
    let long = format!(r#"{{"queries":[{}]}}"#, vec![r#""x""#; 17].join(","));
    for (body, status, code, expected) in [
        (
            "{\"query\": \"x\",\n oops}",
            400,
            "malformed_json",
            "line 2 column 2",
        ),
        (" ", 400, "malformed_json", "line 1 column 1"),
        ("", 411, "length_required", "needs a body"),
        ("\u{0}\u{1}", 400, "malformed_json", "line 1"),
        (
            r#"{"query":"x","limit":3}"#,
            422,
            "unknown_field",
            "unknown field `limit`",
        ),
        (
            r#"{"query":"x","filter":{"server":"s"}}"#,
            422,
            "unknown_field",
            "unknown field `filter.server`",
        ),
        (
            r#"{"query":"x","filter":{"servers":"s"}}"#,
            422,
            "invalid_value",
            "`filter.servers`",
        ),
        (r#"{"query":7}"#, 422, "invalid_value", "`query`"),
        (
            r#"{"query":"x","mode":"magic"}"#,
            422,
            "invalid_value",
            "magic",
        ),
        (r#"{"query":"x","k":0}"#, 422, "invalid_query", "k is 0"),
        (r#"{"query":"x","k":51}"#, 422, "invalid_query", "k is 51"),
        (r#"{"query":"x","k":-1}"#, 422, "invalid_value", "`k`"),
        (
            r#"{"query":"  "}"#,
            422,
            "invalid_query",
            "the query is empty",
        ),
        ("{}", 422, "invalid_query", "the query is empty"),
        (&long, 422, "invalid_query", "17 query texts"),
        (
            r#"{"query":"x","max_tokens":500}"#,
            422,
            "missing_format",
            "format",
        ),
        (
            r#"{"query":"x","format":"mcp","max_tokens":1}"#,
            422,
            "invalid_value",
            "max_tokens is 1",
        ),
        ("[]", 422, "invalid_value", "expected an object"),
        (
            r#"{"query":"x","filter":[]}"#,
            422,
            "invalid_value",
            "`filter`",
        ),
    ] {
        let request = server
            .request(Method::POST, "/v1/search")
            .header(CONTENT_TYPE, "application/json");
        let answer = read(request.body(body.to_owned())).await;
        assert_shape(&answer);
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (status, code),
            "{body}: {answer:?}"
        );
        assert!(
            answer.message().contains(expected),
            "{body}: {}",
            answer.message()
        );
    }
}

#[tokio::test]
async fn what_the_framework_refuses_has_the_one_shape_too() {
    let server = Server::start_with(|settings| settings.limits.bulk_body_bytes = 4 << 20).await;
    let post = |path: &str| {
        server
            .request(Method::POST, path)
            .header(CONTENT_TYPE, "application/json")
    };
    let plain = |path: &str| {
        server
            .request(Method::POST, path)
            .header(CONTENT_TYPE, "text/plain")
            .body("{}")
    };
    let large = format!("\"{}\"", "x".repeat(5 << 20));
    for (request, status, code) in [
        (server.request(Method::GET, "/nowhere"), 404, "not_found"),
        (
            server.request(Method::GET, "/v1/catalogs/default/tools/"),
            404,
            "not_found",
        ),
        (
            server.request(Method::GET, "/v1/search"),
            405,
            "method_not_allowed",
        ),
        (
            server.request(Method::PATCH, "/livez"),
            405,
            "method_not_allowed",
        ),
        (
            server.request(Method::POST, "/v1/search").body("{}"),
            415,
            "unsupported_media_type",
        ),
        (plain("/v1/search"), 415, "unsupported_media_type"),
        (
            plain("/v1/catalogs/default/tools"),
            415,
            "unsupported_media_type",
        ),
        (
            post("/v1/search").body(large.clone()),
            413,
            "body_too_large",
        ),
        (
            post("/v1/catalogs/default/tools").body(large),
            413,
            "body_too_large",
        ),
        (
            post("/v1/catalogs/default/tools").body("{"),
            400,
            "unreadable_tools",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/nope"),
            404,
            "unknown_catalog",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/..%2Fetc"),
            404,
            "unknown_catalog",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/%FF"),
            400,
            "invalid_path",
        ),
        (
            server.request(Method::PUT, "/v1/catalogs/a%20b"),
            422,
            "invalid_catalog_name",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/default/tools?cursor=!"),
            400,
            "invalid_cursor",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/default/tools?limit=0"),
            422,
            "invalid_value",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/default/tools?limit=x"),
            422,
            "invalid_value",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/default/tools?page=2"),
            422,
            "unknown_field",
        ),
        (
            server.request(Method::GET, "/v1/catalogs/default/search"),
            422,
            "invalid_query",
        ),
        (
            server.request(Method::GET, "/v1/tasks/none"),
            404,
            "unknown_task",
        ),
    ] {
        let answer = read(request).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (status, code),
            "{answer:?}"
        );
        assert_shape(&answer);
    }
    let allowed = server.get("/v1/search").await;
    assert_eq!(allowed.headers["allow"], "POST");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_still_sends_gets_the_answer() {
    let server = Server::start().await;
    let large = vec![b'x'; 6 << 20];
    for (path, status) in [("/v1/search", 413), ("/nowhere", 404)] {
        for _ in 0..20 {
            let request = server
                .request(Method::POST, path)
                .header(CONTENT_TYPE, "application/json");
            let answer = read(request.body(large.clone())).await;
            assert_eq!(answer.status, status, "{path}: {answer:?}");
            assert_shape(&answer);
        }
    }
}

#[tokio::test]
async fn a_body_without_a_length_is_asked_for() {
    let server = Server::start().await;
    let answer = raw(
        &server,
        "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n",
    )
    .await;
    assert!(
        answer.starts_with("HTTP/1.1 411") && answer.contains("length_required"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_half_closed_socket_is_answered_or_closed() {
    let server = Server::start().await;
    let answer = raw(
        &server,
        "POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{",
    )
    .await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    assert_eq!(server.get("/livez").await.status, 200);
}

#[tokio::test]
async fn an_unusable_request_id_is_replaced() {
    let server = Server::start().await;
    let long = "x".repeat(500);
    let answer = read(
        server
            .request(Method::GET, "/livez")
            .header("X-Request-Id", &long),
    )
    .await;
    assert!(answer.headers["x-request-id"].len() < 100);
}

#[tokio::test]
async fn errors_of_one_item_do_not_tell_of_the_machine() {
    let server = Server::start().await;
    let data = server.dir.path().to_str().unwrap().to_owned();
    for path in ["/v1/catalogs/nope", "/v1/catalogs/nope/search?q=x"] {
        assert!(!server.get(path).await.body.to_string().contains(&data));
    }
    let deleted = server.delete("/v1/catalogs/nope").await;
    assert!(
        !deleted.body.to_string().contains(&data) && deleted.status == 404,
        "{deleted:?}"
    );
    assert_eq!(
        server
            .post("/v1/catalogs", &json!({ "name": "../x" }))
            .await
            .status,
        422
    );
}

/// Sends bytes, closes the sending half, and reads what comes.
async fn raw(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.url.trim_start_matches("http://"))
        .await
        .unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}
