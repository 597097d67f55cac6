//! The trading floor as a profile, end to end: a scripted model plans, the gate checks, the
//! exchange is called over its socket.

use std::sync::Arc;

use serde_json::{Value, json};
use toolscout::agent::profile::Profile;
use toolscout::agent::{Agent, AgentConfig, Event, Question};
use toolscout::gate::audit::AuditError;
use toolscout::gate::{Answer, AuditLog, Policies};
use toolscout::llm::ScriptedModel;
use toolscout::llm::script::Reply;
use toolscout::session::TurnStatus;
use toolscout::tools::operation::Operations;
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{DataDir, Options};

use super::exchange::{Exchange, TOKEN};

/// A trader, its exchange and what is written down of it.
struct Floor {
    exchange: Exchange,
    agent: Agent,
    model: Arc<ScriptedModel>,
    log: Arc<AuditLog>,
    _folder: tempfile::TempDir,
}

/// What the person says who is asked.
#[derive(Clone, Copy)]
enum Person {
    SaysYes,
    SaysNo,
    IsAway,
}

impl Floor {
    async fn open(replies: &[Value]) -> Self {
        Floor::open_with(replies, |_| {}).await
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
        let profile = Profile::parse("trading", &text).unwrap();
        let services = profile.operations.clone();
        let mut config = profile.applied_to(AgentConfig {
            recommend_within: None,
            ..AgentConfig::default()
        });
        change(&mut config.policies);
        let searcher = catalog.searcher();
        let token = |name: &str| (name == "EXCHANGE_TOKEN").then(|| TOKEN.to_owned());
        let operations =
            Operations::new(&services, token, Arc::new(move |id| searcher.tool(id))).unwrap();
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
        Floor {
            exchange,
            agent,
            model,
            log,
            _folder: folder,
        }
    }

