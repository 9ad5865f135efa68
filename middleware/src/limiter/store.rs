//! All limiters of a registry: records, found by name or by number, and what they share.
//!
//! Nothing is freed while the store lives. A record that is no longer in use serves another
//! resource under a new generation, so that a handle of the earlier one is told apart.

use std::{
    array::from_fn,
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet, VecDeque},
    hash::{BuildHasher, Hasher as _},
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use arc_swap::ArcSwapOption;
use doorman_holder::{Names, ResourceIndex};
use doorman_openapi::{Capacity, Moment, ResourceId, Unit};
use foldhash::fast::RandomState;

use super::{
    Limiter, LimiterSettings, Policy,
    arena::Arena,
    bands::Bands,
    index::{Absent, Index},
    name::{
        NAME_WORDS, Name, NamePrefix, REST_WORDS, Rest, Words, continued, rest_number, to_text,
    },
    outcomes::{OutcomeTotals, TargetState},
    published::Published,
    record::{
        Extra, Maximum, Owner, Record, Terms, TermsKey, generation_of, is_in_use, settings_of,
    },
    retention::{Freed, Purpose},
    wait_queue::WaitQueue,
};
use crate::clock::Clock;

/// A record is not reused until so many others were freed, so that a thread that was stopped in a
/// decision seldom meets another resource.
const REUSE_DELAY: usize = 1_024;
const QUEUE_SHARDS: usize = 64;
/// The number of the first record.
const SPARE: u32 = 0;
/// The number of shared values from which on unused ones are looked for.
const MIN_SWEEP: usize = 256;

/// The rest of a name that is too long for a record.
type SharedRest = [AtomicU64; REST_WORDS];

#[derive(Debug)]
pub(crate) struct Store {
    pub(super) clock: Clock,
    records: Arena<Record>,
    rests: Arena<SharedRest>,
    index: Index,
    hasher: RandomState,
    terms: Arena<Terms>,
    settings: Arena<ArcSwapOption<LimiterSettings>>,
    /// By the numbers of the records.
    extras: Arena<Extra>,
    /// Of the few limiters with several priorities, by the numbers of the records.
    bands: Arena<ArcSwapOption<Bands>>,
    /// The largest costs of requests for gauges, by the numbers of the records.
    gauge_costs: Arena<Maximum>,
    /// The outcomes of requests, and what few targets tell, by the numbers of the records.
    outcomes: Arena<OutcomeTotals>,
    targets: Arena<TargetState>,
    /// Of the few limiters with waiting requests.
    queues: [Mutex<Queues>; QUEUE_SHARDS],
    writer: Mutex<Writer>,
}

/// Serializes all changes but those of running totals. Locked after a queue.
#[derive(Debug, Default)]
pub(super) struct Writer {
    records: Numbers,
    rests: Numbers,
    terms: SharedTerms,
    settings: SharedSettings,
}

/// Numbers that are given out and taken back.
#[derive(Debug, Default)]
struct Numbers {
    used: u32,
    /// Taken back last.
    recent: VecDeque<u32>,
    free: BinaryHeap<Reverse<u32>>,
}

impl Numbers {
    /// The lowest free number, so that few chunks are used, or a new one.
    fn next(&mut self) -> u32 {
        if let Some(Reverse(number)) = self.free.pop() {
            return number;
        }
        let number = self.used;
        self.used = self.used.saturating_add(1);
        number
    }

    /// Takes back a number, for use after `delay` others were taken back.
    fn take_back(&mut self, number: u32, delay: usize) {
        self.recent.push_back(number);
        while self.recent.len() > delay
            && let Some(number) = self.recent.pop_front()
        {
            self.free.push(Reverse(number));
        }
    }
}

/// The numbers of terms, until no record has them any more.
#[derive(Debug, Default)]
struct SharedTerms {
    known: HashMap<TermsKey, u32>,
    numbers: Numbers,
    /// How many to know before unused ones are looked for.
    sweep_at: usize,
}

