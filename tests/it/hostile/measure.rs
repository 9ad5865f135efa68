//! Latency of regular clients, with and without an attack.
//!
//! The two alternate, so that other load on the machine affects both. Real attackers use other
//! machines, so the attacking thread runs at the lowest priority. Its rate is printed.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    ops::RangeInclusive,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::{
    MIB, Victim,
    wire::{HEAD, JSON, capacity_request, connect, exchange, post},
};
use crate::support::now;

/// Regular clients, and how often each sends a request.
const CLIENTS: u32 = 4;
const PERIOD: Duration = Duration::from_millis(10);

/// Every tenth request of a client uses a new connection.
const NEW_CONNECTION: usize = 10;

/// Time before each measurement.
const WARM_UP: Duration = Duration::from_millis(200);

/// The intended ratio of the 99th percentiles.
pub(super) const TARGET: f64 = 1.2;

/// Seconds to measure for.
const SECONDS: &str = "DOORMAN_HOSTILE_SECONDS";

/// State shared with the attacking thread.
pub(super) struct Attack {
    ready: Barrier,
    over: AtomicBool,
    requests: AtomicUsize,
}

impl Attack {
    /// Waits for the measurement to begin.
    pub(super) fn wait_for_start(&self) {
        self.ready.wait();
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}

/// Compares the latency during an attack with the latency without it.
#[track_caller]
pub(super) fn compare(name: &str, victim: &Victim, bound: f64, attack: impl Fn(&Attack) + Sync) {
    let quiet = |attack: &Attack| attack.wait_for_start();
    compare_with(name, victim, bound, quiet, attack);
}

/// Compares the latency during an attack with the latency beside `quiet`, and prints both. `attack`
/// and `quiet` call [`Attack::wait_for_start`] once, and return when [`Attack::is_over`]. Returns
/// how many requests the attack sent.
///
/// Each round has a 99th percentile with the attack and one without it. The ratio of their medians
/// over all rounds must be at most `bound`: a round that other programs disturb does not count. On
/// a busy machine the medians of a few rounds vary by more than that, so while the ratio is larger,
/// rounds are added up to a maximum. An attack that does harm does so in all rounds.
#[track_caller]
pub(super) fn compare_with(
    name: &str,
    victim: &Victim,
    bound: f64,
    quiet: impl Fn(&Attack) + Sync,
    attack: impl Fn(&Attack) + Sync,
) -> usize {
    let Effort { rounds, time } = effort();
    let mut without = Vec::new();
    let mut with = Vec::new();
    let (mut measured, mut requests) = (0, 0);
    let ratio = |with: &[f64], without: &[f64]| median(with) / median(without);
    let mut round = 0;
    while round < *rounds.start() || round < *rounds.end() && ratio(&with, &without) > bound {
        // The order alternates.
        for is_attacked in [round % 2 == 1, round % 2 == 0] {
            if is_attacked {
                let (latencies, sent) = measure_during(victim, time, &attack);
                with.push(p99(&latencies));
                measured += latencies.len();
                requests += sent;
            } else {
                without.push(p99(&measure_during(victim, time, &quiet).0));
            }
        }
        round += 1;
        victim.assert_memory_bounded();
    }
    let ratio = ratio(&with, &without);
    print(&format!(
        "median p99 of {round} rounds ({measured} requests) during {name}: {:.2} ms; without: \
         {:.2} ms; ratio {ratio:.2}, at most {bound}; {:.1} hostile requests a second; memory \
         growth {} MiB\n",
        median(&with) * 1e3,
        median(&without) * 1e3,
        f64::from(u32::try_from(requests).expect("few")) / (time.as_secs_f64() * f64::from(round)),
        victim.memory_growth() / MIB,
    ));
    assert!(ratio <= bound, "{ratio} times the latency");
    requests
}

/// Prints past the test harness, which captures the output of passing tests.
pub(super) fn print(line: &str) {
    std::io::stdout()
        .write_all(line.as_bytes())
        .expect("stdout is open");
}

/// Latencies during an attack, and how many requests the attack sent.
fn measure_during(
    victim: &Victim,
    time: Duration,
    attack: impl Fn(&Attack) + Sync,
) -> (Vec<Duration>, usize) {
    during(attack, |state| {
        // The processor may have slept while the attack began.
        latencies(victim.at, WARM_UP);
        let before = state.requests();
        let latencies = latencies(victim.at, time);
        (latencies, state.requests() - before)
    })
}

/// Measures during an attack.
pub(super) fn during<T>(attack: impl Fn(&Attack) + Sync, measure: impl FnOnce(&Attack) -> T) -> T {
    let state = Attack {
        ready: Barrier::new(2),
        over: AtomicBool::new(false),
        requests: AtomicUsize::new(0),
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            lower_priority();
            attack(&state);
        });
        state.ready.wait();
        let _over = Over(&state);
        measure(&state)
    })
}

