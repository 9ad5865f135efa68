//! The command line of `doorman`: the server and the commands around it.
//!
//! Results go to standard output, errors and logs to standard error.
//!
//! **To add a flag**, add a field to the arguments of its command: in `serve_flags` for the server
//! (`ServeArguments::settings` passes the value on to `doorman_server::Settings`, in
//! `server/src/settings.rs`), in `client` for all commands that call a server, otherwise in the file
//! of the command. Its environment variable follows from its name ([`with_variables`]). **To add a
//! command**, add a variant to [`OneShot`].

mod agent;
mod banner;
mod certificate;
mod client;
mod document;
mod failure;
mod leases;
mod manual;
mod output;
mod revisions;
mod serve;
mod serve_flags;
mod set;
mod show;
mod simulate;
mod status;
mod token;
mod variables;

use std::{ffi::OsString, io, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use self::{
    failure::Failure,
    serve_flags::ServeArguments,
    variables::{name_variable, unknown_variables, with_variables},
};

const EXAMPLES: &str = "\
Examples:
  doorman                                        serve on 127.0.0.1:7300 with the built-in document
  doorman --config file:limits.yaml              serve with a document from a file
  doorman --auth-secret-file secret              require tokens
  doorman --tls-cert tls.crt --tls-key tls.key   serve HTTPS
  doorman token --secret-file secret --sub orders --scope capacity > orders.token
  doorman check limits.yaml                      validate a document
  doorman get db --wants 50                      request a lease once
  doorman show                                   list the largest live resources
  doorman master                                 print the master
  doorman set 'tenant/*' capacity=20             change a field of a template
  doorman export > limits.yaml                   print the document of a running server
  doorman import limits.yaml --dry-run           print what a new document would change
  doorman diff 7                                 print the changes since revision 7
  doorman rollback 7                             return to the document of revision 7
  doorman simulate scenario.yaml                 simulate servers, clients and faults
  doorman agent --service shop                   enforce limits for programs on this machine

Every flag has an environment variable: DOORMAN_DATA_DIR for --data-dir.
Exit codes: 0 success, 1 failed or rejected, 2 wrong usage, 3 no response from the server.";

const SERVE_EXAMPLES: &str = "\
Examples:
  doorman serve --config file:limits.yaml
  doorman serve --listen 0.0.0.0:7300 --auth-secret-file secret --tls-cert tls.crt --tls-key tls.key

Every flag has an environment variable: DOORMAN_DATA_DIR for --data-dir.";

const AGENT_EXAMPLES: &str = "\
Examples:
  doorman agent --server http://doorman:7300
  doorman agent --listen unix:/run/doorman/agent.sock --service shop
  doorman agent --rules rules.yaml --token-file agent.token

Every flag has an environment variable: DOORMAN_RULES for --rules.";

/// Leases shares of limited capacity to many processes, so that together they stay within it.
#[derive(Debug, Parser)]
#[command(name = "doorman", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArguments,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a process has one")]
enum Command {
    /// Run the control plane (the default command)
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArguments),
    /// Run the layer as a daemon, for programs in other languages and for proxies
    #[command(after_help = AGENT_EXAMPLES)]
    Agent(agent::AgentArguments),
    #[command(flatten)]
    OneShot(OneShot),
}

/// Commands that print a result and exit.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one value")]
enum OneShot {
    /// Validate a document; print its errors and warnings
    Check(document::CheckArguments),
    /// Replace the active document
    Import(document::ImportArguments),
    /// Change fields of a template or rule
    Set(set::SetArguments),
    /// Print the active document
    Export(document::ExportArguments),
    /// List changes of the document, with time and author
    History(document::HistoryArguments),
    /// Print the changes from one document to another
    Diff(revisions::DiffArguments),
    /// Return to a past document
    Rollback(revisions::RollbackArguments),
    /// Create a token for servers that share the secret, or inspect one
    Token(token::TokenArguments),
    /// Exit with 0 if a server accepts requests
    Ready(status::ReadyArguments),
    /// Print the OpenAPI document
    #[command(after_help = "Example:\n  doorman openapi > openapi.json")]
    Openapi,
    /// Request a lease once
    Get(leases::GetArguments),
    /// Release leases
    Release(leases::ReleaseArguments),
    /// List the largest live resources, or one with its largest holders
    Show(show::ShowArguments),
    /// Print the master of a node
    Master(status::MasterArguments),
    /// Simulate a scenario: servers, clients and faults in virtual time
    Simulate(simulate::SimulateArguments),
    /// Print a completion script for a shell
    Completions(manual::CompletionsArguments),
    /// Write manual pages
    Man(manual::ManArguments),
}

/// Returns freed memory to the system within half a minute. The allocator of glibc keeps it:
/// pages between two that are in use stay resident.
#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return Failure::from_usage(&error).report(),
        Err(help) => {
            // As for results, a reader that has gone is no failure.
            drop(help.print());
            return ExitCode::SUCCESS;
        }
    };
    for unknown in unknown_variables(&Cli::command(), std::env::vars_os()) {
        output::warn(&mut io::stderr(), &unknown);
    }
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

impl Cli {
    fn read<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, clap::Error> {
        let mut command = with_variables(Self::command());
        let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
        let matches = command.try_get_matches_from_mut(&arguments);
        let matches = matches.map_err(|error| name_variable(error, &command, &arguments))?;
        Self::from_arg_matches(&matches)
    }

    fn run(self) -> Result<(), Failure> {
        match self.command.unwrap_or(Command::Serve(self.serve)) {
            Command::Serve(arguments) => serve::run(arguments),
            Command::Agent(arguments) => agent::run(arguments),
            Command::OneShot(command) => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                output::print(&runtime.block_on(command.run())?)
            }
        }
    }
}

impl OneShot {
    /// Returns the text for standard output.
    async fn run(self) -> Result<String, Failure> {
        match self {
            Self::Check(arguments) => document::check(&arguments, &mut io::stderr()),
            Self::Import(arguments) => document::import(arguments).await,
            Self::Set(arguments) => set::set(arguments).await,
            Self::Export(arguments) => document::export(arguments).await,
            Self::History(arguments) => document::history(arguments).await,
            Self::Diff(arguments) => revisions::diff(arguments).await,
            Self::Rollback(arguments) => revisions::rollback(arguments).await,
            Self::Token(arguments) => token::run(arguments).await,
            Self::Ready(arguments) => status::ready(arguments).await,
            Self::Openapi => Ok(doorman_server::openapi_json()),
            Self::Get(arguments) => leases::get(arguments).await,
            Self::Release(arguments) => leases::release(arguments).await,
            Self::Show(arguments) => show::show(arguments).await,
            Self::Master(arguments) => status::master(arguments).await,
            Self::Simulate(arguments) => simulate::run(&arguments, &mut io::stderr()),
            Self::Completions(arguments) => Ok(manual::completions(
                &arguments,
                with_variables(Cli::command()),
            )),
            Self::Man(arguments) => manual::man(&arguments, with_variables(Cli::command())),
        }
    }
}

#[cfg(test)]
mod tests;
