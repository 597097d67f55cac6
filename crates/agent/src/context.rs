//! The model's context: earlier turns, this turn's messages, and the facts that are kept when
//! messages are cleared. It is bounded in tokens.
//!
//! Providers cache a prompt by its prefix. Every part therefore stays where it is and only grows at
//! its end, until the context is compacted:
//!
//! ```text
//! earlier turns | question | notice | facts and plan of each refresh | messages since then
//! ```

use serde_json::Value;

use crate::prompt::Fence;
use toolscout_base::printable::{self, counted, excerpt};
use toolscout_finder::finder::model_names::TOOL_SEARCH;
use toolscout_finder::finder::toolbox::TokenCounter;
use toolscout_gate::llm::Message;
use toolscout_state::session::PastTurn;

/// Default for the maximum number of tokens of a prompt. Models with a context of 128,000 tokens
/// keep a quarter of it for the answer and for what tokenizers count differently.
pub const DEFAULT_CONTEXT_TOKENS: usize = 96_000;
/// Earlier turns that are read at most.
pub const MAX_PAST_TURNS: usize = 200;

/// Characters of a result that are kept when its message is cleared or shortened.
const FACT_CHARS: usize = 800;
/// Characters of a result that are kept if the facts themselves are too long.
const SHORT_FACT_CHARS: usize = 160;
/// Characters of a call's arguments in a fact.
const ARGUMENT_CHARS: usize = 200;
/// Characters kept of the model's last message, which describes its plan.
const PLAN_CHARS: usize = 1_500;
/// Lines and characters of a result that a later turn sees.
const PAST_RESULT_LINES: usize = 5;
const PAST_RESULT_CHARS: usize = 300;
/// Calls of an earlier turn that a later one sees, the last ones.
const MAX_PAST_CALLS: usize = 20;
/// Tokens that providers add to each message for its role and its separators.
const MESSAGE_TOKENS: usize = 4;
/// Characters of a token at most, from which a cut to a number of tokens begins to look for the
/// right length. English has about four, Chinese one.
const CHARS_PER_TOKEN: usize = 4;

/// The context of a run.
#[derive(Clone, Debug)]
pub struct Context {
    count: TokenCounter,
    fence: Fence,
    /// The earlier turns, oldest first.
    history: Vec<History>,
    question: String,
    opening: Vec<Counted>,
    facts: Vec<Fact>,
    /// The facts and plans of the refreshes, as the model sees them.
    kept: Vec<Counted>,
    entries: Vec<Entry>,
    /// The model's last words beside its calls, since the last refresh.
    plan: String,
    kept_plan: String,
}

/// A message with its tokens.
#[derive(Clone, Debug)]
struct Counted {
    message: Message,
    tokens: usize,
}

/// The messages of an earlier turn.
#[derive(Clone, Debug)]
struct History {
    number: i64,
    messages: Vec<Counted>,
}

/// A part of this turn.
#[derive(Clone, Debug)]
enum Entry {
    Message(Counted),
    Results(Results),
}

/// The results of one answer's calls.
#[derive(Clone, Debug)]
struct Results {
    outputs: Vec<Output>,
    form: ResultForm,
    messages: Vec<Counted>,
    /// The characters to which the results were cut.
    cut_to: Option<usize>,
}

/// How the model gets results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultForm {
    /// Each result is a message of the role `tool`.
    Separate,
    /// One message of the user has all results, for models without function calling.
    Together,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The call's id.
    pub call_id: String,
    /// The tool's name, as the model called it.
    pub name: String,
    /// The text of the call's arguments.
    pub arguments: String,
    /// The source of the result.
    pub source: String,
    /// The text of the result.
    pub text: String,
}

/// A call and its result, shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    name: String,
    source: String,
    arguments: String,
    result: String,
}

impl Context {
    /// The context of a question. `count` counts tokens, and `fence` encloses untrusted text.
    pub fn new(question: impl Into<String>, fence: Fence, count: TokenCounter) -> Self {
        let question = question.into();
        let opening = vec![Counted::new(Message::user(question.clone()), count)];
        Context {
            count,
            fence,
            history: Vec::new(),
            question,
            opening,
            facts: Vec::new(),
            kept: Vec::new(),
            entries: Vec::new(),
            plan: String::new(),
            kept_plan: String::new(),
        }
    }

