//! `doorman`: the control plane as a program, and a small client for it.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
