//! Scenarios with few faults at the moments that matter.
//!
//! Safety rules break where faults lie a lease, a bound or an election apart, to the second. Random
//! times almost never meet these moments, so each fault is placed relative to an earlier one. A
//! number decides all of a scenario.

use std::{fmt::Write as _, iter};

use doorman_sim::Scenario;
use fastrand::Rng;

/// The capacity of the resource.
const CAPACITY: f64 = 100.0;
/// The most by which two clocks differ.
const DRIFT: f64 = 1.05;
/// Seconds that a server stores its bound ahead of need.
const BOUND_AHEAD: f64 = 5.0;
/// Seconds for which a server offers its ledger.
const HANDOVER: f64 = 3.0;
/// The shortest time of a fault.
const SHORTEST: f64 = 0.1;

/// The scenario of a number.
///
/// # Panics
/// If the generator is wrong: each number is a valid scenario.
#[must_use]
#[expect(clippy::panic, reason = "each number is a valid scenario")]
pub fn aimed_scenario(number: u64) -> Scenario {
    let text = aimed_yaml(number);
    Scenario::parse(&text, None).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The scenario of a number, as a file for `doorman simulate`.
#[must_use]
pub fn aimed_yaml(number: u64) -> String {
    Generator::new(number).generate(number)
}

/// A node of the tree.
#[derive(Debug)]
struct Node {
    name: &'static str,
    /// The number of nodes above it.
    level: usize,
    servers: usize,
}

/// Clients of one node.
#[derive(Debug)]
struct Clients {
    name: String,
    node: &'static str,
    count: usize,
    demand: String,
}

/// A fault that was placed.
#[derive(Debug)]
struct Fault {
    at: f64,
    ends: f64,
    text: String,
}

struct Generator {
    rng: Rng,
    lease: f64,
    refresh: f64,
    election: f64,
    nodes: Vec<Node>,
    clients: Vec<Clients>,
    faults: Vec<Fault>,
}

impl Generator {
    fn new(number: u64) -> Self {
        let mut rng = Rng::with_seed(number);
        let longest = *rng.choice(&[8.0, 15.0, 30.0, 60.0]).unwrap_or(&60.0);
        let lease = rounded(between(5.0, longest, &mut rng));
        let parts = between(3.0, 12.0, &mut rng);
        let mut generator = Self {
            lease,
            refresh: rounded((lease / parts).max(1.0)),
            election: f64::from(rng.u32(2..=6)),
            nodes: Vec::new(),
            clients: Vec::new(),
            faults: Vec::new(),
            rng,
        };
        generator.add_nodes();
        generator.add_clients();
        generator
    }

    fn add_nodes(&mut self) {
        let levels = match self.rng.u8(..8) {
            0 => 1,
            1..6 => 2,
            _ => 3,
        };
        let mut names = vec![("root", 0)];
        if levels > 1 {
            names.push(("eu", 1));
        }
        if levels > 1 && self.rng.u8(..4) == 0 {
            names.push(("us", 1));
        }
        if levels > 2 {
            names.push(("eu-west", 2));
        }
        for (name, level) in names {
            let servers = self.rng.usize(1..=3);
            self.nodes.push(Node {
                name,
                level,
                servers,
            });
        }
    }

    fn add_clients(&mut self) {
        for index in 0..self.nodes.len() {
            let groups = self.rng.usize(1..=2);
            for group in 0..groups {
                let (node, count) = (self.nodes[index].name, self.rng.usize(1..=2));
                // Often the root's own clients take all that is free.
                let demand = if index == 0 && group == 0 && self.rng.u8(..4) > 0 {
                    format!("constant: {{wants: {CAPACITY}}}")
                } else {
                    self.demand()
                };
                self.clients.push(Clients {
                    name: format!("{node} {group}"),
                    node,
                    count,
                    demand,
                });
            }
        }
    }

    fn demand(&mut self) -> String {
        let wants = self.wants();
        if self.rng.u8(..4) > 0 {
            return format!("constant: {{wants: {wants}}}");
        }
        let every = rounded(between(1.0, self.lease, &mut self.rng));
        format!("random_walk: {{start: {wants}, step: 0.8, every: {every}}}")
    }

    fn wants(&mut self) -> f64 {
        match self.rng.u8(..6) {
            0 => 0.0,
            1..3 => rounded(10.0 * self.rng.f64()),
            3..5 => rounded(CAPACITY * self.rng.f64()),
            _ => CAPACITY,
        }
    }

    fn generate(mut self, number: u64) -> String {
        let first = rounded(8.0 + 2.0 * self.refresh + self.lease * self.rng.f64());
        let mut count = self.rng.usize(2..=6);
        // Most faults concern one branch of the tree.
        let deepest = self.rng.usize(..self.nodes.len());
        if self.rng.u8(..3) > 0 {
            let before = self.faults.len();
            self.add_pattern(first, deepest);
            count = count.saturating_sub(self.faults.len() - before + 1);
        }
        for _ in 0..count {
            let at = if self.faults.is_empty() {
                first
            } else {
                self.moment().max(first)
            };
            let node = match self.rng.u8(..8) {
                0 => self.rng.usize(..self.nodes.len()),
                1..4 => 0,
                _ => deepest,
            };
            self.add_fault(at, node);
        }
        self.into_yaml(number)
    }

    /// The pattern of most violations: a holder does not reach its server for the time of a lease,
    /// and each of both loses what it knows, the holder at the beginning and the server at the end.
    fn add_pattern(&mut self, at: f64, node: usize) {
        let name = self.nodes[node].name;
        // A node as the holder, or clients of it.
        let parent = self.parent_of(node).filter(|_| self.rng.u8(..4) > 0);
        let leased = match self.rng.u8(..4) {
            0 => self.lease,
            1 | 2 => DRIFT * self.lease,
            _ => DRIFT * DRIFT * self.lease,
        };
        let lost = at + leased + self.offset();
        let healed = rounded((lost + self.offset() - at).max(SHORTEST));
        let server = match parent {
            Some(parent) => {
                let kind = match self.rng.u8(..6) {
                    0 => "lose_node_answers",
                    1 => "pause_server",
                    _ => "partition_node",
                };
                self.push(at, healed, &format!("kind: {kind}, node: {name}"));
                if self.rng.u8(..5) > 0 {
                    let after = self.soon();
                    self.add_loss(at + after, node);
                }
                parent
            }
            None => {
                let kind = match self.rng.u8(..4) {
                    0 => "lose_client_answers",
                    1 => "pause_clients",
                    _ => "partition_clients",
                };
                let group = self.group();
                self.push(at, healed, &format!("kind: {kind}, group: {group}"));
                node
            }
        };
        if self.rng.u8(..5) > 0 {
            self.add_loss(lost, server);
        }
    }

    fn parent_of(&self, node: usize) -> Option<usize> {
        match self.nodes[node].level {
            0 => None,
            1 => Some(0),
            _ => self.nodes.iter().position(|it| it.level == 1),
        }
    }

    /// The master of a node is lost, or hands over.
    fn add_loss(&mut self, at: f64, node: usize) {
        let Node { name, servers, .. } = self.nodes[node];
        let length = rounded(if self.rng.bool() {
            between(SHORTEST, 2.0, &mut self.rng)
        } else {
            self.election + between(0.0, 4.0, &mut self.rng)
        });
        let kind = match self.rng.u8(..6) {
            0 => "stop_server",
            1 if servers > 1 => "lose_master",
            2 | 3 if servers > 1 => {
                return self.push_at(at, format!("kind: elect_master, node: {name}"));
            }
            _ => "crash_server",
        };
        self.push(at, length, &format!("kind: {kind}, node: {name}"));
    }

    fn group(&mut self) -> String {
        let group = self.rng.usize(..self.clients.len());
        self.clients[group].name.clone()
    }

    /// At once, or within about a refresh.
    fn soon(&mut self) -> f64 {
        match self.rng.u8(..3) {
            0 => 0.0,
            _ => 1.2 * self.refresh * self.rng.f64(),
        }
    }

    /// Adds a fault that lasts.
    fn push(&mut self, at: f64, length: f64, text: &str) {
        let (at, text) = (rounded(at), format!("{text}, for: {length}"));
        let ends = at + length;
        self.faults.push(Fault { at, ends, text });
    }

    /// Adds a fault of a moment.
    fn push_at(&mut self, at: f64, text: String) {
        let at = rounded(at);
        self.faults.push(Fault { at, ends: at, text });
    }

    /// A moment relative to an earlier fault, most often the last one, or to its end.
    fn moment(&mut self) -> f64 {
        let last = self.faults.len() - 1;
        let from = match self.rng.u8(..4) {
            0 => self.rng.usize(..=last),
            _ => last,
        };
        let from = match self.rng.u8(..3) {
            0 => self.faults[from].ends,
            _ => self.faults[from].at,
        };
        from + self.distance() + self.offset()
    }

    /// The time to the end of something that a fault concerns.
    fn distance(&mut self) -> f64 {
        let lease = self.lease;
        match self.rng.u8(..12) {
            0..2 => 0.0,
            2 => self.refresh * self.rng.f64(),
            3..5 => lease,
            5..7 => DRIFT * lease,
            7 => DRIFT * DRIFT * lease,
            8 => self.election,
            9 => DRIFT * lease + BOUND_AHEAD,
            10 => self.election + DRIFT * (lease + 1.0),
            _ => HANDOVER,
        }
    }

    fn offset(&mut self) -> f64 {
        match self.rng.u8(..4) {
            0 => between(-2.0, -0.1, &mut self.rng),
            1 => between(-0.05, 0.05, &mut self.rng),
            2 => between(0.1, 2.0, &mut self.rng),
            _ => 0.0,
        }
    }

    fn length(&mut self) -> f64 {
        let length = match self.rng.u8(..4) {
            0 => between(SHORTEST, 2.0, &mut self.rng),
            _ => self.distance() + self.offset(),
        };
        rounded(length.max(SHORTEST))
    }

    fn add_fault(&mut self, at: f64, node: usize) {
        let (length, group) = (self.length(), self.group());
        let Node {
            name,
            level,
            servers,
        } = self.nodes[node];
        let by = rounded(if self.rng.bool() {
            between(SHORTEST, 3.0, &mut self.rng)
        } else {
            (self.distance() + self.offset()).max(SHORTEST)
        });
        let of_node = |kind: &str| format!("kind: {kind}, node: {name}");
        let of_clients = |kind: &str| format!("kind: {kind}, group: {group}");
        let text = match self.rng.u8(..26) {
            0..4 if level > 0 => of_node("partition_node"),
            4 if level > 0 => of_node("lose_node_answers"),
            5 if level > 0 => format!("{}, by: {by}", of_node("delay_node_requests")),
            6 if level > 0 => format!("{}, by: {by}", of_node("repeat_node_requests")),
            0..4 | 24 if servers > 1 => return self.push_at(at, of_node("elect_master")),
            7..9 if servers > 1 => of_node("lose_master"),
            9 if servers > 1 => of_node("partition_server"),
            10 if servers > 1 && self.rng.bool() => of_node("stop_etcd"),
            10 if servers > 1 => format!("{}, by: {by}", of_node("delay_etcd_requests")),
            11..14 => of_node("stop_server"),
            14 => of_node("pause_server"),
            15 => of_clients("pause_clients"),
            16 => of_clients("crash_clients"),
            17..19 => of_clients("partition_clients"),
            19 => of_clients("lose_client_answers"),
            20 if by < 3.0 => format!("{}, by: {by}", of_clients("delay_client_requests")),
            20 => format!("{}, by: {by}", of_clients("repeat_client_requests")),
            21 => return self.push_at(at, of_clients("release_clients")),
            22..24 => {
                let wants = self.wants();
                return self.push_at(
                    at,
                    format!("{}, wants: {wants}", of_clients("change_demand")),
                );
            }
            _ => of_node("crash_server"),
        };
        self.push(at, length, &text);
    }

    fn into_yaml(mut self, number: u64) -> String {
        let ends = self.faults.iter().map(|it| it.ends).fold(0.0, f64::max);
        let levels = self.nodes.iter().map(|it| it.level).max().unwrap_or(0);
        let rest = 1.5 * self.lease + 2.0 * self.election + 5.0 * levels as f64;
        let seconds = (ends + rest).ceil();
        let (lease, refresh) = (self.lease, self.refresh);
        let kind = match self.rng.u8(..3) {
            0 => "PROPORTIONAL_SHARE",
            _ => "FAIR_SHARE",
        };
        let has_election = self.nodes.iter().any(|it| it.servers > 1);
        let election = if has_election {
            format!(", election_lease: {}", self.election)
        } else {
            String::new()
        };
        let servers = self.nodes[0].servers;
        let nodes = self.nodes_yaml();
        let clients = self.clients.iter().map(|it| {
            let Clients {
                name,
                node,
                count,
                demand,
            } = it;
            format!(
                "  - {{name: {name}, node: {node}, count: {count}, resource: db, \
                 demand: {{{demand}}}}}\n"
            )
        });
        let clients: String = clients.collect();
        let network = self.network_yaml();
        let drift = *self.rng.choice(&[0.0, 0.0, 0.01, 0.05]).unwrap_or(&0.0);
        let hints = self.rng.bool();
        let mut text = format!(
            "title: aimed scenario {number}\nseconds: {seconds}\nservers: {{count: {servers}\
             {election}}}\n{nodes}document:\n  resources:\n    - identifier_glob: db\n      \
             capacity: {CAPACITY}\n      algorithm: {{kind: {kind}, lease_length: {lease}, \
             refresh_interval: {refresh}}}\nclients:\n{clients}network: {network}\n\
             clock_drift: {drift}\nhints: {hints}\nfaults:\n"
        );
        self.faults.sort_by(|a, b| a.at.total_cmp(&b.at));
        for Fault {
            at, text: fault, ..
        } in &self.faults
        {
            // Writing to a string cannot fail.
            let _infallible = writeln!(text, "  - {{at: {at}, {fault}}}");
        }
        text
    }

    /// The nodes below the root.
    fn nodes_yaml(&self) -> String {
        let of_level = |level: usize| self.nodes.iter().filter(move |it| it.level == level);
        let below = of_level(2).map(|it| {
            let (name, servers) = (it.name, it.servers);
            format!(", nodes: [{{name: {name}, servers: {servers}}}]")
        });
        // Only the first one has others below it.
        let below: String = below.collect();
        let below = iter::once(below.as_str()).chain(iter::repeat(""));
        let nodes = of_level(1).zip(below).map(|(it, below)| {
            let (name, servers) = (it.name, it.servers);
            format!("  - {{name: {name}, servers: {servers}{below}}}\n")
        });
        let nodes: String = nodes.collect();
        if nodes.is_empty() {
            nodes
        } else {
            format!("nodes:\n{nodes}")
        }
    }

    fn network_yaml(&mut self) -> String {
        let rng = &mut self.rng;
        let (jitter, loss, duplication) = match rng.u8(..4) {
            0 | 1 => (0.0, 0.0, 0.0),
            2 => (0.5 * rng.f64(), 0.05 * rng.f64(), 0.1 * rng.f64()),
            _ => (3.0 * rng.f64() * rng.f64(), 0.02, 0.05),
        };
        let (jitter, loss, duplication) = (rounded(jitter), rounded(loss), rounded(duplication));
        format!("{{delay: 0.005, jitter: {jitter}, loss: {loss}, duplication: {duplication}}}")
    }
}

fn between(least: f64, most: f64, rng: &mut Rng) -> f64 {
    least + (most - least) * rng.f64()
}

/// To milliseconds, so that a file is short.
fn rounded(seconds: f64) -> f64 {
    (1000.0 * seconds).round() / 1000.0
}
