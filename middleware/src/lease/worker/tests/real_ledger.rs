//! Control plane with the real ledger, which answers polls for hints too.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use doorman_config::Document;
use doorman_core::ledger::{
    HintBatch, HolderId, Ledger, PollTicket, Predecessor, Settings, Tuning, UnmatchedPolicy,
};
use doorman_openapi::{CapacityResponse, ClientId, Epoch, HintsResponse, NodeId, Run};
use http::Response;
use percent_encoding::percent_decode_str;
use tokio::{
    sync::{Notify, oneshot},
    time::sleep,
};

use super::{
    Duration, SECOND,
    plane::{Plane, Received, Reply},
};
use crate::clock;

/// The round trip of a request. A timer is no finer than a millisecond.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(1);

/// Leases last 20 s and are refreshed every second.
pub(super) fn control_plane(kind: &str, capacity: f64) -> Plane {
    refreshed_every(1, kind, capacity)
}

/// Like [`control_plane`], with another refresh interval in seconds.
pub(super) fn refreshed_every(interval: u32, kind: &str, capacity: f64) -> Plane {
    with_parameters(interval, kind, capacity, "")
}

/// FAIR_SHARE that grants half of what nobody wants on top of the wants.
pub(super) fn with_surplus(interval: u32, capacity: f64) -> Plane {
    let half = "parameters: [{name: surplus, value: '0.5'}]";
    with_parameters(interval, "FAIR_SHARE", capacity, half)
}

pub(super) fn with_parameters(interval: u32, kind: &str, capacity: f64, parameters: &str) -> Plane {
    ledger(&document(interval, kind, capacity, "rate", parameters)).without_hints()
}

/// Like [`refreshed_every`], but it answers polls.
pub(super) fn with_hints(interval: u32, kind: &str, capacity: f64) -> Plane {
    ledger(&document(interval, kind, capacity, "rate", "")).with_hints()
}

/// Like [`with_hints`], with FAIR_SHARE of gauges.
pub(super) fn gauge(interval: u32, capacity: u32) -> Plane {
    gauge_in_steps(interval, capacity, 1)
}

/// Like [`gauge`], in shares of whole steps.
pub(super) fn gauge_in_steps(interval: u32, capacity: u32, step: u32) -> Plane {
    let steps = format!("parameters: [{{name: granularity, value: '{step}'}}]");
    let document = document(interval, "FAIR_SHARE", capacity.into(), "gauge", &steps);
    ledger(&document).with_hints()
}

/// Leases last twenty intervals.
fn document(interval: u32, kind: &str, capacity: f64, unit: &str, parameters: &str) -> String {
    let length = 20 * interval;
    format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, unit: {unit}, algorithm: \
         {{kind: {kind}, lease_length: {length}, refresh_interval: {interval}, {parameters}}}}}]"
    )
}

/// A restarted control plane, which learns for so long. The safe capacity is the whole one.
pub(super) fn learning(capacity: f64, time: Duration) -> Plane {
    let document = format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, safe_capacity: {capacity}, \
         algorithm: {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5}}}}]"
    );
    let predecessor = Predecessor::Until(clock::now().after(time));
    ledger_after(&document, predecessor).with_hints()
}

/// A server that can be lost, and replaced by one that knows nothing of its leases.
pub(super) struct Server {
    ledger: Arc<LedgerPlane>,
    pub(super) plane: Plane,
    document: String,
    tuning: &'static Tuning,
}

impl Server {
    /// Starts a server with a document, which answers polls.
    pub(super) fn start(document: String, tuning: &'static Tuning) -> Self {
        let epoch = Epoch::new(1).unwrap();
        let ledger = new_ledger(&document, tuning, epoch, Predecessor::None);
        let ledger = LedgerPlane::new(ledger, epoch);
        Self {
            plane: Arc::clone(&ledger).with_hints(),
            ledger,
            document,
            tuning,
        }
    }

    /// Refuses all connections.
    pub(super) fn lose(&self) {
        *self.ledger.epoch.lock().unwrap() = None;
        // Their connections end.
        self.ledger.polls.lock().unwrap().clear();
    }

    /// Accepts connections again, with the leases from before.
    pub(super) fn recover(&self) {
        *self.ledger.epoch.lock().unwrap() = Some(Epoch::new(1).unwrap());
    }

