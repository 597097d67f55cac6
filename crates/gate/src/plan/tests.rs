use serde_json::json;

use super::*;
use crate::gate::{Caller, Gate, Policies};

const ONE: &str = r#"{"actions":[{"action":"a","arguments":{"n":1}}],"final_answer":null}"#;

fn plan(text: &str) -> Plan {
    match read(text) {
        Reading::Plan(plan) => plan,
        other => panic!("{other:?} is no plan"),
    }
}

fn broken(text: &str) -> String {
    match read(text) {
        Reading::Broken(problems) => problems.join("; "),
        other => panic!("{other:?} is not broken"),
    }
}

#[test]
fn a_plan_is_found_pure_fenced_in_noise_and_after_other_json() {
    for text in [
        ONE.to_owned(),
        format!("```json\n{ONE}\n```"),
        format!(
            "Sure {{not json}}! First {{\"weather\": 1}}, then:\n{ONE}\nand {{\"actions\":[{{\"action\":\"b\"}}]}}"
        ),
        format!("{{\"plan\": {ONE}}}"),
        ONE.replace("}]", "},]").replace("null}", "null,}"),
    ] {
        let plan = plan(&text);
        assert_eq!(
            (
                plan.steps.len(),
                plan.steps[0].action.as_str(),
                plan.steps[0].key.as_str()
            ),
            (1, "a", "1"),
            "{text}"
        );
        assert_eq!(plan.steps[0].arguments["n"], 1);
    }
}

