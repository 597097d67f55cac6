//! Texts in columns: TREC files, and tables with commas or tabs. One rule for ids: where white
//! space separates columns, white space, control characters and `%` of an id are percent-encoded.
//! Readers decode an id and look for that; if there is none, they take it as it is written.

use percent_encoding::percent_decode_str;

/// An id as one column of a TREC file.
pub(crate) fn escape(id: &str) -> String {
    let mut escaped = String::with_capacity(id.len());
    for c in id.chars() {
        if c == '%' || c.is_whitespace() || c.is_control() {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// The id that [`escape`] was given; text without escapes as it is.
pub(crate) fn unescape(text: &str) -> String {
    match percent_decode_str(text).decode_utf8() {
        Ok(id) => id.into_owned(),
        // `escape` writes only text, so bytes that are no text were not escaped by it.
        Err(_) => text.to_owned(),
    }
}

/// How the columns of a text are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// Tabs, so that ids may contain spaces.
    Tab,
    /// Commas, with quotes around values that contain them.
    Comma,
    /// Any white space.
    Space,
}

impl Separator {
    /// The separator of a text, by its first line with content.
    pub(crate) fn of(text: &str) -> Self {
        let first = text.lines().find(|line| !line.trim().is_empty());
        match first.unwrap_or_default().trim() {
            line if line.contains('\t') => Separator::Tab,
            // An id may contain a comma; a line of a TREC file has three columns or more.
            line if line.contains(',') && line.split_whitespace().count() < 3 => Separator::Comma,
            line if split_commas(line).len() >= 3 && line.contains(", ") => Separator::Comma,
            _ => Separator::Space,
        }
    }

    /// The columns of a line; none for a blank one.
    pub(crate) fn split(self, line: &str) -> Vec<String> {
        // A line may have tabs though the first has none.
        match line.trim() {
            "" => Vec::new(),
            _ if self == Separator::Comma => split_commas(line.trim()),
            line if self == Separator::Tab || line.contains('\t') => {
                line.split('\t').map(str::trim).map(str::to_owned).collect()
            }
            line => line.split_whitespace().map(str::to_owned).collect(),
        }
    }
}

/// The cells of a line of CSV. A doubled quote within quotes is a quote.
fn split_commas(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        let cell = cells.last_mut().expect("there is a first cell");
        match c {
            '"' if is_quoted && rest.peek() == Some(&'"') => {
                rest.next();
                cell.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if cell.trim().is_empty() => {
                cell.clear();
                is_quoted = true;
            }
            ',' if !is_quoted => cells.push(String::new()),
            c => cell.push(c),
        }
    }
    cells
        .into_iter()
        .map(|cell| cell.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_is_undone_and_leaves_one_column() {
        for id in [
            "plain",
            "two words",
            "a%20b",
            "100%",
            "tab\there",
            "全角\u{3000}空白",
            "a\u{1c}b",
            "%zz",
            "",
        ] {
            let escaped = escape(id);
            let is_column = |c: char| !c.is_whitespace() && !c.is_control();
            assert!(escaped.chars().all(is_column), "{escaped}");
            assert_eq!(unescape(&escaped), id);
        }
    }

    #[test]
    fn columns_are_split_by_what_separates_them() {
        for (line, cells) in [
            ("q1 0 d,1 2", vec!["q1", "0", "d,1", "2"]),
            ("q1\t0\ttwo words\t2", vec!["q1", "0", "two words", "2"]),
            ("q1,d1,2", vec!["q1", "d1", "2"]),
            ("query, tool, grade", vec!["query", "tool", "grade"]),
            ("\"q,1\",\"say \"\"x\"\"\",2", vec!["q,1", "say \"x\"", "2"]),
            ("  ", vec![]),
        ] {
            assert_eq!(Separator::of(line).split(line), cells, "{line}");
        }
    }
}
