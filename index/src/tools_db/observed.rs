//! Tells from the times of files alone whether somebody has committed.

use std::path::Path;

use crate::database::with_logs;
use crate::files::FileState;

/// What the file system tells of a database and its log. Every commit changes it, and reading does
/// not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    files: [Option<FileState>; 2],
    is_settled: bool,
}

impl Observed {
    /// The database at this path as it is now.
    pub fn of(path: &Path) -> Self {
        let [database, log, _] = with_logs(path);
        let files = [FileState::of(&database), FileState::of(&log)];
        Observed {
            is_settled: files.iter().flatten().all(FileState::is_settled),
            files,
        }
    }

    /// True while nothing was committed since. May be false for a moment after a commit that was
    /// seen.
    pub fn is_current(&self, path: &Path) -> bool {
        self.is_settled && self.files == Observed::of(path).files
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// Sets the time of the last change of a file to some seconds ago.
    fn age(path: &Path, seconds: u64) {
        let then = SystemTime::now() - Duration::from_secs(seconds);
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(then).unwrap();
    }

    #[test]
    fn a_change_of_the_file_or_of_its_log_is_noticed_and_an_empty_log_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.db");
        let [_, log, _] = with_logs(&path);
        fs::write(&path, "abc").unwrap();
        let young = Observed::of(&path);
        assert!(
            !young.is_current(&path),
            "a second write may follow in the same tick"
        );
        age(&path, 60);
        let old = Observed::of(&path);
        assert!(old.is_current(&path) && !young.is_current(&path));
        fs::write(&log, "").unwrap();
        assert!(old.is_current(&path), "who reads leaves an empty log");
        fs::write(&log, "d").unwrap();
        assert!(!old.is_current(&path));
        age(&log, 60);
        assert!(Observed::of(&path).is_current(&path));
        fs::remove_file(&log).unwrap();
        assert!(old.is_current(&path));
        age(&path, 30);
        assert!(!old.is_current(&path), "a time alone is enough");
        assert!(!Observed::default().is_current(&path));
    }

    #[test]
    fn a_replaced_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.db");
        fs::write(&path, "abc").unwrap();
        age(&path, 60);
        let before = Observed::of(&path);
        let other = folder.path().join("other");
        fs::write(&other, "abc").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options()
            .append(true)
            .open(&other)
            .unwrap()
            .set_modified(modified)
            .unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(!cfg!(unix) || !before.is_current(&path));
        fs::remove_file(&path).unwrap();
        assert!(!before.is_current(&path));
    }
}
