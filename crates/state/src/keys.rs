//! API keys: the scopes and the catalogs of each key. Only hashes of keys are stored.
//!
//! A key has the form `tsk_<id>_<secret>`. The id is public and identifies the row. The secret has
//! 256 random bits, so a single SHA-256 is enough to protect it: nobody can guess it. Hashes are
//! compared in constant time.

mod copy;
mod local;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use toolscout_index::database::DatabaseError;
use uuid::Uuid;

use toolscout_base::clock::unix_s as seconds;

pub use copy::{KeyCopy, TRUST};
pub use local::FILE_NAME;

use local::LocalKeys;

/// What every key begins with.
pub const PREFIX: &str = "tsk_";
const SECRET_BYTES: usize = 32;
/// The longest name of a key.
const MAX_NAME_CHARS: usize = 100;

/// Whether a text has the form of a key.
pub fn is_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// A permission of a key. Every key may search.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    clap::ValueEnum,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
#[schema(as = KeyScope)]
pub enum Scope {
    /// Searching, listing, feedback, and questions to the agent.
    Search,
    /// Calling tools that do more than read through the MCP gateway.
    Call,
    /// Approving calls of the key's own runs.
    Approve,
    /// Whatever the operator pays the model's provider for.
    Llm,
    /// Everything in the key's catalogs, including writing and deleting. `llm` only with all catalogs.
    Admin,
}

impl Scope {
    /// All scopes, from the least to the most.
    pub const ALL: [Scope; 5] = [
        Scope::Search,
        Scope::Call,
        Scope::Approve,
        Scope::Llm,
        Scope::Admin,
    ];

    /// The name of the scope.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Search => "search",
            Scope::Call => "call",
            Scope::Approve => "approve",
            Scope::Llm => "llm",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The scopes of a key. `search` is always included, and `admin` includes the others: `llm` only with
/// all catalogs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Scopes(BTreeSet<Scope>);

impl Scopes {
    /// Whether a key for these catalogs has this scope.
    pub fn allow(&self, scope: Scope, catalogs: &Catalogs) -> bool {
        if scope == Scope::Search || self.0.contains(&scope) {
            return true;
        }
        // The model is not part of a catalog: the operator of the server pays for it.
        let is_within_catalogs = scope != Scope::Llm || *catalogs == Catalogs::All;
        self.0.contains(&Scope::Admin) && is_within_catalogs
    }

    /// The scopes that were given, in order.
    pub fn iter(&self) -> impl Iterator<Item = Scope> {
        self.0.iter().copied()
    }

    /// Reads the format of [`fmt::Display`]. Unknown names are ignored.
    pub fn read(text: &str) -> Self {
        let mut scopes = Vec::new();
        for name in text.split(',') {
            scopes.extend(Scope::ALL.into_iter().find(|scope| scope.name() == name));
        }
        Scopes::from_iter(scopes)
    }
}

impl From<Scope> for Scopes {
    fn from(scope: Scope) -> Self {
        Scopes::from_iter([scope])
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        let mut scopes: BTreeSet<Scope> = scopes.into_iter().collect();
        // Every key may search, so no scope means `search`.
        if scopes.is_empty() {
            scopes.insert(Scope::Search);
        }
        Scopes(scopes)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Scope::name).collect();
        f.write_str(&names.join(","))
    }
}

/// The catalogs of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Catalogs {
    /// Every catalog, including future ones.
    All,
    /// These only.
    Only(BTreeSet<String>),
}

impl Catalogs {
    /// Whether the key is for this catalog.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Catalogs::All => true,
            Catalogs::Only(names) => names.contains(name),
        }
    }
}

impl Catalogs {
    /// Reads the format of [`fmt::Display`]. An unreadable list gives access to no catalog.
    pub fn read(text: &str) -> Self {
        text.parse().unwrap_or(Catalogs::Only(BTreeSet::new()))
    }
}

impl FromStr for Catalogs {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text == "*" {
            return Ok(Catalogs::All);
        }
        let names: BTreeSet<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        // `*` beside names is a mistake: the key would be for all catalogs instead of a few.
        if names.contains("") || names.contains("*") {
            return Err(KeyError::InvalidCatalogs {
                text: text.to_owned(),
            });
        }
        Ok(Catalogs::Only(names))
    }
}

