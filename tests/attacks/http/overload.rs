//! Clients that want everything: runs, connections, descriptors.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use toolscout::keys::Scope;

use super::agent::{Manner, Model, chat, event};
use crate::attacks::program::Program;
use crate::attacks::server::{PATIENCE, Server, read, tool};
use crate::attacks::table::{Attack, Section};

pub const SECTION: Section = Section {
    title: "Clients that want everything",
    attacks: &[
        Attack {
            tried: "A search key starts detached runs without end, and leaves each",
            happens: "429 with `Retry-After` from the ninth at a time on; another key is still answered",
            test: "runs_of_one_key_are_bounded",
        },
        Attack {
            tried: "Many keys start runs together",
            happens: "429 with `Retry-After` once there are as many as the server runs, attached or detached; one that ends makes room",
            test: "runs_are_bounded_overall",
        },
        Attack {
            tried: "A detached run whose model never answers is left alone",
            happens: "It ends at its time to live, and gives its place back",
            test: "a_detached_run_ends_at_its_time_to_live",
        },
        Attack {
            tried: "A key begins MCP sessions without end: idle ones, and ones with an open stream",
            happens: "It has an eighth of all (`--mcp-sessions-per-key`). For one more, its own session that is idle longest ends; if all are in use, the answer is a JSON-RPC error with 429. Other keys lose nothing",
            test: "one_key_takes_not_all_mcp_sessions",
        },
        Attack {
            tried: "Many keys begin MCP sessions together until there are as many as the server takes",
            happens: "429; a sixteenth is kept for admin keys for all catalogs",
            test: "operators_have_mcp_sessions_of_their_own",
        },
        Attack {
            tried: "1,500 connections without a key send half a request and wait",
            happens: "A client that comes later is answered: the connection without a request that waited longest is closed for it",
            test: "slow_connections_starve_nobody",
        },
        Attack {
            tried: "One address opens connections without end",
            happens: "It has a bound of its own, within which its own idlest goes first; other addresses lose nothing",
            test: "one_address_takes_not_all_connections",
        },
        Attack {
            tried: "A connection sends nothing, or its first request letter by letter",
            happens: "It is closed after 10 s (`first_request_timeout`), whatever came",
            test: "a_first_request_has_to_come_soon",
        },
        Attack {
            tried: "A request in progress is pushed out by new connections",
            happens: "It is not: only connections without a request are closed for others, and the new ones wait",
            test: "a_request_in_progress_is_not_closed_for_others",
        },
        Attack {
            tried: "More catalogs than the process has descriptors are made and searched (256 descriptors, 80 catalogs)",
            happens: "Each answers: those used longest ago are closed, and opened again when they are asked",
            test: "more_catalogs_than_descriptors_are_served",
        },
        Attack {
            tried: "Descriptors are used up by whatever means",
            happens: "`/readyz` answers 503 `descriptors_low` from nine tenths of the limit on",
            test: "readyz_says_when_descriptors_run_out",
        },
    ],
};

/// Runs of one key and of all, as the limits have them by default.
const RUNS_PER_KEY: usize = 8;
const RUNS: usize = 64;

#[tokio::test]
async fn runs_of_one_key_are_bounded() {
    let model = Model::new(Manner::Hangs);
    let server = model.serve(|_| {}).await;
    let (greedy, modest) = (
        server.key(Scope::Search, "default"),
        server.key(Scope::Search, "default"),
    );
    for _ in 0..RUNS_PER_KEY {
        let left = chat(&server, &greedy, json!({ "query": "go", "detached": true })).await;
        assert_eq!(left.status(), 200);
    }
    for detached in [true, false] {
        let refused = chat(
            &server,
            &greedy,
            json!({ "query": "go", "detached": detached }),
        )
        .await;
        assert_eq!(refused.status(), 429);
        assert!(refused.headers().contains_key("retry-after"));
        assert!(
            refused
                .text()
                .await
                .expect("a body")
                .contains("too_many_runs")
        );
    }
    assert_eq!(
        chat(&server, &modest, json!({ "query": "go" }))
            .await
            .status(),
        200
    );
}

/// The answer to a client that begins a session.
async fn begin_session(server: &Server, key: &str, path: &str) -> Response {
    let client = json!({ "name": "raw", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    server
        .request(Method::POST, path)
        .bearer_auth(key)
        .json(&json!({ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params }))
        .send()
        .await
        .expect("an answer")
}

/// The id of a session that was begun.
pub async fn begun(server: &Server, key: &str) -> String {
    let answer = begin_session(server, key, "/mcp").await;
    assert_eq!(answer.status(), 200);
    let id = answer.headers()["mcp-session-id"]
        .to_str()
        .expect("text")
        .to_owned();
    let _ = answer.text().await;
    id
}

/// The stream of a session, or the answer to a client whose session has ended.
async fn listen(server: &Server, key: &str, session: &str) -> Response {
    server
        .request(Method::GET, "/mcp")
        .bearer_auth(key)
        .header("accept", "text/event-stream")
        .header("mcp-session-id", session)
        .send()
        .await
        .expect("an answer")
}

async fn refused_session(answer: Response) {
    assert_eq!(answer.status(), 429);
    assert!(answer.headers().contains_key("retry-after"));
    let body: Value = answer.json().await.expect("JSON");
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!(7)));
    assert_eq!(body["error"]["code"], -32000, "{body}");
}

