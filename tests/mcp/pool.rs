//! Servers that misbehave, each beside one that does not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use toolscout::mcp::pool::ConnectionState;
use toolscout::mcp::{CallContext, CallError};
use toolscout::tools::Toolset;
use toolscout_index::ToolId;

use super::world::{Lifeline, Upstream, becomes, double, double_with, object, text, until};

#[tokio::test]
async fn the_tools_of_every_server_are_found_and_called() {
    let upstream = Upstream::start(vec![
        double("a", &[]),
        double("b", &["noise", "stderr-flood"]),
    ])
    .await;
    assert_eq!(upstream.ids().len(), 16);
    assert_eq!(
        (
            upstream.echo("a").await.as_str(),
            upstream.echo("b").await.as_str()
        ),
        ("hello", "hello")
    );
    let unknown = upstream.call("c/echo", json!({})).await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no MCP server \"c\" is connected here, so c/echo can be found but not called"
    );
    upstream.pool.close().await;
}

#[tokio::test]
async fn servers_that_fail_the_handshake_do_not_delay_others() {
    let servers = vec![
        double("mute", &["mute"]),
        double("quits", &["quit"]),
        double("good", &[]),
    ];
    let upstream = Upstream::start_with(servers, |config| {
        // Long enough for a process to start on a busy machine.
        config.limits.connect = Duration::from_secs(5);
        config.limits.call_patience = Duration::ZERO;
    })
    .await;
    assert_eq!(upstream.echo("good").await, "hello");
    assert!(
        upstream
            .reason("quits")
            .contains("its last output: a key is missing"),
        "{}",
        upstream.reason("quits")
    );
    let refused = upstream
        .call("mute/echo", json!({}))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("no handshake within 5 s") && refused.contains("try again later"),
        "{refused}"
    );
    let available: Vec<bool> = upstream
        .pool
        .statuses()
        .iter()
        .map(|status| status.available)
        .collect();
    assert_eq!(available, [true, false, false]);
}

