//! Metrics of the ledger, read at a scrape.

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
    http::error::ApiError, http::state::ServerInfo, leasing::LedgerUnavailable,
    leasing::SharedLedger, observe::metrics::counters, quota::Quotas, quota::ReadKind, util::clock,
};
use doorman_core::ledger::{FeedbackSurvey, LedgerStats, Survey, TemplateCounts};

/// Resources that are named: those with the highest demand. It bounds the number of series.
const MAX_RESOURCES: usize = 50;

/// Steps per turn under the lock of the ledger.
const BUDGET: usize = 512;

type TemplateCounter = Family<[(&'static str, String); 2], Counter<f64, AtomicU64>>;
type LabeledGauge = Family<[(&'static str, String); 1], Gauge<f64, AtomicU64>>;

#[derive(Debug)]
pub(super) struct LedgerMetrics {
    stats: LedgerStats,
    max_leases: usize,
    learning: usize,
    unmet: usize,
    polls: usize,
    survey: Survey,
    top: Vec<ResourceView>,
    counts: Vec<(String, TemplateCounts)>,
}

impl LedgerMetrics {
    /// Reads the ledger, a part at a time.
    /// `None`: this server is not master.
    pub(super) async fn read(
        ledger: &SharedLedger,
        quotas: &Quotas,
    ) -> Result<Option<Self>, ApiError> {
        let permit = quotas.begin_read(ReadKind::All).await?;
        let mut survey = Survey::new(MAX_RESOURCES);
        loop {
            ledger.yield_to_waiters(permit.delay(clock::now())).await;
            match ledger.with(|ledger, now| ledger.survey(&mut survey, BUDGET, now)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(LedgerUnavailable::NotMaster) => return Ok(None),
                Err(poisoned) => return Err(poisoned.into()),
            }
        }
        let polls = ledger.polls().len();
        let read = ledger.with(|ledger, now| Self {
            stats: ledger.stats(),
            max_leases: ledger.max_leases(),
            learning: ledger.resources_learning(now),
            unmet: ledger.unmet_for_a_minute().resources(),
            polls,
            top: ledger.most_wanted(&survey, now),
            counts: (ledger.template_counts())
                .map(|(template, counts)| (template.to_owned(), *counts))
                .collect(),
            survey,
        });
        match read {
            Err(LedgerUnavailable::NotMaster) => Ok(None),
            read => Ok(Some(read?)),
        }
    }

    pub(super) fn register(&self, registry: &mut Registry, server: &ServerInfo) {
        self.register_totals(registry);
        self.register_full(registry);
        self.register_exceptions(registry, server);
        self.register_outcomes(registry);
        self.register_feedback(registry);
        self.register_resources(registry);
    }

    fn register_totals(&self, registry: &mut Registry) {
        let totals = [
            ("resources", "Live resources", self.stats.resources),
            (
                "leases",
                "Leases of all resources, including released ones that are kept for their order",
                self.stats.leases,
            ),
            (
                "leases_most",
                "Lease limit; beyond it new holders get nothing",
                self.max_leases,
            ),
            ("polls", "Open polls for hints", self.polls),
            (
                "resources_learning",
                "Resources in learning mode",
                self.learning,
            ),
            (
                "resources_over_capacity",
                "Resources whose holders may use more than the capacity, after an operator's cut",
                self.survey.over_capacity,
            ),
            (
                "resources_unmet",
                "Resources whose demand has been unmet for at least a minute",
                self.unmet,
            ),
        ];
        for (name, help, number) in totals {
            registry.register(name, help, ConstGauge::new(number as f64));
        }
        if let Some(unleased) = self.survey.unleased {
            registry.register(
                "resources_unleased",
                "Resources without a current lease from the parent node",
                ConstGauge::new(unleased as f64),
            );
        }
        registry.register(
            "unmatched_answers",
            "Responses for resources that match no template",
            ConstCounter::new(self.stats.unmatched),
        );
        registry.register(
            "duplicate_clients",
            "Clients that asked for a first lease while another run of the same client_id had one or \
             asked for one",
            ConstCounter::new(self.stats.duplicate_clients),
        );
    }

    /// Rejections for want of room.
    fn register_full(&self, registry: &mut Registry) {
        let (all, tenant) = (self.stats.full, self.stats.tenant_full);
        registry.register(
            "full_answers",
            "New holders that got nothing (full), by the limit: that of the ledger (--max-leases), \
             or a quarter of it for one tenant",
            counters("limit", [("ledger", all), ("tenant", tenant)]),
        );
    }

    /// The only cases in which holders together may use more than the capacity.
    fn register_exceptions(&self, registry: &mut Registry, server: &ServerInfo) {
        let LedgerStats {
            resources: _,
            leases: _,
            unmatched: _,
            full: _,
            tenant_full: _,
            excess_claims,
            overused,
            no_algorithm_grants,
            static_grants,
            suppression_grants,
            shared_bucket_grants,
            replaced,
            duplicate_clients: _,
            decisions_during_cut,
            short_learning,
        } = self.stats;
        let exceptions = counters(
            "exception",
            [
                ("cut", decisions_during_cut),
                ("excess_claim", excess_claims),
                ("first_start", u64::from(server.assumed_first_start)),
                ("no_algorithm", no_algorithm_grants),
                ("outlived", overused),
                ("replaced", replaced),
                ("shared_bucket", shared_bucket_grants),
                ("short_learning", short_learning),
                ("static", static_grants),
                ("suppression", suppression_grants),
                ("unknown_longest", server.earlier_leases.assumed()),
            ],
        );
        registry.register(
            "safety_exceptions",
            "Occasions on which holders together may use more than the capacity: decisions during \
             an operator's cut (cut), claims above what is possible (excess_claim), starts on an \
             empty data directory that was assumed new (first_start), grants of resources that are \
             not divided (no_algorithm, shared_bucket, static, suppression), operations that \
             outlive their lease (outlived), resources whose learning mode is shorter than their \
             leases (short_learning), reigns that assumed no earlier lease to be longer than those \
             of the document (unknown_longest)",
            exceptions,
        );
    }

    fn register_outcomes(&self, registry: &mut Registry) {
        let outcomes = TemplateCounter::default();
        let changes = TemplateCounter::default();
        let ignored = TemplateCounter::default();
        for (template, counts) in &self.counts {
            let sum = &counts.outcomes;
            let by_outcome = [
                ("failed", sum.failed),
                ("ok", sum.ok),
                ("overloaded", sum.overloaded),
                ("refused", sum.refused),
            ];
            count_all(&outcomes, template, "outcome", by_outcome);
            let by_reason = [
                ("baseline", counts.ignored_baselines as f64),
                ("scope", counts.ignored_scope as f64),
                ("suffers", counts.ignored_suffering as f64),
            ];
            count_all(&ignored, template, "reason", by_reason);
            let by_change = [
                ("cut", counts.cuts as f64),
                ("pause", counts.pauses as f64),
                ("raise", counts.raises as f64),
                ("trial", counts.trials as f64),
            ];
            count_all(&changes, template, "change", by_change);
        }
        registry.register(
            "outcomes",
            "Outcomes of requests, by the reports of holders: those that the target served (ok), \
             refused for its load (overloaded) or failed otherwise (failed), and the cost of those \
             that holders did not admit (refused)",
            outcomes,
        );
        registry.register(
            "feedback_ignored",
            "Reports of outcomes that move no capacity: the caller lacks the scope (scope), they \
             begin a count (baseline), or the holder suffers alone (suffers)",
            ignored,
        );
        registry.register(
            "feedback_changes",
            "Changes of the effective capacity by feedback: cuts, raises, pauses that the target asks \
             for, and trials of the level before cuts that did not help",
            changes,
        );
    }

    fn register_feedback(&self, registry: &mut Registry) {
        type Read = fn(&FeedbackSurvey) -> f64;

        let gauges: [(&str, &str, Read); 6] = [
            ("effective_capacity", "Effective capacity", |it| {
                it.effective
            }),
            ("followed_capacity", "Configured capacity", |it| {
                it.configured
            }),
            (
                "feedback_held_back",
                "Resources of which less than 90 % are effective while demand is unmet",
                |it| it.held_back as f64,
            ),
            (
                "feedback_at_floor",
                "Resources at the floor of their feedback, or paused",
                |it| it.at_floor as f64,
            ),
            (
                "feedback_not_ours",
                "Resources whose target refuses requests at any load",
                |it| it.not_ours as f64,
            ),
            (
                "feedback_suffers_alone",
                "Holders of which the target refuses much more than of the others",
                |it| it.suffer_alone as f64,
            ),
        ];
        for (name, help, read) in gauges {
            let family = LabeledGauge::default();
            for (template, sums) in &self.survey.feedback {
                let label = [("template", template.clone())];
                family.get_or_create(&label).set(read(sums));
            }
            let help = format!("{help}; of live resources with feedback, by template");
            registry.register(name, help, family);
        }
    }

    fn register_resources(&self, registry: &mut Registry) {
        type Read = fn(&ResourceView) -> Option<f64>;

        let gauges: [(&str, &str, Read); 9] = [
            (
                "resource_capacity",
                "Capacity; at a node below the root the part that its parent leases to it",
                |view| view.capacity.map(Capacity::get),
            ),
            (
                "resource_limit",
                "Capacity of the whole tree, at nodes below the root",
                |view| view.parent.as_ref()?.limit.map(Capacity::get),
            ),
            (
                "resource_has",
                "Capacity that all holders together may be using",
                |view| Some(view.sum_has),
            ),
            ("resource_wants", "Demand of all holders together", |view| {
                Some(view.sum_wants)
            }),
            (
                "resource_unmet",
                "Demand beyond what may be leased",
                |view| Some(view.unmet),
            ),
            (
                "resource_holders",
                "Clients that hold the resource or wait for it, including those behind nodes",
                |view| Some(view.clients as f64),
            ),
            (
                "resource_learning",
                "Whether the resource is in learning mode",
                |view| Some(f64::from(u8::from(view.in_learning_mode))),
            ),
            (
                "resource_balance",
                "Tokens in the bucket that all holders share",
                |view| view.balance.map(Balance::get),
            ),
            (
                "resource_admission_probability",
                "Probability with which holders admit a request",
                |view| view.admission_probability.map(Probability::get),
            ),
        ];
        for (name, help, read) in gauges {
            let family = LabeledGauge::default();
            for view in &self.top {
                if let Some(value) = read(view) {
                    let label = [("resource", view.resource_id.as_str().to_owned())];
                    family.get_or_create(&label).set(value);
                }
            }
            let help = format!("{help}; of the resources with the highest demand");
            registry.register(name, help, family);
        }
    }
}

/// Adds the counts of a template, each with its value of a label.
fn count_all(
    counter: &TemplateCounter,
    template: &str,
    label: &'static str,
    counts: impl IntoIterator<Item = (&'static str, f64)>,
) {
    for (value, count) in counts {
        let labels = [("template", template.to_owned()), (label, value.to_owned())];
        counter.get_or_create(&labels).inc_by(count);
    }
}
