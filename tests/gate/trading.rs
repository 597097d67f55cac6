//! A trading profile end to end: a scripted model plans, the gate checks, and the exchange is
//! called over its socket.

use std::sync::Arc;

use serde_json::{Value, json};
use toolscout::agent::profile::AgentProfile;
use toolscout::agent::{Agent, AgentConfig, Event, Question};
use toolscout::gate::audit::AuditError;
use toolscout::gate::{Answer, AuditLog, Policies};
use toolscout::llm::ScriptedModel;
use toolscout::llm::script::Reply;
use toolscout::principal::OwnerScope;
use toolscout::session::TurnStatus;
use toolscout::tools::operation::Operations;
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{DataDir, Options};

use super::exchange::{Exchange, TOKEN};

/// An agent with its exchange and its audit log.
struct TestSetup {
    exchange: Exchange,
    agent: Agent,
    model: Arc<ScriptedModel>,
    log: Arc<AuditLog>,
    _folder: tempfile::TempDir,
}

/// How the person answers requests for approval.
#[derive(Clone, Copy)]
enum Person {
    SaysYes,
    SaysNo,
    IsAway,
}

impl TestSetup {
    async fn open(replies: &[Value]) -> Self {
        TestSetup::open_with(replies, |_| {}).await
    }

    async fn open_with(replies: &[Value], change: impl FnOnce(&mut Policies)) -> Self {
        let exchange = Exchange::open().await;
        let folder = tempfile::tempdir().unwrap();
        let catalog = DataDir::new(folder.path())
            .open_or_create("c", Options::default())
            .unwrap();
        let options = ReadOptions {
            server: Some("exchange".into()),
            ..ReadOptions::default()
        };
        let tools = formats::parse(include_bytes!("exchange.yaml"), &options)
            .unwrap()
            .tools;
        let mut writer = catalog.writer().unwrap();
        writer.upsert(&tools).unwrap();
        writer.commit().unwrap();
        drop(writer);

        let text =
            include_str!("trading.toml").replace("EXCHANGE/", &format!("{}/", exchange.address));
        let profile = AgentProfile::parse("trading", &text).unwrap();
        let services = profile.operations.clone();
        let mut config = profile.applied_to(AgentConfig {
            recommend_within: None,
            ..AgentConfig::default()
        });
        change(&mut config.policies);
        let searcher = catalog.searcher();
        let token = |name: &str| (name == "EXCHANGE_TOKEN").then(|| TOKEN.to_owned());
        let operations = Operations::new(&services, token).unwrap();
        let operations = operations.found_by(Arc::new(move |id| searcher.tool(id)));
        let log = Arc::new(AuditLog::open(&folder.path().join("audit.db")).unwrap());
        let text = |reply: &Value| {
            Reply::text(
                reply
                    .as_str()
                    .map_or_else(|| reply.to_string(), str::to_owned),
            )
        };
        let model = Arc::new(ScriptedModel::new("script", replies.iter().map(text)));
        let builder = Agent::builder()
            .shared_llm(model.clone())
            .catalog(catalog)
            .tools(operations);
        let agent = builder.config(config).audit(log.clone()).build().unwrap();
        TestSetup {
            exchange,
            agent,
            model,
            log,
            _folder: folder,
        }
    }

    /// Asks on behalf of ada.
    async fn ask(&self, person: Person) -> Received {
        let mut stream = self
            .agent
            .start(Question::new("trade").on_behalf_of("ada").asked_by("test"))
            .unwrap();
        let mut received = Received::default();
        while let Some((_, event)) = stream.next().await {
            match &event {
                Event::Text { content } => received.answer.push_str(content),
                Event::Error { content } => received.error.push_str(content),
                Event::Plan { problems, .. } => {
                    received.plan = serde_json::to_value(&event).unwrap();
                    received.problems.extend(problems.clone());
                }
                Event::PlanOutcome { steps } => received.outcome = Value::Object(steps.clone()),
                Event::ApprovalRequired { id, .. } => {
                    received.asked.push(serde_json::to_value(&event).unwrap());
                    self.answer(id, person);
                }
                Event::Done { status, .. } => received.status = Some(*status),
                _ => {}
            }
        }
        received
    }

