//! The memory of one limiter: two neighbouring cache lines. The first decides nearly every request,
//! the second names the resource and has what is seldom needed.

use doorman_openapi::Moment;

use super::{
    arena::Arena,
    atomics::{AtomicF64, DemandSignal, Guard},
    bucket::RefillSchedule,
    lease_state::{ALWAYS, Growth, Policy},
    name::{NAME_WORDS, Words},
    published::{Published, refill_from_bits, refill_to_bits},
    retention::{Purpose, Retention},
    sync::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
};

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Record {
    /// All tokens ever taken, including those of waiting requests.
    pub(super) spent: AtomicF64,
    pub(super) admitted: AtomicF64,
    pub(super) head: Head,
    /// The words from here to `lost`, and those marked below, are guarded by the head.
    issued: AtomicU64,
    since: AtomicU64,
    refill: AtomicU64,
    /// The end of the lease; the time of creation while there never was one.
    ends: AtomicU64,
    lost: AtomicU64,

    name: [AtomicU64; NAME_WORDS],
    pub(super) rejected: AtomicF64,
    /// The number of its [`Terms`]. Guarded.
    terms: AtomicU32,
    pub(super) retention: Retention,
    pub(super) demand: DemandSignal,
    flags: AtomicU8,
}

const _: () = assert!(size_of::<Record>() == 128);

/// The resource that takes a record into use.
#[derive(Debug)]
pub(super) struct Owner {
    /// Of its name.
    pub(super) words: Words,
    /// From which byte of the name on all are unreserved.
    pub(super) unreserved_from: usize,
    /// The number of the settings.
    pub(super) settings: u16,
    pub(super) purpose: Purpose,
}

/// More of a record, under the same number.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// Milliseconds from `since` to the next refresh. Guarded by the record's head.
    refresh: AtomicI32,
    /// The demand that the worker measured last, in the resource's own unit: an `f32`.
    wants: AtomicU32,
    /// The most units of a gauge in use or waited for since the worker last looked: an `f32`.
    peak: Maximum,
}

/// The largest of some numbers that are not negative since it was last taken: an `f32`.
#[derive(Debug, Default)]
pub(super) struct Maximum(AtomicU32);

impl Maximum {
    /// Raises it to this value or a little more, so that it suffices.
    pub(super) fn raise(&self, value: f64) {
        let value = value.max(0.0);
        let nearest = value as f32;
        let enough = if f64::from(nearest) < value {
            nearest.next_up()
        } else {
            nearest
        };
        // The bits of numbers that are not negative have their order.
        let bits = enough.to_bits();
        if self.0.load(Ordering::Relaxed) < bits {
            self.0.fetch_max(bits, Ordering::Relaxed);
        }
    }

    /// Takes it, and begins anew.
    pub(super) fn take(&self) -> f64 {
        f32::from_bits(self.0.swap(0, Ordering::Relaxed)).into()
    }
}

impl Extra {
    pub(super) fn wants(&self) -> f64 {
        let wants = f32::from_bits(self.wants.load(Ordering::Relaxed));
        // 100.1 stays 100.1.
        wants.to_string().parse().unwrap_or_else(|_| wants.into())
    }

    pub(super) fn raise_peak(&self, units: f64) {
        self.peak.raise(units);
    }

    /// Takes the peak, and begins anew.
    pub(super) fn take_peak(&self) -> f64 {
        self.peak.take()
    }

    pub(super) fn set_wants(&self, wants: f64) {
        let wants = (wants as f32).to_bits();
        self.wants.store(wants, Ordering::Relaxed);
    }
}

/// The guard of a record, with what a decision must know first: sixteen bits each of sequence,
/// generation and the number of the settings, and flags.
pub(super) type Head = Guard;

const GENERATION_SHIFT: u32 = 16;
const GENERATION: u64 = 0xFFFF << GENERATION_SHIFT;
const SETTINGS_SHIFT: u32 = 32;
const SETTINGS: u64 = 0xFFFF << SETTINGS_SHIFT;
const FLAGS_SHIFT: u32 = 48;
/// Some resource has the record.
const IN_USE: u64 = 1 << FLAGS_SHIFT;
/// Chance decides, too.
const SUPPRESSED: u64 = 2 << FLAGS_SHIFT;
const EVER_LEASED: u64 = 4 << FLAGS_SHIFT;
const ON_CREDIT: u64 = 8 << FLAGS_SHIFT;
const GROWS_ON_REQUEST: u64 = 16 << FLAGS_SHIFT;
/// Requests have several priorities.
const BANDED: u64 = 32 << FLAGS_SHIFT;
/// Requests of another limit have a higher priority than those of these settings.
const OUTRANKED: u64 = 64 << FLAGS_SHIFT;
/// A larger lease is pending.
const GROWTH_PENDING: u64 = 128 << FLAGS_SHIFT;

