//! PROPORTIONAL_SHARE, as Doorman's page on algorithms defines it.
//!
//! While all fits, everyone gets what they want. When it does not, everyone gets at least an equal share (per weight), as far as
//! they want it; what is left by those who want less goes to the others in proportion to what they want beyond their equal share.

use super::super::demands::{Demand, Demands};

pub(super) fn share(capacity: f64, demands: &Demands, bands: impl Iterator<Item = Demand>) -> f64 {
    let total = demands.total();
    if total.wants <= capacity {
        return bands.map(|band| band.wants).sum();
    }
    let equal = capacity / total.weight;
    let (content, needy) = demands.split_at(equal);
    let left = (equal * content.weight - content.wants).max(0.0);
    let need = needy.wants - equal * needy.weight;
    bands
        .map(|band| {
            let base = equal * band.weight;
            if band.wants <= base || need <= 0.0 {
                band.wants.min(base)
            } else {
                (base + left * ((band.wants - base) / need)).min(band.wants)
            }
        })
        .sum()
}
