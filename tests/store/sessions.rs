//! Conversations: the same functions run over the data directory and over the store, and what one node
//! has begun another goes on with.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use toolscout::principal::OwnerScope;
use toolscout::session::{
    ConversationId, Figures, Lease, SessionError, Sessions, TurnEnd, TurnEvents, TurnStatus,
};
use toolscout::store::{PostgresStore, SharedSessions};

use super::node::{Node, tool};
use super::nodes::Cluster;
use super::postgres::Postgres;

fn id(text: &str) -> ConversationId {
    ConversationId::new(text).unwrap()
}

fn ended(status: TurnStatus, answer: &str) -> TurnEnd {
    TurnEnd {
        status,
        answer: answer.to_owned(),
        error: (status == TurnStatus::Failed).then(|| "a\0reason".to_owned()),
        figures: Figures {
            rounds: 2,
            tools_used: vec!["s/t".to_owned()],
            ..Figures::default()
        },
        toolbox: json!({ "held": [answer] }),
        events: TurnEvents {
            events: vec![json!({ "type": "text", "content": "with \0 in it" })],
            truncated: true,
        },
    }
}

/// What conversations do, wherever they are.
fn conformance(sessions: &Sessions) {
    let (ada, bob) = (OwnerScope::Own("ada".into()), OwnerScope::Own("bob".into()));
    let both = [&ada, &bob, &OwnerScope::All];
    let c = id("c");
    assert!(sessions.may_continue(&c, "bob").unwrap());
    assert_eq!(
        sessions
            .begin_turn(&c, "ada", "default", " first?\nmore ")
            .unwrap(),
        1
    );
    let turns = sessions.turns(&ada, &c).unwrap();
    assert_eq!((turns[0].status, turns.len()), (TurnStatus::Running, 1));
    assert_eq!(
        sessions.events(&ada, &c, 1).unwrap(),
        Some(TurnEvents::default())
    );
    assert_eq!(sessions.toolbox(&c).unwrap(), None);
    let end = ended(TurnStatus::Answered, "yes");
    sessions.end_turn(&c, 1, &end).unwrap();
    sessions.recommend(&c, 1, &["next?".into()]).unwrap();
    let turn = sessions.turns(&ada, &c).unwrap().remove(0);
    assert_eq!(
        (turn.status, turn.answer.as_str()),
        (TurnStatus::Answered, "yes")
    );
    assert_eq!(
        (turn.figures.rounds, &turn.figures.recommended[..]),
        (2, &["next?".to_owned()][..])
    );
    assert_eq!(turn.figures.tools_used, ["s/t"]);
    assert_eq!(
        sessions.events(&ada, &c, 1).unwrap(),
        Some(end.events.clone())
    );
    assert_eq!(sessions.toolbox(&c).unwrap(), Some(end.toolbox));

    // Another owner sees nothing of it, and cannot go on with it.
    assert_eq!(
        both.map(|scope| sessions.turns(scope, &c).unwrap().len()),
        [1, 0, 1]
    );
    assert_eq!(
        both.map(|scope| sessions.contains(scope, &c).unwrap()),
        [true, false, true]
    );
    assert_eq!(
        both.map(|scope| sessions.list(scope, 10, 0).unwrap().len()),
        [1, 0, 1]
    );
    assert_eq!(sessions.events(&bob, &c, 1).unwrap(), None);
    assert_eq!(sessions.events(&ada, &c, 2).unwrap(), None);
    assert!(!sessions.may_continue(&c, "bob").unwrap());
    let refused = sessions
        .begin_turn(&c, "bob", "default", "mine?")
        .unwrap_err();
    assert!(
        matches!(refused, SessionError::NotOwned { .. }),
        "{refused}"
    );
    assert!(!sessions.delete(&bob, &c).unwrap());

    assert_eq!(
        sessions
            .begin_turn(&c, "ada", "default", "second\0?")
            .unwrap(),
        2
    );
    sessions
        .end_turn(&c, 2, &ended(TurnStatus::Failed, ""))
        .unwrap();
    let past = sessions.past_turns(&c, 0..3, 30).unwrap();
    assert_eq!(
        (past[0].question.as_str(), past[0].number),
        (" first?\nmore ", 1)
    );
    assert_eq!(past[0].annotated_answer(), "yes");
    assert_eq!(past[0].events, end.events);
    assert_eq!(
        past[1].annotated_answer(),
        "[this turn was not finished: failed]"
    );
    assert_eq!(sessions.past_turns(&c, 0..3, 1).unwrap()[0].number, 2);
    assert_eq!(sessions.past_turns(&c, 0..2, 30).unwrap().len(), 1);
    assert!(sessions.turns(&ada, &c).unwrap()[1].error.is_some());

    // Any id is an id.
    let names = [
        "'; DROP TABLE turns; --",
        "会话 1",
        "../../etc",
        "a\0b",
        "%",
        "$1",
    ];
    for name in names {
        assert_eq!(
            sessions
                .begin_turn(&id(name), "eve", "default", "q")
                .unwrap(),
            1
        );
        sessions
            .end_turn(&id(name), 1, &ended(TurnStatus::Answered, name))
            .unwrap();
        assert_eq!(
            sessions.turns(&OwnerScope::All, &id(name)).unwrap().len(),
            1,
            "{name:?}"
        );
    }
    let listed = sessions
        .list(&OwnerScope::Own("eve".into()), 100, 0)
        .unwrap();
    assert_eq!(listed.len(), names.len());
    assert!(
        listed
            .iter()
            .all(|summary| names.contains(&summary.id.as_str()) && summary.turns == 1)
    );
    let pages = [0, 4].map(|offset| {
        sessions
            .list(&OwnerScope::Own("eve".into()), 4, offset)
            .unwrap()
            .len()
    });
    assert_eq!(pages, [4, 2]);
    let summary = sessions.list(&ada, 1, 0).unwrap().remove(0);
    assert!(summary.title.starts_with("first?"), "{summary:?}");

    assert!(sessions.delete(&ada, &c).unwrap());
    assert!(!sessions.delete(&OwnerScope::All, &c).unwrap());
    assert!(sessions.turns(&OwnerScope::All, &c).unwrap().is_empty());
    assert_eq!(sessions.events(&OwnerScope::All, &c, 1).unwrap(), None);
}

