//! The schema, by versions. Each is a file of SQL that is part of the program; what was run is recorded
//! with its checksum.

use std::fmt;

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::error::StoreError;

/// One step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Ascends from one to the next.
    pub version: i32,
    /// The statements.
    pub sql: &'static str,
}

/// Every migration of this version of the program.
const ALL: [Migration; 13] = [
    Migration {
        version: 1,
        sql: include_str!("migrations/0001_catalogs.sql"),
    },
    Migration {
        version: 2,
        sql: include_str!("migrations/0002_nodes.sql"),
    },
    Migration {
        version: 3,
        sql: include_str!("migrations/0003_marks.sql"),
    },
    Migration {
        version: 4,
        sql: include_str!("migrations/0004_push_down.sql"),
    },
    Migration {
        version: 5,
        sql: include_str!("migrations/0005_key_profiles.sql"),
    },
    Migration {
        version: 6,
        sql: include_str!("migrations/0006_enrichments.sql"),
    },
    Migration {
        version: 7,
        sql: include_str!("migrations/0007_owner_words.sql"),
    },
    Migration {
        version: 8,
        sql: include_str!("migrations/0008_agents.sql"),
    },
    Migration {
        version: 9,
        sql: include_str!("migrations/0009_enriching.sql"),
    },
    Migration {
        version: 10,
        sql: include_str!("migrations/0010_kinds.sql"),
    },
    Migration {
        version: 11,
        sql: include_str!("migrations/0011_usage.sql"),
    },
    Migration {
        version: 12,
        sql: include_str!("migrations/0012_improvements.sql"),
    },
    Migration {
        version: 13,
        sql: include_str!("migrations/0013_key_names.sql"),
    },
];

/// The oldest PostgreSQL that is known to work.
const OLDEST_SERVER: i32 = 150_000;

/// What a database has of the migrations.
#[derive(Clone, Debug)]
pub struct Migrations {
    /// The schema.
    pub schema: String,
    /// Whether it exists.
    pub has_schema: bool,
    /// How many were run.
    pub run: usize,
    /// Those that are still to be run.
    pub open: Vec<Migration>,
}

impl Migration {
    fn checksum(self) -> String {
        blake3::hash(self.sql.as_bytes()).to_hex().to_string()
    }
}

impl Migrations {
    /// The version that the schema has; 0 before the first.
    pub fn version(&self) -> i32 {
        match self.run.checked_sub(1) {
            Some(last) if last < ALL.len() => ALL[last].version,
            _ => 0,
        }
    }

    /// The version of this program.
    pub fn newest() -> i32 {
        ALL[ALL.len() - 1].version
    }
}

impl fmt::Display for Migrations {
    /// The statements that are still to be run, for `psql`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.open.is_empty() {
            return Ok(());
        }
        writeln!(f, "BEGIN;")?;
        if !self.has_schema {
            writeln!(f, "CREATE SCHEMA {};", quoted(&self.schema))?;
        }
        writeln!(f, "SET LOCAL search_path = {};", quoted(&self.schema))?;
        if self.run == 0 {
            writeln!(f, "{RECORD};")?;
        }
        for migration in &self.open {
            writeln!(f, "-- version {}", migration.version)?;
            writeln!(f, "{}", migration.sql.trim_end())?;
            let (version, checksum) = (migration.version, migration.checksum());
            writeln!(
                f,
                "INSERT INTO migrations (version, checksum) VALUES ({version}, '{checksum}');"
            )?;
        }
        writeln!(f, "COMMIT;")
    }
}

const RECORD: &str = "CREATE TABLE IF NOT EXISTS migrations (
    version integer PRIMARY KEY,
    checksum text NOT NULL,
    run_at timestamptz NOT NULL DEFAULT now()
)";

