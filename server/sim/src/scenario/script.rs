//! The script of a scenario.

use std::ops::Range;

use fastrand::Rng;

use super::{FaultKind, RandomFaults, Scenario, ScenarioFault};
use crate::{
    scenario::steps::{Fault, Length, Script, ServerChoice, Step},
    scenario::wave::exponential,
};

impl Scenario {
    /// The faults and changes, with their seconds. Random nodes, clients and times are drawn.
    pub(crate) fn script(&self, rng: &mut Rng) -> Script {
        let faults = self.faults.iter();
        let mut script: Vec<_> = faults
            .map(|it| (it.at, Step::Fault(self.draw_fault(it, rng))))
            .collect();
        let changes = self.changes.iter();
        script.extend(changes.map(|it| (it.at, Step::ChangeDocument(it.document.clone()))));
        if let Some(random) = &self.random_faults {
            self.draw_random_faults(random, rng, &mut script);
        }
        script
    }

    fn draw_fault(&self, fault: &ScenarioFault, rng: &mut Rng) -> Fault {
        let node = choose_node(&fault.nodes, rng);
        let first = self.servers_of(node).start;
        let server = fault.server.map(|it| ServerChoice::Number(first + it));
        Fault {
            node,
            server: Some(server.unwrap_or(ServerChoice::Master))
                .filter(|_| !fault.kind.is_of_clients()),
            clients: self.choose_clients(fault.kind, fault.group.as_ref(), fault.clients, rng),
            late: fault.late,
            change: fault.change,
            ..Fault::new(fault.kind, Length::Seconds(fault.seconds))
        }
    }

    fn draw_random_faults(&self, random: &RandomFaults, rng: &mut Rng, script: &mut Script) {
        let mut at = match random.from {
            Some(from) => from,
            None => exponential(random.every, rng),
        };
        while at <= self.seconds
            && let Some((kind, nodes)) = rng.choice(&random.kinds)
        {
            let length = Length::Seconds(random.longest * rng.f64());
            let node = choose_node(nodes, rng);
            let server = rng.usize(self.servers_of(node));
            let fault = Fault {
                node,
                server: (!kind.is_of_clients()).then_some(ServerChoice::Number(server)),
                clients: self.choose_clients(*kind, None, Some(1), rng),
                change: random.change,
                ..Fault::new(*kind, length)
            };
            script.push((at, Step::Fault(fault)));
            at += match random.from {
                Some(_) => random.every,
                None => exponential(random.every, rng),
            };
        }
    }

    /// Chooses `count` clients of a group at random that a fault can affect; all of these without
    /// `count`.
    fn choose_clients(
        &self,
        kind: FaultKind,
        group: Option<&Range<usize>>,
        count: Option<usize>,
        rng: &mut Rng,
    ) -> Vec<usize> {
        if !kind.is_of_clients() {
            return Vec::new();
        }
        let groups = self.groups.iter();
        let members = groups.flat_map(|group| std::iter::repeat_n(group, group.count));
        let is_in_group = |client: &usize| group.is_none_or(|it| it.contains(client));
        let clients = members.enumerate().filter_map(|(client, group)| {
            let is_affected = kind != FaultKind::ChangeDemand || group.has_steady_demand();
            (is_affected && is_in_group(&client)).then_some(client)
        });
        let clients: Vec<_> = clients.collect();
        match count {
            Some(count) if count < clients.len() => rng.choose_multiple(clients, count),
            _ => clients,
        }
    }
}

/// Chooses one of these nodes at random.
fn choose_node(nodes: &[usize], rng: &mut Rng) -> usize {
    match nodes {
        [only] => *only,
        _ => rng.choice(nodes).copied().unwrap_or(0),
    }
}
