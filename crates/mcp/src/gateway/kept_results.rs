//! Long results of calls: clients get the beginning, and read on when they want to.

use std::mem;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use toolscout_finder::finder::model_names::CALL_TOOL;
use toolscout_gate::tools::Arguments;
use toolscout_gate::tools::compact::compact_text;
use toolscout_gate::tools::long_results::{LongResults, LongText};

/// Most readers whose results are kept; the least recent ones are dropped first.
const MAX_READERS: NonZeroUsize = NonZeroUsize::new(1_024).expect("is not zero");
/// Most bytes of the results of all readers.
const MAX_ALL_BYTES: usize = 128 << 20;
/// Least bytes of the first page of a long text, however long the texts before it are.
const MIN_PAGE_BYTES: usize = 1 << 10;

/// Who may read on in a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// The client of a session, by the session's id.
    Session(String),
    /// Any client of this key. Without sessions they cannot be told apart.
    Key(String),
}

/// The results that were cut, by reader.
pub struct KeptResults(Mutex<LruCache<Reader, LongResults>>);

impl Default for KeptResults {
    fn default() -> Self {
        KeptResults(Mutex::new(LruCache::new(MAX_READERS)))
    }
}

impl KeptResults {
    /// Cuts the texts of a result to about this many bytes, and keeps them. Blocks, since they may be long.
    ///
    /// Structured content is left out if it is longer: what is cut is no JSON. Pictures and sounds stay.
    pub fn shorten(
        &self,
        reader: &Reader,
        source: &str,
        result: &mut CallToolResult,
        max_bytes: usize,
    ) {
        let structured = result.structured_content.as_ref().map(Value::to_string);
        if let Some(structured) = structured
            && structured.len() > max_bytes
        {
            let value = result.structured_content.take();
            // Servers repeat it as text for clients that do not know it.
            let is_repeated = result.content.iter().any(|block| {
                matches!(block, ContentBlock::Text(text) if repeats(&text.text, value.as_ref()))
            });
            if !is_repeated {
                result.content.push(ContentBlock::text(structured));
            }
        }
        let texts = result.content.iter().filter_map(text_of);
        if texts.map(str::len).sum::<usize>() > max_bytes {
            let keep = |text, bytes| self.keep(reader, source, text, bytes);
            result.content = shortened(mem::take(&mut result.content), max_bytes, keep);
        }
    }

    /// Keeps a text and returns its first page. Blocks, since a text may be long.
    pub fn keep(&self, reader: &Reader, source: &str, text: String, page_bytes: usize) -> String {
        let long = LongText::of(source, text);
        let mut all = self.0.lock();
        let of_reader = all.get_or_insert_mut(reader.clone(), || {
            let results = LongResults::default().read_through(CALL_TOOL);
            match reader {
                Reader::Session(_) => results,
                Reader::Key(_) => results.with_secret_names(),
            }
        });
        let page = of_reader.keep(long, page_bytes);
        // The last reader keeps its results, which have a bound of their own.
        while all.len() > 1
            && all.iter().map(|(_, kept)| kept.bytes()).sum::<usize>() > MAX_ALL_BYTES
        {
            all.pop_lru();
        }
        page
    }

    /// Whether there is a result that this reader may read on in.
    pub fn has_any(&self, reader: &Reader) -> bool {
        self.0.lock().contains(reader)
    }

    /// The part of a result that the client asks for. Blocks, since a result may be long.
    ///
    /// # Errors
    /// A message for the model.
    pub fn read(
        &self,
        reader: &Reader,
        given: &Arguments,
        page_bytes: usize,
    ) -> Result<String, String> {
        // Results are shared, so that others do not wait meanwhile.
        let of_reader = self.0.lock().get(reader).cloned().unwrap_or_default();
        Ok(of_reader.read(given, page_bytes)?.text)
    }

    /// Forgets the results of a session that has ended.
    pub fn forget_session(&self, id: &str) {
        self.0.lock().pop(&Reader::Session(id.to_owned()));
    }
}

