//! A limit of four per second over a hundred instances, with the real ledger.

use http::{Request, StatusCode};

use super::{
    real_ledger::{control_plane, refreshed_every},
    *,
};
/// Instances with one limit by tenant.
struct Fleet {
    instances: Vec<(Doorman, LimitService<Inner>)>,
    chance: fastrand::Rng,
}

impl Fleet {
    fn start(kind: &str, capacity: f64, instances: usize) -> Self {
        Self::of(&control_plane(kind, capacity), instances)
    }

    fn of(plane: &Plane, instances: usize) -> Self {
        Self::with(plane, instances, &Key::header("x-tenant").unwrap())
    }

    fn with(plane: &Plane, instances: usize, key: &Key) -> Self {
        // Suppression and jitter draw from the generator of this thread, which runs everything.
        fastrand::seed(7);
        let instances = (0..instances).map(|_| process(plane, Limit::rate(key.clone())));
        Self {
            instances: instances.collect(),
            chance: fastrand::Rng::with_seed(7),
        }
    }

    /// Sends evenly paced requests, each to a random instance, and returns how many were admitted.
    async fn offer(&mut self, per_second: f64, seconds: f64) -> u32 {
        let mut admitted = 0;
        for _ in 0..(per_second * seconds) as u32 {
            sleep(SECOND.div_f64(per_second)).await;
            admitted += u32::from(self.send().await);
        }
        admitted
    }

    /// Offers 900 a second. After two seconds a hundred are admitted, and `in_second` at most in
    /// the one before.
    async fn assert_flood_is_limited(&mut self, in_second: u32) {
        for second in 0..12 {
            let mut admitted = 0;
            for _ in 0..100 {
                sleep(SECOND / 100).await;
                for _ in 0..9 {
                    admitted += u32::from(self.send().await);
                }
            }
            let expected = match second {
                0 => 0..=900,
                1 => 0..=in_second,
                // A ninth of 900 draws is 100, give or take 9.
                _ => 60..=140,
            };
            assert!(
                expected.contains(&admitted),
                "{admitted} of {} instances in second {second}",
                self.instances.len()
            );
        }
    }

    /// Sends a request to a random instance and returns whether it was admitted.
    async fn send(&mut self) -> bool {
        let instance = self.chance.usize(0..self.instances.len());
        let request = Request::builder().header("x-tenant", "acme").body(());
        let (_, service) = &self.instances[instance];
        let answer = send(service, request.unwrap()).await;
        assert_ne!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        answer.status() == StatusCode::OK
    }
}

#[tokio::test(start_paused = true)]
async fn caller_within_shared_bucket_is_never_rejected() {
    let mut fleet = Fleet::start("SHARED_BUCKET", 4.0, 100);
    assert_eq!(fleet.offer(3.0, 600.0).await, 1_800);
}

#[tokio::test(start_paused = true)]
async fn caller_beyond_shared_bucket_gets_its_rate() {
    let mut fleet = Fleet::start("SHARED_BUCKET", 4.0, 100);
    fleet.offer(40.0, 60.0).await;
    let admitted = fleet.offer(40.0, 240.0).await;
    let per_second = f64::from(admitted) / 240.0;
    assert!((3.8..=4.4).contains(&per_second), "{per_second}");
}

#[tokio::test(start_paused = true)]
async fn caller_beyond_suppressed_limit_gets_its_rate() {
    let mut fleet = Fleet::start("SUPPRESSION", 4.0, 100);
    fleet.offer(40.0, 60.0).await;
    let admitted = fleet.offer(40.0, 240.0).await;
    let per_second = f64::from(admitted) / 240.0;
    // Four standard deviations of a thousand draws.
    assert!((3.5..=4.7).contains(&per_second), "{per_second}");
}

#[tokio::test(start_paused = true)]
async fn caller_within_suppressed_limit_is_never_rejected() {
    let mut fleet = Fleet::start("SUPPRESSION", 4.0, 100);
    assert_eq!(fleet.offer(3.0, 600.0).await, 1_800);
}

#[tokio::test(start_paused = true)]
async fn suppression_limits_a_flood_within_two_seconds() {
    for instances in [1, 3, 9] {
        let plane = refreshed_every(5, "SUPPRESSION", 100.0);
        let mut fleet = Fleet::of(&plane, instances);
        assert_eq!(fleet.offer(10.0, 20.0).await, 200, "within the limit");
        fleet.assert_flood_is_limited(900).await;
    }
}

#[tokio::test(start_paused = true)]
async fn new_suppressed_instances_are_limited_within_two_seconds() {
    for instances in [1, 3, 9] {
        for key in [Key::header("x-tenant").unwrap(), Key::constant("api")] {
            let plane = refreshed_every(5, "SUPPRESSION", 100.0);
            let mut fleet = Fleet::with(&plane, instances, &key);
            fleet.assert_flood_is_limited(350).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn new_instance_spends_what_a_shared_bucket_holds() {
    for idle in [0.0, 3.0, 100.0] {
        let mut fleet = Fleet::of(&refreshed_every(5, "SHARED_BUCKET", 10.0), 2);
        if idle > 0.0 {
            fleet.offer(2.0, 10.0).await;
            sleep(SECOND.mul_f64(idle)).await;
        }
        assert_eq!(fleet.offer(100_000.0, 0.000_1).await, 10, "after {idle} s");
    }
}

#[tokio::test(start_paused = true)]
async fn suppression_limits_a_flood_within_six_seconds() {
    let mut fleet = Fleet::start("SUPPRESSION", 100.0, 10);
    assert_eq!(fleet.offer(50.0, 30.0).await, 1_500, "within the limit");
    fleet.offer(1_000.0, 6.0).await;
    for _ in 0..8 {
        let per_second = f64::from(fleet.offer(1_000.0, 3.0).await) / 3.0;
        // A tenth of 3,000 draws is 300, give or take 16.
        assert!((80.0..=120.0).contains(&per_second), "{per_second}");
    }
}
