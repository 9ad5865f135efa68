//! Where a load goes: a service of this machine, and the requests that wait for one of its connections.

use std::net::SocketAddr;

use tokio::sync::Semaphore;

use super::totals::Counters;

/// The address of a service on this machine. A load is never let loose on any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target(SocketAddr);

/// Why an address is not a [`Target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a loopback address: this load is for services on the same machine")]
pub struct NotLoopback(SocketAddr);

impl Target {
    /// Takes an address as a target.
    ///
    /// # Errors
    /// [`NotLoopback`] when it leads to another machine.
    pub fn new(address: SocketAddr) -> Result<Self, NotLoopback> {
        if address.ip().is_loopback() {
            Ok(Self(address))
        } else {
            Err(NotLoopback(address))
        }
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        self.0
    }
}

/// Requests that are due and wait for a connection. Connections are served in the order in which they became free.
#[derive(Debug)]
pub(super) struct Queue {
    /// One permit a waiting request.
    due: Semaphore,
    connections: usize,
    pub(super) counters: Counters,
}

impl Queue {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            due: Semaphore::new(0),
            connections,
            counters: Counters::default(),
        }
    }

    /// Adds requests that fall due at a rate per second.
    ///
    /// What would wait for a second because the target does not answer has failed, and is not sent: a target that comes back is
    /// not flooded with all that it missed.
    pub(super) fn push(&self, requests: usize, rate: f64) {
        let most = self.connections.max(rate as usize);
        let room = most.saturating_sub(self.due.available_permits());
        let sent = requests.min(room);
        self.counters.offered(requests);
        self.counters.failed(requests.saturating_sub(sent));
        self.due.add_permits(sent);
    }

    /// Waits for the next request that is due, and takes it.
    pub(super) async fn pop(&self) {
        // The semaphore is never closed.
        if let Ok(permit) = self.due.acquire().await {
            permit.forget();
        }
    }
}
