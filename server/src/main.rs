//! The binary `doorman`: the control plane and its command line.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
