//! A model that knows the relevant tools only: it calls those it sees and searches for the others.
//!
//! It searches with the words of the question, never with those of the tools: first the whole
//! question, then its sentences, then half of its words. A tool that a message reports as unloaded,
//! or as one that came after the hits, is selected by name.

use std::collections::{BTreeSet, HashSet};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{arguments, counting};
use toolscout_index::formats::model_name;

use crate::dataset::EvalSet;
use crate::random::Random;
use toolscout_base::printable::excerpt;
use toolscout_finder::finder::model_names::TOOL_SEARCH;
use toolscout_finder::finder::toolbox::spec_tokens;
use toolscout_gate::llm::{
    CallFragment, ChatModel, ChatRequest, Delta, DeltaStream, LlmError, Message, ToolChoice,
};

/// The answer when no call is left.
const ANSWER: &str = "Done.";
/// Most characters of a search query.
const MAX_QUERY_CHARS: usize = 1_000;
/// Most sentences in one search.
const MAX_SENTENCES: usize = 8;
/// Least words of a sentence to search with.
const MIN_WORDS: usize = 3;
/// Hits requested in the second and in the last search.
const LATER_LIMITS: [usize; 2] = [10, 20];

/// The model in the simulation. One conversation at a time.
#[derive(Debug, Default)]
pub struct Oracle {
    state: Mutex<CurrentTask>,
}

#[derive(Debug, Default)]
struct CurrentTask {
    task: Task,
    last: Option<ChatRequest>,
    fresh_tokens: usize,
}

impl Oracle {
    /// Starts a conversation, with nothing in the cache of a provider.
    pub fn begin_conversation(&self) {
        self.state.lock().last = None;
    }

    /// Starts a turn with this task.
    pub fn begin_turn(&self, task: Task) {
        let mut state = self.state.lock();
        (state.task, state.fresh_tokens) = (task, 0);
    }

    /// The prompt tokens of this turn that no provider could take from its cache: those after the
    /// longest common prefix with the previous request, with tools before messages, as providers
    /// order them.
    pub fn fresh_tokens(&self) -> usize {
        self.state.lock().fresh_tokens
    }
}

#[async_trait]
impl ChatModel for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    async fn stream(&self, request: ChatRequest) -> Result<DeltaStream, LlmError> {
        let mut state = self.state.lock();
        let deltas = state.task.answer(&request);
        state.fresh_tokens += fresh_tokens(state.last.as_ref(), &request);
        state.last = Some(request);
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

/// The task of one turn.
#[derive(Debug, Default)]
pub struct Task {
    needs: Vec<Need>,
    /// The remaining searches, as queries and limit; the next one is last.
    wordings: Vec<(Vec<String>, Option<usize>)>,
    selected: BTreeSet<String>,
}

/// A need that any one of several tools meets.
#[derive(Debug)]
struct Need {
    /// The names of the tools as a model sees them, with arguments.
    tools: Vec<(String, Value)>,
    met: bool,
}

impl Task {
    /// The task of a query; `random` chooses the words of the last search.
    pub fn of(set: &EvalSet, query: usize, random: &mut Random) -> Self {
        let query = &set.queries[query];
        let mut needs = Vec::with_capacity(query.groups.len());
        for group in &query.groups {
            let mut tools = Vec::with_capacity(group.len());
            for &position in group {
                let tool = set.tool(position);
                let arguments = arguments::smallest(&tool.input_schema);
                tools.push((model_name(&tool.id), Value::Object(arguments)));
            }
            needs.push(Need { tools, met: false });
        }
        Task {
            needs,
            wordings: wordings(&query.text, random),
            selected: BTreeSet::new(),
        }
    }

    /// The response to a request.
    fn answer(&mut self, request: &ChatRequest) -> Vec<Delta> {
        // A request that forbids calls may still list tools, so these do not count as visible.
        let mut visible = HashSet::new();
        if request.tool_choice == ToolChoice::Auto {
            visible.extend(request.tools.iter().map(|tool| tool.name.as_str()));
        }
        let mut calls = self.calls(&visible);
        if visible.contains(TOOL_SEARCH) {
            calls.extend(self.search(&request.messages));
        }
        let mut deltas: Vec<Delta> = calls.into_iter().enumerate().map(fragment).collect();
        if deltas.is_empty() {
            deltas.push(Delta::Text(ANSWER.into()));
        }
        deltas.push(Delta::Finish("stop".into()));
        deltas
    }

