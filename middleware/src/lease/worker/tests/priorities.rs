//! Requests of several priorities on one resource, with the real ledger.

use doorman_openapi::CapacityRequest;
use http::Request;
use tower_layer::Layer as _;

use super::{
    real_ledger::{gauge, refreshed_every},
    *,
};
use crate::{
    GaugeSettings, LimitService, OnLimit, RateSettings,
    testing::{Inner, send},
};

const HIGH: i32 = 5;
const LOW: i32 = -1;

/// A process with limits of several priorities on one resource.
struct Process {
    plane: Plane,
    doorman: Doorman,
    /// Of each limit.
    services: Vec<LimitService<Inner>>,
}

/// How many requests were sent, and rejected.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Count {
    sent: u32,
    rejected: u32,
}

impl Process {
    async fn start(plane: Plane, limits: impl IntoIterator<Item = Limit>) -> Self {
        let (doorman, _) = run(builder(), &plane);
        let services = limits.into_iter().map(|limit| {
            let layer = doorman.layer([limit]).unwrap();
            layer.layer(Inner)
        });
        let services = services.collect();
        doorman.ready(SECOND).await.unwrap();
        Self {
            plane,
            doorman,
            services,
        }
    }

    /// Two limits on a resource of 1000/s, the one with the low priority first.
    async fn of_two(kind: &str) -> Self {
        let limits = [LOW, HIGH].map(|priority| Limit::rate("db").priority(priority));
        Self::start(refreshed_every(5, kind, 1000.0), limits).await
    }

    /// Offers so many requests a second to each service, at random times.
    async fn offer(&self, per_second: &[u32], millis: u32) -> Vec<Count> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut answers: Vec<_> = per_second.iter().map(|_| Vec::new()).collect();
        for _ in 0..millis {
            let services = self.services.iter().zip(per_second);
            for ((service, per_second), answers) in services.zip(&mut answers) {
                let sent = (0..10).filter(|_| rng.f64() < f64::from(*per_second) / 10_000.0);
                answers.extend(sent.map(|_| {
                    let service = service.clone();
                    tokio::spawn(async move { send(&service, Request::new(())).await.status() })
                }));
            }
            sleep(Duration::from_millis(1)).await;
        }
        let mut counts = Vec::new();
        for answers in answers {
            let mut count = Count::default();
            for answer in answers {
                count.sent += 1;
                count.rejected += u32::from(answer.await.unwrap() != 200);
            }
            counts.push(count);
        }
        counts
    }
}

fn bands(plane: &Plane) -> Vec<(i32, f64)> {
    bands_of(plane.last_request())
}

