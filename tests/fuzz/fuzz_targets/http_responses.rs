#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| doorman_tests::fuzz::http_responses::run(data));
