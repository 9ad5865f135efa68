//! Load that moves between processes, with the real ledger and its hints.

use http::Request;

use super::{real_ledger::with_hints, *};
/// When each process sends requests, in seconds.
#[derive(Debug, Clone, Copy)]
enum Arrivals {
    Even,
    Poisson,
    /// So many at once, as of a load generator with so many connections.
    Bursts(u32),
}

use Arrivals::{Bursts, Even, Poisson};

/// Requests at these rates until these times, one after the other.
fn times(steps: &[(f64, f64)], arrivals: Arrivals, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut times = Vec::new();
    let mut from = 0.0;
    for (until, per_second) in steps.iter().copied() {
        let mut gap = || match arrivals {
            Even => 1.0 / per_second,
            Poisson => -(1.0 - random.f64()).ln() / per_second,
            Bursts(size) => f64::from(size) / per_second,
        };
        let at_once = match arrivals {
            Bursts(size) => size as usize,
            Even | Poisson => 1,
        };
        let mut at = from + gap();
        while at < until {
            times.extend(std::iter::repeat_n(at, at_once));
            at += gap();
        }
        from = until;
    }
    times
}

#[derive(Debug)]
struct Sent {
    at: f64,
    service: usize,
    status: u16,
}

/// Sends the requests of a process each and returns what became of them, in order.
async fn offer(plane: &Plane, loads: &[Vec<f64>]) -> Vec<Sent> {
    let limits = loads.iter().map(|_| Limit::rate("api"));
    offer_at(plane, limits, loads).await
}

/// The same with a limit for each process.
async fn offer_at(
    plane: &Plane,
    limits: impl IntoIterator<Item = Limit>,
    loads: &[Vec<f64>],
) -> Vec<Sent> {
    let limits = limits.into_iter();
    let services: Vec<_> = limits.map(|limit| process(plane, limit)).collect();
    let mut merged: Vec<(f64, usize)> = Vec::new();
    for (service, times) in loads.iter().enumerate() {
        merged.extend(times.iter().map(|at| (*at, service)));
    }
    merged.sort_by(|a, b| a.0.total_cmp(&b.0));
    let start = clock::now();
    let mut sent = Vec::new();
    for (at, service) in merged {
        sleep(start.after_seconds(at).since(clock::now())).await;
        let answer = send(&services[service].1, Request::new(())).await;
        sent.push(Sent {
            at,
            service,
            status: answer.status().as_u16(),
        });
    }
    sent
}

fn refused(sent: &[Sent], from: f64, until: f64) -> usize {
    let sent = sent.iter().filter(|it| it.status != 200);
    sent.filter(|it| (from..until).contains(&it.at)).count()
}

fn per_second(sent: &[Sent], from: f64, until: f64) -> Vec<usize> {
    let mut seconds = vec![0; (until - from).round() as usize];
    for it in sent.iter().filter(|it| it.status == 200) {
        if (from..until).contains(&it.at) {
            seconds[(it.at - from) as usize] += 1;
        }
    }
    seconds
}

/// Rates before and after a moment in seconds.
fn step(moment: f64, rates: &[[f64; 2]], arrivals: Arrivals, seed: u64) -> Vec<Vec<f64>> {
    let steps = rates
        .iter()
        .map(|[before, after]| [(moment, *before), (moment + 5.0, *after)]);
    (seed..)
        .zip(steps)
        .map(|(seed, steps)| times(&steps, arrivals, seed))
        .collect()
}

fn is_rejection(it: &Sent) -> bool {
    it.status == 200 || it.status == 429
}

#[tokio::test(start_paused = true)]
async fn shifted_load_is_served_before_a_bucket_is_empty() {
    let cases = [
        (1, 6.0, [[825.0, 45.0], [45.0, 825.0], [30.0, 30.0]]),
        (5, 17.0, [[850.0, 50.0], [50.0, 850.0], [0.0, 0.0]]),
    ];
    for (interval, shift, rates) in cases {
        let mut total = 0;
        for seed in 1..=6 {
            // At several moments between two refreshes.
            let shift = shift + f64::from(interval) * seed as f64 * 0.15;
            for (arrivals, most) in [(Even, 20), (Poisson, 80)] {
                begin(seed);
                let plane = with_hints(interval, "FAIR_SHARE", 1_000.0);
                let sent = offer(&plane, &step(shift, &rates, arrivals, 100 * seed)).await;
                let refused = refused(&sent, shift, shift + 5.0);
                let case = format!("refresh {interval}, {arrivals:?}, {shift}");
                println!("{case}: {refused} of 4,500 in 5 s");
                assert!(refused <= most, "{case}: {refused}");
                assert!(sent.iter().all(is_rejection), "{case}");
                total += refused;
            }
        }
        assert!(total <= 12 * 15, "{total} in all");
    }
}

