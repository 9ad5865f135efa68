//! How a command fails: a line to read, and an exit code to branch on.

use std::{
    error::Error,
    fmt::{self, Display},
    io::{self, Write},
    process::ExitCode,
};

use doorman_config::LoadError;

#[derive(Debug)]
pub(super) struct Failure {
    /// Lines that each name what they speak of, or one line.
    message: String,
    code: u8,
}

impl Failure {
    /// The command failed, or was refused.
    pub(super) fn new(message: impl Display) -> Self {
        Self {
            message: format!("doorman: {message}"),
            code: 1,
        }
    }

    /// What was asked for makes no sense, and does not get better by itself.
    pub(super) fn wrong_usage(message: impl Display) -> Self {
        Self {
            code: 2,
            ..Self::new(message)
        }
    }

    /// The server does not answer.
    pub(super) fn no_answer(message: impl Display) -> Self {
        Self {
            code: 3,
            ..Self::new(message)
        }
    }

    /// A document cannot be had: its faults line by line, each led by file and place, as compilers do it.
    pub(super) fn of_document(error: &LoadError) -> Self {
        match error.validation_errors() {
            Some(_) => Self {
                message: error.to_string(),
                code: 1,
            },
            None => Self::new(chain(error)),
        }
    }

    /// Adds why.
    #[must_use]
    pub(super) fn because(mut self, cause: &dyn Error) -> Self {
        self.message = format!("{}: {}", self.message, chain(cause));
        self
    }

    /// Adds the name by which the server's log knows the request that failed.
    #[must_use]
    pub(super) fn of_request(mut self, id: Option<&str>) -> Self {
        if let Some(id) = id {
            self.message = format!("{} (request {id})", self.message);
        }
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub(super) fn adding(mut self, hint: &str) -> Self {
        self.message = format!("{}; {hint}", self.message);
        self
    }

    /// The exit code that stands for it.
    pub(super) fn code(&self) -> u8 {
        self.code
    }

    /// Writes the message to standard error.
    pub(super) fn report(&self) -> ExitCode {
        // When nobody reads standard error, the exit code still tells.
        drop(writeln!(io::stderr(), "{self}"));
        ExitCode::from(self.code())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error with all its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(chain(&error))
    }
}
