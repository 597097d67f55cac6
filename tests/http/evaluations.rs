//! Evaluations: started, watched, kept, compared, paged, deleted.

use serde_json::{Value, json};
use toolscout::keys::Scope;
use toolscout_index::{DataDir, Options};

use super::server::{Answer, Server, read, stored_tools, tool};

const ROUTE: &str = "/v1/catalogs/default/evaluations";

fn tools() -> Vec<Value> {
    [
        ("mail", "send", "Sends an e-mail to somebody."),
        ("mail", "read", "Reads the newest e-mails."),
        ("sky", "forecast", "Tells the weather of tomorrow."),
        ("sky", "now", "Tells the temperature outside."),
        ("files", "copy", "Copies a file to another folder."),
    ]
    .map(|(server, name, description)| tool(server, name, description))
    .into()
}

const QUERIES: &str = r#"{"id":"q1","query":"send an e-mail","relevant":["mail/send"]}
{"id":"q2","query":"weather tomorrow","relevant":["sky/forecast","sky/now"]}
{"id":"q3","query":"copy the newest e-mails","relevant":["mail/read"]}
{"id":"q4","query":"knit me a scarf","relevant":[],"kind":"none"}
tell the temperature
"#;

/// Starts an evaluation and waits for its end.
async fn evaluate(server: &Server, body: &Value) -> Value {
    let started = server.post(ROUTE, body).await;
    let task = location(&started);
    let ended = server
        .wait_for(&task, |task| task["status"] != "running")
        .await;
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!(ended["done"], ended["total"], "{ended}");
    let id = ended["evaluation"].as_str().expect("the id");
    server.get(&format!("{ROUTE}/{id}")).await.body
}

fn location(answer: &Answer) -> String {
    assert_eq!(answer.status, 202, "{answer:?}");
    answer.headers["location"].to_str().unwrap().to_owned()
}

fn id(shown: &Value) -> &str {
    shown["evaluation"]["id"].as_str().expect("an id")
}

#[tokio::test]
async fn figures_on_queries_that_the_catalog_was_tuned_to_are_marked() {
    let query = |number: usize| format!("weather of day {number}");
    let server = Server::start_with(|settings| {
        let data = DataDir::new(&settings.data);
        let catalog = data.open_or_create("default", Options::default());
        let mut writer = catalog.unwrap().writer().unwrap();
        let mut tuned = writer.settings().unwrap();
        let queries: Vec<String> = (0..40).map(query).collect();
        tuned.tuned_on.add(queries.iter().map(String::as_str));
        writer.set_settings(&tuned).unwrap();
        writer.commit().unwrap();
    })
    .await;
    let added = server
        .post("/v1/catalogs/default/tools", &json!(tools()))
        .await;
    assert_eq!(added.status, 200, "{added:?}");
    // Other settings do not take the mark away.
    let other = json!({ "k": 7 });
    let set = server.put("/v1/catalogs/default/settings", &other).await;
    assert_eq!(set.status, 200, "{set:?}");
    for (first, is_tuned) in [(0, true), (100, false)] {
        let judged = (first..first + 40).map(|number| {
            json!({ "id": number.to_string(), "query": query(number), "relevant": ["sky/now"] })
        });
        let lines: Vec<String> = judged.map(|line| line.to_string()).collect();
        let shown = evaluate(&server, &json!({ "queries": lines.join("\n") })).await;
        let marked = shown["evaluation"]["tuned_on"] == true;
        assert_eq!(marked, is_tuned, "{}", shown["evaluation"]);
    }
}