impl fmt::Display for Catalogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Catalogs::All => f.write_str("*"),
            Catalogs::Only(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    /// Its public id.
    pub id: String,
    /// What its owner calls it.
    pub name: Option<String>,
    /// Its scopes.
    pub scopes: Scopes,
    /// Its catalogs.
    pub catalogs: Catalogs,
    /// The profiles that it is bound to; empty for a key that is bound to none.
    pub profiles: BTreeSet<String>,
    /// Seconds since 1970.
    pub created_at: u64,
    /// Seconds since 1970; `None` if it does not expire.
    pub expires_at: Option<u64>,
    /// Seconds since 1970; `None` if it is not revoked.
    pub revoked_at: Option<u64>,
    /// When a server last wrote down that it was used, in seconds since 1970; `None` if it never was.
    pub last_used_at: Option<u64>,
}

impl Key {
    /// `valid`, `expired` or `revoked`.
    pub fn state(&self, now: SystemTime) -> &'static str {
        match self.refusal(seconds(now)) {
            // A stored key is never unknown.
            None | Some(KeyRefusal::Unknown) => "valid",
            Some(KeyRefusal::Expired) => "expired",
            Some(KeyRefusal::Revoked) => "revoked",
        }
    }

    /// True where requests with the key are accepted.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        self.refusal(seconds(now)).is_none()
    }

    /// Whether it may do everything, the management of keys included: the scope `admin` for all
    /// catalogs.
    pub fn operates(&self) -> bool {
        self.scopes.allow(Scope::Admin, &self.catalogs)
            && self.catalogs == Catalogs::All
            && self.profiles.is_empty()
    }

    fn refusal(&self, now: u64) -> Option<KeyRefusal> {
        // Revoked comes first, since it is the stronger reason.
        if self.revoked_at.is_some() {
            Some(KeyRefusal::Revoked)
        } else if self.expires_at.is_some_and(|expires_at| expires_at <= now) {
            Some(KeyRefusal::Expired)
        } else {
            None
        }
    }
}

/// A key as it is stored: with the hash of its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    /// The key.
    pub key: Key,
    /// SHA-256 of its secret.
    pub hash: Vec<u8>,
}

/// What a key to be created allows.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// What its owner calls it.
    pub name: Option<String>,
    /// Its scopes.
    pub scopes: Scopes,
    /// Its catalogs.
    pub catalogs: Catalogs,
    /// The profiles that it is bound to; none for a key that may use its catalogs whole.
    pub profiles: BTreeSet<String>,
    /// How long it is valid; without it until it is revoked.
    pub lifetime: Option<Duration>,
}

