//! What is shown of a limiter to whoever debugs it.

use std::sync::atomic::Ordering;

use doorman_openapi::Moment;

use super::{Limiter, Tally, bucket::Flow};

/// A limiter at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LimiterView {
    pub(crate) tally: Tally,
    pub(crate) waiting: u32,
    /// In the resource's own unit.
    pub(crate) wants: f64,
    /// The lease; `None` when the fallback counts.
    pub(crate) held: Option<Held>,
    /// The whole limit, and the seconds it is counted over; `None` when it was not told.
    pub(crate) limit: Option<f64>,
    pub(crate) per: f64,
    /// Whether the resource turned out to be no rate.
    pub(crate) unit_mismatch: bool,
}

/// What may be used, and until when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Held {
    /// Tokens a second; `None` when everything passes.
    pub(crate) rate: Option<f64>,
    /// [`Moment::NEVER`] for what needs no lease.
    pub(crate) ends: Moment,
}

impl Limiter {
    /// Keeps what the leasing side saw wanted.
    pub(crate) fn record_wants(&self, wants: f64) {
        self.wants.update(|_| wants);
    }

    pub(crate) fn view_at(&self, now: Moment) -> LimiterView {
        let published = self.read();
        let terms = published.terms;
        LimiterView {
            tally: self.tally(),
            waiting: self.waiting(),
            wants: self.wants.load(),
            held: (now < terms.ends).then_some(Held {
                rate: match terms.flow {
                    Flow::Shut => Some(0.0),
                    Flow::At(rate) => Some(rate),
                    Flow::Open => None,
                },
                ends: terms.ends,
            }),
            limit: published.policy.map(|policy| policy.limit),
            per: published.policy.map_or(1.0, |policy| policy.per),
            unit_mismatch: self.unit_mismatch.load(Ordering::Relaxed),
        }
    }
}
