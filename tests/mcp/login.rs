//! Logins at servers that want them: in a browser, renewed while calls run, and ended.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::timeout;
use toolscout::mcp::config::{HttpProtocol, OAuthSettings, Transport};
use toolscout::mcp::login::{LoggedOut, Login, LoginError, Logins, begin, logout, remote};
use toolscout::mcp::pool::ConnectionState;
use toolscout::mcp::{CallError, ServerConfig};

use super::authorization::{Answer, Authorization, Behaviour, visit};
use super::program::World;
use super::world::{PATIENCE, Upstream, becomes, double, until};

/// A server that wants a login, and the data directory of who logs in.
struct Scene {
    server: Authorization,
    data: TempDir,
}

impl Scene {
    async fn new(behaviour: Behaviour) -> Self {
        Scene {
            server: Authorization::start(behaviour).await,
            data: tempfile::tempdir().expect("a folder"),
        }
    }

    fn logins(&self) -> Logins {
        Logins::in_data_dir(self.data.path())
    }

    async fn login(&self) -> Result<Login, LoginError> {
        self.login_at(&self.server.config("s"), &Behaviour::default())
            .await
    }

    async fn login_at(
        &self,
        config: &ServerConfig,
        behaviour: &Behaviour,
    ) -> Result<Login, LoginError> {
        let (url, settings) = remote(config)?;
        let file = self.logins().file(url).expect("a file");
        let page = begin(url, settings, &[], file).await?;
        let address = page.page().to_string();
        let visiting = visit(&address, behaviour);
        let (login, status) = tokio::join!(page.finish(PATIENCE), visiting);
        assert_eq!(status, 200);
        login
    }

    /// What the page of a login asks for, if a person names these scopes.
    async fn asked_scopes(&self, scopes: &[String]) -> String {
        let config = self.server.config("s");
        let (url, settings) = remote(&config).expect("a remote server");
        let file = self.logins().file(url).expect("a file");
        let page = begin(url, settings, scopes, file).await.expect("a page");
        let mut asked = page.page().query_pairs();
        let scope = asked.find(|(name, _)| name == "scope");
        scope
            .map(|(_, scope)| scope.into_owned())
            .unwrap_or_default()
    }

    async fn upstream(&self) -> Upstream {
        let logins = self.logins();
        let servers = vec![self.server.config("s"), double("other", &[])];
        Upstream::start_with(servers, |config| config.logins = logins).await
    }

    fn file_text(&self) -> String {
        let folder = self.data.path().join("mcp-logins");
        let files = folder.read_dir().expect("a folder").flatten();
        let json = files.map(|file| file.path()).find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
        std::fs::read_to_string(json.expect("a login")).expect("its text")
    }
}

fn state(upstream: &Upstream) -> ConnectionState {
    let statuses = upstream.pool.statuses();
    let status = statuses.iter().find(|status| status.server == "s");
    status.expect("the server").state
}