#[test]
fn words_are_an_answer_and_never_become_actions() {
    for text in [
        "Buy now!",
        "action: deleteEverything {}",
        r#"{"action":"deleteEverything","arguments":{}}"#,
        r#"[{"action":"deleteEverything"}]"#,
        r#"{"actions":{"action":"deleteEverything"}}"#,
        r#"{"actions":[{"action":"a"}"#,
        "",
        "{",
    ] {
        assert_eq!(read(text), Reading::Answer(text.to_owned()), "{text}");
    }
    assert_eq!(
        read(r#"{"actions":[],"final_answer":"42"}"#),
        Reading::Answer("42".into())
    );
    assert_eq!(
        read(r#"x {"final_answer":{"n":1}}"#),
        Reading::Answer(r#"{"n":1}"#.into())
    );
}

#[test]
fn what_is_meant_as_a_plan_and_is_none_is_refused_with_its_reason() {
    let thousand = format!(
        r#"{{"actions":[{}]}}"#,
        vec![r#"{"action":"a"}"#; 1_000].join(",")
    );
    for (text, expected) in [
        (
            thousand.as_str(),
            "the plan has 1000 actions, 32 are allowed",
        ),
        (
            r#"{"actions":[{"action":"a","arguments":{"n":1,"n":1000}}]}"#,
            "\"n\" comes twice",
        ),
        (
            r#"{"actions":[{"action":"a"}],"actions":[{"action":"b"}]}"#,
            "\"actions\" comes twice",
        ),
    ] {
        let message = broken(text);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_step_that_is_written_wrongly_is_refused_with_its_reason() {
    for (text, expected) in [
        (
            r#"{"actions":[{"step":"x","action":"a","n":1},{"step":"x","action":"b","n":1}]}"#,
            "step 2: two steps are called \"x\"",
        ),
        (
            r#"{"actions":[{"arguments":{}}]}"#,
            "step 1: it has no `action`",
        ),
        (r#"{"actions":["a"]}"#, "step 1: \"a\" is not an action"),
        (
            r#"{"actions":[{"action":"a","arguments":[1]}]}"#,
            "`arguments` must be an object, not [1]",
        ),
        (
            r#"{"actions":[{"action":"a","arguments":"{\"n\":1,\"n\":2}"}]}"#,
            "\"n\" comes twice",
        ),
    ] {
        let checked = checked(text);
        let message = checked.problems.join("; ");
        assert!(message.contains(expected), "{message}");
        assert!(checked.execution.is_none());
    }
}

#[test]
fn arguments_of_a_step_may_stand_beside_its_tool() {
    let text =
        r#"{"actions":[{"action":"a","n":1,"step":"x"},{"tool":"b","城市":"北京","after":["x"]}]}"#;
    let plan = plan(text);
    assert_eq!(
        Value::from(plan.steps[0].arguments.clone()),
        json!({ "n": 1 })
    );
    assert_eq!(
        Value::from(plan.steps[1].arguments.clone()),
        json!({ "城市": "北京" })
    );
    assert_eq!(plan.steps[1].after, ["x"]);
}

#[test]
fn a_text_of_braces_costs_no_more_than_its_length() {
    assert!(matches!(
        read(&"{\"actions\":[".repeat(200_000)),
        Reading::Answer(_)
    ));
}

fn tool(name: &str) -> Arc<Tool> {
    let mut tool = Tool::new("s", name).unwrap();
    let schema = json!({ "properties": { "n": { "type": "integer" }, "m": { "type": "string" } }, "required": ["n"] });
    tool.input_schema = schema.as_object().unwrap().clone();
    Arc::new(tool)
}

fn checked(text: &str) -> CheckedPlan {
    checked_with(text, OnInvalidStep::Refuse)
}

fn checked_with(text: &str, on_invalid: OnInvalidStep) -> CheckedPlan {
    let gate = Gate::new(Policies::default());
    let find = |name: &str| {
        if name == "gone" {
            Err("no visible tool is called \"gone\"".into())
        } else {
            Ok(tool(name))
        }
    };
    check_by(&gate, &Caller::default(), &plan(text), on_invalid, find)
}

#[test]
fn a_plan_is_checked_whole() {
    let text = r#"{"actions":[
        {"action":"a","arguments":{"n":"7,000"}},
        {"action":"gone"},
        {"action":"b","arguments":{"m":"x"}},
        {"action":"c","arguments":{"n":"${1.total}"},"after":[3]},
        {"action":"d","arguments":{"n":"${5}"}},
        {"action":"e","arguments":{"n":"${7.x}"}},
        {"action":"f","arguments":{"n":"${9}"}}]}"#;
    let checked = checked(text);
    let problems: Vec<Option<&str>> = checked
        .shown
        .iter()
        .map(|step| step.problem.as_deref())
        .collect();
    assert_eq!((problems[0], problems[3]), (None, None));
    assert_eq!(
        (&checked.shown[0].arguments, checked.shown[0].changes.len()),
        (&json!({ "n": 7000 }), 1)
    );
    assert_eq!(checked.shown[3].needs, ["1", "3"]);
    for (at, expected) in [
        (1, "no visible tool is called \"gone\""),
        (2, "at /n: missing"),
        (4, "its own result"),
        (5, "step 7, which comes after it"),
        (6, "step \"9\", which the plan does not have"),
    ] {
        assert!(
            problems[at].is_some_and(|problem| problem.contains(expected)),
            "{at}: {problems:?}"
        );
    }
    assert_eq!(checked.problems.len(), 5);
    assert!(
        checked.execution.is_none(),
        "no step of a plan with problems is executed"
    );
}

#[test]
fn invalid_steps_are_skipped_with_their_reason_where_that_is_set() {
    let text = r#"{"actions":[
        {"action":"a","arguments":{"n":1}},
        {"action":"gone","arguments":{"n":1}},
        {"action":"b","arguments":{"m":"x"}},
        {"action":"c","arguments":{"n":"${2.total}"}},
        "nonsense",
        {"action":"d","arguments":{"n":2}}],"final_answer":"all done"}"#;
    let checked = checked_with(text, OnInvalidStep::Skip);
    assert_eq!(checked.problems.len(), 3, "{:?}", checked.problems);
    let mut execution = checked.execution.unwrap();
    let mut called = Vec::new();
    while let Some(step) = execution.next() {
        let result = match step.arguments {
            Ok(_) => ToolResult::ok(json!({ "done": step.key })),
            Err(result) => *result,
        };
        if result.status == Status::Ok {
            called.push(step.tool.id.to_string());
        }
        execution.record(step.position, result);
    }
    assert_eq!(called, ["s/a", "s/d"]);
    let outcome = execution.outcome();
    for (key, code, message) in [
        ("2", "unknown_tool", "no visible tool is called \"gone\""),
        ("3", "invalid_arguments", "at /n: missing"),
        ("4", "skipped", "step 2 did not succeed"),
        ("5", "invalid_arguments", "\"nonsense\" is not an action"),
    ] {
        assert_eq!(outcome[key]["error_code"], code, "{key}");
        let said = outcome[key]["error_message"].as_str().unwrap();
        assert!(said.contains(message), "{said}");
    }
    assert_eq!(execution.final_answer(), None);
    let names: Vec<&str> = execution.results().map(|step| step.name).collect();
    assert_eq!(names[1..3], ["gone", "s/b"]);
    assert!(execution.ready(&BTreeSet::new()).is_empty());
}

#[test]
fn steps_in_a_circle_are_refused() {
    let text = r#"{"actions":[{"action":"a","arguments":{"n":"${2}"}},{"action":"b","arguments":{"n":"${1}"}}]}"#;
    assert_eq!(
        checked(text).problems,
        ["step 1: it refers to step 2, which comes after it; steps run in order"]
    );
}

#[test]
fn results_flow_into_later_steps_with_their_types() {
    let text = r#"{"actions":[
        {"step":"look","action":"a","arguments":{"n":1}},
        {"action":"b","arguments":{"n":"${look.orders[1].id}","m":"order ${steplook.orders.1.id} of ${look.who}"}}],
        "final_answer":"done: ${2.ok}"}"#;
    let mut execution = checked(text).execution.unwrap();
    let data = json!({ "orders": [{ "id": 3 }, { "id": 4 }], "who": "${2} \"quoted\"" });
    execution.record(0, ToolResult::ok(Value::String(data.to_string())));
    let step = execution.next().unwrap();
    let arguments = Value::Object(step.arguments.unwrap());
    // A result is data: a reference in it is not replaced.
    assert_eq!(
        arguments,
        json!({ "n": 4, "m": "order 4 of ${2} \"quoted\"" })
    );
    execution.record(1, ToolResult::ok(json!({ "ok": true })));
    assert!(execution.next().is_none());
    assert_eq!(execution.final_answer().as_deref(), Some("done: true"));
    assert_eq!(execution.outcome()["look"]["status"], "ok");
}

#[test]
fn a_failed_step_stops_those_that_need_it_and_no_other() {
    let text = r#"{"actions":[
        {"action":"a","arguments":{"n":1}},
        {"action":"b","arguments":{"n":"${1.x}"}},
        {"action":"c","arguments":{"n":2},"after":"2"},
        {"action":"d","arguments":{"n":3}}],"final_answer":"all done"}"#;
    let mut execution = checked(text).execution.unwrap();
    execution.record(0, ToolResult::error(ErrorCode::Failed, "down"));
    for position in 1..3 {
        let skipped = execution.next().unwrap().arguments.unwrap_err();
        assert_eq!(skipped.error_code, Some(ErrorCode::Skipped));
        execution.record(position, *skipped);
    }
    assert!(execution.next().unwrap().arguments.is_ok());
    execution.record(3, ToolResult::ok(Value::Null));
    let codes: Vec<Value> = execution
        .outcome()
        .values()
        .map(|result| result["error_code"].clone())
        .collect();
    assert_eq!(
        codes,
        [
            json!("failed"),
            json!("skipped"),
            json!("skipped"),
            Value::Null
        ]
    );
    assert_eq!(execution.final_answer(), None);
    assert!(
        execution
            .summary()
            .contains("2: not done: step 1 did not succeed")
    );
}

