//! The profiles of a server: which of them a request uses, and their catalogs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use tokio::sync::OnceCell;

use super::Grant;
use crate::request::error::{ApiError, ApiResult};
use crate::request::threads::blocking;
use crate::served::{ServedCatalogs, ServedSnapshots};
use toolscout_base::cpu_pool::CpuPool;
use toolscout_finder::finder::ToolSearch;
use toolscout_finder::profiles::{ProfiledSearch, ToolProfile};
use toolscout_gate::gate::Gate;

/// Names the profile of a request.
pub const PROFILE: HeaderName = HeaderName::from_static("x-toolscout-profile");

/// The profiles of the settings, by name. Cheap to clone.
#[derive(Clone, Default)]
pub struct Profiles(Arc<BTreeMap<String, Arc<ServedProfile>>>);

/// A profile, and its catalog since the first request that used it.
pub struct ServedProfile {
    profile: Arc<ToolProfile>,
    catalog_name: String,
    catalogs: Arc<ServedCatalogs>,
    gate: Arc<Gate>,
    cpu_pool: CpuPool,
    opened: OnceCell<OpenProfile>,
}

/// A profile whose catalog is open. The catalog stays open, as the default one does.
#[derive(Clone)]
pub struct OpenProfile {
    /// The profile.
    pub profile: Arc<ToolProfile>,
    /// The whole catalog.
    pub snapshots: ServedSnapshots,
    /// The tools of the profile.
    pub search: Arc<dyn ToolSearch>,
}

impl Profiles {
    /// These profiles, none of them used yet. Those that name no catalog are of the default one.
    pub fn new(
        profiles: Vec<ToolProfile>,
        default_catalog: &str,
        catalogs: &Arc<ServedCatalogs>,
        gate: &Arc<Gate>,
        cpu_pool: &CpuPool,
    ) -> Self {
        let mut by_name = BTreeMap::new();
        for profile in profiles {
            let name = profile.name().to_owned();
            let catalog_name = profile.catalog();
            let catalog_name = catalog_name.unwrap_or_else(|| default_catalog.to_owned());
            let served = ServedProfile {
                profile: Arc::new(profile),
                catalog_name,
                catalogs: Arc::clone(catalogs),
                gate: Arc::clone(gate),
                cpu_pool: cpu_pool.clone(),
                opened: OnceCell::new(),
            };
            by_name.insert(name, Arc::new(served));
        }
        Profiles(Arc::new(by_name))
    }

    /// The names of all profiles.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The profile that a request names, else the only one of its key. `None` for a request that names
    /// none with a key that is bound to none.
    ///
    /// # Errors
    /// 404 for a profile that there is not, or that the key is not for; 403 where the key has several.
    pub fn chosen(
        &self,
        grant: &Grant,
        named: Option<&str>,
    ) -> ApiResult<Option<Arc<ServedProfile>>> {
        // Two are enough to know whether the key leaves a choice.
        let mut bound = grant.profiles().iter();
        let name = match (named, bound.next(), bound.next()) {
            (Some(named), ..) if !grant.may_use_profile(named) => {
                return Err(not_of_key(named, grant));
            }
            (Some(named), ..) => named,
            (None, None, _) => return Ok(None),
            (None, Some(only), None) => only,
            (None, Some(_), Some(_)) => return Err(profile_needed(grant)),
        };
        match self.0.get(name) {
            Some(served) => Ok(Some(Arc::clone(served))),
            None => Err(unknown_profile(name)),
        }
    }

    /// The profile that the header of a request names, else as [`Profiles::chosen`].
    ///
    /// # Errors
    /// As [`Profiles::chosen`].
    pub fn chosen_by_header(
        &self,
        grant: &Grant,
        headers: &HeaderMap,
    ) -> ApiResult<Option<Arc<ServedProfile>>> {
        // An unreadable header becomes an empty name, which no profile has. It must not count as no
        // header.
        let named = headers.get(PROFILE);
        self.chosen(grant, named.map(|name| name.to_str().unwrap_or_default()))
    }

    /// Warns about what profiles name and their catalogs do not have.
    pub async fn warn_of_mistakes(&self) {
        for served in self.0.values() {
            served.warn_of_mistakes().await;
        }
    }
}

impl ServedProfile {
    /// Its name.
    pub fn name(&self) -> &str {
        self.profile.name()
    }

    /// The profile with its catalog, for a request with this key.
    ///
    /// # Errors
    /// 403 for a catalog that the key is not for, and those of opening a catalog.
    pub async fn open(&self, grant: &Grant) -> ApiResult<OpenProfile> {
        grant.reads(&self.catalog_name)?;
        let catalog = self.catalogs.get(&self.catalog_name).await?;
        let opened = self
            .opened
            .get_or_init(async || {
                let snapshots = ServedSnapshots::of(Arc::clone(&catalog), self.cpu_pool.clone());
                let whole = Arc::new(snapshots.clone());
                let profile = Arc::clone(&self.profile);
                OpenProfile {
                    search: Arc::new(ProfiledSearch::new(whole, profile, Arc::clone(&self.gate))),
                    profile: Arc::clone(&self.profile),
                    snapshots,
                }
            })
            .await;
        // The catalog may have been deleted and created again since the profile was first used.
        opened.snapshots.renew(catalog);
        Ok(opened.clone())
    }

    async fn warn_of_mistakes(&self) {
        let (name, catalog) = (self.name(), &self.catalog_name);
        let Ok(open) = self.catalogs.get(catalog).await else {
            tracing::warn!(
                "profiles.{name} names the catalog {catalog:?}, which cannot be opened; create it, or correct \
                 profiles.{name}.catalog in the settings"
            );
            return;
        };
        let (profile, gate) = (Arc::clone(&self.profile), Arc::clone(&self.gate));
        let looking = blocking(move || {
            // Reading all tools takes a while in a large catalog.
            let tools: Vec<_> = open.searcher().tools().collect();
            profile.mistakes(&tools, gate.policies())
        });
        for problem in looking.await.unwrap_or_default() {
            tracing::warn!("{problem}");
        }
    }
}

fn unknown_profile(name: &str) -> ApiError {
    let message =
        format!("no profile {name:?}; the table [profiles] of the server's settings has them");
    ApiError::not_found("unknown_profile", message)
}

/// As for a profile that does not exist, so that names cannot be found out.
fn not_of_key(name: &str, grant: &Grant) -> ApiError {
    let message = format!(
        "no profile {name:?} for this key; it is for {}",
        grant.profile_names()
    );
    ApiError::not_found("unknown_profile", message)
}

fn profile_needed(grant: &Grant) -> ApiError {
    let message = format!(
        "this key is for the profiles {}; name one, in the path /mcp/p/NAME or in the header X-Toolscout-Profile",
        grant.profile_names()
    );
    ApiError::auth(StatusCode::FORBIDDEN, "profile_needed", message)
}
