//! Comparisons and their targets.

use std::{error::Error, io, time::Duration};

use doorman_bench::{Options, Row, Samples, ServerProcess, Table, Target, alternate_results};

use crate::{
    cpu::{self, Core},
    load::Load,
    requests::Requests,
    role::{Role, ServerKind},
    tokens::{self, Signature},
};

/// A server and its load.
#[derive(Debug)]
struct LoadedServer {
    server: ServerProcess,
    load: Load,
    round: Duration,
}

/// The figures of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Round {
    requests_per_second: f64,
    cpu_micros: f64,
    busy_percent: f64,
}

/// The requests of a load.
#[derive(Debug, Clone, Copy)]
struct Workload<'a> {
    clients: usize,
    /// Per request.
    resources: usize,
    authorization: Option<&'a str>,
}

impl LoadedServer {
    /// Starts a server, and lets every client join.
    fn start(
        options: Options,
        kind: ServerKind,
        core: Core,
        workload: Workload<'_>,
    ) -> Result<Self, Box<dyn Error>> {
        let Workload {
            clients,
            resources,
            authorization,
        } = workload;
        let server = Role { kind, core }.start()?;
        let requests = Requests::new(clients, resources, authorization);
        let mut load = Load::connect(server.address(), requests)?;
        load.send(clients)?;
        Ok(Self {
            server,
            load,
            round: Duration::from_millis(options.pick(1_000, 300)),
        })
    }

    fn round(&mut self) -> io::Result<Round> {
        let before = cpu::cpu_nanos(self.server.id())?;
        let (responses, elapsed) = self.load.send_for(self.round)?;
        let cpu = (cpu::cpu_nanos(self.server.id())? - before) as f64;
        let responses = responses as f64;
        Ok(Round {
            requests_per_second: responses / elapsed.as_secs_f64(),
            cpu_micros: cpu / 1e3 / responses,
            busy_percent: cpu / 1e7 / elapsed.as_secs_f64(),
        })
    }
}

pub(crate) fn run(options: Options) -> Result<(), Box<dyn Error>> {
    let (server_core, load_core) = cpu::two_cores()?;
    cpu::pin(load_core)?;
    let start = |kind: ServerKind, workload: Workload<'_>| {
        LoadedServer::start(options, kind, server_core, workload)
    };
    let [few, many] = [100, options.pick(100_000, 10_000)];
    let one_resource = Workload {
        clients: few,
        resources: 1,
        authorization: None,
    };
    let without_tokens = ServerKind::Doorman(None);
    let mut tables = Tables::new();

    for (resources, min_rate) in [(1, 0.85), (100, 0.9)] {
        let workload = Workload {
            resources,
            ..one_resource
        };
        let mut doorman = start(without_tokens, workload)?;
        let mut bare = start(ServerKind::Bare, workload)?;
        let rounds = alternate_rounds(options, &mut doorman, &mut bare)?;
        tables.add(
            &format!("resources per request: {resources}"),
            "bare handler",
            &rounds,
            Target::AtLeast(min_rate),
            Target::None,
        );
    }

    for (signature, subject) in [
        (Signature::Hs256, "with an HS256 token"),
        (Signature::Es256, "with an ES256 token"),
    ] {
        let authorization = tokens::authorization(signature)?;
        let workload = Workload {
            authorization: Some(&authorization),
            ..one_resource
        };
        let mut doorman = start(ServerKind::Doorman(Some(signature)), workload)?;
        let mut bare = start(ServerKind::Bare, workload)?;
        let rounds = alternate_rounds(options, &mut doorman, &mut bare)?;
        tables.add(subject, "bare handler", &rounds, Target::None, Target::None);
    }

    let many_clients = Workload {
        clients: many,
        ..one_resource
    };
    let mut with_many = start(without_tokens, many_clients)?;
    let mut with_few = start(without_tokens, one_resource)?;
    let rounds = alternate_rounds(options, &mut with_many, &mut with_few)?;
    tables.add(
        &format!("{many} clients"),
        &format!("{few} clients"),
        &rounds,
        Target::None,
        Target::AtMost(1.5),
    );

    tables.print();
    Ok(())
}

fn alternate_rounds(
    options: Options,
    subject: &mut LoadedServer,
    baseline: &mut LoadedServer,
) -> io::Result<[Vec<Round>; 2]> {
    let rounds = options.pick(15, 5);
    let [subject, baseline] =
        alternate_results(rounds, [&mut || subject.round(), &mut || baseline.round()]);
    Ok([
        subject.into_iter().collect::<io::Result<_>>()?,
        baseline.into_iter().collect::<io::Result<_>>()?,
    ])
}

/// One table per figure of a round.
#[derive(Debug)]
struct Tables {
    rates: Table,
    cpu: Table,
    busy: Table,
}

impl Tables {
    fn new() -> Self {
        Self {
            rates: Table::new(
                "POST /v1/capacity, server on one core",
                "requests per second",
            ),
            cpu: Table::new("POST /v1/capacity, server CPU time", "µs per request"),
            busy: Table::new(
                "Load of the server's core; the generator is too slow where far below 100",
                "%",
            ),
        }
    }

    fn add(
        &mut self,
        subject: &str,
        baseline: &str,
        rounds: &[Vec<Round>; 2],
        rate_target: Target,
        cpu_target: Target,
    ) {
        let row = |of: fn(&Round) -> f64, target| {
            let [samples, baseline_samples] = rounds
                .each_ref()
                .map(|rounds| rounds.iter().map(of).collect::<Samples>());
            Row::ratio(subject, &samples, baseline, &baseline_samples, target)
        };
        self.rates
            .add(row(|round| round.requests_per_second, rate_target));
        self.cpu.add(row(|round| round.cpu_micros, cpu_target));
        self.busy.add(row(|round| round.busy_percent, Target::None));
    }

    fn print(&self) {
        self.rates.print();
        self.cpu.print();
        self.busy.print();
    }
}
