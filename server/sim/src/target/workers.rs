//! A target with workers, each of which serves one request at a time.

use fastrand::Rng;

use super::{TIMEOUT, TargetResponse, TargetResult};
use crate::scenario::Steps;

/// Serves requests in the order in which they arrive.
pub(super) struct Workers {
    workers: Steps,
    /// The longest wait, in seconds.
    queue: Option<f64>,
    /// The mean seconds of a request.
    latency: f64,
    /// The second at which each worker is free.
    free: Vec<f64>,
}

impl Workers {
    pub(super) fn new(workers: Steps, queue: Option<f64>, latency: f64) -> Self {
        Self {
            workers,
            queue,
            latency,
            free: Vec::new(),
        }
    }

    pub(super) fn request(&mut self, now: f64, rng: &mut Rng) -> TargetResponse {
        self.resize(now);
        let by_time = |a: &&mut f64, b: &&mut f64| a.total_cmp(b);
        let first = self.free.iter_mut().min_by(by_time);
        let wait = first.as_deref().map(|free| (free - now).max(0.0));
        let (Some(first), Some(wait)) = (first, wait) else {
            return match self.queue {
                Some(_) => TargetResponse::refused(),
                None => timed_out(),
            };
        };
        if self.queue.is_some_and(|longest| wait > longest) {
            return TargetResponse::refused();
        }
        if wait > TIMEOUT {
            // Given up before a worker was free.
            return timed_out();
        }
        let service = -self.latency * (1.0 - rng.f64()).ln();
        *first = now + wait + service;
        if wait + service > TIMEOUT {
            return timed_out();
        }
        TargetResponse::served(wait + service)
    }

    /// Starts and stops workers. Those that would be free last stop.
    fn resize(&mut self, now: f64) {
        let workers = self.workers.at(now) as usize;
        if workers < self.free.len() {
            self.free.sort_by(f64::total_cmp);
        }
        self.free.resize(workers, now);
    }
}

fn timed_out() -> TargetResponse {
    TargetResponse {
        result: TargetResult::TimedOut,
        ..TargetResponse::served(TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::steps;

    /// The responses to requests at this rate.
    fn responses(workers: &mut Workers, rate: f64, from: f64, to: f64) -> Vec<TargetResponse> {
        let mut rng = Rng::with_seed(7);
        let count = ((to - from) * rate) as usize;
        let times = (0..count).map(|number| from + number as f64 / rate);
        times.map(|now| workers.request(now, &mut rng)).collect()
    }

    fn share(responses: &[TargetResponse], result: TargetResult) -> f64 {
        let count = responses.iter().filter(|it| it.result == result).count();
        count as f64 / responses.len() as f64
    }

    #[test]
    fn light_load_is_served_at_once() {
        let mut workers = Workers::new(steps(&[(0.0, 20.0)]), Some(0.25), 0.05);
        let responses = responses(&mut workers, 200.0, 0.0, 20.0);
        assert_eq!(share(&responses, TargetResult::Served), 1.0);
        let mean = responses.iter().map(|it| it.after).sum::<f64>() / responses.len() as f64;
        assert!((0.045..0.055).contains(&mean), "{mean}");
    }

    #[test]
    fn overload_beyond_the_queue_is_refused() {
        // Ten workers serve 200 a second.
        let mut workers = Workers::new(steps(&[(0.0, 10.0)]), Some(0.25), 0.05);
        let responses = responses(&mut workers, 400.0, 0.0, 30.0);
        let served = share(&responses, TargetResult::Served);
        assert!((0.48..0.53).contains(&served), "{served}");
        assert_eq!(share(&responses, TargetResult::TimedOut), 0.0);
        let longest = responses.iter().map(|it| it.after).fold(0.0, f64::max);
        assert!((0.25..1.5).contains(&longest), "{longest}");
    }

    #[test]
    fn without_a_bound_of_the_queue_requests_time_out() {
        let mut workers = Workers::new(steps(&[(0.0, 10.0)]), None, 0.05);
        let responses = responses(&mut workers, 400.0, 0.0, 30.0);
        assert_eq!(share(&responses, TargetResult::Refused), 0.0);
        let timed_out = share(&responses, TargetResult::TimedOut);
        assert!(timed_out > 0.3, "{timed_out}");
        assert_eq!(responses.last().map(|it| it.after), Some(TIMEOUT));
    }

    #[test]
    fn queue_of_zero_seconds_is_a_pool() {
        let mut workers = Workers::new(steps(&[(0.0, 2.0)]), Some(0.0), 1.0);
        let responses = responses(&mut workers, 1_000.0, 0.0, 0.003);
        let results: Vec<_> = responses.iter().map(|it| it.result).collect();
        let (served, refused) = (TargetResult::Served, TargetResult::Refused);
        assert_eq!(results, [served, served, refused]);
    }

    #[test]
    fn number_of_workers_changes() {
        let numbers = steps(&[(0.0, 20.0), (10.0, 0.0), (20.0, 20.0)]);
        let mut workers = Workers::new(numbers, Some(0.25), 0.05);
        let mut served = |from, to| {
            let responses = responses(&mut workers, 200.0, from, to);
            share(&responses, TargetResult::Served)
        };
        assert_eq!(served(0.0, 10.0), 1.0);
        assert_eq!(served(10.0, 20.0), 0.0);
        assert_eq!(served(20.0, 30.0), 1.0);
    }
}
