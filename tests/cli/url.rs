//! `add URL`, against a server of three lines on loopback.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

use super::run::{Ended, World, tool};

/// Answers one request with these bytes and closes.
fn serve_once(answer: Vec<u8>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "http://{}/tools.json",
        listener.local_addr().expect("an address")
    );
    let served = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a request");
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).expect("its beginning");
        // A client that has seen enough hangs up early.
        let _ = stream.write_all(&answer);
    });
    (url, served)
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[test]
fn tools_are_fetched() {
    let world = World::new();
    let (url, served) = serve_once(answer("200 OK", &format!("[{}]", tool("s", "t", "x"))));
    world.ok(&["add", &url]);
    served.join().expect("served");
    assert_eq!(world.ids(), ["s/t"]);
}

#[test]
fn a_failed_response_is_reported_with_its_status() {
    let world = World::new();
    let (url, served) = serve_once(answer("404 Not Found", "no"));
    world.fails(1, &["add", &url], &[&url, "404 Not Found"]);
    served.join().expect("served");
}

#[test]
fn an_unreachable_server_is_an_error() {
    let world = World::new();
    let free = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("an address");
    world.fails(
        1,
        &["add", &format!("http://{free}/x")],
        &[
            "error: http://127.0.0.1",
            "/x: it cannot be fetched: ",
            "refused",
        ],
    );
}

#[test]
fn a_response_over_the_limit_is_an_error() {
    let world = World::new();
    let (url, served) = serve_once(answer("200 OK", &" ".repeat(3 << 20)));
    let ended = Ended::of(
        world
            .command()
            .env("TOOLSCOUT_FETCH_MAX_MB", "1")
            .args(["add", &url])
            .output(),
    );
    served.join().expect("served");
    ended.failed(1, &["more than 1 MiB", "fetch.max_mb"]);
}

#[test]
fn a_server_that_never_responds_times_out() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/x", listener.local_addr().expect("an address"));
    let ended = Ended::of(
        world
            .command()
            .env("TOOLSCOUT_FETCH_TIMEOUT_S", "1")
            .args(["add", &url])
            .output(),
    );
    ended.failed(1, &[&url, "timed out"]);
}
