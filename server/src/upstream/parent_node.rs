//! The state of the parent node, for views and metrics.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use doorman_openapi::{
    Discovery, Epoch, Moment, NodeId, ParentStatus, ServerCapacityResponse, ServerUrl,
};
use prometheus_client::{
    metrics::gauge::ConstGauge,
    registry::{Registry, Unit},
};
use tokio::sync::Notify;
use tower_doorman::lease::Failure;

use crate::observe::metrics::counters;

/// The most characters of an error.
const MAX_ERROR: usize = 400;

/// The highest level that no error is reported for: the levels of a cycle grow with each response.
const MAX_LEVEL: u32 = 16;

/// The outcomes of a request for leases.
const OUTCOMES: [&str; 6] = [
    "answered",
    "limited",
    "redirected",
    "refused",
    "too_large",
    "unavailable",
];

/// The parent node of this server.
#[derive(Debug)]
pub(crate) struct ParentNode {
    servers: Vec<String>,
    /// The level of this server in the tree.
    level: AtomicU32,
    state: Mutex<ParentState>,
    started: Moment,
    /// The parent says that the rules have changed.
    rules_changed: Notify,
}

#[derive(Debug, Default)]
struct ParentState {
    node: Option<(NodeId, Epoch)>,
    root: Option<String>,
    answered: Option<Moment>,
    leases_end: Moment,
    lease_error: Option<String>,
    document_error: Option<String>,
    /// When the first of the last failed requests for leases got no usable answer.
    leases_fail_since: Option<Moment>,
    /// The same of requests for rules.
    rules_fail_since: Option<Moment>,
    /// What the parent reports of its own parent.
    warning: Option<String>,
    /// Whether this server has rules of the parent.
    has_rules: bool,
    /// The server that answers for the rules.
    rules_source: Option<usize>,
    /// Requests for leases, by outcome.
    requests: BTreeMap<&'static str, u64>,
}

impl ParentNode {
    /// A parent that has not answered yet.
    pub(crate) fn new(servers: &[ServerUrl], now: Moment) -> Self {
        Self {
            servers: servers.iter().map(ServerUrl::to_string).collect(),
            level: AtomicU32::new(1),
            state: Mutex::default(),
            started: now,
            rules_changed: Notify::new(),
        }
    }

    /// The URLs of its servers.
    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The level of this server in the tree.
    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// A server of the root.
    pub(crate) fn root(&self) -> Option<String> {
        self.state().root.clone()
    }

    /// Records a response with leases, whose request was sent at `sent`.
    pub(crate) fn on_leases(&self, response: &ServerCapacityResponse, sent: Moment, now: Moment) {
        self.set_level(response.level);
        let ends = response.resources.iter().map(|resource| {
            let length = resource.answer.gets.lease_length;
            sent.after_seconds(length.get())
        });
        let mut state = self.state();
        state.count("answered");
        state.leases_end = ends.fold(state.leases_end, Moment::max);
        state.lease_error = None;
        state.leases_fail_since = None;
        state.warning = response.warnings.first().map(|it| truncated(it));
        state.set_node(&response.node, response.epoch, now);
    }

    pub(crate) fn on_failure(&self, failure: &Failure, reason: &str, now: Moment) {
        let mut state = self.state();
        if is_silent(failure) {
            state.leases_fail_since.get_or_insert(now);
        }
        state.count(match failure {
            Failure::Redirected { .. } => "redirected",
            Failure::Rejected { .. } => "refused",
            Failure::TooLarge => "too_large",
            Failure::RateLimited { .. } => "limited",
            Failure::Unavailable { .. } => "unavailable",
        });
        // A redirect to another server of the parent is followed.
        if !matches!(failure, Failure::Redirected { to: Some(_) }) {
            state.lease_error = Some(truncated(reason));
        }
    }

    /// This server is not master any more, and has no leases.
    pub(super) fn forget_leases(&self) {
        let mut state = self.state();
        state.leases_end = Moment::ORIGIN;
        state.lease_error = None;
        state.leases_fail_since = None;
        state.warning = None;
    }

