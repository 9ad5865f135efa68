//! Grants that end by the bound that a successor knows.

use doorman_openapi::{Reason, Seconds};

use super::*;

fn lease() -> (Grant, Moment) {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    (world.refresh("a", 60.0, None), world.now)
}

#[test]
fn lease_within_the_bound_is_unchanged() {
    let (lease, now) = lease();
    // 20 s and the clock drift.
    assert_eq!(lease.booked_until, now.after_seconds(21.0));
    let capped = lease.clone().capped_at(lease.booked_until, now);
    assert_eq!(capped.lease_length, lease.lease_length);
}

#[test]
fn lease_beyond_the_bound_is_shortened() {
    let (lease, now) = lease();
    let capped = lease.clone().capped_at(now.after_seconds(10.5), now);
    close(capped.lease_length.get(), 10.0);
    assert_eq!(
        (capped.capacity, capped.reason),
        (lease.capacity, lease.reason)
    );
    let capped = lease.capped_at(now.after_seconds(2.1), now);
    close(capped.lease_length.get(), 2.0);
    close(capped.refresh_interval.get(), 1.0);
}

#[test]
fn passed_bound_withholds_the_lease() {
    let (lease, now) = lease();
    for bound in [now, Moment::ORIGIN] {
        let capped = lease.clone().capped_at(bound, now);
        assert_eq!(
            (capped.capacity, capped.lease_length, capped.reason),
            (Capacity::ZERO, Seconds::ZERO, Reason::Pending)
        );
        assert!(capped.refresh_interval.get() <= 1.0);
    }
}

#[test]
fn empty_grant_needs_no_bound() {
    let mut world = World::new(document("FAIR_SHARE", 0.0));
    let nothing = world.refresh("a", 60.0, None);
    let capped = nothing.clone().capped_at(Moment::ORIGIN, world.now);
    assert_eq!(
        (capped.lease_length, capped.reason),
        (nothing.lease_length, Reason::Blocked)
    );
}
