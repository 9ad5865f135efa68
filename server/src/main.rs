//! The binary `doorman`: the control plane and its command line.

mod cli;

use std::process::ExitCode;

/// Returns freed memory to the system within half a minute. The allocator of glibc keeps it:
/// pages between two that are in use stay resident.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::main()
}
