//! `POST /v1/capacity`, compared with a bare axum handler that parses and writes the same JSON.
//!
//! Each server is a process pinned to one core. The load comes from another core over connections
//! that stay open. CPU time per request is compared too, because other load of the machine affects
//! it less than throughput.

mod bare;
mod compare;
mod cpu;
mod doorman;
mod load;
mod requests;
mod role;
mod tokens;

use std::error::Error;

use doorman_bench::{Options, wait_for_stdin_end};

use self::role::{Role, ServerKind};

fn main() -> Result<(), Box<dyn Error>> {
    match Role::of_this_process() {
        Some(role) => {
            // The runtime starts one thread per allowed core, so it starts after this.
            cpu::pin(role.core)?;
            serve(role.kind)
        }
        None => compare::run(Options::from_args()),
    }
}

#[tokio::main]
async fn serve(kind: ServerKind) -> Result<(), Box<dyn Error>> {
    let stop = async { drop(tokio::task::spawn_blocking(wait_for_stdin_end).await) };
    match kind {
        ServerKind::Doorman(signature) => doorman::serve(signature, stop).await,
        ServerKind::Bare => bare::serve(stop).await,
    }
}
