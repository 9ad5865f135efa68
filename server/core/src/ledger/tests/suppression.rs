//! SUPPRESSION.

use doorman_openapi::Probability;
use proptest::prelude::*;

use super::*;
use crate::ledger::ResourceRecord;

fn suppression() -> World {
    World::new(document("SUPPRESSION", 100.0))
}

impl World {
    /// The probability in the response to a client with this demand.
    fn probability(&mut self, client: &str, wants: f64) -> f64 {
        let granted = self.refresh(client, wants, None);
        assert_eq!(granted.capacity.get(), 100.0, "the capacity is not divided");
        granted
            .signal
            .admission_probability()
            .map(Probability::get)
            .unwrap()
    }

    /// Two clients refresh every second with this total demand. Returns what is admitted each
    /// second.
    fn run(&mut self, wants: impl Fn(f64) -> f64, seconds: u32) -> Vec<f64> {
        let started = self.now;
        let admitted = (0..seconds).map(|_| {
            let wants = wants(self.now.seconds_since(started));
            let parts = [("a", wants / 4.0), ("b", wants * 0.75)];
            let admitted = parts.map(|(client, wants)| wants * self.probability(client, wants));
            self.wait(1.0);
            admitted.iter().sum()
        });
        admitted.collect()
    }
}

#[test]
fn burst_is_limited_within_six_seconds() {
    for begins in 0..24 {
        for deluge in [150.0, 200.0, 500.0, 1000.0, 1e6] {
            let mut world = suppression();
            let begins = f64::from(begins) / 2.0;
            let wants = |time| if time < begins { 10.0 } else { deluge };
            let admitted = world.run(wants, 60);
            for (second, admitted) in (0u32..).zip(admitted) {
                if f64::from(second) >= begins + 6.0 {
                    close(admitted, 100.0);
                }
            }
        }
    }
}

#[test]
fn demand_is_measured_before_suppression() {
    let mut world = suppression();
    let admitted = world.run(|_| 400.0, 300);
    for admitted in admitted.iter().skip(7) {
        close(*admitted, 100.0);
    }
}

#[test]
fn slight_excess_is_limited_within_24_seconds() {
    let mut world = suppression();
    let admitted = world.run(|_| 120.0, 60);
    for admitted in admitted.iter().skip(24) {
        close(*admitted, 100.0);
    }
}

#[test]
fn suppression_ends_24_seconds_after_a_burst() {
    let mut world = suppression();
    let admitted = world.run(|time| if time < 60.0 { 1000.0 } else { 50.0 }, 100);
    for admitted in admitted.iter().skip(85) {
        close(*admitted, 50.0);
    }
}

#[test]
fn expired_holders_have_no_demand() {
    let mut world = suppression();
    world.run(|_| 1000.0, 30);
    world.wait(60.0);
    assert!(world.view().is_none());
    close(world.probability("c", 50.0), 1.0);
}

#[test]
fn suppression_survives_a_clean_restart() {
    for wants in [120.0, 400.0] {
        let mut world = suppression();
        world.run(|_| wants, 30);
        let before = world.probability("a", wants / 4.0);
        let records: Vec<ResourceRecord> = world.ledger.snapshot(world.now).collect();
        let text = serde_json::to_string(&records).unwrap();

        let mut next = suppression();
        for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
            next.ledger.restore(&record, next.now).unwrap();
        }
        for admitted in next.run(|_| wants, 30) {
            assert!(before < 1.0 && (admitted - 100.0).abs() < 5.0, "{admitted}");
        }
    }
}

#[test]
fn changed_period_of_the_same_rate_changes_nothing() {
    let per = |capacity: f64, per: f64| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: {capacity}, per: {per}, \
             algorithm: {{kind: SUPPRESSION, lease_length: 20, refresh_interval: 5}}}}]"
        ))
    };
    let mut world = World::new(per(6_000.0, 60.0));
    for _ in 0..30 {
        world.refresh("a", 3_000.0, None);
        world.wait(1.0);
    }
    world.ledger.reconfigure(per(100.0, 1.0));
    let signal = world.refresh("a", 50.0, None).signal;
    assert_eq!(signal.admission_probability(), Some(Probability::ONE));
}

#[test]
fn view_shows_the_probability() {
    let mut world = suppression();
    world.run(|_| 400.0, 30);
    let view = world.view().unwrap();
    close(view.admission_probability.unwrap().get(), 0.25);
    assert_eq!(view.balance, None);
}

proptest! {
    #[test]
    fn demand_within_the_limit_is_never_suppressed(
        before in prop::collection::vec((0.0..1e4_f64, 0.0..30.0_f64), 0..10),
        within in prop::collection::vec((0.0..=100.0_f64, 0.0..10.0_f64), 1..40),
    ) {
        let mut world = suppression();
        for (wants, seconds) in before {
            world.probability("a", wants);
            world.wait(seconds.min(19.0));
        }
        let began = world.now;
        for (wants, seconds) in within {
            let probability = world.probability("a", wants);
            if world.now.seconds_since(began) >= 24.0 {
                prop_assert_eq!(probability, 1.0);
            }
            world.wait(seconds);
        }
    }

    #[test]
    fn probability_is_always_valid(
        steps in prop::collection::vec((0.0..1e15_f64, 0.0..100.0_f64), 1..40),
    ) {
        let mut world = suppression();
        for (wants, seconds) in steps {
            let probability = world.probability("a", wants);
            prop_assert!((0.0..=1.0).contains(&probability));
            world.wait(seconds);
        }
    }
}
