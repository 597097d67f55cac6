use reqwest::Method;
use serde_json::{Value, json};
use toolscout_index::Options;
use toolscout_index::embed::StaticTable;

use super::server::{Server, ids, read, tool};

fn mail_and_more() -> Vec<Value> {
    vec![
        tool(
            "mail",
            "send_email",
            "Sends an email to one or more recipients.",
        ),
        tool("mail", "list_folders", "Lists the folders of a mailbox."),
        tool(
            "calendar",
            "create_event",
            "Creates an event in a calendar.",
        ),
        tool("forge", "create_issue", "Opens an issue in a repository."),
        tool(
            "forge",
            "list_branches",
            "Lists the branches of a repository.",
        ),
    ]
}

#[tokio::test]
async fn the_right_tool_comes_first_by_every_route() {
    let server = Server::with_tools(&mail_and_more()).await;
    let body = json!({ "query": "send an email" });
    let posted = server.post("/v1/catalogs/default/search", &body).await;
    assert_eq!(ids(&posted)[0], "mail/send_email", "{posted:?}");
    assert_eq!(ids(&server.post("/v1/search", &body).await), ids(&posted));
    assert_eq!(
        ids(&server
            .get("/v1/catalogs/default/search?q=send+an+email")
            .await),
        ids(&posted)
    );
}

#[tokio::test]
async fn get_and_post_take_both_names_of_the_query() {
    let server = Server::with_tools(&mail_and_more()).await;
    let path = "/v1/catalogs/default/search";
    for query in ["?q=send+an+email", "?query=send+an+email"] {
        let answer = server.get(&format!("{path}{query}")).await;
        assert_eq!(ids(&answer)[0], "mail/send_email", "{query}: {answer:?}");
    }
    for field in ["q", "query"] {
        let answer = server.post(path, &json!({ field: "send an email" })).await;
        assert_eq!(ids(&answer)[0], "mail/send_email", "{field}: {answer:?}");
    }
}

#[tokio::test]
async fn fusion_dense_weight_and_whole_are_those_of_the_command_line() {
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![StaticTable::bundled().unwrap()])
    })
    .await;
    let path = "/v1/catalogs/default/tools";
    server.post(path, &json!(mail_and_more())).await;
    let search = async |mut body: Value| {
        body["query"] = json!("send an email and then open an issue in the repository");
        body["explain"] = json!(true);
        let answer = server.post("/v1/search", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["hits"].clone()
    };
    let default = search(json!({})).await;
    assert_ne!(search(json!({ "fusion": "rrf" })).await, default);
    assert_ne!(search(json!({ "dense_weight": 0.1 })).await, default);
    assert_ne!(search(json!({ "whole": true })).await, default);
    let by_query = server
        .get("/v1/catalogs/default/search?q=email&fusion=rrf&dense_weight=0.3&whole=true")
        .await;
    assert_eq!(by_query.status, 200, "{by_query:?}");
    let wrong = server
        .post("/v1/search", &json!({ "query": "x", "dense_weight": 2 }))
        .await;
    assert_eq!(wrong.error_code(), "invalid_query", "{wrong:?}");
}

#[tokio::test]
async fn an_answer_has_what_is_documented() {
    let server = Server::with_tools(&mail_and_more()).await;
    let request = server
        .request(Method::POST, "/v1/search")
        .header("X-Request-Id", "mine-1");
    let answer =
        read(request.json(&json!({ "query": "send an email", "explain": true, "k": 1 }))).await;
    let hit = &answer.body["hits"][0];
    assert_eq!(
        (&hit["server"], &hit["name"]),
        (&json!("mail"), &json!("send_email"))
    );
    assert_eq!(
        hit["description"],
        "Sends an email to one or more recipients."
    );
    assert!(
        hit["score"].as_f64().unwrap() > 0.0 && hit["explain"].is_object(),
        "{hit}"
    );
    assert!(answer.body["took_ms"]["total"].is_number());
    assert_eq!(answer.body["mode"], "lexical");
    assert_eq!(answer.body["request_id"], "mine-1");
    assert_eq!(answer.headers["x-request-id"], "mine-1");
}

