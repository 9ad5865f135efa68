//! Requests of several priorities on one resource, with the real ledger.

use http::Request;
use tower_layer::Layer as _;

use super::{real_ledger::refreshed_every, *};
use crate::{
    LimitService,
    testing::{Inner, send},
};

const HIGH: i32 = 5;
const LOW: i32 = -1;

/// A process with limits of several priorities on one resource.
struct Process {
    plane: Plane,
    doorman: Doorman,
    services: Vec<LimitService<Inner>>,
}

/// How many requests were sent at each priority, and rejected.
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

    /// Offers so many requests a second to each service, in a random order.
    async fn offer(&self, per_second: &[u32], millis: u32) -> Vec<Count> {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut counts = vec![Count::default(); per_second.len()];
        for _ in 0..millis {
            for ((service, per_second), count) in
                self.services.iter().zip(per_second).zip(&mut counts)
            {
                // Requests are independent of each other.
                let sent = (0..10).filter(|_| rng.f64() < f64::from(*per_second) / 10_000.0);
                for _ in sent {
                    count.sent += 1;
                    let answer = send(service, Request::new(())).await;
                    count.rejected += u32::from(answer.status() != 200);
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
        counts
    }
}

fn bands(plane: &Plane) -> Vec<(i32, f64)> {
    let request = plane.last_request().resources.pop().unwrap();
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