    /// Puts earlier turns before the question, oldest first. If they have more than `max_tokens`,
    /// the oldest are left out until the rest has half of that: leaving out one in each turn would
    /// change the beginning of every prompt.
    pub fn after(mut self, turns: &[PastTurn], max_tokens: usize) -> Self {
        for turn in turns {
            let messages = past_messages(turn, &self.fence);
            self.history.push(History {
                number: turn.number,
                messages: counted_messages(messages, self.count),
            });
        }
        let tokens: usize = self.history.iter().map(History::tokens).sum();
        if tokens > max_tokens {
            self.drop_history(tokens - max_tokens / 2);
        } else if turns.len() >= MAX_PAST_TURNS {
            // From here on each turn would push out the oldest one, so half of them go at once.
            self.history.drain(..turns.len() / 2);
        }
        self
    }

    /// Adds a notice for the model after the question.
    pub fn with_notice(mut self, notice: &str) -> Self {
        let notice = Message::user(format!("[{notice}]"));
        self.opening.push(Counted::new(notice, self.count));
        self
    }

    /// The fence around untrusted text in this conversation.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The user's question of this run.
    pub fn question(&self) -> &str {
        &self.question
    }

    /// The number of the oldest turn in the context; `None` without earlier turns.
    pub fn first_turn(&self) -> Option<i64> {
        self.history.first().map(|turn| turn.number)
    }

    /// Adds a message of this run.
    pub fn push(&mut self, message: Message) {
        if let Message::Assistant { content, .. } = &message
            && !content.trim().is_empty()
        {
            self.plan = excerpt(content, PLAN_CHARS);
        }
        let message = Counted::new(message, self.count);
        self.entries.push(Entry::Message(message));
    }

    /// Adds the results of one answer's calls.
    pub fn push_results(&mut self, outputs: Vec<Output>, form: ResultForm) {
        let mut results = Results {
            outputs,
            form,
            messages: Vec::new(),
            cut_to: None,
        };
        results.messages = results.written(None, &self.fence, self.count);
        self.entries.push(Entry::Results(results));
    }

    /// Clears this run's messages, and keeps the facts and the plan after the question. The last
    /// results stay if facts would cut them, since the model has not read them yet.
    pub fn refresh(&mut self) {
        let unread = match self.entries.last() {
            Some(Entry::Results(results)) if results.exceed_facts() => 2,
            _ => 0,
        };
        let cleared = self.entries.len().saturating_sub(unread);
        let mut facts = Vec::new();
        for entry in self.entries.drain(..cleared) {
            if let Entry::Results(results) = entry {
                facts.extend(results.facts());
            }
        }
        // What was kept before stays as it is, so that the prompt keeps its beginning.
        let heading = if self.facts.is_empty() {
            "Facts found so far:"
        } else {
            "Further facts found so far:"
        };
        let text = facts_and_plan(heading, &facts, &self.plan, &self.fence);
        if !text.is_empty() {
            self.kept
                .push(Counted::new(Message::user(text), self.count));
        }
        self.facts.extend(facts);
        if !self.plan.is_empty() {
            self.kept_plan = std::mem::take(&mut self.plan);
        }
    }

    /// The messages after the system prompt.
    pub fn messages(&self) -> Vec<Message> {
        self.parts().map(|part| part.message.clone()).collect()
    }

    /// Tokens of these messages.
    pub fn tokens(&self) -> usize {
        self.parts().map(|part| part.tokens).sum()
    }

    /// Tokens of the texts of these messages alone, without what providers add to each.
    pub fn text_tokens(&self) -> usize {
        let texts = self.parts().map(|part| part.tokens - MESSAGE_TOKENS);
        texts.sum()
    }

    /// Makes the context shorter until it has at most `max_tokens`, as far as that is possible: the
    /// oldest results are cut first, then the oldest turns are left out, then this run's messages
    /// become facts, and then the facts and the last results are cut. False if nothing could be
    /// made shorter.
    pub fn compact(&mut self, max_tokens: usize) -> bool {
        let before = self.tokens();
        self.shorten_results(max_tokens);
        if self.tokens() > max_tokens {
            self.drop_history(self.tokens() - max_tokens);
        }
        if self.tokens() > max_tokens {
            self.refresh();
        }
        // The last results keep at least half of the room, and so do the facts.
        if self.tokens() > max_tokens {
            self.shorten_last_results(max_tokens, max_tokens / 2);
        }
        if self.tokens() > max_tokens {
            self.shorten_facts(max_tokens / 2);
        }
        if self.tokens() > max_tokens {
            self.shorten_last_results(max_tokens, 0);
        }
        self.tokens() < before
    }

    fn parts(&self) -> impl Iterator<Item = &Counted> {
        let history = self.history.iter().flat_map(|turn| &turn.messages);
        let entries = self.entries.iter().flat_map(Entry::messages);
        history
            .chain(&self.opening)
            .chain(&self.kept)
            .chain(entries)
    }