#[tokio::test]
async fn filters_queries_and_k_hold() {
    let server = Server::with_tools(&mail_and_more()).await;
    let filtered = json!({ "query": "create", "filter": { "servers": ["forge"] } });
    assert_eq!(
        ids(&server.post("/v1/search", &filtered).await),
        ["forge/create_issue"]
    );
    let by_query = server
        .get("/v1/catalogs/default/search?q=create&server=forge")
        .await;
    assert_eq!(ids(&by_query), ["forge/create_issue"]);
    let nowhere = json!({ "query": "create", "filter": { "servers": ["nowhere"] } });
    let nothing = server.post("/v1/search", &nowhere).await.body;
    assert_eq!(
        nothing["no_match"]["reason"], "no tool passes the filter: there is no server \"nowhere\"",
        "{nothing}"
    );
    for (filter, reason) in [
        (
            json!({ "servers": ["forgee"] }),
            "there is no server \"forgee\" (did you mean \"forge\"?)",
        ),
        (
            json!({ "ids": ["mail/send_emial"], "servers": ["gone"] }),
            "there is no tool \"mail/send_emial\" (did you mean \"mail/send_email\"?), \
             there is no server \"gone\"",
        ),
        // What is outside of the ids is not suggested.
        (
            json!({ "ids": ["mail/send_email"], "servers": ["forgee"], "tags": ["nothing"] }),
            "there is no server \"forgee\", there is no tag \"nothing\"",
        ),
    ] {
        let asked = json!({ "query": "create", "filter": filter });
        let answer = server.post("/v1/search", &asked).await.body;
        let expected = format!("no tool passes the filter: {reason}");
        assert_eq!(answer["no_match"]["reason"], expected, "{answer}");
    }
    assert!(nothing["confidence"].is_null(), "{nothing}");
    let both = server
        .post(
            "/v1/search",
            &json!({ "queries": ["send an email", "open an issue"] }),
        )
        .await;
    let found = ids(&both);
    assert!(
        found.contains(&"mail/send_email") && found.contains(&"forge/create_issue"),
        "{found:?}"
    );
    let one = server
        .post("/v1/search", &json!({ "query": "create", "k": 1 }))
        .await;
    assert_eq!(ids(&one).len(), 1);
}

#[tokio::test]
async fn found_tools_come_in_every_format() {
    let server = Server::with_tools(&mail_and_more()).await;
    let tools = async |format: &str| {
        let body =
            json!({ "query": "send an email", "k": 1, "format": format, "call_id": "call-7" });
        server.post("/v1/search", &body).await.body["tools"].clone()
    };
    assert_eq!(
        tools("openai").await[0]["function"]["name"],
        "mail__send_email"
    );
    let output = tools("openai_responses").await;
    assert_eq!(
        (&output["type"], &output["call_id"]),
        (&json!("tool_search_output"), &json!("call-7"))
    );
    assert_eq!(output["tools"][0]["name"], "mail__send_email");
    assert_eq!(output["tools"][0]["strict"], false);
    assert_eq!(
        tools("anthropic").await[0]["input_schema"]["required"],
        json!(["text"])
    );
    assert_eq!(
        tools("anthropic_reference").await[0]["type"],
        "tool_reference"
    );
    assert_eq!(
        tools("mcp").await["tools"][0]["inputSchema"]["required"],
        json!(["text"])
    );
    assert_eq!(tools("names").await, json!(["mail__send_email"]));
    assert!(
        tools("signature").await[0]
            .as_str()
            .unwrap()
            .contains("send_email")
    );
}

#[tokio::test]
async fn names_are_the_same_in_every_answer_and_mapped_to_ids() {
    let server = Server::with_tools(&mail_and_more()).await;
    let search = async |query: &str, more: Value| {
        let mut body = json!({ "query": query, "format": "openai_responses" });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        server.post("/v1/search", &body).await.body
    };
    for answer in [
        search("send an email", json!({ "k": 1 })).await,
        search("send an email or create an issue", json!({ "k": 5 })).await,
        search("send an email", json!({ "k": 5, "max_tokens": 150 })).await,
    ] {
        // Without a call to answer, the tools are a list.
        let tools = answer["tools"].as_array().unwrap();
        let mapped = answer["tool_names"].as_array().unwrap();
        assert!(!tools.is_empty() && tools.len() == mapped.len(), "{answer}");
        for (tool, mapped) in tools.iter().zip(mapped) {
            assert_eq!(tool["name"], mapped["name"]);
            let id = mapped["id"].as_str().unwrap();
            assert_eq!(mapped["name"], id.replace('/', "__"));
        }
    }
}

