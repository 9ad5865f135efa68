//! The printed table of results.

use std::fmt;

use super::Outcome;

/// Results as a Markdown table, which also reads well on a terminal.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<[String; 6]>,
}

const HEAD: [&str; 6] = [
    "situation",
    "target",
    "measured",
    "",
    "lease requests¹",
    "late²",
];

impl Table {
    /// Adds a result of a situation.
    pub fn add(&mut self, situation: &str, outcome: &Outcome) {
        let verdict = if outcome.met { "ok" } else { "missed" };
        self.rows.push([
            format!("{situation} {}", outcome.case).trim().to_owned(),
            outcome.target.clone(),
            outcome.measured.clone(),
            verdict.to_owned(),
            format!("{:.1}", outcome.lease_requests),
            format!("{:.0} ms", outcome.lag * 1000.0),
        ]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = HEAD.map(str::to_owned);
        let lines = || std::iter::once(&head).chain(&self.rows);
        let widths: [usize; 6] = std::array::from_fn(|column| {
            let cells = lines().filter_map(|cells| cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        });
        for (index, cells) in lines().enumerate() {
            for (cell, width) in cells.iter().zip(widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            writeln!(f, "|")?;
            if index == 0 {
                for width in widths {
                    write!(f, "|{:-<1$}", "", width + 2)?;
                }
                writeln!(f, "|")?;
            }
        }
        writeln!(f, "\n¹ per process and refresh interval")?;
        write!(f, "² the most that a request was sent late")
    }
}
