//! Load that comes all of a sudden, on a process that has been quiet, with the real core: how much is refused
//! though the limit is free.

use doorman_openapi::Capacity;
use http::Request;
use tower_layer::Layer as _;

use super::{real_core::refreshed_every, *};
use crate::{
    Fallback, LimitService, OnLimit,
    testing::{Inner, send},
};

/// Nobody ever wants that much here.
const LIMIT: f64 = 10_000.0;

/// One process, its limit, and its control plane.
struct Process {
    plane: Plane,
    _doorman: Doorman,
    service: LimitService<Inner>,
}

/// What became of the load.
#[derive(Debug, Default)]
struct Onset {
    refused: usize,
    /// How many times the control plane was asked.
    asked: usize,
}

impl Process {
    async fn start(interval: u32, limit: Limit) -> Self {
        Self::of(refreshed_every(interval, "FAIR_SHARE", LIMIT), limit).await
    }

    async fn of(plane: Plane, limit: Limit) -> Self {
        let (doorman, _) = run(builder(), &plane);
        let service = doorman.layer([limit]).layer(Inner);
        doorman.ready(SECOND).await.unwrap();
        Self {
            plane,
            _doorman: doorman,
            service,
        }
    }

    /// Sends so many requests a second, evenly, each without waiting for those before it.
    async fn offer(&self, per_second: u32, seconds: u32) -> Onset {
        let before = self.plane.calls().len();
        let mut answers = Vec::new();
        for _ in 0..per_second * seconds {
            let service = self.service.clone();
            answers.push(tokio::spawn(async move {
                let answer = send(&service, Request::new(())).await;
                usize::from(answer.status() != 200)
            }));
            sleep(SECOND / per_second).await;
        }
        let mut onset = Onset {
            asked: self.plane.calls().len() - before,
            ..Onset::default()
        };
        for answer in answers {
            onset.refused += answer.await.unwrap();
        }
        onset
    }
}

async fn after_a_lull(interval: u32, load: u32) -> Onset {
    let process = Process::start(interval, Limit::rate("api")).await;
    process.offer(10, 10).await;
    sleep(60 * SECOND).await;
    process.offer(load, 5).await
}

async fn after_a_trickle(interval: u32, load: u32) -> Onset {
    let process = Process::start(interval, Limit::rate("api")).await;
    process.offer(1, 60).await;
    process.offer(load, 15).await
}

#[tokio::test(start_paused = true)]
async fn after_a_lull_the_lease_follows_the_load_in_less_than_a_second() {
    for (load, most) in [(100, 70), (1_000, 450)] {
        let onset = after_a_lull(5, load).await;
        assert!(onset.refused <= most, "{load}: {onset:?}");
        assert!(onset.asked <= 8, "{load}: {onset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_interval_delays_the_lease_no_more_than_a_short_one() {
    for interval in [60, 300] {
        let onset = after_a_lull(interval, 100).await;
        assert!(onset.refused <= 70, "{interval}: {onset:?}");
        assert!(onset.asked <= 8, "{interval}: {onset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_that_is_always_too_much_is_asked_for_as_often_as_the_interval_says() {
    let scarce = refreshed_every(60, "FAIR_SHARE", 20.0);
    let process = Process::of(scarce, Limit::rate("api")).await;
    let onset = process.offer(100, 60).await;
    assert!(onset.refused > 4_000, "{onset:?}");
    // One interval, and what is told while the load begins.
    assert!(onset.asked <= 10, "{onset:?}");
}

#[tokio::test(start_paused = true)]
async fn a_trickle_before_the_load_does_not_water_it_down() {
    for (load, most) in [(100, 200), (1_000, 800)] {
        let onset = after_a_trickle(5, load).await;
        assert!(onset.refused <= most, "{load}: {onset:?}");
        assert!(onset.asked <= 12, "{load}: {onset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_wait_for_half_a_second_is_hardly_ever_refused() {
    let at_most = SECOND / 2;
    let process = Process::start(5, Limit::rate("api").on_limit(OnLimit::Delay { at_most })).await;
    process.offer(10, 10).await;
    sleep(60 * SECOND).await;
    let onset = process.offer(100, 5).await;
    // Fewer than one in fifty.
    assert!(onset.refused < 10, "{onset:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stated_demand_does_not_grow_and_nobody_waits_for_that() {
    let limit = || Limit::rate("api").wants(Capacity::new(50.0).unwrap());
    let at_most = SECOND;
    let process = Process::start(5, limit().on_limit(OnLimit::Delay { at_most })).await;
    let start = clock::now();
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let service = process.service.clone();
        waiting.push(tokio::spawn(async move {
            let answer = send(&service, Request::new(())).await;
            (answer.status().as_u16(), clock::now().since(start))
        }));
    }
    let mut refused = Vec::new();
    for waiting in waiting {
        let (status, after) = waiting.await.unwrap();
        if status != 200 {
            refused.push((status, after));
        }
    }
    // A bucket, and what comes in a second.
    assert_eq!(refused, [(429, Duration::ZERO); 100]);
}

#[tokio::test(start_paused = true)]
async fn the_first_lease_is_asked_for_by_those_who_wait_for_it() {
    let new_key = Limit::rate(Key::template("method/{method}").unwrap())
        .fallback(Fallback::Pessimistic)
        .wait_for_lease(SECOND);
    let process = Process::start(5, new_key).await;
    let onset = process.offer(100, 5).await;
    assert!(onset.refused <= 80, "{onset:?}");
}

#[tokio::test(start_paused = true)]
async fn a_steady_load_is_not_asked_for_more_often_than_the_interval_says() {
    for load in [1, 10, 100] {
        let process = Process::start(5, Limit::rate("api")).await;
        process.offer(load, 30).await;
        let onset = process.offer(load, 60).await;
        // Twelve intervals, and what is told early as chance has it.
        assert!(onset.asked <= 24, "{load}: {onset:?}");
        assert_eq!(onset.refused, 0, "{load}: {onset:?}");
    }
}
