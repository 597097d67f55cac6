//! Which texts of an answer are accepted for a tool, and why others are refused.

use std::collections::HashSet;

use serde_json::Value;
use toolscout_index::{Enrichment, Error, Tool};

use super::held::{Held, Review};

use toolscout_base::printable::{excerpt, is_hidden};

/// Words that change nothing about what a text says.
const FILLERS: [&str; 7] = ["a", "an", "the", "this", "please", "tool", "use"];
/// Words in a row of a description that are a copy of it. Fewer are often the usual words for a thing.
const COPIED_WORDS: usize = 5;
/// Invisible characters that some scripts and emoji need.
const JOINERS: [char; 4] = ['\u{200c}', '\u{200d}', '\u{fe0e}', '\u{fe0f}'];
/// Characters of a refused text that are shown.
const SHOWN_CHARS: usize = 60;

/// What is accepted of the texts for one tool.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The accepted texts, or why there are none.
    pub enrichment: Result<Enrichment, String>,
    /// Why single texts are refused, where others are accepted.
    pub refused: Vec<String>,
    /// Texts that a person has to read first.
    pub held: Vec<Held>,
}

impl Checked {
    /// No text, for this reason.
    pub fn nothing(reason: impl Into<String>) -> Self {
        Checked {
            enrichment: Err(reason.into()),
            refused: Vec::new(),
            held: Vec::new(),
        }
    }
}

/// Checks a list of texts, text by text. At most `max` of them are taken. Every text that is stored for a tool passes
/// here first.
pub fn checked(tool: &Tool, list: &Value, max: usize, model: &str, review: Review<'_>) -> Checked {
    let Some(items) = list.as_array() else {
        let list = excerpt(&list.to_string(), SHOWN_CHARS);
        return Checked::nothing(format!("{list} is not a list of texts"));
    };
    if items.is_empty() {
        return Checked::nothing("its list of texts is empty");
    }
    let own = OwnWords::of(tool);
    let mut texts: Vec<&str> = Vec::new();
    let mut refused = Vec::new();
    let mut held: Vec<Held> = Vec::new();
    for item in items {
        let shown = excerpt(&item.to_string(), SHOWN_CHARS);
        let Some(text) = item.as_str().map(str::trim) else {
            refused.push(format!("{shown} is not a text"));
            continue;
        };
        if texts.contains(&text) || held.iter().any(|held| held.text == text) {
            continue;
        }
        if let Some(problem) = problem(text, &own, model) {
            refused.push(format!("{shown} {problem}"));
            continue;
        }
        if texts.len() + held.len() == max {
            refused.push(format!("{shown} is more than the {max} that are taken"));
            continue;
        }
        match review.speaks_of(tool, text) {
            Ok(None) => texts.push(text),
            Ok(Some(speaks_of)) => held.push(Held {
                id: tool.id.clone(),
                text: text.to_owned(),
                speaks_of,
                model: model.to_owned(),
            }),
            Err(error) => {
                let reason = format!("{shown} cannot be compared with other tools: {error}");
                refused.push(reason);
            }
        }
    }
    let enrichment = if texts.is_empty() {
        // Drained, so that they are not told twice.
        let held = held.iter().map(Held::reason);
        let reasons: Vec<String> = refused.drain(..).chain(held).collect();
        Err(reasons.join("; "))
    } else {
        Enrichment::new(texts, model).map_err(|error| error.to_string())
    };
    Checked {
        enrichment,
        refused,
        held,
    }
}

fn problem(text: &str, own: &OwnWords, model: &str) -> Option<String> {
    // Small models copy the dots of the example.
    if !text.chars().any(char::is_alphabetic) {
        return Some("says nothing".to_owned());
    }
    if let Err(error) = Enrichment::new([text], model) {
        return Some(refusal(&error));
    }
    for letter in text.chars() {
        if is_hidden(letter) && !JOINERS.contains(&letter) {
            return Some(format!("has the invisible character {}", code(letter)));
        }
    }
    let repeated = own.repeated_by(text)?;
    Some(format!("only repeats the tool's {repeated}"))
}

/// Why a text is refused, which is named before.
fn refusal(error: &Error) -> String {
    let reason = match error {
        Error::InvalidEnrichment(problem) => problem.to_string(),
        other => other.to_string(),
    };
    match reason.strip_prefix("text 1 ") {
        Some(of_text) => of_text.to_owned(),
        None => format!("is refused: {reason}"),
    }
}

fn code(c: char) -> String {
    format!("U+{:04X}", u32::from(c))
}

/// The words that a tool says of itself.
struct OwnWords {
    /// Name, title and the parts of the description, each without spaces: `sendMessage` and `Send message` are
    /// the same.
    names: HashSet<String>,
    sentences: HashSet<String>,
    /// The words of the description with a space around each.
    description: String,
}

