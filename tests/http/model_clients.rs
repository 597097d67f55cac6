//! What clients that others wrote send to the drop-in endpoint, and what they need of it: their own
//! tools in view, namespaces, what was found in a conversation, one search, and the count of tokens.

use reqwest::Method;
use serde_json::{Value, json};

use super::model::{
    APIS, Api, Chat, Messages, Provider, Responses, Scripted, ask, find, names, start,
};
use super::server::{Answer, Server, read};

const SEARCH: &str = "tool_search";

/// A conversation with a request, and what the model was shown of its tools.
async fn shown(server: &Server, provider: &Provider, api: Api, request: &Value) -> Vec<String> {
    provider.reply(api.reply(9, "Done.", &[], false));
    let answer = server.post(api.path(), request).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    names(&provider.sent_json().pop().unwrap())
}

fn request_with(api: Api, tools: &Value, history: &Value) -> Value {
    let mut request = api.request(history, false);
    request["tools"] = tools.clone();
    request
}

fn question() -> Value {
    json!([Api::question("Will it rain in Bergen?")])
}

#[tokio::test]
async fn the_clients_own_tools_stay_in_view_beside_those_of_its_servers() {
    for api in APIS {
        for of_server in [
            "mcp__github__create_issue",
            "mcp_github_create_issue",
            "github__create_issue",
        ] {
            let (server, provider) = start(|_| {}).await;
            let tools = json!([
                api.tool("Plan", "Plans."),
                api.tool(of_server, "Creates an issue."),
                api.tool("Bash", "Runs a command."),
            ]);
            let request = request_with(api, &tools, &question());
            let visible = shown(&server, &provider, api, &request).await;
            assert_eq!(visible, ["Plan", "Bash", SEARCH], "{api:?}");
        }
        // Without names that tell servers, the well-known tools of coding agents are.
        let (server, provider) = start(|_| {}).await;
        let tools = json!([
            api.tool("bash", "Runs a command."),
            api.tool("read_file", "Reads a file."),
            api.tool("github_create_issue", "Creates an issue."),
            api.tool("edit", "Edits a file."),
        ]);
        let request = request_with(api, &tools, &question());
        let visible = shown(&server, &provider, api, &request).await;
        assert_eq!(visible, ["bash", "read_file", "edit", SEARCH], "{api:?}");
    }
}

#[tokio::test]
async fn own_tools_beyond_the_budget_are_found_by_searching() {
    for api in APIS {
        for (budget, expected) in [
            (0, vec![SEARCH]),
            (100, vec!["Bash", SEARCH]),
            (1_000, vec!["Plan", "Bash", SEARCH]),
        ] {
            let (server, provider) = start(|config| config.own_tools_tokens = budget).await;
            let tools = json!([
                api.tool("Plan", &"Plans much. ".repeat(100)),
                api.tool("mcp__github__create_issue", "Creates an issue."),
                api.tool("Bash", "Runs a command."),
            ]);
            let request = request_with(api, &tools, &question());
            let visible = shown(&server, &provider, api, &request).await;
            assert_eq!(visible, expected, "{api:?} {budget}");
        }
    }
}

/// Tools as Codex and Copilot send them: their own, and those of servers in namespaces.
fn in_namespaces() -> Value {
    let tool = |name: &str, description: &str| Responses.tool(name, description);
    json!([
        tool("exec_command", "Runs a command."),
        { "type": "namespace", "name": "mcp__mail__", "description": "Mail.", "tools": [
            tool("send", "Sends an email to a person."),
            tool("list", "Lists the emails in a folder."),
        ] },
        { "type": "web_search" },
        { "type": "namespace", "name": "mcp__weather__", "description": "Weather.", "tools": [
            tool("forecast", "Forecast of the weather for a city."),
        ] },
    ])
}

