//! Makes untrusted text safe for a terminal: text of tools, servers, models and users can neither
//! control the terminal nor imitate the program's own output. All output of the command line passes
//! through this module. Pure.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Longest name that is shown, in characters. Providers allow 64, and an id also contains the
/// server's name.
const MAX_NAME_CHARS: usize = 96;
/// Prefix of lines that a model has written.
pub const MARK: &str = "│ ";

/// Longer words are cut where an excerpt ends in one.
const MAX_WORD_CHARS: usize = 24;

/// The first characters of a text, with `…` after a whole word if it is longer.
pub fn excerpt(text: &str, max_chars: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(max_chars) else {
        return text.to_owned();
    };
    let (short, rest) = text.split_at(end);
    format!("{}…", without_part_of_a_word(short, rest).trim_end())
}

/// The text without the beginning of a word that `rest` continues.
pub fn without_part_of_a_word<'a>(text: &'a str, rest: &str) -> &'a str {
    if rest.starts_with(char::is_whitespace) {
        return text;
    }
    match text.rsplit_once(char::is_whitespace) {
        Some((whole, part)) if !part.is_empty() && part.chars().count() <= MAX_WORD_CHARS => {
            whole.trim_end()
        }
        _ => text,
    }
}

/// A number with its noun, in the plural unless the number is 1: `1 call`, `2 calls`, `3 entries`.
pub fn counted(number: impl TryInto<u64>, noun: &str) -> String {
    // Only a negative number or one above `u64::MAX` does not convert; no caller has one.
    let number = number.try_into().unwrap_or(u64::MAX);
    if number == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        // After a vowel the `y` stays: `2 keys`.
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) || noun.ends_with("ch") => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// A value as JSON whose single floats are written as answers over HTTP have them: 0.1 and not
/// 0.10000000149011612, which the same float is in double precision.
pub fn short_floats(value: &impl Serialize) -> Value {
    // As text first, where the shortest one that stands for the float is chosen.
    let text = serde_json::to_string(value).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The text on one line. All whitespace becomes spaces; control, reordering and invisible
/// characters are written as `\u{…}`.
pub fn line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        // U+0085 is white space to Unicode, but terminals take it for a control character.
        if c.is_whitespace() && c != '\u{85}' {
            safe.push(' ');
        } else if is_hidden(c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// The text with its line breaks, each line as by [`line()`].
pub fn lines(text: &str) -> String {
    text.split('\n')
        .map(|part| line(part.strip_suffix('\r').unwrap_or(part)))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Running text with its line breaks. Invisible characters are removed, except for the joiners and
/// variation selectors that Persian, Indian scripts and emoji need.
pub fn prose(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' => safe.push(c),
            '\t' => safe.push_str("    "),
            _ if c.is_control() || c.is_whitespace() => safe.push(' '),
            _ if is_hidden(c) => {}
            _ => safe.push(c),
        }
    }
    safe
}

/// An untrusted name. A name with characters other than ASCII letters, digits and `_-./:*`, or a
/// very long one, is quoted, with its whitespace collapsed and its end cut off, so that it cannot
/// imitate the text around it.
pub fn name(text: &str) -> String {
    if !text.is_empty() && text.len() <= MAX_NAME_CHARS && text.chars().all(is_plain) {
        return text.to_owned();
    }
    // Quoted names stay on one line, and a quotation mark within them does not end them.
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut short: String = words.join(" ").chars().take(MAX_NAME_CHARS).collect();
    if short.chars().count() == MAX_NAME_CHARS {
        short.push('…');
    }
    let escaped = short.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", line(&escaped))
}

/// Characters of the ids, names and patterns that the program itself writes.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./:*".contains(c)
}

/// Equivalent JSON text in which control and invisible characters are written as `\uXXXX`.
pub fn json(text: &str) -> String {
    // A raw line break can only be between tokens: within a string it is escaped already.
    escaped(text, &['\n'])
}

/// A line of a log, as text or JSON. Raw escape characters are the log's own colors: `tracing`
/// escapes those in its fields.
pub fn log(text: &str) -> String {
    escaped(text, &['\n', '\x1b'])
}