#[tokio::test]
async fn one_key_takes_not_all_mcp_sessions() {
    let server = Server::start_with(|settings| {
        settings.limits = settings.limits.clone().with_mcp_sessions(16, None);
    })
    .await;
    let greedy = server.key(Scope::Search, "default");
    // Those that are idle end for new ones, the one that is idle longest first.
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(begun(&server, &greedy).await);
    }
    for session in &sessions[..18] {
        assert_eq!(listen(&server, &greedy, session).await.status(), 404);
    }
    // Those with a stream are in use.
    let mut streams = Vec::new();
    for session in &sessions[18..] {
        let stream = listen(&server, &greedy, session).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    for path in ["/mcp", "/mcp/", "/mcp"] {
        refused_session(begin_session(&server, &greedy, path).await).await;
    }
    let modest = server.key(Scope::Search, "default");
    begun(&server, &modest).await;
    drop(streams);
    let admitted = async {
        while begin_session(&server, &greedy, "/mcp").await.status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, admitted)
        .await
        .expect("a session that its client left makes room");
}

#[tokio::test]
async fn operators_have_mcp_sessions_of_their_own() {
    let server = Server::start_with(|settings| {
        settings.limits = settings.limits.clone().with_mcp_sessions(16, None);
    })
    .await;
    for _ in 0..7 {
        let key = server.key(Scope::Search, "default");
        begun(&server, &key).await;
        begun(&server, &key).await;
    }
    begun(&server, &server.key(Scope::Search, "default")).await;
    for scope in [Scope::Search, Scope::Call, Scope::Admin] {
        // An admin of one catalog is no operator.
        let late = server.key(scope, "default");
        refused_session(begin_session(&server, &late, "/mcp").await).await;
    }
    begun(&server, &server.key(Scope::Admin, "*")).await;
}

#[tokio::test]
async fn runs_are_bounded_overall() {
    let model = Model::new(Manner::Hangs);
    let server = model.serve(|_| {}).await;
    let mut running = Vec::new();
    for _ in 0..RUNS / RUNS_PER_KEY {
        let key = server.key(Scope::Search, "default");
        for run in 0..RUNS_PER_KEY {
            running.push(
                chat(
                    &server,
                    &key,
                    json!({ "query": "go", "detached": run % 2 == 0 }),
                )
                .await,
            );
        }
    }
    assert!(running.iter().all(|run| run.status() == 200));
    let late = server.key(Scope::Search, "default");
    let refused = read(
        server
            .request(Method::POST, "/v1/agent/chat")
            .bearer_auth(&late)
            .json(&json!({ "query": "go" })),
    );
    let refused = refused.await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (429, "too_many_runs")
    );
    // The last one is attached: it ends with its client.
    drop(running.pop());
    let admitted = async {
        while chat(&server, &late, json!({ "query": "go" }))
            .await
            .status()
            != 200
        {}
    };
    timeout(PATIENCE, admitted)
        .await
        .expect("a run that ended makes room");
}

#[tokio::test]
async fn a_detached_run_ends_at_its_time_to_live() {
    let model = Model::new(Manner::Hangs);
    let short = model.agent(Duration::from_millis(50));
    let server = model
        .serve(|settings| settings.agents = Some(short.into()))
        .await;
    let mut run = chat(
        &server,
        "",
        json!({ "query": "go", "detached": true, "conversation": "c1" }),
    )
    .await;
    assert_eq!(event(&mut run, "done").await["status"], "expired");
}

/// Sends the begin of a request and no more.
async fn half_a_request(address: SocketAddr, from: Option<IpAddr>) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    if let Some(from) = from {
        socket
            .bind(SocketAddr::new(from, 0))
            .expect("an address of this machine");
    }
    let mut stream = socket.connect(address).await.expect("a connection");
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        .await
        .expect("sent");
    stream
}

/// A client of its own connection that asks whether the server lives.
async fn is_served(address: SocketAddr, from: Option<IpAddr>) -> bool {
    let mut stream = half_a_request(address, from).await;
    let _ = stream.write_all(b"no\r\nConnection: close\r\n\r\n").await;
    let mut answer = String::new();
    let read = timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
    matches!(read, Ok(Ok(_))) && answer.starts_with("HTTP/1.1 200")
}

