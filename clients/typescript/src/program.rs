//! The command line, in place of a script.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use napi_derive::napi;

/// Runs the program with these arguments, and returns its exit code. `program` is the file that starts it
/// again.
#[napi]
pub fn run_program(arguments: Vec<String>, program: Option<String>) -> u32 {
    forget_handlers();
    let mut line = vec![OsString::from("toolscout")];
    line.extend(exact(arguments));
    let code = toolscout::cli::main(line, program.map(PathBuf::from));
    // As the program itself ends; a reader that went away is no error.
    std::io::stdout().flush().ok();
    code.into()
}

/// Node's own handlers raise a signal again, and the program would take that for a second Ctrl-C.
fn forget_handlers() {
    #[cfg(unix)]
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the default is set, in place of a function of Node, and nothing of ours runs yet.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// The arguments as the system passed them, which JavaScript has only where they are Unicode.
fn exact(arguments: Vec<String>) -> Vec<OsString> {
    let mut line: Vec<OsString> = std::env::args_os().collect();
    match line.len().checked_sub(arguments.len()) {
        // Node, and the script.
        Some(before) if before >= 2 => line.split_off(before),
        _ => arguments.into_iter().map(OsString::from).collect(),
    }
}
