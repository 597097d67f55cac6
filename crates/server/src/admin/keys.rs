//! API keys: list, create and revoke them, with an admin key for all catalogs. The same keys
//! as those of `toolscout keys`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::access::profiles::Profiles;
use crate::access::{Exposure, Grant};
use crate::request::error::{ApiError, ApiResult};
use crate::request::extract::{Json, Path, QueryString};
use crate::request::paging;
use crate::request::threads::blocking;
use crate::served::ServedCatalogs;
use toolscout_state::keys::{Catalogs, Key, KeyError, KeyStore, NewKey, Scope};

/// Most valid keys.
const MAX_VALID: usize = 10_000;
/// Most catalogs of a key.
const MAX_CATALOGS: usize = 256;
/// Most profiles of a key.
const MAX_PROFILES: usize = 64;
/// The longest lifetime, a hundred years; longer ones are mistakes.
const MAX_LIFETIME_S: u64 = 100 * 365 * 24 * 60 * 60;
/// Stands for all catalogs, future ones included.
const ALL_CATALOGS: &str = "*";

/// A page of the list of keys.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Most keys in the page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// How a key is revoked.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RevokeParams {
    /// True revokes the last admin key for all catalogs too. After that, only `toolscout keys
    /// create` on the server's machine makes another one.
    #[serde(default)]
    force: bool,
}

/// A new key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// What you call it: one line, to tell it from others in the list.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 100, example = "build server")]
    name: Option<String>,
    /// What it allows. Every key may search, and `admin` includes the others.
    #[schema(min_items = 1)]
    scopes: Vec<Scope>,
    /// The catalogs that it is for; `["*"]` for all, future ones included. May be left out of a key with
    /// profiles.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 256, example = json!(["default"]))]
    catalogs: Option<Vec<String>>,
    /// The profiles that it is bound to: with such a key only their tools can be seen and called.
    #[serde(default)]
    #[schema(max_items = 64)]
    profiles: BTreeSet<String>,
    /// Seconds until it expires; without it, it is valid until it is revoked.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3153600000_u64, example = 2592000)]
    expires_in_s: Option<u64>,
}

/// A key without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub struct KeyBody {
    /// Its public id, the part of the key between `tsk_` and the next `_`.
    id: String,
    /// What its owner calls it; null if it has no name.
    name: Option<String>,
    /// What it allows.
    scopes: Vec<Scope>,
    /// The catalogs that it is for; `["*"]` for all.
    catalogs: Vec<String>,
    /// The profiles that it is bound to; empty for a key that is bound to none.
    profiles: BTreeSet<String>,
    /// When it was created, in seconds since 1970.
    created_at: u64,
    /// When it expires, in seconds since 1970; null if it does not.
    expires_at: Option<u64>,
    /// When it was revoked, in seconds since 1970; null if it was not.
    revoked_at: Option<u64>,
    /// When it was last used, in seconds since 1970, up to a minute late; null if it never was.
    last_used_at: Option<u64>,
    /// `valid`, `expired` or `revoked`.
    state: &'static str,
    /// Whether this request was sent with it.
    is_own: bool,
}

/// A new key with its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedKeyBody {
    /// The key to send. It is not stored and cannot be shown again.
    key: String,
    /// What is known of it from now on.
    #[serde(flatten)]
    body: KeyBody,
    /// Catalogs of the key that do not exist yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_catalogs: Vec<String>,
    /// Profiles of the key that this server does not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_profiles: Vec<String>,
}

/// A page of keys.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyPage {
    /// Whether requests need a key: since the first one was created.
    in_use: bool,
    /// The keys, newest first, revoked and expired ones too.
    keys: Vec<KeyBody>,
    /// Number of all keys.
    total: usize,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Lists API keys without their secrets, newest first. Needs an admin key for all catalogs.
