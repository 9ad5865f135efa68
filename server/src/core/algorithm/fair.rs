//! FAIR_SHARE: the weighted max-min fair share.
//!
//! Everyone gets what they want up to one common level per weight, and the level is as high as the capacity allows (Bertsekas and
//! Gallager, "Data Networks", §6.5.2). Doorman's own did two rounds of the filling; this is the exact result of all of them.

use super::super::demands::{Demand, Demands};

pub(super) fn share(capacity: f64, demands: &Demands, bands: impl Iterator<Item = Demand>) -> f64 {
    let level = demands.water_level(capacity);
    bands.map(|band| band.wants.min(level * band.weight)).sum()
}
