//! Keys made of requests.

use super::*;
use crate::VerifiedClaims;

#[tokio::test(start_paused = true)]
async fn unverified_claims_are_warned_about_once() {
    let (warnings, _guard) = Logged::at(tracing::Level::WARN);
    let (registry, _nudges) = leased_registry(10);
    let service = limited(&registry, [Limit::rate(Key::jwt("sub").unwrap())]);
    // An outer layer verified the token; only the claim is missing.
    let mut known = Request::new(());
    let claims = VerifiedClaims::new(&std::collections::HashMap::from([("aud", "x")])).unwrap();
    known.extensions_mut().insert(claims);
    send(&service, known).await;
    assert_eq!(warnings.count(), 0);
    for _ in 0..3 {
        send(&service, Request::new(())).await;
    }
    assert_eq!(warnings.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn missing_address_warning_states_the_outcome() {
    for (missing, outcome, code) in [
        (OnMissingKey::Shared, "; all callers share one key;", 200),
        (OnMissingKey::Skip, "; the limit does not apply;", 200),
        (OnMissingKey::Reject, "; they are rejected with 400;", 400),
    ] {
        let (warnings, _guard) = Logged::at(tracing::Level::WARN);
        let (registry, _nudges) = leased_registry(10);
        let limit = Limit::rate(Key::client_ip()).on_missing_key(missing);
        let service = limited(&registry, [limit]);
        for _ in 0..3 {
            assert_eq!(status(&service).await, code);
        }
        let warnings = warnings.lines();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let warning = &warnings[0];
        assert!(warning.contains(outcome), "{warning}");
        assert!(warning.contains("limit=\"client_ip\""), "{warning}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_beyond_the_bound_share_a_limiter() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let service = limited(&registry, [per_tenant()]);
    let names: Vec<&'static str> = (0..1_000)
        .map(|n| &*Box::leak(format!("t{n}").into_boxed_str()))
        .collect();
    for name in &names {
        assert_eq!(send(&service, tenant(name)).await.status(), 200);
    }
    assert_eq!(send(&service, tenant("new")).await.status(), 200);
    let response = send(&service, tenant("newer")).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (429, RefusalReason::Overflow)
    );
    let refusal: &Refusal = response.extensions().get().unwrap();
    assert_eq!(refusal.resource().unwrap().as_str(), "tenant/(overflow)");

    // A known key keeps its own limiter.
    let response = send(&service, tenant("t7")).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (429, RefusalReason::Spent)
    );
    assert_eq!(registry.limiters().len(), 1_001);
}

#[tokio::test(start_paused = true)]
async fn missing_key_is_shared_skipped_or_refused() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let service = |missing| limited(&registry, [per_tenant().on_missing_key(missing)]);

    let shared = service(OnMissingKey::Shared);
    assert_eq!(admitted(&shared, 3).await, 1);
    assert_eq!(registry.known("tenant/(missing)").tally().refused, 2.0);
    assert_eq!(admitted(&service(OnMissingKey::Skip), 3).await, 3);

    let response = send(&service(OnMissingKey::Reject), Request::new(())).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (400, RefusalReason::MissingKey)
    );
    assert_eq!(header(&response, "retry-after"), "");
    let problem = crate::testing::body(response).await;
    let problem: doorman_openapi::Problem = serde_json::from_slice(&problem).unwrap();
    assert_eq!(
        (problem.kind.as_str(), problem.status),
        ("about:blank", 400)
    );
}

#[tokio::test(start_paused = true)]
async fn missing_token_gets_401() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let limit = Limit::rate(Key::jwt("sub").unwrap()).on_missing_key(OnMissingKey::Reject);
    let response = send(&limited(&registry, [limit]), Request::new(())).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (401, RefusalReason::MissingToken)
    );
    assert_eq!(header(&response, "www-authenticate"), "Bearer");
    assert_eq!(header(&response, "retry-after"), "");
}

#[cfg(feature = "jwt")]
#[tokio::test(start_paused = true)]
async fn invalid_token_gets_401() {
    use tower_layer::Layer as _;

    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let key = crate::JwtKey::hs256("a secret of at least thirty-two bytes").unwrap();
    let verifier = crate::JwtVerifier::new([key], "issuer", "orders").unwrap();
    let limit = Limit::rate(Key::jwt("sub").unwrap()).on_missing_key(OnMissingKey::Reject);
    let layer = crate::LimitLayer::new(registry, Callers::new().jwt(verifier), [limit]);
    let request = Request::builder().header("authorization", "Bearer bad");
    let response = send(&layer.layer(Inner), request.body(()).unwrap()).await;
    assert_eq!(
        (response.status().as_u16(), reason(&response)),
        (401, RefusalReason::InvalidToken)
    );
    let challenge = header(&response, "www-authenticate");
    assert_eq!(challenge, "Bearer error=\"invalid_token\"");
}

#[tokio::test(start_paused = true)]
async fn key_closure_may_call_a_limited_service() {
    let registry = static_registry(|_| LeaseState::Fixed { rate: 1.0 });
    let inner = limited(&registry, [per_tenant()]);
    let key = Key::from_fn("outer", move |_| {
        use tower::Service as _;
        drop(inner.clone().call(tenant("inner")));
        Some(Cow::Borrowed("value"))
    });
    let outer = limited(&registry, [Limit::rate(key.unwrap())]);
    assert_eq!(send(&outer, Request::new(())).await.status(), 200);
    assert_eq!(registry.known("tenant/inner").tally().admitted, 1.0);
    assert_eq!(registry.known("outer/value").tally().admitted, 1.0);
}

#[tokio::test(start_paused = true)]
async fn try_admit_decides_without_waiting() {
    let registry = static_registry(|resource| LeaseState::Fixed {
        rate: if resource.as_str() == "all" { 2.0 } else { 1.0 },
    });
    let delay = OnLimit::Delay { max_delay: MINUTE };
    let limits = [Limit::rate("all"), per_tenant().on_limit(delay)];
    let layer = crate::LimitLayer::new(Arc::clone(&registry), Callers::new(), limits);
    let admit = |name| layer.try_admit(&RequestHead::of(&tenant(name)));

    assert_eq!(admit("a").map(drop), Ok(()));
    let refusal = admit("a").unwrap_err();
    assert_eq!(refusal.limit(), "per-tenant");
    assert_eq!(refusal.retry_after(), SECOND);
    assert_eq!(registry.known("tenant/a").tally().refused, 1.0);
    assert_eq!(admit("b").map(drop), Ok(()), "the refusal spent nothing");
    assert_eq!(admit("c").unwrap_err().limit(), "all");
}
