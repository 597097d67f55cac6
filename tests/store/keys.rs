//! Keys: the same functions run over the data directory and over the store, and two nodes accept and
//! refuse the same keys.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use toolscout::keys::{
    Catalogs, KeyCopy, KeyError, KeyRefusal, KeyStore, NewKey, Scope, Scopes, StoredKey, TRUST,
};
use toolscout::store::PostgresStore;

use super::node::{Node, run};
use super::nodes::Cluster;
use super::postgres::Postgres;

/// What a key store does, wherever its keys are.
fn conformance(store: &KeyStore) {
    let now = SystemTime::now();
    let later = now + Duration::from_secs(20);
    assert!(!store.is_in_use().unwrap());
    let admin = store
        .create(Scope::Admin, Catalogs::All, None, now)
        .unwrap();
    assert!(store.is_in_use().unwrap());
    let scopes = Scopes::from_iter([Scope::Call, Scope::Approve]);
    let names: Catalogs = "a,b'; DROP TABLE keys; --".parse().unwrap();
    let lifetime = Duration::from_secs(10);
    let short = store.create(scopes, names, Some(lifetime), now).unwrap();
    for made in [&admin, &short] {
        assert_eq!(
            store.verify(&made.token, now).unwrap(),
            Ok(made.key.clone())
        );
        assert_eq!(store.get(&made.key.id).unwrap(), Some(made.key.clone()));
    }
    let bound = NewKey {
        name: None,
        scopes: Scope::Call.into(),
        catalogs: Catalogs::All,
        profiles: ["office", "trade"].map(str::to_owned).into(),
        lifetime: Some(lifetime),
    };
    let bound = store.add(bound, now).unwrap();
    assert_eq!(bound.key.profiles.len(), 2);
    assert_eq!(
        store.verify(&bound.token, now).unwrap(),
        Ok(bound.key.clone())
    );
    assert_eq!(store.get(&bound.key.id).unwrap(), Some(bound.key.clone()));
    store.revoke(&bound.key.id, now).unwrap();
    let expired = store.verify(&short.token, later).unwrap();
    assert_eq!(expired, Err(KeyRefusal::Expired));
    assert_eq!(store.count_valid(now).unwrap(), 2);
    assert_eq!(store.count_valid(later).unwrap(), 1);

    let mut wrong = admin.token.clone();
    wrong.push('x');
    for token in [
        "",
        "tsk_",
        "tsk_x_y",
        "tsk_\0_y",
        "tsk_' OR 1=1 --_y",
        &wrong,
    ] {
        let refused = store.verify(token, now).unwrap();
        assert_eq!(refused, Err(KeyRefusal::Unknown), "{token:?}");
    }
    for id in ["nobody", "a\0b", "' OR '1'='1"] {
        let refused = store.revoke(id, now).unwrap_err();
        assert!(matches!(refused, KeyError::UnknownKey { .. }), "{refused}");
        assert_eq!(store.get(id).unwrap(), None);
    }

    let last = store.revoke_unless_last(&admin.key.id, now).unwrap_err();
    assert!(matches!(last, KeyError::LastOperator { .. }), "{last}");
    store.revoke_unless_last(&short.key.id, now).unwrap();
    let second = store
        .create(Scope::Admin, Catalogs::All, None, now)
        .unwrap();
    store.revoke_unless_last(&admin.key.id, now).unwrap();
    // Twice is once.
    store.revoke_unless_last(&admin.key.id, later).unwrap();
    assert!(store.revoke_unless_last(&second.key.id, later).is_err());
    store.revoke(&second.key.id, later).unwrap();
    for made in [&admin, &short, &second] {
        let refused = store.verify(&made.token, now).unwrap();
        assert_eq!(refused, Err(KeyRefusal::Revoked));
    }
    assert_eq!(store.count_valid(now).unwrap(), 0);
    assert!(store.is_in_use().unwrap());
    let listed = store.list().unwrap();
    assert_eq!(listed.len(), 4);
    assert!(listed.iter().all(|key| key.revoked_at.is_some()));
    assert_eq!(listed.iter().filter(|key| key.operates()).count(), 2);
}

fn shared(postgres: &Postgres, runtime: &Runtime) -> Arc<PostgresStore> {
    PostgresStore::new(&postgres.settings(), runtime.handle().clone()).unwrap()
}

