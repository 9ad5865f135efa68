//! What callers pay, and what they are refused: all accounts together, under a time that is an argument.

use super::*;

fn limits(rate: u32, burst: u32) -> Quotas {
    Quotas::new(CallerLimit::Of {
        rate: rate.try_into().unwrap(),
        burst: burst.try_into().unwrap(),
    })
}

fn now() -> Moment {
    Moment::from_nanos(1)
}

fn payer() -> Option<QuotaKey> {
    Some(QuotaKey::of_caller(1 << 32))
}

fn peer(address: &str) -> Option<PeerAddr> {
    Some(PeerAddr::new(address.parse().unwrap()))
}

/// Reads a call with a body of no length worth counting, and decides on it.
fn decide(
    limits: &Quotas,
    payer: Option<QuotaKey>,
    resources: usize,
    asks: LeaseKind,
    now: Moment,
) -> Result<(), RateLimited> {
    let unread = LeaseCost::unread(0);
    limits.charge_reading(payer, unread, now)?;
    let work = unread.about(resources);
    limits
        .charge_decisions(payer, work, asks, now)
        .map_err(|limited| limits.reject(payer, work, asks, limited, now))
}

fn spend_on_new_leases(limits: &Quotas) {
    while decide(limits, payer(), 1, LeaseKind::New, now()).is_ok() {}
}

#[test]
fn a_request_costs_eight_decisions_and_each_of_its_resources_one() {
    let limits = limits(10, 100);
    decide(&limits, payer(), 92, LeaseKind::New, now()).unwrap();
    let unread = LeaseCost::unread(0);
    limits.charge_reading(payer(), unread, now()).unwrap();
    let limited = limits.charge_decisions(payer(), unread.about(2), LeaseKind::New, now());
    let limited = limited.unwrap_err();
    assert_eq!(limited.whose, LimitScope::Caller);
    assert_eq!(limited.wait, Duration::from_secs(1));
}

#[test]
fn a_long_body_is_paid_for_before_it_is_read_and_once() {
    let limits = limits(10, 10_000);
    let long = LeaseCost::unread(4 * 1024 * 1024);
    for _ in 0..4 {
        limits.charge_reading(payer(), long, now()).unwrap();
    }
    assert!(limits.charge_reading(payer(), long, now()).is_err());
    assert_eq!(limits.rejections(CallKind::Unread, LimitScope::Caller), 1);

    let other = Some(QuotaKey::of_caller(2 << 32));
    let work = long.about(9_992);
    limits.charge_reading(other, long, now()).unwrap();
    limits
        .charge_decisions(other, work, LeaseKind::New, now())
        .unwrap();
    let full = now().after(Duration::from_secs(1_000));
    limits.charge_reading(other, long, full).unwrap();
    limits
        .charge_decisions(other, work, LeaseKind::New, full)
        .unwrap();
}

#[test]
fn renewals_go_on_where_new_leases_do_not() {
    let limits = limits(10, 1_000);
    spend_on_new_leases(&limits);
    for _ in 0..99 {
        decide(&limits, payer(), 2, LeaseKind::Renewal, now()).unwrap();
    }
    assert!(decide(&limits, payer(), 10, LeaseKind::Renewal, now()).is_err());
    while limits
        .charge_reading(payer(), LeaseCost::unread(0), now())
        .is_ok()
    {}
    assert_eq!(limits.rejections(CallKind::Unread, LimitScope::Caller), 1);
}

#[test]
fn what_is_read_only_to_be_refused_costs_a_quarter() {
    let limits = limits(10, 1_000);
    spend_on_new_leases(&limits);
    let left = || {
        let (bucket, pace) = limits.account(payer(), QuotaClass::Leases, now()).unwrap();
        let left = |tokens: &u64| bucket.has(*tokens, pace, Depth::Reserve, now()).is_err();
        (0..1_000).find(left).unwrap_or(1_000)
    };
    let before = left();
    for _ in 0..10 {
        assert!(decide(&limits, payer(), 92, LeaseKind::New, now()).is_err());
    }
    assert_eq!(before - left(), 250);
}

#[test]
fn refused_newcomers_leave_renewals_half_of_the_reserve_but_for_their_reading() {
    let limits = limits(10, 100_000);
    spend_on_new_leases(&limits);
    for _ in 0..1_000 {
        assert!(decide(&limits, payer(), 992, LeaseKind::New, now()).is_err());
    }
    // Decided whole they would have cost a million.
    let refused = limits.rejections(CallKind::New, LimitScope::Caller);
    assert_eq!(refused, 1_001);
    for _ in 0..47 {
        decide(&limits, payer(), 992, LeaseKind::Renewal, now()).unwrap();
    }
    assert_eq!(limits.rejections(CallKind::Unread, LimitScope::Caller), 0);
}

