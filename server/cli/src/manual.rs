//! `doorman completions` and `doorman man`: the command line for shells and for `man`.

use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use super::failure::Failure;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman completions bash > /etc/bash_completion.d/doorman\n  doorman completions zsh > /usr/local/share/zsh/site-functions/_doorman\n  doorman completions fish > ~/.config/fish/completions/doorman.fish"
)]
pub(super) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  doorman man /usr/local/share/man/man1\n  doorman man ./man && man ./man/doorman-show.1"
)]
pub(super) struct ManArguments {
    /// Directory for the pages; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn completions(arguments: &CompletionsArguments, mut program: Command) -> String {
    let mut script = Vec::new();
    let name = program.get_name().to_owned();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes a page for the program and one for each of its commands.
pub(super) fn man(arguments: &ManArguments, program: Command) -> Result<String, Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(program, directory))
        .map_err(|error| {
            Failure::new(format!("cannot write pages to {}", directory.display()))
                .with_cause(&error)
        })?;
    Ok(format!("manual pages written to {}\n", directory.display()))
}
