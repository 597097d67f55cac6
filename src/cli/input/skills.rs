//! What lies around a `SKILL.md` on disk.

use std::path::{Path, PathBuf};

use toolscout_index::formats::{MAX_SKILL_FILES, SKILL_FILE, SkillFolder};

/// Folders below that of a skill whose files are listed.
const MAX_DEPTH: usize = 4;
/// Entries that are looked at in one skill.
const MAX_ENTRIES: usize = 10_000;

/// The folder of a skill; `None` for a path to another file.
pub fn folder_of(path: &Path) -> Option<SkillFolder> {
    if path.file_name()? != SKILL_FILE {
        return None;
    }
    // Whoever reads the skill later may be in another folder.
    let folder = path.parent()?.to_owned();
    let folder = match folder.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => folder,
    };
    let folder = folder.canonicalize().unwrap_or(folder);
    Some(SkillFolder {
        path: Some(folder.display().to_string()),
        files: Some(files_below(&folder)),
    })
}

/// The files in a folder and below it but for its `SKILL.md`, sorted, and at most one more than a skill may
/// list. Hidden files and links are left out.
fn files_below(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut open = vec![(folder.to_owned(), String::new(), 0)];
    let mut entries_left = MAX_ENTRIES;
    while let Some((folder, prefix, depth)) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            if entries_left == 0 {
                break;
            }
            entries_left -= 1;
            let (Ok(kind), Ok(name)) = (entry.file_type(), entry.file_name().into_string()) else {
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            let relative = format!("{prefix}{name}");
            if kind.is_dir() && depth < MAX_DEPTH {
                open.push((entry.path(), format!("{relative}/"), depth + 1));
            } else if kind.is_file() && relative != SKILL_FILE {
                files.push(relative);
            }
        }
    }
    files.sort();
    files.truncate(MAX_SKILL_FILES + 1);
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_skill_are_listed_by_their_paths() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("refs")).unwrap();
        for name in ["SKILL.md", "form.md", "refs/a.md", ".hidden"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let found = folder_of(&folder.path().join("SKILL.md")).unwrap();
        assert_eq!(found.files.unwrap(), ["form.md", "refs/a.md"]);
        assert!(folder_of(&folder.path().join("form.md")).is_none());
    }
}
