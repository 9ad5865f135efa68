//! Every line about a request names it.

use std::fmt::{self, Write};

use tracing::{Event, Subscriber};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use super::Form;
use crate::observe::context::{self, RequestContext};

/// A format that adds what the request is recognised by that is being worked on.
#[derive(Debug)]
pub(super) struct Recognised<F> {
    inner: F,
    form: Form,
}

impl<F> Recognised<F> {
    /// Around a format of lines of text.
    pub(super) fn text(inner: F) -> Self {
        let form = Form::Text;
        Self { inner, form }
    }

    /// Around a format of JSON objects.
    pub(super) fn json(inner: F) -> Self {
        let form = Form::Json;
        Self { inner, form }
    }
}

impl<F, S, N> FormatEvent<S, N> for Recognised<F>
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
        // It is looked at before the rest is written: a value that is written may look at it as well.
        let Some(ids) = context::current(|trail| self.ids(trail)) else {
            return self.inner.format_event(ctx, writer, event);
        };
        let mut line = String::new();
        self.inner
            .format_event(ctx, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        match self.form {
            Form::Text => writeln!(writer, "{line}{ids}"),
            Form::Json => writeln!(writer, "{}{ids}}}", line.strip_suffix('}').unwrap_or(line)),
        }
    }
}

impl<F> Recognised<F> {
    fn ids(&self, trail: &RequestContext) -> String {
        let mut ids = String::new();
        self.add(&mut ids, "request_id", trail.id.as_str());
        if let Some(trace) = trail.trace {
            self.add(&mut ids, "trace_id", &trace.trace_id.to_string());
            self.add(&mut ids, "parent_id", &trace.parent_id.to_string());
        }
        ids
    }

    fn add(&self, ids: &mut String, name: &str, value: &str) {
        // Writing to a text cannot fail.
        let _written = match self.form {
            Form::Text => write!(ids, " {name}={value}"),
            // The name of a request may have quotes in it.
            Form::Json => write!(ids, ",\"{name}\":{}", serde_json::Value::from(value)),
        };
    }
}
