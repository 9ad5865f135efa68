//! Fail-over among three servers, again and again.

use std::{env, time::Duration};

use super::{Case, DEFAULTS, Measured, arrivals, document, outcomes};
use crate::situations::{
    Error, Outcome, Programs,
    load::Load,
    node::Node,
    now,
    plan::{Plan, Report},
    process::{Process, sleep_until},
    traffic::Traffic,
};

/// The number of rounds, if not the default.
const ROUNDS: &str = "DOORMAN_FAILOVER_ROUNDS";
const DEFAULT_ROUNDS: u32 = 3;
/// The first round begins after this time, in seconds.
const BEGIN: f64 = 12.0;
const LIMIT: f64 = 1000.0;
/// The services of each case.
const SERVICES: u8 = 3;
/// The time in which admitted requests are counted, in seconds.
const WINDOW: f64 = 10.0;

/// A way to stop the master.
struct Stop {
    /// The refresh interval and the lease length, in seconds.
    intervals: (f64, f64),
    /// The time between rounds, in seconds.
    interval: f64,
    target: Target,
    /// Begins to stop a server.
    begin: fn(Process) -> Result<Option<Process>, Error>,
}

#[derive(Clone, Copy)]
struct Target {
    /// The longest time without a master, in seconds.
    longest: f64,
    /// Whether the next master may learn.
    learns: bool,
}

/// The default time to live of an election lease, and a second.
const ELECTION: Target = Target {
    longest: 6.0,
    learns: true,
};

pub(super) fn killed(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    // The next master has learned all leases before the next round.
    kill(programs, (5.0, 25.0), 36.0)
}

pub(super) fn killed_while_learning(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    kill(programs, DEFAULTS, 12.0)
}

fn kill(programs: &Programs, intervals: (f64, f64), interval: f64) -> Result<Vec<Outcome>, Error> {
    let stop = Stop {
        intervals,
        interval,
        target: ELECTION,
        // Dropped processes are killed.
        begin: |process| {
            drop(process);
            Ok(None)
        },
    };
    measure(programs, &stop)
}

pub(super) fn stopped(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    let stop = Stop {
        intervals: DEFAULTS,
        interval: 6.0,
        target: Target {
            longest: 1.0,
            learns: false,
        },
        begin: |process| {
            process.terminate()?;
            Ok(Some(process))
        },
    };
    measure(programs, &stop)
}

/// A change of the master.
struct Round {
    /// Seconds until the next master granted a lease.
    seconds: f64,
    /// Seconds that it learned, from then on.
    learning: f64,
}

fn measure(programs: &Programs, stop: &Stop) -> Result<Vec<Outcome>, Error> {
    let rounds = match env::var(ROUNDS) {
        Ok(text) => text.parse().map_err(|error| format!("{ROUNDS}: {error}"))?,
        Err(_) => DEFAULT_ROUNDS,
    };
    let ends = BEGIN + f64::from(rounds) * stop.interval + WINDOW;
    let mut changes = Vec::new();
    let mut outcomes = run(programs, stop.intervals, ends, |node, start| {
        for round in 0..rounds {
            sleep_until(start, BEGIN + f64::from(round) * stop.interval)?;
            changes.push(change_master(node, stop)?);
        }
        Ok(())
    })?;
    outcomes.insert(0, evaluate_changes(&changes, stop.target));
    Ok(outcomes)
}

/// etcd does not answer for a minute, and holders keep their leases of a minute.
pub(super) fn etcd_paused(programs: &Programs) -> Result<Vec<Outcome>, Error> {
    const OUTAGE: f64 = 60.0;
    let mut change = None;
    let ends = BEGIN + OUTAGE + 2.0 * WINDOW;
    let mut outcomes = run(programs, DEFAULTS, ends, |node, start| {
        sleep_until(start, BEGIN)?;
        let master = node.master_after(0)?;
        node.etcd().pause()?;
        sleep_until(start, BEGIN + OUTAGE)?;
        node.etcd().resume()?;
        let begin = now();
        let next = node.master_after(master.epoch)?;
        change = Some(Round {
            seconds: now().saturating_sub(begin).as_secs_f64(),
            learning: node.learning(next.server).ok_or("no status")?,
        });
        Ok(())
    })?;
    outcomes.insert(0, evaluate_changes(change.as_slice(), ELECTION));
    Ok(outcomes)
}

