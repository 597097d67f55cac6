//! A node: the program itself, started with the store.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use super::postgres::{PASSWORD, Postgres};

/// Nothing here takes longer, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A running node, killed with its owner.
pub struct Node {
    pub url: String,
    client: Client,
    child: Child,
    /// Sent with every request.
    key: Option<String>,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub retry_after: bool,
    pub body: Value,
}

impl Answer {
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("no error")
    }

    pub fn generation(&self) -> u64 {
        self.body["generation"]
            .as_u64()
            .unwrap_or_else(|| panic!("no generation: {self:?}"))
    }
}

/// The program with a store and the table alone, without a password.
pub fn program(data: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolscout"));
    command
        .env_remove("TOOLSCOUT_STORE")
        .arg("--data")
        .arg(data)
        .args(arguments);
    command
}

/// Runs a verb to its end, with the password in the environment.
pub fn run(data: &Path, arguments: &[&str]) -> Output {
    program(data, arguments)
        .env("PGPASSWORD", PASSWORD)
        .output()
        .expect("it runs")
}

impl Node {
    pub fn start(postgres: &Postgres, data: &Path) -> Self {
        Node::start_with(
            data,
            &["--embedder", "table", "--store", &postgres.address()],
        )
    }

    /// With these arguments more; without `--store` a single machine.
    pub fn start_with(data: &Path, arguments: &[&str]) -> Self {
        Node::start_in(data, arguments, &[])
    }

    /// With these variables, too.
    pub fn start_in(data: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = program(data, &["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env("PGPASSWORD", PASSWORD)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let stderr = child.stderr.take().expect("it is piped");
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            let _ = BufReader::new(stderr).read_to_string(&mut log);
            log
        });
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let Some(url) = line.trim().strip_prefix("listening on ") else {
            panic!("it did not start: {}", log.join().unwrap_or_default());
        };
        let node = Node {
            url: url.to_owned(),
            client: toolscout::tls::blocking_client()
                .timeout(PATIENCE)
                .build()
                .expect("a client"),
            child,
            key: None,
        };
        node.until("/readyz", |answer| answer.status == 200);
        node
    }

    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends this key from now on.
    pub fn use_key(&mut self, key: &str) {
        self.key = Some(key.to_owned());
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    pub fn get(&self, path: &str) -> Answer {
        send(self.request(Method::GET, path))
    }

    /// As [`Node::get`], with another key.
    pub fn get_as(&self, key: &str, path: &str) -> Answer {
        send(
            self.client
                .get(format!("{}{path}", self.url))
                .bearer_auth(key),
        )
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        send(self.request(Method::POST, path).json(body))
    }

    pub fn put(&self, path: &str, body: &Value) -> Answer {
        send(self.request(Method::PUT, path).json(body))
    }

    pub fn delete(&self, path: &str) -> Answer {
        send(self.request(Method::DELETE, path))
    }

    /// Writes tools to a catalog, at once.
    pub fn write(&self, catalog: &str, tools: &[Value]) -> Answer {
        let answer = self.post(&format!("/v1/catalogs/{catalog}/tools"), &json!(tools));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }

    pub fn search(&self, catalog: &str, body: &Value) -> Answer {
        self.post(&format!("/v1/catalogs/{catalog}/search"), body)
    }

    /// Asks until the answer is as wished.
    pub fn until(&self, path: &str, wished: impl Fn(&Answer) -> bool) -> Answer {
        let begun = Instant::now();
        loop {
            if let Ok(response) = self.request(Method::GET, path).send() {
                let answer = read(response);
                if wished(&answer) {
                    return answer;
                }
                assert!(begun.elapsed() < PATIENCE, "{path}: {answer:?}");
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: no answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(request: RequestBuilder) -> Answer {
    read(request.send().expect("an answer"))
}

fn read(response: reqwest::blocking::Response) -> Answer {
    let status = response.status().as_u16();
    let retry_after = response.headers().contains_key("retry-after");
    let text = response.text().expect("a whole body");
    Answer {
        status,
        retry_after,
        body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
    }
}

pub fn tool(server: &str, name: &str, description: &str) -> Value {
    json!({
        "server": server,
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
    })
}

/// The ids of the hits with their scores.
pub fn scores(answer: &Answer) -> Vec<(String, f64)> {
    let hits = answer.body["hits"]
        .as_array()
        .unwrap_or_else(|| panic!("no hits: {answer:?}"));
    hits.iter()
        .map(|hit| {
            let id = hit["id"].as_str().expect("an id").to_owned();
            (id, hit["score"].as_f64().expect("a score"))
        })
        .collect()
}

pub fn ids(answer: &Answer) -> Vec<String> {
    scores(answer).into_iter().map(|(id, _)| id).collect()
}
