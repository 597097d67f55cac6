use reqwest::{Method, header};
use serde_json::{Value, json};
use toolscout::http::Exposure;
use toolscout::keys::Scope;

use super::server::{Answer, Server, read, with_keys};

/// Sends a request with this key.
async fn with_key(server: &Server, key: &str, method: Method, path: &str, body: Value) -> Answer {
    let request = server.request(method, path).bearer_auth(key);
    read(match body {
        Value::Null => request,
        body => request.json(&body),
    })
    .await
}

fn first() -> Value {
    json!({ "scopes": ["admin"], "catalogs": ["*"] })
}

/// A server with an admin key that was made over HTTP.
async fn with_first_key() -> (Server, String, String) {
    let server = Server::start().await;
    let made = server.post("/v1/keys", &first()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
    let (key, id) = (text("key"), text("id"));
    (server, key, id)
}

#[tokio::test]
async fn the_first_key_may_lock_nobody_out() {
    let server = Server::start().await;
    for (body, status, code) in [
        (
            json!({ "scopes": ["search"], "catalogs": ["*"] }),
            422,
            "first_key",
        ),
        (
            json!({ "scopes": ["admin"], "catalogs": ["default"] }),
            422,
            "first_key",
        ),
        (
            json!({ "scopes": ["admin"], "catalogs": ["*"], "expires_in_s": 60 }),
            422,
            "first_key",
        ),
        (
            json!({ "scopes": [], "catalogs": ["*"] }),
            422,
            "invalid_value",
        ),
        (
            json!({ "scopes": ["owner"], "catalogs": ["*"] }),
            422,
            "invalid_value",
        ),
        (
            json!({ "scopes": ["admin"], "catalogs": [] }),
            422,
            "invalid_value",
        ),
        (
            json!({ "scopes": ["admin"], "catalogs": ["a", "*"] }),
            422,
            "invalid_value",
        ),
        (
            json!({ "scopes": ["admin"], "catalogs": ["a,b"] }),
            422,
            "invalid_value",
        ),
        (
            json!({ "scopes": ["admin"], "catalogs": ["*"], "expires_in_s": 0 }),
            422,
            "invalid_value",
        ),
        (json!({ "scopes": ["admin"] }), 422, "missing_field"),
    ] {
        let answer = server.post("/v1/keys", &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (status, code),
            "{body}: {answer:?}"
        );
        assert!(!answer.message().is_empty());
    }
    let none = server.get("/v1/keys").await;
    assert_eq!(
        none.body,
        json!({ "in_use": false, "keys": [], "total": 0 })
    );

    let made = server.post("/v1/keys", &first()).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.headers[header::CACHE_CONTROL], "no-store");
    assert_eq!(server.get("/v1/catalogs").await.error_code(), "missing_key");
    let key = made.body["key"].as_str().unwrap();
    let location = made.headers[header::LOCATION].to_str().unwrap();
    let shown = with_key(&server, key, Method::GET, location, Value::Null).await;
    assert_eq!(
        (
            &shown.body["id"],
            &shown.body["is_own"],
            &shown.body["state"]
        ),
        (&made.body["id"], &json!(true), &json!("valid"))
    );
}

#[tokio::test]
async fn a_server_that_is_open_to_a_network_gives_nobody_its_first_key() {
    let open = Server::start_with(|settings| settings.exposure = Exposure::AnyoneWithoutKeys).await;
    let answer = open.post("/v1/keys", &first()).await;
    assert_eq!(
        (answer.status.as_u16(), answer.error_code()),
        (403, "first_key")
    );
    assert!(answer.message().contains("toolscout keys create"));
}

#[tokio::test]
async fn keys_are_created_listed_and_revoked() {
    let (server, admin, _) = with_first_key().await;
    let body = json!({ "scopes": ["search", "call"], "catalogs": ["default", "later"], "expires_in_s": 3600 });
    let made = with_key(&server, &admin, Method::POST, "/v1/keys", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["unknown_catalogs"], json!(["later"]));
    let (key, id) = (made.body["key"].as_str().unwrap(), &made.body["id"]);
    let expires = made.body["expires_at"].as_u64().unwrap();
    assert_eq!(expires - made.body["created_at"].as_u64().unwrap(), 3600);
    let search = "/v1/catalogs/default/search?q=x";
    let found = with_key(&server, key, Method::GET, search, Value::Null).await;
    assert_eq!(found.status, 200);

    let listed = with_key(
        &server,
        &admin,
        Method::GET,
        "/v1/keys?limit=1",
        Value::Null,
    )
    .await;
    assert_eq!(
        (listed.body["total"].as_u64(), &listed.body["in_use"]),
        (Some(2), &json!(true))
    );
    let cursor = listed.body["next_cursor"].as_str().unwrap();
    let rest = format!("/v1/keys?limit=1&cursor={cursor}");
    let rest = with_key(&server, &admin, Method::GET, &rest, Value::Null).await;
    assert!(rest.body.get("next_cursor").is_none(), "{rest:?}");
    let ids = [&listed, &rest].map(|page| page.body["keys"][0]["id"].clone());
    assert!(ids.contains(id) && ids[0] != ids[1], "{ids:?}");
    for page in [&listed, &rest] {
        let text = page.body.to_string();
        // The secret itself may have underscores.
        let secret = key.splitn(3, '_').last().unwrap();
        assert!(!text.contains(secret) && !text.contains("hash"), "{text}");
    }

    let path = format!("/v1/keys/{}", id.as_str().unwrap());
    let revoked = with_key(&server, &admin, Method::DELETE, &path, Value::Null).await;
    assert_eq!(
        (revoked.status.as_u16(), &revoked.body["state"]),
        (200, &json!("revoked"))
    );
    let refused = with_key(&server, key, Method::GET, search, Value::Null).await;
    assert_eq!(refused.error_code(), "revoked_key");
    let unknown = with_key(
        &server,
        &admin,
        Method::DELETE,
        "/v1/keys/none",
        Value::Null,
    )
    .await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.error_code()),
        (404, "unknown_key")
    );
}