fn escaped(text: &str, kept: &[char]) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_hidden(c) || kept.contains(&c) {
            safe.push(c);
            continue;
        }
        // JSON escapes units of UTF-16, of which a character has one or two.
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(safe, "\\u{unit:04x}");
        }
    }
    safe
}

/// True for characters that control a terminal, reorder text, or are invisible.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen, grapheme joiner, Arabic letter mark.
            '\u{ad}' | '\u{34f}' | '\u{61c}'
            // Hangul fillers and Khmer vowels, which are drawn as nothing.
            | '\u{115f}'..='\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}'..='\u{17b5}'
            // Mongolian variation selectors.
            | '\u{180b}'..='\u{180f}'
            // Spaces without width, joiners, marks of direction.
            | '\u{200b}'..='\u{200f}'
            // Line and paragraph separators, and what overrides the direction of text.
            | '\u{2028}'..='\u{202e}'
            // Word joiner, invisible operators, isolates of direction.
            | '\u{2060}'..='\u{206f}'
            // The empty Braille pattern.
            | '\u{2800}'
            // Variation selectors, and the byte order mark.
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            // Annotations within a line.
            | '\u{fff0}'..='\u{fffb}'
            // Format characters of hieroglyphs, shorthand and musical notation.
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            // Tags, which can hide a whole ASCII text, and more variation selectors.
            | '\u{e0000}'..='\u{e0fff}')
}

/// Adds a mark to the start of each line of streamed text, and breaks lines at the terminal's
/// width. A line that the terminal breaks would continue at the first column without a mark, where
/// it could imitate the program's own output.
#[derive(Clone, Debug)]
pub struct Margin {
    mark: &'static str,
    /// Columns of the terminal.
    width: usize,
    column: usize,
}

impl Margin {
    /// Narrower terminals are treated as having this many columns.
    const MIN_WIDTH: usize = 20;

    /// A margin with this mark.
    pub fn new(mark: &'static str, width: usize) -> Self {
        Margin {
            mark,
            width: width.max(Self::MIN_WIDTH),
            column: 0,
        }
    }

    /// The next piece of text with marks and line breaks. The text must be safe already.
    pub fn write(&mut self, text: &str) -> String {
        let mut written = String::with_capacity(text.len() + self.mark.len());
        for c in text.chars() {
            if c == '\n' {
                if self.column == 0 {
                    written.push_str(self.mark.trim_end());
                }
                written.push('\n');
                self.column = 0;
                continue;
            }
            let wide = c.width().unwrap_or(0);
            // The last column stays free: terminals differ in how they wrap after it.
            if self.column + wide >= self.width {
                written.push('\n');
                self.column = 0;
            }
            if self.column == 0 {
                written.push_str(self.mark);
                self.column = self.mark.chars().count();
            }
            written.push(c);
            self.column += wide;
        }
        written
    }

    /// Whether a word ends before the line does, or would not on a line of its own either.
    fn has_room_for(&self, word: &str) -> bool {
        // A word longer than a line breaks anyway, so it need not start a new one.
        let columns = word.width();
        self.column + columns < self.width || self.mark.len() + columns >= self.width
    }

    /// Starts a new line, without writing anything.
    pub fn restart(&mut self) {
        self.column = 0;
    }
}

