//! Waiting for the turns of a request.

use std::{iter::zip, mem::take, sync::Arc};

use super::{Admission, AskedOfAll, Denial};
use crate::{clock, headers::Fields, meter::Outcome};

/// What a request has taken, some of it ahead of its turn. Dropped while it waits, its caller has gone away: it gives everything back.
pub(super) struct Turns {
    admission: Arc<Admission>,
    asked: AskedOfAll,
}

impl Turns {
    pub(super) fn new(admission: Arc<Admission>, asked: AskedOfAll) -> Self {
        Self { admission, asked }
    }

    /// Waits until every turn has come.
    pub(super) async fn come(mut self) -> Result<Fields, Box<Denial>> {
        let admission = Arc::clone(&self.admission);
        let mut refused = None;
        for (armed, one) in zip(&admission.limits, &self.asked) {
            if let Some(one) = one
                // A delay ends at its deadline: no other end is needed.
                && let Err(why) = one.place.turn(std::future::pending()).await
            {
                refused = Some((armed, armed.refusal(one, why, clock::now())));
                break;
            }
        }
        match refused {
            Some((armed, refusal)) => {
                Err(admission.deny(&mut self.asked, armed, refusal, clock::now()))
            }
            None => Ok(admission.keep(take(&mut self.asked), clock::now())),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        for (armed, one) in zip(&self.admission.limits, &self.asked) {
            if one.as_ref().is_some_and(|one| one.place.is_queued()) {
                armed.meter.count(Outcome::Gone);
            }
        }
    }
}
