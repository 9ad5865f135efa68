//! Targets of a run with random faults, and what clients say of their requests to them.
//!
//! Clients of such a run state their demand. Each half second they send the requests that their
//! leases allow, so that a run costs little.

use doorman_openapi::{Capacity, CapacityRequest, Moment};
use fastrand::Rng;
use tower_doorman::Outcome;

use super::{Simulation, invariants::BrokenInvariant, targets::claimed_outcome};
use crate::{
    event_queue::Event,
    extras::Extra,
    limits::{self, LimitFeedback, RESOURCES, resource_id, resource_index},
    report::Invariant,
    scenario::{
        Claims, FaultKind, RateLimit, ScenarioTarget, Steps, TargetKind,
        steps::{Fault, Length, ServerChoice, Step},
    },
    target::{OwnLimit, Target, TargetResponse},
    totals::RequestTotals,
};

/// Seconds between two batches of requests.
const BATCH: f64 = 0.5;
/// The most requests of a client in a batch.
const MOST_REQUESTS: f64 = 500.0;
/// The longest time from a cut to a fault that is aimed at it, in seconds.
const AIMED: f64 = 2.0;
/// The part by which an effective capacity must change to be another one.
const CHANGE: f64 = 0.01;
/// Relative tolerance of amounts.
const TOLERANCE: f64 = 1e-9;
/// The longest reset and pause that a client invents, in seconds.
const LONGEST_RESET: f64 = 100.0;
const LONGEST_PAUSE: f64 = 3600.0;

/// Targets, and what clients say of them.
pub(super) struct FeedbackFaults {
    rng: Rng,
    targets: [Option<RunningTarget>; RESOURCES],
    /// Of each client; empty in runs without targets.
    claims: Vec<OutcomeClaims>,
    /// The effective capacity of each resource at the newest master of the root, as a part of the
    /// configured one.
    parts: [f64; RESOURCES],
    /// When it was 0 last.
    paused: [Option<Moment>; RESOURCES],
}

/// A target, which reads its settings by the seconds since it has begun.
struct RunningTarget {
    target: Target,
    since: Moment,
    /// Seconds that a request to a gauge takes.
    seconds: f64,
}

/// The statements of a client about its requests.
#[derive(Clone, Copy, Default)]
struct OutcomeClaims {
    /// `None`: the truth.
    outcome: Option<Claims>,
    /// Whether it states pauses and limits that the target has not told.
    invents: bool,
}

impl FeedbackFaults {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed.rotate_left(48)),
            targets: std::array::from_fn(|_| None),
            claims: Vec::new(),
            parts: [1.0; RESOURCES],
            paused: [None; RESOURCES],
        }
    }

    /// A target that accepts up to one and a half times the capacity, or nothing.
    fn draw_target(&mut self, capacity: f64, time: Moment) -> RunningTarget {
        let rng = &mut self.rng;
        let rate = match rng.u8(..8) {
            0 => 0.0,
            1 => 3.0 * rng.f64(),
            _ => 1.5 * capacity * rng.f64(),
        };
        let constant = |value: f64| Steps::new(vec![(0.0, value)]);
        let limit = RateLimit {
            rate: constant(rate),
            foreign: constant(if rng.bool() {
                0.0
            } else {
                0.4 * rate * rng.f64()
            }),
            headers: rng.u8(..3) == 0,
            retry_after: rng.u8(..3) == 0,
        };
        let latency = 0.02 + 0.2 * rng.f64();
        let kind = match rng.u8(..8) {
            0..5 => TargetKind::Bucket {
                limit,
                burst: 2.0 * rng.f64(),
            },
            5 | 6 => TargetKind::Window {
                limit,
                seconds: 1.0 + 60.0 * rng.f64(),
            },
            _ => TargetKind::Workers {
                workers: constant((rate * latency).ceil()),
                queue: rng.bool().then_some(0.25),
            },
        };
        let settings = ScenarioTarget {
            resource: 0,
            kind,
            always: if rng.u8(..6) == 0 { rng.f64() } else { 0.0 },
            latency,
        };
        RunningTarget {
            target: Target::new(&settings, rng.fork()),
            since: time,
            seconds: 0.2 + 1.8 * rng.f64(),
        }
    }

    /// A third of the clients do not tell the truth.
    fn draw_claims(&mut self) -> OutcomeClaims {
        let rng = &mut self.rng;
        OutcomeClaims {
            outcome: match rng.u8(..12) {
                0 => Some(Claims::Refused(1.0)),
                1 => Some(Claims::Served),
                2 => Some(Claims::Refused(rng.f64())),
                _ => None,
            },
            invents: rng.u8(..8) == 0,
        }
    }

    /// The outcome of a request as a client tells it, which may change what the target told.
    fn claim(&mut self, client: usize, response: &mut TargetResponse) -> Outcome {
        let claims = self.claims[client];
        let rng = &mut self.rng;
        if claims.invents && rng.u8(..8) == 0 {
            response.retry_after = Some(LONGEST_PAUSE * rng.f64().powi(4));
            response.seen = Some(OwnLimit {
                remaining: 200.0 * rng.f64() * rng.f64(),
                reset: LONGEST_RESET * rng.f64(),
            });
        }
        claimed_outcome(response.result, claims.outcome, rng)
    }
}