/// Wraps lines that contain untrusted text with a hanging indent, between words where that can be.
pub fn hanging(text: &str, width: usize) -> String {
    let mut shown = String::new();
    for line in text.split('\n') {
        let mut rest = Margin::new("    ", width);
        // The first line has no mark.
        rest.column = usize::from(!line.is_empty());
        if !shown.is_empty() {
            shown.push('\n');
        }
        for word in line.split_inclusive(' ') {
            if !rest.has_room_for(word.trim_end()) {
                // The space before the word is not needed at the end of a line.
                shown.truncate(shown.trim_end_matches(' ').len());
                shown.push('\n');
                rest.restart();
            }
            shown.push_str(&rest.write(word));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_ends_after_a_whole_word() {
        for (text, max_chars, expected) in [
            ("send a mail", 11, "send a mail"),
            ("send a mail", 10, "send a…"),
            ("send a mail", 6, "send a…"),
            ("send a mail", 7, "send a…"),
            ("send", 2, "se…"),
            ("发送邮件", 2, "发送…"),
        ] {
            assert_eq!(excerpt(text, max_chars), expected, "{text} {max_chars}");
        }
    }

    #[test]
    fn single_floats_are_short() {
        assert_eq!(short_floats(&[0.1_f32, 0.0]).to_string(), "[0.1,0.0]");
    }

    #[test]
    fn nouns_get_their_plural() {
        for (number, noun, expected) in [
            (0, "tool", "0 tools"),
            (1, "entry", "1 entry"),
            (2, "entry", "2 entries"),
            (2, "key", "2 keys"),
            (3, "search", "3 searches"),
        ] {
            assert_eq!(counted(number, noun), expected);
        }
    }

    #[test]
    fn nothing_hides_on_a_line() {
        let text =
            "rm \u{202e}txt.\x1b[2J\u{200b}ü\n\ta\u{3164}\u{2800}\u{115f}\u{a0}b\u{85}\u{9b}\x7f";
        let expected = "rm \\u{202e}txt.\\u{1b}[2J\\u{200b}ü  a\\u{3164}\\u{2800}\\u{115f} b\\u{85}\\u{9b}\\u{7f}";
        assert_eq!(line(text), expected);
        assert_eq!(lines("a\r\nb\x1bc"), "a\nb\\u{1b}c");
    }

    #[test]
    fn prose_keeps_its_lines_and_joiners_and_loses_what_commands() {
        assert_eq!(
            prose("a\x1b[31m\rb\u{202e}\n\tمی\u{200c}خواهم ❤\u{fe0f}"),
            "a [31m b\n    می\u{200c}خواهم ❤\u{fe0f}"
        );
    }

    #[test]
    fn names_are_plain_or_quoted() {
        assert_eq!(name("shop/place_order-2.1"), "shop/place_order-2.1");
        assert_eq!(name("a b"), "\"a b\"");
        assert_eq!(
            name("a \u{3000}\n  \u{3164} b\"c"),
            "\"a \\u{3164} b\\\"c\""
        );
        assert_eq!(name(""), "\"\"");
        assert!(name(&"x".repeat(512)).ends_with("x…\"") && name(&"x".repeat(512)).len() < 110);
    }

    #[test]
    fn json_means_the_same_and_is_plain() {
        let value =
            serde_json::json!({ "a\u{202e}": "b\u{9b}\u{7f}\u{e0041}ü\x1b\n", "c": ["é", 1] });
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(text.chars().all(|c| c == '\n' || !is_hidden(c)), "{text:?}");
        assert!(
            text.contains("\\u202e") && text.contains("\\udb40\\udc41") && text.contains('ü'),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn every_line_has_its_mark_and_none_is_wider_than_the_terminal() {
        let mut margin = Margin::new(MARK, 20);
        let written: String = ["one\n\ntw", "o ", &"文".repeat(20), "\n[approve]"]
            .map(|text| margin.write(text))
            .concat();
        for line in written.split('\n') {
            assert!(line.starts_with('│'), "{written}");
            assert!(
                line.chars().map(|c| c.width().unwrap_or(0)).sum::<usize>() < 20,
                "{written}"
            );
        }
        assert!(written.starts_with("│ one\n│\n│ two 文"), "{written}");
    }

    #[test]
    fn a_long_line_goes_on_indented() {
        let shown = hanging(&format!("[result] {}[approve] x\nnext", "y".repeat(30)), 20);
        assert!(
            shown
                .split('\n')
                .filter(|line| line.starts_with('['))
                .count()
                == 1,
            "{shown}"
        );
        assert!(shown.ends_with("\nnext"), "{shown}");
        assert_eq!(
            hanging("[call] mail/send_report now", 22),
            "[call]\n    mail/send_report\n    now"
        );
    }
}
