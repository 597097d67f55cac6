use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::server::{Server, read, tool};

fn numbered(count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| tool("s", &format!("t{n:05}"), &format!("Does thing number {n}.")))
        .collect()
}

#[tokio::test]
async fn every_item_of_a_bulk_upsert_has_a_result() {
    let server =
        Server::with_tools(&[tool("s", "kept", "Stays."), tool("s", "other", "Before.")]).await;
    let body = json!([
        tool("s", "kept", "Stays."),
        tool("s", "other", "After."),
        { "description": "nameless" },
        tool("s", "new", "New."),
    ]);
    let answer = server.post("/v1/catalogs/default/tools", &body).await;
    let statuses: Vec<_> = answer.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["status"])
        .collect();
    assert_eq!(
        statuses,
        ["unchanged", "changed", "failed", "added"],
        "{answer:?}"
    );
    assert!(
        answer.body["items"][2]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("item 3"),
        "{answer:?}"
    );
    assert_eq!(answer.body["result"]["failed"], 1);
}

#[tokio::test]
async fn a_document_that_is_no_list_of_tools_removes_none() {
    let server = Server::with_tools(&[tool("s", "kept", "Stays.")]).await;
    for body in [
        json!({ "mcpServers": { "notes": { "command": "notes-mcp" } } }),
        json!({ "mcpServers": {} }),
        json!({ "openapi": "3.0.0", "paths": {} }),
    ] {
        let put = server
            .put("/v1/catalogs/default/servers/s/tools", &body)
            .await;
        let posted = server.post("/v1/catalogs/default/tools", &body).await;
        for answer in [put, posted] {
            assert_eq!(
                (answer.status.as_u16(), answer.error_code()),
                (422, "no_valid_tools"),
                "{answer:?}"
            );
        }
    }
    let path = "/v1/catalogs/default/tools";
    assert_eq!(server.get(path).await.body["total"], 1);
    let emptied = server
        .put("/v1/catalogs/default/servers/s/tools", &json!([]))
        .await;
    assert_eq!(emptied.body["removed"], json!(["s/kept"]), "{emptied:?}");
}

#[tokio::test]
async fn a_body_without_a_valid_item_is_refused_unless_invalid_ones_are_skipped() {
    let server = Server::with_tools(&[tool("s", "kept", "Stays.")]).await;
    let path = "/v1/catalogs/default/tools";
    let generation = server.get(path).await.body["generation"].clone();
    let body = json!([{ "description": "nameless" }, { "name": "", "inputSchema": {} }]);

    let refused = server.post(path, &body).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (422, "no_valid_tools"),
        "{refused:?}"
    );
    let items = refused.body["error"]["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[1]["item"]), (2, &json!(2)));
    assert!(items[0]["error"]["message"].is_string(), "{refused:?}");

    let skipped = server
        .post(&format!("{path}?skip_invalid=true"), &body)
        .await;
    assert_eq!(
        (skipped.status.as_u16(), &skipped.body["result"]["failed"]),
        (200, &json!(2)),
        "{skipped:?}"
    );
    let after = server.get(path).await;
    assert_eq!(
        (&after.body["generation"], &after.body["total"]),
        (&generation, &json!(1))
    );
}

#[tokio::test]
async fn every_accepted_format_is_taken() {
    let server = Server::start().await;
    let bodies = [
        json!([{ "type": "function", "function": { "name": "a", "parameters": {} } }]),
        json!([{ "type": "function", "name": "b", "parameters": {} }]),
        json!([{ "name": "c", "input_schema": { "type": "object" } }]),
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [{ "name": "d", "inputSchema": {} }] } }),
    ];
    for body in bodies {
        let answer = server
            .post("/v1/catalogs/default/tools?server=x", &body)
            .await;
        assert_eq!(answer.body["result"]["added"], 1, "{answer:?}");
    }
    let yaml = "openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths:\n  /p:\n    get: {operationId: e}\n";
    let request = server.request(Method::POST, "/v1/catalogs/default/tools?server=x");
    let answer = read(request.header(CONTENT_TYPE, "application/yaml").body(yaml)).await;
    assert_eq!(answer.body["items"][0]["id"], "x/e", "{answer:?}");
}

