//! A node that leases from three servers of its parent.

use std::collections::BTreeMap;
use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{
    Capacity, CapacityRequest, Hint, ReleaseRequest, ResourceRequest, ServerCapacityResponse,
};

use super::*;
use crate::ledger::{HolderId, Predecessor, ReleasePosition, Settings, UnmatchedPolicy};

const SETTINGS: Settings = Settings {
    max_leases: 1000,
    unmatched: UnmatchedPolicy::Grant,
    predecessor: Predecessor::None,
    epoch: Epoch::ZERO,
};

/// The servers of the parent.
const SERVERS: usize = 3;

/// The epoch of the parent.
const EPOCH: u64 = 7;

fn id(id: &str) -> ResourceId {
    ResourceId::new(id).unwrap()
}

fn epoch(epoch: u64) -> Epoch {
    Epoch::new(epoch).unwrap()
}

/// The node `eu` below the node `root`.
struct Link {
    root: Ledger,
    node: Ledger,
    upstream: Upstream,
    now: Moment,
    /// Effects beside requests.
    effects: Vec<Effect>,
}

#[derive(Debug, PartialEq)]
enum Poll {
    Open(usize),
    Close,
}

#[derive(Debug)]
struct Sent {
    seq: Seq,
    endpoint: usize,
    request: ServerCapacityRequest,
    at: Moment,
}

fn upstream(endpoints: usize, polls: bool) -> Upstream {
    let parent = ParentLink {
        node: NodeId::new("eu").unwrap(),
        endpoints,
        seed: 1,
        polls,
    };
    Upstream::new(parent, epoch(3))
}

impl Link {
    fn new() -> Self {
        Self::polling(false)
    }

    /// Polls for hints if `polls`.
    fn polling(polls: bool) -> Self {
        let now = Moment::ORIGIN.after_seconds(3600.0);
        let text = "resources: [{identifier_glob: '*', capacity: 100, \
                    algorithm: {kind: FAIR_SHARE, lease_length: 20, refresh_interval: 5}}]";
        let document = Arc::new(Document::parse(text).unwrap());
        Self {
            root: Ledger::new(Arc::clone(&document), SETTINGS, now),
            node: Ledger::new(document, SETTINGS, now).of_parent(),
            upstream: upstream(SERVERS, polls),
            now,
            effects: Vec::new(),
        }
    }

    fn handle(&mut self, event: Event) -> Option<Sent> {
        let now = self.now;
        let mut sent = None;
        for effect in self.upstream.handle(event, &mut self.node, now) {
            match effect {
                Effect::Send {
                    seq,
                    endpoint,
                    request,
                    timeout: _,
                } => {
                    let before = sent.replace(Sent {
                        seq,
                        endpoint,
                        request,
                        at: now,
                    });
                    assert!(before.is_none(), "one request at a time");
                }
                other => self.effects.push(other),
            }
        }
        sent
    }

    /// The polls that are opened and closed until nothing more is due.
    fn next_polls(&mut self) -> Vec<Poll> {
        while self.upstream.wake_at() <= self.now {
            assert!(self.handle(Event::Wake).is_none());
        }
        let effects = std::mem::take(&mut self.effects).into_iter();
        let polls = effects.filter_map(|effect| match effect {
            Effect::OpenPoll { endpoint, .. } => Some(Poll::Open(endpoint)),
            Effect::ClosePoll => Some(Poll::Close),
            _ => None,
        });
        polls.collect()
    }

    /// The next request to the parent within so many seconds. The time passes until then.
    fn next_request(&mut self, seconds: f64) -> Option<Sent> {
        let end = self.now.after_seconds(seconds);
        for _ in 0..100 {
            if let Some(sent) = self.handle(Event::Wake) {
                return Some(sent);
            }
            self.now = self.now.max(self.upstream.wake_at().min(end));
            if self.upstream.wake_at() > end {
                return None;
            }
        }
        panic!("does not come to rest");
    }

