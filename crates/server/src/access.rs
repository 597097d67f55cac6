//! Access control: the key of a request, and the catalogs that it may read and write.
//!
//! A handler gets a catalog only through [`Reading`] or [`Writing`], so no route can forget the
//! check.

pub mod audit;
pub mod key_watch;
pub mod profiles;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use toolscout_index::memory::Source;

use self::key_watch::{KeyWatch, RequestKey};
use super::served::{OpenCatalog, ServedCatalogs};
use crate::request::error::{self, ApiError, ApiResult, store_unavailable};
use crate::request::extract::Path;
use crate::request::threads::blocking;
use toolscout_base::principal::OwnerScope;
use toolscout_gate::usage::{Origin, Place};
use toolscout_state::keys::{Catalogs, Key, KeyError, KeyRefusal, KeyStore, Scope, Scopes};

/// How long a request with an unknown key waits to be the next that the store is asked about.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(2);

/// Most keys that the store is asked for at a time: whoever invents keys must not take all of its
/// connections.
const MAX_KEY_LOOKUPS: usize = 2;

/// Who may reach a server that has no API keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// Clients on this machine.
    #[default]
    Loopback,
    /// Anyone who can reach the address.
    AnyoneWithoutKeys,
}

/// What decides on each request: the keys, and which catalogs there are.
pub struct Access {
    keys: KeyStore,
    key_watch: KeyWatch,
    /// One permit for each key that the store is asked for.
    lookups: Semaphore,
    catalogs: Arc<ServedCatalogs>,
    default_catalog: String,
    ready: AtomicBool,
}

impl Access {
    /// Lets nobody in until the catalogs are open.
    pub fn new(
        keys: KeyStore,
        key_watch: KeyWatch,
        catalogs: Arc<ServedCatalogs>,
        default_catalog: String,
    ) -> Self {
        Access {
            keys,
            key_watch,
            lookups: Semaphore::new(MAX_KEY_LOOKUPS),
            catalogs,
            default_catalog,
            ready: AtomicBool::new(false),
        }
    }

    /// Notes that the catalogs are open.
    pub fn become_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Passes once the catalogs are open.
    ///
    /// # Errors
    /// 503 before that.
    pub fn require_ready(&self) -> ApiResult<()> {
        // Acquire pairs with the Release after the catalogs were opened.
        if self.ready.load(Ordering::Acquire) {
            Ok(())
        } else {
            Err(error::not_ready())
        }
    }

    /// The permissions of a request. Refuses every request until the catalogs are open: before that,
    /// an existing catalog would be answered with 404.
    async fn grant(&self, parts: &mut Parts) -> ApiResult<Grant> {
        // A handler may take both a grant and a catalog; the key is looked up once.
        if let Some(known) = parts.extensions.get::<Grant>() {
            return Ok(known.clone());
        }
        let grant = self.grant_of(&parts.headers).await?;
        self.require_ready()?;
        // From here on the request is cut off if its key is revoked.
        if let (Some(key), Some(of_request)) = (grant.key(), parts.extensions.get::<RequestKey>()) {
            of_request.set(self.key_watch.begin(key));
        }
        parts.extensions.insert(grant.clone());
        Ok(grant)
    }

    /// The permissions of the key in these headers; all permissions on a server without keys.
    async fn grant_of(&self, headers: &HeaderMap) -> ApiResult<Grant> {
        // Requests need no key until the first one was created.
        let is_in_use = match self.keys.known_in_use()? {
            Some(is_in_use) => is_in_use,
            None => self.ask_store(|keys| keys.is_in_use()).await?,
        };
        if !is_in_use {
            return Ok(Grant {
                key: None,
                scopes: Scope::Admin.into(),
                catalogs: Catalogs::All,
                profiles: BTreeSet::new(),
            });
        }
        let Some(token) = token(headers) else {
            let message = "this server needs an API key; send `Authorization: Bearer KEY` or `X-API-Key: KEY`";
            return Err(ApiError::auth(
                StatusCode::UNAUTHORIZED,
                "missing_key",
                message,
            ));
        };
        let now = SystemTime::now();
        // Most keys are known to this node, so most requests do not wait for the store.
        let verified = match self.keys.verify_known(token, now)? {
            Some(verified) => verified,
            None => {
                let token = token.to_owned();
                self.ask_store(move |keys| keys.verify(&token, now)).await?
            }
        };
        verified.map(Grant::from).map_err(refused)
    }