#[tokio::test]
async fn a_server_that_ends_during_a_call_comes_back() {
    let upstream = Upstream::start_with(vec![double("s", &[])], |config| {
        config.limits.first_pause = Duration::from_millis(10);
    })
    .await;
    let lost = upstream.call("s/exit", json!({})).await.unwrap_err();
    assert!(
        matches!(lost, CallError::Lost { .. }) && lost.to_string().contains("may or may not"),
        "{lost}"
    );
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn a_result_of_100_mb_is_refused_and_the_connection_lives_on() {
    let upstream = Upstream::start(vec![double("s", &[])]).await;
    let refused = upstream
        .call("s/huge", json!({}))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("16777216 are allowed; ask for less at once"),
        "{refused}"
    );
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn a_call_that_is_answered_with_garbage_ends_with_its_time() {
    let upstream = Upstream::start_with(vec![double("s", &[])], |config| {
        config.limits.call.unreported = Duration::from_secs(2);
    })
    .await;
    let late = upstream.call("s/garbage", json!({})).await.unwrap_err();
    assert_eq!(
        late,
        CallError::Timeout {
            limit: Duration::from_secs(2)
        }
    );
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn ten_thousand_tools_in_pages_are_all_there() {
    let upstream = Upstream::start(vec![double("s", &["many-pages"])]).await;
    assert_eq!(upstream.ids().len(), 10_000);
    assert_eq!(
        text(upstream.call("s/t9999", json!({})).await.unwrap()),
        "t9999 was called"
    );
}

#[tokio::test]
async fn pages_that_never_end_are_given_up() {
    let servers = vec![double("endless", &["endless-pages"])];
    let upstream = Upstream::start_with(servers, |config| config.limits.pages = 50).await;
    assert!(
        upstream.reason("endless").contains("more than 50 pages"),
        "{}",
        upstream.reason("endless")
    );
    assert!(upstream.ids().is_empty());
}

#[tokio::test]
async fn a_list_whose_pages_do_not_end_as_they_should_keeps_its_tools() {
    for (pages, tools) in [
        // A cursor that comes back.
        (json!(["1", "2", "1"]), 3),
        (json!([7, 7]), 2),
        // The last page.
        (json!(["1", ""]), 2),
        (json!(["1", null]), 2),
        (json!(["1", false]), 2),
        // Cursors that are no text.
        (json!([1, 2, null]), 3),
        (json!([{ "page": 2 }, null]), 2),
        // A cursor that its own server refuses.
        (json!(["1", "error"]), 1),
    ] {
        let server = double_with("s", &[], &[("PAGES", &pages.to_string())]);
        let upstream = Upstream::start(vec![server]).await;
        assert_eq!(upstream.reason("s"), "", "{pages}");
        let expected: Vec<String> = (0..tools).map(|number| format!("s/t{number}")).collect();
        assert_eq!(upstream.ids(), expected, "{pages}");
    }
    let server = double_with("s", &["same-page"], &[("PAGES", r#"["1", "2", "3"]"#)]);
    let upstream = Upstream::start(vec![server, double("circular", &["circular-pages"])]).await;
    let expected = ["circular/t0", "circular/t1", "circular/t2", "s/t0"];
    assert_eq!(upstream.ids(), expected);
}

#[tokio::test]
async fn a_result_of_any_form_is_passed_on() {
    let upstream = Upstream::start(vec![double("s", &["raw"])]).await;
    for (result, expected) in [
        (json!({ "content": "plain text" }), "plain text"),
        (json!({ "toolResult": "as in 2024" }), "as in 2024"),
        (json!({ "toolResult": { "n": 1 } }), r#"{"n":1}"#),
        (json!({ "rows": 3 }), r#"{"rows":3}"#),
        (json!({}), ""),
        (json!(null), ""),
        (json!("done"), "done"),
        (
            json!({ "content": ["a", { "type": "text", "text": "b" }] }),
            "a\nb",
        ),
        (
            json!({ "content": [{ "type": "card", "title": "x" }, { "type": "text", "text": "b" }] }),
            "{\"type\":\"card\",\"title\":\"x\"}\nb",
        ),
        (
            json!({ "resultType": "complete", "content": [{ "type": "card" }] }),
            r#"{"type":"card"}"#,
        ),
    ] {
        let called = upstream.call("s/raw", json!({ "result": result })).await;
        assert_eq!(text(called.unwrap()), expected, "{result}");
    }
    let failed = json!({ "result": { "content": "no such row", "isError": true } });
    let failed = upstream.call("s/raw", failed).await.unwrap();
    assert_eq!(failed.is_error, Some(true));
}

#[tokio::test]
async fn an_error_that_names_no_request_is_that_of_the_only_one() {
    let upstream = Upstream::start(vec![double("s", &["refuses"])]).await;
    for id in [
        json!({}),
        json!({ "id": null }),
        json!({ "id": "server-error" }),
    ] {
        let refused = upstream.call("s/refuses", id.clone()).await.unwrap_err();
        assert_eq!(
            refused,
            CallError::Refused {
                code: -32600,
                message: "cannot read that".into(),
                data: None,
            },
            "{id}"
        );
    }
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn invalid_tools_are_left_out_and_the_others_taken_in() {
    let upstream = Upstream::start(vec![double("s", &["bad-tools"])]).await;
    assert_eq!(upstream.ids(), ["s/fine", "s/good"]);
}

#[tokio::test]
async fn progress_is_passed_on() {
    let upstream = Upstream::start(vec![double("s", &[])]).await;
    let (progress, mut steps) = mpsc::channel(16);
    let context = CallContext {
        progress: Some(progress),
        ..CallContext::default()
    };
    assert_eq!(
        text(
            upstream
                .call_in("s/progress", json!({}), &context)
                .await
                .unwrap()
        ),
        "done"
    );
    drop(context);
    let mut last = 0.0;
    while let Some(step) = steps.recv().await {
        assert_eq!(
            (step.total, step.done > last),
            (Some(10.0), true),
            "{step:?}"
        );
        last = step.done;
    }
    assert!(last >= 1.0, "at least one step was told");
}

#[tokio::test]
async fn a_server_is_notified_of_cancelled_and_abandoned_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("told");
    let server = double_with("s", &[], &[("WAITED", mark.to_str().unwrap())]);
    let upstream = Upstream::start(vec![server]).await;

    let cancelled = CancellationToken::new();
    let context = CallContext {
        cancelled: cancelled.clone(),
        ..CallContext::default()
    };
    let calling = upstream.call_in("s/wait", json!({}), &context);
    let (ended, ()) = tokio::join!(calling, async { cancelled.cancel() });
    assert_eq!(ended.unwrap_err(), CallError::Cancelled);

    let dropped = tokio::time::timeout(
        Duration::from_millis(300),
        upstream.call("s/wait", json!({})),
    )
    .await;
    assert!(dropped.is_err());
    becomes("the server is told", || mark.exists()).await;
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn the_agent_gets_every_kind_of_content_and_failures_as_messages() {
    let upstream = Upstream::start(vec![double("s", &[])]).await;
    let call = async |name: &str| {
        let callable = upstream.pool.find(&ToolId::parse(name).unwrap()).unwrap();
        callable.call(object(json!({}))).await
    };
    let mixed = call("s/mixed").await.unwrap();
    assert_eq!(
        (&mixed["text"][0], &mixed["structured"]["n"]),
        (&json!("words"), &json!(1))
    );
    assert_eq!(
        (&mixed["images"][0]["bytes"], &mixed["resources"][0]["text"]),
        (&json!(3), &json!("inside"))
    );
    assert_eq!(call("s/fail").await.unwrap_err().message, "no, not today");
    assert!(
        upstream
            .pool
            .find(&ToolId::parse("elsewhere/tool").unwrap())
            .is_none()
    );
}

#[tokio::test]
async fn a_server_that_nobody_calls_is_stopped_and_the_next_call_starts_it() {
    let lifeline = Lifeline::new().await;
    let port = lifeline.port();
    let server = double_with("s", &["offers"], &[("LIFELINE", &port)]);
    let upstream = Upstream::start_with(vec![server], |config| {
        config.limits.idle_stop = Duration::from_millis(300);
    })
    .await;
    let state = || upstream.pool.statuses()[0].state;
    for _ in 0..2 {
        lifeline.begun().await.ended().await;
        becomes("it is stopped", || state() == ConnectionState::Idle).await;
        // What it offers is still known, and nothing starts it.
        assert_eq!(upstream.pool.unavailable("s"), None);
        assert!(upstream.ids().contains(&"s/echo".to_owned()));
        let offers = upstream.pool.offers(|_| true).await;
        assert_eq!(offers[0].1.prompts.len(), 1);
        assert_eq!(state(), ConnectionState::Idle);
        assert_eq!(upstream.echo("s").await, "hello");
    }
}

#[tokio::test]
async fn a_server_at_work_is_not_stopped_and_one_may_stay_for_ever() {
    let mut stays = double("stays", &[]);
    stays.idle_stop = Some(Duration::ZERO);
    let servers = vec![double("idles", &[]), double("works", &[]), stays];
    let upstream = Upstream::start_with(servers, |config| {
        config.limits.idle_stop = Duration::from_millis(300);
    })
    .await;
    let state = |server: &str| {
        let statuses = upstream.pool.statuses();
        let status = statuses.iter().find(|status| status.server == server);
        status.expect("a server").state
    };
    let context = CallContext::default();
    let waiting = upstream.call_in("works/wait", json!({}), &context);
    let watching = async {
        // Several times as long as a server without a call is kept.
        for _ in 0..3 {
            becomes("one is stopped", || state("idles") == ConnectionState::Idle).await;
            upstream.echo("idles").await;
        }
        let states = ["works", "stays"].map(state);
        context.cancelled.cancel();
        states
    };
    let (waited, states) = tokio::join!(waiting, watching);
    assert!(matches!(waited, Err(CallError::Cancelled)), "{waited:?}");
    assert_eq!(states, [ConnectionState::Connected; 2]);
    becomes("the other is stopped", || {
        state("works") == ConnectionState::Idle
    })
    .await;
    assert_eq!(state("stays"), ConnectionState::Connected);
}

#[tokio::test]
async fn nothing_is_left_of_a_stubborn_server_and_what_it_started() {
    for ends_by_close in [true, false] {
        let lifeline = Lifeline::new().await;
        let port = lifeline.port();
        let server = double_with("s", &["grandchild", "stubborn"], &[("LIFELINE", &port)]);
        let upstream = Upstream::start(vec![server]).await;
        let lives = [lifeline.begun().await, lifeline.begun().await];
        match ends_by_close {
            true => upstream.pool.close().await,
            false => drop(upstream),
        }
        for life in lives {
            life.ended().await;
        }
    }
}

#[tokio::test]
async fn what_a_server_asks_is_answered_for_nobody() {
    let upstream = Upstream::start(vec![double("a", &["asks", "inquires"])]).await;
    let said = async |tool: &str| -> Value {
        let said = text(upstream.call(tool, json!({})).await.unwrap());
        serde_json::from_str(&said).unwrap()
    };
    let asked = said("a/asks").await;
    assert!(
        asked[0]["message"]
            .as_str()
            .unwrap()
            .contains("no client with a model"),
        "{asked}"
    );
    assert!(
        asked[1]["message"]
            .as_str()
            .unwrap()
            .contains("the secret \"password\""),
        "{asked}"
    );
    let asked = said("a/inquires").await;
    assert_eq!(asked[0]["action"], "cancel", "{asked}");
}

#[tokio::test]
async fn a_flood_of_changes_lists_the_tools_at_a_bounded_rate() {
    let begun = Instant::now();
    let servers = vec![double("loud", &["flood", "lists"]), double("b", &[])];
    let upstream = Upstream::start(servers).await;
    let lists = async || {
        upstream.echo("b").await;
        let lists = text(upstream.call("loud/lists", json!({})).await.unwrap());
        lists.parse::<u32>().unwrap()
    };
    // Meanwhile both answer calls.
    until("it lists again", async || lists().await >= 3).await;
    let lists = lists().await;
    // After 0.2 s, and then each time after twice the pause.
    let most = begun.elapsed().as_millis().ilog2() - 4;
    assert!(lists <= most, "{lists} lists, {most} at most");
}

#[tokio::test]
async fn servers_may_have_tools_of_one_name() {
    let upstream = Upstream::start(vec![double("a", &[]), double("b", &["noise"])]).await;
    for server in ["a", "b"] {
        let arguments = json!({ "text": server });
        let said = upstream.call(&format!("{server}/echo"), arguments).await;
        assert_eq!(text(said.unwrap()), server);
    }
}
