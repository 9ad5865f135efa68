//! One aligned table a benchmark.

use std::fmt;

use crate::Figures;

/// What a ratio should come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// It is only told.
    None,
}

impl Target {
    fn verdict(self, figure: f64) -> String {
        let (text, is_met) = match self {
            Self::AtMost(bound) => (format!("at most {}", short(bound)), figure <= bound),
            Self::AtLeast(bound) => (format!("at least {}", short(bound)), figure >= bound),
            Self::None => return String::new(),
        };
        let verdict = if is_met { "met" } else { "missed" };
        format!("{text}: {verdict}")
    }
}

/// One comparison: what was measured, and beside what.
#[derive(Debug, Clone, PartialEq)]
pub struct Row([String; 6]);

impl Row {
    /// Two sides that were measured in the same rounds, and their ratio: the median of the first over the second, round by round.
    #[must_use]
    pub fn ratio(
        what: &str,
        figures: &Figures,
        beside: &str,
        others: &Figures,
        target: Target,
    ) -> Self {
        let ratio = figures.over(others).median();
        Self([
            what.to_owned(),
            spread(figures),
            beside.to_owned(),
            spread(others),
            format!("{} ×", short(ratio)),
            target.verdict(ratio),
        ])
    }

    /// A figure whose target is no ratio.
    #[must_use]
    pub fn figure(what: &str, figures: &Figures, target: Target) -> Self {
        Self([
            what.to_owned(),
            spread(figures),
            String::new(),
            String::new(),
            String::new(),
            target.verdict(figures.median()),
        ])
    }
}

/// All comparisons of one benchmark, in one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    title: String,
    unit: String,
    rows: Vec<Row>,
}

impl Table {
    /// No rows yet. The unit is that of the figures, such as `ns a decision`.
    #[must_use]
    pub fn new(title: &str, unit: &str) -> Self {
        Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            rows: Vec::new(),
        }
    }

    /// One more comparison.
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Prints all rows.
    #[expect(clippy::print_stdout, reason = "this is what a benchmark is run for")]
    pub fn print(&self) {
        println!("{self}");
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["", "median [all]", "beside", "median [all]", "ratio", ""].map(str::to_owned);
        let lines = || std::iter::once(&head).chain(self.rows.iter().map(|Row(cells)| cells));
        let widths: [usize; 6] = std::array::from_fn(|column| {
            let cells = lines().filter_map(|cells| cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        });
        writeln!(f, "\n{} ({})", self.title, self.unit)?;
        for cells in lines() {
            let mut line = String::new();
            for (cell, width) in cells.iter().zip(widths) {
                line.push_str(&format!("  {cell:<width$}"));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn spread(figures: &Figures) -> String {
    let (least, median, most) = (figures.least(), figures.median(), figures.most());
    if least == most {
        return short(median);
    }
    format!("{} [{}–{}]", short(median), short(least), short(most))
}

/// Two or three digits that count, or as many as stand before the point.
fn short(figure: f64) -> String {
    let decimals = match figure.abs() {
        0.0 => 0,
        size if size < 0.01 => 5,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{figure:.decimals$}");
    let grouped = decimals == 0 && text.bytes().all(|digit| digit.is_ascii_digit());
    if grouped { thousands(&text) } else { text }
}

fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_stands_beside_its_target() {
        let figures = Figures::constant;
        let mut table = Table::new("A thing", "ns a time");
        table.add(Row::ratio(
            "ours",
            &figures(50.0),
            "theirs",
            &figures(100.0),
            Target::AtMost(0.65),
        ));
        table.add(Row::ratio(
            "ours, twice",
            &figures(100.0),
            "theirs",
            &figures(100.0),
            Target::AtMost(0.65),
        ));
        table.add(Row::figure("bytes", &figures(7.0), Target::AtLeast(8.0)));
        let text = table.to_string();
        assert!(text.contains("ours         50.0"), "{text}");
        assert!(text.contains("0.50 ×  at most 0.65: met"), "{text}");
        assert!(text.contains("1.00 ×  at most 0.65: missed"), "{text}");
        assert!(text.contains("at least 8.00: missed"), "{text}");
    }

    #[test]
    fn small_figures_keep_digits_and_large_ones_are_grouped() {
        for (figure, text) in [
            (0.0, "0"),
            (0.000_19, "0.00019"),
            (0.654, "0.65"),
            (12.34, "12.3"),
            (999.6, "1,000"),
            (21_058_314.0, "21,058,314"),
            (-1_234.0, "-1234"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(short(figure), text);
        }
    }
}
