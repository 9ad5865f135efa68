//! Limits that only count what they would refuse.

use super::*;

fn shadow(limit: Limit) -> Limit {
    limit.on_limit(OnLimit::Shadow)
}

#[tokio::test(start_paused = true)]
async fn what_a_shadow_would_refuse_is_counted_and_passes() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 10.0 });
    let service = limited(&registry, [shadow(Limit::rate("api"))]);
    assert_eq!(admitted(&service, 25).await, 25);
    let tally = Tally {
        admitted: 10.0,
        refused: 15.0,
    };
    assert_eq!(registry.known("api").tally(), tally);
    // What passed beyond the limit spent nothing of it: the count is that of the limit in earnest.
    advance(SECOND).await;
    assert_eq!(admitted(&service, 25).await, 25);
    assert_eq!(registry.known("api").tally().admitted, 20.0);
}

#[tokio::test(start_paused = true)]
async fn two_on_one_resource_count_what_they_would_refuse_together() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let limits = ["a", "b"].map(|name| shadow(Limit::rate("api").named(name)));
    let service = limited(&registry, limits);
    let mut told = Vec::new();
    for _ in 0..4 {
        assert_eq!(status(&service).await, 200);
        let Tally { admitted, refused } = registry.known("api").tally();
        told.push((admitted, refused));
        advance(SECOND).await;
    }
    // In earnest one would go every two seconds, and take a token for each.
    assert_eq!(told, [(2.0, 0.0), (2.0, 2.0), (4.0, 2.0), (4.0, 4.0)]);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_leaves_the_other_limits_and_the_response_as_they_are() {
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: match resource.as_str() {
            "real" => 10.0,
            _ => 1.0,
        },
    });
    let service = limited(
        &registry,
        [shadow(Limit::rate("tried")), Limit::rate("real")],
    );
    let answer = send(&service, Request::new(())).await;
    assert_eq!(header(&answer, "ratelimit"), r#""real";r=9;t=1"#);
    assert_eq!(admitted(&service, 20).await, 9);
    let answer = send(&service, Request::new(())).await;
    assert_eq!(reason(&answer), RefusalReason::Spent);
    assert_eq!(header(&answer, "retry-after"), "1");
    assert_eq!(header(&answer, "ratelimit"), r#""real";r=0;t=1"#);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_in_earnest_spends_nothing_of_a_shadow() {
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: match resource.as_str() {
            "real" => 10.0,
            _ => 15.0,
        },
    });
    let service = limited(
        &registry,
        [shadow(Limit::rate("tried")), Limit::rate("real")],
    );
    assert_eq!(admitted(&service, 40).await, 10);
    let tally = Tally {
        admitted: 10.0,
        refused: 0.0,
    };
    assert_eq!(registry.known("tried").tally(), tally);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_neither_waits_nor_refuses_for_want_of_a_key_or_a_lease() {
    let (registry, _nudges) = leased_registry(10);
    let limit = shadow(per_tenant())
        .on_missing_key(MissingKey::Reject)
        .fallback(Fallback::Pessimistic)
        .wait_for_lease(SECOND);
    let service = limited(&registry, [limit]);
    let start = clock::now();
    assert_eq!(send(&service, tenant("a")).await.status(), 200);
    assert_eq!(status(&service).await, 200);
    assert_eq!(clock::now(), start);
}
