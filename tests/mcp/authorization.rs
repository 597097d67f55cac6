//! An authorization server and an MCP server that wants its tokens, both in this process, which
//! misbehave as they are told; and a person with a browser.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use toolscout::mcp::ServerConfig;
use toolscout::mcp::config::{HttpProtocol, OAuthSettings, Transport};

/// Where clients look for the protected resource's metadata.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource/mcp";
/// Where only a challenge leads.
const ELSEWHERE: &str = "/elsewhere/metadata";

/// How the two servers behave.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// How long an access token is valid.
    pub lifetime: Duration,
    /// What the token endpoint answers in place of tokens.
    pub tokens: Answer,
    /// Fields of the authorization server's metadata that are replaced.
    pub metadata: Value,
    /// Fields of the protected resource's metadata that are replaced.
    pub resource: Value,
    /// Whether the browser comes back with another state first.
    pub wrong_state: bool,
    /// Whether the person says no.
    pub denies: bool,
    /// Whether a 401 says nothing of how to log in.
    pub silent: bool,
    /// Whether clients are registered.
    pub registers: bool,
    /// Whether the MCP server speaks the old transport.
    pub old: bool,
    /// Whether only messages are answered with what a login needs, which lies at no usual place.
    pub messages_only: bool,
}

/// What a token endpoint answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Tokens,
    Huge,
    Garbage,
    Redirect(String),
    Never,
    /// The status and the body.
    Error(u16, Value),
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            lifetime: Duration::from_secs(3600),
            tokens: Answer::Tokens,
            metadata: json!({}),
            resource: json!({}),
            wrong_state: false,
            denies: false,
            silent: false,
            registers: true,
            old: false,
            messages_only: false,
        }
    }
}

/// Both servers, at one address.
#[derive(Clone)]
pub struct Authorization {
    pub base: String,
    shared: Arc<Shared>,
}

struct Shared {
    behaviour: Mutex<Behaviour>,
    state: Mutex<Tokens>,
    renewals: AtomicUsize,
    renewing: AtomicUsize,
    most_renewing: AtomicUsize,
    /// Notified when a renewal begins.
    renews: Notify,
    registrations: AtomicUsize,
    /// The open stream of the old transport.
    stream: Mutex<Option<mpsc::UnboundedSender<Bytes>>>,
}

#[derive(Default)]
struct Tokens {
    issued: usize,
    access: HashMap<String, Instant>,
    refresh: Vec<String>,
    /// Every secret that was ever issued.
    secrets: Vec<String>,
    /// The headers of requests to the token endpoint, and their parameters.
    asked: Vec<(HeaderMap, BTreeMap<String, String>)>,
    revoked: Vec<String>,
}

impl Authorization {
    pub async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new(Shared {
            behaviour: Mutex::new(behaviour),
            state: Mutex::default(),
            renewals: AtomicUsize::new(0),
            renewing: AtomicUsize::new(0),
            most_renewing: AtomicUsize::new(0),
            renews: Notify::new(),
            registrations: AtomicUsize::new(0),
            stream: Mutex::default(),
        });
        let server = Authorization { base, shared };
        let router = Router::new()
            .route("/mcp", post(mcp).get(stream))
            .route(WELL_KNOWN, get(well_known))
            .route(ELSEWHERE, get(resource))
            .route("/.well-known/oauth-authorization-server/as", get(metadata))
            .route("/as/register", post(register))
            .route("/as/authorize", get(authorize))
            .route("/as/token", post(token))
            .route("/as/revoke", post(revoke))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    /// The MCP server, as settings name it.
    pub fn config(&self, name: &str) -> ServerConfig {
        self.config_with(name, OAuthSettings::default())
    }

