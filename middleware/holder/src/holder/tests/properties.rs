//! Invariants of the state machine for any sequence of events.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use doorman_openapi::{
    Capacity, CapacityResponse, ClientId, Epoch, HintsResponse, Moment, NodeId, Reason, ResourceId,
    Seconds, Seq,
};
use proptest::prelude::*;

use crate::{
    event::{Demand, Effect, Event, Failure},
    holder::{Holder, HolderSettings},
    testing::{grant, id, response},
};

#[derive(Debug, Clone)]
enum Step {
    Pass(f64),
    Want(u8, f64),
    Forget(u8),
    Answer {
        /// The request, newest first; ended ones too.
        request: usize,
        capacity: f64,
        length: f64,
        refresh: f64,
        pending: bool,
        epoch: u64,
        foreign: bool,
        leave_out: usize,
        twice: bool,
    },
    Fail(usize, Failure),
    EndPoll(PollEnd),
    Stop,
}

#[derive(Debug, Clone)]
enum PollEnd {
    Hints { epoch: u64, leaving: bool },
    Unsupported,
    Failed(Failure),
}

fn poll_end() -> impl Strategy<Value = PollEnd> {
    prop_oneof![
        4 => (5..9_u64, any::<bool>())
            .prop_map(|(epoch, leaving)| PollEnd::Hints { epoch, leaving }),
        1 => Just(PollEnd::Unsupported),
        2 => failure().prop_map(PollEnd::Failed),
    ]
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        Just(Failure::Unavailable { retry_after: None }),
        Just(Failure::TooLarge),
        prop::option::of(0..100_u64).prop_map(|seconds| Failure::RateLimited {
            retry_after: seconds.map(Duration::from_secs)
        }),
        (0..3_usize).prop_map(|to| Failure::Redirected { to: Some(to) }),
        Just(Failure::Redirected { to: None }),
        prop::collection::vec(0..5_usize, 0..3)
            .prop_map(|positions| Failure::Rejected { positions }),
    ]
}