fn shared(postgres: &Postgres, runtime: &Runtime) -> Sessions {
    let store = PostgresStore::new(&postgres.settings(), runtime.handle().clone()).unwrap();
    Sessions::over(SharedSessions::new(store))
}

#[test]
fn conversations_of_a_data_directory_conform() {
    conformance(&Sessions::in_memory().unwrap());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn conversations_of_the_store_conform() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    conformance(&shared(&postgres, &runtime));
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_turn_belongs_to_one_node_until_its_lease_ends() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let [one, two] = [(); 2].map(|()| shared(&postgres, &runtime));
    let (c, ada) = (id("c"), OwnerScope::Own("ada".into()));
    let end_leases = || postgres.query("UPDATE toolscout.turns SET leased_until = now()");
    assert_eq!(one.begin_turn(&c, "ada", "default", "first?").unwrap(), 1);
    for sessions in [&one, &two] {
        let refused = sessions
            .begin_turn(&c, "ada", "default", "again?")
            .unwrap_err();
        assert!(matches!(refused, SessionError::Busy { .. }), "{refused}");
        assert!(sessions.runs_elsewhere(&ada, &c).unwrap());
    }
    assert_eq!(two.renew(&c, 1, None).unwrap(), Lease::Lost);
    let so_far = ended(TurnStatus::Answered, "").events;
    assert_eq!(one.renew(&c, 1, Some(&so_far)).unwrap(), Lease::Held);
    assert_eq!(two.events(&ada, &c, 1).unwrap(), Some(so_far));

    // The node pauses, and nobody goes on meanwhile: it goes on itself.
    end_leases();
    assert!(!two.runs_elsewhere(&ada, &c).unwrap());
    assert_eq!(
        two.turns(&ada, &c).unwrap()[0].status,
        TurnStatus::Interrupted
    );
    assert_eq!(one.renew(&c, 1, None).unwrap(), Lease::Held);
    assert_eq!(two.turns(&ada, &c).unwrap()[0].status, TurnStatus::Running);

    // It pauses again, and another goes on.
    end_leases();
    assert_eq!(two.begin_turn(&c, "ada", "default", "second?").unwrap(), 2);
    assert_eq!(one.renew(&c, 1, None).unwrap(), Lease::Lost);
    let late = one.end_turn(&c, 1, &ended(TurnStatus::Answered, "late"));
    assert!(matches!(late, Err(SessionError::Lost { .. })), "{late:?}");
    two.end_turn(&c, 2, &ended(TurnStatus::Answered, "yes"))
        .unwrap();
    let turns = one.turns(&ada, &c).unwrap();
    assert_eq!(
        turns.iter().map(|turn| turn.status).collect::<Vec<_>>(),
        [TurnStatus::Interrupted, TurnStatus::Answered]
    );
    assert_eq!(one.toolbox(&c).unwrap(), Some(json!({ "held": ["yes"] })));

    // Any node may be asked to stop a turn of any other.
    one.begin_turn(&c, "ada", "default", "third?").unwrap();
    let bob = OwnerScope::Own("bob".into());
    assert!(!two.stop_elsewhere(&bob, &c).unwrap());
    assert_eq!(one.renew(&c, 3, None).unwrap(), Lease::Held);
    assert!(two.stop_elsewhere(&ada, &c).unwrap());
    assert_eq!(one.renew(&c, 3, None).unwrap(), Lease::Stopped);
    assert!(two.delete(&ada, &c).unwrap());
    assert_eq!(one.renew(&c, 3, None).unwrap(), Lease::Lost);
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn of_many_questions_at_once_one_begins() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let nodes: Vec<Sessions> = (0..4).map(|_| shared(&postgres, &runtime)).collect();
    for round in 0..5 {
        let c = id(&format!("c{round}"));
        let begun = std::thread::scope(|scope| {
            let asking = nodes.iter().map(|sessions| {
                let c = c.clone();
                scope.spawn(move || sessions.begin_turn(&c, "ada", "default", "q").is_ok())
            });
            let asking: Vec<_> = asking.collect();
            let begun = asking.into_iter().map(|thread| thread.join().unwrap());
            begun.filter(|begun| *begun).count()
        });
        assert_eq!(begun, 1);
        assert_eq!(nodes[0].turns(&OwnerScope::All, &c).unwrap().len(), 1);
    }
}

