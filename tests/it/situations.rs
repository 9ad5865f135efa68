//! Situations of less than 15 seconds in which no request may be rejected while capacity is free.
//!
//! The others take long, or depend on milliseconds, which an unoptimized build on a busy machine
//! cannot keep. `Situation::test` names the test that guards each of them.

use std::{fs, path::Path};

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

#[test]
fn each_situation_has_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for situation in SITUATIONS {
        let (file, test) = situation.test;
        let path = if file.starts_with("it/") {
            root.join(file)
        } else {
            root.join("../middleware/src/lease/worker/tests").join(file)
        };
        let source = fs::read_to_string(&path).expect("it is readable");
        let is_defined =
            source.contains(&format!("fn {test}(")) || source.contains(&format!("{test}: "));
        assert!(is_defined, "{}: {file} has no test {test}", situation.name);
    }
}