    /// The response of the parent to a request.
    fn response(&mut self, request: &ServerCapacityRequest) -> ServerCapacityResponse {
        let grants = self
            .root
            .refresh(&request.clone().into(), self.now)
            .into_iter();
        ServerCapacityResponse {
            warnings: Vec::new(),
            node: NodeId::new("root").unwrap(),
            epoch: epoch(EPOCH),
            level: 0,
            resources: grants.map(|it| it.into_server_response(0)).collect(),
        }
    }

    fn answer(&mut self, sent: &Sent) {
        let response = self.response(&sent.request);
        let seq = sent.seq;
        let more = self.handle(Event::Answered { seq, response });
        assert!(more.is_none(), "only a wake sends");
    }

    fn fail(&mut self, sent: &Sent, failure: Failure) {
        let seq = sent.seq;
        let more = self.handle(Event::Failed { seq, failure });
        assert!(more.is_none(), "only a wake sends");
    }

    /// A client registers its demand. Returns whether the parent must be asked first.
    fn register(&mut self, wants: f64, resources: &[&str]) -> bool {
        let request = of_client(wants, resources);
        let registered = self
            .node
            .register_part(&request.clone().into(), 0, self.now);
        registered.0
    }

    /// The client's lease now: its capacity and length.
    fn refresh(&mut self, wants: f64, resource: &str) -> (f64, f64) {
        let request = of_client(wants, &[resource]);
        let grant = self
            .node
            .refresh(&request.clone().into(), self.now)
            .remove(0);
        (grant.capacity.get(), grant.lease_length.get())
    }

    /// How much the parent leases, and for how long.
    fn leased(&self, resource: &str) -> (f64, f64) {
        let view = self.node.resource(&id(resource), self.now).unwrap();
        let parent = view.parent.unwrap();
        (parent.has.get(), parent.expires_in.get())
    }
}

fn of_client(wants: f64, resources: &[&str]) -> CapacityRequest {
    let resource = |resource: &&str| ResourceRequest {
        resource_id: id(resource),
        wants: Capacity::new(wants).unwrap(),
        priority: None,
        bands: None,
        has: None,
        outstanding: Capacity::ZERO,
        used: None,
        unit: None,
        limited_as: None,
        bucket: None,
        per: None,
        outcomes: None,
        pause: None,
        seen: None,
    };
    CapacityRequest {
        client_id: ClientId::new("a").unwrap(),
        run: None,
        seq: None,
        heard_epoch: None,
        polls: false,
        replaces: Vec::new(),
        resources: resources.iter().map(resource).collect(),
    }
}

/// A node that has leased 30 of `db`.
fn leased_link() -> Link {
    let mut link = Link::new();
    assert!(link.register(30.0, &["db"]));
    let sent = link.next_request(1.0).unwrap();
    link.answer(&sent);
    assert_eq!(link.leased("db"), (30.0, 20.0));
    link.refresh(30.0, "db");
    link
}

#[test]
fn redirect_to_another_server_is_followed_at_once() {
    let mut link = Link::new();
    link.register(30.0, &["db"]);
    let first = link.next_request(1.0).unwrap();
    // After a failure the node would ask the next one.
    let other = (first.endpoint + 2) % SERVERS;
    link.fail(&first, Failure::Redirected { to: Some(other) });
    let second = link.next_request(0.0).unwrap();
    assert_eq!(second.endpoint, other);
    assert!(second.seq > first.seq);
    assert_eq!(second.request.seq, Some(second.seq));
    assert_eq!(second.request.epoch, Some(epoch(3)));
    link.answer(&second);
    assert_eq!(link.leased("db"), (30.0, 20.0));
    // The node stays with the server that answers.
    link.refresh(30.0, "db");
    let next = link.next_request(5.0).unwrap();
    assert_eq!(next.endpoint, other);
    assert!(next.at > second.at);
    assert_eq!(next.request.heard_epoch, Some(epoch(EPOCH)));
}

