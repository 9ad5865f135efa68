//! A command line that makes no sense, or only asks for help.

use std::{borrow::Cow, process::ExitCode};

use super::failure::Failure;

/// Says what is wrong with a command line, in one line as all failures are told, or what was asked for, such as the help.
pub(super) fn answer(said: &clap::Error) -> ExitCode {
    if said.use_stderr() {
        return misuse(said).report();
    }
    // That nobody reads it any more is no failure.
    drop(said.print());
    ExitCode::SUCCESS
}

/// The library's words without what the help says better.
pub(super) fn misuse(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let told = text
        .split("\n\n")
        .filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"))
        .map(|part| {
            let words = part.split_whitespace().map(without_credentials);
            words.collect::<Vec<_>>().join(" ")
        })
        .filter(|part| !part.is_empty());
    let told = told.collect::<Vec<_>>().join("; ");
    let told = told.strip_prefix("error: ").unwrap_or(&told);
    Failure::wrong_usage(format!("{told}; --help says what there is"))
}

/// A word of a command line as it may be shown: an address loses its user and password, wherever in it they may be taken to end.
fn without_credentials(word: &str) -> Cow<'_, str> {
    let address = word.split_once("://");
    match address.and_then(|(before, after)| Some((before, after.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}").into(),
        None => word.into(),
    }
}
