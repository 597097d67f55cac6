//! Profiles: two clients, each with what is theirs, and keys that are bound to profiles.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability,
};
use rmcp::service::{RequestContext, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ErrorData, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;
use toolscout::agent::Agent;
use toolscout::assembly::AgentPlan;
use toolscout::keys::{Catalogs, NewKey, Scope};
use toolscout::llm::ScriptedModel;
use toolscout::llm::script::Reply;
use toolscout::mcp::{Pool, PoolConfig, ServerConfig};
use toolscout::profiles::ToolProfile;

use super::server::{PATIENCE, Server, read};
use super::upstream::double;

const PROFILES: &str = "
[office]
servers = ['mail']
exclude = ['*WIPE*']
pins = ['mail/read', 'shop/list']

[trade]
tools = ['shop/*']
classes = ['read_only']
detail = 'schema'
limit = 1

[team]
catalog = 'team'
servers = ['*']
";

fn profiles() -> Vec<ToolProfile> {
    let settings: BTreeMap<String, _> = toml::from_str(PROFILES).unwrap();
    settings
        .iter()
        .map(|(name, settings)| ToolProfile::new(name, settings))
        .collect()
}

/// A server of `mail`, which reads, sends and wipes, and of `shop`, which lists and orders.
struct Office {
    server: Server,
    _folder: TempDir,
}

pub fn offered(name: &str, description: &str, reads: bool) -> Value {
    json!({
        "name": name, "description": description, "inputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": reads }
    })
}

pub fn mcp_server(name: &str, folder: &Path, tools: &Value) -> ServerConfig {
    let state = folder.join(format!("{name}.json"));
    std::fs::write(&state, tools.to_string()).unwrap();
    double(name, &state)
}

impl Office {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mail = json!([
            offered("read", "Reads the mail.", true),
            offered("send", "Sends a mail.", false),
            offered("Wipe_all", "Wipes all mail.", false)
        ]);
        let shop = json!([
            offered("list", "Lists the goods.", true),
            offered("order", "Orders goods.", false)
        ]);
        let servers = vec![
            mcp_server("mail", folder.path(), &mail),
            mcp_server("shop", folder.path(), &shop),
        ];
        let pool = Pool::new(PoolConfig {
            servers,
            ..PoolConfig::default()
        });
        let server = Server::start_with(|settings| {
            settings.mcp_pool = pool.clone();
            settings.profiles = profiles();
            settings.gateway.approval_patience = Duration::from_millis(50);
        })
        .await;
        pool.settled(PATIENCE).await;
        Office {
            server,
            _folder: folder,
        }
    }

    /// A key with these scopes that is bound to these profiles.
    fn key(&self, scopes: &[Scope], profiles: &[&str]) -> String {
        let new = NewKey {
            name: None,
            scopes: scopes.iter().copied().collect(),
            catalogs: Catalogs::All,
            profiles: profiles.iter().map(|name| (*name).to_owned()).collect(),
            lifetime: None,
        };
        self.server.add_key(&new)
    }

    async fn client(&self, path: &str, key: &str) -> Client {
        self.client_of(path, key, Person { can_be_asked: true })
            .await
    }

    async fn client_of(&self, path: &str, key: &str, person: Person) -> Client {
        connect(format!("{}{path}", self.server.url), key, person).await
    }
}

/// A client at this address.
pub async fn connect(url: String, key: &str, person: Person) -> Client {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    if !key.is_empty() {
        config = config.auth_header(key);
    }
    let transport = StreamableHttpClientTransport::with_client(
        toolscout::tls::client().build().unwrap(),
        config,
    );
    Client(person.serve(transport).await.expect("a handshake"))
}

/// The person behind a client, who says yes where they can be asked.
#[derive(Clone)]
pub struct Person {
    pub can_be_asked: bool,
}

impl ClientHandler for Person {
    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let yes = ElicitResult::new(ElicitationAction::Accept);
        Ok(yes.with_content(json!({ "approve": true })))
    }

    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = ClientCapabilities::default();
        info.capabilities.elicitation = self.can_be_asked.then(ElicitationCapability::default);
        info
    }
}

pub struct Client(RunningService<RoleClient, Person>);