#[tokio::test]
async fn what_of_a_request_cannot_be_built_is_said_when_the_document_is_added() {
    let body = |kind: &str| json!({ "content": { kind: { "schema": { "type": "object", "properties": { "a": {} } } } } });
    let operation =
        |id: &str, kind: &str| json!({ "post": { "operationId": id, "requestBody": body(kind) } });
    let mut document = json!({ "openapi": "3.0.3", "info": { "title": "Shop" }, "paths": {
        "/xml": operation("asXml", "application/xml"),
        "/mixed": operation("asMixed", "multipart/mixed"),
        "/json": operation("asJson", "application/json"),
    } });
    document["paths"]["/json"]["post"]["parameters"] = json!([{ "name": "Host", "in": "header" }]);
    let server = Server::start().await;
    let path = "/v1/catalogs/default/tools";
    let added = server.post(path, &document).await.body;
    let put = server.request(Method::PUT, "/v1/catalogs/default/servers/shop/tools");
    let synced = read(put.json(&document)).await.body;
    for answer in [added, synced] {
        let warnings = answer["warnings"].as_array().unwrap();
        let mut tools: Vec<_> = warnings
            .iter()
            .map(|one| one["tool"].as_str().unwrap())
            .collect();
        tools.sort_unstable();
        assert_eq!(
            tools,
            ["shop/asJson", "shop/asMixed", "shop/asXml"],
            "{answer}"
        );
        assert!(warnings[0]["reason"].is_string(), "{answer}");
    }
    let plain = json!([{ "name": "a", "inputSchema": { "type": "object" } }]);
    assert!(
        server
            .post(path, &plain)
            .await
            .body
            .get("warnings")
            .is_none()
    );
}

#[tokio::test]
async fn a_list_may_be_of_a_server_and_of_a_part_of_the_ids() {
    let names = [
        ("git", "createIssue"),
        ("git", "close"),
        ("hub", "issue_list"),
    ];
    let tools = names.map(|(server, name)| tool(server, name, ""));
    let server = Server::with_tools(&tools).await;
    for (query, expected) in [
        ("name=ISSUE", vec!["git/createIssue", "hub/issue_list"]),
        ("name=issue&server=git", vec!["git/createIssue"]),
        ("name=hub%2Fi", vec!["hub/issue_list"]),
        ("name=+&server=git", vec!["git/close", "git/createIssue"]),
        ("name=none", vec![]),
    ] {
        let path = format!("/v1/catalogs/default/tools?{query}");
        let page = server.get(&path).await.body;
        let listed = page["tools"].as_array().unwrap().iter();
        let ids: Vec<&str> = listed.filter_map(|tool| tool["id"].as_str()).collect();
        assert_eq!(ids, expected, "{query}");
    }
    let first = server
        .get("/v1/catalogs/default/tools?name=issue&limit=1")
        .await;
    let cursor = first.body["next_cursor"].as_str().unwrap();
    let rest = server
        .get(&format!(
            "/v1/catalogs/default/tools?name=issue&cursor={cursor}"
        ))
        .await;
    assert_eq!(rest.body["tools"][0]["id"], "hub/issue_list");
    assert_eq!(rest.body.get("next_cursor"), None);
    let long = format!("/v1/catalogs/default/tools?name={}", "x".repeat(257));
    assert_eq!(server.get(&long).await.error_code(), "invalid_value");
}

