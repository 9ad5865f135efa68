//! Failures of commands: a message for standard error, and an exit code.

use std::{
    borrow::Cow,
    error::Error,
    fmt::{self, Display},
    io::{self, Write},
    process::ExitCode,
};

use doorman_config::LoadError;
use doorman_openapi::escape_hidden_in_lines;
use reqwest::StatusCode;

#[derive(Debug)]
pub(super) struct Failure {
    /// One line; more only for the errors of a document.
    message: String,
    /// Further errors of a rejected request.
    errors: Vec<String>,
    exit_code: u8,
    /// Of a problem document; a response without one may come from another server or a proxy.
    status: Option<StatusCode>,
    /// Whether a server cannot have received the request.
    is_not_sent: bool,
    /// For standard output: a result that is bad.
    output: String,
}

impl Failure {
    pub(super) fn new(message: impl Display) -> Self {
        Self {
            message: format!("doorman: {message}"),
            errors: Vec::new(),
            exit_code: 1,
            status: None,
            is_not_sent: false,
            output: String::new(),
        }
    }

    pub(super) fn wrong_usage(message: impl Display) -> Self {
        Self {
            exit_code: 2,
            ..Self::new(message)
        }
    }

    pub(super) fn no_response(message: impl Display, is_not_sent: bool) -> Self {
        Self {
            exit_code: 3,
            is_not_sent,
            ..Self::new(message)
        }
    }

    /// Reports an error of the command line in one line, without the usage that `--help` prints.
    pub(super) fn from_usage(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        let parts = text
            .split("\n\n")
            .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"))
            .map(|part| {
                let words: Vec<_> = part.split_whitespace().map(redact).collect();
                words.join(" ")
            })
            .filter(|part| !part.is_empty());
        let message = parts.collect::<Vec<_>>().join("; ");
        let message = message.strip_prefix("error: ").unwrap_or(&message);
        Self::wrong_usage(format!("{message}; see --help"))
    }

    /// Reports validation errors as compilers do, each in a line that begins with its location.
    pub(super) fn from_document(error: &LoadError) -> Self {
        match error {
            LoadError::Invalid(..) => Self {
                message: error.to_string(),
                ..Self::new("")
            },
            LoadError::Io(..) => Self::new(chain(error)),
        }
    }

    #[must_use]
    pub(super) fn with_cause(mut self, cause: &dyn Error) -> Self {
        self.message = format!("{}: {}", self.message, chain(cause));
        self
    }

    /// Adds a result, which is printed before the message.
    #[must_use]
    pub(super) fn with_output(self, output: String) -> Self {
        Self { output, ..self }
    }

    /// Adds errors that the message does not have, each in a line.
    #[must_use]
    pub(super) fn with_errors(self, errors: Vec<String>) -> Self {
        Self { errors, ..self }
    }

    /// Adds the ID of the rejected request in the server's log.
    #[must_use]
    pub(super) fn with_request_id(mut self, id: Option<&str>) -> Self {
        if let Some(id) = id {
            self.message = format!("{} (request {id})", self.message);
        }
        self
    }

    #[must_use]
    pub(super) fn with_hint(mut self, hint: Option<&str>) -> Self {
        if let Some(hint) = hint {
            self.message = format!("{}; {hint}", self.message);
        }
        self
    }

    #[must_use]
    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// The message without the name of the program.
    pub(super) fn reason(&self) -> &str {
        self.message
            .strip_prefix("doorman: ")
            .unwrap_or(&self.message)
    }

    pub(super) fn is_not_sent(&self) -> bool {
        self.is_not_sent
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status == Some(StatusCode::NOT_FOUND)
    }

    pub(super) fn is_forbidden(&self) -> bool {
        self.status == Some(StatusCode::FORBIDDEN)
    }

    /// Whether the document has changed since it was read.
    pub(super) fn is_outdated(&self) -> bool {
        self.status == Some(StatusCode::PRECONDITION_FAILED)
    }

    /// Says what to do if the document has changed since it was read.
    #[must_use]
    pub(super) fn of_concurrent_change(self) -> Self {
        if !self.is_outdated() {
            return self;
        }
        let status = self.status;
        let message = "nothing was changed: the document has changed since this command read it; \
                       see doorman history, then run it again";
        Self {
            status,
            ..Self::new(message)
        }
    }

    #[cfg(test)]
    pub(super) fn exit_code(&self) -> u8 {
        self.exit_code
    }

    #[cfg(test)]
    pub(super) fn output(&self) -> &str {
        &self.output
    }

    pub(super) fn report(&self) -> ExitCode {
        // A reader that has gone is no other failure.
        // A reader that has gone is no other failure.
        let mut out = io::stdout().lock();
        let output = escape_hidden_in_lines(&self.output);
        drop(out.write_all(output.as_bytes()).and_then(|()| out.flush()));
        // If standard error is closed, the exit code still reports the failure.
        let message = self.to_string();
        drop(writeln!(
            io::stderr(),
            "{}",
            escape_hidden_in_lines(&message)
        ));
        ExitCode::from(self.exit_code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.errors.iter().try_for_each(|it| write!(f, "\n  {it}"))
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(chain(&error))
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Removes user and password from a URL. In malformed ones they end at the last `@`.
fn redact(word: &str) -> Cow<'_, str> {
    let url = word.split_once("://");
    match url.and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}").into(),
        None => word.into(),
    }
}