#[test]
fn a_reference_to_what_is_not_there_fails_its_step() {
    let text = r#"{"actions":[{"action":"a","arguments":{"n":1}},{"action":"b","arguments":{"n":"${1.orders[7].id}"}}]}"#;
    let mut execution = checked(text).execution.unwrap();
    execution.record(0, ToolResult::ok(json!({ "orders": [] })));
    let failed = execution.next().unwrap().arguments.unwrap_err();
    assert!(
        failed
            .error_message
            .unwrap()
            .contains("step 1 has no orders.7.id")
    );
}

#[test]
fn steps_that_need_no_result_of_each_other_are_ready_together() {
    let text = r#"{"actions":[
        {"action":"a","arguments":{"n":1}},
        {"action":"b","arguments":{"n":"${1.n}"}},
        {"action":"c","arguments":{"n":2}},
        {"action":"d","arguments":{"n":3},"after":["2","3"]}]}"#;
    let mut execution = checked(text).execution.unwrap();
    let ready = |execution: &Execution, started: &[usize]| -> Vec<usize> {
        let started = started.iter().copied().collect();
        let steps = execution.ready(&started);
        steps.into_iter().map(|step| step.position).collect()
    };
    assert_eq!(ready(&execution, &[]), [0, 2]);
    // The later step ends first.
    execution.record(2, ToolResult::ok(json!({})));
    assert!(ready(&execution, &[0, 2]).is_empty());
    execution.record(0, ToolResult::ok(json!({ "n": 7 })));
    let next = &execution.ready(&BTreeSet::from([0, 2]))[0];
    assert_eq!(
        (next.position, &next.arguments.as_ref().unwrap()["n"]),
        (1, &json!(7))
    );
    execution.record(1, ToolResult::ok(json!({})));
    assert_eq!(ready(&execution, &[0, 1, 2]), [3]);
    let keys: Vec<&str> = execution.results().map(|step| step.key).collect();
    assert_eq!(keys, ["1", "2", "3"], "in the order of the plan");
    assert_eq!(execution.used(), BTreeSet::from(["1", "2", "3"]));
}

