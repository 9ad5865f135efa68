//! One decision of the core.
use doorman_bench::Effort;
fn main() { let _ = Effort::asked(); }