#[tokio::test(start_paused = true)]
async fn load_that_moves_to_one_process_finds_the_whole_limit() {
    for seed in 1..=5 {
        let shift = 14.0 + seed as f64;
        let third = 100.0 / 3.0;
        let rates = [[third, 100.0], [third, 0.0], [third, 0.0]];
        begin(seed);
        let plane = with_hints(5, "FAIR_SHARE", 100.0);
        let sent = offer(&plane, &step(shift, &rates, Even, seed)).await;
        let seconds = per_second(&sent, shift + 0.5, shift + 4.5);
        println!("shift at {shift}: {seconds:?}");
        assert!(seconds.iter().all(|count| *count >= 95), "{seconds:?}");
    }
}

/// Noise makes demands exceed the limit now and then before the shift.
#[tokio::test(start_paused = true)]
async fn noise_before_a_shift_does_not_delay_it() {
    let third = 100.0 / 3.0;
    let rates = [[third, 100.0], [third, 0.0], [third, 0.0]];
    let mut total = 0;
    for seed in 1..=17 {
        let shift = 15.0 + 0.65 * (seed % 8) as f64;
        begin(seed);
        let plane = with_hints(5, "FAIR_SHARE", 100.0);
        let sent = offer(&plane, &step(shift, &rates, Poisson, 100 * seed)).await;
        let refused = refused(&sent, shift, shift + 5.0);
        println!("shift at {shift}: {refused} of about 500 in 5 s");
        assert!(refused <= 100, "{refused}");
        total += refused;
    }
    assert!(total <= 17 * 70, "{total}");
}

#[tokio::test(start_paused = true)]
async fn overload_leaves_nothing_unused() {
    let rates = [2_700.0, 270.0, 30.0];
    for interval in [1, 5] {
        let mut means = Vec::new();
        for (arrivals, seed) in [(Even, 0)]
            .into_iter()
            .chain((1..=6).map(|it| (Poisson, it)))
        {
            begin(seed);
            let plane = with_hints(interval, "FAIR_SHARE", 1_000.0);
            let loads = rates.map(|rate| times(&[(12.0, rate)], arrivals, seed + rate as u64));
            let sent = offer(&plane, &loads).await;
            let seconds = per_second(&sent, 0.0, 12.0);
            println!("refresh {interval}, {arrivals:?}: {seconds:?}");
            // With a bucket in the first second.
            assert!(seconds[0] <= 2_000, "{seconds:?}");
            let mean = seconds[1..].iter().sum::<usize>() / 11;
            // Under Poisson the small ones do not offer their mean every second.
            let (least, least_mean) = match arrivals {
                Even => (960, 985),
                _ => (840, 940),
            };
            assert!(seconds.iter().all(|count| *count >= least), "{seconds:?}");
            assert!((least_mean..=1_005).contains(&mean), "{seconds:?}");
            means.push(mean);
        }
        let mean = means.iter().sum::<usize>() / means.len();
        println!("refresh {interval}: {mean}");
        assert!(mean >= 970, "{means:?}");
    }
}

/// A load of 800/s in bursts of 50 that moves to another process, at ten moments between two
/// refreshes.
#[tokio::test(start_paused = true)]
async fn repeated_bursts_that_move_are_served_within_two_of_them() {
    for (interval, most) in [(1, 75), (5, 35)] {
        let mut all = Vec::new();
        for phase in 0..10 {
            let shift = 15.0 + f64::from(interval) * f64::from(phase) * 0.1;
            begin(phase as u64);
            let plane = with_hints(interval, "FAIR_SHARE", 1_000.0);
            let rates = [[800.0, 0.0], [0.0, 800.0]];
            let sent = offer(&plane, &step(shift, &rates, Bursts(50), 1)).await;
            all.push(refused(&sent, shift, shift + 5.0));
        }
        all.sort_unstable();
        println!("refresh {interval}: {all:?} of 4,000 each");
        assert!(all[8] <= most, "{all:?}");
    }
}

/// A burst looks like a rate of thousands, which in overload would be taken from others.
#[tokio::test(start_paused = true)]
async fn repeated_bursts_in_overload_take_little_from_others() {
    for interval in [1, 5] {
        for seed in 0..3 {
            begin(seed);
            let plane = with_hints(interval, "FAIR_SHARE", 1_000.0);
            let loads = [(2_700.0, Even), (250.0, Even), (50.0, Bursts(50))];
            let loads = loads.map(|(rate, arrivals)| times(&[(12.0, rate)], arrivals, seed));
            let sent = offer(&plane, &loads).await;
            let seconds = per_second(&sent, 0.0, 12.0);
            println!("refresh {interval}: {seconds:?}");
            // The first bursts are not known as such.
            let later = &seconds[3..];
            let mean = later.iter().sum::<usize>() / later.len();
            let least = *later.iter().min().unwrap();
            assert!(least >= 950 && mean >= 970, "{mean}: {seconds:?}");
        }
    }
}

