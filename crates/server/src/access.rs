//! Access control: the key of a request, and the catalogs that it may read and write.
//!
//! A handler gets a catalog only through [`Reading`] or [`Writing`], so no route can forget the
//! check.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::time::timeout;
use toolscout_index::memory::Source;

use super::App;
use super::error::{ApiError, ApiResult, store_unavailable};
use super::extract::Path;
use super::key_watch::RequestKey;
use super::registry::OpenCatalog;
use super::threads::blocking;
use toolscout_base::principal::OwnerScope;
use toolscout_state::keys::{Catalogs, Key, KeyError, KeyRefusal, Scope, Scopes};

/// How long a request with an unknown key waits to be the next that the store is asked about.
const LOOKUP_PATIENCE: Duration = Duration::from_secs(2);

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
        // The scope first: a key that may create nothing is not told to try another catalog.
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
        self.key
            .as_ref()
            .map_or_else(|| "http".into(), |key| format!("key:{key}"))
    }

    /// The permissions of a request. Refuses every request until the catalogs are open: before that,
    /// an existing catalog would be answered with 404.
    async fn find(parts: &mut Parts, app: &App) -> ApiResult<Self> {
        // A handler may take both a grant and a catalog; the key is looked up once.
        if let Some(known) = parts.extensions.get::<Grant>() {
            return Ok(known.clone());
        }
        let grant = Grant::of(&parts.headers, app).await?;
        app.require_ready()?;
        if let (Some(key), Some(of_request)) = (grant.key(), parts.extensions.get::<RequestKey>()) {
            of_request.set(app.key_watch.begin(key));
        }
        parts.extensions.insert(grant.clone());
        Ok(grant)
    }

    /// The permissions of the key in these headers; all permissions on a server without keys.
    async fn of(headers: &HeaderMap, app: &App) -> ApiResult<Self> {
        let is_in_use = match app.keys.known_in_use()? {
            Some(is_in_use) => is_in_use,
            None => ask_store(app, |app| app.keys.is_in_use()).await?,
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
        let verified = match app.keys.verify_known(token, now)? {
            Some(verified) => verified,
            None => {
                let token = token.to_owned();
                ask_store(app, move |app| app.keys.verify(&token, now)).await?
            }
        };
        verified.map(Grant::from).map_err(refused)
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

impl FromRequestParts<App> for Grant {
    type Rejection = ApiError;

    /// Also refuses a key that is bound to profiles: a route that knows nothing of them would show
    /// the whole catalog.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        Grant::find(parts, app).await?.unbound()
    }
}

/// The permissions of a request whose key may be bound to profiles, for routes that keep to them.
pub struct ProfileGrant(pub Grant);

impl FromRequestParts<App> for ProfileGrant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        Grant::find(parts, app).await.map(ProfileGrant)
    }
}

/// Asks the store about a key that this node does not know. A bounded number does so at a time.
async fn ask_store<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&App) -> Result<T, KeyError> + Send + 'static,
) -> ApiResult<T> {
    let Ok(Ok(_permit)) = timeout(LOOKUP_PATIENCE, app.key_lookups.acquire()).await else {
        return Err(store_unavailable("too many unknown keys at a time"));
    };
    let app = app.clone();
    Ok(blocking(move || work(&app)).await??)
}

/// A catalog that the request may read.
pub struct Reading(pub Arc<OpenCatalog>);

impl FromRequestParts<App> for Reading {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let grant = Grant::from_request_parts(parts, app).await?;
        let name = catalog_name(parts, app).await?;
        grant.reads(&name)?;
        app.catalogs.get(&name).await.map(Reading)
    }
}

/// A catalog that the request may write.
pub struct Writing(pub Arc<OpenCatalog>);

impl FromRequestParts<App> for Writing {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let grant = Grant::from_request_parts(parts, app).await?;
        let name = catalog_name(parts, app).await?;
        grant.writes(&name)?;
        app.catalogs.get(&name).await.map(Writing)
    }
}

#[derive(Deserialize)]
struct CatalogInPath {
    catalog: Option<String>,
}

/// The catalog in the path, or the default one for routes without a catalog.
async fn catalog_name(parts: &mut Parts, app: &App) -> ApiResult<String> {
    let Path(CatalogInPath { catalog }) = Path::from_request_parts(parts, app).await?;
    Ok(catalog.unwrap_or_else(|| app.default_catalog.clone()))
}

fn catalog_not_allowed(message: String) -> ApiError {
    ApiError::auth(StatusCode::FORBIDDEN, "catalog_not_allowed", message)
}

/// The key in the `Authorization` or `X-API-Key` header.
fn token(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        // The scheme is case-insensitive (RFC 9110).
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}

fn refused(refusal: KeyRefusal) -> ApiError {
    let (code, message) = match refusal {
        KeyRefusal::Unknown => ("invalid_key", "this server does not know this API key"),
        KeyRefusal::Expired => ("expired_key", "this API key has expired; ask for a new one"),
        KeyRefusal::Revoked => ("revoked_key", "this API key was revoked; ask for a new one"),
    };
    ApiError::auth(StatusCode::UNAUTHORIZED, code, message)
}