#[utoipa::path(
    get, path = "/v1/keys", operation_id = "list_keys", tag = "keys",
    params(PageParams),
    responses((status = 200, body = KeyPage, description = "A page of keys"))
)]
pub async fn list(
    grant: Grant,
    State(keys): State<KeyStore>,
    QueryString(params): QueryString<PageParams>,
) -> ApiResult<Json<KeyPage>> {
    grant.operates()?;
    let limit = paging::limit(params.limit)?;
    let after: Option<(u64, String)> = paging::after(params.cursor.as_deref())?;
    let listed = with_keys(&keys, KeyStore::list).await?;
    Ok(Json(page(listed, after, limit, &grant)))
}

/// Creates an API key. The answer is the only one that has it whole. Needs an admin key for all
/// catalogs.
///
/// From the first key on, every request needs one. So the first has to be an admin key for all
/// catalogs that does not expire; another one would lock everybody out of the management of keys.
#[utoipa::path(
    post, path = "/v1/keys", operation_id = "create_key", tag = "keys",
    request_body = KeyRequest,
    responses((status = 201, body = CreatedKeyBody, description = "The key, with its secret"))
)]
pub async fn create(
    grant: Grant,
    State(keys): State<KeyStore>,
    State(catalogs): State<Arc<ServedCatalogs>>,
    State(profiles): State<Profiles>,
    State(exposure): State<Exposure>,
    Json(request): Json<KeyRequest>,
) -> ApiResult<Response> {
    grant.operates()?;
    let wanted = Wanted::of(request)?;
    // A key may be created before its catalogs, so unknown names are only reported.
    let known = catalogs.names().await?;
    let unknown_catalogs = wanted.not_among(&known);
    let unknown_profiles = wanted.unknown_profiles(profiles.names());
    let made = with_keys(&keys, move |keys| wanted.create(keys, exposure)).await??;
    tracing::info!(id = made.key.id, scopes = %made.key.scopes, catalogs = %made.key.catalogs, by = grant.sender(), "key created");
    // The answer has the secret, so it must not be cached.
    let headers = [
        (header::LOCATION, format!("/v1/keys/{}", made.key.id)),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    let body = CreatedKeyBody {
        key: made.token,
        body: KeyBody::of(made.key, &grant),
        unknown_catalogs,
        unknown_profiles,
    };
    Ok((StatusCode::CREATED, headers, Json(body)).into_response())
}

/// Shows an API key without its secret. Needs an admin key for all catalogs.
#[utoipa::path(
    get, path = "/v1/keys/{id}", operation_id = "show_key", tag = "keys",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 200, body = KeyBody, description = "The key"))
)]
pub async fn show(
    grant: Grant,
    State(keys): State<KeyStore>,
    Path(id): Path<String>,
) -> ApiResult<Json<KeyBody>> {
    grant.operates()?;
    let key = find(&keys, &id).await?;
    Ok(Json(KeyBody::of(key, &grant)))
}

/// Revokes an API key, at once and permanently. Needs an admin key for all catalogs.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", operation_id = "revoke_key", tag = "keys",
    params(("id" = String, Path, description = "The key's id"), RevokeParams),
    responses((status = 200, body = KeyBody, description = "The revoked key"))
)]
pub async fn revoke(
    grant: Grant,
    State(keys): State<KeyStore>,
    Path(id): Path<String>,
    QueryString(params): QueryString<RevokeParams>,
) -> ApiResult<Json<KeyBody>> {
    grant.operates()?;
    let wanted = id.clone();
    let revoked = with_keys(&keys, move |keys| {
        let now = SystemTime::now();
        Ok(match params.force {
            true => keys.revoke(&wanted, now),
            false => keys.revoke_unless_last(&wanted, now),
        })
    });
    revoked.await?.map_err(refused)?;
    tracing::info!(id, by = grant.sender(), "key revoked");
    // Read again, since the answer shows the time of the revocation.
    let key = find(&keys, &id).await?;
    Ok(Json(KeyBody::of(key, &grant)))
}

/// A validated request for a key.
struct Wanted(NewKey);

