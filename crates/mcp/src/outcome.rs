//! The result of a call, for a model: text, structured content, images, audio and resources.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

/// Longest `data` or `blob` of a block of unknown kind that is shown.
const MAX_ENCODED_BYTES: usize = 256;

/// The result of a tool in its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The texts, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub text: Vec<String>,
    /// The structured content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Images, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Media>,
    /// Audio, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub audio: Vec<Media>,
    /// Resources, whole or as links, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// The tool reported a failure.
    #[serde(skip)]
    pub is_error: bool,
}

/// An image or audio. A model that reads text cannot use the bytes, so only their number is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Media {
    /// The MIME type.
    pub mime_type: String,
    /// Its size before the encoding in base64, about.
    pub bytes: usize,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resource {
    /// Its URI.
    pub uri: String,
    /// The MIME type, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The text, of an embedded text resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The size in bytes, of an embedded binary resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}

impl Outcome {
    /// Reads a result.
    pub fn of(result: &CallToolResult) -> Self {
        let mut outcome = Outcome {
            structured: result.structured_content.clone(),
            ..Outcome::default()
        };
        outcome.is_error = result.is_error == Some(true);
        for block in &result.content {
            match block {
                ContentBlock::Text(text) => outcome.text.push(text.text.clone()),
                ContentBlock::Image(image) => outcome
                    .images
                    .push(Media::of(&image.mime_type, &image.data)),
                ContentBlock::Audio(audio) => {
                    outcome.audio.push(Media::of(&audio.mime_type, &audio.data))
                }
                ContentBlock::Resource(embedded) => {
                    outcome.resources.extend(Resource::of(&embedded.resource))
                }
                ContentBlock::ResourceLink(link) => outcome.resources.push(Resource {
                    uri: link.uri.clone(),
                    mime_type: link.mime_type.clone(),
                    text: None,
                    bytes: None,
                }),
                // Kinds of later protocol versions.
                other => outcome
                    .text
                    .push(serde_json::to_string(other).unwrap_or_default()),
            }
        }
        outcome.drop_repeated_text();
        outcome
    }

    /// The value for a model: a string if there is only text, the structured content if there is
    /// only that, and otherwise an object with a field for each kind.
    pub fn to_value(&self) -> Value {
        let only_text = Outcome {
            text: self.text.clone(),
            is_error: self.is_error,
            ..Outcome::default()
        } == *self;
        if only_text {
            return Value::String(self.text.join("\n"));
        }
        let bare = Outcome {
            structured: self.structured.clone(),
            is_error: self.is_error,
            ..Outcome::default()
        };
        match &self.structured {
            Some(structured) if bare == *self => structured.clone(),
            _ => serde_json::to_value(self).unwrap_or_default(),
        }
    }

    /// The message of a failure.
    pub fn failure(&self) -> String {
        match self.to_value() {
            Value::String(text) if text.trim().is_empty() => {
                "the tool failed without a message".into()
            }
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// Removes texts that repeat the structured content. The protocol asks servers to do so, for
    /// clients that support only text.
    fn drop_repeated_text(&mut self) {
        if let Some(structured) = &self.structured {
            // Compared as values, since servers format the text in their own way.
            self.text.retain(|text| {
                serde_json::from_str::<Value>(text).ok().as_ref() != Some(structured)
            });
        }
    }
}

/// Reads a result that is not as the protocol has it, from a server of an old or a later version of
/// it: the call was made, so everything that can be read is passed on, as text where it has no place
/// of its own.
pub fn lenient_result(result: Value) -> CallToolResult {
    let mut read = CallToolResult::default();
    let Value::Object(mut fields) = result else {
        read.content = blocks(result);
        return read;
    };
    fields.remove("resultType");
    let meta = fields.remove("_meta");
    read.meta = meta.and_then(|meta| serde_json::from_value(meta).ok());
    let is_error = fields.remove("isError");
    // Some servers write it as a text or as a number.
    let says_yes = |value: &Value| *value == true || *value == "true" || *value == 1;
    read.is_error = is_error.as_ref().map(says_yes);
    read.structured_content = fields.remove("structuredContent");
    // `toolResult` is the name of the content before the first version of the protocol was final.
    for name in ["content", "toolResult"] {
        read.content
            .extend(fields.remove(name).map(blocks).unwrap_or_default());
    }
    if read.content.is_empty() && read.structured_content.is_none() && !fields.is_empty() {
        read.content = vec![as_text(&Value::Object(fields))];
    }
    read
}

/// The blocks of a content.
fn blocks(content: Value) -> Vec<ContentBlock> {
    match content {
        Value::Null => Vec::new(),
        Value::Array(blocks) => blocks.iter().map(block).collect(),
        other => vec![block(&other)],
    }
}

/// A block of content, as text where it is of no known kind.
fn block(block: &Value) -> ContentBlock {
    if let Ok(known) = ContentBlock::deserialize(block) {
        return known;
    }
    let text = |name: &str| block.get(name).and_then(Value::as_str);
    let mime_type = text("mimeType").or(text("mime_type"));
    let mime_type = mime_type.unwrap_or("application/octet-stream");
    match (text("type"), text("data"), text("text")) {
        (Some("image"), Some(data), _) => ContentBlock::image(data, mime_type),
        (Some("audio"), Some(data), _) => ContentBlock::audio(data, mime_type),
        (Some("text") | None, _, Some(text)) => ContentBlock::text(text),
        _ => as_text(block),
    }
}

/// Text as it is, and anything else as JSON, in which encoded bytes are left out: no model reads
/// them.
fn as_text(value: &Value) -> ContentBlock {
    if let Value::String(text) = value {
        return ContentBlock::text(text);
    }
    let mut shown = value.clone();
    leave_out_bytes(&mut shown);
    ContentBlock::text(shown.to_string())
}

fn leave_out_bytes(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(leave_out_bytes),
        Value::Object(fields) => {
            for (name, field) in fields {
                let encoded = field.as_str().filter(|text| text.len() > MAX_ENCODED_BYTES);
                match encoded {
                    Some(encoded) if matches!(name.as_str(), "data" | "blob") => {
                        *field = format!("({} bytes)", decoded_bytes(encoded)).into();
                    }
                    _ => leave_out_bytes(field),
                }
            }
        }
        _ => {}
    }
}

impl Media {
    fn of(mime_type: &str, base64: &str) -> Self {
        Media {
            mime_type: mime_type.to_owned(),
            bytes: decoded_bytes(base64),
        }
    }
}

impl Resource {
    fn of(contents: &ResourceContents) -> Option<Self> {
        match contents {
            ResourceContents::TextResourceContents {
                uri,
                mime_type,
                text,
                ..
            } => Some(Resource {
                uri: uri.clone(),
                mime_type: mime_type.clone(),
                text: Some(text.clone()),
                bytes: None,
            }),
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => Some(Resource {
                uri: uri.clone(),
                mime_type: mime_type.clone(),
                text: None,
                bytes: Some(decoded_bytes(blob)),
            }),
            _ => None,
        }
    }
}

fn decoded_bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(result: Value) -> Outcome {
        Outcome::of(&serde_json::from_value(result).unwrap())
    }

    #[test]
    fn each_kind_of_content_has_its_own_field() {
        let all = outcome(json!({
            "content": [
                { "type": "text", "text": "a" },
                { "type": "image", "data": "QUJD", "mimeType": "image/png" },
                { "type": "audio", "data": "QUI=", "mimeType": "audio/wav" },
                { "type": "resource", "resource": { "uri": "r:1", "mimeType": "text/plain", "text": "inside" } },
                { "type": "resource", "resource": { "uri": "r:2", "blob": "QUJD" } },
                { "type": "resource_link", "uri": "r:3", "name": "three" },
                { "type": "text", "text": "b" }
            ],
            "structuredContent": { "n": 1 }
        }));
        assert_eq!(
            all.to_value(),
            json!({
                "text": ["a", "b"],
                "structured": { "n": 1 },
                "images": [{ "mime_type": "image/png", "bytes": 3 }],
                "audio": [{ "mime_type": "audio/wav", "bytes": 2 }],
                "resources": [
                    { "uri": "r:1", "mime_type": "text/plain", "text": "inside" },
                    { "uri": "r:2", "bytes": 3 },
                    { "uri": "r:3" }
                ]
            })
        );
        assert!(!all.is_error);
    }

    #[test]
    fn a_single_kind_of_content_is_not_wrapped() {
        let texts = outcome(
            json!({ "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }),
        );
        assert_eq!(texts.to_value(), json!("a\nb"));
        let repeated = outcome(json!({
            "content": [{ "type": "text", "text": "{\"n\": 1}" }], "structuredContent": { "n": 1 }
        }));
        assert_eq!(repeated.to_value(), json!({ "n": 1 }));
    }

    #[test]
    fn a_failure_always_has_a_message() {
        let failed = outcome(
            json!({ "content": [{ "type": "text", "text": "no such zone" }], "isError": true }),
        );
        assert!(failed.is_error);
        assert_eq!(failed.failure(), "no such zone");
        assert_eq!(
            outcome(json!({ "content": [], "isError": true })).failure(),
            "the tool failed without a message"
        );
    }

    #[test]
    fn a_result_that_is_not_as_the_protocol_has_it_is_passed_on() {
        for (result, expected) in [
            (json!({ "content": "plain" }), json!("plain")),
            (json!({ "content": ["one", "two"] }), json!("one\ntwo")),
            (
                json!({ "content": { "type": "text", "text": "one" } }),
                json!("one"),
            ),
            (json!({ "content": [{ "text": "bare" }] }), json!("bare")),
            (
                json!({ "content": [{ "type": "text", "text": "a", "annotations": { "priority": "high" } }] }),
                json!("a"),
            ),
            (json!({ "content": null }), json!("")),
            (json!({}), json!("")),
            (json!(null), json!("")),
            (json!("done"), json!("done")),
            (json!([1, "b"]), json!("1\nb")),
            (json!({ "toolResult": "old" }), json!("old")),
            (json!({ "toolResult": { "n": 1 } }), json!("{\"n\":1}")),
            (
                json!({ "output": 42, "resultType": "complete" }),
                json!("{\"output\":42}"),
            ),
            (
                json!({ "content": 7, "structuredContent": { "n": 1 } }),
                json!({ "text": ["7"], "structured": { "n": 1 } }),
            ),
            (
                json!({ "content": [{ "type": "video", "uri": "v:1" }, { "type": "text", "text": "b" }] }),
                json!("{\"type\":\"video\",\"uri\":\"v:1\"}\nb"),
            ),
            (
                json!({ "content": [{ "type": "image", "data": "QUJD" }] }),
                json!({ "images": [{ "mime_type": "application/octet-stream", "bytes": 3 }] }),
            ),
        ] {
            let read = Outcome::of(&lenient_result(result.clone()));
            assert_eq!(read.to_value(), expected, "{result}");
            assert!(!read.is_error);
        }
    }

    #[test]
    fn the_bytes_of_a_block_of_unknown_kind_are_left_out() {
        let video = json!({ "type": "video", "data": "QUJD".repeat(1000) });
        let read = Outcome::of(&lenient_result(json!({ "content": [video] })));
        assert_eq!(read.text, [r#"{"type":"video","data":"(3000 bytes)"}"#]);
    }

    #[test]
    fn a_failure_is_one_in_every_form() {
        for flag in [json!(true), json!("true"), json!(1)] {
            let result = json!({ "content": "no such zone", "isError": flag });
            let read = Outcome::of(&lenient_result(result));
            assert!(read.is_error);
            assert_eq!(read.failure(), "no such zone");
        }
        let fine = json!({ "content": "yes", "isError": "false" });
        assert!(!Outcome::of(&lenient_result(fine)).is_error);
    }
}
