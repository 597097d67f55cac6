use std::collections::BTreeMap;
use std::future;

use async_trait::async_trait;
use tokio::time::timeout;

use super::*;
use crate::gate::approval::Nobody;
use crate::tools::ToolFailure;

/// Tools that note down what they are called with.
#[derive(Default)]
struct World {
    tools: BTreeMap<String, (Arc<Tool>, Arc<Noting>)>,
}

struct Noting {
    result: Result<Value, ToolFailure>,
    hangs: bool,
    calls: Mutex<Vec<Value>>,
}

#[async_trait]
impl Callable for Noting {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        self.calls.lock().unwrap().push(Value::Object(arguments));
        if self.hangs {
            future::pending::<()>().await;
        }
        self.result.clone()
    }
}

impl Directory for World {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        self.tools.get(id.as_str()).map(|(tool, _)| tool.clone())
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.tools
            .get(id.as_str())
            .map(|(_, callable)| callable.clone() as Arc<dyn Callable>)
    }
}

impl World {
    fn with(mut self, id: &str, result: Result<Value, &str>) -> Self {
        let id = ToolId::parse(id).unwrap();
        let mut tool = Tool::new(id.server(), id.name()).unwrap();
        let schema = json!({
            "type": "object",
            "properties": {
                "userId": { "type": "string" },
                "quantity": { "type": "integer", "minimum": 1 },
                "password": { "type": "string" },
            },
        });
        tool.input_schema = schema.as_object().unwrap().clone();
        tool.annotations.read_only_hint = id.name().starts_with("get").then_some(true);
        tool.annotations.destructive_hint = id.name().starts_with("delete").then_some(true);
        let result = result.map_err(ToolFailure::new);
        let noting = Noting {
            result,
            hangs: id.name().ends_with("hang"),
            calls: Mutex::default(),
        };
        self.tools
            .insert(id.to_string(), (Arc::new(tool), Arc::new(noting)));
        self
    }

    fn calls(&self, id: &str) -> Vec<Value> {
        self.tools[id].1.calls.lock().unwrap().clone()
    }

    fn call(&self, id: &str, arguments: Value) -> Call {
        let arguments = arguments.as_object().unwrap().clone();
        Call {
            id: "c1".into(),
            tool: self.tools[id].0.clone(),
            arguments,
        }
    }
}

fn world() -> World {
    let ok = || Ok(json!({ "done": true }));
    World::default()
        .with("s/get", ok())
        .with("s/put", ok())
        .with("s/delete", ok())
        .with("s/put_hang", ok())
}

fn policies(text: &str) -> Policies {
    toml::from_str(text).unwrap()
}

struct Says(Answer);

#[async_trait]
impl Approver for Says {
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
struct Bench {
    gate: Gate,
    world: World,
    caller: Caller,
    ledger: Ledger,
    approver: Box<dyn Approver>,
}

impl Bench {
    fn new(policies_text: &str, world: World) -> Self {
        let gate = Gate::new(policies(policies_text));
        Bench {
            gate,
            world,
            caller: caller(),
            ledger: Ledger::default(),
            approver: Box::new(Nobody),
        }
    }

