//! The prompts of a run: what is in each, how many tokens that is, and how it is made shorter.

use std::borrow::Cow;

use super::{Round, Run, RunState};
use crate::config::{Protocol, RunConfig};
use crate::event::{CompactionReason, Event};
use crate::prompt;
use toolscout_finder::finder::meta_tools::{self, Style};
use toolscout_finder::finder::toolbox::spec_tokens;
use toolscout_gate::llm::reply::Reply;
use toolscout_gate::llm::{ChatRequest, Message, Purpose, ToolChoice, ToolSpec, Usage};
use toolscout_gate::tools::long_results::read_more_spec;

/// The share of the limit in percent that a compacted prompt has, so that the next rounds fit too.
const COMPACTED_PERCENT: usize = 70;

impl Run {
    /// Makes the next prompt fit into the limit of tokens, where the model is called next.
    pub fn fit_context(&mut self) -> Option<Event> {
        if !matches!(self.state, RunState::CallModel) {
            return None;
        }
        let (before, fixed) = self.prompt_tokens();
        let limit = self.config.context_tokens;
        if before <= limit {
            return None;
        }
        // Less than the limit, since each compaction changes the beginning of the prompt.
        let goal = limit / 100 * COMPACTED_PERCENT;
        self.compact(CompactionReason::Limit, before, goal.saturating_sub(fixed))
    }

    /// Makes a prompt shorter that the provider refused as too long. `limit` is how many tokens it
    /// takes, if it says so. `None` if the prompt was refused before in this round, or cannot be
    /// made shorter: then the refusal is the end of the run.
    pub fn context_refused(&mut self, limit: Option<usize>) -> Option<Event> {
        if !matches!(self.state, RunState::CallModel) || self.refused_in == Some(self.round) {
            return None;
        }
        self.refused_in = Some(self.round);
        let (before, fixed) = self.prompt_tokens();
        // A provider counts differently, and takes the answer's tokens from the same context.
        let goal = limit.map_or(before / 2, |limit| limit / 100 * COMPACTED_PERCENT);
        // The next prompts of this run keep to it too.
        self.config.context_tokens = self.config.context_tokens.min(goal);
        self.compact(
            CompactionReason::Refused,
            before,
            goal.saturating_sub(fixed),
        )
    }

    fn compact(
        &mut self,
        reason: CompactionReason,
        tokens_before: usize,
        max_tokens: usize,
    ) -> Option<Event> {
        if !self.context.compact(max_tokens) {
            return None;
        }
        let (tokens, _) = self.prompt_tokens();
        Some(Event::ContextCompacted {
            reason,
            tokens_before,
            tokens,
            limit: self.config.context_tokens,
        })
    }

    /// Tokens of the next prompt, and those of its system prompt and tools.
    fn prompt_tokens(&self) -> (usize, usize) {
        let specs = self.visible_specs();
        let system = (self.count)(&self.system_prompt(&specs));
        let tools = match self.config.protocol {
            Protocol::Native => self.tool_tokens(),
            // They are part of the system prompt.
            Protocol::Manual | Protocol::Plan => 0,
        };
        let fixed = system + tools;
        (fixed + self.context.tokens(), fixed)
    }

    pub(super) fn request(&self) -> ChatRequest {
        let specs = self.visible_specs();
        let messages = self.messages(&specs);
        let tools = match self.config.protocol {
            Protocol::Native => specs.into_iter().map(Cow::into_owned).collect(),
            Protocol::Manual | Protocol::Plan => Vec::new(),
        };
        let tool_choice = match self.kind_of_round() {
            Round::WithTools => ToolChoice::Auto,
            Round::Last => ToolChoice::None,
        };
        ChatRequest {
            purpose: Purpose::Round,
            messages,
            tools,
            tool_choice,
        }
    }

