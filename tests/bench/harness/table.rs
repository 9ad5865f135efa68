//! Aligned tables of comparisons.

use std::fmt;

use crate::Samples;

/// The expected bound of a ratio or figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
    /// No bound.
    None,
}

impl Target {
    fn evaluate(self, figure: f64) -> String {
        let (text, is_met) = match self {
            Self::AtMost(bound) => (format!("at most {}", format_figure(bound)), figure <= bound),
            Self::AtLeast(bound) => (
                format!("at least {}", format_figure(bound)),
                figure >= bound,
            ),
            Self::None => return String::new(),
        };
        format!("{text}: {}", if is_met { "met" } else { "missed" })
    }
}

/// One measured subject, with or without a baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Row([String; 6]);

impl Row {
    /// A comparison of two sides of the same rounds. The target applies to the median ratio.
    #[must_use]
    pub fn ratio(
        subject: &str,
        samples: &Samples,
        baseline: &str,
        baseline_samples: &Samples,
        target: Target,
    ) -> Self {
        let ratio = samples.ratio_to(baseline_samples).median();
        Self([
            subject.to_owned(),
            format_samples(samples),
            baseline.to_owned(),
            format_samples(baseline_samples),
            format!("{} ×", format_figure(ratio)),
            target.evaluate(ratio),
        ])
    }

    /// A figure without a baseline. The target applies to the median.
    #[must_use]
    pub fn figure(subject: &str, samples: &Samples, target: Target) -> Self {
        Self([
            subject.to_owned(),
            format_samples(samples),
            String::new(),
            String::new(),
            String::new(),
            target.evaluate(samples.median()),
        ])
    }
}

/// Rows with the same unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    title: String,
    unit: String,
    rows: Vec<Row>,
}

impl Table {
    /// An empty table. The unit is that of the figures, such as `ns per decision`.
    #[must_use]
    pub fn new(title: &str, unit: &str) -> Self {
        Self {
            title: title.to_owned(),
            unit: unit.to_owned(),
            rows: Vec::new(),
        }
    }

    /// Appends a row.
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Prints the table to the standard output.
    #[expect(clippy::print_stdout, reason = "the output of a benchmark")]
    pub fn print(&self) {
        println!("{self}");
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = "median [min–max]";
        let head = ["", range, "baseline", range, "ratio", "target"].map(str::to_owned);
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

fn format_samples(samples: &Samples) -> String {
    let (min, median, max) = (samples.min(), samples.median(), samples.max());
    if min == max {
        return format_figure(median);
    }
    format!(
        "{} [{}–{}]",
        format_figure(median),
        format_figure(min),
        format_figure(max)
    )
}

/// Formats with about three significant digits, and groups the thousands.
fn format_figure(figure: f64) -> String {
    let decimals = match figure.abs() {
        0.0 => 0,
        size if size < 0.01 => 5,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{figure:.decimals$}");
    let is_integer = decimals == 0 && text.bytes().all(|digit| digit.is_ascii_digit());
    if is_integer {
        group_thousands(&text)
    } else {
        text
    }
}

fn group_thousands(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
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
    fn row_shows_ratio_and_target() {
        let samples = Samples::constant;
        let mut table = Table::new("A subject", "ns per call");
        table.add(Row::ratio(
            "ours",
            &samples(50.0),
            "theirs",
            &samples(100.0),
            Target::AtMost(0.65),
        ));
        table.add(Row::ratio(
            "ours, twice",
            &samples(100.0),
            "theirs",
            &samples(100.0),
            Target::AtMost(0.65),
        ));
        table.add(Row::figure("bytes", &samples(7.0), Target::AtLeast(8.0)));
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
            assert_eq!(format_figure(figure), text);
        }
    }
}
