//! The person's browser.

use std::process::Stdio;

use tokio::process::Command;

use super::output::print_stderr;

/// Opens an address in the person's browser. Without one a message says what to open.
pub async fn open(url: String) {
    let mut command = opener(&url);
    // What it prints would get between the lines of this program.
    let opened = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await;
    let problem = match opened {
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let program = command
        .as_std()
        .get_program()
        .to_string_lossy()
        .into_owned();
    print_stderr(format_args!(
        "no browser was opened ({program}: {problem}); open {url} yourself"
    ));
}

/// The command that opens an address on this system.
fn opener(url: &str) -> Command {
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        // The first argument of `start` in quotes is a title.
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(url);
    command
}
