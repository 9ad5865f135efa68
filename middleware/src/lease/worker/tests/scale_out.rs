//! A fleet that grows tenfold and then restarts instance by instance, with the real ledger.

use http::Request;

use super::{real_ledger::with_hints, *};
const LIMIT: f64 = 1_000.0;
/// Four fifths of the limit, evenly over all instances.
const LOAD: f64 = 0.8 * LIMIT;

/// A timer is no finer than a millisecond.
const STEP: Duration = Duration::from_millis(5);

struct Fleet {
    plane: Plane,
    instances: Vec<(Doorman, LimitService<Inner>)>,
    next: usize,
}

impl Fleet {
    fn of(instances: usize) -> Self {
        let mut fleet = Self {
            plane: with_hints(1, "FAIR_SHARE", LIMIT),
            instances: Vec::new(),
            next: 0,
        };
        fleet.grow(instances);
        fleet
    }

    fn grow(&mut self, instances: usize) {
        while self.instances.len() < instances {
            let instance = self.start();
            self.instances.push(instance);
        }
    }

    fn start(&self) -> (Doorman, LimitService<Inner>) {
        process(&self.plane, Limit::rate("api"))
    }

    /// Shuts an instance down and replaces it.
    async fn restart(&mut self, instance: usize) {
        let new = self.start();
        let (old, _) = std::mem::replace(&mut self.instances[instance], new);
        old.shutdown().await.unwrap();
    }

    /// Offers the load and returns how many requests were rejected.
    async fn rejected(&mut self, seconds: f64) -> usize {
        let mut refused = 0;
        for _ in 0..(seconds / STEP.as_secs_f64()) as usize {
            sleep(STEP).await;
            for _ in 0..(LOAD * STEP.as_secs_f64()) as usize {
                self.next = (self.next + 1) % self.instances.len();
                let (_, service) = &self.instances[self.next];
                let answer = send(service, Request::new(())).await;
                refused += usize::from(answer.status() != 200);
            }
        }
        refused
    }

    /// The smallest lease of an instance.
    fn least_held(&self) -> f64 {
        let held = self.instances.iter();
        held.map(|(doorman, _)| held_of(doorman))
            .fold(LIMIT, f64::min)
    }
}

fn held_of(doorman: &Doorman) -> f64 {
    held(doorman, "api").unwrap_or(0.0)
}

#[tokio::test(start_paused = true)]
async fn growth_and_restart_of_a_fleet_reject_little() {
    let mut fleet = Fleet::of(3);
    assert_eq!(fleet.rejected(10.0).await, 0, "three, from their start");

    fleet.grow(30);
    // The three hold what the others need, and are hinted.
    let rejected = fleet.rejected(3.2).await;
    println!("{rejected} of 2,560 while it grows");
    assert!(rejected <= 250, "{rejected} of 2,560 while it grows");
    // A refresh may wait until the demand for a hint is measured.
    assert_eq!(fleet.rejected(0.4).await, 0, "thirty");
    // Less the granularity of a count, one request a second.
    let needed = LOAD / 30.0 - 1.0;
    let least = fleet.least_held();
    assert!(least >= needed, "{least} of {needed} after three refreshes");
    assert_eq!(fleet.rejected(10.0).await, 0, "thirty");

    for instance in 0..30 {
        fleet.restart(instance).await;
        let rejected = fleet.rejected(0.5).await;
        assert!(rejected <= 2, "{rejected}, restart of {instance}");
    }
    assert_eq!(fleet.rejected(3.2).await, 0, "restarted");
    let least = fleet.least_held();
    assert!(least >= needed, "{least} of {needed} after a restart");
}

#[tokio::test(start_paused = true)]
async fn newcomer_without_free_capacity_gets_429_and_soon_its_share() {
    let plane = with_hints(5, "FAIR_SHARE", 100.0);
    let start = || process(&plane, Limit::rate("api"));
    let (busy, busy_service) = start();
    let offer = async |service: &LimitService<Inner>| {
        let answer = send(service, Request::new(())).await;
        assert_ne!(answer.status(), 503);
    };
    for _ in 0..2_000 {
        sleep(STEP).await;
        offer(&busy_service).await;
    }
    let all = held_of(&busy);
    assert!(all > 99.0, "{all}");

    let (newcomer, service) = start();
    for _ in 0..200 {
        sleep(STEP).await;
        offer(&busy_service).await;
        offer(&service).await;
    }
    let share = held_of(&newcomer);
    assert!(share > 49.0, "{share}");
}