    /// Loses the connections of a client, which hears nothing of that: its poll ends here, and its
    /// next lease request gets no answer.
    pub(super) fn lose_connections_of(&self, client: &ClientId) {
        *self.ledger.cut_off.lock().unwrap() = Some(client.clone());
        let mut ledger = self.ledger.ledger.lock().unwrap();
        let mut polls = self.ledger.polls.lock().unwrap();
        for (ticket, poll) in polls.extract_if(|_, poll| poll.client == *client) {
            ledger.close_poll(ticket, clock::now());
            // The client still waits for its response.
            self.ledger.lost.lock().unwrap().push(poll);
        }
    }

    /// How many leases ended because another client replaces theirs.
    pub(super) fn replaced(&self) -> u64 {
        self.ledger.ledger.lock().unwrap().stats().replaced
    }

    /// Starts the next master, which learns of earlier leases for so long.
    pub(super) fn replace(&self, epoch: u32, learns: Duration) {
        let epoch = Epoch::new(epoch.into()).unwrap();
        let predecessor = Predecessor::Until(clock::now().after(learns));
        let ledger = new_ledger(&self.document, self.tuning, epoch, predecessor);
        *self.ledger.ledger.lock().unwrap() = ledger;
        *self.ledger.epoch.lock().unwrap() = Some(epoch);
    }

    /// How many polls were answered with hints.
    pub(super) fn hinted(&self) -> u64 {
        self.ledger.hinted.load(Ordering::Relaxed)
    }
}

struct LedgerPlane {
    ledger: Mutex<Ledger>,
    /// `None` while the server is lost.
    epoch: Mutex<Option<Epoch>>,
    polls: Mutex<HashMap<PollTicket, OpenPoll>>,
    changed: Notify,
    hinted: AtomicU64,
    /// The client whose connections are lost, until its next lease request.
    cut_off: Mutex<Option<ClientId>>,
    /// Polls of lost connections.
    lost: Mutex<Vec<OpenPoll>>,
}

struct OpenPoll {
    client: ClientId,
    answer: oneshot::Sender<Response<Bytes>>,
}

fn ledger(document: &str) -> Arc<LedgerPlane> {
    ledger_after(document, Predecessor::None)
}

fn ledger_after(document: &str, predecessor: Predecessor) -> Arc<LedgerPlane> {
    let epoch = Epoch::new(1).unwrap();
    let ledger = new_ledger(document, &Tuning::DEFAULT, epoch, predecessor);
    LedgerPlane::new(ledger, epoch)
}

fn new_ledger(
    document: &str,
    tuning: &'static Tuning,
    epoch: Epoch,
    predecessor: Predecessor,
) -> Ledger {
    let settings = Settings {
        max_leases: 1_000_000,
        unmatched: UnmatchedPolicy::Refuse,
        predecessor,
        epoch,
    };
    let document = Arc::new(Document::parse(document).unwrap());
    Ledger::new(document, settings, clock::now()).with_tuning(tuning)
}

