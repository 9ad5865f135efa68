//! Whose answers count: those of one node, and of its newest master.

use doorman_openapi::{Epoch, Moment, NodeId};

/// What to make of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Valid,
    /// From a node other than the one leases come from.
    Foreign {
        known: NodeId,
    },
    /// From a master whose reign is over.
    Stale {
        known: Epoch,
    },
}

/// The node and reign that leases come from. Another node, or a lower epoch, is believed only when everything that the known one
/// leased has run out since it was last heard: then there is nothing left that it could contradict.
#[derive(Debug, Default)]
pub(super) struct Reign {
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    node: NodeId,
    epoch: Epoch,
    until: Moment,
}

impl Reign {
    pub(super) fn judge(&self, node: &NodeId, epoch: Epoch, now: Moment) -> Verdict {
        match &self.known {
            Some(known) if now < known.until && known.node != *node => Verdict::Foreign {
                known: known.node.clone(),
            },
            Some(known) if now < known.until && epoch < known.epoch => {
                Verdict::Stale { known: known.epoch }
            }
            Some(_) | None => Verdict::Valid,
        }
    }

    /// A valid answer was heard, whose longest lease lasts until `until`.
    pub(super) fn heard(&mut self, node: NodeId, epoch: Epoch, until: Moment) {
        let before = self
            .known
            .take()
            .filter(|known| known.node == node && known.epoch <= epoch);
        self.known = Some(Known {
            node,
            epoch,
            until: before.map_or(until, |known| known.until.max(until)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn epoch(number: u64) -> Epoch {
        Epoch::new(number).unwrap()
    }

    #[test]
    fn believes_lower_epochs_and_other_nodes_only_after_the_longest_lease() {
        let at = |seconds| Moment::ORIGIN.after_seconds(seconds);
        let mut reign = Reign::default();
        assert_eq!(reign.judge(&node("a"), epoch(7), at(0.0)), Verdict::Valid);
        reign.heard(node("a"), epoch(7), at(20.0));
        reign.heard(node("a"), epoch(7), at(15.0));

        let check = |number, name, now, verdict| {
            assert_eq!(reign.judge(&node(name), epoch(number), now), verdict);
        };
        check(7, "a", at(19.0), Verdict::Valid);
        check(8, "a", at(19.0), Verdict::Valid);
        check(6, "a", at(19.0), Verdict::Stale { known: epoch(7) });
        check(9, "b", at(19.0), Verdict::Foreign { known: node("a") });
        check(6, "a", at(20.0), Verdict::Valid);
        check(6, "b", at(20.0), Verdict::Valid);
    }
}