/// What the database has, without changing it.
///
/// # Errors
/// [`StoreError::Refused`] for a server or a schema that this version cannot use.
pub async fn read(connection: &mut PgConnection, schema: &str) -> Result<Migrations, StoreError> {
    let server: String = sqlx::query_scalar("SHOW server_version_num")
        .fetch_one(&mut *connection)
        .await?;
    if let Ok(number) = server.parse::<i32>()
        && number < OLDEST_SERVER
    {
        let (is, wanted) = (number / 10_000, OLDEST_SERVER / 10_000);
        return refused(format!(
            "the store is PostgreSQL {is}; it must be {wanted} or newer"
        ));
    }
    // Read from the tables: what `to_regclass` says is remembered, also while another process migrates.
    let row = sqlx::query(
        "SELECT count(*) > 0 AS has_schema,
                coalesce(bool_and(has_schema_privilege(pg_namespace.oid, 'USAGE')), true) AS may_use,
                current_user::text AS who,
                count(*) FILTER (WHERE relname = 'migrations') > 0 AS has_record,
                count(*) FILTER (WHERE relname = 'catalogs') > 0 AS has_catalogs
         FROM pg_namespace LEFT JOIN pg_class ON relnamespace = pg_namespace.oid
         WHERE nspname = $1",
    )
    .bind(schema)
    .fetch_one(&mut *connection)
    .await?;
    let has_schema = row.try_get("has_schema")?;
    if !row.try_get::<bool, _>("may_use")? {
        let who: String = row.try_get("who")?;
        return refused(format!(
            "the user {who} may not use the schema {schema:?} of the store; its owner gives the rights with `GRANT USAGE ON \
             SCHEMA {schema} TO {who}` and those on its tables, or name another user in the address"
        ));
    }
    if !row.try_get::<bool, _>("has_record")? {
        if row.try_get::<bool, _>("has_catalogs")? {
            return refused(format!(
                "the schema {schema:?} of the store has tables and no record of migrations: it is half migrated, or of \
                 another program; restore it from a backup, or name another with store_schema"
            ));
        }
        return Ok(Migrations {
            schema: schema.to_owned(),
            has_schema,
            run: 0,
            open: ALL.to_vec(),
        });
    }
    let rows = sqlx::query("SELECT version, checksum FROM migrations ORDER BY version")
        .fetch_all(&mut *connection)
        .await?;
    let mut run = Vec::new();
    for row in rows {
        run.push((row.try_get("version")?, row.try_get("checksum")?));
    }
    check(schema, &run)?;
    Ok(Migrations {
        schema: schema.to_owned(),
        has_schema,
        run: run.len(),
        open: ALL[run.len()..].to_vec(),
    })
}

/// That these are the first of all, unchanged.
fn check(schema: &str, run: &[(i32, String)]) -> Result<(), StoreError> {
    let newest = Migrations::newest();
    // An older program must not write to tables that it does not know.
    if let Some((version, _)) = run.iter().find(|(version, _)| *version > newest) {
        return refused(format!(
            "the schema {schema:?} of the store has version {version} and this program knows {newest}; use the version \
             of the program that migrated it"
        ));
    }
    for ((version, checksum), migration) in run.iter().zip(ALL) {
        if *version != migration.version {
            return refused(format!(
                "the schema {schema:?} of the store lacks version {}: it is half migrated; restore it from a backup",
                migration.version
            ));
        }
        if *checksum != migration.checksum() {
            return refused(format!(
                "version {version} of the schema {schema:?} of the store is not the one of this program; use the program \
                 that migrated it, or name another schema with store_schema"
            ));
        }
    }
    Ok(())
}

/// Runs what is missing, in one transaction, while no other process does.
///
/// # Errors
/// As [`read`], and [`StoreError::Refused`] for a user who may not create tables.
pub async fn run(connection: &mut PgConnection, schema: &str) -> Result<(), StoreError> {
    // Checked without a lock: in most cases there is nothing to do, and a user who may not create
    // tables can still run a server.
    if read(connection, schema).await?.open.is_empty() {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(lock_of(schema))
        .execute(&mut *transaction)
        .await?;
    // Another process may have migrated it meanwhile.
    let migrations = read(&mut transaction, schema).await?;
    if !migrations.has_schema {
        // The name was checked: it has small letters, digits and `_` only.
        let create = AssertSqlSafe(format!("CREATE SCHEMA {}", quoted(schema)));
        sqlx::raw_sql(create).execute(&mut *transaction).await?;
    }
    sqlx::raw_sql(RECORD).execute(&mut *transaction).await?;
    for migration in &migrations.open {
        sqlx::raw_sql(migration.sql)
            .execute(&mut *transaction)
            .await?;
        sqlx::query("INSERT INTO migrations (version, checksum) VALUES ($1, $2)")
            .bind(migration.version)
            .bind(migration.checksum())
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// The number of the lock that a migration of this schema holds.
fn lock_of(schema: &str) -> i64 {
    let hash = blake3::hash(format!("toolscout migrations of {schema}").as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    i64::from_le_bytes(bytes)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn refused<T>(reason: String) -> Result<T, StoreError> {
    Err(StoreError::Refused(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_ascend() {
        assert_eq!(ALL[0].version, 1);
        assert!(ALL.is_sorted_by(|one, next| one.version < next.version));
    }

    #[test]
    fn a_schema_that_is_not_of_this_program_is_refused() {
        let known = ALL[0].checksum();
        check("t", &[(1, known.clone())]).unwrap();
        for (run, expected) in [
            (vec![(1, known.clone()), (99, known.clone())], "version 99"),
            (vec![(1, "other".to_owned())], "not the one"),
            (vec![(0, known)], "half migrated"),
        ] {
            let message = check("t", &run).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
