//! The program itself, ended by signals in the middle of its work.

use std::collections::BTreeSet;

use reqwest::Body;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

use super::program::Program;
use super::server::{stored_ids, tool};

/// Streams tools without end, ends the program once some are acknowledged, and gives the
/// acknowledged ids.
async fn acknowledged_before(program: &mut Program, signal: &str) -> Vec<String> {
    let tools = (0u64..).map(|n| {
        Ok::<_, std::io::Error>(format!("{}\n", tool("s", &format!("t{n}"), "")).into_bytes())
    });
    let request = toolscout::tls::client()
        .build()
        .unwrap()
        .post(format!("{}/v1/catalogs/default/tools", program.url))
        .header(CONTENT_TYPE, "application/x-ndjson")
        .body(Body::wrap_stream(futures_util::stream::iter(tools)));
    let mut response = request.send().await.expect("the stream begins");
    let (mut text, mut signalled) = (Vec::new(), false);
    while let Ok(Some(chunk)) = response.chunk().await {
        text.extend_from_slice(&chunk);
        if !signalled && text.len() > 100_000 {
            program.signal(signal);
            signalled = true;
        }
    }
    assert!(signalled, "the stream ended by itself");
    program.wait();
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    lines
        .filter(|line| line["status"] == "added")
        .filter_map(|line| Some(line["id"].as_str()?.to_owned()))
        .collect()
}

async fn nothing_acknowledged_is_lost(signal: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::start(dir.path(), &[]).await;
    let acknowledged = acknowledged_before(&mut program, signal).await;
    assert!(acknowledged.len() > 500, "{}", acknowledged.len());
    let stored = stored_ids(dir.path());
    let stored: BTreeSet<&str> = stored.iter().map(|id| id.as_str()).collect();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|id| !stored.contains(id.as_str()))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test]
async fn sigterm_in_the_middle_of_a_stream_loses_nothing_acknowledged() {
    nothing_acknowledged_is_lost("-TERM").await;
}

#[tokio::test]
async fn sigkill_in_the_middle_of_a_stream_loses_nothing_acknowledged() {
    nothing_acknowledged_is_lost("-KILL").await;
}

#[tokio::test]
async fn sigterm_in_the_middle_of_a_bulk_load_finishes_what_was_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::start(dir.path(), &[]).await;
    let tools: Vec<Value> = (0..4000).map(|n| tool("s", &format!("t{n}"), "")).collect();
    let url = format!("{}/v1/catalogs/default/tools", program.url);
    let accepted = toolscout::tls::client()
        .build()
        .unwrap()
        .post(url)
        .json(&tools)
        .send()
        .await
        .unwrap();
    assert_eq!(accepted.status(), 202);
    program.signal("-TERM");
    assert!(program.wait().success());
    assert_eq!(stored_ids(dir.path()).len(), 4000);
}
