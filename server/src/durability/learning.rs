//! What a start knows of the leases of the server before it.

use doorman_openapi::{CLOCK_DRIFT, Moment, Seconds};

use super::{boot::Boot, bound::Found};
use crate::durability::identity::Directory;

/// Until when leases that this server did not grant may last, and how that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outstanding {
    /// `None`: there are none.
    pub(super) until: Option<Moment>,
    pub(super) because: Because,
}

/// How it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    /// The directory is fresh.
    Fresh(Fresh),
    /// The bound was kept by this machine in this boot.
    Bound,
    /// The bound was kept before the clock began anew.
    OtherBoot,
    /// There should be a bound, and there is none that makes sense.
    Damaged,
}

/// What a fresh directory means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fresh {
    /// A first start: only processes of this machine can be served.
    Loopback,
    /// A first start: an operator says so.
    OperatorsWord,
    /// Another directory may be lost.
    MayBeLost,
}

/// What may be outstanding at `now`.
pub(super) fn outstanding(
    directory: Directory,
    found: Found,
    boot: Boot,
    fresh: Fresh,
    longest_lease: Seconds,
    now: Moment,
) -> Outstanding {
    let longest = now.after_seconds(longest_lease.get() * CLOCK_DRIFT);
    let (until, because) = match (found, directory) {
        (Found::Stored(bound), _) if bound.boot == boot => (Some(bound.ends), Because::Bound),
        (Found::Stored(bound), _) => (Some(later(now, bound.longest)), Because::OtherBoot),
        (Found::Absent, Directory::Fresh) => {
            let until = match fresh {
                Fresh::Loopback | Fresh::OperatorsWord => None,
                Fresh::MayBeLost => Some(longest),
            };
            (until, Because::Fresh(fresh))
        }
        (Found::Damaged, _) | (Found::Absent, Directory::Used) => (Some(longest), Because::Damaged),
    };
    Outstanding { until, because }
}

fn later(moment: Moment, nanos: u64) -> Moment {
    Moment::from_nanos(moment.as_nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::slot::Bound;

    const HERE: Boot = Boot(1);
    const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

    fn at(seconds: f64) -> Moment {
        Moment::ORIGIN.after_seconds(seconds)
    }

    #[track_caller]
    fn check(
        found: Found,
        directory: Directory,
        fresh: Fresh,
        until: Option<f64>,
        because: Because,
    ) {
        let lease = Seconds::new(100.0).unwrap();
        let known = outstanding(directory, found, HERE, fresh, lease, NOW);
        assert_eq!(
            known,
            Outstanding {
                until: until.map(at),
                because
            }
        );
    }

    #[test]
    fn what_is_known_is_not_guessed() {
        use Fresh::{Loopback, MayBeLost, OperatorsWord};
        let stored = |ends: f64, boot| {
            Found::Stored(Bound {
                ends: at(ends),
                longest: 63_000_000_000,
                boot,
            })
        };
        for fresh in [Loopback, OperatorsWord, MayBeLost] {
            for directory in [Directory::Fresh, Directory::Used] {
                let check = |found, until, because| check(found, directory, fresh, until, because);
                check(stored(1012.0, HERE), Some(1012.0), Because::Bound);
                check(stored(900.0, HERE), Some(900.0), Because::Bound);
                check(stored(9e6, Boot(2)), Some(1063.0), Because::OtherBoot);
                check(Found::Damaged, Some(1105.0), Because::Damaged);
            }
            let until = (fresh == MayBeLost).then_some(1105.0);
            check(
                Found::Absent,
                Directory::Fresh,
                fresh,
                until,
                Because::Fresh(fresh),
            );
            check(
                Found::Absent,
                Directory::Used,
                fresh,
                Some(1105.0),
                Because::Damaged,
            );
        }
    }
}
