//! The token of each request to a server, renewed before it expires and when it is refused.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::Url;
use rmcp::transport::auth::OAuthClientConfig;
use rmcp::transport::{AuthError, AuthorizationManager};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::client::LoginClient;
use super::file::{Credentials, Login, LoginFile, Logins};
use super::{LoginError, public, reason};
use crate::config::OAuthSettings;

/// A token is renewed this long before it expires, or after three quarters of its life where that
/// is shorter.
const MARGIN: Duration = Duration::from_secs(30);
/// Longest wait for a renewal, with all that it takes to find the authorization server.
const RENEWAL_LIMIT: Duration = Duration::from_secs(60);
/// After a renewal that failed, the next is begun no sooner: requests that wait for it do not each
/// try it again.
const RETRY: Duration = Duration::from_secs(2);

/// The tokens of one server. Cheap to clone.
///
/// - Guarantee: whatever number of requests need a new token, it is renewed once, also where several
///   processes share the data directory.
/// - Cost: a request that needs no new token reads no file, but looks for one where there is no login.
#[derive(Clone)]
pub struct Tokens {
    shared: Arc<Shared>,
}

struct Shared {
    url: Url,
    settings: OAuthSettings,
    /// `None` where no logins are kept.
    file: Option<LoginFile>,
    /// Held during a renewal, which the other requests wait for.
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    login: Option<Login>,
    /// The access token that could not be renewed, because the login has ended.
    ended: Option<String>,
    /// When the last renewal failed, and why.
    failed: Option<(Instant, String)>,
    /// Once it was needed.
    manager: Option<AuthorizationManager>,
}

/// The token is being renewed.
#[derive(Clone, Copy, Debug)]
pub struct Renewing;

/// Why a login has no valid token.
enum RenewalError {
    /// A person has to log in again.
    Ended(String),
    /// It may work the next time.
    Failed(AuthError),
}

impl Tokens {
    /// The tokens of the server at this URL.
    pub fn new(url: &Url, settings: &OAuthSettings, logins: &Logins) -> Self {
        let shared = Shared {
            url: url.clone(),
            settings: settings.clone(),
            file: logins.file(url),
            current: Mutex::default(),
        };
        Tokens {
            shared: Arc::new(shared),
        }
    }

    /// A token that is valid, and is not the one that the server refused; `None` where a person has
    /// to log in. Needs a Tokio runtime.
    ///
    /// # Errors
    /// A renewal that failed and may succeed later.
    pub async fn valid(&self, refused: Option<&str>) -> Result<Option<String>, AuthError> {
        if self.shared.file.is_none() {
            return Ok(None);
        }
        // Most requests have a token at hand, and need no task.
        let usable = self.shared.current.lock().await.usable(refused);
        if usable.is_some() {
            return Ok(usable);
        }
        // A task of its own, which a caller that gives up does not end: of a new refresh token that
        // was sent but not stored, the login would die.
        let (tokens, refused) = (self.clone(), refused.map(str::to_owned));
        let finding = tokio::spawn(async move { tokens.find(refused.as_deref()).await });
        let found = finding.await;
        found.map_err(|error| AuthError::InternalError(error.to_string()))?
    }

    /// The token that requests get, if there is one; an error while it is being renewed.
    ///
    /// # Errors
    /// `Renewing`.
    pub fn at_hand(&self) -> Result<Option<String>, Renewing> {
        match self.shared.current.try_lock() {
            Ok(current) => Ok(current.usable(None)),
            Err(_) => Err(Renewing),
        }
    }

    /// Finds a valid token in the file, or renews it.
    async fn find(&self, refused: Option<&str>) -> Result<Option<String>, AuthError> {
        let Some(file) = &self.shared.file else {
            return Ok(None);
        };
        let mut current = self.shared.current.lock().await;
        if let Some(token) = current.usable(refused) {
            return Ok(Some(token));
        }
        // Somebody may have logged in or out, or another process renewed the token.
        current.login = read(file)?;
        if let Some(token) = current.usable(refused) {
            return Ok(Some(token));
        }
        let Some(login) = current.login.clone() else {
            return Ok(None);
        };
        let token = login.access_token().to_owned();
        if current.ended.as_ref() == Some(&token) {
            return Ok(None);
        }
        let has_expired = match login.expires_at() {
            Some(at) => at <= SystemTime::now(),
            None => false,
        };
        // It is due before it expires, so it may be used if it cannot be renewed now.
        let is_valid = !has_expired && refused != Some(&token);
        let after_failure = |why: String| match is_valid {
            true => Ok(Some(token.clone())),
            false => Err(AuthError::TokenRefreshFailed(why)),
        };
        if let Some((at, why)) = &current.failed
            && at.elapsed() < RETRY
        {
            return after_failure(why.clone());
        }
        let renewing = timeout(RENEWAL_LIMIT, self.renewed(file, &mut current, refused));
        let renewed = match renewing.await {
            Ok(renewed) => renewed,
            Err(_) => {
                let reason = format!("no end within {} s", RENEWAL_LIMIT.as_secs());
                Err(failed(AuthError::TokenRefreshFailed(reason)))
            }
        };
        match renewed {
            Ok(token) => {
                (current.failed, current.ended) = (None, None);
                Ok(Some(token))
            }
            Err(RenewalError::Ended(why)) => {
                let url = public(&self.shared.url);
                tracing::warn!(server = url, why, "the login at an MCP server has ended");
                current.ended = Some(token);
                Ok(None)
            }
            Err(RenewalError::Failed(error)) => {
                // What the next attempt needs is found anew.
                current.manager = None;
                let why = reason(&error, &login.secrets());
                tracing::warn!(
                    server = public(&self.shared.url),
                    why,
                    "a token was not renewed"
                );
                current.failed = Some((Instant::now(), why.clone()));
                after_failure(why)
            }
        }
    }