    pub(crate) fn on_discovery(&self, discovery: &Discovery, now: Moment) {
        self.set_level(discovery.level);
        let mut state = self.state();
        state.root.clone_from(&discovery.root);
        state.set_node(&discovery.node, discovery.epoch, now);
    }

    /// Whether this server has rules of the parent. They may be older ones.
    pub(crate) fn has_rules(&self) -> bool {
        self.state().has_rules
    }

    /// This server has rules of the parent.
    pub(crate) fn set_has_rules(&self) {
        self.state().has_rules = true;
    }

    /// The server that answers for the rules; `None` while none does.
    pub(super) fn rules_source(&self) -> Option<usize> {
        self.state().rules_source
    }

    /// Records which server has answered for the rules.
    pub(crate) fn on_rules(&self, server: usize) {
        let mut state = self.state();
        state.rules_source = Some(server);
        state.document_error = None;
        state.rules_fail_since = None;
    }

    /// Records why no server has answered for the rules; `failure` is that of the last server.
    pub(crate) fn on_rules_failure(&self, failure: Option<&Failure>, error: &str, now: Moment) {
        let mut state = self.state();
        state.rules_source = None;
        state.document_error = Some(truncated(error));
        if failure.is_some_and(is_silent) {
            state.rules_fail_since.get_or_insert(now);
        }
    }

    /// Why leases are not renewed, in the words of all views and logs; `None` while they are.
    pub(crate) fn problem(&self, now: Moment) -> Option<String> {
        let state = self.state();
        let unreachable = state
            .unreachable_since()
            .map(|since| format!("parent unreachable for {} s", now.since(since).as_secs()));
        unreachable.or_else(|| {
            let warning = state.warning.as_ref()?;
            Some(format!("reported by the parent: {warning}"))
        })
    }

    /// The rules have changed, says a server of the parent.
    pub(super) fn announce_rules(&self, server: usize) {
        self.state().rules_source = Some(server);
        self.rules_changed.notify_one();
    }

