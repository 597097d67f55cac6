use std::collections::BTreeMap;
use std::future;

use async_trait::async_trait;
use tokio::time::sleep;

use super::*;
use crate::gate::approval::RefuseAll;
use crate::tools::ToolFailure;

/// Tools that record their calls.
#[derive(Default)]
struct RecordedTools {
    tools: BTreeMap<String, (Arc<Tool>, Arc<RecordingTool>)>,
}

struct RecordingTool {
    result: Result<Value, ToolFailure>,
    hangs: bool,
    /// It takes two minutes, and limits itself.
    is_slow: bool,
    calls: Mutex<Vec<Value>>,
}

#[async_trait]
impl Callable for RecordingTool {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        self.calls.lock().push(Value::Object(arguments));
        if self.hangs {
            future::pending::<()>().await;
        }
        if self.is_slow {
            sleep(Duration::from_secs(120)).await;
        }
        self.result.clone()
    }

    fn limits_itself(&self) -> bool {
        self.is_slow
    }
}

impl Directory for RecordedTools {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.tools.get(id.as_str()).map(|(tool, _)| tool.clone())
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.tools
            .get(id.as_str())
            .map(|(_, callable)| callable.clone() as Arc<dyn Callable>)
    }
}

impl RecordedTools {
    fn with(mut self, id: &str, result: Result<Value, &str>) -> Self {
        let id = ToolId::parse(id).unwrap();
        let mut tool = Tool::new(id.server(), id.name()).unwrap();
        let schema = json!({
            "type": "object",
            "properties": {
                "userId": { "type": "string" },
                "quantity": { "type": "integer", "minimum": 1 },
                "password": { "type": "string" },
                "price": { "type": "string" },
                "symbol": { "type": "string" },
                "network": { "type": "string" },
                "limit": { "type": "integer", "default": 10 },
            },
        });
        tool.input_schema = schema.as_object().unwrap().clone();
        tool.annotations.read_only_hint = id.name().starts_with("get").then_some(true);
        tool.annotations.destructive_hint = id.name().starts_with("delete").then_some(true);
        let result = result.map_err(ToolFailure::new);
        let recording = RecordingTool {
            result,
            hangs: id.name().ends_with("hang"),
            is_slow: id.name().ends_with("slow"),
            calls: Mutex::default(),
        };
        self.tools
            .insert(id.to_string(), (Arc::new(tool), Arc::new(recording)));
        self
    }

    fn calls(&self, id: &str) -> Vec<Value> {
        self.tools[id].1.calls.lock().clone()
    }

    fn call(&self, id: &str, arguments: Value) -> Call {
        let arguments = arguments.as_object().unwrap().clone();
        Call {
            id: "c1".into(),
            tool: self.tools[id].0.clone(),
            arguments,
            is_plan_step: false,
        }
    }
}

fn tools() -> RecordedTools {
    let ok = || Ok(json!({ "done": true }));
    RecordedTools::default()
        .with("s/get", ok())
        .with("s/put", ok())
        .with("s/delete", ok())
        .with("s/put_hang", ok())
}

fn policies(text: &str) -> Policies {
    toml::from_str(text).unwrap()
}

/// Gives every request the same answer.
struct FixedApprover(Answer);

#[async_trait]
impl Approver for FixedApprover {
    async fn ask(&self, _: ApprovalRequest) -> Answer {
        self.0.clone()
    }
}

fn caller() -> Caller {
    Caller {
        who: "test".into(),
        identity: Some("ada".into()),
        conversation: "c".into(),
        ..Caller::default()
    }
}

/// One run at a gate.
struct TestRun {
    gate: Gate,
    tools: RecordedTools,
    caller: Caller,
    ledger: Ledger,
    approver: Box<dyn Approver>,
}

impl TestRun {
    fn new(policies_text: &str, tools: RecordedTools) -> Self {
        let gate = Gate::new(policies(policies_text));
        TestRun {
            gate,
            tools,
            caller: caller(),
            ledger: Ledger::default(),
            approver: Box::new(RefuseAll),
        }
    }

    async fn pass(&self, id: &str, arguments: Value) -> CallOutcome {
        self.pass_call(self.tools.call(id, arguments)).await
    }

