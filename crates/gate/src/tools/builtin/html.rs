//! Extracts the text of HTML, even if it is malformed, in one pass over its tokens.
//!
//! It builds no tree and no layout: on malformed pages (unclosed formatting, nested tables) both
//! take quadratic time. The text that a token adds does not depend on the tokens before it.

use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};

/// Longest address of a link that is shown.
const MAX_HREF_BYTES: usize = 2 << 10;

/// The text of a page.
#[derive(Debug, Default)]
pub struct Page {
    /// The first title.
    pub title: Option<String>,
    /// Headings as `# …`, items as `* …`, cells between ` | `, links as `[text](address)`.
    pub text: String,
}

/// Extracts the text of a page.
pub fn read(html: &str) -> Page {
    let mut reader = Reader::default();
    let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| -> Option<()> {
        reader.take(event);
        None
    });
    // Otherwise the content of `script` and `style` would be read as markup.
    emitter.naively_switch_states(true);
    for token in Tokenizer::new_with_emitter(html, emitter) {
        // Callbacks have done the work; the tokenizer has to be driven to its end.
        let Ok(()) = token;
    }
    reader.finish()
}

/// An attribute whose value is used.
#[derive(Clone, Copy)]
enum Attribute {
    Address,
    Alternative,
}

#[derive(Default)]
struct Reader {
    title: Option<String>,
    text: Text,
    /// The current element, if its text is not part of the page's text.
    inside: Option<Inside>,
    /// The name of the current start tag.
    tag: Option<Vec<u8>>,
    attribute: Option<Attribute>,
    /// `href` of the current start tag.
    href: Option<String>,
    /// Address of the current link.
    link: Option<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Inside {
    Title,
    Code,
}

impl Reader {
    fn take(&mut self, event: CallbackEvent<'_>) {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.tag = Some(name.to_vec());
                self.attribute = None;
                self.href = None;
            }
            CallbackEvent::AttributeName { name } => {
                self.attribute = match (self.tag.as_deref(), name) {
                    (Some(b"a"), b"href") => Some(Attribute::Address),
                    (Some(b"img"), b"alt") => Some(Attribute::Alternative),
                    _ => None,
                };
            }
            CallbackEvent::AttributeValue { value } => {
                self.take_attribute(&String::from_utf8_lossy(value))
            }
            CallbackEvent::CloseStartTag { .. } => {
                if let Some(name) = self.tag.take() {
                    self.start(&name);
                }
            }
            CallbackEvent::EndTag { name } => {
                self.tag = None;
                self.end(name);
            }
            CallbackEvent::String { value } => self.take_text(&String::from_utf8_lossy(value)),
            CallbackEvent::Comment { .. }
            | CallbackEvent::Doctype { .. }
            | CallbackEvent::Error(_) => {}
        }
    }

    fn take_attribute(&mut self, value: &str) {
        match self.attribute.take() {
            Some(Attribute::Address) if is_useful_address(value) => {
                self.href = Some(value.trim().to_owned())
            }
            Some(Attribute::Alternative) if !value.trim().is_empty() => {
                self.text.words("[");
                self.text.words(value.trim());
                self.text.words("]");
            }
            _ => {}
        }
    }

    fn take_text(&mut self, text: &str) {
        match self.inside {
            Some(Inside::Title) => {
                let title = text.trim();
                self.title = (!title.is_empty()).then(|| title.to_owned());
            }
            // Scripts and styles are no text for a reader.
            Some(Inside::Code) => {}
            None => self.text.words(text),
        }
    }

    fn start(&mut self, name: &[u8]) {
        // A later title, such as that of a drawing, is not the page's.
        self.inside = match name {
            b"title" if self.title.is_none() => Some(Inside::Title),
            b"title" | b"script" | b"style" => Some(Inside::Code),
            _ => None,
        };
        match name {
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.text.leave(Gap::Paragraph);
                self.text
                    .mark(&format!("{} ", "#".repeat(usize::from(name[1] - b'0'))));
            }
            b"li" => {
                self.text.leave(Gap::Line);
                self.text.mark("* ");
            }
            b"td" | b"th" => self.text.cell(),
            b"a" => self.start_link(),
            b"pre" => {
                self.text.leave(Gap::Paragraph);
                self.text.is_preformatted = true;
            }
            _ => self.text.leave(gap(name)),
        }
    }

    fn end(&mut self, name: &[u8]) {
        self.inside = None;
        match name {
            b"a" => self.end_link(),
            b"pre" => {
                self.text.is_preformatted = false;
                self.text.leave(Gap::Paragraph);
            }
            b"td" | b"th" => {}
            _ => self.text.leave(gap(name)),
        }
    }

    fn start_link(&mut self) {
        self.end_link();
        self.link = self.href.take();
        if self.link.is_some() {
            self.text.mark("[");
        }
    }

    fn end_link(&mut self) {
        // Also called by the next link and at the end, since `</a>` may be missing.
        if let Some(address) = self.link.take() {
            self.text.close(&format!("]({address})"));
        }
    }

    fn finish(mut self) -> Page {
        self.end_link();
        Page {
            title: self.title,
            text: self.text.written,
        }
    }
}

/// True for an address that leads to another page.
fn is_useful_address(address: &str) -> bool {
    let address = address.trim();
    if address.is_empty() || address.starts_with('#') || address.len() > MAX_HREF_BYTES {
        return false;
    }
    const SCRIPT: &str = "javascript:";
    match address.get(..SCRIPT.len()) {
        Some(start) => !start.eq_ignore_ascii_case(SCRIPT),
        None => true,
    }
}

/// The separation between two pieces of text, weakest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    Nothing,
    Space,
    Cell,
    Line,
    Paragraph,
}

