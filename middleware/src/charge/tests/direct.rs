//! Charges of a rate.

use std::pin::pin;

use doorman_openapi::{Balance, Capacity};
use futures_util::FutureExt as _;

use super::*;
use crate::{
    KeyedRate,
    lease::{SharedBalance, Sharing},
    limiter::LimiterSettings,
    testing::{Logged, poll_and_drop},
};

fn rate(tokens: f64) -> Rate {
    Rate::new(fixed(tokens), "db")
}

fn charge(rate: &Rate, estimate: f64) -> Charge {
    rate.try_charge(cost(estimate)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn refund_returns_tokens() {
    let rate = rate(10.0);
    let charge = charge(&rate, 10.0);
    assert!(rate.try_acquire(Cost::ONE).is_err());
    charge.settle(7.0);
    assert_eq!(available(&rate), 3);
}

#[tokio::test(start_paused = true)]
async fn late_charge_leaves_debt() {
    let rate = rate(10.0);
    charge(&rate, 1.0).settle(25.0);
    advance(SECOND * 3 / 2).await;
    assert_eq!(available(&rate), 0, "fifteen were owed");
    advance(SECOND / 2).await;
    assert_eq!(available(&rate), 5);
}

#[tokio::test(start_paused = true)]
async fn last_cost_counts() {
    let rate = rate(10.0);
    let charge = charge(&rate, 4.0);
    for cost in [0.0, 30.0, 10.0, 2.0] {
        charge.clone().settle(cost);
    }
    assert_eq!(available(&rate), 8);
}

#[tokio::test(start_paused = true)]
async fn dropped_charge_stays() {
    let rate = rate(10.0);
    drop(charge(&rate, 4.0));
    assert_eq!(available(&rate), 6);
}

#[tokio::test(start_paused = true)]
async fn invalid_cost_is_ignored_with_a_warning() {
    let (logged, _guard) = Logged::at(tracing::Level::WARN);
    let rate = rate(10.0);
    let charge = charge(&rate, 4.0);
    for invalid in [-1.0, f64::NAN, f64::INFINITY, 1.1e15] {
        charge.settle(invalid);
    }
    assert_eq!(available(&rate), 6);
    let lines = logged.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("limit=\"db\" cost=-1.0"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn refund_of_overflowed_tokens_is_lost() {
    let rate = rate(10.0);
    let charge = charge(&rate, 10.0);
    advance(SECOND * 4 / 5).await;
    // The bucket had room for two of them.
    assert_eq!(available(&rate), 8);
    charge.settle(0.0);
    assert_eq!(available(&rate), 2);
}

#[tokio::test(start_paused = true)]
async fn refunds_share_the_room_of_the_bucket() {
    let rate = rate(10.0);
    let charges = [5.0, 5.0].map(|estimate| charge(&rate, estimate));
    advance(SECOND * 3 / 5).await;
    assert_eq!(available(&rate), 6);
    for charge in &charges {
        charge.settle(2.0);
    }
    assert_eq!(available(&rate), 4, "six would have exceeded the bucket");
}

#[tokio::test(start_paused = true)]
async fn refund_after_longer_than_a_burst_counts_under_load() {
    let rate = rate(10.0);
    let slow = charge(&rate, 5.0);
    assert_eq!(available(&rate), 5);
    for _ in 0..50 {
        advance(SECOND / 10).await;
        drop(charge(&rate, 1.0));
    }
    slow.settle(1.0);
    assert_eq!(available(&rate), 4);
}

#[tokio::test(start_paused = true)]
async fn many_charges_lose_little_of_their_refunds() {
    let rate = rate(100.0);
    let mut charges = Vec::new();
    for _ in 0..50 {
        charges.push(charge(&rate, 2.0));
        advance(Duration::from_millis(7)).await;
    }
    let left = available(&rate);
    assert_eq!(left, 35);
    for charge in &charges {
        charge.settle(1.0);
    }
    let returned = available(&rate);
    assert!((48..=50).contains(&returned), "{returned} of 50");
}

#[tokio::test(start_paused = true)]
async fn refund_moves_waiting_requests_forward() {
    let rate = rate(10.0);
    let charge = charge(&rate, 10.0);
    let start = clock::now();
    let wait = |cost: Cost| {
        let rate = rate.clone();
        tokio::spawn(async move {
            rate.wait(cost).await.unwrap();
            clock::now().since(start).as_millis()
        })
    };
    let waiting = [wait(cost(4.0)), wait(cost(4.0))];
    run_ready().await;
    charge.settle(5.0);
    assert!(rate.try_acquire(Cost::ONE).is_err(), "they are first");
    let mut times = Vec::new();
    for waiting in waiting {
        times.push(waiting.await.unwrap());
    }
    assert_eq!(times, [0, 300]);
}

#[tokio::test(start_paused = true)]
async fn late_charge_delays_waiting_requests() {
    let rate = rate(10.0);
    let charge = charge(&rate, 10.0);
    let start = clock::now();
    let mut waiting = pin!(rate.wait(cost(5.0)));
    assert!(waiting.as_mut().now_or_never().is_none());
    advance(SECOND / 4).await;
    charge.settle(20.0);
    waiting.await.unwrap();
    assert_eq!(clock::now().since(start), SECOND * 3 / 2);
    assert_eq!(available(&rate), 0);
}

/// Two requests have their turn, and the second one is admitted first.
#[tokio::test(start_paused = true)]
async fn late_charge_delays_a_waiting_request_behind_all_admitted() {
    let rate = rate(10.0);
    let (large, small) = (charge(&rate, 8.0), charge(&rate, 2.0));
    let mut first = pin!(rate.charge(Cost::ONE));
    let mut second = pin!(rate.charge(Cost::ONE));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    large.settle(5.0);
    let _second = second.as_mut().now_or_never().unwrap().unwrap();
    small.settle(6.0);
    let start = clock::now();
    let _first = first.await.unwrap();
    assert_eq!(clock::now().seconds_since(start), 0.3, "2 were owed");
}

#[tokio::test(start_paused = true)]
async fn refund_of_forgiven_credit_returns_nothing() {
    let (registry, _nudges) = leased_registry(10);
    let settings = RateSettings::new("db").fallback(crate::Fallback::Optimistic);
    let rate = Rate::new(Arc::clone(&registry), settings);
    let charge = charge(&rate, 1_000_000.0);
    registry.publish("db", leased(10.0, HOUR));
    // One bucket of the limit of 1,000 is owed, and no more.
    charge.settle(0.0);
    assert_eq!(available(&rate), 0);
    advance(SECOND * 101).await;
    assert_eq!(available(&rate), 10);
}

#[tokio::test(start_paused = true)]
async fn shrunk_lease_bounds_the_refund() {
    let (registry, _nudges) = leased_registry(10);
    let rate = Rate::new(Arc::clone(&registry), "db");
    registry.publish("db", leased(50.0, HOUR));
    let charge = charge(&rate, 50.0);
    registry.publish("db", leased(10.0, HOUR));
    charge.settle(0.0);
    assert_eq!(available(&rate), 10);
}

#[tokio::test(start_paused = true)]
async fn shared_bucket_gets_its_refund_from_later_usage() {
    let (registry, _nudges) = leased_registry(10);
    let rate = Rate::new(Arc::clone(&registry), "db");
    let publish = |tokens, used| {
        let balance = SharedBalance {
            tokens: Balance::new(tokens).unwrap(),
            used: Capacity::new(used).unwrap(),
            received_at: clock::now(),
        };
        let LeaseState::Leased { rate, .. } = leased(10.0, HOUR) else {
            unreachable!()
        };
        let mut state = leased(rate.unwrap(), HOUR);
        if let LeaseState::Leased { sharing, .. } = &mut state {
            *sharing = Sharing::Bucket(balance);
        }
        registry.publish("db", state);
    };
    publish(10.0, 0.0);
    let charge = charge(&rate, 8.0);
    // The control plane was told of eight.
    publish(2.0, 8.0);
    charge.settle(3.0);
    assert_eq!(available(&rate), 7);
    // It still believes eight, which are used now but two.
    publish(2.0, 8.0);
    assert_eq!(available(&rate), 0, "ten of ten are used");
}

#[tokio::test(start_paused = true)]
async fn late_charge_signals_a_shortage() {
    let (registry, mut nudges) = leased_registry(10);
    let rate = Rate::new(Arc::clone(&registry), "db");
    registry.publish("db", leased(100.0, HOUR));
    nudges.try_recv().unwrap();
    let charge = charge(&rate, 1.0);
    assert!(nudges.try_recv().is_err());
    charge.settle(50.0);
    assert!(nudges.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn key_is_not_forgotten_before_its_charge() {
    let registry = fixed(10.0);
    let tenants = KeyedRate::new(Arc::clone(&registry), "tenant");
    let charge = tenants.try_charge("acme", Cost::ONE).unwrap();
    advance(HOUR).await;
    let forget = || registry.forget(registry.known("tenant/acme"));
    assert!(!forget());
    charge.settle(15.0);
    assert!(tenants.try_acquire("acme", Cost::ONE).is_err());
    drop(charge);
    assert!(forget());
}

#[tokio::test(start_paused = true)]
async fn charge_of_a_gauge_is_empty() {
    let registry = fixed(2.0);
    let gauge = crate::Gauge::new(Arc::clone(&registry), "db");
    let rate = Rate::new(Arc::clone(&registry), "db");
    let charge = charge(&rate, 1.0);
    assert!(charge.is_empty());
    charge.settle(9.0);
    let permits = [gauge.try_acquire().unwrap(), gauge.try_acquire().unwrap()];
    drop(permits);
}

#[tokio::test(start_paused = true)]
async fn canceled_charge_leaks_nothing() {
    const PAUSE: Duration = Duration::from_millis(100);
    for polls in 1.. {
        let registry = fixed(10.0);
        let settings = Arc::new(LimiterSettings::default());
        let rate = KeyedRate::new(Arc::clone(&registry), "tenant");
        rate.try_acquire("acme", cost(10.0)).unwrap();
        let ahead = rate.charge("acme", cost(2.0)).now_or_never();
        assert!(ahead.is_none());
        let charge = poll_and_drop(rate.charge("acme", cost(2.0)), polls, PAUSE, |_| {}).await;
        let completed = charge.is_some();
        drop(charge);
        advance(HOUR).await;
        assert!(
            rate.try_acquire("acme", cost(10.0)).is_ok(),
            "{polls} polls"
        );
        assert!(rate.try_acquire("acme", Cost::ONE).is_err());
        advance(HOUR).await;
        assert!(registry.forget(registry.key("tenant/acme", &settings).unwrap()));
        if completed {
            assert!(polls > 1);
            break;
        }
    }
}
