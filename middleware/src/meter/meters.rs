//! The meters of one registry, and the bound on how many there are.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use metrics::{Gauge, describe_gauge, gauge};

use super::LimitMeter;

/// How many limits are counted by name. A program names few; one that names limits by its data would make a series of each.
pub(super) const MOST_NAMES: usize = 100;
/// The name that stands for all others.
pub(super) const OTHERS: &str = "(others)";

const KEYS: &str = "doorman_layer_keys";

/// What counts the limits of one registry.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    named: Mutex<HashMap<Arc<str>, LimitMeter>>,
    keys: OnceLock<Gauge>,
}

impl Meters {
    /// What counts the decisions of the limit of this name: one for all limits that share a name.
    pub(crate) fn of(&self, limit: &Arc<str>) -> LimitMeter {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = named.get(limit) {
            return meter.clone();
        }
        let name = if named.len() < MOST_NAMES {
            Arc::clone(limit)
        } else {
            OTHERS.into()
        };
        let meter = named.entry(Arc::clone(&name));
        meter.or_insert_with(|| LimitMeter::new(name)).clone()
    }

    /// There is a limiter for one more key.
    pub(crate) fn key_comes(&self) {
        self.keys().increment(1.0);
    }

    /// There are no limiters for so many keys any more.
    pub(crate) fn keys_go(&self, keys: usize) {
        if keys > 0 {
            self.keys().decrement(keys as f64);
        }
    }

    fn keys(&self) -> &Gauge {
        self.keys.get_or_init(|| {
            describe_gauge!(KEYS, "Keys of requests that are limited one by one");
            gauge!(KEYS)
        })
    }
}
