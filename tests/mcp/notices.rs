//! What servers tell clients of the gateway unasked: log messages, and that a resource has changed.
#![expect(deprecated, reason = "there is no other way to log")]

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ErrorCode, LoggingLevel, LoggingMessageNotificationParam,
    ResourceUpdatedNotificationParam, SetLevelRequestParams, SubscribeRequestParams,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RoleClient, RunningService, ServiceError};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolscout::gate::{Gate, Policies};
use toolscout::mcp::config::Beginning;
use toolscout::mcp::{Gateway, GatewayConfig, ServerConfig};

use super::world::{PATIENCE, Upstream, double, object};

/// A client that notes what it is told.
#[derive(Clone)]
struct Listener(mpsc::UnboundedSender<Value>);

impl ClientHandler for Listener {
    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.0.send(serde_json::to_value(message).unwrap());
    }

    async fn on_resource_updated(
        &self,
        updated: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.0.send(json!({ "updated": updated.uri }));
    }
}

/// A client of a gateway, and what it is told.
struct Client {
    running: RunningService<RoleClient, Listener>,
    told: mpsc::UnboundedReceiver<Value>,
}

impl Client {
    async fn of(gateway: &Gateway) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let gateway = gateway.clone();
        tokio::spawn(async move {
            let (read, write) = tokio::io::split(theirs);
            gateway.serve(read, write, CancellationToken::new()).await
        });
        #[expect(clippy::disallowed_methods, reason = "the test reads all of it")]
        let (sender, told) = mpsc::unbounded_channel();
        let running = Listener(sender).serve(tokio::io::split(ours)).await;
        Client {
            running: running.expect("a handshake"),
            told,
        }
    }

    async fn call(&self, name: &str, arguments: Value) {
        let given = json!({ "name": name, "arguments": arguments });
        let params = CallToolRequestParams::new("call_tool").with_arguments(object(given));
        let called = timeout(PATIENCE, self.running.call_tool(params)).await;
        assert_ne!(called.unwrap().unwrap().is_error, Some(true));
    }

    async fn next(&mut self) -> Value {
        let told = timeout(PATIENCE, self.told.recv()).await;
        told.expect("it is told in time").expect("it is connected")
    }

    async fn set_level(&self, level: LoggingLevel) -> Result<(), ServiceError> {
        let setting = self.running.set_level(SetLevelRequestParams::new(level));
        setting.await
    }

    async fn subscribe(&self, uri: &str) -> Result<(), ServiceError> {
        self.running
            .subscribe(SubscribeRequestParams::new(uri))
            .await
    }
}

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::new(
        Arc::new(upstream.catalog.clone()),
        upstream.pool.clone(),
        Arc::new(Gate::new(Policies::permissive())),
        GatewayConfig::default(),
    )
}

fn is_unknown_method(answer: Result<(), ServiceError>) -> bool {
    match answer {
        Err(ServiceError::McpError(error)) => error.code == ErrorCode::METHOD_NOT_FOUND,
        _ => false,
    }
}

#[tokio::test]
async fn log_messages_of_servers_reach_clients_from_their_level_on() {
    let upstream = Upstream::start(vec![double("a", &["logs"]), double("b", &[])]).await;
    let gateway = gateway(&upstream);
    let mut curious = Client::of(&gateway).await;
    let mut calm = Client::of(&gateway).await;
    let capabilities = &curious.running.peer_info().unwrap().capabilities;
    assert!(capabilities.logging.is_some());

    calm.set_level(LoggingLevel::Error).await.unwrap();
    curious.set_level(LoggingLevel::Debug).await.unwrap();
    // The server writes what it was asked for, which is the lowest level of all.
    curious.call("a/logs", json!({ "level": "debug" })).await;
    let first = curious.next().await;
    let expected = json!({ "level": "debug", "logger": "a/worker", "data": { "level": "debug" } });
    assert_eq!(first, expected);

    // Of a call of the other client, this one learns nothing: it gets its own messages next.
    curious
        .call("a/logs", json!({ "level": "error", "name": null }))
        .await;
    assert_eq!(curious.next().await["level"], "error");
    calm.call("a/logs", json!({ "level": "warning" })).await;
    calm.call("a/logs", json!({ "level": "alert" })).await;
    loop {
        let told = calm.next().await;
        assert_ne!(told["level"], "warning", "below its level");
        if told["level"] == "alert" {
            break;
        }
    }
}