/// A node whose model answers with this script.
pub fn node(cluster: &Cluster, number: usize, script: &[Value]) -> Node {
    let path = cluster.data(number).join("script.jsonl");
    let lines: Vec<String> = script.iter().map(Value::to_string).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let llm = format!("script:{}", path.display());
    let address = cluster.postgres.address();
    let arguments = ["--embedder", "table", "--store", &address, "--llm", &llm];
    Node::start_with(cluster.data(number), &arguments)
}

/// A question whose answer is awaited elsewhere.
pub struct Asked {
    conversation: String,
    events: JoinHandle<Vec<Value>>,
}

impl Asked {
    pub fn on(node: &Node, question: &str, conversation: Option<&str>) -> Self {
        let body = json!({ "query": question, "conversation": conversation });
        let response = node
            .request(reqwest::Method::POST, "/v1/agent/chat")
            .json(&body)
            .send()
            .unwrap();
        assert_eq!(response.status(), 200);
        let conversation = response.headers()["x-conversation-id"]
            .to_str()
            .unwrap()
            .to_owned();
        // A node that is killed cuts the stream off.
        let read = move || {
            let text = response.text().unwrap_or_default();
            let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
            data.filter_map(|data| serde_json::from_str(data).ok())
                .collect()
        };
        Asked {
            conversation,
            events: std::thread::spawn(read),
        }
    }

    fn path(&self) -> String {
        format!("/v1/agent/conversations/{}", self.conversation)
    }

    /// All events; the last one is the end.
    fn end(self) -> Vec<Value> {
        self.events.join().unwrap()
    }

