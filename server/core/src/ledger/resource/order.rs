//! Detection of stale and duplicate requests.

use std::cmp::Ordering;

use doorman_openapi::{Epoch, Seq};

use crate::ledger::store::packed::OptionalSeq;

/// When a request was sent, as far as it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) struct RequestStamp {
    pub(in crate::ledger) order: RequestOrder,
    /// Whether its sender had heard from this master. Then it was sent after the failover.
    pub(in crate::ledger) echoes_epoch: bool,
}

impl RequestStamp {
    /// Whether the request changes nothing. `confirmed` says whether its sender is known to have
    /// heard from this master: a request without the echo is then a late copy, unless its order
    /// tells that it is newer.
    pub(in crate::ledger) fn is_stale(self, last: RequestOrder, confirmed: bool) -> bool {
        let is_late_copy = confirmed && !self.echoes_epoch && !self.order.was_sent_after(last);
        is_late_copy || !self.order.is_newer_than(last)
    }
}

/// A request's position among those of its sender: by the epoch of a node's master, then by `seq`.
///
/// Safety rule (`request-seq`): a request that is not newer than the last one of its sender changes
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) struct RequestOrder {
    /// 0 for a client.
    pub(in crate::ledger) epoch: u64,
    seq: OptionalSeq,
}

impl RequestOrder {
    /// `epoch` is 0 for a client.
    pub(in crate::ledger) fn new(epoch: u64, seq: Option<Seq>) -> Self {
        let seq = OptionalSeq::new(seq);
        Self { epoch, seq }
    }

    pub(in crate::ledger) fn of_client(seq: Option<Seq>) -> Self {
        Self::new(0, seq)
    }

    pub(in crate::ledger) fn of_node(epoch: Option<Epoch>, seq: Option<Seq>) -> Self {
        Self::new(epoch.map_or(0, Epoch::get), seq)
    }

    pub(in crate::ledger) fn seq(self) -> Option<Seq> {
        self.seq.get()
    }

    /// Requests without `seq` are not ordered within their epoch, and pass as newer.
    pub(in crate::ledger) fn is_newer_than(self, last: Self) -> bool {
        match self.epoch.cmp(&last.epoch) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => match (self.seq(), last.seq()) {
                (Some(seq), Some(last)) => seq > last,
                (None, _) | (_, None) => true,
            },
        }
    }

    /// Whether it was certainly sent later. Without `seq` that is unknown within an epoch.
    fn was_sent_after(self, last: Self) -> bool {
        match self.epoch.cmp(&last.epoch) {
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal => {
                let both = self.seq().zip(last.seq());
                both.is_some_and(|(seq, last)| seq > last)
            }
        }
    }

    /// The position to compare later requests with: a request without `seq` keeps the last one of
    /// its epoch.
    pub(in crate::ledger) fn advance_from(self, last: Self) -> Self {
        if self.epoch == last.epoch && self.seq().is_none() {
            last
        } else {
            self
        }
    }

    /// Whether stale requests of this sender can be detected.
    pub(in crate::ledger) fn is_ordered(self) -> bool {
        self.seq().is_some() || self.epoch > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_epoch_then_seq() {
        let at = |epoch: u64, seq: Option<u64>| {
            RequestOrder::of_node(
                Some(Epoch::new(epoch).unwrap()),
                seq.map(|seq| Seq::new(seq).unwrap()),
            )
        };
        for (new, last, is_newer) in [
            (at(1, Some(2)), at(1, Some(1)), true),
            (at(1, Some(1)), at(1, Some(1)), false),
            (at(1, Some(0)), at(1, Some(1)), false),
            (at(2, Some(0)), at(1, Some(9)), true),
            (at(1, Some(9)), at(2, Some(0)), false),
            (at(1, None), at(1, Some(5)), true),
            (at(1, Some(5)), at(1, None), true),
            (at(1, None), at(2, None), false),
        ] {
            assert_eq!(new.is_newer_than(last), is_newer, "{new:?} after {last:?}");
        }
        assert_eq!(at(1, None).advance_from(at(1, Some(5))), at(1, Some(5)));
        assert_eq!(at(2, None).advance_from(at(1, Some(5))), at(2, None));
    }
}
