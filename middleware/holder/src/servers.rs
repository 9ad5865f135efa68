//! Servers of the control plane: the next to ask, and whose responses are accepted.

use std::time::Duration;

use doorman_openapi::{Epoch, Moment, NodeId};

use crate::event::Warning;

/// When to send the next request after one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Without a pause.
    Now,
    /// Within 200 ms, at random.
    Soon,
    /// After a [pause](crate::Backoff).
    AfterPause,
}

/// How often a single address is asked again that was not the master's. Several servers may stand
/// behind it, and one that is not master closes the connection.
const MAX_RECONNECTS: u8 = 4;
/// The longest pause before such a try.
pub(crate) const RECONNECT_SPREAD: Duration = Duration::from_millis(200);

/// Selection of the server to ask, by position. It stays with a server that answers, goes to the
/// next when it fails, and follows a redirect once. It pauses after at most one try of each server
/// and one redirect, so that servers that redirect to each other cause no loop.
#[derive(Debug, Clone)]
pub struct Endpoints {
    count: usize,
    current: usize,
    failed: usize,
    redirected: bool,
    reconnects: u8,
}

impl Endpoints {
    /// A list of `count` servers, at least one, of which the one at `first` is asked first.
    #[must_use]
    pub fn new(count: usize, first: usize) -> Self {
        let count = count.max(1);
        Self {
            count,
            current: first % count,
            failed: 0,
            redirected: false,
            reconnects: 0,
        }
    }

    /// The position of the server to ask now.
    #[must_use]
    pub fn current(&self) -> usize {
        self.current
    }

    /// Goes to the next server.
    pub fn advance(&mut self) {
        self.current = (self.current + 1) % self.count;
    }

    /// Goes to the next server from one that is shutting down or not the master.
    pub fn leave(&mut self, endpoint: usize) {
        if endpoint == self.current {
            self.advance();
        }
    }

    /// A server has answered, and is asked from now on.
    pub fn on_success(&mut self, endpoint: usize) {
        self.current = endpoint;
        self.end_round();
    }

    fn end_round(&mut self) {
        self.failed = 0;
        self.redirected = false;
        self.reconnects = 0;
    }

    /// A request to a server failed. Returns when to send the next one.
    pub fn on_failure(&mut self, endpoint: usize) -> Retry {
        if endpoint != self.current {
            // Another request in flight has failed before.
            return Retry::Now;
        }
        self.advance();
        self.failed += 1;
        if self.failed < self.count {
            return Retry::Now;
        }
        self.end_round();
        Retry::AfterPause
    }

