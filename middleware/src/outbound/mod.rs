//! Clients behind limits, and retries.

#[cfg(feature = "reqwest")]
mod client;
#[cfg(feature = "retry")]
mod retry;

#[cfg(feature = "reqwest")]
pub use self::client::{LimitedClient, SendError};
#[cfg(feature = "retry")]
pub use self::retry::RetryPolicy;

#[cfg(test)]
#[cfg(feature = "axum")]
mod tests;
