//! What the key of a request allows, for programs that show only what can be done with it.

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;

use crate::access::{Grant, ProfileGrant};
use crate::admin::keys::catalog_names;
use crate::request::extract::Json;
use toolscout_state::keys::Scope;

/// What a request with this key may do.
#[derive(Debug, Serialize, ToSchema)]
pub struct OwnKey {
    /// The public id of the key; null on a server without keys.
    id: Option<String>,
    /// What it allows, with the scopes that `admin` includes.
    scopes: Vec<Scope>,
    /// The catalogs that it is for; `["*"]` for all.
    catalogs: Vec<String>,
    /// The profiles that it is bound to; empty for a key that is bound to none.
    profiles: BTreeSet<String>,
    /// Whether it may see and manage what belongs to no catalog: keys, the audit log, figures.
    operates: bool,
}

/// Shows what the key of this request allows. Any key may ask, and without keys on the server, nobody needs one.
#[utoipa::path(
    get, path = "/v1/key", operation_id = "show_own_key", tag = "keys",
    responses((status = 200, body = OwnKey, description = "What the key allows"))
)]
pub async fn show(ProfileGrant(grant): ProfileGrant) -> Json<OwnKey> {
    Json(OwnKey::of(&grant))
}

impl OwnKey {
    fn of(grant: &Grant) -> Self {
        let mut scopes = Scope::ALL.to_vec();
        scopes.retain(|scope| grant.allows(*scope).is_ok());
        OwnKey {
            id: grant.key().map(str::to_owned),
            scopes,
            catalogs: catalog_names(grant.catalogs()),
            profiles: grant.profiles().clone(),
            operates: grant.operates().is_ok(),
        }
    }
}
