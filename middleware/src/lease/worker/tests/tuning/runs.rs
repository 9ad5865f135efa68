//! Runs of a load or of an outage with one setting and one seed.

use std::future::Future;

use doorman_openapi::{Capacity, Moment};
use tokio::time::sleep;

use super::{
    super::{SECOND, builder, held, real_ledger::Server, run},
    Setting,
    load::{CAPACITY, Load, Requests},
};
use crate::{Cost, Doorman, Rate, RateSettings, clock, tuning};

/// Seconds between two samples of what the processes hold.
const HELD_SAMPLE: f64 = 0.05;

/// Figures of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct LoadFigures {
    /// The part of the requests that were rejected while capacity was free.
    pub(super) refused: f64,
    /// The part of the capacity that was free while requests were rejected.
    pub(super) unused: f64,
    /// Lease requests per process and second.
    pub(super) refreshes: f64,
    /// Responses with hints per process and second.
    pub(super) hints: f64,
    /// Seconds until, for a second, almost nothing is rejected any more.
    pub(super) served_after: f64,
}

/// Figures of a fleet of a thousand whose master is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct OutageFigures {
    /// Lease requests per process and second during the outage.
    pub(super) requests: f64,
    /// The most lease requests in a second of the next master, in parts of the usual number.
    pub(super) busiest: f64,
    /// Seconds of the next master until all processes have a lease, and in the mean.
    pub(super) leased_after: f64,
}

/// Runs in virtual time, from the same moment on, with these constants.
pub(super) fn simulate<F: Future>(
    setting: &Setting,
    seed: u64,
    run: impl FnOnce(&'static doorman_core::ledger::Tuning) -> F,
) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    tuning::vary(setting.layer);
    fastrand::seed(seed);
    // A few dozen bytes a run.
    let ledger = Box::leak(Box::new(setting.ledger));
    let output = runtime.block_on(async {
        clock::restart();
        run(ledger).await
    });
    tuning::vary(tuning::Tuning::DEFAULT);
    output
}

pub(super) fn document(setting: &Setting, capacity: f64) -> String {
    let Setting {
        surplus,
        lease_length,
        refresh_interval,
        ..
    } = setting;
    let parameters = surplus.map_or_else(String::new, |surplus| {
        format!("parameters: [{{name: surplus, value: '{surplus}'}}]")
    });
    format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE, \
         lease_length: {lease_length}, refresh_interval: {refresh_interval}, {parameters}}}}}]"
    )
}

/// Sends the requests of a load.
pub(super) fn run_load(setting: &Setting, load: Load, seed: u64) -> LoadFigures {
    simulate(setting, seed, |ledger| async move {
        let requests = load.requests(seed);
        let server = Server::start(document(setting, CAPACITY), ledger);
        let processes: Vec<(Doorman, Rate)> = (0..requests.processes)
            .map(|_| {
                let (doorman, _) = run(builder(), &server.plane);
                let rate = doorman.rate("api");
                (doorman, rate)
            })
            .collect();
        let start = clock::now();
        let from = start.after_seconds(requests.counted_from);
        let (mut next_sample, mut hinted) = (0.0, None);
        let mut admitted = Vec::with_capacity(requests.sent.len());
        for (at, process) in &requests.sent {
            let pause = start.after_seconds(*at).since(clock::now());
            if !pause.is_zero() {
                sleep(pause).await;
            }
            if *at >= next_sample {
                next_sample = at + HELD_SAMPLE;
                let held: f64 = processes.iter().filter_map(|it| held(&it.0, "api")).sum();
                assert!(
                    held <= CAPACITY * (1.0 + 1e-9),
                    "{load:?}, {seed}: {held} at {at}"
                );
            }
            if *at >= requests.counted_from {
                hinted.get_or_insert_with(|| server.hinted());
            }
            admitted.push(processes[*process].1.try_acquire(Cost::ONE).is_ok());
        }
        let per_process = (requests.until - requests.counted_from) * requests.processes as f64;
        let figures = count(&requests, &admitted);
        LoadFigures {
            refreshes: refreshes(&server, from).count() as f64 / per_process,
            hints: (server.hinted() - hinted.unwrap_or_default()) as f64 / per_process,
            ..figures
        }
    })
}

fn refreshes(server: &Server, from: Moment) -> impl Iterator<Item = Moment> + use<> {
    let calls = server.plane.calls().into_iter();
    calls.filter_map(move |call| {
        let is_counted = call.at >= from && call.path == doorman_openapi::paths::CAPACITY;
        is_counted.then_some(call.at)
    })
}

