//! Latency of regular clients, with and without an attack.
//!
//! The two alternate, so that other load on the machine affects both. The ratio of their 99th
//! percentiles is printed, not asserted: a busy machine distorts it. Real attackers use other
//! machines, so the attacking thread runs at the lowest priority. Its rate is printed too.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
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
const TARGET: f64 = 1.2;

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
pub(super) fn compare(name: &str, victim: &Victim, attack: impl Fn(&Attack) + Sync) {
    let (rounds, time) = effort();
    if !is_brief() {
        print(&format!(
            "{rounds} rounds with {name} and without, of {} s each:\n",
            time.as_secs()
        ));
    }
    let mut quiet = Vec::new();
    let mut attacked = Vec::new();
    let mut ratios = Vec::new();
    let mut requests = 0;
    for round in 0..rounds {
        let measure_quiet = || latencies(victim.at, time);
        let (without, (with, sent)) = if round % 2 == 0 {
            let without = measure_quiet();
            (without, latencies_under_attack(victim, time, &attack))
        } else {
            let with = latencies_under_attack(victim, time, &attack);
            (measure_quiet(), with)
        };
        requests += sent;
        let ratio = p99(&with) / p99(&without);
        if !is_brief() {
            print(&format!("  {ratio:.2}\n"));
        }
        ratios.push(ratio);
        quiet.extend(without);
        attacked.extend(with);
        victim.assert_memory_bounded();
    }
    ratios.sort_by(f64::total_cmp);
    print(&format!(
        "p99 of {} requests during {name}: {:.2} ms; without: {:.2} ms; {rounds} ratios, \
         median {:.2} [{:.2}–{:.2}], target {TARGET}; {:.1} hostile requests a second; \
         memory growth {} MiB\n",
        attacked.len(),
        p99(&attacked) * 1e3,
        p99(&quiet) * 1e3,
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        requests as f64 / (time * rounds).as_secs_f64(),
        victim.memory_growth() / MIB,
    ));
}

/// Prints past the test harness, which captures the output of passing tests.
fn print(line: &str) {
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
    let state = Attack {
        ready: Barrier::new(2),
        over: AtomicBool::new(false),
        requests: AtomicUsize::new(0),
    };
    let at = victim.at;
    thread::scope(|scope| {
        scope.spawn(|| {
            lower_priority();
            attack(&state);
        });
        state.ready.wait();
        let before = state.requests.load(Relaxed);
        let latencies = latencies(at, time);
        state.over.store(true, Relaxed);
        (latencies, state.requests.load(Relaxed) - before)
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

/// The number of rounds, and the time to measure in each with and without the attack.
fn effort() -> (u32, Duration) {
    match std::env::var(SECONDS) {
        Ok(seconds) => {
            let seconds = seconds.parse().expect("a number of seconds");
            (7, Duration::from_secs(seconds))
        }
        Err(_) => (1, Duration::from_millis(500)),
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
