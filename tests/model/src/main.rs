//! Tries all behaviour of a small tree of the product's machines, up to a depth.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use doorman_model::{
    machine::Setup,
    model::{ALL_AT_NODE, Model, Scope},
    rules::{self, Finding},
    search::{Limits, Outcome, search},
    tables::Tables,
};
use doorman_sim::Rule;

/// Tries all behaviour of a root, a node and their clients, up to a depth.
#[derive(Debug, Parser)]
struct Args {
    /// The most steps.
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// Disables a rule, and tries what breaks without it.
    #[arg(long, value_name = "RULE")]
    without: Option<Rule>,
    /// Disables each rule of the model in turn.
    #[arg(long, conflicts_with = "without")]
    rules: bool,
    /// The most states.
    #[arg(long, default_value_t = 50_000_000)]
    max_states: usize,
    /// The most seconds of one search.
    #[arg(long, default_value_t = 3_600)]
    seconds: u64,
    /// Clients of the node.
    #[arg(long)]
    node_clients: Option<usize>,
    /// Clients of the root.
    #[arg(long)]
    root_clients: Option<usize>,
    /// Clients always want all.
    #[arg(long)]
    greedy: Option<bool>,
    /// The same of those of the root.
    #[arg(long)]
    root_greedy: Option<bool>,
    /// The search begins when a client of the node has all.
    #[arg(long)]
    prelude: Option<bool>,
    /// New masters of the root.
    #[arg(long)]
    crashes: Option<u8>,
    /// New masters of the node.
    #[arg(long)]
    fail_overs: Option<u8>,
    /// Requests of a client that are under way or may arrive again.
    #[arg(long)]
    client_messages: Option<usize>,
    /// Requests of the node that are under way or may arrive again.
    #[arg(long)]
    node_messages: Option<usize>,
    /// Answers may be lost.
    #[arg(long)]
    loses_answers: Option<bool>,
    /// Answers may arrive later.
    #[arg(long)]
    delays_answers: Option<bool>,
    /// Clients may give their leases back.
    #[arg(long)]
    releases: Option<bool>,
    /// Checks what the node may use, too.
    #[arg(long)]
    checks_node: Option<bool>,
    /// Compares the steps of so many processes that the search takes for one.
    #[arg(long, default_value_t = 0)]
    twins: usize,
}

impl Args {
    fn scope(&self, scope: Scope) -> Scope {
        Scope {
            node_clients: self.node_clients.unwrap_or(scope.node_clients),
            root_clients: self.root_clients.unwrap_or(scope.root_clients),
            node_wants: match self.greedy {
                Some(true) => Scope::GREEDY.node_wants,
                Some(false) => Scope::CALM.node_wants,
                None => scope.node_wants,
            },
            root_wants: match self.root_greedy.or(self.greedy) {
                Some(true) => Scope::GREEDY.root_wants,
                Some(false) => Scope::CALM.root_wants,
                None => scope.root_wants,
            },
            prelude: match self.prelude {
                Some(true) => ALL_AT_NODE,
                Some(false) => &[],
                None => scope.prelude,
            },
            crashes: self.crashes.unwrap_or(scope.crashes),
            fail_overs: self.fail_overs.unwrap_or(scope.fail_overs),
            client_messages: self.client_messages.unwrap_or(scope.client_messages),
            node_messages: self.node_messages.unwrap_or(scope.node_messages),
            loses_answers: self.loses_answers.unwrap_or(scope.loses_answers),
            delays_answers: self.delays_answers.unwrap_or(scope.delays_answers),
            releases: self.releases.unwrap_or(scope.releases),
            checks_node: self.checks_node.unwrap_or(scope.checks_node),
        }
    }

    fn search(&self, scope: Scope, depth: usize, without: Option<Rule>) -> (Model, Outcome) {
        let tables = Tables::comparing(Setup::usual(without), self.twins);
        let mut model = Model::new(self.scope(scope), tables);
        let limits = Limits {
            depth,
            states: self.max_states,
            time: Duration::from_secs(self.seconds),
        };
        let outcome = search(&mut model, &limits, |depth, states| {
            eprintln!("depth {depth}: {states} states");
        });
        (model, outcome)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.rules {
        let mut are_found = true;
        for rule in Rule::ALL {
            match rules::finding(*rule) {
                Finding::Model(scope, depth) => {
                    let (_, outcome) = args.search(scope, depth, Some(*rule));
                    println!("{rule}: {}", summary(&outcome));
                    are_found &= outcome.violation.is_some();
                }
                Finding::Test(file, test) => println!("{rule}: {test} in {file}"),
            }
        }
        return if are_found {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let (scope, depth) = match args.without.map(rules::finding) {
        Some(Finding::Model(scope, depth)) => (scope, depth.max(args.depth)),
        Some(Finding::Test(..)) | None => (Scope::FAULTS, args.depth),
    };
    let (mut model, outcome) = args.search(scope, depth, args.without);
    println!("{}", summary(&outcome));
    let tables = &model.tables;
    println!(
        "processes and their steps: root {:?}, node {:?}, clients {:?}; {} compared",
        tables.roots.sizes(),
        tables.nodes.sizes(),
        tables.clients.sizes(),
        tables.compared()
    );
    let Some((actions, broken)) = outcome.violation else {
        return ExitCode::SUCCESS;
    };
    println!("{}:", broken.0);
    for (number, line) in model.explain(&actions).iter().enumerate() {
        println!("{:3} {line}", number + 1);
    }
    ExitCode::FAILURE
}

fn summary(outcome: &Outcome) -> String {
    let Outcome {
        states,
        depth,
        is_complete,
        violation,
        time,
    } = outcome;
    let result = match (violation, is_complete) {
        (Some(_), _) => "violation",
        (None, true) => "holds, all states",
        (None, false) => "holds",
    };
    format!(
        "{result}, depth {depth}, {states} states, {:.1} s",
        time.as_secs_f64()
    )
}