#[test]
fn a_plan_may_come_as_the_arguments_of_a_call() {
    let given = |steps: Value| Map::from_iter([("steps".to_owned(), steps)]);
    let plan = of_arguments(&given(json!([{ "tool": "a", "id": "x" }]))).unwrap();
    assert_eq!(
        (plan.steps[0].action.as_str(), plan.steps[0].key.as_str()),
        ("a", "x")
    );
    for wrong in [json!([]), json!("no"), json!(3)] {
        let problems = of_arguments(&given(wrong)).unwrap_err();
        assert!(
            problems[0].contains("not an array with steps"),
            "{problems:?}"
        );
    }
    let thousand = given(json!(vec![json!({ "tool": "a" }); 1_000]));
    assert!(of_arguments(&thousand).unwrap_err()[0].contains("1000 actions, 32 are allowed"));
}

#[test]
fn results_in_arguments_count_towards_their_length() {
    let long = "x".repeat(200 << 10);
    let nested = json!({ "text": json!({ "a": long }).to_string() });
    for (result, argument) in [
        (Value::from(long.as_str()), json!("${1}".repeat(6))),
        (json!({ "a": [long] }), json!(vec!["${1.a}"; 6])),
        (
            json!({ "a": { "b": long } }),
            json!({ "deep": vec![json!({ "c": "${1.a.b}" }); 6] }),
        ),
        (
            json!({ "a": long }).to_string().into(),
            json!("${1.a} ".repeat(6)),
        ),
        // Each of these parses a text again.
        (nested, json!("${1.text.b}${1.text.a}".repeat(40))),
    ] {
        let steps = json!({ "actions": [
            { "action": "a", "arguments": { "n": 1 } },
            { "action": "b", "arguments": { "n": 2, "m": argument } },
            { "action": "c", "arguments": { "n": 3, "m": "${1}" } },
        ] });
        let mut execution = checked_with(&steps.to_string(), OnInvalidStep::Skip)
            .execution
            .unwrap();
        execution.record(0, ToolResult::ok(result));
        let refused = execution.step(1).unwrap().arguments.unwrap_err();
        assert_eq!(refused.error_code, Some(ErrorCode::InvalidArguments));
        let message = refused.error_message.unwrap();
        assert!(message.contains("more than 1048576 bytes"), "{message}");
        // The others go on.
        assert!(execution.step(2).unwrap().arguments.is_ok());
    }
}

#[test]
fn results_in_the_arguments_of_a_whole_plan_are_bounded() {
    let long = "x".repeat(900 << 10);
    let mut actions = vec![json!({ "action": "a", "arguments": { "n": 1 } })];
    actions.resize(
        8,
        json!({ "action": "b", "arguments": { "n": 1, "m": "${1}" } }),
    );
    let text = json!({ "actions": actions, "final_answer": "${1}${1}" }).to_string();
    let mut execution = checked(&text).execution.unwrap();
    execution.record(0, ToolResult::ok(long.into()));
    // Whether they run one after the other or all at once.
    let ready = execution.ready(&BTreeSet::new());
    let made = ready.iter().filter(|step| step.arguments.is_ok()).count();
    assert_eq!((ready.len(), made), (7, 4));
    let refused = ready[6].arguments.as_ref().unwrap_err();
    let message = refused.error_message.as_deref().unwrap();
    assert!(message.contains("of the plan's steps"), "{message}");
    assert_eq!(execution.final_answer(), None);
}
