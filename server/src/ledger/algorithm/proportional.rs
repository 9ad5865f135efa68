//! PROPORTIONAL_SHARE, as Doorman's page on algorithms defines it.
//!
//! While all fits, everyone gets what they want. When it does not, everyone gets at least an equal share (per weight), as far as
//! they want it; what is left by those who want less goes to the others in proportion to what they want beyond their equal share.

use super::{
    super::demands::Demands,
    division::{Division, Line},
};

pub(super) fn divide(capacity: f64, demands: &Demands) -> Division {
    let equal = capacity / demands.total().weight.max(1.0);
    let (content, needy) = demands.split_at(equal);
    let left = (equal * content.weight - content.wants).max(0.0);
    let need = needy.wants - equal * needy.weight;
    let part = if need > 0.0 {
        (left / need).min(1.0)
    } else {
        0.0
    };
    Division {
        threshold: equal,
        below: Line::AS_WANTED,
        above: Line {
            per_want: part,
            per_weight: equal * (1.0 - part),
        },
    }
}