/// The numbers of settings, by address, until neither a limit nor a record has them any more.
#[derive(Debug, Default)]
struct SharedSettings {
    known: HashMap<usize, (u32, Weak<LimiterSettings>)>,
    numbers: Numbers,
    sweep_at: usize,
}

/// How many shared values to know before unused ones are looked for again, which takes a walk over
/// all records.
fn next_sweep(known: usize, records: u32) -> usize {
    let records = usize::try_from(records).unwrap_or(usize::MAX);
    known.saturating_mul(2).max(MIN_SWEEP).max(records / 16)
}

/// Settings with their number in a store.
#[derive(Debug, Clone)]
pub(crate) struct RegisteredSettings {
    pub(super) settings: Arc<LimiterSettings>,
    pub(super) number: u16,
}

impl RegisteredSettings {
    /// The priority of the requests of the limit.
    #[inline]
    pub(crate) fn priority(&self) -> i32 {
        self.settings.priority.own()
    }

    /// States the demand, for all limiters of the settings.
    pub(crate) fn set_wants(&self, wants: Capacity) {
        self.settings.wants.store(Some(wants));
    }
}

impl Store {
    /// A store for about so many resources, and room for more.
    pub(super) fn new(resources: usize, clock: Clock) -> Arc<Self> {
        let store = Arc::new(Self {
            clock,
            records: Arena::with_near(resources.saturating_add(2 * REUSE_DELAY)),
            rests: Arena::default(),
            index: Index::new(resources),
            hasher: RandomState::default(),
            terms: Arena::default(),
            settings: Arena::default(),
            extras: Arena::with_near(resources.saturating_add(2 * REUSE_DELAY)),
            bands: Arena::default(),
            gauge_costs: Arena::default(),
            outcomes: Arena::default(),
            targets: Arena::default(),
            queues: from_fn(|_| Mutex::default()),
            writer: Mutex::default(),
        });
        let settings = store.register(&Arc::default());
        let writer = &mut *store.lock();
        // It is in no index, so no resource has it.
        store.begin(
            writer,
            &Name::new(b"(spare)"),
            &settings,
            Purpose::Code,
            Moment::ORIGIN,
        );
        Arc::clone(&store)
    }

    /// The limiter in place of those for which there is no room. It never gets a lease.
    pub(super) fn spare(self: &Arc<Self>) -> Limiter<'_> {
        tracing::error!("no room for another resource; its fallback applies");
        self.limiter(SPARE, generation_of(self.records.at(SPARE).head.load()))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash_name(&self, name: &Name<'_>) -> u64 {
        if name.fits() {
            self.hash(&name.words)
        } else {
            self.hasher.hash_one(name.text)
        }
    }

