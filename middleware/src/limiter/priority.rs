//! How important what is leased is.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwap;

use super::live::Live;

/// What one limit states, and what it has heard of the others on its resource: more is more important.
///
/// What another states is looked up where that one keeps it: so a rule that changes, or goes, takes what it said along.
#[derive(Debug, Default)]
pub(crate) struct Priority(Arc<Stated>);

#[derive(Debug, Default)]
struct Stated {
    own: Live<i32>,
    /// Whether the limit is in force no more, though limiters that it has made live on.
    withdrawn: AtomicBool,
    /// Those that came later to a resource of this one.
    others: ArcSwap<Vec<Weak<Self>>>,
}

impl Priority {
    /// Another limit states this of the same resource, for as long as it is there.
    pub(super) fn hear(&self, Self(other): &Self) {
        let known = |it: &Weak<Stated>| std::ptr::eq(it.as_ptr(), Arc::as_ptr(other));
        if self.0.others.load().iter().any(known) {
            return;
        }
        self.0.others.rcu(|others| {
            let others = others
                .iter()
                .filter(|it| it.strong_count() > 0 && !known(it));
            let mut others: Vec<_> = others.cloned().collect();
            others.push(Arc::downgrade(other));
            others
        });
    }

    /// The limit has been replaced by one that states this.
    pub(super) fn become_like(&self, Self(other): &Self) {
        self.0.own.set(other.own.get());
    }

    /// A second limit of the same set states this of the same resource: the higher of the two counts.
    pub(super) fn raise(&self, Self(other): &Self) {
        self.0.own.set(self.0.own.get().max(other.own.get()));
    }

    /// The limit is in force no more: if any other is, it has the say.
    pub(super) fn withdraw(&self) {
        self.0.withdrawn.store(true, Ordering::Relaxed);
    }

    /// The highest of those in force counts; the own one also when there are none.
    pub(super) fn highest(&self) -> i32 {
        let own = self.0.own.get();
        let others = self.0.others.load();
        let others = others.iter().filter_map(Weak::upgrade);
        let in_force = others.filter(|it| !it.withdrawn.load(Ordering::Relaxed));
        match in_force.map(|it| it.own.get()).max() {
            Some(highest) if self.0.withdrawn.load(Ordering::Relaxed) => highest,
            Some(highest) => highest.max(own),
            None => own,
        }
    }
}

impl From<i32> for Priority {
    fn from(stated: i32) -> Self {
        Self(Arc::new(Stated {
            own: stated.into(),
            ..Stated::default()
        }))
    }
}

/// The clone is that of another limit.
impl Clone for Priority {
    fn clone(&self) -> Self {
        self.0.own.get().into()
    }
}
