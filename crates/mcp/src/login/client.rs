//! The HTTP requests of a login. Their URLs come from the documents of servers, so they reach no
//! private address that the settings do not name, and no answer is read without an end.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Request, StatusCode, Url};
use rmcp::model::ProtocolVersion;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};
use rmcp::transport::{AuthError, AuthorizationManager};

use serde_json::json;

use super::public;
use crate::config::OAuthSettings;
use toolscout_gate::tools::net::{GuardedClient, PrivateHosts, SystemLookup, body};

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The header that names a session.
const SESSION_ID: &str = "mcp-session-id";
/// Most bytes of one answer. Metadata has a few thousand.
const MAX_BYTES: usize = 1 << 20;

/// Makes the requests of a login.
#[derive(Clone)]
pub struct LoginClient {
    client: GuardedClient,
    /// Whether the server itself is reached without TLS, so that its login may be too.
    plain: bool,
}

impl LoginClient {
    /// A client for the login of the server at this URL.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(url: &Url, settings: &OAuthSettings) -> reqwest::Result<Self> {
        let mut private = settings.private_hosts.clone();
        // The server is where its settings say, and what it names may not be beside it: only a
        // server on this machine may have its login on another port of it.
        match url.host_str() {
            Some(host) if is_loopback(host) => {
                private.extend(["127.0.0.1", "localhost", "::1"].map(str::to_owned));
            }
            Some(host) => {
                let port = url.port_or_known_default().unwrap_or_default();
                private.push(format!("{host}:{port}"));
            }
            None => {}
        }
        let private = PrivateHosts(private);
        Ok(LoginClient {
            client: GuardedClient::new(private, Arc::new(SystemLookup), TIMEOUT)?,
            plain: url.scheme() == "http",
        })
    }

    /// What of the SDK speaks with the authorization server of this server.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn manager(&self, url: &Url) -> Result<AuthorizationManager, AuthError> {
        let client = Arc::new(self.clone());
        AuthorizationManager::new_with_oauth_http_client(url.clone(), client).await
    }

    /// Whether a person or this program may be sent to this URL.
    pub fn allows(&self, url: &Url) -> bool {
        url.scheme() == "https" || (self.plain && url.scheme() == "http")
    }

    /// What the server says about logins when it refuses a message without a token; `None` if it does not
    /// refuse one. Many servers answer only messages so, and some only those after the handshake.
    pub async fn challenge(&self, url: &Url) -> Option<String> {
        let info = json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") });
        let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        let hello = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": info });
        let mut session = None;
        for (method, params) in [("initialize", hello), ("tools/list", json!({}))] {
            let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
            let request = self.client.requests().post(url.clone());
            let mut request = request
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json, text/event-stream")
                .body(message.to_string());
            if let Some(session) = session.take() {
                request = request.header(SESSION_ID, session);
            }
            let answer = self.send(request.build().ok()?).await.ok()?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                let challenges = answer.headers().get_all(WWW_AUTHENTICATE);
                let mut texts = challenges.iter().filter_map(|text| text.to_str().ok());
                // Of several, the one that names its metadata is that of OAuth.
                let first = texts.next()?;
                let better = texts.find(|text| text.contains("resource_metadata"));
                return Some(better.unwrap_or(first).to_owned());
            }
            session = answer.headers().get(SESSION_ID).cloned();
        }
        None
    }

    /// Makes a token worthless, in the name of the client that it belongs to.
    ///
    /// # Errors
    /// [`AuthError`].
    pub async fn revoke(
        &self,
        endpoint: &Url,
        client: (&str, Option<&str>),
        kind: &str,
        token: &str,
    ) -> Result<(), AuthError> {
        let failed = |reason: String| AuthError::OAuthError(format!("not revoked: {reason}"));
        let (id, secret) = client;
        // A form is written as the parameters of a URL are.
        let mut form = endpoint.clone();
        form.set_query(None);
        form.query_pairs_mut()
            .append_pair("token", token)
            .append_pair("token_type_hint", kind)
            .append_pair("client_id", id);
        let request = self.client.requests().post(endpoint.clone());
        let request = match secret {
            Some(secret) => request.basic_auth(id, Some(secret)),
            None => request,
        };
        let request = request
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form.query().unwrap_or_default().to_owned())
            .build()?;
        let sent = self.send(request).await;
        let status = sent.map_err(|error| failed(error.to_string()))?.status();
        if status.is_success() {
            Ok(())
        } else {
            Err(failed(format!("it answers {status}")))
        }
    }

    async fn send(
        &self,
        request: Request,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        if !self.allows(request.url()) {
            let url = public(request.url());
            let reason = format!("{url} is not https, as the server itself is");
            return Err(io::Error::other(reason).into());
        }
        // A redirect comes back as the answer, whatever the SDK would allow: it could lead the code
        // or a token elsewhere.
        let response = self.client.send(request).await?;
        let mut answer = http::Response::builder().status(response.status());
        if let Some(headers) = answer.headers_mut() {
            *headers = response.headers().clone();
        }
        // A server may answer with its stream of messages, which does not end, where it is asked
        // for a login.
        if is_stream(response.headers()) {
            return Ok(answer.body(Vec::new())?);
        }
        Ok(answer.body(body(response, MAX_BYTES).await?)?)
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    match headers.get(CONTENT_TYPE) {
        Some(kind) => kind.as_bytes().starts_with(b"text/event-stream"),
        None => false,
    }
}