/// The names in the request's tools, those of a namespace after its name.
fn nested_names(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().unwrap();
    let name = |tool: &Value| {
        let name = tool.get("name").unwrap_or(&tool["type"]);
        name.as_str().unwrap().to_owned()
    };
    let nested = |tool: &Value| match tool["tools"].as_array() {
        None => vec![name(tool)],
        Some(inside) => inside
            .iter()
            .map(|inner| format!("{}{}", name(tool), name(inner)))
            .collect(),
    };
    tools.iter().flat_map(nested).collect()
}

fn call_in(namespace: &str, id: &str, name: &str) -> Value {
    json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name,
        "namespace": namespace, "arguments": "{}", "status": "completed" })
}

#[tokio::test]
async fn tools_in_namespaces_are_deferred_and_called_as_the_client_knows_them() {
    for streams in [false, true] {
        let (server, provider) = start(|_| {}).await;
        let search = ("s1", SEARCH, find("weather forecast for a city"));
        provider.reply(Responses.reply(1, "", &[search], streams));
        let mut body = Responses.body(2, "", &[]);
        body["output"] = json!([call_in("mcp__weather__", "c1", "forecast")]);
        provider.reply(match streams {
            true => Scripted::Events(Responses.events(&body)),
            false => Scripted::Json(200, body),
        });
        let mut request = Responses.request(&question(), streams);
        request["tools"] = in_namespaces();
        let answer = server.post(Responses.path(), &request).await;
        let output = match streams {
            true => Responses.joined(answer.body.as_str().unwrap())["output"].clone(),
            false => answer.body["output"].clone(),
        };
        let call = call_in("mcp__weather__", "c1", "forecast");
        assert_eq!(output, json!([call]), "{streams}");
        let [first, second] = provider.sent_json().try_into().unwrap();
        assert_eq!(nested_names(&first), ["exec_command", "web_search", SEARCH]);
        assert_eq!(
            nested_names(&second),
            [
                "exec_command",
                "web_search",
                SEARCH,
                "mcp__weather__forecast"
            ]
        );
        assert_eq!(second["tools"][3]["description"], "Weather.");
        if !streams {
            assert_eq!(answer.headers["x-toolscout-tools-offered"], "5");
            assert_eq!(answer.headers["x-toolscout-tools-shown"], "4");
        }
    }
}

#[tokio::test]
async fn ours_takes_the_place_of_a_search_beside_marked_namespaces() {
    let mut tools = in_namespaces();
    for namespace in [1, 3] {
        for tool in tools[namespace]["tools"].as_array_mut().unwrap() {
            tool["defer_loading"] = true.into();
        }
    }
    let with = |search: Value| {
        let mut tools = tools.clone();
        tools.as_array_mut().unwrap().push(search);
        let mut request = Responses.request(&question(), false);
        request["tools"] = tools;
        request
    };
    let (server, provider) = start(|_| {}).await;
    // However few tokens the others have, as marked ones are deferred.
    let request = with(json!({ "type": "tool_search" }));
    provider.reply(Responses.reply(1, "Hi.", &[], false));
    let sending = server
        .request(Method::POST, Responses.path())
        .json(&request);
    read(sending.header("x-toolscout-defer", "100000")).await;
    let sent = provider.sent_json().pop().unwrap();
    assert_eq!(nested_names(&sent), ["exec_command", "web_search", SEARCH]);
    assert!(!sent.to_string().contains("defer_loading"), "{sent}");
    // A search that the client carries out itself is another matter.
    let request = with(json!({ "type": "tool_search", "execution": "client" }));
    provider.reply(Scripted::Json(200, json!({ "any": "thing" })));
    server.post(Responses.path(), &request).await;
    assert_eq!(provider.sent_json().pop().unwrap(), request);
}

