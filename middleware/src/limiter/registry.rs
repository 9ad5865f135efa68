//! Every limiter of the process, by resource.

use std::{
    borrow::Borrow,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, atomic::Ordering},
};

use doorman_openapi::ResourceId;
use foldhash::fast::RandomState;
use papaya::HashMap;
use tokio::sync::mpsc::UnboundedSender;

use super::{Limiter, LimiterSettings, Standing};
use crate::clock;

/// Where limiters get their standing from.
pub(crate) enum Source {
    /// A worker, which is told of every new limiter and leases for it.
    Worker(UnboundedSender<Nudge>),
    /// A rule that needs no lease.
    Given(Box<dyn Fn(&ResourceId) -> Standing + Send + Sync>),
}

/// What the worker is told between two refreshes. A limiter that runs low says so once until it is
/// [heard](Limiter::heard), so that the channel never holds more than two a limiter.
#[derive(Debug, Clone)]
pub(crate) enum Nudge {
    /// There is a new limiter to lease for.
    New(Arc<Limiter>),
    /// Requests are refused or wait, or half a bucket is gone.
    Hungry(Arc<Limiter>),
}

/// How a limiter comes to be, and to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tenure {
    /// Named in the program: it is there for good.
    Fixed,
    /// Made of a request: bounded in number, forgotten when idle.
    Keyed,
    /// Stands in for many keys: never refused, forgotten when idle.
    Shared,
}

/// Bits of a limiter's tenure.
const FIXED: u8 = 1;
const FORGOTTEN: u8 = 2;

/// Every limiter of the process. Whoever admits requests holds it; the worker does not, and sees that all are gone when the channel
/// of the nudges closes.
pub(crate) struct Registry {
    limiters: HashMap<Entry, (), RandomState>,
    max_keys: usize,
    source: Source,
}

impl Registry {
    /// An empty registry that makes at most `max_keys` limiters for keys.
    pub(crate) fn new(max_keys: usize, source: Source) -> Arc<Self> {
        Arc::new(Self {
            limiters: HashMap::with_hasher(RandomState::default()),
            max_keys,
            source,
        })
    }

    /// The limiter of a resource, made if there is none; `None` when there is no room for another key.
    ///
    /// `settings` count only when it is made.
    pub(crate) fn limiter(
        &self,
        resource: &str,
        settings: &Arc<LimiterSettings>,
        tenure: Tenure,
    ) -> Option<Arc<Limiter>> {
        loop {
            let known = self.find(resource);
            let limiter = match known {
                Some(limiter) => limiter,
                None => self.make(resource, settings, tenure)?,
            };
            if tenure != Tenure::Fixed || limiter.fix() {
                return Some(limiter);
            }
            // It was being forgotten when it was to be fixed: make it anew.
            std::hint::spin_loop();
        }
    }

    #[cold]
    fn make(
        &self,
        resource: &str,
        settings: &Arc<LimiterSettings>,
        tenure: Tenure,
    ) -> Option<Arc<Limiter>> {
        if tenure == Tenure::Keyed && self.limiters.len() >= self.max_keys {
            return None;
        }
        let resource = ResourceId::new(resource).ok()?;
        let now = clock::now();
        let limiter = Arc::new(Limiter::new(resource, Arc::clone(settings), now));
        if tenure == Tenure::Fixed {
            limiter.fix();
        }
        if let Source::Given(standing) = &self.source {
            limiter.publish(standing(limiter.resource()), now);
        }
        let entry = Entry(Arc::clone(&limiter));
        if self.limiters.pin().try_insert(entry, ()).is_err() {
            // Another thread was faster.
            return self.find(limiter.resource().as_str());
        }
        if let Source::Worker(nudges) = &self.source {
            // Without a worker the fallback counts.
            nudges.send(Nudge::New(Arc::clone(&limiter))).ok();
        }
        Some(limiter)
    }

    fn find(&self, resource: &str) -> Option<Arc<Limiter>> {
        let limiters = self.limiters.pin();
        limiters
            .get_key_value(resource)
            .map(|(entry, ())| Arc::clone(&entry.0))
    }

    /// Forgets a limiter that is idle, unless it is fixed or somebody waits; says whether it did.
    pub(crate) fn forget(&self, limiter: &Arc<Limiter>) -> bool {
        if limiter.waiting() > 0 || !limiter.unfix() {
            return false;
        }
        self.limiters.pin().remove(limiter.resource().as_str());
        true
    }

    /// Every limiter there is.
    pub(crate) fn limiters(&self) -> Vec<Arc<Limiter>> {
        self.limiters
            .pin()
            .keys()
            .map(|entry| Arc::clone(&entry.0))
            .collect()
    }

    /// Tells the worker, once, that a limiter runs low.
    pub(crate) fn hungry(&self, limiter: &Arc<Limiter>) {
        if let Source::Worker(nudges) = &self.source
            && limiter.becomes_hungry()
        {
            nudges.send(Nudge::Hungry(Arc::clone(limiter))).ok();
        }
    }

    /// Resolves when no lease can come any more: the worker is gone.
    pub(crate) async fn orphaned(&self) {
        match &self.source {
            Source::Worker(nudges) => nudges.closed().await,
            Source::Given(_) => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("limiters", &self.limiters.len())
            .field("max_keys", &self.max_keys)
            .finish_non_exhaustive()
    }
}

impl Limiter {
    /// Whether it is there for good.
    pub(crate) fn is_fixed(&self) -> bool {
        self.tenure.load(Ordering::Acquire) & FIXED != 0
    }

    /// Makes it stay for good; false when it has been forgotten already.
    fn fix(&self) -> bool {
        self.tenure
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |bits| {
                (bits & FORGOTTEN == 0).then_some(bits | FIXED)
            })
            .is_ok()
    }

    /// Marks it as forgotten; false when it is fixed, or was forgotten before.
    fn unfix(&self) -> bool {
        self.tenure
            .compare_exchange(0, FORGOTTEN, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// A limiter, found by the name of its resource.
struct Entry(Arc<Limiter>);

impl Borrow<str> for Entry {
    fn borrow(&self) -> &str {
        self.0.resource.as_str()
    }
}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.resource.as_str().hash(state);
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0.resource == other.0.resource
    }
}

impl Eq for Entry {}
