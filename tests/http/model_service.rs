//! What surrounds requests to a model's provider: other base URLs, paths that are no routes, headers,
//! and lines of the log.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolscout::keys::Scope;

use super::model::{APIS, Api, Chat, Messages, Provider, Responses, Scripted, start};
use super::program::Program;
use super::server::{PATIENCE, Server, key_in, read};

#[tokio::test]
async fn a_base_url_with_one_v1_too_few_or_too_many_is_served() {
    let (server, provider) = start(|_| {}).await;
    for api in APIS {
        let path = api.path().strip_prefix("/v1").unwrap();
        for base in ["", "/v1/v1"] {
            provider.reply(Scripted::Json(200, json!({ "any": base })));
            let asked = json!({ "model": "m" });
            let answer = server.post(&format!("{base}{path}"), &asked).await;
            assert_eq!(answer.body, json!({ "any": base }), "{base}{path}");
        }
        // The body may be as long as at the usual base URL.
        provider.reply(Scripted::Json(200, json!({ "any": "length" })));
        let long = json!({ "model": "m", "user": "x".repeat(2 << 20) });
        let answer = server.post(path, &long).await;
        assert_eq!(answer.body, json!({ "any": "length" }), "{path}");
    }
    for path in ["/models", "/v1/v1/models"] {
        provider.reply(Scripted::Json(200, json!({ "data": [] })));
        assert_eq!(server.get(path).await.body, json!({ "data": [] }), "{path}");
    }
}

#[tokio::test]
async fn paths_of_the_providers_that_are_no_routes_say_which_there_are() {
    let (server, _provider) = start(|_| {}).await;
    for path in [
        "/v1/completions",
        "/v1/chat/completion",
        "/images",
        "/v1/v1/moderations",
    ] {
        let answer = server.post(path, &json!({})).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.body["error"]["type"], "not_found_error");
        assert_eq!(answer.body["error"]["param"], Value::Null);
        let message = answer.message();
        assert!(
            message.starts_with(&format!("POST {path} is no route")),
            "{message}"
        );
        assert!(
            message.contains("POST /v1/chat/completions, /v1/responses"),
            "{message}"
        );
    }
    let batches = server.post("/v1/messages/other", &json!({})).await;
    assert_eq!(
        (batches.status.as_u16(), &batches.body["type"]),
        (404, &json!("error"))
    );
    let wrong = server.get("/v1/chat/completions").await;
    assert_eq!(wrong.status, 405);
    assert_eq!(wrong.body["error"]["type"], "invalid_request_error");
    assert_eq!(wrong.headers["allow"], "POST");
    let files = server.request(Method::GET, "/v1/skills");
    let files = read(files.header("anthropic-version", "2023-06-01")).await;
    assert_eq!(files.body["type"], "error", "{files:?}");
    // What belongs to none of them is told as everywhere else.
    let other = server.get("/v1/catalog").await;
    assert_eq!(
        (other.status.as_u16(), other.error_code()),
        (404, "not_found")
    );
    assert!(other.body["error"]["request_id"].is_string(), "{other:?}");
    let none = Server::start().await;
    let answer = none.post("/v1/completions", &json!({})).await;
    assert!(answer.body["error"]["request_id"].is_string(), "{answer:?}");
}

#[tokio::test]
async fn headers_that_are_not_known_are_named_in_the_answer() {
    let (server, provider) = start(|_| {}).await;
    for (api, streams) in APIS.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        provider.reply(api.reply(1, "Hi.", &[], streams));
        let request = api.request(&json!([Api::question("q")]), streams);
        let sending = server.request(Method::POST, api.path()).json(&request);
        let sending = sending
            .header("x-toolscout-pin", "mail_send")
            .header("x-toolscout-defer", "10");
        let answer = read(sending).await;
        assert_eq!(
            answer.headers["x-toolscout-ignored"], "x-toolscout-pin",
            "{api:?}"
        );
    }
    provider.reply(Chat.reply(1, "Hi.", &[], false));
    let request = Chat.request(&json!([Api::question("q")]), false);
    let plain = server.post(Chat.path(), &request).await;
    assert!(plain.headers.get("x-toolscout-ignored").is_none());
}

#[tokio::test]
async fn pages_of_other_origins_may_read_the_figures() {
    let server = Server::start_with(|settings| {
        settings.allowed_origins = vec!["https://app.example".into()];
    })
    .await;
    let request = server.request(Method::GET, "/version");
    let answer = read(request.header("origin", "https://app.example")).await;
    let exposed = answer.headers["access-control-expose-headers"]
        .to_str()
        .unwrap();
    for name in [
        "rounds",
        "searches",
        "tools-offered",
        "tools-shown",
        "tokens-saved",
        "ignored",
    ] {
        assert!(
            exposed.contains(&format!("x-toolscout-{name}")),
            "{exposed}"
        );
    }
    assert!(exposed.contains("x-request-id"), "{exposed}");
}