fn bands_of(mut request: CapacityRequest) -> Vec<(i32, f64)> {
    let request = request.resources.pop().unwrap();
    let bands = request.bands.unwrap_or_default();
    bands
        .iter()
        .map(|it| (it.priority, it.wants.get()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn low_priority_is_refused_first_in_overload() {
    for kind in ["PRIORITY_SHARE", "FAIR_SHARE"] {
        let process = Process::of_two(kind).await;
        process.offer(&[700, 700], 1_000).await;
        let [low, high] = process.offer(&[700, 700], 20_000).await[..] else {
            panic!("two services")
        };
        assert!(1_000 * high.rejected <= high.sent, "{kind}: {high:?}");
        let admitted = f64::from(low.sent - low.rejected) / 20.0;
        assert!((260.0..=320.0).contains(&admitted), "{kind}: {low:?}");
        let [(HIGH, of_high), (LOW, of_low)] = bands(&process.plane)[..] else {
            panic!("{:?}", bands(&process.plane))
        };
        assert!((650.0..=750.0).contains(&of_high), "{kind}: {of_high}");
        assert!((650.0..=750.0).contains(&of_low), "{kind}: {of_low}");
    }
}

#[tokio::test(start_paused = true)]
async fn high_priority_takes_over_soon_after_it_begins() {
    let process = Process::of_two("PRIORITY_SHARE").await;
    let [low, _] = process.offer(&[2_000, 0], 20_000).await[..] else {
        panic!("two services")
    };
    let admitted = f64::from(low.sent - low.rejected) / 20.0;
    assert!(
        (950.0..=1_100.0).contains(&admitted),
        "the low one has all: {low:?}"
    );
    let begin = process.offer(&[2_000, 700], 1_000).await;
    assert!(begin[1].rejected <= 150, "{begin:?}");
    let after = process.offer(&[2_000, 700], 10_000).await;
    assert!(1_000 * after[1].rejected <= after[1].sent, "{after:?}");
    process.offer(&[2_000, 0], 5_000).await;
    let [low, _] = process.offer(&[2_000, 0], 10_000).await[..] else {
        panic!("two services")
    };
    let admitted = f64::from(low.sent - low.rejected) / 10.0;
    assert!(admitted >= 950.0, "the low one has all again: {low:?}");
    let snapshot = process.doorman.snapshot();
    let priorities = snapshot.limits[0].bands.iter().map(|it| it.priority);
    assert_eq!(priorities.collect::<Vec<_>>(), [HIGH, LOW]);
}

#[tokio::test(start_paused = true)]
async fn rare_high_request_finds_a_token_in_overload() {
    let process = Process::of_two("PRIORITY_SHARE").await;
    process.offer(&[2_000, 1], 1_500).await;
    for _ in 0..10 {
        process.offer(&[2_000, 0], 20_000).await;
        let high = &process.services[1];
        assert_eq!(send(high, Request::new(())).await.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_low_requests_take_nothing_from_higher_ones() {
    let max_delay = SECOND / 2;
    let limits = [
        Limit::rate("db")
            .priority(LOW)
            .on_limit(OnLimit::Delay { max_delay }),
        Limit::rate("db")
            .priority(0)
            .on_limit(OnLimit::Delay { max_delay }),
        Limit::rate("db").priority(HIGH),
    ];
    let process = Process::start(refreshed_every(5, "PRIORITY_SHARE", 1000.0), limits).await;
    process.offer(&[500, 500, 350], 8_000).await;
    let counts = process.offer(&[500, 500, 350], 10_000).await;
    let [low, middle, high] = counts[..] else {
        panic!("three services")
    };
    assert!(1_000 * high.rejected <= high.sent, "{counts:?}");
    assert!(100 * middle.rejected <= middle.sent, "{counts:?}");
    let admitted = f64::from(low.sent - low.rejected) / 10.0;
    assert!((120.0..=190.0).contains(&admitted), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn low_priority_of_a_gauge_is_refused_first() {
    let plane = gauge(5, 10);
    let (doorman, _) = run(builder(), &plane);
    let gauges = [HIGH, LOW].map(|it| doorman.gauge(GaugeSettings::new("tx").priority(it)));
    doorman.ready(SECOND).await.unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut held = Vec::new();
    let mut counts = [Count::default(); 2];
    for milli in 0..20_000 {
        // Each operation takes 50 ms: three at once of the high priority, and thirty of the low.
        for ((gauge, per_second), count) in gauges.iter().zip([60.0, 600.0]).zip(&mut counts) {
            if rng.f64() < per_second / 1_000.0 {
                let permit = gauge.try_acquire();
                if milli > 10_000 {
                    count.sent += 1;
                    count.rejected += u32::from(permit.is_err());
                }
                held.extend(permit.ok().map(|permit| (milli, permit)));
            }
        }
        held.retain(|(since, _)| milli - since < 50);
        sleep(Duration::from_millis(1)).await;
    }
    let [high, low] = counts;
    assert!(50 * high.rejected <= high.sent, "{counts:?}");
    assert!(low.sent - low.rejected >= 300, "{counts:?}");
    let bands = bands(&plane);
    assert!(
        matches!(bands[..], [(HIGH, of_high), (LOW, _)] if of_high <= 10.0),
        "{bands:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn new_priority_leaves_the_peaks_of_the_others() {
    let plane = gauge(5, 10);
    let (doorman, _) = run(builder(), &plane);
    let [high, low] = [HIGH, LOW].map(|it| doorman.gauge(GaugeSettings::new("tx").priority(it)));
    doorman.ready(SECOND).await.unwrap();
    drop(low.try_acquire().unwrap());
    // The worker has measured it, and next looks in a while.
    sleep(10 * SECOND).await;
    drop(high.try_acquire().unwrap());
    let _middle = doorman.gauge(GaugeSettings::new("tx").priority(0));
    let mut most: f64 = 0.0;
    for _ in 0..100 {
        sleep(SECOND / 20).await;
        let limits = doorman.snapshot().limits;
        let mut bands = limits.iter().flat_map(|limit| &limit.bands);
        let of_high = bands.find(|band| band.priority == HIGH);
        most = most.max(of_high.map_or(0.0, |band| band.wants));
    }
    assert!(most >= 1.0, "{most}");
}

#[tokio::test(start_paused = true)]
async fn bands_are_reported_in_corrected_costs() {
    let plane = refreshed_every(1, "PRIORITY_SHARE", 10_000.0);
    let (doorman, _) = run(builder(), &plane);
    let [high, low] = [HIGH, LOW].map(|it| doorman.rate(RateSettings::new("db").priority(it)));
    doorman.ready(SECOND).await.unwrap();
    assert_eq!(plane.last_request().resources[0].priority, Some(HIGH));
    for step in 0..200 {
        if let Ok(charge) = low.try_charge(Cost::ONE) {
            charge.settle(4.0);
        }
        if step >= 100 {
            high.try_acquire(Cost::new(2.0).unwrap()).ok();
        }
        sleep(SECOND / 20).await;
        if step == 99 {
            let request = plane.last_request().resources.pop().unwrap();
            assert_eq!((request.priority, request.bands), (Some(LOW), None));
        }
    }
    // A request that is sent because the limiter runs low asks for more, at the lowest priority.
    let mut bands: Vec<_> = plane.last_requests(3).into_iter().map(bands_of).collect();
    bands.sort_by(|a, b| a[1].1.total_cmp(&b[1].1));
    assert!(
        matches!(bands[1][..], [(HIGH, of_high), (LOW, of_low)]
            if (36.0..=42.0).contains(&of_high) && (68.0..=84.0).contains(&of_low)),
        "{bands:?}"
    );
}
