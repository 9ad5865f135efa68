//! Bands: the requests of different priorities at one limiter.
//!
//! All of them spend one bucket, or the units of one gauge. A request leaves in it what is *kept*
//! for the higher bands: the amount that they are likely to need, as the worker has measured. So a
//! bucket that runs low refuses the lower bands first, and the higher ones spend from it. Tokens
//! that they do not spend stay in the bucket, so the lower bands have the rest of the rate. A full
//! bucket admits every band.
//!
//! A request of a lower band that waits takes no tokens ahead of its turn: higher ones would wait
//! behind it. It is [held back](super::wait_queue), and newer ones of its band and of lower bands
//! wait behind it.
//!
//! Nothing here decides how much is admitted in all, so the words of a band need no order.

use std::sync::Arc;

use doorman_openapi::Unit;
use smallvec::SmallVec;

use super::{
    Limiter, LimiterSettings,
    atomics::AtomicF64,
    record::Rank,
    settings::Priority,
    sync::{AtomicU32, Ordering},
    wait_queue::WaitQueue,
};

/// The bands of a limiter that has several, the highest first.
#[derive(Debug)]
pub(crate) struct Bands {
    /// Of the limiter.
    generation: u16,
    bands: Box<[Arc<Band>]>,
}

/// The requests of one priority.
#[derive(Debug, Default)]
pub(crate) struct Band {
    pub(crate) priority: i32,
    /// The running total of cost attempted, of a lower band. The highest band has the rest of the
    /// limiter's total: its requests need not be counted on the fast path.
    attempted: AtomicF64,
    /// The units of a gauge in use, of a lower band. The highest band has the rest.
    in_use: AtomicF64,
    /// The most units of a gauge in use or wanted since the worker last looked.
    peak: AtomicF64,
    /// The requests that are held back.
    held_back: AtomicU32,
    /// The measured demand, in tokens a second.
    per_second: AtomicF64,
    /// The tokens or units that lower bands leave for it.
    kept: AtomicF64,
    /// The demand in the last report, in the resource's own unit.
    wants: AtomicF64,
}

impl Band {
    fn new(priority: i32) -> Self {
        Self {
            priority,
            ..Self::default()
        }
    }

    /// Sets the measured demand, and what lower bands leave for it.
    pub(crate) fn set_demand(&self, per_second: f64, kept: f64) {
        self.per_second.store(per_second);
        self.kept.store(kept);
    }

    pub(crate) fn set_wants(&self, wants: f64) {
        self.wants.store(wants);
    }

    pub(crate) fn wants(&self) -> f64 {
        self.wants.load()
    }

    /// The units are kept at once: the worker may look later.
    fn raise_peak(&self, units: f64) {
        for word in [&self.peak, &self.kept] {
            word.update(|peak| peak.max(units));
        }
    }

    fn take_peak(&self) -> f64 {
        let mut peak = self.peak.load();
        while let Err(actual) = self.peak.replace(peak, 0.0) {
            peak = actual;
        }
        peak
    }
}

/// The running totals and levels of a band, for the worker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BandTally {
    pub(crate) attempted: f64,
    /// The most units of a gauge in use or wanted since the worker last looked.
    pub(crate) peak: f64,
    /// The units in use now.
    pub(crate) in_use: f64,
}