    /// In two halves, so that few multiplications wait for others.
    #[expect(
        clippy::inline_always,
        reason = "measured: the state stays in registers"
    )]
    #[inline(always)]
    fn hash(&self, [a, b, c, d, e, f]: &Words) -> u64 {
        let both = |low: u64, high: u64| u128::from(low) | (u128::from(high) << 64);
        let hash = |words: u128| {
            let mut hasher = self.hasher.build_hasher();
            hasher.write_u128(words);
            hasher.finish()
        };
        let one = hash(both(*a, *b));
        let other = hash(both(c.rotate_left(32), *d));
        hash(both(one ^ f, other.rotate_left(17) ^ e))
    }

    /// The limiter with a number. It may be forgotten.
    #[inline]
    pub(super) fn limiter(self: &Arc<Self>, number: u32, generation: u16) -> Limiter<'_> {
        Limiter {
            store: self,
            record: self.records.at(number),
            number,
            generation,
        }
    }

    /// The limiter of a name.
    pub(super) fn find(self: &Arc<Self>, text: &[u8]) -> Option<Limiter<'_>> {
        let name = Name::new(text);
        let hash = self.hash_name(&name);
        match self.find_hashed(&name, hash) {
            Ok(found) => Some(found),
            Err(Absent::Certainly) => None,
            Err(Absent::Perhaps) => {
                let _undisturbed = self.lock();
                self.find_hashed(&name, hash).ok()
            }
        }
    }

    fn find_hashed(self: &Arc<Self>, name: &Name<'_>, hash: u64) -> Result<Limiter<'_>, Absent> {
        let is_same = |record: &Record| {
            if name.fits() {
                return record.has_words(&name.words);
            }
            let known = record.words();
            known.starts_with(&name.words[..NAME_WORDS - 1])
                && self.rest_of(known) == Some(name.rest())
        };
        self.index
            .find(hash, |number| self.find_unchanged(number, is_same))
    }

    /// The limiter of a prefix and a value of unreserved bytes, which need no encoding. `None` when
    /// there is none, or the value has others.
    #[expect(
        clippy::inline_always,
        reason = "measured: the words stay in registers"
    )]
    #[inline(always)]
    pub(super) fn find_value(
        self: &Arc<Self>,
        prefix: &NamePrefix,
        value: &[u8],
    ) -> Option<Limiter<'_>> {
        let words = prefix.with(value)?;
        let hash = self.hash(&words);
        let likely = self.index.find_likely(hash, |number| {
            self.find_if(number, |it| it.has_words(&words))
        });
        let limiter = match likely {
            Some(limiter) => limiter,
            None => self.find_elsewhere(prefix, value)?,
        };
        limiter
            .record
            .is_unreserved_from(prefix.len())
            .then_some(limiter)
    }

    /// The same, in every place of the index. Makes the words once more, as the others would have
    /// to lie in memory.
    #[cold]
    #[inline(never)]
    fn find_elsewhere(self: &Arc<Self>, prefix: &NamePrefix, value: &[u8]) -> Option<Limiter<'_>> {
        let words = prefix.with(value)?;
        let found = self.index.find(self.hash(&words), |number| {
            self.find_unchanged(number, |it| it.has_words(&words))
        });
        found.ok()
    }

    /// The limiter with a number, if it is in use, its record is the right one, and was so all the
    /// time.
    fn find_unchanged(
        self: &Arc<Self>,
        number: u32,
        is_right: impl Fn(&Record) -> bool,
    ) -> Option<Limiter<'_>> {
        let limiter = self.find_if(number, is_right)?;
        limiter.is_current().then_some(limiter)
    }

    /// The limiter with a number, if it is in use and its record is the right one. The record may
    /// have changed meanwhile.
    #[expect(
        clippy::inline_always,
        reason = "measured: the words stay in registers"
    )]
    #[inline(always)]
    fn find_if(
        self: &Arc<Self>,
        number: u32,
        is_right: impl Fn(&Record) -> bool,
    ) -> Option<Limiter<'_>> {
        let record = self.records.get(number)?;
        let head = record.head.load();
        // A record that changes meanwhile has another generation then: see `is_current`.
        (is_in_use(head) && is_right(record)).then(|| Limiter {
            store: self,
            record,
            number,
            generation: generation_of(head),
        })
    }

    /// The rest of a longer name.
    fn rest_of(&self, words: Words) -> Option<Rest> {
        let rest = self.rests.get(rest_number(words)?)?;
        Some(rest.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// The name of a limiter; `None` if its record has another one by now.
    pub(super) fn name(&self, limiter: Limiter<'_>) -> Option<Vec<u8>> {
        limiter.record.head.read(|head| {
            let words = limiter.record.words();
            let is_own = generation_of(head) == limiter.generation;
            is_own.then(|| to_text(words, self.rest_of(words)))
        })
    }

    fn hash_of(&self, number: u32) -> u64 {
        let words = self.records.at(number).words();
        match self.rest_of(words) {
            None => self.hash(&words),
            Some(rest) => self.hasher.hash_one(&*to_text(words, Some(rest))),
        }
    }

    /// The limiter of a resource, and whether it is new. A new one begins in this state. `None`
    /// when there is no room.
    pub(super) fn get_or_create(
        self: &Arc<Self>,
        resource: &ResourceId,
        settings: &RegisteredSettings,
        purpose: Purpose,
        state: impl FnOnce(Limiter<'_>, &mut Writer),
        now: Moment,
    ) -> Option<(Limiter<'_>, bool)> {
        let mut writer = self.lock();
        let name = Name::new(resource.as_str().as_bytes());
        let hash = self.hash_name(&name);
        if let Ok(known) = self.find_hashed(&name, hash) {
            return Some((known, false));
        }
        let limiter = self.begin(&mut writer, &name, settings, purpose, now)?;
        state(limiter, &mut writer);
        // Found by other threads from here on.
        if !self
            .index
            .insert(hash, limiter.number, |number| self.hash_of(number))
        {
            self.free(&mut writer, limiter);
            return None;
        }
        Some((limiter, true))
    }

    /// Takes a record into use. `None` when there is no room.
    fn begin(
        self: &Arc<Self>,
        writer: &mut Writer,
        name: &Name<'_>,
        settings: &RegisteredSettings,
        purpose: Purpose,
        now: Moment,
    ) -> Option<Limiter<'_>> {
        let number = writer.records.next();
        let record = self.records.get_or_allocate(number)?;
        let extra = self.extras.get_or_allocate(number)?;
        let mut words = name.words;
        if !name.fits() {
            let rest = writer.rests.next();
            let shared = self.rests.get_or_allocate(rest)?;
            // A reader that sees one of the new words also sees that the old record has ended.
            fence(Ordering::Release);
            for (word, new) in shared.iter().zip(name.rest()) {
                word.store(new, Ordering::Relaxed);
            }
            words = continued(words, rest);
        }
        self.keep(settings);
        let published = Published::new(settings.settings.fallback.load(), now);
        let terms = self.intern(writer, &published);
        let owner = Owner {
            words,
            unreserved_from: name.unreserved_from(),
            settings: settings.number,
            purpose,
        };
        record.begin(&owner, extra, &published, terms, now);
        Some(self.limiter(number, generation_of(record.head.load())))
    }

    /// Removes a limiter, unless it must stay or requests wait. Returns what becomes free.
    pub(super) fn forget(&self, limiter: Limiter<'_>) -> Option<Freed> {
        let queue = limiter.queue();
        if queue.is_in_use() || !limiter.is_current() {
            return None;
        }
        let is_gauge = limiter.unit() == Unit::Gauge;
        if is_gauge && !limiter.close() {
            return None;
        }
        let Some(freed) = limiter.record.retention.forget() else {
            if is_gauge {
                limiter.record.spent.store(0.0);
            }
            return None;
        };
        let mut writer = self.lock();
        self.index
            .remove(self.hash_of(limiter.number), limiter.number);
        self.free(&mut writer, limiter);
        drop(writer);
        queue.forget();
        Some(freed)
    }

    fn free(&self, writer: &mut Writer, limiter: Limiter<'_>) {
        let words = limiter.record.words();
        limiter.record.end();
        if let Some(bands) = self.bands(limiter.number) {
            bands.store(None);
        }
        if let Some(costs) = self.gauge_costs.get(limiter.number) {
            costs.take();
        }
        if let Some(outcomes) = self.outcomes.get(limiter.number) {
            outcomes.begin();
        }
        if let Some(target) = self.targets.get(limiter.number) {
            target.begin();
        }
        writer.records.take_back(limiter.number, REUSE_DELAY);
        if let Some(rest) = rest_number(words) {
            writer.rests.take_back(rest, REUSE_DELAY);
        }
    }

    /// The number of the terms of a state that a record is about to get.
    pub(super) fn intern(&self, writer: &mut Writer, published: &Published) -> u32 {
        let records = writer.records.used;
        let terms = &mut writer.terms;
        if terms.known.len() >= terms.sweep_at {
            let used = (0..records).map(|number| self.records.at(number).terms());
            let used: HashSet<u32> = used.collect();
            for (_, unused) in terms.known.extract_if(|_, number| !used.contains(number)) {
                terms.numbers.take_back(unused, 0);
            }
            terms.sweep_at = next_sweep(terms.known.len(), records);
        }
        let key = Terms::key_of(published);
        *terms.known.entry(key).or_insert_with(|| {
            let number = terms.numbers.next();
            if let Some(terms) = self.terms.get_or_allocate(number) {
                // A reader that sees one of the new words also sees that its record changed.
                fence(Ordering::Release);
                terms.set(key);
            }
            number
        })
    }

    /// Whether a record has these terms already.
    pub(super) fn has_terms(&self, record: &Record, published: &Published) -> Option<u32> {
        let number = record.terms();
        let known = self.terms.get(number)?.key();
        (known == Terms::key_of(published)).then_some(number)
    }

    #[inline]
    pub(super) fn policy(&self, record: &Record) -> Option<Policy> {
        record.policy(&self.terms)
    }

    pub(super) fn read(&self, record: &Record, number: u32) -> (Published, u64) {
        record.read(self.extra(number), &self.terms)
    }

    pub(crate) fn register(&self, settings: &Arc<LimiterSettings>) -> RegisteredSettings {
        let mut writer = self.lock();
        let records = writer.records.used;
        let shared = &mut writer.settings;
        if shared.known.len() >= shared.sweep_at {
            let heads = (0..records).map(|number| self.records.at(number).head.load());
            let used: HashSet<u32> = heads.map(|head| settings_of(head).into()).collect();
            let is_unused = |number: u32, settings: &Weak<_>| {
                let kept = self.settings.at(number).load().is_some();
                !used.contains(&number) && settings.strong_count() == usize::from(kept)
            };
            let unused = shared
                .known
                .extract_if(|_, (number, settings)| is_unused(*number, settings));
            for (_, (number, _)) in unused {
                self.settings.at(number).store(None);
                shared.numbers.take_back(number, 0);
            }
            shared.sweep_at = next_sweep(shared.known.len(), records);
        }
        // A `Weak` keeps the address from being used again.
        let known = shared.known.entry(Arc::as_ptr(settings).addr());
        let (number, _) =
            known.or_insert_with(|| (shared.numbers.next(), Arc::downgrade(settings)));
        RegisteredSettings {
            settings: Arc::clone(settings),
            number: u16::try_from(*number).unwrap_or_else(|_| {
                tracing::error!("more than 65,535 settings of limits; the last ones are shared");
                u16::MAX
            }),
        }
    }

    /// Keeps settings as long as a record has them.
    fn keep(&self, RegisteredSettings { settings, number }: &RegisteredSettings) {
        if let Some(slot) = self.settings.get_or_allocate((*number).into())
            && slot.load().is_none()
        {
            slot.store(Some(Arc::clone(settings)));
        }
    }

    /// Reads settings, without a reference count that all threads would change.
    pub(super) fn with_settings<R>(
        &self,
        number: u16,
        read: impl FnOnce(&LimiterSettings) -> R,
    ) -> R {
        let settings = self.settings.at(number.into()).load();
        match &*settings {
            Some(settings) => read(settings),
            None => read(&LimiterSettings::default()),
        }
    }

    pub(super) fn extra(&self, number: u32) -> &Extra {
        self.extras.at(number)
    }

    /// The largest cost of a request for a gauge since the worker last looked.
    pub(super) fn gauge_cost(&self, number: u32) -> Option<&Maximum> {
        self.gauge_costs.get_or_allocate(number)
    }

    pub(super) fn outcomes(&self, number: u32) -> Option<&OutcomeTotals> {
        self.outcomes.get(number)
    }

    #[inline]
    pub(super) fn outcomes_or_allocate(&self, number: u32) -> Option<&OutcomeTotals> {
        self.outcomes.get_or_allocate(number)
    }

    pub(super) fn target(&self, number: u32) -> Option<&TargetState> {
        self.targets.get(number)
    }

    pub(super) fn target_or_allocate(&self, number: u32) -> Option<&TargetState> {
        self.targets.get_or_allocate(number)
    }

    pub(super) fn bands(&self, number: u32) -> Option<&ArcSwapOption<Bands>> {
        self.bands.get(number)
    }

    pub(super) fn bands_or_allocate(&self, number: u32) -> Option<&ArcSwapOption<Bands>> {
        self.bands.get_or_allocate(number)
    }

    /// All limiters, in the order of their numbers.
    pub(super) fn limiters(self: &Arc<Self>) -> Vec<Limiter<'_>> {
        let used = self.lock().records.used;
        let numbers = (0..used).filter(|number| *number != SPARE);
        let heads = numbers.map(|number| (number, self.records.at(number).head.load()));
        let in_use = heads.filter(|(_, head)| is_in_use(*head));
        in_use
            .map(|(number, head)| self.limiter(number, generation_of(head)))
            .collect()
    }

    /// Locks the queue of a limiter.
    pub(super) fn queue<'s>(&'s self, limiter: Limiter<'s>) -> QueueGuard<'s> {
        let mut shard = self.queues_beside(limiter);
        let queue = shard.remove(&(limiter.number, limiter.generation));
        QueueGuard {
            queue: queue.unwrap_or_default(),
            shard,
            limiter,
        }
    }

    /// Reads the queue of a limiter while it is locked, if there is one.
    pub(super) fn read_queue<R: Default>(
        &self,
        limiter: Limiter<'_>,
        read: impl FnOnce(&WaitQueue) -> R,
    ) -> R {
        let shard = self.queues_beside(limiter);
        let queue = shard.get(&(limiter.number, limiter.generation));
        queue.map(read).unwrap_or_default()
    }

    /// Locks the queue of a limiter, with those of some others.
    fn queues_beside(&self, limiter: Limiter<'_>) -> MutexGuard<'_, Queues> {
        let [first, ..] = &self.queues;
        let shard = usize::try_from(limiter.number).unwrap_or_default() % QUEUE_SHARDS;
        let shard = self.queues.get(shard).unwrap_or(first);
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Queues by number and generation of their limiters.
type Queues = HashMap<(u32, u16), WaitQueue>;

/// A locked queue. One that is not empty stays in the store.
pub(super) struct QueueGuard<'s> {
    shard: MutexGuard<'s, Queues>,
    limiter: Limiter<'s>,
    queue: WaitQueue,
}

impl QueueGuard<'_> {
    /// The limiter is forgotten.
    fn forget(mut self) {
        self.queue = WaitQueue::default();
    }
}

impl Deref for QueueGuard<'_> {
    type Target = WaitQueue;

    fn deref(&self) -> &WaitQueue {
        &self.queue
    }
}

