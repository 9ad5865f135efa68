//! Sudden load on a quiet process, with the real ledger: how much is rejected below the limit.

use doorman_openapi::Capacity;
use http::Request;

use super::{real_ledger::refreshed_every, *};
use crate::{Fallback, OnLimit};

/// More than any load here.
const LIMIT: f64 = 10_000.0;

/// A process with its limit and control plane.
struct Process {
    plane: Plane,
    _doorman: Doorman,
    service: LimitService<Inner>,
}

/// Outcome of a load.
#[derive(Debug, Default)]
struct Onset {
    rejected: usize,
    /// Requests to the control plane.
    lease_requests: usize,
}

impl Process {
    async fn start(interval: u32, limit: Limit) -> Self {
        Self::of(refreshed_every(interval, "FAIR_SHARE", LIMIT), limit).await
    }

    async fn of(plane: Plane, limit: Limit) -> Self {
        let (doorman, service) = process(&plane, limit);
        doorman.ready(SECOND).await.unwrap();
        Self {
            plane,
            _doorman: doorman,
            service,
        }
    }

    /// Sends evenly paced requests without waiting for earlier ones.
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
            lease_requests: self.plane.calls().len() - before,
            ..Onset::default()
        };
        for answer in answers {
            onset.rejected += answer.await.unwrap();
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
async fn lease_follows_load_within_a_second_after_a_lull() {
    for (load, most) in [(100, 70), (1_000, 450)] {
        let onset = after_a_lull(5, load).await;
        assert!(onset.rejected <= most, "{load}: {onset:?}");
        assert!(onset.lease_requests <= 8, "{load}: {onset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn long_interval_does_not_delay_the_lease() {
    for interval in [60, 300] {
        let onset = after_a_lull(interval, 100).await;
        assert!(onset.rejected <= 70, "{interval}: {onset:?}");
        assert!(onset.lease_requests <= 8, "{interval}: {onset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_overload_does_not_speed_up_requests() {
    let scarce = refreshed_every(60, "FAIR_SHARE", 20.0);
    let process = Process::of(scarce, Limit::rate("api")).await;
    let onset = process.offer(100, 60).await;
    assert!(onset.rejected > 4_000, "{onset:?}");
    // One interval, plus reports while the load begins.
    assert!(onset.lease_requests <= 10, "{onset:?}");
}

#[tokio::test(start_paused = true)]
async fn trickle_before_the_load_does_not_hide_it() {
    for (load, most) in [(100, 200), (1_000, 800)] {
        let onset = after_a_trickle(5, load).await;
        assert!(onset.rejected <= most, "{load}: {onset:?}");
        assert!(onset.lease_requests <= 12, "{load}: {onset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn short_delay_avoids_most_rejections() {
    let max_delay = SECOND / 2;
    let process =
        Process::start(5, Limit::rate("api").on_limit(OnLimit::Delay { max_delay })).await;
    process.offer(10, 10).await;
    sleep(60 * SECOND).await;
    let onset = process.offer(100, 5).await;
    // Less than one in fifty.
    assert!(onset.rejected < 10, "{onset:?}");
}

#[tokio::test(start_paused = true)]
async fn stated_demand_does_not_grow() {
    let limit = || Limit::rate("api").wants(Capacity::new(50.0).unwrap());
    let max_delay = SECOND;
    let process = Process::start(5, limit().on_limit(OnLimit::Delay { max_delay })).await;
    let start = clock::now();
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let service = process.service.clone();
        waiting.push(tokio::spawn(async move {
            let answer = send(&service, Request::new(())).await;
            (answer.status().as_u16(), clock::now().since(start))
        }));
    }
    let mut rejected = Vec::new();
    for waiting in waiting {
        let (status, after) = waiting.await.unwrap();
        if status != 200 {
            rejected.push((status, after));
        }
    }
    // A bucket, and the tokens of a second.
    assert_eq!(rejected, [(429, Duration::ZERO); 100]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_first_lease_reports_demand() {
    let new_key = Limit::rate(Key::template("method/{method}").unwrap())
        .fallback(Fallback::Pessimistic)
        .wait_for_lease(SECOND);
    let process = Process::start(5, new_key).await;
    let onset = process.offer(100, 5).await;
    assert!(onset.rejected <= 80, "{onset:?}");
}

#[tokio::test(start_paused = true)]
async fn steady_load_is_requested_once_per_interval() {
    for load in [1, 10, 100] {
        let process = Process::start(5, Limit::rate("api")).await;
        process.offer(load, 30).await;
        let onset = process.offer(load, 60).await;
        // Twelve intervals, plus random early reports.
        assert!(onset.lease_requests <= 24, "{load}: {onset:?}");
        assert_eq!(onset.rejected, 0, "{load}: {onset:?}");
    }
}