/// The first one comes after a pause, to the surplus alone.
#[tokio::test(start_paused = true)]
async fn repeated_bursts_beside_an_even_load_are_admitted() {
    for interval in [1, 5] {
        for seed in 0..20 {
            begin(seed);
            let plane = with_hints(interval, "FAIR_SHARE", 1_000.0);
            let late = 0.2 * fastrand::f64();
            let burst = |second: u32| [late + f64::from(second); 40];
            let loads = [
                (12..20).flat_map(burst).collect(),
                times(&[(20.0, 850.0)], Even, seed),
            ];
            let sent = offer(&plane, &loads).await;
            let refused = refused(&sent, 1.0, 20.0);
            assert_eq!(refused, 0, "refresh {interval}, {seed}");
        }
    }
}

/// The size of a bucket that the admitted requests need at this rate.
fn bucket(sent: &[Sent], rate: f64) -> f64 {
    let (mut level, mut most, mut before) = (0.0_f64, 0.0_f64, 0.0);
    for it in sent.iter().filter(|it| it.status == 200) {
        level = (level - rate * (it.at - before)).max(0.0) + 1.0;
        (most, before) = (most.max(level), it.at);
    }
    most
}

#[tokio::test(start_paused = true)]
async fn services_that_start_together_admit_the_limit_and_a_bucket() {
    for arrivals in [Even, Poisson] {
        begin(1);
        let plane = with_hints(5, "FAIR_SHARE", 100.0);
        let loads: Vec<_> = (1..=12)
            .map(|seed| times(&[(8.0, 50.0)], arrivals, seed))
            .collect();
        let sent = offer(&plane, &loads).await;
        let seconds = per_second(&sent, 0.0, 8.0);
        let bucket = bucket(&sent, 100.0);
        println!("{arrivals:?}: {seconds:?}, a bucket of {bucket}");
        assert!(bucket <= 102.0, "{bucket}");
        assert!(seconds[2..].iter().all(|it| *it >= 90), "{seconds:?}");
    }
}

/// Figures of `docs/ALGORITHMS.md`.
#[tokio::test(start_paused = true)]
async fn algorithms_differ_for_small_shares() {
    let loads: Vec<_> = (1..=20)
        .map(|seed| times(&[(60.0, 9.0)], Poisson, seed))
        .collect();
    for (kind, most) in [
        ("FAIR_SHARE", 0.06),
        ("SHARED_BUCKET", 0.08),
        ("SUPPRESSION", 0.01),
    ] {
        begin(1);
        let plane = with_hints(5, kind, 200.0);
        let sent = offer(&plane, &loads).await;
        let part = refused(&sent, 0.0, 60.0) as f64 / sent.len() as f64;
        println!("{kind}: {:.2} % of 20 × 9/s refused", 100.0 * part);
        assert!(part <= most, "{kind}: {part}");
    }
}

/// Poisson traffic of 850/s beside the bursts exceeds the limit for moments; a few bursts then find
/// less than their size.
#[tokio::test(start_paused = true)]
async fn bursts_beside_large_loads_are_admitted() {
    for (arrivals, most) in [(Even, 0), (Poisson, 20)] {
        let mut total = 0;
        for seed in 1..=40 {
            begin(seed);
            let plane = with_hints(5, "FAIR_SHARE", 1_000.0);
            // Not at the same moment as a refresh in all runs.
            let late = 0.02 * fastrand::f64();
            let burst = |second: u32| [late + f64::from(second); 50];
            let loads = [
                (0..8).flat_map(burst).collect(),
                times(&[(8.0, 700.0)], arrivals, 10_000 + seed),
                times(&[(8.0, 150.0)], arrivals, 20_000 + seed),
            ];
            let sent = offer(&plane, &loads).await;
            let small: Vec<Sent> = sent.into_iter().filter(|it| it.service == 0).collect();
            total += refused(&small, 0.0, 8.0);
        }
        println!("{arrivals:?}: {total} of 16,000");
        assert!(total <= most, "{arrivals:?}: {total}");
    }
}

/// Two requests of a high priority in a second beside many of a low one.
#[tokio::test(start_paused = true)]
async fn seldom_requests_take_no_more_than_they_use() {
    for kind in ["PRIORITY_SHARE", "FAIR_SHARE"] {
        for interval in [1, 5] {
            for (arrivals, seed) in [(Even, 0), (Poisson, 1), (Poisson, 2), (Poisson, 3)] {
                begin(seed);
                let plane = with_hints(interval, kind, 10.0);
                let limits = [1, 0].map(|it| Limit::rate("api").priority(it));
                let load = |rate| times(&[(60.0, rate)], arrivals, seed + rate as u64);
                let sent = offer_at(&plane, limits, &[2.0, 50.0].map(load)).await;
                let used = per_second(&sent, 10.0, 60.0).iter().sum::<usize>();
                println!("{kind}, refresh {interval}, {arrivals:?} {seed}: {used} of 500");
                let least = match arrivals {
                    Even => 475,
                    _ => 430,
                };
                assert!(
                    used >= least,
                    "{kind}, {interval}, {arrivals:?} {seed}: {used}"
                );
            }
        }
    }
}
