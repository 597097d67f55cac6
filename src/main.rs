//! The `toolscout` program.

use std::process::ExitCode;

use toolscout::cli;

fn main() -> ExitCode {
    ExitCode::from(cli::main(std::env::args_os(), None))
}