impl NewKey {
    /// Checks its name and its profiles.
    ///
    /// # Errors
    /// [`KeyError::InvalidName`], [`KeyError::InvalidProfile`], [`KeyError::AdminOfProfiles`].
    pub fn check(&self) -> Result<(), KeyError> {
        if let Some(name) = &self.name
            && !is_name(name)
        {
            return Err(KeyError::InvalidName { name: name.clone() });
        }
        for name in &self.profiles {
            if !is_profile_name(name) {
                return Err(KeyError::InvalidProfile { name: name.clone() });
            }
        }
        // An admin could change the tools that the profiles leave out.
        if !self.profiles.is_empty() && self.scopes.allow(Scope::Admin, &self.catalogs) {
            return Err(KeyError::AdminOfProfiles);
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let length = name.chars().count();
    (1..=MAX_NAME_CHARS).contains(&length)
        && name.trim() == name
        && !name.chars().any(char::is_control)
}

fn is_profile_name(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.chars().all(is_legal)
}

/// The names of profiles as a text, with commas between them.
pub fn profiles_as_text(profiles: &BTreeSet<String>) -> String {
    let names: Vec<&str> = profiles.iter().map(String::as_str).collect();
    names.join(",")
}

/// Reads what [`profiles_as_text`] has written. A text that is not empty always gives a name, so that
/// a key never loses what it is bound to.
pub fn profiles_of_text(text: &str) -> BTreeSet<String> {
    if text.is_empty() {
        return BTreeSet::new();
    }
    text.split(',').map(str::to_owned).collect()
}

/// A new key with its secret, which is not stored and cannot be shown again.
#[derive(Debug)]
pub struct CreatedKey {
    /// The key.
    pub key: Key,
    /// `tsk_<id>_<secret>`, for the client.
    pub token: String,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefusal {
    /// No such key: it is malformed, was never created, or has another secret.
    Unknown,
    /// It has expired.
    Expired,
    /// It was revoked.
    Revoked,
}

/// Errors of the key store.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A list of catalogs that cannot be read.
    #[error(
        "{text:?} is not a list of catalogs; write names with commas between them, or `*` alone for all"
    )]
    InvalidCatalogs {
        /// The list given.
        text: String,
    },
    /// A name that no key can have.
    #[error(
        "{name:?} cannot be the name of a key; names have 1 to {MAX_NAME_CHARS} characters in one line, without spaces around them"
    )]
    InvalidName {
        /// The name given.
        name: String,
    },
    /// A name that no profile can have.
    #[error("{name:?} cannot be the name of a profile; names have letters, digits, `-` and `_`")]
    InvalidProfile {
        /// The name given.
        name: String,
    },
    /// A key that may do everything, and is bound to profiles.
    #[error(
        "a key with the scope admin cannot be bound to profiles; leave out the scope or the profiles"
    )]
    AdminOfProfiles,
    /// No key has this id.
    #[error("no key {id:?}; `toolscout keys list` shows them")]
    UnknownKey {
        /// The id given.
        id: String,
    },
    /// Without this key no other may manage keys.
    #[error(
        "{id:?} is the last valid admin key for all catalogs; create another one before you revoke it"
    )]
    LastOperator {
        /// The id given.
        id: String,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes: {reason}")]
    Entropy {
        /// What it answered.
        reason: String,
    },
    /// The file cannot be created or protected.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The database of keys cannot be used.
    #[error("the key database {}: {source}", path.display())]
    Database {
        /// The database file.
        path: PathBuf,
        /// What SQLite answered.
        source: DatabaseError,
    },
    /// The store that several nodes share cannot be asked.
    #[error("the store of the keys cannot be used now: {reason}")]
    Unavailable {
        /// What the store answered, or why it did not.
        reason: String,
    },
}

/// Where keys are stored: in the data directory, or in the store that several nodes share. Methods
/// block until that has answered.
pub trait KeyTable: Send + Sync {
    /// Adds a key.
    ///
    /// # Errors
    /// [`KeyError`], as of all methods here, when the table cannot be used.
    fn insert(&self, stored: &StoredKey) -> Result<(), KeyError>;

    /// Every key, in the order of time and id.
    ///
    /// # Errors
    /// As [`KeyTable::insert`].
    fn list(&self) -> Result<Vec<Key>, KeyError>;

    /// The key with this id, whatever its state.
    ///
    /// # Errors
    /// As [`KeyTable::insert`].
    fn find(&self, id: &str) -> Result<Option<StoredKey>, KeyError>;

    /// Revokes a key, unless it was revoked before. False where there is none.
    ///
    /// # Errors
    /// As [`KeyTable::insert`].
    fn revoke(&self, id: &str, now_s: u64) -> Result<bool, KeyError>;

    /// Revokes a key as [`KeyTable::revoke`] does, unless it is the last that is accepted and may do
    /// everything, as [`Key::operates`] says. Of two requests for the last two keys one is refused.
    /// False where there is none, and for the last one.
    ///
    /// # Errors
    /// As [`KeyTable::insert`].
    fn revoke_unless_last(&self, id: &str, now_s: u64) -> Result<bool, KeyError>;

    /// Number of keys that are accepted, as [`Key::is_valid`] says.
    ///
    /// # Errors
    /// As [`KeyTable::insert`].
    fn count_valid(&self, now_s: u64) -> Result<usize, KeyError>;

    /// Writes down when keys were last used, by their ids, in seconds since 1970. An earlier time than
    /// the one that is known changes nothing.
    ///
    /// # Errors
    /// As [`KeyTable::insert`].
    fn note_uses(&self, uses: &BTreeMap<String, u64>) -> Result<(), KeyError>;

    /// Whether a key was ever added.
    ///
    /// # Errors
    /// As [`KeyTable::insert`].
    fn is_in_use(&self) -> Result<bool, KeyError>;
}