    async fn pass_call(&self, call: Call) -> CallOutcome {
        let context = GateContext {
            caller: &self.caller,
            ledger: &self.ledger,
            directory: &self.tools,
            approver: self.approver.as_ref(),
            call_timeout: Duration::from_secs(60),
        };
        self.gate.pass(context, call).await
    }

    async fn result(&self, id: &str, arguments: Value) -> Result<Value, (ErrorCode, String)> {
        let result = self.pass(id, arguments).await.result;
        match result.error_code {
            None => Ok(result.data),
            Some(code) => Err((code, result.error_message.unwrap())),
        }
    }
}

#[tokio::test]
async fn read_only_tools_are_allowed_and_all_others_need_approval() {
    let mut run = TestRun::new("", tools());
    assert!(run.result("s/get", json!({})).await.is_ok());
    for id in ["s/put", "s/delete"] {
        let (code, message) = run.result(id, json!({})).await.unwrap_err();
        assert!(
            code == ErrorCode::Denied && message.contains("there is nobody to ask here"),
            "{message}"
        );
        assert!(run.tools.calls(id).is_empty());
    }
    run.approver = Box::new(FixedApprover(Answer::Approved { by: "ada".into() }));
    assert!(run.result("s/delete", json!({})).await.is_ok());
    run.approver = Box::new(FixedApprover(Answer::Expired { after_ms: 7 }));
    assert!(
        run.result("s/delete", json!({}))
            .await
            .unwrap_err()
            .1
            .contains("nobody allowed s/delete within 7 ms")
    );
    assert_eq!(run.tools.calls("s/delete").len(), 1);
}

#[tokio::test]
async fn arguments_are_normalized_checked_and_bound_to_the_caller_before_the_call() {
    let text = "bind = { userId = \"$identity\" }\n[[rules]]\ndecision = \"allow\"";
    let run = TestRun::new(text, tools());
    let outcome = run.pass("s/put", json!({ "quantity": "7,000" })).await;
    assert_eq!(
        run.tools.calls("s/put"),
        [json!({ "quantity": 7000, "userId": "ada" })]
    );
    assert_eq!(outcome.report.changes.len(), 2);
    let (code, message) = run
        .result("s/put", json!({ "quantity": 0 }))
        .await
        .unwrap_err();
    assert!(
        code == ErrorCode::InvalidArguments && message.contains("at /quantity: 0 is less"),
        "{message}"
    );
    let (code, message) = run
        .result("s/put", json!({ "userId": "bob" }))
        .await
        .unwrap_err();
    assert!(
        code == ErrorCode::Denied && message.contains("/userId names \"bob\""),
        "{message}"
    );
    assert_eq!(run.tools.calls("s/put").len(), 1);
}

#[tokio::test]
async fn safe_defaults_are_filled_only_into_steps_of_a_plan_that_read() {
    let text = "[safe_defaults]\nschema = true\n[safe_defaults.tools.\"s/*\"]\nnetwork = \"main\"\n\
                [[rules]]\ndecision = \"allow\"";
    let filled = || json!({ "limit": 10, "network": "main" });
    for (policies, id, is_plan_step, expected) in [
        (text, "s/get", true, filled()),
        (text, "s/get", false, json!({})),
        (text, "s/put", true, json!({})),
        (text, "s/delete", true, json!({})),
        ("[[rules]]\ndecision = \"allow\"", "s/get", true, json!({})),
    ] {
        let run = TestRun::new(policies, tools());
        let call = Call {
            is_plan_step,
            ..run.tools.call(id, json!({}))
        };
        let changes = run.pass_call(call).await.report.changes;
        let has_changed = expected != json!({});
        assert_eq!(changes.len(), if has_changed { 2 } else { 0 }, "{id}");
        assert_eq!(run.tools.calls(id), [expected], "{id}");
    }
    let run = TestRun::new(&format!("dry_run = true\n{text}"), tools());
    let call = Call {
        is_plan_step: true,
        ..run.tools.call("s/get", json!({}))
    };
    let shown = run.pass_call(call).await.result.data;
    assert_eq!(shown["arguments"], filled());
    assert_eq!(shown["changes"][0]["why"], "default");
}

