//! The engine's folder and its usage memory: who may teach it what, and what a folder that is not
//! as it was left does.

use std::fs;
use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};
use toolscout::keys::Scope;
use toolscout_index::embed::StaticTable;
use toolscout_index::{DataDir, Options};

use super::server::{Answer, Server, read, tool};
use super::table::{Attack, Section};

pub const SECTION: Section = Section {
    title: "Catalogs and their memory",
    attacks: &[
        Attack {
            tried: "feedback with an invented request id, to make a tool first for everybody",
            happens: "refused: feedback takes the signed token of an answer",
            test: "feedback_on_an_answer_that_was_never_given_is_refused",
        },
        Attack {
            tried: "feedback with a token of another key, for a tool that was no hit, for another query",
            happens: "refused, each by name",
            test: "feedback_proves_its_key_its_hit_and_its_query",
        },
        Attack {
            tried: "one search key votes for a tool again and again",
            happens: "it counts once and moves the tool a little; three keys put it first, an admin at once; the memory lists who",
            test: "one_key_alone_makes_no_tool_first",
        },
        Attack {
            tried: "feedback as fast as the network goes",
            happens: "429 with Retry-After after 60 in a minute, for this key alone",
            test: "feedback_is_bounded_by_key",
        },
        Attack {
            tried: "one key teaches more pairs than the memory holds",
            happens: "its own oldest make room beyond a tenth; what others taught stays",
            test: "one_key_cannot_flush_the_memory",
        },
        Attack {
            tried: "many near requests by one key, to talk down what others taught",
            happens: "what counts in full is weighed without them",
            test: "one_key_cannot_reduce_the_weight_of_entries_by_others",
        },
        Attack {
            tried: "a kill at each step of creating a catalog",
            happens: "what is left is no catalog anywhere, and is created anew",
            test: "an_interrupted_creation_is_not_seen_as_a_catalog",
        },
        Attack {
            tried: "processes killed at random while they create catalogs",
            happens: "each catalog is good or not there",
            test: "a_creation_killed_at_any_moment_leaves_a_sound_catalog_or_none",
        },
        Attack {
            tried: "a server whose default catalog was cut short while it was created",
            happens: "it starts",
            test: "a_server_starts_over_a_default_catalog_that_was_cut_short",
        },
        Attack {
            tried: "one damaged catalog, the default one among them",
            happens: "the server starts, serves the others, and its list and /readyz say so",
            test: "a_damaged_catalog_is_listed_and_in_nobodys_way",
        },
        Attack {
            tried: "a kill while a catalog is deleted",
            happens: "it is deleted",
            test: "an_interrupted_deletion_does_not_prevent_a_new_catalog",
        },
        Attack {
            tried: "a catalog deleted and made anew under an open one, with as many commits",
            happens: "the new one is served",
            test: "a_catalog_that_was_deleted_and_created_again_is_served_in_its_new_state",
        },
        Attack {
            tried: "a catalog deleted by another process while it is served",
            happens: "404",
            test: "a_catalog_deleted_by_another_process_is_not_served",
        },
        Attack {
            tried: "the word index of another catalog with the same keys",
            happens: "it is built anew",
            test: "an_index_of_another_catalog_is_not_used",
        },
        Attack {
            tried: "a read-only folder with a log that was not checkpointed",
            happens: "an error that names the log and the way out",
            test: "a_log_that_cannot_be_read_is_an_error_and_not_ignored",
        },
        Attack {
            tried: "an index whose tools.db is missing or empty",
            happens: "an error, and no new catalog",
            test: "an_index_without_its_database_is_an_error_and_not_a_new_catalog",
        },
        Attack {
            tried: "tools.db removed under an open catalog that is then written to",
            happens: "an error, and no new database",
            test: "a_writer_does_not_replace_a_lost_database_by_a_new_one",
        },
        Attack {
            tried: "every file of a catalog cut, zeroed, given 64 random bytes, swapped, deleted",
            happens: "the same answers, or an error, or `degraded`",
            test: "every_kind_of_damage_to_every_file_is_reported_or_changes_no_answer",
        },
        Attack {
            tried: "random bytes in stored vectors, in the hashes of texts, in remembered requests; a row taken out",
            happens: "vectors are computed anew, requests forgotten, a lost tool is an error",
            test: "random_bytes_in_stored_vectors_are_reported_or_change_no_answer",
        },
        Attack {
            tried: "a damaged file of the table's vectors",
            happens: "the same answers",
            test: "a_damaged_file_of_vectors_changes_no_answer",
        },
        Attack {
            tried: "settings and rankers written where the last step fails",
            happens: "what was there stays, and no draft",
            test: "a_file_is_replaced_whole_and_a_failure_leaves_it_alone",
        },
    ],
};

