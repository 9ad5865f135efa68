//! Three processes under one limit, with shifting load.

use std::time::Duration;

use tokio::time::sleep;

use super::{plane::Plane, real_ledger::control_plane};
use crate::{Cost, Doorman, Rate};

const LIMIT: f64 = 1000.0;

struct Fleet {
    rates: Vec<Rate>,
    _handles: Vec<Doorman>,
    /// The load of each process that is not attempted yet.
    due: [f64; 3],
    plane: Plane,
}

const STEP: Duration = Duration::from_millis(1);

impl Fleet {
    fn start() -> Self {
        let plane = control_plane("FAIR_SHARE", LIMIT);
        let handles: Vec<Doorman> = (0..3)
            .map(|_| {
                let (doorman, worker) = Doorman::builder("http://a")
                    .build_with(plane.clone())
                    .unwrap();
                tokio::spawn(worker.run());
                doorman
            })
            .collect();
        Self {
            rates: handles.iter().map(|doorman| doorman.rate("api")).collect(),
            _handles: handles,
            due: [0.0; 3],
            plane,
        }
    }

    /// Offers an evenly paced load per second and returns admitted and rejected per tenth of a
    /// second.
    async fn offer(&mut self, split: [f64; 3], seconds: u32) -> Vec<(u32, u32)> {
        let mut tenths = Vec::new();
        for _ in 0..seconds * 10 {
            let (mut admitted, mut refused) = (0, 0);
            for _ in 0..100 {
                sleep(STEP).await;
                for ((rate, due), offered) in self.rates.iter().zip(&mut self.due).zip(split) {
                    *due += offered * STEP.as_secs_f64();
                    while *due >= 1.0 {
                        *due -= 1.0;
                        match rate.try_acquire(Cost::ONE) {
                            Ok(()) => admitted += 1,
                            Err(_) => refused += 1,
                        }
                    }
                }
            }
            tenths.push((admitted, refused));
        }
        tenths
    }
}

/// Admitted requests per second, over every ten seconds after the first five.
fn averages(tenths: &[(u32, u32)]) -> Vec<f64> {
    tenths[50..]
        .windows(100)
        .map(|window| {
            window
                .iter()
                .map(|(admitted, _)| f64::from(*admitted))
                .sum::<f64>()
                / 10.0
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn fleet_admits_the_limit_under_shifting_load() {
    let mut fleet = Fleet::start();
    let even = [1000.0, 1000.0, 1000.0];
    let uneven = [2700.0, 270.0, 30.0];
    let turned = [30.0, 2700.0, 270.0];
    for split in [even, uneven, even, turned, uneven] {
        for (tenth, average) in averages(&fleet.offer(split, 25).await).iter().enumerate() {
            assert!(
                (950.0..=1010.0).contains(average),
                "{split:?}: {average} a second from {} s on",
                5.0 + tenth as f64 / 10.0
            );
        }
    }
    let calls = fleet.plane.calls().len();
    assert!(calls < 3 * 125 * 4, "{calls}: early requests are rare");
}

#[tokio::test(start_paused = true)]
async fn fleet_rejects_almost_nothing_below_the_limit() {
    let mut fleet = Fleet::start();
    for split in [
        [720.0, 135.0, 45.0],
        [45.0, 720.0, 135.0],
        [300.0, 300.0, 300.0],
    ] {
        let tenths = fleet.offer(split, 30).await;
        let (admitted, refused) = tenths[50..]
            .iter()
            .fold((0, 0), |(a, r), (admitted, refused)| {
                (a + admitted, r + refused)
            });
        assert!(
            refused * 1000 <= admitted + refused,
            "{split:?}: {refused} of {}",
            admitted + refused
        );
    }
}