impl LedgerPlane {
    fn new(ledger: Ledger, epoch: Epoch) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::new(ledger),
            epoch: Mutex::new(Some(epoch)),
            polls: Mutex::default(),
            changed: Notify::new(),
            hinted: AtomicU64::new(0),
            cut_off: Mutex::default(),
            lost: Mutex::default(),
        })
    }

    /// Polls hang, and no holder counts as polling.
    fn without_hints(self: Arc<Self>) -> Plane {
        Plane::new(move |call| self.answer(call, false))
    }

    fn with_hints(self: Arc<Self>) -> Plane {
        let hinting = Arc::clone(&self);
        tokio::spawn(async move {
            loop {
                let pause = hinting.give_hints();
                tokio::select! {
                    () = sleep(pause) => {}
                    () = hinting.changed.notified() => {}
                }
            }
        });
        let polled = Arc::clone(&self);
        let plane = Plane::new(move |call| {
            let reply = self.answer(call, true);
            self.changed.notify_one();
            match reply {
                Reply::Response(response) => later(response),
                other => other,
            }
        });
        plane.set_hints(move |call| polled.poll(call));
        plane
    }

    /// Without `polls` it does not believe that the holder polls.
    fn answer(&self, call: &Received, polls: bool) -> Reply {
        let Some(epoch) = *self.epoch.lock().unwrap() else {
            return Reply::Disconnect;
        };
        let mut ledger = self.ledger.lock().unwrap();
        if let Some(release) = call.release() {
            ledger.release(&release.into(), call.at);
            return Reply::json(200, &serde_json::json!({}));
        }
        let Some(mut request) = call.capacity() else {
            return Reply::json(404, &serde_json::json!({}));
        };
        let client = Some(&request.client_id);
        if let Some(client) = (self.cut_off.lock().unwrap()).take_if(|it| Some(&*it) == client) {
            drop(client);
            return Reply::Hang;
        }
        request.polls &= polls;
        let granted = ledger.refresh(&request.into(), call.at).into_iter();
        CapacityResponse {
            warnings: Vec::new(),
            node: NodeId::new("root").unwrap(),
            epoch,
            resources: granted.map(|granted| granted.into_response(0)).collect(),
        }
        .into()
    }

    fn poll(self: &Arc<Self>, call: &Received) -> Reply {
        let value = |name: &str| {
            let mut pairs = call
                .query
                .split('&')
                .filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.find(|(key, _)| *key == name).unwrap();
            percent_decode_str(value)
                .decode_utf8()
                .unwrap()
                .into_owned()
        };
        if self.epoch.lock().unwrap().is_none() {
            return Reply::Disconnect;
        }
        let client = ClientId::new(value("client_id")).unwrap();
        let run = Run::new(value("run").parse().unwrap()).ok();
        let after = value("after").parse().unwrap();
        let wait = value("wait").parse::<u32>().unwrap();
        let mut ledger = self.ledger.lock().unwrap();
        let ticket = ledger.open_poll(&HolderId::Client(client.clone(), run), after, call.at);
        drop(ledger);
        let (answer, response) = oneshot::channel();
        let poll = OpenPoll { client, answer };
        self.polls.lock().unwrap().insert(ticket, poll);
        self.changed.notify_one();
        let plane = Arc::clone(self);
        tokio::spawn(async move {
            sleep(wait * SECOND).await;
            if plane.polls.lock().unwrap().contains_key(&ticket) {
                plane
                    .ledger
                    .lock()
                    .unwrap()
                    .close_poll(ticket, clock::now());
                let none = HintBatch {
                    after,
                    refresh: Vec::new(),
                    all: false,
                };
                plane.end_poll(ticket, none);
            }
        });
        Reply::Later(response)
    }

    /// Answers the polls that have hints. Returns the time until the next ones may.
    fn give_hints(&self) -> Duration {
        let now = clock::now();
        let mut ledger = self.ledger.lock().unwrap();
        // Of processes that have crashed.
        let mut polls = self.polls.lock().unwrap();
        for (ticket, _) in polls.extract_if(|_, poll| poll.answer.is_closed()) {
            ledger.close_poll(ticket, now);
        }
        drop(polls);
        ledger.sweep(now, 1_000);
        let batches = ledger.take_hints(now);
        let due = ledger.hints_due();
        drop(ledger);
        for (ticket, batch) in batches {
            self.hinted.fetch_add(1, Ordering::Relaxed);
            self.end_poll(ticket, batch);
        }
        due.map_or(SECOND, |due| due.since(now).min(SECOND))
    }

    fn end_poll(&self, ticket: PollTicket, batch: HintBatch) {
        let Some(epoch) = *self.epoch.lock().unwrap() else {
            return;
        };
        let hints = HintsResponse {
            node: NodeId::new("root").unwrap(),
            epoch,
            after: batch.after,
            refresh: batch.refresh,
            all: batch.all,
            rules: false,
            leaving: false,
        };
        let poll = self.polls.lock().unwrap().remove(&ticket);
        let body = Bytes::from(serde_json::to_vec(&hints).unwrap());
        if let Some(poll) = poll {
            tokio::spawn(async move {
                sleep(ROUND_TRIP).await;
                poll.answer.send(Response::new(body)).ok();
            });
        }
    }
}

fn later(response: Response<Bytes>) -> Reply {
    let (answer, received) = oneshot::channel();
    tokio::spawn(async move {
        sleep(ROUND_TRIP).await;
        answer.send(response).ok();
    });
    Reply::Later(received)
}