    /// Asks the store about a key that this node does not know. A bounded number does so at a time.
    async fn ask_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&KeyStore) -> Result<T, KeyError> + Send + 'static,
    ) -> ApiResult<T> {
        // Whether the key is valid is not known, so this is no 401.
        let Ok(Ok(_permit)) = timeout(LOOKUP_PATIENCE, self.lookups.acquire()).await else {
            return Err(store_unavailable("too many unknown keys at a time"));
        };
        let keys = self.keys.clone();
        Ok(blocking(move || work(&keys)).await??)
    }

    /// The catalog in the path, or the default one for routes without a catalog.
    async fn catalog_name(&self, parts: &mut Parts) -> ApiResult<String> {
        let Path(CatalogInPath { catalog }) = Path::from_request_parts(parts, &()).await?;
        Ok(catalog.unwrap_or_else(|| self.default_catalog.clone()))
    }

    /// The catalog of a request that may use it so.
    async fn catalog(
        &self,
        parts: &mut Parts,
        may: fn(&Grant, &str) -> ApiResult<()>,
    ) -> ApiResult<Arc<OpenCatalog>> {
        let grant = self.grant(parts).await?.unbound()?;
        // The key is checked before the catalog is looked up, so that it learns nothing of other
        // catalogs.
        let name = self.catalog_name(parts).await?;
        may(&grant, &name)?;
        self.catalogs.get(&name).await
    }
}

/// The permissions of a request.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The key's id; `None` on a server without keys.
    key: Option<String>,
    scopes: Scopes,
    catalogs: Catalogs,
    /// The profiles that the key is bound to; empty for a key that is bound to none.
    profiles: BTreeSet<String>,
}

impl Grant {
    /// Passes if the request may read this catalog.
    ///
    /// # Errors
    /// 403 for a catalog that the key is not for, whether it exists or not.
    pub fn reads(&self, catalog: &str) -> ApiResult<()> {
        if self.sees(catalog) {
            return Ok(());
        }
        Err(catalog_not_allowed(format!(
            "this key is for the catalogs {}; {catalog:?} needs a key for it or for all catalogs",
            self.catalogs
        )))
    }

    /// Passes if the request may change this catalog.
    ///
    /// # Errors
    /// As [`Grant::reads`], and 403 for a key without the scope `admin`.
    pub fn writes(&self, catalog: &str) -> ApiResult<()> {
        self.reads(catalog)?;
        self.allows(Scope::Admin)
    }

    /// Passes if the request may create this catalog.
    ///
    /// # Errors
    /// As [`Grant::writes`].
    pub fn creates(&self, catalog: &str) -> ApiResult<()> {
        // The scope comes first, so that a key that may create nothing is not told to try another
        // catalog.
        self.allows(Scope::Admin)?;
        if self.sees(catalog) {
            return Ok(());
        }
        Err(catalog_not_allowed(format!(
            "this admin key is limited to the catalogs {} and cannot create {catalog:?}; use an admin key \
             for it or for all catalogs",
            self.catalogs
        )))
    }

