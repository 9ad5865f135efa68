//! FAIR_SHARE: the weighted max-min fair share.
//!
//! Everyone gets what they want up to one common level per weight, and the level is as high as the capacity allows (Bertsekas and
//! Gallager, "Data Networks", §6.5.2). Doorman's own did two rounds of the filling; this is the exact result of all of them.

use super::{
    super::demands::Demands,
    division::{Division, Line},
};

pub(super) fn divide(capacity: f64, demands: &Demands) -> Division {
    let level = demands.water_level(capacity);
    if level.is_infinite() {
        return Division::content(0.0);
    }
    Division {
        threshold: level,
        below: Line::AS_WANTED,
        above: Line {
            per_want: 0.0,
            per_weight: level,
        },
    }
}
