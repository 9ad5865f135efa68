//! Servers of the control plane: the next to ask, and whose responses are accepted.

use doorman_openapi::{Epoch, Moment, NodeId};

/// When to send the next request after one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    Now,
    AfterPause,
}

/// Selection of the server to ask, by position. It stays with a server that answers, goes to the
/// next when it fails, and follows a redirect once. It pauses after at most one try of each server
/// and one redirect, so that servers that redirect to each other cause no loop.
#[derive(Debug)]
pub(super) struct Endpoints {
    count: usize,
    current: usize,
    failed: usize,
    redirected: bool,
}

impl Endpoints {
    pub(super) fn new(count: usize) -> Self {
        Self {
            count: count.max(1),
            current: 0,
            failed: 0,
            redirected: false,
        }
    }

    pub(super) fn current(&self) -> usize {
        self.current
    }

    pub(super) fn advance(&mut self) {
        self.current = (self.current + 1) % self.count;
    }

    /// Goes to the next server from one that is shutting down. Returns whether there is another.
    pub(super) fn leave(&mut self, endpoint: usize) -> bool {
        let leaves = self.count > 1 && endpoint == self.current;
        if leaves {
            self.advance();
        }
        leaves
    }

    pub(super) fn on_success(&mut self, endpoint: usize) {
        self.current = endpoint;
        self.failed = 0;
        self.redirected = false;
    }

    pub(super) fn on_failure(&mut self, endpoint: usize) -> Retry {
        if endpoint != self.current {
            // Another request in flight has failed before.
            return Retry::Now;
        }
        self.advance();
        self.failed += 1;
        if self.failed < self.count {
            return Retry::Now;
        }
        self.failed = 0;
        self.redirected = false;
        Retry::AfterPause
    }

    pub(super) fn on_redirect(&mut self, endpoint: usize, to: Option<usize>) -> Retry {
        let Some(to) = to.filter(|to| *to < self.count && *to != endpoint) else {
            return self.on_failure(endpoint);
        };
        if endpoint != self.current {
            return Retry::Now;
        }
        if self.redirected {
            return self.on_failure(endpoint);
        }
        self.redirected = true;
        self.current = to;
        Retry::Now
    }
}

/// Whether a response comes from the master that the current leases come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MasterCheck {
    Accepted,
    ForeignNode { known: NodeId },
    StaleEpoch { known: Epoch },
}

/// The node and epoch that leases come from. Another node or a lower epoch is accepted only when
/// every lease of the known master has expired: two masters could hand out the same capacity.
#[derive(Debug, Default)]
pub(super) struct MasterTracker {
    master: Option<Master>,
}

#[derive(Debug)]
struct Master {
    node: NodeId,
    epoch: Epoch,
    /// The highest epoch of the node, even if a lower one was accepted since.
    highest_epoch: Epoch,
    /// When the last of its leases expires.
    leases_end: Moment,
}

impl MasterTracker {
    pub(super) fn check(&self, node: &NodeId, epoch: Epoch, now: Moment) -> MasterCheck {
        match self.master.as_ref().filter(|it| now < it.leases_end) {
            Some(master) if master.node != *node => MasterCheck::ForeignNode {
                known: master.node.clone(),
            },
            Some(master) if epoch < master.epoch => MasterCheck::StaleEpoch {
                known: master.epoch,
            },
            Some(_) | None => MasterCheck::Accepted,
        }
    }

    /// The highest epoch that the node of the current master has answered with.
    pub(super) fn heard_epoch(&self) -> Option<Epoch> {
        self.master.as_ref().map(|master| master.highest_epoch)
    }

