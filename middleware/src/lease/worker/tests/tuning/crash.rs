//! Crashes: what they cost the processes that take the place of the crashed ones.

use std::{env, fs};

use doorman_openapi::CLOCK_DRIFT;
use tokio::{task::JoinHandle, time::sleep};

use super::{
    super::{builder, real_ledger::Server, run},
    Setting,
    page::splice,
    runs::{document, simulate},
};
use crate::{Cost, Doorman, Rate, clock};

/// The limit in requests per second.
const CAPACITY: f64 = 300.0;
/// When the first process crashes, at the earliest.
const CRASH: f64 = 15.0;
/// A process is back so many seconds after its crash.
const BACK: f64 = 1.0;
/// The requests of so many seconds from the crash on are counted.
const COUNTED: f64 = 60.0;
/// Runs, whose crashes are at other moments between two refreshes.
const RUNS: u64 = 10;

/// Crashes of the first of several processes with the same demand.
#[derive(Debug, Clone, Copy)]
struct Crash {
    processes: usize,
    /// The part of the limit that they demand together.
    demand: f64,
    /// It crashes again and again, after so many seconds.
    every: f64,
    /// Whether the processes name the instance that they are.
    is_named: bool,
}

/// The parts of requests that were rejected.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Refused {
    by_successor: f64,
    by_all: f64,
}

struct Process {
    rate: Rate,
    _doorman: Doorman,
    worker: JoinHandle<()>,
    next: f64,
}

impl Process {
    fn start(server: &Server, index: usize, is_named: bool) -> Self {
        let mut builder = builder();
        if is_named {
            builder = builder.instance(format!("pod-{index}"));
        }
        let (doorman, worker) = run(builder, &server.plane);
        Self {
            rate: doorman.rate("api"),
            _doorman: doorman,
            worker,
            next: 0.0,
        }
    }
}

impl Crash {
    fn run(self, setting: &Setting, seed: u64) -> Refused {
        let phase = f64::from(setting.refresh_interval) * seed as f64 / RUNS as f64;
        let first = CRASH + phase;
        simulate(setting, seed, |ledger| async move {
            let server = Server::start(document(setting, CAPACITY), ledger);
            let start = |index| Process::start(&server, index, self.is_named);
            let mut processes: Vec<_> = (0..self.processes).map(start).collect();
            let pace = self.processes as f64 / (self.demand * CAPACITY);
            let (mut crash, mut back) = (first, f64::INFINITY);
            let (mut sent, mut refused) = ([0.0; 2], [0.0; 2]);
            let began = clock::now();
            loop {
                let nexts = processes.iter().map(|it| it.next).enumerate();
                let (index, at) = nexts.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
                let at = at.min(crash).min(back);
                if at >= first + COUNTED {
                    break;
                }
                sleep(began.after_seconds(at).since(clock::now())).await;
                if at == crash {
                    processes[0].worker.abort();
                    (crash, back) = (crash + self.every, crash + BACK);
                    processes[0].next = back;
                    continue;
                }
                if at == back {
                    processes[0] = start(0);
                    processes[0].next = back;
                    back = f64::INFINITY;
                    continue;
                }
                let process = &mut processes[index];
                process.next += pace;
                let is_refused = process.rate.try_acquire(Cost::ONE).is_err();
                if at >= first {
                    let group = usize::from(index > 0);
                    sent[group] += 1.0;
                    refused[group] += f64::from(u8::from(is_refused));
                }
            }
            Refused {
                by_successor: refused[0] / sent[0],
                by_all: (refused[0] + refused[1]) / (sent[0] + sent[1]),
            }
        })
    }

    /// The ninth of ten runs, from the best one on.
    fn ninth(self, setting: &Setting) -> Refused {
        let runs = (0..RUNS).map(|seed| self.run(setting, seed));
        let runs: Vec<_> = runs.collect();
        let ninth = |part: fn(&Refused) -> f64| {
            let mut parts: Vec<_> = runs.iter().map(part).collect();
            parts.sort_by(f64::total_cmp);
            parts[parts.len() * 9 / 10 - 1]
        };
        Refused {
            by_successor: ninth(|it| it.by_successor),
            by_all: ninth(|it| it.by_all),
        }
    }
}

