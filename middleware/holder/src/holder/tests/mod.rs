//! The state machine by example.

mod failures;
mod feedback;
mod hints;
mod properties;
mod rate_limited;
mod requests;
mod responses;
mod status;

use std::time::Duration;

use doorman_openapi::{
    Capacity, CapacityRequest, CapacityResponse, ClientId, Epoch, Moment, NodeId, Reason,
    ReleaseRequest, ResourceId, ResourceResponse, Run, SafeCapacity, Seconds, Seq,
};

use super::{Holder, HolderSettings};
use crate::{
    event::{Demand, Effect, Event, Failure, Feedback, FirstAnswer, LeaseStatus, Warning},
    testing::{answer, grant, grant_all, id, response},
};

struct Sent {
    seq: Seq,
    endpoint: usize,
    request: CapacityRequest,
    timeout: Duration,
}

/// A holder, its time and its effects so far.
struct Script {
    holder: Holder,
    now: Moment,
    effects: Vec<Effect>,
}

impl Script {
    fn new(endpoints: usize) -> Self {
        let mut holder = Holder::new(HolderSettings {
            client_id: ClientId::new("shop-1").unwrap(),
            run: Run::new(7).ok(),
            replaces: Vec::new(),
            endpoints,
            seed: 1,
        });
        holder.begin_at(0);
        Self {
            holder,
            now: Moment::from_nanos(1),
            effects: Vec::new(),
        }
    }

    /// Wants 10 of `db` and has been granted 10 for 20 s.
    fn leased(endpoints: usize) -> Self {
        let mut script = Self::new(endpoints);
        script.want("db", 10.0);
        let sent = script.next_request();
        script.answer(&sent, grant_all(&sent.request, 10.0));
        script
    }

    fn handle(&mut self, event: Event) {
        let effects = self.holder.handle(event, self.now);
        self.effects.extend(effects);
    }

    fn want(&mut self, resource: &str, wants: f64) {
        self.want_with(resource, wants, None);
    }

    fn want_with(&mut self, resource: &str, wants: f64, feedback: Option<Feedback>) {
        self.handle(Event::Demand {
            resource: id(resource),
            demand: Demand {
                outstanding: Capacity::ZERO,
                wants: Capacity::new(wants).unwrap(),
                used: Capacity::new(1.0).unwrap(),
                priority: 3,
                bands: None,
                limited_as: None,
                bucket: None,
                feedback,
            },
        });
    }

    fn answer(&mut self, sent: &Sent, response: CapacityResponse) {
        self.handle(Event::Answered {
            seq: sent.seq,
            response,
        });
    }

    fn fail(&mut self, sent: &Sent, failure: Failure) {
        self.handle(Event::Failed {
            seq: sent.seq,
            failure,
        });
    }

    fn unavailable(&mut self, sent: &Sent) {
        self.fail(sent, Failure::Unavailable { retry_after: None });
    }

    fn pass(&mut self, seconds: f64) {
        self.now = self.now.after_seconds(seconds);
    }

    /// Ticks until there is nothing more to do now and returns the requests sent.
    fn requests(&mut self) -> Vec<Sent> {
        let before = self.effects.len();
        while self.holder.wake_at() <= self.now {
            self.handle(Event::Tick);
        }
        self.effects[before..].iter().filter_map(sent).collect()
    }

    /// Advances the time until the next request is sent.
    fn next_request(&mut self) -> Sent {
        for _ in 0..1000 {
            if let Some(sent) = self.requests().pop() {
                return sent;
            }
            self.now = self.now.max(self.holder.wake_at());
        }
        panic!("no further request");
    }

    fn in_flight(&self) -> usize {
        self.holder.in_flight.len()
    }

    fn pause(&self) -> f64 {
        self.holder.wake_at().seconds_since(self.now)
    }

    fn status(&self, resource: &str) -> LeaseStatus {
        self.effects
            .iter()
            .rev()
            .find_map(|effect| match effect {
                Effect::Changed {
                    resource: changed,
                    status,
                } if changed.as_str() == resource => Some(status.clone()),
                _ => None,
            })
            .unwrap()
    }

    fn capacity(&self, resource: &str) -> Option<f64> {
        let lease = self.status(resource).lease;
        lease.map(|lease| lease.capacity.get())
    }

    fn warnings(&self) -> Vec<&Warning> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Warn(warning) => Some(warning),
                _ => None,
            })
            .collect()
    }

    fn releases(&self) -> Vec<&ReleaseRequest> {
        self.effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::SendRelease { request, .. } => Some(request),
                _ => None,
            })
            .collect()
    }
}

fn sent(effect: &Effect) -> Option<Sent> {
    match effect {
        Effect::Send {
            seq,
            endpoint,
            request,
            timeout,
        } => Some(Sent {
            seq: *seq,
            endpoint: *endpoint,
            request: request.clone(),
            timeout: *timeout,
        }),
        _ => None,
    }
}

fn names(sent: &Sent) -> Vec<&str> {
    let resources = sent.request.resources.iter();
    resources.map(|asked| asked.resource_id.as_str()).collect()
}

fn has(sent: &Sent) -> Option<f64> {
    sent.request.resources[0]
        .has
        .map(|held| held.capacity.get())
}

fn with(
    mut answer: ResourceResponse,
    change: impl FnOnce(&mut ResourceResponse),
) -> ResourceResponse {
    change(&mut answer);
    answer
}

fn seconds(seconds: f64) -> Seconds {
    Seconds::new(seconds).unwrap()
}
