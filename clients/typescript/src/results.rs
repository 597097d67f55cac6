//! The answer to a search.

use std::sync::Arc;

use napi::Result;
use napi_derive::napi;
use serde::Serialize;
use toolscout::budget;
use toolscout_index::formats::{self, Emit};
use toolscout_index::hit::{self, HitTool};

use crate::errors::{OrReject, error, invalid_query};
use crate::tool::Tool;

/// The answer to a search.
#[napi]
pub struct Results {
    tools: Vec<HitTool>,
    answer: String,
    hits: String,
}

/// A hit with what people read of its tool.
#[derive(Serialize)]
struct HitWithTool<'a> {
    #[serde(flatten)]
    hit: &'a hit::Hit,
    name: &'a str,
    server: &'a str,
    description: String,
    model_name: String,
}

/// An answer with what it says in one sentence.
#[derive(Serialize)]
struct WithAdvice {
    #[serde(flatten)]
    answer: toolscout_index::Results,
    advice: &'static str,
}

impl Results {
    /// An answer for JavaScript.
    ///
    /// # Errors
    /// `internal` where it is not written.
    pub fn new(mut answer: toolscout_index::Results) -> Result<Self> {
        let hits = std::mem::take(&mut answer.hits);
        let with_tools: Vec<HitWithTool<'_>> = hits.iter().map(with_tool).collect();
        Ok(Results {
            answer: serde_json::to_string(&WithAdvice {
                advice: answer.advice(),
                answer,
            })
            .or_reject()?,
            hits: serde_json::to_string(&with_tools).or_reject()?,
            tools: hits.into_iter().map(|hit| hit.tool).collect(),
        })
    }
}

fn with_tool(hit: &hit::Hit) -> HitWithTool<'_> {
    HitWithTool {
        hit,
        name: hit.id.name(),
        server: hit.id.server(),
        description: hit.tool.shown_description(),
        model_name: formats::model_name(&hit.id),
    }
}

#[napi]
impl Results {
    /// Everything but the hits, as JSON.
    #[napi]
    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// The hits as JSON, best first.
    #[napi]
    pub fn hits(&self) -> &str {
        &self.hits
    }

    /// The tool of a hit, by its position from 0.
    #[napi]
    pub fn tool(&self, position: u32) -> Result<Tool> {
        let tool = self.tools.get(position as usize).map(HitTool::shared);
        tool.map(Tool::new)
            .ok_or_else(|| error("internal", format!("there is no hit {position}")))
    }

    /// The found tools in a provider's format, as JSON, within so many tokens.
    #[napi]
    pub fn tools(&self, format: String, max_tokens: Option<f64>) -> Result<String> {
        let emit = format.parse::<Emit>().or_reject()?;
        let Some(max_tokens) = max_tokens else {
            let all: Vec<_> = self.callable().map(|tool| &**tool).collect();
            return Ok(formats::emit(&all, emit).to_string());
        };
        let (least, most) = (budget::MIN_TOKENS, budget::MAX_TOKENS);
        if max_tokens.fract() != 0.0 || !(least as f64..=most as f64).contains(&max_tokens) {
            let message = format!(
                "maxTokens is {max_tokens}, it must be a whole number from {least} to {most}"
            );
            return Err(invalid_query(message));
        }
        let tools: Vec<Arc<_>> = self.callable().map(HitTool::shared).collect();
        let fitted = budget::fit(&tools, emit, max_tokens as usize);
        Ok(fitted.value.to_string())
    }
}

impl Results {
    /// The found tools, without items of other kinds: a model can call nothing else.
    fn callable(&self) -> impl Iterator<Item = &HitTool> {
        self.tools.iter().filter(|tool| tool.kind.is_tool())
    }
}
