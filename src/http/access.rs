//! What a request may do: the key it shows, and the catalogs that open to it.
//!
//! A handler gets a catalog only through [`Reading`] or [`Writing`], so that no route can forget to
//! ask.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use toolscout_index::memory::Teacher;

use super::App;
use super::error::{ApiError, ApiResult};
use super::extract::Path;
use super::registry::OpenCatalog;
use crate::keys::{Catalogs, Key, KeyRefusal, Scope, Scopes};
use crate::session::Reach;

/// What the sender of a request may do.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The key's id; `None` while no key was ever made.
    key: Option<String>,
    scopes: Scopes,
    catalogs: Catalogs,
}

impl Grant {
    /// May this catalog be read?
    ///
    /// # Errors
    /// 403 for a catalog that the key is not for, whether it exists or not.
    pub fn reads(&self, catalog: &str) -> ApiResult<()> {
        if self.sees(catalog) {
            return Ok(());
        }
        let message = format!("this key is not for the catalog {catalog:?}");
        Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "catalog_not_allowed",
            message,
        ))
    }

    /// May this catalog be changed?
    ///
    /// # Errors
    /// As [`Grant::reads`], and 403 for a key that may only search.
    pub fn writes(&self, catalog: &str) -> ApiResult<()> {
        self.reads(catalog)?;
        self.admin()
    }

    /// May everything be seen, beyond any one catalog?
    ///
    /// # Errors
    /// 403 for a key that is limited to some catalogs or may only search.
    pub fn operates(&self) -> ApiResult<()> {
        if self.scopes.allow(Scope::Admin) && self.catalogs == Catalogs::All {
            return Ok(());
        }
        Err(ApiError::auth(
            StatusCode::FORBIDDEN,
            "wrong_scope",
            "this needs an admin key for all catalogs",
        ))
    }

    /// True when answers may mention this catalog.
    pub fn sees(&self, catalog: &str) -> bool {
        self.catalogs.contains(catalog)
    }

    /// Whose runs and conversations the sender may see, stop and delete: its own, and with an admin
    /// key for all catalogs everybody's.
    pub fn reach(&self) -> Reach {
        if self.operates().is_ok() {
            Reach::All
        } else {
            Reach::Own(self.sender())
        }
    }

    /// The id of the key that the sender shows.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// What the sender counts when it teaches the usage memory of a catalog that it may read.
    pub fn teacher(&self) -> Teacher {
        match &self.key {
            None => Teacher::keyless(),
            Some(key) if self.scopes.allow(Scope::Admin) => Teacher::admin(key),
            Some(key) => Teacher::key(key),
        }
    }

    /// Who sends the request: the owner of its runs, and the name in the audit log.
    pub fn sender(&self) -> String {
        self.key
            .as_ref()
            .map_or_else(|| "http".into(), |key| format!("key:{key}"))
    }

    /// What the key in these headers gives; everything while no key was ever made.
    fn of(headers: &HeaderMap, app: &App) -> ApiResult<Self> {
        if !app.keys.is_in_use().map_err(ApiError::internal)? {
            return Ok(Grant {
                key: None,
                scopes: Scope::Admin.into(),
                catalogs: Catalogs::All,
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
        let verified = app
            .keys
            .verify(token, SystemTime::now())
            .map_err(ApiError::internal)?;
        verified.map(Grant::from).map_err(refused)
    }

    fn admin(&self) -> ApiResult<()> {
        self.allows(Scope::Admin)
    }

    /// May the sender do this?
    ///
    /// # Errors
    /// 403 with the scope that is missing.
    pub fn allows(&self, scope: Scope) -> ApiResult<()> {
        if self.scopes.allow(scope) {
            return Ok(());
        }
        let needed = match scope {
            Scope::Approve => {
                "the scope approve on the key that asked, or an admin key for all catalogs"
                    .to_owned()
            }
            scope => format!("a key with the scope {scope}"),
        };
        let message = format!(
            "this key has the scopes {}; this needs {needed}",
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
        }
    }
}

impl FromRequestParts<App> for Grant {
    type Rejection = ApiError;

    /// Also refuses everything until the catalogs are open: before that, one that is there would
    /// seem not to be.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        // A handler may ask for it beside a catalog; the key is looked up once.
        if let Some(known) = parts.extensions.get::<Grant>() {
            return Ok(known.clone());
        }
        let grant = Grant::of(&parts.headers, app)?;
        app.require_ready()?;
        parts.extensions.insert(grant.clone());
        Ok(grant)
    }
}

/// A catalog that the request may search and list.
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

/// A catalog that the request may change.
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

/// The catalog in the path, or the default one for the routes without.
async fn catalog_name(parts: &mut Parts, app: &App) -> ApiResult<String> {
    let Path(CatalogInPath { catalog }) = Path::from_request_parts(parts, app).await?;
    Ok(catalog.unwrap_or_else(|| app.default_catalog.clone()))
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}

fn refused(refusal: KeyRefusal) -> ApiError {
    let (code, message) = match refusal {
        KeyRefusal::Unknown => ("invalid_key", "this API key is not known here"),
        KeyRefusal::Expired => ("expired_key", "this API key has expired; ask for a new one"),
        KeyRefusal::Revoked => ("revoked_key", "this API key was revoked; ask for a new one"),
    };
    ApiError::auth(StatusCode::UNAUTHORIZED, code, message)
}