#[test]
fn a_null_that_a_request_cannot_carry_is_left_out_and_shown() {
    let nullable = || json!({ "type": ["string", "null"] });
    let call = json!({
        "parameters": { "q": { "in": "query", "name": "q" }, "h": { "in": "header", "name": "h" } },
        "body": { "content_type": "multipart/form-data", "properties": ["a"] },
    });
    let json_call = json!({ "body": { "content_type": "application/json", "properties": ["a"] } });
    let given = || json!({ "q": null, "h": null, "a": null });
    for (call, expected) in [
        (Some(call), json!({})),
        (Some(json_call), given()),
        (None, given()),
    ] {
        let mut tool = Tool::new("s", "put").unwrap();
        let schema = json!({ "properties": { "q": nullable(), "h": nullable(), "a": nullable() } });
        tool.input_schema = schema.as_object().unwrap().clone();
        tool.metadata
            .extend(call.map(|call| ("openapi".to_owned(), call)));
        let gate = Gate::new(Policies::default());
        let given = given().as_object().unwrap().clone();
        let checked = gate.check(&caller(), &Arc::new(tool), given);
        assert_eq!(Value::from(checked.arguments.clone()), expected);
        assert_eq!(checked.changes.len(), 3 - checked.arguments.len());
    }
}

#[tokio::test]
async fn denied_and_dry_run_calls_call_nothing() {
    let text =
        "[[rules]]\ntool = \"s/delete\"\ndecision = \"deny\"\n[[rules]]\ndecision = \"dry_run\"";
    let run = TestRun::new(text, tools());
    let (code, message) = run.result("s/delete", json!({})).await.unwrap_err();
    assert!(
        code == ErrorCode::Denied && message.contains("denied by rule 1"),
        "{message}"
    );
    let data = run
        .result("s/put", json!({ "quantity": "2" }))
        .await
        .unwrap();
    assert_eq!(
        (&data["dry_run"], &data["arguments"]),
        (&json!(true), &json!({ "quantity": 2 }))
    );
    assert!(run.tools.calls("s/delete").is_empty() && run.tools.calls("s/put").is_empty());
}

#[tokio::test]
async fn text_that_is_an_amount_or_a_code_gets_its_usual_form_before_a_change() {
    let text = "normalize = { lower_case = [\"network\"] }\n[[rules]]\ndecision = \"allow\"";
    let (_folder, log, run) = audited(TestRun::new(text, tools()));
    let given = json!({ "price": " 7,000 ", "symbol": "btc", "network": "ERC20" });
    let usual = json!({ "price": "7000", "symbol": "BTC", "network": "erc20" });
    for (id, sent) in [("s/put", &usual), ("s/delete", &usual), ("s/get", &given)] {
        let outcome = run.pass(id, given.clone()).await;
        let is_changed = *sent != given;
        assert_eq!(
            outcome.report.changes.len(),
            if is_changed { 3 } else { 0 },
            "{id}"
        );
        assert_eq!(run.tools.calls(id), std::slice::from_ref(sent), "{id}");
    }
    let begun = &entries(&log)[0];
    assert_eq!((&begun["given"], &begun["sent"]), (&given, &usual));
    assert_eq!(
        begun["changes"][0],
        json!({ "path": "/price", "from": " 7,000 ", "to": "7000", "why": "amount" })
    );

    let run = TestRun::new("dry_run = true\nnormalize = { amounts = [] }", tools());
    let data = run.result("s/put", given).await.unwrap();
    assert_eq!(data["arguments"]["price"], " 7,000 ");
    assert_eq!(
        data["changes"],
        json!([{ "path": "/symbol", "from": "btc", "to": "BTC", "why": "case" }])
    );
}

#[tokio::test]
async fn limits_stop_a_loop_of_calls() {
    let run = TestRun::new("limits = { calls = 3 }", tools());
    for _ in 0..3 {
        assert!(run.result("s/get", json!({})).await.is_ok());
    }
    assert_eq!(
        run.result("s/get", json!({})).await.unwrap_err().0,
        ErrorCode::Limit
    );
    assert_eq!(run.tools.calls("s/get").len(), 3);
}

const REGISTERED: &str = r#"
    [[rules]]
    decision = "allow"
    [[preconditions]]
    before = "s/put"
    check = { tool = "s/getUser", arguments = { userId = "$userId" } }
    expect = { "/exists" = true }
    otherwise = { tool = "s/register", arguments = { userId = "$userId" } }