impl OAuthHttpClient for LoginClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move { self.send(Request::try_from(request.request)?).await })
    }
}

fn is_loopback(host: &str) -> bool {
    // An IPv6 address stands in brackets in a URL.
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn reached(server: &str, url: &str, private_hosts: &[&str]) -> Result<(), String> {
        let settings = OAuthSettings {
            private_hosts: private_hosts
                .iter()
                .map(|host| (*host).to_owned())
                .collect(),
            ..OAuthSettings::default()
        };
        let client = LoginClient::new(&server.parse().unwrap(), &settings).unwrap();
        let request = client.client.requests().get(url).build().unwrap();
        let sent = client.send(request).await;
        sent.map(|_| ()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_server_cannot_send_its_login_into_the_network_beside_this_machine() {
        for (server, url, expected) in [
            (
                "https://mcp.example.com/mcp",
                "https://127.0.0.1:1/",
                "not a public address",
            ),
            (
                "https://mcp.example.com/mcp",
                "https://10.0.0.1/",
                "not a public address",
            ),
            (
                "https://mcp.example.com/mcp",
                "http://mcp.example.com/",
                "is not https",
            ),
            (
                "https://10.0.0.7/mcp",
                "https://10.0.0.8/",
                "not a public address",
            ),
            (
                "https://10.0.0.7/mcp",
                "https://10.0.0.7:9/",
                "only port 443",
            ),
            (
                "http://127.0.0.1:1/mcp",
                "http://10.0.0.1/",
                "not a public address",
            ),
            (
                "http://127.0.0.1:1/mcp",
                "http://169.254.169.254/",
                "not a public address",
            ),
        ] {
            let refused = reached(server, url, &[]).await.unwrap_err();
            assert!(refused.contains(expected), "{server} {url}: {refused}");
        }
        // Allowed, and nobody listens there.
        for (server, hosts) in [
            ("http://127.0.0.1:2/mcp", &[][..]),
            ("http://localhost:2/mcp", &[]),
            ("http://mcp.example.com/mcp", &["127.0.0.1:1"]),
        ] {
            let refused = reached(server, "http://127.0.0.1:1/", hosts).await;
            let refused = refused.unwrap_err();
            assert!(refused.contains("cannot be reached"), "{server}: {refused}");
        }
    }
}
