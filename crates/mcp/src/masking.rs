//! Masks in place of the secrets in what a server answers: those that the program knows, and those that
//! fit the rules of the owner of the file of servers.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use regex::{Regex, RegexBuilder};
use rmcp::model::{
    CallToolResult, ContentBlock, DetailedTask, GetPromptResult, ResourceContents, TaskPayload,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use toolscout_base::known_secrets;
use toolscout_base::printable::excerpt;

/// What stands in place of a secret.
const MASK: &str = "[redacted]";
/// Most patterns of one server.
const MAX_PATTERNS: usize = 64;
/// Longest pattern.
const MAX_PATTERN_BYTES: usize = 1_000;
/// Most bytes of a compiled pattern.
const MAX_COMPILED_BYTES: usize = 1 << 20;
/// Fields of questions that people and models read.
const TEXTS_OF_QUESTIONS: [&str; 5] = ["message", "title", "description", "text", "systemPrompt"];
/// The field of a form that has the names of the values of a choice, as people read them.
const NAMES_OF_VALUES: &str = "enumNames";
/// Longest pattern in a message.
const SHOWN_CHARS: usize = 100;

/// The forms of keys that are made to be recognised, of tokens with a signature, and of private keys. A
/// group is the part that is masked.
static KEYS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let forms = [
        r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
        r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b",
        r"\bgithub_pat_[A-Za-z0-9_]{22,255}\b",
        r"\bglpat-[A-Za-z0-9_-]{20,}",
        r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
        r"\bAIza[0-9A-Za-z_-]{35}",
        r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)",
        r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/:@]*:([^\s/]+)@",
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
    ];
    forms
        .iter()
        .filter_map(|form| compiled(form).ok())
        .collect()
});

/// The form of keys that begins as many other names do: `sk-learn-contrib-lightning`.
static PLAIN_KEYS: LazyLock<Option<Regex>> =
    LazyLock::new(|| compiled(r"\b(?:sk|rk)[-_][A-Za-z0-9_-]{20,}").ok());

/// Whether a text of the form of [`PLAIN_KEYS`] is a key, which has digits and letters after its beginning.
fn is_plain_key(text: &str) -> bool {
    let rest = text.as_bytes().get(3..).unwrap_or_default();
    rest.iter().any(u8::is_ascii_digit) && rest.iter().any(u8::is_ascii_alphabetic)
}

/// What the owner wants to be masked in the answers of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskSettings {
    /// The usual forms of keys and tokens.
    pub keys: bool,
    /// Regular expressions. Of one with a group, only the first group is masked.
    pub patterns: Vec<String>,
}

/// Masks secrets in the answers of one server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Masking {
    settings: MaskSettings,
    patterns: Arc<[Regex]>,
}

impl PartialEq for Masking {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Eq for Masking {}

impl Masking {
    /// Reads the rules.
    ///
    /// # Errors
    /// What is wrong with one, with its place.
    pub fn of(settings: MaskSettings) -> Result<Self, String> {
        if settings.patterns.len() > MAX_PATTERNS {
            return Err(format!(
                "`mask.patterns` has {} patterns, {MAX_PATTERNS} are allowed",
                settings.patterns.len()
            ));
        }
        let mut patterns = Vec::with_capacity(settings.patterns.len());
        for (place, pattern) in settings.patterns.iter().enumerate() {
            let regex = compiled(pattern);
            let regex = regex.map_err(|reason| format!("`mask.patterns[{place}]`: {reason}"))?;
            patterns.push(regex);
        }
        Ok(Masking {
            settings,
            patterns: patterns.into(),
        })
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        known_secrets::is_empty() && self.settings == MaskSettings::default()
    }

    /// A text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut masked = known_secrets::mask(text);
        let keys: &[Regex] = if self.settings.keys { &KEYS } else { &[] };
        for pattern in keys.iter().chain(&*self.patterns) {
            if let Some(changed) = replaced(pattern, &masked, |_| true) {
                masked = Cow::Owned(changed);
            }
        }
        if self.settings.keys
            && let Some(pattern) = &*PLAIN_KEYS
            && let Some(changed) = replaced(pattern, &masked, is_plain_key)
        {
            masked = Cow::Owned(changed);
        }
        masked
    }

    /// Masks the texts and the values of a result.
    pub fn result(&self, result: &mut CallToolResult) {
        for block in &mut result.content {
            self.block(block);
        }
        if let Some(structured) = &mut result.structured_content {
            self.value(structured);
        }
        for value in result.meta.iter_mut().flat_map(|meta| meta.0.values_mut()) {
            self.value(value);
        }
    }