#[tokio::test]
async fn judged_queries_give_figures_with_intervals() {
    let server = Server::with_tools(&tools()).await;
    let shown = evaluate(&server, &json!({ "queries": QUERIES, "name": "first" })).await;
    let evaluation = &shown["evaluation"];
    assert_eq!(
        evaluation["queries"],
        json!({ "total": 5, "judged": 3, "no_tool": 1, "unjudged": 1 })
    );
    assert_eq!(
        (&evaluation["name"], &evaluation["tools"]),
        (&json!("first"), &json!(5))
    );
    // Ten are more than there are tools.
    assert_eq!(evaluation["depths"], json!([1, 3, 5]));
    assert_eq!(evaluation["main_metric"], "ndcg@5");
    assert_eq!(evaluation["generation"], shown["current_generation"]);
    let arm = &evaluation["arms"][0];
    let figure = |metric: &str| {
        let figures = arm["figures"].as_array().unwrap();
        figures
            .iter()
            .find(|figure| figure["metric"] == metric)
            .unwrap()
            .clone()
    };
    let recall = figure("recall@5");
    assert!(recall["mean"].as_f64().unwrap() > 0.5, "{recall}");
    let interval = figure("ndcg@5")["ci95"].as_array().unwrap().len();
    assert_eq!(interval, 2);
    assert_eq!(arm["latency"].as_array().unwrap().len(), 6);
    assert_eq!(
        (&shown["against"], &shown["b_against_a"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn a_second_evaluation_is_compared_with_the_last_one_over_the_same_queries() {
    let server = Server::with_tools(&tools()).await;
    let first = evaluate(&server, &json!({ "queries": QUERIES })).await;
    let others = evaluate(&server, &json!({ "queries": "another query\tmail/send" })).await;
    server
        .add(&[tool("post", "send_an_email", "Send an e-mail.")])
        .await;
    let second = evaluate(&server, &json!({ "queries": QUERIES })).await;
    let against = &second["against"];
    assert_eq!(against["evaluation"]["id"], first["evaluation"]["id"]);
    let change = &against["arms"][0];
    assert_eq!(
        (&change["queries"], &change["judged"]),
        (&json!(5), &json!(3))
    );
    assert!(change["hits_changed"].as_u64().unwrap() > 0, "{change}");
    let main = change["differences"].as_array().unwrap();
    let main = main.iter().find(|one| one["metric"] == "ndcg@5").unwrap();
    assert!(
        main["p"].is_number() && main["ci95"][1].is_number(),
        "{main}"
    );
    assert_ne!(
        first["evaluation"]["generation"],
        second["current_generation"]
    );

    let none = format!("{ROUTE}/{}?against=none", id(&second));
    assert_eq!(server.get(&none).await.body["against"], Value::Null);
    let other = format!("{ROUTE}/{}?against={}", id(&second), id(&others));
    assert_eq!(server.get(&other).await.error_code(), "nothing_in_common");
    let unknown = format!("{ROUTE}/{}?against=x", id(&second));
    assert_eq!(
        server.get(&unknown).await.error_code(),
        "unknown_evaluation"
    );

    let listed = server.get(ROUTE).await.body;
    let ids: Vec<&Value> = listed["evaluations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(
        ids,
        [&second, &others, &first].map(|shown| &shown["evaluation"]["id"])
    );
    let changed = format!("{ROUTE}/{}/queries?sort=change&changed=true", id(&second));
    let changed = server.get(&changed).await.body;
    assert_eq!(changed["against"], first["evaluation"]["id"]);
    assert!(
        changed["queries"][0]["arms"][0]["before"]["overlap"].is_number(),
        "{changed}"
    );
    assert!(changed["total"].as_u64().unwrap() < 5, "{changed}");
}

#[tokio::test]
async fn two_settings_are_compared_query_by_query() {
    let server = Server::start_dense().await;
    server.add(&tools()).await;
    server.embedded().await;
    let body = json!({ "queries": QUERIES, "search": { "mode": "hybrid" }, "compare": { "mode": "lexical", "ranker": false }, "depths": [5, 1] });
    let shown = evaluate(&server, &body).await;
    assert_eq!(shown["evaluation"]["arms"][1]["search"], body["compare"]);
    assert_eq!(shown["evaluation"]["depths"], json!([1, 5]));
    assert_eq!(shown["b_against_a"]["queries"], 5);
    let page = server
        .get(&format!(
            "{ROUTE}/{}/queries?against=a&arm=b&sort=change",
            id(&shown)
        ))
        .await
        .body;
    let row = &page["queries"][0];
    assert_eq!(row["arms"][0]["before"], Value::Null);
    assert_eq!(row["arms"][1]["before"]["hits"], row["arms"][0]["hits"]);
}

#[tokio::test]
async fn queries_are_paged_worst_first() {
    let server = Server::with_tools(&tools()).await;
    let shown = evaluate(&server, &json!({ "queries": QUERIES })).await;
    let base = format!("{ROUTE}/{}/queries?limit=2", id(&shown));
    let mut scores = Vec::new();
    let mut path = base.clone();
    loop {
        let page = server.get(&path).await.body;
        assert_eq!(page["total"], 5, "{page}");
        scores.extend(
            page["queries"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["arms"][0]["score"].as_f64()),
        );
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("{base}&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(scores.len(), 5);
    assert!(
        scores[..3].is_sorted_by(|a, b| a.unwrap() <= b.unwrap()),
        "{scores:?}"
    );
    assert_eq!(scores[3..], [None, None]);
    let ordered = server.get(&format!("{base}&sort=order")).await.body;
    let first = &ordered["queries"][0];
    assert_eq!((&first["number"], &first["id"]), (&json!(1), &json!("q1")));
    assert_eq!(first["relevant"], json!(["mail/send"]));
    assert!(first["arms"][0]["ranks"][0].is_number(), "{first}");
    for (parameters, code) in [
        ("arm=b", "invalid_value"),
        ("cursor=x", "invalid_cursor"),
        ("limit=0", "invalid_value"),
        ("sort=worst", "invalid_value"),
    ] {
        let answer = server
            .get(&format!("{ROUTE}/{}/queries?{parameters}", id(&shown)))
            .await;
        assert_eq!(answer.error_code(), code, "{answer:?}");
    }
}

#[tokio::test]
async fn unjudged_queries_have_no_figures_and_still_a_comparison() {
    let server = Server::with_tools(&tools()).await;
    let body = json!({ "queries": "send an e-mail\nthe weather" });
    evaluate(&server, &body).await;
    server
        .add(&[tool("post", "send", "Sends an e-mail, send an e-mail.")])
        .await;
    let second = evaluate(&server, &body).await;
    assert_eq!(second["evaluation"]["arms"][0]["figures"], json!([]));
    let change = &second["against"]["arms"][0];
    assert_eq!(
        (&change["judged"], &change["differences"]),
        (&json!(0), &json!([]))
    );
    assert!(change["overlap"].as_f64().unwrap() < 1.0, "{change}");
    assert!(change["hits_changed"].as_u64().unwrap() >= 1, "{change}");
}

#[tokio::test]
async fn mistakes_are_named_before_anything_runs() {
    let server = Server::with_tools(&tools()).await;
    let many = "a\n".repeat(5001);
    for (body, code, expected) in [
        (
            json!({ "queries": "x\n\ny\tmail/sent" }),
            "invalid_queries",
            "query \"y\" in line 3 of the queries names the relevant tool \"mail/sent\"",
        ),
        (
            json!({ "queries": "x\tpost/send" }),
            "invalid_queries",
            "did you mean \"mail/send\"?",
        ),
        (
            json!({ "queries": "{\"id\":1," }),
            "invalid_queries",
            "queries:1: ",
        ),
        (json!({ "queries": "" }), "invalid_queries", "no lines"),
        (json!({ "queries": many }), "invalid_queries", "5001 lines"),
        (
            json!({ "queries": "x", "qrels": "a b c d e" }),
            "invalid_queries",
            "qrels:1: ",
        ),
        (
            json!({ "queries": "x", "depths": [6] }),
            "invalid_value",
            "1 to 5",
        ),
        (
            json!({ "queries": "x", "name": "n".repeat(201) }),
            "invalid_value",
            "201 characters",
        ),
        (
            json!({ "queries": "x", "search": { "dense_weight": 3 } }),
            "invalid_query",
            "field `search`",
        ),
        (
            json!({ "queries": "x", "compare": { "budget_ms": 0 } }),
            "invalid_query",
            "field `compare`",
        ),
        (
            json!({ "queries": "x", "search": { "k": 5 } }),
            "unknown_field",
            "unknown field `search.k`",
        ),
        (
            json!({ "queries": "x", "search": { "filter": { "servers": [ "s".repeat(20_000) ] } } }),
            "invalid_value",
            "may have 16384",
        ),
        (json!({ "search": {} }), "missing_field", "queries"),
    ] {
        let answer = server.post(ROUTE, &body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (422, code),
            "{answer:?}"
        );
        assert!(
            answer.message().contains(expected),
            "{expected}: {answer:?}"
        );
    }
    let large = json!({ "queries": "x".repeat(5 << 20) });
    assert_eq!(server.post(ROUTE, &large).await.status, 413);
    assert_eq!(server.get(ROUTE).await.body["evaluations"], json!([]));
    let empty = Server::start().await;
    let answer = empty.post(ROUTE, &json!({ "queries": "x" })).await;
    assert_eq!(answer.error_code(), "empty_catalog");
}

#[tokio::test]
async fn a_cancelled_evaluation_leaves_nothing_and_few_run_at_one_time() {
    let server = Server::with_tools(&tools()).await;
    let queries: String = (0..5000)
        .map(|number| format!("send e-mail number {number}\n"))
        .collect();
    let body = json!({ "queries": queries, "compare": { "mode": "lexical" } });
    let running = [
        location(&server.post(ROUTE, &body).await),
        location(&server.post(ROUTE, &body).await),
    ];
    let refused = server.post(ROUTE, &body).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (429, "too_many_evaluations")
    );
    // Searches of clients are answered meanwhile.
    let search = json!({ "query": "send an e-mail" });
    let answer = server.post("/v1/catalogs/default/search", &search).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    for task in &running {
        assert_eq!(server.delete(task).await.status, 202);
        let ended = server
            .wait_for(task, |task| task["status"] != "running")
            .await;
        assert_eq!(ended["status"], "cancelled", "{ended}");
    }
    assert_eq!(server.get(ROUTE).await.body["evaluations"], json!([]));
    evaluate(&server, &json!({ "queries": "one more" })).await;
}

#[tokio::test]
async fn an_evaluation_outlives_the_server_and_goes_with_its_catalog() {
    let server = Server::with_tools(&tools()).await;
    let shown = evaluate(&server, &json!({ "queries": QUERIES })).await;
    let folder = server.folder("default").join("evaluations");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    let dir = server.stop().await;
    let again = Server::start_with(|settings| settings.data = dir.path().to_owned()).await;
    let path = format!("{ROUTE}/{}", id(&shown));
    assert_eq!(
        again.get(&path).await.body["evaluation"],
        shown["evaluation"]
    );
    assert_eq!(again.delete(&path).await.status, 204);
    assert_eq!(again.delete(&path).await.error_code(), "unknown_evaluation");
    assert_eq!(again.get(&path).await.status, 404);
    evaluate(&again, &json!({ "queries": QUERIES })).await;
    again.delete("/v1/catalogs/default").await;
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_catalog_deleted_meanwhile_gets_no_evaluation() {
    let server = Server::with_tools(&tools()).await;
    server.put("/v1/catalogs/other", &json!({})).await;
    server
        .post("/v1/catalogs/other/tools", &json!(tools()))
        .await;
    let queries: String = (0..5000)
        .map(|number| format!("send e-mail number {number}\n"))
        .collect();
    let task = location(
        &server
            .post(
                "/v1/catalogs/other/evaluations",
                &json!({ "queries": queries }),
            )
            .await,
    );
    server.delete("/v1/catalogs/other").await;
    server.put("/v1/catalogs/other", &json!({})).await;
    let ended = server
        .wait_for(&task, |task| task["status"] != "running")
        .await;
    assert_eq!(
        (&ended["status"], &ended["error"]["code"]),
        (&json!("failed"), &json!("unknown_catalog")),
        "{ended}"
    );
    assert_eq!(
        server.get("/v1/catalogs/other/evaluations").await.body["evaluations"],
        json!([])
    );
}

#[tokio::test]
async fn a_search_key_reads_evaluations_and_starts_none() {
    let server = Server::with_tools(&tools()).await;
    let shown = evaluate(&server, &json!({ "queries": QUERIES })).await;
    let key = server.key(Scope::Search, "default");
    for path in [
        ROUTE.to_owned(),
        format!("{ROUTE}/{}", id(&shown)),
        format!("{ROUTE}/{}/queries", id(&shown)),
    ] {
        let answer = read(
            server
                .request(reqwest::Method::GET, &path)
                .bearer_auth(&key),
        )
        .await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let start = server
        .request(reqwest::Method::POST, ROUTE)
        .bearer_auth(&key);
    assert_eq!(
        read(start.json(&json!({ "queries": "x" })))
            .await
            .error_code(),
        "wrong_scope"
    );
    let path = format!("{ROUTE}/{}", id(&shown));
    let delete = server
        .request(reqwest::Method::DELETE, &path)
        .bearer_auth(&key);
    assert_eq!(read(delete).await.error_code(), "wrong_scope");
}

/// The report of an evaluation, in a form.
fn report_of(shown: &Value, form: &str) -> String {
    format!("{ROUTE}/{}/report{form}", id(shown))
}

#[tokio::test]
async fn the_report_is_the_one_of_the_command_line() {
    let server = Server::with_tools(&tools()).await;
    let graded = r#"{"id":"q5","query":"temperature","relevant":{"sky/now":2,"sky/forecast":1,"mail/send":0}}
{"id":"q6","query":"read, then copy","relevant":["mail/read"],"order":["mail/read","files/copy"]}
{"id":"q7","query":"mail or weather","relevant":[],"groups":[["mail/send","sky/now"],["files/copy"]]}"#;
    let queries = format!(
        "{}\n{graded}",
        QUERIES.lines().take(4).collect::<Vec<_>>().join("\n")
    );
    let body = json!({ "queries": &queries, "compare": { "mode": "lexical" } });
    let shown = evaluate(&server, &body).await;
    let report = server.get(&report_of(&shown, "")).await.body;
    let report = &report["sets"][0];
    assert_eq!(report["set"], "default");
    let names: Vec<&String> = report["arms"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["in use", "lexical"]);
    for figure in shown["evaluation"]["arms"][0]["figures"]
        .as_array()
        .unwrap()
    {
        let metric = figure["metric"].as_str().unwrap();
        assert_eq!(report["arms"]["in use"][metric], figure["mean"], "{metric}");
        assert_eq!(report["arms"]["in use"]["ci95"][metric], figure["ci95"]);
    }
    let query = &report["per_query"][0];
    assert_eq!(query["judged"], json!({ "mail/send": 1.0 }));
    assert!(
        query["arms"]["in use"]["hits"][0]["score"].is_number(),
        "{query}"
    );
    assert_eq!(query["arms"]["in use"]["ranks"]["mail/send"], 1);

    // The command line reads it, and knows the same tools and queries.
    let folder = tempfile::tempdir().unwrap();
    let (json, file) = (
        folder.path().join("a.json"),
        folder.path().join("queries.jsonl"),
    );
    std::fs::write(&json, json!({ "sets": [report] }).to_string()).unwrap();
    std::fs::write(&file, &queries).unwrap();
    let tools = stored_tools(server.folder("default").ancestors().nth(2).unwrap());
    let load = toolscout::eval::dataset::Load::default();
    let set =
        toolscout::eval::EvalSet::over_catalog("default", tools, Some(&file), Vec::new(), &load)
            .unwrap();
    assert_eq!(report["fingerprint"], set.fingerprint());
    let read = toolscout::eval::report::read_reports(&json).unwrap();
    assert_eq!(read[0].arms[0].name, "in use");
    let identity = toolscout::eval::report::identity(&set, 42, "none".into());
    let baseline = toolscout::eval::baseline::Baseline::read(&json).unwrap();
    let planned = toolscout::eval::baseline::Planned {
        identity: &identity,
        arms: &["in use".into(), "lexical".into()],
        metrics: &read[0].arms[0].means.metrics(),
    };
    baseline
        .check(&planned, &toolscout::eval::baseline::GATED)
        .unwrap();
}

#[tokio::test]
async fn the_report_is_a_page_too() {
    let server = Server::with_tools(&tools()).await;
    let queries = format!("{QUERIES}<script>alert(1)</script>\tmail/send\n");
    let shown = evaluate(&server, &json!({ "queries": queries })).await;
    let page = server.get(&report_of(&shown, "?format=html")).await;
    assert!(
        page.headers["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
    assert!(page.policy().contains("default-src 'none'") && !page.policy().contains("script-src"));
    let page = page.body.as_str().unwrap().to_owned();
    for part in [
        "Recall over k",
        "Precision over recall",
        "default (small)",
        "&lt;script&gt;",
    ] {
        assert!(
            page.contains(part) || part == "&lt;script&gt;",
            "{part} is missing"
        );
    }
    assert!(!page.contains("<script"), "{page}");
    let unknown = server.get(&report_of(&shown, "?format=pdf")).await;
    assert_eq!(unknown.status, 422, "{unknown:?}");
    let unjudged = evaluate(&server, &json!({ "queries": "only a text" })).await;
    let refused = server.get(&report_of(&unjudged, "")).await;
    assert_eq!(refused.error_code(), "not_judged");
    let none = server.get(&format!("{ROUTE}/none/report")).await;
    assert_eq!(none.error_code(), "unknown_evaluation");
}

/// Sends a report to a catalog.
async fn send(server: &Server, parameters: &str, report: &Value) -> Answer {
    server
        .post(&format!("{ROUTE}/reports{parameters}"), report)
        .await
}

/// Whether both are the same but for the last digits of numbers.
fn is_near(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| is_near(a, b)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_near(a, b))
        }
        (Value::Number(a), Value::Number(b)) => {
            (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-9
        }
        _ => a == b,
    }
}

/// A change of a report.
type Spoil = fn(&mut Value);

#[tokio::test]
async fn a_report_that_is_sent_is_kept_shown_and_compared() {
    let server = Server::with_tools(&tools()).await;
    let made = evaluate(&server, &json!({ "queries": QUERIES })).await;
    let report = server.get(&report_of(&made, "")).await.body;
    assert_eq!(report["format"], 1);
    // As another program measured it: the last judged query lost its tool.
    let mut other = report.clone();
    let set = &mut other["sets"][0];
    let values = set["per_query"][2]["arms"]["in use"]["values"]
        .as_object()
        .unwrap()
        .clone();
    for (metric, value) in &values {
        let of_set = set["arms"]["in use"][metric].as_f64().unwrap();
        let lost = of_set - value.as_f64().unwrap_or(0.0) / 3.0;
        set["arms"]["in use"][metric] = json!(lost);
        set["per_query"][2]["arms"]["in use"]["values"][metric] = json!(0.0);
    }
    set["per_query"][2]["arms"]["in use"]["hits"] = json!([]);
    set["per_query"][2]["arms"]["in use"]["ranks"] = json!({});
    let sent = send(&server, "?name=another%20program", &other).await;
    assert_eq!(sent.status, 201, "{sent:?}");
    assert_eq!(
        (
            &sent.body["source"],
            &sent.body["name"],
            &sent.body["sent"]["by"],
            &sent.body["sent"]["set"]
        ),
        (
            &json!("sent"),
            &json!("another program"),
            &json!("http"),
            &json!("default")
        )
    );
    assert_eq!(
        sent.body["queries"],
        json!({ "total": 3, "judged": 3, "no_tool": 0, "unjudged": 0 })
    );
    // The report has no queries that no tool can serve, and the digest is of them too.
    let remarks = sent.body["sent"]["remarks"].as_array().unwrap();
    assert!(
        remarks.len() == 1 && remarks[0].as_str().unwrap().contains("no tool can serve"),
        "{remarks:?}"
    );

    let path = format!("{ROUTE}/{}", sent.body["id"].as_str().unwrap());
    let shown = server.get(&path).await.body;
    let against = &shown["against"];
    assert_eq!(
        against["evaluation"]["id"], made["evaluation"]["id"],
        "the last one over the same queries"
    );
    let change = &against["arms"][0];
    assert_eq!(
        (&change["arm"], &change["other"]),
        (&json!("in use"), &json!("a"))
    );
    assert_eq!(
        (&change["judged"], &change["worse"]),
        (&json!(3), &json!(1)),
        "{change}"
    );
    let arm = &shown["evaluation"]["arms"][0];
    assert_eq!(
        (&arm["name"], &arm["search"]),
        (&json!("in use"), &Value::Null)
    );
    let recall = arm["figures"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["metric"] == "recall@5")
        .unwrap();
    let of_report = &other["sets"][0]["arms"]["in use"]["recall@5"];
    assert!(is_near(&recall["mean"], of_report), "{recall}");

    // It comes back as it was sent, so that it is a baseline.
    let back = server.get(&format!("{path}/report")).await.body;
    assert!(is_near(&back["sets"], &other["sets"]), "{back}");
    assert_eq!(
        server
            .get(&format!("{path}/report?format=html"))
            .await
            .status,
        200
    );
    let page = server
        .get(&format!("{path}/queries?arm=in%20use&changed=true"))
        .await
        .body;
    assert_eq!(
        (&page["total"], &page["queries"][0]["id"]),
        (&json!(1), &json!("q3")),
        "{page}"
    );

    // A later evaluation of the server is compared with it on request, and a restart keeps it.
    let asked = format!(
        "{ROUTE}/{}?against={}",
        id(&made),
        sent.body["id"].as_str().unwrap()
    );
    assert_eq!(
        server.get(&asked).await.body["against"]["arms"][0]["better"],
        1
    );
    let dir = server.stop().await;
    let again = Server::start_with(|settings| settings.data = dir.path().to_owned()).await;
    assert_eq!(
        again.get(&path).await.body["evaluation"],
        shown["evaluation"]
    );
}

#[tokio::test]
async fn a_sent_report_is_compared_with_the_catalog() {
    let server = Server::with_tools(&tools()).await;
    let queries: String = QUERIES
        .lines()
        .take(3)
        .map(|line| format!("{line}\n"))
        .collect();
    let made = evaluate(&server, &json!({ "queries": queries })).await;
    let report = server.get(&report_of(&made, "")).await.body;
    let same = send(&server, "", &report).await;
    assert_eq!(same.body["sent"]["remarks"], json!([]), "{same:?}");
    let cases: [(Spoil, &str); 3] = [
        (
            |report| report["sets"][0]["embedder"] = json!("bge"),
            "with the embedder bge",
        ),
        (
            |report| report["sets"][0]["tools"] = json!(7),
            "is of 7 tools, and the catalog has 5",
        ),
        (
            |report| report["sets"][0]["per_query"][0]["judged"]["mail/gone"] = json!(0.0),
            "does not have 1 of 5 judged tools: mail/gone",
        ),
    ];
    for (change, expected) in cases {
        let mut other = report.clone();
        change(&mut other);
        let sent = send(&server, "", &other).await;
        let remarks = sent.body["sent"]["remarks"].to_string();
        assert!(remarks.contains(expected), "{expected}: {sent:?}");
    }
    server.put("/v1/catalogs/other", &json!({})).await;
    server
        .post(
            "/v1/catalogs/other/tools",
            &json!([tool("x", "y", "Does z.")]),
        )
        .await;
    let wrong = server
        .post("/v1/catalogs/other/evaluations/reports", &report)
        .await;
    assert_eq!(wrong.error_code(), "report_of_another_catalog", "{wrong:?}");
}

#[tokio::test]
async fn a_report_that_contradicts_itself_is_refused() {
    let server = Server::with_tools(&tools()).await;
    let made = evaluate(&server, &json!({ "queries": QUERIES })).await;
    let report = server.get(&report_of(&made, "")).await.body;
    let cases: [(Spoil, &str, &str); 8] = [
        (
            |report| report["format"] = json!(2),
            "invalid_report",
            "has the format 2",
        ),
        (
            |report| report["sets"] = json!([]),
            "invalid_report",
            "no set",
        ),
        (
            |report| report["sets"][0]["arms"] = json!({}),
            "report_too_large",
            "0 arms",
        ),
        (
            |report| report["sets"][0]["per_query"] = json!([]),
            "invalid_report",
            "3 queries and has 0 in per_query",
        ),
        (
            |report| report["sets"][0]["arms"]["in use"]["ndcg@5"] = json!(0.1),
            "invalid_report",
            "ndcg@5 of the arm",
        ),
        (
            |report| {
                report["sets"][0]["per_query"][0]["arms"]["in use"]["ranks"]["mail/send"] =
                    json!(1_000_000_000_u64)
            },
            "invalid_report",
            "rank 1000000000",
        ),
        (
            |report| report["sets"][0]["queries"] = json!("three"),
            "invalid_value",
            "sets",
        ),
        (
            |report| {
                let mut second = report["sets"][0].clone();
                second["set"] = json!("second");
                report["sets"].as_array_mut().unwrap().push(second);
            },
            "several_sets",
            "default, second",
        ),
    ];
    for (change, code, expected) in cases {
        let mut other = report.clone();
        change(&mut other);
        let refused = send(&server, "", &other).await;
        assert_eq!(
            (refused.status.as_u16(), refused.error_code()),
            (422, code),
            "{refused:?}"
        );
        assert!(
            refused.message().contains(expected),
            "{expected}: {refused:?}"
        );
    }
    let mut two = report.clone();
    let mut second = report["sets"][0].clone();
    second["set"] = json!("second");
    two["sets"].as_array_mut().unwrap().push(second);
    let chosen = send(&server, "?set=second", &two).await;
    assert_eq!(chosen.body["name"], "second", "{chosen:?}");
    assert_eq!(
        send(&server, "?set=third", &two).await.error_code(),
        "invalid_value"
    );
    let long = format!("?name={}", "n".repeat(201));
    assert_eq!(
        send(&server, &long, &report).await.error_code(),
        "invalid_value"
    );
    assert_eq!(
        server.get(ROUTE).await.body["evaluations"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn arms_of_a_sent_report_are_compared_by_name() {
    let server = Server::start_dense().await;
    server.add(&tools()).await;
    server.embedded().await;
    let body = json!({ "queries": QUERIES, "search": { "mode": "hybrid" }, "compare": { "mode": "lexical" } });
    let both = evaluate(&server, &body).await;
    let report = server.get(&report_of(&both, "")).await.body;
    let words = json!({ "queries": QUERIES, "search": { "mode": "lexical" } });
    let words = evaluate(&server, &words).await;
    let sent = send(&server, "", &report).await;
    let path = format!("{ROUTE}/{}", sent.body["id"].as_str().unwrap());
    let shown = server
        .get(&format!("{path}?against={}", id(&words)))
        .await
        .body;
    let arms = shown["against"]["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 1, "{arms:?}");
    assert_eq!(
        (&arms[0]["arm"], &arms[0]["hits_changed"]),
        (&json!("lexical"), &json!(0))
    );
    assert!(shown["b_against_a"]["judged"].is_number());
    let default = evaluate(
        &server,
        &json!({ "queries": QUERIES, "search": { "mode": "dense" } }),
    )
    .await;
    let refused = server
        .get(&format!("{path}?against={}", id(&default)))
        .await;
    assert_eq!(refused.error_code(), "nothing_in_common", "{refused:?}");
    assert!(refused.message().contains("hybrid, lexical"), "{refused:?}");
}