#[test]
fn keys_of_a_data_directory_conform() {
    let folder = tempfile::tempdir().unwrap();
    conformance(&KeyStore::open(folder.path()).unwrap());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn keys_of_the_store_conform() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    conformance(&shared(&postgres, &runtime).keys(None).unwrap());
    postgres.query("DELETE FROM toolscout.keys");
    let folder = tempfile::tempdir().unwrap();
    let store = shared(&postgres, &runtime);
    conformance(&store.keys(Some(folder.path())).unwrap());
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn of_two_requests_for_the_last_two_keys_one_is_refused() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let now = SystemTime::now();
    for _ in 0..10 {
        postgres.query("CREATE SCHEMA IF NOT EXISTS toolscout");
        let keys = shared(&postgres, &runtime).keys(None).unwrap();
        let make = || keys.create(Scope::Admin, Catalogs::All, None, now);
        let ids = [make().unwrap().key.id, make().unwrap().key.id];
        let revoked = std::thread::scope(|scope| {
            let revoking = ids.each_ref().map(|id| {
                let other = shared(&postgres, &runtime).keys(None).unwrap();
                scope.spawn(move || other.revoke_unless_last(id, now).is_ok())
            });
            revoking.map(|thread| thread.join().unwrap())
        });
        assert_eq!(revoked.iter().filter(|revoked| **revoked).count(), 1);
        for id in ids {
            keys.revoke(&id, now).unwrap();
        }
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn whoever_opens_the_keys_of_a_node_sees_the_copy_that_follows() {
    let postgres = Postgres::start();
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = shared(&postgres, &runtime);
    // A server opens them to see whether it may listen, and again to serve.
    let opened = [(); 2].map(|()| store.keys(Some(folder.path())).unwrap());
    store.follow();
    let elsewhere = shared(&postgres, &runtime).keys(None).unwrap();
    let now = SystemTime::now();
    let made = elsewhere
        .create(Scope::Search, Catalogs::All, None, now)
        .unwrap();
    let begun = Instant::now();
    for keys in &opened {
        while keys.verify_known(&made.token, now).unwrap() != Some(Ok(made.key.clone())) {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it does not follow"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(keys.known_in_use().unwrap(), Some(true));
    }
}

fn copied(id: &str) -> StoredKey {
    let folder = tempfile::tempdir().unwrap();
    let store = KeyStore::open(folder.path()).unwrap();
    let now = SystemTime::now();
    let mut key = store
        .create(Scope::Search, Catalogs::All, None, now)
        .unwrap()
        .key;
    key.id = id.to_owned();
    StoredKey {
        key,
        hash: vec![1; 32],
    }
}

#[test]
fn a_copy_follows_one_source_and_counts_after_a_question_only() {
    let folder = tempfile::tempdir().unwrap();
    let open = || KeyCopy::open(folder.path()).unwrap();
    let copy = open();
    assert_eq!(
        (copy.is_in_use().unwrap(), copy.generation("a").unwrap()),
        (None, None)
    );
    copy.apply("a", 3, &[copied("one"), copied("two")], true)
        .unwrap();
    assert!(copy.find("one").unwrap().is_some());
    let mut revoked = copied("one");
    revoked.key.revoked_at = Some(1);
    copy.apply("a", 4, &[revoked], false).unwrap();
    assert!(copy.find("one").unwrap().is_none());
    assert!(copy.find("two").unwrap().is_some());
    assert_eq!(copy.generation("a").unwrap(), Some(4));

    // Another process: what it has may be old until the store was asked.
    let copy = open();
    assert!(copy.find("two").unwrap().is_none());
    assert_eq!(copy.is_in_use().unwrap(), Some(true));
    copy.note_away();
    assert!(copy.find("two").unwrap().is_some());

    // Another cluster has other keys, and none of these.
    assert_eq!(copy.generation("b").unwrap(), None);
    copy.apply("b", 0, &[], true).unwrap();
    assert!(copy.find("two").unwrap().is_none());
    assert_eq!(copy.is_in_use().unwrap(), Some(false));
}

#[test]
fn a_copy_that_was_not_confirmed_for_long_counts_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let copy = KeyCopy::open(folder.path()).unwrap();
    copy.apply("a", 1, &[copied("one")], true).unwrap();
    drop(copy);
    for (seconds, is_known) in [(TRUST.as_secs() - 60, true), (TRUST.as_secs() + 1, false)] {
        let database = rusqlite::Connection::open(folder.path().join("keys.db")).unwrap();
        let sql = "UPDATE followed SET confirmed_at = unixepoch() - ?1";
        database.execute(sql, [seconds]).unwrap();
        let copy = KeyCopy::open(folder.path()).unwrap();
        copy.note_away();
        assert_eq!(copy.find("one").unwrap().is_some(), is_known, "{seconds}");
        assert_eq!(copy.is_in_use().unwrap(), Some(true));
    }
}

fn keys(data: &Path, postgres: &Postgres, arguments: &[&str]) -> Value {
    let address = postgres.address();
    let mut all = vec!["--json", "keys"];
    all.extend(arguments);
    all.extend(["--store", &address]);
    let output = run(data, &all);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_key_is_good_on_every_node_until_it_is_revoked_on_one() {
    let mut cluster = Cluster::new();
    let [mut one, mut two] = cluster.nodes();
    let path = "/v1/catalogs/default";
    assert_eq!([one.get(path).status, two.get(path).status], [200, 200]);
    let made = one.post(
        "/v1/keys",
        &json!({ "scopes": ["admin"], "catalogs": ["*"] }),
    );
    assert_eq!(made.status, 201, "{made:?}");
    let begun = Instant::now();
    assert_eq!(one.get(path).code(), "missing_key");
    two.until(path, |answer| answer.status == 401);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let admin = made.body["key"].as_str().unwrap().to_owned();
    one.use_key(&admin);
    two.use_key(&admin);
    assert_eq!([one.get(path).status, two.get(path).status], [200, 200]);

    // Made by one node or the command line, used on the other at once, revoked on either.
    let mut took = Vec::new();
    for round in 0..20 {
        let [makes, uses] = if round % 2 == 0 {
            [&one, &two]
        } else {
            [&two, &one]
        };
        let made = match round % 3 {
            0 => keys(
                cluster.data(0),
                &cluster.postgres,
                &["create", "--scope", "search", "--catalogs", "*"],
            ),
            _ => {
                makes
                    .post(
                        "/v1/keys",
                        &json!({ "scopes": ["search"], "catalogs": ["*"] }),
                    )
                    .body
            }
        };
        let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
        let as_key = |node: &Node| node.get_as(key, path);
        assert_eq!([as_key(uses).status, as_key(makes).status], [200, 200]);
        let begun = Instant::now();
        match round % 4 {
            0 => drop(keys(cluster.data(1), &cluster.postgres, &["revoke", id])),
            _ => assert_eq!(makes.delete(&format!("/v1/keys/{id}")).status, 200),
        }
        let revoked = Instant::now();
        for node in [uses, makes] {
            while as_key(node).status == 200 {
                assert!(revoked.elapsed() < Duration::from_secs(1), "still accepted");
            }
            assert_eq!(as_key(node).code(), "revoked_key");
        }
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    eprintln!(
        "revoked until refused by both: p50 {:.1?}, most {:.1?}",
        took[10], took[19]
    );
    let listed = keys(cluster.data(0), &cluster.postgres, &["list"]);
    assert_eq!(listed.as_array().unwrap().len(), 21, "{listed}");
    assert_eq!(two.get("/v1/keys").body["total"], 21);

    // Without the store known keys go on, also on a node that starts; unknown ones cannot be asked for.
    cluster.postgres.stop();
    two.kill();
    let mut two = Node::start(&cluster.postgres, cluster.data(1));
    assert_eq!(two.get(path).code(), "missing_key");
    for node in [&mut one, &mut two] {
        node.use_key(&admin);
        assert_eq!(node.get(path).status, 200);
        let unknown = node.get_as("tsk_0123456789ab_secret", path);
        assert_eq!((unknown.status, unknown.code()), (503, "store_unavailable"));
        assert!(unknown.retry_after);
        assert_eq!(node.get("/v1/keys").status, 503);
    }
    cluster.postgres.run();
    two.until("/v1/keys", |answer| answer.status == 200);
    assert_eq!(
        one.get_as("tsk_0123456789ab_secret", path).code(),
        "invalid_key"
    );
}
