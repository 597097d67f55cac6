//! Sample tools that ship with the program, and the catalog that `toolscout demo` makes of them.

use include_dir::{Dir, include_dir};
use toolscout_index::formats::{self, ReadOptions};
use toolscout_index::{Result, Settings, Tool};

/// The name of the catalog.
pub const CATALOG: &str = "demo";
/// Its description, which tells it from a catalog of the same name that `toolscout demo` has not made.
const DESCRIPTION: &str = "Sample tools, made by `toolscout demo`";

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../fixtures/tools");

/// The settings of the catalog.
pub fn settings() -> Settings {
    Settings {
        description: DESCRIPTION.to_owned(),
        ..Settings::default()
    }
}

/// True for the settings of a catalog that `toolscout demo` has made.
pub fn are_in(settings: &Settings) -> bool {
    settings.description == DESCRIPTION
}

/// The sample tools; each file is a server of its own.
///
/// # Errors
/// Those of [`formats::parse`].
pub fn tools() -> Result<Vec<Tool>> {
    let mut tools = Vec::new();
    for file in FILES.files() {
        let server = file.path().file_stem();
        let options = ReadOptions {
            source_name: file.path().display().to_string(),
            default_server: server.map(|name| name.to_string_lossy().into_owned()),
            ..ReadOptions::default()
        };
        tools.extend(formats::parse(file.contents(), &options)?.tools);
    }
    Ok(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_all_the_bundled_tools() {
        let tools = tools().unwrap();
        assert_eq!(tools.len(), 425);
        assert!(
            tools
                .iter()
                .any(|tool| tool.id.as_str() == "github/create_issue")
        );
        assert!(are_in(&settings()) && !are_in(&Settings::default()));
    }
}
