//! Layers that follow rules.

mod applied;
mod changes;
mod invalid;
mod own;
mod shared;

use std::time::Duration;

use doorman_openapi::{Capacity, OnLimit as WireOnLimit, OnMissingKey, Rule, Seconds};
use http::{HeaderValue, Request};
use tokio::time::advance;
use tower_layer::Layer as _;

use super::testing::{rule, rules_response};
use super::*;
use crate::{
    Callers, Fallback, Key, Limit, LimitLayer, LimitService, Refusal, clock,
    limiter::{
        LeaseState,
        testing::{leased_registry, static_registry},
    },
    testing::{Inner, TestResponse, send},
};

const SECOND: Duration = Duration::from_secs(1);

/// A layer that follows rules, whose resources admit `rate` per second each.
struct Followed {
    rules: Arc<Rules>,
    registry: Arc<Registry>,
    service: LimitService<Inner>,
}

impl Followed {
    fn new(rate: f64, in_code: impl IntoIterator<Item = Limit>) -> Self {
        Self::of(
            static_registry(move |_| LeaseState::Fixed { rate }),
            in_code,
        )
    }

    fn of(registry: Arc<Registry>, in_code: impl IntoIterator<Item = Limit>) -> Self {
        let rules = Arc::new(Rules::default());
        let layer = LimitLayer::new(Arc::clone(&registry), Callers::new(), in_code);
        Self {
            service: layer
                .with_rules(Arc::clone(&rules))
                .and_rules()
                .layer(Inner),
            registry,
            rules,
        }
    }

    fn apply(&self, version: &str, rules: impl Into<Vec<Rule>>) -> Option<RulesChange> {
        let rules = rules_response(version, rules);
        self.rules.apply(rules, &self.registry).unwrap()
    }

    fn error(&self, version: &str, rules: impl Into<Vec<Rule>>) -> String {
        let rules = rules_response(version, rules);
        self.rules
            .apply(rules, &self.registry)
            .unwrap_err()
            .to_string()
    }

    async fn get(&self, path: &str) -> TestResponse {
        send(&self.service, Request::get(path).body(()).unwrap()).await
    }

    /// How many of the requests are admitted.
    async fn pass(&self, path: &str, requests: u32) -> u32 {
        let mut passed = 0;
        for _ in 0..requests {
            passed += u32::from(self.get(path).await.status() == 200);
        }
        passed
    }
}

fn limit_of(answer: &TestResponse) -> &str {
    answer.extensions().get::<Refusal>().unwrap().limit()
}
