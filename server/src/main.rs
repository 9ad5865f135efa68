//! Doorman.
fn main() {}