/// The resource has another unit than its limits.
const UNIT_MISMATCH: u8 = 1;
/// Requests wait.
const QUEUE: u8 = 2;
/// The other bits: from which byte of the name on all are unreserved; their maximum if there are
/// others behind it.
const UNRESERVED_SHIFT: u32 = 2;

/// The refresh of a resource that needs no lease.
const NEVER: i32 = i32::MAX;
const NANOS_PER_MILLI: u64 = 1_000_000;

/// Values that many records share, found by number: the refill without a lease, the policy, and the
/// probability of an admission.
#[derive(Debug, Default)]
pub(super) struct Terms([AtomicU64; 4]);

/// The words of [`Terms`].
pub(super) type TermsKey = [u64; 4];

impl Terms {
    pub(super) fn set(&self, key: TermsKey) {
        for (word, new) in self.0.iter().zip(key) {
            word.store(new, Ordering::Relaxed);
        }
    }

    pub(super) fn key(&self) -> TermsKey {
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    pub(super) fn key_of(published: &Published) -> TermsKey {
        // `per` is 0 without a policy.
        let none = Policy {
            limit: 0.0,
            per: 0.0,
        };
        let Policy { limit, per } = published.policy.unwrap_or(none);
        let lapsed = refill_to_bits(published.schedule.lapsed);
        let probability = published.admit_probability.to_bits();
        [lapsed, limit.to_bits(), per.to_bits(), probability]
    }
}

fn growth_of(head: u64) -> Growth {
    if head & GROWS_ON_REQUEST != 0 {
        Growth::OnRequest
    } else if head & GROWTH_PENDING != 0 {
        Growth::Pending
    } else {
        Growth::None
    }
}

#[inline]
fn policy_of([_, limit, per, _]: TermsKey) -> Option<Policy> {
    let (limit, per) = (f64::from_bits(limit), f64::from_bits(per));
    (per > 0.0).then_some(Policy { limit, per })
}

/// The words that admit a request under a lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) head: u64,
    pub(super) spent: f64,
    /// Tokens issued by `since`.
    pub(super) issued: f64,
    pub(super) since: Moment,
    /// Tokens a second.
    pub(super) rate: f64,
    pub(super) ends: Moment,
}

#[inline]
pub(super) fn generation_of(head: u64) -> u16 {
    (head >> GENERATION_SHIFT) as u16
}

#[inline]
pub(super) fn settings_of(head: u64) -> u16 {
    (head >> SETTINGS_SHIFT) as u16
}

#[inline]
pub(super) fn is_in_use(head: u64) -> bool {
    head & IN_USE != 0
}

/// Whether requests have several priorities.
#[inline]
pub(super) fn is_banded(head: u64) -> bool {
    head & BANDED != 0
}

/// The priority of the settings of a record, beside those of other limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Only,
    Highest,
    Outranked,
}

