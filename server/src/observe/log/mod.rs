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
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use tracing::field::{DisplayValue, display};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::{self, MakeWriter},
};

use self::format::WithContext;

/// Lines that may wait for standard error.
const MAX_QUEUED_LINES: usize = 4096;

/// Bytes that may wait for standard error: some lines quote tokens or errors of any length.
const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;

static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines dropped since the start of the process.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.load(Relaxed)
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
    let (queue, guard) = Queue::start(io::stderr());
    let log = fmt::fmt()
        .with_env_filter(filter)
        .with_writer(queue)
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

#[derive(Debug, Clone)]
struct Queue {
    lines: NonBlocking,
    queued: QueuedBytes,
}

impl Queue {
    fn start(output: impl Write + Send + 'static) -> (Self, WorkerGuard) {
        let queued = QueuedBytes::default();
        let (lines, guard) = NonBlockingBuilder::default()
            // One more, so that the guard's message always fits: it complains on standard output
            // when it does not, which may be blocked, too.
            .buffered_lines_limit(MAX_QUEUED_LINES + 1)
            .lossy(true)
            .thread_name("log")
            .finish(Output {
                output,
                queued: queued.clone(),
                reported: 0,
            });
        (Self { lines, queued }, guard)
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queued.add(line) {
            return self.lines.write(line);
        }
        DROPPED.fetch_add(1, Relaxed);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Bytes of the queued lines; clones share them. A short line counts as its share.
#[derive(Debug, Clone, Default)]
struct QueuedBytes(Arc<AtomicUsize>);

impl QueuedBytes {
    fn size(line: &[u8]) -> usize {
        line.len().max(MAX_QUEUED_BYTES / MAX_QUEUED_LINES)
    }

    fn add(&self, line: &[u8]) -> bool {
        let add = |queued: usize| {
            let queued = queued.checked_add(Self::size(line))?;
            (queued <= MAX_QUEUED_BYTES).then_some(queued)
        };
        self.0.fetch_update(Relaxed, Relaxed, add).is_ok()
    }

    fn remove(&self, line: &[u8]) {
        self.0.fetch_sub(Self::size(line), Relaxed);
    }
}

struct Output<W> {
    output: W,
    queued: QueuedBytes,
    /// The dropped lines that have been logged.
    reported: u64,
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queued.remove(line);
        if self.output.write_all(line).is_err() {
            DROPPED.fetch_add(1, Relaxed);
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
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn panic_is_logged_with_a_requested_backtrace() {
        let forced = Backtrace::force_capture();
        let text = captured(&forced).map(|it| it.to_string());
        assert!(text.unwrap().contains("panic_is_logged"));
        assert!(captured(&Backtrace::disabled()).is_none());
    }

    /// An output that accepts nothing until it is released.
    struct Blocked(mpsc::Receiver<()>);

    impl Write for Blocked {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn queue_is_bounded_in_lines_and_bytes() {
        for (len, limit) in [(1, MAX_QUEUED_LINES), (64 * 1024, 64)] {
            let (release, blocked) = mpsc::channel();
            let (mut queue, guard) = Queue::start(Blocked(blocked));
            let line = vec![b'x'; len];
            queue.write_all(&line).unwrap();
            // The thread holds the first line.
            while queue.queued.0.load(Relaxed) > 0 {
                std::thread::yield_now();
            }
            for _ in 0..=MAX_QUEUED_LINES {
                queue.write_all(&line).unwrap();
            }
            let queued = queue.queued.0.load(Relaxed) / QueuedBytes::size(&line);
            assert_eq!(queued, limit, "{len}");
            // The channel itself has dropped nothing, and still has room for the guard's message.
            assert_eq!(queue.lines.error_counter().dropped_lines(), 0);
            drop(release);
            drop(guard);
            assert_eq!(queue.queued.0.load(Relaxed), 0);
        }
        assert!(dropped_lines() > 0);
    }
}