/// The program, whose log is kept.
struct Logged {
    program: Program,
    log: PathBuf,
    client: reqwest::Client,
    _data: TempDir,
}

impl Logged {
    async fn start(data: TempDir, arguments: &[&str]) -> Self {
        let log = data.path().join("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolscout"));
        command.stderr(File::create(&log).unwrap());
        let arguments = [&["--log-format", "json"][..], arguments].concat();
        Logged {
            program: Program::start_by(command, data.path(), &arguments).await,
            log,
            client: toolscout::tls::client().no_proxy().build().unwrap(),
            _data: data,
        }
    }

    async fn post(&self, path: &str, body: &Value, headers: &[(&str, &str)]) {
        let mut request = self.client.post(format!("{}{path}", self.program.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.json(body).send().await.unwrap();
        answer.bytes().await.unwrap();
    }

    /// The fields of the lines with this text, oldest first, once there are as many.
    async fn lines(&self, text: &str, number: usize) -> Vec<Value> {
        let reading = async {
            loop {
                let log = fs::read_to_string(&self.log).unwrap();
                let lines: Vec<Value> = log
                    .lines()
                    .filter_map(|line| serde_json::from_str(line).ok())
                    .filter(|line: &Value| line.to_string().contains(text))
                    .collect();
                if lines.len() >= number {
                    return lines;
                }
                tokio::task::yield_now().await;
            }
        };
        let read = tokio::time::timeout(PATIENCE, reading).await;
        read.unwrap_or_else(|_| panic!("{}", fs::read_to_string(&self.log).unwrap()))
    }
}

/// A field of a line, wherever the format of the log has it.
fn field<'l>(line: &'l Value, name: &str) -> &'l Value {
    line.get(name).unwrap_or(&line["fields"][name])
}

#[tokio::test]
async fn every_request_leaves_one_line_which_says_why_nothing_was_deferred() {
    let provider = Provider::start().await;
    let arguments = ["--llm", &provider.url, "--max-request-tools", "3"];
    let logged = Logged::start(tempfile::tempdir().unwrap(), &arguments).await;
    let tools = Chat.tools();
    let twins = json!([tools[0], tools[0]]);
    let four = json!([tools[0], tools[1], tools[2], Chat.tool("more", "d")]);
    let now = ("x-toolscout-defer", "0");
    let off = ("x-toolscout-defer", "off");
    let cases = [
        (json!({ "model": "m" }), vec![], "no_tools", 0, "passed"),
        (json!({ "tools": tools }), vec![], "short_list", 3, "passed"),
        (
            json!({ "tools": tools }),
            vec![off],
            "switched_off",
            3,
            "passed",
        ),
        (
            json!({ "tools": twins }),
            vec![now],
            "same_name",
            2,
            "passed",
        ),
        (
            json!({ "tools": tools, "n": 2 }),
            vec![now],
            "no_hidden_rounds",
            3,
            "passed",
        ),
        (
            json!({ "tools": "all" }),
            vec![now],
            "unreadable_tools",
            0,
            "passed",
        ),
        (
            json!({ "tools": tools }),
            vec![now],
            "unreadable_conversation",
            3,
            "passed",
        ),
        (json!([1]), vec![now], "unreadable_body", 0, "refused"),
        (
            json!({ "tools": four, "messages": [] }),
            vec![now],
            "",
            4,
            "too_many_tools",
        ),
        (
            json!({ "tools": tools, "messages": [] }),
            vec![now],
            "",
            3,
            "answered",
        ),
    ];
    for (body, headers, _, _, outcome) in &cases {
        match *outcome {
            "passed" => provider.reply(Scripted::Json(200, json!({ "any": "thing" }))),
            "refused" => provider.reply(Scripted::Json(400, json!({ "error": {} }))),
            "answered" => provider.reply(Chat.reply(1, "Hi.", &[], false)),
            _ => {}
        }
        logged.post(Chat.path(), body, headers).await;
    }
    let lines = logged.lines("\"model request\"", cases.len()).await;
    assert_eq!(lines.len(), cases.len(), "one line each");
    for (body, _, reason, offered, outcome) in &cases {
        let wanted = |line: &&Value| {
            field(line, "not_deferred").as_str().unwrap_or_default() == *reason
                && field(line, "outcome") == outcome
                && field(line, "tools_offered") == offered
        };
        let line = lines.iter().find(wanted);
        let line = line.unwrap_or_else(|| panic!("{reason} {body}: {lines:#?}"));
        let shown = field(line, "tools_shown");
        match *outcome {
            "passed" | "refused" => assert_eq!(shown, offered, "{line}"),
            "answered" => assert_eq!(shown, 1, "{line}"),
            _ => assert_eq!(shown, 0, "{line}"),
        }
    }
}