    /// Passes if the request may see everything, beyond any one catalog.
    ///
    /// # Errors
    /// 403 unless the key has the scope `admin` for all catalogs.
    pub fn operates(&self) -> ApiResult<()> {
        let is_admin = self.allows(Scope::Admin).is_ok();
        if is_admin && self.catalogs == Catalogs::All && self.profiles.is_empty() {
            return Ok(());
        }
        Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "wrong_scope",
            "this request needs an admin key for all catalogs",
        ))
    }

    /// Whether answers may mention this catalog.
    pub fn sees(&self, catalog: &str) -> bool {
        self.catalogs.contains(catalog)
    }

    /// The runs and conversations that the sender may see, stop and delete: its own, and all of
    /// them with an admin key for all catalogs.
    pub fn owner_scope(&self) -> OwnerScope {
        // A limited admin key does not see the conversations of other keys.
        if self.operates().is_ok() {
            OwnerScope::All
        } else {
            OwnerScope::Own(self.sender())
        }
    }

    /// The catalogs that the key is for.
    pub fn catalogs(&self) -> &Catalogs {
        &self.catalogs
    }

    /// The profiles that the key is bound to; empty for a key that is bound to none.
    pub fn profiles(&self) -> &BTreeSet<String> {
        &self.profiles
    }

    /// Whether the request may use this profile, if there is one of this name.
    pub fn may_use_profile(&self, name: &str) -> bool {
        self.profiles.is_empty() || self.profiles.contains(name)
    }

    /// The profiles that the key is bound to, for messages.
    pub fn profile_names(&self) -> String {
        let names: Vec<&str> = self.profiles.iter().map(String::as_str).collect();
        names.join(", ")
    }

    /// Passes unless the key is bound to profiles.
    fn unbound(self) -> ApiResult<Self> {
        if self.profiles.is_empty() {
            return Ok(self);
        }
        let message = format!(
            "this key is for the profiles {} alone: it may use /mcp/p/NAME, the agent and the model's routes, with the header \
             X-Toolscout-Profile where it has several; other routes need a key without profiles",
            self.profile_names()
        );
        Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "profile_key",
            message,
        ))
    }

    /// The id of the sender's key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The weight of the sender's feedback in the usage memory of a catalog.
    pub fn memory_source(&self) -> Source {
        match &self.key {
            None => Source::keyless(),
            Some(key) if self.allows(Scope::Admin).is_ok() => Source::admin(key),
            Some(key) => Source::key(key),
        }
    }

    /// The sender's name: the owner of its runs, and the caller in the audit log.
    pub fn sender(&self) -> String {
        match &self.key {
            Some(key) => format!("key:{key}"),
            None => "http".to_owned(),
        }
    }

    /// Who uses the tools of this place, for the record of use.
    pub fn origin(&self, place: Place) -> Origin {
        Origin {
            place,
            who: self.sender(),
            session: None,
        }
    }

    /// Passes if the key has this scope.
    ///
    /// # Errors
    /// 403 naming the missing scope.
    pub fn allows(&self, scope: Scope) -> ApiResult<()> {
        if self.scopes.allow(scope, &self.catalogs) {
            return Ok(());
        }
        let needed = match scope {
            Scope::Approve => {
                "the scope approve on the key that started the run, or an admin key for all catalogs"
                    .to_owned()
            }
            Scope::Llm => {
                "a key with the scope llm, which admin includes only for all catalogs".to_owned()
            }
            scope => format!("a key with the scope {scope}"),
        };
        let message = format!(
            "this key has the scopes {}; this request needs {needed}",
            self.scopes
        );
        Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "wrong_scope",
            message,
        ))
    }
}

impl From<Key> for Grant {
    fn from(key: Key) -> Self {
        Grant {
            key: Some(key.id),
            scopes: key.scopes,
            catalogs: key.catalogs,
            profiles: key.profiles,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Grant
where
    Arc<Access>: FromRef<S>,
{
    type Rejection = ApiError;

    /// Also refuses a key that is bound to profiles: a route that knows nothing of them would show
    /// the whole catalog.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Arc::<Access>::from_ref(state).grant(parts).await?.unbound()
    }
}

/// The permissions of a request whose key may be bound to profiles, for routes that keep to them.
pub struct ProfileGrant(pub Grant);

impl<S: Send + Sync> FromRequestParts<S> for ProfileGrant
where
    Arc<Access>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        Arc::<Access>::from_ref(state)
            .grant(parts)
            .await
            .map(ProfileGrant)
    }
}

/// A catalog that the request may read.
pub struct Reading(pub Arc<OpenCatalog>);

impl<S: Send + Sync> FromRequestParts<S> for Reading
where
    Arc<Access>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let access = Arc::<Access>::from_ref(state);
        access.catalog(parts, Grant::reads).await.map(Reading)
    }
}

/// A catalog that the request may write.
pub struct Writing(pub Arc<OpenCatalog>);

impl<S: Send + Sync> FromRequestParts<S> for Writing
where
    Arc<Access>: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let access = Arc::<Access>::from_ref(state);
        access.catalog(parts, Grant::writes).await.map(Writing)
    }
}

#[derive(Deserialize)]
struct CatalogInPath {
    catalog: Option<String>,
}

fn catalog_not_allowed(message: String) -> ApiError {
    ApiError::auth(StatusCode::FORBIDDEN, "catalog_not_allowed", message)
}

/// The key in the `Authorization` or `X-API-Key` header.
fn token(headers: &HeaderMap) -> Option<&str> {
    if let Some(token) = bearer_token(headers) {
        return Some(token);
    }
    headers.get("x-api-key")?.to_str().ok()
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    // The scheme is case-insensitive (RFC 9110).
    match scheme.eq_ignore_ascii_case("bearer") {
        true => Some(token.trim()),
        false => None,
    }
}

fn refused(refusal: KeyRefusal) -> ApiError {
    let (code, message) = match refusal {
        KeyRefusal::Unknown => ("invalid_key", "this server does not know this API key"),
        KeyRefusal::Expired => ("expired_key", "this API key has expired; ask for a new one"),
        KeyRefusal::Revoked => ("revoked_key", "this API key was revoked; ask for a new one"),
    };
    ApiError::auth(StatusCode::UNAUTHORIZED, code, message)
}