/// Whether a result has more than this many bytes of texts, or of structured content.
pub fn is_long(result: &CallToolResult, max_bytes: usize) -> bool {
    if let Some(structured) = &result.structured_content
        && structured.to_string().len() > max_bytes
    {
        return true;
    }
    let texts = result.content.iter().filter_map(text_of);
    texts.map(str::len).sum::<usize>() > max_bytes
}

/// Whether a text says what structured content says, as the whole or as its only field: servers put a text
/// into a field, and the elements of a list too.
fn repeats(text: &str, structured: Option<&Value>) -> bool {
    let Some(structured) = structured else {
        return false;
    };
    let field = match structured {
        Value::Object(fields) if fields.len() == 1 => fields.values().next(),
        _ => None,
    };
    if field.and_then(Value::as_str) == Some(text) {
        return true;
    }
    match serde_json::from_str::<Value>(text) {
        Ok(of_text) => of_text == *structured || Some(&of_text) == field,
        Err(_) => false,
    }
}

/// Puts texts in JSON into their [compact](compact_text) form, as far as they are shown whole then:
/// parts of long ones are selected by their own form. Structured content stays as it is.
pub fn compact(result: &mut CallToolResult, max_bytes: usize) {
    for block in &mut result.content {
        if let ContentBlock::Text(text) = block
            && let Some(compacted) = compact_text(&text.text)
            && compacted.len() <= max_bytes
        {
            text.text = compacted;
        }
    }
}

/// The blocks with texts of about this many bytes. The texts from the first one that is too long on
/// become one.
fn shortened(
    blocks: Vec<ContentBlock>,
    max_bytes: usize,
    keep: impl FnOnce(String, usize) -> String,
) -> Vec<ContentBlock> {
    let (mut shown, mut long) = (Vec::new(), Vec::new());
    let (mut left, mut place) = (max_bytes, 0);
    for block in blocks {
        match text_of(&block).map(str::len) {
            Some(bytes) if !long.is_empty() || bytes > left => {
                // The one text for all of them stands where the first of them was.
                if long.is_empty() {
                    place = shown.len();
                }
                long.push(block);
            }
            bytes => {
                left -= bytes.unwrap_or_default();
                shown.push(block);
            }
        }
    }
    let page_bytes = left.max(MIN_PAGE_BYTES);
    let block = match <[ContentBlock; 1]>::try_from(long) {
        Ok([block]) => with_text(block, |text| keep(text, page_bytes)),
        Err(several) => {
            let texts: Vec<String> = several.iter().map(with_address).collect();
            ContentBlock::text(keep(texts.join("\n"), page_bytes))
        }
    };
    shown.insert(place, block);
    shown
}

/// The text of a block, also of an embedded resource.
fn text_of(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text(text) => Some(&text.text),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The block with another text.
fn with_text(mut block: ContentBlock, shorten: impl FnOnce(String) -> String) -> ContentBlock {
    let text = match &mut block {
        ContentBlock::Text(text) => &mut text.text,
        ContentBlock::Resource(embedded) => match &mut embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            _ => return block,
        },
        _ => return block,
    };
    *text = shorten(mem::take(text));
    block
}

