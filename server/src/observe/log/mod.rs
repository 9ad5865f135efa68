//! The log of the process: what is written, in which form, and how it gets out without holding anybody up.
//!
//! Lines go to standard error by a thread of their own. Whoever has something to say hands it over and goes on: when standard error
//! takes nothing any more, lines are left out and counted; leases go on.

mod recognised;
mod writer;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, IsTerminal},
    panic,
};

use tracing::field::{DisplayValue, display};
use tracing_subscriber::{EnvFilter, filter::ParseError, fmt};

use self::recognised::Recognised;
pub use self::writer::Flush;
pub(crate) use self::writer::left_out;

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// For people, in colours on a terminal.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Which lines are written: `info` and more severe ones, unless directives say otherwise.
#[derive(Debug)]
pub struct Filter(EnvFilter);

impl Filter {
    /// Reads directives such as `debug` or `warn,doorman::access=debug`, in the syntax of tracing's `EnvFilter`. They are added to
    /// `info`: one that names no target replaces it.
    ///
    /// # Errors
    /// When one of them is none.
    pub fn parse(directives: &str) -> Result<Self, ParseError> {
        EnvFilter::try_new(format!("info,{directives}")).map(Self)
    }
}

/// Starts the log of this process, panics included. What it returns writes out what is left when it is dropped; to be kept as long
/// as anything may be said.
///
/// # Errors
/// When there is no thread to be had for it, or the process has a log already.
pub fn start(form: Form, Filter(filter): Filter) -> io::Result<Flush> {
    let (writer, flush) = writer::start()?;
    let log = fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // A complaint about the log would go where the log does not go any more.
        .log_internal_errors(false);
    let started = match form {
        Form::Text => {
            let colours = io::stderr().is_terminal();
            log.with_ansi(colours)
                .map_event_format(|text| Recognised::text(text.with_ansi(colours)))
                .try_init()
        }
        Form::Json => log
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .map_event_format(Recognised::json)
            .try_init(),
    };
    started.map_err(io::Error::other)?;
    panic::set_hook(Box::new(|panicked| {
        let location = panicked.location().map(ToString::to_string);
        let payload = panicked.payload();
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied());
        let backtrace = Backtrace::capture();
        let backtrace = captured(&backtrace);
        tracing::error!(panic = message, location, backtrace, "a thread panicked");
    }));
    Ok(flush)
}

/// What `RUST_BACKTRACE` asks for, if it does: the hook of the standard library, which would print it, is not there any more.
fn captured(backtrace: &Backtrace) -> Option<DisplayValue<&Backtrace>> {
    (backtrace.status() == BacktraceStatus::Captured).then(|| display(backtrace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_backtrace_where_one_is_asked_for() {
        let forced = Backtrace::force_capture();
        let told = captured(&forced).map(|it| it.to_string());
        assert!(told.unwrap().contains("a_panic_is_told"));
        assert!(captured(&Backtrace::disabled()).is_none());
    }
}