fn address(server: &Server) -> SocketAddr {
    server
        .url
        .trim_start_matches("http://")
        .parse()
        .expect("an address")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_connections_starve_nobody() {
    // Both ends of each connection are in this process.
    toolscout::http::raise_descriptor_limit();
    // No time-out helps here.
    let hour = Duration::from_secs(3600);
    let server = Server::start_with(|settings| {
        settings.limits.header_timeout = hour;
        settings.limits.first_request_timeout = hour;
    })
    .await;
    let mut slow = Vec::new();
    for _ in 0..1_500 {
        slow.push(half_a_request(address(&server), None).await);
    }
    assert!(
        is_served(address(&server), None).await,
        "a client that came later was not served"
    );
    // A client whose connection was open before is answered too, if need be over a new one.
    assert_eq!(server.get("/livez").await.status, 200);
    drop(slow);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn one_address_takes_not_all_connections() {
    let server = Server::start_with(|settings| {
        settings.limits.first_request_timeout = Duration::from_secs(3600);
        settings.limits.header_timeout = Duration::from_secs(3600);
        settings.limits.connections_per_loopback_address = 4;
    })
    .await;
    let [greedy, modest] = [2, 3].map(|host| IpAddr::V4(Ipv4Addr::new(127, 0, 0, host)));
    let mut waiting = half_a_request(address(&server), Some(modest)).await;
    let mut first = half_a_request(address(&server), Some(greedy)).await;
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(half_a_request(address(&server), Some(greedy)).await);
    }
    let closed = timeout(PATIENCE, first.read_u8())
        .await
        .expect("its idlest is closed");
    assert!(closed.is_err());
    assert!(is_served(address(&server), Some(greedy)).await);
    waiting
        .write_all(b"no\r\nConnection: close\r\n\r\n")
        .await
        .expect("sent");
    let mut answer = String::new();
    timeout(PATIENCE, waiting.read_to_string(&mut answer))
        .await
        .expect("in time")
        .expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_first_request_has_to_come_soon() {
    let server = Server::start_with(|settings| {
        settings.limits.first_request_timeout = Duration::from_millis(50);
        settings.limits.header_timeout = Duration::from_secs(3600);
    })
    .await;
    let mut silent = TcpStream::connect(address(&server))
        .await
        .expect("a connection");
    let mut slow = half_a_request(address(&server), None).await;
    for stream in [&mut silent, &mut slow] {
        let closed = timeout(PATIENCE, stream.read_u8())
            .await
            .expect("it is closed");
        assert!(closed.is_err());
    }
}

#[tokio::test]
async fn a_request_in_progress_is_not_closed_for_others() {
    let model = Model::new(Manner::Hangs);
    let server = model
        .serve(|settings| settings.limits.max_connections = 2)
        .await;
    let mut run = chat(&server, "", json!({ "query": "go", "conversation": "c1" })).await;
    model.is_asked().await;
    let mut idle: Vec<TcpStream> = Vec::new();
    for _ in 0..8 {
        idle.push(half_a_request(address(&server), None).await);
        assert!(is_served(address(&server), None).await);
    }
    let stopped = server
        .post("/v1/agent/stop", &json!({ "conversation": "c1" }))
        .await;
    assert_eq!(stopped.body, json!({ "stopped": true }));
    assert_eq!(event(&mut run, "done").await["status"], "stopped");
}

#[tokio::test]
async fn more_catalogs_than_descriptors_are_served() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        "ulimit -n 256; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_toolscout"),
    ]);
    let program = Program::start_by(limited, data.path(), &[]).await;
    let client = toolscout::tls::client().build().unwrap();
    let url = |catalog: usize, path: &str| format!("{}/v1/catalogs/c{catalog}{path}", program.url);
    for catalog in 0..80 {
        let made = client
            .put(url(catalog, ""))
            .send()
            .await
            .expect("an answer");
        assert_eq!(
            made.status(),
            201,
            "catalog {catalog}: {:?}",
            made.text().await
        );
        let tools = json!([tool("s", &format!("t{catalog}"), "Does a thing.")]);
        let written = client
            .post(url(catalog, "/tools"))
            .json(&tools)
            .send()
            .await
            .expect("an answer");
        assert_eq!(
            written.status(),
            200,
            "catalog {catalog}: {:?}",
            written.text().await
        );
    }
    for catalog in 0..80 {
        let found = client
            .get(url(catalog, "/search?q=thing"))
            .send()
            .await
            .expect("an answer");
        assert_eq!(found.status(), 200, "catalog {catalog}");
        assert!(
            found
                .text()
                .await
                .expect("a body")
                .contains(&format!("s/t{catalog}"))
        );
    }
    let ready = client
        .get(format!("{}/readyz", program.url))
        .send()
        .await
        .expect("an answer");
    assert_eq!(ready.status(), 200);
}

#[tokio::test]
async fn readyz_says_when_descriptors_run_out() {
    let limit = 2_000;
    let server = Server::start_with(|settings| settings.limits.descriptors = Some(limit)).await;
    let files: Vec<_> = (0..limit)
        .map(|_| std::fs::File::open("/dev/null").expect("a descriptor"))
        .collect();
    let answer = server.get("/readyz").await;
    assert_eq!(
        (answer.status.as_u16(), answer.error_code()),
        (503, "descriptors_low")
    );
    assert_eq!(server.get("/livez").await.status, 200);
    drop(files);
    server
        .wait_for("/readyz", |answer| answer["status"] == "ok")
        .await;
}