#[tokio::test]
async fn the_log_has_the_path_of_a_request_that_no_route_answers() {
    let provider = Provider::start().await;
    let logged = Logged::start(tempfile::tempdir().unwrap(), &["--llm", &provider.url]).await;
    let long = format!("/v1/{}", "x".repeat(1_000));
    let paths = ["/v1/completions", "/v1/messages/other", "/nothing", &long];
    for path in paths {
        logged
            .post(&format!("{path}?key=secret"), &json!({}), &[])
            .await;
    }
    let lines = logged.lines("\"unmatched\"", paths.len()).await;
    for (line, path) in lines.iter().zip(paths) {
        let told = field(line, "path").as_str().unwrap();
        assert!(path.starts_with(told.trim_end_matches('…')), "{line}");
        assert!(
            told.len() < 300 && !line.to_string().contains("secret"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn pins_and_headers_that_fit_nothing_are_warned_about_once() {
    let provider = Provider::start().await;
    let arguments = [
        "--llm",
        &provider.url,
        "--pin",
        "mail_*",
        "--pin",
        "github/*",
    ];
    let logged = Logged::start(tempfile::tempdir().unwrap(), &arguments).await;
    for api in [Chat, Responses, Messages] {
        provider.reply(api.reply(1, "Hi.", &[], false));
        let request = api.request(&json!([Api::question("q")]), false);
        let headers = [("x-toolscout-defer", "0"), ("x-toolscout-pin", "a")];
        logged.post(api.path(), &request, &headers).await;
    }
    logged.lines("\"model request\"", 3).await;
    let pins = logged.lines("a pin fits no tool", 1).await;
    assert_eq!(pins.len(), 1, "{pins:?}");
    assert_eq!(field(&pins[0], "pin"), "github/*");
    let headers = logged.lines("is not known", 1).await;
    assert_eq!(headers.len(), 1, "{headers:?}");
    assert_eq!(field(&headers[0], "header"), "x-toolscout-pin");
    // A pin that fits is obeyed, and one that does not is no error.
    for sent in provider.sent_json() {
        assert!(sent["tools"].to_string().contains("mail_send"), "{sent}");
    }
}

#[tokio::test]
async fn a_provider_that_would_be_asked_without_a_key_is_warned_about() {
    let elsewhere = "http://models.invalid/v1";
    for (arguments, has_keys, warns) in [
        (vec!["--llm", elsewhere], true, true),
        (vec!["--llm", elsewhere], false, false),
        (vec!["--llm", elsewhere, "--llm-key", "k"], true, false),
        (
            vec!["--llm", elsewhere, "--llm-key-from-client"],
            true,
            false,
        ),
        (vec![], true, false),
    ] {
        let data = tempfile::tempdir().unwrap();
        if has_keys {
            key_in(data.path(), Scope::Llm, "*", None);
        }
        let logged = Logged::start(data, &arguments).await;
        // It is warned about before the server is ready.
        let log = fs::read_to_string(&logged.log).unwrap();
        let is_told =
            log.contains("http://models.invalid") && log.contains("--llm-key-from-client");
        assert_eq!(is_told, warns, "{arguments:?}: {log}");
    }
}

#[tokio::test]
async fn a_provider_that_repeats_our_key_is_masked() {
    let key = "sk-ours/0123456789";
    let (server, provider) = start(|config| config.provider.key = Some(key.to_owned())).await;
    let base64 = STANDARD.encode(format!("user:{key}"));
    for echoed in [key, &base64, "sk-ours%2F0123456789"] {
        let message = format!("bad key Bearer {echoed}");
        let body = json!({ "error": { "message": message } });
        for api in APIS {
            for status in [200, 401, 500] {
                provider.reply(Scripted::Json(status, body.clone()));
                let request = api.request(&json!([Api::question("q")]), false);
                let answer = server.post(api.path(), &request).await;
                let text = answer.body.to_string();
                assert!(
                    !text.contains(echoed) && !text.contains(key),
                    "{api:?}: {text}"
                );
            }
            provider.reply(Scripted::Events(format!("data: {body}\n\n")));
            let request = api.request(&json!([Api::question("q")]), true);
            let sending = server.request(Method::POST, api.path()).json(&request);
            let text = sending.send().await.expect("an answer").text().await;
            let text = text.expect("a whole answer");
            assert!(
                !text.contains(echoed) && !text.contains(key),
                "{api:?}: {text}"
            );
        }
        provider.reply(Scripted::Json(200, body));
        let models = server.get("/v1/models").await;
        assert!(!models.body.to_string().contains(echoed), "{models:?}");
    }
}
