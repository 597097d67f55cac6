use std::sync::atomic::{AtomicBool, AtomicUsize};

use serde_json::json;

use super::double::{Double, Reply, Request};
use super::*;

const DIMENSIONS: usize = 4;
/// The delay of a server that does not answer while a test runs.
const FOREVER: Duration = Duration::from_secs(600);

fn settings(double: &Double) -> EndpointSettings {
    EndpointSettings {
        model: Some("org/m".to_owned()),
        dimensions: Some(DIMENSIONS),
        ..EndpointSettings::of_url(&double.url)
    }
}

fn endpoint_of(settings: EndpointSettings) -> Endpoint {
    let identity = Identity {
        model: settings.model.clone().unwrap(),
        dimensions: settings.dimensions.unwrap(),
    };
    Endpoint::with_backoff(settings, identity, Duration::from_millis(1)).unwrap()
}

fn endpoint(double: &Double) -> Endpoint {
    endpoint_of(settings(double))
}

/// A server that answers so often in this way, and then well.
fn bad_at_first(times: usize, bad: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Double {
    Double::start(move |number, request| {
        if number < times {
            bad(request)
        } else {
            Reply::vectors(request, DIMENSIONS)
        }
    })
}

fn discover(double: &Double, limit: Duration) -> Result<Identity> {
    Endpoint::discover(&EndpointSettings::of_url(&double.url), limit)
}

fn problem(outcome: Result<Vec<Vec<f32>>>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn texts_are_sent_in_batches_with_prefixes_and_key() {
    let double = Double::embedding(DIMENSIONS);
    let endpoint = endpoint_of(EndpointSettings {
        key: Some("secret".into()),
        query_prefix: "query: ".to_owned(),
        passage_prefix: "passage: ".to_owned(),
        query_parameters: json!({ "input_type": "query", "model": "x" })
            .as_object()
            .unwrap()
            .clone(),
        batch: 2,
        max_chars: 3,
        request_dimensions: true,
        ..settings(&double)
    });
    let texts = ["alpha", "b", "ç…öü", "d", "e"];
    let vectors = endpoint.embed_tools(&texts).unwrap();
    assert_eq!(vectors.len(), 5);
    for vector in &vectors {
        let length: f32 = vector.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
    let mut sent: Vec<Vec<String>> = double
        .requests()
        .iter()
        .map(|request| request.texts().into_iter().map(str::to_owned).collect())
        .collect();
    // Two requests at a time may arrive in any order.
    sent.sort();
    assert_eq!(
        sent,
        [
            vec!["passage: alp", "passage: b"],
            vec!["passage: e"],
            vec!["passage: ç…ö", "passage: d"]
        ]
    );
    assert_eq!(endpoint.embed_queries(&["find"]).unwrap().len(), 1);
    let last = double.requests().pop().unwrap();
    assert_eq!(last.line, "POST /v1/embeddings HTTP/1.1");
    assert_eq!(last.header("authorization"), Some("Bearer secret"));
    assert_eq!(
        last.body,
        json!({ "model": "org/m", "input": ["query: fin"], "input_type": "query", "dimensions": 4 })
    );
    let usage = endpoint.usage();
    assert_eq!((usage.tools.so_far().0, usage.queries.so_far().0), (5, 1));
    assert!(usage.tools.so_far().1 > 0);
    assert!(endpoint.embed_tools(&[]).unwrap().is_empty());
    assert_eq!(double.texts(), 6);
}

#[test]
fn the_id_names_the_model_and_what_is_sent_but_not_where() {
    let double = Double::embedding(DIMENSIONS);
    let plain = endpoint(&double);
    assert!(plain.id().starts_with("m/4/"), "{}", plain.id());
    let moved = endpoint_of(EndpointSettings {
        url: "https://elsewhere.example/v1".to_owned(),
        key: Some("other".into()),
        batch: 1,
        ..settings(&double)
    });
    assert_eq!(plain.id(), moved.id());
    let prefixed = endpoint_of(EndpointSettings {
        passage_prefix: "p: ".to_owned(),
        ..settings(&double)
    });
    assert_ne!(plain.id(), prefixed.id());
}

#[test]
fn a_busy_or_broken_server_is_asked_again() {
    for bad in [
        Reply {
            headers: "retry-after: 0\r\n",
            ..Reply::status(429, "slow down")
        },
        Reply::status(503, ""),
        Reply {
            cut_at: Some(10),
            ..Reply::status(200, "{\"data\": [{\"embedding\": ")
        },
    ] {
        let double = bad_at_first(3, move |_| bad.clone());
        assert_eq!(endpoint(&double).embed_tools(&["a"]).unwrap().len(), 1);
        assert_eq!(double.requests().len(), 4);
    }
}

#[test]
fn patience_ends() {
    let double = bad_at_first(usize::MAX, |_| Reply {
        headers: "retry-after: 30\r\n",
        ..Reply::status(429, r#"{"error": {"message": "quota"}}"#)
    });
    let endpoint = endpoint_of(EndpointSettings {
        patience_s: 1,
        ..settings(&double)
    });
    let problem = problem(endpoint.embed_tools(&["a"]));
    let expected = format!(
        "embedding model org/m at {}/v1/embeddings: it answered 429: quota",
        double.url
    );
    // The shown address is the base as given, with its route.
    assert_eq!(problem, expected);
    assert_eq!(double.requests().len(), 1);
}

#[test]
fn without_patience_a_pause_that_was_asked_for_is_kept() {
    let double = bad_at_first(1, |_| Reply {
        headers: "retry-after: 30\r\n",
        ..Reply::status(429, "")
    });
    let endpoint = endpoint_of(EndpointSettings {
        patience_s: 0,
        ..settings(&double)
    });
    assert!(problem(endpoint.embed_tools(&["a"])).contains("429"));
    let refused = problem(endpoint.embed_tools(&["a"]));
    assert!(refused.contains("asks to wait for 30 s more"), "{refused}");
    assert_eq!(double.requests().len(), 1);
}

#[test]
fn an_answer_that_is_wrong_is_refused_at_once() {
    for (body, expected) in [
        (r#"{"data": []}"#, "0 vectors for 1 texts"),
        (r#"{"data": [{"embedding": [1, NaN, 0, 0]}]}"#, "NaN"),
        (
            r#"{"data": [{"embedding": [1, 0]}]}"#,
            "2 dimensions where 4 were expected",
        ),
        (
            r#"{"data": [{"index": 1, "embedding": [1, 0, 0, 0]}]}"#,
            "index 1",
        ),
    ] {
        let double = Double::start(move |_, _| Reply::status(200, body));
        let problem = problem(endpoint(&double).embed_tools(&["a"]));
        assert!(
            problem.contains(expected) && problem.contains("org/m at http://"),
            "{problem}"
        );
        assert_eq!(double.requests().len(), 1, "{expected}");
    }
}

#[test]
fn a_key_that_is_repeated_is_not_shown() {
    let double = Double::start(|_, _| Reply::status(401, "wrong key secret-1"));
    let endpoint = endpoint_of(EndpointSettings {
        key: Some("secret-1".into()),
        ..settings(&double)
    });
    let problem = problem(endpoint.embed_tools(&["a"]));
    assert!(problem.contains("401: wrong key …"), "{problem}");
    assert_eq!(double.requests().len(), 1, "a wrong key stays wrong");
}

#[test]
fn a_key_in_an_answer_that_is_no_list_is_not_shown() {
    for body in ["<p>wrong key secret-1", r#"{"data": "secret-1"}"#] {
        let double = Double::start(move |_, _| Reply::status(200, body));
        let endpoint = endpoint_of(EndpointSettings {
            key: Some("secret-1".into()),
            ..settings(&double)
        });
        let problem = problem(endpoint.embed_tools(&["a"]));
        assert!(
            problem.contains("no list of vectors") && !problem.contains("secret"),
            "{problem}"
        );
    }
}

#[test]
fn a_query_of_an_address_is_sent_and_not_shown() {
    let double = Double::start(|_, _| Reply::status(403, "no"));
    let endpoint = endpoint_of(EndpointSettings {
        url: format!("{}/v1?api-key=secret-1", double.url),
        ..settings(&double)
    });
    let problem = problem(endpoint.embed_tools(&["a"]));
    assert!(
        problem.contains("/v1/embeddings?…: it answered 403") && !problem.contains("secret"),
        "{problem}"
    );
    let line = double.requests().pop().unwrap().line;
    assert!(line.contains("?api-key=secret-1"), "{line}");
}

#[test]
fn an_answer_without_end_is_cut_off() {
    let double = Double::start(|_, _| Reply::status(200, &" ".repeat(1 << 20)));
    let problem = problem(endpoint(&double).embed_tools(&["a"]));
    assert!(problem.contains("longer than"), "{problem}");
}

#[test]
fn a_redirect_is_not_followed() {
    let double = Double::start(|_, _| Reply {
        headers: "location: http://127.0.0.1:9/\r\n",
        ..Reply::status(307, "")
    });
    assert!(problem(endpoint(&double).embed_tools(&["a"])).contains("answered 307"));
}

#[test]
fn a_search_waits_no_longer_than_its_time_and_then_not_at_all() {
    let double = Double::start(|_, request| Reply {
        delay: FOREVER,
        ..Reply::vectors(request, DIMENSIONS)
    });
    let endpoint = endpoint_of(EndpointSettings {
        query_timeout_ms: 100,
        ..settings(&double)
    });
    let little = Some(Duration::from_millis(20));
    assert!(problem(endpoint.embed_queries_within(&["a"], little)).contains("within 20 ms"));
    // That the first search had little time is no failure; that the endpoint took 100 ms is one.
    assert!(problem(endpoint.embed_queries(&["a"])).contains("within 100 ms"));
    for _ in 0..20 {
        let refused = problem(endpoint.embed_queries(&["a"]));
        assert!(refused.contains("it is tried again in"), "{refused}");
    }
    // On a busy machine one may still be on its way.
    assert!(double.requests().len() <= 2);
}

#[test]
fn waiting_for_other_searches_is_no_failure_of_the_endpoint() {
    let is_slow = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&is_slow);
    let double = Double::start(move |_, request| Reply {
        delay: match still.load(Ordering::SeqCst) {
            true => Duration::from_millis(1000),
            false => Duration::ZERO,
        },
        ..Reply::vectors(request, DIMENSIONS)
    });
    let endpoint = Arc::new(endpoint_of(EndpointSettings {
        query_timeout_ms: 1600,
        ..settings(&double)
    }));
    // As many as may be asked for at a time, twice: the second half waits for the first, and has
    // no time left then.
    let searches: Vec<_> = (0..2 * MAX_QUERIES)
        .map(|number| {
            let endpoint = Arc::clone(&endpoint);
            std::thread::spawn(move || {
                let text = number.to_string();
                endpoint.embed_queries(&[&text]).is_ok()
            })
        })
        .collect();
    let answered = searches
        .into_iter()
        .map(|search| search.join().unwrap())
        .filter(|is_answered| *is_answered)
        .count();
    assert!((1..2 * MAX_QUERIES).contains(&answered), "{answered}");
    is_slow.store(false, Ordering::SeqCst);
    // After a failure the breaker would refuse it for a second.
    endpoint.embed_queries(&["next"]).unwrap();
}

#[test]
fn a_server_that_is_back_is_asked_again() {
    let double = bad_at_first(1, |_| Reply::status(500, "oops"));
    let endpoint = endpoint(&double);
    assert!(problem(endpoint.embed_queries(&["a"])).contains("500: oops"));
    assert!(problem(endpoint.embed_queries(&["a"])).contains("500: oops; it is tried again"));
    // A batch of tools that succeeds is evidence too.
    endpoint.embed_tools(&["a"]).unwrap();
    endpoint.embed_queries(&["a"]).unwrap();
}

#[test]
fn a_request_that_is_refused_for_its_content_stops_no_other() {
    let double = bad_at_first(1, |_| Reply::status(400, "too long"));
    let endpoint = endpoint(&double);
    assert!(problem(endpoint.embed_queries(&["a"])).contains("400: too long"));
    endpoint.embed_queries(&["b"]).unwrap();
}

#[test]
fn a_broken_connection_is_tried_once_more() {
    let double = bad_at_first(1, |_| Reply {
        cut_at: Some(0),
        ..Reply::status(200, "{}")
    });
    endpoint(&double).embed_queries(&["a"]).unwrap();
    assert_eq!(double.requests().len(), 2);
}

#[test]
fn an_address_can_be_left_out_of_a_message() {
    for (message, expected) in [
        (
            "embedding model m at https://h:1/v1/embeddings: it answered 500: x",
            "embedding model m: it answered 500: x",
        ),
        ("12 tools at home", "12 tools at home"),
    ] {
        assert_eq!(without_address(message), expected);
    }
}

#[test]
fn a_server_that_is_down_is_named() {
    let double = Double::embedding(DIMENSIONS);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = endpoint_of(EndpointSettings {
        url: format!("http://{}", free.local_addr().unwrap()),
        patience_s: 0,
        ..settings(&double)
    });
    drop(free);
    assert!(problem(endpoint.embed_tools(&["a"])).contains("cannot be reached"));
    assert!(problem(endpoint.embed_queries(&["a"])).contains("is it running?"));
}

#[test]
fn measuring_waits_for_every_answer() {
    let failed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failed);
    let double = Double::start(move |number, request| {
        if number % 2 == 0 {
            count.fetch_add(1, Ordering::SeqCst);
            return Reply::status(429, "");
        }
        Reply {
            delay: Duration::from_millis(30),
            ..Reply::vectors(request, DIMENSIONS)
        }
    });
    let endpoint = endpoint_of(EndpointSettings {
        query_timeout_ms: 10,
        ..settings(&double)
    });
    let endpoint = endpoint.patient();
    for _ in 0..3 {
        endpoint.embed_queries(&["a"]).unwrap();
    }
    assert_eq!(failed.load(Ordering::SeqCst), 3);
}

#[test]
fn model_and_dimensions_are_asked_for() {
    let double = Double::start(|_, request| {
        if request.line.starts_with("GET /v1/models ") {
            return Reply::status(200, r#"{"data": [{"id": "only"}]}"#);
        }
        Reply::vectors(request, 7)
    });
    let found = discover(&double, Duration::from_secs(5)).unwrap();
    assert_eq!((found.model.as_str(), found.dimensions), ("only", 7));

    let double =
        Double::start(|_, _| Reply::status(200, r#"{"data": [{"id": "a"}, {"id": "b"}]}"#));
    let error = discover(&double, Duration::from_secs(5)).unwrap_err();
    assert!(
        error.to_string().contains("embedding model at http://")
            && error
                .to_string()
                .contains("name one, as in URL#MODEL or by `model`: a, b"),
        "{error}"
    );
}

#[test]
fn one_limit_bounds_all_that_is_asked_for() {
    let double = Double::start(|_, request| {
        let reply = match request.line.starts_with("GET") {
            true => Reply::status(200, r#"{"data": [{"id": "only"}]}"#),
            false => Reply::vectors(request, 7),
        };
        Reply {
            delay: Duration::from_millis(300),
            ..reply
        }
    });
    // Either request alone would be in time.
    let error = discover(&double, Duration::from_millis(400)).unwrap_err();
    assert!(
        error.to_string().contains("did not answer within"),
        "{error}"
    );
}

#[test]
fn vectors_of_another_length_are_reported() {
    let double = Double::embedding(5);
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let endpoint = endpoint(&double).on_other_length(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    assert!(problem(endpoint.embed_queries(&["a"])).contains("5 dimensions where 4"));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}