impl Wanted {
    fn of(request: KeyRequest) -> ApiResult<Self> {
        if request.scopes.is_empty() {
            let message =
                "scopes is empty; give one or more of search, call, approve, llm and admin";
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        // Checked here so that messages name the fields of the request.
        let lifetime = request.expires_in_s;
        if let Some(seconds) = lifetime
            && !(1..=MAX_LIFETIME_S).contains(&seconds)
        {
            let message = format!(
                "expires_in_s is {seconds}, it must be from 1 to {MAX_LIFETIME_S}; leave it out for a key that does not expire"
            );
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        if request.profiles.len() > MAX_PROFILES {
            let count = request.profiles.len();
            let message = format!("profiles has {count} names, it may have {MAX_PROFILES}");
            return Err(ApiError::unprocessable("invalid_value", message));
        }
        let catalogs = match &request.catalogs {
            Some(names) => catalogs_of(names)?,
            // The profiles limit the key to their catalogs.
            None if !request.profiles.is_empty() => Catalogs::All,
            None => {
                let message =
                    "catalogs is missing; name catalogs, or use [\"*\"] for all, or give profiles";
                return Err(ApiError::unprocessable("missing_field", message));
            }
        };
        let new = NewKey {
            name: request.name,
            scopes: request.scopes.into_iter().collect(),
            catalogs,
            profiles: request.profiles,
            lifetime: lifetime.map(Duration::from_secs),
        };
        match new.check() {
            Ok(()) => Ok(Wanted(new)),
            Err(error) => Err(ApiError::unprocessable("invalid_value", error.to_string())),
        }
    }

    /// The profiles of the key that are not among these.
    fn unknown_profiles<'a>(&self, known: impl Iterator<Item = &'a str>) -> Vec<String> {
        let known: BTreeSet<&str> = known.collect();
        let mut unknown = Vec::new();
        for name in &self.0.profiles {
            if !known.contains(name.as_str()) {
                unknown.push(name.clone());
            }
        }
        unknown
    }

    /// The catalogs of the key that are not among these.
    fn not_among(&self, known: &BTreeSet<String>) -> Vec<String> {
        match &self.0.catalogs {
            Catalogs::All => Vec::new(),
            Catalogs::Only(names) => names.difference(known).cloned().collect(),
        }
    }

    fn create(
        self,
        keys: &KeyStore,
        exposure: Exposure,
    ) -> Result<ApiResult<toolscout_state::keys::CreatedKey>, KeyError> {
        let now = SystemTime::now();
        // The first key locks the server, so it must be one that can manage keys.
        if !keys.is_in_use()?
            && let Err(error) = self.check_first(exposure)
        {
            return Ok(Err(error));
        }
        // Expired and revoked keys do not count: they are kept only for the list.
        if keys.count_valid(now)? >= MAX_VALID {
            let message = format!(
                "there are {MAX_VALID} valid keys, the most; revoke those that nobody needs"
            );
            let error = ApiError::invalid(StatusCode::CONFLICT, "too_many_keys", message);
            return Ok(Err(error));
        }
        keys.add(self.0, now).map(Ok)
    }

    /// Passes if everybody may need a key from now on, this being the only one.
    fn check_first(&self, exposure: Exposure) -> ApiResult<()> {
        if exposure == Exposure::AnyoneWithoutKeys {
            // Whoever came first would take over the server.
            let message = "this server is open to a network without keys, where anyone could make the first one; \
                           make it with `toolscout keys create` on the server's machine";
            return Err(ApiError::auth(StatusCode::FORBIDDEN, "first_key", message));
        }
        let NewKey {
            scopes,
            catalogs,
            lifetime,
            ..
        } = &self.0;
        let operates = scopes.allow(Scope::Admin, catalogs) && *catalogs == Catalogs::All;
        if operates && lifetime.is_none() {
            return Ok(());
        }
        let message = "every request needs a key once there is one, so the first key must have the scope `admin`, the \
                       catalogs [\"*\"] and no expiry; create that one first";
        Err(ApiError::unprocessable("first_key", message))
    }
}

/// The catalogs of a request.
fn catalogs_of(names: &[String]) -> ApiResult<Catalogs> {
    if names.len() > MAX_CATALOGS {
        let count = names.len();
        return Err(invalid(format!(
            "catalogs has {count} names, it may have {MAX_CATALOGS}; use [\"*\"] for all catalogs"
        )));
    }
    if names == [ALL_CATALOGS] {
        return Ok(Catalogs::All);
    }
    let mut only = BTreeSet::new();
    for name in names {
        // Names are stored with commas between them.
        if name.trim().is_empty() || name.contains([',', '*']) {
            return Err(invalid(format!(
                "catalogs has {name:?}, which cannot be a catalog's name; use names, or [\"*\"] alone for all catalogs"
            )));
        }
        only.insert(name.trim().to_owned());
    }
    if only.is_empty() {
        let message = "catalogs is empty; name catalogs, or use [\"*\"] for all";
        return Err(invalid(message.to_owned()));
    }
    Ok(Catalogs::Only(only))
}

fn invalid(message: String) -> ApiError {
    ApiError::unprocessable("invalid_value", message)
}

impl KeyBody {
    fn of(key: Key, grant: &Grant) -> Self {
        let now = SystemTime::now();
        KeyBody {
            state: key.state(now),
            is_own: grant.key() == Some(&key.id),
            scopes: key.scopes.iter().collect(),
            catalogs: catalog_names(&key.catalogs),
            profiles: key.profiles,
            id: key.id,
            name: key.name,
            last_used_at: key.last_used_at,
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// The catalogs of a key as answers name them: `["*"]` for all.
pub fn catalog_names(catalogs: &Catalogs) -> Vec<String> {
    match catalogs {
        Catalogs::All => vec![ALL_CATALOGS.to_owned()],
        Catalogs::Only(names) => names.iter().cloned().collect(),
    }
}

/// A page of the keys, newest first, after the one with this time and id.
fn page(mut keys: Vec<Key>, after: Option<(u64, String)>, limit: usize, grant: &Grant) -> KeyPage {
    let (in_use, total) = (!keys.is_empty(), keys.len());
    keys.reverse();
    // The cursor has a key and not a position, since keys may have been created since the last page.
    if let Some((created_at, id)) = after {
        keys.retain(|key| (key.created_at, &key.id) < (created_at, &id));
    }
    let has_more = keys.len() > limit;
    keys.truncate(limit);
    let next_cursor = match keys.last() {
        Some(last) if has_more => Some(paging::cursor_after(&(last.created_at, &last.id))),
        _ => None,
    };
    KeyPage {
        in_use,
        keys: keys
            .into_iter()
            .map(|key| KeyBody::of(key, grant))
            .collect(),
        total,
        next_cursor,
    }
}

/// The key with this id.
///
/// # Errors
/// 404 when there is none.
async fn find(keys: &KeyStore, id: &str) -> ApiResult<Key> {
    let wanted = id.to_owned();
    let found = with_keys(keys, move |keys| keys.get(&wanted)).await?;
    found.ok_or_else(|| unknown(id))
}

/// Works on the keys off the async threads.
async fn with_keys<T: Send + 'static>(
    keys: &KeyStore,
    work: impl FnOnce(&KeyStore) -> Result<T, KeyError> + Send + 'static,
) -> ApiResult<T> {
    let keys = keys.clone();
    Ok(blocking(move || work(&keys)).await??)
}

fn unknown(id: &str) -> ApiError {
    let message = format!("no key {id:?}; GET /v1/keys lists them");
    ApiError::not_found("unknown_key", message)
}

fn refused(error: KeyError) -> ApiError {
    match error {
        KeyError::UnknownKey { id } => unknown(&id),
        KeyError::LastOperator { id } => {
            let message = format!(
                "{id:?} is the last valid admin key for all catalogs: without it nobody can manage keys over HTTP; create \
                 another one first, or send force=true, after which only `toolscout keys create` on the server's machine helps"
            );
            ApiError::invalid(StatusCode::CONFLICT, "last_admin_key", message)
        }
        error => error.into(),
    }
}
