//! What a holder may be told when a successor will only know so much.

use doorman_openapi::{Reason, Seconds};

use super::*;

fn lease() -> (Grant, Moment) {
    let mut world = World::new(document("FAIR_SHARE", 100.0));
    (world.ask("a", 60.0, None), world.now)
}

#[test]
fn a_lease_within_the_bound_is_told_as_it_is() {
    let (lease, now) = lease();
    // 20 s, and the drift of two clocks.
    assert_eq!(lease.booked_until, now.after_seconds(21.0));
    let told = lease.clone().capped_at(lease.booked_until, now);
    assert_eq!(told.lease_length, lease.lease_length);
}

#[test]
fn a_lease_beyond_the_bound_is_told_shorter_so_that_it_ends_within() {
    let (lease, now) = lease();
    let told = lease.clone().capped_at(now.after_seconds(10.5), now);
    close(told.lease_length.get(), 10.0);
    assert_eq!((told.capacity, told.reason), (lease.capacity, lease.reason));
    let told = lease.capped_at(now.after_seconds(2.1), now);
    close(told.lease_length.get(), 2.0);
    close(told.refresh_interval.get(), 1.0);
}

#[test]
fn beyond_a_bound_that_has_passed_nothing_is_told() {
    let (lease, now) = lease();
    for bound in [now, Moment::ORIGIN] {
        let told = lease.clone().capped_at(bound, now);
        assert_eq!(
            (told.capacity, told.lease_length, told.reason),
            (Capacity::ZERO, Seconds::ZERO, Reason::Pending)
        );
        assert!(told.refresh_interval.get() <= 1.0);
    }
}

#[test]
fn nothing_needs_no_bound() {
    let mut world = World::new(document("FAIR_SHARE", 0.0));
    let nothing = world.ask("a", 60.0, None);
    let told = nothing.clone().capped_at(Moment::ORIGIN, world.now);
    assert_eq!(
        (told.lease_length, told.reason),
        (nothing.lease_length, Reason::Blocked)
    );
}
