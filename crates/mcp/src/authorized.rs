//! HTTP requests to a server, with the token of its login where there is one.

mod answers;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::header::{HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, ClientNotification};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use crate::login::Tokens;
use answers::Renewals;

/// How often one request may get a new token: a second time where the first new one has expired on
/// its way.
const RENEWALS: usize = 2;
/// Most bytes of an event where the transport names no limit, which it does.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Why a request to a server failed.
pub type HttpError = StreamableHttpError<reqwest::Error>;

/// Why a server does not serve this program, which only a person can change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// It wants a login, or another one.
    Login,
    /// The login lacks these scopes, as far as the server names them.
    Scope(String),
}

/// Makes the requests to one server.
#[derive(Clone)]
pub struct AuthorizedClient {
    client: Client,
    /// `None` where the settings have the header that the token would be in.
    tokens: Option<Tokens>,
    renewals: Renewals,
}

impl AuthorizedClient {
    /// A client that sends these tokens.
    pub fn new(client: Client, tokens: Option<Tokens>) -> Self {
        AuthorizedClient {
            client,
            tokens,
            renewals: Renewals::default(),
        }
    }

    /// The client to build requests with.
    pub fn requests(&self) -> &Client {
        &self.client
    }

    /// Sends a request, which is built anew where it has to be repeated with a new token.
    ///
    /// # Errors
    /// [`HttpError`]; an answer with any other status than 401 and 403 is none.
    pub async fn send(&self, build: impl Fn() -> RequestBuilder) -> Result<Response, HttpError> {
        self.authorized(|token| {
            let request = build();
            let request = match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            };
            async { checked(request.send().await?) }
        })
        .await
    }

    /// Calls with a valid token, and again with a new one where the server refuses that.
    async fn authorized<T, F, Fut>(&self, call: F) -> Result<T, HttpError>
    where
        F: Fn(Option<String>) -> Fut,
        Fut: Future<Output = Result<T, HttpError>>,
    {
        let Some(tokens) = &self.tokens else {
            return call(None).await;
        };
        let mut token = tokens.valid(None).await?;
        for _ in 0..RENEWALS {
            let answer = call(token.clone()).await;
            let Some(challenge) = answer.as_ref().err().and_then(challenge) else {
                return answer;
            };
            // Without a login there is no token to renew.
            if let Some(refused) = token {
                token = tokens.valid(Some(&refused)).await?;
            }
            if token.is_none() {
                return Err(HttpError::AuthRequired(AuthRequiredError::new(challenge)));
            }
        }
        call(token).await
    }
}

fn is_cancellation(message: &ClientJsonRpcMessage) -> bool {
    let ClientJsonRpcMessage::Notification(notification) = message else {
        return false;
    };
    matches!(
        notification.notification,
        ClientNotification::CancelledNotification(_)
    )
}

fn checked(response: Response) -> Result<Response, HttpError> {
    let challenge = match response.headers().get(WWW_AUTHENTICATE) {
        Some(header) => header.to_str().unwrap_or_default().to_owned(),
        None => String::new(),
    };
    match response.status() {
        StatusCode::UNAUTHORIZED => {
            let required = AuthRequiredError::new(challenge);
            Err(HttpError::AuthRequired(required))
        }
        // Any other 403 is an answer: no login would change it.
        StatusCode::FORBIDDEN if challenge.contains("insufficient_scope") => {
            let scope = scope_in(&challenge);
            let lacking = InsufficientScopeError::new(challenge, scope);
            Err(HttpError::InsufficientScope(lacking))
        }
        _ => Ok(response),
    }
}

fn scope_in(challenge: &str) -> Option<String> {
    let (_, after) = challenge.split_once("scope=\"")?;
    Some(after.split('"').next()?.to_owned())
}

/// What a server said that refused a request without a valid token; `None` for other errors.
fn challenge(error: &HttpError) -> Option<String> {
    match error {
        HttpError::AuthRequired(required) => Some(required.www_authenticate_header.clone()),
        // The SDK's errors for a 401 that does not say what would be accepted.
        HttpError::Client(error) if error.status() == Some(StatusCode::UNAUTHORIZED) => {
            Some(String::new())
        }
        error if refused_status(error) == Some(401) => Some(String::new()),
        _ => None,
    }
}

/// The status with which a server refused a message, where it is between 400 and 499.
pub fn refused_status(error: &HttpError) -> Option<u16> {
    let HttpError::UnexpectedServerResponse(text) = error else {
        return None;
    };
    let status = text.strip_prefix("HTTP ")?.get(..3)?.parse().ok()?;
    (400..500).contains(&status).then_some(status)
}

/// The denial among an error and its causes.
pub fn denial(error: &(dyn std::error::Error + 'static)) -> Option<Denial> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<AuthRequiredError>() {
            return Some(Denial::Login);
        }
        if let Some(lacking) = error.downcast_ref::<InsufficientScopeError>() {
            let scope = lacking.required_scope.clone().unwrap_or_default();
            return Some(Denial::Scope(scope));
        }
        cause = error.source();
    }
    None
}

/// Whether a request was not sent, or was refused before it had an effect, for want of a token.
pub fn lacks_token(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_of_login = matches!(error.downcast_ref(), Some(HttpError::Auth(_)));
    is_of_login || denial(error).is_some()
}

impl StreamableHttpClient for AuthorizedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.post_message_with_max_sse_event_size(
            uri,
            message,
            session_id,
            auth_header,
            custom_headers,
            MAX_EVENT_BYTES,
        )
        .await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let renewals = session_id.as_ref().map(|_| &self.renewals);
        let post = |token| {
            let posting = self.client.post_message_with_max_sse_event_size(
                uri.clone(),
                message.clone(),
                session_id.clone(),
                token,
                custom_headers.clone(),
                max_sse_event_size,
            );
            let message = &message;
            async move { answers::assigned(message, renewals, posting.await) }
        };
        if !is_cancellation(&message) {
            return self.authorized(post).await;
        }
        // The SDK makes other messages wait for this one, so it waits for no token.
        match self.tokens.as_ref().map(Tokens::at_hand) {
            // A call that waits for it too was not sent.
            Some(Err(_)) => Ok(StreamableHttpPostResponse::Accepted),
            Some(Ok(token)) => post(token).await,
            None => post(None).await,
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.authorized(|token| {
            let (uri, session_id) = (uri.clone(), session_id.clone());
            self.client
                .delete_session(uri, session_id, token, custom_headers.clone())
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.get_stream_with_max_sse_event_size(
            uri,
            session_id,
            last_event_id,
            auth_header,
            custom_headers,
            MAX_EVENT_BYTES,
        )
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpError> {
        self.authorized(|token| {
            self.client.get_stream_with_max_sse_event_size(
                uri.clone(),
                session_id.clone(),
                last_event_id.clone(),
                token,
                custom_headers.clone(),
                max_sse_event_size,
            )
        })
        .await
    }
}