impl DerefMut for QueueGuard<'_> {
    fn deref_mut(&mut self) -> &mut WaitQueue {
        &mut self.queue
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let limiter = self.limiter;
        let is_current = limiter.is_current();
        let has_requests = self.queue.has_requests();
        if is_current && has_requests != limiter.record.has_queue() {
            limiter.record.set_has_queue(has_requests);
        }
        let is_used = if is_current {
            !self.queue.is_unused()
        } else {
            self.queue.is_in_use()
        };
        if is_used {
            let queue = std::mem::take(&mut self.queue);
            let key = (limiter.number, limiter.generation);
            self.shard.insert(key, queue);
        }
    }
}

/// The limiters of a registry, by number and by name.
#[derive(Debug, Clone)]
pub(crate) struct LimiterTable(Arc<Store>);

impl LimiterTable {
    pub(super) fn of(store: &Arc<Store>) -> Self {
        Self(Arc::clone(store))
    }

    /// The limiter with a number and a generation. It may be forgotten.
    pub(crate) fn get(&self, number: u32, generation: u16) -> Limiter<'_> {
        self.0.limiter(number, generation)
    }
}

/// A resource has the number of its limiter, which exists as long as the resource is wanted.
impl Names for LimiterTable {
    fn find(&self, id: &ResourceId) -> Option<ResourceIndex> {
        let limiter = self.0.find(id.as_str().as_bytes())?;
        Some(ResourceIndex::new(limiter.number))
    }

    fn insert(&mut self, id: &ResourceId) -> Option<ResourceIndex> {
        self.find(id)
    }

    fn remove(&mut self, _: ResourceIndex) {}

    fn id(&self, index: ResourceIndex) -> Option<ResourceId> {
        let number = index.number();
        let head = self.0.records.get(number)?.head.load();
        let name = self.0.name(self.0.limiter(number, generation_of(head)))?;
        ResourceId::new(str::from_utf8(&name).ok()?).ok()
    }
}
