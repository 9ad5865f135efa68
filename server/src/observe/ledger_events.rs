//! What the books notice, in the log: few lines a second, though a client can invent as many resources as it likes.

use std::time::Duration;

use doorman_openapi::Moment;

use crate::ledger::{LedgerEvent, LedgerEvents};

/// How many notices are written in one second; of those beyond only their number, when the second is over.
const LINES: usize = 10;

const SECOND: Duration = Duration::from_secs(1);

/// Writes notices, as many as somebody could read. Must be events regularly, be it of nothing.
#[derive(Debug, Default)]
pub(crate) struct Log {
    since: Moment,
    lines: usize,
    left_out: u64,
}

impl Log {
    /// Writes what there is room for.
    pub(crate) fn tell(&mut self, notices: LedgerEvents, now: Moment) {
        let left_out = self.left_out(now);
        if left_out > 0 {
            tracing::warn!(left_out, "more was noticed than is written");
        }
        for notice in self.room_for(notices) {
            write(&notice);
        }
    }

    /// What was left out in the last second, when that is over.
    fn left_out(&mut self, now: Moment) -> u64 {
        if now < self.since.after(SECOND) {
            return 0;
        }
        self.since = now;
        self.lines = 0;
        std::mem::take(&mut self.left_out)
    }

    fn room_for(
        &mut self,
        LedgerEvents {
            mut events,
            dropped,
        }: LedgerEvents,
    ) -> Vec<LedgerEvent> {
        let came = events.len();
        events.truncate(LINES.saturating_sub(self.lines));
        self.lines = self.lines.saturating_add(events.len());
        let cut = u64::try_from(came.saturating_sub(events.len())).unwrap_or(u64::MAX);
        self.left_out = self.left_out.saturating_add(dropped).saturating_add(cut);
        events
    }
}

fn write(notice: &LedgerEvent) {
    match notice {
        LedgerEvent::Unmatched(resource) => {
            tracing::warn!(%resource, "no template matches this resource");
        }
        LedgerEvent::SharesBelowOne(resource) => {
            tracing::warn!(
                %resource,
                "an equal share comes to less than one request a refresh interval; SHARED_BUCKET or SUPPRESSION would suit better"
            );
        }
        LedgerEvent::Overused(resource) => {
            tracing::warn!(%resource, "operations outlive the lease that they were begun under");
        }
        LedgerEvent::ExcessClaimOfClient(resource, client) => {
            tracing::warn!(%resource, %client, "a client claims more than it can have; what is too much counts as none");
        }
        LedgerEvent::ExcessClaimOfNode(resource, node) => {
            tracing::warn!(%resource, %node, "a node claims more than it can have; what is too much counts as none");
        }
    }
}

#[cfg(test)]
mod tests {
    use doorman_openapi::ResourceId;

    use super::*;

    fn notices(count: usize, left_out: u64) -> LedgerEvents {
        let unmatched = |n| LedgerEvent::Unmatched(ResourceId::new(format!("r/{n}")).unwrap());
        LedgerEvents {
            events: (0..count).map(unmatched).collect(),
            dropped: left_out,
        }
    }

    #[test]
    fn ten_lines_a_second_are_written_and_the_others_counted() {
        let mut log = Log::default();
        let start = Moment::ORIGIN.after(Duration::from_secs(3600));
        assert_eq!(log.left_out(start), 0);
        assert_eq!(log.room_for(notices(4, 0)).len(), 4);
        assert_eq!(log.room_for(notices(256, 100)).len(), 6);
        assert_eq!(log.room_for(notices(1, 0)).len(), 0);
        assert_eq!(log.left_out(start.after(SECOND / 2)), 0);

        let next = start.after(SECOND);
        assert_eq!(log.left_out(next), 250 + 100 + 1);
        assert_eq!(log.room_for(notices(1, 0)).len(), 1);
        assert_eq!(log.left_out(next.after(SECOND)), 0);
    }
}
