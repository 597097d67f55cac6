//! The `toolscout` program.

use std::process::ExitCode;

use toolscout::{allocator, cli};

fn main() -> ExitCode {
    allocator::map_large_allocations();
    ExitCode::from(cli::main(std::env::args_os(), None))
}
