//! The healthy beside the hostile, and without them, in turns: what else the machine does falls on both alike. The ratio of their 99th
//! percentiles is printed, not asserted: on a busy machine it says more about the machine.
//!
//! Whoever attacks comes from elsewhere, and does not take processor time from the server or from those who are measured. Here all of them
//! share a few cores, so the thread that attacks gives way to the others (on Linux, by the lowest priority there is). How much it did all
//! the same is printed.

use std::{
    io::Write,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::{MIB, Victim, healthy};

/// How the ratio should be.
const TARGET: f64 = 1.2;

/// Tells the hostile when to go on, and them when to stop.
pub(super) struct Attack {
    ready: Barrier,
    over: AtomicBool,
    blows: AtomicUsize,
}

impl Attack {
    /// From now on it counts.
    pub(super) fn is_ready(&self) {
        self.ready.wait();
    }

    /// Something was done to the server.
    pub(super) fn struck(&self) {
        self.blows.fetch_add(1, Relaxed);
    }

    /// Whether to stop.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }
}

/// Runs an attack several times beside healthy requests. It calls [`Attack::is_ready`] once, and goes on until it is over.
pub(super) fn measure(name: &str, victim: &Victim, attack: impl Fn(&Attack) + Sync) {
    let (rounds, time) = effort();
    if !is_brief() {
        say(&format!(
            "{rounds} rounds with {name} and without, of {} s each:\n",
            time.as_secs()
        ));
    }
    let mut quiet = Vec::new();
    let mut hostile = Vec::new();
    let mut ratios = Vec::new();
    let mut blows = 0;
    for round in 0..rounds {
        let alone = || healthy::measure(victim.at, time);
        let (a, b) = if round % 2 == 0 {
            let a = alone();
            (a, beside(victim, time, &attack))
        } else {
            let b = beside(victim, time, &attack);
            (alone(), b)
        };
        let (b, struck) = b;
        blows += struck;
        let ratio = p99(&b) / p99(&a);
        if !is_brief() {
            say(&format!("  {ratio:.2}\n"));
        }
        ratios.push(ratio);
        quiet.extend(a);
        hostile.extend(b);
        victim.memory_stayed_flat();
    }
    ratios.sort_by(f64::total_cmp);
    say(&format!(
        "p99 of {} healthy requests beside {name}: {:.2} ms; without: {:.2} ms; {rounds} ratios, median {:.2} [{:.2}–{:.2}], should be at most {TARGET}; {:.1} blows a second; memory at most {} MiB more\n",
        hostile.len(),
        p99(&hostile) * 1e3,
        p99(&quiet) * 1e3,
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
        blows as f64 / (time * rounds).as_secs_f64(),
        victim.grown() / MIB,
    ));
}

/// Says it past the harness, which keeps to itself what a test prints that does not fail.
fn say(line: &str) {
    std::io::stdout()
        .write_all(line.as_bytes())
        .expect("somebody reads it");
}

/// What the requests beside it took, and how often it struck meanwhile.
fn beside(
    victim: &Victim,
    time: Duration,
    attack: impl Fn(&Attack) + Sync,
) -> (Vec<Duration>, usize) {
    let state = Attack {
        ready: Barrier::new(2),
        over: AtomicBool::new(false),
        blows: AtomicUsize::new(0),
    };
    let at = victim.at;
    thread::scope(|scope| {
        scope.spawn(|| {
            give_way();
            attack(&state);
        });
        state.ready.wait();
        let before = state.blows.load(Relaxed);
        let took = healthy::measure(at, time);
        state.over.store(true, Relaxed);
        (took, state.blows.load(Relaxed) - before)
    })
}

/// From now on this thread runs when no other wants to.
#[cfg(target_os = "linux")]
fn give_way() {
    // setpriority(2): Linux takes 0 for the calling thread, not for its process.
    rustix::process::setpriority_process(None, 19).expect("to be nicer is always allowed");
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}

const SECONDS: &str = "DOORMAN_HOSTILE_SECONDS";

/// Whether it is only a brief look.
pub(super) fn is_brief() -> bool {
    std::env::var_os(SECONDS).is_none()
}

/// How many rounds, and how long each side of one is measured.
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
fn p99(took: &[Duration]) -> f64 {
    let mut sorted = took.to_vec();
    sorted.sort();
    sorted[sorted.len() * 99 / 100].as_secs_f64()
}