    /// Masks a prompt.
    pub fn prompt(&self, prompt: &mut GetPromptResult) {
        if let Some(description) = &mut prompt.description {
            self.replace(description);
        }
        for message in &mut prompt.messages {
            self.block(&mut message.content);
        }
    }

    /// Masks what a server says about a task. The result of one that is done is masked as that of a call.
    pub fn task(&self, task: &mut DetailedTask) {
        if let Some(message) = &mut task.task.status_message {
            self.replace(message);
        }
        if let TaskPayload::Failed { error } = &mut task.payload {
            error.values_mut().for_each(|value| self.value(value));
        }
    }

    /// Masks the texts of a server's question to a person or a model. Names, values and addresses stay as they
    /// are, or nobody could answer.
    pub fn question(&self, question: &mut Value) {
        match question {
            Value::Array(items) => items.iter_mut().for_each(|item| self.question(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match field {
                        Value::String(text) if TEXTS_OF_QUESTIONS.contains(&name.as_str()) => {
                            self.replace(text);
                        }
                        Value::Array(_) if name == NAMES_OF_VALUES => self.value(field),
                        field => self.question(field),
                    }
                }
            }
            _ => {}
        }
    }

    /// Masks the content of a resource. Bytes stay as they are.
    pub fn contents(&self, contents: &mut ResourceContents) {
        if let ResourceContents::TextResourceContents { text, .. } = contents {
            self.replace(text);
        }
    }

    fn block(&self, block: &mut ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.replace(&mut text.text),
            ContentBlock::Resource(embedded) => self.contents(&mut embedded.resource),
            _ => {}
        }
    }

    /// Masks all texts of a value.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.replace(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.value(field)),
            _ => {}
        }
    }

    fn replace(&self, text: &mut String) {
        // Most texts have no secret, and stay as they are without a copy.
        if let Cow::Owned(masked) = self.text(text) {
            *text = masked;
        }
    }
}

/// The bytes of the texts of a result, which tell how long it takes to look at them.
pub fn length(result: &CallToolResult) -> usize {
    let content: usize = result.content.iter().map(block_length).sum();
    let structured = result.structured_content.as_ref().map_or(0, value_length);
    let meta = result.meta.iter().flat_map(|meta| meta.0.values());
    content + structured + meta.map(value_length).sum::<usize>()
}

/// The same of a prompt.
pub fn prompt_length(prompt: &GetPromptResult) -> usize {
    let messages = prompt.messages.iter();
    let content: usize = messages.map(|message| block_length(&message.content)).sum();
    content + prompt.description.as_ref().map_or(0, String::len)
}

/// The same of the contents of a resource.
pub fn contents_length(contents: &ResourceContents) -> usize {
    match contents {
        ResourceContents::TextResourceContents { text, .. } => text.len(),
        _ => 0,
    }
}

fn block_length(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text(text) => text.text.len(),
        ContentBlock::Resource(embedded) => contents_length(&embedded.resource),
        _ => 0,
    }
}

fn value_length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_length).sum(),
        Value::Object(fields) => fields.values().map(value_length).sum(),
        _ => 0,
    }
}

fn compiled(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > MAX_PATTERN_BYTES {
        let bytes = pattern.len();
        return Err(format!(
            "it has {bytes} bytes, {MAX_PATTERN_BYTES} are allowed"
        ));
    }
    let regex = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .build();
    let shown = excerpt(pattern, SHOWN_CHARS);
    match regex {
        Ok(regex) if regex.is_match("") => Err(format!(
            "{shown:?} fits nothing at all, too; make it stricter"
        )),
        Ok(regex) => Ok(regex),
        Err(error) => Err(format!("{shown:?} is no regular expression: {error}")),
    }
}

/// The text with masks where the pattern fits what is a secret; `None` if that is nowhere.
fn replaced(pattern: &Regex, text: &str, is_secret: impl Fn(&str) -> bool) -> Option<String> {
    let (mut masked, mut end) = (String::new(), 0);
    for found in pattern.captures_iter(text) {
        let Some(secret) = found.get(1).or_else(|| found.get(0)) else {
            continue;
        };
        if !is_secret(secret.as_str()) {
            continue;
        }
        masked.push_str(&text[end..secret.start()]);
        masked.push_str(MASK);
        end = secret.end();
    }
    if end == 0 {
        return None;
    }
    masked.push_str(&text[end..]);
    Some(masked)
}