    pub fn status(self) -> String {
        let events = self.end();
        let last = events.last().unwrap_or_else(|| panic!("no events"));
        last["status"]
            .as_str()
            .unwrap_or_else(|| panic!("{last}"))
            .to_owned()
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_conversation_goes_on_on_another_node_after_its_own_was_killed() {
    let cluster = Cluster::new();
    let hang = json!({ "hang": true });
    let one = node(
        &cluster,
        0,
        &[
            json!({ "reply": { "text": "The first answer." } }),
            json!({ "reply": { "text": "Looking.", "calls": [{ "name": "tool_search", "arguments": { "query": "mail" } }] } }),
            hang.clone(),
        ],
    );
    let two = node(
        &cluster,
        1,
        &[json!({ "reply": { "text": "The third answer." } }), hang],
    );
    let first = Asked::on(&one, "first?", None);
    let (path, conversation) = (first.path(), first.conversation.clone());
    assert_eq!(first.status(), "answered");
    let seen = two.get(&path);
    assert_eq!(
        seen.body["turns"][0]["answer"], "The first answer.",
        "{seen:?}"
    );
    assert_eq!(
        (
            &seen.body["running"],
            two.get(&format!("{path}/turns/1/events")).status
        ),
        (&json!(false), 200)
    );

    let second = Asked::on(&one, "second?", Some(&conversation));
    let seen = two.until(&path, |answer| {
        answer.body["turns"][1]["status"] == "running"
    });
    assert_eq!(seen.body["running"], true, "{seen:?}");
    let busy = two.post(
        "/v1/agent/chat",
        &json!({ "query": "third?", "conversation": conversation }),
    );
    assert_eq!((busy.status, busy.code()), (409, "conversation_busy"));
    // What has happened so far is there for the other node.
    let events = two.until(&format!("{path}/turns/2/events"), |answer| {
        !answer.body["events"].as_array().is_none_or(Vec::is_empty)
    });
    eprintln!(
        "{} events of the running turn",
        events.body["events"].as_array().unwrap().len()
    );

    one.kill();
    drop(second.end());
    let begun = Instant::now();
    let seen = two.until(&path, |answer| answer.body["running"] == false);
    eprintln!("free after {:.1?}", begun.elapsed());
    assert_eq!(seen.body["turns"][1]["status"], "interrupted", "{seen:?}");
    let third = Asked::on(&two, "third?", Some(&conversation));
    assert_eq!(third.status(), "answered");
    let seen = two.get(&path);
    assert_eq!(seen.body["turns"].as_array().unwrap().len(), 3, "{seen:?}");
    assert_eq!(seen.body["turns"][2]["answer"], "The third answer.");

    // Started again, the first node stops what runs on the second, and deletes it.
    let one = node(&cluster, 0, &[]);
    let fourth = Asked::on(&two, "fourth?", Some(&conversation));
    one.until(&path, |answer| answer.body["running"] == true);
    let begun = Instant::now();
    let stopped = one.post("/v1/agent/stop", &json!({ "conversation": conversation }));
    assert_eq!(stopped.body["stopped"], true, "{stopped:?}");
    assert_eq!(fourth.status(), "stopped");
    eprintln!("stopped after {:.1?}", begun.elapsed());
    assert_eq!(one.delete(&path).status, 204);
    assert_eq!(two.get(&path).status, 404);
    assert_eq!(
        two.get("/v1/agent/conversations").body["conversations"],
        json!([])
    );
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_client_of_the_models_api_waits_for_a_run_on_another_node() {
    let cluster = Cluster::new();
    let replies = ["The first answer.", "The third answer."];
    let one = node(
        &cluster,
        0,
        &replies.map(|text| json!({ "reply": { "text": text } })),
    );
    let two = node(&cluster, 1, &[json!({ "hang": true })]);
    let path = "/v1/chat/completions";
    let question = |text: &str| json!({ "role": "user", "content": text });
    let mut request = json!({ "model": "toolscout/agent", "messages": [question("first?")] });
    let first = one.post(path, &request);
    let message = first.body["choices"][0]["message"].clone();
    assert_eq!(message["content"], "The first answer.", "{first:?}");
    let kept = one.get("/v1/agent/conversations");
    let conversation = kept.body["conversations"][0]["id"].as_str().unwrap();
    let second = Asked::on(&two, "second?", Some(conversation));
    let running = second.path();
    one.until(&running, |answer| answer.body["running"] == true);

    let messages = request["messages"].as_array_mut().unwrap();
    messages.extend([message, question("third?")]);
    let busy = one.post(path, &request);
    assert_eq!((busy.status, busy.code()), (409, "conversation_busy"));
    let stopped = one.post("/v1/agent/stop", &json!({ "conversation": conversation }));
    assert_eq!(stopped.body["stopped"], true, "{stopped:?}");
    assert_eq!(second.status(), "stopped");
    let third = one.post(path, &request);
    let text = &third.body["choices"][0]["message"]["content"];
    assert_eq!(text, "The third answer.", "{third:?}");
}

/// A node whose model wants to send mail `times` times, each time in an answer of its own.
fn mailing(cluster: &Cluster, times: usize) -> Node {
    let mut script = vec![json!({ "tool": "mail/send", "result": { "sent": true } })];
    for _ in 0..times {
        let call = json!({ "name": "mail__send", "arguments": { "text": "hello" } });
        script.push(json!({ "reply": { "calls": [call] } }));
        script.push(json!({ "reply": { "text": "Done." } }));
    }
    node(cluster, 0, &script)
}

fn answer_of(events: &[Value]) -> &str {
    let decided = events
        .iter()
        .find(|event| event["type"] == "gate")
        .unwrap_or_else(|| panic!("{events:?}"));
    decided["answer"]["answer"]
        .as_str()
        .unwrap_or_else(|| panic!("{decided}"))
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn an_approval_that_one_node_waits_for_is_given_on_another() {
    const ROUNDS: usize = 8;
    let cluster = Cluster::new();
    let one = mailing(&cluster, ROUNDS);
    let two = node(&cluster, 1, &[]);
    one.write("default", &[tool("mail", "send", "Sends a message.")]);
    let mut took = Vec::new();
    for round in 0..ROUNDS {
        let asked = Asked::on(&one, "Send it.", None);
        let path = asked.path();
        let seen = two.until(&path, |answer| {
            answer.body["approvals"][0]["id"].is_string()
        });
        let open = &seen.body["approvals"][0];
        assert_eq!(
            (&open["tool"], &open["arguments"]["text"]),
            (&json!("mail/send"), &json!("hello"))
        );
        assert_eq!(
            one.get(&path).body["approvals"].as_array().unwrap().len(),
            1
        );
        let (id, approve) = (open["id"].as_str().unwrap(), round % 2 == 0);
        let body = |approve: bool| json!({ "id": id, "approve": approve });
        let begun = Instant::now();
        let decided = match round {
            // Both at once, and not of one mind: whoever is told that it was recorded has decided.
            6 | 7 => std::thread::scope(|scope| {
                let [yes, no] = [(&one, true), (&two, false)].map(|(node, approve)| {
                    scope.spawn(move || node.post("/v1/agent/approve", &body(approve)).status)
                });
                let [yes, no] = [yes.join().unwrap(), no.join().unwrap()];
                assert!(
                    [yes, no] == [200, 404] || [yes, no] == [404, 200],
                    "{yes} {no}"
                );
                yes == 200
            }),
            _ => {
                let node = if round % 3 == 0 { &two } else { &one };
                let answer = node.post("/v1/agent/approve", &body(approve));
                assert_eq!(answer.status, 200, "{answer:?}");
                approve
            }
        };
        let late = two.post("/v1/agent/approve", &body(true));
        assert_eq!(late.code(), "unknown_approval");
        let events = asked.end();
        took.push(begun.elapsed());
        assert_eq!(
            answer_of(&events),
            if decided { "approved" } else { "refused" }
        );
        assert_eq!(two.get(&path).body["approvals"], json!([]));
    }
    took.sort_unstable();
    eprintln!(
        "answered until the turn ended: p50 {:.1?}, most {:.1?}",
        took[ROUNDS / 2],
        took[ROUNDS - 1]
    );
    assert!(took[ROUNDS / 2] < Duration::from_secs(2), "{took:?}");
    assert_eq!(
        cluster
            .postgres
            .query("SELECT count(*) FROM toolscout.approvals"),
        "0"
    );
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn an_approval_of_a_node_that_was_killed_cannot_be_given() {
    let cluster = Cluster::new();
    let one = mailing(&cluster, 1);
    let two = node(&cluster, 1, &[]);
    one.write("default", &[tool("mail", "send", "Sends a message.")]);
    let asked = Asked::on(&one, "Send it.", None);
    let path = asked.path();
    let seen = two.until(&path, |answer| {
        answer.body["approvals"][0]["id"].is_string()
    });
    one.kill();
    drop(asked.end());
    two.until(&path, |answer| answer.body["approvals"] == json!([]));
    let late = two.post(
        "/v1/agent/approve",
        &json!({ "id": seen.body["approvals"][0]["id"], "approve": true }),
    );
    assert_eq!((late.status, late.code()), (404, "unknown_approval"));
}