fn count(requests: &Requests, admitted: &[bool]) -> LoadFigures {
    let seconds = (requests.until - requests.counted_from).ceil() as usize;
    // Admitted and rejected, by second.
    let mut counts = vec![(0.0, 0.0); seconds];
    let mut counted = Vec::new();
    for ((at, _), admitted) in requests.sent.iter().zip(admitted) {
        if *at < requests.counted_from {
            continue;
        }
        let since = at - requests.counted_from;
        counted.push((since, *admitted));
        let second = &mut counts[(since as usize).min(seconds - 1)];
        match admitted {
            true => second.0 += 1.0,
            false => second.1 += 1.0,
        }
    }
    let wasted: f64 = counts
        .iter()
        .map(|(admitted, refused): &(f64, f64)| refused.min((CAPACITY - admitted).max(0.0)))
        .sum();
    LoadFigures {
        refused: wasted / counted.len() as f64,
        unused: wasted / (CAPACITY * seconds as f64),
        served_after: served_after(&counted),
        ..LoadFigures::default()
    }
}

/// The tenth of a second from which on at most 2 % of a second's requests are rejected.
fn served_after(counted: &[(f64, bool)]) -> f64 {
    let is_served = |from: f64| {
        let second = counted
            .iter()
            .filter(|it| (from..from + 1.0).contains(&it.0));
        let (all, refused) = second.fold((0, 0), |(all, refused), (_, admitted)| {
            (all + 1, refused + u32::from(!admitted))
        });
        refused * 50 <= all
    };
    let tenths = (0..50_u32).map(|tenth| f64::from(tenth) / 10.0);
    tenths.clone().find(|from| is_served(*from)).unwrap_or(5.0)
}

/// The processes of an outage.
const FLEET: usize = 1_000;

fn fleet_of(server: &Server, processes: usize) -> Vec<(Doorman, Rate)> {
    let wants = Capacity::new(1.0).unwrap();
    let processes = (0..processes).map(|_| {
        let (doorman, _) = run(builder(), &server.plane);
        // A stated demand keeps its lease without requests.
        let rate = doorman.rate(RateSettings::new("api").wants(wants));
        (doorman, rate)
    });
    processes.collect()
}

/// The capacity that a fleet wants twice.
const AMPLE: f64 = 2.0 * FLEET as f64;

async fn pass(seconds: f64) {
    sleep(SECOND.mul_f64(seconds)).await;
}

/// Loses the master for `outage` seconds, when leases last or before there are any.
pub(super) fn run_outage(setting: &Setting, begins: f64, outage: f64, seed: u64) -> OutageFigures {
    simulate(setting, seed, |ledger| async move {
        let server = Server::start(document(setting, AMPLE), ledger);
        let mut processes = Vec::new();
        if begins > 0.0 {
            // They join over some intervals.
            for _ in 0..FLEET / 10 {
                processes.push(fleet_of(&server, 10));
                pass(begins / 2.0 / (FLEET / 10) as f64).await;
            }
            pass(begins / 2.0).await;
            server.lose();
        } else {
            server.lose();
            processes.push(fleet_of(&server, FLEET));
        }
        let lost = clock::now();
        pass(outage).await;
        let learns = f64::from(setting.lease_length) * 1.05 - outage;
        let learns = if begins > 0.0 { learns.max(0.0) } else { 0.0 };
        server.replace(2, SECOND.mul_f64(learns));
        let replaced = clock::now();
        let all = || processes.iter().flatten();
        let (mut leased_after, mut is_leased) = (0.0, vec![false; FLEET]);
        for tenth in 1..=250_u32 {
            pass(0.1).await;
            for ((doorman, _), is_leased) in all().zip(&mut is_leased) {
                if !*is_leased && held(doorman, "api").is_some() {
                    *is_leased = true;
                    leased_after += f64::from(tenth) / 10.0 / FLEET as f64;
                }
            }
        }
        assert!(is_leased.iter().all(|it| *it), "{setting:?}");
        let times: Vec<Moment> = refreshes(&server, lost).collect();
        let during = times.iter().filter(|at| **at < replaced).count();
        let usual = FLEET as f64 / f64::from(setting.refresh_interval);
        OutageFigures {
            requests: during as f64 / outage / FLEET as f64,
            busiest: busiest(&times, replaced) as f64 / usual,
            leased_after,
        }
    })
}

/// The most times in any second from a moment on.
fn busiest(times: &[Moment], from: Moment) -> usize {
    let times: Vec<_> = times.iter().filter(|at| **at >= from).collect();
    let within = |(index, first): (usize, &&Moment)| {
        let second = times[index..].iter();
        let end = first.after_seconds(1.0);
        second.take_while(|at| ***at < end).count()
    };
    times.iter().enumerate().map(within).max().unwrap_or(0)
}

/// How uneven the refreshes of a fleet are that began at one moment: the most in a second, in parts
/// of the usual number, in the five seconds from `after` on.
pub(super) fn run_step(setting: &Setting, after: f64, seed: u64) -> f64 {
    simulate(setting, seed, |ledger| async move {
        let server = Server::start(document(setting, AMPLE), ledger);
        let _processes = fleet_of(&server, FLEET);
        pass(after).await;
        let from = clock::now();
        pass(5.0).await;
        let times: Vec<Moment> = refreshes(&server, from).collect();
        let usual = FLEET as f64 / f64::from(setting.refresh_interval);
        busiest(&times, from) as f64 / usual
    })
}
