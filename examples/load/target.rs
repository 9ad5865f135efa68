//! A target of the load, the pace at which its requests become due, and their queue.

use std::{net::SocketAddr, time::Duration};

use tokio::sync::Semaphore;

use super::history::Counters;

/// A path of a service on this machine. Other machines are never loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    address: SocketAddr,
    path: &'static str,
}

/// The address is not a [`Target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a loopback address: the load is for services on the same machine")]
pub struct NotLoopback(SocketAddr);

impl Target {
    /// Makes a target of a loopback address, with the path `/`.
    ///
    /// # Errors
    /// [`NotLoopback`] for any other address.
    pub fn new(address: SocketAddr) -> Result<Self, NotLoopback> {
        if address.ip().is_loopback() {
            Ok(Self { address, path: "/" })
        } else {
            Err(NotLoopback(address))
        }
    }

    /// The same service with another path, which begins with a slash.
    #[must_use]
    pub fn with_path(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        self.address
    }

    pub(super) fn path(self) -> &'static str {
        self.path
    }
}

/// Spreads a rate evenly over ticks, carrying fractions of a request.
#[derive(Debug, Default)]
pub(super) struct Pace {
    fraction: f64,
}

impl Pace {
    /// Number of requests that become due during `tick` at `rate` per second.
    pub(super) fn due(&mut self, rate: f64, tick: Duration) -> usize {
        if rate.is_finite() && rate > 0.0 {
            self.fraction += rate * tick.as_secs_f64();
        }
        let whole = self.fraction.floor();
        self.fraction -= whole;
        whole as usize
    }
}

/// Requests that are due and wait for a free connection.
#[derive(Debug)]
pub(super) struct Queue {
    /// One permit per waiting request.
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

    /// Adds due requests. At most one second's worth waits; the rest fails unsent, so that a target
    /// that recovers is not flooded.
    pub(super) fn push(&self, requests: usize, rate: f64) {
        let max = self.connections.max(rate as usize);
        let room = max.saturating_sub(self.due.available_permits());
        let queued = requests.min(room);
        self.counters.add_offered(requests);
        self.counters.add_failed(requests.saturating_sub(queued));
        self.due.add_permits(queued);
    }

    /// Waits for the next due request, and takes it.
    pub(super) async fn pop(&self) {
        // The semaphore is never closed.
        if let Ok(permit) = self.due.acquire().await {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(5);

    fn one_second(rate: f64) -> Vec<usize> {
        let mut pace = Pace::default();
        (0..200).map(|_| pace.due(rate, TICK)).collect()
    }

    #[test]
    fn one_second_holds_the_whole_rate() {
        for rate in [0.0, 1.0, 45.0, 333.0, 900.0, 2_700.0] {
            let due = one_second(rate).iter().sum::<usize>() as f64;
            assert!((rate - due).abs() <= 1.0, "{due} of {rate}");
        }
    }

    #[test]
    fn each_tick_holds_its_part() {
        for rate in [30.0, 333.0, 2_700.0] {
            let max = (rate / 200.0_f64).ceil() as usize;
            assert!(one_second(rate).into_iter().all(|due| due <= max), "{rate}");
        }
    }

    #[test]
    fn rate_change_loses_no_request() {
        let mut pace = Pace::default();
        let due: usize = (0..2_000)
            .map(|tick| pace.due(if tick % 2 == 0 { 7.0 } else { 93.0 }, TICK))
            .sum();
        assert!((499..=500).contains(&due), "{due}");
    }

    #[test]
    fn invalid_rate_offers_nothing() {
        for rate in [-1.0, 0.0, f64::NAN, f64::INFINITY] {
            assert_eq!(one_second(rate).iter().sum::<usize>(), 0);
        }
    }
}
