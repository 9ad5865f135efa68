//! What became of a request.

use std::time::Duration;

use doorman_openapi::{CapacityResponse, Moment, ResourceResponse, Seconds, Seq};

use super::{
    super::{
        Effect, Failure, Warning,
        backoff::{LONGEST_WAIT, LONGEST_WHILE_LAPSED, UNTOLD_WAIT},
        batch::{self, Batch, Mixing},
        endpoints::Next,
        entry::Entry,
        reign::Verdict,
    },
    Holder,
};

/// Between tries while every lease still lasts, unless the refresh interval is longer.
const LONGEST_WHILE_LEASED: Duration = Duration::from_secs(4);

/// A refused resource is asked for about so often.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);

/// Between tries of a renewal that a limit refuses, of which half is by chance.
const SHORTEST_WHILE_LIMITED: Duration = Duration::from_secs(2);

impl Holder {
    pub(super) fn answered(
        &mut self,
        seq: Seq,
        batch: &Batch,
        response: CapacityResponse,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let endpoint = batch.endpoint;
        let CapacityResponse {
            node,
            epoch,
            resources,
        } = response;
        let warning = match self.reign.judge(&node, epoch, now) {
            Verdict::Valid => {
                self.served(seq, batch, effects);
                let longest = self.take(seq, &resources, now, effects);
                self.reign.heard(node, epoch, now.after(longest));
                // Whatever the answer left out.
                return self.retry(seq, batch, now.after(LONGEST_WHILE_LAPSED), now, effects);
            }
            Verdict::Foreign { known } => self.foreign.now(now).then_some(Warning::ForeignNode {
                endpoint,
                known,
                heard: node,
            }),
            Verdict::Stale { known } => self.stale.now(now).then_some(Warning::StaleEpoch {
                endpoint,
                known,
                heard: epoch,
            }),
        };
        effects.extend(warning.map(Effect::Warn));
        let next = self.endpoints.failed(endpoint);
        self.go_on(seq, batch, next, None, now, effects);
    }

    /// The endpoint gives leases.
    fn served(&mut self, seq: Seq, batch: &Batch, effects: &mut Vec<Effect>) {
        if self.under_way_in(seq, batch).any(|it| it.ends().is_none()) {
            // Whoever waits, waits no longer.
            self.mixing = Mixing::Together;
        }
        if self.was_refused(seq, batch) {
            self.refused_limit = batch::MOST_REFUSED;
        }
        self.endpoints.answered(batch.endpoint);
        self.backoff.reset();
        if self.unreachable.over() {
            effects.push(Effect::Warn(Warning::Reached));
        }
        if batch.resources.len() >= self.batch_limit {
            self.batch_limit = self.batch_limit.saturating_mul(2).min(batch::MOST);
        }
    }

    /// Takes the answers, in whatever order they come; the longest lease among them. An answer that this request did not ask for
    /// is none, be it for another resource or for the same one twice.
    fn take(
        &mut self,
        seq: Seq,
        answers: &[ResourceResponse],
        now: Moment,
        effects: &mut Vec<Effect>,
    ) -> Duration {
        let mut longest = Seconds::ZERO;
        for answer in answers {
            let id = &answer.resource_id;
            if !self
                .resources
                .get(id)
                .is_some_and(|entry| entry.is_under_way(seq))
            {
                continue;
            }
            let told = self.templates.learn(answer);
            let chance = &mut self.chance;
            self.resources
                .update(id, |entry| entry.answered(answer, told, now, chance));
            self.changed(id, now, effects);
            if answer.gets.lease_length > longest {
                longest = answer.gets.lease_length;
            }
        }
        longest.duration()
    }

    pub(super) fn failed(
        &mut self,
        seq: Seq,
        batch: &Batch,
        failure: Failure,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        match failure {
            Failure::Unavailable { retry_after } => {
                let next = self.endpoints.failed(batch.endpoint);
                self.go_on(seq, batch, next, retry_after, now, effects);
            }
            Failure::Redirected { to } => {
                let next = self.endpoints.redirected(batch.endpoint, to);
                self.go_on(seq, batch, next, None, now, effects);
            }
            Failure::Limited { retry_after } => {
                self.limited(seq, batch, retry_after, now, effects);
            }
            Failure::TooLarge => {
                self.divide(seq, batch, now, effects);
                self.retry(seq, batch, now, now, effects);
            }
            Failure::Refused { positions } => {
                let mut named = positions
                    .iter()
                    .filter_map(|position| batch.resources.get(*position))
                    .peekable();
                if named.peek().is_none() && self.was_refused(seq, batch) {
                    self.refuse_again(seq, batch, now, effects);
                } else if named.peek().is_none() {
                    // Which one is at fault comes out by halves, and not in haste: it may be all of them.
                    self.divide(seq, batch, now, effects);
                    self.pause(batch, None, now);
                } else {
                    for id in named {
                        self.refuse(seq, id, now, effects);
                    }
                }
                self.retry(seq, batch, now, now, effects);
            }
        }
    }

