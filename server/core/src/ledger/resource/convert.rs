//! Conversion between units.
//!
//! All amounts of a resource are in one unit, that of its terms. When it changes, the amounts in
//! the ledger are converted, and so are those of each request: from the unit that it states, or
//! else from the one that its holder was last told.

use doorman_openapi::{Band, Capacity, Moment};
use smallvec::SmallVec;

use crate::ledger::{
    demands::DemandTree,
    keys::HolderKey,
    resource::booking::{Booking, Hold},
    resource::decision::TOLERANCE,
    resource::entry::{Entry, scaled},
    resource::unit_change::{SetAside, UnitChange},
    resource::{Ask, Has, Resource},
    terms::ResourceTerms,
    terms::unit::AmountUnit,
};

impl Entry {
    /// Converts all amounts, which become 0 if the unit is of another kind.
    pub(in crate::ledger) fn change_unit(
        &mut self,
        from: AmountUnit,
        to: AmountUnit,
        demands: &mut DemandTree,
        now: Moment,
    ) {
        let factor = to.factor_from(from);
        if now < self.last_lease_end() {
            self.unit_change
                .get_or_insert_with(|| Box::new(UnitChange::new(from)));
        }
        let change = self.unit_change.as_mut();
        let is_countable = |aside: &mut Box<SetAside>| to.is_of_kind(aside.unit);
        let restored = change.and_then(|it| it.set_aside.take_if(is_countable));
        if to.is_of_kind(from) {
            self.booking.scale(factor);
            if let Some(change) = &mut self.unit_change {
                change.restored.amount *= factor;
            }
        } else {
            let booking = std::mem::replace(&mut self.booking, Booking::NONE);
            if let Some(change) = &mut self.unit_change {
                // It is a part of the booking.
                change.restored = Hold::NONE;
                if booking.next_end(now).is_some() {
                    let unit = from;
                    change.set_aside = Some(Box::new(SetAside { unit, booking }));
                }
            }
        }
        if let Some(aside) = restored {
            self.restore_booking(*aside, to, now);
        }
        self.outstanding = scale(self.outstanding, factor);
        let bands: Vec<Band> = self.bands();
        let bands: Vec<Band> = bands.iter().map(|band| scaled(band, factor)).collect();
        self.set_demand(&bands, demands);
    }

    fn restore_booking(&mut self, aside: SetAside, to: AmountUnit, now: Moment) {
        let factor = to.factor_from(aside.unit);
        if self.is_client() {
            self.booking.add(aside.booking, factor);
            return;
        }
        let hold = Hold {
            amount: aside.booking.amount(now) * factor,
            end: aside.booking.last_end(),
        };
        // The node is not told to have it, because its holders may have all of it.
        let nothing = Hold {
            amount: 0.0,
            ..hold
        };
        self.booking
            .add(Booking::new(Some(nothing), Some(hold)), 1.0);
        if let Some(change) = &mut self.unit_change {
            change.restored = hold;
        }
    }

    /// The booking of a node that nothing it says lowers.
    pub(in crate::ledger) fn restored(&self, now: Moment) -> Option<Hold> {
        let change = self.unit_change.as_ref()?;
        Some(change.restored).filter(|hold| now < hold.end)
    }

    /// Frees all that a holder has released. Of a node that is less than it may say.
    pub(in crate::ledger) fn free_released(&mut self, now: Moment) {
        self.booking = Booking::new(None, self.restored(now));
        if let Some(unit) = self.unit_change.as_ref().map(|it| it.told) {
            self.note_known(unit, now);
        }
    }

    /// When the last lease ends that the holder may have, in any unit.
    pub(in crate::ledger) fn last_lease_end(&self) -> Moment {
        let change = self.unit_change.as_ref();
        let set_aside = change.and_then(|it| it.set_aside.as_ref());
        let set_aside = set_aside.map_or(Moment::ORIGIN, |it| it.booking.last_end());
        self.booking.last_end().max(set_aside)
    }

    /// Notes that the holder knows the unit. What it had in a unit of another kind is forgotten,
    /// except for that of a node, which answers for holders that may not have heard yet.
    fn note_known(&mut self, unit: AmountUnit, now: Moment) {
        let is_client = self.is_client();
        let is_over = |it: &UnitChange| it.end(now).is_none() && it.restored.end <= now;
        match self.unit_change.as_deref_mut() {
            Some(change) if !is_client && !is_over(change) => {
                change.told = unit;
                change.missed_until = Moment::ORIGIN;
            }
            _ => self.unit_change = None,
        }
    }

