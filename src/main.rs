//! The `toolscout` program.

use std::process::ExitCode;

use toolscout::{allocator, cli};

fn main() -> ExitCode {
    allocator::keep_less_memory();
    ExitCode::from(cli::main(std::env::args_os(), None))
}
