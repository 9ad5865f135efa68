//! What may never be.

use doorman_openapi::Moment;

use super::{
    report::Broken,
    terms::{RESOURCES, Terms, resource},
};

/// What is broken, with names and numbers.
pub(super) type Finding = (Broken, String);

/// Sums are compared with this relative tolerance.
const TOLERANCE: f64 = 1e-9;

/// More than the capacity is excused until then, because an operator cut it.
#[derive(Debug, Clone, Copy)]
struct Excuse {
    capacity: f64,
    until: Moment,
}

#[derive(Debug, Default)]
pub(super) struct Referee {
    excuses: [Vec<Excuse>; RESOURCES],
    /// How often more than the capacity was believed, with an excuse.
    pub(super) excused: u64,
}

impl Referee {
    /// The capacity of a resource has been cut; what is left of the old leases is over by `until`.
    pub(super) fn cut(&mut self, position: usize, capacity: f64, until: Moment) {
        self.excuses[position].push(Excuse { capacity, until });
    }

    /// What all believe together of one resource is not more than there is.
    pub(super) fn judge_sum(
        &mut self,
        position: usize,
        terms: &Terms,
        believed: f64,
        now: Moment,
    ) -> Result<(), Finding> {
        if believed <= terms.capacity * (1.0 + TOLERANCE) {
            return Ok(());
        }
        let excuses = &mut self.excuses[position];
        excuses.retain(|excuse| now < excuse.until);
        let most = excuses
            .iter()
            .map(|excuse| excuse.capacity)
            .fold(terms.capacity, f64::max);
        if believed <= most * (1.0 + TOLERANCE) {
            self.excused += 1;
            return Ok(());
        }
        let resource = resource(position);
        Err((
            Broken::Limit,
            format!("{believed} of {resource} is believed to be held, and there is {most}"),
        ))
    }
}

/// Everyone has their exact share of a resource.
pub(super) fn judge_shares(position: usize, has: &[f64], shares: &[f64]) -> Result<(), Finding> {
    let agree = has
        .iter()
        .zip(shares)
        .all(|(has, share)| (has - share).abs() <= TOLERANCE.sqrt() * (1.0 + share));
    if agree {
        Ok(())
    } else {
        let resource = resource(position);
        Err((
            Broken::Rest,
            format!("of {resource} the holders have {has:?}, and their shares are {shares:?}"),
        ))
    }
}