    fn answer(&self, id: &str, person: Person) {
        let by = "ada".to_owned();
        let answer = match person {
            Person::SaysYes => Answer::Approved { by },
            Person::SaysNo => Answer::Refused {
                by,
                reason: "too risky".into(),
            },
            Person::IsAway => return,
        };
        assert!(self.agent.answer_approval(&OwnerScope::All, id, answer));
    }

    fn log(&self) -> Vec<Value> {
        let mut lines = Vec::new();
        self.log
            .export(|line| -> Result<(), AuditError> {
                lines.push(serde_json::from_str(line).unwrap());
                Ok(())
            })
            .unwrap();
        lines
    }
}

#[derive(Default)]
struct Received {
    plan: Value,
    problems: Vec<String>,
    outcome: Value,
    asked: Vec<Value>,
    answer: String,
    error: String,
    status: Option<TurnStatus>,
}

fn order(quantity: Value) -> Value {
    json!({ "action": "placeOrder", "arguments": { "side": "buy", "quantity": quantity, "price": "7.5" } })
}

#[tokio::test]
async fn a_plan_is_shown_normalized_executed_in_order_and_logged() {
    let plan = json!({ "actions": [
        { "action": "getOrderBook", "arguments": {} },
        { "action": "getWallet", "arguments": {} },
        { "action": "placeOrder", "arguments": { "side": "buy", "quantity": "7,000", "price": "${1.best.price}" } },
    ], "final_answer": "Bought for ${3.price} cents, order ${3.orderId}." });
    let setup = TestSetup::open(&[plan]).await;
    let received = setup.ask(Person::IsAway).await;
    assert_eq!(
        (received.status, received.answer.as_str()),
        (Some(TurnStatus::Answered), "Bought for 7.5 cents, order 1.")
    );
    assert_eq!(received.plan["steps"][2]["arguments"]["quantity"], 7000);
    assert_eq!(received.plan["steps"][2]["class"], "state_changing");
    let sent =
        json!({ "userId": "ada", "side": "BUY", "quantity": 7000, "price": 7.5, "orderId": 1 });
    assert_eq!(setup.exchange.orders(), [sent]);
    assert_eq!(
        setup.exchange.requests(),
        [
            "GET /v1/orderBook?area=NORTH",
            "GET /v1/wallet/ada",
            "POST /v1/orders"
        ]
    );
    for step in ["1", "2", "3"] {
        assert_eq!(received.outcome[step]["status"], "ok");
    }
    let log = setup.log();
    let placed = log
        .iter()
        .find(|line| line["tool"] == "exchange/placeOrder" && line["event"] == "begun")
        .unwrap();
    assert_eq!(
        (&placed["given"]["quantity"], &placed["sent"]["quantity"]),
        (&json!("7,000"), &json!(7000))
    );
    assert_eq!(
        (&placed["rule"], &placed["identity"]),
        (&json!("trade freely"), &json!("ada"))
    );
    assert_eq!(setup.log.verify(None).unwrap().entries, 6);
    assert!(!log.iter().any(|line| line.to_string().contains(TOKEN)));
}

#[tokio::test]
async fn a_missing_parameter_is_reported_and_nothing_runs_until_it_is_given() {
    let first = json!({ "actions": [{ "action": "getOrderBook" }, { "action": "placeOrder", "arguments": { "side": "buy", "price": 7 } }] });
    let second = json!({ "actions": [order(json!(10))], "final_answer": "done" });
    let setup = TestSetup::open(&[first, second]).await;
    let received = setup.ask(Person::IsAway).await;
    assert!(
        received.problems[0].contains("step 2: ")
            && received.problems[0].contains("at /quantity: missing"),
        "{:?}",
        received.problems
    );
    assert_eq!(
        setup.exchange.requests(),
        ["POST /v1/orders"],
        "nothing of the first plan was carried out"
    );
    let asked_again = setup.model.requests()[1]
        .messages
        .last()
        .unwrap()
        .content()
        .to_owned();
    assert!(
        asked_again.contains("at /quantity: missing"),
        "{asked_again}"
    );
    assert_eq!(received.answer, "done");
}

