//! Charges of admitted requests whose cost may be corrected afterwards.
//!
//! A correction makes the bucket as full as if the cost had been right from the beginning, as far
//! as the admissions since then allow: see [`OpenCharges`](super::open_charges::OpenCharges).

use super::{
    Limiter, LimiterHandle, Shortage, bands::RequestBand, bucket::BucketView,
    reservation::SpentTokens, store::QueueGuard, wait_queue::unlock_and_wake,
};
use crate::cost::Cost;

/// A charge that may be corrected until this is dropped. Its limiter is not forgotten meanwhile.
#[derive(Debug)]
pub(crate) struct OpenCharge {
    limiter: LimiterHandle,
    /// Among requests of other priorities.
    band: Option<RequestBand>,
    first: Part,
    /// The part that was charged later, and is refunded first.
    late: Option<Part>,
}

/// Tokens that were charged at one time.
#[derive(Debug)]
struct Part {
    number: u64,
    tokens: f64,
}

impl Limiter<'_> {
    /// Lets this part of the cost of an admitted request be corrected. `None` if its limiter was
    /// forgotten.
    pub(crate) fn open_charge(self, tokens: &SpentTokens, cost: Cost) -> Option<OpenCharge> {
        let mut queue = self.queue();
        if !self.is_current() {
            return None;
        }
        let (spent, view) = self.spent_and_view();
        let taken = spent - queue.cost();
        Some(OpenCharge {
            limiter: self.handle(),
            band: tokens.band.clone(),
            first: Part {
                number: queue.charges().open(tokens.end, taken, view.floor),
                tokens: cost.get(),
            },
            late: None,
        })
    }

    /// *Spent*, and the bucket at that moment or later: tokens that are taken afterwards do not
    /// hide what overflowed before.
    fn spent_and_view(self) -> (f64, BucketView) {
        let spent = self.record.spent.load();
        (spent, self.view(self.now()).view)
    }

    /// Returns up to so many tokens of a charge, as far as they would not have overflowed, first to
    /// the requests in the queue. Returns how many.
    fn refund(self, queue: &mut QueueGuard<'_>, number: u64, tokens: f64) -> f64 {
        loop {
            let (spent, view) = self.spent_and_view();
            let taken = spent - queue.cost();
            queue.charges().note_room(taken, view.floor);
            let returned = tokens.min(queue.charges().room(number));
            // An admission since then may have relied on an overflow.
            if self.record.spent.replace(spent, spent - returned).is_ok() {
                queue.charges().refund(number, returned);
                queue.advance(returned, |it| !view.admits(it));
                return returned;
            }
        }
    }

    /// Charges tokens later. Returns whether the bucket runs low.
    fn charge_late(self, queue: &mut QueueGuard<'_>, late: &mut Option<Part>, tokens: f64) -> bool {
        let (spent, view) = self.spent_and_view();
        let taken = spent - queue.cost();
        queue.charges().note_room(taken, view.floor);
        let end = match queue.cost() {
            0.0 => taken.max(view.floor) + tokens,
            // The tokens of the queue are what overflows.
            _ => taken + tokens,
        };
        let late = late.get_or_insert_with(|| Part {
            number: queue.charges().open(end, end, view.floor),
            tokens: 0.0,
        });
        late.tokens += tokens;
        queue.charges().raise(end);
        let spent = &self.record.spent;
        spent.update(|spent| spent.max(view.floor) + tokens);
        let taken = spent.load() - queue.cost();
        queue.postpone(tokens, taken);
        view.runs_low(spent.load())
    }
}

impl OpenCharge {
    pub(crate) fn limiter(&self) -> Limiter<'_> {
        self.limiter.get()
    }

    fn cost(&self) -> f64 {
        self.first.tokens + self.late.as_ref().map_or(0.0, |late| late.tokens)
    }

    /// Corrects the cost: a lower one returns tokens, first to the requests in the queue, and a
    /// higher one leaves debt, which delays them. Returns the shortage that it causes.
    pub(crate) fn correct(&mut self, cost: f64) -> Option<Shortage> {
        let more = cost - self.cost();
        if more == 0.0 {
            return None;
        }
        if let Some(band) = &self.band {
            band.get().count(more);
        }
        let limiter = self.limiter.get();
        // This total may fall: the worker reports its maximum.
        let admitted = &limiter.record.admitted;
        let mut queue = limiter.queue();
        if more > 0.0 {
            let runs_low = limiter.charge_late(&mut queue, &mut self.late, more);
            admitted.update(|total| total + more);
            return runs_low.then_some(Shortage::RunningLow);
        }
        let (mut fewer, mut returned) = (-more, 0.0);
        for part in self.late.iter_mut().chain([&mut self.first]) {
            let tokens = fewer.min(part.tokens);
            part.tokens -= tokens;
            fewer -= tokens;
            returned += limiter.refund(&mut queue, part.number, tokens);
        }
        admitted.update(|total| total + more);
        if returned > 0.0 {
            unlock_and_wake(queue);
        }
        None
    }
}

impl Drop for OpenCharge {
    fn drop(&mut self) {
        let mut queue = self.limiter.get().queue();
        let charges = queue.charges();
        charges.close(self.first.number);
        if let Some(late) = &self.late {
            charges.close(late.number);
        }
    }
}
