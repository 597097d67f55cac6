//! A shadow under a recorded load: the queries of a judged set, sent to a server one after another at a
//! steady rate, each with feedback on its first judged tool among the hits.
//!
//! The catalog has the built-in embedders, and its shadow has none. Two servers get the same searches in
//! turn, one of them without a shadow. Prints the figures of the shadow, the CPU time of its thread as a
//! share of a core, and the median times of searches.
//!
//! A server takes 60 feedbacks a minute, and refuses the others: with a high rate there are few calls.
//!
//! `SHADOW_SET` names the folder of the set (the bundled one), `SHADOW_RATE` the searches a second on each
//! server (20), `SHADOW_SHARE` the share that is compared (1), `SHADOW_ROUNDS` how often all queries are
//! sent (1).

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use toolscout::assembly::{self, Settings};
use toolscout::config::ShadowSettings;
use toolscout::eval::EvalSet;
use toolscout::eval::dataset::EvalQuery;
use toolscout::shadow::Plan;
use toolscout::shutdown::Shutdown;
use toolscout::usage::shadow::{ComparedSearch, Identity, Shadow, ShadowState, Shown};
use toolscout::usage::{Origin, Place, Recorder};
use toolscout_index::embed::encoder::Encoder;
use toolscout_index::embed::table::StaticTable;
use toolscout_index::{Options, Query, ToolId};

const CATALOG: &str = "/v1/catalogs/default";

fn main() {
    handing_over();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(replay());
}

fn number(name: &str, default: f64) -> f64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64 / 1e3
}

/// What a search pays: a draw, and for a search that is drawn a copy of its query and a message.
fn handing_over() {
    let identity = Identity {
        catalog: "default".to_owned(),
        share: 1.0,
        ..Identity::default()
    };
    let (shadow, events) = Shadow::new(identity, "default");
    let recorder = Recorder::default().with_shadow(Some(shadow.clone()));
    let place = Place::default();
    let hits: Vec<ToolId> = (0..5)
        .map(|number| ToolId::new("server", &format!("tool_{number}")).expect("an id"))
        .collect();
    let query = Query::new("two of the nine jobs broke last night because the network was down");
    for state in [ShadowState::Waiting, ShadowState::Ready] {
        let name = state.as_str();
        shadow.set_state(state);
        let (mut draws, mut sends) = (Vec::new(), Vec::new());
        for number in 0..50_000 {
            let begun = Instant::now();
            let is_drawn = black_box(&recorder).is_compared(&place);
            draws.push(begun.elapsed());
            if is_drawn {
                let begun = Instant::now();
                let query = query.clone();
                recorder.compare(ComparedSearch {
                    origin: Origin::default(),
                    request: None,
                    shown: Shown {
                        hits: hits.clone(),
                        more: Vec::new(),
                    },
                    repeat: Box::new(move |second| second.answer(query).map(|_| Shown::default())),
                });
                sends.push(begun.elapsed());
            }
            if number % 500 == 0 {
                drop(events.take(Some(Duration::ZERO)));
            }
        }
        let sent = if sends.is_empty() {
            0.0
        } else {
            median(&mut sends)
        };
        println!(
            "{name}: a draw {:.2} us, handing over {sent:.2} us",
            median(&mut draws)
        );
    }
}

struct Served {
    url: String,
    client: reqwest::Client,
    _data: TempDir,
}

impl Served {
    async fn start(shadow: Option<ShadowSettings>) -> Self {
        let data = tempfile::tempdir().expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let load = Box::new(Options::default);
        let plan = shadow.map(|shadow| Plan::new(&shadow, "default", &BTreeMap::new(), load));
        let settings = Settings {
            catalog_options: embedders(),
            shadow: plan.transpose().expect("a plan"),
            ..Settings::new(data.path())
        };
        tokio::spawn(assembly::serve(listener, settings, Shutdown::new()));
        let client = toolscout::tls::client()
            .no_proxy()
            .build()
            .expect("a client");
        let served = Served {
            url,
            client,
            _data: data,
        };
        let ready = async || {
            let asked = served.client.get(format!("{}/readyz", served.url)).send();
            asked.await.is_ok_and(|answer| answer.status().is_success())
        };
        while !ready().await {
            pause().await;
        }
        served
    }

    async fn get(&self, path: &str) -> Value {
        let asked = self.client.get(format!("{}{CATALOG}{path}", self.url));
        let answer = asked.send().await.expect("an answer");
        answer.json().await.expect("JSON")
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let asked = self.client.post(format!("{}{CATALOG}{path}", self.url));
        let answer = asked.json(body).send().await.expect("an answer");
        answer.json().await.expect("JSON")
    }

