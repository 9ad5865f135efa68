//! A small limit over a large fleet: four a second over a hundred instances, the real core and the real client in virtual time.

use http::{Request, StatusCode};
use tower_layer::Layer as _;

use super::{real_core::control_plane, *};
use crate::{
    LimitService,
    testing::{Inner, send},
};

/// Instances that wear one limit by tenant.
struct Fleet {
    instances: Vec<(Doorman, LimitService<Inner>)>,
    chance: fastrand::Rng,
}

impl Fleet {
    fn start(kind: &str, capacity: f64, instances: usize) -> Self {
        let plane = control_plane(kind, capacity);
        let instances = (0..instances).map(|_| {
            let (doorman, _) = run(builder(), &plane);
            let tenant = Limit::rate(Key::header("x-tenant").unwrap());
            let service = doorman.layer([tenant]).layer(Inner);
            (doorman, service)
        });
        Self {
            instances: instances.collect(),
            chance: fastrand::Rng::with_seed(7),
        }
    }

    /// A caller that sends so many requests a second, evenly, each to a random instance; how many were admitted.
    async fn offer(&mut self, per_second: f64, seconds: f64) -> u32 {
        let mut admitted = 0;
        for _ in 0..(per_second * seconds) as u32 {
            sleep(SECOND.div_f64(per_second)).await;
            let instance = self.chance.usize(0..self.instances.len());
            let request = Request::builder().header("x-tenant", "acme").body(());
            let (_, service) = &self.instances[instance];
            let answer = send(service, request.unwrap()).await;
            admitted += u32::from(answer.status() == StatusCode::OK);
        }
        admitted
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_within_a_shared_bucket_is_never_refused() {
    let mut fleet = Fleet::start("SHARED_BUCKET", 4.0, 100);
    assert_eq!(fleet.offer(3.0, 600.0).await, 1_800);
}

#[tokio::test(start_paused = true)]
async fn a_caller_beyond_a_shared_bucket_gets_what_it_holds() {
    let mut fleet = Fleet::start("SHARED_BUCKET", 4.0, 100);
    fleet.offer(40.0, 60.0).await;
    let admitted = fleet.offer(40.0, 240.0).await;
    let per_second = f64::from(admitted) / 240.0;
    assert!((3.8..=4.4).contains(&per_second), "{per_second}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_beyond_a_suppressed_limit_gets_what_there_is() {
    let mut fleet = Fleet::start("SUPPRESSION", 4.0, 100);
    fleet.offer(40.0, 60.0).await;
    let admitted = fleet.offer(40.0, 240.0).await;
    let per_second = f64::from(admitted) / 240.0;
    // A thousand draws: four times as far off as chance takes them.
    assert!((3.5..=4.7).contains(&per_second), "{per_second}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_within_a_suppressed_limit_is_never_refused() {
    let mut fleet = Fleet::start("SUPPRESSION", 4.0, 100);
    assert_eq!(fleet.offer(3.0, 600.0).await, 1_800);
}

#[tokio::test(start_paused = true)]
async fn a_deluge_is_brought_down_to_a_suppressed_limit_within_six_seconds_and_held_there() {
    let mut fleet = Fleet::start("SUPPRESSION", 100.0, 10);
    assert_eq!(fleet.offer(50.0, 30.0).await, 1_500, "within the limit");
    fleet.offer(1_000.0, 6.0).await;
    for _ in 0..8 {
        let per_second = f64::from(fleet.offer(1_000.0, 3.0).await) / 3.0;
        // Chance decides on every request: a tenth of 3,000 is 300, give or take 16.
        assert!((80.0..=120.0).contains(&per_second), "{per_second}");
    }
}