    /// One call for each need that a visible tool meets; the need counts as met.
    fn calls(&mut self, visible: &HashSet<&str>) -> Vec<(String, Value)> {
        let mut calls = Vec::new();
        for need in &mut self.needs {
            if need.met {
                continue;
            }
            // Any of the alternatives is enough.
            let mut tools = need.tools.iter();
            if let Some(tool) = tools.find(|(name, _)| visible.contains(name.as_str())) {
                calls.push(tool.clone());
                need.met = true;
            }
        }
        calls
    }

    /// A search for the tools that are not visible, until no searches remain.
    fn search(&mut self, messages: &[Message]) -> Option<(String, Value)> {
        let (mut open, mut named) = (0, Vec::new());
        for need in &self.needs {
            if !need.met {
                open += 1;
                named.extend(self.named_tool(need, messages));
            }
        }
        // Tools that the messages name need no search by words.
        let (mut queries, limit) = if named.len() < open {
            self.wordings.pop().unwrap_or_default()
        } else {
            Default::default()
        };
        if !named.is_empty() {
            queries.push(format!("select:{}", named.join(",")));
            self.selected.extend(named);
        }
        if queries.is_empty() {
            return None;
        }
        let arguments = json!({ "queries": queries, "limit": limit });
        Some((TOOL_SEARCH.to_owned(), arguments))
    }

    /// A tool for this need that the messages name and that was not selected before.
    fn named_tool(&self, need: &Need, messages: &[Message]) -> Option<String> {
        for (name, _) in &need.tools {
            if !self.selected.contains(name) && is_named(name, messages) {
                return Some(name.clone());
            }
        }
        None
    }
}

fn is_named(name: &str, messages: &[Message]) -> bool {
    // As one of the unloaded tools, or before its description as one that came after the hits.
    let (unloaded, later) = (format!("\"{name}\""), format!("\"{name}: "));
    messages.iter().any(|message| {
        let content = message.content();
        content.contains(&unloaded) || content.contains(&later)
    })
}

fn fragment((index, (name, arguments)): (usize, (String, Value))) -> Delta {
    let arguments = Some(arguments.to_string());
    Delta::Call(CallFragment {
        index: Some(index),
        id: Some(format!("o{index}")),
        name: Some(name),
        arguments,
    })
}

/// The searches for a question, in reverse order.
fn wordings(question: &str, random: &mut Random) -> Vec<(Vec<String>, Option<usize>)> {
    let mut sentences = Vec::new();
    for sentence in question.split(['.', '?', '!', ';', '\n', '。', '？', '！']) {
        // Chinese and Japanese do not separate words by spaces, so such sentences have few of them.
        if sentence.is_ascii() && sentence.split_whitespace().count() < MIN_WORDS {
            continue;
        }
        let sentence = cut(sentence);
        if !sentence.is_empty() {
            sentences.push(sentence);
        }
    }
    sentences.truncate(MAX_SENTENCES);
    let words: Vec<&str> = question.split_whitespace().collect();
    // A sample is ascending, so the words stay in their order.
    let half = random.sample(words.len(), words.len().div_ceil(2));
    let half: Vec<&str> = half.into_iter().map(|position| words[position]).collect();
    let [again, last] = LATER_LIMITS;
    vec![
        (vec![cut(&half.join(" "))], Some(last)),
        (sentences, Some(again)),
        (vec![cut(question)], None),
    ]
}

fn cut(text: &str) -> String {
    excerpt(text.trim(), MAX_QUERY_CHARS)
}

fn fresh_tokens(last: Option<&ChatRequest>, now: &ChatRequest) -> usize {
    let (tools, messages) = match last {
        Some(last) => (last.tools.as_slice(), last.messages.as_slice()),
        None => Default::default(),
    };
    let same_tools = common(tools, &now.tools);
    let same_list = same_tools == tools.len() && same_tools == now.tools.len();
    // Providers put tools before messages, so a changed list of tools spoils the cache of all
    // messages.
    let same_messages = if same_list {
        common(messages, &now.messages)
    } else {
        0
    };
    let tools = now.tools[same_tools..]
        .iter()
        .map(|tool| spec_tokens(tool, counting::tokens));
    let texts = now.messages[same_messages..]
        .iter()
        .flat_map(Message::texts)
        .map(counting::tokens);
    tools.sum::<usize>() + texts.sum::<usize>()
}

fn common<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::testing::set;
    use toolscout_gate::llm::ToolSpec;

