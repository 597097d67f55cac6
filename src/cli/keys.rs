//! `toolscout keys`: keys of the HTTP API.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::Outcome;
use super::context::Context;
use super::exit::UsageError;
use super::output::print_stderr;
use super::store::StoreArgs;
use crate::keys::{self, Catalogs, Key, KeyStore, NewKey, Scope};
use crate::store::PostgresStore;
use toolscout_base::clock::{date, day_of};
use toolscout_index::suggest::did_you_mean;

/// Creates, lists and revokes API keys. Once a key exists, every request to the API needs one.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  toolscout keys create --scope search --catalogs default --expires 30d\n  toolscout keys list"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a key and print it; it cannot be shown again
    #[command(
        after_help = "Examples:\n  toolscout keys create --scope search --catalogs default --expires 30d\n  toolscout keys create --scope call --profile support\n  toolscout keys create --scope admin --catalogs \"*\""
    )]
    Create {
        /// What the key allows, separated by commas. Every key allows searching and asking the
        /// agent; `call` adds calls through /mcp of tools that do more than read, `approve` adds
        /// approving calls of its own runs, `llm` adds requests that the server pays its model's
        /// provider for, `admin` allows everything in its catalogs, and with `*` `llm` too
        #[arg(long, value_enum, value_delimiter = ',', required = true)]
        scope: Vec<Scope>,
        /// The catalogs it is valid for, separated by commas; `*` for all, future ones included
        /// [default: all, for a key with --profile]
        #[arg(long, value_name = "NAMES", required_unless_present = "profile")]
        catalogs: Option<Catalogs>,
        /// The profiles of the settings that it is bound to, separated by commas: with such a key only
        /// their tools can be seen and called, through /mcp, the agent and the model's routes
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        profile: Vec<String>,
        /// How long the key is valid, as `30d`, `12h`, `45m` or `90s` [default: until it is
        /// revoked]
        #[arg(long, value_name = "DURATION", value_parser = lifetime)]
        expires: Option<Duration>,
        /// What you call the key, to tell it from others in `keys list`
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// List keys, without their secrets
    #[command(after_help = "Examples:\n  toolscout keys list\n  toolscout keys list --json")]
    List {
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Revoke a key, immediately and permanently
    #[command(
        after_help = "Examples:\n  toolscout keys revoke k7f2\n  toolscout keys revoke \"build server\""
    )]
    Revoke {
        /// The key: its id or its name, as printed by `keys list`, or the whole key
        key: String,
        #[command(flatten)]
        store: StoreArgs,
    },
}

impl Args {
    /// Runs the subcommand.
    pub fn run(self, context: &Context) -> Result<Outcome> {
        let keys = Keys::open(self.action.store(), context)?;
        match self.action {
            Action::Create {
                scope,
                catalogs,
                profile,
                expires,
                name,
                ..
            } => {
                let new = NewKey {
                    name,
                    scopes: scope.into_iter().collect(),
                    // Only a key that is bound to profiles may leave them out.
                    catalogs: catalogs.unwrap_or(Catalogs::All),
                    profiles: profile.into_iter().collect(),
                    lifetime: expires,
                };
                keys.warn_of_missing_catalogs(context, &new.catalogs)?;
                check_profiles(context, &new.profiles)?;
                create(&keys.keys, context, new)
            }
            Action::List { .. } => list(&keys.keys, context),
            Action::Revoke { key, .. } => revoke(&keys.keys, context, &key),
        }
    }
}

impl Action {
    fn store(&self) -> &StoreArgs {
        match self {
            Action::Create { store, .. }
            | Action::List { store }
            | Action::Revoke { store, .. } => store,
        }
    }
}

/// The keys of the data directory, or of the store that the flags or the settings name.
struct Keys {
    keys: KeyStore,
    store: Option<Arc<PostgresStore>>,
    /// What asks the store.
    _runtime: Option<Runtime>,
}

impl Keys {
    fn open(store: &StoreArgs, context: &Context) -> Result<Self> {
        let settings = store.settings(context)?;
        if settings.store.is_none() {
            return Ok(Keys {
                keys: KeyStore::open(&context.settings.data)?,
                store: None,
                _runtime: None,
            });
        }
        // Its thread does the work, since this one waits.
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let store = PostgresStore::new(&settings, runtime.handle().clone())?;
        Ok(Keys {
            keys: store.keys(None)?,
            store: Some(store),
            _runtime: Some(runtime),
        })
    }

    /// Warns about catalogs that do not exist: a misspelt name makes a key that opens nothing.
    fn warn_of_missing_catalogs(&self, context: &Context, catalogs: &Catalogs) -> Result<()> {
        let Catalogs::Only(names) = catalogs else {
            return Ok(());
        };
        let known = match &self.store {
            Some(store) => store.block_on(store.names())?,
            None => context.data_dir().catalogs()?,
        };
        for name in names {
            if known.contains(name) {
                continue;
            }
            let hint = match did_you_mean(name, known.iter().map(String::as_str)) {
                Some(similar) => similar,
                None => format!("`toolscout --catalog {name} add` creates it"),
            };
            context.warn(format_args!("no catalog {name:?} exists yet; {hint}"));
        }
        Ok(())
    }
}