#[tokio::test]
async fn pages_list_every_tool_once_while_tools_are_deleted() {
    let server = Server::with_tools(&numbered(25)).await;
    let mut seen = Vec::new();
    let mut path = "/v1/catalogs/default/tools?limit=10".to_owned();
    loop {
        let page = server.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        let tools = page.body["tools"].as_array().unwrap();
        seen.extend(
            tools
                .iter()
                .map(|tool| tool["id"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page.body["next_cursor"].as_str() else {
            break;
        };
        // The tool that the cursor points at goes.
        assert_eq!(
            server
                .delete(&format!(
                    "/v1/catalogs/default/tools/{}",
                    seen[seen.len() - 1]
                ))
                .await
                .status,
            204
        );
        path = format!("/v1/catalogs/default/tools?limit=10&cursor={cursor}");
    }
    let expected: Vec<_> = (0..25).map(|n| format!("s/t{n:05}")).collect();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_list_can_be_limited_to_a_server() {
    let server =
        Server::with_tools(&[tool("a", "x", ""), tool("b", "x", ""), tool("a", "y", "")]).await;
    let page = server
        .get("/v1/catalogs/default/tools?server=a&limit=2")
        .await;
    let ids: Vec<_> = page.body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["id"])
        .collect();
    assert_eq!(ids, ["a/x", "a/y"]);
    assert_eq!(page.body.get("next_cursor"), None);
}

#[tokio::test]
async fn ids_may_hold_any_character() {
    let server = Server::start().await;
    let names = [
        "issues/create",
        "with space",
        "per%cent",
        "ünï😀",
        "a?b#c",
        "double//slash",
        "+plus&and=",
        "delete",
    ];
    for name in names {
        let path = format!(
            "/v1/catalogs/default/tools/{}",
            percent(&format!("srv/{name}"))
        );
        let put = server
            .put(&path, &json!({ "name": name, "inputSchema": {} }))
            .await;
        assert_eq!(
            (put.status.as_u16(), &put.body["id"]),
            (201, &json!(format!("srv/{name}"))),
            "{put:?}"
        );
        assert_eq!(
            server
                .put(&path, &json!({ "name": name, "inputSchema": {} }))
                .await
                .body["status"],
            "unchanged"
        );
        assert_eq!(server.get(&path).await.body["name"], name);
        assert_eq!(server.delete(&path).await.status, 204);
        assert_eq!(server.get(&path).await.error_code(), "unknown_tool");
        assert_eq!(server.delete(&path).await.status, 404);
    }
}

#[tokio::test]
async fn a_put_takes_one_tool_of_that_name() {
    let server = Server::start().await;
    let path = "/v1/catalogs/default/tools/srv/name";
    assert_eq!(
        server
            .put(path, &json!({ "name": "other", "inputSchema": {} }))
            .await
            .error_code(),
        "id_mismatch"
    );
    assert_eq!(
        server.put(path, &json!([])).await.error_code(),
        "invalid_tool"
    );
    let nested = json!({ "name": "name", "inputSchema": deep(150) });
    assert!([400, 422].contains(&server.put(path, &nested).await.status.as_u16()));
}

#[tokio::test]
async fn tools_are_deleted_by_filter_and_an_empty_filter_is_refused() {
    let server =
        Server::with_tools(&[tool("a", "x", ""), tool("b", "x", ""), tool("a", "y", "")]).await;
    assert_eq!(
        server
            .delete("/v1/catalogs/default/tools")
            .await
            .error_code(),
        "empty_filter"
    );
    let answer = server.delete("/v1/catalogs/default/tools?server=a").await;
    assert_eq!(answer.body["removed"], json!(["a/x", "a/y"]));
    assert_eq!(
        server.get("/v1/catalogs/default/tools").await.body["total"],
        1
    );
}

#[tokio::test]
async fn a_sync_makes_a_server_exact_and_answers_with_the_changes() {
    let server = Server::with_tools(&[
        tool("a", "x", "1"),
        tool("a", "y", "1"),
        tool("b", "x", "1"),
    ])
    .await;
    let wanted = json!([tool("a", "y", "2"), tool("a", "z", "1")]);
    let answer = server
        .put("/v1/catalogs/default/servers/a/tools", &wanted)
        .await;
    let expected = [
        ("added", json!(["a/z"])),
        ("changed", json!(["a/y"])),
        ("removed", json!(["a/x"])),
    ];
    for (field, ids) in expected {
        assert_eq!(answer.body[field], ids, "{answer:?}");
    }
    let bad = json!([tool("a", "y", "3"), { "nome": "z" }]);
    assert_eq!(
        server
            .put("/v1/catalogs/default/servers/a/tools", &bad)
            .await
            .status,
        422
    );
    assert_eq!(
        server.get("/v1/catalogs/default/tools/a/y").await.body["description"],
        "2"
    );
}

#[tokio::test]
async fn writers_at_the_same_time_lose_nothing() {
    let server = std::sync::Arc::new(Server::start().await);
    let writers = (0..8).map(|writer| {
        let server = std::sync::Arc::clone(&server);
        tokio::spawn(async move {
            for n in 0..5 {
                let path = format!("/v1/catalogs/default/tools/w{writer}/t{n}");
                assert_eq!(
                    server
                        .put(
                            &path,
                            &json!({ "name": format!("t{n}"), "inputSchema": {} })
                        )
                        .await
                        .status,
                    201
                );
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(
        server.get("/v1/catalogs/default/tools").await.body["total"],
        40
    );
}

fn percent(id: &str) -> String {
    id.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn deep(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({ "properties": inner }))
}
