//! Bounds of what lower priorities take from higher ones.

use proptest::prelude::*;

use super::*;

const PRIORITIES: [i32; 3] = [2, 1, 0];

/// A limiter of a rate whose first limit has the priority at `first`.
fn of_priorities(first: usize) -> Limiter<'static> {
    with_bands(Unit::Rate, first)
}

fn with_bands(unit: Unit, first: usize) -> Limiter<'static> {
    let of = |priority: i32| {
        Arc::new(LimiterSettings {
            unit,
            priority: priority.into(),
            ..LimiterSettings::default()
        })
    };
    let limiter = with_settings(&of(PRIORITIES[first]));
    for priority in PRIORITIES {
        // The limits exist as long as the test.
        let other = Box::leak(Box::new(limiter.store.register(&of(priority))));
        limiter.attach(other, "other");
    }
    limiter
}

fn try_take(limiter: Limiter<'_>, band: usize, cost: f64) -> bool {
    let cost = Cost::new(cost).unwrap();
    let mut acquisition = Acquisition::new(limiter.handle(), PRIORITIES[band], cost);
    let taken = acquisition.reserve(WaitLimit::NoWait, clock::now()).is_ok();
    if taken {
        acquisition.commit();
    }
    taken
}

#[derive(Debug, Clone)]
enum Step {
    Pause(u64),
    Request { band: usize, cost: f64 },
    Keep { band: usize, tokens: f64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..400_u64).prop_map(Step::Pause),
        (0..3_usize, 0.5..6.0_f64).prop_map(|(band, cost)| Step::Request { band, cost }),
        (0..2_usize, 0.0..15.0_f64).prop_map(|(band, tokens)| Step::Keep { band, tokens }),
    ]
}

/// Runs with a paused clock.
fn run(test: impl Future<Output = Result<(), TestCaseError>>) -> Result<(), TestCaseError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

proptest! {
    #[test]
    fn lower_priority_leaves_the_reserve_or_finds_a_full_bucket(
        steps in prop::collection::vec(step(), 1..120),
        first in 0..3_usize,
        rate in 0.5..20.0_f64,
    ) {
        run(async {
            let limiter = of_priorities(first);
            limiter.publish(leased(rate, 10 * MINUTE), clock::now());
            let bands = limiter.current_bands().unwrap();
            let mut kept = [0.0; 3];
            for step in steps {
                match step {
                    Step::Pause(millis) => tokio::time::advance(Duration::from_millis(millis)).await,
                    Step::Keep { band, tokens } => {
                        kept[band] = tokens;
                        bands.iter().nth(band).unwrap().set_demand(tokens, tokens);
                    }
                    Step::Request { band, cost } => {
                        let bucket = rate.max(1.0);
                        let before = limiter.reading(clock::now()).left;
                        let is_full = before >= bucket - 1e-6;
                        let reserve: f64 = kept.iter().take(band).sum();
                        let is_taken = try_take(limiter, band, cost);
                        let after = limiter.reading(clock::now()).left;
                        if is_taken {
                            prop_assert!(is_full || after >= reserve - 1e-6, "{after} {reserve}");
                        } else {
                            prop_assert_eq!(after, before);
                            prop_assert!(!is_full, "a full bucket admits");
                            // The tokens beyond the reserve are not withheld.
                            let wanted = (cost + reserve).min(bucket);
                            prop_assert!(before < wanted + 1e-6, "{before} {wanted}");
                        }
                    }
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn units_given_back_at_once_count_in_the_peak_of_their_band() {
    let limiter = with_bands(Unit::Gauge, 0);
    limiter.publish(leased(10.0, MINUTE), clock::now());
    let bands = limiter.current_bands().unwrap();
    assert!(try_take(limiter, 2, 1.0));
    let tallies = limiter.band_tallies(&bands);
    let peaks: Vec<_> = tallies.map(|tally| tally.peak).collect();
    assert_eq!(peaks, [0.0, 0.0, 1.0]);
}

#[tokio::test(start_paused = true)]
async fn attempts_count_in_their_band() {
    let limiter = of_priorities(2);
    limiter.publish(leased(10.0, MINUTE), clock::now());
    let bands = limiter.current_bands().unwrap();
    let attempted = || {
        let tallies = limiter.band_tallies(&bands);
        tallies.map(|tally| tally.attempted).collect::<Vec<_>>()
    };
    for (band, requests) in [(0, 3), (1, 8), (2, 5)] {
        for _ in 0..requests {
            try_take(limiter, band, 1.0);
        }
    }
    assert_eq!(attempted(), [3.0, 8.0, 5.0]);
    let mut waiting = Acquisition::new(limiter.handle(), 0, Cost::ONE);
    waiting.reserve(WaitLimit::UNBOUNDED, clock::now()).unwrap();
    assert_eq!(attempted(), [3.0, 8.0, 6.0], "it waits");
    tokio::time::advance(MINUTE / 60).await;
    waiting.wait_turn(std::future::pending()).await.unwrap();
    let Some(Committed::Rate(tokens)) = waiting.commit() else {
        panic!("its tokens were taken");
    };
    assert_eq!(attempted(), [3.0, 8.0, 6.0], "it counts once");
    let mut charge = limiter.open_charge(&tokens, Cost::ONE).unwrap();
    charge.correct(4.0);
    assert_eq!(attempted(), [3.0, 8.0, 9.0]);
    charge.correct(0.5);
    assert_eq!(attempted(), [3.0, 8.0, 5.5]);
}

#[tokio::test(start_paused = true)]
async fn request_that_waited_for_its_first_lease_counts_in_its_band() {
    let limiter = of_priorities(0);
    let cost = Cost::new(3.0).unwrap();
    let mut acquisition = Acquisition::new(limiter.handle(), PRIORITIES[2], cost);
    acquisition.mark_pending();
    limiter.publish(leased(10.0, MINUTE), clock::now());
    let bands = limiter.current_bands().unwrap();
    let attempted = || {
        limiter
            .band_tallies(&bands)
            .map(|it| it.attempted)
            .collect::<Vec<_>>()
    };
    assert_eq!(attempted(), [0.0, 0.0, 3.0]);
    acquisition
        .reserve(WaitLimit::NoWait, clock::now())
        .unwrap();
    acquisition.commit().unwrap();
    assert_eq!(attempted(), [0.0, 0.0, 3.0]);
}