impl Client {
    /// What a tool of the gateway answers, as text.
    pub async fn ask(&self, tool: &'static str, arguments: Value) -> String {
        let Value::Object(arguments) = arguments else {
            panic!("the arguments are an object");
        };
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = timeout(PATIENCE, self.0.call_tool(params)).await;
        let result = result.expect("in time").expect("a result");
        let texts = result
            .content
            .iter()
            .filter_map(|content| content.as_text());
        texts.map(|text| text.text.clone()).collect()
    }

    async fn call(&self, tool: &str) -> String {
        self.ask("call_tool", json!({ "name": tool })).await
    }

    /// All that it is told without a search.
    pub async fn list(&self) -> String {
        let tools = self.0.list_all_tools().await.expect("a list");
        serde_json::to_string(&tools).unwrap()
    }
}

/// What every client is told, with all that it can ask for.
async fn all_answers(client: &Client) -> Vec<String> {
    let mut answers = vec![client.list().await];
    for query in ["read mail", "send a mail", "order goods", "wipe everything"] {
        let given = json!({ "query": query, "limit": 20, "detail": "schema" });
        answers.push(client.ask("tool_search", given).await);
    }
    answers.push(client.ask("list_tools", json!({})).await);
    answers
}

#[tokio::test]
async fn two_clients_at_once_see_find_and_call_what_is_theirs() {
    let office = Office::start().await;
    let mail_key = office.key(&[Scope::Call], &["office"]);
    let shop_key = office.key(&[Scope::Call], &["trade"]);
    let (mail, shop) = tokio::join!(
        office.client("/mcp/p/office", &mail_key),
        // With a key of one profile, the plain address is that profile.
        office.client("/mcp", &shop_key)
    );
    let (of_mail, of_shop) = tokio::join!(all_answers(&mail), all_answers(&shop));
    for answer in &of_mail {
        for hidden in ["shop", "Wipe", "Orders goods", "Lists the goods"] {
            assert!(!answer.contains(hidden), "{hidden:?} is in {answer}");
        }
    }
    for answer in &of_shop {
        for hidden in ["mail/", "mail__", "\"mail\"", "Orders", "shop/order"] {
            assert!(!answer.contains(hidden), "{hidden:?} is in {answer}");
        }
    }
    assert!(of_mail[0].contains("mail (2)"), "{}", of_mail[0]);
    assert!(of_mail[0].contains("\"mail__read\""), "its pin is listed");
    assert!(of_shop[0].contains("shop (1)"), "{}", of_shop[0]);

    let (sent, listed) = tokio::join!(mail.call("mail/send"), shop.call("shop/list"));
    assert_eq!((&*sent, &*listed), ("send was called", "list was called"));
    let found = shop.ask("tool_search", json!({ "query": "goods" })).await;
    assert!(found.contains("input_schema"), "its detail: {found}");
}

#[tokio::test]
async fn a_tool_outside_is_answered_like_one_that_is_not_there() {
    let office = Office::start().await;
    let key = office.key(&[Scope::Call], &["office"]);
    let client = office.client("/mcp/p/office", &key).await;
    let plan = |tool: &str| json!({ "steps": [{ "tool": "mail/read" }, { "tool": tool }] });
    for hidden in ["shop/order", "shop__order", "shop/list", "mail/Wipe_all"] {
        // As long, so that what is suggested is the same.
        let missing = hidden
            .replace("shop", "void")
            .replace("Wipe_all", "Void_all");
        let of_both = async |tool: &'static str, given: &dyn Fn(&str) -> Value| {
            let of_hidden = client.ask(tool, given(hidden)).await;
            let of_missing = client.ask(tool, given(&missing)).await;
            assert_eq!(of_hidden.replace(hidden, &missing), of_missing, "{tool}");
            of_hidden
        };
        of_both("call_tool", &|name| json!({ "name": name })).await;
        of_both("describe_tool", &|name| json!({ "names": [name] })).await;
        of_both(
            "tool_search",
            &|name| json!({ "query": format!("select:{name}") }),
        )
        .await;
        let said = of_both("run_plan", &plan).await;
        assert!(said.contains("nothing was done"), "{said}");
    }
    let servers = ["shop", "void"];
    let [hidden, missing] = servers.map(|server| json!({ "server": server }));
    let (hidden, missing) = (
        client.ask("list_tools", hidden).await,
        client.ask("list_tools", missing).await,
    );
    assert_eq!(hidden.replace("shop", "void"), missing);
    let by_name = CallToolRequestParams::new("shop__list");
    let refused = client.0.call_tool(by_name).await.unwrap_err().to_string();
    assert!(
        refused.contains("no tool is called"),
        "a pin outside: {refused}"
    );
}