    async fn renewed(
        &self,
        file: &LoginFile,
        current: &mut Current,
        refused: Option<&str>,
    ) -> Result<String, RenewalError> {
        let _lock = file.lock().await.map_err(of_file)?;
        // While this one waited for the lock, another process may have renewed it.
        current.login = read(file).map_err(RenewalError::Failed)?;
        if let Some(token) = current.usable(refused) {
            return Ok(token);
        }
        let ended = |why: &str| RenewalError::Ended(why.to_owned());
        let login = current.login.clone().ok_or_else(|| ended("logged out"))?;
        if login.refresh_token().is_none() {
            return match login.expires_at() {
                // It cannot be renewed, so it is used to its end.
                Some(at) if refused.is_none() && SystemTime::now() < at => {
                    Ok(login.access_token().to_owned())
                }
                _ => Err(ended(
                    "the token has expired, and there is none to renew it",
                )),
            };
        }
        let manager = match current.manager.take() {
            Some(manager) => manager,
            None => self.manager(file, &login).await?,
        };
        let answer = manager.refresh_token().await;
        current.manager = Some(manager);
        match answer {
            Ok(_) => {}
            Err(
                error @ (AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired),
            ) => {
                return Err(RenewalError::Ended(reason(&error, &login.secrets())));
            }
            Err(error) => return Err(RenewalError::Failed(error)),
        }
        current.login = read(file).map_err(RenewalError::Failed)?;
        let login = current.login.as_ref().ok_or_else(|| ended("logged out"))?;
        Ok(login.access_token().to_owned())
    }

    /// What renews the tokens, once it has found the authorization server.
    async fn manager(
        &self,
        file: &LoginFile,
        login: &Login,
    ) -> Result<AuthorizationManager, RenewalError> {
        let Shared { url, settings, .. } = &*self.shared;
        let client = LoginClient::new(url, settings).map_err(|error| failed(error.into()))?;
        let mut manager = client.manager(url).await.map_err(failed)?;
        let (client_id, client_secret) = login.client();
        manager.set_credential_store(Credentials {
            file: file.clone(),
            client_secret: client_secret.map(str::to_owned),
        });
        let is_same_server = match manager.initialize_from_store().await {
            Ok(is_same_server) => is_same_server,
            // Not of the moment: a document that says who the server is says another.
            Err(error @ AuthError::AuthorizationServerMismatch { .. }) => {
                return Err(RenewalError::Ended(reason(&error, &login.secrets())));
            }
            Err(error) => return Err(failed(error)),
        };
        if !is_same_server {
            let issuer = login.issuer().unwrap_or_default();
            let why = format!("it names another authorization server than {issuer}");
            return Err(RenewalError::Ended(why));
        }
        let mut config = OAuthClientConfig::new(client_id, url.as_str());
        if let Some(secret) = client_secret {
            config = config.with_client_secret(secret);
        }
        manager.configure_client(config).map_err(failed)?;
        Ok(manager)
    }
}

impl Current {
    /// The token, if it is none that the server refused and need not be renewed yet.
    fn usable(&self, refused: Option<&str>) -> Option<String> {
        let login = self.login.as_ref()?;
        let token = login.access_token();
        let usable = !token.is_empty()
            && refused != Some(token)
            && self.ended.as_deref() != Some(token)
            && !is_due(login, SystemTime::now());
        usable.then(|| token.to_owned())
    }
}

fn is_due(login: &Login, now: SystemTime) -> bool {
    let (Some(lifetime), Some(expires_at)) = (login.lifetime(), login.expires_at()) else {
        return false;
    };
    now + MARGIN.min(lifetime / 4) >= expires_at
}

fn read(file: &LoginFile) -> Result<Option<Login>, AuthError> {
    file.read()
        .map_err(|error| AuthError::CredentialStoreError(error.to_string()))
}

fn of_file(error: LoginError) -> RenewalError {
    failed(AuthError::CredentialStoreError(error.to_string()))
}

fn failed(error: AuthError) -> RenewalError {
    RenewalError::Failed(error)
}
