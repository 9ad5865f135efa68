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
    /// The shortage that is measured, or the last one while more bursts are expected.
    shortage: Option<Box<Shortage>>,
}

#[derive(Debug)]
struct Shortage {
    /// The bursts before it, which the lease has tokens for.
    known: f64,
    since: Moment,
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
    /// A shortage is signaled, which will be measured.
    pub(super) fn begin_shortage(&mut self, known: f64, now: Moment) {
        self.shortage = Some(Box::new(Shortage {
            known,
            since: now,
            first: self.first(),
        }));
    }

    /// The shortage is measured.
    pub(super) fn end_shortage(&mut self) {
        if self.first().is_none() {
            self.shortage = None;
        }
    }

    /// Notes that the bucket is empty, or has no tokens for another such burst. Expects more of
    /// them if the shortage has just begun.
    pub(super) fn note_emptied(&mut self, burst: f64, total: f64, now: Moment) {
        if let Some(shortage) = &mut self.shortage
            && now.seconds_since(shortage.since) < AT_ONCE
            && burst > NEW * shortage.known
        {
            shortage.first = Some(FirstBurst {
                size: burst,
                total,
                at: now,
            });
        }
    }

    fn first(&self) -> Option<FirstBurst> {
        self.shortage.as_ref()?.first
    }

    /// The rate that more bursts would have, if they are expected.
    pub(super) fn expected(&self) -> Option<f64> {
        self.first().map(|it| EXPECTED * it.size)
    }

    /// When it is known whether more bursts came.
    pub(super) fn expire_at(&self) -> Option<Moment> {
        self.first().map(|it| it.at.after_seconds(RECALL_TIME))
    }

    /// When to sample next: the rest of the first burst may come a little later.
    pub(super) fn next_at(&self, now: Moment) -> Option<Moment> {
        let shortage = self.shortage.as_ref()?;
        let complete = shortage.since.after_seconds(0.75 * AT_ONCE);
        let expire = self.expire_at()?;
        Some(if now < complete { complete } else { expire })
    }

    /// Expects no more bursts at the end of their time. Returns the attempts and the seconds since
    /// the first one, by the running total, if they show a rate.
    pub(super) fn end(&mut self, total: f64, now: Moment) -> Option<(f64, f64)> {
        let shortage = self.shortage.as_mut()?;
        let first = shortage.first.take()?;
        if now.seconds_since(shortage.since) >= AT_ONCE {
            self.shortage = None;
        }
        let attempts = total - first.total;
        let is_shown = attempts >= SHOW_RATE * first.size;
        is_shown.then(|| (attempts, now.seconds_since(first.at)))
    }
}
