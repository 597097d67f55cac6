//! What goes wrong with the store, sorted by what helps: waiting, or a person.

use std::time::Duration;

use toolscout_index::Error;

use toolscout_state::catalog_writer::WriteError;
use toolscout_state::shared::{self, ChainError};

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached or used at the moment.
    #[error("the store cannot be used now: {0}")]
    Unreachable(String),
    /// It will not work until somebody changes something; the message says what.
    #[error("{0}")]
    Refused(String),
    /// This server only reads; where the address names several, another one may be the primary.
    #[error("{0}")]
    ReadOnly(String),
    /// The catalog is no longer there, or another one is.
    #[error("the catalog was deleted")]
    Deleted,
    /// The engine refused the change, or the node's own copy cannot be written.
    #[error(transparent)]
    Catalog(#[from] Error),
}

/// States of PostgreSQL that pass: starting, stopping, too many connections, a lock or a statement
/// that took too long, a conflict, a full disk, a server that only reads.
const PASSING: [&str; 12] = [
    "57P01", "57P02", "57P03", "57P05", "57014", "53000", "53100", "53200", "53300", "55P03",
    "40001", "40P01",
];

impl StoreError {
    /// Nothing came within this time.
    pub fn no_answer(limit: Duration) -> Self {
        StoreError::Unreachable(format!("no answer within {} s", limit.as_secs()))
    }

    /// With the address of what cannot be reached.
    pub fn at(self, address: &str) -> Self {
        match self {
            StoreError::Unreachable(reason) => {
                StoreError::Unreachable(format!("{address}: {reason}"))
            }
            other => other,
        }
    }

    fn of_code(code: &str, message: &str) -> Self {
        let next_step = match code {
            "28P01" | "28000" => {
                "check the user and the password: TOOLSCOUT_STORE_PASSWORD_FILE, PGPASSWORD or PGPASSFILE"
            }
            "3D000" => "create the database, or name another in the address",
            "3F000" | "42P01" | "42703" => {
                "the tables are not those of this version; `toolscout store migrate` says what is missing"
            }
            "42701" | "42710" | "42P06" | "42P07" => {
                "the schema is half migrated; restore it from a backup, or name another with store_schema"
            }
            "42501" => {
                "give the user the rights on the schema, or name another user in the address"
            }
            "25006" => {
                return StoreError::ReadOnly(format!(
                    "PostgreSQL: {message}; name the primary in the address: this server only reads"
                ));
            }
            // Class 08 of PostgreSQL's error codes is about connections.
            _ if PASSING.contains(&code) || code.starts_with("08") => {
                return StoreError::Unreachable(message.to_owned());
            }
            _ => return StoreError::Refused(format!("PostgreSQL: {message} ({code})")),
        };
        StoreError::Refused(format!("PostgreSQL: {message}; {next_step}"))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Database(problem) => {
                StoreError::of_code(&problem.code().unwrap_or_default(), problem.message())
            }
            sqlx::Error::Tls(reason) => StoreError::Refused(format!(
                "the encrypted connection to the store failed: {reason}; check sslmode and sslrootcert of the address"
            )),
            // Either all connections are busy, or a new one could not be made.
            sqlx::Error::PoolTimedOut => {
                StoreError::Unreachable("no connection within 3 s".to_owned())
            }
            sqlx::Error::Decode(_)
            | sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::RowNotFound => StoreError::Refused(format!(
                "the store has what this version cannot read: {error}"
            )),
            // The error itself is left out: it may repeat the address with its password.
            sqlx::Error::Configuration(_) => StoreError::Refused(
                "the address of the store or a file that it names cannot be used".to_owned(),
            ),
            _ => StoreError::Unreachable(error.to_string()),
        }
    }
}

impl From<StoreError> for shared::StoreError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unreachable(reason) => shared::StoreError::Unreachable(reason),
            StoreError::Refused(reason) => shared::StoreError::Refused(reason),
            StoreError::ReadOnly(reason) => shared::StoreError::ReadOnly(reason),
            StoreError::Deleted => shared::StoreError::Deleted,
            StoreError::Catalog(error) => shared::StoreError::Catalog(error),
        }
    }
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        shared::StoreError::from(error).into()
    }
}

impl From<StoreError> for ChainError {
    fn from(error: StoreError) -> Self {
        ChainError::Store(error.into())
    }
}
