//! The schema and the way in.

use std::process::Output;

use super::node::{Node, program, run};
use super::postgres::{PASSWORD, Postgres};

fn error_of(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    text
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_wrong_password_and_one_on_the_command_line_are_refused() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store"];
    let wrong = program(folder.path(), &serve)
        .arg(postgres.address())
        .env("PGPASSWORD", "wrong-secret")
        .output()
        .unwrap();
    let error = error_of(&wrong);
    assert!(error.contains("TOOLSCOUT_STORE_PASSWORD_FILE"), "{error}");
    assert!(!error.contains("wrong-secret"), "{error}");

    let with_password = postgres.address().replace("tools@", "tools:hidden-secret@");
    let refused = program(folder.path(), &serve).arg(&with_password).output();
    let error = error_of(&refused.unwrap());
    assert!(error.contains("--store-password-file"), "{error}");
    assert!(!error.contains("hidden-secret"), "{error}");

    // From the environment it is taken, and shown nowhere.
    for verb in [["doctor", "--json"], ["store", "status"]] {
        let output = program(folder.path(), &verb)
            .env("TOOLSCOUT_STORE", &with_password)
            .output()
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(!shown.contains("hidden-secret"), "{shown}");
        assert!(shown.contains("password"), "{shown}");
    }

    let file = postgres.password_file().display().to_string();
    let migrated = program(
        folder.path(),
        &["store", "migrate", "--store-password-file", &file],
    )
    .args(["--store", &postgres.address()])
    .output()
    .unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    let doctor = program(folder.path(), &["doctor", "--json", "--embedder", "none"])
        .env("TOOLSCOUT_STORE", postgres.address())
        .env("TOOLSCOUT_STORE_PASSWORD_FILE", &file)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        shown.contains("PostgreSQL 18") && shown.contains("***@127.0.0.1"),
        "{shown}"
    );
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn migrations_can_be_printed_and_run_by_hand() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let address = postgres.address();
    let dry = ["store", "migrate", "--dry-run", "--store", &address];
    let printed = run(folder.path(), &dry);
    let sql = String::from_utf8(printed.stdout).unwrap();
    assert!(sql.contains("CREATE TABLE catalogs"), "{sql}");
    let status = run(folder.path(), &["store", "status", "--store", &address]);
    assert!(error_of(&status).contains("toolscout store migrate"));
    assert_eq!(
        postgres.query("SELECT to_regnamespace('toolscout') IS NULL"),
        "t"
    );
    postgres.query(&sql);
    assert_eq!(
        run(folder.path(), &dry).stdout,
        b"",
        "nothing is left to do"
    );
    Node::start(&postgres, folder.path())
        .write("default", &[super::node::tool("s", "t", "A tool.")]);
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn a_schema_that_is_not_of_this_version_is_refused() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let address = postgres.address();
    let migrate = ["store", "migrate", "--store", &address];
    assert!(run(folder.path(), &migrate).status.success());
    for (change, expected) in [
        (
            "UPDATE toolscout.migrations SET checksum = 'x'",
            "not the one of this program",
        ),
        ("INSERT INTO toolscout.migrations VALUES (99, 'x')", "knows"),
        ("DROP TABLE toolscout.migrations", "half migrated"),
    ] {
        postgres.query(change);
        let error = error_of(&run(folder.path(), &migrate));
        assert!(error.contains(expected), "{error}");
        let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &address];
        let error = error_of(&run(folder.path(), &serve));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
#[ignore = "needs PostgreSQL: scripts/postgres.sh"]
fn processes_that_migrate_at_once_and_clusters_of_one_database_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let postgres = Postgres::start();
    let address = postgres.address();
    let start = || {
        program(folder.path(), &["store", "migrate", "--store", &address])
            .env("PGPASSWORD", PASSWORD)
            .spawn()
            .unwrap()
    };
    let started = [(); 6].map(|()| start());
    for mut child in started {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(
        postgres.query("SELECT count(*) = max(version) FROM toolscout.migrations"),
        "t",
        "each was run once"
    );
    assert_eq!(
        postgres.query("SELECT count(*) FROM toolscout.cluster"),
        "1"
    );
    let other = program(folder.path(), &["store", "migrate", "--store", &address])
        .env("PGPASSWORD", PASSWORD)
        .env("TOOLSCOUT_STORE_SCHEMA", "other")
        .status()
        .unwrap();
    assert!(other.success());
    let identities = "SELECT count(*) FROM (SELECT identity FROM toolscout.cluster UNION SELECT identity FROM other.cluster) i";
    assert_eq!(postgres.query(identities), "2");
}
