//! Measured demand of the bands of a limiter: what lower bands leave for it, and the demand that is
//! reported for each priority.

use std::sync::Arc;

use doorman_holder::DemandBands;
use doorman_openapi::{Capacity, ClientBand, MAX_BANDS, Moment};

use crate::{
    demand::{GaugeSample, InUseDemand, Window, in_unit},
    limiter::{Bands, Limiter},
};

/// For how many seconds of its demand tokens are kept for a band. More would protect it from longer
/// peaks, and keep lower bands waiting for longer when its demand begins.
const KEPT_SECONDS: f64 = 0.5;
/// The most of a bucket that is kept for bursts beyond the measured rate.
const KEPT_FOR_BURSTS: f64 = 0.5;
/// For how many seconds after its last request one token is kept for a band.
const KEPT_FOR_RARE: f64 = 60.0;
/// For how many seconds a peak of units is kept for a band: they may stay unused meanwhile.
const KEPT_PEAK: f64 = 2.0;

#[derive(Debug)]
pub(super) struct TrackedBands {
    bands: Arc<Bands>,
    /// In the order of the bands.
    demands: Vec<BandDemand>,
}

#[derive(Debug)]
struct BandDemand {
    priority: i32,
    window: Window,
    /// `None` before the first attempt.
    last_attempt: Option<Moment>,
    /// Of a gauge.
    in_use: Option<InUseDemand>,
}

impl BandDemand {
    /// Per second, or in units.
    fn measured(&self) -> f64 {
        match &self.in_use {
            Some(demand) => demand.peak(),
            None => self.window.generous(),
        }
    }
}

impl TrackedBands {
    /// Begins to measure bands, of which `earlier` may have been measured already.
    pub(super) fn new(
        bands: Arc<Bands>,
        earlier: Option<Self>,
        limiter: Limiter<'_>,
        now: Moment,
    ) -> Self {
        let mut earlier = earlier.map_or_else(Vec::new, |it| it.demands);
        let is_gauge = limiter.units_in_use().is_some();
        let attempted = limiter.band_attempts(&bands);
        let demands = bands.iter().zip(attempted).map(|(band, attempted)| {
            let known = earlier.iter().position(|it| it.priority == band.priority);
            let mut demand = match known {
                Some(known) => earlier.swap_remove(known),
                None => BandDemand {
                    priority: band.priority,
                    window: Window::new(now),
                    last_attempt: None,
                    in_use: is_gauge.then(|| InUseDemand::new(now)),
                },
            };
            // The highest band may be another one than before.
            demand.window.continue_from(attempted);
            demand
        });
        Self {
            demands: demands.collect(),
            bands,
        }
    }

    pub(super) fn is_of(&self, bands: &Arc<Bands>) -> bool {
        Arc::ptr_eq(&self.bands, bands)
    }

    /// Samples all bands, for windows of `length` seconds.
    pub(super) fn record(&mut self, limiter: Limiter<'_>, length: f64, now: Moment) {
        let burst = limiter.with_settings(|settings| settings.burst.load());
        let bucket = burst.tokens(limiter.lease_level(now).rate);
        let tallies = limiter.band_tallies(&self.bands);
        let bands = self.bands.iter().zip(&mut self.demands);
        for ((band, demand), tally) in bands.zip(tallies) {
            // The rest for the highest band varies: the totals are not read at one moment.
            let total = tally.attempted.max(demand.window.total());
            if demand.window.record(total, length, now) {
                demand.last_attempt = Some(now);
            }
            if let Some(in_use) = &mut demand.in_use {
                let sample = GaugeSample {
                    peak: tally.peak,
                    level: tally.in_use,
                    admitted: 0.0,
                    rejected: 0.0,
                    largest: 0.0,
                    limit: f64::INFINITY,
                };
                in_use.record(sample, KEPT_PEAK, now);
                band.set_demand(0.0, in_use.peak());
                continue;
            }
            let per_second = demand.window.generous();
            let bursts = demand.window.burst().min(bucket * KEPT_FOR_BURSTS);
            let is_used = |last: Moment| now.seconds_since(last) < KEPT_FOR_RARE;
            let one = f64::from(u8::from(demand.last_attempt.is_some_and(is_used)));
            let steady = burst.spent_in(KEPT_SECONDS, per_second);
            band.set_demand(per_second, steady.max(bursts).max(one));
        }
        limiter.wake_held_back();
    }

    pub(super) fn accept_fall(&mut self) {
        for demand in &mut self.demands {
            demand.window.accept_fall();
        }
    }

    pub(super) fn begin_stretch(&mut self) {
        for demand in &mut self.demands {
            demand.window.begin_stretch();
        }
    }

    /// Divides the demand for the whole resource among the priorities. Demand beyond the measured
    /// one counts at the lowest priority that has some: others need it more.
    /// Returns the highest priority and, if there are several, all; `None` if no demand was
    /// measured.
    pub(super) fn divide(
        &self,
        wants: Capacity,
        period: f64,
    ) -> Option<(i32, Option<Arc<DemandBands>>)> {
        let mut left = wants.get();
        let mut parts: Vec<(i32, f64)> = Vec::with_capacity(self.demands.len());
        for demand in &self.demands {
            let measured = demand.measured();
            let measured = match demand.in_use {
                Some(_) => measured,
                None => in_unit(measured, period).get(),
            };
            if measured > 0.0 {
                let part = measured.min(left);
                left -= part;
                parts.push((demand.priority, part));
            }
        }
        if let Some((_, lowest)) = parts.last_mut() {
            *lowest += left;
        }
        parts.retain(|(_, part)| *part > 0.0);
        for band in self.bands.iter() {
            let part = parts
                .iter()
                .find(|(priority, _)| *priority == band.priority);
            band.set_wants(part.map_or(0.0, |(_, part)| *part));
        }
        while parts.len() > MAX_BANDS
            && let Some((_, lowest)) = parts.pop()
            && let Some((_, above)) = parts.last_mut()
        {
            *above += lowest;
        }
        let (priority, _) = *parts.first()?;
        let bands = parts.iter().map(|&(priority, part)| ClientBand {
            priority,
            wants: Capacity::saturating(part),
        });
        let bands = (parts.len() > 1).then(|| Arc::new(DemandBands(bands.collect())));
        Some((priority, bands))
    }
}
