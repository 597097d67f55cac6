//! A real Chromium. `TOOLSCOUT_TEST_CHROMIUM` names it; `scripts/chromium.sh` installs it.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use tokio::net::TcpListener;

use super::agent::{Manner, Model};

/// Ends the browser with its owner.
struct Chromium(Child);

impl Chromium {
    fn open(program: &Path, profile: &Path, address: &str) -> Self {
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ];
        let mut command = Command::new(program);
        command
            .args(flags)
            .arg(format!("--user-data-dir={}", profile.display()));
        // A page that is only loaded would be closed before its requests are made.
        command.arg("--remote-debugging-port=0").arg(address);
        Chromium(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("Chromium starts"),
        )
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the agent in every way that a page knows, and goes there itself once the other ways were
/// tried.
fn page(server: &str) -> String {
    let target = format!("{server}/agent/chat/stream?query=");
    format!(
        r#"<!doctype html><title>A page</title>
<iframe src="{target}iframe"></iframe>
<img src="{target}image">
<iframe name="answer"></iframe>
<form id="form" method="post" enctype="text/plain" target="answer" action="{server}/v1/agent/chat">
  <input name='{{"query":"form","conversation":"' value='c"}}'>
</form>
<script>
  const loaded = new Promise((resolve) => addEventListener("load", resolve));
  document.getElementById("form").submit();
  const closed = new Promise((resolve) => {{
    new EventSource("{target}events").onerror = (event) => resolve(event.target.close());
  }});
  const question = {{ method: "POST", mode: "no-cors", body: '{{"query":"fetch"}}' }};
  const tried = [loaded, closed, fetch("{target}fetch", {{ mode: "no-cors" }}), fetch("{server}/v1/agent/chat", question)];
  Promise.allSettled(tried).then(() => {{ location = "{target}navigation"; }});
</script>"#
    )
}

/// How often the agent's routes were asked, by the metrics.
fn requests(metrics: &str) -> u64 {
    let of_agent = |line: &&str| {
        line.starts_with("toolscout_http_requests_total") && line.contains("/agent/chat")
    };
    let counters = metrics.lines().filter(of_agent);
    counters
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[tokio::test]
#[ignore = "needs Chromium, which TOOLSCOUT_TEST_CHROMIUM names; .ci/run runs it"]
async fn a_real_browser_runs_nothing_for_other_sites() {
    let chromium =
        std::env::var_os("TOOLSCOUT_TEST_CHROMIUM").expect("TOOLSCOUT_TEST_CHROMIUM is set");
    // By the name that is in the address, the page is of another site or only of another port.
    for site in ["127.0.0.1", "localhost"] {
        let model = Model::new(Manner::Answers);
        let server = model.serve(|_| {}).await;
        let page = page(&server.url);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!(
            "http://{site}:{}/",
            listener.local_addr().expect("an address").port()
        );
        let router = Router::new().route("/", get(async move || Html(page)));
        let serving = tokio::spawn(axum::serve(listener, router).into_future());
        let profile = tempfile::tempdir().expect("a temporary folder");
        let browser = Chromium::open(Path::new(&chromium), profile.path(), &address);
        // iframe, image, form, events, two fetches, and the navigation.
        server
            .wait_for("/metrics", |metrics| {
                requests(metrics.as_str().unwrap_or_default()) >= 7
            })
            .await;
        drop(browser);
        serving.abort();
        assert_eq!(model.asked(), 0, "a page of {site} ran the agent");
    }
}
