//! Telling a late or doubled transmission from a new one.

use doorman_openapi::{Epoch, Seq};

/// The place of a transmission among those of its sender: a client's by `seq`, a node's by the epoch of its master, then `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    epoch: u64,
    seq: Option<Seq>,
}

impl Order {
    pub(super) fn of_client(seq: Option<Seq>) -> Self {
        Self { epoch: 0, seq }
    }

    pub(super) fn of_node(epoch: Option<Epoch>, seq: Option<Seq>) -> Self {
        Self {
            epoch: epoch.map_or(0, Epoch::get),
            seq,
        }
    }

    /// A place as it was kept.
    pub(super) fn of_record(epoch: u64, seq: Option<Seq>) -> Self {
        Self { epoch, seq }
    }

    /// The place to be kept.
    pub(super) fn record(self) -> (u64, Option<Seq>) {
        (self.epoch, self.seq)
    }

    /// Whether a transmission of this place may change what `last` has left. One without `seq` cannot be ordered within its epoch.
    pub(super) fn follows(self, last: Self) -> bool {
        match self.epoch.cmp(&last.epoch) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => match (self.seq, last.seq) {
                (Some(seq), Some(last)) => seq > last,
                (None, _) | (_, None) => true,
            },
        }
    }

    /// The place to compare with from now on: one without `seq` leaves the last one known in the same epoch.
    pub(super) fn after(self, last: Self) -> Self {
        let seq = if self.epoch == last.epoch {
            self.seq.or(last.seq)
        } else {
            self.seq
        };
        Self {
            epoch: self.epoch,
            seq,
        }
    }

    /// Whether late copies can be told at all.
    pub(super) fn is_known(self) -> bool {
        self.seq.is_some() || self.epoch > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_by_epoch_then_seq() {
        let at = |epoch: u64, seq: Option<u64>| {
            Order::of_node(
                Some(Epoch::new(epoch).unwrap()),
                seq.map(|seq| Seq::new(seq).unwrap()),
            )
        };
        for (new, last, follows) in [
            (at(1, Some(2)), at(1, Some(1)), true),
            (at(1, Some(1)), at(1, Some(1)), false),
            (at(1, Some(0)), at(1, Some(1)), false),
            (at(2, Some(0)), at(1, Some(9)), true),
            (at(1, Some(9)), at(2, Some(0)), false),
            (at(1, None), at(1, Some(5)), true),
            (at(1, Some(5)), at(1, None), true),
            (at(1, None), at(2, None), false),
        ] {
            assert_eq!(new.follows(last), follows, "{new:?} after {last:?}");
        }
        assert_eq!(at(1, None).after(at(1, Some(5))), at(1, Some(5)));
        assert_eq!(at(2, None).after(at(1, Some(5))), at(2, None));
    }
}
