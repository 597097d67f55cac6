//! The owner's words over HTTP.

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::keys::Scope;

use super::server::{Answer, Server, read, tool};

const PATH: &str = "/v1/catalogs/default/words";

async fn server() -> Server {
    Server::with_tools(&[
        tool("ci", "deploy", "Deploys a build."),
        tool("ci", "rollback", "Returns to the build before."),
        tool("hr", "request_vacation", "Asks for days of vacation."),
    ])
    .await
}

async fn patch(server: &Server, body: &Value) -> Answer {
    let request = server.request(Method::PATCH, PATH);
    let request = request.header("content-type", "application/merge-patch+json");
    read(request.body(body.to_string())).await
}

async fn search(server: &Server, query: &str) -> Value {
    let body = json!({ "query": query, "explain": true });
    server.post("/v1/search", &body).await.body["hits"].clone()
}

fn document() -> Value {
    json!({
        "aliases": { "ci/deploy": ["ship it"], "no/such": ["thing"] },
        "synonyms": { "leave": { "words": ["pto", "vacation"] } },
        "pins": { "build": { "query": "build", "match": "contains", "tool": "ci/rollback" } },
        "boosts": { "servers": { "ci": 2.0 } },
        "descriptions": { "ci/rollback": "Undoes the last release." },
    })
}

#[tokio::test]
async fn words_are_replaced_changed_and_take_effect_at_once() {
    let server = server().await;
    let empty = server.get(PATH).await;
    assert_eq!(
        (empty.status.as_u16(), &empty.body["words"]["pins"]),
        (200, &json!({}))
    );
    let put = server.put(PATH, &document()).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!(put.body["without_tool"], json!(["aliases.no/such"]));
    assert!(put.body["generation"].as_u64() > empty.body["generation"].as_u64());
    assert_eq!(server.get(PATH).await.body, put.body);

    assert_eq!(search(&server, "Ship it!").await[0]["id"], "ci/deploy");
    let hits = search(&server, "pto").await;
    assert_eq!(hits[0]["id"], "hr/request_vacation");
    assert_eq!(
        hits[0]["explain"]["owner_words"][0],
        json!({ "kind": "synonym", "phrase": "pto", "words": ["vacation"] })
    );
    let hits = search(&server, "a build").await;
    assert_eq!(hits[0]["description"], "Undoes the last release.");
    let shown = server
        .get("/v1/catalogs/default/tools/ci/rollback")
        .await
        .body;
    assert_eq!(
        (&shown["description"], &shown["shownDescription"]),
        (
            &json!("Returns to the build before."),
            &json!("Undoes the last release.")
        )
    );

    let changed = patch(
        &server,
        &json!({ "pins": { "build": null }, "boosts": null }),
    )
    .await;
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!(changed.body["words"]["pins"], json!({}));
    assert_eq!(changed.body["words"]["aliases"], document()["aliases"]);
    let same = patch(&server, &json!({})).await;
    assert_eq!(same.body, changed.body, "nothing is committed");
    assert_eq!(search(&server, "a build").await[0]["id"], "ci/deploy");
}

#[tokio::test]
async fn what_cannot_be_used_is_named_and_changes_nothing() {
    let server = server().await;
    for (body, expected) in [
        (
            json!({ "boosts": { "servers": { "ci": 99 } } }),
            "boosts.servers.ci: it is 99",
        ),
        (
            json!({ "synonyms": { "s": { "words": ["one"] } } }),
            "synonyms.s.words: it has 1 words",
        ),
        (json!({ "names": {} }), "unknown field `names`"),
    ] {
        for answer in [server.put(PATH, &body).await, patch(&server, &body).await] {
            assert_eq!(
                (answer.status.as_u16(), answer.error_code()),
                (422, "invalid_words")
            );
            assert!(answer.message().contains(expected), "{answer:?}");
        }
    }
    assert_eq!(
        server.get(PATH).await.body["words"]["boosts"]["servers"],
        json!({})
    );
    let unknown = server.get("/v1/catalogs/none/words").await;
    assert_eq!(unknown.error_code(), "unknown_catalog");
}

#[tokio::test]
async fn a_key_that_searches_reads_words_and_changes_none() {
    let server = server().await;
    let admin = server.key(Scope::Admin, "*");
    let key = server.key(Scope::Search, "*");
    let ask = async |method: Method, secret: &str| {
        let request = server.request(method, PATH).bearer_auth(secret);
        read(request.json(&document())).await.status.as_u16()
    };
    assert_eq!(ask(Method::GET, &key).await, 200);
    assert_eq!(ask(Method::PUT, &key).await, 403);
    assert_eq!(ask(Method::PATCH, &key).await, 403);
    assert_eq!(ask(Method::PATCH, &admin).await, 200);
}

#[tokio::test]
async fn a_sync_of_a_server_leaves_words_as_they_are() {
    let server = server().await;
    server.put(PATH, &document()).await;
    let sync = json!([tool("ci", "rollback", "Goes back to the build before.")]);
    let path = "/v1/catalogs/default/servers/ci/tools";
    assert_eq!(server.put(path, &sync).await.status, 200);
    let words = server.get(PATH).await.body;
    assert_eq!(
        words["without_tool"],
        json!(["aliases.ci/deploy", "aliases.no/such"])
    );
    let hits = search(&server, "undo the last release").await;
    assert_eq!(hits[0]["description"], "Undoes the last release.");
}
