//! `doorman check`: what is wrong with a document, and where.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use doorman_config::FileSource;

use super::failure::Failure;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  doorman check limits.yaml")]
pub(super) struct Arguments {
    /// The document, in YAML or JSON
    file: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<String, Failure> {
    let file = arguments.file.display();
    let document = FileSource::new(&arguments.file)
        .load()
        .map_err(|error| Failure::of_document(&error))?;
    let mut err = io::stderr().lock();
    for warning in document.warnings() {
        writeln!(err, "warning: {}", warning.in_file(&file.to_string()))?;
    }
    let templates = counted(document.templates().len(), "template");
    let rules = match document.rules().len() {
        0 => String::new(),
        count => format!(", {}", counted(count, "rule")),
    };
    Ok(format!(
        "{file}: ok, {templates}{rules}, version {}\n",
        document.version()
    ))
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
