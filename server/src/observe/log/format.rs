//! Log lines that name the request being handled. Each event is one line.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

use doorman_openapi::{escape, is_hidden};
use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use super::Format;
use crate::observe::context::{self, RequestContext};

#[derive(Debug)]
pub(super) struct WithContext<F> {
    inner: F,
    format: Format,
}

impl<F> WithContext<F> {
    pub(super) fn new(inner: F, format: Format) -> Self {
        Self { inner, format }
    }

    fn ids(&self, context: &RequestContext) -> String {
        let mut ids = String::new();
        self.add(&mut ids, "request_id", context.id.as_str());
        if let Some(trace) = context.trace {
            self.add(&mut ids, "trace_id", &trace.trace_id.to_string());
            self.add(&mut ids, "parent_id", &trace.parent_id.to_string());
        }
        ids
    }

    fn add(&self, ids: &mut String, name: &str, value: &str) {
        // Writing to a string cannot fail.
        let _written = match self.format {
            Format::Text => write!(ids, " {name}={value}"),
            // A request ID may contain quotes.
            Format::Json => write!(ids, ",\"{name}\":{}", serde_json::Value::from(value)),
        };
    }
}

impl<F, S, N> FormatEvent<S, N> for WithContext<F>
where
    F: FormatEvent<S, N>,
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // Read before the event is formatted: one of its values may read the context, too.
        let ids = context::current(|context| self.ids(context)).unwrap_or_default();
        let mut line = String::new();
        self.inner
            .format_event(ctx, Writer::new(&mut line), event)?;
        // Colours are control characters.
        let line = escape(line.trim_end_matches('\n'), is_hidden);
        match self.format {
            Format::Text => writeln!(writer, "{}{ids}", in_one_line(&line)),
            Format::Json => writeln!(writer, "{}{ids}}}", line.strip_suffix('}').unwrap_or(&line)),
        }
    }
}

/// Escapes line breaks, such as those of a document's errors or a backtrace. JSON escapes them.
fn in_one_line(line: &str) -> Cow<'_, str> {
    if line.contains(['\n', '\r']) {
        line.replace('\r', "\\r").replace('\n', "\\n").into()
    } else {
        line.into()
    }
}
