//! `doorman check`: what is wrong with a document, and where.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use doorman_config::Source;

use super::failure::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  doorman check limits.yaml")]
pub(super) struct Arguments {
    /// The document, in YAML or JSON
    file: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<String, Failure> {
    let file = arguments.file.display();
    let document = Source::file(&arguments.file)
        .load()
        .map_err(|error| Failure::of_document(&error))?;
    let mut err = io::stderr().lock();
    for warning in document.warnings() {
        writeln!(err, "warning: {file}:{warning}")?;
    }
    let templates = match document.templates().len() {
        1 => "1 template".to_owned(),
        count => format!("{count} templates"),
    };
    Ok(format!(
        "{file}: ok, {templates}, version {}\n",
        document.version()
    ))
}
