//! `toolscout keys`: who may use the HTTP API.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use super::Outcome;
use super::context::Context;
use crate::keys::{Catalogs, Key, KeyStore, Scope, Scopes};

/// Makes, lists and revokes API keys. Once one was made, every request to the API needs one.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key and print it; it is not shown again
    Create {
        /// What it may do, with commas between. Every key may search and ask the agent; `call` lets
        /// it call tools that do more than read through /mcp, `approve` lets it approve calls of
        /// its own runs, `admin` is everything
        #[arg(long, value_enum, value_delimiter = ',', required = true)]
        scope: Vec<Scope>,
        /// The catalogs it is for, with commas between; `*` for all, those to come included
        #[arg(long, value_name = "NAMES")]
        catalogs: Catalogs,
        /// How long it is good for, as `30d`, `12h`, `45m` or `90s`; without it, until it is
        /// revoked
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

impl Args {
    /// Does the one or the other.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let store = KeyStore::open(&context.settings.data)?;
        match self.action {
            Action::Create {
                scope,
                catalogs,
                expires,
            } => create(
                &store,
                context,
                scope.into_iter().collect(),
                catalogs,
                expires,
            ),
            Action::List => list(&store, context),
            Action::Revoke { id } => revoke(&store, context, &id),
        }
    }
}

fn create(
    store: &KeyStore,
    context: &Context,
    scopes: Scopes,
    catalogs: Catalogs,
    lifetime: Option<Duration>,
) -> Result<Outcome> {
    let made = store.create(scopes, catalogs, lifetime, SystemTime::now())?;
    if context.printer.is_json() {
        let json =
            json!({ "key": made.token, "id": made.key.id, "expires_at": made.key.expires_at });
        context.printer.json(&json)?;
    } else {
        context.printer.line(format_args!("{}", made.token))?;
        context
            .printer
            .note(format_args!("keep it: it is not shown again"))?;
    }
    Ok(Outcome::Done)
}

fn list(store: &KeyStore, context: &Context) -> Result<Outcome> {
    let keys = store.list()?;
    if context.printer.is_json() {
        context
            .printer
            .json(&keys.iter().map(as_json).collect::<Vec<_>>())?;
        return Ok(Outcome::Done);
    }
    let rows = keys.iter().map(as_row).collect();
    context
        .printer
        .rows(&["id", "scopes", "catalogs", "state"], rows)?;
    Ok(Outcome::Done)
}

fn revoke(store: &KeyStore, context: &Context, id: &str) -> Result<Outcome> {
    store.revoke(id, SystemTime::now())?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "revoked": id }))?;
    } else {
        context.printer.line(format_args!("revoked {id}"))?;
    }
    Ok(Outcome::Done)
}

fn as_json(key: &Key) -> Value {
    json!({
        "id": key.id,
        "scopes": key.scopes,
        "catalogs": key.catalogs.to_string(),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "state": key.state(SystemTime::now()),
    })
}

fn as_row(key: &Key) -> Vec<String> {
    let state = key.state(SystemTime::now());
    vec![
        key.id.clone(),
        key.scopes.to_string(),
        key.catalogs.to_string(),
        state.to_string(),
    ]
}

fn lifetime(text: &str) -> Result<Duration> {
    let unit = text.chars().last().and_then(|unit| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(60 * 60),
        'd' => Some(24 * 60 * 60),
        _ => None,
    });
    let Some(unit) = unit else {
        bail!("{text:?} has no unit; write it as 30d, 12h, 45m or 90s")
    };
    let number: u64 = text[..text.len() - 1]
        .parse()
        .with_context(|| format!("{text:?} is not a whole number and a unit"))?;
    let seconds = number.checked_mul(unit).filter(|seconds| *seconds > 0);
    seconds
        .map(Duration::from_secs)
        .with_context(|| format!("{text:?} is no time that a key could be good for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_read_and_others_named() {
        assert_eq!(lifetime("30d").unwrap().as_secs(), 30 * 86_400);
        assert_eq!(lifetime("90s").unwrap().as_secs(), 90);
        for bad in [
            "",
            "30",
            "d",
            "0h",
            "-1d",
            "1.5h",
            "99999999999999999999d",
            "9999999999999999d",
        ] {
            assert!(lifetime(bad).is_err(), "{bad:?}");
        }
    }
}
