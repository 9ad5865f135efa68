//! Doorman.

mod clock;
mod cost;
pub mod lease;
mod limiter;

pub use cost::{Cost, InvalidCost};
pub use limiter::Fallback;