impl Simulation {
    /// Gives most resources `feedback` and all of them targets, before the run begins.
    pub(super) fn add_feedback(&mut self) {
        let feedback = &mut self.extras.feedback;
        for limit in &mut self.limits {
            let is_held_back = feedback.rng.u8(..5) > 0;
            limit.feedback = is_held_back.then(|| LimitFeedback::random(&mut feedback.rng));
        }
        for client in &mut self.clients {
            let claims = feedback.draw_claims();
            feedback.claims.push(claims);
            // Some have an earlier version.
            let reports = feedback.rng.u8(..10) > 0;
            client.totals = reports.then(|| vec![RequestTotals::default(); RESOURCES]);
        }
        for resource in 0..self.limits.len() {
            self.change_target(resource);
        }
        self.after(BATCH, Event::Traffic);
    }

    /// Ends the faults of targets. Nothing may be held back from now on: templates have no
    /// `feedback`, or one that only shows.
    pub(super) fn stop_feedback(&mut self) {
        let rng = &mut self.extras.feedback.rng;
        for limit in &mut self.limits {
            limit.feedback = rng.bool().then(|| LimitFeedback {
                acts: false,
                ..LimitFeedback::random(rng)
            });
        }
        self.document = limits::document(&self.limits);
    }

    pub(super) fn change_target(&mut self, resource: usize) {
        let capacity = self.limits[resource].capacity;
        let target = self.extras.feedback.draw_target(capacity, self.time);
        self.extras.feedback.targets[resource] = Some(target);
        self.record(|| format!("resource {resource} has another target"));
    }

    pub(super) fn change_claims(&mut self, client: usize) {
        let claims = self.extras.feedback.draw_claims();
        self.extras.feedback.claims[client] = claims;
    }

    /// Lets a client that invents limits of targets echo another effective capacity than it was
    /// told.
    pub(super) fn invent_effective(&mut self, client: usize, request: &mut CapacityRequest) {
        let feedback = &mut self.extras.feedback;
        if !feedback.claims.get(client).is_some_and(|it| it.invents) {
            return;
        }
        for asked in &mut request.resources {
            let capacity = self.limits[resource_index(&asked.resource_id)].capacity;
            if let Some(has) = &mut asked.has {
                let effective = 2.0 * capacity * feedback.rng.f64();
                has.effective = Some(Capacity::saturating(effective));
            }
        }
    }

    /// Sends the requests of half a second to the targets, and lets the ledgers of the root do what
    /// is due.
    pub(super) fn send_traffic(&mut self) {
        self.after(BATCH, Event::Traffic);
        for resource in 0..self.limits.len() {
            self.send_to(resource);
        }
        for server in self.nodes[0].servers.clone() {
            if self.servers[server].is_running() {
                self.servers[server].sweep(self.time);
            }
        }
    }