impl OwnWords {
    fn of(tool: &Tool) -> Self {
        let id = format!("{} {}", tool.id.server(), tool.id.name());
        let title = tool.title.as_deref().unwrap_or_default();
        let whole = tool.description.as_str();
        let sentences = whole.split(['.', '!', '?', ';', ':', '\n', '。', '！', '？']);
        OwnWords {
            names: [tool.id.name(), &id, title].map(joined).into(),
            sentences: sentences.chain([whole]).map(joined).collect(),
            description: format!(" {} ", words(&tool.description).join(" ")),
        }
    }

    /// What of the tool a text repeats.
    fn repeated_by(&self, text: &str) -> Option<&'static str> {
        let words = words(text);
        if words.is_empty() {
            return None;
        }
        let joined = words.concat();
        if self.names.contains(&joined) {
            return Some("name");
        }
        let is_copied = words.len() >= COPIED_WORDS
            && self.description.contains(&format!(" {} ", words.join(" ")));
        (is_copied || self.sentences.contains(&joined)).then_some("description")
    }
}

fn joined(text: &str) -> String {
    words(text).concat()
}

/// The words of a text in lower case, without fillers and without the `s` that forms have.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for c in text.chars().chain([' ']) {
        let begins_word = was_lower && c.is_uppercase();
        if begins_word || !c.is_alphanumeric() {
            push_word(&mut words, &word);
            word.clear();
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words
}

fn push_word(words: &mut Vec<String>, word: &str) {
    if word.is_empty() || FILLERS.contains(&word) {
        return;
    }
    words.push(word.strip_suffix('s').unwrap_or(word).to_owned());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool() -> Tool {
        let mut tool = Tool::new("mail", "sendMessage").unwrap().with_description(
            "Sends a message to one or more people. Drafts are kept; 发送邮件。\nReturns its id",
        );
        tool.title = Some("Send a mail".to_owned());
        tool
    }

    #[test]
    fn a_text_that_only_repeats_the_tool_is_refused_and_said() {
        for (text, what) in [
            ("send message", "name"),
            ("Send_Message!", "name"),
            ("please use the sendMessage tool", "name"),
            ("mail send message", "name"),
            ("send a mail", "name"),
            ("Sends a message to one or more people.", "description"),
            ("send message to one or more people", "description"),
            ("message to one or more people", "description"),
            ("drafts are kept", "description"),
            ("发送邮件", "description"),
            ("Returns its id.", "description"),
        ] {
            let read = checked(&tool(), &json!([text, "tell Ana"]), 3, "m", Review::Done);
            assert_eq!(read.enrichment.unwrap().texts(), ["tell Ana"], "{text}");
            let expected = format!("only repeats the tool's {what}");
            assert!(
                read.refused.len() == 1 && read.refused[0].contains(&expected),
                "{text}: {:?}",
                read.refused
            );
            let alone = checked(&tool(), &json!([text]), 3, "m", Review::Done);
            assert!(alone.enrichment.unwrap_err().contains(&expected), "{text}");
        }
    }

    #[test]
    fn other_words_for_the_same_thing_are_accepted() {
        for text in [
            "send this message to Ana",
            "message people",
            "let one or more people know",
            "给安娜写信",
            "send",
        ] {
            let read = checked(&tool(), &json!([text]), 3, "m", Review::Done);
            assert_eq!(read.enrichment.unwrap().texts(), [text]);
            assert!(read.refused.is_empty(), "{text}: {:?}", read.refused);
        }
    }

    #[test]
    fn one_bad_text_does_not_cost_the_others() {
        let long = "x".repeat(201);
        for (bad, why) in [
            (json!(7), "is not a text"),
            (json!("..."), "says nothing"),
            (json!("a\u{7}"), "control character"),
            (json!(long), "201 characters"),
            (json!(null), "is not a text"),
        ] {
            let read = checked(&tool(), &json!([bad, "tell Ana"]), 3, "m", Review::Done);
            assert_eq!(read.enrichment.unwrap().texts(), ["tell Ana"]);
            assert!(read.refused[0].contains(why), "{bad}: {:?}", read.refused);
        }
        let many = checked(&tool(), &json!(["b", "b", "c", "d"]), 2, "m", Review::Done);
        assert_eq!(many.enrichment.unwrap().texts(), ["b", "c"]);
        assert!(many.refused[0].contains("more than the 2"));
    }

    #[test]
    fn invisible_characters_are_refused_by_their_codes() {
        let tool = Tool::new("s", "t").unwrap();
        let read =
            |text: &str| checked(&tool, &Value::from(vec![text]), 3, "m", Review::Done).enrichment;
        for (hidden, code) in [
            ('\u{202e}', "U+202E"),
            ('\u{200b}', "U+200B"),
            ('\u{feff}', "U+FEFF"),
            ('\u{e0041}', "U+E0041"),
        ] {
            let reason = read(&format!("write to{hidden} Ann")).unwrap_err();
            assert!(reason.contains(code), "{reason}");
        }
        for needed in ["می\u{200c}خواهم", "love it ❤\u{fe0f}", "für Zoë"] {
            assert!(read(needed).is_ok(), "{needed}");
        }
        let reason = read(&"x".repeat(201)).unwrap_err();
        assert!(
            reason.ends_with("has 201 characters, it must have 1 to 200"),
            "{reason}"
        );
    }
}
