//! Bursts one after the other, as those of a load generator: the first one may begin a rise.

use doorman_openapi::Moment;

/// How long it may take until others have given capacity back, in seconds.
pub(super) const RECALL_TIME: f64 = 0.25;
/// A bucket that is empty within this time, in seconds, of a shortage was emptied by one burst.
const AT_ONCE: f64 = 0.02;
/// A burst is new if it exceeds the earlier ones by this factor.
const NEW: f64 = 1.2;
/// Expected bursts per second, for [`RECALL_TIME`]: those of fifty connections with 1,000 requests
/// a second.
const EXPECTED: f64 = 20.0;
/// Bursts after the first one that suffice to measure their rate.
const SHOW_RATE: f64 = 2.0;

#[derive(Debug, Default)]
pub(super) struct RepeatedBursts {
    /// The bursts before the shortage that is measured, which the lease has tokens for.
    known: f64,
    /// When that shortage was signaled.
    short_since: Moment,
    first: Option<FirstBurst>,
}

/// A burst that has emptied the bucket, and may be the first of many.
#[derive(Debug, Clone, Copy)]
struct FirstBurst {
    size: f64,
    /// The running total after it.
    total: f64,
    at: Moment,
}

impl RepeatedBursts {
    /// Notes the bursts so far while no shortage is measured.
    pub(super) fn note_known(&mut self, burst: f64) {
        self.known = burst;
    }

    /// A shortage is signaled, which will be measured.
    pub(super) fn begin_shortage(&mut self, burst: f64, now: Moment) {
        self.known = burst;
        self.short_since = now;
    }

    /// Notes that the bucket is empty, or has no tokens for another such burst. Expects more of
    /// them if the shortage has just begun.
    pub(super) fn note_emptied(&mut self, burst: f64, total: f64, now: Moment) {
        if now.seconds_since(self.short_since) < AT_ONCE && burst > NEW * self.known {
            self.first = Some(FirstBurst {
                size: burst,
                total,
                at: now,
            });
        }
    }

    /// The rate that more bursts would have, if they are expected.
    pub(super) fn expected(&self) -> Option<f64> {
        self.first.map(|it| EXPECTED * it.size)
    }

    /// When it is known whether more bursts came.
    pub(super) fn expire_at(&self) -> Option<Moment> {
        self.first.map(|it| it.at.after_seconds(RECALL_TIME))
    }

    /// When to sample next: the rest of the first burst may come a little later.
    pub(super) fn next_at(&self, now: Moment) -> Option<Moment> {
        let complete = self.short_since.after_seconds(0.75 * AT_ONCE);
        let expire = self.expire_at()?;
        Some(if now < complete { complete } else { expire })
    }

    /// Expects no more bursts at the end of their time. Returns the attempts and the seconds since
    /// the first one, by the running total, if they show a rate.
    pub(super) fn end(&mut self, total: f64, now: Moment) -> Option<(f64, f64)> {
        let first = self.first.take()?;
        let attempts = total - first.total;
        let is_shown = attempts >= SHOW_RATE * first.size;
        is_shown.then(|| (attempts, now.seconds_since(first.at)))
    }
}
