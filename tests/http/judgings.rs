//! Judgings: begun, judged, taken up again, exported, compared, bounded.

use serde_json::{Value, json};
use toolscout::keys::Scope;

use super::server::{Answer, Server, read, tool};

const ROUTE: &str = "/v1/catalogs/default/judgings";

fn tools() -> Vec<Value> {
    [
        ("mail", "send", "Sends an e-mail to somebody."),
        ("mail", "read", "Reads the newest e-mails."),
        ("sky", "forecast", "Tells the weather of tomorrow."),
    ]
    .map(|(server, name, description)| tool(server, name, description))
    .into()
}

const QUERIES: &str = "{\"id\":\"q1\",\"query\":\"send an e-mail\",\"source\":\"calls\",\"relevant\":{\"sky/forecast\":0}}\nweather tomorrow\nknit me a scarf\n";

async fn begin(server: &Server, body: &Value) -> String {
    let begun = server.post(ROUTE, body).await;
    assert_eq!(begun.status, 201, "{begun:?}");
    format!("{ROUTE}/{}", begun.body["id"].as_str().unwrap())
}

async fn judge(server: &Server, path: &str, judge: &str, judgements: &Value) -> Answer {
    let body = json!({ "judge": judge, "judgements": judgements });
    server.post(&format!("{path}/judgements"), &body).await
}

