//! The check of the language model: is its server there, which models has it, can they call tools?

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use super::{Check, client_for};
use crate::cli::llm::LlmArgs;
use crate::llm::provider::WORDS;
use crate::printable::{counted, excerpt, line};
use crate::tls::root_cause;

/// Most models that are named, and that Ollama is asked about.
const MAX_NAMED: usize = 12;
/// Most bytes of a list of models.
const MAX_BYTES: u64 = 8 << 20;
/// A model that calls tools and fits on most machines.
const SUGGESTED: &str = "qwen3:8b";

/// A model of a server.
struct Model {
    name: String,
    /// `None` if the server does not say.
    calls_tools: Option<bool>,
}

/// Why there is no list of models.
enum Problem {
    Unreachable(String),
    Refused(u16),
    NoList(String),
}

/// Asks the server of a model for its models.
pub fn check(llm: &LlmArgs) -> Check {
    const NAME: &str = "language model";
    if let Some(script) = llm.script() {
        if !script.is_file() {
            let detail = format!("there is no file {}", line(&script.to_string_lossy()));
            return Check::broken(NAME, detail, "correct --llm or TOOLSCOUT_LLM");
        }
        return Check::ok(
            NAME,
            format!("the script {}", line(&script.to_string_lossy())),
        );
    }
    let url = llm.base_url().unwrap_or_default();
    if !url.contains("://") {
        let detail = format!("{} is neither a provider nor a URL", line(url));
        return Check::broken(NAME, detail, format!("name {WORDS}, or begin with http://"));
    }
    let (models, is_ollama) = match listed_models(llm) {
        Ok(listed) => listed,
        // Nobody asked for a model, and searches need none.
        Err(Problem::Unreachable(reason)) if !llm.is_chosen() => {
            let detail = format!("none at {url} ({reason}); only the agent needs one");
            let remedy = format!("`ollama pull {SUGGESTED}`, or name another with --llm");
            return Check::missing(NAME, detail, remedy);
        }
        Err(problem) => return Check::broken(NAME, problem.text(url), problem.remedy()),
    };
    let listed = format!("{url} has {}", list(&models));
    let Some(wanted) = llm.chosen_model() else {
        return match models.iter().find(|model| model.calls_tools != Some(false)) {
            Some(model) => Check {
                remedy: Some(format!("choose one, as --model {}", model.name)),
                ..Check::ok(NAME, listed)
            },
            None if models.is_empty() => Check::missing(NAME, listed, pull(SUGGESTED)),
            None => Check::missing(
                NAME,
                format!("{listed}, and none that calls tools"),
                format!("{}, or use one of them with --mode manual", pull(SUGGESTED)),
            ),
        };
    };
    match models.iter().find(|model| is_named(model, wanted)) {
        None if is_ollama => {
            Check::broken(NAME, format!("no {}; {listed}", line(wanted)), pull(wanted))
        }
        None => Check::broken(
            NAME,
            format!("no {}; {listed}", line(wanted)),
            "choose one of them with --model",
        ),
        Some(model) if model.calls_tools == Some(false) => Check {
            remedy: Some(format!(
                "use it with --mode manual, or choose one that calls tools, as {}",
                pull(SUGGESTED)
            )),
            ..Check::ok(
                NAME,
                format!(
                    "{} at {url}, which has no tool calls of its own",
                    model.name
                ),
            )
        },
        Some(model) => Check::ok(NAME, format!("{} at {url}{}", model.name, ability(model))),
    }
}

/// The models of a server, and whether it is Ollama.
fn listed_models(llm: &LlmArgs) -> Result<(Vec<Model>, bool), Problem> {
    let server = Server::new(llm)?;
    let mut models = server.models()?;
    let is_ollama = server.is_ollama();
    if is_ollama {
        // One request for each, so only for the model in use or for those that are printed.
        let wanted = llm.chosen_model();
        let is_asked_of = |model: &&mut Model| wanted.is_none_or(|wanted| is_named(model, wanted));
        for model in models.iter_mut().filter(is_asked_of).take(MAX_NAMED) {
            model.calls_tools = server.calls_tools(&model.name);
        }
    }
    Ok((models, is_ollama))
}