    /// What is leased is renewed by itself, at once where it was refused only for what was new along with it; what is new waits as it
    /// was told. Other servers are asked for nothing: this one serves.
    fn limited(
        &mut self,
        seq: Seq,
        batch: &Batch,
        retry_after: Option<Duration>,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let asked = retry_after.unwrap_or(UNTOLD_WAIT).min(LONGEST_WAIT);
        let renews = self.under_way_in(seq, batch).any(|it| it.ends().is_some());
        let is_new = self.under_way_in(seq, batch).any(|it| it.ends().is_none());
        if is_new {
            // Not earlier than it was told, and not all of a fleet at one moment.
            let wait = asked.mul_f64(1.0 + 0.5 * self.chance.f64());
            let newcomers_from = match self.mixing {
                Mixing::Together => now.after(wait),
                Mixing::Apart { newcomers_from } => newcomers_from.max(now.after(wait)),
            };
            self.mixing = Mixing::Apart { newcomers_from };
        } else if renews {
            // Half of a pause is by chance.
            let asked = Some(asked.saturating_mul(2));
            let longest = self.longest_pause(batch, now);
            let longest = longest.max(self.shortest_pause_of_limited(now));
            self.backoff
                .fail(asked, longest, batch.sent, now, &mut self.chance);
        }
        self.retry(seq, batch, now, now, effects);
    }

    /// The resources for which this request was the newest.
    fn under_way_in(&self, seq: Seq, batch: &Batch) -> impl Iterator<Item = &Entry> {
        let resources = batch.resources.iter();
        let entries = resources.filter_map(|id| self.resources.get(id));
        entries.filter(move |entry| entry.is_under_way(seq))
    }

    /// A request that is refused as a whole comes in smaller parts, and a part of one is what is refused.
    fn divide(&mut self, seq: Seq, batch: &Batch, now: Moment, effects: &mut Vec<Effect>) {
        if let [only] = &batch.resources[..] {
            self.refuse(seq, only, now, effects);
        } else {
            self.batch_limit = (batch.resources.len() / 2).max(1);
        }
    }

    fn refuse(
        &mut self,
        seq: Seq,
        id: &doorman_openapi::ResourceId,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        let due = self.refused_until(now);
        let news = self
            .resources
            .update(id, |entry| entry.is_under_way(seq) && entry.refuse(due));
        if news == Some(true) {
            effects.push(Effect::Warn(Warning::Refused {
                resource: id.clone(),
            }));
        }
        self.changed(id, now, effects);
    }

    /// Whether it asked only for what had been refused before.
    fn was_refused(&self, seq: Seq, batch: &Batch) -> bool {
        self.under_way_in(seq, batch).all(Entry::is_refused)
    }

    /// They had been refused before, and which of them are at fault now is not said: all of them wait, and the others do not suffer for
    /// it. By chance fewer go together the next time, so that none is refused for good because of another; and not each by itself, since
    /// it may be all of very many.
    fn refuse_again(&mut self, seq: Seq, batch: &Batch, now: Moment, effects: &mut Vec<Effect>) {
        let halves = self.chance.u32(0..=batch::MOST_REFUSED.ilog2());
        self.refused_limit = batch::MOST_REFUSED >> halves;
        for id in &batch.resources {
            self.refuse(seq, id, now, effects);
        }
    }

    /// When what is refused now is asked for again: at one moment with what was refused a little before, so that it goes in one request.
    fn refused_until(&mut self, now: Moment) -> Moment {
        let earliest = now.after(REFUSED_INTERVAL.mul_f64(0.75));
        if self.refused_until < earliest {
            let part = 1.0 + 0.25 * self.chance.f64();
            self.refused_until = now.after(REFUSED_INTERVAL.mul_f64(part));
        }
        self.refused_until
    }

    /// To the next endpoint at once, or to any of them after a pause.
    fn go_on(
        &mut self,
        seq: Seq,
        batch: &Batch,
        next: Next,
        retry_after: Option<Duration>,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        match next {
            Next::Now => {}
            Next::Later => {
                self.pause(batch, retry_after, now);
                if self.unreachable.now(now) {
                    effects.push(Effect::Warn(Warning::Unreachable));
                }
            }
        }
        self.retry(seq, batch, now, now, effects);
    }

    /// Nothing is sent for a while.
    fn pause(&mut self, batch: &Batch, asked: Option<Duration>, now: Moment) {
        let longest = self.longest_pause(batch, now);
        self.backoff
            .fail(asked, longest, batch.sent, now, &mut self.chance);
    }

    /// Not for so long that a lease runs out for want of trying.
    fn longest_pause(&self, batch: &Batch, now: Moment) -> Duration {
        let half_of_what_is_left = self.resources.first_end().map(|end| end.since(now) / 2);
        match half_of_what_is_left {
            Some(half) if !self.resources.anything_lapsed() => batch
                .resources
                .iter()
                .filter_map(|id| Some(self.resources.get(id)?.interval()))
                .min()
                .unwrap_or_default()
                .max(LONGEST_WHILE_LEASED)
                .min(half),
            Some(half) => LONGEST_WHILE_LAPSED.min(half),
            None => LONGEST_WHILE_LAPSED,
        }
    }

    /// A server that has too much to do is not asked faster and faster as the end of a lease comes near: not until no more than one try
    /// is left of it.
    fn shortest_pause_of_limited(&self, now: Moment) -> Duration {
        let left = self.resources.first_end().map(|end| end.since(now));
        match left {
            Some(left) if left < SHORTEST_WHILE_LIMITED.saturating_mul(3) / 2 => Duration::ZERO,
            Some(_) | None => SHORTEST_WHILE_LIMITED,
        }
    }

    /// Asks again at `due` for what the request has not brought.
    fn retry(
        &mut self,
        seq: Seq,
        batch: &Batch,
        due: Moment,
        now: Moment,
        effects: &mut Vec<Effect>,
    ) {
        for id in &batch.resources {
            let put_off = self.resources.update(id, |entry| {
                let under_way = entry.is_under_way(seq);
                if under_way {
                    entry.put_off(due);
                }
                under_way && entry.ends().is_none()
            });
            if put_off == Some(true) {
                // There is no lease, and the limiter says when it may come.
                self.changed(id, now, effects);
            }
        }
    }
}