#[test]
fn who_comes_again_when_it_was_told_to_is_served() {
    for asks in [LeaseKind::New, LeaseKind::Renewal] {
        let limits = limits(1_000, 20_000);
        let mut now = now();
        for resources in [10_000, 10_000, 9_000, 10_000, 15_000, 30_000] {
            // So that it is read.
            now = now.after(Duration::from_secs(1));
            if let Err(limited) = decide(&limits, payer(), resources, asks, now) {
                now = now.after(limited.wait);
                assert!(decide(&limits, payer(), resources, asks, now).is_ok());
            }
        }
    }
}

#[test]
fn what_came_back_unnamed_is_paid_for_afterwards() {
    let limits = limits(10, 1_000);
    limits.charge_released(payer(), 1_500, now());
    assert!(decide(&limits, payer(), 1, LeaseKind::New, now()).is_err());
    decide(&limits, payer(), 400, LeaseKind::Renewal, now()).unwrap();
}

#[test]
fn a_token_that_counts_is_verified_on_nobodys_account() {
    let limits = limits(10, 1_000);
    for _ in 0..100 {
        limits.charge_verification(payer(), now()).unwrap();
        limits.refund_verification(payer(), now());
    }
    for _ in 0..10 {
        limits.charge_verification(payer(), now()).unwrap();
    }
    assert!(limits.charge_verification(payer(), now()).is_err());
    // What is asked without any has nothing to do with it.
    assert!(limits.charge_open(payer(), now()).is_ok());
}

#[test]
fn operators_have_what_is_usual_however_little_others_have() {
    let limits = limits(1, 1);
    for _ in 0..80 {
        limits
            .charge_operation(payer(), Operation::Change, now())
            .unwrap();
    }
    let limited = limits.charge_operation(payer(), Operation::Change, now());
    assert_eq!(limited.unwrap_err().wait, Duration::from_millis(25));
    assert!(limits.charge_request(payer(), now()).is_ok());
    assert!(limits.charge_request(payer(), now()).is_err());
}

#[test]
fn no_kind_of_calls_locks_out_another_and_no_caller_another() {
    let limits = limits(10, 100_000);
    let view = || limits.charge_operation(payer(), Operation::View, now());
    let change = || limits.charge_operation(payer(), Operation::Change, now());
    spend_on_new_leases(&limits);
    assert!(limits.charge_request(payer(), now()).is_err());
    for _ in 0..79 {
        change().unwrap();
    }
    for _ in 0..10 {
        view().unwrap();
    }
    assert!(view().is_err() && change().is_err());
    assert_eq!(limits.rejections(CallKind::Operator, LimitScope::Caller), 2);
    assert!(limits.charge_open(payer(), now()).is_ok());

    let other = Some(QuotaKey::of_caller(2 << 32));
    assert!(decide(&limits, other, 1, LeaseKind::New, now()).is_ok());
    assert!(
        limits
            .charge_operation(other, Operation::View, now())
            .is_ok()
    );
}

#[test]
fn loopback_has_a_limit_only_where_one_is_asked_for() {
    let usual = Quotas::new(CallerLimit::Usual);
    assert_eq!(usual.address_key(peer("127.0.0.1")), None);
    assert_eq!(usual.address_key(peer("::1")), None);
    assert!(usual.address_key(peer("192.0.2.1")).is_some());
    assert_eq!(usual.address_key(None), None);
    assert!(limits(1, 1).address_key(peer("127.0.0.1")).is_some());
    let off = Quotas::new(CallerLimit::Off);
    assert_eq!(off.address_key(peer("192.0.2.1")), None);
    for _ in 0..1_000 {
        decide(&off, payer(), 10_000, LeaseKind::New, now()).unwrap();
    }
}

#[test]
fn a_server_with_too_much_to_do_refuses_new_leases_of_everybody() {
    let limits = Quotas::new(CallerLimit::Off);
    let busy = limits.begin_decisions(100_000, LeaseKind::Renewal);
    let limited = limits.begin_decisions(1, LeaseKind::New).unwrap_err();
    assert_eq!(limited.whose, LimitScope::Server);
    assert!(limits.begin_decisions(1, LeaseKind::Renewal).is_ok());
    drop(busy);
    assert!(limits.begin_decisions(1, LeaseKind::New).is_ok());
}

#[test]
fn the_usual_limit_lets_a_fleet_with_one_token_renew_a_million_leases() {
    let limits = Quotas::new(CallerLimit::Usual);
    // At the start all of them at once, as the layer asks: 1,000 resources in a request.
    let mut now = now();
    let mut waited = Duration::ZERO;
    for _ in 0..1_000 {
        while let Err(limited) = decide(&limits, payer(), 1_000, LeaseKind::New, now) {
            waited += limited.wait;
            now = now.after(limited.wait);
        }
    }
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    // And every five seconds from then on.
    for _ in 0..20_000 {
        now = now.after(Duration::from_millis(5));
        decide(&limits, payer(), 1_000, LeaseKind::New, now).unwrap();
    }
}