impl Problem {
    fn text(&self, url: &str) -> String {
        match self {
            Problem::Unreachable(reason) => format!("{url} cannot be reached ({reason})"),
            Problem::Refused(status) => format!("{url}/models answered {status}"),
            Problem::NoList(reason) => format!("{url}/models is no list of models ({reason})"),
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Problem::Refused(401 | 403) => "set --llm-key or TOOLSCOUT_LLM_KEY",
            Problem::Unreachable(_) => "start it, or correct --llm or TOOLSCOUT_LLM",
            Problem::Refused(_) | Problem::NoList(_) => {
                "--llm must be the base URL of the API, which usually ends in /v1"
            }
        }
    }
}

/// The server of a model.
struct Server<'a> {
    llm: &'a LlmArgs,
    client: Client,
    url: &'a str,
}

impl<'a> Server<'a> {
    fn new(llm: &'a LlmArgs) -> Result<Self, Problem> {
        let url = llm.base_url().unwrap_or_default().trim_end_matches('/');
        let client = client_for(url).map_err(|error| Problem::Unreachable(error.to_string()))?;
        Ok(Server { llm, client, url })
    }

    fn ask(&self, request: RequestBuilder) -> Result<Value, Problem> {
        use std::io::Read;

        let key = self.llm.key();
        let headers = self.llm.api().headers(key.as_deref());
        let mut request = request;
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let answer = match request.send() {
            Ok(answer) => answer,
            Err(error) => return Err(Problem::Unreachable(root_cause(&error))),
        };
        if !answer.status().is_success() {
            return Err(Problem::Refused(answer.status().as_u16()));
        }
        // Bounded, because anything may listen at that address.
        serde_json::from_reader(answer.take(MAX_BYTES))
            .map_err(|error| Problem::NoList(error.to_string()))
    }

    fn models(&self) -> Result<Vec<Model>, Problem> {
        let listed = self.ask(self.client.get(format!("{}/models", self.url)))?;
        let Some(listed) = listed["data"].as_array() else {
            return Err(Problem::NoList("it has no field data".to_owned()));
        };
        let mut models = Vec::new();
        for model in listed {
            if let Some(name) = model["id"].as_str() {
                models.push(Model {
                    name: excerpt(name, 200),
                    calls_tools: None,
                });
            }
        }
        Ok(models)
    }

    /// Whether it is Ollama, which alone says what a model is able to do.
    fn is_ollama(&self) -> bool {
        let Some(root) = self.url.strip_suffix("/v1") else {
            return false;
        };
        // Ollama speaks no TLS itself, so a provider is not asked for what it does not have.
        if !root.starts_with("http://") {
            return false;
        }
        let version = self.ask(self.client.get(format!("{root}/api/version")));
        version.is_ok_and(|answer| answer["version"].is_string())
    }

    /// Whether Ollama says that a model calls tools.
    fn calls_tools(&self, model: &str) -> Option<bool> {
        let root = self.url.strip_suffix("/v1")?;
        let request = self.client.post(format!("{root}/api/show"));
        let shown = self.ask(request.json(&json!({ "model": model }))).ok()?;
        let capabilities = shown["capabilities"].as_array()?;
        Some(capabilities.iter().any(|capability| capability == "tools"))
    }
}

/// Ollama lists `qwen3` as `qwen3:latest`.
fn is_named(model: &Model, wanted: &str) -> bool {
    model.name == wanted || model.name.strip_suffix(":latest") == Some(wanted)
}

fn pull(model: &str) -> String {
    format!("`ollama pull {}`", line(model))
}

fn ability(model: &Model) -> &'static str {
    match model.calls_tools {
        None => "",
        Some(true) => " (calls tools)",
        Some(false) => " (no tools)",
    }
}

fn list(models: &[Model]) -> String {
    if models.is_empty() {
        return "no models".to_owned();
    }
    let named = models.iter().take(MAX_NAMED);
    let mut names: Vec<String> = named
        .map(|model| format!("{}{}", line(&model.name), ability(model)))
        .collect();
    if models.len() > MAX_NAMED {
        names.push("…".to_owned());
    }
    format!("{}: {}", counted(models.len(), "model"), names.join(", "))
}