    /// Notes that the holder is told this unit, and may miss it until then.
    fn note_told(&mut self, unit: AmountUnit, may_have_missed_until: Moment) {
        let change = self
            .unit_change
            .get_or_insert_with(|| Box::new(UnitChange::new(unit)));
        change.told = unit;
        change.missed_until = change.missed_until.max(may_have_missed_until);
    }
}

/// How a request converts to the unit of its resource. Nothing is noted before it is answered.
#[derive(Debug)]
pub(in crate::ledger) struct Conversion {
    /// `None` if the request is in that unit.
    converted: Option<ConvertedAsk>,
    pub(in crate::ledger) heard: Heard,
}

/// The unit that the holder has heard of, once its request is answered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::ledger) enum Heard {
    /// Nothing new.
    Unchanged,
    /// It knows the unit of the resource.
    Known,
    Told {
        /// The unit that it was last told.
        unit: AmountUnit,
        /// Until then it may have missed that.
        missed_until: Moment,
    },
}

impl Conversion {
    const NONE: Self = Self {
        converted: None,
        heard: Heard::Unchanged,
    };

    /// The converted request; `None` if it needs no conversion.
    pub(in crate::ledger) fn ask<'a>(&'a self, of: &Ask<'a>) -> Option<Ask<'a>> {
        self.converted.as_ref().map(|it| it.ask(of))
    }
}

/// A request in the unit of its resource.
#[derive(Debug)]
struct ConvertedAsk {
    bands: SmallVec<[Band; 1]>,
    has: Has,
    outstanding: Capacity,
    may_have: f64,
    /// Whether the holder has not heard yet of the unit of the resource.
    is_first: bool,
}

impl ConvertedAsk {
    fn ask<'a>(&'a self, of: &Ask<'a>) -> Ask<'a> {
        Ask {
            bands: &self.bands,
            has: self.has,
            outstanding: self.outstanding,
            may_have: self.may_have,
            is_first_in_unit: self.is_first,
            ..*of
        }
    }

    fn new(ask: &Ask<'_>, factor: f64) -> Self {
        Self {
            bands: ask.bands.iter().map(|band| scaled(band, factor)).collect(),
            has: match ask.has {
                Has::Amount(amount) => Has::Amount(scale(amount, factor)),
                Has::Unknown => Has::Unknown,
            },
            outstanding: scale(ask.outstanding, factor),
            may_have: 0.0,
            is_first: false,
        }
    }

    /// A request of which the unit is not known for certain: one of these factors converts it.
    /// `None` if there is none, or all are 1.
    fn by_any_of(ask: &Ask<'_>, factors: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let smallest = factors.clone().min_by(f64::total_cmp)?;
        let largest = factors.max_by(f64::total_cmp)?;
        if smallest == 1.0 && largest == 1.0 {
            return None;
        }
        // Safety rule: the holder may have as much as the largest reading says, and is leased no
        // more than the smallest one, because others may have the rest.
        let mut converted = Self::new(ask, smallest);
        converted.may_have = ask.has.amount() * largest;
        Some(converted)
    }

    /// A request of which the unit is unknown, of a holder whose lease is in the ledger: the
    /// amounts of the ledger count.
    fn as_known(ask: &Ask<'_>, entry: &Entry, now: Moment) -> Self {
        Self {
            bands: entry.bands().into(),
            has: match ask.has {
                Has::Amount(_) => Has::Amount(Capacity::saturating(entry.booking.amount(now))),
                Has::Unknown => Has::Unknown,
            },
            outstanding: entry.outstanding,
            may_have: 0.0,
            is_first: false,
        }
    }
}

/// Where the unit of a request that states none may come from.
#[derive(Debug)]
struct UnitSources<F> {
    /// The unit of the resource.
    own: AmountUnit,
    /// The units in which predecessors may have granted leases that last.
    earlier: F,
    /// Whether leases in the ledger are known to be those of their holder: not in learning mode,
    /// unless its claim is confirmed.
    is_known: bool,
    /// Whether the holder may have ignored what this reign told it: it learns, and the request does
    /// not echo its epoch. The answer may have been one to a late copy of an earlier request.
    is_unheard: bool,
}

