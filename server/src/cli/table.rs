//! Tables: with headings and in columns on a terminal; elsewhere one line a row, separated by tabs, for other programs.

use std::{
    fmt,
    io::{self, IsTerminal},
};

#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    headings: [&'static str; N],
    rows: Vec<[String; N]>,
    layout: Layout,
}

#[derive(Debug, Clone, Copy)]
enum Layout {
    Columns,
    Tabs,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(headings: [&'static str; N]) -> Self {
        let layout = if io::stdout().is_terminal() {
            Layout::Columns
        } else {
            Layout::Tabs
        };
        Self {
            headings,
            rows: Vec::new(),
            layout,
        }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    fn columns(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = self.headings.map(str::len);
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let headings = self.headings.map(str::to_owned);
        for row in std::iter::once(&headings).chain(&self.rows) {
            let line: String = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:width$}  "))
                .collect();
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layout {
            Layout::Columns => self.columns(f),
            Layout::Tabs => self
                .rows
                .iter()
                .try_for_each(|row| writeln!(f, "{}", row.join("\t"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(layout: Layout) -> String {
        let rows = vec![
            ["tenant/ü".to_owned(), "5".to_owned()],
            ["db".to_owned(), "12.5".to_owned()],
        ];
        let headings = ["RESOURCE", "HAS"];
        Table {
            headings,
            rows,
            layout,
        }
        .to_string()
    }

    #[test]
    fn columns_line_up_and_tabs_separate() {
        assert_eq!(
            table(Layout::Columns),
            "RESOURCE  HAS\ntenant/ü  5\ndb        12.5\n"
        );
        assert_eq!(table(Layout::Tabs), "tenant/ü\t5\ndb\t12.5\n");
    }
}