/// The keys of a data directory, or of a store that several nodes share. Changes by another process
/// of the same data directory are seen at once, those by another node within a second. Cheap to clone.
#[derive(Clone)]
pub struct KeyStore {
    table: Arc<dyn KeyTable>,
    /// What this node has of the keys of the store; without a store, the table is as near.
    copy: Option<Arc<KeyCopy>>,
}

impl KeyStore {
    /// Opens the keys of a data directory. Creates directory and file if necessary, the file
    /// readable only by its owner.
    ///
    /// # Errors
    /// [`KeyError::Io`], [`KeyError::Database`].
    pub fn open(data_dir: &Path) -> Result<Self, KeyError> {
        Ok(KeyStore {
            table: Arc::new(LocalKeys::open(data_dir)?),
            copy: None,
        })
    }

    /// The keys of a table, which is asked each time unless a copy knows the answer.
    pub fn over(table: Arc<dyn KeyTable>, copy: Option<Arc<KeyCopy>>) -> Self {
        KeyStore { table, copy }
    }

    /// Creates a key that is bound to no profile.
    ///
    /// # Errors
    /// [`KeyError::Entropy`], [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn create(
        &self,
        scopes: impl Into<Scopes>,
        catalogs: Catalogs,
        lifetime: Option<Duration>,
        now: SystemTime,
    ) -> Result<CreatedKey, KeyError> {
        let new = NewKey {
            name: None,
            scopes: scopes.into(),
            catalogs,
            profiles: BTreeSet::new(),
            lifetime,
        };
        self.add(new, now)
    }

    /// Creates a key.
    ///
    /// # Errors
    /// Those of [`NewKey::check`] and [`KeyStore::create`].
    pub fn add(&self, new: NewKey, now: SystemTime) -> Result<CreatedKey, KeyError> {
        new.check()?;
        let NewKey {
            name,
            scopes,
            catalogs,
            profiles,
            lifetime,
        } = new;
        let secret = random_secret()?;
        let created_at = seconds(now);
        let key = Key {
            // 12 hexadecimal digits are enough: the id is not secret.
            id: Uuid::new_v4().simple().to_string()[..12].to_owned(),
            name,
            scopes,
            catalogs,
            profiles,
            created_at,
            expires_at: lifetime.map(|lifetime| created_at.saturating_add(lifetime.as_secs())),
            revoked_at: None,
            last_used_at: None,
        };
        let stored = StoredKey {
            key,
            hash: hash(&secret).to_vec(),
        };
        self.table.insert(&stored)?;
        // The store comes first: a key that only this node accepts could not be revoked.
        if let Some(copy) = &self.copy {
            copy.add(&stored)?;
        }
        let key = stored.key;
        let token = format!("{PREFIX}{}_{secret}", key.id);
        Ok(CreatedKey { key, token })
    }

    /// Every key that was ever created, oldest first.
    ///
    /// # Errors
    /// [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn list(&self) -> Result<Vec<Key>, KeyError> {
        self.table.list()
    }

    /// The key with this id, whatever its state.
    ///
    /// # Errors
    /// [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn get(&self, id: &str) -> Result<Option<Key>, KeyError> {
        Ok(self.table.find(id)?.map(|stored| stored.key))
    }

    /// Revokes a key, at once and permanently. Other nodes learn of it within a second.
    ///
    /// # Errors
    /// [`KeyError::UnknownKey`], [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn revoke(&self, id: &str, now: SystemTime) -> Result<(), KeyError> {
        if !self.table.revoke(id, seconds(now))? {
            return Err(KeyError::UnknownKey { id: id.to_owned() });
        }
        self.forget_copy(id)
    }

    /// Revokes a key as [`KeyStore::revoke`] does, unless it is the last valid one that
    /// [operates](Key::operates).
    ///
    /// # Errors
    /// [`KeyError::LastOperator`], and those of [`KeyStore::revoke`].
    pub fn revoke_unless_last(&self, id: &str, now: SystemTime) -> Result<(), KeyError> {
        if self.table.revoke_unless_last(id, seconds(now))? {
            return self.forget_copy(id);
        }
        let id = id.to_owned();
        match self.get(&id)? {
            Some(_) => Err(KeyError::LastOperator { id }),
            None => Err(KeyError::UnknownKey { id }),
        }
    }

    /// Writes down when keys were last used, by their ids, in seconds since 1970.
    ///
    /// # Errors
    /// [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn note_uses(&self, uses: &BTreeMap<String, u64>) -> Result<(), KeyError> {
        self.table.note_uses(uses)
    }

    /// Number of keys that are accepted.
    ///
    /// # Errors
    /// [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn count_valid(&self, now: SystemTime) -> Result<usize, KeyError> {
        self.table.count_valid(seconds(now))
    }

    /// Whether a key was ever created. Revoking the last key does not open the server again.
    ///
    /// # Errors
    /// [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn is_in_use(&self) -> Result<bool, KeyError> {
        match self.known_in_use()? {
            Some(is_in_use) => Ok(is_in_use),
            None => self.table.is_in_use(),
        }
    }

    /// As [`KeyStore::is_in_use`], without asking a store; `None` where only that knows.
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn known_in_use(&self) -> Result<Option<bool>, KeyError> {
        match &self.copy {
            Some(copy) => copy.is_in_use(),
            None => self.table.is_in_use().map(Some),
        }
    }

    /// The key of a token, or why it is refused.
    ///
    /// # Errors
    /// [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn verify(
        &self,
        token: &str,
        now: SystemTime,
    ) -> Result<Result<Key, KeyRefusal>, KeyError> {
        if let Some(known) = self.verify_known(token, now)? {
            return Ok(known);
        }
        let Some((id, secret)) = parts(token) else {
            return Ok(Err(KeyRefusal::Unknown));
        };
        Ok(check(self.table.find(id)?, secret, seconds(now)))
    }

    /// As [`KeyStore::verify`], without asking a store; `None` where only that knows.
    ///
    /// # Errors
    /// [`KeyError::Database`].
    pub fn verify_known(
        &self,
        token: &str,
        now: SystemTime,
    ) -> Result<Option<Result<Key, KeyRefusal>>, KeyError> {
        let Some((id, secret)) = parts(token) else {
            return Ok(Some(Err(KeyRefusal::Unknown)));
        };
        let found = match &self.copy {
            None => self.table.find(id)?,
            Some(copy) => match copy.find(id)? {
                // The key is new, or no longer valid.
                None => return Ok(None),
                found => found,
            },
        };
        Ok(Some(check(found, secret, seconds(now))))
    }

    /// Whether the key with this id is no longer valid: it has expired, was revoked, or is none.
    ///
    /// # Errors
    /// [`KeyError::Database`], [`KeyError::Unavailable`].
    pub fn is_ended(&self, id: &str, now: SystemTime) -> Result<bool, KeyError> {
        let copied = match &self.copy {
            Some(copy) => copy.find(id)?,
            None => None,
        };
        // The copy has only valid keys, so the table decides about the others.
        let found = match copied {
            None => self.table.find(id)?,
            found => found,
        };
        Ok(found.is_none_or(|stored| !stored.key.is_valid(now)))
    }

    /// Lets this node refuse a revoked key before it has followed the store.
    fn forget_copy(&self, id: &str) -> Result<(), KeyError> {
        match &self.copy {
            Some(copy) => copy.forget(id),
            None => Ok(()),
        }
    }
}

