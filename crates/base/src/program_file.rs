//! Where the file of a program is.

use std::path::PathBuf;

/// The program's file: the given path, else the first match in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    // Absolute, since calls run in the folder of the settings and not in the present one.
    if program.contains('/') {
        let path = std::path::absolute(program).ok()?;
        return path.is_file().then_some(path);
    }
    // A folder joined with nothing is the folder itself.
    if program.is_empty() {
        return None;
    }
    let folders = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|path| path.is_file())
}
