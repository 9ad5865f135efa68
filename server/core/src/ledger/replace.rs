//! Leases of dead clients, which end for a client that replaces them.

use doorman_openapi::Moment;

use super::{
    holders::HolderId,
    keys::{HolderKey, ResourceKey},
    resource::Ask,
    state::Ledger,
    stats::LedgerEvent,
};

/// The timeout of a request of a client: a part of the refresh interval, and a shortest one in
/// seconds. A client that was due counts as dead only after it, because the request may be lost.
const TIMEOUT: f64 = 0.5;
const MIN_TIMEOUT: f64 = 2.0;

/// The time to send the request again, as a part of the refresh interval.
const PAUSE_AFTER_POLL: f64 = 0.1;
/// The same after a lease request instead of a poll: only the repeated request shows that the
/// client lives.
const PAUSE_AFTER_REQUEST: f64 = 1.1;
/// The shortest such time, in seconds.
const MIN_PAUSE: f64 = 0.5;

impl Ledger {
    /// Ends the leases of replaced holders on a resource, before the request of `holder` is
    /// decided. Returns when the next one of them may end.
    ///
    /// Safety rule: a late copy of a request ends no lease. Only the second request of a process
    /// echoes the epoch, which shows that it is not from an earlier reign.
    pub(super) fn replace(
        &mut self,
        replaced: &[HolderKey],
        holder: HolderKey,
        key: ResourceKey,
        ask: &Ask<'_>,
        now: Moment,
    ) -> Option<Moment> {
        let resource = &self.live.get(key.index())?.resource;
        let entry = resource.entries.get(holder)?;
        let is_newest = ask.stamp.order.is_newer_than(entry.order);
        let is_ordered = ask.stamp.order.seq().is_some();
        if !ask.stamp.echoes_epoch || !is_newest || !is_ordered || !resource.terms.rule().divides()
        {
            return None;
        }
        let mut next: Option<Moment> = None;
        for replaced in replaced {
            let Some(dead_from) = self.dead_from(*replaced, key, now) else {
                continue;
            };
            if now < dead_from {
                next = Some(next.map_or(dead_from, |next| next.min(dead_from)));
            } else {
                // The holder may be forgotten with its last lease.
                let id = self.holders.id(*replaced).cloned();
                if self.end_lease(*replaced, key, now) {
                    self.note_replaced(id);
                }
            }
        }
        next
    }

    /// From when on a client counts as dead; `None` if it has nothing.
    ///
    /// Safety rule: a client that has an open poll, or was heard lately enough to be due, lives.
    /// One that was named by mistake keeps its lease while it reaches the server.
    fn dead_from(&self, holder: HolderKey, key: ResourceKey, now: Moment) -> Option<Moment> {
        let resource = &self.live.get(key.index())?.resource;
        let entry = resource.entries.get(holder).filter(|it| !it.is_cleared())?;
        let interval = resource.terms.refresh_interval(false).get();
        let due = entry.last_decision.map_or(now, |last| last.due());
        let silent_since = self.holders.silent_since(holder).unwrap_or(now);
        let due = due.max(silent_since.after_seconds(interval));
        let pause = if self.holders.was_heard_by_poll(holder) {
            PAUSE_AFTER_POLL
        } else {
            PAUSE_AFTER_REQUEST
        };
        let timeout = (TIMEOUT * interval).max(MIN_TIMEOUT);
        Some(due.after_seconds(timeout + (pause * interval).max(MIN_PAUSE)))
    }

    /// Counts the lease of a replaced client. A client with leases on many resources is one event.
    fn note_replaced(&mut self, holder: Option<HolderId>) {
        self.stats.replaced += 1;
        if let Some(HolderId::Client(client, _)) = holder {
            let event = LedgerEvent::Replaced(client);
            if self.events.events.last() != Some(&event) {
                self.events.push(event);
            }
        }
    }
}