#[tokio::test]
async fn a_server_that_wants_a_login_says_so_and_is_connected_after_it() {
    for silent in [false, true] {
        let scene = Scene::new(Behaviour {
            silent,
            ..Behaviour::default()
        })
        .await;
        let upstream = scene.upstream().await;
        assert_eq!(state(&upstream), ConnectionState::NeedsLogin);
        assert_eq!(upstream.echo("other").await, "hello");
        let refused = upstream.call("s/echo", json!({})).await.unwrap_err();
        assert!(
            matches!(&refused, CallError::NeedsLogin { reason, .. } if reason.contains("`toolscout mcp login s`")),
            "{refused}"
        );
        scene.login().await.unwrap();
        becomes("the server is connected", || {
            state(&upstream) == ConnectionState::Connected
        })
        .await;
        assert_eq!(upstream.echo("s").await, "hello");
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_login_only_in_answers_to_messages_gets_one() {
    let behaviour = Behaviour {
        messages_only: true,
        ..Behaviour::default()
    };
    let scene = Scene::new(behaviour).await;
    let asked = scene.asked_scopes(&[]).await;
    assert_eq!(asked.split(' ').next(), Some("tools.read"), "{asked}");
    scene.login().await.expect("a login");
    let upstream = scene.upstream().await;
    assert_eq!(state(&upstream), ConnectionState::Connected);
}

#[tokio::test]
async fn a_login_for_a_further_scope_keeps_those_of_the_login_before() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.expect("a login");
    let asked = scene.asked_scopes(&["tools.write".to_owned()]).await;
    let asked: Vec<&str> = asked.split(' ').collect();
    assert!(
        asked.contains(&"tools.write") && asked.contains(&"tools"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn tokens_of_a_short_life_are_renewed_one_at_a_time_while_calls_run() {
    let scene = Scene::new(Behaviour {
        lifetime: Duration::from_secs(2),
        ..Behaviour::default()
    })
    .await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    let begun = Instant::now();
    let callers = (0..16).map(|_| async {
        while scene.server.renewals() < 2 {
            assert_eq!(upstream.echo("s").await, "hello");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let called = futures_util::future::join_all(callers);
    timeout(Duration::from_secs(30), called)
        .await
        .expect("the token is renewed twice");
    let renewals = scene.server.renewals();
    let most = usize::try_from(begun.elapsed().as_secs()).unwrap() + 2;
    assert!((2..=most).contains(&renewals), "{renewals} of {most}");
    assert_eq!(scene.server.most_renewing(), 1);
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_all_calls() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    for round in 1..=3 {
        scene.server.forget_access();
        let calls = (0..40).map(|_| upstream.echo("s"));
        futures_util::future::join_all(calls).await;
        assert_eq!(scene.server.renewals(), round);
    }
}

#[tokio::test]
async fn a_result_of_200_mb_over_http_is_refused_and_other_calls_go_on() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    let huge = upstream.call("s/echo", json!({ "text": "huge" })).await;
    let said = huge.unwrap_err().to_string();
    assert!(said.contains("maximum size of 16777216 bytes"), "{said}");
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn servers_of_the_old_transport_have_logins_too() {
    let scene = Scene::new(Behaviour {
        old: true,
        ..Behaviour::default()
    })
    .await;
    let mut config = scene.server.config("s");
    if let Transport::Http { protocol, .. } = &mut config.transport {
        *protocol = HttpProtocol::Sse;
    }
    let logins = scene.logins();
    let upstream = Upstream::start_with(vec![config], |config| config.logins = logins).await;
    assert_eq!(state(&upstream), ConnectionState::NeedsLogin);
    scene.login().await.unwrap();
    becomes("the server is connected", || {
        state(&upstream) == ConnectionState::Connected
    })
    .await;
    scene.server.forget_access();
    let calls = (0..20).map(|_| upstream.echo("s"));
    futures_util::future::join_all(calls).await;
    assert_eq!(scene.server.renewals(), 1);
    scene.server.forget_everything();
    let refused = upstream.call("s/echo", json!({})).await.unwrap_err();
    assert!(refused.to_string().contains("mcp login s"), "{refused}");
}

#[tokio::test]
async fn two_processes_renew_with_each_refresh_token_once() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let (first, second) = tokio::join!(scene.upstream(), scene.upstream());
    for _ in 0..3 {
        scene.server.forget_access();
        // The double takes a refresh token once, so a second use would end the login.
        tokio::join!(first.echo("s"), second.echo("s"));
    }
    assert_eq!(scene.server.most_renewing(), 1);
}

#[tokio::test]
async fn a_login_that_has_ended_is_said_and_not_tried_again_and_again() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    scene.server.forget_everything();
    for _ in 0..5 {
        let refused = upstream.call("s/echo", json!({})).await.unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("`toolscout mcp login s`"), "{said}");
        for secret in scene.server.secrets() {
            assert!(!said.contains(&secret), "{said}");
        }
    }
    becomes("a login is asked for", || {
        state(&upstream) == ConnectionState::NeedsLogin
    })
    .await;
    // Once on the connection, and once when a new one was tried.
    assert!(scene.server.renewals() <= 2, "{}", scene.server.renewals());
    assert_eq!(upstream.echo("other").await, "hello");
    scene.login().await.unwrap();
    becomes("it is connected again", || {
        state(&upstream) == ConnectionState::Connected
    })
    .await;
}

#[tokio::test]
async fn a_renewal_that_fails_for_a_moment_ends_no_login() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    let failing = [
        Answer::Error(503, json!({ "error": "temporarily_unavailable" })),
        Answer::Garbage,
        Answer::Huge,
        Answer::Redirect("http://192.0.2.1/".into()),
    ];
    for answer in failing {
        scene.server.forget_access();
        scene
            .server
            .behave(|behaviour| behaviour.tokens = answer.clone());
        let refused = upstream.call("s/echo", json!({})).await.unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("token refresh failed"), "{answer:?}: {said}");
        for secret in scene.server.secrets() {
            assert!(!said.contains(&secret), "{said}");
        }
        scene
            .server
            .behave(|behaviour| behaviour.tokens = Answer::Tokens);
        // Without another login: the refresh token is still good.
        until("calls succeed again", async || {
            upstream
                .call("s/echo", json!({ "text": "hello" }))
                .await
                .is_ok()
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_during_a_renewal_costs_no_login() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    for _ in 0..5 {
        scene.server.forget_access();
        // The double takes each refresh token once.
        tokio::select! {
            biased;
            () = scene.server.renews() => {}
            called = upstream.call("s/echo", json!({ "text": "hello" })) => panic!("{called:?}"),
        }
        assert_eq!(upstream.echo("s").await, "hello");
    }
}

#[tokio::test]
async fn a_renewal_that_does_not_end_holds_up_no_call_for_ever_and_no_other_server() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let servers = vec![scene.server.config("s"), double("other", &[])];
    let logins = scene.logins();
    let upstream = Upstream::start_with(servers, |config| {
        config.logins = logins;
        config.limits.call.unreported = Duration::from_secs(1);
    })
    .await;
    scene
        .server
        .behave(|behaviour| behaviour.tokens = Answer::Never);
    scene.server.forget_access();
    // No time is measured: twenty that waited for the answer one after another would not end.
    let calls = (0..20).map(|_| upstream.call("s/echo", json!({})));
    for refused in futures_util::future::join_all(calls).await {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, CallError::Timeout { .. }), "{refused}");
    }
    assert_eq!(upstream.echo("other").await, "hello");
    // None, if a busy machine has not come to it in the time of the calls.
    assert!(scene.server.most_renewing() <= 1);
}

#[tokio::test]
async fn bad_authorization_servers_bring_no_login_and_no_tokens() {
    let elsewhere = Authorization::start(Behaviour::default()).await;
    let metadata = |metadata: Value| Behaviour {
        metadata,
        ..Behaviour::default()
    };
    let resource = |resource: Value| Behaviour {
        resource,
        ..Behaviour::default()
    };
    let tokens = |tokens: Answer| Behaviour {
        tokens,
        ..Behaviour::default()
    };
    let cases = [
        (
            metadata(json!({ "issuer": "https://other.example/as" })),
            "issuer mismatch",
        ),
        (
            metadata(json!({ "issuer": null })),
            "missing required issuer",
        ),
        (
            metadata(json!({ "authorization_endpoint": "file:///etc/passwd" })),
            "no page of https",
        ),
        (
            metadata(json!({ "authorization_endpoint": "javascript:alert(1)" })),
            "no page of https",
        ),
        (
            metadata(json!({ "token_endpoint": "http://10.0.0.1/token" })),
            "token exchange failed",
        ),
        (
            metadata(json!({ "code_challenge_methods_supported": ["plain"] })),
            "PKCE",
        ),
        (
            metadata(json!({ "response_types_supported": ["token"] })),
            "code",
        ),
        (
            metadata(json!({ "registration_endpoint": "http://169.254.169.254/latest" })),
            "not a public address",
        ),
        (
            resource(json!({ "resource": "https://other.example/mcp" })),
            "resource mismatch",
        ),
        (
            resource(json!({ "authorization_servers": ["http://10.0.0.1/as"] })),
            "none published usable metadata",
        ),
        (
            resource(json!({ "authorization_servers": ["file:///as"] })),
            "none published usable",
        ),
        (
            Behaviour {
                registers: false,
                ..Behaviour::default()
            },
            "\"oauth\": {\"client_id\": …}",
        ),
        (
            Behaviour {
                denies: true,
                ..Behaviour::default()
            },
            "access_denied",
        ),
        (tokens(Answer::Garbage), "token exchange failed"),
        (tokens(Answer::Huge), "token exchange failed"),
        (
            tokens(Answer::Redirect(format!("{}/as/token", elsewhere.base))),
            "token exchange failed",
        ),
        (
            tokens(Answer::Error(
                400,
                json!({ "error": "invalid_request", "error_description": "no\u{1b}[2J" }),
            )),
            "token exchange failed",
        ),
    ];
    for (behaviour, expected) in cases {
        let scene = Scene::new(behaviour.clone()).await;
        let config = scene.server.config("s");
        let refused = timeout(PATIENCE, scene.login_at(&config, &behaviour));
        let refused = refused.await.expect("an end").err().expect(expected);
        let said = refused.to_string();
        assert!(
            said.to_lowercase().contains(&expected.to_lowercase()),
            "{behaviour:?}: {said}"
        );
        assert!(!said.contains('\u{1b}'), "{said:?}");
        for secret in scene.server.secrets() {
            assert!(!said.contains(&secret), "{said}");
        }
        let folder = scene.data.path().join("mcp-logins");
        let files = folder.read_dir().map_or(0, Iterator::count);
        assert_eq!(files, 0, "{behaviour:?}");
    }
    assert!(elsewhere.secrets().is_empty());
}

#[tokio::test]
async fn only_the_browser_of_this_login_is_listened_to() {
    let behaviour = Behaviour {
        wrong_state: true,
        ..Behaviour::default()
    };
    let scene = Scene::new(behaviour.clone()).await;
    let config = scene.server.config("s");
    let login = scene.login_at(&config, &behaviour).await.unwrap();
    assert_eq!(login.scopes(), ["tools"]);
    assert_eq!(login.issuer(), Some(&*format!("{}/as", scene.server.base)));

    let (url, settings) = remote(&config).unwrap();
    let file = scene.logins().file(url).unwrap();
    let page = begin(url, settings, &[], file).await.unwrap();
    let nobody = page.finish(Duration::from_millis(50)).await.err().unwrap();
    assert!(
        nobody.to_string().contains("nobody logged in within"),
        "{nobody}"
    );
}

#[tokio::test]
async fn two_logins_at_once_are_both_good() {
    let scene = Scene::new(Behaviour::default()).await;
    let (one, other) = tokio::join!(scene.login(), scene.login());
    let both = [one.unwrap(), other.unwrap()];
    assert_eq!(scene.server.registrations(), 2);
    let text = scene.file_text();
    assert!(both.iter().any(|login| text.contains(login.access_token())));
    let upstream = scene.upstream().await;
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn a_client_of_the_settings_is_used_and_not_registered() {
    let scene = Scene::new(Behaviour::default()).await;
    let settings = OAuthSettings {
        client_id: Some("mine".into()),
        client_secret: Some("very-secret".into()),
        scopes: vec!["tools".into(), "more".into()],
        ..OAuthSettings::default()
    };
    let config = scene.server.config_with("s", settings);
    scene
        .login_at(&config, &Behaviour::default())
        .await
        .unwrap();
    assert_eq!(scene.server.registrations(), 0);
    let (basic, _) = scene.server.last_asked();
    // mine:very-secret
    let expected = "Basic bWluZTp2ZXJ5LXNlY3JldA==";
    assert_eq!(basic.as_deref(), Some(expected));
    scene.server.forget_access();
    let upstream = scene.upstream().await;
    upstream.echo("s").await;
    let (basic, form) = scene.server.last_asked();
    assert_eq!(form["grant_type"], "refresh_token");
    assert_eq!(basic.as_deref(), Some(expected));
}

#[tokio::test]
async fn a_logout_revokes_and_deletes() {
    let scene = Scene::new(Behaviour::default()).await;
    let login = scene.login().await.unwrap();
    let config = scene.server.config("s");
    let (url, settings) = remote(&config).unwrap();
    let file = scene.logins().file(url).unwrap();
    let ended = logout(url, settings, &file).await.unwrap();
    assert_eq!(ended, LoggedOut::Revoked);
    assert_eq!(
        scene.server.revoked(),
        [login.refresh_token().unwrap(), login.access_token()]
    );
    assert!(file.read().unwrap().is_none());
    assert_eq!(
        logout(url, settings, &file).await.unwrap(),
        LoggedOut::Never
    );

    scene.login().await.unwrap();
    scene
        .server
        .behave(|behaviour| behaviour.metadata = json!({ "revocation_endpoint": null }));
    let ended = logout(url, settings, &file).await.unwrap();
    assert!(
        matches!(&ended, LoggedOut::Deleted { reason } if reason.contains("revokes no tokens")),
        "{ended:?}"
    );
    assert!(file.read().unwrap().is_none());
}

#[tokio::test]
async fn a_logout_ends_the_calls_of_a_running_program() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    assert_eq!(upstream.echo("s").await, "hello");
    let config = scene.server.config("s");
    let (url, settings) = remote(&config).unwrap();
    let file = scene.logins().file(url).unwrap();
    logout(url, settings, &file).await.unwrap();
    becomes("a login is asked for", || {
        state(&upstream) == ConnectionState::NeedsLogin
    })
    .await;
    let refused = upstream.call("s/echo", json!({})).await.unwrap_err();
    assert!(matches!(refused, CallError::NeedsLogin { .. }), "{refused}");
    scene.login().await.unwrap();
    becomes("it is connected again", || {
        state(&upstream) == ConnectionState::Connected
    })
    .await;
    assert_eq!(upstream.echo("s").await, "hello");
}

#[tokio::test]
async fn another_authorization_server_does_not_get_the_refresh_token() {
    let scene = Scene::new(Behaviour::default()).await;
    scene.login().await.unwrap();
    let upstream = scene.upstream().await;
    let elsewhere = Authorization::start(Behaviour::default()).await;
    scene.server.behave(|behaviour| {
        behaviour.resource = json!({ "authorization_servers": [format!("{}/as", elsewhere.base)] });
    });
    scene.server.forget_access();
    let refused = upstream.call("s/echo", json!({})).await.unwrap_err();
    assert!(refused.to_string().contains("mcp login s"), "{refused}");
    assert_eq!((scene.server.renewals(), elsewhere.renewals()), (0, 0));
    // The login itself is kept: the server may have made a mistake.
    assert!(scene.file_text().contains("refresh-"));
}

/// A running `toolscout serve`, which ends with the test.
struct Serving {
    process: tokio::process::Child,
    address: String,
}

impl Serving {
    async fn start(world: &World, servers: &str) -> Self {
        let words = ["serve", "--listen", "127.0.0.1:0", "--mcp", servers];
        let mut command = tokio::process::Command::from(world.command(&words));
        command.env("TOOLSCOUT_LOG", "trace").kill_on_drop(true);
        let log = std::fs::File::create(world.path("serve.log")).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.stderr(log).spawn().expect("it starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).await.expect("a line");
        let address = line.trim().strip_prefix("listening on ");
        let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        Serving { process, address }
    }

    /// Waits until the connection of `s` has this state.
    async fn becomes(&self, state: &str) {
        let url = format!("{}/v1/catalogs/default/servers", self.address);
        let client = toolscout::tls::client().build().unwrap();
        until(state, async || {
            let Ok(answer) = client.get(&url).send().await else {
                return false;
            };
            let list: Value = answer.json().await.expect("JSON");
            // Not before it is ready.
            let servers = list["servers"].as_array().into_iter().flatten();
            let server = servers.into_iter().find(|server| server["name"] == "s");
            server.is_some_and(|server| server["connection"]["state"] == state)
        })
        .await;
    }

    async fn end(mut self) {
        self.process.kill().await.expect("it ends");
    }
}

#[tokio::test]
async fn the_program_logs_in_shows_it_and_logs_out_without_a_word_of_the_tokens() {
    let world = World::new();
    let server = Authorization::start(Behaviour::default()).await;
    let servers = world.servers(&[server.config("s"), double("other", &[])]);
    let asked = ["mcp", "servers", "--mcp", &servers];
    let before = world.run(&asked).await;
    assert_eq!(before.code, 1, "{}", before.stdout);
    assert!(before.stdout.contains("needs login"), "{}", before.stdout);
    assert!(before.stdout.contains("8 tools"), "{}", before.stdout);
    let synced = world.run(&["sync", "--mcp", &servers]).await;
    assert!(
        synced.stderr.contains("run `toolscout mcp login s`"),
        "{}",
        synced.stderr
    );

    let serving = Serving::start(&world, &servers).await;
    serving.becomes("needs_login").await;
    let words = ["mcp", "login", "s", "--mcp", &servers, "--no-browser"];
    let mut command = tokio::process::Command::from(world.command(&words));
    let mut process = command
        .env("TOOLSCOUT_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the program starts");
    let mut lines = BufReader::new(process.stderr.take().expect("a pipe"));
    let mut said = String::new();
    let page = loop {
        let mut line = String::new();
        assert_ne!(
            lines.read_line(&mut line).await.expect("a line"),
            0,
            "{said}"
        );
        said.push_str(&line);
        if line.starts_with("http") {
            break line.trim().to_owned();
        }
    };
    assert_eq!(visit(&page, &Behaviour::default()).await, 200);
    lines.read_to_string(&mut said).await.expect("the rest");
    let done = process.wait_with_output().await.expect("it ends");
    let shown = String::from_utf8(done.stdout).expect("UTF-8");
    assert!(
        shown.contains("logged in at s: token expires in"),
        "{shown}"
    );

    // Without being started anew.
    serving.becomes("connected").await;
    serving.end().await;
    let log = std::fs::read_to_string(world.path("serve.log")).expect("its log");
    let after = world.run(&asked).await;
    assert_eq!(after.code, 0, "{}", after.stdout);
    assert!(after.stdout.contains("is renewed"), "{}", after.stdout);
    let shown_as_json = world.ok(&[&asked[..], &["--json"]].concat()).await;
    let parsed: Value = serde_json::from_str(&shown_as_json).unwrap();
    assert_eq!(parsed["servers"][0]["state"], "ok");
    server.forget_access();
    let mut command = world.command(&asked);
    command.env("TOOLSCOUT_LOG", "trace");
    let renewed = tokio::process::Command::from(command).output().await;
    let renewed = renewed.expect("it runs");
    assert!(renewed.status.success());
    assert_eq!(server.renewals(), 1);
    let traced = String::from_utf8_lossy(&renewed.stderr).into_owned();
    let ended = world.ok(&["mcp", "logout", "s", "--mcp", &servers]).await;
    assert!(ended.contains("its tokens are revoked"), "{ended}");
    for text in [
        &said,
        &shown,
        &log,
        &after.stdout,
        &shown_as_json,
        &traced,
        &ended,
    ] {
        for secret in server.secrets() {
            assert!(!text.contains(&secret), "{secret} is in {text}");
        }
    }
    let unknown = world.run(&["mcp", "login", "x", "--mcp", &servers]).await;
    assert!(
        unknown.stderr.contains("no server \"x\", only s, other"),
        "{}",
        unknown.stderr
    );
    let process = world
        .run(&["mcp", "login", "other", "--mcp", &servers])
        .await;
    assert!(
        process.stderr.contains("is a process"),
        "{}",
        process.stderr
    );
}