#[tokio::test]
async fn what_no_server_offers_is_an_error_and_not_an_empty_answer() {
    let upstream = Upstream::start(vec![double("a", &[])]).await;
    let client = Client::of(&gateway(&upstream)).await;
    let capabilities = client.running.peer_info().unwrap().capabilities.clone();
    assert!(capabilities.tools.is_some());
    assert_eq!(
        (
            capabilities.prompts,
            capabilities.resources,
            capabilities.logging,
            capabilities.completions
        ),
        (None, None, None, None)
    );
    assert!(is_unknown_method(
        client.set_level(LoggingLevel::Info).await
    ));
    assert!(is_unknown_method(client.subscribe("memo:all").await));
    let prompts = client.running.list_prompts(None).await;
    assert!(is_unknown_method(prompts.map(drop)));
    let resources = client.running.list_resources(None).await;
    assert!(is_unknown_method(resources.map(drop)));
    let completed = client
        .running
        .complete_prompt_simple("a__x", "y", "z")
        .await;
    assert!(is_unknown_method(completed.map(drop)));
}

#[tokio::test]
async fn a_server_is_subscribed_to_once_for_several_clients() {
    let upstream = Upstream::start(vec![double("a", &["offers", "updates"])]).await;
    let gateway = gateway(&upstream);
    let (mut first, mut second) = (Client::of(&gateway).await, Client::of(&gateway).await);
    let capabilities = &first.running.peer_info().unwrap().capabilities;
    let resources = capabilities.resources.as_ref().unwrap();
    assert_eq!(resources.subscribe, Some(true));

    for client in [&first, &second] {
        client.subscribe("memo:all").await.unwrap();
        // Once more changes nothing.
        client.subscribe("memo:all").await.unwrap();
    }
    // The server tells how often it was asked.
    first.call("a/updates", json!({})).await;
    for client in [&mut first, &mut second] {
        assert_eq!(client.next().await, json!({ "updated": "memo:all" }));
    }
    assert_eq!(asked(&upstream).await, ["subscribe memo:all"]);

    let end = UnsubscribeRequestParams::new("memo:all");
    first.running.unsubscribe(end).await.unwrap();
    second.call("a/updates", json!({})).await;
    assert_eq!(second.next().await, json!({ "updated": "memo:all" }));
    assert_eq!(asked(&upstream).await, ["subscribe memo:all"]);

    // The end of a session ends its subscriptions.
    drop(second);
    super::world::until("the server is told", || async {
        asked(&upstream).await.len() == 2
    })
    .await;
    assert_eq!(asked(&upstream).await[1], "unsubscribe memo:all");

    let unknown = first
        .subscribe("nothing:here")
        .await
        .unwrap_err()
        .to_string();
    assert!(unknown.contains("nothing:here"), "{unknown}");
}

/// What the server was asked for about subscriptions.
async fn asked(upstream: &Upstream) -> Vec<String> {
    let answer = upstream.call("a/subscribed", json!({})).await.unwrap();
    serde_json::from_str(&super::world::text(answer)).unwrap()
}

#[tokio::test]
async fn a_subscription_without_a_session_that_ends_is_made_again() {
    let server = ServerConfig {
        beginning: Beginning::Discovery,
        ..double("a", &["modern", "offers", "updates", "listens"])
    };
    let upstream = Upstream::start_with(vec![server], |config| {
        config.limits.first_pause = Duration::from_millis(10);
    })
    .await;
    let mut client = Client::of(&gateway(&upstream)).await;
    client.subscribe("memo:all").await.unwrap();
    // The server has ended it, and something may have changed until it was made again.
    assert_eq!(client.next().await, json!({ "updated": "memo:all" }));
    let listened = upstream.call("a/listens", json!({})).await.unwrap();
    assert_eq!(super::world::text(listened), "{\"memo:all\": 2}");
    client.call("a/updates", json!({})).await;
    assert_eq!(client.next().await, json!({ "updated": "memo:all" }));
}

#[tokio::test]
async fn subscriptions_of_a_session_are_bounded_and_renewed_after_a_restart() {
    let upstream = Upstream::start(vec![double("a", &["offers", "updates"])]).await;
    let mut client = Client::of(&gateway(&upstream)).await;
    client.subscribe("memo:1/list").await.unwrap();
    let _ = upstream.call("a/exit", json!({})).await;
    super::world::until("it is subscribed again", || async {
        match upstream.call("a/subscribed", json!({})).await {
            Ok(answer) => super::world::text(answer).contains("subscribe memo:1/list"),
            Err(_) => false,
        }
    })
    .await;
    client
        .call("a/updates", json!({ "uri": "memo:1/list/5" }))
        .await;
    assert_eq!(client.next().await, json!({ "updated": "memo:1/list/5" }));

    for number in 2..=256 {
        let uri = format!("memo:{number}/list");
        client.subscribe(&uri).await.unwrap();
    }
    let refused = client.subscribe("memo:257/list").await.unwrap_err();
    assert!(refused.to_string().contains("256"), "{refused}");
}
