//! `web_search`: searches the web through Tavily's API or a SearXNG server.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, RequestBuilder, Url};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolscout_index::Tool;

use crate::tools::builtin::{BuiltinError, definition, number, text};
use crate::tools::net::body;
use crate::tools::{Arguments, Callable, ToolFailure, UserTool};
use toolscout_base::known_secrets;
use toolscout_base::printable::excerpt;
use toolscout_base::tls::root_cause;

/// The address of Tavily's API.
const TAVILY: &str = "https://api.tavily.com";
/// The environment variable in which people have their key of Tavily.
const TAVILY_KEY: &str = "TAVILY_API_KEY";
/// The environment variable for the address of a SearXNG server.
const SEARXNG_URL: &str = "SEARXNG_URL";
/// Most results that a model may ask for.
const MAX_RESULTS: u64 = 20;
/// Longest query in characters; Tavily refuses longer ones.
const MAX_QUERY_CHARS: usize = 400;
/// Most characters of a result's text.
const CONTENT_CHARS: usize = 2_000;
/// Longest answer of a provider in bytes.
const MAX_BYTES: usize = 4 << 20;
/// The periods in which results can be wanted, in the words of both providers.
const TIME_RANGES: [&str; 4] = ["day", "week", "month", "year"];

/// Who searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchProvider {
    /// Tavily's API, which wants a key.
    Tavily,
    /// A SearXNG server with JSON among its formats.
    Searxng,
}

/// The settings of `web_search`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchConfig {
    /// Who searches. Without it, Tavily if its key is in the environment, else SearXNG if its
    /// address is; with neither, there is no tool.
    pub provider: Option<SearchProvider>,
    /// The provider's address; without it that of Tavily, or the value of `SEARXNG_URL`.
    pub url: Option<String>,
    /// The environment variable with Tavily's key.
    pub key_env: String,
    /// Results of a search that asks for no number.
    pub max_results: u64,
    /// Time limit of a search in seconds.
    pub timeout_s: u64,
}

impl Default for SearchConfig {
    fn default() -> Self {
        SearchConfig {
            provider: None,
            url: None,
            key_env: TAVILY_KEY.to_owned(),
            max_results: 5,
            timeout_s: 20,
        }
    }
}

/// The tool `web_search`.
pub struct WebSearch {
    client: Client,
    provider: SearchProvider,
    url: Url,
    key: Option<String>,
    config: SearchConfig,
}

impl WebSearch {
    /// The tool with these settings; `None` if they leave the provider open and the environment
    /// names none.
    ///
    /// # Errors
    /// [`BuiltinError::Search`] and [`BuiltinError::Client`].
    pub fn new(
        config: &SearchConfig,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, BuiltinError> {
        let is_set = |value: &String| !value.is_empty();
        let key = environment(&config.key_env).filter(is_set);
        if let Some(key) = &key {
            known_secrets::add(key);
        }
        let searxng = environment(SEARXNG_URL).filter(is_set);
        let Some(provider) = config.provider.or(provider_of(&key, &searxng)) else {
            return Ok(None);
        };
        let url = match provider {
            SearchProvider::Tavily => Some(TAVILY.to_owned()),
            SearchProvider::Searxng => searxng,
        };
        let Some(url) = config.url.clone().or(url) else {
            return Err(BuiltinError::Search(format!(
                "the address of the SearXNG server is missing; set `url` or {SEARXNG_URL}"
            )));
        };
        if provider == SearchProvider::Tavily && key.is_none() {
            let name = &config.key_env;
            return Err(BuiltinError::Search(format!(
                "Tavily wants a key; set the variable {name}"
            )));
        }
        let joined = format!("{}/search", url.trim_end_matches('/'));
        let parsed = match Url::parse(&joined) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => url,
            _ => {
                return Err(BuiltinError::Search(format!(
                    "{url:?} is not the address of a server; begin it with http:// or https://"
                )));
            }
        };
        let client = toolscout_base::tls::client()
            // A redirected request would take the key to another host.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(config.timeout_s))
            .build()?;
        Ok(Some(WebSearch {
            client,
            provider,
            url: parsed,
            key,
            config: config.clone(),
        }))
    }

    fn request(&self, query: &str, results: u64, time_range: Option<&str>) -> RequestBuilder {
        match self.provider {
            SearchProvider::Tavily => {
                let mut wanted = json!({ "query": query, "max_results": results });
                if let Some(range) = time_range {
                    wanted["time_range"] = range.into();
                }
                let request = self.client.post(self.url.clone()).json(&wanted);
                request.bearer_auth(self.key.as_deref().unwrap_or_default())
            }
            SearchProvider::Searxng => {
                let mut url = self.url.clone();
                let mut parameters = url.query_pairs_mut();
                parameters
                    .append_pair("q", query)
                    .append_pair("format", "json");
                parameters.extend_pairs(time_range.map(|range| ("time_range", range)));
                drop(parameters);
                self.client.get(url)
            }
        }
    }