    fn send_to(&mut self, resource: usize) {
        let feedback = &mut self.extras.feedback;
        let Some(running) = &mut feedback.targets[resource] else {
            return;
        };
        let mut senders = Vec::new();
        for (index, client) in self.clients.iter_mut().enumerate() {
            let Some(wants) = client.wants[resource].filter(|_| client.is_running()) else {
                continue;
            };
            let usable = client.usable[resource].at(self.time);
            let per_second = if client.units[resource].is_gauge() {
                1.0 / running.seconds
            } else {
                1.0
            };
            let Some(totals) = &mut client.totals else {
                continue;
            };
            let batch = BATCH * per_second;
            let requests = (batch * wants.min(usable)).min(MOST_REQUESTS);
            let admitted = totals[resource].admit(requests, batch * (wants - usable).max(0.0));
            senders.extend(std::iter::repeat_n(index, admitted));
        }
        feedback.rng.shuffle(&mut senders);
        let begin = self.time.seconds_since(running.since);
        let seconds = running.seconds;
        let count = senders.len() as f64;
        let mut overloaded = vec![false; self.clients.len()];
        for (number, index) in senders.into_iter().enumerate() {
            let at = begin + BATCH * number as f64 / count;
            let Some(running) = &mut self.extras.feedback.targets[resource] else {
                return;
            };
            let mut response = running.target.request(at);
            let outcome = self.extras.feedback.claim(index, &mut response);
            overloaded[index] |= outcome == Outcome::Overloaded;
            let client = &mut self.clients[index];
            let now = client.clock.local(self.time);
            if let Some(totals) = &mut client.totals {
                totals[resource].count(outcome, &response, seconds, now);
            }
        }
        for index in (0..self.clients.len()).filter(|it| overloaded[*it]) {
            let effects = self.clients[index].on_overload(resource, self.time);
            self.apply(index, effects);
        }
    }

    /// Checks the effective capacities at all masters of the root.
    pub(super) fn check_feedback(&mut self) -> Result<(), BrokenInvariant> {
        if !self.extras.include(Extra::Feedback) {
            return Ok(());
        }
        let newest = self.newest_master(0);
        for server in self.nodes[0].servers.clone() {
            for resource in 0..self.limits.len() {
                let id = resource_id(resource);
                let Some(state) = self.servers[server].effective_state(&id, self.time) else {
                    continue;
                };
                let effective = state.effective.unwrap_or(state.capacity);
                let broken = if effective > state.capacity * (1.0 + TOLERANCE) {
                    Some(Invariant::EffectiveCapacity)
                } else if state
                    .floor
                    .is_some_and(|it| effective < it * (1.0 - TOLERANCE))
                {
                    Some(Invariant::EffectiveFloor)
                } else if state.holds_back_without_feedback() {
                    Some(Invariant::NothingHeldBack)
                } else {
                    None
                };
                if let Some(invariant) = broken {
                    return Err(BrokenInvariant {
                        invariant,
                        detail: format!("{id}: server {server} has {state:?}"),
                    });
                }
                if newest == Some(server) {
                    self.note_effective(server, resource, effective / state.capacity);
                }
            }
        }
        Ok(())
    }

    /// Counts a change of an effective capacity, and sometimes aims a fault at a cut.
    fn note_effective(&mut self, server: usize, resource: usize, part: f64) {
        let feedback = &mut self.extras.feedback;
        if part == 0.0 {
            feedback.paused[resource] = Some(self.time);
        }
        let before = feedback.parts[resource];
        if (part - before).abs() <= CHANGE * before {
            return;
        }
        feedback.parts[resource] = part;
        self.stats.feedback_pauses += u64::from(part == 0.0);
        self.record(|| format!("server {server}: {part} of resource {resource} is effective"));
        if part > before {
            self.stats.effective_raises += 1;
            return;
        }
        self.stats.effective_cuts += 1;
        let rng = &mut self.extras.feedback.rng;
        if !self.network.is_hostile() || rng.u8(..8) > 0 {
            return;
        }
        self.stats.faults_at_cuts += 1;
        let (at, length) = (
            AIMED * rng.f64() * rng.f64(),
            Length::Seconds(AIMED * rng.f64()),
        );
        let step = if rng.bool() {
            Step::ChangeTarget { resource }
        } else {
            Step::Fault(Fault {
                server: Some(ServerChoice::Number(server)),
                ..Fault::new(FaultKind::CrashServer, length)
            })
        };
        self.after(at, Event::Step(step));
    }

    /// Whether a resource may have had nothing to lease at the root, when its holders were told
    /// what they have.
    pub(super) fn was_paused(&self, resource: usize) -> bool {
        let paused = self.extras.feedback.paused[resource];
        let lasting = self.levels() * self.longest_lease;
        paused.is_some_and(|it| self.time.seconds_since(it) < lasting)
    }
}
