//! How long to measure.

use clap::Parser;

/// Measures, beside an alternative, and prints both with their ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Parser)]
pub struct Effort {
    /// Look briefly: smaller sizes, fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Effort {
    /// What the command line asks for; a word that it does not know ends the program.
    #[must_use]
    pub fn asked() -> Self {
        Self::parse()
    }

    /// `full` or, when a brief look is asked for, `quick`.
    #[must_use]
    pub fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
