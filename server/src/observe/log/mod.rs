//! The log of the process, on standard error.
//!
//! A thread of its own writes the lines, so no caller waits for standard error. When it accepts no
//! more output, lines are dropped and counted.

mod format;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal, Write},
    panic,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tracing::field::{DisplayValue, display};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, filter::ParseError, fmt};

use self::format::WithContext;

/// Lines that may wait for standard error.
const MAX_QUEUED_LINES: usize = 4096;

static QUEUE_DROPS: OnceLock<ErrorCounter> = OnceLock::new();
static WRITE_ERRORS: AtomicUsize = AtomicUsize::new(0);

/// Lines dropped since the start of the process.
pub(crate) fn dropped_lines() -> u64 {
    let queue = QUEUE_DROPS.get().map_or(0, ErrorCounter::dropped_lines);
    let all = queue.saturating_add(WRITE_ERRORS.load(Relaxed));
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people, with colours on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Selection of log lines: `info` and above, unless directives say otherwise.
#[derive(Debug)]
pub struct Filter(EnvFilter);

impl Filter {
    /// Parses directives such as `debug` or `warn,doorman::access=debug`, in the syntax of
    /// tracing's `EnvFilter`. They are added to `info`; one without a target replaces it.
    ///
    /// # Errors
    /// A directive is malformed.
    pub fn parse(directives: &str) -> Result<Self, ParseError> {
        EnvFilter::try_new(format!("info,{directives}")).map(Self)
    }
}

/// Keeps the log running. Dropping it waits up to a second for queued lines to be written.
#[derive(Debug)]
#[must_use = "queued log lines are lost without it"]
pub struct Guard(#[expect(dead_code, reason = "dropping it flushes the log")] WorkerGuard);

/// Starts the log of this process, panics included.
///
/// # Errors
/// The process has a log already.
pub fn start(format: Format, Filter(filter): Filter) -> io::Result<Guard> {
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_QUEUED_LINES)
        .lossy(true)
        .thread_name("log")
        .finish(Stderr { reported: 0 });
    QUEUE_DROPS.get_or_init(|| writer.error_counter());
    let log = fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // They would go where the log cannot go.
        .log_internal_errors(false);
    let started = match format {
        Format::Text => {
            let colours = io::stderr().is_terminal();
            log.with_ansi(colours)
                .map_event_format(|text| WithContext::new(text.with_ansi(colours), format))
                .try_init()
        }
        Format::Json => log
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .map_event_format(|json| WithContext::new(json, format))
            .try_init(),
    };
    started.map_err(io::Error::other)?;
    panic::set_hook(Box::new(log_panic));
    Ok(Guard(guard))
}

fn log_panic(panic: &panic::PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string);
    let payload = panic.payload();
    let message = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    let backtrace = Backtrace::capture();
    let backtrace = captured(&backtrace);
    tracing::error!(panic = message, location, backtrace, "thread panicked");
}

/// The backtrace if `RUST_BACKTRACE` asks for one: this hook replaces the one that would print it.
fn captured(backtrace: &Backtrace) -> Option<DisplayValue<&Backtrace>> {
    (backtrace.status() == BacktraceStatus::Captured).then(|| display(backtrace))
}

/// Standard error, for the thread of the log.
struct Stderr {
    /// The dropped lines that have been logged.
    reported: u64,
}

impl Write for Stderr {
    /// Writes a line, or counts it as dropped.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if io::stderr().write_all(line).is_err() {
            WRITE_ERRORS.fetch_add(1, Relaxed);
            self.reported = self.reported.saturating_add(1);
        }
        Ok(line.len())
    }

    /// Called when no line is queued, so there is room to log that lines were dropped.
    fn flush(&mut self) -> io::Result<()> {
        let dropped = dropped_lines();
        if dropped > self.reported {
            let lines = dropped.saturating_sub(self.reported);
            self.reported = dropped;
            tracing::warn!(lines, "dropped log lines; standard error was blocked");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_logged_with_a_requested_backtrace() {
        let forced = Backtrace::force_capture();
        let text = captured(&forced).map(|it| it.to_string());
        assert!(text.unwrap().contains("panic_is_logged"));
        assert!(captured(&Backtrace::disabled()).is_none());
    }
}