    /// Waits for the rules to change. Returns the server that says so.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(crate) async fn rules_changed(&self) -> Option<usize> {
        self.rules_changed.notified().await;
        self.rules_source()
    }

    pub(crate) fn status(&self, now: Moment) -> ParentStatus {
        let problem = self.problem(now);
        let state = self.state();
        let (node, epoch) = state.node.clone().unzip();
        ParentStatus {
            node,
            epoch,
            answered_ago: state.answered.map(|at| now.since(at).into()),
            leases_end_in: (now < state.leases_end).then(|| state.leases_end.since(now).into()),
            problem,
            error: self.cycle().or_else(|| {
                let error = state.lease_error.as_ref();
                error.or(state.document_error.as_ref()).cloned()
            }),
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry, now: Moment) {
        let state = self.state();
        let count = |outcome| (outcome, state.requests.get(outcome).copied().unwrap_or(0));
        registry.register(
            "parent_requests",
            "Requests for leases to the parent node, by outcome",
            counters("outcome", OUTCOMES.map(count)),
        );
        let answered = state.answered.unwrap_or(self.started);
        registry.register_with_unit(
            "parent_last_answer_age",
            "Time since the last successful response of the parent node, or since the start",
            Unit::Seconds,
            ConstGauge::new(now.seconds_since(answered)),
        );
        let unreachable = state.unreachable_since();
        registry.register_with_unit(
            "parent_unreachable",
            "Time since the first of the last failed requests to the parent node; 0 while it answers",
            Unit::Seconds,
            ConstGauge::new(unreachable.map_or(0.0, |since| now.seconds_since(since))),
        );
    }

    fn cycle(&self) -> Option<String> {
        let level = self.level();
        (level > MAX_LEVEL).then(|| {
            format!(
                "this node is at level {level} of the tree: check --parent of all nodes for a cycle"
            )
        })
    }

    fn set_level(&self, of_parent: u32) {
        let level = of_parent.saturating_add(1);
        self.level.store(level, Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, ParentState> {
        // Every statement leaves it consistent, so it stays usable after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParentState {
    fn count(&mut self, outcome: &'static str) {
        *self.requests.entry(outcome).or_default() += 1;
    }

    fn unreachable_since(&self) -> Option<Moment> {
        // Where requests for leases succeed, only the rules cannot be had.
        let rules = self.rules_fail_since;
        let rules = rules.filter(|since| self.answered.is_none_or(|at| at <= *since));
        let since = [self.leases_fail_since, rules].into_iter().flatten();
        since.min()
    }

    /// A server may not know of a newer epoch yet.
    fn set_node(&mut self, node: &NodeId, epoch: Epoch, now: Moment) {
        self.answered = Some(now);
        let known = self.node.as_ref().filter(|(known, _)| known == node);
        let epoch = known.map_or(epoch, |(_, known)| epoch.max(*known));
        self.node = Some((node.clone(), epoch));
    }
}

/// Whether the parent gave no usable answer: none, 401 or 5xx, or one that names no master.
fn is_silent(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Unavailable { .. } | Failure::Redirected { to: None }
    )
}

fn truncated(reason: &str) -> String {
    reason.chars().take(MAX_ERROR).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn leases(epoch: u64, lengths: &[f64]) -> ServerCapacityResponse {
        let lease = |length| json!({"capacity": 5, "lease_length": length, "refresh_interval": 1, "expiry_time": 0});
        let resources = lengths.iter().map(|length| {
            json!({"resource_id": format!("r{length}"), "gets": lease(length), "reason": "granted",
                "template": null, "safe_capacity": 1,
                "algorithm": {"kind": "FAIR_SHARE", "lease_length": 60, "refresh_interval": 5}})
        });
        let resources: Vec<_> = resources.collect();
        let response = json!({"node": "eu", "epoch": epoch, "level": 1, "resources": resources});
        serde_json::from_value(response).unwrap()
    }

    #[test]
    fn leases_last_from_the_sending_of_their_request() {
        let start = Moment::ORIGIN.after_seconds(100.0);
        let parent = ParentNode::new(&["http://a".parse().unwrap()], start);
        let unknown = parent.status(start);
        assert_eq!((unknown.node, unknown.answered_ago), (None, None));
        assert_eq!(parent.level(), 1);

        let answered = start.after_seconds(2.0);
        parent.on_leases(&leases(3, &[10.0, 60.0]), start, answered);
        // A shorter lease of another resource changes nothing, nor does an earlier epoch.
        parent.on_leases(&leases(2, &[20.0]), start, answered);
        let status = parent.status(start.after_seconds(5.0));
        assert_eq!(status.leases_end_in.unwrap().get(), 55.0);
        assert_eq!(status.answered_ago.unwrap().get(), 3.0);
        assert_eq!(status.epoch.unwrap().get(), 3);
        assert_eq!(parent.level(), 2);
        assert_eq!(parent.status(start.after_seconds(60.0)).leases_end_in, None);

        parent.forget_leases();
        assert_eq!(parent.status(answered).leases_end_in, None);
    }

    #[test]
    fn high_level_is_reported_as_a_cycle() {
        let now = Moment::ORIGIN;
        let parent = ParentNode::new(&["http://a".parse().unwrap()], now);
        parent.set_level(MAX_LEVEL - 1);
        assert_eq!(parent.status(now).error, None);
        parent.set_level(MAX_LEVEL);
        assert!(parent.status(now).error.unwrap().contains("cycle"));
    }

    #[test]
    fn error_is_that_of_the_last_request() {
        let now = Moment::ORIGIN;
        let parent = ParentNode::new(&["http://a".parse().unwrap()], now);
        let error = || parent.status(now).error;
        parent.on_failure(&Failure::Redirected { to: Some(0) }, "moved", now);
        assert_eq!(error(), None);
        parent.on_failure(&Failure::Redirected { to: None }, &"x".repeat(1000), now);
        assert_eq!(error().unwrap().len(), MAX_ERROR);
        parent.on_rules_failure(None, "no rules", now);
        parent.on_leases(&leases(1, &[]), now, now);
        assert_eq!(error().unwrap(), "no rules");
        parent.on_rules(0);
        assert_eq!(error(), None);
    }
}
