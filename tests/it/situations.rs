//! Situations of less than 15 seconds in which no request may be rejected while capacity is free.
//!
//! Those left out depend on milliseconds, which an unoptimized build on a busy machine does not
//! keep. The worker's tests of shifts cover them with the real ledger and a paused clock, and the
//! tests of hints cover the changed limit.

use doorman_tests::situations::{Programs, SITUATIONS};

use crate::support::{doorman, exclusive_load};

/// Measures a situation, and asserts that it meets its targets.
async fn assert_met(name: &str) {
    let _exclusive = exclusive_load().await;
    let programs = Programs {
        doorman: doorman(),
        service: env!("CARGO_BIN_EXE_situations").into(),
    };
    let mut situations = SITUATIONS.iter();
    let situation = situations.find(|situation| situation.name == name);
    let situation = situation.expect("it is defined");
    let outcomes = situation.measure(&programs).expect("all processes run");
    for outcome in outcomes {
        assert!(outcome.met, "{outcome:#?}");
    }
}

macro_rules! situations {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                assert_met($name).await;
            }
        )*
    };
}

situations! {
    new_tenant_is_admitted_a_bucket: "new-tenant",
    fast_client_far_below_the_limit_is_admitted: "hey",
    waiting_requests_lease_the_whole_limit: "wait-loop",
    idle_key_admits_a_bucket_at_once: "idle-key",
    first_seconds_of_the_readme_stay_within_the_limit: "readme",
}
