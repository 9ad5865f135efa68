//! Hostile and careless clients over real sockets.
//!
//! An attack is rejected or ended in time, and neither regular clients nor the server's memory
//! suffer from it. By default latency is measured briefly. To measure it for this many seconds at
//! a time (ten minutes in all, on a quiet machine):
//!
//!     DOORMAN_HOSTILE_SECONDS=10 cargo test --release -p doorman-tests --test it hostile

mod floods;
mod idle;
mod inputs;
mod measure;
mod transfer;
mod wire;

use std::net::SocketAddr;

use crate::support::{ControlPlane, DOCUMENT};

const MIB: usize = 1 << 20;

/// The most that the server's memory may grow under any attack.
const MEMORY: usize = 64 * MIB;

/// A server under attack.
struct Victim {
    server: ControlPlane,
    at: SocketAddr,
    /// Its memory after it has served a request.
    initial_memory: usize,
}

impl Victim {
    fn start() -> Self {
        let server = ControlPlane::start(DOCUMENT);
        let at = wire::address(&server);
        measure::request_lease(at);
        let initial_memory = server.memory();
        Self {
            server,
            at,
            initial_memory,
        }
    }

    #[track_caller]
    fn assert_memory_bounded(&self) {
        let growth = self.memory_growth();
        assert!(growth <= MEMORY, "{} MiB more", growth / MIB);
    }

    /// The growth of its peak memory.
    fn memory_growth(&self) -> usize {
        let peak = self.server.peak_memory();
        peak.saturating_sub(self.initial_memory)
    }
}