    pub fn config_with(&self, name: &str, oauth: OAuthSettings) -> ServerConfig {
        ServerConfig::new(
            name,
            Transport::Http {
                url: format!("{}/mcp", self.base).parse().expect("a URL"),
                protocol: HttpProtocol::Streamable,
                headers: Vec::new(),
                oauth,
            },
        )
    }

    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.shared.behaviour.lock().unwrap());
    }

    fn behaviour(&self) -> Behaviour {
        self.shared.behaviour.lock().unwrap().clone()
    }

    fn state(&self) -> MutexGuard<'_, Tokens> {
        self.shared.state.lock().unwrap()
    }

    /// Forgets the access tokens, as a server does that was started anew.
    pub fn forget_access(&self) {
        self.state().access.clear();
    }

    /// Ends every login.
    pub fn forget_everything(&self) {
        let mut state = self.state();
        state.access.clear();
        state.refresh.clear();
    }

    pub fn renewals(&self) -> usize {
        self.shared.renewals.load(Ordering::SeqCst)
    }

    pub fn most_renewing(&self) -> usize {
        self.shared.most_renewing.load(Ordering::SeqCst)
    }

    /// Returns once a renewal has begun since this was last asked.
    pub async fn renews(&self) {
        self.shared.renews.notified().await;
    }

    pub fn registrations(&self) -> usize {
        self.shared.registrations.load(Ordering::SeqCst)
    }

    pub fn secrets(&self) -> Vec<String> {
        self.state().secrets.clone()
    }

    pub fn revoked(&self) -> Vec<String> {
        self.state().revoked.clone()
    }

    /// The header that the last request for tokens had, and its parameters.
    pub fn last_asked(&self) -> (Option<String>, BTreeMap<String, String>) {
        let state = self.state();
        let (headers, form) = state.asked.last().expect("a request");
        let header = headers.get(AUTHORIZATION);
        (
            header.map(|header| header.to_str().unwrap().to_owned()),
            form.clone(),
        )
    }

    fn is_valid(&self, headers: &HeaderMap) -> bool {
        let token = headers
            .get(AUTHORIZATION)
            .and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
        let state = self.state();
        token
            .and_then(|token| state.access.get(token))
            .is_some_and(|end| Instant::now() < *end)
    }

    fn refusal(&self) -> Response {
        if self.behaviour().silent {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let (place, scope) = match self.behaviour().messages_only {
            true => (ELSEWHERE, "tools.read"),
            false => (WELL_KNOWN, "tools"),
        };
        let challenge = format!(
            "Bearer error=\"invalid_token\", scope=\"{scope}\", resource_metadata=\"{}{place}\"",
            self.base
        );
        (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)]).into_response()
    }

    fn issue(&self) -> Value {
        let lifetime = self.behaviour().lifetime;
        let mut state = self.state();
        state.issued += 1;
        let (access, refresh) = (
            format!("access-{}-{}", state.issued, uuid::Uuid::new_v4()),
            format!("refresh-{}-{}", state.issued, uuid::Uuid::new_v4()),
        );
        state
            .access
            .insert(access.clone(), Instant::now() + lifetime);
        state.refresh.push(refresh.clone());
        state.secrets.extend([access.clone(), refresh.clone()]);
        json!({
            "access_token": access, "token_type": "Bearer", "expires_in": lifetime.as_secs(),
            "refresh_token": refresh, "scope": "tools",
        })
    }
}

fn merged(mut document: Value, replaced: &Value) -> Json<Value> {
    for (name, value) in replaced.as_object().expect("an object") {
        document[name] = value.clone();
    }
    Json(document)
}

async fn well_known(server: State<Authorization>) -> Response {
    match server.behaviour().messages_only {
        true => StatusCode::NOT_FOUND.into_response(),
        false => resource(server).await.into_response(),
    }
}

async fn resource(State(server): State<Authorization>) -> Json<Value> {
    let document = json!({
        "resource": format!("{}/mcp", server.base), "scopes_supported": ["tools"],
        "authorization_servers": [format!("{}/as", server.base)],
    });
    merged(document, &server.behaviour().resource)
}

async fn metadata(State(server): State<Authorization>) -> Json<Value> {
    let at = |path: &str| format!("{}/as{path}", server.base);
    let document = json!({
        "issuer": at(""), "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
        "registration_endpoint": at("/register"), "revocation_endpoint": at("/revoke"),
        "scopes_supported": ["tools", "offline_access"], "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"], "authorization_response_iss_parameter_supported": true,
    });
    merged(document, &server.behaviour().metadata)
}

