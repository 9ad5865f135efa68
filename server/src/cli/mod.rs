//! The command line: what was asked for, and how it ended.
//!
//! What a command answers goes to standard output; faults and logs go to standard error.

mod auth;
mod banner;
mod check;
mod client;
mod export;
mod failure;
mod history;
mod import;
mod lease;
mod log;
mod master;
mod misuse;
mod place;
mod ready;
mod serve;
mod show;
mod table;
mod time;
mod tls;
mod token;
mod trust;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

use self::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  doorman                                    serve on 127.0.0.1:7300 with the built-in document
  doorman --config file:limits.yaml          serve with your own
  doorman --auth-secret-file secret          serve those who have a token
  doorman --tls-cert tls.crt --tls-key tls.key   serve by TLS alone
  doorman token --secret-file secret --sub orders --scope capacity > orders.token
  doorman check limits.yaml                  say what is wrong with it, and where
  doorman get db --wants 50                  lease capacity, once
  doorman show                               look at all live resources
  doorman master                             ask who is master
  doorman export > limits.yaml               print the document of a running server
  doorman import limits.yaml --dry-run       say what would change with another one

Every flag is also read from the environment: --data-dir from DOORMAN_DATA_DIR.
Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 3 no answer from the server.";

const SERVING: &str = "\
Examples:
  doorman serve --config file:limits.yaml
  doorman serve --listen 0.0.0.0:7300 --auth-secret-file secret --tls-cert tls.crt --tls-key tls.key

Every flag is also read from the environment: --data-dir from DOORMAN_DATA_DIR.";

/// Leases parts of something with limited capacity to many processes, so that together they stay within it.
#[derive(Debug, Parser)]
#[command(name = "doorman", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Arguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the control plane; what `doorman` does without a command
    #[command(after_help = SERVING)]
    Serve(Box<serve::Arguments>),
    /// Say what is wrong with a document, and where
    Check(check::Arguments),
    /// Put a document in force, in place of the one that is
    Import(import::Arguments),
    /// Print the document that is in force
    Export(export::Arguments),
    /// Say who changed what of the document, and when
    History(history::Arguments),
    /// Make a token that the servers with the same secret take
    Token(token::Arguments),
    /// Ask whether a server takes requests: exit code 0 when it does
    Ready(ready::Arguments),
    /// Print the OpenAPI document
    #[command(after_help = "Example:\n  doorman openapi > openapi.json")]
    Openapi,
    /// Lease capacity for one resource, once
    Get(lease::GetArguments),
    /// Give leases back
    Release(lease::ReleaseArguments),
    /// Look at the live resources, or at one and who holds it
    Show(show::Arguments),
    /// Ask who is master
    Master(master::Arguments),
}

pub(crate) fn main() -> ExitCode {
    match Cli::try_parse() {
        Err(said) => misuse::answer(&said),
        Ok(cli) => match cli.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        },
    }
}

impl Cli {
    fn run(self) -> Result<(), Failure> {
        let answer = match self.command.unwrap_or(Command::Serve(Box::new(self.serve))) {
            Command::Serve(arguments) => return serve::run(*arguments),
            Command::Check(arguments) => check::run(&arguments)?,
            Command::Import(arguments) => client::block_on(import::run(arguments))?,
            Command::Export(arguments) => client::block_on(export::run(arguments))?,
            Command::History(arguments) => client::block_on(history::run(arguments))?,
            Command::Token(arguments) => token::run(arguments)?,
            Command::Ready(arguments) => client::block_on(ready::run(arguments))?,
            Command::Openapi => doorman_server::openapi_json(),
            Command::Get(arguments) => client::block_on(lease::get(arguments))?,
            Command::Release(arguments) => client::block_on(lease::release(arguments))?,
            Command::Show(arguments) => client::block_on(show::run(arguments))?,
            Command::Master(arguments) => client::block_on(master::run(arguments))?,
        };
        say(&answer)
    }
}

/// Writes a text to standard output. That nobody reads it any more is no failure.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write to standard output").because(&error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
