//! Limits in shadow mode.

use super::*;

fn shadow(limit: Limit) -> Limit {
    limit.on_limit(OnLimit::Shadow)
}

#[tokio::test(start_paused = true)]
async fn shadow_limit_counts_and_admits() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 10.0 });
    let service = limited(&registry, [shadow(Limit::rate("api"))]);
    assert_eq!(admitted(&service, 25).await, 25);
    let tally = Tally {
        admitted: 10.0,
        refused: 15.0,
    };
    assert_eq!(registry.known("api").tally(), tally);
    // Requests beyond the limit spent nothing.
    advance(SECOND).await;
    assert_eq!(admitted(&service, 25).await, 25);
    assert_eq!(registry.known("api").tally().admitted, 20.0);
}

#[tokio::test(start_paused = true)]
async fn shadow_limits_on_one_resource_count_together() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let limits = ["a", "b"].map(|name| shadow(Limit::rate("api").named(name)));
    let service = limited(&registry, limits);
    let mut tallies = Vec::new();
    for _ in 0..4 {
        assert_eq!(status(&service).await, 200);
        let Tally { admitted, refused } = registry.known("api").tally();
        tallies.push((admitted, refused));
        advance(SECOND).await;
    }
    // Enforced, they would admit one request every two seconds and take two tokens.
    assert_eq!(tallies, [(2.0, 0.0), (2.0, 2.0), (4.0, 2.0), (4.0, 4.0)]);
}

#[tokio::test(start_paused = true)]
async fn shadow_limit_does_not_affect_the_response() {
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: match resource.as_str() {
            "real" => 10.0,
            _ => 1.0,
        },
    });
    let service = limited(
        &registry,
        [shadow(Limit::rate("shadow")), Limit::rate("real")],
    );
    let response = send(&service, Request::new(())).await;
    assert_eq!(header(&response, "ratelimit"), r#""real";r=9;t=1"#);
    assert_eq!(admitted(&service, 20).await, 9);
    let response = send(&service, Request::new(())).await;
    assert_eq!(reason(&response), RefusalReason::Spent);
    assert_eq!(header(&response, "retry-after"), "1");
    assert_eq!(header(&response, "ratelimit"), r#""real";r=0;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn enforced_refusal_spends_nothing_of_a_shadow() {
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: match resource.as_str() {
            "real" => 10.0,
            _ => 15.0,
        },
    });
    let service = limited(
        &registry,
        [shadow(Limit::rate("shadow")), Limit::rate("real")],
    );
    assert_eq!(admitted(&service, 40).await, 10);
    let tally = Tally {
        admitted: 10.0,
        refused: 0.0,
    };
    assert_eq!(registry.known("shadow").tally(), tally);
}

#[tokio::test(start_paused = true)]
async fn shadow_limit_never_waits_or_refuses() {
    let (registry, _nudges) = leased_registry(10);
    let limit = shadow(per_tenant())
        .on_missing_key(OnMissingKey::Reject)
        .fallback(Fallback::Pessimistic)
        .wait_for_lease(SECOND);
    let service = limited(&registry, [limit]);
    let start = clock::now();
    assert_eq!(send(&service, tenant("a")).await.status(), 200);
    assert_eq!(status(&service).await, 200);
    assert_eq!(clock::now(), start);
}
