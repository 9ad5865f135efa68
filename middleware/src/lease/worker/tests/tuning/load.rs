//! Loads: when each process sends requests.

use fastrand::Rng;

/// The limit of all loads, in requests per second.
pub(super) const CAPACITY: f64 = 1_000.0;

/// A kind of load. The sum of the rates is below the limit, except in `Overload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    /// Four processes with 200 a second each.
    Steady,
    /// 850 and 50 a second, which two processes exchange.
    Shift,
    /// Four processes with 50 a second, and 400 for a second now and then.
    Spikes,
    /// A hundred processes with 8 a second each, which walk by up to a quarter every 5 s.
    Walk,
    /// 2,700, 270 and 30 a second.
    Overload,
}

/// Requests and the times that count, in seconds.
#[derive(Debug)]
pub(super) struct Requests {
    /// In order, with the process that sends each.
    pub(super) sent: Vec<(f64, usize)>,
    pub(super) processes: usize,
    pub(super) counted_from: f64,
    pub(super) until: f64,
}

/// The first seconds, in which the leases settle.
const SETTLING: f64 = 10.0;

impl Load {
    pub(super) const ALL: [Self; 5] = [
        Self::Steady,
        Self::Shift,
        Self::Spikes,
        Self::Walk,
        Self::Overload,
    ];

    pub(super) fn requests(self, seed: u64) -> Requests {
        let mut rng = Rng::with_seed(seed);
        let (counted_from, until) = match self {
            Self::Steady | Self::Walk => (SETTLING, 40.0),
            // At a random moment between two refreshes.
            Self::Shift => {
                let shift = 16.0 + 5.0 * rng.f64();
                (shift, shift + 5.0)
            }
            Self::Spikes => (SETTLING, 50.0),
            Self::Overload => (5.0, 25.0),
        };
        let processes: Vec<Vec<(f64, f64)>> = match self {
            Self::Steady => vec![vec![(until, 200.0)]; 4],
            Self::Shift => vec![
                vec![(counted_from, 850.0), (until, 50.0)],
                vec![(counted_from, 50.0), (until, 850.0)],
            ],
            Self::Spikes => (0..4).map(|_| spikes(until, &mut rng)).collect(),
            Self::Walk => (0..100).map(|_| walk(until, &mut rng)).collect(),
            Self::Overload => [2_700.0, 270.0, 30.0]
                .map(|rate| vec![(until, rate)])
                .into(),
        };
        let mut sent = Vec::new();
        for (process, steps) in processes.iter().enumerate() {
            let times = poisson(steps, &mut rng).into_iter();
            sent.extend(times.map(|at| (at, process)));
        }
        sent.sort_by(|a, b| a.0.total_cmp(&b.0));
        Requests {
            sent,
            processes: processes.len(),
            counted_from,
            until,
        }
    }
}

fn spikes(until: f64, rng: &mut Rng) -> Vec<(f64, f64)> {
    let mut steps = Vec::new();
    let mut at = 0.0;
    while at < until {
        at += 5.0 + 10.0 * rng.f64();
        steps.push((at, 50.0));
        at += 1.0;
        steps.push((at, 400.0));
    }
    steps
}

fn walk(until: f64, rng: &mut Rng) -> Vec<(f64, f64)> {
    let mut rate: f64 = 8.0;
    let steps = (1..=(until / 5.0) as u32).map(|step| {
        rate = (rate * (0.75 + 0.5 * rng.f64())).clamp(4.0, 12.0);
        (5.0 * f64::from(step), rate)
    });
    steps.collect()
}

/// Independent requests at these rates until these times, one after the other.
fn poisson(steps: &[(f64, f64)], rng: &mut Rng) -> Vec<f64> {
    let mut times = Vec::new();
    let mut from = 0.0;
    for (until, per_second) in steps.iter().copied() {
        let mut gap = || -(1.0 - rng.f64()).ln() / per_second;
        let mut at = from + gap();
        while at < until {
            times.push(at);
            at += gap();
        }
        from = until;
    }
    times
}
