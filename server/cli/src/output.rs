//! Output of commands: text, JSON and tables.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

use serde::Serialize;

use super::failure::Failure;

#[derive(Debug, clap::Args)]
pub(super) struct JsonFlag {
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Writes to standard output. A reader that has gone is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
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
    drop(writeln!(stderr, "{text}"));
}

/// Writes to standard error. Its failure does not stop the command.
pub(super) fn warn(stderr: &mut impl Write, warning: &dyn Display) {
    drop(writeln!(stderr, "warning: {warning}"));
}

pub(super) fn pretty_json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(format!("{:#}\n", serde_json::to_value(value)?))
}

/// Aligned columns with headings on a terminal; otherwise one line per row, separated by tabs.
pub(super) fn table<const N: usize>(
    headings: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    // A server may send any text.
    let printable = |cell: String| cell.replace(char::is_control, "?");
    let rows = rows.into_iter().map(|row| row.map(printable));
    let rows: Vec<_> = rows.collect();
    if io::stdout().is_terminal() {
        columns(headings, &rows)
    } else {
        rows.iter().map(|row| row.join("\t") + "\n").collect()
    }
}

fn columns<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = headings.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&headings.map(str::to_owned)).chain(rows) {
        let cells = row.iter().zip(widths);
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
        let rows = [
            ["tenant/ü".to_owned(), "5".to_owned()],
            ["db".to_owned(), "12.5".to_owned()],
        ];
        assert_eq!(
            columns(["RESOURCE", "HAS"], &rows),
            "RESOURCE  HAS\ntenant/ü  5\ndb        12.5\n"
        );
    }
}