#[tokio::test]
async fn a_tool_of_a_namespace_that_was_called_stays_however_its_name_is_spelt() {
    let with_namespace = call_in("mcp__mail__", "c1", "send");
    let mut bare = with_namespace.clone();
    bare.as_object_mut().unwrap().shift_remove("namespace");
    let mut joined = bare.clone();
    joined["name"] = "mcp__mail__send".into();
    for call in [with_namespace, bare, joined] {
        let (server, provider) = start(|_| {}).await;
        let history = json!([
            Api::question("Send it."),
            call,
            Responses.result("c1", "sent")
        ]);
        let mut request = Responses.request(&history, false);
        request["tools"] = in_namespaces();
        provider.reply(Responses.reply(1, "Done.", &[], false));
        server.post(Responses.path(), &request).await;
        let sent = provider.sent_json().pop().unwrap();
        assert_eq!(
            nested_names(&sent),
            ["exec_command", "web_search", SEARCH, "mcp__mail__send"],
            "{call}"
        );
    }
}

/// Finds the forecast in a conversation's first request, and returns the history after the answer.
async fn after_a_find(server: &Server, provider: &Provider, api: Api) -> Value {
    let search = ("s1", SEARCH, find("weather forecast for a city"));
    provider.reply(api.reply(1, "", &[search], false));
    let forecast = ("c1", "weather_forecast", json!({ "a": "Bergen" }));
    provider.reply(api.reply(2, "", &[forecast], false));
    let mut history = question();
    ask(server, api, &mut history, false).await;
    history
}

/// A conversation in which calls and results are texts, as some frameworks write them.
fn as_texts() -> Value {
    json!([
        Api::question("Will it rain in Bergen?"),
        { "role": "assistant", "content": "Calling tools: [{'name': 'weather_forecast'}]" },
        { "role": "user", "content": "Observation: rain" },
    ])
}

#[tokio::test]
async fn what_was_found_stays_if_calls_are_written_as_texts_or_renamed() {
    for api in APIS {
        let (server, provider) = start(|_| {}).await;
        let original = after_a_find(&server, &provider, api).await;
        let text = original.to_string();
        let renamed: Value =
            serde_json::from_str(&text.replace("weather_forecast", "invalid")).unwrap();
        let mut renamed = renamed;
        let result = api.result("c1", "no such tool");
        renamed.as_array_mut().unwrap().push(result);
        for history in [as_texts(), renamed] {
            let request = api.request(&history, false);
            let visible = shown(&server, &provider, api, &request).await;
            assert_eq!(visible, [SEARCH, "weather_forecast"], "{api:?}: {history}");
        }
        // A further step of such a client keeps it too.
        let mut longer = as_texts();
        let further = as_texts();
        let steps = longer.as_array_mut().unwrap();
        steps.extend(further.as_array().unwrap()[1..].iter().cloned());
        let request = api.request(&longer, false);
        let visible = shown(&server, &provider, api, &request).await;
        assert_eq!(visible, [SEARCH, "weather_forecast"], "{api:?}");
        // Another conversation, and one that begins with the same words, begin anew.
        for history in [json!([Api::question("Hello.")]), question()] {
            let request = api.request(&history, false);
            let visible = shown(&server, &provider, api, &request).await;
            assert_eq!(visible, [SEARCH], "{api:?}: {history}");
        }
    }
}

#[tokio::test]
async fn what_was_found_stays_with_the_name_of_a_conversation_when_its_history_is_shortened() {
    let shortened = json!([
        Api::question("This is a summary of what was said before."),
        { "role": "assistant", "content": "I go on." },
        Api::question("And tomorrow?"),
    ]);
    for api in APIS {
        for (header, field) in [
            (Some("x-toolscout-conversation"), None),
            (Some("session_id"), None),
            (
                None,
                Some(json!({ "metadata": { "user_id": "user_a_session_b" } })),
            ),
            (None, Some(json!({ "prompt_cache_key": "b" }))),
        ] {
            let (server, provider) = start(|_| {}).await;
            let send = async |history: &Value| {
                let mut request = api.request(history, false);
                for (name, value) in field.iter().filter_map(Value::as_object).flatten() {
                    request[name] = value.clone();
                }
                let mut sending = server.request(Method::POST, api.path()).json(&request);
                if let Some(header) = header {
                    sending = sending.header(header, "b");
                }
                let answer: Answer = read(sending).await;
                assert_eq!(answer.status, 200, "{answer:?}");
                assert!(answer.headers.get("x-toolscout-ignored").is_none());
            };
            let search = ("s1", SEARCH, find("weather forecast for a city"));
            provider.reply(api.reply(1, "", &[search], false));
            provider.reply(api.reply(2, "It will rain.", &[], false));
            send(&question()).await;
            provider.reply(api.reply(3, "Rain again.", &[], false));
            send(&shortened).await;
            let visible = names(&provider.sent_json().pop().unwrap());
            let by = (header, &field);
            assert_eq!(visible, [SEARCH, "weather_forecast"], "{api:?} {by:?}");
        }
    }
}