#[tokio::test]
async fn a_key_of_several_profiles_names_one_and_knows_of_no_other() {
    let office = Office::start().await;
    let key = office.key(&[Scope::Call], &["office", "trade"]);
    let (mail, shop) = tokio::join!(
        office.client("/mcp/p/office", &key),
        office.client("/mcp/p/trade", &key)
    );
    assert_eq!(mail.call("mail/read").await, "read was called");
    assert_eq!(shop.call("shop/list").await, "list was called");
    assert!(mail.call("shop/list").await.contains("no tool is called"));

    let open = |path: &str| {
        let request = office.server.request(Method::POST, path).bearer_auth(&key);
        read(request.json(&json!({})))
    };
    let unnamed = open("/mcp").await;
    assert_eq!(
        (unnamed.status.as_u16(), unnamed.error_code()),
        (403, "profile_needed")
    );
    assert!(unnamed.message().contains("office, trade"), "{unnamed:?}");
    let (other, missing) = (open("/mcp/p/team").await, open("/mcp/p/none").await);
    assert_eq!(
        (other.status.as_u16(), other.error_code()),
        (404, "unknown_profile")
    );
    assert_eq!(other.message().replace("team", "none"), missing.message());
}

#[tokio::test]
async fn a_session_of_one_profile_is_unknown_to_another() {
    let office = Office::start().await;
    let key = office.key(&[Scope::Call], &["office", "trade"]);
    let post = |path: &str, body: Value| {
        let request = office.server.request(Method::POST, path).bearer_auth(&key);
        request
            .header("accept", "application/json, text/event-stream")
            .json(&body)
    };
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" }
        }
    });
    let begun = post("/mcp/p/office", hello).send().await.unwrap();
    let session = begun.headers()["mcp-session-id"].clone();
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} });
    for (path, expected) in [("/mcp/p/office", 200), ("/mcp/p/trade", 404)] {
        let request = post(path, list.clone())
            .header("mcp-session-id", &session)
            .header("mcp-protocol-version", "2025-06-18");
        assert_eq!(request.send().await.unwrap().status(), expected, "{path}");
    }
}

#[tokio::test]
async fn every_other_route_refuses_a_key_of_a_profile() {
    let office = Office::start().await;
    let description = office.server.get("/openapi.json").await.body;
    let all = [Scope::Search, Scope::Call, Scope::Approve, Scope::Llm];
    let key = office.key(&all, &["office"]);
    // Those that keep to profiles, or tell nothing of tools.
    let with_profiles = [
        "/v1/agent",
        "/v1/agents",
        "/v1/agent/",
        "/agent/",
        "/v1/approvals",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/responses/input_tokens",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/models",
        "/v1/models/",
        "/v1/embeddings",
        "/v1/responses/",
        "/v1/batches",
        "/v1/batches/",
        "/v1/files",
        "/v1/files/",
        "/v1/messages/",
        "/v1beta/models",
        "/v1beta/models/",
        "/model/",
        "/livez",
        "/readyz",
        "/healthz",
        "/version",
        "/v1/key",
    ];
    let mut refused = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        let keeps_to_profiles = with_profiles
            .iter()
            .any(|known| path == known || (known.ends_with('/') && path.starts_with(known)));
        if keeps_to_profiles || path.starts_with("/v1/approvals/") {
            continue;
        }
        let filled = path
            .replace("{catalog}", "default")
            .replace("{server}", "mail")
            .replace("{id}", "x");
        for method in methods.as_object().unwrap().keys() {
            let Ok(method) = Method::from_bytes(method.to_uppercase().as_bytes()) else {
                continue;
            };
            let request = office.server.request(method.clone(), &filled);
            let answer = read(request.bearer_auth(&key).json(&json!({}))).await;
            assert_eq!(
                (answer.status.as_u16(), answer.error_code()),
                (403, "profile_key"),
                "{method} {path}: {answer:?}"
            );
            refused += 1;
        }
    }
    assert!(refused > 30, "{refused}");
}

