#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorman_tests::fuzz::lease_responses::run(data));
