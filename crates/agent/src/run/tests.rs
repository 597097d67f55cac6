use serde_json::{Value, json};
use toolscout_index::{Match, ToolId};

use super::*;
use crate::event::CompactionReason;
use crate::prompt::Fence;
use toolscout_finder::finder::search::doubles::{ListedTools, tool};
use toolscout_finder::finder::search::{NoMatch, ToolSearch};
use toolscout_finder::finder::toolbox::ToolboxConfig;
use toolscout_gate::gate::Policies;
use toolscout_gate::llm::{ToolChoice, Usage};
use toolscout_gate::tools::Status;

/// Ten tokens for every text.
fn ten(_: &str) -> usize {
    10
}

fn listed_tools() -> ListedTools {
    let mut listed_tools = ListedTools::of(&[
        ("weather/forecast", "weather forecast for a city"),
        ("weather/history", "past weather of a city"),
        ("mail/send", "send mail to a person"),
        ("files/read", "read a file"),
    ]);
    let mut strict = (*tool("math/sqrt", "square root of a number")).clone();
    strict.input_schema =
        json!({ "type": "object", "properties": { "x": { "type": "number" } }, "required": ["x"] })
            .as_object()
            .unwrap()
            .clone();
    listed_tools.0.push(Arc::new(strict));
    listed_tools
}

fn new_run(config: RunConfig, toolbox: Toolbox, context: Context) -> Run {
    let gate = Arc::new(Gate::new(Policies::default()));
    Run::new(config, ten, toolbox, context, gate, Caller::default())
}

fn run_with(config: RunConfig) -> Run {
    let toolbox = Toolbox::new(
        ToolboxConfig {
            budget_tokens: 30,
            ..ToolboxConfig::default()
        },
        ten,
    );
    new_run(
        config,
        toolbox,
        Context::new("the question", Fence::new(), ten),
    )
}

fn run() -> Run {
    run_with(RunConfig::default())
}

fn text_reply(text: &str) -> Reply {
    Reply {
        text: text.into(),
        ..Reply::default()
    }
}

fn calls(calls: &[(&str, Value)]) -> Reply {
    let raw = |(name, arguments): &(&str, Value)| {
        let arguments = arguments
            .as_str()
            .map_or_else(|| arguments.to_string(), str::to_owned);
        RawCall {
            id: None,
            name: (*name).to_owned(),
            argument_bytes: arguments.len(),
            arguments,
        }
    };
    Reply {
        calls: calls.iter().map(raw).collect(),
        ..Reply::default()
    }
}

fn search(query: &str) -> Reply {
    calls(&[("tool_search", json!({ "query": query }))])
}

fn select(name: &str) -> Reply {
    search(&format!("select:{name}"))
}

fn request(run: &Run) -> ChatRequest {
    match run.next_step() {
        Step::CallModel(request) => request,
        other => panic!("expected a model call, got {other:?}"),
    }
}

fn work(run: &Run) -> Work {
    match run.next_step() {
        Step::CallTools(work) => work,
        other => panic!("expected work, got {other:?}"),
    }
}

fn outcome(run: &Run) -> Outcome {
    match run.next_step() {
        Step::Done(outcome) => outcome,
        other => panic!("expected the end, got {other:?}"),
    }
}

fn visible(run: &Run) -> Vec<String> {
    request(run)
        .tools
        .iter()
        .map(|tool| tool.name.clone())
        .collect()
}

/// What came of one search.
fn found_alone(found: Found) -> WorkDone {
    WorkDone {
        searches: vec![found],
        calls: Vec::new(),
    }
}

/// What came of one call that succeeded.
fn result_alone(data: Value) -> WorkDone {
    WorkDone {
        searches: Vec::new(),
        calls: vec![ToolResult::ok(data)],
    }
}

/// Answers the work by [`listed_tools`]. Every tool returns its own id.
fn answer_work(run: &mut Run) -> Vec<Event> {
    let work = work(run);
    let search_results = work
        .searches
        .iter()
        .map(|request| listed_tools().search(request))
        .collect();
    let results = work
        .calls
        .iter()
        .map(|call| ToolResult::ok(call.tool.id.as_str().into()))
        .collect();
    run.tools_answered(WorkDone {
        searches: search_results,
        calls: results,
    })
}