#[tokio::test]
async fn a_user_is_registered_before_a_simulation_and_only_when_absent() {
    let plan = || {
        json!({ "actions": [
        { "step": "sim", "action": "runSimulation", "arguments": { "days": "14" } },
        { "action": "exportReport", "arguments": { "simulationId": "${sim.simulationId}" } },
    ], "final_answer": "${2.report}" })
    };
    let setup = TestSetup::open(&[plan(), plan()]).await;
    assert_eq!(setup.ask(Person::IsAway).await.answer, "sim-7: profit 42");
    let first = [
        "GET /v1/users/ada/exists",
        "POST /v1/users",
        "POST /v1/simulations",
        "GET /v1/reports/sim-7",
    ];
    assert_eq!(setup.exchange.requests(), first);
    assert_eq!(setup.ask(Person::IsAway).await.answer, "sim-7: profit 42");
    let second = [
        "GET /v1/users/ada/exists",
        "POST /v1/simulations",
        "GET /v1/reports/sim-7",
    ];
    assert_eq!(setup.exchange.requests()[4..], second);
    let log = setup.log();
    let registering = log
        .iter()
        .find(|line| line["tool"] == "exchange/registerUser")
        .unwrap();
    assert_eq!(registering["on_behalf_of"], "exchange/runSimulation");
}

#[tokio::test]
async fn a_dry_run_describes_the_call_and_calls_nothing() {
    let plan = json!({ "actions": [order(json!("7,000")), { "action": "runSimulation" }], "final_answer": "would do" });
    let setup = TestSetup::open_with(&[plan], |policies| policies.dry_run = true).await;
    let received = setup.ask(Person::IsAway).await;
    assert_eq!(setup.exchange.requests(), Vec::<String>::new());
    let data = &received.outcome["1"]["data"];
    assert_eq!(
        (&data["would_call"], &data["arguments"]["quantity"]),
        (&json!("exchange/placeOrder"), &json!(7000))
    );
    assert_eq!(
        received.outcome["2"]["data"]["after_checking"],
        json!(["exchange/checkUserExists"])
    );
    assert!(setup.log().iter().all(|line| line["event"] == "dry_run"));
}

#[tokio::test]
async fn a_destructive_call_is_made_only_after_an_approval() {
    let plan = || json!({ "actions": [order(json!(5)), { "action": "cancelOrder", "arguments": { "orderId": "${1.orderId}" } }] });
    for (person, cancelled, code) in [
        (Person::SaysYes, true, Value::Null),
        (Person::SaysNo, false, json!("denied")),
        (Person::IsAway, false, json!("denied")),
    ] {
        let replies = [plan(), json!("so it is")];
        let setup = TestSetup::open_with(&replies, |policies| {
            policies.approval_timeout_s.0 = match person {
                Person::IsAway => 0,
                _ => 60,
            }
        })
        .await;
        let received = setup.ask(person).await;
        assert_eq!(
            received.asked[0]["arguments"],
            json!({ "orderId": 1 }),
            "the call as it will be made"
        );
        assert_eq!(
            (received.asked[0]["class"].as_str(), received.asked.len()),
            (Some("destructive"), 1)
        );
        assert_eq!(setup.exchange.orders().is_empty(), cancelled);
        assert_eq!(received.outcome["2"]["error_code"], code);
        assert_eq!(received.answer, "so it is");
    }
}

#[tokio::test]
async fn a_policy_denies_regardless_of_the_person() {
    let plan = json!({ "actions": [{ "action": "cancelOrder", "arguments": { "orderId": 1 } }] });
    let rule = toml::from_str(
        "tool = \"exchange/cancel*\"\ndecision = \"deny\"\nname = \"no cancelling\"",
    )
    .unwrap();
    let setup = TestSetup::open_with(&[plan, json!("sorry")], |policies| {
        policies.rules.insert(0, rule)
    })
    .await;
    let received = setup.ask(Person::SaysYes).await;
    assert!(received.asked.is_empty() && setup.exchange.requests().is_empty());
    let message = received.outcome["1"]["error_message"].as_str().unwrap();
    assert!(message.contains("denied by no cancelling"), "{message}");
}