    fn task() -> Task {
        let set = set(
            &[("mail/send", "x"), ("web/find", "x")],
            &[(
                "q",
                "Find the address of the shop. Then send a mail to them!",
                &["mail/send", "web/find"],
            )],
        );
        Task::of(&set, 0, &mut Random::new(1, "test"))
    }

    fn request(tools: &[&str], message: &str) -> ChatRequest {
        let spec = |name: &&str| ToolSpec {
            name: (*name).into(),
            ..find_spec()
        };
        ChatRequest {
            tools: tools.iter().map(spec).collect(),
            messages: vec![Message::user(message)],
            ..ChatRequest::default()
        }
    }

    fn find_spec() -> ToolSpec {
        toolscout_finder::finder::meta_tools::search_spec()
    }

    fn texts(deltas: &[Delta]) -> Vec<String> {
        let one = |delta: &Delta| match delta {
            Delta::Call(call) => Some(format!(
                "{} {}",
                call.name.as_deref()?,
                call.arguments.as_deref()?
            )),
            Delta::Text(text) => Some(text.clone()),
            _ => None,
        };
        deltas.iter().filter_map(one).collect()
    }

    #[test]
    fn visible_tools_are_called_and_others_searched_with_new_words() {
        let mut task = task();
        let first = texts(&task.answer(&request(&["tool_search"], "")));
        assert_eq!(
            first,
            [
                r#"tool_search {"queries":["Find the address of the shop. Then send a mail to them!"],"limit":null}"#
            ]
        );
        let second = texts(&task.answer(&request(&["tool_search", "web__find"], "")));
        assert_eq!(second[0], "web__find {}");
        assert!(
            second[1].contains(
                r#"["Find the address of the shop","Then send a mail to them"],"limit":10"#
            ),
            "{second:?}"
        );
        let third = texts(&task.answer(&request(&["tool_search", "web__find"], "")));
        assert!(
            third.len() == 1 && third[0].ends_with(r#""limit":20}"#),
            "{third:?}"
        );
        assert_eq!(
            texts(&task.answer(&request(&["tool_search", "web__find"], ""))),
            [ANSWER]
        );
    }

    #[test]
    fn an_unloaded_tool_is_selected_by_name_once() {
        let mut task = task();
        let notice = r#"unloaded: "mail__send", "web__find""#;
        let first = texts(&task.answer(&request(&["tool_search"], notice)));
        assert_eq!(
            first,
            [r#"tool_search {"queries":["select:mail__send,web__find"],"limit":null}"#]
        );
        let second = texts(&task.answer(&request(&["tool_search"], notice)));
        assert!(
            second[0].contains("Find the address of the shop. Then"),
            "{second:?}"
        );
    }

    #[test]
    fn without_tools_the_answer_is_text() {
        assert_eq!(texts(&task().answer(&request(&[], ""))), [ANSWER]);
    }

    #[test]
    fn fresh_tokens_follow_the_longest_common_prefix() {
        let one = request(&["a"], "hello");
        let mut two = request(&["a"], "hello");
        two.messages.push(Message::user("more"));
        let words = |text: &str| counting::tokens(text);
        assert_eq!(fresh_tokens(Some(&one), &two), words("more"));
        assert_eq!(fresh_tokens(Some(&two), &one), 0);
        let injected = request(&["a", "b"], "hello");
        let spec = spec_tokens(&injected.tools[1], counting::tokens);
        assert_eq!(fresh_tokens(Some(&one), &injected), spec + words("hello"));
        assert_eq!(
            fresh_tokens(None, &one),
            spec_tokens(&one.tools[0], counting::tokens) + words("hello")
        );
    }
}