#[tokio::test]
async fn a_token_budget_is_respected() {
    let mut many: Vec<Value> = (0..20)
        .map(|n| {
            tool(
                "mail",
                &format!("send_{n}"),
                &"Sends an email with much text. ".repeat(20),
            )
        })
        .collect();
    many.push(tool(
        "calendar",
        "create_event",
        "Creates an event in a calendar.",
    ));
    let server = Server::with_tools(&many).await;
    let body = json!({ "query": "send email", "k": 20, "format": "openai", "max_tokens": 800 });
    let answer = server.post("/v1/search", &body).await;
    let budget = &answer.body["budget"];
    assert!(budget["tokens"].as_u64().unwrap() <= 800, "{budget}");
    assert!(
        budget["whole"].as_u64().unwrap() >= 1 && budget["shortened"].as_u64().unwrap() >= 1,
        "{budget}"
    );
    let shown = answer.body["tools"].as_array().unwrap().len()
        + budget["omitted"].as_array().unwrap().len();
    assert_eq!(shown, ids(&answer).len());
}

#[tokio::test]
async fn new_tools_are_found_lexically_at_once_and_densely_once_embedded() {
    let server = Server::start_dense().await;
    server.add(&mail_and_more()).await;
    let at_once = server
        .post("/v1/search", &json!({ "query": "send an email" }))
        .await;
    assert_eq!(ids(&at_once)[0], "mail/send_email");
    server.embedded().await;
    let answer = server
        .post(
            "/v1/search",
            &json!({ "query": "send an email", "mode": "hybrid" }),
        )
        .await;
    assert_eq!(
        (&answer.body["mode"], &answer.body["degraded"]),
        (&json!("hybrid"), &Value::Null)
    );
    assert_eq!(ids(&answer)[0], "mail/send_email");
}

#[tokio::test]
async fn a_model_that_could_not_be_loaded_is_reported_with_every_answer_that_lacks_it() {
    let reason = "the model minilm is not there (`toolscout models pull` fetches it)";
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options {
            embedders: vec![StaticTable::bundled().unwrap()],
            missing_embedder: Some(reason.to_owned()),
        }
    })
    .await;
    let path = "/v1/catalogs/default/tools";
    server.post(path, &json!(mail_and_more())).await;
    let by_meaning = json!({ "query": "send an email" });
    let by_meaning = server.post("/v1/search", &by_meaning).await;
    assert_eq!(
        by_meaning.body["degraded"],
        json!({ "code": "embedder_not_loaded", "reason": reason, "pending_embeddings": 0 })
    );
    let by_words = json!({ "query": "send an email", "mode": "lexical" });
    let by_words = server.post("/v1/search", &by_words).await;
    assert_eq!(by_words.body["degraded"], Value::Null);
}

#[tokio::test]
async fn a_mode_without_a_model_is_marked_as_degraded() {
    let server = Server::with_tools(&mail_and_more()).await;
    let answer = server
        .post(
            "/v1/search",
            &json!({ "query": "send an email", "mode": "hybrid" }),
        )
        .await;
    assert!(
        answer.body["degraded"]["reason"]
            .as_str()
            .unwrap()
            .contains("no embedding model"),
        "{answer:?}"
    );
    assert_eq!(answer.body["degraded"]["code"], "no_embedder");
    assert_eq!(ids(&answer)[0], "mail/send_email");
}