const MEMORY: &str = "/v1/catalogs/default/memory";
const FEEDBACK: &str = "/v1/catalogs/default/feedback";
const REQUEST: &str = "show me the open tickets of the support queue";

/// A server that remembers, with the key of its owner.
async fn server() -> (Server, String) {
    let table = StaticTable::bundled().expect("the built-in table");
    let server = Server::start_with(|settings| {
        settings.catalog_options = Options::new(vec![table as Arc<_>])
    })
    .await;
    let tools = [
        tool("s", "list_tickets", "Lists tickets of a queue."),
        tool("s", "q7", "Internal; a queue."),
    ];
    server.add(&tools).await;
    let admin = server.key(Scope::Admin, "*");
    let switched = ask(
        &server,
        &admin,
        Method::PUT,
        MEMORY,
        json!({ "enabled": true }),
    )
    .await;
    assert_eq!(switched.status, 200, "{switched:?}");
    (server, admin)
}

async fn ask(server: &Server, key: &str, method: Method, path: &str, body: Value) -> Answer {
    let request = server.request(method, path).bearer_auth(key);
    read(if body.is_null() {
        request
    } else {
        request.json(&body)
    })
    .await
}

async fn search(server: &Server, key: &str) -> Value {
    ask(
        server,
        key,
        Method::POST,
        "/v1/search",
        json!({ "query": REQUEST, "k": 50 }),
    )
    .await
    .body
}

async fn first(server: &Server, key: &str) -> Value {
    search(server, key).await["hits"][0]["name"].clone()
}

