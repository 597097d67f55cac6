//! `toolscout keys`: who may use the HTTP API.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::keys::{Catalogs, Key, KeyStore, Scope};

/// Make, list and revoke API keys. Once there is one, every request to the API needs one.
#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a key and print it; it is not shown again
    Create {
        /// What it may do; admin includes search
        #[arg(long, value_enum)]
        scope: Scope,
        /// The catalogs it is for, with commas between; `*` for all, those to come included
        #[arg(long, value_name = "NAMES")]
        catalogs: Catalogs,
        /// How long it is good for, as `30d`, `12h`, `45m` or `90s`; without it, until it is revoked
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        expires: Option<Duration>,
    },
    /// List keys, without their secrets
    List,
    /// Take a key back, at once and for good
    Revoke {
        /// The id, as `list` shows it
        id: String,
    },
}

/// Does what is asked, and prints JSON: one object, or one a line.
///
/// # Errors
/// A key that is not there, a database that cannot be used.
#[allow(clippy::print_stdout, reason = "keys are the verb's data")]
pub fn run(args: Keys, data: &Path) -> anyhow::Result<()> {
    let store = KeyStore::open(data)?;
    match args.verb {
        Verb::Create { scope, catalogs, expires } => {
            let made = store.create(scope, catalogs, expires, SystemTime::now())?;
            println!("{}", json!({ "key": made.token, "id": made.key.id, "expires_at": made.key.expires_at }));
        }
        Verb::List => store.list()?.iter().for_each(|key| println!("{}", listed(key))),
        Verb::Revoke { id } => store.revoke(&id, SystemTime::now())?,
    }
    Ok(())
}

fn listed(key: &Key) -> serde_json::Value {
    json!({
        "id": key.id,
        "scope": key.scope,
        "catalogs": key.catalogs.to_string(),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    })
}

fn lifetime(text: &str) -> anyhow::Result<Duration> {
    let unit = text.chars().last().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(60 * 60),
        'd' => Some(24 * 60 * 60),
        _ => None,
    });
    let Some(unit) = unit else { bail!("{text:?} has no unit; write it as 30d, 12h, 45m or 90s") };
    let number: u64 = text[..text.len() - 1].parse().with_context(|| format!("{text:?} is not a whole number and a unit"))?;
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).with_context(|| format!("{text:?} is no time that a key could be good for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_read_and_others_named() {
        assert_eq!(lifetime("30d").unwrap().as_secs(), 30 * 86_400);
        assert_eq!(lifetime("90s").unwrap().as_secs(), 90);
        for bad in ["", "30", "d", "0h", "-1d", "1.5h", "99999999999999999999d", "9999999999999999d"] {
            assert!(lifetime(bad).is_err(), "{bad:?}");
        }
    }
}
