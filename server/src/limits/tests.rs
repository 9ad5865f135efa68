use super::*;

fn limits(rate: u32, burst: u32) -> Limits {
    Limits::new(CallerLimit::Of {
        rate: rate.try_into().unwrap(),
        burst: burst.try_into().unwrap(),
    })
}

fn now() -> Moment {
    Moment::from_nanos(1)
}

fn payer() -> Option<Payer> {
    Some(Payer::of_token("issuer", "web"))
}

fn peer(address: &str) -> Option<Peer> {
    Some(Peer::new(address.parse().unwrap()))
}

fn spend_on_new_leases(limits: &Limits) {
    while limits.decisions(payer(), 1, Asks::New, now()).is_ok() {}
}

#[test]
fn a_request_costs_eight_decisions_and_each_of_its_resources_one() {
    let limits = limits(10, 100);
    drop(limits.decisions(payer(), 92, Asks::New, now()).unwrap());
    let limited = limits.decisions(payer(), 2, Asks::New, now()).unwrap_err();
    assert_eq!(limited.whose, Whose::Callers);
    assert_eq!(limited.wait, Duration::from_secs(1));
}

#[test]
fn renewals_go_on_where_new_leases_do_not() {
    let limits = limits(10, 1_000);
    spend_on_new_leases(&limits);
    for _ in 0..100 {
        drop(limits.decisions(payer(), 2, Asks::Renewal, now()).unwrap());
    }
    let limited = limits.decisions(payer(), 10, Asks::Renewal, now());
    assert!(limited.is_err());
    assert!(limits.is_read(payer(), now()).is_err());
    assert_eq!(limits.refused(Kind::Unread, Whose::Callers), 1);
}

#[test]
fn what_is_read_only_to_be_refused_costs_a_quarter() {
    let limits = limits(10, 1_000);
    spend_on_new_leases(&limits);
    let mut refused = 0;
    while limits.is_read(payer(), now()).is_ok() {
        let limited = limits.decisions(payer(), 92, Asks::New, now()).unwrap_err();
        limits.refuses(payer(), 92, Asks::New, limited, now());
        refused += 1;
    }
    assert!((40..=41).contains(&refused), "{refused}");
    assert_eq!(limits.refused(Kind::New, Whose::Callers), refused);
}

#[test]
fn no_kind_of_calls_locks_out_another_and_no_caller_another() {
    let limits = limits(10, 100_000);
    let view = || limits.operation(payer(), Operation::View, now());
    let change = || limits.operation(payer(), Operation::Change, now());
    spend_on_new_leases(&limits);
    assert!(limits.request(payer(), now()).is_err());
    for _ in 0..9 {
        change().unwrap();
    }
    for _ in 0..10 {
        view().unwrap();
    }
    assert!(view().is_err() && change().is_err());
    assert_eq!(limits.refused(Kind::Operator, Whose::Callers), 2);
    assert!(limits.unverified(payer(), now()).is_ok());

    let other = Some(Payer::of_token("issuer", "batch"));
    assert!(limits.decisions(other, 1, Asks::New, now()).is_ok());
    assert!(limits.operation(other, Operation::View, now()).is_ok());
}

#[test]
fn loopback_has_a_limit_only_where_one_is_asked_for() {
    let usual = Limits::new(CallerLimit::Usual);
    assert_eq!(usual.payer_at(peer("127.0.0.1")), None);
    assert_eq!(usual.payer_at(peer("::1")), None);
    assert!(usual.payer_at(peer("192.0.2.1")).is_some());
    assert_eq!(usual.payer_at(None), None);
    assert!(limits(1, 1).payer_at(peer("127.0.0.1")).is_some());
    let off = Limits::new(CallerLimit::Off);
    assert_eq!(off.payer_at(peer("192.0.2.1")), None);
    for _ in 0..1_000 {
        drop(off.decisions(payer(), 10_000, Asks::New, now()).unwrap());
    }
}

#[test]
fn a_server_with_too_much_to_do_refuses_new_leases_of_everybody() {
    let limits = Limits::new(CallerLimit::Off);
    let busy = limits.decisions(None, 100_000, Asks::Renewal, now());
    let limited = limits.decisions(payer(), 1, Asks::New, now()).unwrap_err();
    assert_eq!(limited.whose, Whose::Servers);
    assert!(limits.decisions(payer(), 1, Asks::Renewal, now()).is_ok());
    drop(busy);
    assert!(limits.decisions(payer(), 1, Asks::New, now()).is_ok());
}

#[test]
fn the_usual_limit_lets_a_fleet_with_one_token_renew_a_million_leases() {
    let limits = Limits::new(CallerLimit::Usual);
    // At the start all of them at once, as the layer asks: 1,000 resources in a request.
    let mut now = now();
    let mut waited = Duration::ZERO;
    for _ in 0..1_000 {
        while let Err(limited) = limits.decisions(payer(), 1_000, Asks::New, now) {
            waited += limited.wait;
            now = now.after(limited.wait);
        }
    }
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    // And every five seconds from then on.
    for _ in 0..20_000 {
        now = now.after(Duration::from_millis(5));
        drop(limits.decisions(payer(), 1_000, Asks::New, now).unwrap());
    }
}
