//! Where the table is shown: in place on a terminal, block after block in a pipe.

use std::io::{self, IsTerminal, Stdout, Write};

#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    /// How many lines to go up, to write over the last table.
    lines: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self {
            out: io::stdout(),
            lines: 0,
        }
    }

    /// Shows a table, on a terminal in place of the one before.
    ///
    /// # Errors
    /// When nobody reads it any more.
    pub(crate) fn draw(&mut self, table: &str) -> io::Result<()> {
        if self.lines > 0 && self.out.is_terminal() {
            // To the beginning of the last table, and clear all below.
            write!(self.out, "\x1b[{}F\x1b[J", self.lines)?;
        }
        // An empty line ends it.
        self.lines = table.lines().count().saturating_add(1);
        writeln!(self.out, "{table}")
    }

    /// Writes something that stays, below the table.
    ///
    /// # Errors
    /// When nobody reads it any more.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        self.lines = 0;
        self.out.write_all(text.as_bytes())
    }
}