/// Takes the model's answer and answers the calls in it.
fn step(run: &mut Run, reply: Reply) -> Vec<Event> {
    let mut events = run.model_answered(reply);
    if matches!(run.next_step(), Step::CallTools(_)) {
        events.extend(answer_work(run));
    }
    events
}

/// The results the model sees, in order: id and content.
fn results(run: &Run) -> Vec<(String, String)> {
    let result = |message: Message| match message {
        Message::Tool {
            tool_call_id,
            content,
        } => Some((tool_call_id, unfenced(&content).1)),
        _ => None,
    };
    request(run)
        .messages
        .into_iter()
        .filter_map(result)
        .collect()
}

/// Source and text of a fenced result.
fn unfenced(content: &str) -> (String, String) {
    let (first, rest) = content.split_once('\n').unwrap();
    let (text, last) = rest.rsplit_once('\n').unwrap();
    let (marker, source) = first
        .strip_prefix("<<data ")
        .unwrap()
        .split_once(" from ")
        .unwrap();
    assert_eq!(last, format!("<<end {marker}>>"));
    (
        source.strip_suffix(">>").unwrap().to_owned(),
        text.to_owned(),
    )
}

fn last_result(run: &Run) -> String {
    results(run).pop().unwrap().1
}

#[test]
fn at_first_only_search_is_visible_and_found_tools_join_in_order() {
    let mut run = run();
    assert_eq!(visible(&run), ["tool_search"]);
    let events = step(&mut run, select("mail/send"));
    assert_eq!(visible(&run), ["tool_search", "mail__send"]);
    step(&mut run, select("weather/forecast"));
    assert_eq!(
        visible(&run),
        ["tool_search", "mail__send", "weather__forecast"]
    );
    let names: Vec<&str> = events.iter().map(Event::name).collect();
    assert_eq!(names, ["tool_search", "tools_injected"]);
    run.model_answered(text_reply("sunny"));
    assert_eq!(outcome(&run), Outcome::Answered("sunny".into()));
}

#[test]
fn asking_for_the_next_step_twice_gives_the_same() {
    let run = run();
    assert_eq!(request(&run), request(&run));
}

#[test]
fn searches_of_one_turn_are_merged_and_injected_once() {
    let mut run = run();
    let both = calls(&[
        ("tool_search", json!({ "query": "select:mail/send" })),
        (
            "tool_search",
            json!({ "queries": ["select:mail/send", "select:files/read"] }),
        ),
    ]);
    let events = step(&mut run, both);
    let injected: Vec<&Event> = events
        .iter()
        .filter(|event| event.name() == "tools_injected")
        .collect();
    assert_eq!(injected.len(), 1);
    assert_eq!(visible(&run), ["tool_search", "mail__send", "files__read"]);
    assert_eq!(results(&run).len(), 2);
}