impl<F: FnOnce() -> Vec<AmountUnit>> UnitSources<F> {
    /// Converts the request of a holder that is not in the ledger, or was never answered. Without a
    /// claim it counts in the unit of the resource.
    fn of_unknown_holder(self, ask: &Ask<'_>, leases_end: Option<Moment>) -> Conversion {
        if claim_of(ask) == 0.0 {
            return Conversion::NONE;
        }
        let factors = (self.earlier)().into_iter();
        let factors = factors.map(|unit| self.own.factor_from(unit));
        let converted = ConvertedAsk::by_any_of(ask, factors);
        let heard = match (&converted, leases_end) {
            (Some(_), Some(missed_until)) => Heard::Told {
                unit: self.own,
                missed_until,
            },
            _ => Heard::Unchanged,
        };
        Conversion { converted, heard }
    }

    /// Converts the request of a holder that was answered before.
    fn of_known_holder(self, ask: &Ask<'_>, entry: &Entry, now: Moment) -> Conversion {
        let own = self.own;
        let is_known = self.is_known && !entry.is_unconfirmed;
        let change = entry.unit_change.as_deref();
        let told = change.map_or(own, |it| it.told);
        let has_claim = claim_of(ask) > 0.0;
        let may_have_missed = change.is_some_and(|it| now < it.missed_until);
        let mut units = if has_claim && (self.is_unheard || may_have_missed) {
            (self.earlier)()
        } else {
            Vec::new()
        };
        let has_other_unit = units.iter().any(|unit| *unit != own);
        let is_in_doubt = has_claim && (may_have_missed || self.is_unheard && has_other_unit);
        let lease = entry.booking.lease(now).map_or(0.0, |it| it.amount);
        let booked = entry.booking.amount(now);
        let is_lease_in = |unit: AmountUnit| {
            let has = ask.has.amount() * own.factor_from(unit);
            has > 0.0 && (has - lease).abs() <= lease * TOLERANCE
        };
        let is_lease = is_lease_in(told);
        let converted = if !is_in_doubt {
            Some(ConvertedAsk::new(ask, own.factor_from(told)))
        } else if is_lease {
            // Safety rule: an older lease, in another unit, may be the same number.
            let converted = ConvertedAsk::new(ask, own.factor_from(told));
            Some(ConvertedAsk {
                may_have: booked,
                ..converted
            })
        } else if is_known {
            Some(ConvertedAsk::as_known(ask, entry, now))
        } else {
            // A holder that missed the response repeats its claim.
            if let Some(unit) = units.iter().find(|unit| is_lease_in(**unit)) {
                Some(ConvertedAsk::new(ask, own.factor_from(*unit)))
            } else {
                units.push(told);
                let factors = units.into_iter().map(|unit| own.factor_from(unit));
                ConvertedAsk::by_any_of(ask, factors)
            }
        };
        let is_certain = !is_in_doubt || is_lease && booked <= lease * (1.0 + TOLERANCE);
        let heard = if told != own {
            Heard::told(own, entry)
        } else if has_claim && is_certain {
            Heard::Known
        } else {
            Heard::Unchanged
        };
        Conversion { converted, heard }
    }
}

impl Heard {
    fn told(unit: AmountUnit, entry: &Entry) -> Self {
        let missed_until = entry.last_lease_end();
        Self::Told { unit, missed_until }
    }
}

impl Resource {
    /// The factor that converts the amounts to the unit of other terms; 1 if either is not known.
    pub(in crate::ledger) fn factor_to(&self, terms: &ResourceTerms) -> f64 {
        let units = self.unit.zip(terms.unit());
        units.map_or(1.0, |(from, to)| to.factor_from(from))
    }

