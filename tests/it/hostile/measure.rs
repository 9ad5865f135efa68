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

/// The intended ratio of the 99th percentiles.
pub(super) const TARGET: f64 = 1.2;

/// The least bound of a brief measurement, whose ratios vary on a busy machine.
const BRIEF_BOUND: f64 = 4.0;

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

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}

/// Compares the latency during an attack with the latency without it, and prints both. `attack`
/// calls [`Attack::wait_for_start`] once, and returns when [`Attack::is_over`].
///
/// The median ratio of the 99th percentiles must be at most `bound`. Single ratios vary, so rounds
/// are added until it is.
#[track_caller]
pub(super) fn compare(name: &str, victim: &Victim, bound: f64, attack: impl Fn(&Attack) + Sync) {
    let Effort { rounds, time } = effort();
    let bound = if is_brief() {
        bound.max(BRIEF_BOUND)
    } else {
        bound
    };
    let mut quiet = Vec::new();
    let mut attacked = Vec::new();
    let mut ratios = Vec::new();
    let mut requests = 0;
    while ratios.len() < *rounds.start()
        || (ratios.len() < *rounds.end() && median(&ratios) > bound)
    {
        let measure_quiet = || latencies(victim.at, time);
        let (without, (with, sent)) = if ratios.len() % 2 == 0 {
            let without = measure_quiet();
            (without, latencies_under_attack(victim, time, &attack))
        } else {
            let with = latencies_under_attack(victim, time, &attack);
            (measure_quiet(), with)
        };
        requests += sent;
        ratios.push(p99(&with) / p99(&without));
        quiet.extend(without);
        attacked.extend(with);
        victim.assert_memory_bounded();
    }
    let median = median(&ratios);
    print(&format!(
        "p99 of {} requests during {name}: {:.2} ms; without: {:.2} ms; median {median:.2} of \
         ratios {ratios:.2?}, at most {bound}; {:.1} hostile requests a second; \
         memory growth {} MiB\n",
        attacked.len(),
        p99(&attacked) * 1e3,
        p99(&quiet) * 1e3,
        requests as f64 / (time.as_secs_f64() * ratios.len() as f64),
        victim.memory_growth() / MIB,
    ));
    assert!(median <= bound, "{median} times the latency");
}

fn median(ratios: &[f64]) -> f64 {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Prints past the test harness, which captures the output of passing tests.
pub(super) fn print(line: &str) {
    std::io::stdout()
        .write_all(line.as_bytes())
        .expect("stdout is open");
}

/// Latencies during an attack, and how many requests the attack sent.
fn latencies_under_attack(
    victim: &Victim,
    time: Duration,
    attack: impl Fn(&Attack) + Sync,
) -> (Vec<Duration>, usize) {
    during(attack, |state| {
        let before = state.requests.load(Relaxed);
        let latencies = latencies(victim.at, time);
        (latencies, state.requests.load(Relaxed) - before)
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
        let measured = measure(&state);
        state.over.store(true, Relaxed);
        measured
    })
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
    rounds: RangeInclusive<usize>,
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
            rounds: 3..=15,
            time: Duration::from_millis(400),
        },
    }
}

/// In seconds.
fn p99(latencies: &[Duration]) -> f64 {
    let mut sorted = latencies.to_vec();
    sorted.sort();
    sorted[sorted.len() * 99 / 100].as_secs_f64()
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