    async fn search(&self, request: RequestBuilder) -> Result<Value, ToolFailure> {
        let host = self.url.host_str().unwrap_or_default();
        let failed =
            |reason: String| ToolFailure::new(format!("the search at {host} failed: {reason}"));
        // The address of a SearXNG server is of the settings, so it may be private.
        let answer = request.send().await;
        let answer = answer.map_err(|error| failed(root_cause(&error)))?;
        let status = answer.status();
        let bytes = body(answer, MAX_BYTES).await;
        let bytes = bytes.map_err(|error| failed(error.to_string()))?;
        if !status.is_success() {
            let said = excerpt(&said(&bytes), 200);
            return Err(failed(format!(
                "it answered {status}: {said}{}",
                step(self.provider, status.as_u16())
            )));
        }
        let answer = serde_json::from_slice(&bytes);
        answer.map_err(|error| failed(format!("its answer is no JSON ({error})")))
    }
}

impl std::fmt::Debug for WebSearch {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebSearch({:?} at {})", self.provider, self.url)
    }
}

/// The provider that the environment names.
fn provider_of(key: &Option<String>, searxng: &Option<String>) -> Option<SearchProvider> {
    match (key, searxng) {
        (Some(_), _) => Some(SearchProvider::Tavily),
        (None, Some(_)) => Some(SearchProvider::Searxng),
        (None, None) => None,
    }
}

/// What a provider says of an error: Tavily in `detail.error`.
fn said(body: &[u8]) -> String {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    match answer.pointer("/detail/error").or(answer.get("detail")) {
        Some(Value::String(message)) => message.clone(),
        _ => String::from_utf8_lossy(body).trim().to_owned(),
    }
}

/// What the owner can do about an error.
fn step(provider: SearchProvider, status: u16) -> &'static str {
    match (provider, status) {
        (SearchProvider::Tavily, 401) => "; the key is wrong",
        (SearchProvider::Tavily, 429 | 432 | 433) => "; the plan's searches are used up",
        (SearchProvider::Searxng, 403) => "; `json` must be among `search.formats` of its settings",
        _ => "",
    }
}

#[async_trait]
impl Callable for WebSearch {
    async fn call(&self, arguments: Arguments) -> Result<Value, ToolFailure> {
        let query = excerpt(text(&arguments, "query")?.trim(), MAX_QUERY_CHARS - 1);
        if query.is_empty() {
            return Err(ToolFailure::new("`query` is empty; say what to search for"));
        }
        let results = number(&arguments, "max_results").unwrap_or(self.config.max_results);
        let results = results.clamp(1, MAX_RESULTS);
        let time_range = arguments.get("time_range").and_then(Value::as_str);
        let request = self.request(&query, results, time_range);
        let answer = self.search(request).await?;
        let found = answer["results"].as_array().into_iter().flatten();
        // SearXNG gives a whole page, whatever was asked for.
        let most = usize::try_from(results).unwrap_or(usize::MAX);
        let found: Vec<Value> = found.filter_map(result_of).take(most).collect();
        Ok(json!({ "query": query, "results": found }))
    }

    /// By its own `timeout_s`.
    fn limits_itself(&self) -> bool {
        true
    }
}

/// A result, in the same words for all providers; `None` for one without an address.
fn result_of(entry: &Value) -> Option<Value> {
    let text = |name: &str| {
        entry[name]
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty())
    };
    let mut result = Map::new();
    result.insert("title".to_owned(), text("title").unwrap_or_default().into());
    result.insert("url".to_owned(), text("url")?.into());
    let content = excerpt(text("content").unwrap_or_default(), CONTENT_CHARS);
    result.insert("content".to_owned(), content.into());
    // Tavily's name for it, then SearXNG's.
    if let Some(date) = text("published_date").or(text("publishedDate")) {
        result.insert("published".to_owned(), date.into());
    }
    Some(Value::Object(result))
}

impl UserTool for WebSearch {
    fn definition(&self) -> Tool {
        let results = format!("How many results, {} if left out.", self.config.max_results);
        let properties = json!({
            "query": { "type": "string", "description": "What to search for, as one would type it." },
            "max_results": { "type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": results },
            "time_range": { "type": "string", "enum": TIME_RANGES, "description": "Only pages of this last period." },
        });
        let mut tool = definition(
            "web_search",
            "Searches the web and gives the best pages with an excerpt of each.",
            properties,
            &["query"],
        );
        tool.annotations.read_only_hint = Some(true);
        tool.annotations.open_world_hint = Some(true);
        tool
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    pub use toolscout_models::endpoint::double::{Double, Reply, Request};

    fn environment<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| {
            let found = pairs.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        }
    }

    fn tool(config: SearchConfig, pairs: &[(&str, &str)]) -> WebSearch {
        WebSearch::new(&config, environment(pairs))
            .unwrap()
            .unwrap()
    }

