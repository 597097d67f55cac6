//! The model's context: earlier turns in a sliding window, this turn's messages, and the facts that
//! are kept by a refresh.

use crate::agent::prompt::Fence;
use crate::llm::Message;
use crate::printable::excerpt;

/// Default for the maximum number of messages in the context.
pub const DEFAULT_WINDOW: usize = 30;
/// Characters kept of a result when the context is refreshed.
const FACT_CHARS: usize = 800;
/// Characters kept of the model's last message, which describes its plan.
const PLAN_CHARS: usize = 1_500;

/// The context of a run.
#[derive(Clone, Debug)]
pub struct Context {
    history: Vec<Message>,
    question: String,
    /// A notice for the model, appended to the question.
    notice: String,
    window: usize,
    this_run: Vec<Message>,
    facts: Vec<Fact>,
    plan: String,
    fence: Fence,
}

/// A call and its result, as kept by a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The tool's name, as the model called it.
    pub name: String,
    /// The source of the result.
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

    /// Sets a notice for the model, appended to the question.
    pub fn with_notice(mut self, notice: impl Into<String>) -> Self {
        self.notice = notice.into();
        self
    }

    /// Sets the fence, instead of a new one.
    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// The fence around untrusted text in this run.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// The user's question of this run.
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

    /// Keeps a result for the next refresh.
    pub fn remember(&mut self, fact: Fact) {
        self.facts.push(Fact {
            name: fact.name,
            source: fact.source,
            arguments: excerpt(&fact.arguments, FACT_CHARS / 4),
            result: excerpt(&fact.result, FACT_CHARS),
        });
    }

    /// Clears all messages except the question, the facts and the plan.
    pub fn refresh(&mut self) {
        self.this_run.clear();
        self.history.clear();
    }

    /// The messages after the system prompt. If the window is too small, the oldest turns are
    /// dropped. This run's messages are all kept, since providers reject a call without its result.
    pub fn messages(&self) -> Vec<Message> {
        let free_messages = self.window.saturating_sub(self.this_run.len() + 1);
        let mut history =
            &self.history[self.history.len() - self.history.len().min(free_messages)..];
        // A history that was cut must begin with a question.
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

    /// The question; after a refresh also the facts and the plan from the cleared messages.
    fn opening(&self) -> String {
        let mut opening = self.question.clone();
        if !self.notice.is_empty() {
            opening.push_str(&format!("\n\n[{}]", self.notice));
        }
        // As long as this run's messages are there, they contain the facts.
        if !self.this_run.is_empty() || self.facts.is_empty() {
            return opening;
        }
        opening.push_str("\n\nFacts found so far:");
        for fact in &self.facts {
            let result = self.fence.enclose(&fact.source, &fact.result);
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
    fn the_window_drops_whole_turns() {
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
