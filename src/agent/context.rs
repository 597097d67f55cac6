//! What the model remembers: earlier turns in a sliding window, this turn's messages, and what
//! stays after a refresh.

use crate::agent::prompt::Fence;
use crate::llm::Message;
use crate::printable::excerpt;

/// Messages of a conversation that the model sees at most, unless set otherwise.
pub const DEFAULT_WINDOW: usize = 30;
/// Characters kept of a result when the context is refreshed.
const FACT_CHARS: usize = 800;
/// Characters kept of the model's last words, its open plan.
const PLAN_CHARS: usize = 1_500;

/// The context of a run.
#[derive(Clone, Debug)]
pub struct Context {
    history: Vec<Message>,
    question: String,
    /// Words for the model that go with the question.
    notice: String,
    window: usize,
    this_run: Vec<Message>,
    facts: Vec<Fact>,
    plan: String,
    fence: Fence,
}

/// What a call found, as it is remembered after a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The tool.
    pub name: String,
    /// Who gave the result, as the model is told.
    pub source: String,
    /// The text of its arguments.
    pub arguments: String,
    /// The text of its result.
    pub result: String,
}

impl Context {
    /// The context of a question after these earlier messages.
    pub fn new(history: Vec<Message>, question: impl Into<String>, window: usize) -> Self {
        Context {
            history,
            question: question.into(),
            notice: String::new(),
            window,
            this_run: Vec::new(),
            facts: Vec::new(),
            plan: String::new(),
            fence: Fence::new(),
        }
    }

    /// The same context with words for the model beside the question.
    pub fn with_notice(mut self, notice: impl Into<String>) -> Self {
        self.notice = notice.into();
        self
    }

    /// The same context with this boundary instead of one of its own.
    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// The boundary around what comes from outside in this run.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// What is asked.
    pub fn question(&self) -> &str {
        &self.question
    }

    /// Adds a message of this run.
    pub fn push(&mut self, message: Message) {
        if let Message::Assistant { content, .. } = &message
            && !content.trim().is_empty()
        {
            self.plan = excerpt(content, PLAN_CHARS);
        }
        self.this_run.push(message);
    }

    /// Remembers a result for the next refresh.
    pub fn remember(&mut self, fact: Fact) {
        self.facts.push(Fact {
            name: fact.name,
            source: fact.source,
            arguments: excerpt(&fact.arguments, FACT_CHARS / 4),
            result: excerpt(&fact.result, FACT_CHARS),
        });
    }

    /// Clears this run's messages; the question, the facts found and the open plan stay.
    pub fn refresh(&mut self) {
        self.this_run.clear();
        self.history.clear();
    }

    /// The messages after the system prompt. Earlier turns give way, oldest first, when there are
    /// more than the window holds; this run's messages all stay, since a call without its result is
    /// refused by every provider.
    pub fn messages(&self) -> Vec<Message> {
        let room = self.window.saturating_sub(self.this_run.len() + 1);
        let mut history = &self.history[self.history.len() - self.history.len().min(room)..];
        while let Some((Message::Assistant { .. } | Message::Tool { .. }, rest)) =
            history.split_first()
        {
            history = rest;
        }
        let mut messages = history.to_vec();
        messages.push(Message::user(self.opening()));
        messages.extend_from_slice(&self.this_run);
        messages
    }

    /// The question, with what is known where a refresh has cleared the messages that said it.
    fn opening(&self) -> String {
        let mut opening = self.question.clone();
        if !self.notice.is_empty() {
            opening.push_str(&format!("\n\n[{}]", self.notice));
        }
        if !self.this_run.is_empty() || self.facts.is_empty() {
            return opening;
        }
        opening.push_str("\n\nFacts found so far:");
        for fact in &self.facts {
            let result = self.fence.around(&fact.source, &fact.result);
            opening.push_str(&format!("\n- {}({}):\n{result}", fact.name, fact.arguments));
        }
        if !self.plan.is_empty() {
            opening.push_str(&format!("\n\nYour plan so far: {}", self.plan));
        }
        opening
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(count: usize) -> Vec<Message> {
        (0..count)
            .flat_map(|n| {
                [
                    Message::user(format!("q{n}")),
                    Message::assistant(format!("a{n}")),
                ]
            })
            .collect()
    }

    fn contents(context: &Context) -> Vec<String> {
        context
            .messages()
            .iter()
            .map(|message| message.content().to_owned())
            .collect()
    }

    #[test]
    fn the_window_slides_over_whole_turns() {
        let mut context = Context::new(turns(4), "now", 6);
        assert_eq!(contents(&context), ["q2", "a2", "q3", "a3", "now"]);
        context.push(Message::assistant("step"));
        assert_eq!(contents(&context), ["q2", "a2", "q3", "a3", "now", "step"]);
        context.push(Message::assistant("step"));
        assert_eq!(contents(&context), ["q3", "a3", "now", "step", "step"]);
        for _ in 0..9 {
            context.push(Message::assistant("step"));
        }
        assert_eq!(contents(&context).len(), 12);
    }

    #[test]
    fn a_refresh_keeps_question_facts_and_plan() {
        let mut context = Context::new(turns(1), "now", 30).with_notice("unloaded: x");
        context.push(Message::assistant("first the weather, then mail"));
        let (name, source, arguments) = ("forecast".into(), "weather/forecast".into(), "{}".into());
        context.remember(Fact {
            name,
            source,
            arguments,
            result: "r".repeat(5_000),
        });
        context.refresh();
        let messages = contents(&context);
        assert_eq!(messages.len(), 1);
        assert!(
            messages[0].starts_with(
                "now\n\n[unloaded: x]\n\nFacts found so far:\n- forecast({}):\n<<data "
            )
        );
        assert!(
            messages[0].contains(" from weather/forecast>>\nrrr"),
            "{}",
            messages[0]
        );
        assert!(messages[0].ends_with("Your plan so far: first the weather, then mail"));
        assert!(messages[0].len() < 1_200);
    }
}
