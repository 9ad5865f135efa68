//! The targets of a scenario, and the way of requests to them.

use doorman_openapi::{Capacity, Moment, Seconds, Seen};
use fastrand::Rng;
use tower_doorman::{Outcome, OutcomeReport, Permit};

use super::Simulation;
use crate::{
    event_queue::ResponseToClient,
    network::Process,
    scenario::{Claims, Resource, Scenario},
    target::{LossyNetwork, Target, TargetResponse, TargetResult},
};

/// The targets of a scenario; none in other runs.
#[derive(Default)]
pub(crate) struct Targets {
    /// Of each resource that has one.
    of_resources: Vec<Option<Target>>,
    groups: Vec<Group>,
    /// The group of each client.
    group_of: Vec<usize>,
}

/// Clients of the same kind.
struct Group {
    /// The resource of each slot.
    resources: Vec<usize>,
    claims: Option<Claims>,
    /// For claims.
    rng: Rng,
    network: Option<LossyNetwork>,
}

impl Targets {
    pub(super) fn new(seed: u64, scenario: &Scenario) -> Self {
        let mut rng = Rng::with_seed(seed.rotate_left(16));
        let count = scenario.resources().len();
        let mut of_resources: Vec<_> = (0..count).map(|_| None).collect();
        for target in &scenario.targets {
            of_resources[target.resource] = Some(Target::new(target, rng.fork()));
        }
        let groups = scenario.groups.iter().map(|it| Group {
            resources: it.resources.clone(),
            claims: it.claims,
            rng: rng.fork(),
            network: it.passes.map(LossyNetwork::new),
        });
        let members = scenario.groups.iter().enumerate();
        let members = members.flat_map(|(index, it)| std::iter::repeat_n(index, it.count));
        Self {
            of_resources,
            groups: groups.collect(),
            group_of: members.collect(),
        }
    }

    /// The target of a resource.
    pub(crate) fn of_resource(&self, resource: usize) -> Option<&Target> {
        self.of_resources.get(resource)?.as_ref()
    }

    /// The response to a request of a client, if it has a target.
    fn request(&mut self, client: usize, slot: usize, now: f64) -> Option<TargetResponse> {
        let group = &mut self.groups[self.group_of[client]];
        let target = self.of_resources[group.resources[slot]].as_mut()?;
        if let Some(network) = &mut group.network
            && let Some(refusal) = network.refusal(now)
        {
            target.history.record(now, &refusal);
            return Some(refusal);
        }
        Some(target.request(now))
    }

    /// The outcome as the client tells it, and its report.
    fn report(&mut self, client: usize, response: &TargetResponse) -> (Outcome, OutcomeReport) {
        let group = &mut self.groups[self.group_of[client]];
        let outcome = claimed_outcome(response.result, group.claims, &mut group.rng);
        let mut report = OutcomeReport::new(outcome);
        if let Some(seconds) = response
            .retry_after
            .filter(|_| outcome == Outcome::Overloaded)
        {
            report = report.pause(Seconds::saturating(seconds).duration());
        }
        let seen = response.seen.and_then(|it| {
            let remaining = Capacity::saturating(it.remaining);
            Seen::new(remaining, Seconds::saturating(it.reset))
        });
        let report = match seen {
            Some(seen) => report.seen(seen),
            None => report,
        };
        (outcome, report)
    }
}

/// The outcome of a request as a client with these claims tells it.
pub(super) fn claimed_outcome(
    result: TargetResult,
    claims: Option<Claims>,
    rng: &mut Rng,
) -> Outcome {
    match (result, claims) {
        (TargetResult::Served, Some(Claims::Refused(part))) if rng.f64() < part => {
            Outcome::Overloaded
        }
        (TargetResult::Served, _) | (TargetResult::Refused, Some(Claims::Served)) => Outcome::Ok,
        (TargetResult::Refused, _) => Outcome::Overloaded,
        (TargetResult::TimedOut, _) => Outcome::Failed,
    }
}

impl Simulation {
    /// The effective capacity of each resource at the root's master, where it has one.
    pub(crate) fn effective(&mut self, resources: &[Resource]) -> Vec<Option<f64>> {
        let (master, time) = (self.master_of(0), self.time);
        let of = |it: &Resource| self.servers.get_mut(master?)?.effective(&it.id, time);
        resources.iter().map(of).collect()
    }

    /// Sends an admitted request to the target of its resource.
    pub(super) fn send_to_target(
        &mut self,
        client: usize,
        limit: usize,
        slot: usize,
        permit: Option<Permit>,
    ) {
        let now = self.time.seconds_since(Moment::ORIGIN);
        if let Some(response) = self.targets.request(client, slot, now) {
            let at = self.time.after_seconds(response.after);
            let event = ResponseToClient {
                client: client as u32,
                incarnation: self.clients[client].incarnation,
                limit: limit as u32,
                permit,
                response,
            };
            self.events.push_response(at, event);
        }
    }

    /// Tells a client the response of a target, unless it has crashed since.
    pub(super) fn on_target_response(&mut self, arrived: ResponseToClient) {
        let index = arrived.client as usize;
        let client = &mut self.clients[index];
        if client.is_up && client.incarnation == arrived.incarnation {
            let (outcome, report) = self.targets.report(index, &arrived.response);
            let limit = arrived.limit as usize;
            client.end_request(limit, arrived.permit, outcome, &report, self.time);
            self.schedule_wake(Process::Client(index));
        }
    }
}