#[test]
fn visible_hits_are_not_injected_twice() {
    let mut run = run();
    step(&mut run, select("mail/send"));
    let events = step(&mut run, select("mail/send"));
    assert!(events.iter().all(|event| event.name() != "tools_injected"));
    assert_eq!(last_result(&run), r#"{"already_visible":["mail__send"]}"#);
    assert_eq!(visible(&run), ["tool_search", "mail__send"]);
}

#[test]
fn no_match_gives_reasons_and_nearest_names() {
    let mut run = run();
    step(&mut run, search("zzz"));
    let result = last_result(&run);
    assert!(
        result.contains("no tool shares a word") && result.contains("nearest_names"),
        "{result}"
    );
}

#[test]
fn searching_in_a_row_is_bounded_and_a_call_resets_it() {
    let config = RunConfig {
        max_rounds: 20,
        ..RunConfig::default()
    };
    let mut run = run_with(config);
    for _ in 0..3 {
        step(&mut run, search("mail"));
    }
    step(&mut run, search("mail"));
    assert!(last_result(&run).contains("3 searches in a row are allowed"));
    step(&mut run, calls(&[("mail__send", json!({}))]));
    step(&mut run, search("mail"));
    assert!(last_result(&run).contains("already_visible"));
}

#[test]
fn results_go_back_in_call_order_under_their_ids_whatever_happened() {
    let mut run = run();
    step(
        &mut run,
        calls(&[(
            "tool_search",
            json!({ "queries": ["select:mail/send", "select:math/sqrt"] }),
        )]),
    );
    let mut reply = calls(&[
        ("math__sqrt", json!({ "x": "four" })),
        ("mail__send", json!({})),
        ("nope", json!({})),
        ("tool_search", json!({})),
        ("mail__send", json!("{broken")),
        ("mail__send", json!({})),
    ]);
    reply.calls[0].id = Some("same".into());
    reply.calls[1].id = Some("same".into());
    let events = step(&mut run, reply);
    let results: Vec<(String, String)> = results(&run).split_off(1);
    let ids: Vec<&str> = results.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "same", "call_2_1", "call_2_2", "call_2_3", "call_2_4", "call_2_5"
        ]
    );
    for ((_, content), expected) in results.iter().zip([
        // Whether the arguments fit is for the gate to say.
        "math/sqrt",
        "mail/send",
        "no visible tool is called \\\"nope\\\"",
        "the search is empty",
        "not valid JSON",
        "mail/send",
    ]) {
        assert!(
            content.contains(expected),
            "{content} should contain {expected}"
        );
    }
    let count = |name: &str| events.iter().filter(|event| event.name() == name).count();
    assert_eq!((count("tool_call"), count("tool_result")), (6, 6));
}

#[test]
fn whatever_a_model_calls_every_call_has_one_result_in_order() {
    let names = [
        "tool_search",
        "mail__send",
        "math__sqrt",
        "nope",
        "",
        "mail/send",
    ];
    let arguments = [
        r#"{"query":"mail"}"#,
        r#"{"query":"select:math/sqrt"}"#,
        "{}",
        "{broken",
        r#"{"x":4}"#,
        "[]",
    ];
    let ids = [None, Some("same"), Some(""), Some("other")];
    for seed in 0..300 {
        let mut random = toolscout_finder::finder::search::doubles::numbers(seed);
        let mut run = run_with(RunConfig {
            max_rounds: 7,
            max_calls: 3,
            ..RunConfig::default()
        });
        while matches!(run.next_step(), Step::CallModel(_)) {
            let call = |random: &mut dyn FnMut(usize) -> usize| {
                let arguments = arguments[random(arguments.len())].to_owned();
                let (id, name) = (ids[random(ids.len())], names[random(names.len())]);
                RawCall {
                    id: id.map(str::to_owned),
                    name: name.into(),
                    argument_bytes: arguments.len(),
                    arguments,
                }
            };
            let count = 1 + random(5);
            let calls = (0..count).map(|_| call(&mut random)).collect();
            run.model_answered(Reply {
                calls,
                ..Reply::default()
            });
            if let Step::CallTools(work) = run.next_step() {
                // Some searches and calls give nothing back at all.
                let search_results = work
                    .searches
                    .iter()
                    .map(|request| listed_tools().search(request))
                    .take(random(3))
                    .collect();
                let results = work
                    .calls
                    .iter()
                    .map(|_| ToolResult::ok(1.into()))
                    .take(random(3))
                    .collect();
                run.tools_answered(WorkDone {
                    searches: search_results,
                    calls: results,
                });
            }
            assert_paired(&run.messages(&[]), seed);
        }
    }
}

/// Each message with calls is followed by just their results, in their order, and no id is used
/// twice.
fn assert_paired(messages: &[Message], seed: u64) {
    let mut open = std::collections::VecDeque::new();
    let mut seen = BTreeSet::new();
    for message in messages {
        match message {
            Message::Tool { tool_call_id, .. } => {
                assert_eq!(open.pop_front().as_ref(), Some(tool_call_id), "seed {seed}")
            }
            other => {
                assert!(open.is_empty(), "seed {seed}: no result for {open:?}");
                let Message::Assistant { tool_calls, .. } = other else {
                    continue;
                };
                open.extend(tool_calls.iter().map(|call| call.id.clone()));
                assert!(
                    tool_calls.iter().all(|call| seen.insert(call.id.clone())),
                    "seed {seed}"
                );
            }
        }
    }
    assert!(open.is_empty(), "seed {seed}: no result for {open:?}");
}

