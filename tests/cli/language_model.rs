//! Providers of models: what `doctor` says of them, and Anthropic's API. Beside the doubles here,
//! `scripts/real-model` asks a real model in both APIs.

use serde_json::{Value, json};

use super::double::{Double, Reply, Request};
use super::run::{Ended, World, says};

/// What the doctor says of the language model, and its exit code.
fn doctor(world: &World, args: &[&str]) -> (Value, i32) {
    let ended = world.run(&[&["doctor", "--json"], args].concat());
    let checks: Vec<Value> = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", ended.stderr));
    let check = checks
        .into_iter()
        .find(|check| check["name"] == "language model");
    (check.expect("a check of the language model"), ended.code)
}

/// A server that answers as Ollama does: two models, of which one calls tools.
fn ollama() -> Double {
    Double::start(|_, request| {
        let answer = match request.line.split(' ').nth(1).unwrap_or_default() {
            "/v1/models" => json!({ "data": [{ "id": "qwen3:8b" }, { "id": "gemma:latest" }] }),
            "/api/version" => json!({ "version": "0.12.0" }),
            "/api/show" if request.body["model"] == "qwen3:8b" => {
                json!({ "capabilities": ["completion", "tools"] })
            }
            "/api/show" => json!({ "capabilities": ["completion"] }),
            _ => return Reply::status(404, "404 page not found"),
        };
        Reply::status(200, &answer.to_string())
    })
}

#[test]
fn the_models_of_ollama_are_listed_with_what_they_can() {
    let (world, ollama) = (World::new(), ollama());
    let url = format!("{}/v1", ollama.url);
    let (check, code) = doctor(&world, &["--llm", &url]);
    assert_eq!((&check["state"], code), (&json!("ok"), 0), "{check}");
    let detail = check["detail"].as_str().unwrap();
    assert!(
        detail.ends_with("has 2 models: qwen3:8b (calls tools), gemma:latest (no tools)"),
        "{detail}"
    );
    assert_eq!(check["mend"], "choose one, as --model qwen3:8b");

    let cases = [
        ("qwen3:8b", "ok", "qwen3:8b at ", None),
        (
            "gemma",
            "ok",
            "gemma:latest at ",
            Some(
                "use it with --mode manual, or choose one that calls tools, as `ollama pull qwen3:8b`",
            ),
        ),
        (
            "llama3.3",
            "broken",
            "no llama3.3; ",
            Some("`ollama pull llama3.3`"),
        ),
    ];
    for (model, state, detail, remedy) in cases {
        let (check, code) = doctor(&world, &["--llm", &url, "--model", model]);
        assert_eq!(check["state"], state, "{check}");
        assert_eq!(code, i32::from(state == "broken"));
        assert!(
            check["detail"].as_str().unwrap().contains(detail),
            "{check}"
        );
        assert_eq!(check["mend"].as_str(), remedy);
    }
}

#[test]
fn a_model_without_tool_calls_is_asked_by_hand() {
    let world = World::new();
    world.ok(&[
        "add",
        concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tools"),
    ]);
    // As Ollama refuses tools, and a model that answers in JSON without them.
    let double = Double::start(|_, request| {
        if request.body.get("tools").is_some() {
            let message = "registry.example/deepseek-r1:7b does not support tools";
            let error = json!({ "error": { "message": message } });
            return Reply::status(400, &error.to_string());
        }
        let turn = request.body["messages"].as_array().map_or(0, Vec::len);
        let content = match turn {
            2 => r#"{"tool": "tool_search", "query": "weather forecast"}"#,
            _ => r#"{"final_answer": "found"}"#,
        };
        let message = json!({ "role": "assistant", "content": content });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        Reply::status(200, &json!({ "choices": [choice] }).to_string())
    });
    let ask = |args: &[&str]| {
        let model = ["--llm", &double.url, "--model", "deepseek-r1:7b"];
        world.run(&[&["agent"], &model[..], args, &["will it rain?"]].concat())
    };
    let native = ask(&[]);
    assert_eq!(native.code, 1);
    assert!(native.stderr.contains("--mode manual"), "{}", native.stderr);
    let manual = ask(&["--mode", "manual"]);
    assert_eq!(manual.stdout, "found\n", "{}", manual.stderr);
    says(&manual.stderr, "[search] weather forecast -> ");
}

#[test]
fn a_provider_that_does_not_answer_is_named_with_the_next_step() {
    let world = World::new();
    let refusing = Double::start(|_, _| Reply::status(401, "no key"));
    let page = Double::start(|_, _| Reply::status(200, "<html>"));
    let refused = format!("{}/v1", refusing.url);
    let cases = [
        (
            refused.as_str(),
            "/models answered 401",
            "set --llm-key or TOOLSCOUT_LLM_KEY",
        ),
        (
            &page.url,
            "is no list of models",
            "--llm must be the base URL of the API",
        ),
        (
            "http://127.0.0.1:9/v1",
            "cannot be reached",
            "start it, or correct --llm",
        ),
    ];
    for (url, detail, remedy) in cases {
        let (check, code) = doctor(&world, &["--llm", url]);
        assert_eq!((&check["state"], code), (&json!("broken"), 1), "{check}");
        assert!(
            check["detail"].as_str().unwrap().contains(detail),
            "{check}"
        );
        assert!(
            check["mend"].as_str().unwrap().starts_with(remedy),
            "{check}"
        );
    }
    assert_eq!(refusing.requests()[0].header("authorization"), None);
}