/// Runs the services beside three servers, while `act` stops some of them.
fn run(
    programs: &Programs,
    intervals: (f64, f64),
    ends: f64,
    act: impl FnOnce(&mut Node, Duration) -> Result<(), Error>,
) -> Result<Vec<Outcome>, Error> {
    let loads = [(900.0, "even"), (900.0, "Poisson"), (3000.0, "even")];
    let cases = loads.map(|(rate, pace)| {
        let name = format!("{rate}/s {pace}");
        let plans = (0..SERVICES).map(|index| {
            Plan::new(&name, ends).load(Load::Rate {
                from: 0.0,
                until: ends,
                per_second: rate / f64::from(SERVICES),
                arrivals: arrivals(pace, index.into()),
            })
        });
        Case::new(name.clone(), plans)
    });
    let mut node = Node::start(programs.doorman.clone(), &document(LIMIT, intervals))?;
    let servers = node.addresses();
    let plans: Vec<_> = cases.iter().flat_map(|case| case.plans.clone()).collect();
    let reports = programs.run_services(&servers, &plans, |start| act(&mut node, start))?;
    Ok(outcomes(&cases, reports, intervals.0, |case, reports| {
        evaluate(case, reports, ends)
    }))
}

fn change_master(node: &mut Node, stop: &Stop) -> Result<Round, Error> {
    let master = node.master_after(0)?;
    let process = node.take(master.server)?;
    let begin = now();
    let process = (stop.begin)(process)?;
    let next = node.master_after(master.epoch)?;
    let seconds = now().saturating_sub(begin).as_secs_f64();
    let learning = node.learning(next.server).ok_or("no status")?;
    process.map_or(Ok(()), Process::wait)?;
    node.start_server(master.server)?;
    Ok(Round { seconds, learning })
}

fn evaluate_changes(changes: &[Round], Target { longest, learns }: Target) -> Outcome {
    let most = |of: fn(&Round) -> f64| changes.iter().map(of).fold(0.0, f64::max);
    let (seconds, learning) = (most(|it| it.seconds), most(|it| it.learning));
    let mut times: Vec<_> = changes.iter().map(|it| it.seconds).collect();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let target = if learns {
        format!("a new master within {longest} s")
    } else {
        format!("a new master within {longest} s, which does not learn")
    };
    let rounds = changes.len();
    Outcome {
        case: format!("{rounds} rounds"),
        met: seconds <= longest && (learns || learning == 0.0),
        target,
        measured: format!(
            "after at most {seconds:.2} s, median {median:.2} s; learning for at most {learning:.1} s"
        ),
        lease_requests: 0.0,
        lag: 0.0,
    }
}

/// Below the limit nothing may be refused once the first demand is known. Above it, the limit is
/// what is admitted; the buckets hold that of one second, and are full at the start.
fn evaluate(case: &Case, reports: &[Report], ends: f64) -> Measured {
    let traffic = Traffic::of(reports);
    let refused = traffic.sent(BEGIN, ends).refused();
    let before = traffic.sent(0.0, BEGIN).refused();
    let most = traffic.most_admitted(WINDOW);
    let bounded = most as f64 <= LIMIT * WINDOW + LIMIT;
    if !case.name.starts_with("3000") {
        return Measured::new(
            "none refused from the first round on",
            refused.total() == 0 && bounded,
            format!(
                "{refused} of {}; before: {before}; at most {most} in any 10 s",
                traffic.sent(BEGIN, ends).len()
            ),
        );
    }
    let seconds = traffic.admitted_per_second(0.0, ends);
    let windows = seconds.windows(WINDOW as usize);
    let least: usize = windows.map(|it| it.iter().sum()).min().unwrap_or_default();
    let steady = traffic.sent(WINDOW, ends).most_admitted(WINDOW);
    Measured::new(
        "9,900 to 11,000 admitted in any 10 s",
        bounded && least as f64 >= 0.99 * LIMIT * WINDOW,
        format!(
            "{least} to {most} in any 10 s, after the first 10 s at most {steady}; a bucket of {:.0}",
            traffic.bucket(LIMIT)
        ),
    )
}
