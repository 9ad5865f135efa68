//! Gauges whose requests cost many units are leased like those whose requests cost one, with the
//! real ledger.

use http::{Request, StatusCode};
use tokio::runtime;

use super::{real_ledger::gauge_in_steps, *};
use crate::{LimitLayer, Permit, RequestHead};

/// Of one request.
const FACTORS: [u32; 4] = [1, 7, 100, 5_000];
/// The requests that fit at once.
const FIT: u32 = 20;

struct Process {
    _doorman: Doorman,
    limits: LimitLayer,
    granted: u32,
    rejected: u32,
}

impl Process {
    fn start(plane: &Plane, factor: u32) -> Self {
        let (doorman, _) = run(builder(), plane);
        let cost = Cost::new(factor.into()).unwrap();
        Self {
            limits: doorman.layer(Limit::gauge("tx").cost(cost)).unwrap(),
            _doorman: doorman,
            granted: 0,
            rejected: 0,
        }
    }

    fn try_admit(&mut self) -> Option<Permit> {
        let request = Request::new(());
        let permit = self.limits.try_admit(&RequestHead::of(&request)).ok();
        match permit {
            Some(_) => self.granted += 1,
            None => self.rejected += 1,
        }
        permit
    }

    /// Grants and rejections.
    fn counts(&self) -> (u32, u32) {
        (self.granted, self.rejected)
    }
}

/// Runs the same load at each factor, and returns the common result.
fn at_every_factor<T: std::fmt::Debug + PartialEq>(load: impl AsyncFn(Plane, u32) -> T) -> T {
    let results = FACTORS.map(|factor| {
        let mut runtime = runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            fastrand::seed(7);
            clock::restart();
            load(gauge_in_steps(1, FIT * factor, factor), factor).await
        })
    });
    for (factor, result) in FACTORS.iter().zip(&results) {
        assert_eq!(*result, results[0], "at {factor} units a request");
    }
    let [result, ..] = results;
    result
}

#[test]
fn slowly_growing_use_is_granted() {
    let outcome = at_every_factor(async |plane, factor| {
        let (doorman, _) = run(builder(), &plane);
        let gauge = doorman.gauge("tx");
        // The cost of a request is known from the first one on.
        drop(gauge.acquire_many(factor).await.unwrap());
        sleep(30 * SECOND).await;
        let mut permits = Vec::new();
        for _ in 0..=FIT {
            sleep(SECOND / 20).await;
            permits.push(gauge.try_acquire_many(factor).ok());
        }
        permits.iter().map(Option::is_some).collect::<Vec<_>>()
    });
    let (last, fitting) = outcome.split_last().unwrap();
    assert!(fitting.iter().all(|granted| *granted), "{fitting:?}");
    assert!(!last, "all units are in use");
}

#[test]
fn random_use_of_two_processes_has_the_same_outcomes() {
    let counts = at_every_factor(async |plane, factor| {
        let mut processes = [(); 2].map(|()| Process::start(&plane, factor));
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..3_000 {
            sleep(Duration::from_millis(random.u64(1..20))).await;
            let process = &mut processes[random.usize(..2)];
            if let Some(permit) = process.try_admit() {
                let operation = Duration::from_millis(random.u64(20..300));
                tokio::spawn(async move {
                    sleep(operation).await;
                    drop(permit);
                });
            }
        }
        processes.map(|it| it.counts())
    });
    for (granted, rejected) in counts {
        assert!(granted > 1_000 && rejected < granted / 5, "{counts:?}");
    }
}

#[test]
fn first_request_of_a_layer_finds_its_units() {
    let statuses = at_every_factor(async |plane, factor| {
        let cost = Cost::new(factor.into()).unwrap();
        let (doorman, service) = process(&plane, Limit::gauge("tx").cost(cost));
        doorman.ready(SECOND).await.unwrap();
        let leased = held(&doorman, "tx").unwrap() / f64::from(factor);
        let response = send(&service, Request::new(())).await;
        (leased, response.status())
    });
    assert_eq!(statuses, (1.0, StatusCode::OK));
}