    fn arguments(value: Value) -> Arguments {
        value.as_object().unwrap().clone()
    }

    /// An answer in the shape that Tavily documents.
    fn answer_of_tavily(_: usize, _: &Request) -> Reply {
        let page = |n: u32| {
            json!({ "title": format!("Page {n}"), "url": format!("https://pages.example/{n}"),
                "content": " What it says. ", "score": 0.9, "raw_content": null })
        };
        let answer = json!({
            "query": "q", "follow_up_questions": null, "answer": null, "images": [],
            "results": [page(1), { "title": "no address" }, page(2), page(3)],
            "response_time": 1.1, "request_id": "r",
        });
        Reply::status(200, &answer.to_string())
    }

    #[tokio::test]
    async fn tavily_is_asked_with_its_key_and_gives_results() {
        let double = Double::start(answer_of_tavily);
        let config = SearchConfig {
            url: Some(double.url.clone()),
            ..SearchConfig::default()
        };
        let tool = tool(config, &[("TAVILY_API_KEY", "tvly-secret")]);
        assert!(!format!("{tool:?}").contains("secret"));
        let given = json!({ "query": "rain in Bergen", "max_results": 2, "time_range": "week" });
        let found = tool.call(arguments(given)).await.unwrap();
        let page = |n: u32| json!({ "title": format!("Page {n}"), "url": format!("https://pages.example/{n}"), "content": "What it says." });
        assert_eq!(
            found,
            json!({ "query": "rain in Bergen", "results": [page(1), page(2)] })
        );

        let request = double.requests().remove(0);
        assert!(
            request.line.starts_with("POST /search "),
            "{}",
            request.line
        );
        assert_eq!(request.header("authorization"), Some("Bearer tvly-secret"));
        let body = json!({ "query": "rain in Bergen", "max_results": 2, "time_range": "week" });
        assert_eq!(request.body, body);
    }

    #[tokio::test]
    async fn searxng_is_asked_without_a_key_and_gives_results() {
        let double = Double::start(|_, _| {
            let result = json!({ "url": "https://a.example/", "title": "A", "content": "c", "engine": "e",
                "publishedDate": "2026-01-02T00:00:00", "score": 1.0, "category": "general" });
            let answer = json!({ "query": "q", "number_of_results": 0, "results": [result], "answers": [], "suggestions": [] });
            Reply::status(200, &answer.to_string())
        });
        let tool = tool(SearchConfig::default(), &[("SEARXNG_URL", &double.url)]);
        let found = tool
            .call(arguments(json!({ "query": "a b" })))
            .await
            .unwrap();
        assert_eq!(found["results"][0]["published"], "2026-01-02T00:00:00");
        let line = &double.requests()[0].line;
        assert!(line.starts_with("GET /search?q=a+b&format=json "), "{line}");
    }

    #[tokio::test]
    async fn errors_of_a_provider_say_what_to_do() {
        let cases = [
            (
                SearchProvider::Tavily,
                401,
                r#"{"detail":{"error":"Unauthorized: missing or invalid API key."}}"#,
                "invalid API key.; the key is wrong",
            ),
            (
                SearchProvider::Searxng,
                403,
                "<h1>Forbidden</h1>",
                "`json` must be among `search.formats`",
            ),
            (
                SearchProvider::Searxng,
                200,
                "<html>",
                "its answer is no JSON",
            ),
            (SearchProvider::Searxng, 302, "", "it answered 302"),
        ];
        for (provider, status, answer, expected) in cases {
            let double = Double::start(move |_, _| Reply::status(status, answer));
            let config = SearchConfig {
                provider: Some(provider),
                url: Some(double.url.clone()),
                ..SearchConfig::default()
            };
            let tool = tool(config, &[("TAVILY_API_KEY", "k")]);
            let failure = tool
                .call(arguments(json!({ "query": "q" })))
                .await
                .unwrap_err();
            assert!(failure.message.contains(expected), "{failure}");
        }
    }

    #[test]
    fn the_environment_decides_who_searches_and_a_named_provider_must_be_complete() {
        let config = SearchConfig::default();
        assert!(WebSearch::new(&config, environment(&[])).unwrap().is_none());
        let both = [
            ("TAVILY_API_KEY", "k"),
            ("SEARXNG_URL", "http://127.0.0.1:8888"),
        ];
        assert_eq!(tool(config.clone(), &both).provider, SearchProvider::Tavily);
        let cases = [
            (
                SearchProvider::Tavily,
                None,
                "set the variable TAVILY_API_KEY",
            ),
            (SearchProvider::Searxng, None, "set `url` or SEARXNG_URL"),
            (
                SearchProvider::Searxng,
                Some("127.0.0.1:8888"),
                "begin it with http://",
            ),
        ];
        for (provider, url, expected) in cases {
            let config = SearchConfig {
                provider: Some(provider),
                url: url.map(str::to_owned),
                ..SearchConfig::default()
            };
            let error = WebSearch::new(&config, environment(&[])).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