#[test]
fn missing_results_count_as_failed() {
    let mut run = run();
    step(&mut run, select("mail/send"));
    run.model_answered(calls(&[
        ("mail__send", json!({})),
        ("mail__send", json!({})),
    ]));
    run.tools_answered(result_alone(json!("sent")));
    let results = results(&run);
    assert_eq!(results[1].1, "sent");
    assert!(results[2].1.contains("the call gave no result"));
}

#[test]
fn an_answer_of_refused_calls_goes_straight_back_to_the_model() {
    let mut run = run();
    run.model_answered(calls(&[("forecast", json!({}))]));
    assert!(last_result(&run).contains("`tool_search` finds others"));
    step(&mut run, select("weather/forecast"));
    run.model_answered(calls(&[("weather_forecst", json!({}))]));
    assert!(last_result(&run).contains("similar names are weather__forecast"));
}

#[test]
fn calls_and_arguments_are_bounded() {
    let mut run = run_with(RunConfig {
        max_calls: 2,
        ..RunConfig::default()
    });
    step(&mut run, select("mail/send"));
    let mut reply = calls(&[
        ("mail__send", json!({})),
        ("mail__send", json!({})),
        ("mail__send", json!({})),
    ]);
    reply.calls[0].argument_bytes = 10 << 20;
    step(&mut run, reply);
    let results = results(&run);
    assert!(
        results[1]
            .1
            .contains("the arguments have 10485760 bytes, 1048576 are allowed")
    );
    assert_eq!(results[2].1, "mail/send");
    assert!(results[3].1.contains("the limit is 2 calls in one answer"));
}

#[test]
fn long_results_are_cut_and_say_so() {
    let mut run = run_with(RunConfig {
        max_result_bytes: 100,
        ..RunConfig::default()
    });
    step(&mut run, select("mail/send"));
    run.model_answered(calls(&[("mail__send", json!({}))]));
    let events = run.tools_answered(result_alone(Value::String("x".repeat(50 << 20))));
    assert!(
        last_result(&run)
            .ends_with("[truncated: 52428800 bytes in all, the first 100 are shown; ask for less]")
    );
    let Event::ToolResult {
        truncated_from_bytes,
        ..
    } = &events[0]
    else {
        panic!("{events:?}")
    };
    assert_eq!(*truncated_from_bytes, Some(52_428_800));
}

#[test]
fn a_long_result_is_read_on_with_a_tool_that_comes_with_it() {
    let mut run = run_with(RunConfig {
        max_result_bytes: 100,
        max_rounds: 9,
        ..RunConfig::default()
    });
    let has_read_more = |run: &Run| {
        let tools = request(run).tools;
        tools.last().is_some_and(|tool| tool.name == "read_more")
    };
    step(&mut run, select("mail/send"));
    assert!(!has_read_more(&run));
    run.model_answered(calls(&[("mail__send", json!({}))]));
    let long = format!("{}end", "x".repeat(150));
    run.tools_answered(result_alone(Value::String(long)));
    assert!(has_read_more(&run));
    assert!(last_result(&run).contains("read_more with {\"output\": \"output_1\", \"from\": 100}"));

    let on = json!({ "output": "output_1", "from": 100 });
    let events = run.model_answered(calls(&[("read_more", on)]));
    assert_eq!(events.len(), 2, "the call and its result: {events:?}");
    let read = last_result(&run);
    assert!(
        read.ends_with("xend\n[bytes 100 to 153, the end of output_1]"),
        "{read}"
    );

    let wrong = json!({ "output": "output_7" });
    run.model_answered(calls(&[("read_more", wrong)]));
    assert!(last_result(&run).contains("there is no output"));
}