#[tokio::test]
async fn the_answer_names_the_variant_and_folded_duplicates() {
    let description = "Sends an email with a subject and a text to one or more recipients at once.";
    let twins: Vec<Value> = ["gmail", "outlook"]
        .iter()
        .map(|server| tool(server, "send_email", description))
        .collect();
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![StaticTable::bundled().unwrap()])
    })
    .await;
    server.add(&twins).await;
    let whole = server
        .post(
            "/v1/search",
            &json!({ "query": "send an email", "budget_ms": 60000 }),
        )
        .await;
    assert_eq!(
        (&whole.body["variant"], &whole.body["degraded"]),
        (&json!("full"), &Value::Null)
    );
    assert!(
        whole.body["embedders"][0]
            .as_str()
            .unwrap()
            .starts_with("static-table/"),
        "{whole:?}"
    );
    assert_eq!(ids(&whole).len(), 2);
    let short = server
        .get("/v1/catalogs/default/search?q=send+an+email&budget_ms=0.000001&fold_duplicates=true")
        .await;
    assert_eq!(
        (&short.body["variant"], &short.body["embedders"]),
        (&json!("lexical"), &json!([]))
    );
    assert_eq!(
        short.body["hits"][0]["also_on"],
        json!(["outlook/send_email"]),
        "{short:?}"
    );
    let wrong = server
        .post("/v1/search", &json!({ "query": "x", "budget_ms": -1 }))
        .await;
    assert!(
        wrong.status.is_client_error() && wrong.message().contains("-1 ms"),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn no_match_is_an_answer_and_not_an_error() {
    let server = Server::with_tools(&mail_and_more()).await;
    let answer = server
        .post("/v1/search", &json!({ "query": "xylophone quasar" }))
        .await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.body["no_match"]["reason"].is_string() && ids(&answer).is_empty(),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_catalogs_settings_are_the_defaults_of_its_searches() {
    let server = Server::with_tools(&mail_and_more()).await;
    let set = server
        .put(
            "/v1/catalogs/default/settings",
            &json!({ "k": 1, "mode": "lexical" }),
        )
        .await;
    assert_eq!(set.status, 200, "{set:?}");
    assert_eq!(
        ids(&server
            .post("/v1/search", &json!({ "query": "create" }))
            .await)
        .len(),
        1
    );
    assert_eq!(
        ids(&server
            .post("/v1/search", &json!({ "query": "create", "k": 2 }))
            .await)
        .len(),
        2
    );
}

/// A tool that needs a person, the one that finds people, and others.
fn crm() -> Vec<Value> {
    let mut update = tool("crm", "update_person", "Changes a person.");
    update["inputSchema"] = json!({
        "type": "object",
        "properties": { "person_id": { "type": "string" }, "name": { "type": "string" } },
        "required": ["person_id"],
    });
    let parts = ["photo", "phone", "team", "mail", "role"];
    let parts =
        parts.map(|part| tool("crm", &format!("update_person_{part}"), "Changes a person."));
    let finds = tool("crm", "fetch_people", "Lists people.");
    [update, finds].into_iter().chain(parts).collect()
}

#[tokio::test]
async fn a_companion_is_marked_by_every_route_and_can_be_switched_off() {
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![StaticTable::bundled().unwrap()])
    })
    .await;
    server.add(&crm()).await;
    let marks = |answer: &Value| -> Vec<Value> {
        let hits = answer["hits"].as_array().unwrap();
        hits.iter()
            .filter_map(|hit| hit.get("companion_of").cloned())
            .collect()
    };
    let expected = json!({
        "id": "crm/update_person", "parameter": "person_id",
        "reason": "`person_id` identifies \"person\", which this tool lists",
    });
    let body = json!({ "query": "update_person", "k": 5, "format": "openai" });
    let posted = server.post("/v1/search", &body).await.body;
    assert_eq!(marks(&posted), std::slice::from_ref(&expected), "{posted}");
    assert_eq!(posted["hits"][2]["id"], "crm/fetch_people");
    assert_eq!(
        posted["tool_names"][2]["id"], "crm/fetch_people",
        "the format has it too"
    );
    let path = "/v1/catalogs/default/search?q=update_person&k=5";
    assert_eq!(marks(&server.get(path).await.body), [expected]);
    let off = server.get(&format!("{path}&companions=false")).await.body;
    assert!(marks(&off).is_empty(), "{off}");
    let body = json!({ "query": "update_person", "k": 5, "companions": false });
    assert!(marks(&server.post("/v1/search", &body).await.body).is_empty());
    let settings = json!({ "companions": false });
    server.put("/v1/catalogs/default/settings", &settings).await;
    assert!(marks(&server.get(path).await.body).is_empty());
    let on = server.get(&format!("{path}&companions=true")).await.body;
    assert_eq!(marks(&on).len(), 1, "a request overrides the catalog");
}

#[tokio::test]
async fn the_companions_of_a_tool_are_listed() {
    let server = Server::with_tools(&crm()).await;
    let expected = json!({ "companions": [{
        "id": "crm/fetch_people", "parameter": "person_id",
        "reason": "`person_id` identifies \"person\", which this tool lists",
    }] });
    for path in [
        "/v1/tools/crm/update_person/companions",
        "/v1/tools/crm%2Fupdate_person/companions",
        "/v1/catalogs/default/companions/crm/update_person",
    ] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body),
            (200, &expected),
            "{path}"
        );
    }
    let none = server.get("/v1/tools/crm/fetch_people/companions").await;
    assert_eq!(none.body, json!({ "companions": [] }));
    for (path, code) in [
        ("/v1/tools/crm/update_persons/companions", "unknown_tool"),
        ("/v1/catalogs/default/companions/x", "unknown_tool"),
        ("/v1/catalogs/nowhere/companions/x", "unknown_catalog"),
        ("/v1/tools/crm/update_person", "not_found"),
    ] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (404, code),
            "{path}"
        );
    }
}
