//! Charges and rejections of all classes together, with time as an argument.

use super::*;

fn quotas(rate: u32, burst: u32) -> Quotas {
    Quotas::new(CallerLimit::Of {
        rate: rate.try_into().unwrap(),
        burst: burst.try_into().unwrap(),
    })
}

fn now() -> Moment {
    Moment::from_nanos(1)
}

fn caller() -> Option<QuotaKey> {
    Some(QuotaKey::of_caller(1 << 32))
}

fn other() -> Option<QuotaKey> {
    Some(QuotaKey::of_caller(2 << 32))
}

fn peer(address: &str) -> Option<PeerAddr> {
    Some(PeerAddr::new(address.parse().unwrap()))
}

/// Reads and decides a call with a short body.
fn decide(
    quotas: &Quotas,
    key: Option<QuotaKey>,
    resources: usize,
    kind: LeaseKind,
    now: Moment,
) -> Result<(), RateLimited> {
    let unread = LeaseCost::for_body(0);
    quotas.charge(key, Charge::Reading(unread), now)?;
    let cost = unread.with_resources(resources);
    quotas
        .charge_decisions(key, cost, kind, now)
        .map_err(|limited| quotas.reject(key, cost, kind, limited, now))
}

fn spend_on_new_leases(quotas: &Quotas) {
    while decide(quotas, caller(), 1, LeaseKind::New, now()).is_ok() {}
}

fn rejections(quotas: &Quotas, call: CallKind) -> u64 {
    quotas.rejections.so_far(call, LimitScope::Caller)
}

#[test]
fn call_costs_eight_tokens_and_one_per_resource() {
    let quotas = quotas(10, 100);
    decide(&quotas, caller(), 92, LeaseKind::New, now()).unwrap();
    let unread = LeaseCost::for_body(0);
    quotas
        .charge(caller(), Charge::Reading(unread), now())
        .unwrap();
    let limited =
        quotas.charge_decisions(caller(), unread.with_resources(2), LeaseKind::New, now());
    let limited = limited.unwrap_err();
    assert_eq!(limited.scope, LimitScope::Caller);
    assert_eq!(limited.retry_after, Duration::from_secs(1));
}

#[test]
fn long_body_is_charged_once_before_it_is_read() {
    let quotas = quotas(10, 10_000);
    let long = LeaseCost::for_body(4 * 1024 * 1024);
    for _ in 0..4 {
        quotas
            .charge(caller(), Charge::Reading(long), now())
            .unwrap();
    }
    assert!(
        quotas
            .charge(caller(), Charge::Reading(long), now())
            .is_err()
    );
    assert_eq!(rejections(&quotas, CallKind::Unread), 1);

    let cost = long.with_resources(9_992);
    let full = now().after(Duration::from_secs(1_000));
    for now in [now(), full] {
        quotas.charge(other(), Charge::Reading(long), now).unwrap();
        quotas
            .charge_decisions(other(), cost, LeaseKind::New, now)
            .unwrap();
    }
}

#[test]
fn renewals_continue_when_new_leases_are_rejected() {
    let quotas = quotas(10, 1_000);
    spend_on_new_leases(&quotas);
    for _ in 0..99 {
        decide(&quotas, caller(), 2, LeaseKind::Renewal, now()).unwrap();
    }
    assert!(decide(&quotas, caller(), 10, LeaseKind::Renewal, now()).is_err());
    while quotas
        .charge(caller(), Charge::Reading(LeaseCost::for_body(0)), now())
        .is_ok()
    {}
    assert_eq!(rejections(&quotas, CallKind::Unread), 1);
}

#[test]
fn rejected_call_costs_a_quarter() {
    let quotas = quotas(10, 1_000);
    spend_on_new_leases(&quotas);
    let left = || {
        let account = quotas.account(caller(), QuotaClass::Leases, now()).unwrap();
        (0..1_000)
            .find(|tokens| !account.wait_for(*tokens, Overdraft::Full).is_zero())
            .unwrap_or(1_000)
    };
    let before = left();
    for _ in 0..10 {
        assert!(decide(&quotas, caller(), 92, LeaseKind::New, now()).is_err());
    }
    assert_eq!(before - left(), 250);
}

#[test]
fn rejected_new_leases_leave_half_of_the_reserve_to_renewals() {
    let quotas = quotas(10, 100_000);
    spend_on_new_leases(&quotas);
    for _ in 0..1_000 {
        assert!(decide(&quotas, caller(), 992, LeaseKind::New, now()).is_err());
    }
    // Decided whole they would have cost a million.
    assert_eq!(rejections(&quotas, CallKind::New), 1_001);
    for _ in 0..47 {
        decide(&quotas, caller(), 992, LeaseKind::Renewal, now()).unwrap();
    }
    assert_eq!(rejections(&quotas, CallKind::Unread), 0);
}