    /// Leaves out the oldest turns until at least this many tokens are free.
    fn drop_history(&mut self, excess: usize) {
        let mut freed = 0;
        let mut dropped = 0;
        while freed < excess && dropped < self.history.len() {
            freed += self.history[dropped].tokens();
            dropped += 1;
        }
        self.history.drain(..dropped);
    }

    /// Cuts the oldest results, but not the last ones, which the model has not read yet.
    fn shorten_results(&mut self, max_tokens: usize) {
        let mut tokens = self.tokens();
        let unread = self.entries.len().saturating_sub(1);
        for entry in &mut self.entries[..unread] {
            if tokens <= max_tokens {
                break;
            }
            if let Entry::Results(results) = entry {
                tokens -= results.shorten(FACT_CHARS, &self.fence, self.count);
            }
        }
    }

    /// Cuts the facts, and leaves out the oldest ones that do not fit into these tokens.
    fn shorten_facts(&mut self, max_tokens: usize) {
        for fact in &mut self.facts {
            fact.result = excerpt(&fact.result, SHORT_FACT_CHARS);
        }
        let mut tokens = 0;
        let mut first = self.facts.len();
        // The newest facts are kept, as far as they fit.
        while first > 0 {
            tokens += (self.count)(&self.facts[first - 1].line(&self.fence));
            if tokens > max_tokens {
                break;
            }
            first -= 1;
        }
        self.facts.drain(..first);
        if self.kept.is_empty() {
            return;
        }
        let mut heading = "Facts found so far:".to_owned();
        if first > 0 {
            heading.push_str(&format!(" [{} left out]", counted(first, "earlier one")));
        }
        let text = facts_and_plan(&heading, &self.facts, &self.kept_plan, &self.fence);
        self.kept = vec![Counted::new(Message::user(text), self.count)];
    }

    /// Cuts the last results so that the context has at most `max_tokens`, but leaves them at least
    /// `least_tokens`.
    fn shorten_last_results(&mut self, max_tokens: usize, least_tokens: usize) {
        let tokens = self.tokens();
        let (fence, count) = (&self.fence, self.count);
        let Some(Entry::Results(results)) = self.entries.last_mut() else {
            return;
        };
        let free = max_tokens.saturating_sub(tokens - results.tokens());
        let free = free.max(least_tokens);
        let mut chars = free * CHARS_PER_TOKEN / results.outputs.len().max(1);
        // Texts with more tokens than assumed are cut again and again, a fifth shorter each time.
        while results.tokens() > free && chars > SHORT_FACT_CHARS {
            results.shorten(chars, fence, count);
            chars = chars * 4 / 5;
        }
    }
}

impl Counted {
    fn new(message: Message, count: TokenCounter) -> Self {
        let tokens = MESSAGE_TOKENS + message.texts().map(count).sum::<usize>();
        Counted { message, tokens }
    }
}

impl History {
    fn tokens(&self) -> usize {
        tokens_of(&self.messages)
    }
}

impl Entry {
    fn messages(&self) -> &[Counted] {
        match self {
            Entry::Message(message) => std::slice::from_ref(message),
            Entry::Results(results) => &results.messages,
        }
    }
}

impl Results {
    fn tokens(&self) -> usize {
        tokens_of(&self.messages)
    }

    /// Whether a fact would keep only a part of a result.
    fn exceed_facts(&self) -> bool {
        let mut facts = self.outputs.iter().filter(|output| output.is_fact());
        facts.any(|output| output.text.chars().nth(FACT_CHARS).is_some())
    }

    fn facts(self) -> Vec<Fact> {
        let mut facts = Vec::with_capacity(self.outputs.len());
        for output in self.outputs {
            if output.is_fact() {
                facts.push(Fact {
                    arguments: excerpt(&output.arguments, ARGUMENT_CHARS),
                    result: excerpt(&output.text, FACT_CHARS),
                    name: output.name,
                    source: output.source,
                });
            }
        }
        facts
    }

    /// Cuts each result to these characters and returns how many tokens that frees.
    fn shorten(&mut self, chars: usize, fence: &Fence, count: TokenCounter) -> usize {
        if let Some(already) = self.cut_to
            && already <= chars
        {
            return 0;
        }
        let before = self.tokens();
        let shorter = self.written(Some(chars), fence, count);
        let after = tokens_of(&shorter);
        // What is said of the cut may be longer than what was cut.
        if after >= before {
            return 0;
        }
        (self.messages, self.cut_to) = (shorter, Some(chars));
        before - after
    }