#[tokio::test]
async fn a_tool_of_another_catalog_is_called_where_it_is_the_servers_own() {
    let office = Office::start().await;
    let own = offered("read", "Reads the mail.", true);
    // It says that it only reads.
    let forged = offered("send", "Sends a mail.", true);
    let tools = [own, forged].map(|mut tool| {
        tool["server"] = "mail".into();
        tool
    });
    office.server.put("/v1/catalogs/team", &json!({})).await;
    let added = office
        .server
        .post("/v1/catalogs/team/tools", &json!(tools))
        .await;
    assert_eq!(added.status, 200, "{added:?}");
    let key = office.key(&[Scope::Call], &["team"]);
    let client = office.client("/mcp", &key).await;
    assert!(client.list().await.contains("mail (2)"));
    assert_eq!(client.call("mail/read").await, "read was called");
    let refused = client.call("mail/send").await;
    assert!(
        refused.contains("no connected server offers it"),
        "{refused}"
    );
    assert!(client.call("shop/list").await.contains("no tool is called"));
}

#[tokio::test]
async fn a_call_of_a_client_that_cannot_ask_is_decided_on_elsewhere_and_once() {
    let office = Office::start().await;
    let key = office.key(&[Scope::Call], &["office"]);
    let admins = [
        office.server.key(Scope::Admin, "*"),
        office.server.key(Scope::Admin, "*"),
    ];
    let person = Person {
        can_be_asked: false,
    };
    let client = office.client_of("/mcp", &key, person).await;
    let asked = client.call("mail/send").await;
    assert!(asked.contains("POST /v1/approvals/"), "{asked}");
    let again = client.call("mail/send").await;

    let list = async |key: &str| {
        let request = office.server.request(Method::GET, "/v1/approvals");
        read(request.bearer_auth(key)).await.body["approvals"].clone()
    };
    let waiting = list(&admins[0]).await;
    assert_eq!(waiting.as_array().unwrap().len(), 1, "{waiting}");
    let one = &waiting[0];
    let id = one["id"].as_str().unwrap();
    assert!(asked.contains(id) && again.contains(id), "{again}");
    assert_eq!(
        (&one["tool"], &one["class"]),
        (&json!("mail/send"), &json!("state_changing"))
    );
    assert!(one["owner"].as_str().unwrap().starts_with("key:"), "{one}");
    assert!(one["client"].is_string(), "{one}");
    assert_eq!(list(&key).await[0]["id"], id, "its own key sees it");
    let other = office.key(&[Scope::Approve], &["trade"]);
    assert_eq!(list(&other).await, json!([]));

    let decide = async |key: &str| {
        let path = format!("/v1/approvals/{id}");
        let request = office.server.request(Method::POST, &path).bearer_auth(key);
        read(request.json(&json!({ "approve": true }))).await
    };
    assert_eq!(decide(&key).await.error_code(), "wrong_scope");
    assert_eq!(decide(&other).await.error_code(), "unknown_approval");
    let (one, two) = tokio::join!(decide(&admins[0]), decide(&admins[1]));
    let mut statuses = [one.status.as_u16(), two.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(
        statuses,
        [200, 404],
        "of two who approve at once, one decides"
    );

    assert_eq!(client.call("mail/send").await, "send was called");
    let asked = client.call("mail/send").await;
    assert!(
        asked.contains("POST /v1/approvals/"),
        "it counts once: {asked}"
    );
    let plan = json!({ "steps": [{ "tool": "mail/read" }, { "tool": "mail/send" }] });
    let plan = client.ask("run_plan", plan).await;
    assert!(plan.contains("nothing was done"), "{plan}");
}

#[tokio::test]
async fn a_refusal_elsewhere_reaches_the_model() {
    let office = Office::start().await;
    let key = office.key(&[Scope::Call, Scope::Approve], &["office"]);
    let person = Person {
        can_be_asked: false,
    };
    let client = office.client_of("/mcp", &key, person).await;
    client.call("mail/send").await;
    let list = office.server.request(Method::GET, "/v1/approvals");
    let list = read(list.bearer_auth(&key)).await.body;
    let path = format!(
        "/v1/approvals/{}",
        list["approvals"][0]["id"].as_str().unwrap()
    );
    let refusal = json!({ "approve": false, "reason": "not on Mondays" });
    let request = office.server.request(Method::POST, &path).bearer_auth(&key);
    assert_eq!(read(request.json(&refusal)).await.status, 200);
    let said = client.call("mail/send").await;
    assert!(said.contains("not on Mondays"), "{said}");
}

#[tokio::test]
async fn keys_of_profiles_are_made_over_http() {
    let server = Server::start_with(|settings| settings.profiles = profiles()).await;
    let admin = server
        .post(
            "/v1/keys",
            &json!({ "scopes": ["admin"], "catalogs": ["*"] }),
        )
        .await;
    let admin = admin.body["key"].as_str().unwrap().to_owned();
    let make = async |body: Value| {
        let request = server.request(Method::POST, "/v1/keys");
        read(request.bearer_auth(&admin).json(&body)).await
    };
    let made = make(json!({ "scopes": ["call"], "profiles": ["office", "later"] })).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(
        (
            &made.body["catalogs"],
            &made.body["profiles"],
            &made.body["unknown_profiles"]
        ),
        (
            &json!(["*"]),
            &json!(["later", "office"]),
            &json!(["later"])
        )
    );
    for (body, expected) in [
        (
            json!({ "scopes": ["admin"], "profiles": ["office"] }),
            "admin cannot be bound",
        ),
        (
            json!({ "scopes": ["call"], "profiles": ["a b"] }),
            "cannot be the name of a profile",
        ),
        (
            json!({ "scopes": ["call"], "catalogs": [], "profiles": ["office"] }),
            "catalogs is empty",
        ),
    ] {
        let refused = make(body).await;
        assert_eq!(refused.error_code(), "invalid_value");
        assert!(refused.message().contains(expected), "{refused:?}");
    }
    let listed = read(server.request(Method::GET, "/v1/keys").bearer_auth(&admin)).await;
    let mut listed = listed.body["keys"].as_array().unwrap().iter();
    assert!(listed.any(|key| key["profiles"] == json!(["later", "office"])));
    let key = made.body["key"].as_str().unwrap();
    let later = server
        .request(Method::POST, "/mcp/p/later")
        .bearer_auth(key);
    assert_eq!(
        read(later.json(&json!({}))).await.error_code(),
        "unknown_profile"
    );
}

#[tokio::test]
async fn the_agent_takes_the_profile_of_a_key_or_of_a_header() {
    let server = Server::start_with(|settings| {
        settings.profiles = profiles();
        let replies = ["One.", "Two.", "Three."].map(Reply::text);
        let agent = AgentPlan {
            builder: Agent::builder().llm(ScriptedModel::new("scripted", replies)),
            ..AgentPlan::default()
        };
        settings.agents = Some(agent.into());
    })
    .await;
    let key = |scope: Scope, catalogs: &str, profiles: &[&str]| {
        let new = NewKey {
            name: None,
            scopes: scope.into(),
            catalogs: catalogs.parse().unwrap(),
            profiles: profiles.iter().map(|name| (*name).to_owned()).collect(),
            lifetime: None,
        };
        server.add_key(&new)
    };
    let ask = async |key: &str, profile: Option<&str>| {
        let request = server.request(Method::POST, "/v1/agent/chat");
        let mut request = request.bearer_auth(key).json(&json!({ "query": "Hello?" }));
        if let Some(profile) = profile {
            request = request.header("x-toolscout-profile", profile);
        }
        let answer = read(request).await;
        (answer.status.as_u16(), answer.error_code().to_owned())
    };
    let refused = |status: u16, code: &str| (status, code.to_owned());
    let one = key(Scope::Search, "*", &["office"]);
    assert_eq!(ask(&one, None).await, refused(200, "no error"));
    assert_eq!(
        ask(&one, Some("trade")).await,
        refused(404, "unknown_profile")
    );
    let two = key(Scope::Search, "*", &["office", "trade"]);
    assert_eq!(ask(&two, None).await, refused(403, "profile_needed"));
    assert_eq!(ask(&two, Some("trade")).await, refused(200, "no error"));
    let other = key(Scope::Search, "team", &[]);
    assert_eq!(ask(&other, None).await, refused(403, "catalog_not_allowed"));
    assert_eq!(
        ask(&other, Some("office")).await,
        refused(403, "catalog_not_allowed")
    );
    assert_eq!(
        ask(&other, Some("team")).await,
        refused(404, "unknown_catalog")
    );
    let created = server.request(Method::PUT, "/v1/catalogs/team");
    let admin = server.key(Scope::Admin, "*");
    assert_eq!(read(created.bearer_auth(&admin)).await.status, 201);
    assert_eq!(ask(&other, Some("team")).await, refused(200, "no error"));
}
