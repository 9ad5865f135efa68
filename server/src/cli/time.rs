//! The wall clock, for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in Unix seconds.
#[expect(
    clippy::disallowed_methods,
    reason = "what people read comes from the wall clock"
)]
pub(super) fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// A time in Unix seconds as RFC 3339 has it, in UTC: `2026-11-21T14:05:00Z`.
pub(super) fn utc(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date that lies so many days after 1 January 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms",
/// `civil_from_days`, for what is not before it).
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March, so that the day that is not in each of them is the last.
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap = day_of_era / 1460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524).saturating_sub(leap) / 365;
    let first = 365 * year_of_era + year_of_era / 4;
    let day_of_year = day_of_era.saturating_sub(first.saturating_sub(year_of_era / 100));
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year.saturating_sub((153 * month + 2) / 5) + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month.saturating_sub(9), 1)
    };
    (
        era.saturating_mul(400)
            .saturating_add(year_of_era + next_year),
        month,
        day,
    )
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_123_456, "2026-11-19T21:24:16Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