/// Refuses profiles that the settings do not have. Where they have none at all, the server may have
/// settings of its own.
fn check_profiles(context: &Context, profiles: &BTreeSet<String>) -> Result<()> {
    let known = &context.settings.profiles;
    for name in profiles {
        if known.contains_key(name) {
            continue;
        }
        let hint = match did_you_mean(name, known.keys().map(String::as_str)) {
            Some(similar) => similar,
            None => format!("add [profiles.{name}] to the settings of the server"),
        };
        let message = format!("no profile {name:?} exists here; {hint}");
        if !known.is_empty() {
            return Err(UsageError(message).into());
        }
        context.warn(message);
    }
    Ok(())
}

fn create(store: &KeyStore, context: &Context, new: NewKey) -> Result<Outcome> {
    let is_first = !store.is_in_use()?;
    let made = store.add(new, SystemTime::now())?;
    if context.printer.is_json() {
        let json =
            json!({ "key": made.token, "id": made.key.id, "expires_at": made.key.expires_at });
        context.printer.json(&json)?;
    } else {
        context.printer.text(&made.token)?;
        // Only its hash is stored.
        context
            .printer
            .note("store it now: it cannot be shown again")?;
    }
    if is_first {
        context
            .printer
            .note("requests to the HTTP API now need a key")?;
        if !made.key.operates() {
            context.warn("no key may manage this server over HTTP or in the console; `toolscout keys create --scope admin --catalogs '*'` makes one that may");
        }
    }
    Ok(Outcome::Success)
}

fn list(store: &KeyStore, context: &Context) -> Result<Outcome> {
    let keys = store.list()?;
    if context.printer.is_json() {
        context
            .printer
            .json(&keys.iter().map(as_json).collect::<Vec<_>>())?;
        return Ok(Outcome::Success);
    }
    if keys.is_empty() {
        print_stderr("no keys");
        return Ok(Outcome::Success);
    }
    let rows = keys.iter().map(as_row).collect();
    context.printer.rows(
        &[
            "id",
            "scopes",
            "catalogs",
            "state",
            "profiles",
            "name",
            "last used",
        ],
        rows,
    )?;
    Ok(Outcome::Success)
}

fn revoke(store: &KeyStore, context: &Context, given: &str) -> Result<Outcome> {
    let now = SystemTime::now();
    let id = &id_of(given, &store.list()?, now)?;
    store.revoke(id, now)?;
    let is_last = !store.list()?.iter().any(|key| key.is_valid(now));
    if context.printer.is_json() {
        context.printer.json(&json!({ "revoked": id }))?;
    } else {
        context.printer.text(format_args!("revoked {id}"))?;
    }
    // The server does not fall back to requests without keys: that would open it to everybody.
    if is_last {
        context.warn("no valid key is left: every request is refused until you create one");
    }
    Ok(Outcome::Success)
}

/// The id of the key that this id, name or whole key means. Several keys may have one name.
fn id_of(given: &str, keys: &[Key], now: SystemTime) -> Result<String> {
    let whole_key = given.strip_prefix(keys::PREFIX);
    let id = match whole_key.and_then(|rest| rest.split_once('_')) {
        Some((id, _secret)) => id,
        None => given,
    };
    let (mut named, mut ended) = (Vec::new(), None);
    for key in keys {
        if key.id == id {
            return Ok(key.id.clone());
        }
        if key.name.as_deref() != Some(given) {
            continue;
        }
        match key.is_valid(now) {
            true => named.push(key.id.as_str()),
            false => ended = Some(key),
        }
    }
    match (&named[..], ended) {
        ([], Some(key)) => bail!(
            "the key {given:?} ({}) is {} already",
            key.id,
            key.state(now)
        ),
        // The store says that there is no such id.
        ([], None) => Ok(id.to_owned()),
        ([only], _) => Ok((*only).to_owned()),
        _ => Err(UsageError(format!(
            "{} keys have the name {given:?}; give an id: {}",
            named.len(),
            named.join(", ")
        ))
        .into()),
    }
}

fn as_json(key: &Key) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "catalogs": key.catalogs.to_string(),
        "profiles": key.profiles,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
        "state": key.state(SystemTime::now()),
    })
}

fn as_row(key: &Key) -> Vec<String> {
    let state = key.state(SystemTime::now());
    let catalogs = match key.profiles.is_empty() {
        true => key.catalogs.to_string(),
        false => "those of its profiles".to_owned(),
    };
    vec![
        key.id.clone(),
        key.scopes.to_string(),
        catalogs,
        state.to_string(),
        keys::profiles_as_text(&key.profiles),
        key.name.clone().unwrap_or_default(),
        last_use(key),
    ]
}

/// The day on which a key was last used (UTC).
fn last_use(key: &Key) -> String {
    match key.last_used_at {
        Some(seconds) => date(day_of(seconds.saturating_mul(1000).cast_signed())),
        None => "never".to_owned(),
    }
}

fn lifetime(text: &str) -> Result<Duration> {
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 60 * 60,
        Some('d') => 24 * 60 * 60,
        _ => bail!(
            "{text:?} does not end in a unit: d (days), h (hours), m (minutes) or s (seconds), as in 30d"
        ),
    };
    // The unit is one byte, so this is a character boundary.
    let number: u64 = text[..text.len() - 1]
        .parse()
        .with_context(|| format!("{text:?} is not a whole number and a unit"))?;
    match number.checked_mul(unit) {
        Some(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => bail!("{text:?} is not a valid lifetime of a key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_parsed_and_errors_name_the_value() {
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
        let message = lifetime("5w").unwrap_err().to_string();
        assert!(message.contains("d (days), h (hours)"), "{message}");
    }
}