/// Says honestly that a tool was used for the request.
async fn vote(server: &Server, key: &str, tool: &str) {
    let token = search(server, key).await["feedback_token"].clone();
    let body = json!({ "feedback_token": token, "tool": tool, "query": REQUEST });
    let answer = ask(server, key, Method::POST, FEEDBACK, body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

#[tokio::test]
async fn feedback_on_an_answer_that_was_never_given_is_refused() {
    let (server, admin) = server().await;
    let key = server.key(Scope::Search, "default");
    for body in [
        json!({ "request_id": "invented", "tool": "s/q7", "query": REQUEST }),
        json!({ "feedback_token": "aW52ZW50ZWQ", "tool": "s/q7", "query": REQUEST }),
    ] {
        let answer = ask(&server, &key, Method::POST, FEEDBACK, body).await;
        assert_eq!(answer.status, 422, "{answer:?}");
    }
    assert_eq!(first(&server, &key).await, "list_tickets");
    assert_eq!(
        ask(&server, &admin, Method::GET, MEMORY, Value::Null)
            .await
            .body["total"],
        0
    );
}

#[tokio::test]
async fn feedback_proves_its_key_its_hit_and_its_query() {
    let (server, _) = server().await;
    let (key, other) = (
        server.key(Scope::Search, "default"),
        server.key(Scope::Search, "default"),
    );
    let whole = search(&server, &key).await["feedback_token"].clone();
    let few = json!({ "query": REQUEST, "k": 1 });
    let few = ask(&server, &key, Method::POST, "/v1/search", few)
        .await
        .body["feedback_token"]
        .clone();
    for (sender, body, code) in [
        (
            &other,
            json!({ "feedback_token": whole, "tool": "s/q7", "query": REQUEST }),
            "invalid_feedback_token",
        ),
        (
            &key,
            json!({ "feedback_token": few, "tool": "s/q7", "query": REQUEST }),
            "tool_not_in_answer",
        ),
        (
            &key,
            json!({ "feedback_token": whole, "tool": "s/q7", "query": "send mail" }),
            "query_not_of_answer",
        ),
    ] {
        let answer = ask(&server, sender, Method::POST, FEEDBACK, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (422, code),
            "{answer:?}"
        );
    }
    let body = json!({ "feedback_token": whole, "tool": "s/q7", "query": REQUEST });
    assert_eq!(
        ask(&server, &key, Method::POST, FEEDBACK, body)
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn one_key_alone_makes_no_tool_first() {
    let (server, admin) = server().await;
    let keys: Vec<String> = (0..3)
        .map(|_| server.key(Scope::Search, "default"))
        .collect();
    for _ in 0..5 {
        vote(&server, &keys[0], "s/q7").await;
    }
    assert_eq!(first(&server, &admin).await, "list_tickets");
    let entry = ask(&server, &admin, Method::GET, MEMORY, Value::Null)
        .await
        .body["entries"][0]
        .clone();
    assert_eq!(
        (&entry["times"], entry["taught_by"].as_array().map(Vec::len)),
        (&json!(1), Some(1))
    );
    assert!(
        entry["taught_by"][0]
            .as_str()
            .is_some_and(|teacher| teacher.starts_with("key:")),
        "{entry}"
    );
    for key in &keys[1..] {
        vote(&server, key, "s/q7").await;
    }
    assert_eq!(first(&server, &admin).await, "q7", "three keys agree");
    vote(&server, &admin, "s/list_tickets").await;
    assert_eq!(
        first(&server, &admin).await,
        "list_tickets",
        "the owner's word and the better match"
    );
}

#[tokio::test]
async fn feedback_is_bounded_by_key() {
    let (server, _) = server().await;
    let (key, other) = (
        server.key(Scope::Search, "default"),
        server.key(Scope::Search, "default"),
    );
    let body = json!({ "feedback_token": "x", "tool": "s/q7" });
    for _ in 0..60 {
        assert_eq!(
            ask(&server, &key, Method::POST, FEEDBACK, body.clone())
                .await
                .status,
            422
        );
    }
    let refused = ask(&server, &key, Method::POST, FEEDBACK, body).await;
    assert_eq!(
        (refused.status.as_u16(), refused.error_code()),
        (429, "too_much_feedback"),
        "{refused:?}"
    );
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    vote(&server, &other, "s/q7").await;
}

#[tokio::test]
async fn a_server_starts_over_a_default_catalog_that_was_cut_short() {
    let server = Server::start_with(|settings| {
        let folder = settings.data.join("catalogs/default");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("tools.db"), "").expect("an empty file");
    })
    .await;
    let answer = server
        .post(
            "/v1/catalogs/default/tools",
            &json!([tool("s", "t", "Does a thing.")]),
        )
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn a_damaged_catalog_is_listed_and_in_nobodys_way() {
    let server = Server::start_with(|settings| {
        DataDir::new(&settings.data)
            .open_or_create("good", Options::default())
            .expect("a catalog");
        for name in ["default", "other"] {
            let folder = settings.data.join("catalogs").join(name);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(
                folder.join("tools.db"),
                "this is no database, it only looks like a file",
            )
            .expect("a file");
        }
    })
    .await;
    let listed = server.get("/v1/catalogs").await.body;
    let described: Vec<(&str, bool)> = listed["catalogs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|catalog| {
            (
                catalog["name"].as_str().unwrap_or_default(),
                catalog["damaged"].is_string(),
            )
        })
        .collect();
    assert_eq!(
        described,
        [("default", true), ("good", false), ("other", true)]
    );
    assert!(
        !listed
            .to_string()
            .contains(server.dir.path().to_str().expect("UTF-8")),
        "{listed}"
    );
    assert_eq!(server.get("/readyz").await.body["damaged_catalogs"], 2);
    assert_eq!(server.get("/v1/catalogs/good/stats").await.status, 200);
    assert_eq!(
        server
            .post("/v1/search", &json!({ "query": "x" }))
            .await
            .status,
        500
    );
    assert_eq!(server.delete("/v1/catalogs/other").await.status, 204);
    assert_eq!(server.get("/readyz").await.body["damaged_catalogs"], 1);
}

#[tokio::test]
async fn a_catalog_deleted_by_another_process_is_not_served() {
    let server = Server::with_tools(&[tool("s", "t", "Does a thing.")]).await;
    let data = DataDir::new(server.dir.path());
    // The server's writer may hold the lock, because it looks for tools to embed.
    while let Err(error) = data.delete("default") {
        assert!(
            matches!(error, toolscout_index::Error::Locked { .. }),
            "{error}"
        );
        tokio::task::yield_now().await;
    }
    assert_eq!(server.get("/v1/catalogs/default").await.status, 404);
    data.open_or_create("default", Options::default())
        .expect("a new one");
    let anew = server.get("/v1/catalogs/default").await;
    assert_eq!(
        (anew.status.as_u16(), &anew.body["tools"]),
        (200, &json!(0)),
        "{anew:?}"
    );
}
