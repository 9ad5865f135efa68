mod direct;
mod layer;
mod properties;

use std::{sync::Arc, time::Duration};

use tokio::time::{advance, sleep};

use super::*;
use crate::{
    Doorman, Rate, RateSettings,
    limiter::{
        LeaseState,
        testing::{leased, leased_registry, static_registry},
    },
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

fn cost(cost: f64) -> Cost {
    Cost::new(cost).unwrap()
}

fn fixed(rate: f64) -> Arc<Registry> {
    static_registry(move |_| LeaseState::Fixed { rate })
}

/// Runs all tasks that are ready.
async fn run_ready() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// How many tokens are available now, up to 100.
fn available(rate: &Rate) -> u32 {
    (0..100)
        .take_while(|_| rate.try_acquire(Cost::ONE).is_ok())
        .count() as u32
}