    /// A server is not the master and named `to`; `None` if that is no configured server.
    pub fn on_redirect(&mut self, endpoint: usize, to: Option<usize>) -> Retry {
        let Some(to) = to.filter(|to| *to < self.count && *to != endpoint) else {
            if self.count == 1 && self.reconnects < MAX_RECONNECTS {
                self.reconnects += 1;
                return Retry::Soon;
            }
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

/// The node and epoch that leases come from. Another node or a lower epoch is accepted only when
/// every lease of the known master has expired: two masters could hand out the same capacity.
#[derive(Debug, Clone, Default)]
pub(crate) struct MasterTracker {
    master: Option<Master>,
}

#[derive(Debug, Clone)]
struct Master {
    node: NodeId,
    epoch: Epoch,
    /// The highest epoch of the node, even if a lower one was accepted since.
    highest_epoch: Epoch,
    /// When the last of its leases expires.
    leases_end: Moment,
    /// When the last lease of a lower epoch expires.
    earlier_leases_end: Moment,
}

impl MasterTracker {
    /// Whether a response of a server comes from the master of the current leases. The error is
    /// what to log otherwise.
    pub(crate) fn check(
        &self,
        endpoint: usize,
        node: &NodeId,
        epoch: Epoch,
        now: Moment,
    ) -> Result<(), Warning> {
        match self.master.as_ref().filter(|it| now < it.leases_end) {
            Some(master) if master.node != *node => Err(Warning::ForeignNode {
                endpoint,
                known: master.node.clone(),
                received: node.clone(),
            }),
            Some(master) if epoch < master.epoch => Err(Warning::StaleEpoch {
                endpoint,
                known: master.epoch,
                received: epoch,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The highest epoch that the node of the current master has answered with.
    pub(crate) fn heard_epoch(&self) -> Option<Epoch> {
        self.master.as_ref().map(|master| master.highest_epoch)
    }

    /// Records an accepted response of a server, before its leases are taken.
    pub(crate) fn record(&mut self, node: NodeId, epoch: Epoch) {
        let known = self.master.take().filter(|master| master.node == node);
        let mut master = known.unwrap_or(Master {
            node,
            epoch,
            highest_epoch: epoch,
            leases_end: Moment::ORIGIN,
            earlier_leases_end: Moment::ORIGIN,
        });
        if epoch < master.epoch {
            master.leases_end = Moment::ORIGIN;
        } else if epoch > master.epoch {
            master.earlier_leases_end = master.leases_end;
        }
        master.highest_epoch = master.highest_epoch.max(epoch);
        master.epoch = epoch;
        self.master = Some(master);
    }

    /// Records that a lease of the master expires at `end`.
    pub(crate) fn record_leases(&mut self, end: Moment) {
        if let Some(master) = &mut self.master {
            master.leases_end = master.leases_end.max(end);
        }
    }

    /// Whether leases of an earlier master may last: the master may still learn of them, and a
    /// whole fleet has just come to it.
    pub(crate) fn is_new(&self, now: Moment) -> bool {
        let master = self.master.as_ref();
        master.is_some_and(|master| now < master.earlier_leases_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(count: usize) -> Endpoints {
        Endpoints::new(count, 0)
    }

    #[test]
    fn each_server_is_tried_once_before_a_pause() {
        let mut servers = endpoints(3);
        assert_eq!(servers.on_failure(0), Retry::Now);
        assert_eq!(servers.on_failure(1), Retry::Now);
        assert_eq!(servers.on_failure(2), Retry::AfterPause);
        assert_eq!(servers.current(), 0);
        assert_eq!(endpoints(1).on_failure(0), Retry::AfterPause);
    }

    #[test]
    fn answering_server_stays_selected() {
        let mut servers = endpoints(3);
        assert_eq!(servers.on_failure(0), Retry::Now);
        servers.on_success(1);
        assert_eq!(servers.current(), 1);
        // A late failure of the previous server.
        assert_eq!(servers.on_failure(0), Retry::Now);
        assert_eq!(servers.current(), 1);
    }

    #[test]
    fn redirect_is_followed_once_before_a_pause() {
        let mut servers = endpoints(2);
        assert_eq!(servers.on_redirect(0, Some(1)), Retry::Now);
        assert_eq!(servers.current(), 1);
        // The servers redirect to each other.
        assert_eq!(servers.on_redirect(1, Some(0)), Retry::Now);
        assert_eq!(servers.on_redirect(0, Some(1)), Retry::AfterPause);
        let current = servers.current();
        assert_eq!(servers.on_redirect(current, Some(1 - current)), Retry::Now);
    }

    #[test]
    fn redirect_to_unknown_server_is_a_failure() {
        for to in [None, Some(0), Some(9)] {
            let mut servers = endpoints(2);
            assert_eq!(servers.on_redirect(0, to), Retry::Now, "{to:?}");
            assert_eq!(servers.on_redirect(1, Some(1)), Retry::AfterPause, "{to:?}");
        }
    }

    #[test]
    fn single_address_is_asked_a_few_times_for_the_master() {
        let mut servers = endpoints(1);
        for _ in 0..3 {
            for to in [None, Some(0), Some(9), None] {
                assert_eq!(servers.on_redirect(0, to), Retry::Soon, "{to:?}");
            }
            assert_eq!(servers.on_redirect(0, None), Retry::AfterPause);
        }
        assert_eq!(servers.on_redirect(0, None), Retry::Soon);
        assert_eq!(servers.on_failure(0), Retry::AfterPause);
    }

    #[test]
    fn other_master_is_accepted_only_after_all_leases_expired() {
        let node = |name: &str| NodeId::new(name).unwrap();
        let epoch = |number: u64| Epoch::new(number).unwrap();
        let at = |seconds| Moment::ORIGIN.after_seconds(seconds);
        let mut tracker = MasterTracker::default();
        assert_eq!(tracker.check(1, &node("a"), epoch(7), at(0.0)), Ok(()));
        tracker.record(node("a"), epoch(7));
        tracker.record_leases(at(20.0));
        tracker.record(node("a"), epoch(7));
        tracker.record_leases(at(15.0));

        let stale = Err(Warning::StaleEpoch {
            endpoint: 1,
            known: epoch(7),
            received: epoch(6),
        });
        let foreign = Err(Warning::ForeignNode {
            endpoint: 1,
            known: node("a"),
            received: node("b"),
        });
        for (number, name, now, expected) in [
            (7, "a", 19.0, Ok(())),
            (8, "a", 19.0, Ok(())),
            (6, "a", 19.0, stale),
            (9, "b", 19.0, foreign),
            (6, "a", 20.0, Ok(())),
            (6, "b", 20.0, Ok(())),
        ] {
            let check = tracker.check(1, &node(name), epoch(number), at(now));
            assert_eq!(check, expected, "{number} {name} {now}");
        }
    }

    #[test]
    fn highest_epoch_of_the_node_is_echoed() {
        let mut tracker = MasterTracker::default();
        assert_eq!(tracker.heard_epoch(), None);
        for (name, number, heard) in [("a", 7, 7), ("a", 9, 9), ("a", 8, 9), ("b", 3, 3)] {
            let (node, epoch) = (NodeId::new(name).unwrap(), Epoch::new(number).unwrap());
            tracker.record(node, epoch);
            assert_eq!(tracker.heard_epoch(), Some(Epoch::new(heard).unwrap()));
        }
    }

    #[test]
    fn master_is_new_while_earlier_leases_last() {
        let node = || NodeId::new("a").unwrap();
        let epoch = |number: u64| Epoch::new(number).unwrap();
        let at = |seconds| Moment::ORIGIN.after_seconds(seconds);
        let mut tracker = MasterTracker::default();
        assert!(!tracker.is_new(at(0.0)));
        tracker.record(node(), epoch(7));
        tracker.record_leases(at(20.0));
        assert!(!tracker.is_new(at(0.0)), "there is no earlier one");
        for end in [70.0, 80.0] {
            tracker.record(node(), epoch(8));
            tracker.record_leases(at(end));
            assert!(tracker.is_new(at(19.0)));
            assert!(!tracker.is_new(at(20.0)));
        }
    }
}
