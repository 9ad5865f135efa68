//! Limits of several priorities on one resource.

use super::*;
use crate::limiter::Registry;

const HIGH: i32 = 5;
const LOW: i32 = -1;

fn delay() -> OnLimit {
    OnLimit::Delay { max_delay: SECOND }
}

/// A service for each priority, of which the first created the limiter.
fn services<const N: usize>(
    registry: &Arc<Registry>,
    limit: &Limit,
    priorities: [i32; N],
) -> [LimitService<Inner>; N] {
    priorities.map(|priority| limited(registry, [limit.clone().priority(priority)]))
}

/// Keeps so much for the highest priority, as the worker does.
fn keep(registry: &Registry, amount: f64) {
    let limiter = registry.known("api");
    let bands = limiter.current_bands().unwrap();
    bands.iter().next().unwrap().set_demand(amount, amount);
    limiter.wake_held_back();
}

#[tokio::test(start_paused = true)]
async fn low_priority_leaves_what_is_kept_for_higher() {
    for priorities in [[LOW, HIGH], [HIGH, LOW]] {
        let (registry, _nudges) = leased_registry(10);
        let [first, second] = &services(&registry, &Limit::rate("api"), priorities);
        registry.publish("api", leased(10.0, MINUTE));
        keep(&registry, 4.0);
        let (low, high) = match priorities[0] {
            LOW => (first, second),
            _ => (second, first),
        };
        let response = send(low, Request::new(())).await;
        assert_eq!(header(&response, "ratelimit"), r#""api";r=5;t=1"#);
        assert_eq!(admitted(low, 20).await, 5, "{priorities:?}");
        let refused = send(low, Request::new(())).await;
        assert_eq!(reason(&refused), RefusalReason::Spent);
        assert_eq!(admitted(high, 20).await, 4, "{priorities:?}");
        advance(MINUTE / 60 / 2).await;
        assert_eq!(admitted(low, 20).await, 1, "five tokens came back");
    }
}

#[tokio::test(start_paused = true)]
async fn full_bucket_admits_every_priority() {
    let (registry, _nudges) = leased_registry(10);
    let [high, low] = services(&registry, &Limit::rate("api"), [HIGH, LOW]);
    registry.publish("api", leased(10.0, MINUTE));
    keep(&registry, 50.0);
    assert_eq!(admitted(&low, 3).await, 1);
    advance(millis(100)).await;
    assert_eq!(admitted(&low, 3).await, 1);
    assert_eq!(admitted(&high, 20).await, 9);
    advance(millis(900)).await;
    assert_eq!(admitted(&low, 3).await, 0);
}

#[tokio::test(start_paused = true)]
async fn without_higher_demand_the_low_priority_has_all() {
    let (registry, _nudges) = leased_registry(10);
    let [_high, low] = services(&registry, &Limit::rate("api"), [HIGH, LOW]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(admitted(&low, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn fallback_keeps_tokens_for_higher_priorities() {
    let (registry, _nudges) = leased_registry(10);
    let [low, high] = services(&registry, &Limit::rate("api"), [LOW, HIGH]);
    registry.publish("api", no_lease(Some(SafeRate::PerSecond(10.0))));
    keep(&registry, 4.0);
    assert_eq!(admitted(&low, 20).await, 6);
    assert_eq!(admitted(&high, 20).await, 4);
    let optimistic = Limit::rate("open").fallback(Fallback::Optimistic);
    let [low, _high] = services(&registry, &optimistic, [LOW, HIGH]);
    assert_eq!(admitted(&low, 20).await, 20);
}

#[tokio::test(start_paused = true)]
async fn high_priority_passes_waiting_low_ones() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").burst(Duration::ZERO).on_limit(delay());
    let [low, middle, high] = services(&registry, &limit, [LOW, 0, HIGH]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(status(&high).await, 200);
    let start = clock::now();
    let mut waiting = Vec::new();
    for service in [&low, &low, &middle, &high, &middle, &high] {
        let service = service.clone();
        waiting.push(tokio::spawn(async move {
            let status = status(&service).await;
            (status, clock::now().since(start).as_millis())
        }));
        settle().await;
    }
    let mut outcomes = Vec::new();
    for waiting in waiting {
        outcomes.push(waiting.await.unwrap());
    }
    // The low ones are in order among themselves.
    let expected = [500, 600, 300, 100, 400, 200].map(|millis| (200, millis));
    assert_eq!(outcomes, expected);
}

#[tokio::test(start_paused = true)]
async fn newer_low_requests_wait_behind_waiting_ones() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").on_limit(delay());
    let [low, high] = services(&registry, &limit, [LOW, HIGH]);
    let hasty = limited(&registry, [Limit::rate("api").priority(LOW)]);
    registry.publish("api", leased(10.0, MINUTE));
    keep(&registry, 4.0);
    assert_eq!(admitted(&high, 10).await, 10);
    let waiting = spawn(&low);
    settle().await;
    advance(millis(200)).await;
    assert_eq!(
        status(&hasty).await,
        429,
        "two tokens, kept for higher ones"
    );
    assert_eq!(status(&high).await, 200);
    waiting.abort();
    settle().await;
    advance(SECOND).await;
    assert_eq!(status(&hasty).await, 200, "nobody waits any more");
}

#[tokio::test(start_paused = true)]
async fn hopeless_wait_of_a_low_priority_is_refused_immediately() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").on_limit(delay());
    let [low, high] = services(&registry, &limit, [LOW, HIGH]);
    registry.publish("api", leased(10.0, MINUTE));
    keep(&registry, 7.0);
    assert_eq!(admitted(&high, 10).await, 10);
    let start = clock::now();
    // Eight tokens take more than two seconds beside seven a second of others.
    assert_eq!(status(&low).await, 429);
    assert_eq!(clock::now(), start);
}

#[tokio::test(start_paused = true)]
async fn waiting_low_request_is_rejected_at_its_deadline() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").burst(Duration::ZERO).on_limit(delay());
    let [low, high] = services(&registry, &limit, [LOW, HIGH]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(status(&high).await, 200);
    let start = clock::now();
    let waiting = spawn(&low);
    settle().await;
    let ahead: Vec<_> = (0..10).map(|_| spawn(&high)).collect();
    assert_eq!(waiting.await.unwrap(), 429);
    assert_eq!(clock::now().since(start), SECOND);
    for waiting in ahead {
        assert_eq!(waiting.await.unwrap(), 200);
    }
    assert_eq!(registry.known("api").waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_low_requests_leave_the_queue_to_higher() {
    let (registry, _nudges) = leased_registry(10);
    let limit = Limit::rate("api").burst(Duration::ZERO).queue(2);
    let [low, high] = services(&registry, &limit.on_limit(delay()), [LOW, HIGH]);
    registry.publish("api", leased(10.0, MINUTE));
    assert_eq!(status(&high).await, 200);
    let first = [spawn(&low), spawn(&low)];
    settle().await;
    let refused = send(&low, Request::new(())).await;
    assert_eq!(reason(&refused), RefusalReason::QueueFull);
    let second = [spawn(&high), spawn(&high)];
    settle().await;
    let refused = send(&high, Request::new(())).await;
    assert_eq!(reason(&refused), RefusalReason::QueueFull);
    for waiting in first.into_iter().chain(second) {
        assert_eq!(waiting.await.unwrap(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn direct_waits_are_in_order_of_priority() {
    let (registry, _nudges) = leased_registry(10);
    let rate = |priority| {
        let settings = crate::RateSettings::new("api").burst(Duration::ZERO);
        crate::Rate::new(Arc::clone(&registry), settings.priority(priority))
    };
    let [low, high] = [LOW, HIGH].map(rate);
    registry.publish("api", leased(10.0, MINUTE));
    let start = clock::now();
    let wait = |rate: &crate::Rate| {
        let rate = rate.clone();
        tokio::spawn(async move {
            rate.wait(Cost::ONE).await.unwrap();
            clock::now().since(start).as_millis()
        })
    };
    let mut waits = Vec::new();
    for rate in [&low, &low, &high] {
        waits.push(wait(rate));
        settle().await;
    }
    let mut after = Vec::new();
    for wait in waits {
        after.push(wait.await.unwrap());
    }
    assert_eq!(after, [0, 200, 100]);
}

#[tokio::test(start_paused = true)]
async fn freed_unit_goes_to_the_highest_waiting_priority() {
    let (registry, _nudges) = leased_registry(10);
    let gauge = |priority| {
        let settings = crate::GaugeSettings::new("api").priority(priority);
        crate::Gauge::new(Arc::clone(&registry), settings)
    };
    let [low, high] = [LOW, HIGH].map(gauge);
    registry.publish("api", leased(2.0, MINUTE));
    let mut held = vec![low.try_acquire().unwrap(), low.try_acquire().unwrap()];
    let wait = |gauge: &crate::Gauge| {
        let gauge = gauge.clone();
        tokio::spawn(async move { gauge.acquire().await.unwrap() })
    };
    let first = wait(&low);
    settle().await;
    let second = wait(&high);
    settle().await;
    held.pop();
    settle().await;
    assert!(second.is_finished() && !first.is_finished());
    let permit = second.await.unwrap();
    assert!(low.try_acquire().is_err());
    drop(permit);
    settle().await;
    assert!(!first.is_finished(), "the higher one may need it again");
    keep(&registry, 0.0);
    settle().await;
    assert!(first.is_finished());
    drop((first.await.unwrap(), held));
    let units = registry.known("api").units_in_use().unwrap();
    assert_eq!((units.in_use, units.waiting), (0.0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn held_back_request_that_a_smaller_lease_cannot_serve_holds_up_nobody() {
    let (registry, _nudges) = leased_registry(10);
    let gauge = |priority| {
        let settings = crate::GaugeSettings::new("api").priority(priority);
        crate::Gauge::new(Arc::clone(&registry), settings)
    };
    let [low, high] = [LOW, HIGH].map(gauge);
    registry.publish("api", leased(10.0, MINUTE));
    let of_high = high.acquire_many(5).await.unwrap();
    let large = tokio::spawn({
        let low = low.clone();
        async move { low.acquire_many(8).await.map(drop) }
    });
    settle().await;
    registry.publish("api", leased(5.0, MINUTE));
    drop(of_high);
    keep(&registry, 0.0);
    settle().await;
    assert!(!large.is_finished());
    drop(low.try_acquire().unwrap());
    registry.publish("api", leased(10.0, MINUTE));
    settle().await;
    assert!(large.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn requests_that_were_held_back_count_in_the_peak_of_their_band() {
    let (registry, _nudges) = leased_registry(10);
    let [low, high] = [LOW, HIGH].map(|priority| {
        let settings = crate::GaugeSettings::new("api").priority(priority);
        crate::Gauge::new(Arc::clone(&registry), settings)
    });
    registry.publish("api", leased(10.0, MINUTE));
    // Else an idle gauge admits one of any priority.
    let of_high = high.acquire_many(1).await.unwrap();
    keep(&registry, 10.0);
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let low = low.clone();
            tokio::spawn(async move { low.acquire_many(1).await })
        })
        .collect();
    settle().await;
    keep(&registry, 0.0);
    let mut permits = Vec::new();
    for waiting in waiting {
        permits.push(waiting.await.unwrap().unwrap());
    }
    drop((permits, of_high));
    let limiter = registry.known("api");
    let bands = limiter.current_bands().unwrap();
    let peaks: Vec<_> = limiter.band_tallies(&bands).map(|it| it.peak).collect();
    assert_eq!(peaks, [1.0, 5.0]);
}

#[tokio::test(start_paused = true)]
async fn low_priority_leaves_units_that_higher_ones_need() {
    let (registry, _nudges) = leased_registry(10);
    let gauge = |priority| {
        let settings = crate::GaugeSettings::new("api").priority(priority);
        crate::Gauge::new(Arc::clone(&registry), settings)
    };
    let [low, high] = [LOW, HIGH].map(gauge);
    registry.publish("api", leased(5.0, MINUTE));
    keep(&registry, 3.0);
    let take = |gauge: &crate::Gauge| std::iter::from_fn(|| gauge.try_acquire().ok()).collect();
    let of_low: Vec<_> = take(&low);
    assert_eq!(of_low.len(), 2);
    let of_high: Vec<_> = take(&high);
    assert_eq!(of_high.len(), 3);
    drop(of_low);
    keep(&registry, 3.0);
    let of_low: Vec<_> = take(&low);
    assert_eq!(of_low.len(), 2, "the higher ones have what they need");
    drop((of_low, of_high));
    keep(&registry, 9.0);
    let of_low: Vec<_> = take(&low);
    assert_eq!(of_low.len(), 1, "one, if nothing is in use");
}
