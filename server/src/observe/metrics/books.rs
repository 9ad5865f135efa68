//! What the books say of themselves when somebody asks.

use std::sync::atomic::AtomicU64;

use doorman_openapi::{Balance, Capacity, Probability, ResourceView};
use prometheus_client::{
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};

use crate::{
    leasing::SharedLedger,
    ledger::{LedgerStats, Survey},
    observe::metrics::Unreadable,
    quota::{Quotas, ReadKind},
    util::clock,
};

/// How many places of the books are looked at under one lock, so that no request waits long for them.
const BUDGET: usize = 512;

type Label = [(&'static str, String); 1];
/// One number of a resource, if it has it.
type Read = fn(&ResourceView) -> Option<f64>;
type Amounts = Family<Label, Gauge<f64, AtomicU64>>;

/// What the books said.
#[derive(Debug)]
pub(super) struct Books {
    counts: LedgerStats,
    max_leases: usize,
    survey: Survey,
    top: Vec<ResourceView>,
}

impl Books {
    /// Reads them, a piece at a time.
    pub(super) async fn read(
        ledger: &SharedLedger,
        limits: &Quotas,
        most: usize,
    ) -> Result<Self, Unreadable> {
        let looking = limits.begin_read(ReadKind::All).await?;
        let mut survey = Survey::new(most);
        let mut more = true;
        while more {
            ledger.yield_to_waiters(looking.rest(clock::now())).await;
            more = ledger.with(|core, now| core.survey(&mut survey, BUDGET, now))?;
        }
        let (counts, max_leases, top) = ledger.with(|core, now| {
            let top = core.most_wanted(&survey, now);
            (core.stats(), core.max_leases(), top)
        })?;
        Ok(Self {
            counts,
            max_leases,
            survey,
            top,
        })
    }

    /// `first_start`: an empty data directory was taken for that of a first start.
    pub(super) fn register(&self, registry: &mut Registry, first_start: bool) {
        self.register_totals(registry);
        self.register_exceptions(registry, first_start);
        self.register_resources(registry);
    }

    fn register_totals(&self, registry: &mut Registry) {
        let LedgerStats {
            resources,
            leases,
            unmatched,
            ..
        } = self.counts;
        for (name, help, number) in [
            ("resources", "Live resources", resources),
            (
                "leases",
                "Leases of all resources together, released ones that are kept for their order included",
                leases,
            ),
            (
                "leases_most",
                "The most leases that the books hold; beyond it newcomers get nothing",
                self.max_leases,
            ),
            (
                "resources_learning",
                "Resources of which the server is still learning what its predecessor leased",
                self.survey.learning,
            ),
            (
                "resources_over_capacity",
                "Resources of which more is in the holders' hands than there is, after an operator's cut",
                self.survey.over_capacity,
            ),
        ] {
            registry.register(name, help, ConstGauge::new(number as f64));
        }
        registry.register(
            "unmatched_answers",
            "Answers for resources that no template matches",
            ConstCounter::new(unmatched),
        );
    }

    /// Where the sum of what holders may use could exceed the capacity: everything else keeps it within.
    fn register_exceptions(&self, registry: &mut Registry, first_start: bool) {
        let LedgerStats {
            resources: _,
            leases: _,
            unmatched: _,
            excess_claims,
            overused,
            no_algorithm_grants,
            static_grants,
            suppression_grants,
            shared_bucket_grants,
            decisions_during_cut,
            short_learning,
        } = self.counts;
        let exceptions = by_label(
            "exception",
            [
                ("cut", decisions_during_cut),
                ("excess_claim", excess_claims),
                ("first_start", u64::from(first_start)),
                ("no_algorithm", no_algorithm_grants),
                ("outlived", overused),
                ("shared_bucket", shared_bucket_grants),
                ("short_learning", short_learning),
                ("static", static_grants),
                ("suppression", suppression_grants),
            ],
        );
        registry.register(
            "safety_exceptions",
            "Occasions on which holders together may use more than there is: decisions during an operator's cut (cut), claims above \
             what is possible (excess_claim), starts on an empty data directory that was not taken for a lost one (first_start), grants of \
             resources that are not divided (no_algorithm, shared_bucket, static, suppression), operations that outlive a lapsed lease \
             (outlived), resources that learn for less long than leases last \
             (short_learning)",
            exceptions,
        );
    }

    fn register_resources(&self, registry: &mut Registry) {
        let gauges: [(&str, &str, Read); 7] = [
            ("resource_capacity", "How much there is", |view| {
                view.capacity.map(Capacity::get)
            }),
            (
                "resource_has",
                "The most that all holders together may be using, by the books",
                |view| Some(view.sum_has),
            ),
            ("resource_wants", "What all holders together want", |view| {
                Some(view.sum_wants)
            }),
            (
                "resource_holders",
                "How many clients hold it or wait for it, those behind nodes included",
                |view| Some(view.clients as f64),
            ),
            (
                "resource_learning",
                "Whether the server is still learning what its predecessor leased of it",
                |view| Some(f64::from(u8::from(view.in_learning_mode))),
            ),
            (
                "resource_balance",
                "What is left in the bucket that all holders share",
                |view| view.balance.map(Balance::get),
            ),
            (
                "resource_admission_probability",
                "With which probability holders admit each request",
                |view| view.admission_probability.map(Probability::get),
            ),
        ];
        for (name, help, amount) in gauges {
            let family = Amounts::default();
            for view in &self.top {
                if let Some(amount) = amount(view) {
                    let label = [("resource", view.resource_id.as_str().to_owned())];
                    family.get_or_create(&label).set(amount);
                }
            }
            registry.register(
                name,
                format!("{help}; of the resources that want the most"),
                family,
            );
        }
    }
}

/// Counters that differ in one label.
pub(super) fn by_label<const N: usize>(
    label: &'static str,
    counts: [(&str, u64); N],
) -> Family<Label, Counter> {
    let family = Family::<Label, Counter>::default();
    for (value, count) in counts {
        family
            .get_or_create(&[(label, value.to_owned())])
            .inc_by(count);
    }
    family
}