async fn register(State(server): State<Authorization>, Json(asked): Json<Value>) -> Response {
    if !server.behaviour().registers {
        return (StatusCode::FORBIDDEN, "not for you").into_response();
    }
    server.shared.registrations.fetch_add(1, Ordering::SeqCst);
    let answer = json!({ "client_id": "registered", "redirect_uris": asked["redirect_uris"] });
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn authorize(
    State(server): State<Authorization>,
    Query(asked): Query<BTreeMap<String, String>>,
) -> Response {
    assert_eq!(asked["code_challenge_method"], "S256");
    assert_eq!(asked["resource"], format!("{}/mcp", server.base));
    let code = format!("code-{}", uuid::Uuid::new_v4());
    server.state().secrets.push(code.clone());
    let (back, state) = (&asked["redirect_uri"], &asked["state"]);
    let to = if server.behaviour().denies {
        format!("{back}?error=access_denied&state={state}")
    } else {
        format!("{back}?code={code}&state={state}&iss={}/as", server.base)
    };
    (StatusCode::FOUND, [(LOCATION, to)]).into_response()
}

async fn token(
    State(server): State<Authorization>,
    headers: HeaderMap,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    let renews = form["grant_type"] == "refresh_token";
    let issues = server.behaviour().tokens == Answer::Tokens;
    // One that fails for a moment takes no token.
    let known = !renews || !issues || {
        let mut state = server.state();
        let place = state
            .refresh
            .iter()
            .position(|token| *token == form["refresh_token"]);
        // Each is for one use.
        place.map(|place| state.refresh.remove(place)).is_some()
    };
    assert_eq!(form["resource"], format!("{}/mcp", server.base));
    server.state().asked.push((headers, form));
    if renews {
        let shared = &server.shared;
        shared.renewals.fetch_add(1, Ordering::SeqCst);
        let now = shared.renewing.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_renewing.fetch_max(now, Ordering::SeqCst);
        shared.renews.notify_one();
        // Two renewals at a time meet here. How long it takes decides no test.
        tokio::time::sleep(Duration::from_millis(30)).await;
        shared.renewing.fetch_sub(1, Ordering::SeqCst);
    }
    match server.behaviour().tokens {
        Answer::Tokens if known => Json(server.issue()).into_response(),
        Answer::Tokens => {
            let answer = json!({ "error": "invalid_grant" });
            (StatusCode::BAD_REQUEST, Json(answer)).into_response()
        }
        Answer::Huge => endless(b' ').into_response(),
        Answer::Garbage => "\u{0}\u{1b}[2J<html>".into_response(),
        Answer::Redirect(to) => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, to)]).into_response(),
        Answer::Never => std::future::pending().await,
        Answer::Error(status, body) => {
            let status = StatusCode::from_u16(status).expect("a status");
            (status, Json(body)).into_response()
        }
    }
}

async fn revoke(
    State(server): State<Authorization>,
    Form(form): Form<BTreeMap<String, String>>,
) -> StatusCode {
    server.state().revoked.push(form["token"].clone());
    StatusCode::OK
}

async fn stream(State(server): State<Authorization>, request: Request) -> Response {
    if server.behaviour().messages_only {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    if !server.is_valid(request.headers()) {
        return server.refusal();
    }
    if !server.behaviour().old {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    #[expect(clippy::disallowed_methods, reason = "the test reads all of it")]
    let (sender, receiver) = mpsc::unbounded_channel();
    let _ = sender.send(Bytes::from("event: endpoint\ndata: /mcp?session=1\n\n"));
    *server.shared.stream.lock().unwrap() = Some(sender);
    let events = futures_util::stream::unfold(receiver, |mut receiver| async {
        let bytes = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(bytes), receiver))
    });
    let kind = [(CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(events)).into_response()
}

async fn mcp(
    State(server): State<Authorization>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Response {
    if !server.is_valid(&headers) {
        return server.refusal();
    }
    if message["params"]["arguments"]["text"] == "huge" {
        return ([(CONTENT_TYPE, "application/json")], endless(b'[')).into_response();
    }
    if !server.behaviour().old {
        return answer(&message);
    }
    if let Some(result) = result(&message) {
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        let stream = server.shared.stream.lock().unwrap();
        let stream = stream.as_ref().expect("a stream");
        let _ = stream.send(Bytes::from(format!("event: message\ndata: {answer}\n\n")));
    }
    StatusCode::ACCEPTED.into_response()
}

/// 200 MB.
fn endless(byte: u8) -> Body {
    let chunk = Bytes::from(vec![byte; 1 << 20]);
    let chunks = (0..200).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
    Body::from_stream(futures_util::stream::iter(chunks))
}

/// What an MCP server with one tool answers.
pub fn answer(message: &Value) -> Response {
    let Some(result) = result(message) else {
        return StatusCode::ACCEPTED.into_response();
    };
    Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result })).into_response()
}

pub fn result(message: &Value) -> Option<Value> {
    Some(match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": "2024-11-05", "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "double", "version": "1" },
        }),
        "tools/list" => json!({ "tools": [super::world::tool("echo", "Says it again.")] }),
        "tools/call" => {
            let said = &message["params"]["arguments"]["text"];
            json!({ "content": [{ "type": "text", "text": said }] })
        }
        _ => return None,
    })
}

/// A browser that follows a page to where it leads, with what the person answers.
pub async fn visit(page: &str, behaviour: &Behaviour) -> StatusCode {
    let browser = toolscout::tls::client()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let asked = browser.get(page).send().await.expect("the page");
    let back = asked.headers()[LOCATION].to_str().unwrap().to_owned();
    if behaviour.wrong_state {
        let wrong = back.replace("state=", "state=other");
        let refused = browser.get(wrong).send().await.expect("an answer");
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    }
    let came = browser.get(back).send().await.expect("the way back");
    came.status()
}
