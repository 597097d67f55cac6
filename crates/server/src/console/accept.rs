//! Which of two kinds of answers a client prefers, and whether it takes a compressed one.

use axum::http::{HeaderMap, HeaderName, header};

/// Whether the client prefers HTML: it names it, and names JSON not or with a smaller weight. A
/// client that takes anything, as curl, is a program.
pub fn prefers_html(headers: &HeaderMap) -> bool {
    let (mut html, mut json) = (0.0_f32, 0.0_f32);
    for range in items(headers, header::ACCEPT) {
        let (media_type, weight) = media_range(range);
        match media_type.as_str() {
            "text/html" => html = html.max(weight),
            "application/json" => json = json.max(weight),
            _ => {}
        }
    }
    html > json
}

/// Whether the client takes a body that is compressed by gzip: it names gzip, or anything else than
/// what it names, with a weight above 0.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut others) = (None, 0.0);
    for coding in items(headers, header::ACCEPT_ENCODING) {
        let (name, weight) = media_range(coding);
        match name.as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "*" => others = weight,
            _ => {}
        }
    }
    gzip.unwrap_or(others) > 0.0
}

/// The items of a header that is a list, which may come in several lines.
pub fn items(headers: &HeaderMap, name: HeaderName) -> Vec<&str> {
    let mut items = Vec::new();
    for value in headers.get_all(name) {
        if let Ok(value) = value.to_str() {
            items.extend(value.split(',').map(str::trim));
        }
    }
    items
}

/// The media type of a range, in small letters, and its weight: 1 where it has none or a malformed
/// one.
fn media_range(range: &str) -> (String, f32) {
    let mut parts = range.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
    for parameter in parts {
        if let Some((name, weight)) = parameter.split_once('=')
            && name.trim().eq_ignore_ascii_case("q")
        {
            return (media_type, weight.trim().parse().unwrap_or(1.0));
        }
    }
    (media_type, 1.0)
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

    #[test]
    fn only_who_says_so_takes_a_compressed_body() {
        let takes = |encodings: &'static str| {
            takes_gzip(&HeaderMap::from_iter([(
                header::ACCEPT_ENCODING,
                HeaderValue::from_static(encodings),
            )]))
        };
        for encodings in ["gzip", "gzip, deflate, br, zstd", "br;q=1, GZIP;q=0.5", "*"] {
            assert!(takes(encodings), "{encodings}");
        }
        for encodings in ["", "identity", "br", "gzip;q=0", "*, gzip;q=0", "*;q=0"] {
            assert!(!takes(encodings), "{encodings}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