    /// Asks on behalf of ada.
    async fn ask(&self, person: Person) -> Told {
        let mut stream = self
            .agent
            .start(Question::new("trade").on_behalf_of("ada").asked_by("test"))
            .unwrap();
        let mut told = Told::default();
        while let Some((_, event)) = stream.next().await {
            match &event {
                Event::Text { content } => told.answer.push_str(content),
                Event::Error { content } => told.error.push_str(content),
                Event::Plan { problems, .. } => {
                    told.plan = serde_json::to_value(&event).unwrap();
                    told.problems.extend(problems.clone());
                }
                Event::PlanOutcome { steps } => told.outcome = Value::Object(steps.clone()),
                Event::ApprovalRequired { id, .. } => {
                    told.asked.push(serde_json::to_value(&event).unwrap());
                    self.answer(id, person);
                }
                Event::Done { status, .. } => told.status = Some(*status),
                _ => {}
            }
        }
        told
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
        assert!(self.agent.answer_approval(id, answer));
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
struct Told {
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
async fn a_plan_is_shown_normalised_carried_out_in_order_and_written_down() {
    let plan = json!({ "actions": [
        { "action": "getOrderBook", "arguments": {} },
        { "action": "getWallet", "arguments": {} },
        { "action": "placeOrder", "arguments": { "side": "buy", "quantity": "7,000", "price": "${1.best.price}" } },
    ], "final_answer": "Bought for ${3.price} cents, order ${3.orderId}." });
    let floor = Floor::open(&[plan]).await;
    let told = floor.ask(Person::IsAway).await;
    assert_eq!(
        (told.status, told.answer.as_str()),
        (Some(TurnStatus::Answered), "Bought for 7.5 cents, order 1.")
    );
    assert_eq!(told.plan["steps"][2]["arguments"]["quantity"], 7000);
    assert_eq!(told.plan["steps"][2]["class"], "state_changing");
    let sent =
        json!({ "userId": "ada", "side": "BUY", "quantity": 7000, "price": 7.5, "orderId": 1 });
    assert_eq!(floor.exchange.orders(), [sent]);
    assert_eq!(
        floor.exchange.requests(),
        [
            "GET /v1/orderBook?area=NORTH",
            "GET /v1/wallet/ada",
            "POST /v1/orders"
        ]
    );
    for step in ["1", "2", "3"] {
        assert_eq!(told.outcome[step]["status"], "ok");
    }
    let log = floor.log();
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
    assert_eq!(floor.log.verify(None).unwrap().entries, 6);
    assert!(!log.iter().any(|line| line.to_string().contains(TOKEN)));
}

#[tokio::test]
async fn a_missing_parameter_is_named_and_nothing_runs_until_it_is_there() {
    let first = json!({ "actions": [{ "action": "getOrderBook" }, { "action": "placeOrder", "arguments": { "side": "buy", "price": 7 } }] });
    let second = json!({ "actions": [order(json!(10))], "final_answer": "done" });
    let floor = Floor::open(&[first, second]).await;
    let told = floor.ask(Person::IsAway).await;
    assert!(
        told.problems[0].contains("step 2: ") && told.problems[0].contains("at /quantity: missing"),
        "{:?}",
        told.problems
    );
    assert_eq!(
        floor.exchange.requests(),
        ["POST /v1/orders"],
        "nothing of the first plan was carried out"
    );
    let asked_again = floor.model.requests()[1]
        .messages
        .last()
        .unwrap()
        .content()
        .to_owned();
    assert!(
        asked_again.contains("at /quantity: missing"),
        "{asked_again}"
    );
    assert_eq!(told.answer, "done");
}

#[tokio::test]
async fn a_user_is_registered_before_a_simulation_and_only_when_absent() {
    let plan = || {
        json!({ "actions": [
        { "step": "sim", "action": "runSimulation", "arguments": { "days": "14" } },
        { "action": "exportReport", "arguments": { "simulationId": "${sim.simulationId}" } },
    ], "final_answer": "${2.report}" })
    };
    let floor = Floor::open(&[plan(), plan()]).await;
    assert_eq!(floor.ask(Person::IsAway).await.answer, "sim-7: profit 42");
    let first = [
        "GET /v1/users/ada/exists",
        "POST /v1/users",
        "POST /v1/simulations",
        "GET /v1/reports/sim-7",
    ];
    assert_eq!(floor.exchange.requests(), first);
    assert_eq!(floor.ask(Person::IsAway).await.answer, "sim-7: profit 42");
    let second = [
        "GET /v1/users/ada/exists",
        "POST /v1/simulations",
        "GET /v1/reports/sim-7",
    ];
    assert_eq!(floor.exchange.requests()[4..], second);
    let log = floor.log();
    let registering = log
        .iter()
        .find(|line| line["tool"] == "exchange/registerUser")
        .unwrap();
    assert_eq!(registering["on_behalf_of"], "exchange/runSimulation");
}

#[tokio::test]
async fn a_dry_run_answers_what_would_be_called_and_calls_nothing() {
    let plan = json!({ "actions": [order(json!("7,000")), { "action": "runSimulation" }], "final_answer": "would do" });
    let floor = Floor::open_with(&[plan], |policies| policies.dry_run = true).await;
    let told = floor.ask(Person::IsAway).await;
    assert_eq!(floor.exchange.requests(), Vec::<String>::new());
    let data = &told.outcome["1"]["data"];
    assert_eq!(
        (&data["would_call"], &data["arguments"]["quantity"]),
        (&json!("exchange/placeOrder"), &json!(7000))
    );
    assert_eq!(
        told.outcome["2"]["data"]["after_checking"],
        json!(["exchange/checkUserExists"])
    );
    assert!(floor.log().iter().all(|line| line["event"] == "dry_run"));
}

#[tokio::test]
async fn a_destructive_call_is_made_only_after_a_yes() {
    let plan = || json!({ "actions": [order(json!(5)), { "action": "cancelOrder", "arguments": { "orderId": "${1.orderId}" } }] });
    for (person, cancelled, code) in [
        (Person::SaysYes, true, Value::Null),
        (Person::SaysNo, false, json!("denied")),
        (Person::IsAway, false, json!("denied")),
    ] {
        let replies = [plan(), json!("so it is")];
        let floor = Floor::open_with(&replies, |policies| {
            policies.approval_timeout_s.0 = match person {
                Person::IsAway => 0,
                _ => 60,
            }
        })
        .await;
        let told = floor.ask(person).await;
        assert_eq!(
            told.asked[0]["arguments"],
            json!({ "orderId": 1 }),
            "the call as it will be made"
        );
        assert_eq!(
            (told.asked[0]["class"].as_str(), told.asked.len()),
            (Some("destructive"), 1)
        );
        assert_eq!(floor.exchange.orders().is_empty(), cancelled);
        assert_eq!(told.outcome["2"]["error_code"], code);
        assert_eq!(told.answer, "so it is");
    }
}

#[tokio::test]
async fn a_policy_denies_whatever_the_person_would_say() {
    let plan = json!({ "actions": [{ "action": "cancelOrder", "arguments": { "orderId": 1 } }] });
    let rule = toml::from_str(
        "tool = \"exchange/cancel*\"\ndecision = \"deny\"\nname = \"no cancelling\"",
    )
    .unwrap();
    let floor = Floor::open_with(&[plan, json!("sorry")], |policies| {
        policies.rules.insert(0, rule)
    })
    .await;
    let told = floor.ask(Person::SaysYes).await;
    assert!(told.asked.is_empty() && floor.exchange.requests().is_empty());
    let message = told.outcome["1"]["error_message"].as_str().unwrap();
    assert!(message.contains("denied by no cancelling"), "{message}");
}

#[tokio::test]
async fn one_failure_stops_what_depends_on_it_and_nothing_else() {
    let plan = json!({ "actions": [
        order(json!("99,999")),
        { "action": "cancelOrder", "arguments": { "orderId": "${1.orderId}" } },
        { "action": "getWallet" },
        order(json!(1)),
    ], "final_answer": "All done!" });
    let floor = Floor::open(&[plan, json!("The first order failed.")]).await;
    let told = floor.ask(Person::SaysYes).await;
    let codes: Vec<&Value> = ["1", "2", "3", "4"]
        .iter()
        .map(|step| &told.outcome[*step]["error_code"])
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
        told.outcome["1"]["error_message"]
            .as_str()
            .unwrap()
            .contains("409 Conflict: no such quantity")
    );
    assert_eq!(
        (told.answer.as_str(), floor.exchange.orders().len()),
        ("The first order failed.", 1)
    );
    assert_eq!(
        told.asked.len(),
        0,
        "a call that cannot be made is not asked for"
    );
}

#[tokio::test]
async fn nobody_trades_for_somebody_else() {
    let plan = json!({ "actions": [
        { "action": "placeOrder", "arguments": { "userId": "bob", "side": "SELL", "quantity": 1, "price": 1 } },
        { "action": "getWallet", "arguments": { "userId": "bob" } },
    ] });
    let floor = Floor::open(&[plan, json!("no")]).await;
    let told = floor.ask(Person::SaysYes).await;
    for step in ["1", "2"] {
        assert!(
            told.outcome[step]["error_message"]
                .as_str()
                .unwrap()
                .contains("/userId names \"bob\"")
        );
    }
    assert!(floor.exchange.requests().is_empty());
}

#[tokio::test]
async fn the_limit_of_a_rule_holds_within_a_plan() {
    let orders: Vec<Value> = (0..5).map(|_| order(json!(1))).collect();
    let floor = Floor::open(&[json!({ "actions": orders }), json!("three")]).await;
    let told = floor.ask(Person::SaysYes).await;
    assert_eq!(floor.exchange.orders().len(), 3);
    assert_eq!(told.outcome["4"]["error_code"], "limit");
}

#[tokio::test]
async fn plans_that_cannot_be_carried_out_end_in_their_reason() {
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
        let floor = Floor::open(&vec![plan; 5]).await;
        let told = floor.ask(Person::SaysYes).await;
        assert_eq!(told.status, Some(TurnStatus::Failed));
        assert!(
            told.error.contains(expected) && told.problems[0].contains(expected),
            "{}",
            told.error
        );
        assert!(floor.exchange.requests().is_empty());
    }
}

#[tokio::test]
async fn words_are_answered_and_nothing_is_called() {
    let floor = Floor::open(&[json!(
        "I would cancelOrder {\"orderId\": 1}, if I were you."
    )])
    .await;
    let told = floor.ask(Person::SaysYes).await;
    assert_eq!(
        told.answer,
        "I would cancelOrder {\"orderId\": 1}, if I were you."
    );
    assert!(floor.exchange.requests().is_empty());
}
