//! The end of a login: its tokens are taken back where the authorization server does that, and
//! deleted.

use reqwest::Url;
use rmcp::transport::AuthError;
use rmcp::transport::auth::AuthorizationMetadata;

use super::client::LoginClient;
use super::file::{Login, LoginFile};
use super::{LoginError, public, reason};
use crate::config::OAuthSettings;

/// What a logout has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedOut {
    /// There was no login.
    Never,
    /// The tokens are deleted here, and are worth nothing any more.
    Revoked,
    /// The tokens are deleted here, and may be valid until they expire, for this reason.
    Deleted {
        /// Why they were not revoked.
        reason: String,
    },
}

/// Ends the login of the server at this URL.
///
/// # Errors
/// If the file cannot be deleted.
pub async fn logout(
    url: &Url,
    settings: &OAuthSettings,
    file: &LoginFile,
) -> Result<LoggedOut, LoginError> {
    // What cannot be read can still be deleted.
    let Ok(Some(login)) = file.read() else {
        return Ok(match file.delete()? {
            true => LoggedOut::Deleted {
                reason: "its file could not be read".into(),
            },
            false => LoggedOut::Never,
        });
    };
    let revoked = revoke(url, settings, &login).await;
    file.delete()?;
    Ok(match revoked {
        Ok(()) => LoggedOut::Revoked,
        Err(error) => LoggedOut::Deleted {
            reason: reason(&error, &login.secrets()),
        },
    })
}

async fn revoke(url: &Url, settings: &OAuthSettings, login: &Login) -> Result<(), AuthError> {
    let client = LoginClient::new(url, settings)?;
    let manager = client.manager(url).await?;
    let metadata = manager.resolve_metadata().await?.metadata;
    if metadata.issuer.as_deref() != login.issuer() {
        let reason = "it names another authorization server than at the login";
        return Err(AuthError::MetadataError(reason.into()));
    }
    let Some(endpoint) = revocation_endpoint(&metadata) else {
        let reason = format!("{} revokes no tokens", public(url));
        return Err(AuthError::MetadataError(reason));
    };
    let of_login = login.client();
    let access = client.revoke(&endpoint, of_login, "access_token", login.access_token());
    let Some(token) = login.refresh_token() else {
        return access.await;
    };
    client
        .revoke(&endpoint, of_login, "refresh_token", token)
        .await?;
    // A server that hands out tokens which anybody can verify cannot take them back; without the
    // other one they expire.
    let _ = access.await;
    Ok(())
}

fn revocation_endpoint(metadata: &AuthorizationMetadata) -> Option<Url> {
    let endpoint = metadata.additional_fields.get("revocation_endpoint")?;
    endpoint.as_str()?.parse().ok()
}