    async fn pass(&self, id: &str, arguments: Value) -> Passed {
        let passage = Passage {
            caller: &self.caller,
            ledger: &self.ledger,
            directory: &self.world,
            approver: self.approver.as_ref(),
            call_timeout: Duration::from_secs(60),
        };
        self.gate
            .pass(passage, self.world.call(id, arguments))
            .await
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
async fn reading_is_free_and_everything_else_is_asked_for() {
    let mut bench = Bench::new("", world());
    assert!(bench.result("s/get", json!({})).await.is_ok());
    for id in ["s/put", "s/delete"] {
        let (code, message) = bench.result(id, json!({})).await.unwrap_err();
        assert!(
            code == ErrorCode::Denied && message.contains("there is nobody to ask here"),
            "{message}"
        );
        assert!(bench.world.calls(id).is_empty());
    }
    bench.approver = Box::new(Says(Answer::Approved { by: "ada".into() }));
    assert!(bench.result("s/delete", json!({})).await.is_ok());
    bench.approver = Box::new(Says(Answer::Expired { after_ms: 7 }));
    assert!(
        bench
            .result("s/delete", json!({}))
            .await
            .unwrap_err()
            .1
            .contains("nobody allowed s/delete within 7 ms")
    );
    assert_eq!(bench.world.calls("s/delete").len(), 1);
}

#[tokio::test]
async fn arguments_are_normalised_checked_and_held_to_the_caller_before_the_call() {
    let text = "bind = { userId = \"$identity\" }\n[[rules]]\ndecision = \"allow\"";
    let bench = Bench::new(text, world());
    let passed = bench.pass("s/put", json!({ "quantity": "7,000" })).await;
    assert_eq!(
        bench.world.calls("s/put"),
        [json!({ "quantity": 7000, "userId": "ada" })]
    );
    assert_eq!(passed.report.changes.len(), 2);
    let (code, message) = bench
        .result("s/put", json!({ "quantity": 0 }))
        .await
        .unwrap_err();
    assert!(
        code == ErrorCode::InvalidArguments && message.contains("at /quantity: 0 is less"),
        "{message}"
    );
    let (code, message) = bench
        .result("s/put", json!({ "userId": "bob" }))
        .await
        .unwrap_err();
    assert!(
        code == ErrorCode::Denied && message.contains("/userId names \"bob\""),
        "{message}"
    );
    assert_eq!(bench.world.calls("s/put").len(), 1);
}

#[tokio::test]
async fn denied_and_rehearsed_calls_call_nothing() {
    let text =
        "[[rules]]\ntool = \"s/delete\"\ndecision = \"deny\"\n[[rules]]\ndecision = \"dry_run\"";
    let bench = Bench::new(text, world());
    let (code, message) = bench.result("s/delete", json!({})).await.unwrap_err();
    assert!(
        code == ErrorCode::Denied && message.contains("denied by rule 1"),
        "{message}"
    );
    let data = bench
        .result("s/put", json!({ "quantity": "2" }))
        .await
        .unwrap();
    assert_eq!(
        (&data["dry_run"], &data["arguments"]),
        (&json!(true), &json!({ "quantity": 2 }))
    );
    assert!(bench.world.calls("s/delete").is_empty() && bench.world.calls("s/put").is_empty());
}

#[tokio::test]
async fn limits_end_a_loop() {
    let bench = Bench::new("limits = { calls = 3 }", world());
    for _ in 0..3 {
        assert!(bench.result("s/get", json!({})).await.is_ok());
    }
    assert_eq!(
        bench.result("s/get", json!({})).await.unwrap_err().0,
        ErrorCode::Limit
    );
    assert_eq!(bench.world.calls("s/get").len(), 3);
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
async fn what_does_not_hold_is_made_to_hold_once_a_run() {
    let world = world()
        .with("s/getUser", Ok(json!({ "exists": false })))
        .with("s/register", Ok(json!({})));
    let bench = Bench::new(REGISTERED, world);
    for _ in 0..2 {
        assert!(
            bench
                .result("s/put", json!({ "userId": "ada" }))
                .await
                .is_ok()
        );
    }
    assert_eq!(
        bench.world.calls("s/register"),
        [json!({ "userId": "ada" })]
    );
    assert_eq!(
        (
            bench.world.calls("s/getUser").len(),
            bench.world.calls("s/put").len()
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn a_precondition_that_cannot_be_met_keeps_the_call_from_being_made() {
    let no = || Ok(json!({ "exists": false }));
    for (world, rule, expected) in [
        (
            world()
                .with("s/getUser", no())
                .with("s/register", Err("closed")),
            "",
            "s/register first, and that failed",
        ),
        (
            world()
                .with("s/getUser", Err("down"))
                .with("s/register", no()),
            "",
            "s/getUser to agree first",
        ),
        (world().with("s/getUser", no()), "", "no tool has this id"),
        (
            world().with("s/getUser", no()).with("s/register", no()),
            "[[rules]]\ntool = \"s/register\"\ndecision = \"deny\"\n",
            "denied by rule 1",
        ),
        (
            world().with("s/getUser", no()).with("s/register", no()),
            "[[rules]]\ntool = \"s/register\"\ndecision = \"dry_run\"\n",
            "that is a dry run",
        ),
    ] {
        let bench = Bench::new(&format!("{rule}{REGISTERED}"), world);
        let (code, message) = bench
            .result("s/put", json!({ "userId": "ada" }))
            .await
            .unwrap_err();
        assert!(
            code == ErrorCode::Precondition && message.contains(expected),
            "{message}"
        );
        assert!(bench.world.calls("s/put").is_empty());
    }
}

#[tokio::test]
async fn preconditions_in_a_circle_end() {
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
    let bench = Bench::new(text, world());
    let (_, message) = bench.result("s/put", json!({})).await.unwrap_err();
    assert!(
        message.contains("in a circle: s/put -> s/get -> s/put"),
        "{message}"
    );
    assert!(bench.world.calls("s/put").is_empty());
}

/// The lines of a log.
fn lines(log: &AuditLog) -> Vec<Value> {
    let mut lines = Vec::new();
    log.export(|line| -> Result<(), AuditError> {
        lines.push(serde_json::from_str(line).unwrap());
        Ok(())
    })
    .unwrap();
    lines
}

fn audited(mut bench: Bench) -> (tempfile::TempDir, Arc<AuditLog>, Bench) {
    let folder = tempfile::tempdir().unwrap();
    let log = Arc::new(AuditLog::open(&folder.path().join(audit::FILE_NAME)).unwrap());
    bench.gate = bench.gate.with_audit(log.clone());
    (folder, log, bench)
}

#[tokio::test]
async fn every_call_is_written_down_without_its_secrets() {
    let text =
        "[[rules]]\nclass = \"destructive\"\ndecision = \"deny\"\n[[rules]]\ndecision = \"allow\"";
    let (_folder, log, bench) = audited(Bench::new(text, world()));
    bench
        .pass(
            "s/put",
            json!({ "quantity": "7,000", "password": "hunter2" }),
        )
        .await;
    bench.pass("s/delete", json!({})).await;
    let lines = lines(&log);
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
async fn what_cannot_be_written_down_is_not_done() {
    let (folder, log, bench) = audited(Bench::new("[[rules]]\ndecision = \"allow\"", world()));
    let path = folder.path().join(audit::FILE_NAME);
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("DROP TABLE entries")
        .unwrap();
    let (code, message) = bench.result("s/put", json!({})).await.unwrap_err();
    assert!(
        code == ErrorCode::Denied && message.contains("audit log cannot be written"),
        "{message}"
    );
    assert!(bench.world.calls("s/put").is_empty());
    drop(log);
}

#[tokio::test]
async fn the_end_of_a_stopped_call_is_written_down_too() {
    let (_folder, log, bench) = audited(Bench::new("[[rules]]\ndecision = \"allow\"", world()));
    assert!(
        timeout(
            Duration::from_millis(50),
            bench.pass("s/put_hang", json!({}))
        )
        .await
        .is_err()
    );
    assert_eq!(lines(&log)[1]["error_code"], "cancelled");
}

#[tokio::test]
async fn a_tool_whose_schema_changes_is_checked_by_its_new_one() {
    let bench = Bench::new("[[rules]]\ndecision = \"allow\"", world());
    assert!(
        bench
            .result("s/put", json!({ "quantity": 5 }))
            .await
            .is_ok()
    );
    let mut changed = (*bench.world.tools["s/put"].0).clone();
    changed.input_schema["properties"]["quantity"]["maximum"] = json!(2);
    let judgement = bench.gate.judge(
        &bench.caller,
        &Arc::new(changed),
        bench
            .world
            .call("s/put", json!({ "quantity": 5 }))
            .arguments,
    );
    assert!(
        judgement
            .refusal
            .unwrap()
            .message
            .contains("greater than the maximum of 2")
    );
}

/// A directory in which a tool changes when a person is asked about it, and the person.
struct Shifting {
    world: World,
    shifted: Mutex<Option<Option<Arc<Tool>>>>,
    to: Option<Arc<Tool>>,
}

impl Directory for Shifting {
    fn tool(&self, id: &ToolId) -> Option<Arc<Tool>> {
        let shifted = self.shifted.lock().unwrap().clone();
        shifted.unwrap_or_else(|| self.world.tool(id))
    }

    fn callable(&self, id: &ToolId) -> Option<Arc<dyn Callable>> {
        self.world.callable(id)
    }
}

#[async_trait]
impl Approver for Shifting {
    async fn ask(&self, _: ApprovalRequest) -> Answer {
        *self.shifted.lock().unwrap() = Some(self.to.clone());
        Answer::Approved { by: "ada".into() }
    }
}

#[tokio::test]
async fn an_answer_does_not_count_for_a_tool_that_changed_or_went() {
    let tool = world().tools["s/delete"].0.clone();
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
            Some("s/delete was taken away while a person decided on it"),
        ),
        (Some(Arc::new(tagged)), None),
    ] {
        let shifting = Shifting {
            world: world(),
            shifted: Mutex::default(),
            to,
        };
        let (caller, ledger) = (caller(), Ledger::default());
        let passage = Passage {
            caller: &caller,
            ledger: &ledger,
            directory: &shifting,
            approver: &shifting,
            call_timeout: Duration::from_secs(60),
        };
        let gate = Gate::new(Policies::default());
        let result = gate
            .pass(passage, shifting.world.call("s/delete", json!({})))
            .await
            .result;
        let message = result.error_message.unwrap_or_default();
        assert_eq!(
            (message.is_empty(), shifting.world.calls("s/delete").len()),
            match expected {
                None => (true, 1),
                Some(_) => (false, 0),
            }
        );
        assert!(message.contains(expected.unwrap_or_default()), "{message}");
    }
}

#[tokio::test]
async fn a_call_is_judged_by_what_the_tool_says_now() {
    let mut stale = Tool::new("s", "delete").unwrap();
    stale.annotations.read_only_hint = Some(true);
    let bench = Bench::new("", world());
    let call = Call {
        tool: Arc::new(stale),
        ..bench.world.call("s/delete", json!({}))
    };
    let (caller, ledger) = (caller(), Ledger::default());
    let passage = Passage {
        caller: &caller,
        ledger: &ledger,
        directory: &bench.world,
        approver: &Nobody,
        call_timeout: Duration::from_secs(60),
    };
    let passed = bench.gate.pass(passage, call).await;
    assert_eq!(passed.report.ruling.class, Class::Destructive);
    assert_eq!(passed.result.error_code, Some(ErrorCode::Denied));
}

#[tokio::test]
async fn a_caller_that_only_reads_calls_nothing_else_whatever_the_rules_allow() {
    let allow_all = "[[rules]]\ntool = \"*\"\ndecision = \"allow\"";
    let mut bench = Bench::new(allow_all, world());
    bench.caller.only_reads = true;
    assert!(bench.result("s/get", json!({})).await.is_ok());
    for id in ["s/put", "s/delete"] {
        let (code, message) = bench.result(id, json!({})).await.unwrap_err();
        assert_eq!(code, ErrorCode::Denied);
        assert!(message.contains("a key with the scope call"), "{message}");
        assert!(bench.world.calls(id).is_empty());
    }
}
