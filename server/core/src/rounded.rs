//! Numbers for display.

/// Formats a number with at most three decimals and no trailing zeros.
#[must_use]
pub fn rounded(number: f64) -> String {
    let text = format!("{number:.3}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0" } else { short }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_three_decimals() {
        for (number, text) in [
            (0.0, "0"),
            (-0.000_1, "0"),
            (60.0, "60"),
            (69.690_721_65, "69.691"),
            (0.5, "0.5"),
            (-8.25, "-8.25"),
        ] {
            assert_eq!(rounded(number), text);
        }
    }
}