    async fn wait_for(&self, path: &str, wished: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.get(path).await;
            if wished(&answer) {
                return answer;
            }
            pause().await;
        }
    }

    /// Searches, says which tool was used, and returns how long the search took, and whether the server
    /// refused the feedback.
    async fn search(&self, set: &EvalSet, query: &EvalQuery) -> (Duration, bool) {
        let begun = Instant::now();
        let answer = self.post("/search", &json!({ "query": query.text })).await;
        let took = begun.elapsed();
        let hits = answer["hits"].as_array().expect("hits").iter();
        let mut ids = hits.filter_map(|hit| hit["id"].as_str());
        let is_judged = |id: &&str| {
            let mut relevant = query.relevant.iter();
            relevant.any(|tool| set.tools[*tool as usize].id.as_str() == *id)
        };
        let Some(tool) = ids.find(is_judged) else {
            return (took, false);
        };
        let token = &answer["feedback_token"];
        let used = json!({ "feedback_token": token, "tool": tool });
        let fed_back = self.post("/feedback", &used).await;
        (took, fed_back["recorded"] != true)
    }
}

fn times(searches: &[(Duration, bool)]) -> Vec<Duration> {
    searches.iter().map(|(took, _)| *took).collect()
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

fn embedders() -> Options {
    let table = StaticTable::bundled().expect("the table");
    let encoder = Encoder::bundled().expect("the encoder");
    Options::new(vec![table, encoder])
}

async fn replay() {
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = std::env::var_os("SHADOW_SET").map_or(bundled, PathBuf::from);
    let set = EvalSet::load(&folder).expect("a set");
    let share = number("SHADOW_SHARE", 1.0);
    let plain = Served::start(None).await;
    let shadowed = Served::start(Some(ShadowSettings {
        share: Some(share),
        embedder: Some("none".parse().expect("a name")),
        ..ShadowSettings::default()
    }))
    .await;
    for server in [&plain, &shadowed] {
        for tools in set.tools.chunks(500) {
            server.post("/tools", &json!(tools)).await;
        }
        server
            .wait_for("/stats", |stats| stats["pending_embeddings"] == 0)
            .await;
    }
    let begun = Instant::now();
    let made = shadowed
        .wait_for("/usage/shadow", |shadow| shadow["now"]["state"] == "ready")
        .await;
    println!(
        "{}: {} tools, {} queries; the shadow took {} ms of CPU time until {:.1} s after the catalog was there",
        set.name,
        set.tools.len(),
        set.queries.len(),
        made["now"]["cpu_ms"],
        begun.elapsed().as_secs_f64()
    );
    let cpu = |shadow: &Value| shadow["now"]["cpu_ms"].as_f64().expect("a number");
    let (before, begun) = (cpu(&made), Instant::now());
    let every = Duration::from_secs_f64(1.0 / number("SHADOW_RATE", 20.0));
    let rounds = number("SHADOW_ROUNDS", 1.0) as usize;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let queries = (0..rounds).flat_map(|_| &set.queries);
    for (number, query) in queries.enumerate() {
        tokio::time::sleep_until((begun + every * number as u32).into()).await;
        // In turn, so that neither is always first.
        match number % 2 {
            0 => {
                without.push(plain.search(&set, query).await);
                with.push(shadowed.search(&set, query).await);
            }
            _ => {
                with.push(shadowed.search(&set, query).await);
                without.push(plain.search(&set, query).await);
            }
        }
    }
    let sent = begun.elapsed();
    let shadow = shadowed.get("/usage/shadow").await;
    let used = cpu(&shadow) - before;
    let refused = with.iter().filter(|(_, is_refused)| *is_refused).count();
    println!(
        "{} searches in {:.1} s, {refused} feedbacks refused; the thread took {:.1} % of a core, {} waited, {} were dropped",
        with.len(),
        sent.as_secs_f64(),
        used / 10.0 / sent.as_secs_f64(),
        shadow["now"]["waiting"],
        shadow["now"]["dropped"]
    );
    println!(
        "median of a search over HTTP: {:.0} us without a shadow, {:.0} us with it",
        median(&mut times(&without)),
        median(&mut times(&with))
    );
    let report = shadowed
        .wait_for("/usage/shadow", |shadow| shadow["now"]["waiting"] == 0)
        .await;
    println!("{}", report["summary"]);
    for name in [
        "first_place",
        "reciprocal_place",
        "overlap_at_5",
        "same_first_hit",
        "absent",
    ] {
        println!("{name}: {}", report[name]);
    }
    let all = begun.elapsed().as_secs_f64();
    let used = cpu(&report) - before;
    println!(
        "until all were compared: {all:.1} s, {:.1} % of a core",
        used / 10.0 / all
    );
}