/// The answer of a server with Anthropic's API: a search first, then a text.
fn answer_of_anthropic(request: &Request) -> Reply {
    let is_first = request.body["messages"]
        .as_array()
        .is_some_and(|all| all.len() == 1);
    let content = if is_first {
        json!([{ "type": "tool_use", "id": "toolu_1", "name": "tool_search", "input": { "query": "weather" } }])
    } else {
        json!([{ "type": "text", "text": "It will rain." }])
    };
    let stop_reason = if is_first { "tool_use" } else { "end_turn" };
    let answer = json!({
        "type": "message", "role": "assistant", "content": content, "stop_reason": stop_reason,
        "usage": { "input_tokens": 12, "output_tokens": 3 },
    });
    Reply::status(200, &answer.to_string())
}

#[test]
fn the_agent_speaks_the_api_of_anthropic() {
    let world = World::new();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tools");
    world.ok(&["add", tools]);
    let double = Double::start(|_, request| answer_of_anthropic(request));
    let mut command = world.command();
    command.env("ANTHROPIC_API_KEY", "of another provider");
    command.args([
        "agent",
        "--llm",
        &double.url,
        "--llm-api",
        "anthropic",
        "--llm-key",
        "k",
    ]);
    command.args(["--model", "m", "will it rain?"]);
    let ended = Ended::of(command.output());
    assert_eq!(ended.stdout.trim(), "It will rain.", "{}", ended.stderr);

    let requests = double.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert!(
            request.line.starts_with("POST /messages "),
            "{}",
            request.line
        );
        assert_eq!(request.header("x-api-key"), Some("k"));
        assert_eq!(request.header("anthropic-version"), Some("2023-06-01"));
        assert_eq!(request.body["tools"][0]["name"], "tool_search");
    }
    let result = &requests[1].body["messages"][2]["content"][0];
    assert_eq!(result["tool_use_id"], "toolu_1");
    assert!(
        result["content"].as_str().unwrap().contains("weather"),
        "{result}"
    );
}

/// A server that answers in each of the APIs, with the text "yes".
fn any_provider() -> Double {
    Double::start(|_, request| {
        let answer = match request.line.split(' ').nth(1).unwrap_or_default() {
            "/v1/chat/completions" => {
                json!({ "choices": [{ "message": { "content": "yes" }, "finish_reason": "stop" }] })
            }
            "/v1/messages" => {
                json!({ "type": "message", "role": "assistant", "stop_reason": "end_turn",
                "content": [{ "type": "text", "text": "yes" }] })
            }
            "/api/chat" => {
                json!({ "message": { "role": "assistant", "content": "yes" }, "done": true })
            }
            _ => return Reply::status(404, "404 page not found"),
        };
        Reply::status(200, &answer.to_string())
    })
}

#[test]
fn parameters_of_flag_profile_and_settings_reach_the_provider() {
    let world = World::new();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tools");
    world.ok(&["add", tools]);
    let double = any_provider();
    let url = format!("{}/v1", double.url);
    let settings = world.file(
        "c.toml",
        "[agent.model]\nmax_tokens = 900\ntemperature = 0.1",
    );
    let profile = world.file("p.toml", "[model]\ntemperature = 0.5\nstop = [\"END\"]");
    let ask = |more: &[&str]| {
        let mut args = vec![
            "--config",
            settings.to_str().unwrap(),
            "agent",
            "--llm",
            &url,
        ];
        args.extend(["--profile", profile.to_str().unwrap(), "--llm-key", "k"]);
        args.extend(more);
        args.push("is it so?");
        let ended = world.run(&args);
        assert_eq!(
            (ended.code, ended.stdout.trim()),
            (0, "yes"),
            "{}",
            ended.stderr
        );
        double.requests().pop().unwrap().body
    };
    let low = ["--reasoning-effort", "low"];
    let body = ask(&low);
    assert_eq!(
        (&body["max_tokens"], &body["temperature"]),
        (&json!(900), &json!(0.5))
    );
    assert_eq!(body["stop"], json!(["END"]));
    assert_eq!(body["reasoning_effort"], "low");

    let body = ask(&[
        &low[..],
        &["--llm-api", "anthropic", "--temperature", "0.7"],
    ]
    .concat());
    assert_eq!(
        (&body["max_tokens"], &body["temperature"]),
        (&json!(900), &json!(0.7))
    );
    assert_eq!(body["stop_sequences"], json!(["END"]));
    assert_eq!(body["output_config"], json!({ "effort": "low" }));

    let body = ask(&[&low[..], &["--llm-api", "ollama", "--num-ctx", "16000"]].concat());
    assert_eq!(
        body["options"],
        json!({ "num_ctx": 16000, "num_predict": 900, "temperature": 0.5, "stop": ["END"] })
    );
    assert_eq!(body["think"], "low");
}

#[test]
fn a_parameter_that_the_provider_does_not_have_is_refused_at_the_start() {
    let world = World::new();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/tools");
    world.ok(&["add", tools]);
    let num_ctx = [
        "agent",
        "--llm",
        "http://127.0.0.1:9/v1",
        "--num-ctx",
        "9000",
        "q",
    ];
    world.fails(
        1,
        &num_ctx,
        &["cannot be given num_ctx", "--llm-api ollama"],
    );
    let file = world.file("c.toml", "[agent.limits]\nidle_turns = 0");
    world.fails(
        1,
        &["--config", file.to_str().unwrap(), "list"],
        &["agent.limits.idle_turns is 0, it must be from 1"],
    );
}