#[test]
fn retry_after_the_announced_wait_succeeds() {
    for kind in [LeaseKind::New, LeaseKind::Renewal] {
        let quotas = quotas(1_000, 20_000);
        let mut now = now();
        for resources in [10_000, 10_000, 9_000, 10_000, 15_000, 30_000] {
            // So that it is read.
            now = now.after(Duration::from_secs(1));
            if let Err(limited) = decide(&quotas, caller(), resources, kind, now) {
                now = now.after(limited.retry_after);
                assert!(decide(&quotas, caller(), resources, kind, now).is_ok());
            }
        }
    }
}

#[test]
fn release_of_all_leases_is_charged_afterwards() {
    let quotas = quotas(10, 1_000);
    quotas.charge_released(caller(), 1_500, now());
    assert!(decide(&quotas, caller(), 1, LeaseKind::New, now()).is_err());
    decide(&quotas, caller(), 400, LeaseKind::Renewal, now()).unwrap();
}

#[test]
fn verification_of_a_valid_token_is_refunded() {
    let quotas = quotas(10, 1_000);
    for _ in 0..100 {
        quotas
            .charge(caller(), Charge::Verification, now())
            .unwrap();
        quotas.refund_verification(caller(), now());
    }
    for _ in 0..10 {
        quotas
            .charge(caller(), Charge::Verification, now())
            .unwrap();
    }
    assert!(
        quotas
            .charge(caller(), Charge::Verification, now())
            .is_err()
    );
    // Calls without a token have a bucket of their own.
    assert!(quotas.charge(caller(), Charge::Open, now()).is_ok());
}

#[test]
fn operators_have_at_least_the_default_limit() {
    let quotas = quotas(1, 1);
    let change = || quotas.charge(caller(), Charge::Operation(Operation::Change), now());
    for _ in 0..80 {
        change().unwrap();
    }
    assert_eq!(change().unwrap_err().retry_after, Duration::from_millis(25));
    assert!(quotas.charge(caller(), Charge::Request, now()).is_ok());
    assert!(quotas.charge(caller(), Charge::Request, now()).is_err());
}

#[test]
fn classes_and_callers_are_limited_separately() {
    let quotas = quotas(10, 100_000);
    let view = || quotas.charge(caller(), Charge::Operation(Operation::View), now());
    let change = || quotas.charge(caller(), Charge::Operation(Operation::Change), now());
    spend_on_new_leases(&quotas);
    assert!(quotas.charge(caller(), Charge::Request, now()).is_err());
    for _ in 0..79 {
        change().unwrap();
    }
    for _ in 0..10 {
        view().unwrap();
    }
    assert!(view().is_err() && change().is_err());
    assert_eq!(rejections(&quotas, CallKind::Operator), 2);
    assert!(quotas.charge(caller(), Charge::Open, now()).is_ok());

    assert!(decide(&quotas, other(), 1, LeaseKind::New, now()).is_ok());
    let operation = quotas.charge(other(), Charge::Operation(Operation::View), now());
    assert!(operation.is_ok());
}

#[test]
fn loopback_is_limited_only_by_an_explicit_limit() {
    let usual = Quotas::new(CallerLimit::Usual);
    assert_eq!(usual.address_key(peer("127.0.0.1")), None);
    assert_eq!(usual.address_key(peer("::1")), None);
    assert!(usual.address_key(peer("192.0.2.1")).is_some());
    assert_eq!(usual.address_key(None), None);
    assert!(quotas(1, 1).address_key(peer("127.0.0.1")).is_some());
    let off = Quotas::new(CallerLimit::Off);
    assert_eq!(off.address_key(peer("192.0.2.1")), None);
    for _ in 0..1_000 {
        decide(&off, caller(), 10_000, LeaseKind::New, now()).unwrap();
    }
}

#[test]
fn overloaded_server_rejects_new_leases_of_all_callers() {
    let quotas = Quotas::new(CallerLimit::Off);
    let busy = quotas.begin_decisions(100_000, LeaseKind::Renewal);
    let limited = quotas.begin_decisions(1, LeaseKind::New).unwrap_err();
    assert_eq!(limited.scope, LimitScope::Server);
    assert!(quotas.begin_decisions(1, LeaseKind::Renewal).is_ok());
    drop(busy);
    assert!(quotas.begin_decisions(1, LeaseKind::New).is_ok());
}

#[test]
fn default_limit_admits_a_million_leases_of_one_caller() {
    let quotas = Quotas::new(CallerLimit::Usual);
    // At the start the layers ask for all of them, 1,000 resources in a call.
    let mut now = now();
    let mut waited = Duration::ZERO;
    for _ in 0..1_000 {
        while let Err(limited) = decide(&quotas, caller(), 1_000, LeaseKind::New, now) {
            waited += limited.retry_after;
            now = now.after(limited.retry_after);
        }
    }
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    // Then they renew every five seconds.
    for _ in 0..20_000 {
        now = now.after(Duration::from_millis(5));
        decide(&quotas, caller(), 1_000, LeaseKind::New, now).unwrap();
    }
}
