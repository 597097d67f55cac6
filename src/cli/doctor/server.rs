//! The check of a running server: does it take requests?

use std::io::Read as _;
use std::time::Instant;

use reqwest::Url;
use reqwest::blocking::Response;
use serde_json::Value;

use super::{Check, client_for};
use crate::printable::{excerpt, line};
use crate::tls::root_cause;

/// Most bytes of an answer that are read.
const MAX_BYTES: u64 = 64 << 10;
/// Most characters of an answer that are printed.
const MAX_SHOWN: usize = 200;

/// The address of a server on a command line.
pub fn parse_address(text: &str) -> Result<Url, &'static str> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
        _ => Err("write the address with http:// or https://, such as http://127.0.0.1:7700"),
    }
}

/// Asks `/readyz` of a server.
pub fn check(server: &Url) -> Check {
    const NAME: &str = "server";
    let asked = format!("{}/readyz", server.as_str().trim_end_matches('/'));
    let start = Instant::now();
    let answer = client_for(&asked).and_then(|client| client.get(&asked).send());
    match answer {
        Ok(answer) if answer.status().is_success() => {
            let ms = start.elapsed().as_secs_f64() * 1e3;
            Check::ok(NAME, format!("{server} takes requests ({ms:.0} ms)"))
        }
        Ok(answer) => {
            let status = answer.status().as_u16();
            let detail = format!("{asked} answered {status}: {}", message(answer));
            let remedy = match status {
                404 => "give the address without a path, such as http://127.0.0.1:7700",
                _ => "wait until it is ready, or read its log",
            };
            Check::broken(NAME, detail, remedy)
        }
        Err(error) => {
            let detail = format!("{asked} cannot be reached: {}", root_cause(&error));
            Check::broken(
                NAME,
                detail,
                "start `toolscout serve`, or correct the address",
            )
        }
    }
}

/// The message of an error, or the beginning of what else was answered.
fn message(answer: Response) -> String {
    let mut text = String::new();
    // What was read before an error is shown.
    let _ = answer.take(MAX_BYTES).read_to_string(&mut text);
    // A proxy before the server may answer in HTML.
    let error: Value = serde_json::from_str(&text).unwrap_or_default();
    let said = error["error"]["message"].as_str().unwrap_or(&text);
    line(&excerpt(said, MAX_SHOWN))
}
