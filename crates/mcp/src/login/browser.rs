//! A login in a person's browser: the page to visit, and the way back from it to this program.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use reqwest::Url;
use rmcp::transport::auth::{
    AuthorizationCallback, AuthorizationMetadata, AuthorizationMetadataSource, OAuthClientConfig,
};
use rmcp::transport::{AuthError, AuthorizationManager};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client::LoginClient;
use super::file::{Credentials, Login, LoginFile};
use super::{LoginError, public};
use crate::config::OAuthSettings;

/// Where the browser is sent back to.
const CALLBACK_PATH: &str = "/callback";
/// Without this scope many servers give no token that renews the other.
const OFFLINE_ACCESS: &str = "offline_access";
/// How long the browser's last request may take to be answered.
const FAREWELL: Duration = Duration::from_secs(2);

/// A login that waits for a person to visit a page.
pub struct LoginPage {
    url: Url,
    page: Url,
    state: String,
    manager: AuthorizationManager,
    listener: TcpListener,
    file: LoginFile,
}

/// Finds the authorization server of the server at this URL, and registers this program there
/// unless the settings name a client. Without scopes those of the settings are asked for, or else
/// those that the server names.
///
/// # Errors
/// [`LoginError`].
pub async fn begin(
    url: &Url,
    settings: &OAuthSettings,
    scopes: &[String],
    file: LoginFile,
) -> Result<LoginPage, LoginError> {
    let (listener, redirect_uri) = listen(settings.callback_port.unwrap_or_default()).await?;
    let secret = settings.client_secret.as_deref().unwrap_or_default();
    let refused = |error: AuthError| LoginError::refused(url, &error, &[secret]);
    let client = LoginClient::new(url, settings).map_err(|error| refused(error.into()))?;
    let mut manager = client.manager(url).await.map_err(refused)?;
    let challenge = client.challenge(url).await;
    let found = manager.resolve_metadata_from_challenge(challenge.as_deref());
    let found = found.await.map_err(refused)?;
    // The paths that servers of the first version had are tried too, and are no such paths where
    // registering at them fails.
    let is_guessed = found.source == AuthorizationMetadataSource::LegacyEndpointFallback;
    let offers_offline_access = offers_offline_access(&found.metadata);
    manager.set_metadata(found.metadata);
    let asked: &[String] = if scopes.is_empty() {
        &settings.scopes
    } else {
        scopes
    };
    let scopes = match asked {
        [] => manager.select_initial_scopes(&[]).await,
        asked => with_kept_scopes(asked, &file, offers_offline_access),
    };
    let names: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let config = match &settings.client_id {
        Some(id) => configured(id, settings, &redirect_uri),
        None => manager
            .register_client("toolscout", &redirect_uri, &names)
            .await
            .map_err(|error| match is_guessed {
                true => LoginError::NoAuthorizationServer { url: public(url) },
                false => refused(error),
            })?,
    };
    let client_secret = config.client_secret.clone();
    manager.configure_client(config).map_err(refused)?;
    manager.set_credential_store(Credentials {
        file: file.clone(),
        client_secret,
    });
    let page = manager
        .get_authorization_url(&names)
        .await
        .map_err(refused)?;
    let mut page = Url::parse(&page).map_err(|error| refused(error.into()))?;
    if !client.allows(&page) {
        return Err(LoginError::Page { url: public(&page) });
    }
    if names.contains(&OFFLINE_ACCESS) {
        // OpenID Connect: without it the scope is ignored.
        page.query_pairs_mut().append_pair("prompt", "consent");
    }
    let state = parameter(&page, "state").unwrap_or_default();
    Ok(LoginPage {
        url: url.clone(),
        page,
        state,
        manager,
        listener,
        file,
    })
}

/// The scopes that are asked for, and those of the login before.
fn with_kept_scopes(
    asked: &[String],
    file: &LoginFile,
    offers_offline_access: bool,
) -> Vec<String> {
    let mut scopes = asked.to_vec();
    // A server that lacks a scope names that one alone. Without those of the login before, the next request would
    // lack another one.
    let before = file.read().ok().flatten();
    for scope in before.iter().flat_map(Login::scopes) {
        if !asked.contains(scope) {
            scopes.push(scope.clone());
        }
    }
    if offers_offline_access && !scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
        scopes.push(OFFLINE_ACCESS.to_owned());
    }
    scopes
}