fn answer() -> impl Strategy<Value = Step> {
    (
        (0..4_usize, 0.0..100.0, 0.0..30.0, 0.0..10.0),
        (prop::bool::weighted(0.2), 5..9_u64),
        (prop::bool::weighted(0.1), 0..6_usize, any::<bool>()),
    )
        .prop_map(
            |(
                (request, capacity, length, refresh),
                (pending, epoch),
                (foreign, leave_out, twice),
            )| Step::Answer {
                request,
                capacity: f64::round(capacity / 20.0),
                length: if length < 1.0 { 0.0 } else { length },
                refresh,
                pending,
                epoch,
                foreign,
                leave_out,
                twice,
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0.0..3.0_f64).prop_map(Step::Pass),
        2 => (20.0..60.0_f64).prop_map(Step::Pass),
        4 => (0..5_u8, 0.0..1000.0_f64).prop_map(|(resource, wants)| Step::Want(resource, wants)),
        1 => (0..5_u8).prop_map(Step::Forget),
        8 => answer(),
        3 => (0..4_usize, failure()).prop_map(|(request, failure)| Step::Fail(request, failure)),
        3 => poll_end().prop_map(Step::EndPoll),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    (prop::collection::vec(step(), 1..120), any::<bool>()).prop_map(|(mut steps, stop)| {
        if stop {
            steps.push(Step::Stop);
        }
        steps
    })
}

struct Request {
    seq: Seq,
    resources: Vec<ResourceId>,
    sent: Moment,
    deadline: Moment,
    over: bool,
}

/// Plays steps and checks the invariants after each.
struct Referee {
    holder: Holder,
    now: Moment,
    last_seq: Option<Seq>,
    requests: Vec<Request>,
    /// Requests that were sent before their resource was forgotten.
    forgotten: HashSet<(Seq, ResourceId)>,
    /// The leases in responses to the newest request for a resource.
    offered: HashMap<ResourceId, Vec<(Capacity, Moment)>>,
    has_poll: bool,
}

impl Referee {
    fn new() -> Self {
        Self {
            holder: Holder::new(HolderSettings {
                client_id: ClientId::new("client").unwrap(),
                run: None,
                replaces: Vec::new(),
                endpoints: 3,
                seed: 3,
            })
            .polling(true),
            now: Moment::from_nanos(1),
            last_seq: None,
            requests: Vec::new(),
            forgotten: HashSet::new(),
            offered: HashMap::new(),
            has_poll: false,
        }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Pass(seconds) => self.pass(seconds),
            Step::Want(resource, wants) => self.handle(Event::Demand {
                resource: id(&resource.to_string()),
                demand: Demand {
                    wants: Capacity::new(wants).unwrap(),
                    ..Demand::default()
                },
            }),
            Step::Forget(resource) => {
                let resource = id(&resource.to_string());
                self.forgotten.extend(
                    self.requests
                        .iter()
                        .map(|request| (request.seq, resource.clone())),
                );
                self.handle(Event::Forget { resource });
            }
            Step::Answer { .. } => self.answer(&step),
            Step::Fail(request, failure) => {
                if let Some(seq) = self.end(request) {
                    self.handle(Event::Failed { seq, failure });
                }
            }
            Step::Stop => {
                self.handle(Event::Stop);
                assert_eq!(self.holder.wake_at(), Moment::NEVER);
                assert!(!self.has_poll, "closed");
            }
            Step::EndPoll(end) => {
                if std::mem::take(&mut self.has_poll) {
                    self.end_poll(end);
                }
            }
        }
        self.tick();
    }

    fn end_poll(&mut self, end: PollEnd) {
        let endpoint = 0;
        match end {
            PollEnd::Hints { epoch, leaving } => {
                let hints = HintsResponse {
                    node: NodeId::new("root").unwrap(),
                    epoch: Epoch::new(epoch).unwrap(),
                    after: 1,
                    refresh: Vec::new(),
                    all: true,
                    rules: false,
                    leaving,
                };
                self.holder.end_poll(&hints, self.now);
                self.handle(Event::Hinted { endpoint, hints });
            }
            PollEnd::Unsupported => self.handle(Event::PollUnsupported),
            PollEnd::Failed(failure) => self.handle(Event::PollFailed { endpoint, failure }),
        }
    }

    /// Advances the time, ticking whenever the holder wants to.
    fn pass(&mut self, seconds: f64) {
        let end = self.now.after_seconds(seconds);
        while self.holder.wake_at() <= end {
            self.now = self.now.max(self.holder.wake_at());
            self.tick();
        }
        self.now = end;
    }

    fn tick(&mut self) {
        for _ in 0..50 {
            if self.holder.wake_at() > self.now {
                return;
            }
            self.handle(Event::Tick);
        }
        panic!("does not come to rest");
    }

    /// Marks a request as ended.
    fn end(&mut self, newest: usize) -> Option<Seq> {
        let request = self.requests.iter_mut().rev().nth(newest)?;
        request.over = true;
        Some(request.seq)
    }

    fn newest(&self, resource: &ResourceId) -> Option<&Request> {
        let mut requests = self.requests.iter().rev();
        requests.find(|request| request.resources.contains(resource))
    }

    fn answer(&mut self, step: &Step) {
        let Step::Answer {
            request,
            capacity,
            length,
            refresh,
            pending,
            epoch,
            foreign,
            leave_out,
            twice,
        } = *step
        else {
            return;
        };
        let Some(seq) = self.end(request) else {
            return;
        };
        let request = self.requests.iter().find(|request| request.seq == seq);
        let request = request.unwrap();
        let mut answers = Vec::new();
        for (position, resource) in request.resources.iter().rev().enumerate() {
            let mut answer = grant(resource.as_str(), capacity + position as f64);
            answer.gets.lease_length = Seconds::new(length).unwrap();
            answer.gets.refresh_interval = Seconds::new(refresh).unwrap();
            if pending {
                answer.reason = Reason::Pending;
            }
            if self.newest(resource).unwrap().seq == seq {
                let lease = (
                    answer.gets.capacity,
                    request.sent.after(answer.gets.lease_length.duration()),
                );
                self.offered
                    .entry(resource.clone())
                    .or_default()
                    .push(lease);
            }
            answers.extend(std::iter::repeat_n(answer, if twice { 2 } else { 1 }));
        }
        if leave_out < answers.len() {
            answers.remove(leave_out);
        }
        answers.push(grant("never requested", 99.0));
        self.handle(Event::Answered {
            seq,
            response: CapacityResponse {
                warnings: Vec::new(),
                node: NodeId::new(if foreign { "other" } else { "root" }).unwrap(),
                epoch: Epoch::new(epoch).unwrap(),
                ..response(answers)
            },
        });
    }

    fn handle(&mut self, event: Event) {
        for effect in self.holder.handle(event, self.now) {
            match effect {
                Effect::Send {
                    seq,
                    request,
                    timeout,
                    endpoint,
                } => {
                    self.check_seq(seq, request.seq);
                    assert!(endpoint < 3);
                    let resources = request.resources.into_iter();
                    let resources: Vec<_> = resources.map(|asked| asked.resource_id).collect();
                    self.sent(seq, resources, self.now.after(timeout));
                }
                Effect::SendRelease { seq, request, .. } => self.check_seq(seq, request.seq),
                Effect::Changed { resource, status } => {
                    let Some(lease) = status.lease else {
                        continue;
                    };
                    assert!(lease.ends > self.now, "expired");
                    let offered = &self.offered[&resource];
                    assert!(
                        offered.contains(&(lease.capacity, lease.ends)),
                        "{resource}: {lease:?} was never granted"
                    );
                }
                Effect::OpenPoll { endpoint, .. } => {
                    assert!(endpoint < 3);
                    assert!(!self.has_poll, "one poll at a time");
                    self.has_poll = true;
                }
                Effect::ClosePoll => {
                    assert!(self.has_poll, "no poll is open");
                    self.has_poll = false;
                }
                Effect::Warn(_) => {}
            }
        }
    }

    fn check_seq(&mut self, seq: Seq, stated: Option<Seq>) {
        assert_eq!(stated, Some(seq));
        assert!(self.last_seq < Some(seq), "sequence numbers grow");
        self.last_seq = Some(seq);
    }

    fn sent(&mut self, seq: Seq, resources: Vec<ResourceId>, deadline: Moment) {
        assert!(!resources.is_empty() && resources.len() <= 1000);
        let now = self.now;
        for (position, resource) in resources.iter().enumerate() {
            assert!(
                !resources[..position].contains(resource),
                "{resource} twice"
            );
            let mut in_flight = self
                .requests
                .iter()
                .filter(|request| !request.over && now < request.deadline)
                .filter(|request| !self.forgotten.contains(&(request.seq, resource.clone())));
            assert!(!in_flight.any(|request| request.resources.contains(resource)));
        }
        self.requests.push(Request {
            seq,
            resources,
            sent: now,
            deadline,
            over: false,
        });
    }
}

proptest! {
    #[test]
    fn invariants_hold_for_any_events(steps in steps()) {
        let mut referee = Referee::new();
        for step in steps {
            referee.play(step);
        }
    }
}
