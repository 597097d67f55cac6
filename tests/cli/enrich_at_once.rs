//! `toolscout enrich` with a provider that is slow, limits rates or answers badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::run::{Ended, World, run_with_hashing as run, text, tool};

/// What the provider does with a request.
#[derive(Clone, Copy)]
enum Conduct {
    Answer(&'static str),
    /// An answer after a second and a half.
    Late(&'static str),
    /// Status 429 with this many seconds to wait.
    Limit(u64),
}

/// What the provider saw.
#[derive(Default)]
struct Seen {
    running: usize,
    most_at_once: usize,
    /// When each request came, and whether it was answered.
    requests: Vec<(Instant, bool)>,
}

/// A provider on the loopback that takes `pause` for each answer.
struct Provider {
    url: String,
    seen: Arc<Mutex<Seen>>,
}

impl Provider {
    /// `conduct` gets the number of the request, from 0.
    fn start(pause: Duration, conduct: fn(usize) -> Conduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noted = Arc::clone(&seen);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                thread::spawn(move || serve(socket, pause, conduct, &noted));
            }
        });
        Provider { url, seen }
    }
}

fn serve(
    mut socket: TcpStream,
    pause: Duration,
    conduct: fn(usize) -> Conduct,
    seen: &Mutex<Seen>,
) {
    read_request(&mut socket);
    let conduct = {
        let mut seen = seen.lock().expect("a lock");
        let conduct = conduct(seen.requests.len());
        let is_answered = !matches!(conduct, Conduct::Limit(_));
        seen.requests.push((Instant::now(), is_answered));
        seen.running += 1;
        seen.most_at_once = seen.most_at_once.max(seen.running);
        conduct
    };
    let (status, header, body) = match conduct {
        Conduct::Answer(answer) | Conduct::Late(answer) => {
            let is_late = matches!(conduct, Conduct::Late(_));
            thread::sleep(if is_late { LATE } else { pause });
            let message = json!({
                "choices": [{ "message": { "content": answer }, "finish_reason": "stop" }],
                "usage": { "prompt_tokens": 100, "completion_tokens": 20 },
            });
            ("200 OK", String::new(), message.to_string())
        }
        Conduct::Limit(seconds) => {
            let header = format!("retry-after: {seconds}\r\n");
            ("429 Too Many Requests", header, "slow down".to_owned())
        }
    };
    seen.lock().expect("a lock").running -= 1;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{header}content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    // A client that went away needs no answer.
    let _ = socket.write_all((head + &body).as_bytes());
}

fn read_request(socket: &mut TcpStream) {
    let mut reader = BufReader::new(socket);
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line).expect("a line") > 2 {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
}

const TEXTS: &str = r#"["hand that over", "do it for me", "my usual thing"]"#;
const FINE: Conduct = Conduct::Answer(TEXTS);
const LATE: Duration = Duration::from_millis(1_500);

/// A world of so many tools.
fn world(tools: usize) -> World {
    let world = World::new();
    let tools: Vec<Value> = (0..tools)
        .map(|n| tool("s", &format!("t{n}"), "Does something."))
        .collect();
    let file = world.file("t.json", json!(tools).to_string());
    run(&world, &["add", text(&file)]);
    world
}

fn enrich(world: &World, provider: &Provider, parallel: &str) -> Ended {
    let llm = ["enrich", "--llm", &provider.url, "--yes", "--json"];
    let more = ["--batch", "1", "--parallel", parallel];
    run(world, &[&llm[..], &more].concat())
}

#[test]
fn as_many_requests_run_at_once_as_are_allowed() {
    for (parallel, most) in [("1", 1), ("4", 4), ("16", 8)] {
        let world = world(8);
        let provider = Provider::start(Duration::from_millis(300), |_| FINE);
        let ended = enrich(&world, &provider, parallel);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let report = ended.json();
        assert_eq!(
            (&report["enriched"], &report["left"]),
            (&json!(8), &json!(0))
        );
        assert_eq!(report["tokens_in"], 800);
        let seen = provider.seen.lock().expect("a lock");
        assert_eq!(seen.requests.len(), 8);
        // How many the machine manages to start in time is its own affair.
        let at_once = seen.most_at_once;
        assert!(
            at_once <= most && at_once >= most.min(2),
            "{parallel}: {at_once}"
        );
    }
    run(&world(1), &["enrich", "--parallel", "17"]).failed(2, &["--parallel"]);
    run(&world(1), &["enrich", "--parallel", "0"]).failed(2, &["--parallel"]);
}