fn configured(id: &str, settings: &OAuthSettings, redirect_uri: &str) -> OAuthClientConfig {
    let config = OAuthClientConfig::new(id, redirect_uri);
    match &settings.client_secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}

fn offers_offline_access(metadata: &AuthorizationMetadata) -> bool {
    let scopes = metadata.scopes_supported.iter().flatten();
    scopes.into_iter().any(|scope| scope == OFFLINE_ACCESS)
}

/// Listens on this machine alone, and says what the browser is sent back to.
async fn listen(port: u16) -> Result<(TcpListener, String), LoginError> {
    let listening = async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok((listener, format!("http://{address}{CALLBACK_PATH}")))
    };
    listening
        .await
        .map_err(|source: io::Error| LoginError::Port { port, source })
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    let mut pairs = url.query_pairs();
    let (_, value) = pairs.find(|(key, _)| key == name)?;
    Some(value.into_owned())
}

impl LoginPage {
    /// The page that a person has to visit.
    pub fn page(&self) -> &Url {
        &self.page
    }

    /// Waits for the person, and writes the tokens to the file.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn finish(self, patience: Duration) -> Result<Login, LoginError> {
        let LoginPage {
            url,
            state,
            manager,
            listener,
            file,
            ..
        } = self;
        let Ok(back) = timeout(patience, way_back(listener, state)).await else {
            let seconds = patience.as_secs();
            return Err(LoginError::NobodyCame { seconds });
        };
        let refused = |reason: &str| {
            let error = AuthError::AuthorizationFailed(reason.to_owned());
            LoginError::refused(&url, &error, &[])
        };
        let Some(back) = back else {
            return Err(refused("the way back from the browser was closed"));
        };
        if let Some(error) = parameter(&back, "error") {
            let description = parameter(&back, "error_description").unwrap_or_default();
            return Err(refused(format!("{error} {description}").trim_end()));
        }
        let AuthorizationCallback {
            code,
            csrf_token,
            issuer,
            ..
        } = AuthorizationCallback::from_redirect_url(back.as_str())
            .map_err(|error| LoginError::refused(&url, &error, &[]))?;
        // An answer may quote the code, which is as good as a token.
        manager
            .exchange_code_for_token_with_issuer(&code, &csrf_token, issuer.as_deref())
            .await
            .map_err(|error| LoginError::refused(&url, &error, &[&code]))?;
        // The exchange has stored the tokens in it.
        match file.read()? {
            Some(login) => Ok(login),
            None => Err(refused("the tokens were not stored")),
        }
    }
}

/// What waits for the browser.
#[derive(Clone)]
struct Waiting {
    state: String,
    back: mpsc::Sender<Url>,
}

/// The URL that the browser comes back with. A request without the state of this login is of
/// somebody else, and changes nothing.
async fn way_back(listener: TcpListener, state: String) -> Option<Url> {
    let (back, mut came) = mpsc::channel(1);
    let router = Router::new()
        .route(CALLBACK_PATH, get(came_back))
        .with_state(Waiting { state, back });
    let stop = CancellationToken::new();
    let stopped = stop.clone().cancelled_owned();
    let serving = axum::serve(listener, router).with_graceful_shutdown(stopped);
    let serving = tokio::spawn(async move { serving.await });
    // Also when this future is dropped, at the end of its time.
    let stops = stop.drop_guard();
    let url = came.recv().await;
    drop(stops);
    // So that the browser gets its answer before the program may end.
    let _ = timeout(FAREWELL, serving).await;
    url
}

async fn came_back(State(waiting): State<Waiting>, uri: Uri) -> (StatusCode, &'static str) {
    let Ok(url) = Url::parse(&format!("http://localhost{uri}")) else {
        return (StatusCode::BAD_REQUEST, "This address cannot be read.");
    };
    if parameter(&url, "state").as_deref() != Some(&waiting.state) {
        let text = "This is not the login that toolscout waits for. Begin it again.";
        return (StatusCode::BAD_REQUEST, text);
    }
    let text = match parameter(&url, "error") {
        Some(_) => "You are not logged in: the terminal says why. You can close this page.",
        None => "toolscout goes on in the terminal. You can close this page.",
    };
    // Full where the browser came a second time.
    let _ = waiting.back.try_send(url);
    (StatusCode::OK, text)
}