fn rows() -> Vec<(String, Crash)> {
    let crash = |processes, demand, every| Crash {
        processes,
        demand,
        every,
        is_named: false,
    };
    let mut rows = Vec::new();
    for processes in [1, 3, 30] {
        for demand in [0.5, 0.8, 0.95] {
            let label = format!("{processes} at {} %", demand * 100.0);
            rows.push((label, crash(processes, demand, f64::INFINITY)));
        }
    }
    for processes in [1, 3] {
        let label = format!("{processes} at 50 %, a crash every 10 s");
        rows.push((label, crash(processes, 0.5, 10.0)));
    }
    rows
}

fn table() -> String {
    let mut text = "| processes and demand | new process, no name | new process, named | all, no name | all, named |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for (label, crash) in rows() {
        let [unnamed, named] = [false, true].map(|is_named| {
            let crash = Crash { is_named, ..crash };
            crash.ninth(&Setting::DEFAULT)
        });
        let cells = [
            unnamed.by_successor,
            named.by_successor,
            unnamed.by_all,
            named.by_all,
        ];
        let cells = cells.map(|part| format!("{:.1}", 100.0 * part));
        text += &format!("| {label} | {} |\n", cells.join(" | "));
        println!("| {label} | {} |", cells.join(" | "));
    }
    text
}

/// The costs of shorter leases, and the time until capacity is free.
fn lengths() -> String {
    let mut text = "| `lease_length` | 1 at 50 %, no name | 3 at 80 %, no name | leases of dead \
                    clients last | outage that costs nothing | learning after a crash |\n\
                    |---|---|---|---|---|---|\n"
        .to_owned();
    for lease_length in [10, 15, 30, 60] {
        let setting = Setting {
            lease_length,
            ..Setting::DEFAULT
        };
        let refused = [(1, 0.5), (3, 0.8)].map(|(processes, demand)| {
            let crash = Crash {
                processes,
                demand,
                every: f64::INFINITY,
                is_named: false,
            };
            format!("{:.1} %", 100.0 * crash.ninth(&setting).by_all)
        });
        let length = f64::from(lease_length);
        let mut cells = refused.to_vec();
        cells.extend([
            format!("{:.0} s", length * CLOCK_DRIFT),
            format!("{:.0} s", length - f64::from(setting.refresh_interval)),
            format!("{:.0} s", length * CLOCK_DRIFT),
        ]);
        let mark = if setting == Setting::DEFAULT {
            "**"
        } else {
            ""
        };
        text += &format!("| {mark}{lease_length} s{mark} | {} |\n", cells.join(" | "));
    }
    println!("{text}");
    text
}

/// Compares the tables with the page, or writes them there if `DOORMAN_UPDATE` is set.
pub(super) fn check_or_update() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ALGORITHMS.md");
    let page = fs::read_to_string(path).unwrap();
    let updated = splice(&page, "crashes", &table());
    let updated = splice(&updated, "lease-lengths", &lengths());
    if env::var_os("DOORMAN_UPDATE").is_some() {
        fs::write(path, updated).unwrap();
    } else {
        assert!(updated == page, "{path} is outdated: run tests/tuning");
    }
}

/// A successor without a name, which waits for the end of the lease, loses much more.
pub(super) fn check_promises() {
    for (processes, demand, most, least_unnamed) in [(1, 0.5, 0.01, 0.05), (3, 0.8, 0.03, 0.05)] {
        for is_named in [true, false] {
            let crash = Crash {
                processes,
                demand,
                every: f64::INFINITY,
                is_named,
            };
            let refused = crash.ninth(&Setting::DEFAULT);
            let part = if processes == 1 {
                refused.by_successor
            } else {
                refused.by_all
            };
            let is_right = if is_named {
                part <= most
            } else {
                part >= least_unnamed
            };
            assert!(is_right, "{crash:?}: {refused:?}");
        }
    }
}
