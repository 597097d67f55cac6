//! The parameters of a model in the words of each API.

use serde_json::{Map, Value, json};

use crate::llm::{Api, LlmError, provider};
use toolscout_base::config::{ModelParameters, ReasoningEffort};

/// The fields of a request that hold these parameters. `base_url` is where it goes.
///
/// # Errors
/// [`LlmError::Parameter`] for one that the API does not have, rather than leaving it out.
pub fn fields(
    parameters: &ModelParameters,
    api: Api,
    base_url: &str,
) -> Result<Map<String, Value>, LlmError> {
    match api {
        Api::OpenAi => of_openai(parameters, base_url),
        Api::Anthropic => of_anthropic(parameters),
        Api::Ollama => of_ollama(parameters),
    }
}

fn of_openai(parameters: &ModelParameters, base_url: &str) -> Result<Map<String, Value>, LlmError> {
    if parameters.num_ctx.is_some() {
        return refused(
            "num_ctx",
            "OpenAI's API has no such parameter; if the server is Ollama, speak its own API with --llm-api ollama",
        );
    }
    let mut fields = Map::new();
    set(&mut fields, "temperature", parameters.temperature);
    // OpenAI's models that think refuse the older name, and other servers know only that one.
    let is_openai = base_url.trim_end_matches('/') == provider::OPENAI.base_url;
    let max_tokens = if is_openai {
        "max_completion_tokens"
    } else {
        "max_tokens"
    };
    set(&mut fields, max_tokens, parameters.max_tokens);
    let effort = parameters.reasoning_effort.map(ReasoningEffort::name);
    set(&mut fields, "reasoning_effort", effort);
    set(&mut fields, "stop", stop(parameters));
    Ok(fields)
}

fn of_anthropic(parameters: &ModelParameters) -> Result<Map<String, Value>, LlmError> {
    if parameters.num_ctx.is_some() {
        return refused("num_ctx", "Anthropic's API has no such parameter");
    }
    // OpenAI's API takes up to 2.
    if let Some(temperature) = parameters.temperature
        && temperature > 1.0
    {
        return refused("temperature", "Anthropic's API takes 0 to 1");
    }
    let mut fields = Map::new();
    set(&mut fields, "temperature", parameters.temperature);
    set(&mut fields, "max_tokens", parameters.max_tokens);
    set(&mut fields, "stop_sequences", stop(parameters));
    if let Some(effort) = parameters.reasoning_effort {
        use ReasoningEffort::{High, Low, Max, Medium};
        if !matches!(effort, Low | Medium | High | Max) {
            return refused(
                "reasoning_effort",
                "Anthropic's API takes low, medium, high and max",
            );
        }
        fields.insert("output_config".into(), json!({ "effort": effort.name() }));
    }
    Ok(fields)
}

fn of_ollama(parameters: &ModelParameters) -> Result<Map<String, Value>, LlmError> {
    let mut options = Map::new();
    set(&mut options, "temperature", parameters.temperature);
    set(&mut options, "num_predict", parameters.max_tokens);
    set(&mut options, "num_ctx", parameters.num_ctx);
    set(&mut options, "stop", stop(parameters));
    let mut fields = Map::new();
    if !options.is_empty() {
        fields.insert("options".into(), options.into());
    }
    if let Some(effort) = parameters.reasoning_effort {
        use ReasoningEffort::{High, Low, Medium};
        let think = match effort {
            ReasoningEffort::None => json!(false),
            Low | Medium | High => json!(effort.name()),
            _ => {
                return refused(
                    "reasoning_effort",
                    "Ollama's API takes none, low, medium and high",
                );
            }
        };
        fields.insert("think".into(), think);
    }
    Ok(fields)
}

fn stop(parameters: &ModelParameters) -> Option<&[String]> {
    match parameters.stop.as_slice() {
        [] => None,
        stop => Some(stop),
    }
}

fn set(fields: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        fields.insert(name.to_owned(), value.into());
    }
}

fn refused<T>(name: &'static str, reason: &'static str) -> Result<T, LlmError> {
    Err(LlmError::Parameter { name, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> ModelParameters {
        ModelParameters {
            temperature: Some(0.5),
            max_tokens: Some(900),
            reasoning_effort: Some(ReasoningEffort::Low),
            num_ctx: Some(9000),
            stop: vec!["END".into()],
        }
    }

    fn without_num_ctx() -> ModelParameters {
        ModelParameters {
            num_ctx: None,
            ..all()
        }
    }

    #[test]
    fn each_api_gets_the_parameters_in_its_own_words() {
        let of = |api, url| Value::Object(fields(&without_num_ctx(), api, url).unwrap());
        assert_eq!(
            of(Api::OpenAi, "http://127.0.0.1:8080/v1"),
            json!({ "temperature": 0.5, "max_tokens": 900, "reasoning_effort": "low", "stop": ["END"] })
        );
        let at_openai = of(Api::OpenAi, "https://api.openai.com/v1");
        assert_eq!(at_openai["max_completion_tokens"], 900);
        assert!(at_openai.get("max_tokens").is_none());
        assert_eq!(
            of(Api::Anthropic, ""),
            json!({ "temperature": 0.5, "max_tokens": 900, "stop_sequences": ["END"],
                "output_config": { "effort": "low" } })
        );
        assert_eq!(
            Value::Object(fields(&all(), Api::Ollama, "").unwrap()),
            json!({ "options": { "temperature": 0.5, "num_predict": 900, "num_ctx": 9000, "stop": ["END"] },
                "think": "low" })
        );
        let none = ModelParameters::default();
        for api in [Api::OpenAi, Api::Anthropic, Api::Ollama] {
            assert!(fields(&none, api, "").unwrap().is_empty());
        }
    }

    #[test]
    fn a_parameter_that_an_api_does_not_have_is_refused_by_name() {
        let hot = ModelParameters {
            temperature: Some(1.5),
            ..ModelParameters::default()
        };
        let thinking = |effort| ModelParameters {
            reasoning_effort: Some(effort),
            ..ModelParameters::default()
        };
        for (parameters, api, expected) in [
            (
                all(),
                Api::OpenAi,
                "num_ctx: OpenAI's API has no such parameter; if",
            ),
            (
                all(),
                Api::Anthropic,
                "num_ctx: Anthropic's API has no such parameter",
            ),
            (
                hot,
                Api::Anthropic,
                "temperature: Anthropic's API takes 0 to 1",
            ),
            (
                thinking(ReasoningEffort::Minimal),
                Api::Anthropic,
                "takes low, medium, high and max",
            ),
            (
                thinking(ReasoningEffort::Xhigh),
                Api::Ollama,
                "takes none, low, medium and high",
            ),
        ] {
            let message = fields(&parameters, api, "").unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
