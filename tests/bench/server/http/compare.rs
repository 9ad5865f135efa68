//! The comparisons, and what they should come to.

use std::{error::Error, io, time::Duration};

use doorman_bench::{Effort, Figures, Row, Table, Target, take_turns_of};

use crate::{
    cores::{self, Core},
    load::Load,
    process::{Running, What},
    requests::Requests,
    tokens::{self, Signed},
};

/// A server, and the load that it is under in its rounds.
#[derive(Debug)]
struct Side {
    server: Running,
    load: Load,
    length: Duration,
}

/// What one round told.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Round {
    requests_a_second: f64,
    cpu_micros: f64,
    busy_percent: f64,
}

impl Side {
    /// Starts a server on a core, to which each client comes once before the first round.
    fn start(
        effort: Effort,
        what: What,
        core: Core,
        clients: usize,
        resources: usize,
        authorization: Option<&str>,
    ) -> Result<Self, Box<dyn Error>> {
        let server = Running::start(what, core)?;
        let mut load = Load::connect(
            server.address,
            Requests::new(clients, resources, authorization),
        )?;
        load.send(clients)?;
        Ok(Self {
            server,
            load,
            length: Duration::from_millis(effort.pick(1_000, 300)),
        })
    }

    fn round(&mut self) -> io::Result<Round> {
        let before = self.server.cpu_nanos()?;
        let (answered, took) = self.load.send_for(self.length)?;
        let cpu = (self.server.cpu_nanos()? - before) as f64;
        let answered = answered as f64;
        Ok(Round {
            requests_a_second: answered / took.as_secs_f64(),
            cpu_micros: cpu / 1e3 / answered,
            busy_percent: cpu / 1e7 / took.as_secs_f64(),
        })
    }
}

/// Measures, and prints.
pub(crate) fn run(effort: Effort) -> Result<(), Box<dyn Error>> {
    let (for_servers, for_load) = cores::two()?;
    cores::pin(for_load)?;
    let start =
        |what, clients, resources| Side::start(effort, what, for_servers, clients, resources, None);
    let [few, many] = [100, effort.pick(100_000, 10_000)];
    let mut tables = Tables::new();

    for (resources, at_least) in [(1, 0.85), (100, 0.9)] {
        let mut doorman = start(What::Doorman, few, resources)?;
        let mut bare = start(What::Bare, few, resources)?;
        let told = turns(effort, &mut doorman, &mut bare)?;
        let what = format!("resources in a request: {resources}");
        tables.add(
            &what,
            "bare handler",
            &told,
            Target::AtLeast(at_least),
            Target::None,
        );
    }

    for (signed, what) in [
        (Signed::Secret, "with a token by a secret (HS256)"),
        (Signed::Key, "with a token by a key (ES256)"),
    ] {
        let bearer = tokens::bearer(signed)?;
        let start = |what| Side::start(effort, what, for_servers, few, 1, Some(&bearer));
        let mut doorman = start(What::Asking(signed))?;
        let mut bare = start(What::Bare)?;
        let told = turns(effort, &mut doorman, &mut bare)?;
        tables.add(what, "bare handler", &told, Target::None, Target::None);
    }

    let mut at_many = start(What::Doorman, many, 1)?;
    let mut at_few = start(What::Doorman, few, 1)?;
    let told = turns(effort, &mut at_many, &mut at_few)?;
    let (what, beside) = (format!("{many} clients"), format!("{few} clients"));
    tables.add(&what, &beside, &told, Target::None, Target::AtMost(1.5));

    tables.print();
    Ok(())
}

fn turns(effort: Effort, side: &mut Side, beside: &mut Side) -> io::Result<[Vec<Round>; 2]> {
    let rounds = effort.pick(15, 5);
    let [told, others] = take_turns_of(rounds, [&mut || side.round(), &mut || beside.round()]);
    Ok([
        told.into_iter().collect::<io::Result<_>>()?,
        others.into_iter().collect::<io::Result<_>>()?,
    ])
}

/// One table for each of the figures of a round.
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
                "POST /v1/capacity, the server on one core",
                "requests a second",
            ),
            cpu: Table::new("The same by the server's CPU time", "µs a request"),
            busy: Table::new(
                "How busy the server's core was with it; the load is too weak where that is much below 100",
                "%",
            ),
        }
    }

    fn add(
        &mut self,
        what: &str,
        beside: &str,
        told: &[Vec<Round>; 2],
        of_rates: Target,
        of_cpu: Target,
    ) {
        let row = |of: fn(&Round) -> f64, target| {
            let [figures, others] = told
                .each_ref()
                .map(|told| told.iter().map(of).collect::<Figures>());
            Row::ratio(what, &figures, beside, &others, target)
        };
        self.rates
            .add(row(|round| round.requests_a_second, of_rates));
        self.cpu.add(row(|round| round.cpu_micros, of_cpu));
        self.busy.add(row(|round| round.busy_percent, Target::None));
    }

    fn print(&self) {
        self.rates.print();
        self.cpu.print();
        self.busy.print();
    }
}