    /// Records an accepted response whose longest lease expires at `leases_end`.
    pub(super) fn record(&mut self, node: NodeId, epoch: Epoch, leases_end: Moment) {
        let known = self.master.take().filter(|master| master.node == node);
        let (highest_epoch, known_end) = match known {
            Some(master) if master.epoch <= epoch => {
                (master.highest_epoch.max(epoch), master.leases_end)
            }
            Some(master) => (master.highest_epoch, Moment::ORIGIN),
            None => (epoch, Moment::ORIGIN),
        };
        self.master = Some(Master {
            node,
            epoch,
            highest_epoch,
            leases_end: leases_end.max(known_end),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_tried_once_before_a_pause() {
        let mut endpoints = Endpoints::new(3);
        assert_eq!(endpoints.on_failure(0), Retry::Now);
        assert_eq!(endpoints.on_failure(1), Retry::Now);
        assert_eq!(endpoints.on_failure(2), Retry::AfterPause);
        assert_eq!(endpoints.current(), 0);
        assert_eq!(Endpoints::new(1).on_failure(0), Retry::AfterPause);
    }

    #[test]
    fn answering_server_stays_selected() {
        let mut endpoints = Endpoints::new(3);
        assert_eq!(endpoints.on_failure(0), Retry::Now);
        endpoints.on_success(1);
        assert_eq!(endpoints.current(), 1);
        // A late failure of the previous server.
        assert_eq!(endpoints.on_failure(0), Retry::Now);
        assert_eq!(endpoints.current(), 1);
    }

    #[test]
    fn redirect_is_followed_once_before_a_pause() {
        let mut endpoints = Endpoints::new(2);
        assert_eq!(endpoints.on_redirect(0, Some(1)), Retry::Now);
        assert_eq!(endpoints.current(), 1);
        // The servers redirect to each other.
        assert_eq!(endpoints.on_redirect(1, Some(0)), Retry::Now);
        assert_eq!(endpoints.on_redirect(0, Some(1)), Retry::AfterPause);
        let current = endpoints.current();
        assert_eq!(
            endpoints.on_redirect(current, Some(1 - current)),
            Retry::Now
        );
    }

    #[test]
    fn redirect_to_unknown_server_is_a_failure() {
        for to in [None, Some(0), Some(9)] {
            let retry = Endpoints::new(1).on_redirect(0, to);
            assert_eq!(retry, Retry::AfterPause, "{to:?}");
        }
    }

    #[test]
    fn other_master_is_accepted_only_after_all_leases_expired() {
        let node = |name: &str| NodeId::new(name).unwrap();
        let epoch = |number: u64| Epoch::new(number).unwrap();
        let at = |seconds| Moment::ORIGIN.after_seconds(seconds);
        let mut tracker = MasterTracker::default();
        let first = tracker.check(&node("a"), epoch(7), at(0.0));
        assert_eq!(first, MasterCheck::Accepted);
        tracker.record(node("a"), epoch(7), at(20.0));
        tracker.record(node("a"), epoch(7), at(15.0));

        let stale = MasterCheck::StaleEpoch { known: epoch(7) };
        let foreign = MasterCheck::ForeignNode { known: node("a") };
        for (number, name, now, expected) in [
            (7, "a", 19.0, MasterCheck::Accepted),
            (8, "a", 19.0, MasterCheck::Accepted),
            (6, "a", 19.0, stale),
            (9, "b", 19.0, foreign),
            (6, "a", 20.0, MasterCheck::Accepted),
            (6, "b", 20.0, MasterCheck::Accepted),
        ] {
            let check = tracker.check(&node(name), epoch(number), at(now));
            assert_eq!(check, expected, "{number} {name} {now}");
        }
    }

    #[test]
    fn highest_epoch_of_the_node_is_echoed() {
        let mut tracker = MasterTracker::default();
        assert_eq!(tracker.heard_epoch(), None);
        for (name, number, heard) in [("a", 7, 7), ("a", 9, 9), ("a", 8, 9), ("b", 3, 3)] {
            let (node, epoch) = (NodeId::new(name).unwrap(), Epoch::new(number).unwrap());
            tracker.record(node, epoch, Moment::ORIGIN);
            assert_eq!(tracker.heard_epoch(), Some(Epoch::new(heard).unwrap()));
        }
    }
}