#[tokio::test]
async fn the_last_admin_key_is_revoked_only_by_force() {
    let (server, admin, id) = with_first_key().await;
    let path = format!("/v1/keys/{id}");
    let refused = with_key(&server, &admin, Method::DELETE, &path, Value::Null).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (409, "last_admin_key")
    );
    let second = server.key(Scope::Admin, "*");
    let revoked = with_key(&server, &second, Method::DELETE, &path, Value::Null).await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
    let own = format!("/v1/keys/{}?force=true", second.split('_').nth(1).unwrap());
    let revoked = with_key(&server, &second, Method::DELETE, &own, Value::Null).await;
    assert_eq!(revoked.body["is_own"], true, "{revoked:?}");
    let valid = with_keys(server.dir.path(), |keys| {
        keys.count_valid(std::time::SystemTime::now()).unwrap()
    });
    assert_eq!(valid, 0);
    assert_eq!(server.get("/v1/keys").await.error_code(), "missing_key");
}

#[tokio::test]
async fn only_an_admin_key_for_all_catalogs_manages_keys_and_looks_at_log_and_figures() {
    let (server, admin, id) = with_first_key().await;
    let limited = [
        server.key(Scope::Search, "*"),
        server.key(Scope::Call, "*"),
        server.key(Scope::Approve, "*"),
        server.key(Scope::Admin, "default"),
    ];
    for (method, path, body) in [
        (Method::GET, "/v1/keys".to_owned(), Value::Null),
        (Method::POST, "/v1/keys".to_owned(), first()),
        (Method::GET, format!("/v1/keys/{id}"), Value::Null),
        (
            Method::DELETE,
            format!("/v1/keys/{id}?force=true"),
            Value::Null,
        ),
        (Method::GET, "/v1/audit".to_owned(), Value::Null),
        (Method::GET, "/v1/audit/check".to_owned(), Value::Null),
        (Method::POST, "/v1/audit/check".to_owned(), Value::Null),
        (Method::GET, "/v1/stats".to_owned(), Value::Null),
        (Method::GET, "/v1/stats/history".to_owned(), Value::Null),
    ] {
        for key in &limited {
            let answer = with_key(&server, key, method.clone(), &path, body.clone()).await;
            assert_eq!(
                (answer.status.as_u16(), answer.error_code()),
                (403, "wrong_scope"),
                "{method} {path}"
            );
        }
        let missing = read(server.request(method.clone(), &path).json(&body)).await;
        assert_eq!(missing.status, 401, "{method} {path}");
    }
    let still = with_key(&server, &admin, Method::GET, "/v1/keys", Value::Null).await;
    assert_eq!(still.body["total"], 5);
}

#[tokio::test]
async fn a_key_is_told_what_it_allows() {
    let server = Server::start().await;
    let everything = json!(["search", "call", "approve", "llm", "admin"]);
    let own = server.get("/v1/key").await;
    let open = json!({ "id": null, "scopes": everything, "catalogs": ["*"], "profiles": [], "operates": true });
    assert_eq!(own.body, open);

    let admin = server.post("/v1/keys", &first()).await.body;
    let admin = admin["key"].as_str().unwrap();
    assert_eq!(server.get("/v1/key").await.error_code(), "missing_key");
    for (body, scopes) in [
        (first(), everything),
        (
            json!({ "scopes": ["call"], "catalogs": ["default"] }),
            json!(["search", "call"]),
        ),
        // The model is not part of a catalog.
        (
            json!({ "scopes": ["admin"], "catalogs": ["default"] }),
            json!(["search", "call", "approve", "admin"]),
        ),
        (
            json!({ "scopes": ["search"], "profiles": ["support"] }),
            json!(["search"]),
        ),
    ] {
        let made = with_key(&server, admin, Method::POST, "/v1/keys", body.clone())
            .await
            .body;
        let key = made["key"].as_str().unwrap();
        let own = with_key(&server, key, Method::GET, "/v1/key", Value::Null)
            .await
            .body;
        for name in ["id", "catalogs", "profiles"] {
            assert_eq!(own[name], made[name], "{body}");
        }
        let operates = body == first();
        assert_eq!(
            (&own["scopes"], &own["operates"]),
            (&scopes, &json!(operates)),
            "{body}"
        );
    }
}
