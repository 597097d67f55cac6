//! Tools declared by `#[toolscout::tool]`: their definitions, their calls, and what the gate makes
//! of their class.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolscout::agent::{Agent, Event, Question};
use toolscout::gate::{Answer, Class, Policies};
use toolscout::llm::ScriptedModel;
use toolscout::llm::script::Reply;
use toolscout::principal::OwnerScope;
use toolscout::tools::{Parameters, Registry, Status, Toolset};
use toolscout_index::{DataDir, Options, Tool, ToolId};

/// The tools of this file: they have a server, and those of other files would not be called so.
static COLLECTED: LazyLock<Registry> = LazyLock::new(|| Registry::collect().expect("valid tools"));

#[derive(Serialize)]
struct Forecast {
    city: String,
    days: u8,
}

/// Returns the weather forecast of a city.
///
/// Knows the coming week.
#[toolscout::tool(server = "declared", class = "read_only")]
async fn get_forecast(
    /// Name of the city,
    /// in any language.
    city: String,
    /// Days from now.
    #[schemars(range(max = 7))]
    days: Option<u8>,
) -> Result<Forecast, std::io::Error> {
    if city == "Atlantis" {
        return Err(std::io::Error::other("there is no weather under water"));
    }
    let days = days.unwrap_or(0);
    Ok(Forecast { city, days })
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    /// What is traded.
    symbol: String,
    #[serde(default = "one")]
    lots: u32,
}

fn one() -> u32 {
    1
}

/// Places an order.
#[toolscout::tool(server = "declared", name = "order", class = "state_changing")]
async fn place_order(Parameters(Order { symbol, lots }): Parameters<Order>) -> String {
    format!("{lots} of {symbol}")
}

#[toolscout::tool(
    server = "declared",
    description = "Forgets everything.",
    class = "destructive"
)]
fn forget(r#type: String, mut times: u32) -> anyhow::Result<u32> {
    times += 1;
    anyhow::ensure!(r#type == "all", "cannot forget {}", r#type);
    let kept = Err(anyhow::anyhow!("the disk is read-only"));
    if times > 2 {
        kept.map_err(|error: anyhow::Error| error.context("nothing was forgotten"))
    } else {
        Ok(times)
    }
}

/// Does nothing.
#[toolscout::tool(server = "declared")]
async fn nothing() {}

fn definition(name: &str) -> Tool {
    let wanted = ToolId::new("declared", name).unwrap();
    let mut definitions = COLLECTED.definitions();
    definitions
        .find(|tool| tool.id == wanted)
        .expect(name)
        .clone()
}

async fn call(name: &str, arguments: Value) -> Result<Value, String> {
    let callable = COLLECTED.find(&definition(name).id).expect(name);
    let called = callable.call(arguments.as_object().unwrap().clone());
    called.await.map_err(|failure| failure.message)
}

#[test]
fn a_function_with_the_attribute_is_defined_by_its_name_comments_and_parameters() {
    let forecast = definition("get_forecast");
    assert_eq!(
        forecast.description,
        "Returns the weather forecast of a city.\n\nKnows the coming week."
    );
    assert_eq!(
        Value::Object(forecast.input_schema),
        json!({
            "type": "object",
            "properties": {
                "city": { "description": "Name of the city,\nin any language.", "type": "string" },
                "days": { "description": "Days from now.", "type": ["integer", "null"], "format": "uint8",
                    "minimum": 0, "maximum": 7 },
            },
            "required": ["city"],
            "additionalProperties": false,
        })
    );

    let order = definition("order");
    assert_eq!(
        order.input_schema["properties"]["symbol"]["description"],
        "What is traded."
    );
    assert_eq!(order.input_schema["required"], json!(["symbol"]));

    assert_eq!(definition("forget").description, "Forgets everything.");
    assert_eq!(
        definition("forget").input_schema["required"],
        json!(["type", "times"])
    );
}

#[test]
fn the_class_of_the_attribute_is_what_the_gate_judges_by() {
    let class = |name: &str| Policies::default().class(&definition(name));
    assert_eq!(class("get_forecast"), Class::ReadOnly);
    assert_eq!(class("order"), Class::StateChanging);
    assert_eq!(class("forget"), Class::Destructive);
    assert_eq!(class("nothing"), Class::StateChanging);
}

#[tokio::test]
async fn a_call_reads_the_arguments_and_writes_the_result() {
    let given = json!({ "city": "北京", "days": 2 });
    assert_eq!(call("get_forecast", given.clone()).await, Ok(given));
    assert_eq!(
        call("get_forecast", json!({ "city": "Oslo" })).await,
        Ok(json!({ "city": "Oslo", "days": 0 }))
    );
    assert_eq!(
        call("order", json!({ "symbol": "GAS" })).await,
        Ok(json!("1 of GAS"))
    );
    assert_eq!(
        call("forget", json!({ "type": "all", "times": 1 })).await,
        Ok(json!(2))
    );
    assert_eq!(call("nothing", json!({})).await, Ok(Value::Null));
}

#[tokio::test]
async fn a_call_that_fails_says_why() {
    for (name, arguments, expected) in [
        (
            "get_forecast",
            json!({ "city": "Atlantis" }),
            "there is no weather under water",
        ),
        (
            "forget",
            json!({ "type": "all", "times": 2 }),
            "nothing was forgotten: the disk is read-only",
        ),
        (
            "get_forecast",
            json!({}),
            "the arguments do not fit: missing field `city`",
        ),
        (
            "get_forecast",
            json!({ "city": "Oslo", "days": "two" }),
            "the arguments do not fit: days: invalid type: string \"two\"",
        ),
        (
            "get_forecast",
            json!({ "city": "Oslo", "unit": "F" }),
            "unknown field `unit`, expected `city` or `days`",
        ),
    ] {
        let message = call(name, arguments).await.unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn an_agent_calls_what_only_reads_and_asks_before_what_does_more() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = DataDir::new(folder.path())
        .open_or_create("default", Options::default())
        .unwrap();
    let model = ScriptedModel::new(
        "test",
        [Reply::text("")
            .call("declared__get_forecast", json!({ "city": "Oslo" }))
            .call("declared__order", json!({ "symbol": "GAS" }))],
    );
    let agent = Agent::builder()
        .llm(model)
        .catalog(catalog)
        .registry(COLLECTED.clone())
        .build()
        .unwrap();
    let mut events = agent
        .start(Question::new("Is it time to buy gas?"))
        .unwrap();
    let (mut results, mut asked) = (Vec::new(), Value::Null);
    while let Some((_, event)) = events.next().await {
        match event {
            Event::ApprovalRequired { id, request, .. } => {
                asked = serde_json::to_value(&request).unwrap();
                let refused = Answer::Refused {
                    by: "ada".into(),
                    reason: String::new(),
                };
                assert!(agent.answer_approval(&OwnerScope::All, &id, refused));
            }
            Event::ToolResult { name, status, .. } => results.push((name, status)),
            _ => {}
        }
    }
    assert_eq!(
        (&asked["tool"], &asked["class"]),
        (&json!("declared/order"), &json!("state_changing"))
    );
    results.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("declared__get_forecast", Status::Ok),
        ("declared__order", Status::Error),
    ];
    assert_eq!(
        results,
        expected.map(|(name, status)| (name.to_owned(), status))
    );
}
