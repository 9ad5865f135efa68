//! What a server logs, and how.

use clap::ValueEnum;
use doorman_server::observe::log::{self, Filter, Format, Guard};

use super::failure::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct LogArguments {
    /// What is logged, beside everything from info on: directives such as debug, warn, or doorman::access=debug (a line a request), in the
    /// syntax of tracing's EnvFilter, with commas between them
    #[arg(
        long,
        env = "DOORMAN_LOG",
        value_name = "DIRECTIVES",
        default_value = "info"
    )]
    log: String,
    /// How a line of the log is written, to standard error
    #[arg(
        long,
        env = "DOORMAN_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    log_format: FormatArgument,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FormatArgument {
    /// For people
    Text,
    /// For machines: one JSON object a line
    Json,
}

impl LogArguments {
    /// Starts the log. The format is that of everything that the server says.
    pub(super) fn start(&self) -> Result<(Guard, Format), Failure> {
        let filter = Filter::parse(&self.log).map_err(|error| {
            Failure::wrong_usage(format!(
                "--log {}: must be directives such as debug or doorman::access=debug, with commas between them: {error}",
                self.log
            ))
        })?;
        let format = match self.log_format {
            FormatArgument::Text => Format::Text,
            FormatArgument::Json => Format::Json,
        };
        Ok((log::start(format, filter)?, format))
    }
}