#[test]
fn answer_after_the_timeout_is_ignored() {
    let mut link = Link::new();
    link.register(30.0, &["db"]);
    let first = link.next_request(1.0).unwrap();
    let late = link.response(&first.request);
    let second = link.next_request(5.0).unwrap();
    assert_eq!(second.endpoint, (first.endpoint + 1) % SERVERS);
    let seq = first.seq;
    assert!(
        link.handle(Event::Answered {
            seq,
            response: late
        })
        .is_none()
    );
    assert_eq!(link.leased("db"), (0.0, 0.0));
    assert!(link.register(30.0, &["db"]), "the parent has not answered");
    link.answer(&second);
    assert_eq!(link.leased("db").0, 30.0);
    assert!(!link.register(30.0, &["db"]));
}

#[test]
fn lease_counts_from_sending_of_its_request() {
    let mut link = Link::new();
    link.register(30.0, &["db"]);
    let sent = link.next_request(1.0).unwrap();
    link.now = link.now.after_seconds(1.5);
    link.answer(&sent);
    assert_eq!(link.leased("db"), (30.0, 18.5));
    let (capacity, length) = link.refresh(30.0, "db");
    assert_eq!(capacity, 30.0);
    assert!((length - 18.5 / 1.05).abs() < 1e-9, "{length}");
    // Clients have nothing beyond it. No later request is answered.
    let end = sent.at.after_seconds(20.0);
    while link.next_request(end.seconds_since(link.now)).is_some() {}
    assert_eq!(link.now, end);
    assert_eq!(link.refresh(30.0, "db"), (0.0, 0.0));
}

#[test]
fn rejected_resource_delays_no_other() {
    let mut link = Link::new();
    assert!(link.register(30.0, &["db", "secret"]));
    let first = link.next_request(1.0).unwrap();
    let asked = |sent: &Sent| -> Vec<ResourceId> {
        let resources = sent.request.resources.iter();
        resources.map(|it| it.resource_id.clone()).collect()
    };
    let position = asked(&first).iter().position(|it| *it == id("secret"));
    let positions = vec![position.unwrap()];
    link.fail(&first, Failure::Rejected { positions });
    let warnings = link.effects.iter().filter_map(|effect| match effect {
        Effect::Warn(warning) => Some(warning.clone()),
        _ => None,
    });
    let resource = id("secret");
    assert_eq!(
        warnings.collect::<Vec<_>>(),
        [Warning::Rejected { resource }]
    );
    // Its clients get no lease, without waiting.
    assert!(!link.register(30.0, &["secret"]));
    assert_eq!(link.refresh(30.0, "secret"), (0.0, 0.0));

    let second = link.next_request(0.0).unwrap();
    assert_eq!(asked(&second), [id("db")]);
    link.answer(&second);
    assert_eq!(link.leased("db"), (30.0, 20.0));
}

#[test]
fn resource_without_clients_is_released() {
    let mut link = leased_link();
    let held = |link: &Link| link.root.resource(&id("db"), link.now).map(|it| it.sum_has);
    assert_eq!(held(&link), Some(30.0));
    let release = ReleaseRequest {
        client_id: ClientId::new("a").unwrap(),
        run: None,
        seq: None,
        heard_epoch: None,
        resource_ids: None,
        tokens: BTreeMap::new(),
    };
    link.node.release(&release.clone().into(), link.now);
    link.effects.clear();
    assert!(link.handle(Event::Wake).is_none());
    let [
        Effect::Release {
            endpoint: _,
            request,
        },
    ] = &link.effects[..]
    else {
        panic!("{:?}", link.effects)
    };
    assert_eq!(request.resource_ids, Some(vec![id("db")]));
    assert_eq!(
        (request.node_id.as_str(), request.epoch),
        ("eu", Some(epoch(3)))
    );
    let released = link.root.release_part(
        &request.clone().into(),
        &|_| true,
        ReleasePosition::default(),
        link.now,
    );
    assert_eq!(released.released, 1);
    assert_eq!(held(&link).unwrap_or_default(), 0.0);
    assert!(link.next_request(60.0).is_none(), "nothing is wanted");
}