impl Record {
    /// The words of a lease with a rate, of a resource without suppression; `None` when there is
    /// none, they are just being written, or the record is not of this generation and settings, or
    /// there is a higher priority.
    #[expect(
        clippy::inline_always,
        reason = "measured: copies of its result cost more"
    )]
    #[inline(always)]
    pub(super) fn lease(&self, generation: u16, settings: u16) -> Option<Lease> {
        let head = self.head.load();
        let relaxed = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let refill = relaxed(&self.refill);
        let lease = Lease {
            head,
            issued: f64::from_bits(relaxed(&self.issued)),
            since: Moment::from_nanos(relaxed(&self.since)),
            rate: f64::from_bits(refill),
            ends: Moment::from_nanos(relaxed(&self.ends)),
            spent: self.spent.load(),
        };
        let wanted = IN_USE
            | EVER_LEASED
            | (u64::from(generation) << GENERATION_SHIFT)
            | (u64::from(settings) << SETTINGS_SHIFT);
        let looked_at = IN_USE | EVER_LEASED | SUPPRESSED | OUTRANKED | GENERATION | SETTINGS;
        // Neither infinite nor negative, which are other refills.
        let is_rate = refill < f64::INFINITY.to_bits();
        let is_plain = head & looked_at == wanted && is_rate;
        (is_plain && self.head.is_unchanged(head)).then_some(lease)
    }

    /// Whether the record is that of a resource which had it when `head` was read.
    #[inline]
    pub(super) fn has_same_owner(&self, head: u64) -> bool {
        // Orders the reads since then before this one.
        fence(Ordering::Acquire);
        (self.head.load() ^ head) & (GENERATION | IN_USE) == 0
    }

    #[inline]
    pub(super) fn is_leased_at(&self, now: Moment) -> bool {
        let leased = self.head.load() & EVER_LEASED != 0;
        leased && now.as_nanos() < self.ends.load(Ordering::Relaxed)
    }

    /// All that is published, and the head.
    pub(super) fn read(&self, extra: &Extra, terms: &Arena<Terms>) -> (Published, u64) {
        self.head.read(|head| {
            let relaxed = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let since = relaxed(&self.since);
            let terms = terms.at(self.terms()).key();
            let [lapsed, .., probability] = terms;
            let published = Published {
                schedule: RefillSchedule {
                    issued: f64::from_bits(relaxed(&self.issued)),
                    lost: f64::from_bits(relaxed(&self.lost)),
                    since: Moment::from_nanos(since),
                    refill: refill_from_bits(relaxed(&self.refill)),
                    ends: if head & EVER_LEASED == 0 {
                        Moment::ORIGIN
                    } else {
                        Moment::from_nanos(relaxed(&self.ends))
                    },
                    lapsed: refill_from_bits(lapsed),
                    on_credit: head & ON_CREDIT != 0,
                },
                refresh_at: refresh_at(since, extra.refresh.load(Ordering::Relaxed)),
                policy: policy_of(terms),
                admit_probability: if head & SUPPRESSED == 0 {
                    ALWAYS
                } else {
                    f64::from_bits(probability)
                },
                growth: growth_of(head),
            };
            (published, head)
        })
    }

    /// When the record was taken into use, or its limiter was last woken; `None` once there was a
    /// lease.
    pub(super) fn created_at(&self) -> Option<Moment> {
        self.head.read(|head| {
            let created = Moment::from_nanos(self.ends.load(Ordering::Relaxed));
            (head & EVER_LEASED == 0).then_some(created)
        })
    }

    /// The limit of the resource.
    #[inline]
    pub(super) fn policy(&self, terms: &Arena<Terms>) -> Option<Policy> {
        self.head.read(|_| policy_of(terms.at(self.terms()).key()))
    }

    /// The number of the terms. Does not change while the store is locked.
    pub(super) fn terms(&self) -> u32 {
        self.terms.load(Ordering::Relaxed)
    }

    /// Publishes a state, with the number of its terms. `change` is called while readers wait, and
    /// `created_at` is stored while there never was a lease. For the holder of the store's lock.
    pub(super) fn write(
        &self,
        extra: &Extra,
        published: &Published,
        terms: u32,
        created_at: Option<Moment>,
        change: impl FnOnce(),
    ) {
        let keep = |head| head & (GENERATION | SETTINGS | IN_USE | BANDED | OUTRANKED);
        self.write_as(keep, extra, published, terms, created_at, change);
    }

    /// The same; `owner` gives what does not depend on the state.
    fn write_as(
        &self,
        owner: impl FnOnce(u64) -> u64,
        extra: &Extra,
        published: &Published,
        terms: u32,
        created_at: Option<Moment>,
        change: impl FnOnce(),
    ) {
        let schedule = &published.schedule;
        let ever_leased = schedule.ever_leased();
        let since = schedule.since.as_nanos();
        let suppressed = published.is_suppressed();
        let flag = |flag: u64, is_set: bool| if is_set { flag } else { 0 };
        let flags = flag(EVER_LEASED, ever_leased)
            | flag(ON_CREDIT, schedule.on_credit)
            | flag(GROWS_ON_REQUEST, published.growth == Growth::OnRequest)
            | flag(GROWTH_PENDING, published.growth == Growth::Pending)
            | flag(SUPPRESSED, suppressed);
        self.head.write(|head| {
            change();
            let store = |word: &AtomicU64, new: u64| word.store(new, Ordering::Relaxed);
            store(&self.issued, schedule.issued.to_bits());
            store(&self.since, since);
            store(&self.refill, refill_to_bits(schedule.refill));
            store(&self.lost, schedule.lost.to_bits());
            if ever_leased {
                store(&self.ends, schedule.ends.as_nanos());
            } else if let Some(created_at) = created_at {
                store(&self.ends, created_at.as_nanos());
            }
            self.terms.store(terms, Ordering::Relaxed);
            let refresh = refresh_after(since, published.refresh_at);
            extra.refresh.store(refresh, Ordering::Relaxed);
            owner(head) | flags
        });
    }

    /// Takes the record into use for another resource. For the holder of the store's lock.
    pub(super) fn begin(
        &self,
        owner: &Owner,
        extra: &Extra,
        published: &Published,
        terms: u32,
        now: Moment,
    ) {
        let Owner {
            words,
            unreserved_from,
            settings,
            purpose,
        } = *owner;
        let owner = |head| {
            let generation = generation_of(head).wrapping_add(1);
            (u64::from(generation) << GENERATION_SHIFT)
                | (u64::from(settings) << SETTINGS_SHIFT)
                | IN_USE
        };
        self.write_as(owner, extra, published, terms, Some(now), || {
            self.set_words(words);
            self.spent.store(0.0);
            self.admitted.store(0.0);
            self.rejected.store(0.0);
            self.retention.begin(purpose);
            self.demand.begin();
            extra.set_wants(0.0);
            extra.take_peak();
            let unreserved_from = u8::try_from(unreserved_from).unwrap_or(u8::MAX);
            let unreserved_from = unreserved_from.min(u8::MAX >> UNRESERVED_SHIFT);
            self.flags
                .store(unreserved_from << UNRESERVED_SHIFT, Ordering::Relaxed);
        });
    }

    /// The record is no longer in use. For the holder of the store's lock.
    pub(super) fn end(&self) {
        self.head.write(|head| head & !IN_USE);
    }

    pub(super) fn rank(&self) -> Rank {
        match self.head.load() {
            head if head & OUTRANKED != 0 => Rank::Outranked,
            head if is_banded(head) => Rank::Highest,
            _ => Rank::Only,
        }
    }

    /// For the holder of the store's lock.
    pub(super) fn set_rank(&self, rank: Rank) {
        let flags = match rank {
            Rank::Only => 0,
            Rank::Highest => BANDED,
            Rank::Outranked => BANDED | OUTRANKED,
        };
        self.head.write(|head| head & !(BANDED | OUTRANKED) | flags);
    }

    pub(super) fn set_other_unit(&self, mismatch: bool) {
        self.set_flag(UNIT_MISMATCH, mismatch);
    }

    pub(super) fn has_other_unit(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & UNIT_MISMATCH != 0
    }

    pub(super) fn set_has_queue(&self, has_queue: bool) {
        self.set_flag(QUEUE, has_queue);
    }

    pub(super) fn has_queue(&self) -> bool {
        self.flags.load(Ordering::Acquire) & QUEUE != 0
    }

    fn set_flag(&self, flag: u8, is_set: bool) {
        if is_set {
            self.flags.fetch_or(flag, Ordering::AcqRel);
        } else {
            self.flags.fetch_and(!flag, Ordering::AcqRel);
        }
    }

    /// The words of the name.
    pub(super) fn words(&self) -> Words {
        self.name
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed))
    }

    #[expect(
        clippy::inline_always,
        reason = "measured: the words stay in registers"
    )]
    #[inline(always)]
    pub(super) fn has_words(&self, [a, b, c, d, e, f]: &Words) -> bool {
        let [known_a, known_b, known_c, known_d, known_e, known_f] = self.words();
        let first = (a ^ known_a) | (b ^ known_b) | (c ^ known_c);
        let last = (d ^ known_d) | (e ^ known_e) | (f ^ known_f);
        first | last == 0
    }

    /// Whether all bytes of the name from this one on are unreserved.
    #[inline]
    pub(super) fn is_unreserved_from(&self, byte: usize) -> bool {
        let from = self.flags.load(Ordering::Relaxed) >> UNRESERVED_SHIFT;
        usize::from(from) <= byte
    }

    fn set_words(&self, words: Words) {
        for (word, new) in self.name.iter().zip(words) {
            word.store(new, Ordering::Relaxed);
        }
    }
}

fn refresh_at(since: u64, refresh: i32) -> Moment {
    if refresh == NEVER {
        return Moment::NEVER;
    }
    let nanos = u64::from(refresh.unsigned_abs()).saturating_mul(NANOS_PER_MILLI);
    Moment::from_nanos(if refresh < 0 {
        since.saturating_sub(nanos)
    } else {
        since.saturating_add(nanos)
    })
}

/// Rounded towards `since`, and at most 24 days.
fn refresh_after(since: u64, refresh_at: Moment) -> i32 {
    if refresh_at == Moment::NEVER {
        return NEVER;
    }
    let nanos = refresh_at.as_nanos();
    let millis = i32::try_from(nanos.abs_diff(since) / NANOS_PER_MILLI);
    let millis = millis.unwrap_or(NEVER).min(NEVER.saturating_sub(1));
    if nanos < since {
        millis.saturating_neg()
    } else {
        millis
    }
}
