//! Which of two kinds of answers a client prefers.

use axum::http::{HeaderMap, header};

/// Whether the client prefers HTML: it names it, and names JSON not or with a smaller weight. A
/// client that takes anything, as curl, is a program.
pub fn prefers_html(headers: &HeaderMap) -> bool {
    let (mut html, mut json) = (0.0_f32, 0.0_f32);
    let ranges = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    for range in ranges {
        let (media_type, weight) = media_range(range);
        match media_type.as_str() {
            "text/html" => html = html.max(weight),
            "application/json" => json = json.max(weight),
            _ => {}
        }
    }
    html > json
}

/// The media type of a range, in small letters, and its weight: 1 where it has none or a malformed
/// one.
fn media_range(range: &str) -> (String, f32) {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
        .and_then(|(_, weight)| weight.trim().parse().ok());
    (media_type, weight.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn prefers(accept: &'static str) -> bool {
        prefers_html(&HeaderMap::from_iter([(
            header::ACCEPT,
            HeaderValue::from_static(accept),
        )]))
    }

    #[test]
    fn only_who_names_html_before_json_prefers_it() {
        for accept in [
            "text/html",
            "Text/HTML;charset=utf-8",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/json;q=0.5, text/html",
        ] {
            assert!(prefers(accept), "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/*",
            "application/json",
            "application/json, text/html",
            "text/html;q=0.2, application/json;q=0.3",
            "text/html;q=0",
        ] {
            assert!(!prefers(accept), "{accept}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }
}
