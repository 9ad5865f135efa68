//! Shared by the examples: a load generator, the log, and the shutdown signal.

pub mod load;

use std::io::{self, IsTerminal};

use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// Logs to standard error: `info`, unless `RUST_LOG` says otherwise, such as
/// `RUST_LOG=tower_doorman=debug`.
pub fn init_log() {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

/// Completes on SIGTERM or Ctrl-C. Once this returns, neither kills the process.
///
/// # Errors
/// When the signals cannot be handled.
pub fn shutdown_signal() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The code of the README and the guides, compiled as it stands there.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/KEYS.md")]
    struct Keys;
    #[doc = include_str!("../docs/LAYER.md")]
    struct Layer;
}
