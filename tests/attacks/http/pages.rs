//! Pages of other sites in the browser of somebody who runs a server without keys.

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::agent::{Manner, Model, event};
use crate::attacks::server::{Server, read};
use crate::attacks::table::{Attack, Section};

pub const SECTION: Section = Section {
    title: "Pages of other sites",
    attacks: &[
        Attack {
            tried: "A page of another site embeds, fetches, opens or links to a route of a server without keys (`Sec-Fetch-Site: cross-site` or `same-site`)",
            happens: "403 `cross_site` on every route, unless the page's origin is listed and it neither embeds nor navigates; a link leads to the console at `/`, which is the same for everyone and whose answers no other page can read",
            test: "pages_of_other_sites_reach_no_route",
        },
        Attack {
            tried: "A GET from a browser that sends no fetch metadata starts a run",
            happens: "403 `missing_token`: a GET runs the agent only with a key, or with the token that pages of the server's own origin can read",
            test: "no_get_starts_a_run_without_a_key_or_a_token",
        },
        Attack {
            tried: "A form posts `text/plain` with JSON in it to the agent",
            happens: "415: questions are taken as `application/json` alone, which a form cannot send",
            test: "a_form_starts_no_run",
        },
        Attack {
            tried: "A page shows the server's own pages in a frame",
            happens: "Every answer forbids it (`X-Frame-Options`, `frame-ancestors`), and a person who types the address still sees it",
            test: "what_a_person_opens_is_shown_but_not_in_a_frame",
        },
        Attack {
            tried: "A provider answers with a page (`text/html`, SVG, XML) that a browser would show at the address of this server",
            happens: "It is handed on as plain text. Every answer but the server's own pages has the policy `default-src 'none'; sandbox`, under which no script runs",
            test: "what_a_provider_sends_is_no_page_of_this_server",
        },
        Attack {
            tried: "Chromium loads a page of another port and of another site with an iframe, an image, a form, a fetch, an EventSource and a navigation to the agent",
            happens: "Nothing runs",
            test: "a_real_browser_runs_nothing_for_other_sites",
        },
    ],
};

const STREAM: &str = "/agent/chat/stream?query=read+my+mail&conversationId=mine&identity=ada";

/// What browsers send of a request that a page makes: site, mode, destination.
fn from_page(server: &Server, method: Method, path: &str, metadata: [&str; 3]) -> RequestBuilder {
    let request = server
        .request(method, path)
        .header("sec-fetch-site", metadata[0]);
    request
        .header("sec-fetch-mode", metadata[1])
        .header("sec-fetch-dest", metadata[2])
}

#[tokio::test]
async fn pages_of_other_sites_reach_no_route() {
    let model = Model::new(Manner::Answers);
    let server = model
        .serve(|settings| settings.allowed_origins = vec!["https://app.example".into()])
        .await;
    let ways = [
        ["no-cors", "image"],
        ["no-cors", "empty"],
        ["navigate", "iframe"],
        ["navigate", "document"],
    ];
    for site in ["cross-site", "same-site"] {
        for path in [
            STREAM,
            "/v1/catalogs",
            "/v1/catalogs/default/search?q=x",
            "/livez",
            "/docs",
            "/no/such/route",
        ] {
            for [mode, destination] in ways {
                let answer = read(from_page(
                    &server,
                    Method::GET,
                    path,
                    [site, mode, destination],
                ))
                .await;
                assert_eq!(
                    (answer.status.as_u16(), answer.error_code()),
                    (403, "cross_site"),
                    "{site} {mode} {path}"
                );
            }
        }
    }
    // A link leads to the console, which cannot be embedded.
    for (destination, status) in [("document", 200), ("iframe", 403)] {
        let metadata = ["cross-site", "navigate", destination];
        let request = from_page(&server, Method::GET, "/", metadata).header("accept", "text/html");
        assert_eq!(read(request).await.status.as_u16(), status, "{destination}");
    }
    // A listed origin may fetch, and may neither embed nor navigate.
    let listed = |mode: &'static str, destination: &'static str| {
        let request = from_page(
            &server,
            Method::GET,
            "/v1/catalogs",
            ["cross-site", mode, destination],
        );
        read(request.header("origin", "https://app.example"))
    };
    assert_eq!(listed("cors", "empty").await.status, 200);
    assert_eq!(
        listed("navigate", "iframe").await.error_code(),
        "cross_site"
    );
    assert_eq!(
        listed("navigate", "document").await.error_code(),
        "cross_site"
    );
    assert_eq!(model.asked(), 0);
}

#[tokio::test]
async fn no_get_starts_a_run_without_a_key_or_a_token() {
    let model = Model::new(Manner::Answers);
    let server = model.serve(|_| {}).await;
    for path in [
        STREAM.to_owned(),
        format!("{STREAM}&token="),
        format!("{STREAM}&token=guess"),
    ] {
        let answer = server.get(&path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (403, "missing_token"),
            "{path}"
        );
    }
    assert_eq!(server.get("/v1/agent/token").await.status, 405);
    assert_eq!(model.asked(), 0);

    let token = server.post("/v1/agent/token", &json!({})).await.body["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    let own = ["same-origin", "cors", "empty"];
    let with_token = from_page(
        &server,
        Method::GET,
        &format!("{STREAM}&token={token}"),
        own,
    );
    let mut answer = with_token.send().await.expect("an answer");
    assert_eq!(event(&mut answer, "done").await["status"], "answered");

    let key = server.key(toolscout::keys::Scope::Search, "default");
    let without_key = server.get(&format!("{STREAM}&token={token}")).await;
    assert_eq!(
        (without_key.status.as_u16(), without_key.error_code()),
        (401, "missing_key")
    );
    let fresh = "/agent/chat/stream?query=hello";
    let mut answer = server
        .request(Method::GET, fresh)
        .bearer_auth(key)
        .send()
        .await
        .expect("an answer");
    assert_eq!(event(&mut answer, "done").await["status"], "answered");
}

#[tokio::test]
async fn a_form_starts_no_run() {
    let model = Model::new(Manner::Answers);
    let server = model.serve(|_| {}).await;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let form = server
            .request(Method::POST, "/v1/agent/chat")
            .header("content-type", kind);
        let answer = read(form.body(r#"{"query":"read my mail"}"#)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (415, "unsupported_media_type"),
            "{kind}"
        );
    }
    assert_eq!(model.asked(), 0);
}

#[tokio::test]
async fn what_a_person_opens_is_shown_but_not_in_a_frame() {
    let server = Server::start().await;
    for path in ["/docs", "/openapi.json", "/livez"] {
        let answer = read(from_page(
            &server,
            Method::GET,
            path,
            ["none", "navigate", "document"],
        ))
        .await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["x-frame-options"], "DENY", "{path}");
        let policies = answer.headers.get_all("content-security-policy").iter();
        assert!(
            policies
                .into_iter()
                .any(|policy| policy == "frame-ancestors 'none'"),
            "{path}"
        );
    }
}