    /// Converts a request to the unit of the resource. `earlier` are the units in which
    /// predecessors may have granted leases that last.
    ///
    /// A holder that states no unit counts in the one that it was last told. While it may have
    /// missed a change of the unit, its claim is compared with its last lease.
    pub(in crate::ledger) fn convert(
        &self,
        holder: HolderKey,
        ask: &Ask<'_>,
        earlier: impl FnOnce() -> Vec<AmountUnit>,
        now: Moment,
    ) -> Conversion {
        let Some(own) = self.unit else {
            return Conversion::NONE;
        };
        let leases_end = self.predecessor.map(|lost| lost.leases_end);
        let leases_end = leases_end.filter(|end| now < *end);
        let is_unstated = ask.unit.is_none();
        // The usual request.
        if self.unit_changed_until <= now
            && (is_unstated && leases_end.is_none() || ask.unit == self.unit)
        {
            return Conversion::NONE;
        }
        let entry = self.entries.get(holder);
        let is_confirmed = entry.is_some_and(|entry| self.is_confirmed(entry));
        let known = entry.and_then(|entry| Some((entry, entry.unit_change.as_ref()?.told)));
        if entry.is_some_and(|entry| ask.stamp.is_stale(entry.order, is_confirmed)) {
            // The response may tell the holder another unit than it is known to have heard.
            let heard = known.map(|(entry, told)| Heard::told(told, entry));
            return Conversion {
                heard: heard.unwrap_or(Heard::Unchanged),
                ..Conversion::NONE
            };
        }
        let mut conversion = if let Some(unit) = ask.unit {
            let heard = match known {
                _ if unit.is_of_kind(own) => Heard::Known,
                Some((entry, told)) if told != own => Heard::told(own, entry),
                _ => Heard::Unchanged,
            };
            let converted = (unit != own).then(|| ConvertedAsk::new(ask, own.factor_from(unit)));
            Conversion { converted, heard }
        } else {
            let sources = UnitSources {
                own,
                earlier: || leases_end.map_or_else(Vec::new, |_| earlier()),
                is_known: is_confirmed || !self.is_learning(now),
                is_unheard: self.is_learning(now) && !is_confirmed && !ask.stamp.echoes_epoch,
            };
            match entry.filter(|it| it.is_told || it.unit_change.is_some()) {
                Some(entry) => sources.of_known_holder(ask, entry, now),
                None => sources.of_unknown_holder(ask, leases_end),
            }
        };
        if let Some(converted) = &mut conversion.converted {
            converted.is_first = known.is_some_and(|(_, told)| told != own);
        }
        conversion
    }

    /// Notes what a holder has heard of the unit with the answer to its request.
    pub(in crate::ledger) fn note_heard(&mut self, holder: HolderKey, heard: Heard, now: Moment) {
        let (Heard::Known | Heard::Told { .. }, Some(own)) = (heard, self.unit) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(holder) else {
            return;
        };
        if let Heard::Told { unit, missed_until } = heard {
            entry.note_told(unit, missed_until);
            self.unit_changed_until = self.unit_changed_until.max(missed_until);
        } else {
            entry.note_known(own, now);
        }
    }

    /// Converts all amounts to another unit. Takes time in proportion to the number of holders.
    /// Before the first unit is known, each entry is in the unit that its holder stated, or in this
    /// one.
    pub(in crate::ledger) fn change_unit(&mut self, to: AmountUnit, now: Moment) {
        let from = self.unit.replace(to);
        let factor = from.map_or(1.0, |from| to.factor_from(from));
        if let Some(learning) = &mut self.learning {
            learning.scale(factor);
        }
        if let Some(lost) = &mut self.predecessor {
            lost.change_unit(factor);
        }
        for entry in self.entries.iter_mut() {
            let stated = entry.unit_change.as_ref().map(|it| it.told);
            if let Some(from) = from.or(stated) {
                entry.change_unit(from, to, &mut self.demands, now);
            }
            if from.is_none() {
                entry.unit_change = None;
            }
            self.unit_changed_until = self.unit_changed_until.max(entry.last_lease_end());
            let amount = entry.booking.amount(now);
            self.booked.set(entry.slot.index(), amount);
            if let Some(learning) = &mut self.learning {
                learning.set_booked(entry.slot, amount);
            }
            if let Some(hints) = &mut self.hints {
                hints.report(entry, amount, 0.0);
            }
        }
    }
}

/// The larger of what the holder has and what it cannot give back at once.
fn claim_of(ask: &Ask<'_>) -> f64 {
    ask.has.amount().max(ask.outstanding.get())
}

fn scale(amount: Capacity, factor: f64) -> Capacity {
    Capacity::saturating(amount.get() * factor)
}
