//! Every holder admits a part of what it is asked, the same for all.

use doorman_openapi::Probability;
use proptest::prelude::*;

use super::*;
use crate::ledger::ResourceRecord;

fn suppression() -> World {
    World::new(document("SUPPRESSION", 100.0))
}

impl World {
    /// The probability that a client is told when it wants so much.
    fn probability(&mut self, client: &str, wants: f64) -> f64 {
        let granted = self.ask(client, wants, None);
        assert_eq!(granted.capacity.get(), 100.0, "nothing is split");
        granted
            .feedback
            .admission_probability()
            .map(Probability::get)
            .unwrap()
    }

    /// Two clients that want so much together, for so long, once a second; what was admitted of it, second by second.
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
fn a_deluge_is_brought_down_to_the_limit_within_six_seconds_and_held_there() {
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
fn what_is_wanted_and_not_what_is_admitted_decides() {
    let mut world = suppression();
    let admitted = world.run(|_| 400.0, 300);
    for admitted in admitted.iter().skip(7) {
        close(*admitted, 100.0);
    }
}

#[test]
fn a_little_too_much_is_brought_down_by_and_by() {
    let mut world = suppression();
    let admitted = world.run(|_| 120.0, 60);
    for admitted in admitted.iter().skip(24) {
        close(*admitted, 100.0);
    }
}

#[test]
fn after_a_deluge_everything_passes_again_within_24_seconds() {
    let mut world = suppression();
    let admitted = world.run(|time| if time < 60.0 { 1000.0 } else { 50.0 }, 100);
    for admitted in admitted.iter().skip(85) {
        close(*admitted, 50.0);
    }
}

#[test]
fn who_holds_nothing_any_more_wants_nothing() {
    let mut world = suppression();
    world.run(|_| 1000.0, 30);
    world.wait(60.0);
    assert!(world.view().is_none());
    close(world.probability("c", 50.0), 1.0);
}

#[test]
fn a_clean_restart_goes_on_suppressing() {
    for wants in [120.0, 400.0] {
        let mut world = suppression();
        world.run(|_| wants, 30);
        let before = world.probability("a", wants / 4.0);
        let records: Vec<ResourceRecord> = world.core.snapshot(world.now).collect();
        let text = serde_json::to_string(&records).unwrap();

        let mut next = suppression();
        for record in serde_json::from_str::<Vec<ResourceRecord>>(&text).unwrap() {
            next.core.restore(&record, next.now).unwrap();
        }
        for admitted in next.run(|_| wants, 30) {
            assert!(before < 1.0 && (admitted - 100.0).abs() < 5.0, "{admitted}");
        }
    }
}

#[test]
fn the_same_limit_over_another_time_changes_nothing() {
    let per = |capacity: f64, per: f64| {
        parse(&format!(
            "resources: [{{identifier_glob: db, capacity: {capacity}, per: {per}, \
             algorithm: {{kind: SUPPRESSION, lease_length: 20, refresh_interval: 5}}}}]"
        ))
    };
    let mut world = World::new(per(6_000.0, 60.0));
    for _ in 0..30 {
        world.ask("a", 3_000.0, None);
        world.wait(1.0);
    }
    world.core.reconfigure(per(100.0, 1.0));
    let told = world.ask("a", 50.0, None).feedback;
    assert_eq!(told.admission_probability(), Some(Probability::ONE));
}

#[test]
fn operators_see_the_probability() {
    let mut world = suppression();
    world.run(|_| 400.0, 30);
    let view = world.view().unwrap();
    close(view.admission_probability.unwrap().get(), 0.25);
    assert_eq!(view.balance, None);
}

proptest! {
    #[test]
    fn a_total_that_has_stayed_within_its_limit_for_24_seconds_is_never_suppressed(
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
    fn what_is_told_is_a_probability_whatever_is_wanted(
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
