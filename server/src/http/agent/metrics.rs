//! `GET /metrics` of the agent: those of its requests, and those of the layer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{extract::State, http::HeaderMap, response::IntoResponse};
use doorman_openapi::paths;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use prometheus_client::{
    metrics::{
        counter::{self, ConstCounter},
        family::Family,
        gauge::{self, ConstGauge},
    },
    registry::Registry,
};

use super::AgentState;
use crate::http::{
    error::ApiError,
    metrics::{encode, registry},
};

/// The labels of a series.
type Labels = Vec<(String, String)>;

/// The metrics of the layer, which it reports through the `metrics` facade.
#[derive(Debug, Default)]
pub(crate) struct LayerMetrics(Mutex<BTreeMap<String, LayerFamily>>);

#[derive(Debug, Default)]
struct LayerFamily {
    help: String,
    /// A gauge has the bits of a floating-point number.
    is_gauge: bool,
    series: BTreeMap<Labels, Arc<AtomicU64>>,
}

impl LayerMetrics {
    /// Those of this process, recorded from the first call on.
    pub(crate) fn of_process() -> Arc<Self> {
        static RECORDER: OnceLock<Arc<LayerMetrics>> = OnceLock::new();
        let recorder = RECORDER.get_or_init(|| {
            let recorder = Arc::new(Self::default());
            if metrics::set_global_recorder(Arc::clone(&recorder)).is_err() {
                tracing::warn!("the program records the metrics of the layer elsewhere");
            }
            recorder
        });
        Arc::clone(recorder)
    }

    fn register(&self, registry: &mut Registry) {
        for (name, family) in &*self.families() {
            // The registry adds them.
            let name = name.strip_prefix("doorman_").unwrap_or(name);
            let name = name.strip_suffix("_total").unwrap_or(name);
            if family.is_gauge {
                let gauges = Family::<Labels, gauge::Gauge<f64, AtomicU64>>::default();
                for (labels, bits) in &family.series {
                    let gauge = gauges.get_or_create(labels);
                    gauge.set(f64::from_bits(bits.load(Relaxed)));
                }
                registry.register(name, &*family.help, gauges);
            } else if !family.series.is_empty() {
                let counters = Family::<Labels, counter::Counter>::default();
                for (labels, count) in &family.series {
                    let counter = counters.get_or_create(labels);
                    counter.inc_by(count.load(Relaxed));
                }
                registry.register(name, &*family.help, counters);
            }
        }
    }

    fn series(&self, key: &Key, is_gauge: bool) -> Arc<AtomicU64> {
        let mut families = self.families();
        let family = families.entry(key.name().to_owned()).or_default();
        family.is_gauge = is_gauge;
        Arc::clone(family.series.entry(labels(key)).or_default())
    }

    fn describe(&self, name: &KeyName, help: &str) {
        let mut families = self.families();
        let family = families.entry(name.as_str().to_owned()).or_default();
        help.clone_into(&mut family.help);
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<String, LayerFamily>> {
        // Every statement leaves them consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn labels(key: &Key) -> Labels {
    let owned = |label: &metrics::Label| (label.key().to_owned(), label.value().to_owned());
    key.labels().map(owned).collect()
}

impl Recorder for LayerMetrics {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, &help);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key, false))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.series(key, true))
    }

    /// The layer has none.
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Read the metrics
///
/// All metrics as OpenMetrics text, or in the text format of Prometheus if `Accept` prefers
/// `text/plain`: those of the layer, and of the agent.
#[utoipa::path(
    get,
    path = paths::METRICS,
    responses((status = OK, description = "The metrics", content((String = "application/openmetrics-text"), (String = "text/plain"))))
)]
pub(super) async fn get_agent_metrics(
    State(agent): State<AgentState>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let mut registry = registry();
    registry.register(
        "agent_permits",
        "Permits in use",
        ConstGauge::new(i64::try_from(agent.permits.len()).unwrap_or(i64::MAX)),
    );
    registry.register(
        "agent_permits_expired",
        "Permits given back because their time ended before their release",
        ConstCounter::new(agent.permits.expired()),
    );
    agent.requests.register(&mut registry);
    agent.connections.register(&mut registry);
    agent.layer.register(&mut registry);
    encode(&registry, &headers)
}
