//! Meters that do nothing.

use std::sync::Arc;

use doorman_holder::Failure;
use doorman_openapi::{Fallback, ResourceId};

use super::{LeasePhase, NotAdmitted};
use crate::outcome::Outcome;

#[derive(Debug, Default)]
pub(crate) struct Meters {}

#[derive(Debug, Clone)]
pub(crate) struct LimitMeter;

#[derive(Debug, Default)]
pub(crate) struct LeaseMeter {}

impl Meters {
    pub(crate) fn limit(&self, _: &Arc<str>) -> LimitMeter {
        LimitMeter
    }

    pub(crate) fn add_key(&self) {}

    pub(crate) fn remove_keys(&self, _: usize) {}
}

impl LimitMeter {
    pub(crate) fn admitted(&self, _: bool, _: impl FnOnce() -> Option<Fallback>) {}

    pub(crate) fn count(&self, _: NotAdmitted) {}

    pub(crate) fn ended(&self, _: Outcome, _: u64) {}

    pub(crate) fn invalid_headers(&self) {}
}

impl LeaseMeter {
    pub(crate) fn on_response(&mut self, _: Option<&Failure>) {}

    pub(crate) fn on_hints(&mut self, _: u64) {}

    pub(crate) fn on_lease_change(&mut self, _: LeasePhase) {}

    pub(crate) fn set_in_flight(&mut self, _: &ResourceId, _: f64) {}

    pub(crate) fn set_capacity(&mut self, _: &ResourceId, _: f64) {}

    pub(crate) fn forget(&mut self, _: &ResourceId) {}
}