/// Ends the attack, also when the measurement panics.
struct Over<'a>(&'a Attack);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Relaxed);
    }
}

/// Gives this thread the lowest priority.
#[cfg(target_os = "linux")]
fn lower_priority() {
    // setpriority(2): Linux takes 0 for the calling thread, not for its process.
    rustix::process::setpriority_process(None, 19).expect("lowering it is always allowed");
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

/// Whether to measure briefly.
pub(super) fn is_brief() -> bool {
    std::env::var_os(SECONDS).is_none()
}

struct Effort {
    /// The number of rounds: more than the first while the ratio is too large.
    rounds: RangeInclusive<u32>,
    /// The time to measure in each with and without the attack.
    time: Duration,
}

fn effort() -> Effort {
    match std::env::var(SECONDS) {
        Ok(seconds) => Effort {
            rounds: 7..=7,
            time: Duration::from_secs(seconds.parse().expect("a number of seconds")),
        },
        Err(_) => Effort {
            rounds: 4..=40,
            time: Duration::from_secs(1),
        },
    }
}

/// In seconds.
fn p99(latencies: &[Duration]) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort();
    sorted[sorted.len() * 99 / 100].as_secs_f64()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    f64::midpoint(sorted[half], sorted[(sorted.len() - 1) / 2])
}

/// Sends one request of a regular client on a new connection.
pub(super) fn request_lease(at: SocketAddr) {
    let (status, body) = exchange(at, &post(JSON, &body()));
    assert_eq!(status, 200, "{body}");
}

/// Latencies of all requests that regular clients send during this time.
pub(super) fn latencies(at: SocketAddr, time: Duration) -> Vec<Duration> {
    let begin = now();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|n| {
                // Staggered within the period.
                let first = begin + PERIOD / CLIENTS * n;
                scope.spawn(move || renew(at, first, begin + time))
            })
            .collect();
        let each = clients.into_iter();
        each.flat_map(|it| it.join().expect("every request succeeds"))
            .collect()
    })
}

fn renew(at: SocketAddr, first: Duration, end: Duration) -> Vec<Duration> {
    let mut stream = connect(at);
    let mut latencies = Vec::new();
    let mut due = first;
    while due < end {
        let early = due.saturating_sub(now());
        thread::sleep(early);
        // A request delayed by a late response has waited since it was due. A late wake-up from
        // sleep is no latency of the server.
        let begin = if early.is_zero() { due } else { now() };
        if latencies.len() % NEW_CONNECTION == 0 {
            request_lease(at);
        } else {
            renew_once(&mut stream);
        }
        latencies.push(now().saturating_sub(begin));
        due += PERIOD;
    }
    latencies
}

fn renew_once(stream: &mut TcpStream) {
    let body = body();
    let request = format!("{HEAD}content-length: {}\r\n\r\n{body}", body.len());
    stream
        .write_all(request.as_bytes())
        .expect("the connection is open");
    let mut response = Vec::new();
    while !response.ends_with(b"}]}") {
        let mut chunk = [0; 4096];
        let len = stream.read(&mut chunk).expect("a response");
        assert!(len > 0, "the server closed the connection");
        response.extend_from_slice(&chunk[..len]);
    }
    assert!(response.starts_with(b"HTTP/1.1 200"));
}

fn body() -> String {
    capacity_request(r#"{"resource_id": "api", "wants": 1}"#)
}