impl Bands {
    /// Keeps the bands of earlier ones of the limiter.
    fn new(generation: u16, priorities: &[i32], earlier: Option<&Self>) -> Self {
        let bands = priorities.iter().map(|&priority| {
            let known = earlier.and_then(|it| it.bands.iter().find(|it| it.priority == priority));
            known.map_or_else(|| Arc::new(Band::new(priority)), Arc::clone)
        });
        Self {
            generation,
            bands: bands.collect(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Band> {
        self.bands.iter().map(|band| &**band)
    }

    fn has(&self, priorities: &[i32]) -> bool {
        self.iter()
            .map(|band| band.priority)
            .eq(priorities.iter().copied())
    }

    /// The band of a priority; the next lower one if its limit no longer exists.
    fn position(&self, priority: i32) -> usize {
        let position = self.iter().position(|band| band.priority <= priority);
        position.unwrap_or(self.bands.len().saturating_sub(1))
    }

    /// The tokens that requests of a band leave for higher ones, with so much *spent* in all.
    fn kept(&self, position: usize, unit: Unit, spent: f64) -> f64 {
        let above = self.iter().take(position);
        match unit {
            Unit::Rate => above.map(|band| band.kept.load()).sum(),
            Unit::Gauge => above
                .enumerate()
                .map(|(index, band)| (band.kept.load() - self.in_use(index, spent)).max(0.0))
                .sum(),
        }
    }

    fn in_use(&self, position: usize, spent: f64) -> f64 {
        match self.bands.get(position) {
            Some(band) if position > 0 => band.in_use.load(),
            Some(_) | None => {
                let lower = self.iter().skip(1).map(|band| band.in_use.load());
                (spent - lower.sum::<f64>()).max(0.0)
            }
        }
    }

    /// The totals of attempts of all bands, of which the whole limiter has `total`.
    fn attempted(&self, total: f64) -> impl Iterator<Item = f64> {
        let lower: f64 = self.iter().skip(1).map(|it| it.attempted.load()).sum();
        let bands = self.iter().enumerate();
        bands.map(move |(position, band)| match position {
            0 => total - lower,
            _ => band.attempted.load(),
        })
    }

    /// The totals of all bands, of which the whole limiter has attempted `total` and spent `spent`.
    fn tallies(&self, total: f64, spent: f64) -> impl Iterator<Item = BandTally> {
        let attempted = self.attempted(total);
        let bands = self.iter().zip(attempted).enumerate();
        bands.map(move |(position, (band, attempted))| {
            let in_use = self.in_use(position, spent);
            BandTally {
                attempted,
                peak: band.take_peak().max(in_use),
                in_use,
            }
        })
    }
}

/// The band of a request, for those who keep it.
#[derive(Debug, Clone)]
pub(crate) struct RequestBand {
    bands: Arc<Bands>,
    position: usize,
}

impl RequestBand {
    pub(super) fn get(&self) -> BandRef<'_> {
        BandRef {
            bands: &self.bands,
            position: self.position,
        }
    }
}

/// The band of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct BandRef<'b> {
    bands: &'b Bands,
    position: usize,
}

impl<'b> BandRef<'b> {
    fn band(self) -> Option<&'b Band> {
        self.bands.bands.get(self.position).map(|band| &**band)
    }

