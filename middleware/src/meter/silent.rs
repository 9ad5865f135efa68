//! Counts nothing, and costs nothing.

use std::sync::Arc;

use super::Outcome;
use doorman_openapi::ResourceId;

use crate::{
    Fallback,
    lease::Event,
    limiter::{LeaseState, Limiter},
};

#[derive(Debug, Default)]
pub(crate) struct Meters {}

#[derive(Debug, Clone)]
pub(crate) struct LimitMeter;

#[derive(Debug, Default)]
pub(crate) struct LeaseMeter {}

#[derive(Debug, Default)]
pub(crate) struct LeasePhase {}

impl Meters {
    pub(crate) fn of(&self, _: &Arc<str>) -> LimitMeter {
        LimitMeter
    }

    pub(crate) fn key_comes(&self) {}

    pub(crate) fn keys_go(&self, _: usize) {}
}

impl LimitMeter {
    pub(crate) fn admitted(&self, _: bool, _: impl FnOnce() -> Option<Fallback>) {}

    pub(crate) fn count(&self, _: Outcome) {}
}

impl LeaseMeter {
    pub(crate) fn came_out(&mut self, _: &Event) {}

    pub(crate) fn published(&mut self, _: &mut LeasePhase, _: &Limiter, _: LeaseState, _: f64) {}

    pub(crate) fn forget(&mut self, _: &ResourceId) {}
}
