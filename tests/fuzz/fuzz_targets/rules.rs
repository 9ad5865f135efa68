#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorman_tests::fuzz::rules::run(data));