    /// The band, if there are higher ones.
    fn lower(self) -> Option<&'b Band> {
        self.band().filter(|_| self.is_lower())
    }

    pub(super) fn priority(self) -> i32 {
        self.band().map_or(0, |band| band.priority)
    }

    /// Whether there are higher bands.
    pub(super) fn is_lower(self) -> bool {
        self.position > 0
    }

    /// Whether there are lower bands.
    pub(super) fn is_higher(self) -> bool {
        self.position.saturating_add(1) < self.bands.bands.len()
    }

    /// The tokens that the request leaves for higher bands, with so much *spent* in all.
    pub(super) fn kept(self, unit: Unit, spent: f64) -> f64 {
        self.bands.kept(self.position, unit, spent)
    }

    /// Whether earlier requests of this band, or of higher ones, are held back.
    pub(super) fn is_behind_others(self) -> bool {
        let bands = self.bands.iter().take(self.position.saturating_add(1));
        let mut lower = bands.skip(1);
        lower.any(|band| band.held_back.load(Ordering::Relaxed) > 0)
    }

    /// The demand of higher bands, in tokens a second.
    pub(super) fn demand_above(self) -> f64 {
        let above = self.bands.iter().take(self.position);
        above.map(|band| band.per_second.load()).sum()
    }

    /// Counts an attempt; takes it back if the cost is negative.
    pub(super) fn count(self, cost: f64) {
        if let Some(band) = self.lower() {
            band.attempted.update(|total| total + cost);
        }
    }

    pub(super) fn begin_to_hold_back(self) {
        if let Some(band) = self.band() {
            band.held_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn end_to_hold_back(self) {
        if let Some(band) = self.band() {
            band.held_back.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts units of a gauge that are taken; given back if they are negative.
    pub(super) fn use_units(self, units: f64) {
        if let Some(band) = self.lower() {
            // They may have been taken while the band was the highest.
            band.in_use.update(|in_use| (in_use + units).max(0.0));
        }
    }

    /// Raises the peak of a gauge's band by units that are wanted beside those in use.
    pub(super) fn raise_peak(self, wanted: f64, spent: f64) {
        if let Some(band) = self.band() {
            band.raise_peak(self.bands.in_use(self.position, spent) + wanted);
        }
    }
}

impl Limiter<'_> {
    /// Calls `read` with the bands; `None` if all requests have one priority.
    fn with_bands<R>(self, read: impl FnOnce(&Arc<Bands>) -> R) -> Option<R> {
        let bands = self.store.bands(self.number)?.load();
        let bands = bands.as_ref()?;
        (bands.generation == self.generation).then(|| read(bands))
    }

    /// Calls `read` with the band of a request; `None` if all requests have one priority.
    pub(super) fn with_band<R>(
        self,
        priority: i32,
        read: impl FnOnce(BandRef<'_>) -> R,
    ) -> Option<R> {
        self.with_bands(|bands| {
            read(BandRef {
                position: bands.position(priority),
                bands,
            })
        })
    }

    /// The band of a request; `None` if all requests have one priority.
    #[cold]
    pub(super) fn band(self, priority: i32) -> Option<RequestBand> {
        self.with_bands(|bands| RequestBand {
            position: bands.position(priority),
            bands: Arc::clone(bands),
        })
    }

    /// Lets a request that is held back look again, after less is kept for higher ones.
    pub(crate) fn wake_held_back(self) {
        // A request that begins to wait sees that, or this thread sees that there is a queue.
        self.record.spent.update(|spent| spent);
        self.read_queue(WaitQueue::wake_first_held_back);
    }

    /// The attempts of its bands.
    pub(crate) fn band_attempts(self, bands: &Bands) -> impl Iterator<Item = f64> {
        bands.attempted(self.attempted())
    }

    /// The totals of its bands. Their peaks begin anew.
    pub(crate) fn band_tallies(self, bands: &Bands) -> impl Iterator<Item = BandTally> {
        bands.tallies(self.attempted(), self.record.spent.load())
    }

    /// The priorities and the demand last reported for each; empty if all requests have one.
    pub(crate) fn wants_by_priority(self) -> Vec<(i32, f64)> {
        let wants = |bands: &Arc<Bands>| bands.iter().map(|it| (it.priority, it.wants())).collect();
        self.with_bands(wants).unwrap_or_default()
    }

    /// The bands, by the priorities that exist now.
    pub(crate) fn current_bands(self) -> Option<Arc<Bands>> {
        let bands = self.with_bands(Arc::clone)?;
        let (own, priorities) = self.with_settings(Self::ranks);
        if bands.has(&priorities) && self.record.rank() == rank_of(own, &priorities) {
            return Some(bands);
        }
        self.update_bands();
        self.with_bands(Arc::clone)
    }

    /// The priority of the limit that created the limiter, and all.
    fn ranks(own: &LimiterSettings) -> (i32, SmallVec<[i32; 4]>) {
        (own.priority.own(), own.priority.in_force())
    }

    /// Gives the requests of a limit with this priority a band.
    pub(super) fn add_band(self, priority: i32) {
        let is_known = self.with_bands(|bands| bands.iter().any(|it| it.priority == priority));
        let is_known = is_known.unwrap_or_else(|| {
            let is_only = |own: &Priority| own.own() == priority || own.in_force().len() < 2;
            self.with_settings(|own| is_only(&own.priority))
        });
        if !is_known {
            self.update_bands();
        }
    }

    #[cold]
    fn update_bands(self) {
        let _writer = self.store.lock();
        let Some(slot) = self.store.bands_or_allocate(self.number) else {
            return;
        };
        if !self.is_current() {
            return;
        }
        let (own, priorities) = self.with_settings(Self::ranks);
        let earlier = slot.load();
        let earlier = earlier
            .as_deref()
            .filter(|it| it.generation == self.generation);
        let bands = (priorities.len() > 1)
            .then(|| Arc::new(Bands::new(self.generation, &priorities, earlier)));
        slot.store(bands);
        self.record.set_rank(rank_of(own, &priorities));
    }
}

/// The rank of the priority `own` among all.
fn rank_of(own: i32, priorities: &[i32]) -> Rank {
    match priorities {
        [] | [_] => Rank::Only,
        [highest, ..] if own < *highest => Rank::Outranked,
        [..] => Rank::Highest,
    }
}
