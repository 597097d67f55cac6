//! The text of doc comments.

use syn::{Attribute, Expr, Lit, Meta};

/// The text of the doc comments among some attributes; `None` if there is none.
pub fn of_doc_comments(attributes: &[Attribute]) -> Option<String> {
    let lines: Vec<String> = attributes.iter().filter_map(line).collect();
    let text = lines.join("\n").trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(doc) = &attribute.meta else {
        return None;
    };
    let Expr::Lit(value) = &doc.value else {
        return None;
    };
    match &value.lit {
        // `/// text` begins with the space that the eye needs, and no text does.
        Lit::Str(text) if doc.path.is_ident("doc") => {
            let text = text.value();
            Some(
                text.strip_prefix(' ')
                    .unwrap_or(&text)
                    .trim_end()
                    .to_owned(),
            )
        }
        _ => None,
    }
}
