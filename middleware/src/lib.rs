//! Doorman.

mod clock;
mod cost;
mod demand;
pub mod lease;
mod limiter;

pub use cost::{Cost, InvalidCost};
pub use limiter::Fallback;
