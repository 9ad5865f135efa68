//! When requests are sent.

use serde::{Deserialize, Serialize};

/// Requests of one service process. Times are in seconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Load {
    /// Requests at a mean rate, sent when they are due.
    Rate {
        from: f64,
        until: f64,
        per_second: f64,
        arrivals: Arrivals,
    },
    /// `requests` at once, `times` times.
    Bursts {
        from: f64,
        every: f64,
        times: u32,
        requests: u32,
    },
    /// One direct wait after the other, from the start to the end.
    WaitLoop,
    /// One request after the other, from the start to the end.
    RequestLoop,
    /// Requests over HTTP, from the start to the end: each connection sends at an even pace, and
    /// one at a time.
    Http { connections: u32, per_second: f64 },
}

/// Distribution of the arrivals of a [`Load::Rate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Arrivals {
    Even,
    Poisson { seed: u64 },
}

impl Load {
    /// The times at which requests are due; empty for loops.
    pub(super) fn times(self) -> Vec<f64> {
        match self {
            Self::Rate {
                from,
                until,
                per_second,
                arrivals: Arrivals::Even,
            } => {
                let count = ((until - from) * per_second).round() as u64;
                let due = |index| from + index as f64 / per_second;
                (0..count).map(due).collect()
            }
            Self::Rate {
                from,
                until,
                per_second,
                arrivals: Arrivals::Poisson { seed },
            } => {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut at = from;
                let mut times = Vec::new();
                loop {
                    at -= (1.0 - random.f64()).ln() / per_second;
                    if at >= until {
                        return times;
                    }
                    times.push(at);
                }
            }
            Self::Bursts {
                from,
                every,
                times,
                requests,
            } => (0..times)
                .flat_map(|burst| {
                    let at = from + f64::from(burst) * every;
                    (0..requests).map(move |_| at)
                })
                .collect(),
            Self::WaitLoop | Self::RequestLoop | Self::Http { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_has_its_mean_in_any_distribution() {
        for (arrivals, tolerance) in [
            (Arrivals::Even, 0),
            // Six standard deviations.
            (Arrivals::Poisson { seed: 7 }, 600),
        ] {
            let load = Load::Rate {
                from: 5.0,
                until: 15.0,
                per_second: 1000.0,
                arrivals,
            };
            let times = load.times();
            assert!(times.len().abs_diff(10_000) <= tolerance, "{}", times.len());
            assert!(times.is_sorted());
            assert!(times.iter().all(|at| (5.0..15.0).contains(at)));
        }
    }

    #[test]
    fn requests_of_a_burst_are_due_at_once() {
        let bursts = Load::Bursts {
            from: 1.0,
            every: 10.0,
            times: 2,
            requests: 3,
        };
        assert_eq!(bursts.times(), [1.0, 1.0, 1.0, 11.0, 11.0, 11.0]);
    }
}