/// The text of a block, after the address of its resource if it is one.
fn with_address(block: &ContentBlock) -> String {
    let text = text_of(block).unwrap_or_default();
    match block {
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, .. } => format!("[{uri}]\n{text}"),
            _ => text.to_owned(),
        },
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::EmbeddedResource;
    use serde_json::json;

    use super::*;

    const PAGE: usize = 2_000;

    fn session(id: &str) -> Reader {
        Reader::Session(id.into())
    }

    fn shorten(kept: &KeptResults, mut result: CallToolResult) -> CallToolResult {
        kept.shorten(&session("a"), "s/t", &mut result, PAGE);
        result
    }

    fn texts(result: &CallToolResult) -> Vec<&str> {
        result.content.iter().filter_map(text_of).collect()
    }

    fn whole(kept: &KeptResults) -> String {
        let all = json!({ "output": "output_1" });
        let read = kept.read(&session("a"), all.as_object().unwrap(), usize::MAX);
        let (text, _) = read.as_ref().unwrap().rsplit_once("\n[bytes 0").unwrap();
        text.to_owned()
    }

    #[test]
    fn short_results_stay_as_they_are() {
        let kept = KeptResults::default();
        let mut result = CallToolResult::structured(json!({ "a": "b".repeat(500) }));
        result
            .content
            .push(ContentBlock::image("x".repeat(9_000), "image/png"));
        assert_eq!(shorten(&kept, result.clone()), result);
        assert!(!kept.has_any(&session("a")));
    }

    #[test]
    fn texts_from_the_first_long_one_on_become_one_and_pictures_stay() {
        let kept = KeptResults::default();
        let (long, picture) = ("y".repeat(5_000), ContentBlock::image("abc", "image/png"));
        let address = ResourceContents::text("z".repeat(300), "file:///z");
        let result = shorten(
            &kept,
            CallToolResult::success(vec![
                ContentBlock::text("x".repeat(500)),
                ContentBlock::text(long.as_str()),
                picture.clone(),
                ContentBlock::text("short"),
                ContentBlock::Resource(EmbeddedResource::new(address)),
            ]),
        );
        let shown = texts(&result);
        assert_eq!((result.content.len(), shown.len()), (3, 2));
        assert_eq!(shown[0], "x".repeat(500));
        assert!(shown[1].starts_with(&"y".repeat(1_500)) && shown[1].len() < 2_000);
        assert_eq!(result.content[2], picture);
        let rest = format!("{long}\nshort\n[file:///z]\n{}", "z".repeat(300));
        assert_eq!(whole(&kept), rest);
    }

    #[test]
    fn long_structured_content_is_kept_once() {
        let value = json!({ "items": vec!["item"; 1_000] });
        let kept = KeptResults::default();
        let result = shorten(&kept, CallToolResult::structured(value.clone()));
        assert_eq!(
            (result.structured_content.as_ref(), result.content.len()),
            (None, 1)
        );
        assert!(texts(&result)[0].contains("[shape: {items: [1000 of string]}]"));
        assert_eq!(whole(&kept), value.to_string());

        let text = "book ".repeat(1_000);
        let list = json!(vec!["item"; 1_000]);
        for (structured, text) in [
            (json!({ "content": text }), text),
            (json!({ "result": list }), list.to_string()),
        ] {
            let kept = KeptResults::default();
            let mut twice = CallToolResult::structured(json!({ "padding": "x".repeat(3_000) }));
            twice.structured_content = Some(structured);
            twice.content = vec![ContentBlock::text(text.clone())];
            let result = shorten(&kept, twice);
            assert_eq!(result.content.len(), 1);
            assert_eq!(whole(&kept), text);
        }

        let kept = KeptResults::default();
        let mut other = CallToolResult::structured(value.clone());
        other.content = vec![ContentBlock::text("1,000 items")];
        let result = shorten(&kept, other);
        assert_eq!(texts(&result)[0], "1,000 items");
        assert_eq!(whole(&kept), value.to_string());
    }

    #[test]
    fn results_belong_to_their_reader_and_end_with_the_session() {
        let kept = KeptResults::default();
        kept.keep(&session("a"), "s/t", "x".repeat(100), 10);
        let first = json!({ "output": "output_1" });
        let read = |reader: Reader| kept.read(&reader, first.as_object().unwrap(), 10);
        assert!(read(session("a")).is_ok());
        assert!(read(session("b")).is_err() && read(Reader::Key("a".into())).is_err());
        kept.forget_session("a");
        let gone = read(session("a")).unwrap_err();
        assert_eq!(gone, "there is no output \"output_1\"; call the tool again");
    }

    #[test]
    fn the_results_of_all_readers_are_bounded() {
        let kept = KeptResults::default();
        for n in 0..20 {
            kept.keep(&session(&n.to_string()), "s/t", "x".repeat(15 << 20), 10);
        }
        let (readers, bytes) = {
            let all = kept.0.lock();
            (
                all.len(),
                all.iter().map(|(_, kept)| kept.bytes()).sum::<usize>(),
            )
        };
        assert!(bytes <= MAX_ALL_BYTES && readers == 8, "{readers} {bytes}");
    }
}