#[test]
fn hint_is_passed_down_from_the_master_only() {
    let mut link = leased_link();
    let client = ClientId::new("a").unwrap();
    let poll = &HolderId::Client(client.clone(), None);
    link.node.open_poll(poll, 0, link.now);
    link.refresh(30.0, "db");
    link.now = link.now.after_seconds(1.0);
    let hint = |node: &str, of: u64| Event::Hinted {
        endpoint: 0,
        hints: HintsResponse {
            node: NodeId::new(node).unwrap(),
            epoch: epoch(of),
            after: 1,
            refresh: vec![Hint {
                resource_id: id("db"),
                seq: None,
            }],
            all: false,
            rules: false,
            leaving: false,
        },
    };
    for (node, of) in [("other", EPOCH), ("root", EPOCH - 1)] {
        assert!(link.handle(hint(node, of)).is_none());
        assert!(link.next_request(0.0).is_none(), "{node} {of}");
        assert_eq!(link.node.take_hints(link.now), [], "{node} {of}");
    }
    for number in 1..=3 {
        assert!(link.handle(hint("root", EPOCH)).is_none());
        let hints = link.node.take_hints(link.now);
        assert_eq!(hints.len(), 1, "{number}");
        assert_eq!(hints[0].1.refresh[0].resource_id, id("db"));
        let sent = link.next_request(0.0).expect("the node asks, too");
        link.answer(&sent);
        link.refresh(30.0, "db");
        link.node.open_poll(poll, hints[0].1.after, link.now);
        link.now = link.now.after_seconds(1.0);
    }
}

#[test]
fn broken_poll_brings_the_next_request_forward() {
    let mut link = leased_link();
    assert!(link.next_request(0.5).is_none());
    assert!(
        link.handle(Event::PollFailed {
            endpoint: 0,
            failure: Failure::Unavailable { retry_after: None },
        })
        .is_none(),
        "only a wake sends"
    );
    let request = link.next_request(0.0).unwrap();
    assert_eq!(request.request.resources.len(), 1);
}

#[test]
fn response_of_an_earlier_master_changes_nothing() {
    let mut link = leased_link();
    let before = link.leased("db");
    let sent = link.next_request(5.0).unwrap();
    let mut response = link.response(&sent.request);
    response.epoch = epoch(EPOCH - 1);
    response.resources[0].answer.gets.capacity = Capacity::new(1.0).unwrap();
    let seq = sent.seq;
    link.handle(Event::Answered { seq, response });
    assert_eq!(link.leased("db").0, before.0);
}

#[test]
fn server_of_the_parent_that_is_asked_is_polled() {
    let mut link = Link::polling(true);
    link.handle(Event::RulesSource { endpoint: Some(0) });
    assert_eq!(link.next_polls(), [Poll::Open(0)], "for the rules alone");
    link.register(30.0, &["db"]);
    let sent = link.next_request(0.1).unwrap();
    let asked = sent.endpoint;
    assert_ne!(asked, 0, "by its seed");
    assert_eq!(link.next_polls(), [Poll::Close, Poll::Open(asked)]);
    link.answer(&sent);
    assert_eq!(link.next_polls(), []);

    // The server that is unavailable may hold its poll for long.
    let sent = link.next_request(5.0).unwrap();
    let failure = Failure::Unavailable { retry_after: None };
    link.fail(&sent, failure);
    let sent = link.next_request(0.5).unwrap();
    assert_ne!(sent.endpoint, asked);
    assert_eq!(link.next_polls(), [Poll::Close, Poll::Open(sent.endpoint)]);
}

/// The only server of the parent may have lost the poll with its machine.
#[test]
fn poll_from_before_an_outage_is_opened_anew() {
    let mut link = Link::polling(true);
    link.upstream = upstream(1, true);
    link.register(30.0, &["db"]);
    let first = link.next_request(0.1).unwrap();
    assert_eq!(link.next_polls(), [Poll::Open(0)]);
    link.answer(&first);
    let lost = link.next_request(5.0).unwrap();
    link.fail(&lost, Failure::Unavailable { retry_after: None });
    let answered = link.next_request(0.5).unwrap();
    assert_eq!(link.next_polls(), []);
    link.answer(&answered);
    assert_eq!(link.next_polls(), [Poll::Close]);
    link.now = link.now.after_seconds(0.1);
    assert_eq!(link.next_polls(), [Poll::Open(0)]);
}
