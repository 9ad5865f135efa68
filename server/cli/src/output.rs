//! Output of commands: text, JSON and tables.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    time::{Duration, UNIX_EPOCH},
};

use doorman_openapi::{escape_hidden, escape_hidden_in_lines};
use serde::Serialize;

use super::failure::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct JsonFlag {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Writes to standard output, with hidden characters escaped. A reader that has gone is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let text = escape_hidden_in_lines(text);
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new("cannot write to standard output").with_cause(&error))
        }
        _ => Ok(()),
    }
}

/// Writes a state that a later one replaces: on a terminal the screen is cleared before. `false`
/// when nobody reads it any more.
pub(super) fn print_frame(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let text = escape_hidden_in_lines(text);
    let written = if out.is_terminal() {
        write!(out, "\u{1b}[H\u{1b}[2J{text}")
    } else {
        writeln!(out, "{text}")
    };
    match written.and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new("cannot write to standard output").with_cause(&error)),
    }
}

/// Writes a line to standard error. Its failure does not stop the command.
pub(super) fn note(stderr: &mut impl Write, text: &str) {
    drop(writeln!(stderr, "{}", escape_hidden_in_lines(text)));
}

/// Writes to standard error. Its failure does not stop the command.
pub(super) fn warn(stderr: &mut impl Write, warning: &dyn Display) {
    note(stderr, &format!("warning: {warning}"));
}

pub(super) fn pretty_json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(format!("{:#}\n", serde_json::to_value(value)?))
}

/// Headings and rows: aligned columns on a terminal, otherwise lines with tabs between the cells.
pub(super) fn table<R: AsRef<[String]>>(
    headings: impl AsRef<[&'static str]>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let headings = headings.as_ref().iter().map(ToString::to_string).collect();
    // A server may send any text.
    let printable = |cell: &String| escape_hidden(cell).into_owned();
    let rows = rows.into_iter();
    let rows = rows.map(|row| row.as_ref().iter().map(printable).collect());
    let lines: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    if io::stdout().is_terminal() {
        columns(&lines)
    } else {
        lines.iter().map(|line| line.join("\t") + "\n").collect()
    }
}

/// A time in Unix seconds, such as `2026-02-13T18:30:00Z`.
pub(super) fn time(unix_seconds: u64) -> impl Display {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(unix_seconds))
}

fn columns(lines: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for line in lines {
        widths.resize(line.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A cell with the value, or `-`.
pub(super) fn cell(value: Option<impl ToString>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// An amount with its period in seconds, such as `3600/60s`; the number alone if it is per second.
pub(super) fn per_period(amount: impl Display, period: f64) -> String {
    if period == 1.0 {
        amount.to_string()
    } else {
        format!("{amount}/{period}s")
    }
}

/// A cell with the name of an enum variant in JSON.
pub(super) fn variant_name(variant: &impl Serialize) -> String {
    let name = serde_json::to_value(variant).unwrap_or_default();
    name.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let lines = [["RESOURCE", "HAS"], ["tenant/ü", "5"], ["db", "12.5"]];
        let lines = lines.map(|line| line.map(str::to_owned).to_vec());
        assert_eq!(
            columns(&lines),
            "RESOURCE  HAS\ntenant/ü  5\ndb        12.5\n"
        );
    }
}
