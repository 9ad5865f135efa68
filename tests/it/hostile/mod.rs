//! Clients that mean no good, or do not know better, over real sockets.
//!
//! `inputs` is what they say; `slow`, `idle`, `large` and `unread` are how they say it, each with what they are told, and that others
//! and the memory do not notice. `beside` measures the others: their 99th percentile with and without, in turns. The default is a brief look;
//!
//!     DOORMAN_HOSTILE_SECONDS=10 cargo test --release -p doorman-tests --test it hostile
//!
//! measures for so many seconds at a time, and often enough to believe it: some ten minutes on a quiet machine, after the programs under
//! test are built. It says how far it is.

mod beside;
mod healthy;
mod idle;
mod inputs;
mod large;
mod slow;
mod unread;
mod wire;

use std::net::SocketAddr;

use crate::support::{ControlPlane, DOCUMENT};

const MIB: usize = 1 << 20;

/// How much more memory the server may take at any time, whatever is done to it.
const MEMORY: usize = 64 * MIB;

/// A server, and the memory it had when it had served somebody.
struct Victim {
    server: ControlPlane,
    at: SocketAddr,
    before: usize,
}

impl Victim {
    fn start() -> Self {
        let server = ControlPlane::start(DOCUMENT);
        let at = wire::address(&server);
        healthy::ask(at);
        let before = server.memory();
        Self { server, at, before }
    }

    /// It has never taken much more than it had.
    #[track_caller]
    fn memory_stayed_flat(&self) {
        let grown = self.grown();
        assert!(grown <= MEMORY, "{} MiB more", grown / MIB);
    }

    /// How much more memory than at the beginning it has ever had.
    fn grown(&self) -> usize {
        self.server.peak_memory().saturating_sub(self.before)
    }
}
