//! Recorder for tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, LocalRecorderGuard, Metadata, Recorder, SharedString,
    Unit, set_default_local_recorder,
};

/// Records the metrics of the current thread.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    described: Mutex<BTreeSet<String>>,
}

impl Counts {
    /// Records until the guard is dropped.
    pub(crate) fn install(&self) -> LocalRecorderGuard<'_> {
        set_default_local_recorder(self)
    }

    /// The counters of a metric that are not 0, by labels like `limit=api outcome=spent`.
    pub(crate) fn of(&self, metric: &str) -> BTreeMap<String, u64> {
        let start = format!("{metric} ");
        let counters = self.counters.lock().expect("not poisoned");
        counters
            .iter()
            .filter_map(|(series, count)| Some((series.strip_prefix(&start)?, count)))
            .map(|(labels, count)| (labels.to_owned(), count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// A gauge like `doorman_layer_keys`, if it exists.
    pub(crate) fn gauge(&self, series: &str) -> Option<f64> {
        let gauges = self.gauges.lock().expect("not poisoned");
        let bits = gauges.get(series)?.load(Ordering::Relaxed);
        Some(f64::from_bits(bits))
    }

    /// Every series, with its labels.
    pub(crate) fn series(&self) -> BTreeSet<String> {
        let counters = self.counters.lock().expect("not poisoned");
        let gauges = self.gauges.lock().expect("not poisoned");
        counters.keys().chain(gauges.keys()).cloned().collect()
    }

    /// The metrics that are described.
    pub(crate) fn described(&self) -> BTreeSet<String> {
        self.described.lock().expect("not poisoned").clone()
    }

    fn describe(&self, name: &KeyName) {
        self.described
            .lock()
            .expect("not poisoned")
            .insert(name.as_str().to_owned());
    }
}

fn cell(cells: &Mutex<BTreeMap<String, Arc<AtomicU64>>>, key: &Key) -> Arc<AtomicU64> {
    let labels = key.labels();
    let labels = labels.map(|label| format!(" {}={}", label.key(), label.value()));
    let series = format!("{}{}", key.name(), labels.collect::<String>());
    Arc::clone(
        cells
            .lock()
            .expect("not poisoned")
            .entry(series)
            .or_default(),
    )
}

impl Recorder for Counts {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(cell(&self.counters, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(cell(&self.gauges, key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
