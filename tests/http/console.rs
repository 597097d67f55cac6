use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use reqwest::{Method, header};

use super::server::{Server, read, read_response};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

#[tokio::test]
async fn a_browser_gets_the_console_and_a_program_the_addresses_to_begin_with() {
    let server = Server::start().await;
    let page = server
        .request(Method::GET, "/")
        .header(header::ACCEPT, BROWSER);
    let page = read(page).await;
    assert_eq!(page.status, 200);
    assert_eq!(
        page.headers[header::CONTENT_TYPE],
        "text/html; charset=utf-8"
    );
    assert!(page.body.as_str().unwrap().starts_with("<!doctype html>"));
    for accept in [None, Some("*/*"), Some("application/json")] {
        let mut request = server.request(Method::GET, "/");
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        let answer = read(request).await;
        assert_eq!(answer.status, 200, "{accept:?}");
        for (name, address) in [
            ("console", "/ in a browser"),
            ("docs", "/docs"),
            ("search", "POST /v1/search"),
            ("mcp", "/mcp"),
        ] {
            assert_eq!(answer.body[name], address, "{accept:?}");
        }
        let varies: Vec<_> = answer.headers.get_all(header::VARY).iter().collect();
        assert!(varies.iter().any(|by| *by == "accept"), "{varies:?}");
    }
}

#[tokio::test]
async fn the_console_runs_under_a_strict_policy() {
    let server = Server::start().await;
    let page = server
        .request(Method::GET, "/")
        .header(header::ACCEPT, BROWSER);
    let script = server.request(Method::GET, "/console/app.js");
    for answer in [read(page).await, read(script).await] {
        let policy = answer.policy();
        for directive in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(directive), "{directive} is not in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(answer.headers[header::REFERRER_POLICY], "no-referrer");
    }
}

#[tokio::test]
async fn a_file_is_sent_once_and_an_unknown_one_is_an_error_of_the_api() {
    let server = Server::start().await;
    let first = server.get("/console/style.css").await;
    assert_eq!(
        first.headers[header::CONTENT_TYPE],
        "text/css; charset=utf-8"
    );
    assert_eq!(first.headers[header::CACHE_CONTROL], "no-cache");
    let again = server
        .request(Method::GET, "/console/style.css")
        .header(header::IF_NONE_MATCH, &first.headers[header::ETAG]);
    let again = read(again).await;
    assert_eq!(
        (again.status.as_u16(), again.body.as_str()),
        (304, Some(""))
    );
    assert_eq!(again.headers[header::ETAG], first.headers[header::ETAG]);
    for path in ["/console/none.js", "/console/", "/console/../Cargo.toml"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.error_code()),
            (404, "not_found"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_file_is_compressed_for_who_takes_that() {
    let server = Server::start().await;
    let path = "/console/style.css";
    let plain = server.get(path).await;
    assert!(plain.headers.get(header::CONTENT_ENCODING).is_none());
    let asking = || {
        let request = server.request(Method::GET, path);
        request.header(header::ACCEPT_ENCODING, "gzip, br")
    };
    let answer = asking().send().await.unwrap();
    let headers = answer.headers().clone();
    assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
    assert_eq!(
        headers[header::CONTENT_TYPE],
        plain.headers[header::CONTENT_TYPE]
    );
    for headers in [&headers, &plain.headers] {
        let mut varies = headers.get_all(header::VARY).iter();
        assert!(varies.any(|by| by == "accept-encoding"), "{headers:?}");
    }
    let gzip = answer.bytes().await.unwrap();
    assert!(gzip.starts_with(&[0x1f, 0x8b]));
    let plain_bytes = plain.body.as_str().unwrap().len();
    assert!(
        gzip.len() * 2 < plain_bytes,
        "{} of {plain_bytes}",
        gzip.len()
    );
    // A cache holds both, so each has a tag of its own.
    assert_ne!(headers[header::ETAG], plain.headers[header::ETAG]);
    let again = asking().header(header::IF_NONE_MATCH, &headers[header::ETAG]);
    let again = read(again).await;
    assert_eq!(again.status, 304);
    assert!(again.headers.get(header::CONTENT_ENCODING).is_none());
}

#[tokio::test]
async fn the_page_needs_no_key_and_what_it_shows_does() {
    let server = Server::start().await;
    server.key(toolscout::keys::Scope::Search, "*");
    let page = server
        .request(Method::GET, "/")
        .header(header::ACCEPT, BROWSER);
    assert_eq!(read(page).await.status, 200);
    assert_eq!(server.get("/console/app.js").await.status, 200);
    assert_eq!(server.get("/v1/catalogs").await.error_code(), "missing_key");
}

/// Ends a process with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn ui_serves_on_loopback_also_where_no_browser_opens() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolscout"));
    command
        .args(["ui", "--embedder", "none", "--data"])
        .arg(dir.path())
        // Nothing that opens a browser is found there.
        .env("PATH", dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut program = Running(command.spawn().unwrap());
    let mut first = String::new();
    let stdout = program.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut first).unwrap();
    let url = first.trim().strip_prefix("listening on ").unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{first}");
    let stderr = BufReader::new(program.0.stderr.take().unwrap());
    let said = stderr.lines().map_while(Result::ok);
    let advice = format!("open {url}/ yourself");
    assert!(
        said.into_iter().any(|line| line.ends_with(&advice)),
        "it says what to do"
    );
    let client = toolscout::tls::client().build().unwrap();
    let page = client.get(url).header(header::ACCEPT, BROWSER);
    let page = read_response(page.send().await.unwrap()).await;
    assert_eq!(page.status, 200);
}