#[tokio::test]
async fn a_person_judges_query_after_query_and_goes_on_later() {
    let server = Server::with_tools(&tools()).await;
    let path = begin(&server, &json!({ "queries": QUERIES, "name": "May" })).await;
    let first = server
        .get(&format!("{path}/queries/1?judge=Ann"))
        .await
        .body;
    assert_eq!(
        (&first["query"], &first["done"]),
        (&json!("send an e-mail"), &json!(false))
    );
    let ids: Vec<&str> = first["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["id"].as_str().unwrap())
        .collect();
    assert!(
        ids.contains(&"mail/send") && ids.contains(&"sky/forecast"),
        "what the line judges is pooled too: {ids:?}"
    );
    assert!(ids.is_sorted(), "{ids:?}");
    assert!(
        first["tools"][0]["signature"]
            .as_str()
            .unwrap()
            .contains("mail"),
        "{first}"
    );

    let half = judge(
        &server,
        &path,
        "Ann",
        &json!([{ "id": "q1", "relevant": { "mail/send": 3 }, "done": false }]),
    )
    .await;
    assert_eq!(half.body["judges"][0]["next"], 1, "{half:?}");
    let whole =
        json!([{ "id": "q1", "relevant": { "mail/send": 3, "mail/read": 1, "sky/forecast": 0 } }]);
    let whole = judge(&server, &path, "Ann", &whole).await;
    assert_eq!(
        whole.body["judges"],
        json!([{ "judge": "Ann", "judged": 1, "skipped": 0, "grades": 3, "next": 2 }])
    );
    judge(
        &server,
        &path,
        "Ann",
        &json!([{ "id": "weather tomorrow", "relevant": {} }]),
    )
    .await;
    let dir = server.stop().await;
    let again = Server::start_with(|settings| settings.data = dir.path().to_owned()).await;
    let shown = again.get(&path).await.body;
    assert_eq!(
        (&shown["name"], &shown["queries"], &shown["by"]),
        (&json!("May"), &json!(3), &json!("http"))
    );
    assert_eq!(
        shown["judges"][0],
        json!({ "judge": "Ann", "judged": 1, "skipped": 1, "grades": 3, "next": 3 })
    );
    let kept = again.get(&format!("{path}/queries/1?judge=Ann")).await.body;
    assert_eq!(
        kept["relevant"],
        json!({ "mail/read": 1, "mail/send": 3, "sky/forecast": 0 })
    );
    let of_others = again.get(&format!("{path}/queries/1?judge=Bob")).await.body;
    assert_eq!(
        (&of_others["relevant"], &of_others["done"]),
        (&json!({}), &json!(false))
    );
    // Without grades and not done: the judgement is taken back.
    judge(
        &again,
        &path,
        "Ann",
        &json!([{ "id": "weather tomorrow", "relevant": {}, "done": false }]),
    )
    .await;
    assert_eq!(
        again.get(ROUTE).await.body["judgings"][0]["judges"][0]["next"],
        2
    );
    assert_eq!(again.delete(&path).await.status, 204);
    assert_eq!(again.get(&path).await.error_code(), "unknown_judging");
}

#[tokio::test]
async fn judgements_are_exported_as_a_set_and_two_judges_compared() {
    let server = Server::with_tools(&tools()).await;
    let path = begin(&server, &json!({ "queries": QUERIES })).await;
    let ann = json!([
        { "id": "q1", "relevant": { "mail/send": 3, "mail/read": 0 } },
        { "id": "knit me a scarf", "relevant": { "mail/send": 0 } },
        { "id": "weather tomorrow", "relevant": {} }
    ]);
    judge(&server, &path, "Ann", &ann).await;
    // As `eval judge` has written them, with the name of the judge in each line.
    let lines = json!([
        { "id": "q1", "query": "send an e-mail", "relevant": { "mail/send": 2.0, "mail/read": 0.0 }, "source": "calls", "judge": "model m" },
        { "id": "knit me a scarf", "query": "knit me a scarf", "relevant": { "mail/send": 0.0 }, "judge": "model m" }
    ]);
    let model = server
        .post(
            &format!("{path}/judgements"),
            &json!({ "judgements": lines }),
        )
        .await;
    assert_eq!(model.body["judges"][0]["judge"], "model m", "{model:?}");
    let export = server.get(&format!("{path}/judgements?judge=Ann")).await;
    assert_eq!(export.headers["content-type"], "application/x-ndjson");
    let text = match &export.body {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let read: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read.len(), 2, "skipped queries are not exported: {read:?}");
    assert_eq!(
        read[0],
        json!({ "id": "q1", "query": "send an e-mail", "relevant": { "mail/read": 0.0, "mail/send": 3.0 }, "source": "calls", "judge": "Ann" })
    );
    // The server evaluates with it.
    let started = server
        .post(
            "/v1/catalogs/default/evaluations",
            &json!({ "queries": text }),
        )
        .await;
    assert_eq!(started.status, 202, "{started:?}");
    let all = server.get(&format!("{path}/judgements")).await;
    assert_eq!(all.body.as_str().unwrap().lines().count(), 4);

    let found = server
        .get(&format!("{path}/agreement?a=Ann&b=model%20m"))
        .await
        .body;
    assert_eq!((&found["pairs"], &found["queries"]), (&json!(3), &json!(2)));
    assert_eq!(found["kappa_relevance"], 1.0);
    assert!(found["kappa"].as_f64().unwrap() < 1.0, "{found}");
    assert_eq!(found["disagreements"][0]["tool"], "mail/send");
    let unknown = server.get(&format!("{path}/agreement?a=Ann&b=Bob")).await;
    assert_eq!(unknown.error_code(), "unknown_judge");
    assert!(unknown.message().contains("Ann, model m"), "{unknown:?}");
}

#[tokio::test]
async fn mistakes_are_named_and_nothing_of_the_request_is_kept() {
    let server = Server::with_tools(&tools()).await;
    let path = begin(&server, &json!({ "queries": QUERIES })).await;
    let good = json!({ "id": "q1", "relevant": { "mail/send": 1 } });
    for (name, line, expected) in [
        (
            "Ann",
            json!({ "id": "q9", "relevant": {} }),
            "has no query \"q9\"",
        ),
        (
            "Ann",
            json!({ "id": "q1", "relevant": { "mail/gone": 1 } }),
            "no tool \"mail/gone\"",
        ),
        (
            "Ann",
            json!({ "id": "q1", "relevant": { "mail/send": 4 } }),
            "is 4; grades are 0 to 3",
        ),
        (
            "Ann",
            json!({ "id": "q1", "relevant": { "mail/send": 0.5 } }),
            "is 0.5; grades are 0 to 3",
        ),
        (
            "Ann",
            json!({ "id": "q1", "query": "other", "relevant": {} }),
            "and not \"other\"",
        ),
        (
            " ",
            json!({ "id": "q1", "relevant": {} }),
            "the judge is \"\"",
        ),
    ] {
        let refused = judge(&server, &path, name, &json!([good, line])).await;
        assert_eq!(
            (refused.status.as_u16(), refused.error_code()),
            (422, "invalid_judgement"),
            "{refused:?}"
        );
        assert!(
            refused.message().contains(expected),
            "{expected}: {refused:?}"
        );
    }
    assert_eq!(server.get(&path).await.body["judges"], json!([]));
    for (body, code) in [
        (json!({ "queries": "" }), "invalid_queries"),
        (json!({ "queries": "x\n".repeat(2001) }), "invalid_queries"),
        (json!({ "queries": "x", "depth": 21 }), "invalid_value"),
        (
            json!({ "queries": "x", "name": "n".repeat(201) }),
            "invalid_value",
        ),
        (json!({ "queries": "x", "judge": "Ann" }), "unknown_field"),
    ] {
        assert_eq!(server.post(ROUTE, &body).await.error_code(), code);
    }
    for number in ["0", "4"] {
        let answer = server.get(&format!("{path}/queries/{number}")).await;
        assert_eq!(answer.error_code(), "unknown_query", "{answer:?}");
    }
    for place in 0..20 {
        judge(&server, &path, &format!("judge {place}"), &json!([good])).await;
    }
    let one_more = judge(&server, &path, "one more", &json!([good])).await;
    assert_eq!(one_more.error_code(), "too_many_judges");
    let empty = Server::start().await;
    let refused = empty.post(ROUTE, &json!({ "queries": "x" })).await;
    assert_eq!(refused.error_code(), "empty_catalog");
}

#[tokio::test]
async fn a_search_key_reads_judgings_and_judges_nothing() {
    let server = Server::with_tools(&tools()).await;
    let path = begin(&server, &json!({ "queries": QUERIES })).await;
    let key = server.key(Scope::Search, "default");
    for read_path in [ROUTE.to_owned(), path.clone(), format!("{path}/queries/1")] {
        let request = server.request(reqwest::Method::GET, &read_path);
        assert_eq!(
            read(request.bearer_auth(&key)).await.status,
            200,
            "{read_path}"
        );
    }
    let judgements = json!({ "judge": "Ann", "judgements": [] });
    for (method, write_path, body) in [
        ("POST", ROUTE.to_owned(), json!({ "queries": "x" })),
        ("POST", format!("{path}/judgements"), judgements),
        ("DELETE", path.clone(), json!({})),
    ] {
        let request = server.request(method.parse().unwrap(), &write_path);
        let answer = read(request.bearer_auth(&key).json(&body)).await;
        assert_eq!(answer.error_code(), "wrong_scope", "{method} {write_path}");
    }
}
