//! Hints of the control plane, which leases to refresh now, and the polls that bring them.

use std::time::Duration;

use doorman_openapi::{ClientId, Epoch, Hint, HintsResponse, MAX_HINTS, Moment, NodeId, Run};

use super::{Holder, resource::Resource};
use crate::{
    event::{Effect, Failure, Warning},
    hint_poller::MIN_PAUSE,
    index::{Names, ResourceIndex},
};

/// A refresh of more resources than hints can name begins at random within this time.
const SPREAD: Duration = Duration::from_millis(200);

impl<N: Names> Holder<N> {
    pub(super) fn on_hints(&mut self, endpoint: usize, hints: &HintsResponse, now: Moment) {
        // A server that is not the master need not know the epoch.
        let is_standby = hints.leaving && !self.is_from_master(&hints.node, hints.epoch, now);
        if self.stopped || is_standby || !self.accepts(endpoint, &hints.node, hints.epoch, now) {
            return;
        }
        self.follow(&hints.refresh, |resource| resource.refresh_by(now));
        if hints.leaving {
            // Leases are refreshed when they are due: not everybody at the new master at once.
            self.endpoints.leave(endpoint);
        }
        if hints.all {
            let wait = if self.resources.len() > MAX_HINTS {
                SPREAD.mul_f64(self.rng.f64())
            } else {
                Duration::ZERO
            };
            let due = now.after(wait);
            self.resources
                .update_all(|resource| resource.refresh_by(due));
        }
    }

    /// Lets refreshes that are due earlier wait until the demands for hints are measured. They
    /// would report older demands, and the hints would be void.
    pub fn await_measurement(&mut self, hints: &[Hint], until: Moment) {
        self.follow(hints, |resource| resource.await_measurement(until));
    }

    fn follow(&mut self, hints: &[Hint], change: impl Fn(&mut Resource)) {
        for hint in hints.iter().take(MAX_HINTS) {
            let Some(index) = self.resources.find(&hint.resource_id) else {
                continue;
            };
            self.resources.update(index, |resource| {
                // After a later request, the server knows more than when it gave the hint.
                if hint.seq.is_none_or(|seq| resource.is_newest(seq)) {
                    change(resource);
                }
            });
        }
    }

    /// Whether the next request for a resource follows a hint.
    #[must_use]
    pub fn is_hinted(&self, index: ResourceIndex) -> bool {
        self.resources.get(index).is_some_and(Resource::is_hinted)
    }

    /// The server that tells of changed rules, a position in the list of servers. It is polled
    /// while no resource is wanted.
    pub fn set_rules_source(&mut self, server: Option<usize>) {
        self.rules_source = server;
    }

    /// The server to poll: that of the lease requests, or that of the rules while no resource is
    /// wanted. `None` while no server answers.
    fn hint_source(&self) -> Option<usize> {
        if self.stopped {
            None
        } else if self.resources.len() == 0 {
            self.rules_source
        } else {
            self.backoff.is_idle().then(|| self.endpoints.current())
        }
    }

    /// When to open a poll, or to close the one at a server that is no longer asked.
    pub(super) fn poller_wakes_at(&self) -> Option<Moment> {
        let poller = self.poller.as_ref()?;
        Some(poller.wake_at(self.hint_source()))
    }

    /// Whether a poll of a server is open or due.
    pub(super) fn is_polling(&self, endpoint: usize, now: Moment) -> bool {
        let poller = self.poller.as_ref();
        poller.is_some_and(|it| it.is_polling(endpoint, now))
    }

    /// Opens a poll if one is due, and closes one at another server.
    pub(super) fn poll(&mut self, now: Moment) {
        let source = self.hint_source();
        let (Some(source), Some(poller)) = (source, &mut self.poller) else {
            return;
        };
        if poller.follow(source, now) {
            self.effects.push(Effect::ClosePoll);
        }
        if poller.wake_at(Some(source)) <= now {
            let endpoint = poller.open(source, now);
            let after = poller.after();
            self.effects.push(Effect::OpenPoll { endpoint, after });
        }
    }

    /// The poll was answered with these hints, which [`Event::Hinted`](crate::Event::Hinted)
    /// applies. Returns whether they come from the master.
    pub fn end_poll(&mut self, hints: &HintsResponse, now: Moment) -> bool {
        let interval = self.poll_interval();
        let is_from_master = self.is_from_master(&hints.node, hints.epoch, now);
        match &mut self.poller {
            Some(poller) if is_from_master => poller.on_hints(hints, interval, now),
            Some(poller) => poller.on_failure(interval, now),
            None => {}
        }
        is_from_master
    }

    pub(super) fn on_poll_failed(&mut self, endpoint: usize, failure: &Failure, now: Moment) {
        let interval = self.poll_interval();
        match (failure, &mut self.poller) {
            (Failure::Redirected { to }, Some(poller)) => {
                poller.on_redirect(endpoint, *to, interval, now);
            }
            (_, Some(poller)) => poller.on_failure(interval, now),
            (_, None) => {}
        }
        // There may be another master. A server that limits its callers gets no further requests.
        if self.is_one_of_few && matches!(failure, Failure::Unavailable { .. }) {
            self.refresh_all(now);
        }
    }

    /// A request was answered by this server.
    pub(super) fn schedule_poll_after_answer(&mut self, endpoint: usize, now: Moment) {
        let Some(poller) = &mut self.poller else {
            return;
        };
        if self.is_one_of_few && poller.on_reachable(now) {
            self.effects.push(Effect::ClosePoll);
        }
        // Not if the answer was ignored, as that of an earlier master.
        if endpoint == self.endpoints.current() {
            poller.on_answer(endpoint, now);
        }
    }

    /// The interval that paces polls after failures.
    fn poll_interval(&self) -> Duration {
        self.refresh_interval.max(MIN_PAUSE)
    }

    /// The id of the holder.
    #[must_use]
    pub fn client_id(&self) -> &ClientId {
        &self.client_id
    }

    /// The run of its process.
    #[must_use]
    pub fn run(&self) -> Option<Run> {
        self.run
    }

    /// Whether a response comes from the master of the current leases.
    #[must_use]
    pub fn is_from_master(&self, node: &NodeId, epoch: Epoch, now: Moment) -> bool {
        let endpoint = self.endpoints.current();
        self.master.check(endpoint, node, epoch, now).is_ok()
    }

    /// Checks as [`is_from_master`](Self::is_from_master) does, and warns if a response does not.
    pub(super) fn accepts(
        &mut self,
        endpoint: usize,
        node: &NodeId,
        epoch: Epoch,
        now: Moment,
    ) -> bool {
        let Err(warning) = self.master.check(endpoint, node, epoch, now) else {
            return true;
        };
        let throttle = if matches!(warning, Warning::ForeignNode { .. }) {
            &mut self.foreign_node
        } else {
            &mut self.stale_epoch
        };
        if throttle.try_log(now).is_some() {
            self.effects.push(Effect::Warn(warning));
        }
        false
    }
}
