use serde_json::json;

use super::server::{Server, tool};

#[tokio::test]
async fn a_catalog_is_created_listed_and_deleted() {
    let server = Server::start().await;
    let made = server
        .post(
            "/v1/catalogs",
            &json!({ "name": "team-a", "settings": { "k": 3 } }),
        )
        .await;
    assert_eq!(
        (made.status.as_u16(), &made.headers["location"]),
        (201, &"/v1/catalogs/team-a".parse().unwrap())
    );
    let again = server
        .post("/v1/catalogs", &json!({ "name": "team-a" }))
        .await;
    assert_eq!(
        (again.status.as_u16(), again.error_code()),
        (409, "catalog_exists")
    );
    assert_eq!(
        server.put("/v1/catalogs/team-a", &json!({})).await.status,
        200
    );
    let listed = server.get("/v1/catalogs").await;
    let names: Vec<_> = listed.body["catalogs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|catalog| &catalog["name"])
        .collect();
    assert_eq!(names, ["default", "team-a"]);
    assert_eq!(server.delete("/v1/catalogs/team-a").await.status, 204);
    assert_eq!(
        server.get("/v1/catalogs/team-a").await.error_code(),
        "unknown_catalog"
    );
    assert_eq!(server.delete("/v1/catalogs/team-a").await.status, 404);
}

#[tokio::test]
async fn a_deleted_catalog_comes_back_empty() {
    let server = Server::start().await;
    for _ in 0..2 {
        assert_eq!(server.put("/v1/catalogs/c", &json!({})).await.status, 201);
        assert_eq!(server.get("/v1/catalogs/c").await.body["tools"], 0);
        let answer = server
            .post("/v1/catalogs/c/tools", &json!([tool("s", "t", "")]))
            .await;
        assert_eq!(answer.body["result"]["added"], 1, "{answer:?}");
        assert_eq!(server.delete("/v1/catalogs/c").await.status, 204);
    }
}

#[tokio::test]
async fn settings_and_tools_outlive_the_server() {
    let server = Server::with_tools(&[tool("s", "t", "")]).await;
    let settings = json!({
        "description": "ours", "k": 7, "mode": "lexical", "fusion": "rrf", "dense_weight": null, "min_score": null, "min_confidence": 0.25,
        "companions": false, "fold_duplicates": true,
        "graph_min_vectors": 9000
    });
    assert_eq!(
        server
            .put("/v1/catalogs/default/settings", &settings)
            .await
            .body,
        settings
    );
    let data = server.stop().await;
    let again = Server::start_with(|settings| settings.data = data.path().to_owned()).await;
    assert_eq!(
        again.get("/v1/catalogs/default/settings").await.body,
        settings
    );
    assert_eq!(again.get("/v1/catalogs/default").await.body["tools"], 1);
}

#[tokio::test]
async fn settings_out_of_range_change_nothing() {
    let server = Server::start().await;
    let bad = server
        .put("/v1/catalogs/default/settings", &json!({ "k": 99 }))
        .await;
    assert_eq!(
        (bad.status.as_u16(), bad.error_code()),
        (422, "invalid_settings")
    );
    assert_eq!(
        server.get("/v1/catalogs/default/settings").await.body["k"],
        json!(null)
    );
    let unmade = server
        .post(
            "/v1/catalogs",
            &json!({ "name": "c", "settings": { "k": 99 } }),
        )
        .await;
    assert_eq!(
        (
            unmade.status.as_u16(),
            server.get("/v1/catalogs/c").await.status.as_u16()
        ),
        (422, 404)
    );
}

#[tokio::test]
async fn damaged_settings_are_a_failure_of_the_server_and_named_in_the_list() {
    let server = Server::with_tools(&[tool("s", "t", "Does a thing.")]).await;
    let data = server.stop().await;
    let database = data.path().join("catalogs/default/tools.db");
    let sql = r#"INSERT OR REPLACE INTO meta VALUES ('settings', '{"search": {"k": 0}}')"#;
    rusqlite::Connection::open(database)
        .unwrap()
        .execute(sql, [])
        .unwrap();
    let server = Server::start_with(|settings| settings.data = data.path().to_owned()).await;
    let search = server
        .post("/v1/search", &json!({ "query": "thing" }))
        .await;
    assert_eq!(
        (search.status.as_u16(), search.error_code()),
        (500, "internal"),
        "{search:?}"
    );
    let listed = server.get("/v1/catalogs").await;
    let damaged = listed.body["catalogs"][0]["damaged"].as_str().unwrap();
    assert!(damaged.contains("k is 0"), "{damaged}");
}

#[tokio::test]
async fn settings_that_are_put_at_the_same_time_are_all_accepted() {
    let server = std::sync::Arc::new(Server::start().await);
    let puts: Vec<_> = (1..=16)
        .map(|k| {
            let server = std::sync::Arc::clone(&server);
            tokio::spawn(async move {
                let path = "/v1/catalogs/default/settings";
                (k, server.put(path, &json!({ "k": k })).await)
            })
        })
        .collect();
    for put in puts {
        let (k, answer) = put.await.unwrap();
        assert_eq!(
            (answer.status.as_u16(), &answer.body["k"]),
            (200, &json!(k)),
            "{answer:?}"
        );
    }
    let served = server.get("/v1/catalogs/default/settings").await.body;
    let server = std::sync::Arc::into_inner(server).expect("every PUT has ended");
    let data = server.stop().await;
    let server = Server::start_with(|settings| settings.data = data.path().to_owned()).await;
    let stored = server.get("/v1/catalogs/default/settings").await.body;
    assert_eq!(stored, served);
}

#[tokio::test]
async fn stats_count_servers() {
    let server =
        Server::with_tools(&[tool("a", "x", ""), tool("a", "y", ""), tool("b", "x", "")]).await;
    let stats = server.get("/v1/catalogs/default/stats").await;
    assert_eq!(stats.body["tools"], 3);
    assert_eq!(
        stats.body["servers"],
        json!([{ "name": "a", "count": 2 }, { "name": "b", "count": 1 }])
    );
    assert!(stats.body["disk_bytes"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn the_number_of_catalogs_is_limited() {
    let server = Server::start_with(|settings| settings.limits.max_catalogs = 2).await;
    assert_eq!(
        server.put("/v1/catalogs/second", &json!({})).await.status,
        201
    );
    assert_eq!(
        server
            .put("/v1/catalogs/third", &json!({}))
            .await
            .error_code(),
        "too_many_catalogs"
    );
    assert_eq!(
        server.put("/v1/catalogs/second", &json!({})).await.status,
        200
    );
}

#[tokio::test]
async fn commits_of_another_process_are_served() {
    let server = Server::start().await;
    let other = toolscout_index::DataDir::new(server.dir.path())
        .open("default", Default::default())
        .unwrap();
    let mut writer = other.writer().unwrap();
    writer
        .upsert(&[toolscout_index::Tool::new("s", "t").unwrap()])
        .unwrap();
    writer.commit().unwrap();
    drop(writer);
    server
        .wait_for("/v1/catalogs/default", |catalog| catalog["tools"] == 1)
        .await;
}
