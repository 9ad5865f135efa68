use std::sync::Arc;

use doorman_config::Document;
use doorman_openapi::{CapacityRequest, Reason};

use super::*;
use crate::ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy};

const NOW: Moment = Moment::from_nanos(1_000_000_000_000);

/// A lease of a minute, booked for 63 s.
fn lease() -> Vec<Grant> {
    let settings = Settings {
        max_leases: 10,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
    };
    let mut core = Ledger::new(Arc::new(Document::built_in()), settings, NOW);
    let request = r#"{"client_id":"c","resources":[{"resource_id":"db","wants":5}]}"#;
    let request: CapacityRequest = serde_json::from_str(request).unwrap();
    core.refresh_client(&request, NOW)
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_covered_is_told_at_once() {
    let horizon = Horizon::new(NOW.after_seconds(63.0), 0);
    let told = horizon.secure(lease(), NOW).await;
    assert_eq!(told[0].lease_length.get(), 60.0);
    // It is the latest of all: some more is written before it is needed, with the longest lease.
    assert_eq!(
        horizon.due(),
        Some((NOW.after_seconds(66.0), 63_000_000_000))
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_covered_waits_until_it_is() {
    let horizon = Arc::new(Horizon::new(NOW, 0));
    // As long as nothing is granted nothing is written, however often a server starts.
    assert_eq!(horizon.due(), None);
    let waits = tokio::spawn({
        let horizon = Arc::clone(&horizon);
        async move { horizon.secure(lease(), NOW).await }
    });
    horizon.hurried().await;
    let (bound, _) = horizon.due().unwrap();
    assert_eq!(bound, NOW.after_seconds(66.0));
    assert!(!waits.is_finished());
    horizon.is_safe(bound);
    assert_eq!(waits.await.unwrap()[0].lease_length.get(), 60.0);
    assert_eq!(horizon.due(), None);
}

#[tokio::test(start_paused = true)]
async fn when_the_disk_fails_leases_become_shorter_and_then_none_is_told() {
    let horizon = Horizon::new(NOW.after_seconds(21.0), 0);
    let told = horizon.secure(lease(), NOW).await;
    assert!((told[0].lease_length.get() - 20.0).abs() < 1e-6, "{told:?}");
    let horizon = Horizon::new(NOW, 0);
    let told = horizon.secure(lease(), NOW).await;
    assert_eq!(
        (told[0].capacity, told[0].lease_length.get(), told[0].reason),
        (Capacity::ZERO, 0.0, Reason::Pending)
    );
}