/// The id and the secret of a token.
fn parts(token: &str) -> Option<(&str, &str)> {
    // The secret may contain `_`, the id does not.
    token.strip_prefix(PREFIX)?.split_once('_')
}

fn check(found: Option<StoredKey>, secret: &str, now_s: u64) -> Result<Key, KeyRefusal> {
    let Some(StoredKey { key, hash: stored }) = found else {
        return Err(KeyRefusal::Unknown);
    };
    // The secret is checked first, so that only its holder learns that a key has expired or was
    // revoked.
    if !bool::from(stored.ct_eq(&hash(secret))) {
        return Err(KeyRefusal::Unknown);
    }
    match key.refusal(now_s) {
        Some(refusal) => Err(refusal),
        None => Ok(key),
    }
}

/// 256 random bits as text.
///
/// # Errors
/// [`KeyError::Entropy`].
pub fn random_secret() -> Result<String, KeyError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| KeyError::Entropy {
        reason: error.to_string(),
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn store() -> (tempfile::TempDir, KeyStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::open(dir.path()).unwrap();
        (dir, store)
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_is_verified_until_it_expires() {
        let (_dir, store) = store();
        assert!(!store.is_in_use().unwrap());
        let catalogs: Catalogs = "a, b".parse().unwrap();
        let made = store
            .create(
                Scope::Search,
                catalogs,
                Some(Duration::from_secs(10)),
                at(100),
            )
            .unwrap();
        assert_eq!(
            store.verify(&made.token, at(109)).unwrap(),
            Ok(made.key.clone())
        );
        assert_eq!(
            store.verify(&made.token, at(110)).unwrap(),
            Err(KeyRefusal::Expired)
        );
        assert!(made.key.catalogs.contains("b") && !made.key.catalogs.contains("c"));
    }

    #[test]
    fn a_key_has_a_name_and_the_time_of_its_last_use() {
        let (_folder, store) = store();
        let named = |name: &str| NewKey {
            name: Some(name.to_owned()),
            scopes: Scope::Search.into(),
            catalogs: Catalogs::All,
            profiles: BTreeSet::new(),
            lifetime: None,
        };
        let id = store.add(named("build server"), at(1)).unwrap().key.id;
        let key = || store.get(&id).unwrap().unwrap();
        assert_eq!(key().name.as_deref(), Some("build server"));
        assert_eq!(key().last_used_at, None);
        let note = |used_at| store.note_uses(&BTreeMap::from([(id.clone(), used_at)]));
        note(50).unwrap();
        note(40).unwrap();
        assert_eq!(key().last_used_at, Some(50));
        for bad in ["", " x", "a\nb", &"x".repeat(MAX_NAME_CHARS + 1)] {
            let refused = store.add(named(bad), at(1));
            assert!(
                matches!(refused, Err(KeyError::InvalidName { .. })),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_key_keeps_the_profiles_that_it_is_bound_to() {
        let (dir, store) = store();
        let new = |scope: Scope, profiles: &[&str]| NewKey {
            name: None,
            scopes: scope.into(),
            catalogs: Catalogs::All,
            profiles: profiles.iter().map(|name| (*name).to_owned()).collect(),
            lifetime: None,
        };
        let made = store.add(new(Scope::Call, &["b", "a"]), at(1)).unwrap();
        let again = KeyStore::open(dir.path()).unwrap();
        assert_eq!(again.verify(&made.token, at(2)).unwrap(), Ok(made.key));
        let profiles = &again.list().unwrap()[0].profiles;
        assert_eq!(profiles_as_text(profiles), "a,b");
        for (scope, profiles, expected) in [
            (Scope::Admin, &["a"][..], "the scope admin cannot be bound"),
            (
                Scope::Call,
                &["a,b"],
                "\"a,b\" cannot be the name of a profile",
            ),
            (Scope::Call, &[""], "cannot be the name of a profile"),
        ] {
            let refused = store.add(new(scope, profiles), at(1)).unwrap_err();
            assert!(refused.to_string().contains(expected), "{refused}");
        }
        assert_eq!(profiles_of_text(",").len(), 1, "is bound to something");
    }

    #[test]
    fn a_database_of_keys_without_profiles_is_brought_up_to_them() {
        let (dir, store) = store();
        drop(store);
        let path = dir.path().join(FILE_NAME);
        std::fs::remove_file(&path).unwrap();
        let before = toolscout_index::database::open(&path, &[local::SCHEMA]).unwrap();
        let insert = "INSERT INTO keys VALUES ('k', x'00', 'search', 'a', 1, NULL, NULL)";
        before.execute(insert, []).unwrap();
        drop(before);
        let key = KeyStore::open(dir.path()).unwrap().get("k").unwrap();
        assert!(key.unwrap().profiles.is_empty());
    }

    #[test]
    fn a_revoked_key_is_refused_and_keys_stay_in_use() {
        let (dir, store) = store();
        let made = store
            .create(Scope::Admin, Catalogs::All, None, at(1))
            .unwrap();
        KeyStore::open(dir.path())
            .unwrap()
            .revoke(&made.key.id, at(2))
            .unwrap();
        assert_eq!(
            store.verify(&made.token, at(3)).unwrap(),
            Err(KeyRefusal::Revoked)
        );
        assert!(store.is_in_use().unwrap());
        assert!(matches!(
            store.revoke("nobody", at(4)),
            Err(KeyError::UnknownKey { .. })
        ));
    }

    #[test]
    fn the_last_key_that_operates_is_not_revoked_without_notice() {
        let (_dir, store) = store();
        let make = |scopes: &[Scope], catalogs: Catalogs, lifetime: Option<u64>| {
            let scopes: Scopes = scopes.iter().copied().collect();
            let lifetime = lifetime.map(Duration::from_secs);
            store
                .create(scopes, catalogs, lifetime, at(100))
                .unwrap()
                .key
                .id
        };
        let first = make(&[Scope::Call, Scope::Admin], Catalogs::All, None);
        let limited = make(&[Scope::Admin], "a".parse().unwrap(), None);
        let expired = make(&[Scope::Admin], Catalogs::All, Some(10));
        make(&[Scope::Search, Scope::Approve], Catalogs::All, None);
        let refused = store.revoke_unless_last(&first, at(110)).unwrap_err();
        assert!(matches!(refused, KeyError::LastOperator { id } if id == first));
        assert_eq!(store.count_valid(at(110)).unwrap(), 3);
        // Keys that operate nothing can always go.
        store.revoke_unless_last(&limited, at(110)).unwrap();
        store.revoke_unless_last(&expired, at(110)).unwrap();
        let second = make(&[Scope::Admin], Catalogs::All, Some(1000));
        store.revoke_unless_last(&first, at(111)).unwrap();
        assert!(store.revoke_unless_last(&second, at(111)).is_err());
        assert!(matches!(
            store.revoke_unless_last("nobody", at(111)),
            Err(KeyError::UnknownKey { .. })
        ));
        // Twice is once.
        store.revoke_unless_last(&first, at(112)).unwrap();
    }

    #[test]
    fn a_wrong_secret_is_refused_and_no_secret_is_on_disk() {
        let (dir, store) = store();
        let made = store
            .create(Scope::Admin, Catalogs::All, None, at(1))
            .unwrap();
        let secret = made.token.splitn(3, '_').nth(2).unwrap();
        for token in [
            "",
            "tsk_",
            "tsk_x_y",
            &made.token[..made.token.len() - 1],
            &format!("tsk_{}_", made.key.id),
        ] {
            assert_eq!(
                store.verify(token, at(2)).unwrap(),
                Err(KeyRefusal::Unknown),
                "{token:?}"
            );
        }
        for file in std::fs::read_dir(dir.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(
                !bytes
                    .windows(20)
                    .any(|window| window == &secret.as_bytes()[..20])
            );
        }
    }

    #[test]
    fn scopes_are_stored_as_a_set_and_unknown_ones_give_nothing() {
        let (_dir, store) = store();
        let made = store
            .create(
                Scopes::from_iter([Scope::Call, Scope::Approve]),
                Catalogs::All,
                None,
                at(1),
            )
            .unwrap();
        let listed = store.list().unwrap().remove(0);
        assert_eq!(
            (listed.scopes.to_string().as_str(), &listed),
            ("call,approve", &made.key)
        );
        let some: Catalogs = "a,b".parse().unwrap();
        for (text, of_all, of_some) in [
            ("search", 1, 1),
            ("call", 2, 2),
            ("llm", 2, 2),
            ("admin", 5, 4),
            ("admin,llm", 5, 5),
            ("owner", 1, 1),
            ("", 1, 1),
            ("Admin", 1, 1),
        ] {
            for (catalogs, allowed) in [(&Catalogs::All, of_all), (&some, of_some)] {
                let scopes = Scopes::read(text);
                let allows = |scope: &&Scope| scopes.allow(**scope, catalogs);
                let count = Scope::ALL.iter().filter(allows).count();
                assert_eq!(count, allowed, "{text:?} for {catalogs}");
            }
        }
    }

    #[test]
    fn a_list_of_catalogs_names_what_is_wrong() {
        for bad in ["", "a,,b", "a,*"] {
            assert!(
                bad.parse::<Catalogs>()
                    .unwrap_err()
                    .to_string()
                    .contains(&format!("{bad:?}"))
            );
        }
        assert_eq!("*".parse::<Catalogs>().unwrap(), Catalogs::All);
    }
}