    /// The results as the model sees them, each cut to these characters.
    fn written(&self, chars: Option<usize>, fence: &Fence, count: TokenCounter) -> Vec<Counted> {
        let fenced = |output: &Output| fence.enclose(&output.source, &output.shown(chars));
        let mut messages = Vec::new();
        match self.form {
            ResultForm::Separate => {
                for output in &self.outputs {
                    messages.push(Message::Tool {
                        tool_call_id: output.call_id.clone(),
                        content: fenced(output),
                    });
                }
            }
            ResultForm::Together => {
                let mut text = "Results of your actions:".to_owned();
                for (at, output) in self.outputs.iter().enumerate() {
                    // The name is the model's text, so it is made safe before it leaves the fence.
                    let name = printable::name(&output.name);
                    text.push_str(&format!("\n{}. {name}:\n{}", at + 1, fenced(output)));
                }
                messages.push(Message::user(text));
            }
        }
        counted_messages(messages, count)
    }
}

impl Output {
    /// The found tools are in the toolbox, so a search is no fact worth keeping.
    fn is_fact(&self) -> bool {
        self.name != TOOL_SEARCH
    }

    fn shown(&self, chars: Option<usize>) -> String {
        let Some(chars) = chars else {
            return self.text.clone();
        };
        let beginning = excerpt(&self.text, chars);
        let left_out = self.text.len().saturating_sub(beginning.len());
        if left_out == 0 {
            return beginning;
        }
        let mut shown = format!(
            "{beginning}\n[{left_out} more bytes were removed to make room; ask the tool for less at a time if you need them.]"
        );
        // The note of a long result, which says how to read on in it.
        if let Some((_, note)) = self.text.rsplit_once("\n[truncated: ") {
            shown.push_str(&format!("\n[truncated: {note}"));
        }
        shown
    }
}

impl Fact {
    fn line(&self, fence: &Fence) -> String {
        let result = fence.enclose(&self.source, &self.result);
        let name = printable::name(&self.name);
        format!("- {name}({}):\n{result}", self.arguments)
    }
}

/// The text of facts under a heading, and of the plan. Each is left out where there is none.
fn facts_and_plan(heading: &str, facts: &[Fact], plan: &str, fence: &Fence) -> String {
    let mut parts = Vec::new();
    if !facts.is_empty() {
        let lines = facts.iter().map(|fact| format!("\n{}", fact.line(fence)));
        parts.push(heading.to_owned() + &lines.collect::<String>());
    }
    if !plan.is_empty() {
        parts.push(format!("Your plan so far: {plan}"));
    }
    parts.join("\n\n")
}

fn tokens_of(messages: &[Counted]) -> usize {
    messages.iter().map(|message| message.tokens).sum()
}

fn counted_messages(messages: Vec<Message>, count: TokenCounter) -> Vec<Counted> {
    let counted = |message| Counted::new(message, count);
    messages.into_iter().map(counted).collect()
}

/// An earlier turn as later ones see it: the question, what tools returned in short, the answer.
fn past_messages(turn: &PastTurn, fence: &Fence) -> Vec<Message> {
    let mut messages = vec![Message::user(turn.question.clone())];
    let calls = past_calls(&turn.events.events);
    if !calls.is_empty() {
        let left_out = calls.len().saturating_sub(MAX_PAST_CALLS);
        let mut text = "[What tools returned, in short".to_owned();
        if left_out > 0 {
            text.push_str(&format!(", without {}", counted(left_out, "earlier call")));
        }
        text.push_str(":]");
        for call in &calls[left_out..] {
            text.push('\n');
            text.push_str(&call.line(fence));
        }
        messages.push(Message::user(text));
    }
    messages.push(Message::assistant(turn.annotated_answer()));
    messages
}

/// The calls of a turn with the beginnings of their results, from its stored events.
fn past_calls(events: &[Value]) -> Vec<Fact> {
    let mut calls: Vec<(&str, Fact)> = Vec::new();
    let mut answered = Vec::new();
    for event in events {
        let text = |field: &str| event[field].as_str().unwrap_or_default();
        match text("type") {
            "tool_call" => {
                let fact = Fact {
                    name: text("name").to_owned(),
                    source: text("name").to_owned(),
                    arguments: excerpt(&event["arguments"].to_string(), ARGUMENT_CHARS),
                    result: String::new(),
                };
                calls.push((text("id"), fact));
            }
            "tool_result" => {
                let Some(at) = calls.iter().position(|(id, _)| *id == text("id")) else {
                    continue;
                };
                // Calls without a result stay behind: they were never answered.
                let (_, mut fact) = calls.remove(at);
                fact.result = first_lines(text("content"));
                answered.push(fact);
            }
            _ => {}
        }
    }
    answered
}

fn first_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().take(PAST_RESULT_LINES).collect();
    let first = lines.join("\n");
    let shown = excerpt(&first, PAST_RESULT_CHARS);
    if shown == first && first.len() < text.trim_end().len() {
        return first + "\n…";
    }
    shown
}

#[cfg(test)]
mod tests;