/// The gap around an element.
fn gap(name: &[u8]) -> Gap {
    match name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"ul" | b"ol" | b"dl" | b"table"
        | b"blockquote" | b"hr" | b"figure" => Gap::Paragraph,
        b"br" | b"div" | b"section" | b"article" | b"header" | b"footer" | b"main" | b"nav"
        | b"aside" | b"tr" | b"li" | b"form" | b"fieldset" | b"figcaption" | b"details"
        | b"summary" | b"dt" | b"dd" | b"address" | b"caption" | b"option" | b"body" | b"head"
        | b"title" => Gap::Line,
        _ => Gap::Nothing,
    }
}

/// The text written so far, with collapsed whitespace.
#[derive(Default)]
struct Text {
    written: String,
    gap: Gap,
    /// Written before the next words: the marks of headings, list items and links.
    marks: String,
    is_preformatted: bool,
}

impl Text {
    /// Ensures at least this gap before the next words.
    fn leave(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
        // The heading, item or link was empty: its mark belongs to no words on the next line.
        if gap >= Gap::Line {
            self.marks.clear();
        }
    }

    fn cell(&mut self) {
        self.gap = self.gap.max(Gap::Cell);
    }

    fn mark(&mut self, mark: &str) {
        // Bounded: a page of nested empty elements would add marks without end.
        if self.marks.len() < 16 {
            self.marks.push_str(mark);
        }
    }

    fn words(&mut self, text: &str) {
        if self.is_preformatted {
            return self.write(text);
        }
        if text.starts_with(char::is_whitespace) {
            self.leave(Gap::Space);
        }
        for word in text.split_whitespace() {
            self.write(word);
            self.leave(Gap::Space);
        }
        // The last word may go on in the next piece, as in `un<b>believable</b>`.
        if !text.ends_with(char::is_whitespace) && self.gap == Gap::Space {
            self.gap = Gap::Nothing;
        }
    }

    /// Closes a mark, or removes it if no words followed.
    fn close(&mut self, end: &str) {
        if self.marks.is_empty() {
            self.written.push_str(end);
        } else {
            self.marks.clear();
        }
    }

    fn write(&mut self, text: &str) {
        if !self.written.is_empty() {
            self.written.push_str(match self.gap {
                Gap::Nothing => "",
                Gap::Space => " ",
                Gap::Cell => " | ",
                Gap::Line => "\n",
                Gap::Paragraph => "\n\n",
            });
        }
        self.gap = Gap::Nothing;
        self.written.push_str(&self.marks);
        self.marks.clear();
        self.written.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quarter of the default limit of a page.
    const PAGE_BYTES: usize = 512 << 10;

    #[test]
    fn a_page_becomes_text_with_its_structure() {
        let page = read(
            "<!doctype html><html><head><TITLE>A &amp; b</title><style>x{}</style><script>1 < 2</script></head><body>\
             <h1>Hi\n  all</h1><p>one <b>two</b>three<br>four</p><ul><li>x<li><a href='/y'>y &lt; z</a></ul>\
             <table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>\
             <pre>  kept\n as is</pre><a href='#top'>up</a> <img alt='a cat' src=c><!-- not this -->end",
        );
        assert_eq!(page.title.as_deref(), Some("A & b"));
        assert_eq!(
            page.text,
            "# Hi all\n\none twothree\nfour\n\n* x\n* [y < z](/y)\n\na | b\n1 | 2\n\n  kept\n as is\n\nup [a cat]end"
        );
    }

    #[test]
    fn links_without_text_or_address_are_ignored() {
        let page = read(
            "<a href=/a><img src=x></a>b <a href='javascript:x()'>c</a> <a href=/d>d<a href=/e>e",
        );
        assert_eq!(page.text, "b c [d](/d)[e](/e)");
    }

    /// Malformed pages on which building a tree or a layout took minutes. The length of the text
    /// shows that there was only one pass.
    #[test]
    fn malformed_pages_are_read_in_one_pass() {
        let fill = |unit: &str| unit.repeat(PAGE_BYTES / unit.len());
        let numbered =
            |unit: fn(usize) -> String| (0..PAGE_BYTES / 16).map(unit).collect::<String>();
        for (what, page) in [
            ("elements within elements", fill("<div>")),
            ("unclosed formatting", fill("<b><i><font color=red>")),
            (
                "formatting closed in the wrong order",
                fill("<b><p><i></b>x</i>"),
            ),
            ("links within links", fill("<a href=/x><b>")),
            ("tables within tables", fill("<table><tr><td>")),
            ("text between table rows", fill("<table>x<tr>y<td>")),
            (
                "wide tables",
                format!("<table>{}", fill("<tr><td colspan=1000>x")),
            ),
            ("comments that never end", fill("<!-- <b> --!")),
            ("lists within lists", fill("<ul><li>")),
            ("closing what was never open", fill("</div></b></x>")),
            ("references that are none", fill("&ampx&#x110000;&nosuch")),
            ("headings within headings", fill("<h1><h2>")),
            (
                "attributes of one tag",
                format!("<p {}>", numbered(|number| format!("a{number}={number} "))),
            ),
            ("half a tag", fill("<p <p \"")),
            (
                "a script that never ends",
                format!("<script>{}", fill("</scrip")),
            ),
            ("marks", fill("<li><a href=/x>")),
        ] {
            let page = format!("<title>t</title>{page} words");
            let read = read(&page);
            assert_eq!(read.title.as_deref(), Some("t"), "{what}");
            assert!(
                read.text.len() <= 2 * page.len(),
                "{what}: {} bytes of text",
                read.text.len()
            );
        }
    }
}