#[test]
fn in_the_last_round_tools_are_shown_and_not_callable() {
    let mut run = run_with(RunConfig {
        max_rounds: 3,
        ..RunConfig::default()
    });
    step(&mut run, search("mail"));
    let before = request(&run);
    assert_eq!(before.tool_choice, ToolChoice::Auto);
    step(&mut run, calls(&[("mail__send", json!({}))]));
    let last = request(&run);
    assert_eq!(
        (last.tool_choice, &last.tools),
        (ToolChoice::None, &before.tools)
    );
    assert!(last.messages.starts_with(&before.messages));
    assert_eq!(last.messages.last().unwrap().content(), prompt::LAST_ROUND);
    run.model_answered(text_reply("what I have"));
    assert_eq!(outcome(&run), Outcome::Answered("what I have".into()));
}

#[test]
fn a_model_that_never_stops_calling_fails_and_one_that_also_speaks_does_not() {
    let looping = || {
        run_with(RunConfig {
            max_rounds: 2,
            ..RunConfig::default()
        })
    };
    let mut run = looping();
    step(&mut run, search("mail"));
    // Some servers do not prevent the call: the round is repeated once, without tools.
    assert!(run.model_answered(search("mail")).is_empty());
    assert!(request(&run).tools.is_empty());
    assert!(run.model_answered(search("mail")).is_empty());
    assert!(
        matches!(outcome(&run), Outcome::Failed(reason) if reason.contains("no answer in 3 rounds"))
    );

    let mut run = looping();
    step(&mut run, search("mail"));
    run.model_answered(Reply {
        text: "so far".into(),
        ..search("mail")
    });
    assert_eq!(outcome(&run), Outcome::Answered("so far".into()));
}

#[test]
fn an_empty_answer_is_pointed_out_once() {
    let mut run = run();
    run.model_answered(text_reply("  "));
    assert_eq!(
        request(&run).messages.last().unwrap().content(),
        prompt::EMPTY_ANSWER
    );
    run.model_answered(text_reply(""));
    assert!(matches!(outcome(&run), Outcome::Failed(_)));
}

