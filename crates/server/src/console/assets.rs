//! The files of the console, in the program.

use std::io::Write as _;
use std::sync::OnceLock;

use flate2::Compression;
use flate2::write::GzEncoder;

/// The content type of the page.
pub const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the console.
#[derive(Debug)]
pub struct Asset {
    /// Its path below `/console/`.
    path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
    /// Its content compressed; `None` where that makes it no shorter.
    gzip: OnceLock<Option<Vec<u8>>>,
}

impl Asset {
    /// Changes with the content and with whether it is compressed, as `ETag` has it. Hashing takes
    /// microseconds, and browsers ask seldom.
    pub fn entity_tag(&self, is_compressed: bool) -> String {
        let hash = blake3::hash(self.bytes).to_hex();
        let coding = if is_compressed { "-gzip" } else { "" };
        format!("\"{}{coding}\"", &hash[..16])
    }

    /// Its content compressed, where that makes it shorter. Compressed when it is first asked for,
    /// which takes a millisecond, and kept.
    pub fn gzip(&self) -> Option<&[u8]> {
        self.gzip.get_or_init(|| compressed(self.bytes)).as_deref()
    }
}

fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    encoder.write_all(bytes).ok()?;
    let short = encoder.finish().ok()?;
    (short.len() < bytes.len()).then_some(short)
}

macro_rules! asset {
    ($path:literal, $content_type:expr) => {
        Asset {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!("assets/", $path)),
            gzip: OnceLock::new(),
        }
    };
}

/// The page at `/`.
static PAGE: Asset = asset!("index.html", HTML);

/// What the page loads.
static FILES: [Asset; 62] = [
    asset!("agent.css", CSS),
    asset!("agent.js", JAVASCRIPT),
    asset!("answer.js", JAVASCRIPT),
    asset!("api.js", JAVASCRIPT),
    asset!("app.js", JAVASCRIPT),
    asset!("approvals.js", JAVASCRIPT),
    asset!("arguments.js", JAVASCRIPT),
    asset!("audit.js", JAVASCRIPT),
    asset!("catalog.css", CSS),
    asset!("catalog.js", JAVASCRIPT),
    asset!("chart.js", JAVASCRIPT),
    asset!("chat.js", JAVASCRIPT),
    asset!("connect.css", CSS),
    asset!("connect.js", JAVASCRIPT),
    asset!("connection.js", JAVASCRIPT),
    asset!("dialog.js", JAVASCRIPT),
    asset!("dom.js", JAVASCRIPT),
    asset!("evaluate.css", CSS),
    asset!("evaluate.js", JAVASCRIPT),
    asset!("evaluate_figures.js", JAVASCRIPT),
    asset!("evaluate_form.js", JAVASCRIPT),
    asset!("evaluate_judge.js", JAVASCRIPT),
    asset!("evaluate_queries.js", JAVASCRIPT),
    asset!("events.js", JAVASCRIPT),
    asset!("export.js", JAVASCRIPT),
    asset!("figures.js", JAVASCRIPT),
    asset!("gate.js", JAVASCRIPT),
    asset!("hit.js", JAVASCRIPT),
    asset!("hit_why.js", JAVASCRIPT),
    asset!("home.css", CSS),
    asset!("home.js", JAVASCRIPT),
    asset!("icon.svg", SVG),
    asset!("inputs.js", JAVASCRIPT),
    asset!("keys.js", JAVASCRIPT),
    asset!("list.js", JAVASCRIPT),
    asset!("load.js", JAVASCRIPT),
    asset!("operations.css", CSS),
    asset!("operations.js", JAVASCRIPT),
    asset!("own_words.js", JAVASCRIPT),
    asset!("owner.js", JAVASCRIPT),
    asset!("panels.js", JAVASCRIPT),
    asset!("permissions.js", JAVASCRIPT),
    asset!("place.js", JAVASCRIPT),
    asset!("plan.js", JAVASCRIPT),
    asset!("prose.js", JAVASCRIPT),
    asset!("review.js", JAVASCRIPT),
    asset!("schema.js", JAVASCRIPT),
    asset!("search.js", JAVASCRIPT),
    asset!("servers.js", JAVASCRIPT),
    asset!("settings.js", JAVASCRIPT),
    asset!("shadow.js", JAVASCRIPT),
    asset!("style.css", CSS),
    asset!("text.js", JAVASCRIPT),
    asset!("texts.js", JAVASCRIPT),
    asset!("theme.js", JAVASCRIPT),
    asset!("tool.js", JAVASCRIPT),
    asset!("tool_call.js", JAVASCRIPT),
    asset!("toolbox.js", JAVASCRIPT),
    asset!("try.js", JAVASCRIPT),
    asset!("turn.js", JAVASCRIPT),
    asset!("usage.js", JAVASCRIPT),
    asset!("waiting.js", JAVASCRIPT),
];

/// The page.
pub fn page() -> &'static Asset {
    &PAGE
}

/// The file with this path below `/console/`.
pub fn find(path: &str) -> Option<&'static Asset> {
    FILES.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The names of files in quotes in this text.
    fn named(text: &str) -> impl Iterator<Item = &str> {
        let endings = [".js", ".css", ".svg"];
        text.split('"')
            .filter(move |part| {
                !part.contains(' ') && endings.iter().any(|end| part.ends_with(end))
            })
            .filter_map(|part| part.rsplit('/').next())
    }

    #[test]
    fn every_file_in_the_folder_is_served_and_used() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/console/assets");
        let stored: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "index.html")
            .collect();
        let served: BTreeSet<String> = FILES.iter().map(|asset| asset.path.to_owned()).collect();
        assert_eq!(stored, served);
        let texts = FILES.iter().chain([&PAGE]).map(|asset| asset.bytes);
        let texts: Vec<&str> = texts
            .map(|text| std::str::from_utf8(text).unwrap())
            .collect();
        let used: BTreeSet<String> = texts
            .iter()
            .flat_map(|text| named(text))
            .map(str::to_owned)
            .collect();
        assert_eq!(
            used, served,
            "files that are named, and files that are served"
        );
    }

    #[test]
    fn compressed_files_are_shorter_and_the_same() {
        use std::io::Read as _;
        for asset in FILES.iter().chain([&PAGE]) {
            let Some(gzip) = asset.gzip() else {
                assert!(asset.bytes.len() < 300, "{}", asset.path);
                continue;
            };
            assert!(gzip.len() < asset.bytes.len(), "{}", asset.path);
            let mut read = Vec::new();
            flate2::read::GzDecoder::new(gzip)
                .read_to_end(&mut read)
                .unwrap();
            assert!(read == asset.bytes, "{}", asset.path);
        }
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_nothing_is_written_as_html() {
        for asset in FILES.iter().chain([&PAGE]) {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            // The name of the SVG language is a URL, and nothing is loaded from it.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for banned in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
            ] {
                assert!(!text.contains(banned), "{}: {banned}", asset.path);
            }
        }
    }
}