    /// The system prompt of a round in which these tools are visible.
    fn system_prompt(&self, specs: &[Cow<'_, ToolSpec>]) -> String {
        let RunConfig {
            role, environment, ..
        } = &self.config;
        let fence = self.context.fence();
        let tools: Vec<&ToolSpec> = specs.iter().map(AsRef::as_ref).collect();
        match self.config.protocol {
            Protocol::Native => prompt::native_system(role, environment, fence),
            Protocol::Manual => prompt::manual_system(role, &tools, environment, fence),
            Protocol::Plan => prompt::plan_system(role, &tools, environment, fence),
        }
    }

    /// The messages of a round in which these tools are visible.
    pub(super) fn messages(&self, specs: &[Cow<'_, ToolSpec>]) -> Vec<Message> {
        let mut messages = vec![Message::system(self.system_prompt(specs))];
        messages.extend(self.context.messages());
        if self.is_last_round() {
            // Part of this request only: the context of later turns should not contain it.
            messages.push(Message::user(prompt::LAST_ROUND));
        }
        messages
    }

    /// The tools of this round, in their stable order. Those of the last round cannot be called, and
    /// stay in the prompt all the same: without them it would begin differently, and no provider
    /// could take it from its cache.
    pub(super) fn visible_specs(&self) -> Vec<Cow<'_, ToolSpec>> {
        if self.withholds_tools {
            return Vec::new();
        }
        // A plan cannot search; its tools were found before the model was called.
        let searches = self.config.protocol != Protocol::Plan && self.offers_search();
        let mut specs = Vec::new();
        if searches {
            specs.push(Cow::Owned(meta_tools::search_spec_with_kinds()));
        }
        if searches && self.config.style == Style::Dispatch {
            specs.push(Cow::Owned(meta_tools::dispatch_spec()));
            specs.extend(self.toolbox.pinned_specs().map(Cow::Borrowed));
        } else {
            specs.extend(self.toolbox.specs().map(Cow::Borrowed));
        }
        if self.can_read_more() {
            specs.push(Cow::Owned(read_more_spec()));
        }
        specs
    }

    /// Adds the tokens of a round to the figures, estimated where the provider sends no usage.
    pub(super) fn count_tokens(&mut self, reply: &Reply) {
        let tool_tokens = self.tool_tokens();
        self.shown_tokens += tool_tokens;
        self.figures.rounds += 1;
        let Usage { input, output } = reply.usage.unwrap_or_else(|| {
            self.figures.tokens_estimated = true;
            self.estimate(reply, tool_tokens)
        });
        self.figures.tokens_in += input;
        self.figures.tokens_out += output;
    }

    /// Tokens of the tools of this round. The toolbox knows those of its tools: counting ten
    /// thousand tools anew in every round would take a second.
    fn tool_tokens(&self) -> usize {
        if self.withholds_tools {
            return 0;
        }
        let of = |spec: ToolSpec| spec_tokens(&spec, self.count);
        let read_more = if self.can_read_more() {
            of(read_more_spec())
        } else {
            0
        };
        let shown = match (self.offers_search(), self.config.style) {
            (false, _) => self.toolbox.tokens(),
            (true, Style::Inject) => {
                of(meta_tools::search_spec_with_kinds()) + self.toolbox.tokens()
            }
            (true, Style::Dispatch) => {
                of(meta_tools::search_spec_with_kinds())
                    + of(meta_tools::dispatch_spec())
                    + self.toolbox.pinned_tokens()
            }
        };
        shown + read_more
    }

    /// Counts the tokens of a round: all messages, their calls, and the tools.
    fn estimate(&self, reply: &Reply, tool_tokens: usize) -> Usage {
        let count = |text: &str| (self.count)(text) as u64;
        // Without function calling the tools are part of the system message and counted there.
        let (specs, separate) = match self.config.protocol {
            Protocol::Native => (Vec::new(), tool_tokens as u64),
            Protocol::Manual | Protocol::Plan => (self.visible_specs(), 0),
        };
        // The context has counted its messages already.
        let mut input = count(&self.system_prompt(&specs)) + self.context.text_tokens() as u64;
        if self.is_last_round() {
            input += count(prompt::LAST_ROUND);
        }
        let mut output = count(&reply.text);
        for call in &reply.calls {
            output += count(&call.name) + count(&call.arguments);
        }
        Usage {
            input: separate + input,
            output,
        }
    }
}