#[test]
fn the_model_is_told_what_was_unloaded_and_how_it_comes_back() {
    let mut run = run_with(RunConfig {
        max_rounds: 20,
        max_searches: 20,
        ..RunConfig::default()
    });
    for name in ["mail/send", "files/read", "weather/history"] {
        step(&mut run, select(name));
    }
    let events = step(&mut run, select("weather/forecast"));
    assert!(events.contains(&Event::ToolsEvicted {
        tools: vec![
            tool("mail/send", "").id.clone(),
            tool("files/read", "").id.clone()
        ],
        reason: EvictionReason::Budget,
        budget: ToolBudget {
            used: 10,
            limit: Some(30),
        },
    }));
    assert!(last_result(&run).contains(r#""unloaded":["mail__send","files__read"]"#));
    run.model_answered(calls(&[("mail__send", json!({}))]));
    assert!(
        last_result(&run)
            .contains("it was unloaded; `tool_search` with `select:mail__send` brings it back")
    );
}

#[test]
fn the_next_turn_begins_with_what_was_called_and_unloaded() {
    let mut first = run_with(RunConfig {
        max_rounds: 20,
        max_searches: 20,
        ..RunConfig::default()
    });
    step(&mut first, select("mail/send"));
    step(&mut first, calls(&[("mail__send", json!({}))]));
    let mut toolbox = first.toolbox().clone();
    toolbox.begin_turn();
    let listed_tools = listed_tools();
    let others = ["weather/forecast", "weather/history", "files/read"]
        .map(|id| listed_tools.tool(&ToolId::parse(id).unwrap()));
    toolbox.inject(&others.map(Option::unwrap));
    let next = new_run(
        RunConfig::default(),
        toolbox.clone(),
        Context::new("and now?", Fence::new(), ten),
    );
    // The question alone, as later turns have it, and then the notice.
    let messages = request(&next).messages;
    assert_eq!(messages[1].content(), "and now?");
    assert!(
        messages[2]
            .content()
            .starts_with("[Tools you called before were unloaded: \"mail__send\".")
    );
    let config = RunConfig {
        find: None,
        ..RunConfig::default()
    };
    let without_search = new_run(config, toolbox, Context::new("and now?", Fence::new(), ten));
    assert_eq!(
        request(&without_search).messages.pop().unwrap().content(),
        "and now?"
    );
}

#[test]
fn without_usage_a_manual_round_counts_its_tools_once() {
    let mut run = run_with(RunConfig {
        protocol: Protocol::Manual,
        ..RunConfig::default()
    });
    run.model_answered(text_reply(r#"{"final_answer":"yes"}"#));
    // System message and question; the tools are part of the former.
    assert_eq!(
        (run.figures().tokens_in, run.figures().tokens_out),
        (20, 10)
    );
}

#[test]
fn a_tool_with_an_open_call_is_not_evicted_by_a_search_beside_it() {
    let mut run = run_with(RunConfig {
        max_rounds: 20,
        max_searches: 20,
        ..RunConfig::default()
    });
    for name in ["mail/send", "files/read", "weather/history"] {
        step(&mut run, select(name));
    }
    step(
        &mut run,
        calls(&[
            ("mail__send", json!({})),
            ("tool_search", json!({ "query": "select:weather/forecast" })),
        ]),
    );
    assert_eq!(
        visible(&run),
        ["tool_search", "mail__send", "weather__forecast"]
    );
}

#[test]
fn within_a_run_without_eviction_each_tool_list_begins_with_the_one_before() {
    let mut run = run_with(RunConfig {
        max_rounds: 9,
        max_searches: 9,
        ..RunConfig::default()
    });
    let mut before = visible(&run);
    for name in ["weather/history", "mail/send", "files/read"] {
        step(&mut run, select(name));
        let now = visible(&run);
        assert_eq!(now[..before.len()], before);
        before = now;
    }
}

#[test]
fn dispatch_keeps_its_tool_list_and_calls_what_was_found() {
    let mut run = run_with(RunConfig {
        style: Style::Dispatch,
        ..RunConfig::default()
    });
    let constant = ["tool_search", "call_tool"];
    assert_eq!(visible(&run), constant);
    step(&mut run, select("math/sqrt"));
    assert_eq!(visible(&run), constant);
    assert!(last_result(&run).contains(r#""parameters":{"type":"object""#));
    step(
        &mut run,
        calls(&[
            (
                "call_tool",
                json!({ "name": "math__sqrt", "arguments": { "x": 4 } }),
            ),
            (
                "call_tool",
                json!({ "name": "math/sqrt", "arguments": "{\"x\":\"four\"}" }),
            ),
            ("call_tool", json!({ "name": "mail__send" })),
            ("call_tool", json!({ "arguments": {} })),
        ]),
    );
    let results = results(&run).split_off(1);
    for ((_, content), expected) in results.iter().zip([
        "math/sqrt",
        "math/sqrt",
        "no visible tool",
        "`name` is missing",
    ]) {
        assert!(content.contains(expected), "{content}");
    }
}

#[test]
fn a_search_is_answered_where_all_tools_are_shown() {
    let mut toolbox = Toolbox::new(ToolboxConfig::default(), ten);
    listed_tools()
        .0
        .into_iter()
        .for_each(|tool| toolbox.pin(tool));
    let config = RunConfig {
        shows_all: true,
        ..RunConfig::default()
    };
    let mut run = new_run(config, toolbox, Context::new("q", Fence::new(), ten));
    let shown = visible(&run);
    assert_eq!(shown.len(), 5);
    assert!(!shown.contains(&"tool_search".to_owned()));
    step(&mut run, search("select:mail/send"));
    let answer = last_result(&run);
    assert!(answer.contains("already_visible"), "{answer}");
    let by_name = json!({ "name": "mail__send", "arguments": {} });
    step(&mut run, calls(&[("call_tool", by_name)]));
    assert!(last_result(&run).contains("mail/send"));
    assert_eq!(visible(&run), shown);
}

#[test]
fn manual_mode_reads_json_and_answers_in_words() {
    let mut run = run_with(RunConfig {
        protocol: Protocol::Manual,
        ..RunConfig::default()
    });
    let first = request(&run);
    assert!(first.tools.is_empty());
    assert!(
        first.messages[0]
            .content()
            .contains("# Tools\n{\"name\":\"tool_search\"")
    );
    let reply = text_reply(
        "```json\n{\"thought\":\"look\",\"actions\":[{\"tool\":\"tool_search\",\"arguments\":{\"query\":\"select:mail/send\"}}]}\n```",
    );
    let events = step(&mut run, reply);
    assert_eq!(
        events[0],
        Event::Thinking {
            content: "look".into()
        }
    );
    assert!(request(&run).messages[0].content().contains("mail__send"));
    step(
        &mut run,
        text_reply(
            r#"{"actions":[{"tool":"mail__send"},{"tool":"nope"}],"final_answer":"done already"}"#,
        ),
    );
    let last = request(&run).messages.last().unwrap().clone();
    let (first, second) = last.content().split_once("\n2. nope:\n").unwrap();
    let first = unfenced(
        first
            .strip_prefix("Results of your actions:\n1. mail__send:\n")
            .unwrap(),
    );
    assert_eq!(first, ("mail/send".to_owned(), "mail/send".to_owned()));
    let (source, text) = unfenced(second);
    assert!(
        source == "toolscout" && text.starts_with("{\"error\""),
        "{source}: {text}"
    );
    let events = run.model_answered(text_reply(
        r#"{"thought":"","actions":[],"final_answer":"sent"}"#,
    ));
    assert_eq!(
        events,
        [Event::Text {
            content: "sent".into()
        }]
    );
    assert_eq!(outcome(&run), Outcome::Answered("sent".into()));
}

#[test]
fn a_manual_run_ends_in_its_last_round_with_what_it_has() {
    let mut run = run_with(RunConfig {
        protocol: Protocol::Manual,
        max_rounds: 1,
        ..RunConfig::default()
    });
    run.model_answered(text_reply(
        r#"{"actions":[{"tool":"x"}],"final_answer":"a guess"}"#,
    ));
    assert_eq!(outcome(&run), Outcome::Answered("a guess".into()));
}

#[test]
fn a_refresh_clears_the_context_and_keeps_the_facts() {
    let config = RunConfig {
        refresh_interval: Some(2),
        max_rounds: 9,
        ..RunConfig::default()
    };
    let mut run = run_with(config);
    step(&mut run, select("mail/send"));
    assert_eq!(request(&run).messages.len(), 4);
    step(
        &mut run,
        Reply {
            text: "then I report".into(),
            ..calls(&[("mail__send", json!({}))])
        },
    );
    let messages = request(&run).messages;
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1].content(), "the question");
    let facts = messages[2].content();
    assert!(facts.starts_with("Facts found so far:\n- mail__send({}):\n<<data "));
    assert!(facts.contains(" from mail/send>>\nmail/send\n<<end "));
    assert!(facts.ends_with("\n\nYour plan so far: then I report"));
    assert_eq!(visible(&run), ["tool_search", "mail__send"]);
    // They stay in every request to the last one.
    while !matches!(run.next_step(), Step::Done(_)) {
        let request = request(&run);
        assert!(request.messages.starts_with(&messages));
        let reply = match request.tool_choice {
            ToolChoice::Auto => calls(&[("mail__send", json!({}))]),
            ToolChoice::None => text_reply("done"),
        };
        step(&mut run, reply);
    }
    assert_eq!(run.figures().rounds, 9);
}

#[test]
fn a_prompt_is_compacted_before_the_limit_and_once_after_a_refusal() {
    let config = RunConfig {
        context_tokens: 120,
        max_rounds: 99,
        ..RunConfig::default()
    };
    let mut run = run_with(config);
    step(&mut run, select("mail/send"));
    let mut compactions = 0;
    for _ in 0..20 {
        step(&mut run, calls(&[("mail__send", json!({}))]));
        if let Some(event) = run.fit_context() {
            compactions += 1;
            let Event::ContextCompacted {
                reason: CompactionReason::Limit,
                tokens_before,
                tokens,
                limit: 120,
            } = event
            else {
                panic!("{event:?}");
            };
            assert!(tokens_before > 120 && tokens <= 84, "{tokens}");
        }
        assert_paired(&request(&run).messages, 0);
    }
    assert!((1..20).contains(&compactions), "{compactions}");
    assert!(
        request(&run).messages[2]
            .content()
            .contains("mail__send({})")
    );

    let refused = run.context_refused(None);
    assert!(matches!(
        refused,
        Some(Event::ContextCompacted {
            reason: CompactionReason::Refused,
            ..
        })
    ));
    assert_eq!(run.context_refused(None), None, "twice in one round");
}

#[test]
fn a_stopped_run_gives_open_calls_their_result_and_is_over() {
    let mut run = run();
    step(&mut run, select("mail/send"));
    run.model_answered(calls(&[
        ("mail__send", json!({})),
        ("tool_search", json!({ "query": "x" })),
    ]));
    let events = run.cancel();
    let [
        Event::ToolResult {
            status, error_code, ..
        },
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (*status, *error_code),
        (Status::Error, Some(ErrorCode::Cancelled))
    );
    assert!(run.tools_answered(WorkDone::default()).is_empty());
    assert!(matches!(run.next_step(), Step::Done(Outcome::Failed(_))));
}

#[test]
fn figures_add_up() {
    let mut run = run();
    let usage = Some(Usage {
        input: 100,
        output: 7,
    });
    step(
        &mut run,
        Reply {
            usage,
            ..select("mail/send")
        },
    );
    step(
        &mut run,
        calls(&[("mail__send", json!({})), ("mail__send", json!({}))]),
    );
    run.model_answered(Reply {
        usage,
        ..text_reply("ok")
    });
    let figures = run.figures();
    assert_eq!(
        (figures.rounds, figures.searches, figures.tools_injected),
        (3, 1, 1)
    );
    assert_eq!(figures.tools_used, ["mail/send"]);
    // The second round came without usage: four messages, a call of two texts and two tools, and an
    // answer with two calls, each text of ten tokens.
    assert_eq!(
        (
            figures.tokens_in,
            figures.tokens_out,
            figures.tokens_estimated
        ),
        (280, 64, true)
    );
    assert_eq!(run.shown_tokens(), 10 + 20 + 20);
}

#[test]
fn failing_searches_are_answers_too() {
    let mut run = run();
    run.model_answered(search("mail"));
    let no_match = Some(NoMatch {
        reason: "the index cannot be read".into(),
        nearest: Vec::new(),
    });
    run.tools_answered(found_alone(Found {
        no_match,
        ..Found::default()
    }));
    assert!(last_result(&run).contains("the index cannot be read"));
}

#[test]
fn a_model_that_searches_in_circles_is_told_until_it_calls_a_tool() {
    let config = RunConfig {
        max_rounds: 9,
        ..RunConfig::default()
    };
    let mut run = run_with(config);
    let told = |run: &mut Run| {
        run.model_answered(search("mail"));
        let mut found = listed_tools().search(&work(run).searches[0]);
        found.matched = Some(Match::Possible);
        run.tools_answered(found_alone(found));
        let answer: Value = serde_json::from_str(&last_result(run)).unwrap();
        answer["repeated"].as_str().map(str::to_owned)
    };
    assert_eq!(told(&mut run), None);
    assert!(told(&mut run).unwrap().contains("found the same tools"));
    assert!(told(&mut run).unwrap().contains("Stop searching"));
    let name = visible(&run).pop().unwrap();
    step(&mut run, calls(&[(&name, json!({}))]));
    assert_eq!(told(&mut run), None);
}

#[test]
fn a_search_on_the_web_is_announced_before_its_call() {
    let mut toolbox = Toolbox::new(ToolboxConfig::default(), ten);
    toolbox.pin(tool("files/read", "read a file"));
    toolbox.pin(tool("web/web_search", "search the web"));
    let config = RunConfig {
        announced: vec!["web_search".into()],
        ..RunConfig::default()
    };
    let question = "谁赢得了环法自行车赛?";
    let mut run = new_run(config, toolbox, Context::new(question, Fence::new(), ten));
    let events = run.model_answered(calls(&[
        ("files__read", json!({ "query": "notes" })),
        ("web__web_search", json!({ "query": "环法 冠军" })),
    ]));
    assert!(matches!(&events[0], Event::ToolCall { name, .. } if name == "files__read"));
    assert_eq!(
        events[1],
        Event::Thinking {
            content: "🔍 正在搜索信息: 环法 冠军".into()
        }
    );
    assert!(matches!(&events[2], Event::ToolCall { name, .. } if name == "web__web_search"));
}
