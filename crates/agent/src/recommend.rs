//! Recommended questions: one more call of the model suggests what the user may ask next.

use std::time::Duration;

use serde_json::Value;

use toolscout_base::printable::excerpt;
use toolscout_gate::llm::{ChatRequest, Message, Purpose};
use toolscout_state::session::PastTurn;

/// Longest wait for recommended questions.
pub const RECOMMEND_WITHIN: Duration = Duration::from_secs(15);
/// Number of recommended questions.
pub const QUESTIONS: usize = 3;
/// Characters of question and answer in the prompt.
const SHOWN_CHARS: usize = 4_000;
/// Characters of an earlier question in the prompt.
const EARLIER_CHARS: usize = 300;
/// Longest accepted question, in characters.
const MAX_QUESTION_CHARS: usize = 300;

/// The request for questions after this answer, which is the last of a conversation.
pub fn request(earlier: &[PastTurn], question: &str, answer: &str) -> ChatRequest {
    let system = "Suggest three short questions that the user may ask next, in the user's language. \
        None that was asked before. Answer with a JSON array of three strings and nothing else.";
    let mut exchange = String::new();
    for turn in earlier {
        let asked = excerpt(&turn.question, EARLIER_CHARS);
        exchange.push_str(&format!("Earlier question: {asked}\n\n"));
    }
    exchange.push_str(&format!(
        "Question: {}\n\nAnswer: {}",
        excerpt(question, SHOWN_CHARS),
        excerpt(answer, SHOWN_CHARS)
    ));
    ChatRequest {
        purpose: Purpose::Recommend,
        messages: vec![Message::system(system), Message::user(exchange)],
        ..ChatRequest::default()
    }
}

/// Parses the model's answer: exactly three different questions, or `None`.
pub fn parse(text: &str) -> Option<Vec<String>> {
    // Models write words before the array, or a fence around it.
    let start = text.find('[')?;
    let parsed: Value = serde_json::Deserializer::from_str(&text[start..])
        .into_iter()
        .next()?
        .ok()?;
    let mut questions: Vec<String> = Vec::new();
    for question in parsed
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .map(str::trim)
    {
        let usable = !question.is_empty() && question.chars().count() <= MAX_QUESTION_CHARS;
        if usable && !questions.iter().any(|known| known == question) {
            questions.push(question.to_owned());
        }
    }
    questions.truncate(QUESTIONS);
    (questions.len() == QUESTIONS).then_some(questions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolscout_state::session::{TurnEvents, TurnStatus};

    #[test]
    fn the_request_has_the_earlier_questions_and_not_their_answers() {
        let earlier = [PastTurn {
            number: 1,
            question: "first?".into(),
            answer: "long answer".into(),
            status: TurnStatus::Answered,
            events: TurnEvents::default(),
        }];
        let messages = request(&earlier, "second?", "yes").messages;
        assert_eq!(
            messages[1].content(),
            "Earlier question: first?\n\nQuestion: second?\n\nAnswer: yes"
        );
    }

    #[test]
    fn three_different_questions_or_none() {
        let three = Some(vec!["a?".to_owned(), "b?".to_owned(), "c?".to_owned()]);
        assert_eq!(parse(r#"["a?","b?","c?"]"#), three);
        assert_eq!(
            parse("Sure:\n```json\n[\"a?\", \" b? \", \"a?\", \"c?\", \"d?\"]\n```"),
            three
        );
        for text in [
            "",
            "a? b? c?",
            r#"["a?","a?","b?"]"#,
            r#"{"questions":1}"#,
            "[1,2,3]",
            "[\"a?\",",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