#[tokio::test]
async fn what_was_found_stays_with_a_session_that_continues_an_unknown_response() {
    for name in ["session_id", "x-thread-id", "x-toolscout-conversation"] {
        let (server, provider) = start(|_| {}).await;
        let send = async |request: &Value| {
            let sending = server.request(Method::POST, Responses.path()).json(request);
            let answer = read(sending.header(name, "one")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        };
        let search = ("s1", SEARCH, find("weather forecast for a city"));
        provider.reply(Responses.reply(1, "", &[search], false));
        provider.reply(Responses.reply(2, "Rain.", &[], false));
        send(&Responses.request(&question(), false)).await;
        let mut request = Responses.request(&json!([Api::question("And tomorrow?")]), false);
        request["previous_response_id"] = "resp_of_another_server".into();
        provider.reply(Responses.reply(3, "Rain.", &[], false));
        send(&request).await;
        let visible = names(&provider.sent_json().pop().unwrap());
        assert_eq!(visible, [SEARCH, "weather_forecast"], "{name}");
    }
}

/// A search of the client's own, as Claude Code, qwen-code and our own gateway have one.
fn own_search(api: Api, name: &str) -> Value {
    let mut tool = api.tool(name, "Finds and loads deferred tools.");
    let schema = json!({ "type": "object", "properties": { "query": { "type": "string" } } });
    match api {
        Chat => tool["function"]["parameters"] = schema,
        Responses => tool["parameters"] = schema,
        Messages => tool["input_schema"] = schema,
    }
    tool
}

#[tokio::test]
async fn ours_steps_aside_where_the_client_searches_itself() {
    for api in APIS {
        let (server, provider) = start(|_| {}).await;
        for name in ["ToolSearch", "tool_search", "mcp__toolscout__tool_search"] {
            let mut tools = api.tools();
            tools[0]["defer_loading"] = true.into();
            tools.as_array_mut().unwrap().push(own_search(api, name));
            let request = request_with(api, &tools, &question());
            provider.reply(Scripted::Json(200, json!({ "any": "thing" })));
            let answer = server.post(api.path(), &request).await;
            assert_eq!(answer.body, json!({ "any": "thing" }), "{api:?} {name}");
            assert_eq!(provider.sent_json().pop().unwrap(), request);
        }
        // A header asks for a second search all the same.
        let tools = json!([api.tool("a", "d"), own_search(api, "tool_search")]);
        let request = request_with(api, &tools, &question());
        provider.reply(api.reply(1, "Hi.", &[], false));
        let sending = server.request(Method::POST, api.path()).json(&request);
        read(sending.header("x-toolscout-defer", "0")).await;
        let visible = names(&provider.sent_json().pop().unwrap());
        assert_eq!(visible, ["search_for_tools"], "{api:?}");
    }
}

#[tokio::test]
async fn results_of_another_search_in_a_conversation_leave_the_request_alone() {
    let reference = json!({ "role": "user", "content": [{ "type": "tool_result",
        "tool_use_id": "t1", "content": [
            { "type": "tool_reference", "tool_name": "weather_forecast" }] }] });
    let output = json!({ "type": "tool_search_output", "call_id": "t1", "tools": [] });
    let call = json!({ "type": "tool_search_call", "call_id": "t1", "arguments": {} });
    for (api, result) in [
        (Messages, reference),
        (Responses, output),
        (Responses, call),
    ] {
        let (server, provider) = start(|_| {}).await;
        let history = json!([Api::question("q"), result]);
        let mut request = api.request(&history, false);
        request["tools"][0]["defer_loading"] = true.into();
        for defer in ["0", "100000", ""] {
            provider.reply(Scripted::Json(200, json!({ "any": "thing" })));
            let mut sending = server.request(Method::POST, api.path()).json(&request);
            if !defer.is_empty() {
                sending = sending.header("x-toolscout-defer", defer);
            }
            read(sending).await;
            assert_eq!(provider.sent_json().pop().unwrap(), request, "{result}");
        }
    }
}

#[tokio::test]
async fn a_sub_agent_of_one_session_is_shown_what_it_found_itself() {
    for api in APIS {
        let (server, provider) = start(|_| {}).await;
        let send = async |history: &Value| {
            let mut request = api.request(history, false);
            request["metadata"] = json!({ "session_id": "one" });
            let answer = server.post(api.path(), &request).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            api.read(&answer, false).history
        };
        let search = ("s1", SEARCH, find("weather forecast for a city"));
        provider.reply(api.reply(1, "", &[search], false));
        provider.reply(api.reply(2, "It will rain.", &[], false));
        send(&question()).await;
        let mut history = json!([Api::question("Look into the files.")]);
        provider.reply(api.reply(3, "I looked.", &[], false));
        let said = send(&history).await;
        history.as_array_mut().unwrap().extend(said);
        history
            .as_array_mut()
            .unwrap()
            .push(Api::question("Go on."));
        provider.reply(api.reply(4, "Done.", &[], false));
        send(&history).await;
        assert_eq!(
            names(&provider.sent_json().pop().unwrap()),
            [SEARCH],
            "{api:?}"
        );
    }
}

#[tokio::test]
async fn tokens_are_counted_by_the_provider_with_the_tools_that_it_would_see() {
    for (api, path) in [
        (Messages, "/v1/messages/count_tokens"),
        (Messages, "/messages/count_tokens"),
        (Responses, "/v1/responses/input_tokens"),
    ] {
        let (server, provider) = start(|_| {}).await;
        let counted = json!({ "input_tokens": 1234 });
        provider.reply(Scripted::Json(200, counted.clone()));
        let request = api.request(&question(), false);
        let answer = server.post(path, &request).await;
        assert_eq!((answer.status.as_u16(), answer.body), (200, counted));
        assert_eq!(names(&provider.sent_json()[0]), [SEARCH], "{path}");
        // A refusal of the provider is its own.
        let refusal = json!({ "error": { "message": "no" } });
        provider.reply(Scripted::Json(400, refusal.clone()));
        let answer = server.post(path, &request).await;
        assert_eq!((answer.status.as_u16(), answer.body), (400, refusal));
    }
}

#[tokio::test]
async fn tokens_are_counted_here_where_the_provider_cannot() {
    for status in [404, 405, 501] {
        for (api, path) in [
            (Messages, "/v1/messages/count_tokens"),
            (Responses, "/v1/responses/input_tokens"),
        ] {
            let (server, provider) = start(|config| config.defer_above_tokens = 10_000).await;
            let mut counts = Vec::new();
            for tools in [json!([]), api.tools()] {
                provider.reply(Scripted::Json(status, json!({ "error": {} })));
                let request = request_with(api, &tools, &question());
                let answer = server.post(path, &request).await;
                assert_eq!(answer.status, 200, "{answer:?}");
                counts.push(answer.body["input_tokens"].as_u64().unwrap());
            }
            assert!(counts[0] > 4, "{counts:?}");
            assert!(counts[1] > counts[0] + 30, "{counts:?}");
        }
    }
}

#[tokio::test]
async fn a_client_that_asks_whether_the_server_runs_is_told() {
    let (server, _provider) = start(|_| {}).await;
    for accept in ["*/*", "application/json", "text/html"] {
        let request = server.request(Method::HEAD, "/").header("accept", accept);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200, "{accept}");
    }
}