/// A question without secrets.
pub fn asked<T: Serialize + DeserializeOwned>(question: T, masking: &Masking) -> T {
    if masking.is_empty() {
        return question;
    }
    let Ok(mut value) = serde_json::to_value(&question) else {
        return question;
    };
    masking.question(&mut value);
    // Texts alone have changed, so that it is still a question.
    serde_json::from_value(value).unwrap_or(question)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_keep_their_addresses_and_values() {
        let masking = masking(json!({ "patterns": ["secret-[0-9]+"] })).unwrap();
        let question = json!({
            "message": "Is secret-1 yours?",
            "url": "https://x.example/secret-1",
            "requestedSchema": { "properties": { "key": { "title": "Not secret-2", "enum": ["secret-3"], "enumNames": ["As secret-3"] } } },
        });
        let expected = json!({
            "message": "Is [redacted] yours?",
            "url": "https://x.example/secret-1",
            "requestedSchema": { "properties": { "key": { "title": "Not [redacted]", "enum": ["secret-3"], "enumNames": ["As [redacted]"] } } },
        });
        assert_eq!(asked(question, &masking), expected);
    }

    fn masking(settings: Value) -> Result<Masking, String> {
        Masking::of(serde_json::from_value(settings).unwrap())
    }

    #[test]
    fn keys_of_usual_forms_are_masked_and_other_texts_stay() {
        let masking = masking(json!({ "keys": true })).unwrap();
        let long = "a1B2".repeat(10);
        for (text, expected) in [
            (format!("use ghp_{long} now"), "use [redacted] now"),
            (format!("AKIA{}", "Z9".repeat(8)), "[redacted]"),
            (format!("key=sk-{long}"), "key=[redacted]"),
            (
                format!("Authorization: Bearer {long}=="),
                "Authorization: Bearer [redacted]",
            ),
            (
                "postgres://ada:hunter2@db/x".into(),
                "postgres://ada:[redacted]@db/x",
            ),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nrest".into(),
                "[redacted]\nrest",
            ),
            (
                "Postgres://ada:p@ss@db/x or redis://:hunter2@db".into(),
                "Postgres://ada:[redacted]@db/x or redis://:[redacted]@db",
            ),
            (format!("eyJ{long}.eyJ{long}.{long}"), "[redacted]"),
            (
                "pk_customer_order_line_items and sk-learn-contrib-lightning".into(),
                "pk_customer_order_line_items and sk-learn-contrib-lightning",
            ),
            (
                "the bearer of news, a task-list and http://host:80/x".into(),
                "the bearer of news, a task-list and http://host:80/x",
            ),
        ] {
            assert_eq!(masking.text(&text), expected);
        }
        assert_eq!(
            Masking::default().text("sk-a1B2a1B2a1B2a1B2a1B2"),
            "sk-a1B2a1B2a1B2a1B2a1B2"
        );
    }

    #[test]
    fn the_owners_patterns_mask_whole_or_their_group_wherever_texts_are() {
        let masking = masking(json!({ "patterns": [r"\bEMP-\d+", r"pin: (\d+)"] })).unwrap();
        let result = json!({
            "content": [
                { "type": "text", "text": "EMP-7, pin: 1234, pin: 99" },
                { "type": "resource", "resource": { "uri": "a:b", "text": "EMP-8" } },
                { "type": "image", "data": "RU1QLTc=", "mimeType": "image/png" },
            ],
            "structuredContent": { "who": ["EMP-9", 7] },
            "_meta": { "who": "EMP-1" },
        });
        let mut result: CallToolResult = serde_json::from_value(result).unwrap();
        masking.result(&mut result);
        let masked = serde_json::to_value(result).unwrap();
        assert_eq!(
            masked["content"][0]["text"],
            "[redacted], pin: [redacted], pin: [redacted]"
        );
        assert_eq!(masked["content"][1]["resource"]["text"], "[redacted]");
        assert_eq!(masked["content"][2]["data"], "RU1QLTc=");
        assert_eq!(masked["structuredContent"]["who"], json!(["[redacted]", 7]));
        assert_eq!(masked["_meta"]["who"], "[redacted]");
    }

    #[test]
    fn wrong_rules_are_named_with_their_place() {
        for (settings, expected) in [
            (
                json!({ "patterns": ["a", "("] }),
                "`mask.patterns[1]`: \"(\" is no regular expression",
            ),
            (json!({ "patterns": ["x*"] }), "fits nothing at all"),
            (
                json!({ "patterns": ["x".repeat(2_000)] }),
                "2000 bytes, 1000 are allowed",
            ),
            (
                json!({ "patterns": vec!["x"; 65] }),
                "65 patterns, 64 are allowed",
            ),
        ] {
            let message = masking(settings).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