#[test]
fn a_limit_makes_all_wait_and_nothing_is_paid_twice() {
    let world = world(8);
    // Four requests come at once: two of them are refused.
    let provider = Provider::start(Duration::from_millis(100), |request| match request {
        1 | 3 => Conduct::Limit(2),
        _ => FINE,
    });
    let ended = enrich(&world, &provider, "4");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.json()["enriched"], 8);
    let seen = provider.seen.lock().expect("a lock");
    let answered = seen.requests.iter().filter(|(_, is_answered)| *is_answered);
    assert_eq!(answered.count(), 8, "each tool is paid for once");
    let refused = seen.requests[1].0;
    // Those that were under way already, and none else, come before the wait is over.
    let within = seen
        .requests
        .iter()
        .filter(|(at, _)| *at > refused + Duration::from_millis(500))
        .filter(|(at, _)| *at < refused + Duration::from_millis(1_900));
    assert_eq!(within.count(), 0);
}

#[test]
fn bad_answers_cost_their_own_tools_only_and_are_asked_for_again() {
    let world = world(8);
    let provider = Provider::start(Duration::from_millis(20), |request| match request {
        1 => Conduct::Answer("I cannot help with that."),
        3 => Conduct::Answer(r#"["..."]"#),
        5 => Conduct::Answer(r#"{"1": 7}"#),
        _ => FINE,
    });
    let first = enrich(&world, &provider, "4");
    assert_eq!(first.code, 1);
    let report = first.json();
    assert_eq!(
        (&report["enriched"], &report["left"]),
        (&json!(5), &json!(3))
    );
    let second = enrich(&world, &provider, "4");
    assert_eq!(second.json()["left"], 0, "{}", second.stderr);
    assert_eq!(provider.seen.lock().expect("a lock").requests.len(), 8 + 3);
}

#[test]
fn an_answer_under_way_is_kept_where_the_run_ends_early() {
    for late in [0, 1, 2] {
        let world = world(9);
        let conduct: fn(usize) -> Conduct = match late {
            0 => |request| choose(request == 0),
            1 => |request| choose(request == 1),
            _ => |request| choose(request < 2),
        };
        let provider = Provider::start(Duration::from_millis(10), conduct);
        let ended = enrich(&world, &provider, "4");
        ended.failed(1, &["5 requests in a row gave nothing"]);
        let kept = if late == 2 { 2 } else { 1 };
        assert_eq!(ended.json()["enriched"], kept, "{}", ended.stderr);
    }
}

fn choose(is_late: bool) -> Conduct {
    if is_late {
        Conduct::Late(TEXTS)
    } else {
        Conduct::Answer("no")
    }
}

#[test]
fn queries_for_an_evaluation_are_written_at_once_within_the_limits() {
    let world = world(40);
    let provider = Provider::start(Duration::from_millis(100), |request| match request {
        1 | 3 => Conduct::Limit(1),
        _ => Conduct::Answer(
            r#"{"1": ["my own"], "2": ["usual"], "3": ["thing"], "4": ["once"], "5": ["again"]}"#,
        ),
    });
    let file = world.path("q.jsonl");
    let to = ["--llm", &provider.url, "--yes", "--out", text(&file)];
    let generate = ["eval", "generate", "--by", "model", "--per-tool", "1"];
    let ended = run(&world, &[&generate[..], &to].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let seen = provider.seen.lock().expect("a lock");
    let answered = seen.requests.iter().filter(|(_, is_answered)| *is_answered);
    assert_eq!(answered.count(), 8, "each tool is paid for once");
    assert!(
        (2..=4).contains(&seen.most_at_once),
        "{}",
        seen.most_at_once
    );
    let made = std::fs::read_to_string(&file).expect("queries");
    assert_eq!(made.lines().count(), 5, "one query for each text: {made}");
    assert_eq!(made.matches("s/t").count(), 40, "{made}");
}