"#;

#[tokio::test]
async fn a_precondition_is_established_once_a_run() {
    let tools = tools()
        .with("s/getUser", Ok(json!({ "exists": false })))
        .with("s/register", Ok(json!({})));
    let run = TestRun::new(REGISTERED, tools);
    for _ in 0..2 {
        assert!(
            run.result("s/put", json!({ "userId": "ada" }))
                .await
                .is_ok()
        );
    }
    assert_eq!(run.tools.calls("s/register"), [json!({ "userId": "ada" })]);
    assert_eq!(
        (
            run.tools.calls("s/getUser").len(),
            run.tools.calls("s/put").len()
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn a_precondition_that_cannot_be_established_prevents_the_call() {
    let no = || Ok(json!({ "exists": false }));
    for (tools, rule, expected) in [
        (
            tools()
                .with("s/getUser", no())
                .with("s/register", Err("closed")),
            "",
            "s/register first, and that failed",
        ),
        (
            tools()
                .with("s/getUser", Err("down"))
                .with("s/register", no()),
            "",
            "s/getUser to agree first",
        ),
        (tools().with("s/getUser", no()), "", "no tool has this id"),
        (
            tools().with("s/getUser", no()).with("s/register", no()),
            "[[rules]]\ntool = \"s/register\"\ndecision = \"deny\"\n",
            "denied by rule 1",
        ),
        (
            tools().with("s/getUser", no()).with("s/register", no()),
            "[[rules]]\ntool = \"s/register\"\ndecision = \"dry_run\"\n",
            "that is a dry run",
        ),
    ] {
        let run = TestRun::new(&format!("{rule}{REGISTERED}"), tools);
        let (code, message) = run
            .result("s/put", json!({ "userId": "ada" }))
            .await
            .unwrap_err();
        assert!(
            code == ErrorCode::Precondition && message.contains(expected),
            "{message}"
        );
        assert!(run.tools.calls("s/put").is_empty());
    }
}

#[tokio::test]
async fn a_user_is_registered_when_the_check_says_no_in_any_usual_way() {
    let text = r#"
        [[rules]]
        decision = "allow"
        [[preconditions]]
        before = "s/put"
        check = { tool = "s/getUser", arguments = { userId = "$userId" } }
        otherwise = { tool = "s/register", arguments = { userId = "$userId" } }
    "#;
    for (answer, registered) in [
        (json!("false"), 1),
        (json!({ "exists": "false" }), 1),
        (json!("{\"exists\": false}"), 1),
        (json!(" "), 1),
        (json!("true"), 0),
        (json!({ "exists": true }), 0),
    ] {
        let tools = tools()
            .with("s/getUser", Ok(answer.clone()))
            .with("s/register", Ok(json!({})));
        let run = TestRun::new(text, tools);
        let result = run.result("s/put", json!({ "userId": "ada" })).await;
        assert!(result.is_ok(), "{answer}");
        assert_eq!(run.tools.calls("s/register").len(), registered, "{answer}");
    }
}

#[tokio::test]
async fn a_check_that_fails_refuses_the_call_or_warns_as_the_policy_says() {
    let policy = |on_error: &str| {
        format!(
            r#"
            [[rules]]
            tool = "s/getDenied"
            decision = "deny"
            [[rules]]
            decision = "allow"
            [[preconditions]]
            before = "s/put"
            check = {{ tool = "s/getUser" }}
            otherwise = {{ tool = "s/register" }}
            on_error = "{on_error}"
            "#
        )
    };
    let down = || {
        tools()
            .with("s/getUser", Err("down"))
            .with("s/register", Ok(json!({})))
    };
    let run = TestRun::new(&policy("refuse"), down());
    let (code, _) = run.result("s/put", json!({})).await.unwrap_err();
    assert_eq!(code, ErrorCode::Precondition);

    let (_folder, log, run) = audited(TestRun::new(&policy("continue"), down()));
    for calls in 1..3 {
        let outcome = run.pass("s/put", json!({})).await;
        assert_eq!(outcome.result.status, Status::Ok);
        let [warning] = &outcome.report.warnings[..] else {
            panic!("{:?}", outcome.report.warnings)
        };
        assert!(
            warning.contains("s/getUser failed") && warning.contains("down"),
            "{warning}"
        );
        assert_eq!(run.tools.calls("s/getUser").len(), calls, "checked again");
    }
    assert!(run.tools.calls("s/register").is_empty());
    let entries = entries(&log);
    let begun = entries
        .iter()
        .find(|entry| entry["event"] == "begun" && entry["tool"] == "s/put")
        .unwrap();
    assert!(begun["warnings"][0].as_str().unwrap().contains("down"));

    // No server offers the check, so it fails too.
    let run = TestRun::new(&policy("continue"), tools());
    assert_eq!(run.pass("s/put", json!({})).await.report.warnings.len(), 1);
    // A denied check is an answer of the owner.
    let denied = policy("continue").replace("s/getUser", "s/getDenied");
    let run = TestRun::new(&denied, tools().with("s/getDenied", Ok(json!(true))));
    let (code, _) = run.result("s/put", json!({})).await.unwrap_err();
    assert_eq!(code, ErrorCode::Precondition);
    assert!(run.tools.calls("s/put").is_empty());
}

#[tokio::test]
async fn what_a_failed_check_was_to_set_is_still_required() {
    let text = format!("{NUMBERED}\n[[rules]]\ndecision = \"allow\"")
        .replace("set = {", "on_error = \"continue\"\n    set = {");
    let mut tools = tools_for_numbered(json!({}));
    tools = tools.with("s/getUser", Err("down"));
    let run = TestRun::new(&text, tools);
    let (code, message) = run
        .result("s/put", json!({ "quantity": 1 }))
        .await
        .unwrap_err();
    assert!(
        code == ErrorCode::InvalidArguments && message.contains("/userId"),
        "{message}"
    );
    let given = json!({ "quantity": 1, "userId": "u1" });
    assert!(run.result("s/put", given).await.is_ok());
    assert_eq!(run.tools.calls("s/put").len(), 1);
}

#[tokio::test]
async fn a_blank_user_is_a_missing_one() {
    let text = "bind = { userId = \"$identity\" }\n[[rules]]\ndecision = \"allow\"";
    let run = TestRun::new(text, tools());
    for blank in ["", " \t"] {
        let outcome = run.pass("s/put", json!({ "userId": blank })).await;
        let change = &outcome.report.changes[0];
        assert_eq!((&change.from, &change.to), (&json!(blank), &json!("ada")));
        // The tool has no such parameter at this place, so nothing is filled in there.
        let hidden = run
            .result("s/put", json!({ "order": { "userId": blank } }))
            .await;
        assert_eq!(hidden.unwrap_err().0, ErrorCode::Denied);
    }
    assert_eq!(run.tools.calls("s/put")[0], json!({ "userId": "ada" }));

    // Where the user is given by registering, a blank one is registered without a check.
    let text = r#"
        [[rules]]
        decision = "allow"
        [[preconditions]]
        before = "s/put"
        check = { tool = "s/getUser", arguments = { userId = "$userId" } }
        otherwise = { tool = "s/register" }
        set = { userId = "/id" }
    "#;
    let tools = tools()
        .with("s/getUser", Ok(json!({ "exists": true, "id": "ada" })))
        .with("s/register", Ok(json!({ "id": "u9" })));
    let run = TestRun::new(text, tools);
    for user in [" ", "ada"] {
        let result = run.result("s/put", json!({ "userId": user })).await;
        assert!(result.is_ok(), "{result:?}");
    }
    assert_eq!(
        run.tools.calls("s/put"),
        [json!({ "userId": "u9" }), json!({ "userId": "ada" })]
    );
    assert_eq!(run.tools.calls("s/getUser"), [json!({ "userId": "ada" })]);

    // What registering returns has to be a user, too.
    let text = format!("{NUMBERED}\n[[rules]]\ndecision = \"allow\"");
    let tools = tools_for_numbered(json!({ "user": { "id": " " } }));
    let run = TestRun::new(&text, tools);
    let (_, message) = run.result("s/put", json!({})).await.unwrap_err();
    assert!(message.contains("has nothing at /user/id"), "{message}");
}

const NUMBERED: &str = r#"
    [[preconditions]]
    before = "s/put"
    check = { tool = "s/getUser" }
    expect = { "/exists" = true }
    otherwise = { tool = "s/register" }
    set = { userId = "/user/id" }
    [[rules]]
    tool = "s/register"
    decision = "allow"
"#;

/// A user who does not exist yet, and a tool that cannot be called without one.
fn tools_for_numbered(registered: Value) -> RecordedTools {
    let mut tools = tools()
        .with("s/getUser", Ok(json!({ "exists": false })))
        .with("s/register", Ok(registered));
    let put = &mut tools.tools.get_mut("s/put").unwrap().0;
    Arc::make_mut(put)
        .input_schema
        .insert("required".into(), json!(["userId"]));
    tools
}

#[tokio::test]
async fn what_a_precondition_returns_is_written_into_the_call() {
    let allowed = format!("{NUMBERED}\n[[rules]]\ndecision = \"allow\"");
    let tools = tools_for_numbered(json!({ "user": { "id": "u7" } }));
    let run = TestRun::new(&allowed, tools);
    for quantity in [1, 2] {
        let outcome = run.pass("s/put", json!({ "quantity": quantity })).await;
        let change = outcome.report.changes.last().unwrap();
        assert_eq!(
            (&change.path[..], change.why),
            ("/userId", ChangeReason::Precondition)
        );
    }
    assert_eq!(
        run.tools.calls("s/put"),
        [
            json!({ "quantity": 1, "userId": "u7" }),
            json!({ "quantity": 2, "userId": "u7" })
        ]
    );
    assert_eq!(run.tools.calls("s/register").len(), 1);

    for (registered, expected) in [
        (
            json!({ "user": {} }),
            "needs `userId` from s/register, whose result has nothing at /user/id",
        ),
        (json!({ "user": { "id": [1] } }), "userId"),
    ] {
        let run = TestRun::new(&allowed, tools_for_numbered(registered));
        let (_, message) = run.result("s/put", json!({})).await.unwrap_err();
        assert!(message.contains(expected), "{message}");
        assert!(run.tools.calls("s/put").is_empty());
    }
}

/// Approves everything, and writes down which arguments it was shown.
#[derive(Clone, Default)]
struct RecordingApprover(Arc<Mutex<Vec<Value>>>);

#[async_trait]
impl Approver for RecordingApprover {
    async fn ask(&self, request: ApprovalRequest) -> Answer {
        self.0.lock().push(request.arguments);
        Answer::Approved { by: "ada".into() }
    }
}

#[tokio::test]
async fn a_person_is_asked_again_about_arguments_that_a_precondition_set() {
    let tools = tools_for_numbered(json!({ "user": { "id": "u7" } }));
    let mut run = TestRun::new(NUMBERED, tools);
    let approver = RecordingApprover::default();
    run.approver = Box::new(approver.clone());
    assert!(run.result("s/put", json!({ "quantity": 1 })).await.is_ok());
    assert_eq!(
        *approver.0.lock(),
        [
            json!({ "quantity": 1 }),
            json!({ "quantity": 1, "userId": "u7" })
        ]
    );
}

#[tokio::test]
async fn circular_preconditions_are_refused() {
    let text = r#"
        [[rules]]
        decision = "allow"
        [[preconditions]]
        before = "s/put"
        check = { tool = "s/get" }
        [[preconditions]]
        before = "s/get"
        check = { tool = "s/put" }
    "#;
    let run = TestRun::new(text, tools());
    let (_, message) = run.result("s/put", json!({})).await.unwrap_err();
    assert!(
        message.contains("in a circle: s/put -> s/get -> s/put"),
        "{message}"
    );
    assert!(run.tools.calls("s/put").is_empty());
}

/// The exported entries of a log.
fn entries(log: &AuditLog) -> Vec<Value> {
    let mut lines = Vec::new();
    log.export(|line| -> Result<(), AuditError> {
        lines.push(serde_json::from_str(line).unwrap());
        Ok(())
    })
    .unwrap();
    lines
}

fn audited(mut run: TestRun) -> (tempfile::TempDir, Arc<AuditLog>, TestRun) {
    let folder = tempfile::tempdir().unwrap();
    let log = Arc::new(AuditLog::open(&folder.path().join(audit::FILE_NAME)).unwrap());
    run.gate = run.gate.with_audit(log.clone());
    (folder, log, run)
}

#[tokio::test]
async fn every_call_is_logged_without_its_secrets() {
    let text =
        "[[rules]]\nclass = \"destructive\"\ndecision = \"deny\"\n[[rules]]\ndecision = \"allow\"";
    let (_folder, log, run) = audited(TestRun::new(text, tools()));
    run.pass(
        "s/put",
        json!({ "quantity": "7,000", "password": "hunter2" }),
    )
    .await;
    run.pass("s/delete", json!({})).await;
    let lines = entries(&log);
    let events: Vec<&str> = lines
        .iter()
        .map(|line| line["event"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["begun", "ended", "refused"]);
    let begun = &lines[0];
    assert_eq!(
        (&begun["who"], &begun["identity"], &begun["conversation"]),
        (&"test".into(), &"ada".into(), &"c".into())
    );
    assert_eq!(
        (&begun["given"]["quantity"], &begun["sent"]["quantity"]),
        (&"7,000".into(), &7000.into())
    );
    assert_eq!(
        (&begun["class"], &begun["decision"]),
        (&"state_changing".into(), &"allow".into())
    );
    assert_eq!(
        (&lines[1]["begun"], &lines[1]["status"]),
        (&1.into(), &"ok".into())
    );
    assert_eq!(
        (&lines[2]["rule"], &lines[2]["error_code"]),
        (&"rule 1".into(), &"denied".into())
    );
    assert!(
        !lines
            .iter()
            .any(|line| line.to_string().contains("hunter2"))
    );
    assert_eq!(log.verify(None).unwrap().entries, 3);
}

#[tokio::test]
async fn a_call_that_cannot_be_logged_is_not_made() {
    let (folder, log, run) = audited(TestRun::new("[[rules]]\ndecision = \"allow\"", tools()));
    let path = folder.path().join(audit::FILE_NAME);
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("DROP TABLE entries")
        .unwrap();
    let (code, message) = run.result("s/put", json!({})).await.unwrap_err();
    assert!(
        code == ErrorCode::Denied && message.contains("audit log cannot be written"),
        "{message}"
    );
    assert!(run.tools.calls("s/put").is_empty());
    drop(log);
}

#[tokio::test]
async fn the_end_of_a_stopped_call_is_logged() {
    let (_folder, log, run) = audited(TestRun::new("[[rules]]\ndecision = \"allow\"", tools()));
    let called = async {
        while run.tools.calls("s/put_hang").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = run.pass("s/put_hang", json!({})) => panic!("the tool hangs"),
        () = called => {}
    }
    assert_eq!(entries(&log)[1]["error_code"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_limits_itself_may_take_longer_than_others() {
    let tools = tools().with("s/get_slow", Ok(json!("at last")));
    let run = TestRun::new("[[rules]]\ndecision = \"allow\"", tools);
    assert_eq!(
        run.result("s/get_slow", json!({})).await,
        Ok(json!("at last"))
    );
    let (code, message) = run.result("s/put_hang", json!({})).await.unwrap_err();
    assert!(
        code == ErrorCode::Timeout && message.contains("no result within 60 s"),
        "{message}"
    );
}

#[tokio::test]
async fn a_tool_whose_schema_changes_is_checked_by_its_new_one() {
    let run = TestRun::new("[[rules]]\ndecision = \"allow\"", tools());
    assert!(run.result("s/put", json!({ "quantity": 5 })).await.is_ok());
    let mut changed = (*run.tools.tools["s/put"].0).clone();
    changed.input_schema["properties"]["quantity"]["maximum"] = json!(2);
    let checked = run.gate.check(
        &run.caller,
        &Arc::new(changed),
        run.tools.call("s/put", json!({ "quantity": 5 })).arguments,
    );
    assert!(
        checked
            .refusal
            .unwrap()
            .message
            .contains("greater than the maximum of 2")
    );
}

/// A directory whose tool changes while approval is requested, and the approver of that request.
struct ChangingDirectory {
    tools: RecordedTools,
    /// What the directory gives once the tool has changed.
    changed: Mutex<Option<Option<Arc<Tool>>>>,
    to: Option<Arc<Tool>>,
}

impl Directory for ChangingDirectory {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let changed = self.changed.lock().clone();
        changed.unwrap_or_else(|| self.tools.tool(id))
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.tools.callable(id)
    }
}

#[async_trait]
impl Approver for ChangingDirectory {
    async fn ask(&self, _: ApprovalRequest) -> Answer {
        *self.changed.lock() = Some(self.to.clone());
        Answer::Approved { by: "ada".into() }
    }
}

#[tokio::test]
async fn an_approval_does_not_count_for_a_tool_that_changed_or_was_removed() {
    let tool = tools().tools["s/delete"].0.clone();
    let described = Arc::new(Tool::clone(&tool).with_description("Deletes everything."));
    let mut tagged = Tool::clone(&tool);
    tagged.tags.push("new".into());
    for (to, expected) in [
        (
            Some(described),
            Some("s/delete changed while a person decided on it"),
        ),
        (
            None,
            Some("s/delete was removed while a person decided on it"),
        ),
        (Some(Arc::new(tagged)), None),
    ] {
        let directory = ChangingDirectory {
            tools: tools(),
            changed: Mutex::default(),
            to,
        };
        let (caller, ledger) = (caller(), Ledger::default());
        let context = GateContext {
            caller: &caller,
            ledger: &ledger,
            directory: &directory,
            approver: &directory,
            call_timeout: Duration::from_secs(60),
        };
        let gate = Gate::new(Policies::default());
        let result = gate
            .pass(context, directory.tools.call("s/delete", json!({})))
            .await
            .result;
        let message = result.error_message.unwrap_or_default();
        assert_eq!(
            (message.is_empty(), directory.tools.calls("s/delete").len()),
            match expected {
                None => (true, 1),
                Some(_) => (false, 0),
            }
        );
        assert!(message.contains(expected.unwrap_or_default()), "{message}");
    }
}

#[tokio::test]
async fn a_call_is_checked_by_the_current_definition_of_its_tool() {
    let mut stale = Tool::new("s", "delete").unwrap();
    stale.annotations.read_only_hint = Some(true);
    let run = TestRun::new("", tools());
    let call = Call {
        tool: Arc::new(stale),
        ..run.tools.call("s/delete", json!({}))
    };
    let (caller, ledger) = (caller(), Ledger::default());
    let context = GateContext {
        caller: &caller,
        ledger: &ledger,
        directory: &run.tools,
        approver: &RefuseAll,
        call_timeout: Duration::from_secs(60),
    };
    let outcome = run.gate.pass(context, call).await;
    assert_eq!(outcome.report.applied_rule.class, Class::Destructive);
    assert_eq!(outcome.result.error_code, Some(ErrorCode::Denied));
}

#[tokio::test]
async fn a_read_only_caller_calls_only_read_only_tools_whatever_the_rules_allow() {
    let allow_all = "[[rules]]\ntool = \"*\"\ndecision = \"allow\"";
    let mut run = TestRun::new(allow_all, tools());
    run.caller.only_reads = true;
    assert!(run.result("s/get", json!({})).await.is_ok());
    for id in ["s/put", "s/delete"] {
        let (code, message) = run.result(id, json!({})).await.unwrap_err();
        assert_eq!(code, ErrorCode::Denied);
        assert!(message.contains("a key with the scope call"), "{message}");
        assert!(run.tools.calls(id).is_empty());
    }
}

#[tokio::test]
async fn a_caller_of_some_classes_calls_no_tool_of_another_whatever_the_rules_allow() {
    let allow_all = "[[rules]]\ntool = \"*\"\ndecision = \"allow\"";
    let mut run = TestRun::new(allow_all, tools());
    run.caller.classes = Some([Class::ReadOnly, Class::StateChanging].into());
    for id in ["s/get", "s/put"] {
        assert!(run.result(id, json!({})).await.is_ok(), "{id}");
    }
    let (code, message) = run.result("s/delete", json!({})).await.unwrap_err();
    assert_eq!(code, ErrorCode::Denied);
    assert!(
        message.contains("only tools of the classes read_only, state_changing"),
        "{message}"
    );
    assert!(run.tools.calls("s/delete").is_empty());
}
