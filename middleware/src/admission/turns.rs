//! Waiting for the turns of a request.

use std::mem::take;

use super::{
    Denial, Fields,
    pending::{AskedOfAll, deny, keep, leave},
};
use crate::clock;

/// What a request has taken, some of it ahead of its turn. Dropped while it waits, its caller has gone away: it gives everything back.
pub(super) struct Turns(AskedOfAll);

impl Turns {
    pub(super) fn of(asked: AskedOfAll) -> Self {
        Self(asked)
    }

    /// Waits until every turn has come.
    pub(super) async fn come(mut self) -> Result<Fields, Box<Denial>> {
        let mut refusing = None;
        for one in &mut self.0 {
            if let Err(refused) = one.turn().await {
                refusing = Some(one.refuses(refused, clock::now()));
                break;
            }
        }
        match refusing {
            Some(refusing) => Err(deny(&mut self.0, refusing, clock::now())),
            None => Ok(keep(take(&mut self.0), clock::now())),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        leave(&self.0);
    }
}