#[tokio::test]
async fn a_failed_step_stops_only_the_steps_that_depend_on_it() {
    let plan = json!({ "actions": [
        order(json!("99,999")),
        { "action": "cancelOrder", "arguments": { "orderId": "${1.orderId}" } },
        { "action": "getWallet" },
        order(json!(1)),
    ], "final_answer": "All done!" });
    let setup = TestSetup::open(&[plan, json!("The first order failed.")]).await;
    let received = setup.ask(Person::SaysYes).await;
    let codes: Vec<&Value> = ["1", "2", "3", "4"]
        .iter()
        .map(|step| &received.outcome[*step]["error_code"])
        .collect();
    assert_eq!(
        codes,
        [
            &json!("failed"),
            &json!("skipped"),
            &Value::Null,
            &Value::Null
        ]
    );
    assert!(
        received.outcome["1"]["error_message"]
            .as_str()
            .unwrap()
            .contains("409 Conflict: no such quantity")
    );
    assert_eq!(
        (received.answer.as_str(), setup.exchange.orders().len()),
        ("The first order failed.", 1)
    );
    assert_eq!(
        received.asked.len(),
        0,
        "a call that cannot be made is not asked for"
    );
}

#[tokio::test]
async fn trading_for_another_user_is_refused() {
    let plan = json!({ "actions": [
        { "action": "placeOrder", "arguments": { "userId": "bob", "side": "SELL", "quantity": 1, "price": 1 } },
        { "action": "getWallet", "arguments": { "userId": "bob" } },
    ] });
    let setup = TestSetup::open(&[plan, json!("no")]).await;
    let received = setup.ask(Person::SaysYes).await;
    for step in ["1", "2"] {
        assert!(
            received.outcome[step]["error_message"]
                .as_str()
                .unwrap()
                .contains("/userId names \"bob\"")
        );
    }
    assert!(setup.exchange.requests().is_empty());
}

#[tokio::test]
async fn the_limit_of_a_rule_applies_within_a_plan() {
    let orders: Vec<Value> = (0..5).map(|_| order(json!(1))).collect();
    let setup = TestSetup::open(&[json!({ "actions": orders }), json!("three")]).await;
    let received = setup.ask(Person::SaysYes).await;
    assert_eq!(setup.exchange.orders().len(), 3);
    assert_eq!(received.outcome["4"]["error_code"], "limit");
}

#[tokio::test]
async fn plans_that_cannot_be_executed_end_with_their_problems() {
    for (plan, expected) in [
        (
            json!({ "actions": [{ "action": "stealAll" }] }),
            "no visible tool is called \"stealAll\"",
        ),
        (
            json!({ "actions": vec![order(json!(1)); 1000] }),
            "1000 actions, 32 are allowed",
        ),
        (
            json!({ "actions": [{ "action": "getWallet", "after": [1] }] }),
            "its own result",
        ),
        (
            json!(
                "{\"actions\":[{\"action\":\"getWallet\",\"arguments\":{\"userId\":\"ada\",\"userId\":\"bob\"}}]}"
            ),
            "comes twice",
        ),
    ] {
        let setup = TestSetup::open(&vec![plan; 5]).await;
        let received = setup.ask(Person::SaysYes).await;
        assert_eq!(received.status, Some(TurnStatus::Failed));
        assert!(
            received.error.contains(expected) && received.problems[0].contains(expected),
            "{}",
            received.error
        );
        assert!(setup.exchange.requests().is_empty());
    }
}

#[tokio::test]
async fn a_text_answer_calls_nothing() {
    let setup = TestSetup::open(&[json!(
        "I would cancelOrder {\"orderId\": 1}, if I were you."
    )])
    .await;
    let received = setup.ask(Person::SaysYes).await;
    assert_eq!(
        received.answer,
        "I would cancelOrder {\"orderId\": 1}, if I were you."
    );
    assert!(setup.exchange.requests().is_empty());
}
