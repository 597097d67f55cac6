//! Where the file of a program is.

use std::path::PathBuf;

/// The program's file: the given path, else the first match in `PATH`.
pub fn find_program(program: &str) -> Option<PathBuf> {
    // Absolute, since calls run in the folder of the settings and not in the present one.
    if program.contains('/') {
        return std::path::absolute(program)
            .ok()
            .filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| !program.is_empty() && path.is_file())
}
